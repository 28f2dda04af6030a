#include "sim/scene/edit_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace palpate::scene::edit_request_test {
namespace {

void Set(double x, double y, double z, v1::Vec3& v) {
  v.set_x(x);
  v.set_y(y);
  v.set_z(z);
}

/// One edit of each kind and of each region.
v1::EditSceneRequest EveryEdit() {
  v1::EditSceneRequest request;
  request.set_scene_id("s");
  request.set_key("k");
  for (int i = 0; i < 6; ++i) request.add_edits()->set_body("liver");
  v1::BallRegion& ball = *request.mutable_edits(0)->mutable_carve()->mutable_region()->mutable_ball();
  Set(1, 2, 3, *ball.mutable_center_m());
  ball.set_radius_m(0.01);
  v1::CapsuleRegion& capsule = *request.mutable_edits(1)->mutable_carve()->mutable_region()->mutable_capsule();
  Set(0, 0, 1, *capsule.mutable_end1_m());
  capsule.set_radius_m(0.02);
  request.mutable_edits(2)->mutable_carve()->mutable_region()->mutable_tets()->add_ids(0x500000007ULL);
  v1::RefineEdit& refine = *request.mutable_edits(3)->mutable_refine();
  refine.mutable_region()->set_zone("tumor");
  refine.set_max_edge_m(0.01);
  refine.set_tet_budget(500);
  for (int i = 0; i < 2; ++i) {
    v1::BladeEdge& edge = *request.mutable_edits(4)->mutable_incise()->add_edges();
    Set(i, 0, 0, *edge.mutable_end0_m());
    Set(i, 0, 1, *edge.mutable_end1_m());
  }
  request.mutable_edits(5)->mutable_material()->set_zone("tumor");
  request.mutable_edits(5)->mutable_material()->mutable_material()->set_young_modulus_pa(20000);
  request.add_edits()->mutable_grasp()->set_tool("forceps");
  request.mutable_edits(6)->mutable_grasp()->set_radius_m(0.005);
  request.add_edits()->mutable_release()->set_tool("forceps");
  return request;
}

EditTargets Targets() {
  sim::Material fibrous;
  fibrous.model = sim::MaterialModel::kStVenantKirchhoff;
  fibrous.young_modulus_pa = 3000;
  fibrous.poisson_ratio = 0.3;
  fibrous.damping_s = 0.02;
  fibrous.mass_damping_per_s = 0.5;
  fibrous.fibers = {.direction = {0, 0, 1}, .young_modulus_pa = 9000, .poisson_ratio = 0.3, .shear_modulus_pa = 1000};
  sim::Material tumor;
  tumor.density_kg_per_m3 = 1100;
  return {{"slab", "liver"}, {"probe", "forceps"}, {{{"", fibrous}, {"tumor", tumor}}, {{"", {}}, {"tumor", tumor}}}};
}

TEST(EditRequest, BecomesEdits) {
  const v1::EditSceneRequest request = EveryEdit();
  ASSERT_TRUE(ValidateEditRequest(request).ok()) << ValidateEditRequest(request);
  const absl::StatusOr<std::vector<sim::Edit>> edits = BuildEdits(request, Targets());
  ASSERT_TRUE(edits.ok()) << edits.status();
  ASSERT_EQ(edits->size(), 8U);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ((*edits)[i].body, 1U);
  const auto& ball = std::get<sim::BallRegion>(std::get<sim::CarveEdit>((*edits)[0].what).region);
  EXPECT_EQ(ball.center_m, Eigen::Vector3d(1, 2, 3));
  EXPECT_EQ(ball.radius_m, 0.01);
  const auto& capsule = std::get<sim::CapsuleRegion>(std::get<sim::CarveEdit>((*edits)[1].what).region);
  EXPECT_EQ(capsule.end1_m, Eigen::Vector3d(0, 0, 1));
  const auto& tets = std::get<sim::TetListRegion>(std::get<sim::CarveEdit>((*edits)[2].what).region);
  ASSERT_EQ(tets.tets.size(), 1U);
  EXPECT_EQ(sim::SlotOf(tets.tets[0]), 7U);
  EXPECT_EQ(sim::GenerationOf(tets.tets[0]), 5U);
  const auto& refine = std::get<sim::RefineEdit>((*edits)[3].what);
  EXPECT_EQ(std::get<sim::ZoneRegion>(refine.region).zone, "tumor");
  EXPECT_EQ(refine.max_edge_m, 0.01);
  EXPECT_EQ(refine.tet_budget, 500U);
  const auto& incise = std::get<sim::InciseEdit>((*edits)[4].what);
  ASSERT_EQ(incise.edges_m.size(), 2U);
  EXPECT_EQ(incise.edges_m[1][1], Eigen::Vector3d(1, 0, 1));
  const auto& material = std::get<sim::MaterialEdit>((*edits)[5].what);
  EXPECT_EQ(material.zone, "tumor");
  EXPECT_EQ(material.material.young_modulus_pa, 20000);
  EXPECT_EQ(material.material.density_kg_per_m3, 1100);
  EXPECT_EQ(std::get<sim::GraspEdit>((*edits)[6].what).tool, 1U);
  EXPECT_EQ(std::get<sim::GraspEdit>((*edits)[6].what).radius_m, 0.005);
  EXPECT_EQ(std::get<sim::ReleaseEdit>((*edits)[7].what).tool, 1U);
}

TEST(EditRequest, OfAShellBecomesEdits) {
  v1::EditSceneRequest request;
  request.set_scene_id("scene");
  v1::Edit& edit = *request.add_edits();
  edit.set_body("liver");
  edit.mutable_refine()->mutable_region()->mutable_triangles()->add_ids(0x500000007ULL);
  edit.mutable_refine()->set_max_edge_m(0.01);
  edit.mutable_refine()->set_triangle_budget(300);
  ASSERT_TRUE(ValidateEditRequest(request).ok()) << ValidateEditRequest(request);
  const absl::StatusOr<std::vector<sim::Edit>> edits = BuildEdits(request, Targets());
  ASSERT_TRUE(edits.ok()) << edits.status();
  const auto& refine = std::get<sim::RefineEdit>((*edits)[0].what);
  EXPECT_THAT(std::get<sim::TriangleListRegion>(refine.region).triangles, ::testing::ElementsAre(sim::MakeId<sim::TriangleId>(7, 5)));
  EXPECT_EQ(refine.triangle_budget, 300U);
  EXPECT_EQ(refine.tet_budget, 0U);
  edit.mutable_refine()->mutable_region()->mutable_triangles()->clear_ids();
  EXPECT_EQ(ValidateEditRequest(request).message(), "edits[0].refine.region.triangles.ids: 0 entries are outside [1, 1048576]");
}

TEST(EditRequest, NamesTheFieldTheValueAndTheRange) {
  const auto refused = [](const std::function<void(v1::EditSceneRequest&)>& damage) {
    v1::EditSceneRequest request = EveryEdit();
    damage(request);
    const absl::Status status = ValidateEditRequest(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  using R = v1::EditSceneRequest;
  EXPECT_EQ(refused([](R& r) { r.clear_edits(); }), "edits: 0 entries are outside [1, 256]");
  EXPECT_EQ(refused([](R& r) {
              while (r.edits_size() < 257) *r.add_edits() = r.edits(0);
            }),
            "edits: 257 entries are outside [1, 256]");
  EXPECT_EQ(refused([](R& r) { r.set_key(std::string(65, 'k')); }), "key: 65 bytes are outside [0, 64]");
  EXPECT_EQ(refused([](R& r) { r.set_key("a\n"); }), "key: holds the control character 10");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(0)->clear_body(); }), "edits[0].body: is empty");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(6)->set_body("liver"); }),
            "edits[6].body: is not used by grasp and release, which take what the tool meets");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(1)->clear_edit(); }),
            "edits[1]: no edit is given; one of carve, refine, incise, material, grasp, release, joint is needed");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(0)->mutable_carve()->clear_region(); }),
            "edits[0].carve.region: no region is given; one of ball, capsule, tets, zone, triangles is needed");
  const auto ball = [](R& r) -> v1::BallRegion& { return *r.mutable_edits(0)->mutable_carve()->mutable_region()->mutable_ball(); };
  EXPECT_EQ(refused([&](R& r) { ball(r).set_radius_m(0); }), "edits[0].carve.region.ball.radius_m: 0 is outside (0, 10]");
  EXPECT_EQ(refused([&](R& r) { ball(r).set_radius_m(std::nan("")); }), "edits[0].carve.region.ball.radius_m: nan is outside (0, 10]");
  EXPECT_EQ(refused([&](R& r) { ball(r).mutable_center_m()->set_y(101); }),
            "edits[0].carve.region.ball.center_m.y: 101 is outside [-100, 100]");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(1)->mutable_carve()->mutable_region()->mutable_capsule()->set_radius_m(-1); }),
            "edits[1].carve.region.capsule.radius_m: -1 is outside (0, 10]");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(2)->mutable_carve()->mutable_region()->mutable_tets()->clear_ids(); }),
            "edits[2].carve.region.tets.ids: 0 entries are outside [1, 1048576]");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(3)->mutable_refine()->mutable_region()->set_zone(""); }),
            "edits[3].refine.region.zone: is empty");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(3)->mutable_refine()->set_max_edge_m(0); }),
            "edits[3].refine.max_edge_m: 0 is outside [1e-05, 1]");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(4)->mutable_incise()->mutable_edges()->RemoveLast(); }),
            "edits[4].incise.edges: 1 entries are outside [2, 1024]");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(4)->mutable_incise()->mutable_edges(1)->mutable_end0_m()->set_z(INFINITY); }),
            "edits[4].incise.edges[1].end0_m.z: inf is outside [-100, 100]");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(5)->mutable_material()->mutable_material()->set_poisson_ratio(0.5); }),
            "edits[5].material.material.poisson_ratio: 0.5 is outside [0, 0.495]");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(6)->mutable_grasp()->clear_tool(); }), "edits[6].grasp.tool: is empty");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(6)->mutable_grasp()->set_radius_m(11); }), "edits[6].grasp.radius_m: 11 is outside (0, 10]");
  EXPECT_EQ(refused([](R& r) { r.mutable_edits(7)->mutable_release()->clear_tool(); }), "edits[7].release.tool: is empty");
}

TEST(EditRequest, AMaterialKeepsWhatIsNotGiven) {
  v1::EditSceneRequest request;
  const auto add = [&](const std::string& zone) -> v1::MaterialSpec& {
    v1::Edit& edit = *request.add_edits();
    edit.set_body("slab");
    edit.mutable_material()->set_zone(zone);
    return *edit.mutable_material()->mutable_material();
  };
  add("").set_young_modulus_pa(4000);
  add("tumor").set_model(v1::MATERIAL_MODEL_MASS_SPRING);
  add("").set_damping_s(0.1);
  ASSERT_EQ(ValidateEditRequest(request), absl::OkStatus());
  const absl::StatusOr<std::vector<sim::Edit>> edits = BuildEdits(request, Targets());
  ASSERT_TRUE(edits.ok()) << edits.status();
  const auto& first = std::get<sim::MaterialEdit>((*edits)[0].what);
  ASSERT_EQ(first.of_zones.size(), 2U);
  EXPECT_EQ(first.of_zones[0].model, sim::MaterialModel::kStVenantKirchhoff);
  EXPECT_EQ(first.of_zones[0].young_modulus_pa, 4000);
  EXPECT_EQ(first.of_zones[0].poisson_ratio, 0.3);
  EXPECT_EQ(first.of_zones[0].mass_damping_per_s, 0.5);
  ASSERT_TRUE(first.of_zones[0].fibers);
  EXPECT_EQ(first.of_zones[0].fibers->young_modulus_pa, 9000);
  EXPECT_EQ(first.of_zones[1].density_kg_per_m3, 1100);
  // Springs have one Poisson ratio; later edits of a request see the earlier ones.
  const auto& last = std::get<sim::MaterialEdit>((*edits)[2].what);
  EXPECT_EQ(last.of_zones[0].young_modulus_pa, 4000);
  EXPECT_EQ(last.of_zones[0].damping_s, 0.1);
  EXPECT_EQ(last.of_zones[1].model, sim::MaterialModel::kMassSpring);
  EXPECT_EQ(last.of_zones[1].poisson_ratio, 0.25);
  EXPECT_EQ(last.of_zones[1].young_modulus_pa, 4000);

  // Fibres go with a model that has none, and cannot be given to it.
  request.clear_edits();
  add("").set_model(v1::MATERIAL_MODEL_COROTATED_LINEAR);
  const absl::StatusOr<std::vector<sim::Edit>> plain = BuildEdits(request, Targets());
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(std::get<sim::MaterialEdit>((*plain)[0].what).of_zones[0].fibers);
  request.mutable_edits(0)->mutable_material()->mutable_material()->mutable_fibers()->mutable_direction()->set_x(1);
  EXPECT_EQ(BuildEdits(request, Targets()).status(),
            absl::InvalidArgumentError("edits[0].material.material.fibers: only the linear and the St-Venant-Kirchhoff model have fibres"));
  request.mutable_edits(0)->mutable_material()->set_zone("cyst");
  EXPECT_EQ(BuildEdits(request, Targets()).status().code(), absl::StatusCode::kNotFound);
}

TEST(EditRequest, WhatTheSceneDoesNotHaveIsNotFound) {
  v1::EditSceneRequest request = EveryEdit();
  request.mutable_edits(3)->set_body("kidney");
  absl::Status status = BuildEdits(request, Targets()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "edits[3].body: the scene has no body \"kidney\"");
  request = EveryEdit();
  request.mutable_edits(7)->mutable_release()->set_tool("hook");
  status = BuildEdits(request, Targets()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "edits[7].release.tool: the scene has no tool \"hook\"");
}

TEST(EditRequest, DamagedBytesAreRefusedOrBecomeSoundEdits) {
  std::mt19937 random(11);
  const std::string whole = EveryEdit().SerializeAsString();
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = whole;
    for (int flips = static_cast<int>(random() % 4); flips >= 0; --flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    v1::EditSceneRequest request;
    if (!request.ParseFromString(bytes)) continue;
    if (absl::Status status = ValidateEditRequest(request); !status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_FALSE(status.message().empty());
      ++refused;
      continue;
    }
    const absl::StatusOr<std::vector<sim::Edit>> edits = BuildEdits(request, Targets());
    if (!edits.ok()) {
      // A material may be unsound only together with what is there.
      const bool is_of_material = edits.status().message().find(".material.material.") != absl::string_view::npos;
      EXPECT_EQ(edits.status().code(), is_of_material ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kNotFound) << edits.status();
      ++refused;
      continue;
    }
    ++accepted;
    for (const sim::Edit& edit : *edits) {
      EXPECT_LT(edit.body, Targets().bodies.size());
      if (const auto* refine = std::get_if<sim::RefineEdit>(&edit.what)) {
        EXPECT_GE(refine->max_edge_m, 1e-5);
      }
      if (const auto* incise = std::get_if<sim::InciseEdit>(&edit.what)) {
        for (const auto& edge : incise->edges_m) EXPECT_TRUE(edge[0].allFinite() && edge[1].allFinite());
      }
    }
  }
  // The damage must reach both sides of the checks to be worth anything.
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 1000);
}

TEST(EditOutcomes, AreEncodedWithNames) {
  const absl::StatusOr<std::vector<sim::Edit>> edits = BuildEdits(EveryEdit(), Targets());
  ASSERT_TRUE(edits.ok());
  std::vector<sim::EditOutcome> outcomes(edits->size());
  sim::EditOutcome& carved = outcomes[0];
  carved.removed_tets = {sim::MakeId<sim::TetId>(3, 1), sim::MakeId<sim::TetId>(9, 2)};
  carved.added_tets = {sim::MakeId<sim::TetId>(3, 2)};
  carved.remapped_tets = {{carved.removed_tets[0], carved.added_tets[0]}};
  carved.removed_vertices = {sim::MakeId<sim::VertexId>(4, 1)};
  carved.added_vertices = {sim::MakeId<sim::VertexId>(5, 1)};
  carved.new_bodies = {2};
  carved.unchanged_count = 6;
  carved.is_refused = true;
  carved.note = "why";
  carved.removed_mass_kg = 0.5;
  carved.min_mean_ratio = 0.25;
  carved.moved = {{2, {{carved.added_tets[0], sim::MakeId<sim::TetId>(0, 1)}}, {}, {}}};
  carved.released_markers = {0, 2};
  outcomes[6].grasped_vertices = 12;
  v1::EditSceneResponse response;
  const std::vector<std::string> bodies = {"slab", "liver", "liver.1"};
  std::vector<v1::MarkerInfo> markers(3);
  markers[0].set_name("seed");
  markers[1].set_name("stays");
  markers[2].set_name("margin");
  EncodeOutcomes(*edits, outcomes, bodies, markers, response);
  ASSERT_EQ(response.outcomes_size(), 8);
  const v1::EditOutcome& out = response.outcomes(0);
  EXPECT_EQ(out.body(), "liver");
  ASSERT_EQ(out.removed_tets_size(), 2);
  EXPECT_EQ(out.removed_tets(1), 0x200000009ULL);
  EXPECT_EQ(out.added_tets(0), 0x200000003ULL);
  EXPECT_EQ(out.remapped_tets(0).parent(), 0x100000003ULL);
  EXPECT_EQ(out.remapped_tets(0).child(), 0x200000003ULL);
  EXPECT_EQ(out.removed_vertices(0), 0x100000004ULL);
  EXPECT_EQ(out.added_vertices(0), 0x100000005ULL);
  EXPECT_EQ(out.new_bodies(0), "liver.1");
  EXPECT_EQ(out.unchanged_count(), 6U);
  EXPECT_TRUE(out.is_refused());
  EXPECT_EQ(out.note(), "why");
  EXPECT_EQ(out.removed_mass_kg(), 0.5);
  EXPECT_EQ(out.min_mean_ratio(), 0.25);
  EXPECT_FALSE(response.outcomes(1).has_min_mean_ratio());
  ASSERT_EQ(out.moved_size(), 1);
  EXPECT_EQ(out.moved(0).body(), "liver.1");
  EXPECT_EQ(out.moved(0).tets(0), 0x200000003ULL);
  EXPECT_EQ(out.moved(0).tets_there(0), 0x100000000ULL);
  EXPECT_THAT(out.released_markers(), ::testing::ElementsAre("seed", "margin"));
  EXPECT_EQ(response.outcomes(6).body(), "");
  EXPECT_EQ(response.outcomes(6).grasped_vertices(), 12U);
}

TEST(EditOutcomes, OfAShellNameTriangles) {
  const absl::StatusOr<std::vector<sim::Edit>> edits = BuildEdits(EveryEdit(), Targets());
  ASSERT_TRUE(edits.ok());
  std::vector<sim::EditOutcome> outcomes(edits->size());
  sim::EditOutcome& carved = outcomes[0];
  carved.removed_triangles = {sim::MakeId<sim::TriangleId>(3, 1)};
  carved.added_triangles = {sim::MakeId<sim::TriangleId>(3, 2)};
  carved.remapped_triangles = {{carved.removed_triangles[0], carved.added_triangles[0]}};
  carved.min_mean_ratio = 0.25;
  carved.moved = {{2, {}, {}, {{carved.added_triangles[0], sim::MakeId<sim::TriangleId>(0, 1)}}}};
  v1::EditSceneResponse response;
  const std::vector<std::string> bodies = {"slab", "liver", "liver.1"};
  EncodeOutcomes(*edits, outcomes, bodies, {}, response);
  const v1::EditOutcome& out = response.outcomes(0);
  EXPECT_THAT(out.removed_triangles(), ::testing::ElementsAre(0x100000003ULL));
  EXPECT_THAT(out.added_triangles(), ::testing::ElementsAre(0x200000003ULL));
  ASSERT_EQ(out.remapped_triangles_size(), 1);
  EXPECT_EQ(out.remapped_triangles(0).parent(), 0x100000003ULL);
  EXPECT_EQ(out.remapped_triangles(0).child(), 0x200000003ULL);
  EXPECT_EQ(out.min_mean_ratio(), 0.25);
  ASSERT_EQ(out.moved_size(), 1);
  EXPECT_THAT(out.moved(0).triangles(), ::testing::ElementsAre(0x200000003ULL));
  EXPECT_THAT(out.moved(0).triangles_there(), ::testing::ElementsAre(0x100000000ULL));
  EXPECT_EQ(out.removed_tets_size(), 0);
}

}  // namespace
}  // namespace palpate::scene::edit_request_test
