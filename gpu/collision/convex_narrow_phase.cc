#include "gpu/collision/convex_narrow_phase.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource convex;
}
namespace {

constexpr uint32_t kStatisticsChunk = 256;  // STATISTICS_CHUNK in convex.cl

absl::Status CheckBodies(const ConvexBodies& bodies) {
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ConvexNarrowPhase", "meshes", bodies.meshes.count, bodies.count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ConvexNarrowPhase", "positions", bodies.positions.count, bodies.count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ConvexNarrowPhase", "rotations", bodies.rotations.count, bodies.count));
  return CheckCapacity("ConvexNarrowPhase", "scales", bodies.scales.count, bodies.count);
}

}  // namespace

uint64_t ConvexStatistics::Count(const std::array<uint64_t, kBins>& bins) {
  uint64_t count = 0;
  for (const uint64_t bin : bins) count += bin;
  return count;
}

double ConvexStatistics::Mean(const std::array<uint64_t, kBins>& bins) {
  double sum = 0;
  for (uint32_t i = 0; i < kBins; ++i) sum += static_cast<double>(i) * static_cast<double>(bins[i]);
  return sum / static_cast<double>(std::max<uint64_t>(Count(bins), 1));
}

uint32_t ConvexStatistics::Max(const std::array<uint64_t, kBins>& bins) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < kBins; ++i) {
    if (bins[i] > 0) largest = i;
  }
  return largest;
}

absl::StatusOr<ConvexNarrowPhase> ConvexNarrowPhase::Create(const std::shared_ptr<Context>& context) {
  ConvexNarrowPhase phase;
  phase.context_ = context;
  // Pairs take very different times: small groups on a CPU, one wavefront on a GPU.
  phase.group_ = PrimitiveConfig::For(context->device()).group_size == 1 ? 8 : 64;
  PALPATE_ASSIGN_OR_RETURN(phase.gjk_, context->CreateKernel(kernels::convex, "convex_gjk"));
  PALPATE_ASSIGN_OR_RETURN(phase.epa_, context->CreateKernel(kernels::convex, "convex_epa"));
  PALPATE_ASSIGN_OR_RETURN(phase.planes_, context->CreateKernel(kernels::convex, "convex_planes"));
  PALPATE_ASSIGN_OR_RETURN(phase.statistics_, context->CreateKernel(kernels::convex, "convex_statistics"));
  PALPATE_ASSIGN_OR_RETURN(phase.compaction_, StreamCompaction::Create(context));
  PALPATE_ASSIGN_OR_RETURN(phase.overlapping_count_, DeviceBuffer<uint32_t>::Create(context, 1, "overlapping count"));
  PALPATE_ASSIGN_OR_RETURN(phase.bins_, DeviceBuffer<uint32_t>::Create(context, kStatisticsValues, "convex statistics"));
  return phase;
}

absl::Status ConvexNarrowPhase::Run(Queue& queue, const ConvexMeshes& meshes, const ConvexBodies& bodies, BufferView<UInt2> pairs,
                                    ItemCount count, float range_m, BufferView<ConvexContact> contacts) {
  if (!(range_m >= 0))
    return absl::InvalidArgumentError(absl::StrCat("ConvexNarrowPhase: range_m is ", range_m, ", allowed are 0 and more"));
  PALPATE_RETURN_IF_ERROR(CheckBodies(bodies));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ConvexNarrowPhase", "pairs", pairs.count, count.capacity));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ConvexNarrowPhase", "contacts", contacts.count, count.capacity));
  if (count.capacity == 0) return absl::OkStatus();
  if (count.capacity > capacity_) {
    const uint32_t capacity = std::min(std::max(count.capacity, capacity_ + capacity_ / 2), kMaxItems);
    PALPATE_ASSIGN_OR_RETURN(simplex_a_, DeviceBuffer<UInt4>::Create(context_, capacity, "simplex a"));
    PALPATE_ASSIGN_OR_RETURN(simplex_b_, DeviceBuffer<UInt4>::Create(context_, capacity, "simplex b"));
    PALPATE_ASSIGN_OR_RETURN(overlaps_, DeviceBuffer<uint32_t>::Create(context_, capacity, "overlap flags"));
    PALPATE_ASSIGN_OR_RETURN(overlapping_, DeviceBuffer<uint32_t>::Create(context_, capacity, "overlapping pairs"));
    capacity_ = capacity;
  }
  const Range range = {count.capacity, group_};
  PALPATE_RETURN_IF_ERROR(queue.Launch(
      gjk_, range, Arg("capacity", count.capacity), Arg("device_count", count.on_device), Arg("pairs", pairs), Arg("meshes", bodies.meshes),
      Arg("positions", bodies.positions), Arg("rotations", bodies.rotations), Arg("scales", bodies.scales), Arg("shapes", meshes.shapes()),
      Arg("vertices", meshes.vertices()), Arg("rows", meshes.rows()), Arg("neighbors", meshes.neighbors()), Arg("range_m", range_m),
      Arg("contacts", contacts), Arg("simplex_a", simplex_a_), Arg("simplex_b", simplex_b_), Arg("overlaps", overlaps_)));
  PALPATE_RETURN_IF_ERROR(compaction_.Run(queue, overlaps_, count.capacity, overlapping_, overlapping_count_));
  return queue.Launch(epa_, range, Arg("capacity", count.capacity), Arg("device_count", overlapping_count_),
                      Arg("overlapping", overlapping_), Arg("meshes", bodies.meshes), Arg("positions", bodies.positions),
                      Arg("rotations", bodies.rotations), Arg("scales", bodies.scales), Arg("shapes", meshes.shapes()),
                      Arg("vertices", meshes.vertices()), Arg("rows", meshes.rows()), Arg("neighbors", meshes.neighbors()),
                      Arg("simplex_a", simplex_a_), Arg("simplex_b", simplex_b_), Arg("contacts", contacts));
}

absl::Status ConvexNarrowPhase::RunPlanes(Queue& queue, const ConvexMeshes& meshes, const ConvexBodies& bodies, BufferView<Float4> planes,
                                          BufferView<ConvexContact> contacts) {
  PALPATE_RETURN_IF_ERROR(CheckBodies(bodies));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ConvexNarrowPhase", "contacts", contacts.count, bodies.count * planes.count));
  return queue.Launch(planes_, {bodies.count * planes.count, group_}, Arg("body_count", bodies.count), Arg("meshes", bodies.meshes),
                      Arg("positions", bodies.positions), Arg("rotations", bodies.rotations), Arg("scales", bodies.scales),
                      Arg("shapes", meshes.shapes()), Arg("vertices", meshes.vertices()), Arg("rows", meshes.rows()),
                      Arg("neighbors", meshes.neighbors()), Arg("plane_count", static_cast<uint32_t>(planes.count)), Arg("planes", planes),
                      Arg("contacts", contacts));
}

absl::Status ConvexNarrowPhase::AddStatistics(Queue& queue, BufferView<ConvexContact> contacts, ItemCount count,
                                              ConvexStatistics* statistics) {
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ConvexNarrowPhase", "contacts", contacts.count, count.capacity));
  PALPATE_RETURN_IF_ERROR(queue.Zero(bins_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(statistics_, {(count.capacity + size_t{kStatisticsChunk} - 1) / kStatisticsChunk, 0},
                                       Arg("capacity", count.capacity), Arg("device_count", count.on_device), Arg("contacts", contacts),
                                       Arg("bins", bins_)));
  std::vector<uint32_t> bins(kStatisticsValues);
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(bins_, bins));
  for (uint32_t i = 0; i < ConvexStatistics::kBins; ++i) {
    statistics->gjk[i] += bins[i];
    statistics->epa[i] += bins[ConvexStatistics::kBins + i];
  }
  for (uint32_t i = 0; i < 4; ++i) statistics->by_status[i] += bins[2 * ConvexStatistics::kBins + i];
  statistics->degenerate_tetrahedra += bins[2 * ConvexStatistics::kBins + 4];
  return absl::OkStatus();
}

}  // namespace palpate::gpu
