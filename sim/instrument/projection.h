#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <Eigen/Core>

namespace palpate::sim {

/// Triangles of one or more closed surfaces, outward orientation, and what is adjacent to what. Constant between topology edits.
class ProjectionMesh {
 public:
  ProjectionMesh() = default;
  /// Precondition: indices below `vertex_count`.
  ProjectionMesh(std::vector<std::array<uint32_t, 3>> triangles, size_t vertex_count);

  size_t vertex_count() const { return vertex_triangle_begin_.empty() ? 0 : vertex_triangle_begin_.size() - 1; }
  std::span<const std::array<uint32_t, 3>> triangles() const { return triangles_; }
  std::span<const std::array<uint32_t, 2>> edges() const { return edges_; }  ///< ascending, the lower vertex first
  /// Edge k of a triangle leads from its corner k to the next.
  const std::array<uint32_t, 3>& EdgesOf(uint32_t triangle) const { return triangle_edges_[triangle]; }
  std::span<const uint32_t> TrianglesAt(uint32_t vertex) const {
    return {vertex_triangles_.data() + vertex_triangle_begin_[vertex], vertex_triangles_.data() + vertex_triangle_begin_[vertex + 1]};
  }

 private:
  std::vector<std::array<uint32_t, 3>> triangles_;
  std::vector<std::array<uint32_t, 2>> edges_;
  std::vector<std::array<uint32_t, 3>> triangle_edges_;
  std::vector<uint32_t> vertex_triangle_begin_;
  std::vector<uint32_t> vertex_triangles_;
};

/// A capsule that moves as a rigid body but for its roll, which says nothing: all points within radius_m of the segment from tip to
/// tip + axis, its skeleton. W. Its length may change; an axis of length zero is a ball.
struct ProjectionCapsule {
  Eigen::Vector3d tip_from_m{0, 0, 0};
  Eigen::Vector3d axis_from_m{0, 0, 0};
  Eigen::Vector3d tip_to_m{0, 0, 0};
  Eigen::Vector3d axis_to_m{0, 0, 0};
  double radius_m = 0;
  bool clears_tip = true;  ///< false: stage (c) is left out, as for jaws that hold tissue (Forest 2003, 7.5)
};

/// Distance of a triangle from the skeleton of a capsule, and where it is attained. 0 where the skeleton pierces the triangle.
struct SkeletonDistance {
  double distance_m = 0;
  double along = 0;         ///< place on the skeleton, 0 at the tip to 1
  Eigen::Vector3d weights;  ///< of the triangle's corners
  bool is_pierced = false;
};
SkeletonDistance DistanceToSkeleton(const Eigen::Vector3d& tip_m, const Eigen::Vector3d& axis_m,
                                    const std::array<Eigen::Vector3d, 3>& corners_m);

/// Triangles that the capsule, where it is at the end of its motion, touches: nearer to its skeleton than the radius. Ascending.
std::vector<uint32_t> FindTouching(const ProjectionMesh& mesh, std::span<const Eigen::Vector3d> positions_m,
                                   const ProjectionCapsule& capsule);

/// Triangles that it touches at any time of the joint motion, vertices on straight lines in the frame of the capsule (one whose least
/// distance is the radius to 1e-6 of it may be in or out). Ascending. Replaces the picking by a graphics card of Forest 2003, 7.1: there
/// the tissue was not swept.
std::vector<uint32_t> FindSwept(const ProjectionMesh& mesh, std::span<const Eigen::Vector3d> from_m, std::span<const Eigen::Vector3d> to_m,
                                const ProjectionCapsule& capsule);

/// A moment at which an edge meets the line of the skeleton.
struct EdgeCrossing {
  double time = 0;      ///< of the motion
  double on_edge = 0;   ///< place on the edge, 0 at a
  double on_axis = 0;   ///< place on the skeleton, 0 at the tip
  bool is_hit = false;  ///< all three in [0, 1]
};

/// The motion of an edge AB in the frame of a skeleton at rest that runs along +z from the origin.
struct EdgeMotion {
  Eigen::Vector3d a, move_a;
  Eigen::Vector3d b, move_b;
};

/// The up to two moments, in order of time, real roots of the quadratic of Forest 2003, 7.3 (a), which may be linear. Returns how many.
int FindCrossings(const EdgeMotion& edge, double length_m, std::array<EdgeCrossing, 2>* crossings);

/// Stage (a): an edge has crossed the skeleton if it met it an odd number of times; one that came back has not. `crossing` (or null): the
/// first hit then.
bool HasCrossed(const EdgeMotion& edge, double length_m, EdgeCrossing* crossing);

/// Stage (b): for each vertex the part of its motion in which it may end, such that any choice keeps every edge that was blocked on the
/// side of its plane of crossing from which it came (Forest 2003, 7.3 (b)). Starts as [0, 1] for all.
class AcceptanceIntervals {
 public:
  struct Interval {
    double low = 0;
    double high = 1;
  };
  explicit AcceptanceIntervals(size_t vertex_count) : intervals_(vertex_count) {}

  const Interval& at(size_t vertex) const { return intervals_[vertex]; }
  void Restrict(size_t vertex, const Interval& to) { intervals_[vertex] = to; }
  /// Blocks the edge between the vertices `a` and `b`, which crosses at `crossing`. Where a vertex has no place left, it is held at the
  /// edge of its interval and the other one yields; returns whether that happened.
  bool Block(const EdgeMotion& edge, double length_m, const EdgeCrossing& crossing, size_t a, size_t b);

 private:
  std::vector<Interval> intervals_;
};

/// A vertex in the frame of a skeleton at rest.
struct VertexMotion {
  Eigen::Vector3d at;
  Eigen::Vector3d move;
};

/// What BlockCrossings did.
struct BlockedMotion {
  std::vector<double> share;   ///< per vertex: the part of its motion after which it stops
  uint32_t crossed_edges = 0;  ///< that were blocked
  uint32_t held_vertices = 0;  ///< times that an interval was empty
  uint32_t taken_back = 0;     ///< vertices that had to go back to their start
};

/// Stages (a) and (b): where to stop vertices so that no edge crosses the skeleton. Each stops at the low end of its acceptance interval.
/// Guarantee: with these shares of the straight motions no edge has crossed (HasCrossed). Intervals alone do not promise that, since a
/// vertex may pass the skeleton on another side in the shortened motion, and edges that had not crossed may do now: where one is left, its
/// vertices go back to their start, until none is.
BlockedMotion BlockCrossings(std::span<const VertexMotion> vertices, std::span<const std::array<size_t, 2>> edges, double length_m);

/// How stage (c) shares the push of the point next to the tip among vertices.
enum class TipRule {
  /// The least sum of squares that brings that point onto the tip plane: its triangle's corners in proportion to their weights. The
  /// forces that keep them there are then those of a contact at that point, whatever the size of the triangle.
  kLeastMotion,
  /// All corners onto the plane, and the vertices around by the sums of the weights of the corners next to them (Forest 2003).
  kNeighborWeights,
};

struct ProjectionOptions {
  TipRule tip_rule = TipRule::kLeastMotion;
  double reach_m = 0;       ///< vertices that are this much farther than the radius get a limit, too
  int max_rounds = 60;      ///< over all capsules, in each part of the motion
  int max_parts = 32;       ///< of the motion, each of which turns by at most 0.2 rad
  int max_shortenings = 4;  ///< of the motion of the capsules by half
};

/// What is asked of a projection. Spans by vertex of the mesh; vertices that no triangle has are not read.
struct ProjectionInput {
  const ProjectionMesh* mesh = nullptr;
  std::span<const Eigen::Vector3d> from_m;      ///< when the capsules began to move
  std::span<const Eigen::Vector3d> to_m;        ///< where the tissue would go without them
  std::span<const uint8_t> is_fixed;            ///< 1: cannot be moved; empty: none
  std::span<const ProjectionCapsule> capsules;  ///< of all tools
};

struct ProjectedVertex {
  uint32_t vertex = 0;
  Eigen::Vector3d position_m;
};

/// What one capsule asks of one vertex: to stay in the half-space (x - limit_m) . normal >= 0. All limits together hold at the projected
/// positions.
struct ProjectionLimit {
  uint32_t vertex = 0;
  uint32_t capsule = 0;
  Eigen::Vector3d limit_m;
  Eigen::Vector3d normal;     ///< unit, from the capsule to the tissue
  Eigen::Vector3d contact_m;  ///< where the capsule pushed the surface: a mean over vertices, edges and faces at this vertex
  double pushed_m = 0;        ///< how far; 0: the vertex is only near
};

struct ProjectionResult {
  std::vector<ProjectedVertex> moved;   ///< vertices that end elsewhere than at to_m, ascending
  std::vector<ProjectionLimit> limits;  ///< ascending by vertex, capsule
  /// Whether no point of the surface is nearer to any skeleton than its radius, less 1e-9 m, and no edge has crossed one.
  bool is_free = true;
  /// Part of the motion of the capsules for which this is the result: below 1 where the whole of it left no place for the tissue.
  double share = 1;
  double least_gap_m = 0;  ///< from the radius on, over what was looked at; negative: inside
  int rounds = 0;          ///< most in a part of the motion
  int parts = 1;
  uint32_t crossed_edges = 0;
  uint32_t carried_vertices = 0;  ///< that only moving along with a capsule kept free
};

/// The geometric projection of Forest 2003, section 7.3: moves the vertices of a surface so that it leaves the volume of capsules which
/// moved, by four stages for each capsule: (a) edges that crossed its skeleton, (b) blocked by acceptance intervals, (c) its ends
/// cleared of faces by the tip plane, (d) vertices and edges pushed out to the radius.
///
/// Guarantee: if the surface was free of all capsules at the start, then it is at the end: for one tool always, with fixed vertices or
/// several tools that press tissue between them possibly only after a part of their motion, see ProjectionResult::share. Rounds go over all
/// capsules until none moves anything (or max_rounds); then what is still inside is carried along with its capsule from where it was at the
/// start, which is free; if that is not free of the other capsules, their motion is halved, and given up after max_shortenings. A surface
/// that was not free at the start is moved out as far as the rounds bring it, with is_free telling.
/// Preconditions: finite input, spans of mesh->vertex_count(), positive radii. Same input, same bits. Thread-safe.
/// docs/algorithms/projection.md.
ProjectionResult ProjectOut(const ProjectionInput& input, const ProjectionOptions& options = {});

}  // namespace palpate::sim
