#include "sim/world/scene_bodies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/driven_poses.h"
#include "sim/scene/material.h"
#include "sim/scene/nurbs_description.h"
#include "sim/scene/nurbs_shell_body.h"
#include "sim/scene/shell_material.h"
#include "sim/world/enclosed_volume.h"
#include "sim/world/scene_joints.h"
#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

constexpr double kMaxClusterSize_m = 100;
// The margin in mean edges of a body's surface, at most. Contacts are looked for up to twice the margin: with this, in some 450 triangles
// about each vertex of a body's own surface, and far beyond it among all pairs there are.
constexpr double kMaxMarginEdges = 4;
constexpr size_t kMaxLoads = 32;  // of a scene: bits of SceneVertices::loads

/// What a shape-matched body asks of its mesh and its options.
absl::Status CheckShapeMatching(const BodyDescription& body) {
  if (body.simulation != Simulation::kShapeMatched) return absl::OkStatus();
  if (body.kind != BodyKind::kDeformable) return absl::InvalidArgumentError("simulation: only a deformable body is shape-matched");
  const ShapeMatchingOptions& options = body.shape_matching;
  if (!(options.beta <= kMaxShapeBeta)) {
    return absl::InvalidArgumentError(absl::StrCat("shape_matching.beta: ", options.beta, " is above ", kMaxShapeBeta));
  }
  if (options.mode == ShapeMode::kRigid && options.beta > 0) {
    return absl::InvalidArgumentError(absl::StrCat("shape_matching.beta: ", options.beta, ", but clusters that are rigid do not deform"));
  }
  double edges_m = 0;
  for (const auto& tet : body.mesh.tets) {
    for (size_t a = 0; a < 4; ++a) {
      for (size_t b = a + 1; b < 4; ++b) edges_m += (body.mesh.vertices[tet[a]] - body.mesh.vertices[tet[b]]).norm();
    }
  }
  const double mean_m = edges_m / (6.0 * static_cast<double>(body.mesh.tets.size()));
  const double size_m = options.cluster_size_m;
  if (size_m != 0 && !(size_m >= mean_m && size_m <= kMaxClusterSize_m)) {
    return absl::InvalidArgumentError(absl::StrCat("shape_matching.cluster_size_m: ", size_m, " is outside [", mean_m, ", ",
                                                   kMaxClusterSize_m, "], from the mean edge of the mesh on"));
  }
  return absl::OkStatus();
}

absl::Status CheckMaterials(const BodyDescription& body) {
  for (size_t z = 0; z <= body.zones.size(); ++z) {
    if (absl::Status valid = CheckMaterialFor(body.simulation, body.tet_element, MaterialOf(body, z)); !valid.ok()) {
      return Annotate(valid, z == 0 ? std::string("material") : absl::StrCat("zones[", z - 1, "].material"));
    }
    const absl::Status status = TissueOf(MaterialOf(body, z)).status();
    if (!status.ok()) return Annotate(status, z == 0 ? std::string("material") : absl::StrCat("zones[", z - 1, "].material"));
  }
  if ((!body.zones.empty() || !body.surface_zones.empty()) && body.kind != BodyKind::kDeformable) {
    return absl::InvalidArgumentError("zones: only a deformable body has zones");
  }
  return absl::OkStatus();
}

absl::Status CheckSimulation(const BodyDescription& body) {
  const double k = body.volume_stiffness_pa;
  if (!(k >= 0 && std::isfinite(k)) || (k > 0 && (body.kind != BodyKind::kDeformable || body.simulation != Simulation::kDynamic))) {
    return absl::InvalidArgumentError(
        absl::StrCat("volume_stiffness_pa: ", k, " must be finite and not negative, and of a deformable, dynamic body"));
  }
  if (absl::Status valid = CheckElementFor(body.tet_element, body.kind, body.simulation, !body.mesh.tets.empty()); !valid.ok()) {
    return Annotate(valid, "tet_element");
  }
  const double e = body.restitution;
  if (!(e >= 0 && e <= 1) || (e > 0 && body.kind == BodyKind::kDeformable)) {
    return absl::InvalidArgumentError(absl::StrCat("restitution: ", e, " must be in [0, 1], and of a rigid or static body"));
  }
  const double drag = body.drag_coefficient;
  const bool is_moved = body.kind == BodyKind::kRigid || (body.kind == BodyKind::kDeformable && !StartsQuasiStatic(body.simulation));
  if (!(drag >= 0 && std::isfinite(drag)) || (drag > 0 && !is_moved)) {
    return absl::InvalidArgumentError(
        absl::StrCat("drag_coefficient: ", drag, " must be finite and not negative, and of a dynamic, shape-matched or rigid body"));
  }
  if (!StartsQuasiStatic(body.simulation)) return absl::OkStatus();
  if (body.kind != BodyKind::kDeformable) return absl::InvalidArgumentError("simulation: only a deformable body has one");
  if (!body.driven_regions.empty()) return absl::InvalidArgumentError("driven_regions: only a dynamic body has driven regions");
  if (!body.sliding_vertices.empty()) return absl::InvalidArgumentError("sliding_vertices: supports of a quasi-static body cannot slide");
  if (!body.loads.empty()) return absl::InvalidArgumentError("loads: only a dynamic body has loads");
  if (!body.velocity_m_per_s.isZero(0)) return absl::InvalidArgumentError("velocity_m_per_s: only a dynamic body starts to move");
  return absl::OkStatus();
}

absl::Status CheckWind(const WindDescription& wind) {
  if (wind.times_s.empty() || wind.times_s.size() != wind.velocities_m_per_s.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("wind: ", wind.times_s.size(), " times for ", wind.velocities_m_per_s.size(), " velocities"));
  }
  for (size_t i = 0; i < wind.times_s.size(); ++i) {
    if (!std::isfinite(wind.times_s[i]) || !wind.velocities_m_per_s[i].allFinite() || (i > 0 && !(wind.times_s[i] > wind.times_s[i - 1]))) {
      return absl::InvalidArgumentError(absl::StrCat("wind.times_s[", i, "]: is not after the one before, or not finite"));
    }
  }
  if (!(wind.density_kg_per_m3 >= 0 && std::isfinite(wind.density_kg_per_m3))) {
    return absl::InvalidArgumentError(absl::StrCat("wind.density_kg_per_m3: ", wind.density_kg_per_m3, " must be finite and not negative"));
  }
  return absl::OkStatus();
}

/// Mean over the sides of all surface triangles [m]; infinite without any.
double MeanSurfaceEdge_m(const BodyArrays& arrays, const WorldBody& body, const SceneVertices& vertices) {
  double sum_m = 0;
  size_t count = 0;
  for (const auto& triangle : arrays.surface_triangles) {
    if (triangle == kFreeTriangle) continue;
    for (size_t c = 0; c < 3; ++c) {
      const auto at = [&](size_t corner) { return vertices.rest_m[body.HandleOf(arrays.surface_vertices[triangle[corner]])]; };
      sum_m += (at(c) - at((c + 1) % 3)).norm();
      ++count;
    }
  }
  return count == 0 ? std::numeric_limits<double>::infinity() : sum_m / static_cast<double>(count);
}

/// A margin far above the size of a mesh is a mesh in other units than metres: nothing would be out of contact, and all pairs would be.
absl::Status CheckMargin(double margin_m, const std::string& body, double mean_edge_m) {
  if (margin_m <= kMaxMarginEdges * mean_edge_m) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "contact.margin_m: ", margin_m, " is more than ", kMaxMarginEdges, " times the mean edge of the surface of ", body, ", which is ",
      mean_edge_m, " m; a margin of at most ", kMaxMarginEdges * mean_edge_m, " would do, or the body in metres (scale)"));
}

absl::Status CheckNurbs(const BodyDescription& body) {
  if (body.nurbs_shell.has_value() != (body.kind == BodyKind::kDeformable)) {
    return absl::InvalidArgumentError("nurbs: a deformable body with an exact surface is a shell, and no other is");
  }
  if (body.nurbs_shell) PALPATE_RETURN_IF_ERROR(CheckNurbsShell(body));
  if (body.kind == BodyKind::kRigid && !body.nurbs->is_closed) return absl::InvalidArgumentError("nurbs: a rigid body must be closed");
  if (body.mesh.vertices.size() != body.nurbs->vertices.size() || !body.mesh.tets.empty()) {
    return absl::InvalidArgumentError("mesh: a NURBS body has the vertices of its triangles, and no tets");
  }
  return absl::OkStatus();
}

/// What a body's own fields must be, for callers without a spec.
absl::Status CheckBody(const BodyDescription& body) {
  if (body.nurbs != nullptr) {
    PALPATE_RETURN_IF_ERROR(CheckNurbs(body));
  } else if (body.shell) {
    PALPATE_RETURN_IF_ERROR(CheckShell(body));
  } else {
    PALPATE_RETURN_IF_ERROR(ValidateTetMesh(body.mesh));
  }
  if (body.kind != BodyKind::kDeformable &&
      (!body.driven_regions.empty() || !body.fixed_vertices.empty() || !body.sliding_vertices.empty() || body.self_collision)) {
    return absl::InvalidArgumentError("fixed and sliding vertices, driven regions and self-collision need a deformable body");
  }
  PALPATE_RETURN_IF_ERROR(CheckMaterials(body));
  PALPATE_RETURN_IF_ERROR(CheckShapeMatching(body));
  return CheckSimulation(body);
}

/// By the body's own numbers, so that no region names one of another body.
absl::Status CheckDriven(const BodyDescription& body, const std::string& name) {
  std::vector<gpu::TissueDrivenRegion> regions;
  for (const DrivenRegion& region : body.driven_regions) {
    regions.push_back(TissueDrivenRegionOf(region, 0));
    regions.back().vertices = region.vertices;
    for (const DrivenBlend& blend : region.blends) regions.back().blends.push_back({blend.regions, blend.shares});
  }
  const absl::Status sound = gpu::CheckMotions(regions);
  return sound.ok() ? sound : absl::InvalidArgumentError(absl::StrCat(name, ".driven_regions: ", sound.message()));
}

}  // namespace

absl::Status SceneBodies::Build() {
  bodies_.clear();
  vertices_ = {};
  motions_ = {};
  statistics_.clear();
  statistics_known_.clear();
  surfaces_.clear();
  uint32_t markers = 0;
  for (uint32_t b = 0; b < description_.bodies.size(); ++b) {
    const BodyDescription& body = description_.bodies[b];
    const std::string name = absl::StrCat("bodies[", b, "] (", body.name, ")");
    if (absl::Status valid = CheckBody(body); !valid.ok()) return Annotate(valid, name);
    PALPATE_RETURN_IF_ERROR(Add(body, b, name, markers));
    markers += static_cast<uint32_t>(body.markers.size());
  }
  PALPATE_RETURN_IF_ERROR(CheckWind(description_.wind));
  motions_.air_density_kg_per_m3 = description_.wind.density_kg_per_m3;
  PALPATE_RETURN_IF_ERROR(AddBindings());
  return AddJoints();
}

/// Control points of NURBS shells that bodies carry. Precondition: PlaceNurbsBinding of all.
absl::Status SceneBodies::AddBindings() {
  struct OfBody {
    std::vector<MarkerDescription> points;
    std::vector<SceneMotions::Bound> bound;
  };
  std::map<uint32_t, OfBody> carried;  // by body
  uint32_t shell = 0;
  for (const BodyDescription& body : description_.bodies) {
    if (!body.nurbs_shell) continue;
    for (const NurbsShellBinding& binding : body.nurbs_shell->bound) {
      OfBody& of = carried[binding.body];
      for (size_t i = 0; i < binding.control.size(); ++i) {
        const uint32_t j = binding.control[i];
        of.points.push_back(
            {.name = {}, .position_m = Eigen::Vector3d(body.nurbs_shell->model->rest_m[j].data()), .cell = binding.tets[i]});
        of.bound.push_back({shell, j, binding.ignores_contact});
      }
    }
    ++shell;
  }
  for (const auto& [b, of] : carried) {
    const BodyDescription& body = description_.bodies[b];
    const absl::Status valid = bodies_[b]->Carry(body, of.points, static_cast<uint32_t>(motions_.bound.size()));
    if (!valid.ok()) return Annotate(valid, absl::StrCat("bodies[", b, "] (", body.name, "): what it carries"));
    motions_.bound.insert(motions_.bound.end(), of.bound.begin(), of.bound.end());
  }
  return absl::OkStatus();
}

/// Joints, and which vertices they hold.
absl::Status SceneBodies::AddJoints() {
  PALPATE_ASSIGN_OR_RETURN(JointModel model, SceneJoints::ModelOf(description_));
  motions_.joints = std::move(model.joints);
  motions_.joint_mounts = std::move(model.mounts);
  motions_.nurbs_joint_sets = std::move(model.shell_sets);
  for (size_t s = 0; s < model.sets.size(); ++s) {
    const JointSetDescription& set = model.sets[s];
    const std::string name =
        absl::StrCat("joints[", set.joint, "] (", description_.joints[set.joint].name, "): ", set.is_a ? "region_a" : "region_b");
    gpu::TissueJointSet made;
    made.body = set.body;
    Eigen::Vector3d mean(0, 0, 0);
    for (const uint32_t v : set.vertices) {
      const auto error = [&](const std::string& what) { return absl::InvalidArgumentError(absl::StrCat(name, ": vertex ", v, what)); };
      const VertexHandle handle = bodies_[set.body]->HandleOf(v);
      if (handle == kNoHandle) return error(" is of no part of the body that can move");
      if (vertices_.is_fixed[handle] != 0 || vertices_.held[handle] != 0) return error(" is in a fixed region");
      const uint32_t other = vertices_.joint_set[handle];
      if (other != kNoSlot) {
        return error(absl::StrCat(" is held by ", description_.joints[model.sets[other].joint].name,
                                  " too; joints may share a region, but regions no vertex"));
      }
      vertices_.joint_set[handle] = static_cast<uint32_t>(s);
      mean += vertices_.rest_m[handle] / static_cast<double>(set.vertices.size());
    }
    made.origin_m = ToArray(mean);
    motions_.joint_sets.push_back(std::move(made));
  }
  return absl::OkStatus();
}

absl::Status SceneBodies::Add(const BodyDescription& body, uint32_t index, const std::string& name, uint32_t first_marker) {
  const auto base = static_cast<uint32_t>(vertices_.size());
  absl::StatusOr<std::unique_ptr<WorldBody>> made = WorldBody::Create(body, index, &vertices_);
  // Its messages begin with the field.
  if (!made.ok()) return absl::Status(made.status().code(), absl::StrCat(name, made.status().message()));
  bodies_.push_back(*std::move(made));
  const absl::Status marked = bodies_.back()->TakeMarkers(body, first_marker);
  if (!marked.ok()) return absl::Status(marked.code(), absl::StrCat(name, marked.message()));
  const BodyArrays& arrays = *bodies_.back()->arrays();
  const double thickness_m = body.shell ? bodies_.back()->zones().LargestThickness() : body.nurbs_shell ? body.nurbs_shell->thickness_m : 0;
  PALPATE_RETURN_IF_ERROR(
      CheckMargin(description_.contact.margin_m + thickness_m, name, MeanSurfaceEdge_m(arrays, *bodies_.back(), vertices_)));
  // The solver itself gives rigid bodies their motion at the start.
  moves_at_start_ |= body.kind == BodyKind::kDeformable && !body.nurbs_shell && !body.velocity_m_per_s.isZero(0);
  PALPATE_RETURN_IF_ERROR(AddDriven(body, base, name));
  PALPATE_RETURN_IF_ERROR(AddLoads(body, base, name));
  if (body.kind == BodyKind::kRigid) AddRigid(body, index, base);
  if (body.nurbs_shell) motions_.nurbs_shells.push_back(TissueNurbsShellOf(body, index, base));
  BoundarySurface& surface = surfaces_.emplace_back();
  surface.vertices = arrays.surface_vertices.values();
  for (const auto& [a, b, c] : arrays.surface_triangles) surface.triangles.push_back({ToNumber(a), ToNumber(b), ToNumber(c)});
  return absl::OkStatus();
}

absl::Status SceneBodies::AddDriven(const BodyDescription& body, uint32_t base, const std::string& name) {
  PALPATE_RETURN_IF_ERROR(CheckDriven(body, name));
  const auto first_region = static_cast<uint32_t>(motions_.driven.size());
  for (size_t r = 0; r < body.driven_regions.size(); ++r) {
    const DrivenRegion& region = body.driven_regions[r];
    for (const uint32_t v : region.vertices) {
      const auto error = [&](const std::string& what) {
        return absl::InvalidArgumentError(absl::StrCat(name, ".driven_regions[", r, "]: vertex ", v, what));
      };
      if (v >= body.mesh.vertices.size()) return error(absl::StrCat(" is outside [0, ", body.mesh.vertices.size() - 1, "]"));
      const VertexHandle handle{base + v};
      if (vertices_.is_fixed[handle] == 0) return error(" is not fixed");
      if (vertices_.driven[handle] != kNoSlot) return error(" is given twice");
      vertices_.driven[handle] = static_cast<uint32_t>(motions_.driven.size());
    }
    for (size_t i = 0; i < region.blends.size(); ++i) {
      const DrivenBlend& blend = region.blends[i];
      if (blend.regions[0] == r && blend.shares[0] == 1) continue;
      gpu::TissueDrivenBlend of_scene = {.shares = blend.shares};
      for (size_t k = 0; k < 4; ++k) {
        if (blend.regions[k] != DrivenBlend::kRests) of_scene.regions[k] = blend.regions[k] + first_region;
      }
      vertices_.blends.emplace(VertexHandle{base + region.vertices[i]}, of_scene);
    }
    motions_.driven.push_back(TissueDrivenRegionOf(region, first_region));
  }
  return absl::OkStatus();
}

absl::Status SceneBodies::AddLoads(const BodyDescription& body, uint32_t base, const std::string& name) {
  if (body.kind != BodyKind::kDeformable && !body.loads.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ".loads: only a deformable body has loads"));
  }
  for (size_t k = 0; k < body.loads.size(); ++k) {
    const LoadDescription& load = body.loads[k];
    const auto bit = 1U << motions_.loads.size();
    if (motions_.loads.size() == kMaxLoads) {
      return absl::InvalidArgumentError(absl::StrCat(name, ".loads: more than ", kMaxLoads, " in the scene"));
    }
    for (const uint32_t v : load.vertices) {
      if (v >= body.mesh.vertices.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ".loads[", k, "]: vertex ", v, " is outside [0, ", body.mesh.vertices.size() - 1, "]"));
      }
      vertices_.loads[VertexHandle{base + v}] |= bit;
    }
    if (load.surface_zone >= 0) {
      if (static_cast<size_t>(load.surface_zone) >= body.surface_zones.size() || !load.vertices.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(name, ".loads[", k, "].surface_zone: ", load.surface_zone, " is outside [0, ",
                                                       body.surface_zones.size(), "), or the load has vertices as well"));
      }
      bodies_.back()->AddLoadOn(static_cast<size_t>(load.surface_zone), bit);
    }
    gpu::TissueLoad out;
    out.pressure_pa = load.pressure_pa;
    out.force_n = ToArray(load.force_n);
    out.start_s = load.start_s;
    out.duration_s = load.duration_s;
    motions_.loads.push_back(std::move(out));
  }
  return absl::OkStatus();
}

void SceneBodies::AddRigid(const BodyDescription& body, uint32_t index, uint32_t base) {
  const MassProperties mass = MassOf(body, body.material.density_kg_per_m3);
  gpu::TissueRigidBody rigid;
  rigid.body = index;
  rigid.vertices = {base, static_cast<uint32_t>(vertices_.size())};
  rigid.mass_kg = mass.mass_kg;
  rigid.center_m = ToArray(mass.center_m);
  for (int i = 0; i < 9; ++i) rigid.inertia_kg_m2[static_cast<size_t>(i)] = mass.inertia_kg_m2(i / 3, i % 3);
  rigid.velocity_m_per_s = ToArray(body.velocity_m_per_s);
  rigid.angular_velocity_rad_per_s = ToArray(body.angular_velocity_rad_per_s);
  rigid.damping_per_s = body.material.mass_damping_per_s;
  rigid.angular_damping_per_s = body.angular_damping_per_s.value_or(rigid.damping_per_s);
  motions_.rigid.push_back(rigid);
}

SceneBodies::Start SceneBodies::StartOfMotion() const {
  Start start;
  if (!moves_at_start_) return start;
  for (const BodyDescription& body : description_.bodies) {
    const Eigen::Vector3d center = body.kind == BodyKind::kRigid ? MassOf(body, 1).center_m : Eigen::Vector3d::Zero();
    for (const Eigen::Vector3d& x : body.mesh.vertices) {
      const Eigen::Vector3f position = x.cast<float>();
      const Eigen::Vector3f velocity = (body.velocity_m_per_s + body.angular_velocity_rad_per_s.cross(x - center)).cast<float>();
      start.positions_m.insert(start.positions_m.end(), position.data(), position.data() + 3);
      start.velocities_m_per_s.insert(start.velocities_m_per_s.end(), velocity.data(), velocity.data() + 3);
    }
  }
  return start;
}

absl::Status SceneBodies::CheckIndex(size_t body) const {
  if (body < bodies_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("body ", body, " is outside [0, ", bodies_.size(), ")"));
}

std::vector<Eigen::Vector3d> SceneBodies::RestPositions(size_t body_index) const {
  const WorldBody& body = *bodies_[body_index];
  std::vector<Eigen::Vector3d> positions_m(body.vertex_slot_count(), Eigen::Vector3d::Zero());
  for (uint32_t v = 0; v < body.vertex_slot_count(); ++v) {
    if (body.HandleOf(v) == kNoHandle) continue;
    // A driven copy has a solver's place at rest beside its original's (CopyOpening); the mesh has the material's.
    positions_m[v] = body.is_editable() ? body.mesh().PositionOf(v)
                     : body.has_sheet() ? body.sheet().PositionOf(v)
                                        : vertices_.rest_m[body.HandleOf(v)];
  }
  return positions_m;
}

std::vector<TetZoneId> SceneBodies::TetZones(size_t body_index) const {
  const WorldBody& body = *bodies_[body_index];
  const std::vector<std::array<uint32_t, 4>>& tets = body.arrays()->tets;
  std::vector<TetZoneId> zones(tets.size(), 0);
  for (uint32_t t = 0; t < tets.size(); ++t) {
    if (tets[t] != kFreeTet) zones[t] = body.ZoneOf(t);
  }
  return zones;
}

std::vector<ZoneMaterial> SceneBodies::MaterialsOf(size_t body) const {
  const BodyZones& zones = bodies_[body]->zones();
  std::vector<ZoneMaterial> materials;
  for (TetZoneId zone = 0; zone < zones.count(); ++zone) materials.push_back({zones.name(zone), zones.MaterialOf(zone)});
  return materials;
}

bool SceneBodies::HasName(const std::string& name) const {
  return std::any_of(bodies_.begin(), bodies_.end(), [&](const auto& body) { return body->name() == name; });
}

BodyStatistics SceneBodies::StatisticsOf(const WorldBody& body) const {
  const BodyArrays& arrays = *body.arrays();
  BodyStatistics statistics;
  statistics.name = arrays.name;
  if (body.index() < description_.bodies.size() && description_.bodies[body.index()].nurbs != nullptr) {
    statistics.volume_m3 = description_.bodies[body.index()].nurbs->volume_m3;
    statistics.mass_kg = statistics.volume_m3 * body.zones().MaterialOf(0).density_kg_per_m3;
  }
  if (body.index() < description_.bodies.size() && description_.bodies[body.index()].nurbs_shell) {
    const NurbsShellDescription& shell = *description_.bodies[body.index()].nurbs_shell;
    statistics.volume_m3 = NurbsShellArea_m2(*shell.model) * shell.thickness_m;
    statistics.mass_kg = NurbsShellMass_kg(*shell.model);
  }
  if (body.shell() != nullptr) {
    if (!body.has_sheet()) {
      const ShellTotals totals = TotalsOfShell(description_.bodies[body.index()]);
      statistics.volume_m3 = totals.volume_m3;
      statistics.mass_kg = totals.mass_kg;
    }
    for (uint32_t t = 0; body.has_sheet() && t < body.sheet().triangle_slot_count(); ++t) {
      if (!body.sheet().IsTriangle(t)) continue;
      const TetZoneId zone = body.ZoneOfShellAt(t);
      const double volume_m3 = body.sheet().RestArea(t) * body.zones().ThicknessOf(zone);
      statistics.volume_m3 += volume_m3;
      statistics.mass_kg += volume_m3 * body.zones().MaterialOf(zone).density_kg_per_m3;
    }
  }
  statistics.is_volume_released = body.has_released_volume();
  statistics.volume_stiffness_pa = body.volume_stiffness_pa();
  if (statistics.volume_stiffness_pa > 0) statistics.kept_volume_m3 = EnclosedAtRest_m3(body, vertices_);
  statistics.fixed_vertex_count = static_cast<uint32_t>(arrays.fixed_vertices.size());
  for (uint32_t v = 0; v < body.vertex_slot_count(); ++v) statistics.vertex_count += body.HandleOf(v) != kNoHandle ? 1 : 0;
  for (const uint32_t v : arrays.surface_vertices) statistics.surface_vertex_count += v != kNoSlot ? 1 : 0;
  for (const auto& triangle : arrays.surface_triangles) statistics.surface_triangle_count += triangle != kFreeTriangle ? 1 : 0;
  for (uint32_t t = 0; t < arrays.tets.size(); ++t) {
    if (arrays.tets[t] == kFreeTet) continue;
    ++statistics.tet_count;
    if (body.kind() == BodyKind::kDeformable && body.IsQuasiStatic(body.ZoneOf(t))) ++statistics.quasi_static_tets;
    std::array<Eigen::Vector3d, 4> x;
    for (size_t c = 0; c < 4; ++c) x[c] = vertices_.rest_m[body.HandleOf(arrays.tets[t][c])];
    const double volume_m3 = (x[1] - x[0]).cross(x[2] - x[0]).dot(x[3] - x[0]) / 6;
    statistics.volume_m3 += volume_m3;
    statistics.mass_kg += volume_m3 * body.zones().MaterialOf(body.ZoneOf(t)).density_kg_per_m3;
  }
  return statistics;
}

/// Worked out when somebody asks: after an edit that is O(tets of the body).
const std::vector<BodyStatistics>& SceneBodies::Statistics() {
  statistics_.resize(bodies_.size());
  statistics_known_.resize(bodies_.size(), 0);
  for (size_t b = 0; b < bodies_.size(); ++b) {
    if (std::exchange(statistics_known_[b], 1) == 0) statistics_[b] = StatisticsOf(*bodies_[b]);
  }
  return statistics_;
}

}  // namespace palpate::sim
