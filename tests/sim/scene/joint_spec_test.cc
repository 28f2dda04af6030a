#include "sim/scene/joint_spec.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <string>

#include "sim/scene/edit_request.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene::joint_spec_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Four boxes of an array, one that is soft, one that is static, and the joints given.
absl::StatusOr<sim::SceneDescription> Build(const std::string& joints) {
  const std::string box = R"("generator": {"slab": {"size_m": {"x": 0.1, "y": 0.1, "z": 0.1}}, "edge_length_m": 0.1})";
  const std::string text = R"({"bodies": [{"name": "link", "kind": "BODY_KIND_RIGID", )" + box +
                           R"(, "array": {"count_x": 4, "count_y": 1, "count_z": 1, "spacing_m": {"x": 0.2}}},
      {"name": "soft", )" + box +
                           R"(, "pose": {"position_m": {"z": 1}}},
      {"name": "wall", "kind": "BODY_KIND_STATIC", )" +
                           box + R"(, "pose": {"position_m": {"z": 2}}}],
      "tools": [{"name": "hook", "rest_pose": {"position_m": {"z": 3}}}], "joints": [)" +
                           joints + "]}";
  const auto spec = ParseSceneJson(text, "test");
  if (!spec.ok()) return spec.status();
  return BuildSceneDescription(*spec, AssetRootResolver(""), {});
}

std::string Refusal(const std::string& joints) {
  const auto built = Build(joints);
  EXPECT_EQ(built.status().code(), absl::StatusCode::kInvalidArgument) << built.status();
  return std::string(built.status().message());
}

TEST(JointSpec, CopiesGoOnWithNamesBodiesAndPoints) {
  const auto scene = Build(R"({"body_a": "link0", "body_b": "link1", "point_m": {"x": 0.1, "z": 1}, "ball": {},
      "array": {"count": 3, "step_m": {"x": 0.2}}}, {"name": "roof", "body_b": "link3", "hinge": {"axis": {"y": -3}}})");
  ASSERT_TRUE(scene.ok()) << scene.status();
  ASSERT_EQ(scene->joints.size(), 4U);
  for (uint32_t i = 0; i < 3; ++i) {
    const sim::JointDescription& joint = scene->joints[i];
    EXPECT_EQ(joint.name, "joint0" + std::to_string(i));
    EXPECT_EQ(joint.body_a, i);
    EXPECT_EQ(joint.body_b, i + 1);
    EXPECT_LT((joint.point_a_m - Eigen::Vector3d(0.1 + 0.2 * i, 0, 1)).norm(), 1e-12);
    EXPECT_EQ(joint.point_a_m, joint.point_b_m);
  }
  EXPECT_EQ(scene->joints[3].body_a, sim::JointDescription::kWorld);
  EXPECT_EQ(scene->joints[3].axis, Eigen::Vector3d(0, -1, 0));
  const std::vector<v1::JointInfo> infos = EncodeJointInfos(*scene);
  EXPECT_EQ(infos[3].name(), "roof");
  EXPECT_EQ(infos[3].kind(), "hinge");
  EXPECT_EQ(infos[3].body_a(), "");
  EXPECT_EQ(infos[3].body_b(), "link3");
}

TEST(JointSpec, LengthsAreThoseOfTheStartUnlessTheyAreGiven) {
  const auto scene = Build(R"({"body_b": "link0", "point_b_m": {"x": 3, "y": 4}, "distance": {}},
      {"body_b": "link1", "point_b_m": {"x": 3, "y": 4}, "distance": {"max_m": 6}},
      {"body_b": "link2", "point_b_m": {"x": 3, "y": 4}, "spring": {"stiffness_n_per_m": 7}},
      {"body_b": "link3", "point_b_m": {"x": 3, "y": 4}, "spring": {"rest_length_m": 1}})");
  ASSERT_TRUE(scene.ok()) << scene.status();
  EXPECT_EQ(scene->joints[0].lower, 5);
  EXPECT_EQ(scene->joints[0].upper, 5);
  EXPECT_EQ(scene->joints[1].lower, 0);
  EXPECT_EQ(scene->joints[1].upper, 6);
  EXPECT_EQ(scene->joints[2].drive.target, 5);
  EXPECT_EQ(scene->joints[2].drive.stiffness, 7);
  EXPECT_EQ(scene->joints[3].drive.target, 1);
}

TEST(JointSpec, RegionsNameVerticesAndGoOnWithCopies) {
  const std::string lower = R"({"box": {"min_m": {"x": -1, "y": -1, "z": 0.9}, "max_m": {"x": 1, "y": 1, "z": 0.96}}})";
  const auto scene = Build(R"({"body_a": "soft", "region_a": )" + lower + R"(, "body_b": "link0", "point_m": {"z": 0.9}, "ball": {}},
      {"body_b": "soft", "region_b": {"ball": {"center_m": {"z": 0.95}, "radius_m": 0.08}}, "instrument_a": "hook", "fixed": {}},
      {"body_a": "soft", "region_a": {"vertices": {"indices": [2, 0, 1, 2]}}, "body_b": "link1", "ball": {}},
      {"body_a": "soft", "region_a": )" +
                           lower + R"(, "body_b": "soft", "region_b": {"box": {"min_m": {"x": -1, "y": -1, "z": 1.04},
      "max_m": {"x": 1, "y": 1, "z": 1.2}}}, "fixed": {}},
      {"body_a": "soft", "region_a": )" +
                           lower + R"(, "point_m": {"z": 0.9}, "plane": {}, "array": {"count": 2, "step_m": {"z": 0.1}}})");
  ASSERT_TRUE(scene.ok()) << scene.status();
  const std::vector<sim::JointDescription>& joints = scene->joints;
  ASSERT_EQ(joints.size(), 6U);
  const auto& mesh = scene->bodies[4].mesh;
  ASSERT_GE(joints[0].vertices_a.size(), 4U);
  for (const uint32_t v : joints[0].vertices_a) EXPECT_LT(mesh.vertices[v].z(), 0.96);
  EXPECT_TRUE(joints[0].vertices_b.empty());
  EXPECT_EQ(joints[1].body_a, sim::JointDescription::kWorld);
  EXPECT_EQ(joints[1].tool_a, 0U);
  EXPECT_EQ(joints[1].tool_b, sim::JointDescription::kNoTool);
  EXPECT_THAT(joints[2].vertices_a, ElementsAre(0, 1, 2));
  EXPECT_EQ(joints[3].body_a, joints[3].body_b);
  EXPECT_NE(joints[3].vertices_a, joints[3].vertices_b);
  EXPECT_EQ(joints[4].vertices_a, joints[0].vertices_a);
  for (const uint32_t v : joints[5].vertices_a) EXPECT_GT(mesh.vertices[v].z(), 1.0 - 1e-9) << "the box went on by a copy";
  const std::vector<v1::JointInfo> infos = EncodeJointInfos(*scene);
  EXPECT_EQ(infos[0].body_a(), "soft");
  EXPECT_EQ(infos[1].instrument_a(), "hook");
  EXPECT_EQ(infos[1].body_a(), "");
}

TEST(JointSpec, WhatIsWrongIsNamed) {
  EXPECT_THAT(Refusal(R"({"body_b": "link0"})"), HasSubstr("joints[0]: no kind is given; one of ball, hinge"));
  EXPECT_THAT(Refusal(R"({"ball": {}})"), HasSubstr("joints[0].body_b: is the world, as body_a is"));
  EXPECT_THAT(Refusal(R"({"body_a": "link1", "body_b": "link1", "ball": {}})"), HasSubstr("joints[0].body_b: is body_a too"));
  EXPECT_THAT(Refusal(R"({"body_b": "link9", "ball": {}})"), HasSubstr("joints[0].body_b: the scene has no body \"link9\""));
  EXPECT_THAT(Refusal(R"({"body_b": "soft", "ball": {}})"), HasSubstr("joints[0].body_b: \"soft\" is deformable: region_b must say"));
  const std::string region = R"("region_b": {"vertices": {"indices": [0, 1, 2]}})";
  EXPECT_THAT(Refusal(R"({"body_b": "link0", )" + region + R"(, "ball": {}})"), HasSubstr("\"link0\" is rigid and moves as a whole"));
  EXPECT_THAT(Refusal(R"({"body_a": "link0", )" + region + R"(, "ball": {}})"), HasSubstr("joints[0].region_b: the world has no vertices"));
  EXPECT_THAT(Refusal(R"({"body_b": "soft", "region_b": {"vertices": {"indices": [4000]}}, "ball": {}})"),
              HasSubstr("joints[0].region_b.vertices.indices[0]: 4000 is outside"));
  EXPECT_THAT(Refusal(R"({"body_b": "soft", "region_b": {"ball": {"center_m": {"z": 9}, "radius_m": 0.1}}, "ball": {}})"),
              HasSubstr("joints[0].region_b.ball: holds no vertex of the body"));
  EXPECT_THAT(Refusal(R"({"body_b": "soft", "region_b": {}, "ball": {}})"), HasSubstr("joints[0].region_b"));
  EXPECT_THAT(Refusal(R"({"instrument_a": "hook", "ball": {}})"), HasSubstr("joints[0].body_b: is missing, as body_a is: one end must"));
  EXPECT_THAT(Refusal(R"({"instrument_a": "saw", "body_b": "link0", "ball": {}})"),
              HasSubstr("joints[0].instrument_a: the scene has no tool \"saw\""));
  EXPECT_THAT(Refusal(R"({"instrument_b": "hook", "body_b": "link0", "ball": {}})"), HasSubstr("joints[0].instrument_b: body_b is given"));
  EXPECT_THAT(Refusal(R"({"body_a": "wall", "body_b": "link0", "ball": {}})"), HasSubstr("\"wall\" is static"));
  EXPECT_THAT(Refusal(R"({"body_b": "link0", "hinge": {"axis": {}}})"), HasSubstr("joints[0].hinge.axis: is zero"));
  EXPECT_THAT(Refusal(R"({"body_b": "link0", "hinge": {"lower_rad": 1, "upper_rad": 0}})"),
              HasSubstr("joints[0].hinge.upper_rad: 0 is below lower_rad = 1"));
  EXPECT_THAT(Refusal(R"({"body_b": "link0", "point_b_m": {"x": 1}, "ball": {}})"),
              HasSubstr("joints[0].point_b_m: only distance and spring"));
  EXPECT_THAT(Refusal(R"({"body_b": "link0", "spring": {}})"), HasSubstr("joints[0].point_b_m: is where point_m is"));
  EXPECT_THAT(Refusal(R"({"name": "j", "body_b": "link0", "ball": {}}, {"name": "j", "body_b": "link1", "ball": {}})"),
              HasSubstr("joints[1].name: \"j\" is used twice"));
  EXPECT_THAT(Refusal(R"({"body_b": "link0", "hinge": {"drive": {"motion": {"times_s": [1, 0.5], "angles_rad": [0, 0]}}}})"),
              HasSubstr("joints[0].hinge.drive.motion.times_s[1]: 0.5 is not after 1"));
  EXPECT_THAT(Refusal(R"({"body_b": "link0", "slider": {"drive": {"motion": {"times_s": [1], "positions_m": []}}}})"),
              HasSubstr("positions_m: 0 entries for 1 times"));
  EXPECT_THAT(Refusal(R"({"body_a": "link2", "body_b": "link3", "ball": {}, "array": {"count": 2}})"),
              HasSubstr("joints[0].body_b: the scene has no body \"link4\""));
  EXPECT_THAT(Refusal(R"({"body_b": "link1", "ball": {}, "ignores_contact": true})"),
              HasSubstr("joints[0].ignores_contact: is of two bodies, and one end is the world"));
}

TEST(JointSpec, EditsMustSuitTheKind) {
  const auto scene = Build(
      R"({"name": "hinge", "body_b": "link0", "hinge": {}}, {"name": "spring", "body_b": "link1", "point_b_m": {"x": 2}, "spring": {}},
      {"name": "rope", "body_b": "link2", "point_b_m": {"x": 2}, "distance": {}})");
  ASSERT_TRUE(scene.ok()) << scene.status();
  EditTargets targets;
  targets.joints = scene->joints;
  const auto build = [&](const std::string& edit) -> absl::StatusOr<std::vector<sim::Edit>> {
    const auto request = ParseEditJson(R"({"edits": [{"joint": )" + edit + "}]}", "test");
    if (!request.ok()) return request.status();
    if (absl::Status valid = ValidateEditRequest(*request); !valid.ok()) return valid;
    return BuildEdits(*request, targets);
  };
  const auto motor = build(R"({"joint": "hinge", "turn": {"motor": {"speed_rad_per_s": 2, "max_torque_n_m": 3}}})");
  ASSERT_TRUE(motor.ok()) << motor.status();
  const auto& edit = std::get<sim::JointEdit>((*motor)[0].what);
  EXPECT_EQ(edit.joint, 0U);
  EXPECT_EQ(edit.drive.kind, sim::JointDriveDescription::Kind::kMotor);
  EXPECT_EQ(edit.drive.speed, 2);
  EXPECT_EQ(edit.drive.max_effort, 3);
  const auto spring = build(R"({"joint": "spring", "spring": {"stiffness_n_per_m": 5}})");
  ASSERT_TRUE(spring.ok()) << spring.status();
  EXPECT_EQ(std::get<sim::JointEdit>((*spring)[0].what).drive.target, 2) << "the length at the start";
  const auto rope = build(R"({"joint": "rope", "distance": {"max_m": 1.5}})");
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_THAT(*std::get<sim::JointEdit>((*rope)[0].what).limits, ElementsAre(0, 1.5));
  const auto released = build(R"({"joint": "rope", "release": {}})");
  ASSERT_TRUE(released.ok()) << released.status();
  EXPECT_TRUE(std::get<sim::JointEdit>((*released)[0].what).is_released);

  const auto refusal = [&](const std::string& text) { return std::string(build(text).status().message()); };
  EXPECT_THAT(refusal(R"({"joint": "nose", "release": {}})"), HasSubstr("edits[0].joint.joint: the scene has no joint \"nose\""));
  EXPECT_THAT(refusal(R"({"joint": "spring", "turn": {}})"), HasSubstr("edits[0].joint.turn: \"spring\" is a spring joint, not a hinge"));
  EXPECT_THAT(refusal(R"({"joint": "hinge"})"), HasSubstr("edits[0].joint: no change is given"));
  EXPECT_THAT(refusal(R"({"release": {}})"), HasSubstr("edits[0].joint.joint"));
  EXPECT_THAT(refusal(R"({"joint": "rope", "distance": {"min_m": 2, "max_m": 1}})"), HasSubstr("max_m: 1 is below min_m = 2"));
}

}  // namespace
}  // namespace palpate::scene::joint_spec_test
