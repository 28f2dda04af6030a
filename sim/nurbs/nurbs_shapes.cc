#include "sim/nurbs/nurbs_shapes.h"

#include <array>
#include <numbers>

namespace palpate::sim {
namespace {

using Eigen::Vector2d;
using Eigen::Vector3d;

constexpr double kQuarterWeight = 0.5 * std::numbers::sqrt2;  // cos 45 degrees

// A piece of the outline in the half plane (distance from the axis, z), the solid to its left: a line, or a quarter of a circle.
struct Outline {
  std::vector<Vector2d> points;  // two, or three of which the middle one is where the tangents at the ends meet
};

std::vector<double> BezierKnots(int degree) {
  std::vector<double> knots(static_cast<size_t>(2 * degree + 2), 0.0);
  for (size_t i = knots.size() / 2; i < knots.size(); ++i) knots[i] = 1;
  return knots;
}

// Four quarters of a revolution of each piece; u goes around the axis, v along the piece.
std::vector<NurbsSurface> Revolve(const std::vector<Outline>& pieces) {
  constexpr std::array<std::array<int, 2>, 5> kCorners = {{{1, 0}, {0, 1}, {-1, 0}, {0, -1}, {1, 0}}};
  std::vector<NurbsSurface> patches;
  for (const Outline& piece : pieces) {
    const int degree = static_cast<int>(piece.points.size()) - 1;
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      const Vector2d from(kCorners[quarter][0], kCorners[quarter][1]);
      const Vector2d to(kCorners[quarter + 1][0], kCorners[quarter + 1][1]);
      NurbsDescription patch{
          .degree_u = 2, .degree_v = degree, .knots_u = BezierKnots(2), .knots_v = BezierKnots(degree), .control_m = {}, .weights = {}};
      for (int i = 0; i < 3; ++i) {
        const Vector2d around = i == 0 ? from : i == 1 ? Vector2d(from + to) : to;
        for (int j = 0; j <= degree; ++j) {
          const Vector2d& at = piece.points[static_cast<size_t>(j)];
          patch.control_m.emplace_back(at.x() * around.x(), at.x() * around.y(), at.y());
          patch.weights.push_back((i == 1 ? kQuarterWeight : 1.0) * (degree == 2 && j == 1 ? kQuarterWeight : 1.0));
        }
      }
      patches.push_back(*NurbsSurface::Create(patch));
    }
  }
  return patches;
}

}  // namespace

std::vector<NurbsSurface> NurbsSphere(double radius_m) {
  const double r = radius_m;
  return Revolve({{{{0, -r}, {r, -r}, {r, 0}}}, {{{r, 0}, {r, r}, {0, r}}}});
}

std::vector<NurbsSurface> NurbsTorus(double radius_m, double tube_radius_m) {
  const double a = radius_m - tube_radius_m;
  const double b = radius_m + tube_radius_m;
  const double m = radius_m;
  const double r = tube_radius_m;
  return Revolve({{{{b, 0}, {b, r}, {m, r}}}, {{{m, r}, {a, r}, {a, 0}}}, {{{a, 0}, {a, -r}, {m, -r}}}, {{{m, -r}, {b, -r}, {b, 0}}}});
}

std::vector<NurbsSurface> NurbsCylinder(double radius_m, double height_m) {
  return Revolve({{{{0, 0}, {radius_m, 0}}}, {{{radius_m, 0}, {radius_m, height_m}}}, {{{radius_m, height_m}, {0, height_m}}}});
}

std::vector<NurbsSurface> NurbsCone(double radius_m, double height_m) {
  return Revolve({{{{0, 0}, {radius_m, 0}}}, {{{radius_m, 0}, {0, height_m}}}});
}

}  // namespace palpate::sim
