#include "gpu/dynamics/component_balance.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <random>

namespace palpate::gpu::component_balance_test {
namespace {

using Eigen::Matrix3d;
using Eigen::MatrixXd;
using Eigen::Vector3d;
using Eigen::VectorXd;

Vector3d V(const std::array<double, 3>& v) { return {v[0], v[1], v[2]}; }

ComponentBlock MakeBlock(const Vector3d& force_n, const Matrix3d& b) {
  ComponentBlock block;
  block.force = {force_n.x(), force_n.y(), force_n.z()};
  block.block = {b(0, 0), b(0, 1), b(0, 2), b(1, 1), b(1, 2), b(2, 2)};
  return block;
}

/// Pushes b along n with push_n, more by slope for each metre that b comes nearer; sliding meets a slope as well.
ComponentRow MakeRow(uint32_t a, uint32_t b, const Vector3d& n, double push_n, double slope_n_per_m, double slide_n_per_m) {
  ComponentRow row{};
  row.component_a = a;
  row.component_b = b;
  row.normal = {static_cast<float>(n.x()), static_cast<float>(n.y()), static_cast<float>(n.z()), static_cast<float>(push_n)};
  row.friction.w = static_cast<float>(slide_n_per_m);
  row.slope_n_per_m = static_cast<float>(slope_n_per_m);
  row.detected = {row.normal.x, row.normal.y, row.normal.z, 1.0F};  // far apart: nothing is limited
  return row;
}

class Random {
 public:
  double Uniform(double from, double to) { return std::uniform_real_distribution<double>(from, to)(engine_); }
  Vector3d Vector() { return {Uniform(-1, 1), Uniform(-1, 1), Uniform(-1, 1)}; }
  Matrix3d PositiveDefinite() {
    Matrix3d a;
    a << Vector(), Vector(), Vector();
    return a * a.transpose() + 0.5 * Matrix3d::Identity();
  }

 private:
  std::mt19937 engine_{7};
};

ComponentForces RandomForces(Random& random, size_t count, size_t row_count) {
  ComponentForces forces;
  for (size_t c = 0; c < count; ++c) {
    const bool is_free = c % 4 != 3;
    forces.is_free.push_back(is_free ? 1 : 0);
    forces.blocks.push_back(is_free ? MakeBlock(random.Vector(), random.PositiveDefinite()) : ComponentBlock());
    forces.moved_m.push_back({});
  }
  for (size_t i = 0; i < row_count; ++i) {
    const auto a = static_cast<uint32_t>(random.Uniform(0, static_cast<double>(count) - 1e-9));
    const uint32_t b = (a + 1) % static_cast<uint32_t>(count);
    if (!forces.is_free[a] && !forces.is_free[b]) continue;
    forces.rows.push_back(MakeRow(a, b, random.Vector().normalized(), random.Uniform(0, 2), random.Uniform(1, 5), random.Uniform(0, 1)));
  }
  return forces;
}

/// The same system, dense.
VectorXd DenseBalance(const ComponentForces& forces) {
  const auto n = static_cast<Eigen::Index>(forces.is_free.size());
  MatrixXd matrix = MatrixXd::Zero(3 * n, 3 * n);
  VectorXd force = VectorXd::Zero(3 * n);
  for (Eigen::Index c = 0; c < n; ++c) {
    const auto& b = forces.blocks[static_cast<size_t>(c)].block;
    Matrix3d block;
    block << b[0], b[1], b[2], b[1], b[3], b[4], b[2], b[4], b[5];
    matrix.block<3, 3>(3 * c, 3 * c) = block;
    force.segment<3>(3 * c) = V(forces.blocks[static_cast<size_t>(c)].force);
  }
  for (const ComponentRow& r : forces.rows) {
    const Vector3d normal(r.normal.x, r.normal.y, r.normal.z);
    const Matrix3d slope = r.friction.w * Matrix3d::Identity() + (r.slope_n_per_m - r.friction.w) * normal * normal.transpose();
    const Eigen::Index a = 3 * r.component_a;
    const Eigen::Index b = 3 * r.component_b;
    force.segment<3>(b) += r.normal.w * normal;
    force.segment<3>(a) -= r.normal.w * normal;
    matrix.block<3, 3>(a, a) += slope;
    matrix.block<3, 3>(b, b) += slope;
    matrix.block<3, 3>(a, b) -= slope;
    matrix.block<3, 3>(b, a) -= slope;
  }
  for (Eigen::Index c = 0; c < n; ++c) {
    if (forces.is_free[static_cast<size_t>(c)]) continue;
    matrix.middleRows(3 * c, 3).setZero();
    matrix.middleCols(3 * c, 3).setZero();
    matrix.block<3, 3>(3 * c, 3 * c).setIdentity();
    force.segment<3>(3 * c).setZero();
  }
  return matrix.ldlt().solve(force);
}

TEST(ComponentBalance, ABlockAloneIsSolvedExactly) {
  Random random;
  for (int i = 0; i < 20; ++i) {
    const Vector3d force_n = random.Vector();
    const Matrix3d block = random.PositiveDefinite();
    EXPECT_LT((block * V(MakeBlock(force_n, block).Balance()) - force_n).norm(), 1e-12);
  }
}

TEST(ComponentBalance, MovesSolveTheDenseSystem) {
  Random random;
  for (int i = 0; i < 20; ++i) {
    const ComponentForces forces = RandomForces(random, 9, 14);
    const std::vector<std::array<double, 3>> moves = BalanceComponents(forces);
    const VectorXd expected = DenseBalance(forces);
    for (size_t c = 0; c < moves.size(); ++c) {
      EXPECT_LT((V(moves[c]) - expected.segment<3>(static_cast<Eigen::Index>(3 * c))).norm(), 1e-6 * expected.norm()) << c;
      if (!forces.is_free[c]) {
        EXPECT_EQ(V(moves[c]), Vector3d::Zero());
      }
    }
  }
}

TEST(ComponentBalance, WithoutFiniteForcesNothingMoves) {
  ComponentForces forces;
  forces.is_free = {1};
  forces.blocks = {MakeBlock(Vector3d(1, 0, 0), Matrix3d::Zero())};
  forces.moved_m = {{}};
  EXPECT_EQ(V(BalanceComponents(forces)[0]), Vector3d::Zero());
}

/// Two free components on top of each other, and what is fixed below them. A row's plane has its normal from b to a.
ComponentForces Stack(double room_m) {
  ComponentForces forces;
  forces.is_free = {0, 1, 1};
  forces.blocks = {ComponentBlock(), MakeBlock(Vector3d(0, 0, -1), Matrix3d::Identity()),
                   MakeBlock(Vector3d(0, 0, -3), Matrix3d::Identity())};
  forces.moved_m.resize(3);
  ComponentRow joint = MakeRow(1, 2, Vector3d(0, 0, 1), 0, 0, 0);
  joint.detected = {0, 0, 1, static_cast<float>(room_m)};
  forces.rows = {joint};
  return forces;
}

TEST(ComponentBalance, JoinedComponentsMoveTogetherAndApproachByAShareOfTheirDistance) {
  ComponentForces forces = Stack(1);
  // Alone: 1 m and 3 m down; as one 2 m. 2 nears 1 by 2 m, of which a quarter of the metre between them is left.
  ComponentMoves moves = MovesToBalance(forces);
  EXPECT_EQ(moves.leader[1], moves.leader[2]);
  EXPECT_NE(moves.leader[0], moves.leader[1]);
  EXPECT_NEAR(moves.move_m[1][2] - moves.move_m[2][2], 0.25, 1e-9);
  EXPECT_NEAR((moves.move_m[1][2] + moves.move_m[2][2]) / 2, -2, 1e-9) << "the motion in common is whole";
  // What they came nearer since the detection counts.
  forces.moved_m[2] = {0, 0, -0.15};
  moves = MovesToBalance(forces);
  EXPECT_NEAR(moves.move_m[1][2] - moves.move_m[2][2], 0.1, 1e-6);
}

TEST(ComponentBalance, NothingPassesWhatIsFixed) {
  ComponentForces forces = Stack(100);
  ComponentRow ground = MakeRow(0, 1, Vector3d(0, 0, 1), 0, 0, 0);
  ground.detected = {0, 0, 1, 0.4F};
  forces.rows.push_back(ground);
  const ComponentMoves moves = MovesToBalance(forces);
  EXPECT_GE(moves.move_m[1][2], -0.1 - 1e-7) << "a quarter of the distance";
  EXPECT_LT(moves.move_m[1][2], 0);
  EXPECT_EQ(V(moves.move_m[0]), Vector3d::Zero());
}

TEST(ComponentBalance, WhatRoundingCannotTellApartStays) {
  ComponentForces forces = Stack(1e-6);
  forces.rows[0].rounding_m = 1e-6F;
  const ComponentMoves moves = MovesToBalance(forces);
  for (const std::array<double, 3>& m : moves.move_m) EXPECT_EQ(V(m), Vector3d::Zero());
}

}  // namespace
}  // namespace palpate::gpu::component_balance_test
