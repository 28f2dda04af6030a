#include "sim/scene/scene_spec.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <numbers>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/mesh/mesh_io.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/scene/checker.h"
#include "sim/scene/nurbs_file.h"

namespace palpate::scene::scene_spec_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace pb = google::protobuf;

const AssetRootResolver& NoAssets() {
  static const AssetRootResolver resolver("");
  return resolver;
}

/// A coarse slab with nothing else set.
v1::SceneSpec SlabScene() {
  v1::SceneSpec spec;
  v1::GeneratorSpec& generator = *spec.add_bodies()->mutable_generator();
  generator.mutable_slab();
  generator.set_edge_length_m(0.05);
  return spec;
}

absl::StatusOr<sim::SceneDescription> Build(const v1::SceneSpec& spec, const SceneLimits& limits = {}) {
  return BuildSceneDescription(spec, NoAssets(), limits);
}

void ExpectRefused(const v1::SceneSpec& spec, const std::string& text, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_FALSE(built.ok()) << "expected a refusal with: " << text;
  EXPECT_EQ(built.status().code(), code) << built.status();
  EXPECT_THAT(std::string(built.status().message()), HasSubstr(text));
}

/// One tetrahedron, positive orientation.
void SetSingleTet(v1::TetMeshData& mesh) {
  for (const double x : {0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.1}) mesh.add_vertices_m(x);
  for (const uint32_t v : {0U, 1U, 2U, 3U}) mesh.add_tets(v);
}

/// Joints of all kinds between copies of a rigid body.
v1::SceneSpec JointedSpec() {
  v1::SceneSpec spec;
  spec.mutable_solver()->set_joint_dissipation(0.1);
  v1::BodySpec& body = *spec.add_bodies();
  body.set_name("link");
  body.set_kind(v1::BODY_KIND_RIGID);
  body.mutable_generator()->mutable_slab();
  body.mutable_generator()->set_edge_length_m(0.05);
  body.set_angular_damping_per_s(0.3);
  body.set_restitution(0.5);
  body.set_drag_coefficient(1.1);
  spec.mutable_wind()->add_times_s(1);
  spec.mutable_wind()->add_velocities_m_per_s()->set_y(3);
  spec.mutable_wind()->set_density_kg_per_m3(1.1);
  body.mutable_array()->set_count_x(8);
  body.mutable_array()->set_count_y(1);
  body.mutable_array()->set_count_z(1);
  body.mutable_array()->mutable_spacing_m()->set_x(0.5);
  const auto add = [&](int copy) -> v1::JointSpec& {
    v1::JointSpec& joint = *spec.add_joints();
    joint.set_body_b("link" + std::to_string(copy));
    if (copy > 0) joint.set_body_a("link" + std::to_string(copy - 1));
    joint.mutable_point_m()->set_x(0.5 * copy);
    return joint;
  };
  v1::JointSpec& ball = add(0);
  ball.mutable_ball()->set_stiffness_n_m_per_rad(1);
  ball.mutable_ball()->set_damping_n_m_s_per_rad(0.1);
  ball.set_break_force_n(1000);
  ball.set_break_torque_n_m(100);
  ball.mutable_array()->set_count(2);
  ball.mutable_array()->mutable_step_m()->set_x(0.5);
  v1::HingeJoint& hinge = *add(1).mutable_hinge();
  hinge.mutable_axis()->set_y(2);
  hinge.set_lower_rad(-1);
  hinge.set_upper_rad(2);
  hinge.mutable_drive()->mutable_motor()->set_speed_rad_per_s(3);
  hinge.mutable_drive()->mutable_motor()->set_max_torque_n_m(4);
  v1::TurnSpring& turn = *add(2).mutable_hinge()->mutable_drive()->mutable_spring();
  turn.set_angle_rad(0.1);
  turn.set_stiffness_n_m_per_rad(2);
  turn.set_damping_n_m_s_per_rad(0.2);
  v1::TurnMotion& turning = *add(3).mutable_hinge()->mutable_drive()->mutable_motion();
  turning.add_times_s(1);
  turning.add_times_s(2);
  turning.add_angles_rad(0);
  turning.add_angles_rad(-3);
  v1::SliderJoint& slider = *add(4).mutable_slider();
  slider.mutable_axis()->set_x(-1);
  slider.set_lower_m(-0.1);
  slider.set_upper_m(0.2);
  slider.mutable_drive()->mutable_motor()->set_speed_m_per_s(0.3);
  slider.mutable_drive()->mutable_motor()->set_max_force_n(4);
  v1::ShiftSpring& shift = *add(5).mutable_slider()->mutable_drive()->mutable_spring();
  shift.set_position_m(0.01);
  shift.set_stiffness_n_per_m(2);
  shift.set_damping_n_s_per_m(0.2);
  v1::ShiftMotion& shifting = *add(6).mutable_slider()->mutable_drive()->mutable_motion();
  shifting.add_times_s(1);
  shifting.add_positions_m(0.5);
  add(7).mutable_fixed();
  v1::BodySpec& soft = *spec.add_bodies();
  soft.set_name("soft");
  soft.mutable_generator()->mutable_slab();
  soft.mutable_generator()->set_edge_length_m(0.05);
  soft.mutable_pose()->mutable_position_m()->set_z(50);
  spec.add_tools()->set_name("hook");
  v1::JointSpec& of_tissue = *spec.add_joints();
  of_tissue.set_body_a("soft");
  of_tissue.mutable_region_a()->mutable_box()->mutable_min_m()->set_x(-90);
  of_tissue.mutable_region_a()->mutable_box()->mutable_max_m()->set_x(90);
  of_tissue.mutable_region_a()->mutable_box()->mutable_min_m()->set_y(-90);
  of_tissue.mutable_region_a()->mutable_box()->mutable_max_m()->set_y(90);
  of_tissue.mutable_region_a()->mutable_box()->mutable_max_m()->set_z(90);
  of_tissue.set_instrument_b("hook");
  of_tissue.mutable_fixed();
  v1::JointSpec& in_ball = add(3);
  in_ball.clear_body_a();
  in_ball.set_body_a("soft");
  in_ball.mutable_region_a()->mutable_ball()->mutable_center_m()->set_z(50);
  in_ball.mutable_region_a()->mutable_ball()->set_radius_m(5);
  in_ball.mutable_fixed();
  v1::JointSpec& rope = add(1);
  rope.mutable_point_b_m()->set_x(1);
  rope.mutable_distance()->set_min_m(0.1);
  rope.mutable_distance()->set_max_m(0.9);
  add(2).mutable_plane()->mutable_normal()->set_x(3);
  add(3).mutable_line()->mutable_axis()->set_y(3);
  v1::JointSpec& spring = add(4);
  spring.mutable_point_b_m()->set_x(1);
  spring.mutable_spring()->set_rest_length_m(0.5);
  spring.mutable_spring()->set_stiffness_n_per_m(10);
  spring.mutable_spring()->set_damping_n_s_per_m(1);
  return spec;
}

/// A sheet with a border that is sewn to a slab.
v1::SceneSpec SewnSpec() {
  v1::SceneSpec spec;
  v1::BodySpec& slab = *spec.add_bodies();
  slab.set_name("slab");
  slab.mutable_generator()->mutable_slab();
  slab.mutable_generator()->set_edge_length_m(0.05);
  v1::BodySpec& flap = *spec.add_bodies();
  flap.set_name("flap");
  flap.mutable_shell()->mutable_sheet()->set_length_m(0.1);
  flap.mutable_shell()->mutable_sheet()->set_width_m(0.1);
  flap.mutable_shell()->set_edge_length_m(0.05);
  v1::SutureSpec& suture = *spec.add_sutures();
  suture.set_body_a("flap");
  suture.set_body_b("slab");
  for (const auto& [corner, sign] :
       {std::pair(suture.mutable_box()->mutable_min_m(), -1.0), {suture.mutable_box()->mutable_max_m(), 1.0}}) {
    corner->set_x(sign > 0 ? -0.049 : -0.051);
    corner->set_y(sign);
    corner->set_z(sign);
  }
  suture.set_reach_m(0.05);
  return spec;
}

/// Every message and every numeric field present, each with a value that is in range.
std::vector<v1::SceneSpec> FullSpecs() {
  v1::SceneSpec base;
  base.set_name("full");
  base.set_dt_s(0.01);
  base.mutable_gravity_m_per_s2()->set_z(-9.81);
  base.mutable_solver()->set_iterations(3);
  base.mutable_solver()->set_acceleration(0.5);
  base.mutable_solver()->set_coarse_nodes(100);
  base.mutable_solver()->set_tolerance_m_per_s2(0.02);
  base.mutable_solver()->set_report_energy(true);
  base.mutable_contact()->set_margin_m(0.001);
  base.mutable_contact()->set_friction(0.2);
  base.mutable_contact()->set_stiffness_n_per_m(100);
  base.mutable_contact()->set_surface_friction(0.3);
  base.mutable_contact()->set_surface_reserve_m(0.002);
  base.mutable_contact()->set_surface_max_detections(2);
  base.mutable_haptics()->set_max_constraints(8);
  base.mutable_haptics()->set_blend_time_s(0.01);
  base.mutable_haptics()->set_range_m(0.01);
  v1::BodySpec& body = *base.add_bodies();
  body.mutable_material()->set_young_modulus_pa(5000);
  body.mutable_material()->set_poisson_ratio(0.4);
  body.mutable_material()->set_density_kg_per_m3(1000);
  body.mutable_material()->set_damping_s(0.01);
  body.mutable_material()->set_mass_damping_per_s(0.5);
  body.mutable_material()->set_fracture_toughness_j_per_m2(150);
  body.mutable_material()->set_model(v1::MATERIAL_MODEL_LINEAR);
  v1::FiberSpec& fibers = *body.mutable_material()->mutable_fibers();
  fibers.mutable_direction()->set_x(2);
  fibers.set_young_modulus_pa(20000);
  fibers.set_poisson_ratio(0.3);
  fibers.set_shear_modulus_pa(3000);
  body.mutable_ablation()->set_energy_j_per_kg(1e6);
  body.mutable_ablation()->set_cooling_time_s(30);
  v1::ZoneSpec& zone = *body.add_zones();
  zone.set_name("all");
  zone.mutable_ball()->mutable_center_m()->set_x(0.1);
  zone.mutable_ball()->set_radius_m(5);
  zone.mutable_interior_color()->set_g(0.5);
  v1::LoadSpec& pressure = *body.add_loads();
  pressure.mutable_ball()->set_radius_m(5);
  pressure.mutable_ball()->mutable_center_m();
  pressure.set_pressure_pa(10);
  pressure.set_start_s(1);
  pressure.set_duration_s(2);
  v1::LoadSpec& force = *body.add_loads();
  force.mutable_vertices()->add_indices(1);
  force.mutable_force_n()->set_z(-3);
  body.mutable_pose()->mutable_position_m()->set_x(0.1);
  body.mutable_pose()->mutable_rotation()->set_w(1);
  v1::MarkerSpec& marker = *body.add_markers();
  marker.set_name("corner");
  marker.mutable_position_m()->set_x(0.1);
  body.mutable_color()->set_r(0.5);
  body.set_scale(1);
  body.mutable_velocity_m_per_s()->set_y(0.5);
  body.mutable_array()->set_count_x(2);
  body.mutable_array()->set_count_y(1);
  body.mutable_array()->set_count_z(1);
  body.mutable_array()->mutable_spacing_m()->set_x(1e-4);
  v1::Box& box = *body.add_fixed()->mutable_box();
  box.mutable_min_m()->set_x(-10);
  box.mutable_min_m()->set_y(-10);
  box.mutable_min_m()->set_z(-10);
  box.mutable_max_m()->set_x(0.101);
  box.mutable_max_m()->set_y(10);
  box.mutable_max_m()->set_z(10);
  body.add_fixed()->mutable_vertices()->add_indices(0);
  v1::SurfaceZoneSpec& around = *body.add_surface_zones();
  around.set_name("around");
  around.mutable_ball()->mutable_center_m()->set_x(0.1);
  around.mutable_ball()->set_radius_m(5);
  around.mutable_facing()->set_z(2);
  around.set_max_angle_rad(3.1);
  around.mutable_color()->set_b(0.5);
  body.set_volume_stiffness_pa(1e5);
  body.mutable_texture()->set_pattern(v1::TEXTURE_PATTERN_LIVER);
  body.mutable_texture()->mutable_planar()->mutable_origin_m()->set_x(0.1);
  body.mutable_texture()->mutable_planar()->mutable_u_direction()->set_y(2);
  body.mutable_texture()->mutable_planar()->mutable_v_direction()->set_z(3);
  body.mutable_texture()->set_tile_size_m(0.03);
  v1::PlaneObstacle& plane = *base.add_obstacles()->mutable_plane();
  plane.mutable_point_m()->set_z(-1);
  plane.mutable_normal()->set_z(1);
  v1::SphereObstacle& sphere = *base.add_obstacles()->mutable_sphere();
  sphere.mutable_center_m()->set_z(-2);
  sphere.set_radius_m(0.1);
  v1::CapsuleObstacle& capsule = *base.add_obstacles()->mutable_capsule();
  capsule.mutable_end0_m()->set_z(-3);
  capsule.mutable_end1_m()->set_z(-4);
  capsule.set_radius_m(0.1);
  v1::ToolSpec& tool = *base.add_tools();
  tool.set_name("probe");
  tool.set_radius_m(0.005);
  tool.set_length_m(0.1);
  tool.mutable_rest_pose()->mutable_position_m()->set_z(1);
  tool.mutable_rest_pose()->mutable_rotation()->set_w(1);
  tool.set_mass_kg(0.1);
  tool.set_coupling_stiffness_n_per_m(100);
  tool.set_coupling_damping_n_s_per_m(1);
  tool.set_energy_hold_s(0.2);
  tool.set_command_hold_s(0.3);

  // One spec per geometry: a oneof holds one at a time.
  std::vector<v1::SceneSpec> out(9, base);
  out.push_back(base);
  v1::BodySpec& matched = *out.back().mutable_bodies(0);
  SetSingleTet(*matched.mutable_mesh());
  matched.clear_material();
  matched.clear_zones();
  matched.clear_volume_stiffness_pa();
  matched.set_simulation(v1::SIMULATION_SHAPE_MATCHED);
  matched.mutable_shape_matching()->set_mode(v1::SHAPE_MODE_LINEAR);
  matched.mutable_shape_matching()->set_beta(0.5);
  matched.mutable_shape_matching()->set_cluster_size_m(10);
  SetSingleTet(*out[0].mutable_bodies(0)->mutable_mesh());
  // These coordinates are of the mesh, or of a projection.
  out[0].mutable_bodies(0)->mutable_texture()->clear_planar();
  out[0].mutable_bodies(0)->mutable_texture()->clear_tile_size_m();
  for (const double x : {0.0, 0.0, 1.0, 0.0, 0.0, 1.0, -2.5, 7.0}) out[0].mutable_bodies(0)->mutable_mesh()->add_texture_coordinates(x);
  out[0].mutable_bodies(0)->mutable_mesh()->add_tet_groups(1);
  out[0].mutable_bodies(0)->mutable_mesh()->add_groups()->set_number(1);
  out[0].mutable_bodies(0)->mutable_mesh()->mutable_groups(0)->set_name("tissue");
  v1::SphericalProjection& spherical = *out[2].mutable_bodies(0)->mutable_texture()->mutable_spherical();
  spherical.mutable_center_m()->set_z(0.001);
  spherical.mutable_axis()->set_x(2);
  v1::CylindricalProjection& cylindrical = *out[3].mutable_bodies(0)->mutable_texture()->mutable_cylindrical();
  cylindrical.mutable_center_m()->set_z(0.001);
  cylindrical.mutable_axis()->set_y(-2);
  const auto generator = [&out](size_t i) -> v1::GeneratorSpec& { return *out[i].mutable_bodies(0)->mutable_generator(); };
  generator(1).mutable_slab()->mutable_size_m()->set_x(0.1);
  generator(1).mutable_slab()->mutable_size_m()->set_y(0.1);
  generator(1).mutable_slab()->mutable_size_m()->set_z(0.1);
  generator(1).set_edge_length_m(0.05);
  generator(2).mutable_sphere()->set_radius_m(0.05);
  generator(2).set_edge_length_m(0.03);
  generator(3).mutable_torus()->set_major_radius_m(0.06);
  generator(3).mutable_torus()->set_minor_radius_m(0.03);
  generator(3).set_edge_length_m(0.03);
  out[3].mutable_bodies(0)->clear_markers();  // the place of the others' lies in its hole
  generator(4).mutable_liver()->set_length_m(0.2);
  generator(4).set_edge_length_m(0.05);
  generator(5).mutable_kidney()->set_length_m(0.2);
  generator(5).set_edge_length_m(0.05);
  generator(6).mutable_knot()->set_extent_m(0.5);
  generator(6).mutable_knot()->set_tube_radius_m(0.05);
  generator(6).set_edge_length_m(0.05);
  generator(7).mutable_sheet()->set_length_m(0.2);
  generator(7).mutable_sheet()->set_width_m(0.1);
  generator(7).mutable_sheet()->set_thickness_m(0.01);
  generator(7).mutable_sheet()->set_layer_count(2);
  generator(7).set_edge_length_m(0.05);
  // A region that moves shares its vertices with no other.
  generator(8).mutable_slab();
  generator(8).set_edge_length_m(0.05);
  // Each kind of instrument has fields of its own.
  v1::ToolSpec& forceps = *out[1].mutable_tools(0);
  forceps.mutable_instrument()->set_kind(v1::INSTRUMENT_KIND_FORCEPS);
  forceps.mutable_instrument()->set_jaw_length_m(0.03);
  forceps.mutable_instrument()->set_jaw_radius_m(0.002);
  forceps.mutable_instrument()->set_max_jaw_angle_rad(0.8);
  forceps.mutable_instrument()->set_max_grasp_force_n(5);
  forceps.mutable_trocar()->mutable_pivot_m()->set_x(0.1);
  forceps.mutable_trocar()->set_min_insertion_m(0.01);
  forceps.mutable_trocar()->set_max_insertion_m(0.09);
  forceps.mutable_trocar()->set_max_tilt_rad(1);
  forceps.mutable_trocar()->mutable_axis()->set_z(-2);
  out[2].mutable_tools(0)->mutable_instrument()->set_kind(v1::INSTRUMENT_KIND_SCALPEL);
  out[2].mutable_tools(0)->mutable_instrument()->set_blade_length_m(0.02);
  out[3].mutable_tools(0)->mutable_instrument()->set_kind(v1::INSTRUMENT_KIND_CAVITRON);
  out[3].mutable_tools(0)->mutable_instrument()->set_max_power_w(30);
  out[3].mutable_tools(0)->mutable_instrument()->set_reach_m(0.002);
  out[3].mutable_tools(0)->mutable_instrument()->set_refine_to_m(0.004);
  google::protobuf::RepeatedPtrField<v1::FixedRegion>& fixed = *out[8].mutable_bodies(0)->mutable_fixed();
  fixed.RemoveLast();
  v1::RegionMotion& motion = *fixed.Mutable(0)->mutable_motion();
  motion.mutable_velocity_m_per_s()->set_x(-0.1);
  motion.mutable_angular_velocity_rad_per_s()->set_z(3);
  motion.mutable_center_m()->set_x(0.1);
  motion.set_start_s(0.5);
  motion.set_duration_s(2);
  motion.add_keys();
  motion.add_keys()->set_time_s(1);
  motion.mutable_keys(1)->mutable_shift_m()->set_x(0.1);
  motion.mutable_keys(1)->mutable_turn_rad()->set_y(0.1);
  motion.set_period_s(1.5);
  motion.set_ramp_s(0.5);
  fixed.Mutable(0)->set_blend_m(1e-4);
  out.push_back(JointedSpec());
  out.push_back(SewnSpec());
  v1::BodySpec& exact = *out.emplace_back().add_bodies();
  exact.set_kind(v1::BODY_KIND_RIGID);
  *exact.mutable_nurbs()->mutable_object() = NurbsToProto(sim::NurbsObject::FromSurfaces("ball", sim::NurbsSphere(0.02))->Describe());
  exact.mutable_nurbs()->set_tolerance_m(1e-3);
  exact.mutable_nurbs()->set_join_tolerance_m(1e-9);
  v1::BodySpec& bladder = *out.emplace_back().add_bodies();
  *bladder.mutable_nurbs()->mutable_object() =
      NurbsToProto(sim::NurbsObject::FromSurfaces("ring", sim::NurbsTorus(0.05, 0.02))->Describe());
  bladder.mutable_nurbs()->set_thickness_m(1e-3);
  bladder.mutable_material()->set_model(v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF);
  bladder.set_name("bladder");
  v1::JointSpec& held = *out.back().add_joints();
  held.set_body_b("bladder");
  held.mutable_patch_b()->set_u(0.5);
  held.mutable_patch_b()->set_v(0.5);
  held.mutable_patch_b()->set_step_u(0.1);
  held.mutable_patch_b()->set_step_v(0.1);
  held.mutable_array()->set_count(2);
  held.mutable_ball();
  const auto shell = [&out]() -> v1::ShellSpec& { return *out.emplace_back().add_bodies()->mutable_shell(); };
  v1::ShellSpec& cloth = shell();
  cloth.mutable_sheet()->set_length_m(0.2);
  cloth.mutable_sheet()->set_width_m(0.1);
  cloth.set_edge_length_m(0.05);
  cloth.set_thickness_m(0.002);
  cloth.mutable_orthotropic()->mutable_warp_direction()->set_x(2);
  cloth.mutable_orthotropic()->set_weft_modulus_pa(1000);
  cloth.mutable_orthotropic()->set_shear_modulus_pa(300);
  cloth.set_bending(v1::BENDING_MODEL_QUADRATIC);
  cloth.set_bending_stiffness_n_m(1e-5);
  cloth.set_strain_limit(0.1);
  out.back().mutable_bodies(0)->mutable_material()->set_model(v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF);
  v1::ZoneSpec& hem = *out.back().mutable_bodies(0)->add_zones();
  hem.set_name("hem");
  hem.mutable_ball()->set_radius_m(0.05);
  hem.mutable_shell()->mutable_orthotropic()->mutable_warp_direction()->set_x(2);
  hem.mutable_shell()->mutable_orthotropic()->set_weft_modulus_pa(1000);
  hem.mutable_shell()->mutable_orthotropic()->set_shear_modulus_pa(300);
  hem.mutable_shell()->set_bending(v1::BENDING_MODEL_DISCRETE_SHELLS);
  hem.mutable_shell()->set_bending_stiffness_n_m(1e-5);
  hem.mutable_shell()->set_strain_limit(0.1);
  shell().mutable_disc()->set_radius_m(0.1);
  v1::ZoneSpec& patch = *out.back().mutable_bodies(0)->add_zones();
  patch.set_name("patch");
  patch.mutable_ball()->set_radius_m(0.05);
  patch.set_thickness_m(0.002);
  v1::TubeSurface& tube = *shell().mutable_tube();
  tube.set_radius_m(0.02);
  tube.set_length_m(0.1);
  shell().mutable_sphere()->set_radius_m(0.1);
  v1::ShellSpec& figure = shell();
  figure.mutable_figure()->set_height_m(1.2);
  figure.set_edge_length_m(0.014);
  v1::ShellSpec& dress = shell();
  dress.mutable_dress()->set_figure_height_m(1.2);
  dress.mutable_dress()->set_gap_m(0.01);
  dress.set_edge_length_m(0.014);
  v1::TriangleMeshData& triangle = *shell().mutable_mesh();
  for (const double x : {0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.1, 0.0}) triangle.add_vertices_m(x);
  for (const uint32_t v : {0U, 1U, 2U}) triangle.add_triangles(v);
  return out;
}

/// Calls `visit(path, message, field, index)` for every numeric field below `message` that is given, or has no presence and is zero.
using Visit = std::function<void(const std::string& path, pb::Message& message, const pb::FieldDescriptor& field, int index)>;
void WalkNumbers(const std::string& prefix, pb::Message& message, const Visit& visit) {
  const pb::Reflection& reflection = *message.GetReflection();
  for (int f = 0; f < message.GetDescriptor()->field_count(); ++f) {
    const pb::FieldDescriptor& field = *message.GetDescriptor()->field(f);
    const std::string path = prefix.empty() ? field.name() : prefix + "." + field.name();
    const bool is_number = field.cpp_type() == pb::FieldDescriptor::CPPTYPE_DOUBLE ||
                           field.cpp_type() == pb::FieldDescriptor::CPPTYPE_UINT32 || field.cpp_type() == pb::FieldDescriptor::CPPTYPE_ENUM;
    if (field.is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
        const std::string element = path + "[" + std::to_string(i) + "]";
        if (is_number) {
          visit(element, message, field, i);
        } else if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
          WalkNumbers(element, *reflection.MutableRepeatedMessage(&message, &field, i), visit);
        }
      }
    } else if (is_number && (!field.has_presence() || reflection.HasField(message, &field))) {
      visit(path, message, field, -1);
    } else if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE && reflection.HasField(message, &field)) {
      WalkNumbers(path, *reflection.MutableMessage(&message, &field), visit);
    }
  }
}

TEST(SceneSpec, FullSpecsAreAccepted) {
  for (const v1::SceneSpec& spec : FullSpecs()) {
    const absl::StatusOr<sim::SceneDescription> built = Build(spec);
    EXPECT_TRUE(built.ok()) << built.status() << "\n" << spec.bodies(0).ShortDebugString();
  }
}

TEST(SceneSpec, EveryNumberOutOfRangeIsRefusedByName) {
  std::set<std::string> visited;
  for (const v1::SceneSpec& original : FullSpecs()) {
    v1::SceneSpec spec = original;
    WalkNumbers("", spec, [&](const std::string& path, pb::Message& message, const pb::FieldDescriptor& field, int index) {
      // What a surface may be is said by nurbs.proto and tested with its files.
      if (path.find(".nurbs.object.") != std::string::npos) return;
      const pb::Reflection& reflection = *message.GetReflection();
      const v1::SceneSpec before = spec;
      visited.insert(message.GetDescriptor()->name() + "." + field.name());
      const auto expect_refused = [&](const std::string& value) {
        const absl::Status status = BuildSceneDescription(spec, NoAssets(), {}).status();
        EXPECT_FALSE(status.ok()) << path << " = " << value << " was accepted";
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(path)) << value;
      };
      if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_ENUM) {
        const int old = reflection.GetEnumValue(message, &field);
        reflection.SetEnumValue(&message, &field, 99);
        expect_refused("99");
        reflection.SetEnumValue(&message, &field, old);
      } else if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_UINT32) {
        const uint32_t old = index < 0 ? reflection.GetUInt32(message, &field) : reflection.GetRepeatedUInt32(message, &field, index);
        const auto set = [&](uint32_t value) {
          if (index < 0) {
            reflection.SetUInt32(&message, &field, value);
          } else {
            reflection.SetRepeatedUInt32(&message, &field, index, value);
          }
        };
        set(4'000'000'000U);
        expect_refused("4000000000");
        set(old);
      } else {
        const double old = index < 0 ? reflection.GetDouble(message, &field) : reflection.GetRepeatedDouble(message, &field, index);
        const auto set = [&](double value) {
          if (index < 0) {
            reflection.SetDouble(&message, &field, value);
          } else {
            reflection.SetRepeatedDouble(&message, &field, index, value);
          }
        };
        // Directions need not be normalised: any finite length goes.
        const bool is_direction = path.find("rotation.") != std::string::npos || path.find("normal.") != std::string::npos ||
                                  path.find("axis.") != std::string::npos || path.find("facing.") != std::string::npos ||
                                  path.find("_direction.") != std::string::npos;
        for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                                   -std::numeric_limits<double>::infinity(), 1e30, -1e30}) {
          if (is_direction && std::isfinite(value)) continue;
          set(value);
          expect_refused(std::to_string(value));
        }
        set(old);
      }
      EXPECT_EQ(spec.SerializeAsString(), before.SerializeAsString()) << "the walk must put " << path << " back";
    });
  }
  // The walk must have met every number that scene.proto defines.
  const pb::FileDescriptor& file = *v1::SceneSpec::descriptor()->file();
  for (int m = 0; m < file.message_type_count(); ++m) {
    const pb::Descriptor& message = *file.message_type(m);
    for (int f = 0; f < message.field_count(); ++f) {
      const pb::FieldDescriptor::CppType type = message.field(f)->cpp_type();
      if (type == pb::FieldDescriptor::CPPTYPE_DOUBLE || type == pb::FieldDescriptor::CPPTYPE_UINT32 ||
          type == pb::FieldDescriptor::CPPTYPE_ENUM) {
        EXPECT_TRUE(visited.count(message.name() + "." + message.field(f)->name())) << message.name() << "." << message.field(f)->name();
      }
    }
  }
}

TEST(SceneSpec, MessagesNamePathValueAndRange) {
  v1::SceneSpec spec = SlabScene();
  spec.mutable_bodies(0)->mutable_material()->set_poisson_ratio(0.6);
  const absl::Status status = Build(spec).status();
  EXPECT_EQ(status.message(), "bodies[0].material.poisson_ratio: 0.6 is outside [0, 0.495]");
}

TEST(SceneSpec, BoundsThemselvesAreAllowed) {
  v1::SceneSpec spec = SlabScene();
  for (const double value : {0.0, 0.495}) {
    spec.mutable_bodies(0)->mutable_material()->set_poisson_ratio(value);
    EXPECT_TRUE(Build(spec).ok()) << value;
  }
  spec.set_dt_s(1e-4);
  EXPECT_TRUE(Build(spec).ok());
  spec.set_dt_s(0.1);
  EXPECT_TRUE(Build(spec).ok());
  spec.set_dt_s(std::nextafter(0.1, 1));
  EXPECT_FALSE(Build(spec).ok());
}

TEST(SceneSpec, ToleranceNeedsCoarseCorrections) {
  v1::SceneSpec spec = SlabScene();
  spec.mutable_solver()->set_tolerance_m_per_s2(0.02);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->solver.tolerance_m_per_s2, 0.02);
  EXPECT_GT(built->solver.coarse_nodes, 0);
  spec.mutable_solver()->set_coarse_nodes(0);
  ExpectRefused(spec, "solver.tolerance_m_per_s2: is judged at coarse corrections, and solver.coarse_nodes is 0");
  spec.mutable_solver()->set_tolerance_m_per_s2(-1);
  ExpectRefused(spec, "solver.tolerance_m_per_s2: -1 is outside [0, 1e+06]");
  spec.mutable_solver()->clear_tolerance_m_per_s2();
  spec.mutable_solver()->set_coarse_nodes(4097);
  ExpectRefused(spec, "solver.coarse_nodes: 4097 is outside [0, 4096]");
}

// Corrections come by themselves where sweeps would not do, unless the file says otherwise.
TEST(SceneSpec, BodiesThatWantMoreSweepsAreCorrected) {
  v1::SceneSpec spec = SlabScene();
  spec.mutable_solver()->set_iterations(500);
  absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->solver.coarse_nodes, 0);
  EXPECT_EQ(built->solver.acceleration, 0.9);
  spec.mutable_bodies(0)->mutable_material()->set_young_modulus_pa(1e6);
  spec.mutable_solver()->clear_iterations();
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->solver.coarse_nodes, 4096);
  EXPECT_EQ(built->solver.acceleration, 0.85);
  EXPECT_EQ(built->solver.iterations, 17);
  spec.mutable_solver()->set_acceleration(0.8);
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->solver.acceleration, 0.8);
  spec.mutable_solver()->clear_acceleration();
  spec.mutable_solver()->set_coarse_nodes(0);
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->solver.coarse_nodes, 0);
  EXPECT_EQ(built->solver.acceleration, 0.9);
  EXPECT_EQ(built->solver.iterations, 20);
  spec.mutable_solver()->clear_coarse_nodes();
  spec.mutable_bodies(0)->set_volume_stiffness_pa(1e4);
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->solver.coarse_nodes, 4096) << "corrections know of kept volumes";
  EXPECT_EQ(built->solver.acceleration, 0.85);
}

TEST(SceneSpec, AbsentFieldsTakeTheDocumentedDefaults) {
  v1::SceneSpec spec = SlabScene();
  spec.add_tools()->set_name("probe");
  spec.add_obstacles()->mutable_plane();
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->name, "scene");
  EXPECT_DOUBLE_EQ(built->dt_s, 1.0 / 120);
  EXPECT_EQ(built->gravity_m_per_s2, Eigen::Vector3d(0, 0, -9.81));
  EXPECT_EQ(built->solver.iterations, 20);
  EXPECT_EQ(built->solver.acceleration, 0.9);
  EXPECT_EQ(built->solver.coarse_nodes, 0);
  EXPECT_FALSE(built->solver.report_energy);
  spec.mutable_solver()->set_coarse_nodes(300);
  spec.mutable_solver()->set_report_energy(true);
  const absl::StatusOr<sim::SceneDescription> telling = Build(spec);
  ASSERT_TRUE(telling.ok()) << telling.status();
  EXPECT_EQ(telling->solver.coarse_nodes, 300);
  EXPECT_TRUE(telling->solver.report_energy);
  EXPECT_EQ(built->contact.margin_m, 0.001);
  EXPECT_EQ(built->contact.friction, 0.1);
  EXPECT_EQ(built->contact.stiffness_n_per_m, 0);
  EXPECT_EQ(built->contact.surface_friction, 0.1);
  EXPECT_EQ(built->contact.surface_reserve_m, 0);
  EXPECT_EQ(built->contact.surface_max_detections, 4);
  EXPECT_FALSE(built->contact.check_intersections);
  EXPECT_TRUE(built->bodies[0].self_collision);
  EXPECT_EQ(built->bodies[0].velocity_m_per_s, Eigen::Vector3d::Zero());
  EXPECT_TRUE(built->bodies[0].driven_regions.empty());
  EXPECT_EQ(built->haptics.max_constraints, 16);
  EXPECT_LT(built->haptics.blend_time_s, 0);
  EXPECT_EQ(built->haptics.range_m, 0.01);
  ASSERT_EQ(built->bodies.size(), 1U);
  EXPECT_EQ(built->bodies[0].name, "body0");
  EXPECT_EQ(built->bodies[0].material.model, sim::MaterialModel::kStableNeoHookean);
  EXPECT_EQ(built->bodies[0].material.young_modulus_pa, 5000);
  EXPECT_EQ(built->bodies[0].material.poisson_ratio, 0.45);
  EXPECT_EQ(built->bodies[0].material.density_kg_per_m3, 1060);
  EXPECT_EQ(built->bodies[0].material.damping_s, 0.005);
  EXPECT_EQ(built->bodies[0].color, Eigen::Vector3f(0.62F, 0.22F, 0.18F));
  ASSERT_EQ(built->tools.size(), 1U);
  EXPECT_EQ(built->tools[0].radius_m, 0.005);
  EXPECT_EQ(built->tools[0].length_m, 0.1);
  EXPECT_EQ(built->tools[0].drive, sim::ToolDrive::kCoupled);
  EXPECT_EQ(built->tools[0].mass_kg, 0.05);
  EXPECT_EQ(built->tools[0].coupling_stiffness_n_per_m, 500);
  EXPECT_LT(built->tools[0].coupling_damping_n_s_per_m, 0);
  const auto& plane = std::get<sim::PlaneShape>(built->obstacles[0].shape);
  EXPECT_EQ(plane.normal, Eigen::Vector3d(0, 0, 1));
}

TEST(SceneSpec, AZeroThatIsWrittenIsNotADefault) {
  v1::SceneSpec spec = SlabScene();
  spec.mutable_gravity_m_per_s2();  // present, all zero
  spec.mutable_contact()->set_friction(0);
  spec.mutable_bodies(0)->mutable_material()->set_damping_s(0);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok());
  EXPECT_EQ(built->gravity_m_per_s2, Eigen::Vector3d::Zero());
  EXPECT_EQ(built->contact.friction, 0);
  EXPECT_EQ(built->bodies[0].material.damping_s, 0);
}

TEST(SceneSpec, ScaleComesBeforePoseAndTheBoxIsInWorld) {
  v1::SceneSpec spec;
  v1::BodySpec& body = *spec.add_bodies();
  SetSingleTet(*body.mutable_mesh());
  body.set_scale(2);
  body.mutable_pose()->mutable_position_m()->set_x(1);
  // 90 degrees about z, with a length that is not one.
  body.mutable_pose()->mutable_rotation()->set_w(3);
  body.mutable_pose()->mutable_rotation()->set_z(3);
  v1::Box& box = *body.add_fixed()->mutable_box();
  box.mutable_min_m()->set_x(0.99);
  box.mutable_min_m()->set_y(0.19);
  box.mutable_min_m()->set_z(-0.01);
  box.mutable_max_m()->set_x(1.01);
  box.mutable_max_m()->set_y(0.21);
  box.mutable_max_m()->set_z(0.01);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  // Vertex 1 at (0.1, 0, 0) is scaled to (0.2, 0, 0), turned to (0, 0.2, 0), moved to (1, 0.2, 0).
  EXPECT_TRUE(built->bodies[0].mesh.vertices[1].isApprox(Eigen::Vector3d(1, 0.2, 0), 1e-12));
  EXPECT_EQ(built->bodies[0].fixed_vertices, std::vector<uint32_t>({1}));
}

TEST(SceneSpec, ExtremeQuaternionsAndNormalsAreNormalised) {
  for (const double length : {1e-300, 1e300}) {
    v1::SceneSpec spec = SlabScene();
    spec.mutable_bodies(0)->mutable_pose()->mutable_rotation()->set_w(length);
    spec.add_obstacles()->mutable_plane()->mutable_normal()->set_y(-length);
    const absl::StatusOr<sim::SceneDescription> built = Build(spec);
    ASSERT_TRUE(built.ok()) << built.status();
    EXPECT_EQ(std::get<sim::PlaneShape>(built->obstacles[0].shape).normal, Eigen::Vector3d(0, -1, 0));
  }
  v1::SceneSpec spec = SlabScene();
  spec.mutable_bodies(0)->mutable_pose()->mutable_rotation();
  ExpectRefused(spec, "bodies[0].pose.rotation: is zero");
  spec = SlabScene();
  spec.add_obstacles()->mutable_plane()->mutable_normal();
  ExpectRefused(spec, "obstacles[0].plane.normal: is zero");
}

TEST(SceneSpec, MaterialsKeepTheirModelAndItsRange) {
  v1::SceneSpec spec = SlabScene();
  v1::MaterialSpec& material = *spec.mutable_bodies(0)->mutable_material();
  const auto model_of = [&](v1::MaterialModel model) {
    material.set_model(model);
    const absl::StatusOr<sim::SceneDescription> built = Build(spec);
    EXPECT_TRUE(built.ok()) << built.status();
    return built.ok() ? built->bodies[0].material : sim::Material{};
  };
  EXPECT_EQ(model_of(v1::MATERIAL_MODEL_COROTATED_LINEAR).model, sim::MaterialModel::kCorotated);
  EXPECT_EQ(model_of(v1::MATERIAL_MODEL_LINEAR).model, sim::MaterialModel::kLinear);
  EXPECT_EQ(model_of(v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF).model, sim::MaterialModel::kStVenantKirchhoff);
  EXPECT_EQ(model_of(v1::MATERIAL_MODEL_MASS_SPRING).model, sim::MaterialModel::kMassSpring);
  EXPECT_EQ(model_of(v1::MATERIAL_MODEL_MASS_SPRING).poisson_ratio, 0.25);
  material.set_poisson_ratio(0.4);
  ExpectRefused(spec, "bodies[0].material.poisson_ratio: 0.4 is not 0.25");

  // Fibres: defaults, direction turned with the body, what does not fit.
  material.Clear();
  material.mutable_fibers()->mutable_direction()->set_x(3);
  ExpectRefused(spec, "bodies[0].material.fibers: only the linear and the St-Venant-Kirchhoff model have fibres");
  material.set_model(v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF);
  v1::Quaternion& turn = *spec.mutable_bodies(0)->mutable_pose()->mutable_rotation();
  turn.set_w(1);
  turn.set_z(1);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  ASSERT_TRUE(built->bodies[0].material.fibers.has_value());
  const sim::FiberProperties& fibers = *built->bodies[0].material.fibers;
  EXPECT_LT((fibers.direction - Eigen::Vector3d::UnitY()).norm(), 1e-12);
  EXPECT_EQ(fibers.young_modulus_pa, 15000);
  EXPECT_EQ(fibers.poisson_ratio, 0.45);
  EXPECT_NEAR(fibers.shear_modulus_pa, 5000 / 2.9, 1e-9);
  material.mutable_fibers()->set_young_modulus_pa(100);
  ExpectRefused(spec, "bodies[0].material.fibers.poisson_ratio: 0.45 leaves");
  material.mutable_fibers()->mutable_direction()->Clear();
  ExpectRefused(spec, "bodies[0].material.fibers.direction: is zero");
}

TEST(SceneSpec, ZonesAreGroupsOfTheMesh) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  v1::TetMeshData& mesh = *body.mutable_mesh();
  for (const double x : {0., 0., 0., 1., 0., 0., 0., 1., 0., 0., 0., 1., 1., 1., 1.}) mesh.add_vertices_m(0.1 * x);
  for (const uint32_t v : {0, 1, 2, 3, 1, 2, 3, 4}) mesh.add_tets(v);
  mesh.add_tet_groups(5);
  mesh.add_tet_groups(9);
  v1::MeshGroup& named = *mesh.add_groups();
  named.set_number(9);
  named.set_name("tumour");
  v1::ZoneSpec& zone = *body.add_zones();
  zone.set_name("hard");
  zone.set_mesh_group("tumour");
  zone.mutable_material()->set_young_modulus_pa(90000);
  absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].tet_zones, (std::vector<uint16_t>{0, 1}));
  EXPECT_EQ(built->bodies[0].zones[0].material.young_modulus_pa, 90000);
  zone.set_mesh_group("5");
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].tet_zones, (std::vector<uint16_t>{1, 0})) << "by number";

  zone.set_mesh_group("liver");
  ExpectRefused(spec, "bodies[0].zones[0].mesh_group: no tet of the mesh is in a group \"liver\"; the mesh has tumour (9)");
  zone.set_mesh_group("");
  ExpectRefused(spec, "bodies[0].zones[0].mesh_group: is empty");
  zone.set_mesh_group("5");
  mesh.add_tet_groups(9);
  ExpectRefused(spec, "bodies[0].mesh.tet_groups: 3 numbers for 2 tets");
  mesh.mutable_tet_groups()->RemoveLast();
  named.set_number(0);
  ExpectRefused(spec, "bodies[0].mesh.groups[0].number: 0 is outside");
  mesh.clear_groups();
  mesh.clear_tet_groups();
  ExpectRefused(spec, "the mesh has no groups");
}

TEST(SceneSpec, ZonesHaveMaterialsOfTheirOwn) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.mutable_material()->set_young_modulus_pa(7000);
  body.mutable_color()->set_r(1);
  body.mutable_ablation()->set_energy_j_per_kg(1e6);
  body.mutable_pose()->mutable_position_m()->set_x(1);
  const auto box = [](v1::ZoneSpec& zone, double from_x, double to_x) {
    v1::Box& b = *zone.mutable_box();
    b.mutable_min_m()->set_x(from_x);
    b.mutable_min_m()->set_y(-1);
    b.mutable_min_m()->set_z(-1);
    b.mutable_max_m()->set_x(to_x);
    b.mutable_max_m()->set_y(1);
    b.mutable_max_m()->set_z(1);
  };
  v1::ZoneSpec& left = *body.add_zones();
  left.set_name("left");
  box(left, 0, 1);
  v1::ZoneSpec& tumour = *body.add_zones();
  tumour.set_name("tumour");
  box(tumour, 0.97, 1.03);
  tumour.mutable_material()->set_young_modulus_pa(90000);
  tumour.mutable_interior_color()->set_b(0.25);
  tumour.mutable_ablation()->set_cooling_time_s(5);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  const sim::BodyDescription& made = built->bodies[0];
  ASSERT_EQ(made.zones.size(), 2U);
  ASSERT_EQ(made.tet_zones.size(), made.mesh.tets.size());
  std::set<uint16_t> seen;
  for (size_t t = 0; t < made.mesh.tets.size(); ++t) {
    double x = 0;
    for (const uint32_t v : made.mesh.tets[t]) x += made.mesh.vertices[v].x() / 4;
    EXPECT_EQ(made.tet_zones[t], x >= 0.97 && x <= 1.03 ? 2 : x <= 1 ? 1 : 0) << "centroid at " << x << " m: later zones win";
    seen.insert(made.tet_zones[t]);
  }
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_EQ(made.zones[0].name, "left");
  EXPECT_EQ(made.zones[0].material.young_modulus_pa, 7000) << "as the body";
  EXPECT_EQ(made.zones[0].ablation.energy_j_per_kg, 1e6);
  EXPECT_EQ(made.zones[0].interior_color, made.interior_color);
  EXPECT_LT(made.interior_color.x(), 1) << "darker than the body";
  EXPECT_EQ(made.zones[1].material.young_modulus_pa, 90000);
  EXPECT_EQ(made.zones[1].interior_color, Eigen::Vector3f(0, 0, 0.25F));
  EXPECT_EQ(made.zones[1].ablation.energy_j_per_kg, 1e6);
  EXPECT_EQ(made.zones[1].ablation.cooling_time_s, 5);

  tumour.set_name("left");
  ExpectRefused(spec, "bodies[0].zones[1].name: \"left\" is used twice");
  tumour.set_name("");
  ExpectRefused(spec, "bodies[0].zones[1].name: a zone needs a name");
  tumour.set_name("tumour");
  tumour.mutable_ball()->set_radius_m(1e-6);
  ExpectRefused(spec, "bodies[0].zones[1].ball: holds no centroid of a tet");
  tumour.clear_region();
  ExpectRefused(spec, "bodies[0].zones[1]: no region is given; one of box, ball");
  tumour.mutable_ball()->set_radius_m(1);
  tumour.mutable_ball()->mutable_center_m()->set_x(1);
  body.set_kind(v1::BODY_KIND_RIGID);
  ExpectRefused(spec, "bodies[0].zones: only a deformable body has zones");
}

TEST(SceneSpec, LoadsAreChecked) {
  v1::SceneSpec spec = SlabScene();
  v1::LoadSpec& load = *spec.mutable_bodies(0)->add_loads();
  ExpectRefused(spec, "bodies[0].loads[0]: no region is given; one of box, ball, vertices");
  load.mutable_ball()->mutable_center_m()->set_x(0.05);
  load.mutable_ball()->set_radius_m(0.001);
  ExpectRefused(spec, "bodies[0].loads[0]: no load is given; one of pressure_pa, force_n");
  load.set_pressure_pa(100);
  ExpectRefused(spec, "bodies[0].loads[0].ball: holds no vertex");
  load.mutable_ball()->set_radius_m(0.04);
  ExpectRefused(spec, "bodies[0].loads[0].ball: no surface triangle has all of its vertices among the 2 vertices");
  load.mutable_ball()->set_radius_m(0.06);
  absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  ASSERT_EQ(built->bodies[0].loads.size(), 1U);
  const sim::LoadDescription& made = built->bodies[0].loads[0];
  EXPECT_EQ(made.pressure_pa, 100);
  EXPECT_EQ(made.force_n, Eigen::Vector3d::Zero());
  EXPECT_EQ(made.start_s, 0);
  EXPECT_TRUE(std::isinf(made.duration_s));
  ASSERT_FALSE(made.vertices.empty());
  EXPECT_LT(made.vertices.size(), built->bodies[0].mesh.vertices.size());
  for (const uint32_t v : made.vertices) EXPECT_LE((built->bodies[0].mesh.vertices[v] - Eigen::Vector3d(0.05, 0, 0)).norm(), 0.06);
  // Vertices of the middle of the body make no triangle of the surface.
  load.mutable_vertices()->add_indices(made.vertices[0]);
  ExpectRefused(spec, "bodies[0].loads[0].vertices: no surface triangle has all of its vertices among the 1 vertices of the region");
  load.mutable_box()->mutable_min_m()->set_x(0.049);
  load.mutable_box()->mutable_min_m()->set_y(-0.051);
  load.mutable_box()->mutable_min_m()->set_z(-0.02);
  load.mutable_box()->mutable_max_m()->set_x(0.051);
  load.mutable_box()->mutable_max_m()->set_y(-0.049);
  load.mutable_box()->mutable_max_m()->set_z(0.02);
  ExpectRefused(spec, "bodies[0].loads[0].box: no surface triangle");
  load.mutable_force_n()->set_x(1);
  EXPECT_TRUE(Build(spec).ok()) << "a force is spread over the vertices then";
  for (int i = 0; i < kMaxLoads; ++i) *spec.mutable_bodies(0)->add_loads() = load;
  ExpectRefused(spec, "33 loads in all exceed 32");
  spec.mutable_bodies(0)->mutable_loads()->DeleteSubrange(1, kMaxLoads);
  spec.mutable_bodies(0)->set_kind(v1::BODY_KIND_STATIC);
  spec.add_bodies()->mutable_generator()->mutable_slab();
  ExpectRefused(spec, "bodies[0].loads: only a deformable body has loads");
}

TEST(SceneSpec, FixedRegionsAreChecked) {
  v1::SceneSpec spec = SlabScene();
  v1::FixedRegion& region = *spec.mutable_bodies(0)->add_fixed();
  ExpectRefused(spec, "bodies[0].fixed[0]: no region is given");
  region.mutable_vertices();
  ExpectRefused(spec, "bodies[0].fixed[0].vertices.indices: the list is empty");
  region.mutable_vertices()->add_indices(7);
  region.mutable_vertices()->add_indices(7);
  region.mutable_vertices()->add_indices(3);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok());
  EXPECT_EQ(built->bodies[0].fixed_vertices, std::vector<uint32_t>({3, 7}));
  const size_t vertex_count = built->bodies[0].mesh.vertices.size();
  region.mutable_vertices()->add_indices(static_cast<uint32_t>(vertex_count));
  ExpectRefused(spec, absl::StrCat("bodies[0].fixed[0].vertices.indices[3]: ", vertex_count, " is outside [0, "));

  region.mutable_box()->mutable_min_m()->set_x(5);
  region.mutable_box()->mutable_max_m()->set_x(6);
  ExpectRefused(spec, "bodies[0].fixed[0].box: holds no vertex");
  region.mutable_box()->mutable_min_m()->set_x(7);
  ExpectRefused(spec, "bodies[0].fixed[0].box.min_m.x: 7 is above max_m.x = 6");
  for (v1::Vec3* low : {region.mutable_box()->mutable_min_m()}) {
    low->set_x(-1);
    low->set_y(-1);
    low->set_z(-1);
  }
  for (v1::Vec3* high : {region.mutable_box()->mutable_max_m()}) {
    high->set_x(1);
    high->set_y(1);
    high->set_z(1);
  }
  ExpectRefused(spec, "at least one must be free");
}

TEST(SceneSpec, FixedRegionsKeepTheirFreeAxes) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.clear_fixed();
  for (int r = 0; r < 2; ++r) {
    for (const uint32_t v : {3U, 7U, 8U}) body.add_fixed()->mutable_vertices()->add_indices(v + static_cast<uint32_t>(r));
  }
  // 3: plane; 7: line; 8: line and plane, of which one axis is left; 4: plane; 9: all, as nothing is free there.
  body.mutable_fixed(0)->set_free_x(true);
  body.mutable_fixed(0)->set_free_y(true);
  body.mutable_fixed(1)->set_free_z(true);
  body.mutable_fixed(2)->set_free_z(true);
  body.mutable_fixed(3)->set_free_y(true);
  body.mutable_fixed(3)->set_free_z(true);
  body.mutable_fixed(4)->set_free_y(true);
  body.mutable_fixed(4)->set_free_z(true);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].fixed_vertices, std::vector<uint32_t>({9}));
  std::vector<std::pair<uint32_t, int>> made;
  for (const sim::SlidingVertex& v : built->bodies[0].sliding_vertices) made.emplace_back(v.vertex, v.held);
  EXPECT_EQ(made, (std::vector<std::pair<uint32_t, int>>{{3, 4}, {4, 1}, {7, 3}, {8, 3}}));

  body.mutable_fixed(0)->set_free_z(true);
  ExpectRefused(spec, "bodies[0].fixed[0].free_z: the region holds nothing");
  body.mutable_fixed(0)->set_free_z(false);
  body.mutable_fixed(0)->mutable_motion();
  ExpectRefused(spec, "bodies[0].fixed[0].free_x: a region that moves cannot slide");
  body.mutable_fixed(0)->clear_motion();
  body.set_simulation(v1::SIMULATION_HYBRID);
  ExpectRefused(spec, "bodies[0].fixed[0].free_x: a support that slides needs simulation SIMULATION_DYNAMIC");
  body.clear_simulation();
  body.set_kind(v1::BODY_KIND_RIGID);
  ExpectRefused(spec, "bodies[0].fixed: only a deformable body has fixed regions");
}

TEST(SceneSpec, SurfaceZonesHoldTrianglesInReachThatFaceTheirWay) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  const auto add = [&](const std::string& name) -> v1::SurfaceZoneSpec& {
    v1::SurfaceZoneSpec& zone = *body.add_surface_zones();
    zone.set_name(name);
    zone.mutable_ball()->mutable_center_m();
    zone.mutable_ball()->set_radius_m(1);
    return zone;
  };
  add("all").mutable_color()->set_b(1);
  add("top").mutable_facing()->set_z(3);
  v1::SurfaceZoneSpec& front = add("front");
  front.mutable_facing()->set_x(1);
  front.set_max_angle_rad(0.1);
  v1::LoadSpec& load = *body.add_loads();
  load.set_surface_zone("front");
  load.set_pressure_pa(100);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  const sim::BodyDescription& made = built->bodies[0];
  ASSERT_EQ(made.surface_zones.size(), 3U);
  EXPECT_EQ(made.surface_zones[0].color, Eigen::Vector3f(0, 0, 1));
  EXPECT_EQ(made.surface_zones[1].color, made.color);
  size_t triangles = 0;
  for (size_t z = 0; z < 3; ++z) {
    for (const auto& t : made.surface_zones[z].triangles) {
      std::array<Eigen::Vector3d, 3> x;
      for (size_t c = 0; c < 3; ++c) x[c] = made.mesh.vertices[t[c]];
      const Eigen::Vector3d n = (x[1] - x[0]).cross(x[2] - x[0]).normalized();
      EXPECT_EQ(z, n.z() > 0.5 ? 1U : n.x() > 0.5 ? 2U : 0U) << n.transpose() << ": later zones win";
      ++triangles;
    }
  }
  EXPECT_EQ(triangles, sim::ExtractBoundary(made.mesh).triangles.size());
  ASSERT_EQ(made.loads.size(), 1U);
  EXPECT_EQ(made.loads[0].surface_zone, 2);
  EXPECT_TRUE(made.loads[0].vertices.empty());

  load.set_surface_zone("back");
  ExpectRefused(spec, "bodies[0].loads[0].surface_zone: \"back\" is none of the body's surface_zones: all, top, front");
  load.set_surface_zone("top");
  front.set_name("top");
  ExpectRefused(spec, "bodies[0].surface_zones[2].name: \"top\" is used twice");
  front.set_name("surface");
  ExpectRefused(spec, "bodies[0].surface_zones[2].name: \"surface\" is used twice");
  front.set_name("");
  ExpectRefused(spec, "bodies[0].surface_zones[2].name");
  front.set_name("front");
  front.mutable_facing()->set_x(0);
  ExpectRefused(spec, "bodies[0].surface_zones[2].facing: is zero");
  front.clear_facing();
  ExpectRefused(spec, "bodies[0].surface_zones[2].max_angle_rad: an angle needs a direction: facing");
  front.mutable_facing()->set_x(1);
  front.mutable_facing()->set_y(1);
  ExpectRefused(spec, "bodies[0].surface_zones[2].facing: none of the ");
  front.clear_max_angle_rad();
  front.clear_facing();
  ExpectRefused(spec, "bodies[0].surface_zones[0]: all of its triangles belong to zones after it");
  front.mutable_ball()->set_radius_m(1e-6);
  ExpectRefused(spec, "bodies[0].surface_zones[2].ball: holds no centroid of a surface triangle");
  front.clear_region();
  ExpectRefused(spec, "bodies[0].surface_zones[2]: no region is given; one of box, ball");
  body.clear_loads();
  body.clear_fixed();
  body.set_kind(v1::BODY_KIND_RIGID);
  front.mutable_ball()->set_radius_m(1);
  ExpectRefused(spec, "bodies[0].surface_zones: only a deformable body has surface zones");
}

TEST(SceneSpec, VolumesAreKeptOfDynamicBodiesOnly) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  ASSERT_TRUE(Build(spec).ok());
  EXPECT_EQ(Build(spec)->bodies[0].volume_stiffness_pa, 0);
  body.set_volume_stiffness_pa(1e9);
  ASSERT_TRUE(Build(spec).ok());
  EXPECT_EQ(Build(spec)->bodies[0].volume_stiffness_pa, 1e9);
  body.set_simulation(v1::SIMULATION_SHAPE_MATCHED);
  ExpectRefused(spec, "bodies[0].volume_stiffness_pa: only a deformable body with simulation SIMULATION_DYNAMIC keeps its volume");
  body.clear_simulation();
  body.set_volume_stiffness_pa(-1);
  ExpectRefused(spec, "bodies[0].volume_stiffness_pa: -1 is outside [0, 1e+09]");
}

TEST(SceneSpec, DynamicBodiesOfTetsMayBeNodeSmoothed) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  EXPECT_EQ(Build(spec)->bodies[0].tet_element, sim::TetElement::kLinear);
  body.set_tet_element(v1::TET_ELEMENT_NODE_SMOOTHED);
  ASSERT_TRUE(Build(spec).ok());
  EXPECT_EQ(Build(spec)->bodies[0].tet_element, sim::TetElement::kNodeSmoothed);
  body.set_simulation(v1::SIMULATION_SHAPE_MATCHED);
  ExpectRefused(spec, "bodies[0].tet_element: only a deformable body of tets with simulation SIMULATION_DYNAMIC is node-smoothed");
  body.clear_simulation();
  body.mutable_material()->set_model(v1::MATERIAL_MODEL_MASS_SPRING);
  ExpectRefused(spec, "bodies[0].material: model: springs of a node-smoothed body would have nothing to smooth");
  body.mutable_material()->set_model(v1::MATERIAL_MODEL_LINEAR);
  body.mutable_material()->mutable_fibers()->mutable_direction()->set_x(1);
  ExpectRefused(spec, "bodies[0].material: fibers: a node-smoothed body has none");
  body.clear_material();
  body.set_tet_element(static_cast<v1::TetElement>(3));
  ExpectRefused(spec, "bodies[0].tet_element: 3 is outside [0, 2]");
}

TEST(SceneSpec, FixedRegionsTakeTheirMotions) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.set_self_collision(false);
  body.mutable_velocity_m_per_s()->set_z(-2);
  spec.mutable_contact()->set_surface_friction(0);
  spec.mutable_contact()->set_check_intersections(true);
  // The two faces of the slab (0.1 x 0.1 x 0.02, edge 0.05: 3 x 3 x 2 vertices) at its ends along x.
  for (const double x : {-0.05, 0.05}) {
    v1::FixedRegion& region = *body.add_fixed();
    v1::Box& box = *region.mutable_box();
    box.mutable_min_m()->set_x(x - 0.001);
    box.mutable_max_m()->set_x(x + 0.001);
    for (const double sign : {-1.0, 1.0}) {
      v1::Vec3& corner = sign < 0 ? *box.mutable_min_m() : *box.mutable_max_m();
      corner.set_y(sign);
      corner.set_z(sign);
    }
    region.mutable_motion()->mutable_velocity_m_per_s()->set_x(x);
  }
  body.mutable_fixed(1)->mutable_motion()->mutable_center_m()->set_y(7);
  body.mutable_fixed(1)->mutable_motion()->set_start_s(0.25);
  body.mutable_fixed(1)->mutable_motion()->set_duration_s(3);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  const sim::BodyDescription& made = built->bodies[0];
  EXPECT_FALSE(made.self_collision);
  EXPECT_EQ(made.velocity_m_per_s, Eigen::Vector3d(0, 0, -2));
  EXPECT_EQ(built->contact.surface_friction, 0);
  EXPECT_TRUE(built->contact.check_intersections);
  EXPECT_EQ(made.fixed_vertices.size(), 12U);
  ASSERT_EQ(made.driven_regions.size(), 2U);
  EXPECT_EQ(made.driven_regions[0].vertices, (std::vector<uint32_t>{0, 3, 6, 9, 12, 15}));
  EXPECT_EQ(made.driven_regions[0].velocity_m_per_s, Eigen::Vector3d(-0.05, 0, 0));
  EXPECT_EQ(made.driven_regions[0].start_s, 0);
  EXPECT_EQ(made.driven_regions[0].duration_s, 1);
  // the mean of the region's vertices, unless it is given
  EXPECT_LT((made.driven_regions[0].center_m - Eigen::Vector3d(-0.05, 0, 0)).norm(), 1e-12);
  EXPECT_EQ(made.driven_regions[1].center_m, Eigen::Vector3d(0, 7, 0));
  EXPECT_EQ(made.driven_regions[1].start_s, 0.25);
  EXPECT_EQ(made.driven_regions[1].duration_s, 3);

  // Between two regions that reach into each other vertices follow both, and beyond them a part of the motion.
  v1::SceneSpec blended = spec;
  for (v1::FixedRegion& region : *blended.mutable_bodies(0)->mutable_fixed()) region.set_blend_m(0.0625);
  blended.mutable_bodies(0)->mutable_fixed(0)->set_name("left");
  blended.mutable_bodies(0)->mutable_fixed(1)->mutable_motion()->set_parent("left");
  const absl::StatusOr<sim::SceneDescription> soft = Build(blended);
  ASSERT_TRUE(soft.ok()) << soft.status();
  const std::vector<sim::DrivenRegion>& regions = soft->bodies[0].driven_regions;
  EXPECT_EQ(soft->bodies[0].fixed_vertices.size(), 18U);
  EXPECT_EQ(regions[0].vertices.size(), 12U) << "those in the middle belong to the first of equals";
  EXPECT_EQ(regions[1].vertices.size(), 6U);
  EXPECT_EQ(regions[1].parent, 0U);
  EXPECT_EQ(regions[0].blends[0].shares, (std::array<float, 4>{1, 0, 0, 0}));
  // 49 of 62.5 mm away from each box: u = 0.216 of the way, share u u (3 - 2 u) = 0.1198, and the rest of the vertex rests.
  const double u = 1 - 0.049 / 0.0625;
  const double share = u * u * (3 - 2 * u);
  EXPECT_EQ(regions[0].blends[1].regions, (std::array<uint32_t, 4>{sim::DrivenBlend::kRests, 0, 1, sim::DrivenBlend::kRests}));
  EXPECT_NEAR(regions[0].blends[1].shares[0], 1 - 2 * share, 1e-5);
  EXPECT_NEAR(regions[0].blends[1].shares[1], share, 1e-5);
  EXPECT_NEAR(regions[0].blends[1].shares[2], share, 1e-5);
  v1::SceneSpec twice = blended;
  twice.mutable_bodies(0)->mutable_fixed(1)->set_name("left");
  ExpectRefused(twice, "bodies[0].fixed[1].name");
  blended.mutable_bodies(0)->mutable_fixed(0)->mutable_motion()->set_parent("left");
  ExpectRefused(blended, "bodies[0].fixed[0].motion.parent: no region before this one with a motion is named \"left\"");
  blended.mutable_bodies(0)->mutable_fixed(0)->mutable_motion()->clear_parent();
  blended.mutable_bodies(0)->mutable_fixed(0)->set_blend_m(0.11);
  blended.mutable_bodies(0)->mutable_fixed(1)->clear_blend_m();
  ExpectRefused(blended, "too; a vertex of a region with a motion may belong to no other");
  blended = spec;
  blended.mutable_bodies(0)->mutable_fixed(0)->mutable_motion()->set_period_s(2);
  ExpectRefused(blended, "bodies[0].fixed[0].motion.period_s: only a motion with keys has it");
  blended.mutable_bodies(0)->mutable_fixed(0)->set_figure_part("torso");
  blended.mutable_bodies(0)->mutable_fixed(0)->mutable_motion()->clear_period_s();
  ExpectRefused(blended, "bodies[0].fixed[0].figure_part: only a body with shell.figure has parts");

  body.add_fixed()->mutable_vertices()->add_indices(3);
  ExpectRefused(spec, "bodies[0].fixed[2]: vertex 3 belongs to bodies[0].fixed[0] too");
  body.mutable_fixed(0)->clear_motion();
  EXPECT_TRUE(Build(spec).ok());  // regions that rest may share vertices
  body.mutable_fixed(2)->mutable_motion();
  ExpectRefused(spec, "a vertex of a region with a motion may belong to no other");
  body.mutable_fixed(2)->mutable_motion()->set_duration_s(0);
  ExpectRefused(spec, "bodies[0].fixed[2].motion.duration_s: 0 is outside (0, 3600]");
}

TEST(SceneSpec, ShapeMatchingIsOfShapeMatchedBodiesOnly) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  v1::ShapeMatchingSpec& shape = *body.mutable_shape_matching();
  ExpectRefused(spec, "bodies[0].shape_matching: only a shape-matched body has it");
  body.set_simulation(v1::SIMULATION_SHAPE_MATCHED);
  absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].simulation, sim::Simulation::kShapeMatched);
  EXPECT_EQ(built->bodies[0].shape_matching.mode, sim::ShapeMode::kLinear);
  EXPECT_LT(built->bodies[0].shape_matching.beta, 0);
  EXPECT_EQ(built->bodies[0].shape_matching.cluster_size_m, 0);
  EXPECT_TRUE(built->bodies[0].shape_matching.keeps_volume);

  shape.set_mode(v1::SHAPE_MODE_QUADRATIC);
  shape.set_beta(0.25);
  shape.set_cluster_size_m(0.125);
  shape.set_keep_volume(false);
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].shape_matching.mode, sim::ShapeMode::kQuadratic);
  EXPECT_EQ(built->bodies[0].shape_matching.beta, 0.25);
  EXPECT_EQ(built->bodies[0].shape_matching.cluster_size_m, 0.125);
  EXPECT_FALSE(built->bodies[0].shape_matching.keeps_volume);

  shape.set_beta(0.96);
  ExpectRefused(spec, "bodies[0].shape_matching.beta");
  shape.set_beta(std::nan(""));
  ExpectRefused(spec, "bodies[0].shape_matching.beta");
  shape.set_beta(0.5);
  shape.set_cluster_size_m(0);
  ExpectRefused(spec, "bodies[0].shape_matching.cluster_size_m");
  shape.set_cluster_size_m(101);
  ExpectRefused(spec, "bodies[0].shape_matching.cluster_size_m");
  shape.clear_cluster_size_m();
  shape.set_mode(v1::SHAPE_MODE_RIGID);
  ExpectRefused(spec, "bodies[0].shape_matching.beta: 0.5, but clusters that are rigid do not deform");
  shape.set_mode(static_cast<v1::ShapeMode>(7));
  ExpectRefused(spec, "bodies[0].shape_matching.mode: 7 is outside [0, 3]");
  shape.clear_mode();
  body.mutable_material()->set_model(v1::MATERIAL_MODEL_COROTATED_LINEAR);
  ExpectRefused(spec, "bodies[0].material.model: a shape-matched body has no elastic model");
  body.clear_material();
  body.set_simulation(static_cast<v1::Simulation>(9));
  ExpectRefused(spec, "bodies[0].simulation: 9 is outside [0, 4]");
  body.set_simulation(v1::SIMULATION_SHAPE_MATCHED);
  body.set_kind(v1::BODY_KIND_RIGID);
  ExpectRefused(spec, "bodies[0].simulation: only a deformable body can be shape-matched");
}

TEST(SceneSpec, KindsOfBodiesDecideWhatTheyMayHave) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& floor = *spec.add_bodies();
  floor.mutable_generator()->mutable_slab();
  floor.mutable_pose()->mutable_position_m()->set_z(-1);
  floor.set_kind(v1::BODY_KIND_STATIC);
  v1::BodySpec& stone = *spec.add_bodies();
  stone.mutable_generator()->mutable_slab();
  stone.mutable_pose()->mutable_position_m()->set_z(1);
  stone.set_kind(v1::BODY_KIND_RIGID);
  stone.mutable_velocity_m_per_s()->set_x(0.5);
  stone.mutable_angular_velocity_rad_per_s()->set_z(3);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].kind, sim::BodyKind::kDeformable);
  EXPECT_TRUE(built->bodies[0].self_collision);
  EXPECT_EQ(built->bodies[1].kind, sim::BodyKind::kStatic);
  EXPECT_FALSE(built->bodies[1].self_collision);
  EXPECT_EQ(built->bodies[2].kind, sim::BodyKind::kRigid);
  EXPECT_EQ(built->bodies[2].velocity_m_per_s, Eigen::Vector3d(0.5, 0, 0));
  EXPECT_EQ(built->bodies[2].angular_velocity_rad_per_s, Eigen::Vector3d(0, 0, 3));

  floor.mutable_velocity_m_per_s()->set_x(1);
  ExpectRefused(spec, "bodies[1].velocity_m_per_s: a static body does not move");
  floor.clear_velocity_m_per_s();
  stone.set_self_collision(true);
  ExpectRefused(spec, "bodies[2].self_collision: only a deformable body can meet itself");
  stone.clear_self_collision();
  stone.add_fixed()->mutable_vertices()->add_indices(0);
  ExpectRefused(spec, "bodies[2].fixed: only a deformable body has fixed regions");
  stone.clear_fixed();
  spec.mutable_bodies(0)->mutable_angular_velocity_rad_per_s()->set_x(1);
  ExpectRefused(spec, "bodies[0].angular_velocity_rad_per_s: only a rigid body starts to turn");
  spec.mutable_bodies(0)->clear_angular_velocity_rad_per_s();
  stone.set_kind(static_cast<v1::BodyKind>(9));
  ExpectRefused(spec, "bodies[2].kind: 9 is outside [0, 3]");
  for (v1::BodySpec& body : *spec.mutable_bodies()) {
    body.clear_fixed();
    body.clear_velocity_m_per_s();
    body.clear_angular_velocity_rad_per_s();
    body.set_kind(v1::BODY_KIND_STATIC);
  }
  ExpectRefused(spec, "bodies: all bodies are static");
}

TEST(SceneSpec, PrecomputedAndHybridBodiesMustBeHeld) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.clear_fixed();
  body.clear_velocity_m_per_s();
  body.clear_loads();
  ASSERT_TRUE(Build(spec).ok());
  EXPECT_EQ(Build(spec)->bodies[0].simulation, sim::Simulation::kDynamic);
  body.set_simulation(v1::SIMULATION_PRECOMPUTED);
  ExpectRefused(spec, "bodies[0].fixed: a pre-computed or hybrid body needs regions that hold it");
  v1::FixedRegion& region = *body.add_fixed();
  for (uint32_t v = 0; v < 6; ++v) region.mutable_vertices()->add_indices(v);
  for (const auto& [given, expected] : {std::pair(v1::SIMULATION_PRECOMPUTED, sim::Simulation::kPrecomputed),
                                        {v1::SIMULATION_HYBRID, sim::Simulation::kHybrid},
                                        {v1::SIMULATION_DYNAMIC, sim::Simulation::kDynamic}}) {
    body.set_simulation(given);
    const absl::StatusOr<sim::SceneDescription> built = Build(spec);
    ASSERT_TRUE(built.ok()) << built.status();
    EXPECT_EQ(built->bodies[0].simulation, expected);
  }
  body.set_simulation(v1::SIMULATION_HYBRID);
  body.mutable_velocity_m_per_s()->set_x(1);
  ExpectRefused(spec, "bodies[0].velocity_m_per_s: a velocity needs simulation SIMULATION_DYNAMIC");
  body.clear_velocity_m_per_s();
  region.mutable_motion()->set_duration_s(1);
  ExpectRefused(spec, "bodies[0].fixed: a region that moves needs simulation SIMULATION_DYNAMIC");
  region.clear_motion();
  v1::LoadSpec& load = *body.add_loads();
  load.mutable_vertices()->add_indices(9);
  load.set_pressure_pa(10);
  ExpectRefused(spec, "bodies[0].loads: a load needs simulation SIMULATION_DYNAMIC");
  body.clear_loads();
  body.clear_fixed();
  body.set_kind(v1::BODY_KIND_RIGID);
  ExpectRefused(spec, "bodies[0].simulation: only a deformable body can be pre-computed or hybrid");
}

TEST(SceneSpec, ArraysOfBodiesBecomeNumberedBodies) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.add_bodies();
  body.set_name("brick");
  body.mutable_generator()->mutable_slab();
  body.set_kind(v1::BODY_KIND_RIGID);
  body.mutable_pose()->mutable_position_m()->set_z(2);
  body.mutable_array()->set_count_x(3);
  body.mutable_array()->set_count_z(2);
  body.mutable_array()->mutable_spacing_m()->set_x(0.5);
  body.mutable_array()->mutable_spacing_m()->set_z(0.25);
  absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  ASSERT_EQ(built->bodies.size(), 7U);
  const auto center = [&](size_t b) {
    Eigen::Vector3d sum = Eigen::Vector3d::Zero();
    for (const Eigen::Vector3d& v : built->bodies[b].mesh.vertices) sum += v;
    return Eigen::Vector3d(sum / static_cast<double>(built->bodies[b].mesh.vertices.size()));
  };
  EXPECT_EQ(built->bodies[1].name, "brick0");
  EXPECT_LT((center(1) - Eigen::Vector3d(-0.5, 0, 1.875)).norm(), 1e-9);
  EXPECT_LT((center(2) - Eigen::Vector3d(0, 0, 1.875)).norm(), 1e-9);
  EXPECT_EQ(built->bodies[6].name, "brick5");
  EXPECT_LT((center(6) - Eigen::Vector3d(0.5, 0, 2.125)).norm(), 1e-9);

  body.mutable_array()->set_turned(true);
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_LT((center(6) - Eigen::Vector3d(0.5, 0, 2.125)).norm(), 1e-9) << "turned about its own place";
  const auto first_edge = [&](size_t b) {
    return Eigen::Vector3d((built->bodies[b].mesh.vertices[1] - built->bodies[b].mesh.vertices[0]).normalized());
  };
  EXPECT_LT(first_edge(1).dot(first_edge(2)), 0.99);
  EXPECT_LT(first_edge(1).dot(first_edge(5)), 0.99);

  spec.mutable_bodies(0)->set_name("brick4");
  ExpectRefused(spec, "brick4");
  spec.mutable_bodies(0)->clear_name();
  body.mutable_array()->set_count_y(0);
  ExpectRefused(spec, "bodies[1].array.count_y: 0 is outside [1, 1024]");
  body.mutable_array()->set_count_y(1024);
  ExpectRefused(spec, "max_bodies_per_scene", absl::StatusCode::kResourceExhausted);
}

TEST(SceneSpec, MarkersAreChecked) {
  // A slab of 0.1 x 0.1 x 0.02 m, turned a quarter about z and moved.
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.mutable_pose()->mutable_position_m()->set_x(1);
  body.mutable_pose()->mutable_rotation()->set_w(1);
  body.mutable_pose()->mutable_rotation()->set_z(1);
  const auto add = [&body](const std::string& name, const Eigen::Vector3d& at_m) {
    v1::MarkerSpec& marker = *body.add_markers();
    marker.set_name(name);
    marker.mutable_position_m()->set_x(at_m.x());
    marker.mutable_position_m()->set_y(at_m.y());
    marker.mutable_position_m()->set_z(at_m.z());
  };
  add("deep", {1.02, -0.03, 0.004});
  add("top", {1.02, -0.03, 0.01 + 9e-5});
  absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  const std::vector<sim::MarkerDescription>& markers = built->bodies[0].markers;
  ASSERT_EQ(markers.size(), 2U);
  EXPECT_EQ(markers[0].name, "deep");
  EXPECT_EQ(markers[0].position_m, Eigen::Vector3d(1.02, -0.03, 0.004));
  EXPECT_LT((markers[1].position_m - Eigen::Vector3d(1.02, -0.03, 0.01)).norm(), 1e-12);
  for (const sim::MarkerDescription& marker : markers) {
    ASSERT_LT(marker.cell, built->bodies[0].mesh.tets.size());
    Eigen::AlignedBox3d box;
    for (const uint32_t v : built->bodies[0].mesh.tets[marker.cell]) box.extend(built->bodies[0].mesh.vertices[v]);
    EXPECT_LT(box.exteriorDistance(marker.position_m), 1e-9) << marker.name;
  }

  add("off", {1.02, -0.03, 0.0102});
  ExpectRefused(spec,
                "bodies[0].markers[2].position_m: (1.02, -0.03, 0.0102) lies 0.0002 m outside the body; a marker is put on the "
                "surface from at most 0.0001 m (0.001 of its extent)");
  body.mutable_markers(2)->mutable_position_m()->set_z(0.01);
  EXPECT_TRUE(Build(spec).ok());
  body.mutable_markers(2)->set_name("deep");
  ExpectRefused(spec, "bodies[0].markers[2].name: \"deep\" is used twice");
  body.mutable_markers(2)->set_name("");
  ExpectRefused(spec, "bodies[0].markers[2].name: is empty");
  body.mutable_markers(2)->set_name(std::string(65, 'm'));
  ExpectRefused(spec, "bodies[0].markers[2].name: 65 bytes are outside [0, 64]");
  body.mutable_markers(2)->set_name("third");
  body.mutable_markers(2)->mutable_position_m()->set_z(101);
  ExpectRefused(spec, "bodies[0].markers[2].position_m.z: 101 is outside [-100, 100]");
  body.mutable_markers(2)->mutable_position_m()->set_z(0);
  for (const v1::BodyKind kind : {v1::BODY_KIND_RIGID, v1::BODY_KIND_STATIC}) {
    body.set_kind(kind);
    v1::SceneSpec other = spec;
    if (kind == v1::BODY_KIND_STATIC) other.add_bodies()->mutable_generator()->mutable_slab();  // a scene needs one that moves
    ExpectRefused(other, "bodies[0].markers: only a deformable body has markers");
  }
  body.set_kind(v1::BODY_KIND_DEFORMABLE);

  // Copies have theirs at the same places of the material, however they are turned.
  body.mutable_array()->set_count_x(2);
  body.mutable_array()->set_count_y(3);
  body.mutable_array()->mutable_spacing_m()->set_x(0.3);
  body.mutable_array()->mutable_spacing_m()->set_y(0.3);
  body.mutable_array()->set_turned(true);
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  ASSERT_EQ(built->bodies.size(), 6U);
  for (const sim::BodyDescription& copy : built->bodies) {
    ASSERT_EQ(copy.markers.size(), 3U);
    for (size_t m = 0; m < 3; ++m) {
      for (const size_t v : {size_t{0}, size_t{1}, copy.mesh.vertices.size() - 1}) {
        EXPECT_NEAR((copy.markers[m].position_m - copy.mesh.vertices[v]).norm(),
                    (built->bodies[0].markers[m].position_m - built->bodies[0].mesh.vertices[v]).norm(), 1e-12);
      }
    }
  }
  EXPECT_GT((built->bodies[0].markers[0].position_m - built->bodies[1].markers[0].position_m).norm(), 0.1);
  for (int m = 3; m < 700; ++m) add(absl::StrCat("m", m), {1, 0, 0});
  ExpectRefused(spec, "bodies: 4200 markers in all exceed 4096");
}

TEST(SceneSpec, ShapesOfTheGeneratorAreMade) {
  v1::SceneSpec spec = SlabScene();
  v1::GeneratorSpec& generator = *spec.mutable_bodies(0)->mutable_generator();
  generator.clear_edge_length_m();
  generator.mutable_knot()->set_open(true);
  absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].mesh.vertices, sim::GenerateKnot(sim::KnotEnds::kOpen)->vertices);
  generator.mutable_knot()->set_open(false);
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].mesh.vertices, sim::GenerateKnot(sim::KnotEnds::kClosed)->vertices);
  generator.mutable_knot()->set_tube_radius_m(0.0221);
  ExpectRefused(spec, "bodies[0].generator.knot.tube_radius_m: 0.0221 is outside [0.001, 0.022]");
  generator.mutable_knot()->set_tube_radius_m(0.02);
  generator.set_edge_length_m(0.0201);
  ExpectRefused(spec, "bodies[0].generator.edge_length_m: 0.0201 is outside [0.001, 0.02]");
  generator.clear_edge_length_m();
  generator.mutable_kidney();
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].mesh.vertices, sim::GenerateKidney()->vertices);
  generator.mutable_sheet();
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].mesh.vertices, sim::GenerateSheet()->vertices);
  generator.mutable_sheet()->set_thickness_m(0.3);
  ExpectRefused(spec, "bodies[0].generator.sheet.thickness_m: 0.3 is outside [0.0001, 0.1]");
  // flat cells are counted by area and layers
  generator.mutable_sheet()->set_thickness_m(0.004);
  generator.mutable_sheet()->set_layer_count(16);
  generator.set_edge_length_m(0.001);
  SceneLimits limits;
  limits.max_tets_per_scene = 1'000'000;
  EXPECT_EQ(ValidateSceneSpec(spec, limits).code(), absl::StatusCode::kResourceExhausted);
}

TEST(SceneSpec, NamesMustBeUniqueAndShort) {
  v1::SceneSpec spec = SlabScene();
  *spec.add_bodies() = spec.bodies(0);
  spec.mutable_bodies(0)->set_name("body1");  // the default name of the second
  ExpectRefused(spec, "bodies[1].name: \"body1\" is used twice");
  spec = SlabScene();
  spec.mutable_bodies(0)->set_name(std::string(65, 'x'));
  ExpectRefused(spec, "bodies[0].name: 65 bytes are outside [0, 64]");
  spec.mutable_bodies(0)->set_name("two\nlines");
  ExpectRefused(spec, "bodies[0].name: holds the control character 10");
  spec = SlabScene();
  spec.add_tools();
  ExpectRefused(spec, "tools[0].name: a tool needs a name");
  spec.mutable_tools(0)->set_name("a");
  spec.add_tools()->set_name("a");
  ExpectRefused(spec, "tools[1].name: \"a\" is used twice");
  spec = SlabScene();
  spec.set_name(std::string(129, 'x'));
  ExpectRefused(spec, "name: 129 bytes");
}

TEST(SceneSpec, MissingChoicesAreRefused) {
  v1::SceneSpec spec;
  ExpectRefused(spec, "bodies: a scene needs at least one body");
  spec.add_bodies();
  ExpectRefused(spec, "bodies[0]: no geometry is given");
  spec.mutable_bodies(0)->mutable_generator();
  ExpectRefused(spec, "bodies[0].generator: no shape is given");
  spec = SlabScene();
  spec.add_obstacles();
  ExpectRefused(spec, "obstacles[0]: no shape is given");
  spec = SlabScene();
  spec.add_obstacles()->mutable_sphere();
  ExpectRefused(spec, "obstacles[0].sphere.radius_m: 0 is outside (0, 10]");
}

TEST(SceneSpec, LimitsAreResourceExhaustedAndNamed) {
  SceneLimits limits;
  limits.max_bodies_per_scene = 1;
  v1::SceneSpec spec = SlabScene();
  spec.add_bodies()->mutable_generator()->mutable_slab();
  absl::Status status = Build(spec, limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_bodies_per_scene = 1"));

  // Counted over all bodies: each alone would fit.
  limits = {};
  const absl::StatusOr<sim::SceneDescription> one = Build(SlabScene());
  ASSERT_TRUE(one.ok());
  limits.max_tets_per_scene = one->bodies[0].mesh.tets.size() + 1;
  spec = SlabScene();
  *spec.add_bodies() = spec.bodies(0);
  status = Build(spec, limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_tets_per_scene = "));

  // A hopeless generator is refused before it works.
  spec = SlabScene();
  spec.mutable_bodies(0)->mutable_generator()->mutable_sphere();
  spec.mutable_bodies(0)->mutable_generator()->set_edge_length_m(0.1 / 200);
  status = Build(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("bodies[0].generator.edge_length_m"), HasSubstr("max_tets_per_scene")));
}

TEST(SceneSpec, InlineMeshesAreChecked) {
  v1::SceneSpec spec;
  v1::TetMeshData& mesh = *spec.add_bodies()->mutable_mesh();
  ExpectRefused(spec, "bodies[0].mesh.tets: no tetrahedron is given");
  SetSingleTet(mesh);
  ASSERT_TRUE(Build(spec).ok());
  mesh.set_tets(2, 4);
  ExpectRefused(spec, "bodies[0].mesh.tets[2]: 4 is outside [0, 3]");
  mesh.set_tets(2, 1);
  ExpectRefused(spec, "bodies[0].mesh");  // a repeated vertex
  mesh.set_tets(2, 3);
  mesh.set_tets(3, 2);
  ExpectRefused(spec, "bodies[0].mesh");  // inverted
  mesh.add_tets(0);
  ExpectRefused(spec, "bodies[0].mesh.tets: 5 numbers are not a multiple of 4");
  mesh.add_vertices_m(0);
  ExpectRefused(spec, "bodies[0].mesh.vertices_m: 13 numbers are not a multiple of 3");
}

TEST(SceneSpec, TexturesAreProjected) {
  constexpr double kTurn = 2 * std::numbers::pi;
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.set_scale(2);
  body.mutable_pose()->mutable_position_m()->set_x(3);
  body.mutable_pose()->mutable_rotation()->set_z(1);
  EXPECT_TRUE(Build(spec)->bodies[0].texture.coordinates.empty());

  // Planar: in the frame of the mesh, after the scale.
  v1::TextureSpec& texture = *body.mutable_texture();
  texture.set_pattern(v1::TEXTURE_PATTERN_CHECKER);
  texture.set_tile_size_m(0.03);
  v1::PlanarProjection& planar = *texture.mutable_planar();
  planar.mutable_origin_m()->set_y(0.01);
  planar.mutable_u_direction()->set_x(1);
  planar.mutable_u_direction()->set_y(1);
  planar.mutable_v_direction()->set_y(-5);
  absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  const auto mesh_point = [&body](const sim::BodyDescription& b, size_t v) {  // half a turn about z undone
    const Eigen::Vector3d p = b.mesh.vertices[v] - ToEigen(body.pose().position_m());
    return Eigen::Vector3d(-p.x(), -p.y(), p.z());
  };
  {
    const sim::BodyDescription& b = built->bodies[0];
    EXPECT_EQ(b.texture.pattern, sim::TexturePattern::kChecker);
    EXPECT_EQ(b.texture.u_period, 0);
    ASSERT_EQ(b.texture.coordinates.size(), b.mesh.vertices.size());
    for (size_t v = 0; v < b.mesh.vertices.size(); ++v) {
      const Eigen::Vector3d p = mesh_point(b, v);
      EXPECT_NEAR(b.texture.coordinates[v][0], (p.x() + p.y() - 0.01) / std::sqrt(2.0) / 0.03, 1e-5);
      EXPECT_NEAR(b.texture.coordinates[v][1], -(p.y() - 0.01) / 0.03, 1e-5);
    }
  }

  // About an axis: a whole number of tiles around, so that the pattern goes on across the seam.
  for (const bool is_sphere : {false, true}) {
    v1::Vec3* center = nullptr;
    if (is_sphere) {
      center = texture.mutable_spherical()->mutable_center_m();
    } else {
      center = texture.mutable_cylindrical()->mutable_center_m();
    }
    center->set_z(0.005);
    built = Build(spec);
    ASSERT_TRUE(built.ok()) << built.status();
    const sim::BodyDescription& b = built->bodies[0];
    const std::vector<uint32_t> surface = sim::ExtractBoundary(b.mesh).vertices;
    double radius_m = 0;
    for (const uint32_t v : surface) {
      const Eigen::Vector3d p = mesh_point(b, v) - Eigen::Vector3d(0, 0, 0.005);
      radius_m += (is_sphere ? p.norm() : std::hypot(p.x(), p.y())) / static_cast<double>(surface.size());
    }
    EXPECT_EQ(b.texture.u_period, std::round(kTurn * radius_m / 0.03));
    EXPECT_GE(b.texture.u_period, 5);
    std::set<int> quarters;
    for (size_t v = 0; v < b.mesh.vertices.size(); ++v) {
      const Eigen::Vector3d p = mesh_point(b, v) - Eigen::Vector3d(0, 0, 0.005);
      const auto [u, w] = b.texture.coordinates[v];
      ASSERT_GE(u, 0);
      ASSERT_LT(u, b.texture.u_period);
      quarters.insert(static_cast<int>(4 * u / b.texture.u_period));
      if (std::hypot(p.x(), p.y()) > 1e-6) {
        const double angle = kTurn * u / b.texture.u_period;
        EXPECT_NEAR(std::cos(angle), p.x() / std::hypot(p.x(), p.y()), 1e-5);
        EXPECT_NEAR(std::sin(angle), p.y() / std::hypot(p.x(), p.y()), 1e-5);
      }
      EXPECT_NEAR(w, (is_sphere ? radius_m * std::asin(p.z() / p.norm()) : p.z()) / 0.03, 1e-5);
    }
    EXPECT_EQ(quarters.size(), 4U);
  }

  // A default for everything: middle of the box, tiles of 50 mm, the angle from y where the axis is x.
  texture.clear_tile_size_m();
  texture.mutable_cylindrical()->mutable_axis()->set_x(0.3);
  built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  for (size_t v = 0; v < built->bodies[0].mesh.vertices.size(); ++v) {
    const Eigen::Vector3d p = mesh_point(built->bodies[0], v);
    EXPECT_NEAR(built->bodies[0].texture.coordinates[v][1], p.x() / 0.05, 1e-5);
    const double angle = kTurn * built->bodies[0].texture.coordinates[v][0] / built->bodies[0].texture.u_period;
    if (std::hypot(p.y(), p.z()) > 1e-6) {
      EXPECT_NEAR(std::cos(angle), p.y() / std::hypot(p.y(), p.z()), 1e-5);
    }
  }
}

TEST(SceneSpec, TexturesAreChecked) {
  v1::SceneSpec spec = SlabScene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  v1::TextureSpec& texture = *body.mutable_texture();
  ExpectRefused(
      spec, "bodies[0].texture: the mesh has no texture coordinates; one of planar, cylindrical, spherical, box, surface_file is needed");
  texture.set_tile_size_m(0.01);
  ExpectRefused(spec, "bodies[0].texture.tile_size_m: is of a projection, and none is given");
  texture.mutable_planar()->mutable_u_direction();
  ExpectRefused(spec, "bodies[0].texture.planar.u_direction: is zero");
  texture.mutable_planar()->mutable_u_direction()->set_y(-2);
  ExpectRefused(spec, "bodies[0].texture.planar.v_direction: runs along u_direction");
  texture.mutable_spherical()->mutable_axis();
  ExpectRefused(spec, "bodies[0].texture.spherical.axis: is zero");
  texture.mutable_cylindrical()->mutable_axis()->set_z(std::numeric_limits<double>::quiet_NaN());
  ExpectRefused(spec, "bodies[0].texture.cylindrical.axis.z: nan is not finite");
  texture.mutable_planar()->mutable_origin_m()->set_x(99);
  texture.set_tile_size_m(1e-4);
  ASSERT_TRUE(Build(spec).ok());
  texture.mutable_planar()->mutable_origin_m()->set_x(100);
  ExpectRefused(spec, "bodies[0].texture.planar: a vertex lies ");

  // Of the mesh.
  body.Clear();
  v1::TetMeshData& mesh = *body.mutable_mesh();
  SetSingleTet(mesh);
  for (int i = 0; i < 7; ++i) mesh.add_texture_coordinates(0.25 * i);
  ExpectRefused(spec, "bodies[0].mesh.texture_coordinates: 7 numbers for 4 vertices, must be two for each or none");
  mesh.add_texture_coordinates(std::numeric_limits<double>::infinity());
  ExpectRefused(spec, "bodies[0].mesh.texture_coordinates[7]: inf is outside [-1e+06, 1e+06]");
  mesh.set_texture_coordinates(7, -3);
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);  // also where the body says nothing of a texture
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].texture.coordinates[3], (std::array<float, 2>{1.5F, -3.0F}));
  body.mutable_texture()->set_pattern(v1::TEXTURE_PATTERN_FAT);
  ASSERT_TRUE(Build(spec).ok());
  body.mutable_texture()->mutable_planar();
  ExpectRefused(spec, "bodies[0].texture.planar: a projection, but bodies[0].mesh.texture_coordinates are given too");
}

TEST(SceneSpec, MeshesThatEndUpFarAwayAreRefused) {
  v1::SceneSpec spec = SlabScene();
  spec.mutable_bodies(0)->set_scale(1e6);
  ExpectRefused(spec, "after scale and pose");
}

TEST(SceneSpec, TooManyToolsObstaclesAndRegionsAreRefused) {
  v1::SceneSpec spec = SlabScene();
  for (int i = 0; i < 9; ++i) spec.add_tools()->set_name(std::to_string(i));
  ExpectRefused(spec, "tools: 9 entries are outside [0, 8]");
  spec = SlabScene();
  for (int i = 0; i <= kMaxObstacles; ++i) spec.add_obstacles()->mutable_plane();
  ExpectRefused(spec, "obstacles: 257 entries are outside [0, 256]");
  spec = SlabScene();
  spec.clear_tools();
  for (int i = 0; i <= kMaxCapsules; ++i) spec.add_obstacles()->mutable_sphere()->set_radius_m(0.01);
  ExpectRefused(spec, "obstacles: 33 spheres and capsules with 0 tools (0 capsules) exceed 32 in all");
  spec = SlabScene();
  for (int i = 0; i <= kMaxFixedRegions; ++i) spec.mutable_bodies(0)->add_fixed()->mutable_vertices()->add_indices(0);
  ExpectRefused(spec, "bodies[0].fixed: 257 entries are outside [0, 256]");
}

TEST(SceneSpec, DamagedBytesNeverCrash) {
  std::mt19937 random(20);
  SceneLimits limits;
  limits.max_tets_per_scene = 3000;
  std::vector<std::string> seeds;
  for (const v1::SceneSpec& spec : FullSpecs()) {
    // Meshing a figure takes a good part of a second.
    if (!spec.bodies(0).shell().has_figure() && !spec.bodies(0).shell().has_dress()) seeds.push_back(spec.SerializeAsString());
  }
  int parsed = 0;
  int built = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = seeds[random() % seeds.size()];
    for (int flips = static_cast<int>(random() % 4); flips >= 0; --flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    v1::SceneSpec spec;
    if (!spec.ParseFromString(bytes)) continue;
    ++parsed;
    const absl::StatusOr<sim::SceneDescription> description = Build(spec, limits);
    if (!description.ok()) {
      EXPECT_FALSE(description.status().message().empty());
      continue;
    }
    ++built;
    for (const sim::BodyDescription& body : description->bodies) {
      if (body.shell) {
        EXPECT_FALSE(body.shell->triangles.empty());
        for (const auto& triangle : body.shell->triangles)
          EXPECT_LT(*std::max_element(triangle.begin(), triangle.end()), body.mesh.vertices.size());
        continue;
      }
      EXPECT_TRUE(body.nurbs != nullptr ? body.kind == sim::BodyKind::kStatic || body.nurbs->is_closed
                                        : sim::ValidateTetMesh(body.mesh).ok());
    }
  }
  // The damage must reach both sides of the checks to be worth anything.
  EXPECT_GT(parsed, 100);
  EXPECT_GT(built, 10);
  EXPECT_LT(built, parsed);
}

TEST(SceneJson, RoundTripsAndNamesMistakes) {
  const absl::StatusOr<v1::SceneSpec> spec =
      ParseSceneJson(R"({"name":"a","bodies":[{"generator":{"slab":{},"edge_length_m":0.05}}]})", "a.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->bodies(0).generator().edge_length_m(), 0.05);

  absl::Status status = ParseSceneJson(R"({"bodies":[{"materiel":{}}]})", "typo.json").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("typo.json"), HasSubstr("materiel")));
  EXPECT_FALSE(ParseSceneJson("{", "x").ok());
  EXPECT_FALSE(ParseSceneJson("", "x").ok());
  EXPECT_FALSE(ParseSceneJson("[]", "x").ok());
  EXPECT_FALSE(ParseSceneJson(R"({"dt_s":"fast"})", "x").ok());
  EXPECT_FALSE(ParseSceneJson(R"({"solver":{"iterations":-1}})", "x").ok());
  EXPECT_FALSE(ParseSceneJson(std::string(100000, '['), "deep").ok());
  // JSON spells these as strings; the ranges refuse them.
  const absl::StatusOr<v1::SceneSpec> nan = ParseSceneJson(R"({"dt_s":"NaN","bodies":[{"generator":{"slab":{}}}]})", "x");
  ASSERT_TRUE(nan.ok());
  ExpectRefused(*nan, "dt_s: nan is outside [0.0001, 0.1]");
}

class MeshFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("palpate_assets_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / "root" / "sub");
    const absl::StatusOr<sim::TetMesh> mesh = sim::GenerateSlab({0.1, 0.1, 0.1}, 0.05);
    ASSERT_TRUE(mesh.ok());
    ASSERT_TRUE(sim::WriteMsh(*mesh, folder_ / "root" / "sub" / "slab.msh").ok());
    ASSERT_TRUE(sim::WriteMsh(*mesh, folder_ / "outside.msh").ok());
    std::filesystem::create_symlink(folder_ / "outside.msh", folder_ / "root" / "link.msh");
    std::filesystem::create_symlink(folder_, folder_ / "root" / "up");
    std::filesystem::create_symlink("sub/slab.msh", folder_ / "root" / "inner.msh");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::Status TryFile(const std::string& name) {
    v1::SceneSpec spec;
    spec.add_bodies()->set_mesh_file(name);
    return BuildSceneDescription(spec, AssetRootResolver(folder_ / "root"), {}).status();
  }

  std::filesystem::path folder_;
};

TEST_F(MeshFiles, OnlyFilesInsideTheRootAreRead) {
  EXPECT_TRUE(TryFile("sub/slab.msh").ok()) << TryFile("sub/slab.msh");
  EXPECT_TRUE(TryFile("inner.msh").ok());
  for (const std::string& name :
       {std::string("../outside.msh"), std::string("sub/../../outside.msh"), (folder_ / "outside.msh").string(), std::string("link.msh"),
        std::string("up/outside.msh"), std::string("sub"), std::string("."), std::string("none.msh"), std::string("sub/slab.msh\0.txt", 17),
        std::string("/etc/passwd"), std::string(2000, 'a')}) {
    const absl::Status status = TryFile(name);
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("bodies[0].mesh_file"));
  }
}

TEST_F(MeshFiles, ErrorsDoNotShowWhereTheRootLies) {
  std::ofstream(folder_ / "root" / "bad.msh") << "not a mesh";
  const absl::Status status = TryFile("bad.msh");
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("bad.msh"));
  EXPECT_EQ(std::string(status.message()).find(folder_.string()), std::string::npos) << status;
}

TEST_F(MeshFiles, WithoutARootEveryFileIsRefused) {
  v1::SceneSpec spec;
  spec.add_bodies()->set_mesh_file("sub/slab.msh");
  const absl::Status status = BuildSceneDescription(spec, AssetRootResolver(""), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--asset-root"));
}

TEST_F(MeshFiles, SceneFolderResolverIsRelativeToTheScene) {
  v1::SceneSpec spec;
  spec.add_bodies()->set_mesh_file("../outside.msh");
  EXPECT_TRUE(BuildSceneDescription(spec, SceneFolderResolver(folder_ / "root"), {}).ok());
  spec.mutable_bodies(0)->set_mesh_file("missing.msh");
  EXPECT_EQ(BuildSceneDescription(spec, SceneFolderResolver(folder_ / "root"), {}).status().code(), absl::StatusCode::kNotFound);
}

v1::SceneSpec WithInstrument(v1::InstrumentKind kind) {
  v1::SceneSpec spec;
  spec.add_bodies()->mutable_generator()->mutable_slab();
  spec.mutable_bodies(0)->mutable_generator()->set_edge_length_m(0.05);
  v1::ToolSpec& tool = *spec.add_tools();
  tool.set_name("t");
  tool.mutable_instrument()->set_kind(kind);
  return spec;
}

TEST(ToolSpec, InstrumentsAndTrocarsAreBuilt) {
  v1::SceneSpec spec = WithInstrument(v1::INSTRUMENT_KIND_FORCEPS);
  v1::InstrumentSpec& forceps = *spec.mutable_tools(0)->mutable_instrument();
  forceps.set_jaw_length_m(0.03);
  forceps.set_max_grasp_force_n(4);
  v1::TrocarSpec& trocar = *spec.mutable_tools(0)->mutable_trocar();
  trocar.mutable_pivot_m()->set_z(0.2);
  trocar.mutable_axis()->set_z(-3);
  spec.mutable_tools(0)->set_length_m(0.3);
  *spec.add_tools() = WithInstrument(v1::INSTRUMENT_KIND_CAUTERY_HOOK).tools(0);
  spec.mutable_tools(1)->set_name("hook");
  spec.mutable_tools(1)->mutable_instrument()->set_max_power_w(30);
  spec.mutable_tools(1)->set_response(v1::TOOL_RESPONSE_PROJECTION);
  const absl::StatusOr<sim::SceneDescription> description = Build(spec);
  ASSERT_TRUE(description.ok()) << description.status();
  const sim::ToolDescription& tool = description->tools[0];
  EXPECT_EQ(tool.response, sim::ToolResponse::kEnergy) << "the default";
  EXPECT_EQ(description->tools[1].response, sim::ToolResponse::kProjection);
  EXPECT_EQ(tool.instrument.kind, sim::InstrumentKind::kForceps);
  EXPECT_EQ(tool.instrument.jaw_length_m, 0.03);
  EXPECT_EQ(tool.instrument.jaw_radius_m, 0.0015);
  EXPECT_EQ(tool.instrument.max_grasp_force_n, 4);
  ASSERT_TRUE(tool.trocar.has_value());
  EXPECT_EQ(tool.trocar->pivot_m.z(), 0.2);
  EXPECT_EQ(tool.trocar->axis, Eigen::Vector3d(0, 0, -1));
  EXPECT_EQ(tool.trocar->max_insertion_m, 0.3);
  EXPECT_EQ(description->tools[1].instrument.kind, sim::InstrumentKind::kCauteryHook);
  EXPECT_EQ(description->tools[1].instrument.max_power_w, 30);
  EXPECT_FALSE(description->tools[1].trocar.has_value());
}

TEST(ToolSpec, InstrumentsAndTrocarsAreChecked) {
  v1::SceneSpec spec = WithInstrument(static_cast<v1::InstrumentKind>(7));
  ExpectRefused(spec, "tools[0].instrument.kind: 7 is outside [0, 6]");
  spec = WithInstrument(v1::INSTRUMENT_KIND_PROBE);
  spec.mutable_tools(0)->set_response(static_cast<v1::ToolResponse>(3));
  ExpectRefused(spec, "tools[0].response: 3 is outside [0, 2]");
  spec.mutable_tools(0)->clear_response();
  spec.mutable_tools(0)->mutable_instrument()->set_jaw_length_m(0.02);
  ExpectRefused(spec, "tools[0].instrument.jaw_length_m: only forceps and clip appliers have it");
  spec = WithInstrument(v1::INSTRUMENT_KIND_FORCEPS);
  spec.mutable_tools(0)->mutable_instrument()->set_blade_length_m(0.02);
  ExpectRefused(spec, "tools[0].instrument.blade_length_m: only scalpels have it");
  spec = WithInstrument(v1::INSTRUMENT_KIND_SCALPEL);
  spec.mutable_tools(0)->mutable_instrument()->set_reach_m(0.02);
  ExpectRefused(spec, "tools[0].instrument.reach_m: only cautery hooks and cavitrons have it");
  spec = WithInstrument(v1::INSTRUMENT_KIND_CLIP_APPLIER);
  spec.mutable_tools(0)->mutable_instrument()->set_max_jaw_angle_rad(0);
  ExpectRefused(spec, "tools[0].instrument.max_jaw_angle_rad: 0 is outside (0, 3]");
  spec = WithInstrument(v1::INSTRUMENT_KIND_CAVITRON);
  spec.mutable_tools(0)->mutable_instrument()->set_max_power_w(std::nan(""));
  ExpectRefused(spec, "tools[0].instrument.max_power_w: nan is outside (0, 1000]");
  spec.mutable_tools(0)->clear_instrument();
  v1::TrocarSpec& trocar = *spec.mutable_tools(0)->mutable_trocar();
  trocar.set_min_insertion_m(0.2);
  ExpectRefused(spec, "tools[0].trocar.min_insertion_m: 0.2 is above max_insertion_m = 0.1");
  trocar.clear_min_insertion_m();
  trocar.set_max_tilt_rad(1.6);
  ExpectRefused(spec, "tools[0].trocar.max_tilt_rad: 1.6 is outside (0, 1.5]");
  trocar.clear_max_tilt_rad();
  trocar.mutable_axis();
  ExpectRefused(spec, "tools[0].trocar.axis: is zero");
  trocar.clear_axis();
  trocar.mutable_pivot_m()->set_x(1e3);
  ExpectRefused(spec, "tools[0].trocar.pivot_m.x: 1000 is outside [-100, 100]");
}

TEST(PoseFromProto, NamesTheComponent) {
  v1::Pose pose;
  EXPECT_TRUE(PoseFromProto(pose, "p").ok());
  pose.mutable_position_m()->set_y(101);
  EXPECT_EQ(PoseFromProto(pose, "p").status().message(), "p.position_m.y: 101 is outside [-100, 100]");
  pose.mutable_position_m()->set_y(0);
  pose.mutable_rotation()->set_x(std::nan(""));
  EXPECT_EQ(PoseFromProto(pose, "p").status().message(), "p.rotation.x: nan is not finite");
}

TEST(SceneSpec, SuturesAreCheckedAndTakenOver) {
  const absl::StatusOr<sim::SceneDescription> built = Build(SewnSpec());
  ASSERT_TRUE(built.ok()) << built.status();
  ASSERT_EQ(built->sutures.size(), 1U);
  EXPECT_EQ(built->sutures[0].body_a, 1U);
  EXPECT_EQ(built->sutures[0].body_b, 0U);
  EXPECT_EQ(built->sutures[0].reach_m, 0.05);
  ASSERT_GE(built->sutures[0].vertices.size(), 3U);
  for (const uint32_t v : built->sutures[0].vertices) EXPECT_NEAR(built->bodies[1].mesh.vertices[v].x(), -0.05, 1e-9);
  const auto refused = [](const std::function<void(v1::SceneSpec&)>& change) {
    v1::SceneSpec spec = SewnSpec();
    change(spec);
    const absl::Status status = Build(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](auto& s) { s.mutable_sutures(0)->clear_body_a(); }), HasSubstr("sutures[0].body_a: is missing"));
  EXPECT_THAT(refused([](auto& s) { s.mutable_sutures(0)->set_body_b("flap"); }), HasSubstr("sutures[0].body_b: is the same"));
  EXPECT_THAT(refused([](auto& s) { s.mutable_sutures(0)->set_body_b("liver"); }), HasSubstr("no body is named \"liver\""));
  EXPECT_THAT(refused([](auto& s) { s.mutable_sutures(0)->clear_box(); }), HasSubstr("sutures[0]"));
  EXPECT_THAT(refused([](auto& s) { s.mutable_sutures(0)->mutable_box()->mutable_min_m()->set_x(-0.0495); }), HasSubstr("sutures[0]"));
  EXPECT_THAT(refused([](auto& s) {
                s.mutable_sutures(0)->clear_box();
                s.mutable_sutures(0)->mutable_vertices()->add_indices(5000);
              }),
              HasSubstr("sutures[0].vertices.indices[0]: 5000 is outside"));
  EXPECT_THAT(refused([](auto& s) {
                s.mutable_bodies(0)->set_kind(v1::BODY_KIND_RIGID);
                s.mutable_sutures(0)->set_body_a("slab");
                s.mutable_sutures(0)->set_body_b("flap");
              }),
              HasSubstr("sutures[0].body_a: slab is not deformable"));
  EXPECT_THAT(refused([](auto& s) {
                s.mutable_bodies(1)->mutable_shell()->set_edge_length_m(0.002);
                s.mutable_sutures(0)->mutable_box()->mutable_max_m()->set_x(1);
              }),
              HasSubstr("exceed 96 of a scene"));
}

TEST(SceneSpec, AirAndRestitutionAreCheckedAndTakenOver) {
  v1::SceneSpec spec = SlabScene();
  spec.mutable_bodies(0)->set_drag_coefficient(1.5);
  spec.mutable_wind()->mutable_velocity_m_per_s()->set_x(-3);
  absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->bodies[0].drag_coefficient, 1.5);
  EXPECT_THAT(built->wind.times_s, ElementsAre(0));
  EXPECT_EQ(built->wind.velocities_m_per_s[0], Eigen::Vector3d(-3, 0, 0));
  EXPECT_EQ(built->wind.density_kg_per_m3, 1.2);

  v1::SceneSpec bad = spec;
  bad.mutable_wind()->add_times_s(0);
  ExpectRefused(bad, "wind.velocity_m_per_s: is given beside velocities_m_per_s at times");
  bad.mutable_wind()->clear_velocity_m_per_s();
  ExpectRefused(bad, "wind.velocities_m_per_s: 0 entries for 1 times");
  bad.mutable_wind()->add_velocities_m_per_s()->set_z(201);
  ExpectRefused(bad, "wind.velocities_m_per_s[0].z: 201 is outside [-200, 200]");
  bad = spec;
  bad.mutable_wind()->set_density_kg_per_m3(-1);
  ExpectRefused(bad, "wind.density_kg_per_m3: -1 is outside [0, 2000]");
  bad = spec;
  *bad.add_bodies() = bad.bodies(0);  // one that moves beside it
  bad.mutable_bodies(1)->set_name("other");
  bad.mutable_bodies(1)->mutable_pose()->mutable_position_m()->set_x(2);
  bad.mutable_bodies(0)->set_drag_coefficient(101);
  ExpectRefused(bad, "bodies[0].drag_coefficient: 101 is outside [0, 100]");
  bad.mutable_bodies(0)->set_drag_coefficient(1);
  bad.mutable_bodies(0)->set_kind(v1::BODY_KIND_STATIC);
  ExpectRefused(bad, "bodies[0].drag_coefficient: air does not move static");
  bad.mutable_bodies(0)->set_kind(v1::BODY_KIND_DEFORMABLE);
  bad.mutable_bodies(0)->set_restitution(0.5);
  ExpectRefused(bad, "bodies[0].restitution: only rigid and static bodies have it");
  bad.mutable_bodies(0)->clear_drag_coefficient();
  bad.mutable_bodies(0)->set_kind(v1::BODY_KIND_STATIC);
  EXPECT_TRUE(Build(bad).ok());
  bad.mutable_bodies(0)->set_restitution(1.01);
  ExpectRefused(bad, "bodies[0].restitution: 1.01 is outside [0, 1]");
}

}  // namespace
}  // namespace palpate::scene::scene_spec_test
