#include "sim/topology/ablation.h"

#include <cmath>
#include <limits>

#include "tests/sim/topology/topology_support.h"

namespace palpate::sim::ablation_test {
namespace {

double Balance(const AblationModel::Energy& e) { return e.delivered_j - e.stored_j - e.spent_j - e.cooled_j - e.unabsorbed_j; }
TetId Id(uint32_t i) { return MakeId<TetId>(i, 1); }

TEST(AblationModelTest, RefusesWrongArguments) {
  EXPECT_FALSE(AblationModel::Create({}).ok());
  EXPECT_FALSE(AblationModel::Create({{.density_kg_per_m3 = 0}}).ok());
  EXPECT_FALSE(AblationModel::Create({{.energy_j_per_kg = -1}}).ok());
  EXPECT_FALSE(AblationModel::Create({{.cooling_time_s = std::nan("")}}).ok());
  auto model = AblationModel::Create({{}});
  ASSERT_TRUE(model.ok());
  const std::vector<AblationModel::Exposure> one = {{.tet = Id(1), .volume_m3 = 1e-9}};
  EXPECT_FALSE(model->Deposit(-1, 1, 0.01, one).ok());
  EXPECT_FALSE(model->Deposit(1, 1.1, 0.01, one).ok());
  EXPECT_FALSE(model->Deposit(1, 1, std::numeric_limits<double>::infinity(), one).ok());
  const std::vector<AblationModel::Exposure> bad_zone = {{.tet = Id(1), .volume_m3 = 1e-9, .zone = 1}};
  EXPECT_FALSE(model->Deposit(1, 1, 0.01, bad_zone).ok());
  const std::vector<AblationModel::Exposure> twice = {one[0], one[0]};
  EXPECT_FALSE(model->Deposit(1, 1, 0.01, twice).ok());
  EXPECT_EQ(model->energy().delivered_j, 0);
}

TEST(AblationModelTest, OneTetIsDueWhenItsMassIsPaidFor) {
  // 1 mm^3 of 1,000 kg/m^3 at 2 MJ/kg needs 2 J: at 10 W and half duty 0.4 s, 40 steps of 10 ms.
  auto model = AblationModel::Create({{.density_kg_per_m3 = 1000, .energy_j_per_kg = 2e6}});
  const std::vector<AblationModel::Exposure> one = {{.tet = Id(1), .volume_m3 = 1e-9}};
  for (int step = 1; step <= 40; ++step) {
    const auto due = model->Deposit(10, 0.5, 0.01, one);
    ASSERT_TRUE(due.ok());
    EXPECT_EQ(due->size(), step == 40 ? 1U : 0U) << step;
  }
  // It stays due, and takes no more, until it is removed.
  EXPECT_EQ(model->Deposit(10, 0.5, 0.01, one)->size(), 1U);
  EXPECT_NEAR(model->energy().unabsorbed_j, 0.05, 1e-12);
  EXPECT_NEAR(model->StoredIn(Id(1)), 2, 1e-12);
  model->Remove(Id(1));
  EXPECT_NEAR(model->energy().spent_j, 2, 1e-12);
  EXPECT_EQ(model->StoredIn(Id(1)), 0);
  EXPECT_NEAR(Balance(model->energy()), 0, 1e-12);
}

// The rate of removal is power over energy per mass, whatever the sizes of tets and steps.
TEST(AblationModelTest, RateDependsOnPowerAndTissueOnly) {
  for (const double dt_s : {0.001, 0.016, 0.1}) {
    for (const double volume_m3 : {2e-10, 3e-9}) {
      auto model = AblationModel::Create({{.density_kg_per_m3 = 1060, .energy_j_per_kg = 2.5e6}});
      uint32_t next = 10;
      std::vector<AblationModel::Exposure> reach;
      for (uint32_t i = 0; i < 10; ++i) reach.push_back({.tet = Id(i), .volume_m3 = volume_m3 * (1 + 0.1 * i), .weight = 1.0 + i % 3});
      double removed_kg = 0;
      double time_s = 0;
      while (time_s < 20) {
        const auto due = model->Deposit(40, 1, dt_s, reach);
        ASSERT_TRUE(due.ok());
        time_s += dt_s;
        for (const TetId id : *due) {
          for (auto& exposure : reach) {
            if (exposure.tet != id) continue;
            removed_kg += 1060 * exposure.volume_m3;
            model->Remove(id);
            exposure.tet = Id(next++);
          }
        }
      }
      EXPECT_NEAR(Balance(model->energy()), 0, 1e-9);
      // What is stored is on its way; what was unabsorbed (a step longer than the reach could hold) is lost.
      const double used_j = model->energy().delivered_j - model->energy().unabsorbed_j;
      EXPECT_NEAR(removed_kg * 2.5e6, used_j - model->energy().stored_j, 1e-6 * used_j);
      if (dt_s < 0.01 && volume_m3 > 1e-9) {
        EXPECT_LT(model->energy().unabsorbed_j, 1e-9);
        EXPECT_NEAR(removed_kg, 40 * time_s / 2.5e6, 0.1 * 40 * time_s / 2.5e6);
      }
    }
  }
}

TEST(AblationModelTest, CoolingFollowsItsTimeConstant) {
  auto model = AblationModel::Create({{.cooling_time_s = 2}});
  const std::vector<AblationModel::Exposure> one = {{.tet = Id(1), .volume_m3 = 1e-6}};
  ASSERT_TRUE(model->Deposit(100, 1, 0.1, one).ok());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(model->Deposit(0, 0, 0.1, {}).ok());
  EXPECT_NEAR(model->StoredIn(Id(1)), 10 * std::exp(-1.0), 1e-9);
  EXPECT_NEAR(Balance(model->energy()), 0, 1e-12);
  EXPECT_NEAR(model->energy().cooled_j, 10 * (1 - std::exp(-1.0)), 1e-9);
}

TEST(AblationModelTest, ChildrenInheritTheEnergy) {
  auto model = AblationModel::Create({{}});
  const std::vector<AblationModel::Exposure> two = {{.tet = Id(1), .volume_m3 = 1e-6}, {.tet = Id(2), .volume_m3 = 1e-6}};
  ASSERT_TRUE(model->Deposit(8, 1, 1, two).ok());
  const std::vector<AblationModel::Child> children = {{Id(3), 0.25}, {Id(4), 0.75}};
  model->Replace(Id(1), children);
  EXPECT_EQ(model->StoredIn(Id(1)), 0);
  EXPECT_DOUBLE_EQ(model->StoredIn(Id(2)), 4);
  EXPECT_DOUBLE_EQ(model->StoredIn(Id(3)), 1);
  EXPECT_DOUBLE_EQ(model->StoredIn(Id(4)), 3);
  EXPECT_DOUBLE_EQ(model->energy().stored_j, 8);
  EXPECT_EQ(model->energy().spent_j, 0);
  EXPECT_NEAR(Balance(model->energy()), 0, 1e-12);
  model->Replace(Id(99), children);  // holds nothing: no effect
  EXPECT_DOUBLE_EQ(model->energy().stored_j, 8);
}

}  // namespace
}  // namespace palpate::sim::ablation_test
