#include "bench/bench_step_bullet.h"

#ifdef PALPATE_HAVE_BULLET
#include <btBulletDynamicsCommon.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#endif

namespace palpate::bench {

#ifdef PALPATE_HAVE_BULLET

std::optional<PileRun> DropWithBullet(const std::vector<PileBody>& bodies, double friction, double margin_m, double dt_s, int steps) {
  constexpr double kScale = 10;
  constexpr double kGravity_m_per_s2 = 9.81;
  const auto scaled = [](const Eigen::Vector3d& v) {
    return btVector3(static_cast<btScalar>(kScale * v.x()), static_cast<btScalar>(kScale * v.y()), static_cast<btScalar>(kScale * v.z()));
  };
  btDefaultCollisionConfiguration configuration;
  btCollisionDispatcher dispatcher(&configuration);
  btDbvtBroadphase broad_phase;
  btSequentialImpulseConstraintSolver solver;
  btDiscreteDynamicsWorld world(&dispatcher, &broad_phase, &solver, &configuration);
  world.setGravity(btVector3(0, 0, static_cast<btScalar>(-kScale * kGravity_m_per_s2)));
  std::vector<std::unique_ptr<btConvexHullShape>> shapes;
  std::vector<std::unique_ptr<btDefaultMotionState>> states;
  std::vector<std::unique_ptr<btRigidBody>> rigid;
  for (const PileBody& body : bodies) {
    btConvexHullShape& shape = *shapes.emplace_back(std::make_unique<btConvexHullShape>());
    for (const Eigen::Vector3d& v : body.vertices_m) shape.addPoint(scaled(v - body.center_m), /*recalculateLocalAabb=*/false);
    shape.setMargin(static_cast<btScalar>(0.5 * margin_m * kScale));
    shape.recalcLocalAabb();
    btVector3 inertia(0, 0, 0);
    const auto mass = static_cast<btScalar>(body.mass_kg);
    if (mass > 0) shape.calculateLocalInertia(mass, inertia);
    const btTransform pose(btQuaternion::getIdentity(), scaled(body.center_m));
    btDefaultMotionState& state = *states.emplace_back(std::make_unique<btDefaultMotionState>(pose));
    btRigidBody& out = *rigid.emplace_back(std::make_unique<btRigidBody>(mass, &state, &shape, inertia));
    out.setFriction(static_cast<btScalar>(std::sqrt(friction)));  // of a pair it takes the product
    out.setActivationState(DISABLE_DEACTIVATION);
    world.addRigidBody(&out);
  }
  PileRun run;
  for (int i = 0; i < steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    world.stepSimulation(static_cast<btScalar>(dt_s), 1, static_cast<btScalar>(dt_s));
    run.step_ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  size_t kept = 0;
  for (size_t b = 0; b < bodies.size(); ++b) {
    if (bodies[b].mass_kg == 0) continue;
    double height_m = 0;
    for (const Eigen::Vector3d& v : bodies[b].vertices_m) height_m += (rigid[b]->getWorldTransform() * scaled(v - bodies[b].center_m)).z();
    height_m /= kScale * static_cast<double>(bodies[b].vertices_m.size());
    if (height_m < 0) {
      ++run.lost;
      continue;
    }
    ++kept;
    run.height_m += height_m;
  }
  run.height_m /= static_cast<double>(std::max<size_t>(kept, 1));
  for (const auto& body : rigid) world.removeRigidBody(body.get());
  return run;
}

std::optional<ChainRun> SwingWithBullet(const std::vector<ChainBody>& bodies, const std::vector<ChainLink>& links, bool are_hinges,
                                        int iterations, double dt_s, int steps) {
  constexpr double kScale = 10;
  constexpr double kGravity_m_per_s2 = 9.81;
  const auto scaled = [](const Eigen::Vector3d& v) {
    return btVector3(static_cast<btScalar>(kScale * v.x()), static_cast<btScalar>(kScale * v.y()), static_cast<btScalar>(kScale * v.z()));
  };
  btDefaultCollisionConfiguration configuration;
  btCollisionDispatcher dispatcher(&configuration);
  btDbvtBroadphase broad_phase;
  btSequentialImpulseConstraintSolver solver;
  btDiscreteDynamicsWorld world(&dispatcher, &broad_phase, &solver, &configuration);
  world.setGravity(btVector3(0, 0, static_cast<btScalar>(-kScale * kGravity_m_per_s2)));
  world.getSolverInfo().m_numIterations = iterations;
  std::vector<std::unique_ptr<btBoxShape>> shapes;
  std::vector<std::unique_ptr<btDefaultMotionState>> states;
  std::vector<std::unique_ptr<btRigidBody>> rigid;
  for (const ChainBody& body : bodies) {
    btBoxShape& shape = *shapes.emplace_back(std::make_unique<btBoxShape>(scaled(body.half_m)));
    btVector3 inertia(0, 0, 0);
    const auto mass = static_cast<btScalar>(body.mass_kg);
    shape.calculateLocalInertia(mass, inertia);
    const btTransform pose(btQuaternion::getIdentity(), scaled(body.center_m));
    btDefaultMotionState& state = *states.emplace_back(std::make_unique<btDefaultMotionState>(pose));
    btRigidBody& out = *rigid.emplace_back(std::make_unique<btRigidBody>(mass, &state, &shape, inertia));
    out.setActivationState(DISABLE_DEACTIVATION);
    world.addRigidBody(&out, 1, 0);  // in a group that meets none
  }
  std::vector<std::unique_ptr<btTypedConstraint>> constraints;
  const auto body_of = [&](int index) -> btRigidBody& {
    return index < 0 ? btTypedConstraint::getFixedBody() : *rigid[static_cast<size_t>(index)];
  };
  const auto local = [&](int index, const Eigen::Vector3d& p) {
    return index < 0 ? scaled(p) : scaled(p - bodies[static_cast<size_t>(index)].center_m);
  };
  for (const ChainLink& link : links) {
    const btVector3 a = local(link.before, link.point_m);
    const btVector3 b = local(link.after, link.point_m);
    const btVector3 axis(0, 1, 0);
    if (are_hinges) {
      constraints.push_back(std::make_unique<btHingeConstraint>(body_of(link.before), body_of(link.after), a, b, axis, axis));
    } else {
      constraints.push_back(std::make_unique<btPoint2PointConstraint>(body_of(link.before), body_of(link.after), a, b));
    }
    world.addConstraint(constraints.back().get());
  }
  ChainRun run;
  for (int i = 0; i < steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    world.stepSimulation(static_cast<btScalar>(dt_s), 1, static_cast<btScalar>(dt_s));
    run.step_ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    for (const ChainLink& link : links) {
      const auto at = [&](int index) {
        return index < 0 ? local(index, link.point_m) : rigid[static_cast<size_t>(index)]->getWorldTransform() * local(index, link.point_m);
      };
      run.worst_gap_m = std::max(run.worst_gap_m, static_cast<double>((at(link.after) - at(link.before)).length()) / kScale);
    }
  }
  for (const auto& constraint : constraints) world.removeConstraint(constraint.get());
  for (const auto& body : rigid) world.removeRigidBody(body.get());
  return run;
}

#else

std::optional<PileRun> DropWithBullet(const std::vector<PileBody>&, double, double, double, int) { return std::nullopt; }
std::optional<ChainRun> SwingWithBullet(const std::vector<ChainBody>&, const std::vector<ChainLink>&, bool, int, double, int) {
  return std::nullopt;
}

#endif

}  // namespace palpate::bench
