// Surfaces for the tests of proximity and intersections, and the probe that runs closest.clh on lists of elements.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
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
  std::vector<uint8_t> keeps_shape;  // [body] or empty: see SurfaceTopology::LeaveOutFlatEdges

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
    absl::StatusOr<SurfaceTopology> topology = SurfaceTopology::Build(static_cast<uint32_t>(positions.size()), list);
    if (topology.ok()) topology->LeaveOutFlatEdges(positions, keeps_shape);
    return topology;
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

/// Surface of a box of `half` its size about `center`, turned by `rotation` (x, y, z, w, any length), each face of n x n squares cut in
/// two. 12 n of its edges are the box's own, 6 (3 n n - 2 n) lie inside its faces.
inline void AddBox(Model* model, uint32_t n, std::array<double, 3> half, std::array<double, 4> rotation, std::array<double, 3> center) {
  const double length =
      std::sqrt(rotation[0] * rotation[0] + rotation[1] * rotation[1] + rotation[2] * rotation[2] + rotation[3] * rotation[3]);
  const auto [x, y, z, w] = rotation;
  const double s = 2 / (length * length);
  const std::array<std::array<double, 3>, 3> rows = {{{1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)},
                                                      {s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)},
                                                      {s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)}}};
  std::vector<Float4> vertices;
  std::map<std::array<uint32_t, 3>, uint32_t> numbers;
  const auto vertex = [&](const std::array<uint32_t, 3>& at) {
    const auto [known, is_new] = numbers.emplace(at, static_cast<uint32_t>(vertices.size()));
    if (is_new) {
      std::array<double, 3> p = center;
      for (size_t row = 0; row < 3; ++row) {
        for (size_t k = 0; k < 3; ++k) p[row] += rows[row][k] * half[k] * (2.0 * at[k] / n - 1);
      }
      vertices.push_back(Point(p[0], p[1], p[2]));
    }
    return known->second;
  };
  Triangles triangles;
  for (size_t axis = 0; axis < 3; ++axis) {
    for (const uint32_t side : {0U, n}) {
      for (uint32_t i = 0; i < n; ++i) {
        for (uint32_t j = 0; j < n; ++j) {
          const auto corner = [&](uint32_t di, uint32_t dj) {
            std::array<uint32_t, 3> at{};
            at[axis] = side;
            at[(axis + 1) % 3] = i + di;
            at[(axis + 2) % 3] = j + dj;
            return vertex(at);
          };
          const std::array<uint32_t, 4> square = {corner(0, 0), corner(1, 0), corner(1, 1), corner(0, 1)};
          if (side == 0) {
            triangles.push_back({square[0], square[2], square[1]});
            triangles.push_back({square[0], square[3], square[2]});
          } else {
            triangles.push_back({square[0], square[1], square[2]});
            triangles.push_back({square[0], square[2], square[3]});
          }
        }
      }
    }
  }
  model->Add(vertices, std::move(triangles), false);
}

/// `count` boxes, turned at random, in a cube of half the side `spread`.
inline void AddRandomBoxes(Model* model, uint32_t count, double spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> place(-spread, spread);
  std::uniform_real_distribution<double> half(0.05, 0.3);
  for (uint32_t b = 0; b < count; ++b) {
    const std::array<double, 3> size = {half(random), half(random), half(random)};
    const std::array<double, 4> rotation = {normal(random), normal(random), normal(random), normal(random)};
    const std::array<double, 3> center = {place(random), place(random), place(random)};
    AddBox(model, 1 + b % 3, size, rotation, center);
  }
}

/// Whether an edge of one body pierces a triangle of another one, in double.
inline bool BodiesCross(const Model& model) {
  using V = std::array<double, 3>;
  const auto at = [&](uint32_t v) { return V{model.positions[v].x, model.positions[v].y, model.positions[v].z}; };
  // Six times the volume of a tet.
  const auto volume = [](const V& a, const V& b, const V& c, const V& d) {
    std::array<V, 3> e{};
    for (size_t k = 0; k < 3; ++k) {
      e[0][k] = b[k] - a[k];
      e[1][k] = c[k] - a[k];
      e[2][k] = d[k] - a[k];
    }
    return e[0][0] * (e[1][1] * e[2][2] - e[1][2] * e[2][1]) - e[0][1] * (e[1][0] * e[2][2] - e[1][2] * e[2][0]) +
           e[0][2] * (e[1][0] * e[2][1] - e[1][1] * e[2][0]);
  };
  const auto pierces = [&](const V& p, const V& q, const std::array<uint32_t, 3>& t) {
    const V a = at(t[0]), b = at(t[1]), c = at(t[2]);
    if (volume(a, b, c, p) * volume(a, b, c, q) > 0) return false;
    const double ab = volume(p, q, a, b), bc = volume(p, q, b, c), ca = volume(p, q, c, a);
    return (ab >= 0 && bc >= 0 && ca >= 0) || (ab <= 0 && bc <= 0 && ca <= 0);
  };
  for (size_t body = 0; body < model.bodies.size(); ++body) {
    for (size_t other = 0; other < model.bodies.size(); ++other) {
      if (body == other) continue;
      for (const auto& s : model.bodies[body]) {
        for (size_t k = 0; k < 3; ++k) {
          for (const auto& t : model.bodies[other]) {
            if (pierces(at(s[k]), at(s[(k + 1) % 3]), t)) return true;
          }
        }
      }
    }
  }
  return false;
}

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
