#include "gpu/dynamics/tissue_buffers.h"

#include <algorithm>
#include <vector>

namespace palpate::gpu {
namespace {

constexpr Float4 kNotTurned{0, 0, 0, 1};

template <typename T>
absl::Status Zeros(Queue& queue, DeviceBuffer<T>* buffer, size_t count, const char* name) {
  PALPATE_ASSIGN_OR_RETURN(*buffer, DeviceBuffer<T>::Create(queue.context(), count, name));
  return queue.Zero(*buffer);
}

template <typename T>
absl::Status Upload(Queue& queue, DeviceBuffer<T>* buffer, const std::vector<T>& data, const char* name) {
  PALPATE_ASSIGN_OR_RETURN(*buffer, CreateBufferFrom<T>(queue, data, name));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TissueBuffers> TissueBuffers::Create(Queue& queue, const TissueLayout& layout, const StepParams& params, bool has_history) {
  TissueBuffers b;
  const size_t n = layout.vertex_count;
  const size_t history = has_history ? n : 0;
  const size_t strains = layout.has_viscosity ? layout.block_vertex.size() * 7 * layout.lanes : 0;
  const size_t turns = layout.HasRotatedEnergies() ? layout.block_vertex.size() * 4 * layout.lanes : 0;
  const std::vector<Float4> rotations(layout.HasRotatedEnergies() ? layout.tets.size() : 0, kNotTurned);
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.params, std::vector<StepParams>{params}, "params"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.x, layout.rest_m.values(), "positions"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.x_start, layout.rest_m.values(), "positions_start"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.y, layout.rest_m.values(), "inertial_targets"));
  PALPATE_RETURN_IF_ERROR(Zeros(queue, &b.velocity, n, "velocities"));
  PALPATE_RETURN_IF_ERROR(Zeros(queue, &b.velocity_before, n, "velocities_before"));
  PALPATE_RETURN_IF_ERROR(Zeros(queue, &b.x_before, history, "positions_before"));
  PALPATE_RETURN_IF_ERROR(Zeros(queue, &b.x_before2, history, "positions_before2"));
  if (layout.IsDisplaced()) {
    PALPATE_RETURN_IF_ERROR(Upload(queue, &b.rest, layout.rest_m.values(), "rest"));
    PALPATE_RETURN_IF_ERROR(Zeros(queue, &b.u, n, "displacements"));
    PALPATE_RETURN_IF_ERROR(Zeros(queue, &b.u_start, n, "displacements_start"));
  }
  PALPATE_RETURN_IF_ERROR(Zeros(queue, &b.touched, n, "touched"));
  PALPATE_RETURN_IF_ERROR(Zeros(queue, &b.gate, 1, "gate"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.mass, layout.mass_kg.values(), "masses"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.mass_damping, layout.mass_damping_per_s.values(), "mass_damping"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.held_axes, layout.held_axes.values(), "held_axes"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.original_index, layout.original_index.values(), "original_index"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.block_range, layout.block_range.values(), "block_range"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.block_vertex, layout.block_vertex, "block_vertex"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.corner_real, layout.corner_real, "corner_real"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.corner_index, layout.corner_index, "corner_index"));
  PALPATE_RETURN_IF_ERROR(Zeros(queue, &b.corner_strain, strains, "corner_strain"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.tets, layout.tets, "tets"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.tet_rest, layout.tet_rest, "tet_rest"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.tet_moduli, layout.tet_moduli, "tet_moduli"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.rotations, rotations, "rotations"));
  PALPATE_RETURN_IF_ERROR(Zeros(queue, &b.corner_turns, turns, "corner_turns"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.triangles, layout.triangles, "triangles"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.vertex_triangle_range, layout.vertex_triangle_range.values(), "vertex_triangle_range"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &b.vertex_triangles, layout.vertex_triangles, "vertex_triangles"));
  return b;
}

absl::Status TissueBuffers::Follow(const TissueLayout& layout, const TissueLayoutDelta& delta, const StepParams& step_params,
                                   std::span<const TissueVertexState> states, RunWriter* writer) const {
  RunWriter& w = *writer;
  PALPATE_RETURN_IF_ERROR(w.Add(params, std::span<const StepParams>(&step_params, 1), 0));
  PALPATE_RETURN_IF_ERROR(w.AddElements(mass, layout.mass_kg.values(), delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(mass_damping, layout.mass_damping_per_s.values(), delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(held_axes, layout.held_axes.values(), delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(original_index, layout.original_index.values(), delta.slots));
  if (layout.IsDisplaced()) PALPATE_RETURN_IF_ERROR(w.AddElements(rest, layout.rest_m.values(), delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(block_range, layout.block_range.values(), delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(vertex_triangle_range, layout.vertex_triangle_range.values(), delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(vertex_triangles, layout.vertex_triangles, delta.fan_places));
  PALPATE_RETURN_IF_ERROR(w.AddElements(block_vertex, layout.block_vertex, delta.blocks));
  PALPATE_RETURN_IF_ERROR(w.AddElements(corner_real, layout.corner_real, delta.blocks, layout.corner_reals * layout.lanes));
  PALPATE_RETURN_IF_ERROR(w.AddElements(corner_index, layout.corner_index, delta.blocks, size_t{4} * layout.lanes));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tets, layout.tets, delta.tets));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tet_rest, layout.tet_rest, delta.tets, 3));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tet_moduli, layout.tet_moduli, delta.tets));
  PALPATE_RETURN_IF_ERROR(w.AddElements(triangles, layout.triangles, delta.triangles));
  for (const uint32_t t : delta.tets) {
    if (rotations.count() > 0) PALPATE_RETURN_IF_ERROR(w.Add(rotations, std::span<const Float4>(&kNotTurned, 1), t));
  }
  const auto write_state = [&](uint32_t slot, const TissueVertexState& state) -> absl::Status {
    PALPATE_RETURN_IF_ERROR(w.Add(x, std::span<const Float4>(&state.position_m, 1), slot));
    PALPATE_RETURN_IF_ERROR(w.Add(velocity, std::span<const Float4>(&state.velocity_m_per_s, 1), slot));
    return w.Add(velocity_before, std::span<const Float4>(&state.velocity_before_m_per_s, 1), slot);
  };
  for (const uint32_t slot : delta.slots) {
    if (layout.original_index[SolverSlot{slot}] == kNoTissueVertex) PALPATE_RETURN_IF_ERROR(write_state(slot, {}));
  }
  for (const uint32_t v : delta.state_vertices) PALPATE_RETURN_IF_ERROR(write_state(ToNumber(layout.solver_index[v]), states[v]));
  return absl::OkStatus();
}

size_t TissueBuffers::device_bytes() const {
  size_t sum = 0;
  const auto add = [&](const auto&... buffers) { sum += (buffers.size_bytes() + ...); };
  add(params, x, x_start, y, velocity, velocity_before, x_before, x_before2, rest, u, u_start, touched, gate, mass, mass_damping,
      original_index, held_axes);
  add(block_range, vertex_triangle_range, block_vertex, corner_index, vertex_triangles, corner_real, corner_strain, tets, triangles);
  add(tet_rest, tet_moduli, rotations, corner_turns);
  return sum;
}

}  // namespace palpate::gpu
