#include "gpu/dynamics/nurbs_joint_frames.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include <Eigen/Dense>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"
#include "gpu/dynamics/joint_frames.h"
#include "gpu/dynamics/nurbs_shells.h"
#include "gpu/dynamics/packed_types.h"
#include "gpu/dynamics/rigid_blocks.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource nurbs_joint_frames;
}
namespace {

using Eigen::Vector3d;

constexpr double kSumSlack = 1e-6;  // of weights
constexpr size_t kBlockReals = 36;
constexpr uint32_t kAllAxes = 7;
constexpr uint32_t kNoPart = 0xffffffffU;  // as in nurbs_shells.cl

Vector3d RestOf(std::span<const TissueNurbsShell> shells, const TissueNurbsJointSet& set, const TissueNurbsJointSet::Part& part) {
  return Vector3d(shells[set.shell].model->rest_m[part.control].data());
}

/// The mean by `turning`, about which a set turns.
Vector3d TurnCenter(std::span<const TissueNurbsShell> shells, const TissueNurbsJointSet& set) {
  Vector3d mean = Vector3d::Zero();
  for (const TissueNurbsJointSet::Part& part : set.parts) mean += part.turning * RestOf(shells, set, part);
  return mean;
}

}  // namespace

std::array<double, 3> NurbsJointOrigin(std::span<const TissueNurbsShell> shells, const TissueNurbsJointSet& set) {
  Vector3d origin = Vector3d::Zero();
  for (const TissueNurbsJointSet::Part& part : set.parts) origin += part.place * RestOf(shells, set, part);
  return {origin.x(), origin.y(), origin.z()};
}

absl::Status CheckNurbsJointSets(std::span<const TissueNurbsShell> shells, std::span<const TissueNurbsJointSet> sets) {
  for (size_t s = 0; s < sets.size(); ++s) {
    const TissueNurbsJointSet& set = sets[s];
    const auto error = [&](auto... what) { return absl::InvalidArgumentError(absl::StrCat("nurbs_joint_sets[", s, "]: ", what...)); };
    if (set.shell >= shells.size()) return error("there is no NURBS shell ", set.shell);
    const TissueNurbsShell& shell = shells[set.shell];
    double places = 0, turnings = 0;
    std::vector<std::array<double, 3>> points;
    for (size_t k = 0; k < set.parts.size(); ++k) {
      const TissueNurbsJointSet::Part& part = set.parts[k];
      const bool is_ascending = k == 0 || set.parts[k - 1].control < part.control;
      if (part.control >= shell.model->control_count() || !is_ascending) {
        return error("control point ", part.control, " is out of range or not ascending");
      }
      if (std::binary_search(shell.held.begin(), shell.held.end(), part.control)) {
        return error("control point ", part.control, " is not free");
      }
      if (!(part.place >= 0 && part.turning >= 0)) return error("a weight of control point ", part.control, " is below 0");
      places += part.place;
      turnings += part.turning;
      if (part.turning > 0) points.push_back(shell.model->rest_m[part.control]);
    }
    if (!(std::abs(places - 1) < kSumSlack && std::abs(turnings - 1) < kSumSlack)) return error("weights do not add up to 1");
    if (!SpanAPlane(points)) return error("what it turns with are less than three control points, or these lie on a line");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<NurbsJointFrames>> NurbsJointFrames::Create(Queue& queue, std::span<const TissueNurbsShell> models,
                                                                           std::span<const TissueNurbsJointSet> sets, NurbsShells& shells,
                                                                           uint32_t first_body, double dt_s) {
  const std::shared_ptr<Context>& context = queue.context();
  std::unique_ptr<NurbsJointFrames> out(new NurbsJointFrames);
  out->shells_ = &shells;
  out->first_body_ = first_body;
  out->group_ = context->device().is_cpu ? 1 : 32;
  for (const auto& [kernel, name] : std::initializer_list<std::pair<Kernel*, const char*>>{{&out->fit_, "nurbs_joint_fit"},
                                                                                           {&out->wrench_, "nurbs_joint_wrench"},
                                                                                           {&out->moves_kernel_, "nurbs_joint_moves"},
                                                                                           {&out->share_, "nurbs_joint_share"},
                                                                                           {&out->note_, "nurbs_joint_note"},
                                                                                           {&out->load_, "nurbs_joint_load"},
                                                                                           {&out->push_, "nurbs_joint_push"}}) {
    PALPATE_ASSIGN_OR_RETURN(*kernel, context->CreateKernel(kernels::nurbs_joint_frames, name));
  }
  NurbsShellModel all;
  std::vector<uint32_t> held_axes;
  for (const TissueNurbsShell& shell : models) {
    AppendNurbsShell(*shell.model, &all);
    const size_t first = held_axes.size();
    held_axes.resize(all.control_count(), 0);
    for (const uint32_t j : shell.held) held_axes[first + j] = kAllAxes;
  }
  std::vector<NurbsFrame> frames;
  for (const TissueNurbsJointSet& set : sets) {
    const Vector3d center = TurnCenter(models, set);
    NurbsFrame& frame = frames.emplace_back();
    for (const TissueNurbsJointSet::Part& part : set.parts) {
      frame.parts.push_back({.control = shells.control_begins()[set.shell] + part.control,
                             .place = part.place,
                             .turning = part.turning,
                             .arm_m = RestOf(models, set, part) - center});
    }
  }
  PALPATE_RETURN_IF_ERROR(out->MakeParts(queue, frames));
  PALPATE_ASSIGN_OR_RETURN(out->compliance_, NurbsFrameCompliance::Create(std::move(all), std::move(held_axes), dt_s, std::move(frames)));
  PALPATE_RETURN_IF_ERROR(out->MakeResponses(queue));
  return out;
}

std::vector<JointCouplingBlock> NurbsJointFrames::Couplings() const {
  std::vector<JointCouplingBlock> out;
  for (const NurbsFrameCompliance::Pair& pair : compliance_->pairs()) {
    out.push_back({.body = first_body_ + pair.a, .other = first_body_ + pair.b, .h = pair.h});
  }
  return out;
}

absl::Status NurbsJointFrames::MakeParts(Queue& queue, std::span<const NurbsFrame> frames) {
  std::vector<NurbsJointPart> parts;
  std::map<uint32_t, std::vector<uint32_t>> parts_of;  // slots
  for (uint32_t s = 0; s < frames.size(); ++s) {
    NurbsJointSet& set = sets_host_.emplace_back();
    set.body = first_body_ + s;
    set.begin = static_cast<uint32_t>(parts.size());
    for (const NurbsFrame::Part& part : frames[s].parts) {
      const uint32_t slot = shells_->SlotOf(part.control);
      parts_of[slot].push_back(static_cast<uint32_t>(parts.size()));
      parts.push_back({.arm = ToFloat4({part.arm_m.x(), part.arm_m.y(), part.arm_m.z()}, part.turning),
                       .control = slot,
                       .place = static_cast<float>(part.place),
                       .set = s,
                       .unused0 = 0});
    }
    set.end = static_cast<uint32_t>(parts.size());
  }
  std::vector<uint32_t> held, held_begins = {0}, held_parts;
  for (const auto& [slot, of_slot] : parts_of) {
    held.push_back(slot);
    held_parts.insert(held_parts.end(), of_slot.begin(), of_slot.end());
    held_begins.push_back(static_cast<uint32_t>(held_parts.size()));
  }
  PALPATE_ASSIGN_OR_RETURN(parts_, CreateBufferFrom(queue, std::span<const NurbsJointPart>(parts), "nurbs joint parts"));
  PALPATE_ASSIGN_OR_RETURN(held_, CreateBufferFrom(queue, std::span<const uint32_t>(held), "nurbs held control points"));
  PALPATE_ASSIGN_OR_RETURN(held_begins_, CreateBufferFrom(queue, std::span<const uint32_t>(held_begins), "nurbs held parts begin"));
  PALPATE_ASSIGN_OR_RETURN(held_parts_, CreateBufferFrom(queue, std::span<const uint32_t>(held_parts), "nurbs held parts"));
  PALPATE_ASSIGN_OR_RETURN(y_free_, DeviceBuffer<Float4>::Create(queue.context(), held.size(), "nurbs held targets"));
  return absl::OkStatus();
}

/// Lists of what couples the sets, each pair under both of them, and of what answers to them.
absl::Status NurbsJointFrames::MakeResponses(Queue& queue) {
  const std::shared_ptr<Context>& context = queue.context();
  std::vector<std::vector<UInt2>> of_set(sets_host_.size());
  for (uint32_t at = 0; at < compliance_->pairs().size(); ++at) {
    const NurbsFrameCompliance::Pair& pair = compliance_->pairs()[at];
    of_set[pair.a].push_back({pair.b, 2 * at});
    if (pair.a != pair.b) of_set[pair.b].push_back({pair.a, 2 * at + 1});
  }
  std::vector<UInt2> couplings;
  for (size_t s = 0; s < of_set.size(); ++s) {
    sets_host_[s].stiffness_begin = static_cast<uint32_t>(couplings.size());
    couplings.insert(couplings.end(), of_set[s].begin(), of_set[s].end());
    sets_host_[s].stiffness_end = static_cast<uint32_t>(couplings.size());
  }
  std::vector<UInt4> solved;
  std::vector<uint32_t> slot_part(shells_->control_count(), kNoPart);
  for (const NurbsFrameCompliance::Solved& control : compliance_->solved()) {
    solved.push_back({shells_->SlotOf(control.control), control.frame_begin, control.frame_end, control.response_begin});
    slot_part[solved.back().x] = 0;
  }
  const size_t pairs = compliance_->pairs().size();
  PALPATE_ASSIGN_OR_RETURN(couplings_, CreateBufferFrom(queue, std::span<const UInt2>(couplings), "nurbs joint couplings"));
  PALPATE_ASSIGN_OR_RETURN(solved_, CreateBufferFrom(queue, std::span<const UInt4>(solved), "nurbs joint responses of"));
  PALPATE_ASSIGN_OR_RETURN(frame_order_, CreateBufferFrom(queue, compliance_->frame_order(), "nurbs joint frames"));
  PALPATE_ASSIGN_OR_RETURN(slot_part_, CreateBufferFrom(queue, std::span<const uint32_t>(slot_part), "nurbs joint slots"));
  PALPATE_ASSIGN_OR_RETURN(stiffness_, DeviceBuffer<double>::Create(context, kBlockReals * pairs, "nurbs joint stiffness"));
  PALPATE_ASSIGN_OR_RETURN(responses_, DeviceBuffer<float>::Create(context, compliance_->responses().size(), "nurbs joint responses"));
  PALPATE_ASSIGN_OR_RETURN(moves_, DeviceBuffer<Float4>::Create(context, shells_->control_count(), "nurbs joint moves"));
  PALPATE_ASSIGN_OR_RETURN(wrenches_, DeviceBuffer<Float4>::Create(context, 2 * sets_host_.size(), "nurbs joint wrenches"));
  PALPATE_ASSIGN_OR_RETURN(loads_, DeviceBuffer<double>::Create(context, 6 * sets_host_.size(), "nurbs joint loads"));
  PALPATE_ASSIGN_OR_RETURN(fits_, DeviceBuffer<double>::Create(context, PALPATE_JOINT_FIT_REALS * sets_host_.size(), "nurbs joint fits"));
  PALPATE_RETURN_IF_ERROR(queue.Zero(moves_));
  return queue.Zero(fits_);
}

absl::Status NurbsJointFrames::SetJoints(Queue& queue, RigidJoints& joints) {
  joints_ = &joints;
  std::vector<uint32_t> ends;
  for (NurbsJointSet& set : sets_host_) {
    const std::optional<uint32_t> member = joints.plan().MemberOf(set.body);
    if (!member) return absl::InvalidArgumentError("nurbs joint sets: a set has no joint");
    set.member = *member;
    set.joint_begin = static_cast<uint32_t>(ends.size());
    joints.plan().AppendEnds(set.member, &ends);
    set.joint_end = static_cast<uint32_t>(ends.size());
  }
  PALPATE_ASSIGN_OR_RETURN(ends_, CreateBufferFrom(queue, std::span<const uint32_t>(ends), "nurbs joint ends"));
  PALPATE_ASSIGN_OR_RETURN(sets_, CreateBufferFrom(queue, std::span<const NurbsJointSet>(sets_host_), "nurbs joint sets"));
  return absl::OkStatus();
}

/// The tangent where control points were read last: at the start of the step.
absl::Status NurbsJointFrames::Linearize(Queue& queue) {
  std::vector<Vector3d> position_m;
  for (const Float4& p : shells_->ControlPoints()) position_m.emplace_back(p.x, p.y, p.z);
  PALPATE_RETURN_IF_ERROR(compliance_->Update(position_m));
  std::vector<double> h;
  h.reserve(kBlockReals * compliance_->pairs().size());
  for (const NurbsFrameCompliance::Pair& pair : compliance_->pairs()) {
    for (Eigen::Index r = 0; r < 6; ++r) {
      for (Eigen::Index c = 0; c < 6; ++c) h.push_back(pair.h(r, c));
    }
  }
  PALPATE_RETURN_IF_ERROR(queue.Write(stiffness_, std::span<const double>(h)));
  PALPATE_RETURN_IF_ERROR(queue.Write(responses_, compliance_->responses()));
  return joints_->SetCouplings(queue, Couplings());
}

absl::Status NurbsJointFrames::Begin(Queue& queue, const DeviceBuffer<RigidBlockState>& blocks) {
  PALPATE_RETURN_IF_ERROR(Linearize(queue));
  return queue.Launch(fit_, Sets(), Arg("count", count()), Arg("sets", sets_), Arg("parts", parts_), Arg("control", shells_->control()),
                      Arg("start", shells_->control_states().view()), Arg("blocks", blocks), Arg("systems", BufferView<JointBodySystem>()),
                      Arg("fits", fits_));
}

absl::Status NurbsJointFrames::Fit(Queue& queue, const DeviceBuffer<RigidBlockState>& blocks,
                                   const DeviceBuffer<JointBodySystem>* systems) {
  return queue.Launch(fit_, Sets(), Arg("count", count()), Arg("sets", sets_), Arg("parts", parts_), Arg("control", shells_->control()),
                      Arg("start", BufferView<ControlPointState>()), Arg("blocks", blocks),
                      Arg("systems", systems == nullptr ? BufferView<JointBodySystem>() : systems->view()), Arg("fits", fits_));
}

absl::Status NurbsJointFrames::FindMoves(Queue& queue, const DeviceBuffer<JointBodySystem>& systems) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(wrench_, Sets(), Arg("count", count()), Arg("sets", sets_), Arg("couplings", couplings_),
                                       Arg("stiffness", stiffness_), Arg("systems", systems), Arg("wrenches", wrenches_)));
  const auto solved = static_cast<uint32_t>(solved_.count());
  return queue.Launch(moves_kernel_, {solved, 0}, Arg("count", solved), Arg("solved", solved_), Arg("frame_order", frame_order_),
                      Arg("responses", responses_), Arg("wrenches", wrenches_), Arg("moves", moves_));
}

absl::Status NurbsJointFrames::Share(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                                     const DeviceBuffer<JointBodySystem>& systems) {
  if (scene.pairs == nullptr) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(FindMoves(queue, systems));
  PALPATE_RETURN_IF_ERROR(shells_->Go(queue, slot_part_, moves_, x));
  PALPATE_RETURN_IF_ERROR(queue.Launch(
      share_, Sets(), Arg("count", count()), Arg("sets", sets_), Arg("parts", parts_), Arg("support_begins", shells_->support_begins()),
      Arg("support", shells_->support()), Arg("slots", shells_->slots()), Arg("kept", shells_->kept()), Arg("x", x),
      Arg("detected", *scene.detected), Arg("begins", *scene.entry_begins), Arg("planes", *scene.bounds), Arg("systems", systems)));
  return shells_->Undo(queue, x);
}

absl::Status NurbsJointFrames::Move(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                                    const DeviceBuffer<uint8_t>& touched, const DeviceBuffer<JointBodySystem>& systems) {
  PALPATE_RETURN_IF_ERROR(FindMoves(queue, systems));
  PALPATE_RETURN_IF_ERROR(shells_->Go(queue, slot_part_, moves_, x));
  if (scene.pairs == nullptr) return absl::OkStatus();
  return shells_->HoldBack(queue, *scene.detected, *scene.clear_m, *scene.entry_begins, *scene.bounds, x, touched);
}

absl::Status NurbsJointFrames::Note(Queue& queue) {
  const auto held = static_cast<uint32_t>(held_.count());
  return queue.Launch(note_, Held(), Arg("count", held), Arg("held", held_), Arg("states", shells_->control_states()),
                      Arg("y_free", y_free_));
}

absl::Status NurbsJointFrames::Push(Queue& queue, const DeviceBuffer<StepParams>& params, const RigidJoints& joints) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(load_, Sets(), Arg("count", count()), Arg("scheme", joints.scheme()), Arg("sets", sets_),
                                       Arg("ends", ends_), Arg("places", joints.places()), Arg("systems", joints.systems()),
                                       Arg("reals", joints.reals()), Arg("states", joints.row_states()), Arg("fits", fits_),
                                       Arg("loads", loads_)));
  const auto held = static_cast<uint32_t>(held_.count());
  return queue.Launch(push_, Held(), Arg("count", held), Arg("p", params), Arg("held", held_), Arg("held_begins", held_begins_),
                      Arg("held_parts", held_parts_), Arg("parts", parts_), Arg("fits", fits_), Arg("loads", loads_),
                      Arg("y_free", y_free_), Arg("states", shells_->control_states()));
}

}  // namespace palpate::gpu
