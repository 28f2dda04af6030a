// The step of a liver with a tool pressing on it, at several sizes: rate, how the time splits, growth, and how far each sweep takes the
// implicit equation. Chains and a bridge of joints, a bar of tissue that joints hold. The step of a pile of rigid bodies that falls into a
// tray and settles, as in scenes/boxes.json, at several sizes. A cloth that folds over a ball. Ten soft slabs that come to rest on each
// other. With PALPATE_HAS_STEP_LISTS: steps with lists of the pairs within bodies, and without.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <Eigen/Geometry>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "bench/bench_step_bullet.h"
#ifdef PALPATE_HAS_STEP_LISTS
#include "bench/bench_step_lists.h"
#endif
#include "bench/bench_support.h"
#include "bench/kernel_times.h"
#include "gpu/dynamics/tissue_solver.h"
#include "gpu/runtime/context.h"
#include "sim/mesh/generators.h"
#include "sim/mesh/mass_properties.h"
#include "sim/mesh/surface_generators.h"
#include "sim/scene/solver_advice.h"
#include "sim/world/world.h"

ABSL_FLAG(int, steps, 400, "Counted steps a size.");

namespace palpate::bench {
namespace {

constexpr double kLength_m = 0.2;
constexpr uint32_t kCoarseNodes = 4096;

sim::SceneDescription LiverScene(const sim::TetMesh& mesh) {
  sim::SceneDescription scene;
  sim::BodyDescription body;
  body.name = "liver";
  body.mesh = mesh;
  double low = 1e9;
  double high = -1e9;
  for (const Eigen::Vector3d& v : mesh.vertices) {
    low = std::min(low, v.z());
    high = std::max(high, v.z());
  }
  for (uint32_t v = 0; v < mesh.vertices.size(); ++v) {
    if (mesh.vertices[v].z() < low + 0.4 * (high - low)) body.fixed_vertices.push_back(v);
  }
  scene.bodies.push_back(std::move(body));
  sim::ToolDescription tool;
  tool.name = "probe";
  tool.rest_pose.position_m = {-0.2 * kLength_m, 0, high + 0.02};
  scene.tools.push_back(tool);
  return scene;
}

/// What a step asks of the device: a GPU pays for each command, and for each wait a round trip.
void AddCommands(const gpu::CommandCounts& counts, int steps, const std::string& name, Report* report) {
  const auto a_step = [&](uint64_t count) { return static_cast<double>(count) / steps; };
  report->Add(name, "commands_per_step", a_step(counts.commands()), "count");
  report->Add(name, "launches_per_step", a_step(counts.launches), "count");
  report->Add(name, "transfers_per_step", a_step(counts.transfers), "count");
  report->Add(name, "waits_per_step", a_step(counts.waits), "count");
}

absl::Status MeasureSize(std::shared_ptr<gpu::Context> context, double tet_count, double* us_per_tet, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::GenerateLiver(kLength_m, sim::LiverEdgeLengthForTets(kLength_m, tet_count)));
  const std::string name = absl::StrFormat("liver_%d", static_cast<int>(tet_count));
  const sim::SceneDescription scene = LiverScene(mesh);
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<sim::World> world, sim::World::Create(context, scene));

  sim::ToolCommand command;
  command.device_pose = scene.tools[0].rest_pose;
  const sim::ToolCommand* const commands[] = {&command};
  const double top_m = command.device_pose.position_m.z();
  const int warm = 120;  // the organ settles, the tool comes down
  const int counted = IsQuick() ? 60 : absl::GetFlag(FLAGS_steps);
  std::vector<double> step_ms;
  std::vector<double> stage_ms(sim::kStageNames.size(), 0.0);
  uint64_t in_contact = 0;
  double contacts = 0;
  gpu::CommandCounts before;
  for (int i = 0; i < warm + counted; ++i) {
    if (i == warm) before = context->commands();
    // Down by 5 cm within the warm-up, then to and fro by 1 cm: the tool stays in the tissue.
    const double depth = 0.05 * std::min(1.0, static_cast<double>(i) / warm) + (i < warm ? 0.0 : 0.01 * std::sin(0.05 * (i - warm)));
    command.device_pose.position_m.z() = top_m - depth;
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::Frame> frame, world->Step(commands));
    if (i < warm) continue;
    step_ms.push_back(frame->step_ms);
    for (size_t s = 0; s < stage_ms.size(); ++s) stage_ms[s] += frame->stage_ms[s] / counted;
    in_contact += frame->tools[0].contact_count > 0 ? 1 : 0;
    contacts += static_cast<double>(frame->contacts.size()) / counted;
  }
  if (in_contact == 0) return absl::InternalError(name + ": the tool never touched the organ, so the figures would mean nothing");
  const double median_ms = Quantile(step_ms, 0.5);
  *us_per_tet = median_ms * 1000 / static_cast<double>(mesh.tets.size());
  report->Add(name, "tets", static_cast<double>(mesh.tets.size()), "count");
  report->Add(name, "vertices", static_cast<double>(mesh.vertices.size()), "count");
  report->Add(name, "colors", world->color_count(), "count");
  report->Add(name, "device_memory", static_cast<double>(world->device_bytes()), "bytes");
  report->Add(name, "steps_per_second", 1000 / median_ms, "per_s");
  report->Add(name, "step_p50", median_ms / 1000, "s");
  report->Add(name, "step_p99", Quantile(step_ms, 0.99) / 1000, "s");
  report->Add(name, "step_max", Quantile(step_ms, 1.0) / 1000, "s");
  for (size_t s = 0; s < stage_ms.size(); ++s) {
    report->Add(name, "stage_" + std::string(sim::kStageNames[s]), stage_ms[s] / 1000, "s");
  }
  report->Add(name, "time_per_tet", *us_per_tet * 1e-6, "s");
  report->Add(name, "contact_share_of_steps", static_cast<double>(in_contact) / counted, "ratio");
  report->Add(name, "contacts", contacts, "count");
  AddCommands(context->commands() - before, counted, name, report);
  // Steady contact: the tool stays where it is.
  const int held = 60;
  for (int i = 0; i < 2 * held; ++i) {
    if (i == held) before = context->commands();
    PALPATE_RETURN_IF_ERROR(world->Step(commands).status());
  }
  AddCommands(context->commands() - before, held, name + "_held", report);
  return absl::OkStatus();
}

/// How far the residual of the implicit equation falls with the sweeps of one step of the settling organ.
absl::Status MeasureResidual(const std::shared_ptr<gpu::Context>& context, double tet_count, double acceleration, bool is_corrected,
                             Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::GenerateLiver(kLength_m, sim::LiverEdgeLengthForTets(kLength_m, tet_count)));
  const sim::SceneDescription scene = LiverScene(mesh);
  const sim::Material& material = scene.bodies[0].material;
  gpu::TissueModel model;
  for (const Eigen::Vector3d& v : mesh.vertices) model.rest_m.push_back({v.x(), v.y(), v.z()});
  model.fixed.assign(mesh.vertices.size(), 0);
  for (const uint32_t v : scene.bodies[0].fixed_vertices) model.fixed[v] = 1;
  const double e = material.young_modulus_pa;
  const double nu = material.poisson_ratio;
  for (const auto& tet : mesh.tets) {
    model.tets.push_back({.vertices = tet,
                          .mu_pa = static_cast<float>(e / (2 * (1 + nu))),
                          .lambda_pa = static_cast<float>(e * nu / ((1 + nu) * (1 - 2 * nu))),
                          .damping_s = static_cast<float>(material.damping_s),
                          .density_kg_per_m3 = static_cast<float>(material.density_kg_per_m3)});
  }
  gpu::TissueOptions options;
  options.iterations = 60;
  options.acceleration = acceleration;
  if (is_corrected) options.coarse_nodes = kCoarseNodes;
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<gpu::TissueSolver> solver,
                           gpu::TissueSolver::Create(context, model, options, {}, {}, gpu::TissueTuning::For(context->device())));
  for (int i = 0; i < 20; ++i) PALPATE_RETURN_IF_ERROR(solver->Step({}).status());
  PALPATE_ASSIGN_OR_RETURN(const std::vector<double> residual, solver->StepMeasuringResidual({}));
  const std::string name =
      absl::StrFormat("residual_%d_%s_%.2f", static_cast<int>(tet_count), is_corrected ? "corrected" : "chebyshev", acceleration);
  for (const size_t sweep : {0, 1, 2, 5, 10, 20, 40, 60}) {
    report->Add(name, absl::StrFormat("residual_after_%d_sweeps", static_cast<int>(sweep)), residual[sweep] / residual[0], "ratio");
  }
  report->Add(name, "mean_factor_per_sweep", std::pow(residual[20] / residual[0], 1.0 / 20), "ratio");
  return absl::OkStatus();
}

/// A rotation that is uniform over all of them for uniform `u` in [0, 1]^3 (Shoemake, "Uniform random rotations", 1992).
Eigen::Quaterniond TurnFor(const Eigen::Vector3d& u) {
  const double a = std::sqrt(1 - u[0]);
  const double b = std::sqrt(u[0]);
  const double t1 = 2 * std::numbers::pi * u[1];
  const double t2 = 2 * std::numbers::pi * u[2];
  return {b * std::cos(t2), a * std::sin(t1), a * std::cos(t1), b * std::sin(t2)};
}

constexpr size_t kTrayBodies = 5;  // a floor and four walls, first in the scene

/// Half boxes, half balls of some 3 cm, `width` x `width` columns of them above a tray: layers of boxes and of balls in turn.
absl::StatusOr<sim::SceneDescription> PileScene(int width, int layers) {
  constexpr double kSpacing_m = 0.066;
  const double kWall_m = std::max(0.12, 0.04 * layers);
  sim::SceneDescription scene;
  scene.solver.iterations = 6;
  scene.contact = {.surface_friction = 0.4, .surface_reserve_m = 0.004};
  const auto add = [&](std::string name, sim::BodyKind kind, const sim::TetMesh& mesh, const Eigen::Quaterniond& turn,
                       const Eigen::Vector3d& to_m, double density_kg_per_m3) {
    sim::BodyDescription body;
    body.name = std::move(name);
    body.kind = kind;
    body.self_collision = false;
    body.mesh = mesh;
    for (Eigen::Vector3d& v : body.mesh.vertices) v = turn * v + to_m;
    body.material.density_kg_per_m3 = density_kg_per_m3;
    scene.bodies.push_back(std::move(body));
  };
  const double side_m = width * kSpacing_m + 0.07;
  const Eigen::Quaterniond none = Eigen::Quaterniond::Identity();
  const auto nodes = static_cast<uint32_t>(std::lround(side_m / 0.1)) + 1;
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh floor, sim::BoxMesh({nodes, nodes, 2}, {side_m, side_m, 0.03}));
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh wall_x, sim::BoxMesh({2, nodes, 3}, {0.02, side_m, kWall_m}));
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh wall_y, sim::BoxMesh({nodes, 2, 3}, {side_m, 0.02, kWall_m}));
  add("floor", sim::BodyKind::kStatic, floor, none, {0, 0, -0.015}, 1000);
  for (const double sign : {-1.0, 1.0}) {
    add("wall", sim::BodyKind::kStatic, wall_x, none, {sign * (side_m / 2 + 0.011), 0, kWall_m / 2 - 0.015}, 1000);
    add("wall", sim::BodyKind::kStatic, wall_y, none, {0, sign * (side_m / 2 + 0.011), kWall_m / 2 - 0.015}, 1000);
  }
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh box, sim::GenerateSlab({0.04, 0.03, 0.02}, 0.04));
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh ball, sim::GenerateSphere(0.018, 0.018));
  const double lowest_m = 0.1;
  for (int layer = 0; layer < layers; ++layer) {
    for (int row = 0; row < width; ++row) {
      for (int column = 0; column < width; ++column) {
        // A sequence that fills the cube of turns evenly (Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018).
        Eigen::Vector3d u;
        const auto index = static_cast<double>(1 + column + width * (row + width * layer));
        for (int k = 0; k < 3; ++k) {
          const double at = 0.5 + index / std::pow(1.2207440846057596, k + 1);
          u[k] = at - std::floor(at);
        }
        const bool is_box = layer % 2 == 0;
        const Eigen::Vector3d to_m{(column - (width - 1) / 2.0) * kSpacing_m, (row - (width - 1) / 2.0) * kSpacing_m,
                                   lowest_m + 0.06 * layer};
        add(is_box ? "box" : "ball", sim::BodyKind::kRigid, is_box ? box : ball, TurnFor(u), to_m, is_box ? 1500 : 1200);
      }
    }
  }
  return scene;
}

/// Mean height of the bodies from `first` on, each by the mean of its surface [m].
double MeanHeight(const sim::Frame& frame, size_t first) {
  double sum = 0;
  for (size_t body = first; body < frame.surface_positions_m.size(); ++body) {
    const std::vector<float>& positions_m = frame.surface_positions_m[body];
    double height_m = 0;
    for (size_t i = 2; i < positions_m.size(); i += 3) height_m += positions_m[i];
    sum += height_m / (static_cast<double>(positions_m.size()) / 3);
  }
  return sum / static_cast<double>(frame.surface_positions_m.size() - first);
}

void AddStepTimes(const std::vector<double>& step_ms, const std::string& name, Report* report) {
  double sum_ms = 0;
  for (const double ms : step_ms) sum_ms += ms;
  const auto count = static_cast<double>(step_ms.size());
  report->Add(name, "steps_per_second", 1000 * count / sum_ms, "per_s");
  report->Add(name, "step_mean", sum_ms / count / 1000, "s");
  report->Add(name, "step_p50", Quantile(step_ms, 0.5) / 1000, "s");
  report->Add(name, "step_p99", Quantile(step_ms, 0.99) / 1000, "s");
  report->Add(name, "step_max", Quantile(step_ms, 1.0) / 1000, "s");
}

/// The same pile with Bullet, where that is installed: on one thread, the bodies as convex hulls.
void MeasurePileOfBullet(const sim::SceneDescription& scene, int steps, const std::string& name, Report* report) {
  std::vector<PileBody> bodies;
  for (const sim::BodyDescription& body : scene.bodies) {
    const sim::MassProperties mass = sim::ComputeMassProperties(body.mesh, body.material.density_kg_per_m3);
    std::vector<Eigen::Vector3d> vertices_m;
    for (const uint32_t v : sim::ExtractBoundary(body.mesh).vertices) vertices_m.push_back(body.mesh.vertices[v]);
    bodies.push_back({std::move(vertices_m), mass.center_m, body.kind == sim::BodyKind::kRigid ? mass.mass_kg : 0});
  }
  const std::optional<PileRun> run = DropWithBullet(bodies, scene.contact.surface_friction, scene.contact.margin_m, scene.dt_s, steps);
  if (!run.has_value()) {
    report->Note("piles: Bullet is not installed, so there is nothing to compare with");
    return;
  }
  AddStepTimes(run->step_ms, name + "_bullet", report);
  report->Add(name + "_bullet", "mean_height", run->height_m, "m");
  report->Add(name + "_bullet", "lost_bodies", run->lost, "count");
}

/// Two seconds of a pile from its fall to rest, step by step.
absl::Status MeasurePile(const std::shared_ptr<gpu::Context>& context, int width, int layers, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const sim::SceneDescription scene, PileScene(width, layers));
  const std::string name = absl::StrFormat("pile_%d", width * width * layers);
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<sim::World> world, sim::World::Create(context, scene));
  const int counted = IsQuick() ? 60 : 240;
  std::vector<double> step_ms;
  std::vector<double> stage_ms(sim::kStageNames.size(), 0.0);
  double pairs = 0;
  double detections = 0;
  double filter_rounds = 0;
  double filter_ms = 0;
  double detect_ms = 0;
  uint64_t acting = 0;
  double height_m = 0;
  const gpu::CommandCounts before = context->commands();
  for (int i = 0; i < counted; ++i) {
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::Frame> frame, world->Step({}));
    step_ms.push_back(frame->step_ms);
    for (size_t s = 0; s < stage_ms.size(); ++s) stage_ms[s] += frame->stage_ms[s] / counted;
    const sim::FrameContactStatistics& c = frame->contact_statistics;
    pairs += static_cast<double>(c.contact_count) / counted;
    detections += static_cast<double>(c.detection_count) / counted;
    filter_rounds += static_cast<double>(c.filter_rounds) / counted;
    filter_ms += c.filter_ms / counted;
    detect_ms += c.detect_ms / counted;
    acting += c.acting_count;
    if (i + 1 == counted) height_m = MeanHeight(*frame, kTrayBodies);
  }
  if (acting == 0) return absl::InternalError(name + ": no two bodies touched, so the figures would mean nothing");
  report->Add(name, "bodies", width * width * layers, "count");
  report->Add(name, "device_memory", static_cast<double>(world->device_bytes()), "bytes");
  AddStepTimes(step_ms, name, report);
  for (size_t s = 0; s < stage_ms.size(); ++s) {
    report->Add(name, "stage_" + std::string(sim::kStageNames[s]), stage_ms[s] / 1000, "s");
  }
  report->Add(name, "mean_height", height_m, "m");
  report->Add(name, "proximity", detect_ms / 1000, "s");
  report->Add(name, "continuous", filter_ms / 1000, "s");
  report->Add(name, "pairs", pairs, "count");
  report->Add(name, "detections_per_step", detections, "count");
  report->Add(name, "filter_rounds_per_step", filter_rounds, "count");
  AddCommands(context->commands() - before, counted, name, report);
  MeasurePileOfBullet(scene, counted, name, report);
  return absl::OkStatus();
}

/// Ten soft slabs that come to rest on each other, with and without corrections, with and without a tolerance: how they lie, and what their
/// steps cost while they fall and at rest.
absl::Status MeasureStack(const std::shared_ptr<gpu::Context>& context, const std::string& name, bool is_corrected,
                          double tolerance_m_per_s2, Report* report) {
  constexpr int kBodies = 10;
  sim::SceneDescription scene;
  if (is_corrected) scene.solver.coarse_nodes = static_cast<int>(kCoarseNodes);
  scene.solver.tolerance_m_per_s2 = tolerance_m_per_s2;
  scene.contact.surface_friction = 0.5;
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh slab, sim::GenerateSlab({0.12, 0.1, 0.02}, 0.012));
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh floor, sim::BoxMesh({3, 3, 2}, {0.2, 0.2, 0.02}));
  for (int b = 0; b <= kBodies; ++b) {
    sim::BodyDescription body;
    body.name = absl::StrFormat("slab %d", b);
    body.kind = b == 0 ? sim::BodyKind::kStatic : sim::BodyKind::kDeformable;
    body.self_collision = false;
    body.mesh = b == 0 ? floor : slab;
    body.material.young_modulus_pa = 20000;
    body.material.damping_s = 0.01;
    for (Eigen::Vector3d& v : body.mesh.vertices) v.z() += b == 0 ? -0.01 : 0.012 + (b - 1) * 0.023;
    scene.bodies.push_back(std::move(body));
  }
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<sim::World> world, sim::World::Create(context, scene));
  const int steps = IsQuick() ? 60 : 240;
  std::vector<double> fall_ms, rest_ms;
  std::shared_ptr<const sim::Frame> frame;
  double sweeps = 0;
  for (int i = 0; i < steps; ++i) {
    PALPATE_ASSIGN_OR_RETURN(frame, world->Step({}));
    (i < steps / 2 ? fall_ms : rest_ms).push_back(frame->step_ms);
    if (i >= steps / 2) sweeps += 2.0 * frame->sweeps / steps;
  }
  PALPATE_ASSIGN_OR_RETURN(const std::vector<float> top, world->ReadVolumePositions(kBodies));
  double height_m = 0;
  for (size_t v = 2; v < top.size(); v += 3) height_m = std::max(height_m, static_cast<double>(top[v]));
  report->Add(name, "height", height_m, "m");
  report->Add(name, "max_speed_at_rest", frame->max_speed_m_per_s, "m/s");
  report->Add(name, "kinetic_energy_at_rest", frame->kinetic_energy_j, "J");
  report->Add(name, "step_falling_p50", Quantile(fall_ms, 0.5) / 1000, "s");
  report->Add(name, "step_at_rest_p50", Quantile(rest_ms, 0.5) / 1000, "s");
  report->Add(name, "sweeps_at_rest", sweeps, "count");
  return absl::OkStatus();
}

/// Steps of a scene with joints.
struct JointedRun {
  std::vector<double> step_ms;
  double worst_gap_m = 0;
  std::shared_ptr<const sim::Frame> frame;  ///< the last
};

absl::StatusOr<JointedRun> StepJointed(sim::World& world, int steps) {
  JointedRun run;
  for (int i = 0; i < steps; ++i) {
    PALPATE_ASSIGN_OR_RETURN(run.frame, world.Step({}));
    run.step_ms.push_back(run.frame->step_ms);
    for (const sim::FrameJoint& joint : run.frame->joints) run.worst_gap_m = std::max(run.worst_gap_m, joint.gap_m);
  }
  return run;
}

/// A chain of boxes that swings down with `load` times a link's mass at its end, or a bridge of planks between two banks: joints and
/// nothing else. How long a step takes and how far joints are off, beside Bullet's sequential impulses with 10 and 100 iterations.
absl::Status MeasureChain(const std::shared_ptr<gpu::Context>& context, const std::string& name, int count, double load, bool is_bridge,
                          Report* report) {
  constexpr double kPitch_m = 0.02;
  const Eigen::Vector3d half_m = is_bridge ? Eigen::Vector3d(0.008, 0.1, 0.004) : Eigen::Vector3d(0.008, 0.0025, 0.0025);
  sim::SceneDescription scene;
  scene.contact.margin_m = 0.0005;
  std::vector<ChainBody> bodies;
  std::vector<ChainLink> links;
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh box, sim::BoxMesh({2, 2, 2}, 2 * half_m));
  // A bridge starts as an arc, so that it has to move before it hangs.
  const auto point = [&](int i) {
    if (!is_bridge) return Eigen::Vector3d(kPitch_m * i, 0, 0);
    const double at = std::numbers::pi / 3 * (2.0 * i / count - 1) / 2;
    const double radius_m = kPitch_m / (2 * std::sin(std::numbers::pi / 6 / count));
    return Eigen::Vector3d(radius_m * std::sin(at), 0, -radius_m * std::cos(at));
  };
  for (int i = 0; i < count; ++i) {
    sim::BodyDescription body;
    body.name = absl::StrFormat("link%d", i);
    body.kind = sim::BodyKind::kRigid;
    body.self_collision = false;
    body.mesh = box;
    const Eigen::Vector3d center_m = (point(i) + point(i + 1)) / 2;
    const Eigen::Quaterniond turn = Eigen::Quaterniond::FromTwoVectors(Eigen::Vector3d::UnitX(), point(i + 1) - point(i));
    for (Eigen::Vector3d& v : body.mesh.vertices) v = turn * v + center_m;
    body.material.density_kg_per_m3 = i + 1 == count ? 1000 * load : 1000;
    body.material.mass_damping_per_s = is_bridge ? 1 : 0;
    bodies.push_back({center_m, half_m, 8 * half_m.prod() * body.material.density_kg_per_m3});
    scene.bodies.push_back(std::move(body));
  }
  for (int i = 0; i <= count; ++i) {
    if (!is_bridge && i == count) break;
    sim::JointDescription joint;
    joint.name = absl::StrFormat("joint%d", i);
    joint.kind = is_bridge ? sim::JointKind::kHinge : sim::JointKind::kBall;
    joint.axis = Eigen::Vector3d::UnitY();
    if (i > 0) joint.body_a = static_cast<uint32_t>(i - 1);
    if (i < count) joint.body_b = static_cast<uint32_t>(i);
    joint.point_a_m = joint.point_b_m = point(i);
    scene.joints.push_back(joint);
    links.push_back({point(i), i - 1, i < count ? i : -1});
  }
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<sim::World> world, sim::World::Create(context, scene));
  const int steps = IsQuick() ? 60 : 240;
  PALPATE_ASSIGN_OR_RETURN(const JointedRun run, StepJointed(*world, steps));
  AddStepTimes(run.step_ms, name, report);
  report->Add(name, "worst_gap", run.worst_gap_m, "m");
  report->Add(name, "max_speed_at_end", run.frame->max_speed_m_per_s, "m/s");
  if (is_bridge) return absl::OkStatus();  // Bullet's boxes start along W
  for (const int iterations : {10, 100}) {
    const std::optional<ChainRun> swung = SwingWithBullet(bodies, links, is_bridge, iterations, scene.dt_s, steps);
    if (!swung) {
      report->Note("chains: Bullet is not installed, so there is nothing to compare with");
      break;
    }
    const std::string peer = absl::StrFormat("%s_bullet_%d", name, iterations);
    AddStepTimes(swung->step_ms, peer, report);
    report->Add(peer, "worst_gap", swung->worst_gap_m, "m");
  }
  return absl::OkStatus();
}

/// A cloth that falls over a ball and folds on a table, about so many triangles; from the moment that it touches.
absl::Status MeasureShell(const std::shared_ptr<gpu::Context>& context, int triangles, Report* report) {
  const std::string name = absl::StrFormat("shell_%d", triangles);
  constexpr double kSize_m = 1;
  const double edge_m = kSize_m * std::sqrt(4 / std::numbers::sqrt3 / triangles);  // two regular triangles a parallelogram
  PALPATE_ASSIGN_OR_RETURN(const sim::SurfaceMesh surface, sim::GenerateSheetSurface(kSize_m, kSize_m, edge_m));
  sim::SceneDescription scene;
  scene.dt_s = 0.01;
  scene.solver.iterations = 10;
  scene.contact.margin_m = 0.2 * edge_m;
  scene.contact.surface_friction = 0.3;
  sim::BodyDescription cloth;
  cloth.name = "cloth";
  for (const Eigen::Vector3d& v : surface.vertices) cloth.mesh.vertices.emplace_back(v + Eigen::Vector3d(0, 0, 0.31));
  cloth.shell.emplace();
  cloth.shell->triangles = surface.triangles;
  cloth.shell->bending_stiffness_n_m = 1e-5;
  cloth.material.model = sim::MaterialModel::kStVenantKirchhoff;
  cloth.material.young_modulus_pa = 1e5;
  cloth.material.poisson_ratio = 0.2;
  cloth.material.density_kg_per_m3 = 300;
  scene.bodies.push_back(std::move(cloth));
  scene.obstacles = {{"ball", sim::SphereShape{{0.1, 0, 0.1}, 0.2}}, {"table", sim::PlaneShape{}}};
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<sim::World> world, sim::World::Create(context, scene));
  for (int i = 0; i < 10; ++i) PALPATE_RETURN_IF_ERROR(world->Step({}).status());
  const int counted = IsQuick() ? 30 : 90;
  std::vector<double> step_ms;
  double pairs = 0;
  double detect_ms = 0;
  double filter_ms = 0;
  uint64_t acting = 0;
  const gpu::CommandCounts before = context->commands();
  for (int i = 0; i < counted; ++i) {
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::Frame> frame, world->Step({}));
    step_ms.push_back(frame->step_ms);
    pairs += static_cast<double>(frame->contact_statistics.contact_count) / counted;
    detect_ms += frame->contact_statistics.detect_ms / counted;
    filter_ms += frame->contact_statistics.filter_ms / counted;
    acting += frame->contact_statistics.acting_count;
  }
  if (acting == 0) return absl::InternalError(name + ": it does not touch itself, so the figures would mean nothing");
  report->Add(name, "triangles", static_cast<double>(surface.triangles.size()), "count");
  report->Add(name, "device_memory", static_cast<double>(world->device_bytes()), "bytes");
  AddStepTimes(step_ms, name, report);
  report->Add(name, "proximity", detect_ms / 1000, "s");
  report->Add(name, "continuous", filter_ms / 1000, "s");
  report->Add(name, "pairs", pairs, "count");
  AddCommands(context->commands() - before, counted, name, report);
  return absl::OkStatus();
}

/// How a bar of tissue is held at one end, and what hangs at the other.
enum class BarEnd { kFixed, kWelded, kLoaded };

/// A bar of tissue of so many tets, held by its first layer of vertices: fixed ones, or a joint. Loaded, a block of 100 times its weight
/// hangs from its last layer.
absl::Status MeasureBar(const std::shared_ptr<gpu::Context>& context, const std::string& name, uint32_t layers, BarEnd end,
                        Report* report) {
  constexpr double kWidth_m = 0.03;
  const Eigen::Vector3d size_m = {kWidth_m, kWidth_m, 4 * kWidth_m};
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({layers + 1, layers + 1, 4 * layers + 1}, size_m));
  sim::SceneDescription scene;
  sim::BodyDescription bar;
  bar.name = "bar";
  bar.mesh = mesh;
  bar.material.young_modulus_pa = 1e6;
  bar.material.poisson_ratio = 0.45;
  bar.material.mass_damping_per_s = 4;
  sim::JointDescription weld, hook;
  weld.name = "weld";
  weld.kind = sim::JointKind::kFixed;
  weld.body_b = 0;
  hook.name = "hook";
  hook.body_a = 0;
  hook.body_b = 1;
  weld.point_a_m = weld.point_b_m = {0, 0, size_m.z() / 2};
  hook.point_a_m = hook.point_b_m = {0, 0, -size_m.z() / 2 - 0.01};
  for (uint32_t v = 0; v < mesh.vertices.size(); ++v) {
    if (mesh.vertices[v].z() > size_m.z() / 2 - 1e-9) weld.vertices_b.push_back(v);
    if (mesh.vertices[v].z() < -size_m.z() / 2 + 1e-9) hook.vertices_a.push_back(v);
  }
  const double bar_kg = size_m.prod() * bar.material.density_kg_per_m3;
  if (end == BarEnd::kFixed) bar.fixed_vertices = weld.vertices_b;
  if (end != BarEnd::kFixed) scene.joints.push_back(weld);
  scene.bodies.push_back(std::move(bar));
  if (end == BarEnd::kLoaded) {
    sim::BodyDescription block;
    block.name = "block";
    block.kind = sim::BodyKind::kRigid;
    block.self_collision = false;
    PALPATE_ASSIGN_OR_RETURN(block.mesh, sim::BoxMesh({2, 2, 2}, {0.06, 0.06, 0.06}));
    for (Eigen::Vector3d& v : block.mesh.vertices) v.z() -= size_m.z() / 2 + 0.05;
    block.material.density_kg_per_m3 = 100 * bar_kg / std::pow(0.06, 3);
    block.material.mass_damping_per_s = 4;
    scene.bodies.push_back(std::move(block));
    scene.joints.push_back(hook);
  }
  // As a scene's spec has it where bodies are stiff and fine: else neither kind of bar comes to rest.
  scene.solver.coarse_nodes = static_cast<int>(kCoarseNodes);
  scene.solver.iterations = sim::kCorrectedSweeps;
  scene.solver.acceleration = sim::kCorrectedAcceleration;
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<sim::World> world, sim::World::Create(context, scene));
  const int steps = IsQuick() ? 60 : 400;
  PALPATE_ASSIGN_OR_RETURN(const JointedRun run, StepJointed(*world, steps));
  report->Add(name, "tets", static_cast<double>(mesh.tets.size()), "count");
  AddStepTimes(run.step_ms, name, report);
  if (end == BarEnd::kFixed) return absl::OkStatus();
  const double weight_n = (end == BarEnd::kLoaded ? 101 : 1) * bar_kg * 9.81;
  report->Add(name, "worst_gap", run.worst_gap_m, "m");
  report->Add(name, "force_error_at_end", std::abs(run.frame->joints[0].force_n.z() / weight_n - 1), "ratio");
  return absl::OkStatus();
}

/// scenes/hepatectomy.json with its edits: the left lobe of a liver is cut off and lies on a table.
absl::Status MeasureHepatectomy(const std::shared_ptr<gpu::Context>& context, Report* report) {
  const std::string name = "hepatectomy";
  sim::SceneDescription scene;
  scene.contact.check_intersections = true;
  sim::BodyDescription body;
  body.name = "liver";
  PALPATE_ASSIGN_OR_RETURN(body.mesh, sim::GenerateLiver(kLength_m, 0.017));
  body.material.young_modulus_pa = 5000;
  body.material.poisson_ratio = 0.45;
  body.material.density_kg_per_m3 = 1060;
  body.material.damping_s = 0.01;
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    if (body.mesh.vertices[v].x() > 0.04) body.fixed_vertices.push_back(v);
  }
  scene.bodies.push_back(std::move(body));
  scene.obstacles = {{"table", sim::PlaneShape{.point_m = {0, 0, -0.09}}}};
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<sim::World> world, sim::World::Create(context, scene));
  std::vector<sim::Edit> edits;
  for (int i = 0; i < 15; ++i) {
    const double z = 0.07 - 0.01 * i;
    edits.push_back({.body = 0, .what = sim::CarveEdit{sim::CapsuleRegion{{-0.035, -0.12, z}, {-0.035, 0.12, z}, 0.0115}}});
  }
  PALPATE_RETURN_IF_ERROR(world->Apply(edits).status());
  for (int i = 0; i < 150; ++i) PALPATE_RETURN_IF_ERROR(world->Step({}).status());  // it falls, and comes to rest
  const int counted = 60;
  std::vector<double> step_ms;
  std::shared_ptr<const sim::Frame> frame;
  const gpu::CommandCounts before = context->commands();
  for (int i = 0; i < counted; ++i) {
    PALPATE_ASSIGN_OR_RETURN(frame, world->Step({}));
    step_ms.push_back(frame->step_ms);
  }
  if (frame->topology->bodies.size() < 2) return absl::InternalError("hepatectomy: the lobe is not cut off");
  AddStepTimes(step_ms, name, report);
  AddCommands(context->commands() - before, counted, name, report);
  return absl::OkStatus();
}

absl::Status Run(Report* report, std::shared_ptr<gpu::Context> context) {
  const std::vector<double> sizes = IsQuick() ? std::vector<double>{600, 2500} : std::vector<double>{600, 2500, 10000, 50000};
  double first = 0;
  for (const double size : sizes) {
    if (!IsSelected(absl::StrFormat("liver_%d", static_cast<int>(size)))) continue;
    double us_per_tet = 0;
    PALPATE_RETURN_IF_ERROR(MeasureSize(context, size, &us_per_tet, report));
    if (first == 0) first = us_per_tet;
    report->Add(absl::StrFormat("liver_%d", static_cast<int>(size)), "growth_of_time_per_tet", us_per_tet / first, "ratio");
  }
  if (IsSelected("hepatectomy")) PALPATE_RETURN_IF_ERROR(MeasureHepatectomy(context, report));
  // Columns times columns times layers: 64, 512, 4,096 bodies.
  for (const auto& [width, layers] : {std::pair(4, 4), std::pair(8, 8), std::pair(16, 16)}) {
    if (IsQuick() && width > 4) continue;
    if (IsSelected(absl::StrFormat("pile_%d", width * width * layers)))
      PALPATE_RETURN_IF_ERROR(MeasurePile(context, width, layers, report));
  }
  for (const int triangles : {2500, 10000, 40000}) {
    if (IsQuick() && triangles > 2500) continue;
    if (IsSelected(absl::StrFormat("shell_%d", triangles))) PALPATE_RETURN_IF_ERROR(MeasureShell(context, triangles, report));
  }
  for (const auto& [name, is_corrected, tolerance] :
       {std::tuple("stack_10_plain", false, 0.0), {"stack_10", true, 0.0}, {"stack_10_tolerance", true, 0.02}}) {
    if (IsSelected(name)) PALPATE_RETURN_IF_ERROR(MeasureStack(context, name, is_corrected, tolerance, report));
  }
  for (const auto& [name, count, load, is_bridge] : {std::tuple("chain_50_load_1", 50, 1.0, false),
                                                     {"chain_50_load_100", 50, 100.0, false},
                                                     {"chain_50_load_1000", 50, 1000.0, false},
                                                     {"bridge_200", 200, 1.0, true}}) {
    if (IsSelected(name)) PALPATE_RETURN_IF_ERROR(MeasureChain(context, name, count, load, is_bridge, report));
  }
  // Cells of five tets, four times as many along the bar: 2,500 and 10,240 tets.
  for (const uint32_t layers : {5U, 8U}) {
    if (IsQuick() && layers > 5) continue;
    for (const auto& [how, end] : {std::pair("fixed", BarEnd::kFixed), {"welded", BarEnd::kWelded}, {"loaded", BarEnd::kLoaded}}) {
      const std::string name = absl::StrFormat("bar_%d_%s", 20 * layers * layers * layers, how);
      if (IsSelected(name)) PALPATE_RETURN_IF_ERROR(MeasureBar(context, name, layers, end, report));
    }
  }
  for (const double size : {2500.0, 10000.0}) {
    if (IsQuick() && size > 2500) continue;
    if (!IsSelected("residual")) continue;
    for (const auto& [acceleration, is_corrected] : {std::pair(0.0, false), {0.9, false}, {0.85, true}}) {
      PALPATE_RETURN_IF_ERROR(MeasureResidual(context, size, acceleration, is_corrected, report));
    }
  }
#ifdef PALPATE_HAS_STEP_LISTS
  PALPATE_RETURN_IF_ERROR(MeasureLists(context, report));
#endif
  NoteKernels(*context, report);
  return absl::OkStatus();
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Steps of a deforming organ under a tool.");
  auto context =
      palpate::gpu::Context::Create({.device = palpate::bench::DeviceSelector(), .time_one_in = palpate::bench::TimedLaunches()});
  palpate::bench::Report report("step", context.ok() ? palpate::gpu::DescribeDevice((*context)->device()) : "none");
  if (!context.ok()) return report.Finish(context.status());
  return report.Finish(palpate::bench::Run(&report, *context));
}
