#include "sim/world/edit_checks.h"

#include <cmath>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/scene/material.h"
#include "sim/scene/shell_material.h"
#include "sim/world/scene_joints.h"

namespace palpate::sim {
namespace {

template <typename... T>
struct Overloaded : T... {
  using T::operator()...;
};
template <typename... T>
Overloaded(T...) -> Overloaded<T...>;

/// Lists name what the body has: tets, or triangles of a shell.
absl::Status CheckKindOfRegion(const EditRegion& region, const WorldBody& body) {
  const auto refuse = [&](const char* what) { return absl::InvalidArgumentError(absl::StrCat("region: body ", body.name(), what)); };
  if (std::holds_alternative<TriangleListRegion>(region) && !body.is_shell()) return refuse(" is no shell: it has tets, not triangles");
  if (std::holds_alternative<TetListRegion>(region) && body.is_shell()) return refuse(" is a shell: it has triangles, not tets");
  return absl::OkStatus();
}

absl::Status CheckRegion(const EditRegion& region, const WorldBody& body) {
  PALPATE_RETURN_IF_ERROR(CheckKindOfRegion(region, body));
  const auto positive = [](double radius_m) -> absl::Status {
    if (std::isfinite(radius_m) && radius_m > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("region: radius_m ", radius_m, " must be positive and finite"));
  };
  return std::visit(Overloaded{[&](const BallRegion& ball) -> absl::Status {
                                 if (!ball.center_m.allFinite()) return absl::InvalidArgumentError("region: center_m is not finite");
                                 return positive(ball.radius_m);
                               },
                               [&](const CapsuleRegion& capsule) -> absl::Status {
                                 if (!capsule.end0_m.allFinite() || !capsule.end1_m.allFinite()) {
                                   return absl::InvalidArgumentError("region: an end is not finite");
                                 }
                                 return positive(capsule.radius_m);
                               },
                               [](const TetListRegion&) -> absl::Status { return absl::OkStatus(); },
                               [](const TriangleListRegion&) -> absl::Status { return absl::OkStatus(); },
                               [&](const ZoneRegion& zone) -> absl::Status {
                                 if (body.zones().Find(zone.zone) >= 0) return absl::OkStatus();
                                 return absl::NotFoundError(absl::StrCat("region: body ", body.name(), " has no zone \"", zone.zone, "\""));
                               }},
                    region);
}

absl::Status CheckMaterial(const Material& material) {
  PALPATE_RETURN_IF_ERROR(Annotate(CheckMaterialRanges(material), "material"));
  return Annotate(TissueOf(material).status(), "material");
}

absl::Status CheckIncision(const InciseEdit& incise) {
  if (incise.edges_m.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("edges_m: ", incise.edges_m.size(), " places of the blade, needs 2"));
  }
  for (size_t i = 0; i < incise.edges_m.size(); ++i) {
    if (!incise.edges_m[i][0].allFinite() || !incise.edges_m[i][1].allFinite()) {
      return absl::InvalidArgumentError(absl::StrCat("edges_m[", i, "] is not finite"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMaterialEdit(const MaterialEdit& material, const WorldBody& body) {
  if (body.zones().Find(material.zone) < 0) {
    return absl::NotFoundError(absl::StrCat("zone: body ", body.name(), " has no zone \"", material.zone, "\""));
  }
  if (!material.of_zones.empty() && (!material.zone.empty() || material.of_zones.size() != body.zones().count())) {
    return absl::InvalidArgumentError(
        absl::StrCat("of_zones: ", material.of_zones.size(), " materials for ", body.zones().count(), " zones of the whole body"));
  }
  size_t zone = material.zone.empty() ? 0 : static_cast<size_t>(body.zones().Find(material.zone));
  for (const Material& one : material.of_zones.empty() ? std::vector{material.material} : material.of_zones) {
    if (body.shell() != nullptr) {
      PALPATE_RETURN_IF_ERROR(Annotate(CheckMaterialRanges(one), "material"));
      PALPATE_RETURN_IF_ERROR(ShellTriangleOf(body.zones().ShellOf(static_cast<TetZoneId>(zone++)), one).status());
      continue;
    }
    if (absl::Status valid = CheckMaterialFor(body.simulation(), body.tet_element(), one); !valid.ok()) return Annotate(valid, "material");
    PALPATE_RETURN_IF_ERROR(CheckMaterial(one));
  }
  return absl::OkStatus();
}

absl::Status CheckGrasp(size_t tool, double radius_m, std::span<const ToolDescription> tools) {
  if (tool >= tools.size()) return absl::NotFoundError(absl::StrCat("tool ", tool, " is outside [0, ", tools.size(), ")"));
  if (!tools[tool].instrument.traits().has_jaws) return absl::InvalidArgumentError(absl::StrCat("tool ", tools[tool].name, " has no jaws"));
  if (radius_m >= 0 && std::isfinite(radius_m)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("radius_m ", radius_m, " must not be negative, and finite"));
}

absl::Status CheckJointEdit(const JointEdit& edit, std::span<const JointDescription> joints) {
  if (edit.joint >= joints.size()) return absl::NotFoundError(absl::StrCat("joint ", edit.joint, " is outside [0, ", joints.size(), ")"));
  if (edit.is_released) return absl::OkStatus();
  JointDescription changed = joints[edit.joint];
  changed.drive = edit.drive;
  if (edit.limits) {
    changed.lower = (*edit.limits)[0];
    changed.upper = (*edit.limits)[1];
  }
  return Annotate(CheckJointCoordinate(changed), absl::StrCat("joint ", changed.name));
}

absl::Status CheckShellEdit(const WorldBody& body) {
  if (!body.is_shell() || body.shell() != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("body ", body.name(), " is a NURBS shell, which cannot be edited: neither cut nor refined nor given another material"));
}

}  // namespace

absl::Status CheckEdit(const Edit& edit, std::span<const std::unique_ptr<WorldBody>> bodies, const SceneDescription& scene) {
  const std::vector<ToolDescription>& tools = scene.tools;
  if (const auto* const joint = std::get_if<JointEdit>(&edit.what)) return CheckJointEdit(*joint, scene.joints);
  if (const auto* const grasp = std::get_if<GraspEdit>(&edit.what)) return CheckGrasp(grasp->tool, grasp->radius_m, tools);
  if (const auto* const release = std::get_if<ReleaseEdit>(&edit.what)) return CheckGrasp(release->tool, 0, tools);
  if (edit.body >= bodies.size()) {
    return absl::NotFoundError(absl::StrCat("body ", edit.body, " is outside [0, ", bodies.size(), ")"));
  }
  const WorldBody& body = *bodies[edit.body];
  if (body.kind() != BodyKind::kDeformable) {
    return absl::InvalidArgumentError(absl::StrCat("body ", body.name(), " is not deformable: only tissue can be edited"));
  }
  PALPATE_RETURN_IF_ERROR(CheckShellEdit(body));
  if (!body.is_editable() && !body.has_sheet() && !std::holds_alternative<MaterialEdit>(edit.what)) {
    return absl::InvalidArgumentError(absl::StrCat("body ", body.name(), " cannot be edited: its mesh is not a manifold"));
  }
  if (!body.is_cuttable() && !std::holds_alternative<MaterialEdit>(edit.what)) {
    return absl::FailedPreconditionError(
        absl::StrCat("body ", body.name(), " is pre-computed: its mesh cannot change; a body that is to be cut is hybrid or dynamic"));
  }
  return std::visit(
      Overloaded{[&](const CarveEdit& carve) { return CheckRegion(carve.region, body); },
                 [&](const RefineEdit& refine) -> absl::Status {
                   if (body.is_shell() ? refine.tet_budget > 0 : refine.triangle_budget > 0) {
                     return absl::InvalidArgumentError(absl::StrCat(body.is_shell() ? "tet_budget: body " : "triangle_budget: body ",
                                                                    body.name(), body.is_shell() ? " is a shell" : " is no shell"));
                   }
                   if (!std::isfinite(refine.max_edge_m) || !(refine.max_edge_m > 0)) {
                     return absl::InvalidArgumentError(absl::StrCat("max_edge_m ", refine.max_edge_m, " must be positive and finite"));
                   }
                   return CheckRegion(refine.region, body);
                 },
                 [](const InciseEdit& incise) { return CheckIncision(incise); },
                 [&](const MaterialEdit& material) { return CheckMaterialEdit(material, body); },
                 [](const GraspEdit&) { return absl::OkStatus(); }, [](const ReleaseEdit&) { return absl::OkStatus(); },
                 [](const JointEdit&) { return absl::OkStatus(); }},
      edit.what);
}

}  // namespace palpate::sim
