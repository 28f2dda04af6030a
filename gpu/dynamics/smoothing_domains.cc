#include "gpu/dynamics/smoothing_domains.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "gpu/dynamics/layout_entries.h"
#include "gpu/dynamics/packed_types.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource tissue;
extern const KernelSource tissue_energy;
}  // namespace kernels

namespace {

using Vec = std::array<double, 3>;

bool IsSameLaw(const TissueTet& a, const TissueTet& b) {
  return a.mu_pa == b.mu_pa && a.lambda_pa == b.lambda_pa && a.damping_s == b.damping_s && a.energy == b.energy;
}

Vec Cross(const Vec& a, const Vec& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }

/// Volume of a tet times the rest gradients of its shape functions: a third of the area vectors of the faces opposite [m^2].
struct VolumeGradients {
  double volume_m3 = 0;
  std::array<Vec, 4> of{};

  VolumeGradients(const TissueModel& model, const TissueTet& tet) {
    std::array<Vec, 3> edge;
    for (size_t c = 0; c < 3; ++c) {
      for (size_t k = 0; k < 3; ++k) edge[c][k] = model.rest_m[tet.vertices[c + 1]][k] - model.rest_m[tet.vertices[0]][k];
    }
    of[1] = Cross(edge[1], edge[2]);
    of[2] = Cross(edge[2], edge[0]);
    of[3] = Cross(edge[0], edge[1]);
    for (size_t k = 0; k < 3; ++k) volume_m3 += edge[0][k] * of[1][k] / 6;
    for (size_t c = 1; c < 4; ++c) {
      for (size_t k = 0; k < 3; ++k) {
        of[c][k] /= 6;
        of[0][k] -= of[c][k];
      }
    }
  }
};

void AddTet(const TissueTet& tet, const VolumeGradients& gradients, SmoothingDomain* domain) {
  domain->volume_m3 += gradients.volume_m3 / 4;
  for (size_t c = 0; c < 4; ++c) {
    auto at = std::find(domain->vertices.begin(), domain->vertices.end(), tet.vertices[c]);
    if (at == domain->vertices.end()) {
      at = domain->vertices.insert(domain->vertices.end(), tet.vertices[c]);
      domain->gradients.emplace_back();
    }
    Vec& sum = domain->gradients[static_cast<size_t>(at - domain->vertices.begin())];
    for (size_t k = 0; k < 3; ++k) sum[k] += gradients.of[c][k] / 4;
  }
}

/// Appends the domains of a vertex; `tets`: smoothed ones around it, rising, as places in `gradients`.
void AppendDomainsOf(const TissueModel& model, uint32_t vertex, std::span<const uint32_t> tets,
                     std::span<const std::pair<uint32_t, VolumeGradients>> gradients, std::vector<SmoothingDomain>* domains) {
  const size_t first = domains->size();
  for (const uint32_t k : tets) {
    const TissueTet& tet = model.tets[gradients[k].first];
    auto domain = std::find_if(domains->begin() + static_cast<std::ptrdiff_t>(first), domains->end(),
                               [&](const SmoothingDomain& d) { return IsSameLaw(model.tets[d.law], tet); });
    if (domain == domains->end()) {
      domain = domains->insert(domains->end(), SmoothingDomain{.law = gradients[k].first, .vertices = {vertex}, .gradients = {Vec{}}});
    }
    AddTet(tet, gradients[k].second, &*domain);
  }
}

/// An entry of a vertex: a domain that it is in.
struct Membership {
  uint32_t domain = 0;
  Float4 real;  // rest gradient, factor of the block
};

/// Adds a domain to the lists, and to those of its vertices.
void Write(const TissueModel& model, const SmoothingDomain& domain, const TissueLayout& layout, std::span<const uint32_t> color_of_slot,
           double dt_s, SmoothingLists* lists, TissueLayout::BySlot<std::vector<Membership>>* members) {
  const uint32_t index = lists->domain_count();
  const TissueTet& law = model.tets[domain.law];
  const auto mu = static_cast<float>(domain.volume_m3 * (1 - PALPATE_SMOOTHING_SHARE) * law.mu_pa);
  const auto lambda = static_cast<float>(domain.volume_m3 * law.lambda_pa);
  lists->states.push_back({1, 0, 0, mu});
  lists->states.push_back({0, 1, 0, lambda});
  lists->states.push_back({0, 0, 1, static_cast<float>(law.energy)});
  lists->rates.push_back(static_cast<float>(law.damping_s / dt_s));
  for (size_t j = 0; j < domain.vertices.size(); ++j) {
    const SolverSlot slot = layout.solver_index[domain.vertices[j]];
    const uint32_t color = color_of_slot[ToNumber(slot)];
    const auto moving = std::count_if(domain.vertices.begin(), domain.vertices.end(),
                                      [&](uint32_t v) { return color_of_slot[ToNumber(layout.solver_index[v])] == color; });
    const Vec& g = domain.gradients[j];
    const Float4 gradient = {static_cast<float>(g[0] / domain.volume_m3), static_cast<float>(g[1] / domain.volume_m3),
                             static_cast<float>(g[2] / domain.volume_m3), 0.0F};
    lists->slots.push_back(ToNumber(slot));
    lists->gradients.push_back(gradient);
    const float factor = std::max(1.0F, static_cast<float>(moving) / 2);
    (*members)[slot].push_back({index, {gradient.x, gradient.y, gradient.z, factor}});
  }
  lists->begins.push_back(static_cast<uint32_t>(lists->slots.size()));
}

/// Blocks of lanes of the domains that each vertex is in.
void FillBlocks(const TissueLayout::BySlot<std::vector<Membership>>& members, uint32_t lanes, SmoothingLists* lists) {
  lists->ranges.assign(members.size(), UInt2{0, 0});
  uint32_t block = 0;
  for (const SolverSlot slot : members.indices()) {
    const std::vector<Membership>& of = members[slot];
    if (of.empty()) continue;
    const auto count = static_cast<uint32_t>((of.size() + lanes - 1) / lanes);
    lists->ranges[slot] = {block, block + count};
    lists->reals.resize(size_t{block + count} * PALPATE_SMOOTHING_REALS * lanes, 0.0F);
    lists->indices.resize(size_t{block + count} * lanes, of[0].domain);
    for (uint32_t k = 0; k < of.size(); ++k) {
      const uint32_t b = block + k / lanes;
      const uint32_t lane = k % lanes;
      float* const real = &lists->reals[size_t{b} * PALPATE_SMOOTHING_REALS * lanes + lane];
      real[0] = of[k].real.x;
      real[lanes] = of[k].real.y;
      real[2 * lanes] = of[k].real.z;
      real[3 * lanes] = of[k].real.w;
      lists->indices[size_t{b} * lanes + lane] = of[k].domain;
    }
    block += count;
  }
}

template <typename T>
absl::Status Upload(Queue& queue, DeviceBuffer<T>* buffer, std::vector<T> data, const char* name) {
  if (data.empty()) data.emplace_back();  // kernels take a buffer all the same
  if (buffer->count() != data.size()) {
    PALPATE_ASSIGN_OR_RETURN(*buffer, CreateBufferFrom<T>(queue, data, name));
    return absl::OkStatus();
  }
  return queue.Write(*buffer, std::span<const T>(data));
}

}  // namespace

std::vector<SmoothingDomain> FindSmoothingDomains(const TissueModel& model, std::span<const uint32_t> tets) {
  std::vector<std::pair<uint32_t, VolumeGradients>> gradients;
  std::vector<std::vector<uint32_t>> around;  // places in `gradients`
  for (const uint32_t t : tets) {
    const TissueTet& tet = model.tets[t];
    if (LayoutEntries::IsFree(tet) || !LayoutEntries::IsSmoothed(tet)) continue;
    around.resize(model.rest_m.size());
    for (const uint32_t v : tet.vertices) around[v].push_back(static_cast<uint32_t>(gradients.size()));
    gradients.emplace_back(t, VolumeGradients(model, tet));
  }
  std::vector<SmoothingDomain> domains;
  for (uint32_t v = 0; v < around.size(); ++v) AppendDomainsOf(model, v, around[v], gradients, &domains);
  return domains;
}

SmoothingLists ListSmoothing(const TissueModel& model, const TissueLayout& layout, double dt_s) {
  std::vector<uint32_t> color_of_slot(layout.vertex_count);
  for (uint32_t slot = 0, color = 0; slot < layout.vertex_count; ++slot) {
    while (color < layout.color_end.size() && slot >= layout.color_begin[color + 1]) ++color;
    color_of_slot[slot] = color < layout.color_end.size() ? color : static_cast<uint32_t>(layout.color_end.size()) + slot;  // alone
  }
  SmoothingLists lists;
  lists.begins.push_back(0);
  TissueLayout::BySlot<std::vector<Membership>> members(layout.vertex_count);
  std::vector<uint32_t> tets(model.tets.size());
  std::iota(tets.begin(), tets.end(), 0U);
  for (const SmoothingDomain& domain : FindSmoothingDomains(model, tets)) {
    Write(model, domain, layout, color_of_slot, dt_s, &lists, &members);
  }
  FillBlocks(members, layout.lanes, &lists);
  return lists;
}

absl::Status SmoothingDomains::Init(Queue& queue, const TissueModel& model, const ProgramDefines& defines) {
  Context& context = *queue.context();
  PALPATE_ASSIGN_OR_RETURN(measure_, context.CreateKernel(kernels::tissue, "measure_domains", defines));
  PALPATE_ASSIGN_OR_RETURN(move_, context.CreateKernel(kernels::tissue, "move_domains", defines));
  PALPATE_ASSIGN_OR_RETURN(start_, context.CreateKernel(kernels::tissue, "start_domains", defines));
  PALPATE_ASSIGN_OR_RETURN(turn_, context.CreateKernel(kernels::tissue, "turn_domains", defines));
  PALPATE_ASSIGN_OR_RETURN(x_domain_, DeviceBuffer<Float4>::Create(queue.context(), layout_.vertex_count, "domain positions"));
  return Follow(queue, model);
}

absl::Status SmoothingDomains::Follow(Queue& queue, const TissueModel& model) {
  PALPATE_RETURN_IF_ERROR(Take(queue, ListSmoothing(model, layout_, dt_s_)));
  return BindOwn();
}

absl::Status SmoothingDomains::Take(Queue& queue, const SmoothingLists& lists) {
  domain_count_ = lists.domain_count();
  const size_t strains = layout_.has_viscosity ? size_t{domain_count_} * PALPATE_SMOOTHING_STRAINS : 0;
  const size_t turns = layout_.HasRotatedEnergies() ? domain_count_ : 0;
  PALPATE_RETURN_IF_ERROR(Upload(queue, &begins_, lists.begins, "domain begins"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &slots_, lists.slots, "domain slots"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &gradients_, lists.gradients, "domain gradients"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &states_, lists.states, "domain states"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &rates_, lists.rates, "domain rates"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &ranges_, lists.ranges.values(), "smoothing ranges"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &reals_, lists.reals, "smoothing reals"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &indices_, lists.indices, "smoothing indices"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &starts_, std::vector<Float4>(strains, Float4{}), "domain strains"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &turns_, std::vector<Float4>(turns, Float4{0, 0, 0, 1}), "domain rotations"));
  return Upload(queue, &energy_turns_, std::vector<Float4>(turns, Float4{0, 0, 0, 1}), "domain rotations of the energy");
}

absl::Status SmoothingDomains::BindOwn() {
  for (Kernel* kernel : {&measure_, &move_, &start_}) {
    PALPATE_RETURN_IF_ERROR(kernel->Bind(Arg("domain_count", domain_count_), Arg("domain_begin", begins_), Arg("domain_slots", slots_),
                                         Arg("domain_gradients", gradients_)));
  }
  for (Kernel* kernel : {&measure_, &move_}) {
    PALPATE_RETURN_IF_ERROR(kernel->Bind(Arg("domain_f", states_), Arg("x_domain", x_domain_)));
  }
  PALPATE_RETURN_IF_ERROR(start_.Bind(Arg("domain_rates", rates_), Arg("domain_start", starts_)));
  return turn_.Bind(Arg("domain_count", domain_count_), Arg("domain_f", states_));
}

absl::Status SmoothingDomains::Bind(Kernel& kernel) const {
  return kernel.Bind(Arg("smoothing_range", ranges_), Arg("smoothing_real", reals_), Arg("smoothing_index", indices_),
                     Arg("domain_f", states_), Arg("domain_start", starts_), Arg("domain_turns", turns_));
}

absl::Status SmoothingDomains::BindPhases(Kernel& kernel) const {
  return kernel.Bind(Arg("domain_begin", begins_), Arg("domain_slots", slots_), Arg("domain_gradients", gradients_),
                     Arg("x_domain", x_domain_));
}

absl::Status SmoothingDomains::Begin(Queue& queue, const DeviceBuffer<Float4>& x_start) {
  if (!layout_.has_viscosity) return absl::OkStatus();
  return queue.Launch(start_, {domain_count_, 0}, Arg("x_start", x_start));
}

absl::Status SmoothingDomains::Measure(Queue& queue, const DeviceBuffer<Float4>& x) {
  return queue.Launch(measure_, {domain_count_, 0}, Arg("x", x));
}

absl::Status SmoothingDomains::Turn(Queue& queue) {
  if (!layout_.HasRotatedEnergies()) return absl::OkStatus();
  return queue.Launch(turn_, {(domain_count_ + layout_.lanes - 1) / layout_.lanes, 0}, Arg("domain_turns", turns_));
}

absl::Status SmoothingDomains::Move(Queue& queue, const DeviceBuffer<Float4>& x, uint32_t first, uint32_t count) {
  return queue.Launch(move_, {domain_count_, 0}, Arg("first", first), Arg("count", count), Arg("x", x));
}

absl::Status SmoothingDomains::ForgetRotations(Queue& queue) {
  return layout_.HasRotatedEnergies() ? queue.Fill(turns_, Float4{0, 0, 0, 1}) : absl::OkStatus();
}

absl::Status SmoothingDomains::SaveState(Queue& queue, StateWriter& archive) {
  std::vector<Float4> turns(turns_.count());
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(turns_, std::span<Float4>(turns)));
  archive.Enter("SmoothingDomains");
  archive(turns);
  return absl::OkStatus();
}

absl::Status SmoothingDomains::LoadState(Queue& queue, StateReader& archive) {
  std::vector<Float4> turns;
  archive.Enter("SmoothingDomains");
  archive(turns);
  archive.Check(turns.size() == turns_.count(), "another number of smoothing domains");
  PALPATE_RETURN_IF_ERROR(archive.status());
  return queue.Write(turns_, std::span<const Float4>(turns));
}

absl::StatusOr<double> SmoothingDomains::Energy(Queue& queue, const TissueBuffers& tissue, uint32_t partials, bool in_double) {
  if (partials_.count() == 0) {
    const bool is_double = in_double && queue.context()->device().has_fp64;
    PALPATE_ASSIGN_OR_RETURN(partials_, DeviceBuffer<Float2>::Create(queue.context(), partials, "domain energy partials"));
    PALPATE_ASSIGN_OR_RETURN(sum_energy_, queue.context()->CreateKernel(kernels::tissue_energy, "sum_domain_energy",
                                                                        {{"PALPATE_DOUBLE", is_double ? "1" : "0"}}));
    partials_host_.resize(partials);
  }
  if (layout_.HasRotatedEnergies()) {  // of the positions as they are; those of the sweeps go on as they would
    PALPATE_RETURN_IF_ERROR(Measure(queue, tissue.x));
    PALPATE_RETURN_IF_ERROR(queue.Copy(turns_, energy_turns_, domain_count_));
    PALPATE_RETURN_IF_ERROR(
        queue.Launch(turn_, {(domain_count_ + layout_.lanes - 1) / layout_.lanes, 0}, Arg("domain_turns", energy_turns_)));
  }
  const Range range = {partials, partials % 64 == 0 ? 64U : 1U};
  PALPATE_RETURN_IF_ERROR(queue.Launch(sum_energy_, range, Arg("p", tissue.params), Arg("domain_count", domain_count_), Arg("x", tissue.x),
                                       Arg("domain_begin", begins_), Arg("domain_slots", slots_), Arg("domain_gradients", gradients_),
                                       Arg("domain_f", states_), Arg("domain_turns", energy_turns_), Arg("partials", partials_)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(partials_, std::span<Float2>(partials_host_)));
  double sum = 0;
  for (const Float2& partial : partials_host_) sum += static_cast<double>(partial.x) + partial.y;
  return sum;
}

size_t SmoothingDomains::device_bytes() const {
  size_t sum = 0;
  const auto add = [&](const auto&... buffers) { sum += (buffers.size_bytes() + ...); };
  add(begins_, slots_, indices_, gradients_, states_, starts_, turns_, energy_turns_, x_domain_, rates_, reals_, ranges_, partials_);
  return sum;
}

}  // namespace palpate::gpu
