#include "sim/topology/sheet_points.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/topology/embedded_points.h"

namespace palpate::sim {

std::array<double, 3> SheetPoints::WeightsIn(uint32_t triangle, const Eigen::Vector3d& rest_m) const {
  const auto& [a, b, c] = mesh_->TriangleVertices(triangle);
  return TriangleWeights({mesh_->PositionOf(a), mesh_->PositionOf(b), mesh_->PositionOf(c)}, rest_m);
}

absl::StatusOr<uint32_t> SheetPoints::Embed(TriangleId triangle, const Eigen::Vector3d& rest_m) {
  const uint32_t slot = mesh_->Find(triangle);
  if (slot == kNoSlot) {
    return absl::NotFoundError(absl::StrCat("triangle ", SlotOf(triangle), " (generation ", GenerationOf(triangle), ") does not exist"));
  }
  const auto weights = WeightsIn(slot, rest_m);
  const double worst = *std::min_element(weights.begin(), weights.end());
  if (!(worst >= -kEmbeddingTolerance)) {
    return absl::InvalidArgumentError(absl::StrCat("the point lies beside triangle ", slot, " (weight ", worst, ")"));
  }
  return Adopt({triangle, weights, rest_m}, triangle);
}

uint32_t SheetPoints::Adopt(const Point& point, TriangleId triangle) {
  const auto index = static_cast<uint32_t>(points_.size());
  points_.push_back(point);
  points_.back().triangle = triangle;
  points_of_triangle_[SlotOf(triangle)].push_back(index);
  return index;
}

void SheetPoints::Withdraw(uint32_t index) {
  const auto riders = points_of_triangle_.find(SlotOf(std::exchange(points_[index].triangle, kNoTriangle)));
  std::erase(riders->second, index);
  if (riders->second.empty()) points_of_triangle_.erase(riders);
}

std::vector<uint32_t> SheetPoints::PointsOf(ComponentId component) const {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < points_.size(); ++i) {
    const TriangleId triangle = points_[i].triangle;
    if (triangle != kNoTriangle && mesh_->ComponentOfTriangle(SlotOf(triangle)) == component) out.push_back(i);
  }
  return out;
}

std::vector<uint32_t> SheetPoints::TakeReleased() {
  std::sort(released_.begin(), released_.end());
  return std::exchange(released_, {});
}

void SheetPoints::OnEdited(const SheetDelta& delta) {
  if (points_of_triangle_.empty()) return;
  struct Home {
    TriangleId triangle = kNoTriangle;
    std::array<double, 3> weights = {};
    double worst = -1e300;
  };
  absl::flat_hash_map<uint32_t, Home> homes;  // by point: the best so far
  for (const SheetDelta::AddedTriangle& added : delta.added_triangles) {
    if (added.parent == kNoTriangle) continue;
    const auto riders = points_of_triangle_.find(SlotOf(added.parent));
    if (riders == points_of_triangle_.end()) continue;
    for (const uint32_t index : riders->second) {
      const auto weights = WeightsIn(SlotOf(added.id), points_[index].rest_m);
      const double worst = *std::min_element(weights.begin(), weights.end());
      Home& home = homes[index];
      if (worst > home.worst) home = {added.id, weights, worst};
    }
  }
  std::vector<uint32_t> movers;
  for (const SheetDelta::RemovedTriangle& removed : delta.removed_triangles) {
    const auto node = points_of_triangle_.extract(SlotOf(removed.id));
    if (!node.empty()) movers.insert(movers.end(), node.mapped().begin(), node.mapped().end());
  }
  for (const uint32_t index : movers) {
    const auto home = homes.find(index);
    if (home == homes.end()) {
      points_[index].triangle = kNoTriangle;
      released_.push_back(index);
      continue;
    }
    points_[index].triangle = home->second.triangle;
    points_[index].weights = home->second.weights;
    points_of_triangle_[SlotOf(home->second.triangle)].push_back(index);
  }
}

bool SheetPoints::IsSound() const {
  const auto is_point = [this](uint32_t point) { return point < points_.size(); };
  for (const Point& point : points_) {
    if (point.triangle != kNoTriangle && mesh_->Find(point.triangle) == kNoSlot) return false;
  }
  for (const auto& [triangle, points] : points_of_triangle_) {
    if (!mesh_->IsTriangle(triangle) || !std::all_of(points.begin(), points.end(), is_point)) return false;
  }
  return std::all_of(released_.begin(), released_.end(), is_point);
}

}  // namespace palpate::sim
