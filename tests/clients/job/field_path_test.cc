// Fields of messages by path: values of all kinds, elements by place, name and wildcard, and what is said of wrong ones.
#include "clients/job/field_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "clients/job/json_text.h"
#include "palpate/v1/job.pb.h"
#include "tests/support/device_test.h"

namespace palpate::job::field_path_test {
namespace {

using google::protobuf::Value;
using ::testing::HasSubstr;

Value JsonValue(const std::string& json) {
  Value value;
  const absl::Status status = ParseJsonMessage(json, "value", &value);
  EXPECT_TRUE(status.ok()) << status;
  return value;
}

v1::SceneSpec Scene() {
  v1::SceneSpec scene;
  const absl::Status status = ParseJsonMessage(R"({
    "bodies": [{"name": "liver", "generator": {"liver": {}}, "material": {"young_modulus_pa": 3000}},
               {"name": "left lobe", "mesh_file": "lobe.msh"}],
    "tools": [{"name": "probe"}, {"name": "hook"}]})",
                                               "scene", &scene);
  EXPECT_TRUE(status.ok()) << status;
  return scene;
}

TEST(FieldPathTest, SetsValuesOfAllKinds) {
  v1::SceneSpec scene = Scene();
  const auto set = [&scene](const std::string& path, const std::string& json) {
    PALPATE_EXPECT_OK(SetField(&scene, path, JsonValue(json)));
  };
  set("bodies[0].material.young_modulus_pa", "1234.5678901234567");
  set("bodies[\"left lobe\"].material.model", "\"MATERIAL_MODEL_LINEAR\"");
  set("bodies[liver].generator.liver.length_m", "0.15");
  set("solver.iterations", "33");
  set("solver.report_energy", "true");
  set("name", "\"other\"");
  set("gravity_m_per_s2", R"({"x": 1, "z": -2})");
  set("tools[*].radius_m", "0.002");
  set("bodies[1].generator", R"({"sphere": {"radius_m": 0.03}})");
  set("bodies[0].fixed", R"([{"box": {"min_m": {"x": -1}, "max_m": {"x": 1}}}])");
  EXPECT_EQ(scene.bodies(0).material().young_modulus_pa(), 1234.5678901234567);
  EXPECT_EQ(scene.bodies(1).material().model(), v1::MATERIAL_MODEL_LINEAR);
  EXPECT_EQ(scene.bodies(0).generator().liver().length_m(), 0.15);
  EXPECT_EQ(scene.solver().iterations(), 33U);
  EXPECT_TRUE(scene.solver().report_energy());
  EXPECT_EQ(scene.name(), "other");
  EXPECT_EQ(scene.gravity_m_per_s2().z(), -2);
  EXPECT_EQ(scene.tools(0).radius_m(), 0.002);
  EXPECT_EQ(scene.tools(1).radius_m(), 0.002);
  EXPECT_TRUE(scene.bodies(1).has_generator());
  EXPECT_EQ(scene.bodies(0).fixed_size(), 1);
  set("bodies[0].fixed", "[]");
  EXPECT_EQ(scene.bodies(0).fixed_size(), 0);
}

TEST(FieldPathTest, AnErrorChangesNothingAndSaysWhatThereIs) {
  v1::SceneSpec scene = Scene();
  const std::string before = scene.SerializeAsString();
  const auto complaint = [&scene](const std::string& path, const std::string& json) {
    return std::string(SetField(&scene, path, JsonValue(json)).message());
  };
  EXPECT_THAT(complaint("bodies[0].materal.young_modulus_pa", "1"), HasSubstr("byte 10: there is no field \"materal\"; there are: name, "));
  EXPECT_THAT(complaint("bodies[spleen].material", "{}"), HasSubstr("there is no bodies[spleen]; there are: 0 liver, 1 left lobe"));
  EXPECT_THAT(complaint("bodies[2].material", "{}"), HasSubstr("there is no bodies[2]"));
  EXPECT_THAT(complaint("bodies[-1].material", "{}"), HasSubstr("there is no bodies[-1]"));
  EXPECT_THAT(complaint("bodies.material", "{}"), HasSubstr("is a list; say which element"));
  EXPECT_THAT(complaint("solver[0]", "{}"), HasSubstr("[0] does not follow a list"));
  EXPECT_THAT(complaint("name.x", "1"), HasSubstr("is one value and has no parts"));
  EXPECT_THAT(complaint("solver.iterations", "\"many\""), HasSubstr("solver.iterations"));
  EXPECT_THAT(complaint("solver.iterations", "1.5"), HasSubstr("solver.iterations"));
  EXPECT_THAT(complaint("solver.iterations", "-1"), HasSubstr("solver.iterations"));
  EXPECT_THAT(complaint("bodies[0].material", R"({"young": 1})"), HasSubstr("young"));
  EXPECT_THAT(complaint("bodies[1].generator.sphere.radius_m", "1"), HasSubstr("there is \"mesh_file\" in its place"));
  EXPECT_THAT(complaint("bodies[0](1)", "1"), HasSubstr("take no arguments"));
  EXPECT_THAT(complaint("tools[*].radius_m", "\"x\""), HasSubstr("radius_m"));
  EXPECT_EQ(scene.SerializeAsString(), before);
}

TEST(FieldPathTest, ChecksWithoutSetting) {
  const v1::SceneSpec scene = Scene();
  PALPATE_EXPECT_OK(CheckField(scene, "bodies[*].material.density_kg_per_m3"));
  EXPECT_FALSE(CheckField(scene, "bodies[*].density").ok());
}

TEST(FieldPathTest, JsonOfAMessageIsTheSameEachTime) {
  v1::Job job;
  for (int i = 0; i < 40; ++i) (*job.mutable_overrides())["bodies[" + std::to_string(i) + "].scale"].set_number_value(0.1 * i);
  const std::string text = JsonOfMessage(job);
  for (int repeat = 0; repeat < 5; ++repeat) {
    v1::Job again;
    PALPATE_ASSERT_OK(ParseJsonMessage(text, "job", &again));
    EXPECT_EQ(JsonOfMessage(again), text);
  }
}

}  // namespace
}  // namespace palpate::job::field_path_test
