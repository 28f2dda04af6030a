#include "gpu/dynamics/shape_clusters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"
#include "gpu/dynamics/layout_entries.h"
#include "gpu/dynamics/symmetric_eigen.h"

namespace palpate::gpu {
namespace {

using Vec3 = std::array<double, 3>;
using Quadratic = std::array<double, 6>;

Vec3 operator-(const Vec3& a, const Vec3& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Vec3 Cross(const Vec3& a, const Vec3& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
double Dot(const Vec3& a, const Vec3& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

constexpr double kLeastWeight = 1e-3;      // of a vertex in a cluster
constexpr size_t kLeastMembers = 4;        // fewer do not span a volume
constexpr double kLeastExtent = 0.05;      // share of the longest direction from which on a cluster can tell how another deforms
constexpr double kNoExtent = 1e-3;         // likewise: below it a direction is taken to be that long
constexpr double kLeastQuadratic = 1e-3;   // share of its mean square that is new in a quadratic coordinate which counts
constexpr double kLeastRigidShare = 0.05;  // 1 - beta in stiffnesses is at least that
constexpr double kLeastSpread = 1.0 / 36;  // mean square extent of a cluster, in squares of the cluster size, from which on it counts
constexpr int kMaxCells = 1 << 20;
constexpr uint32_t kNone = 0xffffffffU;

/// Disjoint sets of vertices.
class Sets {
 public:
  explicit Sets(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0U); }
  uint32_t Root(uint32_t v) {
    while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
    return v;
  }
  void Join(uint32_t a, uint32_t b) {
    const uint32_t root_a = Root(a);
    const uint32_t root_b = Root(b);
    parent_[std::max(root_a, root_b)] = std::min(root_a, root_b);
  }

 private:
  std::vector<uint32_t> parent_;
};

/// A cluster before its coordinates are known.
struct Draft {
  std::vector<uint32_t> vertices;  // of the model
  std::vector<double> weights;
};

/// One body: what its vertices are worth, and its clusters.
class ShapeBuilder {
 public:
  ShapeBuilder(const TissueModel& model, uint32_t shape, std::vector<uint32_t> tets)
      : model_(model), shape_(model.shapes[shape]), index_(shape), tets_(std::move(tets)) {}

  absl::Status Build(std::span<const SolverSlot> solver_index, double dt_s, ShapeClusters* out) {
    if (tets_.empty()) return absl::OkStatus();
    WeighVertices();
    PALPATE_RETURN_IF_ERROR(DivideByGrid());
    JoinLooseTets();
    NormalizeWeights();
    for (const Draft& draft : drafts_) Add(draft, solver_index, dt_s, out);
    return absl::OkStatus();
  }

 private:
  const Vec3& Rest(uint32_t v) const { return model_.rest_m[v]; }

  /// Vertices of the body, ascending, with the shares of their tets in stiffness and damping.
  void WeighVertices() {
    local_.assign(model_.rest_m.size(), kNone);
    for (const uint32_t t : tets_) {
      for (const uint32_t v : model_.tets[t].vertices) local_[v] = 0;
    }
    for (uint32_t v = 0; v < local_.size(); ++v) {
      if (local_[v] == kNone) continue;
      local_[v] = static_cast<uint32_t>(vertices_.size());
      vertices_.push_back(v);
    }
    worth_j_.assign(vertices_.size(), 0.0);
    damped_worth_.assign(vertices_.size(), 0.0);
    // Twice the shear modulus: of Poisson's ratio beta / (3 - beta) where volume is kept, else of 0.
    const double share = Deforms() && shape_.keeps_volume ? (3 - shape_.beta) / 3 : 1;
    for (const uint32_t t : tets_) {
      const TissueTet& tet = model_.tets[t];
      const Vec3& o = Rest(tet.vertices[0]);
      const double volume = Dot(Cross(Rest(tet.vertices[1]) - o, Rest(tet.vertices[2]) - o), Rest(tet.vertices[3]) - o) / 6;
      for (size_t a = 0; a < 4; ++a) {
        const double worth = share * LayoutEntries::YoungModulus(tet) * volume / 4;
        worth_j_[local_[tet.vertices[a]]] += worth;
        damped_worth_[local_[tet.vertices[a]]] += worth * tet.damping_s;
      }
    }
  }

  bool Deforms() const { return shape_.mode != TissueShapeMode::kRigid; }

  absl::Status DivideByGrid() {
    Vec3 low = Rest(vertices_[0]);
    Vec3 high = low;
    for (const uint32_t v : vertices_) {
      for (size_t axis = 0; axis < 3; ++axis) {
        low[axis] = std::min(low[axis], Rest(v)[axis]);
        high[axis] = std::max(high[axis], Rest(v)[axis]);
      }
    }
    Vec3 cells = {1, 1, 1};
    for (size_t axis = 0; axis < 3 && shape_.cluster_size_m > 0; ++axis) {
      cells[axis] = std::max(std::round((high[axis] - low[axis]) / shape_.cluster_size_m), 1.0);
    }
    const double cell_count = cells[0] * cells[1] * cells[2];
    if (!(cell_count <= kMaxCells)) {
      return absl::InvalidArgumentError(absl::StrCat("shapes[", index_, "]: clusters of ", shape_.cluster_size_m, " m make ", cell_count,
                                                     " cells, more than ", kMaxCells));
    }
    // Along each axis a vertex lies between the centres of two cells, and beyond the outermost ones in one.
    std::map<std::array<int, 3>, Draft> found;
    std::vector<std::vector<std::pair<std::array<int, 3>, double>>> cells_of(vertices_.size());
    for (uint32_t i = 0; i < vertices_.size(); ++i) {
      std::array<int, 3> first{};
      std::array<double, 3> rest{};
      for (size_t axis = 0; axis < 3; ++axis) {
        const double size_m = (high[axis] - low[axis]) / cells[axis];
        const double at = std::clamp((Rest(vertices_[i])[axis] - low[axis]) / size_m - 0.5, 0.0, cells[axis] - 1);
        first[axis] = static_cast<int>(at);
        rest[axis] = at - std::floor(at);
      }
      for (uint32_t corner = 0; corner < 8; ++corner) {
        std::array<int, 3> cell = first;
        double weight = 1;
        for (size_t axis = 0; axis < 3; ++axis) {
          const bool upper = (corner >> axis & 1U) != 0;
          weight *= upper ? rest[axis] : 1 - rest[axis];
          cell[axis] += upper ? 1 : 0;
        }
        if (weight < kLeastWeight) continue;
        Draft& draft = found[cell];
        draft.vertices.push_back(vertices_[i]);
        draft.weights.push_back(weight);
        cells_of[i].emplace_back(cell, weight);
      }
    }
    std::map<std::array<int, 3>, std::vector<uint32_t>> tets_in;
    for (const uint32_t t : tets_) {
      for (const uint32_t v : model_.tets[t].vertices) {
        for (const auto& [cell, weight] : cells_of[local_[v]]) {
          std::vector<uint32_t>& list = tets_in[cell];
          if (list.empty() || list.back() != t) list.push_back(t);
        }
      }
    }
    for (const auto& [cell, draft] : found) Split(draft, tets_in[cell]);
    return absl::OkStatus();
  }

  /// The parts of a cluster that its tets join.
  void Split(const Draft& draft, std::span<const uint32_t> tets) {
    place_.resize(vertices_.size(), kNone);
    for (uint32_t i = 0; i < draft.vertices.size(); ++i) place_[local_[draft.vertices[i]]] = i;
    Sets sets(draft.vertices.size());
    for (const uint32_t t : tets) {
      uint32_t before = kNone;
      for (const uint32_t v : model_.tets[t].vertices) {
        const uint32_t at = place_[local_[v]];
        if (at == kNone) continue;
        if (before != kNone) sets.Join(before, at);
        before = at;
      }
    }
    std::map<uint32_t, Draft> parts;
    for (uint32_t i = 0; i < draft.vertices.size(); ++i) {
      place_[local_[draft.vertices[i]]] = kNone;
      Draft& part = parts[sets.Root(i)];
      part.vertices.push_back(draft.vertices[i]);
      part.weights.push_back(draft.weights[i]);
    }
    for (auto& [root, part] : parts) {
      if (part.vertices.size() >= kLeastMembers) drafts_.push_back(std::move(part));
    }
  }

  /// Clusters of single tets where no others join their vertices.
  void JoinLooseTets() {
    Sets sets(vertices_.size());
    for (const Draft& draft : drafts_) {
      for (const uint32_t v : draft.vertices) sets.Join(local_[draft.vertices[0]], local_[v]);
    }
    for (const uint32_t t : tets_) {
      const auto& v = model_.tets[t].vertices;
      const uint32_t root = sets.Root(local_[v[0]]);
      if (std::all_of(v.begin(), v.end(), [&](uint32_t i) { return sets.Root(local_[i]) == root; })) continue;
      drafts_.push_back({{v.begin(), v.end()}, {1, 1, 1, 1}});
      for (const uint32_t i : v) sets.Join(local_[v[0]], local_[i]);
    }
  }

  void NormalizeWeights() {
    std::vector<double> sum(vertices_.size(), 0.0);
    for (const Draft& draft : drafts_) {
      for (size_t i = 0; i < draft.vertices.size(); ++i) sum[local_[draft.vertices[i]]] += draft.weights[i];
    }
    for (Draft& draft : drafts_) {
      for (size_t i = 0; i < draft.vertices.size(); ++i) draft.weights[i] /= sum[local_[draft.vertices[i]]];
    }
  }

  /// Whitens the coordinates of a cluster and adds it.
  void Add(const Draft& draft, std::span<const SolverSlot> solver_index, double dt_s, ShapeClusters* out) const {
    const size_t n = draft.vertices.size();
    std::vector<double> weights(n);  // sum 1
    double worth = 0;
    double damped = 0;
    Vec3 center{};
    const Vec3& origin = Rest(draft.vertices[0]);
    for (size_t i = 0; i < n; ++i) {
      const uint32_t v = local_[draft.vertices[i]];
      weights[i] = worth_j_[v] * draft.weights[i];
      worth += weights[i];
      damped += damped_worth_[v] * draft.weights[i];
    }
    std::vector<Vec3> rest(n);
    for (size_t i = 0; i < n; ++i) {
      weights[i] /= worth;
      rest[i] = Rest(draft.vertices[i]) - origin;
      for (size_t axis = 0; axis < 3; ++axis) center[axis] += weights[i] * rest[i][axis];
    }
    Matrix<3> covariance{};
    for (size_t i = 0; i < n; ++i) {
      rest[i] = rest[i] - center;
      for (size_t a = 0; a < 3; ++a) {
        for (size_t b = 0; b < 3; ++b) covariance[a][b] += weights[i] * rest[i][a] * rest[i][b];
      }
    }
    Vec3 values{};
    Matrix<3> vectors{};
    SymmetricEigen<3>(covariance, &values, &vectors);
    std::array<size_t, 3> order = {0, 1, 2};
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
    ShapeCluster cluster{};
    Matrix<3> direction{};  // rows: principal axes, the longest first
    Vec3 extent_m{};
    double volume_m3 = 1;  // of the basis, whose columns are extent times direction
    for (size_t axis = 0; axis < 3; ++axis) {
      extent_m[axis] = std::sqrt(std::max(values[order[axis]], 0.0));
      if (extent_m[axis] >= kLeastExtent * extent_m[0]) ++cluster.rank;
      extent_m[axis] = std::max(extent_m[axis], kNoExtent * extent_m[0]);
      for (size_t k = 0; k < 3; ++k) direction[axis][k] = vectors[k][order[axis]];
      volume_m3 *= extent_m[axis];
    }
    volume_m3 *= Dot(Cross(direction[0], direction[1]), direction[2]);
    const double least_sq_m2 = kLeastSpread * shape_.cluster_size_m * shape_.cluster_size_m;
    const double spread_sq_m2 = std::max((covariance[0][0] + covariance[1][1] + covariance[2][2]) / 3, least_sq_m2);
    const double rigid_share = Deforms() ? std::max(1 - shape_.beta, kLeastRigidShare) : 1;
    const double total_n_per_m = worth / (rigid_share * spread_sq_m2);
    const double damping_s = damped / worth;

    std::vector<Vec3> phi(n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t axis = 0; axis < 3; ++axis) phi[i][axis] = Dot(direction[axis], rest[i]) / extent_m[axis];
    }
    std::vector<Quadratic> psi;
    cluster.mode = static_cast<uint32_t>(shape_.mode);
    if (shape_.mode == TissueShapeMode::kQuadratic) {
      // A flat or straight cluster cannot tell bending from a turn.
      if (cluster.rank == 3) psi = QuadraticCoordinates(phi, weights);
      if (psi.empty()) cluster.mode = PALPATE_SHAPE_LINEAR;
    }
    const auto column = [&](size_t axis, double w) {
      return ToFloat4({extent_m[axis] * direction[axis][0], extent_m[axis] * direction[axis][1], extent_m[axis] * direction[axis][2]}, w);
    };
    cluster.basis_x = column(0, 1 / volume_m3);
    cluster.basis_y = column(1, 1 / total_n_per_m);
    cluster.basis_z = column(2, 1 + damping_s / dt_s);
    cluster.begin = static_cast<uint32_t>(out->member_vertex.size());
    cluster.end = cluster.begin + static_cast<uint32_t>(n);
    cluster.beta = static_cast<float>(Deforms() ? shape_.beta : 0.0);
    cluster.keeps = shape_.keeps_volume ? 1.0F : 0.0F;
    cluster.held = static_cast<float>(damping_s / (dt_s + damping_s));
    out->is_damped |= damping_s > 0;
    out->clusters.push_back(cluster);
    // Sums on the device count from the first member: from near the centre they round least.
    size_t first = 0;
    for (size_t i = 1; i < n; ++i) {
      if (Dot(rest[i], rest[i]) < Dot(rest[first], rest[first])) first = i;
    }
    for (size_t k = 0; k < n; ++k) {
      const size_t i = k == 0 ? first : k == first ? 0 : k;
      out->member_vertex.push_back(ToNumber(solver_index[draft.vertices[i]]));
      out->member_linear.push_back(ToFloat4(phi[i], total_n_per_m * weights[i]));
      if (psi.empty()) continue;
      out->member_quadratic.resize(2 * out->member_vertex.size());
      const Quadratic& p = psi[i];
      out->member_quadratic[out->member_quadratic.size() - 2] = ToFloat4({p[0], p[1], p[2]}, p[3]);
      out->member_quadratic[out->member_quadratic.size() - 1] = ToFloat4({p[4], p[5], 0}, 0);
    }
  }

  /// Squares and products of phi, made orthonormal to 1, phi and each other (Gram-Schmidt, twice for rounding); what is not independent
  /// of those before is 0. Empty if all are.
  static std::vector<Quadratic> QuadraticCoordinates(const std::vector<Vec3>& phi, const std::vector<double>& weights) {
    const size_t n = phi.size();
    std::vector<std::vector<double>> known(4, std::vector<double>(n, 1.0));
    for (size_t i = 0; i < n; ++i) {
      for (size_t axis = 0; axis < 3; ++axis) known[1 + axis][i] = phi[i][axis];
    }
    const auto product = [&](const std::vector<double>& a, const std::vector<double>& b) {
      double sum = 0;
      for (size_t i = 0; i < n; ++i) sum += weights[i] * a[i] * b[i];
      return sum;
    };
    std::vector<Quadratic> psi(n, Quadratic{});
    bool any = false;
    constexpr size_t kFactors[6][2] = {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {1, 2}, {2, 0}};
    std::vector<double> values(n);
    for (size_t k = 0; k < 6; ++k) {
      for (size_t i = 0; i < n; ++i) values[i] = phi[i][kFactors[k][0]] * phi[i][kFactors[k][1]];
      const double before = product(values, values);
      for (int turn = 0; turn < 2; ++turn) {
        for (const std::vector<double>& other : known) {
          const double share = product(values, other);
          for (size_t i = 0; i < n; ++i) values[i] -= share * other[i];
        }
      }
      const double after = product(values, values);
      if (!(after > kLeastQuadratic * before)) continue;
      any = true;
      for (size_t i = 0; i < n; ++i) {
        values[i] /= std::sqrt(after);
        psi[i][k] = values[i];
      }
      known.push_back(values);
    }
    return any ? psi : std::vector<Quadratic>();
  }

  const TissueModel& model_;
  const TissueShape& shape_;
  uint32_t index_;
  std::vector<uint32_t> tets_;
  std::vector<uint32_t> local_;  // [vertex of the model] place in vertices_
  std::vector<uint32_t> vertices_;
  std::vector<double> worth_j_;  // [vertices_] stiffness times square metres
  std::vector<double> damped_worth_;
  std::vector<Draft> drafts_;
  std::vector<uint32_t> place_;  // scratch: of vertices_ in the cluster at hand
};

}  // namespace

absl::StatusOr<ShapeClusters> BuildShapeClusters(const TissueModel& model, std::span<const SolverSlot> solver_index, uint32_t slot_count,
                                                 double dt_s) {
  ShapeClusters out;
  std::vector<std::vector<uint32_t>> tets_of(model.shapes.size());
  for (uint32_t t = 0; t < model.tets.size(); ++t) {
    if (LayoutEntries::IsFree(model.tets[t]) || model.tets[t].energy != TissueEnergy::kShapeMatched) continue;
    tets_of[model.tets[t].shape].push_back(t);
  }
  for (uint32_t shape = 0; shape < model.shapes.size(); ++shape) {
    PALPATE_RETURN_IF_ERROR(ShapeBuilder(model, shape, std::move(tets_of[shape])).Build(solver_index, dt_s, &out));
  }
  if (!out.member_quadratic.empty()) out.member_quadratic.resize(2 * out.member_vertex.size());
  out.share_begin.assign(size_t{slot_count} + 1, 0);
  for (const uint32_t v : out.member_vertex) ++out.share_begin[v + 1];
  std::partial_sum(out.share_begin.begin(), out.share_begin.end(), out.share_begin.begin());
  out.shares.resize(out.member_vertex.size());
  std::vector<uint32_t> at(out.share_begin.begin(), out.share_begin.end() - 1);
  for (uint32_t c = 0; c < out.clusters.size(); ++c) {
    for (uint32_t m = out.clusters[c].begin; m < out.clusters[c].end; ++m) out.shares[at[out.member_vertex[m]]++] = {c, m};
  }
  return out;
}

}  // namespace palpate::gpu
