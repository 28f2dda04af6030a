#include "gpu/dynamics/surface_contact.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
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
constexpr double kAnywhere = std::numeric_limits<double>::infinity();  // a vertex may have gone
// Detected pairs may do at other positions if they are all that are nearer than this many margins there.
constexpr double kRefreshMargins = 1.5;
// Of the vertices with bounds: if more than this share were held back, it is worth looking again.
constexpr double kTruncatedShare = 0.01;
// Share of the margin by which a first guess may take a whole piece farther into a plane.
constexpr double kLeastLiftShare = 0.02;
// Of launches over pairs, whose number changes: drivers may compile a kernel anew for each size of work-group.
constexpr size_t kGroup = 64;
// Rounds of the filter that shorten the moves of what meets; rounds that give up those of what still does; then all moves end before the
// first impact.
constexpr int kLocalRounds = 8;
constexpr int kStopRounds = 24;
constexpr int kGlobalRounds = 3;
constexpr int kSpreadPasses = 4;  // even: the result is back in its buffer
// Of a pair to what it meets: much stiffer pairs would push by the errors of the sweeps. Below half the margin the barrier stiffens anyway.
constexpr float kStiffnessRatio = 2;
constexpr uint32_t kBoxParts = 8;
// Share of the distance of a pair that two whole pieces may approach; with BOUND_SHARE of surface_contact.cl it is below 1.
constexpr double kPieceShare = 0.25;
// Share of the margin that pairs keep as distance, unless they were nearer before. So near that rounding hides which side is which, a pair
// could only stay where it is, whatever pulls it apart.
constexpr double kLeastGapShare = 0.001;
constexpr double kReachChange = 0.3;   // of the mean edge, from which on the range follows it
constexpr double kReachLook = 0.1;     // share of the edges that must have come or gone before that is looked at
constexpr double kReserveEdges = 0.4;  // a detection sees less than the next ring of a regular mesh

double MillisecondsSince(Clock::time_point* mark) {
  const Clock::time_point now = Clock::now();
  const double ms = std::chrono::duration<double, std::milli>(now - *mark).count();
  *mark = now;
  return ms;
}

/// At rest.
double MeanEdge(std::span<const UInt2> edges, const std::vector<Float4>& rest) {
  double sum = 0;
  for (const UInt2& e : edges) {
    const Float4& a = rest[e.x];
    const Float4& b = rest[e.y];
    sum += std::hypot(a.x - b.x, a.y - b.y, a.z - b.z);
  }
  return edges.empty() ? 0 : sum / static_cast<double>(edges.size());
}

/// Force on a piece as a whole [N] and the block of that force [N/m].
struct PieceBlock {
  std::array<double, 3> force{};
  std::array<double, 6> block{};  // xx xy xz yy yz zz

  PieceBlock() = default;
  explicit PieceBlock(const float* sums) {
    for (size_t k = 0; k < 3; ++k) force[k] = sums[k];
    for (size_t k = 0; k < 6; ++k) block[k] = sums[3 + k];
  }
  void Add(const PieceBlock& other) {
    for (size_t k = 0; k < 3; ++k) force[k] += other.force[k];
    for (size_t k = 0; k < 6; ++k) block[k] += other.block[k];
  }
  std::array<double, 3> Times(const std::array<double, 3>& v) const {
    const auto& b = block;
    return {b[0] * v[0] + b[1] * v[1] + b[2] * v[2], b[1] * v[0] + b[3] * v[1] + b[4] * v[2], b[2] * v[0] + b[4] * v[1] + b[5] * v[2]};
  }
  /// The move that balances the force; the block is positive definite.
  std::array<double, 3> Balance() const {
    const auto& b = block;
    const double l10 = b[1] / b[0];
    const double l20 = b[2] / b[0];
    const double d1 = b[3] - l10 * b[1];
    const double t = b[4] - l20 * b[1];
    const double l21 = t / d1;
    const double d2 = b[5] - l20 * b[2] - l21 * t;
    const double y1 = force[1] - l10 * force[0];
    const double z = (force[2] - l20 * force[0] - l21 * y1) / d2;
    const double y = y1 / d1 - l21 * z;
    return {force[0] / b[0] - l10 * y - l20 * z, y, z};
  }
};

/// Moves of the free pieces at which the forces on them balance, to first order and all together: conjugate gradients on the blocks of the
/// pieces and the rows of the pairs that join them.
std::vector<std::array<double, 3>> BalancePieces(const std::vector<uint8_t>& is_free, const std::vector<PieceBlock>& blocks,
                                                 const std::vector<PieceRow>& rows) {
  using Vec = std::array<double, 3>;
  const size_t n = is_free.size();
  std::vector<Vec> residual(n);
  for (size_t p = 0; p < n; ++p) residual[p] = blocks[p].force;
  std::vector<Vec> scale(n, Vec{});  // of the preconditioner: the inverse of the diagonal
  for (size_t p = 0; p < n; ++p) scale[p] = {blocks[p].block[0], blocks[p].block[3], blocks[p].block[5]};
  for (const PieceRow& r : rows) {
    const Vec normal{r.normal.x, r.normal.y, r.normal.z};
    const Vec friction{r.friction.x, r.friction.y, r.friction.z};
    for (size_t k = 0; k < 3; ++k) {
      const double on_b = r.normal.w * normal[k] - friction[k];
      const double diagonal = r.friction.w + (r.slope_n_per_m - r.friction.w) * normal[k] * normal[k];
      if (is_free[r.piece_a]) residual[r.piece_a][k] -= on_b;
      if (is_free[r.piece_b]) residual[r.piece_b][k] += on_b;
      scale[r.piece_a][k] += diagonal;
      scale[r.piece_b][k] += diagonal;
    }
  }
  const auto product = [&](const std::vector<Vec>& v) {
    std::vector<Vec> out(n, Vec{});
    for (size_t p = 0; p < n; ++p) out[p] = blocks[p].Times(v[p]);
    for (const PieceRow& r : rows) {
      if (r.slope_n_per_m == 0) continue;
      const Vec normal{r.normal.x, r.normal.y, r.normal.z};
      const Vec& a = v[r.piece_a];
      const Vec& b = v[r.piece_b];
      const double along = normal[0] * (b[0] - a[0]) + normal[1] * (b[1] - a[1]) + normal[2] * (b[2] - a[2]);
      for (size_t k = 0; k < 3; ++k) {
        const double on_b = r.friction.w * (b[k] - a[k]) + (r.slope_n_per_m - r.friction.w) * along * normal[k];
        if (is_free[r.piece_a]) out[r.piece_a][k] -= on_b;
        if (is_free[r.piece_b]) out[r.piece_b][k] += on_b;
      }
    }
    return out;
  };
  const auto dot = [&](const std::vector<Vec>& a, const std::vector<Vec>& b) {
    double sum = 0;
    for (size_t p = 0; p < n; ++p) sum += a[p][0] * b[p][0] + a[p][1] * b[p][1] + a[p][2] * b[p][2];
    return sum;
  };
  const auto preconditioned = [&](std::vector<Vec> v) {
    for (size_t p = 0; p < n; ++p) {
      for (size_t k = 0; k < 3; ++k) v[p][k] = is_free[p] ? v[p][k] / scale[p][k] : 0;
    }
    return v;
  };
  std::vector<Vec> move(n, Vec{});
  std::vector<Vec> z = preconditioned(residual);
  std::vector<Vec> direction = z;
  double rz = dot(residual, z);
  const double enough = 1e-16 * rz;
  for (size_t i = 0; i < 6 * n + 20 && rz > enough && rz > 0; ++i) {
    const std::vector<Vec> q = product(direction);
    const double curvature = dot(direction, q);
    if (!(curvature > 0)) break;
    const double alpha = rz / curvature;
    for (size_t p = 0; p < n; ++p) {
      for (size_t k = 0; k < 3; ++k) {
        move[p][k] += alpha * direction[p][k];
        residual[p][k] -= alpha * q[p][k];
      }
    }
    z = preconditioned(residual);
    const double next = dot(residual, z);
    for (size_t p = 0; p < n; ++p) {
      for (size_t k = 0; k < 3; ++k) direction[p][k] = z[p][k] + next / rz * direction[p][k];
    }
    rz = next;
  }
  for (Vec& m : move) {
    if (!std::isfinite(m[0] + m[1] + m[2])) return std::vector<Vec>(n, Vec{});
  }
  return move;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SurfaceContacts>> SurfaceContacts::Create(Queue& queue, const TissueLayout& layout,
                                                                         const SurfaceOptions& options, const SurfaceSurroundings& scene,
                                                                         uint32_t partials, double slack_share, SurfaceContacts* old) {
  std::unique_ptr<SurfaceContacts> contacts(new SurfaceContacts(layout, scene));
  PALPATE_RETURN_IF_ERROR(contacts->Init(queue, options, partials, slack_share, old));
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

absl::Status SurfaceContacts::Init(Queue& queue, const SurfaceOptions& options, uint32_t partials, double slack_share,
                                   SurfaceContacts* old) {
  if (!(options.margin_m > 0) || !(options.stiffness_n_per_m >= 0) || !(options.friction >= 0) || !(options.reserve_m >= 0) ||
      options.max_detections < 1) {
    return absl::InvalidArgumentError(absl::StrCat("surface contact: margin ", options.margin_m, " m, stiffness ",
                                                   options.stiffness_n_per_m, " N/m, friction ", options.friction, ", reserve ",
                                                   options.reserve_m, " m, detections ", options.max_detections));
  }
  options_ = options;
  slack_share_ = slack_share;
  vertex_count_ = layout_.vertex_count;
  free_count_ = layout_.free_count;
  lanes_ = layout_.lanes;
  partial_count_ = partials;
  if (old != nullptr) {
    detector_ = std::move(old->detector_);
    collisions_ = std::move(old->collisions_);
    counter_of_crossings_ = std::move(old->counter_of_crossings_);
  } else {
    PALPATE_ASSIGN_OR_RETURN(detector_, ProximityDetector::Create(queue.context()));
    CcdDetectorOptions apart;
    apart.separation_m = static_cast<float>(kLeastGapShare * options.margin_m);
    PALPATE_ASSIGN_OR_RETURN(collisions_, ContinuousCollisions::Create(queue.context(), apart));
    PALPATE_ASSIGN_OR_RETURN(counter_of_crossings_, IntersectionCounter::Create(queue.context()));
  }
  PALPATE_RETURN_IF_ERROR(SetTopology(queue));

  params_host_.margin_m = static_cast<float>(options.margin_m);
  params_host_.friction = static_cast<float>(options.friction);
  params_host_.slip_m = static_cast<float>(kSlipSpeed_m_per_s * options.dt_s);

  const size_t before = queue.context()->allocated_bytes();
  PALPATE_ASSIGN_OR_RETURN(params_, CreateBufferFrom(queue, std::span<const SurfaceParams>(&params_host_, 1), "surface params"));
  PALPATE_ASSIGN_OR_RETURN(rest_, CreateBufferFrom(queue, std::span(layout_.rest_m), "surface rest"));
  const std::vector<uint32_t> ones(vertex_count_, std::bit_cast<uint32_t>(1.0F));
  PALPATE_ASSIGN_OR_RETURN(shares_, CreateBufferFrom(queue, std::span(ones), "surface shares"));
  const std::shared_ptr<Context>& context = queue.context();
  PALPATE_ASSIGN_OR_RETURN(x_sweep_, DeviceBuffer<Float4>::Create(context, vertex_count_, "surface sweep start"));
  PALPATE_ASSIGN_OR_RETURN(detected_, DeviceBuffer<Float4>::Create(context, vertex_count_, "surface detected"));
  PALPATE_ASSIGN_OR_RETURN(certified_, DeviceBuffer<Float4>::Create(context, vertex_count_, "surface certified"));
  PALPATE_ASSIGN_OR_RETURN(goal_, DeviceBuffer<Float4>::Create(context, vertex_count_, "surface goal"));
  PALPATE_ASSIGN_OR_RETURN(tangled_, DeviceBuffer<uint32_t>::Create(context, vertex_count_, "surface tangled"));
  PALPATE_ASSIGN_OR_RETURN(kept_, DeviceBuffer<float>::Create(context, vertex_count_, "surface kept"));
  PALPATE_ASSIGN_OR_RETURN(clear_, DeviceBuffer<float>::Create(context, vertex_count_, "surface clear ways"));
  PALPATE_ASSIGN_OR_RETURN(spread_, DeviceBuffer<float>::Create(context, vertex_count_, "surface spread"));
  PALPATE_ASSIGN_OR_RETURN(truncated_, DeviceBuffer<uint8_t>::Create(context, vertex_count_, "surface truncated"));
  PALPATE_ASSIGN_OR_RETURN(begins_, DeviceBuffer<uint32_t>::Create(context, size_t{vertex_count_} + 1, "surface entry begins"));
  vertex_origins_host_.resize(vertex_count_);
  vertex_stiffness_host_.resize(vertex_count_);
  for (uint32_t v = 0; v < vertex_count_; ++v) {
    vertex_origins_host_[v] = OriginOf(v);
    vertex_stiffness_host_[v] = StiffnessOf(v);
  }
  has_cuts_ = std::any_of(layout_.vertex_origin.begin(), layout_.vertex_origin.end(), [](uint32_t origin) { return (origin & 1U) != 0; });
  PALPATE_ASSIGN_OR_RETURN(vertex_origins_,
                           CreateBufferFrom(queue, std::span<const uint32_t>(vertex_origins_host_), "surface vertex origins"));
  PALPATE_ASSIGN_OR_RETURN(vertex_stiffness_, CreateBufferFrom(queue, std::span<const float>(vertex_stiffness_host_), "surface stiffness"));
  PALPATE_ASSIGN_OR_RETURN(found_, DeviceBuffer<uint32_t>::Create(context, 2, "surface hits found"));
  PALPATE_ASSIGN_OR_RETURN(counter_, DeviceBuffer<uint32_t>::Create(context, 1, "surface counter"));
  PALPATE_ASSIGN_OR_RETURN(partials_, DeviceBuffer<MovePartial>::Create(context, partials, "surface moves"));
  device_bytes_ = queue.context()->allocated_bytes() - before;
  partials_host_.resize(partials);
  PALPATE_RETURN_IF_ERROR(queue.Zero(tangled_));

  constexpr std::pair<Kernel SurfaceContacts::*, const char*> kKernels[] = {
      {&SurfaceContacts::make_pairs_, "make_pairs"},           {&SurfaceContacts::bound_entries_, "bound_entries"},
      {&SurfaceContacts::linearize_pairs_, "linearize_pairs"}, {&SurfaceContacts::bound_moves_, "bound_moves"},
      {&SurfaceContacts::check_moves_, "check_moves"},         {&SurfaceContacts::report_pairs_, "report_pairs"},
      {&SurfaceContacts::mark_tangled_, "mark_tangled"},       {&SurfaceContacts::shorten_moves_, "shorten_moves"},
      {&SurfaceContacts::keep_shares_, "keep_shares"},         {&SurfaceContacts::spread_shares_, "spread_shares"},
      {&SurfaceContacts::apply_shares_, "apply_shares"},       {&SurfaceContacts::body_boxes_, "body_boxes"},
      {&SurfaceContacts::piece_rows_, "piece_rows"},           {&SurfaceContacts::shift_pieces_, "shift_pieces"},
      {&SurfaceContacts::piece_depths_, "piece_depths"},       {&SurfaceContacts::clear_ways_, "clear_ways"}};
  for (const auto& [kernel, name] : kKernels) {
    if (old != nullptr) {
      this->*kernel = std::move(old->*kernel);
    } else {
      PALPATE_ASSIGN_OR_RETURN(this->*kernel, context->CreateKernel(kernels::surface_contact, name));
    }
  }
  return MakePairs(queue, {}, 0);
}

/// The range of detections for surfaces with these edges. Returns whether it changed. Any range beyond the margin is safe: a vertex that
/// goes farther than its half is certified by continuous detection.
bool SurfaceContacts::SetReach(std::span<const UInt2> edges) {
  const double mean_m = MeanEdge(edges, layout_.rest_m);
  reach_edges_ = edges.size();
  if (reach_edge_m_ == 0) reach_edge_m_ = options_.reach_edge_m;
  if (std::abs(mean_m - reach_edge_m_) >= kReachChange * reach_edge_m_) reach_edge_m_ = mean_m;
  const double reserve_m =
      options_.reserve_m > 0 ? options_.reserve_m : std::max(options_.margin_m, kReserveEdges * reach_edge_m_ - options_.margin_m);
  const auto range_m = static_cast<float>(options_.margin_m + reserve_m);
  if (range_m == params_host_.range_m) return false;
  params_host_.range_m = range_m;
  params_host_.cap_m = static_cast<float>(kCapShare * double{range_m});
  return true;
}

uint32_t SurfaceContacts::GroupOf(uint32_t body) const {
  return body | (self_collision_on_ && layout_.self_collision[body] != 0 ? PALPATE_GROUP_SELF : 0U);
}

/// Of a vertex: twice the number of the body that it was part of at first, plus 1 if it lies on a cut.
uint32_t SurfaceContacts::OriginOf(uint32_t slot) const {
  return layout_.vertex_origin.empty() ? (VertexGroups()[slot] & PALPATE_GROUP_MASK) << 1 : layout_.vertex_origin[slot];
}

float SurfaceContacts::StiffnessOf(uint32_t slot) const {
  if (options_.stiffness_n_per_m > 0) return static_cast<float>(options_.stiffness_n_per_m);
  const float own = layout_.vertex_stiffness_n_per_m[slot];
  return kStiffnessRatio * (own > 0 ? own : static_cast<float>(layout_.mean_young_modulus_pa * layout_.mean_edge_m));
}

absl::StatusOr<bool> SurfaceContacts::Follow(const TissueLayoutDelta& delta, RunWriter* writer) {
  if (slack_share_ == 0) return false;
  std::vector<uint32_t> groups;
  for (const uint32_t t : delta.triangles) groups.push_back(GroupOf(layout_.triangle_body[t]));
  meets_itself_ =
      self_collision_on_ && std::any_of(layout_.self_collision.begin(), layout_.self_collision.end(), [](uint8_t s) { return s != 0; });
  PALPATE_ASSIGN_OR_RETURN(const bool fits,
                           editor_->Apply(delta.triangles, std::span(layout_.triangles).first(layout_.triangle_count), groups,
                                          static_cast<uint32_t>(layout_.self_collision.size()), surface_.get(), writer));
  if (!fits) return false;
  PALPATE_RETURN_IF_ERROR(detector_.SetSurface(surface_));
  collisions_.SetSurface(surface_);
  bodies_listed_ = false;
  const double edges = static_cast<double>(editor_->edges().size());
  if (std::abs(edges - static_cast<double>(reach_edges_)) > kReachLook * static_cast<double>(reach_edges_) && SetReach(editor_->edges())) {
    PALPATE_RETURN_IF_ERROR(writer->Add(params_, std::span<const SurfaceParams>(&params_host_, 1), 0));
  }
  for (const uint32_t v : delta.slots) {
    vertex_origins_host_[v] = OriginOf(v);
    vertex_stiffness_host_[v] = StiffnessOf(v);
    has_cuts_ |= !layout_.vertex_origin.empty() && (layout_.vertex_origin[v] & 1U) != 0;
  }
  PALPATE_RETURN_IF_ERROR(writer->AddElements(rest_, layout_.rest_m, delta.slots));
  PALPATE_RETURN_IF_ERROR(writer->AddElements(vertex_origins_, vertex_origins_host_, delta.slots));
  PALPATE_RETURN_IF_ERROR(writer->AddElements(vertex_stiffness_, vertex_stiffness_host_, delta.slots));
  const std::vector<uint32_t> none(delta.slots.size(), 0);
  for (size_t i = 0; i < delta.slots.size(); ++i) {
    PALPATE_RETURN_IF_ERROR(writer->Add(tangled_, std::span<const uint32_t>(&none[i], 1), delta.slots[i]));
  }
  are_pieces_known_ = false;
  return true;
}

absl::Status SurfaceContacts::GoOn(Queue& queue, const DeviceBuffer<Float4>& x, bool may_cross) {
  const uint32_t intersections = statistics_.intersections;
  statistics_ = {.intersections = intersections};
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, detected_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, certified_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Zero(truncated_));
  if (may_cross || intersections > 0 || options_.check_intersections) PALPATE_RETURN_IF_ERROR(FindTangles(queue, x));
  std::fill(piece_shift_.begin(), piece_shift_.end(), std::array<double, 3>{});
  return MakePairs(queue, {}, 0);
}

absl::Status SurfaceContacts::Reset(Queue& queue, const DeviceBuffer<Float4>& x) {
  statistics_ = {};
  PALPATE_RETURN_IF_ERROR(queue.Zero(tangled_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, detected_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, certified_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Zero(truncated_));
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, truncated_));
  // Positions beyond all bounds are for the step to report, which will not keep what becomes of them.
  if (moves.bad == 0) PALPATE_RETURN_IF_ERROR(FindTangles(queue, x));
  std::fill(piece_shift_.begin(), piece_shift_.end(), std::array<double, 3>{});
  return MakePairs(queue, {}, 0);
}

absl::Status SurfaceContacts::MakePairs(Queue& queue, BufferView<SurfaceContact> contacts, uint32_t count) {
  pair_count_ = count;
  statistics_.contacts = count;
  const uint32_t entries = 4 * count;
  if (!pairs_ || pairs_.count() < count) {
    const uint32_t capacity = std::max<uint32_t>(256, count + count / 2);
    PALPATE_RETURN_IF_ERROR(Grow(queue, &pairs_, capacity, "surface pairs"));
    PALPATE_RETURN_IF_ERROR(Grow(queue, &is_near_, capacity, "surface near pairs"));
    PALPATE_RETURN_IF_ERROR(Grow(queue, &keys_, size_t{4} * capacity, "surface entry keys"));
    PALPATE_RETURN_IF_ERROR(Grow(queue, &sorted_keys_, size_t{4} * capacity, "surface sorted keys"));
    PALPATE_RETURN_IF_ERROR(Grow(queue, &entries_, size_t{4} * capacity, "surface entries"));
    PALPATE_RETURN_IF_ERROR(Grow(queue, &planes_, size_t{4} * capacity, "surface planes"));
    PALPATE_ASSIGN_OR_RETURN(sort_, RadixSort<uint32_t>::Create(queue.context(), 4 * capacity));
    ++generation_;
  }
  if (count == 0) {
    PALPATE_RETURN_IF_ERROR(queue.Fill(clear_, std::numeric_limits<float>::max()));
    return queue.Zero(begins_);
  }
  PALPATE_RETURN_IF_ERROR(queue.Launch(make_pairs_, {count, kGroup}, Arg("count", count), Arg("p", params_), Arg("contacts", contacts),
                                       Arg("rest", rest_), Arg("vertex_origins", vertex_origins_),
                                       Arg("vertex_stiffness_n_per_m", vertex_stiffness_), Arg("tangled", tangled_), Arg("pairs", pairs_),
                                       Arg("keys", keys_)));
  const uint32_t bits = std::bit_width(vertex_count_ - 1);
  PALPATE_RETURN_IF_ERROR(sort_.Run(queue, keys_, {}, entries, sorted_keys_, entries_, {0, std::max(bits, 1U)}));
  PALPATE_RETURN_IF_ERROR(queue.Launch(
      bound_entries_, {size_t{entries} + 1, kGroup}, Arg("entry_count", entries), Arg("vertex_count", vertex_count_),
      Arg("least_gap_m", static_cast<float>(kLeastGapShare * options_.margin_m)), Arg("keys", sorted_keys_), Arg("entries", entries_),
      Arg("contacts", contacts), Arg("pairs", pairs_), Arg("x", detected_), Arg("begins", begins_), Arg("planes", planes_)));
  if (follower_ == nullptr) return absl::OkStatus();
  return queue.Launch(clear_ways_, {vertex_count_, kGroup}, Arg("vertex_count", vertex_count_), Arg("begins", begins_),
                      Arg("planes", planes_), Arg("clear_m", clear_));
}

absl::Status SurfaceContacts::SetCap(Queue& queue, double range_m) {
  const auto cap_m = static_cast<float>(kCapShare * range_m);
  if (cap_m == params_host_.cap_m) return absl::OkStatus();
  params_host_.cap_m = cap_m;
  return queue.Write(params_, std::span<const SurfaceParams>(&params_host_, 1));
}

absl::Status SurfaceContacts::Detect(Queue& queue, const DeviceBuffer<Float4>& x, bool at_start, double moved_m) {
  Clock::time_point mark = Clock::now();
  if (follower_ != nullptr && !at_start) PALPATE_RETURN_IF_ERROR(follower_->Detected(queue));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, detected_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, certified_, vertex_count_));
  std::fill(piece_shift_.begin(), piece_shift_.end(), std::array<double, 3>{});
  moved_since_run_m_ += moved_m;
  const double left_m = params_host_.range_m - 2 * moved_since_run_m_;
  const bool is_enough = left_m >= kRefreshMargins * options_.margin_m;
  PALPATE_RETURN_IF_ERROR(SetCap(queue, is_enough ? left_m : params_host_.range_m));
  if (is_enough) {
    PALPATE_RETURN_IF_ERROR(detector_.Refresh(queue, x));
  } else {
    ++statistics_.detections;
    moved_since_run_m_ = 0;
    PALPATE_RETURN_IF_ERROR(detector_.Run(queue, x, params_host_.range_m));
  }
  PALPATE_RETURN_IF_ERROR(MakePairs(queue, detector_.contacts(), detector_.contact_count()));
  statistics_.detect_ms += MillisecondsSince(&mark);
  return absl::OkStatus();
}

absl::StatusOr<SurfaceContacts::Moves> SurfaceContacts::CheckMoves(Queue& queue, const DeviceBuffer<Float4>& x,
                                                                   const DeviceBuffer<uint8_t>& touched) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(check_moves_, {partial_count_, partial_count_ % kGroup == 0 ? kGroup : 1},
                                       Arg("vertex_count", vertex_count_), Arg("p", params_), Arg("x", x), Arg("detected", certified_),
                                       Arg("vertex_groups", detector_.surface().vertex_groups), Arg("touched", touched),
                                       Arg("partials", partials_)));
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
  PALPATE_RETURN_IF_ERROR(queue.Launch(bound_moves_, {vertex_count_, kGroup}, Arg("vertex_count", vertex_count_), Arg("x", x),
                                       Arg("detected", detected_), Arg("begins", begins_), Arg("planes", planes_),
                                       Arg("held_axes", *scene_.held_axes), Arg("touched", truncated_)));
  return follower_ == nullptr ? absl::OkStatus() : follower_->Bound(queue, params_, detected_, clear_, begins_, planes_, x, truncated_);
}

absl::Status SurfaceContacts::Filter(Queue& queue, const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& x,
                                     const DeviceBuffer<uint8_t>& touched, bool only_detected) {
  Clock::time_point mark = Clock::now();
  const Range vertices{vertex_count_, kGroup};
  const auto least_gap_m = static_cast<float>(kLeastGapShare * options_.margin_m);
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, goal_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Fill(kept_, 1.0F));
  if (follower_ != nullptr) PALPATE_RETURN_IF_ERROR(follower_->FilterBegins(queue));
  for (int round = 0;; ++round) {
    ++statistics_.filter_rounds;
    PALPATE_RETURN_IF_ERROR(only_detected ? collisions_.RunListed(queue, detector_.contacts(), from, x)
                            : round == 0  ? collisions_.Run(queue, from, x)
                                          : collisions_.RunAgain(queue, from, x));
    const uint32_t hits = collisions_.hit_count();
    std::array<uint32_t, 2> found{0, std::bit_cast<uint32_t>(1.0F)};
    if (hits > 0) {
      PALPATE_RETURN_IF_ERROR(queue.Write(found_, std::span<const uint32_t>(found)));
      PALPATE_RETURN_IF_ERROR(queue.Launch(shorten_moves_, {hits, kGroup}, Arg("count", hits),
                                           Arg("stop", static_cast<uint32_t>(round >= kLocalRounds)), Arg("least_gap_m", least_gap_m),
                                           Arg("p", params_), Arg("hits", collisions_.hits()), Arg("detected", from), Arg("x", x),
                                           Arg("tangled", tangled_), Arg("shares", shares_), Arg("found", found_)));
      PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(found_, std::span<uint32_t>(found)));
    }
    if (found[0] == 0) break;
    float scale = 1;
    if (round < kLocalRounds + kStopRounds) {
      PALPATE_RETURN_IF_ERROR(
          queue.Launch(keep_shares_, vertices, Arg("vertex_count", vertex_count_), Arg("shares", shares_), Arg("kept", kept_)));
      for (int pass = 0; pass < kSpreadPasses; ++pass) {
        PALPATE_RETURN_IF_ERROR(queue.Launch(spread_shares_, vertices, Arg("vertex_count", vertex_count_), Arg("free_count", free_count_),
                                             Arg("lanes", lanes_), Arg("block_range", *scene_.block_range),
                                             Arg("corner_index", *scene_.corner_index), Arg("detected", from), Arg("goal", goal_),
                                             Arg("kept", pass % 2 == 0 ? kept_ : spread_), Arg("spread", pass % 2 == 0 ? spread_ : kept_)));
      }
    } else {
      // Up to the first impact of all nothing has met. Were rounding to spoil even that, the moves end up empty, which is certified.
      PALPATE_RETURN_IF_ERROR(queue.Fill(shares_, std::bit_cast<uint32_t>(1.0F)));
      scale = round < kLocalRounds + kStopRounds + kGlobalRounds ? 0.9F * std::bit_cast<float>(found[1]) : 0.0F;
    }
    PALPATE_RETURN_IF_ERROR(queue.Launch(apply_shares_, vertices, Arg("vertex_count", vertex_count_), Arg("scale", scale),
                                         Arg("detected", from), Arg("goal", goal_), Arg("kept", kept_), Arg("x", x),
                                         Arg("touched", touched)));
    if (follower_ != nullptr) PALPATE_RETURN_IF_ERROR(follower_->TakeBack(queue, &from != &certified_, kept_, begins_, x, touched));
    if (scale == 0) break;
  }
  statistics_.filter_ms += MillisecondsSince(&mark);
  if (!only_detected || follower_ == nullptr) return absl::OkStatus();
  // Rigid bodies that are taken back leave the straight line: a vertex may be farther on the way than at its end.
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, touched));
  return moves.beyond_cap == 0 ? absl::OkStatus() : Filter(queue, from, x, touched, /*only_detected=*/false);
}

/// The vertices of each body's surface. O(vertices), after each edit once, and only in scenes where no body meets itself.
absl::Status SurfaceContacts::ListBodies(Queue& queue) {
  const std::vector<uint32_t>& of_vertex = VertexGroups();
  std::vector<uint32_t> vertices;
  for (uint32_t v = 0; v < vertex_count_; ++v) {
    if (of_vertex[v] != SurfaceTopology::kNoGroup) vertices.push_back(v);
  }
  const auto body_of = [&](uint32_t v) { return of_vertex[v] & PALPATE_GROUP_MASK; };
  std::stable_sort(vertices.begin(), vertices.end(), [&](uint32_t a, uint32_t b) { return body_of(a) < body_of(b); });
  body_begin_host_.assign(layout_.self_collision.size() + 1, 0);
  for (const uint32_t v : vertices) ++body_begin_host_[body_of(v) + 1];
  std::partial_sum(body_begin_host_.begin(), body_begin_host_.end(), body_begin_host_.begin());
  boxes_host_.resize((body_begin_host_.size() - 1) * kBoxParts);
  PALPATE_RETURN_IF_ERROR(Grow(queue, &body_begin_, body_begin_host_.size(), "surface body begins"));
  PALPATE_RETURN_IF_ERROR(Grow(queue, &body_vertices_, std::max<size_t>(vertices.size(), 1), "surface body vertices"));
  PALPATE_RETURN_IF_ERROR(Grow(queue, &boxes_, boxes_host_.size(), "surface body boxes"));
  PALPATE_RETURN_IF_ERROR(queue.Write(body_begin_, std::span<const uint32_t>(body_begin_host_)));
  PALPATE_RETURN_IF_ERROR(queue.Write(body_vertices_, std::span<const uint32_t>(vertices)));
  bodies_listed_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> SurfaceContacts::AreBodiesApart(Queue& queue, const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& to,
                                                     float distance_m) {
  if (!bodies_listed_) PALPATE_RETURN_IF_ERROR(ListBodies(queue));
  const auto bodies = static_cast<uint32_t>(body_begin_host_.size() - 1);
  PALPATE_RETURN_IF_ERROR(queue.Launch(body_boxes_, {size_t{bodies} * kBoxParts, kGroup}, Arg("body_count", bodies),
                                       Arg("parts", kBoxParts), Arg("body_begin", body_begin_), Arg("body_vertices", body_vertices_),
                                       Arg("from", from), Arg("to", to), Arg("boxes", boxes_)));
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

/// O(tets), in the first step after an edit.
absl::Status SurfaceContacts::FindPieces(Queue& queue) {
  are_pieces_known_ = true;
  std::vector<uint32_t> parent(vertex_count_);
  std::iota(parent.begin(), parent.end(), 0U);
  const auto root = [&](uint32_t v) {
    while (parent[v] != v) v = parent[v] = parent[parent[v]];
    return v;
  };
  std::vector<uint8_t> has_tet(vertex_count_, 0);
  for (uint32_t i = 0; i < layout_.tet_count; ++i) {
    const UInt4& t = layout_.tets[i];
    if (t.x == t.y) continue;  // a free place
    for (const uint32_t v : {t.x, t.y, t.z, t.w}) {
      has_tet[v] = 1;
      parent[root(v)] = root(t.x);
    }
  }
  std::vector<uint32_t> piece_of_root(vertex_count_, PALPATE_NO_PIECE);
  std::vector<uint32_t> vertex_piece(vertex_count_, PALPATE_NO_PIECE);
  std::vector<std::vector<uint32_t>> vertices;
  // Static and rigid bodies, which have no tets, are one piece that these moves leave where it is.
  uint32_t other_piece = PALPATE_NO_PIECE;
  piece_is_free_.clear();
  has_free_pieces_ = false;
  for (uint32_t v = 0; v < vertex_count_; ++v) {
    if (layout_.original_index[v] == kNoTissueVertex) continue;
    uint32_t& piece = has_tet[v] ? piece_of_root[root(v)] : other_piece;
    if (piece == PALPATE_NO_PIECE) {
      piece = static_cast<uint32_t>(vertices.size());
      vertices.emplace_back();
      piece_is_free_.push_back(1);
    }
    vertex_piece[v] = piece;
    vertices[piece].push_back(v);
    if (v >= free_count_ || layout_.held_axes[v] != 0) piece_is_free_[piece] = 0;
  }
  std::vector<uint32_t> begin(1, 0);
  std::vector<uint32_t> list;
  for (size_t i = 0; i < vertices.size(); ++i) {
    if (piece_is_free_[i]) list.insert(list.end(), vertices[i].begin(), vertices[i].end());  // of others nothing is summed
    begin.push_back(static_cast<uint32_t>(list.size()));
    has_free_pieces_ |= piece_is_free_[i] != 0;
  }
  piece_shift_.assign(vertices.size(), std::array<double, 3>{});
  shifts_host_.resize(vertices.size());
  sums_host_.resize(vertices.size() * kParts * PALPATE_PIECE_SUMS);
  PALPATE_RETURN_IF_ERROR(Grow(queue, &vertex_piece_, vertex_count_, "surface vertex pieces"));
  PALPATE_RETURN_IF_ERROR(Grow(queue, &piece_begin_, begin.size(), "surface piece begins"));
  PALPATE_RETURN_IF_ERROR(Grow(queue, &piece_vertices_, std::max<size_t>(list.size(), 1), "surface piece vertices"));
  PALPATE_RETURN_IF_ERROR(Grow(queue, &shifts_, std::max<size_t>(vertices.size(), 1), "surface piece shifts"));
  PALPATE_RETURN_IF_ERROR(queue.Write(vertex_piece_, std::span<const uint32_t>(vertex_piece)));
  PALPATE_RETURN_IF_ERROR(queue.Write(piece_begin_, std::span<const uint32_t>(begin)));
  return queue.Write(piece_vertices_, std::span<const uint32_t>(list));
}

absl::Status SurfaceContacts::ShiftPieces(Queue& queue, const DeviceBuffer<float>& sums, const ShiftLimit& limit,
                                          const DeviceBuffer<Float4>& x, const DeviceBuffer<Float4>& x_start,
                                          const DeviceBuffer<Float4>& x_before, const DeviceBuffer<Float4>& x_before2) {
  const size_t pieces = piece_is_free_.size();
  rows_host_.resize(pair_count_);
  if (pair_count_ > 0) {
    PALPATE_RETURN_IF_ERROR(Grow(queue, &rows_, pairs_.count(), "surface piece rows"));
    PALPATE_RETURN_IF_ERROR(Linearize(queue, x));
    PALPATE_RETURN_IF_ERROR(queue.Launch(piece_rows_, {pair_count_, kGroup}, Arg("count", pair_count_), Arg("p", params_),
                                         Arg("contacts", detector_.contacts()), Arg("pairs", pairs_), Arg("vertex_piece", vertex_piece_),
                                         Arg("x", x), Arg("x_start", x_start), Arg("rows", rows_)));
    PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(rows_, std::span<PieceRow>(rows_host_)));
  }
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(sums, std::span<float>(sums_host_)));

  std::erase_if(rows_host_, [&](const PieceRow& r) {
    return r.piece_a == r.piece_b || r.piece_a == PALPATE_NO_PIECE || r.piece_b == PALPATE_NO_PIECE ||
           (!piece_is_free_[r.piece_a] && !piece_is_free_[r.piece_b]);
  });
  std::vector<PieceBlock> blocks(pieces);
  for (size_t p = 0; p < pieces; ++p) {
    for (uint32_t part = 0; piece_is_free_[p] && part < kParts; ++part) {
      blocks[p].Add(PieceBlock(&sums_host_[(p * kParts + part) * PALPATE_PIECE_SUMS]));
    }
  }
  const std::vector<std::array<double, 3>> moves = BalancePieces(piece_is_free_, blocks, rows_host_);

  // Pieces that pairs join move alike: fully with the motion that they have in common, which brings none nearer to another, and by the same
  // share of the rest. So what they exchange is equal and opposite however little of the rest there is room for.
  std::vector<uint32_t> group(pieces);
  std::iota(group.begin(), group.end(), 0U);
  const auto root = [&](uint32_t p) {
    while (group[p] != p) p = group[p] = group[group[p]];
    return p;
  };
  std::vector<uint8_t> is_held(pieces, 0);
  for (const PieceRow& r : rows_host_) {
    const bool both = piece_is_free_[r.piece_a] && piece_is_free_[r.piece_b];
    if (both) group[root(r.piece_a)] = root(r.piece_b);
    if (!both) is_held[piece_is_free_[r.piece_a] ? r.piece_a : r.piece_b] = 1;
  }
  std::vector<PieceBlock> of_group(pieces);
  for (uint32_t p = 0; p < pieces; ++p) {
    if (is_held[p]) is_held[root(p)] = 1;
    of_group[root(p)].Add(blocks[p]);
  }
  std::vector<std::array<double, 3>> common(pieces, std::array<double, 3>{});
  for (uint32_t p = 0; p < pieces; ++p) {
    if (piece_is_free_[p] && root(p) == p && !is_held[p]) common[p] = of_group[p].Balance();
  }
  const double least_gap_m = kLeastGapShare * options_.margin_m;
  std::vector<double> share(pieces, 1.0);
  std::vector<uint8_t> stays(pieces, 0);
  for (const PieceRow& r : rows_host_) {
    // So near that rounding alone might take the two through each other: whole pieces stay where they are.
    const size_t joined = root(piece_is_free_[r.piece_a] ? r.piece_a : r.piece_b);
    if (r.detected.w < 4 * r.rounding_m) stays[joined] = 1;
    double before = 0;
    double more = 0;
    const std::array<double, 3> n{r.detected.x, r.detected.y, r.detected.z};
    for (size_t k = 0; k < 3; ++k) {
      before += n[k] * (piece_shift_[r.piece_a][k] - piece_shift_[r.piece_b][k]);
      more += n[k] * (moves[r.piece_a][k] - moves[r.piece_b][k]);  // the common part cancels, and is 0 where one of the two is held
    }
    const double room = std::max(0.0, kPieceShare * (r.detected.w - least_gap_m) - r.rounding_m);
    if (before + more <= room) continue;
    double& s = share[joined];
    s = std::min(s, std::max(0.0, (room - before) / more));
  }
  bool moved = false;
  for (uint32_t p = 0; p < pieces; ++p) {
    std::array<double, 3> shift{};
    const std::array<double, 3>& together = common[root(p)];
    for (size_t k = 0; piece_is_free_[p] && !stays[root(p)] && k < 3; ++k)
      shift[k] = together[k] + share[root(p)] * (moves[p][k] - together[k]);
    shifts_host_[p] = {static_cast<float>(shift[0]), static_cast<float>(shift[1]), static_cast<float>(shift[2]), 0.0F};
    moved |= shifts_host_[p].x != 0 || shifts_host_[p].y != 0 || shifts_host_[p].z != 0;
  }
  if (!moved) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Write(shifts_, std::span<const Float4>(shifts_host_)));
  if (limit) {
    // The balance knows of obstacles what acts where the pieces are: one that is just out of reach it would send deep into them.
    PALPATE_ASSIGN_OR_RETURN(const DeviceBuffer<float>* shares, limit(shifts_));
    shares_of_parts_.resize(pieces * kParts);
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(*shares, std::span<float>(shares_of_parts_)));
    std::vector<float> least(pieces, 1.0F);
    for (uint32_t p = 0; p < pieces; ++p) {
      float& of_joined = least[root(p)];
      for (uint32_t part = 0; part < kParts; ++part) of_joined = std::min(of_joined, shares_of_parts_[size_t{p} * kParts + part]);
    }
    for (uint32_t p = 0; p < pieces; ++p) {
      Float4& shift = shifts_host_[p];
      const float kept = least[root(p)];
      shift = {kept * shift.x, kept * shift.y, kept * shift.z, 0.0F};
    }
    PALPATE_RETURN_IF_ERROR(queue.Write(shifts_, std::span<const Float4>(shifts_host_)));
  }
  for (uint32_t p = 0; p < pieces; ++p) {
    const std::array<float, 3> rounded{shifts_host_[p].x, shifts_host_[p].y, shifts_host_[p].z};
    for (size_t k = 0; k < 3; ++k) piece_shift_[p][k] += rounded[k];
  }
  return queue.Launch(shift_pieces_, {vertex_count_, kGroup}, Arg("vertex_count", vertex_count_), Arg("vertex_piece", vertex_piece_),
                      Arg("shifts", shifts_), Arg("x", x), Arg("detected", detected_),
                      Arg("history", static_cast<uint32_t>(x_before.count() > 0)), Arg("x_before", x_before), Arg("x_before2", x_before2));
}

absl::Status SurfaceContacts::SetSelfCollision(Queue& queue, bool on) {
  if (on == self_collision_on_) return absl::OkStatus();
  self_collision_on_ = on;
  return SetTopology(queue);
}

absl::Status SurfaceContacts::SetTopology(Queue& queue) {
  std::vector<std::array<uint32_t, 3>> triangles;
  std::vector<uint32_t> groups;
  for (uint32_t t = 0; t < layout_.triangle_count; ++t) {
    const UInt4& v = layout_.triangles[t];
    triangles.push_back({v.x, v.y, v.z});
    groups.push_back(GroupOf(layout_.triangle_body[t]));
  }
  meets_itself_ =
      self_collision_on_ && std::any_of(layout_.self_collision.begin(), layout_.self_collision.end(), [](uint8_t s) { return s != 0; });
  PALPATE_ASSIGN_OR_RETURN(const SurfaceTopology topology, SurfaceTopology::Build(vertex_count_, triangles, groups));
  if (SetReach(topology.edges) && params_) {
    PALPATE_RETURN_IF_ERROR(queue.Write(params_, std::span<const SurfaceParams>(&params_host_, 1)));
  }
  vertex_groups_ = topology.vertex_groups;
  PALPATE_ASSIGN_OR_RETURN(DeviceSurface surface, DeviceSurface::Upload(queue, topology, slack_share_));
  surface_ = std::make_shared<DeviceSurface>(std::move(surface));
  editor_ = slack_share_ > 0 ? std::make_unique<SurfaceTopologyEditor>(topology, *surface_) : nullptr;
  bodies_listed_ = false;
  PALPATE_RETURN_IF_ERROR(detector_.SetSurface(surface_));
  collisions_.SetSurface(surface_);
  return absl::OkStatus();
}

absl::Status SurfaceContacts::FindTangles(Queue& queue, const DeviceBuffer<Float4>& x) {
  Clock::time_point mark = Clock::now();
  const bool was_tangled = statistics_.intersections > 0;
  PALPATE_RETURN_IF_ERROR(counter_of_crossings_.Run(queue, detector_.surface(), x));
  statistics_.intersections = counter_of_crossings_.crossing_count();
  if (was_tangled || statistics_.intersections > 0) PALPATE_RETURN_IF_ERROR(queue.Zero(tangled_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(mark_tangled_, {statistics_.intersections, kGroup}, Arg("count", statistics_.intersections),
                                       Arg("crossings", counter_of_crossings_.crossings()), Arg("edges", detector_.surface().edges),
                                       Arg("triangles", detector_.surface().triangles), Arg("tangled", tangled_)));
  statistics_.check_ms += MillisecondsSince(&mark);
  return absl::OkStatus();
}

absl::Status SurfaceContacts::LiftGuess(Queue& queue, std::span<const PlaneObstacle> planes,
                                        const DeviceBuffer<PlaneObstacle>& device_planes, const DeviceBuffer<Float4>& x_start,
                                        const DeviceBuffer<Float4>& x) {
  if (!has_cuts_ || planes.empty()) return absl::OkStatus();
  if (!are_pieces_known_) PALPATE_RETURN_IF_ERROR(FindPieces(queue));
  if (!has_free_pieces_) return absl::OkStatus();
  const auto pieces = static_cast<uint32_t>(piece_is_free_.size());
  const size_t per_part = 4 + planes.size();
  depths_host_.resize(pieces * kParts * per_part);
  PALPATE_RETURN_IF_ERROR(Grow(queue, &depths_, depths_host_.size(), "surface piece depths"));
  PALPATE_RETURN_IF_ERROR(queue.Launch(piece_depths_, {size_t{pieces} * kParts, kGroup}, Arg("piece_count", pieces), Arg("parts", kParts),
                                       Arg("plane_count", static_cast<uint32_t>(planes.size())), Arg("p", params_),
                                       Arg("piece_begin", piece_begin_), Arg("piece_vertices", piece_vertices_), Arg("x_start", x_start),
                                       Arg("x", x), Arg("vertex_triangle_range", *scene_.vertex_triangle_range),
                                       Arg("planes", device_planes), Arg("depths", depths_)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(depths_, std::span<float>(depths_host_)));
  bool moved = false;
  for (uint32_t p = 0; p < pieces; ++p) {
    std::array<double, 3> shift{};
    const float* const found = &depths_host_[p * kParts * per_part];
    std::array<double, 4> move{};
    for (size_t part = 0; part < kParts; ++part) {
      for (size_t k = 0; k < 4; ++k) move[k] += found[part * per_part + k];
    }
    for (size_t j = 0; piece_is_free_[p] && move[3] > 0 && j < planes.size(); ++j) {
      const Float4& n = planes[j].normal_offset;
      double depth_m = 0;
      for (size_t part = 0; part < kParts; ++part) depth_m = std::max<double>(depth_m, found[part * per_part + 4 + j]);
      const double away_m = n.x * shift[0] + n.y * shift[1] + n.z * shift[2];
      const double toward_m = -(n.x * move[0] + n.y * move[1] + n.z * move[2]) / move[3] - away_m;
      // What rests there is let sink, and what only turns is no more than stopped: nothing is thrown up.
      const double lift_m = std::min(depth_m - away_m, toward_m);
      if (!(lift_m > kLeastLiftShare * options_.margin_m)) continue;
      shift = {shift[0] + lift_m * n.x, shift[1] + lift_m * n.y, shift[2] + lift_m * n.z};
      moved = true;
    }
    shifts_host_[p] = {static_cast<float>(shift[0]), static_cast<float>(shift[1]), static_cast<float>(shift[2]), 0.0F};
  }
  if (!moved) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Write(shifts_, std::span<const Float4>(shifts_host_)));
  return queue.Launch(shift_pieces_, {vertex_count_, kGroup}, Arg("vertex_count", vertex_count_), Arg("vertex_piece", vertex_piece_),
                      Arg("shifts", shifts_), Arg("x", x), Arg("detected", detected_), Arg("history", 0U), Arg("x_before", x_sweep_),
                      Arg("x_before2", x_sweep_));
}

absl::StatusOr<bool> SurfaceContacts::Begin(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x) {
  statistics_ = {.intersections = statistics_.intersections};
  if (!are_pieces_known_) PALPATE_RETURN_IF_ERROR(FindPieces(queue));
  PALPATE_RETURN_IF_ERROR(queue.Zero(truncated_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x_start, detected_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x_start, certified_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(SetCap(queue, params_host_.range_m));
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, truncated_));
  idle_ = moves.bad > 0;
  if (!idle_ && !meets_itself_) {
    PALPATE_ASSIGN_OR_RETURN(idle_, AreBodiesApart(queue, x_start, x, params_host_.range_m));
  }
  if (idle_) {
    PALPATE_RETURN_IF_ERROR(MakePairs(queue, {}, 0));
    return moves.bad == 0;
  }
  const bool goes_beyond = moves.beyond_cap > 0;
  bool goes_far = goes_beyond;
  if (!goes_beyond) {
    PALPATE_RETURN_IF_ERROR(Detect(queue, x_start, /*at_start=*/true, kAnywhere));
    if (has_cuts_) {
      // The bounds are on moves in the world: lips almost in touch would hold back the one that goes ahead of the other when both move.
      PALPATE_RETURN_IF_ERROR(queue.Copy(x, x_sweep_, vertex_count_));
      PALPATE_RETURN_IF_ERROR(queue.Launch(bound_moves_, {vertex_count_, kGroup}, Arg("vertex_count", vertex_count_), Arg("x", x),
                                           Arg("detected", detected_), Arg("begins", begins_), Arg("planes", planes_),
                                           Arg("held_axes", *scene_.held_axes), Arg("touched", truncated_)));
      PALPATE_ASSIGN_OR_RETURN(const Moves bounded, CheckMoves(queue, x, truncated_));
      goes_far = bounded.truncated > 0;
      PALPATE_RETURN_IF_ERROR(queue.Copy(x_sweep_, x, vertex_count_));
      PALPATE_RETURN_IF_ERROR(queue.Zero(truncated_));
    }
    if (!goes_far) PALPATE_RETURN_IF_ERROR(Bound(queue, x));
  }
  if (goes_far) {
    // Nothing but what was detected can meet, and be near afterwards, if no vertex goes beyond its bound.
    PALPATE_RETURN_IF_ERROR(Filter(queue, certified_, x, truncated_, !goes_beyond));
    PALPATE_ASSIGN_OR_RETURN(const Moves filtered, CheckMoves(queue, x, truncated_));
    statistics_.filtered_vertices = filtered.truncated;
    PALPATE_RETURN_IF_ERROR(Detect(queue, x, /*at_start=*/false, goes_beyond ? kAnywhere : filtered.max_move_m));
  }
  return true;
}

absl::Status SurfaceContacts::Linearize(Queue& queue, const DeviceBuffer<Float4>& x) {
  const DeviceSurface& surface = detector_.surface();
  return queue.Launch(linearize_pairs_, {pair_count_, kGroup}, Arg("count", pair_count_), Arg("x", x), Arg("triangles", surface.triangles),
                      Arg("triangle_edges", surface.triangle_edges), Arg("edge_triangle_range", surface.edge_triangle_range),
                      Arg("edge_triangles", surface.edge_triangles), Arg("vertex_triangle_range", *scene_.vertex_triangle_range),
                      Arg("vertex_triangles", *scene_.vertex_triangles), Arg("pairs", pairs_), Arg("is_near", is_near_));
}

absl::Status SurfaceContacts::BeforeSweep(Queue& queue, const DeviceBuffer<Float4>& x) {
  if (pair_count_ == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, x_sweep_, vertex_count_));
  return Linearize(queue, x);
}

absl::Status SurfaceContacts::MayDetectAgain(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched,
                                             bool* restarted) {
  *restarted = false;
  if (idle_ || statistics_.detections >= options_.max_detections) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, touched));
  const uint32_t limit = static_cast<uint32_t>(kTruncatedShare * std::min<uint32_t>(vertex_count_, 4 * pair_count_));
  if (moves.bad > 0 || (moves.beyond_cap == 0 && moves.truncated <= limit)) return absl::OkStatus();
  if (moves.beyond_cap > 0) PALPATE_RETURN_IF_ERROR(Filter(queue, certified_, x, touched, /*only_detected=*/false));
  *restarted = true;
  return Detect(queue, x, /*at_start=*/false, moves.beyond_cap > 0 ? kAnywhere : moves.max_move_m);
}

absl::Status SurfaceContacts::Certify(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, touched));
  statistics_.truncated_vertices = moves.truncated;
  if (moves.bad > 0) return absl::OkStatus();
  bool is_safe = moves.beyond_cap == 0;
  if (idle_) {
    PALPATE_ASSIGN_OR_RETURN(is_safe, AreBodiesApart(queue, certified_, x, 0));
  }
  if (!is_safe) PALPATE_RETURN_IF_ERROR(Filter(queue, certified_, x, touched, /*only_detected=*/false));
  if (options_.check_intersections || statistics_.intersections > 0) PALPATE_RETURN_IF_ERROR(FindTangles(queue, x));
  if (pair_count_ == 0) return absl::OkStatus();
  return Linearize(queue, x);
}

absl::StatusOr<bool> SurfaceContacts::CertifyFromStart(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                                                       const DeviceBuffer<uint8_t>& touched) {
  bool is_safe = false;  // the planes of the last detection do not tell: x may have come from behind them
  bool only_detected = false;
  if (idle_) {
    PALPATE_ASSIGN_OR_RETURN(is_safe, AreBodiesApart(queue, x_start, x, 0));
  } else {
    // Moves whose start and end are within the cap of the detection are so all the way.
    PALPATE_ASSIGN_OR_RETURN(const Moves back, CheckMoves(queue, x_start, touched));
    PALPATE_ASSIGN_OR_RETURN(const Moves there, CheckMoves(queue, x, touched));
    only_detected = back.beyond_cap + back.bad + there.beyond_cap + there.bad == 0;
  }
  const uint32_t rounds = statistics_.filter_rounds;
  if (!is_safe) PALPATE_RETURN_IF_ERROR(Filter(queue, x_start, x, touched, only_detected));
  if (options_.check_intersections || statistics_.intersections > 0) PALPATE_RETURN_IF_ERROR(FindTangles(queue, x));
  if (pair_count_ > 0) PALPATE_RETURN_IF_ERROR(Linearize(queue, x));
  return statistics_.filter_rounds > rounds + 1;
}

absl::StatusOr<std::span<const SurfaceReport>> SurfaceContacts::Report(Queue& queue, const DeviceBuffer<Float4>& x,
                                                                       const DeviceBuffer<Float4>& x_start) {
  reports_host_.clear();
  uint32_t count = 0;
  while (pair_count_ > 0) {
    PALPATE_RETURN_IF_ERROR(Grow(queue, &reports_, std::max<size_t>(64, count + count / 2), "surface reports"));
    PALPATE_RETURN_IF_ERROR(queue.Fill(counter_, 0U));
    PALPATE_RETURN_IF_ERROR(queue.Launch(report_pairs_, {pair_count_, kGroup}, Arg("count", pair_count_),
                                         Arg("capacity", static_cast<uint32_t>(reports_.count())), Arg("p", params_), Arg("x", x),
                                         Arg("x_start", x_start), Arg("contacts", detector_.contacts()), Arg("pairs", pairs_),
                                         Arg("header", counter_), Arg("reports", reports_)));
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
