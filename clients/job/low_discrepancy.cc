#include "clients/job/low_discrepancy.h"

#include <array>
#include <numeric>
#include <utility>

namespace palpate::job {
namespace {

constexpr int kBits = 32;

/// A primitive polynomial over two elements and the first direction numbers.
struct SobolDimension {
  int degree;
  uint32_t coefficients;
  std::array<uint32_t, 7> initial;
};

// Dimensions 2 to 32 of the set new-joe-kuo-6.21201 (Joe, Kuo 2008); dimension 1 is the van der Corput sequence.
constexpr std::array<SobolDimension, kMaxSobolDimensions - 1> kDimensions = {{
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
    {7, 7, {1, 1, 3, 13, 7, 35, 63}},
    {7, 8, {1, 3, 5, 9, 1, 25, 53}},
    {7, 14, {1, 3, 1, 13, 9, 35, 107}},
    {7, 19, {1, 3, 1, 5, 27, 61, 31}},
    {7, 21, {1, 1, 5, 11, 19, 41, 61}},
    {7, 28, {1, 3, 5, 3, 3, 13, 69}},
    {7, 31, {1, 1, 7, 13, 1, 19, 1}},
    {7, 32, {1, 3, 7, 5, 13, 19, 59}},
    {7, 37, {1, 1, 3, 9, 25, 29, 41}},
    {7, 41, {1, 3, 5, 13, 23, 1, 55}},
    {7, 42, {1, 3, 7, 3, 13, 59, 17}},
}};

std::array<uint32_t, kBits> DirectionNumbers(size_t dimension) {
  std::array<uint32_t, kBits> directions{};
  for (int i = 0; i < kBits; ++i) {
    if (dimension == 0) {
      directions[static_cast<size_t>(i)] = 1U << (kBits - 1 - i);
      continue;
    }
    const SobolDimension& of = kDimensions[dimension - 1];
    const auto at = [&directions](int k) -> uint32_t& { return directions[static_cast<size_t>(k)]; };
    if (i < of.degree) {
      at(i) = of.initial[static_cast<size_t>(i)] << (kBits - 1 - i);
      continue;
    }
    at(i) = at(i - of.degree) ^ (at(i - of.degree) >> of.degree);
    for (int k = 1; k < of.degree; ++k) {
      if ((of.coefficients >> (of.degree - 1 - k)) & 1U) at(i) ^= at(i - k);
    }
  }
  return directions;
}

/// Whether a bit is flipped depends on all bits above it.
uint32_t Scramble(uint32_t value, uint64_t seed) {
  uint32_t flips = 0;
  for (int bit = 0; bit < kBits; ++bit) {
    const uint64_t above = bit == 0 ? 0 : value >> (kBits - bit);
    if (MixSeeds(seed, above << 6 | static_cast<uint64_t>(bit)) >> 63) flips |= 1U << (kBits - 1 - bit);
  }
  return value ^ flips;
}

}  // namespace

uint64_t RandomStream::Next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

uint64_t RandomStream::NextBelow(uint64_t bound) {
  const uint64_t rest = (0 - bound) % bound;  // 2^64 modulo bound
  uint64_t value = Next();
  while (value < rest) value = Next();
  return value % bound;
}

uint64_t MixSeeds(uint64_t a, uint64_t b) {
  RandomStream first(a);
  RandomStream second(first.Next() ^ b);
  second.Next();
  return second.Next();
}

std::vector<std::vector<double>> LatinHypercube(size_t count, size_t dimensions, uint64_t seed) {
  std::vector<std::vector<double>> points(count, std::vector<double>(dimensions));
  for (size_t d = 0; d < dimensions; ++d) {
    RandomStream random(MixSeeds(seed, d));
    std::vector<size_t> parts(count);
    std::iota(parts.begin(), parts.end(), size_t{0});
    for (size_t i = count; i > 1; --i) std::swap(parts[i - 1], parts[random.NextBelow(i)]);
    for (size_t i = 0; i < count; ++i) {
      points[i][d] = (static_cast<double>(parts[i]) + random.NextUnit()) / static_cast<double>(count);
    }
  }
  return points;
}

std::vector<std::vector<double>> SobolPoints(size_t count, size_t dimensions, uint64_t seed) {
  std::vector<std::vector<double>> points(count, std::vector<double>(dimensions));
  for (size_t d = 0; d < dimensions; ++d) {
    const auto directions = DirectionNumbers(d);
    const uint64_t own = MixSeeds(seed, d);
    for (size_t i = 0; i < count; ++i) {
      uint32_t value = 0;
      for (int bit = 0; bit < kBits; ++bit) {
        if (i >> bit & 1U) value ^= directions[static_cast<size_t>(bit)];
      }
      points[i][d] = static_cast<double>(Scramble(value, own)) * 0x1p-32;
    }
  }
  return points;
}

std::vector<std::vector<double>> UniformPoints(size_t count, size_t dimensions, uint64_t seed) {
  std::vector<std::vector<double>> points(count, std::vector<double>(dimensions));
  for (size_t d = 0; d < dimensions; ++d) {
    RandomStream random(MixSeeds(seed, d));
    for (auto& point : points) point[d] = random.NextUnit();
  }
  return points;
}

}  // namespace palpate::job
