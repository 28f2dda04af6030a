#include "sim/nurbs/nurbs_tessellation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kSamePlace = 1e-9;  // vertices nearer than that share of the object's size are one

// How far a Bezier patch is from two triangles on its corners, at most: control points from the bilinear patch on the corners, and that
// from the triangles. The surface is a mean of control points, and a mean of points of the bilinear patch lies in the tetrahedron of the
// corners.
double FarFromTriangles(const NurbsSurface& patch) {
  const size_t rows = patch.count(NurbsDirection::kU);
  const size_t columns = patch.count(NurbsDirection::kV);
  const Vector3d a = patch.control_m(0, 0);
  const Vector3d b = patch.control_m(rows - 1, 0);
  const Vector3d c = patch.control_m(rows - 1, columns - 1);
  const Vector3d d = patch.control_m(0, columns - 1);
  double farthest = 0;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      const double s = static_cast<double>(i) / static_cast<double>(rows - 1);
      const double t = static_cast<double>(j) / static_cast<double>(columns - 1);
      const Vector3d on = (1 - s) * (1 - t) * a + s * (1 - t) * b + s * t * c + (1 - s) * t * d;
      farthest = std::max(farthest, (patch.control_m(i, j) - on).norm());
    }
  }
  return farthest + 0.5 * (a + c - b - d).norm();
}

// Halves of halves until a part is flat; the most halvings that one took, at most `allowed`, and that where no parameter lies between.
int HalvingsOf(const NurbsSurface& patch, double tolerance_m, int allowed) {
  if (allowed == 0 || FarFromTriangles(patch) <= tolerance_m) return 0;
  const auto halves_of = [](const NurbsSurface& of, NurbsDirection direction) {
    const auto [first, last] = of.domain(direction);
    return of.Split(direction, 0.5 * first + 0.5 * last);
  };
  int most = 0;
  const auto halves = halves_of(patch, NurbsDirection::kU);
  if (!halves.ok()) return allowed;
  for (const NurbsSurface& half : *halves) {
    const auto quarters = halves_of(half, NurbsDirection::kV);
    if (!quarters.ok()) return allowed;
    for (const NurbsSurface& quarter : *quarters) {
      most = std::max(most, HalvingsOf(quarter, tolerance_m, allowed - 1));
      if (most + 1 == allowed) return allowed;
    }
  }
  return most + 1;
}

// Gives vertices numbers, one number to those in one place.
class Welder {
 public:
  Welder(const Vector3d& origin_m, double cell_m) : origin_m_(origin_m), cell_m_(cell_m) {}

  uint32_t NumberOf(const Vector3d& place, std::vector<Vector3d>* vertices) {
    const std::array<int64_t, 3> cell = {CellOf(place, 0), CellOf(place, 1), CellOf(place, 2)};
    for (int64_t dx = -1; dx <= 1; ++dx) {
      for (int64_t dy = -1; dy <= 1; ++dy) {
        for (int64_t dz = -1; dz <= 1; ++dz) {
          const auto found = numbers_.find({cell[0] + dx, cell[1] + dy, cell[2] + dz});
          if (found != numbers_.end() && ((*vertices)[found->second] - place).norm() <= cell_m_) return found->second;
        }
      }
    }
    const auto number = static_cast<uint32_t>(vertices->size());
    vertices->push_back(place);
    numbers_.emplace(cell, number);
    return number;
  }

 private:
  int64_t CellOf(const Vector3d& place, int axis) const { return std::llround((place[axis] - origin_m_[axis]) / cell_m_); }

  Vector3d origin_m_;
  double cell_m_;
  std::map<std::array<int64_t, 3>, uint32_t> numbers_;
};

}  // namespace

absl::StatusOr<SurfaceMesh> TessellateNurbs(std::span<const NurbsSurface> patches, double tolerance_m) {
  if (!(tolerance_m > 0) || !std::isfinite(tolerance_m)) {
    return absl::InvalidArgumentError(absl::StrCat("tolerance_m: ", tolerance_m, ", it must be positive and finite"));
  }
  std::vector<NurbsSurface> parts;
  Eigen::AlignedBox3d box;
  for (const NurbsSurface& patch : patches) {
    for (NurbsSurface& part : patch.BezierPatches()) parts.push_back(std::move(part));
    for (const Eigen::Vector4d& p : patch.control()) box.extend(Vector3d(p.hnormalized()));
  }
  SurfaceMesh mesh;
  if (parts.empty()) return mesh;
  const auto triangles_with = [&](int halvings) { return 2 * parts.size() << (2 * halvings); };
  const auto refusal = [&] {
    return absl::ResourceExhaustedError(
        absl::StrCat("tolerance_m: ", tolerance_m, " needs more than ", kMaxTessellationTriangles, " triangles"));
  };
  if (triangles_with(0) > kMaxTessellationTriangles) return refusal();
  int allowed = 0;
  while (triangles_with(allowed + 1) <= kMaxTessellationTriangles) ++allowed;
  int halvings = 0;
  for (const NurbsSurface& part : parts) {
    halvings = std::max(halvings, HalvingsOf(part, tolerance_m, allowed + 1));
    if (halvings > allowed) return refusal();
  }
  const size_t n = size_t{1} << halvings;
  Welder welder(box.min(), std::max(kSamePlace * box.diagonal().norm(), 1e-300));
  for (const NurbsSurface& part : parts) {
    const auto [u0, u1] = part.domain(NurbsDirection::kU);
    const auto [v0, v1] = part.domain(NurbsDirection::kV);
    std::vector<uint32_t> numbers;
    for (size_t i = 0; i <= n; ++i) {
      for (size_t j = 0; j <= n; ++j) {
        const double s = static_cast<double>(i) / static_cast<double>(n);
        const double t = static_cast<double>(j) / static_cast<double>(n);
        numbers.push_back(welder.NumberOf(part.Point((1 - s) * u0 + s * u1, (1 - t) * v0 + t * v1), &mesh.vertices));
      }
    }
    const auto add = [&](uint32_t a, uint32_t b, uint32_t c) {
      if (a != b && b != c && c != a) mesh.triangles.push_back({a, b, c});
    };
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        const uint32_t a = numbers[i * (n + 1) + j];
        const uint32_t b = numbers[(i + 1) * (n + 1) + j];
        const uint32_t c = numbers[(i + 1) * (n + 1) + j + 1];
        const uint32_t d = numbers[i * (n + 1) + j + 1];
        add(a, b, c);
        add(a, c, d);
      }
    }
  }
  return mesh;
}

}  // namespace palpate::sim
