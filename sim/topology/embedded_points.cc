#include "sim/topology/embedded_points.h"

#include <algorithm>
#include <utility>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"

namespace palpate::sim {

std::array<double, 4> BarycentricWeights(const std::array<Eigen::Vector3d, 4>& x, const Eigen::Vector3d& point_m) {
  // From the corner nearest to the point, so that it is met exactly there.
  size_t o = 0;
  for (size_t c = 1; c < 4; ++c) {
    if ((x[c] - point_m).squaredNorm() < (x[o] - point_m).squaredNorm()) o = c;
  }
  const size_t a = (o + 1) % 4;
  const size_t b = (o + 2) % 4;
  const size_t c = (o + 3) % 4;
  const Eigen::Vector3d u = x[a] - x[o];
  const Eigen::Vector3d v = x[b] - x[o];
  const Eigen::Vector3d w = x[c] - x[o];
  const Eigen::Vector3d p = point_m - x[o];
  const double volume = u.cross(v).dot(w);
  std::array<double, 4> weights;
  weights[a] = p.cross(v).dot(w) / volume;
  weights[b] = u.cross(p).dot(w) / volume;
  weights[c] = u.cross(v).dot(p) / volume;
  weights[o] = 1 - (weights[a] + weights[b] + weights[c]);
  return weights;
}

EmbeddedPoints::EmbeddedPoints(ClosedMesh* mesh) : mesh_(mesh) { mesh->AddObserver(this); }

EmbeddedPoints::~EmbeddedPoints() { mesh_->RemoveObserver(this); }

std::array<double, 4> EmbeddedPoints::WeightsIn(uint32_t tet, const Eigen::Vector3d& rest_m) const {
  const auto& v = mesh_->TetVertices(tet);
  return BarycentricWeights({mesh_->PositionOf(v[0]), mesh_->PositionOf(v[1]), mesh_->PositionOf(v[2]), mesh_->PositionOf(v[3])}, rest_m);
}

absl::StatusOr<uint32_t> EmbeddedPoints::Embed(TetId tet, const Eigen::Vector3d& rest_m) {
  const uint32_t slot = mesh_->Find(tet);
  if (slot == kNoSlot)
    return absl::NotFoundError(absl::StrCat("tet ", SlotOf(tet), " (generation ", GenerationOf(tet), ") does not exist"));
  const auto weights = WeightsIn(slot, rest_m);
  const double worst = *std::min_element(weights.begin(), weights.end());
  if (!(worst >= -kEmbeddingTolerance)) {
    return absl::InvalidArgumentError(absl::StrCat("the point lies outside tet ", slot, " (weight ", worst, ")"));
  }
  return Adopt({tet, weights, rest_m}, tet);
}

uint32_t EmbeddedPoints::Adopt(const Point& point, TetId tet) {
  const auto index = static_cast<uint32_t>(points_.size());
  points_.push_back(point);
  points_.back().tet = tet;
  points_of_tet_[SlotOf(tet)].push_back(index);
  return index;
}

void EmbeddedPoints::Withdraw(uint32_t index) {
  const auto riders = points_of_tet_.find(SlotOf(std::exchange(points_[index].tet, kNoTet)));
  std::erase(riders->second, index);
  if (riders->second.empty()) points_of_tet_.erase(riders);
}

std::vector<uint32_t> EmbeddedPoints::PointsOf(ComponentId component) const {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < points_.size(); ++i) {
    if (points_[i].tet != kNoTet && mesh_->ComponentOfTet(SlotOf(points_[i].tet)) == component) out.push_back(i);
  }
  return out;
}

std::vector<uint32_t> EmbeddedPoints::TakeReleased() {
  std::sort(released_.begin(), released_.end());
  return std::exchange(released_, {});
}

void EmbeddedPoints::OnTetAdded(const ClosedMesh&, const MeshDelta::AddedTet& tet) {
  if (tet.parent == kNoTet || points_of_tet_.empty()) return;
  const auto points = points_of_tet_.find(SlotOf(tet.parent));
  if (points == points_of_tet_.end()) return;
  for (const uint32_t index : points->second) {
    const auto weights = WeightsIn(SlotOf(tet.id), points_[index].rest_m);
    const double worst = *std::min_element(weights.begin(), weights.end());
    Candidate& candidate = candidates_[index];
    if (worst > candidate.worst) candidate = {tet.id, weights, worst};
  }
}

void EmbeddedPoints::OnTetRemoved(const ClosedMesh&, TetId tet, const std::array<VertexId, 4>&) {
  if (points_of_tet_.empty()) return;
  const auto node = points_of_tet_.extract(SlotOf(tet));
  if (node.empty()) return;
  for (const uint32_t index : node.mapped()) {
    const auto candidate = candidates_.find(index);
    if (candidate == candidates_.end()) {
      points_[index].tet = kNoTet;
      released_.push_back(index);
    } else {
      points_[index].tet = candidate->second.tet;
      points_[index].weights = candidate->second.weights;
      points_of_tet_[SlotOf(candidate->second.tet)].push_back(index);
    }
  }
}

void EmbeddedPoints::OnEdited(const ClosedMesh&, const MeshDelta&) { candidates_.clear(); }

bool EmbeddedPoints::IsSound() const {
  const auto is_point = [this](uint32_t point) { return point < points_.size(); };
  for (const Point& point : points_) {
    if (point.tet != kNoTet && mesh_->Find(point.tet) == kNoSlot) return false;
  }
  for (const auto& [tet, points] : points_of_tet_) {
    if (!mesh_->IsTet(tet) || !std::all_of(points.begin(), points.end(), is_point)) return false;
  }
  return std::all_of(released_.begin(), released_.end(), is_point);
}

}  // namespace palpate::sim
