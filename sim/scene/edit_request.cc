#include "sim/scene/edit_request.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/scene/checker.h"
#include "sim/scene/joint_spec.h"
#include "sim/scene/material_spec.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene {
namespace {

static_assert(std::size(kEditKindNames) == std::variant_size_v<decltype(sim::Edit::what)>);

constexpr double kMinEdge_m = 1e-5;
constexpr double kMaxEdge_m = 1;

void CheckPoint(Checker& check, const std::string& path, const v1::Vec3& point) {
  check.RangeVec(path, point, -kMaxCoordinate_m, kMaxCoordinate_m);
}

void CheckRegion(Checker& check, const std::string& path, const v1::EditRegion& region) {
  switch (region.region_case()) {
    case v1::EditRegion::kBall:
      CheckPoint(check, At(path, "ball.center_m"), region.ball().center_m());
      check.RangeAbove(At(path, "ball.radius_m"), region.ball().radius_m(), 0, kMaxRegionRadius_m);
      break;
    case v1::EditRegion::kCapsule:
      CheckPoint(check, At(path, "capsule.end0_m"), region.capsule().end0_m());
      CheckPoint(check, At(path, "capsule.end1_m"), region.capsule().end1_m());
      check.RangeAbove(At(path, "capsule.radius_m"), region.capsule().radius_m(), 0, kMaxRegionRadius_m);
      break;
    case v1::EditRegion::kTets:
      check.Count(At(path, "tets.ids"), region.tets().ids_size(), 1, kMaxListedTets);
      break;
    case v1::EditRegion::kTriangles:
      check.Count(At(path, "triangles.ids"), region.triangles().ids_size(), 1, kMaxListedTets);
      break;
    case v1::EditRegion::kZone:
      check.RequiredName(At(path, "zone"), region.zone(), kMaxNameBytes);
      break;
    case v1::EditRegion::REGION_NOT_SET:
      check.Invalid(path, "no region is given; one of ball, capsule, tets, zone, triangles is needed");
      break;
  }
}

void CheckEdit(Checker& check, const std::string& path, const v1::Edit& edit) {
  const bool is_of_tool = edit.has_grasp() || edit.has_release();
  if (is_of_tool) {
    if (!edit.body().empty()) check.Invalid(At(path, "body"), "is not used by grasp and release, which take what the tool meets");
  } else if (edit.has_joint()) {
    if (!edit.body().empty()) check.Invalid(At(path, "body"), "is not used by joint, which names its own");
  } else {
    check.RequiredName(At(path, "body"), edit.body(), kMaxBodyNameBytes);
  }
  switch (edit.edit_case()) {
    case v1::Edit::kCarve:
      CheckRegion(check, At(path, "carve.region"), edit.carve().region());
      break;
    case v1::Edit::kRefine:
      CheckRegion(check, At(path, "refine.region"), edit.refine().region());
      check.Range(At(path, "refine.max_edge_m"), edit.refine().max_edge_m(), kMinEdge_m, kMaxEdge_m);
      break;
    case v1::Edit::kIncise:
      check.Count(At(path, "incise.edges"), edit.incise().edges_size(), 2, kMaxBladeEdges);
      for (int i = 0; i < edit.incise().edges_size() && check.ok(); ++i) {
        const std::string at = At(At(path, "incise.edges"), i);
        CheckPoint(check, At(at, "end0_m"), edit.incise().edges(i).end0_m());
        CheckPoint(check, At(at, "end1_m"), edit.incise().edges(i).end1_m());
      }
      break;
    case v1::Edit::kMaterial:
      check.Name(At(path, "material.zone"), edit.material().zone(), kMaxNameBytes);
      CheckMaterialRanges(check, At(path, "material.material"), edit.material().material());
      break;
    case v1::Edit::kGrasp:
      check.RequiredName(At(path, "grasp.tool"), edit.grasp().tool(), kMaxNameBytes);
      if (edit.grasp().has_radius_m()) check.RangeAbove(At(path, "grasp.radius_m"), edit.grasp().radius_m(), 0, kMaxRegionRadius_m);
      break;
    case v1::Edit::kRelease:
      check.RequiredName(At(path, "release.tool"), edit.release().tool(), kMaxNameBytes);
      break;
    case v1::Edit::kJoint:
      CheckJointEdit(check, At(path, "joint"), edit.joint());
      break;
    case v1::Edit::EDIT_NOT_SET:
      check.Invalid(path, "no edit is given; one of carve, refine, incise, material, grasp, release, joint is needed");
      break;
  }
}

sim::EditRegion BuildRegion(const v1::EditRegion& region) {
  switch (region.region_case()) {
    case v1::EditRegion::kBall:
      return sim::BallRegion{ToEigen(region.ball().center_m()), region.ball().radius_m()};
    case v1::EditRegion::kCapsule:
      return sim::CapsuleRegion{ToEigen(region.capsule().end0_m()), ToEigen(region.capsule().end1_m()), region.capsule().radius_m()};
    case v1::EditRegion::kTets: {
      sim::TetListRegion list;
      list.tets.reserve(static_cast<size_t>(region.tets().ids_size()));
      for (const uint64_t id : region.tets().ids()) list.tets.push_back(sim::TetId{id});
      return list;
    }
    case v1::EditRegion::kTriangles: {
      sim::TriangleListRegion list;
      list.triangles.reserve(static_cast<size_t>(region.triangles().ids_size()));
      for (const uint64_t id : region.triangles().ids()) list.triangles.push_back(sim::TriangleId{id});
      return list;
    }
    case v1::EditRegion::kZone:
    case v1::EditRegion::REGION_NOT_SET:
      break;
  }
  return sim::ZoneRegion{region.zone()};
}

absl::StatusOr<size_t> IndexOf(const std::vector<std::string>& names, const std::string& name, const std::string& path, const char* what) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return absl::NotFoundError(absl::StrCat(path, ": the scene has no ", what, " \"", name, "\""));
  return static_cast<size_t>(at - names.begin());
}

/// Also notes the change in `present`, for edits that come after it.
absl::StatusOr<sim::MaterialEdit> ChangeMaterials(const v1::MaterialEdit& edit, const std::string& path,
                                                  std::vector<sim::ZoneMaterial>* present) {
  sim::MaterialEdit out{.zone = edit.zone(), .material = {}, .of_zones = {}};
  bool is_known = false;
  for (sim::ZoneMaterial& zone : *present) {
    if (!edit.zone().empty() && zone.zone != edit.zone()) continue;
    PALPATE_ASSIGN_OR_RETURN(zone.material, ChangedMaterial(zone.material, edit.material(), At(path, "material")));
    out.material = zone.material;
    if (edit.zone().empty()) out.of_zones.push_back(zone.material);
    is_known = true;
  }
  if (!is_known) return absl::NotFoundError(absl::StrCat(At(path, "zone"), ": the body has no zone \"", edit.zone(), "\""));
  return out;
}

absl::StatusOr<sim::Edit> BuildEdit(const v1::Edit& edit, const std::string& path, EditTargets& targets) {
  sim::Edit out;
  if (!edit.has_grasp() && !edit.has_release() && !edit.has_joint()) {
    PALPATE_ASSIGN_OR_RETURN(out.body, IndexOf(targets.bodies, edit.body(), At(path, "body"), "body"));
  }
  switch (edit.edit_case()) {
    case v1::Edit::kCarve:
      out.what = sim::CarveEdit{BuildRegion(edit.carve().region())};
      break;
    case v1::Edit::kRefine:
      out.what = sim::RefineEdit{BuildRegion(edit.refine().region()), edit.refine().max_edge_m(), edit.refine().tet_budget(),
                                 edit.refine().triangle_budget()};
      break;
    case v1::Edit::kIncise: {
      sim::InciseEdit incise;
      for (const v1::BladeEdge& edge : edit.incise().edges()) incise.edges_m.push_back({ToEigen(edge.end0_m()), ToEigen(edge.end1_m())});
      out.what = std::move(incise);
      break;
    }
    case v1::Edit::kMaterial: {
      PALPATE_ASSIGN_OR_RETURN(out.what, ChangeMaterials(edit.material(), At(path, "material"), &targets.materials[out.body]));
      break;
    }
    case v1::Edit::kGrasp: {
      PALPATE_ASSIGN_OR_RETURN(const size_t tool, IndexOf(targets.tools, edit.grasp().tool(), At(path, "grasp.tool"), "tool"));
      out.what = sim::GraspEdit{tool, edit.grasp().radius_m()};
      break;
    }
    case v1::Edit::kRelease: {
      PALPATE_ASSIGN_OR_RETURN(const size_t tool, IndexOf(targets.tools, edit.release().tool(), At(path, "release.tool"), "tool"));
      out.what = sim::ReleaseEdit{tool};
      break;
    }
    case v1::Edit::kJoint: {
      PALPATE_ASSIGN_OR_RETURN(out.what, BuildJointEdit(edit.joint(), At(path, "joint"), targets.joints));
      break;
    }
    case v1::Edit::EDIT_NOT_SET:
      return absl::InternalError("edit without a kind passed validation");
  }
  return out;
}

template <typename Id, typename Add>
void AddIds(const std::vector<Id>& ids, Add add) {
  for (const Id id : ids) add(static_cast<uint64_t>(id));
}

}  // namespace

absl::Status ValidateEditRequest(const v1::EditSceneRequest& request) {
  Checker check;
  check.Name("key", request.key(), kMaxEditKeyBytes);
  check.Count("edits", request.edits_size(), 1, kMaxEdits);
  for (int i = 0; i < request.edits_size() && check.ok(); ++i) CheckEdit(check, At("edits", i), request.edits(i));
  return check.status();
}

absl::StatusOr<v1::EditSceneRequest> ParseEditJson(std::string_view text, std::string_view display_name) {
  v1::EditSceneRequest request;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  const auto status = google::protobuf::util::JsonStringToMessage({text.data(), text.size()}, &request, options);
  if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(View(display_name), ": ", std::string(status.message())));
  return request;
}

absl::StatusOr<std::vector<sim::Edit>> BuildEdits(const v1::EditSceneRequest& request, EditTargets targets) {
  std::vector<sim::Edit> out;
  out.reserve(static_cast<size_t>(request.edits_size()));
  for (int i = 0; i < request.edits_size(); ++i) {
    PALPATE_ASSIGN_OR_RETURN(sim::Edit edit, BuildEdit(request.edits(i), At("edits", i), targets));
    out.push_back(std::move(edit));
  }
  return out;
}

void EncodeOutcomes(std::span<const sim::Edit> edits, std::span<const sim::EditOutcome> outcomes, std::span<const std::string> bodies,
                    std::span<const v1::MarkerInfo> markers, v1::EditSceneResponse& out) {
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const sim::EditOutcome& outcome = outcomes[i];
    v1::EditOutcome& o = *out.add_outcomes();
    const auto& what = edits[i].what;
    const bool has_no_body = std::holds_alternative<sim::GraspEdit>(what) || std::holds_alternative<sim::ReleaseEdit>(what) ||
                             std::holds_alternative<sim::JointEdit>(what);
    if (!has_no_body) o.set_body(bodies[edits[i].body]);
    AddIds(outcome.removed_tets, [&o](uint64_t id) { o.add_removed_tets(id); });
    AddIds(outcome.added_tets, [&o](uint64_t id) { o.add_added_tets(id); });
    for (const auto& [parent, child] : outcome.remapped_tets) {
      v1::TetChild& pair = *o.add_remapped_tets();
      pair.set_parent(static_cast<uint64_t>(parent));
      pair.set_child(static_cast<uint64_t>(child));
    }
    AddIds(outcome.removed_triangles, [&o](uint64_t id) { o.add_removed_triangles(id); });
    AddIds(outcome.added_triangles, [&o](uint64_t id) { o.add_added_triangles(id); });
    for (const auto& [parent, child] : outcome.remapped_triangles) {
      v1::TriangleChild& pair = *o.add_remapped_triangles();
      pair.set_parent(static_cast<uint64_t>(parent));
      pair.set_child(static_cast<uint64_t>(child));
    }
    AddIds(outcome.removed_vertices, [&o](uint64_t id) { o.add_removed_vertices(id); });
    AddIds(outcome.added_vertices, [&o](uint64_t id) { o.add_added_vertices(id); });
    for (const uint32_t body : outcome.new_bodies) o.add_new_bodies(bodies[body]);
    o.set_unchanged_count(outcome.unchanged_count);
    o.set_is_refused(outcome.is_refused);
    o.set_note(outcome.note);
    o.set_removed_mass_kg(outcome.removed_mass_kg);
    o.set_grasped_vertices(outcome.grasped_vertices);
    if (outcome.grasp_reach_m > 0) o.set_grasp_reach_m(outcome.grasp_reach_m);
    if (outcome.tissue_distance_m >= 0) o.set_tissue_distance_m(outcome.tissue_distance_m);
    if (!outcome.added_tets.empty() || !outcome.added_triangles.empty()) {
      o.set_min_mean_ratio(outcome.min_mean_ratio);
      o.set_min_edge_ratio(outcome.min_edge_ratio);
    }
    for (const sim::MovedTissue& moved : outcome.moved) {
      v1::MovedTissue& m = *o.add_moved();
      m.set_body(bodies[moved.body]);
      for (const auto& [here, there] : moved.tets) {
        m.add_tets(static_cast<uint64_t>(here));
        m.add_tets_there(static_cast<uint64_t>(there));
      }
      for (const auto& [here, there] : moved.vertices) {
        m.add_vertices(static_cast<uint64_t>(here));
        m.add_vertices_there(static_cast<uint64_t>(there));
      }
      for (const auto& [here, there] : moved.triangles) {
        m.add_triangles(static_cast<uint64_t>(here));
        m.add_triangles_there(static_cast<uint64_t>(there));
      }
    }
    for (const uint32_t marker : outcome.released_markers) o.add_released_markers(markers[marker].name());
  }
}

}  // namespace palpate::scene
