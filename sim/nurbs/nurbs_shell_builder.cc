#include "sim/nurbs/nurbs_shell_builder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <Eigen/Dense>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/nurbs/gauss_quadrature.h"
#include "sim/nurbs/nurbs_basis.h"
#include "sim/nurbs/nurbs_shell_couplings.h"
#include "sim/nurbs/nurbs_shell_joints.h"
#include "sim/nurbs/nurbs_trim_cells.h"

namespace palpate::sim {
namespace {

using Eigen::Matrix2d;
using Eigen::Vector3d;
using nurbs_basis::Basis;

constexpr double kLeastArea = 1e-9;  // of the product of the tangents' lengths: below, a Gauss point has no area
constexpr double kLeastMass = 1e-9;  // of the mean of control points; that of one at a corner of a cut cell may be next to nothing
constexpr size_t kU = 0, kV = 1;

/// A Gauss point of the quadrature along one direction, with the basis functions there.
struct Abscissa {
  double t = 0;
  double weight = 0;  // of the parameter
  size_t first = 0;   // control point
  std::array<Basis, 3> basis;
};

/// `smooth_ends`: ends of the span at which the surface goes on smoothly.
size_t PointsOfSpan(int degree, bool is_full, int smooth_ends) {
  if (is_full || smooth_ends == 0) return static_cast<size_t>(degree) + 1;
  return smooth_ends == 2 ? static_cast<size_t>(degree + 2) / 2 : static_cast<size_t>(degree);
}

Abscissa AbscissaAt(std::span<const double> knots, int degree, size_t span, double t, double weight) {
  return {t, weight, span - static_cast<size_t>(degree), nurbs_basis::BasisWithDerivatives(knots, degree, span, t)};
}

/// [span][point]
std::vector<std::vector<Abscissa>> AbscissasOf(const std::vector<double>& knots, int degree, bool is_full) {
  std::vector<std::vector<Abscissa>> spans;
  for (size_t k = static_cast<size_t>(degree); k + static_cast<size_t>(degree) + 1 < knots.size(); ++k) {
    if (knots[k] == knots[k + 1]) continue;
    const int smooth_ends =
        (nurbs_basis::Multiplicity(knots, knots[k]) == 1 ? 1 : 0) + (nurbs_basis::Multiplicity(knots, knots[k + 1]) == 1 ? 1 : 0);
    const GaussRule rule = MakeGaussRule(PointsOfSpan(degree, is_full, smooth_ends));
    const double width = knots[k + 1] - knots[k];
    spans.emplace_back();
    for (size_t i = rule.places.size(); i-- > 0;) {
      spans.back().push_back(AbscissaAt(knots, degree, k, knots[k] + rule.places[i] * width, rule.weights[i] * width));
    }
  }
  return spans;
}

/// A control point of a net near a Gauss point.
struct Near {
  uint32_t net = 0;
  double weight = 1;
  std::array<double, 6> n{};  // basis function without weights: itself, by u, v, uu, vv, uv
};

class Builder {
 public:
  Builder(const NurbsObject& object, const NurbsShellMaterial& material, const NurbsShellOptions& options)
      : object_(object), material_(material), options_(options) {}

  absl::StatusOr<gpu::NurbsShellModel> Run() {
    PALPATE_RETURN_IF_ERROR(Check());
    PALPATE_RETURN_IF_ERROR(FindCells());
    PALPATE_ASSIGN_OR_RETURN(joints_, JoinNurbsShell(object_, KeptPoints()));
    for (const NurbsPatch& patch : object_.patches()) {
      for (const Eigen::Vector4d& control : patch.surface.control()) {
        position_.push_back(control.hnormalized());
        weight_.push_back(control.w());
      }
    }
    AddControlPoints();
    const double nu = material_.poisson_ratio;
    const double plate = material_.young_modulus_pa * std::pow(material_.thickness_m, 3) / (12 * (1 - nu * nu));
    bending_n_m_ = {plate, nu * plate, plate, (1 - nu) / 2 * plate};
    for (const NurbsShellPiece& piece : joints_.pieces) PALPATE_RETURN_IF_ERROR(AddPiece(piece));
    for (const NurbsShellSeam& seam : joints_.seams) {
      if (!seam.is_smooth && options_.crease_stiffness > 0) PALPATE_RETURN_IF_ERROR(AddStrip(seam));
    }
    NurbsShellCoupler coupler(object_, material_, &model_);
    PALPATE_RETURN_IF_ERROR(coupler.CoupleEdges(options_.join_tolerance_m, options_.crease_stiffness == 0));
    if (object_.is_trimmed()) BoundMasses();
    model_.ListEntries();
    return std::move(model_);
  }

 private:
  absl::Status Check() const {
    const NurbsShellMaterial& m = material_;
    const auto positive = [](const char* name, double value) {
      return value > 0 && std::isfinite(value) ? absl::OkStatus()
                                               : absl::InvalidArgumentError(absl::StrCat(name, ": ", value, ", it must be positive"));
    };
    PALPATE_RETURN_IF_ERROR(positive("thickness_m", m.thickness_m));
    PALPATE_RETURN_IF_ERROR(positive("density_kg_per_m3", m.density_kg_per_m3));
    PALPATE_RETURN_IF_ERROR(positive("young_modulus_pa", m.young_modulus_pa));
    if (!(m.poisson_ratio > -1 && m.poisson_ratio <= 0.5)) {
      return absl::InvalidArgumentError(absl::StrCat("poisson_ratio: ", m.poisson_ratio, " is outside (-1, 0.5]"));
    }
    if (!(m.damping_s >= 0 && m.mass_damping_per_s >= 0 && options_.crease_stiffness >= 0)) {
      return absl::InvalidArgumentError(absl::StrCat("damping_s: ", m.damping_s, ", mass_damping_per_s: ", m.mass_damping_per_s,
                                                     " or crease_stiffness: ", options_.crease_stiffness, " is negative"));
    }
    for (size_t p = 0; p < object_.patches().size(); ++p) {
      const NurbsPatch& patch = object_.patches()[p];
      const int u = patch.surface.degree(NurbsDirection::kU);
      const int v = patch.surface.degree(NurbsDirection::kV);
      if (std::min(u, v) >= 2 && std::max(u, v) <= kMaxNurbsShellDegree) continue;
      return absl::InvalidArgumentError(absl::StrCat(NurbsPatchPath(p, patch.name), ": degrees ", u, " x ", v, " are outside [2, ",
                                                     kMaxNurbsShellDegree, "]; a shell bends by second derivatives"));
    }
    return absl::OkStatus();
  }

  absl::Status FindCells() {
    for (size_t p = 0; p < object_.patches().size(); ++p) {
      std::optional<NurbsTrimCells>& cells = cells_.emplace_back();
      if (object_.patches()[p].loops.empty()) continue;
      absl::StatusOr<NurbsTrimCells> found = NurbsTrimCells::Create(object_.patches()[p]);
      if (!found.ok()) return Annotate(found.status(), NurbsPatchPath(p, object_.patches()[p].name));
      cells = *std::move(found);
    }
    return absl::OkStatus();
  }

  /// [point of a net] whether it acts where something is left.
  std::vector<uint8_t> KeptPoints() const {
    std::vector<uint8_t> out;
    for (size_t p = 0; p < cells_.size(); ++p) {
      const NurbsSurface& surface = object_.patches()[p].surface;
      const size_t columns = surface.count(NurbsDirection::kV);
      const size_t begin = out.size();
      out.resize(begin + surface.control().size(), cells_[p] ? 0 : 1);
      if (!cells_[p]) continue;
      // Control points first to first + degree act on a cell.
      const auto firsts = [&](NurbsDirection d, int axis) {
        std::vector<size_t> first;
        const auto lines = cells_[p]->lines(axis);
        for (size_t c = 0; c + 1 < lines.size(); ++c) {
          first.push_back(nurbs_basis::SpanOf(surface.knots(d), surface.degree(d), lines[c]) - static_cast<size_t>(surface.degree(d)));
        }
        return first;
      };
      const std::vector<size_t> of_u = firsts(NurbsDirection::kU, 0), of_v = firsts(NurbsDirection::kV, 1);
      for (size_t row = 0; row < of_u.size(); ++row) {
        for (size_t column = 0; column < of_v.size(); ++column) {
          if (cells_[p]->kind(row, column) == NurbsCellKind::kEmpty) continue;
          for (size_t i = 0; i <= static_cast<size_t>(surface.degree(NurbsDirection::kU)); ++i) {
            for (size_t j = 0; j <= static_cast<size_t>(surface.degree(NurbsDirection::kV)); ++j) {
              out[begin + (of_u[row] + i) * columns + of_v[column] + j] = 1;
            }
          }
        }
      }
    }
    return out;
  }

  void AddControlPoints() {
    model_.rest_m.resize(joints_.control_count);
    model_.mass_kg.assign(joints_.control_count, 0);
    model_.half_thickness_m.assign(joints_.control_count, material_.thickness_m / 2);
    model_.mass_damping_per_s.assign(joints_.control_count, material_.mass_damping_per_s);
    model_.net_begin = joints_.net_begin;
    model_.net_part_begin = {0};
    for (size_t n = 0; n < joints_.parts.size(); ++n) {
      for (const auto& [control, weight] : joints_.parts[n]) model_.net_parts.push_back({control, weight});
      model_.net_part_begin.push_back(static_cast<uint32_t>(model_.net_parts.size()));
      if (joints_.is_kept[n] == 0 || joints_.parts[n].size() != 1) continue;
      const Vector3d& x = position_[n];
      model_.rest_m[joints_.parts[n][0].first] = {x.x(), x.y(), x.z()};
    }
  }

  absl::Status AddPiece(const NurbsShellPiece& piece) {
    const bool is_full = options_.quadrature == NurbsShellQuadrature::kFull;
    const auto us = AbscissasOf(piece.knots[kU], piece.degree[kU], is_full);
    const auto vs = AbscissasOf(piece.knots[kV], piece.degree[kV], is_full);
    const auto all_us = AbscissasOf(piece.knots[kU], piece.degree[kU], true);
    const auto all_vs = AbscissasOf(piece.knots[kV], piece.degree[kV], true);
    const std::optional<NurbsTrimCells>& cells = cells_[piece.patch];
    // Spans row by row, every second row backwards, so that what follows on each other is near each other.
    for (size_t row = 0; row < us.size(); ++row) {
      for (size_t step = 0; step < vs.size(); ++step) {
        const size_t column = row % 2 == 0 ? step : vs.size() - 1 - step;
        if (!cells) {
          PALPATE_RETURN_IF_ERROR(AddSpan(piece, us[row], vs[column], 1));
          continue;
        }
        const size_t u = cells->IndexOf(0, us[row][0].t), v = cells->IndexOf(1, vs[column][0].t);
        if (cells->kind(u, v) == NurbsCellKind::kWhole) {
          const bool is_inner = IsAmongWhole(*cells, u, v);
          PALPATE_RETURN_IF_ERROR(AddSpan(piece, is_inner ? us[row] : all_us[row], is_inner ? vs[column] : all_vs[column], 1));
        } else if (cells->kind(u, v) == NurbsCellKind::kCut) {
          PALPATE_RETURN_IF_ERROR(AddCut(piece, *cells, u, v));
          PALPATE_RETURN_IF_ERROR(AddSpan(piece, all_us[row], all_vs[column], kNurbsShellCutAwayStiffness));
        }
      }
    }
    return absl::OkStatus();
  }

  /// Whether the cells around one that is whole are whole too; those beyond the sides of the patch do not count.
  static bool IsAmongWhole(const NurbsTrimCells& cells, size_t row, size_t column) {
    for (size_t i = row - std::min<size_t>(row, 1); i < std::min(cells.rows(), row + 2); ++i) {
      for (size_t j = column - std::min<size_t>(column, 1); j < std::min(cells.columns(), column + 2); ++j) {
        if (cells.kind(i, j) != NurbsCellKind::kWhole) return false;
      }
    }
    return true;
  }

  /// All of a span, with this share of the stiffness; with less than all of it has no mass.
  absl::Status AddSpan(const NurbsShellPiece& piece, const std::vector<Abscissa>& us, const std::vector<Abscissa>& vs, double share) {
    for (const Abscissa& u : us) {
      for (const Abscissa& v : vs) PALPATE_RETURN_IF_ERROR(AddPoint(piece, u, v, u.weight * v.weight, share));
    }
    return absl::OkStatus();
  }

  /// What is left of a span that is cut: the points are exact for polynomials over the area at rest.
  absl::Status AddCut(const NurbsShellPiece& piece, const NurbsTrimCells& cells, size_t row, size_t column) {
    const NurbsSurface& surface = object_.patches()[piece.patch].surface;
    absl::StatusOr<std::vector<NurbsCubaturePoint>> points = cells.PointsOf(row, column);
    if (!points.ok()) return Annotate(points.status(), NurbsPatchPath(piece.patch, object_.patches()[piece.patch].name));
    const auto area_at = [&](const Eigen::Vector2d& uv) {
      const NurbsPoint at = surface.PointWithDerivatives(uv.x(), uv.y());
      return at.du.cross(at.dv).norm();
    };
    for (NurbsCubaturePoint& point : *points) point.weight *= area_at(point.uv);
    for (const NurbsCubaturePoint& point : CompressCubature(*points, 2 * std::max(piece.degree[kU], piece.degree[kV]))) {
      const auto at = [&](size_t d) {
        const double t = point.uv[static_cast<Eigen::Index>(d)];
        return AbscissaAt(piece.knots[d], piece.degree[d], nurbs_basis::SpanOf(piece.knots[d], piece.degree[d], t), t, 1);
      };
      PALPATE_RETURN_IF_ERROR(AddPoint(piece, at(kU), at(kV), point.weight / area_at(point.uv), 1));
    }
    return absl::OkStatus();
  }

  /// A Gauss point of a patch. `weight`: of the parameters; `share`: of the stiffness.
  absl::Status AddPoint(const NurbsShellPiece& piece, const Abscissa& u, const Abscissa& v, double weight, double share) {
    const size_t columns = object_.patches()[piece.patch].surface.count(NurbsDirection::kV);
    near_.clear();
    for (size_t i = 0; i <= static_cast<size_t>(piece.degree[kU]); ++i) {
      for (size_t j = 0; j <= static_cast<size_t>(piece.degree[kV]); ++j) {
        const size_t at = (piece.first[kU] + u.first + i) * columns + piece.first[kV] + v.first + j;
        const auto net = static_cast<uint32_t>(joints_.net_begin[piece.patch] + at);
        near_.push_back({net, weight_[net], Product(u.basis, i, v.basis, j)});
      }
    }
    gpu::NurbsShellGauss gauss{.bending_n_m = bending_n_m_,
                               .membrane_per_bending_per_m2 = 12 / (material_.thickness_m * material_.thickness_m),
                               .damping_s = material_.damping_s,
                               .is_surface = share == 1,
                               .patch = piece.patch,
                               .u = u.t,
                               .v = v.t};
    for (double& modulus : gauss.bending_n_m) modulus *= share;
    return AddGauss(gauss, weight, false);
  }

  /// A strip of degree 2 across a seam, which bends about the seam alone.
  absl::Status AddStrip(const NurbsShellSeam& seam) {
    const std::vector<double> across_knots = {0, 0, 0, 1, 1, 1};
    const auto across = AbscissasOf(across_knots, 2, true);
    const double stiffness = options_.crease_stiffness * material_.young_modulus_pa * std::pow(material_.thickness_m, 3) / 12;
    for (const std::vector<Abscissa>& span : AbscissasOf(seam.knots, seam.degree, false)) {
      for (const Abscissa& along : span) {
        for (const Abscissa& over : across[0]) {
          near_.clear();
          bool is_kept = true;
          for (size_t j = 0; j <= static_cast<size_t>(seam.degree); ++j) {
            const size_t k = along.first + j;
            is_kept = is_kept && seam.is_kept[k] != 0;
            near_.push_back({seam.before[k], seam.weight_before[k], Product(over.basis, 0, along.basis, j)});
            near_.push_back({seam.on[k], seam.weight_on[k], Product(over.basis, 1, along.basis, j)});
            near_.push_back({seam.after[k], seam.weight_after[k], Product(over.basis, 2, along.basis, j)});
          }
          if (!is_kept) continue;
          gpu::NurbsShellGauss gauss{
              .bending_n_m = {stiffness, 0, 0, 0}, .damping_s = material_.damping_s, .is_surface = false, .patch = seam.patch};
          PALPATE_RETURN_IF_ERROR(AddGauss(gauss, over.weight * along.weight, true));
        }
      }
    }
    return absl::OkStatus();
  }

  static std::array<double, 6> Product(const std::array<Basis, 3>& u, size_t i, const std::array<Basis, 3>& v, size_t j) {
    return {u[0][i] * v[0][j], u[1][i] * v[0][j], u[0][i] * v[1][j], u[2][i] * v[0][j], u[0][i] * v[2][j], u[1][i] * v[1][j]};
  }

  /// From near_. `weight`: of the parameters. Axis 1 runs along the first parameter, of a strip axis 2 along the second.
  absl::Status AddGauss(gpu::NurbsShellGauss gauss, double weight, bool is_strip) {
    std::array<double, 6> w{};
    for (const Near& near : near_) {
      for (size_t d = 0; d < 6; ++d) w[d] += near.weight * near.n[d];
    }
    // Rational functions by the quotient rule, then lengths instead of parameters.
    Vector3d a1 = Vector3d::Zero(), a2 = Vector3d::Zero();
    for (Near& near : near_) {
      std::array<double, 6>& r = near.n;
      for (double& value : r) value *= near.weight;
      r[0] /= w[0];
      r[1] = (r[1] - r[0] * w[1]) / w[0];
      r[2] = (r[2] - r[0] * w[2]) / w[0];
      r[3] = (r[3] - 2 * r[1] * w[1] - r[0] * w[3]) / w[0];
      r[4] = (r[4] - 2 * r[2] * w[2] - r[0] * w[4]) / w[0];
      r[5] = (r[5] - r[1] * w[2] - r[2] * w[1] - r[0] * w[5]) / w[0];
      a1 += r[1] * position_[near.net];
      a2 += r[2] * position_[near.net];
    }
    const Vector3d normal = a1.cross(a2);
    const double area = normal.norm();
    if (!(area > kLeastArea * a1.norm() * a2.norm())) {
      return absl::InvalidArgumentError(absl::StrCat(NurbsPatchPath(gauss.patch, object_.patches()[gauss.patch].name),
                                                     ": the surface has no area at u = ", gauss.u, ", v = ", gauss.v));
    }
    const Vector3d n = normal / area;
    const Vector3d first = is_strip ? Vector3d(a2.normalized().cross(n)) : Vector3d(a1.normalized());
    const Vector3d second = n.cross(first);
    Matrix2d axes;  // lengths along the axes by the parameters
    axes << first.dot(a1), first.dot(a2), second.dot(a1), second.dot(a2);
    const Matrix2d t = axes.inverse();  // parameters by lengths
    std::map<uint32_t, gpu::NurbsShellEntry> entries;
    const auto number = static_cast<uint32_t>(model_.gauss.size());
    for (const Near& near : near_) {
      const std::array<double, 6>& r = near.n;
      Matrix2d second_of;
      second_of << r[3], r[5], r[5], r[4];
      const Eigen::Vector2d by = t.transpose() * Eigen::Vector2d(r[1], r[2]);
      const Matrix2d by_two = t.transpose() * second_of * t;
      for (const auto& [control, part] : joints_.parts[near.net]) {
        gpu::NurbsShellEntry& entry = entries.try_emplace(control, gpu::NurbsShellEntry{.control = control, .gauss = number}).first->second;
        entry.value += part * r[0];
        entry.by_1_per_m += part * by[0];
        entry.by_2_per_m += part * by[1];
        entry.by_11_per_m2 += part * by_two(0, 0);
        entry.by_22_per_m2 += part * by_two(1, 1);
        entry.by_12_per_m2 += part * by_two(0, 1);
      }
    }
    gauss.area_m2 = area * weight;
    gauss.begin = static_cast<uint32_t>(model_.entries.size());
    const double mass = gauss.is_surface ? gauss.area_m2 * material_.thickness_m * material_.density_kg_per_m3 : 0;
    for (const auto& [control, entry] : entries) {
      const Vector3d x(model_.rest_m[control].data());
      gauss.rest_curvature_per_m[0] += entry.by_11_per_m2 * n.dot(x - position_[near_[0].net]);
      gauss.rest_curvature_per_m[1] += entry.by_22_per_m2 * n.dot(x - position_[near_[0].net]);
      gauss.rest_curvature_per_m[2] += entry.by_12_per_m2 * n.dot(x - position_[near_[0].net]);
      model_.mass_kg[control] += mass * entry.value;
      model_.entries.push_back(entry);
    }
    gauss.end = static_cast<uint32_t>(model_.entries.size());
    model_.gauss.push_back(gauss);
    return absl::OkStatus();
  }

  /// Lifts masses that are next to nothing, for floats; their sum stays.
  void BoundMasses() {
    const double sum = std::accumulate(model_.mass_kg.begin(), model_.mass_kg.end(), 0.0);
    for (double& mass : model_.mass_kg) mass = std::max(mass, kLeastMass * sum / static_cast<double>(model_.control_count()));
    const double lifted = std::accumulate(model_.mass_kg.begin(), model_.mass_kg.end(), 0.0);
    for (double& mass : model_.mass_kg) mass *= sum / lifted;
  }

  const NurbsObject& object_;
  const NurbsShellMaterial& material_;
  const NurbsShellOptions& options_;
  std::vector<std::optional<NurbsTrimCells>> cells_;  // [patch] of those that are trimmed
  NurbsShellJoints joints_;
  std::vector<Vector3d> position_;  // [point of a net]
  std::vector<double> weight_;
  std::vector<Near> near_;
  std::array<double, 4> bending_n_m_{};
  gpu::NurbsShellModel model_;
};

}  // namespace

absl::StatusOr<gpu::NurbsShellModel> BuildNurbsShell(const NurbsObject& object, const NurbsShellMaterial& material,
                                                     const NurbsShellOptions& options) {
  return Builder(object, material, options).Run();
}

}  // namespace palpate::sim
