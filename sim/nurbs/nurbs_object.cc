#include "sim/nurbs/nurbs_object.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/mesh/exact_predicates.h"
#include "sim/nurbs/gauss_quadrature.h"

namespace palpate::sim {
namespace {

using Eigen::Vector2d;
using Eigen::Vector3d;

constexpr double kSamePlace = 1e-7;  // share of the object's size
constexpr double kMaxGap = 1e-4;     // between two places that are said to be one edge, likewise
constexpr int kMaxHalvings = 16;     // of a Bezier piece
constexpr double kMaxParameter = 1e12;
constexpr double kMaxWeight = 1e9;  // and its inverse
constexpr int kSamplesOfPiece = 16;
constexpr size_t kPlaces = 5;  // of an edge, where it is compared

Vector2d WidthsOf(const NurbsSurface& surface) {
  const auto [u0, u1] = surface.domain(NurbsDirection::kU);
  const auto [v0, v1] = surface.domain(NurbsDirection::kV);
  return {u1 - u0, v1 - v0};
}

Eigen::AlignedBox2d DomainOf(const NurbsSurface& surface) {
  const auto [u0, u1] = surface.domain(NurbsDirection::kU);
  const auto [v0, v1] = surface.domain(NurbsDirection::kV);
  return {Vector2d(u0, v0), Vector2d(u1, v1)};
}

double DistanceToSegment(const Vector2d& p, const Vector2d& a, const Vector2d& b) {
  const Vector2d along = b - a;
  const double square = along.squaredNorm();
  const double t = square > 0 ? std::clamp((p - a).dot(along) / square, 0.0, 1.0) : 0;
  return (p - a - t * along).norm();
}

// Appends the points of a polyline behind the first one, none of the curve farther from it than `tolerance` once divided by `scale`.
void Flatten(const NurbsCurve<2>& piece, const Vector2d& scale, double tolerance, int depth, std::vector<Vector2d>* points) {
  const Vector2d a = piece.control(0).cwiseQuotient(scale);
  const Vector2d b = piece.control(piece.count() - 1).cwiseQuotient(scale);
  double farthest = 0;
  for (size_t i = 1; i + 1 < piece.count(); ++i)
    farthest = std::max(farthest, DistanceToSegment(piece.control(i).cwiseQuotient(scale), a, b));
  const auto [first, last] = piece.domain();
  const auto halves = piece.Split(0.5 * first + 0.5 * last);
  if (!(farthest > tolerance) || depth == kMaxHalvings || !halves.ok()) {
    points->push_back(piece.control(piece.count() - 1));
    return;
  }
  for (const NurbsCurve<2>& half : *halves) Flatten(half, scale, tolerance, depth + 1, points);
}

std::vector<Vector2d> FlattenLoop(const std::vector<NurbsTrim>& loop, const Vector2d& scale, double tolerance) {
  std::vector<Vector2d> points;
  for (const NurbsTrim& trim : loop) {
    std::vector<Vector2d> along = {trim.curve.control(0)};
    for (const NurbsCurve<2>& piece : trim.curve.BezierPieces()) Flatten(piece, scale, tolerance, 0, &along);
    if (trim.is_reversed) std::reverse(along.begin(), along.end());
    along.pop_back();  // the next one begins there
    points.insert(points.end(), along.begin(), along.end());
  }
  return points;
}

double AreaOf(const std::vector<Vector2d>& loop) {
  double twice = 0;
  for (size_t i = 0; i < loop.size(); ++i) {
    const Vector2d a = loop[i] - loop[0];
    const Vector2d b = loop[(i + 1) % loop.size()] - loop[0];
    twice += a.x() * b.y() - a.y() * b.x();
  }
  return 0.5 * twice;
}

// Whether all of a piece lies in the box: its hull does, or its parts do.
bool IsWithin(const NurbsCurve<2>& piece, const Eigen::AlignedBox2d& box, int depth) {
  bool all = true;
  for (size_t i = 0; i < piece.count(); ++i) all = all && box.contains(piece.control(i));
  if (all) return true;
  if (depth == kMaxHalvings || !box.contains(piece.control(0)) || !box.contains(piece.control(piece.count() - 1))) return false;
  const auto [first, last] = piece.domain();
  const auto halves = piece.Split(0.5 * first + 0.5 * last);
  if (!halves.ok()) return false;
  return IsWithin((*halves)[0], box, depth + 1) && IsWithin((*halves)[1], box, depth + 1);
}

// Beginning with a separator or a bracket, as paths of fields do.
std::string TrimPath(size_t loop, size_t curve) { return absl::StrCat("loops[", loop, "].curves[", curve, "]"); }

// `what` about a field, behind the path that leads to it.
absl::Status At(const std::string& path, const absl::Status& status) { return Annotate(status, path); }

// Beyond what NURBS need: that sums and quotients of these numbers stay numbers.
absl::Status CheckSizes(const char* field, std::span<const double> knots, std::span<const double> weights) {
  for (size_t i = 0; i < knots.size(); ++i) {
    if (!(std::abs(knots[i]) <= kMaxParameter)) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "[", i, "]: ", knots[i], " is outside [-", kMaxParameter, ", ", kMaxParameter, "]"));
    }
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 1 / kMaxWeight && weights[i] <= kMaxWeight)) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights[", i, "]: ", weights[i], " is outside [", 1 / kMaxWeight, ", ", kMaxWeight, "]"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NurbsTrim>> CreateLoop(const std::vector<NurbsTrimDescription>& description, size_t number,
                                                  const NurbsSurface& surface) {
  const std::string path = absl::StrCat("loops[", number, "]");
  if (description.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no curves"));
  const Vector2d widths = WidthsOf(surface);
  Eigen::AlignedBox2d domain = DomainOf(surface);
  domain.min() -= kNurbsLoopGap * widths;
  domain.max() += kNurbsLoopGap * widths;
  std::vector<NurbsTrim> loop;
  for (size_t c = 0; c < description.size(); ++c) {
    const std::string at = TrimPath(number, c);
    absl::StatusOr<NurbsCurve<2>> curve = NurbsCurve<2>::Create(description[c].curve);
    if (!curve.ok()) return At(at, curve.status());
    if (const absl::Status sizes = CheckSizes("knots", description[c].curve.knots, description[c].curve.weights); !sizes.ok()) {
      return At(at, sizes);
    }
    for (const NurbsCurve<2>& piece : curve->BezierPieces()) {
      if (!IsWithin(piece, domain, 0)) {
        return absl::InvalidArgumentError(absl::StrCat(at, ": leaves the domain, [", domain.min().x(), ", ", domain.max().x(), "] x [",
                                                       domain.min().y(), ", ", domain.max().y(), "]"));
      }
    }
    loop.push_back({std::move(*curve), description[c].is_reversed, description[c].edge});
  }
  for (size_t c = 0; c < loop.size(); ++c) {
    const Vector2d end = loop[c].end();
    const Vector2d next = loop[(c + 1) % loop.size()].start();
    if (!((end - next).cwiseQuotient(widths).cwiseAbs().maxCoeff() <= kNurbsLoopGap)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": not closed, curves[", c, "] ends at (", end.x(), ", ", end.y(), "), curves[",
                                                     (c + 1) % loop.size(), "] begins at (", next.x(), ", ", next.y(), ")"));
    }
  }
  return loop;
}

Eigen::AlignedBox2d BoxOf(const std::vector<NurbsTrim>& loop) {
  Eigen::AlignedBox2d box;
  for (const NurbsTrim& trim : loop) {
    for (size_t i = 0; i < trim.curve.count(); ++i) box.extend(trim.curve.control(i));
  }
  return box;
}

absl::Status CheckLoopAreas(const std::vector<std::vector<NurbsTrim>>& loops) {
  double sum = 0;
  for (size_t l = 0; l < loops.size(); ++l) {
    const Vector2d size = BoxOf(loops[l]).sizes().cwiseMax(1e-300);
    const double area = AreaOf(FlattenLoop(loops[l], size, 1e-3));
    if (!(std::abs(area) > 1e-9 * size.x() * size.y())) return absl::InvalidArgumentError(absl::StrCat("loops[", l, "]: encloses no area"));
    sum += area;
  }
  if (!loops.empty() && !(sum > 0)) {
    return absl::InvalidArgumentError(
        "loops: run the wrong way round, what is left lies to the left of them: the outer loop runs "
        "counter-clockwise in (u, v), holes clockwise");
  }
  return absl::OkStatus();
}

absl::StatusOr<NurbsPatch> CreatePatch(const NurbsPatchDescription& description) {
  PALPATE_ASSIGN_OR_RETURN(NurbsSurface surface, NurbsSurface::Create(description.surface));
  PALPATE_RETURN_IF_ERROR(CheckSizes("knots_u", description.surface.knots_u, description.surface.weights));
  PALPATE_RETURN_IF_ERROR(CheckSizes("knots_v", description.surface.knots_v, {}));
  for (size_t i = 0; i < description.surface.control_m.size(); ++i) {
    if (!(description.surface.control_m[i].cwiseAbs().maxCoeff() <= kMaxNurbsCoordinate_m)) {
      return absl::InvalidArgumentError(absl::StrCat("control_m[", i, "]: is farther than ", kMaxNurbsCoordinate_m, " m from the origin"));
    }
  }
  NurbsPatch patch{description.name, std::move(surface), {}};
  for (size_t l = 0; l < description.loops.size(); ++l) {
    PALPATE_ASSIGN_OR_RETURN(std::vector<NurbsTrim> loop, CreateLoop(description.loops[l], l, patch.surface));
    patch.loops.push_back(std::move(loop));
  }
  PALPATE_RETURN_IF_ERROR(CheckLoopAreas(patch.loops));
  return patch;
}

NurbsCurve<2> Straight(const Vector2d& from, const Vector2d& to, double first, double last) {
  return *NurbsCurve<2>::Create({.degree = 1, .knots = {first, first, last, last}, .control = {from, to}, .weights = {}});
}

struct PlacedCurve {
  NurbsTrimPlace place;
  uint32_t edge = 0;
  bool is_reversed = false;
  std::array<Vector3d, kPlaces> points_m;
};

// Where places that may be one edge are found by their middles.
class MiddleIndex {
 public:
  MiddleIndex(const Vector3d& origin_m, double cell_m) : origin_m_(origin_m), cell_m_(cell_m) {}

  void Add(const Vector3d& middle_m, size_t edge) { cells_.emplace(CellOf(middle_m), edge); }
  template <typename Accept>
  std::optional<size_t> Find(const Vector3d& middle_m, const Accept& accept) {
    const std::array<int64_t, 3> at = CellOf(middle_m);
    std::optional<size_t> best;
    auto found = cells_.end();
    for (int64_t dx = -1; dx <= 1; ++dx) {
      for (int64_t dy = -1; dy <= 1; ++dy) {
        for (int64_t dz = -1; dz <= 1; ++dz) {
          const auto range = cells_.equal_range({at[0] + dx, at[1] + dy, at[2] + dz});
          for (auto it = range.first; it != range.second; ++it) {
            if ((!best || it->second < *best) && accept(it->second)) {
              best = it->second;
              found = it;
            }
          }
        }
      }
    }
    if (best) cells_.erase(found);
    return best;
  }

 private:
  std::array<int64_t, 3> CellOf(const Vector3d& p) const {
    const auto along = [&](int axis) { return std::llround(std::clamp((p[axis] - origin_m_[axis]) / cell_m_, -1e15, 1e15)); };
    return {along(0), along(1), along(2)};
  }
  Vector3d origin_m_;
  double cell_m_;
  std::multimap<std::array<int64_t, 3>, size_t> cells_;
};

double Difference(const std::array<Vector3d, kPlaces>& a, const std::array<Vector3d, kPlaces>& b, bool is_opposed) {
  double most = 0;
  for (size_t i = 0; i < kPlaces; ++i) most = std::max(most, (a[i] - b[is_opposed ? kPlaces - 1 - i : i]).norm());
  return most;
}

// Of the spans between knots, where a number lies between.
std::vector<double> MiddlesOf(std::span<const double> knots) {
  std::vector<double> out;
  for (size_t k = 0; k + 1 < knots.size(); ++k) {
    const double middle = 0.5 * knots[k] + 0.5 * knots[k + 1];
    if (middle > knots[k] && middle < knots[k + 1]) out.push_back(middle);
  }
  return out;
}

// Calls visit(axis, line, a, b, rises) for each line of knots inside the domain that the curve crosses between its parameters a and b,
// upwards if it rises; ends when that is false.
template <typename Visit>
void VisitCrossings(const NurbsCurve<2>& curve, const NurbsSurface& surface, const Visit& visit) {
  for (const NurbsDirection direction : {NurbsDirection::kU, NurbsDirection::kV}) {
    const int axis = direction == NurbsDirection::kU ? 0 : 1;
    const std::span<const double> knots = surface.knots(direction);
    const double low = surface.domain(direction).first;
    const double high = surface.domain(direction).second;
    double at = curve.domain().first;
    double before = curve.At(at)[axis];
    const auto go_to = [&](double next) {
      const double after = curve.At(next)[axis];
      const auto [least, most] = std::minmax({before, after});
      for (auto line = std::upper_bound(knots.begin(), knots.end(), least); line != knots.end() && *line <= most; ++line) {
        if (!(*line > low && *line < high) || (line != knots.begin() && line[-1] == *line && line[-1] > least)) continue;
        if (!visit(axis, *line, at, next, after > before)) return false;
      }
      before = after;
      at = next;
      return true;
    };
    for (size_t k = 0; k + 1 < curve.knots().size(); ++k) {
      const double a = curve.knots()[k];
      const double b = curve.knots()[k + 1];
      for (int i = 1; a < b && i <= kSamplesOfPiece; ++i) {
        if (!go_to(i == kSamplesOfPiece ? b : a + (b - a) * i / kSamplesOfPiece)) return;
      }
    }
  }
}

struct SpanLength {
  double first = 0, last = 0;  // parameters
  double length_m = 0;         // the most of lines through it
};

std::vector<SpanLength> SpanLengths(const NurbsSurface& surface, NurbsDirection direction) {
  const bool is_u = direction == NurbsDirection::kU;
  const auto other = surface.knots(is_u ? NurbsDirection::kV : NurbsDirection::kU);
  std::vector<double> across = MiddlesOf(other);
  across.insert(across.end(), other.begin(), other.end());
  std::vector<SpanLength> out;
  const auto knots = surface.knots(direction);
  const GaussRule rule = MakeGaussRule(5);
  for (size_t k = 0; k + 1 < knots.size(); ++k) {
    if (knots[k] == knots[k + 1]) continue;
    SpanLength& span = out.emplace_back(SpanLength{knots[k], knots[k + 1]});
    for (const double fixed : across) {
      double length = 0;
      for (size_t i = 0; i < rule.places.size(); ++i) {
        const double t = span.first + rule.places[i] * (span.last - span.first);
        const NurbsPoint at = is_u ? surface.PointWithDerivatives(t, fixed) : surface.PointWithDerivatives(fixed, t);
        length += rule.weights[i] * (span.last - span.first) * (is_u ? at.du : at.dv).norm();
      }
      span.length_m = std::max(span.length_m, length);
    }
  }
  return out;
}

std::string Shown(const Vector3d& p) { return absl::StrCat("(", p.x(), ", ", p.y(), ", ", p.z(), ")"); }

}  // namespace

std::string NurbsPatchPath(size_t index, std::string_view name) {
  std::string path = absl::StrCat("patches[", index, "]");
  if (name.empty()) return path;
  std::string clean(name.substr(0, 64));
  std::replace_if(
      clean.begin(), clean.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return absl::StrCat(path, " \"", clean, "\"");
}

std::vector<double> CrossingsOfKnots(const NurbsCurve<2>& curve, const NurbsSurface& surface) {
  std::vector<double> places;
  const double first = curve.domain().first;
  const double last = curve.domain().second;
  VisitCrossings(curve, surface, [&](int axis, double line, double a, double b, bool rises) {
    for (int step = 0; step < 100; ++step) {
      const double middle = 0.5 * a + 0.5 * b;
      if (!(middle > a && middle < b)) break;
      ((curve.At(middle)[axis] < line) == rises ? a : b) = middle;
    }
    if (b > first && b < last) places.push_back(b);
    return true;
  });
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

std::vector<std::vector<NurbsTrim>> NurbsPatch::Boundary() const {
  if (!loops.empty()) return loops;
  const auto [u0, u1] = surface.domain(NurbsDirection::kU);
  const auto [v0, v1] = surface.domain(NurbsDirection::kV);
  std::vector<NurbsTrim> sides;
  sides.push_back({Straight({u0, v0}, {u1, v0}, u0, u1), false, 0});
  sides.push_back({Straight({u1, v0}, {u1, v1}, v0, v1), false, 0});
  sides.push_back({Straight({u0, v1}, {u1, v1}, u0, u1), true, 0});
  sides.push_back({Straight({u0, v0}, {u0, v1}, v0, v1), true, 0});
  return {std::move(sides)};
}

NurbsTrimRegion::NurbsTrimRegion(const NurbsPatch& patch, double tolerance) {
  const Vector2d widths = WidthsOf(patch.surface);
  for (const std::vector<NurbsTrim>& loop : patch.Boundary()) loops_.push_back(FlattenLoop(loop, widths, tolerance));
}

bool NurbsTrimRegion::Contains(const Vector2d& uv) const {
  int winding = 0;
  for (const std::vector<Vector2d>& loop : loops_) {
    for (size_t i = 0; i < loop.size(); ++i) {
      const Vector2d& a = loop[i];
      const Vector2d& b = loop[(i + 1) % loop.size()];
      const bool rises = a.y() <= uv.y() && b.y() > uv.y();
      const bool falls = b.y() <= uv.y() && a.y() > uv.y();
      const auto [low, high] = std::minmax({a.x(), b.x()});
      const bool may_touch = std::min(a.y(), b.y()) <= uv.y() && uv.y() <= std::max(a.y(), b.y()) && low <= uv.x() && uv.x() <= high;
      if (!rises && !falls && !may_touch) continue;
      const int side = Orient2d(a, b, uv);
      if (side == 0 && may_touch) return true;
      if (rises && side > 0) ++winding;
      if (falls && side < 0) --winding;
    }
  }
  return winding > 0;
}

absl::StatusOr<NurbsObject> NurbsObject::Create(const NurbsObjectDescription& description) {
  if (description.patches.empty()) return absl::InvalidArgumentError("patches: none");
  if (description.patches.size() > kMaxNurbsPatches) {
    return absl::ResourceExhaustedError(absl::StrCat("patches: ", description.patches.size(), ", ", kMaxNurbsPatches, " are allowed"));
  }
  size_t points = 0;
  for (const NurbsPatchDescription& patch : description.patches) {
    points += patch.surface.control_m.size();
    for (const auto& loop : patch.loops) {
      for (const NurbsTrimDescription& trim : loop) points += trim.curve.control.size();
    }
  }
  if (points > kMaxNurbsObjectPoints) {
    return absl::ResourceExhaustedError(absl::StrCat("patches: ", points, " control points, ", kMaxNurbsObjectPoints, " are allowed"));
  }
  NurbsObject out;
  out.name_ = description.name;
  std::map<uint32_t, int> uses;
  size_t crossings = 0;
  for (size_t i = 0; i < description.patches.size(); ++i) {
    const std::string path = NurbsPatchPath(i, description.patches[i].name);
    absl::StatusOr<NurbsPatch> patch = CreatePatch(description.patches[i]);
    if (!patch.ok()) return At(path, patch.status());
    for (size_t l = 0; l < patch->loops.size(); ++l) {
      for (size_t c = 0; c < patch->loops[l].size(); ++c) {
        VisitCrossings(patch->loops[l][c].curve, patch->surface,
                       [&](int, double, double, double, bool) { return ++crossings <= kMaxNurbsCrossings; });
        if (crossings > kMaxNurbsCrossings) {
          return absl::ResourceExhaustedError(absl::StrCat(path, ": ", TrimPath(l, c), ": loops cross lines of knots more than ",
                                                           kMaxNurbsCrossings, " times, which is the limit of an object"));
        }
        const uint32_t edge = patch->loops[l][c].edge;
        if (edge != 0 && ++uses[edge] > 2) {
          return absl::InvalidArgumentError(
              absl::StrCat(path, ": ", TrimPath(l, c), ".edge: ", edge, " has two places already, an edge joins no more"));
        }
      }
    }
    out.patches_.push_back(std::move(*patch));
  }
  return out;
}

absl::StatusOr<NurbsObject> NurbsObject::FromSurfaces(std::string_view name, std::span<const NurbsSurface> surfaces) {
  NurbsObject whole;
  for (const NurbsSurface& surface : surfaces) whole.patches_.push_back({"", surface, {}});
  NurbsObjectDescription description = whole.Describe();
  description.name = std::string(name);
  return Create(description);
}

NurbsObjectDescription NurbsObject::Describe() const {
  NurbsObjectDescription out;
  out.name = name_;
  for (const NurbsPatch& patch : patches_) {
    NurbsPatchDescription to;
    to.name = patch.name;
    const NurbsSurface& from = patch.surface;
    to.surface.degree_u = from.degree(NurbsDirection::kU);
    to.surface.degree_v = from.degree(NurbsDirection::kV);
    to.surface.knots_u.assign(from.knots(NurbsDirection::kU).begin(), from.knots(NurbsDirection::kU).end());
    to.surface.knots_v.assign(from.knots(NurbsDirection::kV).begin(), from.knots(NurbsDirection::kV).end());
    bool is_rational = false;
    for (const Eigen::Vector4d& p : from.control()) {
      to.surface.control_m.emplace_back(p.hnormalized());
      to.surface.weights.push_back(p.w());
      is_rational = is_rational || p.w() != 1;
    }
    if (!is_rational) to.surface.weights.clear();
    for (const std::vector<NurbsTrim>& loop : patch.loops) {
      std::vector<NurbsTrimDescription> trims;
      for (const NurbsTrim& trim : loop) {
        NurbsTrimDescription curve{{}, trim.is_reversed, trim.edge};
        curve.curve.degree = trim.curve.degree();
        curve.curve.knots.assign(trim.curve.knots().begin(), trim.curve.knots().end());
        bool has_weights = false;
        for (size_t i = 0; i < trim.curve.count(); ++i) {
          curve.curve.control.push_back(trim.curve.control(i));
          curve.curve.weights.push_back(trim.curve.weighted_control()[i][2]);
          has_weights = has_weights || curve.curve.weights.back() != 1;
        }
        if (!has_weights) curve.curve.weights.clear();
        trims.push_back(std::move(curve));
      }
      to.loops.push_back(std::move(trims));
    }
    out.patches.push_back(std::move(to));
  }
  return out;
}

bool NurbsObject::is_trimmed() const {
  return std::any_of(patches_.begin(), patches_.end(), [](const NurbsPatch& patch) { return !patch.loops.empty(); });
}

Eigen::AlignedBox3d NurbsObject::ControlBox_m() const {
  Eigen::AlignedBox3d box;
  for (const NurbsPatch& patch : patches_) {
    for (const Eigen::Vector4d& p : patch.surface.control()) box.extend(Vector3d(p.hnormalized()));
  }
  return box;
}

std::vector<NurbsEdge> NurbsObject::Edges(double tolerance_m) const {
  const double size_m = ControlBox_m().diagonal().norm();
  const double tolerance = std::max(tolerance_m > 0 ? tolerance_m : kSamePlace * size_m, 1e-300);
  std::vector<NurbsEdge> edges;
  std::vector<PlacedCurve> firsts;  // of the edges
  std::map<uint32_t, size_t> numbered;
  MiddleIndex open(ControlBox_m().center(), tolerance);
  for (size_t p = 0; p < patches_.size(); ++p) {
    const auto boundary = patches_[p].Boundary();
    for (size_t l = 0; l < boundary.size(); ++l) {
      for (size_t c = 0; c < boundary[l].size(); ++c) {
        const NurbsTrim& trim = boundary[l][c];
        const auto [first, last] = trim.curve.domain();
        PlacedCurve here{
            {static_cast<uint32_t>(p), static_cast<uint32_t>(l), static_cast<uint32_t>(c), false}, trim.edge, trim.is_reversed, {}};
        double extent = 0;
        for (size_t i = 0; i < kPlaces; ++i) {
          const double s = static_cast<double>(i) / (kPlaces - 1);
          const Vector2d uv = trim.curve.At((1 - s) * first + s * last);
          here.points_m[i] = patches_[p].surface.Point(uv.x(), uv.y());
          extent = std::max(extent, (here.points_m[i] - here.points_m[0]).norm());
        }
        const bool is_point = extent <= tolerance;
        std::optional<size_t> same;
        if (trim.edge != 0) {
          if (const auto found = numbered.find(trim.edge); found != numbered.end()) same = found->second;
        } else if (!is_point) {
          same = open.Find(here.points_m[kPlaces / 2], [&](size_t edge) {
            const double ahead = Difference(firsts[edge].points_m, here.points_m, false);
            const double back = Difference(firsts[edge].points_m, here.points_m, true);
            here.place.is_opposed = back < ahead;
            return std::min(ahead, back) <= tolerance;
          });
          if (same)
            here.place.is_opposed =
                Difference(firsts[*same].points_m, here.points_m, true) < Difference(firsts[*same].points_m, here.points_m, false);
        }
        if (same) {
          edges[*same].places.push_back(here.place);
          edges[*same].gap_m = Difference(firsts[*same].points_m, here.points_m, here.place.is_opposed);
          edges[*same].is_point = edges[*same].is_point && is_point;
          continue;
        }
        here.place.is_opposed = false;
        if (trim.edge != 0) {
          numbered.emplace(trim.edge, edges.size());
        } else if (!is_point) {
          open.Add(here.points_m[kPlaces / 2], edges.size());
        }
        edges.push_back({{here.place}, is_point, 0, here.points_m[0], here.points_m[kPlaces / 2], here.points_m[kPlaces - 1]});
        firsts.push_back(here);
      }
    }
  }
  return edges;
}

absl::Status NurbsObject::CheckClosed(double tolerance_m) const {
  const double size_m = ControlBox_m().diagonal().norm();
  size_t wrong = 0;
  std::string first;
  for (const NurbsEdge& edge : Edges(tolerance_m)) {
    if (edge.is_point) continue;
    const auto is_reversed = [&](const NurbsTrimPlace& place) {
      const NurbsPatch& patch = patches_[place.patch];
      const bool own = patch.loops.empty() ? place.curve >= 2 : patch.loops[place.loop][place.curve].is_reversed;
      return own != place.is_opposed;
    };
    std::string why;
    if (edge.places.size() != 2) {
      why = "no other patch joins it";
    } else if (is_reversed(edge.places[0]) == is_reversed(edge.places[1])) {
      why = absl::StrCat("it runs the same way round ", NurbsPatchPath(edge.places[1].patch, patches_[edge.places[1].patch].name),
                         ": one of them is inside out");
    } else if (!(edge.gap_m <= kMaxGap * size_m)) {
      why = absl::StrCat("its two places are ", edge.gap_m, " m apart");
    }
    if (why.empty() || ++wrong > 1) continue;
    const NurbsTrimPlace& at = edge.places[0];
    static constexpr std::array<const char*, 4> kSides = {"first v", "last u", "last v", "first u"};
    first =
        absl::StrCat(NurbsPatchPath(at.patch, patches_[at.patch].name), ", ",
                     patches_[at.patch].loops.empty() ? absl::StrCat("the side of the ", kSides[at.curve]) : TrimPath(at.loop, at.curve),
                     ", from ", Shown(edge.start_m), " by ", Shown(edge.middle_m), " to ", Shown(edge.end_m), " m: ", why);
  }
  if (wrong == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("open: ", wrong, wrong == 1 ? " edge is" : " edges are", " not joined; ", first));
}

absl::StatusOr<NurbsObject> NurbsObject::Refined(int levels) const {
  if (levels < 0 || levels > 16) return absl::InvalidArgumentError(absl::StrCat("levels: ", levels, " is outside [0, 16]"));
  // How many there will be is known before the work.
  size_t points = 0;
  for (const NurbsPatch& patch : patches_) {
    size_t of_patch = 1;
    for (const NurbsDirection direction : {NurbsDirection::kU, NurbsDirection::kV}) {
      of_patch *= patch.surface.count(direction) + MiddlesOf(patch.surface.knots(direction)).size() * ((size_t{1} << levels) - 1);
    }
    points += of_patch;
    if (points > kMaxNurbsObjectPoints || of_patch > kMaxNurbsControlPoints) {
      return absl::ResourceExhaustedError(absl::StrCat("levels: ", levels, " need more control points than are allowed, ",
                                                       kMaxNurbsObjectPoints, " in all and ", kMaxNurbsControlPoints, " a patch"));
    }
  }
  NurbsObject out = *this;
  for (int level = 0; level < levels; ++level) {
    for (NurbsPatch& patch : out.patches_) {
      for (const NurbsDirection direction : {NurbsDirection::kU, NurbsDirection::kV}) {
        for (const double t : MiddlesOf(patch.surface.knots(direction))) {
          PALPATE_ASSIGN_OR_RETURN(patch.surface, patch.surface.WithKnot(direction, t));
        }
      }
    }
  }
  return out;
}

absl::StatusOr<NurbsObject> NurbsObject::WithDegree(int least) const {
  NurbsObject out = *this;
  for (size_t p = 0; p < patches_.size(); ++p) {
    for (const NurbsDirection direction : {NurbsDirection::kU, NurbsDirection::kV}) {
      NurbsSurface& surface = out.patches_[p].surface;
      if (least >= 1 && surface.degree(direction) >= least) continue;
      absl::StatusOr<NurbsSurface> higher = ElevateNurbsDegree(surface, direction, least);
      if (!higher.ok()) return At(NurbsPatchPath(p, patches_[p].name), higher.status());
      surface = *std::move(higher);
    }
  }
  return out;
}

absl::StatusOr<NurbsObject> NurbsObject::WithSpans(double span_m) const {
  if (!(span_m > 0)) return absl::InvalidArgumentError(absl::StrCat("span: ", span_m, " m is not positive"));
  // How many there will be is known before the work.
  std::vector<std::array<std::vector<double>, 2>> knots(patches_.size());  // new ones
  size_t points = 0;
  for (size_t p = 0; p < patches_.size(); ++p) {
    const NurbsSurface& surface = patches_[p].surface;
    double of_patch = 1;
    for (const NurbsDirection direction : {NurbsDirection::kU, NurbsDirection::kV}) {
      double count = static_cast<double>(surface.count(direction));
      for (const auto& [first, last, length_m] : SpanLengths(surface, direction)) {
        const double parts = std::ceil(length_m / span_m * (1 - 1e-9));
        count += std::max(parts - 1, 0.0);
        if (count > static_cast<double>(kMaxNurbsControlPoints)) break;
        for (double k = 1; k < parts; ++k) knots[p][direction == NurbsDirection::kU ? 0 : 1].push_back(first + (last - first) * k / parts);
      }
      of_patch *= count;
    }
    points += static_cast<size_t>(std::min(of_patch, 1e18));
    if (of_patch > static_cast<double>(kMaxNurbsControlPoints) || points > kMaxNurbsObjectPoints) {
      return absl::ResourceExhaustedError(absl::StrCat("span: ", span_m, " m needs more control points than are allowed, ",
                                                       kMaxNurbsObjectPoints, " in all and ", kMaxNurbsControlPoints, " a patch"));
    }
  }
  NurbsObject out = *this;
  for (size_t p = 0; p < patches_.size(); ++p) {
    for (const NurbsDirection direction : {NurbsDirection::kU, NurbsDirection::kV}) {
      for (const double t : knots[p][direction == NurbsDirection::kU ? 0 : 1]) {
        PALPATE_ASSIGN_OR_RETURN(out.patches_[p].surface, out.patches_[p].surface.WithKnot(direction, t));
      }
    }
  }
  return out;
}

absl::StatusOr<NurbsObject> NurbsObject::WithKnot(size_t patch, NurbsDirection direction, double t, int times) const {
  if (patch >= patches_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("patch ", patch, ": there are ", patches_.size(), ", counted from 0"));
  }
  NurbsObject out = *this;
  absl::StatusOr<NurbsSurface> finer = patches_[patch].surface.WithKnot(direction, t, times);
  if (!finer.ok()) return At(NurbsPatchPath(patch, patches_[patch].name), finer.status());
  out.patches_[patch].surface = std::move(*finer);
  return out;
}

NurbsObject NurbsObject::Transformed(const Eigen::Affine3d& map) const {
  NurbsObject out = *this;
  for (NurbsPatch& patch : out.patches_) patch.surface = patch.surface.Transformed(map);
  return out;
}

NurbsObject NurbsObject::WithControlPoints(std::span<const Eigen::Vector3d> control_m) const {
  NurbsObject out = *this;
  size_t begin = 0;
  for (NurbsPatch& patch : out.patches_) {
    const size_t count = patch.surface.control().size();
    patch.surface = patch.surface.WithControlPoints(control_m.subspan(begin, count));
    begin += count;
  }
  return out;
}

}  // namespace palpate::sim
