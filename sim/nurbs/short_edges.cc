#include "sim/nurbs/short_edges.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include <Eigen/Core>
#include <Eigen/Geometry>

namespace palpate::sim {
namespace {

using Eigen::Vector3d;
using Triangle = std::array<uint32_t, 3>;

constexpr double kNoArea = 1e-6;   // twice the area, as a share of the square of the longest side: has no normal
constexpr double kTurnedBy = 0.5;  // cosine

class Collapser {
 public:
  Collapser(double longest_m, double share, SurfaceMesh& mesh) : longest_m_(longest_m), share_(share), mesh_(mesh) {}

  /// One pass over all edges, the shortest first; what is next to a collapse waits for the next one.
  size_t Pass() {
    triangles_of_.assign(mesh_.vertices.size(), {});
    for (uint32_t t = 0; t < mesh_.triangles.size(); ++t) {
      for (const uint32_t v : mesh_.triangles[t]) triangles_of_[v].push_back(t);
    }
    is_gone_.assign(mesh_.triangles.size(), 0);
    std::vector<uint8_t> waits(mesh_.vertices.size(), 0);
    size_t count = 0;
    for (const auto& [length_m, a, b] : ShortEdges()) {
      if (waits[a] != 0 || waits[b] != 0) continue;
      const bool a_stays = !IsOnBorder(b) || IsOnBorder(a);
      if (!Collapse(a_stays ? a : b, a_stays ? b : a)) continue;
      for (const uint32_t v : {a, b}) {
        for (const uint32_t t : triangles_of_[v]) {
          for (const uint32_t next : mesh_.triangles[t]) waits[next] = 1;
        }
      }
      ++count;
    }
    size_t kept = 0;
    for (uint32_t t = 0; t < mesh_.triangles.size(); ++t) {
      if (is_gone_[t] == 0) mesh_.triangles[kept++] = mesh_.triangles[t];
    }
    mesh_.triangles.resize(kept);
    return count;
  }

 private:
  double Length(uint32_t a, uint32_t b) const { return (mesh_.vertices[a] - mesh_.vertices[b]).norm(); }
  double Longest(const Triangle& t) const { return std::max({Length(t[0], t[1]), Length(t[1], t[2]), Length(t[2], t[0])}); }

  std::set<std::tuple<double, uint32_t, uint32_t>> ShortEdges() const {
    std::set<std::tuple<double, uint32_t, uint32_t>> edges;
    for (const Triangle& t : mesh_.triangles) {
      for (size_t k = 0; k < 3; ++k) {
        const auto [a, b] = std::minmax(t[k], t[(k + 1) % 3]);
        const double length_m = Length(a, b);
        if (length_m <= longest_m_ && length_m < share_ * Longest(t)) edges.emplace(length_m, a, b);
      }
    }
    return edges;
  }

  std::vector<uint32_t> Beside(uint32_t a, uint32_t b) const {
    std::vector<uint32_t> out;
    for (const uint32_t t : triangles_of_[a]) {
      if (std::ranges::count(mesh_.triangles[t], b) != 0) out.push_back(t);
    }
    return out;
  }

  std::set<uint32_t> Neighbors(uint32_t v) const {
    std::set<uint32_t> out;
    for (const uint32_t t : triangles_of_[v]) out.insert(mesh_.triangles[t].begin(), mesh_.triangles[t].end());
    out.erase(v);
    return out;
  }

  bool IsOnBorder(uint32_t v) const {
    return std::ranges::any_of(Neighbors(v), [&](uint32_t next) { return Beside(v, next).size() == 1; });
  }

  bool Turns(const Triangle& before, const Triangle& after) const {
    const auto normal = [&](const Triangle& t) -> Vector3d {
      return (mesh_.vertices[t[1]] - mesh_.vertices[t[0]]).cross(mesh_.vertices[t[2]] - mesh_.vertices[t[0]]);
    };
    const auto has_none = [&](const Triangle& t) { return !(normal(t).norm() > kNoArea * Longest(t) * Longest(t)); };
    if (has_none(after)) return true;
    return !has_none(before) && normal(before).dot(normal(after)) < kTurnedBy * normal(before).norm() * normal(after).norm();
  }

  /// `gone` becomes `stays`, unless that would join what is not joined.
  bool Collapse(uint32_t stays, uint32_t gone) {
    const std::vector<uint32_t> beside = Beside(stays, gone);
    if (beside.size() != 1 && IsOnBorder(stays) && IsOnBorder(gone)) return false;
    const std::set<uint32_t> a = Neighbors(stays), b = Neighbors(gone);
    const auto common = std::ranges::count_if(a, [&](uint32_t v) { return b.contains(v); });
    if (common != std::ssize(beside)) return false;
    for (const uint32_t t : triangles_of_[gone]) {
      if (std::ranges::count(beside, t) != 0) continue;
      Triangle after = mesh_.triangles[t];
      std::ranges::replace(after, gone, stays);
      if (Turns(mesh_.triangles[t], after)) return false;
    }
    for (const uint32_t t : beside) is_gone_[t] = 1;
    for (const uint32_t t : triangles_of_[gone]) {
      if (is_gone_[t] == 0) std::ranges::replace(mesh_.triangles[t], gone, stays);
    }
    return true;
  }

  double longest_m_, share_;
  SurfaceMesh& mesh_;
  std::vector<std::vector<uint32_t>> triangles_of_;  // [vertex]
  std::vector<uint8_t> is_gone_;                     // [triangle]
};

}  // namespace

size_t CollapseShortEdges(double longest_m, double share, SurfaceMesh* mesh, std::vector<NurbsGridPlace>* places) {
  size_t count = 0;
  Collapser collapser(longest_m, share, *mesh);
  while (const size_t more = collapser.Pass()) count += more;
  if (count == 0) return 0;
  constexpr uint32_t kGone = 0xffffffffU;
  std::vector<uint32_t> number(mesh->vertices.size(), kGone);
  for (const Triangle& t : mesh->triangles) {
    for (const uint32_t v : t) number[v] = 0;
  }
  uint32_t next = 0;
  for (size_t v = 0; v < number.size(); ++v) {
    if (number[v] == kGone) continue;
    mesh->vertices[next] = mesh->vertices[v];
    if (places != nullptr) (*places)[next] = (*places)[v];
    number[v] = next++;
  }
  mesh->vertices.resize(next);
  if (places != nullptr) places->resize(next);
  for (Triangle& t : mesh->triangles) {
    for (uint32_t& v : t) v = number[v];
  }
  return count;
}

}  // namespace palpate::sim
