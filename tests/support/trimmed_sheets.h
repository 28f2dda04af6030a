#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "sim/nurbs/nurbs_object.h"

/// Flat sheets that loops cut, with closed forms.
namespace palpate::test {

/// A circle in (u, v) as four quarters of degree 2, counter-clockwise from +u; reversed it is a hole.
inline sim::NurbsTrimDescription CircleTrim(const Eigen::Vector2d& center, double radius, bool is_reversed = false, uint32_t edge = 0) {
  sim::NurbsTrimDescription trim;
  trim.curve.degree = 2;
  trim.curve.knots = {0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4};
  constexpr int kX[] = {1, 1, 0, -1, -1, -1, 0, 1, 1};
  constexpr int kY[] = {0, 1, 1, 1, 0, -1, -1, -1, 0};
  for (int i = 0; i < 9; ++i) {
    trim.curve.control.push_back(center + radius * Eigen::Vector2d(kX[i], kY[i]));
    trim.curve.weights.push_back(i % 2 == 0 ? 1 : std::numbers::sqrt2 / 2);
  }
  trim.is_reversed = is_reversed;
  trim.edge = edge;
  return trim;
}

/// Straight from each of these points of (u, v) to the next, and back to the first.
inline std::vector<sim::NurbsTrimDescription> PolygonTrims(const std::vector<Eigen::Vector2d>& points) {
  std::vector<sim::NurbsTrimDescription> out;
  for (size_t i = 0; i < points.size(); ++i) {
    out.push_back({{1, {0, 0, 1, 1}, {points[i], points[(i + 1) % points.size()]}, {}}, false, 0});
  }
  return out;
}

inline std::vector<sim::NurbsTrimDescription> WholeLoop() { return PolygonTrims({{0, 0}, {1, 0}, {1, 1}, {0, 1}}); }

/// A square of `side_m` about the origin with normal +z, x along u and y along v, both in [0, 1] and linear; `spans` between knots each
/// way.
inline sim::NurbsObjectDescription SheetDescription(int degree, size_t spans, double side_m,
                                                    std::vector<std::vector<sim::NurbsTrimDescription>> loops) {
  std::vector<double> knots(static_cast<size_t>(degree) + 1, 0.0);
  for (size_t i = 1; i < spans; ++i) knots.push_back(static_cast<double>(i) / static_cast<double>(spans));
  knots.insert(knots.end(), static_cast<size_t>(degree) + 1, 1.0);
  std::vector<double> places;  // of control points that make the parameters lengths (Greville)
  for (size_t i = 0; i + static_cast<size_t>(degree) + 1 < knots.size(); ++i) {
    double sum = 0;
    for (size_t k = 1; k <= static_cast<size_t>(degree); ++k) sum += knots[i + k];
    places.push_back(sum / degree);
  }
  sim::NurbsPatchDescription patch;
  patch.surface.degree_u = patch.surface.degree_v = degree;
  patch.surface.knots_u = patch.surface.knots_v = knots;
  for (const double u : places) {
    for (const double v : places) patch.surface.control_m.emplace_back((u - 0.5) * side_m, (v - 0.5) * side_m, 0);
  }
  patch.loops = std::move(loops);
  return {"sheet", {patch}};
}

inline sim::NurbsObject TrimmedSheet(int degree, size_t spans, double side_m, std::vector<std::vector<sim::NurbsTrimDescription>> loops) {
  const auto object = sim::NurbsObject::Create(SheetDescription(degree, spans, side_m, std::move(loops)));
  EXPECT_TRUE(object.ok()) << object.status();
  return *object;
}

}  // namespace palpate::test
