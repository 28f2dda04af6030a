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

/// A sheet as TrimmedSheet, cut in two along a curve of degree 2 from (`low`, 0) by (`by`, 0.5) to (`high`, 1): patch 0 is what lies at
/// lower u, with `spans`, patch 1 the rest, with `other_spans`. Their edge has number 1.
inline sim::NurbsObjectDescription SplitSheet(int degree, size_t spans, size_t other_spans, double side_m, double low, double by,
                                              double high) {
  const sim::NurbsTrimDescription cut{{2, {0, 0, 0, 1, 1, 1}, {{low, 0}, {by, 0.5}, {high, 1}}, {}}, false, 1};
  sim::NurbsTrimDescription back = cut;
  back.is_reversed = true;
  const auto line = [](const Eigen::Vector2d& a, const Eigen::Vector2d& b) {
    return sim::NurbsTrimDescription{{1, {0, 0, 1, 1}, {a, b}, {}}, false, 0};
  };
  sim::NurbsObjectDescription out =
      SheetDescription(degree, spans, side_m, {{line({0, 0}, {low, 0}), cut, line({high, 1}, {0, 1}), line({0, 1}, {0, 0})}});
  out.patches.push_back(
      SheetDescription(degree, other_spans, side_m, {{line({low, 0}, {1, 0}), line({1, 0}, {1, 1}), line({1, 1}, {high, 1}), back}})
          .patches[0]);
  return out;
}

/// A disc of `radius` (of the sheet's side) cut out of a sheet, in two: patch 0 is a ring of `spans`, patch 1 what lies inside of `inner`,
/// of `inner_spans`.
inline sim::NurbsObjectDescription RingAndDisc(int degree, size_t spans, size_t inner_spans, double radius, double inner) {
  sim::NurbsObjectDescription out =
      SheetDescription(degree, spans, 1, {{CircleTrim({0.5, 0.5}, radius)}, {CircleTrim({0.5, 0.5}, inner, true, 1)}});
  out.patches.push_back(SheetDescription(degree, inner_spans, 1, {{CircleTrim({0.5, 0.5}, inner, false, 1)}}).patches[0]);
  return out;
}

}  // namespace palpate::test
