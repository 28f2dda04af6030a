#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace palpate::bench {

/// Triangles of the animations, with the counts of the source.
struct ViewShape {
  std::vector<std::array<uint32_t, 3>> triangles;
  std::vector<std::array<double, 3>> points;
};

/// The unit sphere as 6 squares of n x n cells, outwards.
ViewShape MakeBall(uint32_t n);

/// n x m cells over [0, 1] x [0, 1]; sewn: u = 1 is u = 0, and sewn twice: v = 1 is v = 0.
ViewShape MakeSheet(uint32_t n, uint32_t m, bool is_sewn, bool is_sewn_twice);

}  // namespace palpate::bench
