#include "gpu/dynamics/volume_keeper.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "gpu/dynamics/joined_vertices.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource volume;
}
namespace {

constexpr uint32_t kNoColor = 0xffffffffU;
constexpr uint32_t kParts = 16;  // of a body, measured at a time
// What a volume resists within a sweep is at most this many times as stiff as the tissue itself: colours share a volume that may not change
// only in so far as it yields to each.
constexpr double kMaxRatio = 20;

/// The body of a triangle, or one past the last.
uint32_t BodyOf(const TissueModel& model, size_t triangle) {
  if (!model.triangle_body.empty()) return model.triangle_body[triangle];
  const auto& begin = model.body_triangle_begin;
  return static_cast<uint32_t>(std::upper_bound(begin.begin(), begin.end(), triangle) - begin.begin()) - 1;
}

/// [body] by how much the membrane itself resists a change of the volume: as that of a sphere with its area over volume, of which pressure
/// is 2 / r times the tension, and a strain changes the volume by three times as much. 0: it has no shell.
std::vector<double> BulkOfShells(const TissueModel& model, const TissueLayout& layout, const VolumeLists& lists) {
  std::vector<double> sums(lists.bodies.size(), 0);
  for (const ShellTriangle& triangle : model.shells) {
    const uint32_t entry = lists.vertex_entry[layout.solver_index[triangle.vertices[0]]];
    if (entry == kNoTissueVertex) continue;
    std::array<std::array<double, 3>, 2> side;
    for (size_t k = 0; k < 3; ++k) {
      for (size_t c = 0; c < 2; ++c) side[c][k] = model.rest_m[triangle.vertices[c + 1]][k] - model.rest_m[triangle.vertices[0]][k];
    }
    const auto& [a, b] = side;
    const double area_m2 = std::hypot(a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]) / 2;
    const double tension_n_per_m =
        ((double{triangle.moduli_pa[0]} + triangle.moduli_pa[2]) / 2 + triangle.moduli_pa[1]) * triangle.thickness_m;
    const uint32_t body = lists.entry_body[entry];
    sums[body] += 2.0 / 9 * tension_n_per_m * area_m2 / lists.rest_volume_m3[body];
  }
  return sums;
}

/// [slot] the body that a vertex belongs to, of those in `lists`: that of the surface around its tets.
TissueLayout::BySlot<uint32_t> BodiesOfVertices(const TissueModel& model, const TissueLayout& layout, const VolumeLists& lists) {
  UnionFind joined = JoinedByTets(model);
  std::vector<uint32_t> body_of_part(joined.size(), kNoTissueVertex);
  for (uint32_t v = 0; v < joined.size(); ++v) {
    const uint32_t entry = model.fixed[v] == kAbsentVertex ? kNoTissueVertex : lists.vertex_entry[layout.solver_index[v]];
    if (entry != kNoTissueVertex) body_of_part[joined.Find(v)] = lists.entry_body[entry];
  }
  TissueLayout::BySlot<uint32_t> bodies;
  bodies.assign(layout.vertex_count, kNoTissueVertex);
  for (uint32_t v = 0; v < joined.size(); ++v) {
    if (model.fixed[v] != kAbsentVertex) bodies[layout.solver_index[v]] = body_of_part[joined.Find(v)];
  }
  return bodies;
}

}  // namespace

absl::StatusOr<VolumeLists> ListVolumes(const TissueModel& model, const TissueLayout& layout) {
  VolumeLists lists;
  lists.vertex_entry.assign(layout.vertex_count, kNoTissueVertex);
  const std::vector<double>& stiffness_pa = model.volume_stiffness_pa;
  if (stiffness_pa.size() != model.self_collision.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("volume_stiffness_pa: ", stiffness_pa.size(), " entries for ", model.self_collision.size(), " bodies"));
  }
  for (size_t b = 0; b < stiffness_pa.size(); ++b) {
    if (!(stiffness_pa[b] >= 0 && std::isfinite(stiffness_pa[b]))) {
      return absl::InvalidArgumentError(
          absl::StrCat("volume_stiffness_pa[", b, "]: ", stiffness_pa[b], " must be finite and not negative"));
    }
  }
  std::vector<std::vector<uint32_t>> triangles(stiffness_pa.size());
  for (uint32_t t = 0; t < model.surface_triangles.size(); ++t) {
    const uint32_t body = BodyOf(model, t);
    if (stiffness_pa[body] > 0) triangles[body].push_back(t);
  }
  std::vector<std::array<uint32_t, 3>> entries;  // colour, body, slot
  lists.triangle_begins = {0};
  for (uint32_t b = 0; b < triangles.size(); ++b) {
    if (triangles[b].empty()) continue;
    const auto body = static_cast<uint32_t>(lists.bodies.size());
    double volume_m3 = 0;
    const std::array<double, 3>& o = model.rest_m[model.surface_triangles[triangles[b].front()][0]];
    for (const uint32_t t : triangles[b]) {
      std::array<std::array<double, 3>, 3> x;
      for (size_t c = 0; c < 3; ++c) {
        const uint32_t v = model.surface_triangles[t][c];
        for (size_t k = 0; k < 3; ++k) x[c][k] = model.rest_m[v][k] - o[k];
        if (std::exchange(lists.vertex_entry[layout.solver_index[v]], 0U) == 0) continue;
        const uint32_t slot = ToNumber(layout.solver_index[v]);
        const auto color = slot < layout.free_count ? std::upper_bound(layout.color_begin.begin(), layout.color_begin.end(), slot) -
                                                          layout.color_begin.begin() - 1
                                                    : static_cast<std::ptrdiff_t>(layout.color_end.size());
        entries.push_back({static_cast<uint32_t>(color), body, slot});
      }
      volume_m3 += (x[0][0] * (x[1][1] * x[2][2] - x[1][2] * x[2][1]) + x[0][1] * (x[1][2] * x[2][0] - x[1][0] * x[2][2]) +
                    x[0][2] * (x[1][0] * x[2][1] - x[1][1] * x[2][0])) /
                   6;
    }
    if (!(volume_m3 > 0))
      return absl::InvalidArgumentError(absl::StrCat("volume_stiffness_pa[", b, "]: the volume at rest is ", volume_m3, " m^3"));
    lists.bodies.push_back(b);
    lists.rest_volume_m3.push_back(volume_m3);
    lists.stiffness_pa.push_back(stiffness_pa[b]);
    lists.body_triangles.insert(lists.body_triangles.end(), triangles[b].begin(), triangles[b].end());
    lists.triangle_begins.push_back(static_cast<uint32_t>(lists.body_triangles.size()));
  }
  std::sort(entries.begin(), entries.end());
  const auto bodies = static_cast<uint32_t>(lists.bodies.size());
  lists.begins.assign((layout.color_end.size() + 1) * bodies + 1, 0);
  for (const auto& [color, body, slot] : entries) {
    ++lists.begins[size_t{color} * bodies + body + 1];
    lists.vertex_entry[SolverSlot{slot}] = static_cast<uint32_t>(lists.entry_vertex.size());
    lists.entry_vertex.push_back(slot);
    lists.entry_body.push_back(body);
  }
  for (size_t i = 1; i < lists.begins.size(); ++i) lists.begins[i] += lists.begins[i - 1];
  lists.bulk_modulus_pa = BulkOfShells(model, layout, lists);
  std::vector<double> weights(bodies, 0);
  for (const TissueTet& tet : model.tets) {
    if (tet.vertices == kFreeTissueTet) continue;
    for (const uint32_t v : tet.vertices) {
      const uint32_t entry = lists.vertex_entry[layout.solver_index[v]];
      if (entry == kNoTissueVertex) continue;
      lists.bulk_modulus_pa[lists.entry_body[entry]] += tet.lambda_pa + 2 * tet.mu_pa / 3;
      weights[lists.entry_body[entry]] += 1;
    }
  }
  for (uint32_t b = 0; b < bodies; ++b) {
    if (weights[b] > 0) lists.bulk_modulus_pa[b] /= weights[b];
  }
  lists.slot_body = BodiesOfVertices(model, layout, lists);
  return lists;
}

absl::StatusOr<std::unique_ptr<VolumeKeeper>> VolumeKeeper::Create(Queue& queue, const VolumeLists& lists, uint32_t group_size) {
  std::unique_ptr<VolumeKeeper> keeper(new VolumeKeeper);
  keeper->group_size_ = group_size;
  const ProgramDefines defines = {{"PALPATE_VOLUME_GROUP", std::to_string(group_size)}};
  Context& context = *queue.context();
  PALPATE_ASSIGN_OR_RETURN(keeper->measure_volumes_, context.CreateKernel(kernels::volume, "measure_volumes", defines));
  PALPATE_ASSIGN_OR_RETURN(keeper->volume_pressure_, context.CreateKernel(kernels::volume, "volume_pressure", defines));
  PALPATE_ASSIGN_OR_RETURN(keeper->volume_shares_, context.CreateKernel(kernels::volume, "volume_shares", defines));
  PALPATE_RETURN_IF_ERROR(keeper->Follow(queue, lists));
  return keeper;
}

absl::Status VolumeKeeper::Follow(Queue& queue, const VolumeLists& lists) {
  const std::shared_ptr<Context>& context = queue.context();
  std::vector<float> multipliers;
  if (body_count_ > 0) {
    PALPATE_ASSIGN_OR_RETURN(multipliers, ReadMultipliers(queue));
  }
  const std::vector<uint32_t> old_bodies = std::exchange(bodies_host_, lists.bodies);
  body_count_ = static_cast<uint32_t>(lists.bodies.size());
  color_count_ = body_count_ > 0 ? static_cast<uint32_t>((lists.begins.size() - 1) / body_count_) : 0;
  begins_host_ = lists.begins;
  const auto set = [&](auto* buffer, const auto& values, const char* name) -> absl::Status {
    PALPATE_RETURN_IF_ERROR(Grow(context, *buffer, std::max<size_t>(values.size(), 1), name));
    return values.empty() ? absl::OkStatus() : queue.Write(*buffer, std::span(values));
  };
  std::vector<Float4> bodies;
  std::vector<Float2> rest_volumes;
  for (uint32_t b = 0; b < body_count_; ++b) {
    const double volume_m3 = lists.rest_volume_m3[b];
    const auto rounded = static_cast<float>(volume_m3);
    rest_volumes.push_back({rounded, static_cast<float>(volume_m3 - rounded)});
    const double acting_pa = std::min(lists.stiffness_pa[b], kMaxRatio * lists.bulk_modulus_pa[b]);
    bodies.push_back({static_cast<float>(acting_pa / volume_m3), static_cast<float>(acting_pa / lists.stiffness_pa[b]), 0.0F, 0.0F});
  }
  PALPATE_RETURN_IF_ERROR(set(&bodies_, bodies, "volume bodies"));
  PALPATE_RETURN_IF_ERROR(set(&rest_volumes_, rest_volumes, "volume rest volumes"));
  PALPATE_RETURN_IF_ERROR(set(&triangle_begins_, lists.triangle_begins, "volume triangle begins"));
  PALPATE_RETURN_IF_ERROR(set(&body_triangles_, lists.body_triangles, "volume triangles"));
  PALPATE_RETURN_IF_ERROR(set(&begins_, lists.begins, "volume entry begins"));
  PALPATE_RETURN_IF_ERROR(set(&entry_vertex_, lists.entry_vertex, "volume entry vertices"));
  PALPATE_RETURN_IF_ERROR(set(&entry_body_, lists.entry_body, "volume entry bodies"));
  PALPATE_RETURN_IF_ERROR(set(&vertex_entry_, lists.vertex_entry, "volume vertex entries"));
  PALPATE_RETURN_IF_ERROR(set(&slot_body_, lists.slot_body, "volume bodies of vertices"));
  PALPATE_RETURN_IF_ERROR(Grow(context, shares_, std::max<size_t>(body_count_, 1), "volume shares"));
  PALPATE_RETURN_IF_ERROR(Grow(context, partials_, std::max<size_t>(size_t{body_count_} * kParts, 1), "volume partials"));
  PALPATE_RETURN_IF_ERROR(Grow(context, moves_, std::max<size_t>(lists.entry_vertex.size(), 1) * 3, "volume moves"));
  PALPATE_RETURN_IF_ERROR(queue.Zero(moves_));
  PALPATE_RETURN_IF_ERROR(Grow(context, multipliers_, std::max<size_t>(body_count_, 1), "volume multipliers"));
  PALPATE_RETURN_IF_ERROR(SetMultipliers(queue, old_bodies, multipliers));
  return queue.FinishBlocking();  // the lists are the caller's
}

absl::StatusOr<std::vector<float>> VolumeKeeper::ReadMultipliers(Queue& queue) {
  std::vector<float> multipliers(multipliers_.count());
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(multipliers_, std::span<float>(multipliers)));
  return multipliers;
}

/// Of bodies that were there before their own, of others none.
absl::Status VolumeKeeper::SetMultipliers(Queue& queue, const std::vector<uint32_t>& old_bodies, const std::vector<float>& old) {
  std::vector<float> multipliers(multipliers_.count(), 0.0F);
  for (size_t b = 0; b < bodies_host_.size(); ++b) {
    const auto found = std::lower_bound(old_bodies.begin(), old_bodies.end(), bodies_host_[b]);
    if (found != old_bodies.end() && *found == bodies_host_[b]) multipliers[b] = old[static_cast<size_t>(found - old_bodies.begin())];
  }
  PALPATE_RETURN_IF_ERROR(queue.Write(multipliers_, std::span<const float>(multipliers)));
  return queue.FinishBlocking();
}

absl::Status VolumeKeeper::GoOnFrom(Queue& queue, VolumeKeeper& old) {
  PALPATE_ASSIGN_OR_RETURN(const std::vector<float> multipliers, old.ReadMultipliers(queue));
  return SetMultipliers(queue, old.bodies_host_, multipliers);
}

absl::Status VolumeKeeper::Reset(Queue& queue) { return queue.Zero(multipliers_); }

absl::Status VolumeKeeper::SaveState(Queue& queue, StateWriter& archive) {
  PALPATE_ASSIGN_OR_RETURN(std::vector<float> multipliers, ReadMultipliers(queue));
  multipliers.resize(body_count_);
  archive.Enter("VolumeKeeper");
  archive(bodies_host_, multipliers);
  return absl::OkStatus();
}

absl::Status VolumeKeeper::LoadState(Queue& queue, StateReader& archive) {
  std::vector<uint32_t> bodies;
  std::vector<float> multipliers;
  archive.Enter("VolumeKeeper");
  archive(bodies, multipliers);
  archive.Check(bodies == bodies_host_ && multipliers.size() == bodies.size(), "other bodies keep their volume");
  PALPATE_RETURN_IF_ERROR(archive.status());
  return SetMultipliers(queue, bodies, multipliers);
}

absl::Status VolumeKeeper::Measure(Queue& queue, const DeviceBuffer<UInt4>& triangles, const DeviceBuffer<Float4>& x, bool goes_on) {
  goes_on_ = goes_on;
  previous_ = kNoColor;
  if (body_count_ == 0) return absl::OkStatus();
  return queue.Launch(measure_volumes_, {size_t{body_count_} * kParts, 0}, Arg("body_count", body_count_), Arg("parts", uint32_t{kParts}),
                      Arg("triangle_begins", triangle_begins_), Arg("body_triangles", body_triangles_), Arg("triangles", triangles),
                      Arg("x", x), Arg("partials", partials_));
}

UInt2 VolumeKeeper::EntriesOf(uint32_t color) const {
  const uint32_t first = begins_host_[size_t{color} * body_count_];
  return {first, begins_host_[(size_t{color} + 1) * body_count_] - first};
}

absl::Status VolumeKeeper::Launch(Queue& queue, uint32_t color, uint32_t previous, bool goes_on) {
  if (body_count_ == 0) return absl::OkStatus();
  return queue.Launch(volume_pressure_, {size_t{body_count_} * group_size_, group_size_}, Arg("body_count", body_count_),
                      Arg("parts", uint32_t{kParts}), Arg("color", color), Arg("previous", previous),
                      Arg("goes_on", uint32_t{goes_on ? 1U : 0U}), Arg("begins", begins_), Arg("partials", partials_),
                      Arg("rest_volumes", rest_volumes_), Arg("moves", moves_), Arg("multipliers", multipliers_), Arg("bodies", bodies_));
}

absl::Status VolumeKeeper::Balance(Queue& queue, uint32_t color) {
  return Launch(queue, color, std::exchange(previous_, color), std::exchange(goes_on_, false));
}

absl::Status VolumeKeeper::Balance(Queue& queue, KeptPressure which) {
  return Launch(queue, static_cast<uint32_t>(which), kNoColor, false);
}

absl::Status VolumeKeeper::ShareYields(Queue& queue, const DeviceBuffer<Float4>& gradients, const DeviceBuffer<Float4>& moves,
                                       const DeviceBuffer<Float4>& yields) {
  if (body_count_ == 0) return absl::OkStatus();
  return queue.Launch(volume_shares_, {size_t{body_count_} * group_size_, group_size_}, Arg("body_count", body_count_),
                      Arg("color_count", color_count_), Arg("begins", begins_), Arg("entry_vertex", entry_vertex_),
                      Arg("gradients", gradients), Arg("moves", moves), Arg("yields", yields), Arg("bodies", bodies_),
                      Arg("shares", shares_));
}

size_t VolumeKeeper::device_bytes() const {
  return triangle_begins_.size_bytes() + body_triangles_.size_bytes() + begins_.size_bytes() + entry_vertex_.size_bytes() +
         entry_body_.size_bytes() + vertex_entry_.size_bytes() + partials_.size_bytes() + rest_volumes_.size_bytes() +
         bodies_.size_bytes() + moves_.size_bytes() + slot_body_.size_bytes() + shares_.size_bytes() + multipliers_.size_bytes();
}

}  // namespace palpate::gpu
