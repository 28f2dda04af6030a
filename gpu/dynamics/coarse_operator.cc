#include "gpu/dynamics/coarse_operator.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "gpu/dynamics/layout_entries.h"
#include "gpu/dynamics/smoothing_domains.h"

namespace palpate::gpu {
namespace {

using Eigen::Matrix3d;
using Eigen::MatrixXd;
using Eigen::Vector3d;
using Eigen::VectorXd;

constexpr double kRidge = 1e-5;        // of the diagonal
constexpr int kPowerIterations = 16;   // of the spectral radius
constexpr double kRadiusMargin = 1.1;  // what so many leave out of it, and to spare

/// The lower triangle of the inverse of a symmetric positive definite matrix: L'^-1 L^-1, in blocks of columns that leave out what is zero.
MatrixXd InvertLower(const MatrixXd& a) {
  constexpr Eigen::Index kColumns = 96;
  const Eigen::Index n = a.rows();
  const Eigen::LLT<MatrixXd> factor(a);
  MatrixXd lower = MatrixXd::Identity(n, n);
  for (Eigen::Index j = 0; j < n; j += kColumns) {
    auto columns = lower.block(j, j, n - j, std::min(kColumns, n - j));
    factor.matrixLLT().block(j, j, n - j, n - j).triangularView<Eigen::Lower>().solveInPlace(columns);
  }
  MatrixXd inverse(n, n);
  for (Eigen::Index j = 0; j < n; j += kColumns) {
    const Eigen::Index width = std::min(kColumns, n - j);
    inverse.block(j, 0, width, j + width).noalias() = lower.block(j, j, n - j, width).transpose() * lower.block(j, 0, n - j, j + width);
  }
  return inverse;
}

/// Largest eigenvalue of D^-1 A, from below, times a margin.
double SpectralRadius(const CoarseOperator& op, const std::vector<Matrix3d>& inverse_diagonal) {
  const uint32_t n = op.node_count();
  std::vector<Vector3d> x(n), y(n);
  for (uint32_t i = 0; i < n; ++i) x[i] = Vector3d(std::sin(1.0 + i), std::sin(2.0 + 3.0 * i), std::cos(1.0 + 5.0 * i));
  double radius = 1;
  for (int k = 0; k < kPowerIterations; ++k) {
    double before_sq = 0;
    double after_sq = 0;
    for (uint32_t i = 0; i < n; ++i) {
      Vector3d sum = Vector3d::Zero();
      for (const auto& [column, block] : op.row(i)) sum += block * x[column];
      y[i] = inverse_diagonal[i] * sum;
      before_sq += x[i].squaredNorm();
      after_sq += y[i].squaredNorm();
    }
    radius = std::sqrt(after_sq / before_sq);
    for (uint32_t i = 0; i < n; ++i) x[i] = y[i] / radius;
  }
  return kRadiusMargin * radius;
}

void AppendColumns(const Matrix3d& block, std::vector<Float4>* out) {
  for (int c = 0; c < 3; ++c) {
    out->push_back({static_cast<float>(block(0, c)), static_cast<float>(block(1, c)), static_cast<float>(block(2, c)), 0});
  }
}

using Blocks = std::vector<std::pair<uint32_t, Matrix3d>>;

/// Sums blocks by column, in the order in which columns come first.
class RowSum {
 public:
  explicit RowSum(size_t columns) : place_(columns, kNone) {}

  Matrix3d& At(uint32_t column) {
    if (place_[column] == kNone) {
      place_[column] = static_cast<uint32_t>(blocks_.size());
      blocks_.emplace_back(column, Matrix3d::Zero());
    }
    return blocks_[place_[column]].second;
  }
  /// What was summed; the next row begins with none.
  Blocks Take() {
    for (const auto& [column, block] : blocks_) place_[column] = kNone;
    return std::exchange(blocks_, {});
  }

 private:
  static constexpr uint32_t kNone = 0xffffffffU;
  std::vector<uint32_t> place_;
  Blocks blocks_;
};

/// Gradients at rest of the nodes that the vertices of a tet or of a smoothing domain hang on, and its moduli.
struct NodeGradients {
  std::vector<std::pair<uint32_t, Vector3d>> nodes;
  double mu = 0, lambda = 0;  // times volume, viscosity included

  void Add(const CoarseHold& hold, uint32_t node_begin, const Vector3d& gradient) {
    for (uint32_t i = 0; i < kCoarseCorners; ++i) {
      if (hold.weights[i] == 0) continue;
      const uint32_t node = hold.nodes[i] - node_begin;
      const auto same = std::find_if(nodes.begin(), nodes.end(), [&](const auto& e) { return e.first == node; });
      if (same != nodes.end()) {
        same->second += hold.weights[i] * gradient;
      } else {
        nodes.emplace_back(node, hold.weights[i] * gradient);
      }
    }
  }
  Matrix3d Block(const Vector3d& a, const Vector3d& b) const {
    return mu * (a.dot(b) * Matrix3d::Identity() + b * a.transpose()) + lambda * a * b.transpose();
  }
};

/// A tet at rest, as far as its energy is its own.
struct RestGradients : NodeGradients {
  std::array<Vector3d, 4> corners;

  void Set(const TissueModel& model, const TissueTet& tet, double dt_s, uint32_t node_begin, std::span<const CoarseHold> holds) {
    const auto rest = [&](size_t c) { return Vector3d(model.rest_m[tet.vertices[c]].data()); };
    Matrix3d edges;
    for (size_t c = 1; c < 4; ++c) edges.col(static_cast<Eigen::Index>(c) - 1) = rest(c) - rest(0);
    const Matrix3d inverse = edges.inverse();
    corners[0] = -inverse.colwise().sum().transpose();
    for (size_t c = 1; c < 4; ++c) corners[c] = inverse.row(static_cast<Eigen::Index>(c) - 1).transpose();
    nodes.clear();
    for (size_t c = 0; c < 4; ++c) Add(holds[tet.vertices[c]], node_begin, corners[c]);
    const double scale = edges.determinant() / 6 * (1 + tet.damping_s / dt_s);
    mu = scale * LayoutEntries::OwnMu(tet);
    lambda = scale * LayoutEntries::OwnLambda(tet);
  }
};

/// A smoothing domain: gradients of its vertices, and what tets leave to it.
struct DomainGradients : NodeGradients {
  std::vector<std::pair<uint32_t, Vector3d>> vertices;  // caller's

  DomainGradients(const TissueModel& model, const SmoothingDomain& domain, double dt_s, uint32_t node_begin,
                  std::span<const CoarseHold> holds) {
    for (size_t j = 0; j < domain.vertices.size(); ++j) {
      const Vector3d gradient = Vector3d(domain.gradients[j].data()) / domain.volume_m3;
      vertices.emplace_back(domain.vertices[j], gradient);
      Add(holds[domain.vertices[j]], node_begin, gradient);
    }
    const TissueTet& law = model.tets[domain.law];
    const double scale = domain.volume_m3 * (1 + law.damping_s / dt_s);
    mu = scale * (1 - PALPATE_SMOOTHING_SHARE) * law.mu_pa;
    lambda = scale * law.lambda_pa;
  }
};

/// For each of `vertices`, which rise, which of `count` elements it is in: begins and elements. vertices_of(k): those of element k.
std::pair<std::vector<uint32_t>, std::vector<uint32_t>> ElementsAround(std::span<const uint32_t> vertices, size_t count,
                                                                       const auto& vertices_of) {
  std::vector<uint32_t> begins(vertices.size() + 1, 0);
  const auto place = [&](uint32_t v) {
    return static_cast<size_t>(std::lower_bound(vertices.begin(), vertices.end(), v) - vertices.begin());
  };
  for (size_t k = 0; k < count; ++k) {
    for (const uint32_t v : vertices_of(k)) ++begins[place(v) + 1];
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<uint32_t> around(begins.back());
  std::vector<uint32_t> next(begins.begin(), begins.end() - 1);
  for (uint32_t k = 0; k < count; ++k) {
    for (const uint32_t v : vertices_of(k)) around[next[place(v)]++] = k;
  }
  return {std::move(begins), std::move(around)};
}

}  // namespace

Matrix3d& CoarseOperator::At(uint32_t row, uint32_t column) {
  std::vector<std::pair<uint32_t, Matrix3d>>& entries = rows_[row];
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.first == column; });
  return found != entries.end() ? found->second : entries.emplace_back(column, Matrix3d::Zero()).second;
}

CoarseOperator CoarseOperator::Assemble(const TissueModel& model, const TissueLayout& layout, double dt_s,
                                        std::span<const uint32_t> vertices, std::span<const uint32_t> tets, const CoarsePart& part,
                                        std::span<const CoarseHold> holds) {
  std::vector<RestGradients> gradients(tets.size());
  for (size_t t = 0; t < tets.size(); ++t) gradients[t].Set(model, model.tets[tets[t]], dt_s, part.node_begin, holds);
  const auto [begins, around] = ElementsAround(
      vertices, tets.size(), [&](size_t t) -> const auto& { return model.tets[tets[t]].vertices; });
  std::vector<DomainGradients> domains;
  const std::vector<SmoothingDomain> found = FindSmoothingDomains(model, tets);
  domains.reserve(found.size());
  for (const SmoothingDomain& domain : found) domains.emplace_back(model, domain, dt_s, part.node_begin, holds);
  const auto [domain_begins, domains_around] = ElementsAround(
      vertices, found.size(), [&](size_t k) -> const auto& { return found[k].vertices; });
  // H P by rows of vertices, then P' times that by rows of nodes.
  RowSum sum(part.node_count);
  std::vector<Blocks> vertex_rows(vertices.size());
  std::vector<std::vector<std::pair<uint32_t, double>>> held(part.node_count);  // vertices that hang on a node
  for (uint32_t i = 0; i < vertices.size(); ++i) {
    const CoarseHold& hold = holds[vertices[i]];
    if (std::all_of(hold.weights.begin(), hold.weights.end(), [](double w) { return w == 0; })) continue;
    const SolverSlot slot = layout.solver_index[vertices[i]];
    const double inertia = layout.mass_kg[slot] * (1 + dt_s * layout.mass_damping_per_s[slot]) / (dt_s * dt_s);
    for (uint32_t c = 0; c < kCoarseCorners; ++c) {
      if (hold.weights[c] == 0) continue;
      const uint32_t node = hold.nodes[c] - part.node_begin;
      held[node].emplace_back(i, hold.weights[c]);
      sum.At(node).diagonal().array() += inertia * hold.weights[c];
    }
    for (uint32_t e = begins[i]; e < begins[i + 1]; ++e) {
      const RestGradients& tet = gradients[around[e]];
      const std::array<uint32_t, 4>& corners = model.tets[tets[around[e]]].vertices;
      const auto corner = static_cast<size_t>(std::find(corners.begin(), corners.end(), vertices[i]) - corners.begin());
      for (const auto& [node, gradient] : tet.nodes) sum.At(node) += tet.Block(tet.corners[corner], gradient);
    }
    for (uint32_t e = domain_begins[i]; e < domain_begins[i + 1]; ++e) {
      const DomainGradients& domain = domains[domains_around[e]];
      const auto own = std::find_if(domain.vertices.begin(), domain.vertices.end(), [&](const auto& v) { return v.first == vertices[i]; });
      for (const auto& [node, gradient] : domain.nodes) sum.At(node) += domain.Block(own->second, gradient);
    }
    vertex_rows[i] = sum.Take();
  }
  CoarseOperator op(part.node_count);
  for (uint32_t node = 0; node < part.node_count; ++node) {
    for (const auto& [i, weight] : held[node]) {
      for (const auto& [column, block] : vertex_rows[i]) sum.At(column) += weight * block;
    }
    op.rows_[node] = sum.Take();
  }
  return op;
}

void CoarseOperator::AddRidge() {
  for (uint32_t i = 0; i < node_count(); ++i) At(i, i).diagonal() *= 1 + kRidge;
}

CoarseOperator CoarseOperator::CoarsenedBy(const CoarseStencils& stencils, uint32_t solved_begin) const {
  const size_t fine_begin = stencils.nodes.size() - node_count();
  const auto first = stencils.parents.begin() + static_cast<std::ptrdiff_t>(fine_begin * kCoarseCorners);
  CoarseOperator coarse(*std::max_element(first, stencils.parents.end()) + 1 - solved_begin);
  for (uint32_t i = 0; i < node_count(); ++i) {
    const size_t at_i = (fine_begin + i) * kCoarseCorners;
    for (const auto& [j, block] : rows_[i]) {
      const size_t at_j = (fine_begin + j) * kCoarseCorners;
      for (uint32_t a = 0; a < kCoarseCorners; ++a) {
        for (uint32_t b = 0; b < kCoarseCorners; ++b) {
          const double weight = static_cast<double>(stencils.parent_weights[at_i + a]) * stencils.parent_weights[at_j + b];
          if (weight != 0)
            coarse.At(stencils.parents[at_i + a] - solved_begin, stencils.parents[at_j + b] - solved_begin) += weight * block;
        }
      }
    }
  }
  return coarse;
}

void CoarseOperator::AppendInverse(uint32_t row_floats, std::vector<float>* inverse) const {
  const auto n = static_cast<Eigen::Index>(3 * size_t{node_count()});
  MatrixXd dense = MatrixXd::Zero(n, n);
  for (uint32_t i = 0; i < node_count(); ++i) {
    for (const auto& [j, block] : rows_[i]) dense.block<3, 3>(3 * Eigen::Index{i}, 3 * Eigen::Index{j}) = block;
  }
  const MatrixXd lower = InvertLower(dense);
  const size_t begin = inverse->size();
  inverse->resize(begin + static_cast<size_t>(n) * row_floats, 0.0F);
  for (Eigen::Index r = 0; r < n; ++r) {
    for (Eigen::Index c = 0; c < n; ++c) {
      (*inverse)[begin + static_cast<size_t>(r) * row_floats + static_cast<size_t>(c)] =
          static_cast<float>(lower(std::max(r, c), std::min(r, c)));
    }
  }
}

void AppendStencils(const CoarseOperator& op, std::span<const std::array<int32_t, 3>> cells, const CoarsePart& part,
                    CoarseStencils* stencils) {
  const auto fine_begin = static_cast<uint32_t>(stencils->nodes.size());
  if (stencils->row_begins.empty()) stencils->row_begins.push_back(0);
  std::vector<Matrix3d> inverse_diagonal(op.node_count());
  for (uint32_t i = 0; i < op.node_count(); ++i) {
    stencils->nodes.push_back(part.node_begin + i);
    std::vector<std::pair<uint32_t, Matrix3d>> row = op.row(i);
    std::sort(row.begin(), row.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [column, block] : row) {
      if (column == i) inverse_diagonal[i] = block.inverse();
      stencils->columns.push_back(fine_begin + column);
      AppendColumns(block, &stencils->blocks);
    }
    stencils->row_begins.push_back(static_cast<uint32_t>(stencils->columns.size()));
  }
  const double radius = SpectralRadius(op, inverse_diagonal);
  for (const Matrix3d& block : inverse_diagonal) AppendColumns(block / radius, &stencils->inverse_diagonal);

  // A node halfway between coarser ones hangs on both; ordered, so that numbers do not depend on the order of the search.
  std::map<std::array<int32_t, 3>, uint32_t> solved;
  const auto each_parent = [](const std::array<int32_t, 3>& cell, auto&& use) {
    for (uint32_t c = 0; c < kCoarseCorners; ++c) {
      std::array<int32_t, 3> parent{};
      double weight = 1;
      for (size_t k = 0; k < 3; ++k) {
        const int32_t upper = static_cast<int32_t>(c >> k & 1U);
        parent[k] = (cell[k] >> 1) + upper;
        weight *= (cell[k] & 1) != 0 ? 0.5 : 1.0 - upper;
      }
      use(c, parent, weight);
    }
  };
  for (const auto& cell : cells) {
    each_parent(cell, [&](uint32_t, const std::array<int32_t, 3>& parent, double weight) {
      if (weight > 0) solved.emplace(parent, 0);
    });
  }
  uint32_t next = part.solved_begin;
  for (auto& [cell, number] : solved) number = next++;
  for (const auto& cell : cells) {
    each_parent(cell, [&](uint32_t, const std::array<int32_t, 3>& parent, double weight) {
      stencils->parents.push_back(weight > 0 ? solved.at(parent) : part.solved_begin);
      stencils->parent_weights.push_back(static_cast<float>(weight));
    });
  }
}

void FinishStencils(uint32_t solved_count, CoarseStencils* stencils) {
  CoarseStencils& s = *stencils;
  if (s.row_begins.empty()) s.row_begins.push_back(0);
  s.child_begins.assign(size_t{solved_count} + 1, 0);
  for (size_t e = 0; e < s.parents.size(); ++e) {
    if (s.parent_weights[e] > 0) ++s.child_begins[s.parents[e] + 1];
  }
  std::partial_sum(s.child_begins.begin(), s.child_begins.end(), s.child_begins.begin());
  s.children.resize(s.child_begins.back());
  s.child_weights.resize(s.child_begins.back());
  std::vector<uint32_t> next(s.child_begins.begin(), s.child_begins.end() - 1);
  for (size_t e = 0; e < s.parents.size(); ++e) {
    if (!(s.parent_weights[e] > 0)) continue;
    const uint32_t at = next[s.parents[e]]++;
    s.children[at] = static_cast<uint32_t>(e / kCoarseCorners);
    s.child_weights[at] = s.parent_weights[e];
  }
}

bool IsConsistent(const CoarseStencils& s, size_t node_count, size_t fine_count, size_t solved_count) {
  const auto rises = [](const std::vector<uint32_t>& begins, size_t count, size_t end) {
    return begins.size() == count + 1 && begins.front() == 0 && begins.back() == end && std::is_sorted(begins.begin(), begins.end());
  };
  const auto below = [](const std::vector<uint32_t>& values, size_t bound) {
    return std::all_of(values.begin(), values.end(), [&](uint32_t value) { return value < bound; });
  };
  return s.nodes.size() == fine_count && below(s.nodes, node_count) && rises(s.row_begins, fine_count, s.columns.size()) &&
         below(s.columns, fine_count) && s.blocks.size() == 3 * s.columns.size() && s.inverse_diagonal.size() == 3 * fine_count &&
         s.parents.size() == kCoarseCorners * fine_count && below(s.parents, solved_count) && s.parent_weights.size() == s.parents.size() &&
         rises(s.child_begins, solved_count, s.children.size()) && below(s.children, fine_count) &&
         s.child_weights.size() == s.children.size();
}

}  // namespace palpate::gpu
