#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/nurbs_frame_compliance.h"
#include "gpu/dynamics/rigid_joints.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/joint_types.h"
#include "gpu/shared/rigid_types.h"

namespace palpate::gpu {

class NurbsShells;
struct RigidSurroundings;

/// Where the frame of a set is at rest [m]: the mean of its control points by `place`. Of a patch point that is the exact surface's.
std::array<double, 3> NurbsJointOrigin(std::span<const TissueNurbsShell> shells, const TissueNurbsJointSet& set);
/// Errors: InvalidArgument naming the set and what is wrong (no shell, a control point that is held or out of range, weights, a line).
absl::Status CheckNurbsJointSets(std::span<const TissueNurbsShell> shells, std::span<const TissueNurbsJointSet> sets);

/// Control points of NURBS shells as ends of joints. To RigidJoints each set looks like a body, whose frame has the mean of its control
/// points as its origin and turns as fits them best. Efforts act on the control points by virtual work, f_j = a_j F + b_j (K^-1 T) x r_j,
/// with the weights a of the origin and b of the rotation. So at a patch point, where a are the basis functions, a force acts as it would
/// there.
///
/// What resists the frames is all of the shell, which couples its sets: NurbsFrameCompliance, at the start of each step. A solve moves the
/// whole shell as its new efforts would. Together with NurbsShellCorrection that is a Newton step on shell and joints. Planes of contact
/// hold control points back as in sweeps; efforts go by the mean share of a set.
///
/// docs/algorithms/joints.md, "NURBS shells". Determinism: same input, same bits.
class NurbsJointFrames {
 public:
  /// `first_body`: of the sets, among the bodies of joints. Keeps a reference to `shells`. Precondition: CheckNurbsJointSets. Errors: those
  /// of NurbsFrameCompliance::Create.
  static absl::StatusOr<std::unique_ptr<NurbsJointFrames>> Create(Queue& queue, std::span<const TissueNurbsShell> models,
                                                                  std::span<const TissueNurbsJointSet> sets, NurbsShells& shells,
                                                                  uint32_t first_body, double dt_s);
  /// What couples the sets, for RigidJoints::Create.
  std::vector<JointCouplingBlock> Couplings() const;
  /// Once, before the first step. Keeps a reference. Errors: InvalidArgument (a set has no joint).
  absl::Status SetJoints(Queue& queue, RigidJoints& joints);

  uint32_t count() const { return static_cast<uint32_t>(sets_host_.size()); }

  // Within a step, after NurbsShells::Predict; they enqueue only. As JointFrames has them.
  absl::Status Begin(Queue& queue, const DeviceBuffer<RigidBlockState>& blocks);
  absl::Status Fit(Queue& queue, const DeviceBuffer<RigidBlockState>& blocks, const DeviceBuffer<JointBodySystem>* systems);
  absl::Status Share(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                     const DeviceBuffer<JointBodySystem>& systems);
  absl::Status Move(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched,
                    const DeviceBuffer<JointBodySystem>& systems);
  /// The inertial targets of control points are those without joints.
  absl::Status Note(Queue& queue);
  absl::Status Push(Queue& queue, const DeviceBuffer<StepParams>& params, const RigidJoints& joints);

 private:
  NurbsJointFrames() = default;
  absl::Status MakeParts(Queue& queue, std::span<const NurbsFrame> frames);
  absl::Status MakeResponses(Queue& queue);
  absl::Status Linearize(Queue& queue);
  absl::Status FindMoves(Queue& queue, const DeviceBuffer<JointBodySystem>& systems);
  Range Sets() const { return {sets_host_.size(), group_}; }
  Range Held() const { return {held_.count(), group_}; }

  NurbsShells* shells_ = nullptr;
  RigidJoints* joints_ = nullptr;
  std::unique_ptr<NurbsFrameCompliance> compliance_;
  uint32_t first_body_ = 0;
  uint32_t group_ = 1;  // work-items
  std::vector<NurbsJointSet> sets_host_;
  Kernel fit_, wrench_, moves_kernel_, share_, note_, load_, push_;
  DeviceBuffer<NurbsJointSet> sets_;
  DeviceBuffer<NurbsJointPart> parts_;
  DeviceBuffer<uint32_t> ends_;
  DeviceBuffer<UInt2> couplings_;   // see nurbs_joint_wrench
  DeviceBuffer<double> stiffness_;  // [pair of sets][36]
  DeviceBuffer<UInt4> solved_;      // see nurbs_joint_moves
  DeviceBuffer<uint32_t> frame_order_, slot_part_;
  DeviceBuffer<float> responses_;
  DeviceBuffer<Float4> moves_;   // [slot]
  DeviceBuffer<uint32_t> held_;  // slots of control points that are of sets
  DeviceBuffer<uint32_t> held_begins_, held_parts_;
  DeviceBuffer<Float4> y_free_;    // [held]
  DeviceBuffer<Float4> wrenches_;  // [set][2]
  DeviceBuffer<double> fits_, loads_;
};

}  // namespace palpate::gpu
