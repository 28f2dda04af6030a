#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

namespace palpate::sim {

/// A constrained Delaunay triangulation of a box in the plane. Where a point lies is decided with exact arithmetic on its coordinates;
/// edges that are not fixed are Delaunay up to rounding. Points first, then edges that are fixed. Sources: C. L. Lawson, Software for C1
/// surface interpolation, 1977 (flips); S. W. Sloan, A fast algorithm for generating constrained Delaunay triangulations, Computers and
/// Structures 47 (1993).
class PlanarTriangulation {
 public:
  static constexpr uint32_t kNone = 0xffffffff;
  enum class EdgeKind : uint8_t { kFree, kLine, kOutline };
  struct Triangle {
    std::array<uint32_t, 3> vertices;   ///< counter-clockwise
    std::array<uint32_t, 3> neighbors;  ///< across from the vertex; kNone: the box ends
    std::array<EdgeKind, 3> kinds;      ///< of the edge across from the vertex
    std::array<int32_t, 3> turns;       ///< winding number here less that of the neighbor
    int32_t winding = 0;                ///< once FindWindings has run
  };

  /// Four corners are its first vertices.
  explicit PlanarTriangulation(const Eigen::AlignedBox2d& box);

  /// The number of a point strictly inside the box, that of an equal one if there is one. Precondition: no edge is fixed yet.
  uint32_t Insert(const Eigen::Vector2d& point);

  /// Fixes the segment between two vertices as edges, through vertices on it. An outline turns the winding number up by one on its left,
  /// and overrides lines. Where a fixed edge is in the way nothing more is fixed and a point near it is returned.
  std::optional<Eigen::Vector2d> Fix(uint32_t from, uint32_t to, EdgeKind kind);

  /// Flips what fixing has left.
  void MakeDelaunay();

  /// Of all triangles; outside the outlines it is 0.
  void FindWindings();

  /// A vertex on the edge across from a vertex of a triangle, which is cut in two with its neighbor; its new triangles are made Delaunay.
  /// Parts of fixed edges stay fixed. The number of the vertex, or nothing if rounding puts the point on another edge.
  std::optional<uint32_t> SplitEdge(uint32_t triangle, int across, const Eigen::Vector2d& point);

  /// Numbers of triangles whose vertices changed since the last call, new ones included; some more than once.
  std::vector<uint32_t> TakeChanged() { return std::exchange(changed_, {}); }

  std::span<const Triangle> triangles() const { return triangles_; }
  std::span<const Eigen::Vector2d> points() const { return points_; }

 private:
  struct Side {
    uint32_t triangle;
    int across;
  };
  uint32_t Locate(const Eigen::Vector2d& point) const;
  int IndexOf(uint32_t triangle, uint32_t vertex) const;
  Side Opposite(const Side& side) const;
  std::optional<Side> FindEdge(uint32_t from, uint32_t to) const;
  bool CanFlip(const Side& side) const;
  bool ShouldFlip(const Side& side) const;
  void Flip(const Side& side);
  void Link(uint32_t triangle, int across, uint32_t neighbor, uint32_t old);
  void Legalize(uint32_t vertex, std::vector<uint32_t> pending);
  void Mark(const Side& side, EdgeKind kind);

  std::vector<Eigen::Vector2d> points_;
  std::vector<uint32_t> triangle_of_;  // one triangle of each vertex
  std::vector<Triangle> triangles_;
  std::vector<uint32_t> changed_;  // see TakeChanged
  mutable uint32_t last_ = 0;      // where the search begins
};

}  // namespace palpate::sim
