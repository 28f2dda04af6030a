#include "sim/mesh/io_obj.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/mesh/io_cursor.h"

namespace palpate::sim {
namespace {

constexpr size_t kMaxLibraries = 64;
constexpr double kMaxTextureCoordinate = 1e6;
constexpr size_t kMaxNameBytes = 1024;

/// What is left of a line behind its first word: names of files and materials may hold spaces.
std::string_view AfterWord(std::string_view line) {
  const auto trim = [](std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r");
    return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
  };
  line = trim(line);
  const size_t end = line.find_first_of(" \t");
  return end == std::string_view::npos ? std::string_view() : trim(line.substr(end));
}

/// A file's name as another file has it: relative and without a way out of the folder. Nothing: it may not be used.
std::optional<std::string> SafeName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes || std::any_of(name.begin(), name.end(), [](char c) { return c >= 0 && c < ' '; }))
    return std::nullopt;
  std::string out(name);
  std::replace(out.begin(), out.end(), '\\', '/');
  if (out[0] == '/' || (out.size() > 1 && out[1] == ':')) return std::nullopt;
  for (size_t begin = 0; begin <= out.size();) {
    const size_t end = std::min(out.find('/', begin), out.size());
    if (std::string_view(out).substr(begin, end - begin) == "..") return std::nullopt;
    begin = end + 1;
  }
  return out;
}

/// A name for messages.
std::string Printable(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

absl::Status UnsafeName(const SourceText& source, size_t offset, std::string_view what, std::string_view name) {
  return ErrorAt(source, offset, absl::StrCat(ToAbsl(what), " ", Quoted(name), ": must be a name below the file's folder"));
}

class ObjParser {
 public:
  ObjParser(std::string_view bytes, std::string_view name, const MaterialSource& read_library)
      : in_(bytes, name), read_library_(read_library) {}

  absl::StatusOr<TexturedSurface> Parse() {
    while (!in_.AtEnd()) {
      const size_t begin = in_.offset();
      const std::string_view line = in_.Line();
      const std::vector<std::string_view> words = SplitWords(line);
      if (words.empty() || words[0][0] == '#') continue;
      PALPATE_RETURN_IF_ERROR(TakeLine(words, line, begin));
    }
    if (out_.surface.triangles.empty())
      return absl::InvalidArgumentError(absl::StrCat(ToAbsl(in_.source().name), ": the file has no triangles"));
    if (!has_texture_) out_.texture_corners.clear();
    if (out_.materials.empty()) out_.triangle_materials.clear();
    DropUnused();
    return std::move(out_);
  }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  struct Corner {
    uint32_t vertex = 0;
    uint32_t texture = kNone;
  };

  absl::Status TakeLine(const std::vector<std::string_view>& words, std::string_view line, size_t begin) {
    if (words[0] == "v") return TakeVertex(words, begin);
    if (words[0] == "vt") return TakeTexture(words, begin);
    if (words[0] == "f") return TakePolygon(words, begin);
    if (words[0] == "mtllib") return TakeLibrary(AfterWord(line), begin);
    if (words[0] == "usemtl") material_ = std::string(AfterWord(line));
    return absl::OkStatus();
  }

  absl::StatusOr<double> Number(const std::vector<std::string_view>& words, size_t at, std::string_view what, size_t begin) const {
    double value = 0;
    if (at >= words.size() || !ParseReal(words[at], &value)) {
      return ErrorAt(in_.source(), begin,
                     absl::StrCat(ToAbsl(what), ": ", at < words.size() ? Quoted(words[at]) : "nothing", " is not a finite number"));
    }
    return value;
  }

  absl::Status TakeVertex(const std::vector<std::string_view>& words, size_t begin) {
    std::array<float, 3> place{};
    for (size_t k = 0; k < 3; ++k) {
      PALPATE_ASSIGN_OR_RETURN(const double value, Number(words, k + 1, "a coordinate", begin));
      // As ParseSurface: coordinates are floats; adding zero makes -0 and 0 the same.
      place[k] = static_cast<float>(value) + 0.0F;
      if (!std::isfinite(place[k])) return ErrorAt(in_.source(), begin, absl::StrFormat("coordinate %g is beyond single precision", value));
    }
    const auto [known, is_new] = vertex_at_.try_emplace(place, static_cast<uint32_t>(out_.surface.vertices.size()));
    if (is_new) out_.surface.vertices.emplace_back(place[0], place[1], place[2]);
    vertices_.push_back(known->second);
    return absl::OkStatus();
  }

  absl::Status TakeTexture(const std::vector<std::string_view>& words, size_t begin) {
    Eigen::Vector2d value = Eigen::Vector2d::Zero();
    for (size_t k = 0; k < 2; ++k) {
      if (k == 1 && words.size() == 2) break;  // v is optional
      PALPATE_ASSIGN_OR_RETURN(value[static_cast<Eigen::Index>(k)], Number(words, k + 1, "a texture coordinate", begin));
    }
    if (!(value.cwiseAbs().maxCoeff() <= kMaxTextureCoordinate)) {
      return ErrorAt(in_.source(), begin,
                     absl::StrFormat("texture coordinate (%g, %g) is outside [-%g, %g]", value.x(), value.y(), kMaxTextureCoordinate,
                                     kMaxTextureCoordinate));
    }
    textures_.push_back(value);
    return absl::OkStatus();
  }

  /// An index as the file has it, from 1 on or back from the end.
  absl::StatusOr<uint32_t> Index(std::string_view word, size_t count, std::string_view what, size_t begin) const {
    const bool is_back = !word.empty() && word[0] == '-';
    uint64_t value = 0;
    if (!ParseUnsigned(is_back ? word.substr(1) : word, &value) || value == 0 || value > count) {
      return ErrorAt(in_.source(), begin,
                     absl::StrFormat("index %s of a %s, of which there are %d so far", Quoted(word), ToAbsl(what), count));
    }
    return static_cast<uint32_t>(is_back ? count - value : value - 1);
  }

  /// v, v/vt, v//vn or v/vt/vn.
  absl::StatusOr<Corner> TakeCorner(std::string_view word, size_t begin) const {
    const size_t slash = word.find('/');
    Corner corner;
    PALPATE_ASSIGN_OR_RETURN(const uint32_t v, Index(word.substr(0, slash), vertices_.size(), "vertex", begin));
    corner.vertex = vertices_[v];
    if (slash == std::string_view::npos) return corner;
    const std::string_view rest = word.substr(slash + 1);
    const std::string_view texture = rest.substr(0, rest.find('/'));
    if (texture.empty()) return corner;
    PALPATE_ASSIGN_OR_RETURN(corner.texture, Index(texture, textures_.size(), "texture coordinate", begin));
    return corner;
  }

  absl::Status TakePolygon(const std::vector<std::string_view>& words, size_t begin) {
    if (words.size() < 4)
      return ErrorAt(in_.source(), begin, absl::StrFormat("a face of %d vertices, must have 3 or more", words.size() - 1));
    std::vector<Corner> corners;
    for (size_t i = 1; i < words.size(); ++i) {
      PALPATE_ASSIGN_OR_RETURN(const Corner corner, TakeCorner(words[i], begin));
      corners.push_back(corner);
    }
    const uint32_t material = MaterialInUse();
    for (size_t i = 2; i < corners.size(); ++i) {
      const std::array<Corner, 3> fan = {corners[0], corners[i - 1], corners[i]};
      if (fan[0].vertex == fan[1].vertex || fan[1].vertex == fan[2].vertex || fan[2].vertex == fan[0].vertex) continue;
      out_.surface.triangles.push_back({fan[0].vertex, fan[1].vertex, fan[2].vertex});
      auto& texture = out_.texture_corners.emplace_back();
      for (size_t c = 0; c < 3; ++c) {
        has_texture_ = has_texture_ || fan[c].texture != kNone;
        texture[c] = fan[c].texture == kNone ? Eigen::Vector2d(Eigen::Vector2d::Zero()) : textures_[fan[c].texture];
      }
      out_.triangle_materials.push_back(material);
    }
    return absl::OkStatus();
  }

  /// Faces without a material have one without a name.
  uint32_t MaterialInUse() {
    const auto [known, is_new] = used_.try_emplace(material_, static_cast<uint32_t>(out_.materials.size()));
    if (is_new) {
      const auto described = library_.find(material_);
      out_.materials.push_back(described == library_.end() ? SurfaceMaterial{material_, {0.8F, 0.8F, 0.8F}, ""} : described->second);
    }
    return known->second;
  }

  absl::Status TakeLibrary(std::string_view file, size_t begin) {
    const std::optional<std::string> name = SafeName(file);
    if (!name) return UnsafeName(in_.source(), begin, "material library", file);
    if (++library_count_ > kMaxLibraries) {
      return ErrorAt(in_.source(), begin, absl::StrFormat("more than %d material libraries", kMaxLibraries));
    }
    absl::StatusOr<std::string> text = read_library_(*name);
    if (!text.ok()) return Annotate(text.status(), in_.source().Where(begin));
    PALPATE_ASSIGN_OR_RETURN(std::vector<SurfaceMaterial> materials, ParseMtl(*text, Printable(*name)));
    const size_t slash = name->rfind('/');
    for (SurfaceMaterial& material : materials) {
      // A library names pictures from its own folder.
      if (!material.image_file.empty() && slash != std::string::npos) material.image_file.insert(0, *name, 0, slash + 1);
      std::string key = material.name;
      library_.insert_or_assign(std::move(key), std::move(material));
    }
    return absl::OkStatus();
  }

  void DropUnused() {
    std::vector<uint32_t> number(out_.surface.vertices.size(), kNone);
    for (const auto& triangle : out_.surface.triangles) {
      for (const uint32_t v : triangle) number[v] = 0;
    }
    uint32_t count = 0;
    for (size_t v = 0; v < number.size(); ++v) {
      if (number[v] == kNone) continue;
      number[v] = count;
      out_.surface.vertices[count++] = out_.surface.vertices[v];
    }
    out_.surface.vertices.resize(count);
    for (auto& triangle : out_.surface.triangles) {
      for (uint32_t& v : triangle) v = number[v];
    }
  }

  Cursor in_;
  const MaterialSource& read_library_;
  TexturedSurface out_;
  absl::flat_hash_map<std::array<float, 3>, uint32_t> vertex_at_;
  std::vector<uint32_t> vertices_;  // [v of the file] place in out_
  std::vector<Eigen::Vector2d> textures_;
  absl::flat_hash_map<std::string, SurfaceMaterial> library_;
  absl::flat_hash_map<std::string, uint32_t> used_;  // places in out_.materials
  std::string material_;
  size_t library_count_ = 0;
  bool has_texture_ = false;
};

}  // namespace

absl::StatusOr<TexturedSurface> ParseTexturedObj(std::string_view bytes, std::string_view name, const MaterialSource& read_library) {
  return ObjParser(bytes, name, read_library).Parse();
}

absl::StatusOr<std::vector<SurfaceMaterial>> ParseMtl(std::string_view bytes, std::string_view name) {
  Cursor in(bytes, name);
  std::vector<SurfaceMaterial> materials;
  while (!in.AtEnd()) {
    const size_t begin = in.offset();
    const std::string_view line = in.Line();
    const std::vector<std::string_view> words = SplitWords(line);
    if (words.empty()) continue;
    if (words[0] == "newmtl") {
      materials.push_back({std::string(AfterWord(line)), {0.8F, 0.8F, 0.8F}, ""});
      continue;
    }
    if (words[0] != "Kd" && words[0] != "map_Kd") continue;
    if (materials.empty()) return ErrorAt(in.source(), begin, absl::StrCat(Quoted(words[0]), " before the first newmtl"));
    if (words[0] == "map_Kd") {
      // Options in front of the name begin with a dash; none of them is supported, as they move or scale the picture.
      const std::string_view file = AfterWord(line);
      if (!file.empty() && file[0] == '-') return ErrorAt(in.source(), begin, absl::StrCat("map_Kd with options: ", Quoted(file)));
      std::optional<std::string> safe = SafeName(file);
      if (!safe) return UnsafeName(in.source(), begin, "picture", file);
      materials.back().image_file = *std::move(safe);
      continue;
    }
    if (words.size() > 1 && (words[1] == "spectral" || words[1] == "xyz")) {
      return ErrorAt(in.source(), begin, absl::StrCat("Kd ", Quoted(words[1]), " is not supported, must be red, green, blue"));
    }
    for (size_t k = 0; k < 3; ++k) {
      double value = 0;
      // One number stands for all three.
      const size_t at = words.size() == 2 ? 1 : k + 1;
      if (at >= words.size() || !ParseReal(words[at], &value) || value < 0 || value > 1) {
        return ErrorAt(in.source(), begin,
                       absl::StrCat("Kd: ", at < words.size() ? Quoted(words[at]) : "nothing", " is not a number in [0, 1]"));
      }
      materials.back().color[k] = static_cast<float>(value);
    }
  }
  return materials;
}

}  // namespace palpate::sim
