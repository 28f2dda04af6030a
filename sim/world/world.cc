#include "sim/world/world.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/haptics/build_model.h"
#include "sim/mesh/mass_properties.h"

namespace palpate::sim {
namespace {

using Clock = std::chrono::steady_clock;

std::array<double, 3> ToArray(const Eigen::Vector3d& v) { return {v.x(), v.y(), v.z()}; }
Eigen::Vector3d ToVector(const gpu::Float4& v) { return {v.x, v.y, v.z}; }

double MillisecondsSince(Clock::time_point* mark) {
  const Clock::time_point now = Clock::now();
  const double ms = std::chrono::duration<double, std::milli>(now - *mark).count();
  *mark = now;
  return ms;
}

// What a hand feels of a body that does not yield; its device limits the stiffness anyway.
constexpr double kRigidYoungModulus_pa = 1e7;

Eigen::Vector3d AxisOf(const ToolDescription& tool, const RigidPose& pose) { return pose.rotation * Eigen::Vector3d(0, 0, tool.length_m); }

double CouplingDamping(const ToolDescription& tool) {
  return tool.coupling_damping_n_s_per_m >= 0 ? tool.coupling_damping_n_s_per_m
                                              : 2 * std::sqrt(tool.coupling_stiffness_n_per_m * tool.mass_kg);
}

}  // namespace

class World::Impl {
 public:
  absl::Status Init(std::shared_ptr<gpu::Context> context, SceneDescription description);
  absl::StatusOr<std::shared_ptr<const Frame>> Step(std::span<const ToolCommand* const> commands);
  absl::StatusOr<std::shared_ptr<const Frame>> Reset();
  absl::Status UpdateGathered();
  absl::StatusOr<std::vector<float>> ReadVolumePositions(size_t body_index);
  absl::Status WriteVolumePositions(size_t body_index, std::span<const float> positions_m);

  SceneDescription description_;
  std::vector<BodyStatistics> statistics_;
  std::vector<BoundarySurface> surfaces_;
  std::unique_ptr<gpu::TissueSolver> solver_;
  std::shared_ptr<const Frame> frame_;
  bool volume_wanted_ = false;
  bool volume_gathered_ = false;

 private:
  std::shared_ptr<const Frame> MakeFrame(const gpu::TissueStep& step);
  void BuildLocalModels(const gpu::TissueStep& step, Frame* frame);
  uint32_t BodyOfVertex(uint32_t vertex) const;
  absl::Status CheckBody(size_t body_index) const;

  std::vector<uint32_t> vertex_begin_;    // [body_count + 1] in the solver's caller order
  std::vector<uint32_t> triangle_begin_;  // [body_count + 1]
  std::vector<uint32_t> surface_index_;   // of each vertex of the solver's caller order, in the surface of its body
  bool moves_at_start_ = false;           // a body has a velocity
  std::vector<double> triangle_area_m2_;  // at rest
  std::vector<ToolCommand> commands_;     // newest per tool
  std::vector<gpu::ColliderTarget> targets_;
  std::vector<float> rest_positions_;
  uint64_t step_ = 0;
  bool failed_ = false;
  double tools_ms_ = 0;
};

absl::Status World::Impl::Init(std::shared_ptr<gpu::Context> context, SceneDescription description) {
  description_ = std::move(description);
  gpu::TissueModel model;
  vertex_begin_.push_back(0);
  triangle_begin_.push_back(0);
  for (size_t b = 0; b < description_.bodies.size(); ++b) {
    const BodyDescription& body = description_.bodies[b];
    const auto name = [&] { return absl::StrCat("bodies[", b, "] (", body.name, ")"); };
    if (absl::Status valid = ValidateTetMesh(body.mesh); !valid.ok()) return Annotate(valid, name());
    const auto base = static_cast<uint32_t>(model.rest_m.size());
    BodyStatistics statistics;
    statistics.name = body.name;
    statistics.vertex_count = static_cast<uint32_t>(body.mesh.vertices.size());
    statistics.tet_count = static_cast<uint32_t>(body.mesh.tets.size());
    statistics.fixed_vertex_count = static_cast<uint32_t>(body.fixed_vertices.size());
    const double e = body.material.young_modulus_pa;
    const double nu = body.material.poisson_ratio;
    gpu::TissueTet tet;
    tet.mu_pa = static_cast<float>(e / (2 * (1 + nu)));
    tet.lambda_pa = static_cast<float>(e * nu / ((1 + nu) * (1 - 2 * nu)));
    tet.damping_s = static_cast<float>(body.material.damping_s);
    tet.density_kg_per_m3 = static_cast<float>(body.material.density_kg_per_m3);
    tet.corotated = body.material.model == MaterialModel::kCorotatedLinear;
    for (size_t t = 0; t < body.mesh.tets.size(); ++t) {
      for (size_t c = 0; c < 4; ++c) tet.vertices[c] = base + body.mesh.tets[t][c];
      if (body.kind == BodyKind::kDeformable) model.tets.push_back(tet);
      statistics.volume_m3 += TetVolume(body.mesh, t);
    }
    statistics.mass_kg = statistics.volume_m3 * body.material.density_kg_per_m3;
    for (const Eigen::Vector3d& v : body.mesh.vertices) {
      model.rest_m.push_back(ToArray(v));
      for (int axis = 0; axis < 3; ++axis) rest_positions_.push_back(static_cast<float>(v[axis]));
    }
    surface_index_.resize(model.rest_m.size(), 0);
    // The solver itself gives rigid bodies their motion at the start.
    for (int axis = 0; axis < 3; ++axis) moves_at_start_ |= body.kind == BodyKind::kDeformable && body.velocity_m_per_s[axis] != 0;
    for (size_t r = 0; r < body.driven_regions.size(); ++r) {
      const DrivenRegion& region = body.driven_regions[r];
      gpu::TissueDrivenRegion driven;
      for (const uint32_t v : region.vertices) {
        if (v >= body.mesh.vertices.size()) {
          return absl::InvalidArgumentError(
              absl::StrCat(name(), ".driven_regions[", r, "]: vertex ", v, " is outside [0, ", body.mesh.vertices.size() - 1, "]"));
        }
        driven.vertices.push_back(base + v);
      }
      driven.velocity_m_per_s = ToArray(region.velocity_m_per_s);
      driven.angular_velocity_rad_per_s = ToArray(region.angular_velocity_rad_per_s);
      driven.center_m = ToArray(region.center_m);
      driven.start_s = region.start_s;
      driven.duration_s = region.duration_s;
      model.driven.push_back(std::move(driven));
    }
    model.fixed.resize(model.rest_m.size(), body.kind == BodyKind::kDeformable ? 0 : 1);
    if (body.kind != BodyKind::kDeformable && (!body.driven_regions.empty() || !body.fixed_vertices.empty() || body.self_collision)) {
      return absl::InvalidArgumentError(absl::StrCat(name(), ": fixed vertices, driven regions and self-collision need a deformable body"));
    }
    if (body.kind == BodyKind::kRigid) {
      const MassProperties mass = ComputeMassProperties(body.mesh, body.material.density_kg_per_m3);
      gpu::TissueRigidBody rigid;
      rigid.body = static_cast<uint32_t>(b);
      rigid.vertices = {base, static_cast<uint32_t>(model.rest_m.size())};
      rigid.mass_kg = mass.mass_kg;
      rigid.center_m = ToArray(mass.center_m);
      for (int i = 0; i < 9; ++i) rigid.inertia_kg_m2[static_cast<size_t>(i)] = mass.inertia_kg_m2(i / 3, i % 3);
      rigid.velocity_m_per_s = ToArray(body.velocity_m_per_s);
      rigid.angular_velocity_rad_per_s = ToArray(body.angular_velocity_rad_per_s);
      model.rigid.push_back(rigid);
    }
    for (const uint32_t v : body.fixed_vertices) {
      if (v >= body.mesh.vertices.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat(name(), ".fixed_vertices: ", v, " is outside [0, ", body.mesh.vertices.size() - 1, "]"));
      }
      model.fixed[base + v] = 1;
    }
    BoundarySurface surface = ExtractBoundary(body.mesh);
    statistics.surface_vertex_count = static_cast<uint32_t>(surface.vertices.size());
    statistics.surface_triangle_count = static_cast<uint32_t>(surface.triangles.size());
    for (uint32_t i = 0; i < surface.vertices.size(); ++i) surface_index_[base + surface.vertices[i]] = i;
    for (const auto& triangle : surface.triangles) {
      std::array<uint32_t, 3> global{};
      for (size_t c = 0; c < 3; ++c) global[c] = surface.vertices[triangle[c]];
      const Eigen::Vector3d& o = body.mesh.vertices[global[0]];
      triangle_area_m2_.push_back((body.mesh.vertices[global[1]] - o).cross(body.mesh.vertices[global[2]] - o).norm() / 2);
      model.surface_triangles.push_back({base + global[0], base + global[1], base + global[2]});
    }
    vertex_begin_.push_back(static_cast<uint32_t>(model.rest_m.size()));
    triangle_begin_.push_back(static_cast<uint32_t>(model.surface_triangles.size()));
    statistics_.push_back(std::move(statistics));
    surfaces_.push_back(std::move(surface));
    model.self_collision.push_back(body.self_collision ? 1 : 0);
  }
  model.body_triangle_begin = triangle_begin_;

  std::vector<gpu::ColliderDescription> colliders;
  for (const ToolDescription& tool : description_.tools) {
    gpu::ColliderDescription collider;
    collider.radius_m = tool.radius_m;
    collider.tip_m = ToArray(tool.rest_pose.position_m);
    collider.axis_m = ToArray(AxisOf(tool, tool.rest_pose));
    if (tool.drive == ToolDrive::kCoupled) {
      collider.coupling_n_per_m = tool.coupling_stiffness_n_per_m;
      collider.damping_n_s_per_m = CouplingDamping(tool);
      collider.mass_kg = tool.mass_kg;
    }
    colliders.push_back(collider);
    targets_.push_back({collider.tip_m, collider.axis_m});
  }
  // Spheres and capsules that never move are tools that nobody drives: the triangles' faces and edges feel them too, not only the vertices.
  std::vector<gpu::PlaneObstacle> planes;
  for (const ObstacleDescription& obstacle : description_.obstacles) {
    if (const auto* plane = std::get_if<PlaneShape>(&obstacle.shape)) {
      const Eigen::Vector3d n = plane->normal.normalized();
      planes.push_back(
          {{static_cast<float>(n.x()), static_cast<float>(n.y()), static_cast<float>(n.z()), static_cast<float>(n.dot(plane->point_m))}});
      continue;
    }
    gpu::ColliderDescription collider;
    if (const auto* sphere = std::get_if<SphereShape>(&obstacle.shape)) {
      collider.radius_m = sphere->radius_m;
      collider.tip_m = ToArray(sphere->center_m);
    } else {
      const auto& capsule = std::get<CapsuleShape>(obstacle.shape);
      collider.radius_m = capsule.radius_m;
      collider.tip_m = ToArray(capsule.end0_m);
      collider.axis_m = ToArray(capsule.end1_m - capsule.end0_m);
    }
    colliders.push_back(collider);
    targets_.push_back({collider.tip_m, collider.axis_m});
  }

  gpu::TissueOptions options;
  options.dt_s = description_.dt_s;
  options.gravity_m_per_s2 = ToArray(description_.gravity_m_per_s2);
  options.iterations = static_cast<uint32_t>(description_.solver.iterations);
  options.acceleration = description_.solver.acceleration;
  options.margin_m = description_.contact.margin_m;
  options.friction = description_.contact.friction;
  options.stiffness_n_per_m = description_.contact.stiffness_n_per_m;
  options.range_m = description_.haptics.range_m;
  options.surface_friction = description_.contact.surface_friction;
  options.surface_reserve_m = description_.contact.surface_reserve_m;
  options.surface_max_detections = static_cast<uint32_t>(std::max(1, description_.contact.surface_max_detections));
  options.check_intersections = description_.contact.check_intersections;
  const gpu::TissueTuning tuning = gpu::TissueTuning::For(context->device());
  PALPATE_ASSIGN_OR_RETURN(solver_, gpu::TissueSolver::Create(std::move(context), model, options, colliders, planes, tuning));
  // Drivers compile a kernel for good at its first launch, which can take seconds: that time belongs here, not to the first step of the
  // scene.
  PALPATE_RETURN_IF_ERROR(UpdateGathered());
  PALPATE_RETURN_IF_ERROR(solver_->Step(targets_).status());
  return Reset().status();
}

absl::Status World::Impl::UpdateGathered() {
  std::vector<uint32_t> vertices;
  for (size_t b = 0; b < surfaces_.size(); ++b) {
    for (const uint32_t v : surfaces_[b].vertices) vertices.push_back(vertex_begin_[b] + v);
  }
  if (volume_wanted_) {
    for (uint32_t v = 0; v < vertex_begin_.back(); ++v) vertices.push_back(v);
  }
  volume_gathered_ = volume_wanted_;
  return solver_->SetGathered(vertices);
}

absl::StatusOr<std::shared_ptr<const Frame>> World::Impl::Reset() {
  commands_.assign(description_.tools.size(), {});
  for (size_t t = 0; t < commands_.size(); ++t) commands_[t].device_pose = description_.tools[t].rest_pose;
  step_ = 0;
  failed_ = false;
  PALPATE_RETURN_IF_ERROR(solver_->Reset());
  if (moves_at_start_) {
    std::vector<float> velocities;
    velocities.reserve(rest_positions_.size());
    for (const BodyDescription& body : description_.bodies) {
      const Eigen::Vector3d center = body.kind == BodyKind::kRigid ? ComputeMassProperties(body.mesh, 1).center_m : Eigen::Vector3d::Zero();
      for (const Eigen::Vector3d& x : body.mesh.vertices) {
        const Eigen::Vector3f velocity = (body.velocity_m_per_s + body.angular_velocity_rad_per_s.cross(x - center)).cast<float>();
        velocities.insert(velocities.end(), velocity.data(), velocity.data() + 3);
      }
    }
    PALPATE_RETURN_IF_ERROR(solver_->WriteState(rest_positions_, velocities));
  }
  PALPATE_RETURN_IF_ERROR(UpdateGathered());
  PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep step, solver_->Inspect());
  tools_ms_ = 0;
  frame_ = MakeFrame(step);
  return frame_;
}

absl::StatusOr<std::shared_ptr<const Frame>> World::Impl::Step(std::span<const ToolCommand* const> commands) {
  if (failed_) return absl::FailedPreconditionError("the scene has failed and must be reset");
  if (commands.size() != description_.tools.size()) {
    return absl::InvalidArgumentError(absl::StrCat(commands.size(), " tool commands for ", description_.tools.size(), " tools"));
  }
  Clock::time_point mark = Clock::now();
  if (volume_wanted_ != volume_gathered_) PALPATE_RETURN_IF_ERROR(UpdateGathered());
  for (size_t t = 0; t < commands.size(); ++t) {
    if (commands[t] == nullptr) continue;
    const RigidPose& pose = commands[t]->device_pose;
    if (!pose.position_m.allFinite() || !pose.rotation.coeffs().allFinite() || pose.rotation.norm() < 1e-6) {
      return absl::InvalidArgumentError(absl::StrCat("tool ", description_.tools[t].name, ": the pose is not finite"));
    }
    commands_[t] = *commands[t];
    commands_[t].device_pose.rotation.normalize();
    targets_[t] = {ToArray(pose.position_m), ToArray(AxisOf(description_.tools[t], commands_[t].device_pose))};
  }
  tools_ms_ = MillisecondsSince(&mark);
  PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep step, solver_->Step(targets_));
  if (step.bad_vertices > 0) {
    failed_ = true;
    return absl::DataLossError(absl::StrCat("step ", step_ + 1, ": ", step.bad_vertices, " of ", vertex_begin_.back(),
                                            " vertices left the finite range; the scene stays at step ", step_, " (fastest vertex before: ",
                                            frame_->max_speed_m_per_s, " m/s, inverted tets: ", frame_->inverted_tets, ")"));
  }
  ++step_;
  frame_ = MakeFrame(step);
  return frame_;
}

uint32_t World::Impl::BodyOfVertex(uint32_t vertex) const {
  return static_cast<uint32_t>(std::upper_bound(vertex_begin_.begin(), vertex_begin_.end(), vertex) - vertex_begin_.begin() - 1);
}

std::shared_ptr<const Frame> World::Impl::MakeFrame(const gpu::TissueStep& step) {
  Clock::time_point mark = Clock::now();
  auto frame = std::make_shared<Frame>();
  frame->step = step_;
  frame->sim_time_s = static_cast<double>(step_) * description_.dt_s;
  frame->state_hash = step.hash;
  frame->kinetic_energy_j = step.kinetic_energy_j;
  frame->max_speed_m_per_s = step.max_speed_m_per_s;
  frame->inverted_tets = step.inverted_tets;

  const float* at = step.gathered_m.data();
  for (const BoundarySurface& surface : surfaces_) {
    frame->surface_positions_m.emplace_back(at, at + surface.vertices.size() * 3);
    at += surface.vertices.size() * 3;
  }
  frame->volume_positions_m.resize(surfaces_.size());
  if (volume_gathered_) {
    for (size_t b = 0; b < surfaces_.size(); ++b) {
      const size_t count = size_t{vertex_begin_[b + 1] - vertex_begin_[b]} * 3;
      frame->volume_positions_m[b].assign(at, at + count);
      at += count;
    }
  }

  const size_t tool_count = description_.tools.size();
  frame->tools.resize(tool_count);
  for (size_t t = 0; t < tool_count; ++t) {
    FrameTool& tool = frame->tools[t];
    tool.device_pose = commands_[t].device_pose;
    tool.pose.position_m = ToVector(step.colliders[t].tip);
    tool.pose.rotation = commands_[t].device_pose.rotation;
  }
  for (const gpu::ContactReport& report : step.contacts) {
    if (!(report.point.w > 0)) continue;
    FrameContact contact;
    const bool by_tool = report.collider < tool_count;
    contact.tool_index = by_tool ? report.collider : kObstacleContact;
    contact.body_index = report.collider == 0xffffffffU
                             ? BodyOfVertex(report.triangle)
                             : static_cast<uint32_t>(std::upper_bound(triangle_begin_.begin(), triangle_begin_.end(), report.triangle) -
                                                     triangle_begin_.begin() - 1);
    contact.point_m = ToVector(report.point).cast<float>();
    contact.normal = ToVector(report.normal).cast<float>();
    contact.separation_m = report.gap_m;
    contact.force_n = ToVector(report.force).cast<float>();
    frame->max_penetration_m = std::max(frame->max_penetration_m, -static_cast<double>(report.gap_m));
    frame->contacts.push_back(contact);
    if (by_tool) {
      FrameTool& tool = frame->tools[report.collider];
      const Eigen::Vector3d force = -ToVector(report.force);
      tool.force_n += force;
      tool.torque_n_m += (ToVector(report.point) - tool.pose.position_m).cross(force);
      ++tool.contact_count;
    }
  }
  for (const gpu::SurfaceReport& report : step.surface_contacts) {
    FrameSurfaceContact contact;
    const bool edges = report.kind == PALPATE_EDGE_EDGE;
    contact.kind = edges ? SurfaceContactKind::kEdgeEdge : SurfaceContactKind::kVertexTriangle;
    contact.body_a = BodyOfVertex(report.vertices.x);
    contact.body_b = BodyOfVertex(report.vertices.w);
    contact.vertices = {surface_index_[report.vertices.x], surface_index_[report.vertices.y], surface_index_[report.vertices.z],
                        surface_index_[report.vertices.w]};
    contact.point_a_m = ToVector(report.point_a).cast<float>();
    contact.point_b_m = ToVector(report.point_b).cast<float>();
    contact.normal = ToVector(report.normal).cast<float>();
    contact.distance_m = report.point_a.w;
    contact.force_n = ToVector(report.force).cast<float>();
    frame->surface_contacts.push_back(contact);
  }
  FrameContactStatistics& statistics = frame->contact_statistics;
  statistics.contact_count = step.surface.contacts;
  statistics.acting_count = step.surface.acting;
  statistics.detection_count = step.surface.detections;
  statistics.filter_rounds = step.surface.filter_rounds;
  statistics.filtered_vertices = step.surface.filtered_vertices;
  statistics.truncated_vertices = step.surface.truncated_vertices;
  statistics.intersection_count = step.surface.intersections;
  statistics.detect_ms = step.surface.detect_ms;
  statistics.filter_ms = step.surface.filter_ms;
  statistics.check_ms = step.surface.check_ms;
  frame->stage_ms[0] = tools_ms_;
  frame->stage_ms[1] = step.times.detect_ms;
  frame->stage_ms[2] = step.times.solve_ms;
  frame->stage_ms[3] = step.times.forces_ms;
  frame->stage_ms[4] = step.times.readback_ms;
  frame->server_time_us =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  BuildLocalModels(step, frame.get());
  frame->stage_ms[5] = MillisecondsSince(&mark);
  for (const double ms : frame->stage_ms) frame->step_ms += ms;
  return frame;
}

void World::Impl::BuildLocalModels(const gpu::TissueStep& step, Frame* frame) {
  const HapticOptions& haptics = description_.haptics;
  std::vector<LocalContact> contacts;
  for (size_t t = 0; t < frame->tools.size(); ++t) {
    contacts.clear();
    for (const gpu::ContactReport& report : step.contacts) {
      if (report.collider != t) continue;
      const auto body = static_cast<size_t>(std::upper_bound(triangle_begin_.begin(), triangle_begin_.end(), report.triangle) -
                                            triangle_begin_.begin() - 1);
      const Material& material = description_.bodies[body].material;
      LocalContact contact;
      contact.point_m = ToVector(report.point);
      contact.normal_W = -ToVector(report.normal);
      // The solver pushes from the margin on; for the hand the surface begins there too.
      contact.gap_m = static_cast<double>(report.gap_m) - description_.contact.margin_m;
      contact.normal_force_n = report.point.w;
      contact.area_m2 = triangle_area_m2_[report.triangle];
      contact.young_modulus_pa =
          description_.bodies[body].kind == BodyKind::kDeformable ? material.young_modulus_pa : kRigidYoungModulus_pa;
      contact.poisson_ratio = material.poisson_ratio;
      contact.damping_s = material.damping_s;
      contact.friction = description_.contact.friction;
      contacts.push_back(contact);
    }
    const ToolDescription& tool = description_.tools[t];
    LocalModelInput input;
    input.device_pose = frame->tools[t].device_pose;
    input.tool_pose = frame->tools[t].pose;
    if (tool.drive == ToolDrive::kCoupled) input.coupling_stiffness_n_per_m = tool.coupling_stiffness_n_per_m;
    input.device_max_stiffness_n_per_m = commands_[t].device_max_stiffness_n_per_m;
    input.max_constraints = haptics.max_constraints;
    input.contacts = contacts;
    LocalModel model = BuildLocalModel(input);
    model.step = step_;
    model.sim_time_s = frame->sim_time_s;
    model.server_time_us = frame->server_time_us;
    model.pose_sequence = commands_[t].pose_sequence;
    model.station_time_us = commands_[t].station_time_us;
    model.validity_radius_m = haptics.range_m;
    model.blend_time_s = haptics.blend_time_s >= 0 ? haptics.blend_time_s : description_.dt_s;
    model.force_n = frame->tools[t].force_n;
    model.torque_n_m = frame->tools[t].torque_n_m;
    frame->local_models.push_back(model);
  }
}

absl::Status World::Impl::CheckBody(size_t body_index) const {
  if (body_index < description_.bodies.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("body ", body_index, " is outside [0, ", description_.bodies.size(), ")"));
}

absl::StatusOr<std::vector<float>> World::Impl::ReadVolumePositions(size_t body_index) {
  PALPATE_RETURN_IF_ERROR(CheckBody(body_index));
  std::vector<float> all(size_t{vertex_begin_.back()} * 3);
  PALPATE_RETURN_IF_ERROR(solver_->ReadPositions(all));
  return std::vector<float>(all.begin() + vertex_begin_[body_index] * 3L, all.begin() + vertex_begin_[body_index + 1] * 3L);
}

absl::Status World::Impl::WriteVolumePositions(size_t body_index, std::span<const float> positions_m) {
  PALPATE_RETURN_IF_ERROR(CheckBody(body_index));
  const BodyDescription& body = description_.bodies[body_index];
  if (positions_m.size() != body.mesh.vertices.size() * 3) {
    return absl::InvalidArgumentError(absl::StrCat(positions_m.size(), " floats for ", body.mesh.vertices.size(), " vertices"));
  }
  if (!std::all_of(positions_m.begin(), positions_m.end(), [](float v) { return std::isfinite(v); })) {
    return absl::InvalidArgumentError("a position is not finite");
  }
  std::vector<float> all(size_t{vertex_begin_.back()} * 3);
  PALPATE_RETURN_IF_ERROR(solver_->ReadPositions(all));
  const size_t base = size_t{vertex_begin_[body_index]} * 3;
  const std::vector<float> before = all;
  std::copy(positions_m.begin(), positions_m.end(), all.begin() + static_cast<ptrdiff_t>(base));
  for (const uint32_t v : body.fixed_vertices) {
    for (size_t axis = 0; axis < 3; ++axis) all[base + v * 3 + axis] = before[base + v * 3 + axis];
  }
  return solver_->WriteState(all);
}

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
World::~World() = default;

absl::StatusOr<std::unique_ptr<World>> World::Create(std::shared_ptr<gpu::Context> context, SceneDescription description) {
  auto impl = std::make_unique<Impl>();
  PALPATE_RETURN_IF_ERROR(impl->Init(std::move(context), std::move(description)));
  return std::unique_ptr<World>(new World(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<const Frame>> World::Step(std::span<const ToolCommand* const> commands) { return impl_->Step(commands); }
absl::StatusOr<std::shared_ptr<const Frame>> World::Reset() { return impl_->Reset(); }
std::shared_ptr<const Frame> World::CurrentFrame() const { return impl_->frame_; }
void World::SetVolumeWanted(bool wanted) { impl_->volume_wanted_ = wanted; }
absl::StatusOr<std::vector<float>> World::ReadVolumePositions(size_t body_index) { return impl_->ReadVolumePositions(body_index); }
absl::Status World::WriteVolumePositions(size_t body_index, std::span<const float> positions_m) {
  return impl_->WriteVolumePositions(body_index, positions_m);
}
const SceneDescription& World::description() const { return impl_->description_; }
const std::vector<BodyStatistics>& World::body_statistics() const { return impl_->statistics_; }
const std::vector<BoundarySurface>& World::surfaces() const { return impl_->surfaces_; }
size_t World::device_bytes() const { return impl_->solver_->device_bytes(); }
uint32_t World::color_count() const { return impl_->solver_->color_count(); }

}  // namespace palpate::sim
