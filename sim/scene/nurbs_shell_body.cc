#include "sim/scene/nurbs_shell_body.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/nurbs/nurbs_basis.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/nurbs/nurbs_shell_builder.h"
#include "sim/nurbs/nurbs_shell_couplings.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

/// Places of a surface as means of the control points that are unknowns: these, rising, with weights of at least this.
constexpr double kLeastWeight = 1e-9;

/// Basis function, with weight, of each point of a patch's net whose knot span holds (u, v); `use`: net point, value.
template <typename Use>
void ForEachOfSpan(const NurbsObject& object, const gpu::NurbsShellModel& model, const NurbsGridPlace& place, Use use) {
  const NurbsSurface& surface = object.patches()[place.patch].surface;
  const int p = surface.degree(NurbsDirection::kU), q = surface.degree(NurbsDirection::kV);
  const nurbs_basis::Located u = nurbs_basis::Locate(surface.knots(NurbsDirection::kU), p, place.u);
  const nurbs_basis::Located v = nurbs_basis::Locate(surface.knots(NurbsDirection::kV), q, place.v);
  const nurbs_basis::Basis of_u = nurbs_basis::BasisOf(surface.knots(NurbsDirection::kU), p, u.span, u.t);
  const nurbs_basis::Basis of_v = nurbs_basis::BasisOf(surface.knots(NurbsDirection::kV), q, v.span, v.t);
  const size_t columns = surface.count(NurbsDirection::kV);
  for (int i = 0; i <= p; ++i) {
    for (int j = 0; j <= q; ++j) {
      const size_t point = (u.first + static_cast<size_t>(i)) * columns + v.first + static_cast<size_t>(j);
      use(model.net_begin[place.patch] + point, of_u[static_cast<size_t>(i)] * of_v[static_cast<size_t>(j)] * surface.control()[point].w());
    }
  }
}

std::map<uint32_t, double> MeanAt(const NurbsObject& object, const gpu::NurbsShellModel& model, const NurbsGridPlace& place) {
  std::map<uint32_t, double> mean;
  double sum = 0;
  ForEachOfSpan(object, model, place, [&](size_t net_point, double value) {
    sum += value;
    for (uint32_t k = model.net_part_begin[net_point]; k < model.net_part_begin[net_point + 1]; ++k) {
      mean[model.net_parts[k].control] += value * model.net_parts[k].weight;
    }
  });
  std::erase_if(mean, [&](const auto& part) { return part.second < kLeastWeight * sum; });
  double kept = 0;
  for (const auto& [control, weight] : mean) kept += weight;
  for (auto& [control, weight] : mean) weight /= kept;
  return mean;
}

NurbsShellMaterial ShellMaterialOf(const Material& material, double thickness_m) {
  return {.thickness_m = thickness_m,
          .density_kg_per_m3 = material.density_kg_per_m3,
          .young_modulus_pa = material.young_modulus_pa,
          .poisson_ratio = material.poisson_ratio,
          .damping_s = material.damping_s,
          .mass_damping_per_s = material.mass_damping_per_s};
}

}  // namespace

absl::StatusOr<gpu::NurbsShellModel> NurbsShellModelOf(const NurbsObject& object, const Material& material, double thickness_m,
                                                       double join_tolerance_m) {
  if (material.model != MaterialModel::kStVenantKirchhoff || material.fibers) {
    return absl::InvalidArgumentError("material.model: of a NURBS shell it is St-Venant-Kirchhoff, without fibres");
  }
  if (!(thickness_m > 0 && std::isfinite(thickness_m))) {
    return absl::InvalidArgumentError(absl::StrCat("nurbs.thickness_m: ", thickness_m, " must be positive and finite"));
  }
  return BuildNurbsShell(object, ShellMaterialOf(material, thickness_m), {.join_tolerance_m = join_tolerance_m});
}

absl::StatusOr<std::vector<uint32_t>> HoldNurbsRims(const NurbsObject& object, const Material& material, double thickness_m,
                                                    double join_tolerance_m, bool is_clamped,
                                                    const std::function<bool(const Vector3d& point_m)>& is_held,
                                                    gpu::NurbsShellModel* model) {
  const NurbsShellMaterial of_shell = ShellMaterialOf(material, thickness_m);
  PALPATE_ASSIGN_OR_RETURN(std::vector<uint32_t> frame,
                           NurbsShellCoupler(object, of_shell, model).HoldRims(join_tolerance_m, is_clamped, is_held));
  model->ListEntries();
  return frame;
}

gpu::NurbsShellModel MovedNurbsShell(gpu::NurbsShellModel model, const RigidPose& pose) {
  for (std::array<double, 3>& p : model.rest_m) {
    const Vector3d at = pose.rotation * Vector3d(p[0], p[1], p[2]) + pose.position_m;
    p = {at.x(), at.y(), at.z()};
  }
  return model;
}

absl::Status CheckNurbsShell(const BodyDescription& body) {
  const NurbsShellDescription& shell = *body.nurbs_shell;
  const auto error = [](auto... what) { return absl::InvalidArgumentError(absl::StrCat(what...)); };
  if (body.nurbs == nullptr || shell.model == nullptr) return error("nurbs_shell: the body has no exact surface, or the shell no model");
  if (body.kind != BodyKind::kDeformable || body.simulation != Simulation::kDynamic)
    return error("kind: a NURBS shell is deformable and dynamic");
  if (body.nurbs->vertex_places.size() != body.nurbs->vertices.size()) return error("nurbs: vertices have no places on the surface");
  if (body.shell || !body.zones.empty() || !body.markers.empty() || body.volume_stiffness_pa != 0) {
    return error("nurbs_shell: the body has a shell of triangles, zones, markers or a kept volume as well");
  }
  if (!body.fixed_vertices.empty() || !body.driven_regions.empty() || !body.sliding_vertices.empty()) {
    return error("fixed_vertices: a NURBS shell is held by its control points");
  }
  for (size_t i = 0; i < shell.held.size(); ++i) {
    if (shell.held[i] >= shell.model->control_count() || (i > 0 && shell.held[i] <= shell.held[i - 1])) {
      return error("nurbs_shell.held[", i, "]: ", shell.held[i], " is not a control point after the one before");
    }
  }
  for (size_t k = 0; k < shell.bound.size(); ++k) {
    if (shell.bound[k].control.empty()) return error("nurbs_shell.bound[", k, "]: has no control points");
  }
  std::vector<uint8_t> is_driven(shell.model->control_count(), 0);
  for (size_t r = 0; r < shell.driven.size(); ++r) {
    for (const uint32_t j : shell.driven[r].vertices) {
      if (!std::binary_search(shell.held.begin(), shell.held.end(), j) || std::exchange(is_driven[j], 1) != 0) {
        return error("nurbs_shell.driven[", r, "]: control point ", j, " is not held or is given twice");
      }
    }
  }
  return absl::OkStatus();
}

gpu::TissueNurbsShell TissueNurbsShellOf(const BodyDescription& body, uint32_t index, uint32_t first_vertex) {
  const NurbsShellDescription& shell = *body.nurbs_shell;
  gpu::TissueNurbsShell out;
  out.body = index;
  out.vertices = {first_vertex, first_vertex + static_cast<uint32_t>(body.nurbs->vertices.size())};
  out.model = shell.model;
  out.begins = {0};
  for (const NurbsGridPlace& place : body.nurbs->vertex_places) {
    for (const auto& [control, weight] : MeanAt(body.nurbs->object, *shell.model, place)) {
      out.controls.push_back(control);
      out.weights.push_back(static_cast<float>(weight));
    }
    out.begins.push_back(static_cast<uint32_t>(out.controls.size()));
  }
  out.held = shell.held;
  for (const DrivenRegion& region : shell.driven) {
    gpu::TissueDrivenRegion& driven = out.driven.emplace_back(TissueDrivenRegionOf(region, 0));
    driven.vertices = region.vertices;
  }
  for (const NurbsShellSupport& support : shell.supports) out.supports.push_back(support.control);
  out.velocity_m_per_s = {body.velocity_m_per_s.x(), body.velocity_m_per_s.y(), body.velocity_m_per_s.z()};
  return out;
}

std::vector<JointControlPoint> JointControlPointsAt(const BodyDescription& body, uint32_t patch, double u, double v) {
  const NurbsShellDescription& shell = *body.nurbs_shell;
  const NurbsGridPlace place{.patch = patch, .u = u, .v = v};
  const std::map<uint32_t, double> mean = MeanAt(body.nurbs->object, *shell.model, place);
  std::map<uint32_t, JointControlPoint> points;
  double mass_kg = 0;
  ForEachOfSpan(body.nurbs->object, *shell.model, place, [&](size_t net_point, double /*value*/) {
    for (uint32_t k = shell.model->net_part_begin[net_point]; k < shell.model->net_part_begin[net_point + 1]; ++k) {
      const uint32_t j = shell.model->net_parts[k].control;
      const bool is_held = std::binary_search(shell.held.begin(), shell.held.end(), j) || shell.IsBound(j);
      if ((is_held && !mean.contains(j)) || !points.try_emplace(j, JointControlPoint{.control = j}).second) continue;
      points[j].turning = shell.model->mass_kg[j];
      mass_kg += shell.model->mass_kg[j];
    }
  });
  std::vector<JointControlPoint> out;
  for (auto& [j, point] : points) {
    const auto at = mean.find(j);
    point.place = at == mean.end() ? 0 : at->second;
    point.turning /= mass_kg;
    out.push_back(point);
  }
  return out;
}

std::vector<JointControlPoint> JointControlPointsOf(const BodyDescription& body, std::span<const uint32_t> control) {
  const gpu::NurbsShellModel& model = *body.nurbs_shell->model;
  double mass_kg = 0;
  for (const uint32_t j : control) mass_kg += model.mass_kg[j];
  std::vector<JointControlPoint> out;
  for (const uint32_t j : control)
    out.push_back({.control = j, .place = model.mass_kg[j] / mass_kg, .turning = model.mass_kg[j] / mass_kg});
  return out;
}

Vector3d JointOriginOf(const BodyDescription& body, std::span<const JointControlPoint> control) {
  Vector3d origin = Vector3d::Zero();
  for (const JointControlPoint& point : control) origin += point.place * Vector3d(body.nurbs_shell->model->rest_m[point.control].data());
  return origin;
}

double NurbsShellArea_m2(const gpu::NurbsShellModel& model) {
  // Strips along edges bend on area that patches have already.
  return std::accumulate(model.gauss.begin(), model.gauss.end(), 0.0,
                         [](double sum, const gpu::NurbsShellGauss& gauss) { return sum + (gauss.is_surface ? gauss.area_m2 : 0); });
}

double NurbsShellMass_kg(const gpu::NurbsShellModel& model) { return std::accumulate(model.mass_kg.begin(), model.mass_kg.end(), 0.0); }

}  // namespace palpate::sim
