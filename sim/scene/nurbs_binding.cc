#include "sim/scene/nurbs_binding.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "sim/mesh/point_location.h"

namespace palpate::sim {

absl::Status PlaceNurbsBinding(const SceneDescription& scene, const BodyDescription& body, NurbsShellBinding* binding) {
  const auto error = [](auto... what) { return absl::InvalidArgumentError(absl::StrCat(what...)); };
  const NurbsShellDescription& shell = *body.nurbs_shell;
  if (binding->body >= scene.bodies.size()) return error("body ", binding->body, " is outside [0, ", scene.bodies.size(), ")");
  const BodyDescription& tissue = scene.bodies[binding->body];
  if (tissue.kind != BodyKind::kDeformable || tissue.simulation != Simulation::kDynamic || tissue.mesh.tets.empty()) {
    return error(tissue.name, " is no dynamic body of tets, and carries no control points");
  }
  std::vector<Eigen::Vector3d> points_m;
  for (size_t i = 0; i < binding->control.size(); ++i) {
    const uint32_t j = binding->control[i];
    if (j >= shell.model->control_count() || (i > 0 && j <= binding->control[i - 1])) {
      return error("control point ", j, " is none of ", body.name, ", or not ascending");
    }
    const auto holds = [j](const NurbsShellBinding& other) { return std::ranges::binary_search(other.control, j); };
    if (std::ranges::binary_search(shell.held, j) || std::ranges::count_if(shell.bound, holds) > 1) {
      return error("control point ", j, " is held or bound by another region too");
    }
    points_m.emplace_back(shell.model->rest_m[j].data());
  }
  if (binding->tets.empty()) {
    for (const PointPlace& place : LocatePoints(tissue.mesh, points_m, 0)) binding->tets.push_back(place.tet);
  }
  if (binding->tets.size() != binding->control.size()) return error(binding->tets.size(), " tets for ", binding->control.size(), " points");
  for (size_t i = 0; i < binding->tets.size(); ++i) {
    if (binding->tets[i] < tissue.mesh.tets.size()) continue;
    const Eigen::Vector3d& p = points_m[i];
    const std::string where = absl::StrFormat("control point %d at (%.4g, %.4g, %.4g) m lies %.3g mm outside %s", binding->control[i],
                                              p.x(), p.y(), p.z(), 1e3 * DistanceToSurface(tissue.mesh, p), tissue.name);
    binding->tets.clear();
    return error(where, "; each must lie in a tet at rest");
  }
  return absl::OkStatus();
}

}  // namespace palpate::sim
