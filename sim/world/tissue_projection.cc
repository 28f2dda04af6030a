#include "sim/world/tissue_projection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kGapShare = 0.5;        // of the contact margin: left between tool and tissue, so that faces may move a little
constexpr double kReachMargins = 2;      // vertices that near get a limit before they are pushed
constexpr double kAnchorRatio = 20;      // stiffer than a contact: each holds one vertex, so stiffness costs no convergence
constexpr double kCoupledRatio = 20;     // of all anchors of a coupled tool to what drives it
constexpr double kAnchorForce_n = 1e6;   // no limit
constexpr double kYieldShare = 0.25;     // of the inverse stiffness at a vertex: how far it would give way in a step if let go
constexpr double kMostYieldRadii = 0.5;  // but no farther into a tool

}  // namespace

/// The surface of all deformable bodies but shells, vertices by handle.
const ProjectionMesh& TissueProjection::Surface() {
  if (tissue_surface_version_ == topology_->version) return tissue_surface_;
  tissue_surface_version_ = topology_->version;
  std::vector<std::array<uint32_t, 3>> triangles;
  tissue_triangles_.clear();
  for (uint32_t t = 0; t < model_.model().surface_triangles.size(); ++t) {
    const WorldBody& body = *bodies_[model_.BodyOf(t)];
    if (body.kind() != BodyKind::kDeformable || body.is_shell()) continue;  // shells are pushed by forces
    triangles.push_back(model_.model().surface_triangles[t]);
    tissue_triangles_.push_back(t);
  }
  tissue_surface_ = ProjectionMesh(std::move(triangles), vertices_.size());
  return tissue_surface_;
}

/// How far the tool's place at the end of the step will be from where it is told to go, as far as the forces of the step before say.
Vector3d TissueProjection::PredictLag(size_t t) const {
  const ToolDescription& tool = description_.tools[t];
  const ToolState& state = tools_[t];
  if (tool.drive == ToolDrive::kDirect) return Vector3d::Zero();
  const double dt = description_.dt_s;
  const double inertia = tool.mass_kg / (dt * dt);
  const double damping = CouplingDamping(tool) / dt;
  const Vector3d& tip = state.capsules_m[0][0];
  const auto& target = targets_[state.first_collider].tip_m;
  const Vector3d wanted(target[0], target[1], target[2]);
  const Vector3d force = inertia * (tip + dt * state.velocity_m_per_s) + damping * (tip + wanted - state.wanted_tip_m) +
                         tool.coupling_stiffness_n_per_m * wanted + state.tissue_force_n;
  return force / (inertia + damping + tool.coupling_stiffness_n_per_m) - wanted;
}

/// Moves the tissue out of the tools that respond by projection, and shortens the motion of driven ones where that cannot be. Precondition:
/// tools are aimed, SceneVertices::state is up to date.
void TissueProjection::Project(const gpu::TissueLayout& layout) {
  const std::vector<ProjectedContact> before = std::exchange(projected_, {});
  const ProjectionMesh& mesh = Surface();
  const double gap_m = kGapShare * description_.contact.margin_m;
  std::vector<ProjectionCapsule> capsules;
  std::vector<uint32_t> colliders;
  double least_radius_m = std::numeric_limits<double>::infinity();
  for (size_t t = 0; t < tools_.size(); ++t) {
    if (description_.tools[t].response != ToolResponse::kProjection) continue;
    ToolState& state = tools_[t];
    state.held_back_m = 0;
    const Vector3d lag = PredictLag(t);
    for (uint32_t part = 0; part < state.parts.size(); ++part) {
      const gpu::ColliderTarget& target = targets_[state.first_collider + part];
      ProjectionCapsule capsule;
      capsule.tip_from_m = state.capsules_m[part][0];
      capsule.axis_from_m = state.capsules_m[part][1];
      capsule.tip_to_m = Vector3d(target.tip_m[0], target.tip_m[1], target.tip_m[2]) + lag;
      capsule.axis_to_m = {target.axis_m[0], target.axis_m[1], target.axis_m[2]};
      capsule.radius_m = state.parts[part].radius_m + gap_m;
      capsule.clears_tip = state.held.empty() || part < kJawMinusPart;
      least_radius_m = std::min(least_radius_m, state.parts[part].radius_m);
      capsules.push_back(capsule);
      colliders.push_back(state.first_collider + part);
    }
  }

  // Where the tissue would go without the tools: on, or where it was pushed, back a little. So a push ends when the tool leaves faster than
  // that, and among the vertices of an edge or a face the forces settle as those of a contact between them.
  std::vector<Vector3d> from(vertices_.size(), Vector3d::Zero());
  std::vector<Vector3d> to = from;
  for (const VertexHandle handle : vertices_.handles()) {
    if (!vertices_.IsAlive(handle)) continue;
    const uint32_t v = ToNumber(handle);
    from[v] = to[v] = ToVector(vertices_.state[handle].position_m);
    if (vertices_.is_fixed[handle] == 0) to[v] += description_.dt_s * ToVector(vertices_.state[handle].velocity_m_per_s);
  }
  std::vector<uint8_t> is_reset(vertices_.size(), 0);
  for (const ProjectedContact& contact : before) {
    if (!(contact.force_n > 0) || !vertices_.body.contains(contact.handle) || !vertices_.IsAlive(contact.handle) ||
        vertices_.rest_m[contact.handle] != contact.rest_m || vertices_.is_fixed[contact.handle] != 0) {
      continue;
    }
    const uint32_t v = ToNumber(contact.handle);
    if (std::exchange(is_reset[v], uint8_t{1}) == 0) to[v] = from[v];
    const double yield_m_per_n = kYieldShare / layout.vertex_stiffness_n_per_m[layout.solver_index[v]];
    to[v] -= std::min(yield_m_per_n * contact.force_n, kMostYieldRadii * least_radius_m) * contact.normal;
  }

  const ProjectionResult result =
      ProjectOut({.mesh = &mesh, .from_m = from, .to_m = to, .is_fixed = vertices_.is_fixed.values(), .capsules = capsules},
                 {.reach_m = kReachMargins * description_.contact.margin_m});
  if (result.share < 1) {
    for (size_t t = 0; t < tools_.size(); ++t) {
      // What drives a coupled tool yields by itself.
      if (description_.tools[t].response != ToolResponse::kProjection || description_.tools[t].drive != ToolDrive::kDirect) continue;
      ToolState& state = tools_[t];
      const RigidPose wanted = state.aim;
      state.aim.position_m = state.pose.position_m + result.share * (wanted.position_m - state.pose.position_m);
      state.aim.rotation = state.pose.rotation.slerp(result.share, wanted.rotation);
      rack_.SetTargets(t);
      state.held_back_m = (wanted.position_m - state.aim.position_m).norm();
    }
  }
  for (const ProjectionLimit& limit : result.limits) {
    const uint32_t collider = colliders[limit.capsule];
    const ProjectionCapsule& capsule = capsules[limit.capsule];
    ProjectedContact contact;
    contact.handle = VertexHandle{limit.vertex};
    contact.rest_m = vertices_.rest_m[contact.handle];
    contact.collider = collider;
    contact.normal = limit.normal;
    const Vector3d tip = capsule.tip_from_m + result.share * (capsule.tip_to_m - capsule.tip_from_m);
    contact.target_m = limit.limit_m - tip;
    contact.contact_m = limit.contact_m - tip;
    projected_.push_back(contact);
  }
}

/// The anchors of what was projected, after those of what is held.
void TissueProjection::AppendAnchors(double contact_n_per_m, std::vector<gpu::TissueAnchor>* anchors) const {
  std::vector<double> counts(tools_.size(), 0);
  for (const ProjectedContact& contact : projected_) counts[tool_of_collider_[contact.collider]] += 1;
  for (const ProjectedContact& contact : projected_) {
    const size_t t = tool_of_collider_[contact.collider];
    const ToolDescription& tool = description_.tools[t];
    double stiffness_n_per_m = kAnchorRatio * contact_n_per_m;
    if (tool.drive == ToolDrive::kCoupled) {
      const double dt = description_.dt_s;
      const double impedance_n_per_m = tool.mass_kg / (dt * dt) + CouplingDamping(tool) / dt + tool.coupling_stiffness_n_per_m;
      stiffness_n_per_m = std::min(stiffness_n_per_m, kCoupledRatio * impedance_n_per_m / counts[t]);
    }
    anchors->push_back({.vertex = ToNumber(contact.handle),
                        .holder = contact.collider,
                        .target_m = ToArray(contact.target_m),
                        .stiffness_n_per_m = stiffness_n_per_m,
                        .max_force_n = kAnchorForce_n,
                        .normal = ToArray(contact.normal)});
  }
}

/// Takes over the forces of a step; `reports` are those of what AppendAnchors added.
void TissueProjection::Follow(const gpu::TissueStep& step, std::span<const gpu::AnchorReport> reports) {
  for (size_t i = 0; i < projected_.size(); ++i) {
    ProjectedContact& contact = projected_[i];
    contact.force_n = ToVector(reports[i].force).norm();
    const Vector3d tip = ToVector(step.colliders[contact.collider].tip);
    contact.point_m = tip + contact.contact_m;
    contact.separation_m =
        kGapShare * description_.contact.margin_m + contact.normal.dot(ToVector(reports[i].point) - tip - contact.target_m);
    if (!(contact.force_n > 0)) continue;
    ToolState& state = tools_[tool_of_collider_[contact.collider]];
    state.tissue_force_n -= contact.force_n * contact.normal;
  }
}

/// What a station feels of the tissue that a tool keeps away: what pushes, and what comes near.
void TissueProjection::ListLocalContacts(size_t t, std::span<const Vector3d> positions_m, const AddContact& add_contact) {
  const ProjectionMesh& mesh = Surface();
  const ToolState& state = tools_[t];
  const double gap_m = kGapShare * description_.contact.margin_m;
  const auto add = [&](LocalContact contact, uint32_t triangle, const std::array<double, 3>& weights) {
    const uint32_t in_model = tissue_triangles_[triangle];
    contact.damping_s = bodies_[model_.BodyOf(in_model)]->MaterialAt(model_.SlotOf(in_model)).damping_s;
    add_contact(contact, in_model, weights);
  };
  std::vector<uint8_t> is_pushed(mesh.vertex_count(), 0);
  for (const ProjectedContact& pushed : projected_) {
    const uint32_t vertex = ToNumber(pushed.handle);
    if (tool_of_collider_[pushed.collider] != t || !(pushed.force_n > 0) || mesh.TrianglesAt(vertex).empty()) continue;
    is_pushed[vertex] = 1;
    LocalContact contact;
    contact.point_m = pushed.point_m;
    contact.normal_W = -pushed.normal;
    contact.gap_m = pushed.separation_m - gap_m;
    contact.normal_force_n = pushed.force_n;
    const uint32_t triangle = mesh.TrianglesAt(vertex)[0];
    std::array<double, 3> weights{};
    for (size_t c = 0; c < 3; ++c) weights[c] = mesh.triangles()[triangle][c] == vertex ? 1 : 0;
    add(contact, triangle, weights);
  }
  for (size_t part = 0; part < state.parts.size(); ++part) {
    const Vector3d& tip_m = state.capsules_m[part][0];
    const Vector3d& axis_m = state.capsules_m[part][1];
    ProjectionCapsule capsule;
    capsule.tip_from_m = capsule.tip_to_m = tip_m;
    capsule.axis_from_m = capsule.axis_to_m = axis_m;
    const double radius_m = state.parts[part].radius_m;
    capsule.radius_m = radius_m + description_.haptics.range_m;
    for (const uint32_t triangle : FindTouching(mesh, positions_m, capsule)) {
      const auto& corners = mesh.triangles()[triangle];
      if ((is_pushed[corners[0]] | is_pushed[corners[1]] | is_pushed[corners[2]]) != 0) continue;
      const std::array<Vector3d, 3> x = {positions_m[corners[0]], positions_m[corners[1]], positions_m[corners[2]]};
      const SkeletonDistance distance = DistanceToSkeleton(tip_m, axis_m, x);
      if (!(distance.distance_m > 0)) continue;
      LocalContact contact;
      contact.point_m = distance.weights[0] * x[0] + distance.weights[1] * x[1] + distance.weights[2] * x[2];
      contact.normal_W = (tip_m + distance.along * axis_m - contact.point_m) / distance.distance_m;
      contact.gap_m = distance.distance_m - radius_m - gap_m;
      // Nearer than the gap without a force: it is just being touched.
      contact.gap_m = std::max(contact.gap_m, 1e-9);
      add(contact, triangle, {distance.weights[0], distance.weights[1], distance.weights[2]});
    }
  }
}

}  // namespace palpate::sim
