#include "sim/world/edit_region.h"

#include <algorithm>
#include <array>
#include <variant>

#include <Eigen/Geometry>

#include "sim/instrument/geometry.h"
#include "sim/mesh/signed_distance.h"

namespace palpate::sim {
namespace {

double SquaredDistance(const CapsuleRegion& capsule, const Eigen::Vector3d& point) {
  const Eigen::Vector3d axis = capsule.end1_m - capsule.end0_m;
  const double length_sq = axis.squaredNorm();
  const double t = length_sq > 0 ? std::clamp((point - capsule.end0_m).dot(axis) / length_sq, 0.0, 1.0) : 0.0;
  return (point - capsule.end0_m - t * axis).squaredNorm();
}

/// Whether a convex hull of corners, to which `distance_to` measures, reaches into a capsule.
template <size_t N, typename Distance>
bool Meets(const std::array<Eigen::Vector3d, N>& corners_m, const CapsuleRegion& capsule, const Distance& distance_to) {
  const Eigen::AlignedBox3d box(capsule.end0_m.cwiseMin(capsule.end1_m).array() - capsule.radius_m,
                                capsule.end0_m.cwiseMax(capsule.end1_m).array() + capsule.radius_m);
  Eigen::AlignedBox3d own_box;
  for (const Eigen::Vector3d& corner_m : corners_m) own_box.extend(corner_m);
  if (!box.intersects(own_box)) return false;
  const Eigen::Vector3d axis = capsule.end1_m - capsule.end0_m;
  const auto distance_m = [&](double t) { return distance_to(capsule.end0_m + t * axis); };
  if (axis.isZero(0)) return distance_m(0) <= capsule.radius_m;
  // The distance to a convex body is convex along a line: thirds.
  double from = 0;
  double to = 1;
  for (int i = 0; i < 40; ++i) {
    const double a = from + (to - from) / 3;
    const double b = to - (to - from) / 3;
    const double at_a_m = distance_m(a);
    const double at_b_m = distance_m(b);
    if (std::min(at_a_m, at_b_m) <= capsule.radius_m) return true;
    (at_a_m < at_b_m ? to : from) = at_a_m < at_b_m ? b : a;
  }
  return std::min(distance_m(from), distance_m(to)) <= capsule.radius_m;
}

template <size_t N, typename Distance>
bool MeetsRegionOf(const std::array<Eigen::Vector3d, N>& corners_m, const EditRegion& region, const Distance& distance_to) {
  if (const auto* ball = std::get_if<BallRegion>(&region)) {
    return Meets(corners_m, {ball->center_m, ball->center_m, ball->radius_m}, distance_to);
  }
  if (const auto* capsule = std::get_if<CapsuleRegion>(&region)) return Meets(corners_m, *capsule, distance_to);
  return true;
}

bool IsInside(const EditRegion& region, const Eigen::Vector3d& point_m) {
  if (const auto* ball = std::get_if<BallRegion>(&region)) {
    return (point_m - ball->center_m).squaredNorm() <= ball->radius_m * ball->radius_m;
  }
  const auto& capsule = std::get<CapsuleRegion>(region);
  return SquaredDistance(capsule, point_m) <= capsule.radius_m * capsule.radius_m;
}

}  // namespace

std::vector<TetId> TetsIn(const WorldBody& body, const EditRegion& region) {
  const ClosedMesh& mesh = body.mesh();
  if (const auto* list = std::get_if<TetListRegion>(&region)) return list->tets;
  std::vector<TetId> tets;
  const auto* named = std::get_if<ZoneRegion>(&region);
  const int zone = named == nullptr ? -1 : body.zones().Find(named->zone);
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (!mesh.IsTet(t)) continue;
    bool is_inside = false;
    if (named != nullptr) {
      is_inside = mesh.TetZoneOf(t) == zone;
    } else {
      Eigen::Vector3d center_m = Eigen::Vector3d::Zero();
      for (const uint32_t v : mesh.TetVertices(t)) center_m += body.PositionOf(v) / 4;
      is_inside = IsInside(region, center_m);
    }
    if (is_inside) tets.push_back(mesh.IdOfTet(t));
  }
  return tets;
}

bool MeetsRegion(const WorldBody& body, uint32_t tet, const EditRegion& region) {
  const auto& v = body.mesh().TetVertices(tet);
  const std::array<Eigen::Vector3d, 4> x = {body.PositionOf(v[0]), body.PositionOf(v[1]), body.PositionOf(v[2]), body.PositionOf(v[3])};
  return MeetsRegionOf(x, region, [&x](const Eigen::Vector3d& point_m) { return DistanceToTet(point_m, x); });
}

std::vector<TetId> TetsMeeting(const WorldBody& body, const EditRegion& region) {
  if (!std::holds_alternative<BallRegion>(region) && !std::holds_alternative<CapsuleRegion>(region)) return TetsIn(body, region);
  std::vector<TetId> tets;
  for (uint32_t t = 0; t < body.mesh().tet_slot_count(); ++t) {
    if (body.mesh().IsTet(t) && MeetsRegion(body, t, region)) tets.push_back(body.mesh().IdOfTet(t));
  }
  return tets;
}

std::vector<TriangleId> TrianglesIn(const WorldBody& body, const EditRegion& region) {
  if (const auto* list = std::get_if<TriangleListRegion>(&region)) return list->triangles;
  std::vector<TriangleId> triangles;
  const auto* named = std::get_if<ZoneRegion>(&region);
  const int zone = named == nullptr ? -1 : body.zones().Find(named->zone);
  for (uint32_t t = 0; t < body.sheet().triangle_slot_count(); ++t) {
    if (!body.sheet().IsTriangle(t)) continue;
    if (named != nullptr) {
      if (body.sheet().MaterialZoneOf(t) == zone) triangles.push_back(body.sheet().IdOfTriangle(t));
      continue;
    }
    Eigen::Vector3d center_m = Eigen::Vector3d::Zero();
    for (const uint32_t v : body.sheet().TriangleVertices(t)) center_m += body.PositionOf(v) / 3;
    if (IsInside(region, center_m)) triangles.push_back(body.sheet().IdOfTriangle(t));
  }
  return triangles;
}

bool TriangleMeetsRegion(const WorldBody& body, uint32_t triangle, const EditRegion& region) {
  const auto& v = body.sheet().TriangleVertices(triangle);
  const std::array<Eigen::Vector3d, 3> x = {body.PositionOf(v[0]), body.PositionOf(v[1]), body.PositionOf(v[2])};
  return MeetsRegionOf(x, region,
                       [&x](const Eigen::Vector3d& point_m) { return (point_m - ClosestOnTriangle(point_m, x[0], x[1], x[2])).norm(); });
}

std::vector<TriangleId> TrianglesMeeting(const WorldBody& body, const EditRegion& region) {
  if (!std::holds_alternative<BallRegion>(region) && !std::holds_alternative<CapsuleRegion>(region)) return TrianglesIn(body, region);
  std::vector<TriangleId> triangles;
  for (uint32_t t = 0; t < body.sheet().triangle_slot_count(); ++t) {
    if (body.sheet().IsTriangle(t) && TriangleMeetsRegion(body, t, region)) triangles.push_back(body.sheet().IdOfTriangle(t));
  }
  return triangles;
}

}  // namespace palpate::sim
