#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Pressures of kept volumes at given positions.
enum class KeptPressure : uint32_t {
  kOfEnergy = 0xffffffffU,     ///< k (V - V0) / V0
  kOfThisSweep = 0xfffffffeU,  ///< with the stiffness that acts in sweeps and its multiplier
  kOfNextSweep = 0xfffffffdU   ///< likewise, when the multiplier has followed; rounding of V counts less than in kOfEnergy
};

/// The surface vertices of the bodies whose volume is kept, and the triangles that measure it.
struct VolumeLists {
  std::vector<uint32_t> bodies;           ///< of TissueModel::volume_stiffness_pa; those with a surface and a stiffness
  std::vector<double> rest_volume_m3;     ///< [body] within the surface at rest, positive
  std::vector<double> stiffness_pa;       ///< [body]
  std::vector<double> bulk_modulus_pa;    ///< [body] mean over the tets at its surface; of a shell that of what its membrane encloses
  std::vector<uint32_t> triangle_begins;  ///< [body_count + 1] in body_triangles
  std::vector<uint32_t> body_triangles;   ///< places in TissueLayout::triangles, rising for each body
  std::vector<uint32_t> begins;           ///< [(color_count + 1) body_count + 1] in entry_vertex: colour by colour, fixed vertices last
  std::vector<uint32_t> entry_vertex;     ///< slots, rising for each colour and body
  std::vector<uint32_t> entry_body;       ///< place in `bodies`
  TissueLayout::BySlot<uint32_t> vertex_entry;  ///< kNoTissueVertex: none
  TissueLayout::BySlot<uint32_t> slot_body;     ///< place in `bodies`, of vertices within as well; kNoTissueVertex: in none of them
};

/// Whether a body keeps its volume, or one that is gone did.
inline bool KeepsVolumes(const TissueModel& model) {
  return std::any_of(model.volume_stiffness_pa.begin(), model.volume_stiffness_pa.end(), [](double k) { return k != 0; });
}

/// Errors: InvalidArgument for a stiffness that is negative or not finite, a number of them other than that of the bodies, triangles whose
/// body is not known, a body without a positive volume at rest. O(triangles + vertices).
absl::StatusOr<VolumeLists> ListVolumes(const TissueModel& model, const TissueLayout& layout);

/// The pressures of bodies that keep their volume, on the device. One for each body, for a sweep goes through colours one by one: the
/// volume is linear in the moves of one colour, none of whose vertices share a triangle, so the step of the whole colour is worked out
/// exactly, whatever the stiffness (a solve of rank one, after Sherman and Morrison 1950); docs/algorithms/tissue.md, "Keeping volume".
///
/// Thread: one at a time. Determinism: same input and group size, same bits.
class VolumeKeeper {
 public:
  /// `group_size`: work-items that share a body, 1 or a power of two.
  static absl::StatusOr<std::unique_ptr<VolumeKeeper>> Create(Queue& queue, const VolumeLists& lists, uint32_t group_size);
  /// After an edit: other bodies, vertices and triangles. Buffers may become others.
  absl::Status Follow(Queue& queue, const VolumeLists& lists);
  /// Pressures of bodies that `old` has as well go on from there.
  absl::Status GoOnFrom(Queue& queue, VolumeKeeper& old);
  /// Forgets the pressures.
  absl::Status Reset(Queue& queue);
  /// The pressures; all else follows from the model and the layout. Blocking.
  absl::Status SaveState(Queue& queue, StateWriter& archive);
  absl::Status LoadState(Queue& queue, StateReader& archive);

  /// Start of a sweep: measures the volumes at positions x. `goes_on`: it is not the first of its step.
  absl::Status Measure(Queue& queue, const DeviceBuffer<UInt4>& triangles, const DeviceBuffer<Float4>& x, bool goes_on);
  /// Entries of a colour: first and count.
  UInt2 EntriesOf(uint32_t color) const;
  /// After solve_color: works out the pressures for the moves of this colour. The colours of a sweep must come in turn, those without
  /// entries left out.
  absl::Status Balance(Queue& queue, uint32_t color);
  /// After Measure.
  absl::Status Balance(Queue& queue, KeptPressure which);

  /// Of moves u by slot, which know nothing of the volumes, and what they would be for the volumes' gradients a in the place of forces, w:
  /// the share s of each body, with which u - s w know of them too. By slot; s: [place among the bodies that keep their volume].
  absl::Status ShareYields(Queue& queue, const DeviceBuffer<Float4>& gradients, const DeviceBuffer<Float4>& moves,
                           const DeviceBuffer<Float4>& yields);

  const DeviceBuffer<uint32_t>& slot_body() const { return slot_body_; }  ///< as VolumeLists
  const DeviceBuffer<float>& shares() const { return shares_; }           ///< of ShareYields
  const DeviceBuffer<uint32_t>& vertex_entry() const { return vertex_entry_; }
  const DeviceBuffer<uint32_t>& entry_vertex() const { return entry_vertex_; }
  const DeviceBuffer<uint32_t>& entry_body() const { return entry_body_; }
  const DeviceBuffer<Float4>& bodies() const { return bodies_; }  ///< see volume.cl
  const DeviceBuffer<Float4>& moves() const { return moves_; }    ///< [entry][3]
  size_t device_bytes() const;

 private:
  absl::Status Launch(Queue& queue, uint32_t color, uint32_t previous, bool goes_on);
  absl::StatusOr<std::vector<float>> ReadMultipliers(Queue& queue);
  absl::Status SetMultipliers(Queue& queue, const std::vector<uint32_t>& old_bodies, const std::vector<float>& old);

  uint32_t group_size_ = 1;
  uint32_t body_count_ = 0;
  uint32_t color_count_ = 0;
  uint32_t previous_ = 0;  // colour of this sweep
  bool goes_on_ = false;
  std::vector<uint32_t> begins_host_;
  std::vector<uint32_t> bodies_host_;
  DeviceBuffer<uint32_t> triangle_begins_, body_triangles_, begins_, entry_vertex_, entry_body_, vertex_entry_, slot_body_;
  DeviceBuffer<Float2> partials_, rest_volumes_;
  DeviceBuffer<Float4> bodies_, moves_;
  DeviceBuffer<float> multipliers_, shares_;
  Kernel measure_volumes_, volume_pressure_, volume_shares_;
};

}  // namespace palpate::gpu
