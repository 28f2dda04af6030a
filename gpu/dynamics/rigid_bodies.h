#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/body_broad_phase.h"
#include "gpu/collision/convex_narrow_phase.h"
#include "gpu/collision/kdop.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/convex_types.h"

namespace palpate::gpu {

struct RigidBodyDescription {
  uint32_t mesh = 0;                   ///< index of the meshes given to Create
  std::array<double, 3> position_m{};  ///< of the mesh's origin
  std::array<double, 4> rotation_wxyz{1, 0, 0, 0};
  std::array<double, 3> scale{1, 1, 1};      ///< not zero
  std::array<double, 3> velocity_m_per_s{};  ///< of the centre of mass
  std::array<double, 3> spin_rad_per_s{};
  double mass_kg = 1;  ///< spread evenly over the vertices; 0 = static
};

/// kSymplectic: v += h g, v /= 1 + h damping, x += h v, and rotations alike. kVerlet: x += h v + h^2 g / 2, v = (v + h g) damping.
enum class RigidIntegrator { kSymplectic, kVerlet };

/// What contacts are found from. kConvex: the bodies. kVolumes: their bounding volumes alone, those of BroadPhaseOptions::volume, built
/// anew in each iteration: a contact has the direction and depth of the least move that parts the volumes and pushes both bodies without
/// turning them. Cheaper, for bodies that fill their volumes. The ground acts on the bodies themselves in both.
enum class RigidNarrowPhase { kConvex, kVolumes };

/// Fewer iterations far from a point of interest, such as the viewer. A body whose nearest point (that of its sphere) is up to
/// full_distance_m away asks for all iterations, from reduced_distance_m on for reduced_iterations, between them for a share in proportion,
/// rounded up. A pair gets what the more demanding of its two bodies asks for. So a body has the same bits as without, unless a chain of
/// candidate pairs of moving bodies joins it to one that has fewer iterations.
struct RigidLevelOfDetail {
  std::array<double, 3> point_m{};
  double full_distance_m = 0;       ///< finite, >= 0
  double reduced_distance_m = 0;    ///< finite, >= full_distance_m
  uint32_t reduced_iterations = 1;  ///< 1 to iterations
};

struct RigidBodiesOptions {
  double dt_s = 1.0 / 120;
  std::array<double, 3> gravity_m_per_s2{0, 0, -9.81};
  RigidIntegrator integrator = RigidIntegrator::kSymplectic;
  double damping = 0;                             ///< kSymplectic: rate >= 0 [1/s]; kVerlet: factor on velocities each step in [0, 1]
  uint32_t iterations = 10;                       ///< of narrow phase and response
  uint32_t velocity_iterations = 4;               ///< after them; 0 with correct_velocities off
  bool correct_velocities = true;                 ///< off: contacts move bodies but leave their velocities
  bool line_search = true;                        ///< off: one plain shape match an iteration
  double friction = 0.3;                          ///< Coulomb, >= 0
  double restitution = 0;                         ///< in [0, 1]; impacts slower than two steps of gravity do not bounce
  std::optional<std::array<double, 4>> ground{};  ///< normal (not zero) and offset [m]: solid where normal . x < offset
  BroadPhaseOptions broad_phase{};
  RigidNarrowPhase narrow_phase = RigidNarrowPhase::kConvex;
  std::optional<RigidLevelOfDetail> level_of_detail{};
  bool measure_stages = false;      ///< wait after each stage and take its time
  bool collect_statistics = false;  ///< iterations of GJK and EPA, true contacts; costs a wait an iteration
};

enum class RigidStage { kIntegrate, kTransform, kVolumes, kBroadPhase, kNarrowPhase, kResponse, kVelocities };
inline constexpr size_t kRigidStageCount = 7;

/// What a step did.
struct RigidStep {
  uint32_t pair_count = 0;         ///< of the broad phase, ground not included
  uint32_t overlapping_pairs = 0;  ///< of them, in the first iteration; only with collect_statistics
  uint64_t solved_pairs = 0;       ///< pairs whose contact was looked for, summed over the iterations
  RigidCounters counters{};
  std::array<double, kRigidStageCount> stage_s{};  ///< only with measure_stages
};

/// State of one body, as in its description.
struct RigidBodyState {
  std::array<double, 3> position_m{};
  std::array<double, 4> rotation_wxyz{};
  std::array<double, 3> velocity_m_per_s{};
  std::array<double, 3> spin_rad_per_s{};
};

/// A world of convex rigid bodies on the device: k-DOP broad phase, GJK and EPA, response by shape matching after M. Mueller et al.,
/// "Meshless deformations based on shape matching", 2005. See docs/algorithms/shape_matching.md.
///
/// Contacts of one iteration are resolved all at once (Jacobi): each body gathers its pairs in the order of the pair list, its vertices
/// past a contact plane go back by the body's share of the masses, averaged over the planes of a vertex, and the body follows.
/// Guarantees: static bodies do not move; the state stays finite (a body that did not is put back, at rest, and counted); the same calls
/// give the same bits on the same device and driver; with line_search no step ends with a vertex below the ground by more
/// than rounding. Not guaranteed: that no penetration of bodies is left after the iterations; no continuous
/// detection, so thin bodies must not move farther than their size in a step. Thread: one at a time. Calls block.
class RigidBodies {
 public:
  /// Errors: InvalidArgument naming what is out of range.
  static absl::StatusOr<std::unique_ptr<RigidBodies>> Create(const std::shared_ptr<Context>& context, std::span<const ConvexMesh> meshes,
                                                             std::span<const RigidBodyDescription> bodies,
                                                             const RigidBodiesOptions& options);

  /// Advances by dt_s. Errors: InvalidArgument (a body so far away that its volume is not finite), ResourceExhausted, Internal.
  absl::StatusOr<RigidStep> Step();

  absl::StatusOr<std::vector<RigidBodyState>> ReadState();

  /// From the next step on. Errors: FailedPrecondition (no level_of_detail in the options), InvalidArgument (not finite).
  absl::Status SetPointOfInterest(const std::array<double, 3>& point_m);

  uint32_t body_count() const { return body_count_; }
  const ConvexStatistics& narrow_phase_statistics() const { return statistics_; }  ///< since Create
  const BroadPhaseStatistics& broad_phase_statistics() const { return broad_phase_.statistics(); }
  Queue& queue() { return *queue_; }

  /// Current poses (of the centres of mass), for other stages on this queue, and the meshes about those centres.
  ConvexBodies device_bodies() const;
  const ConvexMeshes& device_meshes() const { return meshes_; }

 private:
  class StageClock;
  struct BodyArrays;
  RigidBodies() = default;
  absl::Status MakeKernels(const std::shared_ptr<Context>& context);
  absl::Status MakeBuffers(const std::shared_ptr<Context>& context, const BodyArrays& arrays);
  absl::Status ReservePairs(uint32_t pair_count);
  absl::Status BuildVolumes();
  absl::StatusOr<BufferView<UInt2>> OrderPairs(std::vector<uint32_t>* active_pairs);
  // Parts of a step, in this order; `active_pairs`: by iteration.
  absl::Status Predict(StageClock& clock);
  absl::StatusOr<BufferView<UInt2>> FindPairs(RigidStep* step, std::vector<uint32_t>* active_pairs);
  absl::Status FindContacts(uint32_t iteration, uint32_t active, BufferView<UInt2> pairs, StageClock& clock, RigidStep* step);
  absl::Status Respond(uint32_t iteration, uint32_t active);
  absl::Status FinishVelocities(BufferView<UInt2> pairs);

  std::unique_ptr<Queue> queue_;
  RigidBodiesOptions options_;
  uint32_t body_count_ = 0;
  uint32_t vertex_count_ = 0;
  size_t group_ = 1;
  ConvexStatistics statistics_;
  ConvexMeshes meshes_;
  std::vector<std::array<double, 3>> centers_;  // centre of mass of each body from its origin, scaled, in its own frame

  Kernel predict_, world_vertices_, entries_kernel_, begins_kernel_, note_, respond_, finish_, velocities_kernel_, lift_;
  Kernel levels_kernel_, pair_levels_, ordered_pairs_kernel_, volume_contacts_;
  VolumeBuilder volume_builder_;
  BodyBroadPhase broad_phase_;
  ConvexNarrowPhase narrow_phase_;
  RadixSort<uint32_t> sort_;

  DeviceBuffer<RigidParams> params_;
  DeviceBuffer<RigidCounters> counters_;
  DeviceBuffer<uint32_t> mesh_of_, filters_, vertex_begins_, entry_begins_;
  DeviceBuffer<Float4> scales_, local_inertia_, inertia_;
  DeviceBuffer<Float4> positions_, rotations_, next_positions_, next_rotations_;
  DeviceBuffer<Float4> start_positions_, start_rotations_, predicted_positions_, predicted_rotations_;
  DeviceBuffer<Float4> velocities_, spins_, next_velocities_, next_spins_, before_velocities_, before_spins_;
  DeviceBuffer<Float4> world_;
  DeviceBuffer<float> volumes_;
  DeviceBuffer<RigidDetail> detail_;  // with level_of_detail, as the next three
  DeviceBuffer<uint32_t> levels_, level_counts_;
  DeviceBuffer<UInt2> ordered_pairs_;
  uint32_t pair_capacity_ = 0;
  DeviceBuffer<uint32_t> keys_, sorted_keys_, entries_;
  DeviceBuffer<ConvexContact> contacts_;
  DeviceBuffer<Float4> acting_;
};

}  // namespace palpate::gpu
