#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include "sim/scene/description.h"
#include "sim/world/world_body.h"

namespace palpate::test {

/// Bodies at rest, with handles from `vertices` on.
inline absl::StatusOr<std::vector<std::unique_ptr<sim::WorldBody>>> MakeBodies(const std::vector<sim::BodyDescription>& descriptions,
                                                                               sim::SceneVertices* vertices) {
  std::vector<std::unique_ptr<sim::WorldBody>> bodies;
  for (const sim::BodyDescription& description : descriptions) {
    auto body = sim::WorldBody::Create(description, static_cast<uint32_t>(bodies.size()), vertices);
    if (!body.ok()) return body.status();
    bodies.push_back(*std::move(body));
  }
  for (const sim::VertexHandle h : vertices->handles()) {
    const Eigen::Vector3f x = vertices->rest_m[h].cast<float>();
    vertices->state[h].position_m = {x.x(), x.y(), x.z(), 0};
  }
  return bodies;
}

/// A carving, a refinement or an incision somewhere on the surface of one of the bodies. Its pieces are appended; arrays are not brought
/// up to date. Returns the index of the body. Precondition: one of them has tissue left.
inline absl::StatusOr<size_t> ApplyRandomEdit(std::vector<std::unique_ptr<sim::WorldBody>>* bodies, std::mt19937* random) {
  using Eigen::Vector3d;
  std::uniform_real_distribution<double> unit(-1, 1);
  const auto direction = [&] { return Vector3d(Vector3d(unit(*random), unit(*random), unit(*random)).normalized()); };
  size_t b = 0;
  do {
    b = static_cast<size_t>((*random)()) % bodies->size();
  } while (!(*bodies)[b]->is_editable() || (*bodies)[b]->mesh().triangle_count() == 0);
  sim::WorldBody& body = *(*bodies)[b];
  uint32_t t = 0;
  do {
    t = static_cast<uint32_t>((*random)()) % body.mesh().triangle_slot_count();
  } while (!body.mesh().IsTriangle(t));
  const Vector3d place = body.PositionOf(body.mesh().TriangleVertices(t)[0]);
  body.BeginEdit();
  sim::EditOutcome outcome;
  absl::Status status;
  switch ((*random)() % 3) {
    case 0:
      status = body.Carve(sim::BallRegion{place, 0.009}, &outcome);
      break;
    case 1:
      status = body.Refine(sim::BallRegion{place, 0.012}, {.region = {}, .max_edge_m = 0.007}, 20000, &outcome);
      break;
    default: {
      const Vector3d edge = 0.05 * direction();
      const Vector3d way = 0.05 * direction();
      sim::InciseEdit incision;
      for (const double at : {-1.0, 0.0, 1.0}) incision.edges_m.push_back({place + at * way - edge, place + at * way + edge});
      status = body.Incise(incision, 20000, &outcome);
    }
  }
  if (!status.ok()) return status;
  auto pieces = body.DetachPieces(static_cast<uint32_t>(bodies->size()), [bodies](const std::string& name) {
    return std::any_of(bodies->begin(), bodies->end(), [&name](const auto& other) { return other->name() == name; });
  });
  if (!pieces.ok()) return pieces.status();
  body.FinishEdit();
  for (auto& piece : *pieces) bodies->push_back(std::move(piece));
  return b;
}

}  // namespace palpate::test
