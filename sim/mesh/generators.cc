#include "sim/mesh/generators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>
#include <utility>
#include <vector>

#include <Eigen/Geometry>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr uint64_t kMaxStructuredTets = 20'000'000;

absl::Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s = %g: must be in [%g, %g]", name, value, low, high));
}

// The default for 0, else the checked value.
absl::StatusOr<double> EdgeLength(double edge_length_m, double extent_m) {
  if (edge_length_m == 0) return extent_m / kDefaultEdgesPerExtent;
  // a hair of tolerance: a caller may have computed the bound itself
  PALPATE_RETURN_IF_ERROR(CheckRange("edge_length_m", edge_length_m, extent_m / kMaxEdgesPerExtent * (1 - 1e-9), extent_m));
  return edge_length_m;
}

// min(a, b) blended over a width k (quadratic polynomial)
double SmoothMin(double a, double b, double k) {
  const double h = std::max(k - std::abs(a - b), 0.0) / k;
  return std::min(a, b) - 0.25 * h * h * k;
}

double SmoothMax(double a, double b, double k) { return -SmoothMin(-a, -b, k); }

// Near enough to the distance from an ellipsoid for |result| small against the radii.
double Ellipsoid(const Vector3d& x, const Vector3d& center, const Vector3d& radii) {
  const Vector3d p = x - center;
  const double k0 = p.cwiseQuotient(radii).norm();
  const double k1 = p.cwiseQuotient(radii.cwiseAbs2()).norm();
  if (k1 == 0) return -radii.minCoeff();
  return k0 * (k0 - 1) / k1;
}

// The body for length 1.
double UnitLiver(const Vector3d& x) {
  // the two lobes under one dome
  const double right = Ellipsoid(x, {-0.19, 0.02, -0.06}, {0.31, 0.29, 0.29});
  const double left = Ellipsoid(x, {0.14, -0.04, 0.055}, {0.36, 0.22, 0.13});
  double body = SmoothMin(right, left, 0.25);
  // visceral face: hollowed from below and behind, which leaves a thin anterior margin
  body = SmoothMax(body, -Ellipsoid(x, {0.17, 0.10, -0.40}, {0.50, 0.52, 0.40}), 0.10);
  // notch of the round ligament between the lobes, and the gallbladder's bed
  body = SmoothMax(body, -Ellipsoid(x, {0.09, -0.29, -0.07}, {0.045, 0.16, 0.13}), 0.09);
  body = SmoothMax(body, -Ellipsoid(x, {-0.09, -0.20, -0.24}, {0.06, 0.18, 0.09}), 0.08);
  return body;
}

// The body for length 1.
double UnitKidney(const Vector3d& x) {
  return SmoothMax(Ellipsoid(x, {0, 0, 0}, {0.5, 0.29, 0.2}), -Ellipsoid(x, {0, -0.36, 0}, {0.17, 0.2, 0.26}), 0.14);
}

// The structured meshes' triangle of a section, counter-clockwise seen from the side of the high one, as a prism between two sections,
// whose vertices begin at `low_base` and `high_base`. With its corners sorted by index each side's diagonal rises from the lower to the
// higher index, as its neighbour finds too.
void AppendPrism(uint32_t low_base, uint32_t high_base, std::array<uint32_t, 3> triangle, std::vector<std::array<uint32_t, 4>>* tets) {
  bool even = true;
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(1, 2), std::pair(0, 1)}) {
    if (triangle[a] <= triangle[b]) continue;
    std::swap(triangle[a], triangle[b]);
    even = !even;
  }
  std::array<uint32_t, 3> low;
  std::array<uint32_t, 3> high;
  for (int i = 0; i < 3; ++i) {
    low[i] = low_base + triangle[i];
    high[i] = high_base + triangle[i];
  }
  std::array<std::array<uint32_t, 4>, 3> cut = {
      {{low[0], low[1], low[2], high[2]}, {low[0], low[1], high[2], high[1]}, {low[0], high[1], high[2], high[0]}}};
  for (auto& tet : cut) {
    if (!even) std::swap(tet[2], tet[3]);
    tets->push_back(tet);
  }
}

// Torus knot (2, 3) with three lobes; the third coordinate is stretched so that the strands pass each other with more room.
Vector3d Trefoil(double t) { return {std::sin(t) + 2 * std::sin(2 * t), std::cos(t) - 2 * std::cos(2 * t), -1.2 * std::sin(3 * t)}; }

// Points of the centre line, close enough to each other to count as the curve, of extent 1 along x, centred.
std::vector<Vector3d> KnotCurve(KnotEnds ends) {
  std::vector<Vector3d> points;
  if (ends == KnotEnds::kClosed) {
    constexpr int kPoints = 12'000;
    for (int i = 0; i < kPoints; ++i) points.push_back(Trefoil(2 * std::numbers::pi * i / kPoints));
  } else {
    // The trefoil cut open at the tip of one lobe, whose two strands turn outwards into the tails: a uniform cubic B-spline.
    constexpr std::array<double, 7> kTail = {9, 8, 7, 6, 5, 4, 3.2};
    constexpr double kTailY = 3;
    constexpr double kCut = 0.7;
    constexpr int kArcPoints = 27;
    std::vector<Vector3d> control;
    for (const double x : kTail) control.emplace_back(-x, kTailY, 0);
    for (int i = 0; i < kArcPoints; ++i) {
      const Vector3d p = Trefoil(std::numbers::pi + kCut + 2 * (std::numbers::pi - kCut) * i / (kArcPoints - 1));
      control.emplace_back(-p[0], -p[1], p[2]);
    }
    for (size_t i = kTail.size(); i-- > 0;) control.emplace_back(kTail[i], kTailY, 0);
    constexpr int kPointsPerSpan = 300;
    for (size_t i = 0; i + 3 < control.size(); ++i) {
      const int last = i + 4 == control.size() ? kPointsPerSpan : kPointsPerSpan - 1;
      for (int k = 0; k <= last; ++k) {
        const double u = static_cast<double>(k) / kPointsPerSpan;
        const double w = 1 - u;
        points.emplace_back((w * w * w * control[i] + (3 * u * u * u - 6 * u * u + 4) * control[i + 1] +
                             (3 * w * w * w - 6 * w * w + 4) * control[i + 2] + u * u * u * control[i + 3]) /
                            6);
      }
    }
  }
  Eigen::AlignedBox3d bounds;
  for (const Vector3d& p : points) bounds.extend(p);
  for (Vector3d& p : points) p = (p - bounds.center()) / bounds.sizes()[0];
  return points;
}

struct CurvePoint {
  Vector3d position;
  Vector3d tangent;  // unit
};

// `count` points of equal distance along the curve. Closed: the last one is one distance before the first; open: the ends are included.
std::vector<CurvePoint> ResampleCurve(const std::vector<Vector3d>& points, bool is_closed, uint32_t count) {
  const size_t n = points.size();
  const size_t segments = is_closed ? n : n - 1;
  std::vector<double> at(segments + 1, 0);
  for (size_t i = 0; i < segments; ++i) at[i + 1] = at[i] + (points[(i + 1) % n] - points[i]).norm();
  const auto tangent = [&](size_t i) -> Vector3d {
    const size_t before = i > 0 ? i - 1 : (is_closed ? n - 1 : 0);
    const size_t after = i + 1 < n ? i + 1 : (is_closed ? 0 : n - 1);
    return (points[after] - points[before]).normalized();
  };
  std::vector<CurvePoint> out;
  size_t segment = 0;
  for (uint32_t k = 0; k < count; ++k) {
    const double s = at.back() * k / (is_closed ? count : count - 1);
    while (segment + 1 < segments && at[segment + 1] < s) ++segment;
    const double u = std::clamp((s - at[segment]) / (at[segment + 1] - at[segment]), 0.0, 1.0);
    const size_t next = (segment + 1) % n;
    out.push_back({(1 - u) * points[segment] + u * points[next], ((1 - u) * tangent(segment) + u * tangent(next)).normalized()});
  }
  return out;
}

double CurveLength(const std::vector<Vector3d>& points, bool is_closed) {
  double length = 0;
  for (size_t i = 0; i + (is_closed ? 0 : 1) < points.size(); ++i) length += (points[(i + 1) % points.size()] - points[i]).norm();
  return length;
}

// Vertices of a disc with `ring_count` rings, and its triangles, counter-clockwise.
uint32_t DiscSize(uint32_t ring_count) { return 1 + 3 * ring_count * (ring_count + 1); }

std::vector<std::array<uint32_t, 3>> DiscTriangles(uint32_t ring_count) {
  const auto at = [](uint32_t ring, uint32_t place) { return ring == 0 ? 0 : 1 + 3 * ring * (ring - 1) + place % (6 * ring); };
  std::vector<std::array<uint32_t, 3>> triangles;
  for (uint32_t ring = 1; ring <= ring_count; ++ring) {
    for (uint32_t sextant = 0; sextant < 6; ++sextant) {
      for (uint32_t j = 0; j < ring; ++j) {
        const uint32_t outer = sextant * ring + j;
        const uint32_t inner = sextant * (ring - 1) + j;
        triangles.push_back({at(ring - 1, inner), at(ring, outer), at(ring, outer + 1)});
        if (j + 1 < ring) triangles.push_back({at(ring - 1, inner), at(ring, outer + 1), at(ring - 1, inner + 1)});
      }
    }
  }
  return triangles;
}

}  // namespace

ImplicitFunction LiverFunction(double length_m) {
  return [length_m](const Vector3d& x_m) { return length_m * UnitLiver(x_m / length_m); };
}

Eigen::AlignedBox3d LiverBounds(double length_m) {
  return {length_m * Vector3d(-0.55, -0.45, -0.40), length_m * Vector3d(0.55, 0.45, 0.40)};
}

absl::StatusOr<TetMesh> GenerateLiver(double length_m, double edge_length_m, const ProgressCallback& progress) {
  PALPATE_RETURN_IF_ERROR(CheckRange("length_m", length_m, 0.01, 1));
  StuffingOptions options;
  PALPATE_ASSIGN_OR_RETURN(options.edge_length_m, EdgeLength(edge_length_m, length_m));
  options.progress = progress;
  return StuffIsosurface(LiverFunction(length_m), LiverBounds(length_m), options);
}

absl::StatusOr<TetMesh> GenerateTorus(double major_radius_m, double minor_radius_m, double edge_length_m,
                                      const ProgressCallback& progress) {
  PALPATE_RETURN_IF_ERROR(CheckRange("major_radius_m", major_radius_m, 0.005, 1));
  if (!(minor_radius_m > 0 && minor_radius_m < major_radius_m)) {
    return absl::InvalidArgumentError(absl::StrFormat("minor_radius_m = %g: must be in (0, %g), positive and smaller than major_radius_m",
                                                      minor_radius_m, major_radius_m));
  }
  const double outer = major_radius_m + minor_radius_m;
  StuffingOptions options;
  PALPATE_ASSIGN_OR_RETURN(options.edge_length_m, EdgeLength(edge_length_m, 2 * outer));
  // coarser, the tube would break or the hole close
  const double coarsest_m = 1.25 * std::min(minor_radius_m, major_radius_m - minor_radius_m);
  if (options.edge_length_m > coarsest_m) {
    return absl::InvalidArgumentError(
        absl::StrFormat("edge_length_m = %g: must be at most %g, 1.25 times the smaller of the tube's and the hole's radius",
                        options.edge_length_m, coarsest_m));
  }
  options.is_distance = true;
  options.progress = progress;
  const Vector3d half(outer, outer, minor_radius_m);
  return StuffIsosurface([=](const Vector3d& x) { return std::hypot(std::hypot(x[0], x[1]) - major_radius_m, x[2]) - minor_radius_m; },
                         Eigen::AlignedBox3d(-half, half), options);
}

absl::StatusOr<TetMesh> GenerateSphere(double radius_m, double edge_length_m, const ProgressCallback& progress) {
  PALPATE_RETURN_IF_ERROR(CheckRange("radius_m", radius_m, 0.001, 1));
  StuffingOptions options;
  PALPATE_ASSIGN_OR_RETURN(options.edge_length_m, EdgeLength(edge_length_m, 2 * radius_m));
  options.is_distance = true;
  options.progress = progress;
  const Vector3d half = Vector3d::Constant(radius_m);
  return StuffIsosurface([radius_m](const Vector3d& x) { return x.norm() - radius_m; }, Eigen::AlignedBox3d(-half, half), options);
}

absl::StatusOr<TetMesh> GenerateKidney(double length_m, double edge_length_m, const ProgressCallback& progress) {
  PALPATE_RETURN_IF_ERROR(CheckRange("length_m", length_m, 0.01, 1));
  StuffingOptions options;
  PALPATE_ASSIGN_OR_RETURN(options.edge_length_m, EdgeLength(edge_length_m, length_m));
  options.progress = progress;
  const Vector3d half(0.52, 0.32, 0.23);
  return StuffIsosurface([length_m](const Vector3d& x_m) { return length_m * UnitKidney(x_m / length_m); },
                         Eigen::AlignedBox3d(-length_m * half, length_m * half), options);
}

absl::StatusOr<TetMesh> GenerateKnot(KnotEnds ends, double extent_m, double tube_radius_m, double edge_length_m) {
  PALPATE_RETURN_IF_ERROR(CheckRange("extent_m", extent_m, 0.02, 2));
  const bool is_closed = ends == KnotEnds::kClosed;
  const double thickest_m = extent_m * (is_closed ? kMaxClosedKnotTubePerExtent : kMaxOpenKnotTubePerExtent);
  const double thinnest_m = extent_m / kMaxEdgesPerExtent;
  if (tube_radius_m == 0) tube_radius_m = extent_m * (is_closed ? kDefaultClosedKnotTubePerExtent : kDefaultOpenKnotTubePerExtent);
  PALPATE_RETURN_IF_ERROR(CheckRange("tube_radius_m", tube_radius_m, thinnest_m * (1 - 1e-9), thickest_m * (1 + 1e-9)));
  if (edge_length_m == 0) edge_length_m = tube_radius_m;
  PALPATE_RETURN_IF_ERROR(CheckRange("edge_length_m", edge_length_m, thinnest_m * (1 - 1e-9), tube_radius_m * (1 + 1e-9)));

  const std::vector<Vector3d> curve = KnotCurve(ends);
  const double length_m = extent_m * CurveLength(curve, is_closed);
  const auto ring_count = static_cast<uint32_t>(std::max(1.0, std::round(tube_radius_m / edge_length_m)));
  const auto gap_count = static_cast<uint32_t>(std::max(3.0, std::round(length_m / edge_length_m)));
  const uint32_t disc_count = is_closed ? gap_count : gap_count + 1;
  const uint32_t disc_size = DiscSize(ring_count);
  const std::vector<CurvePoint> centers = ResampleCurve(curve, is_closed, disc_count);

  // A normal to the curve, carried along without twist.
  std::vector<Vector3d> normals = {centers[0].tangent.unitOrthogonal()};
  const auto carry = [](const Vector3d& normal, const Vector3d& from, const Vector3d& to) -> Vector3d {
    const Vector3d carried = Eigen::Quaterniond::FromTwoVectors(from, to) * normal;
    return (carried - carried.dot(to) * to).normalized();
  };
  for (uint32_t i = 1; i < disc_count; ++i) normals.push_back(carry(normals.back(), centers[i - 1].tangent, centers[i].tangent));
  double excess_rad = 0;
  if (is_closed) {
    const Vector3d back = carry(normals.back(), centers.back().tangent, centers[0].tangent);
    excess_rad = std::atan2(normals[0].cross(back).dot(centers[0].tangent), normals[0].dot(back));
  }

  TetMesh mesh;
  mesh.vertices.reserve(size_t{disc_size} * disc_count);
  for (uint32_t i = 0; i < disc_count; ++i) {
    const Vector3d center_m = extent_m * centers[i].position;
    const Vector3d u = Eigen::AngleAxisd(-excess_rad * i / disc_count, centers[i].tangent) * normals[i];
    const Vector3d v = centers[i].tangent.cross(u);
    mesh.vertices.push_back(center_m);
    for (uint32_t ring = 1; ring <= ring_count; ++ring) {
      const double r = tube_radius_m * ring / ring_count;
      for (uint32_t place = 0; place < 6 * ring; ++place) {
        const double angle = 2 * std::numbers::pi * place / (6.0 * ring);
        mesh.vertices.emplace_back(center_m + r * (std::cos(angle) * u + std::sin(angle) * v));
      }
    }
  }
  const std::vector<std::array<uint32_t, 3>> section = DiscTriangles(ring_count);
  mesh.tets.reserve(section.size() * 3 * gap_count);
  for (uint32_t i = 0; i < gap_count; ++i) {
    for (const auto& triangle : section) AppendPrism(i * disc_size, (i + 1) % disc_count * disc_size, triangle, &mesh.tets);
  }
  return mesh;
}

absl::StatusOr<TetMesh> GenerateSheet(double length_m, double width_m, double thickness_m, uint32_t layer_count, double edge_length_m) {
  PALPATE_RETURN_IF_ERROR(CheckRange("length_m", length_m, 0.001, 2));
  PALPATE_RETURN_IF_ERROR(CheckRange("width_m", width_m, 0.001, 2));
  PALPATE_RETURN_IF_ERROR(CheckRange("thickness_m", thickness_m, 1e-4, std::min({0.1, length_m, width_m})));
  PALPATE_RETURN_IF_ERROR(CheckRange("layer_count", layer_count, 1, 16));
  PALPATE_ASSIGN_OR_RETURN(const double edge, EdgeLength(edge_length_m, std::max(length_m, width_m)));
  const auto nodes = [edge](double extent_m) { return 1 + static_cast<uint32_t>(std::max(1.0, std::round(extent_m / edge))); };
  return BoxMesh({nodes(length_m), nodes(width_m), layer_count + 1}, {length_m, width_m, thickness_m});
}

absl::StatusOr<TetMesh> GenerateSlab(const Vector3d& size_m, double edge_length_m) {
  constexpr std::array<const char*, 3> kNames = {"size_m.x", "size_m.y", "size_m.z"};
  for (int axis = 0; axis < 3; ++axis) PALPATE_RETURN_IF_ERROR(CheckRange(kNames[axis], size_m[axis], 0.001, 1));
  PALPATE_ASSIGN_OR_RETURN(const double edge, EdgeLength(edge_length_m, size_m.maxCoeff()));
  std::array<uint32_t, 3> node_counts{};
  for (int axis = 0; axis < 3; ++axis) node_counts[axis] = 1 + static_cast<uint32_t>(std::max(1.0, std::round(size_m[axis] / edge)));
  return BoxMesh(node_counts, size_m);
}

absl::StatusOr<TetMesh> BoxMesh(const std::array<uint32_t, 3>& node_counts, const Vector3d& size_m) {
  constexpr std::array<char, 3> kAxis = {'x', 'y', 'z'};
  for (int axis = 0; axis < 3; ++axis) {
    if (!(size_m[axis] > 0) || !std::isfinite(size_m[axis])) {
      return absl::InvalidArgumentError(absl::StrFormat("size_m.%c = %g: must be positive and finite", kAxis[axis], size_m[axis]));
    }
    if (node_counts[axis] < 2)
      return absl::InvalidArgumentError(absl::StrFormat("node_counts[%d] = %u: must be at least 2", axis, node_counts[axis]));
  }
  const double tets = 5.0 * (node_counts[0] - 1) * (node_counts[1] - 1) * (node_counts[2] - 1);
  if (tets > static_cast<double>(kMaxStructuredTets)) {
    return absl::ResourceExhaustedError(absl::StrFormat("node_counts = %u x %u x %u: %.0f tets, more than the limit of %u", node_counts[0],
                                                        node_counts[1], node_counts[2], tets, kMaxStructuredTets));
  }
  const auto [nx, ny, nz] = node_counts;
  TetMesh mesh;
  mesh.vertices.reserve(size_t{nx} * ny * nz);
  mesh.tets.reserve(static_cast<size_t>(tets));
  const auto coordinate = [&](int axis, uint32_t i) { return size_m[axis] * (static_cast<double>(i) / (node_counts[axis] - 1) - 0.5); };
  for (uint32_t k = 0; k < nz; ++k) {
    for (uint32_t j = 0; j < ny; ++j) {
      for (uint32_t i = 0; i < nx; ++i) mesh.vertices.emplace_back(coordinate(0, i), coordinate(1, j), coordinate(2, k));
    }
  }
  for (uint32_t k = 0; k + 1 < nz; ++k) {
    for (uint32_t j = 0; j + 1 < ny; ++j) {
      for (uint32_t i = 0; i + 1 < nx; ++i) {
        std::array<uint32_t, 8> c;  // bit 0: x, bit 1: y, bit 2: z
        for (uint32_t b = 0; b < 8; ++b) c[b] = i + (b & 1) + nx * (j + (b >> 1 & 1) + ny * (k + (b >> 2)));
        // one tet in the middle, one at each corner that it leaves; odd cells are mirrored in x, which turns their orientation
        const bool odd = (i + j + k) % 2 != 0;
        constexpr std::array<std::array<uint32_t, 4>, 5> kCell = {{{0, 5, 3, 6}, {1, 3, 0, 5}, {2, 0, 3, 6}, {4, 5, 0, 6}, {7, 5, 6, 3}}};
        for (const auto& tet : kCell) {
          std::array<uint32_t, 4> v;
          for (int n = 0; n < 4; ++n) v[n] = c[odd ? tet[n] ^ 1 : tet[n]];
          if (odd) std::swap(v[2], v[3]);
          mesh.tets.push_back(v);
        }
      }
    }
  }
  return mesh;
}

absl::StatusOr<TetMesh> CylinderMesh(double radius_m, double height_m, uint32_t ring_count, uint32_t sector_count, uint32_t layer_count) {
  if (!(radius_m > 0) || !std::isfinite(radius_m))
    return absl::InvalidArgumentError(absl::StrFormat("radius_m = %g: must be positive and finite", radius_m));
  if (!(height_m > 0) || !std::isfinite(height_m))
    return absl::InvalidArgumentError(absl::StrFormat("height_m = %g: must be positive and finite", height_m));
  if (ring_count < 1) return absl::InvalidArgumentError("ring_count = 0: must be at least 1");
  if (sector_count < 3) return absl::InvalidArgumentError(absl::StrFormat("sector_count = %u: must be at least 3", sector_count));
  if (layer_count < 1) return absl::InvalidArgumentError("layer_count = 0: must be at least 1");
  const double tets = 3.0 * layer_count * sector_count * (2.0 * ring_count - 1);
  if (tets > static_cast<double>(kMaxStructuredTets)) {
    return absl::ResourceExhaustedError(absl::StrFormat("%u rings x %u sectors x %u layers: %.0f tets, more than the limit of %u",
                                                        ring_count, sector_count, layer_count, tets, kMaxStructuredTets));
  }
  const uint32_t per_layer = 1 + ring_count * sector_count;
  TetMesh mesh;
  mesh.vertices.reserve(size_t{per_layer} * (layer_count + 1));
  mesh.tets.reserve(static_cast<size_t>(tets));
  for (uint32_t layer = 0; layer <= layer_count; ++layer) {
    const double z = height_m * (static_cast<double>(layer) / layer_count - 0.5);
    mesh.vertices.emplace_back(0, 0, z);
    for (uint32_t ring = 1; ring <= ring_count; ++ring) {
      const double r = radius_m * ring / ring_count;
      for (uint32_t sector = 0; sector < sector_count; ++sector) {
        const double angle = 2 * std::numbers::pi * sector / sector_count;
        mesh.vertices.emplace_back(r * std::cos(angle), r * std::sin(angle), z);
      }
    }
  }
  const auto at = [&](uint32_t ring, uint32_t sector) { return ring == 0 ? 0 : 1 + (ring - 1) * sector_count + sector % sector_count; };
  const auto prism = [&](uint32_t layer, const std::array<uint32_t, 3>& triangle) {
    AppendPrism(layer * per_layer, (layer + 1) * per_layer, triangle, &mesh.tets);
  };
  for (uint32_t layer = 0; layer < layer_count; ++layer) {
    for (uint32_t sector = 0; sector < sector_count; ++sector) {
      prism(layer, {0, at(1, sector), at(1, sector + 1)});
      for (uint32_t ring = 1; ring < ring_count; ++ring) {
        prism(layer, {at(ring, sector), at(ring + 1, sector), at(ring + 1, sector + 1)});
        prism(layer, {at(ring, sector), at(ring + 1, sector + 1), at(ring, sector + 1)});
      }
    }
  }
  return mesh;
}

double LiverEdgeLengthForTets(double length_m, double tet_count) {
  struct Resolution {
    double tets;
    double edges_per_length;
  };
  // measured; the four of the contract and the ends of the range, with logarithms interpolated between and beyond
  constexpr std::array<Resolution, 7> kTable = {
      {{196, 5}, {600, 7.32}, {2500, 11.72}, {10000, 18.74}, {50000, 32.42}, {309259, 60}, {11215599, 200}}};
  size_t piece = 0;
  while (piece + 2 < kTable.size() && tet_count > kTable[piece + 1].tets) ++piece;
  const Resolution& a = kTable[piece];
  const Resolution& b = kTable[piece + 1];
  const double s = std::log(tet_count / a.tets) / std::log(b.tets / a.tets);
  return length_m / (a.edges_per_length * std::pow(b.edges_per_length / a.edges_per_length, s));
}

}  // namespace palpate::sim
