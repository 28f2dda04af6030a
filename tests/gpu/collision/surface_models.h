// Surfaces for the tests of proximity and intersections, and the probe that runs closest.clh on lists of elements.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpu/collision/surface_topology.h"
#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource proximity_probe;
}

using Triangles = std::vector<std::array<uint32_t, 3>>;

/// Vertices and bodies of a scene that grows body by body.
struct Model {
  std::vector<Float4> positions;
  std::vector<Triangles> bodies;
  std::vector<bool> self;

  void Add(const std::vector<Float4>& vertices, Triangles triangles, bool self_collision) {
    const auto first = static_cast<uint32_t>(positions.size());
    positions.insert(positions.end(), vertices.begin(), vertices.end());
    for (auto& t : triangles) {
      for (uint32_t& v : t) v += first;
    }
    bodies.push_back(std::move(triangles));
    self.push_back(self_collision);
  }

  absl::StatusOr<SurfaceTopology> Topology() const {
    std::vector<SurfaceBody> list;
    for (uint32_t b = 0; b < bodies.size(); ++b) list.push_back({bodies[b], b, self[b]});
    return SurfaceTopology::Build(static_cast<uint32_t>(positions.size()), list);
  }
};

/// `count` triangles of the given size with corners of their own, in a unit cube times `spread`.
inline void AddSoup(Model* model, uint32_t count, double size, double spread, uint64_t seed, bool self_collision) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<Float4> vertices;
  Triangles triangles;
  for (uint32_t i = 0; i < count; ++i) {
    const std::array<double, 3> centre = {spread * uniform(random), spread * uniform(random), spread * uniform(random)};
    for (int k = 0; k < 3; ++k) {
      vertices.push_back({static_cast<float>(centre[0] + size * uniform(random)), static_cast<float>(centre[1] + size * uniform(random)),
                          static_cast<float>(centre[2] + size * uniform(random)), 0});
    }
    triangles.push_back({3 * i, 3 * i + 1, 3 * i + 2});
  }
  model->Add(vertices, triangles, self_collision);
}

/// Grid of 2 n m triangles over [0, 1] x [0, 1], bent by `map` from (u, v) to a point.
template <typename Map>
void AddSheet(Model* model, uint32_t n, uint32_t m, Map map, bool self_collision) {
  std::vector<Float4> vertices;
  Triangles triangles;
  for (uint32_t j = 0; j <= m; ++j) {
    for (uint32_t i = 0; i <= n; ++i) vertices.push_back(map(static_cast<double>(i) / n, static_cast<double>(j) / m));
  }
  for (uint32_t j = 0; j < m; ++j) {
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t v = j * (n + 1) + i;
      triangles.push_back({v, v + 1, v + n + 2});
      triangles.push_back({v, v + n + 2, v + n + 1});
    }
  }
  model->Add(vertices, triangles, self_collision);
}

inline Float4 Point(double x, double y, double z) { return {static_cast<float>(x), static_cast<float>(y), static_cast<float>(z), 0}; }

/// Closed tube around a closed curve `centre(u)`, u in [0, 1), with n rings of m vertices: 2 n m triangles.
template <typename Curve>
void AddTube(Model* model, uint32_t n, uint32_t m, double radius, Curve centre, bool self_collision) {
  using V = std::array<double, 3>;
  const auto sub = [](V a, V b) { return V{a[0] - b[0], a[1] - b[1], a[2] - b[2]}; };
  const auto cross = [](V a, V b) { return V{a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; };
  const auto unit = [](V a) {
    const double l = std::sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2]);
    return V{a[0] / l, a[1] / l, a[2] / l};
  };
  std::vector<Float4> vertices;
  Triangles triangles;
  for (uint32_t i = 0; i < n; ++i) {
    const double u = static_cast<double>(i) / n;
    const V c = centre(u);
    const V tangent = unit(sub(centre(u + 1e-4), centre(u - 1e-4)));
    const V side = unit(cross(tangent, V{0.02, 0.01, 1}));
    const V up = cross(side, tangent);
    for (uint32_t j = 0; j < m; ++j) {
      const double a = 2 * std::numbers::pi * j / m;
      const double s = radius * std::cos(a);
      const double t = radius * std::sin(a);
      vertices.push_back(Point(c[0] + s * side[0] + t * up[0], c[1] + s * side[1] + t * up[1], c[2] + s * side[2] + t * up[2]));
    }
  }
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t j = 0; j < m; ++j) {
      const uint32_t a = i * m + j;
      const uint32_t b = i * m + (j + 1) % m;
      const uint32_t c = (i + 1) % n * m + j;
      const uint32_t d = (i + 1) % n * m + (j + 1) % m;
      triangles.push_back({a, b, d});
      triangles.push_back({a, d, c});
    }
  }
  model->Add(vertices, triangles, self_collision);
}

inline void AddTorus(Model* model, uint32_t n, uint32_t m, double ring, double tube, std::array<double, 3> at, bool self_collision) {
  AddTube(
      model, n, m, tube,
      [=](double u) {
        const double a = 2 * std::numbers::pi * u;
        return std::array<double, 3>{at[0] + ring * std::cos(a), at[1] + ring * std::sin(a), at[2]};
      },
      self_collision);
}

inline void AddTrefoil(Model* model, uint32_t n, uint32_t m, double tube, bool self_collision) {
  AddTube(
      model, n, m, tube,
      [](double u) {
        const double a = 2 * std::numbers::pi * u;
        return std::array<double, 3>{std::sin(a) + 2 * std::sin(2 * a), std::cos(a) - 2 * std::cos(2 * a), -std::sin(3 * a)};
      },
      self_collision);
}

/// What the probe found for one pair.
struct ProbeResult {
  Float4 offset;  ///< w: squared distance
  float s = 0, t = 0;
  bool is_interior = false;
};

class SurfaceTest : public test::DeviceTest {
 protected:
  /// Runs closest.clh on vertex quadruples (v, t0, t1, t2) or (p0, p1, q0, q1).
  std::vector<ProbeResult> Probe(const std::vector<UInt4>& vertices, const std::vector<Float4>& positions, bool is_edge_edge, int lanes) {
    std::vector<ProbeResult> results(vertices.size());
    if (vertices.empty()) return results;
    auto kernel = context()->CreateKernel(kernels::proximity_probe, "probe_closest_elements", {{"LANES", std::to_string(lanes)}});
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (!kernel.ok()) return results;
    const auto in = Upload(vertices);
    const auto points = Upload(positions);
    const auto out = Allocate<Float4>(2 * vertices.size());
    const auto count = static_cast<uint32_t>(vertices.size());
    PALPATE_EXPECT_OK(queue().Launch(*kernel, {(vertices.size() + static_cast<size_t>(lanes) - 1) / static_cast<size_t>(lanes), 0},
                                     Arg("count", count), Arg("is_edge_edge", uint32_t{is_edge_edge}), Arg("vertices", in),
                                     Arg("positions", points), Arg("results", out)));
    const std::vector<Float4> values = Download(out);
    for (size_t i = 0; i < vertices.size(); ++i) {
      results[i] = {values[2 * i], values[2 * i + 1].x, values[2 * i + 1].y, values[2 * i + 1].z != 0};
    }
    return results;
  }
};

}  // namespace palpate::gpu
