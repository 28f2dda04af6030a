#include "sim/nurbs/nurbs_grid_tessellation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/nurbs/nurbs_tessellation.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kSameShare = 1e-9;  // of knots on both sides of an edge

/// Sets of numbers that are joined two at a time; the least stands for each.
class Sets {
 public:
  explicit Sets(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0U); }
  uint32_t Find(uint32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void Join(uint32_t a, uint32_t b) {
    a = Find(a);
    b = Find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<uint32_t> parent_;
};

std::vector<double> BreaksOf(const NurbsSurface& surface, NurbsDirection direction) {
  const std::span<const double> knots = surface.knots(direction);
  std::vector<double> breaks(knots.begin(), knots.end());
  breaks.erase(std::unique(breaks.begin(), breaks.end()), breaks.end());
  return breaks;
}

/// Sides 0 and 2 of a patch are along u, at low and high v; 1 and 3 along v, at high and low u.
NurbsDirection AlongOf(uint32_t side) { return side % 2 == 0 ? NurbsDirection::kU : NurbsDirection::kV; }
uint32_t ClassOf(uint32_t patch, NurbsDirection direction) { return 2 * patch + (direction == NurbsDirection::kU ? 0 : 1); }

bool HaveSameShares(std::vector<double> a, std::vector<double> b, bool is_opposed) {
  if (a.size() != b.size()) return false;
  const auto normalize = [](std::vector<double>& t) {
    const double low = t.front(), size = t.back() - t.front();
    for (double& x : t) x = (x - low) / size;
  };
  normalize(a);
  normalize(b);
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - (is_opposed ? 1 - b[b.size() - 1 - i] : b[i])) > kSameShare) return false;
  }
  return true;
}

/// How far a Bezier patch may be from two triangles on its corners, and how much of that each direction bends.
struct Bound {
  double all_m = 0, along_u_m = 0, along_v_m = 0;
};

/// The largest coefficient of a scalar Bezier patch after halving it both ways.
double HalvedMax(std::vector<double> g, size_t rows, size_t columns) {
  const auto halve = [](std::vector<double>& line) {  // both halves, the middle once
    const size_t n = line.size();
    std::vector<double> out(2 * n - 1);
    for (size_t level = 0; level < n; ++level) {
      out[level] = line[0];
      out[2 * n - 2 - level] = line[n - 1 - level];
      for (size_t i = 0; i + 1 < n - level; ++i) line[i] = (line[i] + line[i + 1]) / 2;
    }
    return out;
  };
  std::vector<std::vector<double>> wide;
  for (size_t i = 0; i < rows; ++i) {
    std::vector<double> row(g.begin() + static_cast<std::ptrdiff_t>(i * columns),
                            g.begin() + static_cast<std::ptrdiff_t>((i + 1) * columns));
    wide.push_back(halve(row));
  }
  double largest = 0;
  for (size_t j = 0; j < wide[0].size(); ++j) {
    std::vector<double> column;
    for (size_t i = 0; i < rows; ++i) column.push_back(wide[i][j]);
    for (const double value : halve(column)) largest = std::max(largest, value);
  }
  return largest;
}

/// How far a point of the tetrahedron a b c d may be from its faces a b c and a c d. Along the common normal of the edges ac and bd it lies
/// between these faces and the other two, whose distance is largest where the edges cross; that is, if they do.
double TwistOf(const Vector3d& a, const Vector3d& b, const Vector3d& c, const Vector3d& d) {
  const double by_middles_m = (a + c - b - d).norm() / 2;
  const Vector3d ac = c - a, bd = d - b;
  const Vector3d normal = ac.cross(bd);
  const double square = normal.squaredNorm();
  if (!(square > 1e-12 * ac.squaredNorm() * bd.squaredNorm())) return by_middles_m;
  const double s = (b - a).cross(bd).dot(normal) / square;
  const double t = (b - a).cross(ac).dot(normal) / square;
  constexpr double kSlack = 1e-9;  // at a pole they meet at their ends
  const bool do_cross = std::min(s, t) >= -kSlack && std::max(s, t) <= 1 + kSlack;
  return do_cross ? std::min(by_middles_m, std::abs((b - a).dot(normal)) / std::sqrt(square)) : by_middles_m;
}

/// From the bilinear patch on a b c d, searched near (s, t). On a side it is only that side which counts, so that sides go to sides.
double FromBilinear(const Vector3d& p, const std::array<Vector3d, 4>& corners, double s, double t) {
  const auto& [a, b, c, d] = corners;
  const bool is_s_free = s > 0 && s<1, is_t_free = t> 0 && t < 1;
  double least_m = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    const Vector3d way = p - ((1 - s) * ((1 - t) * a + t * d) + s * ((1 - t) * b + t * c));
    least_m = std::min(least_m, way.norm());
    const Vector3d ds = (1 - t) * (b - a) + t * (c - d), dt = (1 - s) * (d - a) + s * (c - b);
    const double ss = ds.squaredNorm(), tt = dt.squaredNorm(), st = ds.dot(dt);
    const double gs = way.dot(ds), gt = way.dot(dt);
    if (is_s_free && is_t_free && ss * tt - st * st > 1e-12 * ss * tt) {
      s += (gs * tt - gt * st) / (ss * tt - st * st);
      t += (gt * ss - gs * st) / (ss * tt - st * st);
    } else if (is_s_free && ss > 0) {
      s += gs / ss;
    } else if (is_t_free && tt > 0) {
      t += gt / tt;
    }
    s = std::clamp(s, 0.0, 1.0);
    t = std::clamp(t, 0.0, 1.0);
  }
  return least_m;
}

Bound BoundOf(const NurbsSurface& cell) {
  const size_t rows = cell.count(NurbsDirection::kU), columns = cell.count(NurbsDirection::kV);
  const auto at = [&](size_t i, size_t j) { return Vector3d(cell.control_m(i, j)); };
  const Vector3d a = at(0, 0), b = at(rows - 1, 0), c = at(rows - 1, columns - 1), d = at(0, columns - 1);
  std::vector<double> weighted(rows * columns);
  double least = cell.control()[0].w();
  Bound bound;
  const auto from_chord = [](const Vector3d& p, const Vector3d& from, const Vector3d& to) {
    const Vector3d way = to - from;
    const double share = way.isZero(0) ? 0 : std::clamp((p - from).dot(way) / way.squaredNorm(), 0.0, 1.0);
    return (p - from - share * way).norm();
  };
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      const double s = static_cast<double>(i) / static_cast<double>(rows - 1);
      const double t = static_cast<double>(j) / static_cast<double>(columns - 1);
      const double w = cell.control()[i * columns + j].w();
      weighted[i * columns + j] = w * FromBilinear(at(i, j), {a, b, c, d}, s, t);
      least = std::min(least, w);
      bound.along_u_m = std::max(bound.along_u_m, from_chord(at(i, j), at(0, j), at(rows - 1, j)));
      bound.along_v_m = std::max(bound.along_v_m, from_chord(at(i, j), at(i, 0), at(i, columns - 1)));
    }
  }
  // The triangles may be cut along either diagonal.
  bound.all_m = HalvedMax(std::move(weighted), rows, columns) / least + TwistOf(a, b, c, d);
  return bound;
}

double Mix(double first, double last, size_t i, size_t n) {
  const double share = static_cast<double>(i) / static_cast<double>(n);
  return i == n ? last : (1 - share) * first + share * last;
}

/// The parts of a surface between these parameters of one direction, which rise.
std::vector<NurbsSurface> Slices(NurbsSurface surface, NurbsDirection direction, size_t n) {
  std::vector<NurbsSurface> out;
  const auto [first, last] = surface.domain(direction);
  for (size_t i = 1; i < n; ++i) {
    auto halves = surface.Split(direction, Mix(first, last, i, n));
    if (!halves.ok()) break;  // narrower than rounding
    out.push_back(std::move((*halves)[0]));
    surface = std::move((*halves)[1]);
  }
  out.push_back(std::move(surface));
  return out;
}

class Grids {
 public:
  Grids(const NurbsObject& object, double tolerance_m, size_t least_cells, size_t max_triangles)
      : object_(object),
        tolerance_m_(tolerance_m),
        least_cells_(least_cells),
        max_triangles_(max_triangles),
        classes_(2 * object.patches().size()) {}

  absl::StatusOr<std::optional<SurfaceMesh>> Run(double join_tolerance_m, std::vector<NurbsGridPlace>* places) {
    edges_ = object_.Edges(join_tolerance_m);
    for (const NurbsPatch& patch : object_.patches()) {
      breaks_.push_back({BreaksOf(patch.surface, NurbsDirection::kU), BreaksOf(patch.surface, NurbsDirection::kV)});
    }
    for (const NurbsEdge& edge : edges_) {
      if (edge.is_point || edge.places.size() < 2) continue;
      const NurbsTrimPlace& a = edge.places[0];
      const NurbsTrimPlace& b = edge.places[1];
      if (!HaveSameShares(BreaksAlong(a), BreaksAlong(b), a.is_opposed != b.is_opposed)) return std::nullopt;
      classes_.Join(ClassOf(a.patch, AlongOf(a.curve)), ClassOf(b.patch, AlongOf(b.curve)));
    }
    if (absl::Status status = ChooseCounts(); !status.ok()) return status;
    SurfaceMesh mesh = Collect(places);
    if (mesh.triangles.size() > max_triangles_) return TooMany();
    return mesh;
  }

 private:
  const std::vector<double>& BreaksAlong(const NurbsTrimPlace& place) const {
    return breaks_[place.patch][AlongOf(place.curve) == NurbsDirection::kU ? 0 : 1];
  }
  size_t& CountOf(uint32_t patch, NurbsDirection direction) { return counts_[classes_.Find(ClassOf(patch, direction))]; }

  absl::Status TooMany() const {
    return absl::ResourceExhaustedError(absl::StrCat("tolerance_m: ", tolerance_m_, " needs more than ", max_triangles_, " triangles"));
  }

  absl::Status ChooseCounts() {
    counts_.assign(2 * object_.patches().size(), least_cells_);
    for (;;) {
      size_t triangles = 0;
      std::vector<size_t> next = counts_;
      for (uint32_t p = 0; p < object_.patches().size(); ++p) {
        const size_t nu = CountOf(p, NurbsDirection::kU), nv = CountOf(p, NurbsDirection::kV);
        const size_t of_patch = 2 * nu * nv * (breaks_[p][0].size() - 1) * (breaks_[p][1].size() - 1);
        triangles += of_patch;
        if (triangles > MostCounted(max_triangles_)) return TooMany();
        Bound worst;
        for (const NurbsSurface& bezier : object_.patches()[p].surface.BezierPatches()) {
          for (const NurbsSurface& slice : Slices(bezier, NurbsDirection::kU, nu)) {
            for (const NurbsSurface& cell : Slices(slice, NurbsDirection::kV, nv)) {
              const Bound bound = BoundOf(cell);
              worst.all_m = std::max(worst.all_m, bound.all_m);
              worst.along_u_m = std::max(worst.along_u_m, bound.along_u_m);
              worst.along_v_m = std::max(worst.along_v_m, bound.along_v_m);
            }
          }
        }
        if (worst.all_m <= tolerance_m_) continue;
        // The bound falls with the square of the counts. Small steps at the end; a direction that does not bend needs no more.
        const double factor = std::sqrt(worst.all_m / tolerance_m_);
        const double most_m = std::max(worst.along_u_m, worst.along_v_m);
        auto expected = static_cast<double>(of_patch);
        for (const auto& [direction, along_m] :
             {std::pair(NurbsDirection::kU, worst.along_u_m), std::pair(NurbsDirection::kV, worst.along_v_m)}) {
          if (most_m > 0 && along_m < 0.05 * most_m) continue;
          expected *= factor;
          if (most_m > 0 && along_m < 0.5 * most_m && factor < 2) continue;
          const size_t n = CountOf(p, direction);
          size_t& wanted = next[classes_.Find(ClassOf(p, direction))];
          wanted = std::max(wanted, std::max(n + 1, static_cast<size_t>(0.9 * std::min(4.0, factor) * static_cast<double>(n))));
        }
        // Hopeless ones are refused before the work.
        if (expected > 4.0 * static_cast<double>(MostCounted(max_triangles_))) return TooMany();
      }
      if (next == counts_) return absl::OkStatus();
      counts_ = std::move(next);
    }
  }

  /// Parameters of the lines of a patch.
  std::vector<double> LinesOf(uint32_t patch, NurbsDirection direction) {
    const std::vector<double>& breaks = breaks_[patch][direction == NurbsDirection::kU ? 0 : 1];
    const size_t n = CountOf(patch, direction);
    std::vector<double> lines = {breaks[0]};
    for (size_t k = 0; k + 1 < breaks.size(); ++k) {
      for (size_t i = 1; i <= n; ++i) lines.push_back(Mix(breaks[k], breaks[k + 1], i, n));
    }
    return lines;
  }

  /// Vertices of a side of a patch, along its parameter.
  std::vector<uint32_t> VerticesOf(const NurbsTrimPlace& place) const {
    const Grid& grid = grids_[place.patch];
    std::vector<uint32_t> out;
    const bool is_u = AlongOf(place.curve) == NurbsDirection::kU;
    for (size_t i = 0; i < (is_u ? grid.rows : grid.columns); ++i) {
      const size_t row = is_u ? i : place.curve == 1 ? grid.rows - 1 : 0;
      const size_t column = !is_u ? i : place.curve == 2 ? grid.columns - 1 : 0;
      out.push_back(grid.first + static_cast<uint32_t>(row * grid.columns + column));
    }
    return out;
  }

  SurfaceMesh Collect(std::vector<NurbsGridPlace>* places) {
    std::vector<Vector3d> points_m;
    std::vector<NurbsGridPlace> point_places;
    for (uint32_t p = 0; p < object_.patches().size(); ++p) {
      const std::vector<double> us = LinesOf(p, NurbsDirection::kU), vs = LinesOf(p, NurbsDirection::kV);
      grids_.push_back({static_cast<uint32_t>(points_m.size()), us.size(), vs.size()});
      for (const double u : us) {
        for (const double v : vs) {
          points_m.push_back(object_.patches()[p].surface.Point(u, v));
          point_places.push_back({p, u, v});
        }
      }
    }
    Sets same(points_m.size());
    for (const NurbsEdge& edge : edges_) {
      const std::vector<uint32_t> of_first = VerticesOf(edge.places[0]);
      if (edge.is_point) {
        for (const uint32_t v : of_first) same.Join(of_first[0], v);
      }
      for (size_t k = 1; k < edge.places.size(); ++k) {
        std::vector<uint32_t> other = VerticesOf(edge.places[k]);
        if (edge.places[k].is_opposed != edge.places[0].is_opposed) std::reverse(other.begin(), other.end());
        for (size_t i = 0; i < other.size(); ++i) same.Join(of_first[i], other[i]);
      }
    }
    SurfaceMesh mesh;
    if (places != nullptr) places->clear();
    constexpr uint32_t kNone = 0xffffffffU;
    std::vector<uint32_t> numbers(points_m.size(), kNone);
    const auto add = [&](std::array<uint32_t, 3> t) {
      if (t[0] == t[1] || t[1] == t[2] || t[2] == t[0]) return;  // at a pole
      for (uint32_t& v : t) {
        if (numbers[v] == kNone) {
          numbers[v] = static_cast<uint32_t>(mesh.vertices.size());
          mesh.vertices.push_back(points_m[v]);
          if (places != nullptr) places->push_back(point_places[v]);
        }
        v = numbers[v];
      }
      mesh.triangles.push_back(t);
    };
    for (const Grid& grid : grids_) {
      for (size_t i = 0; i + 1 < grid.rows; ++i) {
        for (size_t j = 0; j + 1 < grid.columns; ++j) {
          const auto at = [&](size_t di, size_t dj) {
            return same.Find(grid.first + static_cast<uint32_t>((i + di) * grid.columns + j + dj));
          };
          const uint32_t a = at(0, 0), b = at(1, 0), c = at(1, 1), d = at(0, 1);
          if ((points_m[a] - points_m[c]).squaredNorm() <= (points_m[b] - points_m[d]).squaredNorm()) {
            add({a, b, c});
            add({a, c, d});
          } else {
            add({a, b, d});
            add({b, c, d});
          }
        }
      }
    }
    return mesh;
  }

  struct Grid {
    uint32_t first;
    size_t rows, columns;
  };
  const NurbsObject& object_;
  double tolerance_m_;
  size_t least_cells_;
  size_t max_triangles_;
  Sets classes_;
  std::vector<NurbsEdge> edges_;
  std::vector<std::array<std::vector<double>, 2>> breaks_;  // [patch] u and v
  std::vector<size_t> counts_;                              // [class] cells between knots
  std::vector<Grid> grids_;
};

}  // namespace

absl::StatusOr<std::optional<SurfaceMesh>> TessellateNurbsGrids(const NurbsObject& object, double tolerance_m, double join_tolerance_m,
                                                                std::vector<NurbsGridPlace>* places, size_t least_cells,
                                                                size_t max_triangles) {
  if (!(tolerance_m > 0) || !std::isfinite(tolerance_m)) {
    return absl::InvalidArgumentError(absl::StrCat("tolerance_m: ", tolerance_m, ", it must be positive and finite"));
  }
  if (object.is_trimmed()) return std::nullopt;
  return Grids(object, tolerance_m, std::max<size_t>(least_cells, 1), max_triangles).Run(join_tolerance_m, places);
}

}  // namespace palpate::sim
