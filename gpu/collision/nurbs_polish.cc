#include "gpu/collision/nurbs_polish.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/collision/nurbs_patch.h"

namespace palpate::gpu {
namespace {

using namespace nurbs;  // NOLINT: all of it is for files like this one

constexpr double kConverged = 1e-10;     // of the size
constexpr double kRounding = 1e-13;      // of coordinates of nets and their boxes
constexpr double kMostCondition = 1e12;  // of the square of the derivatives: beyond, its inverse is nothing but rounding
constexpr int kMaxSteps = 60;
constexpr int kMaxTests = 400;  // of a proof that parts are apart
constexpr int kMaxDepth = 60;

// The inverse of a symmetric 3 x 3 matrix; nothing if it is singular.
std::optional<std::array<Vector, 3>> Inverse(const std::array<Vector, 3>& m) {
  const Vector c0 = Cross(m[1], m[2]);
  const Vector c1 = Cross(m[2], m[0]);
  const Vector c2 = Cross(m[0], m[1]);
  const double determinant = Dot(m[0], c0);
  const double trace = m[0][0] + m[1][1] + m[2][2];
  if (!(std::abs(determinant) > 1e-40 * trace * trace * trace)) return std::nullopt;
  const double s = 1 / determinant;
  return std::array<Vector, 3>{Vector{s * c0[0], s * c1[0], s * c2[0]}, Vector{s * c0[1], s * c1[1], s * c2[1]},
                               Vector{s * c0[2], s * c1[2], s * c2[2]}};
}

// A turned box along the chords, in double; see boxes_apart in nurbs_volume.clh.
struct Box {
  Vector centre, half;
  std::array<Vector, 3> axes;
};

Box BoxAround(const Net& net) {
  std::vector<Vector> points;
  points.reserve(net.points.size());
  for (const Point4& p : net.points) points.push_back((1 / p.w) * p.x);
  const size_t last = points.size() - 1;
  Vector a = (points[last] - points[net.nv - 1]) + (points[last + 1 - net.nv] - points[0]);
  Vector b = (points[last] - points[last + 1 - net.nv]) + (points[net.nv - 1] - points[0]);
  if (Dot(b, b) > Dot(a, a)) std::swap(a, b);
  Box box;
  const double length = Norm(a);
  if (length > 0) {
    box.axes[0] = (1 / length) * a;
    b = b - Dot(b, box.axes[0]) * box.axes[0];
    if (!(Norm(b) > 1e-6 * length)) {
      const Vector& e = box.axes[0];
      b = Vector{0, 0, 0};
      b[std::abs(e[0]) <= std::abs(e[1]) ? (std::abs(e[0]) <= std::abs(e[2]) ? 0 : 2) : (std::abs(e[1]) <= std::abs(e[2]) ? 1 : 2)] = 1;
      b = b - Dot(b, e) * e;
    }
    b = (1 / Norm(b)) * b;
    b = b - Dot(b, box.axes[0]) * box.axes[0];
    box.axes[1] = (1 / Norm(b)) * b;
    box.axes[2] = Cross(box.axes[0], box.axes[1]);
  } else {
    box.axes = {Vector{1, 0, 0}, Vector{0, 1, 0}, Vector{0, 0, 1}};
  }
  box.centre = points[0];
  for (size_t k = 0; k < 3; ++k) {
    double low = 0;
    double high = 0;
    for (const Vector& p : points) {
      const double h = Dot(box.axes[k], p - points[0]);
      low = std::min(low, h);
      high = std::max(high, h);
    }
    box.centre = box.centre + 0.5 * (low + high) * box.axes[k];
    box.half[k] = 0.5 * (high - low);
  }
  return box;
}

bool AreApart(const Box& a, const Box& b, double slack) {
  const Vector d = b.centre - a.centre;
  const auto apart = [&](const Vector& n) {
    double reach = slack;
    for (size_t k = 0; k < 3; ++k) reach += a.half[k] * std::abs(Dot(n, a.axes[k])) + b.half[k] * std::abs(Dot(n, b.axes[k]));
    return std::abs(Dot(n, d)) > reach;
  };
  for (size_t i = 0; i < 3; ++i) {
    if (apart(a.axes[i]) || apart(b.axes[i])) return true;
  }
  for (const Vector& n : a.axes) {
    for (const Vector& m : b.axes) {
      if (apart(Cross(n, m))) return true;
    }
  }
  return false;
}

// Whether two parts are certainly apart, by cutting them further; false if the budget does not do.
bool ProveApart(const Net& a, const Net& b, double slack, int depth, int& tests) {
  if (++tests > kMaxTests || depth > kMaxDepth) return false;
  if (AreApart(BoxAround(a), BoxAround(b), slack)) return true;
  const auto la = Lengths(a);
  const auto lb = Lengths(b);
  const bool cuts_a = std::max(la[0], la[1]) >= std::max(lb[0], lb[1]);
  const auto& l = cuts_a ? la : lb;
  if (!(std::max(l[0], l[1]) > 4 * slack)) return false;
  for (const Net& half : Halves(cuts_a ? a : b, l[0] >= l[1])) {
    if (!ProveApart(cuts_a ? half : a, cuts_a ? b : half, slack, depth + 1, tests)) return false;
  }
  return true;
}

// Largest of a kind of differences of control points, of the points and of the weights.
struct Bounds {
  double x = 0, w = 0;  // of themselves
  double xu = 0, wu = 0, xv = 0, wv = 0;
  double xuu = 0, wuu = 0, xuv = 0, wuv = 0, xvv = 0, wvv = 0;
};

Bounds DerivativeBounds(const Net& net) {
  Bounds out;
  const double p = static_cast<double>(net.nu) - 1;
  const double q = static_cast<double>(net.nv) - 1;
  const auto note = [](double& x, double& w, const Point4& d, double factor) {
    x = std::max(x, factor * Norm(d.x));
    w = std::max(w, factor * std::abs(d.w));
  };
  for (size_t i = 0; i < net.nu; ++i) {
    for (size_t j = 0; j < net.nv; ++j) {
      const auto difference = [&](size_t di, size_t dj) { return Mix(1, net.at(i + di, j + dj), -1, net.at(i, j)); };
      note(out.x, out.w, net.at(i, j), 1);
      if (i + 1 < net.nu) note(out.xu, out.wu, difference(1, 0), p);
      if (j + 1 < net.nv) note(out.xv, out.wv, difference(0, 1), q);
      if (i + 2 < net.nu) note(out.xuu, out.wuu, Mix(1, Mix(1, net.at(i + 2, j), -2, net.at(i + 1, j)), 1, net.at(i, j)), p * (p - 1));
      if (j + 2 < net.nv) note(out.xvv, out.wvv, Mix(1, Mix(1, net.at(i, j + 2), -2, net.at(i, j + 1)), 1, net.at(i, j)), q * (q - 1));
      if (i + 1 < net.nu && j + 1 < net.nv) {
        note(out.xuv, out.wuv, Mix(1, Mix(1, net.at(i + 1, j + 1), -1, net.at(i + 1, j)), -1, difference(0, 1)), p * q);
      }
    }
  }
  return out;
}

// The radius, in units of `width`, in which w_b X_a - w_a X_b has a zero about x; nothing if that is not certain. The polynomial is taken
// over [x - width, x + width], which may be more than the patch. `lost`: how far rounding has moved the nets before [m].
std::optional<double> CertifiedRadius(const Net& a, const Net& b, const Parameters& x, const Parameters& width, double lost) {
  const Net local_a = PartAlong(PartAlong(a, true, x[0] - width[0], x[0] + width[0]), false, x[1] - width[1], x[1] + width[1]);
  const Net local_b = PartAlong(PartAlong(b, true, x[2] - width[2], x[2] + width[2]), false, x[3] - width[3], x[3] + width[3]);
  for (const Net* net : {&local_a, &local_b}) {
    for (const Point4& p : net->points) {
      if (!(p.w > 0)) return std::nullopt;
    }
  }
  const Bounds ba = DerivativeBounds(local_a);
  const Bounds bb = DerivativeBounds(local_b);
  // All second derivatives; those of two different objects count twice.
  double sum_sq = 0;
  const auto add = [&](double bound, double times) { sum_sq += times * bound * bound; };
  add(bb.w * ba.xuu + bb.x * ba.wuu, 1);
  add(bb.w * ba.xuv + bb.x * ba.wuv, 2);
  add(bb.w * ba.xvv + bb.x * ba.wvv, 1);
  add(ba.w * bb.xuu + ba.x * bb.wuu, 1);
  add(ba.w * bb.xuv + ba.x * bb.wuv, 2);
  add(ba.w * bb.xvv + ba.x * bb.wvv, 1);
  for (const auto& [xa, wa] : {std::pair(ba.xu, ba.wu), std::pair(ba.xv, ba.wv)}) {
    for (const auto& [xb, wb] : {std::pair(bb.xu, bb.wu), std::pair(bb.xv, bb.wv)}) add(xa * wb + wa * xb, 2);
  }
  const double lipschitz = std::sqrt(sum_sq) * (1 + 1e-10);
  const Evaluated ea = Evaluate(local_a, 0.5, 0.5);
  const Evaluated eb = Evaluate(local_b, 0.5, 0.5);
  const Vector value = eb.w * ea.x - ea.w * eb.x;
  const std::array<Vector, 4> columns = {eb.w * ea.du - ea.wu * eb.x, eb.w * ea.dv - ea.wv * eb.x, eb.wu * ea.x - ea.w * eb.du,
                                         eb.wv * ea.x - ea.w * eb.dv};
  std::array<Vector, 3> square = {};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      for (const Vector& column : columns) square[i][j] += column[i] * column[j];
    }
  }
  const auto inverse = Inverse(square);
  if (!inverse) return std::nullopt;
  double norm_sq = 0;
  for (const Vector& row : *inverse) norm_sq += Dot(row, row);
  // Where the normals are parallel the inverse is nothing but rounding, however large.
  const double trace = square[0][0] + square[1][1] + square[2][2];
  if (!(std::sqrt(norm_sq) * trace <= kMostCondition)) return std::nullopt;
  // The norm of the pseudo-inverse, squared, is at most that of the inverse of the square.
  const double beta = std::sqrt(std::sqrt(norm_sq)) * (1 + 1e-3);
  const double rounding = kRounding * (bb.w * ba.x + ba.w * bb.x) + lost * ba.w * bb.w;
  const double eta = beta * (Norm(value) + rounding);
  // Half of the theorem's bound leaves room for rounding of the derivatives. Local units: the part is [0, 1], x its middle.
  if (!(beta * lipschitz * eta <= 0.25) || !(2 * eta <= 0.5)) return std::nullopt;
  return 4 * eta;
}

Vector NormalAt(const Net& net, double u, double v) {
  const Evaluated at = Evaluate(net, u, v);
  const Vector normal = Cross(at.along_u(), at.along_v());
  const double length = Norm(normal);
  return length > 0 ? (1 / length) * normal : Vector{};
}

class Polisher {
 public:
  Polisher(const NurbsObjects& objects, std::span<const NurbsQuery> queries) : objects_(objects), queries_(queries) {}

  // Nothing if the parts are apart.
  std::optional<NurbsContact> Polish(const NurbsHit& hit, uint32_t index) {
    const NurbsQuery& query = queries_[hit.query];
    const auto origin = Placed(query.pose_a, objects_.middle_m(query.object_a), {});
    LoadNet(hit.query, hit.a.patch, query.object_a, query.pose_a, origin, 0);
    LoadNet(hit.query, hit.b.patch, query.object_b, query.pose_b, origin, 1);
    const Net& a = nets_[0];
    const Net& b = nets_[1];
    Parameters x{}, width{};
    const std::array<uint32_t, 4> intervals = {hit.a.u_interval, hit.a.v_interval, hit.b.u_interval, hit.b.v_interval};
    Parameters low{};
    for (size_t k = 0; k < 4; ++k) {
      width[k] = std::ldexp(1.0, -static_cast<int>(intervals[k] >> 24));
      low[k] = width[k] * static_cast<double>(intervals[k] & 0xffffffU);
      x[k] = low[k] + 0.5 * width[k];
    }
    const double size = objects_.radius_m(query.object_a) + objects_.radius_m(query.object_b);
    const double distance = Minimize(a, b, width, x);
    const auto contact = [&](NurbsContactKind kind, double radius) {
      const auto place_a = objects_.patch_place(hit.a.patch);
      const auto place_b = objects_.patch_place(hit.b.patch);
      const auto in = [](const std::array<double, 2>& span, double t) { return (1 - t) * span[0] + t * span[1]; };
      return NurbsContact{.query = hit.query,
                          .hit = index,
                          .kind = kind,
                          .surface_a = hit.a.surface,
                          .surface_b = hit.b.surface,
                          .uv_a = {in(place_a.u, x[0]), in(place_a.v, x[1])},
                          .uv_b = {in(place_b.u, x[2]), in(place_b.v, x[3])},
                          .point_m = origin + Evaluate(a, x[0], x[1]).point(),
                          .normal_a = NormalAt(a, x[0], x[1]),
                          .normal_b = NormalAt(b, x[2], x[3]),
                          .distance_m = distance,
                          .radius = radius};
    };
    // Inside the parts, or at most their width beside them.
    const auto is_within = [&](double beside) {
      bool is_in = true;
      for (size_t k = 0; k < 4; ++k) is_in &= x[k] >= low[k] - beside * width[k] && x[k] <= low[k] + (1 + beside) * width[k];
      return is_in;
    };
    const bool is_common = distance <= kConverged * size && is_within(1);
    const double lost = NurbsQueries::LostInDouble(objects_, query);
    // With the zero that it stands for on both patches, or at most its radius beside them.
    const auto certified = [&](bool is_on_patches) -> std::optional<NurbsContact> {
      // Smaller neighbourhoods are flatter; rounding is larger in their units.
      Parameters about = width;
      for (int attempt = 0; attempt < 6; ++attempt) {
        if (const auto radius = CertifiedRadius(a, b, x, about, lost)) {
          bool is_on = true;
          for (size_t k = 0; k < 4; ++k) is_on &= x[k] - *radius * about[k] >= 0 && x[k] + *radius * about[k] <= 1;
          if (is_on || !is_on_patches) return contact(NurbsContactKind::kCrossing, *radius * about[0] / width[0]);
        }
        for (double& w : about) w *= 0.25;
      }
      return std::nullopt;
    };
    if (is_common && is_within(1e-9)) {
      if (auto crossing = certified(/*is_on_patches=*/true)) return crossing;
    }
    const auto part = [&](const Net& net, size_t k) {
      return PartAlong(PartAlong(net, true, low[k], low[k] + width[k]), false, low[k + 1], low[k + 1] + width[k + 1]);
    };
    double most = 0;
    for (const Net* net : {&a, &b}) {
      for (const Point4& p : net->points) most = std::max(most, Norm(p.x) / p.w);
    }
    int tests = 0;
    if (ProveApart(part(a, 0), part(b, 2), kRounding * most + lost, 0, tests)) return std::nullopt;
    if (is_common) {
      if (auto crossing = certified(/*is_on_patches=*/false)) return crossing;
    }
    return contact(is_common ? NurbsContactKind::kTangential : NurbsContactKind::kUnresolved, 0);
  }

 private:
  // The Bezier points of a patch in W about `origin`.
  void LoadNet(uint32_t query, uint32_t patch, uint32_t object, const NurbsPose& pose, const Vector& origin, size_t slot) {
    if (loaded_[slot] == std::pair(query, patch)) return;
    nets_[slot] = PlacedNet(objects_, object, patch, pose, origin);
    loaded_[slot] = {query, patch};
  }

  // Moves x to where the distance is least nearby, by steps of Gauss and Newton, damped where they do not help (Levenberg, Marquardt). In
  // units of `width`, inside the patches. The distance.
  static double Minimize(const Net& a, const Net& b, const Parameters& width, Parameters& x) {
    Evaluated ea = Evaluate(a, x[0], x[1]);
    Evaluated eb = Evaluate(b, x[2], x[3]);
    Vector apart = ea.point() - eb.point();
    double damping = 1e-12;
    for (int step = 0; step < kMaxSteps; ++step) {
      const std::array<Vector, 4> columns = {width[0] * ea.along_u(), width[1] * ea.along_v(), -width[2] * eb.along_u(),
                                             -width[3] * eb.along_v()};
      std::array<std::array<double, 4>, 4> normal{};
      Parameters right{};
      double trace = 0;
      for (size_t i = 0; i < 4; ++i) {
        right[i] = -Dot(columns[i], apart);
        for (size_t j = 0; j < 4; ++j) normal[i][j] = Dot(columns[i], columns[j]);
        trace += normal[i][i];
      }
      if (!(trace > 0)) break;
      // Three rows and four unknowns: without damping the matrix is singular, with little of it the step is the shortest one.
      for (size_t i = 0; i < 4; ++i) normal[i][i] += damping * trace;
      Parameters y{};
      if (!Solve4(normal, right, y)) {
        damping = std::max(10 * damping, 1e-12);
        continue;
      }
      Parameters next = x;
      for (size_t k = 0; k < 4; ++k) next[k] = std::clamp(x[k] + std::clamp(y[k], -4.0, 4.0) * width[k], 0.0, 1.0);
      const Evaluated na = Evaluate(a, next[0], next[1]);
      const Evaluated nb = Evaluate(b, next[2], next[3]);
      const Vector next_apart = na.point() - nb.point();
      if (Dot(next_apart, next_apart) < Dot(apart, apart)) {
        const bool is_still = Dot(next_apart, next_apart) > 0.999999 * Dot(apart, apart);
        x = next;
        ea = na;
        eb = nb;
        apart = next_apart;
        damping = std::max(0.1 * damping, 1e-13);
        if (is_still) break;
      } else {
        if (damping > 1) break;
        damping *= 10;
      }
    }
    return Norm(apart);
  }

  const NurbsObjects& objects_;
  std::span<const NurbsQuery> queries_;
  std::array<Net, 2> nets_;
  std::array<std::pair<uint32_t, uint32_t>, 2> loaded_ = {std::pair(0xffffffffU, 0U), std::pair(0xffffffffU, 0U)};
};

}  // namespace

absl::StatusOr<NurbsPolishResult> PolishNurbsHits(const NurbsObjects& objects, std::span<const NurbsQuery> queries,
                                                  std::span<const NurbsHit> hits) {
  NurbsPolishResult result;
  Polisher polisher(objects, queries);
  for (size_t i = 0; i < hits.size(); ++i) {
    const NurbsHit& hit = hits[i];
    if (hit.query >= queries.size()) {
      return absl::InvalidArgumentError(absl::StrCat("hits[", i, "].query: ", hit.query, ", there are ", queries.size()));
    }
    for (const auto& [part, object] : {std::pair(&hit.a, queries[hit.query].object_a), std::pair(&hit.b, queries[hit.query].object_b)}) {
      if (object >= objects.object_count() || !objects.Owns(object, part->patch)) {
        return absl::InvalidArgumentError(absl::StrCat("hits[", i, "]: patch ", part->patch, " is not of object ", object));
      }
    }
    if (hit.a.is_node || hit.b.is_node) {
      result.contacts.push_back({.query = hit.query,
                                 .hit = static_cast<uint32_t>(i),
                                 .kind = NurbsContactKind::kUnresolved,
                                 .surface_a = hit.a.surface,
                                 .surface_b = hit.b.surface,
                                 .uv_a = {hit.a.mid_u(), hit.a.mid_v()},
                                 .uv_b = {hit.b.mid_u(), hit.b.mid_v()},
                                 .point_m = hit.a.point_m,
                                 .normal_a = {},
                                 .normal_b = {},
                                 .distance_m = hit.distance_m,
                                 .radius = 0});
    } else if (auto contact = polisher.Polish(hit, static_cast<uint32_t>(i))) {
      result.contacts.push_back(*contact);
    } else {
      ++result.dropped;
    }
  }
  return result;
}

}  // namespace palpate::gpu
