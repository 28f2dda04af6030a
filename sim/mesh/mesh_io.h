#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "gpu/base/status.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// What a reader may repair. The default repairs nothing: a file that breaks a rule of ValidateTetMesh is refused.
struct ReadOptions {
  bool flip_inverted = false;         ///< swap the last two vertices of each tet of negative volume
  bool drop_unused_vertices = false;  ///< leave out vertices that no tet uses (renumbers the vertices after them, keeps their order)
};

/// Reads a tetrahedral mesh; the extension decides: .msh (ParseMsh), .vtk (ParseVtk), .node or .ele (ParseTetGen; the sibling is found).
/// Units and frame are those of the file; vertices and tets keep the file's order. The result passes ValidateTetMesh.
/// Errors: NotFound or PermissionDenied (file), InvalidArgument (extension, contents; see the parsers), ResourceExhausted (over 4 GiB).
absl::StatusOr<TetMesh> ReadTetMesh(const std::filesystem::path& path, const ReadOptions& options = {});

/// Reads Gmsh MSH 1 (ASCII), 2.x (2.0 to 2.2) or 4.1, ASCII or binary of either byte order, from memory. Vertices are in file order,
/// whatever their tags. Points, lines and faces are skipped, other volume elements (hexahedra, quadratic tets...) are an error, and so is a
/// file without tets. The parsers below and this one allocate no more than a small multiple of the input and never read outside it.
///
/// Errors: InvalidArgument naming `name`, the line (text) or byte offset (binary) and the element.
absl::StatusOr<TetMesh> ParseMsh(std::string_view bytes, std::string_view name, const ReadOptions& options = {});

/// Reads a legacy VTK unstructured grid, ASCII or binary, CELLS in the old form or as OFFSETS and CONNECTIVITY (VTK 5.1). Of point data the
/// texture coordinates are read: TEXTURE_COORDINATES of 2 or 3 components (the third is left out), or an array of 2 components in a FIELD
/// that is named TCoords, TextureCoordinates, TexCoords or UV, case and underscores apart. Other point and cell data are ignored, and so is
/// what follows data that cannot be made out; cells are treated like elements in ParseMsh. Errors: as ParseMsh.
absl::StatusOr<TetMesh> ParseVtk(std::string_view bytes, std::string_view name, const ReadOptions& options = {});

/// Reads legacy VTK polydata, encoded as in ParseVtk: polygons, cut into fans of triangles (so they must be convex), and triangle strips.
/// Vertices are joined as in ParseSurface; lines, points and all data are ignored. Errors: as ParseMsh.
absl::StatusOr<SurfaceMesh> ParseVtkSurface(std::string_view bytes, std::string_view name);

/// Reads a TetGen pair of .node and .ele texts with 4 vertices a tet, numbered from 0 or from 1. Attributes and markers are ignored.
/// `node_name` and `ele_name` appear in errors. Errors: as ParseMsh.
absl::StatusOr<TetMesh> ParseTetGen(std::string_view node_text, std::string_view node_name, std::string_view ele_text,
                                    std::string_view ele_name, const ReadOptions& options = {});

/// Reads a surface: .obj, .stl or .ply through assimp, which keeps coordinates as float, or .vtk (polydata). See ParseSurface and
/// ParseVtkSurface.
/// Errors: NotFound or PermissionDenied (file), InvalidArgument (extension, contents), ResourceExhausted (file above 1 GiB).
absl::StatusOr<SurfaceMesh> ReadSurfaceMesh(const std::filesystem::path& path);

/// Reads a surface from memory. `extension` is ".obj", ".stl" or ".ply". Polygons are triangulated, groups are merged, vertices with equal
/// coordinates are joined (so an STL file gives a connected surface) in the order of first use, triangles that lose a vertex by that (they
/// have no area) are left out, and so are points and lines. The surface may be open or cross itself: see CheckClosedSurface. STL and PLY
/// files that are cut off are refused; an OBJ file does not say where it ends, so a cut between two lines shows only as an open surface.
///
/// Errors: InvalidArgument naming `name` and what is wrong.
absl::StatusOr<SurfaceMesh> ParseSurface(std::string_view bytes, std::string_view extension, std::string_view name);

enum class MshVersion { k22, k41 };          ///< Gmsh MSH 2.2 or 4.1, both ASCII
enum class VtkEncoding { kAscii, kBinary };  ///< legacy VTK: text, or big-endian binary

/// Groups of tets are the physical volumes of MSH files, with their names, and in VTK files the cell scalars `label` (or Gmsh's
/// CellEntityIds), without names. One group without a name is none.
///
/// The mesh as the text (or bytes) of a file. Coordinates are written so that reading gives the same doubles, independent of the locale.
/// Texture coordinates are in VTK files only.
/// Precondition: the indices are in range.
std::string FormatMsh(const TetMesh& mesh, MshVersion version = MshVersion::k41);
std::string FormatVtk(const TetMesh& mesh, VtkEncoding encoding = VtkEncoding::kAscii);
std::string FormatObj(const SurfaceMesh& surface);
/// Binary, little-endian. STL has coordinates as float and no shared vertices; PLY has the same doubles and indices.
std::string FormatStl(const SurfaceMesh& surface);
std::string FormatPly(const SurfaceMesh& surface);

/// Writes what the Format function of the same name gives to a file, replacing it. Errors: NotFound, PermissionDenied, ResourceExhausted or
/// Unknown (system error), naming the path.
absl::Status WriteMsh(const TetMesh& mesh, const std::filesystem::path& path, MshVersion version = MshVersion::k41);
absl::Status WriteVtk(const TetMesh& mesh, const std::filesystem::path& path, VtkEncoding encoding = VtkEncoding::kAscii);
absl::Status WriteObj(const SurfaceMesh& surface, const std::filesystem::path& path);

}  // namespace palpate::sim
