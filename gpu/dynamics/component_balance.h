#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// Force on a component as a whole [N] and the block of that force [N/m], symmetric.
struct ComponentBlock {
  std::array<double, 3> force{};
  std::array<double, 6> block{};  ///< xx xy xz yy yz zz

  ComponentBlock() = default;
  explicit ComponentBlock(const float* sums);  ///< PALPATE_COMPONENT_SUMS of them
  void Add(const ComponentBlock& other);
  std::array<double, 3> Times(const std::array<double, 3>& v) const;
  /// The move that balances the force [m]; the block is positive definite.
  std::array<double, 3> Balance() const;
};

/// What acts on the components of a scene as wholes. Indices are those of components.
struct ComponentForces {
  std::vector<uint8_t> is_free;                ///< no vertex is fixed or held
  std::vector<ComponentBlock> blocks;          ///< without pairs; of components that are not free: empty
  std::vector<ComponentRow> rows;              ///< of the pairs that join two of them, at least one of which is free
  std::vector<std::array<double, 3>> moved_m;  ///< as wholes, since the detection
  double least_gap_m = 0;                      ///< pairs keep it as distance
};

/// Moves of whole components.
struct ComponentMoves {
  std::vector<std::array<double, 3>> move_m;  ///< of components that are not free: 0
  std::vector<uint32_t> leader;               ///< one of all that pairs join: those move alike
};

/// Moves of the free components at which the forces on them balance, to first order and all together: conjugate gradients on the blocks and
/// the rows. Where no balance is found: no moves.
std::vector<std::array<double, 3>> BalanceComponents(const ComponentForces& forces);

/// That, limited to what keeps all pairs apart: components that pairs join move fully with the motion that they have in common, which
/// brings none nearer to another, and by the same share of the rest. So what they exchange is equal and opposite however little of the rest
/// there is room for. Since the detection two components approach each other by at most a quarter of the distance of each of their pairs.
ComponentMoves MovesToBalance(const ComponentForces& forces);

}  // namespace palpate::gpu
