#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace palpate {

/// Sets of the numbers [0, count) that grow by joining: each is told by its lowest number. Close to O(1) a call.
class UnionFind {
 public:
  explicit UnionFind(size_t count) : leader_(count) { std::iota(leader_.begin(), leader_.end(), 0U); }

  /// The lowest number of the set that `i` is in. Not const: it shortens the way.
  uint32_t Find(uint32_t i) {
    while (leader_[i] != i) i = leader_[i] = leader_[leader_[i]];
    return i;
  }
  void Join(uint32_t a, uint32_t b) {
    a = Find(a);
    b = Find(b);
    leader_[std::max(a, b)] = std::min(a, b);
  }
  size_t size() const { return leader_.size(); }

 private:
  std::vector<uint32_t> leader_;
};

}  // namespace palpate
