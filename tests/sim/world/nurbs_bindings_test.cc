// Control points of NURBS shells that tissue carries, in scenes: through edits, checkpoints and joints.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "sim/world/world.h"
#include "tests/sim/world/nurbs_shells.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::nurbs_bindings_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using testing::HasSubstr;

class NurbsBindings : public test::DeviceTest {
 protected:
  /// A block on its base, through whose side a sheet sticks: what of it lies in the block is bound.
  static SceneDescription Flag() {
    SceneDescription scene;
    scene.contact.check_intersections = true;
    scene.bodies = {
        BoxBody("block", {0, 0, 0.02}, {6, 5, 4}, {0.06, 0.05, 0.04}),
        test::ShellBody("sheet", test::FlatSheet(9, 6, 0.06, 0.03), {0.03, 0.001, 0.0253}, test::ShellMaterial(2e5, 0.3, 0.02), 0.0015)};
    BodyDescription& block = scene.bodies[0];
    block.material.young_modulus_pa = 20000;
    block.material.mass_damping_per_s = 4;
    for (uint32_t v = 0; v < block.mesh.vertices.size(); ++v) {
      if (block.mesh.vertices[v].z() < 1e-6) block.fixed_vertices.push_back(v);
    }
    scene.bodies[1].material.mass_damping_per_s = 4;
    Bind(&scene, [](const Vector3d& q) { return q.x() < 0.0299; });
    for (const uint32_t j : scene.bodies[1].nurbs_shell->bound[0].control) {
      const Vector3d q(scene.bodies[1].nurbs_shell->model->rest_m[j].data());
      block.markers.push_back({.name = absl::StrCat("at ", j), .position_m = q});
    }
    return scene;
  }
  static void Bind(SceneDescription* scene, const std::function<bool(const Vector3d&)>& is_bound) {
    NurbsShellDescription& shell = *scene->bodies[1].nurbs_shell;
    shell.bound = {{.body = 0, .control = {}, .tets = {}, .ignores_contact = true}};
    shell.supports = {{.name = "root", .region = 0, .kind = NurbsSupportKind::kBound, .carrier = 0, .control = {}}};
    for (uint32_t j = 0; j < shell.model->control_count(); ++j) {
      if (is_bound(Vector3d(shell.model->rest_m[j].data()))) shell.bound[0].control.push_back(j);
    }
    shell.supports[0].control = shell.bound[0].control;
  }
  void Make(const SceneDescription& scene) {
    scene_ = scene;
    PALPATE_TEST_ASSIGN(world_, World::Create(context(), scene));
  }
  const Frame& Run(int steps) {
    for (int i = 0; i < steps && !HasFailure(); ++i) {
      frame_ = test::Step(*world_, {});
      EXPECT_EQ(frame_->contact_statistics.intersection_count, 0U);
    }
    return *frame_;
  }
  const NurbsShellDescription& shell() const { return *scene_.bodies[1].nurbs_shell; }
  static Vector3d Control(const Frame& frame, uint32_t j) {
    const auto& c = frame.nurbs.control_m[1];
    return {c[3 * j], c[3 * j + 1], c[3 * j + 2]};
  }
  /// Markers of the block ride at the rest places of bound control points. How far the two are apart at most, and how many pairs there are.
  struct Apart {
    double largest_m = 0;
    size_t count = 0, released = 0;
  };
  Apart FromMarkers() const {
    Apart out;
    const std::vector<uint32_t>& bound = shell().bound[0].control;
    for (size_t i = 0; i < bound.size(); ++i) {
      const FrameMarker& marker = frame_->markers[i];
      out.released += marker.is_released ? 1 : 0;
      if (marker.is_released) continue;
      ++out.count;
      out.largest_m = std::max(out.largest_m, (marker.position_m - Control(*frame_, bound[i])).norm());
    }
    return out;
  }
  std::vector<EditOutcome> Apply(const Edit& edit) {
    auto outcomes = world_->Apply(std::vector<Edit>{edit});
    EXPECT_TRUE(outcomes.ok()) << outcomes.status();
    frame_ = world_->CurrentFrame();
    return outcomes.ok() ? *std::move(outcomes) : std::vector<EditOutcome>(1);
  }
  void TearDown() override {
    world_.reset();
    DeviceTest::TearDown();
  }

  SceneDescription scene_;
  std::unique_ptr<World> world_;
  std::shared_ptr<const Frame> frame_;
};

/// A blade along y goes down at x.
InciseEdit Cut(double x_m, double from_m, double to_m) {
  InciseEdit cut;
  cut.edges_m.push_back({Vector3d(x_m, -0.05, from_m), Vector3d(x_m, 0.05, from_m)});
  cut.edges_m.push_back({Vector3d(x_m, -0.05, to_m), Vector3d(x_m, 0.05, to_m)});
  return cut;
}

constexpr double kRounding_m = 3e-8;  // of floats, and of weights that an edit works out anew

TEST_F(NurbsBindings, ControlPointsRideInTheTissueThroughEdits) {
  Make(Flag());
  ASSERT_GT(shell().bound[0].control.size(), 20U);
  for (int i = 0; i < 10; ++i) {
    Run(1);
    EXPECT_LT(FromMarkers().largest_m, kRounding_m) << i;
  }
  const double sunk_m = 0.0253 - Control(*frame_, shell().bound[0].control.back()).z();
  EXPECT_GT(sunk_m, 1e-4) << "they move at all";
  Apply({.body = 0, .what = RefineEdit{BallRegion{{0.01, 0, 0.025}, 0.01}, 0.006}});
  EXPECT_LT(FromMarkers().largest_m, 2e-6) << "copies of vertices may jump a little";
  Run(5);
  EXPECT_LT(FromMarkers().largest_m, kRounding_m);
  EXPECT_EQ(FromMarkers().count, shell().bound[0].control.size());
  Apply({.body = 0, .what = Cut(0.02, 0.05, 0.03)});
  Run(5);
  EXPECT_LT(FromMarkers().largest_m, kRounding_m);
  EXPECT_EQ(FromMarkers().count, shell().bound[0].control.size());
}

/// The tissue carries all of the sheet, also what of it hangs out; without the tissue there is nothing that it acts on.
TEST_F(NurbsBindings, SupportsTellWhatTheTissueCarries) {
  SceneDescription scene = Flag();
  scene.solver.iterations = 40;
  Make(scene);
  Run(300);
  double weight_n = 0;
  Vector3d moment_n_m = Vector3d::Zero();  // about the origin
  for (uint32_t j = 0; j < shell().model->control_count(); ++j) {
    const Vector3d of_point(0, 0, -9.81 * shell().model->mass_kg[j]);
    weight_n -= of_point.z();
    moment_n_m += Control(*frame_, j).cross(of_point);
  }
  ASSERT_EQ(frame_->nurbs.supports.size(), 1U);
  const FrameSupport& root = frame_->nurbs.supports[0];
  EXPECT_LT((root.force_n + Vector3d(0, 0, weight_n)).norm(), 0.005 * weight_n);
  EXPECT_LT((root.torque_n_m + root.point_m.cross(root.force_n) - moment_n_m).norm(), 0.01 * moment_n_m.norm());
  EXPECT_FALSE(root.is_released);
  Apply({.body = 0, .what = CarveEdit{BallRegion{{0.01, 0, 0.025}, 0.04}}});
  Run(1);
  ASSERT_EQ(FromMarkers().count, 0U);
  EXPECT_TRUE(frame_->nurbs.supports[0].is_released);
  EXPECT_EQ(frame_->nurbs.supports[0].force_n.norm(), 0);
}

/// Where the tissue is taken out the sheet is free and sinks; the rest of it stays where it is.
TEST_F(NurbsBindings, WhatLosesItsTissueIsFree) {
  Make(Flag());
  Run(20);
  Apply({.body = 0, .what = CarveEdit{BallRegion{{0.03, 0, 0.025}, 0.02}}});
  EXPECT_GT(FromMarkers().released, 3U);
  EXPECT_GT(FromMarkers().count, 3U);
  const auto mean_height_m = [&] {
    double sum_m = 0;
    for (size_t i = 0; i < shell().bound[0].control.size(); ++i) {
      if (frame_->markers[i].is_released) sum_m += Control(*frame_, shell().bound[0].control[i]).z();
    }
    return sum_m / static_cast<double>(FromMarkers().released);
  };
  const double before_m = mean_height_m();
  Run(12);
  EXPECT_LT(FromMarkers().largest_m, kRounding_m);
  EXPECT_LT(mean_height_m(), before_m - 0.0002);
}

/// A piece that is cut off takes its control points along.
TEST_F(NurbsBindings, PiecesCarryTheirControlPoints) {
  Make(Flag());
  Run(5);
  const auto outcomes = Apply({.body = 0, .what = Cut(0.011, 0.06, -0.02)});
  ASSERT_EQ(outcomes[0].new_bodies.size(), 1U);
  Run(10);
  EXPECT_LT(FromMarkers().largest_m, kRounding_m);
  EXPECT_EQ(FromMarkers().count, shell().bound[0].control.size());
  size_t in_piece = 0;
  for (const FrameMarker& marker : frame_->markers) in_piece += marker.body_index == outcomes[0].new_bodies[0] ? 1 : 0;
  EXPECT_GT(in_piece, 3U);
  EXPECT_LT(in_piece, frame_->markers.size());
}

TEST_F(NurbsBindings, StatesAndResets) {
  Make(Flag());
  Run(4);
  Apply({.body = 0, .what = CarveEdit{BallRegion{{0.03, 0, 0.025}, 0.02}}});
  Run(4);
  PALPATE_TEST_ASSIGN(const std::shared_ptr<const WorldState> state, world_->Capture());
  Run(6);
  const uint64_t wanted = frame_->state_hash;
  PALPATE_TEST_ASSIGN(world_, World::Restore(context(), scene_, *state));
  Run(6);
  EXPECT_EQ(frame_->state_hash, wanted);
  EXPECT_GT(FromMarkers().released, 3U);
  EXPECT_LT(FromMarkers().largest_m, kRounding_m);
  ASSERT_TRUE(world_->Reset().ok());
  Run(6);
  const uint64_t first = frame_->state_hash;
  EXPECT_EQ(FromMarkers().released, 0U);
  EXPECT_LT(FromMarkers().largest_m, kRounding_m);
  Make(Flag());
  EXPECT_EQ(Run(6).state_hash, first);
  // One that holds other control points is another scene.
  SceneDescription other = Flag();
  other.bodies[1].nurbs_shell->bound[0].control.pop_back();
  other.bodies[0].markers.pop_back();
  EXPECT_THAT(std::string(World::Restore(context(), other, *state).status().message()), HasSubstr("is of another scene"));
}

TEST_F(NurbsBindings, WhatCannotBeBoundIsRefusedByName) {
  const auto refusal = [&](const std::function<void(SceneDescription&)>& change) {
    SceneDescription scene = Flag();
    change(scene);
    return std::string(World::Create(context(), scene).status().message());
  };
  const auto bound = [](SceneDescription& scene) -> NurbsShellBinding& { return scene.bodies[1].nurbs_shell->bound[0]; };
  EXPECT_THAT(refusal([&](SceneDescription& s) { bound(s).body = 7; }),
              HasSubstr("bodies[1] (sheet).nurbs_shell.bound[0]: body 7 is outside"));
  EXPECT_THAT(refusal([&](SceneDescription& s) { bound(s).body = 1; }), HasSubstr("sheet"));
  EXPECT_THAT(refusal([&](SceneDescription& s) { s.bodies[0].simulation = Simulation::kShapeMatched; }),
              HasSubstr("is no dynamic body of tets"));
  EXPECT_THAT(refusal([&](SceneDescription& s) { bound(s).control.push_back(s.bodies[1].nurbs_shell->model->control_count() - 1); }),
              testing::AllOf(HasSubstr("lies"), HasSubstr("mm outside block")));
  EXPECT_THAT(refusal([&](SceneDescription& s) { bound(s).control[0] = 999; }), HasSubstr("or not ascending"));
  EXPECT_THAT(refusal([&](SceneDescription& s) { s.bodies[1].nurbs_shell->held = {bound(s).control[2]}; }),
              HasSubstr("is held or bound by another region too"));
  EXPECT_THAT(refusal([&](SceneDescription& s) { s.bodies[1].nurbs_shell->bound.push_back(bound(s)); }),
              HasSubstr("is held or bound by another region too"));
  EXPECT_THAT(refusal([&](SceneDescription& s) { bound(s).control.clear(); }), HasSubstr("has no control points"));
  EXPECT_THAT(refusal([&](SceneDescription& s) {
                JointDescription joint;
                joint.name = "j";
                joint.body_b = 1;
                joint.control_b =
                    JointControlPointsOf(s.bodies[1], std::vector<uint32_t>(bound(s).control.begin(), bound(s).control.begin() + 9));
                s.joints = {joint};
              }),
              HasSubstr("is bound to a body"));
}

}  // namespace
}  // namespace palpate::sim::nurbs_bindings_test
