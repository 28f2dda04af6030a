#include "gpu/dynamics/rigid_bodies.h"

#include <Eigen/Core>
#include <Eigen/Geometry>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/device_test.h"

namespace palpate::gpu::rigid_bodies_test {
namespace {

using Eigen::Quaterniond;
using Eigen::Vector3d;

Vector3d ToVector(const std::array<double, 3>& v) { return {v[0], v[1], v[2]}; }

ConvexMesh Cube() {
  ConvexMesh mesh;
  for (int i = 0; i < 8; ++i) mesh.vertices_m.push_back({i & 1 ? 1.0F : -1.0F, i & 2 ? 1.0F : -1.0F, i & 4 ? 1.0F : -1.0F, 0});
  return mesh;
}

// The body of Amaral 2021: a cube with bevelled edges and corners, 24 vertices.
ConvexMesh BevelledCube() {
  ConvexMesh mesh;
  const float c = 0.179303F;
  for (int axis = 0; axis < 3; ++axis) {
    for (int signs = 0; signs < 8; ++signs) {
      float p[3];
      for (int i = 0; i < 3; ++i) p[i] = (signs >> i & 1 ? -1.0F : 1.0F) * (i == axis ? 1.0F : c);
      mesh.vertices_m.push_back({p[0], p[1], p[2], 0});
    }
  }
  return mesh;
}

RigidBodiesOptions OnGround() {
  RigidBodiesOptions options;
  options.ground = {0, 0, 1, 0};
  return options;
}

class RigidBodiesTest : public test::DeviceTest {
 protected:
  std::unique_ptr<RigidBodies> Make(const std::vector<ConvexMesh>& meshes, const std::vector<RigidBodyDescription>& bodies,
                                    const RigidBodiesOptions& options) {
    auto world = RigidBodies::Create(context(), meshes, bodies, options);
    EXPECT_TRUE(world.ok()) << world.status();
    return world.ok() ? *std::move(world) : nullptr;
  }

  std::vector<RigidBodyState> Run(RigidBodies& world, int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto step = world.Step();
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) return std::vector<RigidBodyState>(world.body_count());
      Add(step->counters);
      last_ = *step;
    }
    return State(world);
  }

  std::vector<RigidBodyState> State(RigidBodies& world) {
    auto state = world.ReadState();
    EXPECT_TRUE(state.ok()) << state.status();
    return state.ok() ? *std::move(state) : std::vector<RigidBodyState>(world.body_count());
  }

  void Add(const RigidCounters& c) {
    counters_.unresolved_pairs += c.unresolved_pairs;
    counters_.incomplete_matches += c.incomplete_matches;
    counters_.failed_matches += c.failed_matches;
    counters_.limited_rotations += c.limited_rotations;
    counters_.limited_corrections += c.limited_corrections;
    counters_.restored_bodies += c.restored_bodies;
  }

  // Deepest overlap of any two bodies now [m].
  double Penetration(RigidBodies& world) {
    std::vector<UInt2> pairs;
    for (uint32_t i = 0; i < world.body_count(); ++i) {
      for (uint32_t j = i + 1; j < world.body_count(); ++j) pairs.push_back({i, j});
    }
    if (pairs.empty()) return 0;
    auto phase = ConvexNarrowPhase::Create(context());
    EXPECT_TRUE(phase.ok()) << phase.status();
    const auto d_pairs = Upload(pairs);
    const auto contacts = Allocate<ConvexContact>(pairs.size());
    PALPATE_EXPECT_OK(world.queue().FinishBlocking());
    PALPATE_EXPECT_OK(
        phase->Run(queue(), world.device_meshes(), world.device_bodies(), d_pairs, static_cast<uint32_t>(pairs.size()), 0.0F, contacts));
    double deepest = 0;
    for (const ConvexContact& c : Download(contacts)) {
      if (c.status == PALPATE_CONVEX_OVERLAPPING) deepest = std::max(deepest, -double{c.normal.w});
    }
    return deepest;
  }

  // Lowest point of the body over the plane z = 0.
  static double LowestPoint(const ConvexMesh& mesh, const RigidBodyDescription& body, const RigidBodyState& state) {
    const Quaterniond q(state.rotation_wxyz[0], state.rotation_wxyz[1], state.rotation_wxyz[2], state.rotation_wxyz[3]);
    double lowest = INFINITY;
    for (const Float4& v : mesh.vertices_m) {
      lowest =
          std::min(lowest, (q * Vector3d(v.x * body.scale[0], v.y * body.scale[1], v.z * body.scale[2]) + ToVector(state.position_m)).z());
    }
    return lowest;
  }

  RigidCounters counters_{};
  RigidStep last_{};
};

// v <- (v + g h) d has the fixed point d g h / (1 - d).
TEST_F(RigidBodiesTest, VerletWithDampingReachesItsTerminalSpeed) {
  RigidBodiesOptions options;
  options.integrator = RigidIntegrator::kVerlet;
  options.dt_s = 0.09;
  options.damping = 0.95;
  options.gravity_m_per_s2 = {0, -9.8 / 1.1, 0};
  const auto world = Make({Cube()}, {{.position_m = {0, 1000, 0}, .mass_kg = 1.1}}, options);
  ASSERT_NE(world, nullptr);
  RigidBodyState state = Run(*world, 1)[0];
  EXPECT_NEAR(state.position_m[1], 1000 - 0.5 * 0.09 * 0.09 * 9.8 / 1.1, 1e-4);
  EXPECT_NEAR(state.velocity_m_per_s[1], -0.95 * 0.09 * 9.8 / 1.1, 1e-5);
  state = Run(*world, 400)[0];
  const double terminal = 0.95 * (9.8 / 1.1) * 0.09 / 0.05;
  EXPECT_NEAR(terminal, 15.23, 0.01);
  EXPECT_NEAR(state.velocity_m_per_s[1], -terminal, 1e-3);
  const double before = state.position_m[1];
  state = Run(*world, 1)[0];
  EXPECT_NEAR(before - state.position_m[1], terminal * 0.09 + 0.5 * 0.09 * 0.09 * 9.8 / 1.1, 1e-3);
}

TEST_F(RigidBodiesTest, FreeFlightFollowsItsFormula) {
  RigidBodiesOptions options;
  options.dt_s = 0.01;
  ConvexMesh off_center = Cube();
  for (Float4& v : off_center.vertices_m) v.x += 3;  // the centre of mass is not the origin
  const auto world = Make({off_center},
                          {{.position_m = {1, 2, 30},
                            .rotation_wxyz = {1, 1, 0, 0},
                            .scale = {1, 2, 0.5},
                            .velocity_m_per_s = {1, 0, 2},
                            .spin_rad_per_s = {0, 0, 2}}},
                          options);
  ASSERT_NE(world, nullptr);
  const RigidBodyState start = State(*world)[0];
  EXPECT_NEAR((ToVector(start.position_m) - Vector3d(1, 2, 30)).norm(), 0, 1e-5);
  const int n = 100;
  const RigidBodyState state = Run(*world, n)[0];
  const Quaterniond q0 = Quaterniond(1, 1, 0, 0).normalized();
  const Quaterniond turn(Eigen::AngleAxisd(2.0 * n * 0.01, Vector3d::UnitZ()));
  const Vector3d center =
      Vector3d(1, 2, 30) + q0 * Vector3d(3, 0, 0) + n * 0.01 * Vector3d(1, 0, 2) - Vector3d(0, 0, 9.81 * 1e-4 * n * (n + 1) / 2);
  EXPECT_LT((ToVector(state.position_m) - (center - turn * q0 * Vector3d(3, 0, 0))).norm(), 1e-3);
  const Quaterniond q(state.rotation_wxyz[0], state.rotation_wxyz[1], state.rotation_wxyz[2], state.rotation_wxyz[3]);
  EXPECT_LT(q.angularDistance(turn * q0), 1e-4);
  EXPECT_NEAR(state.velocity_m_per_s[2], 2 - 9.81 * n * 0.01, 1e-4);
  EXPECT_EQ(last_.pair_count, 0U);
}

TEST_F(RigidBodiesTest, BodiesComeToRestOnTheGround) {
  const std::vector<RigidBodyDescription> bodies = {
      {.position_m = {0, 0, 2.5}},
      {.mesh = 1, .position_m = {10, 0, 4}, .rotation_wxyz = {0.9, 0.3, 0.2, 0.1}, .scale = {1, 2, 1}},
      {.position_m = {20, 0, 3}, .rotation_wxyz = {1, 0.4, 0.1, 0}}};
  const auto world = Make({Cube(), BevelledCube()}, bodies, OnGround());
  ASSERT_NE(world, nullptr);
  const std::vector<RigidBodyState> states = Run(*world, 1200);
  for (size_t i = 0; i < bodies.size(); ++i) {
    EXPECT_NEAR(LowestPoint(i == 1 ? BevelledCube() : Cube(), bodies[i], states[i]), 0, 5e-3) << i;
    EXPECT_LT(ToVector(states[i].velocity_m_per_s).norm(), 0.05) << i;
    EXPECT_LT(ToVector(states[i].spin_rad_per_s).norm(), 0.05) << i;
    EXPECT_LT(std::abs(states[i].position_m[0] - bodies[i].position_m[0]), 3) << i;
  }
  EXPECT_NEAR(states[0].position_m[2], 1, 5e-3);
  EXPECT_NEAR(states[2].position_m[2], 1, 5e-3);  // fell over onto a face
}

// The scene of Amaral 2021 in small: long steps, and a column that falls onto the first bodies. They must not be pushed into the ground.
TEST_F(RigidBodiesTest, NothingIsPushedIntoTheGround) {
  RigidBodiesOptions options = OnGround();
  options.integrator = RigidIntegrator::kVerlet;
  options.dt_s = 0.09;
  options.damping = 0.95;
  options.gravity_m_per_s2 = {0, 0, -9.8 / 1.1};
  std::mt19937 random(3);
  std::uniform_real_distribution<double> angle(-1, 1);
  std::vector<RigidBodyDescription> bodies;
  for (int i = 0; i < 40; ++i) {
    bodies.push_back({.position_m = {0, 0, 10.0 + 8 * i},
                      .rotation_wxyz = {1, angle(random), angle(random), angle(random)},
                      .scale = {2, i % 2 == 0 ? 2.0 : 6.0, 2},
                      .mass_kg = 1.1});
  }
  const auto world = Make({BevelledCube()}, bodies, options);
  ASSERT_NE(world, nullptr);
  double lowest_m = INFINITY;
  for (int step = 0; step < 400; ++step) {
    const std::vector<RigidBodyState> states = Run(*world, 1);
    for (size_t i = 0; i < states.size(); ++i) lowest_m = std::min(lowest_m, LowestPoint(BevelledCube(), bodies[i], states[i]));
  }
  EXPECT_LT(lowest_m, 1e-3);  // they have arrived
  EXPECT_GT(lowest_m, -1e-4);
}

TEST_F(RigidBodiesTest, StaticBodiesStayAndCarry) {
  const std::vector<RigidBodyDescription> bodies = {
      {.position_m = {0, 0, 0}, .scale = {5, 5, 1}, .velocity_m_per_s = {1, 1, 1}, .mass_kg = 0},
      {.position_m = {0, 0, 2.5}},
      {.position_m = {4, 0, -0.5}, .mass_kg = 0}};
  const auto world = Make({Cube()}, bodies, {});
  ASSERT_NE(world, nullptr);
  const std::vector<RigidBodyState> states = Run(*world, 600);
  for (const size_t i : {0, 2}) {
    EXPECT_EQ(states[i].position_m, bodies[i].position_m);
    EXPECT_EQ(states[i].velocity_m_per_s, (std::array<double, 3>{}));
  }
  EXPECT_NEAR(states[1].position_m[2], 2, 0.02);
  EXPECT_LT(ToVector(states[1].velocity_m_per_s).norm(), 0.05);
  EXPECT_EQ(last_.pair_count, 1U);  // two static bodies make no pair
}

TEST_F(RigidBodiesTest, ReboundFollowsRestitution) {
  for (const double e : {0.0, 0.5, 1.0}) {
    RigidBodiesOptions options = OnGround();
    options.dt_s = 1.0 / 480;
    options.restitution = e;
    options.friction = 0;
    const auto world = Make({Cube()}, {{.position_m = {0, 0, 3}}}, options);
    ASSERT_NE(world, nullptr);
    double fastest_down = 0, fastest_up = 0;
    for (int i = 0; i < 480 && fastest_up == 0; ++i) {
      const double v = Run(*world, 1)[0].velocity_m_per_s[2];
      fastest_down = std::min(fastest_down, v);
      if (v > -1e-3) fastest_up = std::max(v, 1e-9);
    }
    EXPECT_NEAR(fastest_down, -std::sqrt(2 * 9.81 * 2), 0.1) << e;
    EXPECT_NEAR(fastest_up, -e * fastest_down, 0.15) << e;
  }
}

// A block on a slope of angle t: stays if tan t < friction, else accelerates with g (sin t - friction cos t).
TEST_F(RigidBodiesTest, FrictionHoldsOrSlowsABlockOnASlope) {
  for (const double friction : {0.0, 0.2, 0.8}) {
    const double slope = 0.4;  // tan = 0.42
    RigidBodiesOptions options;
    options.ground = {std::sin(slope), 0, std::cos(slope), 0};
    options.friction = friction;
    const auto world = Make({Cube()},
                            {{.position_m = {std::sin(slope), 0, std::cos(slope)},
                              .rotation_wxyz = {std::cos(slope / 2), 0, std::sin(slope / 2), 0},
                              .scale = {1, 1, 1}}},
                            options);
    ASSERT_NE(world, nullptr);
    const RigidBodyState state = Run(*world, 120)[0];
    const double speed = ToVector(state.velocity_m_per_s).norm();
    const double expected = std::max(0.0, 9.81 * (std::sin(slope) - friction * std::cos(slope)));
    EXPECT_NEAR(speed, expected, 0.05 + 0.1 * expected) << friction;
    if (expected == 0) {
      EXPECT_LT((ToVector(state.position_m) - Vector3d(std::sin(slope), 0, std::cos(slope))).norm(), 0.02) << friction;
    }
  }
}

TEST_F(RigidBodiesTest, CollisionsKeepMomentum) {
  for (const double e : {0.0, 1.0}) {
    RigidBodiesOptions options;
    options.gravity_m_per_s2 = {0, 0, 0};
    options.restitution = e;
    options.friction = 0;
    options.dt_s = 1.0 / 240;
    const std::vector<RigidBodyDescription> bodies = {{.position_m = {-3, 0, 0}, .velocity_m_per_s = {4, 0, 0}, .mass_kg = 2},
                                                      {.position_m = {3, 0, 0}, .velocity_m_per_s = {-2, 0, 0}, .mass_kg = 1}};
    const auto world = Make({BevelledCube()}, bodies, options);
    ASSERT_NE(world, nullptr);
    const std::vector<RigidBodyState> states = Run(*world, 480);
    const Vector3d p = 2 * ToVector(states[0].velocity_m_per_s) + ToVector(states[1].velocity_m_per_s);
    EXPECT_LT((p - Vector3d(6, 0, 0)).norm(), 0.05) << e;
    const double parting = states[1].velocity_m_per_s[0] - states[0].velocity_m_per_s[0];
    EXPECT_NEAR(parting, 6 * e, 0.2) << e;
  }
}

TEST_F(RigidBodiesTest, PenetrationShrinksWithIterations) {
  for (const bool line_search : {false, true}) {
    double previous = INFINITY;
    for (const uint32_t iterations : {1U, 3U, 10U, 30U}) {
      RigidBodiesOptions options;
      options.gravity_m_per_s2 = {0, 0, 0};
      options.iterations = iterations;
      options.line_search = line_search;
      const auto world = Make({BevelledCube()},
                              {{.position_m = {0, 0, 0}}, {.position_m = {1.2, 0.3, 0.2}, .rotation_wxyz = {1, 0.2, 0.3, 0.1}}}, options);
      ASSERT_NE(world, nullptr);
      const double at_first = Penetration(*world);
      ASSERT_GT(at_first, 0.2);
      const std::vector<RigidBodyState> states = Run(*world, 1);
      const double left = Penetration(*world);
      EXPECT_LT(left, 0.8 * std::min(previous, at_first)) << line_search << " " << iterations;
      previous = left;
      // Equal bodies share the correction, so their centre stays about where it was.
      EXPECT_LT((ToVector(states[0].position_m) + ToVector(states[1].position_m) - Vector3d(1.2, 0.3, 0.2)).norm(), 0.4)
          << line_search << " " << iterations;
    }
    EXPECT_LT(previous, line_search ? 0.01 : 0.1);
  }
}

// After one match against a static half no vertex of the body is farther past the plane than before; with the plain match of a body that is
// past the plane with all its vertices, none is past it at all.
TEST_F(RigidBodiesTest, ProjectionClearsThePlane) {
  RigidBodiesOptions options = OnGround();
  options.gravity_m_per_s2 = {0, 0, 0};
  options.iterations = 1;
  options.line_search = false;
  options.friction = 0;
  const auto world = Make({Cube()}, {{.position_m = {0, 0, -3}, .rotation_wxyz = {1, 0.2, 0.1, 0}}, {.position_m = {9, 0, -0.2}}}, options);
  ASSERT_NE(world, nullptr);
  const std::vector<RigidBodyState> states = Run(*world, 1);
  // All vertices below: they are flattened onto the plane, and the match centres the body on it.
  EXPECT_NEAR(states[0].position_m[2], 0, 1e-5);
  // The lower half below by 1.2: the body rises by the mean, 0.6.
  EXPECT_NEAR(states[1].position_m[2], 0.4, 1e-5);
}

TEST_F(RigidBodiesTest, ExceptionsAreHandledAndCounted) {
  const ConvexMesh point = {{{0, 0, 0, 0}}, {}};
  const ConvexMesh rod = {{{-1, 0, 0, 0}, {0, 0, 0, 0}, {1, 0, 0, 0}}, {}};
  const ConvexMesh sheet = {{{-1, -1, 0, 0}, {1, -1, 0, 0}, {1, 1, 0, 0}, {-1, 1, 0, 0}}, {}};
  const auto all_finite = [&](const std::vector<RigidBodyState>& states) {
    for (const RigidBodyState& s : states) {
      const double sum =
          ToVector(s.position_m).sum() + ToVector(s.velocity_m_per_s).sum() + ToVector(s.spin_rad_per_s).sum() + s.rotation_wxyz[0];
      EXPECT_TRUE(std::isfinite(sum));
      double norm = 0;
      for (const double x : s.rotation_wxyz) norm += x * x;
      EXPECT_NEAR(norm, 1, 1e-5);
    }
  };
  {
    // Points and rods leave a part of the rotation open; they rest on the ground and on a sheet all the same.
    const std::vector<RigidBodyDescription> bodies = {{.mesh = 0, .position_m = {0, 0, 0.5}},
                                                      {.mesh = 1, .position_m = {5, 0, 0.5}, .rotation_wxyz = {1, 0, 0.3, 0}},
                                                      {.mesh = 2, .position_m = {10, 0, 0.5}, .rotation_wxyz = {1, 0.2, 0, 0}},
                                                      {.mesh = 1, .position_m = {10, 0, 1.2}}};
    const auto world = Make({point, rod, sheet}, bodies, OnGround());
    ASSERT_NE(world, nullptr);
    const std::vector<RigidBodyState> states = Run(*world, 600);
    all_finite(states);
    EXPECT_GT(counters_.incomplete_matches, 0U);
    EXPECT_EQ(counters_.failed_matches, 0U);
    EXPECT_NEAR(states[0].position_m[2], 0, 5e-3);
    EXPECT_NEAR(states[1].position_m[2], 0, 5e-3);
    EXPECT_NEAR(states[2].position_m[2], 0, 5e-3);
  }
  {
    // Deep overlap at rest: pushed apart without gaining speed.
    counters_ = {};
    RigidBodiesOptions options;
    options.gravity_m_per_s2 = {0, 0, 0};
    const auto world = Make({Cube()}, {{.position_m = {0, 0, 0}}, {.position_m = {0.5, 0.1, 0}}}, options);
    ASSERT_NE(world, nullptr);
    const std::vector<RigidBodyState> states = Run(*world, 60);
    all_finite(states);
    EXPECT_GT(counters_.limited_corrections, 0U);
    EXPECT_LT(Penetration(*world), 0.01);
    EXPECT_LT(ToVector(states[0].velocity_m_per_s).norm(), 1e-3);
  }
  {
    // A long rod far under the ground at one end.
    counters_ = {};
    const auto world = Make({rod},
                            {{.position_m = {0, 0, -4}, .rotation_wxyz = {0.92, 0, 0.38, 0}, .scale = {8, 1, 1}},
                             {.position_m = {0, 9, 5}, .rotation_wxyz = {1, 0, 0.5, 0}, .scale = {8, 1, 1}}},
                            OnGround());
    ASSERT_NE(world, nullptr);
    all_finite(Run(*world, 60));
    EXPECT_GT(counters_.limited_rotations, 0U);
  }
  {
    // Bodies so large that products of their coordinates overflow: no distance, no match, no NaN.
    counters_ = {};
    const auto world =
        Make({Cube()}, {{.position_m = {0, 0, 0}, .scale = {1e25, 1e25, 1e25}}, {.position_m = {1, 0, 0}, .scale = {1e25, 1e25, 1e25}}},
             OnGround());
    ASSERT_NE(world, nullptr);
    all_finite(Run(*world, 1));
    EXPECT_GT(counters_.unresolved_pairs, 0U);
    EXPECT_GT(counters_.failed_matches, 0U);
  }
  {
    counters_ = {};
    const auto world = Make({Cube()}, {{.position_m = {0, 0, 5}, .velocity_m_per_s = {1e25, 0, 0}}}, {});
    ASSERT_NE(world, nullptr);
    const std::vector<RigidBodyState> states = Run(*world, 2);
    all_finite(states);
    EXPECT_EQ(counters_.restored_bodies, 1U);
    EXPECT_EQ(states[0].position_m[0], 0);
  }
}

TEST_F(RigidBodiesTest, BadDescriptionsAreRefused) {
  const auto status = [&](const RigidBodyDescription& body, const RigidBodiesOptions& options = {}) {
    return RigidBodies::Create(context(), std::vector<ConvexMesh>{Cube()}, std::vector<RigidBodyDescription>{body}, options).status();
  };
  PALPATE_EXPECT_OK(status({}));
  EXPECT_TRUE(absl::IsInvalidArgument(status({.mesh = 1})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({.position_m = {NAN, 0, 0}})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({.rotation_wxyz = {0, 0, 0, 0}})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({.scale = {1, 0, 1}})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({.velocity_m_per_s = {INFINITY, 0, 0}})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({.spin_rad_per_s = {0, NAN, 0}})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({.mass_kg = -1})));
  for (const auto& change : std::vector<void (*)(RigidBodiesOptions&)>{
           [](RigidBodiesOptions& o) { o.dt_s = 0; }, [](RigidBodiesOptions& o) { o.gravity_m_per_s2[1] = NAN; },
           [](RigidBodiesOptions& o) { o.damping = -1; }, [](RigidBodiesOptions& o) { o.iterations = 0; },
           [](RigidBodiesOptions& o) { o.velocity_iterations = 20000; }, [](RigidBodiesOptions& o) { o.friction = -0.1; },
           [](RigidBodiesOptions& o) { o.restitution = 1.1; },
           [](RigidBodiesOptions& o) {
             o.level_of_detail = {.point_m = {0, NAN, 0}};
           },
           [](RigidBodiesOptions& o) { o.level_of_detail = {.full_distance_m = -1}; },
           [](RigidBodiesOptions& o) { o.level_of_detail = {.full_distance_m = 2, .reduced_distance_m = 1}; },
           [](RigidBodiesOptions& o) { o.level_of_detail = {.reduced_iterations = 0}; },
           [](RigidBodiesOptions& o) { o.level_of_detail = {.reduced_iterations = 11}; },
           [](RigidBodiesOptions& o) {
             o.ground = {0, 0, 0, 1};
           },
           [](RigidBodiesOptions& o) { o.integrator = RigidIntegrator::kVerlet, o.damping = 1.5; }}) {
    RigidBodiesOptions options;
    change(options);
    EXPECT_TRUE(absl::IsInvalidArgument(status({}, options)));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(RigidBodies::Create(context(), std::vector<ConvexMesh>{Cube()}, {}, {}).status()));
}

bool SameBits(const RigidBodyState& a, const RigidBodyState& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// Two heaps of bodies on one static floor, 200 m apart: bodies 1 to 9 near x = 0, the others near x = 200.
class LevelOfDetailTest : public RigidBodiesTest {
 protected:
  static std::vector<RigidBodyDescription> TwoHeaps() {
    std::vector<RigidBodyDescription> bodies = {{.position_m = {100, 0, -1}, .scale = {150, 50, 1}, .mass_kg = 0}};
    for (int heap = 0; heap < 2; ++heap) {
      for (int i = 0; i < 9; ++i) {
        bodies.push_back({.mesh = 1,
                          .position_m = {200.0 * heap + 1.3 * (i % 3), 1.3 * (i / 3), 1.05 + 0.2 * (i % 4)},
                          .rotation_wxyz = {1, 0.1 * i, 0.2, 0.05 * i}});
      }
    }
    return bodies;
  }

  std::vector<RigidBodyState> RunHeaps(const RigidBodiesOptions& options, uint64_t* solved_pairs) {
    const auto world = Make({Cube(), BevelledCube()}, TwoHeaps(), options);
    if (world == nullptr) return {};
    *solved_pairs = 0;
    std::vector<RigidBodyState> states;
    for (int i = 0; i < 12; ++i) {
      states = Run(*world, 1);
      EXPECT_GT(last_.pair_count, 12U);
      *solved_pairs += last_.solved_pairs;
    }
    return states;
  }
};

// F67.
TEST_F(LevelOfDetailTest, BodiesNearThePointAreThoseOfAllIterations) {
  uint64_t all = 0, fewer = 0;
  const std::vector<RigidBodyState> expected = RunHeaps({}, &all);
  RigidBodiesOptions options;
  options.level_of_detail = {.point_m = {0, 0, 0}, .full_distance_m = 20, .reduced_distance_m = 60, .reduced_iterations = 1};
  const std::vector<RigidBodyState> states = RunHeaps(options, &fewer);
  ASSERT_EQ(states.size(), expected.size());
  // Near and far share the static floor, which passes nothing on.
  for (size_t i = 1; i <= 9; ++i) EXPECT_TRUE(SameBits(states[i], expected[i])) << i;
  int changed = 0;
  for (size_t i = 10; i < states.size(); ++i) changed += SameBits(states[i], expected[i]) ? 0 : 1;
  EXPECT_GT(changed, 5);
  EXPECT_LT(fewer, all * 7 / 10);
  EXPECT_GT(fewer, all / 3);
  // Without, in another order, and again.
  const std::vector<RigidBodyState> again = RunHeaps(options, &fewer);
  EXPECT_EQ(std::memcmp(states.data(), again.data(), states.size() * sizeof(states[0])), 0);
}

TEST_F(LevelOfDetailTest, OneLevelForAllIsThatManyIterations) {
  for (const uint32_t level : {1U, 4U, 10U}) {
    uint64_t with = 0, without = 0;
    RigidBodiesOptions plain;
    plain.iterations = level;
    RigidBodiesOptions options;
    // Everything is far away, or, at 10, near.
    options.level_of_detail = {.point_m = {0, 0, level == 10 ? 0.0 : 5000.0},
                               .full_distance_m = level == 10 ? 1000.0 : 0,
                               .reduced_distance_m = 1000,
                               .reduced_iterations = level == 10 ? 1 : level};
    const std::vector<RigidBodyState> expected = RunHeaps(plain, &without);
    const std::vector<RigidBodyState> states = RunHeaps(options, &with);
    ASSERT_EQ(states.size(), expected.size());
    for (size_t i = 0; i < states.size(); ++i) EXPECT_TRUE(SameBits(states[i], expected[i])) << level << ", body " << i;
    EXPECT_EQ(with, without);
  }
}

// Half way between the distances: reduced + ceil((all - reduced) / 2) iterations; a pair with a nearer body gets that body's.
TEST_F(LevelOfDetailTest, IterationsFallInProportionToTheDistance) {
  const double radius = std::sqrt(3.0);
  RigidBodiesOptions options;
  options.gravity_m_per_s2 = {0, 0, 0};
  options.iterations = 10;
  options.level_of_detail = {.point_m = {0, 0, 0}, .full_distance_m = 10, .reduced_distance_m = 30, .reduced_iterations = 3};
  for (const auto& [distance, solved] : {std::pair{5.0, 10U}, {10.0, 10U}, {20.0, 7U}, {29.9, 4U}, {31.0, 3U}}) {
    const double x = distance + radius;
    const auto world = Make({Cube()}, {{.position_m = {x, 0, 0}}, {.position_m = {x + 1.5, 0, 0}}}, options);
    ASSERT_NE(world, nullptr);
    Run(*world, 1);
    EXPECT_EQ(last_.pair_count, 1U);
    EXPECT_EQ(last_.solved_pairs, solved) << distance;
    // The point follows the viewer.
    PALPATE_ASSERT_OK(world->SetPointOfInterest({x, 5, 0}));
    PALPATE_TEST_ASSIGN(const RigidStep step, world->Step());
    EXPECT_EQ(step.solved_pairs, 10U * step.pair_count);
    EXPECT_TRUE(absl::IsInvalidArgument(world->SetPointOfInterest({0, NAN, 0})));
  }
  const auto world = Make({Cube()}, {{}}, {});
  ASSERT_NE(world, nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(world->SetPointOfInterest({0, 0, 0})));
}

// F38: contacts of the volumes alone.
class VolumeContactTest : public RigidBodiesTest, public ::testing::WithParamInterface<BoundingVolume> {
 protected:
  static RigidBodiesOptions Weightless() {
    RigidBodiesOptions options;
    options.gravity_m_per_s2 = {0, 0, 0};
    options.narrow_phase = RigidNarrowPhase::kVolumes;
    options.broad_phase.volume = GetParam();
    return options;
  }
};

// The static one stays, the other leaves the volume by the shortest way: no part of the bodies is in the other, and none turns.
TEST_P(VolumeContactTest, BodiesPartAlongTheLeastOverlap) {
  std::mt19937 random(6);
  std::normal_distribution<double> normal;
#ifdef PALPATE_NATIVE_KERNELS
  const int trials = 2;
#else
  const int trials = 12;
#endif
  for (int trial = 0; trial < trials; ++trial) {
    RigidBodiesOptions options = Weightless();
    options.iterations = 30;
    options.correct_velocities = false;
    options.friction = 0;
    const auto rotation = [&] { return std::array<double, 4>{normal(random), normal(random), normal(random), normal(random)}; };
    const std::vector<RigidBodyDescription> bodies = {
        {.position_m = {100, -50, 20}, .rotation_wxyz = rotation(), .scale = {1, 2, 1}, .mass_kg = 0},
        {.position_m = {100.4 + 0.1 * trial, -50.5, 20.3}, .rotation_wxyz = rotation(), .scale = {1, 2, 1}}};
    const auto world = Make({BevelledCube()}, bodies, options);
    ASSERT_NE(world, nullptr);
    EXPECT_GT(Penetration(*world), 0.1);
    const std::vector<RigidBodyState> states = Run(*world, 1);
    EXPECT_EQ(last_.solved_pairs, 30U);
    EXPECT_EQ(counters_.unresolved_pairs, 0U);
    EXPECT_LT(Penetration(*world), 1e-4) << trial;
    // The volumes touch: the next step finds them at most that deep in each other.
    const std::vector<RigidBodyState> next = Run(*world, 1);
    EXPECT_LT((ToVector(next[1].position_m) - ToVector(states[1].position_m)).norm(), 1e-3) << trial;
    const Quaterniond q0 =
        Quaterniond(bodies[1].rotation_wxyz[0], bodies[1].rotation_wxyz[1], bodies[1].rotation_wxyz[2], bodies[1].rotation_wxyz[3])
            .normalized();
    const Quaterniond q(states[1].rotation_wxyz[0], states[1].rotation_wxyz[1], states[1].rotation_wxyz[2], states[1].rotation_wxyz[3]);
    EXPECT_LT(q.angularDistance(q0), 1e-4) << trial;
  }
}

// Cubes with the axes of the world meet where their volumes do; spheres of radius sqrt(3) earlier. 2 kg at 4 m/s against 1 kg at -2 m/s.
TEST_P(VolumeContactTest, CollisionsKeepMomentumAndFollowRestitution) {
  for (const double e : {0.0, 1.0}) {
    RigidBodiesOptions options = Weightless();
    options.restitution = e;
    options.dt_s = 1.0 / 240;
    const auto world = Make({Cube()},
                            {{.position_m = {-5, 0, 0}, .velocity_m_per_s = {4, 0, 0}, .mass_kg = 2},
                             {.position_m = {5, 0, 0}, .velocity_m_per_s = {-2, 0, 0}, .mass_kg = 1}},
                            options);
    ASSERT_NE(world, nullptr);
    double nearest = INFINITY;
    std::vector<RigidBodyState> states;
    for (int i = 0; i < 400; ++i) {
      states = Run(*world, 1);
      nearest = std::min(nearest, states[1].position_m[0] - states[0].position_m[0]);
    }
    const Vector3d p = 2 * ToVector(states[0].velocity_m_per_s) + ToVector(states[1].velocity_m_per_s);
    EXPECT_LT((p - Vector3d(6, 0, 0)).norm(), 0.01) << e;
    EXPECT_NEAR(states[1].velocity_m_per_s[0] - states[0].velocity_m_per_s[0], 6 * e, 0.1) << e;
    EXPECT_LT(ToVector(states[0].spin_rad_per_s).norm(), 1e-3) << e;
    EXPECT_NEAR(nearest, GetParam() == BoundingVolume::kSphere ? 2 * std::sqrt(3.0) : 2.0, 0.05) << e;
  }
}

// A box on a static one, under it the ground: it stays on top, where the volumes touch.
TEST_P(VolumeContactTest, BodiesComeToRestOnVolumes) {
  RigidBodiesOptions options = OnGround();
  options.narrow_phase = RigidNarrowPhase::kVolumes;
  options.broad_phase.volume = GetParam();
  const auto world = Make({Cube()}, {{.position_m = {0, 0, 1}, .mass_kg = 0}, {.position_m = {0, 0, 5}}}, options);
  ASSERT_NE(world, nullptr);
  const std::vector<RigidBodyState> states = Run(*world, 600);
  EXPECT_NEAR(states[1].position_m[2], GetParam() == BoundingVolume::kSphere ? 1 + 2 * std::sqrt(3.0) : 3.0, 0.02);
  EXPECT_LT(ToVector(states[1].velocity_m_per_s).norm(), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Volumes, VolumeContactTest, ::testing::ValuesIn(kBoundingVolumes), [](const auto& kind) {
  std::string name = BoundingVolumeName(kind.param);
  std::erase(name, '-');
  return "Volume" + name;
});

// A short form of the scene of Amaral 2021 (see ./run bench rigid): a column of bodies falls onto the ground.
class PileTest : public RigidBodiesTest, public ::testing::WithParamInterface<bool> {
 protected:
#ifdef PALPATE_NATIVE_KERNELS
  static constexpr int kBodies = 8, kSteps = 60, kColumns = 1;
  static constexpr double kRise = 1.9;
#else
  static constexpr int kBodies = 64, kSteps = 600, kColumns = 4;
  static constexpr double kRise = 7;
#endif
  std::unique_ptr<RigidBodies> MakePile() {
    std::mt19937 random(5);
    std::uniform_real_distribution<double> angle(0, 1);
    bodies_.clear();
    for (int i = 0; i < kBodies; ++i) {
      const Quaterniond q = Eigen::AngleAxisd(angle(random), Vector3d::UnitZ()) * Eigen::AngleAxisd(angle(random), Vector3d::UnitY()) *
                            Eigen::AngleAxisd(angle(random), Vector3d::UnitX());
      RigidBodyDescription body;
      body.position_m = {5.0 * (i % kColumns) + 0.01 * i, 5.0 * (i / kColumns % kColumns), 3.0 + kRise * (i / kColumns / kColumns)};
      body.rotation_wxyz = {q.w(), q.x(), q.y(), q.z()};
      body.scale = {1, 1, GetParam() ? 3.0 : 1.0};
      body.mass_kg = 1.1;
      bodies_.push_back(body);
    }
    RigidBodiesOptions options = OnGround();
    options.dt_s = 1.0 / 60;
    options.damping = 0.2;
    return Make({BevelledCube()}, bodies_, options);
  }
  std::vector<RigidBodyDescription> bodies_;
};

TEST_P(PileTest, ComesToRestWithoutExplosion) {
  const auto world = MakePile();
  ASSERT_NE(world, nullptr);
  double highest_energy = 0;
  for (int i = 0; i < kSteps; i += 20) {
    const std::vector<RigidBodyState> states = Run(*world, 20);
    double energy = 0;
    for (size_t b = 0; b < states.size(); ++b) {
      ASSERT_TRUE(std::isfinite(ToVector(states[b].position_m).sum() + ToVector(states[b].velocity_m_per_s).sum())) << b;
      energy += 1.1 * (9.81 * states[b].position_m[2] + 0.5 * ToVector(states[b].velocity_m_per_s).squaredNorm());
      ASSERT_GT(LowestPoint(BevelledCube(), bodies_[b], states[b]), -0.5) << b << " after " << i;
    }
    if (i > 0) {
      ASSERT_LT(energy, highest_energy * 1.001) << i;
    }
    highest_energy = energy;
  }
  EXPECT_EQ(counters_.unresolved_pairs, 0U);
  EXPECT_EQ(counters_.failed_matches, 0U);
  EXPECT_EQ(counters_.restored_bodies, 0U);
#ifndef PALPATE_NATIVE_KERNELS
  const std::vector<RigidBodyState> states = State(*world);
  double mean_speed = 0, farthest = 0;
  for (size_t b = 0; b < states.size(); ++b) {
    mean_speed += ToVector(states[b].velocity_m_per_s).norm() / kBodies;
    farthest = std::max(farthest, std::hypot(states[b].position_m[0], states[b].position_m[1]));
    EXPECT_LT(states[b].position_m[2], 25) << b;
  }
  EXPECT_LT(mean_speed, 0.5);
  EXPECT_LT(farthest, 100);
  EXPECT_LT(Penetration(*world), 0.3);
#endif
}

TEST_P(PileTest, SameInputGivesTheSameBits) {
  const auto first = MakePile();
  const auto second = MakePile();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  const std::vector<RigidBodyState> a = Run(*first, kSteps / 3);
  const std::vector<RigidBodyState> b = Run(*second, kSteps / 3);
  EXPECT_GT(last_.pair_count, 0U);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PileTest, ::testing::Bool(), [](const auto& kind) { return kind.param ? "Long" : "Round"; });

}  // namespace
}  // namespace palpate::gpu::rigid_bodies_test
