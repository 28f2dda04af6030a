#include "sim/topology/incision.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/topology/quality.h"
#include "sim/topology/subdivision.h"

namespace palpate::sim {
namespace {

constexpr uint32_t kNewPoint = 0x80000000U;
// A vertex is reached when its foot on the sweep's plane is no further from the sweep than this share of its height: so no vertex is missed
// on the outer side of a bend (up to 53 degrees between two parts of a sweep).
constexpr double kFootReach = 0.5;
// Up to here a vertex that a stroke has once gone through stays near, as a share of the edge.
constexpr double kSnappedShare = 0.5;
// A hit replaces another of the vertex if the cosine between their sweeps is at least this.
constexpr double kSameHit = 0.9;
// A blade is where a stroke has ended if both its ends are within this share of its length.
constexpr double kSamePlace = 0.1;
constexpr size_t kMaxRests = 16;
// Relative rounding allowances.
constexpr double kTouch = 1e-9;
// A sweep whose two triangles lie at a larger angle is done in parts.
constexpr double kMaxTwist = 25 * std::numbers::pi / 180;
constexpr int kMaxParts = 16;

size_t At(int i) { return static_cast<size_t>(i); }

uint64_t EdgeKey(uint32_t a, uint32_t b) { return static_cast<uint64_t>(std::min(a, b)) << 32 | std::max(a, b); }

double DistanceToSegment(const Eigen::Vector3d& x, const Eigen::Vector3d& a, const Eigen::Vector3d& b) {
  const Eigen::Vector3d e = b - a;
  const double length_sq = e.squaredNorm();
  const double t = length_sq > 0 ? std::clamp(e.dot(x - a) / length_sq, 0.0, 1.0) : 0.0;
  return (x - a - t * e).norm();
}

// Of a point in the triangle's plane.
double DistanceInPlane(const Eigen::Vector3d& x, const std::array<Eigen::Vector3d, 3>& corners, const Eigen::Vector3d& normal) {
  double nearest = std::numeric_limits<double>::infinity();
  bool is_inside = true;
  for (size_t c = 0; c < 3; ++c) {
    const Eigen::Vector3d& a = corners[c];
    const Eigen::Vector3d& b = corners[(c + 1) % 3];
    if (normal.cross(b - a).dot(x - a) >= 0) continue;
    is_inside = false;
    nearest = std::min(nearest, DistanceToSegment(x, a, b));
  }
  return is_inside ? 0 : nearest;
}

bool IsAtBlade(const std::array<Eigen::Vector3d, 2>& blade_m, const std::array<Eigen::Vector3d, 2>& other_m) {
  const double tolerance_m = kSamePlace * (other_m[1] - other_m[0]).norm();
  return (blade_m[0] - other_m[0]).norm() <= tolerance_m && (blade_m[1] - other_m[1]).norm() <= tolerance_m;
}

// Whether a segment meets a tet; faces count to it.
bool MeetsSegment(const std::array<Eigen::Vector3d, 4>& x, const std::array<Eigen::Vector3d, 2>& segment) {
  double begin = 0;
  double end = 1;
  for (size_t c = 0; c < 4; ++c) {
    const Eigen::Vector3d& a = x[(c + 1) % 4];
    const Eigen::Vector3d normal = (x[(c + 2) % 4] - a).cross(x[(c + 3) % 4] - a);
    const double side = normal.dot(x[c] - a) < 0 ? -1 : 1;
    const double from = side * normal.dot(segment[0] - a);
    const double to = side * normal.dot(segment[1] - a);
    if (from < 0 && to < 0) return false;
    if (from < 0) begin = std::max(begin, from / (from - to));
    if (to < 0) end = std::min(end, from / (from - to));
  }
  return begin <= end;
}

}  // namespace

// --- what the sweep meets ---------------------------------------------------------------------------------------------------------------

bool Incision::FindCandidates(const Quad& quad) {
  // A box along the sweep: the blade, the way, the normal.
  const Eigen::Vector3d area = (quad[2] - quad[0]).cross(quad[3] - quad[1]);
  const Eigen::Vector3d normal = area.normalized();
  const Eigen::Vector3d edge = quad[1] - quad[0] + quad[2] - quad[3];
  const Eigen::Vector3d way = normal.cross(edge).normalized();
  const std::array<Eigen::Vector3d, 3> axes = {way.cross(normal), way, normal};
  const double margin_m = kTouch * ((quad[2] - quad[0]).norm() + (quad[3] - quad[1]).norm());
  Eigen::Array3d low = Eigen::Array3d::Constant(std::numeric_limits<double>::infinity());
  Eigen::Array3d high = -low;
  for (size_t k = 0; k < 3; ++k) {
    for (const Eigen::Vector3d& corner : quad) {
      const double x = axes[k].dot(corner);
      low[static_cast<Eigen::Index>(k)] = std::min(low[static_cast<Eigen::Index>(k)], x - margin_m);
      high[static_cast<Eigen::Index>(k)] = std::max(high[static_cast<Eigen::Index>(k)], x + margin_m);
    }
  }
  outcodes_.assign(mesh_->vertex_slot_count(), 0xff);
  for (uint32_t v = 0; v < outcodes_.size(); ++v) {
    if (!mesh_->IsVertex(v)) continue;
    uint32_t code = 0;
    for (size_t k = 0; k < 3; ++k) {
      const double x = axes[k].dot(positions_m_[v]);
      code |= (x < low[static_cast<Eigen::Index>(k)] ? 1U : 0U) << (2 * k) | (x > high[static_cast<Eigen::Index>(k)] ? 1U : 0U)
                                                                                 << (2 * k + 1);
    }
    outcodes_[v] = static_cast<uint8_t>(code);
  }
  candidates_.clear();
  candidate_vertices_.clear();
  for (uint32_t tet = 0; tet < mesh_->tet_slot_count(); ++tet) {
    if (!mesh_->IsTet(tet)) continue;
    const auto& v = mesh_->TetVertices(tet);
    if ((outcodes_[v[0]] & outcodes_[v[1]] & outcodes_[v[2]] & outcodes_[v[3]]) != 0) continue;
    candidates_.push_back(tet);
    candidate_vertices_.insert(candidate_vertices_.end(), v.begin(), v.end());
  }
  std::sort(candidate_vertices_.begin(), candidate_vertices_.end());
  candidate_vertices_.erase(std::unique(candidate_vertices_.begin(), candidate_vertices_.end()), candidate_vertices_.end());
  return !candidates_.empty();
}

// The smallest share of an edge at this vertex, from its end, at which the facet's plane crosses it; 1 if it crosses none.
double Incision::ShareAt(uint32_t vertex, uint32_t facet) {
  const auto [it, is_new] = shares_.try_emplace(static_cast<uint64_t>(vertex) << 1 | facet, 1.0);
  if (!is_new) return it->second;
  const double height_m = facets_[facet].HeightOf(positions_m_[vertex]);
  double other_m = 0;  // farthest neighbour on the other side
  double all_m = 0;
  mesh_->TetsAroundVertex(vertex, &star_);
  for (const uint32_t tet : star_) {
    for (const uint32_t w : mesh_->TetVertices(tet)) {
      const double w_m = facets_[facet].HeightOf(positions_m_[w]);
      all_m = std::max(all_m, std::abs(w_m));
      if ((w_m > 0) != (height_m > 0)) other_m = std::max(other_m, std::abs(w_m));
    }
  }
  if (std::abs(height_m) <= kTouch * all_m) {
    it->second = 0;
  } else if (other_m > 0) {
    it->second = std::abs(height_m) / (std::abs(height_m) + other_m);
  }
  return it->second;
}

// Whether the parts of a vertex's surroundings on either side are balls if the cut goes through the vertex: in its link, each part on a
// side of the plane must reach the border, or, if there is none, there must be one on each side. A notch whose tip just meets the plane has
// no such cut. Vertices of the link that the cut goes through themselves are on neither side.
bool Incision::IsSnappable(uint32_t vertex, uint32_t facet, const IncisionOptions& options) {
  enum Place : uint8_t { kOn, kBelow, kAbove };
  mesh_->TetsAroundVertex(vertex, &star_);
  std::vector<uint32_t> star = star_;  // IsNear uses star_
  link_.clear();
  for (const uint32_t tet : star) link_.insert(link_.end(), mesh_->TetVertices(tet).begin(), mesh_->TetVertices(tet).end());
  std::sort(link_.begin(), link_.end());
  link_.erase(std::unique(link_.begin(), link_.end()), link_.end());
  const auto place = [&](uint32_t w) { return static_cast<uint32_t>(std::lower_bound(link_.begin(), link_.end(), w) - link_.begin()); };
  std::vector<Place> sides;
  for (const uint32_t w : link_) {
    sides.push_back(w == vertex || IsNear(w, facet, options) ? kOn : facets_[facet].HeightOf(positions_m_[w]) > 0 ? kAbove : kBelow);
  }
  // Parts of the link as sets that are joined.
  std::vector<uint32_t> parent(link_.size());
  std::iota(parent.begin(), parent.end(), 0U);
  const auto part_of = [&](uint32_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  for (const uint32_t tet : star) {
    const auto& v = mesh_->TetVertices(tet);
    for (const auto& [a, b] : kTetEdges) {
      const uint32_t i = place(v[At(a)]);
      const uint32_t j = place(v[At(b)]);
      if (sides[i] != kOn && sides[i] == sides[j]) parent[part_of(i)] = part_of(j);
    }
  }
  std::vector<bool> reaches_border(link_.size(), false);
  bool has_border = false;
  for (const uint32_t tet : star) {
    const auto& v = mesh_->TetVertices(tet);
    for (int f = 0; f < 4; ++f) {
      if (v[At(f)] == vertex || !mesh_->TetNeighbor(tet, f).is_virtual()) continue;
      has_border = true;
      bool is_on = true;
      for (const int c : kTetFaces[At(f)]) {
        const uint32_t i = place(v[At(c)]);
        if (sides[i] == kOn) continue;
        reaches_border[part_of(i)] = true;
        is_on = false;
      }
      const uint32_t i = place(v[At(f)]);
      if (is_on && sides[i] != kOn) reaches_border[part_of(i)] = true;
    }
  }
  std::array<int, 3> parts = {};
  bool do_all_reach = true;
  for (uint32_t i = 0; i < link_.size(); ++i) {
    if (sides[i] == kOn || part_of(i) != i) continue;
    ++parts[sides[i]];
    do_all_reach = do_all_reach && reaches_border[i];
  }
  return has_border ? do_all_reach : parts[kBelow] <= 1 && parts[kAbove] <= 1;
}

// Takes those vertices near the sweep out that the cut cannot go through.
void Incision::FindUnsnappable(const IncisionOptions& options) {
  unsnappable_.clear();
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (const uint32_t v : candidate_vertices_) {
      for (uint32_t f = 0; f < 2; ++f) {
        // What the stroke has gone through stays.
        if (facets_[f].normal.isZero() || snapped_.contains(mesh_->IdOfVertex(v))) continue;
        if (!IsNear(v, f, options) || IsSnappable(v, f, options)) continue;
        unsnappable_.insert(static_cast<uint64_t>(v) << 1 | f);
        is_changed = true;
      }
    }
  }
}

bool Incision::IsNear(uint32_t vertex, uint32_t facet, const IncisionOptions& options) {
  const double share = ShareAt(vertex, facet);
  if (share <= kSnappedShare && snapped_.contains(mesh_->IdOfVertex(vertex))) return true;
  return share <= options.snap && !unsnappable_.contains(static_cast<uint64_t>(vertex) << 1 | facet);
}

void Incision::FindCrossings(const IncisionOptions& options, IncisionResult* result) {
  std::vector<std::pair<uint64_t, std::pair<uint32_t, int>>> edges;
  for (const uint32_t tet : candidates_) {
    const auto& v = mesh_->TetVertices(tet);
    for (int e = 0; e < 6; ++e) {
      const uint32_t a = v[At(kTetEdges[At(e)][0])];
      const uint32_t b = v[At(kTetEdges[At(e)][1])];
      if ((outcodes_[a] & outcodes_[b]) == 0) edges.push_back({EdgeKey(a, b), {tet, e}});
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end(), [](const auto& x, const auto& y) { return x.first == y.first; }), edges.end());

  crossings_.clear();
  reached_.clear();
  crossing_of_edge_.clear();
  masked_.clear();
  mask_.resize(mesh_->tet_slot_count(), 0);
  for (const auto& [key, place] : edges) {
    Crossing crossing{.a = static_cast<uint32_t>(key >> 32), .b = static_cast<uint32_t>(key), .tet = place.first, .edge = place.second};
    const Eigen::Vector3d& a = positions_m_[crossing.a];
    const Eigen::Vector3d& b = positions_m_[crossing.b];
    bool is_crossed = false;
    for (; !is_crossed && crossing.facet < 2; ++crossing.facet) {
      const Facet& facet = facets_[crossing.facet];
      const double a_m = facet.HeightOf(a);
      const double b_m = facet.HeightOf(b);
      if ((a_m > 0) == (b_m > 0)) continue;
      // The line passes the three sides in the same direction; each side's sign is the same for both facets at it.
      double low = 0;
      double high = 0;
      double scale = 0;
      for (size_t c = 0; c < 3; ++c) {
        const Eigen::Vector3d p = facet.corners_m[c] - a;
        const Eigen::Vector3d q = facet.corners_m[(c + 1) % 3] - a;
        const double side = (b - a).dot(p.cross(q));
        low = std::min(low, side);
        high = std::max(high, side);
        scale = std::max(scale, (b - a).norm() * (q - p).norm() * std::max(p.norm(), q.norm()));
      }
      if (-low > kTouch * scale && high > kTouch * scale) continue;
      // Beyond these at vertices that are not snappable.
      crossing.t = std::clamp(a_m / (a_m - b_m), options.snap, 1 - options.snap);
      is_crossed = true;
      break;
    }
    if (!is_crossed) continue;
    const uint32_t nearer = crossing.t < 0.5 ? crossing.a : crossing.b;
    bool is_near = false;
    for (const uint32_t v : {crossing.a, crossing.b}) {
      if (!IsNear(v, crossing.facet, options)) continue;
      is_near = true;
      snapped_.insert(mesh_->IdOfVertex(v));
      // From the farther end the vertex may lie well ahead of the blade; it is reached when its foot is.
      if (v == nearer) reached_.emplace_back(v, crossing.facet);
    }
    if (is_near) continue;
    const double length_m = (mesh_->PositionOf(crossing.b) - mesh_->PositionOf(crossing.a)).norm();
    if (std::min(crossing.t, 1 - crossing.t) * length_m < options.min_edge_m) {
      snapped_.insert(mesh_->IdOfVertex(nearer));
      reached_.emplace_back(nearer, crossing.facet);
      ++result->moved_crossings;
      continue;
    }
    crossing_of_edge_[key] = static_cast<uint32_t>(crossings_.size());
    crossings_.push_back(crossing);
  }
  // A vertex may have become one that the cut goes through after a crossing at it was looked at.
  for (Crossing& crossing : crossings_) {
    for (const uint32_t v : {crossing.a, crossing.b}) {
      if (!IsNear(v, crossing.facet, options)) continue;
      crossing.is_split = false;
      if ((v == crossing.a) == (crossing.t < 0.5)) reached_.emplace_back(v, crossing.facet);
    }
  }
  for (const Crossing& crossing : crossings_) {
    if (!crossing.is_split) continue;
    mesh_->TetsAroundEdge(crossing.tet, crossing.edge, &fan_);
    for (const uint32_t tet : fan_) {
      const auto& v = mesh_->TetVertices(tet);
      if (mask_[tet] == 0) masked_.push_back(tet);
      mask_[tet] = static_cast<uint8_t>(mask_[tet] | 1U << TetEdgeBetween(CornerOf(v, crossing.a), CornerOf(v, crossing.b)));
    }
  }
}

// The plane in which a linear displacement of the tets puts the facet's plane at rest: the gradient of the height over the rest state.
Incision::Hit Incision::HitOf(std::span<const uint32_t> tets, const Facet& facet, double height_m) const {
  Eigen::Vector3d sum = Eigen::Vector3d::Zero();
  double volume = 0;
  for (const uint32_t tet : tets) {
    const auto& v = mesh_->TetVertices(tet);
    std::array<Eigen::Vector3d, 3> e;
    std::array<double, 3> rise_m;
    const double base_m = facet.HeightOf(positions_m_[v[0]]);
    for (size_t k = 0; k < 3; ++k) {
      e[k] = mesh_->PositionOf(v[k + 1]) - mesh_->PositionOf(v[0]);
      rise_m[k] = facet.HeightOf(positions_m_[v[k + 1]]) - base_m;
    }
    sum += rise_m[0] * e[1].cross(e[2]) + rise_m[1] * e[2].cross(e[0]) + rise_m[2] * e[0].cross(e[1]);
    volume += e[0].cross(e[1]).dot(e[2]);
  }
  const double length = sum.norm();
  if (!(length > 0)) return {{facet.normal, facet.normal, stroke_}, 0};
  return {{sum / length, facet.normal, stroke_}, height_m * volume / length};
}

// Vertices that the sweep has reached: those that stand for a crossing, and the near ones whose foot it has passed.
void Incision::FindHits(const IncisionOptions& options) {
  for (const uint32_t v : candidate_vertices_) {
    for (uint32_t f = 0; f < 2; ++f) {
      const Facet& facet = facets_[f];
      if (facet.normal.isZero()) continue;
      const double height_m = facet.HeightOf(positions_m_[v]);
      const double size_m = (facet.corners_m[2] - facet.corners_m[0]).norm();
      const double distance_m = DistanceInPlane(positions_m_[v] - height_m * facet.normal, facet.corners_m, facet.normal);
      if (distance_m <= kFootReach * std::abs(height_m) + kTouch * size_m && IsNear(v, f, options)) reached_.emplace_back(v, f);
    }
  }
  std::sort(reached_.begin(), reached_.end());
  reached_.erase(std::unique(reached_.begin(), reached_.end()), reached_.end());
  hits_.clear();
  for (const auto& [v, f] : reached_) {
    mesh_->TetsAroundVertex(v, &star_);
    hits_.push_back({v, f, HitOf(star_, facets_[f], facets_[f].HeightOf(positions_m_[v]))});
  }
}

// --- splitting --------------------------------------------------------------------------------------------------------------------------

// The cut goes through this vertex; crossings at it are not split.
void Incision::MoveTo(uint32_t vertex, uint32_t facet) {
  snapped_.insert(mesh_->IdOfVertex(vertex));
  reached_.emplace_back(vertex, facet);
  work_.clear();
  for (Crossing& crossing : crossings_) {
    if (!crossing.is_split || (crossing.a != vertex && crossing.b != vertex)) continue;
    crossing.is_split = false;
    mesh_->TetsAroundEdge(crossing.tet, crossing.edge, &fan_);
    for (const uint32_t tet : fan_) {
      const auto& v = mesh_->TetVertices(tet);
      mask_[tet] = static_cast<uint8_t>(mask_[tet] & ~(1U << TetEdgeBetween(CornerOf(v, crossing.a), CornerOf(v, crossing.b))));
      work_.push_back(tet);
    }
  }
}

Eigen::Vector3d Incision::RestOf(uint32_t point) const {
  if ((point & kNewPoint) == 0) return mesh_->PositionOf(point);
  const Crossing& crossing = crossings_[point & ~kNewPoint];
  return (1 - crossing.t) * mesh_->PositionOf(crossing.a) + crossing.t * mesh_->PositionOf(crossing.b);
}

int Incision::MakeChildren(uint32_t tet, Children* children) const {
  // The order of the slots is the common order of the vertices.
  const auto& v = mesh_->TetVertices(tet);
  std::array<uint32_t, 10> points;
  std::copy(v.begin(), v.end(), points.begin());
  bool is_even = true;
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 3; j > i; --j) {
      if (points[j] < points[j - 1]) {
        std::swap(points[j], points[j - 1]);
        is_even = !is_even;
      }
    }
  }
  uint32_t mask = 0;
  for (size_t e = 0; e < 6; ++e) {
    const uint32_t a = points[At(kTetEdges[e][0])];
    const uint32_t b = points[At(kTetEdges[e][1])];
    if ((mask_[tet] >> TetEdgeBetween(CornerOf(v, a), CornerOf(v, b)) & 1) == 0) continue;
    mask |= 1U << e;
    points[4 + e] = kNewPoint | crossing_of_edge_.at(EdgeKey(a, b));
  }
  InnerDiagonal diagonal = InnerDiagonal::k67;
  if (mask == 63) {
    const auto length = [&](size_t i, size_t j) { return (RestOf(points[i]) - RestOf(points[j])).squaredNorm(); };
    if (length(4, 9) < length(6, 7)) diagonal = InnerDiagonal::k49;
    if (length(5, 8) < std::min(length(6, 7), length(4, 9))) diagonal = InnerDiagonal::k58;
  }
  const Subdivision& pattern = SubdivisionOf(mask, diagonal);
  for (int k = 0; k < pattern.count; ++k) {
    const auto& child = pattern.children[At(k)];
    (*children)[At(k)] = {points[child[0]], points[child[1]], points[child[2]], points[child[3]]};
    if (!is_even) std::swap((*children)[At(k)][0], (*children)[At(k)][1]);
  }
  return pattern.count;
}

// Moves crossings to vertices until no tet would be split into bad ones.
void Incision::KeepQuality(const IncisionOptions& options, IncisionResult* result) {
  std::vector<uint32_t> queue = masked_;
  Children children;
  for (size_t i = 0; i < queue.size(); ++i) {
    const uint32_t tet = queue[i];
    if (mask_[tet] == 0) continue;
    const int count = MakeChildren(tet, &children);
    bool is_good = true;
    for (int k = 0; is_good && k < count; ++k) {
      std::array<Eigen::Vector3d, 4> p;
      for (size_t c = 0; c < 4; ++c) p[c] = RestOf(children[At(k)][c]);
      is_good = (p[1] - p[0]).cross(p[2] - p[0]).dot(p[3] - p[0]) > 0 && MeanRatio(p) >= options.min_quality;
    }
    if (is_good) continue;
    // To the nearest end of an edge that the cut can go through. If there is none, the crossings themselves are moved, to the middles of
    // their edges; if that is not enough, to the nearest end.
    double best = 3;
    uint32_t vertex = 0;
    Crossing* moved = nullptr;
    const auto& v = mesh_->TetVertices(tet);
    for (int e = 0; e < 6; ++e) {
      if ((mask_[tet] >> e & 1) == 0) continue;
      Crossing& crossing = crossings_[crossing_of_edge_.at(EdgeKey(v[At(kTetEdges[At(e)][0])], v[At(kTetEdges[At(e)][1])]))];
      for (const auto& [end, share] : {std::pair(crossing.a, crossing.t), std::pair(crossing.b, 1 - crossing.t)}) {
        const double cost = share + (IsSnappable(end, crossing.facet, options) ? 0 : crossing.t == 0.5 ? 2 : 1);
        if (cost >= best) continue;
        best = cost;
        vertex = end;
        moved = &crossing;
      }
    }
    ++result->moved_crossings;
    if (best >= 1 && best < 2) {
      moved->t = 0.5;
      mesh_->TetsAroundEdge(moved->tet, moved->edge, &work_);
    } else {
      MoveTo(vertex, moved->facet);
    }
    queue.insert(queue.end(), work_.begin(), work_.end());
  }
  std::erase_if(masked_, [&](uint32_t tet) { return mask_[tet] == 0; });
}

absl::Status Incision::Split(const IncisionOptions& options, IncisionResult* result) {
  edit_.Clear();
  std::vector<uint32_t> new_index(crossings_.size(), kNoSlot);  // [crossing] new vertex
  std::vector<uint32_t> crossing_of_new;
  Children children;
  for (const uint32_t tet : masked_) {
    const TetId parent = mesh_->IdOfTet(tet);
    edit_.removed.push_back(parent);
    const int count = MakeChildren(tet, &children);
    for (int k = 0; k < count; ++k) {
      MeshEdit::NewTet added{.vertices = {}, .parent = parent};
      std::array<Eigen::Vector3d, 4> p;
      for (size_t c = 0; c < 4; ++c) {
        const uint32_t point = children[At(k)][c];
        p[c] = RestOf(point);
        if ((point & kNewPoint) == 0) {
          added.vertices[c] = mesh_->IdOfVertex(point);
          continue;
        }
        const uint32_t index = point & ~kNewPoint;
        if (new_index[index] == kNoSlot) {
          const Crossing& crossing = crossings_[index];
          new_index[index] = static_cast<uint32_t>(edit_.vertices.size());
          crossing_of_new.push_back(index);
          edit_.vertices.push_back(
              {.position_m = p[c],
               .sources = {{{mesh_->IdOfVertex(crossing.a), 1 - crossing.t}, {mesh_->IdOfVertex(crossing.b), crossing.t}}},
               .source_count = 2});
        }
        added.vertices[c] = NewVertexId(new_index[index]);
      }
      result->min_mean_ratio = std::min(result->min_mean_ratio, MeanRatio(p));
      edit_.tets.push_back(added);
    }
  }
  for (const uint32_t tet : masked_) mask_[tet] = 0;
  if (masked_.empty()) return absl::OkStatus();
  if (mesh_->tet_count() - masked_.size() + edit_.tets.size() > options.tet_budget) {
    result->is_refused = true;
    return absl::OkStatus();
  }
  // Normals need the tets as they are.
  std::vector<Hit> new_hits;
  std::vector<Eigen::Vector3d> new_positions_m;
  for (const uint32_t index : crossing_of_new) {
    const Crossing& crossing = crossings_[index];
    mesh_->TetsAroundEdge(crossing.tet, crossing.edge, &fan_);
    new_hits.push_back(HitOf(fan_, facets_[crossing.facet], 0));
    new_positions_m.push_back((1 - crossing.t) * positions_m_[crossing.a] + crossing.t * positions_m_[crossing.b]);
  }
  PALPATE_RETURN_IF_ERROR(mesh_->Apply(edit_));
  positions_m_.resize(mesh_->vertex_slot_count());
  for (size_t i = 0; i < new_hits.size(); ++i) {
    const VertexId id = mesh_->delta().added_vertices[i].id;
    positions_m_[SlotOf(id)] = new_positions_m[i];
    snapped_.insert(id);
    AddHit(SlotOf(id), new_hits[i]);
  }
  for (size_t i = 0; i < new_hits.size(); ++i) {
    NoteSides(SlotOf(mesh_->delta().added_vertices[i].id), new_hits[i], facets_[crossings_[crossing_of_new[i]].facet]);
  }
  result->split_edges += new_hits.size();
  result->split_tets += edit_.removed.size();
  result->added_tets += edit_.tets.size() - edit_.removed.size();
  return absl::OkStatus();
}

void Incision::AddHit(uint32_t vertex, const Hit& hit) {
  const VertexId id = mesh_->IdOfVertex(vertex);
  auto [it, is_new] = marks_.try_emplace(vertex);
  Mark& mark = it->second;
  if (is_new) marked_.push_back(vertex);
  if (mark.id != id) {
    mark = Mark();
    mark.id = id;
  }
  mark.is_dormant = mark.is_finished = false;
  const auto same = std::find_if(mark.hits.begin(), mark.hits.end(),
                                 [&](const Hit& other) { return std::abs(Cosine(other.sheet, hit.sheet)) >= kSameHit; });
  if (same != mark.hits.end()) {
    *same = hit;
  } else {
    mark.hits.push_back(hit);
  }
}

// --- strokes ----------------------------------------------------------------------------------------------------------------------------

void Incision::DropMarks(bool is_stroke_over) {
  std::erase_if(marked_, [&](uint32_t vertex) {
    const auto it = marks_.find(vertex);
    if (it == marks_.end()) return true;
    it->second.is_dormant = it->second.is_dormant || is_stroke_over;
    if (mesh_->Find(it->second.id) != kNoSlot && (!is_stroke_over || it->second.is_joined)) return false;
    marks_.erase(it);
    return true;
  });
}

bool Incision::IsUnderWay() const {
  return std::any_of(marks_.begin(), marks_.end(), [](const auto& entry) { return !entry.second.is_dormant && !entry.second.is_finished; });
}

bool Incision::IsBladeInTissue() const {
  const Eigen::Array3d low = blade_m_[0].cwiseMin(blade_m_[1]);
  const Eigen::Array3d high = blade_m_[0].cwiseMax(blade_m_[1]);
  for (uint32_t tet = 0; tet < mesh_->tet_slot_count(); ++tet) {
    if (!mesh_->IsTet(tet)) continue;
    const auto& v = mesh_->TetVertices(tet);
    if (std::any_of(v.begin(), v.end(), [&](uint32_t w) { return w >= positions_m_.size(); })) continue;  // of somebody else's edit
    const std::array<Eigen::Vector3d, 4> x = {positions_m_[v[0]], positions_m_[v[1]], positions_m_[v[2]], positions_m_[v[3]]};
    if ((x[0].cwiseMax(x[1]).cwiseMax(x[2].cwiseMax(x[3])).array() < low).any()) continue;
    if ((x[0].cwiseMin(x[1]).cwiseMin(x[2].cwiseMin(x[3])).array() > high).any()) continue;
    if (MeetsSegment(x, blade_m_)) return true;
  }
  return false;
}

/// Whether what was read may be used as indices.
bool Incision::IsSound() const {
  const uint32_t count = mesh_->vertex_slot_count();
  const auto is_slot = [&](const auto& entry) { return entry.first < count; };
  return std::all_of(marks_.begin(), marks_.end(), is_slot) && std::all_of(sides_.begin(), sides_.end(), is_slot) &&
         std::all_of(marked_.begin(), marked_.end(), [&](uint32_t vertex) { return vertex < count; }) &&
         std::all_of(rests_.begin(), rests_.end(),
                     [&](const Rest& rest) { return std::all_of(rest.marks.begin(), rest.marks.end(), is_slot); });
}

void Incision::EndStroke() {
  if (is_blade_known_ && !marks_.empty() && IsBladeInTissue()) {
    if (rests_.size() == kMaxRests) rests_.erase(rests_.begin());
    Rest& rest = rests_.emplace_back();
    rest.blade_m = blade_m_;
    for (const uint32_t vertex : marked_) {
      const auto it = marks_.find(vertex);
      if (it != marks_.end() && !it->second.is_dormant && !it->second.is_finished) rest.marks.emplace_back(vertex, it->second);
    }
    rest.snapped.assign(snapped_.begin(), snapped_.end());
    std::sort(rest.snapped.begin(), rest.snapped.end());
  }
  DropMarks(true);
  snapped_.clear();
  sides_.clear();
  is_blade_known_ = false;
  ++stroke_;
}

// Goes on with the strokes that have ended where the blade is now.
void Incision::Resume(const std::array<Eigen::Vector3d, 2>& blade_m) {
  std::erase_if(rests_, [&](const Rest& rest) {
    if (!IsAtBlade(rest.blade_m, blade_m)) return false;
    for (const auto& [vertex, mark] : rest.marks) {
      if (mesh_->Find(mark.id) == kNoSlot) continue;
      const auto [it, is_new] = marks_.try_emplace(vertex, mark);
      if (is_new) marked_.push_back(vertex);
      it->second.is_dormant = false;
      for (Hit& hit : it->second.hits) hit.sheet.stroke = stroke_;
    }
    for (const VertexId id : rest.snapped) {
      if (mesh_->Find(id) != kNoSlot) snapped_.insert(id);
    }
    return true;
  });
}

// --- a sweep ----------------------------------------------------------------------------------------------------------------------------

absl::Status Incision::CutPart(const Quad& quad, const IncisionOptions& options, IncisionResult* result) {
  const std::array<std::array<size_t, 3>, 2> triangles = {{{0, 1, 2}, {0, 2, 3}}};
  for (size_t f = 0; f < 2; ++f) {
    Facet& facet = facets_[f];
    for (size_t c = 0; c < 3; ++c) facet.corners_m[c] = quad[triangles[f][c]];
    const Eigen::Vector3d area = (facet.corners_m[1] - facet.corners_m[0]).cross(facet.corners_m[2] - facet.corners_m[0]);
    const double size_sq =
        (facet.corners_m[1] - facet.corners_m[0]).squaredNorm() + (facet.corners_m[2] - facet.corners_m[0]).squaredNorm();
    facet.normal = area.norm() > kTouch * size_sq ? Eigen::Vector3d(area.normalized()) : Eigen::Vector3d::Zero();
  }
  if (facets_[0].normal.isZero() && facets_[1].normal.isZero()) return absl::OkStatus();
  if (!FindCandidates(quad)) {
    is_blade_known_ = false;
    EndStroke();
    return Open(result);
  }
  shares_.clear();
  FindUnsnappable(options);
  FindCrossings(options, result);
  KeepQuality(options, result);
  FindHits(options);
  PALPATE_RETURN_IF_ERROR(Split(options, result));
  if (result->is_refused) return absl::OkStatus();
  for (const ReachedHit& reached : hits_) {
    result->snapped_vertices += marks_.contains(reached.vertex) ? 0 : 1;
    snapped_.insert(mesh_->IdOfVertex(reached.vertex));
    AddHit(reached.vertex, reached.hit);
  }
  for (const ReachedHit& reached : hits_) NoteSides(reached.vertex, reached.hit, facets_[reached.facet]);
  return Open(result);
}

absl::StatusOr<IncisionResult> Incision::Cut(std::span<const Eigen::Vector3d> positions_by_slot_m,
                                             const std::array<Eigen::Vector3d, 2>& blade_from_m,
                                             const std::array<Eigen::Vector3d, 2>& blade_to_m, const IncisionOptions& options) {
  if (!(options.snap >= 0.01 && options.snap <= 0.4)) {
    return absl::InvalidArgumentError(absl::StrCat("snap is ", options.snap, ", must be in [0.01, 0.4]"));
  }
  if (!(options.min_quality >= 0.001 && options.min_quality <= 0.5)) {
    return absl::InvalidArgumentError(absl::StrCat("min_quality is ", options.min_quality, ", must be in [0.001, 0.5]"));
  }
  if (!(options.min_edge_m >= 0) || !std::isfinite(options.min_edge_m)) {
    return absl::InvalidArgumentError(absl::StrCat("min_edge_m is ", options.min_edge_m, ", must be finite and not negative"));
  }
  for (size_t i = 0; i < 2; ++i) {
    if (!blade_from_m[i].allFinite()) return absl::InvalidArgumentError(absl::StrCat("blade_from_m[", i, "]: a coordinate is not finite"));
    if (!blade_to_m[i].allFinite()) return absl::InvalidArgumentError(absl::StrCat("blade_to_m[", i, "]: a coordinate is not finite"));
  }
  if (positions_by_slot_m.size() < mesh_->vertex_slot_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("positions of ", positions_by_slot_m.size(), " vertex slots given, the mesh has ", mesh_->vertex_slot_count()));
  }
  for (uint32_t v = 0; v < mesh_->vertex_slot_count(); ++v) {
    if (mesh_->IsVertex(v) && !positions_by_slot_m[v].allFinite()) {
      return absl::InvalidArgumentError(absl::StrCat("positions_by_slot_m[", v, "]: a coordinate is not finite"));
    }
  }
  positions_m_.assign(positions_by_slot_m.begin(), positions_by_slot_m.begin() + mesh_->vertex_slot_count());
  if (is_blade_known_ && !IsAtBlade(blade_m_, blade_from_m)) EndStroke();  // another blade, or put down elsewhere
  if (!is_blade_known_) Resume(blade_from_m);
  IncisionResult result;
  // How far the quadrilateral is from flat.
  const Eigen::Vector3d first = (blade_from_m[1] - blade_from_m[0]).cross(blade_to_m[1] - blade_from_m[0]);
  const Eigen::Vector3d second = (blade_to_m[1] - blade_from_m[0]).cross(blade_to_m[0] - blade_from_m[0]);
  const double twist = std::atan2(first.cross(second).norm(), first.dot(second));
  const int parts = std::clamp(static_cast<int>(std::ceil(twist / kMaxTwist)), 1, kMaxParts);
  for (int p = 0; p < parts && !result.is_refused; ++p) {
    const auto at = [&](size_t i, int k) {
      const double s = static_cast<double>(k) / parts;
      return k == parts ? blade_to_m[i] : Eigen::Vector3d((1 - s) * blade_from_m[i] + s * blade_to_m[i]);
    };
    PALPATE_RETURN_IF_ERROR(CutPart({at(0, p), at(1, p), at(1, p + 1), at(0, p + 1)}, options, &result));
  }
  blade_m_ = blade_to_m;
  is_blade_known_ = true;
  result.front_faces = front_faces_;
  result.joined_faces = joined_faces_;
  return result;
}

}  // namespace palpate::sim
