#include "sim/topology/sheet_incision.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include <Eigen/Geometry>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr size_t kMaxRests = 16;
constexpr double kSameBlade_m = 1e-6;        // between the end of a stroke and where the next call goes on with it
constexpr double kLeastSine = 0.05;          // between a triangle and the sweep that cuts it
constexpr double kTwistCosine = 0.95;        // between the two halves of a sweep that is cut as one
constexpr size_t kTwistedParts = 8;          // of one that is not
constexpr double kBorderSlack = 1e-9;        // of a facet's extent: crossings on its border are inside
constexpr uint32_t kNewPoint = 0x80000000U;  // | place in crossings_

std::pair<uint32_t, uint32_t> Sorted(uint32_t a, uint32_t b) { return {std::min(a, b), std::max(a, b)}; }

Vector3d NormalOf(const std::array<Vector3d, 3>& x) {
  const Vector3d n = (x[1] - x[0]).cross(x[2] - x[0]);
  const double longest_sq = std::max({(x[1] - x[0]).squaredNorm(), (x[2] - x[0]).squaredNorm(), (x[2] - x[1]).squaredNorm()});
  return n.norm() > 1e-12 * longest_sq ? Vector3d(n.normalized()) : Vector3d(Vector3d::Zero());
}

bool IsInside(const std::array<Vector3d, 3>& x, const Vector3d& normal, const Vector3d& p) {
  double extent_m = 0;
  for (size_t k = 0; k < 3; ++k) extent_m = std::max(extent_m, (x[(k + 1) % 3] - x[k]).norm());
  for (size_t k = 0; k < 3; ++k) {
    const Vector3d edge = x[(k + 1) % 3] - x[k];
    if (normal.dot(edge.cross(p - x[k])) < -kBorderSlack * extent_m * std::max(edge.norm(), kBorderSlack * extent_m)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<SheetIncisionResult> SheetIncision::Cut(std::span<const Vector3d> positions_by_slot_m, const std::array<Vector3d, 2>& from_m,
                                                       const std::array<Vector3d, 2>& to_m, const SheetIncisionOptions& options) {
  if (positions_by_slot_m.size() < mesh_.vertex_slot_count()) {
    return absl::InvalidArgumentError(absl::StrCat(positions_by_slot_m.size(), " positions for ", mesh_.vertex_slot_count(), " vertices"));
  }
  if (!(options.snap >= 0.01 && options.snap <= 0.4) || !(options.min_quality >= 0.001 && options.min_quality <= 0.5)) {
    return absl::InvalidArgumentError(absl::StrCat("snap ", options.snap, " or min_quality ", options.min_quality, " is out of range"));
  }
  for (uint32_t v = 0; v < mesh_.vertex_slot_count(); ++v) {
    if (mesh_.IsVertex(v) && !positions_by_slot_m[v].allFinite()) return absl::InvalidArgumentError("a position is not finite");
  }
  for (const Vector3d& end : {from_m[0], from_m[1], to_m[0], to_m[1]}) {
    if (!end.allFinite()) return absl::InvalidArgumentError("the blade is not finite");
  }
  x_.assign(positions_by_slot_m.begin(), positions_by_slot_m.end());
  if (!is_blade_known_) Resume(from_m);
  ForgetGone();
  SheetIncisionResult result;
  const Vector3d first = NormalOf({from_m[0], from_m[1], to_m[1]});
  const Vector3d second = NormalOf({from_m[0], to_m[1], to_m[0]});
  const bool is_twisted = !first.isZero(0) && !second.isZero(0) && first.dot(second) < kTwistCosine;
  const size_t parts = is_twisted ? kTwistedParts : 1;
  for (size_t i = 0; i < parts && !result.is_refused; ++i) {
    const auto at = [&](size_t end, size_t k) -> Vector3d {
      const double s = static_cast<double>(k) / static_cast<double>(parts);
      return k == parts ? to_m[end] : Vector3d(from_m[end] + s * (to_m[end] - from_m[end]));
    };
    PALPATE_RETURN_IF_ERROR(CutPart({at(0, i), at(1, i), at(1, i + 1), at(0, i + 1)}, options, &result));
  }
  blade_m_ = to_m;
  is_blade_known_ = true;
  result.closed_edges = closed_.size();
  return result;
}

/// A stroke that ended where the blade is now goes on.
void SheetIncision::Resume(const std::array<Vector3d, 2>& blade_m) {
  for (size_t i = rests_.size(); i-- > 0;) {
    if ((rests_[i].blade_m[0] - blade_m[0]).norm() > kSameBlade_m || (rests_[i].blade_m[1] - blade_m[1]).norm() > kSameBlade_m) continue;
    front_ = std::move(rests_[i].front);
    closed_ = std::move(rests_[i].closed);
    rests_.erase(rests_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

void SheetIncision::EndStroke() {
  ForgetGone();
  if (!front_.empty()) {
    if (rests_.size() == kMaxRests) rests_.erase(rests_.begin());
    rests_.push_back({blade_m_, std::move(front_), std::move(closed_)});
  }
  front_.clear();
  closed_.clear();
  is_blade_known_ = false;
}

/// What others have edited away, or parted.
void SheetIncision::ForgetGone() {
  std::erase_if(front_, [&](const Mark& mark) { return mesh_.Find(mark.vertex) == kNoSlot; });
  std::erase_if(closed_, [&](const Edge& edge) {
    const uint32_t a = mesh_.Find(edge[0]);
    const uint32_t b = mesh_.Find(edge[1]);
    return a == kNoSlot || b == kNoSlot || mesh_.TrianglesAtEdge(a, b).size() != 2;
  });
}

absl::Status SheetIncision::CutPart(const std::array<Vector3d, 4>& quad, const SheetIncisionOptions& options, SheetIncisionResult* result) {
  facets_[0].corners_m = {quad[0], quad[1], quad[2]};
  facets_[1].corners_m = {quad[0], quad[2], quad[3]};
  for (Facet& facet : facets_) facet.normal = NormalOf(facet.corners_m);
  const std::vector<uint32_t> candidates = FindCandidates(quad);
  if (candidates.empty()) {
    front_.clear();
    closed_.clear();
    return absl::OkStatus();
  }
  FindCrossings(candidates);
  Snap(options);
  KeepQuality(candidates, options);
  PALPATE_RETURN_IF_ERROR(Split(candidates, options, result));
  if (result->is_refused) return absl::OkStatus();
  return Open(result);
}

/// Triangles whose boxes meet that of the sweep.
std::vector<uint32_t> SheetIncision::FindCandidates(const std::array<Vector3d, 4>& quad) const {
  Eigen::AlignedBox3d sweep;
  for (const Vector3d& corner : quad) sweep.extend(corner);
  std::vector<uint32_t> candidates;
  for (uint32_t t = 0; t < mesh_.triangle_slot_count(); ++t) {
    if (!mesh_.IsTriangle(t)) continue;
    Eigen::AlignedBox3d box;
    for (const uint32_t v : mesh_.TriangleVertices(t)) box.extend(x_[v]);
    if (box.intersects(sweep)) candidates.push_back(t);
  }
  return candidates;
}

/// Where an edge passes through a facet. A vertex on the plane lies above it, so that what passes from side to side does so once.
bool SheetIncision::Crosses(uint32_t a, uint32_t b, const Facet& facet, double* t) const {
  const double above_a = facet.normal.dot(x_[a] - facet.corners_m[0]);
  const double above_b = facet.normal.dot(x_[b] - facet.corners_m[0]);
  if ((above_a >= 0) == (above_b >= 0)) return false;
  *t = above_a / (above_a - above_b);
  return IsInside(facet.corners_m, facet.normal, x_[a] + *t * (x_[b] - x_[a]));
}

void SheetIncision::FindCrossings(const std::vector<uint32_t>& candidates) {
  crossings_.clear();
  of_edge_.clear();
  fresh_.clear();
  absl::flat_hash_set<std::pair<uint32_t, uint32_t>> seen;
  for (const uint32_t t : candidates) {
    const auto& v = mesh_.TriangleVertices(t);
    const Vector3d normal = NormalOf({x_[v[0]], x_[v[1]], x_[v[2]]});
    for (size_t k = 0; k < 3; ++k) {
      const auto [a, b] = Sorted(v[k], v[(k + 1) % 3]);
      if (seen.contains({a, b})) continue;
      for (const Facet& facet : facets_) {
        double share = 0;
        if (facet.normal.isZero(0) || !(normal.cross(facet.normal).norm() >= kLeastSine) || !Crosses(a, b, facet, &share)) continue;
        seen.insert({a, b});
        crossings_.push_back({a, b, share});
        break;
      }
    }
  }
  std::sort(crossings_.begin(), crossings_.end(),
            [](const Crossing& p, const Crossing& q) { return std::tie(p.a, p.b) < std::tie(q.a, q.b); });
  for (uint32_t i = 0; i < crossings_.size(); ++i) of_edge_[{crossings_[i].a, crossings_[i].b}] = i;
}

/// Lets the cut go through a vertex: crossings of edges there are moved to it. Not where that would leave a triangle with three such
/// corners, which would be cut off.
bool SheetIncision::MoveTo(uint32_t vertex) {
  const auto at = std::lower_bound(fresh_.begin(), fresh_.end(), vertex);
  if (at != fresh_.end() && *at == vertex) return true;
  for (const uint32_t t : mesh_.TrianglesAround(vertex)) {
    const auto& v = mesh_.TriangleVertices(t);
    const auto is_fresh = [&](uint32_t w) { return w != vertex && std::binary_search(fresh_.begin(), fresh_.end(), w); };
    if (std::count_if(v.begin(), v.end(), is_fresh) == 2) return false;
  }
  fresh_.insert(at, vertex);
  for (Crossing& crossing : crossings_) {
    if (crossing.a == vertex || crossing.b == vertex) crossing.is_split = false;
  }
  return true;
}

/// Crossings near a vertex go to it, those of edges at a vertex that this stroke goes through anyway too.
void SheetIncision::Snap(const SheetIncisionOptions& options) {
  absl::flat_hash_set<uint32_t> through;
  for (const Mark& mark : front_) {
    if (mark.is_snapped) through.insert(mesh_.Find(mark.vertex));
  }
  for (const Crossing& crossing : crossings_) {
    for (const uint32_t end : {crossing.a, crossing.b}) {
      if (crossing.is_split && through.contains(end)) MoveTo(end);
    }
  }
  for (const Crossing& crossing : crossings_) {
    if (!crossing.is_split) continue;
    if (crossing.t < options.snap) MoveTo(crossing.a);
    if (crossing.t > 1 - options.snap) MoveTo(crossing.b);
  }
}

uint32_t SheetIncision::PointOn(uint32_t a, uint32_t b) const {
  const auto found = of_edge_.find(Sorted(a, b));
  return found != of_edge_.end() && crossings_[found->second].is_split ? kNewPoint | found->second : kNoSlot;
}

Vector3d SheetIncision::RestOf(uint32_t point) const {
  if ((point & kNewPoint) == 0) return mesh_.PositionOf(point);
  const Crossing& crossing = crossings_[point & ~kNewPoint];
  return mesh_.PositionOf(crossing.a) + crossing.t * (mesh_.PositionOf(crossing.b) - mesh_.PositionOf(crossing.a));
}

/// What a triangle becomes: corners are vertices, or kNewPoint | crossing. Itself where no edge is split.
std::vector<std::array<uint32_t, 3>> SheetIncision::ChildrenOf(const std::array<uint32_t, 3>& corners) const {
  std::array<uint32_t, 3> on{};  // [k] on the edge from corner k
  for (size_t k = 0; k < 3; ++k) on[k] = PointOn(corners[k], corners[(k + 1) % 3]);
  const auto count = 3 - std::count(on.begin(), on.end(), kNoSlot);
  if (count == 0) return {corners};
  if (count == 3) {
    return {{corners[0], on[0], on[2]}, {on[0], corners[1], on[1]}, {on[2], on[1], corners[2]}, {on[0], on[1], on[2]}};
  }
  size_t k = 0;  // of one: its edge; of two: the first of them
  while (on[k] == kNoSlot || (count == 2 && on[(k + 1) % 3] == kNoSlot)) ++k;
  const uint32_t a = corners[k];
  const uint32_t b = corners[(k + 1) % 3];
  const uint32_t c = corners[(k + 2) % 3];
  const uint32_t p = on[k];
  if (count == 1) return {{a, p, c}, {p, b, c}};
  const uint32_t q = on[(k + 1) % 3];
  const auto ratio = [&](const std::array<uint32_t, 3>& t) { return TriangleMeanRatio({RestOf(t[0]), RestOf(t[1]), RestOf(t[2])}); };
  const double over_q = std::min(ratio({a, p, q}), ratio({a, q, c}));
  const double over_p = std::min(ratio({a, p, c}), ratio({p, q, c}));
  if (over_q >= over_p) return {{p, b, q}, {a, p, q}, {a, q, c}};
  return {{p, b, q}, {a, p, c}, {p, q, c}};
}

/// Moves crossings to a vertex, or gives them up, until no child is bad.
void SheetIncision::KeepQuality(const std::vector<uint32_t>& candidates, const SheetIncisionOptions& options) {
  const auto is_bad = [&](const std::array<uint32_t, 3>& corners) {
    const std::vector<std::array<uint32_t, 3>> children = ChildrenOf(corners);
    if (children.size() == 1) return false;
    const double own = TriangleMeanRatio({RestOf(corners[0]), RestOf(corners[1]), RestOf(corners[2])});
    return std::any_of(children.begin(), children.end(), [&](const std::array<uint32_t, 3>& child) {
      const std::array<Vector3d, 3> x = {RestOf(child[0]), RestOf(child[1]), RestOf(child[2])};
      return !(TriangleMeanRatio(x) >= std::min(options.min_quality, own)) || !HasSheetArea(x);
    });
  };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const uint32_t t : candidates) {
      const auto& v = mesh_.TriangleVertices(t);
      if (!is_bad(v)) continue;
      goes_on = true;
      uint32_t nearest = 0;  // crossing
      double least = 1;
      for (size_t k = 0; k < 3; ++k) {
        const uint32_t point = PointOn(v[k], v[(k + 1) % 3]);
        if (point == kNoSlot) continue;
        const double share = crossings_[point & ~kNewPoint].t;
        if (std::min(share, 1 - share) < least) nearest = point & ~kNewPoint;
        least = std::min({least, share, 1 - share});
      }
      Crossing& crossing = crossings_[nearest];
      const bool is_first = crossing.t < 0.5;
      if (!MoveTo(is_first ? crossing.a : crossing.b) && !MoveTo(is_first ? crossing.b : crossing.a)) crossing.is_split = false;
    }
  }
}

/// Replaces triangles whose edges are split, and notes the edges of the cut.
absl::Status SheetIncision::Split(const std::vector<uint32_t>& candidates, const SheetIncisionOptions& options,
                                  SheetIncisionResult* result) {
  std::vector<uint32_t> touched = candidates;  // a split edge may have a triangle beside the sweep
  for (const Crossing& crossing : crossings_) {
    if (!crossing.is_split) continue;
    for (const uint32_t t : mesh_.TrianglesAtEdge(crossing.a, crossing.b)) touched.push_back(t);
  }
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  SheetEdit edit;
  absl::flat_hash_map<uint32_t, VertexId> id_of;  // of a crossing
  for (uint32_t i = 0; i < crossings_.size(); ++i) {
    if (!crossings_[i].is_split) continue;
    id_of[i] = NewVertexId(edit.vertices.size());
    MeshEdit::NewVertex& vertex = edit.vertices.emplace_back();
    vertex.position_m = RestOf(kNewPoint | i);
    vertex.sources[0] = {mesh_.IdOfVertex(crossings_[i].a), 1 - crossings_[i].t};
    vertex.sources[1] = {mesh_.IdOfVertex(crossings_[i].b), crossings_[i].t};
    vertex.source_count = 2;
  }
  std::vector<std::array<uint32_t, 3>> corners_before;
  for (const uint32_t t : touched) {
    corners_before.push_back(mesh_.TriangleVertices(t));
    const std::vector<std::array<uint32_t, 3>> children = ChildrenOf(corners_before.back());
    if (children.size() == 1) continue;
    edit.removed.push_back(mesh_.IdOfTriangle(t));
    for (const auto& child : children) {
      SheetEdit::NewTriangle& triangle = edit.triangles.emplace_back();
      triangle.parent = edit.removed.back();
      for (size_t c = 0; c < 3; ++c) {
        triangle.vertices[c] = (child[c] & kNewPoint) != 0 ? id_of[child[c] & ~kNewPoint] : mesh_.IdOfVertex(child[c]);
      }
    }
  }
  if (mesh_.triangle_count() + edit.triangles.size() - edit.removed.size() > options.triangle_budget) {
    result->is_refused = true;
    return absl::OkStatus();
  }
  if (!edit.vertices.empty()) {
    PALPATE_RETURN_IF_ERROR(mesh_.Apply(edit));
    size_t next = 0;
    for (Crossing& crossing : crossings_) {
      if (crossing.is_split) crossing.vertex = SlotOf(mesh_.delta().added_vertices[next++].id);
    }
    x_.resize(mesh_.vertex_slot_count());
    for (const Crossing& crossing : crossings_) {
      if (crossing.is_split) x_[crossing.vertex] = x_[crossing.a] + crossing.t * (x_[crossing.b] - x_[crossing.a]);
    }
  }
  result->snapped_vertices += fresh_.size();
  result->split_edges += edit.vertices.size();
  result->moved_crossings += crossings_.size() - edit.vertices.size();
  for (const auto& corners : corners_before) AddCut(corners);
  const auto mark = [&](uint32_t vertex, bool is_snapped) {
    const VertexId id = mesh_.IdOfVertex(vertex);
    if (std::none_of(front_.begin(), front_.end(), [id](const Mark& m) { return m.vertex == id; })) front_.push_back({id, is_snapped});
  };
  for (const uint32_t vertex : fresh_) mark(vertex, true);
  for (const Crossing& crossing : crossings_) {
    if (crossing.is_split) mark(crossing.vertex, false);
  }
  return absl::OkStatus();
}

/// The edge of the cut in what was a triangle: between two points that the sweep came to, or from one to a point that the front has there.
void SheetIncision::AddCut(const std::array<uint32_t, 3>& corners) {
  std::vector<uint32_t> points;
  for (size_t k = 0; k < 3; ++k) {
    const uint32_t point = PointOn(corners[k], corners[(k + 1) % 3]);
    if (point != kNoSlot) points.push_back(crossings_[point & ~kNewPoint].vertex);
    if (std::binary_search(fresh_.begin(), fresh_.end(), corners[k])) points.push_back(corners[k]);
  }
  if (points.size() == 1) {
    uint32_t nearest = kNoSlot;
    double least_m = std::numeric_limits<double>::infinity();
    for (const Mark& mark : front_) {
      const uint32_t v = mesh_.Find(mark.vertex);
      if (v == points[0] || std::find(corners.begin(), corners.end(), v) == corners.end()) continue;
      const double gap_m = std::min((x_[v] - facets_[0].corners_m[0]).norm(), (x_[v] - facets_[0].corners_m[1]).norm());
      if (gap_m < least_m) nearest = v;
      least_m = std::min(least_m, gap_m);
    }
    if (nearest != kNoSlot) points.push_back(nearest);
  }
  if (points.size() != 2 || mesh_.TrianglesAtEdge(points[0], points[1]).size() != 2) return;
  const auto [a, b] = Sorted(points[0], points[1]);
  const Edge edge = {mesh_.IdOfVertex(a), mesh_.IdOfVertex(b)};
  if (std::find(closed_.begin(), closed_.end(), edge) == closed_.end()) closed_.push_back(edge);
}

/// Parts the edges of the cut as far as its front lets them.
absl::Status SheetIncision::Open(SheetIncisionResult* result) {
  ForgetGone();
  if (closed_.empty()) return absl::OkStatus();
  SheetEdit edit;
  edit.parted = closed_;
  std::vector<std::pair<TriangleId, std::array<size_t, 2>>> beside;  // a triangle at each edge, and which of its corners are the edge's
  for (const Edge& edge : closed_) {
    const uint32_t a = mesh_.Find(edge[0]);
    const uint32_t b = mesh_.Find(edge[1]);
    const uint32_t t = mesh_.TrianglesAtEdge(a, b)[0];
    const auto& v = mesh_.TriangleVertices(t);
    const auto corner = [&](uint32_t w) { return static_cast<size_t>(std::find(v.begin(), v.end(), w) - v.begin()); };
    beside.push_back({mesh_.IdOfTriangle(t), {corner(a), corner(b)}});
  }
  PALPATE_RETURN_IF_ERROR(mesh_.Apply(edit));
  result->copied_vertices += mesh_.delta().added_vertices.size();
  FollowOpening(closed_, beside);
  return absl::OkStatus();
}

/// After an opening: what came apart is no longer of the front, and edges that stay closed may have copies of their vertices.
void SheetIncision::FollowOpening(const std::vector<Edge>& parted,
                                  const std::vector<std::pair<TriangleId, std::array<size_t, 2>>>& beside) {
  absl::flat_hash_set<VertexId> opened;
  for (const MeshDelta::AddedVertex& copy : mesh_.delta().added_vertices) opened.insert(copy.sources[0].vertex);
  std::erase_if(front_, [&](const Mark& mark) { return opened.contains(mark.vertex); });
  absl::flat_hash_map<TriangleId, TriangleId> successor;
  for (const SheetDelta::AddedTriangle& added : mesh_.delta().added_triangles) successor[added.parent] = added.id;
  std::vector<Edge> closed;
  for (size_t i = 0; i < parted.size(); ++i) {
    const auto found = successor.find(beside[i].first);
    const uint32_t t = mesh_.Find(found == successor.end() ? beside[i].first : found->second);
    const auto& v = mesh_.TriangleVertices(t);
    const uint32_t a = v[beside[i].second[0]];
    const uint32_t b = v[beside[i].second[1]];
    if (mesh_.TrianglesAtEdge(a, b).size() == 2) closed.push_back({mesh_.IdOfVertex(a), mesh_.IdOfVertex(b)});
  }
  x_.resize(mesh_.vertex_slot_count());
  for (const MeshDelta::AddedVertex& copy : mesh_.delta().added_vertices) x_[SlotOf(copy.id)] = x_[SlotOf(copy.sources[0].vertex)];
  closed_ = std::move(closed);
}

}  // namespace palpate::sim
