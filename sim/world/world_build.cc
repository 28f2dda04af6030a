#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "sim/mesh/mass_properties.h"
#include "sim/scene/markers.h"
#include "sim/scene/material.h"
#include "sim/world/world_impl.h"

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
    if (absl::Status valid = CheckMaterialFor(body.simulation, MaterialOf(body, z)); !valid.ok()) {
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
  if (!StartsQuasiStatic(body.simulation)) return absl::OkStatus();
  if (body.kind != BodyKind::kDeformable) return absl::InvalidArgumentError("simulation: only a deformable body has one");
  if (!body.driven_regions.empty()) return absl::InvalidArgumentError("driven_regions: only a dynamic body has driven regions");
  if (!body.sliding_vertices.empty()) return absl::InvalidArgumentError("sliding_vertices: supports of a quasi-static body cannot slide");
  if (!body.loads.empty()) return absl::InvalidArgumentError("loads: only a dynamic body has loads");
  if (!body.velocity_m_per_s.isZero(0)) return absl::InvalidArgumentError("velocity_m_per_s: only a dynamic body starts to move");
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

}  // namespace

/// Bodies, driven regions and rigid bodies at rest, and topology version 1 (or the next one after edits).
absl::Status World::Impl::BuildBodies() {
  bodies_.clear();
  vertices_ = {};
  driven_.clear();
  loads_.clear();
  rigid_.clear();
  statistics_.clear();
  statistics_known_.clear();
  surfaces_.clear();
  markers_.clear();
  auto topology = std::make_shared<WorldTopology>();
  if (topology_ != nullptr) topology->version = topology_->version + 1;
  for (size_t b = 0; b < description_.bodies.size(); ++b) {
    const BodyDescription& body = description_.bodies[b];
    const auto name = [&] { return absl::StrCat("bodies[", b, "] (", body.name, ")"); };
    if (absl::Status valid = ValidateTetMesh(body.mesh); !valid.ok()) return Annotate(valid, name());
    if (body.kind != BodyKind::kDeformable &&
        (!body.driven_regions.empty() || !body.fixed_vertices.empty() || !body.sliding_vertices.empty() || body.self_collision)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(), ": fixed and sliding vertices, driven regions and self-collision need a deformable body"));
    }
    if (absl::Status valid = CheckMaterials(body); !valid.ok()) return Annotate(valid, name());
    if (absl::Status valid = CheckShapeMatching(body); !valid.ok()) return Annotate(valid, name());
    if (absl::Status valid = CheckSimulation(body); !valid.ok()) return Annotate(valid, name());
    const auto base = static_cast<uint32_t>(vertices_.size());
    absl::StatusOr<std::unique_ptr<WorldBody>> made = WorldBody::Create(body, static_cast<uint32_t>(b), &vertices_);
    // Its messages begin with the field.
    if (!made.ok()) return absl::Status(made.status().code(), absl::StrCat(name(), made.status().message()));
    bodies_.push_back(*std::move(made));
    const absl::Status marked = bodies_.back()->TakeMarkers(body, static_cast<uint32_t>(markers_.size()));
    if (!marked.ok()) return absl::Status(marked.code(), absl::StrCat(name(), marked.message()));
    for (const MarkerDescription& marker : body.markers) markers_.push_back({marker.position_m, static_cast<uint32_t>(b), false});
    topology->bodies.push_back(bodies_.back()->arrays());
    const double mean_edge_m = MeanSurfaceEdge_m(*bodies_.back()->arrays(), *bodies_.back(), vertices_);
    PALPATE_RETURN_IF_ERROR(CheckMargin(description_.contact.margin_m, name(), mean_edge_m));
    // The solver itself gives rigid bodies their motion at the start.
    for (int axis = 0; axis < 3; ++axis) moves_at_start_ |= body.kind == BodyKind::kDeformable && body.velocity_m_per_s[axis] != 0;
    for (size_t r = 0; r < body.driven_regions.size(); ++r) {
      const DrivenRegion& region = body.driven_regions[r];
      for (const uint32_t v : region.vertices) {
        const auto error = [&](const std::string& what) {
          return absl::InvalidArgumentError(absl::StrCat(name(), ".driven_regions[", r, "]: vertex ", v, what));
        };
        if (v >= body.mesh.vertices.size()) return error(absl::StrCat(" is outside [0, ", body.mesh.vertices.size() - 1, "]"));
        if (vertices_.is_fixed[base + v] == 0) return error(" is not fixed");
        if (vertices_.driven[base + v] != kNoSlot) return error(" is given twice");
        vertices_.driven[base + v] = static_cast<uint32_t>(driven_.size());
      }
      gpu::TissueDrivenRegion driven;
      driven.velocity_m_per_s = ToArray(region.velocity_m_per_s);
      driven.angular_velocity_rad_per_s = ToArray(region.angular_velocity_rad_per_s);
      driven.center_m = ToArray(region.center_m);
      driven.start_s = region.start_s;
      driven.duration_s = region.duration_s;
      driven_.push_back(std::move(driven));
    }
    if (body.kind != BodyKind::kDeformable && !body.loads.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name(), ".loads: only a deformable body has loads"));
    }
    for (size_t k = 0; k < body.loads.size(); ++k) {
      const LoadDescription& load = body.loads[k];
      if (loads_.size() == kMaxLoads)
        return absl::InvalidArgumentError(absl::StrCat(name(), ".loads: more than ", kMaxLoads, " in the scene"));
      for (const uint32_t v : load.vertices) {
        if (v >= body.mesh.vertices.size()) {
          return absl::InvalidArgumentError(
              absl::StrCat(name(), ".loads[", k, "]: vertex ", v, " is outside [0, ", body.mesh.vertices.size() - 1, "]"));
        }
        vertices_.loads[base + v] |= 1U << loads_.size();
      }
      if (load.surface_zone >= 0) {
        if (static_cast<size_t>(load.surface_zone) >= body.surface_zones.size() || !load.vertices.empty()) {
          return absl::InvalidArgumentError(absl::StrCat(name(), ".loads[", k, "].surface_zone: ", load.surface_zone, " is outside [0, ",
                                                         body.surface_zones.size(), "), or the load has vertices as well"));
        }
        bodies_.back()->AddLoadOn(bodies_.back()->NamedSurfaceZone(static_cast<size_t>(load.surface_zone)), 1U << loads_.size());
      }
      gpu::TissueLoad out;
      out.pressure_pa = load.pressure_pa;
      out.force_n = ToArray(load.force_n);
      out.start_s = load.start_s;
      out.duration_s = load.duration_s;
      loads_.push_back(std::move(out));
    }
    if (body.kind == BodyKind::kRigid) {
      const MassProperties mass = ComputeMassProperties(body.mesh, body.material.density_kg_per_m3);
      gpu::TissueRigidBody rigid;
      rigid.body = static_cast<uint32_t>(b);
      rigid.vertices = {base, static_cast<uint32_t>(vertices_.size())};
      rigid.mass_kg = mass.mass_kg;
      rigid.center_m = ToArray(mass.center_m);
      for (int i = 0; i < 9; ++i) rigid.inertia_kg_m2[static_cast<size_t>(i)] = mass.inertia_kg_m2(i / 3, i % 3);
      rigid.velocity_m_per_s = ToArray(body.velocity_m_per_s);
      rigid.angular_velocity_rad_per_s = ToArray(body.angular_velocity_rad_per_s);
      rigid_.push_back(rigid);
    }
    const BodyArrays& arrays = *bodies_.back()->arrays();
    surfaces_.push_back({arrays.surface_vertices, arrays.surface_triangles});
  }
  quasi_static_ = {};
  PALPATE_RETURN_IF_ERROR(UpdateQuasiStatic(/*eager=*/true));
  topology_ = std::move(topology);
  return absl::OkStatus();
}

BodyStatistics World::Impl::StatisticsOf(const WorldBody& body) const {
  const BodyArrays& arrays = *body.arrays();
  BodyStatistics statistics;
  statistics.name = arrays.name;
  statistics.fixed_vertex_count = static_cast<uint32_t>(arrays.fixed_vertices.size());
  for (uint32_t v = 0; v < body.vertex_slot_count(); ++v) statistics.vertex_count += body.HandleOf(v) != kNoSlot ? 1 : 0;
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
    statistics.mass_kg += volume_m3 * body.MaterialOf(body.ZoneOf(t)).density_kg_per_m3;
  }
  return statistics;
}

/// Worked out when somebody asks: after an edit that is O(tets of the body).
const std::vector<BodyStatistics>& World::Impl::Statistics() {
  statistics_.resize(bodies_.size());
  statistics_known_.resize(bodies_.size(), 0);
  for (size_t b = 0; b < bodies_.size(); ++b) {
    if (std::exchange(statistics_known_[b], 1) == 0) statistics_[b] = StatisticsOf(*bodies_[b]);
  }
  return statistics_;
}

absl::Status World::Impl::Init(std::shared_ptr<gpu::Context> context, SceneDescription description) {
  context_ = std::move(context);
  description_ = std::move(description);
  size_t markers = 0;
  for (size_t b = 0; b < description_.bodies.size(); ++b) {
    BodyDescription& body = description_.bodies[b];
    const auto name = [&] { return absl::StrCat("bodies[", b, "] (", body.name, ")"); };
    markers += body.markers.size();
    if (markers > kMaxMarkers)
      return absl::InvalidArgumentError(absl::StrCat(name(), ".markers: more than ", kMaxMarkers, " in the scene"));
    if (body.markers.empty()) continue;
    if (absl::Status valid = ValidateTetMesh(body.mesh); !valid.ok()) return Annotate(valid, name());
    if (absl::Status placed = PlaceMarkers(&body); !placed.ok()) return absl::Status(placed.code(), absl::StrCat(name(), placed.message()));
  }
  PALPATE_RETURN_IF_ERROR(BuildBodies());
  PALPATE_RETURN_IF_ERROR(CreateSolver());
  // Drivers compile a kernel for good at its first launch, which can take seconds: that time belongs here, not to the first step of the
  // scene.
  PALPATE_RETURN_IF_ERROR(UpdateGathered());
  PALPATE_RETURN_IF_ERROR(solver_->Step(targets_).status());
  return Reset().status();
}

/// A solver of the scene at rest.
absl::Status World::Impl::CreateSolver() {
  MakeModel();
  model_.may_be_at_rest = !model_.prescribed.vertices.empty();
  targets_.clear();
  std::vector<gpu::ColliderDescription> colliders;
  PALPATE_RETURN_IF_ERROR(MakeTools(&colliders));
  // Spheres and capsules that never move are tools that nobody drives: the triangles' faces and edges feel them too, not only the vertices.
  std::vector<gpu::PlaneObstacle> planes;
  for (const ObstacleDescription& obstacle : description_.obstacles) {
    if (const auto* plane = std::get_if<PlaneShape>(&obstacle.shape)) {
      const Eigen::Vector3d n = plane->normal.normalized();
      planes.push_back(
          {{static_cast<float>(n.x()), static_cast<float>(n.y()), static_cast<float>(n.z()), static_cast<float>(n.dot(plane->point_m))}});
      continue;
    }
    gpu::ColliderDescription collider;
    if (const auto* sphere = std::get_if<SphereShape>(&obstacle.shape)) {
      collider.radius_m = sphere->radius_m;
      collider.tip_m = ToArray(sphere->center_m);
    } else {
      const auto& capsule = std::get<CapsuleShape>(obstacle.shape);
      collider.radius_m = capsule.radius_m;
      collider.tip_m = ToArray(capsule.end0_m);
      collider.axis_m = ToArray(capsule.end1_m - capsule.end0_m);
    }
    colliders.push_back(collider);
    targets_.push_back({collider.tip_m, collider.axis_m});
  }

  gpu::TissueOptions options;
  options.dt_s = description_.dt_s;
  options.gravity_m_per_s2 = ToArray(description_.gravity_m_per_s2);
  options.iterations = static_cast<uint32_t>(description_.solver.iterations);
  options.acceleration = description_.solver.acceleration;
  options.report_energy = description_.solver.report_energy;
  options.margin_m = description_.contact.margin_m;
  options.friction = description_.contact.friction;
  options.stiffness_n_per_m = description_.contact.stiffness_n_per_m;
  // The solver takes it from its tets, if it has some.
  if (options.stiffness_n_per_m == 0 && model_.tets.empty()) options.stiffness_n_per_m = quasi_static_.ContactStiffness();
  options.range_m = description_.haptics.range_m;
  options.surface_friction = description_.contact.surface_friction;
  options.surface_reserve_m = description_.contact.surface_reserve_m;
  options.surface_max_detections = static_cast<uint32_t>(std::max(1, description_.contact.surface_max_detections));
  options.check_intersections = description_.contact.check_intersections;
  const gpu::TissueTuning tuning = gpu::TissueTuning::For(context_->device());
  PALPATE_ASSIGN_OR_RETURN(solver_, gpu::TissueSolver::Create(context_, model_, options, colliders, planes, tuning));
  return absl::OkStatus();
}

}  // namespace palpate::sim
