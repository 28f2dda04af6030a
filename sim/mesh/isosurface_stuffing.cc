#include "sim/mesh/isosurface_stuffing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "sim/mesh/mesh_repair.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;
using Eigen::Vector3i;

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// shares of the progress bar
constexpr double kSampleShare = 0.5;
constexpr double kCutShare = 0.2;
constexpr double kFillShare = 0.25;

// A cut point on the lattice edge from its owner along `direction` (see kOwnedDirections).
struct Cut {
  double t = 0;             // position as a fraction of the edge, from the owner
  uint32_t vertex = kNone;  // output vertex, once used
  uint8_t direction = 0;
};

// Body-centred cubic lattice. Points are corners (even half-steps) and centres (odd half-steps) of cubes of side a; a point's coordinates
// in half-steps are h = 2 * cell for a corner, 2 * cell + 1 for a centre.
class Lattice {
 public:
  Lattice(const Vector3d& origin, double a, const std::array<uint64_t, 3>& cells) : origin_(origin), half_(0.5 * a), n_(cells) {
    corner_count_ = (n_[0] + 1) * (n_[1] + 1) * (n_[2] + 1);
    point_count_ = corner_count_ + n_[0] * n_[1] * n_[2];
  }

  uint64_t point_count() const { return point_count_; }
  uint64_t cells(int axis) const { return n_[axis]; }

  // Precondition: all three coordinates even, or all odd, and inside the lattice.
  uint32_t Id(const Vector3i& h) const {
    const uint64_t i = static_cast<uint64_t>(h[0] >> 1);
    const uint64_t j = static_cast<uint64_t>(h[1] >> 1);
    const uint64_t k = static_cast<uint64_t>(h[2] >> 1);
    if ((h[0] & 1) == 0) return static_cast<uint32_t>(i + (n_[0] + 1) * (j + (n_[1] + 1) * k));
    return static_cast<uint32_t>(corner_count_ + i + n_[0] * (j + n_[1] * k));
  }

  Vector3i HalfSteps(uint32_t id) const {
    const bool centre = id >= corner_count_;
    const uint64_t local = centre ? id - corner_count_ : id;
    const uint64_t nx = centre ? n_[0] : n_[0] + 1;
    const uint64_t ny = centre ? n_[1] : n_[1] + 1;
    const Vector3i cell(static_cast<int>(local % nx), static_cast<int>(local / nx % ny), static_cast<int>(local / nx / ny));
    return 2 * cell + Vector3i::Constant(centre ? 1 : 0);
  }

  bool Contains(const Vector3i& h) const {
    for (int axis = 0; axis < 3; ++axis) {
      if (h[axis] < 0 || h[axis] > 2 * static_cast<int>(n_[axis])) return false;
    }
    return true;
  }

  // True for points of the outermost cubes' outer faces and for those cubes' centres.
  bool IsOutermost(const Vector3i& h) const {
    for (int axis = 0; axis < 3; ++axis) {
      if (h[axis] <= 1 || h[axis] >= 2 * static_cast<int>(n_[axis]) - 1) return true;
    }
    return false;
  }

  Vector3d Position(const Vector3i& h) const { return origin_ + half_ * h.cast<double>(); }

 private:
  Vector3d origin_;
  double half_;
  std::array<uint64_t, 3> n_;
  uint64_t corner_count_;
  uint64_t point_count_;
};

// Each lattice edge belongs to one of its ends: the long ones (0..2) to the end of lower coordinate, the short ones (3..10) to the corner.
constexpr int kDirectionCount = 11;
constexpr int kLongDirectionCount = 3;
const std::array<Vector3i, kDirectionCount> kOwnedDirections = {
    Vector3i(2, 0, 0),  Vector3i(0, 2, 0),   Vector3i(0, 0, 2),  Vector3i(-1, -1, -1), Vector3i(1, -1, -1), Vector3i(-1, 1, -1),
    Vector3i(1, 1, -1), Vector3i(-1, -1, 1), Vector3i(1, -1, 1), Vector3i(-1, 1, 1),   Vector3i(1, 1, 1)};

int DirectionCount(const Vector3i& h) { return (h[0] & 1) == 0 ? kDirectionCount : kLongDirectionCount; }

// Tets of at least this quality are left alone by the smoothing. [radians]
constexpr double kGoodQuality = 18 * std::numbers::pi / 180;

class Stuffing {
 public:
  Stuffing(const ImplicitFunction& f, const StuffingOptions& options, Lattice lattice)
      : f_(f), options_(options), lattice_(std::move(lattice)), value_(lattice_.point_count()) {}

  absl::StatusOr<TetMesh> Run() {
    PALPATE_RETURN_IF_ERROR(Sample());
    PALPATE_RETURN_IF_ERROR(FindCuts());
    Warp();
    PALPATE_RETURN_IF_ERROR(Fill());
    PALPATE_RETURN_IF_ERROR(FillNotches());
    MakeManifold();
    Smooth();
    if (mesh_.tets.empty()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "edge_length_m = %g: too coarse, no tetrahedron fits into the solid; take a smaller edge length", options_.edge_length_m));
    }
    PALPATE_RETURN_IF_ERROR(Report(1));
    return std::move(mesh_);
  }

 private:
  absl::Status Report(double fraction) const {
    if (options_.progress && !options_.progress(std::min(fraction, 1.0))) return absl::CancelledError("meshing was cancelled");
    return absl::OkStatus();
  }

  absl::StatusOr<double> Evaluate(const Vector3d& x) const {
    const double value = f_(x);
    if (!std::isfinite(value)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("implicit function: value %g at (%g, %g, %g) m, must be finite", value, x[0], x[1], x[2]));
    }
    return value;
  }

  absl::Status Sample();
  absl::Status SampleBlock(const Vector3i& first, int size);
  absl::Status FindCuts();
  void Warp();
  absl::Status Fill();
  absl::Status FillTet(const std::array<Vector3i, 4>& h);
  void FillPrismOnThree(const std::array<Vector3i, 4>& h, int id);
  void FillPrismOnTwo(const std::array<Vector3i, 4>& h, const std::array<int, 4>& inside, const std::array<int, 4>& outside);
  void FillPyramid(const std::array<Vector3i, 4>& h, const std::array<int, 4>& inside, int ir, int iz);
  absl::Status FillNotches();
  void MakeManifold();
  void Smooth();

  bool Inside(uint32_t id) const { return value_[id] < 0; }
  bool Outside(uint32_t id) const { return value_[id] > 0; }

  // Output vertex of a lattice point that is inside or on the surface.
  uint32_t PointVertex(const Vector3i& h) {
    const uint32_t id = lattice_.Id(h);
    uint32_t& vertex = point_vertex_[id];
    if (vertex == kNone) {
      vertex = static_cast<uint32_t>(mesh_.vertices.size());
      const uint32_t warp = warp_[id];
      mesh_.vertices.push_back(warp == kNone ? lattice_.Position(h) : CutPosition(warp));
      on_surface_.push_back(value_[id] == 0 ? 1 : 0);
      if (value_[id] != 0) free_vertices_.push_back(vertex);
    }
    return vertex;
  }

  // Output vertex of the cut point between an inside and an outside lattice point.
  uint32_t CutVertex(const Vector3i& p, const Vector3i& q) {
    Cut& cut = cuts_[FindCut(p, q)];
    if (cut.vertex == kNone) {
      cut.vertex = static_cast<uint32_t>(mesh_.vertices.size());
      mesh_.vertices.push_back(CutPosition(static_cast<uint32_t>(&cut - cuts_.data())));
      on_surface_.push_back(0);
    }
    return cut.vertex;
  }

  size_t FindCut(Vector3i p, Vector3i q) const {
    Vector3i d = q - p;
    const bool is_long = d.cwiseAbs().sum() == 2;
    if (is_long ? d.sum() < 0 : (p[0] & 1) != 0) {
      std::swap(p, q);
      d = -d;
    }
    const uint32_t owner = lattice_.Id(p);
    for (size_t c = first_cut_[owner]; c < first_cut_[owner + 1]; ++c) {
      if (kOwnedDirections[cuts_[c].direction] == d) return c;
    }
    return cuts_.size();  // not reached: a cut exists wherever the signs differ
  }

  Vector3d CutPosition(uint32_t c) const {
    const Vector3i owner = lattice_.HalfSteps(cut_owner_[c]);
    const Vector3d from = lattice_.Position(owner);
    const Vector3d to = lattice_.Position(owner + kOwnedDirections[cuts_[c].direction]);
    return from + cuts_[c].t * (to - from);
  }

  // How the quadrilateral p q cut(q, r) cut(p, r) on the face (p, q inside, r outside) is split: true for the diagonal p - cut(q, r), false
  // for q - cut(p, r). Depends on the face alone, so that both tets at it agree. A cut on the face's long edge takes the diagonal; if the
  // long edge is p q, the parity rule decides: p takes it if an even number of r's coordinates exceeds p's.
  static bool DiagonalAtFirst(const Vector3i& p, const Vector3i& q, const Vector3i& r) {
    if ((r - p).cwiseAbs().sum() == 2) return false;
    if ((r - q).cwiseAbs().sum() == 2) return true;
    const int greater = (r[0] > p[0] ? 1 : 0) + (r[1] > p[1] ? 1 : 0) + (r[2] > p[2] ? 1 : 0);
    return greater % 2 == 0;
  }

  void Emit(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { mesh_.tets.push_back({a, b, c, d}); }

  const ImplicitFunction& f_;
  const StuffingOptions& options_;
  Lattice lattice_;
  std::vector<double> value_;                       // [point_count]
  std::vector<uint32_t> first_cut_;                 // [point_count + 1] into cuts_
  std::vector<Cut> cuts_;                           // by owner
  std::vector<uint32_t> cut_owner_;                 // [cut count] lattice point
  std::vector<uint32_t> warp_;                      // [point_count] cut that the point moved to, or kNone
  std::vector<uint32_t> point_vertex_;              // [point_count] output vertex or kNone
  std::vector<uint8_t> on_surface_;                 // [vertex count] 1 for lattice points of value 0
  std::vector<std::array<uint32_t, 4>> zero_tets_;  // background tets whose four points are all on the surface
  std::vector<uint32_t> free_vertices_;             // output vertices strictly inside, ascending
  TetMesh mesh_;
};

absl::Status Stuffing::Sample() {
  constexpr int kBlock = 16;
  const Vector3i n(static_cast<int>(lattice_.cells(0)) + 1, static_cast<int>(lattice_.cells(1)) + 1,
                   static_cast<int>(lattice_.cells(2)) + 1);
  for (int k = 0; k < n[2]; k += kBlock) {
    for (int j = 0; j < n[1]; j += kBlock) {
      PALPATE_RETURN_IF_ERROR(Report(kSampleShare * (k + kBlock * (static_cast<double>(j) / n[1])) / (n[2] + kBlock)));
      for (int i = 0; i < n[0]; i += kBlock) PALPATE_RETURN_IF_ERROR(SampleBlock(Vector3i(i, j, k), kBlock));
    }
  }
  bool any_inside = false;
  for (uint64_t id = 0; id < lattice_.point_count(); ++id) {
    if (value_[id] > 0) continue;
    const Vector3i h = lattice_.HalfSteps(static_cast<uint32_t>(id));
    if (lattice_.IsOutermost(h)) {
      const Vector3d x = lattice_.Position(h);
      return absl::InvalidArgumentError(absl::StrFormat(
          "bounds_m: the solid reaches out of the bounds, at (%g, %g, %g) m the function is %g", x[0], x[1], x[2], value_[id]));
    }
    any_inside = any_inside || value_[id] < 0;
  }
  if (!any_inside) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "edge_length_m = %g: no lattice point lies inside the solid; it is empty or thinner than the edge length", options_.edge_length_m));
  }
  return absl::OkStatus();
}

// Samples the cells [first, first + size) and the corners at their lower ends.
absl::Status Stuffing::SampleBlock(const Vector3i& first, int size) {
  const Vector3i n(static_cast<int>(lattice_.cells(0)), static_cast<int>(lattice_.cells(1)), static_cast<int>(lattice_.cells(2)));
  if ((first.array() > n.array()).any()) return absl::OkStatus();
  const Vector3i last = (first + Vector3i::Constant(size - 1)).cwiseMin(n);
  double constant = 0;
  if (options_.is_distance) {
    // no neighbour of a point in the block can be across the surface if the distance at its middle exceeds radius + one edge
    const Vector3d low = lattice_.Position(2 * first);
    const Vector3d high = lattice_.Position(2 * last + Vector3i::Ones());
    const double reach = (0.5 * (high - low).norm() + options_.edge_length_m) * (1 + 1e-9);
    PALPATE_ASSIGN_OR_RETURN(const double middle, Evaluate(0.5 * (low + high)));
    if (std::abs(middle) > reach) {
      constant = middle;
    } else if (size > 2) {
      for (int child = 0; child < 8; ++child) {
        const Vector3i offset(child & 1, child >> 1 & 1, child >> 2);
        PALPATE_RETURN_IF_ERROR(SampleBlock(first + size / 2 * offset, size / 2));
      }
      return absl::OkStatus();
    }
  }
  for (int k = first[2]; k <= last[2]; ++k) {
    for (int j = first[1]; j <= last[1]; ++j) {
      for (int i = first[0]; i <= last[0]; ++i) {
        const Vector3i corner = 2 * Vector3i(i, j, k);
        const Vector3i centre = corner + Vector3i::Ones();
        for (const Vector3i& h : {corner, centre}) {
          if (!lattice_.Contains(h)) continue;
          double value = constant;
          if (constant == 0) {
            PALPATE_ASSIGN_OR_RETURN(value, Evaluate(lattice_.Position(h)));
          }
          value_[lattice_.Id(h)] = value;
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Stuffing::FindCuts() {
  const uint64_t count = lattice_.point_count();
  first_cut_.assign(count + 1, 0);
  for (uint64_t id64 = 0; id64 < count; ++id64) {
    const auto id = static_cast<uint32_t>(id64);
    if ((id & 0xffff) == 0)
      PALPATE_RETURN_IF_ERROR(Report(kSampleShare + kCutShare * static_cast<double>(id64) / static_cast<double>(count)));
    first_cut_[id] = static_cast<uint32_t>(cuts_.size());
    if (value_[id] == 0) continue;
    const Vector3i h = lattice_.HalfSteps(id);
    for (int direction = 0; direction < DirectionCount(h); ++direction) {
      const Vector3i neighbour = h + kOwnedDirections[direction];
      if (!lattice_.Contains(neighbour)) continue;
      double f0 = value_[id];
      double f1 = value_[lattice_.Id(neighbour)];
      if (f1 == 0 || (f0 < 0) == (f1 < 0)) continue;

      // false position with the Illinois rule; the first guess is the linear interpolation
      const Vector3d from = lattice_.Position(h);
      const Vector3d edge = lattice_.Position(neighbour) - from;
      double t0 = 0;
      double t1 = 1;
      double t = f0 / (f0 - f1);
      int last_side = 0;
      for (int i = 0; i < options_.root_iterations; ++i) {
        PALPATE_ASSIGN_OR_RETURN(const double value, Evaluate(from + t * edge));
        if (value == 0 || t1 - t0 < 1e-12) break;
        if ((value < 0) == (f0 < 0)) {
          t0 = t;
          f0 = value;
          if (last_side == -1) f1 *= 0.5;
          last_side = -1;
        } else {
          t1 = t;
          f1 = value;
          if (last_side == 1) f0 *= 0.5;
          last_side = 1;
        }
        t = std::clamp(t0 + (t1 - t0) * (f0 / (f0 - f1)), t0, t1);
      }
      cuts_.push_back(Cut{.t = t, .direction = static_cast<uint8_t>(direction)});
      cut_owner_.push_back(id);
    }
  }
  first_cut_[count] = static_cast<uint32_t>(cuts_.size());
  return absl::OkStatus();
}

// Moves violated lattice points onto cut points, the most violated first. A cut vanishes when one of its ends has moved.
void Stuffing::Warp() {
  struct Violation {
    double ratio;
    uint32_t point;
    uint32_t other;
    uint32_t cut;
  };
  std::vector<Violation> violations;
  for (uint32_t c = 0; c < cuts_.size(); ++c) {
    const uint32_t owner = cut_owner_[c];
    const uint32_t other = lattice_.Id(lattice_.HalfSteps(owner) + kOwnedDirections[cuts_[c].direction]);
    const double alpha = cuts_[c].direction < kLongDirectionCount ? kStuffingAlphaLong : kStuffingAlphaShort;
    if (cuts_[c].t < alpha) violations.push_back({cuts_[c].t / alpha, owner, other, c});
    if (1 - cuts_[c].t < alpha) violations.push_back({(1 - cuts_[c].t) / alpha, other, owner, c});
  }
  std::sort(violations.begin(), violations.end(), [](const Violation& a, const Violation& b) {
    if (a.ratio != b.ratio) return a.ratio < b.ratio;
    return a.cut != b.cut ? a.cut < b.cut : a.point < b.point;
  });
  warp_.assign(lattice_.point_count(), kNone);
  for (const Violation& violation : violations) {
    if (value_[violation.point] == 0 || value_[violation.other] == 0) continue;
    value_[violation.point] = 0;
    warp_[violation.point] = violation.cut;
  }
}

absl::Status Stuffing::Fill() {
  point_vertex_.assign(lattice_.point_count(), kNone);
  const Vector3i n(static_cast<int>(lattice_.cells(0)), static_cast<int>(lattice_.cells(1)), static_cast<int>(lattice_.cells(2)));
  for (int k = 0; k < n[2]; ++k) {
    PALPATE_RETURN_IF_ERROR(Report(kSampleShare + kCutShare + kFillShare * k / n[2]));
    for (int j = 0; j < n[1]; ++j) {
      for (int i = 0; i < n[0]; ++i) {
        const Vector3i centre = 2 * Vector3i(i, j, k) + Vector3i::Ones();
        for (int axis = 0; axis < 3; ++axis) {
          Vector3i next = centre;
          next[axis] += 2;
          if (!lattice_.Contains(next)) continue;
          // the four edges of the face between the two cells, as a cycle around `axis`
          const int u = (axis + 1) % 3;
          const int v = (axis + 2) % 3;
          std::array<Vector3i, 4> corner;
          for (int c = 0; c < 4; ++c) {
            corner[c] = centre;
            corner[c][axis] += 1;
            corner[c][u] += (c == 0 || c == 3) ? -1 : 1;
            corner[c][v] += c < 2 ? -1 : 1;
          }
          for (int c = 0; c < 4; ++c) PALPATE_RETURN_IF_ERROR(FillTet({centre, next, corner[c], corner[(c + 1) % 4]}));
        }
      }
    }
  }
  return absl::OkStatus();
}

// Whether (a, b, c, d) is an even permutation of (0, 1, 2, 3).
bool IsEven(int a, int b, int c, int d) {
  const int inversions = (a > b) + (a > c) + (a > d) + (b > c) + (b > d) + (c > d);
  return inversions % 2 == 0;
}

// A prism between the triangles a b c and A B C of the cut points; d a is a long edge, so two diagonals meet in A.
void Stuffing::FillPrismOnThree(const std::array<Vector3i, 4>& h, int id) {
  const int ia = id ^ 1;
  int ib = id < 2 ? 2 : 0;
  int ic = ib + 1;
  if (!IsEven(ia, ib, ic, id)) std::swap(ib, ic);
  const uint32_t a = PointVertex(h[ia]);
  const uint32_t b = PointVertex(h[ib]);
  const uint32_t c = PointVertex(h[ic]);
  const uint32_t cut_a = CutVertex(h[ia], h[id]);
  const uint32_t cut_b = CutVertex(h[ib], h[id]);
  const uint32_t cut_c = CutVertex(h[ic], h[id]);
  Emit(a, b, c, cut_a);
  if (DiagonalAtFirst(h[ib], h[ic], h[id])) {
    Emit(c, b, cut_c, cut_a);
    Emit(cut_c, b, cut_b, cut_a);
  } else {
    Emit(c, b, cut_b, cut_a);
    Emit(cut_c, c, cut_b, cut_a);
  }
}

// A prism between the triangles p pr ps and q qr qs; the diagonals at p q never leave the same end, see DiagonalAtFirst.
void Stuffing::FillPrismOnTwo(const std::array<Vector3i, 4>& h, const std::array<int, 4>& inside, const std::array<int, 4>& outside) {
  const int ip = inside[0];
  const int iq = inside[1];
  int ir = outside[0];
  int is = outside[1];
  if (!IsEven(ip, iq, ir, is)) std::swap(ir, is);
  const uint32_t p = PointVertex(h[ip]);
  const uint32_t q = PointVertex(h[iq]);
  const uint32_t pr = CutVertex(h[ip], h[ir]);
  const uint32_t ps = CutVertex(h[ip], h[is]);
  const uint32_t qr = CutVertex(h[iq], h[ir]);
  const uint32_t qs = CutVertex(h[iq], h[is]);
  if (DiagonalAtFirst(h[ip], h[iq], h[ir])) {
    Emit(p, q, qr, ps);
    Emit(p, pr, ps, qr);
    Emit(q, qs, qr, ps);
  } else {
    Emit(p, q, pr, qs);
    Emit(p, pr, ps, qs);
    Emit(q, qs, qr, pr);
  }
}

// A pyramid: base p q qr pr, apex z.
void Stuffing::FillPyramid(const std::array<Vector3i, 4>& h, const std::array<int, 4>& inside, int ir, int iz) {
  const int ip = inside[0];
  const int iq = inside[1];
  const uint32_t p = PointVertex(h[ip]);
  const uint32_t q = PointVertex(h[iq]);
  const uint32_t pr = CutVertex(h[ip], h[ir]);
  const uint32_t qr = CutVertex(h[iq], h[ir]);
  const uint32_t z = PointVertex(h[iz]);
  std::array<std::array<uint32_t, 4>, 2> tets;
  if (DiagonalAtFirst(h[ip], h[iq], h[ir])) {
    tets = {{{p, q, qr, z}, {p, qr, pr, z}}};
  } else {
    tets = {{{p, q, pr, z}, {q, qr, pr, z}}};
  }
  for (std::array<uint32_t, 4>& tet : tets) {
    if (!IsEven(ip, iq, ir, iz)) std::swap(tet[0], tet[1]);
    mesh_.tets.push_back(tet);
  }
}

// Emits the part of one background tet that lies inside. h: positively oriented; h[0] h[1] and h[2] h[3] are its long edges.
absl::Status Stuffing::FillTet(const std::array<Vector3i, 4>& h) {
  std::array<int, 4> inside{};
  std::array<int, 4> zero{};
  std::array<int, 4> outside{};
  int inside_count = 0;
  int zero_count = 0;
  int outside_count = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t id = lattice_.Id(h[i]);
    if (Inside(id)) {
      inside[inside_count++] = i;
    } else if (Outside(id)) {
      outside[outside_count++] = i;
    } else {
      zero[zero_count++] = i;
    }
  }
  if (zero_count == 4) zero_tets_.push_back({lattice_.Id(h[0]), lattice_.Id(h[1]), lattice_.Id(h[2]), lattice_.Id(h[3])});
  if (inside_count == 0) return absl::OkStatus();
  if (mesh_.tets.size() + 3 > options_.max_tets || mesh_.vertices.size() + 4 >= kNone) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("edge_length_m = %g: the mesh needs more than %u tets, the limit; take a larger edge length",
                        options_.edge_length_m, options_.max_tets));
  }
  if (inside_count == 1 || outside_count == 0) {
    const Vector3i& apex = h[inside[0]];
    std::array<uint32_t, 4> tet;
    for (int i = 0; i < 4; ++i) tet[i] = Outside(lattice_.Id(h[i])) ? CutVertex(apex, h[i]) : PointVertex(h[i]);
    mesh_.tets.push_back(tet);
  } else if (inside_count == 3) {
    FillPrismOnThree(h, outside[0]);
  } else if (outside_count == 2) {
    FillPrismOnTwo(h, inside, outside);
  } else {
    FillPyramid(h, inside, outside[0], zero[0]);
  }
  return absl::OkStatus();
}

// Background tets with all points on the surface are left out by the stencils, which leaves notches where the solid is thin. Those that are
// well shaped, have their middle inside and share at least two faces with the mesh are put back.
absl::Status Stuffing::FillNotches() {
  if (zero_tets_.empty()) return absl::OkStatus();
  std::vector<std::array<uint32_t, 3>> faces;
  const auto sorted_face = [](const std::array<uint32_t, 4>& tet, int opposite) {
    std::array<uint32_t, 3> face{};
    int n = 0;
    for (int i = 0; i < 4; ++i) {
      if (i != opposite) face[n++] = tet[i];
    }
    std::sort(face.begin(), face.end());
    return face;
  };
  for (const auto& tet : mesh_.tets) {
    for (int i = 0; i < 4; ++i) {
      const auto face = sorted_face(tet, i);
      if (on_surface_[face[0]] + on_surface_[face[1]] + on_surface_[face[2]] == 3) faces.push_back(face);
    }
  }
  std::sort(faces.begin(), faces.end());
  for (const auto& points : zero_tets_) {
    std::array<uint32_t, 4> tet;
    for (int i = 0; i < 4; ++i) tet[i] = point_vertex_[points[i]];
    if (std::find(tet.begin(), tet.end(), kNone) != tet.end()) continue;
    int shared = 0;
    for (int i = 0; i < 4; ++i) shared += std::binary_search(faces.begin(), faces.end(), sorted_face(tet, i)) ? 1 : 0;
    if (shared < 2 || BoundQuality(mesh_, tet) < kGoodQuality) continue;
    Vector3d middle = Vector3d::Zero();
    for (const uint32_t v : tet) middle += 0.25 * mesh_.vertices[v];
    PALPATE_ASSIGN_OR_RETURN(const double value, Evaluate(middle));
    if (value < 0) mesh_.tets.push_back(tet);
  }
  return absl::OkStatus();
}

// Where sheets of the surface meet in lattice points of value 0, the boundary would pinch. Pieces that only touch get vertices of their
// own; where pieces are also joined otherwise, the fewest tets are dropped. Cut points need no care: only one side of their lattice edge is
// inside.
void Stuffing::MakeManifold() {
  std::vector<uint8_t>& suspect = on_surface_;
  sim::MakeManifold(&mesh_, &suspect, nullptr);
  // vertices that lost all their tets go; those that may be on the surface now are not free to move
  std::vector<uint32_t> renumbered(mesh_.vertices.size(), kNone);
  for (const auto& tet : mesh_.tets) {
    for (const uint32_t v : tet) renumbered[v] = 0;
  }
  uint32_t kept = 0;
  for (size_t v = 0; v < mesh_.vertices.size(); ++v) {
    if (renumbered[v] == kNone) continue;
    renumbered[v] = kept;
    mesh_.vertices[kept] = mesh_.vertices[v];
    ++kept;
  }
  mesh_.vertices.resize(kept);
  for (auto& tet : mesh_.tets) {
    for (uint32_t& v : tet) v = renumbered[v];
  }
  size_t free_count = 0;
  for (const uint32_t v : free_vertices_) {
    if (suspect[v] == 0 && renumbered[v] != kNone) free_vertices_[free_count++] = renumbered[v];
  }
  free_vertices_.resize(free_count);
}

// Moves vertices strictly inside the solid where that lifts the worst angle of the tets around them. Only tets that are close to the bounds
// are treated, so the lattice stays as it is elsewhere, and the surface does not change.
void Stuffing::Smooth() {
  constexpr int kPasses = 6;
  constexpr int kMaxTries = 64;
  std::vector<uint8_t> is_free(mesh_.vertices.size(), 0);
  for (const uint32_t v : free_vertices_) is_free[v] = 1;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<uint8_t> wanted(mesh_.vertices.size(), 0);
    bool any = false;
    for (const auto& tet : mesh_.tets) {
      if (is_free[tet[0]] + is_free[tet[1]] + is_free[tet[2]] + is_free[tet[3]] == 4) continue;  // a lattice tet
      if (BoundQuality(mesh_, tet) >= kGoodQuality) continue;
      for (const uint32_t v : tet) wanted[v] = is_free[v];
      any = true;
    }
    if (!any) return;
    std::vector<uint32_t> first(mesh_.vertices.size() + 1, 0);
    for (const auto& tet : mesh_.tets) {
      for (const uint32_t v : tet) first[v + 1] += wanted[v];
    }
    for (size_t v = 0; v < mesh_.vertices.size(); ++v) first[v + 1] += first[v];
    std::vector<uint32_t> tets(first.back());
    std::vector<uint32_t> fill(first.begin(), first.end() - 1);
    for (uint32_t t = 0; t < mesh_.tets.size(); ++t) {
      for (const uint32_t v : mesh_.tets[t]) {
        if (wanted[v] != 0) tets[fill[v]++] = t;
      }
    }
    bool moved = false;
    for (uint32_t v = 0; v < mesh_.vertices.size(); ++v) {
      if (wanted[v] == 0) continue;
      // a try ends at the first tet that is no better than the best so far
      const auto worst = [&](double floor) {
        double quality = kGoodQuality;
        for (uint32_t s = first[v]; s < first[v + 1] && quality > floor; ++s)
          quality = std::min(quality, BoundQuality(mesh_, mesh_.tets[tets[s]]));
        return quality;
      };
      Vector3d& x = mesh_.vertices[v];
      double best = worst(-2);
      double step_m = 0.08 * options_.edge_length_m;
      for (int tries = 0; tries < kMaxTries && best < kGoodQuality && step_m > 0.002 * options_.edge_length_m;) {
        const Vector3d start = x;
        Vector3d best_x = start;
        for (int direction = 0; direction < 14; ++direction) {
          // the lattice directions
          const Vector3i d = direction < 6
                                 ? Vector3i(direction % 2 == 0 ? kOwnedDirections[direction / 2] : -kOwnedDirections[direction / 2])
                                 : kOwnedDirections[direction - 3];
          x = start + step_m * d.cast<double>().normalized();
          const double quality = worst(best);
          if (quality <= best) continue;
          best = quality;
          best_x = x;
        }
        x = best_x;
        if (best_x == start) {
          step_m *= 0.5;
        } else {
          moved = true;
        }
        ++tries;
      }
    }
    if (!moved) return;
  }
}

}  // namespace

absl::StatusOr<TetMesh> StuffIsosurface(const ImplicitFunction& f, const Eigen::AlignedBox3d& bounds_m, const StuffingOptions& options) {
  const double a = options.edge_length_m;
  if (!(a > 0) || !std::isfinite(a))
    return absl::InvalidArgumentError(absl::StrFormat("edge_length_m = %g: must be positive and finite", a));
  if (options.root_iterations < 0 || options.root_iterations > 64) {
    return absl::InvalidArgumentError(absl::StrFormat("root_iterations = %d: must be in [0, 64]", options.root_iterations));
  }
  if (bounds_m.isEmpty() || !bounds_m.min().allFinite() || !bounds_m.max().allFinite()) {
    return absl::InvalidArgumentError("bounds_m: must be finite and not empty");
  }
  // one cell of margin on each side; centred, so that a symmetric solid gets a lattice that is symmetric about its middle
  std::array<uint64_t, 3> cells{};
  std::array<double, 3> cells_wanted{};
  double points = 0;
  for (int axis = 0; axis < 3; ++axis) cells_wanted[axis] = std::ceil(bounds_m.sizes()[axis] / a) + 2;
  points = (cells_wanted[0] + 1) * (cells_wanted[1] + 1) * (cells_wanted[2] + 1) + cells_wanted[0] * cells_wanted[1] * cells_wanted[2];
  const double limit = std::min(static_cast<double>(options.max_lattice_points), 4e9 / kDirectionCount);
  if (!(points <= limit)) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("edge_length_m = %g: the background lattice needs %.0f points (%.0f x %.0f x %.0f cells), more than the limit of "
                        "%.0f; take a larger edge length",
                        a, points, cells_wanted[0], cells_wanted[1], cells_wanted[2], limit));
  }
  for (int axis = 0; axis < 3; ++axis) cells[axis] = static_cast<uint64_t>(cells_wanted[axis]);
  const Vector3d size(a * cells_wanted[0], a * cells_wanted[1], a * cells_wanted[2]);
  return Stuffing(f, options, Lattice(bounds_m.center() - 0.5 * size, a, cells)).Run();
}

}  // namespace palpate::sim
