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
  uint32_t solved_begin = 0;  ///< nodes with an inverse, of all parts one after the other: the lattice's own, or those of its coarser one
  uint32_t solved_count = 0;
  uint64_t inverse_begin = 0;  ///< of its block in CoarseLattice::inverse
  uint32_t row_floats = 0;     ///< 3 solved_count, padded with zeros to a multiple of kCoarseRowUnit
  bool has_stencils = false;   ///< too many nodes for an inverse: they are smoothed, and those of twice the spacing are solved

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [origin, spacing, begin, count, solved, solved_nodes, inverse, row, stencils] = *this;
    archive(origin, spacing, begin, count, solved, solved_nodes, inverse, row, stencils);
  }
};

inline constexpr uint32_t kCoarseRowUnit = 8;      ///< floats
inline constexpr uint32_t kCoarseCorners = 8;      ///< nodes of a cell, those that a vertex hangs on
inline constexpr uint32_t kMostSolvedNodes = 160;  ///< of a part: beyond, smoothing costs less than a product with the inverse
inline constexpr uint32_t kNoCoarsePart = 0xffffffffU;
inline constexpr uint32_t kNoCoarseNode = 0xffffffffU;

/// The operator of parts with many nodes, and how their nodes hang on solved ones. "Fine": a node of such a part, by its place in `nodes`.
struct CoarseStencils {
  std::vector<uint32_t> nodes;       ///< [fine] in the lattice, rising
  std::vector<uint32_t> row_begins;  ///< [fine + 1]
  std::vector<uint32_t> columns;     ///< [entry] fine, rising in a row
  std::vector<Float4> blocks;        ///< [entry][3] columns of a block of P' H P [N/m]
  std::vector<Float4>
      inverse_diagonal;                ///< [fine][3] columns of D^-1 / r, D: diagonal block, r: spectral radius of D^-1 P' H P of the part
  std::vector<uint32_t> parents;       ///< [fine][kCoarseCorners] solved nodes
  std::vector<float> parent_weights;   ///< likewise; they sum to 1
  std::vector<uint32_t> child_begins;  ///< [solved + 1]
  std::vector<uint32_t> children;      ///< fine, rising for each solved node
  std::vector<float> child_weights;

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [fine, rows, column, block, diagonal, up, up_weights, begins, down, down_weights] = *this;
    archive(fine, rows, column, block, diagonal, up, up_weights, begins, down, down_weights);
  }
};

/// A coarse space for the tissue, and the inverse of the step's Hessian at rest in it. Every connected part of the mesh has a lattice of
/// cubes around its rest shape; its vertices hang on the eight nodes of their cube (trilinear), those that cannot move freely on none. For
/// the matrix P of these weights and H = M (1 + h d) / h^2 + K, with the linear elasticity K of the rest shape (viscosity included, and of
/// node-smoothed tets that of their domains), it
/// holds (P' H P)^-1 of each part; of parts with more than kMostSolvedNodes nodes P' H P itself and the inverse of its Galerkin product
/// with the lattice of twice the spacing. Shape-matched bodies have no lattice.
/// Source: Galerkin coarse grids as of Xian, Tong, Liu 2019; that the rest shape's operator is turned with the body, instead of being made
/// anew in each step, is ours. See docs/algorithms/tissue.md, "Coarse correction".
struct CoarseLattice {
  std::vector<CoarsePart> parts;
  std::vector<std::array<int32_t, 3>> cells;  ///< [node] place in the lattice of its part, rising within a part
  std::vector<uint32_t> vertex_part;          ///< [caller's vertex] or kNoCoarsePart
  std::vector<float> inverse;                 ///< of each part row by row, row_floats a row [m/N]
  CoarseStencils stencils;

  uint32_t SolvedCount() const { return parts.empty() ? 0 : parts.back().solved_begin + parts.back().solved_count; }

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [all_parts, places, parts_of, rows, operators] = *this;
    archive.Enter("CoarseLattice");
    archive(all_parts, places, parts_of, rows, operators);
  }
};

/// Whether its indices are in range and its arrays have the lengths that follow from its parts: for lattices that were read from a file.
bool IsConsistent(const CoarseLattice& lattice, size_t vertex_count);

/// `max_nodes` bounds the nodes of all parts together, each of which gets at least those of one cube: the lattices are as fine as twice the
/// mean edge of their part, or coarser; parts of more than `most_solved` nodes get stencils. Cost: O(tets) and the third power of the
/// solved nodes of a part. Deterministic.
CoarseLattice BuildCoarseLattice(const TissueModel& model, const TissueLayout& layout, double dt_s, uint32_t max_nodes,
                                 uint32_t most_solved = kMostSolvedNodes);

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
