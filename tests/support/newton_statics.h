#pragma once

#include <Eigen/Dense>
#include <Eigen/SparseCholesky>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace palpate::test {

enum class OracleModel { kNeoHookean, kCorotated, kSmallStrain };

/// A body of linear tetrahedra in double precision: an implementation of the energies of docs/algorithms/tissue.md that shares nothing with
/// the device (dense 12 x 12 element matrices, derivatives by the chain rule through the singular values).
struct OracleBody {
  std::vector<Eigen::Vector3d> rest_m;
  std::vector<std::array<uint32_t, 4>> tets;
  double young_modulus_pa = 0;
  double poisson_ratio = 0;
  double density_kg_per_m3 = 0;
  OracleModel model = OracleModel::kNeoHookean;
};

/// Static equilibrium by Newton's method with a line search on the energy.
class NewtonStatics {
 public:
  explicit NewtonStatics(OracleBody body) : body_(std::move(body)) {
    mu_ = body_.young_modulus_pa / (2 * (1 + body_.poisson_ratio));
    lambda_ = body_.young_modulus_pa * body_.poisson_ratio / ((1 + body_.poisson_ratio) * (1 - 2 * body_.poisson_ratio));
    mass_kg.assign(body_.rest_m.size(), 0.0);
    for (const auto& tet : body_.tets) {
      Eigen::Matrix3d edges;
      for (int k = 0; k < 3; ++k) edges.col(k) = body_.rest_m[tet[k + 1]] - body_.rest_m[tet[0]];
      const Eigen::Matrix3d inverse = edges.inverse();
      Eigen::Matrix<double, 4, 3> g;
      g.bottomRows<3>() = inverse;
      g.row(0) = -inverse.colwise().sum();
      gradients_.push_back(g);
      volume_.push_back(edges.determinant() / 6);
      for (const uint32_t v : tet) mass_kg[v] += volume_.back() * body_.density_kg_per_m3 / 4;
    }
    x_m = body_.rest_m;
    held.assign(3 * x_m.size(), 0);
    load_n.assign(x_m.size(), Eigen::Vector3d::Zero());
  }

  std::vector<Eigen::Vector3d> x_m;     ///< the state
  std::vector<uint8_t> held;            ///< [3 * vertices], 1 = this coordinate does not move
  std::vector<Eigen::Vector3d> load_n;  ///< dead loads
  std::vector<double> mass_kg;          ///< lumped

  /// Elastic forces, those of the loads not included.
  std::vector<Eigen::Vector3d> Forces() const {
    std::vector<Eigen::Vector3d> forces(x_m.size(), Eigen::Vector3d::Zero());
    for (size_t t = 0; t < body_.tets.size(); ++t) {
      const Eigen::Matrix<double, 3, 4> f = -volume_[t] * Stress(DeformationGradient(t)) * gradients_[t].transpose();
      for (int k = 0; k < 4; ++k) forces[body_.tets[t][k]] += f.col(k);
    }
    return forces;
  }

  double Energy() const {
    double sum = 0;
    for (size_t t = 0; t < body_.tets.size(); ++t) sum += volume_[t] * Density(DeformationGradient(t));
    for (size_t v = 0; v < x_m.size(); ++v) sum -= load_n[v].dot(x_m[v] - body_.rest_m[v]);
    return sum;
  }

  /// Moves to the equilibrium nearest downhill. Returns the final residual [N] (largest component over the coordinates that move).
  double Solve(int max_iterations = 60, double tolerance_n = 1e-11) {
    const auto n = static_cast<Eigen::Index>(3 * x_m.size());
    double residual = 0;
    for (int iteration = 0; iteration <= max_iterations; ++iteration) {
      const std::vector<Eigen::Vector3d> forces = Forces();
      Eigen::VectorXd rhs = Eigen::VectorXd::Zero(n);
      for (Eigen::Index i = 0; i < n; ++i) {
        if (!held[static_cast<size_t>(i)]) rhs[i] = forces[static_cast<size_t>(i / 3)][i % 3] + load_n[static_cast<size_t>(i / 3)][i % 3];
      }
      residual = rhs.cwiseAbs().maxCoeff();
      if (residual < tolerance_n || iteration == max_iterations) return residual;
      Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>> solver(Stiffness());
      const Eigen::VectorXd step = solver.solve(rhs);
      const double slope = step.dot(rhs);
      const double energy = Energy();
      const std::vector<Eigen::Vector3d> before = x_m;
      double length = 1;
      for (int halving = 0; halving < 30; ++halving, length /= 2) {
        for (Eigen::Index i = 0; i < n; ++i)
          x_m[static_cast<size_t>(i / 3)][i % 3] = before[static_cast<size_t>(i / 3)][i % 3] + length * step[i];
        const double noise = 1e-13 * std::abs(energy);
        if (Energy() <= energy - 1e-4 * length * slope + noise) break;
      }
    }
    return residual;
  }

  double volume_m3() const {
    double sum = 0;
    for (size_t t = 0; t < body_.tets.size(); ++t) sum += volume_[t] * DeformationGradient(t).determinant();
    return sum;
  }

 private:
  Eigen::Matrix3d DeformationGradient(size_t t) const {
    Eigen::Matrix<double, 3, 4> x;
    for (int k = 0; k < 4; ++k) x.col(k) = x_m[body_.tets[t][k]];
    return x * gradients_[t];
  }

  /// F = u diag(s) v^T with proper rotations u and v; the last of s carries the sign of det F.
  static void ProperSvd(const Eigen::Matrix3d& f, Eigen::Matrix3d* u, Eigen::Vector3d* s, Eigen::Matrix3d* v) {
    const Eigen::JacobiSVD<Eigen::Matrix3d> svd(f, Eigen::ComputeFullU | Eigen::ComputeFullV);
    *u = svd.matrixU();
    *v = svd.matrixV();
    *s = svd.singularValues();
    if (u->determinant() < 0) {
      u->col(2) *= -1;
      (*s)[2] *= -1;
    }
    if (v->determinant() < 0) {
      v->col(2) *= -1;
      (*s)[2] *= -1;
    }
  }

  double Density(const Eigen::Matrix3d& f) const {
    if (body_.model == OracleModel::kSmallStrain) {
      const Eigen::Matrix3d e = (f + f.transpose()) / 2 - Eigen::Matrix3d::Identity();
      return mu_ * e.squaredNorm() + lambda_ / 2 * e.trace() * e.trace();
    }
    Eigen::Matrix3d u, v;
    Eigen::Vector3d s;
    ProperSvd(f, &u, &s, &v);
    if (body_.model == OracleModel::kCorotated) {
      const Eigen::Vector3d e = s - Eigen::Vector3d::Ones();
      return mu_ * e.squaredNorm() + lambda_ / 2 * e.sum() * e.sum();
    }
    const double j = s.prod();
    return mu_ / 2 * (s.squaredNorm() - 3) - mu_ * (j - 1) + (lambda_ + mu_) / 2 * (j - 1) * (j - 1);
  }

  Eigen::Matrix3d Stress(const Eigen::Matrix3d& f) const {
    if (body_.model == OracleModel::kSmallStrain) {
      const Eigen::Matrix3d e = (f + f.transpose()) / 2 - Eigen::Matrix3d::Identity();
      return 2 * mu_ * e + lambda_ * e.trace() * Eigen::Matrix3d::Identity();
    }
    Eigen::Matrix3d u, v;
    Eigen::Vector3d s, p;
    ProperSvd(f, &u, &s, &v);
    Principal(s, &p, nullptr);
    return u * p.asDiagonal() * v.transpose();
  }

  /// Derivatives of the density by the principal stretches.
  void Principal(const Eigen::Vector3d& s, Eigen::Vector3d* gradient, Eigen::Matrix3d* hessian) const {
    const double j = s.prod();
    const Eigen::Vector3d other(s[1] * s[2], s[0] * s[2], s[0] * s[1]);
    for (int i = 0; i < 3; ++i) {
      if (body_.model == OracleModel::kCorotated) {
        (*gradient)[i] = 2 * mu_ * (s[i] - 1) + lambda_ * (s.sum() - 3);
      } else {
        (*gradient)[i] = mu_ * s[i] + ((lambda_ + mu_) * (j - 1) - mu_) * other[i];
      }
      for (int k = 0; hessian != nullptr && k < 3; ++k) {
        if (body_.model == OracleModel::kCorotated) {
          (*hessian)(i, k) = (i == k ? 2 * mu_ : 0) + lambda_;
        } else {
          (*hessian)(i, k) = (i == k ? mu_ : ((lambda_ + mu_) * (j - 1) - mu_) * s[3 - i - k]) + (lambda_ + mu_) * other[i] * other[k];
        }
      }
    }
  }

  /// d Stress / d F as a 9 x 9 matrix over column-major F, made positive semidefinite.
  Eigen::Matrix<double, 9, 9> StressDerivative(const Eigen::Matrix3d& f) const {
    using Matrix9 = Eigen::Matrix<double, 9, 9>;
    using Vector9 = Eigen::Matrix<double, 9, 1>;
    const auto flat = [](const Eigen::Matrix3d& m) { return Vector9(Eigen::Map<const Vector9>(m.data())); };
    Matrix9 result = Matrix9::Zero();
    if (body_.model == OracleModel::kSmallStrain) {
      for (int i = 0; i < 3; ++i) {
        for (int k = 0; k < 3; ++k) {
          Eigen::Matrix3d unit = Eigen::Matrix3d::Zero();
          unit(i, k) = 1;
          const Eigen::Matrix3d e = (unit + unit.transpose()) / 2;
          result.col(i + 3 * k) = flat(2 * mu_ * e + lambda_ * e.trace() * Eigen::Matrix3d::Identity());
        }
      }
      return result;
    }
    Eigen::Matrix3d u, v, stretch;
    Eigen::Vector3d s, p;
    ProperSvd(f, &u, &s, &v);
    Principal(s, &p, &stretch);
    // Stretches: a 3 x 3 block in the basis u_i v_i^T. Twists and flips of each pair of axes: one eigenvalue each.
    Eigen::SelfAdjointEigenSolver<Eigen::Matrix3d> eigen(stretch);
    for (int m = 0; m < 3; ++m) {
      const Eigen::Vector3d mode = eigen.eigenvectors().col(m);
      const Vector9 q = flat(u * mode.asDiagonal() * v.transpose());
      result += std::max(eigen.eigenvalues()[m], 0.0) * q * q.transpose();
    }
    for (int i = 0; i < 3; ++i) {
      const int a = (i + 1) % 3, b = (i + 2) % 3;
      for (const double sign : {1.0, -1.0}) {
        Eigen::Matrix3d unit = Eigen::Matrix3d::Zero();
        unit(a, b) = std::sqrt(0.5);
        unit(b, a) = sign * std::sqrt(0.5);
        double value = 0;
        if (sign < 0) {
          const double sum = s[a] + s[b];
          value = std::abs(sum) > 1e-9 ? (p[a] + p[b]) / sum : 0;
        } else {
          const double difference = s[a] - s[b];
          value = std::abs(difference) > 1e-7 ? (p[a] - p[b]) / difference : stretch(a, a) - stretch(a, b);
        }
        const Vector9 q = flat(u * unit * v.transpose());
        result += std::max(value, 0.0) * q * q.transpose();
      }
    }
    return result;
  }

  Eigen::SparseMatrix<double> Stiffness() const {
    std::vector<Eigen::Triplet<double>> entries;
    entries.reserve(body_.tets.size() * 144 + held.size());
    for (size_t t = 0; t < body_.tets.size(); ++t) {
      // dF = sum_k dx_k g_k^T: column-major, dF_(i + 3 j) = dx_k,i g_k,j.
      Eigen::Matrix<double, 9, 12> b = Eigen::Matrix<double, 9, 12>::Zero();
      for (int k = 0; k < 4; ++k) {
        for (int j = 0; j < 3; ++j) {
          for (int i = 0; i < 3; ++i) b(i + 3 * j, 3 * k + i) = gradients_[t](k, j);
        }
      }
      const Eigen::Matrix<double, 12, 12> element = volume_[t] * b.transpose() * StressDerivative(DeformationGradient(t)) * b;
      for (int row = 0; row < 12; ++row) {
        const uint32_t r = 3 * body_.tets[t][row / 3] + row % 3;
        if (held[r]) continue;
        for (int column = 0; column < 12; ++column) {
          const uint32_t c = 3 * body_.tets[t][column / 3] + column % 3;
          if (!held[c]) entries.emplace_back(r, c, element(row, column));
        }
      }
    }
    for (size_t i = 0; i < held.size(); ++i) {
      if (held[i]) entries.emplace_back(i, i, 1.0);
    }
    const auto n = static_cast<Eigen::Index>(held.size());
    Eigen::SparseMatrix<double> matrix(n, n);
    matrix.setFromTriplets(entries.begin(), entries.end());
    return matrix;
  }

  OracleBody body_;
  double mu_ = 0;
  double lambda_ = 0;
  std::vector<Eigen::Matrix<double, 4, 3>> gradients_;  // rows: rest gradients of the shape functions
  std::vector<double> volume_;
};

}  // namespace palpate::test
