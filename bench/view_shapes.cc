#include "bench/view_shapes.h"

#include <cmath>
#include <map>
#include <numbers>

namespace palpate::bench {

ViewShape MakeBall(uint32_t n) {
  ViewShape shape;
  std::map<std::array<int, 3>, uint32_t> known;
  const int side = static_cast<int>(n);
  const auto vertex = [&](const std::array<int, 3>& place) {
    const auto [found, is_new] = known.try_emplace(place, static_cast<uint32_t>(shape.points.size()));
    if (is_new) {
      std::array<double, 3> p;
      for (size_t k = 0; k < 3; ++k) p[k] = std::tan(std::numbers::pi / 4 * (2.0 * place[k] / side - 1));
      const double length = std::hypot(p[0], p[1], p[2]);
      shape.points.push_back({p[0] / length, p[1] / length, p[2] / length});
    }
    return found->second;
  };
  for (size_t axis = 0; axis < 3; ++axis) {
    for (const int face : {0, side}) {
      for (int i = 0; i < side; ++i) {
        for (int j = 0; j < side; ++j) {
          const auto corner = [&](int a, int b) {
            std::array<int, 3> place = {};
            place[axis] = face;
            place[(axis + 1) % 3] = i + a;
            place[(axis + 2) % 3] = j + b;
            return vertex(place);
          };
          const uint32_t v00 = corner(0, 0), v10 = corner(1, 0), v01 = corner(0, 1), v11 = corner(1, 1);
          const bool is_upper = face == side;
          shape.triangles.push_back({v00, is_upper ? v10 : v11, is_upper ? v11 : v10});
          shape.triangles.push_back({v00, is_upper ? v11 : v01, is_upper ? v01 : v11});
        }
      }
    }
  }
  return shape;
}

ViewShape MakeSheet(uint32_t n, uint32_t m, bool is_sewn, bool is_sewn_twice) {
  ViewShape shape;
  const uint32_t across = is_sewn ? n : n + 1, along = is_sewn_twice ? m : m + 1;
  for (uint32_t j = 0; j < along; ++j) {
    for (uint32_t i = 0; i < across; ++i) shape.points.push_back({static_cast<double>(i) / n, static_cast<double>(j) / m, 0});
  }
  for (uint32_t j = 0; j < m; ++j) {
    for (uint32_t i = 0; i < n; ++i) {
      const auto at = [&](uint32_t a, uint32_t b) { return b % along * across + a % across; };
      shape.triangles.push_back({at(i, j), at(i + 1, j), at(i + 1, j + 1)});
      shape.triangles.push_back({at(i, j), at(i + 1, j + 1), at(i, j + 1)});
    }
  }
  return shape;
}

}  // namespace palpate::bench
