#include "gpu/dynamics/rigid_bodies.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"
#include "gpu/primitives/primitive_config.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource rigid_bodies;
extern const KernelSource rigid_volumes;
}  // namespace kernels
namespace {

using Vector = std::array<double, 3>;

bool IsFinite(const Vector& v) { return std::isfinite(v[0] + v[1] + v[2]); }

// v turned by the unit quaternion (vector part x, y, z, scalar part w).
Vector Rotate(const std::array<double, 4>& q, const Vector& v) {
  const auto cross = [](const Vector& a, const Vector& b) {
    return Vector{a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
  };
  const Vector u = {q[0], q[1], q[2]};
  Vector t = cross(u, v);
  for (double& x : t) x *= 2;
  const Vector s = cross(u, t);
  return {v[0] + q[3] * t[0] + s[0], v[1] + q[3] * t[1] + s[1], v[2] + q[3] * t[2] + s[2]};
}

absl::Status Refuse(std::string_view field, double value, std::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("rigid bodies: ", std::string(field), " is ", value, ", allowed is ", std::string(allowed)));
}

absl::Status CheckOptions(const RigidBodiesOptions& o) {
  if (!(o.dt_s > 0) || !std::isfinite(o.dt_s)) return Refuse("dt_s", o.dt_s, "above 0");
  if (!IsFinite(o.gravity_m_per_s2)) return Refuse("gravity_m_per_s2", o.gravity_m_per_s2[0], "finite");
  const bool is_verlet = o.integrator == RigidIntegrator::kVerlet;
  if (!(o.damping >= 0) || !std::isfinite(o.damping) || (is_verlet && o.damping > 1)) {
    return Refuse("damping", o.damping, is_verlet ? "0 to 1" : "0 and above");
  }
  if (o.iterations < 1 || o.iterations > 10000) return Refuse("iterations", o.iterations, "1 to 10000");
  if (o.velocity_iterations > 10000) return Refuse("velocity_iterations", o.velocity_iterations, "0 to 10000");
  if (!(o.friction >= 0) || !std::isfinite(o.friction)) return Refuse("friction", o.friction, "0 and above");
  if (!(o.restitution >= 0 && o.restitution <= 1)) return Refuse("restitution", o.restitution, "0 to 1");
  if (o.level_of_detail) {
    const RigidLevelOfDetail& d = *o.level_of_detail;
    if (!IsFinite(d.point_m)) return Refuse("level_of_detail.point_m", d.point_m[0], "finite");
    if (!(d.full_distance_m >= 0) || !std::isfinite(d.full_distance_m)) {
      return Refuse("level_of_detail.full_distance_m", d.full_distance_m, "0 and above");
    }
    if (!(d.reduced_distance_m >= d.full_distance_m) || !std::isfinite(d.reduced_distance_m)) {
      return Refuse("level_of_detail.reduced_distance_m", d.reduced_distance_m, absl::StrCat(d.full_distance_m, " and above"));
    }
    if (d.reduced_iterations < 1 || d.reduced_iterations > o.iterations) {
      return Refuse("level_of_detail.reduced_iterations", d.reduced_iterations, absl::StrCat("1 to ", o.iterations));
    }
  }
  if (o.ground) {
    const std::array<double, 4>& g = *o.ground;
    const double length = std::hypot(g[0], g[1], g[2]);
    if (!(length > 0) || !std::isfinite(length) || !std::isfinite(g[3])) return Refuse("length of the ground's normal", length, "above 0");
  }
  return absl::OkStatus();
}

absl::Status CheckBody(const RigidBodyDescription& body, size_t index, size_t mesh_count) {
  const std::string name = absl::StrCat("body ", index, " ");
  if (body.mesh >= mesh_count) return Refuse(name + "mesh", body.mesh, absl::StrCat("below ", mesh_count));
  if (!IsFinite(body.position_m)) return Refuse(name + "position_m", body.position_m[0], "finite");
  if (!IsFinite(body.velocity_m_per_s)) return Refuse(name + "velocity_m_per_s", body.velocity_m_per_s[0], "finite");
  if (!IsFinite(body.spin_rad_per_s)) return Refuse(name + "spin_rad_per_s", body.spin_rad_per_s[0], "finite");
  double norm = 0;
  for (const double x : body.rotation_wxyz) norm += x * x;
  if (!(norm > 0) || !std::isfinite(norm)) return Refuse(name + "squared length of rotation_wxyz", norm, "above 0");
  for (const double s : body.scale) {
    if (s == 0 || !std::isfinite(s)) return Refuse(name + "scale", s, "not 0");
  }
  if (!(body.mass_kg >= 0) || !std::isfinite(body.mass_kg)) return Refuse(name + "mass_kg", body.mass_kg, "0 and above");
  return absl::OkStatus();
}

Vector Mean(const ConvexMesh& mesh) {
  Vector sum{};
  for (const Float4& v : mesh.vertices_m) sum = {sum[0] + v.x, sum[1] + v.y, sum[2] + v.z};
  const double count = std::max<double>(1, static_cast<double>(mesh.vertices_m.size()));
  return {sum[0] / count, sum[1] / count, sum[2] / count};
}

// Inverse inertia of `mass_kg` spread over the vertices about their mean; xx, yy, zz, then xy, xz, yz [1/(kg m^2)]. Bodies on a line get a
// little inertia about it (1e-3 of the largest), points none: they do not turn. *radius_m: distance of the farthest vertex.
std::pair<Vector, Vector> InverseInertia(const ConvexMesh& mesh, const Vector& scale, double mass_kg, double* radius_m) {
  double c[3][3] = {};
  double farthest_sq = 0;
  for (const Float4& v : mesh.vertices_m) {
    const Vector p = {scale[0] * v.x, scale[1] * v.y, scale[2] * v.z};
    farthest_sq = std::max(farthest_sq, p[0] * p[0] + p[1] * p[1] + p[2] * p[2]);
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) c[i][j] += p[i] * p[j] / static_cast<double>(mesh.vertices_m.size());
    }
  }
  *radius_m = std::sqrt(farthest_sq);
  const double trace = c[0][0] + c[1][1] + c[2][2];
  if (!(mass_kg > 0) || !(trace > 0)) return {};
  double m[3][3];
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) m[i][j] = mass_kg * ((i == j ? trace * 1.001 : 0) - c[i][j]);
  }
  const auto minor = [&](int a, int b, int p, int q) { return m[a][p] * m[b][q] - m[a][q] * m[b][p]; };
  const double det = m[0][0] * minor(1, 2, 1, 2) - m[0][1] * minor(1, 2, 0, 2) + m[0][2] * minor(1, 2, 0, 1);
  return {{minor(1, 2, 1, 2) / det, minor(0, 2, 0, 2) / det, minor(0, 1, 0, 1) / det},
          {-minor(1, 2, 0, 2) / det, minor(1, 2, 0, 1) / det, -minor(0, 2, 0, 1) / det}};
}

RigidParams ParamsOf(const RigidBodiesOptions& options, uint32_t body_count) {
  RigidParams params;
  params.gravity = ToFloat4(options.gravity_m_per_s2);
  params.dt_s = static_cast<float>(options.dt_s);
  params.damping = static_cast<float>(options.damping);
  params.restitution = static_cast<float>(options.restitution);
  params.friction = static_cast<float>(options.friction);
  params.body_count = body_count;
  params.flags = (options.integrator == RigidIntegrator::kVerlet ? PALPATE_RIGID_VERLET : 0U) |
                 (options.correct_velocities ? PALPATE_RIGID_CORRECT_VELOCITIES : 0U) | (options.ground ? PALPATE_RIGID_GROUND : 0U) |
                 (options.line_search ? PALPATE_RIGID_LINE_SEARCH : 0U) |
                 (options.narrow_phase == RigidNarrowPhase::kVolumes ? PALPATE_RIGID_VOLUME_CONTACTS : 0U);
  params.unused0 = 0;
  params.unused1 = 0;
  if (options.ground) {
    const std::array<double, 4>& g = *options.ground;
    const double length = std::hypot(g[0], g[1], g[2]);
    params.ground = ToFloat4({g[0] / length, g[1] / length, g[2] / length}, g[3] / length);
  }
  return params;
}

}  // namespace

// Books the time since the last mark to a stage, after waiting for the queue. Does nothing unless stages are measured.
class RigidBodies::StageClock {
 public:
  StageClock(Queue& queue, bool is_on, std::array<double, kRigidStageCount>& seconds) : queue_(queue), is_on_(is_on), seconds_(seconds) {}
  absl::Status Mark(std::optional<RigidStage> stage) {
    if (!is_on_) return absl::OkStatus();
    PALPATE_RETURN_IF_ERROR(queue_.FinishBlocking());
    const auto now = std::chrono::steady_clock::now();
    if (stage) seconds_[static_cast<size_t>(*stage)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return absl::OkStatus();
  }

 private:
  Queue& queue_;
  bool is_on_;
  std::array<double, kRigidStageCount>& seconds_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Bodies as the device takes them.
struct RigidBodies::BodyArrays {
  std::vector<uint32_t> mesh_of, filters, vertex_begins = {0};
  std::vector<Float4> positions, rotations, scales, velocities, spins, local_inertia;

  // `center`: the centre of mass from the body's origin, scaled, in its own frame; the vertices of `mesh` are about it.
  void Add(const RigidBodyDescription& body, const ConvexMesh& mesh, const Vector& center) {
    double norm = 0;
    for (const double x : body.rotation_wxyz) norm += x * x;
    norm = std::sqrt(norm);
    const std::array<double, 4> q = {body.rotation_wxyz[1] / norm, body.rotation_wxyz[2] / norm, body.rotation_wxyz[3] / norm,
                                     body.rotation_wxyz[0] / norm};
    const Vector from_origin = Rotate(q, center);
    double radius_m = 0;
    const auto [diagonal, mixed] = InverseInertia(mesh, body.scale, body.mass_kg, &radius_m);
    const bool is_static = body.mass_kg == 0;
    mesh_of.push_back(body.mesh);
    filters.push_back(is_static ? PALPATE_BODY_STATIC : 0U);
    vertex_begins.push_back(vertex_begins.back() + static_cast<uint32_t>(mesh.vertices_m.size()));
    positions.push_back(
        ToFloat4({body.position_m[0] + from_origin[0], body.position_m[1] + from_origin[1], body.position_m[2] + from_origin[2]}));
    rotations.push_back(ToFloat4({q[0], q[1], q[2]}, q[3]));
    scales.push_back(ToFloat4(body.scale, radius_m));
    velocities.push_back(is_static ? Float4() : ToFloat4(body.velocity_m_per_s, 1 / body.mass_kg));
    spins.push_back(is_static ? Float4() : ToFloat4(body.spin_rad_per_s));
    local_inertia.push_back(ToFloat4(diagonal));
    local_inertia.push_back(ToFloat4(mixed));
  }
};

absl::StatusOr<std::unique_ptr<RigidBodies>> RigidBodies::Create(const std::shared_ptr<Context>& context,
                                                                 std::span<const ConvexMesh> meshes,
                                                                 std::span<const RigidBodyDescription> bodies,
                                                                 const RigidBodiesOptions& options) {
  PALPATE_RETURN_IF_ERROR(CheckOptions(options));
  if (bodies.empty() || bodies.size() > BodyBroadPhase::kMaxBodies) {
    return Refuse("number of bodies", static_cast<double>(bodies.size()), absl::StrCat("1 to ", BodyBroadPhase::kMaxBodies));
  }
  auto world = std::unique_ptr<RigidBodies>(new RigidBodies());
  PALPATE_ASSIGN_OR_RETURN(world->queue_, Queue::Create(context));
  world->options_ = options;
  world->group_ = PrimitiveConfig::For(context->device()).group_size == 1 ? 8 : 64;

  std::vector<ConvexMesh> centered(meshes.begin(), meshes.end());
  std::vector<Vector> means;
  for (ConvexMesh& mesh : centered) {
    means.push_back(Mean(mesh));
    for (Float4& v : mesh.vertices_m) v = ToFloat4({v.x - means.back()[0], v.y - means.back()[1], v.z - means.back()[2]});
  }
  PALPATE_ASSIGN_OR_RETURN(world->meshes_, ConvexMeshes::Create(*world->queue_, centered));

  BodyArrays arrays;
  for (size_t i = 0; i < bodies.size(); ++i) {
    const RigidBodyDescription& body = bodies[i];
    PALPATE_RETURN_IF_ERROR(CheckBody(body, i, meshes.size()));
    const Vector& mean = means[body.mesh];
    world->centers_.push_back({body.scale[0] * mean[0], body.scale[1] * mean[1], body.scale[2] * mean[2]});
    arrays.Add(body, centered[body.mesh], world->centers_.back());
  }
  world->body_count_ = static_cast<uint32_t>(bodies.size());
  world->vertex_count_ = arrays.vertex_begins.back();

  PALPATE_RETURN_IF_ERROR(world->MakeKernels(context));
  PALPATE_RETURN_IF_ERROR(world->MakeBuffers(context, arrays));
  PALPATE_RETURN_IF_ERROR(world->ReservePairs(1));
  return world;
}

absl::Status RigidBodies::MakeBuffers(const std::shared_ptr<Context>& context, const BodyArrays& arrays) {
  Queue& queue = *queue_;
  const size_t count = body_count_;
  const RigidParams params = ParamsOf(options_, body_count_);
  PALPATE_ASSIGN_OR_RETURN(params_, CreateBufferFrom<RigidParams>(queue, std::span(&params, 1), "rigid params"));
  PALPATE_ASSIGN_OR_RETURN(counters_, DeviceBuffer<RigidCounters>::Create(context, 1, "rigid counters"));
  PALPATE_ASSIGN_OR_RETURN(mesh_of_, CreateBufferFrom<uint32_t>(queue, arrays.mesh_of, "rigid meshes"));
  PALPATE_ASSIGN_OR_RETURN(filters_, CreateBufferFrom<uint32_t>(queue, arrays.filters, "rigid filters"));
  PALPATE_ASSIGN_OR_RETURN(vertex_begins_, CreateBufferFrom<uint32_t>(queue, arrays.vertex_begins, "rigid vertex begins"));
  PALPATE_ASSIGN_OR_RETURN(entry_begins_, DeviceBuffer<uint32_t>::Create(context, count + 1, "rigid entry begins"));
  PALPATE_ASSIGN_OR_RETURN(scales_, CreateBufferFrom<Float4>(queue, arrays.scales, "rigid scales"));
  PALPATE_ASSIGN_OR_RETURN(local_inertia_, CreateBufferFrom<Float4>(queue, arrays.local_inertia, "rigid local inertia"));
  PALPATE_ASSIGN_OR_RETURN(inertia_, DeviceBuffer<Float4>::Create(context, 2 * count, "rigid inertia"));
  PALPATE_ASSIGN_OR_RETURN(positions_, CreateBufferFrom<Float4>(queue, arrays.positions, "rigid positions"));
  PALPATE_ASSIGN_OR_RETURN(rotations_, CreateBufferFrom<Float4>(queue, arrays.rotations, "rigid rotations"));
  PALPATE_ASSIGN_OR_RETURN(velocities_, CreateBufferFrom<Float4>(queue, arrays.velocities, "rigid velocities"));
  PALPATE_ASSIGN_OR_RETURN(spins_, CreateBufferFrom<Float4>(queue, arrays.spins, "rigid spins"));
  for (DeviceBuffer<Float4>* buffer : {&next_positions_, &next_rotations_, &start_positions_, &start_rotations_, &predicted_positions_,
                                       &predicted_rotations_, &next_velocities_, &next_spins_, &before_velocities_, &before_spins_}) {
    PALPATE_ASSIGN_OR_RETURN(*buffer, DeviceBuffer<Float4>::Create(context, count, "rigid scratch"));
  }
  PALPATE_ASSIGN_OR_RETURN(world_, DeviceBuffer<Float4>::Create(context, vertex_count_, "rigid world vertices"));
  PALPATE_ASSIGN_OR_RETURN(volumes_,
                           DeviceBuffer<float>::Create(context, count * FloatsPerVolume(options_.broad_phase.volume), "rigid volumes"));
  if (options_.level_of_detail) {
    PALPATE_ASSIGN_OR_RETURN(detail_, DeviceBuffer<RigidDetail>::Create(context, 1, "rigid detail"));
    PALPATE_ASSIGN_OR_RETURN(levels_, DeviceBuffer<uint32_t>::Create(context, count, "rigid levels"));
    PALPATE_ASSIGN_OR_RETURN(level_counts_, DeviceBuffer<uint32_t>::Create(context, size_t{options_.iterations} + 1, "rigid level counts"));
    PALPATE_RETURN_IF_ERROR(SetPointOfInterest(options_.level_of_detail->point_m));
  }
  return absl::OkStatus();
}

absl::Status RigidBodies::MakeKernels(const std::shared_ptr<Context>& context) {
  const std::pair<Kernel*, const char*> table[] = {{&predict_, "rigid_predict"},
                                                   {&world_vertices_, "rigid_world_vertices"},
                                                   {&entries_kernel_, "rigid_entries"},
                                                   {&begins_kernel_, "rigid_begins"},
                                                   {&note_, "rigid_note"},
                                                   {&respond_, "rigid_respond"},
                                                   {&finish_, "rigid_finish"},
                                                   {&velocities_kernel_, "rigid_velocities"},
                                                   {&lift_, "rigid_lift"},
                                                   {&levels_kernel_, "rigid_levels"},
                                                   {&pair_levels_, "rigid_pair_levels"},
                                                   {&ordered_pairs_kernel_, "rigid_ordered_pairs"}};
  for (const auto& [kernel, name] : table) {
    PALPATE_ASSIGN_OR_RETURN(*kernel, context->CreateKernel(kernels::rigid_bodies, name));
  }
  if (options_.narrow_phase == RigidNarrowPhase::kVolumes) {
    PALPATE_ASSIGN_OR_RETURN(volume_contacts_, context->CreateKernel(kernels::rigid_volumes, "rigid_volume_contacts",
                                                                     VolumeDefines(options_.broad_phase.volume)));
  }
  PALPATE_ASSIGN_OR_RETURN(volume_builder_, VolumeBuilder::Create(context, options_.broad_phase.volume));
  PALPATE_ASSIGN_OR_RETURN(broad_phase_, BodyBroadPhase::Create(context, options_.broad_phase));
  PALPATE_ASSIGN_OR_RETURN(narrow_phase_, ConvexNarrowPhase::Create(context));
  return absl::OkStatus();
}

absl::Status RigidBodies::ReservePairs(uint32_t pair_count) {
  if (pair_count <= pair_capacity_) return absl::OkStatus();
  const uint64_t capacity = std::max<uint64_t>(pair_count + uint64_t{pair_count} / 2, 1024);
  if (2 * capacity > kMaxItems) return absl::ResourceExhaustedError(absl::StrCat("rigid bodies: ", pair_count, " pairs"));
  const std::shared_ptr<Context>& context = queue_->context();
  PALPATE_ASSIGN_OR_RETURN(keys_, DeviceBuffer<uint32_t>::Create(context, 2 * capacity, "rigid entry keys"));
  PALPATE_ASSIGN_OR_RETURN(sorted_keys_, DeviceBuffer<uint32_t>::Create(context, 2 * capacity, "rigid sorted keys"));
  PALPATE_ASSIGN_OR_RETURN(entries_, DeviceBuffer<uint32_t>::Create(context, 2 * capacity, "rigid entries"));
  PALPATE_ASSIGN_OR_RETURN(contacts_, DeviceBuffer<ConvexContact>::Create(context, capacity, "rigid contacts"));
  PALPATE_ASSIGN_OR_RETURN(acting_, DeviceBuffer<Float4>::Create(context, 2 * capacity, "rigid acting contacts"));
  PALPATE_ASSIGN_OR_RETURN(sort_, RadixSort<uint32_t>::Create(context, static_cast<uint32_t>(2 * capacity)));
  if (options_.level_of_detail) {
    PALPATE_ASSIGN_OR_RETURN(ordered_pairs_, DeviceBuffer<UInt2>::Create(context, capacity, "rigid ordered pairs"));
  }
  pair_capacity_ = static_cast<uint32_t>(capacity);
  return absl::OkStatus();
}

ConvexBodies RigidBodies::device_bodies() const { return {body_count_, mesh_of_, positions_, rotations_, scales_}; }

absl::Status RigidBodies::SetPointOfInterest(const std::array<double, 3>& point_m) {
  if (!options_.level_of_detail) return absl::FailedPreconditionError("rigid bodies: the options have no level_of_detail");
  if (!IsFinite(point_m)) return Refuse("point of interest", point_m[0], "finite");
  options_.level_of_detail->point_m = point_m;
  const RigidDetail detail = {.point = ToFloat4(point_m),
                              .full_distance_m = static_cast<float>(options_.level_of_detail->full_distance_m),
                              .reduced_distance_m = static_cast<float>(options_.level_of_detail->reduced_distance_m),
                              .iterations = options_.iterations,
                              .reduced_iterations = options_.level_of_detail->reduced_iterations};
  return queue_->Write(detail_, std::span(&detail, 1));
}

absl::Status RigidBodies::BuildVolumes() {
  PALPATE_RETURN_IF_ERROR(queue_->Launch(world_vertices_, {body_count_, group_}, Arg("body_count", body_count_), Arg("meshes", mesh_of_),
                                         Arg("shapes", meshes_.shapes()), Arg("vertices", meshes_.vertices()), Arg("positions", positions_),
                                         Arg("rotations", rotations_), Arg("scales", scales_), Arg("begins", vertex_begins_),
                                         Arg("world", world_)));
  return volume_builder_.Build(*queue_, world_, vertex_begins_, body_count_, vertex_count_, volumes_, {positions_, rotations_});
}

// The pairs, those with most iterations first and otherwise in their order. active_pairs[k]: how many of them iteration k still has.
absl::StatusOr<BufferView<UInt2>> RigidBodies::OrderPairs(std::vector<uint32_t>* active_pairs) {
  const uint32_t pair_count = broad_phase_.pair_count();
  active_pairs->assign(options_.iterations, pair_count);
  if (!options_.level_of_detail) return broad_phase_.pairs();
  PALPATE_RETURN_IF_ERROR(queue_->Launch(levels_kernel_, {body_count_, group_}, Arg("detail", detail_), Arg("body_count", body_count_),
                                         Arg("positions", positions_), Arg("velocities", velocities_), Arg("scales", scales_),
                                         Arg("levels", levels_)));
  if (pair_count == 0) return broad_phase_.pairs();
  const Range pairs = {pair_count, group_};
  PALPATE_RETURN_IF_ERROR(queue_->Zero(level_counts_));
  PALPATE_RETURN_IF_ERROR(queue_->Launch(pair_levels_, pairs, Arg("detail", detail_), Arg("pair_count", pair_count),
                                         Arg("pairs", broad_phase_.pairs()), Arg("levels", levels_), Arg("keys", keys_),
                                         Arg("counts", level_counts_)));
  PALPATE_RETURN_IF_ERROR(
      sort_.Run(*queue_, keys_, {}, pair_count, sorted_keys_, entries_, {0, static_cast<uint32_t>(std::bit_width(options_.iterations))}));
  PALPATE_RETURN_IF_ERROR(queue_->Launch(ordered_pairs_kernel_, pairs, Arg("pair_count", pair_count), Arg("pairs", broad_phase_.pairs()),
                                         Arg("order", entries_), Arg("ordered", ordered_pairs_)));
  std::vector<uint32_t> counts(size_t{options_.iterations} + 1);
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(level_counts_, counts));
  for (uint32_t k = 0, ended = 0; k < options_.iterations; ++k) {
    ended += counts[k];
    (*active_pairs)[k] = pair_count - ended;
  }
  return ordered_pairs_.view();
}

absl::StatusOr<RigidStep> RigidBodies::Step() {
  RigidStep step;
  StageClock clock(*queue_, options_.measure_stages, step.stage_s);
  PALPATE_RETURN_IF_ERROR(Predict(clock));
  std::vector<uint32_t> active_pairs;  // by iteration
  PALPATE_ASSIGN_OR_RETURN(const BufferView<UInt2> pairs, FindPairs(&step, &active_pairs));
  PALPATE_RETURN_IF_ERROR(clock.Mark(RigidStage::kBroadPhase));
  for (uint32_t iteration = 0; iteration < options_.iterations; ++iteration) {
    const uint32_t active = active_pairs[iteration];
    step.solved_pairs += active;
    PALPATE_RETURN_IF_ERROR(FindContacts(iteration, active, pairs, clock, &step));
    PALPATE_RETURN_IF_ERROR(Respond(iteration, active));
    PALPATE_RETURN_IF_ERROR(clock.Mark(RigidStage::kResponse));
  }
  PALPATE_RETURN_IF_ERROR(FinishVelocities(pairs));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(counters_, std::span(&step.counters, 1)));
  PALPATE_RETURN_IF_ERROR(clock.Mark(RigidStage::kVelocities));
  return step;
}

/// Free flight, and volumes around where it leads.
absl::Status RigidBodies::Predict(StageClock& clock) {
  const Range bodies = {body_count_, group_};
  PALPATE_RETURN_IF_ERROR(queue_->Zero(counters_));
  PALPATE_RETURN_IF_ERROR(queue_->Launch(
      predict_, bodies, Arg("params", params_), Arg("velocities", velocities_), Arg("spins", spins_), Arg("positions", positions_),
      Arg("rotations", rotations_), Arg("start_positions", start_positions_), Arg("start_rotations", start_rotations_),
      Arg("predicted_positions", predicted_positions_), Arg("predicted_rotations", predicted_rotations_),
      Arg("before_velocities", before_velocities_), Arg("before_spins", before_spins_), Arg("counters", counters_)));
  PALPATE_RETURN_IF_ERROR(clock.Mark(RigidStage::kIntegrate));
  PALPATE_RETURN_IF_ERROR(queue_->Launch(world_vertices_, bodies, Arg("body_count", body_count_), Arg("meshes", mesh_of_),
                                         Arg("shapes", meshes_.shapes()), Arg("vertices", meshes_.vertices()), Arg("positions", positions_),
                                         Arg("rotations", rotations_), Arg("scales", scales_), Arg("begins", vertex_begins_),
                                         Arg("world", world_)));
  PALPATE_RETURN_IF_ERROR(clock.Mark(RigidStage::kTransform));
  PALPATE_RETURN_IF_ERROR(
      volume_builder_.Build(*queue_, world_, vertex_begins_, body_count_, vertex_count_, volumes_, {positions_, rotations_}));
  return clock.Mark(RigidStage::kVolumes);
}

/// Pairs whose volumes meet, and which of them each body is in.
absl::StatusOr<BufferView<UInt2>> RigidBodies::FindPairs(RigidStep* step, std::vector<uint32_t>* active_pairs) {
  PALPATE_RETURN_IF_ERROR(broad_phase_.Run(*queue_, volumes_, filters_, body_count_));
  const uint32_t pair_count = broad_phase_.pair_count();
  step->pair_count = pair_count;
  PALPATE_RETURN_IF_ERROR(ReservePairs(pair_count));
  PALPATE_ASSIGN_OR_RETURN(const BufferView<UInt2> pairs, OrderPairs(active_pairs));
  PALPATE_RETURN_IF_ERROR(
      queue_->Launch(entries_kernel_, {pair_count, group_}, Arg("pair_count", pair_count), Arg("pairs", pairs), Arg("keys", keys_)));
  PALPATE_RETURN_IF_ERROR(
      sort_.Run(*queue_, keys_, {}, 2 * pair_count, sorted_keys_, entries_, {0, static_cast<uint32_t>(std::bit_width(body_count_))}));
  PALPATE_RETURN_IF_ERROR(queue_->Launch(begins_kernel_, {size_t{body_count_} + 1, group_}, Arg("body_count", body_count_),
                                         Arg("entry_count", 2 * pair_count), Arg("sorted_keys", sorted_keys_),
                                         Arg("begins", entry_begins_)));
  return pairs;
}

absl::Status RigidBodies::FindContacts(uint32_t iteration, uint32_t active, BufferView<UInt2> pairs, StageClock& clock, RigidStep* step) {
  const bool has_volumes = options_.narrow_phase == RigidNarrowPhase::kVolumes;
  const uint32_t is_first = iteration == 0 ? 1 : 0;
  if (has_volumes) {
    if (iteration > 0) PALPATE_RETURN_IF_ERROR(BuildVolumes());
    PALPATE_RETURN_IF_ERROR(queue_->Launch(volume_contacts_, {active, group_}, Arg("pair_count", active), Arg("is_first", is_first),
                                           Arg("pairs", pairs), Arg("volumes", volumes_), Arg("positions", positions_),
                                           Arg("contacts", contacts_), Arg("acting", acting_), Arg("counters", counters_)));
  } else {
    PALPATE_RETURN_IF_ERROR(narrow_phase_.Run(*queue_, meshes_, device_bodies(), pairs, active, 0.0F, contacts_));
  }
  PALPATE_RETURN_IF_ERROR(clock.Mark(RigidStage::kNarrowPhase));
  if (options_.collect_statistics && active > 0) {
    const uint64_t overlapping = statistics_.by_status[PALPATE_CONVEX_OVERLAPPING];
    PALPATE_RETURN_IF_ERROR(narrow_phase_.AddStatistics(*queue_, contacts_, active, &statistics_));
    if (iteration == 0) {
      step->overlapping_pairs = static_cast<uint32_t>(statistics_.by_status[PALPATE_CONVEX_OVERLAPPING] - overlapping);
    }
    PALPATE_RETURN_IF_ERROR(clock.Mark(std::nullopt));
  }
  if (!has_volumes) {
    PALPATE_RETURN_IF_ERROR(queue_->Launch(note_, {active, group_}, Arg("pair_count", active), Arg("is_first", is_first),
                                           Arg("contacts", contacts_), Arg("meshes", mesh_of_), Arg("shapes", meshes_.shapes()),
                                           Arg("vertices", meshes_.vertices()), Arg("scales", scales_), Arg("positions", positions_),
                                           Arg("rotations", rotations_), Arg("acting", acting_), Arg("counters", counters_)));
  }
  return absl::OkStatus();
}

absl::Status RigidBodies::Respond(uint32_t iteration, uint32_t active) {
  const Range bodies = {body_count_, group_};
  const BufferView<uint32_t> levels = options_.level_of_detail ? levels_.view() : BufferView<uint32_t>();
  PALPATE_RETURN_IF_ERROR(queue_->Launch(respond_, bodies, Arg("params", params_), Arg("iteration", iteration), Arg("active_pairs", active),
                                         Arg("levels", levels), Arg("meshes", mesh_of_), Arg("shapes", meshes_.shapes()),
                                         Arg("vertices", meshes_.vertices()), Arg("scales", scales_), Arg("velocities", velocities_),
                                         Arg("start_positions", start_positions_), Arg("start_rotations", start_rotations_),
                                         Arg("positions", positions_), Arg("rotations", rotations_), Arg("entry_begins", entry_begins_),
                                         Arg("entries", entries_), Arg("contacts", contacts_), Arg("next_positions", next_positions_),
                                         Arg("next_rotations", next_rotations_), Arg("counters", counters_)));
  std::swap(positions_, next_positions_);
  std::swap(rotations_, next_rotations_);
  return absl::OkStatus();
}

absl::Status RigidBodies::FinishVelocities(BufferView<UInt2> pairs) {
  const Range bodies = {body_count_, group_};
  PALPATE_RETURN_IF_ERROR(queue_->Launch(finish_, bodies, Arg("params", params_), Arg("scales", scales_),
                                         Arg("local_inertia", local_inertia_), Arg("entry_begins", entry_begins_), Arg("entries", entries_),
                                         Arg("pairs", pairs), Arg("acting", acting_), Arg("predicted_positions", predicted_positions_),
                                         Arg("predicted_rotations", predicted_rotations_), Arg("before_velocities", before_velocities_),
                                         Arg("before_spins", before_spins_), Arg("positions", positions_), Arg("rotations", rotations_),
                                         Arg("velocities", velocities_), Arg("spins", spins_), Arg("inertia", inertia_),
                                         Arg("counters", counters_)));
  for (uint32_t i = 0; options_.correct_velocities && i < options_.velocity_iterations; ++i) {
    PALPATE_RETURN_IF_ERROR(queue_->Launch(
        velocities_kernel_, bodies, Arg("params", params_), Arg("meshes", mesh_of_), Arg("shapes", meshes_.shapes()),
        Arg("vertices", meshes_.vertices()), Arg("scales", scales_), Arg("entry_begins", entry_begins_), Arg("entries", entries_),
        Arg("pairs", pairs), Arg("acting", acting_), Arg("positions", positions_), Arg("rotations", rotations_),
        Arg("before_velocities", before_velocities_), Arg("before_spins", before_spins_), Arg("inertia", inertia_),
        Arg("velocities", velocities_), Arg("spins", spins_), Arg("next_velocities", next_velocities_), Arg("next_spins", next_spins_)));
    std::swap(velocities_, next_velocities_);
    std::swap(spins_, next_spins_);
  }
  // The plain match of Amaral 2021 is left as it is.
  if (options_.ground && options_.line_search) {
    PALPATE_RETURN_IF_ERROR(queue_->Launch(lift_, bodies, Arg("params", params_), Arg("meshes", mesh_of_), Arg("shapes", meshes_.shapes()),
                                           Arg("vertices", meshes_.vertices()), Arg("scales", scales_), Arg("rotations", rotations_),
                                           Arg("velocities", velocities_), Arg("positions", positions_)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RigidBodyState>> RigidBodies::ReadState() {
  std::vector<Float4> positions(body_count_), rotations(body_count_), velocities(body_count_), spins(body_count_);
  PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(positions_, positions));
  PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(rotations_, rotations));
  PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(velocities_, velocities));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(spins_, spins));
  std::vector<RigidBodyState> states(body_count_);
  for (uint32_t i = 0; i < body_count_; ++i) {
    const Float4& q = rotations[i];
    const Vector center = Rotate({q.x, q.y, q.z, q.w}, centers_[i]);
    states[i].position_m = {positions[i].x - center[0], positions[i].y - center[1], positions[i].z - center[2]};
    states[i].rotation_wxyz = {q.w, q.x, q.y, q.z};
    states[i].velocity_m_per_s = {velocities[i].x, velocities[i].y, velocities[i].z};
    states[i].spin_rad_per_s = {spins[i].x, spins[i].y, spins[i].z};
  }
  return states;
}

}  // namespace palpate::gpu
