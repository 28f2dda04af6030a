#include "sim/world/scene_surface.h"

#include <algorithm>

#include "sim/mesh/exact_predicates.h"

namespace palpate::sim {

bool SceneSurface::EdgePierces(const Eigen::Vector3d& p, const Eigen::Vector3d& q, const Eigen::Vector3d& a, const Eigen::Vector3d& b,
                               const Eigen::Vector3d& c) {
  if (Orient3d(a, b, c, p) * Orient3d(a, b, c, q) >= 0) return false;
  const int sides[] = {Orient3d(p, q, a, b), Orient3d(p, q, b, c), Orient3d(p, q, c, a)};
  return *std::min_element(sides, sides + 3) >= 0 || *std::max_element(sides, sides + 3) <= 0;
}

void SceneSurface::Place(const WorldBody& body, uint32_t triangle) {
  Boxes& known = boxes_[body.index()];
  if (triangle >= known.boxes.size()) {
    known.boxes.resize(triangle + size_t{1});
    known.corners.resize(triangle + size_t{1});
  }
  Eigen::AlignedBox3f& box = known.boxes[triangle];
  box.setEmpty();
  const bool has_mesh = body.is_editable() || body.has_sheet();  // arrays lag behind it while edits run
  if (has_mesh && !body.IsTriangle(triangle)) return;
  for (size_t c = 0; c < 3; ++c) {
    const BodyArrays& arrays = *body.arrays();
    const uint32_t vertex = has_mesh ? body.TriangleVertices(triangle)[c] : arrays.surface_vertices[arrays.surface_triangles[triangle][c]];
    const VertexHandle handle = body.HandleOf(vertex);
    known.corners[triangle][c] = handle;
    box.extend(PositionOf(handle).cast<float>());
  }
}

void SceneSurface::Follow(const WorldBody& body) {
  if (body.index() >= boxes_.size()) boxes_.resize(body.index() + size_t{1});
  Boxes& known = boxes_[body.index()];
  const bool has_mesh = body.is_editable() || body.has_sheet();
  const uint64_t version = has_mesh ? body.mesh_version() : 0;
  if (known.is_known && known.version == version) return;
  if (known.is_known && known.version + 1 == version && body.is_editable()) {
    for (const TriangleId id : body.mesh().delta().removed_triangles) Place(body, SlotOf(id));
    for (const auto& added : body.mesh().delta().added_triangles) Place(body, SlotOf(added.id));
  } else {
    known = {};
    const auto count = has_mesh ? body.triangle_slot_count() : static_cast<uint32_t>(body.arrays()->surface_triangles.size());
    for (uint32_t t = 0; t < count; ++t) Place(body, t);
  }
  known.is_known = true;
  known.version = version;
}

void SceneSurface::FollowMove(VertexHandle handle) {
  const WorldBody& body = *(*bodies_)[vertices_->body[handle]];
  if (body.index() >= boxes_.size() || !boxes_[body.index()].is_known) return;
  Follow(body);
  body.SurfaceFan(vertices_->slot[handle], &fan_);
  for (const uint32_t triangle : fan_) Place(body, triangle);
}

void SceneSurface::ListNear(const Eigen::AlignedBox3d& box, std::vector<Near>* out) {
  out->clear();
  // Corners of triangles are floats, so one that meets the box meets a float box around it.
  const Eigen::Vector3f slack = Eigen::Vector3f::Constant(1e-6F);
  const Eigen::AlignedBox3f around(box.min().cast<float>() - slack, box.max().cast<float>() + slack);
  for (const auto& body : *bodies_) {
    Follow(*body);
    const Boxes& known = boxes_[body->index()];
    for (uint32_t t = 0; t < known.boxes.size(); ++t) {
      if (!known.boxes[t].isEmpty() && known.boxes[t].intersects(around)) out->push_back({body->index(), t, known.corners[t]});
    }
  }
}

bool SceneSurface::Refuse(const WorldBody& body, const UncoveredFaces& faces, std::vector<uint8_t>* is_refused) {
  const size_t count = faces.faces.size();
  is_refused->assign(count, 0);
  std::vector<Triangle> corners(count);
  std::vector<Eigen::AlignedBox3d> boxes(count);
  bool is_any = false;
  const auto at = [&](VertexHandle handle) { return PositionOf(handle); };
  for (size_t i = 0; i < count; ++i) {
    for (size_t c = 0; c < 3; ++c) {
      corners[i][c] = body.HandleOf(faces.faces[i][c]);
      boxes[i].extend(PositionOf(corners[i][c]));
    }
    ListNear(boxes[i], &near_);
    const auto crosses = [&](const Near& near) {
      if (near.body == body.index()) {
        if (!body.self_collision()) return false;
        if (std::find(faces.gone.begin(), faces.gone.end(), near.triangle) != faces.gone.end()) return false;
      }
      return Cross(corners[i], near.corners, at);
    };
    (*is_refused)[i] = std::any_of(near_.begin(), near_.end(), crosses) ? 1 : 0;
    for (size_t k = 0; k < i && body.self_collision(); ++k) {
      if (!boxes[i].intersects(boxes[k]) || !Cross(corners[i], corners[k], at)) continue;
      (*is_refused)[i] = (*is_refused)[k] = 1;
    }
  }
  for (const uint8_t refused : *is_refused) is_any |= refused != 0;
  return is_any;
}

}  // namespace palpate::sim
