#include "gpu/dynamics/joint_frames.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <Eigen/Dense>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"
#include "gpu/dynamics/packed_types.h"
#include "gpu/dynamics/rigid_blocks.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource joint_frames;
}
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;
using Matrix6d = Eigen::Matrix<double, 6, 6>;

/// Of the elastic blocks of a set's vertices: in a sweep each sees those before it moved already, so together they give way by more than
/// each alone would: in tissue by up to twice as much, in shells, which have more colours, by up to ten times. Efforts swing where a share
/// is more than twice too large, and are slow where it is too small.
constexpr double kTetsTogether = 0.5;
constexpr double kTrianglesTogether = 0.1;
constexpr double kLeastBreadth = 1e-3;  // of a set's extent, across the line that it lies on
constexpr double kHeld = 1e12;          // [N/m], [N m]: block of a set that cannot be fitted, which does not move

Vector3d ToVector(const std::array<double, 3>& v) { return {v[0], v[1], v[2]}; }

Matrix3d CrossMatrix(const Vector3d& v) {
  Matrix3d m;
  m << 0, -v.z(), v.y(), v.z(), 0, -v.x(), -v.y(), v.x(), 0;
  return m;
}

/// What the elasticity of a model at rest resists to moves of sets, shared out among their vertices.
class RestStiffness {
 public:
  RestStiffness(const TissueModel& model, double dt_s)
      : model_(model), dt_s_(dt_s), is_held_(model.rest_m.size(), 0), blocks_n_per_m_(model.rest_m.size(), Matrix3d::Zero()) {
    for (const TissueJointSet& set : model.joint_sets) {
      for (const uint32_t v : set.vertices) is_held_[v] = 1;
    }
    for (const TissueTet& tet : model.tets) {
      if (tet.vertices != kFreeTissueTet && IsAnyHeld(tet.vertices)) AddTet(tet);
    }
    for (const ShellTriangle& triangle : model.shells) {
      if (IsAnyHeld(triangle.vertices)) AddTriangle(triangle);
    }
  }

  const Matrix3d& at(uint32_t vertex) const { return blocks_n_per_m_[vertex]; }

 private:
  bool IsAnyHeld(std::span<const uint32_t> vertices) const {
    return std::any_of(vertices.begin(), vertices.end(), [&](uint32_t v) { return is_held_[v] != 0; });
  }
  Vector3d At(uint32_t vertex) const { return ToVector(model_.rest_m[vertex]); }

  /// V (mu |g|^2 I + (mu + lambda) g g^T), g the gradient of a corner's shape function.
  void AddTet(const TissueTet& tet) {
    const Vector3d o = At(tet.vertices[0]);
    Matrix3d edges;
    for (int c = 0; c < 3; ++c) edges.col(c) = At(tet.vertices[static_cast<size_t>(c) + 1]) - o;
    const Matrix3d rows = edges.inverse();
    const double factor = kTetsTogether * edges.determinant() / 6 * (1 + tet.damping_s / dt_s_);
    for (size_t c = 0; c < 4; ++c) {
      const Vector3d g =
          c == 0 ? Vector3d(-rows.colwise().sum().transpose()) : Vector3d(rows.row(static_cast<Eigen::Index>(c) - 1).transpose());
      blocks_n_per_m_[tet.vertices[c]] +=
          factor * (tet.mu_pa * g.squaredNorm() * Matrix3d::Identity() + (tet.mu_pa + tet.lambda_pa) * g * g.transpose());
    }
  }

  /// Likewise of plane stress in the triangle. Across it little resists but inertia.
  void AddTriangle(const ShellTriangle& triangle) {
    const std::array<Vector3d, 3> x = {At(triangle.vertices[0]), At(triangle.vertices[1]), At(triangle.vertices[2])};
    const Vector3d cross = (x[1] - x[0]).cross(x[2] - x[0]);
    const double twice_area_m2 = cross.norm();
    const Vector3d n = cross / twice_area_m2;
    const double stiff = (triangle.moduli_pa[0] + triangle.moduli_pa[2]) / 2.0;
    const double shear = triangle.moduli_pa[3];
    const double factor = kTrianglesTogether * twice_area_m2 / 2 * triangle.thickness_m * (1 + triangle.damping_s / dt_s_);
    for (size_t c = 0; c < 3; ++c) {
      const Vector3d g = n.cross(x[(c + 2) % 3] - x[(c + 1) % 3]) / twice_area_m2;
      blocks_n_per_m_[triangle.vertices[c]] += factor * (shear * g.squaredNorm() * (Matrix3d::Identity() - n * n.transpose()) +
                                                         std::max(stiff - shear, 0.0) * g * g.transpose());
    }
  }

  const TissueModel& model_;
  double dt_s_;
  std::vector<uint8_t> is_held_;
  std::vector<Matrix3d> blocks_n_per_m_;
};

/// The block of all vertices together in the frame's axes: sum of A^T K A, A = (I, -[arm]).
Matrix6d BlockOf(const JointSetVertices& set) {
  Matrix6d block = Matrix6d::Zero();
  for (const JointSetVertices::Vertex& vertex : set.vertices) {
    Eigen::Matrix<double, 3, 6> a;
    a << Matrix3d::Identity(), -CrossMatrix(ToVector(vertex.rest_m));
    block += a.transpose() * Eigen::Map<const Matrix3d>(vertex.stiffness_n_per_m.data()) * a;
  }
  return block;
}

}  // namespace

bool SpanAPlane(std::span<const std::array<double, 3>> points) {
  if (points.size() < 3) return false;
  Vector3d mean = Vector3d::Zero();
  for (const std::array<double, 3>& point : points) mean += ToVector(point) / static_cast<double>(points.size());
  Matrix3d spread = Matrix3d::Zero();
  for (const std::array<double, 3>& point : points) spread += (ToVector(point) - mean) * (ToVector(point) - mean).transpose();
  const Vector3d values = Eigen::SelfAdjointEigenSolver<Matrix3d>(spread).eigenvalues();
  return values(2) > 0 && values(1) > kLeastBreadth * kLeastBreadth * values(2);
}

bool JointSetVertices::CanBeFitted() const {
  std::vector<std::array<double, 3>> points;
  for (const Vertex& vertex : vertices) points.push_back(vertex.rest_m);
  return SpanAPlane(points);
}

std::vector<JointSetVertices> JointSetsOf(const TissueModel& model, const TissueLayout& layout, double dt_s) {
  std::vector<JointSetVertices> sets(model.joint_sets.size());
  if (sets.empty()) return sets;
  const RestStiffness stiffness(model, dt_s);
  for (size_t s = 0; s < sets.size(); ++s) {
    sets[s].origin_m = model.joint_sets[s].origin_m;
    for (const uint32_t v : model.joint_sets[s].vertices) {
      const SolverSlot slot = layout.solver_index[v];
      if (slot == kNoSolverSlot || ToNumber(slot) >= layout.free_count || !(layout.mass_kg[slot] > 0)) continue;
      JointSetVertices::Vertex vertex;
      vertex.slot = ToNumber(slot);
      for (size_t a = 0; a < 3; ++a) vertex.rest_m[a] = model.rest_m[v][a] - sets[s].origin_m[a];
      vertex.mass_kg = layout.mass_kg[slot];
      const double inertia = vertex.mass_kg * (1 + dt_s * layout.mass_damping_per_s[slot]) / (dt_s * dt_s);
      Eigen::Map<Matrix3d>(vertex.stiffness_n_per_m.data()) = stiffness.at(v) + inertia * Matrix3d::Identity();
      sets[s].vertices.push_back(vertex);
    }
  }
  return sets;
}

absl::StatusOr<size_t> JointFrames::CountCoupled(std::span<const TissueJointMount> mounts) {
  size_t count = 0;
  for (size_t m = 0; m < mounts.size(); ++m) {
    const TissueJointMount& mount = mounts[m];
    const auto error = [&](const char* what) { return absl::InvalidArgumentError(absl::StrCat("joint_mounts[", m, "]: ", what)); };
    for (const double c : {mount.center_m[0], mount.center_m[1], mount.center_m[2], mount.coupling_n_per_m, mount.damping_n_s_per_m}) {
      if (!std::isfinite(c)) return error("a value is not finite");
    }
    if (!(mount.coupling_n_per_m >= 0 && mount.damping_n_s_per_m >= 0)) return error("the coupling is below 0");
    if (mount.coupling_n_per_m == 0) continue;
    if (!(mount.mass_kg > 0) || !std::isfinite(mount.mass_kg)) return error("mass_kg must be above 0 on a coupling");
    if (count++ != m) return error("those on couplings come first");
  }
  return count;
}

std::vector<RigidBlockState> JointFrames::States(std::span<const JointSetVertices> sets,
                                                 std::span<const std::array<double, 3>> shell_origins_m,
                                                 std::span<const TissueJointMount> mounts) {
  std::vector<RigidBlockState> states;
  const auto add = [&](const std::array<double, 3>& center_m, double mass_kg) {
    RigidBlockState state{};
    state.center = ToFloat4(center_m, mass_kg);
    state.rotation = {0, 0, 0, 1};
    state.inertia = {1, 1, 1, 0};
    state.center_start = state.center_free = state.center_detected = state.center;
    state.rotation_start = state.rotation_free = state.rotation_detected = state.rotation;
    states.push_back(state);
  };
  for (const JointSetVertices& set : sets) add(set.origin_m, 1);
  for (const std::array<double, 3>& origin_m : shell_origins_m) add(origin_m, 1);
  for (const TissueJointMount& mount : mounts) add(mount.center_m, mount.coupling_n_per_m > 0 ? mount.mass_kg : 0);
  return states;
}

absl::StatusOr<std::unique_ptr<JointFrames>> JointFrames::Create(Queue& queue, std::span<const JointSetVertices> sets,
                                                                 std::span<const TissueJointMount> mounts, uint32_t rigid_count,
                                                                 std::unique_ptr<NurbsJointFrames> shells) {
  const std::shared_ptr<Context>& context = queue.context();
  std::unique_ptr<JointFrames> out(new JointFrames);
  out->group_ = context->device().is_cpu ? 1 : 32;
  out->rigid_count_ = rigid_count;
  out->shells_ = std::move(shells);
  out->sets_host_.resize(sets.size());
  for (const TissueJointMount& mount : mounts) {
    out->initial_mounts_.push_back({.center = ToFloat4(mount.center_m, mount.coupling_n_per_m),
                                    .rotation = {0, 0, 0, 1},
                                    .before = ToFloat4(mount.center_m, mount.damping_n_s_per_m),
                                    .force = {0, 0, 0, static_cast<float>(mount.mass_kg)}});
  }
  out->mounts_host_ = out->initial_mounts_;
  for (const auto& [kernel, name] : std::initializer_list<std::pair<Kernel*, const char*>>{{&out->fit_, "joint_set_fit"},
                                                                                           {&out->share_, "joint_set_share"},
                                                                                           {&out->move_, "joint_set_move"},
                                                                                           {&out->note_, "joint_set_note"},
                                                                                           {&out->push_, "joint_set_push"},
                                                                                           {&out->efforts_, "joint_efforts"},
                                                                                           {&out->mount_systems_, "joint_mount_systems"},
                                                                                           {&out->place_mounts_, "joint_mounts_place"}}) {
    PALPATE_ASSIGN_OR_RETURN(*kernel, context->CreateKernel(kernels::joint_frames, name));
  }
  PALPATE_ASSIGN_OR_RETURN(out->sets_, DeviceBuffer<JointSet>::Create(context, sets.size(), "joint sets"));
  PALPATE_ASSIGN_OR_RETURN(out->fits_, DeviceBuffer<double>::Create(context, sets.size() * PALPATE_JOINT_FIT_REALS, "joint set fits"));
  PALPATE_ASSIGN_OR_RETURN(out->mounts_, DeviceBuffer<JointMount>::Create(context, out->mounts_host_.size(), "joint mounts"));
  if (!sets.empty()) PALPATE_RETURN_IF_ERROR(queue.Zero(out->fits_));
  return out;
}

absl::Status JointFrames::SetVertices(Queue& queue, std::span<const JointSetVertices> sets, const RigidJoints& joints) {
  if (sets.size() != sets_host_.size()) return absl::InvalidArgumentError("joint sets: another number of sets");
  const std::shared_ptr<Context>& context = queue.context();
  std::vector<uint32_t> vertices, owners, ends;
  std::vector<Float4> rest;
  for (uint32_t s = 0; s < sets.size(); ++s) {
    JointSet& set = sets_host_[s];
    set = {};
    set.body = rigid_count_ + s;
    set.begin = set.end = static_cast<uint32_t>(vertices.size());
    const bool is_fitted = sets[s].CanBeFitted();
    double mass_kg = 0;
    for (const JointSetVertices::Vertex& vertex : sets[s].vertices) mass_kg += vertex.mass_kg;
    Vector3d mean = Vector3d::Zero();
    for (const JointSetVertices::Vertex& vertex : sets[s].vertices) {
      if (!is_fitted) break;
      vertices.push_back(vertex.slot);
      owners.push_back(s);
      rest.push_back(ToFloat4(vertex.rest_m, vertex.mass_kg / mass_kg));
      mean += vertex.mass_kg / mass_kg * ToVector(vertex.rest_m);
    }
    set.end = static_cast<uint32_t>(vertices.size());
    set.rest_mean = ToFloat4({mean.x(), mean.y(), mean.z()}, mass_kg);
    const Matrix6d block = is_fitted ? BlockOf(sets[s]) : Matrix6d(kHeld * Matrix6d::Identity());
    for (int r = 0; r < 6; ++r) {
      for (int c = 0; c <= r; ++c) set.h[r * (r + 1) / 2 + c] = static_cast<float>(block(r, c));
    }
    const std::optional<uint32_t> member = joints.plan().MemberOf(set.body);
    if (!member) return absl::InvalidArgumentError("joint sets: a set has no joint");
    set.member = *member;
    set.joint_begin = static_cast<uint32_t>(ends.size());
    joints.plan().AppendEnds(set.member, &ends);
    set.joint_end = static_cast<uint32_t>(ends.size());
  }
  vertex_count_ = static_cast<uint32_t>(vertices.size());
  PALPATE_ASSIGN_OR_RETURN(vertices_, CreateBufferFrom(queue, std::span<const uint32_t>(vertices), "joint set vertices"));
  PALPATE_ASSIGN_OR_RETURN(owners_, CreateBufferFrom(queue, std::span<const uint32_t>(owners), "joint set owners"));
  PALPATE_ASSIGN_OR_RETURN(ends_, CreateBufferFrom(queue, std::span<const uint32_t>(ends), "joint set ends"));
  PALPATE_ASSIGN_OR_RETURN(rest_, CreateBufferFrom(queue, std::span<const Float4>(rest), "joint set rest"));
  PALPATE_RETURN_IF_ERROR(Grow(context, kept_, size_t{joints.count()} * 6, "joint efforts kept"));
  PALPATE_ASSIGN_OR_RETURN(y_free_, DeviceBuffer<Float4>::Create(context, vertices.size(), "joint set targets"));
  return sets_host_.empty() ? absl::OkStatus() : queue.Write(sets_, std::span<const JointSet>(sets_host_));
}

absl::Status JointFrames::Begin(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<RigidBlockState>& blocks) {
  if (shells_) PALPATE_RETURN_IF_ERROR(shells_->Begin(queue, blocks));
  if (sets_host_.empty()) return absl::OkStatus();
  return queue.Launch(fit_, Sets(), Arg("count", set_count()), Arg("sets", sets_), Arg("vertices", vertices_), Arg("rest", rest_),
                      Arg("x", *scene.x_start), Arg("velocity", scene.velocity->view()), Arg("blocks", blocks),
                      Arg("systems", BufferView<JointBodySystem>()), Arg("fits", fits_));
}

absl::Status JointFrames::KeepEfforts(Queue& queue, const RigidJoints& joints, bool is_back) {
  if (sets_host_.empty() && !shells_) return absl::OkStatus();
  return queue.Launch(efforts_, {joints.count(), group_}, Arg("count", joints.count()), Arg("is_back", is_back ? 1U : 0U),
                      Arg("reals", joints.reals()), Arg("kept", kept_));
}

absl::Status JointFrames::PlaceMounts(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<RigidBlockState>& blocks) {
  if (mounts_host_.empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Write(mounts_, std::span<const JointMount>(mounts_host_)));
  return queue.Launch(place_mounts_, {mount_count(), group_}, Arg("count", mount_count()), Arg("first", first_mount()),
                      Arg("p", *scene.params), Arg("mounts", mounts_), Arg("blocks", blocks));
}

void JointFrames::SetMount(size_t mount, const std::array<double, 3>& center_m, const Float4& rotation,
                           const std::array<double, 3>& force_n) {
  JointMount& at = mounts_host_[mount];
  at.before = {at.center.x, at.center.y, at.center.z, at.before.w};
  at.center = ToFloat4(center_m, at.center.w);
  at.rotation = rotation;
  at.force = ToFloat4(force_n, at.force.w);
}

void JointFrames::SaveState(StateWriter& archive) const {
  archive.Enter("JointFrames");
  archive(mounts_host_);
}

absl::Status JointFrames::LoadState(StateReader& archive) {
  std::vector<JointMount> mounts;
  archive.Enter("JointFrames");
  archive(mounts);
  archive.Check(mounts.size() == initial_mounts_.size(), "another number of mounts");
  archive.Check(
      std::all_of(mounts.begin(), mounts.end(), [](const JointMount& m) { return std::isfinite(m.center.x + m.center.y + m.center.z); }),
      "a mount is not finite");
  PALPATE_RETURN_IF_ERROR(archive.status());
  for (size_t m = 0; m < mounts.size(); ++m) {  // what couples them is as described
    mounts[m].center.w = initial_mounts_[m].center.w;
    mounts[m].before.w = initial_mounts_[m].before.w;
    mounts[m].force.w = initial_mounts_[m].force.w;
  }
  mounts_host_ = std::move(mounts);
  return absl::OkStatus();
}

absl::Status JointFrames::Fit(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                              const DeviceBuffer<RigidBlockState>& blocks, const DeviceBuffer<JointBodySystem>* systems) {
  if (shells_) PALPATE_RETURN_IF_ERROR(shells_->Fit(queue, blocks, systems));
  if (systems != nullptr && !mounts_host_.empty()) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(mount_systems_, {mount_count(), group_}, Arg("count", mount_count()), Arg("first", first_mount()),
                                         Arg("p", *scene.params), Arg("mounts", mounts_), Arg("blocks", blocks), Arg("systems", *systems)));
  }
  if (sets_host_.empty()) return absl::OkStatus();
  return queue.Launch(fit_, Sets(), Arg("count", set_count()), Arg("sets", sets_), Arg("vertices", vertices_), Arg("rest", rest_),
                      Arg("x", x), Arg("velocity", BufferView<Float4>()), Arg("blocks", blocks),
                      Arg("systems", systems == nullptr ? BufferView<JointBodySystem>() : systems->view()), Arg("fits", fits_));
}

absl::Status JointFrames::Share(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                                const DeviceBuffer<JointBodySystem>& systems) {
  if (shells_) PALPATE_RETURN_IF_ERROR(shells_->Share(queue, scene, x, systems));
  if (sets_host_.empty() || scene.pairs == nullptr) return absl::OkStatus();
  return queue.Launch(share_, Sets(), Arg("count", set_count()), Arg("sets", sets_), Arg("vertices", vertices_), Arg("rest", rest_),
                      Arg("x", x), Arg("detected", *scene.detected), Arg("begins", *scene.entry_begins), Arg("planes", *scene.bounds),
                      Arg("fits", fits_), Arg("systems", systems));
}

absl::Status JointFrames::Move(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                               const DeviceBuffer<uint8_t>& touched, const DeviceBuffer<JointBodySystem>& systems) {
  if (shells_) PALPATE_RETURN_IF_ERROR(shells_->Move(queue, scene, x, touched, systems));
  if (vertex_count_ == 0) return absl::OkStatus();
  const auto view = [](const auto* buffer) { return buffer == nullptr ? std::remove_cvref_t<decltype(buffer->view())>{} : buffer->view(); };
  const bool has_planes = scene.pairs != nullptr;
  return queue.Launch(move_, Vertices(), Arg("count", vertex_count_), Arg("sets", sets_), Arg("vertices", vertices_),
                      Arg("owners", owners_), Arg("fits", fits_), Arg("systems", systems), Arg("detected", view(scene.detected)),
                      Arg("clear_m", view(scene.clear_m)), Arg("begins", has_planes ? scene.entry_begins->view() : BufferView<uint32_t>()),
                      Arg("planes", view(scene.bounds)), Arg("x", x), Arg("touched", touched));
}

absl::Status JointFrames::Note(Queue& queue, const RigidSurroundings& scene) {
  if (vertex_count_ == 0) return absl::OkStatus();
  return queue.Launch(note_, Vertices(), Arg("count", vertex_count_), Arg("vertices", vertices_), Arg("y", *scene.y),
                      Arg("y_free", y_free_));
}

absl::Status JointFrames::Push(Queue& queue, const RigidSurroundings& scene, const RigidJoints& joints) {
  if (shells_) PALPATE_RETURN_IF_ERROR(shells_->Push(queue, *scene.params, joints));
  if (vertex_count_ == 0) return absl::OkStatus();
  return queue.Launch(push_, Sets(), Arg("count", set_count()), Arg("scheme", joints.scheme()), Arg("p", *scene.params), Arg("sets", sets_),
                      Arg("vertices", vertices_), Arg("rest", rest_), Arg("ends", ends_), Arg("places", joints.places()),
                      Arg("systems", joints.systems()), Arg("reals", joints.reals()), Arg("states", joints.row_states()),
                      Arg("fits", fits_), Arg("mass", *scene.mass), Arg("y_free", y_free_), Arg("y", *scene.y));
}

}  // namespace palpate::gpu
