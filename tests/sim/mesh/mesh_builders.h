#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <numbers>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <Eigen/Geometry>

#include "sim/mesh/tet_mesh.h"

// Meshes and bytes that the tests of this folder share.
namespace palpate::sim {

/// One positive tet: the corner of the unit cube.
inline TetMesh UnitTet() { return {{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, {{0, 1, 2, 3}}}; }

/// A box of nx * ny * nz cubes of edge `h`, each cut into 6 tets around its main diagonal.
inline TetMesh BoxMesh(uint32_t nx, uint32_t ny, uint32_t nz, double h = 1.0) {
  TetMesh mesh;
  const auto index = [=](uint32_t i, uint32_t j, uint32_t k) { return (k * (ny + 1) + j) * (nx + 1) + i; };
  for (uint32_t k = 0; k <= nz; ++k) {
    for (uint32_t j = 0; j <= ny; ++j) {
      for (uint32_t i = 0; i <= nx; ++i) mesh.vertices.emplace_back(h * i, h * j, h * k);
    }
  }
  std::array<int, 3> axes = {0, 1, 2};
  do {
    // Walk from one end of the diagonal to the other along the axes in this order; an odd order turns the tet over.
    const bool is_even =
        (axes == std::array<int, 3>{0, 1, 2}) || (axes == std::array<int, 3>{1, 2, 0}) || (axes == std::array<int, 3>{2, 0, 1});
    for (uint32_t k = 0; k < nz; ++k) {
      for (uint32_t j = 0; j < ny; ++j) {
        for (uint32_t i = 0; i < nx; ++i) {
          std::array<uint32_t, 3> at = {i, j, k};
          std::array<uint32_t, 4> tet;
          tet[0] = index(at[0], at[1], at[2]);
          for (size_t s = 0; s < 3; ++s) {
            ++at[static_cast<size_t>(axes[s])];
            tet[s + 1] = index(at[0], at[1], at[2]);
          }
          if (!is_even) std::swap(tet[2], tet[3]);
          mesh.tets.push_back(tet);
        }
      }
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
  return mesh;
}

/// BoxMesh with interior and boundary shaken a little and coordinates that need all 17 digits.
inline TetMesh ShakenBox(uint32_t n, uint32_t seed) {
  TetMesh mesh = BoxMesh(n, n, n, 0.1);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> shake(-0.01, 0.01);
  for (auto& v : mesh.vertices) v += Eigen::Vector3d(shake(random), shake(random), shake(random));
  return mesh;
}

/// Outward unit cube of 12 triangles, moved and scaled.
inline SurfaceMesh CubeSurface(const Eigen::Vector3d& corner = {0, 0, 0}, double edge = 1.0) {
  SurfaceMesh cube;
  for (int i = 0; i < 8; ++i) cube.vertices.push_back(corner + edge * Eigen::Vector3d(i & 1, (i >> 1) & 1, (i >> 2) & 1));
  cube.triangles = {{0, 2, 3}, {0, 3, 1}, {4, 5, 7}, {4, 7, 6}, {0, 1, 5}, {0, 5, 4},
                    {2, 6, 7}, {2, 7, 3}, {0, 4, 6}, {0, 6, 2}, {1, 3, 7}, {1, 7, 5}};
  return cube;
}

/// Outward torus around z of rings * sides * 2 triangles.
inline SurfaceMesh TorusSurface(uint32_t rings, uint32_t sides, double major = 1.0, double minor = 0.4) {
  SurfaceMesh torus;
  for (uint32_t i = 0; i < rings; ++i) {
    const double u = 2.0 * std::numbers::pi * i / rings;
    for (uint32_t k = 0; k < sides; ++k) {
      const double v = 2.0 * std::numbers::pi * k / sides;
      const double r = major + minor * std::cos(v);
      torus.vertices.emplace_back(r * std::cos(u), r * std::sin(u), minor * std::sin(v));
    }
  }
  for (uint32_t i = 0; i < rings; ++i) {
    for (uint32_t k = 0; k < sides; ++k) {
      const uint32_t a = i * sides + k;
      const uint32_t b = (i + 1) % rings * sides + k;
      const uint32_t c = (i + 1) % rings * sides + (k + 1) % sides;
      const uint32_t d = i * sides + (k + 1) % sides;
      torus.triangles.push_back({a, b, c});
      torus.triangles.push_back({a, c, d});
    }
  }
  return torus;
}

/// Both surfaces in one, not joined.
inline SurfaceMesh Together(const SurfaceMesh& a, const SurfaceMesh& b) {
  SurfaceMesh both = a;
  const auto shift = static_cast<uint32_t>(a.vertices.size());
  both.vertices.insert(both.vertices.end(), b.vertices.begin(), b.vertices.end());
  for (const auto& t : b.triangles) both.triangles.push_back({t[0] + shift, t[1] + shift, t[2] + shift});
  return both;
}

inline SurfaceMesh TurnedOver(SurfaceMesh surface) {
  for (auto& t : surface.triangles) std::swap(t[1], t[2]);
  return surface;
}

inline double EnclosedVolume(const SurfaceMesh& surface) {
  double volume = 0.0;
  for (const auto& t : surface.triangles) volume += surface.vertices[t[0]].dot(surface.vertices[t[1]].cross(surface.vertices[t[2]])) / 6.0;
  return volume;
}

/// Builds binary files value by value in either byte order.
class Bytes {
 public:
  explicit Bytes(bool is_big_endian = false) : is_swapped_(is_big_endian == (std::endian::native == std::endian::little)) {}
  Bytes& Text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  template <typename T>
  Bytes& Value(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    if (is_swapped_) std::reverse(raw, raw + sizeof(T));
    bytes_.append(raw, sizeof(T));
    return *this;
  }
  template <typename T>
  Bytes& Values(std::initializer_list<T> values) {
    for (const T value : values) Value(value);
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  bool is_swapped_;
  std::string bytes_;
};

/// Expects a failure with this code whose message has all the parts.
template <typename StatusLike>
void ExpectError(const StatusLike& result, absl::StatusCode code, std::initializer_list<std::string_view> parts) {
  absl::Status status;
  if constexpr (std::is_same_v<StatusLike, absl::Status>) {
    status = result;
  } else {
    status = result.status();
  }
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string_view part : parts) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << "\"" << part << "\" is not in: " << status;
  }
}
template <typename StatusLike>
void ExpectInvalid(const StatusLike& result, std::initializer_list<std::string_view> parts) {
  ExpectError(result, absl::StatusCode::kInvalidArgument, parts);
}

inline void ExpectSameMesh(const TetMesh& a, const TetMesh& b) {
  ASSERT_EQ(a.vertices.size(), b.vertices.size());
  for (size_t v = 0; v < a.vertices.size(); ++v) EXPECT_EQ(a.vertices[v], b.vertices[v]) << "vertex " << v;
  EXPECT_EQ(a.tets, b.tets);
}

/// Every proper beginning of a file must be refused without harm: read them all (or a sample of large ones).
template <typename Parse>
void ExpectBeginningsFail(std::string_view whole, size_t shortest_good, Parse parse) {
  for (size_t length = 0; length < shortest_good; ++length) {
    // An exact copy, so that a sanitizer sees a read beyond it.
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    const absl::Status status = parse(std::string_view(part.data(), part.size()));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << "first " << length << " bytes: " << status;
  }
}

}  // namespace palpate::sim
