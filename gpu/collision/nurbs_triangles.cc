#include "gpu/collision/nurbs_triangles.h"

#include "absl/strings/str_cat.h"

namespace palpate::gpu {
namespace {

constexpr double kKnots[] = {0, 0, 1, 1};
constexpr size_t kNumbersOfTriangle = 16;  // 2 x 2 points with weights

}  // namespace

absl::StatusOr<NurbsTriangles> NurbsTriangles::Create(std::span<const std::array<double, 3>> vertices_m,
                                                      std::span<const std::array<uint32_t, 3>> triangles) {
  if (triangles.empty()) return absl::InvalidArgumentError("triangles: there are none");
  for (size_t t = 0; t < triangles.size(); ++t) {
    for (const uint32_t vertex : triangles[t]) {
      if (vertex >= vertices_m.size()) {
        return absl::InvalidArgumentError(absl::StrCat("triangles[", t, "]: vertex ", vertex, ", there are ", vertices_m.size()));
      }
    }
  }
  NurbsTriangles out;
  out.vertex_count_ = vertices_m.size();
  out.triangles_.assign(triangles.begin(), triangles.end());
  PALPATE_ASSIGN_OR_RETURN(out.control_, out.Control(vertices_m));
  return out;
}

absl::StatusOr<std::vector<double>> NurbsTriangles::Control(std::span<const std::array<double, 3>> vertices_m) const {
  if (vertices_m.size() != vertex_count_) {
    return absl::InvalidArgumentError(absl::StrCat("vertices_m: ", vertices_m.size(), " vertices, there are ", vertex_count_));
  }
  std::vector<double> control;
  control.reserve(kNumbersOfTriangle * triangles_.size());
  for (const auto& triangle : triangles_) {
    for (const uint32_t vertex : {triangle[0], triangle[0], triangle[1], triangle[2]}) {
      const auto& p = vertices_m[vertex];
      control.insert(control.end(), {p[0], p[1], p[2], 1.0});
    }
  }
  return control;
}

std::vector<NurbsNet> NurbsTriangles::Nets() const {
  std::vector<NurbsNet> nets;
  nets.reserve(triangles_.size());
  for (size_t t = 0; t < triangles_.size(); ++t) {
    nets.push_back({.degree_u = 1,
                    .degree_v = 1,
                    .knots_u = kKnots,
                    .knots_v = kKnots,
                    .control = std::span<const double>(control_).subspan(kNumbersOfTriangle * t, kNumbersOfTriangle)});
  }
  return nets;
}

}  // namespace palpate::gpu
