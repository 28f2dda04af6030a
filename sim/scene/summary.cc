#include "sim/scene/summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "sim/scene/nurbs_description.h"
#include "sim/scene/nurbs_shell_body.h"
#include "sim/scene/shell_material.h"
#include "sim/scene/solver_advice.h"

namespace palpate::scene {
namespace {

// Bytes a world keeps on the device, by what they grow with; fitted to slabs and livers of 20 to 93,000 tets (off by 7 %).
constexpr uint64_t kBytesPerScene = 55'000;
constexpr uint64_t kBytesPerVertex = 200;
constexpr uint64_t kBytesPerTet = 410;
constexpr uint64_t kBytesPerTriangle = 140;
constexpr uint64_t kBytesPerTriangleAndTool = 52;
constexpr uint64_t kCorrectionBytesPerVertex = 1'400;  // of coarse corrections; livers of 2,000 to 93,000 tets: off by 15 %
constexpr uint64_t kBytesPerShellTriangle = 700;
constexpr uint64_t kBytesPerGaussPoint = 160;
constexpr uint64_t kBytesPerShellEntry = 28;  // a control point at a Gauss point
// Of contact between and within bodies, before any contact.
constexpr uint64_t kSurfaceBytesPerScene = 48'000;
constexpr uint64_t kSurfaceBytesPerVertex = 150;
constexpr uint64_t kSurfaceBytesPerTet = 75;

/// Vertices that no colour holds two of: those of tets; of a shell those of two triangles at an edge, or of one that has no neighbour.
std::vector<std::array<uint32_t, 4>> JoinedVertices(const sim::BodyDescription& body) {
  if (!body.shell) return body.mesh.tets;
  std::vector<std::array<uint32_t, 4>> out;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> third;  // by edge, of its first triangle
  for (const auto& t : body.shell->triangles) {
    out.push_back({t[0], t[1], t[2], t[2]});
    for (size_t k = 0; k < 3; ++k) {
      const uint32_t a = t[k];
      const uint32_t b = t[(k + 1) % 3];
      const uint32_t c = t[(k + 2) % 3];
      const auto [known, is_new] = third.try_emplace(std::minmax(a, b), c);
      if (!is_new) out.push_back({a, b, c, known->second});
    }
  }
  return out;
}

/// Tets, or what takes their place, around each vertex in compressed rows: those of vertex v are items[starts[v]..starts[v + 1]).
struct Incidence {
  std::vector<uint32_t> starts;
  std::vector<uint32_t> items;
};

Incidence TetsAroundVertices(size_t vertex_count, const std::vector<std::array<uint32_t, 4>>& tets) {
  Incidence out;
  out.starts.assign(vertex_count + 1, 0);
  for (const auto& tet : tets) {
    for (const uint32_t v : tet) ++out.starts[v + 1];
  }
  for (size_t v = 0; v < vertex_count; ++v) out.starts[v + 1] += out.starts[v];
  out.items.resize(out.starts.back());
  std::vector<uint32_t> next(out.starts.begin(), out.starts.end() - 1);
  for (size_t t = 0; t < tets.size(); ++t) {
    for (const uint32_t v : tets[t]) out.items[next[v]++] = static_cast<uint32_t>(t);
  }
  return out;
}

}  // namespace

v1::BodyInfo SummarizeBody(const sim::BodyDescription& body) {
  const sim::BoundarySurface surface = sim::SurfaceOf(body);
  double volume_m3 = body.nurbs == nullptr ? 0 : body.nurbs->volume_m3;
  for (size_t t = 0; t < body.mesh.tets.size(); ++t) volume_m3 += sim::TetVolume(body.mesh, t);
  v1::BodyInfo out;
  out.set_name(body.name);
  out.set_vertex_count(static_cast<uint32_t>(body.mesh.vertices.size()));
  out.set_tet_count(static_cast<uint32_t>(body.mesh.tets.size()));
  out.set_surface_vertex_count(static_cast<uint32_t>(surface.vertices.size()));
  out.set_surface_triangle_count(static_cast<uint32_t>(surface.triangles.size()));
  out.set_fixed_vertex_count(static_cast<uint32_t>(body.fixed_vertices.size()));
  if (sim::StartsQuasiStatic(body.simulation)) out.set_quasi_static_tets(out.tet_count());
  out.set_volume_m3(volume_m3);
  out.set_mass_kg(volume_m3 * body.material.density_kg_per_m3);
  if (body.shell) {
    const sim::ShellTotals shell = sim::TotalsOfShell(body);
    out.set_volume_m3(shell.volume_m3);
    out.set_mass_kg(shell.mass_kg);
  }
  if (body.nurbs_shell) {
    out.set_volume_m3(sim::NurbsShellArea_m2(*body.nurbs_shell->model) * body.nurbs_shell->thickness_m);
    out.set_mass_kg(sim::NurbsShellMass_kg(*body.nurbs_shell->model));
  }
  return out;
}

uint32_t CountColors(const sim::SceneDescription& description) {
  constexpr uint32_t kNone = 0xffffffffU;
  uint32_t color_count = 0;
  for (const sim::BodyDescription& body : description.bodies) {
    if (body.kind != sim::BodyKind::kDeformable || body.nurbs_shell) continue;
    const size_t vertex_count = body.mesh.vertices.size();
    const std::vector<std::array<uint32_t, 4>> tets = JoinedVertices(body);
    const Incidence around = TetsAroundVertices(vertex_count, tets);
    std::vector<bool> is_fixed(vertex_count, false);
    for (const uint32_t v : body.fixed_vertices) is_fixed[v] = true;
    std::vector<uint32_t> order(vertex_count);
    std::iota(order.begin(), order.end(), 0U);
    const auto degree = [&](uint32_t v) { return around.starts[v + 1] - around.starts[v]; };
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return degree(a) > degree(b); });
    std::vector<uint32_t> color(vertex_count, kNone);
    std::vector<bool> taken;
    for (const uint32_t v : order) {
      if (is_fixed[v]) continue;
      taken.assign(color_count + 1, false);
      for (uint32_t i = around.starts[v]; i < around.starts[v + 1]; ++i) {
        for (const uint32_t other : tets[around.items[i]]) {
          if (color[other] != kNone) taken[color[other]] = true;
        }
      }
      color[v] = static_cast<uint32_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
      color_count = std::max(color_count, color[v] + 1);
    }
  }
  return color_count;
}

v1::CheckSceneResponse SummarizeScene(const sim::SceneDescription& description) {
  v1::CheckSceneResponse out;
  const bool has_surface_contact = description.bodies.size() > 1 || (!description.bodies.empty() && description.bodies[0].self_collision);
  uint64_t bytes = kBytesPerScene + (has_surface_contact ? kSurfaceBytesPerScene : 0);
  for (size_t b = 0; b < description.bodies.size(); ++b) {
    const v1::BodyInfo info = SummarizeBody(description.bodies[b]);
    bytes += kBytesPerVertex * info.vertex_count() + kBytesPerTet * info.tet_count() +
             (kBytesPerTriangle + kBytesPerTriangleAndTool * description.tools.size()) * info.surface_triangle_count();
    const bool is_corrected = sim::AreCorrected(description) && sim::AdvisedSweeps(description, b) > 0;
    if (const auto& nurbs = description.bodies[b].nurbs_shell; nurbs) {
      bytes += kBytesPerGaussPoint * nurbs->model->gauss.size() + kBytesPerShellEntry * nurbs->model->entries.size();
    }
    if (description.bodies[b].shell) bytes += kBytesPerShellTriangle * info.surface_triangle_count();
    if (is_corrected) bytes += kCorrectionBytesPerVertex * info.vertex_count();
    if (has_surface_contact) bytes += kSurfaceBytesPerVertex * info.vertex_count() + kSurfaceBytesPerTet * info.tet_count();
    *out.add_bodies() = info;
  }
  out.set_device_bytes(bytes);
  out.set_color_count(CountColors(description));
  return out;
}

}  // namespace palpate::scene
