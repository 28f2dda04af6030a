#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Dense>

#include "sim/world/world.h"
#include "tests/sim/world/seams.h"
#include "tests/sim/world/world_builders.h"

// Scenes with everything in them that a checkpoint must hold, and what is done to them.
namespace palpate::test {

/// A scene, and random commands and edits for it. The same seed and the same frames give the same actions.
class CheckpointScenario {
 public:
  virtual ~CheckpointScenario() = default;
  const sim::SceneDescription& scene() const { return scene_; }

  /// Before step `step`.
  virtual std::vector<sim::ToolCommand> Commands(uint64_t step, const sim::Frame& frame) = 0;
  virtual std::vector<sim::Edit> Edits(uint64_t step, const sim::Frame& frame) = 0;

 protected:
  explicit CheckpointScenario(uint32_t seed) : random_(seed) {}
  double Random(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  size_t Below(size_t count) { return static_cast<size_t>(random_()) % count; }
  Eigen::Vector3d RandomDirection() { return Eigen::Vector3d(Random(-1, 1), Random(-1, 1), Random(-1, 1)).normalized(); }

  sim::ToolDescription AddTool(const std::string& name, sim::InstrumentKind kind, const Eigen::Vector3d& tip_m, sim::ToolDrive drive) {
    sim::ToolDescription tool = ToolAt(name, tip_m, drive);
    tool.radius_m = 0.003;
    tool.instrument.kind = kind;
    scene_.tools.push_back(tool);
    return tool;
  }
  /// A vertex of the surface of a body that edits may take as they like, or nothing.
  std::optional<Eigen::Vector3d> PlaceOnSurface(const sim::Frame& frame, size_t body) {
    const auto& vertices = frame.topology->bodies[body]->surface_vertices.values();
    std::vector<size_t> live;
    for (size_t s = 0; s < vertices.size(); ++s) {
      if (vertices[s] != sim::kNoSlot) live.push_back(s);
    }
    if (live.empty()) return std::nullopt;
    const float* const x = &frame.surface_positions_m[body][3 * live[Below(live.size())]];
    return Eigen::Vector3d(x[0], x[1], x[2]);
  }
  /// Carves, refines, incises (in one stroke or a part of one) or changes the material of one of `bodies`.
  std::optional<sim::Edit> RandomEdit(const sim::Frame& frame, const std::vector<size_t>& bodies, double size_m) {
    const size_t body = bodies[Below(bodies.size())];
    const std::optional<Eigen::Vector3d> place_m = PlaceOnSurface(frame, body);
    if (!place_m) return std::nullopt;
    switch (Below(5)) {
      case 0:
        return sim::Edit{.body = body, .what = sim::CarveEdit{sim::BallRegion{*place_m, size_m}}};
      case 1:
        return sim::Edit{.body = body, .what = sim::RefineEdit{sim::BallRegion{*place_m, size_m}, 0.7 * size_m, 3000}};
      case 2: {
        sim::MaterialEdit change;
        change.material.young_modulus_pa = Random(3000, 9000);
        change.material.model = MaterialOf(body).model;
        change.material.damping_s = MaterialOf(body).damping_s;
        return sim::Edit{.body = body, .what = change};
      }
      default: {
        const Eigen::Vector3d edge = 4 * size_m * RandomDirection();
        const Eigen::Vector3d way = 3 * size_m * RandomDirection();
        sim::InciseEdit incision;
        incision.goes_on = Below(2) == 0;
        for (const double at : {-1.0, 0.0, 0.6}) incision.edges_m.push_back({*place_m + at * way - edge, *place_m + at * way + edge});
        return sim::Edit{.body = body, .what = incision};
      }
    }
  }
  const sim::Material& MaterialOf(size_t body) const { return scene_.bodies[std::min(body, scene_.bodies.size() - 1)].material; }
  /// Bodies that take edits: those of the description that `is_soft` names, and all pieces.
  std::vector<size_t> Soft(const sim::Frame& frame, const std::vector<uint8_t>& is_soft) const {
    std::vector<size_t> bodies;
    for (size_t b = 0; b < frame.topology->bodies.size(); ++b) {
      if (b >= is_soft.size() || is_soft[b] != 0) bodies.push_back(b);
    }
    return bodies;
  }

  sim::SceneDescription scene_;
  std::mt19937 random_;
};

/// A ridge of two zones with markers and texture on a floor, beside a block that may meet it: forceps, clip applier, scalpel, cavitron.
class InstrumentsScenario final : public CheckpointScenario {
 public:
  explicit InstrumentsScenario(uint32_t seed) : CheckpointScenario(seed) {
    scene_.name = "instruments";
    scene_.bodies = {Ridge(), BoxBody("block", {0.03, 0, 0}, {5, 5, 5}, {0.02, 0.02, 0.02})};
    sim::BodyDescription& ridge = scene_.bodies[0];
    ridge.zones.emplace_back();
    ridge.zones[0].name = "tumour";
    ridge.zones[0].material.young_modulus_pa = 9000;
    ridge.zones[0].material.fracture_toughness_j_per_m2 = 150;
    ridge.material.fracture_toughness_j_per_m2 = 60;
    ridge.zones[0].ablation = {.energy_j_per_kg = 4e5, .cooling_time_s = 2};
    ridge.ablation = {.energy_j_per_kg = 3e5, .cooling_time_s = 1};
    for (const auto& tet : ridge.mesh.tets) {
      double y = 0;
      for (const uint32_t v : tet) y += ridge.mesh.vertices[v].y() / 4;
      ridge.tet_zones.push_back(y > 0.005 ? 1 : 0);
    }
    for (const auto& v : ridge.mesh.vertices) {
      ridge.texture.coordinates.push_back({static_cast<float>(v.x() + 1), static_cast<float>(v.y() + 1)});
    }
    for (const double y : {-0.012, 0.0, 0.013}) ridge.markers.push_back({"at " + std::to_string(y), {0.001, y, 0.006}});
    scene_.obstacles.push_back({"floor", sim::PlaneShape{{0, 0, -0.0105}, {0, 0, 1}}});
    AddTool("forceps", sim::InstrumentKind::kForceps, {0, -0.012, 0.004}, sim::ToolDrive::kCoupled);
    AddTool("applier", sim::InstrumentKind::kClipApplier, {0, 0.002, 0.006}, sim::ToolDrive::kDirect);
    AddTool("scalpel", sim::InstrumentKind::kScalpel, {-0.02, 0.008, 0.009}, sim::ToolDrive::kDirect);
    AddTool("cavitron", sim::InstrumentKind::kCavitron, {0.001, 0.016, 0.014}, sim::ToolDrive::kCoupled);
    scene_.tools[3].instrument.refine_to_m = 0.003;
    scene_.tools[3].trocar = sim::TrocarDescription{.pivot_m = {0.001, 0.016, 0.06}};
    scene_.max_tets = 12000;
  }

  std::vector<sim::ToolCommand> Commands(uint64_t step, const sim::Frame&) override {
    std::vector<sim::ToolCommand> commands(4);
    for (size_t t = 0; t < 4; ++t) {
      sim::ToolCommand& command = commands[t];
      command.device_pose = scene_.tools[t].rest_pose;
      command.pose_sequence = step;
      command.jaw_angle_rad = step < 12 ? 1.0 : t == 0 ? 0.2 : step > 30 ? 0.9 : 0.1;
    }
    const double time = static_cast<double>(step);
    commands[0].device_pose.position_m += Eigen::Vector3d(0.001 * std::sin(0.1 * time), 0, 0.0008 * std::sin(0.07 * time));
    commands[1].pedal = step == 24;
    commands[2].device_pose.position_m += Eigen::Vector3d(0.02 * (1 - std::cos(0.06 * time)), 0, -0.004 * std::sin(0.06 * time));
    commands[2].is_hold_expired = step % 37 > 33;
    commands[3].device_pose.position_m.z() -= 0.00012 * std::min(time, 60.0);
    commands[3].pedal = step % 20 < 14;
    commands[3].power_w = 30;
    return commands;
  }
  std::vector<sim::Edit> Edits(uint64_t step, const sim::Frame& frame) override {
    if (step == 8) return {{.what = sim::GraspEdit{.tool = 0, .radius_m = 0.008}}, {.what = sim::GraspEdit{.tool = 1, .radius_m = 0.008}}};
    if (step == 75) return {{.what = sim::ReleaseEdit{.tool = 0}}};
    if (step % 9 != 4) return {};
    const auto edit = RandomEdit(frame, Soft(frame, {1, 1}), 0.005);
    return edit ? std::vector<sim::Edit>{*edit} : std::vector<sim::Edit>{};
  }
};

/// Shape-matched, rigid, corotated and volume-keeping bodies, driven regions, loads, sliding supports, capsules.
class BodiesScenario final : public CheckpointScenario {
 public:
  explicit BodiesScenario(uint32_t seed) : CheckpointScenario(seed) {
    scene_.name = "bodies";
    scene_.contact.check_intersections = true;
    scene_.solver.report_energy = true;
    scene_.bodies = {BoxBody("bed", {0, 0, 0}, {7, 7, 3}, {0.06, 0.06, 0.02}, HeldSide::kLowZ),
                     BoxBody("jelly", {0.012, 0, 0.024}, {4, 4, 4}, {0.02, 0.02, 0.02}),
                     BoxBody("stone", {-0.012, 0.005, 0.022}, {3, 3, 3}, {0.014, 0.014, 0.014}),
                     BoxBody("strap", {0, 0, 0.05}, {9, 3, 3}, {0.06, 0.012, 0.01}, HeldSide::kLowX),
                     BoxBody("bag", {0, 0.05, 0}, {4, 4, 4}, {0.02, 0.02, 0.02}, HeldSide::kLowZ)};
    scene_.bodies[0].material.model = sim::MaterialModel::kCorotated;
    scene_.bodies[1].simulation = sim::Simulation::kShapeMatched;
    scene_.bodies[1].shape_matching.cluster_size_m = 0.012;
    scene_.bodies[2].kind = sim::BodyKind::kRigid;
    scene_.bodies[2].self_collision = false;
    scene_.bodies[2].velocity_m_per_s = {0.05, 0, -0.2};
    scene_.bodies[2].angular_velocity_rad_per_s = {2, 1, 0};
    // A weak spring, and a rope that is slack at first: their history is state.
    for (const sim::JointKind kind : {sim::JointKind::kSpring, sim::JointKind::kDistance}) {
      sim::JointDescription& joint = scene_.joints.emplace_back();
      joint.name = sim::kJointKindNames[static_cast<size_t>(kind)];
      joint.kind = kind;
      joint.body_b = 2;
      joint.point_a_m = {-0.012, 0.005, 0.1};
      joint.point_b_m = {-0.012, 0.005, 0.029};
      if (kind == sim::JointKind::kDistance) joint.upper = 0.075;
      if (kind == sim::JointKind::kSpring)
        joint.drive = {.kind = sim::JointDriveDescription::Kind::kSpring, .target = 0.07, .stiffness = 0.5};
    }
    scene_.bodies[3].driven_regions = {
        {.vertices = scene_.bodies[3].fixed_vertices, .velocity_m_per_s = {0, 0, -0.03}, .start_s = 0.1, .duration_s = 0.7}};
    sim::DrivenRegion& driven = scene_.bodies[3].driven_regions[0];
    driven.keys = {{}, {.time_s = 0.2, .shift_m = {0.001, 0, 0}, .turn_rad = {0, 0, 0.02}}};
    driven.period_s = 0.5;
    constexpr uint32_t kRests = sim::DrivenBlend::kRests;
    for (size_t i = 0; i < driven.vertices.size(); ++i) {
      const float share = i % 2 == 0 ? 1 : 0.75F;
      driven.blends.push_back({.regions = {0, kRests, kRests, kRests}, .shares = {share, 1 - share, 0, 0}});
    }
    scene_.bodies[3].velocity_m_per_s = {0, 0.1, 0};
    scene_.bodies[4].volume_stiffness_pa = 40000;
    std::vector<uint32_t> top;
    for (uint32_t v = 0; v < scene_.bodies[4].mesh.vertices.size(); ++v) {
      const Eigen::Vector3d& x = scene_.bodies[4].mesh.vertices[v];
      if (x.z() > 0.0099) top.push_back(v);
      if (x.z() > -0.009 && x.y() > 0.0599) scene_.bodies[4].sliding_vertices.push_back({v, 2});
    }
    scene_.bodies[4].loads = {{.vertices = top, .pressure_pa = 500, .start_s = 0.2, .duration_s = 0.4},
                              {.vertices = top, .force_n = {0.02, 0, 0}}};
    scene_.obstacles.push_back({"pole", sim::CapsuleShape{{-0.03, 0, 0.03}, {-0.03, 0.02, 0.03}, 0.004}});
    scene_.obstacles.push_back({"floor", sim::PlaneShape{{0, 0, -0.03}, {0, 0, 1}}});
    AddTool("probe", sim::InstrumentKind::kProbe, {0.01, 0, 0.07}, sim::ToolDrive::kDirect);
    AddTool("rod", sim::InstrumentKind::kProbe, {-0.018, 0.018, 0.018}, sim::ToolDrive::kDirect);
    scene_.max_tets = 12000;
  }

  std::vector<sim::ToolCommand> Commands(uint64_t step, const sim::Frame&) override {
    std::vector<sim::ToolCommand> commands(2);
    for (size_t t = 0; t < 2; ++t) commands[t].device_pose = scene_.tools[t].rest_pose;
    commands[0].device_pose.position_m.z() -= std::min(0.06, 0.0015 * static_cast<double>(step % 50));
    // To beneath the bed, which cannot yield that far.
    commands[1].device_pose.position_m.z() -= std::min(0.04, 0.001 * static_cast<double>(step));
    return commands;
  }
  std::vector<sim::Edit> Edits(uint64_t step, const sim::Frame& frame) override {
    if (step < 10 || step % 11 != 3) return {};
    const auto edit = RandomEdit(frame, Soft(frame, {1, 1, 0, 1, 1}), 0.007);
    if (!edit || (std::holds_alternative<sim::MaterialEdit>(edit->what) && edit->body == 1)) return {};
    return {*edit};
  }
};

/// A hybrid bar of three zones, of which edits make more and more dynamic, and a pre-computed block; a coupled probe on both.
class QuasiStaticScenario final : public CheckpointScenario {
 public:
  explicit QuasiStaticScenario(uint32_t seed) : CheckpointScenario(seed) {
    scene_.name = "quasi-static";
    scene_.gravity_m_per_s2.z() = -4;
    scene_.bodies = {BoxBody("bar", {0, 0, 0}, {10, 4, 4}, {0.12, 0.04, 0.04}, HeldSide::kLowX),
                     BoxBody("base", {0, 0.07, 0}, {5, 5, 4}, {0.05, 0.05, 0.03}, HeldSide::kLowZ),
                     BoxBody("cube", {0, 0.07, 0.028}, {4, 4, 4}, {0.02, 0.02, 0.02})};
    for (sim::BodyDescription& body : scene_.bodies) {
      body.material.model = sim::MaterialModel::kLinear;
      body.material.young_modulus_pa = 60000;
      body.material.poisson_ratio = 0.3;
      body.material.damping_s = 0.02;
    }
    sim::BodyDescription& bar = scene_.bodies[0];
    bar.simulation = sim::Simulation::kHybrid;
    scene_.bodies[1].simulation = sim::Simulation::kPrecomputed;
    for (const char* name : {"middle", "end"}) {
      bar.zones.emplace_back();
      bar.zones.back().name = name;
      bar.zones.back().material = bar.material;
    }
    for (const auto& tet : bar.mesh.tets) {
      double x = 0;
      for (const uint32_t v : tet) x += bar.mesh.vertices[v].x() / 4;
      bar.tet_zones.push_back(x < -0.02 ? 0 : x < 0.02 ? 1 : 2);
    }
    AddTool("probe", sim::InstrumentKind::kProbe, {0.02, 0, 0.03}, sim::ToolDrive::kCoupled);
    AddTool("stick", sim::InstrumentKind::kForceps, {0.015, 0.07, 0.025}, sim::ToolDrive::kDirect);
    scene_.max_tets = 12000;
  }

  std::vector<sim::ToolCommand> Commands(uint64_t step, const sim::Frame&) override {
    std::vector<sim::ToolCommand> commands(2);
    for (size_t t = 0; t < 2; ++t) commands[t].device_pose = scene_.tools[t].rest_pose;
    const double way = std::min(1.0, static_cast<double>(step) / 40);
    commands[0].device_pose.position_m.z() -= 0.012 * way;
    commands[1].device_pose.position_m.z() -= 0.011 * way;
    return commands;
  }
  std::vector<sim::Edit> Edits(uint64_t step, const sim::Frame& frame) override {
    if (step == 5) return {{.what = sim::GraspEdit{.tool = 1, .radius_m = 0.012}}};
    if (step == 14) return {{.body = 0, .what = sim::CarveEdit{sim::BallRegion{{0.055, 0.018, 0.018}, 0.008}}}};
    if (step < 14 || step % 23 != 7) return {};
    const auto edit = RandomEdit(frame, Soft(frame, {0, 0, 1}), 0.006);
    return edit ? std::vector<sim::Edit>{*edit} : std::vector<sim::Edit>{};
  }
};

/// Tissue that tools keep away by projection, and a body that was given scrambled and finds its shape.
class ProjectionScenario final : public CheckpointScenario {
 public:
  explicit ProjectionScenario(uint32_t seed) : CheckpointScenario(seed) {
    scene_.name = "projection";
    scene_.bodies = {BoxBody("slab", {0, 0, 0}, {9, 9, 4}, {0.08, 0.08, 0.03}, HeldSide::kLowZ),
                     BoxBody("tangle", {0.1, 0, 0}, {4, 4, 4}, {0.02, 0.02, 0.02})};
    AddTool("hook", sim::InstrumentKind::kCauteryHook, {0.01, 0, 0.02}, sim::ToolDrive::kDirect);
    AddTool("forceps", sim::InstrumentKind::kForceps, {-0.015, 0, 0.02}, sim::ToolDrive::kCoupled);
    for (sim::ToolDescription& tool : scene_.tools) tool.response = sim::ToolResponse::kProjection;
    scene_.bodies[0].ablation.energy_j_per_kg = 2e5;
    scene_.max_tets = 12000;
  }

  std::vector<sim::ToolCommand> Commands(uint64_t step, const sim::Frame&) override {
    std::vector<sim::ToolCommand> commands(2);
    const double time = static_cast<double>(step);
    for (size_t t = 0; t < 2; ++t) {
      commands[t].device_pose = scene_.tools[t].rest_pose;
      commands[t].device_pose.position_m.z() -= 0.006 * (1 - std::cos(0.05 * time));
      commands[t].device_pose.position_m.y() += 0.01 * std::sin(0.04 * time);
      commands[t].jaw_angle_rad = step % 60 < 25 ? 0.8 : 0.05;
    }
    commands[0].pedal = step % 30 > 20;
    return commands;
  }
  std::vector<sim::Edit> Edits(uint64_t step, const sim::Frame& frame) override {
    if (step % 17 != 6) return {};
    const auto edit = RandomEdit(frame, Soft(frame, {1, 0}), 0.008);
    return edit ? std::vector<sim::Edit>{*edit} : std::vector<sim::Edit>{};
  }
};

/// Soft tissue that tools jump into and out of faster than it yields, so that triangles end up behind their axes.
class PiercedScenario final : public CheckpointScenario {
 public:
  explicit PiercedScenario(uint32_t seed) : CheckpointScenario(seed) {
    scene_.name = "pierced";
    scene_.bodies = {BoxBody("pad", {0, 0, 0}, {9, 9, 5}, {0.06, 0.06, 0.03}, HeldSide::kLowZ)};
    AddTool("probe", sim::InstrumentKind::kProbe, {-0.01, 0, 0.03}, sim::ToolDrive::kDirect);
    AddTool("rod", sim::InstrumentKind::kProbe, {0.01, 0, 0.03}, sim::ToolDrive::kDirect);
    scene_.max_tets = 12000;
  }

  std::vector<sim::ToolCommand> Commands(uint64_t step, const sim::Frame&) override {
    if (step % 2 == 0 || places_m_.empty()) {
      places_m_.clear();
      for (const double x : {-0.01, 0.01}) places_m_.push_back({x + Random(-0.008, 0.008), Random(-0.02, 0.02), Random(-0.004, 0.016)});
    }
    std::vector<sim::ToolCommand> commands(2);
    for (size_t t = 0; t < 2; ++t) {
      commands[t].device_pose = scene_.tools[t].rest_pose;
      commands[t].device_pose.position_m = places_m_[t];
    }
    return commands;
  }
  std::vector<sim::Edit> Edits(uint64_t step, const sim::Frame& frame) override {
    if (step % 8 != 7) return {};
    const auto edit = RandomEdit(frame, {0}, 0.005);
    return edit ? std::vector<sim::Edit>{*edit} : std::vector<sim::Edit>{};
  }

 private:
  std::vector<Eigen::Vector3d> places_m_;
};

/// A block with texture corners, of which zones of the surface are several on the mesh, and a free one beside it; both are cut apart.
class SeamsScenario final : public CheckpointScenario {
 public:
  explicit SeamsScenario(uint32_t seed) : CheckpointScenario(seed) {
    scene_.name = "seams";
    scene_.bodies = {BlockWithSeams(), BlockWithSeams()};
    for (uint32_t v = 0; v < scene_.bodies[0].mesh.vertices.size(); ++v) {
      if (scene_.bodies[0].mesh.vertices[v].z() < -0.0199) scene_.bodies[0].fixed_vertices.push_back(v);
    }
    scene_.bodies[1].name = "free";
    for (Eigen::Vector3d& x : scene_.bodies[1].mesh.vertices) x.z() += 0.042;
    scene_.max_tets = 12000;
  }

  std::vector<sim::ToolCommand> Commands(uint64_t, const sim::Frame&) override { return {}; }
  std::vector<sim::Edit> Edits(uint64_t step, const sim::Frame& frame) override {
    if (step == 6) {
      const auto edge = [](double z) { return std::array<Eigen::Vector3d, 2>{{{0.011, -0.04, z}, {0.011, 0.04, z}}}; };
      return {{.body = 1, .what = sim::InciseEdit{.edges_m = {edge(0.08), edge(0.01)}}}};
    }
    if (step % 3 != 1) return {};
    const auto edit = RandomEdit(frame, Soft(frame, {1, 1}), 0.012);
    return edit ? std::vector<sim::Edit>{*edit} : std::vector<sim::Edit>{};
  }
};

inline std::unique_ptr<CheckpointScenario> MakeCheckpointScenario(const std::string& name, uint32_t seed) {
  if (name == "instruments") return std::make_unique<InstrumentsScenario>(seed);
  if (name == "bodies") return std::make_unique<BodiesScenario>(seed);
  if (name == "pierced") return std::make_unique<PiercedScenario>(seed);
  if (name == "seams") return std::make_unique<SeamsScenario>(seed);
  if (name == "quasistatic") return std::make_unique<QuasiStaticScenario>(seed);
  return std::make_unique<ProjectionScenario>(seed);
}

}  // namespace palpate::test
