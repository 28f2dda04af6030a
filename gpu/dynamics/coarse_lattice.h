#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// Lattice of one connected part of the tissue, in the frame of the rest shape.
struct CoarsePart {
  std::array<double, 3> origin_m{};  ///< of cell (0, 0, 0)
  double spacing_m = 0;
  uint32_t node_begin = 0;
  uint32_t node_count = 0;
  uint64_t inverse_begin = 0;  ///< of its block in CoarseLattice::inverse
  uint32_t row_floats = 0;     ///< 3 node_count, padded with zeros to a multiple of kCoarseRowUnit

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [origin, spacing, begin, count, inverse, row] = *this;
    archive(origin, spacing, begin, count, inverse, row);
  }
};

inline constexpr uint32_t kCoarseRowUnit = 8;  ///< floats
inline constexpr uint32_t kCoarseCorners = 8;  ///< nodes of a cell, those that a vertex hangs on
inline constexpr uint32_t kNoCoarsePart = 0xffffffffU;

/// A coarse space for the tissue, and the inverse of the step's Hessian at rest in it. Every connected part of the mesh has a lattice of
/// cubes around its rest shape; its vertices hang on the eight nodes of their cube (trilinear), those that cannot move freely on none. For
/// the matrix P of these weights and H = M (1 + h d) / h^2 + K, with the linear elasticity K of the rest shape (viscosity included), it
/// holds (P' H P)^-1 of each part. Shape-matched bodies have no lattice.
/// Source: Galerkin coarse grids as of Xian, Tong, Liu 2019; that the rest shape's operator is turned with the body, instead of being made
/// anew in each step, is ours. See docs/algorithms/tissue.md, "Coarse correction".
struct CoarseLattice {
  std::vector<CoarsePart> parts;
  std::vector<std::array<int32_t, 3>> cells;  ///< [node] place in the lattice of its part, rising within a part
  std::vector<uint32_t> vertex_part;          ///< [caller's vertex] or kNoCoarsePart
  std::vector<float> inverse;                 ///< of each part row by row, row_floats a row [m/N]

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [all_parts, places, parts_of, rows] = *this;
    archive.Enter("CoarseLattice");
    archive(all_parts, places, parts_of, rows);
  }
};

/// `max_nodes` bounds the nodes of all parts together, each of which gets at least those of one cube: the lattices are as fine as twice the
/// mean edge of their part, or coarser. Cost: O(tets) and the third power of the nodes of a part (about 0.2 s for 300). Deterministic.
CoarseLattice BuildCoarseLattice(const TissueModel& model, const TissueLayout& layout, double dt_s, uint32_t max_nodes);

/// After an edit that led to `model` and changed `tets`: vertices that are new belong to the part of their neighbours, absent ones to none.
/// The inverse stays as it is. O(vertices).
void FollowCoarseParts(const TissueModel& model, std::span<const uint32_t> tets, CoarseLattice* lattice);

/// What vertices weigh at the nodes.
struct CoarseWeights {
  std::vector<uint32_t> vertex_nodes;  ///< [slot][kCoarseCorners]
  std::vector<float> vertex_weights;   ///< likewise; 0 where there is no node, and for all of a vertex that cannot move freely
  std::vector<uint32_t> node_begins;   ///< [node_count + 1] in the entries
  std::vector<uint32_t> entry_vertex;  ///< slot, rising for each node
  std::vector<float> entry_weight;
  std::vector<uint32_t> node_frame;  ///< [node] the node of its part whose vertices tell how it has turned: itself, or one near by
};

/// Of the layout as it is. O(vertices). Vertices that have no node near them weigh nothing.
CoarseWeights WeighCoarse(const CoarseLattice& lattice, const TissueLayout& layout);

}  // namespace palpate::gpu
