#include "sim/quasistatic/contact_response.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include <Eigen/Cholesky>

#include "tests/support/device_test.h"

namespace palpate::sim::contact_response_test {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::Vector3d;
using Eigen::VectorXd;
using ::testing::HasSubstr;

class ContactResponseTest : public ::testing::Test {
 protected:
  double Number() { return uniform_(random_); }
  Vector3d Random() { return {Number(), Number(), Number()}; }
  /// Positive definite, with a spread of compliances like that of neighbouring contacts.
  MatrixXd Compliance(Index size) {
    MatrixXd a(size, size);
    for (Index i = 0; i < size; ++i) {
      for (Index j = 0; j < size; ++j) a(i, j) = Number();
    }
    MatrixXd c = a * a.transpose();
    c.array() += 2;
    c.diagonal().array() += 0.01;
    return c / 1000;
  }
  std::mt19937_64 random_{17};
  std::uniform_real_distribution<double> uniform_{-1, 1};
};

/// The only set of pushing contacts that fits, found by trying all.
VectorXd TryAllSets(const MatrixXd& c, const VectorXd& gap_m) {
  const auto k = static_cast<uint32_t>(gap_m.size());
  for (uint32_t set = 0; set < 1U << k; ++set) {
    const auto count = static_cast<Index>(std::popcount(set));
    std::vector<Index> members;
    for (uint32_t i = 0; i < k; ++i) {
      if ((set >> i & 1U) != 0) members.push_back(static_cast<Index>(i));
    }
    MatrixXd part(count, count);
    VectorXd right(count);
    for (Index i = 0; i < count; ++i) {
      right[i] = -gap_m[members[static_cast<size_t>(i)]];
      for (Index j = 0; j < count; ++j) part(i, j) = c(members[static_cast<size_t>(i)], members[static_cast<size_t>(j)]);
    }
    VectorXd force = VectorXd::Zero(gap_m.size());
    if (count > 0) {
      const VectorXd solved = part.ldlt().solve(right);
      for (Index i = 0; i < count; ++i) force[members[static_cast<size_t>(i)]] = solved[i];
    }
    if (force.minCoeff() >= 0 && (gap_m + c * force).minCoeff() >= -1e-12) return force;
  }
  ADD_FAILURE() << "no set of contacts fits";
  return VectorXd::Zero(gap_m.size());
}

TEST_F(ContactResponseTest, UnilateralForcesAreThoseOfTheOnlyFittingSet) {
  int pushing = 0, open = 0;
  for (int trial = 0; trial < 400; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const Index k = 1 + trial % 9;
    const MatrixXd c = Compliance(k);
    VectorXd gap(k);
    for (Index i = 0; i < k; ++i) gap[i] = 0.01 * (Number() - 0.3);
    PALPATE_TEST_ASSIGN(const UnilateralSolution solution, SolveUnilateral(c, gap));
    const VectorXd expected = TryAllSets(c, gap);
    EXPECT_LT((solution.force_n - expected).cwiseAbs().maxCoeff(), 1e-7 * std::max(1.0, expected.maxCoeff()));
    EXPECT_LT(solution.error_m, 1e-14);
    EXPECT_LT((solution.gap_m - gap - c * solution.force_n).norm(), 1e-12);
    for (Index i = 0; i < k; ++i) {
      pushing += solution.force_n[i] > 0 ? 1 : 0;
      open += solution.gap_m[i] > 1e-12 ? 1 : 0;
    }
  }
  // Both kinds occur often, or nothing was tested.
  EXPECT_GT(pushing, 400);
  EXPECT_GT(open, 400);
}

TEST_F(ContactResponseTest, UnilateralErrorsAreClear) {
  EXPECT_THAT(std::string(SolveUnilateral(MatrixXd::Identity(2, 2), VectorXd::Zero(3)).status().message()),
              HasSubstr("2 x 2 does not fit 3"));
  EXPECT_THAT(std::string(SolveUnilateral(-MatrixXd::Identity(1, 1), VectorXd::Zero(1)).status().message()),
              HasSubstr("positive definite"));
  VectorXd gap = VectorXd::Zero(1);
  gap[0] = std::nan("");
  EXPECT_THAT(std::string(SolveUnilateral(MatrixXd::Identity(1, 1), gap).status().message()), HasSubstr("not finite"));
  PALPATE_TEST_ASSIGN(const UnilateralSolution nothing, SolveUnilateral(MatrixXd(0, 0), VectorXd(0)));
  EXPECT_EQ(nothing.force_n.size(), 0);
}

ResponseContact RandomContact(ContactLaw law, const Vector3d& normal, double gap_m) {
  ResponseContact contact;
  contact.law = law;
  contact.normal = normal.normalized();
  contact.gap_m = gap_m;
  contact.stiffness_n_per_m = 1500;
  contact.margin_m = 0.001;
  contact.stiffening = 10;
  contact.friction = 0.3;
  contact.slip_full_m = 8e-6;
  contact.max_force_n = 0.6;
  return contact;
}

TEST_F(ContactResponseTest, StiffnessIsTheDerivativeOfTheForce) {
  for (const ContactLaw law : {ContactLaw::kCapsule, ContactLaw::kBarrier, ContactLaw::kSpring}) {
    for (const double gap_m : {-0.004, -0.0015, 0.00001, 0.0001, 0.0004, 0.0007, 0.002}) {
      SCOPED_TRACE(testing::Message() << "law " << static_cast<int>(law) << " gap " << gap_m);
      ResponseContact contact = RandomContact(law, Random(), gap_m);
      contact.slip_m = 2 * gap_m * Random();
      contact.stretch_m = 0.3 * gap_m * Random();
      Eigen::Matrix3d stiffness, unused;
      ContactForce(contact, Vector3d::Zero(), 0.7, &stiffness);
      for (int axis = 0; axis < 3; ++axis) {
        constexpr double kStep_m = 1e-9;
        const Vector3d d = kStep_m * Vector3d::Unit(axis);
        const Vector3d change = (ContactForce(contact, d, 0.7, &unused) - ContactForce(contact, -d, 0.7, &unused)) / (2 * kStep_m);
        EXPECT_LT((change + stiffness.col(axis)).norm(), 1e-5 * std::max(1.0, stiffness.norm()));
      }
    }
  }
}

TEST_F(ContactResponseTest, ForcesAndMovesAgreeAndStayInTheCone) {
  int exact = 0;
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const int count = 1 + trial / 2 % 12;
    std::vector<ResponseContact> contacts;
    const Vector3d mean = Random().normalized();
    const bool has_friction = trial % 4 >= 2;
    for (int j = 0; j < count; ++j) {
      contacts.push_back(
          RandomContact(trial % 2 == 0 ? ContactLaw::kCapsule : ContactLaw::kBarrier, mean + 0.35 * Random(), 0.004 * Number() - 0.002));
      contacts.back().slip_m = 0.0005 * Random();
      if (!has_friction) contacts.back().friction = 0;
    }
    if (trial % 5 == 0) {
      contacts.back().law = ContactLaw::kSpring;
      contacts.back().stretch_m = 0.002 * Random();
    }
    const MatrixXd compliance = Compliance(3 * count);  // softer than the contacts, as tissue is
    const ResponseSolution solution = SolveResponse(contacts, compliance, 1e-9, 100);
    // Friction is proportional to normal forces that it changes itself: that iteration has no bound.
    EXPECT_LE(solution.residual_m, has_friction ? 1e-4 : 1e-9) << solution.iterations << " iterations";
    exact += solution.residual_m <= 1e-7 ? 1 : 0;
    VectorXd force(3 * count), move(3 * count);
    for (int j = 0; j < count; ++j) {
      force.segment<3>(3 * j) = solution.force_n[static_cast<size_t>(j)];
      move.segment<3>(3 * j) = solution.move_m[static_cast<size_t>(j)];
    }
    EXPECT_LE((move - compliance * force).cwiseAbs().maxCoeff(), solution.residual_m + 1e-12);
    for (size_t j = 0; j < contacts.size(); ++j) {
      const Vector3d& f = solution.force_n[j];
      if (contacts[j].law == ContactLaw::kSpring) {
        EXPECT_LE(f.norm(), contacts[j].max_force_n * (1 + 1e-12));
        continue;
      }
      const double push = f.dot(contacts[j].normal);
      EXPECT_GE(push, 0);
      EXPECT_LE((f - push * contacts[j].normal).norm(), contacts[j].friction * push * (1 + 1e-9) + 1e-12);
    }
  }
  EXPECT_GE(exact, 190);
}

TEST_F(ContactResponseTest, StiffContactsWithoutFrictionAreUnilateral) {
  // As contacts become rigid and their margin vanishes, the law becomes Signorini's.
  constexpr double kMargin_m = 1e-7;
  for (int trial = 0; trial < 20; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const int count = 2 + trial % 5;
    const MatrixXd compliance = Compliance(3 * count);
    std::vector<ResponseContact> contacts;
    MatrixXd along = MatrixXd::Zero(count, 3 * count);
    VectorXd gap(count);
    for (int j = 0; j < count; ++j) {
      gap[j] = 0.002 * (Number() - 0.3);
      contacts.push_back(RandomContact(ContactLaw::kBarrier, Random(), gap[j]));
      contacts.back().friction = 0;
      contacts.back().margin_m = kMargin_m;
      contacts.back().stiffness_n_per_m = 1e7;
      along.block<1, 3>(j, 3 * j) = contacts.back().normal.transpose();
    }
    PALPATE_TEST_ASSIGN(const UnilateralSolution rigid, SolveUnilateral(along * compliance * along.transpose(), gap));
    const ResponseSolution solution = SolveResponse(contacts, compliance, 1e-12, 200);
    for (int j = 0; j < count; ++j) {
      const double push = solution.force_n[static_cast<size_t>(j)].dot(contacts[static_cast<size_t>(j)].normal);
      EXPECT_NEAR(push, rigid.force_n[j], 0.002 * std::max(1.0, rigid.force_n.maxCoeff()));
    }
  }
}

}  // namespace
}  // namespace palpate::sim::contact_response_test
