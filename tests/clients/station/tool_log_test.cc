#include "clients/station/tool_log.h"

#include <initializer_list>

#include <gtest/gtest.h>

namespace palpate::station::tool_log_test {
namespace {

v1::LocalModel Model(double time_s, double removed_kg, std::initializer_list<v1::ToolActivity> activities) {
  v1::LocalModel model;
  model.set_sim_time_s(time_s);
  model.set_removed_mass_kg(removed_kg);
  for (const v1::ToolActivity activity : activities) model.add_activities(activity);
  return model;
}

TEST(ToolLog, AddsUpTimesAndMass) {
  v1::Attached attached;
  attached.set_dt_s(0.01);
  ToolLog log;
  log.Attach(attached);
  log.Add(Model(5.00, 0.5, {v1::TOOL_ACTIVITY_TOUCHING}));  // a step; the mass was another station's
  log.Add(Model(5.01, 0.5, {v1::TOOL_ACTIVITY_TOUCHING, v1::TOOL_ACTIVITY_CUTTING}));
  log.Add(Model(5.04, 0.6, {v1::TOOL_ACTIVITY_CUTTING, v1::TOOL_ACTIVITY_BLOCKED}));  // two models were overtaken
  EXPECT_EQ(log.Summary().doing, "cutting blocked");
  v1::LocalModel grasping = Model(5.05, 0.6, {v1::TOOL_ACTIVITY_GRASPING});
  grasping.set_grasp_force_n(1.5);
  log.Add(grasping);
  log.Add(Model(5.06, 0.6, {}));
  EXPECT_EQ(log.Summary().doing, "");
  const ToolSummary summary = log.Summary();
  EXPECT_NEAR(summary.touching_s, 0.02, 1e-12);
  EXPECT_NEAR(summary.cutting_s, 0.04, 1e-12);
  EXPECT_NEAR(summary.blocked_s, 0.03, 1e-12);
  EXPECT_NEAR(summary.grasping_s, 0.01, 1e-12);
  EXPECT_NEAR(summary.removed_mass_kg, 0.1, 1e-12);
  EXPECT_EQ(summary.max_grasp_force_n, 1.5);
}

TEST(ToolLog, GoesOnOverResetsAndNewAttachments) {
  v1::Attached attached;
  attached.set_dt_s(0.01);
  ToolLog log;
  log.Attach(attached);
  log.Add(Model(1.00, 0.1, {}));
  log.Add(Model(1.01, 0.3, {v1::TOOL_ACTIVITY_CUTTING}));
  log.Add(Model(0.01, 0.05, {v1::TOOL_ACTIVITY_CUTTING}));  // reset: time and mass begin anew
  EXPECT_NEAR(log.Summary().cutting_s, 0.02, 1e-12);
  EXPECT_NEAR(log.Summary().removed_mass_kg, 0.25, 1e-12);
  log.Attach(attached);
  log.Add(Model(9.00, 2.0, {v1::TOOL_ACTIVITY_CUTTING}));  // another station worked meanwhile
  EXPECT_NEAR(log.Summary().cutting_s, 0.03, 1e-12);
  EXPECT_NEAR(log.Summary().removed_mass_kg, 0.25, 1e-12);
}

}  // namespace
}  // namespace palpate::station::tool_log_test
