#include "gpu/dynamics/rigid_joints.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"
#include "gpu/dynamics/packed_types.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource rigid_joints;
}
namespace {

constexpr size_t kJointReals = 270;  // as in rigid_joints.cl
constexpr size_t kRows = 6;
constexpr size_t kBlockReals = 36;
constexpr uint32_t kNoBlock = 0xffffffffU;

using Vec3 = std::array<double, 3>;
using Quaternion = std::array<double, 4>;  // x y z w

Vec3 Cross(const Vec3& a, const Vec3& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
Vec3 Rotate(const Quaternion& q, const Vec3& v) {
  const Vec3 u = {q[0], q[1], q[2]};
  Vec3 t = Cross(u, v);
  for (double& c : t) c *= 2;
  const Vec3 ut = Cross(u, t);
  return {v[0] + q[3] * t[0] + ut[0], v[1] + q[3] * t[1] + ut[1], v[2] + q[3] * t[2] + ut[2]};
}
Quaternion Product(const Quaternion& a, const Quaternion& b) {
  const Vec3 c = Cross({a[0], a[1], a[2]}, {b[0], b[1], b[2]});
  return {a[3] * b[0] + b[3] * a[0] + c[0], a[3] * b[1] + b[3] * a[1] + c[1], a[3] * b[2] + b[3] * a[2] + c[2],
          a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2]};
}
Quaternion Back(const Quaternion& q) { return {-q[0], -q[1], -q[2], q[3]}; }

Quaternion RotationOf(const RigidBlockState& state) {
  Quaternion q = {state.rotation.x, state.rotation.y, state.rotation.z, state.rotation.w};
  const double norm = std::sqrt(std::inner_product(q.begin(), q.end(), q.begin(), 0.0));
  for (double& c : q) c /= norm;
  return q;
}

struct End {
  Float4 point, rotation;
};

/// A point and a frame of W as the body has them.
End EndOn(std::span<const RigidBlockState> states, uint32_t body, const Vec3& point_m, const Quaternion& frame) {
  if (body == RigidJoint::kWorld) {
    return {ToFloat4(point_m),
            {static_cast<float>(frame[0]), static_cast<float>(frame[1]), static_cast<float>(frame[2]), static_cast<float>(frame[3])}};
  }
  const RigidBlockState& state = states[body];
  const Quaternion back = Back(RotationOf(state));
  const Quaternion turned = Product(back, frame);
  return {ToFloat4(Rotate(back, {point_m[0] - state.center.x, point_m[1] - state.center.y, point_m[2] - state.center.z})),
          {static_cast<float>(turned[0]), static_cast<float>(turned[1]), static_cast<float>(turned[2]), static_cast<float>(turned[3])}};
}

JointRow RowData(const RigidJointRow& row) {
  JointRow out{};
  out.target = static_cast<float>(row.target);
  out.speed = static_cast<float>(row.speed);
  out.stiffness = static_cast<float>(row.stiffness);
  out.damping = static_cast<float>(row.damping);
  out.max_effort = static_cast<float>(row.max_effort);
  out.lower = static_cast<float>(row.lower);
  out.upper = static_cast<float>(row.upper);
  out.drive = static_cast<uint32_t>(row.drive);
  return out;
}

absl::Status CheckJoint(const RigidJoint& joint, size_t index, const RigidJoints::BodyCounts& counts) {
  const size_t movable = counts.rigid + counts.sets + counts.coupled;
  const size_t body_count = movable + counts.mounts;
  const std::string where = absl::StrCat("joint ", index, ": ");
  for (const uint32_t body : {joint.body_a, joint.body_b}) {
    if (body != RigidJoint::kWorld && body >= body_count) {
      return absl::InvalidArgumentError(absl::StrCat(where, "there is no rigid body ", body, ", of ", body_count));
    }
  }
  if (joint.body_a >= movable && joint.body_b >= movable) {
    return absl::InvalidArgumentError(absl::StrCat(where, "both ends are the world, or moved from outside"));
  }
  if (joint.body_a == joint.body_b) return absl::InvalidArgumentError(absl::StrCat(where, "both ends are one body"));
  double square = 0;
  for (const double c : joint.frame) square += c * c;
  if (!(std::abs(square - 1) < 1e-6)) return absl::InvalidArgumentError(absl::StrCat(where, "frame: is not a unit quaternion"));
  for (const double c :
       {joint.point_a_m[0], joint.point_a_m[1], joint.point_a_m[2], joint.point_b_m[0], joint.point_b_m[1], joint.point_b_m[2]}) {
    if (!std::isfinite(c)) return absl::InvalidArgumentError(absl::StrCat(where, "points must be finite"));
  }
  for (size_t r = 0; r < kRows; ++r) {
    if (absl::Status status = RigidJoints::CheckRow(joint.rows[r]); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(where, "rows[", r, "].", std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

/// Makes the order in which the unknowns of one group are eliminated: always one with the fewest neighbours, bodies first. A joint with
/// nothing on its diagonal comes after one of its bodies, which fill it in.
class Elimination {
 public:
  /// Unknowns: bodies, then joints.
  Elimination(std::vector<uint32_t> bodies, std::vector<uint32_t> joints, std::span<const RigidJoint> all, std::vector<uint32_t> couplings,
              std::span<const JointCouplingBlock> all_couplings)
      : bodies_(std::move(bodies)),
        joints_(std::move(joints)),
        couplings_(std::move(couplings)),
        neighbours_(bodies_.size() + joints_.size()),
        may_go_(neighbours_.size(), false),
        place_(neighbours_.size(), 0) {
    std::fill_n(may_go_.begin(), bodies_.size(), true);
    for (size_t j = 0; j < joints_.size(); ++j) {
      for (const uint32_t body : {all[joints_[j]].body_a, all[joints_[j]].body_b}) {
        if (!std::binary_search(bodies_.begin(), bodies_.end(), body)) continue;
        Connect(BodyUnknown(body), static_cast<uint32_t>(bodies_.size() + j));
      }
    }
    for (const uint32_t c : couplings_) {
      const JointCouplingBlock& coupling = all_couplings[c];
      if (coupling.body != coupling.other) Connect(BodyUnknown(coupling.body), BodyUnknown(coupling.other));
    }
  }

  /// Appends the group to the plan, whose blocks of joints are then known.
  void AppendTo(std::span<const uint32_t> member_of, std::span<const RigidJoint> all, std::span<const JointCouplingBlock> all_couplings,
                JointPlan* plan) {
    const auto node_begin = static_cast<uint32_t>(plan->nodes.size());
    const uint32_t block_begin = plan->block_count;
    next_block_ = block_begin;
    for (auto& [edge, block] : blocks_) block = next_block_++;
    struct Step {
      uint32_t unknown;
      std::vector<uint32_t> below;  // unknowns
    };
    std::vector<Step> steps;
    for (uint32_t u = 0; u < neighbours_.size(); ++u) Queue(u);
    while (!queue_.empty()) {
      const uint32_t u = std::get<2>(*queue_.begin());
      steps.push_back({u, Eliminate(u)});
      place_[u] = node_begin + static_cast<uint32_t>(steps.size()) - 1;
    }
    for (const Step& step : steps) {
      std::vector<uint32_t> below = step.below;
      std::sort(below.begin(), below.end(), [&](uint32_t a, uint32_t b) { return place_[a] < place_[b]; });
      JointNode node{};
      node.is_joint = step.unknown >= bodies_.size() ? 1 : 0;
      node.index = node.is_joint != 0 ? joints_[step.unknown - bodies_.size()] : member_of[bodies_[step.unknown]];
      node.below_begin = static_cast<uint32_t>(plan->below.size());
      node.target_begin = static_cast<uint32_t>(plan->targets.size());
      for (size_t i = 0; i < below.size(); ++i) {
        plan->below.push_back({place_[below[i]], BlockOf(step.unknown, below[i])});
        for (size_t j = 0; j <= i; ++j) plan->targets.push_back(j == i ? kNoBlock : BlockOf(below[i], below[j]));
      }
      node.below_end = static_cast<uint32_t>(plan->below.size());
      plan->nodes.push_back(node);
    }
    JointGroup group{};
    group.node_begin = node_begin;
    group.node_end = static_cast<uint32_t>(plan->nodes.size());
    group.block_begin = block_begin;
    group.block_end = plan->block_count = next_block_;
    group.joint_begin = static_cast<uint32_t>(plan->joint_order.size());
    for (size_t j = 0; j < joints_.size(); ++j) {
      plan->joint_order.push_back(joints_[j]);
      plan->places[joints_[j]] = PlaceOf(static_cast<uint32_t>(bodies_.size() + j), all[joints_[j]], member_of);
    }
    group.joint_end = static_cast<uint32_t>(plan->joint_order.size());
    group.coupling_begin = static_cast<uint32_t>(plan->couplings.size());
    for (const uint32_t c : couplings_) {
      plan->couplings.push_back(PlaceOf(all_couplings[c]));
      plan->coupling_order.push_back(c);
    }
    group.coupling_end = static_cast<uint32_t>(plan->couplings.size());
    plan->groups.push_back(group);
  }

 private:
  uint32_t BodyUnknown(uint32_t body) const {
    return static_cast<uint32_t>(std::lower_bound(bodies_.begin(), bodies_.end(), body) - bodies_.begin());
  }
  static std::pair<uint32_t, uint32_t> Edge(uint32_t u, uint32_t v) { return {std::min(u, v), std::max(u, v)}; }
  uint32_t BlockOf(uint32_t u, uint32_t v) const { return blocks_.at(Edge(u, v)); }
  void Connect(uint32_t u, uint32_t v) {
    neighbours_[u].insert(v);
    neighbours_[v].insert(u);
    blocks_.emplace(Edge(u, v), next_block_);
  }
  std::tuple<size_t, bool, uint32_t> Key(uint32_t u) const { return {neighbours_[u].size(), u >= bodies_.size(), u}; }
  void Queue(uint32_t u) {
    if (may_go_[u]) queue_.insert(Key(u));
  }

  /// Those still there that it is connected to, which it connects to each other.
  std::vector<uint32_t> Eliminate(uint32_t u) {
    queue_.erase(Key(u));
    const std::vector<uint32_t> below(neighbours_[u].begin(), neighbours_[u].end());
    for (const uint32_t v : below) queue_.erase(Key(v));
    for (const uint32_t v : below) {
      neighbours_[v].erase(u);
      if (u < bodies_.size()) may_go_[v] = true;
    }
    for (size_t i = 0; i < below.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (blocks_.contains(Edge(below[i], below[j]))) continue;
        Connect(below[i], below[j]);
        ++next_block_;
      }
    }
    for (const uint32_t v : below) Queue(v);
    return below;
  }

  JointPlace PlaceOf(uint32_t unknown, const RigidJoint& joint, std::span<const uint32_t> member_of) const {
    JointPlace place{};
    place.node = place_[unknown];
    const auto side = [&](uint32_t body, uint32_t bit, uint32_t* member, uint32_t* node, uint32_t* block) {
      *member = *node = PALPATE_JOINT_WORLD;
      *block = 0;
      if (!std::binary_search(bodies_.begin(), bodies_.end(), body)) return;
      *member = member_of[body];
      *node = place_[BodyUnknown(body)];
      *block = BlockOf(unknown, BodyUnknown(body));
      if (*node > place.node) place.is_transposed |= bit;
    };
    side(joint.body_a, 1, &place.member_a, &place.node_a, &place.block_a);
    side(joint.body_b, 2, &place.member_b, &place.node_b, &place.block_b);
    return place;
  }

  JointCoupling PlaceOf(const JointCouplingBlock& coupling) const {
    const uint32_t body = BodyUnknown(coupling.body), other = BodyUnknown(coupling.other);
    JointCoupling out{};
    out.node = place_[body];
    out.other_node = place_[other];
    if (body != other) out.block = BlockOf(body, other);
    out.is_transposed = out.other_node > out.node ? 1 : 0;
    return out;
  }

  std::vector<uint32_t> bodies_, joints_;  // ascending
  std::vector<uint32_t> couplings_;
  std::vector<std::set<uint32_t>> neighbours_;
  std::vector<bool> may_go_;
  std::vector<uint32_t> place_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> blocks_;
  std::set<std::tuple<size_t, bool, uint32_t>> queue_;
  uint32_t next_block_ = 0;
};

}  // namespace

std::optional<uint32_t> JointPlan::MemberOf(uint32_t body) const {
  const auto member = std::lower_bound(members.begin(), members.end(), body);
  if (member == members.end() || *member != body) return std::nullopt;
  return static_cast<uint32_t>(member - members.begin());
}

void JointPlan::AppendEnds(uint32_t member, std::vector<uint32_t>* ends) const {
  for (uint32_t j = 0; j < places.size(); ++j) {
    if (places[j].member_a == member) ends->push_back(2 * j);
    if (places[j].member_b == member) ends->push_back(2 * j + 1);
  }
}

JointPlan JointPlan::Of(std::span<const RigidJoint> joints, size_t body_count, std::span<const JointCouplingBlock> couplings) {
  JointPlan plan;
  plan.places.resize(joints.size());
  std::vector<uint32_t> root(body_count);
  std::iota(root.begin(), root.end(), 0U);
  const auto find = [&](uint32_t body) {
    while (root[body] != body) body = root[body] = root[root[body]];
    return body;
  };
  const auto unite = [&](uint32_t one, uint32_t other) {
    const uint32_t a = find(one);
    const uint32_t b = find(other);
    root[std::max(a, b)] = std::min(a, b);
  };
  std::vector<uint32_t> member_of(body_count, PALPATE_JOINT_WORLD);
  for (const RigidJoint& joint : joints) {
    for (const uint32_t body : {joint.body_a, joint.body_b}) {
      if (body < body_count) member_of[body] = 0;
    }
    if (joint.body_a < body_count && joint.body_b < body_count) unite(joint.body_a, joint.body_b);
  }
  for (const JointCouplingBlock& coupling : couplings) unite(coupling.body, coupling.other);
  struct Group {
    std::vector<uint32_t> bodies, joints, couplings;
  };
  std::map<uint32_t, Group> groups;  // of each root
  for (uint32_t body = 0; body < body_count; ++body) {
    if (member_of[body] == PALPATE_JOINT_WORLD) continue;
    member_of[body] = static_cast<uint32_t>(plan.members.size());
    plan.members.push_back(body);
    groups[find(body)].bodies.push_back(body);
  }
  for (uint32_t j = 0; j < joints.size(); ++j) {
    groups[find(joints[j].body_a >= body_count ? joints[j].body_b : joints[j].body_a)].joints.push_back(j);
  }
  for (uint32_t c = 0; c < couplings.size(); ++c) groups[find(couplings[c].body)].couplings.push_back(c);
  for (auto& [first, group] : groups) {
    Elimination(std::move(group.bodies), std::move(group.joints), joints, std::move(group.couplings), couplings)
        .AppendTo(member_of, joints, couplings, &plan);
  }
  return plan;
}

absl::Status RigidJoints::CheckRow(const RigidJointRow& row) {
  const auto bad = [](const char* field, double value, const char* range) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is ", range));
  };
  if (static_cast<uint32_t>(row.drive) > PALPATE_ROW_MOTOR) return bad("drive", static_cast<double>(row.drive), "none");
  if (!std::isfinite(row.target)) return bad("target", row.target, "not finite");
  if (!std::isfinite(row.speed)) return bad("speed", row.speed, "not finite");
  if (!(row.stiffness >= 0) || !std::isfinite(row.stiffness)) return bad("stiffness", row.stiffness, "not in [0, inf)");
  if (!(row.damping >= 0) || !std::isfinite(row.damping)) return bad("damping", row.damping, "not in [0, inf)");
  if (!(row.max_effort >= 0)) return bad("max_effort", row.max_effort, "not in [0, inf]");
  if (!(row.lower <= row.upper)) return bad("lower", row.lower, "above upper");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RigidJoints>> RigidJoints::Create(Queue& queue, std::span<const RigidJoint> joints,
                                                                 std::span<const RigidBlockState> states, double dissipation,
                                                                 const BodyCounts& counts, std::span<const JointCouplingBlock> couplings) {
  if (joints.empty()) return absl::InvalidArgumentError("joints: none given");
  if (!(dissipation >= 0 && dissipation <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("joints: dissipation ", dissipation, " is outside [0, 1]"));
  }
  if (!queue.context()->device().has_fp64) {
    return absl::UnimplementedError(absl::StrCat("joints: device ", queue.context()->device().name, " has no double precision"));
  }
  for (size_t j = 0; j < joints.size(); ++j) PALPATE_RETURN_IF_ERROR(CheckJoint(joints[j], j, counts));
  std::unique_ptr<RigidJoints> out(new RigidJoints);
  out->plan_ = JointPlan::Of(joints, counts.rigid + counts.sets + counts.coupled, couplings);
  const auto is_set = [&](uint32_t body) { return body >= counts.rigid && body < counts.rigid + counts.sets; };
  for (size_t j = 0; j < joints.size(); ++j) {
    out->plan_.places[j].is_set = (is_set(joints[j].body_a) ? 1 : 0) | (is_set(joints[j].body_b) ? 2 : 0);
  }
  for (const RigidJoint& joint : joints) {
    const End a = EndOn(states, joint.body_a, joint.point_a_m, joint.frame);
    const End b = EndOn(states, joint.body_b, joint.point_b_m, joint.frame);
    JointData data{};
    data.point_a = a.point;
    data.rotation_a = a.rotation;
    data.point_b = b.point;
    data.rotation_b = b.rotation;
    data.body_a = joint.body_a;
    data.body_b = joint.body_b;
    data.along = static_cast<uint32_t>(joint.along);
    data.about = static_cast<uint32_t>(joint.about);
    for (size_t r = 0; r < kRows; ++r) data.rows[r] = RowData(joint.rows[r]);
    out->data_.push_back(data);
    out->rows_.push_back(joint.rows);
  }
  out->initial_ = out->data_;
  out->initial_rows_ = out->rows_;
  const double d = dissipation;
  const double end = (1 + d) * (1 + d) / 4;
  const double rate = 0.5 + d;
  out->scheme_host_ = {.end = static_cast<float>(end),
                       .start = static_cast<float>(0.5 + rate - 2 * end),
                       .before = static_cast<float>(0.5 - rate + end),
                       .rate = static_cast<float>(rate)};
  out->group_ = queue.context()->device().is_cpu ? 1 : 32;
  PALPATE_RETURN_IF_ERROR(out->MakeBuffers(queue, couplings));
  PALPATE_RETURN_IF_ERROR(out->MakeKernels(queue));
  return out;
}

std::vector<Eigen::Matrix<double, 6, 1>> RigidJoints::WorldRows(uint32_t body, const RigidBlockState& state) const {
  using Eigen::Quaterniond;
  using Eigen::Vector3d;
  const auto vector = [](const Float4& v) { return Vector3d(v.x, v.y, v.z); };
  const auto rotation = [](const Float4& q) { return Quaterniond(q.w, q.x, q.y, q.z).normalized(); };
  std::vector<Eigen::Matrix<double, 6, 1>> out;
  const auto add = [&](const Vector3d& along, const Vector3d& about) { out.emplace_back() << along, about; };
  for (const JointData& joint : data_) {
    const bool is_a = joint.body_a == body;
    if (!(is_a && joint.body_b == RigidJoint::kWorld) && !(joint.body_b == body && joint.body_a == RigidJoint::kWorld)) continue;
    const Quaterniond turn = rotation(state.rotation);
    const Vector3d arm = turn * vector(is_a ? joint.point_a : joint.point_b);
    const Quaterniond frame = is_a ? turn * rotation(joint.rotation_a) : rotation(joint.rotation_a);
    const Vector3d between = vector(state.center) + arm - vector(is_a ? joint.point_b : joint.point_a);
    for (size_t r = 0; r < kRows; ++r) {
      if (joint.rows[r].drive != PALPATE_ROW_LOCKED) continue;
      const Vector3d axis = joint.along == PALPATE_JOINT_DISTANCE && r == 0 ? between.normalized() : frame * Vector3d::Unit(r % 3);
      add(r < 3 ? axis : Vector3d::Zero(), r < 3 ? arm.cross(axis) : axis);
    }
  }
  return out;
}

absl::Status RigidJoints::MakeBuffers(Queue& queue, std::span<const JointCouplingBlock> couplings) {
  const std::shared_ptr<Context>& context = queue.context();
  const size_t before = context->allocated_bytes();
  PALPATE_ASSIGN_OR_RETURN(scheme_, CreateBufferFrom(queue, std::span<const JointScheme>(&scheme_host_, 1), "joint scheme"));
  PALPATE_ASSIGN_OR_RETURN(joints_, CreateBufferFrom(queue, std::span<const JointData>(data_), "joints"));
  PALPATE_ASSIGN_OR_RETURN(places_, CreateBufferFrom(queue, std::span<const JointPlace>(plan_.places), "joint places"));
  PALPATE_ASSIGN_OR_RETURN(groups_, CreateBufferFrom(queue, std::span<const JointGroup>(plan_.groups), "joint groups"));
  PALPATE_ASSIGN_OR_RETURN(nodes_, CreateBufferFrom(queue, std::span<const JointNode>(plan_.nodes), "joint nodes"));
  PALPATE_ASSIGN_OR_RETURN(below_, CreateBufferFrom(queue, std::span<const UInt2>(plan_.below), "joint blocks below"));
  PALPATE_ASSIGN_OR_RETURN(targets_, CreateBufferFrom(queue, std::span<const uint32_t>(plan_.targets), "joint targets"));
  PALPATE_ASSIGN_OR_RETURN(joint_order_, CreateBufferFrom(queue, std::span<const uint32_t>(plan_.joint_order), "joint order"));
  PALPATE_ASSIGN_OR_RETURN(members_, CreateBufferFrom(queue, std::span<const uint32_t>(plan_.members), "bodies with joints"));
  PALPATE_ASSIGN_OR_RETURN(row_states_, DeviceBuffer<uint32_t>::Create(context, count() * kRows, "joint rows"));
  PALPATE_ASSIGN_OR_RETURN(reals_, DeviceBuffer<double>::Create(context, count() * kJointReals, "joint reals"));
  PALPATE_ASSIGN_OR_RETURN(diagonals_, DeviceBuffer<double>::Create(context, plan_.nodes.size() * kBlockReals, "joint diagonals"));
  PALPATE_ASSIGN_OR_RETURN(blocks_, DeviceBuffer<double>::Create(context, plan_.block_count * kBlockReals, "joint blocks"));
  PALPATE_ASSIGN_OR_RETURN(lower_, DeviceBuffer<double>::Create(context, plan_.block_count * kBlockReals, "joint factors"));
  PALPATE_ASSIGN_OR_RETURN(unknowns_, DeviceBuffer<double>::Create(context, plan_.nodes.size() * kRows, "joint unknowns"));
  PALPATE_ASSIGN_OR_RETURN(systems_, DeviceBuffer<JointBodySystem>::Create(context, plan_.members.size(), "jointed bodies"));
  std::vector<uint32_t> group_of(plan_.members.size());
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    for (uint32_t n = plan_.groups[g].node_begin; n < plan_.groups[g].node_end; ++n) {
      if (plan_.nodes[n].is_joint == 0) group_of[plan_.nodes[n].index] = static_cast<uint32_t>(g);
    }
  }
  PALPATE_ASSIGN_OR_RETURN(group_of_, CreateBufferFrom(queue, std::span<const uint32_t>(group_of), "groups of jointed bodies"));
  PALPATE_ASSIGN_OR_RETURN(group_shares_, DeviceBuffer<uint32_t>::Create(context, plan_.groups.size(), "shares of joint groups"));
  PALPATE_ASSIGN_OR_RETURN(reports_, DeviceBuffer<JointReport>::Create(context, count(), "joint reports"));
  PALPATE_ASSIGN_OR_RETURN(couplings_, CreateBufferFrom(queue, std::span<const JointCoupling>(plan_.couplings), "joint couplings"));
  PALPATE_ASSIGN_OR_RETURN(coupling_h_,
                           DeviceBuffer<double>::Create(context, plan_.couplings.size() * kBlockReals, "joint coupling blocks"));
  device_bytes_ = context->allocated_bytes() - before;
  PALPATE_RETURN_IF_ERROR(SetCouplings(queue, couplings));
  PALPATE_RETURN_IF_ERROR(queue.Zero(row_states_));
  PALPATE_RETURN_IF_ERROR(queue.Zero(systems_));
  return queue.Zero(reals_);
}

absl::Status RigidJoints::SetCouplings(Queue& queue, std::span<const JointCouplingBlock> couplings) {
  if (couplings.size() != plan_.couplings.size()) return absl::InvalidArgumentError("joints: another number of couplings");
  if (couplings.empty()) return absl::OkStatus();
  std::vector<double> h;
  h.reserve(kBlockReals * couplings.size());
  for (const uint32_t c : plan_.coupling_order) {
    for (Eigen::Index r = 0; r < 6; ++r) {
      for (Eigen::Index k = 0; k < 6; ++k) h.push_back(couplings[c].h(r, k));
    }
  }
  return queue.Write(coupling_h_, std::span<const double>(h));
}

absl::Status RigidJoints::MakeKernels(Queue& queue) {
  for (const auto& [kernel, name] : std::initializer_list<std::pair<Kernel*, const char*>>{{&begin_, "joint_begin"},
                                                                                           {&solve_, "joint_solve"},
                                                                                           {&finish_, "joint_finish"},
                                                                                           {&report_, "joint_report"},
                                                                                           {&share_, "joint_share"},
                                                                                           {&least_, "joint_least"}}) {
    PALPATE_ASSIGN_OR_RETURN(*kernel, queue.context()->CreateKernel(kernels::rigid_joints, name));
  }
  return absl::OkStatus();
}

absl::Status RigidJoints::WriteData(Queue& queue) {
  must_write_ = false;
  return queue.Write(joints_, std::span<const JointData>(data_));
}

absl::Status RigidJoints::SetRows(uint32_t joint, const std::array<RigidJointRow, 6>& rows) {
  if (joint >= count()) return absl::InvalidArgumentError(absl::StrCat("there is no joint ", joint, ", of ", count()));
  for (size_t r = 0; r < kRows; ++r) {
    if (absl::Status status = CheckRow(rows[r]); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("rows[", r, "].", std::string(status.message())));
    }
  }
  if (rows_[joint] == rows) return absl::OkStatus();
  rows_[joint] = rows;
  for (size_t r = 0; r < kRows; ++r) data_[joint].rows[r] = RowData(rows[r]);
  must_write_ = true;
  return absl::OkStatus();
}

absl::Status RigidJoints::Reset(Queue& queue) {
  data_ = initial_;
  rows_ = initial_rows_;
  has_history_ = false;
  PALPATE_RETURN_IF_ERROR(queue.Zero(reals_));
  PALPATE_RETURN_IF_ERROR(queue.Zero(row_states_));
  PALPATE_RETURN_IF_ERROR(queue.Zero(systems_));
  return WriteData(queue);
}

absl::Status RigidJoints::GoOnFrom(Queue& queue, RigidJoints& old) {
  if (old.count() != count()) return absl::InvalidArgumentError("joints: not the same ones");
  rows_ = old.rows_;
  for (size_t j = 0; j < data_.size(); ++j) std::copy(std::begin(old.data_[j].rows), std::end(old.data_[j].rows), data_[j].rows);
  has_history_ = old.has_history_;
  PALPATE_RETURN_IF_ERROR(WriteData(queue));
  PALPATE_RETURN_IF_ERROR(queue.Copy(old.reals_, reals_, reals_.count()));
  return queue.Copy(old.row_states_, row_states_, row_states_.count());
}

absl::Status RigidJoints::SaveState(Queue& queue, StateWriter& archive) {
  // All members, so that a new one is not forgotten: the rest is as described, or lives for one step.
  [[maybe_unused]] auto& [plan, initial, data, initial_rows, rows, scheme_host, has_history, must_write, reports_host, group, device_bytes,
                          begin, solve, finish, report, share, least, scheme, joints, places, groups, nodes, below, targets, joint_order,
                          members, row_states, reals, diagonals, blocks, lower, unknowns, couplings, coupling_h, systems, group_of,
                          group_shares, reports] = *this;
  std::vector<double> values(reals.count());
  std::vector<uint32_t> row_state_values(row_states.count());
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(reals, std::span<double>(values)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(row_states, std::span<uint32_t>(row_state_values)));
  archive.Enter("RigidJoints");
  archive(rows, has_history, values, row_state_values);
  return absl::OkStatus();
}

absl::Status RigidJoints::LoadState(Queue& queue, StateReader& archive) {
  archive.Enter("RigidJoints");
  std::vector<std::array<RigidJointRow, 6>> rows;
  std::vector<double> values;
  std::vector<uint32_t> row_state_values;
  archive(rows, has_history_, values, row_state_values);
  for (const auto& of_joint : rows) {
    for (const RigidJointRow& row : of_joint) archive.Check(CheckRow(row).ok(), "a row of a joint is none");
  }
  archive.Check(rows.size() == rows_.size(), "another number of joints");
  archive.Check(values.size() == reals_.count() && row_state_values.size() == row_states_.count(), "another number of joints");
  archive.Check(std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }), "a joint's state is not finite");
  PALPATE_RETURN_IF_ERROR(archive.status());
  rows_ = std::move(rows);
  for (size_t j = 0; j < data_.size(); ++j) {
    for (size_t r = 0; r < kRows; ++r) data_[j].rows[r] = RowData(rows_[j][r]);
  }
  PALPATE_RETURN_IF_ERROR(WriteData(queue));
  PALPATE_RETURN_IF_ERROR(queue.Write(reals_, std::span<const double>(values)));
  return queue.Write(row_states_, std::span<const uint32_t>(row_state_values));
}

absl::Status RigidJoints::Begin(Queue& queue, const DeviceBuffer<StepParams>& params, const DeviceBuffer<RigidBlockState>& blocks) {
  if (must_write_) PALPATE_RETURN_IF_ERROR(WriteData(queue));
  const uint32_t is_first = has_history_ ? 0 : 1;
  has_history_ = true;
  return queue.Launch(begin_, {count(), group_}, Arg("count", count()), Arg("is_first", is_first), Arg("p", params), Arg("joints", joints_),
                      Arg("blocks", blocks), Arg("reals", reals_), Arg("states", row_states_));
}

absl::Status RigidJoints::Solve(Queue& queue, const DeviceBuffer<StepParams>& params, const DeviceBuffer<RigidBlockState>& blocks) {
  return queue.Launch(solve_, {plan_.groups.size() * group_, group_}, Arg("scheme", scheme_), Arg("p", params), Arg("groups", groups_),
                      Arg("nodes", nodes_), Arg("below", below_), Arg("targets", targets_), Arg("joint_order", joint_order_),
                      Arg("couplings", couplings_), Arg("coupling_h", coupling_h_), Arg("joints", joints_), Arg("places", places_),
                      Arg("bodies", blocks), Arg("reals", reals_), Arg("states", row_states_), Arg("diagonals", diagonals_),
                      Arg("blocks", blocks_), Arg("lower", lower_), Arg("unknowns", unknowns_), Arg("systems", systems_),
                      Arg("shares", group_shares_));
}

absl::Status RigidJoints::Finish(Queue& queue, const DeviceBuffer<RigidBlockState>& blocks) {
  return queue.Launch(finish_, {count(), group_}, Arg("count", count()), Arg("joints", joints_), Arg("places", places_),
                      Arg("systems", systems_), Arg("blocks", blocks), Arg("reals", reals_));
}

absl::Status RigidJoints::ShareOfGroups(Queue& queue, const DeviceBuffer<RigidBlockState>& blocks, const DeviceBuffer<float>& shares) {
  const auto group_count = static_cast<uint32_t>(plan_.groups.size());
  return queue.Launch(share_, {group_count, group_}, Arg("count", group_count), Arg("groups", groups_), Arg("nodes", nodes_),
                      Arg("members", members_), Arg("blocks", blocks), Arg("shares", shares));
}

absl::Status RigidJoints::LeastOfGroups(Queue& queue) {
  const auto group_count = static_cast<uint32_t>(plan_.groups.size());
  return queue.Launch(least_, {group_count, group_}, Arg("count", group_count), Arg("groups", groups_), Arg("nodes", nodes_),
                      Arg("systems", systems_), Arg("shares", group_shares_));
}

absl::StatusOr<std::span<const JointReport>> RigidJoints::ReadReports(Queue& queue, const DeviceBuffer<RigidBlockState>& blocks) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(report_, {count(), group_}, Arg("count", count()), Arg("scheme", scheme_), Arg("joints", joints_),
                                       Arg("places", places_), Arg("systems", systems_), Arg("blocks", blocks), Arg("reals", reals_),
                                       Arg("states", row_states_), Arg("reports", reports_)));
  reports_host_.resize(count());
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(reports_, std::span<JointReport>(reports_host_)));
  return std::span<const JointReport>(reports_host_);
}

}  // namespace palpate::gpu
