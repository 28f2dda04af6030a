#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/smoothing_types.h"

namespace palpate::gpu {

/// A smoothing domain: a vertex with the node-smoothed tets of one material around it.
struct SmoothingDomain {
  uint32_t law = 0;  ///< a tet of its material
  double volume_m3 = 0;
  std::vector<uint32_t> vertices;                ///< in the order in which its tets name them, the own one first
  std::vector<std::array<double, 3>> gradients;  ///< [vertex] volume times the mean of rest gradients [m^2]
};

/// Those of the smoothed tets among `tets`, which rise: by vertices, those of a vertex by the first of their tets. O(tets), and a list as
/// long as the model's vertices.
std::vector<SmoothingDomain> FindSmoothingDomains(const TissueModel& model, std::span<const uint32_t> tets);

/// Smoothing domains laid out for the device: see gpu/dynamics/smoothing.clh for the arrays.
struct SmoothingLists {
  std::vector<uint32_t> begins;   ///< [domain_count + 1]
  std::vector<uint32_t> slots;    ///< [entry], the domain's own vertex first
  std::vector<Float4> gradients;  ///< [entry] 1/m
  std::vector<Float4> states;     ///< [domain][PALPATE_SMOOTHING_STATES] at rest
  std::vector<float> rates;       ///< [domain] damping / dt
  TissueLayout::BySlot<UInt2> ranges;
  std::vector<float> reals;       ///< [block][PALPATE_SMOOTHING_REALS][lanes]
  std::vector<uint32_t> indices;  ///< [block][lanes]

  uint32_t domain_count() const { return static_cast<uint32_t>(rates.size()); }
};

/// Domains by the caller's vertices, those of a vertex by the first of their tets; so they follow from the model and from which vertex has
/// which slot. O(smoothed tets).
SmoothingLists ListSmoothing(const TissueModel& model, const TissueLayout& layout, double dt_s);

/// Node-smoothed tets on the device: what the kernels of the sweeps read of their domains, and the mean deformation gradients there, which
/// follow the moves of a sweep colour by colour; each sweep measures them anew.
class SmoothingDomains {
 public:
  /// Keeps a reference. `defines`: of the solver's program (tissue.cl).
  SmoothingDomains(const TissueLayout& layout, double dt_s) : layout_(layout), dt_s_(dt_s) {}
  absl::Status Init(Queue& queue, const TissueModel& model, const ProgramDefines& defines);
  /// After an edit of the layout: domains are listed anew. Buffers may become others.
  absl::Status Follow(Queue& queue, const TissueModel& model);

  /// Gives a kernel its SMOOTHING_ARGS.
  absl::Status Bind(Kernel& kernel) const;
  /// Likewise its SMOOTHING_PHASE_ARGS.
  absl::Status BindPhases(Kernel& kernel) const;

  /// Start of a step: strains that viscosity works against.
  absl::Status Begin(Queue& queue, const DeviceBuffer<Float4>& x_start);
  /// Mean deformation gradients at positions x.
  absl::Status Measure(Queue& queue, const DeviceBuffer<Float4>& x);
  /// Their rotations, from the last ones, for energies that read them; after Measure.
  absl::Status Turn(Queue& queue);
  /// After Measure and moves of the colours before this one: they follow the vertices [first, first + count).
  absl::Status Move(Queue& queue, const DeviceBuffer<Float4>& x, uint32_t first, uint32_t count);
  /// What comes next must not depend on the rotations found so far.
  absl::Status ForgetRotations(Queue& queue);

  /// The rotations, from which the search for the next ones goes on. Blocking.
  absl::Status SaveState(Queue& queue, StateWriter& archive);
  absl::Status LoadState(Queue& queue, StateReader& archive);

  /// Elastic energy [J] of the domains at positions tissue.x, as parts of `partials` work-items in order; in double where `in_double` and
  /// the device has it. Blocking; changes no state.
  absl::StatusOr<double> Energy(Queue& queue, const TissueBuffers& tissue, uint32_t partials, bool in_double);

  uint32_t domain_count() const { return domain_count_; }
  size_t device_bytes() const;

 private:
  absl::Status Take(Queue& queue, const SmoothingLists& lists);
  absl::Status BindOwn();

  const TissueLayout& layout_;
  double dt_s_;
  uint32_t domain_count_ = 0;
  DeviceBuffer<uint32_t> begins_, slots_, indices_;
  DeviceBuffer<Float4> gradients_, states_, starts_, turns_, energy_turns_, x_domain_;
  DeviceBuffer<float> rates_, reals_;
  DeviceBuffer<UInt2> ranges_;
  DeviceBuffer<Float2> partials_;
  std::vector<Float2> partials_host_;
  Kernel measure_, move_, start_, turn_, sum_energy_;
};

}  // namespace palpate::gpu
