#include "sim/reference/reference_body.h"

#include <cmath>
#include <utility>

#include <Eigen/Dense>

namespace palpate::sim {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

/// The nearest proper rotation, also of an inverted F.
Matrix3d PolarRotation(const Matrix3d& f) {
  const Eigen::JacobiSVD<Matrix3d> svd(f, Eigen::ComputeFullU | Eigen::ComputeFullV);
  Matrix3d u = svd.matrixU();
  if ((u * svd.matrixV().transpose()).determinant() < 0) u.col(2) = -u.col(2);
  return u * svd.matrixV().transpose();
}

Matrix3d Cofactor(const Matrix3d& f) {
  Matrix3d c;
  for (int i = 0; i < 3; ++i) c.col(i) = f.col((i + 1) % 3).cross(f.col((i + 2) % 3));
  return c;
}

/// d Cofactor(f) along df.
Matrix3d CofactorChange(const Matrix3d& f, const Matrix3d& df) {
  Matrix3d c;
  for (int i = 0; i < 3; ++i) {
    const int a = (i + 1) % 3, b = (i + 2) % 3;
    c.col(i) = df.col(a).cross(f.col(b)) + f.col(a).cross(df.col(b));
  }
  return c;
}

Vector3d DirectionOf(const ElasticFibers& fibers) { return {fibers.direction[0], fibers.direction[1], fibers.direction[2]}; }

/// Hooke's law with fibres.
Matrix3d HookeStress(const ElasticTet& tet, const Matrix3d& e) {
  const Vector3d a = DirectionOf(tet.fibers);
  const Matrix3d dyad = a * a.transpose();
  const double along = a.dot(e * a);
  return 2 * tet.mu_pa * e + tet.lambda_pa * e.trace() * Matrix3d::Identity() +
         tet.fibers.coupling_pa * (along * Matrix3d::Identity() + e.trace() * dyad) + tet.fibers.stiffness_pa * along * dyad +
         2 * tet.fibers.shear_pa * (dyad * e + e * dyad);
}

Matrix3d GreenStrain(const Matrix3d& f) { return (f.transpose() * f - Matrix3d::Identity()) / 2; }
Matrix3d SmallStrain(const Matrix3d& f) { return (f + f.transpose()) / 2 - Matrix3d::Identity(); }

/// Energy per rest volume, of every energy but springs.
double Density(const ElasticTet& tet, const Matrix3d& f) {
  const double mu = tet.mu_pa, lambda = tet.lambda_pa;
  switch (tet.model) {
    case MaterialModel::kStableNeoHookean: {
      const double j1 = f.determinant() - 1;
      return mu / 2 * (f.squaredNorm() - 3) - mu * j1 + (lambda + mu) / 2 * j1 * j1;
    }
    case MaterialModel::kCorotated: {
      const Matrix3d r = PolarRotation(f);
      const double trace = (r.transpose() * f).trace() - 3;
      return mu * (f - r).squaredNorm() + lambda / 2 * trace * trace;
    }
    case MaterialModel::kLinear: {
      const Matrix3d e = SmallStrain(f);
      return (HookeStress(tet, e).array() * e.array()).sum() / 2;
    }
    case MaterialModel::kStVenantKirchhoff: {
      const Matrix3d e = GreenStrain(f);
      return (HookeStress(tet, e).array() * e.array()).sum() / 2;
    }
    case MaterialModel::kMassSpring:  // has no density
      break;
  }
  return 0;
}

/// First Piola-Kirchhoff stress.
Matrix3d Stress(const ElasticTet& tet, const Matrix3d& f) {
  const double mu = tet.mu_pa, lambda = tet.lambda_pa;
  switch (tet.model) {
    case MaterialModel::kStableNeoHookean:
      return mu * f + ((lambda + mu) * (f.determinant() - 1) - mu) * Cofactor(f);
    case MaterialModel::kCorotated: {
      const Matrix3d r = PolarRotation(f);
      return 2 * mu * (f - r) + lambda * ((r.transpose() * f).trace() - 3) * r;
    }
    case MaterialModel::kLinear:
      return HookeStress(tet, SmallStrain(f));
    case MaterialModel::kStVenantKirchhoff:
      return f * HookeStress(tet, GreenStrain(f));
    case MaterialModel::kMassSpring:  // has no density
      break;
  }
  return Matrix3d::Zero();
}

/// The derivative of the stress along df.
Matrix3d StressChange(const ElasticTet& tet, const Matrix3d& f, const Matrix3d& df) {
  const double mu = tet.mu_pa, lambda = tet.lambda_pa;
  switch (tet.model) {
    case MaterialModel::kStableNeoHookean: {
      const Matrix3d cofactor = Cofactor(f);
      const double dj = (cofactor.array() * df.array()).sum();
      return mu * df + (lambda + mu) * dj * cofactor + ((lambda + mu) * (f.determinant() - 1) - mu) * CofactorChange(f, df);
    }
    case MaterialModel::kCorotated: {
      // F = R S: R'dF - dF'R = W S + S W with the spin W of dR = R W; W holds the axis w, (tr S I - S) w = axis of the left side.
      const Matrix3d r = PolarRotation(f);
      const Matrix3d s = r.transpose() * f;
      const Matrix3d skew = r.transpose() * df - df.transpose() * r;
      const Matrix3d m = s.trace() * Matrix3d::Identity() - s;
      const Vector3d w = m.fullPivLu().solve(Vector3d(skew(2, 1), skew(0, 2), skew(1, 0)));
      Matrix3d spin;
      spin << 0, -w.z(), w.y(), w.z(), 0, -w.x(), -w.y(), w.x(), 0;
      const Matrix3d dr = r * spin;
      return 2 * mu * (df - dr) + lambda * ((r.transpose() * df).trace() * r + (s.trace() - 3) * dr);
    }
    case MaterialModel::kLinear:
      return HookeStress(tet, (df + df.transpose()) / 2);
    case MaterialModel::kStVenantKirchhoff:
      return df * HookeStress(tet, GreenStrain(f)) + f * HookeStress(tet, (f.transpose() * df + df.transpose() * f) / 2);
    case MaterialModel::kMassSpring:  // has no density
      break;
  }
  return Matrix3d::Zero();
}

constexpr std::array<std::array<int, 2>, 6> kEdges = {{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}};

/// E V / l^2, see docs/algorithms/tissue.md.
double SpringConstant(const ElasticTet& tet, double volume_m3, double rest_m) { return 2.5 * tet.mu_pa * volume_m3 / (rest_m * rest_m); }

}  // namespace

absl::StatusOr<ReferenceBody> ReferenceBody::Create(std::vector<Vector3d> rest_m, std::vector<ElasticTet> tets,
                                                    std::vector<uint8_t> fixed) {
  if (fixed.size() != rest_m.size()) {
    return absl::InvalidArgumentError(absl::StrCat("fixed: ", fixed.size(), " entries for ", rest_m.size(), " vertices"));
  }
  ReferenceBody body;
  body.mass_kg_.assign(rest_m.size(), 0.0);
  for (size_t t = 0; t < tets.size(); ++t) {
    Element element;
    element.tet = tets[t];
    for (const uint32_t v : tets[t].vertices) {
      if (v >= rest_m.size())
        return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": vertex ", v, " is outside [0, ", rest_m.size(), ")"));
    }
    Matrix3d edges;
    for (int k = 0; k < 3; ++k) edges.col(k) = rest_m[tets[t].vertices[static_cast<size_t>(k) + 1]] - rest_m[tets[t].vertices[0]];
    element.volume_m3 = edges.determinant() / 6;
    if (!(element.volume_m3 > 0)) {
      return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": volume ", element.volume_m3, " m^3 is not positive"));
    }
    element.gradients.bottomRows<3>() = edges.inverse();
    element.gradients.row(0) = -element.gradients.bottomRows<3>().colwise().sum();
    for (const uint32_t v : tets[t].vertices) body.mass_kg_[v] += element.volume_m3 * tets[t].density_kg_per_m3 / 4;
    body.elements_.push_back(element);
  }
  for (const uint8_t f : fixed) body.free_count_ += f == 0 ? 1 : 0;
  body.rest_m_ = std::move(rest_m);
  body.fixed_ = std::move(fixed);
  return body;
}

Eigen::VectorXd ReferenceBody::Rest() const {
  Eigen::VectorXd x(3 * static_cast<Eigen::Index>(rest_m_.size()));
  for (size_t v = 0; v < rest_m_.size(); ++v) x.segment<3>(3 * static_cast<Eigen::Index>(v)) = rest_m_[v];
  return x;
}

Eigen::Matrix<double, 3, 4> ReferenceBody::Corners(const Element& element, const Eigen::VectorXd& x) const {
  Eigen::Matrix<double, 3, 4> corners;
  for (int k = 0; k < 4; ++k) corners.col(k) = x.segment<3>(3 * static_cast<Eigen::Index>(element.tet.vertices[static_cast<size_t>(k)]));
  return corners;
}

double ReferenceBody::Energy(const Eigen::VectorXd& x) const {
  double sum = 0;
  for (const Element& element : elements_) {
    const Eigen::Matrix<double, 3, 4> corners = Corners(element, x);
    if (element.tet.model != MaterialModel::kMassSpring) {
      sum += element.volume_m3 * Density(element.tet, corners * element.gradients);
      continue;
    }
    for (const auto& [a, b] : kEdges) {
      const double rest =
          (rest_m_[element.tet.vertices[static_cast<size_t>(b)]] - rest_m_[element.tet.vertices[static_cast<size_t>(a)]]).norm();
      const double stretch = (corners.col(b) - corners.col(a)).norm() - rest;
      sum += SpringConstant(element.tet, element.volume_m3, rest) * stretch * stretch / 2;
    }
  }
  return sum;
}

Eigen::VectorXd ReferenceBody::Forces(const Eigen::VectorXd& x) const {
  Eigen::VectorXd forces = Eigen::VectorXd::Zero(x.size());
  for (const Element& element : elements_) {
    const Eigen::Matrix<double, 3, 4> corners = Corners(element, x);
    Eigen::Matrix<double, 3, 4> f = Eigen::Matrix<double, 3, 4>::Zero();
    if (element.tet.model != MaterialModel::kMassSpring) {
      f = -element.volume_m3 * Stress(element.tet, corners * element.gradients) * element.gradients.transpose();
    } else {
      for (const auto& [a, b] : kEdges) {
        const double rest =
            (rest_m_[element.tet.vertices[static_cast<size_t>(b)]] - rest_m_[element.tet.vertices[static_cast<size_t>(a)]]).norm();
        const Vector3d d = corners.col(b) - corners.col(a);
        const Vector3d pull = SpringConstant(element.tet, element.volume_m3, rest) * (d.norm() - rest) * d.normalized();
        f.col(a) += pull;
        f.col(b) -= pull;
      }
    }
    for (int k = 0; k < 4; ++k) {
      forces.segment<3>(3 * static_cast<Eigen::Index>(element.tet.vertices[static_cast<size_t>(k)])) += f.col(k);
    }
  }
  return forces;
}

ReferenceBody::Matrix12 ReferenceBody::ElementStiffness(const Element& element, const Eigen::VectorXd& x) const {
  const Eigen::Matrix<double, 3, 4> corners = Corners(element, x);
  Matrix12 k = Matrix12::Zero();
  if (element.tet.model != MaterialModel::kMassSpring) {
    const Matrix3d f = corners * element.gradients;
    for (int column = 0; column < 12; ++column) {
      Matrix3d df = Matrix3d::Zero();
      df.row(column % 3) = element.gradients.row(column / 3);
      const Eigen::Matrix<double, 3, 4> change = element.volume_m3 * StressChange(element.tet, f, df) * element.gradients.transpose();
      for (int row = 0; row < 12; ++row) k(row, column) = change(row % 3, row / 3);
    }
    return k;
  }
  for (const auto& [a, b] : kEdges) {
    const double rest =
        (rest_m_[element.tet.vertices[static_cast<size_t>(b)]] - rest_m_[element.tet.vertices[static_cast<size_t>(a)]]).norm();
    const Vector3d d = corners.col(b) - corners.col(a);
    const Vector3d n = d.normalized();
    const double slack = 1 - rest / d.norm();
    const Matrix3d block =
        SpringConstant(element.tet, element.volume_m3, rest) * (n * n.transpose() + slack * (Matrix3d::Identity() - n * n.transpose()));
    k.block<3, 3>(3 * a, 3 * a) += block;
    k.block<3, 3>(3 * b, 3 * b) += block;
    k.block<3, 3>(3 * a, 3 * b) -= block;
    k.block<3, 3>(3 * b, 3 * a) -= block;
  }
  return k;
}

Eigen::SparseMatrix<double> ReferenceBody::Stiffness(const Eigen::VectorXd& x, bool projected) const {
  std::vector<Eigen::Triplet<double>> entries;
  entries.reserve(elements_.size() * 144);
  for (const Element& element : elements_) {
    Matrix12 k = ElementStiffness(element, x);
    if (projected) {
      const Eigen::SelfAdjointEigenSolver<Matrix12> eigen((k + k.transpose()) / 2);
      if (eigen.eigenvalues()[0] < 0) {
        k = eigen.eigenvectors() * eigen.eigenvalues().cwiseMax(0.0).asDiagonal() * eigen.eigenvectors().transpose();
      }
    }
    for (int row = 0; row < 12; ++row) {
      const uint32_t v = element.tet.vertices[static_cast<size_t>(row / 3)];
      if (is_fixed(v)) continue;
      for (int column = 0; column < 12; ++column) {
        const uint32_t w = element.tet.vertices[static_cast<size_t>(column / 3)];
        if (is_fixed(w)) continue;
        entries.emplace_back(static_cast<int>(3 * v) + row % 3, static_cast<int>(3 * w) + column % 3, k(row, column));
      }
    }
  }
  Eigen::SparseMatrix<double> matrix(x.size(), x.size());
  matrix.setFromTriplets(entries.begin(), entries.end());
  return matrix;
}

}  // namespace palpate::sim
