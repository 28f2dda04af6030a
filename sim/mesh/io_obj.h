#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/base/status.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// A material of a surface's file.
struct SurfaceMaterial {
  std::string name;
  std::array<float, 3> color{0.8F, 0.8F, 0.8F};  ///< diffuse (Kd), in [0, 1]
  std::string image_file;                        ///< diffuse picture (map_Kd), relative to the surface's folder; empty: none
};

/// A surface with what its look needs.
struct TexturedSurface {
  SurfaceMesh surface;
  /// [triangle_count] u v of the corners, v upwards; empty: the file has none. Zeros where a polygon has none.
  std::vector<std::array<Eigen::Vector2d, 3>> texture_corners;
  std::vector<SurfaceMaterial> materials;    ///< those that triangles use, in the order of first use
  std::vector<uint32_t> triangle_materials;  ///< [triangle_count] indices into materials; empty: there are none
};

/// Text of a library of materials, by the name that the surface's file has for it.
using MaterialSource = std::function<absl::StatusOr<std::string>(const std::string& file)>;

/// Reads a Wavefront OBJ file from memory, with texture coordinates by corner (vt) and materials (mtllib, usemtl). Polygons are cut into
/// fans of triangles (so they must be convex); vertices are joined and triangles left out as ParseSurface does; v, vt and f are used with
/// indices from the start or the end, everything else is passed over. A material that no library has is grey. Errors: InvalidArgument
/// naming `name`, line and value: numbers that are none or not finite, an index of nothing, texture coordinates beyond 1e6, names of files
/// that are absolute or contain ".."; a library's errors likewise; those of `read_library`. Allocates no more than a small multiple of the
/// input and the libraries, of which there may be 64.
absl::StatusOr<TexturedSurface> ParseTexturedObj(std::string_view bytes, std::string_view name, const MaterialSource& read_library);

/// Reads newmtl, Kd and map_Kd of an MTL file; everything else is passed over. Errors: as above.
absl::StatusOr<std::vector<SurfaceMaterial>> ParseMtl(std::string_view bytes, std::string_view name);

/// Where a library of materials is, by the name that the surface's file has for it: relative, and below that file's folder.
using LibraryFinder = std::function<absl::StatusOr<std::filesystem::path>(const std::string& file)>;

/// Reads an .obj file and its libraries, each at most 1 MiB. `find`: empty: they are beside the file or below its folder.
/// Errors: as ParseTexturedObj; NotFound or PermissionDenied (a file), ResourceExhausted (size); those of `find`.
absl::StatusOr<TexturedSurface> ReadTexturedObj(const std::filesystem::path& path, const LibraryFinder& find = {});

}  // namespace palpate::sim
