#include "gpu/collision/nurbs_minima.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace palpate::gpu::nurbs {
namespace {

constexpr int kMaxSteps = 100;
constexpr double kRounding = 4e-15;    // of sizes: what differences of points are known to
constexpr double kAtRest = 1e-13;      // of the distance: a gradient that is none
constexpr double kResting = 1e-9;      // a gradient, in the same unit, that is none where rounding does not allow for less
constexpr double kFlat = 1e-7;         // of the largest second derivative: one that is none
constexpr double kSamePlace = 1e-7;    // of the size: points that are one
constexpr double kSharedPoint = 1e-9;  // of the size: how far patches that join may be apart
constexpr double kPole = 1e-6;         // of the length of a patch: a derivative by which nothing moves
constexpr double kEnd = 1e-9;          // how far from the end of a patch is at it
constexpr double kInside = 1e-3;       // how far from the end of a patch to start from a place there
constexpr double kFalls = 1e-10;       // of the size: a distance that is less beyond rounding
constexpr double kNowhere = std::numeric_limits<double>::infinity();

using Matrix4 = std::array<std::array<double, 4>, 4>;

// Half the squared distance with its derivatives, by parameters in metres: each times the length of its patch.
struct Local {
  Vector apart = {};  // from b to a
  Vector point_a = {}, point_b = {};
  Parameters gradient = {};
  Matrix4 second = {};
  std::array<Vector, 4> tangents = {};  // by parameters in metres
  double value() const { return 0.5 * Dot(apart, apart); }
};

Local Look(const Net& a, const Net& b, const Parameters& lengths, const Parameters& x) {
  const Jet ja = EvaluateJet(a, x[0], x[1]);
  const Jet jb = EvaluateJet(b, x[2], x[3]);
  Local out;
  out.point_a = ja.point;
  out.point_b = jb.point;
  out.apart = ja.point - jb.point;
  out.tangents = {(1 / lengths[0]) * ja.du, (1 / lengths[1]) * ja.dv, (-1 / lengths[2]) * jb.du, (-1 / lengths[3]) * jb.dv};
  for (size_t i = 0; i < 4; ++i) {
    out.gradient[i] = Dot(out.tangents[i], out.apart);
    for (size_t j = 0; j < 4; ++j) out.second[i][j] = Dot(out.tangents[i], out.tangents[j]);
  }
  const auto add = [&](size_t i, size_t j, const Vector& bend, double sign) {
    const double by = sign * Dot(bend, out.apart) / (lengths[i] * lengths[j]);
    out.second[i][j] += by;
    if (i != j) out.second[j][i] += by;
  };
  add(0, 0, ja.duu, 1);
  add(0, 1, ja.duv, 1);
  add(1, 1, ja.dvv, 1);
  add(2, 2, jb.duu, -1);
  add(2, 3, jb.duv, -1);
  add(3, 3, jb.dvv, -1);
  return out;
}

// Whether an end of the interval holds a parameter.
std::array<bool, 4> HeldOf(const Local& local, const Parameters& x) {
  std::array<bool, 4> held{};
  for (size_t k = 0; k < 4; ++k) held[k] = (x[k] <= 0 && local.gradient[k] > 0) || (x[k] >= 1 && local.gradient[k] < 0);
  return held;
}

double FreeGradient(const Local& local, const std::array<bool, 4>& held) {
  double sum = 0;
  for (size_t k = 0; k < 4; ++k) sum += held[k] ? 0 : local.gradient[k] * local.gradient[k];
  return std::sqrt(sum);
}

double TraceOf(const Matrix4& m) { return std::abs(m[0][0]) + std::abs(m[1][1]) + std::abs(m[2][2]) + std::abs(m[3][3]); }

// The matrix with rows and columns of what is held left out, and `shift` on the diagonal.
Matrix4 FreeSecond(const Local& local, const std::array<bool, 4>& held, double shift) {
  Matrix4 m = local.second;
  for (size_t i = 0; i < 4; ++i) {
    m[i][i] += shift;
    if (!held[i]) continue;
    for (size_t j = 0; j < 4; ++j) m[i][j] = m[j][i] = 0;
    m[i][i] = 1;
  }
  return m;
}

bool IsPositive(const Matrix4& m) {
  Parameters unused{};
  return Solve4(m, {}, unused);
}

// Whether the second derivatives along free parameters, by lengths on the surfaces, are above `least` of their sum. A parameter along which
// nothing moves, at a pole, does not count.
bool IsCurved(const Local& local, std::array<bool, 4> held, double least) {
  Local scaled = local;
  std::array<double, 4> lengths{};
  for (size_t k = 0; k < 4; ++k) {
    lengths[k] = Norm(local.tangents[k]);
    held[k] = held[k] || !(lengths[k] > kPole);
  }
  double trace = 0;
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) scaled.second[i][j] = held[i] || held[j] ? 0 : local.second[i][j] / (lengths[i] * lengths[j]);
    trace += std::abs(scaled.second[i][i]);
  }
  return IsPositive(FreeSecond(scaled, held, -least * trace));
}

// An iteration of Newton's with what it needs to go on.
struct Descent {
  const Net& a;
  const Net& b;
  Parameters lengths;
  double size_m;
  Parameters x;
  Local local;
  double damping = 1e-12;  // of the trace

  // False if there is nothing more to gain.
  bool Step() {
    const auto held = HeldOf(local, x);
    const double gradient = FreeGradient(local, held);
    if (gradient <= kAtRest * Norm(local.apart) || gradient == 0) return false;
    const double trace = std::max(TraceOf(local.second), std::numeric_limits<double>::min());
    Parameters right{};
    for (size_t k = 0; k < 4; ++k) right[k] = held[k] ? 0 : -local.gradient[k];
    for (; damping < 1e3; damping *= 10) {
      Parameters step{};
      if (!Solve4(FreeSecond(local, held, damping * trace), right, step)) continue;
      Parameters next = x;
      for (size_t k = 0; k < 4; ++k) next[k] = std::clamp(x[k] + step[k] / lengths[k], 0.0, 1.0);
      const Local then = Look(a, b, lengths, next);
      const double rounding = kRounding * size_m * (size_m * kRounding + Norm(local.apart));
      const bool falls = then.value() < local.value() - rounding;
      const bool calms = then.value() <= local.value() + rounding && FreeGradient(then, HeldOf(then, next)) < 0.9 * gradient;
      if (!falls && !calms) continue;
      x = next;
      local = then;
      damping = std::max(0.01 * damping, 1e-13);
      return true;
    }
    return false;
  }
};

// The largest product of a free tangent and the direction between the points, both of length 1.
double ResidualOf(const Local& local, const std::array<bool, 4>& held) {
  const double apart = Norm(local.apart);
  double most = 0;
  for (size_t k = 0; k < 4; ++k) {
    const double length = Norm(local.tangents[k]);
    if (held[k] || !(length > kPole) || !(apart > 0)) continue;
    most = std::max(most, std::abs(local.gradient[k]) / (length * apart));
  }
  return most;
}

Vector Unit(const Vector& v) {
  const double length = Norm(v);
  return length > 0 ? (1 / length) * v : Vector{};
}

// Along S_u x S_v. Near a side that is one point a little inside: there S_u is along S_uv.
Vector NormalAt(const Net& net, double u, double v) {
  const Jet jet = EvaluateJet(net, u, v);
  const auto lengths = Lengths(net);
  const bool is_pole_u = Norm(jet.du) <= kPole * lengths[0];
  const bool is_pole_v = Norm(jet.dv) <= kPole * lengths[1];
  const Vector du = is_pole_u ? (v < 0.5 ? 1.0 : -1.0) * jet.duv : jet.du;
  const Vector dv = is_pole_v ? (u < 0.5 ? 1.0 : -1.0) * jet.duv : jet.dv;
  return is_pole_u && is_pole_v ? Vector{} : Unit(Cross(du, dv));
}

double InInterval(const std::array<double, 2>& span, double t) { return (1 - t) * span[0] + t * span[1]; }

double MiddleOf(uint32_t interval) {
  return std::ldexp(static_cast<double>(interval & 0xffffffU) + 0.5, -static_cast<int>(interval >> 24));
}

// The nearest place of a net to a point from a start on it, by Gauss and Newton's steps that stay in the patch.
std::array<double, 2> NearestFrom(const Net& net, std::array<double, 2> uv, const Vector& point) {
  for (int step = 0; step < 12; ++step) {
    const Evaluated at = Evaluate(net, uv[0], uv[1]);
    const Vector apart = point - at.point();
    const Vector du = at.along_u();
    const Vector dv = at.along_v();
    const double damping = 1e-14 * (Dot(du, du) + Dot(dv, dv));
    const double uu = Dot(du, du) + damping;
    const double vv = Dot(dv, dv) + damping;
    const double cross = Dot(du, dv);
    const double determinant = uu * vv - cross * cross;
    if (!(determinant > 0)) break;
    const double gu = Dot(du, apart);
    const double gv = Dot(dv, apart);
    uv[0] = std::clamp(uv[0] + (vv * gu - cross * gv) / determinant, 0.0, 1.0);
    uv[1] = std::clamp(uv[1] + (uu * gv - cross * gu) / determinant, 0.0, 1.0);
  }
  return uv;
}

// Grows by points.
struct Box {
  Vector low = {kNowhere, kNowhere, kNowhere};
  Vector high = {-kNowhere, -kNowhere, -kNowhere};

  void Add(const Vector& point) {
    for (size_t k = 0; k < 3; ++k) {
      low[k] = std::min(low[k], point[k]);
      high[k] = std::max(high[k], point[k]);
    }
  }
  bool Holds(const Vector& point, double near) const {
    bool holds = true;
    for (size_t k = 0; k < 3; ++k) holds = holds && point[k] >= low[k] - near && point[k] <= high[k] + near;
    return holds;
  }
  PatchBalls::Ball Around() const { return {.centre_m = 0.5 * (low + high), .radius_m = 0.5 * Norm(high - low)}; }
};

// A bound on how much longer the linear part of a pose makes vectors: the square root of a norm of M^T M.
double StretchOf(const NurbsPose& pose) {
  double most = 0;
  for (size_t i = 0; i < 3; ++i) {
    double row = 0;
    for (size_t j = 0; j < 3; ++j) {
      double product = 0;
      for (size_t k = 0; k < 3; ++k) product += pose.linear[3 * k + i] * pose.linear[3 * k + j];
      row += std::abs(product);
    }
    most = std::max(most, row);
  }
  return std::sqrt(most);
}

}  // namespace

PatchMinimum MinimizeDistance(const Net& a, const Net& b, Parameters x, double size_m) {
  const auto la = Lengths(a);
  const auto lb = Lengths(b);
  Parameters lengths = {la[0], la[1], lb[0], lb[1]};
  for (double& length : lengths) length = length > 0 ? length : size_m;
  Descent descent{.a = a, .b = b, .lengths = lengths, .size_m = size_m, .x = x, .local = Look(a, b, lengths, x)};
  for (int step = 0; step < kMaxSteps && descent.Step(); ++step) {
  }
  const Local& end = descent.local;
  const auto held = HeldOf(end, descent.x);
  const double trace = TraceOf(end.second);
  const double distance = Norm(end.apart);
  // Held by more than rounding.
  std::array<bool, 4> pressed{};
  for (size_t k = 0; k < 4; ++k) pressed[k] = held[k] && std::abs(end.gradient[k]) > kResting * distance + kRounding * size_m;
  return {.x = descent.x,
          .point_a = end.point_a,
          .point_b = end.point_b,
          .distance_m = distance,
          .residual = ResidualOf(end, held),
          .is_on_rim = pressed[0] || pressed[1] || pressed[2] || pressed[3],
          .is_isolated = IsCurved(end, pressed, kFlat),
          .is_minimum = FreeGradient(end, held) <= kResting * distance + kRounding * size_m &&
                        IsPositive(FreeSecond(end, pressed, kFlat * trace + kRounding * size_m))};
}

std::span<const PatchBalls::Ball> PatchBalls::Loose(uint32_t object) {
  const auto [found, is_new] = loose_.try_emplace(object);
  if (!is_new) return found->second;
  const std::span<const double> control = objects_.control(object);
  found->second.reserve(objects_.patch_count(object));
  for (uint32_t patch = 0; patch < objects_.patch_count(object); ++patch) {
    const auto place = objects_.patch_place(objects_.first_patch(object) + patch);
    Box box;
    for (size_t i = 0; i <= place.degree_u; ++i) {
      for (size_t j = 0; j <= place.degree_v; ++j) {
        const double* p = &control[4 * (place.control + i * place.stride + j)];
        box.Add({p[0] / p[3], p[1] / p[3], p[2] / p[3]});
      }
    }
    found->second.push_back(box.Around());
  }
  return found->second;
}

const PatchBalls::Ball& PatchBalls::Tight(uint32_t object, uint32_t patch) {
  const auto [found, is_new] = tight_.try_emplace({object, patch});
  if (!is_new) return found->second;
  const Vector middle = objects_.middle_m(object);
  Box box;
  for (const Point4& p : PlacedNet(objects_, object, patch, {}, middle).points) box.Add((1 / p.w) * p.x);
  found->second = box.Around();
  found->second.centre_m = middle + found->second.centre_m;
  return found->second;
}

MinimumFinder::MinimumFinder(const NurbsObjects& objects, const NurbsQuery& query, PatchBalls& balls) : objects_(objects), balls_(balls) {
  sides_[0] = {.object = query.object_a, .pose = query.pose_a, .stretch = StretchOf(query.pose_a), .nets = {}};
  sides_[1] = {.object = query.object_b, .pose = query.pose_b, .stretch = StretchOf(query.pose_b), .nets = {}};
  origin_m_ = Placed(query.pose_a, objects.middle_m(query.object_a), {});
  for (const Side& side : sides_) {
    double stretch = 0;
    for (const double entry : side.pose.linear) stretch += entry * entry;
    size_m_ += std::sqrt(stretch) * objects.radius_m(side.object);
  }
}

const Net& MinimumFinder::NetOf(Side& side, uint32_t patch) {
  const auto found = side.nets.find(patch);
  if (found != side.nets.end()) return found->second;
  return side.nets.emplace(patch, PlacedNet(objects_, side.object, patch, side.pose, origin_m_)).first->second;
}

NurbsMinimum MinimumFinder::Describe(uint32_t patch_a, uint32_t patch_b, const PatchMinimum& minimum) {
  NurbsMinimum out{.patch_a = patch_a, .patch_b = patch_b};
  const auto place_a = objects_.patch_place(patch_a);
  const auto place_b = objects_.patch_place(patch_b);
  out.surface_a = place_a.surface;
  out.surface_b = place_b.surface;
  out.uv_a = {InInterval(place_a.u, minimum.x[0]), InInterval(place_a.v, minimum.x[1])};
  out.uv_b = {InInterval(place_b.u, minimum.x[2]), InInterval(place_b.v, minimum.x[3])};
  out.point_a_m = origin_m_ + minimum.point_a;
  out.point_b_m = origin_m_ + minimum.point_b;
  out.normal_a = NormalAt(NetOf(sides_[0], patch_a), minimum.x[0], minimum.x[1]);
  out.normal_b = NormalAt(NetOf(sides_[1], patch_b), minimum.x[2], minimum.x[3]);
  out.distance_m = minimum.distance_m;
  out.residual = minimum.residual;
  out.is_on_rim = minimum.is_on_rim;
  out.is_isolated = minimum.is_isolated;
  return out;
}

// Whether a point may be on a side of a net: in the box around its control points, widened.
bool IsNearSide(const Net& net, int side, const Vector& point, double near) {
  const bool along_v = side < 2;
  const size_t fixed = side % 2 == 0 ? 0 : (along_v ? net.nu : net.nv) - 1;
  Box box;
  for (size_t i = 0; i < (along_v ? net.nv : net.nu); ++i) {
    const Point4& p = along_v ? net.at(fixed, i) : net.at(i, fixed);
    box.Add((1 / p.w) * p.x);
  }
  return box.Holds(point, near);
}

// All places of a net that are a point, as far as a few starts on its sides find them. Of a side that is one point, several.
void MinimumFinder::AddPlaces(const Net& net, uint32_t patch, const Vector& point, std::vector<Place>& places) const {
  const double near = kSharedPoint * size_m_;
  constexpr int kStarts = 4;
  const size_t before = places.size();
  for (int side = 0; side < 4; ++side) {
    if (!IsNearSide(net, side, point, near)) continue;
    for (int i = 0; i <= kStarts; ++i) {
      const double t = static_cast<double>(i) / kStarts;
      const double end = side % 2;
      const std::array<double, 2> start = side < 2 ? std::array<double, 2>{end, t} : std::array<double, 2>{t, end};
      const bool is_there = Norm(Evaluate(net, start[0], start[1]).point() - point) <= near;
      const std::array<double, 2> uv = is_there ? start : NearestFrom(net, start, point);
      if (!(Norm(Evaluate(net, uv[0], uv[1]).point() - point) <= near)) continue;
      const bool is_known = std::any_of(places.begin() + static_cast<std::ptrdiff_t>(before), places.end(), [&](const Place& place) {
        return std::abs(place.uv[0] - uv[0]) + std::abs(place.uv[1] - uv[1]) < 1e-6;
      });
      if (!is_known) places.push_back({.patch = patch, .uv = uv});
    }
  }
}

std::vector<MinimumFinder::Place> MinimumFinder::PlacesOf(Side& side, uint32_t patch, const Vector& point) {
  std::vector<Place> places;
  AddPlaces(NetOf(side, patch), patch, point, places);
  const std::span<const PatchBalls::Ball> loose = balls_.Loose(side.object);
  // Balls are rounded, and so are their places where objects are far from the origin.
  const double far_m = Norm(origin_m_) + side.stretch * Norm(objects_.middle_m(side.object));
  const double near = 2 * kSharedPoint * size_m_ + 1e-14 * far_m;
  const auto is_in = [&](const PatchBalls::Ball& ball) {
    return Norm(point - Placed(side.pose, ball.centre_m, origin_m_)) <= side.stretch * ball.radius_m + near;
  };
  for (uint32_t i = 0; i < loose.size(); ++i) {
    const uint32_t other = objects_.first_patch(side.object) + i;
    if (other == patch || !is_in(loose[i]) || !is_in(balls_.Tight(side.object, other))) continue;
    AddPlaces(NetOf(side, other), other, point, places);
  }
  return places;
}

MinimumFinder::Found MinimumFinder::Minimize(const NurbsPair& pair) {
  Found found{.patch_a = objects_.node(pair.node_a).patch, .patch_b = objects_.node(pair.node_b).patch, .minimum = {}};
  const Parameters start = {MiddleOf(pair.u_a), MiddleOf(pair.v_a), MiddleOf(pair.u_b), MiddleOf(pair.v_b)};
  found.minimum = MinimizeDistance(NetOf(sides_[0], found.patch_a), NetOf(sides_[1], found.patch_b), start, size_m_);
  return found;
}

MinimumFinder::Around MinimumFinder::LookAround(const Found& from) {
  const auto is_at_end = [](double t) { return t <= kEnd || t >= 1 - kEnd; };
  const PatchMinimum& minimum = from.minimum;
  const Parameters& x = minimum.x;
  std::vector<Place> places_a = {{.patch = from.patch_a, .uv = {x[0], x[1]}}};
  std::vector<Place> places_b = {{.patch = from.patch_b, .uv = {x[2], x[3]}}};
  if (is_at_end(x[0]) || is_at_end(x[1])) {
    for (const Place& place : PlacesOf(sides_[0], from.patch_a, minimum.point_a)) places_a.push_back(place);
  }
  if (is_at_end(x[2]) || is_at_end(x[3])) {
    for (const Place& place : PlacesOf(sides_[1], from.patch_b, minimum.point_b)) places_b.push_back(place);
  }
  Around out;
  if (places_a.size() == 1 && places_b.size() == 1) return out;
  const auto inside = [](double t) { return std::clamp(t, kInside, 1 - kInside); };
  for (const Place& a : places_a) {
    const Net& net_a = NetOf(sides_[0], a.patch);
    for (const Place& b : places_b) {
      const Parameters start = {inside(a.uv[0]), inside(a.uv[1]), inside(b.uv[0]), inside(b.uv[1])};
      const PatchMinimum other = MinimizeDistance(net_a, NetOf(sides_[1], b.patch), start, size_m_);
      const double moved = Norm(other.point_a - minimum.point_a) + Norm(other.point_b - minimum.point_b);
      if (other.distance_m < minimum.distance_m - kFalls * size_m_) {
        out.lower = Found{a.patch, b.patch, other};
        return out;
      }
      out.is_valley |= other.distance_m < minimum.distance_m + kFalls * size_m_ && moved > 10 * kSamePlace * size_m_;
    }
  }
  return out;
}

std::optional<NurbsMinimum> MinimumFinder::Polish(const NurbsPair& pair) {
  Found found = Minimize(pair);
  PatchMinimum& minimum = found.minimum;
  if (!minimum.is_minimum) return std::nullopt;
  const auto known = std::find_if(judged_.begin(), judged_.end(), [&](const Judged& judged) {
    const bool is_same = Norm(judged.point_a - minimum.point_a) + Norm(judged.point_b - minimum.point_b) <= kSamePlace * size_m_;
    const bool is_same_valley =
        !judged.is_isolated && !minimum.is_isolated && std::abs(judged.distance_m - minimum.distance_m) <= kSamePlace * size_m_;
    return is_same || (is_same_valley && judged.is_minimum);
  });
  // What was returned before is not needed again: of a valley one place is enough.
  if (known != judged_.end()) return std::nullopt;
  const Around around = LookAround(found);
  const bool is_minimum = !around.lower.has_value();
  minimum.is_isolated &= !around.is_valley;
  const bool is_known_valley = std::any_of(judged_.begin(), judged_.end(), [&](const Judged& judged) {
    return judged.is_minimum && !judged.is_isolated && !minimum.is_isolated &&
           std::abs(judged.distance_m - minimum.distance_m) <= kSamePlace * size_m_;
  });
  judged_.push_back({minimum.point_a, minimum.point_b, minimum.distance_m, minimum.is_isolated, is_minimum});
  if (!is_minimum || is_known_valley) return std::nullopt;
  return Describe(found.patch_a, found.patch_b, minimum);
}

NurbsMinimum MinimumFinder::Descend(const NurbsPair& pair) {
  constexpr int kMostPatches = 64;
  Found found = Minimize(pair);
  for (int i = 0; i < kMostPatches; ++i) {
    const Around around = LookAround(found);
    found.minimum.is_isolated &= !around.is_valley;
    if (!around.lower) break;
    found = *around.lower;
  }
  return Describe(found.patch_a, found.patch_b, found.minimum);
}

}  // namespace palpate::gpu::nurbs
