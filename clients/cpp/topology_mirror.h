#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "palpate/v1/stream.pb.h"

namespace palpate::client {

/// A reader's copy of what the bodies of a scene are made of: the arrays of the last keyframe, brought from version to version by the
/// deltas after it (docs/streaming.md). Each change costs as much as its message. Not thread-safe.
class TopologyMirror {
 public:
  using Triangle = std::array<uint32_t, 3>;
  using Tet = std::array<uint32_t, 4>;
  using TextureCorners = std::array<std::array<float, 2>, 3>;
  static constexpr Triangle kFreeTriangle = {0, 0, 0};
  static constexpr Tet kFreeTet = {0, 0, 0, 0};

  struct Body {
    std::string name;
    std::string parent;               ///< of a piece that was cut off: the body it came from
    uint32_t vertex_count = 0;        ///< positions per frame
    std::vector<Triangle> triangles;  ///< [slot] indices of positions; kFreeTriangle: a free slot
    std::vector<uint32_t> zones;      ///< [slot of triangle]
    std::vector<Tet> tets;            ///< [slot]; only of streams with the volume
    std::vector<uint32_t> fixed;      ///< indices of positions
    bool has_texture = false;
    v1::SurfaceTexture texture;  ///< how texture coordinates are meant
    /// [vertex_count] u v, (0, 0) where there are none; empty without has_texture.
    std::vector<std::array<float, 2>> texture_coordinates;
    /// [slot of triangle] u v of its corners, only with texture.by_corner(), and texture_coordinates is empty then; zeros: none.
    std::vector<TextureCorners> texture_corners;
    uint64_t mesh_hash = 0;  ///< of the arrays, checked against the server's

    size_t triangle_count() const;  ///< without free slots
    size_t tet_count() const;
  };

  /// A point that rides in the tissue; where it is, is in every frame.
  struct Marker {
    std::string name;
    std::string body;  ///< that it was put into
  };

  /// Errors: DataLoss: the message makes no sense, or its arrays do not have the hash that it says. The mirror is of no use then until the
  /// next keyframe.
  absl::Status Apply(const v1::Keyframe& keyframe);
  /// Errors: DataLoss, also if the delta does not begin at version().
  absl::Status Apply(const v1::TopologyDelta& delta);
  /// Whether a frame belongs to the arrays. Errors: DataLoss (another version, another number of bodies or markers, a marker in no body).
  absl::Status Check(const v1::Frame& frame) const;

  uint64_t version() const { return version_; }  ///< 0: no keyframe yet
  const std::vector<Body>& bodies() const { return bodies_; }
  const std::vector<Marker>& markers() const { return markers_; }  ///< in the order of Frame.markers

 private:
  absl::Status AddBody(const v1::BodyTopology& topology);
  absl::Status ApplyBody(const v1::BodyDelta& delta);

  uint64_t version_ = 0;
  std::vector<Body> bodies_;
  std::vector<Marker> markers_;
};

/// Hashes of live slots, whose sums modulo 2^64 are the hashes of arrays.
uint64_t HashOfTriangle(uint32_t slot, const TopologyMirror::Triangle& triangle, uint32_t zone);
uint64_t HashOfTet(uint32_t slot, const TopologyMirror::Tet& tet);
/// Of the texture coordinate of a position's index; 0 for (0, 0). Precondition: no negative zero.
uint64_t HashOfTextureCoordinate(uint32_t place, const std::array<float, 2>& value);
/// Of the texture coordinates of a triangle's corners; 0 for zeros. Precondition: no negative zero.
uint64_t HashOfTextureCorners(uint32_t slot, const TopologyMirror::TextureCorners& corners);

}  // namespace palpate::client
