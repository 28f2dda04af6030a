#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/topology/ids.h"
#include "sim/world/body_arrays.h"

namespace palpate::sim {

/// A triangle of a surface whose texture coordinates belong to its corners.
struct ChartedTriangle {
  std::array<uint32_t, 3> vertices{};
  SurfaceZoneId zone = 0;
  TextureCorners corners{};
};

/// Shares the triangles out among charts, numbered from 0: of one zone and chart, all triangles that meet in a vertex have the same
/// coordinate there. Triangles that go on without a seam share a chart as far as that allows; triangles apart share one too. Greedy, in
/// breadth-first order across edges: few charts, not the fewest. O(triangles * charts) expected.
std::vector<uint32_t> AssignCharts(std::span<const ChartedTriangle> triangles);

}  // namespace palpate::sim
