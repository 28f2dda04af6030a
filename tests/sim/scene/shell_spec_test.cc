// BodySpec.shell: what a shell may be, where its surface comes from, and what it becomes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <string>

#include "sim/mesh/mesh_io.h"
#include "sim/mesh/surface_generators.h"
#include "sim/scene/scene_spec.h"
#include "sim/scene/shell_material.h"
#include "sim/scene/shell_spec.h"
#include "sim/scene/summary.h"

namespace palpate::scene::shell_spec_test {
namespace {

using ::testing::HasSubstr;

v1::SceneSpec Scene() {
  v1::SceneSpec spec;
  spec.add_bodies()->mutable_shell()->mutable_sheet();
  spec.mutable_bodies(0)->mutable_shell()->set_edge_length_m(0.05);
  return spec;
}

absl::StatusOr<sim::SceneDescription> Build(const v1::SceneSpec& spec) {
  return BuildSceneDescription(spec, AssetRootResolver(testing::TempDir()), {});
}

void ExpectRefused(const v1::SceneSpec& spec, const std::string& text, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::StatusOr<sim::SceneDescription> built = Build(spec);
  ASSERT_FALSE(built.ok()) << "expected a refusal with: " << text;
  EXPECT_EQ(built.status().code(), code) << built.status();
  EXPECT_THAT(std::string(built.status().message()), HasSubstr(text));
}

TEST(ShellSpec, DefaultsAreThoseOfTheMessage) {
  const auto scene = Build(Scene());
  ASSERT_TRUE(scene.ok()) << scene.status();
  const sim::BodyDescription& body = scene->bodies[0];
  ASSERT_TRUE(body.shell.has_value());
  EXPECT_TRUE(body.mesh.tets.empty());
  EXPECT_EQ(body.shell->thickness_m, 0.001);
  EXPECT_EQ(body.shell->bending, sim::BendingModel::kDiscreteShells);
  EXPECT_FALSE(body.shell->orthotropic.has_value());
  EXPECT_FALSE(body.shell->bending_stiffness_n_m.has_value());
  EXPECT_TRUE(body.self_collision);
  const auto triangle = sim::ShellTriangleOf(*body.shell, body.material);
  ASSERT_TRUE(triangle.ok()) << triangle.status();
  EXPECT_EQ(triangle->membrane, gpu::ShellMembrane::kStableNeoHookean);
  EXPECT_EQ(triangle->strain_limit, 0);
  const double nu = 0.45;
  EXPECT_NEAR(triangle->bending_stiffness_n_m, 5000 * 1e-9 / (12 * (1 - nu * nu)), 1e-12);
  EXPECT_NEAR(triangle->moduli_pa[0], 5000 / (1 - nu * nu), 1e-2);
  EXPECT_NEAR(triangle->moduli_pa[1], nu * 5000 / (1 - nu * nu), 1e-2);
  const v1::BodyInfo info = SummarizeBody(body);
  EXPECT_NEAR(info.volume_m3(), 0.2 * 0.2 * 0.001, 1e-12);
  EXPECT_NEAR(info.mass_kg(), 0.2 * 0.2 * 0.001 * 1060, 1e-9);
  EXPECT_EQ(info.surface_triangle_count(), body.shell->triangles.size());
}

TEST(ShellSpec, AFigureMovesByItsParts) {
  v1::SceneSpec spec;
  v1::BodySpec& body = *spec.add_bodies();
  body.mutable_shell()->mutable_figure()->set_height_m(1);
  body.mutable_shell()->set_edge_length_m(0.012);
  body.mutable_pose()->mutable_position_m()->set_x(2);
  body.set_self_collision(false);
  const absl::StatusOr<sim::FigureSurface> figure = sim::GenerateFigureSurface(1, 0.012);
  ASSERT_TRUE(figure.ok()) << figure.status();
  for (const sim::FigurePart& part : figure->parts) body.add_fixed()->set_figure_part(part.name);
  v1::RegionMotion& swing = *body.mutable_fixed(0)->mutable_motion();
  swing.add_keys();
  swing.add_keys()->set_time_s(0.5);
  swing.mutable_keys(1)->mutable_turn_rad()->set_x(0.4);
  swing.set_period_s(1);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  const sim::BodyDescription& made = scene->bodies[0];
  ASSERT_EQ(made.driven_regions.size(), figure->parts.size());
  EXPECT_EQ(made.fixed_vertices.size(), made.mesh.vertices.size());
  size_t vertices = 0;
  for (size_t p = 0; p < figure->parts.size(); ++p) {
    const sim::DrivenRegion& region = made.driven_regions[p];
    vertices += region.vertices.size();
    EXPECT_EQ(region.center_m, figure->parts[p].joint_m + Eigen::Vector3d(2, 0, 0));
    EXPECT_EQ(region.parent ? static_cast<int>(*region.parent) : -1, figure->parts[p].parent);
    ASSERT_EQ(region.blends.size(), region.vertices.size()) << "some vertex of each part follows another part too";
    for (size_t i = 0; i < region.vertices.size(); ++i) {
      const std::vector<sim::PartWeight>& weights = figure->weights[region.vertices[i]];
      ASSERT_LE(weights.size(), 3U);
      for (const sim::PartWeight& weight : weights) {
        float share = 0;
        for (size_t k = 0; k < 4; ++k) share += region.blends[i].regions[k] == weight.part ? region.blends[i].shares[k] : 0;
        EXPECT_NEAR(share, weight.weight, 1e-5);
      }
    }
  }
  EXPECT_EQ(vertices, made.mesh.vertices.size()) << "each vertex is named once";

  v1::SceneSpec wrong = spec;
  wrong.mutable_bodies(0)->mutable_fixed()->RemoveLast();
  ExpectRefused(wrong, "bodies[0].fixed: part " + figure->parts.back().name + " of the figure has no region");
  wrong.mutable_bodies(0)->add_fixed()->set_figure_part("tail");
  ExpectRefused(wrong, "figure_part: the figure has no part of this name");
  wrong.mutable_bodies(0)->mutable_fixed()->rbegin()->set_figure_part(figure->parts[0].name);
  ExpectRefused(wrong, "the part has a region already");
  wrong = spec;
  wrong.mutable_bodies(0)->mutable_fixed(0)->set_figure_part(figure->parts[1].name);
  wrong.mutable_bodies(0)->mutable_fixed(1)->set_figure_part(figure->parts[0].name);
  ExpectRefused(wrong, "which carries it");
  wrong = spec;
  wrong.mutable_bodies(0)->mutable_fixed(3)->set_free_x(true);
  ExpectRefused(wrong, "bodies[0].fixed[3].free_x: a region that moves cannot slide as well");
}

TEST(ShellSpec, ScalePoseAndWarpAreThoseOfTheBody) {
  v1::SceneSpec spec = Scene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.set_scale(0.5);
  body.mutable_pose()->mutable_position_m()->set_z(0.3);
  body.mutable_pose()->mutable_rotation()->set_w(1);
  body.mutable_pose()->mutable_rotation()->set_z(1);  // a quarter turn: x becomes y
  body.mutable_material()->set_model(v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF);
  body.mutable_shell()->mutable_orthotropic()->mutable_warp_direction()->set_x(7);
  body.mutable_array()->set_count_x(2);
  body.mutable_array()->mutable_spacing_m()->set_x(1);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  ASSERT_EQ(scene->bodies.size(), 2U);
  EXPECT_EQ(scene->bodies[1].shell->triangles, scene->bodies[0].shell->triangles);
  EXPECT_LT((scene->bodies[0].shell->orthotropic->warp - Eigen::Vector3d::UnitY()).norm(), 1e-12);
  EXPECT_NEAR(sim::TotalsOfShell(scene->bodies[0]).area_m2, 0.01, 1e-9);
  EXPECT_EQ(scene->bodies[0].shell->thickness_m, 0.001) << "scale is of the surface";
  EXPECT_NEAR(scene->bodies[0].mesh.vertices[0].z(), 0.3, 1e-12);
}

TEST(ShellSpec, WhatAShellCannotBeIsRefused) {
  const auto refuse = [](const auto& change, const std::string& text) {
    v1::SceneSpec spec = Scene();
    change(*spec.mutable_bodies(0));
    ExpectRefused(spec, text);
  };
  refuse([](v1::BodySpec& b) { b.set_kind(v1::BODY_KIND_RIGID); }, "bodies[0].kind: a shell is deformable");
  refuse([](v1::BodySpec& b) { b.set_simulation(v1::SIMULATION_SHAPE_MATCHED); }, "bodies[0].simulation: a shell is SIMULATION_DYNAMIC");
  refuse(
      [](v1::BodySpec& b) {
        b.add_markers()->set_name("m");
        b.mutable_markers(0)->mutable_position_m()->set_z(0.02);
      },
      "bodies[0].markers[0].position_m: (0, 0, 0.02) lies 0.02 m outside the body");
  refuse([](v1::BodySpec& b) { b.mutable_texture(); }, "bodies[0].texture: the mesh has no texture coordinates");
  refuse([](v1::BodySpec& b) { b.set_volume_stiffness_pa(10); }, "bodies[0]: volume_stiffness_pa: the shell is open at the edge ");
  refuse([](v1::BodySpec& b) { b.add_zones()->set_name("z"); }, "bodies[0].zones[0]");
  refuse([](v1::BodySpec& b) { b.mutable_material()->set_model(v1::MATERIAL_MODEL_COROTATED_LINEAR); }, "bodies[0].material.model: ");
  refuse(
      [](v1::BodySpec& b) {
        b.mutable_material()->set_model(v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF);
        b.mutable_material()->mutable_fibers()->mutable_direction()->set_x(1);
      },
      "bodies[0].material.fibers: ");
  refuse([](v1::BodySpec& b) { b.mutable_shell()->mutable_orthotropic(); }, "bodies[0].shell.orthotropic.warp_direction: is zero");
  refuse([](v1::BodySpec& b) { b.mutable_shell()->mutable_orthotropic()->mutable_warp_direction()->set_x(1); },
         "bodies[0].shell.orthotropic: needs material.model St-Venant-Kirchhoff");
  refuse(
      [](v1::BodySpec& b) {
        b.mutable_material()->set_model(v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF);
        b.mutable_shell()->mutable_orthotropic()->mutable_warp_direction()->set_x(1);
        b.mutable_shell()->mutable_orthotropic()->set_weft_modulus_pa(1e6);
      },
      "bodies[0].shell.orthotropic.weft_modulus_pa: 1e+06 leaves");
  refuse([](v1::BodySpec& b) { b.mutable_shell()->set_bending_stiffness_n_m(-1); }, "bodies[0].shell.bending_stiffness_n_m: -1");
  refuse(
      [](v1::BodySpec& b) {
        b.mutable_shell()->set_bending(v1::BENDING_MODEL_NONE);
        b.mutable_shell()->set_bending_stiffness_n_m(1);
      },
      "bodies[0].shell.bending_stiffness_n_m: nothing resists bending");
  refuse([](v1::BodySpec& b) { b.mutable_shell()->clear_sheet(); }, "bodies[0].shell");
  refuse([](v1::BodySpec& b) { b.mutable_shell()->set_thickness_m(1e-6); }, "bodies[0].shell.thickness_m: 1e-06");
}

TEST(ShellSpec, TexturesAreOfTheCornersOfItsTriangles) {
  v1::SceneSpec spec = Scene();
  v1::BodySpec& body = *spec.mutable_bodies(0);
  body.mutable_shell()->mutable_tube()->set_radius_m(0.05);
  body.mutable_shell()->mutable_tube()->set_length_m(0.2);
  body.mutable_shell()->set_edge_length_m(0.02);
  body.set_scale(0.5);
  body.mutable_pose()->mutable_position_m()->set_x(3);  // projections are of the mesh after scale, before the pose
  body.mutable_texture()->set_pattern(v1::TEXTURE_PATTERN_CHECKER);
  body.mutable_texture()->mutable_planar();
  body.mutable_texture()->set_tile_size_m(0.01);
  const auto check = [&](const auto& see) {
    const absl::StatusOr<sim::SceneDescription> built = Build(spec);
    ASSERT_TRUE(built.ok()) << built.status();
    const sim::BodyDescription& out = built->bodies[0];
    EXPECT_EQ(out.texture.u_period, 0);
    EXPECT_TRUE(out.texture.coordinates.empty());
    ASSERT_EQ(out.texture.corners.size(), out.shell->triangles.size());
    for (size_t t = 0; t < out.shell->triangles.size(); ++t) {
      for (size_t c = 0; c < 3; ++c) {
        const Eigen::Vector3d at_m = out.mesh.vertices[out.shell->triangles[t][c]] - Eigen::Vector3d(3, 0, 0);
        see(at_m, out.texture.corners[t], c);
      }
    }
  };
  check([](const Eigen::Vector3d& at_m, const sim::CornerCoordinates& corners, size_t c) {
    ASSERT_NEAR(corners[c][0], at_m.x() / 0.01, 1e-5);
    ASSERT_NEAR(corners[c][1], at_m.y() / 0.01, 1e-5);
  });
  // Around: a whole number of tiles, and no triangle runs back across the seam.
  body.mutable_texture()->mutable_cylindrical();
  double lowest = 1e9, highest = -1e9;
  check([&](const Eigen::Vector3d& at_m, const sim::CornerCoordinates& corners, size_t c) {
    const double tiles = std::round(2 * std::numbers::pi * 0.025 / 0.01);
    const double turns = (std::atan2(at_m.y(), at_m.x()) / (2 * std::numbers::pi)) - corners[c][0] / tiles;
    ASSERT_NEAR(turns, std::round(turns), 1e-5);
    ASSERT_NEAR(corners[c][1], at_m.z() / 0.01, 1e-4);
    ASSERT_LT(std::abs(corners[c][0] - corners[0][0]), tiles / 4);
    lowest = std::min<double>(lowest, corners[c][0]);
    highest = std::max<double>(highest, corners[c][0]);
  });
  EXPECT_GT(highest - lowest, 14);
  // A box has a seam where the sides meet, inside no triangle.
  body.mutable_texture()->mutable_box();
  check([](const Eigen::Vector3d& at_m, const sim::CornerCoordinates& corners, size_t c) {
    const bool is_of_x = std::abs(std::abs(corners[c][0]) - std::abs(at_m.y()) / 0.01) < 1e-4;
    const bool is_of_y = std::abs(std::abs(corners[c][0]) - std::abs(at_m.x()) / 0.01) < 1e-4;
    ASSERT_TRUE(is_of_x || is_of_y);
    ASSERT_NEAR(corners[c][1], at_m.z() / 0.01, 1e-4);
  });
}

TEST(ShellSpec, SurfacesComeFromFilesAndAreNamedWithTheirDefects) {
  const auto tube = sim::GenerateTubeSurface(0.02, 0.05, 0.01);
  ASSERT_TRUE(tube.ok()) << tube.status();
  const std::filesystem::path folder(testing::TempDir());
  ASSERT_TRUE(sim::WriteObj(*tube, folder / "tube.obj").ok());
  v1::SceneSpec spec;
  spec.add_bodies()->mutable_shell()->set_mesh_file("tube.obj");
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  EXPECT_EQ(scene->bodies[0].shell->triangles.size(), tube->triangles.size());
  // The same inline.
  v1::SceneSpec inlined = spec;
  SetInlineSurface(*tube, *inlined.mutable_bodies(0)->mutable_shell());
  ASSERT_TRUE(Build(inlined).ok()) << Build(inlined).status();
  EXPECT_EQ(WithoutInlineMeshes(inlined).bodies(0).shell().mesh().vertices_m_size(), 0);
  // An edge with three triangles.
  sim::SurfaceMesh fin = *tube;
  fin.vertices.emplace_back(0, 0, 1);
  fin.triangles.push_back({fin.triangles[0][0], fin.triangles[0][1], static_cast<uint32_t>(fin.vertices.size() - 1)});
  ASSERT_TRUE(sim::WriteObj(fin, folder / "fin.obj").ok());
  spec.mutable_bodies(0)->mutable_shell()->set_mesh_file("fin.obj");
  ExpectRefused(spec, "bodies[0].shell.mesh_file: \"fin.obj\": the edge from (");
  // A strip that is joined after half a turn.
  sim::SurfaceMesh moebius;
  constexpr uint32_t kParts = 12;
  for (uint32_t i = 0; i < kParts; ++i) {
    const double turn = 2 * M_PI * i / kParts;
    for (const double side : {-0.01, 0.01}) {
      const double r = 0.05 + side * std::cos(turn / 2);
      moebius.vertices.emplace_back(r * std::cos(turn), r * std::sin(turn), side * std::sin(turn / 2));
    }
  }
  for (uint32_t i = 0; i < kParts; ++i) {
    const uint32_t a = 2 * i;
    const bool joins = i + 1 == kParts;
    const uint32_t b = joins ? 1 : 2 * i + 2;
    const uint32_t c = joins ? 0 : 2 * i + 3;
    moebius.triangles.push_back({a, b, c});
    moebius.triangles.push_back({a, c, a + 1});
  }
  ASSERT_TRUE(sim::WriteObj(moebius, folder / "moebius.obj").ok());
  spec.mutable_bodies(0)->mutable_shell()->set_mesh_file("moebius.obj");
  ExpectRefused(spec, "they are not turned alike, or the surface has one side only");
  // Two triangles that share a vertex alone.
  sim::SurfaceMesh bow;
  for (const double x : {0.0, 0.01, 0.01, -0.01, -0.01}) bow.vertices.emplace_back(x, 0.003 * static_cast<double>(bow.vertices.size()), 0);
  bow.triangles = {{0, 1, 2}, {0, 3, 4}};
  ASSERT_TRUE(sim::WriteObj(bow, folder / "bow.obj").ok());
  spec.mutable_bodies(0)->mutable_shell()->set_mesh_file("bow.obj");
  ExpectRefused(spec, "are not one fan");
  spec.mutable_bodies(0)->mutable_shell()->set_mesh_file("none.obj");
  ExpectRefused(spec, "bodies[0].shell.mesh_file: ", absl::StatusCode::kNotFound);
}

TEST(ShellSpec, LoadsAndSurfaceZonesAreOfItsTriangles) {
  v1::SceneSpec spec = Scene();
  v1::SurfaceZoneSpec& half = *spec.mutable_bodies(0)->add_surface_zones();
  half.set_name("half");
  half.mutable_box()->mutable_max_m()->set_x(1);
  half.mutable_box()->mutable_max_m()->set_y(1);
  half.mutable_box()->mutable_max_m()->set_z(1);
  half.mutable_box()->mutable_min_m()->set_y(-1);
  half.mutable_box()->mutable_min_m()->set_z(-1);
  half.mutable_facing()->set_z(1);
  v1::LoadSpec& load = *spec.mutable_bodies(0)->add_loads();
  load.set_surface_zone("half");
  load.set_pressure_pa(3);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  const size_t count = scene->bodies[0].surface_zones[0].triangles.size();
  EXPECT_GT(count, 0U);
  EXPECT_LT(count, scene->bodies[0].shell->triangles.size());
  half.mutable_facing()->set_z(-1);
  ExpectRefused(spec, "surface_zones[0].facing: ");
}

TEST(ShellSpec, ZonesAreOfItsTrianglesAndMayBeThicker) {
  v1::SceneSpec spec = Scene();
  v1::ZoneSpec& vessel = *spec.mutable_bodies(0)->add_zones();
  vessel.set_name("vessel");
  vessel.mutable_box()->mutable_min_m()->set_x(0);
  vessel.mutable_box()->mutable_min_m()->set_y(-1);
  vessel.mutable_box()->mutable_min_m()->set_z(-1);
  for (const auto set : {&v1::Vec3::set_x, &v1::Vec3::set_y, &v1::Vec3::set_z}) (vessel.mutable_box()->mutable_max_m()->*set)(1);
  vessel.set_thickness_m(0.003);
  vessel.mutable_material()->set_density_kg_per_m3(2000);
  vessel.mutable_material()->set_young_modulus_pa(4e4);
  vessel.mutable_ablation()->set_energy_j_per_kg(1e5);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  const sim::BodyDescription& body = scene->bodies[0];
  ASSERT_EQ(body.tet_zones.size(), body.shell->triangles.size());
  double of_zone_m2 = 0, area_m2 = 0;
  for (size_t t = 0; t < body.shell->triangles.size(); ++t) {
    const auto& [a, b, c] = body.shell->triangles[t];
    const Eigen::Vector3d center_m = (body.mesh.vertices[a] + body.mesh.vertices[b] + body.mesh.vertices[c]) / 3;
    EXPECT_EQ(body.tet_zones[t], center_m.x() >= 0 ? 1 : 0);
    const double m2 = (body.mesh.vertices[b] - body.mesh.vertices[a]).cross(body.mesh.vertices[c] - body.mesh.vertices[a]).norm() / 2;
    area_m2 += m2;
    if (body.tet_zones[t] == 1) of_zone_m2 += m2;
  }
  EXPECT_GT(of_zone_m2, 0.3 * area_m2);
  EXPECT_LT(of_zone_m2, 0.7 * area_m2);
  EXPECT_EQ(body.zones[0].ablation.energy_j_per_kg, 1e5);
  EXPECT_EQ(body.zones[0].shell.thickness_m, 0.003);
  const v1::BodyInfo info = SummarizeBody(body);
  EXPECT_NEAR(info.volume_m3(), (area_m2 - of_zone_m2) * 0.001 + of_zone_m2 * 0.003, 1e-12);
  EXPECT_NEAR(info.mass_kg(), (area_m2 - of_zone_m2) * 0.001 * 1060 + of_zone_m2 * 0.003 * 2000, 1e-9);

  const auto refuse = [&](const auto& change, const std::string& text) {
    v1::SceneSpec wrong = spec;
    change(*wrong.mutable_bodies(0)->mutable_zones(0));
    ExpectRefused(wrong, text);
  };
  refuse([](v1::ZoneSpec& z) { z.set_mesh_group("fat"); }, "bodies[0].zones[0].mesh_group: a shell has no groups");
  refuse([](v1::ZoneSpec& z) { z.set_thickness_m(0.2); }, "bodies[0].zones[0].thickness_m: 0.2 is outside");
  refuse([](v1::ZoneSpec& z) { z.mutable_material()->set_model(v1::MATERIAL_MODEL_COROTATED_LINEAR); },
         "bodies[0].zones[0].material.model: a shell is");
  refuse([](v1::ZoneSpec& z) { z.mutable_box()->mutable_min_m()->set_x(0.9); }, "centroid of a triangle");
  v1::SceneSpec solid;
  solid.add_bodies()->mutable_generator()->mutable_sphere();
  *solid.mutable_bodies(0)->add_zones() = vessel;
  ExpectRefused(solid, "bodies[0].zones[0].thickness_m: only a shell of triangles has one");
}

TEST(ShellSpec, ZonesDifferFromTheirShellInWhatTheySay) {
  v1::SceneSpec spec = Scene();
  v1::BodySpec& of = *spec.mutable_bodies(0);
  of.mutable_pose()->mutable_rotation()->set_w(1);
  of.mutable_pose()->mutable_rotation()->set_z(1);  // a quarter turn: x becomes y
  of.mutable_material()->set_model(v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF);
  of.mutable_material()->set_young_modulus_pa(1e5);
  of.mutable_shell()->mutable_orthotropic()->mutable_warp_direction()->set_x(1);
  of.mutable_shell()->mutable_orthotropic()->set_weft_modulus_pa(5e4);
  of.mutable_shell()->set_strain_limit(0.1);
  of.mutable_shell()->set_bending_stiffness_n_m(1e-4);
  const auto add = [&](const std::string& name, double from_y_m) {
    v1::ZoneSpec& zone = *of.add_zones();
    zone.set_name(name);
    for (const auto set : {&v1::Vec3::set_x, &v1::Vec3::set_y, &v1::Vec3::set_z}) {
      (zone.mutable_box()->mutable_min_m()->*set)(-1);
      (zone.mutable_box()->mutable_max_m()->*set)(1);
    }
    zone.mutable_box()->mutable_min_m()->set_y(from_y_m);
    return &zone;
  };
  v1::ZoneSpec* const hem = add("hem", -0.02);
  hem->mutable_shell()->mutable_orthotropic()->mutable_warp_direction()->set_y(-2);
  hem->mutable_shell()->set_bending(v1::BENDING_MODEL_QUADRATIC);
  hem->mutable_shell()->set_bending_stiffness_n_m(3e-4);
  hem->mutable_shell()->set_strain_limit(0.02);
  hem->mutable_material()->set_model(v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF);
  hem->mutable_material()->set_young_modulus_pa(3e5);
  v1::ZoneSpec* const patch = add("patch", 0.03);
  patch->mutable_shell()->set_isotropic(true);
  patch->mutable_shell()->set_bending(v1::BENDING_MODEL_NONE);
  patch->mutable_shell()->set_no_strain_limit(true);
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  const sim::BodyDescription& body = scene->bodies[0];
  const auto triangle_of = [&](size_t zone) {
    return sim::ShellTriangleOf(sim::ShellOfZone(body, zone), zone == 0 ? body.material : body.zones[zone - 1].material).value();
  };
  const gpu::ShellTriangle cloth = triangle_of(0), of_hem = triangle_of(1), of_patch = triangle_of(2);
  const double nu = 0.45;
  EXPECT_NEAR(cloth.moduli_pa[2] / cloth.moduli_pa[0], 0.5, 1e-6);
  EXPECT_FLOAT_EQ(cloth.strain_limit, 0.1F);
  EXPECT_NEAR(of_hem.warp[0], 1, 1e-6) << "-y of the mesh";
  EXPECT_NEAR(of_hem.moduli_pa[0], 3e5 / (1 - nu * nu), 1) << "weft and shear follow the zone's material";
  EXPECT_FLOAT_EQ(of_hem.moduli_pa[2], of_hem.moduli_pa[0]);
  EXPECT_NEAR(of_hem.moduli_pa[3], 3e5 / (2 * (1 + nu)), 1);
  EXPECT_EQ(of_hem.bending, gpu::ShellBending::kQuadratic);
  EXPECT_FLOAT_EQ(of_hem.bending_stiffness_n_m, 3e-4F);
  EXPECT_FLOAT_EQ(of_hem.strain_limit, 0.02F);
  EXPECT_FLOAT_EQ(of_patch.moduli_pa[2], of_patch.moduli_pa[0]);
  EXPECT_EQ(of_patch.bending, gpu::ShellBending::kNone);
  EXPECT_EQ(of_patch.bending_stiffness_n_m, 0);
  EXPECT_EQ(of_patch.strain_limit, 0);

  const auto refuse = [&](const auto& change, const std::string& text) {
    v1::SceneSpec wrong = spec;
    change(*wrong.mutable_bodies(0)->mutable_zones(0)->mutable_shell());
    ExpectRefused(wrong, "bodies[0].zones[0].shell." + text);
  };
  refuse([](v1::ShellZoneSpec& z) { z.mutable_orthotropic()->clear_warp_direction(); }, "orthotropic.warp_direction: is zero");
  refuse([](v1::ShellZoneSpec& z) { z.mutable_orthotropic()->set_weft_modulus_pa(1); }, "orthotropic.weft_modulus_pa: 1 is outside");
  refuse([](v1::ShellZoneSpec& z) { z.mutable_orthotropic()->set_weft_modulus_pa(1e8); }, "orthotropic.weft_modulus_pa: 1e+08 leaves");
  refuse([](v1::ShellZoneSpec& z) { z.set_isotropic(true); }, "isotropic: the zone has orthotropic too");
  refuse([](v1::ShellZoneSpec& z) { z.set_no_strain_limit(true); }, "no_strain_limit: the zone has strain_limit too");
  refuse([](v1::ShellZoneSpec& z) { z.set_strain_limit(2); }, "strain_limit: 2 is outside");
  refuse([](v1::ShellZoneSpec& z) { z.set_bending_stiffness_n_m(-1); }, "bending_stiffness_n_m: -1 is outside");
  refuse([](v1::ShellZoneSpec& z) { z.set_bending(v1::BENDING_MODEL_NONE); }, "bending_stiffness_n_m: nothing resists bending");
  v1::SceneSpec wrong = spec;
  wrong.mutable_bodies(0)->mutable_zones(0)->mutable_material()->clear_model();
  ExpectRefused(wrong, "bodies[0].zones[0].shell.orthotropic: needs material.model St-Venant-Kirchhoff");
  v1::SceneSpec solid;
  solid.add_bodies()->mutable_generator()->mutable_sphere();
  *solid.mutable_bodies(0)->add_zones() = *patch;
  ExpectRefused(solid, "bodies[0].zones[0].shell: the body is no shell of triangles");
}

TEST(ShellSpec, OnlyAClosedShellTurnedOutwardsKeepsItsVolume) {
  v1::SceneSpec spec;
  spec.add_bodies()->set_volume_stiffness_pa(1e5);
  v1::ShellSpec& shell = *spec.mutable_bodies(0)->mutable_shell();
  shell.mutable_sphere();
  const auto scene = Build(spec);
  ASSERT_TRUE(scene.ok()) << scene.status();
  EXPECT_EQ(scene->bodies[0].volume_stiffness_pa, 1e5);
  shell.mutable_disc();
  ExpectRefused(spec, "bodies[0]: volume_stiffness_pa: the shell is open at the edge from ");
  // A sphere inside out, then one that lacks a triangle.
  shell.clear_disc();
  sim::SurfaceMesh inverted = sim::GenerateSphereSurface(0.05, 0.02).value();
  for (auto& [a, b, c] : inverted.triangles) std::swap(b, c);
  SetInlineSurface(inverted, shell);
  ExpectRefused(spec, "its triangles are not turned outwards");
  sim::SurfaceMesh open = sim::GenerateSphereSurface(0.05, 0.02).value();
  const auto [a, b, c] = open.triangles.back();
  open.triangles.pop_back();
  shell.clear_mesh();
  SetInlineSurface(open, shell);
  ExpectRefused(spec, absl::StrCat("vertices ", std::min({a, b, c}), " and ", std::max(std::min(a, b), std::min(std::max(a, b), c))));
}

TEST(ShellSpec, TooManyTrianglesAreRefusedBeforeTheyAreMade) {
  v1::SceneSpec spec = Scene();
  spec.mutable_bodies(0)->mutable_shell()->set_edge_length_m(0.0005);
  SceneLimits limits;
  limits.max_tets_per_scene = 1000;
  const absl::Status status = BuildSceneDescription(spec, AssetRootResolver(""), limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

}  // namespace
}  // namespace palpate::scene::shell_spec_test
