#include "sim/mesh/texture_transfer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include <Eigen/Geometry>

#include "absl/container/flat_hash_map.h"
#include "sim/mesh/signed_distance.h"

namespace palpate::sim {
namespace {

using Corners = std::array<Eigen::Vector2d, 3>;

/// Numbers of the islands of a surface, from 0, in the order of their first triangles.
std::vector<uint32_t> FindIslands(const TexturedSurface& surface) {
  const auto count = static_cast<uint32_t>(surface.surface.triangles.size());
  std::vector<uint32_t> parent(count);
  std::iota(parent.begin(), parent.end(), 0U);
  const auto root = [&parent](uint32_t t) {
    while (parent[t] != t) t = parent[t] = parent[parent[t]];
    return t;
  };
  struct Side {
    uint32_t triangle;
    std::array<Eigen::Vector2d, 2> ends;
  };
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, std::vector<Side>> edges;
  for (uint32_t t = 0; t < count; ++t) {
    for (size_t k = 0; k < 3; ++k) {
      size_t low = k, high = (k + 1) % 3;
      const auto& corners = surface.surface.triangles[t];
      if (corners[low] > corners[high]) std::swap(low, high);
      const std::array<Eigen::Vector2d, 2> ends = {surface.texture_corners[t][low], surface.texture_corners[t][high]};
      std::vector<Side>& sides = edges[{corners[low], corners[high]}];
      for (const Side& side : sides) {
        const bool same_material =
            surface.triangle_materials.empty() || surface.triangle_materials[t] == surface.triangle_materials[side.triangle];
        if (side.ends == ends && same_material) parent[std::max(root(t), root(side.triangle))] = std::min(root(t), root(side.triangle));
      }
      sides.push_back({t, ends});
    }
  }
  std::vector<uint32_t> islands(count);
  uint32_t next = 0;
  for (uint32_t t = 0; t < count; ++t) islands[t] = root(t) == t ? next++ : islands[root(t)];
  return islands;
}

/// One island, to look for the nearest place in.
class Island {
 public:
  Island(const TexturedSurface& surface, std::vector<uint32_t> triangles)
      : surface_(surface), triangles_(std::move(triangles)), distance_(Part(surface, triangles_)) {}

  Eigen::Vector2d At(const Eigen::Vector3d& place_m) const {
    const SignedDistance::Nearest nearest = distance_.NearestTo(place_m);
    const uint32_t t = triangles_[nearest.triangle];
    const auto& [a, b, c] = surface_.surface.triangles[t];
    const Eigen::Vector3d& origin = surface_.surface.vertices[a];
    const Eigen::Vector3d ab = surface_.surface.vertices[b] - origin, ac = surface_.surface.vertices[c] - origin;
    const Eigen::Vector3d normal = ab.cross(ac);
    const double size_sq = normal.squaredNorm();
    const Corners& corners = surface_.texture_corners[t];
    if (size_sq == 0) return corners[0];
    const Eigen::Vector3d p = nearest.point_m - origin;
    const double wb = p.cross(ac).dot(normal) / size_sq, wc = ab.cross(p).dot(normal) / size_sq;
    return corners[0] + wb * (corners[1] - corners[0]) + wc * (corners[2] - corners[0]);
  }

 private:
  static SurfaceMesh Part(const TexturedSurface& surface, const std::vector<uint32_t>& triangles) {
    SurfaceMesh part;
    absl::flat_hash_map<uint32_t, uint32_t> number;
    for (const uint32_t t : triangles) {
      std::array<uint32_t, 3>& corners = part.triangles.emplace_back();
      for (size_t c = 0; c < 3; ++c) {
        const uint32_t v = surface.surface.triangles[t][c];
        const auto [known, is_new] = number.try_emplace(v, static_cast<uint32_t>(part.vertices.size()));
        if (is_new) part.vertices.push_back(surface.surface.vertices[v]);
        corners[c] = known->second;
      }
    }
    return part;
  }

  const TexturedSurface& surface_;
  std::vector<uint32_t> triangles_;
  SignedDistance distance_;
};

}  // namespace

TransferredTexture TransferTexture(const TexturedSurface& surface, const TetMesh& mesh, const BoundarySurface& boundary) {
  TransferredTexture out;
  const bool has_texture = !surface.texture_corners.empty();
  std::vector<uint32_t> island_of;
  std::vector<std::vector<uint32_t>> members;
  if (has_texture) island_of = FindIslands(surface);
  for (uint32_t t = 0; t < island_of.size(); ++t) {
    members.resize(std::max<size_t>(members.size(), island_of[t] + size_t{1}));
    members[island_of[t]].push_back(t);
  }
  std::vector<std::optional<Island>> islands(members.size());
  const SignedDistance whole(surface.surface);
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, Eigen::Vector2d> known;  // by island and vertex
  for (const auto& triangle : boundary.triangles) {
    std::array<uint32_t, 3> vertices{};
    Eigen::Vector3d middle = Eigen::Vector3d::Zero();
    for (size_t c = 0; c < 3; ++c) {
      vertices[c] = boundary.vertices[triangle[c]];
      middle += mesh.vertices[vertices[c]] / 3;
    }
    const uint32_t nearest = whole.NearestTo(middle).triangle;
    if (!surface.triangle_materials.empty()) out.materials.push_back(surface.triangle_materials[nearest]);
    if (!has_texture) continue;
    const uint32_t number = island_of[nearest];
    if (!islands[number]) islands[number].emplace(surface, members[number]);
    Corners& corners = out.corners.emplace_back();
    for (size_t c = 0; c < 3; ++c) {
      const auto [entry, is_new] = known.try_emplace({number, vertices[c]}, Eigen::Vector2d());
      if (is_new) entry->second = islands[number]->At(mesh.vertices[vertices[c]]);
      corners[c] = entry->second;
    }
  }
  return out;
}

}  // namespace palpate::sim
