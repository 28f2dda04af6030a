// What stands before the first step: bodies and solver.
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "sim/scene/markers.h"
#include "sim/scene/nurbs_binding.h"
#include "sim/scene/nurbs_shell_body.h"
#include "sim/scene/shell_material.h"
#include "sim/world/stitches.h"
#include "sim/world/world_impl.h"
#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

gpu::TissueOptions OptionsOf(const SceneDescription& scene) {
  gpu::TissueOptions options;
  options.dt_s = scene.dt_s;
  options.gravity_m_per_s2 = ToArray(scene.gravity_m_per_s2);
  options.iterations = static_cast<uint32_t>(scene.solver.iterations);
  options.acceleration = scene.solver.acceleration;
  options.coarse_nodes = static_cast<uint32_t>(scene.solver.coarse_nodes);
  options.tolerance_m_per_s2 = scene.solver.tolerance_m_per_s2;
  options.report_energy = scene.solver.report_energy;
  options.joint_dissipation = scene.solver.joint_dissipation;
  options.margin_m = scene.contact.margin_m;
  options.friction = scene.contact.friction;
  options.stiffness_n_per_m = scene.contact.stiffness_n_per_m;
  options.range_m = scene.haptics.range_m;
  options.surface_friction = scene.contact.surface_friction;
  options.surface_reserve_m = scene.contact.surface_reserve_m;
  options.surface_max_detections = static_cast<uint32_t>(std::max(1, scene.contact.surface_max_detections));
  options.check_intersections = scene.contact.check_intersections;
  options.self_pairs = scene.contact.self_pairs;
  return options;
}

}  // namespace

/// Bodies, driven regions and rigid bodies at rest, and topology version 1 (or the next one after edits).
absl::Status World::Impl::BuildBodies() {
  PALPATE_RETURN_IF_ERROR(scene_.Build());
  publisher_.ResetMarkers();
  auto topology = std::make_shared<WorldTopology>();
  if (topology_ != nullptr) topology->version = topology_->version + 1;
  for (const auto& body : bodies_) topology->bodies.push_back(body->arrays());
  quasi_static_ = {};
  PALPATE_RETURN_IF_ERROR(UpdateQuasiStatic(/*eager=*/true));
  topology_ = std::move(topology);
  return Sew();
}

absl::Status World::Impl::Sew() {
  PALPATE_ASSIGN_OR_RETURN(std::vector<Clip> stitches, MakeStitches(description_.sutures, bodies_, vertices_));
  grasping_.SetStitches(std::move(stitches));
  return absl::OkStatus();
}

/// With everything in order.
void World::Impl::MakeModel() { model_.Make(quasi_static_.Prescribed(), is_edited_); }

absl::Status World::Impl::TakeDescription(std::shared_ptr<gpu::Context> context, SceneDescription description) {
  context_ = std::move(context);
  description_ = std::move(description);
  description_hash_ = HashOfDescription(description_);
  opening_.SetMargin(description_.contact.margin_m);
  size_t markers = 0;
  for (size_t b = 0; b < description_.bodies.size(); ++b) {
    BodyDescription& body = description_.bodies[b];
    const auto name = [&] { return absl::StrCat("bodies[", b, "] (", body.name, ")"); };
    markers += body.markers.size();
    if (markers > kMaxMarkers)
      return absl::InvalidArgumentError(absl::StrCat(name(), ".markers: more than ", kMaxMarkers, " in the scene"));
    if (body.markers.empty()) continue;
    if (absl::Status valid = body.shell ? CheckShell(body) : ValidateTetMesh(body.mesh); !valid.ok()) return Annotate(valid, name());
    if (absl::Status placed = PlaceMarkers(&body); !placed.ok()) return absl::Status(placed.code(), absl::StrCat(name(), placed.message()));
  }
  return PlaceBindings();
}

/// Tets that carry control points of NURBS shells.
absl::Status World::Impl::PlaceBindings() {
  for (size_t b = 0; b < description_.bodies.size(); ++b) {
    BodyDescription& body = description_.bodies[b];
    const size_t count = body.nurbs_shell ? body.nurbs_shell->bound.size() : 0;
    for (size_t k = 0; k < count; ++k) {
      const auto name = [&] { return absl::StrCat("bodies[", b, "] (", body.name, ").nurbs_shell.bound[", k, "]"); };
      NurbsShellBinding& binding = body.nurbs_shell->bound[k];
      if (binding.body < description_.bodies.size() && binding.tets.empty()) {
        if (absl::Status valid = ValidateTetMesh(description_.bodies[binding.body].mesh); !valid.ok()) return Annotate(valid, name());
      }
      if (absl::Status valid = CheckNurbsShell(body); !valid.ok()) return Annotate(valid, name());
      if (absl::Status placed = PlaceNurbsBinding(description_, body, &binding); !placed.ok()) return Annotate(placed, name());
    }
  }
  return absl::OkStatus();
}

absl::Status World::Impl::Init(std::shared_ptr<gpu::Context> context, SceneDescription description) {
  PALPATE_RETURN_IF_ERROR(TakeDescription(std::move(context), std::move(description)));
  PALPATE_RETURN_IF_ERROR(BuildBodies());
  PALPATE_RETURN_IF_ERROR(CreateSolver());
  // Drivers compile a kernel for good at its first launch, which can take seconds: that time belongs here, not to the first step of the
  // scene.
  PALPATE_RETURN_IF_ERROR(UpdateGathered());
  PALPATE_RETURN_IF_ERROR(solver_->Step(rack_.targets()).status());
  return Reset().status();
}

/// Tools and joints as at rest, tools with their capsules.
absl::StatusOr<World::Impl::SolverSetup> World::Impl::SetUpSolver() {
  SolverSetup setup;
  setup.options = OptionsOf(description_);
  setup.tuning = gpu::TissueTuning::For(context_->device());
  ResetTools();
  PALPATE_RETURN_IF_ERROR(rack_.Make(&setup.colliders));
  // Spheres and capsules that never move are tools that nobody drives: the triangles' faces and edges feel them too, not only the vertices.
  for (const ObstacleDescription& obstacle : description_.obstacles) {
    if (const auto* plane = std::get_if<PlaneShape>(&obstacle.shape)) {
      const Eigen::Vector3d n = plane->normal.normalized();
      setup.planes.push_back(
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
    setup.colliders.push_back(collider);
    rack_.AddFixed(collider);
  }
  return setup;
}

/// A solver of the scene at rest.
absl::Status World::Impl::CreateSolver() {
  gpu::TissuePrescribed prescribed = quasi_static_.Prescribed();
  const bool may_be_at_rest = !prescribed.vertices.empty();
  model_.Make(std::move(prescribed), may_be_at_rest);
  PALPATE_ASSIGN_OR_RETURN(SolverSetup setup, SetUpSolver());
  // The solver takes it from its tets, if it has some.
  double& stiffness_n_per_m = setup.options.stiffness_n_per_m;
  if (stiffness_n_per_m == 0 && model_.model().tets.empty() && model_.model().shells.empty() && model_.model().nurbs_shells.empty())
    stiffness_n_per_m = quasi_static_.ContactStiffness();
  PALPATE_ASSIGN_OR_RETURN(solver_,
                           gpu::TissueSolver::Create(context_, model_.model(), setup.options, setup.colliders, setup.planes, setup.tuning));
  return absl::OkStatus();
}

}  // namespace palpate::sim
