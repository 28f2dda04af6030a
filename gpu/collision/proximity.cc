#include "gpu/collision/proximity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource proximity;
}
namespace {

constexpr uint32_t kCounters = 11;
constexpr uint32_t kKeptTogether = 64;  // keys a work-item: KEYS_KEPT_TOGETHER in proximity.cl
constexpr uint64_t kMaxContacts = 1ULL << 28;
// Of a cluster: CLUSTER_FEATURES in proximity.cl, corners and as many edges.
constexpr size_t kClusterFeatures = 48;
constexpr size_t kBoxFloats = 6;

uint32_t CeilDivide(uint32_t a, uint32_t b) { return a / b + (a % b != 0 ? 1 : 0); }

uint64_t Wide(const uint32_t* low_high) { return low_high[0] | uint64_t{low_high[1]} << 32; }

}  // namespace

absl::StatusOr<ProximityDetector> ProximityDetector::Create(const std::shared_ptr<Context>& context, const ProximityOptions& options) {
  if (!(options.rest_exclusion_m >= 0) || !std::isfinite(options.rest_exclusion_m)) {
    return absl::InvalidArgumentError(
        absl::StrCat("proximity: rest_exclusion_m is ", options.rest_exclusion_m, ", it must be 0 or a positive number"));
  }
  if (options.max_contacts == 0 || options.max_contacts > kMaxContacts) {
    return absl::InvalidArgumentError(
        absl::StrCat("proximity: max_contacts is ", options.max_contacts, ", it must be in [1, ", kMaxContacts, "]"));
  }
  if (options.lanes != 0 && options.lanes != 1 && options.lanes != 8 && options.lanes != 16) {
    return absl::InvalidArgumentError(absl::StrCat("proximity: lanes is ", options.lanes, ", it must be 0, 1, 8 or 16"));
  }
  ProximityDetector detector;
  detector.context_ = context;
  detector.options_ = options;
  // A CPU's work-item works in vectors; on a GPU the neighbouring work-items are the lanes.
  detector.lanes_ = options.lanes != 0 ? options.lanes : context->device().is_gpu ? 1 : 16;
  const ProgramDefines defines = {{"LANES", std::to_string(detector.lanes_)}};
  const auto& source = kernels::proximity;
  PALPATE_ASSIGN_OR_RETURN(detector.boxes_kernel_, context->CreateKernel(source, "proximity_boxes", defines));
  if (options.normal_cones) {
    PALPATE_ASSIGN_OR_RETURN(detector.patches_kernel_, context->CreateKernel(source, "proximity_patches", defines));
  }
  PALPATE_ASSIGN_OR_RETURN(detector.features_kernel_, context->CreateKernel(source, "proximity_features", defines));
  PALPATE_ASSIGN_OR_RETURN(detector.detect_, context->CreateKernel(source, "proximity_detect", defines));
  PALPATE_ASSIGN_OR_RETURN(detector.keep_, context->CreateKernel(source, "proximity_keep", defines));
  PALPATE_ASSIGN_OR_RETURN(detector.listed_, context->CreateKernel(source, "proximity_listed", defines));
  PALPATE_ASSIGN_OR_RETURN(detector.records_, context->CreateKernel(source, "proximity_records", defines));
  detector.candidates_ = CandidateStructures::Create(context, options.max_cluster_pairs, options.candidates);
  PALPATE_ASSIGN_OR_RETURN(detector.counters_, DeviceBuffer<uint32_t>::Create(context, kCounters, "proximity counters"));
  PALPATE_ASSIGN_OR_RETURN(detector.listed_counters_, DeviceBuffer<uint32_t>::Create(context, kCounters, "proximity counters of a list"));
  if (options.reduction == ContactReduction::kNearest) {
    PALPATE_ASSIGN_OR_RETURN(detector.nearest_distance_, context->CreateKernel(source, "proximity_nearest_distance", defines));
    PALPATE_ASSIGN_OR_RETURN(detector.nearest_index_, context->CreateKernel(source, "proximity_nearest_contact", defines));
    PALPATE_ASSIGN_OR_RETURN(detector.nearest_flags_, context->CreateKernel(source, "proximity_nearest_flags", defines));
    PALPATE_ASSIGN_OR_RETURN(detector.gather_, context->CreateKernel(source, "proximity_gather", defines));
    PALPATE_ASSIGN_OR_RETURN(detector.compaction_, StreamCompaction::Create(context));
    PALPATE_ASSIGN_OR_RETURN(detector.kept_count_, DeviceBuffer<uint32_t>::Create(context, 1, "proximity kept count"));
  }
  PALPATE_RETURN_IF_ERROR(detector.ReserveContacts(0));
  return detector;
}

absl::Status ProximityDetector::ReserveContacts(uint32_t count) {
  PALPATE_RETURN_IF_ERROR(keys_.Reserve(context_, count, options_.max_contacts));
  const uint32_t target = keys_.capacity();
  PALPATE_RETURN_IF_ERROR(Grow(context_, contacts_, target, "surface contacts"));
  if (options_.reduction == ContactReduction::kNearest) {
    PALPATE_RETURN_IF_ERROR(Grow(context_, all_contacts_, target, "surface contacts before reduction"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, flags_, target, "proximity flags"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, kept_, target, "proximity kept"));
  }
  return absl::OkStatus();
}

absl::Status ProximityDetector::SetTopology(Queue& queue, const SurfaceTopology& topology, std::span<const Float4> rest_positions_m) {
  has_topology_ = false;
  contact_count_ = 0;
  if (options_.rest_exclusion_m > 0) {
    if (rest_positions_m.size() < topology.vertex_count) {
      return absl::InvalidArgumentError(absl::StrCat("proximity: ", rest_positions_m.size(), " rest positions for ", topology.vertex_count,
                                                     " vertices; rest_exclusion_m needs them all"));
    }
    for (size_t v = 0; v < topology.vertex_count; ++v) {
      const Float4& p = rest_positions_m[v];
      if (topology.vertex_groups[v] != SurfaceTopology::kNoGroup && !(std::isfinite(p.x) && std::isfinite(p.y) && std::isfinite(p.z))) {
        return absl::InvalidArgumentError(absl::StrCat("proximity: the rest position of vertex ", v, " is not finite"));
      }
    }
    PALPATE_RETURN_IF_ERROR(Grow(context_, rest_positions_, topology.vertex_count, "proximity rest positions"));
    if (topology.vertex_count > 0) {
      PALPATE_RETURN_IF_ERROR(queue.Write(rest_positions_, rest_positions_m.first(topology.vertex_count)));
    }
  }
  PALPATE_ASSIGN_OR_RETURN(DeviceSurface surface, DeviceSurface::Upload(queue, topology));
  return SetSurface(std::make_shared<const DeviceSurface>(std::move(surface)));
}

absl::Status ProximityDetector::SetSurface(std::shared_ptr<const DeviceSurface> surface) {
  has_topology_ = false;
  has_keys_ = false;
  contact_count_ = 0;
  if (options_.rest_exclusion_m > 0 && rest_positions_.count() < surface->vertex_count) {
    return absl::InvalidArgumentError("proximity: rest_exclusion_m needs rest positions, which SetTopology sets");
  }
  surface_ = std::move(surface);
  PALPATE_RETURN_IF_ERROR(Grow(context_, boxes_, surface_->triangle_count, "proximity boxes"));
  if (options_.spheres) PALPATE_RETURN_IF_ERROR(Grow(context_, spheres_, surface_->triangle_count, "proximity spheres"));
  if (options_.reduction == ContactReduction::kNearest) {
    const size_t elements = size_t{surface_->vertex_count} + surface_->edge_count;
    PALPATE_RETURN_IF_ERROR(Grow(context_, nearest_, elements, "proximity nearest distances"));
    PALPATE_RETURN_IF_ERROR(Grow(context_, nearest_contact_, elements, "proximity nearest contacts"));
  }
  has_topology_ = true;
  return absl::OkStatus();
}

absl::Status ProximityDetector::CheckPositions(BufferView<Float4> positions_m) const {
  if (positions_m.count >= surface_->vertex_count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("proximity: ", positions_m.count, " positions for ", surface_->vertex_count, " vertices"));
}

absl::Status ProximityDetector::Run(Queue& queue, BufferView<Float4> positions_m, float range_m, BufferView<float> reaches_m,
                                    SelfPairs* self_pairs, const ProximityRest& rest) {
  contact_count_ = 0;
  Task task;
  task.positions_m = positions_m;
  task.range_m = range_m;
  task.reaches_m = reaches_m;
  const bool keeps_all = options_.rest_exclusion_m == 0 && !options_.normal_cones && options_.reduction == ContactReduction::kAll;
  task.self_pairs = keeps_all ? self_pairs : nullptr;
  task.rest = rest;
  return RunTask(queue, task);
}

absl::Status ProximityDetector::RunAgain(Queue& queue, BufferView<Float4> positions_m, float range_m, BufferView<float> reaches_m,
                                         BufferView<uint32_t> stale, const ProximityRest& rest) {
  const bool goes_on = has_keys_ && options_.reduction == ContactReduction::kAll;
  if (!goes_on) return Run(queue, positions_m, range_m, reaches_m, nullptr, rest);
  Task task;
  task.positions_m = positions_m;
  task.range_m = range_m;
  task.reaches_m = reaches_m;
  task.stale = stale;
  task.rest = rest;
  return RunTask(queue, task);
}

absl::Status ProximityDetector::RunTask(Queue& queue, const Task& task) {
  has_keys_ = false;
  stats_ = {};
  PALPATE_RETURN_IF_ERROR(Check(task));
  if (surface_->triangle_count == 0) {
    contact_count_ = 0;
    return absl::OkStatus();
  }
  PALPATE_ASSIGN_OR_RETURN(CandidatePairs* const candidates, candidates_.For(*surface_));
  const bool has_lists =
      task.self_pairs != nullptr && surface_->triangle_count <= SelfPairs::kMostTriangles && candidates->takes_triangle_groups();
  const absl::Status status = has_lists ? FindWithSelfPairs(queue, *candidates, task) : Find(queue, *candidates, task);
  if (!status.ok()) contact_count_ = 0;
  return status;
}

absl::Status ProximityDetector::Check(const Task& task) const {
  if (!has_topology_) return absl::FailedPreconditionError("proximity: SetTopology comes before Run");
  if (!(task.range_m > 0) || !std::isfinite(task.range_m)) {
    return absl::InvalidArgumentError(absl::StrCat("proximity: range_m is ", task.range_m, ", it must be a positive number"));
  }
  PALPATE_RETURN_IF_ERROR(CheckPositions(task.positions_m));
  if (task.reaches_m.handle != nullptr && task.reaches_m.count < surface_->body_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("proximity: reaches of ", task.reaches_m.count, " bodies, there are ", surface_->body_count));
  }
  if (task.stale.handle != nullptr && task.stale.count < surface_->body_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("proximity: ", task.stale.count, " flags of stale bodies, there are ", surface_->body_count));
  }
  if (task.rest.positions_m.handle != nullptr &&
      (task.rest.positions_m.count < surface_->vertex_count || task.rest.spare_m.count < surface_->body_count)) {
    return absl::InvalidArgumentError(absl::StrCat("proximity: ", task.rest.positions_m.count, " rest positions and ",
                                                   task.rest.spare_m.count, " spares for ", surface_->vertex_count, " vertices of ",
                                                   surface_->body_count, " bodies"));
  }
  return absl::OkStatus();
}

/// All that comes before pairs of elements: boxes, clusters, pairs of clusters.
absl::Status ProximityDetector::Prepare(Queue& queue, CandidatePairs& candidates, const Task& task) {
  const bool is_gpu = lanes_ == 1;
  PALPATE_RETURN_IF_ERROR(
      Annotate(candidates.BeginAtRest(queue, *surface_, task.positions_m, task.range_m, task.reaches_m, task.stale), "proximity"));
  candidates.TakeTriangleGroups(task.groups);
  PALPATE_RETURN_IF_ERROR(queue.Zero(counters_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(boxes_kernel_, {surface_->triangle_count, is_gpu ? size_t{64} : size_t{256}},
                                       Arg("triangle_count", surface_->triangle_count), Arg("triangles", surface_->triangles),
                                       Arg("groups", surface_->groups), Arg("active_bodies", candidates.active_bodies()),
                                       Arg("positions", task.positions_m), Arg("range_m", task.range_m), Arg("reaches", task.reaches_m),
                                       Arg("boxes", boxes_), Arg("spheres", spheres_), Arg("counters", counters_)));
  PALPATE_ASSIGN_OR_RETURN(clusters_, candidates.Add(queue, SurfaceElement::kTriangle, boxes_));
  PALPATE_RETURN_IF_ERROR(ListFeatures(queue, candidates, task));
  return FindCandidates(queue, candidates, task.search, /*may_wait=*/false);
}

/// What the triangles of each cluster own, side by side: each cluster is in many pairs.
absl::Status ProximityDetector::ListFeatures(Queue& queue, const CandidatePairs& candidates, const Task& task) {
  const size_t lists = 2 * size_t{clusters_.count};
  if (lists == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Grow(context_, features_.boxes, lists * kClusterFeatures * kBoxFloats, "proximity feature boxes"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, features_.elements, 2 * lists * kClusterFeatures, "proximity features"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, features_.lanes, lists * kClusterFeatures, "proximity feature lanes"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, features_.counts, lists, "proximity feature counts"));
  return queue.Launch(features_kernel_, {clusters_.count, LocalSize()}, Arg("cluster_count", clusters_.count),
                      Arg("cluster_elements", clusters_.elements), Arg("triangles", surface_->triangles),
                      Arg("triangle_edges", surface_->triangle_edges), Arg("active_bodies", candidates.active_bodies()),
                      Arg("positions", task.positions_m), Arg("range_m", task.range_m), Arg("reaches", task.reaches_m),
                      Arg("boxes", features_.boxes), Arg("elements", features_.elements), Arg("lanes", features_.lanes),
                      Arg("counts", features_.counts));
}

absl::Status ProximityDetector::Find(Queue& queue, CandidatePairs& candidates, const Task& task) {
  PALPATE_RETURN_IF_ERROR(Prepare(queue, candidates, task));
  SetShifts();
  std::array<uint32_t, kCounters> counters = {};
  PALPATE_ASSIGN_OR_RETURN(const bool is_found, FindKeys(queue, task, candidates, counters));
  if (!is_found) {
    Task anew = task;
    anew.stale = {};
    return Find(queue, candidates, anew);
  }
  return MakeContacts(queue, task, counters);
}

void ProximityDetector::SetShifts() {
  a_shift_ = BitsFor(std::max(surface_->triangle_count, surface_->edge_count));
  kind_shift_ = a_shift_ + BitsFor(std::max(surface_->vertex_count, surface_->edge_count));
}

/// Contacts of the keys that were appended.
absl::Status ProximityDetector::MakeContacts(Queue& queue, const Task& task, std::span<const uint32_t> counters) {
  contact_count_ = counters[0];
  stats_.contacts_found = counters[0];
  stats_.triangle_pairs += Wide(&counters[2]);
  stats_.element_pairs += Wide(&counters[4]);
  stats_.tests += Wide(&counters[6]);
  stats_.rest_excluded = Wide(&counters[8]);
  stats_.patches = counters[10];
  has_keys_ = true;
  if (counters[0] == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(keys_.Sort(queue, counters[0], kind_shift_ + 1));
  PALPATE_RETURN_IF_ERROR(LaunchRecords(queue, counters[0], task.positions_m));
  return options_.reduction == ContactReduction::kNearest ? Reduce(queue) : absl::OkStatus();
}

absl::Status ProximityDetector::TooManyContacts(const Task& task) const {
  return absl::ResourceExhaustedError(
      absl::StrCat("proximity: more than max_contacts = ", options_.max_contacts, " contacts below ", task.range_m, " m"));
}

/// Reads what was counted, with what is still to be read. Blocking.
absl::Status ProximityDetector::ReadCounters(Queue& queue, std::span<uint32_t> counters) {
  if (found_.on_device != nullptr) PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(*found_.on_device, found_host_));
  return queue.ReadBlocking(counters_, counters);
}

/// After ReadCounters: whether all pairs of clusters were looked at. If not, they are there now, and counters are 0.
absl::StatusOr<bool> ProximityDetector::TakeCandidates(Queue& queue, CandidatePairs& candidates, const Task& task,
                                                       std::span<const uint32_t> counters) {
  if (counters[1] != 0) {
    return absl::InvalidArgumentError(absl::StrCat("proximity: the position of vertex ", ~counters[1], " is not finite or beyond 1e8 m"));
  }
  if (found_.on_device != nullptr && (found_host_[1] != 0 || found_host_[0] > found_.count)) {
    PALPATE_RETURN_IF_ERROR(FindCandidates(queue, candidates, task.search, /*may_wait=*/true));
    PALPATE_RETURN_IF_ERROR(queue.Zero(counters_));
    return false;
  }
  stats_.cluster_pairs = found_.on_device != nullptr ? found_host_[0] : found_.count;
  last_found_[static_cast<size_t>(task.search)] = static_cast<uint32_t>(stats_.cluster_pairs);
  return true;
}

/// Keys of all pairs of elements, in no order, and what was counted. False if what was known is needed and lost: then all is to be done
/// anew.
absl::StatusOr<bool> ProximityDetector::FindKeys(Queue& queue, const Task& task, CandidatePairs& candidates, std::span<uint32_t> counters) {
  if (options_.normal_cones) PALPATE_RETURN_IF_ERROR(Grow(context_, is_patch_, clusters_.count, "proximity patches"));
  for (;;) {
    if (task.stale.handle != nullptr) PALPATE_RETURN_IF_ERROR(Keep(queue, task.stale));
    PALPATE_RETURN_IF_ERROR(Launch(queue, task, contact_keys()));
    PALPATE_RETURN_IF_ERROR(ReadCounters(queue, counters));
    PALPATE_ASSIGN_OR_RETURN(const bool is_complete, TakeCandidates(queue, candidates, task, counters));
    if (!is_complete) continue;
    if (counters[0] > options_.max_contacts) return TooManyContacts(task);
    if (counters[0] <= keys_.capacity()) return true;
    PALPATE_RETURN_IF_ERROR(ReserveContacts(counters[0]));
    if (task.stale.handle != nullptr) return false;  // what was known is lost, and candidates are those of stale bodies
    PALPATE_RETURN_IF_ERROR(queue.Zero(counters_));
  }
}

absl::Status ProximityDetector::FindWithSelfPairs(Queue& queue, CandidatePairs& candidates, const Task& task) {
  for (;;) {
    const SelfPairs::Plan plan = task.self_pairs->MakePlan(task.range_m);
    if (plan == SelfPairs::Plan::kNothing) return Find(queue, candidates, task);
    SetShifts();
    PALPATE_ASSIGN_OR_RETURN(const bool is_done, plan == SelfPairs::Plan::kRenew ? RenewSelfPairs(queue, candidates, task)
                                                                                 : UseSelfPairs(queue, candidates, task));
    if (is_done) return absl::OkStatus();
  }
}

/// A list, and the contacts among its pairs. False if there is none, because it would be too long.
absl::StatusOr<bool> ProximityDetector::RenewSelfPairs(Queue& queue, CandidatePairs& candidates, const Task& task) {
  SelfPairs& self = *task.self_pairs;
  Task wide = task;
  wide.search = Search::kList;
  wide.range_m = self.list_range_m();
  wide.spare_more_m = wide.range_m - task.range_m;
  PALPATE_ASSIGN_OR_RETURN(wide.reaches_m, self.Reaches(queue, *surface_, task.reaches_m, task.range_m));
  PALPATE_RETURN_IF_ERROR(Prepare(queue, candidates, wide));
  PALPATE_RETURN_IF_ERROR(self.KeepPlaces(queue, *surface_, clusters_, task.positions_m));
  PALPATE_RETURN_IF_ERROR(self.Reserve(1));
  std::array<uint32_t, kCounters> counters = {}, listed = {};
  for (;;) {
    const auto room = static_cast<uint32_t>(self.keys().count());
    PALPATE_RETURN_IF_ERROR(Launch(queue, wide, {self.keys().view(), counters_}));
    PALPATE_RETURN_IF_ERROR(queue.Zero(listed_counters_));
    PALPATE_RETURN_IF_ERROR(LaunchListed(queue, task, room, {}, {keys_.keys().view(), listed_counters_}));
    PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(listed_counters_, listed));
    PALPATE_RETURN_IF_ERROR(ReadCounters(queue, counters));
    PALPATE_ASSIGN_OR_RETURN(const bool is_complete, TakeCandidates(queue, candidates, wide, counters));
    if (!is_complete) continue;
    if (counters[0] > options_.max_contacts) {
      self.GiveUp();
      return false;
    }
    if (counters[0] <= room && listed[0] <= keys_.capacity()) break;
    PALPATE_RETURN_IF_ERROR(self.Reserve(counters[0]));
    PALPATE_RETURN_IF_ERROR(ReserveContacts(listed[0]));
    PALPATE_RETURN_IF_ERROR(queue.Zero(counters_));
  }
  self.Renewed(counters[0]);
  // What was tested is in both; the contacts are in the second.
  stats_.triangle_pairs = Wide(&counters[2]);
  stats_.element_pairs = Wide(&counters[4]);
  stats_.tests = Wide(&counters[6]);
  PALPATE_RETURN_IF_ERROR(MakeContacts(queue, task, listed));
  return true;
}

/// Contacts among the pairs of the list, and those that are not for it to know. False if it does not reach.
absl::StatusOr<bool> ProximityDetector::UseSelfPairs(Queue& queue, CandidatePairs& candidates, const Task& task) {
  SelfPairs& self = *task.self_pairs;
  Task others = task;
  others.search = Search::kOthers;
  PALPATE_RETURN_IF_ERROR(self.EnqueueSpreads(queue, *surface_, task.positions_m));
  if (self.has_others()) {
    PALPATE_ASSIGN_OR_RETURN(others.groups, self.Groups(queue, *surface_));
    PALPATE_RETURN_IF_ERROR(Prepare(queue, candidates, others));
  } else {
    found_ = {};
    PALPATE_RETURN_IF_ERROR(queue.Zero(counters_));
  }
  std::array<uint32_t, kCounters> counters = {};
  for (bool is_first = true;; is_first = false) {
    PALPATE_RETURN_IF_ERROR(Launch(queue, others, contact_keys()));
    PALPATE_RETURN_IF_ERROR(LaunchListed(queue, task, self.count(), self.in_use(), contact_keys()));
    PALPATE_RETURN_IF_ERROR(ReadCounters(queue, counters));
    if (is_first && !self.TakeSpreads(task.range_m)) return false;
    if (self.has_others()) {
      PALPATE_ASSIGN_OR_RETURN(const bool is_complete, TakeCandidates(queue, candidates, others, counters));
      if (!is_complete) continue;
    }
    if (counters[0] > options_.max_contacts) return TooManyContacts(task);
    if (counters[0] <= keys_.capacity()) break;
    PALPATE_RETURN_IF_ERROR(ReserveContacts(counters[0]));
    PALPATE_RETURN_IF_ERROR(queue.Zero(counters_));
  }
  PALPATE_RETURN_IF_ERROR(MakeContacts(queue, task, counters));
  return true;
}

/// Appends those of the first pairs of the list that are within the range: of bodies in use, or (a null view) of all; then there are as
/// many as counters_ says, if they are no more.
absl::Status ProximityDetector::LaunchListed(Queue& queue, const Task& task, uint32_t count, BufferView<uint32_t> bodies,
                                             const KeysOf& target) {
  if (count == 0) return absl::OkStatus();
  const SelfPairs& self = *task.self_pairs;
  const bool is_known = bodies.handle != nullptr;
  const uint32_t chunk = lanes_ == 1 ? 1 : std::clamp(count / (16 * context_->device().compute_units), 64U, 1024U);
  return queue.Launch(listed_, {CeilDivide(count, chunk), lanes_ == 1 ? LocalSize() : 1}, Arg("list", self.keys()),
                      Arg("list_count", is_known ? BufferView<uint32_t>{} : counters_.view()), Arg("list_capacity", count),
                      Arg("chunk", chunk), Arg("used_bodies", bodies), Arg("triangles", surface_->triangles), Arg("edges", surface_->edges),
                      Arg("vertex_groups", surface_->vertex_groups), Arg("positions", task.positions_m),
                      Arg("rest_positions", task.rest.positions_m), Arg("range_m", task.range_m), Arg("reaches", task.reaches_m),
                      Arg("spare", SpareOf(task)), Arg("a_shift", a_shift_), Arg("kind_shift", kind_shift_),
                      Arg("capacity", keys_.capacity()), Arg("keys", target.keys), Arg("counters", target.counters));
}

/// Those of the contacts known between two bodies that are not stale.
absl::Status ProximityDetector::Keep(Queue& queue, BufferView<uint32_t> stale) {
  if (contact_count_ == 0) return absl::OkStatus();
  return queue.Launch(keep_, {CeilDivide(contact_count_, kKeptTogether), LocalSize()}, Arg("count", contact_count_),
                      Arg("known_keys", keys_.sorted()), Arg("a_shift", a_shift_), Arg("kind_shift", kind_shift_),
                      Arg("triangles", surface_->triangles), Arg("edges", surface_->edges), Arg("vertex_groups", surface_->vertex_groups),
                      Arg("stale_bodies", stale), Arg("keys", keys_.keys()), Arg("counters", counters_));
}

/// The pairs of clusters. Without waiting where that can be done, and the run before tells how many there may be.
absl::Status ProximityDetector::FindCandidates(Queue& queue, CandidatePairs& candidates, Search search, bool may_wait) {
  constexpr auto kTriangles = SurfaceElement::kTriangle;
  const std::optional<uint32_t> last = last_found_[static_cast<size_t>(search)];
  if (!may_wait && last && candidates.finds_on_device()) {
    absl::StatusOr<ClusterPairsOnDevice> pairs = candidates.FindOnDevice(queue, kTriangles, kTriangles);
    if (!pairs.ok()) return Annotate(pairs.status(), "proximity");
    const uint64_t guess = uint64_t{*last} + *last / 2 + 64;
    found_ = {
        .pairs = pairs->pairs, .count = static_cast<uint32_t>(std::min<uint64_t>(guess, pairs->pairs.count)), .on_device = pairs->count};
    return absl::OkStatus();
  }
  PALPATE_RETURN_IF_ERROR(Annotate(candidates.Find(queue, kTriangles, kTriangles), "proximity"));
  found_ = {.pairs = candidates.pairs(), .count = candidates.count(), .on_device = nullptr};
  return absl::OkStatus();
}

/// Appends the keys of what is in the pairs of clusters.
absl::Status ProximityDetector::Launch(Queue& queue, const Task& task, const KeysOf& target) {
  if (options_.normal_cones) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(patches_kernel_, {clusters_.count, LocalSize()}, Arg("cluster_count", clusters_.count),
                                         Arg("elements", clusters_.elements), Arg("triangles", surface_->triangles),
                                         Arg("triangle_edges", surface_->triangle_edges), Arg("positions", task.positions_m),
                                         Arg("range_m", task.range_m), Arg("is_patch", is_patch_), Arg("counters", counters_)));
  }
  const uint32_t pair_count = found_.count;
  if (pair_count == 0) return absl::OkStatus();
  const bool is_gpu = lanes_ == 1;
  // Enough work-items to balance them, not so many that each has a batch half empty.
  const uint32_t chunk = is_gpu ? 1 : std::clamp(pair_count / (64 * context_->device().compute_units), 1U, 64U);
  ++stats_.detect_launches;
  return queue.Launch(
      detect_, {CeilDivide(pair_count, chunk), is_gpu ? LocalSize() : 1}, Arg("nodes", clusters_.nodes),
      Arg("node_groups", clusters_.groups), Arg("elements", clusters_.elements), Arg("cluster_pairs", found_.pairs),
      Arg("pair_count", pair_count), Arg("found", found_.on_device != nullptr ? found_.on_device->view() : BufferView<uint32_t>{}),
      Arg("chunk", chunk), Arg("feature_boxes", features_.boxes), Arg("feature_elements", features_.elements),
      Arg("feature_lanes", features_.lanes), Arg("feature_counts", features_.counts), Arg("triangles", surface_->triangles),
      Arg("edges", surface_->edges), Arg("vertex_groups", surface_->vertex_groups), Arg("apart", surface_->apart), Arg("spheres", spheres_),
      Arg("is_patch", is_patch_), Arg("stale_bodies", task.stale), Arg("positions", task.positions_m),
      Arg("rest_positions", task.rest.positions_m.handle != nullptr ? task.rest.positions_m : rest_positions_.view()),
      Arg("range_m", task.range_m), Arg("reaches", task.reaches_m), Arg("rest_exclusion_m", options_.rest_exclusion_m),
      Arg("spare", SpareOf(task)), Arg("spare_more_m", task.spare_more_m), Arg("element_boxes", cl_int{options_.element_boxes}),
      Arg("counts_pairs", cl_int{options_.counts_element_pairs}), Arg("a_shift", a_shift_), Arg("kind_shift", kind_shift_),
      Arg("capacity", static_cast<uint32_t>(target.keys.count)), Arg("max_contacts", static_cast<uint32_t>(options_.max_contacts)),
      Arg("keys", target.keys), Arg("counters", target.counters));
}

absl::Status ProximityDetector::LaunchRecords(Queue& queue, uint32_t count, BufferView<Float4> positions_m) {
  const bool reduces = options_.reduction == ContactReduction::kNearest;
  return queue.Launch(records_, {CeilDivide(count, lanes_), LocalSize()}, Arg("count", count), Arg("keys", keys_.sorted()),
                      Arg("a_shift", a_shift_), Arg("kind_shift", kind_shift_), Arg("triangles", surface_->triangles),
                      Arg("edges", surface_->edges), Arg("vertex_groups", surface_->vertex_groups),
                      Arg("edge_triangle_range", surface_->edge_triangle_range), Arg("edge_triangles", surface_->edge_triangles),
                      Arg("positions", positions_m), Arg("contacts", reduces ? all_contacts_ : contacts_));
}

absl::Status ProximityDetector::Refresh(Queue& queue, BufferView<Float4> positions_m) {
  if (options_.reduction != ContactReduction::kAll) {
    return absl::FailedPreconditionError("proximity: Refresh needs all contacts, not a reduction of them");
  }
  PALPATE_RETURN_IF_ERROR(CheckPositions(positions_m));
  return contact_count_ == 0 ? absl::OkStatus() : LaunchRecords(queue, contact_count_, positions_m);
}

absl::Status ProximityDetector::Reduce(Queue& queue) {
  const uint32_t found = contact_count_;
  const Range range = {found, 64};
  PALPATE_RETURN_IF_ERROR(queue.Fill(nearest_, 0xffffffffU));
  PALPATE_RETURN_IF_ERROR(queue.Fill(nearest_contact_, 0xffffffffU));
  PALPATE_RETURN_IF_ERROR(queue.Launch(nearest_distance_, range, Arg("count", found), Arg("contacts", all_contacts_),
                                       Arg("vertex_count", surface_->vertex_count), Arg("nearest", nearest_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(nearest_index_, range, Arg("count", found), Arg("contacts", all_contacts_),
                                       Arg("vertex_count", surface_->vertex_count), Arg("nearest", nearest_),
                                       Arg("nearest_contact", nearest_contact_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(nearest_flags_, range, Arg("count", found), Arg("contacts", all_contacts_),
                                       Arg("vertex_count", surface_->vertex_count), Arg("nearest_contact", nearest_contact_),
                                       Arg("flags", flags_)));
  PALPATE_RETURN_IF_ERROR(compaction_.Run(queue, flags_, found, kept_, kept_count_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(gather_, range, Arg("count", found), Arg("kept_count", kept_count_), Arg("kept", kept_),
                                       Arg("from", all_contacts_), Arg("to", contacts_)));
  return queue.ReadBlocking(kept_count_, std::span<uint32_t>(&contact_count_, 1));
}

}  // namespace palpate::gpu
