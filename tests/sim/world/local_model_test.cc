// Local models against the running scenes that they stand for: the slope by finite differences, and the force that a hand would feel
// between two models.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/haptics/evaluate.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/scene_spec.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::local_model_test {
namespace {

using Eigen::Vector3d;

/// A scene of scenes/ under a tool that is driven directly, so that its pose is the hand's.
class Pressed {
 public:
  Pressed(const std::shared_ptr<gpu::Context>& context, const std::string& name, double edge_length_m, int sweeps, double tool_radius_m,
          const Vector3d& over_m) {
    std::ifstream file("scenes/" + name + ".json");
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    auto spec = scene::ParseSceneJson({text.data(), text.size()}, name);
    EXPECT_TRUE(spec.ok()) << spec.status();
    if (!spec.ok()) return;
    if (edge_length_m > 0) spec->mutable_bodies(0)->mutable_generator()->set_edge_length_m(edge_length_m);
    if (sweeps > 0) spec->mutable_solver()->set_iterations(static_cast<uint32_t>(sweeps));
    auto scene = scene::BuildSceneDescription(*spec, scene::AssetRootResolver(""), {});
    EXPECT_TRUE(scene.ok()) << scene.status();
    if (!scene.ok()) return;
    scene->tools = {test::ToolAt("probe", over_m, ToolDrive::kDirect)};
    scene->tools[0].radius_m = tool_radius_m;
    tets_ = scene->bodies[0].mesh.tets.size();
    damping_s_ = scene->bodies[0].material.damping_s;
    auto world = World::Create(context, *std::move(scene));
    EXPECT_TRUE(world.ok()) << world.status();
    if (!world.ok()) return;
    world_ = *std::move(world);
    tip_m_ = over_m;
    // Down until it touches, and there until the tissue is at rest.
    for (int i = 0; i < 30; ++i) Step();
    while (Force().z() < 1e-3 && tip_m_.z() > over_m.z() - 0.1) MoveTo(tip_m_ - 0.0005 * Vector3d::UnitZ());
    for (int i = 0; i < 20; ++i) Step();
    touch_m_ = tip_m_;
  }

  bool is_ready() const { return world_ != nullptr && ::testing::Test::HasFailure() == false; }
  size_t tets() const { return tets_; }
  double damping_s() const { return damping_s_; }
  double dt_s() const { return world_->description().dt_s; }
  const Vector3d& tip_m() const { return tip_m_; }
  const Vector3d& touch_m() const { return touch_m_; }
  const Frame& frame() const { return *frame_; }
  Vector3d Force() const { return frame_->tools[0].force_n; }
  void MoveTo(const Vector3d& tip_m) {
    tip_m_ = tip_m;
    Step();
  }
  void Step() {
    ToolCommand command;
    command.device_pose.position_m = tip_m_;
    frame_ = test::Step(*world_, {command});
  }
  /// In steps of at most a millimetre, and then until it is at rest.
  void PressTo(double depth_m, int settle) {
    const double goal_m = touch_m_.z() - depth_m;
    while (tip_m_.z() > goal_m) MoveTo({tip_m_.x(), tip_m_.y(), std::max(goal_m, tip_m_.z() - 0.001)});
    for (int i = 0; i < settle; ++i) Step();
  }

 private:
  std::unique_ptr<World> world_;
  std::shared_ptr<const Frame> frame_;
  size_t tets_ = 0;
  double damping_s_ = 0;
  Vector3d tip_m_ = Vector3d::Zero();
  Vector3d touch_m_ = Vector3d::Zero();
};

Vector3d ForceOf(const LocalModel& model, const Vector3d& tip_m, const Vector3d& velocity_m_per_s = Vector3d::Zero()) {
  FrictionState friction;
  RigidVelocity velocity;
  velocity.linear_m_per_s = velocity_m_per_s;
  return EvaluateLocalModel(model, {.position_m = tip_m}, velocity, friction).force_n;
}

struct Slope {
  double depth_m = 0;
  double force_n = 0;
  double scene_n_per_m = 0;  ///< over the life of a model: 0.5 mm in two steps
  double model_n_per_m = 0;  ///< of the model that the hand has at the start, at the hand's velocity
  double rest_n_per_m = 0;   ///< of the scene once it is at rest again; 0: not measured
  uint32_t inverted_tets = 0;
};

class LocalModelTest : public test::DeviceTest {
 protected:
  static std::vector<Slope> Measure(Pressed& scene, const std::vector<double>& depths_m, bool until_rest, int settle = 40) {
    constexpr double kMove_m = 0.0005;
    constexpr int kSteps = 2;
    std::vector<Slope> slopes;
    for (const double depth_m : depths_m) {
      scene.PressTo(depth_m, settle);
      Slope& slope = slopes.emplace_back();
      const LocalModel model = scene.frame().local_models[0];
      const Vector3d tip_m = scene.tip_m();
      slope.depth_m = depth_m;
      slope.force_n = scene.Force().z();
      slope.inverted_tets = scene.frame().inverted_tets;
      const Vector3d velocity(0, 0, -kMove_m / (kSteps * scene.dt_s()));
      slope.model_n_per_m = (ForceOf(model, tip_m - kMove_m * Vector3d::UnitZ(), velocity) - ForceOf(model, tip_m)).z() / kMove_m;
      for (int i = 1; i <= kSteps; ++i) scene.MoveTo(tip_m - kMove_m * i / kSteps * Vector3d::UnitZ());
      slope.scene_n_per_m = (scene.Force().z() - slope.force_n) / kMove_m;
      if (until_rest) {
        for (int i = 0; i < settle; ++i) scene.Step();
        const double deeper_n = scene.Force().z();
        scene.MoveTo(tip_m);
        for (int i = 0; i < settle; ++i) scene.Step();
        slope.rest_n_per_m = (deeper_n - scene.Force().z()) / kMove_m;
      }
    }
    return slopes;
  }

  static void Print(const char* name, const Pressed& scene, double radius_m, const std::vector<Slope>& slopes) {
    std::printf("%s, %zu tets, tool of %.0f mm\n  depth [mm]  force [N]  scene [N/m]  model [N/m]  model/scene  at rest [N/m]\n", name,
                scene.tets(), radius_m * 1e3);
    for (const Slope& s : slopes) {
      std::printf("  %10.1f  %9.3f  %11.0f  %11.0f  %11.2f  %13.0f%s\n", s.depth_m * 1e3, s.force_n, s.scene_n_per_m, s.model_n_per_m,
                  s.model_n_per_m / s.scene_n_per_m, s.rest_n_per_m, s.inverted_tets > 0 ? "  (inverted tets)" : "");
    }
  }

  static void ExpectNear(const std::vector<Slope>& slopes) {
    for (const Slope& s : slopes) {
      EXPECT_GT(s.model_n_per_m, 0.6 * s.scene_n_per_m) << s.depth_m << " m deep";
      EXPECT_LT(s.model_n_per_m, 1.6 * s.scene_n_per_m) << s.depth_m << " m deep";
    }
  }
};

TEST_F(LocalModelTest, IsAsStiffAsALiver) {
  Pressed scene(context(), "liver", 0, 0, 0.005, {-0.045, -0.01, 0.06});
  ASSERT_TRUE(scene.is_ready());
  const std::vector<Slope> slopes = Measure(scene, {0.001, 0.002, 0.004, 0.008, 0.015}, /*until_rest=*/false, 25);
  Print("liver.json", scene, 0.005, slopes);
  ExpectNear(slopes);
}

TEST_F(LocalModelTest, IsAsStiffAsASlab) {
  Pressed scene(context(), "slab", 0.01, 0, 0.008, {0.003, 0.002, 0.03});
  ASSERT_TRUE(scene.is_ready());
  const std::vector<Slope> slopes = Measure(scene, {0.001, 0.002, 0.004, 0.007, 0.01}, /*until_rest=*/false, 25);
  Print("slab.json at 10 mm", scene, 0.008, slopes);
  ExpectNear(slopes);
}

// The table of docs/haptics.md.
TEST_F(LocalModelTest, SlowIsAsStiffAsScenesOfManyKinds) {
  const struct {
    const char* name;
    double edge_length_m;
    int sweeps;
    double radius_m;
    Vector3d over_m;
    std::vector<double> depths_m;
  } cases[] = {
      {"liver", 0, 0, 0.005, {-0.045, -0.01, 0.06}, {0.0005, 0.001, 0.002, 0.004, 0.007, 0.01, 0.015}},
      {"liver", 0.0105, 60, 0.005, {-0.045, -0.01, 0.06}, {0.001, 0.004, 0.01, 0.015}},
      {"liver", 0, 0, 0.008, {0.05, -0.02, 0.05}, {0.002, 0.004, 0.01, 0.015}},
      {"slab", 0, 0, 0.004, {0, 0, 0.02}, {0.0005, 0.001, 0.002, 0.004, 0.007, 0.01}},
      {"slab", 0.01, 0, 0.008, {0.003, 0.002, 0.03}, {0.0005, 0.001, 0.002, 0.004, 0.007, 0.01}},
      {"torus", 0, 0, 0.005, {0.06, 0, 0.08}, {0.0005, 0.001, 0.002, 0.004, 0.007, 0.01, 0.015}},
  };
  for (const auto& c : cases) {
    Pressed scene(context(), c.name, c.edge_length_m, c.sweeps, c.radius_m, c.over_m);
    ASSERT_TRUE(scene.is_ready());
    const std::vector<Slope> slopes = Measure(scene, c.depths_m, /*until_rest=*/true);
    Print(c.name, scene, c.radius_m, slopes);
    ExpectNear(slopes);
  }
}

// What a station plays between models that come at 24 Hz and 17 ms late, for a hand that presses and turns round twice, against the force
// of the scene at the same places (Forest 2003, section 8.2, and what replaces it).
TEST_F(LocalModelTest, ForetellsTheForceOfTheSceneBetterThanExtrapolation) {
  constexpr int kStepsPerModel = 5;
  constexpr int kLatency = 2;
  Pressed scene(context(), "liver", 0, 0, 0.005, {-0.045, -0.01, 0.06});
  ASSERT_TRUE(scene.is_ready());
  struct Sample {
    Vector3d tip_m;
    Vector3d force_n;
    LocalModel model;
  };
  // Down at 30 mm/s with a stroke to the side, up again, down again.
  const double dt_s = scene.dt_s();
  std::vector<Sample> samples;
  for (int i = 0; i < 90; ++i) {
    const int leg = i / 30;
    const int way = leg == 1 ? 30 - i % 30 : i % 30;
    scene.MoveTo(scene.touch_m() + Vector3d(0.01 * way * dt_s, 0, -0.001 - 0.03 * way * dt_s));
    samples.push_back({scene.tip_m(), scene.Force(), scene.frame().local_models[0]});
  }
  struct Errors {
    double square_sum = 0;
    double max_n = 0;
    int count = 0;
    void Add(double error_n) {
      square_sum += error_n * error_n;
      max_n = std::max(max_n, error_n);
      ++count;
    }
    double rms_n() const { return std::sqrt(square_sum / count); }
  };
  std::array<Errors, 4> errors;  // held, linear in time, linear in position, local model
  for (int i = kStepsPerModel + kLatency; i < static_cast<int>(samples.size()); ++i) {
    // Where the hand turns round, for as long as an old model is used.
    if (i < 30 || i % 30 >= 10) continue;
    const int newest = (i - kLatency) / kStepsPerModel * kStepsPerModel;
    const Sample& a = samples[static_cast<size_t>(newest - kStepsPerModel)];
    const Sample& b = samples[static_cast<size_t>(newest)];
    const Sample& now = samples[static_cast<size_t>(i)];
    const Vector3d velocity = (now.tip_m - samples[static_cast<size_t>(i - 1)].tip_m) / dt_s;
    const double travel_m = (b.tip_m - a.tip_m).norm();
    const Vector3d change_n = b.force_n - a.force_n;
    errors[0].Add((b.force_n - now.force_n).norm());
    errors[1].Add((b.force_n + change_n * (i - newest) / kStepsPerModel - now.force_n).norm());
    errors[2].Add((b.force_n + (travel_m > 1e-9 ? (now.tip_m - b.tip_m).norm() / travel_m : 0) * change_n - now.force_n).norm());
    errors[3].Add((ForceOf(b.model, now.tip_m, velocity) - now.force_n).norm());
  }
  const char* const names[] = {"last force held", "linear in time", "linear in position", "local model"};
  std::printf("error [N] after the hand has turned   rms     max\n");
  for (size_t m = 0; m < 4; ++m) std::printf("%-36s %.4f  %.4f\n", names[m], errors[m].rms_n(), errors[m].max_n);
  for (size_t m = 0; m < 3; ++m) {
    EXPECT_LT(errors[3].rms_n(), 0.6 * errors[m].rms_n()) << names[m];
    EXPECT_LT(errors[3].max_n, errors[m].max_n) << names[m];
  }
}

}  // namespace
}  // namespace palpate::sim::local_model_test
