#include "gpu/collision/nurbs_curves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/collision/nurbs_patch.h"

namespace palpate::gpu {
namespace {

using namespace nurbs;  // NOLINT: all of it is for files like this one

constexpr double kConverged = 1e-11;   // of the size: common points
constexpr double kTangential = 1e-5;   // sine of the angle of the normals below which there is no line to follow
constexpr double kOutside = 1e-9;      // of a patch: beyond its end
constexpr double kSamePlace = 1e-8;    // of the size: ends that are one
constexpr double kLeastStep = 1e-9;    // of the size
constexpr double kFirstStep = 0.02;    // of the size
constexpr double kSafety = 0.8;        // of the tolerance
constexpr double kWidestAngle = 0.25;  // between a chord and the tangents at its ends
constexpr int kMaxNewton = 12;

// Solves m x = b by elimination with pivots; false if m is singular.
bool SolveAny(std::array<std::array<double, 4>, 4> m, Parameters b, Parameters& x) {
  for (size_t k = 0; k < 4; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < 4; ++i) pivot = std::abs(m[i][k]) > std::abs(m[pivot][k]) ? i : pivot;
    if (!(std::abs(m[pivot][k]) > 0)) return false;
    std::swap(m[k], m[pivot]);
    std::swap(b[k], b[pivot]);
    for (size_t i = k + 1; i < 4; ++i) {
      const double factor = m[i][k] / m[k][k];
      for (size_t j = k; j < 4; ++j) m[i][j] -= factor * m[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (size_t i = 4; i-- > 0;) {
    for (size_t j = i + 1; j < 4; ++j) b[i] -= m[i][j] * x[j];
    x[i] = b[i] / m[i][i];
  }
  return std::all_of(x.begin(), x.end(), [](double v) { return std::isfinite(v); });
}

// A place on both patches of a pair.
struct Place {
  Parameters x = {};
  Vector point = {};
  Vector tangent = {};  // unit, along the product of the normals; 0 where these are parallel
};

// A line on one pair of patches.
struct Piece {
  uint32_t patch_a = 0, patch_b = 0;
  bool is_closed = false;
  std::vector<Place> places;
};

class PairTracer {
 public:
  PairTracer(const Net& a, const Net& b, double size_m, double tolerance_m) : a_(a), b_(b), size_m_(size_m), tolerance_m_(tolerance_m) {}

  Place PlaceAt(const Parameters& x) const {
    const Evaluated ea = Evaluate(a_, x[0], x[1]);
    const Evaluated eb = Evaluate(b_, x[2], x[3]);
    const Vector na = Cross(ea.along_u(), ea.along_v());
    const Vector nb = Cross(eb.along_u(), eb.along_v());
    const Vector along = Cross(na, nb);
    const double length = Norm(along);
    Place out{.x = x, .point = ea.point(), .tangent = {}};
    if (length > kTangential * Norm(na) * Norm(nb)) out.tangent = (1 / length) * along;
    return out;
  }

  // Both ways from a crossing. False: there are more than `most` points.
  bool Trace(const Place& seed, size_t most, Piece* piece) const {
    piece->places = {seed};
    if (!Follow(1, most, piece)) return false;
    if (piece->is_closed) return true;
    std::reverse(piece->places.begin(), piece->places.end());
    return Follow(-1, most, piece);
  }

  // Whether the line runs through the place.
  bool Passes(const Piece& piece, const Place& place) const {
    const size_t count = piece.places.size();
    for (size_t i = 0; i + 1 < count + (piece.is_closed ? 1 : 0); ++i) {
      if (IsBetween(piece.places[i], piece.places[(i + 1) % count], place)) return true;
    }
    return false;
  }

 private:
  // A row of the system beside the three of a common point.
  struct Fourth {
    std::optional<size_t> parameter;  // is held at `value`
    double value = 0;
    Vector normal = {}, through = {};  // or the point stays in this plane
  };

  // Newton's iteration onto both surfaces.
  bool Correct(const Fourth& fourth, Parameters& x) const {
    for (int step = 0; step < kMaxNewton; ++step) {
      const Evaluated ea = Evaluate(a_, x[0], x[1]);
      const Evaluated eb = Evaluate(b_, x[2], x[3]);
      if (!(ea.w > 0) || !(eb.w > 0)) return false;
      const Vector apart = ea.point() - eb.point();
      const std::array<Vector, 4> columns = {ea.along_u(), ea.along_v(), -1.0 * eb.along_u(), -1.0 * eb.along_v()};
      std::array<std::array<double, 4>, 4> m{};
      Parameters right{};
      for (size_t i = 0; i < 3; ++i) {
        for (size_t k = 0; k < 4; ++k) m[i][k] = columns[k][i];
        right[i] = -apart[i];
      }
      if (fourth.parameter) {
        m[3][*fourth.parameter] = size_m_;
        right[3] = size_m_ * (fourth.value - x[*fourth.parameter]);
      } else {
        m[3][0] = Dot(fourth.normal, columns[0]);
        m[3][1] = Dot(fourth.normal, columns[1]);
        right[3] = -Dot(fourth.normal, ea.point() - fourth.through);
      }
      if (Norm(apart) <= kConverged * size_m_ && std::abs(right[3]) <= kConverged * size_m_) {
        if (fourth.parameter) x[*fourth.parameter] = fourth.value;
        return true;
      }
      Parameters move{};
      if (!SolveAny(m, right, move)) return false;
      for (size_t k = 0; k < 4; ++k) {
        if (std::abs(move[k]) > 1) return false;
        x[k] += move[k];
      }
    }
    return false;
  }

  // Along a tangent by parameters, which the surfaces' own derivatives give by least squares.
  static void Along(const Evaluated& e, const Vector& way, double* move) {
    const Vector u = e.along_u(), v = e.along_v();
    const double uu = Dot(u, u), uv = Dot(u, v), vv = Dot(v, v);
    const double determinant = uu * vv - uv * uv;
    if (!(determinant > 0)) return;
    move[0] = (vv * Dot(u, way) - uv * Dot(v, way)) / determinant;
    move[1] = (uu * Dot(v, way) - uv * Dot(u, way)) / determinant;
  }

  static bool IsOutside(const Parameters& x) {
    return std::any_of(x.begin(), x.end(), [](double t) { return t < -kOutside || t > 1 + kOutside; });
  }

  // Where the line leaves the patches between a place on them and one beyond.
  std::optional<Place> Exit(const Place& from, const Parameters& beyond) const {
    std::vector<std::pair<double, Fourth>> ends;
    for (size_t k = 0; k < 4; ++k) {
      if (!(beyond[k] < -kOutside || beyond[k] > 1 + kOutside)) continue;
      const double end = beyond[k] < 0 ? 0 : 1;
      ends.emplace_back((end - from.x[k]) / (beyond[k] - from.x[k]), Fourth{.parameter = k, .value = end});
    }
    std::ranges::sort(ends, {}, [](const auto& end) { return end.first; });
    for (const auto& [share, fourth] : ends) {
      Parameters x{};
      for (size_t k = 0; k < 4; ++k) x[k] = from.x[k] + std::clamp(share, 0.0, 1.0) * (beyond[k] - from.x[k]);
      if (!Correct(fourth, x) || IsOutside(x)) continue;
      for (double& t : x) t = std::clamp(t, 0.0, 1.0);
      return PlaceAt(x);
    }
    return std::nullopt;
  }

  // Appends places until the line ends or is closed.
  bool Follow(double sign, size_t most, Piece* piece) const {
    double length_m = std::min(kFirstStep * size_m_, std::sqrt(tolerance_m_ * size_m_));
    while (piece->places.size() <= most) {
      const Place from = piece->places.back();
      const Vector way = sign * from.tangent;
      if (!(Norm(way) > 0) || !(length_m > kLeastStep * size_m_)) return true;
      Parameters x = from.x;
      Parameters move{};
      Along(Evaluate(a_, x[0], x[1]), way, &move[0]);
      Along(Evaluate(b_, x[2], x[3]), way, &move[2]);
      for (size_t k = 0; k < 4; ++k) x[k] += length_m * move[k];
      const Fourth ahead{.parameter = {}, .value = 0, .normal = way, .through = from.point + length_m * way};
      if (!Correct(ahead, x)) {
        length_m *= 0.5;
        continue;
      }
      Place to = PlaceAt(x);
      const bool leaves = IsOutside(x);
      if (leaves) {
        const std::optional<Place> exit = Exit(from, x);
        if (!exit) {
          length_m *= 0.5;
          continue;
        }
        to = *exit;
        if (!(Norm(to.point - from.point) > kConverged * size_m_)) return true;  // it began at the end of the patch
      }
      const Vector chord = to.point - from.point;
      const double chord_m = Norm(chord);
      const auto angle = [&](const Vector& tangent) { return std::acos(std::clamp(Dot(chord, sign * tangent) / chord_m, -1.0, 1.0)); };
      const bool has_end = Norm(to.tangent) > 0;
      const double widest = std::max(angle(from.tangent), has_end ? angle(to.tangent) : 0.0);
      const double bulge_m = chord_m * widest / 4;  // of an arc
      if (widest > kWidestAngle || bulge_m > kSafety * tolerance_m_) {
        length_m =
            std::min(0.9 * chord_m, length_m) * (widest > kWidestAngle ? 0.5 : std::max(0.3, std::sqrt(0.5 * tolerance_m_ / bulge_m)));
        continue;
      }
      // Back at the start: it was passed on the way, or reached.
      if (piece->places.size() > 2 && IsBetween(from, to, piece->places.front())) {
        piece->is_closed = true;
        return true;
      }
      for (double& t : to.x) t = std::clamp(t, 0.0, 1.0);
      piece->places.push_back(to);
      if (leaves) return true;
      length_m *= std::clamp(std::sqrt(0.5 * tolerance_m_ / std::max(bulge_m, 1e-3 * tolerance_m_)), 0.5, 2.0);
      length_m = std::min(length_m, 10 * kFirstStep * size_m_);
    }
    return false;
  }

  // Whether the line from one place to the next runs through a third.
  bool IsBetween(const Place& from, const Place& to, const Place& place) const {
    const Vector chord = to.point - from.point;
    const double chord_sq = Dot(chord, chord);
    const double share = chord_sq > 0 ? Dot(place.point - from.point, chord) / chord_sq : 0;
    if (share < -1e-6 || share > 1 + 1e-6) return false;
    if (Norm(from.point + share * chord - place.point) > 2 * tolerance_m_ + kSamePlace * size_m_) return false;
    Parameters x{};
    for (size_t k = 0; k < 4; ++k) x[k] = from.x[k] + share * (to.x[k] - from.x[k]);
    const double chord_m = std::sqrt(chord_sq);
    if (!(chord_m > 0) || !Correct({.parameter = {}, .value = 0, .normal = (1 / chord_m) * chord, .through = place.point}, x)) return false;
    const Vector at = Evaluate(a_, x[0], x[1]).point();
    double off = 0;
    for (size_t k = 0; k < 4; ++k) off = std::max(off, std::abs(x[k] - place.x[k]));
    return Norm(at - place.point) <= kSamePlace * size_m_ && off <= 1e-5;
  }

  const Net& a_;
  const Net& b_;
  double size_m_, tolerance_m_;
};

// Whether a parameter is at an end of its patch all along, so that the patch beside it has the same line.
bool RunsAlongAnEnd(const Piece& piece) {
  for (size_t k = 0; k < 4; ++k) {
    for (const double end : {0.0, 1.0}) {
      if (std::ranges::all_of(piece.places, [&](const Place& place) { return std::abs(place.x[k] - end) < 1e-7; })) return true;
    }
  }
  return false;
}

double DistanceFrom(const Piece& piece, const Vector& point) {
  double least = Norm(piece.places[0].point - point);
  for (size_t i = 0; i + 1 < piece.places.size(); ++i) {
    const Vector from = piece.places[i].point, way = piece.places[i + 1].point - from;
    const double length_sq = Dot(way, way);
    const double share = length_sq > 0 ? std::clamp(Dot(point - from, way) / length_sq, 0.0, 1.0) : 0;
    least = std::min(least, Norm(from + share * way - point));
  }
  return least;
}

// Leaves each line once of those that run along the ends of patches.
void DropDoubles(double size_m, double tolerance_m, std::vector<Piece>* pieces) {
  std::vector<Piece> kept;
  for (Piece& piece : *pieces) {
    const bool is_along = RunsAlongAnEnd(piece);
    const bool is_known =
        is_along && std::ranges::any_of(kept, [&](const Piece& other) {
          return other.is_closed == piece.is_closed && RunsAlongAnEnd(other) && std::ranges::all_of(piece.places, [&](const Place& place) {
                   return DistanceFrom(other, place.point) <= 2 * tolerance_m + kSamePlace * size_m;
                 });
        });
    if (!is_known) kept.push_back(std::move(piece));
  }
  *pieces = std::move(kept);
}

// Which end of which piece goes on in which: [2 * piece + end].
std::vector<size_t> JoinEnds(const std::vector<Piece>& pieces, double size_m) {
  constexpr auto kNone = static_cast<size_t>(-1);
  struct End {
    size_t number;
    Vector point, outwards;
  };
  std::vector<End> ends;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::vector<Place>& places = pieces[i].places;
    if (pieces[i].is_closed || places.size() < 2) continue;
    ends.push_back({2 * i, places[0].point, places[0].point - places[1].point});
    ends.push_back({2 * i + 1, places.back().point, places.back().point - places[places.size() - 2].point});
  }
  std::ranges::sort(ends, {}, [](const End& end) { return std::pair(end.point[0], end.number); });
  const double near_m = kSamePlace * size_m;
  struct Pair {
    double straight;  // -1: one goes on as the other ends
    size_t a, b;
  };
  std::vector<Pair> candidates;
  for (size_t i = 0; i < ends.size(); ++i) {
    for (size_t j = i + 1; j < ends.size() && ends[j].point[0] - ends[i].point[0] <= near_m; ++j) {
      if (Norm(ends[i].point - ends[j].point) > near_m) continue;
      const double straight = Dot(ends[i].outwards, ends[j].outwards) / (Norm(ends[i].outwards) * Norm(ends[j].outwards));
      candidates.push_back({straight, std::min(ends[i].number, ends[j].number), std::max(ends[i].number, ends[j].number)});
    }
  }
  std::ranges::sort(candidates, {}, [](const Pair& pair) { return std::tuple(pair.straight, pair.a, pair.b); });
  std::vector<size_t> next(2 * pieces.size(), kNone);
  for (const Pair& pair : candidates) {
    if (next[pair.a] != kNone || next[pair.b] != kNone) continue;
    next[pair.a] = pair.b;
    next[pair.b] = pair.a;
  }
  return next;
}

NurbsCurvePoint Described(const NurbsObjects& objects, const Piece& piece, const Place& place, const Vector& origin) {
  const auto on_a = objects.patch_place(piece.patch_a), on_b = objects.patch_place(piece.patch_b);
  const auto in = [](const std::array<double, 2>& span, double t) { return (1 - t) * span[0] + t * span[1]; };
  return {.surface_a = on_a.surface,
          .surface_b = on_b.surface,
          .uv_a = {in(on_a.u, place.x[0]), in(on_a.v, place.x[1])},
          .uv_b = {in(on_b.u, place.x[2]), in(on_b.v, place.x[3])},
          .point_m = origin + place.point};
}

// Pieces, one after the other as they go on.
void AppendCurves(const NurbsObjects& objects, uint32_t query, const std::vector<Piece>& pieces, const Vector& origin, double size_m,
                  std::vector<NurbsCurve>* curves) {
  constexpr auto kNone = static_cast<size_t>(-1);
  const std::vector<size_t> next = JoinEnds(pieces, size_m);
  std::vector<uint8_t> is_done(pieces.size(), 0);
  const auto append = [&](NurbsCurve* curve, size_t from) {  // a piece, from this end of it on
    const Piece& piece = pieces[from / 2];
    is_done[from / 2] = 1;
    const size_t count = piece.places.size();
    for (size_t i = curve->points.empty() ? 0 : 1; i < count; ++i) {
      curve->points.push_back(Described(objects, piece, piece.places[from % 2 == 0 ? i : count - 1 - i], origin));
    }
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (is_done[i] != 0 || pieces[i].places.size() < 2) continue;
    NurbsCurve curve{.query = query, .is_closed = pieces[i].is_closed, .points = {}};
    if (curve.is_closed) {
      append(&curve, 2 * i);
      curves->push_back(std::move(curve));
      continue;
    }
    // Back to its beginning, or around.
    size_t first = 2 * i;
    while (next[first] != kNone && next[first] != 2 * i + 1) first = next[first] ^ 1U;
    curve.is_closed = next[first] != kNone;
    for (size_t end = first;;) {
      append(&curve, end);
      const size_t after = next[end ^ 1U];
      if (after == kNone || is_done[after / 2] != 0) break;
      end = after;
    }
    if (curve.is_closed) curve.points.pop_back();  // it is the first one
    curves->push_back(std::move(curve));
  }
}

}  // namespace

absl::StatusOr<std::vector<NurbsCurve>> TraceNurbsCurves(const NurbsObjects& objects, std::span<const NurbsQuery> queries,
                                                         std::span<const NurbsHit> hits, std::span<const NurbsContact> contacts,
                                                         const NurbsCurveOptions& options) {
  if (!(options.tolerance_m > 0) || !std::isfinite(options.tolerance_m)) {
    return absl::InvalidArgumentError(absl::StrCat("tolerance_m: ", options.tolerance_m, " must be positive and finite"));
  }
  // By query and pair of patches.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<const NurbsContact*>> crossings;
  for (size_t i = 0; i < contacts.size(); ++i) {
    const NurbsContact& contact = contacts[i];
    if (contact.hit >= hits.size() || contact.query != hits[contact.hit].query || contact.query >= queries.size()) {
      return absl::InvalidArgumentError(absl::StrCat("contacts[", i, "]: is not of these hits and queries"));
    }
    const NurbsHit& hit = hits[contact.hit];
    const NurbsQuery& query = queries[hit.query];
    if (query.object_a >= objects.object_count() || query.object_b >= objects.object_count() ||
        !objects.Owns(query.object_a, hit.a.patch) || !objects.Owns(query.object_b, hit.b.patch)) {
      return absl::InvalidArgumentError(absl::StrCat("contacts[", i, "]: its patches are not of the objects of its query"));
    }
    if (contact.kind != NurbsContactKind::kCrossing) continue;
    crossings[{contact.query, hit.a.patch, hit.b.patch}].push_back(&contact);
  }
  std::vector<NurbsCurve> curves;
  size_t point_count = 0;
  for (auto at = crossings.begin(); at != crossings.end();) {
    const uint32_t number = std::get<0>(at->first);
    const NurbsQuery& query = queries[number];
    const Vector origin = Placed(query.pose_a, objects.middle_m(query.object_a), {});
    std::vector<Piece> pieces;
    double size_m = 0;
    for (; at != crossings.end() && std::get<0>(at->first) == number; ++at) {
      const auto [unused, patch_a, patch_b] = at->first;
      const Net a = PlacedNet(objects, query.object_a, patch_a, query.pose_a, origin);
      const Net b = PlacedNet(objects, query.object_b, patch_b, query.pose_b, origin);
      const auto of_a = Lengths(a), of_b = Lengths(b);
      const double pair_m = std::max({of_a[0], of_a[1], of_b[0], of_b[1]});
      size_m = std::max(size_m, pair_m);
      const PairTracer tracer(a, b, pair_m, options.tolerance_m);
      const auto on_a = objects.patch_place(patch_a), on_b = objects.patch_place(patch_b);
      const auto share = [](const std::array<double, 2>& span, double t) {
        return std::clamp((t - span[0]) / (span[1] - span[0]), 0.0, 1.0);
      };
      const size_t first = pieces.size();
      for (const NurbsContact* contact : at->second) {
        const Place seed = tracer.PlaceAt({share(on_a.u, contact->uv_a[0]), share(on_a.v, contact->uv_a[1]),
                                           share(on_b.u, contact->uv_b[0]), share(on_b.v, contact->uv_b[1])});
        const bool is_known = std::any_of(pieces.begin() + static_cast<std::ptrdiff_t>(first), pieces.end(),
                                          [&](const Piece& piece) { return tracer.Passes(piece, seed); });
        if (is_known) continue;
        Piece piece{.patch_a = patch_a, .patch_b = patch_b, .is_closed = false, .places = {}};
        const bool fits = tracer.Trace(seed, options.max_points, &piece);
        point_count += piece.places.size();
        if (!fits || point_count > options.max_points) {
          return absl::ResourceExhaustedError(absl::StrCat("curves have more than max_points = ", options.max_points, " points"));
        }
        pieces.push_back(std::move(piece));
      }
    }
    DropDoubles(size_m, options.tolerance_m, &pieces);
    AppendCurves(objects, number, pieces, origin, size_m, &curves);
  }
  return curves;
}

}  // namespace palpate::gpu
