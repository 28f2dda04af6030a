#include "sim/reference/reference_nurbs_shell.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <Eigen/Dense>
#include <Eigen/SparseCholesky>

#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;
using Eigen::VectorXd;
using gpu::NurbsShellEntry;
using gpu::NurbsShellGauss;
using gpu::NurbsShellModel;

/// Moduli of (11, 22, 2 * 12).
Matrix3d ModuliOf(const NurbsShellGauss& gauss) {
  const auto& [c_11, c_12, c_22, shear] = gauss.bending_n_m;
  Matrix3d c;
  c << c_11, c_12, 0, c_12, c_22, 0, 0, 0, shear;
  return gauss.area_m2 * c;
}

/// The surface at a Gauss point.
struct State {
  std::array<Vector3d, 2> a;   // tangents
  std::array<Vector3d, 3> aa;  // second derivatives 11, 22, 12
  Vector3d normal;
  double stretch = 0;  // of the area
  Vector3d strain;     // 11, 22, 2 * 12
  Vector3d bend;       // change of curvature, likewise

  State(const NurbsShellModel& model, const NurbsShellGauss& gauss, const VectorXd& x) {
    for (Vector3d& v : a) v.setZero();
    for (Vector3d& v : aa) v.setZero();
    for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
      const NurbsShellEntry& entry = model.entries[e];
      const Vector3d p = x.segment<3>(3 * static_cast<Eigen::Index>(entry.control));
      a[0] += entry.by_1_per_m * p;
      a[1] += entry.by_2_per_m * p;
      aa[0] += entry.by_11_per_m2 * p;
      aa[1] += entry.by_22_per_m2 * p;
      aa[2] += entry.by_12_per_m2 * p;
    }
    const Vector3d cross = a[0].cross(a[1]);
    stretch = cross.norm();
    normal = cross / stretch;
    strain = {(a[0].squaredNorm() - 1) / 2, (a[1].squaredNorm() - 1) / 2, a[0].dot(a[1])};
    const auto& b = gauss.rest_curvature_per_m;
    bend = {aa[0].dot(normal) - b[0], aa[1].dot(normal) - b[1], 2 * (aa[2].dot(normal) - b[2])};
  }
};

/// First derivatives by the coordinates of the control points of a Gauss point; column 3 i + k: coordinate k of entry i.
struct Slopes {
  Eigen::Matrix3Xd strain, bend, cross, normal;
  Eigen::VectorXd stretch;

  Slopes(const NurbsShellModel& model, const NurbsShellGauss& gauss, const State& s) {
    const auto n = static_cast<Eigen::Index>(gauss.end - gauss.begin);
    strain.resize(3, 3 * n);
    bend.resize(3, 3 * n);
    cross.resize(3, 3 * n);
    normal.resize(3, 3 * n);
    stretch.resize(3 * n);
    for (Eigen::Index i = 0; i < n; ++i) {
      const NurbsShellEntry& entry = model.entries[gauss.begin + static_cast<uint32_t>(i)];
      const double g1 = entry.by_1_per_m;
      const double g2 = entry.by_2_per_m;
      const std::array<double, 3> h = {entry.by_11_per_m2, entry.by_22_per_m2, entry.by_12_per_m2};
      for (int k = 0; k < 3; ++k) {
        const Eigen::Index r = 3 * i + k;
        const Vector3d e = Vector3d::Unit(k);
        cross.col(r) = g1 * e.cross(s.a[1]) + g2 * s.a[0].cross(e);
        stretch[r] = s.normal.dot(cross.col(r));
        normal.col(r) = (cross.col(r) - stretch[r] * s.normal) / s.stretch;
        strain.col(r) = Vector3d(g1 * s.a[0][k], g2 * s.a[1][k], g1 * s.a[1][k] + g2 * s.a[0][k]);
        for (int c = 0; c < 3; ++c) {
          bend(c, r) = (c == 2 ? 2 : 1) * (h[static_cast<size_t>(c)] * s.normal[k] + s.aa[static_cast<size_t>(c)].dot(normal.col(r)));
        }
      }
    }
  }
};

/// A number with its first and second derivatives by the 15 coordinates of a coupling's vectors.
struct Jet {
  using Vector = Eigen::Matrix<double, 15, 1>;
  using Matrix = Eigen::Matrix<double, 15, 15>;
  double value = 0;
  Vector slope = Vector::Zero();
  Matrix curve = Matrix::Zero();

  friend Jet operator+(const Jet& a, const Jet& b) { return {a.value + b.value, a.slope + b.slope, a.curve + b.curve}; }
  friend Jet operator-(const Jet& a, const Jet& b) { return {a.value - b.value, a.slope - b.slope, a.curve - b.curve}; }
  friend Jet operator*(const Jet& a, const Jet& b) {
    return {a.value * b.value, a.value * b.slope + b.value * a.slope,
            a.value * b.curve + b.value * a.curve + a.slope * b.slope.transpose() + b.slope * a.slope.transpose()};
  }
  Jet InverseRoot() const {  // 1 / sqrt
    const double f = 1 / std::sqrt(value);
    const double df = -f / (2 * value), ddf = 3 * f / (4 * value * value);
    return {f, df * slope, df * curve + ddf * slope * slope.transpose()};
  }
};
using JetVector = std::array<Jet, 3>;

Jet Dot(const JetVector& a, const JetVector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
JetVector Cross(const JetVector& a, const JetVector& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}
JetVector Unit(const JetVector& a) {
  const Jet inverse = Dot(a, a).InverseRoot();
  return {inverse * a[0], inverse * a[1], inverse * a[2]};
}

/// The energy of a coupling from its five vectors.
Jet CouplingEnergy(const NurbsShellModel& model, const NurbsShellGauss& gauss, const VectorXd& x) {
  std::array<JetVector, 5> vectors;
  for (size_t k = 0; k < 15; ++k) vectors[k / 3][k % 3].slope[static_cast<Eigen::Index>(k)] = 1;
  for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
    const NurbsShellEntry& at = model.entries[e];
    const std::array<double, 5> by = {at.by_1_per_m, at.by_2_per_m, at.by_11_per_m2, at.by_22_per_m2, at.by_12_per_m2};
    for (size_t k = 0; k < 15; ++k)
      vectors[k / 3][k % 3].value += by[k / 3] * x[3 * static_cast<Eigen::Index>(at.control) + static_cast<Eigen::Index>(k % 3)];
  }
  const auto& [a1, a2, b1, b2, gap] = vectors;
  const JetVector normal_a = Unit(Cross(a1, a2)), normal_b = Unit(Cross(b1, b2));
  const auto constant = [](double value) { return Jet{.value = value}; };
  const Jet cosine = Dot(normal_a, normal_b) - constant(gauss.coupling->rest_cosine);
  const Jet sine = Dot(Cross(normal_a, Unit(a1)), normal_b) - constant(gauss.coupling->rest_sine);
  return constant(gauss.area_m2 / 2) *
         (constant(gauss.coupling->gap_n_per_m2) * Dot(gap, gap) + constant(gauss.coupling->turn_n) * (cosine * cosine + sine * sine));
}

/// By the coordinates of the control points of a coupling: the five vectors by them.
Eigen::MatrixXd CouplingVectorsBy(const NurbsShellModel& model, const NurbsShellGauss& gauss) {
  Eigen::MatrixXd out = Eigen::MatrixXd::Zero(15, 3 * static_cast<Eigen::Index>(gauss.end - gauss.begin));
  for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
    const NurbsShellEntry& at = model.entries[e];
    const std::array<double, 5> by = {at.by_1_per_m, at.by_2_per_m, at.by_11_per_m2, at.by_22_per_m2, at.by_12_per_m2};
    for (Eigen::Index k = 0; k < 15; ++k) out(k, 3 * static_cast<Eigen::Index>(e - gauss.begin) + k % 3) = by[static_cast<size_t>(k / 3)];
  }
  return out;
}

/// Second derivatives of a Gauss point's energy by the coordinates of its control points.
Eigen::MatrixXd StiffnessOf(const NurbsShellModel& model, const NurbsShellGauss& gauss, const VectorXd& x) {
  if (gauss.coupling) {
    const Eigen::MatrixXd by = CouplingVectorsBy(model, gauss);
    return by.transpose() * CouplingEnergy(model, gauss, x).curve * by;
  }
  const State s(model, gauss, x);
  const Slopes d(model, gauss, s);
  const Matrix3d c = ModuliOf(gauss);
  const Vector3d stress = gauss.membrane_per_bending_per_m2 * (c * s.strain);
  const Vector3d moment = c * s.bend;
  Eigen::MatrixXd k = d.bend.transpose() * c * d.bend + gauss.membrane_per_bending_per_m2 * (d.strain.transpose() * c * d.strain);
  const Vector3d along = moment[0] * s.aa[0] + moment[1] * s.aa[1] + 2 * moment[2] * s.aa[2];
  const uint32_t n = gauss.end - gauss.begin;
  for (uint32_t i = 0; i < n; ++i) {
    const NurbsShellEntry& at = model.entries[gauss.begin + i];
    const double h_i = moment[0] * at.by_11_per_m2 + moment[1] * at.by_22_per_m2 + 2 * moment[2] * at.by_12_per_m2;
    for (uint32_t j = 0; j <= i; ++j) {
      const NurbsShellEntry& to = model.entries[gauss.begin + j];
      const double h_j = moment[0] * to.by_11_per_m2 + moment[1] * to.by_22_per_m2 + 2 * moment[2] * to.by_12_per_m2;
      const double pull = stress[0] * at.by_1_per_m * to.by_1_per_m + stress[1] * at.by_2_per_m * to.by_2_per_m +
                          stress[2] * (at.by_1_per_m * to.by_2_per_m + at.by_2_per_m * to.by_1_per_m);
      const double turn = at.by_1_per_m * to.by_2_per_m - to.by_1_per_m * at.by_2_per_m;
      for (int a = 0; a < 3; ++a) {
        for (int b = 0; b < 3; ++b) {
          const Eigen::Index r = 3 * static_cast<Eigen::Index>(i) + a;
          const Eigen::Index q = 3 * static_cast<Eigen::Index>(j) + b;
          const Vector3d cross_rq = turn * Vector3d::Unit(a).cross(Vector3d::Unit(b));
          const double stretch_rq = s.normal.dot(cross_rq) + d.normal.col(q).dot(d.cross.col(r));
          const Vector3d normal_rq =
              (cross_rq - stretch_rq * s.normal - d.stretch[r] * d.normal.col(q) - d.stretch[q] * d.normal.col(r)) / s.stretch;
          k(r, q) += (a == b ? pull : 0) + h_i * d.normal(a, q) + h_j * d.normal(b, r) + along.dot(normal_rq);
        }
      }
    }
  }
  return k;
}

}  // namespace

VectorXd ReferenceNurbsShell::Rest() const {
  VectorXd x(size());
  for (size_t c = 0; c < model_.control_count(); ++c) x.segment<3>(3 * static_cast<Eigen::Index>(c)) = Vector3d(model_.rest_m[c].data());
  return x;
}

double ReferenceNurbsShell::Energy(const VectorXd& x) const {
  double sum = 0;
  for (const NurbsShellGauss& gauss : model_.gauss) {
    if (gauss.coupling) {
      sum += CouplingEnergy(model_, gauss, x).value;
      continue;
    }
    const State s(model_, gauss, x);
    const Matrix3d c = ModuliOf(gauss);
    sum += (s.bend.dot(c * s.bend) + gauss.membrane_per_bending_per_m2 * s.strain.dot(c * s.strain)) / 2;
  }
  return sum;
}

VectorXd ReferenceNurbsShell::Gradient(const VectorXd& x) const {
  VectorXd gradient = VectorXd::Zero(size());
  for (const NurbsShellGauss& gauss : model_.gauss) {
    VectorXd part;
    if (gauss.coupling) {
      part = CouplingVectorsBy(model_, gauss).transpose() * CouplingEnergy(model_, gauss, x).slope;
    } else {
      const State s(model_, gauss, x);
      const Slopes d(model_, gauss, s);
      const Matrix3d c = ModuliOf(gauss);
      part = d.bend.transpose() * (c * s.bend) + gauss.membrane_per_bending_per_m2 * (d.strain.transpose() * (c * s.strain));
    }
    for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
      gradient.segment<3>(3 * static_cast<Eigen::Index>(model_.entries[e].control)) += part.segment<3>(3 * (e - gauss.begin));
    }
  }
  return gradient;
}

std::vector<Eigen::Triplet<double>> ReferenceNurbsShell::Stiffness(const VectorXd& x) const {
  std::vector<Eigen::Triplet<double>> entries;
  // Gauss points of a span follow on each other and have the same control points: what they add is summed first.
  std::vector<uint32_t> controls;
  Eigen::MatrixXd sum;
  const auto flush = [&] {
    for (size_t i = 0; i < controls.size(); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        for (int a = 0; a < 3; ++a) {
          for (int b = 0; b < 3; ++b) {
            const double value = sum(3 * static_cast<Eigen::Index>(i) + a, 3 * static_cast<Eigen::Index>(j) + b);
            const auto row = static_cast<int>(3 * controls[i]) + a;
            const auto column = static_cast<int>(3 * controls[j]) + b;
            entries.emplace_back(row, column, value);
            if (i != j) entries.emplace_back(column, row, value);
          }
        }
      }
    }
  };
  for (const NurbsShellGauss& gauss : model_.gauss) {
    const Eigen::MatrixXd k = StiffnessOf(model_, gauss, x);
    std::vector<uint32_t> here;
    for (uint32_t e = gauss.begin; e < gauss.end; ++e) here.push_back(model_.entries[e].control);
    if (here != controls) {
      flush();
      controls = std::move(here);
      sum = Eigen::MatrixXd::Zero(k.rows(), k.cols());
    }
    sum += k;
  }
  flush();
  return entries;
}

VectorXd ReferenceNurbsShell::AreaLoad(const Vector3d& load_n_per_m2) const {
  VectorXd load = VectorXd::Zero(size());
  for (const NurbsShellGauss& gauss : model_.gauss) {
    if (!gauss.is_surface) continue;
    for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
      const NurbsShellEntry& entry = model_.entries[e];
      load.segment<3>(3 * static_cast<Eigen::Index>(entry.control)) += gauss.area_m2 * entry.value * load_n_per_m2;
    }
  }
  return load;
}

VectorXd ReferenceNurbsShell::PressureLoad(const VectorXd& x, double pressure_pa) const {
  VectorXd load = VectorXd::Zero(size());
  for (const NurbsShellGauss& gauss : model_.gauss) {
    if (!gauss.is_surface) continue;
    const State s(model_, gauss, x);
    for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
      const NurbsShellEntry& entry = model_.entries[e];
      load.segment<3>(3 * static_cast<Eigen::Index>(entry.control)) += pressure_pa * gauss.area_m2 * s.stretch * entry.value * s.normal;
    }
  }
  return load;
}

absl::StatusOr<VectorXd> SolveNurbsShell(const ReferenceNurbsShell& shell, const NurbsShellLoad& load, const std::vector<int>& groups,
                                         const VectorXd& start, double tolerance_n, int max_iterations) {
  if (groups.size() != static_cast<size_t>(shell.size()) || start.size() != shell.size() || load.dead_n.size() != shell.size()) {
    return absl::InvalidArgumentError(absl::StrCat("start, loads and groups need ", shell.size(), " numbers each"));
  }
  const int count = *std::max_element(groups.begin(), groups.end()) + 1;
  const auto reduced = [&](const VectorXd& full) {
    VectorXd out = VectorXd::Zero(count);
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i] >= 0) out[groups[i]] += full[static_cast<Eigen::Index>(i)];
    }
    return out;
  };
  const auto moved = [&](const VectorXd& x, const VectorXd& step) {
    VectorXd out = x;
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i] >= 0) out[static_cast<Eigen::Index>(i)] += step[groups[i]];
    }
    return out;
  };
  Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>> solver;
  VectorXd x = start;
  double residual_n = 0;
  for (int iteration = 0; iteration <= max_iterations; ++iteration) {
    std::vector<Eigen::Triplet<double>> stiffness;
    VectorXd force = load.dead_n - shell.Gradient(x);
    if (load.following) load.following(x, &force, &stiffness);
    const VectorXd residual = reduced(force);
    residual_n = residual.norm();
    if (residual_n <= tolerance_n || (iteration == max_iterations && max_iterations == 1)) return x;
    if (iteration == max_iterations) break;
    std::vector<Eigen::Triplet<double>> elastic = shell.Stiffness(x);
    std::vector<Eigen::Triplet<double>> entries;
    elastic.insert(elastic.end(), stiffness.begin(), stiffness.end());
    for (const Eigen::Triplet<double>& t : elastic) {
      const int row = groups[static_cast<size_t>(t.row())];
      const int column = groups[static_cast<size_t>(t.col())];
      if (row >= 0 && column >= 0) entries.emplace_back(row, column, t.value());
    }
    Eigen::SparseMatrix<double> matrix(count, count);
    matrix.setFromTriplets(entries.begin(), entries.end());
    solver.compute(matrix);
    if (solver.info() != Eigen::Success) return absl::InternalError("the stiffness matrix cannot be factorised");
    x = moved(x, solver.solve(residual));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("a residual of ", residual_n, " N is left after ", max_iterations, " iterations, above ", tolerance_n));
}

}  // namespace palpate::sim
