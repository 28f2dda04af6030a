#include "sim/mesh/surface_generators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <tuple>
#include <utility>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kLeastSize_m = 0.001;
constexpr double kMostSize_m = 10;
constexpr double kLeastArea = 1e-6;  // twice the area over the square of the longest edge
const double kRowsPerEdge = 2 / std::numbers::sqrt3;

absl::Status CheckSize(const char* name, double value) {
  if (value >= kLeastSize_m && value <= kMostSize_m) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", value, " is outside [", kLeastSize_m, ", ", kMostSize_m, "]"));
}

absl::StatusOr<double> EdgeLength(double edge_length_m, double extent_m) {
  if (edge_length_m == 0) return extent_m / kDefaultEdgesPerSurface;
  const double least = extent_m / kMaxEdgesPerSurface;
  if (edge_length_m >= least && edge_length_m <= extent_m) return edge_length_m;
  return absl::InvalidArgumentError(absl::StrCat("edge_length_m: ", edge_length_m, " is outside [", least, ", ", extent_m, "]"));
}

uint32_t CountOf(double length, uint32_t least) { return std::max(static_cast<uint32_t>(std::lround(length)), least); }

/// Triangles between two rows, which run the same way, with the upper row on the left: always on where the next vertex is nearer along the
/// rows. `lower`, `upper`: vertices with their places along the rows.
struct RowVertex {
  uint32_t vertex;
  double along;
};
void JoinRows(const std::vector<RowVertex>& lower, const std::vector<RowVertex>& upper, SurfaceMesh* out) {
  size_t i = 0;
  size_t j = 0;
  while (i + 1 < lower.size() || j + 1 < upper.size()) {
    const bool on_lower = j + 1 == upper.size() ||
                          (i + 1 < lower.size() && lower[i + 1].along - upper[j].along <= upper[j + 1].along - lower[i].along + 1e-12);
    if (on_lower) {
      out->triangles.push_back({lower[i].vertex, lower[i + 1].vertex, upper[j].vertex});
      ++i;
    } else {
      out->triangles.push_back({lower[i].vertex, upper[j + 1].vertex, upper[j].vertex});
      ++j;
    }
  }
}

std::string Text(const Vector3d& p) { return absl::StrCat("(", p.x(), ", ", p.y(), ", ", p.z(), ")"); }

absl::Status CheckTriangles(const SurfaceMesh& surface) {
  const size_t n = surface.vertices.size();
  if (surface.triangles.empty()) return absl::InvalidArgumentError("the surface has no triangle");
  for (size_t v = 0; v < n; ++v) {
    if (!(surface.vertices[v].cwiseAbs().maxCoeff() <= 1e30)) {
      return absl::InvalidArgumentError(absl::StrCat("vertex ", v, " lies at ", Text(surface.vertices[v]), ", which is not finite"));
    }
  }
  std::vector<uint8_t> is_used(n, 0);
  for (size_t t = 0; t < surface.triangles.size(); ++t) {
    const auto& triangle = surface.triangles[t];
    for (const uint32_t v : triangle) {
      if (v >= n) return absl::InvalidArgumentError(absl::StrCat("triangle ", t, ": vertex ", v, " is outside [0, ", n, ")"));
      is_used[v] = 1;
    }
    const auto& [a, b, c] = triangle;
    const Vector3d& o = surface.vertices[a];
    const Vector3d ab = surface.vertices[b] - o;
    const Vector3d ac = surface.vertices[c] - o;
    const double longest_sq = std::max({ab.squaredNorm(), ac.squaredNorm(), (ac - ab).squaredNorm()});
    if (a == b || b == c || c == a || !(ab.cross(ac).norm() > kLeastArea * longest_sq)) {
      return absl::InvalidArgumentError(
          absl::StrCat("triangle ", t, " (", a, ", ", b, ", ", c, ") at ", Text(o), " has no area, or a vertex twice"));
    }
  }
  const auto unused = std::find(is_used.begin(), is_used.end(), 0);
  if (unused == is_used.end()) return absl::OkStatus();
  const auto v = static_cast<size_t>(unused - is_used.begin());
  return absl::InvalidArgumentError(absl::StrCat("vertex ", v, " at ", Text(surface.vertices[v]), " belongs to no triangle"));
}

struct Side {
  uint32_t low, high, triangle;
  bool rises;
};

/// Of each triangle the neighbours over its edges; triangles around one vertex are counted by how many of these they are joined by.
absl::Status CheckEdges(const SurfaceMesh& surface, std::vector<Side>* sides) {
  for (uint32_t t = 0; t < surface.triangles.size(); ++t) {
    for (size_t k = 0; k < 3; ++k) {
      const uint32_t a = surface.triangles[t][k];
      const uint32_t b = surface.triangles[t][(k + 1) % 3];
      sides->push_back({std::min(a, b), std::max(a, b), t, a < b});
    }
  }
  std::sort(sides->begin(), sides->end(),
            [](const Side& a, const Side& b) { return std::tie(a.low, a.high, a.triangle) < std::tie(b.low, b.high, b.triangle); });
  for (size_t i = 0; i + 1 < sides->size(); ++i) {
    const Side& a = (*sides)[i];
    const Side& b = (*sides)[i + 1];
    if (a.low != b.low || a.high != b.high) continue;
    const std::string edge = absl::StrCat("the edge from ", Text(surface.vertices[a.low]), " to ", Text(surface.vertices[a.high]),
                                          ", vertices ", a.low, " and ", a.high, ", ");
    if (i + 2 < sides->size() && (*sides)[i + 2].low == a.low && (*sides)[i + 2].high == a.high) {
      return absl::InvalidArgumentError(absl::StrCat(edge, "belongs to more than two triangles, among them ", a.triangle, ", ", b.triangle,
                                                     " and ", (*sides)[i + 2].triangle));
    }
    if (a.rises == b.rises) {
      return absl::InvalidArgumentError(absl::StrCat(edge, "is run along in the same direction by triangles ", a.triangle, " and ",
                                                     b.triangle, ": they are not turned alike, or the surface has one side only"));
    }
  }
  return absl::OkStatus();
}

/// Around each vertex of a surface whose edges are sound: one fan has one edge more than triangles if it is open, and as many if not.
absl::Status CheckFans(const SurfaceMesh& surface, const std::vector<Side>& sides) {
  const size_t n = surface.vertices.size();
  std::vector<uint32_t> triangles(n, 0);
  std::vector<uint32_t> boundary(n, 0);
  for (const auto& triangle : surface.triangles) {
    for (const uint32_t v : triangle) ++triangles[v];
  }
  std::vector<std::array<uint32_t, 3>> joins;  // vertex, two triangles
  for (size_t i = 0; i < sides.size(); ++i) {
    const bool has_twin = i + 1 < sides.size() && sides[i + 1].low == sides[i].low && sides[i + 1].high == sides[i].high;
    for (const uint32_t v : {sides[i].low, sides[i].high}) {
      if (has_twin) {
        joins.push_back({v, sides[i].triangle, sides[i + 1].triangle});
      } else {
        ++boundary[v];
      }
    }
    if (has_twin) ++i;
  }
  std::sort(joins.begin(), joins.end());
  for (size_t begin = 0, v = 0; v < n; ++v) {
    size_t end = begin;
    while (end < joins.size() && joins[end][0] == v) ++end;
    // Joined triangles grow from the first one until none is added.
    std::vector<uint32_t> fan;
    for (size_t i = begin; i < end; ++i) {
      fan.push_back(joins[i][1]);
      fan.push_back(joins[i][2]);
    }
    std::sort(fan.begin(), fan.end());
    fan.erase(std::unique(fan.begin(), fan.end()), fan.end());
    std::vector<uint8_t> is_seen(fan.size(), 0);
    const auto place = [&](uint32_t t) { return static_cast<size_t>(std::lower_bound(fan.begin(), fan.end(), t) - fan.begin()); };
    size_t seen = fan.empty() ? 0 : 1;
    if (!fan.empty()) is_seen[0] = 1;
    for (bool grows = true; grows;) {
      grows = false;
      for (size_t i = begin; i < end; ++i) {
        uint8_t& a = is_seen[place(joins[i][1])];
        uint8_t& b = is_seen[place(joins[i][2])];
        if (a == b) continue;
        a = b = 1;
        ++seen;
        grows = true;
      }
    }
    if (std::max<size_t>(seen, 1) != triangles[v]) {
      return absl::InvalidArgumentError(
          absl::StrCat("vertex ", v, " at ", Text(surface.vertices[v]), ": its ", triangles[v], " triangles are not one fan"));
    }
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SurfaceMesh> GenerateSheetSurface(double length_m, double width_m, double edge_length_m) {
  PALPATE_RETURN_IF_ERROR(CheckSize("length_m", length_m));
  PALPATE_RETURN_IF_ERROR(CheckSize("width_m", width_m));
  PALPATE_ASSIGN_OR_RETURN(const double edge_m, EdgeLength(edge_length_m, std::max(length_m, width_m)));
  const uint32_t columns = CountOf(length_m / edge_m, 1);
  const uint32_t rows = CountOf(width_m / edge_m * kRowsPerEdge, 1);
  SurfaceMesh out;
  std::vector<RowVertex> before;
  for (uint32_t j = 0; j <= rows; ++j) {
    std::vector<RowVertex> row;
    const auto add = [&](double column) {
      row.push_back({static_cast<uint32_t>(out.vertices.size()), column});
      out.vertices.emplace_back((column / columns - 0.5) * length_m, (static_cast<double>(j) / rows - 0.5) * width_m, 0);
    };
    const bool is_shifted = j % 2 == 1;
    add(0);
    for (uint32_t i = is_shifted ? 0 : 1; i < columns; ++i) add(is_shifted ? i + 0.5 : i);
    add(columns);
    if (j > 0) JoinRows(before, row, &out);
    before = std::move(row);
  }
  return out;
}

absl::StatusOr<SurfaceMesh> GenerateDiscSurface(double radius_m, double edge_length_m) {
  PALPATE_RETURN_IF_ERROR(CheckSize("radius_m", radius_m));
  PALPATE_ASSIGN_OR_RETURN(const double edge_m, EdgeLength(edge_length_m, 2 * radius_m));
  const uint32_t rings = CountOf(radius_m / edge_m, 1);
  SurfaceMesh out;
  out.vertices.emplace_back(0, 0, 0);
  std::vector<RowVertex> before = {{0, 0}};
  for (uint32_t k = 1; k <= rings; ++k) {
    std::vector<RowVertex> ring;
    for (uint32_t i = 0; i < 6 * k; ++i) {
      const double turn = static_cast<double>(i) / (6 * k);
      ring.push_back({static_cast<uint32_t>(out.vertices.size()), turn});
      const double angle = 2 * std::numbers::pi * turn;
      const double r = radius_m * k / rings;
      out.vertices.emplace_back(r * std::cos(angle), r * std::sin(angle), 0);
    }
    ring.push_back({ring.front().vertex, 1});
    // Seen along the ring the middle is on the left.
    if (before.size() > 1) before.push_back({before.front().vertex, 1});
    JoinRows(ring, before, &out);
    ring.pop_back();
    before = std::move(ring);
  }
  return out;
}

absl::StatusOr<SurfaceMesh> GenerateTubeSurface(double radius_m, double length_m, double edge_length_m) {
  PALPATE_RETURN_IF_ERROR(CheckSize("radius_m", radius_m));
  PALPATE_RETURN_IF_ERROR(CheckSize("length_m", length_m));
  PALPATE_ASSIGN_OR_RETURN(const double edge_m, EdgeLength(edge_length_m, std::max(length_m, 2 * radius_m)));
  const uint32_t around = CountOf(2 * std::numbers::pi * radius_m / edge_m, 6);
  const uint32_t rows = CountOf(length_m / edge_m * kRowsPerEdge, 1);
  SurfaceMesh out;
  std::vector<RowVertex> before;
  for (uint32_t j = 0; j <= rows; ++j) {
    std::vector<RowVertex> row;
    const double shift = j % 2 == 1 ? 0.5 : 0;
    for (uint32_t i = 0; i < around; ++i) {
      const double angle = 2 * std::numbers::pi * (i + shift) / around;
      row.push_back({static_cast<uint32_t>(out.vertices.size()), i + shift});
      out.vertices.emplace_back(radius_m * std::cos(angle), radius_m * std::sin(angle), (static_cast<double>(j) / rows - 0.5) * length_m);
    }
    row.push_back({row.front().vertex, around + shift});
    if (j > 0) JoinRows(before, row, &out);
    before = std::move(row);
  }
  return out;
}

absl::StatusOr<SurfaceMesh> GenerateSphereSurface(double radius_m, double edge_length_m) {
  PALPATE_RETURN_IF_ERROR(CheckSize("radius_m", radius_m));
  PALPATE_ASSIGN_OR_RETURN(const double edge_m, EdgeLength(edge_length_m, 2 * radius_m));
  constexpr double g = std::numbers::phi;
  const std::array<Vector3d, 12> corners = {Vector3d(-1, g, 0), {1, g, 0},  {-1, -g, 0}, {1, -g, 0}, {0, -1, g},  {0, 1, g},
                                            {0, -1, -g},        {0, 1, -g}, {g, 0, -1},  {g, 0, 1},  {-g, 0, -1}, {-g, 0, 1}};
  constexpr uint32_t kFaces[20][3] = {{0, 11, 5},  {0, 5, 1},  {0, 1, 7},  {0, 7, 10}, {0, 10, 11}, {1, 5, 9}, {5, 11, 4},
                                      {11, 10, 2}, {10, 7, 6}, {7, 1, 8},  {3, 9, 4},  {3, 4, 2},   {3, 2, 6}, {3, 6, 8},
                                      {3, 8, 9},   {4, 9, 5},  {2, 4, 11}, {6, 2, 10}, {8, 6, 7},   {9, 8, 1}};
  const double icosahedron_edge_m = radius_m / std::sin(2 * std::numbers::pi / 5);
  const uint32_t parts = CountOf(icosahedron_edge_m / edge_m, 1);
  SurfaceMesh out;
  // A point is named by its corners and their weights, so that faces share those of their edges.
  std::map<std::array<std::pair<uint32_t, uint32_t>, 3>, uint32_t> known;
  const auto point = [&](const uint32_t(&face)[3], uint32_t a, uint32_t b) {
    std::array<std::pair<uint32_t, uint32_t>, 3> name = {{{face[0], parts - a - b}, {face[1], a}, {face[2], b}}};
    Vector3d sum = Vector3d::Zero();
    for (auto& [corner, weight] : name) {
      sum += weight * corners[corner];
      if (weight == 0) corner = 12;  // whichever it is
    }
    std::sort(name.begin(), name.end());
    const auto [found, is_new] = known.try_emplace(name, static_cast<uint32_t>(out.vertices.size()));
    if (is_new) out.vertices.emplace_back(radius_m * sum.normalized());
    return found->second;
  };
  for (const auto& face : kFaces) {
    for (uint32_t a = 0; a < parts; ++a) {
      for (uint32_t b = 0; a + b < parts; ++b) {
        out.triangles.push_back({point(face, a, b), point(face, a + 1, b), point(face, a, b + 1)});
        if (a + b + 2 <= parts) out.triangles.push_back({point(face, a + 1, b), point(face, a + 1, b + 1), point(face, a, b + 1)});
      }
    }
  }
  return out;
}

absl::Status CheckShellSurface(const SurfaceMesh& surface) {
  PALPATE_RETURN_IF_ERROR(CheckTriangles(surface));
  std::vector<Side> sides;
  PALPATE_RETURN_IF_ERROR(CheckEdges(surface, &sides));
  return CheckFans(surface, sides);
}

absl::Status CheckEnclosesVolume(const SurfaceMesh& surface) {
  std::vector<Side> sides;
  PALPATE_RETURN_IF_ERROR(CheckEdges(surface, &sides));
  for (size_t i = 0; i < sides.size(); i += 2) {  // of pairs, as long as it is closed
    const Side& side = sides[i];
    if (i + 1 < sides.size() && sides[i + 1].low == side.low && sides[i + 1].high == side.high) continue;
    return absl::InvalidArgumentError(absl::StrCat("the shell is open at the edge from ", Text(surface.vertices[side.low]), " to ",
                                                   Text(surface.vertices[side.high]), ", vertices ", side.low, " and ", side.high,
                                                   ", and encloses no volume"));
  }
  double volume_m3 = 0;
  for (const auto& [a, b, c] : surface.triangles) {
    const Vector3d& o = surface.vertices[surface.triangles[0][0]];
    volume_m3 += (surface.vertices[a] - o).dot((surface.vertices[b] - o).cross(surface.vertices[c] - o)) / 6;
  }
  if (volume_m3 > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the shell encloses ", volume_m3, " m^3: its triangles are not turned outwards"));
}

}  // namespace palpate::sim
