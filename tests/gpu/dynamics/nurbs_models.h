#pragma once

#include <cstdint>
#include <vector>

#include "gpu/dynamics/tissue_layout.h"
#include "sim/scene/nurbs_description.h"
#include "sim/scene/nurbs_shell_body.h"

// NURBS shells as the solver takes them, for the tests of this folder.
namespace palpate::test {

/// One body after the other, all of them shells.
inline gpu::TissueModel NurbsModelOf(const std::vector<sim::BodyDescription>& bodies) {
  gpu::TissueModel model;
  for (uint32_t b = 0; b < bodies.size(); ++b) {
    const auto first = static_cast<uint32_t>(model.rest_m.size());
    for (const Eigen::Vector3d& p : bodies[b].mesh.vertices) model.rest_m.push_back({p.x(), p.y(), p.z()});
    for (const auto& [i, j, k] : bodies[b].nurbs->triangles) {
      model.surface_triangles.push_back({first + i, first + j, first + k});
      model.triangle_body.push_back(b);
    }
    model.self_collision.push_back(1);
    model.nurbs_shells.push_back(sim::TissueNurbsShellOf(bodies[b], b, first));
  }
  model.fixed.assign(model.rest_m.size(), gpu::kFixedVertex);
  return model;
}

}  // namespace palpate::test
