#include "sim/mesh/label_complex.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sim/mesh/isosurface_stuffing.h"
#include "sim/mesh/mesh_repair.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;
using Eigen::Vector3i;
using Tet = std::array<uint32_t, 4>;

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kOnInterface = kNone;  // as the label of a node
constexpr double kAlphaOther = 0.3;       // of edges that green tets have
constexpr double kLeastQuality_rad = 9 * std::numbers::pi / 180;
constexpr int kRootSteps = 12;

struct Cut {
  uint32_t low = 0;  // nodes of the edge, low < high
  uint32_t high = 0;
  double t = 0;  // from low to high
  uint32_t vertex = kNone;
};

// Whether (a, b, c, d) is an even permutation of (0, 1, 2, 3).
bool IsEven(int a, int b, int c, int d) { return ((a > b) + (a > c) + (a > d) + (b > c) + (b > d) + (c > d)) % 2 == 0; }

class Cutter {
 public:
  Cutter(const GradedLattice& lattice, const LabelField& field, const std::vector<double>& offsets)
      : lattice_(lattice), field_(field), offsets_(offsets) {}

  LabelComplex Run() {
    LabelNodes();
    FindCuts();
    Warp();
    ResolveJunctions();
    for (const Tet& tet : lattice_.tets) Fill(tet);
    TakeBackMoves();
    KeepNeighbourhood();
    return std::move(out_);
  }

 private:
  void Evaluate(const Vector3d& x) {
    field_.Values(x, &values_);
    for (size_t l = 0; l < values_.size(); ++l) values_[l] += offsets_[l];
  }
  uint32_t BestLabel(const Vector3d& x) {
    Evaluate(x);
    return static_cast<uint32_t>(std::max_element(values_.begin(), values_.end()) - values_.begin());
  }
  void LabelNodes();
  void FindCuts();
  double FindRoot(uint32_t low, uint32_t high);
  void Warp();
  void ResolveJunctions();
  void Fill(const Tet& tet);
  void FillSide(const Tet& tet, const std::array<int, 4>& own, int own_count, const std::array<int, 4>& other, int other_count, int zero,
                uint32_t label);
  void FillPrism(std::array<uint32_t, 3> a, std::array<uint32_t, 3> b, std::array<bool, 3> diagonal, uint32_t label);
  void FillPrismAroundMiddle(const std::array<uint32_t, 3>& a, const std::array<uint32_t, 3>& b, const std::array<bool, 3>& diagonal,
                             uint32_t label);
  void TakeBackMoves();
  void KeepNeighbourhood();

  static uint64_t EdgeKey(uint32_t a, uint32_t b) { return static_cast<uint64_t>(std::min(a, b)) << 32 | std::max(a, b); }
  bool IsCut(uint32_t a, uint32_t b) const { return label_[a] != kOnInterface && label_[b] != kOnInterface && label_[a] != label_[b]; }
  // Share of an edge within which a cut moves the end.
  double Alpha(const Cut& cut) const {
    const Vector3i d = (lattice_.nodes[cut.high] - lattice_.nodes[cut.low]).cwiseAbs();
    if (d.sum() == d.maxCoeff()) return kStuffingAlphaLong;
    return d.minCoeff() == d.maxCoeff() ? kStuffingAlphaShort : kAlphaOther;
  }

  uint32_t AddVertex(const Vector3d& x) {
    out_.mesh.vertices.push_back(x);
    return static_cast<uint32_t>(out_.mesh.vertices.size() - 1);
  }
  uint32_t NodeVertex(uint32_t node) {
    if (node_vertex_[node] == kNone) node_vertex_[node] = AddVertex(place_[node]);
    return node_vertex_[node];
  }
  uint32_t CutVertex(uint32_t a, uint32_t b) {
    Cut& cut = cuts_[cut_of_.at(EdgeKey(a, b))];
    if (cut.vertex == kNone) cut.vertex = AddVertex(CutPosition(cut));
    return cut.vertex;
  }
  Vector3d CutPosition(const Cut& cut) const {
    const Vector3d from = lattice_.Position(cut.low);
    return from + cut.t * (lattice_.Position(cut.high) - from);
  }
  void Emit(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t label) {
    out_.mesh.tets.push_back({a, b, c, d});
    out_.labels.push_back(label);
  }
  bool DiagonalAtFirst(uint32_t p, uint32_t q, uint32_t r) const;
  bool InterfaceDiagonal(uint32_t p, uint32_t q, uint32_t r, uint32_t s) const;

  const GradedLattice& lattice_;
  const LabelField& field_;
  const std::vector<double>& offsets_;
  std::vector<double> values_;
  std::vector<uint32_t> label_;  // [node_count] or kOnInterface
  std::vector<Vector3d> place_;  // [node_count] where it is, or was moved to
  std::vector<Cut> cuts_;
  absl::flat_hash_map<uint64_t, uint32_t> cut_of_;  // by edge; looked up, never iterated
  std::vector<uint32_t> node_vertex_;
  LabelComplex out_;
};

void Cutter::LabelNodes() {
  const auto count = static_cast<uint32_t>(lattice_.nodes.size());
  label_.resize(count);
  place_.resize(count);
  node_vertex_.assign(count, kNone);
  for (uint32_t node = 0; node < count; ++node) {
    place_[node] = lattice_.Position(node);
    label_[node] = BestLabel(place_[node]);
  }
}

// Where the values of the ends' labels are equal, by false position with the Illinois rule.
double Cutter::FindRoot(uint32_t low, uint32_t high) {
  const Vector3d from = place_[low];
  const Vector3d edge = place_[high] - from;
  const auto difference = [&](double t) {
    Evaluate(from + t * edge);
    return values_[label_[low]] - values_[label_[high]];
  };
  double t0 = 0;
  double t1 = 1;
  double f0 = difference(0);
  double f1 = difference(1);
  double t = f0 / (f0 - f1);
  int last_side = 0;
  for (int i = 0; i < kRootSteps && f0 > f1; ++i) {
    const double f = difference(t);
    if (f == 0 || t1 - t0 < 1e-9) break;
    if (f > 0) {
      t0 = t;
      f0 = f;
      if (last_side == -1) f1 *= 0.5;
      last_side = -1;
    } else {
      t1 = t;
      f1 = f;
      if (last_side == 1) f0 *= 0.5;
      last_side = 1;
    }
    t = std::clamp(t0 + (t1 - t0) * (f0 / (f0 - f1)), t0, t1);
  }
  return std::isfinite(t) ? t : 0.5;
}

void Cutter::FindCuts() {
  for (const Tet& tet : lattice_.tets) {
    for (int i = 0; i < 4; ++i) {
      for (int j = i + 1; j < 4; ++j) {
        if (label_[tet[i]] == label_[tet[j]]) continue;
        const auto [low, high] = std::minmax(tet[i], tet[j]);
        if (!cut_of_.try_emplace(EdgeKey(low, high), static_cast<uint32_t>(cuts_.size())).second) continue;
        cuts_.push_back({.low = low, .high = high, .t = FindRoot(low, high)});
      }
    }
  }
}

// Moves nodes onto cuts that are too near, the nearest first. The other cuts at a node vanish with that.
void Cutter::Warp() {
  struct Violation {
    double ratio;
    uint32_t cut;
    bool at_high;
  };
  std::vector<Violation> violations;
  for (uint32_t c = 0; c < cuts_.size(); ++c) {
    const double alpha = Alpha(cuts_[c]);
    if (cuts_[c].t < alpha) violations.push_back({cuts_[c].t / alpha, c, false});
    if (1 - cuts_[c].t < alpha) violations.push_back({(1 - cuts_[c].t) / alpha, c, true});
  }
  std::sort(violations.begin(), violations.end(), [](const Violation& a, const Violation& b) {
    if (a.ratio != b.ratio) return a.ratio < b.ratio;
    return a.cut != b.cut ? a.cut < b.cut : a.at_high < b.at_high;
  });
  for (const Violation& violation : violations) {
    const Cut& cut = cuts_[violation.cut];
    if (label_[cut.low] == kOnInterface || label_[cut.high] == kOnInterface) continue;
    const uint32_t node = violation.at_high ? cut.high : cut.low;
    place_[node] = CutPosition(cut);
    label_[node] = kOnInterface;
  }
}

// Tets in which three or four labels meet give up nodes to the interface, those that are nearest to a cut first. They are not moved: what
// fits the vertices to the interfaces later looks at the shapes of tets, which here may not be moved into each other.
void Cutter::ResolveJunctions() {
  struct Candidate {
    double t;
    uint32_t node;
    uint32_t tet;
  };
  const auto has_junction = [this](const Tet& tet) {
    std::array<uint32_t, 4> labels;
    int count = 0;
    for (const uint32_t v : tet) {
      const uint32_t label = label_[v];
      if (label != kOnInterface && std::find(labels.begin(), labels.begin() + count, label) == labels.begin() + count)
        labels[count++] = label;
    }
    return count > 2;
  };
  std::vector<Candidate> candidates;
  for (uint32_t t = 0; t < lattice_.tets.size(); ++t) {
    const Tet& tet = lattice_.tets[t];
    if (!has_junction(tet)) continue;
    for (const uint32_t v : tet) {
      double nearest = 1;
      for (const uint32_t w : tet) {
        if (v == w || !IsCut(v, w)) continue;
        const Cut& cut = cuts_[cut_of_.at(EdgeKey(v, w))];
        nearest = std::min(nearest, cut.low == v ? cut.t : 1 - cut.t);
      }
      candidates.push_back({nearest, v, t});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.t != b.t) return a.t < b.t;
    return a.node != b.node ? a.node < b.node : a.tet < b.tet;
  });
  for (const Candidate& candidate : candidates) {
    if (label_[candidate.node] != kOnInterface && has_junction(lattice_.tets[candidate.tet])) label_[candidate.node] = kOnInterface;
  }
}

// How the quadrilateral p q cut(q, r) cut(p, r) of a face (p, q on one side, r on the other) is split: true for the diagonal p - cut(q, r).
// Depends on the face alone. A cut on the longest edge takes the diagonal; if that is p q, the parity rule of isosurface stuffing decides.
bool Cutter::DiagonalAtFirst(uint32_t p, uint32_t q, uint32_t r) const {
  const Vector3i& x = lattice_.nodes[p];
  const Vector3i& y = lattice_.nodes[q];
  const Vector3i& z = lattice_.nodes[r];
  const int pr = (z - x).squaredNorm();
  const int qr = (z - y).squaredNorm();
  const int pq = (y - x).squaredNorm();
  if (pr > qr && pr > pq) return false;
  if (qr > pr && qr > pq) return true;
  // seen from the other side the parity turns, so that both sides take the same diagonal of the cuts between them
  const int wanted = label_[p] < label_[r] ? 0 : 1;
  const bool fits_p = (z.array() > x.array()).count() % 2 == wanted;
  const bool fits_q = (z.array() > y.array()).count() % 2 == wanted;
  return fits_p != fits_q ? fits_p : p < q;
}

// The same for the quadrilateral of the four cuts between p q and r s, which both sides share: true for cut(p, r) - cut(q, s). On the
// lattice each side can only do with one of them, and the rule above makes it the same one; elsewhere the shorter is taken.
bool Cutter::InterfaceDiagonal(uint32_t p, uint32_t q, uint32_t r, uint32_t s) const {
  if (label_[p] > label_[r]) {
    std::swap(p, r);
    std::swap(q, s);
  }
  if (const bool at_r = DiagonalAtFirst(p, q, r); at_r != DiagonalAtFirst(p, q, s)) return !at_r;
  if (const bool at_p = DiagonalAtFirst(r, s, p); at_p != DiagonalAtFirst(r, s, q)) return !at_p;
  const auto at = [&](uint32_t a, uint32_t b) { return CutPosition(cuts_[cut_of_.at(EdgeKey(a, b))]); };
  const double first = (at(p, r) - at(q, s)).squaredNorm();
  const double second = (at(p, s) - at(q, r)).squaredNorm();
  if (first != second) return first < second;
  return std::min(EdgeKey(p, r), EdgeKey(q, s)) < std::min(EdgeKey(p, s), EdgeKey(q, r));
}

// The prism between the triangles a and b, b[i] above a[i], a b[0] positive. diagonal[i]: the side a[i] a[i+1] is split from a[i] to
// b[i+1].
void Cutter::FillPrism(std::array<uint32_t, 3> a, std::array<uint32_t, 3> b, std::array<bool, 3> diagonal, uint32_t label) {
  if (diagonal[0] == diagonal[1] && diagonal[1] == diagonal[2]) {
    FillPrismAroundMiddle(a, b, diagonal, label);
    return;
  }
  // two diagonals meet in a[0]
  while (!diagonal[0] || diagonal[2]) {
    std::rotate(a.begin(), a.begin() + 1, a.end());
    std::rotate(b.begin(), b.begin() + 1, b.end());
    std::rotate(diagonal.begin(), diagonal.begin() + 1, diagonal.end());
  }
  Emit(a[0], b[0], b[1], b[2], label);
  if (diagonal[1]) {
    Emit(a[0], a[1], a[2], b[2], label);
    Emit(a[0], a[1], b[2], b[1], label);
  } else {
    Emit(a[0], a[1], a[2], b[1], label);
    Emit(a[0], a[2], b[2], b[1], label);
  }
}

// No tets without a further vertex fit the diagonals of this one.
void Cutter::FillPrismAroundMiddle(const std::array<uint32_t, 3>& a, const std::array<uint32_t, 3>& b, const std::array<bool, 3>& diagonal,
                                   uint32_t label) {
  Vector3d middle = Vector3d::Zero();
  for (int i = 0; i < 3; ++i) middle += (out_.mesh.vertices[a[i]] + out_.mesh.vertices[b[i]]) / 6;
  const uint32_t m = AddVertex(middle);
  Emit(a[0], a[1], a[2], m, label);
  Emit(b[0], b[2], b[1], m, label);
  for (int i = 0; i < 3; ++i) {
    const int j = (i + 1) % 3;
    if (diagonal[i]) {
      Emit(a[i], b[j], a[j], m, label);
      Emit(a[i], b[i], b[j], m, label);
    } else {
      Emit(a[i], b[i], a[j], m, label);
      Emit(a[j], b[i], b[j], m, label);
    }
  }
}

// The part of a tet on the side of its corners `own`. `zero`: the corner on the interface if there is one.
void Cutter::FillSide(const Tet& tet, const std::array<int, 4>& own, int own_count, const std::array<int, 4>& other, int other_count,
                      int zero, uint32_t label) {
  const auto vertex = [&](int i) { return NodeVertex(tet[i]); };
  const auto cut = [&](int i, int j) { return CutVertex(tet[i], tet[j]); };
  const auto first = [&](int p, int q, int r) { return DiagonalAtFirst(tet[p], tet[q], tet[r]); };
  if (own_count == 1) {
    Tet part;
    for (int i = 0; i < 4; ++i) {
      const bool is_other = std::find(other.begin(), other.begin() + other_count, i) != other.begin() + other_count;
      part[i] = is_other ? cut(own[0], i) : vertex(i);
    }
    Emit(part[0], part[1], part[2], part[3], label);
  } else if (own_count == 3) {
    const int d = other[0];
    std::array<int, 3> c = {own[0], own[1], own[2]};
    if (!IsEven(c[0], c[1], c[2], d)) std::swap(c[1], c[2]);
    FillPrism({vertex(c[0]), vertex(c[1]), vertex(c[2])}, {cut(c[0], d), cut(c[1], d), cut(c[2], d)},
              {first(c[0], c[1], d), first(c[1], c[2], d), first(c[2], c[0], d)}, label);
  } else if (other_count == 2) {
    const int p = own[0];
    const int q = own[1];
    int r = other[0];
    int s = other[1];
    if (!IsEven(p, r, s, q)) std::swap(r, s);
    // the side p r - q r, the cuts, the side p s - q s
    FillPrism({vertex(p), cut(p, r), cut(p, s)}, {vertex(q), cut(q, r), cut(q, s)},
              {first(p, q, r), InterfaceDiagonal(tet[p], tet[q], tet[r], tet[s]), !first(p, q, s)}, label);
  } else {
    // a pyramid over p q cut(q, r) cut(p, r)
    const int p = own[0];
    const int q = own[1];
    const int r = other[0];
    const bool at_first = first(p, q, r);
    std::array<Tet, 2> parts;
    const uint32_t z = vertex(zero);
    if (at_first) {
      parts = {{{vertex(p), vertex(q), cut(q, r), z}, {vertex(p), cut(q, r), cut(p, r), z}}};
    } else {
      parts = {{{vertex(p), vertex(q), cut(p, r), z}, {vertex(q), cut(q, r), cut(p, r), z}}};
    }
    for (Tet& part : parts) {
      if (!IsEven(p, q, r, zero)) std::swap(part[0], part[1]);
      Emit(part[0], part[1], part[2], part[3], label);
    }
  }
}

void Cutter::Fill(const Tet& tet) {
  std::array<int, 4> own{};
  std::array<int, 4> other{};
  int own_count = 0;
  int other_count = 0;
  int zero = -1;
  uint32_t label = kOnInterface;
  uint32_t other_label = kOnInterface;
  for (int i = 0; i < 4; ++i) {
    const uint32_t l = label_[tet[i]];
    if (l == kOnInterface) {
      zero = i;
    } else if (label == kOnInterface || l == label) {
      label = l;
      own[own_count++] = i;
    } else {
      other_label = l;
      other[other_count++] = i;
    }
  }
  if (other_count == 0) {
    if (label == kOnInterface) {
      Vector3d middle = Vector3d::Zero();
      for (const uint32_t node : tet) middle += 0.25 * place_[node];
      label = BestLabel(middle);
    }
    Emit(NodeVertex(tet[0]), NodeVertex(tet[1]), NodeVertex(tet[2]), NodeVertex(tet[3]), label);
    return;
  }
  FillSide(tet, own, own_count, other, other_count, zero, label);
  FillSide(tet, other, other_count, own, own_count, zero, other_label);
}

// On the lattice itself moves leave tets of good shape. Where it is graded they may not: nodes go back then, and keep their place in the
// interface. Without moves all tets are good.
void Cutter::TakeBackMoves() {
  std::vector<uint32_t> moved_node(out_.mesh.vertices.size(), kNone);
  for (uint32_t node = 0; node < node_vertex_.size(); ++node) {
    if (node_vertex_[node] != kNone && place_[node] != lattice_.Position(node)) moved_node[node_vertex_[node]] = node;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const Tet& tet : out_.mesh.tets) {
      if (BoundQuality(out_.mesh, tet) > kLeastQuality_rad) continue;
      for (const uint32_t v : tet) {
        if (moved_node[v] == kNone) continue;
        out_.mesh.vertices[v] = lattice_.Position(moved_node[v]);
        moved_node[v] = kNone;
        changed = true;
      }
    }
  }
}

// Leaves out the tets of label 0 that share no vertex with others, and vertices that nothing uses then.
void Cutter::KeepNeighbourhood() {
  TetMesh& mesh = out_.mesh;
  std::vector<uint8_t> is_near(mesh.vertices.size(), 0);
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    if (out_.labels[t] == 0) continue;
    for (const uint32_t v : mesh.tets[t]) is_near[v] = 1;
  }
  size_t kept = 0;
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    const Tet& tet = mesh.tets[t];
    if (is_near[tet[0]] + is_near[tet[1]] + is_near[tet[2]] + is_near[tet[3]] == 0) continue;
    mesh.tets[kept] = tet;
    out_.labels[kept++] = out_.labels[t];
  }
  mesh.tets.resize(kept);
  out_.labels.resize(kept);
  std::vector<uint32_t> renumbered(mesh.vertices.size(), kNone);
  for (const Tet& tet : mesh.tets) {
    for (const uint32_t v : tet) renumbered[v] = 0;
  }
  uint32_t count = 0;
  for (size_t v = 0; v < renumbered.size(); ++v) {
    if (renumbered[v] == kNone) continue;
    mesh.vertices[count] = mesh.vertices[v];
    renumbered[v] = count++;
  }
  mesh.vertices.resize(count);
  for (Tet& tet : mesh.tets) {
    for (uint32_t& v : tet) v = renumbered[v];
  }
}

}  // namespace

LabelComplex CutLattice(const GradedLattice& lattice, const LabelField& field, const std::vector<double>& offsets) {
  return Cutter(lattice, field, offsets).Run();
}

}  // namespace palpate::sim
