#pragma once

#include <Eigen/Dense>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gpu/dynamics/coarse_lattice.h"
#include "gpu/dynamics/tissue_layout.h"

namespace palpate::gpu {

/// What a vertex hangs on; weights sum to 1, or are all 0.
struct CoarseHold {
  std::array<uint32_t, kCoarseCorners> nodes{};  ///< in the lattice of all parts
  std::array<double, kCoarseCorners> weights{};
};

/// P' H P of one part in double precision, by blocks of 3 x 3: symmetric, positive definite once it has a ridge. Nodes count from the
/// part's first. On the host only.
class CoarseOperator {
 public:
  explicit CoarseOperator(uint32_t node_count) : rows_(node_count) {}

  /// M (1 + h d) / h^2 of the vertices of a part, and the linear elasticity of its tets at rest, or of their smoothing domains and what
  /// they keep, times 1 + viscosity / h. `holds`: [caller's vertex]. O(tets).
  static CoarseOperator Assemble(const TissueModel& model, const TissueLayout& layout, double dt_s, std::span<const uint32_t> vertices,
                                 std::span<const uint32_t> tets, const CoarsePart& part, std::span<const CoarseHold> holds);
  /// A small share of the diagonal, since two nodes may hang on one vertex.
  void AddRidge();
  /// P1' A P1 for the parents of `stencils`, which end with this part.
  CoarseOperator CoarsenedBy(const CoarseStencils& stencils, uint32_t solved_begin) const;
  /// Appends the inverse row by row, each padded with zeros.
  void AppendInverse(uint32_t row_floats, std::vector<float>* inverse) const;

  uint32_t node_count() const { return static_cast<uint32_t>(rows_.size()); }
  /// Of a node: columns with their blocks, in no order.
  const std::vector<std::pair<uint32_t, Eigen::Matrix3d>>& row(uint32_t node) const { return rows_[node]; }

 private:
  Eigen::Matrix3d& At(uint32_t row, uint32_t column);

  std::vector<std::vector<std::pair<uint32_t, Eigen::Matrix3d>>> rows_;
};

/// Appends what smooths the nodes of `part`, whose places are `cells`, and their parents: the nodes at twice the spacing.
void AppendStencils(const CoarseOperator& op, std::span<const std::array<int32_t, 3>> cells, const CoarsePart& part,
                    CoarseStencils* stencils);
/// After all parts: the children.
void FinishStencils(uint32_t solved_count, CoarseStencils* stencils);
/// Whether lengths and indices fit lattices of so many nodes, fine ones and solved ones.
bool IsConsistent(const CoarseStencils& stencils, size_t node_count, size_t fine_count, size_t solved_count);

}  // namespace palpate::gpu
