#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/nurbs_shell_correction.h"
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
/// How that frame moves, at rest; `first`: of the shell's control points.
NurbsFrameRows NurbsJointRows(std::span<const TissueNurbsShell> shells, const TissueNurbsJointSet& set, uint32_t first);
/// Errors: InvalidArgument naming the set and what is wrong (no shell, a control point that is held or out of range, weights, a line).
absl::Status CheckNurbsJointSets(std::span<const TissueNurbsShell> shells, std::span<const TissueNurbsJointSet> sets);

/// Control points of NURBS shells as ends of joints. To RigidJoints each set looks like a body, whose frame has the mean of its control
/// points as its origin and turns as fits them best. Efforts act on the control points by virtual work, f_j = a_j F + b_j (K^-1 T) x r_j, with
/// the weights a of the origin and b of the rotation. So at a patch point, where a are the basis functions, a force acts as it would there.
///
/// What resists the frames is all of the shell: the inverse of their compliance under (M / dt^2 + K)^-1, K the stiffness at rest, which
/// couples the sets of a shell. A solve moves the whole shell as its new efforts would. Together with NurbsShellCorrection that is a Newton
/// step on shell and joints. Planes of contact hold control points back as in sweeps; efforts go by the mean share of a set.
///
/// docs/algorithms/joints.md, "NURBS shells". Determinism: same input, same bits.
class NurbsJointFrames {
 public:
  /// `first_body`: of the sets, among the bodies of `joints`. Keeps a reference to `shells`, which know the sets.
  static absl::StatusOr<std::unique_ptr<NurbsJointFrames>> Create(Queue& queue, std::span<const TissueNurbsShell> models,
                                                                  std::span<const TissueNurbsJointSet> sets, NurbsShells& shells,
                                                                  uint32_t first_body, const RigidJoints& joints);
  /// What couples the sets, for RigidJoints::Create.
  static std::vector<JointCouplingBlock> CouplingsOf(const NurbsShells& shells, uint32_t first_body);

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
  absl::Status MakeLists(Queue& queue, std::span<const TissueNurbsShell> models, std::span<const TissueNurbsJointSet> sets,
                         uint32_t first_body, const RigidJoints& joints);
  absl::Status MakeStiffness(Queue& queue);
  absl::Status FindWrenches(Queue& queue, const DeviceBuffer<JointBodySystem>& systems);
  Range Sets() const { return {sets_host_.size(), group_}; }
  Range Held() const { return {held_.count(), group_}; }

  NurbsShells* shells_ = nullptr;
  uint32_t group_ = 1;  // work-items
  std::vector<NurbsJointSet> sets_host_;
  Kernel fit_, wrench_, share_, note_, load_, push_;
  DeviceBuffer<NurbsJointSet> sets_;
  DeviceBuffer<NurbsJointPart> parts_;
  DeviceBuffer<uint32_t> ends_;
  DeviceBuffer<UInt2> couplings_;    // see nurbs_joint_wrench
  DeviceBuffer<double> stiffness_;   // [pair of sets][36]
  DeviceBuffer<uint32_t> held_;      // slots of control points that are of sets
  DeviceBuffer<uint32_t> held_begins_, held_parts_;
  DeviceBuffer<Float4> y_free_;      // [held]
  DeviceBuffer<Float4> wrenches_;    // [set][2]
  DeviceBuffer<double> fits_, loads_;
};

}  // namespace palpate::gpu
