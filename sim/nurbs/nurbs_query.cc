#include "sim/nurbs/nurbs_query.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

#include <Eigen/Eigenvalues>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector2d;
using Eigen::Vector3d;

// Rounding of places and heights, as a share of the coordinates that they are made of.
constexpr double kRounding = 1e-14;
constexpr int kMaxLevel = 200;

// A part of a patch with its box; parts of parts are shared between the pairs that they are in.
struct Part {
  NurbsSurface surface;
  TurnedBox box;
  double diagonal_m;
  std::unique_ptr<Part> children[2];

  explicit Part(NurbsSurface of) : surface(std::move(of)), box(TurnedBox::Around(surface)), diagonal_m(box.diagonal_m()) {}

  Vector2d First() const { return {surface.domain(NurbsDirection::kU).first, surface.domain(NurbsDirection::kV).first}; }
  Vector2d Last() const { return {surface.domain(NurbsDirection::kU).second, surface.domain(NurbsDirection::kV).second}; }
};

// Of the part's parameter intervals.
Vector2d WidthOf(const Part& part) { return part.Last() - part.First(); }

class Search {
 public:
  explicit Search(const NurbsQueryOptions& options) : options_(options) {}

  void Run(uint32_t patch_a, Part* a, uint32_t patch_b, Part* b) {
    patch_a_ = patch_a;
    patch_b_ = patch_b;
    whole_a_ = WidthOf(*a);
    whole_b_ = WidthOf(*b);
    Meet(a, b, 0);
  }
  bool is_done() const { return (options_.first_only && !result_.hits.empty()) || result_.hits.size() > options_.max_hits; }
  NurbsQueryResult TakeResult() { return std::move(result_); }

 private:
  void Meet(Part* a, Part* b, int level) {
    ++result_.box_tests;
    if (is_done() || !DoOverlap(a->box, b->box)) return;
    const bool cuts_a = a->diagonal_m >= b->diagonal_m;
    const double size_m = std::max(a->diagonal_m, b->diagonal_m);
    if (size_m <= options_.tolerance_m || level == options_.max_level || !Cut(cuts_a ? a : b, cuts_a ? whole_a_ : whole_b_)) {
      result_.hits.push_back({.patch_a = patch_a_,
                              .patch_b = patch_b_,
                              .middle_a = 0.5 * (a->First() + a->Last()),
                              .middle_b = 0.5 * (b->First() + b->Last()),
                              .half_a = 0.5 * WidthOf(*a),
                              .half_b = 0.5 * WidthOf(*b),
                              .point_m = 0.5 * (a->box.center_m + b->box.center_m),
                              .size_m = size_m});
      return;
    }
    for (int k = 0; k < 2; ++k) Meet(cuts_a ? a->children[k].get() : a, cuts_a ? b : b->children[k].get(), level + 1);
  }

  // False where the parameters are so near that nothing lies between them.
  bool Cut(Part* part, const Vector2d& whole) {
    if (part->children[0] != nullptr) return true;
    const Vector2d shares = WidthOf(*part).cwiseQuotient(whole);
    NurbsDirection direction = shares.x() >= shares.y() ? NurbsDirection::kU : NurbsDirection::kV;
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto [first, last] = part->surface.domain(direction);
      auto halves = part->surface.Split(direction, 0.5 * first + 0.5 * last);
      if (halves.ok()) {
        ++result_.cuts;
        for (size_t k = 0; k < 2; ++k) part->children[k] = std::make_unique<Part>(std::move((*halves)[k]));
        return true;
      }
      direction = direction == NurbsDirection::kU ? NurbsDirection::kV : NurbsDirection::kU;
    }
    return false;
  }

  NurbsQueryOptions options_;
  NurbsQueryResult result_;
  uint32_t patch_a_ = 0, patch_b_ = 0;
  Vector2d whole_a_, whole_b_;
};

std::vector<Part> PartsOf(std::span<const NurbsSurface> patches) {
  std::vector<Part> parts;
  parts.reserve(patches.size());
  for (const NurbsSurface& patch : patches) parts.emplace_back(patch);
  return parts;
}

}  // namespace

TurnedBox TurnedBox::Around(const NurbsSurface& surface) {
  std::vector<Vector3d> points;
  points.reserve(surface.control().size());
  Vector3d mean = Vector3d::Zero();
  double farthest = 0;
  for (const Eigen::Vector4d& p : surface.control()) {
    points.emplace_back(p.hnormalized());
    mean += points.back() / static_cast<double>(surface.control().size());
    farthest = std::max(farthest, points.back().cwiseAbs().maxCoeff());
  }
  Matrix3d covariance = Matrix3d::Zero();
  for (const Vector3d& p : points) covariance += (p - mean) * (p - mean).transpose();
  TurnedBox box;
  // Householder's vectors are orthonormal also where eigenvalues are equal, or all 0.
  const Eigen::SelfAdjointEigenSolver<Matrix3d> solver(covariance);
  box.axes = solver.info() == Eigen::Success ? solver.eigenvectors() : Matrix3d(Matrix3d::Identity());
  Vector3d lower = Vector3d::Constant(std::numeric_limits<double>::infinity());
  Vector3d upper = -lower;
  for (const Vector3d& p : points) {
    const Vector3d at = box.axes.transpose() * (p - mean);
    lower = lower.cwiseMin(at);
    upper = upper.cwiseMax(at);
  }
  box.center_m = mean + box.axes * (0.5 * (lower + upper));
  box.half_m = (0.5 * (upper - lower)).array() + kRounding * farthest;
  return box;
}

bool DoOverlap(const TurnedBox& a, const TurnedBox& b) {
  const Matrix3d r = a.axes.transpose() * b.axes;
  const Matrix3d q = r.cwiseAbs();
  const Vector3d t = a.axes.transpose() * (b.center_m - a.center_m);
  // Heights are of differences of places; a cross product of nearly parallel axes is mostly rounding, and with it all of what is compared.
  const double slack = kRounding * (a.center_m.cwiseAbs().sum() + b.center_m.cwiseAbs().sum() + a.half_m.sum() + b.half_m.sum());
  for (int i = 0; i < 3; ++i) {
    if (std::abs(t[i]) > a.half_m[i] + q.row(i).dot(b.half_m) + slack) return false;
    if (std::abs(r.col(i).dot(t)) > b.half_m[i] + q.col(i).dot(a.half_m) + slack) return false;
  }
  for (int i = 0; i < 3; ++i) {
    const int i1 = (i + 1) % 3;
    const int i2 = (i + 2) % 3;
    for (int j = 0; j < 3; ++j) {
      const int j1 = (j + 1) % 3;
      const int j2 = (j + 2) % 3;
      const double apart = std::abs(t[i2] * r(i1, j) - t[i1] * r(i2, j));
      const double reach = a.half_m[i1] * q(i2, j) + a.half_m[i2] * q(i1, j) + b.half_m[j1] * q(i, j2) + b.half_m[j2] * q(i, j1);
      if (apart > reach + slack) return false;
    }
  }
  return true;
}

absl::StatusOr<NurbsQueryResult> FindNurbsContacts(std::span<const NurbsSurface> a, std::span<const NurbsSurface> b,
                                                   const NurbsQueryOptions& options) {
  if (!(options.tolerance_m > 0) || !std::isfinite(options.tolerance_m)) {
    return absl::InvalidArgumentError(absl::StrCat("tolerance_m: ", options.tolerance_m, ", it must be positive and finite"));
  }
  if (options.max_level < 0 || options.max_level > kMaxLevel) {
    return absl::InvalidArgumentError(absl::StrCat("max_level: ", options.max_level, ", it must be in [0, ", kMaxLevel, "]"));
  }
  std::vector<Part> parts_a = PartsOf(a);
  std::vector<Part> parts_b = PartsOf(b);
  Search search(options);
  for (size_t i = 0; i < parts_a.size(); ++i) {
    for (size_t j = 0; j < parts_b.size() && !search.is_done(); ++j) {
      search.Run(static_cast<uint32_t>(i), &parts_a[i], static_cast<uint32_t>(j), &parts_b[j]);
    }
    // What was cut of b is needed again, what was cut of a is not.
    parts_a[i].children[0].reset();
    parts_a[i].children[1].reset();
  }
  NurbsQueryResult result = search.TakeResult();
  if (result.hits.size() > options.max_hits) {
    return absl::ResourceExhaustedError(absl::StrCat("more than max_hits = ", options.max_hits, " hits"));
  }
  const auto order = [](const NurbsHit& x) {
    return std::tuple(x.patch_a, x.patch_b, x.middle_a.x(), x.middle_a.y(), x.middle_b.x(), x.middle_b.y());
  };
  std::sort(result.hits.begin(), result.hits.end(), [&](const NurbsHit& x, const NurbsHit& y) { return order(x) < order(y); });
  return result;
}

}  // namespace palpate::sim
