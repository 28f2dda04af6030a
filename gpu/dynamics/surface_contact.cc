#include "gpu/dynamics/surface_contact.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <string>
#include <tuple>

namespace palpate::gpu {

namespace kernels {
extern const KernelSource surface_contact;
}  // namespace kernels

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSlipSpeed_m_per_s = 0.001;  // below it friction is viscous, as of tools
// Two elements that were at least the range apart cannot have met while each moved less than this share of it.
constexpr double kCapShare = 0.49;
// Of the vertices with bounds: if more than this share were held back, it is worth looking again.
constexpr double kTruncatedShare = 0.01;
// Of launches over pairs, whose number changes: drivers may compile a kernel anew for each size of work-group.
constexpr size_t kGroup = 64;
// Rounds of the filter that shorten the moves of what meets; then all moves end before the first impact.
constexpr int kLocalRounds = 8;
constexpr int kGlobalRounds = 3;
constexpr int kSpreadPasses = 4;  // even: the result is back in its buffer
constexpr uint32_t kBoxParts = 8;
constexpr double kReserveEdges = 0.4;  // a detection sees less than the next ring of a regular mesh

double MillisecondsSince(Clock::time_point* mark) {
  const Clock::time_point now = Clock::now();
  const double ms = std::chrono::duration<double, std::milli>(now - *mark).count();
  *mark = now;
  return ms;
}

double MeanEdge(const SurfaceTopology& topology, const std::vector<Float4>& rest) {
  double sum = 0;
  for (const UInt2& e : topology.edges) {
    const Float4& a = rest[e.x];
    const Float4& b = rest[e.y];
    sum += std::hypot(a.x - b.x, a.y - b.y, a.z - b.z);
  }
  return topology.edges.empty() ? 0 : sum / static_cast<double>(topology.edges.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<SurfaceContacts>> SurfaceContacts::Create(Queue& queue, const TissueLayout& layout,
                                                                         const SurfaceOptions& options, uint32_t partials) {
  std::unique_ptr<SurfaceContacts> contacts(new SurfaceContacts);
  PALPATE_RETURN_IF_ERROR(contacts->Init(queue, layout, options, partials));
  return contacts;
}

template <typename T>
absl::Status SurfaceContacts::Grow(Queue& queue, DeviceBuffer<T>* buffer, size_t count, const char* name) {
  if (*buffer && buffer->count() >= count) return absl::OkStatus();
  if (*buffer) device_bytes_ -= buffer->size_bytes();
  PALPATE_ASSIGN_OR_RETURN(*buffer, DeviceBuffer<T>::Create(queue.context(), count, name));
  device_bytes_ += buffer->size_bytes();
  return absl::OkStatus();
}

absl::Status SurfaceContacts::Init(Queue& queue, const TissueLayout& layout, const SurfaceOptions& options, uint32_t partials) {
  if (!(options.margin_m > 0) || !(options.stiffness_n_per_m > 0) || !(options.friction >= 0) || !(options.reserve_m >= 0) ||
      options.max_detections < 1) {
    return absl::InvalidArgumentError(absl::StrCat("surface contact: margin ", options.margin_m, " m, stiffness ",
                                                   options.stiffness_n_per_m, " N/m, friction ", options.friction, ", reserve ",
                                                   options.reserve_m, " m, detections ", options.max_detections));
  }
  options_ = options;
  vertex_count_ = layout.vertex_count;
  free_count_ = layout.free_count;
  lanes_ = layout.lanes;
  partial_count_ = partials;

  for (const UInt4& t : layout.triangles) triangles_host_.push_back({t.x, t.y, t.z});
  body_triangle_begin_ = layout.body_triangle_begin;
  self_collision_ = layout.self_collision;
  PALPATE_ASSIGN_OR_RETURN(detector_, ProximityDetector::Create(queue.context()));
  PALPATE_ASSIGN_OR_RETURN(collisions_, ContinuousCollisions::Create(queue.context()));
  PALPATE_ASSIGN_OR_RETURN(counter_of_crossings_, IntersectionCounter::Create(queue.context()));
  PALPATE_RETURN_IF_ERROR(SetTopology(queue));

  body_begin_host_.assign(1, 0);
  std::vector<uint32_t> body_vertices;
  for (size_t b = 0; b + 1 < body_triangle_begin_.size(); ++b) {
    for (uint32_t v = 0; v < vertex_count_; ++v) {
      if (topology_.vertex_groups[v] != SurfaceTopology::kNoGroup && (topology_.vertex_groups[v] & PALPATE_GROUP_MASK) == b) {
        body_vertices.push_back(v);
      }
    }
    body_begin_host_.push_back(static_cast<uint32_t>(body_vertices.size()));
  }
  boxes_host_.resize((body_begin_host_.size() - 1) * kBoxParts);

  const double reserve_m = options.reserve_m > 0
                               ? options.reserve_m
                               : std::max(options.margin_m, kReserveEdges * MeanEdge(topology_, layout.rest_m) - options.margin_m);
  params_host_.margin_m = static_cast<float>(options.margin_m);
  params_host_.stiffness_n_per_m = static_cast<float>(options.stiffness_n_per_m);
  params_host_.friction = static_cast<float>(options.friction);
  params_host_.slip_m = static_cast<float>(kSlipSpeed_m_per_s * options.dt_s);
  params_host_.range_m = static_cast<float>(options.margin_m + reserve_m);
  params_host_.cap_m = static_cast<float>(kCapShare * (options.margin_m + reserve_m));

  const size_t before = queue.context()->allocated_bytes();
  PALPATE_ASSIGN_OR_RETURN(params_, CreateBufferFrom(queue, std::span<const SurfaceParams>(&params_host_, 1), "surface params"));
  PALPATE_ASSIGN_OR_RETURN(rest_, CreateBufferFrom(queue, std::span(layout.rest_m), "surface rest"));
  PALPATE_ASSIGN_OR_RETURN(block_begin_, CreateBufferFrom(queue, std::span(layout.block_begin), "surface neighbour begins"));
  PALPATE_ASSIGN_OR_RETURN(corner_index_, CreateBufferFrom(queue, std::span(layout.corner_index), "surface neighbours"));
  const std::vector<uint32_t> ones(vertex_count_, std::bit_cast<uint32_t>(1.0F));
  PALPATE_ASSIGN_OR_RETURN(shares_, CreateBufferFrom(queue, std::span(ones), "surface shares"));
  const std::shared_ptr<Context>& context = queue.context();
  PALPATE_ASSIGN_OR_RETURN(x_sweep_, DeviceBuffer<Float4>::Create(context, vertex_count_, "surface sweep start"));
  PALPATE_ASSIGN_OR_RETURN(detected_, DeviceBuffer<Float4>::Create(context, vertex_count_, "surface detected"));
  PALPATE_ASSIGN_OR_RETURN(goal_, DeviceBuffer<Float4>::Create(context, vertex_count_, "surface goal"));
  PALPATE_ASSIGN_OR_RETURN(tangled_, DeviceBuffer<uint32_t>::Create(context, vertex_count_, "surface tangled"));
  PALPATE_ASSIGN_OR_RETURN(kept_, DeviceBuffer<float>::Create(context, vertex_count_, "surface kept"));
  PALPATE_ASSIGN_OR_RETURN(spread_, DeviceBuffer<float>::Create(context, vertex_count_, "surface spread"));
  PALPATE_ASSIGN_OR_RETURN(truncated_, DeviceBuffer<uint8_t>::Create(context, vertex_count_, "surface truncated"));
  PALPATE_ASSIGN_OR_RETURN(begins_, DeviceBuffer<uint32_t>::Create(context, size_t{vertex_count_} + 1, "surface entry begins"));
  PALPATE_ASSIGN_OR_RETURN(body_begin_, CreateBufferFrom(queue, std::span<const uint32_t>(body_begin_host_), "surface body begins"));
  PALPATE_ASSIGN_OR_RETURN(body_vertices_, CreateBufferFrom(queue, std::span<const uint32_t>(body_vertices), "surface body vertices"));
  PALPATE_ASSIGN_OR_RETURN(boxes_, DeviceBuffer<Box>::Create(context, boxes_host_.size(), "surface body boxes"));
  PALPATE_ASSIGN_OR_RETURN(found_, DeviceBuffer<uint32_t>::Create(context, 2, "surface hits found"));
  PALPATE_ASSIGN_OR_RETURN(counter_, DeviceBuffer<uint32_t>::Create(context, 1, "surface counter"));
  PALPATE_ASSIGN_OR_RETURN(partials_, DeviceBuffer<MovePartial>::Create(context, partials, "surface moves"));
  device_bytes_ = queue.context()->allocated_bytes() - before;
  partials_host_.resize(partials);
  PALPATE_RETURN_IF_ERROR(queue.Zero(tangled_));

  for (const auto& [kernel, name] : std::initializer_list<std::pair<Kernel*, const char*>>{{&make_pairs_, "make_pairs"},
                                                                                           {&bound_entries_, "bound_entries"},
                                                                                           {&linearize_pairs_, "linearize_pairs"},
                                                                                           {&bound_moves_, "bound_moves"},
                                                                                           {&check_moves_, "check_moves"},
                                                                                           {&report_pairs_, "report_pairs"},
                                                                                           {&mark_tangled_, "mark_tangled"},
                                                                                           {&shorten_moves_, "shorten_moves"},
                                                                                           {&keep_shares_, "keep_shares"},
                                                                                           {&spread_shares_, "spread_shares"},
                                                                                           {&apply_shares_, "apply_shares"},
                                                                                           {&body_boxes_, "body_boxes"}}) {
    PALPATE_ASSIGN_OR_RETURN(*kernel, context->CreateKernel(kernels::surface_contact, name));
  }
  return MakePairs(queue, {}, 0);
}

absl::Status SurfaceContacts::Reset(Queue& queue, const DeviceBuffer<Float4>& x) {
  statistics_ = {};
  PALPATE_RETURN_IF_ERROR(queue.Zero(tangled_));
  PALPATE_RETURN_IF_ERROR(FindTangles(queue, x));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, detected_, vertex_count_));
  return MakePairs(queue, {}, 0);
}

absl::Status SurfaceContacts::MakePairs(Queue& queue, BufferView<SurfaceContact> contacts, uint32_t count) {
  pair_count_ = count;
  statistics_.contacts = count;
  const uint32_t entries = 4 * count;
  if (!pairs_ || pairs_.count() < count) {
    const uint32_t capacity = std::max<uint32_t>(256, count + count / 2);
    PALPATE_RETURN_IF_ERROR(Grow(queue, &pairs_, capacity, "surface pairs"));
    PALPATE_RETURN_IF_ERROR(Grow(queue, &keys_, size_t{4} * capacity, "surface entry keys"));
    PALPATE_RETURN_IF_ERROR(Grow(queue, &sorted_keys_, size_t{4} * capacity, "surface sorted keys"));
    PALPATE_RETURN_IF_ERROR(Grow(queue, &entries_, size_t{4} * capacity, "surface entries"));
    PALPATE_RETURN_IF_ERROR(Grow(queue, &planes_, size_t{4} * capacity, "surface planes"));
    PALPATE_ASSIGN_OR_RETURN(sort_, RadixSort<uint32_t>::Create(queue.context(), 4 * capacity));
    ++generation_;
  }
  if (count == 0) return queue.Zero(begins_);
  PALPATE_RETURN_IF_ERROR(queue.Launch(make_pairs_, {count, kGroup}, count, params_, contacts, rest_, detector_.surface().vertex_groups,
                                       tangled_, pairs_, keys_));
  const uint32_t bits = std::bit_width(vertex_count_ - 1);
  PALPATE_RETURN_IF_ERROR(sort_.Run(queue, keys_, {}, entries, sorted_keys_, entries_, {0, std::max(bits, 1U)}));
  return queue.Launch(bound_entries_, {size_t{entries} + 1, kGroup}, entries, vertex_count_, sorted_keys_, entries_, contacts, pairs_,
                      detected_, begins_, planes_);
}

absl::Status SurfaceContacts::Detect(Queue& queue, const DeviceBuffer<Float4>& x) {
  Clock::time_point mark = Clock::now();
  ++statistics_.detections;
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, detected_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(detector_.Run(queue, x, params_host_.range_m));
  PALPATE_RETURN_IF_ERROR(MakePairs(queue, detector_.contacts(), detector_.contact_count()));
  statistics_.detect_ms += MillisecondsSince(&mark);
  return absl::OkStatus();
}

absl::StatusOr<SurfaceContacts::Moves> SurfaceContacts::CheckMoves(Queue& queue, const DeviceBuffer<Float4>& x,
                                                                   const DeviceBuffer<uint8_t>& touched) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(check_moves_, {partial_count_, 0}, vertex_count_, params_, x, detected_,
                                       detector_.surface().vertex_groups, touched, partials_));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(partials_, std::span<MovePartial>(partials_host_)));
  Moves moves;
  for (const MovePartial& p : partials_host_) {
    moves.beyond_cap += p.beyond_cap;
    moves.truncated += p.truncated;
    moves.bad += p.bad;
    moves.max_move_m = std::max<double>(moves.max_move_m, p.max_move_m);
  }
  return moves;
}

absl::Status SurfaceContacts::Bound(Queue& queue, const DeviceBuffer<Float4>& x) {
  return queue.Launch(bound_moves_, {vertex_count_, 0}, vertex_count_, x, detected_, begins_, planes_, truncated_);
}

absl::Status SurfaceContacts::Filter(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  Clock::time_point mark = Clock::now();
  const Range vertices{vertex_count_, 0};
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, goal_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Fill(kept_, 1.0F));
  for (int round = 0;; ++round) {
    ++statistics_.filter_rounds;
    PALPATE_RETURN_IF_ERROR(collisions_.Run(queue, detected_, x));
    const uint32_t hits = collisions_.hit_count();
    std::array<uint32_t, 2> found{0, std::bit_cast<uint32_t>(1.0F)};
    if (hits > 0) {
      PALPATE_RETURN_IF_ERROR(queue.Write(found_, std::span<const uint32_t>(found)));
      PALPATE_RETURN_IF_ERROR(
          queue.Launch(shorten_moves_, {hits, kGroup}, hits, params_, collisions_.hits(), detected_, x, tangled_, shares_, found_));
      PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(found_, std::span<uint32_t>(found)));
    }
    if (found[0] == 0) break;
    float scale = 1;
    if (round < kLocalRounds) {
      PALPATE_RETURN_IF_ERROR(queue.Launch(keep_shares_, vertices, vertex_count_, shares_, kept_));
      for (int pass = 0; pass < kSpreadPasses; ++pass) {
        PALPATE_RETURN_IF_ERROR(queue.Launch(spread_shares_, vertices, vertex_count_, free_count_, lanes_, block_begin_, corner_index_,
                                             detected_, goal_, pass % 2 == 0 ? kept_ : spread_, pass % 2 == 0 ? spread_ : kept_));
      }
    } else {
      // Up to the first impact of all nothing has met. Were rounding to spoil even that, the moves end up empty, which is certified.
      PALPATE_RETURN_IF_ERROR(queue.Fill(shares_, std::bit_cast<uint32_t>(1.0F)));
      scale = round < kLocalRounds + kGlobalRounds ? 0.9F * std::bit_cast<float>(found[1]) : 0.0F;
    }
    PALPATE_RETURN_IF_ERROR(queue.Launch(apply_shares_, vertices, vertex_count_, scale, detected_, goal_, kept_, x, touched));
    if (scale == 0) break;
  }
  statistics_.filter_ms += MillisecondsSince(&mark);
  return absl::OkStatus();
}

absl::StatusOr<bool> SurfaceContacts::AreBodiesApart(Queue& queue, const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& to,
                                                     float distance_m) {
  const auto bodies = static_cast<uint32_t>(body_begin_host_.size() - 1);
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(body_boxes_, {size_t{bodies} * kBoxParts, 0}, bodies, kBoxParts, body_begin_, body_vertices_, from, to, boxes_));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(boxes_, std::span<Box>(boxes_host_)));
  for (uint32_t b = 0; b < bodies; ++b) {
    Box& box = boxes_host_[b];  // parts of earlier bodies have been read
    box = boxes_host_[size_t{b} * kBoxParts];
    for (uint32_t p = 1; p < kBoxParts; ++p) {
      const Box& part = boxes_host_[size_t{b} * kBoxParts + p];
      box.lower = {std::min(box.lower.x, part.lower.x), std::min(box.lower.y, part.lower.y), std::min(box.lower.z, part.lower.z), 0};
      box.upper = {std::max(box.upper.x, part.upper.x), std::max(box.upper.y, part.upper.y), std::max(box.upper.z, part.upper.z), 0};
    }
    box.upper = {box.upper.x + distance_m, box.upper.y + distance_m, box.upper.z + distance_m, 0};
  }
  std::sort(boxes_host_.begin(), boxes_host_.begin() + bodies, [](const Box& a, const Box& b) { return a.lower.x < b.lower.x; });
  for (uint32_t i = 0; i < bodies; ++i) {
    const Box& a = boxes_host_[i];
    for (uint32_t j = i + 1; j < bodies && boxes_host_[j].lower.x <= a.upper.x; ++j) {
      const Box& b = boxes_host_[j];
      if (b.lower.y <= a.upper.y && a.lower.y <= b.upper.y && b.lower.z <= a.upper.z && a.lower.z <= b.upper.z) return false;
    }
  }
  return true;
}

absl::Status SurfaceContacts::SetSelfCollision(Queue& queue, bool on) {
  if (on == self_collision_on_) return absl::OkStatus();
  self_collision_on_ = on;
  return SetTopology(queue);
}

absl::Status SurfaceContacts::SetTopology(Queue& queue) {
  std::vector<SurfaceBody> bodies;
  meets_itself_ = false;
  for (size_t b = 0; b + 1 < body_triangle_begin_.size(); ++b) {
    const uint32_t begin = body_triangle_begin_[b];
    const bool self = self_collision_on_ && self_collision_[b] != 0;
    meets_itself_ |= self;
    bodies.push_back({.triangles = std::span(triangles_host_).subspan(begin, body_triangle_begin_[b + 1] - begin),
                      .body = static_cast<uint32_t>(b),
                      .self_collision = self});
  }
  PALPATE_ASSIGN_OR_RETURN(topology_, SurfaceTopology::Build(vertex_count_, bodies));
  PALPATE_RETURN_IF_ERROR(detector_.SetTopology(queue, topology_, {}));
  return collisions_.SetTopology(queue, topology_);
}

absl::Status SurfaceContacts::FindTangles(Queue& queue, const DeviceBuffer<Float4>& x) {
  Clock::time_point mark = Clock::now();
  const bool was_tangled = statistics_.intersections > 0;
  PALPATE_RETURN_IF_ERROR(counter_of_crossings_.Run(queue, detector_.surface(), x));
  statistics_.intersections = counter_of_crossings_.crossing_count();
  if (was_tangled || statistics_.intersections > 0) PALPATE_RETURN_IF_ERROR(queue.Zero(tangled_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(mark_tangled_, {statistics_.intersections, kGroup}, statistics_.intersections,
                                       counter_of_crossings_.crossings(), detector_.surface().edges, detector_.surface().triangles,
                                       tangled_));
  statistics_.check_ms += MillisecondsSince(&mark);
  return absl::OkStatus();
}

absl::StatusOr<bool> SurfaceContacts::Begin(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x) {
  statistics_ = {.intersections = statistics_.intersections};
  PALPATE_RETURN_IF_ERROR(queue.Zero(truncated_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x_start, detected_, vertex_count_));
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, truncated_));
  idle_ = moves.bad > 0;
  if (!idle_ && !meets_itself_) {
    PALPATE_ASSIGN_OR_RETURN(idle_, AreBodiesApart(queue, x_start, x, params_host_.range_m));
  }
  if (idle_) {
    PALPATE_RETURN_IF_ERROR(MakePairs(queue, {}, 0));
    return moves.bad == 0;
  }
  if (moves.beyond_cap > 0) {
    PALPATE_RETURN_IF_ERROR(Filter(queue, x, truncated_));
    PALPATE_ASSIGN_OR_RETURN(const Moves filtered, CheckMoves(queue, x, truncated_));
    statistics_.filtered_vertices = filtered.truncated;
    PALPATE_RETURN_IF_ERROR(Detect(queue, x));
  } else {
    PALPATE_RETURN_IF_ERROR(Detect(queue, x_start));
    PALPATE_RETURN_IF_ERROR(Bound(queue, x));
  }
  return true;
}

absl::Status SurfaceContacts::BeforeSweep(Queue& queue, const DeviceBuffer<Float4>& x) {
  if (pair_count_ == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, x_sweep_, vertex_count_));
  return queue.Launch(linearize_pairs_, {pair_count_, kGroup}, pair_count_, params_, x, pairs_);
}

absl::Status SurfaceContacts::MayDetectAgain(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched,
                                             bool* restarted) {
  *restarted = false;
  if (idle_ || statistics_.detections >= options_.max_detections) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, touched));
  const uint32_t limit = static_cast<uint32_t>(kTruncatedShare * std::min<uint32_t>(vertex_count_, 4 * pair_count_));
  if (moves.bad > 0 || (moves.beyond_cap == 0 && moves.truncated <= limit)) return absl::OkStatus();
  if (moves.beyond_cap > 0) PALPATE_RETURN_IF_ERROR(Filter(queue, x, touched));
  *restarted = true;
  return Detect(queue, x);
}

absl::Status SurfaceContacts::Certify(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, touched));
  statistics_.truncated_vertices = moves.truncated;
  if (moves.bad > 0) return absl::OkStatus();
  bool is_safe = moves.beyond_cap == 0;
  if (idle_) {
    PALPATE_ASSIGN_OR_RETURN(is_safe, AreBodiesApart(queue, detected_, x, 0));
  }
  if (!is_safe) PALPATE_RETURN_IF_ERROR(Filter(queue, x, touched));
  if (options_.check_intersections || statistics_.intersections > 0) PALPATE_RETURN_IF_ERROR(FindTangles(queue, x));
  if (pair_count_ == 0) return absl::OkStatus();
  return queue.Launch(linearize_pairs_, {pair_count_, kGroup}, pair_count_, params_, x, pairs_);
}

absl::StatusOr<std::span<const SurfaceReport>> SurfaceContacts::Report(Queue& queue, const DeviceBuffer<Float4>& x,
                                                                       const DeviceBuffer<Float4>& x_start) {
  reports_host_.clear();
  uint32_t count = 0;
  while (pair_count_ > 0) {
    PALPATE_RETURN_IF_ERROR(Grow(queue, &reports_, std::max<size_t>(64, count + count / 2), "surface reports"));
    PALPATE_RETURN_IF_ERROR(queue.Fill(counter_, 0U));
    PALPATE_RETURN_IF_ERROR(queue.Launch(report_pairs_, {pair_count_, kGroup}, pair_count_, static_cast<uint32_t>(reports_.count()),
                                         params_, x, x_start, pairs_, counter_, reports_));
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(counter_, std::span<uint32_t>(&count, 1)));
    if (count > reports_.count()) continue;
    reports_host_.resize(count);
    if (count > 0) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(reports_, std::span<SurfaceReport>(reports_host_)));
    break;
  }
  std::sort(reports_host_.begin(), reports_host_.end(),
            [](const SurfaceReport& a, const SurfaceReport& b) { return std::tie(a.kind, a.a, a.b) < std::tie(b.kind, b.a, b.b); });
  statistics_.acting = static_cast<uint32_t>(reports_host_.size());
  return std::span<const SurfaceReport>(reports_host_);
}

}  // namespace palpate::gpu
