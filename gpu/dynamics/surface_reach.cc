#include "gpu/dynamics/surface_reach.h"

#include <algorithm>
#include <cmath>

namespace palpate::gpu {
namespace {

constexpr double kSlipSpeed_m_per_s = 0.001;  // below it friction is viscous, as of tools
// Two elements that were at least the range apart cannot have met while each moved less than this share of it.
constexpr double kCapShare = 0.49;
constexpr double kReachChange = 0.3;   // of the mean edge, from which on the range follows it
constexpr double kReachLook = 0.1;     // share of the edges that must have come or gone before that is looked at
constexpr double kReserveEdges = 0.4;  // a detection sees less than the next ring of a regular mesh

double MeanEdge(std::span<const UInt2> edges, const std::vector<Float4>& rest) {
  double sum = 0;
  for (const UInt2& e : edges) {
    const Float4& a = rest[e.x];
    const Float4& b = rest[e.y];
    sum += std::hypot(a.x - b.x, a.y - b.y, a.z - b.z);
  }
  return edges.empty() ? 0 : sum / static_cast<double>(edges.size());
}

}  // namespace

SurfaceReach::SurfaceReach(const SurfaceOptions& options)
    : margin_m_(options.margin_m), reserve_m_(options.reserve_m), edge_m_(options.reach_edge_m) {
  host_.margin_m = static_cast<float>(options.margin_m);
  host_.friction = static_cast<float>(options.friction);
  host_.slip_m = static_cast<float>(kSlipSpeed_m_per_s * options.dt_s);
}

bool SurfaceReach::SetEdges(std::span<const UInt2> edges, const std::vector<Float4>& rest) {
  const double mean_m = MeanEdge(edges, rest);
  edge_count_ = edges.size();
  if (std::abs(mean_m - edge_m_) >= kReachChange * edge_m_) edge_m_ = mean_m;
  const double reserve_m = reserve_m_ > 0 ? reserve_m_ : std::max(margin_m_, kReserveEdges * edge_m_ - margin_m_);
  const auto range_m = static_cast<float>(margin_m_ + reserve_m);
  if (range_m == host_.range_m) return false;
  host_.range_m = range_m;
  host_.cap_m = static_cast<float>(kCapShare * double{range_m});
  return true;
}

bool SurfaceReach::FollowEdges(std::span<const UInt2> edges, const std::vector<Float4>& rest) {
  const auto before = static_cast<double>(edge_count_);
  return std::abs(static_cast<double>(edges.size()) - before) > kReachLook * before && SetEdges(edges, rest);
}

absl::Status SurfaceReach::Upload(Queue& queue) {
  const std::span<const SurfaceParams> host(&host_, 1);
  if (params_) return queue.Write(params_, host);
  PALPATE_ASSIGN_OR_RETURN(params_, CreateBufferFrom(queue, host, "surface params"));
  return absl::OkStatus();
}

absl::Status SurfaceReach::SetCap(Queue& queue, double known_m) {
  const auto cap_m = static_cast<float>(kCapShare * known_m);
  if (cap_m == host_.cap_m) return absl::OkStatus();
  host_.cap_m = cap_m;
  return Upload(queue);
}

}  // namespace palpate::gpu
