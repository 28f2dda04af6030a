#include "gpu/collision/nurbs_queries.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/collision/nurbs_placement.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource nurbs_queries;
extern const KernelSource nurbs_self;
}  // namespace kernels
namespace {

constexpr uint32_t kMaxLevel = 200;
constexpr uint32_t kMaxItemsOfRun = 1U << 27;
constexpr uint32_t kNoHit = 0xffffffffU;

using Vector = std::array<double, 3>;
using nurbs::OriginOf;
using nurbs::PlacementOf;

std::array<double, 2> IntervalIn(const std::array<double, 2>& span, uint32_t interval) {
  const auto at = [&](uint32_t i) {
    const double share = std::ldexp(static_cast<double>(i), -static_cast<int>(interval >> 24));
    return (1 - share) * span[0] + share * span[1];
  };
  return {at(interval & 0xffffffU), at((interval & 0xffffffU) + 1)};
}

// Hits of nodes above patches, where the levels or the tolerance ended the search, span these.
NurbsPart PartOf(const NurbsObjects& objects, uint32_t node, uint32_t u, uint32_t v) {
  const NurbsNode& of = objects.node(node);
  const NurbsObjects::PatchPlace first = objects.patch_place(of.patch);
  NurbsPart part{.surface = first.surface,
                 .patch = of.patch,
                 .u = IntervalIn(first.u, u),
                 .v = IntervalIn(first.v, v),
                 .point_m = {},
                 .u_interval = u,
                 .v_interval = v};
  if (of.child != 0) {
    const NurbsObjects::PatchPlace last = objects.patch_place(of.patch + (of.rows - 1) * of.stride + of.columns - 1);
    part.u[1] = last.u[1];
    part.v[1] = last.v[1];
    part.is_node = true;
  }
  return part;
}

// Queries of a surface with itself.
absl::Status CheckSelf(const NurbsObjects& objects, std::span<const NurbsQuery> queries) {
  for (size_t i = 0; i < queries.size(); ++i) {
    const NurbsQuery& query = queries[i];
    if (query.object_a != query.object_b || query.pose_a.linear != query.pose_b.linear || query.pose_a.offset_m != query.pose_b.offset_m) {
      return absl::InvalidArgumentError(absl::StrCat("queries[", i, "]: with is_self both objects and poses are the same"));
    }
    const NurbsNode& root = objects.node(objects.root(query.object_a));
    if (root.stride == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("queries[", i, "]: object ", query.object_a, " has several surfaces, with is_self it must have one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status NurbsQueryOptions::Validate() const {
  if (volume > NurbsVolume::kDop26) return absl::InvalidArgumentError("NurbsQueryOptions.volume: no kind of volume");
  if (split > NurbsSplit::kSixteen) return absl::InvalidArgumentError("NurbsQueryOptions.split: no rule");
  if (is_self && (first_only || volume != NurbsVolume::kTangentBox || split != NurbsSplit::kLarger)) {
    return absl::InvalidArgumentError("NurbsQueryOptions.is_self: only with first_only false, volume kTangentBox and split kLarger");
  }
  if (!(tolerance_m >= 0 && tolerance_m <= 1e12)) {
    return absl::InvalidArgumentError(absl::StrCat("NurbsQueryOptions.tolerance_m: ", tolerance_m, " is not in [0, 1e12]"));
  }
  if (max_level > kMaxLevel) {
    return absl::InvalidArgumentError(absl::StrCat("NurbsQueryOptions.max_level: ", max_level, " is not in [0, ", kMaxLevel, "]"));
  }
  if (max_pairs < 1 || max_pairs > kMaxItemsOfRun) {
    return absl::InvalidArgumentError(absl::StrCat("NurbsQueryOptions.max_pairs: ", max_pairs, " is not in [1, ", kMaxItemsOfRun, "]"));
  }
  if (max_hits < 1 || max_hits > kMaxItemsOfRun) {
    return absl::InvalidArgumentError(absl::StrCat("NurbsQueryOptions.max_hits: ", max_hits, " is not in [1, ", kMaxItemsOfRun, "]"));
  }
  return absl::OkStatus();
}

absl::StatusOr<NurbsQueries> NurbsQueries::Create(const std::shared_ptr<Context>& context, const NurbsQueryOptions& options) {
  PALPATE_RETURN_IF_ERROR(options.Validate());
  NurbsQueries queries;
  queries.context_ = context;
  queries.options_ = options;
  // A work-item's nets are large: on a CPU it has a group of its own.
  queries.group_ = context->device().is_gpu ? 32 : 1;
  queries.children_ = options.is_self ? 3 : options.split == NurbsSplit::kSixteen ? 16 : options.split == NurbsSplit::kBoth ? 4 : 2;
  PALPATE_ASSIGN_OR_RETURN(queries.scan_, ExclusiveScan::Create(context));
  PALPATE_ASSIGN_OR_RETURN(queries.live_total_, DeviceBuffer<uint32_t>::Create(context, 1, "nurbs count of pairs"));
  PALPATE_ASSIGN_OR_RETURN(queries.hit_total_, DeviceBuffer<uint32_t>::Create(context, 1, "nurbs count of hits"));
  return queries;
}

absl::Status NurbsQueries::MakeKernels(const NurbsObjects& objects, uint32_t stack) {
  ProgramDefines defines = objects.Defines();
  defines["VOLUME"] = std::to_string(static_cast<uint32_t>(options_.volume));
  defines["SPLIT"] = std::to_string(static_cast<uint32_t>(options_.split));
  defines["STACK"] = std::to_string(stack);
  ProgramDefines for_self = objects.Defines();
  for (const char* name : {"VOLUME", "SPLIT"}) for_self[name] = "0";
  for_self["WITH_CONES"] = "1";
  if (defines == defines_) return absl::OkStatus();
  for (const auto& [kernel, name] :
       {std::pair(&roots_, "nurbs_roots"), std::pair(&expand_, "nurbs_expand"), std::pair(&emit_, "nurbs_emit"),
        std::pair(&first_, "nurbs_first_hits"), std::pair(&middles_, "nurbs_middles")}) {
    PALPATE_ASSIGN_OR_RETURN(*kernel, context_->CreateKernel(kernels::nurbs_queries, name, defines));
  }
  if (options_.is_self) {
    PALPATE_ASSIGN_OR_RETURN(expand_, context_->CreateKernel(kernels::nurbs_self, "nurbs_self_expand", for_self));
    PALPATE_ASSIGN_OR_RETURN(emit_, context_->CreateKernel(kernels::nurbs_self, "nurbs_self_emit", for_self));
  }
  defines_ = std::move(defines);
  return absl::OkStatus();
}

absl::StatusOr<NurbsQueryResult> NurbsQueries::Run(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries) {
  PALPATE_RETURN_IF_ERROR(nurbs::CheckQueries(objects, queries));
  if (options_.is_self) PALPATE_RETURN_IF_ERROR(CheckSelf(objects, queries));
  uint32_t deepest = 0;
  for (const NurbsQuery& query : queries) deepest = std::max({deepest, objects.depth(query.object_a), objects.depth(query.object_b)});
  NurbsQueryResult result;
  if (queries.empty()) return result;
  // A cut of n levels leaves at most 2^n - 1 pairs behind, n at most 1, 2 or 4 by the rule. Rounded up, so that few programs are made.
  const uint32_t cuts = 2 * deepest + std::min(options_.max_level, 4 * PALPATE_NURBS_MAX_HALVINGS);
  const auto levels_of_cut = static_cast<uint32_t>(std::bit_width(children_) - 1);
  const uint32_t stack = options_.is_self ? 1 : ((cuts + levels_of_cut) * (children_ - 1) / levels_of_cut / 64 + 1) * 64;
  PALPATE_RETURN_IF_ERROR(MakeKernels(objects, stack));
  if (options_.first_only) {
    result.peak_bytes = (stack + 1) * sizeof(NurbsPair) + sizeof(NurbsPlacement) + sizeof(uint32_t);
    constexpr size_t kBatch = size_t{1} << 18;
    for (size_t begin = 0; begin < queries.size(); begin += kBatch) {
      const std::span<const NurbsQuery> batch = queries.subspan(begin, std::min(kBatch, queries.size() - begin));
      const size_t hits_before = result.hits.size();
      PALPATE_RETURN_IF_ERROR(RunFirst(queue, objects, batch, result));
      for (size_t i = hits_before; i < result.hits.size(); ++i) result.hits[i].query += static_cast<uint32_t>(begin);
    }
    return result;
  }
  std::vector<std::pair<size_t, size_t>> ranges = {{0, queries.size()}};
  while (!ranges.empty()) {
    const auto [begin, end] = ranges.back();
    ranges.pop_back();
    PALPATE_ASSIGN_OR_RETURN(const bool is_done, RunAll(queue, objects, queries.subspan(begin, end - begin), begin, result));
    if (is_done) continue;
    if (end - begin == 1) {
      return absl::ResourceExhaustedError(absl::StrCat("queries[", begin, "]: more than max_pairs = ", options_.max_pairs, " pairs"));
    }
    ranges.emplace_back(begin + (end - begin) / 2, end);
    ranges.emplace_back(begin, begin + (end - begin) / 2);
  }
  const auto order = [](const NurbsHit& hit) {
    return std::tuple(hit.query, hit.a.surface, hit.b.surface, hit.a.u[0], hit.a.v[0], hit.b.u[0], hit.b.v[0], hit.a.patch, hit.b.patch);
  };
  std::sort(result.hits.begin(), result.hits.end(), [&](const NurbsHit& x, const NurbsHit& y) { return order(x) < order(y); });
  return result;
}

absl::Status NurbsQueries::RunFirst(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries,
                                    NurbsQueryResult& result) {
  const auto count = static_cast<uint32_t>(queries.size());
  std::vector<NurbsPlacement> placements;
  placements.reserve(count);
  for (const NurbsQuery& query : queries) placements.push_back(PlacementOf(objects, query));
  PALPATE_RETURN_IF_ERROR(Grow(context_, placements_, count, "nurbs placements"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, found_, count, "nurbs hits"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, tests_, count, "nurbs test counts"));
  PALPATE_RETURN_IF_ERROR(queue.Write(placements_, std::span<const NurbsPlacement>(placements)));
  const NurbsRule rule{
      .tolerance_m = static_cast<float>(options_.tolerance_m), .max_level = options_.max_level, .count = count, .padding = 0};
  PALPATE_RETURN_IF_ERROR(queue.Launch(first_, {count, group_}, Arg("rule", rule), Arg("placements", placements_),
                                       Arg("nodes", objects.nodes()), Arg("boxes", objects.boxes()), Arg("patches", objects.patches()),
                                       Arg("bezier", objects.bezier()), Arg("found", found_), Arg("tests", tests_)));
  PALPATE_RETURN_IF_ERROR(AppendHits(queue, objects, queries, count, result));
  std::vector<uint32_t> tests(count);
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(tests_, std::span<uint32_t>(tests)));
  for (const uint32_t n : tests) result.pair_tests += n;
  return absl::OkStatus();
}

absl::StatusOr<bool> NurbsQueries::RunAll(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries, size_t first,
                                          NurbsQueryResult& result) {
  if (queries.size() > options_.max_pairs) return false;
  auto count = static_cast<uint32_t>(queries.size());
  std::vector<NurbsPlacement> placements;
  placements.reserve(count);
  for (const NurbsQuery& query : queries) placements.push_back(PlacementOf(objects, query));
  PALPATE_RETURN_IF_ERROR(Grow(context_, placements_, count, "nurbs placements"));
  PALPATE_RETURN_IF_ERROR(queue.Write(placements_, std::span<const NurbsPlacement>(placements)));
  PALPATE_RETURN_IF_ERROR(Grow(context_, pairs_, count, "nurbs pairs"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, found_, 1, "nurbs hits"));
  PALPATE_RETURN_IF_ERROR(queue.Launch(roots_, {count, 0}, Arg("count", count), Arg("placements", placements_), Arg("pairs", pairs_)));
  uint32_t hit_count = 0;
  uint32_t levels = 0;
  uint64_t tests = 0;
  while (count > 0) {
    const uint32_t per_pair = levels == 0 ? 1 : children_;
    tests += uint64_t{count} * per_pair;
    PALPATE_RETURN_IF_ERROR(Grow(context_, codes_, size_t{count} * children_, "nurbs codes"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, live_, count, "nurbs counts of pairs"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, hits_, count, "nurbs counts of hits"));
    const NurbsRule rule{
        .tolerance_m = static_cast<float>(options_.tolerance_m), .max_level = options_.max_level, .count = count, .padding = 0};
    PALPATE_RETURN_IF_ERROR(queue.Launch(expand_, {count, group_}, Arg("rule", rule), Arg("pairs", pairs_), Arg("placements", placements_),
                                         Arg("nodes", objects.nodes()), Arg("boxes", objects.boxes()), Arg("patches", objects.patches()),
                                         Arg("bezier", objects.bezier()), Arg("codes", codes_), Arg("live", live_), Arg("hits", hits_)));
    PALPATE_RETURN_IF_ERROR(scan_.Run(queue, live_, count, live_, live_total_));
    PALPATE_RETURN_IF_ERROR(scan_.Run(queue, hits_, count, hits_, hit_total_));
    uint32_t live_total = 0;
    uint32_t hit_total = 0;
    PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(live_total_, {&live_total, 1}));
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(hit_total_, {&hit_total, 1}));
    if (live_total > options_.max_pairs) return false;
    if (result.hits.size() + hit_count + hit_total > options_.max_hits) {
      return absl::ResourceExhaustedError(absl::StrCat("NURBS queries: more than max_hits = ", options_.max_hits, " hits"));
    }
    const size_t of_pair = sizeof(NurbsPair) + children_ + 2 * sizeof(uint32_t);
    const size_t pairs = (size_t{live_total} + hit_count + hit_total) * sizeof(NurbsPair);
    result.peak_bytes = std::max<uint64_t>(result.peak_bytes, queries.size() * sizeof(NurbsPlacement) + count * of_pair + pairs);
    PALPATE_RETURN_IF_ERROR(Grow(context_, next_, live_total, "nurbs pairs"));
    if (found_.count() < size_t{hit_count} + hit_total) {
      const size_t needed = size_t{hit_count} + hit_total;
      PALPATE_ASSIGN_OR_RETURN(auto larger, DeviceBuffer<NurbsPair>::Create(context_, needed + needed / 2, "nurbs hits"));
      if (hit_count > 0) PALPATE_RETURN_IF_ERROR(queue.Copy(found_, larger, hit_count));
      PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());  // the old one is about to go
      found_ = std::move(larger);
    }
    PALPATE_RETURN_IF_ERROR(queue.Launch(emit_, {count, 0}, Arg("count", count), Arg("first_hit", hit_count), Arg("pairs", pairs_),
                                         Arg("nodes", objects.nodes()), Arg("codes", codes_), Arg("live_begins", live_),
                                         Arg("hit_begins", hits_), Arg("next", next_), Arg("found", found_)));
    std::swap(pairs_, next_);
    hit_count += hit_total;
    count = live_total;
    ++levels;
  }
  const size_t hits_before = result.hits.size();
  PALPATE_RETURN_IF_ERROR(AppendHits(queue, objects, queries, hit_count, result));
  for (size_t i = hits_before; i < result.hits.size(); ++i) result.hits[i].query += static_cast<uint32_t>(first);
  result.levels = std::max(result.levels, levels);
  result.pair_tests += tests;
  return true;
}

absl::Status NurbsQueries::AppendHits(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries, uint32_t count,
                                      NurbsQueryResult& result) {
  if (count == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Grow(context_, middles_out_, count, "nurbs middles"));
  PALPATE_RETURN_IF_ERROR(queue.Launch(middles_, {count, group_}, Arg("count", count), Arg("found", found_), Arg("placements", placements_),
                                       Arg("nodes", objects.nodes()), Arg("boxes", objects.boxes()), Arg("patches", objects.patches()),
                                       Arg("bezier", objects.bezier()), Arg("middles", middles_out_)));
  std::vector<NurbsPair> pairs(count);
  std::vector<NurbsMiddles> middles(count);
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(found_, std::span<NurbsPair>(pairs)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(middles_out_, std::span<NurbsMiddles>(middles)));
  for (size_t i = 0; i < count; ++i) {
    const NurbsPair& pair = pairs[i];
    if (pair.level == kNoHit) continue;
    NurbsHit hit{.query = pair.query,
                 .a = PartOf(objects, pair.node_a, pair.u_a, pair.v_a),
                 .b = PartOf(objects, pair.node_b, pair.u_b, pair.v_b),
                 .distance_m = double{middles[i].on_b.w},
                 .size_m = double{middles[i].on_a.w}};
    const Vector origin = OriginOf(objects, queries[pair.query]);
    hit.a.point_m = {origin[0] + double{middles[i].on_a.x}, origin[1] + double{middles[i].on_a.y}, origin[2] + double{middles[i].on_a.z}};
    hit.b.point_m = {origin[0] + double{middles[i].on_b.x}, origin[1] + double{middles[i].on_b.y}, origin[2] + double{middles[i].on_b.z}};
    result.hits.push_back(hit);
  }
  return absl::OkStatus();
}

}  // namespace palpate::gpu
