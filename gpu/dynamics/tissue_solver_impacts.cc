// Restitution at the end of a step: what presses on what is already on the host, for the reports.
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/tissue_solver_impl.h"

namespace palpate::gpu {
namespace {

Eigen::Vector3d ToVector(const Float4& v) { return {v.x, v.y, v.z}; }

}  // namespace

/// At the start and after each edit.
absl::Status TissueSolver::Impl::SetRestitution(const TissueModel& model) {
  restitution_.clear();
  if (model.restitution.empty() || !rigid_) return absl::OkStatus();
  if (model.restitution.size() != model.self_collision.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("restitution: ", model.restitution.size(), " entries for ", model.self_collision.size(), " bodies"));
  }
  for (size_t b = 0; b < model.restitution.size(); ++b) {
    if (model.restitution[b] >= 0 && model.restitution[b] <= 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("restitution[", b, "]: ", model.restitution[b], " is outside [0, 1]"));
  }
  if (std::none_of(model.restitution.begin(), model.restitution.end(), [](double e) { return e > 0; })) return absl::OkStatus();
  restitution_.assign(layout_.vertex_count, 0.0F);
  for (uint32_t t = 0; t < layout_.triangle_count; ++t) {
    const UInt4& corners = layout_.triangles[t];
    for (const uint32_t v : {corners.x, corners.y, corners.z}) {
      restitution_[v] = static_cast<float>(model.restitution[layout_.triangle_body[t]]);
    }
  }
  return absl::OkStatus();
}

/// The rigid body of a vertex, or that it is part of a wall; nothing for tissue, which bounces as its material does.
std::optional<uint32_t> TissueSolver::Impl::ImpactBody(uint32_t slot) const {
  if (const std::optional<uint32_t> block = rigid_->BlockOf(slot)) return block;
  if (slot < layout_.free_count) return std::nullopt;
  return ImpactContact::kWall;
}

/// What a contact gave a rigid body in the step.
void TissueSolver::Impl::AddOutside(uint32_t body, const Eigen::Vector3d& point_m, const Eigen::Vector3d& force_n, Impacts* out) const {
  const Eigen::Vector3d arm = point_m - ToVector(rigid_->states()[body].center);
  Vector6d impulse;
  impulse << force_n, arm.cross(force_n);
  out->outside.try_emplace(body, Vector6d::Zero()).first->second += options_.dt_s * impulse;
}

void TissueSolver::Impl::AddImpact(const SurfaceReport& r, Impacts* out) const {
  const uint32_t a = ToNumber(layout_.solver_index[r.vertices.x]);
  const uint32_t b = ToNumber(layout_.solver_index[r.kind == PALPATE_VERTEX_TRIANGLE ? r.vertices.y : r.vertices.z]);
  const std::optional<uint32_t> body_a = ImpactBody(a), body_b = ImpactBody(b);
  if (!body_a && body_b && *body_b != ImpactContact::kWall) AddOutside(*body_b, ToVector(r.point_b), ToVector(r.force), out);
  if (!body_b && body_a && *body_a != ImpactContact::kWall) AddOutside(*body_a, ToVector(r.point_a), -ToVector(r.force), out);
  if (!body_a || !body_b || *body_a == *body_b) return;
  out->contacts.push_back({.body_a = *body_a,
                           .body_b = *body_b,
                           .point_m = (ToVector(r.point_a) + ToVector(r.point_b)) / 2,
                           .normal = ToVector(r.normal),
                           .restitution = std::max(restitution_[a], restitution_[b]),
                           .friction = options_.surface_friction});
}

void TissueSolver::Impl::AddImpact(const ContactReport& r, Impacts* out) const {
  const bool is_plane = r.collider >= tools_.collider_count();
  if (r.point.w == 0.0F) return;
  const uint32_t slot = is_plane ? ToNumber(layout_.solver_index[r.triangle]) : layout_.triangles[r.triangle].x;
  const std::optional<uint32_t> body = rigid_->BlockOf(slot);
  if (!body) return;
  ImpactContact contact{.body_b = *body, .point_m = ToVector(r.point), .normal = ToVector(r.normal)};
  contact.restitution = restitution_[slot];
  contact.friction = options_.friction;
  if (!is_plane) {
    const Collider& collider = tools_.states()[r.collider];
    if (collider.device_tip.w > 0) return AddOutside(*body, contact.point_m, ToVector(r.force), out);
    const Eigen::Vector3d way_m =
        ToVector(collider.tip) - ToVector(collider.tip_start) + r.arm * (ToVector(collider.axis) - ToVector(collider.axis_start));
    contact.wall_velocity_m_per_s = way_m / options_.dt_s;
  }
  out->contacts.push_back(contact);
}

/// Contacts that press and of which one side at least is rigid. Coupled tools are moved by what they meet, so they count as tissue does.
TissueSolver::Impl::Impacts TissueSolver::Impl::ListImpacts() const {
  Impacts out;
  for (const SurfaceReport& r : surface_reports_) AddImpact(r, &out);
  for (const ContactReport& r : tools_.reports()) AddImpact(r, &out);
  return out;
}

absl::Status TissueSolver::Impl::Bounce(std::span<const RigidBlockState> before) {
  if (restitution_.empty()) return absl::OkStatus();
  const auto& [x, y, z] = options_.gravity_m_per_s2;
  const RigidImpacts impacts(options_.dt_s, {x, y, z});
  std::vector<RigidBlockState> after(rigid_->states().begin(), rigid_->states().end());
  const HeldRows held = [&](uint32_t body) {
    return rigid_->joints() == nullptr ? std::vector<Vector6d>() : rigid_->joints()->WorldRows(body, after[body]);
  };
  const Impacts found = ListImpacts();
  if (impacts.Apply(before, found.contacts, after, held, found.outside).empty()) return absl::OkStatus();
  return rigid_->TakeMotion(*queue_, after);
}

}  // namespace palpate::gpu
