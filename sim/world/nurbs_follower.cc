#include "sim/world/nurbs_follower.h"

#include <algorithm>

#include <Eigen/SVD>

#include "gpu/dynamics/nurbs_shell_model.h"

namespace palpate::sim {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

Vector3d Into(const RigidPose& pose, const Vector3d& point_m) { return pose.rotation.conjugate() * (point_m - pose.position_m); }
Vector3d OutOf(const RigidPose& pose, const Vector3d& point_m) { return pose.rotation * point_m + pose.position_m; }

/// The rigid motion that brings the points of the shape nearest to where they are now.
RigidPose FitOf(const NurbsBodyShape& shape, const Vector3d& middle_m, const std::vector<float>& positions_m) {
  const size_t count = shape.vertices.size();
  const auto at = [&](size_t v) { return Eigen::Map<const Eigen::Vector3f>(&positions_m[3 * v]).cast<double>(); };
  Vector3d now_m = Vector3d::Zero();
  for (size_t v = 0; v < count; ++v) now_m += at(v);
  now_m /= static_cast<double>(count);
  Matrix3d covariance = Matrix3d::Zero();
  for (size_t v = 0; v < count; ++v) covariance += (at(v) - now_m) * (shape.vertices[v] - middle_m).transpose();
  const Eigen::JacobiSVD<Matrix3d> svd(covariance, Eigen::ComputeFullU | Eigen::ComputeFullV);
  Matrix3d sign = Matrix3d::Identity();
  sign(2, 2) = (svd.matrixU() * svd.matrixV().transpose()).determinant() < 0 ? -1 : 1;
  RigidPose pose;
  pose.rotation = Eigen::Quaterniond(Matrix3d(svd.matrixU() * sign * svd.matrixV().transpose())).normalized();
  if (pose.rotation.w() < 0) pose.rotation.coeffs() *= -1;
  pose.position_m = now_m - pose.rotation * middle_m;
  return pose;
}

/// Control points of all patches from those that are unknowns.
std::vector<float> NetOf(const gpu::NurbsShellModel& model, std::span<const gpu::Float4> control_m) {
  std::vector<float> out;
  out.reserve(3 * model.net_part_begin.size());
  for (size_t point = 0; point + 1 < model.net_part_begin.size(); ++point) {
    Vector3d at_m = Vector3d::Zero();
    for (uint32_t k = model.net_part_begin[point]; k < model.net_part_begin[point + 1]; ++k) {
      const gpu::Float4& p = control_m[model.net_parts[k].control];
      at_m += model.net_parts[k].weight * Vector3d(p.x, p.y, p.z);
    }
    for (int axis = 0; axis < 3; ++axis) out.push_back(static_cast<float>(at_m[axis]));
  }
  return out;
}

}  // namespace

void NurbsFollower::MakeKnown() {
  known_.assign(description_.bodies.size(), {});
  nearest_.clear();
  nearest_.resize(known_.size());
  for (size_t b = 0; b < known_.size(); ++b) {
    const NurbsBodyShape* shape = description_.bodies[b].nurbs.get();
    if (shape == nullptr) continue;
    Known& known = known_[b];
    known.is_nurbs = true;
    for (const Vector3d& p : shape->vertices) known.middle_m += p / static_cast<double>(shape->vertices.size());
    known.vertex_triangle.resize(shape->vertices.size());
    for (uint32_t t = 0; t < shape->triangles.size(); ++t) {
      for (const uint32_t v : shape->triangles[t]) known.vertex_triangle[v] = t;
    }
  }
}

bool NurbsFollower::Place(std::span<const gpu::Float4> control_m, Frame* frame) {
  if (known_.size() != description_.bodies.size()) MakeKnown();
  const bool is_any = std::any_of(known_.begin(), known_.end(), [](const Known& known) { return known.is_nurbs; });
  if (!is_any) return false;
  frame->nurbs.poses.resize(bodies_.size());
  frame->nurbs.control_m.resize(bodies_.size());
  size_t first = 0;
  for (size_t b = 0; b < known_.size(); ++b) {
    if (!known_[b].is_nurbs) continue;
    const BodyDescription& body = description_.bodies[b];
    if (body.nurbs_shell) {
      const gpu::NurbsShellModel& model = *body.nurbs_shell->model;
      frame->nurbs.control_m[b] = NetOf(model, control_m.subspan(first, model.control_count()));
      first += model.control_count();
      nearest_[b] = nullptr;
      continue;
    }
    frame->nurbs.poses[b] =
        body.kind == BodyKind::kStatic ? body.nurbs_pose : FitOf(*body.nurbs, known_[b].middle_m, frame->surface_positions_m[b]);
  }
  return true;
}

const NurbsNearest& NurbsFollower::NearestOf(const Frame& frame, uint32_t body) const {
  std::unique_ptr<const NurbsNearest>& nearest = nearest_[body];
  if (nearest == nullptr) {
    const std::vector<float>& control = frame.nurbs.control_m[body];
    std::vector<Vector3d> points_m;
    for (size_t i = 0; i + 2 < control.size(); i += 3) points_m.emplace_back(control[i], control[i + 1], control[i + 2]);
    nearest = std::make_unique<const NurbsNearest>(description_.bodies[body].nurbs->object.WithControlPoints(points_m));
  }
  return *nearest;
}

FrameNurbsPlace NurbsFollower::Near(const Frame& frame, uint32_t body, uint32_t triangle, const Vector3d& point_m) const {
  const NurbsBodyShape& shape = *description_.bodies[body].nurbs;
  if (IsShell(body)) {
    const NurbsPlace place = NearestOf(frame, body).NearestFrom(shape.triangle_places[triangle], point_m);
    return {place.patch, place.uv.x(), place.uv.y(), place.point_m};
  }
  const RigidPose& pose = *frame.nurbs.poses[body];
  const Vector3d local_m = Into(pose, point_m);
  NurbsPlace place = shape.nearest.NearestFrom(shape.triangle_places[triangle], local_m);
  // The surface is no farther than the tolerance. If this is, it is of another face than the contact: one of an edge, far from the start.
  if ((place.point_m - local_m).norm() > shape.tolerance_m) {
    const NurbsPlace other = shape.nearest.Nearest(local_m);
    if ((other.point_m - local_m).norm() < (place.point_m - local_m).norm()) place = other;
  }
  return {place.patch, place.uv.x(), place.uv.y(), OutOf(pose, place.point_m)};
}

std::optional<FrameNurbsPlace> NurbsFollower::NearTriangle(const Frame& frame, uint32_t body, uint32_t triangle,
                                                           const Vector3d& point_m) const {
  if (!IsNurbs(body)) return std::nullopt;
  return Near(frame, body, triangle, point_m);
}

std::optional<FrameNurbsPlace> NurbsFollower::NearVertex(const Frame& frame, uint32_t body, uint32_t vertex,
                                                         const Vector3d& point_m) const {
  if (!IsNurbs(body)) return std::nullopt;
  return Near(frame, body, known_[body].vertex_triangle[vertex], point_m);
}

NurbsApproach NurbsFollower::Approach(const Frame& frame, uint32_t body, uint32_t triangle, const Vector3d& end0_m,
                                      const Vector3d& end1_m) const {
  const NurbsBodyShape& shape = *description_.bodies[body].nurbs;
  if (IsShell(body)) return NearestOf(frame, body).Approach(shape.triangle_places[triangle], end0_m, end1_m);
  const RigidPose& pose = *frame.nurbs.poses[body];
  NurbsApproach out = shape.nearest.Approach(shape.triangle_places[triangle], Into(pose, end0_m), Into(pose, end1_m));
  const Matrix3d turn = pose.rotation.toRotationMatrix();
  out.place.point_m = OutOf(pose, out.place.point_m);
  out.on_segment_m = OutOf(pose, out.on_segment_m);
  out.normal = turn * out.normal;
  out.curvature_per_m = turn * out.curvature_per_m * turn.transpose();
  return out;
}

}  // namespace palpate::sim
