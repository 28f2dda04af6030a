#include "sim/world/copy_opening.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "gpu/shared/dynamics_types.h"
#include "sim/mesh/exact_predicates.h"

namespace palpate::sim {
namespace {

// Each side of a cut is drawn back by this share of the gap that the lips of a cut have; more than half of it, for normals at an angle.
constexpr double kOpenShare = 0.6;
// A vertex is drawn back only if it sees all triangles around it at least this steeply (sine).
constexpr double kLeastSine = 0.05;
// A tet at a vertex that is drawn back keeps this share of its volume.
constexpr double kLeastVolume = 0.5;
constexpr double kLeastVolumeAway = 0.1;  // of one that sees not all of them

/// The direction whose least fall against the planes of `normals` (unit, outwards) is large: into the solid, seen by all of them. Returns
/// the sine of that least fall.
double InwardDirection(const std::vector<Eigen::Vector3d>& normals, Eigen::Vector3d* best) {
  constexpr int kRounds = 40;
  Eigen::Vector3d u = Eigen::Vector3d::Zero();
  for (const Eigen::Vector3d& n : normals) u -= n;
  double best_fall = -1;
  for (int round = 0; round < kRounds; ++round) {
    if (!(u.norm() > 1e-9)) break;
    u.normalize();
    double fall = 2;
    const Eigen::Vector3d* worst = nullptr;
    for (const Eigen::Vector3d& n : normals) {
      if (-n.dot(u) < fall) {
        fall = -n.dot(u);
        worst = &n;
      }
    }
    if (fall > best_fall) {
      best_fall = fall;
      *best = u;
    }
    if (best_fall > 0.7 || worst == nullptr) break;
    u -= 0.3 * *worst;
  }
  return best_fall;
}

double Volume(const std::array<Eigen::Vector3d, 4>& x) { return (x[1] - x[0]).cross(x[2] - x[0]).dot(x[3] - x[0]) / 6; }

}  // namespace

/// Copies and their originals lie in the same place, where nothing could keep them apart. Each is drawn back a little into its own solid:
/// as long as it sees all triangles around it from behind, what the solid loses it had before, so it cannot meet anything that way. Where
/// nothing sees them all, as in a saddle, the vertex goes away from its copies, as far as what is there leaves room.
void CopyOpening::Open(std::span<const VertexHandle> copied, bool any_folded) {
  const double back_m = kOpenShare * PALPATE_LIP_SHARE * margin_m_;
  std::vector<Eigen::Vector3d> places_m;
  for (const VertexHandle handle : copied) {
    places_m.push_back(vertices_.IsAlive(handle) ? surface_.PositionOf(handle) : Eigen::Vector3d::Constant(NAN));
  }
  std::vector<size_t> unopened;
  std::vector<uint32_t> fan;
  std::vector<Eigen::Vector3d> normals;
  for (size_t i = 0; i < copied.size(); ++i) {
    const VertexHandle handle = copied[i];
    if (!vertices_.IsAlive(handle)) continue;
    const WorldBody& body = *bodies_[vertices_.body[handle]];
    if (body.has_sheet()) {
      OpenSheet(handle);
      continue;
    }
    const uint32_t vertex = vertices_.slot[handle];
    const auto inward = [&](const auto& position_of, Eigen::Vector3d* direction) {
      normals.clear();
      body.mesh().SurfaceFan(vertex, &fan);
      for (const uint32_t triangle : fan) {
        const auto& v = body.mesh().TriangleVertices(triangle);
        const Eigen::Vector3d n = (position_of(v[1]) - position_of(v[0])).cross(position_of(v[2]) - position_of(v[0]));
        if (n.norm() > 1e-16) normals.push_back(n.normalized());
      }
      if (normals.empty() || !(InwardDirection(normals, direction) > kLeastSine)) return false;
      if (vertices_.held[handle] == 0) return true;
      *direction = AlongFreeAxes(handle, *direction);
      return std::all_of(normals.begin(), normals.end(), [&](const Eigen::Vector3d& n) { return -n.dot(*direction) > kLeastSine; });
    };
    Eigen::Vector3d direction;
    if (!inward([&](uint32_t v) { return body.PositionOf(v); }, &direction)) {
      unopened.push_back(i);
      continue;
    }
    double way_m = back_m;
    bool is_open = false;
    std::vector<SceneSurface::Triangle> around;
    std::vector<SceneSurface::Triangle> near;
    if (any_folded) ListAround(handle, back_m, &around, &near);
    for (int halving = 0; halving < 10 && !is_open; ++halving) {
      const Eigen::Vector3d to = places_m[i] + way_m * direction;
      is_open =
          KeepsVolume(handle, to, kLeastVolume) && !(any_folded && PassesThrough(handle, to.cast<float>().cast<double>(), around, near));
      if (is_open) MoveCopy(handle, to);
      if (!is_open) way_m /= 2;
    }
    if (!is_open && any_folded) unopened.push_back(i);
    // A driven vertex goes where its place at rest is taken: there too the two must differ.
    Eigen::Vector3d at_rest;
    if (vertices_.driven[handle] == kNoSlot) continue;
    if (!inward([&](uint32_t v) { return vertices_.rest_m[body.HandleOf(v)]; }, &at_rest)) continue;
    vertices_.rest_m[handle] += way_m * at_rest;
    vertices_.changed.push_back(handle);
  }
  for (const size_t i : unopened) {
    std::vector<VertexHandle> others;
    for (size_t k = 0; k < copied.size(); ++k) {
      if (k != i && places_m[k] == places_m[i]) others.push_back(copied[k]);
    }
    DrawAway(copied[i], others, back_m);
  }
}

/// A move of a vertex without what it is held along.
Eigen::Vector3d CopyOpening::AlongFreeAxes(VertexHandle handle, Eigen::Vector3d move) const {
  for (int axis = 0; axis < 3; ++axis) {
    if ((vertices_.held[handle] >> axis & 1) != 0) move[axis] = 0;
  }
  return move;
}

void CopyOpening::MoveCopy(VertexHandle handle, const Eigen::Vector3d& to_m) {
  const Eigen::Vector3f to = to_m.cast<float>();
  vertices_.state[handle].position_m = {to.x(), to.y(), to.z(), 0.0F};
  vertices_.changed.push_back(handle);
  surface_.FollowMove(handle);
}

/// Whether each tet around a vertex keeps this share of its volume if the vertex goes there.
bool CopyOpening::KeepsVolume(VertexHandle handle, const Eigen::Vector3d& to_m, double least_share) const {
  const WorldBody& body = *bodies_[vertices_.body[handle]];
  const uint32_t vertex = vertices_.slot[handle];
  std::vector<uint32_t> tets;
  body.mesh().TetsAroundVertex(vertex, &tets);
  return std::all_of(tets.begin(), tets.end(), [&](uint32_t tet) {
    std::array<Eigen::Vector3d, 4> x;
    std::array<Eigen::Vector3d, 4> moved;
    for (size_t c = 0; c < 4; ++c) {
      const uint32_t v = body.mesh().TetVertices(tet)[c];
      x[c] = body.PositionOf(v);
      moved[c] = v == vertex ? to_m : x[c];
    }
    const double volume_m3 = Volume(x);
    return !(volume_m3 > 0) || Volume(moved) >= least_share * volume_m3;
  });
}

/// Handles of the triangles around a vertex, it first, and of those that they may meet if it moves by way_m.
void CopyOpening::ListAround(VertexHandle handle, double way_m, std::vector<SceneSurface::Triangle>* fan,
                             std::vector<SceneSurface::Triangle>* near) {
  const WorldBody& body = *bodies_[vertices_.body[handle]];
  std::vector<uint32_t> list;
  Eigen::AlignedBox3d box(surface_.PositionOf(handle));
  fan->clear();
  body.SurfaceFan(vertices_.slot[handle], &list);
  for (const uint32_t triangle : list) {
    SceneSurface::Triangle& corners = fan->emplace_back();
    for (size_t c = 0; c < 3; ++c) {
      corners[c] = body.HandleOf(body.TriangleVertices(triangle)[c]);
      box.extend(surface_.PositionOf(corners[c]));
    }
    while (corners[0] != handle) std::rotate(corners.begin(), corners.begin() + 1, corners.end());
  }
  const Eigen::Vector3d way = Eigen::Vector3d::Constant(way_m);
  std::vector<SceneSurface::Near> found;
  surface_.ListNear({box.min() - way, box.max() + way}, &found);
  near->clear();
  for (const SceneSurface::Near& triangle : found) {
    if (std::find(triangle.corners.begin(), triangle.corners.end(), handle) == triangle.corners.end()) near->push_back(triangle.corners);
  }
}

/// Whether a triangle around a vertex would pass through one of `near` with the vertex there.
bool CopyOpening::PassesThrough(VertexHandle handle, const Eigen::Vector3d& to_m, std::span<const SceneSurface::Triangle> fan,
                                std::span<const SceneSurface::Triangle> near) const {
  const auto at = [&](VertexHandle corner) { return corner == handle ? to_m : surface_.PositionOf(corner); };
  return std::any_of(fan.begin(), fan.end(), [&](const SceneSurface::Triangle& own) {
    return std::any_of(near.begin(), near.end(), [&](const SceneSurface::Triangle& other) {
      for (size_t c = 0; c < 3; ++c) {
        if (SceneSurface::Pierces(other[c], other[(c + 1) % 3], own, at)) return true;
      }
      return SceneSurface::Pierces(handle, own[1], other, at);
    });
  });
}

/// Moves a vertex away from others in the same place by way_m, or less, such that none of its tets turns over, it ends in no tet of the
/// others, and no triangle around it passes through another. O(surface triangles); few vertices need it.
void CopyOpening::DrawAway(VertexHandle handle, std::span<const VertexHandle> others, double way_m) {
  const Eigen::Vector3d from = surface_.PositionOf(handle);
  std::vector<uint32_t> list;

  // Handles of the corners of what is around: of the tets of the others, of the own fan, and of triangles that this may meet.
  std::vector<std::array<VertexHandle, 4>> tets;
  const auto toward_tets = [&](VertexHandle at, std::vector<std::array<VertexHandle, 4>>* corners) {
    Eigen::Vector3d sum = Eigen::Vector3d::Zero();
    const WorldBody& owner = *bodies_[vertices_.body[at]];
    owner.mesh().TetsAroundVertex(vertices_.slot[at], &list);
    for (const uint32_t tet : list) {
      std::array<VertexHandle, 4> handles{};
      Eigen::Vector3d arm = Eigen::Vector3d::Zero();
      for (size_t c = 0; c < 4; ++c) {
        handles[c] = owner.HandleOf(owner.mesh().TetVertices(tet)[c]);
        arm += surface_.PositionOf(handles[c]) - surface_.PositionOf(at);
      }
      sum += arm.normalized();
      if (corners != nullptr) corners->push_back(handles);
    }
    return sum;
  };
  const Eigen::Vector3d own = toward_tets(handle, nullptr);
  Eigen::Vector3d away = own.normalized();
  for (const VertexHandle other : others) away -= toward_tets(other, &tets).normalized();
  std::vector<SceneSurface::Triangle> fan;
  std::vector<SceneSurface::Triangle> near;
  ListAround(handle, way_m, &fan, &near);
  Eigen::Vector3d inward = Eigen::Vector3d::Zero();
  for (const SceneSurface::Triangle& corners : fan) {
    const Eigen::Vector3d normal = (surface_.PositionOf(corners[1]) - from).cross(surface_.PositionOf(corners[2]) - from);
    if (normal.norm() > 0) inward -= normal.normalized();
  }

  const auto is_free = [&](const Eigen::Vector3d& to) {
    const auto at = [&](VertexHandle corner) { return corner == handle ? to : surface_.PositionOf(corner); };
    const auto is_inside = [&](const std::array<VertexHandle, 4>& tet) {
      const Eigen::Vector3d x[] = {at(tet[0]), at(tet[1]), at(tet[2]), at(tet[3])};
      return Orient3d(to, x[1], x[2], x[3]) >= 0 && Orient3d(x[0], to, x[2], x[3]) >= 0 && Orient3d(x[0], x[1], to, x[3]) >= 0 &&
             Orient3d(x[0], x[1], x[2], to) >= 0;
    };
    return std::none_of(tets.begin(), tets.end(), is_inside) && !PassesThrough(handle, to, fan, near);
  };
  std::vector<Eigen::Vector3d> directions = {away, inward, own};
  for (int k = 0; k < 27; ++k) directions.emplace_back(k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1);
  for (int halving = 0; halving < 4; ++halving, way_m /= 2) {
    for (const Eigen::Vector3d& direction : directions) {
      const Eigen::Vector3d free = AlongFreeAxes(handle, direction);
      if (!(free.norm() > 1e-6)) continue;
      const Eigen::Vector3d to = (from + way_m * free.normalized()).cast<float>().cast<double>();
      if (!KeepsVolume(handle, to, kLeastVolumeAway) || !is_free(to)) continue;
      MoveCopy(handle, to);
      return;
    }
  }
}

}  // namespace palpate::sim
