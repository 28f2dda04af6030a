#include "sim/mesh/mesh_repair.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>
#include <vector>

#include "sim/mesh/isosurface_stuffing.h"

namespace palpate::sim {

using Eigen::Vector3d;

double BoundQuality(const std::array<Vector3d, 4>& x) {
  constexpr double kSupplementScale = kStuffingMinDihedralDeg / (180 - kStuffingMaxDihedralDeg);
  // inward area vectors of the faces opposite to each vertex
  const std::array<Vector3d, 4> n = {(x[3] - x[1]).cross(x[2] - x[1]), (x[2] - x[0]).cross(x[3] - x[0]), (x[3] - x[0]).cross(x[1] - x[0]),
                                     (x[1] - x[0]).cross(x[2] - x[0])};
  const double volume = n[3].dot(x[3] - x[0]);
  if (volume <= 0) return -1;
  double smallest = 1;
  double largest = -1;
  for (int i = 0; i < 4; ++i) {
    for (int j = i + 1; j < 4; ++j) {
      const double cosine = -n[i].dot(n[j]) / std::sqrt(n[i].squaredNorm() * n[j].squaredNorm());
      smallest = std::min(smallest, cosine);
      largest = std::max(largest, cosine);
    }
  }
  return std::min(std::acos(std::min(largest, 1.0)), kSupplementScale * (std::numbers::pi - std::acos(std::max(smallest, -1.0))));
}

namespace {

// The tets around one vertex, seen through its link: the triangles opposite to the vertex, joined along link edges.
class Star {
 public:
  Star(const TetMesh& mesh, uint32_t v, const uint32_t* tets, size_t count) : tets_(tets, tets + count) {
    for (size_t s = 0; s < count; ++s) {
      std::array<uint32_t, 3> triangle{};
      int n = 0;
      for (const uint32_t w : mesh.tets[tets[s]]) {
        if (w != v) triangle[n++] = w;
      }
      for (int i = 0; i < 3; ++i) {
        const auto [low, high] = std::minmax(triangle[i], triangle[(i + 1) % 3]);
        edges_.push_back({low, high, static_cast<uint32_t>(s)});
      }
    }
    std::sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) {
      if (a.low != b.low) return a.low < b.low;
      if (a.high != b.high) return a.high < b.high;
      return a.slot < b.slot;
    });
    neighbours_.resize(count);
    for (size_t e = 0; e < edges_.size();) {
      if (e + 1 < edges_.size() && edges_[e].low == edges_[e + 1].low && edges_[e].high == edges_[e + 1].high) {
        neighbours_[edges_[e].slot].push_back(edges_[e + 1].slot);
        neighbours_[edges_[e + 1].slot].push_back(edges_[e].slot);
        e += 2;
      } else {
        rim_.push_back(edges_[e]);
        ++e;
      }
    }
  }

  // Component of each slot, numbered by first slot.
  std::vector<int> Components(int* count) const {
    std::vector<int> component(tets_.size(), -1);
    *count = 0;
    for (uint32_t s = 0; s < tets_.size(); ++s) {
      if (component[s] >= 0) continue;
      Flood(s, (*count)++, &component, [](uint32_t) { return true; });
    }
    return component;
  }

  // Slots to remove so that a connected link gets nearer to a disk; empty if it is a sphere or a disk. `mesh` and `v` as in the
  // constructor.
  std::vector<uint32_t> Excess(const TetMesh& mesh) const {
    if (rim_.empty()) return {};
    // a link vertex with more than two rim edges: the edge from v to it joins several wedges of tets; drop the smallest wedge
    std::vector<uint32_t> rim_ends;
    for (const Edge& edge : rim_) rim_ends.insert(rim_ends.end(), {edge.low, edge.high});
    std::sort(rim_ends.begin(), rim_ends.end());
    for (size_t i = 0; i + 2 < rim_ends.size(); ++i) {
      if (rim_ends[i] != rim_ends[i + 2]) continue;
      const uint32_t w = rim_ends[i];
      const auto touches = [&](uint32_t s) {
        const auto& tet = mesh.tets[tets_[s]];
        return std::find(tet.begin(), tet.end(), w) != tet.end();
      };
      std::vector<int> wedge(tets_.size(), -1);
      std::vector<uint32_t> best;
      for (uint32_t s = 0; s < tets_.size(); ++s) {
        if (wedge[s] >= 0 || !touches(s)) continue;
        std::vector<uint32_t> members = FloodAround(s, w, &wedge, touches);
        if (best.empty() || members.size() < best.size()) best = std::move(members);
      }
      return best;
    }
    // several rim loops: the link is a disk with holes; drop the shortest strip between two loops
    std::vector<int> loop(rim_.size(), -1);
    int loops = 0;
    for (size_t start = 0; start < rim_.size(); ++start) {
      if (loop[start] >= 0) continue;
      std::vector<size_t> stack{start};
      loop[start] = loops;
      while (!stack.empty()) {
        const Edge& edge = rim_[stack.back()];
        stack.pop_back();
        for (size_t e = 0; e < rim_.size(); ++e) {
          if (loop[e] >= 0) continue;
          if (rim_[e].low == edge.low || rim_[e].low == edge.high || rim_[e].high == edge.low || rim_[e].high == edge.high) {
            loop[e] = loops;
            stack.push_back(e);
          }
        }
      }
      ++loops;
    }
    if (loops == 1) return {};
    std::vector<int> from(tets_.size(), -2);  // -2 unseen, -1 start
    std::vector<uint32_t> queue;
    for (size_t e = 0; e < rim_.size(); ++e) {
      if (loop[e] == 0 && from[rim_[e].slot] == -2) {
        from[rim_[e].slot] = -1;
        queue.push_back(rim_[e].slot);
      }
    }
    for (size_t head = 0; head < queue.size(); ++head) {
      const uint32_t s = queue[head];
      for (size_t e = 0; e < rim_.size(); ++e) {
        if (loop[e] == 0 || rim_[e].slot != s) continue;
        std::vector<uint32_t> strip;
        for (int at = static_cast<int>(s); at >= 0; at = from[at]) strip.push_back(static_cast<uint32_t>(at));
        return strip;
      }
      for (const uint32_t next : neighbours_[s]) {
        if (from[next] != -2) continue;
        from[next] = static_cast<int>(s);
        queue.push_back(next);
      }
    }
    return {};
  }

  uint32_t tet(uint32_t slot) const { return tets_[slot]; }

 private:
  struct Edge {
    uint32_t low;
    uint32_t high;
    uint32_t slot;
  };

  template <typename Filter>
  std::vector<uint32_t> Flood(uint32_t start, int mark, std::vector<int>* marks, const Filter& filter) const {
    std::vector<uint32_t> members{start};
    (*marks)[start] = mark;
    for (size_t head = 0; head < members.size(); ++head) {
      for (const uint32_t next : neighbours_[members[head]]) {
        if ((*marks)[next] >= 0 || !filter(next)) continue;
        (*marks)[next] = mark;
        members.push_back(next);
      }
    }
    return members;
  }

  // As Flood, but only across link edges that end in w.
  template <typename Filter>
  std::vector<uint32_t> FloodAround(uint32_t start, uint32_t w, std::vector<int>* marks, const Filter& touches) const {
    std::vector<uint32_t> members{start};
    (*marks)[start] = 0;
    for (size_t head = 0; head < members.size(); ++head) {
      for (size_t e = 0; e + 1 < edges_.size(); ++e) {
        const Edge& a = edges_[e];
        const Edge& b = edges_[e + 1];
        if (a.low != b.low || a.high != b.high || (a.low != w && a.high != w)) continue;
        for (const auto& [here, next] : {std::pair(a.slot, b.slot), std::pair(b.slot, a.slot)}) {
          if (here != members[head] || (*marks)[next] >= 0 || !touches(next)) continue;
          (*marks)[next] = 0;
          members.push_back(next);
        }
      }
    }
    return members;
  }

  std::vector<uint32_t> tets_;
  std::vector<Edge> edges_;                        // of all link triangles, sorted
  std::vector<Edge> rim_;                          // link edges with one triangle
  std::vector<std::vector<uint32_t>> neighbours_;  // [slot]
};

}  // namespace

void MakeManifold(TetMesh* mesh, std::vector<uint8_t>* suspect, std::vector<uint32_t>* labels) {
  for (;;) {
    // tets of each suspect vertex
    std::vector<uint32_t> first(mesh->vertices.size() + 1, 0);
    for (const auto& tet : mesh->tets) {
      for (const uint32_t v : tet) first[v + 1] += (*suspect)[v];
    }
    for (size_t v = 0; v < mesh->vertices.size(); ++v) first[v + 1] += first[v];
    std::vector<uint32_t> tets(first.back());
    std::vector<uint32_t> fill(first.begin(), first.end() - 1);
    for (uint32_t t = 0; t < mesh->tets.size(); ++t) {
      for (const uint32_t v : mesh->tets[t]) {
        if ((*suspect)[v] != 0) tets[fill[v]++] = t;
      }
    }
    // split
    const size_t count = first.size() - 1;
    bool changed = false;
    for (uint32_t v = 0; v < count; ++v) {
      if (first[v + 1] == first[v]) continue;
      const Star star(*mesh, v, tets.data() + first[v], first[v + 1] - first[v]);
      int components = 0;
      const std::vector<int> component = star.Components(&components);
      for (int c = 1; c < components; ++c) {
        const auto twin = static_cast<uint32_t>(mesh->vertices.size());
        mesh->vertices.push_back(Vector3d(mesh->vertices[v]));
        suspect->push_back(1);
        for (uint32_t s = 0; s < component.size(); ++s) {
          if (component[s] == c) std::replace(mesh->tets[star.tet(s)].begin(), mesh->tets[star.tet(s)].end(), v, twin);
        }
        changed = true;
      }
    }
    if (changed) continue;
    // drop
    std::vector<uint8_t> drop(mesh->tets.size(), 0);
    for (uint32_t v = 0; v < count; ++v) {
      if (first[v + 1] == first[v]) continue;
      const Star star(*mesh, v, tets.data() + first[v], first[v + 1] - first[v]);
      for (const uint32_t s : star.Excess(*mesh)) {
        drop[star.tet(s)] = 1;
        changed = true;
      }
    }
    if (!changed) break;
    size_t kept = 0;
    for (size_t t = 0; t < mesh->tets.size(); ++t) {
      if (drop[t] == 0) {
        if (labels != nullptr) (*labels)[kept] = (*labels)[t];
        mesh->tets[kept++] = mesh->tets[t];
      } else {
        for (const uint32_t v : mesh->tets[t]) (*suspect)[v] = 1;
      }
    }
    mesh->tets.resize(kept);
    if (labels != nullptr) labels->resize(kept);
  }
}

}  // namespace palpate::sim
