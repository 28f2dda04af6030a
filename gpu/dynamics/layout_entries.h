#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_layout.h"

namespace palpate::gpu {

/// Single entries of a layout, worked out from the model: what LayOutTissue and TissueLayoutEditor have in common, so that both write the
/// same bits. Slots of vertices and ranges of blocks and triangles are the caller's business.
class LayoutEntries {
 public:
  /// Keeps references to both.
  LayoutEntries(const TissueModel& model, double dt_s, TissueLayout* layout) : model_(model), dt_s_(dt_s), layout_(*layout) {}

  static bool HasFibers(const TissueTet& tet) {
    return tet.fibers.coupling_pa != 0 || tet.fibers.stiffness_pa != 0 || tet.fibers.shear_pa != 0;
  }
  static bool HasViscosity(const TissueTet& tet) { return tet.damping_s > 0 && tet.energy != TissueEnergy::kShapeMatched; }
  static bool IsSmoothed(const TissueTet& tet) { return tet.is_smoothed != 0; }
  static bool IsFree(const TissueTet& tet) { return tet.vertices == kFreeTissueTet; }
  static double YoungModulus(const TissueTet& tet);
  /// What a tet keeps for itself: all, or of a smoothed one a share.
  static double OwnMu(const TissueTet& tet);
  static double OwnLambda(const TissueTet& tet) { return IsSmoothed(tet) ? 0 : tet.lambda_pa; }

  /// Vertices in use, volume and material of a tet that is not a free place. InvalidArgument naming it.
  absl::Status CheckTet(size_t t) const;
  /// Axes along which a vertex is held. InvalidArgument naming it.
  absl::Status CheckHeld(size_t v) const;
  /// Vertices of a triangle. InvalidArgument naming it.
  absl::Status CheckTriangle(size_t t) const;
  double Volume(size_t t) const;

  void WriteTet(uint32_t t);
  void WriteTriangle(uint32_t t, bool is_tissue);
  /// Rest position, masses, stiffness, origin and loads of a vertex with a slot; `tets`: those around it, rising.
  void WriteVertex(uint32_t vertex, std::span<const uint32_t> tets);
  /// Its corners, in the blocks that block_range gives it.
  void WriteBlocks(uint32_t vertex, std::span<const uint32_t> tets);
  /// Of a slot that no vertex has any more.
  static void ClearSlot(TissueLayout* layout, SolverSlot slot);

 private:
  const TissueModel& model_;
  double dt_s_;
  TissueLayout& layout_;
};

}  // namespace palpate::gpu
