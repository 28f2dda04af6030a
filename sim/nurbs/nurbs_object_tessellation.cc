#include "sim/nurbs/nurbs_object_tessellation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/nurbs/nurbs_derivative_bounds.h"
#include "sim/nurbs/nurbs_tessellation.h"
#include "sim/nurbs/planar_triangulation.h"
#include "sim/nurbs/short_edges.h"

namespace palpate::sim {
namespace {

using Eigen::Vector2d;
using Eigen::Vector3d;

constexpr int kMaxHalvings = 40;
constexpr double kSameParameter = 1e-10;  // of an edge: breaks nearer than that are one
constexpr double kSnap = 1e-8;            // to lines of knots and the domain's sides, as a share of the domain
constexpr double kSnapOfLoops = 2 * kNurbsLoopGap;
constexpr double kTurnedAway = 0.17;    // cosine
constexpr double kNoArea = 1e-9;        // twice the area of a triangle, as a share of the square of its longest side
constexpr double kFinest = 1.0 / 256;   // of the square of the length that is fine enough: as far triangles are cut that are turned away
constexpr double kStraight = 1e-9;      // share of the object's size
constexpr double kShortEdge = 1.0 / 8;  // of the tolerance, for meshes with a least number of parts
constexpr double kShortEdgeShare = 1.0 / 16;     // of the longest edge beside it
constexpr size_t kMaxSamples = size_t{1} << 19;  // of all edges
constexpr int kPartsOfBounds = 4;                // a Bezier patch is cut into so many each way: bounds of smaller parts are closer

// The cells between the knots of a patch, with how long a line in one counts.
class Cells {
 public:
  Cells(const NurbsSurface& surface, size_t least_cells) : least_cells_(static_cast<double>(least_cells)) {
    for (const double t : surface.knots(NurbsDirection::kU)) {
      if (lines_[0].empty() || t > lines_[0].back()) lines_[0].push_back(t);
    }
    for (const double t : surface.knots(NurbsDirection::kV)) {
      if (lines_[1].empty() || t > lines_[1].back()) lines_[1].push_back(t);
    }
    for (const auto direction : {NurbsDirection::kU, NurbsDirection::kV}) {
      const auto knots = surface.knots(direction);
      std::vector<double>& creases = creases_[direction == NurbsDirection::kU ? 0 : 1];
      for (const double t : lines_[direction == NurbsDirection::kU ? 0 : 1]) {
        if (least_cells == 1 || std::count(knots.begin(), knots.end(), t) >= surface.degree(direction)) creases.push_back(t);
      }
    }
    for (const NurbsSurface& piece : surface.BezierPatches()) {
      const NurbsDerivativeBounds bounds = BoundNurbsDerivatives(piece, kPartsOfBounds);
      const auto [u0, u1] = piece.domain(NurbsDirection::kU);
      const auto [v0, v1] = piece.domain(NurbsDirection::kV);
      // |2 S_uv du dv| <= |S_uv| (k du^2 + dv^2 / k) for every k.
      const double k = (v1 - v0) / (u1 - u0);
      squares_.push_back({bounds.uu + k * bounds.uv, bounds.vv + bounds.uv / k});
      speed_ = speed_.cwiseMax(Vector2d(bounds.u, bounds.v));
    }
    const Vector2d widths(lines_[0].back() - lines_[0].front(), lines_[1].back() - lines_[1].front());
    // For shapes of triangles and for walks in the plane both directions need a length, with a square that is not 0.
    const double least = 1e-6 * std::max((speed_.cwiseProduct(widths)).maxCoeff(), 1e-90);
    scale_ = speed_.cwiseMax(Vector2d(least, least).cwiseQuotient(widths));
  }

  const std::vector<double>& lines(int axis) const { return lines_[static_cast<size_t>(axis)]; }
  // Lines that no triangle may cross. Where there is a least number of parts, whose points need not lie on lines, the surface has one
  // tangential plane across the others: bounds of its second derivatives on both sides are one for both.
  const std::vector<double>& creases(int axis) const { return creases_[static_cast<size_t>(axis)]; }
  bool IsOnCrease(const Vector2d& uv) const {
    for (int axis = 0; axis < 2; ++axis) {
      for (const double line : creases(axis)) {
        if (std::abs(uv[axis] - line) <= kSnap * (lines(axis).back() - lines(axis).front())) return true;
      }
    }
    return false;
  }
  const Vector2d& speed() const { return speed_; }  // the most of |S_u| and |S_v|
  const Vector2d& scale() const { return scale_; }

  // On a line of knots or a side that is nearer than the share of the domain; with `only` one coordinate alone.
  Vector2d Snapped(Vector2d uv, double share, int only = -1) const {
    for (int axis = 0; axis < 2; ++axis) {
      if (only >= 0 && axis != only) continue;
      const std::vector<double>& lines = this->lines(axis);
      const double near = share * (lines.back() - lines.front());
      uv[axis] = std::clamp(uv[axis], lines.front(), lines.back());
      const auto next = std::lower_bound(lines.begin(), lines.end(), uv[axis]);
      double best = *next;
      if (next != lines.begin() && uv[axis] - next[-1] < best - uv[axis]) best = next[-1];
      if (std::abs(best - uv[axis]) <= near) uv[axis] = best;
    }
    return uv;
  }

  // The square of a line's length, the most of the cells that it lies in; nothing if it crosses a crease.
  std::optional<double> SquareOf(const Vector2d& a, const Vector2d& b) const {
    std::array<std::pair<size_t, size_t>, 2> ranges;
    for (int axis = 0; axis < 2; ++axis) {
      const std::vector<double>& lines = this->lines(axis);
      const auto [low, high] = std::minmax({a[axis], b[axis]});
      const auto next = std::upper_bound(creases(axis).begin(), creases(axis).end(), low);
      if (next != creases(axis).end() && *next < high) return std::nullopt;
      // From the last cell that begins at or before one end to the first that ends at or behind the other; one that has both, if any.
      auto last = static_cast<size_t>(std::upper_bound(lines.begin(), lines.end(), low) - lines.begin());
      auto first = static_cast<size_t>(std::lower_bound(lines.begin(), lines.end(), high) - lines.begin());
      last = std::min(last, lines.size() - 1);
      first = std::max<size_t>(first, 1);
      ranges[static_cast<size_t>(axis)] = std::minmax({first - 1, last - 1});
    }
    double most = 0;
    for (size_t i = ranges[0].first; i <= ranges[0].second; ++i) {
      for (size_t j = ranges[1].first; j <= ranges[1].second; ++j) most = std::max(most, SquareIn(i * (lines_[1].size() - 1) + j, b - a));
    }
    return most;
  }
  // Of a side of a triangle, which crosses no crease but for rounding.
  double SquareOfSide(const Vector2d& a, const Vector2d& b, size_t cell) const {
    if (least_cells_ == 1) return SquareIn(cell, b - a);
    return std::max(SquareIn(cell, b - a), SquareOf(a, b).value_or(0));
  }

  // Whether a line is longer in u or v than the width of the cell at its middle by the least number of parts. One part may be all of it.
  bool IsLong(const Vector2d& a, const Vector2d& b) const {
    if (least_cells_ == 1) return false;
    const size_t cell = CellAt(0.5 * a + 0.5 * b);
    const std::array<size_t, 2> at = {cell / (lines_[1].size() - 1), cell % (lines_[1].size() - 1)};
    for (int axis = 0; axis < 2; ++axis) {
      const std::vector<double>& lines = this->lines(axis);
      const size_t k = at[static_cast<size_t>(axis)];
      if (std::abs(b[axis] - a[axis]) * least_cells_ > (1 + kSameParameter) * (lines[k + 1] - lines[k])) return true;
    }
    return false;
  }

  size_t CellAt(const Vector2d& uv) const {
    std::array<size_t, 2> at{};
    for (int axis = 0; axis < 2; ++axis) {
      const std::vector<double>& lines = this->lines(axis);
      const auto after = static_cast<size_t>(std::upper_bound(lines.begin(), lines.end(), uv[axis]) - lines.begin());
      at[static_cast<size_t>(axis)] = std::clamp<size_t>(after, 1, lines.size() - 1) - 1;
    }
    return at[0] * (lines_[1].size() - 1) + at[1];
  }
  double SquareIn(size_t cell, const Vector2d& line) const { return squares_[cell].dot(line.cwiseProduct(line)); }

 private:
  double least_cells_;
  std::array<std::vector<double>, 2> lines_, creases_;
  std::vector<Vector2d> squares_;
  Vector2d speed_ = Vector2d::Zero();
  Vector2d scale_;
};

// Numbers of vertices that turn out to be one.
class Unions {
 public:
  uint32_t Add() {
    parents_.push_back(static_cast<uint32_t>(parents_.size()));
    return parents_.back();
  }
  uint32_t Find(uint32_t x) {
    while (parents_[x] != x) x = parents_[x] = parents_[parents_[x]];
    return x;
  }
  // The least number stands for all.
  void Join(uint32_t a, uint32_t b) {
    a = Find(a);
    b = Find(b);
    parents_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<uint32_t> parents_;
};

// Numbers in rounds from small to large: at first all, then those that are added, in this round if it has not come so far yet. So a
// number that nothing has happened to is not looked at again.
class Rounds {
 public:
  explicit Rounds(size_t count) : due_(count), is_due_(count, 1) { std::iota(due_.begin(), due_.end(), 0U); }
  std::optional<uint32_t> Next() {
    if (due_.empty()) {
      std::swap(due_, of_next_round_);
      std::make_heap(due_.begin(), due_.end(), std::greater<>());
    }
    if (due_.empty()) return std::nullopt;
    std::pop_heap(due_.begin(), due_.end(), std::greater<>());
    at_ = due_.back();
    due_.pop_back();
    is_due_[at_] = 0;
    return at_;
  }
  void Add(uint32_t number) {
    if (number >= is_due_.size()) is_due_.resize(size_t{number} + 1, 0);
    if (std::exchange(is_due_[number], 1) != 0) return;
    if (number <= at_) {
      of_next_round_.push_back(number);
      return;
    }
    due_.push_back(number);
    std::push_heap(due_.begin(), due_.end(), std::greater<>());
  }

 private:
  std::vector<uint32_t> due_;  // a heap, the least on top
  std::vector<uint32_t> of_next_round_;
  std::vector<uint8_t> is_due_;
  uint32_t at_ = 0;
};

struct Sample {
  double s;
  uint32_t vertex;
};

// A curve of a loop and how it follows its edge.
struct Use {
  uint32_t patch;
  const NurbsTrim* trim;
  bool is_opposed;
  Vector2d first, last;                         // where it begins and ends along its own parameter, as its neighbors in the loop do
  std::array<std::optional<double>, 2> levels;  // of u and v where it is straight along the other
};

class Tessellator {
 public:
  Tessellator(const NurbsObject& object, double tolerance_m, size_t least_cells, size_t max_triangles)
      : object_(object), tolerance_m_(tolerance_m), least_cells_(least_cells), max_triangles_(max_triangles) {}

  absl::StatusOr<SurfaceMesh> Run(double join_tolerance_m, std::vector<NurbsGridPlace>* places) {
    size_m_ = object_.ControlBox_m().diagonal().norm();
    for (const NurbsPatch& patch : object_.patches()) {
      cells_.emplace_back(patch.surface, least_cells_);
      boundaries_.push_back(patch.Boundary());
    }
    MakeUses(object_.Edges(join_tolerance_m));
    for (size_t e = 0; e < edges_.size(); ++e) PALPATE_RETURN_IF_ERROR(SampleEdge(e));
    JoinEnds();
    for (uint32_t p = 0; p < boundaries_.size(); ++p) {
      const absl::Status status = Triangulate(p);
      if (!status.ok()) return Annotate(status, PathOf(p));
    }
    SurfaceMesh mesh = Collect(places);
    // Contact keeps neighbours apart by shares of their distance at rest: where breaks of an edge all but coincide, nothing could move.
    if (least_cells_ > 1) CollapseShortEdges(kShortEdge * tolerance_m_, kShortEdgeShare, &mesh, places);
    if (mesh.triangles.size() > max_triangles_) return TooFine();
    return mesh;
  }

 private:
  struct Edge {
    std::vector<Use> uses;
    bool is_point;
    std::vector<Sample> samples;
  };

  std::string PathOf(uint32_t patch) const { return NurbsPatchPath(patch, object_.patches()[patch].name); }

  void MakeUses(const std::vector<NurbsEdge>& edges) {
    for (const NurbsEdge& edge : edges) {
      Edge to{{}, edge.is_point, {}};
      for (const NurbsTrimPlace& place : edge.places) {
        const auto& loop = boundaries_[place.patch][place.loop];
        const NurbsTrim& trim = loop[place.curve];
        const NurbsTrim& next = loop[(place.curve + 1) % loop.size()];
        const Cells& cells = cells_[place.patch];
        const Vector2d from = CornerBetween(cells, loop[(place.curve + loop.size() - 1) % loop.size()], trim);
        const Vector2d until = CornerBetween(cells, trim, next);
        to.uses.push_back({place.patch,
                           &trim,
                           place.is_opposed,
                           trim.is_reversed ? until : from,
                           trim.is_reversed ? from : until,
                           {LevelOf(cells, trim, 0), LevelOf(cells, trim, 1)}});
        edge_of_[{place.patch, place.loop, place.curve}] = {edges_.size(), to.uses.size() - 1};
      }
      edges_.push_back(std::move(to));
    }
  }

  // The u (0) or v (1) of a trim along which it does not change but for noise. Noise would leave triangles as thin as itself.
  static std::optional<double> LevelOf(const Cells& cells, const NurbsTrim& trim, int axis) {
    double low = trim.curve.control(0)[axis];
    double high = low;
    for (size_t i = 1; i < trim.curve.count(); ++i) {
      low = std::min(low, trim.curve.control(i)[axis]);
      high = std::max(high, trim.curve.control(i)[axis]);
    }
    const std::vector<double>& lines = cells.lines(axis);
    if (high - low > kNurbsLoopGap * (lines.back() - lines.front())) return std::nullopt;
    const double middle = 0.5 * low + 0.5 * high;
    return cells.Snapped({middle, middle}, kSnapOfLoops, axis)[axis];
  }

  static Vector2d CornerBetween(const Cells& cells, const NurbsTrim& before, const NurbsTrim& after) {
    Vector2d corner = cells.Snapped(after.start(), kSnapOfLoops);
    for (int axis = 0; axis < 2; ++axis) {
      for (const NurbsTrim* trim : {&before, &after}) {
        if (const auto level = LevelOf(cells, *trim, axis)) corner[axis] = *level;
      }
    }
    return corner;
  }

  static double ParameterOf(const Use& use, double s) {
    const auto [first, last] = use.trim->curve.domain();
    return use.is_opposed ? s * first + (1 - s) * last : (1 - s) * first + s * last;
  }

  Vector2d PlaceOf(const Use& use, double s) const {
    if (s == 0 || s == 1) return (s == 0) == use.is_opposed ? use.last : use.first;
    Vector2d uv = cells_[use.patch].Snapped(use.trim->curve.At(ParameterOf(use, s)), kSnap);
    for (int axis = 0; axis < 2; ++axis) uv[axis] = use.levels[static_cast<size_t>(axis)].value_or(uv[axis]);
    return uv;
  }

  // Whether the straight line between two places of an edge will do for the curve between.
  bool IsFine(const Use& use, double s0, double s1) const {
    const Cells& cells = cells_[use.patch];
    const Vector2d a = PlaceOf(use, s0);
    const Vector2d b = PlaceOf(use, s1);
    if (cells.IsLong(a, b)) return false;
    const std::optional<double> square = cells.SquareOf(a, b);
    if (!square || !(*square <= 3 * tolerance_m_)) return false;
    const auto [first, last] = std::minmax({ParameterOf(use, s0), ParameterOf(use, s1)});
    if (!(first < last)) return true;
    const NurbsCurve<2> part = use.trim->curve.Part(first, last);
    const Vector2d& scale = cells.scale();
    const Vector2d from = a.cwiseProduct(scale);
    const Vector2d along = b.cwiseProduct(scale) - from;
    const double length_sq = along.squaredNorm();
    for (size_t i = 0; i < part.count(); ++i) {
      const Vector2d p = part.control(i).cwiseProduct(scale) - from;
      const double t = length_sq > 0 ? std::clamp(p.dot(along) / length_sq, 0.0, 1.0) : 0;
      const Vector2d off = (p - t * along).cwiseQuotient(scale).cwiseAbs();
      if (!(off.dot(cells.speed()) <= 0.5 * tolerance_m_)) return false;
    }
    return true;
  }

  Vector3d PointOf(const Use& use, double s) const {
    const Vector2d uv = PlaceOf(use, s);
    return object_.patches()[use.patch].surface.Point(uv.x(), uv.y());
  }

  absl::Status SampleEdge(size_t number) {
    Edge& edge = edges_[number];
    std::vector<double> breaks = {0, 1};
    for (const Use& use : edge.uses) {
      const NurbsCurve<2>& curve = use.trim->curve;
      const auto [first, last] = curve.domain();
      std::vector<double> at = CrossingsOfKnots(curve, object_.patches()[use.patch].surface);
      if (least_cells_ > 1) std::erase_if(at, [&](double t) { return !cells_[use.patch].IsOnCrease(curve.At(t)); });
      at.insert(at.end(), curve.knots().begin(), curve.knots().end());
      for (const double t : at) {
        const double s = (t - first) / (last - first);
        breaks.push_back(use.is_opposed ? 1 - s : s);
      }
    }
    // Curved edges have four parts at least, so that no hole shrinks to nothing.
    const Use& first_use = edge.uses[0];
    const Vector3d start = PointOf(first_use, 0);
    const Vector3d chord = PointOf(first_use, 1) - start;
    double bend = 0;
    for (const double s : {0.25, 0.5, 0.75}) bend = std::max(bend, (PointOf(first_use, s) - start - s * chord).norm());
    if (bend > kStraight * size_m_) breaks.insert(breaks.end(), {0.25, 0.5, 0.75});
    std::sort(breaks.begin(), breaks.end());
    std::vector<double> kept = {0};
    for (const double s : breaks) {
      if (s - kept.back() > kSameParameter && 1 - s > kSameParameter) kept.push_back(s);
    }
    kept.push_back(1);
    std::vector<double> places = {0};
    for (size_t i = 0; i + 1 < kept.size(); ++i) PALPATE_RETURN_IF_ERROR(Refine(edge, kept[i], kept[i + 1], 0, &places));
    samples_ += places.size();
    for (const double s : places) {
      edge.samples.push_back({s, NewVertex(first_use.patch, PlaceOf(first_use, s), PointOf(first_use, s))});
      if (edge.is_point) unions_.Join(edge.samples[0].vertex, edge.samples.back().vertex);
    }
    return absl::OkStatus();
  }

  absl::Status Refine(const Edge& edge, double s0, double s1, int depth, std::vector<double>* places) const {
    bool is_fine = true;
    for (const Use& use : edge.uses) is_fine = is_fine && IsFine(use, s0, s1);
    if (is_fine) {
      places->push_back(s1);
      return absl::OkStatus();
    }
    if (depth == kMaxHalvings || samples_ + places->size() > std::min(kMaxSamples, MostCounted(max_triangles_))) return TooFine();
    const double middle = 0.5 * s0 + 0.5 * s1;
    PALPATE_RETURN_IF_ERROR(Refine(edge, s0, middle, depth + 1, places));
    return Refine(edge, middle, s1, depth + 1, places);
  }

  absl::Status TooFine() const {
    return absl::ResourceExhaustedError(absl::StrCat("tolerance_m: ", tolerance_m_, " needs more than ", max_triangles_, " triangles"));
  }

  uint32_t NewVertex(uint32_t patch, const Vector2d& uv, const Vector3d& point_m) {
    points_m_.push_back(point_m);
    places_.push_back({patch, uv.x(), uv.y()});
    return unions_.Add();
  }

  // The samples of a curve in the direction of its loop.
  std::vector<Sample> SamplesOf(uint32_t patch, uint32_t loop, uint32_t curve) const {
    const auto [edge, use] = edge_of_.at({patch, loop, curve});
    std::vector<Sample> samples = edges_[edge].samples;
    if (IsBackwards(edges_[edge].uses[use])) std::reverse(samples.begin(), samples.end());
    return samples;
  }
  static bool IsBackwards(const Use& use) { return use.trim->is_reversed != use.is_opposed; }

  void JoinEnds() {
    for (uint32_t p = 0; p < boundaries_.size(); ++p) {
      for (uint32_t l = 0; l < boundaries_[p].size(); ++l) {
        const auto count = static_cast<uint32_t>(boundaries_[p][l].size());
        for (uint32_t c = 0; c < count; ++c) {
          unions_.Join(SamplesOf(p, l, c).back().vertex, SamplesOf(p, l, (c + 1) % count).front().vertex);
        }
      }
    }
  }

  // Whether a triangle's normal is more than about 80 degrees from that of the surface under its middle.
  static bool IsTurnedAway(const NurbsSurface& surface, const Vector2d& uv, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
    const Vector3d normal = (b - a).cross(c - a);
    const double longest_sq = std::max({(b - a).squaredNorm(), (c - b).squaredNorm(), (a - c).squaredNorm()});
    if (!(normal.norm() > kNoArea * longest_sq)) return false;  // at a pole
    const NurbsPoint at = surface.PointWithDerivatives(uv.x(), uv.y());
    const Vector3d wanted = at.du.cross(at.dv);
    return normal.dot(wanted) < kTurnedAway * normal.norm() * wanted.norm();
  }

  // Where the lines cross that cut each cell into the least number of parts, but for what is nearer than half of a part to an outline,
  // whose triangles would be thin. `places`: of the outlines' vertices.
  std::vector<Vector2d> PlacesBetween(uint32_t p, const std::vector<std::vector<uint32_t>>& outlines,
                                      const std::vector<Vector2d>& places) const {
    std::vector<Vector2d> out;
    if (least_cells_ == 1) return out;
    const Cells& cells = cells_[p];
    for (size_t i = 0; i + 1 < cells.lines(0).size(); ++i) {
      for (size_t j = 0; j + 1 < cells.lines(1).size(); ++j) {
        const Vector2d low(cells.lines(0)[i], cells.lines(1)[j]);
        const Vector2d width = Vector2d(cells.lines(0)[i + 1], cells.lines(1)[j + 1]) - low;
        const Vector2d parts = static_cast<double>(least_cells_) * width.cwiseInverse();
        std::vector<std::array<Vector2d, 2>> near;  // segments of outlines about the cell, in parts from its corner
        for (const std::vector<uint32_t>& outline : outlines) {
          for (size_t k = 0; k < outline.size(); ++k) {
            const Vector2d a = (places[outline[k]] - low).cwiseProduct(parts);
            const Vector2d b = (places[outline[(k + 1) % outline.size()]] - low).cwiseProduct(parts);
            const double last = static_cast<double>(least_cells_) + 1;
            if (a.cwiseMin(b).maxCoeff() < last && a.cwiseMax(b).minCoeff() > -1) near.push_back({a, b});
          }
        }
        for (size_t a = 0; a < least_cells_; ++a) {
          for (size_t b = 0; b < least_cells_; ++b) {
            const Vector2d at(static_cast<double>(a), static_cast<double>(b));
            const bool is_apart = std::all_of(near.begin(), near.end(), [&](const auto& segment) {
              const Vector2d way = segment[1] - segment[0];
              const double length_sq = way.squaredNorm();
              const double t = length_sq > 0 ? std::clamp((at - segment[0]).dot(way) / length_sq, 0.0, 1.0) : 0;
              return (at - segment[0] - t * way).squaredNorm() > 0.25;
            });
            if (!is_apart) continue;
            // On a line of knots exactly.
            out.push_back(low + at.cwiseQuotient(parts));
            if (a == 0) out.back().x() = low.x();
            if (b == 0) out.back().y() = low.y();
          }
        }
      }
    }
    return out;
  }

  absl::Status Triangulate(uint32_t p) {
    const Cells& cells = cells_[p];
    const NurbsSurface& surface = object_.patches()[p].surface;
    const Vector2d& scale = cells.scale();
    const Vector2d low(cells.lines(0).front(), cells.lines(1).front());
    const Vector2d high(cells.lines(0).back(), cells.lines(1).back());
    const Vector2d border = 0.1 * (high - low);
    PlanarTriangulation plane(Eigen::AlignedBox2d((low - border).cwiseProduct(scale), (high + border).cwiseProduct(scale)));
    std::vector<Vector2d> places(4, Vector2d(low));                 // (u, v) of the plane's vertices; the corners around it have none
    std::vector<uint32_t> vertices(4, PlanarTriangulation::kNone);  // their numbers in the mesh
    const auto insert = [&](const Vector2d& uv, uint32_t vertex) {
      const uint32_t number = plane.Insert(uv.cwiseProduct(scale));
      if (number == places.size()) {
        places.push_back(uv);
        vertices.push_back(vertex);
      } else if (vertices[number] == PlanarTriangulation::kNone) {
        vertices[number] = vertex;
      } else if (vertex != PlanarTriangulation::kNone) {
        unions_.Join(vertices[number], vertex);
      }
      return number;
    };
    std::vector<std::vector<uint32_t>> outlines;
    for (uint32_t l = 0; l < boundaries_[p].size(); ++l) {
      std::vector<uint32_t> outline;
      for (uint32_t c = 0; c < boundaries_[p][l].size(); ++c) {
        const auto [edge, use_number] = edge_of_.at({p, l, c});
        const Use& use = edges_[edge].uses[use_number];
        const std::vector<Sample> samples = SamplesOf(p, l, c);
        for (size_t i = 0; i + 1 < samples.size(); ++i) outline.push_back(insert(PlaceOf(use, samples[i].s), samples[i].vertex));
      }
      outlines.push_back(std::move(outline));
    }
    for (size_t i = 1; i + 1 < cells.creases(0).size(); ++i) {
      for (size_t j = 1; j + 1 < cells.creases(1).size(); ++j) {
        insert({cells.creases(0)[i], cells.creases(1)[j]}, PlanarTriangulation::kNone);
      }
    }
    const std::vector<Vector2d> between = PlacesBetween(p, outlines, places);
    for (const Vector2d& uv : between) insert(uv, PlanarTriangulation::kNone);
    const auto crossing = [&](const Vector2d& at) {
      const Vector2d uv = at.cwiseQuotient(scale);
      return absl::InvalidArgumentError(absl::StrCat("loops: cross near (u, v) = (", uv.x(), ", ", uv.y(), ")"));
    };
    for (const std::vector<uint32_t>& outline : outlines) {
      for (size_t i = 0; i < outline.size(); ++i) {
        const auto in_way = plane.Fix(outline[i], outline[(i + 1) % outline.size()], PlanarTriangulation::EdgeKind::kOutline);
        if (in_way) return crossing(*in_way);
      }
    }
    for (int axis = 0; axis < 2; ++axis) {
      std::map<double, std::vector<std::pair<double, uint32_t>>> on_lines;
      for (size_t i = 1; i + 1 < cells.creases(axis).size(); ++i) on_lines[cells.creases(axis)[i]];
      for (uint32_t v = 4; v < places.size(); ++v) {
        if (const auto line = on_lines.find(places[v][axis]); line != on_lines.end()) line->second.emplace_back(places[v][1 - axis], v);
      }
      for (auto& [at, on_line] : on_lines) {
        std::sort(on_line.begin(), on_line.end());
        for (size_t i = 0; i + 1 < on_line.size(); ++i) {
          const auto in_way = plane.Fix(on_line[i].second, on_line[i + 1].second, PlanarTriangulation::EdgeKind::kLine);
          if (in_way) return crossing(*in_way);
        }
      }
    }
    plane.MakeDelaunay();
    plane.FindWindings();
    for (const PlanarTriangulation::Triangle& t : plane.triangles()) {
      if (t.winding < 0 || t.winding > 1) {
        const auto& v = t.vertices;
        return absl::InvalidArgumentError(absl::StrCat(
            "loops: ", t.winding < 0 ? "one runs clockwise around (u, v) = (" : "two overlap at (u, v) = (",
            (places[v[0]].x() + places[v[1]].x() + places[v[2]].x()) / 3, ", ",
            (places[v[0]].y() + places[v[1]].y() + places[v[2]].y()) / 3, t.winding < 0 ? ") with nothing to cut away there" : ")"));
      }
    }
    // Sides of the outline are not cut, so these stay as many.
    const auto outside = static_cast<size_t>(std::count_if(plane.triangles().begin(), plane.triangles().end(),
                                                           [](const PlanarTriangulation::Triangle& t) { return t.winding != 1; }));
    std::vector<Vector3d> points;
    for (size_t v = 0; v < places.size(); ++v) {
      points.push_back(vertices[v] == PlanarTriangulation::kNone ? surface.Point(places[v].x(), places[v].y()) : points_m_[vertices[v]]);
    }
    // Halves the longest side of what is too coarse. Sides of the outline are fine already. First until that is as near as asked, then
    // until no triangle is turned away from the surface, for some more halvings.
    for (const bool is_near : {false, true}) {
      Rounds due(plane.triangles().size());
      plane.TakeChanged();
      while (const std::optional<uint32_t> t = due.Next()) {
        const PlanarTriangulation::Triangle triangle = plane.triangles()[*t];
        if (triangle.winding != 1) continue;
        const auto& v = triangle.vertices;
        const Vector2d middle_uv = (places[v[0]] + places[v[1]] + places[v[2]]) / 3;
        const size_t cell = cells.CellAt(middle_uv);
        double longest = is_near ? kFinest * 3 * tolerance_m_ : 3 * tolerance_m_;
        int across = -1;
        for (int i = 0; i < 3; ++i) {
          if (triangle.kinds[static_cast<size_t>(i)] == PlanarTriangulation::EdgeKind::kOutline) continue;
          const double square =
              cells.SquareOfSide(places[v[static_cast<size_t>((i + 1) % 3)]], places[v[static_cast<size_t>((i + 2) % 3)]], cell);
          if (square > longest) {
            longest = square;
            across = i;
          }
        }
        if (across < 0 || (is_near && !IsTurnedAway(surface, middle_uv, points[v[0]], points[v[1]], points[v[2]]))) continue;
        const Vector2d middle =
            0.5 * places[v[static_cast<size_t>((across + 1) % 3)]] + 0.5 * places[v[static_cast<size_t>((across + 2) % 3)]];
        const auto number = plane.SplitEdge(*t, across, middle.cwiseProduct(scale));
        if (triangles_.size() + plane.triangles().size() - outside > MostCounted(max_triangles_)) return TooFine();
        if (!number) {
          return absl::InvalidArgumentError(
              absl::StrCat("loops: two are as near as rounding at (u, v) = (", middle.x(), ", ", middle.y(), ")"));
        }
        places.push_back(middle);
        points.push_back(surface.Point(middle.x(), middle.y()));
        vertices.push_back(PlanarTriangulation::kNone);
        for (const uint32_t changed : plane.TakeChanged()) due.Add(changed);
      }
    }
    for (const PlanarTriangulation::Triangle& t : plane.triangles()) {
      if (t.winding != 1) continue;
      std::array<uint32_t, 3> out{};
      for (size_t i = 0; i < 3; ++i) {
        uint32_t& vertex = vertices[t.vertices[i]];
        if (vertex == PlanarTriangulation::kNone) {
          vertex = NewVertex(p, places[t.vertices[i]], points[t.vertices[i]]);
        }
        out[i] = vertex;
      }
      triangles_.push_back(out);
    }
    return absl::OkStatus();
  }

  SurfaceMesh Collect(std::vector<NurbsGridPlace>* places) {
    SurfaceMesh mesh;
    if (places != nullptr) places->clear();
    std::vector<uint32_t> numbers(points_m_.size(), PlanarTriangulation::kNone);
    for (const std::array<uint32_t, 3>& t : triangles_) {
      std::array<uint32_t, 3> out{};
      for (size_t i = 0; i < 3; ++i) out[i] = unions_.Find(t[i]);
      if (out[0] == out[1] || out[1] == out[2] || out[2] == out[0]) continue;
      for (uint32_t& v : out) {
        if (numbers[v] == PlanarTriangulation::kNone) {
          numbers[v] = static_cast<uint32_t>(mesh.vertices.size());
          mesh.vertices.push_back(points_m_[v]);
          if (places != nullptr) places->push_back(places_[v]);
        }
        v = numbers[v];
      }
      mesh.triangles.push_back(out);
    }
    return mesh;
  }

  const NurbsObject& object_;
  double tolerance_m_;
  size_t least_cells_;
  size_t max_triangles_;
  double size_m_ = 0;
  std::vector<Cells> cells_;
  std::vector<std::vector<std::vector<NurbsTrim>>> boundaries_;
  std::map<std::array<uint32_t, 3>, std::pair<size_t, size_t>> edge_of_;  // (patch, loop, curve) -> edge and use
  std::vector<Edge> edges_;
  size_t samples_ = 0;
  std::vector<Vector3d> points_m_;
  std::vector<NurbsGridPlace> places_;  // of points_m_
  Unions unions_;
  std::vector<std::array<uint32_t, 3>> triangles_;
};

}  // namespace

absl::StatusOr<SurfaceMesh> TessellateNurbsObject(const NurbsObject& object, double tolerance_m, double join_tolerance_m,
                                                  std::vector<NurbsGridPlace>* places, size_t least_cells, size_t max_triangles) {
  if (!(tolerance_m > 0) || !std::isfinite(tolerance_m)) {
    return absl::InvalidArgumentError(absl::StrCat("tolerance_m: ", tolerance_m, ", it must be positive and finite"));
  }
  return Tessellator(object, tolerance_m, std::max<size_t>(least_cells, 1), max_triangles).Run(join_tolerance_m, places);
}

}  // namespace palpate::sim
