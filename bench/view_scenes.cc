#include "bench/view_scenes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numbers>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/view_shapes.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/scene_spec.h"
#include "sim/world/world.h"

namespace palpate::bench {
namespace {

using Eigen::Vector3d;
using sim::BodyDescription;
using sim::SceneDescription;

constexpr std::array<ViewScene, 6> kScenes = {{{"one", 1176}, {"two", 721}, {"three", 1167}, {"four", 971}, {"five", 1568}, {"six", 1166}}};
constexpr double kStep_s = 0.01;
constexpr int kFramesPerState = 50;

BodyDescription ShellOf(const std::string& name, const ViewShape& shape, double thickness_m) {
  BodyDescription body;
  body.name = name;
  for (const auto& [x, y, z] : shape.points) body.mesh.vertices.emplace_back(x, y, z);
  body.shell.emplace();
  body.shell->triangles = shape.triangles;
  body.shell->thickness_m = thickness_m;
  body.material.density_kg_per_m3 = 300;
  body.material.young_modulus_pa = 1e5;
  body.material.poisson_ratio = 0.3;
  body.material.damping_s = 0.004;
  body.material.mass_damping_per_s = 1;
  return body;
}

/// A closed shell all of whose vertices go where they are told.
BodyDescription DrivenShell(const std::string& name, const ViewShape& shape) {
  BodyDescription body = ShellOf(name, shape, 0.002);
  body.self_collision = false;
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) body.fixed_vertices.push_back(v);
  return body;
}

/// A ball on a floor, blown up a little, and in it a body with ears that goes up and down.
SceneDescription BallScene(bool is_fine, bool is_quick) {
  ViewShape inside = MakeBall(is_quick ? 20 : 58);
  for (auto& [x, y, z] : inside.points) {
    double r = 0.28;
    for (const double side : {-1.0, 1.0}) r += 0.14 * std::exp(-14 * (1 - (0.45 * side * x + 0.893 * z)));
    x *= r, y *= r, z = z * r - 0.05;
  }
  BodyDescription rabbit = DrivenShell("rabbit", inside);
  sim::DrivenRegion& region = rabbit.driven_regions.emplace_back();
  region.vertices = rabbit.fixed_vertices;
  region.duration_s = 3600;
  for (int k = 0; k < 8; ++k) region.keys.push_back({.time_s = 0.25 * k, .shift_m = {0, 0, 0.22 * std::sin(std::numbers::pi * k / 4)}});
  region.period_s = 2;
  ViewShape skin = MakeBall((is_fine ? 64 : 32) / (is_quick ? 2 : 1));
  for (auto& p : skin.points) {
    for (double& x : p) x *= 0.5;
  }
  BodyDescription ball = ShellOf("ball", skin, 0.002);
  ball.material.young_modulus_pa = 6e4;
  sim::LoadDescription& air = ball.loads.emplace_back();
  for (uint32_t v = 0; v < ball.mesh.vertices.size(); ++v) air.vertices.push_back(v);
  air.pressure_pa = -20;
  SceneDescription scene;
  scene.bodies = {std::move(ball), std::move(rabbit)};
  scene.obstacles.push_back({"floor", sim::PlaneShape{{0, 0, -0.62}, {0, 0, 1}}});
  return scene;
}

absl::StatusOr<SceneDescription> DressScene(bool is_walking, bool is_quick, const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "dress.json";
  std::ifstream stream(file);
  if (!stream)
    return absl::NotFoundError(absl::StrCat(file.string(), ": cannot be read; --scenes_dir says where the scenes of the project are"));
  std::stringstream text;
  text << stream.rdbuf();
  PALPATE_ASSIGN_OR_RETURN(v1::SceneSpec spec, scene::ParseSceneJson(text.str(), file.string()));
  spec.mutable_bodies(0)->mutable_shell()->set_edge_length_m(is_quick ? 0.021 : 0.0107);
  spec.mutable_bodies(1)->mutable_shell()->set_edge_length_m(is_quick ? 0.0155 : 0.00775);
  if (!is_walking) {
    for (v1::FixedRegion& region : *spec.mutable_bodies(0)->mutable_fixed()) region.clear_motion();
    spec.mutable_wind()->clear_times_s();
    spec.mutable_wind()->clear_velocities_m_per_s();
    for (int k = 0; k <= 24; ++k) {
      spec.mutable_wind()->add_times_s(0.5 * k);
      spec.mutable_wind()->add_velocities_m_per_s()->set_y(k == 0 ? 0 : 3 + 2.5 * std::sin(1.9 * k));
    }
  }
  PALPATE_ASSIGN_OR_RETURN(SceneDescription scene, scene::BuildSceneDescription(spec, scene::AssetRootResolver(folder), {}));
  std::swap(scene.bodies[0], scene.bodies[1]);
  return scene;
}

/// A sleeve on a rod that bends to and fro. Its ends turn, and what is between follows the mean of both.
SceneDescription SleeveScene(bool is_quick) {
  constexpr double kLength_m = 0.9;
  ViewShape core = MakeBall(is_quick ? 20 : 40);
  for (auto& [x, y, z] : core.points) {
    const double r = std::hypot(x, y, 1e-9), round = std::min(1.0, r * 3);
    x *= 0.045 * round / r, y *= 0.045 * round / r, z *= kLength_m / 2;
  }
  BodyDescription rod = DrivenShell("rod", core);
  for (const double side : {-1.0, 1.0}) {
    sim::DrivenRegion region;
    region.duration_s = 3600;
    region.period_s = 4;
    region.ramp_s = 1;
    for (int k = 0; k < 8; ++k) {
      region.keys.push_back({.time_s = 0.5 * k, .shift_m = {0, 0, 0}, .turn_rad = {0, side * 0.6 * std::sin(std::numbers::pi * k / 4), 0}});
    }
    rod.driven_regions.push_back(std::move(region));
  }
  constexpr uint32_t kRests = sim::DrivenBlend::kRests;
  for (const uint32_t v : rod.fixed_vertices) {
    const double u = std::clamp(0.5 + rod.mesh.vertices[v].z() / kLength_m, 0.0, 1.0);
    const uint32_t larger = u > 0.5 ? 1 : 0;
    const auto share = static_cast<float>(std::max(u, 1 - u));
    rod.driven_regions[larger].vertices.push_back(v);
    rod.driven_regions[larger].blends.push_back({.regions = {larger, 1 - larger, kRests, kRests}, .shares = {share, 1 - share, 0, 0}});
  }
  const uint32_t scale = is_quick ? 2 : 1;
  ViewShape cloth = MakeSheet(160 / scale, 240 / scale, true, false);
  for (auto& [x, y, z] : cloth.points) {
    const double a = 2 * std::numbers::pi * x, along = y - 0.5;
    x = 0.056 * std::cos(a), y = 0.056 * std::sin(a), z = 0.56 * along;
  }
  BodyDescription sleeve = ShellOf("sleeve", cloth, 0.001);
  SceneDescription scene;
  scene.bodies = {std::move(sleeve), std::move(rod)};
  scene.contact.surface_friction = 0.8;
  return scene;
}

/// A sheet on a square board in gusts; its border hangs over.
SceneDescription SheetScene(bool is_quick) {
  ViewShape plate = MakeBall(16);
  for (auto& [x, y, z] : plate.points) {
    const double most = std::max({std::abs(x), std::abs(y), std::abs(z)});
    x *= 0.3 / most, y *= 0.3 / most, z *= 0.02 / most;
  }
  const uint32_t n = is_quick ? 100 : 200;
  ViewShape cloth = MakeSheet(n, n, false, false);
  for (auto& [x, y, z] : cloth.points) x -= 0.5, y -= 0.5, z = 0.024;
  BodyDescription sheet = ShellOf("sheet", cloth, 0.001);
  sheet.drag_coefficient = 1;
  SceneDescription scene;
  scene.bodies = {std::move(sheet), DrivenShell("board", plate)};
  scene.contact.surface_friction = 0.7;
  scene.wind.times_s.clear();
  scene.wind.velocities_m_per_s.clear();
  for (int k = 0; k <= 24; ++k) {
    scene.wind.times_s.push_back(0.5 * k);
    scene.wind.velocities_m_per_s.emplace_back(1.5 * std::sin(1.3 * k), k == 0 ? 0 : 1.5 + std::sin(2.1 * k), 0);
  }
  return scene;
}

absl::StatusOr<SceneDescription> SceneOf(std::string_view name, bool is_quick, const std::filesystem::path& scenes) {
  SceneDescription scene;
  if (name == "one" || name == "two") scene = BallScene(name == "two", is_quick);
  if (name == "three" || name == "four") {
    PALPATE_ASSIGN_OR_RETURN(scene, DressScene(name == "four", is_quick, scenes));
  }
  if (name == "five") scene = SleeveScene(is_quick);
  if (name == "six") scene = SheetScene(is_quick);
  scene.name = std::string(name);
  scene.dt_s = kStep_s;
  scene.solver.iterations = 20;
  if (name != "three" && name != "four") scene.contact.margin_m = 0.002;
  scene.contact.check_intersections = false;
  return scene;
}

absl::Status WriteFile(const std::filesystem::path& path, std::string_view bytes, std::ios::openmode mode) {
  std::ofstream stream(path, std::ios::binary | mode);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  return stream ? absl::OkStatus() : absl::InternalError(absl::StrCat(path.string(), ": cannot be written"));
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// What there is of an animation: frames up to the step of the state. Frames beyond it are made again.
class FrameStore {
 public:
  FrameStore(const std::filesystem::path& folder, const std::string& name)
      : frames_(folder / (name + ".frames")), state_(folder / (name + ".state")) {}

  std::string State() const { return ReadFile(state_); }
  absl::StatusOr<std::vector<std::vector<float>>> Frames(size_t count, size_t floats) const {
    const std::string bytes = ReadFile(frames_);
    if (bytes.size() < count * floats * sizeof(float)) return absl::DataLossError(absl::StrCat(frames_.string(), ": is cut short"));
    std::vector<std::vector<float>> out(count, std::vector<float>(floats));
    for (size_t i = 0; i < count; ++i) std::memcpy(out[i].data(), bytes.data() + i * floats * sizeof(float), floats * sizeof(float));
    return out;
  }
  /// `count` frames are there already; the state is that of the newest frame, and replaces the old one as a whole.
  absl::Status Append(std::span<const std::vector<float>> frames, size_t count, std::string_view state) const {
    std::error_code error;
    if (count == 0) std::filesystem::remove(frames_, error);
    if (count > 0) std::filesystem::resize_file(frames_, count * frames[0].size() * sizeof(float), error);
    if (error) return absl::InternalError(absl::StrCat(frames_.string(), ": ", error.message()));
    for (const std::vector<float>& frame : frames) {
      PALPATE_RETURN_IF_ERROR(
          WriteFile(frames_, {reinterpret_cast<const char*>(frame.data()), frame.size() * sizeof(float)}, std::ios::app));
    }
    const std::filesystem::path fresh = state_.string() + ".new";
    PALPATE_RETURN_IF_ERROR(WriteFile(fresh, state, std::ios::trunc));
    std::filesystem::rename(fresh, state_, error);
    return error ? absl::InternalError(absl::StrCat(state_.string(), ": ", error.message())) : absl::OkStatus();
  }

 private:
  std::filesystem::path frames_, state_;
};

void ShowProgress(std::string_view name, size_t frame, int frames, double step_ms) {
  constexpr int kBar = 40;
  const int done = static_cast<int>(kBar * frame / static_cast<size_t>(frames));
  std::fprintf(stderr, "\r%-6s [%s%s] %zu of %d frames, %.0f ms each ", std::string(name).c_str(),
               std::string(static_cast<size_t>(done), '#').c_str(), std::string(static_cast<size_t>(kBar - done), '.').c_str(), frame,
               frames, step_ms);
}

}  // namespace

std::span<const ViewScene> ViewScenes() { return kScenes; }

absl::StatusOr<SimulatedAnimation> SimulateViewScene(std::shared_ptr<gpu::Context> context, const ViewScene& scene, int frames,
                                                     bool is_quick, const ViewFolders& folders) {
  PALPATE_ASSIGN_OR_RETURN(const SceneDescription description, SceneOf(scene.name, is_quick, folders.scenes));
  SimulatedAnimation out = {.name = std::string(scene.name), .triangles = {}, .frames = {}};
  const size_t floats = description.bodies[0].mesh.vertices.size() * 3;
  std::error_code error;
  std::filesystem::create_directories(folders.frames, error);
  const FrameStore store(folders.frames, absl::StrCat(out.name, "-", description.bodies[0].shell->triangles.size()));
  std::unique_ptr<sim::World> world;
  if (const std::string bytes = store.State(); !bytes.empty()) {
    const auto state = sim::DecodeWorldState(bytes);
    auto restored = state.ok() ? sim::World::Restore(context, description, **state) : state.status();
    if (restored.ok()) world = *std::move(restored);
    absl::StatusOr<std::vector<std::vector<float>>> earlier =
        world == nullptr ? restored.status() : store.Frames(world->CurrentFrame()->step, floats);
    // A state of another version or scene is no use, nor is one without its frames: all are made again.
    if (earlier.ok()) out.frames = *std::move(earlier);
    if (!earlier.ok()) {
      world = nullptr;
      std::fprintf(stderr, "%s: starts anew: %s\n", out.name.c_str(), std::string(earlier.status().message()).c_str());
    }
  }
  if (world == nullptr) {
    PALPATE_ASSIGN_OR_RETURN(world, sim::World::Create(context, description));
  }
  size_t kept = out.frames.size();
  for (const auto& [a, b, c] : world->surfaces()[0].triangles) out.triangles.push_back({a, b, c});
  while (out.frames.size() < static_cast<size_t>(frames)) {
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::Frame> frame, world->Step({}));
    out.frames.push_back(frame->surface_positions_m[0]);
    ShowProgress(scene.name, out.frames.size(), frames, frame->step_ms);
    if (out.frames.size() % kFramesPerState != 0 && out.frames.size() < static_cast<size_t>(frames)) continue;
    PALPATE_ASSIGN_OR_RETURN(const auto state, world->Capture());
    PALPATE_RETURN_IF_ERROR(store.Append(std::span(out.frames).subspan(kept), kept, sim::EncodeWorldState(*state)));
    kept = out.frames.size();
  }
  std::fprintf(stderr, "\n");
  out.frames.resize(static_cast<size_t>(frames));
  return out;
}

}  // namespace palpate::bench
