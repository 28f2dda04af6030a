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
  /// Node-smoothed: a quarter of mu acts on each tet, the rest on the mean deformation gradients around the vertices.
  bool is_smoothed = false;
};

/// Static equilibrium by Newton's method with a line search on the energy.
class NewtonStatics {
 public:
  explicit NewtonStatics(OracleBody body) : body_(std::move(body)) {
    const double mu = body_.young_modulus_pa / (2 * (1 + body_.poisson_ratio));
    const double lambda = body_.young_modulus_pa * body_.poisson_ratio / ((1 + body_.poisson_ratio) * (1 - 2 * body_.poisson_ratio));
    mass_kg.assign(body_.rest_m.size(), 0.0);
    std::vector<Element> around(body_.rest_m.size());  // mean over the tets around a vertex, gradients times volume at first
    for (const auto& tet : body_.tets) {
      Eigen::Matrix3d edges;
      for (int k = 0; k < 3; ++k) edges.col(k) = body_.rest_m[tet[k + 1]] - body_.rest_m[tet[0]];
      const Eigen::Matrix3d inverse = edges.inverse();
      Element& element = elements_.emplace_back();
      element.vertices.assign(tet.begin(), tet.end());
      element.gradients.emplace_back(-inverse.colwise().sum().transpose());
      for (int k = 0; k < 3; ++k) element.gradients.emplace_back(inverse.row(k).transpose());
      element.volume_m3 = edges.determinant() / 6;
      element.law = body_.is_smoothed ? Law{mu / 4, 0} : Law{mu, lambda};
      for (const uint32_t v : tet) {
        mass_kg[v] += element.volume_m3 * body_.density_kg_per_m3 / 4;
        around[v].volume_m3 += element.volume_m3 / 4;
        for (size_t k = 0; k < 4; ++k) around[v].At(tet[k]) += element.volume_m3 / 4 * element.gradients[k];
      }
    }
    for (Element& domain : around) {
      if (!body_.is_smoothed) break;
      for (Eigen::Vector3d& g : domain.gradients) g /= domain.volume_m3;
      domain.law = {0.75 * mu, lambda};
      elements_.push_back(std::move(domain));
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
    for (const Element& e : elements_) {
      const Eigen::Matrix3d stress = Stress(e.law, DeformationGradient(e));
      for (size_t k = 0; k < e.vertices.size(); ++k) forces[e.vertices[k]] -= e.volume_m3 * stress * e.gradients[k];
    }
    return forces;
  }

  double Energy() const {
    double sum = 0;
    for (const Element& e : elements_) sum += e.volume_m3 * Density(e.law, DeformationGradient(e));
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
    for (size_t t = 0; t < body_.tets.size(); ++t) sum += elements_[t].volume_m3 * DeformationGradient(elements_[t]).determinant();
    return sum;
  }

 private:
  struct Law {
    double mu_pa = 0, lambda_pa = 0;
  };

  /// What has one deformation gradient: a tet, or the tets around a vertex with their mean. Tets come first.
  struct Element {
    std::vector<uint32_t> vertices;
    std::vector<Eigen::Vector3d> gradients;  ///< at rest, of the shape functions or their means
    double volume_m3 = 0;
    Law law;

    Eigen::Vector3d& At(uint32_t vertex) {
      for (size_t k = 0; k < vertices.size(); ++k) {
        if (vertices[k] == vertex) return gradients[k];
      }
      vertices.push_back(vertex);
      return gradients.emplace_back(Eigen::Vector3d::Zero());
    }
  };

  Eigen::Matrix3d DeformationGradient(const Element& e) const {
    Eigen::Matrix3d f = Eigen::Matrix3d::Zero();
    for (size_t k = 0; k < e.vertices.size(); ++k) f += x_m[e.vertices[k]] * e.gradients[k].transpose();
    return f;
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

  double Density(const Law& law, const Eigen::Matrix3d& f) const {
    if (body_.model == OracleModel::kSmallStrain) {
      const Eigen::Matrix3d e = (f + f.transpose()) / 2 - Eigen::Matrix3d::Identity();
      return law.mu_pa * e.squaredNorm() + law.lambda_pa / 2 * e.trace() * e.trace();
    }
    Eigen::Matrix3d u, v;
    Eigen::Vector3d s;
    ProperSvd(f, &u, &s, &v);
    if (body_.model == OracleModel::kCorotated) {
      const Eigen::Vector3d e = s - Eigen::Vector3d::Ones();
      return law.mu_pa * e.squaredNorm() + law.lambda_pa / 2 * e.sum() * e.sum();
    }
    const double j = s.prod();
    return law.mu_pa / 2 * (s.squaredNorm() - 3) - law.mu_pa * (j - 1) + (law.lambda_pa + law.mu_pa) / 2 * (j - 1) * (j - 1);
  }

  Eigen::Matrix3d Stress(const Law& law, const Eigen::Matrix3d& f) const {
    if (body_.model == OracleModel::kSmallStrain) {
      const Eigen::Matrix3d e = (f + f.transpose()) / 2 - Eigen::Matrix3d::Identity();
      return 2 * law.mu_pa * e + law.lambda_pa * e.trace() * Eigen::Matrix3d::Identity();
    }
    Eigen::Matrix3d u, v;
    Eigen::Vector3d s, p;
    ProperSvd(f, &u, &s, &v);
    Principal(law, s, &p, nullptr);
    return u * p.asDiagonal() * v.transpose();
  }

  /// Derivatives of the density by the principal stretches.
  void Principal(const Law& law, const Eigen::Vector3d& s, Eigen::Vector3d* gradient, Eigen::Matrix3d* hessian) const {
    const double j = s.prod();
    const Eigen::Vector3d other(s[1] * s[2], s[0] * s[2], s[0] * s[1]);
    for (int i = 0; i < 3; ++i) {
      if (body_.model == OracleModel::kCorotated) {
        (*gradient)[i] = 2 * law.mu_pa * (s[i] - 1) + law.lambda_pa * (s.sum() - 3);
      } else {
        (*gradient)[i] = law.mu_pa * s[i] + ((law.lambda_pa + law.mu_pa) * (j - 1) - law.mu_pa) * other[i];
      }
      for (int k = 0; hessian != nullptr && k < 3; ++k) {
        if (body_.model == OracleModel::kCorotated) {
          (*hessian)(i, k) = (i == k ? 2 * law.mu_pa : 0) + law.lambda_pa;
        } else {
          (*hessian)(i, k) = (i == k ? law.mu_pa : ((law.lambda_pa + law.mu_pa) * (j - 1) - law.mu_pa) * s[3 - i - k]) +
                             (law.lambda_pa + law.mu_pa) * other[i] * other[k];
        }
      }
    }
  }

  /// d Stress / d F as a 9 x 9 matrix over column-major F, made positive semidefinite.
  Eigen::Matrix<double, 9, 9> StressDerivative(const Law& law, const Eigen::Matrix3d& f) const {
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
          result.col(i + 3 * k) = flat(2 * law.mu_pa * e + law.lambda_pa * e.trace() * Eigen::Matrix3d::Identity());
        }
      }
      return result;
    }
    Eigen::Matrix3d u, v, stretch;
    Eigen::Vector3d s, p;
    ProperSvd(f, &u, &s, &v);
    Principal(law, s, &p, &stretch);
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
    for (const Element& e : elements_) {
      // dF = sum_k dx_k g_k^T: column-major, dF_(i + 3 j) = dx_k,i g_k,j.
      const auto columns = static_cast<Eigen::Index>(3 * e.vertices.size());
      Eigen::Matrix<double, 9, Eigen::Dynamic> b = Eigen::Matrix<double, 9, Eigen::Dynamic>::Zero(9, columns);
      for (Eigen::Index c = 0; c < columns; ++c) {
        for (int j = 0; j < 3; ++j) b(c % 3 + 3 * j, c) = e.gradients[static_cast<size_t>(c / 3)][j];
      }
      const Eigen::MatrixXd element = e.volume_m3 * b.transpose() * StressDerivative(e.law, DeformationGradient(e)) * b;
      for (Eigen::Index row = 0; row < columns; ++row) {
        const size_t r = size_t{3} * e.vertices[static_cast<size_t>(row / 3)] + static_cast<size_t>(row % 3);
        if (held[r]) continue;
        for (Eigen::Index column = 0; column < columns; ++column) {
          const size_t c = size_t{3} * e.vertices[static_cast<size_t>(column / 3)] + static_cast<size_t>(column % 3);
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
  std::vector<Element> elements_;
};

}  // namespace palpate::test
