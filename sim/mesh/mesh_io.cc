#include "sim/mesh/mesh_io.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/mesh/io_cursor.h"
#include "sim/mesh/io_obj.h"

namespace palpate::sim {
namespace {

constexpr uint64_t kMaxTetFileBytes = uint64_t{4} << 30;
constexpr uint64_t kMaxLibraryBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxSurfaceFileBytes = uint64_t{1} << 30;

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

absl::Status SystemError(int error, std::string_view what, const std::filesystem::path& path) {
  return absl::ErrnoToStatus(error, absl::StrCat(ToAbsl(what), " ", path.string()));
}

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path, uint64_t max_bytes) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error) return SystemError(error.value(), "cannot read", path);
  // A pipe or a device might never end.
  if (!std::filesystem::is_regular_file(status)) return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a regular file"));
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return SystemError(error.value(), "cannot read", path);
  if (size > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat("%s: %d bytes are more than the limit of %d", path.string(), size, max_bytes));
  }
  const File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return SystemError(errno, "cannot read", path);
  std::string bytes(size, '\0');
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file.get()));
  if (std::ferror(file.get()) != 0) return SystemError(errno, "cannot read", path);
  return bytes;
}

absl::Status WriteFile(std::string_view bytes, const std::filesystem::path& path) {
  File file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return SystemError(errno, "cannot write", path);
  if (std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) return SystemError(errno, "cannot write", path);
  // Closing writes what is left in the buffer, so it can fail too.
  if (std::fclose(file.release()) != 0) return SystemError(errno, "cannot write", path);
  return absl::OkStatus();
}

std::string LowerExtension(const std::filesystem::path& path) { return absl::AsciiStrToLower(path.extension().string()); }

/// The path of `file`, as `path` names it. A link may not lead out of the folder.
absl::StatusOr<std::filesystem::path> FindBeside(const std::filesystem::path& path, const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(path).remove_filename();
  std::error_code error;
  const std::filesystem::path real_folder = std::filesystem::canonical(folder.empty() ? "." : folder, error);
  const std::filesystem::path real = std::filesystem::canonical(folder / file, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", (folder / file).string()));
  const std::filesystem::path below = real.lexically_relative(real_folder);
  if (below.empty() || *below.begin() == "..") {
    return absl::InvalidArgumentError(absl::StrCat((folder / file).string(), ": leads outside the surface's folder"));
  }
  return folder / file;
}

}  // namespace

absl::StatusOr<TetMesh> ReadTetMesh(const std::filesystem::path& path, const ReadOptions& options) {
  const std::string extension = LowerExtension(path);
  if (extension == ".node" || extension == ".ele") {
    std::filesystem::path node_path = path;
    std::filesystem::path ele_path = path;
    (extension == ".node" ? ele_path : node_path).replace_extension(extension == ".node" ? ".ele" : ".node");
    PALPATE_ASSIGN_OR_RETURN(const std::string nodes, ReadFile(node_path, kMaxTetFileBytes));
    PALPATE_ASSIGN_OR_RETURN(const std::string tets, ReadFile(ele_path, kMaxTetFileBytes));
    return ParseTetGen(nodes, node_path.string(), tets, ele_path.string(), options);
  }
  if (extension != ".msh" && extension != ".vtk") {
    return absl::InvalidArgumentError(absl::StrFormat("%s: extension \"%s\" is not one of .msh .vtk .node .ele", path.string(), extension));
  }
  PALPATE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxTetFileBytes));
  return extension == ".msh" ? ParseMsh(bytes, path.string(), options) : ParseVtk(bytes, path.string(), options);
}

absl::StatusOr<SurfaceMesh> ReadSurfaceMesh(const std::filesystem::path& path) {
  const std::string extension = LowerExtension(path);
  if (extension != ".obj" && extension != ".stl" && extension != ".ply" && extension != ".vtk") {
    return absl::InvalidArgumentError(absl::StrFormat("%s: extension \"%s\" is not one of .obj .stl .ply .vtk", path.string(), extension));
  }
  PALPATE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxSurfaceFileBytes));
  return extension == ".vtk" ? ParseVtkSurface(bytes, path.string()) : ParseSurface(bytes, extension, path.string());
}

absl::StatusOr<TexturedSurface> ReadTexturedObj(const std::filesystem::path& path, const LibraryFinder& find) {
  if (LowerExtension(path) != ".obj") {
    return absl::InvalidArgumentError(absl::StrFormat("%s: extension \"%s\" is not .obj", path.string(), LowerExtension(path)));
  }
  PALPATE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxSurfaceFileBytes));
  return ParseTexturedObj(bytes, path.string(), [&](const std::string& file) -> absl::StatusOr<std::string> {
    PALPATE_ASSIGN_OR_RETURN(const std::filesystem::path library, find ? find(file) : FindBeside(path, file));
    return ReadFile(library, kMaxLibraryBytes);
  });
}

absl::Status WriteMsh(const TetMesh& mesh, const std::filesystem::path& path, MshVersion version) {
  return WriteFile(FormatMsh(mesh, version), path);
}

absl::Status WriteVtk(const TetMesh& mesh, const std::filesystem::path& path, VtkEncoding encoding) {
  return WriteFile(FormatVtk(mesh, encoding), path);
}

absl::Status WriteObj(const SurfaceMesh& surface, const std::filesystem::path& path) { return WriteFile(FormatObj(surface), path); }

}  // namespace palpate::sim
