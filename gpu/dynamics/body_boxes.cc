#include "gpu/dynamics/body_boxes.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "gpu/collision/surface_topology.h"
#include "gpu/dynamics/surface_kernels.h"

namespace palpate::gpu {
namespace {

constexpr uint32_t kParts = 8;  // of a body: work-items

/// The box around parts[0..kParts), widened by distance_m to one side.
Box Around(const Box* parts, float distance_m) {
  Box box = parts[0];
  for (uint32_t p = 1; p < kParts; ++p) {
    const Box& part = parts[p];
    box.lower = {std::min(box.lower.x, part.lower.x), std::min(box.lower.y, part.lower.y), std::min(box.lower.z, part.lower.z), 0};
    box.upper = {std::max(box.upper.x, part.upper.x), std::max(box.upper.y, part.upper.y), std::max(box.upper.z, part.upper.z), 0};
  }
  box.upper = {box.upper.x + distance_m, box.upper.y + distance_m, box.upper.z + distance_m, 0};
  return box;
}

/// Sort and sweep along x.
bool AreDisjoint(std::span<Box> boxes) {
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.lower.x < b.lower.x; });
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Box& a = boxes[i];
    for (size_t j = i + 1; j < boxes.size() && boxes[j].lower.x <= a.upper.x; ++j) {
      const Box& b = boxes[j];
      if (b.lower.y <= a.upper.y && a.lower.y <= b.upper.y && b.lower.z <= a.upper.z && a.lower.z <= b.upper.z) return false;
    }
  }
  return true;
}

}  // namespace

absl::Status BodyBoxes::Init(Queue& queue, BodyBoxes* old) {
  return TakeOrCreate(queue, old == nullptr ? nullptr : &old->body_boxes_, "body_boxes", &body_boxes_);
}

absl::Status BodyBoxes::ListBodies(Queue& queue, const std::vector<uint32_t>& vertex_groups, size_t body_count) {
  std::vector<uint32_t> vertices;
  for (uint32_t v = 0; v < vertex_groups.size(); ++v) {
    if (vertex_groups[v] != SurfaceTopology::kNoGroup) vertices.push_back(v);
  }
  const auto body_of = [&](uint32_t v) { return vertex_groups[v] & PALPATE_GROUP_MASK; };
  std::stable_sort(vertices.begin(), vertices.end(), [&](uint32_t a, uint32_t b) { return body_of(a) < body_of(b); });
  begin_host_.assign(body_count + 1, 0);
  for (const uint32_t v : vertices) ++begin_host_[body_of(v) + 1];
  std::partial_sum(begin_host_.begin(), begin_host_.end(), begin_host_.begin());
  boxes_host_.resize(body_count * kParts);
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), begin_, begin_host_.size(), "surface body begins"));
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), vertices_, std::max<size_t>(vertices.size(), 1), "surface body vertices"));
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), boxes_, boxes_host_.size(), "surface body boxes"));
  PALPATE_RETURN_IF_ERROR(queue.Write(begin_, std::span<const uint32_t>(begin_host_)));
  PALPATE_RETURN_IF_ERROR(queue.Write(vertices_, std::span<const uint32_t>(vertices)));
  are_bodies_listed_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> BodyBoxes::AreApart(Queue& queue, const std::vector<uint32_t>& vertex_groups, size_t body_count,
                                         const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& to, float distance_m) {
  PALPATE_RETURN_IF_ERROR(Enqueue(queue, vertex_groups, body_count, from, to));
  PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
  return AreApart(distance_m);
}

absl::Status BodyBoxes::Enqueue(Queue& queue, const std::vector<uint32_t>& vertex_groups, size_t body_count,
                                const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& to) {
  if (!are_bodies_listed_) PALPATE_RETURN_IF_ERROR(ListBodies(queue, vertex_groups, body_count));
  PALPATE_RETURN_IF_ERROR(queue.Launch(
      body_boxes_, {body_count * kParts, kSurfaceGroup}, Arg("body_count", static_cast<uint32_t>(body_count)), Arg("parts", kParts),
      Arg("body_begin", begin_), Arg("body_vertices", vertices_), Arg("from", from), Arg("to", to), Arg("boxes", boxes_)));
  return queue.EnqueueRead(boxes_, std::span<Box>(boxes_host_));
}

bool BodyBoxes::AreApart(float distance_m) {
  const size_t body_count = boxes_host_.size() / kParts;
  for (size_t b = 0; b < body_count; ++b) boxes_host_[b] = Around(&boxes_host_[b * kParts], distance_m);  // earlier parts have been read
  return AreDisjoint(std::span(boxes_host_).first(body_count));
}

}  // namespace palpate::gpu
