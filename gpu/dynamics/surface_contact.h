#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/ccd.h"
#include "gpu/collision/intersections.h"
#include "gpu/collision/proximity.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/collision/surface_topology_editor.h"
#include "gpu/dynamics/surface_follower.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/box.h"
#include "gpu/shared/collision_types.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// How bodies meet each other and themselves.
struct SurfaceOptions {
  double dt_s = 1.0 / 120.0;
  double margin_m = 0.001;       ///< pairs of elements push each other from this distance on
  double stiffness_n_per_m = 0;  ///< of one pair at the margin; 0: twice that of the softest of its vertices
  double friction = 0.1;
  double reserve_m = 0;  ///< detections look this much beyond the margin; 0: the larger of the margin and 0.4 mean edges less it
  /// Mean edge that the reserve went by before an edit, or 0. It is kept until edges are another size, see SurfaceContacts::reach_edge_m.
  double reach_edge_m = 0;
  uint32_t max_detections = 4;       ///< in one step, at least 1
  bool check_intersections = false;  ///< count them after every step, not only while there are some
};

/// Arrays of the solver, as in tissue.cl, which it keeps up to date.
struct SurfaceSurroundings {
  const DeviceBuffer<UInt2>* block_range = nullptr;
  const DeviceBuffer<uint32_t>* corner_index = nullptr;
  const DeviceBuffer<UInt2>* vertex_triangle_range = nullptr;
  const DeviceBuffer<uint32_t>* vertex_triangles = nullptr;
  const DeviceBuffer<uint32_t>* held_axes = nullptr;  ///< TissueLayout::held_axes
};

/// What contact between surfaces did in a step.
struct SurfaceStatistics {
  uint32_t contacts = 0;            ///< pairs of elements within the range of the last detection
  uint32_t acting = 0;              ///< those that push
  uint32_t detections = 0;          ///< proximity
  uint32_t filter_rounds = 0;       ///< continuous collision detections
  uint32_t filtered_vertices = 0;   ///< whose first guess those shortened
  uint32_t truncated_vertices = 0;  ///< whose last move was cut short by a bound
  uint32_t intersections = 0;       ///< edges through triangles, where that was counted
  double detect_ms = 0;
  double filter_ms = 0;
  double check_ms = 0;
};

/// Keeps the surfaces of a scene from passing through each other while a solver moves their vertices one by one.
///
/// The positions `x` of a step are certified in turns: a detection at certified positions finds every pair of elements nearer than a range
/// and puts a plane between the two; the solver moves each vertex only behind its planes (displacement_bounds.clh), and pairs that were
/// farther away cannot have met as long as no vertex went farther than cap_m(). Where one did (a first guess of a fast body), continuous
/// collision detection shortens moves until none meet. Between certifications the pairs push each other by a barrier energy with friction
/// (surface_contact.clh), which the sweeps take into account.
///
/// Guarantee: positions that passed Certify() are reached from those before it without any two elements passing through each other, except
/// elements that passed through something at that time already: those neither push nor are held back.
/// After: Chen et al., "Offset Geometric Contact", 2025 (bounds between detections); Li et al., "Incremental Potential Contact", 2020
/// (barrier, filtered moves). docs/algorithms/surface_contact.md.
///
/// Thread: one at a time. Determinism: pairs, their order and all moves are unique for the input.
class SurfaceContacts {
 public:
  /// Keeps references to `layout` and what `scene` names. `slack_share` > 0: room for edits. `old` (or null): one that is given up, whose
  /// kernels and working memory are used again, also if this fails. Errors: InvalidArgument (surfaces, options), ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<SurfaceContacts>> Create(Queue& queue, const TissueLayout& layout, const SurfaceOptions& options,
                                                                 const SurfaceSurroundings& scene, uint32_t partials,
                                                                 double slack_share = 0, SurfaceContacts* old = nullptr);

  /// Follows an edit of the layout: hands what changed to `writer`, whose Flush must come before anything else here. False: it does not
  /// fit, and contacts must be created anew. Errors: InvalidArgument (surfaces).
  absl::StatusOr<bool> Follow(const TissueLayoutDelta& delta, RunWriter* writer);
  /// After that: pairs of the step before are forgotten. Whether elements pass through each other is known to be as it was, unless there
  /// were such, or `may_cross`.
  absl::Status GoOn(Queue& queue, const DeviceBuffer<Float4>& x, bool may_cross);

  /// Vertices that `follower` (or null) moves are taken back only together. It must outlive this.
  void SetFollower(SurfaceFollower* follower) { follower_ = follower; }

  /// Forgets the step before: positions were set from outside.
  absl::Status Reset(Queue& queue, const DeviceBuffer<Float4>& x);

  /// Whether bodies may meet themselves; on at first. Off while a mesh that was given tangled finds its shape, for which its surface must
  /// pass through itself.
  absl::Status SetSelfCollision(Queue& queue, bool on);

  /// Before Begin(), in scenes with cuts: takes pieces that nothing holds back out of the planes that the first guess x drops them into.
  /// The sweeps could not: what lies almost in touch above bounds their moves. One blocking read.
  absl::Status LiftGuess(Queue& queue, std::span<const PlaneObstacle> planes, const DeviceBuffer<PlaneObstacle>& device_planes,
                         const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x);

  /// Start of a step: x holds a first guess, x_start certified positions. Shortens the guess, detects, and leaves a certified x. Returns
  /// false, with x as it was, if x is not finite: nothing can be said about such a step, and it must be undone.
  absl::StatusOr<bool> Begin(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x);

  /// Enqueues what a sweep needs: the nearest points of all pairs, and the positions at its start.
  absl::Status BeforeSweep(Queue& queue, const DeviceBuffer<Float4>& x);

  /// Between sweeps: certifies x and detects anew if moves were held back by much or went far, and detections are left. Sets *restarted if
  /// so. `touched` marks truncated vertices with bit 1.
  absl::Status MayDetectAgain(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched, bool* restarted);

  /// Moves connected pieces without vertices that are fixed or held as wholes to where the forces on them balance, all together: sweeps
  /// alone would take hundreds to do that. `sums`: what piece_sums of tissue.cl left at x, [piece_count()][kParts][PALPATE_PIECE_SUMS]. The
  /// detection moves along, and so do x_before and x_before2 (empty: none); pieces approach each other by a share of their distance then,
  /// which the planes leave to this. `limit` (or empty) enqueues what finds the share of its shift (x, y, z in m) that each piece may go,
  /// [piece_count()][kParts], and returns where it is; pieces that touch each other go by the least of theirs. Some blocking reads.
  using ShiftLimit = std::function<absl::StatusOr<const DeviceBuffer<float>*>(const DeviceBuffer<Float4>& shifts)>;
  absl::Status ShiftPieces(Queue& queue, const DeviceBuffer<float>& sums, const ShiftLimit& limit, const DeviceBuffer<Float4>& x,
                           const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x_before,
                           const DeviceBuffer<Float4>& x_before2);
  static constexpr uint32_t kParts = 8;
  /// Of the step that Begin() began.
  uint32_t piece_count() const { return static_cast<uint32_t>(piece_is_free_.size()); }
  bool has_free_pieces() const { return has_free_pieces_; }
  const DeviceBuffer<uint32_t>& piece_begin() const { return piece_begin_; }
  const DeviceBuffer<uint32_t>& piece_vertices() const { return piece_vertices_; }

  /// End of the sweeps: certifies x. Pairs are linearised at the result.
  absl::Status Certify(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);

  /// After Certify(), someone who knows nothing of other surfaces took vertices back towards x_start, where the step began: certifies x
  /// anew, as straight moves from there. Returns whether that changed x.
  absl::StatusOr<bool> CertifyFromStart(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                                        const DeviceBuffer<uint8_t>& touched);

  /// Pairs that push at x, in canonical order; valid until the next call.
  absl::StatusOr<std::span<const SurfaceReport>> Report(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<Float4>& x_start);

  const SurfaceStatistics& statistics() const { return statistics_; }
  double range_m() const { return params_host_.range_m; }
  /// Mean edge of the surfaces at rest that the range goes by, unless the reserve was given. It follows edits where the mean has become
  /// another by three tenths: a range of many elements would find pairs by the square of that number, and a shorter one is as safe.
  double reach_edge_m() const { return reach_edge_m_; }
  double cap_m() const { return params_host_.cap_m; }
  size_t device_bytes() const { return device_bytes_; }

  /// What kernels of the solver read; SurfaceParams, x at the start of the sweep, and so on as in tissue.cl. They change when pairs are
  /// made: `generation` counts that.
  uint32_t generation() const { return generation_; }
  const DeviceBuffer<SurfaceParams>& params() const { return params_; }
  const DeviceBuffer<Float4>& x_sweep() const { return x_sweep_; }
  const DeviceBuffer<Float4>& detected() const { return detected_; }
  const DeviceBuffer<uint32_t>& entry_begins() const { return begins_; }
  const DeviceBuffer<uint32_t>& entries() const { return entries_; }
  const DeviceBuffer<Float4>& planes() const { return planes_; }
  const DeviceBuffer<SurfacePair>& pairs() const { return pairs_; }
  const DeviceBuffer<uint8_t>& is_near() const { return is_near_; }  ///< [pair] may push in this sweep
  const DeviceBuffer<float>& clear_m() const { return clear_; }      ///< [vertex] how far it may go before its planes matter

 private:
  struct Moves {
    uint32_t beyond_cap = 0;
    uint32_t truncated = 0;
    uint32_t bad = 0;
    double max_move_m = 0;
  };
  SurfaceContacts(const TissueLayout& layout, const SurfaceSurroundings& scene) : layout_(layout), scene_(scene) {}
  absl::Status Init(Queue& queue, const SurfaceOptions& options, uint32_t partials, double slack_share, SurfaceContacts* old);
  bool SetReach(std::span<const UInt2> edges);
  uint32_t GroupOf(uint32_t body) const;
  uint32_t OriginOf(uint32_t slot) const;
  const std::vector<uint32_t>& VertexGroups() const { return editor_ ? editor_->vertex_groups() : vertex_groups_; }
  float StiffnessOf(uint32_t slot) const;
  absl::Status ListBodies(Queue& queue);
  absl::StatusOr<Moves> CheckMoves(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);
  // How far vertices may go before they need continuous detection, when all pairs nearer than range_m are known.
  absl::Status SetCap(Queue& queue, double range_m);
  // Pairs at x. `moved_m`: no vertex has gone farther since the last detection, of which the pairs then may do; kAnywhere: unknown.
  absl::Status Detect(Queue& queue, const DeviceBuffer<Float4>& x, bool at_start, double moved_m);
  absl::Status MakePairs(Queue& queue, BufferView<SurfaceContact> contacts, uint32_t count);
  absl::Status Bound(Queue& queue, const DeviceBuffer<Float4>& x);
  // `only_detected`: nothing but the detected pairs can meet.
  absl::Status Filter(Queue& queue, const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched,
                      bool only_detected);
  absl::Status SetTopology(Queue& queue);
  /// Whether the boxes of the bodies' straight moves are more than distance_m apart.
  absl::StatusOr<bool> AreBodiesApart(Queue& queue, const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& to, float distance_m);
  absl::Status Linearize(Queue& queue, const DeviceBuffer<Float4>& x);
  absl::Status FindPieces(Queue& queue);
  absl::Status FindTangles(Queue& queue, const DeviceBuffer<Float4>& x);
  template <typename T>
  absl::Status Grow(Queue& queue, DeviceBuffer<T>* buffer, size_t count, const char* name);

  const TissueLayout& layout_;
  SurfaceSurroundings scene_;
  SurfaceFollower* follower_ = nullptr;
  SurfaceOptions options_;
  SurfaceParams params_host_{};
  double slack_share_ = 0;
  double reach_edge_m_ = 0;
  double moved_since_run_m_ = 0;  // at most, by any vertex since the detector looked at everything
  size_t reach_edges_ = 0;        // how many there were when it was last looked at
  std::shared_ptr<DeviceSurface> surface_;
  std::unique_ptr<SurfaceTopologyEditor> editor_;  // null: no edits so far
  SurfaceStatistics statistics_;
  uint32_t vertex_count_ = 0;
  uint32_t free_count_ = 0;
  uint32_t lanes_ = 1;
  uint32_t partial_count_ = 0;
  uint32_t pair_count_ = 0;
  uint32_t generation_ = 0;
  size_t device_bytes_ = 0;

  bool self_collision_on_ = true;
  bool meets_itself_ = false;  // some body does
  bool has_cuts_ = false;      // lips of which lie almost in touch
  bool idle_ = false;          // nothing can meet in this step
  bool are_pieces_known_ = false;

  ContinuousCollisions collisions_;
  ProximityDetector detector_;
  IntersectionCounter counter_of_crossings_;
  RadixSort<uint32_t> sort_;
  Kernel make_pairs_, bound_entries_, linearize_pairs_, bound_moves_, check_moves_, report_pairs_, mark_tangled_, shorten_moves_,
      keep_shares_, spread_shares_, apply_shares_, body_boxes_, piece_rows_, shift_pieces_, piece_depths_, clear_ways_;
  DeviceBuffer<SurfaceParams> params_;
  DeviceBuffer<Float4> rest_, x_sweep_, detected_, goal_, planes_;
  DeviceBuffer<uint32_t> vertex_origins_, tangled_, keys_, sorted_keys_, entries_, begins_, shares_, counter_, found_, body_begin_,
      body_vertices_;
  DeviceBuffer<float> kept_, spread_, vertex_stiffness_, depths_, clear_;
  DeviceBuffer<uint8_t> truncated_, is_near_;
  DeviceBuffer<SurfacePair> pairs_;
  DeviceBuffer<MovePartial> partials_;
  DeviceBuffer<SurfaceReport> reports_;
  DeviceBuffer<Box> boxes_;
  // Connected pieces of the scene.
  std::vector<uint8_t> piece_is_free_;
  bool has_free_pieces_ = false;
  std::vector<std::array<double, 3>> piece_shift_;  // since the detection
  std::vector<float> sums_host_, shares_of_parts_, depths_host_;
  std::vector<PieceRow> rows_host_;
  std::vector<Float4> shifts_host_;
  DeviceBuffer<uint32_t> vertex_piece_, piece_begin_, piece_vertices_;
  DeviceBuffer<PieceRow> rows_;
  DeviceBuffer<Float4> shifts_;
  DeviceBuffer<Float4> certified_;  // positions at the detection, not moved along
  std::vector<uint32_t> vertex_groups_, vertex_origins_host_;
  std::vector<float> vertex_stiffness_host_;
  std::vector<uint32_t> body_begin_host_;
  bool bodies_listed_ = false;  // body_begin_ and body_vertices_ are those of the surfaces
  std::vector<Box> boxes_host_;
  std::vector<MovePartial> partials_host_;
  std::vector<SurfaceReport> reports_host_;
};

}  // namespace palpate::gpu
