#pragma once

#include <numeric>

#include "sim/mesh/mass_properties.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/scene/description.h"

namespace palpate::sim {

// What a body is, whether it fills a mesh of tets or an exact surface, or is a shell.

/// Indices into mesh.vertices. Precondition: a valid mesh, or the vertices of the shape or the shell.
inline BoundarySurface SurfaceOf(const BodyDescription& body) {
  if (body.nurbs == nullptr && !body.shell) return ExtractBoundary(body.mesh);
  BoundarySurface surface;
  surface.vertices.resize(body.mesh.vertices.size());
  std::iota(surface.vertices.begin(), surface.vertices.end(), 0U);
  surface.triangles = body.shell ? body.shell->triangles : body.nurbs->triangles;
  return surface;
}

/// In W at rest. Precondition: as above; an exact surface is closed.
inline MassProperties MassOf(const BodyDescription& body, double density_kg_per_m3) {
  if (body.nurbs == nullptr) return ComputeMassProperties(body.mesh, density_kg_per_m3);
  const MassProperties& of_shape = body.nurbs->mass_at_unit_density;
  const Eigen::Matrix3d turn = body.nurbs_pose.rotation.toRotationMatrix();
  MassProperties out;
  out.mass_kg = density_kg_per_m3 * of_shape.mass_kg;
  out.center_m = turn * of_shape.center_m + body.nurbs_pose.position_m;
  out.inertia_kg_m2 = density_kg_per_m3 * turn * of_shape.inertia_kg_m2 * turn.transpose();
  return out;
}

}  // namespace palpate::sim
