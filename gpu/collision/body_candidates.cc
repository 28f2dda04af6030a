#include "gpu/collision/body_candidates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource body_candidates;
}
namespace {

constexpr uint32_t kWidth = BoxHierarchy::kWidth;
// Up to so many bodies all pairs of their boxes are compared: quicker than the launches that a tree takes.
constexpr uint32_t kFewBodies = 1024;
constexpr uint32_t kMortonBits = 10;  // an axis
// Pairs of bodies that a work-item takes on a CPU, whose work-items are dear: to test their clusters, and to look for planes.
constexpr uint32_t kPairsPerItem = 16;
constexpr uint32_t kListedPerItem = 64;
constexpr uint32_t kBlock = 8;             // vertices
constexpr size_t kFewClusterPairs = 1024;  // there is room for so many at first
// Of the largest side of a body's box: how far it may move before pairs are listed anew. More makes the list longer.
constexpr float kSlackShare = 0.1F;

/// Place of a cell along a Morton curve.
uint32_t Spread(uint32_t v) {
  v = (v | (v << 16)) & 0x030000ffU;
  v = (v | (v << 8)) & 0x0300f00fU;
  v = (v | (v << 4)) & 0x030c30c3U;
  return (v | (v << 2)) & 0x09249249U;
}

/// Sorts elements of one body along a Morton curve through the box of their centres. What has no finite centre comes first.
void SortAlongCurve(const std::vector<std::array<float, 3>>& centers, std::vector<uint32_t>* elements) {
  std::array<float, 3> low{INFINITY, INFINITY, INFINITY};
  std::array<float, 3> high{-INFINITY, -INFINITY, -INFINITY};
  for (const uint32_t e : *elements) {
    for (size_t k = 0; k < 3; ++k) {
      low[k] = std::fmin(low[k], centers[e][k]);
      high[k] = std::fmax(high[k], centers[e][k]);
    }
  }
  const float widest = std::max({high[0] - low[0], high[1] - low[1], high[2] - low[2]});
  const float cells = ((1U << kMortonBits) - 1) / (widest > 0 ? widest : 1);
  std::vector<std::pair<uint32_t, uint32_t>> keys;
  for (const uint32_t e : *elements) {
    uint32_t key = 0;
    for (size_t k = 0; k < 3; ++k) {
      const float cell = (centers[e][k] - low[k]) * cells;
      key |= Spread(std::isfinite(cell) ? static_cast<uint32_t>(cell) : 0U) << k;
    }
    keys.emplace_back(key, e);
  }
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < keys.size(); ++i) (*elements)[i] = keys[i].second;
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadAll(Queue& queue, const DeviceBuffer<T>& buffer, size_t count) {
  std::vector<T> values(count);
  if (count > 0) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(buffer, std::span<T>(values)));
  return values;
}

template <typename T>
absl::Status Upload(const std::shared_ptr<Context>& context, Queue& queue, const std::vector<T>& values, DeviceBuffer<T>* buffer,
                    const char* name) {
  PALPATE_RETURN_IF_ERROR(Grow(context, *buffer, std::max<size_t>(values.size(), 1), name));
  return values.empty() ? absl::OkStatus() : queue.Write(*buffer, std::span<const T>(values));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CandidatePairs>> BodyCandidates::Create(const std::shared_ptr<Context>& context, uint64_t max_pairs) {
  std::unique_ptr<BodyCandidates> candidates(new BodyCandidates());
  candidates->context_ = context;
  candidates->max_pairs_ = max_pairs;
  candidates->group_size_ = context->device().is_gpu ? 64 : 1;
  const auto& source = kernels::body_candidates;
  PALPATE_ASSIGN_OR_RETURN(candidates->boxes_kernel_, context->CreateKernel(source, "body_swept_boxes"));
  PALPATE_ASSIGN_OR_RETURN(candidates->wide_kernel_, context->CreateKernel(source, "body_wide_boxes"));
  PALPATE_ASSIGN_OR_RETURN(candidates->few_kernel_, context->CreateKernel(source, "body_list_of_few"));
  PALPATE_ASSIGN_OR_RETURN(candidates->many_kernel_, context->CreateKernel(source, "body_list_of_many"));
  PALPATE_ASSIGN_OR_RETURN(candidates->planes_kernel_, context->CreateKernel(source, "body_pairs"));
  PALPATE_ASSIGN_OR_RETURN(candidates->clusters_kernel_, context->CreateKernel(source, "body_clusters"));
  PALPATE_ASSIGN_OR_RETURN(candidates->pairs_kernel_, context->CreateKernel(source, "body_cluster_pairs"));
  PALPATE_ASSIGN_OR_RETURN(candidates->copy_kernel_, context->CreateKernel(source, "body_copy_positions"));
  PALPATE_ASSIGN_OR_RETURN(candidates->body_tree_, BoxHierarchy::Create(context));
  PALPATE_ASSIGN_OR_RETURN(candidates->body_cluster_pairs_, ClusterPairs::Create(context));
  PALPATE_ASSIGN_OR_RETURN(candidates->counters_,
                           DeviceBuffer<uint32_t>::Create(context, sizeof(Counts) / sizeof(uint32_t), "body candidate counters"));
  return candidates;
}

absl::Status BodyCandidates::OrderKind(Queue& queue, const DeviceSurface& surface, SurfaceElement kind,
                                       const std::vector<Float4>& positions) {
  const uint32_t count = surface.CountOf(kind);
  PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> groups, ReadAll(queue, surface.GroupsOf(kind), count));
  std::vector<std::array<float, 3>> centers(count);
  const auto sum_of = [&](auto... vertices) {
    std::array<float, 3> sum{};
    for (const uint32_t v : {vertices...}) sum = {sum[0] + positions[v].x, sum[1] + positions[v].y, sum[2] + positions[v].z};
    return sum;  // as good as the mean here
  };
  if (kind == SurfaceElement::kVertex) {
    for (uint32_t v = 0; v < count; ++v) centers[v] = sum_of(v);
  } else if (kind == SurfaceElement::kEdge) {
    PALPATE_ASSIGN_OR_RETURN(const std::vector<UInt2> edges, ReadAll(queue, surface.edges, count));
    for (uint32_t e = 0; e < count; ++e) centers[e] = sum_of(edges[e].x, edges[e].y);
  } else {
    PALPATE_ASSIGN_OR_RETURN(const std::vector<UInt4> triangles, ReadAll(queue, surface.triangles, count));
    for (uint32_t t = 0; t < count; ++t) centers[t] = sum_of(triangles[t].x, triangles[t].y, triangles[t].z);
  }
  std::vector<std::vector<uint32_t>> of_body(body_count_);
  for (uint32_t e = 0; e < count; ++e) {
    if (groups[e] != SurfaceTopology::kNoGroup) of_body[groups[e] & PALPATE_GROUP_MASK].push_back(e);
  }
  std::vector<uint32_t> begins(1, 0);
  std::vector<uint32_t> elements, lane_groups, body;
  for (uint32_t b = 0; b < body_count_; ++b) {
    SortAlongCurve(centers, &of_body[b]);
    for (size_t first = 0; first < of_body[b].size(); first += kWidth) {
      body.push_back(b);
      for (size_t lane = 0; lane < kWidth; ++lane) {
        elements.push_back(first + lane < of_body[b].size() ? of_body[b][first + lane] : BoxHierarchy::kNoElement);
      }
      // The smallest and the largest group of a lane: of an element both are its own.
      const uint32_t group = groups[of_body[b][first]];
      lane_groups.insert(lane_groups.end(), 2 * size_t{kWidth}, group);
    }
    begins.push_back(static_cast<uint32_t>(body.size()));
  }
  Clusters& clusters = clusters_[static_cast<size_t>(kind)];
  clusters.count = static_cast<uint32_t>(body.size());
  PALPATE_RETURN_IF_ERROR(Upload(context_, queue, elements, &clusters.elements, "body cluster elements"));
  PALPATE_RETURN_IF_ERROR(Upload(context_, queue, lane_groups, &clusters.groups, "body cluster groups"));
  PALPATE_RETURN_IF_ERROR(Upload(context_, queue, body, &clusters.body, "body of clusters"));
  PALPATE_RETURN_IF_ERROR(Upload(context_, queue, begins, &clusters.begins, "body cluster begins"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, clusters.nodes, size_t{6} * kWidth * clusters.count, "body cluster nodes"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, clusters.boxes, clusters.count, "body cluster boxes"));
  if (kind != SurfaceElement::kVertex) return absl::OkStatus();

  std::vector<UInt2> self_pairs;
  std::vector<uint32_t> meets_itself(body_count_, 0);
  for (uint32_t b = 0; b < body_count_; ++b) {
    if (of_body[b].empty() || (groups[of_body[b][0]] & PALPATE_GROUP_SELF) == 0) continue;
    meets_itself[b] = 1;
    self_pairs.push_back({b, b});
  }
  self_count_ = static_cast<uint32_t>(self_pairs.size());
  PALPATE_RETURN_IF_ERROR(Upload(context_, queue, meets_itself, &meets_itself_, "bodies that meet themselves"));
  PALPATE_RETURN_IF_ERROR(Upload(context_, queue, self_pairs, &body_pairs_, "body pairs"));
  return ReserveBodies(queue, of_body);
}

absl::Status BodyCandidates::ReserveBodies(Queue& queue, const std::vector<std::vector<uint32_t>>& vertices_of_body) {
  std::vector<uint32_t> begins(1, 0);
  std::vector<uint32_t> vertices;
  for (const std::vector<uint32_t>& own : vertices_of_body) {
    vertices.insert(vertices.end(), own.begin(), own.end());
    while (vertices.size() % kBlock != 0) vertices.push_back(own.back());
    begins.push_back(static_cast<uint32_t>(vertices.size() / kBlock));
  }
  PALPATE_RETURN_IF_ERROR(Upload(context_, queue, begins, &vertex_begins_, "body vertex begins"));
  PALPATE_RETURN_IF_ERROR(Upload(context_, queue, vertices, &vertices_, "body vertices"));
  for (DeviceBuffer<float>* blocks : {&block_starts_, &block_ends_}) {
    PALPATE_RETURN_IF_ERROR(Grow(context_, *blocks, 3 * std::max<size_t>(vertices.size(), 1), "body vertex blocks"));
    PALPATE_RETURN_IF_ERROR(queue.Fill(*blocks, std::numeric_limits<float>::quiet_NaN()));  // nothing was anywhere before
  }
  for (DeviceBuffer<uint32_t>* words : {&may_be_refused_, &active_, &changed_, &is_fresh_, &stale_}) {
    PALPATE_RETURN_IF_ERROR(Grow(context_, *words, body_count_, "body states"));
  }
  PALPATE_RETURN_IF_ERROR(Grow(context_, body_boxes_, body_count_, "body boxes"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, wide_boxes_, body_count_, "wide body boxes"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, ways_, std::max(body_count_, 1U), "body ways"));
  PALPATE_RETURN_IF_ERROR(queue.Zero(ways_));
  return Grow(context_, wide_nodes_, size_t{6} * kWidth * NodeCount(), "wide body nodes");
}

absl::Status BodyCandidates::Order(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m) {
  version_ = 0;
  has_list_ = false;
  ++order_;
  body_count_ = surface.body_count;
  DeviceBuffer<Float4> copy;
  PALPATE_RETURN_IF_ERROR(Grow(context_, copy, std::max(surface.vertex_count, 1U), "body positions"));
  PALPATE_RETURN_IF_ERROR(queue.Launch(copy_kernel_, {surface.vertex_count, group_size_}, Arg("count", surface.vertex_count),
                                       Arg("positions", positions_m), Arg("copy", copy)));
  PALPATE_ASSIGN_OR_RETURN(const std::vector<Float4> positions, ReadAll(queue, copy, surface.vertex_count));
  for (const SurfaceElement kind : {SurfaceElement::kVertex, SurfaceElement::kEdge, SurfaceElement::kTriangle}) {
    PALPATE_RETURN_IF_ERROR(OrderKind(queue, surface, kind, positions));
  }
  version_ = surface.version;
  return absl::OkStatus();
}

absl::Status BodyCandidates::Begin(Queue& queue, const DeviceSurface& surface, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                                   float distance_m, BufferView<uint32_t> wanted) {
  return FindBodyPairs(queue, surface, {starts_m, ends_m, distance_m, /*is_again=*/false, {}, wanted});
}

absl::Status BodyCandidates::BeginAtRest(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m, float distance_m,
                                         BufferView<float> reaches_m, BufferView<uint32_t> wanted) {
  return FindBodyPairs(queue, surface, {positions_m, positions_m, distance_m, /*is_again=*/false, reaches_m, wanted});
}

absl::Status BodyCandidates::BeginAgain(Queue& queue, const DeviceSurface& surface, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                                        float distance_m) {
  const bool is_known = version_ == surface.version && starts_m.handle != ends_m.handle;
  return FindBodyPairs(queue, surface, {starts_m, ends_m, distance_m, /*is_again=*/is_known});
}

absl::Status BodyCandidates::WriteCounts(Queue& queue) {
  const auto words = std::bit_cast<std::array<uint32_t, sizeof(Counts) / sizeof(uint32_t)>>(counts_);
  return queue.Write(counters_, std::span<const uint32_t>(words));
}

absl::Status BodyCandidates::ReadCounts(Queue& queue) {
  std::array<uint32_t, sizeof(Counts) / sizeof(uint32_t)> words{};
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(counters_, std::span<uint32_t>(words)));
  counts_ = std::bit_cast<Counts>(words);
  return absl::OkStatus();
}

absl::Status BodyCandidates::SweepBodies(Queue& queue, const Run& run) {
  counts_ = {.pairs = self_count_};
  PALPATE_RETURN_IF_ERROR(WriteCounts(queue));
  return queue.Launch(boxes_kernel_, {body_count_, group_size_}, Arg("body_count", body_count_), Arg("begins", vertex_begins_),
                      Arg("vertices", vertices_), Arg("meets_itself", meets_itself_), Arg("starts", run.starts_m),
                      Arg("ends", run.is_moving() ? run.ends_m : BufferView<Float4>()), Arg("half_distance", run.distance_m / 2),
                      Arg("reaches", run.reaches_m), Arg("wanted", run.wanted), Arg("compares", uint32_t{run.is_again}),
                      Arg("block_starts", block_starts_), Arg("block_ends", block_ends_), Arg("boxes", body_boxes_), Arg("ways", ways_),
                      Arg("wide_boxes", wide_boxes_), Arg("may_be_refused", may_be_refused_), Arg("active", active_),
                      Arg("changed", changed_), Arg("is_fresh", is_fresh_), Arg("stale", stale_), Arg("counters", counters_));
}

/// Lists the pairs of bodies whose wide boxes overlap, and makes these of the boxes of the run.
absl::Status BodyCandidates::ListPairs(Queue& queue) {
  ++list_builds_;
  PALPATE_RETURN_IF_ERROR(queue.Launch(wide_kernel_, {NodeCount(), group_size_}, Arg("body_count", body_count_), Arg("share", kSlackShare),
                                       Arg("boxes", body_boxes_), Arg("ways", ways_), Arg("wide_boxes", wide_boxes_),
                                       Arg("nodes", wide_nodes_)));
  const bool are_few = body_count_ <= kFewBodies;
  if (!are_few) {
    PALPATE_RETURN_IF_ERROR(body_tree_.Build(queue, wide_boxes_, {}, body_count_, 1));
    PALPATE_RETURN_IF_ERROR(body_cluster_pairs_.FindWithin(queue, body_tree_));
  }
  const uint32_t items = are_few ? NodeCount() : body_cluster_pairs_.count();
  const uint32_t chunk = group_size_ == 1 ? kPairsPerItem : 1;
  for (;;) {
    const std::array<uint32_t, 2> zeros{};  // those of the sweep stay
    PALPATE_RETURN_IF_ERROR(queue.Write(counters_, std::span<const uint32_t>(zeros), offsetof(Counts, escaped) / sizeof(uint32_t)));
    Kernel& kernel = are_few ? few_kernel_ : many_kernel_;
    PALPATE_RETURN_IF_ERROR(kernel.Bind(Arg("capacity", static_cast<uint32_t>(listed_.count())), Arg("listed", listed_),
                                        Arg("hints", hints_), Arg("counters", counters_)));
    PALPATE_RETURN_IF_ERROR(are_few ? queue.Launch(kernel, {items, group_size_}, Arg("node_count", items), Arg("nodes", wide_nodes_))
                                    : queue.Launch(kernel, {(items + chunk - 1) / chunk, group_size_}, Arg("pair_count", items),
                                                   Arg("chunk", chunk), Arg("cluster_pairs", body_cluster_pairs_.pairs()),
                                                   Arg("nodes", body_tree_.nodes()), Arg("node_groups", body_tree_.node_groups()),
                                                   Arg("elements", body_tree_.elements())));
    PALPATE_RETURN_IF_ERROR(ReadCounts(queue));
    if (counts_.listed <= listed_.count()) break;
    PALPATE_RETURN_IF_ERROR(Grow(context_, listed_, counts_.listed, "listed body pairs"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, hints_, listed_.count(), "body pair normals"));
  }
  listed_count_ = counts_.listed;
  has_list_ = true;
  return absl::OkStatus();
}

/// Keeps what no plane keeps apart, of the listed pairs, and reads the counts. Nothing is done if the list turns out to be out of date.
absl::Status BodyCandidates::DecidePairs(Queue& queue, const Run& run) {
  const uint32_t chunk = group_size_ == 1 ? kListedPerItem : 1;
  for (;;) {
    PALPATE_RETURN_IF_ERROR(
        queue.Launch(planes_kernel_, {(listed_count_ + chunk - 1) / chunk, group_size_}, Arg("count", listed_count_), Arg("chunk", chunk),
                     Arg("listed", listed_), Arg("hints", hints_), Arg("begins", vertex_begins_), Arg("starts", block_starts_),
                     Arg("ends", run.is_moving() ? block_ends_.view() : BufferView<float>()), Arg("boxes", body_boxes_),
                     Arg("half_distance", run.distance_m / 2), Arg("reaches", run.reaches_m),
                     Arg("only_changed", uint32_t{run.is_again || run.wanted.handle != nullptr}),
                     Arg("capacity", static_cast<uint32_t>(body_pairs_.count())), Arg("kept", body_pairs_), Arg("changed", changed_),
                     Arg("active", active_), Arg("is_fresh", is_fresh_), Arg("stale", stale_), Arg("counters", counters_)));
    PALPATE_RETURN_IF_ERROR(ReadCounts(queue));
    if (counts_.pairs <= body_pairs_.count()) return absl::OkStatus();
    // Those with themselves come first, and are kept.
    const uint32_t found = counts_.pairs;
    PALPATE_ASSIGN_OR_RETURN(auto larger, DeviceBuffer<UInt2>::Create(context_, size_t{found} + found / 2, "body pairs"));
    if (self_count_ > 0) PALPATE_RETURN_IF_ERROR(queue.Copy(body_pairs_, larger, self_count_));
    body_pairs_ = std::move(larger);
    counts_.pairs = self_count_;
    PALPATE_RETURN_IF_ERROR(WriteCounts(queue));
  }
}

absl::Status BodyCandidates::FindBodyPairs(Queue& queue, const DeviceSurface& surface, const Run& run) {
  count_ = 0;
  body_pair_count_ = 0;
  is_empty_ = true;
  if (version_ != surface.version) PALPATE_RETURN_IF_ERROR(Order(queue, surface, run.starts_m));
  if (body_count_ == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(SweepBodies(queue, run));
  const bool had_list = std::exchange(has_list_, false);  // not after an error
  if (had_list) PALPATE_RETURN_IF_ERROR(DecidePairs(queue, run));
  if (!had_list || counts_.escaped != 0) {
    PALPATE_RETURN_IF_ERROR(ListPairs(queue));
    PALPATE_RETURN_IF_ERROR(DecidePairs(queue, run));
  }
  has_list_ = true;
  body_pair_count_ = counts_.pairs;
  is_empty_ = counts_.pairs == 0 && counts_.refusable == 0;
  return absl::OkStatus();
}

FixedClusters BodyCandidates::Fixed(SurfaceElement kind) const {
  const Clusters& clusters = clusters_[static_cast<size_t>(kind)];
  return {.clusters = {clusters.nodes, clusters.groups, clusters.elements, clusters.count},
          .boxes = clusters.boxes,
          .begins = clusters.begins,
          .stale = {stale_.handle(), counts_.stale},
          .order = order_};
}

absl::StatusOr<ElementClusters> BodyCandidates::Add(Queue& queue, SurfaceElement kind, BufferView<Box> boxes) {
  const Clusters& clusters = clusters_[static_cast<size_t>(kind)];
  if (clusters.count > 0) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(clusters_kernel_, {clusters.count, group_size_ == 1 ? size_t{16} : group_size_},
                                         Arg("cluster_count", clusters.count), Arg("cluster_body", clusters.body), Arg("active", active_),
                                         Arg("elements", clusters.elements), Arg("boxes", boxes), Arg("nodes", clusters.nodes),
                                         Arg("cluster_boxes", clusters.boxes)));
  }
  return ElementClusters{clusters.nodes, clusters.groups, clusters.elements, clusters.count};
}

uint32_t BodyCandidates::Limit() const {
  return static_cast<uint32_t>(std::min<uint64_t>(max_pairs_, std::numeric_limits<uint32_t>::max()));
}

absl::StatusOr<ClusterPairsOnDevice> BodyCandidates::FindOnDevice(Queue& queue, SurfaceElement p, SurfaceElement q) {
  const Clusters& a = clusters_[static_cast<size_t>(p)];
  const Clusters& b = clusters_[static_cast<size_t>(q)];
  Found& found = found_[static_cast<size_t>(p == q)];
  const uint32_t chunk = group_size_ == 1 ? kPairsPerItem : 1;
  PALPATE_RETURN_IF_ERROR(Grow(context_, found.pairs, kFewClusterPairs, "body cluster pairs"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, found.count, 1, "body cluster pair count"));
  PALPATE_RETURN_IF_ERROR(queue.Fill(found.count, 0U));
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(pairs_kernel_, {(body_pair_count_ + chunk - 1) / chunk, group_size_}, Arg("body_pair_count", body_pair_count_),
                   Arg("chunk", chunk), Arg("body_pairs", body_pairs_), Arg("is_within", uint32_t{p == q}), Arg("p_begins", a.begins),
                   Arg("p_boxes", a.boxes), Arg("q_begins", b.begins), Arg("q_boxes", b.boxes), Arg("limit", Limit()),
                   Arg("capacity", static_cast<uint32_t>(found.pairs.count())), Arg("pairs", found.pairs), Arg("counter", found.count)));
  return ClusterPairsOnDevice{found.pairs, &found.count};
}

absl::Status BodyCandidates::Find(Queue& queue, SurfaceElement p, SurfaceElement q) {
  count_ = 0;
  if (body_pair_count_ == 0) return absl::OkStatus();
  DeviceBuffer<UInt2>& buffer = found_[static_cast<size_t>(p == q)].pairs;
  for (;;) {
    PALPATE_ASSIGN_OR_RETURN(const ClusterPairsOnDevice pairs, FindOnDevice(queue, p, q));
    uint32_t found = 0;
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(*pairs.count, std::span<uint32_t>(&found, 1)));
    if (found > Limit()) {
      return absl::ResourceExhaustedError(absl::StrCat("body candidates: more than max_cluster_pairs = ", max_pairs_,
                                                       " pairs of clusters; too many boxes overlap each other"));
    }
    if (found > buffer.count()) {
      PALPATE_RETURN_IF_ERROR(Grow(context_, buffer, found, "body cluster pairs"));
      continue;
    }
    count_ = found;
    pairs_ = {buffer.handle(), found};
    return absl::OkStatus();
  }
}

}  // namespace palpate::gpu
