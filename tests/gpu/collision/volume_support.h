#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpu/collision/kdop.h"

namespace palpate::gpu {

using PairSet = std::vector<std::pair<uint32_t, uint32_t>>;

/// Bodies as lists of vertices.
struct TestBodies {
  std::vector<Float4> vertices;
  std::vector<uint32_t> begins = {0};

  uint32_t count() const { return static_cast<uint32_t>(begins.size() - 1); }
  uint32_t vertex_count() const { return static_cast<uint32_t>(vertices.size()); }
  void Add(const std::vector<Float4>& body) {
    vertices.insert(vertices.end(), body.begin(), body.end());
    begins.push_back(vertex_count());
  }
  /// The two corners of a box.
  void AddBox(Float4 centre, Float4 half) {
    Add({{centre.x - half.x, centre.y - half.y, centre.z - half.z, 0}, {centre.x + half.x, centre.y + half.y, centre.z + half.z, 0}});
  }
};

/// Whether volumes a and b, in the layout of FloatsPerVolume, overlap: the definition that the device must meet, operation by operation.
inline bool VolumesOverlap(BoundingVolume volume, const float* a, const float* b) {
  if (volume == BoundingVolume::kSphere) {
    if (a[3] < 0 || b[3] < 0) return false;
    const float dx = b[0] - a[0];
    const float dy = b[1] - a[1];
    const float dz = b[2] - a[2];
    const float reach = a[3] + b[3];
    return dx * dx + dy * dy + dz * dz <= reach * reach;
  }
  const uint32_t axes = AxisCount(volume);
  for (uint32_t i = 0; i < axes; ++i) {
    if (!(a[i] <= b[axes + i] && b[i] <= a[axes + i])) return false;
  }
  return true;
}

/// All pairs, sorted.
inline PairSet BruteForcePairs(BoundingVolume volume, const std::vector<float>& volumes, const std::vector<uint32_t>& filters = {}) {
  const size_t stride = FloatsPerVolume(volume);
  const auto count = static_cast<uint32_t>(volumes.size() / stride);
  PairSet pairs;
  for (uint32_t a = 0; a < count; ++a) {
    for (uint32_t b = a + 1; b < count; ++b) {
      if (!filters.empty()) {
        if ((filters[a] & filters[b] & PALPATE_BODY_STATIC) != 0) continue;
        const uint32_t group = filters[a] & PALPATE_BODY_GROUP_MASK;
        if (group != 0 && group == (filters[b] & PALPATE_BODY_GROUP_MASK)) continue;
      }
      if (VolumesOverlap(volume, &volumes[a * stride], &volumes[b * stride])) pairs.emplace_back(a, b);
    }
  }
  return pairs;
}

inline PairSet ToPairSet(const std::vector<UInt2>& pairs) {
  PairSet set;
  for (const UInt2& pair : pairs) set.emplace_back(pair.x, pair.y);
  return set;
}

/// Of the world whose coordinates are so small that their squares underflow.
inline std::string TinyWorldName() { return "scale 1e-30"; }

/// Named sets of about `size` bodies each: random ones and those that a broad phase may stumble over.
inline std::vector<std::pair<std::string, TestBodies>> TestWorlds(uint32_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto uniform = [&](double low, double high) {
    return static_cast<float>(std::uniform_real_distribution<double>(low, high)(random));
  };
  const auto point = [&](double low, double high) { return Float4{uniform(low, high), uniform(low, high), uniform(low, high), 0}; };
  const double side = std::cbrt(4.0 * size);
  std::vector<std::pair<std::string, TestBodies>> worlds;
  {
    TestBodies bodies;
    for (uint32_t i = 0; i < size; ++i) {
      std::vector<Float4> body;
      const Float4 centre = point(-side / 2, side / 2);
      for (int v = 0; v < 5; ++v) {
        const Float4 p = point(-0.7, 0.7);
        body.push_back({centre.x + p.x, centre.y + p.y, centre.z + p.z, 0});
      }
      bodies.Add(body);
    }
    worlds.emplace_back("random", std::move(bodies));
  }
  {
    TestBodies bodies;
    for (uint32_t i = 0; i < std::min(size, 300U); ++i) bodies.AddBox({1, 2, 3, 0}, {0.5F, 0.5F, 0.5F, 0});
    worlds.emplace_back("coincident", std::move(bodies));
  }
  {
    TestBodies bodies;
    for (uint32_t i = 0; i < std::min(size, 300U); ++i) {
      const float half = 1 + 0.01F * static_cast<float>(i * 7919 % 300);
      bodies.AddBox({0, 0, 0, 0}, {half, half, half, 0});
    }
    worlds.emplace_back("nested", std::move(bodies));
  }
  {
    TestBodies bodies;
    for (uint32_t i = 0; i < size; ++i) {
      if (i == size / 3) {
        bodies.AddBox({0, 0, 0, 0}, {100, 100, 100, 0});
      } else {
        bodies.AddBox(point(-90, 90), {0.2F, 0.2F, 0.2F, 0});
      }
    }
    worlds.emplace_back("one huge", std::move(bodies));
  }
  {
    TestBodies bodies;
    for (uint32_t i = 0; i < size; ++i) {
      const bool is_long = i % 11 == 0;
      bodies.AddBox(point(-side, side), {is_long ? 3 * uniform(0, side) : 0.3F, i % 22 == 0 ? 5.0F : 0.3F, 0.3F, 0});
    }
    worlds.emplace_back("some long", std::move(bodies));
  }
  {
    TestBodies bodies;
    const auto cell = [&] { return static_cast<float>(random() % 6); };
    for (uint32_t i = 0; i < size; ++i) {
      const Float4 p = {cell(), cell(), cell(), 0};
      bodies.Add({p});
    }
    worlds.emplace_back("points", std::move(bodies));
  }
  for (int direction = 0; direction < 3; ++direction) {
    TestBodies bodies;
    for (uint32_t i = 0; i < size; ++i) {
      // Neighbours touch exactly.
      const auto s = static_cast<float>(i * 7919 % size);
      bodies.AddBox({direction == 0 ? s : 0,
                     direction == 1   ? s
                     : direction == 2 ? s
                                      : 0,
                     direction == 2 ? -s : 0, 0},
                    {0.5F, 0.5F, 0.5F, 0});
    }
    worlds.emplace_back("line " + std::to_string(direction), std::move(bodies));
  }
  {
    TestBodies bodies;
    for (uint32_t i = 0; i < std::min(size, 400U); ++i) {
      const float zero = i % 2 == 0 ? 0.0F : -0.0F;
      const auto s = static_cast<float>(i / 4);
      // [.., -0] and [+0, ..] touch.
      if (i % 4 < 2) {
        bodies.Add({{zero, s, zero, 0}, {zero + 1, s + 0.5F, zero, 0}});
      } else {
        bodies.Add({{-1, s, -zero, 0}, {-zero, s + 0.25F, -zero, 0}});
      }
    }
    worlds.emplace_back("signed zeros", std::move(bodies));
  }
  for (const auto& [name, scale] : {std::pair<std::string, double>{"scale 1e6", 1e6}, {"scale 1e-6", 1e-6}, {TinyWorldName(), 1e-30}}) {
    TestBodies bodies;
    for (uint32_t i = 0; i < size; ++i) {
      const Float4 centre = point(-side / 2, side / 2);
      std::vector<Float4> body;
      for (int v = 0; v < 3; ++v) {
        const Float4 p = point(-0.7, 0.7);
        body.push_back({static_cast<float>((centre.x + p.x) * scale), static_cast<float>((centre.y + p.y) * scale),
                        static_cast<float>((centre.z + p.z) * scale), 0});
      }
      bodies.Add(body);
    }
    worlds.emplace_back(name, std::move(bodies));
  }
  {
    TestBodies bodies;
    for (uint32_t i = 0; i < size; ++i) {
      const Float4 p = point(0, side / 4);
      bodies.AddBox({1e6F + p.x, -1e6F + p.y, 1e6F + p.z, 0}, {0.5F, 0.5F, 0.5F, 0});
    }
    worlds.emplace_back("far from the origin", std::move(bodies));
  }
  {
    TestBodies bodies;
    for (uint32_t i = 0; i < size; ++i) {
      if (i % 3 == 0) {
        bodies.Add({});  // no vertices
      } else {
        bodies.AddBox(point(-side / 3, side / 3), {0.5F, 0.5F, 0.5F, 0});
      }
    }
    worlds.emplace_back("empty bodies", std::move(bodies));
  }
  for (const uint32_t few : {0U, 1U, 2U, 16U, 17U}) {
    TestBodies bodies;
    for (uint32_t i = 0; i < few; ++i) bodies.AddBox(point(-0.6, 0.6), {0.5F, 0.5F, 0.5F, 0});
    worlds.emplace_back(std::to_string(few) + " bodies", std::move(bodies));
  }
  return worlds;
}

}  // namespace palpate::gpu
