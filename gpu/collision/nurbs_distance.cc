#include "gpu/collision/nurbs_distance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/collision/nurbs_minima.h"
#include "gpu/collision/nurbs_placement.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource nurbs_distance;
}
namespace {

constexpr uint32_t kMaxLevel = 200;
constexpr uint32_t kMaxPairs = 1U << 26;
constexpr double kMaxLength_m = 1e12;
// Cuts of a query's search in depth. On a CPU most end by themselves; on a GPU a work-item alone is slow, and a first bound is enough.
constexpr uint32_t kCutsOnCpu = 1U << 14;
constexpr uint32_t kCutsOnGpu = 64;
constexpr uint32_t kMaxCuts = 1U << 20;
// Of the distance: what the kernel allows for at least; see `wanted` in nurbs_distance.cl.
constexpr double kLeastShare = 0x1p-16;

absl::Status CheckLength(double value, const char* name) {
  if (value > 0 && value <= kMaxLength_m) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("NurbsDistanceOptions.", name, ": ", value, " is not in (0, 1e12]"));
}

// How far below the bound from above the search went: that of the kernel, rounded up.
double AllowanceOf(double tolerance_m, double slack_m, double upper_m) {
  return (1 + 1e-6) * std::max(tolerance_m, 4 * slack_m + kLeastShare * upper_m);
}

}  // namespace

absl::Status NurbsDistanceOptions::Validate() const {
  if (mode > NurbsDistanceMode::kMinima) return absl::InvalidArgumentError("NurbsDistanceOptions.mode: no mode");
  if (mode == NurbsDistanceMode::kLeast) PALPATE_RETURN_IF_ERROR(CheckLength(tolerance_m, "tolerance_m"));
  if (mode == NurbsDistanceMode::kMinima) {
    PALPATE_RETURN_IF_ERROR(CheckLength(range_m, "range_m"));
    PALPATE_RETURN_IF_ERROR(CheckLength(leaf_m, "leaf_m"));
  }
  if (max_level > kMaxLevel) {
    return absl::InvalidArgumentError(absl::StrCat("NurbsDistanceOptions.max_level: ", max_level, " is not in [0, ", kMaxLevel, "]"));
  }
  if (depth_cuts > kMaxCuts) {
    return absl::InvalidArgumentError(absl::StrCat("NurbsDistanceOptions.depth_cuts: ", depth_cuts, " is not in [0, ", kMaxCuts, "]"));
  }
  if (max_pairs < 2 || max_pairs > kMaxPairs) {
    return absl::InvalidArgumentError(absl::StrCat("NurbsDistanceOptions.max_pairs: ", max_pairs, " is not in [2, ", kMaxPairs, "]"));
  }
  if (max_pairs_of_query < 1 || max_pairs_of_query > max_pairs / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("NurbsDistanceOptions.max_pairs_of_query: ", max_pairs_of_query, " is not in [1, ", max_pairs / 2, "]"));
  }
  return absl::OkStatus();
}

absl::StatusOr<NurbsDistances> NurbsDistances::Create(const std::shared_ptr<Context>& context, const NurbsDistanceOptions& options) {
  PALPATE_RETURN_IF_ERROR(options.Validate());
  NurbsDistances out;
  out.context_ = context;
  out.options_ = options;
  out.group_ = context->device().is_gpu ? 32 : 1;
  if (options.depth_cuts == 0) out.options_.depth_cuts = context->device().is_gpu ? kCutsOnGpu : kCutsOnCpu;
  PALPATE_ASSIGN_OR_RETURN(out.scan_, ExclusiveScan::Create(context));
  PALPATE_ASSIGN_OR_RETURN(out.live_total_, DeviceBuffer<uint32_t>::Create(context, 1, "nurbs count of pairs"));
  PALPATE_ASSIGN_OR_RETURN(out.hit_total_, DeviceBuffer<uint32_t>::Create(context, 1, "nurbs count of hits"));
  return out;
}

absl::Status NurbsDistances::MakeKernels(const NurbsObjects& objects) {
  ProgramDefines defines = objects.Defines();
  defines["MINIMA"] = options_.mode == NurbsDistanceMode::kMinima ? "1" : "0";
  defines["VOLUME"] = "0";
  defines["SPLIT"] = "0";
  defines["WITH_CORNERS"] = "1";
  defines["WITH_CONES"] = defines["MINIMA"];
  if (defines == defines_) return absl::OkStatus();
  for (const auto& [kernel, name] : {std::pair(&roots_, "nurbs_distance_roots"), std::pair(&bounds_, "nurbs_distance_bounds"),
                                     std::pair(&count_, "nurbs_distance_count"), std::pair(&emit_, "nurbs_distance_emit"),
                                     std::pair(&next_level_, "nurbs_distance_next")}) {
    PALPATE_ASSIGN_OR_RETURN(*kernel, context_->CreateKernel(kernels::nurbs_distance, name, defines));
  }
  if (options_.mode == NurbsDistanceMode::kLeast) {
    PALPATE_ASSIGN_OR_RETURN(in_depth_, context_->CreateKernel(kernels::nurbs_distance, "nurbs_distance_in_depth", defines));
  }
  defines_ = std::move(defines);
  return absl::OkStatus();
}

NurbsRule NurbsDistances::Rule(uint32_t count) const {
  const bool has_minima = options_.mode == NurbsDistanceMode::kMinima;
  return {.tolerance_m = has_minima ? static_cast<float>(options_.leaf_m) : 0.0F,
          .max_level = options_.max_level,
          .count = count,
          .padding = 0};
}

float NurbsDistances::range_m() const {
  const bool has_minima = options_.mode == NurbsDistanceMode::kMinima;
  return std::nextafter(static_cast<float>(has_minima ? options_.range_m : options_.tolerance_m), INFINITY);
}

absl::StatusOr<std::vector<NurbsDistance>> NurbsDistances::Run(Queue& queue, const NurbsObjects& objects,
                                                               std::span<const NurbsQuery> queries) {
  PALPATE_RETURN_IF_ERROR(nurbs::CheckQueries(objects, queries));
  std::vector<NurbsDistance> results(queries.size());
  if (queries.empty()) return results;
  PALPATE_RETURN_IF_ERROR(MakeKernels(objects));
  std::vector<std::pair<size_t, size_t>> ranges = {{0, queries.size()}};
  while (!ranges.empty()) {
    const auto [begin, end] = ranges.back();
    ranges.pop_back();
    const size_t count = end - begin;
    PALPATE_ASSIGN_OR_RETURN(const bool is_done,
                             RunSome(queue, objects, queries.subspan(begin, count), std::span(results).subspan(begin, count)));
    if (is_done) continue;
    // A query alone has at most twice max_pairs_of_query.
    ranges.emplace_back(begin + count / 2, end);
    ranges.emplace_back(begin, begin + count / 2);
  }
  return results;
}

absl::Status NurbsDistances::Prepare(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries) {
  const auto count = static_cast<uint32_t>(queries.size());
  std::vector<NurbsPlacement> placements;
  placements.reserve(count);
  for (const NurbsQuery& query : queries) placements.push_back(nurbs::PlacementOf(objects, query));
  PALPATE_RETURN_IF_ERROR(Grow(context_, placements_, count, "nurbs placements"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, bests_, count, "nurbs distances"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, live_of_query_, count, "nurbs counts of queries"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, pairs_, count, "nurbs pairs"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, found_, 1, "nurbs hits"));
  PALPATE_RETURN_IF_ERROR(queue.Write(placements_, std::span<const NurbsPlacement>(placements)));
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(roots_, {count, 0}, Arg("count", count), Arg("placements", placements_), Arg("pairs", pairs_), Arg("bests", bests_)));
  if (options_.mode == NurbsDistanceMode::kLeast) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(in_depth_, {count, group_}, Arg("rule", Rule(count)), Arg("most", options_.depth_cuts),
                                         Arg("range_m", range_m()), Arg("placements", placements_), Arg("nodes", objects.nodes()),
                                         Arg("boxes", objects.boxes()), Arg("patches", objects.patches()), Arg("bezier", objects.bezier()),
                                         Arg("bests", bests_)));
  }
  return queue.Launch(next_level_, {count, 0}, Arg("count", count), Arg("bests", bests_), Arg("live_of_query", live_of_query_));
}

absl::Status NurbsDistances::Bound(Queue& queue, const NurbsObjects& objects, uint32_t count, uint32_t query_count) {
  PALPATE_RETURN_IF_ERROR(Grow(context_, codes_, size_t{count} * 2, "nurbs codes"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, lowers_, size_t{count} * 2, "nurbs lower bounds"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, uppers_, size_t{count} * 2, "nurbs upper bounds"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, live_, count, "nurbs counts of pairs"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, hits_, count, "nurbs counts of hits"));
  PALPATE_RETURN_IF_ERROR(queue.Launch(bounds_, {count, group_}, Arg("rule", Rule(count)), Arg("most", options_.max_pairs_of_query),
                                       Arg("pairs", pairs_), Arg("placements", placements_), Arg("nodes", objects.nodes()),
                                       Arg("boxes", objects.boxes()), Arg("patches", objects.patches()), Arg("bezier", objects.bezier()),
                                       Arg("pairs_of_query", live_of_query_), Arg("codes", codes_), Arg("lowers", lowers_),
                                       Arg("uppers", uppers_), Arg("bests", bests_)));
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(next_level_, {query_count, 0}, Arg("count", query_count), Arg("bests", bests_), Arg("live_of_query", live_of_query_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(count_, {count, 0}, Arg("count", count), Arg("range_m", range_m()), Arg("pairs", pairs_),
                                       Arg("placements", placements_), Arg("lowers", lowers_), Arg("uppers", uppers_), Arg("codes", codes_),
                                       Arg("bests", bests_), Arg("live_of_query", live_of_query_), Arg("live", live_), Arg("hits", hits_)));
  PALPATE_RETURN_IF_ERROR(scan_.Run(queue, live_, count, live_, live_total_));
  return scan_.Run(queue, hits_, count, hits_, hit_total_);
}

absl::Status NurbsDistances::GrowFound(Queue& queue, size_t kept, size_t needed) {
  if (found_.count() >= needed) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(auto larger, DeviceBuffer<NurbsPair>::Create(context_, needed + needed / 2, "nurbs hits"));
  if (kept > 0) PALPATE_RETURN_IF_ERROR(queue.Copy(found_, larger, kept));
  PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());  // the old one is about to go
  found_ = std::move(larger);
  return absl::OkStatus();
}

absl::StatusOr<bool> NurbsDistances::RunSome(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries,
                                             std::span<NurbsDistance> results) {
  if (queries.size() > options_.max_pairs) return false;
  const auto query_count = static_cast<uint32_t>(queries.size());
  PALPATE_RETURN_IF_ERROR(Prepare(queue, objects, queries));
  uint32_t count = query_count;
  uint32_t hit_count = 0;
  while (count > 0) {
    PALPATE_RETURN_IF_ERROR(Bound(queue, objects, count, query_count));
    uint32_t live_total = 0;
    uint32_t hit_total = 0;
    PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(live_total_, {&live_total, 1}));
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(hit_total_, {&hit_total, 1}));
    if (query_count > 1 && (live_total > options_.max_pairs || size_t{hit_count} + hit_total > options_.max_pairs)) return false;
    PALPATE_RETURN_IF_ERROR(Grow(context_, next_, live_total, "nurbs pairs"));
    PALPATE_RETURN_IF_ERROR(GrowFound(queue, hit_count, size_t{hit_count} + hit_total));
    PALPATE_RETURN_IF_ERROR(queue.Launch(emit_, {count, 0}, Arg("count", count), Arg("first_hit", hit_count), Arg("pairs", pairs_),
                                         Arg("nodes", objects.nodes()), Arg("codes", codes_), Arg("lowers", lowers_),
                                         Arg("live_begins", live_), Arg("hit_begins", hits_), Arg("bests", bests_), Arg("next", next_),
                                         Arg("found", found_)));
    std::swap(pairs_, next_);
    hit_count += hit_total;
    count = live_total;
  }
  PALPATE_RETURN_IF_ERROR(Finish(queue, objects, queries, hit_count, results));
  return true;
}

absl::Status NurbsDistances::Finish(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries, uint32_t hit_count,
                                    std::span<NurbsDistance> results) {
  std::vector<NurbsPair> found(hit_count);
  std::vector<NurbsDistanceBest> bests(queries.size());
  if (hit_count > 0) PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(found_, std::span<NurbsPair>(found)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(bests_, std::span<NurbsDistanceBest>(bests)));
  std::stable_sort(found.begin(), found.end(), [](const NurbsPair& x, const NurbsPair& y) { return x.query < y.query; });
  const bool has_minima = options_.mode == NurbsDistanceMode::kMinima;
  nurbs::PatchBalls balls(objects);
  size_t at = 0;
  for (uint32_t q = 0; q < queries.size(); ++q) {
    NurbsDistance& result = results[q];
    nurbs::MinimumFinder finder(objects, queries[q], balls);
    if (has_minima) {
      result.lower_bound_m = options_.range_m;
    } else {
      const auto upper = double{std::bit_cast<float>(bests[q].patch_upper_bits)};
      result.lower_bound_m = upper - AllowanceOf(options_.tolerance_m, double{nurbs::PlacementOf(objects, queries[q]).slack_m}, upper);
      result.minima.push_back(finder.Descend(bests[q].pair));
    }
    for (; at < found.size() && found[at].query == q; ++at) {
      result.lower_bound_m = std::min(result.lower_bound_m, double{found[at].lower_m});
      result.is_complete &= found[at].is_frozen == 0;
      if (!has_minima) continue;
      const auto minimum = finder.Polish(found[at]);
      if (minimum && minimum->distance_m <= options_.range_m) result.minima.push_back(*minimum);
    }
    result.lower_bound_m = std::max(result.lower_bound_m, 0.0);
    std::stable_sort(result.minima.begin(), result.minima.end(),
                     [](const NurbsMinimum& x, const NurbsMinimum& y) { return x.distance_m < y.distance_m; });
  }
  return absl::OkStatus();
}

}  // namespace palpate::gpu
