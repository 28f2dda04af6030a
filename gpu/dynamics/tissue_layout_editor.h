#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gpu/base/range_pool.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/layout_entries.h"
#include "gpu/dynamics/tissue_layout.h"

namespace palpate::gpu {

class LayoutEntries;

/// Which entries of a layout an edit changed; all lists rise.
struct TissueLayoutDelta {
  std::vector<uint32_t> slots;             ///< of vertices whose masses, ranges, rest position, ... changed, emptied ones included
  std::vector<uint32_t> blocks;            ///< of corners
  std::vector<uint32_t> tets;              ///< places
  std::vector<uint32_t> triangles;         ///< below the new count
  std::vector<uint32_t> fan_places;        ///< of vertex_triangles
  std::vector<uint32_t> state_vertices;    ///< caller's: those whose state must be written, for they are new, changed, or have a new slot
  std::vector<uint32_t> touched_vertices;  ///< caller's: those whose tets changed
  bool has_moved = false;                  ///< a vertex that stayed has a new slot
};

/// Lets a layout follow edits of its model, entry by entry. A vertex keeps its slot, and with it its colour, unless an edit joins it to
/// another of the same colour: then the one with fewer tets gets a new slot. A new vertex gets the first colour that none of its neighbours
/// has and that has room. Corners of a vertex are written anew, and change their place only if their number of blocks changes.
///
/// Guarantee: after Apply() the layout holds what LayOutTissue would make of the model: the same tets, corners, masses and triangles, bit
/// for bit, in other places. Same edits, same layout. Cost: O(changed entries and their neighbours), and a look at each body.
class TissueLayoutEditor {
 public:
  /// For a layout that LayOutTissue made of `model` with slack; keeps a reference to it.
  TissueLayoutEditor(const TissueModel& model, double dt_s, TissueLayout* layout);
  /// For a layout that LayOutTissueAs made of `model` and `skeleton`: goes on as the editor did whose Skeleton() that was.
  TissueLayoutEditor(const TissueModel& model, double dt_s, const LayoutSkeleton& skeleton, TissueLayout* layout);

  /// What it takes to go on with the model and nothing else.
  LayoutSkeleton Skeleton() const;

  /// Follows an edit that led to `model`. False: it does not fit, and the model must be laid out anew; that is so if there is no room
  /// (slots, blocks, places, colours), if more than a quarter of the tets change, if energies, fibres or viscosity occur that did not
  /// before, or if rigid bodies change. Errors: those of LayOutTissue, for what changed. The layout is of no use after either.
  absl::StatusOr<bool> Apply(const TissueModel& model, const TissueChange& change);

  const TissueLayoutDelta& delta() const { return delta_; }
  /// Tets around a vertex, rising; triangles of a vertex, rising.
  const std::vector<uint32_t>& TetsAround(uint32_t vertex) const { return vertex_tets_[vertex]; }
  const std::vector<uint32_t>& TrianglesAround(uint32_t vertex) const { return vertex_triangles_[vertex]; }
  const std::array<uint32_t, 4>& TetVertices(uint32_t tet) const { return tets_[tet]; }

 private:
  static constexpr uint32_t kNoColor = 0xffffffffU;

  // Parts of Apply(), in this order.
  struct Work;
  absl::StatusOr<bool> ListTets(const TissueModel& model, const TissueChange& change, const LayoutEntries& entries, Work* w);
  void JoinTets(const TissueModel& model, Work* w);
  absl::Status ReleaseSlots(const TissueModel& model, Work* w);
  bool TakeSlots(const TissueModel& model, const TissueChange& change, Work* w);
  absl::StatusOr<bool> WriteEntries(const TissueModel& model, LayoutEntries& entries, Work* w);
  void FinishDelta(const TissueModel& model, Work* w);

  bool HasKindsOf(const TissueTet& tet) const;
  void ReleaseSlot(uint32_t vertex);
  bool TakeSlot(const TissueModel& model, uint32_t vertex);
  bool PlaceTriangles(const TissueModel& model, std::vector<uint32_t> changed, std::vector<uint32_t>* fans);

  double dt_s_;
  TissueLayout& layout_;
  TissueLayoutDelta delta_;
  std::vector<std::array<double, 3>> rest_m_;            // [caller's vertex] as laid out
  std::vector<std::array<uint32_t, 4>> tets_;            // [place] caller's vertices, or kFreeTissueTet
  std::vector<std::array<uint32_t, 3>> triangles_;       // caller's vertices
  std::vector<std::vector<uint32_t>> vertex_tets_;       // [caller's vertex] rising
  std::vector<std::vector<uint32_t>> vertex_triangles_;  // likewise
  std::vector<uint32_t> color_;                          // [caller's vertex]
  std::vector<std::vector<SolverSlot>> free_slots_;      // of each colour, then of fixed vertices; falling
  RangePool blocks_;
  RangePool fans_;
};

}  // namespace palpate::gpu
