// What a scene must survive: deep and fast tools, one iteration, long steps, scrambled states, soft and stiff, nearly incompressible
// tissue.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::survival_test {
namespace {

using Eigen::Vector3d;

/// The largest depth of tissue in a tool that is allowed: one contact margin. A contact pushes from one margin off the surface on, and has
/// 41 times its stiffness where it would go deeper than that.
constexpr double kPenetrationLimit_m = 0.001;

struct LiverOptions {
  double tets = 600;
  MaterialModel model = MaterialModel::kStableNeoHookean;
  double young_modulus_pa = 5000;
  double poisson_ratio = 0.45;
  double damping_s = 0.005;
};

const char* Name(MaterialModel model) { return model == MaterialModel::kStableNeoHookean ? "neo-Hookean" : "corotated"; }

class SurvivalTest : public test::DeviceTest {
 protected:
  /// The liver of scenes/liver.json, without gravity: held at its back, its lowest part and the end of the left lobe.
  static SceneDescription Liver(const LiverOptions& options) {
    SceneDescription scene;
    BodyDescription body;
    body.name = "liver";
    auto mesh = GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, options.tets));
    EXPECT_TRUE(mesh.ok()) << mesh.status();
    if (!mesh.ok()) return scene;
    body.mesh = *std::move(mesh);
    body.material.model = options.model;
    body.material.young_modulus_pa = options.young_modulus_pa;
    body.material.poisson_ratio = options.poisson_ratio;
    body.material.damping_s = options.damping_s;
    const Eigen::AlignedBox3d held[] = {{Vector3d(-0.11, 0.045, -0.06), Vector3d(0.11, 0.08, 0.06)},
                                        {Vector3d(-0.11, -0.07, -0.06), Vector3d(0.11, 0.08, -0.04)},
                                        {Vector3d(0.08, 0, -0.06), Vector3d(0.11, 0.08, 0.06)}};
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
      if (std::any_of(std::begin(held), std::end(held), [&](const auto& box) { return box.contains(body.mesh.vertices[v]); })) {
        body.fixed_vertices.push_back(v);
      }
    }
    EXPECT_GT(body.fixed_vertices.size(), 5U);
    scene.bodies.push_back(std::move(body));
    scene.gravity_m_per_s2.setZero();
    return scene;
  }

  /// A tool above the thickest place of the liver, pointing down.
  static ToolDescription ToolAbove(const SceneDescription& scene, ToolDrive drive, double* surface_z = nullptr) {
    double top = -1;
    Vector3d place = Vector3d::Zero();
    for (const Vector3d& v : scene.bodies[0].mesh.vertices) {
      if (v.z() > top) {
        top = v.z();
        place = v;
      }
    }
    ToolDescription tool = test::ToolAt("probe", place + Vector3d(0, 0, 0.02), drive);
    if (surface_z != nullptr) *surface_z = top;
    return tool;
  }

  static std::shared_ptr<const Frame> Step(World& world, const ToolCommand* command = nullptr) {
    const std::vector<const ToolCommand*> commands(world.description().tools.size(), command);
    auto frame = world.Step(commands);
    EXPECT_TRUE(frame.ok()) << frame.status();
    return frame.ok() ? *frame : nullptr;
  }

  static double Deviation(World& world) {
    const auto positions = world.ReadVolumePositions(0);
    EXPECT_TRUE(positions.ok()) << positions.status();
    if (!positions.ok()) return 1e9;
    const auto& rest = world.description().bodies[0].mesh.vertices;
    double worst = 0;
    for (size_t v = 0; v < rest.size(); ++v) {
      const Vector3d x((*positions)[3 * v], (*positions)[3 * v + 1], (*positions)[3 * v + 2]);
      if (!x.allFinite()) return 1e9;
      worst = std::max(worst, (x - rest[v]).norm());
    }
    return worst;
  }

  /// Steps until the body is within `goal` of its rest shape and not inverted; the number of steps, or -1.
  static int StepsToRest(World& world, int limit, double goal_m) {
    for (int i = 1; i <= limit; ++i) {
      const auto frame = Step(world);
      if (frame == nullptr) return -1;
      if (frame->inverted_tets == 0 && frame->max_speed_m_per_s < 0.05 && Deviation(world) < goal_m) return i;
    }
    return -1;
  }

  struct PushResult {
    double max_penetration_m = 0;
    double max_force_n = 0;
    double deviation_m = 0;
    int steps_to_rest = -1;
    bool finite = true;
  };

  /// Pushes the tool 5 cm into the surface within 0.5 s, holds, and pulls it out.
  PushResult Push(SceneDescription scene, ToolDrive drive) {
    PushResult result;
    scene.tools.push_back(ToolAbove(scene, drive));
    auto world = World::Create(context(), scene);
    EXPECT_TRUE(world.ok()) << world.status();
    if (!world.ok()) return result;
    ToolCommand command;
    const Vector3d start = scene.tools[0].rest_pose.position_m;
    const double depth = 0.02 + 0.05;
    const int push_steps = static_cast<int>(0.5 / scene.dt_s);
    for (int i = 0; i < 4 * push_steps; ++i) {
      const double in = std::min(1.0, static_cast<double>(i) / push_steps);
      const double out = std::clamp(static_cast<double>(i - 2 * push_steps) / push_steps, 0.0, 1.0);
      command.device_pose.position_m = start - Vector3d(0, 0, depth * (in - out));
      const auto frame = Step(**world, &command);
      if (frame == nullptr) {
        result.finite = false;
        return result;
      }
      result.max_penetration_m = std::max(result.max_penetration_m, frame->max_penetration_m);
      result.max_force_n = std::max(result.max_force_n, frame->tools[0].force_n.norm());
      result.finite &= frame->tools[0].force_n.allFinite() && std::isfinite(frame->kinetic_energy_j);
    }
    result.steps_to_rest = StepsToRest(**world, static_cast<int>(4 / scene.dt_s), 0.001);
    result.deviation_m = Deviation(**world);
    return result;
  }

  void ExpectSurvival(const std::string& what, const PushResult& r, double penetration_limit_m = kPenetrationLimit_m) {
    std::printf("%-58s penetration %.2f mm, force %.2f N, back after %d steps within %.2f mm\n", what.c_str(), r.max_penetration_m * 1e3,
                r.max_force_n, r.steps_to_rest, r.deviation_m * 1e3);
    SCOPED_TRACE(what);
    EXPECT_TRUE(r.finite);
    EXPECT_GT(r.max_force_n, 0.05) << "the tool must touch";
    EXPECT_LE(r.max_penetration_m, penetration_limit_m);
    EXPECT_GT(r.steps_to_rest, 0) << "the shape did not come back";
  }
};

TEST_F(SurvivalTest, TissueSurvivesAToolFiveCentimetresDeep) {
  for (const ToolDrive drive : {ToolDrive::kCoupled, ToolDrive::kDirect}) {
    const char* how = drive == ToolDrive::kCoupled ? "coupled" : "direct";
    ExpectSurvival(absl::StrCat("600 tets, ", how), Push(Liver({}), drive));
  }
}

TEST_F(SurvivalTest, SlowAFinerLiverSurvivesAToolFiveCentimetresDeep) {
  for (const ToolDrive drive : {ToolDrive::kCoupled, ToolDrive::kDirect}) {
    for (const MaterialModel model : {MaterialModel::kStableNeoHookean, MaterialModel::kCorotated}) {
      const char* how = drive == ToolDrive::kCoupled ? "coupled" : "direct";
      ExpectSurvival(absl::StrCat("2500 tets, ", how, ", ", Name(model)), Push(Liver({.tets = 2500, .model = model}), drive));
    }
  }
}

TEST_F(SurvivalTest, TissueSurvivesOneIterationAndLongSteps) {
  SceneDescription scene = Liver({});
  scene.solver.iterations = 1;
  ExpectSurvival("600 tets, coupled, 1 iteration", Push(scene, ToolDrive::kCoupled));
  scene = Liver({});
  scene.dt_s = 1.0 / 30;
  ExpectSurvival("600 tets, coupled, dt 1/30 s", Push(scene, ToolDrive::kCoupled));
  // Both at once: one sweep reaches only the neighbours of what it touches, so the state is far from a solution; it must stay finite.
  scene.solver.iterations = 1;
  const PushResult both = Push(scene, ToolDrive::kCoupled);
  std::printf("600 tets, coupled, 1 iteration and dt 1/30 s: force %.2f N, penetration %.2f mm, deviation %.2f mm after 4 s\n",
              both.max_force_n, both.max_penetration_m * 1e3, both.deviation_m * 1e3);
  EXPECT_TRUE(both.finite);
  EXPECT_LT(both.deviation_m, 0.2);
}

TEST_F(SurvivalTest, SoftAndStiffTissueSurvivesCompressibleOrNot) {
  for (const double e : {1e3, 1e6}) {
    for (const double nu : {0.0, 0.49}) {
      ExpectSurvival(absl::StrCat("600 tets, coupled, E ", e, ", nu ", nu),
                     Push(Liver({.young_modulus_pa = e, .poisson_ratio = nu}), ToolDrive::kCoupled));
    }
  }
}

TEST_F(SurvivalTest, SlowEveryMaterialSurvivesADeepTool) {
  for (const MaterialModel model : {MaterialModel::kStableNeoHookean, MaterialModel::kCorotated}) {
    for (const double e : {1e3, 1e4, 1e5, 1e6}) {
      for (const double nu : {0.0, 0.3, 0.49, 0.495}) {
        const bool is_above = model == MaterialModel::kStableNeoHookean && (e == 1e3 || e == 1e6) && (nu == 0 || nu == 0.49);
        if (is_above) continue;  // SoftAndStiffTissueSurvivesCompressibleOrNot
        const std::string what = absl::StrCat("600 tets, coupled, ", Name(model), ", E ", e, ", nu ", nu);
        const PushResult result = Push(Liver({.model = model, .young_modulus_pa = e, .poisson_ratio = nu}), ToolDrive::kCoupled);
        // Known limit: soft corotated tissue of high Poisson ratio, crushed that deep, can stay folded, since that model's volume term
        // vanishes for some folded elements.
        const bool may_fold = model == MaterialModel::kCorotated && nu > 0.4 && e < 5e4;
        if (may_fold) {
          std::printf("%s: known limit, off by %.2f mm\n", what.c_str(), result.deviation_m * 1e3);
          EXPECT_TRUE(result.finite) << what;
          EXPECT_LE(result.max_penetration_m, kPenetrationLimit_m) << what;
        } else {
          ExpectSurvival(what, result);
        }
      }
    }
  }
}

enum class Scramble { kRandom, kPoint, kMirrored };
constexpr const char* kScrambleNames[] = {"random", "one point", "mirrored"};

std::vector<float> Scrambled(const TetMesh& mesh, Scramble how, uint64_t seed) {
  std::mt19937_64 random(seed);
  Eigen::AlignedBox3d box;
  for (const Vector3d& v : mesh.vertices) box.extend(v);
  std::uniform_real_distribution<double> unit(0, 1);
  std::vector<float> x;
  for (const Vector3d& v : mesh.vertices) {
    Vector3d p = box.center();  // kPoint
    switch (how) {
      case Scramble::kRandom:
        p = box.min() + Vector3d(unit(random), unit(random), unit(random)).cwiseProduct(box.sizes());
        break;
      case Scramble::kPoint:
        break;
      case Scramble::kMirrored:
        p = Vector3d(2 * box.center().x() - v.x(), v.y(), v.z());
        break;
    }
    for (int axis = 0; axis < 3; ++axis) x.push_back(static_cast<float>(p[axis]));
  }
  return x;
}

TEST_F(SurvivalTest, ScrambledBodiesFindTheirShape) {
  for (const MaterialModel model : {MaterialModel::kStableNeoHookean, MaterialModel::kCorotated}) {
    const SceneDescription scene = Liver({.model = model});
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    for (const Scramble how : {Scramble::kRandom, Scramble::kPoint, Scramble::kMirrored}) {
      SCOPED_TRACE(testing::Message() << Name(model) << ", " << kScrambleNames[static_cast<int>(how)]);
      PALPATE_ASSERT_OK(world->Reset().status());
      PALPATE_ASSERT_OK(world->WriteVolumePositions(0, Scrambled(scene.bodies[0].mesh, how, 5)));
      const int steps = StepsToRest(*world, 1500, 0.001);
      std::printf("scrambled (%s), %s, 600 tets: %d steps, off by %.3f mm, %u tets inverted\n", kScrambleNames[static_cast<int>(how)],
                  Name(model), steps, Deviation(*world) * 1e3, world->CurrentFrame()->inverted_tets);
      EXPECT_GT(steps, 0);
      EXPECT_LT(Deviation(*world), 0.001);
      EXPECT_EQ(world->CurrentFrame()->inverted_tets, 0U);
    }
  }
}

TEST_F(SurvivalTest, SlowScrambledBodiesOfManyKindsComeBack) {
  int failures = 0;
  for (const double tets : {600.0, 2500.0}) {
    for (const MaterialModel model : {MaterialModel::kStableNeoHookean, MaterialModel::kCorotated}) {
      for (const double e : {1e3, 1e6}) {
        for (const double nu : {0.3, 0.49}) {
          const SceneDescription scene = Liver({.tets = tets, .model = model, .young_modulus_pa = e, .poisson_ratio = nu});
          PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
          for (const Scramble how : {Scramble::kRandom, Scramble::kPoint, Scramble::kMirrored}) {
            PALPATE_ASSERT_OK(world->Reset().status());
            PALPATE_ASSERT_OK(world->WriteVolumePositions(0, Scrambled(scene.bodies[0].mesh, how, 11)));
            // Known limit: stiff, nearly incompressible neo-Hookean tissue can stay in a fold from which every way out is uphill.
            const bool may_fold = model == MaterialModel::kStableNeoHookean && e > 5e5 && nu > 0.45;
            const int steps = StepsToRest(*world, may_fold ? 600 : 2400, 0.001);
            std::printf("scrambled (%s), %s, %.0f tets, E %.0f, nu %.2f: %d steps, off by %.3f mm, %u tets inverted\n",
                        kScrambleNames[static_cast<int>(how)], Name(model), tets, e, nu, steps, Deviation(*world) * 1e3,
                        world->CurrentFrame()->inverted_tets);
            EXPECT_LT(Deviation(*world), 1) << "positions must stay finite";
            failures += steps < 0 && !may_fold;
          }
        }
      }
    }
  }
  EXPECT_EQ(failures, 0) << "of the 42 starts outside the known limit";
}

}  // namespace
}  // namespace palpate::sim::survival_test
