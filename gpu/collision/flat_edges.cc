#include "gpu/collision/flat_edges.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <Eigen/Geometry>

namespace palpate::gpu {
namespace {

constexpr uint32_t kNoFace = std::numeric_limits<uint32_t>::max();
// Of the angle between triangles of one face. The tolerance decides; this keeps slivers and triangles that are folded back out.
constexpr double kLeastCosine = 0.999;
constexpr double kTilted = 10;  // tolerances that a face may be off the plane of the triangle that it grows from

/// Finds the faces of a surface, each from its largest triangle on.
class Faces {
 public:
  Faces(std::span<const Float4> positions, double tolerance_m, const SurfaceTopology& topology)
      : positions_(positions),
        tolerance_m_(tolerance_m),
        topology_(topology),
        face_(topology.triangles.size(), kNoFace),
        reached_(face_.size(), 0) {}

  /// The triangles of bodies that keep their shape, the largest first.
  std::vector<uint32_t> Candidates(std::span<const uint8_t> keeps_shape) {
    std::vector<uint32_t> candidates;
    areas_.assign(topology_.triangles.size(), 0);
    for (uint32_t t = 0; t < topology_.triangles.size(); ++t) {
      const uint32_t body = topology_.groups[t] & PALPATE_GROUP_MASK;
      if (body >= keeps_shape.size() || keeps_shape[body] == 0) continue;
      areas_[t] = AcrossOf(t).norm();
      if (areas_[t] > 0) candidates.push_back(t);
    }
    std::stable_sort(candidates.begin(), candidates.end(), [&](uint32_t a, uint32_t b) { return areas_[a] > areas_[b]; });
    return candidates;
  }

  void Grow(uint32_t seed) {
    if (face_[seed] != kNoFace) return;
    const Eigen::Vector3d normal = AcrossOf(seed) / areas_[seed];
    const double offset = normal.dot(PositionOf(topology_.triangles[seed].x));
    // Rounding tilts the plane of a small triangle; that of all that may be its face is better.
    std::vector<uint32_t> face = Reach(seed, [&](uint32_t t) { return IsOn(t, normal, offset, kTilted * tolerance_m_); });
    if (!FitsPlane(face)) face = Reach(seed, [&](uint32_t t) { return IsOn(t, normal, offset, tolerance_m_); });
    for (const uint32_t t : face) face_[t] = seed;
  }

  /// Whether an edge is between two triangles of one face.
  bool IsInside(uint32_t edge) const {
    const uint32_t begin = topology_.edge_triangle_begin[edge];
    if (topology_.edge_triangle_begin[edge + 1] != begin + 2) return false;
    const uint32_t face = face_[topology_.edge_triangles[begin]];
    return face != kNoFace && face == face_[topology_.edge_triangles[begin + 1]];
  }

 private:
  Eigen::Vector3d PositionOf(uint32_t v) const { return {positions_[v].x, positions_[v].y, positions_[v].z}; }

  Eigen::Vector3d AcrossOf(uint32_t t) const {
    const UInt4& v = topology_.triangles[t];
    const Eigen::Vector3d a = PositionOf(v.x);
    return (PositionOf(v.y) - a).cross(PositionOf(v.z) - a);
  }

  /// The only other triangle of an edge.
  uint32_t Partner(uint32_t edge, uint32_t t) const {
    const uint32_t begin = topology_.edge_triangle_begin[edge];
    if (topology_.edge_triangle_begin[edge + 1] != begin + 2) return kNoFace;
    const uint32_t first = topology_.edge_triangles[begin];
    return first == t ? topology_.edge_triangles[begin + 1] : first;
  }

  /// The triangles without a face that are joined to `seed` over edges of two triangles, all with `belongs`.
  template <typename Belongs>
  std::vector<uint32_t> Reach(uint32_t seed, const Belongs& belongs) {
    std::vector<uint32_t> reached{seed};
    reached_[seed] = 1;
    for (size_t i = 0; i < reached.size(); ++i) {
      const UInt4& edges = topology_.triangle_edges[reached[i]];
      for (const uint32_t e : {edges.x, edges.y, edges.z}) {
        const uint32_t other = Partner(e, reached[i]);
        if (other == kNoFace || face_[other] != kNoFace || reached_[other] != 0 || !belongs(other)) continue;
        reached_[other] = 1;
        reached.push_back(other);
      }
    }
    for (const uint32_t t : reached) reached_[t] = 0;
    return reached;
  }

  /// Whether all corners lie within the tolerance of one plane, that of the mean normal.
  bool FitsPlane(const std::vector<uint32_t>& face) const {
    Eigen::Vector3d normal = Eigen::Vector3d::Zero();
    for (const uint32_t t : face) normal += AcrossOf(t);
    normal.normalize();
    const double offset = normal.dot(PositionOf(topology_.triangles[face.front()].x));
    return std::all_of(face.begin(), face.end(), [&](uint32_t t) { return IsOn(t, normal, offset, tolerance_m_); });
  }

  /// Whether a triangle is turned like a plane and has its corners within `tolerance_m` of it.
  bool IsOn(uint32_t t, const Eigen::Vector3d& normal, double offset, double tolerance_m) const {
    if (!(areas_[t] > 0) || !(AcrossOf(t).dot(normal) >= kLeastCosine * areas_[t])) return false;
    const UInt4& v = topology_.triangles[t];
    const auto is_near = [&](uint32_t vertex) { return std::abs(PositionOf(vertex).dot(normal) - offset) <= tolerance_m; };
    return is_near(v.x) && is_near(v.y) && is_near(v.z);
  }

  std::span<const Float4> positions_;
  double tolerance_m_ = 0;
  const SurfaceTopology& topology_;
  std::vector<double> areas_;     // twice each; 0: of bodies that deform, or without area
  std::vector<uint32_t> face_;    // the triangle that it grew from
  std::vector<uint8_t> reached_;  // while a face is sought
};

}  // namespace

uint32_t MarkFlatEdges(std::span<const Float4> positions, std::span<const uint8_t> keeps_shape, double tolerance_m,
                       SurfaceTopology* topology) {
  Faces faces(positions, tolerance_m, *topology);
  for (const uint32_t t : faces.Candidates(keeps_shape)) faces.Grow(t);
  uint32_t marked = 0;
  for (uint32_t e = 0; e < topology->edges.size(); ++e) {
    if (!faces.IsInside(e)) continue;
    ++marked;
    topology->edge_groups[e] = SurfaceTopology::kNoGroup;
    for (uint32_t k = topology->edge_triangle_begin[e]; k < topology->edge_triangle_begin[e + 1]; ++k) {
      const uint32_t t = topology->edge_triangles[k];
      const UInt4& edges = topology->triangle_edges[t];
      topology->triangles[t].w |= SurfaceTopology::kFlatEdge << (edges.x == e ? 0U : edges.y == e ? 1U : 2U);
    }
  }
  return marked;
}

}  // namespace palpate::gpu
