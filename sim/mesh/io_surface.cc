// Surfaces through assimp. The one file of this folder that is compiled with exceptions: assimp throws, and lets some through.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <assimp/BaseImporter.h>
#include <assimp/MemoryIOWrapper.h>
#include <assimp/config.h>
#include <assimp/importerdesc.h>
#include <assimp/postprocess.h>
#include <assimp/scene.h>
#include <assimp/IOSystem.hpp>
#include <assimp/Importer.hpp>

#include <Eigen/Geometry>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/mesh/io_cursor.h"
#include "sim/mesh/mesh_io.h"

// The packaged assimp checks its invariants on any input and ends the process when one is broken. This definition takes the place of the
// library's own (both are visible to the dynamic linker, and the program comes first), so that bad input becomes an error.
namespace Assimp {
void aiAssertViolation(const char* expression, const char* /*file*/, int /*line*/) {
  throw std::runtime_error(std::string("broken invariant: ") + expression);
}
}  // namespace Assimp

namespace palpate::sim {
namespace {

// Shows assimp one file and nothing of the file system: an OBJ file can name others.
class OneFile : public Assimp::IOSystem {
 public:
  OneFile(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  bool Exists(const char* file) const override { return file == name_; }
  char getOsSeparator() const override { return '/'; }
  Assimp::IOStream* Open(const char* file, const char* mode) override {
    if (file != name_ || mode[0] != 'r') return nullptr;
    return new Assimp::MemoryIOStream(reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size(), /*own=*/false);
  }
  void Close(Assimp::IOStream* stream) override { delete stream; }

 private:
  std::string_view bytes_;
  std::string name_;
};

// What assimp lets pass: it allocates what the header of a PLY file asks for before it reads on, and takes a cut file for a short one.
// Gives the number of faces announced.
absl::StatusOr<uint64_t> CheckPlyHeader(std::string_view bytes, std::string_view name) {
  Cursor in(bytes, name);
  uint64_t total = 0;
  uint64_t faces = 0;
  bool is_text = false;
  while (!in.AtEnd()) {
    const size_t begin = in.offset();
    const std::vector<std::string_view> words = SplitWords(in.Line());
    if (words.empty()) continue;
    if (words[0] == "format") is_text = words.size() > 1 && words[1] == "ascii";
    if (words[0] == "end_header") {
      // A text has each element on a line of its own; the last one may lack its end.
      const std::string_view data = in.rest();
      const auto lines = static_cast<uint64_t>(std::count(data.begin(), data.end(), '\n')) + (data.ends_with('\n') ? 0 : 1);
      if (is_text && lines < total) {
        return in.Error(absl::StrFormat("%d elements announced, but only %d lines follow: the file is cut off", total, lines));
      }
      return faces;
    }
    if (words[0] != "element") continue;
    uint64_t count = 0;
    if (words.size() != 3 || !ParseUnsigned(words[2], &count)) {
      return ErrorAt(in.source(), begin, "\"element name count\" expected");
    }
    if (count > bytes.size() || total + count > bytes.size()) {
      return ErrorAt(in.source(), begin, absl::StrFormat("%d elements announced, but the file has only %d bytes", count, bytes.size()));
    }
    total += count;
    if (words[1] == "face") faces += count;
  }
  return in.Truncated("end_header");
}

absl::Status CheckStlEnd(std::string_view bytes, std::string_view name) {
  constexpr size_t kHeaderBytes = 84;
  constexpr size_t kTriangleBytes = 50;
  const bool fits_binary = bytes.size() >= kHeaderBytes && (bytes.size() - kHeaderBytes) % kTriangleBytes == 0;
  if (bytes.substr(0, 5) != "solid" || fits_binary || bytes.rfind("endsolid") != std::string_view::npos) return absl::OkStatus();
  return Cursor(bytes, name).Truncated("endsolid");
}

// Leaves only the reader of one format: else assimp guesses from the contents.
void KeepOneReader(Assimp::Importer& importer, std::string_view format) {
  for (size_t i = importer.GetImporterCount(); i-- > 0;) {
    if (std::string_view(importer.GetImporterInfo(i)->mFileExtensions) == format) continue;
    std::unique_ptr<Assimp::BaseImporter> other(importer.GetImporter(i));
    importer.UnregisterLoader(other.get());
  }
}

absl::StatusOr<SurfaceMesh> Convert(const aiScene& scene, std::string_view name) {
  SurfaceMesh surface;
  absl::flat_hash_map<std::array<float, 3>, uint32_t> vertex_at;
  for (unsigned int m = 0; m < scene.mNumMeshes; ++m) {
    const aiMesh& mesh = *scene.mMeshes[m];
    for (unsigned int f = 0; f < mesh.mNumFaces; ++f) {
      const aiFace& face = mesh.mFaces[f];
      if (face.mNumIndices != 3) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s: group %d, face %d has %d vertices, must have 3 or more", ToAbsl(name), m, f, face.mNumIndices));
      }
      std::array<uint32_t, 3> triangle;
      for (unsigned int k = 0; k < 3; ++k) {
        if (face.mIndices[k] >= mesh.mNumVertices) {
          return absl::InvalidArgumentError(absl::StrFormat("%s: group %d, triangle %d: vertex index %d, but there are %d vertices",
                                                            ToAbsl(name), m, f, face.mIndices[k], mesh.mNumVertices));
        }
        const aiVector3D& p = mesh.mVertices[face.mIndices[k]];
        if (!std::isfinite(p.x) || !std::isfinite(p.y) || !std::isfinite(p.z)) {
          return absl::InvalidArgumentError(
              absl::StrFormat("%s: group %d, triangle %d: coordinate (%g, %g, %g) is not finite", ToAbsl(name), m, f, p.x, p.y, p.z));
        }
        // Adding zero makes -0 and 0 the same key.
        const std::array<float, 3> key = {p.x + 0.0F, p.y + 0.0F, p.z + 0.0F};
        const auto [place, is_new] = vertex_at.try_emplace(key, static_cast<uint32_t>(surface.vertices.size()));
        if (is_new) surface.vertices.emplace_back(key[0], key[1], key[2]);
        triangle[k] = place->second;
      }
      if (triangle[0] == triangle[1] || triangle[1] == triangle[2] || triangle[2] == triangle[0]) continue;
      surface.triangles.push_back(triangle);
    }
  }
  if (surface.triangles.empty()) return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": the file has no triangles"));
  // A vertex that only a dropped triangle had would be left over.
  std::vector<uint32_t> new_index(surface.vertices.size(), std::numeric_limits<uint32_t>::max());
  for (const auto& triangle : surface.triangles) {
    for (const uint32_t v : triangle) new_index[v] = 0;
  }
  uint32_t count = 0;
  for (size_t v = 0; v < new_index.size(); ++v) {
    if (new_index[v] != 0) continue;
    new_index[v] = count;
    surface.vertices[count++] = surface.vertices[v];
  }
  surface.vertices.resize(count);
  for (auto& triangle : surface.triangles) {
    for (uint32_t& v : triangle) v = new_index[v];
  }
  return surface;
}

absl::StatusOr<SurfaceMesh> Import(std::string_view bytes, std::string_view format, std::string_view name, uint64_t ply_faces) {
  Assimp::Importer importer;
  KeepOneReader(importer, format);
  const std::string file = absl::StrCat("surface.", ToAbsl(format));
  importer.SetIOHandler(new OneFile(bytes, file));  // the importer deletes it
  // One step after the other: validation keeps wrong indices away from the triangulation, which also fails on a mesh of lines.
  importer.SetPropertyInteger(AI_CONFIG_PP_SBP_REMOVE, aiPrimitiveType_POINT | aiPrimitiveType_LINE);
  const aiScene* scene = importer.ReadFile(file, aiProcess_ValidateDataStructure);
  if (scene != nullptr && format == "ply") {
    uint64_t found = 0;
    for (unsigned int m = 0; m < scene->mNumMeshes; ++m) found += scene->mMeshes[m]->mNumFaces;
    if (found != ply_faces) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %d faces announced, %d found: the file is cut off", ToAbsl(name), ply_faces, found));
    }
  }
  if (scene != nullptr) scene = importer.ApplyPostProcessing(aiProcess_SortByPType);
  if (scene != nullptr) scene = importer.ApplyPostProcessing(aiProcess_Triangulate);
  if (scene == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(name), ": not a readable .", ToAbsl(format), " file with triangles: ", importer.GetErrorString()));
  }
  return Convert(*scene, name);
}

template <typename Unsigned>
void AppendLittle(Unsigned value, std::string* out) {
  for (size_t i = 0; i < sizeof(value); ++i) *out += static_cast<char>(value >> (8 * i) & 0xff);
}

}  // namespace

absl::StatusOr<SurfaceMesh> ParseSurface(std::string_view bytes, std::string_view extension, std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(ToAbsl(extension));
  if (lower != ".obj" && lower != ".stl" && lower != ".ply") {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": extension ", Quoted(extension), " is not one of .obj .stl .ply"));
  }
  uint64_t ply_faces = 0;
  if (lower == ".ply") {
    PALPATE_ASSIGN_OR_RETURN(ply_faces, CheckPlyHeader(bytes, name));
  }
  if (lower == ".stl") PALPATE_RETURN_IF_ERROR(CheckStlEnd(bytes, name));
  try {
    return Import(bytes, std::string_view(lower).substr(1), name, ply_faces);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": not a readable ", lower, " file: ", error.what()));
  }
}

std::string FormatObj(const SurfaceMesh& surface) {
  std::string out;
  out.reserve(64 * surface.vertices.size() + 24 * surface.triangles.size());
  for (const Eigen::Vector3d& p : surface.vertices) {
    out += "v ";
    AppendPoint(p, &out);
    out += '\n';
  }
  for (const auto& t : surface.triangles) {
    absl::StrAppend(&out, "f ", size_t{1} + t[0], " ", size_t{1} + t[1], " ");
    absl::StrAppend(&out, size_t{1} + t[2], "\n");
  }
  return out;
}

std::string FormatStl(const SurfaceMesh& surface) {
  std::string out(80, '\0');  // a header without meaning
  out.reserve(84 + 50 * surface.triangles.size());
  AppendLittle(static_cast<uint32_t>(surface.triangles.size()), &out);
  for (const auto& t : surface.triangles) {
    const Eigen::Vector3d &a = surface.vertices[t[0]], &b = surface.vertices[t[1]], &c = surface.vertices[t[2]];
    for (const Eigen::Vector3d& p : {Eigen::Vector3d((b - a).cross(c - a).stableNormalized()), a, b, c}) {
      for (int axis = 0; axis < 3; ++axis) AppendLittle(std::bit_cast<uint32_t>(static_cast<float>(p[axis])), &out);
    }
    AppendLittle(uint16_t{0}, &out);
  }
  return out;
}

std::string FormatPly(const SurfaceMesh& surface) {
  std::string out = absl::StrCat("ply\nformat binary_little_endian 1.0\nelement vertex ", surface.vertices.size(),
                                 "\nproperty double x\nproperty double y\nproperty double z\nelement face ", surface.triangles.size(),
                                 "\nproperty list uchar uint vertex_indices\nend_header\n");
  out.reserve(out.size() + 24 * surface.vertices.size() + 13 * surface.triangles.size());
  for (const Eigen::Vector3d& p : surface.vertices) {
    for (int axis = 0; axis < 3; ++axis) AppendLittle(std::bit_cast<uint64_t>(p[axis]), &out);
  }
  for (const auto& t : surface.triangles) {
    out += '\3';
    for (const uint32_t v : t) AppendLittle(v, &out);
  }
  return out;
}

}  // namespace palpate::sim
