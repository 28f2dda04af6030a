#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace palpate::job {

inline constexpr size_t kMaxSobolDimensions = 32;

/// A stream of random numbers that is the same everywhere: splitmix64 (Steele, Lea, Flood 2014).
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  /// In [0, 1), 53 bits.
  double NextUnit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  /// In [0, bound), without bias. Precondition: bound > 0.
  uint64_t NextBelow(uint64_t bound);

 private:
  uint64_t state_;
};

/// A number that depends on all of these alike.
uint64_t MixSeeds(uint64_t a, uint64_t b);

/// [count][dimensions] samples in [0, 1): in each dimension each of `count` equal parts holds exactly one (McKay, Beckman, Conover 1979).
std::vector<std::vector<double>> LatinHypercube(size_t count, size_t dimensions, uint64_t seed);

/// The first `count` points of the Sobol sequence with the direction numbers of Joe and Kuo 2008, each dimension scrambled by nested flips
/// of its bits (Owen 1995). Of the first 2^k points each of 2^k equal parts of each dimension holds exactly one; in dimensions 0 and 1 so
/// does each box of 2^-i by 2^-(k-i). Preconditions: dimensions <= kMaxSobolDimensions, count <= 2^32.
std::vector<std::vector<double>> SobolPoints(size_t count, size_t dimensions, uint64_t seed);

/// Independent samples.
std::vector<std::vector<double>> UniformPoints(size_t count, size_t dimensions, uint64_t seed);

}  // namespace palpate::job
