#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/mesh/generators.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/topology/closed_mesh.h"

// Meshes, brute-force checks and random numbers that the tests of this folder share.
namespace palpate::sim {

/// Reaches into a mesh to break it.
class ClosedMeshPeer {
 public:
  static auto& Vertices(ClosedMesh& mesh) { return mesh.vertices_; }
  static auto& Tets(ClosedMesh& mesh) { return mesh.tets_; }
  static auto& Triangles(ClosedMesh& mesh) { return mesh.triangles_; }
  static auto& Surfaces(ClosedMesh& mesh) { return mesh.surface_components_; }
};

inline ClosedMesh MustBuild(const TetMesh& mesh) {
  auto closed = ClosedMesh::Build(mesh);
  EXPECT_TRUE(closed.ok()) << closed.status();
  return *std::move(closed);
}

/// One positive tet: the corner of the unit cube.
inline TetMesh UnitTetMesh() { return {{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, {{0, 1, 2, 3}}}; }

/// A mesh that a generator makes of valid arguments.
inline TetMesh Made(absl::StatusOr<TetMesh> mesh) {
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *std::move(mesh);
}

inline TetMesh Cube(uint32_t nodes_per_side) { return Made(BoxMesh({nodes_per_side, nodes_per_side, nodes_per_side}, {0.1, 0.1, 0.1})); }

/// n x n x 1 cells with the middle m x m cells left out, n - m even: a square ring of genus 1.
inline TetMesh RingOfCells(uint32_t n, uint32_t m, uint32_t layers = 1) {
  const TetMesh slab = Made(BoxMesh({n + 1, n + 1, layers + 1}, {0.1, 0.1, 0.1 * layers / n}));
  TetMesh ring;
  std::vector<uint32_t> index(slab.vertices.size(), UINT32_MAX);
  const double half = 0.05 * m / n;
  for (const auto& tet : slab.tets) {
    Eigen::Vector3d centre = Eigen::Vector3d::Zero();
    for (const uint32_t v : tet) centre += slab.vertices[v] / 4;
    if (std::max(std::abs(centre.x()), std::abs(centre.y())) < half) continue;
    std::array<uint32_t, 4> kept;
    for (size_t c = 0; c < 4; ++c) {
      if (index[tet[c]] == UINT32_MAX) {
        index[tet[c]] = static_cast<uint32_t>(ring.vertices.size());
        ring.vertices.push_back(slab.vertices[tet[c]]);
      }
      kept[c] = index[tet[c]];
    }
    ring.tets.push_back(kept);
  }
  return ring;
}

/// Whether the boundary of a set of tets is a manifold, by counting: each edge of it has two triangles, and the triangles at each vertex
/// are one fan. Works on indices alone, apart from any structure under test.
inline bool IsSurfaceManifold(const std::vector<std::array<uint32_t, 4>>& tets) {
  std::vector<std::array<uint32_t, 3>> faces;
  for (const auto& t : tets) {
    for (size_t skip = 0; skip < 4; ++skip) {
      std::array<uint32_t, 3> face;
      for (size_t c = 0, k = 0; c < 4; ++c) {
        if (c != skip) face[k++] = t[c];
      }
      std::sort(face.begin(), face.end());
      faces.push_back(face);
    }
  }
  std::sort(faces.begin(), faces.end());
  std::vector<std::array<uint32_t, 3>> surface;
  for (size_t i = 0; i < faces.size();) {
    size_t end = i + 1;
    while (end < faces.size() && faces[end] == faces[i]) ++end;
    if (end - i > 2) return false;
    if (end - i == 1) surface.push_back(faces[i]);
    i = end;
  }
  // (vertex, rim edge of its fan): one fan means that the rim edges form one closed chain.
  std::vector<std::array<uint32_t, 3>> rims;
  for (const auto& f : surface) {
    rims.push_back({f[0], f[1], f[2]});
    rims.push_back({f[1], f[0], f[2]});
    rims.push_back({f[2], f[0], f[1]});
  }
  std::sort(rims.begin(), rims.end());
  for (size_t i = 0; i < rims.size();) {
    size_t end = i;
    while (end < rims.size() && rims[end][0] == rims[i][0]) ++end;
    std::vector<bool> used(end - i, false);
    const uint32_t start = rims[i][1];
    uint32_t at = start;
    size_t steps = 0;
    do {
      size_t next = SIZE_MAX;
      size_t degree = 0;
      for (size_t k = i; k < end; ++k) {
        if (rims[k][1] != at && rims[k][2] != at) continue;
        ++degree;
        if (!used[k - i]) next = k;
      }
      if (degree != 2 || next == SIZE_MAX) return false;
      used[next - i] = true;
      at = rims[next][1] == at ? rims[next][2] : rims[next][1];
      ++steps;
    } while (at != start);
    if (steps != end - i) return false;
    i = end;
  }
  return true;
}

/// The tets of a mesh by vertex slots.
inline std::vector<std::array<uint32_t, 4>> TetsOf(const ClosedMesh& mesh) {
  std::vector<std::array<uint32_t, 4>> tets;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (mesh.IsTet(t)) tets.push_back(mesh.TetVertices(t));
  }
  return tets;
}

inline double TotalVolume(const ClosedMesh& mesh) {
  double volume_m3 = 0;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (mesh.IsTet(t)) volume_m3 += mesh.RestVolume(t);
  }
  return volume_m3;
}

/// Small random numbers that are the same everywhere (std distributions are not).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2862933555777941757ULL + 3037000493ULL) {}
  uint64_t Bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(Bits() >> 16) % bound; }
  double Real() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace palpate::sim
