#include "gpu/dynamics/surface_reach.h"

#include <algorithm>
#include <cmath>

#include "gpu/dynamics/surface_kernels.h"

namespace palpate::gpu {
namespace {

constexpr double kSlipSpeed_m_per_s = 0.001;  // below it friction is viscous, as of tools
constexpr double kReachChange = 0.3;          // of the mean edge, from which on the range follows it
constexpr double kReachLook = 0.1;            // share of the edges that must have come or gone before that is looked at
constexpr double kReserveEdges = 0.4;         // a detection sees less than the next ring of a regular mesh

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

absl::Status SurfaceReach::Init(Queue& queue, SurfaceReach* old) {
  constexpr std::pair<Kernel SurfaceReach::*, const char*> kKernels[] = {{&SurfaceReach::body_moves_, "body_moves"},
                                                                         {&SurfaceReach::look_ahead_, "look_ahead"},
                                                                         {&SurfaceReach::spend_reaches_, "spend_reaches"},
                                                                         {&SurfaceReach::mark_beyond_, "mark_beyond"}};
  for (const auto& [kernel, name] : kKernels) {
    PALPATE_RETURN_IF_ERROR(TakeOrCreate(queue, old == nullptr ? nullptr : &(old->*kernel), name, &(this->*kernel)));
  }
  return Upload(queue);
}

bool SurfaceReach::SetEdges(std::span<const UInt2> edges, const std::vector<Float4>& rest) {
  const double mean_m = MeanEdge(edges, rest);
  edge_count_ = edges.size();
  if (std::abs(mean_m - edge_m_) >= kReachChange * edge_m_) edge_m_ = mean_m;
  const double reserve_m = reserve_m_ > 0 ? reserve_m_ : std::max(margin_m_, kReserveEdges * edge_m_ - margin_m_);
  const auto range_m = static_cast<float>(margin_m_ + reserve_m);
  if (range_m == host_.range_m) return false;
  host_.range_m = range_m;
  are_full_ = false;
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

absl::Status SurfaceReach::SetBodies(Queue& queue, const std::vector<uint32_t>& is_whole, const std::vector<float>& spare_m) {
  const std::shared_ptr<Context>& context = queue.context();
  body_count_ = static_cast<uint32_t>(is_whole.size());
  has_whole_ = std::find(is_whole.begin(), is_whole.end(), 1U) != is_whole.end();
  has_spare_ = std::ranges::any_of(spare_m, [](float s) { return s > 0; });
  are_full_ = false;
  PALPATE_RETURN_IF_ERROR(Grow(context, is_whole_, std::max<size_t>(body_count_, 1), "surface whole bodies"));
  PALPATE_RETURN_IF_ERROR(Grow(context, moves_, std::max<size_t>(body_count_, 1), "surface body moves"));
  PALPATE_RETURN_IF_ERROR(Grow(context, stale_, std::max<size_t>(body_count_, 1), "surface stale bodies"));
  PALPATE_RETURN_IF_ERROR(Grow(context, beyond_, std::max<size_t>(body_count_, 1), "surface bodies beyond"));
  PALPATE_RETURN_IF_ERROR(Grow(context, reaches_, std::max<size_t>(body_count_, 1), "surface reaches"));
  PALPATE_RETURN_IF_ERROR(Grow(context, caps_, std::max<size_t>(body_count_, 1), "surface caps"));
  PALPATE_RETURN_IF_ERROR(Grow(context, spare_, std::max<size_t>(body_count_, 1), "surface spares"));
  PALPATE_RETURN_IF_ERROR(queue.Write(is_whole_, std::span<const uint32_t>(is_whole)));
  PALPATE_RETURN_IF_ERROR(queue.Write(spare_, std::span<const float>(spare_m)));
  return queue.Fill(moves_, 0U);
}

absl::Status SurfaceReach::Measure(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& from,
                                   const DeviceBuffer<Float4>& to) {
  return queue.Launch(body_moves_, {surface.vertex_count, kSurfaceGroup}, Arg("vertex_count", surface.vertex_count),
                      Arg("vertex_groups", surface.vertex_groups), Arg("from", from), Arg("to", to), Arg("moves", moves_));
}

absl::Status SurfaceReach::LookAhead(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& start,
                                     const DeviceBuffer<Float4>& x) {
  if (are_full_) return absl::OkStatus();
  if (has_whole_) PALPATE_RETURN_IF_ERROR(Measure(queue, surface, start, x));
  are_full_ = !has_whole_;
  return queue.Launch(look_ahead_, {body_count_, kSurfaceGroup}, Arg("body_count", body_count_), Arg("p", params_),
                      Arg("is_whole", is_whole_), Arg("spare", spare_), Arg("stale", BufferView<uint32_t>{}), Arg("moves", moves_),
                      Arg("reaches", reaches_), Arg("caps", caps_));
}

absl::Status SurfaceReach::Spend(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& from,
                                 const DeviceBuffer<Float4>& to) {
  are_full_ = false;
  PALPATE_RETURN_IF_ERROR(Measure(queue, surface, from, to));
  return queue.Launch(spend_reaches_, {body_count_, kSurfaceGroup}, Arg("body_count", body_count_), Arg("p", params_), Arg("spare", spare_),
                      Arg("moves", moves_), Arg("reaches", reaches_), Arg("caps", caps_), Arg("stale", stale_));
}

absl::Status SurfaceReach::Renew(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& from,
                                 const DeviceBuffer<Float4>& start, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(Spend(queue, surface, from, x));
  PALPATE_RETURN_IF_ERROR(Measure(queue, surface, start, x));
  return queue.Launch(look_ahead_, {body_count_, kSurfaceGroup}, Arg("body_count", body_count_), Arg("p", params_),
                      Arg("is_whole", is_whole_), Arg("spare", spare_), Arg("stale", stale_), Arg("moves", moves_),
                      Arg("reaches", reaches_), Arg("caps", caps_));
}

absl::Status SurfaceReach::MarkBeyond(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& from,
                                      const DeviceBuffer<Float4>& to) {
  PALPATE_RETURN_IF_ERROR(Measure(queue, surface, from, to));
  return queue.Launch(mark_beyond_, {body_count_, kSurfaceGroup}, Arg("body_count", body_count_), Arg("caps", caps_), Arg("moves", moves_),
                      Arg("beyond", beyond_));
}

}  // namespace palpate::gpu
