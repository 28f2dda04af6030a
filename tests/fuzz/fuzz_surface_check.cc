#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "sim/mesh/surface_check.h"

// The input: a count, that many vertices on a coarse grid of bytes, then triangles as bytes. Coplanar, touching and flat cases are common
// on a grid. A surface that passes must still pass turned about its diagonal and with its triangles in reverse, and must fail turned inside
// out.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace palpate::sim;
  if (size < 1) return 0;
  const size_t vertex_count = std::min<size_t>(data[0] % 32, (size - 1) / 3);
  SurfaceMesh surface;
  for (size_t v = 0; v < vertex_count; ++v) {
    const uint8_t* const p = data + 1 + 3 * v;
    surface.vertices.emplace_back(0.1 * p[0], 0.1 * p[1], 0.1 * p[2]);
  }
  for (size_t at = 1 + 3 * vertex_count; at + 3 <= size; at += 3) surface.triangles.push_back({data[at], data[at + 1], data[at + 2]});

  const bool is_good = CheckClosedSurface(surface).ok();
  SurfaceMesh turned = surface;
  for (auto& v : turned.vertices) v = Eigen::Vector3d(v.y(), v.z(), v.x());
  std::reverse(turned.triangles.begin(), turned.triangles.end());
  if (CheckClosedSurface(turned).ok() != is_good) {
    std::fprintf(stderr, "violated: the verdict belongs to the shape\n");
    std::abort();
  }
  if (!is_good) return 0;
  for (auto& t : surface.triangles) std::swap(t[1], t[2]);
  if (CheckClosedSurface(surface).ok()) {
    std::fprintf(stderr, "violated: a good surface turned inside out is inward\n");
    std::abort();
  }
  return 0;
}
