#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/base/status.h"
#include "sim/export/byte_sink.h"

namespace palpate::sim {

/// A picture for a texture, as its file has it.
struct GltfImage {
  std::string name;
  std::string media_type;  ///< image/png or image/jpeg
  std::string bytes;
};

struct GltfMaterial {
  std::string name;
  std::array<float, 3> color{0.8F, 0.8F, 0.8F};  ///< red, green, blue, linear, in [0, 1]; multiplies the image
  float roughness = 0.5F;                        ///< in [0, 1]
  std::shared_ptr<const GltfImage> image;        ///< null: none. Repeats with each whole number of the texture coordinates
};

/// A surface with its materials. Does not own its arrays. Metres, z up; v of texture coordinates grows upwards in the image.
struct GltfSurface {
  std::string name;
  std::span<const float> positions_m;                         ///< [vertex_count * 3]
  std::span<const std::array<uint32_t, 3>> triangles;         ///< counter-clockwise from outside
  std::span<const uint16_t> triangle_materials;               ///< [triangle_count] indices into materials, or empty: all 0
  std::span<const std::array<float, 2>> texture_coordinates;  ///< [vertex_count] or empty
  std::span<const float> normals;                             ///< [vertex_count * 3] unit, or empty: made of the triangles, by area
  std::span<const GltfMaterial> materials;                    ///< at least one
};

/// A glTF 2.0 binary (.glb) of a moment: a node for each surface, in a coordinate frame with y up as glTF wants it. Surfaces without
/// triangles are left out. Errors: InvalidArgument (arrays of other sizes, an index out of range, a value that is not finite), naming the
/// surface; ResourceExhausted (4 GiB, which the format cannot say); those of the sink.
absl::Status WriteGlb(std::span<const GltfSurface> surfaces, ByteSink* sink);
absl::Status WriteGlb(std::span<const GltfSurface> surfaces, const std::filesystem::path& path);

/// A .glb of a recorded series, which viewers play. Each moment is a morph target with the positions and normals of all vertices, and an
/// animation lets their weights follow the time, linearly between moments. Where the triangles of a surface change, as by a cut, another
/// node takes its place at that moment.
/// Memory is that of one moment and its topology; the arrays wait in a file beside PATH until Finish puts them in. A process that is killed
/// leaves no .glb.
class GltfSeries {
 public:
  static absl::StatusOr<GltfSeries> Create(const std::filesystem::path& path);
  GltfSeries(GltfSeries&&) noexcept;
  GltfSeries& operator=(GltfSeries&&) noexcept;
  ~GltfSeries();

  /// A moment, after the last one; surfaces are known by their names, and one that is not given is gone. Materials, texture coordinates and
  /// triangles count when a surface first comes and when its triangles change. Errors: as WriteGlb; InvalidArgument (a time that is not
  /// finite, negative or not above the last; two surfaces of one name).
  absl::Status Add(double time_s, std::span<const GltfSurface> surfaces);
  /// Writes the file. Nothing may be added afterwards. Errors: as WriteGlb; FailedPrecondition (no moment, or finished).
  absl::Status Finish();

 private:
  class Impl;
  explicit GltfSeries(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace palpate::sim
