#include "sim/nurbs/nurbs_shell_couplings.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <Eigen/Dense>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/nurbs/gauss_quadrature.h"
#include "sim/nurbs/nurbs_basis.h"

namespace palpate::sim {
namespace {

using Eigen::Matrix2d;
using Eigen::Matrix3d;
using Eigen::Vector2d;
using Eigen::Vector3d;

constexpr double kLeastArea = 1e-9;               // of the product of the tangents' lengths
constexpr double kIntoPatch = 4 * kNurbsLoopGap;  // of the domain's width: on that side of a rim something is left
constexpr double kSameBreak = 1e-9;               // of an edge
constexpr double kSameFunction = 1e-5;            // parts of a gap below are those of sides that are joined already
constexpr double kSmoothAngle = 1e-4;             // 1 - cosine
constexpr double kSpannedByTangents = 0.2;        // of three unit vectors
constexpr double kFrameMass = 1e-9;               // of the mean of control points

/// Corners of a tetrahedron about the origin. They sum to 0, and their squares to 4 along each axis.
const std::array<Vector3d, 4> kCorners = {Vector3d(1, 1, 1), Vector3d(1, -1, -1), Vector3d(-1, 1, -1), Vector3d(-1, -1, 1)};

/// A rational basis function at a point of a patch.
struct Function {
  size_t point = 0;  // of the patch's net
  double value = 0, by_u = 0, by_v = 0;
};

/// Those of a pair of spans, which (u, v) need not lie in.
std::vector<Function> FunctionsAt(const NurbsSurface& surface, const std::array<size_t, 2>& spans, const Vector2d& uv) {
  const int p = surface.degree(NurbsDirection::kU), q = surface.degree(NurbsDirection::kV);
  const auto u = nurbs_basis::BasisWithDerivatives(surface.knots(NurbsDirection::kU), p, spans[0], uv.x());
  const auto v = nurbs_basis::BasisWithDerivatives(surface.knots(NurbsDirection::kV), q, spans[1], uv.y());
  const size_t columns = surface.count(NurbsDirection::kV);
  std::vector<Function> out;
  Function sum;
  for (size_t i = 0; i <= static_cast<size_t>(p); ++i) {
    for (size_t j = 0; j <= static_cast<size_t>(q); ++j) {
      const size_t point = (spans[0] - static_cast<size_t>(p) + i) * columns + spans[1] - static_cast<size_t>(q) + j;
      const double w = surface.control()[point].w();
      const Function& f = out.emplace_back(Function{point, w * u[0][i] * v[0][j], w * u[1][i] * v[0][j], w * u[0][i] * v[1][j]});
      sum.value += f.value;
      sum.by_u += f.by_u;
      sum.by_v += f.by_v;
    }
  }
  for (Function& f : out) {
    f.value /= sum.value;
    f.by_u = (f.by_u - f.value * sum.by_u) / sum.value;
    f.by_v = (f.by_v - f.value * sum.by_v) / sum.value;
  }
  return out;
}

double ParameterOf(const NurbsTrim& trim, const NurbsTrimPlace& at, double share) {
  const auto [first, last] = trim.curve.domain();
  return at.is_opposed ? last + share * (first - last) : first + share * (last - first);
}

}  // namespace

NurbsShellCoupler::NurbsShellCoupler(const NurbsObject& object, const NurbsShellMaterial& material, gpu::NurbsShellModel* model)
    : object_(object), model_(model) {
  const double in_plane = material.young_modulus_pa / (1 - material.poisson_ratio * material.poisson_ratio);
  extension_n_per_m_ = in_plane * material.thickness_m;
  plate_n_m_ = in_plane * std::pow(material.thickness_m, 3) / 12;
  for (const NurbsPatch& patch : object.patches()) boundaries_.push_back(patch.Boundary());
}

absl::StatusOr<NurbsShellCoupler::Side> NurbsShellCoupler::SideAt(const NurbsTrimPlace& at, double share) const {
  const NurbsTrim& trim = TrimAt(at);
  const NurbsSurface& surface = object_.patches()[at.patch].surface;
  const auto on_curve = trim.curve.AtWithDerivatives(ParameterOf(trim, at, share));
  const auto [first, last] = trim.curve.domain();
  const Vector2d tangent = (at.is_opposed ? first - last : last - first) * on_curve.dt;
  // What is left lies to the left of the loop.
  const Vector2d onwards = trim.is_reversed == at.is_opposed ? tangent : Vector2d(-tangent);
  const Vector2d inwards = Vector2d(-onwards.y(), onwards.x()).normalized();
  std::array<size_t, 2> spans{};
  Side side;
  side.size = 1;
  for (const size_t d : {0U, 1U}) {
    const NurbsDirection direction = d == 0 ? NurbsDirection::kU : NurbsDirection::kV;
    const auto axis = static_cast<Eigen::Index>(d);
    const auto knots = surface.knots(direction);
    const auto [low, high] = surface.domain(direction);
    const double inside = std::clamp(on_curve.point[axis] + kIntoPatch * (high - low) * inwards[axis], low, high);
    spans[d] = nurbs_basis::SpanOf(knots, surface.degree(direction), inside);
    side.size *= knots[spans[d] + 1] - knots[spans[d]];
  }
  const std::vector<Function> functions = FunctionsAt(surface, spans, on_curve.point);
  const auto position_m = [&](size_t point) { return Vector3d(surface.control()[point].hnormalized()); };
  Vector3d a1 = Vector3d::Zero(), a2 = Vector3d::Zero();
  side.place.setZero();
  for (const Function& f : functions) {
    side.place += f.value * position_m(f.point);
    a1 += f.by_u * position_m(f.point);
    a2 += f.by_v * position_m(f.point);
  }
  const double area = a1.cross(a2).norm();
  side.along = tangent.x() * a1 + tangent.y() * a2;
  side.speed = side.along.norm();
  if (!(area > kLeastArea * a1.norm() * a2.norm()) || !(side.speed > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(NurbsPatchPath(at.patch, object_.patches()[at.patch].name),
                                                   ": the surface has no area at u = ", on_curve.point.x(), ", v = ", on_curve.point.y(),
                                                   " of an edge"));
  }
  side.size = std::sqrt(area * side.size);
  side.along /= side.speed;
  side.normal = a1.cross(a2) / area;
  const Vector3d across = side.normal.cross(side.along);
  Matrix2d axes;  // lengths along the axes by the parameters
  axes << side.along.dot(a1), side.along.dot(a2), across.dot(a1), across.dot(a2);
  const Matrix2d by_lengths = axes.inverse().transpose();
  for (const Function& f : functions) {
    const Vector2d by = by_lengths * Vector2d(f.by_u, f.by_v);
    const size_t net = model_->net_begin[at.patch] + f.point;
    for (uint32_t k = model_->net_part_begin[net]; k < model_->net_part_begin[net + 1]; ++k) {
      const gpu::NurbsShellPart& part = model_->net_parts[k];
      side.parts.try_emplace(part.control, Vector3d::Zero()).first->second += part.weight * Vector3d(f.value, by[0], by[1]);
    }
  }
  return side;
}

/// Shares of an edge between which its surfaces and curves are smooth.
std::vector<double> NurbsShellCoupler::BreaksOf(const NurbsEdge& edge) const {
  std::vector<double> breaks;
  for (const NurbsTrimPlace& at : edge.places) {
    const NurbsTrim& trim = TrimAt(at);
    const auto [first, last] = trim.curve.domain();
    std::vector<double> places = CrossingsOfKnots(trim.curve, object_.patches()[at.patch].surface);
    places.insert(places.end(), trim.curve.knots().begin(), trim.curve.knots().end());
    for (const double t : places) {
      const double share = (t - first) / (last - first);
      breaks.push_back(at.is_opposed ? 1 - share : share);
    }
  }
  std::sort(breaks.begin(), breaks.end());
  std::vector<double> out = {0};
  for (const double share : breaks) {
    if (share > out.back() + kSameBreak && share < 1 - kSameBreak) out.push_back(share);
  }
  out.push_back(1);
  return out;
}

absl::Status NurbsShellCoupler::ForEachPoint(const NurbsEdge& edge,
                                             const std::function<absl::Status(double share, double weight)>& visit) const {
  int degree = 0;
  for (const NurbsTrimPlace& at : edge.places) {
    const NurbsSurface& surface = object_.patches()[at.patch].surface;
    degree = std::max({degree, surface.degree(NurbsDirection::kU), surface.degree(NurbsDirection::kV)});
  }
  const GaussRule rule = MakeGaussRule(static_cast<size_t>(degree) + 1);
  const std::vector<double> breaks = BreaksOf(edge);
  for (size_t i = 0; i + 1 < breaks.size(); ++i) {
    for (size_t k = 0; k < rule.places.size(); ++k) {
      const double width = breaks[i + 1] - breaks[i];
      PALPATE_RETURN_IF_ERROR(visit(breaks[i] + rule.places[k] * width, rule.weights[k] * width));
    }
  }
  return absl::OkStatus();
}

absl::Status NurbsShellCoupler::CoupleEdges(double join_tolerance_m, bool creases_turn) {
  for (const NurbsEdge& edge : object_.Edges(join_tolerance_m)) {
    if (edge.is_point || edge.places.size() < 2) continue;
    PALPATE_RETURN_IF_ERROR(ForEachPoint(edge, [&](double share, double weight) { return Couple(edge, share, weight, creases_turn); }));
  }
  return absl::OkStatus();
}

absl::Status NurbsShellCoupler::Couple(const NurbsEdge& edge, double share, double weight, bool creases_turn) {
  PALPATE_ASSIGN_OR_RETURN(const Side a, SideAt(edge.places[0], share));
  PALPATE_ASSIGN_OR_RETURN(const Side b, SideAt(edge.places[1], share));
  const double size = (a.size + b.size) / 2;
  const bool turns = creases_turn && 1 - a.normal.dot(b.normal) > kSmoothAngle;
  const NurbsTrimPlace& at = edge.places[0];
  if (!Add(a, b, weight, at.patch, size, turns)) return absl::OkStatus();
  const double gap_m = (a.place - b.place).norm();
  if (gap_m <= kMaxNurbsCouplingGap * size) return absl::OkStatus();
  const uint32_t other = edge.places[1].patch;
  return absl::InvalidArgumentError(absl::StrCat(
      NurbsPatchPath(at.patch, object_.patches()[at.patch].name), ", loops[", at.loop, "].curves[", at.curve, "]: is ", gap_m, " m from ",
      NurbsPatchPath(other, object_.patches()[other].name), ", which shares that edge; a shell couples what is no ", "farther than ",
      kMaxNurbsCouplingGap * size, " m, a hundredth of a span"));
}

/// False, and nothing is added, where the two sides are the same for all positions of the control points.
bool NurbsShellCoupler::Add(const Side& a, const Side& b, double weight, uint32_t patch, double size, bool turns) {
  const auto number = static_cast<uint32_t>(model_->gauss.size());
  std::map<uint32_t, gpu::NurbsShellEntry> entries;
  const auto at = [&](uint32_t control) -> gpu::NurbsShellEntry& {
    return entries.try_emplace(control, gpu::NurbsShellEntry{.control = control, .gauss = number}).first->second;
  };
  for (const auto& [control, part] : a.parts) {
    gpu::NurbsShellEntry& entry = at(control);
    entry.by_12_per_m2 = part[0];
    entry.by_1_per_m = part[1];
    entry.by_2_per_m = part[2];
  }
  for (const auto& [control, part] : b.parts) {
    gpu::NurbsShellEntry& entry = at(control);
    entry.by_12_per_m2 -= part[0];
    entry.by_11_per_m2 = part[1];
    entry.by_22_per_m2 = part[2];
  }
  if (std::ranges::all_of(entries, [](const auto& e) { return std::abs(e.second.by_12_per_m2) < kSameFunction; })) return false;
  // Sides need not meet to the last digit: what is between them at rest goes along with their tangents, as far as these span it.
  Matrix3d tangents;
  tangents << a.along, a.normal.cross(a.along), b.normal.cross(b.along);
  Eigen::CompleteOrthogonalDecomposition<Matrix3d> solver;
  solver.setThreshold(kSpannedByTangents);
  const Vector3d offset = solver.compute(tangents).solve(a.place - b.place);
  gpu::NurbsShellGauss gauss{.area_m2 = weight * a.speed, .is_surface = false, .patch = patch};
  gauss.coupling = {.gap_n_per_m2 = kNurbsCouplingStiffness * extension_n_per_m_ / size,
                    .turn_n = turns ? 0 : kNurbsCouplingStiffness * plate_n_m_ / size,
                    .rest_cosine = a.normal.dot(b.normal),
                    .rest_sine = a.normal.cross(a.along).dot(b.normal)};
  gauss.begin = static_cast<uint32_t>(model_->entries.size());
  for (auto& [control, entry] : entries) {
    entry.by_12_per_m2 -= offset.dot(Vector3d(entry.by_1_per_m, entry.by_2_per_m, entry.by_22_per_m2));
    model_->entries.push_back(entry);
  }
  gauss.end = static_cast<uint32_t>(model_->entries.size());
  model_->gauss.push_back(gauss);
  return true;
}

absl::StatusOr<std::vector<uint32_t>> NurbsShellCoupler::HoldRims(double join_tolerance_m, bool is_clamped,
                                                                  const std::function<bool(const Vector3d& point_m)>& is_held) {
  struct Held {
    Side side;
    double weight = 0;
    uint32_t patch = 0;
  };
  std::vector<Held> held;
  for (const NurbsEdge& edge : object_.Edges(join_tolerance_m)) {
    if (edge.is_point || edge.places.size() != 1) continue;
    PALPATE_RETURN_IF_ERROR(ForEachPoint(edge, [&](double share, double weight) -> absl::Status {
      PALPATE_ASSIGN_OR_RETURN(const Side side, SideAt(edge.places[0], share));
      if (is_held(side.place)) held.push_back({side, weight, edge.places[0].patch});
      return absl::OkStatus();
    }));
  }
  if (held.empty()) return absl::InvalidArgumentError("no rim of the surface lies there");
  Vector3d center_m = Vector3d::Zero();
  for (const Held& h : held) center_m += h.side.place / static_cast<double>(held.size());
  double reach_m = held.front().side.size;
  for (const Held& h : held) reach_m = std::max(reach_m, (h.side.place - center_m).norm());
  std::vector<uint32_t> frame;
  const double mean_kg =
      std::accumulate(model_->mass_kg.begin(), model_->mass_kg.end(), 0.0) / static_cast<double>(model_->control_count());
  for (const Vector3d& corner : kCorners) {
    frame.push_back(static_cast<uint32_t>(model_->control_count()));
    const Vector3d p = center_m + reach_m * corner;
    model_->rest_m.push_back({p.x(), p.y(), p.z()});
    model_->mass_kg.push_back(kFrameMass * mean_kg);
    model_->half_thickness_m.push_back(model_->half_thickness_m.front());
    model_->mass_damping_per_s.push_back(0);
  }
  model_->frame_control_count += static_cast<uint32_t>(frame.size());
  for (const Held& h : held) {
    Side fixed = h.side;
    fixed.parts.clear();
    const Vector3d across = fixed.normal.cross(fixed.along);
    for (size_t k = 0; k < kCorners.size(); ++k) {
      const Vector3d by = kCorners[k] / (4 * reach_m);
      fixed.parts.emplace(frame[k], Vector3d(0.25 + by.dot(fixed.place - center_m), by.dot(fixed.along), by.dot(across)));
    }
    Add(h.side, fixed, h.weight, h.patch, h.side.size, !is_clamped);
  }
  return frame;
}

}  // namespace palpate::sim
