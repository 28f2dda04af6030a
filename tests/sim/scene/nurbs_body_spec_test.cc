// Bodies with exact surfaces in scene files: what is read, and what is refused.
#include "sim/scene/nurbs_body_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numbers>

#include "gpu/dynamics/nurbs_shell_model.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/scene/nurbs_description.h"
#include "sim/scene/nurbs_file.h"
#include "sim/scene/nurbs_shell_body.h"
#include "sim/scene/scene_spec.h"
#include "sim/scene/summary.h"
#include "tests/support/trimmed_sheets.h"

namespace palpate::scene::nurbs_body_spec_test {
namespace {

using ::testing::HasSubstr;

constexpr double kRadius_m = 0.02;

v1::NurbsObject Ball(size_t patches = 8) {
  std::vector<sim::NurbsSurface> octants = sim::NurbsSphere(kRadius_m);
  octants.erase(octants.begin() + static_cast<std::ptrdiff_t>(patches), octants.end());
  return NurbsToProto(sim::NurbsObject::FromSurfaces("ball", octants)->Describe());
}

/// A rigid ball.
v1::SceneSpec BallScene() {
  v1::SceneSpec spec;
  v1::BodySpec& body = *spec.add_bodies();
  body.set_name("ball");
  body.set_kind(v1::BODY_KIND_RIGID);
  *body.mutable_nurbs()->mutable_object() = Ball();
  return spec;
}

absl::StatusOr<sim::SceneDescription> Build(const v1::SceneSpec& spec, const AssetResolver& assets = AssetRootResolver("")) {
  return BuildSceneDescription(spec, assets, {});
}

void ExpectRefused(const v1::SceneSpec& spec, const std::string& text) {
  const auto built = Build(spec);
  ASSERT_FALSE(built.ok()) << "expected a refusal with: " << text;
  EXPECT_THAT(std::string(built.status().message()), HasSubstr(text));
}

TEST(NurbsBodySpec, ABallIsPlacedWithItsExactMass) {
  v1::SceneSpec spec = BallScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.set_scale(2);
  body.mutable_pose()->mutable_position_m()->set_x(0.5);
  body.mutable_pose()->mutable_rotation()->set_w(1);
  body.mutable_pose()->mutable_rotation()->set_y(1);
  body.mutable_material()->set_density_kg_per_m3(1000);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  const sim::BodyDescription& ball = scene->bodies[0];
  ASSERT_NE(ball.nurbs, nullptr);
  EXPECT_TRUE(ball.mesh.tets.empty());
  EXPECT_EQ(ball.nurbs->tolerance_m, 0.25e-3);  // a quarter of the margin
  const double radius_m = 2 * kRadius_m;
  const double volume_m3 = 4.0 / 3 * M_PI * std::pow(radius_m, 3);
  const sim::MassProperties mass = sim::MassOf(ball, 1000);
  EXPECT_NEAR(mass.mass_kg, 1000 * volume_m3, 1e-10);
  EXPECT_LT((mass.center_m - Eigen::Vector3d(0.5, 0, 0)).norm(), 1e-12);
  EXPECT_LT((mass.inertia_kg_m2 - 0.4 * mass.mass_kg * radius_m * radius_m * Eigen::Matrix3d::Identity()).norm(), 1e-12);
  const sim::BoundarySurface surface = sim::SurfaceOf(ball);
  EXPECT_EQ(surface.vertices.size(), ball.mesh.vertices.size());
  EXPECT_EQ(surface.triangles.size(), 2 * surface.vertices.size() - 4);  // closed, without handles
  for (const Eigen::Vector3d& p : ball.mesh.vertices) EXPECT_NEAR((p - Eigen::Vector3d(0.5, 0, 0)).norm(), radius_m, 1e-12);
  const v1::BodyInfo info = SummarizeBody(ball);
  EXPECT_NEAR(info.mass_kg(), 1000 * volume_m3, 1e-10);
  EXPECT_EQ(info.tet_count(), 0U);
  EXPECT_EQ(info.surface_triangle_count(), surface.triangles.size());
}

TEST(NurbsBodySpec, FilesAreFoundAsMeshesAre) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "nurbs_body_spec";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "ball.nurbs.json") << FormatNurbsJson(
      sim::NurbsObject::FromSurfaces("ball", sim::NurbsSphere(kRadius_m))->Describe());
  std::ofstream(folder / "bad.nurbs.json") << "{\"version\": 1, \"patches\": [{\"degree_u\": 1}]}";
  v1::SceneSpec spec = BallScene();
  spec.mutable_bodies(0)->mutable_nurbs()->set_file("ball.nurbs.json");
  spec.mutable_bodies(0)->mutable_array()->set_count_x(2);
  spec.mutable_bodies(0)->mutable_array()->mutable_spacing_m()->set_x(0.1);
  const auto scene = Build(spec, AssetRootResolver(folder));
  ASSERT_TRUE(scene.ok()) << scene.status();
  ASSERT_EQ(scene->bodies.size(), 2U);
  EXPECT_EQ(scene->bodies[0].nurbs, scene->bodies[1].nurbs) << "copies share their shape";
  EXPECT_NEAR((scene->bodies[1].nurbs_pose.position_m - scene->bodies[0].nurbs_pose.position_m).x(), 0.1, 1e-15);
  for (const auto& [name, text] : {std::pair("none.nurbs.json", "bodies[0].nurbs.file: "), std::pair("../ball.nurbs.json", "\"..\""),
                                   std::pair("bad.nurbs.json", "bodies[0].nurbs.file: bad.nurbs.json: patches[0]")}) {
    spec.mutable_bodies(0)->mutable_nurbs()->set_file(name);
    const auto built = Build(spec, AssetRootResolver(folder));
    ASSERT_FALSE(built.ok()) << name;
    EXPECT_THAT(std::string(built.status().message()), HasSubstr(text));
  }
}

TEST(NurbsBodySpec, WhatCannotBeIsRefusedByNameAndField) {
  v1::SceneSpec spec = BallScene();
  spec.mutable_bodies(0)->mutable_texture();
  ExpectRefused(spec, "bodies[0].texture: ");
  spec = BallScene();
  spec.mutable_bodies(0)->mutable_nurbs()->set_tolerance_m(0);
  ExpectRefused(spec, "bodies[0].nurbs.tolerance_m: 0 is outside");
  spec.mutable_bodies(0)->mutable_nurbs()->set_tolerance_m(1e-4);
  spec.mutable_bodies(0)->mutable_nurbs()->set_join_tolerance_m(-1);
  ExpectRefused(spec, "bodies[0].nurbs.join_tolerance_m: -1 is outside");
  spec = BallScene();
  spec.mutable_bodies(0)->mutable_nurbs()->clear_source();
  ExpectRefused(spec, "bodies[0].nurbs: no surface is given; one of file, object is needed");
  spec = BallScene();
  spec.mutable_bodies(0)->mutable_nurbs()->mutable_object()->mutable_patches(2)->set_knots_u(0, 7);
  ExpectRefused(spec, "bodies[0].nurbs.object: patches[2]: knots_u");
  spec = BallScene();
  spec.mutable_bodies(0)->mutable_nurbs()->mutable_object()->mutable_patches(3)->set_weights(1, 0);
  ExpectRefused(spec, "bodies[0].nurbs.object: patches[3]: weights[1]");
}

/// A deformable ball, held below.
v1::SceneSpec ShellScene() {
  v1::SceneSpec spec = BallScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.set_kind(v1::BODY_KIND_DEFORMABLE);
  body.mutable_material()->set_model(v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF);
  body.mutable_material()->set_density_kg_per_m3(1000);
  body.mutable_nurbs()->set_thickness_m(0.002);
  v1::Box& box = *body.add_fixed()->mutable_box();
  box.mutable_min_m()->set_x(-1);
  box.mutable_min_m()->set_y(-1);
  box.mutable_min_m()->set_z(-1);
  box.mutable_max_m()->set_x(1);
  box.mutable_max_m()->set_y(1);
  box.mutable_max_m()->set_z(-0.015);
  return spec;
}

TEST(NurbsBodySpec, ADeformableBodyIsAThinShell) {
  v1::SceneSpec spec = ShellScene();
  spec.mutable_bodies(0)->mutable_pose()->mutable_position_m()->set_y(0.1);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  const sim::BodyDescription& ball = scene->bodies[0];
  ASSERT_TRUE(ball.nurbs_shell.has_value());
  EXPECT_EQ(ball.nurbs_shell->thickness_m, 0.002);
  const double area_m2 = 4 * std::numbers::pi * kRadius_m * kRadius_m;
  const v1::BodyInfo info = SummarizeBody(ball);
  EXPECT_NEAR(info.mass_kg(), 1000 * 0.002 * area_m2, 1e-2 * info.mass_kg());
  EXPECT_NEAR(info.volume_m3(), 0.002 * area_m2, 1e-2 * info.volume_m3());
  // Held are control points, where they are in W.
  ASSERT_FALSE(ball.nurbs_shell->held.empty());
  for (uint32_t j = 0; j < ball.nurbs_shell->model->control_count(); ++j) {
    const auto& held = ball.nurbs_shell->held;
    EXPECT_EQ(std::binary_search(held.begin(), held.end(), j), ball.nurbs_shell->model->rest_m[j][2] <= -0.015) << j;
    EXPECT_NEAR(ball.nurbs_shell->model->rest_m[j][1], 0.1, 0.03);
  }
}

TEST(NurbsBodySpec, ControlPointsOfAShellAreDriven) {
  v1::SceneSpec spec = ShellScene();
  v1::RegionMotion& motion = *spec.mutable_bodies(0)->mutable_fixed(0)->mutable_motion();
  motion.mutable_velocity_m_per_s()->set_x(0.1);
  motion.mutable_angular_velocity_rad_per_s()->set_z(2);
  motion.set_start_s(0.5);
  spec.mutable_bodies(0)->set_drag_coefficient(0.7);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  EXPECT_EQ(scene->bodies[0].drag_coefficient, 0.7);
  const sim::NurbsShellDescription& shell = *scene->bodies[0].nurbs_shell;
  ASSERT_EQ(shell.driven.size(), 1U);
  const sim::DrivenRegion& region = shell.driven[0];
  EXPECT_EQ(region.vertices, shell.held);
  EXPECT_EQ(region.velocity_m_per_s, Eigen::Vector3d(0.1, 0, 0));
  EXPECT_EQ(region.angular_velocity_rad_per_s, Eigen::Vector3d(0, 0, 2));
  EXPECT_EQ(region.start_s, 0.5);
  EXPECT_EQ(region.duration_s, 1);
  Eigen::Vector3d mean = Eigen::Vector3d::Zero();
  for (const uint32_t j : shell.held) mean += Eigen::Vector3d::Map(shell.model->rest_m[j].data()) / static_cast<double>(shell.held.size());
  EXPECT_LT((region.center_m - mean).norm(), 1e-12) << "by default about their middle";
}

/// The shell stands with its lower part in a block of tissue, and is bound to it there.
v1::SceneSpec BoundScene() {
  v1::SceneSpec spec = ShellScene();
  v1::FixedRegion& region = *spec.mutable_bodies(0)->mutable_fixed(0);
  region.set_bound_to("block");
  region.set_ignores_contact(true);
  v1::BodySpec& block = *spec.add_bodies();
  block.set_name("block");
  v1::Vec3& size = *block.mutable_generator()->mutable_slab()->mutable_size_m();
  size.set_x(0.08);
  size.set_y(0.08);
  size.set_z(0.04);
  block.mutable_generator()->set_edge_length_m(0.02);
  block.mutable_pose()->mutable_position_m()->set_z(-0.03);
  return spec;
}

TEST(NurbsBodySpec, ControlPointsOfAShellAreBoundToTissue) {
  const auto scene = Build(BoundScene());
  ASSERT_TRUE(scene.ok()) << scene.status();
  const sim::NurbsShellDescription& shell = *scene->bodies[0].nurbs_shell;
  EXPECT_TRUE(shell.held.empty());
  ASSERT_EQ(shell.bound.size(), 1U);
  const sim::NurbsShellBinding& binding = shell.bound[0];
  EXPECT_EQ(binding.body, 1U);
  EXPECT_TRUE(binding.ignores_contact);
  ASSERT_EQ(binding.tets.size(), binding.control.size());
  for (uint32_t j = 0; j < shell.model->control_count(); ++j) {
    EXPECT_EQ(shell.IsBound(j), shell.model->rest_m[j][2] <= -0.015) << j;
  }
  const sim::TetMesh& mesh = scene->bodies[1].mesh;
  for (size_t i = 0; i < binding.control.size(); ++i) {
    Eigen::Matrix4d corners;
    for (int c = 0; c < 4; ++c) corners.col(c) << mesh.vertices[mesh.tets[binding.tets[i]][static_cast<size_t>(c)]], 1;
    const auto& q = shell.model->rest_m[binding.control[i]];
    EXPECT_GT((corners.inverse() * Eigen::Vector4d(q[0], q[1], q[2], 1)).minCoeff(), -1e-5) << i;
  }
}

/// Regions are told in their order; a control point of two of them counts to the first.
TEST(NurbsBodySpec, RegionsOfAShellAreItsSupports) {
  v1::SceneSpec spec = BoundScene();
  v1::FixedRegion& half = *spec.mutable_bodies(0)->add_fixed();
  v1::FixedRegion& whole = *spec.mutable_bodies(0)->add_fixed();
  for (v1::FixedRegion* const region : {&half, &whole}) {
    region->mutable_box()->mutable_min_m()->set_x(-1);
    region->mutable_box()->mutable_min_m()->set_y(-1);
    region->mutable_box()->mutable_max_m()->set_x(1);
    region->mutable_box()->mutable_max_m()->set_y(1);
    region->mutable_box()->mutable_max_m()->set_z(1);
  }
  half.set_name("rim");
  half.mutable_box()->mutable_min_m()->set_x(0.001);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  const sim::NurbsShellDescription& shell = *scene->bodies[0].nurbs_shell;
  ASSERT_EQ(shell.supports.size(), 3U);
  EXPECT_EQ(shell.supports[0].control, shell.bound[0].control);
  EXPECT_EQ(shell.supports[1].control.size() + shell.supports[2].control.size(), shell.held.size());
  EXPECT_FALSE(shell.supports[1].control.empty());
  EXPECT_FALSE(shell.supports[2].control.empty());
  for (const uint32_t j : shell.supports[1].control) EXPECT_GE(shell.model->rest_m[j][0], 0.001);
  for (const uint32_t j : shell.supports[2].control) EXPECT_LT(shell.model->rest_m[j][0], 0.001);
  const std::vector<v1::SupportInfo> infos = EncodeSupportInfos(*scene);
  ASSERT_EQ(infos.size(), 3U);
  EXPECT_EQ(infos[0].kind(), "bound");
  EXPECT_EQ(infos[0].bound_to(), "block");
  EXPECT_EQ(infos[0].body(), spec.bodies(0).name());
  EXPECT_EQ(infos[1].kind(), "held");
  EXPECT_EQ(infos[1].name(), "rim");
  EXPECT_EQ(infos[1].bound_to(), "");
  EXPECT_EQ(infos[2].region(), 2U);
}

/// A round sheet in the place of the ball, half of its rim held.
v1::SceneSpec RimScene(v1::NurbsRim rim) {
  v1::SceneSpec spec = ShellScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  const auto sheet = sim::NurbsObject::Create(test::SheetDescription(3, 4, 0.1, {{test::CircleTrim({0.5, 0.5}, 0.4)}}));
  *body.mutable_nurbs()->mutable_object() = NurbsToProto(sheet->Describe());
  body.mutable_pose()->mutable_position_m()->set_z(0.02);
  v1::FixedRegion& region = *body.mutable_fixed(0);
  region.set_name("rim");
  region.set_rim(rim);
  region.mutable_box()->mutable_max_m()->set_z(1);
  region.mutable_box()->mutable_max_m()->set_x(0);
  return spec;
}

TEST(NurbsBodySpec, RimsAreHeldByFramesOfTheirOwn) {
  const auto scene = Build(RimScene(v1::NURBS_RIM_CLAMPED));
  ASSERT_TRUE(scene.ok()) << scene.status();
  const sim::NurbsShellDescription& shell = *scene->bodies[0].nurbs_shell;
  const gpu::NurbsShellModel& model = *shell.model;
  ASSERT_EQ(model.frame_control_count, 4U);
  ASSERT_EQ(shell.held.size(), 4U) << "no control point of the surface";
  EXPECT_EQ(shell.held.front(), model.surface_control_count());
  ASSERT_EQ(shell.supports.size(), 1U);
  EXPECT_EQ(shell.supports[0].control, shell.held);
  // Half of the rim, which is a circle of 40 mm about (0, 0, 20) mm.
  double length_m = 0;
  Eigen::Vector3d mean = Eigen::Vector3d::Zero();
  for (const uint32_t j : shell.held) mean += Eigen::Vector3d(model.rest_m[j].data()) / 4;
  for (const gpu::NurbsShellGauss& gauss : model.gauss) {
    if (!gauss.coupling) continue;
    length_m += gauss.area_m2;
    EXPECT_GT(gauss.coupling->turn_n, 0);
    EXPECT_NEAR(gauss.coupling->rest_cosine, 1, 1e-12);
  }
  EXPECT_NEAR(length_m, std::numbers::pi * 0.04, 1e-3);
  EXPECT_NEAR(mean.z(), 0.02, 1e-9);
  EXPECT_LT(mean.x(), -0.02);
  const auto hinged = Build(RimScene(v1::NURBS_RIM_HINGED));
  ASSERT_TRUE(hinged.ok()) << hinged.status();
  for (const gpu::NurbsShellGauss& gauss : hinged->bodies[0].nurbs_shell->model->gauss) {
    EXPECT_TRUE(!gauss.coupling || gauss.coupling->turn_n == 0);
  }
  // A motion takes the frame along, about the middle of the rim.
  v1::SceneSpec driven = RimScene(v1::NURBS_RIM_CLAMPED);
  driven.mutable_bodies(0)->mutable_fixed(0)->mutable_motion()->mutable_velocity_m_per_s()->set_x(0.1);
  const auto moving = Build(driven);
  ASSERT_TRUE(moving.ok()) << moving.status();
  ASSERT_EQ(moving->bodies[0].nurbs_shell->driven.size(), 1U);
  EXPECT_EQ(moving->bodies[0].nurbs_shell->driven[0].vertices, shell.held);
  EXPECT_LT((moving->bodies[0].nurbs_shell->driven[0].center_m - mean).norm(), 1e-12);
  // Two regions may share a rim between them, each with a frame.
  v1::SceneSpec two = RimScene(v1::NURBS_RIM_CLAMPED);
  v1::FixedRegion& other = *two.mutable_bodies(0)->add_fixed();
  other = two.bodies(0).fixed(0);
  other.set_name("other");
  other.mutable_box()->mutable_min_m()->set_x(0);
  other.mutable_box()->mutable_max_m()->set_x(1);
  const auto both = Build(two);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->bodies[0].nurbs_shell->model->frame_control_count, 8U);
  EXPECT_EQ(both->bodies[0].nurbs_shell->held.size(), 8U);
}

TEST(NurbsBodySpec, RimsThatCannotBeHeldAreRefusedByField) {
  const auto expect_refused = [](const std::function<void(v1::SceneSpec&)>& spoil, const std::string& text) {
    v1::SceneSpec spec = RimScene(v1::NURBS_RIM_CLAMPED);
    spoil(spec);
    ExpectRefused(spec, text);
  };
  const auto region = [](v1::SceneSpec& s) -> v1::FixedRegion& { return *s.mutable_bodies(0)->mutable_fixed(0); };
  expect_refused([&](auto& s) { region(s).mutable_box()->mutable_max_m()->set_z(0); },
                 "bodies[0].fixed[0].box: no rim of the surface lies there");
  expect_refused([&](auto& s) { region(s).set_rim(static_cast<v1::NurbsRim>(7)); }, "bodies[0].fixed[0].rim: 7 is outside [0, 2]");
  expect_refused([&](auto& s) { region(s).set_bound_to("block"); }, "bodies[0].fixed[0].rim: rims are not bound to a body");
  v1::SceneSpec tissue = BoundScene();
  *tissue.mutable_bodies(1)->add_fixed() = RimScene(v1::NURBS_RIM_CLAMPED).bodies(0).fixed(0);
  ExpectRefused(tissue, "bodies[1].fixed[0].rim: only a NURBS shell is held at its rims");
}

TEST(NurbsBodySpec, WhatCannotBeBoundIsRefusedByField) {
  const auto expect_refused = [](const std::function<void(v1::SceneSpec&)>& spoil, const std::string& text) {
    v1::SceneSpec spec = BoundScene();
    spoil(spec);
    ExpectRefused(spec, text);
  };
  const auto region = [](v1::SceneSpec& s) -> v1::FixedRegion& { return *s.mutable_bodies(0)->mutable_fixed(0); };
  const std::string field = "bodies[0].fixed[0].bound_to: ";
  expect_refused([&](auto& s) { region(s).set_bound_to("none"); }, field + "no body is named \"none\"");
  expect_refused([&](auto& s) { region(s).set_bound_to("ball"); }, field + "is the shell itself");
  expect_refused([&](auto& s) { region(s).mutable_motion(); }, field + "a region follows a body or a motion, not both");
  expect_refused([&](auto& s) { region(s).clear_bound_to(); }, "bodies[0].fixed[0].ignores_contact: only a region with bound_to has it");
  expect_refused([&](auto& s) { s.mutable_bodies(1)->mutable_pose()->mutable_position_m()->set_z(-0.05); }, field + "control point ");
  expect_refused([&](auto& s) { s.mutable_bodies(1)->set_simulation(v1::SIMULATION_SHAPE_MATCHED); }, field + "block is no dynamic body");
  expect_refused([&](auto& s) { *s.mutable_bodies(0)->add_fixed() = s.bodies(0).fixed(0); }, "bodies[0].fixed[1]: control point");
  expect_refused([&](auto& s) { *s.mutable_bodies(1)->add_fixed() = s.bodies(0).fixed(0); },
                 "bodies[1].fixed[0].bound_to: only a NURBS shell is bound to a body");
}

/// The shell, held below, and the solid ball 3 cm above it: a joint between the two, or to the world.
v1::SceneSpec JointedScene() {
  v1::SceneSpec spec = ShellScene();
  spec.mutable_bodies(0)->set_name("shell");
  v1::BodySpec& solid = *spec.add_bodies();
  solid = BallScene().bodies(0);
  solid.mutable_pose()->mutable_position_m()->set_z(0.07);
  v1::JointSpec& joint = *spec.add_joints();
  joint.set_body_b("shell");
  joint.mutable_patch_b()->set_patch(0);
  joint.mutable_patch_b()->set_u(0.3);
  joint.mutable_patch_b()->set_v(0.6);
  joint.mutable_ball();
  return spec;
}

TEST(NurbsBodySpec, JointsAreAtPlacesOfTheExactSurface) {
  v1::SceneSpec spec = JointedScene();
  // A rod from the top of the shell to the bottom of the solid ball, and an array of places along a line of the surface.
  v1::JointSpec& rod = *spec.add_joints();
  rod.set_body_a("ball");
  rod.mutable_patch_a()->set_patch(5);
  rod.mutable_patch_a()->set_v(0.5);
  rod.set_body_b("shell");
  rod.mutable_patch_b()->set_v(1);
  rod.mutable_distance();
  v1::JointSpec& row = *spec.add_joints();
  row = spec.joints(0);
  row.mutable_patch_b()->set_step_u(0.2);
  row.mutable_array()->set_count(3);
  v1::JointSpec& region = *spec.add_joints();
  region.set_body_b("shell");
  region.mutable_region_b()->mutable_ball()->mutable_center_m()->set_z(kRadius_m);
  region.mutable_region_b()->mutable_ball()->set_radius_m(0.012);
  region.mutable_point_m()->set_z(kRadius_m);
  region.mutable_fixed();
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  ASSERT_EQ(scene->joints.size(), 6U);
  const sim::BodyDescription& shell = scene->bodies[0];
  const auto on_surface = [&](size_t patch, double u, double v) { return shell.nurbs->object.patches()[patch].surface.Point(u, v); };
  const sim::JointDescription& ball = scene->joints[0];
  double places = 0, turnings = 0;
  for (const sim::JointControlPoint& point : ball.control_b) {
    places += point.place;
    turnings += point.turning;
  }
  EXPECT_NEAR(places, 1, 1e-12);
  EXPECT_NEAR(turnings, 1, 1e-12);
  EXPECT_EQ(ball.control_b.size(), 7U) << "nine, of which three lie in the pole";
  EXPECT_LT((ball.point_b_m - on_surface(0, 0.3, 0.6)).norm(), 1e-9);
  EXPECT_EQ(ball.point_a_m, ball.point_b_m) << "the world's end is there too";
  const sim::JointDescription& distance = scene->joints[1];
  const Eigen::Vector3d on_solid = scene->bodies[1].nurbs->object.patches()[5].surface.Point(0, 0.5) + Eigen::Vector3d(0, 0, 0.07);
  EXPECT_LT((distance.point_a_m - on_solid).norm(), 1e-12);
  EXPECT_LT((distance.point_b_m - on_surface(0, 0, 1)).norm(), 1e-9);
  EXPECT_NEAR(distance.lower, (distance.point_b_m - distance.point_a_m).norm(), 1e-12);
  EXPECT_TRUE(distance.control_a.empty()) << "a rigid body is held as a whole";
  for (size_t copy = 0; copy < 3; ++copy) {
    EXPECT_LT((scene->joints[2 + copy].point_b_m - on_surface(0, 0.3 + 0.2 * static_cast<double>(copy), 0.6)).norm(), 1e-9) << copy;
  }
  for (const sim::JointControlPoint& point : scene->joints[5].control_b) EXPECT_EQ(point.place, point.turning) << "by their masses";
}

TEST(NurbsBodySpec, JointsThatCannotHoldAreRefusedByNameAndField) {
  const auto expect_refused = [](const std::function<void(v1::JointSpec&)>& spoil, const std::string& text) {
    v1::SceneSpec spec = JointedScene();
    spoil(*spec.mutable_joints(0));
    ExpectRefused(spec, text);
  };
  expect_refused([](v1::JointSpec& j) { j.mutable_patch_b()->set_patch(8); }, "joints[0].patch_b.patch: 8 is outside [0, 8)");
  expect_refused([](v1::JointSpec& j) { j.mutable_patch_b()->set_u(1.5); },
                 "joints[0].patch_b.u: 1.5 is outside the knots of the patch, [0, 1]");
  expect_refused([](v1::JointSpec& j) { j.mutable_patch_b()->set_v(std::nan("")); }, "joints[0].patch_b.v");
  expect_refused([](v1::JointSpec& j) { j.mutable_point_m()->set_x(1); }, "joints[0].point_m: patch_b says where the point is");
  expect_refused([](v1::JointSpec& j) { j.mutable_region_b()->mutable_vertices()->add_indices(0); },
                 "joints[0].patch_b: region_b is given too");
  expect_refused([](v1::JointSpec& j) { j.clear_patch_b(); }, "\"shell\" is a NURBS shell: patch_b or region_b must say where");
  expect_refused(
      [](v1::JointSpec& j) {
        j.clear_patch_b();
        j.mutable_region_b()->mutable_vertices()->add_indices(0);
      },
      "\"shell\" is a NURBS shell, which has control points: region_b is a box or a ball");
  expect_refused(
      [](v1::JointSpec& j) {
        j.clear_patch_b();
        j.mutable_region_b()->mutable_ball()->mutable_center_m()->set_z(1);
        j.mutable_region_b()->mutable_ball()->set_radius_m(0.1);
      },
      "joints[0].region_b.ball: holds no control point");
  expect_refused([](v1::JointSpec& j) { j.mutable_patch_a(); }, "joints[0].patch_a: body_a is not given");
  expect_refused(
      [](v1::JointSpec& j) {
        j.set_body_a("ball");
        j.mutable_patch_a();
      },
      "joints[0].patch_b: is 0.0");
  v1::SceneSpec spec = JointedScene();
  *spec.mutable_bodies(1)->mutable_name() = "slab";
  spec.mutable_bodies(1)->clear_nurbs();
  spec.mutable_bodies(1)->mutable_generator()->mutable_slab();
  spec.mutable_joints(0)->set_body_a("slab");
  spec.mutable_joints(0)->mutable_patch_a();
  ExpectRefused(spec, "joints[0].body_a: \"slab\" has no exact surface, and patch_a is a place on one");
}

TEST(NurbsBodySpec, ATrimmedShellHasWhatIsLeftAndJointsOnIt) {
  const auto object = [](std::vector<std::vector<sim::NurbsTrimDescription>> loops) {
    return NurbsToProto(test::SheetDescription(3, 6, 0.1, std::move(loops)));
  };
  v1::SceneSpec spec = ShellScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.set_name("shell");
  body.clear_fixed();
  *body.mutable_nurbs()->mutable_object() = object({test::WholeLoop(), {test::CircleTrim({0.5, 0.5}, 0.2, true)}});
  v1::JointSpec& joint = *spec.add_joints();
  joint.set_body_b(body.name());
  joint.mutable_ball();
  joint.mutable_patch_b()->set_u(0.1);
  joint.mutable_patch_b()->set_v(0.5);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  EXPECT_EQ(scene->bodies[0].nurbs->vertex_places.size(), scene->bodies[0].mesh.vertices.size());
  const double area_m2 = 0.01 * (1 - 0.04 * std::numbers::pi);
  EXPECT_NEAR(sim::NurbsShellArea_m2(*scene->bodies[0].nurbs_shell->model), area_m2, 1e-10);
  v1::SceneSpec in_hole = spec;
  in_hole.mutable_joints(0)->mutable_patch_b()->set_u(0.45);
  ExpectRefused(in_hole, "joints[0].patch_b: (u, v) = (0.45, 0.5) is in what is trimmed away of patch 0 of \"" + body.name() + "\"");
  v1::SceneSpec bad = spec;
  v1::NurbsObject& given = *bad.mutable_bodies(0)->mutable_nurbs()->mutable_object();
  given = object({test::PolygonTrims({{0.1, 0.1}, {0.9, 0.8}, {0.9, 0.1}, {0.35, 0.9}})});
  ExpectRefused(bad, "bodies[0].nurbs (shell): patches[0]: loops: cross near (u, v) = (");
  given = object({test::PolygonTrims({{0, 0}, {1, 0}, {1, 1e-6}, {0, 1e-6}})});
  ExpectRefused(bad, "bodies[0].nurbs");
  bad = spec;
  bad.mutable_bodies(0)->set_volume_stiffness_pa(1e4);
  ExpectRefused(bad, "bodies[0].volume_stiffness_pa: ");
}

TEST(NurbsBodySpec, WhatAShellCannotBeIsRefusedByNameAndField) {
  const auto expect_refused = [](const std::function<void(v1::BodySpec&)>& spoil, const std::string& text) {
    v1::SceneSpec spec = ShellScene();
    spoil(*spec.mutable_bodies(0));
    ExpectRefused(spec, text);
  };
  expect_refused([](v1::BodySpec& b) { b.mutable_material()->set_model(v1::MATERIAL_MODEL_COROTATED_LINEAR); },
                 "bodies[0].material.model: ");
  expect_refused([](v1::BodySpec& b) { b.mutable_nurbs()->set_thickness_m(0); }, "bodies[0].nurbs.thickness_m: 0 is outside");
  expect_refused([](v1::BodySpec& b) { b.set_kind(v1::BODY_KIND_RIGID); }, "bodies[0].nurbs.thickness_m: only a deformable body");
  expect_refused([](v1::BodySpec& b) { b.set_simulation(v1::SIMULATION_SHAPE_MATCHED); }, "bodies[0].simulation: ");
  expect_refused([](v1::BodySpec& b) { b.set_drag_coefficient(-1); }, "bodies[0].drag_coefficient: -1 is outside");
  expect_refused([](v1::BodySpec& b) { b.set_volume_stiffness_pa(1e4); }, "bodies[0].volume_stiffness_pa: ");
  expect_refused([](v1::BodySpec& b) { b.mutable_fixed(0)->mutable_motion()->set_duration_s(-1); },
                 "bodies[0].fixed[0].motion.duration_s: -1 is outside");
  expect_refused(
      [](v1::BodySpec& b) {
        b.mutable_fixed(0)->mutable_motion()->mutable_velocity_m_per_s()->set_x(1);
        *b.add_fixed()->mutable_box() = b.fixed(0).box();
      },
      " belongs to bodies[0].fixed[0] too; ");
  expect_refused([](v1::BodySpec& b) { b.mutable_fixed(0)->set_free_x(true); }, "bodies[0].fixed[0]: ");
  expect_refused([](v1::BodySpec& b) { b.mutable_fixed(0)->mutable_vertices()->add_indices(1); }, "bodies[0].fixed[0]: ");
  expect_refused([](v1::BodySpec& b) { b.mutable_fixed(0)->mutable_box()->mutable_max_m()->set_z(1); }, "bodies[0].fixed: all ");
  expect_refused([](v1::BodySpec& b) { b.mutable_fixed(0)->mutable_box()->mutable_max_m()->set_z(-0.5); },
                 "bodies[0].fixed[0].box: holds no control point");
  expect_refused(
      [](v1::BodySpec& b) {
        v1::NurbsPatch& patch = *b.mutable_nurbs()->mutable_object()->mutable_patches(0);
        patch.Clear();
        patch.set_degree_u(1);
        patch.set_degree_v(1);
        for (const double t : {0.0, 0.0, 1.0, 1.0}) {
          patch.add_knots_u(t);
          patch.add_knots_v(t);
        }
        for (const double x : {0.0, 0.0, 0.0, 0.0, 0.1, 0.0, 0.1, 0.0, 0.0, 0.1, 0.1, 0.0}) patch.add_control_m(x);
        b.mutable_nurbs()->mutable_object()->mutable_patches()->DeleteSubrange(1, 7);
      },
      "bodies[0].nurbs: patches[0]");
}

TEST(NurbsBodySpec, OnlyAStaticBodyMayBeOpen) {
  v1::SceneSpec spec = BallScene();
  *spec.mutable_bodies(0)->mutable_nurbs()->mutable_object() = Ball(7);
  ExpectRefused(spec, "bodies[0].nurbs (ball): open: ");
  v1::BodySpec& falls = *spec.add_bodies();
  falls.set_kind(v1::BODY_KIND_RIGID);
  *falls.mutable_nurbs()->mutable_object() = Ball();
  spec.mutable_bodies(0)->set_kind(v1::BODY_KIND_STATIC);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  EXPECT_FALSE(scene->bodies[0].nurbs->is_closed);
  EXPECT_EQ(SummarizeBody(scene->bodies[0]).volume_m3(), 0);
}

}  // namespace
}  // namespace palpate::scene::nurbs_body_spec_test
