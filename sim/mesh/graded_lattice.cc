#include "sim/mesh/graded_lattice.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>
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

constexpr int kUnitsPerEdge = 8;  // of the finest long edges: middles of edges and of tets are whole
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
  std::vector<int> InOrder(const Tet& tet, unsigned split_edges) const;
  template <size_t kCorners>
  void Bisect(const Tet& tet, const std::vector<int>& edges, std::vector<std::array<uint32_t, kCorners>>* parts);

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
  const int step = kUnitsPerEdge << options_.levels;
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
  out_.unit_m = options_.finest_edge_m / kUnitsPerEdge;
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
  for (const unsigned face : kFaceEdges) {
    if ((*split_edges & face) != face) continue;
    for (int e = 0; e < 6; ++e) {
      for (int f = e + 1; f < 6; ++f) {
        if ((face >> e & 1) != 0 && (face >> f & 1) != 0 && HasMiddle(middle[e], middle[f])) return true;
      }
    }
  }
  return *split_edges == 0b111111;
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

// The split edges of a tet, in an order that is the same in all tets at an edge: long ones first. So two tets split a face alike.
std::vector<int> Refiner::InOrder(const Tet& tet, unsigned split_edges) const {
  std::vector<int> edges;
  for (int e = 0; e < 6; ++e) {
    if ((split_edges >> e & 1) != 0) edges.push_back(e);
  }
  const auto key = [&](int e) {
    const auto [low, high] = std::minmax(tet[kEdges[e][0]], tet[kEdges[e][1]]);
    return std::tuple(-(out_.nodes[low] - out_.nodes[high]).squaredNorm(), low, high);
  };
  std::sort(edges.begin(), edges.end(), [&](int a, int b) { return key(a) < key(b); });
  return edges;
}

// Halves simplices (of corners that are nodes) at one edge after the other.
template <size_t kCorners>
void Refiner::Bisect(const Tet& tet, const std::vector<int>& edges, std::vector<std::array<uint32_t, kCorners>>* parts) {
  for (const int e : edges) {
    const uint32_t a = tet[kEdges[e][0]];
    const uint32_t b = tet[kEdges[e][1]];
    const size_t count = parts->size();
    for (size_t i = 0; i < count; ++i) {
      auto& part = (*parts)[i];
      const auto at_a = std::find(part.begin(), part.end(), a);
      const auto at_b = std::find(part.begin(), part.end(), b);
      if (at_a == part.end() || at_b == part.end()) continue;
      auto other = part;
      other[static_cast<size_t>(at_b - part.begin())] = Middle(a, b);
      *at_a = Middle(a, b);
      parts->push_back(other);
    }
  }
}

// A tet with some of its edges split. A face with all three is split into four, as a finer neighbour has it.
void Refiner::EmitGreen(const Tet& tet, unsigned split_edges) {
  const std::vector<int> edges = InOrder(tet, split_edges);
  const bool has_full_face = std::any_of(std::begin(kFaceEdges), std::end(kFaceEdges), [&](unsigned f) { return (split_edges & f) == f; });
  if (!has_full_face) {
    std::vector<Tet> parts = {tet};
    Bisect(tet, edges, &parts);
    out_.tets.insert(out_.tets.end(), parts.begin(), parts.end());
    return;
  }
  // the corner opposite to the only face that is split, or a node in the middle of the tet
  uint32_t apex = std::numeric_limits<uint32_t>::max();
  for (int corner = 0; corner < 4; ++corner) {
    if (split_edges == kFaceEdges[corner]) apex = tet[corner];
  }
  if (apex == std::numeric_limits<uint32_t>::max()) {
    apex = Node((out_.nodes[tet[0]] + out_.nodes[tet[1]] + out_.nodes[tet[2]] + out_.nodes[tet[3]]) / 4);
  }
  for (int corner = 0; corner < 4; ++corner) {
    std::array<uint32_t, 3> face;
    for (int i = 0; i < 3; ++i) face[i] = tet[kFaceCorners[corner][i]];
    if (std::find(face.begin(), face.end(), apex) != face.end()) continue;
    std::vector<std::array<uint32_t, 3>> parts = {face};
    if ((split_edges & kFaceEdges[corner]) == kFaceEdges[corner]) {
      const uint32_t ab = Middle(face[0], face[1]);
      const uint32_t bc = Middle(face[1], face[2]);
      const uint32_t ca = Middle(face[2], face[0]);
      parts = {{face[0], ab, ca}, {ab, face[1], bc}, {ca, bc, face[2]}, {ab, bc, ca}};
    } else {
      Bisect(tet, edges, &parts);
    }
    for (const auto& part : parts) out_.tets.push_back({apex, part[0], part[1], part[2]});
  }
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
