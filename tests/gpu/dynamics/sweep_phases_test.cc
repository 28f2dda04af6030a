// Sweeps in one launch, colours and all else as phases that groups take by tickets: the bits are those of a launch for each, whoever takes
// what. And a host that runs ahead of the checks between sweeps: the bits are those of one that waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/shell_models.h"
#include "tests/gpu/dynamics/surface_models.h"
#include "tests/gpu/dynamics/tissue_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::sweep_phases_test {
namespace {

constexpr TestMaterial kSoft{.young_modulus_pa = 5000, .damping_s = 0.01};

/// A scene, and what is done to it.
struct Case {
  std::string name;
  TissueModel model;
  TissueOptions options{.iterations = 11};
  std::vector<ColliderDescription> colliders = {};
  std::vector<PlaneObstacle> planes = {};
  std::vector<TissueAnchor> anchors = {};
  uint32_t clip_count = 0;
  double speed_m_per_s = 0;  // of the colliders, down
  std::vector<float> velocities_m_per_s = {};
  bool meets = false;  // surfaces of bodies, or of tools
};

/// A driven and a coupled tool above the origin.
std::vector<ColliderDescription> TwoTools(double height_m) {
  return {{.radius_m = 0.008, .tip_m = {-0.015, 0, height_m}, .axis_m = {0, 0.01, 0.05}},
          {.radius_m = 0.006,
           .tip_m = {0.02, 0, height_m},
           .axis_m = {0, 0, 0.05},
           .coupling_n_per_m = 300,
           .damping_n_s_per_m = 8,
           .mass_kg = 0.05}};
}

TissueModel Block(const TestMaterial& material) {
  TissueModel model = BoxModel({4, 3, 3}, {0.08, 0.06, 0.04}, {-0.04, -0.03, 0}, material);
  for (size_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = model.rest_m[v][2] == 0 ? 1 : 0;
  return model;
}

Case Pressed() {
  return {.name = "pressed",
          .model = Block(kSoft),
          .colliders = TwoTools(0.052),
          .planes = {{{0, 0, 1, 0}}},
          .speed_m_per_s = 0.3,
          .meets = true};
}

/// Two boxes, one on the other, and a tool that presses them together.
Case Stacked(double fall_m_per_s) {
  Case c{.name = fall_m_per_s > 0 ? "falling on each other" : "stacked",
         .model = SceneOf({Block(kSoft), BoxModel({3, 2, 2}, {0.06, 0.04, 0.02}, {-0.03, -0.02, 0.0408}, kSoft)}, true),
         .colliders = TwoTools(0.072),
         .speed_m_per_s = 0.2,
         .meets = true};
  for (const auto& r : c.model.rest_m) {
    c.velocities_m_per_s.insert(c.velocities_m_per_s.end(), {0, 0, r[2] > 0.0404 ? -static_cast<float>(fall_m_per_s) : 0.0F});
  }
  return c;
}

Case Clipped() {
  Case c{.name = "held by a clip and a tool", .model = Block(kSoft), .colliders = TwoTools(0.06)};
  for (uint32_t v = 0; v < c.model.rest_m.size() && c.anchors.size() < 12; ++v) {
    if (c.model.fixed[v] != 0) continue;
    const uint32_t holder = c.anchors.size() % 3 == 0 ? 2 : static_cast<uint32_t>(c.anchors.size() % 3 - 1);
    const std::array<double, 3> tip_m = holder == 2 ? std::array<double, 3>{0, 0, 0} : c.colliders[holder].tip_m;
    TissueAnchor anchor{.vertex = v, .holder = holder, .stiffness_n_per_m = 50, .max_force_n = 1};
    for (size_t k = 0; k < 3; ++k) anchor.target_m[k] = c.model.rest_m[v][k] - tip_m[k];
    c.anchors.push_back(anchor);
  }
  c.clip_count = 1;
  c.speed_m_per_s = -0.1;
  return c;
}

Case Sheet() {
  Case c{.name = "a sheet", .model = {}, .colliders = TwoTools(0.009), .speed_m_per_s = 0.2};
  AddSheet(&c.model, 6, 5, {0.06, 0.05}, {-0.03, -0.025, 0}, {});
  for (uint32_t v = 0; v < c.model.rest_m.size(); ++v) c.model.fixed[v] = v < 7 ? 1 : 0;
  return c;
}

/// Two rigid boxes on a soft one, and a tool above them.
Case WithRigidBodies() {
  Case c{.name = "rigid bodies on tissue",
         .model = SceneOf({Block(kSoft)}, true),
         .options = {.iterations = 11, .coarse_nodes = 64},
         .colliders = TwoTools(0.075),
         .planes = {{{0, 0, 1, 0}}},
         .speed_m_per_s = 0.2,
         .meets = true};
  AddRigidBox(&c.model, {0.03, 0.03, 0.02}, {-0.018, 0, 0.0507}, 0.02);
  AddRigidBox(&c.model, {0.03, 0.03, 0.02}, {0.018, 0.005, 0.0509}, 0.03);
  return c;
}

Case OfEnergy(TissueEnergy energy) {
  TestMaterial material = kSoft;
  material.energy = energy;
  Case c = Pressed();
  c.name = Name(energy);
  c.model = Block(material);
  return c;
}

Case Corrected() {
  Case c = Pressed();
  c.name = "corrected";
  c.options.coarse_nodes = 64;
  c.options.acceleration = 0.85;
  return c;
}

/// Tets read displacements.
Case Stiff(TissueEnergy energy, uint32_t coarse_nodes) {
  Case c = Pressed();
  c.name = absl::StrCat("stiff ", Name(energy), ", ", coarse_nodes, " nodes");
  c.model = Block({.young_modulus_pa = 2e6, .damping_s = 0.01, .energy = energy});
  c.options.coarse_nodes = coarse_nodes;
  return c;
}

Case KeepingVolume() {
  Case c = Stacked(0);
  c.name = "keeping volume";
  c.model.volume_stiffness_pa = {1e5, 0};
  return c;
}

Case WithLoad() {
  Case c = Pressed();
  c.name = "loaded";
  c.options.acceleration = 0;
  TissueLoad load{};
  for (uint32_t v = 0; v < c.model.rest_m.size(); ++v) {
    if (c.model.rest_m[v][2] > 0.039) load.vertices.push_back(v);
  }
  load.pressure_pa = 200;
  load.duration_s = 1;
  c.model.loads = {load};
  return c;
}

/// Nothing can move but the tools.
Case Fixed() {
  Case c = Pressed();
  c.name = "no colours";
  std::fill(c.model.fixed.begin(), c.model.fixed.end(), uint8_t{1});
  c.model.may_be_at_rest = true;
  return c;
}

/// A cube of six tets: most colours are one vertex.
Case OneCube() {
  return {
      .name = "one vertex a colour", .model = BoxModel({1, 1, 1}, {0.03, 0.03, 0.03}, {0, 0, 0}, kSoft), .planes = {{{0, 0, 1, -0.002F}}}};
}

class SweepPhasesTest : public test::DeviceTest {
 protected:
  static constexpr int kSteps = 5;

  std::unique_ptr<TissueSolver> Make(const Case& c, const TissueTuning& tuning) {
    auto solver = TissueSolver::Create(context(), c.model, c.options, c.colliders, c.planes, tuning);
    EXPECT_TRUE(solver.ok()) << solver.status();
    if (!solver.ok()) return nullptr;
    if (!c.anchors.empty()) PALPATE_EXPECT_OK((*solver)->SetAnchors(c.anchors, c.clip_count));
    if (!c.velocities_m_per_s.empty()) {
      std::vector<float> positions;
      for (const auto& r : c.model.rest_m) {
        for (const double x : r) positions.push_back(static_cast<float>(x));
      }
      PALPATE_EXPECT_OK((*solver)->WriteState(positions, c.velocities_m_per_s));
    }
    return *std::move(solver);
  }

  static std::vector<ColliderTarget> Targets(const Case& c, int step) {
    std::vector<ColliderTarget> targets;
    for (const ColliderDescription& d : c.colliders) targets.push_back({d.tip_m, d.axis_m});
    for (ColliderTarget& t : targets) t.tip_m[2] -= c.speed_m_per_s * step * c.options.dt_s;
    return targets;
  }

  /// What can be told of a step, to compare.
  struct Told {
    uint64_t hash = 0;
    std::vector<std::array<float, 4>> tips;
    std::vector<std::tuple<uint32_t, uint32_t, Float4>> contacts;
    std::vector<std::tuple<uint32_t, uint32_t, uint32_t, Float4>> surface_contacts;
    uint32_t detections = 0, filter_rounds = 0, truncated = 0;
    uint64_t waits = 0;
    bool operator==(const Told& other) const {
      return hash == other.hash && tips == other.tips && contacts == other.contacts && surface_contacts == other.surface_contacts &&
             detections == other.detections && filter_rounds == other.filter_rounds && truncated == other.truncated;
    }
  };

  std::vector<Told> Run(const Case& c, const TissueTuning& tuning) {
    std::vector<Told> all;
    std::unique_ptr<TissueSolver> solver = Make(c, tuning);
    for (int i = 0; solver != nullptr && i < kSteps; ++i) {
      const uint64_t before = context()->commands().waits;
      const absl::StatusOr<TissueStep> step = solver->Step(Targets(c, i));
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) break;
      Told told;
      told.hash = step->hash;
      told.detections = step->surface.detections;
      told.filter_rounds = step->surface.filter_rounds;
      told.truncated = step->surface.truncated_vertices;
      told.waits = context()->commands().waits - before;
      for (const Collider& k : step->colliders) told.tips.push_back({k.tip.x, k.tip.y, k.tip.z, k.velocity.z});
      for (const ContactReport& r : step->contacts) told.contacts.emplace_back(r.collider, r.triangle, r.force);
      for (const SurfaceReport& r : step->surface_contacts) told.surface_contacts.emplace_back(r.kind, r.a, r.b, r.force);
      all.push_back(std::move(told));
    }
    return all;
  }

  /// With phases: by one group, some, and far more than there are compute units; in small chunks and in one.
  static std::vector<TissueTuning> Phased(const TissueTuning& plain) {
    std::vector<TissueTuning> all;
    for (const auto& [groups, chunk] : {std::pair{1U, 16U}, {2U, 1U}, {1000U, 3U}, {2U, 100000U}}) {
      all.push_back(plain);
      all.back().phase_groups = groups;
      all.back().phase_chunk = chunk;
    }
    return all;
  }

  void ExpectSameBits(const Case& c, const TissueTuning& plain, const std::vector<TissueTuning>& phased) {
    SCOPED_TRACE(c.name);
    const std::vector<Told> reference = Run(c, plain);
    ASSERT_EQ(reference.size(), size_t{kSteps});
    size_t contacts = 0;
    for (const Told& told : reference) contacts += told.contacts.size() + told.surface_contacts.size();
    if (c.meets) {
      EXPECT_GT(contacts, 0U);
    }
    for (const TissueTuning& tuning : phased) {
      SCOPED_TRACE(testing::Message() << tuning.phase_groups << " groups, chunks of " << tuning.phase_chunk << ", teams of "
                                      << tuning.team);
      const std::vector<Told> told = Run(c, tuning);
      ASSERT_EQ(told.size(), reference.size());
      for (size_t i = 0; i < told.size(); ++i) ASSERT_TRUE(told[i] == reference[i]) << "step " << i;
    }
  }
};

TEST_F(SweepPhasesTest, TheBitsAreThoseOfALaunchForEachColor) {
  const TissueTuning plain{};
  for (const Case& c : {Pressed(), Clipped(), Sheet(), WithLoad(), Fixed(), OneCube()}) ExpectSameBits(c, plain, Phased(plain));
}

TEST_F(SweepPhasesTest, SoTheyAreWithAllThatStandsBetweenSweeps) {
  const TissueTuning plain{};
  std::vector<TissueTuning> phased = Phased(plain);
  phased = {phased[1], phased[2]};
  for (const Case& c : {Stacked(0), OfEnergy(TissueEnergy::kCorotated), Corrected(), KeepingVolume(),
                        Stiff(TissueEnergy::kStableNeoHookean, 64), Stiff(TissueEnergy::kCorotated, 0)}) {
    ExpectSameBits(c, plain, phased);
  }
}

#ifdef PALPATE_NATIVE_KERNELS  // PoCL cannot build groups of many work-items with barriers in branches
TEST_F(SweepPhasesTest, TeamsOfWorkItemsHaveThemToo) {
  const TissueTuning plain{
      .lanes = 1, .team = 4, .group = 16, .list_group = 8, .shape_group = 8, .partials = 64, .phase_group = 16, .phase_chunk = 1};
  std::vector<TissueTuning> phased(3, plain);
  phased[0].phase_groups = 1;
  phased[1].phase_groups = 3;
  phased[1].phase_chunk = 10;  // no multiple of the teams of a group
  phased[2].phase_groups = 200;
  ExpectSameBits(Stacked(0), plain, phased);
}
#endif

// Rigid bodies move in the launch of the colours, whose checks the host waits for; impacts make it look again.
TEST_F(SweepPhasesTest, RigidBodiesMoveInThemToo) {
  const TissueTuning plain{};
  for (const double fall_m_per_s : {0.0, 0.3, 3.0}) {
    Case c = WithRigidBodies();
    for (TissueRigidBody& body : c.model.rigid) body.velocity_m_per_s[2] = -fall_m_per_s;
    ExpectSameBits(c, plain, Phased(plain));
  }
  Case stiff = WithRigidBodies();
  stiff.name = "rigid bodies on stiff tissue";
  stiff.model = SceneOf({Block({.young_modulus_pa = 2e6, .damping_s = 0.01})}, true);
  AddRigidBox(&stiff.model, {0.03, 0.03, 0.02}, {0, 0, 0.0507}, 0.02);
  ExpectSameBits(stiff, plain, Phased(plain));
}

TEST_F(SweepPhasesTest, SweepsOfRigidBodiesAndTissueShareLaunches) {
  TissueTuning tuning{};
  tuning.phase_groups = 2;
  const auto launches_of = [&](uint32_t iterations) {
    Case c = WithRigidBodies();
    c.options = {.iterations = iterations, .surface_max_detections = 1};  // so there are no looks between sweeps
    std::unique_ptr<TissueSolver> solver = Make(c, tuning);
    uint64_t launches = 0;
    for (int i = 0; i < kSteps && solver != nullptr; ++i) {
      const uint64_t before = context()->commands().launches;
      PALPATE_EXPECT_OK(solver->Step(Targets(c, 0)).status());
      launches = context()->commands().launches - before;
    }
    return launches;
  };
  const uint64_t of_20 = launches_of(20);
  EXPECT_GT(of_20, 0U);
  EXPECT_LT(launches_of(40), of_20 + 20) << "twenty sweeps more are not twenty launches more";
}

// Surfaces that meet so fast that moves are held back: the host that ran ahead goes back to the check that found it.
TEST_F(SweepPhasesTest, AHostThatRanAheadGoesBackToTheCheckThatHeldTheStepUp) {
  const TissueTuning plain{};
  size_t detected_again = 0;
  size_t filtered = 0;
  for (const double fall_m_per_s : {0.3, 1.0, 3.0}) {
    Case c = Stacked(fall_m_per_s);
    c.options.iterations = 20;
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(c, plain, {Phased(plain)[2]}));
    for (const Told& told : Run(c, Phased(plain)[2])) {
      detected_again += told.detections > 1 ? 1 : 0;
      filtered += told.filter_rounds > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(detected_again, 2U);
  EXPECT_GT(filtered, 1U);
}

TEST_F(SweepPhasesTest, AStepWaitsTwice) {
  TissueTuning tuning{};
  tuning.phase_groups = 2;
  Case c = Pressed();
  c.speed_m_per_s = 0.02;
  c.model.body_triangle_begin = {0, static_cast<uint32_t>(c.model.surface_triangles.size())};
  c.model.self_collision = {1};
  c.options.self_pairs = SelfPairsUse::kNever;
  const std::vector<Told> told = Run(c, tuning);
  ASSERT_EQ(told.size(), size_t{kSteps});
  for (size_t i = 2; i < told.size(); ++i) EXPECT_EQ(told[i].waits, 2U) << "step " << i;
  // With lists of near pairs a third time where one does not reach, and the search is done again.
  c.options.self_pairs = SelfPairsUse::kAutomatic;
  const std::vector<Told> listed = Run(c, tuning);
  ASSERT_EQ(listed.size(), told.size());
  size_t again = 0;
  for (size_t i = 2; i < listed.size(); ++i) {
    EXPECT_TRUE(listed[i] == told[i]) << "step " << i;
    EXPECT_GE(listed[i].waits, 2U);
    again += listed[i].waits - 2;
  }
  EXPECT_LE(again, 1U);
}

}  // namespace
}  // namespace palpate::gpu::sweep_phases_test
