#include "sim/nurbs/nurbs_nearest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <Eigen/Cholesky>
#include <Eigen/LU>

namespace palpate::sim {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector2d;
using Eigen::Vector3d;

constexpr int kMaxIterations = 60;
constexpr int kRimSamples = 24;  // between knots of a trim
constexpr double kGolden = 0.6180339887498949;

/// The half squared distance with its derivatives, at variables in a box.
template <int N>
struct Quadratic {
  double value;
  Eigen::Matrix<double, N, 1> gradient;
  Eigen::Matrix<double, N, N> hessian;  // of the distance
  Eigen::Matrix<double, N, N> gauss;    // J^T J, never indefinite
};

/// A local minimum in a box by Newton steps, Gauss-Newton steps where these are no descent, and halving. Variables at an end of the box
/// stay there while the gradient pushes outwards.
template <int N, typename Evaluate>
Eigen::Matrix<double, N, 1> Minimize(const Eigen::Matrix<double, N, 1>& low, const Eigen::Matrix<double, N, 1>& high,
                                     Eigen::Matrix<double, N, 1> x, const Evaluate& evaluate) {
  using Vector = Eigen::Matrix<double, N, 1>;
  using Matrix = Eigen::Matrix<double, N, N>;
  Quadratic<N> now = evaluate(x);
  for (int i = 0; i < kMaxIterations; ++i) {
    std::array<bool, N> is_held{};
    for (int k = 0; k < N; ++k) {
      is_held[static_cast<size_t>(k)] =
          !(low[k] < high[k]) || (x[k] <= low[k] && now.gradient[k] > 0) || (x[k] >= high[k] && now.gradient[k] < 0);
    }
    const auto without_held = [&](Matrix m, double add) {
      for (int k = 0; k < N; ++k) {
        m(k, k) += add * std::max(now.gauss(k, k), 1e-300);
        if (!is_held[static_cast<size_t>(k)]) continue;
        m.row(k).setZero();
        m.col(k).setZero();
        m(k, k) = 1;
      }
      return m;
    };
    Vector gradient = now.gradient;
    for (int k = 0; k < N; ++k) {
      if (is_held[static_cast<size_t>(k)]) gradient[k] = 0;
    }
    if (gradient.isZero(0)) break;
    const Eigen::LLT<Matrix> newton(without_held(now.hessian, 0));
    Vector step = newton.info() == Eigen::Success ? Vector(newton.solve(-gradient)) : Vector(Vector::Constant(NAN));
    if (!step.allFinite()) step = without_held(now.gauss, 1e-3).ldlt().solve(-gradient);
    if (!step.allFinite() || !(step.dot(gradient) < 0)) step = -gradient / std::max(now.gauss.trace(), 1e-300);
    double share = 1;
    bool has_moved = false;
    for (int halvings = 0; halvings < 40; ++halvings, share /= 2) {
      const Vector to = (x + share * step).cwiseMax(low).cwiseMin(high);
      if (to == x) break;
      const Quadratic<N> there = evaluate(to);
      if (!(there.value < now.value)) continue;
      x = to;
      now = there;
      has_moved = true;
      break;
    }
    if (!has_moved) break;
  }
  return x;
}

Vector2d LowOf(const NurbsSurface& surface) { return {surface.domain(NurbsDirection::kU).first, surface.domain(NurbsDirection::kV).first}; }
Vector2d HighOf(const NurbsSurface& surface) {
  return {surface.domain(NurbsDirection::kU).second, surface.domain(NurbsDirection::kV).second};
}

/// Of |S(u, v) - p|^2 / 2.
Quadratic<2> ToPoint(const NurbsSurface& surface, const Vector2d& uv, const Vector3d& point_m) {
  const NurbsPoint s = surface.PointWithDerivatives(uv.x(), uv.y());
  const Vector3d r = s.point_m - point_m;
  Quadratic<2> q;
  q.value = r.squaredNorm() / 2;
  q.gradient = {r.dot(s.du), r.dot(s.dv)};
  q.gauss << s.du.squaredNorm(), s.du.dot(s.dv), s.du.dot(s.dv), s.dv.squaredNorm();
  q.hessian << r.dot(s.duu), r.dot(s.duv), r.dot(s.duv), r.dot(s.dvv);
  q.hessian += q.gauss;
  return q;
}

/// Of |a + t along - S(u, v)|^2 / 2, at (u, v, t).
Quadratic<3> ToSegment(const NurbsSurface& surface, const Vector3d& x, const Vector3d& start_m, const Vector3d& along_m) {
  const NurbsPoint s = surface.PointWithDerivatives(x[0], x[1]);
  const Vector3d r = start_m + x[2] * along_m - s.point_m;
  Matrix3d jacobian;
  jacobian << -s.du, -s.dv, along_m;
  Quadratic<3> q;
  q.value = r.squaredNorm() / 2;
  q.gradient = jacobian.transpose() * r;
  q.gauss = jacobian.transpose() * jacobian;
  q.hessian = q.gauss;
  q.hessian(0, 0) -= r.dot(s.duu);
  q.hessian(0, 1) -= r.dot(s.duv);
  q.hessian(1, 0) -= r.dot(s.duv);
  q.hessian(1, 1) -= r.dot(s.dvv);
  return q;
}

double ShareOn(const Vector3d& point_m, const Vector3d& start_m, const Vector3d& along_m) {
  const double square = along_m.squaredNorm();
  return square > 0 ? std::clamp((point_m - start_m).dot(along_m) / square, 0.0, 1.0) : 0;
}

}  // namespace

NurbsNearest::NurbsNearest(const NurbsObject& object) {
  for (const NurbsPatch& of : object.patches()) {
    const auto index = static_cast<uint32_t>(patches_.size());
    Patch& patch = patches_.emplace_back(Patch{of, {}, {}});
    for (const NurbsSurface& bezier : of.surface.BezierPatches()) {
      Piece& piece = pieces_.emplace_back(Piece{index, {}, {}});
      for (const Eigen::Vector4d& p : bezier.control()) piece.box_m.extend(Vector3d(p.hnormalized()));
      const Vector2d low = LowOf(bezier);
      const Vector2d size = HighOf(bezier) - low;
      for (size_t i = 0; i < kSamples * kSamples; ++i) {
        const Vector2d share(static_cast<double>(i / kSamples), static_cast<double>(i % kSamples));
        const Vector2d uv = low + share.cwiseProduct(size) / (kSamples - 1);
        piece.samples.push_back({uv, of.surface.Point(uv.x(), uv.y())});
      }
    }
    if (of.loops.empty()) continue;
    patch.region.emplace_back(of);
    for (uint32_t l = 0; l < of.loops.size(); ++l) {
      for (uint32_t c = 0; c < of.loops[l].size(); ++c) {
        const NurbsCurve<2>& curve = of.loops[l][c].curve;
        for (const NurbsCurve<2>& piece : curve.BezierPieces()) {
          const auto [first, last] = piece.domain();
          for (int i = 0; i <= kRimSamples; ++i) {
            const double t = first + (last - first) * i / kRimSamples;
            const Vector2d uv = curve.At(t);
            patch.rim.push_back({l, c, t, (last - first) / kRimSamples, of.surface.Point(uv.x(), uv.y())});
          }
        }
      }
    }
  }
}

bool NurbsNearest::IsInside(const NurbsPlace& place) const {
  const Patch& patch = patches_[place.patch];
  const Vector2d low = LowOf(patch.patch.surface);
  const Vector2d high = HighOf(patch.patch.surface);
  const bool is_in_domain = (place.uv.array() > low.array()).all() && (place.uv.array() < high.array()).all();
  return is_in_domain && (patch.region.empty() || patch.region[0].Contains(place.uv));
}

/// The nearest point of the loops of a trimmed patch: golden sections between the neighbours of the nearest sample.
NurbsNearest::Found NurbsNearest::OnRim(uint32_t index, const Vector3d& point_m) const {
  const Patch& patch = patches_[index];
  const RimSample* best = &patch.rim[0];
  for (const RimSample& sample : patch.rim) {
    if ((sample.point_m - point_m).squaredNorm() < (best->point_m - point_m).squaredNorm()) best = &sample;
  }
  const NurbsCurve<2>& curve = patch.patch.loops[best->loop][best->curve].curve;
  const auto at = [&](double t) {
    const Vector2d uv = curve.At(t);
    return NurbsPlace{index, uv, patch.patch.surface.Point(uv.x(), uv.y())};
  };
  const auto square = [&](double t) { return (at(t).point_m - point_m).squaredNorm(); };
  double low = std::max(curve.domain().first, best->t - best->step);
  double high = std::min(curve.domain().second, best->t + best->step);
  double inner = high - kGolden * (high - low);
  double outer = low + kGolden * (high - low);
  double of_inner = square(inner);
  double of_outer = square(outer);
  for (int i = 0; i < kMaxIterations; ++i) {
    if (of_inner < of_outer) {
      high = outer;
      outer = std::exchange(inner, outer - kGolden * (outer - low));
      of_outer = std::exchange(of_inner, square(inner));
    } else {
      low = inner;
      inner = std::exchange(outer, inner + kGolden * (high - inner));
      of_inner = std::exchange(of_outer, square(outer));
    }
  }
  const NurbsPlace found = at((low + high) / 2);
  const NurbsPlace sampled = at(best->t);
  const double found_m = (found.point_m - point_m).norm();
  const double sampled_m = (sampled.point_m - point_m).norm();
  return found_m <= sampled_m ? Found{found, found_m, true} : Found{sampled, sampled_m, true};
}

NurbsNearest::Found NurbsNearest::Descend(uint32_t index, const Vector2d& start, const Vector3d& point_m) const {
  const Patch& patch = patches_[index];
  const NurbsSurface& surface = patch.patch.surface;
  const Vector2d low = LowOf(surface);
  const Vector2d high = HighOf(surface);
  const Vector2d uv =
      Minimize<2>(low, high, start.cwiseMax(low).cwiseMin(high), [&](const Vector2d& x) { return ToPoint(surface, x, point_m); });
  const NurbsPlace place{index, uv, surface.Point(uv.x(), uv.y())};
  if (!patch.region.empty() && !patch.region[0].Contains(uv)) return OnRim(index, point_m);
  return {place, (place.point_m - point_m).norm(), !IsInside(place)};
}

/// Looks at all Bezier patches that may come nearer, the nearest boxes first.
void NurbsNearest::TryPieces(const Vector3d& point_m, Found* best) const {
  std::vector<std::pair<double, uint32_t>> near;
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    const double at_least_m = std::sqrt(pieces_[i].box_m.squaredExteriorDistance(point_m));
    if (at_least_m < best->distance_m) near.emplace_back(at_least_m, i);
  }
  std::sort(near.begin(), near.end());
  for (const auto& [at_least_m, i] : near) {
    if (!(at_least_m < best->distance_m)) break;
    const Piece& piece = pieces_[i];
    const auto nearest = std::min_element(piece.samples.begin(), piece.samples.end(), [&](const Sample& a, const Sample& b) {
      return (a.point_m - point_m).squaredNorm() < (b.point_m - point_m).squaredNorm();
    });
    const Found found = Descend(piece.patch, nearest->uv, point_m);
    if (found.distance_m < best->distance_m) *best = found;
  }
}

NurbsPlace NurbsNearest::Nearest(const Vector3d& point_m) const {
  Found best{{}, std::numeric_limits<double>::infinity(), true};
  TryPieces(point_m, &best);
  return best.place;
}

NurbsPlace NurbsNearest::NearestFrom(const NurbsPlace& start, const Vector3d& point_m) const {
  Found best = Descend(start.patch, start.uv, point_m);
  if (best.is_on_rim) TryPieces(point_m, &best);
  return best.distance_m <= (start.point_m - point_m).norm() ? best.place : start;
}

NurbsApproach NurbsNearest::Approach(const NurbsPlace& start, const Vector3d& end0_m, const Vector3d& end1_m) const {
  const Vector3d along_m = end1_m - end0_m;
  const double last = along_m.isZero(0) ? 0 : 1;
  NurbsApproach out;
  // Points in turn lead to the right patch, both together to the exact place on it. Over the rim of a patch another one goes on.
  constexpr int kTurns = 8;
  double share = ShareOn(start.point_m, end0_m, along_m);
  out.place = NearestFrom(start, end0_m + share * along_m);
  for (int i = 0; i < kTurns; ++i) {
    const uint32_t patch = out.place.patch;
    const NurbsSurface& surface = patches_[patch].patch.surface;
    const Vector2d low = LowOf(surface);
    const Vector2d high = HighOf(surface);
    share = ShareOn(out.place.point_m, end0_m, along_m);
    const Vector3d x =
        Minimize<3>(Vector3d(low.x(), low.y(), 0), Vector3d(high.x(), high.y(), last), Vector3d(out.place.uv.x(), out.place.uv.y(), share),
                    [&](const Vector3d& at) { return ToSegment(surface, at, end0_m, along_m); });
    const NurbsPlace place{patch, x.head<2>(), surface.Point(x[0], x[1])};
    const bool is_left = patches_[patch].region.empty() || patches_[patch].region[0].Contains(place.uv);
    if (is_left) {
      out.place = place;
      share = x[2];
      if (IsInside(place)) break;
    }
    const Vector3d before_m = out.place.point_m;
    out.place = NearestFrom(out.place, end0_m + share * along_m);
    if (out.place.patch == patch && (out.place.point_m - before_m).norm() <= 1e-12) break;
  }
  share = ShareOn(out.place.point_m, end0_m, along_m);
  out.on_segment_m = end0_m + share * along_m;
  const Vector3d way_m = out.on_segment_m - out.place.point_m;
  out.distance_m = way_m.norm();
  const NurbsSurface& surface = patches_[out.place.patch].patch.surface;
  Vector2d uv = out.place.uv;
  if (!(out.distance_m > 1e-12)) {
    out.normal = surface.Normal(uv.x(), uv.y()).value_or(Vector3d::UnitZ());
    return out;
  }
  out.normal = way_m / out.distance_m;
  // Second derivatives: with the shape operator W of the surface those of the distance of a point are W (1 + d W)^-1, and where the point
  // may slide along the segment, what is left of them across it. At a pole the parameters say nothing: then a little inside.
  NurbsPoint s = surface.PointWithDerivatives(uv.x(), uv.y());
  if (s.du.cross(s.dv).norm() < 1e-7 * (s.du.squaredNorm() + s.dv.squaredNorm())) {
    uv += 1e-4 * ((LowOf(surface) + HighOf(surface)) / 2 - uv);
    s = surface.PointWithDerivatives(uv.x(), uv.y());
  }
  const Vector3d cross = s.du.cross(s.dv);
  if (!(cross.norm() > 0)) return out;
  const Vector3d normal = std::copysign(1.0, cross.dot(out.normal)) * cross.normalized();
  if (!(normal.dot(out.normal) > 1 - 1e-4)) return out;  // an edge of the surface
  Eigen::Matrix<double, 3, 2> tangents;
  tangents << s.du, s.dv;
  const Eigen::Matrix2d metric = tangents.transpose() * tangents;
  Eigen::Matrix2d bend;
  bend << s.duu.dot(normal), s.duv.dot(normal), s.duv.dot(normal), s.dvv.dot(normal);
  const Eigen::Matrix<double, 3, 2> dual = tangents * metric.inverse();
  const Matrix3d shape = -dual * bend * dual.transpose();
  Matrix3d curvature = shape * (Matrix3d::Identity() + out.distance_m * shape).inverse();
  if (share > 0 && share < last) {
    const Vector3d pull = curvature * along_m;
    const double along = along_m.dot(pull);
    if (along > 1e-12 * curvature.norm() * along_m.squaredNorm()) curvature -= pull * pull.transpose() / along;
  }
  const Matrix3d across = Matrix3d::Identity() - out.normal * out.normal.transpose();
  curvature = across * curvature * across;
  if (curvature.allFinite()) out.curvature_per_m = (curvature + curvature.transpose()) / 2;
  return out;
}

}  // namespace palpate::sim
