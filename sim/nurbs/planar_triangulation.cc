#include "sim/nurbs/planar_triangulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "sim/mesh/exact_predicates.h"

namespace palpate::sim {
namespace {

using Eigen::Vector2d;

constexpr double kInCircleRounding = 1e-13;  // of the sum of the sizes of its terms

int Next(int i) { return i == 2 ? 0 : i + 1; }
int Before(int i) { return i == 0 ? 2 : i - 1; }
size_t Of(int i) { return static_cast<size_t>(i); }

// Whether d lies inside the circle of a, b, c by more than rounding.
bool IsInCircle(const Vector2d& a, const Vector2d& b, const Vector2d& c, const Vector2d& d) {
  const Vector2d p = a - d;
  const Vector2d q = b - d;
  const Vector2d r = c - d;
  const double pq = p.x() * q.y() - p.y() * q.x();
  const double qr = q.x() * r.y() - q.y() * r.x();
  const double rp = r.x() * p.y() - r.y() * p.x();
  const double value = p.squaredNorm() * qr + q.squaredNorm() * rp + r.squaredNorm() * pq;
  const double size = p.squaredNorm() * q.norm() * r.norm() + q.squaredNorm() * r.norm() * p.norm() + r.squaredNorm() * p.norm() * q.norm();
  return value > kInCircleRounding * size;
}

}  // namespace

PlanarTriangulation::PlanarTriangulation(const Eigen::AlignedBox2d& box) {
  points_ = {box.min(), {box.max().x(), box.min().y()}, box.max(), {box.min().x(), box.max().y()}};
  constexpr std::array<EdgeKind, 3> kFree = {EdgeKind::kFree, EdgeKind::kFree, EdgeKind::kFree};
  triangles_.push_back({{0, 1, 2}, {kNone, 1, kNone}, kFree, {0, 0, 0}, 0});
  triangles_.push_back({{0, 2, 3}, {kNone, kNone, 0}, kFree, {0, 0, 0}, 0});
  triangle_of_ = {0, 0, 0, 1};
}

int PlanarTriangulation::IndexOf(uint32_t triangle, uint32_t vertex) const {
  const auto& vertices = triangles_[triangle].vertices;
  return vertices[0] == vertex ? 0 : vertices[1] == vertex ? 1 : 2;
}

PlanarTriangulation::Side PlanarTriangulation::Opposite(const Side& side) const {
  const Triangle& here = triangles_[side.triangle];
  const uint32_t neighbor = here.neighbors[Of(side.across)];
  if (neighbor == kNone) return {kNone, 0};
  // The vertex of the neighbor that is not on the edge.
  return {neighbor, Next(IndexOf(neighbor, here.vertices[Of(Next(side.across))]))};
}

uint32_t PlanarTriangulation::Locate(const Vector2d& point) const {
  const auto is_in = [&](const Triangle& t, int* leaves) {
    for (int i = 0; i < 3; ++i) {
      if (Orient2d(points_[t.vertices[Of(Next(i))]], points_[t.vertices[Of(Before(i))]], point) < 0) {
        *leaves = i;
        return false;
      }
    }
    return true;
  };
  uint32_t at = last_ < triangles_.size() ? last_ : 0;
  for (size_t step = 0; step < 2 * triangles_.size() + 16; ++step) {
    int leaves = 0;
    if (is_in(triangles_[at], &leaves)) return last_ = at;
    at = triangles_[at].neighbors[Of(leaves)];
    if (at == kNone) break;
  }
  // A walk may go round in circles where fixed edges are in its way.
  for (uint32_t t = 0; t < triangles_.size(); ++t) {
    int leaves = 0;
    if (is_in(triangles_[t], &leaves)) return last_ = t;
  }
  return last_ = 0;
}

void PlanarTriangulation::Link(uint32_t triangle, int across, uint32_t neighbor, uint32_t old) {
  triangles_[triangle].neighbors[Of(across)] = neighbor;
  if (neighbor == kNone) return;
  for (uint32_t& back : triangles_[neighbor].neighbors) {
    if (back == old) {
      back = triangle;
      return;
    }
  }
}

uint32_t PlanarTriangulation::Insert(const Vector2d& point) {
  const uint32_t at = Locate(point);
  const Triangle old = triangles_[at];
  int on = -1;
  for (int i = 0; i < 3; ++i) {
    if (points_[old.vertices[Of(i)]] == point) return old.vertices[Of(i)];
    if (Orient2d(points_[old.vertices[Of(Next(i))]], points_[old.vertices[Of(Before(i))]], point) == 0) on = i;
  }
  if (on >= 0) return *SplitEdge(at, on, point);
  const auto vertex = static_cast<uint32_t>(points_.size());
  points_.push_back(point);
  const auto second = static_cast<uint32_t>(triangles_.size());
  const uint32_t third = second + 1;
  const auto [a, b, c] = old.vertices;
  constexpr std::array<EdgeKind, 3> kFree = {EdgeKind::kFree, EdgeKind::kFree, EdgeKind::kFree};
  triangles_[at] = {{vertex, b, c}, {kNone, second, third}, kFree, {0, 0, 0}, old.winding};
  triangles_.push_back({{vertex, c, a}, {kNone, third, at}, kFree, {0, 0, 0}, old.winding});
  triangles_.push_back({{vertex, a, b}, {kNone, at, second}, kFree, {0, 0, 0}, old.winding});
  const std::array<uint32_t, 3> parts = {at, second, third};
  for (size_t i = 0; i < 3; ++i) {
    Triangle& part = triangles_[parts[i]];
    part.kinds[0] = old.kinds[i];
    part.turns[0] = old.turns[i];
    Link(parts[i], 0, old.neighbors[i], at);
  }
  triangle_of_.push_back(at);
  triangle_of_[a] = second;
  triangle_of_[b] = at;
  triangle_of_[c] = at;
  changed_.insert(changed_.end(), {at, second, third});
  Legalize(vertex, {at, second, third});
  return vertex;
}

std::optional<uint32_t> PlanarTriangulation::SplitEdge(uint32_t triangle, int across, const Vector2d& point) {
  const Side back = Opposite({triangle, across});
  const Triangle here = triangles_[triangle];
  const uint32_t a = here.vertices[Of(across)];
  const uint32_t b = here.vertices[Of(Next(across))];
  const uint32_t c = here.vertices[Of(Before(across))];
  if (Orient2d(points_[a], points_[b], point) <= 0 || Orient2d(points_[a], point, points_[c]) <= 0) return std::nullopt;
  Triangle there{};
  uint32_t d = kNone;
  if (back.triangle != kNone) {
    there = triangles_[back.triangle];
    d = there.vertices[Of(back.across)];
    if (Orient2d(points_[d], points_[c], point) <= 0 || Orient2d(points_[d], point, points_[b]) <= 0) return std::nullopt;
  }
  const auto vertex = static_cast<uint32_t>(points_.size());
  points_.push_back(point);
  const auto second = static_cast<uint32_t>(triangles_.size());
  const uint32_t third = d == kNone ? kNone : second + 1;
  const EdgeKind kind = here.kinds[Of(across)];
  const int32_t turn = here.turns[Of(across)];
  // (a, b, vertex) stays, (a, vertex, c) is new; on the other side (d, c, vertex) stays, (d, vertex, b) is new.
  triangles_[triangle] = {{a, b, vertex},
                          {third == kNone ? kNone : third, second, here.neighbors[Of(Before(across))]},
                          {kind, EdgeKind::kFree, here.kinds[Of(Before(across))]},
                          {turn, 0, here.turns[Of(Before(across))]},
                          here.winding};
  triangles_.push_back({{a, vertex, c},
                        {back.triangle, here.neighbors[Of(Next(across))], triangle},
                        {kind, here.kinds[Of(Next(across))], EdgeKind::kFree},
                        {turn, here.turns[Of(Next(across))], 0},
                        here.winding});
  Link(second, 1, here.neighbors[Of(Next(across))], triangle);
  std::vector<uint32_t> pending = {triangle, second};
  if (d != kNone) {
    triangles_[back.triangle] = {{d, c, vertex},
                                 {second, third, there.neighbors[Of(Before(back.across))]},
                                 {kind, EdgeKind::kFree, there.kinds[Of(Before(back.across))]},
                                 {-turn, 0, there.turns[Of(Before(back.across))]},
                                 there.winding};
    triangles_.push_back({{d, vertex, b},
                          {triangle, there.neighbors[Of(Next(back.across))], back.triangle},
                          {kind, there.kinds[Of(Next(back.across))], EdgeKind::kFree},
                          {-turn, there.turns[Of(Next(back.across))], 0},
                          there.winding});
    Link(third, 1, there.neighbors[Of(Next(back.across))], back.triangle);
    triangle_of_[d] = back.triangle;
    pending.push_back(back.triangle);
    pending.push_back(third);
  }
  triangle_of_.push_back(triangle);
  triangle_of_[a] = triangle;
  triangle_of_[b] = triangle;
  triangle_of_[c] = second;
  changed_.insert(changed_.end(), pending.begin(), pending.end());
  Legalize(vertex, std::move(pending));
  return vertex;
}

bool PlanarTriangulation::CanFlip(const Side& side) const {
  const Triangle& here = triangles_[side.triangle];
  if (here.kinds[Of(side.across)] != EdgeKind::kFree) return false;
  const Side back = Opposite(side);
  if (back.triangle == kNone) return false;
  const Vector2d& a = points_[here.vertices[Of(side.across)]];
  const Vector2d& b = points_[here.vertices[Of(Next(side.across))]];
  const Vector2d& c = points_[here.vertices[Of(Before(side.across))]];
  const Vector2d& d = points_[triangles_[back.triangle].vertices[Of(back.across)]];
  return Orient2d(a, b, d) > 0 && Orient2d(a, d, c) > 0;
}

bool PlanarTriangulation::ShouldFlip(const Side& side) const {
  const Side back = Opposite(side);
  if (back.triangle == kNone) return false;
  const auto& v = triangles_[side.triangle].vertices;
  return IsInCircle(points_[v[0]], points_[v[1]], points_[v[2]], points_[triangles_[back.triangle].vertices[Of(back.across)]]) &&
         CanFlip(side);
}

void PlanarTriangulation::Flip(const Side& side) {
  const Side back = Opposite(side);
  const Triangle here = triangles_[side.triangle];
  const Triangle there = triangles_[back.triangle];
  const int i = side.across;
  const int j = back.across;
  const uint32_t a = here.vertices[Of(i)];
  const uint32_t b = here.vertices[Of(Next(i))];
  const uint32_t c = here.vertices[Of(Before(i))];
  const uint32_t d = there.vertices[Of(j)];
  // there is (d, c, b): the edge across from c is (b, d), that across from b is (d, c).
  triangles_[side.triangle] = {{a, b, d},
                               {there.neighbors[Of(Next(j))], back.triangle, here.neighbors[Of(Before(i))]},
                               {there.kinds[Of(Next(j))], EdgeKind::kFree, here.kinds[Of(Before(i))]},
                               {there.turns[Of(Next(j))], 0, here.turns[Of(Before(i))]},
                               here.winding};
  triangles_[back.triangle] = {{a, d, c},
                               {there.neighbors[Of(Before(j))], here.neighbors[Of(Next(i))], side.triangle},
                               {there.kinds[Of(Before(j))], here.kinds[Of(Next(i))], EdgeKind::kFree},
                               {there.turns[Of(Before(j))], here.turns[Of(Next(i))], 0},
                               there.winding};
  Link(side.triangle, 0, there.neighbors[Of(Next(j))], back.triangle);
  Link(back.triangle, 1, here.neighbors[Of(Next(i))], side.triangle);
  triangle_of_[a] = side.triangle;
  triangle_of_[b] = side.triangle;
  triangle_of_[d] = side.triangle;
  triangle_of_[c] = back.triangle;
  changed_.insert(changed_.end(), {side.triangle, back.triangle});
}

void PlanarTriangulation::Legalize(uint32_t vertex, std::vector<uint32_t> pending) {
  size_t allowed = 64 + 8 * triangles_.size();  // rounding must not let it go round in circles
  while (!pending.empty() && allowed-- > 0) {
    const uint32_t t = pending.back();
    pending.pop_back();
    const Side side{t, IndexOf(t, vertex)};
    if (!ShouldFlip(side)) continue;
    const uint32_t neighbor = triangles_[t].neighbors[Of(side.across)];
    Flip(side);
    pending.push_back(t);
    pending.push_back(neighbor);
  }
}

std::optional<PlanarTriangulation::Side> PlanarTriangulation::FindEdge(uint32_t from, uint32_t to) const {
  const uint32_t start = triangle_of_[from];
  uint32_t at = start;
  do {
    const int i = IndexOf(at, from);
    if (triangles_[at].vertices[Of(Next(i))] == to) return Side{at, Before(i)};
    if (triangles_[at].vertices[Of(Before(i))] == to) {
      const Side back = Opposite({at, Next(i)});
      if (back.triangle != kNone) return back;
    }
    at = triangles_[at].neighbors[Of(Next(i))];  // across the edge that ends in `from`: counter-clockwise
  } while (at != start && at != kNone);
  if (at == start) return std::nullopt;
  // A corner of the box: the other way round as well.
  for (at = start; at != kNone; at = triangles_[at].neighbors[Of(Before(IndexOf(at, from)))]) {
    const int i = IndexOf(at, from);
    if (triangles_[at].vertices[Of(Next(i))] == to) return Side{at, Before(i)};
  }
  return std::nullopt;
}

void PlanarTriangulation::Mark(const Side& side, EdgeKind kind) {
  const Side back = Opposite(side);
  for (const Side& s : {side, back}) {
    EdgeKind& to = triangles_[s.triangle].kinds[Of(s.across)];
    if (to != EdgeKind::kOutline) to = kind;
  }
  if (kind != EdgeKind::kOutline) return;
  triangles_[side.triangle].turns[Of(side.across)] += 1;
  triangles_[back.triangle].turns[Of(back.across)] -= 1;
}

std::optional<Vector2d> PlanarTriangulation::Fix(uint32_t from, uint32_t to, EdgeKind kind) {
  while (from != to) {
    if (const auto side = FindEdge(from, to)) {
      Mark(*side, kind);
      return std::nullopt;
    }
    const Vector2d a = points_[from];
    const Vector2d b = points_[to];
    // Where the segment leaves the triangles around its start: through a vertex, or between two.
    const uint32_t start = triangle_of_[from];
    uint32_t at = start;
    uint32_t through = kNone;
    Side crossed{kNone, 0};
    do {
      const int i = IndexOf(at, from);
      const uint32_t p = triangles_[at].vertices[Of(Next(i))];
      const uint32_t q = triangles_[at].vertices[Of(Before(i))];
      const int of_p = Orient2d(a, b, points_[p]);
      if (of_p == 0 && (points_[p] - a).dot(b - a) > 0) through = p;
      if (of_p < 0 && Orient2d(a, b, points_[q]) > 0) crossed = {at, i};
      at = triangles_[at].neighbors[Of(Next(i))];
    } while (at != start && at != kNone && through == kNone && crossed.triangle == kNone);
    if (through != kNone) {
      Mark(*FindEdge(from, through), kind);
      from = through;
      continue;
    }
    if (crossed.triangle == kNone) return a;
    // The edges in the way, up to the end or a vertex on the segment.
    std::deque<std::pair<uint32_t, uint32_t>> in_way;
    uint32_t end = kNone;
    while (end == kNone) {
      const Triangle& t = triangles_[crossed.triangle];
      const uint32_t right = t.vertices[Of(Next(crossed.across))];
      const uint32_t left = t.vertices[Of(Before(crossed.across))];
      if (t.kinds[Of(crossed.across)] != EdgeKind::kFree) return Vector2d(0.5 * (points_[right] + points_[left]));
      in_way.emplace_back(right, left);
      const Side back = Opposite(crossed);
      if (back.triangle == kNone) return a;
      const uint32_t r = triangles_[back.triangle].vertices[Of(back.across)];
      const int of_r = r == to ? 0 : Orient2d(a, b, points_[r]);
      if (of_r == 0) {
        end = r;
      } else {
        // On the left: the edge from `right` to r is next, across from `left`.
        crossed = {back.triangle, IndexOf(back.triangle, of_r > 0 ? left : right)};
      }
    }
    size_t allowed = 1000 + in_way.size() * in_way.size() * 4;
    while (!in_way.empty()) {
      if (allowed-- == 0) return a;
      const auto [p, q] = in_way.front();
      in_way.pop_front();
      const auto side = FindEdge(p, q);
      if (!side) continue;
      if (!CanFlip(*side)) {
        in_way.emplace_back(p, q);
        continue;
      }
      const uint32_t r = triangles_[side->triangle].vertices[Of(side->across)];
      const Side back = Opposite(*side);
      const uint32_t s = triangles_[back.triangle].vertices[Of(back.across)];
      Flip(*side);
      if (r == from || r == end || s == from || s == end) continue;
      if (Orient2d(a, b, points_[r]) * Orient2d(a, b, points_[s]) < 0) in_way.emplace_back(r, s);
    }
    const auto side = FindEdge(from, end);
    if (!side) return a;
    Mark(*side, kind);
    from = end;
  }
  return std::nullopt;
}

void PlanarTriangulation::MakeDelaunay() {
  bool has_flipped = true;
  for (int pass = 0; has_flipped && pass < 100; ++pass) {
    has_flipped = false;
    for (uint32_t t = 0; t < triangles_.size(); ++t) {
      for (int i = 0; i < 3; ++i) {
        if (!ShouldFlip({t, i})) continue;
        Flip({t, i});
        has_flipped = true;
      }
    }
  }
}

void PlanarTriangulation::FindWindings() {
  std::vector<bool> is_known(triangles_.size());
  std::vector<uint32_t> pending = {triangle_of_[0]};
  is_known[pending[0]] = true;
  triangles_[pending[0]].winding = 0;
  while (!pending.empty()) {
    const uint32_t t = pending.back();
    pending.pop_back();
    for (size_t i = 0; i < 3; ++i) {
      const uint32_t neighbor = triangles_[t].neighbors[i];
      if (neighbor == kNone || is_known[neighbor]) continue;
      is_known[neighbor] = true;
      triangles_[neighbor].winding = triangles_[t].winding - triangles_[t].turns[i];
      pending.push_back(neighbor);
    }
  }
}

}  // namespace palpate::sim
