#pragma once

#include <cstdint>
#include <variant>

#include "gpu/base/state_archive.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/scene/description.h"

namespace palpate::sim {

// The fields of a description for archives (gpu/base/state_archive.h): of materials, which edits change, and of all the rest for the hash
// that tells scenes apart. The bindings name every field, so that a new one is not forgotten.

template <typename Archive>
void VisitState(Archive& archive, RigidPose& value) {
  auto& [position, rotation] = value;
  archive(position, rotation);
}

template <typename Archive>
void VisitState(Archive& archive, FiberProperties& value) {
  auto& [direction, young, poisson, shear] = value;
  archive(direction, young, poisson, shear);
}

template <typename Archive>
void VisitState(Archive& archive, Material& value) {
  auto& [model, young, poisson, density, damping, mass_damping, fibers, toughness] = value;
  archive(model, young, poisson, density, damping, mass_damping, fibers, toughness);
}

template <typename Archive>
void VisitState(Archive& archive, ShapeMatchingOptions& value) {
  auto& [mode, beta, cluster_size, keeps_volume] = value;
  archive(mode, beta, cluster_size, keeps_volume);
}

template <typename Archive>
void VisitState(Archive& archive, TetMesh& value) {
  auto& [vertices, tets, texture, tet_groups, groups] = value;
  static_cast<void>(groups);  // their names are those of zones by now
  archive(vertices, tets, texture, tet_groups);
}

template <typename Archive>
void VisitState(Archive& archive, MotionKey& value) {
  auto& [time, shift, turn] = value;
  archive(time, shift, turn);
}

template <typename Archive>
void VisitState(Archive& archive, DrivenBlend& value) {
  auto& [regions, shares] = value;
  archive(regions, shares);
}

template <typename Archive>
void VisitState(Archive& archive, DrivenRegion& value) {
  auto& [vertices, velocity, angular_velocity, center, start, duration, keys, period, ramp, parent, blends] = value;
  archive(vertices, velocity, angular_velocity, center, start, duration, keys, period, ramp, parent, blends);
}

template <typename Archive>
void VisitState(Archive& archive, AblationProperties& value) {
  auto& [energy, cooling_time] = value;
  archive(energy, cooling_time);
}

template <typename Archive>
void VisitState(Archive& archive, OrthotropicProperties& value) {
  auto& [warp, weft_modulus, shear_modulus] = value;
  archive(warp, weft_modulus, shear_modulus);
}

template <typename Archive>
void VisitState(Archive& archive, ZoneDescription& value) {
  auto& [name, material, interior_color, ablation, shell] = value;
  auto& [thickness, is_isotropic, orthotropic, bending, bending_stiffness, strain_limit] = shell;
  archive(name, material, interior_color, ablation, thickness);
  // Nothing of zones without, so that scenes keep their hash.
  if (is_isotropic || orthotropic || bending || bending_stiffness || strain_limit) {
    archive(is_isotropic, orthotropic, bending, bending_stiffness, strain_limit);
  }
}

template <typename Archive>
void VisitState(Archive& archive, SlidingVertex& value) {
  auto& [vertex, held] = value;
  archive(vertex, held);
}

template <typename Archive>
void VisitState(Archive& archive, SurfaceZoneDescription& value) {
  auto& [name, color, triangles] = value;
  archive(name, color, triangles);
}

template <typename Archive>
void VisitState(Archive& archive, LoadDescription& value) {
  auto& [vertices, surface_zone, pressure, force, start, duration] = value;
  archive(vertices, surface_zone, pressure, force, start, duration);
}

template <typename Archive>
void VisitState(Archive& archive, TextureDescription& value) {
  auto& [pattern, u_period, coordinates, corners, image] = value;
  std::string image_id = image ? image->id : "";  // names what it holds
  archive(pattern, u_period, coordinates, corners, image_id);
}

/// Without the tet, which follows from the place, and which a world works out.
template <typename Archive>
void VisitState(Archive& archive, MarkerDescription& value) {
  [[maybe_unused]] auto& [name, position, tet] = value;
  archive(name, position);
}

template <typename Archive>
void VisitState(Archive& archive, ShellProperties& value) {
  auto& [thickness, orthotropic, bending, bending_stiffness, strain_limit] = value;
  archive(thickness, orthotropic, bending, bending_stiffness, strain_limit);
}

template <typename Archive>
void VisitState(Archive& archive, ShellDescription& value) {
  archive(value.triangles, static_cast<ShellProperties&>(value));
}

template <typename Archive>
void VisitState(Archive& archive, BodyDescription& value) {
  auto& [name, mesh, kind, simulation, shape_matching, material, fixed_vertices, driven_regions, sliding_vertices, loads, markers, velocity,
         angular_velocity, angular_damping, restitution, drag, volume_stiffness, tet_element, self_collision, color, interior_color,
         ablation, zones, tet_zones, surface_zones, texture, nurbs, nurbs_pose, shell, nurbs_shell] = value;
  archive(name, mesh, kind, simulation, shape_matching, material, fixed_vertices, driven_regions, sliding_vertices, loads, markers,
          velocity, angular_velocity, angular_damping, restitution, drag, volume_stiffness, self_collision, color, interior_color, ablation,
          zones, tet_zones, surface_zones, texture);
  // Nothing of bodies without, so that they keep their hash.
  if (tet_element != TetElement::kLinear) archive(tet_element);
  if (shell) archive(*shell);
  if (nurbs_shell) archive(nurbs_shell->thickness_m, nurbs_shell->held);  // the model follows from the surface
  if (nurbs_shell && !nurbs_shell->driven.empty()) archive(nurbs_shell->driven);
  for (size_t k = 0; nurbs_shell && k < nurbs_shell->bound.size(); ++k) {
    NurbsShellBinding& binding = nurbs_shell->bound[k];  // tets follow from the mesh
    archive(binding.body, binding.control, binding.ignores_contact);
  }
  for (size_t k = 0; nurbs_shell && k < nurbs_shell->supports.size(); ++k) archive(nurbs_shell->supports[k].control);
  if (nurbs == nullptr) return;
  archive(nurbs->tolerance_m, nurbs->triangles, nurbs->volume_m3, nurbs_pose);
  for (const NurbsPatch& patch : nurbs->object.patches()) {
    const NurbsSurface& surface = patch.surface;
    for (const NurbsDirection direction : {NurbsDirection::kU, NurbsDirection::kV}) {
      const std::span<const double> knots = surface.knots(direction);
      archive(static_cast<uint64_t>(surface.degree(direction)), std::vector<double>(knots.begin(), knots.end()));
    }
    for (const Eigen::Vector4d& p : surface.control()) archive(p);
  }
}

template <typename Archive>
void VisitState(Archive& archive, PlaneShape& value) {
  auto& [point, normal] = value;
  archive(point, normal);
}
template <typename Archive>
void VisitState(Archive& archive, SphereShape& value) {
  auto& [center, radius] = value;
  archive(center, radius);
}
template <typename Archive>
void VisitState(Archive& archive, CapsuleShape& value) {
  auto& [end0, end1, radius] = value;
  archive(end0, end1, radius);
}

/// Only written: nobody reads descriptions back.
template <typename Archive>
void VisitState(Archive& archive, ObstacleDescription& value) {
  auto& [name, shape] = value;
  archive(name, static_cast<uint32_t>(shape.index()));
  std::visit([&](auto& of_kind) { archive(of_kind); }, shape);
}

template <typename Archive>
void VisitState(Archive& archive, InstrumentDescription& value) {
  auto& [kind, jaw_length, jaw_radius, max_jaw_angle, max_grasp_force, blade_length, max_power, reach, refine_to] = value;
  archive(kind, jaw_length, jaw_radius, max_jaw_angle, max_grasp_force, blade_length, max_power, reach, refine_to);
}

template <typename Archive>
void VisitState(Archive& archive, TrocarDescription& value) {
  auto& [pivot, axis, min_insertion, max_insertion, max_tilt] = value;
  archive(pivot, axis, min_insertion, max_insertion, max_tilt);
}

template <typename Archive>
void VisitState(Archive& archive, ToolDescription& value) {
  auto& [name, radius, length, rest_pose, drive, response, mass, stiffness, damping, instrument, trocar, energy_hold, command_hold] = value;
  archive(name, radius, length, rest_pose, drive, response, mass, stiffness, damping, instrument, trocar, energy_hold, command_hold);
}

template <typename Archive>
void VisitState(Archive& archive, SolverOptions& value) {
  auto& [iterations, acceleration, coarse_nodes, tolerance, joint_dissipation, report_energy] = value;
  archive(iterations, acceleration, coarse_nodes, tolerance, joint_dissipation, report_energy);
}

template <typename Archive>
void VisitState(Archive& archive, ContactOptions& value) {
  [[maybe_unused]] auto& [margin, friction, stiffness, surface_friction, surface_reserve, max_detections, check_intersections, self_pairs] =
      value;
  archive(margin, friction, stiffness, surface_friction, surface_reserve, max_detections, check_intersections);
}

template <typename Archive>
void VisitState(Archive& archive, HapticOptions& value) {
  auto& [max_constraints, blend_time, range] = value;
  archive(max_constraints, blend_time, range);
}

template <typename Archive>
void VisitState(Archive& archive, JointDriveDescription& value) {
  auto& [kind, speed, max_effort, target, stiffness, damping, times, targets] = value;
  archive(kind, speed, max_effort, target, stiffness, damping, times, targets);
}

template <typename Archive>
void VisitState(Archive& archive, JointControlPoint& value) {
  auto& [control, place, turning] = value;
  archive(control, place, turning);
}

template <typename Archive>
void VisitState(Archive& archive, JointDescription& value) {
  auto& [name, kind, body_a, body_b, point_a, point_b, axis, lower, upper, drive, break_force, break_torque, ignores_contact, vertices_a,
         vertices_b, control_a, control_b, tool_a, tool_b] = value;
  archive(name, kind, body_a, body_b, point_a, point_b, axis, lower, upper, drive, break_force, break_torque, ignores_contact, vertices_a,
          vertices_b, control_a, control_b, tool_a, tool_b);
}

template <typename Archive>
void VisitState(Archive& archive, WindDescription& value) {
  auto& [times, velocities, density] = value;
  archive(times, velocities, density);
}

template <typename Archive>
void VisitState(Archive& archive, SutureDescription& value) {
  auto& [body_a, body_b, vertices, reach] = value;
  archive(body_a, body_b, vertices, reach);
}

template <typename Archive>
void VisitState(Archive& archive, SceneDescription& value) {
  auto& [name, dt, gravity, solver, contact, bodies, obstacles, tools, joints, sutures, wind, haptics, max_tets] = value;
  archive(name, dt, gravity, solver, contact, bodies, obstacles, tools, joints, sutures, wind, haptics, static_cast<uint64_t>(max_tets));
}

}  // namespace palpate::sim
