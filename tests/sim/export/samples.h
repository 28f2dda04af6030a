#pragma once

#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/world/frame.h"

namespace palpate::sim {

/// Of a bar that is stretched along x, as the samples and their readers know it.
inline constexpr double kStretchPerSecond = 0.5;

/// 0.2 by 0.1 by 0.1 m with a corner in the origin; five tets a cell.
inline TetMesh Bar(const std::array<uint32_t, 3>& cells) {
  TetMesh mesh = *BoxMesh({cells[0] + 1, cells[1] + 1, cells[2] + 1}, {0.2, 0.1, 0.1});
  Eigen::Vector3d least = mesh.vertices[0];
  for (const Eigen::Vector3d& p : mesh.vertices) least = least.cwiseMin(p);
  for (Eigen::Vector3d& p : mesh.vertices) p -= least;
  return mesh;
}

/// A body of a box mesh whose arrays have free slots in front and between, as after edits.
inline std::shared_ptr<BodyArrays> ArraysWithGaps(const TetMesh& mesh, std::string name) {
  auto arrays = std::make_shared<BodyArrays>();
  arrays->name = std::move(name);
  arrays->surface_zones = {{"surface", {0.8F, 0.2F, 0.1F}}, {"inside", {0.5F, 0.1F, 0.05F}, true}, {"top", {0.1F, 0.4F, 0.9F}}};
  const uint32_t gap = 3;  // vertex v of the mesh is in slot v + gap
  arrays->vertex_slot_count = static_cast<uint32_t>(mesh.vertices.size()) + gap;
  arrays->tets.push_back(kFreeTet);
  for (const auto& [a, b, c, d] : mesh.tets) arrays->tets.push_back({a + gap, b + gap, c + gap, d + gap});
  arrays->tets.insert(arrays->tets.begin() + 5, kFreeTet);
  const BoundarySurface boundary = ExtractBoundary(mesh);
  arrays->surface_vertices.values() = {kNoSlot, kNoSlot};
  for (const uint32_t v : boundary.vertices) arrays->surface_vertices.push_back(v + gap);
  for (const auto& [a, b, c] : boundary.triangles) {
    if (arrays->surface_triangles.size() == 4) {
      arrays->surface_triangles.push_back(kFreeTriangle);
      arrays->triangle_zones.push_back(0);
    }
    arrays->surface_triangles.push_back({SurfaceSlot{a + 2}, SurfaceSlot{b + 2}, SurfaceSlot{c + 2}});
    const auto height = [&](uint32_t k) { return mesh.vertices[boundary.vertices[k]].z(); };
    double top = 0;
    for (const Eigen::Vector3d& p : mesh.vertices) top = std::max(top, p.z());
    arrays->triangle_zones.push_back(std::min({height(a), height(b), height(c)}) > top - 1e-9 ? 2 : 0);
  }
  return arrays;
}

/// The state of the body at a time: x is stretched.
inline std::shared_ptr<Frame> StretchedFrame(const TetMesh& mesh, const std::shared_ptr<const WorldTopology>& topology, uint64_t step,
                                             double time_s) {
  auto frame = std::make_shared<Frame>();
  frame->step = step;
  frame->sim_time_s = time_s;
  frame->topology = topology;
  const BodyArrays& arrays = *topology->bodies[0];
  std::vector<float> volume_m(size_t{3} * arrays.vertex_slot_count, NAN), surface_m(3 * arrays.surface_vertices.size(), 0.0F);
  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    const Eigen::Vector3d& p = mesh.vertices[v];
    const Eigen::Vector3d moved(p.x() * (1 + kStretchPerSecond * time_s), p.y(), p.z());
    for (size_t k = 0; k < 3; ++k) volume_m[3 * (v + 3) + k] = static_cast<float>(moved[static_cast<Eigen::Index>(k)]);
  }
  for (const SurfaceSlot slot : arrays.surface_vertices.indices()) {
    const uint32_t vertex = arrays.surface_vertices[slot];
    for (size_t k = 0; vertex != kNoSlot && k < 3; ++k) surface_m[size_t{3} * ToNumber(slot) + k] = volume_m[size_t{3} * vertex + k];
  }
  frame->volume_positions_m = {volume_m};
  frame->surface_positions_m = {surface_m};
  return frame;
}

inline std::filesystem::path FreshFolder(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("palpate_export_" + name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace palpate::sim
