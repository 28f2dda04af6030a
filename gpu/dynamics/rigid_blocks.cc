#include "gpu/dynamics/rigid_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"
#include "gpu/dynamics/packed_types.h"
#include "gpu/dynamics/symmetric_eigen.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource rigid_blocks;
}
namespace {

constexpr uint32_t kNotRigid = 0xffffffffU;  // as in rigid_blocks.cl

using Vec3 = std::array<double, 3>;
using Quaternion = std::array<double, 4>;  // x y z w

Vec3 operator+(const Vec3& a, const Vec3& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }
Vec3 operator-(const Vec3& a, const Vec3& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Vec3 operator*(double s, const Vec3& a) { return {s * a[0], s * a[1], s * a[2]}; }
Vec3 Cross(const Vec3& a, const Vec3& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
Vec3 ToVec3(const Float4& v) { return {v.x, v.y, v.z}; }

Vec3 Rotate(const Quaternion& q, const Vec3& v) {
  const Vec3 u = {q[0], q[1], q[2]};
  const Vec3 t = 2.0 * Cross(u, v);
  return v + q[3] * t + Cross(u, t);
}
Vec3 RotateBack(const Quaternion& q, const Vec3& v) { return Rotate({-q[0], -q[1], -q[2], q[3]}, v); }

/// The quaternion of a rotation matrix (columns are the axes), by the largest of the four (Shepperd 1978).
Quaternion FromAxes(const Matrix<3>& m) {
  const double trace = m[0][0] + m[1][1] + m[2][2];
  const std::array<double, 4> candidates = {m[0][0], m[1][1], m[2][2], trace};
  const size_t i = static_cast<size_t>(std::max_element(candidates.begin(), candidates.end()) - candidates.begin());
  Quaternion q{};
  if (i == 3) {
    q = {m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1], 1 + trace};
  } else {
    const size_t j = (i + 1) % 3;
    const size_t k = (i + 2) % 3;
    q[i] = 1 + m[i][i] - m[j][j] - m[k][k];
    q[j] = m[i][j] + m[j][i];
    q[k] = m[i][k] + m[k][i];
    q[3] = m[k][j] - m[j][k];
  }
  const double norm = std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
  for (double& c : q) c /= norm;
  return q;
}

bool IsFinite(const Vec3& v) { return std::isfinite(v[0]) && std::isfinite(v[1]) && std::isfinite(v[2]); }

absl::Status CheckBlock(const RigidBlock& block, size_t index, uint32_t least_begin, size_t vertex_count) {
  const std::string where = absl::StrCat("rigid body ", index, ": ");
  if (block.vertex_begin < least_begin || block.vertex_end <= block.vertex_begin || block.vertex_end > vertex_count) {
    return absl::InvalidArgumentError(absl::StrCat(where, "vertices [", block.vertex_begin, ", ", block.vertex_end, ") are not within [",
                                                   least_begin, ", ", vertex_count, "]"));
  }
  if (!(block.mass_kg > 0) || !std::isfinite(block.mass_kg)) {
    return absl::InvalidArgumentError(absl::StrCat(where, "mass_kg ", block.mass_kg, " must be positive"));
  }
  if (!IsFinite(block.center_m) || !IsFinite(block.velocity_m_per_s) || !IsFinite(block.angular_velocity_rad_per_s)) {
    return absl::InvalidArgumentError(absl::StrCat(where, "center_m and velocities must be finite"));
  }
  for (const double damping : {block.damping_per_s, block.angular_damping_per_s}) {
    if (!(damping >= 0) || !std::isfinite(damping)) {
      return absl::InvalidArgumentError(absl::StrCat(where, "damping ", damping, " must be finite and not negative"));
    }
  }
  double largest = 0;
  for (const double c : block.inertia_kg_m2) largest = std::isfinite(c) ? std::max(largest, std::abs(c)) : c;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!(std::abs(block.inertia_kg_m2[3 * i + j] - block.inertia_kg_m2[3 * j + i]) <= 1e-9 * largest)) {
        return absl::InvalidArgumentError(absl::StrCat(where, "inertia_kg_m2 is not symmetric"));
      }
    }
  }
  return absl::OkStatus();
}

/// Pose, momentum and principal moments of a block; InvalidArgument if the inertia is not positive.
absl::StatusOr<RigidBlockState> InitialState(const RigidBlock& block, size_t index) {
  Matrix<3> inertia{};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) inertia[i][j] = block.inertia_kg_m2[3 * i + j];
  }
  Vec3 moments{};
  Matrix<3> axes{};
  SymmetricEigen<3>(inertia, &moments, &axes);
  if (!(*std::min_element(moments.begin(), moments.end()) > 0) || !IsFinite(moments)) {
    return absl::InvalidArgumentError(absl::StrCat("rigid body ", index, ": principal moments of inertia ", moments[0], ", ", moments[1],
                                                   ", ", moments[2], " kg m^2 must be positive"));
  }
  const Vec3 first = {axes[0][0], axes[1][0], axes[2][0]};
  const Vec3 second = {axes[0][1], axes[1][1], axes[2][1]};
  const Vec3 third = Cross(first, second);
  for (size_t i = 0; i < 3; ++i) axes[i][2] = third[i];
  const Quaternion q = FromAxes(axes);
  RigidBlockState state{};
  state.center = ToFloat4(block.center_m, block.mass_kg);
  state.rotation = {static_cast<float>(q[0]), static_cast<float>(q[1]), static_cast<float>(q[2]), static_cast<float>(q[3])};
  state.inertia = ToFloat4(moments, block.damping_per_s);
  state.velocity = ToFloat4(block.velocity_m_per_s);
  const Vec3 omega = RotateBack(q, block.angular_velocity_rad_per_s);
  state.momentum = ToFloat4(Rotate(q, {moments[0] * omega[0], moments[1] * omega[1], moments[2] * omega[2]}), block.angular_damping_per_s);
  state.center_start = state.center_free = state.center_detected = state.center;
  state.rotation_start = state.rotation_free = state.rotation_detected = state.rotation;
  state.vertex_begin = block.vertex_begin;
  state.vertex_end = block.vertex_end;
  state.triangle_begin = block.triangle_begin;
  state.triangle_end = block.triangle_end;
  return state;
}

Quaternion RotationOf(const RigidBlockState& state) { return {state.rotation.x, state.rotation.y, state.rotation.z, state.rotation.w}; }

}  // namespace

absl::StatusOr<std::unique_ptr<RigidBlocks>> RigidBlocks::Create(Queue& queue, std::span<const RigidBlock> blocks,
                                                                 std::span<const Float4> rest_m, std::span<const RigidBlockState> frames,
                                                                 bool has_momentum) {
  if (blocks.empty() && frames.empty()) return absl::InvalidArgumentError("rigid blocks: none given");
  std::unique_ptr<RigidBlocks> out(new RigidBlocks);
  out->rigid_count_ = static_cast<uint32_t>(blocks.size());
  out->first_vertex_ = blocks.empty() ? 0 : blocks.front().vertex_begin;
  uint32_t end = out->first_vertex_;
  std::vector<uint32_t> block_of;
  std::vector<uint32_t> movers(rest_m.size(), 0);
  std::vector<Float4> local(rest_m.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    PALPATE_RETURN_IF_ERROR(CheckBlock(blocks[i], i, end, rest_m.size()));
    end = blocks[i].vertex_end;
    block_of.resize(end - out->first_vertex_, kNotRigid);
    out->local_m_.resize(block_of.size());
    PALPATE_ASSIGN_OR_RETURN(RigidBlockState state, InitialState(blocks[i], i));
    for (uint32_t v = blocks[i].vertex_begin; v < blocks[i].vertex_end; ++v) {
      local[v] = ToFloat4(RotateBack(RotationOf(state), ToVec3(rest_m[v]) - blocks[i].center_m));
      out->local_m_[v - out->first_vertex_] = local[v];
      block_of[v - out->first_vertex_] = static_cast<uint32_t>(i);
      movers[v] = static_cast<uint32_t>(i + 1);
      const Vec3 arm = ToVec3(local[v]);
      state.radius_m = std::max(state.radius_m, 1.000001F * static_cast<float>(std::hypot(arm[0], arm[1], arm[2])));
    }
    out->initial_.push_back(state);
  }
  for (RigidBlockState frame : frames) {
    frame.vertex_begin = frame.vertex_end = end;
    out->initial_.push_back(frame);
  }
  out->vertex_count_ = end - out->first_vertex_;
  out->states_host_ = out->initial_;
  const std::shared_ptr<Context>& context = queue.context();
  const bool is_cpu = context->device().is_cpu;
  out->vertex_group_ = is_cpu ? 16 : 64;
  out->body_group_ = is_cpu ? 1 : 64;
  out->team_ = is_cpu ? 1 : 32;
  const size_t before = context->allocated_bytes();
  PALPATE_ASSIGN_OR_RETURN(out->states_, CreateBufferFrom(queue, std::span<const RigidBlockState>(out->initial_), "rigid states"));
  PALPATE_ASSIGN_OR_RETURN(out->block_of_, CreateBufferFrom(queue, std::span<const uint32_t>(block_of), "rigid body of vertex"));
  PALPATE_ASSIGN_OR_RETURN(out->movers_, CreateBufferFrom(queue, std::span<const uint32_t>(movers), "rigid mover of vertex"));
  std::vector<float> way(out->initial_.size() + 1, 0.0F);
  way.front() = std::numeric_limits<float>::infinity();
  PALPATE_ASSIGN_OR_RETURN(out->way_, CreateBufferFrom(queue, std::span<const float>(way), "rigid ways"));
  if (has_momentum) {
    PALPATE_ASSIGN_OR_RETURN(out->iterates_, DeviceBuffer<RigidIterate>::Create(context, out->initial_.size(), "rigid iterates"));
  }
  PALPATE_ASSIGN_OR_RETURN(out->own_, DeviceBuffer<RigidPairs>::Create(context, out->initial_.size(), "rigid pairs"));
  PALPATE_ASSIGN_OR_RETURN(out->local_, CreateBufferFrom(queue, std::span<const Float4>(local), "rigid local positions"));
  PALPATE_ASSIGN_OR_RETURN(out->no_entries_, DeviceBuffer<uint32_t>::Create(context, rest_m.size() + 1, "rigid without pairs"));
  PALPATE_RETURN_IF_ERROR(queue.Zero(out->no_entries_));
  out->device_bytes_ = context->allocated_bytes() - before;
  for (const auto& [kernel, name] :
       std::initializer_list<std::pair<Kernel*, const char*>>{{&out->push_by_air_, "rigid_push_by_air"},
                                                              {&out->predict_, "rigid_predict"},
                                                              {&out->place_, "rigid_place"},
                                                              {&out->detected_, "rigid_detected"},
                                                              {&out->goal_, "rigid_goal"},
                                                              {&out->take_back_, "rigid_take_back"},
                                                              {&out->bound_, "rigid_bound"},
                                                              {&out->list_pairs_, "rigid_list_pairs"},
                                                              {&out->solve_, "rigid_solve"},
                                                              {&out->move_jointed_, "rigid_move_jointed"},
                                                              {&out->share_jointed_, "rigid_share_jointed"},
                                                              {&out->bound_jointed_, "rigid_bound_jointed"},
                                                              {&out->inertia_jointed_, "rigid_inertia_jointed"},
                                                              {&out->finish_, "rigid_finish"},
                                                              {&out->roll_back_, "rigid_roll_back"}}) {
    PALPATE_ASSIGN_OR_RETURN(*kernel,
                             context->CreateKernel(kernels::rigid_blocks, name, {{"PALPATE_BODY_GROUP", std::to_string(out->team_)}}));
  }
  return out;
}

absl::Status RigidBlocks::SetJoints(Queue& queue, std::span<const RigidJoint> joints, double dissipation, const JointEnds& ends) {
  const size_t before = queue.context()->allocated_bytes();
  PALPATE_ASSIGN_OR_RETURN(const size_t coupled, JointFrames::CountCoupled(ends.mounts));
  const RigidJoints::BodyCounts counts = {
      .rigid = rigid_count_, .sets = ends.sets.size() + ends.shell_sets.size(), .coupled = coupled, .mounts = ends.mounts.size() - coupled};
  std::unique_ptr<NurbsJointFrames> of_shells;
  std::vector<JointCouplingBlock> couplings;
  if (!ends.shell_sets.empty()) {
    const auto first = static_cast<uint32_t>(rigid_count_ + ends.sets.size());
    PALPATE_ASSIGN_OR_RETURN(of_shells,
                             NurbsJointFrames::Create(queue, ends.shell_models, ends.shell_sets, *ends.shells, first, ends.dt_s));
    couplings = of_shells->Couplings();
  }
  PALPATE_ASSIGN_OR_RETURN(joints_, RigidJoints::Create(queue, joints, initial_, dissipation, counts, couplings));
  if (initial_.size() > rigid_count_) {
    if (of_shells) PALPATE_RETURN_IF_ERROR(of_shells->SetJoints(queue, *joints_));
    PALPATE_ASSIGN_OR_RETURN(frames_, JointFrames::Create(queue, ends.sets, ends.mounts, rigid_count_, std::move(of_shells)));
    PALPATE_RETURN_IF_ERROR(frames_->SetVertices(queue, ends.sets, *joints_));
  }
  device_bytes_ += queue.context()->allocated_bytes() - before;
  for (uint32_t m = 0; m < joints_->plan().members.size(); ++m) initial_[joints_->plan().members[m]].joint_member = m + 1;
  states_host_ = initial_;
  return queue.Write(states_, std::span<const RigidBlockState>(initial_));
}

absl::Status RigidBlocks::Place(Queue& queue, const DeviceBuffer<uint32_t>& begins, const DeviceBuffer<Float4>& x,
                                const DeviceBuffer<uint8_t>& touched) {
  if (vertex_count_ == 0) return absl::OkStatus();
  return queue.Launch(place_, {vertex_count_, vertex_group_}, Arg("first", first_vertex_), Arg("count", vertex_count_),
                      Arg("block_of", block_of_), Arg("blocks", states_), Arg("local_m", local_), Arg("begins", begins), Arg("x", x),
                      Arg("touched", touched));
}

absl::Status RigidBlocks::Reset(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  PALPATE_RETURN_IF_ERROR(queue.Write(states_, std::span<const RigidBlockState>(initial_)));
  states_host_ = initial_;
  if (joints_) PALPATE_RETURN_IF_ERROR(joints_->Reset(queue));
  if (frames_) frames_->Reset();
  return Place(queue, no_entries_, x, touched);
}

absl::Status RigidBlocks::GoOnFrom(Queue& queue, RigidBlocks& old) {
  PALPATE_RETURN_IF_ERROR(old.ReadStates(queue).status());
  if (joints_ && old.joints_) PALPATE_RETURN_IF_ERROR(joints_->GoOnFrom(queue, *old.joints_));
  if (frames_ && old.frames_) frames_->GoOnFrom(*old.frames_);
  return TakeStates(queue, old.states_host_);
}

absl::Status RigidBlocks::TakeStates(Queue& queue, const std::vector<RigidBlockState>& states) {
  if (states.size() != initial_.size()) return absl::InvalidArgumentError("rigid blocks: not the same bodies");
  states_host_ = states;
  for (size_t i = 0; i < initial_.size(); ++i) {
    states_host_[i].vertex_begin = initial_[i].vertex_begin;
    states_host_[i].vertex_end = initial_[i].vertex_end;
    states_host_[i].triangle_begin = initial_[i].triangle_begin;
    states_host_[i].triangle_end = initial_[i].triangle_end;
    states_host_[i].radius_m = initial_[i].radius_m;
    states_host_[i].joint_member = initial_[i].joint_member;
  }
  return queue.Write(states_, std::span<const RigidBlockState>(states_host_));
}

absl::Status RigidBlocks::SaveState(Queue& queue, StateWriter& archive) {
  // All members, so that a new one is not forgotten: the rest is as described.
  [[maybe_unused]] auto& [rigid_count, first_vertex, vertex_count, vertex_group, body_group, team, device_bytes, initial, states_host,
                          local_m, listed_edition, listing, push_by_air, predict, place, detected, goal, take_back, bound, list_pairs,
                          solve, move_jointed, share_jointed, bound_jointed, inertia_jointed, finish, roll_back, joints, frames, states,
                          block_of, movers, way, own_pairs, own, no_entries, local, iterates] = *this;
  PALPATE_RETURN_IF_ERROR(ReadStates(queue).status());
  archive.Enter("RigidBlocks");
  archive(states_host);
  if (frames) frames->SaveState(archive);
  return joints ? joints->SaveState(queue, archive) : absl::OkStatus();
}

absl::Status RigidBlocks::LoadState(Queue& queue, StateReader& archive) {
  std::vector<RigidBlockState> states;
  archive.Enter("RigidBlocks");
  archive(states);
  PALPATE_RETURN_IF_ERROR(archive.status());
  if (frames_) PALPATE_RETURN_IF_ERROR(frames_->LoadState(archive));
  if (joints_) PALPATE_RETURN_IF_ERROR(joints_->LoadState(queue, archive));
  return TakeStates(queue, states);
}

absl::Status RigidBlocks::Fit(Queue& queue, std::span<const Float4> positions_m, std::span<const Float4> velocities_m_per_s,
                              const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  const size_t end = size_t{first_vertex_} + vertex_count_;
  if (positions_m.size() < end || (!velocities_m_per_s.empty() && velocities_m_per_s.size() < end)) {
    return absl::InvalidArgumentError(absl::StrCat("rigid blocks: states of ", positions_m.size(), " vertices, need ", end));
  }
  states_host_ = initial_;
  if (joints_) joints_->Forget();
  for (RigidBlockState& state : std::span(states_host_).first(rigid_count_)) {
    // The frame's origin is not the mean of the vertices, so both sets are taken about their means.
    const double n = state.vertex_end - state.vertex_begin;
    Vec3 mean{};
    Vec3 local_mean{};
    Vec3 velocity{};
    for (uint32_t v = state.vertex_begin; v < state.vertex_end; ++v) {
      mean = mean + (1 / n) * ToVec3(positions_m[v]);
      local_mean = local_mean + (1 / n) * ToVec3(local_m_[v - first_vertex_]);
      if (!velocities_m_per_s.empty()) velocity = velocity + (1 / n) * ToVec3(velocities_m_per_s[v]);
    }
    Matrix<3> s{};
    for (uint32_t v = state.vertex_begin; v < state.vertex_end; ++v) {
      const Vec3 from = ToVec3(local_m_[v - first_vertex_]) - local_mean;
      const Vec3 to = ToVec3(positions_m[v]) - mean;
      for (size_t i = 0; i < 3; ++i) {
        for (size_t j = 0; j < 3; ++j) s[i][j] += from[i] * to[j];
      }
    }
    // Horn's matrix for quaternions in the order x y z w; the best one is the eigenvector of the largest eigenvalue.
    Matrix<4> horn{};
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) horn[i][j] = s[i][j] + s[j][i] - (i == j ? s[0][0] + s[1][1] + s[2][2] : 0.0);
    }
    horn[3][3] = s[0][0] + s[1][1] + s[2][2];
    horn[0][3] = horn[3][0] = s[1][2] - s[2][1];
    horn[1][3] = horn[3][1] = s[2][0] - s[0][2];
    horn[2][3] = horn[3][2] = s[0][1] - s[1][0];
    std::array<double, 4> values{};
    Matrix<4> vectors{};
    SymmetricEigen<4>(horn, &values, &vectors);
    const size_t best = static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
    const Quaternion q = {vectors[0][best], vectors[1][best], vectors[2][best], vectors[3][best]};
    const Vec3 center = mean - Rotate(q, local_mean);
    // Angular velocity: least squares of v = v_mean + omega x r.
    Matrix<3> normal{};
    Vec3 rhs{};
    for (uint32_t v = state.vertex_begin; v < state.vertex_end && !velocities_m_per_s.empty(); ++v) {
      const Vec3 r = ToVec3(positions_m[v]) - mean;
      rhs = rhs + Cross(r, ToVec3(velocities_m_per_s[v]) - velocity);
      const double square = r[0] * r[0] + r[1] * r[1] + r[2] * r[2];
      for (size_t i = 0; i < 3; ++i) {
        for (size_t j = 0; j < 3; ++j) normal[i][j] += (i == j ? square : 0.0) - r[i] * r[j];
      }
    }
    Vec3 spread{};
    Matrix<3> axes{};
    SymmetricEigen<3>(normal, &spread, &axes);
    Vec3 omega{};
    const double floor = 1e-12 * std::max({spread[0], spread[1], spread[2], 1e-300});
    for (size_t k = 0; k < 3; ++k) {  // what the vertices do not tell (all on a line) stays zero
      const double along = axes[0][k] * rhs[0] + axes[1][k] * rhs[1] + axes[2][k] * rhs[2];
      if (spread[k] > floor) omega = omega + (along / spread[k]) * Vec3{axes[0][k], axes[1][k], axes[2][k]};
    }
    state.center = ToFloat4(center, state.center.w);
    state.rotation = {static_cast<float>(q[0]), static_cast<float>(q[1]), static_cast<float>(q[2]), static_cast<float>(q[3])};
    state.velocity = ToFloat4(velocity + Cross(omega, center - mean));
    const Vec3 local_omega = RotateBack(q, omega);
    state.momentum =
        ToFloat4(Rotate(q, {state.inertia.x * local_omega[0], state.inertia.y * local_omega[1], state.inertia.z * local_omega[2]}),
                 state.momentum.w);
    state.acceleration = {};
    state.center_start = state.center_free = state.center_detected = state.center;
    state.rotation_start = state.rotation_free = state.rotation_detected = state.rotation;
  }
  PALPATE_RETURN_IF_ERROR(queue.Write(states_, std::span<const RigidBlockState>(states_host_)));
  return Place(queue, no_entries_, x, touched);
}

absl::Status RigidBlocks::PushByAir(Queue& queue, const RigidSurroundings& scene, const Float4& wind_m_per_s,
                                    const DeviceBuffer<float>& triangle_drag, const DeviceBuffer<Float4>& x) {
  return queue.Launch(push_by_air_, Bodies(), Arg("count", body_count()), Arg("p", *scene.params), Arg("wind", wind_m_per_s),
                      Arg("triangles", *scene.triangles), Arg("triangle_drag", triangle_drag), Arg("x", x), Arg("blocks", states_));
}

absl::Status RigidBlocks::Predict(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                                  const DeviceBuffer<uint8_t>& touched) {
  if (frames_) PALPATE_RETURN_IF_ERROR(frames_->Begin(queue, scene, states_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(predict_, Bodies(), Arg("count", body_count()), Arg("p", *scene.params), Arg("blocks", states_),
                                       Arg("iterates", iterates_.view()), Arg("way_m", way_)));
  if (joints_) PALPATE_RETURN_IF_ERROR(GuessJointed(queue, scene, x, touched));
  return Place(queue, no_entries_, x, touched);
}

absl::Status RigidBlocks::FilterBegins(Queue& queue) {
  return queue.Launch(goal_, Bodies(), Arg("count", body_count()), Arg("blocks", states_));
}

absl::Status RigidBlocks::Detected(Queue& queue) {
  return queue.Launch(detected_, Bodies(), Arg("count", body_count()), Arg("blocks", states_));
}

absl::Status RigidBlocks::TakeBack(Queue& queue, bool from_start, const DeviceBuffer<float>& shares,
                                   const DeviceBuffer<uint32_t>& entry_begins, const DeviceBuffer<Float4>& x,
                                   const DeviceBuffer<uint8_t>& touched) {
  if (joints_) PALPATE_RETURN_IF_ERROR(joints_->ShareOfGroups(queue, states_, shares));
  PALPATE_RETURN_IF_ERROR(queue.Launch(take_back_, Groups(body_count()), Arg("count", body_count()),
                                       Arg("from_start", uint32_t{from_start}), Arg("shares", shares), Arg("blocks", states_),
                                       Arg("way_m", way_)));
  return Place(queue, entry_begins, x, touched);
}

std::optional<uint32_t> RigidBlocks::BlockOf(uint32_t slot) const {
  const auto after = std::upper_bound(initial_.begin(), initial_.end(), slot,
                                      [](uint32_t v, const RigidBlockState& block) { return v < block.vertex_begin; });
  if (after == initial_.begin() || slot >= std::prev(after)->vertex_end) return std::nullopt;
  return static_cast<uint32_t>(std::prev(after) - initial_.begin());
}

absl::Status RigidBlocks::TakeMotion(Queue& queue, std::span<const RigidBlockState> states) {
  for (size_t i = 0; i < rigid_count_; ++i) {
    states_host_[i].velocity = states[i].velocity;
    states_host_[i].momentum = states[i].momentum;
  }
  return queue.Write(states_, std::span<const RigidBlockState>(states_host_));
}

absl::Status RigidBlocks::Bound(Queue& queue, const DeviceBuffer<uint32_t>& vertex_groups, const DeviceBuffer<float>& reaches,
                                const DeviceBuffer<Float4>& detected, const DeviceBuffer<float>& clear_m,
                                const DeviceBuffer<uint32_t>& entry_begins, const DeviceBuffer<Float4>& bounds,
                                const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(bound_, Groups(body_count()), Arg("count", body_count()), Arg("vertex_groups", vertex_groups),
                                       Arg("reaches", reaches), Arg("local_m", local_), Arg("detected", detected), Arg("clear_m", clear_m),
                                       Arg("begins", entry_begins), Arg("planes", bounds), Arg("blocks", states_),
                                       Arg("systems", joints_ ? joints_->systems().view() : BufferView<JointBodySystem>())));
  if (joints_) {
    PALPATE_RETURN_IF_ERROR(joints_->LeastOfGroups(queue));
    const auto member_count = static_cast<uint32_t>(joints_->members().count());
    PALPATE_RETURN_IF_ERROR(queue.Launch(bound_jointed_, Groups(member_count), Arg("count", member_count),
                                         Arg("members", joints_->members()), Arg("vertex_groups", vertex_groups), Arg("reaches", reaches),
                                         Arg("local_m", local_), Arg("detected", detected), Arg("clear_m", clear_m),
                                         Arg("begins", entry_begins), Arg("planes", bounds), Arg("blocks", states_),
                                         Arg("systems", joints_->systems())));
  }
  return Place(queue, entry_begins, x, touched);
}

absl::Status RigidBlocks::ListPairs(Queue& queue, const RigidSurroundings& scene) {
  if (scene.pairs == nullptr || listed_edition_ == scene.pairs_edition) return absl::OkStatus();
  listed_edition_ = scene.pairs_edition;
  const bool lists = listing_ != scene.pairs_listing;  // else only how far the planes are is new
  listing_ = scene.pairs_listing;
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), own_pairs_, scene.entries->count(), "rigid pairs of bodies"));
  return queue.Launch(list_pairs_, Groups(body_count()), Arg("count", body_count()), Arg("lists", uint32_t{lists}), Arg("blocks", states_),
                      Arg("begins", *scene.entry_begins), Arg("entries", *scene.entries), Arg("pairs", *scene.pairs),
                      Arg("clear_m", *scene.clear_m), Arg("own_pairs", own_pairs_), Arg("own", own_));
}

absl::Status RigidBlocks::Sweep(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                                const DeviceBuffer<uint8_t>& touched) {
  const auto view = [](const auto* buffer) { return buffer == nullptr ? std::remove_cvref_t<decltype(buffer->view())>{} : buffer->view(); };
  PALPATE_RETURN_IF_ERROR(ListPairs(queue, scene));
  const bool has_pairs = scene.pairs != nullptr;
  // Where nothing has moved since the pairs were linearised, those that did not push then do not now.
  const uint32_t near_bits = !has_pairs ? 0 : scene.moves_only_rigid ? PALPATE_PAIR_PUSHES : PALPATE_PAIR_NEAR;
  PALPATE_RETURN_IF_ERROR(queue.Launch(
      solve_, Groups(body_count()), Arg("count", body_count()), Arg("near_bits", near_bits), Arg("p", *scene.params),
      Arg("sp", view(scene.surface_params)), Arg("x", x), Arg("x_start", *scene.x_start), Arg("local_m", local_),
      Arg("detected", view(scene.detected)), Arg("clear_m", view(scene.clear_m)), Arg("is_near", view(scene.is_near)),
      Arg("begins", view(scene.entry_begins)), Arg("own_pairs", own_pairs_), Arg("own", own_), Arg("pairs", view(scene.pairs)),
      Arg("rows", view(scene.rows)), Arg("bounds", view(scene.bounds)), Arg("triangles", *scene.triangles),
      Arg("triangle_colliders", view(scene.triangle_colliders)), Arg("contacts", view(scene.tool_contacts)),
      Arg("colliders", view(scene.colliders)), Arg("obstacles", view(scene.planes)), Arg("anchor_begin", view(scene.anchor_begins)),
      Arg("anchors", view(scene.anchors)), Arg("blocks", states_), Arg("iterates", iterates_.view()),
      Arg("systems", joints_ ? joints_->systems().view() : BufferView<JointBodySystem>()), Arg("way_m", way_)));
  if (joints_) PALPATE_RETURN_IF_ERROR(MoveJointed(queue, scene, x, touched));
  if (frames_) PALPATE_RETURN_IF_ERROR(frames_->Push(queue, scene, *joints_));
  return Place(queue, has_pairs ? *scene.entry_begins : no_entries_, x, touched);
}

absl::Status RigidBlocks::PreparePhases(Queue& queue, const RigidSurroundings& scene, Kernel& run_phases) {
  PALPATE_RETURN_IF_ERROR(ListPairs(queue, scene));
  return run_phases.Bind(Arg("first_rigid", first_vertex_), Arg("rigid_of", block_of_), Arg("rigid_local", local_),
                         Arg("own_pairs", own_pairs_), Arg("own", own_), Arg("rigid_states", states_), Arg("rigid_way", way_));
}

/// The first guess of bodies with joints: their free flights, held together by a few solves with inertia alone. So a group that a filter
/// takes back by one share is still in its joints.
absl::Status RigidBlocks::GuessJointed(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                                       const DeviceBuffer<uint8_t>& touched) {
  constexpr int kRounds = 3;
  if (frames_) PALPATE_RETURN_IF_ERROR(frames_->PlaceMounts(queue, scene, states_));
  PALPATE_RETURN_IF_ERROR(joints_->Begin(queue, *scene.params, states_));
  if (frames_) PALPATE_RETURN_IF_ERROR(frames_->KeepEfforts(queue, *joints_, /*is_back=*/false));
  RigidSurroundings alone;
  alone.params = scene.params;
  const auto member_count = static_cast<uint32_t>(joints_->members().count());
  for (int round = 0; round < kRounds; ++round) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(inertia_jointed_, {member_count, body_group_}, Arg("count", member_count), Arg("p", *scene.params),
                                         Arg("members", joints_->members()), Arg("blocks", states_), Arg("systems", joints_->systems())));
    PALPATE_RETURN_IF_ERROR(MoveJointed(queue, alone, x, touched));
  }
  if (!frames_) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(frames_->KeepEfforts(queue, *joints_, /*is_back=*/true));
  PALPATE_RETURN_IF_ERROR(frames_->Note(queue, scene));
  // Loads act on shells at their vertices, so PushAgain finds these targets as they are here.
  if (frames_->shells() != nullptr) PALPATE_RETURN_IF_ERROR(frames_->shells()->Note(queue));
  return frames_->Push(queue, scene, *joints_);
}

absl::Status RigidBlocks::PushAgain(Queue& queue, const RigidSurroundings& scene) {
  if (!frames_) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(frames_->Note(queue, scene));
  return frames_->Push(queue, scene, *joints_);
}

absl::Status RigidBlocks::MoveJointed(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                                      const DeviceBuffer<uint8_t>& touched) {
  const auto view = [](const auto* buffer) { return buffer == nullptr ? std::remove_cvref_t<decltype(buffer->view())>{} : buffer->view(); };
  if (frames_) PALPATE_RETURN_IF_ERROR(frames_->Fit(queue, scene, x, states_, &joints_->systems()));
  PALPATE_RETURN_IF_ERROR(joints_->Solve(queue, *scene.params, states_));
  const auto member_count = static_cast<uint32_t>(joints_->members().count());
  const uint32_t has_planes = scene.pairs != nullptr ? 1 : 0;
  PALPATE_RETURN_IF_ERROR(queue.Launch(share_jointed_, Groups(member_count), Arg("count", member_count), Arg("has_planes", has_planes),
                                       Arg("members", joints_->members()), Arg("local_m", local_), Arg("detected", view(scene.detected)),
                                       Arg("clear_m", view(scene.clear_m)), Arg("begins", view(scene.entry_begins)), Arg("own", own_),
                                       Arg("bounds", view(scene.bounds)), Arg("blocks", states_), Arg("group_of", joints_->group_of()),
                                       Arg("systems", joints_->systems()), Arg("group_shares", joints_->group_shares())));
  if (frames_) {
    // Sets of vertices take from these shares, and move by them.
    PALPATE_RETURN_IF_ERROR(frames_->Share(queue, scene, x, joints_->systems()));
    PALPATE_RETURN_IF_ERROR(joints_->LeastOfGroups(queue));
    PALPATE_RETURN_IF_ERROR(frames_->Move(queue, scene, x, touched, joints_->systems()));
  }
  return queue.Launch(move_jointed_, Groups(member_count), Arg("count", member_count), Arg("has_planes", has_planes),
                      Arg("members", joints_->members()), Arg("local_m", local_), Arg("detected", view(scene.detected)),
                      Arg("clear_m", view(scene.clear_m)), Arg("begins", view(scene.entry_begins)), Arg("own", own_),
                      Arg("bounds", view(scene.bounds)), Arg("group_of", joints_->group_of()), Arg("group_shares", joints_->group_shares()),
                      Arg("blocks", states_), Arg("systems", joints_->systems()), Arg("way_m", way_));
}

absl::Status RigidBlocks::Finish(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(finish_, Bodies(), Arg("count", body_count()), Arg("p", *scene.params), Arg("blocks", states_)));
  if (frames_) PALPATE_RETURN_IF_ERROR(frames_->Fit(queue, scene, x, states_, nullptr));
  return joints_ ? joints_->Finish(queue, states_) : absl::OkStatus();
}

absl::Status RigidBlocks::RollBack(Queue& queue) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(roll_back_, Bodies(), Arg("count", body_count()), Arg("blocks", states_), Arg("way_m", way_)));
  return joints_ ? joints_->Finish(queue, states_) : absl::OkStatus();
}

absl::StatusOr<std::span<const RigidBlockState>> RigidBlocks::ReadStates(Queue& queue) {
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(states_, std::span<RigidBlockState>(states_host_)));
  return states();
}

}  // namespace palpate::gpu
