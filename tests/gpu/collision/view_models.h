// Moving surfaces for the tests of the view certificate.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <random>
#include <utility>
#include <vector>

#include "gpu/collision/surface_topology.h"
#include "tests/gpu/collision/surface_models.h"

namespace palpate::gpu {

using Point3 = std::array<double, 3>;

/// A surface at the start and at the end of a step.
struct MovingSurface {
  Model model;  ///< positions: at the start
  std::vector<Float4> ends;

  SurfaceTopology Topology() const {
    auto topology = model.Topology();
    EXPECT_TRUE(topology.ok()) << topology.status();
    return *std::move(topology);
  }
  /// Each vertex goes on to `map` of where it is.
  template <typename Map>
  void Move(Map map) {
    ends.clear();
    for (const Float4& p : model.positions) {
      const Point3 q = map(Point3{p.x, p.y, p.z});
      ends.push_back(Point(q[0], q[1], q[2]));
    }
  }
  /// Puts each vertex where `map` of it is.
  template <typename Map>
  void Shape(Map map) {
    for (Float4& p : model.positions) {
      const Point3 q = map(Point3{p.x, p.y, p.z});
      p = Point(q[0], q[1], q[2]);
    }
  }
};

/// The unit sphere as 6 squares of n x n cells, 12 n^2 triangles that run counter-clockwise seen from outside.
inline void AddBall(Model* model, uint32_t n, bool self_collision) {
  std::map<std::array<int, 3>, uint32_t> known;
  std::vector<Float4> vertices;
  Triangles triangles;
  const int side = static_cast<int>(n);
  const auto vertex = [&](std::array<int, 3> at) {
    const auto [found, is_new] = known.try_emplace(at, static_cast<uint32_t>(vertices.size()));
    if (is_new) {
      Point3 p;
      for (size_t k = 0; k < 3; ++k) p[k] = std::tan(std::numbers::pi / 4 * (2.0 * at[k] / side - 1));
      const double length = std::sqrt(p[0] * p[0] + p[1] * p[1] + p[2] * p[2]);
      vertices.push_back(Point(p[0] / length, p[1] / length, p[2] / length));
    }
    return found->second;
  };
  for (size_t axis = 0; axis < 3; ++axis) {
    for (const int face : {0, side}) {
      for (int i = 0; i < side; ++i) {
        for (int j = 0; j < side; ++j) {
          const auto corner = [&](int a, int b) {
            std::array<int, 3> at = {};
            at[axis] = face;
            at[(axis + 1) % 3] = i + a;
            at[(axis + 2) % 3] = j + b;
            return vertex(at);
          };
          const uint32_t v00 = corner(0, 0), v10 = corner(1, 0), v01 = corner(0, 1), v11 = corner(1, 1);
          if (face == side) {
            triangles.push_back({v00, v10, v11});
            triangles.push_back({v00, v11, v01});
          } else {
            triangles.push_back({v00, v11, v10});
            triangles.push_back({v00, v01, v11});
          }
        }
      }
    }
  }
  model->Add(vertices, triangles, self_collision);
}

/// Smooth displacements: `count` waves of random direction and phase, each of up to `amplitude`.
class Waves {
 public:
  Waves(uint64_t seed, int count, double amplitude, double frequency) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(0, 2 * std::numbers::pi);
    for (int i = 0; i < count; ++i) {
      Wave w;
      for (size_t k = 0; k < 3; ++k) {
        w.along[k] = frequency * normal(random);
        w.move[k] = amplitude * normal(random);
      }
      w.phase = uniform(random);
      waves_.push_back(w);
    }
  }
  Point3 operator()(const Point3& p) const {
    Point3 q = p;
    for (const Wave& w : waves_) {
      const double s = std::sin(w.along[0] * p[0] + w.along[1] * p[1] + w.along[2] * p[2] + w.phase);
      for (size_t k = 0; k < 3; ++k) q[k] += s * w.move[k];
    }
    return q;
  }

 private:
  struct Wave {
    Point3 along, move;
    double phase = 0;
  };
  std::vector<Wave> waves_;
};

inline ViewPrimitive ViewPoint(float x, float y, float z) {
  ViewPrimitive primitive = {};
  primitive.start = primitive.end = {x, y, z, 0};
  return primitive;
}

inline ViewPrimitive ViewSegment(Float4 from, Float4 to) {
  ViewPrimitive primitive = {};
  primitive.start = primitive.end = from;
  primitive.axis = {to.x - from.x, to.y - from.y, to.z - from.z, 0};
  return primitive;
}

}  // namespace palpate::gpu
