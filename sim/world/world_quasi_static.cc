// Tissue without inertia: where it goes before a step, and what the step says of its contacts.
#include <algorithm>
#include <optional>
#include <utility>

#include "sim/world/world_impl.h"
#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

/// Weights of the point of a triangle nearest to `point`, which lies on it but for rounding.
std::array<double, 3> WeightsOf(const Vector3d& point, const std::array<Vector3d, 3>& x) {
  const Vector3d normal = (x[1] - x[0]).cross(x[2] - x[0]);
  const double area = normal.squaredNorm();
  if (!(area > 0)) return {1, 0, 0};
  std::array<double, 3> weights{};
  double sum = 0;
  for (size_t c = 0; c < 3; ++c) {
    const double w = (x[(c + 2) % 3] - x[(c + 1) % 3]).cross(point - x[(c + 1) % 3]).dot(normal) / area;
    weights[c] = std::clamp(w, 0.0, 1.0);
    sum += weights[c];
  }
  for (double& w : weights) w /= sum;
  return weights;
}

/// Place of `point` on the edge from a to b, in [0, 1].
double PlaceOn(const Vector3d& point, const Vector3d& a, const Vector3d& b) {
  const double length_sq = (b - a).squaredNorm();
  return length_sq > 0 ? std::clamp((point - a).dot(b - a) / length_sq, 0.0, 1.0) : 0.0;
}

}  // namespace

/// After BuildBodies and after edits.
absl::Status World::Impl::UpdateQuasiStatic(bool eager) {
  return quasi_static_.Update(bodies_, description_.gravity_m_per_s2, description_.dt_s, eager, &vertices_);
}

absl::Status World::Impl::PrescribeQuasiStatic() {
  if (quasi_static_.empty()) return absl::OkStatus();
  return solver_->SetPrescribed(quasi_static_.Solve(solver_->step_params(), rack_.targets(), grasping_.anchors()));
}

absl::Status World::Impl::FollowQuasiStatic(const gpu::TissueStep& step) {
  if (quasi_static_.empty()) return absl::OkStatus();
  const PlacesOfVertices places = TakeReached(step);
  std::vector<QuasiStatic::Contact> contacts;
  for (const gpu::ContactReport& report : step.contacts) {
    const bool is_plane = report.collider == QuasiStatic::kNone;
    const std::optional<QuasiStatic::Contact> contact = is_plane ? OnPlane(report) : OnCollider(report, places);
    if (contact) contacts.push_back(*contact);
  }
  for (const gpu::SurfaceReport& report : step.surface_contacts) {
    const std::optional<QuasiStatic::Contact> contact = BetweenSurfaces(report, places);
    if (contact) contacts.push_back(*contact);
  }
  quasi_static_.SetContacts(std::move(contacts), step.colliders);
  if (quasi_static_.has_interfaces()) {
    std::vector<float> forces(vertices_.size() * 3);
    PALPATE_RETURN_IF_ERROR(solver_->ReadForces(gpu::kElasticForces, forces));
    quasi_static_.SetJoined(forces);
  }
  return absl::OkStatus();
}

/// Tells the tissue where it came to. Returns where the vertices of all surfaces are.
World::Impl::PlacesOfVertices World::Impl::TakeReached(const gpu::TissueStep& step) {
  PlacesOfVertices places(vertices_.size(), Eigen::Vector3f::Zero());
  std::vector<std::pair<VertexHandle, Eigen::Vector3f>> reached;
  size_t at = 0;  // in the order of FramePublisher::ListGathered
  for (const auto& body : bodies_) {
    for (const uint32_t v : body->arrays()->surface_vertices) {
      if (v == kNoSlot) continue;
      const VertexHandle handle = body->HandleOf(v);
      places[handle] = {step.gathered_m[at], step.gathered_m[at + 1], step.gathered_m[at + 2]};
      at += 3;
      if (vertices_.is_prescribed[handle] != 0) reached.emplace_back(handle, places[handle]);
    }
  }
  quasi_static_.SetReached(reached);
  return places;
}

/// Nothing if the vertex is not quasi-static.
std::optional<QuasiStatic::Contact> World::Impl::OnPlane(const gpu::ContactReport& report) const {
  const VertexHandle handle{report.triangle};
  if (vertices_.is_prescribed[handle] == 0) return std::nullopt;
  QuasiStatic::Contact contact;
  contact.normal = ToVector(report.normal);
  contact.gap_m = report.gap_m;
  contact.friction = solver_->step_params().friction;
  contact.stiffness_n_per_m = solver_->step_params().stiffness_n_per_m;
  contact.handles[0] = handle;
  contact.weights[0] = 1;
  contact.vertex_count = 1;
  return contact;
}

QuasiStatic::Contact World::Impl::OnCollider(const gpu::ContactReport& report, const PlacesOfVertices& places) const {
  QuasiStatic::Contact contact;
  contact.normal = ToVector(report.normal);
  contact.gap_m = report.gap_m;
  contact.friction = solver_->step_params().friction;
  contact.collider = report.collider;
  contact.arm = report.arm;
  contact.stiffness_n_per_m = report.normal.w;
  const WorldBody& body = *bodies_[model_.BodyOf(report.triangle)];
  std::array<Vector3d, 3> x;
  for (size_t c = 0; c < 3; ++c) {
    const SurfaceSlot slot = body.arrays()->surface_triangles[model_.SlotOf(report.triangle)][c];
    contact.handles[c] = body.HandleOf(body.arrays()->surface_vertices[slot]);
    x[c] = places[contact.handles[c]].cast<double>();
  }
  const std::array<double, 3> weights = WeightsOf(ToVector(report.point), x);
  std::copy(weights.begin(), weights.end(), contact.weights.begin());
  contact.vertex_count = 3;
  return contact;
}

/// Nothing if no vertex is quasi-static, or the contact does not push.
std::optional<QuasiStatic::Contact> World::Impl::BetweenSurfaces(const gpu::SurfaceReport& report, const PlacesOfVertices& places) const {
  const std::array<VertexHandle, 4> v = HandlesOf(report);
  if (std::none_of(v.begin(), v.end(), [&](VertexHandle handle) { return vertices_.is_prescribed[handle] != 0; })) return std::nullopt;
  const auto place = [&](VertexHandle handle) { return Vector3d(places[handle].cast<double>()); };
  QuasiStatic::Contact contact;
  contact.law = ContactLaw::kBarrier;
  contact.handles = v;
  contact.vertex_count = 4;
  contact.normal = ToVector(report.normal);
  contact.gap_m = report.point_a.w;
  contact.friction = description_.contact.surface_friction;
  if (report.kind == PALPATE_EDGE_EDGE) {
    const double s = PlaceOn(ToVector(report.point_a), place(v[0]), place(v[1]));
    const double t = PlaceOn(ToVector(report.point_b), place(v[2]), place(v[3]));
    contact.weights = {s - 1, -s, 1 - t, t};
  } else {
    const std::array<double, 3> weights = WeightsOf(ToVector(report.point_b), {place(v[1]), place(v[2]), place(v[3])});
    contact.weights = {-1, weights[0], weights[1], weights[2]};
  }
  // Its stiffness is what gives its force: forces are proportional to it.
  ResponseContact unit;
  unit.law = ContactLaw::kBarrier;
  unit.margin_m = solver_->step_params().margin_m;
  unit.gap_m = contact.gap_m;
  unit.normal = contact.normal;
  unit.stiffness_n_per_m = 1;
  unit.slip_full_m = solver_->step_params().slip_m;
  Eigen::Matrix3d unused;
  const double of_unit_n = ContactForce(unit, Vector3d::Zero(), 0, &unused).dot(unit.normal);
  if (!(of_unit_n > 0)) return std::nullopt;
  contact.stiffness_n_per_m = report.normal.w / of_unit_n;
  return contact;
}

}  // namespace palpate::sim
