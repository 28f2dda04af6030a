#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/collision/proximity.h"
#include "gpu/collision/self_pairs.h"
#include "gpu/dynamics/body_boxes.h"
#include "gpu/dynamics/certified_positions.h"
#include "gpu/dynamics/contact_surface.h"
#include "gpu/dynamics/free_components.h"
#include "gpu/dynamics/move_check.h"
#include "gpu/dynamics/move_filter.h"
#include "gpu/dynamics/step_gate.h"
#include "gpu/dynamics/surface_follower.h"
#include "gpu/dynamics/surface_options.h"
#include "gpu/dynamics/surface_pairs.h"
#include "gpu/dynamics/surface_reach.h"
#include "gpu/dynamics/tangle_monitor.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// What contact between surfaces did in a step.
struct SurfaceStatistics {
  uint32_t contacts = 0;            ///< pairs of elements within the range of the last detection
  uint32_t acting = 0;              ///< those that push
  uint32_t detections = 0;          ///< proximity
  uint32_t filter_rounds = 0;       ///< continuous collision detections
  uint32_t filtered_vertices = 0;   ///< whose first guess those shortened
  uint32_t truncated_vertices = 0;  ///< whose last move was cut short by a bound
  uint32_t intersections = 0;       ///< edges through triangles, where that was counted
  uint32_t self_searches = 0;       ///< of bodies with themselves, over all detections of everything
  uint32_t listed_searches = 0;     ///< those of them that looked at a list only (SelfPairs)
  uint32_t renewed_lists = 0;
  double detect_ms = 0;
  double filter_ms = 0;
  double check_ms = 0;

  template <typename Archive>
  void VisitState(Archive& archive) {
    // Times are not state, nor is how something was found.
    [[maybe_unused]] auto& [a, b, c, d, e, f, g, h, i, j, detect, filter, check] = *this;
    archive(a, b, c, d, e, f, g);
  }
};

class SweptSurfaces;
class CertifiedSurfaces;

/// Keeps the surfaces of a scene from passing through each other while a solver moves their vertices one by one.
///
/// The positions `x` of a step are certified in turns: a detection at certified positions finds every pair of elements nearer than a range
/// and puts a plane between the two; the solver moves each vertex only behind its planes (displacement_bounds.clh), and pairs that were
/// farther away cannot have met as long as no vertex went beyond its body's reach (SurfaceReach). Where one did (a first guess of a fast
/// body), continuous collision detection shortens moves until none meet. Between certifications the pairs push each other by a barrier
/// energy with friction (surface_contact.clh), which the sweeps take into account.
///
/// A step is LiftGuess() and Begin() of this, the calls of the SweptSurfaces that Begin() gives, and its Certify(); what may be done to the
/// result stands in the CertifiedSurfaces that gives. The parts are classes of their own: surface and who meets whom (ContactSurface), how
/// far is looked (SurfaceReach), pairs and planes (SurfacePairs), moves (MoveCheck, BodyBoxes, MoveFilter), components that move as wholes
/// (FreeComponents), what passes through each other (TangleMonitor). This keeps them in step.
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

  /// Follows an edit of the layout: hands what changed to `writer`. False: it does not fit, and contacts must be created anew. Errors:
  /// InvalidArgument (surfaces).
  absl::StatusOr<bool> Follow(const TissueLayoutDelta& delta, RunWriter* writer);
  /// After that, when the writer's runs are written: pairs of the step before are forgotten. Whether elements pass through each other is
  /// known to be as it was, unless there were such, or `may_cross`.
  absl::Status GoOn(Queue& queue, const RunWriter::Written& written, const DeviceBuffer<Float4>& x, bool may_cross);

  /// Vertices that `follower` (or null) moves are taken back only together. It must outlive this.
  void SetFollower(SurfaceFollower* follower);

  /// Forgets the step before: positions were set from outside.
  absl::Status Reset(Queue& queue, const DeviceBuffer<Float4>& x);

  /// What a step starts from, beyond positions: how edits left the surface, what passes through each other, how far is looked. Blocking.
  absl::Status SaveState(Queue& queue, StateWriter& archive);
  /// Of one that was created of the same layout. Errors: InvalidArgument (a state of another surface).
  absl::Status LoadState(Queue& queue, StateReader& archive, const DeviceBuffer<Float4>& x);

  /// Whether bodies may meet themselves; on at first. Off while a mesh that was given tangled finds its shape, for which its surface must
  /// pass through itself.
  absl::Status SetSelfCollision(Queue& queue, bool on);

  /// Before Begin(), in scenes with cuts: takes components that nothing holds back out of the planes that the first guess x drops them
  /// into. The sweeps could not: what lies almost in touch above bounds their moves. One blocking read.
  absl::Status LiftGuess(Queue& queue, std::span<const PlaneObstacle> planes, const DeviceBuffer<PlaneObstacle>& device_planes,
                         const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x);

  /// Start of a step: x holds a first guess, x_start what the step before ended with. Shortens the guess, detects, and leaves a certified
  /// x. Nothing, with x as it was, if x is not finite: nothing can be said about such a step, and it must be rolled back. The buffers and
  /// this must outlive what is returned, which is good until the next Begin().
  absl::StatusOr<std::optional<SweptSurfaces>> Begin(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                                                     const DeviceBuffer<uint8_t>& touched);

  const SurfaceStatistics& statistics() const { return statistics_; }
  double range_m() const { return reach_.range_m(); }
  double reach_edge_m() const { return reach_.edge_m(); }  ///< see SurfaceReach
  size_t device_bytes() const;

  /// What kernels of the solver read; x at the start of the sweep, and so on as in tissue.cl. Buffers of pairs change when pairs are made:
  /// SurfacePairs::generation() counts that.
  const SurfacePairs& pairs() const { return pairs_; }
  absl::Status ReserveRows(Queue& queue) { return pairs_.ReserveRows(queue); }  ///< as SurfacePairs
  const DeviceBuffer<SurfaceParams>& params() const { return reach_.params(); }
  const DeviceBuffer<Float4>& x_sweep() const { return x_sweep_; }
  const DeviceSurface& device() const { return *surface_.device(); }
  const DeviceBuffer<Float4>& detected() const { return detected_; }
  /// Of the step that Begin() began.
  const FreeComponents& components() const { return components_; }

 private:
  friend class SweptSurfaces;
  friend class CertifiedSurfaces;

  SurfaceContacts(const TissueLayout& layout, const SurfaceOptions& options, const SurfaceSurroundings& scene, double slack_share);
  absl::Status Init(Queue& queue, uint32_t partials, SurfaceContacts* old);
  absl::Status BuildSurface(Queue& queue);
  absl::Status SetDetectors();
  absl::Status ForgetStep(Queue& queue, const DeviceBuffer<Float4>& x);
  absl::Status MakePairs(Queue& queue, bool are_same);
  absl::Status ClearPairs(Queue& queue);
  absl::StatusOr<Moves> CheckMoves(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);
  absl::StatusOr<bool> AreBodiesApart(Queue& queue, const CertifiedPositions& from, const DeviceBuffer<Float4>& to, float distance_m);
  /// What a detection looks at: everything; the pairs of the last one, because those are all that can be near (Moves::used_up); or these
  /// but for bodies of which too little is known (SurfaceReach::stale), whose reaches are set by then. Or the detector has just looked at
  /// everything.
  enum class Look : uint8_t { kEverything, kKnownPairs, kStaleBodies, kAlreadyLooked };
  /// Pairs at x, within the reaches that are set.
  absl::Status Detect(Queue& queue, const CertifiedPositions& x, bool at_start, Look look);
  /// Looks at everything, within the reaches that are set.
  absl::Status LookEverywhere(Queue& queue, const DeviceBuffer<Float4>& x);
  std::vector<float> SparesOf(const std::vector<uint8_t>& is_never_cut) const;
  ProximityRest RestOfPairs() const;
  absl::Status LookAhead(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x);
  absl::StatusOr<CertifiedPositions> Filter(Queue& queue, const CertifiedPositions& from, MoveFilter::From where,
                                            const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched, Meeting meeting);
  /// Whether the guess goes behind no plane: with cuts, where bounds on moves in the world would part what moves together.
  absl::StatusOr<bool> IsWithinPlanes(Queue& queue, const DeviceBuffer<Float4>& x);
  absl::Status BoundGuess(Queue& queue, const DeviceBuffer<Float4>& x);
  absl::Status FindTangles(Queue& queue, const DeviceBuffer<Float4>& x);
  bool looks_for_tangles() const { return options_.check_intersections || statistics_.intersections > 0; }
  uint32_t TruncatedLimit() const;
  absl::Status CloseStep(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x);
  // Of the two classes below.
  absl::Status MayDetectAgain(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                              const DeviceBuffer<uint8_t>& touched, bool* restarted);
  absl::Status Certify(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                       const DeviceBuffer<uint8_t>& touched);
  absl::StatusOr<bool> CertifyFromStart(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                                        const DeviceBuffer<uint8_t>& touched);

  const TissueLayout& layout_;
  SurfaceOptions options_;
  uint32_t vertex_count_ = 0;
  SurfaceFollower* follower_ = nullptr;
  SurfaceStatistics statistics_;
  bool is_idle_ = false;             // nothing can meet in this step
  bool expects_detection_ = false;   // at the start of the next step, since that of this one had it
  bool are_bodies_known_ = false;    // to reach_
  bool has_never_cut_ = false;       // bodies that are never cut: NURBS shells
  std::vector<double> body_edge_m_;  // [body] harmonic mean at rest, of bodies that meet themselves

  ContactSurface surface_;
  SurfaceReach reach_;
  BodyBoxes boxes_;
  MoveCheck check_;
  MoveFilter filter_;
  TangleMonitor tangles_;
  SurfacePairs pairs_;
  FreeComponents components_;
  ProximityDetector detector_;
  SelfPairs self_pairs_;
  DeviceBuffer<Float4> x_sweep_;
  DeviceBuffer<Float4> detected_;    // positions at the detection, moved along with components
  DeviceBuffer<Float4> certified_;   // likewise, not moved along
  DeviceBuffer<uint8_t> truncated_;  // [slot] its first guess was shortened
};

/// The sweeps of a step whose surfaces are kept apart, from SurfaceContacts::Begin() to Certify(). `x` moves between the planes.
class SweptSurfaces {
 public:
  /// Enqueues what a sweep needs: the nearest points of all pairs, and the positions at its start.
  absl::Status BeforeSweep(Queue& queue);

  /// Between sweeps: certifies x and detects anew if moves were held back by much or went far, and detections are left. Returns whether it
  /// did. `touched` marks truncated vertices with bit 1.
  absl::StatusOr<bool> MayDetectAgain(Queue& queue);
  /// For a host that runs ahead (StepGate): whether it can, as things are; MayDetectAgain as check `number`, closing the gate where that
  /// would do anything; and Certify likewise, as the last check. What that returns holds if the gate stays open, after TakeChecks.
  bool can_run_ahead() const;
  absl::Status CheckAhead(Queue& queue, StepGate& gate, const DeviceBuffer<uint32_t>& gate_buffer, uint32_t number);
  absl::StatusOr<CertifiedSurfaces> CertifyAhead(Queue& queue, StepGate& gate, const DeviceBuffer<uint32_t>& gate_buffer);

  /// FreeComponents::Shift at x. The detection moves along, and so do x_before and x_before2 (empty: none); components approach each other
  /// by a share of their distance then, which the planes leave to this.
  absl::Status ShiftComponents(Queue& queue, const DeviceBuffer<float>& sums, const FreeComponents::ShiftLimit& limit,
                               const DeviceBuffer<Float4>& x_before, const DeviceBuffer<Float4>& x_before2,
                               const DeviceBuffer<uint32_t>& gate);

  /// End of the sweeps: certifies x. Pairs are linearised at the result.
  absl::StatusOr<CertifiedSurfaces> Certify(Queue& queue) &&;

 private:
  friend class SurfaceContacts;
  SweptSurfaces(SurfaceContacts& contacts, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                const DeviceBuffer<uint8_t>& touched)
      : contacts_(&contacts), x_start_(&x_start), x_(&x), touched_(&touched) {}

  SurfaceContacts* contacts_;
  const DeviceBuffer<Float4>* x_start_;
  const DeviceBuffer<Float4>* x_;
  const DeviceBuffer<uint8_t>* touched_;
};

/// A step whose x is certified: what may still be done to it.
class CertifiedSurfaces {
 public:
  /// Someone who knows nothing of other surfaces took vertices back towards the start of the step: certifies x anew, as straight moves from
  /// there. Returns whether that changed x.
  absl::StatusOr<bool> CertifyFromStart(Queue& queue);

  /// Pairs that push at x, in canonical order; valid until the next call. In two parts: the second after the next blocking call.
  /// After CertifyAhead and a blocking call, if the gate is open. Blocks where crossings are looked for.
  absl::Status TakeChecks(Queue& queue);
  absl::Status EnqueueReport(Queue& queue);
  absl::StatusOr<std::span<const SurfaceReport>> TakeReport(Queue& queue);

 private:
  friend class SweptSurfaces;
  CertifiedSurfaces(SurfaceContacts& contacts, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                    const DeviceBuffer<uint8_t>& touched)
      : contacts_(&contacts), x_start_(&x_start), x_(&x), touched_(&touched) {}

  SurfaceContacts* contacts_;
  const DeviceBuffer<Float4>* x_start_;
  const DeviceBuffer<Float4>* x_;
  const DeviceBuffer<uint8_t>* touched_;
};

}  // namespace palpate::gpu
