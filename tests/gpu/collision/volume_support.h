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

/// Whether oriented boxes a and b overlap, in float as on the device: operation by operation, a before b.
inline bool OrientedBoxesOverlap(const float* a, const float* b) {
  float d[3], t[3], r[3][3];
  const float* ha = a + 9;
  const float* hb = b + 9;
  for (int i = 0; i < 3; ++i) d[i] = b[6 + i] - a[6 + i];
  for (int i = 0; i < 3; ++i) {
    const float* u = a + 12 + 3 * i;
    t[i] = d[0] * u[0] + d[1] * u[1] + d[2] * u[2];
    for (int j = 0; j < 3; ++j) {
      const float* v = b + 12 + 3 * j;
      r[i][j] = u[0] * v[0] + u[1] * v[1] + u[2] * v[2];
    }
  }
  const float slack = 1.9073486328125e-6F * ((ha[0] + ha[1] + ha[2]) + (hb[0] + hb[1] + hb[2])) + 1e-37F;
  for (int i = 0; i < 3; ++i) {
    const float of_a = ha[i] + hb[0] * std::abs(r[i][0]) + hb[1] * std::abs(r[i][1]) + hb[2] * std::abs(r[i][2]);
    if (std::abs(t[i]) - of_a > slack) return false;
    const float of_b = hb[i] + ha[0] * std::abs(r[0][i]) + ha[1] * std::abs(r[1][i]) + ha[2] * std::abs(r[2][i]);
    if (std::abs(t[0] * r[0][i] + t[1] * r[1][i] + t[2] * r[2][i]) - of_b > slack) return false;
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const int i1 = (i + 1) % 3, i2 = (i + 2) % 3, j1 = (j + 1) % 3, j2 = (j + 2) % 3;
      const float of_both =
          ha[i1] * std::abs(r[i2][j]) + ha[i2] * std::abs(r[i1][j]) + hb[j1] * std::abs(r[i][j2]) + hb[j2] * std::abs(r[i][j1]);
      if (std::abs(t[i2] * r[i1][j] - t[i1] * r[i2][j]) - of_both > slack) return false;
    }
  }
  return true;
}

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
  return volume != BoundingVolume::kOrientedBox || OrientedBoxesOverlap(a, b);
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
