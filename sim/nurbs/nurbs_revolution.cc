#include "sim/nurbs/nurbs_revolution.h"

#include <array>
#include <numbers>

namespace palpate::sim {
namespace {

using Eigen::Vector2d;

constexpr double kQuarterWeight = 0.5 * std::numbers::sqrt2;  // cos 45 degrees

NurbsCurve<2> Line(const Vector2d& from, const Vector2d& to) { return *NurbsCurve<2>::Create({1, {0, 0, 1, 1}, {from, to}, {}}); }

/// Of degree 3, with knots at equal distances.
NurbsCurve<2> Spline(const std::vector<Vector2d>& points) {
  NurbsCurveDescription<2> curve{3, {0, 0, 0, 0}, points, {}};
  for (size_t i = 4; i < points.size(); ++i) curve.knots.push_back(static_cast<double>(i - 3));
  curve.knots.insert(curve.knots.end(), 4, static_cast<double>(points.size() - 3));
  return *NurbsCurve<2>::Create(curve);
}

}  // namespace

std::vector<NurbsSurface> NurbsRevolution(std::span<const NurbsCurve<2>> outline) {
  constexpr std::array<std::array<int, 2>, 5> kCorners = {{{1, 0}, {0, 1}, {-1, 0}, {0, -1}, {1, 0}}};
  std::vector<NurbsSurface> patches;
  for (const NurbsCurve<2>& curve : outline) {
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      const Vector2d from(kCorners[quarter][0], kCorners[quarter][1]);
      const Vector2d to(kCorners[quarter + 1][0], kCorners[quarter + 1][1]);
      NurbsDescription patch{.degree_u = 2,
                             .degree_v = curve.degree(),
                             .knots_u = {0, 0, 0, 1, 1, 1},
                             .knots_v = {curve.knots().begin(), curve.knots().end()},
                             .control_m = {},
                             .weights = {}};
      for (int i = 0; i < 3; ++i) {
        const Vector2d around = i == 0 ? from : i == 1 ? Vector2d(from + to) : to;
        for (size_t j = 0; j < curve.count(); ++j) {
          const Vector2d at = curve.control(j);
          patch.control_m.emplace_back(at.x() * around.x(), at.x() * around.y(), at.y());
          patch.weights.push_back((i == 1 ? kQuarterWeight : 1.0) * curve.weighted_control()[j].z());
        }
      }
      patches.push_back(*NurbsSurface::Create(patch));
    }
  }
  return patches;
}

std::vector<NurbsSurface> NurbsVase(double radius_m, double height_m) {
  const auto at = [&](double r, double z) { return Vector2d(r * radius_m, z * height_m); };
  constexpr double kFoot = 0.55, kLip = 0.62, kFloor = 0.05;
  const double wall = 1.0 / 12;
  const double lip_m = wall / 2 * radius_m;  // radius of the round lip
  const double top_m = height_m - lip_m;
  const Vector2d outer_end(kLip * radius_m, top_m);
  const Vector2d inner_end((kLip - wall) * radius_m, top_m);
  std::vector<NurbsCurve<2>> outline;
  outline.push_back(Line(at(0, 0), at(kFoot, 0)));
  outline.push_back(Spline({at(kFoot, 0), at(kFoot + 0.25, 0.08), at(1.12, 0.3), at(1.06, 0.55), at(0.42, 0.75), at(0.44, 0.88),
                            Vector2d(outer_end.x(), top_m - 0.5 * lip_m), outer_end}));
  // Half a circle, in two quarters that meet on top.
  const Vector2d peak((kLip - wall / 2) * radius_m, height_m);
  const auto quarter = [](const Vector2d& from, const Vector2d& corner, const Vector2d& to) {
    return *NurbsCurve<2>::Create({2, {0, 0, 0, 1, 1, 1}, {from, corner, to}, {1, kQuarterWeight, 1}});
  };
  outline.push_back(quarter(outer_end, {outer_end.x(), height_m}, peak));
  outline.push_back(quarter(peak, {inner_end.x(), height_m}, inner_end));
  outline.push_back(Spline({inner_end, Vector2d(inner_end.x(), top_m - 0.5 * lip_m), at(0.44 - wall, 0.88), at(0.42 - wall, 0.75),
                            at(1.06 - wall, 0.55), at(1.12 - wall, 0.3), at(kFoot, kFloor), at(0.2, kFloor), at(0, kFloor)}));
  return NurbsRevolution(outline);
}

}  // namespace palpate::sim
