#include "sim/mesh/graded_lattice.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;
using Eigen::Vector3i;
using Tet = std::array<uint32_t, 4>;

constexpr int kBits = 21;         // of a coordinate in a key
constexpr double kMargin = 0.75;  // of lattice around what is meshed, in cells; a tet spans one
constexpr double kMaxUnits = (1 << kBits) - 2;

// Edges of a tet as pairs of corners; edge i is opposite to edge 5 - i.
constexpr int kEdges[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
// Edges of the face opposite to each corner.
constexpr unsigned kFaceEdges[4] = {0b111000, 0b100110, 0b010101, 0b001011};
constexpr int kFaceCorners[4][3] = {{1, 2, 3}, {0, 3, 2}, {0, 1, 3}, {0, 2, 1}};

class Refiner {
 public:
  explicit Refiner(const GradedLatticeOptions& options) : options_(options) {}

  absl::StatusOr<GradedLattice> Run() {
    PALPATE_RETURN_IF_ERROR(MakeCoarse());
    for (int level = 0; level < options_.levels; ++level) PALPATE_RETURN_IF_ERROR(RefineWanted(level));
    PALPATE_RETURN_IF_ERROR(Close());
    Finish();
    return std::move(out_);
  }

 private:
  absl::Status MakeCoarse();
  absl::Status RefineWanted(int level);
  absl::Status Close();
  void Finish();
  absl::Status Split(const Tet& tet, int level);
  bool MustSplit(const Tet& tet, unsigned* split_edges) const;
  void EmitGreen(const Tet& tet, unsigned split_edges);

  absl::Status CheckCount() const {
    uint64_t count = 0;
    for (const auto& leaves : leaves_) count += leaves.size();
    if (count <= options_.max_tets) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrFormat("edge length %g m: the background lattice needs more than %u tets, the limit; take a larger one",
                        options_.finest_edge_m, options_.max_tets));
  }

  static uint64_t Key(const Vector3i& p) {
    return static_cast<uint64_t>(p[0]) | static_cast<uint64_t>(p[1]) << kBits | static_cast<uint64_t>(p[2]) << (2 * kBits);
  }

  uint32_t Node(const Vector3i& p) {
    const auto [at, is_new] = ids_.try_emplace(Key(p), static_cast<uint32_t>(out_.nodes.size()));
    if (is_new) out_.nodes.push_back(p);
    return at->second;
  }

  // Whether a node lies in the middle of two points.
  bool HasMiddle(const Vector3i& a, const Vector3i& b) const {
    const Vector3i sum = a + b;
    if (((sum[0] | sum[1] | sum[2]) & 1) != 0) return false;
    return ids_.contains(Key(sum / 2));
  }
  uint32_t Middle(uint32_t a, uint32_t b) { return Node((out_.nodes[a] + out_.nodes[b]) / 2); }

  int WantedLevel(const Tet& tet, double margin_m) const {
    return options_.wanted_level({out_.Position(tet[0]), out_.Position(tet[1]), out_.Position(tet[2]), out_.Position(tet[3])}, margin_m);
  }

  const GradedLatticeOptions& options_;
  GradedLattice out_;
  absl::flat_hash_map<uint64_t, uint32_t> ids_;  // looked up, never iterated
  std::vector<std::vector<Tet>> leaves_;         // [levels + 1] corners 0 1 and 2 3 are the long edges
};

absl::Status Refiner::MakeCoarse() {
  leaves_.resize(static_cast<size_t>(options_.levels) + 1);
  const double cell_m = options_.finest_edge_m * (1 << options_.levels);
  const int step = 2 << options_.levels;
  Vector3i n;
  for (int axis = 0; axis < 3; ++axis) {
    const double cells = std::ceil(options_.bounds_m.sizes()[axis] / cell_m) + 3;
    if (!(cells * step < kMaxUnits)) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("edge length %g m: the background lattice needs %.0f cells along an axis, more than %.0f; take a larger one",
                          options_.finest_edge_m, cells, kMaxUnits / step));
    }
    n[axis] = static_cast<int>(cells);
  }
  out_.unit_m = 0.5 * options_.finest_edge_m;
  out_.origin_m = options_.bounds_m.center() - 0.5 * cell_m * n.cast<double>();
  for (int k = 0; k < n[2]; ++k) {
    PALPATE_RETURN_IF_ERROR(CheckCount());
    for (int j = 0; j < n[1]; ++j) {
      for (int i = 0; i < n[0]; ++i) {
        const Vector3i centre = step * Vector3i(i, j, k) + Vector3i::Constant(step / 2);
        for (int axis = 0; axis < 3; ++axis) {
          Vector3i next = centre;
          next[axis] += step;
          if (next[axis] > step * n[axis]) continue;
          // the four edges of the face between the two cells, as a cycle around `axis`
          std::array<Vector3i, 4> corner;
          for (int c = 0; c < 4; ++c) {
            corner[c] = centre;
            corner[c][axis] += step / 2;
            corner[c][(axis + 1) % 3] += (c == 0 || c == 3) ? -step / 2 : step / 2;
            corner[c][(axis + 2) % 3] += c < 2 ? -step / 2 : step / 2;
          }
          for (int c = 0; c < 4; ++c) {
            const std::array<Vector3i, 4> tet = {centre, next, corner[c], corner[(c + 1) % 4]};
            std::array<Vector3d, 4> place;
            for (int v = 0; v < 4; ++v) place[v] = out_.origin_m + out_.unit_m * tet[v].cast<double>();
            if (options_.wanted_level(place, kMargin * cell_m) < 0) continue;
            leaves_[0].push_back({Node(tet[0]), Node(tet[1]), Node(tet[2]), Node(tet[3])});
          }
        }
      }
    }
  }
  return CheckCount();
}

absl::Status Refiner::RefineWanted(int level) {
  std::vector<Tet> tets = std::move(leaves_[level]);
  leaves_[level].clear();
  const double margin_m = 0.25 * options_.finest_edge_m * (1 << (options_.levels - level - 1));
  size_t done = 0;
  for (const Tet& tet : tets) {
    if ((++done & 0xfff) == 0) PALPATE_RETURN_IF_ERROR(CheckCount());
    if (WantedLevel(tet, margin_m) > level) {
      PALPATE_RETURN_IF_ERROR(Split(tet, level));
    } else {
      leaves_[level].push_back(tet);
    }
  }
  return CheckCount();
}

// Eight children, all similar to the parent: the octahedron in the middle is split along the middle of the long edges.
absl::Status Refiner::Split(const Tet& v, int level) {
  const uint32_t m01 = Middle(v[0], v[1]);
  const uint32_t m02 = Middle(v[0], v[2]);
  const uint32_t m03 = Middle(v[0], v[3]);
  const uint32_t m12 = Middle(v[1], v[2]);
  const uint32_t m13 = Middle(v[1], v[3]);
  const uint32_t m23 = Middle(v[2], v[3]);
  auto& out = leaves_[level + 1];
  out.push_back({v[0], m01, m02, m03});
  out.push_back({m01, v[1], m12, m13});
  out.push_back({m02, m12, v[2], m23});
  out.push_back({m03, m13, m23, v[3]});
  const std::array<uint32_t, 4> ring = {m02, m12, m13, m03};
  for (int i = 0; i < 4; ++i) {
    Tet tet = {m01, m23, ring[i], ring[(i + 1) % 4]};
    const auto& p = out_.nodes;
    const Vector3i a = p[tet[1]] - p[tet[0]];
    if (a.cross(p[tet[2]] - p[tet[0]]).dot(p[tet[3]] - p[tet[0]]) < 0) std::swap(tet[2], tet[3]);
    out.push_back(tet);
  }
  return absl::OkStatus();
}

// Whether neighbours are so fine that green tets cannot join them: `split_edges` has a bit for each edge with a node in its middle.
bool Refiner::MustSplit(const Tet& tet, unsigned* split_edges) const {
  *split_edges = 0;
  const auto& p = out_.nodes;
  std::array<Vector3i, 6> middle;
  for (int e = 0; e < 6; ++e) {
    const Vector3i& a = p[tet[kEdges[e][0]]];
    const Vector3i& b = p[tet[kEdges[e][1]]];
    if (!HasMiddle(a, b)) continue;
    *split_edges |= 1U << e;
    middle[e] = (a + b) / 2;
    if (HasMiddle(a, middle[e]) || HasMiddle(middle[e], b)) return true;
  }
  const unsigned s = *split_edges;
  for (const unsigned face : kFaceEdges) {
    if ((s & face) != face) continue;
    for (int e = 0; e < 6; ++e) {
      for (int f = e + 1; f < 6; ++f) {
        if ((face >> e & 1) != 0 && (face >> f & 1) != 0 && HasMiddle(middle[e], middle[f])) return true;
      }
    }
    return s != face;
  }
  const bool is_opposite_pair = s == 0b100001 || s == 0b010010 || s == 0b001100;
  return (s & (s - 1)) != 0 && !is_opposite_pair;
}

absl::Status Refiner::Close() {
  for (bool changed = true; changed;) {
    changed = false;
    for (int level = options_.levels - 1; level >= 0; --level) {
      std::vector<Tet> tets = std::move(leaves_[level]);
      leaves_[level].clear();
      for (const Tet& tet : tets) {
        unsigned split_edges = 0;
        if (MustSplit(tet, &split_edges)) {
          PALPATE_RETURN_IF_ERROR(Split(tet, level));
          changed = true;
        } else {
          leaves_[level].push_back(tet);
        }
      }
      PALPATE_RETURN_IF_ERROR(CheckCount());
    }
  }
  return absl::OkStatus();
}

void Refiner::EmitGreen(const Tet& tet, unsigned split_edges) {
  for (int corner = 0; corner < 4; ++corner) {
    if (split_edges != kFaceEdges[corner]) continue;
    const uint32_t d = tet[corner];
    const uint32_t a = tet[kFaceCorners[corner][0]];
    const uint32_t b = tet[kFaceCorners[corner][1]];
    const uint32_t c = tet[kFaceCorners[corner][2]];
    const uint32_t ab = Middle(a, b);
    const uint32_t bc = Middle(b, c);
    const uint32_t ca = Middle(c, a);
    for (const auto& face : {std::array{a, ab, ca}, std::array{ab, b, bc}, std::array{ca, bc, c}, std::array{ab, bc, ca}}) {
      // corners of the face run so that the tet d a b c is positive
      out_.tets.push_back({d, face[0], face[1], face[2]});
    }
    return;
  }
  std::vector<Tet> parts = {tet};
  for (int e = 0; e < 6; ++e) {
    if ((split_edges >> e & 1) == 0) continue;
    const uint32_t middle = Middle(tet[kEdges[e][0]], tet[kEdges[e][1]]);
    const size_t count = parts.size();
    for (size_t i = 0; i < count; ++i) {
      Tet other = parts[i];
      parts[i][kEdges[e][0]] = middle;
      other[kEdges[e][1]] = middle;
      parts.push_back(other);
    }
  }
  out_.tets.insert(out_.tets.end(), parts.begin(), parts.end());
}

void Refiner::Finish() {
  for (const auto& leaves : leaves_) {
    for (const Tet& tet : leaves) {
      unsigned split_edges = 0;
      MustSplit(tet, &split_edges);
      if (split_edges == 0) {
        out_.tets.push_back(tet);
      } else {
        EmitGreen(tet, split_edges);
      }
    }
  }
}

}  // namespace

absl::StatusOr<GradedLattice> MakeGradedLattice(const GradedLatticeOptions& options) { return Refiner(options).Run(); }

}  // namespace palpate::sim
