#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gpu/primitives/primitive_config.h"
#include "tests/support/device_test.h"

namespace palpate::gpu {

/// Launch shapes a primitive is tested with: that of the device, many small chunks, and wide groups with local memory as on a GPU.
struct NamedConfig {
  std::string name;
  std::optional<PrimitiveConfig> config;
};

inline std::vector<NamedConfig> TestConfigs() {
  return {{"device", std::nullopt},
          {"sequential", PrimitiveConfig{.group_size = 1, .max_groups = 5, .min_chunk = 3}},
          {"wide", PrimitiveConfig{.group_size = 64, .max_groups = 7, .min_chunk = 100}},
          {"half_word", PrimitiveConfig{.group_size = 16, .max_groups = 33, .min_chunk = 1}}};
}

/// A size at which launches have many groups.
#ifdef PALPATE_NATIVE_KERNELS
inline constexpr uint32_t kManyElements = 2000;
#else
inline constexpr uint32_t kManyElements = 100000;
#endif

/// 0, 1, 2, the edges of tiles, groups and chunks, primes, powers of two.
inline std::vector<uint32_t> TestSizes() {
#ifdef PALPATE_NATIVE_KERNELS  // every access is checked there, which takes its time
  return {0, 1, 2, 15, 16, 17, 63, 64, 65, 101, 257, 1009, 2049};
#endif
  return {0,   1,   2,   3,   15,  16,   17,   31,   32,   33,   63,   64,   65,    99,    100,   101,   127,   128,
          129, 255, 256, 257, 511, 1009, 1023, 1024, 1025, 2048, 2049, 4999, 65535, 65536, 65537, 99991, 100000};
}

/// Values of T that are hard for one primitive or another.
template <typename T>
std::vector<std::pair<std::string, std::vector<T>>> TestPatterns(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto make = [&](auto value) {
    std::vector<T> values(size);
    for (size_t i = 0; i < size; ++i) values[i] = static_cast<T>(value(i));
    return values;
  };
  constexpr T max = std::numeric_limits<T>::max();
  std::vector<std::pair<std::string, std::vector<T>>> patterns;
  patterns.emplace_back("random", make([&](size_t) { return random(); }));
  patterns.emplace_back("few values", make([&](size_t) { return random() % 3; }));
  patterns.emplace_back("max", make([&](size_t) { return max; }));
#ifdef PALPATE_NATIVE_KERNELS
  constexpr size_t kFewPatternsFrom = 66;
#else
  constexpr size_t kFewPatternsFrom = 5001;
#endif
  if (size >= kFewPatternsFrom) return patterns;  // the rest is about edges, not about size
  patterns.emplace_back("all equal", make([&](size_t) { return T{7}; }));
  patterns.emplace_back("zero", make([&](size_t) { return T{0}; }));
  patterns.emplace_back("rising", make([&](size_t i) { return i; }));
  patterns.emplace_back("falling", make([&](size_t i) { return size - i; }));
  patterns.emplace_back("one bit", make([&](size_t) { return T{1} << (random() % (8 * sizeof(T))); }));
  patterns.emplace_back("top byte", make([&](size_t) { return T(random() % 5) << (8 * sizeof(T) - 8); }));
  patterns.emplace_back("sawtooth", make([&](size_t i) { return i % 97; }));
  return patterns;
}

template <typename T>
std::string Where(const NamedConfig& config, const std::string& pattern, const std::vector<T>& values) {
  return config.name + ", " + pattern + ", " + std::to_string(values.size()) + " elements";
}

}  // namespace palpate::gpu
