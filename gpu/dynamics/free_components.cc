#include "gpu/dynamics/free_components.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "gpu/dynamics/surface_kernels.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource component_balance;
}
namespace {

using Vec = std::array<double, 3>;

// Share of the margin by which a first guess may take a whole component farther into a plane.
constexpr double kLeastLiftShare = 0.02;
constexpr size_t kScratchDoubles = 42;  // a component, as in component_balance.cl

/// Roots of the vertices that tets and triangles of shells join, and which vertices have some.
struct Joined {
  std::vector<uint32_t> root;
  std::vector<uint8_t> has_tet;
};

Joined JoinByTets(const TissueLayout& layout) {
  Joined joined{.root = std::vector<uint32_t>(layout.vertex_count), .has_tet = std::vector<uint8_t>(layout.vertex_count, 0)};
  std::vector<uint32_t>& parent = joined.root;
  std::iota(parent.begin(), parent.end(), 0U);
  const auto root = [&](uint32_t v) {
    while (parent[v] != v) v = parent[v] = parent[parent[v]];
    return v;
  };
  for (uint32_t i = 0; i < layout.tet_count; ++i) {
    const UInt4& t = layout.tets[i];
    if (t.x == t.y) continue;  // a free place
    for (const uint32_t v : {t.x, t.y, t.z, t.w}) {
      joined.has_tet[v] = 1;
      parent[root(v)] = root(t.x);
    }
  }
  for (const std::array<uint32_t, 3>& triangle : layout.shell.triangles) {
    for (const uint32_t v : triangle) {
      joined.has_tet[v] = 1;
      parent[root(v)] = root(triangle[0]);
    }
  }
  for (uint32_t v = 0; v < layout.vertex_count; ++v) parent[v] = root(v);
  return joined;
}

}  // namespace

absl::Status FreeComponents::Init(Queue& queue, FreeComponents* old) {
  constexpr std::pair<Kernel FreeComponents::*, const char*> kKernels[] = {{&FreeComponents::component_rows_, "component_rows"},
                                                                           {&FreeComponents::shift_components_, "shift_components"},
                                                                           {&FreeComponents::component_depths_, "component_depths"}};
  for (const auto& [kernel, name] : kKernels) {
    PALPATE_RETURN_IF_ERROR(TakeOrCreate(queue, old == nullptr ? nullptr : &(old->*kernel), name, &(this->*kernel)));
  }
  Context& context = *queue.context();
  on_device_ = context.device().has_fp64;
  if (!on_device_) return absl::OkStatus();
  balance_group_ = context.device().is_cpu ? 1 : 64;
  if (old != nullptr && old->on_device_) {
    balance_components_ = std::move(old->balance_components_);
    limit_components_ = std::move(old->limit_components_);
    return absl::OkStatus();
  }
  const ProgramDefines defines = {{"PALPATE_BALANCE_GROUP", std::to_string(balance_group_)}};
  PALPATE_ASSIGN_OR_RETURN(balance_components_, context.CreateKernel(kernels::component_balance, "balance_components", defines));
  PALPATE_ASSIGN_OR_RETURN(limit_components_, context.CreateKernel(kernels::component_balance, "limit_components", defines));
  return absl::OkStatus();
}

absl::Status FreeComponents::Find(Queue& queue) {
  if (is_known_) return absl::OkStatus();
  const uint32_t n = layout_.vertex_count;
  const Joined joined = JoinByTets(layout_);
  std::vector<uint32_t> component_of_root(n, PALPATE_NO_COMPONENT);
  std::vector<uint32_t> vertex_component(n, PALPATE_NO_COMPONENT);
  std::vector<std::vector<uint32_t>> vertices;
  uint32_t without_tets = PALPATE_NO_COMPONENT;  // one, which these moves leave where it is
  is_free_.clear();
  has_free_ = false;
  for (uint32_t v = 0; v < n; ++v) {
    const SolverSlot slot{v};
    if (layout_.original_index[slot] == kNoTissueVertex) continue;
    uint32_t& component = joined.has_tet[v] ? component_of_root[joined.root[v]] : without_tets;
    if (component == PALPATE_NO_COMPONENT) {
      component = static_cast<uint32_t>(vertices.size());
      vertices.emplace_back();
      is_free_.push_back(1);
    }
    vertex_component[v] = component;
    vertices[component].push_back(v);
    if (v >= layout_.free_count || layout_.held_axes[slot] != 0 || layout_.IsJointed(slot)) is_free_[component] = 0;
  }
  std::vector<uint32_t> begin(1, 0);
  std::vector<uint32_t> list;
  for (size_t i = 0; i < vertices.size(); ++i) {
    if (is_free_[i]) list.insert(list.end(), vertices[i].begin(), vertices[i].end());  // of others nothing is summed
    begin.push_back(static_cast<uint32_t>(list.size()));
    has_free_ |= is_free_[i] != 0;
  }
  moved_m_.assign(vertices.size(), Vec{});
  shifts_host_.resize(vertices.size());
  sums_host_.resize(vertices.size() * kParts * PALPATE_COMPONENT_SUMS);
  const std::shared_ptr<Context>& context = queue.context();
  PALPATE_RETURN_IF_ERROR(Grow(context, vertex_component_, n, "surface vertex components"));
  PALPATE_RETURN_IF_ERROR(Grow(context, begin_, begin.size(), "surface component begins"));
  PALPATE_RETURN_IF_ERROR(Grow(context, vertices_, std::max<size_t>(list.size(), 1), "surface component vertices"));
  PALPATE_RETURN_IF_ERROR(Grow(context, shifts_, std::max<size_t>(vertices.size(), 1), "surface component shifts"));
  PALPATE_RETURN_IF_ERROR(queue.Write(vertex_component_, std::span<const uint32_t>(vertex_component)));
  PALPATE_RETURN_IF_ERROR(queue.Write(begin_, std::span<const uint32_t>(begin)));
  PALPATE_RETURN_IF_ERROR(queue.Write(vertices_, std::span<const uint32_t>(list)));
  is_known_ = true;
  if (!on_device_ || !has_free_) return absl::OkStatus();
  const std::vector<uint32_t> are_free(is_free_.begin(), is_free_.end());
  PALPATE_RETURN_IF_ERROR(Grow(context, free_, vertices.size(), "surface free components"));
  PALPATE_RETURN_IF_ERROR(Grow(context, leader_, vertices.size(), "surface leading components"));
  PALPATE_RETURN_IF_ERROR(Grow(context, moves_, 1, "surface any component moves"));
  PALPATE_RETURN_IF_ERROR(Grow(context, moved_, 3 * vertices.size(), "surface moved components"));
  PALPATE_RETURN_IF_ERROR(Grow(context, scratch_, kScratchDoubles * vertices.size(), "surface component balance"));
  PALPATE_RETURN_IF_ERROR(queue.Write(free_, std::span<const uint32_t>(are_free)));
  return queue.Zero(moved_);
}

absl::Status FreeComponents::ForgetMoves(Queue& queue) {
  std::fill(moved_m_.begin(), moved_m_.end(), Vec{});
  return on_device_ && has_free_ && is_known_ ? queue.Zero(moved_) : absl::OkStatus();
}

bool FreeComponents::TakeMoves(std::span<const Vec> moves_m) {
  bool moves = false;
  for (size_t c = 0; c < moves_m.size(); ++c) {
    const Vec& m = moves_m[c];
    shifts_host_[c] = {static_cast<float>(m[0]), static_cast<float>(m[1]), static_cast<float>(m[2]), 0.0F};
    moves |= shifts_host_[c].x != 0 || shifts_host_[c].y != 0 || shifts_host_[c].z != 0;
  }
  return moves;
}

absl::Status FreeComponents::LaunchShift(Queue& queue, const Positions& positions, bool has_history, BufferView<uint32_t> moves) {
  return queue.Launch(shift_components_, {layout_.vertex_count, kSurfaceGroup}, Arg("vertex_count", layout_.vertex_count),
                      Arg("vertex_component", vertex_component_), Arg("moves", moves), Arg("shifts", shifts_), Arg("x", *positions.x),
                      Arg("detected", *positions.detected), Arg("history", static_cast<uint32_t>(has_history)),
                      Arg("x_before", *positions.x_before), Arg("x_before2", *positions.x_before2));
}

/// `found`: of the component, [kParts][4 + planes]: the sum of its vertices' moves, their number, and by how much it comes nearer to each.
Vec FreeComponents::LiftOf(const float* found, std::span<const PlaneObstacle> planes) const {
  const size_t per_part = 4 + planes.size();
  std::array<double, 4> move{};
  for (size_t part = 0; part < kParts; ++part) {
    for (size_t k = 0; k < 4; ++k) move[k] += found[part * per_part + k];
  }
  Vec lift{};
  if (!(move[3] > 0)) return lift;
  for (size_t j = 0; j < planes.size(); ++j) {
    const Float4& n = planes[j].normal_offset;
    double depth_m = 0;
    for (size_t part = 0; part < kParts; ++part) depth_m = std::max<double>(depth_m, found[part * per_part + 4 + j]);
    const double away_m = n.x * lift[0] + n.y * lift[1] + n.z * lift[2];
    const double toward_m = -(n.x * move[0] + n.y * move[1] + n.z * move[2]) / move[3] - away_m;
    const double lift_m = std::min(depth_m - away_m, toward_m);
    if (!(lift_m > kLeastLiftShare * margin_m_)) continue;
    lift = {lift[0] + lift_m * n.x, lift[1] + lift_m * n.y, lift[2] + lift_m * n.z};
  }
  return lift;
}

absl::Status FreeComponents::Lift(Queue& queue, const DeviceBuffer<SurfaceParams>& params, std::span<const PlaneObstacle> planes,
                                  const DeviceBuffer<PlaneObstacle>& device_planes, const Positions& positions) {
  if (!has_free_ || planes.empty()) return absl::OkStatus();
  const size_t per_component = kParts * (4 + planes.size());
  depths_host_.resize(count() * per_component);
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), depths_, depths_host_.size(), "surface component depths"));
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(component_depths_, {size_t{count()} * kParts, kSurfaceGroup}, Arg("component_count", count()), Arg("parts", kParts),
                   Arg("plane_count", static_cast<uint32_t>(planes.size())), Arg("p", params), Arg("component_begin", begin_),
                   Arg("component_vertices", vertices_), Arg("x_start", *positions.x_start), Arg("x", *positions.x),
                   Arg("vertex_triangle_range", *scene_.vertex_triangle_range), Arg("planes", device_planes), Arg("depths", depths_)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(depths_, std::span<float>(depths_host_)));
  std::vector<Vec> lifts(count(), Vec{});
  for (uint32_t c = 0; c < count(); ++c) {
    if (is_free_[c]) lifts[c] = LiftOf(&depths_host_[c * per_component], planes);
  }
  if (!TakeMoves(lifts)) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Write(shifts_, std::span<const Float4>(shifts_host_)));
  return LaunchShift(queue, positions, /*has_history=*/false, {});
}

absl::StatusOr<ComponentForces> FreeComponents::ReadForces(Queue& queue, const DeviceBuffer<SurfaceParams>& params,
                                                           const SurfacePairs& pairs, const DeviceBuffer<float>& sums,
                                                           const Positions& positions) {
  ComponentForces forces{.is_free = is_free_, .blocks = std::vector<ComponentBlock>(count()), .rows = {}, .moved_m = moved_m_};
  forces.least_gap_m = least_gap_m_;
  rows_host_.resize(pairs.count());
  PALPATE_RETURN_IF_ERROR(LaunchRows(queue, params, pairs, positions));
  if (pairs.count() > 0) PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(rows_, std::span<ComponentRow>(rows_host_)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(sums, std::span<float>(sums_host_)));
  std::copy_if(rows_host_.begin(), rows_host_.end(), std::back_inserter(forces.rows), [&](const ComponentRow& r) {
    return r.component_a != r.component_b && r.component_a != PALPATE_NO_COMPONENT && r.component_b != PALPATE_NO_COMPONENT &&
           (is_free_[r.component_a] || is_free_[r.component_b]);
  });
  for (size_t c = 0; c < count(); ++c) {
    for (size_t part = 0; is_free_[c] && part < kParts; ++part) {
      forces.blocks[c].Add(ComponentBlock(&sums_host_[(c * kParts + part) * PALPATE_COMPONENT_SUMS]));
    }
  }
  return forces;
}

/// The balance knows of obstacles what acts where the components are: one that is just out of reach it would send deep into them.
absl::Status FreeComponents::Limit(Queue& queue, const ShiftLimit& limit, const std::vector<uint32_t>& leader) {
  PALPATE_ASSIGN_OR_RETURN(const DeviceBuffer<float>* shares, limit(shifts_));
  std::vector<float> of_parts(size_t{count()} * kParts);
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(*shares, std::span<float>(of_parts)));
  std::vector<float> least(count(), 1.0F);  // at leaders
  for (size_t i = 0; i < of_parts.size(); ++i) {
    float& of_joined = least[leader[i / kParts]];
    of_joined = std::min(of_joined, of_parts[i]);
  }
  for (uint32_t c = 0; c < count(); ++c) {
    Float4& shift = shifts_host_[c];
    const float kept = least[leader[c]];
    shift = {kept * shift.x, kept * shift.y, kept * shift.z, 0.0F};
  }
  return queue.Write(shifts_, std::span<const Float4>(shifts_host_));
}

absl::Status FreeComponents::LaunchRows(Queue& queue, const DeviceBuffer<SurfaceParams>& params, const SurfacePairs& pairs,
                                        const Positions& positions) {
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), rows_, std::max(pairs.count(), 1U), "surface component rows"));
  return queue.Launch(component_rows_, {pairs.count(), kSurfaceGroup}, Arg("count", pairs.count()), Arg("p", params),
                      Arg("contacts", pairs.contacts()), Arg("pairs", pairs.pairs()), Arg("vertex_component", vertex_component_),
                      Arg("x", *positions.x), Arg("x_start", *positions.x_start), Arg("rows", rows_));
}

/// After LaunchRows.
absl::Status FreeComponents::ShiftOnDevice(Queue& queue, const SurfacePairs& pairs, const DeviceBuffer<float>& sums,
                                           const ShiftLimit& limit, const Positions& positions, const DeviceBuffer<uint32_t>& gate) {
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), picked_, std::max(pairs.count(), 1U), "surface picked rows"));
  PALPATE_RETURN_IF_ERROR(queue.Launch(balance_components_, {balance_group_, balance_group_}, Arg("n", count()), Arg("parts", kParts),
                                       Arg("row_count", pairs.count()), Arg("least_gap_m", least_gap_m_), Arg("rows", rows_),
                                       Arg("sums", sums), Arg("is_free", free_), Arg("moved", moved_), Arg("scratch", scratch_),
                                       Arg("picked", picked_), Arg("leader", leader_), Arg("shifts", shifts_), Arg("moves", moves_)));
  BufferView<float> shares;
  if (limit) {
    PALPATE_ASSIGN_OR_RETURN(const DeviceBuffer<float>* const limited, limit(shifts_));
    shares = *limited;
  }
  PALPATE_RETURN_IF_ERROR(queue.Launch(limit_components_, {1, 1}, Arg("n", count()), Arg("parts", kParts), Arg("shares", shares),
                                       Arg("leader", leader_), Arg("gate", gate), Arg("shifts", shifts_), Arg("moved", moved_),
                                       Arg("moves", moves_)));
  return LaunchShift(queue, positions, positions.x_before->count() > 0, moves_);
}

absl::Status FreeComponents::Shift(Queue& queue, const DeviceBuffer<SurfaceParams>& params, const SurfacePairs& pairs,
                                   const DeviceBuffer<float>& sums, const ShiftLimit& limit, const Positions& positions,
                                   const DeviceBuffer<uint32_t>& gate) {
  if (on_device_) {
    PALPATE_RETURN_IF_ERROR(LaunchRows(queue, params, pairs, positions));
    return ShiftOnDevice(queue, pairs, sums, limit, positions, gate);
  }
  PALPATE_ASSIGN_OR_RETURN(const ComponentForces forces, ReadForces(queue, params, pairs, sums, positions));
  const ComponentMoves moves = MovesToBalance(forces);
  if (!TakeMoves(moves.move_m)) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Write(shifts_, std::span<const Float4>(shifts_host_)));
  if (limit) PALPATE_RETURN_IF_ERROR(Limit(queue, limit, moves.leader));
  for (uint32_t c = 0; c < count(); ++c) {
    const std::array<float, 3> rounded{shifts_host_[c].x, shifts_host_[c].y, shifts_host_[c].z};
    for (size_t k = 0; k < 3; ++k) moved_m_[c][k] += rounded[k];
  }
  return LaunchShift(queue, positions, positions.x_before->count() > 0, {});
}

size_t FreeComponents::device_bytes() const {
  return vertex_component_.size_bytes() + begin_.size_bytes() + vertices_.size_bytes() + rows_.size_bytes() + shifts_.size_bytes() +
         depths_.size_bytes() + free_.size_bytes() + picked_.size_bytes() + leader_.size_bytes() + moves_.size_bytes() +
         moved_.size_bytes() + scratch_.size_bytes();
}

absl::Status FreeComponents::SaveState(Queue& queue, StateWriter& archive) const {
  // All members, so that a new one is not forgotten: the rest follows from the layout, or is of a call.
  [[maybe_unused]] const auto& [layout, scene, margin_m, least_gap_m, is_known, has_free, on_device, balance_group, is_free, moved_m,
                                sums_host, depths_host, shifts_host, rows_host, component_rows, shift_components, component_depths,
                                balance_components, limit_components, vertex_component, begin, vertices, are_free, picked, leader, moves,
                                moved, scratch, rows, shifts, depths] = *this;
  std::vector<Vec> all = moved_m;
  if (on_device && has_free && is_known) {
    std::vector<double> flat(3 * all.size());
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(moved, std::span<double>(flat)));
    for (size_t c = 0; c < all.size(); ++c) all[c] = {flat[3 * c], flat[3 * c + 1], flat[3 * c + 2]};
  }
  archive.Enter("FreeComponents");
  archive(is_known, all);
  return absl::OkStatus();
}

absl::Status FreeComponents::LoadState(Queue& queue, StateReader& archive) {
  bool is_known = false;
  std::vector<Vec> moved_m;
  archive.Enter("FreeComponents");
  archive(is_known, moved_m);
  PALPATE_RETURN_IF_ERROR(archive.status());
  Invalidate();
  if (!is_known) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Find(queue));
  archive.Check(moved_m.size() == moved_m_.size(), "another number of components");
  PALPATE_RETURN_IF_ERROR(archive.status());
  moved_m_ = std::move(moved_m);
  if (!on_device_ || !has_free_) return absl::OkStatus();
  std::vector<double> flat;
  for (const Vec& m : moved_m_) flat.insert(flat.end(), m.begin(), m.end());
  return queue.Write(moved_, std::span<const double>(flat));
}

}  // namespace palpate::gpu
