#include "gpu/dynamics/surface_pairs.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpu/dynamics/surface_kernels.h"

namespace palpate::gpu {
namespace {

// Of a pair to what it meets: much stiffer pairs would push by the errors of the sweeps. Below half the margin the barrier stiffens anyway.
constexpr float kStiffnessRatio = 2;
constexpr uint32_t kLeastRoom = 256;  // pairs
constexpr size_t kLeastReports = 64;

}  // namespace

absl::Status SurfacePairs::Init(Queue& queue, const std::vector<uint32_t>& vertex_groups, SurfacePairs* old) {
  const std::shared_ptr<Context>& context = queue.context();
  const uint32_t n = layout_.vertex_count;
  vertex_origins_host_.resize(n);
  vertex_stiffness_host_.resize(n);
  for (uint32_t v = 0; v < n; ++v) {
    vertex_origins_host_[v] = OriginOf(SolverSlot{v}, vertex_groups);
    vertex_stiffness_host_[v] = StiffnessOf(SolverSlot{v});
  }
  has_cuts_ = std::any_of(layout_.vertex_origin.begin(), layout_.vertex_origin.end(), [](uint32_t origin) { return (origin & 1U) != 0; });
  PALPATE_ASSIGN_OR_RETURN(rest_, CreateBufferFrom(queue, std::span(layout_.rest_m.values()), "surface rest"));
  PALPATE_ASSIGN_OR_RETURN(vertex_origins_,
                           CreateBufferFrom(queue, std::span<const uint32_t>(vertex_origins_host_), "surface vertex origins"));
  PALPATE_ASSIGN_OR_RETURN(vertex_stiffness_, CreateBufferFrom(queue, std::span<const float>(vertex_stiffness_host_), "surface stiffness"));
  if (layout_.shell.has_thickness()) {
    std::vector<float> thinner(n);
    for (uint32_t v = 0; v < n; ++v) {
      const uint32_t vertex = layout_.original_index[SolverSlot{v}];
      thinner[v] = static_cast<float>(layout_.shell.max_half_thickness_m) - layout_.shell.HalfThickness(vertex);
    }
    PALPATE_ASSIGN_OR_RETURN(thinner_, CreateBufferFrom(queue, std::span<const float>(thinner), "surface thinner"));
  }
  PALPATE_ASSIGN_OR_RETURN(clear_, DeviceBuffer<float>::Create(context, n, "surface clear ways"));
  PALPATE_ASSIGN_OR_RETURN(begins_, DeviceBuffer<uint32_t>::Create(context, size_t{n} + 1, "surface entry begins"));
  PALPATE_ASSIGN_OR_RETURN(counter_, DeviceBuffer<uint32_t>::Create(context, 1, "surface counter"));
  constexpr std::pair<Kernel SurfacePairs::*, const char*> kKernels[] = {{&SurfacePairs::make_pairs_, "make_pairs"},
                                                                         {&SurfacePairs::bound_entries_, "bound_entries"},
                                                                         {&SurfacePairs::linearize_pairs_, "linearize_pairs"},
                                                                         {&SurfacePairs::bound_moves_, "bound_moves"},
                                                                         {&SurfacePairs::report_pairs_, "report_pairs"},
                                                                         {&SurfacePairs::clear_ways_, "clear_ways"},
                                                                         {&SurfacePairs::find_common_moves_, "find_common_moves"}};
  for (const auto& [kernel, name] : kKernels) {
    PALPATE_RETURN_IF_ERROR(TakeOrCreate(queue, old == nullptr ? nullptr : &(old->*kernel), name, &(this->*kernel)));
  }
  if (old != nullptr) {  // who knows them by number must not take these for those
    edition_ = old->edition_;
    listing_ = old->listing_;
  }
  PALPATE_RETURN_IF_ERROR(Reserve(queue, kLeastRoom));
  return Clear(queue);
}

/// Of a vertex: twice the number of the body that it was part of at first, plus 1 if it lies on a cut.
uint32_t SurfacePairs::OriginOf(SolverSlot slot, const std::vector<uint32_t>& vertex_groups) const {
  return layout_.vertex_origin.empty() ? (vertex_groups[ToNumber(slot)] & PALPATE_GROUP_MASK) << 1 : layout_.vertex_origin[slot];
}

float SurfacePairs::StiffnessOf(SolverSlot slot) const {
  if (options_.stiffness_n_per_m > 0) return static_cast<float>(options_.stiffness_n_per_m);
  const float own = layout_.vertex_stiffness_n_per_m[slot];
  return kStiffnessRatio * (own > 0 ? own : static_cast<float>(layout_.mean_young_modulus_pa * layout_.mean_edge_m));
}

absl::Status SurfacePairs::Follow(const TissueLayoutDelta& delta, const std::vector<uint32_t>& vertex_groups, RunWriter* writer) {
  for (const uint32_t v : delta.slots) {
    vertex_origins_host_[v] = OriginOf(SolverSlot{v}, vertex_groups);
    vertex_stiffness_host_[v] = StiffnessOf(SolverSlot{v});
    has_cuts_ |= !layout_.vertex_origin.empty() && (layout_.vertex_origin[SolverSlot{v}] & 1U) != 0;
  }
  PALPATE_RETURN_IF_ERROR(writer->AddElements(rest_, layout_.rest_m.values(), delta.slots));
  PALPATE_RETURN_IF_ERROR(writer->AddElements(vertex_origins_, vertex_origins_host_, delta.slots));
  return writer->AddElements(vertex_stiffness_, vertex_stiffness_host_, delta.slots);
}

absl::Status SurfacePairs::Reserve(Queue& queue, uint32_t count) {
  if (pairs_.count() >= count) return absl::OkStatus();
  const std::shared_ptr<Context>& context = queue.context();
  PALPATE_RETURN_IF_ERROR(Grow(context, pairs_, count, "surface pairs"));
  const size_t room = pairs_.count();
  PALPATE_ASSIGN_OR_RETURN(ways_, DeviceBuffer<PairWay>::Create(context, room, "surface pair ways"));
  PALPATE_ASSIGN_OR_RETURN(is_near_, DeviceBuffer<uint8_t>::Create(context, room, "surface near pairs"));
  PALPATE_ASSIGN_OR_RETURN(keys_, DeviceBuffer<uint32_t>::Create(context, 4 * room, "surface entry keys"));
  PALPATE_ASSIGN_OR_RETURN(sorted_keys_, DeviceBuffer<uint32_t>::Create(context, 4 * room, "surface sorted keys"));
  PALPATE_ASSIGN_OR_RETURN(entries_, DeviceBuffer<uint32_t>::Create(context, 4 * room, "surface entries"));
  PALPATE_ASSIGN_OR_RETURN(role_planes_, DeviceBuffer<Float4>::Create(context, 4 * room, "surface planes of pairs"));
  PALPATE_ASSIGN_OR_RETURN(planes_, DeviceBuffer<Float4>::Create(context, 4 * room, "surface planes"));
  PALPATE_ASSIGN_OR_RETURN(sort_, RadixSort<uint32_t>::Create(context, static_cast<uint32_t>(4 * room)));
  ++generation_;
  return absl::OkStatus();
}

absl::Status SurfacePairs::Clear(Queue& queue) {
  count_ = 0;
  ++edition_;
  ++listing_;
  contacts_ = {};
  PALPATE_RETURN_IF_ERROR(queue.Fill(clear_, std::numeric_limits<float>::max()));
  return queue.Zero(begins_);
}

absl::Status SurfacePairs::Make(Queue& queue, BufferView<SurfaceContact> contacts, const DeviceBuffer<SurfaceParams>& params,
                                const DeviceBuffer<Float4>& detected, const DeviceBuffer<uint32_t>& tangled,
                                const SurfaceFollower* follower, bool are_same) {
  if (contacts.count == 0) return Clear(queue);
  const auto count = static_cast<uint32_t>(contacts.count);
  if (are_same && count != count_) {
    return absl::InternalError(absl::StrCat("surface pairs: ", count, " are said to be the same as ", count_, " before"));
  }
  const uint32_t vertex_count = layout_.vertex_count;
  const uint32_t entries = 4 * count;
  PALPATE_RETURN_IF_ERROR(Reserve(queue, count));
  count_ = count;
  ++edition_;
  listing_ += are_same ? 0 : 1;
  contacts_ = contacts;
  const FollowedWays followed = follower == nullptr ? FollowedWays{} : follower->ways();
  PALPATE_RETURN_IF_ERROR(queue.Launch(make_pairs_, {count, kSurfaceGroup}, Arg("count", count),
                                       Arg("least_gap_m", static_cast<float>(options_.least_gap_m())), Arg("p", params),
                                       Arg("contacts", contacts), Arg("x", detected), Arg("rest", rest_),
                                       Arg("vertex_origins", vertex_origins_), Arg("vertex_stiffness_n_per_m", vertex_stiffness_),
                                       Arg("thinner_m", layout_.shell.has_thickness() ? BufferView<float>(thinner_) : BufferView<float>{}),
                                       Arg("tangled", tangled), Arg("movers", followed.movers), Arg("pairs", pairs_), Arg("ways", ways_),
                                       Arg("is_near", is_near_), Arg("keys", keys_), Arg("role_planes", role_planes_)));
  if (!are_same) {
    const uint32_t bits = std::bit_width(vertex_count - 1);
    PALPATE_RETURN_IF_ERROR(sort_.Run(queue, keys_, {}, entries, sorted_keys_, entries_, {0, std::max(bits, 1U)}));
  }
  PALPATE_RETURN_IF_ERROR(queue.Launch(bound_entries_, {size_t{entries} + 1, kSurfaceGroup}, Arg("entry_count", entries),
                                       Arg("vertex_count", vertex_count), Arg("keys", sorted_keys_), Arg("entries", entries_),
                                       Arg("role_planes", role_planes_), Arg("begins", begins_), Arg("planes", planes_)));
  return queue.Launch(clear_ways_, {vertex_count, kSurfaceGroup}, Arg("vertex_count", vertex_count), Arg("begins", begins_),
                      Arg("planes", planes_), Arg("clear_m", clear_));
}

absl::Status SurfacePairs::Linearize(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<SurfaceParams>& params,
                                     const DeviceBuffer<Float4>& x, const DeviceBuffer<Float4>& x_start, const SurfaceFollower* follower) {
  if (count_ == 0) return absl::OkStatus();
  if (follower != nullptr) PALPATE_RETURN_IF_ERROR(ReserveRows(queue));
  const FollowedWays followed = follower == nullptr ? FollowedWays{} : follower->ways();
  return queue.Launch(linearize_pairs_, {count_, kSurfaceGroup}, Arg("count", count_), Arg("p", params), Arg("x", x),
                      Arg("x_start", x_start), Arg("triangles", surface.triangles), Arg("triangle_edges", surface.triangle_edges),
                      Arg("edge_triangle_range", surface.edge_triangle_range), Arg("edge_triangles", surface.edge_triangles),
                      Arg("vertex_triangle_range", *scene_.vertex_triangle_range), Arg("vertex_triangles", *scene_.vertex_triangles),
                      Arg("way_m", followed.way_m), Arg("ways", ways_), Arg("pairs", pairs_), Arg("rows", rows_), Arg("is_near", is_near_));
}

absl::Status SurfacePairs::BoundMoves(Queue& queue, const DeviceBuffer<Float4>& detected, const DeviceBuffer<Float4>& x,
                                      const DeviceBuffer<uint8_t>& touched) {
  return queue.Launch(bound_moves_, {layout_.vertex_count, kSurfaceGroup}, Arg("vertex_count", layout_.vertex_count), Arg("x", x),
                      Arg("detected", detected), Arg("clear_m", clear_), Arg("begins", begins_), Arg("planes", planes_),
                      Arg("held_axes", *scene_.held_axes), Arg("touched", touched));
}

absl::StatusOr<bool> SurfacePairs::AreCommonMovesHeldBack(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& detected,
                                                          const DeviceBuffer<Float4>& x) {
  uint32_t found = 0;
  if (count_ == 0) return false;
  PALPATE_RETURN_IF_ERROR(queue.Fill(counter_, 0U));
  PALPATE_RETURN_IF_ERROR(queue.Launch(find_common_moves_, {layout_.vertex_count, kSurfaceGroup}, Arg("vertex_count", layout_.vertex_count),
                                       Arg("vertex_groups", surface.vertex_groups), Arg("x", x), Arg("detected", detected),
                                       Arg("clear_m", clear_), Arg("begins", begins_), Arg("entries", entries_), Arg("planes", planes_),
                                       Arg("pairs", pairs_), Arg("found", counter_)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(counter_, std::span<uint32_t>(&found, 1)));
  return found != 0;
}

absl::Status SurfacePairs::EnqueueReport(Queue& queue, const DeviceBuffer<SurfaceParams>& params, const DeviceBuffer<Float4>& x,
                                         const DeviceBuffer<Float4>& x_start) {
  const size_t expected = std::max<size_t>(kLeastReports, report_count_ + report_count_ / 4);  // as in the step before, and a little
  report_count_ = 0;
  reports_host_.clear();
  if (count_ == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), reports_, expected, "surface reports"));
  PALPATE_RETURN_IF_ERROR(queue.Fill(counter_, 0U));
  PALPATE_RETURN_IF_ERROR(queue.Launch(report_pairs_, {count_, kSurfaceGroup}, Arg("count", count_),
                                       Arg("capacity", static_cast<uint32_t>(reports_.count())), Arg("p", params), Arg("x", x),
                                       Arg("x_start", x_start), Arg("contacts", contacts_), Arg("pairs", pairs_), Arg("header", counter_),
                                       Arg("reports", reports_)));
  reports_host_.resize(expected);
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(counter_, std::span<uint32_t>(&report_count_, 1)));
  return queue.EnqueueRead(reports_, std::span<SurfaceReport>(reports_host_));
}

absl::StatusOr<std::span<const SurfaceReport>> SurfacePairs::TakeReport(Queue& queue, const DeviceBuffer<SurfaceParams>& params,
                                                                        const DeviceBuffer<Float4>& x,
                                                                        const DeviceBuffer<Float4>& x_start) {
  if (report_count_ > reports_.count()) {  // grow and run the stage again
    PALPATE_RETURN_IF_ERROR(EnqueueReport(queue, params, x, x_start));
    PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
  }
  const size_t read = std::min<size_t>(reports_host_.size(), report_count_);
  reports_host_.resize(report_count_);
  if (read < report_count_) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(reports_, std::span(reports_host_).subspan(read), read));
  std::sort(reports_host_.begin(), reports_host_.end(),
            [](const SurfaceReport& a, const SurfaceReport& b) { return std::tie(a.kind, a.a, a.b) < std::tie(b.kind, b.a, b.b); });
  return std::span<const SurfaceReport>(reports_host_);
}

size_t SurfacePairs::device_bytes() const {
  return rest_.size_bytes() + role_planes_.size_bytes() + planes_.size_bytes() + vertex_origins_.size_bytes() + keys_.size_bytes() +
         sorted_keys_.size_bytes() + entries_.size_bytes() + begins_.size_bytes() + counter_.size_bytes() + vertex_stiffness_.size_bytes() +
         thinner_.size_bytes() + clear_.size_bytes() + is_near_.size_bytes() + ways_.size_bytes() + rows_.size_bytes() +
         pairs_.size_bytes() + reports_.size_bytes();
}

absl::Status SurfacePairs::SaveState(Queue& queue, StateWriter& archive) const {
  // All members, so that a new one is not forgotten: what is not used here follows from the layout, or is of a step.
  [[maybe_unused]] const auto& [layout, scene, options, count, generation, edition, listing, has_cuts, contacts, vertex_origins_host,
                                vertex_stiffness_host, reports_host, report_count, sort, make, bound_entries, linearize, bound_moves,
                                report, clear_ways, find_common_moves, rest, role_planes, planes, vertex_origins, keys, sorted_keys,
                                entries, begins, counter, vertex_stiffness, thinner, clear, is_near, pairs, ways, rows, reports] = *this;
  std::vector<uint32_t> host(begins.count());
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(begins, std::span<uint32_t>(host)));
  std::vector<uint8_t> has_entries(layout.vertex_count);
  for (size_t v = 0; v < has_entries.size(); ++v) has_entries[v] = host[v] != host[v + 1] ? 1 : 0;
  archive.Enter("SurfacePairs");
  archive(has_cuts, has_entries);
  return absl::OkStatus();
}

absl::Status SurfacePairs::LoadState(Queue& queue, StateReader& archive) {
  std::vector<uint8_t> has_entries;
  archive.Enter("SurfacePairs");
  archive(has_cuts_, has_entries);
  archive.Check(has_entries.size() == layout_.vertex_count, "another number of vertices");
  PALPATE_RETURN_IF_ERROR(archive.status());
  PALPATE_RETURN_IF_ERROR(Clear(queue));
  std::vector<uint32_t> begins(1, 0);
  for (const uint8_t has : has_entries) begins.push_back(begins.back() + (has != 0 ? 1 : 0));
  return queue.Write(begins_, std::span<const uint32_t>(begins));
}

}  // namespace palpate::gpu
