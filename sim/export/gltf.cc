#include "sim/export/gltf.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/export/surface_normals.h"
#include "sim/export/xml_text.h"

namespace palpate::sim {
namespace {

static_assert(std::endian::native == std::endian::little, "glTF is little-endian");

constexpr uint64_t kMaxFileBytes = std::numeric_limits<uint32_t>::max();
constexpr size_t kCopyBytes = size_t{1} << 20;
constexpr int kFloat = 5126, kUnsignedInt = 5125;                          // types of components
constexpr int kVertexTarget = 34962, kIndexTarget = 34963, kNoTarget = 0;  // of buffer views

using Values = std::span<const float>;

absl::Status Bad(const GltfSurface& surface, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("surface \"", surface.name, "\": ", ToAbsl(what)));
}

absl::Status Check(const GltfSurface& surface) {
  if (surface.positions_m.size() % 3 != 0)
    return Bad(surface, absl::StrCat(surface.positions_m.size(), " coordinates, not three a vertex"));
  const size_t vertex_count = surface.positions_m.size() / 3;
  if (!surface.normals.empty() && surface.normals.size() != surface.positions_m.size())
    return Bad(surface, "normals do not match the vertices");
  if (!surface.texture_coordinates.empty() && surface.texture_coordinates.size() != vertex_count) {
    return Bad(surface, absl::StrFormat("%d texture coordinates for %d vertices", surface.texture_coordinates.size(), vertex_count));
  }
  if (!surface.triangle_materials.empty() && surface.triangle_materials.size() != surface.triangles.size()) {
    return Bad(surface, absl::StrFormat("%d materials of %d triangles", surface.triangle_materials.size(), surface.triangles.size()));
  }
  if (surface.materials.empty()) return Bad(surface, "no material");
  for (const uint16_t m : surface.triangle_materials) {
    if (m >= surface.materials.size()) return Bad(surface, absl::StrFormat("material %d, but there are %d", m, surface.materials.size()));
  }
  for (size_t t = 0; t < surface.triangles.size(); ++t) {
    for (const uint32_t v : surface.triangles[t]) {
      if (v >= vertex_count) return Bad(surface, absl::StrFormat("triangle %d: vertex %d, but there are %d", t, v, vertex_count));
    }
  }
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (!std::all_of(surface.positions_m.begin(), surface.positions_m.end(), is_finite)) return Bad(surface, "a coordinate is not finite");
  if (!std::all_of(surface.normals.begin(), surface.normals.end(), is_finite)) return Bad(surface, "a normal is not finite");
  for (const auto& [u, v] : surface.texture_coordinates) {
    if (!std::isfinite(u) || !std::isfinite(v)) return Bad(surface, "a texture coordinate is not finite");
  }
  return absl::OkStatus();
}

std::string JsonText(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

template <typename T>
std::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

void AppendWord(uint64_t value, std::string* out) {
  const auto word = static_cast<uint32_t>(value);
  out->append(reinterpret_cast<const char*>(&word), sizeof(word));
}

/// The binary part while it grows: in memory, or in a file without a name, which goes with the process.
class BinaryPart {
 public:
  BinaryPart() = default;
  static absl::StatusOr<BinaryPart> InFile(const std::filesystem::path& beside) {
    BinaryPart part;
    std::filesystem::path path = beside;
    path += absl::StrCat(".", getpid(), ".part");
    part.path_ = path.string();
    part.file_.reset(std::fopen(path.c_str(), "w+b"));
    if (part.file_ == nullptr) return part.Unwritable();
    std::remove(path.c_str());
    return part;
  }

  uint64_t size_bytes() const { return size_bytes_; }

  absl::Status Append(std::string_view bytes) {
    if (size_bytes_ + bytes.size() + 3 > kMaxFileBytes) {
      return absl::ResourceExhaustedError(absl::StrCat("a .glb holds at most ", kMaxFileBytes, " bytes; write fewer moments"));
    }
    constexpr std::string_view kZeros("\0\0\0", 3);
    const size_t padding = (4 - bytes.size() % 4) % 4;
    for (const std::string_view piece : {bytes, kZeros.substr(0, padding)}) {
      size_bytes_ += piece.size();
      if (file_ == nullptr) {
        memory_.append(piece);
      } else if (!piece.empty() && std::fwrite(piece.data(), 1, piece.size(), file_.get()) != piece.size()) {
        return Unwritable();
      }
    }
    return absl::OkStatus();
  }

  absl::Status CopyTo(ByteSink* sink) {
    if (file_ == nullptr) return sink->Append(memory_);
    std::string chunk(kCopyBytes, '\0');
    if (std::fflush(file_.get()) != 0 || std::fseek(file_.get(), 0, SEEK_SET) != 0) return Unwritable();
    for (uint64_t at = 0; at < size_bytes_;) {
      const size_t count = std::fread(chunk.data(), 1, std::min<uint64_t>(chunk.size(), size_bytes_ - at), file_.get());
      if (count == 0) return Unwritable();
      PALPATE_RETURN_IF_ERROR(sink->Append(std::string_view(chunk).substr(0, count)));
      at += count;
    }
    return absl::OkStatus();
  }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  absl::Status Unwritable() const { return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_)); }

  std::string path_, memory_;
  std::unique_ptr<std::FILE, Closer> file_;
  uint64_t size_bytes_ = 0;
};

/// The document while it grows: lists of JSON objects, and the binary part that they describe.
class Document {
 public:
  explicit Document(BinaryPart binary) : binary_(std::move(binary)) {}

  /// Gives the number of the accessor. `size`: components of a value, 1 to 3; `has_range`: with the least and largest values.
  template <typename T>
  absl::StatusOr<size_t> AddValues(const std::vector<T>& values, size_t size, int target, bool has_range) {
    PALPATE_ASSIGN_OR_RETURN(const size_t view, AddView(BytesOf(values), target));
    constexpr std::array<const char*, 3> kTypes = {"SCALAR", "VEC2", "VEC3"};
    std::string accessor = absl::StrCat("{\"bufferView\":", view, ",\"componentType\":", std::is_same_v<T, float> ? kFloat : kUnsignedInt,
                                        ",\"count\":", values.size() / size, ",\"type\":\"", kTypes[size - 1], "\"");
    if (has_range) {
      std::vector<std::string> least, largest;
      for (size_t k = 0; k < size; ++k) {
        T low = values[k], high = values[k];
        for (size_t i = k; i < values.size(); i += size) low = std::min(low, values[i]), high = std::max(high, values[i]);
        least.push_back(RealText(low));
        largest.push_back(RealText(high));
      }
      absl::StrAppend(&accessor, ",\"min\":[", absl::StrJoin(least, ","), "],\"max\":[", absl::StrJoin(largest, ","), "]");
    }
    accessors_.push_back(accessor + "}");
    return accessors_.size() - 1;
  }

  absl::StatusOr<size_t> AddMaterial(const GltfMaterial& material) {
    std::string json = absl::StrCat("{\"name\":", JsonText(material.name), ",\"pbrMetallicRoughness\":{\"baseColorFactor\":[");
    for (const float c : material.color) absl::StrAppend(&json, RealText(std::clamp(c, 0.0F, 1.0F)), ",");
    absl::StrAppend(&json, "1],\"metallicFactor\":0,\"roughnessFactor\":", RealText(std::clamp(material.roughness, 0.0F, 1.0F)));
    if (material.image != nullptr) {
      PALPATE_ASSIGN_OR_RETURN(const size_t texture, AddImage(material.image));
      absl::StrAppend(&json, ",\"baseColorTexture\":{\"index\":", texture, "}");
    }
    absl::StrAppend(&json, "}}");
    const auto known = std::find(materials_.begin(), materials_.end(), json);
    if (known != materials_.end()) return static_cast<size_t>(known - materials_.begin());
    materials_.push_back(std::move(json));
    return materials_.size() - 1;
  }

  /// Gives the number of the node; node 0 is the root, which turns z up into y up.
  size_t AddMeshNode(std::string_view name, const std::vector<std::string>& primitives) {
    meshes_.push_back(absl::StrCat("{\"name\":", JsonText(name), ",\"primitives\":[", absl::StrJoin(primitives, ","), "]}"));
    nodes_.push_back(absl::StrCat("{\"name\":", JsonText(name), ",\"mesh\":", meshes_.size() - 1, "}"));
    return nodes_.size();
  }

  void AddChannel(size_t node, std::string_view path, size_t input, size_t output, bool is_step) {
    samplers_.push_back(
        absl::StrCat("{\"input\":", input, ",\"output\":", output, ",\"interpolation\":\"", is_step ? "STEP" : "LINEAR", "\"}"));
    channels_.push_back(
        absl::StrCat("{\"sampler\":", samplers_.size() - 1, ",\"target\":{\"node\":", node, ",\"path\":\"", ToAbsl(path), "\"}}"));
  }

  BinaryPart& binary() { return binary_; }
  absl::StatusOr<size_t> AddView(std::string_view bytes, int target) {
    const uint64_t offset = binary_.size_bytes();
    PALPATE_RETURN_IF_ERROR(binary_.Append(bytes));
    return DeclareView(offset, bytes.size(), target);
  }
  /// Of bytes that were put into binary().
  size_t DeclareView(uint64_t offset, uint64_t size_bytes, int target) {
    std::string view = absl::StrCat("{\"buffer\":0,\"byteOffset\":", offset, ",\"byteLength\":", size_bytes);
    if (target != kNoTarget) absl::StrAppend(&view, ",\"target\":", target);
    views_.push_back(view + "}");
    return views_.size() - 1;
  }
  /// Numbers without a range, whose view is declared.
  size_t DeclareNumbers(size_t view, uint64_t count) {
    accessors_.push_back(
        absl::StrCat("{\"bufferView\":", view, ",\"componentType\":", kFloat, ",\"count\":", count, ",\"type\":\"SCALAR\"}"));
    return accessors_.size() - 1;
  }

  absl::Status Write(ByteSink* sink) {
    std::string json = Json();
    json.resize((json.size() + 3) / 4 * 4, ' ');
    const bool has_binary = binary_.size_bytes() > 0;
    const uint64_t total = 12 + 8 + json.size() + (has_binary ? 8 + binary_.size_bytes() : 0);
    if (total > kMaxFileBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(total, " bytes, but a .glb holds at most ", kMaxFileBytes, "; write fewer moments"));
    }
    std::string head = "glTF";
    AppendWord(2, &head);
    AppendWord(total, &head);
    AppendWord(json.size(), &head);
    head += "JSON";
    PALPATE_RETURN_IF_ERROR(sink->Append(head));
    PALPATE_RETURN_IF_ERROR(sink->Append(json));
    if (!has_binary) return absl::OkStatus();
    head.clear();
    AppendWord(binary_.size_bytes(), &head);
    head.append("BIN\0", 4);
    PALPATE_RETURN_IF_ERROR(sink->Append(head));
    return binary_.CopyTo(sink);
  }

 private:
  absl::StatusOr<size_t> AddImage(const std::shared_ptr<const GltfImage>& image) {
    const auto known = std::find(images_.begin(), images_.end(), image);
    if (known != images_.end()) return static_cast<size_t>(known - images_.begin());
    PALPATE_ASSIGN_OR_RETURN(const size_t view, AddView(image->bytes, kNoTarget));
    image_json_.push_back(
        absl::StrCat("{\"name\":", JsonText(image->name), ",\"mimeType\":", JsonText(image->media_type), ",\"bufferView\":", view, "}"));
    images_.push_back(image);
    return images_.size() - 1;
  }

  std::string Json() const {
    std::string json = R"({"asset":{"version":"2.0","generator":"Palpate"},"scene":0,"scenes":[{"nodes":[0]}],"nodes":[)";
    absl::StrAppend(&json, R"({"name":"scene","rotation":[-0.7071067690849304,0,0,0.7071067690849304])");
    std::vector<size_t> children;
    for (size_t n = 0; n < nodes_.size(); ++n) children.push_back(n + 1);
    if (!children.empty()) absl::StrAppend(&json, ",\"children\":[", absl::StrJoin(children, ","), "]");
    absl::StrAppend(&json, "}", nodes_.empty() ? "" : ",", absl::StrJoin(nodes_, ","), "]");
    const auto append = [&json](const char* name, const std::vector<std::string>& list) {
      if (!list.empty()) absl::StrAppend(&json, ",\"", name, "\":[", absl::StrJoin(list, ","), "]");
    };
    append("meshes", meshes_);
    append("materials", materials_);
    append("images", image_json_);
    if (!images_.empty()) {
      std::vector<std::string> textures;
      for (size_t i = 0; i < images_.size(); ++i) textures.push_back(absl::StrCat("{\"sampler\":0,\"source\":", i, "}"));
      append("textures", textures);
      absl::StrAppend(&json, R"(,"samplers":[{"magFilter":9729,"minFilter":9987,"wrapS":10497,"wrapT":10497}])");
    }
    append("accessors", accessors_);
    append("bufferViews", views_);
    if (!channels_.empty()) {
      absl::StrAppend(&json, ",\"animations\":[{\"name\":\"series\",\"channels\":[", absl::StrJoin(channels_, ","), "],\"samplers\":[",
                      absl::StrJoin(samplers_, ","), "]}]");
    }
    if (binary_.size_bytes() > 0) absl::StrAppend(&json, ",\"buffers\":[{\"byteLength\":", binary_.size_bytes(), "}]");
    return json + "}";
  }

  BinaryPart binary_;
  std::vector<std::string> views_, accessors_, materials_, meshes_, nodes_, image_json_, channels_, samplers_;
  std::vector<std::shared_ptr<const GltfImage>> images_;
};

std::vector<float> NormalsOf(const GltfSurface& surface) {
  if (!surface.normals.empty()) return {surface.normals.begin(), surface.normals.end()};
  return NormalsByArea(surface.positions_m, surface.triangles);
}

/// A surface while its triangles stay the same: its first moment, and the others as differences from it.
class Segment {
 public:
  static absl::StatusOr<Segment> Begin(const GltfSurface& surface, double time_s, Document* document) {
    Segment segment;
    segment.name_ = surface.name;
    segment.triangles_.assign(surface.triangles.begin(), surface.triangles.end());
    segment.materials_.assign(surface.triangle_materials.begin(), surface.triangle_materials.end());
    segment.positions_m_.assign(surface.positions_m.begin(), surface.positions_m.end());
    segment.normals_ = NormalsOf(surface);
    segment.times_s_.push_back(time_s);
    PALPATE_ASSIGN_OR_RETURN(const size_t positions, document->AddValues(segment.positions_m_, 3, kVertexTarget, true));
    PALPATE_ASSIGN_OR_RETURN(const size_t normals, document->AddValues(segment.normals_, 3, kVertexTarget, false));
    segment.attributes_ = absl::StrCat("\"POSITION\":", positions, ",\"NORMAL\":", normals);
    if (!surface.texture_coordinates.empty()) {
      std::vector<float> coordinates;
      for (const auto& [u, v] : surface.texture_coordinates) coordinates.insert(coordinates.end(), {u, 1 - v});
      PALPATE_ASSIGN_OR_RETURN(const size_t texture, document->AddValues(coordinates, 2, kVertexTarget, false));
      absl::StrAppend(&segment.attributes_, ",\"TEXCOORD_0\":", texture);
    }
    for (size_t m = 0; m < surface.materials.size(); ++m) {
      std::vector<uint32_t> indices;
      for (size_t t = 0; t < surface.triangles.size(); ++t) {
        if ((surface.triangle_materials.empty() ? 0U : surface.triangle_materials[t]) != m) continue;
        indices.insert(indices.end(), surface.triangles[t].begin(), surface.triangles[t].end());
      }
      if (indices.empty()) continue;
      PALPATE_ASSIGN_OR_RETURN(const size_t material, document->AddMaterial(surface.materials[m]));
      PALPATE_ASSIGN_OR_RETURN(const size_t accessor, document->AddValues(indices, 1, kIndexTarget, false));
      segment.primitives_.push_back(absl::StrCat("\"indices\":", accessor, ",\"material\":", material));
    }
    return segment;
  }

  const std::string& name() const { return name_; }
  bool Continues(const GltfSurface& surface) const {
    return surface.positions_m.size() == positions_m_.size() && std::ranges::equal(surface.triangles, triangles_) &&
           std::ranges::equal(surface.triangle_materials, materials_);
  }

  absl::Status Add(const GltfSurface& surface, double time_s, Document* document) {
    std::vector<float> moved(positions_m_.size());
    for (size_t i = 0; i < moved.size(); ++i) moved[i] = surface.positions_m[i] - positions_m_[i];
    PALPATE_ASSIGN_OR_RETURN(const size_t positions, document->AddValues(moved, 3, kVertexTarget, true));
    const std::vector<float> normals_now = NormalsOf(surface);
    for (size_t i = 0; i < moved.size(); ++i) moved[i] = normals_now[i] - normals_[i];
    PALPATE_ASSIGN_OR_RETURN(const size_t normals, document->AddValues(moved, 3, kVertexTarget, false));
    targets_.push_back(absl::StrCat("{\"POSITION\":", positions, ",\"NORMAL\":", normals, "}"));
    times_s_.push_back(time_s);
    return absl::OkStatus();
  }

  /// Puts the node into the document, which shows it from its first moment until `end_s`; nothing: to the end.
  absl::Status End(std::optional<double> end_s, double first_s, Document* document) {
    const std::string targets = targets_.empty() ? "" : absl::StrCat(",\"targets\":[", absl::StrJoin(targets_, ","), "]");
    std::vector<std::string> primitives;
    for (const std::string& p : primitives_) primitives.push_back(absl::StrCat("{\"attributes\":{", attributes_, "},", p, targets, "}"));
    const size_t node = document->AddMeshNode(name_, primitives);
    if (!targets_.empty()) PALPATE_RETURN_IF_ERROR(AddWeights(node, document));
    std::vector<float> times_s, scales;
    const auto add = [&](double time_s, float scale) {
      times_s.push_back(static_cast<float>(time_s));
      scales.insert(scales.end(), 3, scale);
    };
    if (times_s_.front() > first_s) add(first_s, 0);
    if (times_s_.front() > first_s || end_s) add(times_s_.front(), 1);
    if (end_s) add(*end_s, 0);
    if (times_s.empty()) return absl::OkStatus();
    PALPATE_ASSIGN_OR_RETURN(const size_t input, document->AddValues(times_s, 1, kNoTarget, true));
    PALPATE_ASSIGN_OR_RETURN(const size_t output, document->AddValues(scales, 3, kNoTarget, false));
    document->AddChannel(node, "scale", input, output, true);
    return absl::OkStatus();
  }

 private:
  /// At each moment the target of that moment counts alone; at the first none does.
  absl::Status AddWeights(size_t node, Document* document) const {
    std::vector<float> times_s(times_s_.begin(), times_s_.end());
    PALPATE_ASSIGN_OR_RETURN(const size_t input, document->AddValues(times_s, 1, kNoTarget, true));
    const uint64_t offset = document->binary().size_bytes();
    std::vector<float> row(targets_.size(), 0);
    for (size_t moment = 0; moment < times_s_.size(); ++moment) {
      if (moment > 0) row[moment - 1] = 1;
      PALPATE_RETURN_IF_ERROR(document->binary().Append(BytesOf(row)));
      if (moment > 0) row[moment - 1] = 0;
    }
    const uint64_t count = times_s_.size() * targets_.size();
    const size_t output = document->DeclareNumbers(document->DeclareView(offset, count * sizeof(float), kNoTarget), count);
    document->AddChannel(node, "weights", input, output, false);
    return absl::OkStatus();
  }

  std::string name_, attributes_;
  std::vector<std::array<uint32_t, 3>> triangles_;
  std::vector<uint16_t> materials_;
  std::vector<float> positions_m_, normals_;
  std::vector<std::string> primitives_, targets_;
  std::vector<double> times_s_;
};

}  // namespace

absl::Status WriteGlb(std::span<const GltfSurface> surfaces, ByteSink* sink) {
  Document document{BinaryPart()};
  for (const GltfSurface& surface : surfaces) {
    PALPATE_RETURN_IF_ERROR(Check(surface));
    if (surface.triangles.empty()) continue;
    PALPATE_ASSIGN_OR_RETURN(Segment segment, Segment::Begin(surface, 0, &document));
    PALPATE_RETURN_IF_ERROR(segment.End(std::nullopt, 0, &document));
  }
  return document.Write(sink);
}

absl::Status WriteGlb(std::span<const GltfSurface> surfaces, const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(FileSink file, FileSink::Create(path));
  if (absl::Status status = WriteGlb(surfaces, &file); !status.ok()) return Annotate(status, path.string());
  return file.Commit();
}

class GltfSeries::Impl {
 public:
  Impl(std::filesystem::path path, BinaryPart binary) : path_(std::move(path)), document_(std::move(binary)) {}

  absl::Status Add(double time_s, std::span<const GltfSurface> surfaces) {
    if (is_finished_) return absl::FailedPreconditionError("the series is finished");
    // Viewers have times as floats, which must still grow.
    if (!std::isfinite(time_s) || time_s < 0 || (last_s_ && static_cast<float>(time_s) <= static_cast<float>(*last_s_))) {
      return absl::InvalidArgumentError(
          absl::StrCat("time ", time_s, " s is not finite, negative or not above the last one, ", last_s_.value_or(0)));
    }
    for (size_t s = 0; s < surfaces.size(); ++s) {
      PALPATE_RETURN_IF_ERROR(Check(surfaces[s]));
      for (size_t other = 0; other < s; ++other) {
        if (surfaces[other].name == surfaces[s].name) return Bad(surfaces[s], "is there twice");
      }
    }
    if (!last_s_) first_s_ = time_s;
    last_s_ = time_s;
    PALPATE_RETURN_IF_ERROR(EndOthers(time_s, surfaces));
    for (const GltfSurface& surface : surfaces) {
      if (surface.triangles.empty()) continue;
      const auto known = std::find_if(segments_.begin(), segments_.end(), [&](const Segment& s) { return s.name() == surface.name; });
      if (known != segments_.end()) {
        PALPATE_RETURN_IF_ERROR(known->Add(surface, time_s, &document_));
      } else {
        PALPATE_ASSIGN_OR_RETURN(Segment segment, Segment::Begin(surface, time_s, &document_));
        segments_.push_back(std::move(segment));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    if (is_finished_ || !last_s_)
      return absl::FailedPreconditionError(is_finished_ ? "the series is finished" : "the series has no moment");
    is_finished_ = true;
    for (Segment& segment : segments_) PALPATE_RETURN_IF_ERROR(segment.End(std::nullopt, first_s_, &document_));
    PALPATE_ASSIGN_OR_RETURN(FileSink file, FileSink::Create(path_));
    PALPATE_RETURN_IF_ERROR(document_.Write(&file));
    return file.Commit();
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  /// Those that are not there any more, or differ.
  absl::Status EndOthers(double time_s, std::span<const GltfSurface> surfaces) {
    for (auto segment = segments_.begin(); segment != segments_.end();) {
      const bool goes_on = std::any_of(surfaces.begin(), surfaces.end(), [&](const GltfSurface& surface) {
        return surface.name == segment->name() && segment->Continues(surface);
      });
      if (goes_on) {
        ++segment;
        continue;
      }
      PALPATE_RETURN_IF_ERROR(segment->End(time_s, first_s_, &document_));
      segment = segments_.erase(segment);
    }
    return absl::OkStatus();
  }

  std::filesystem::path path_;
  Document document_;
  std::vector<Segment> segments_;
  double first_s_ = 0;
  std::optional<double> last_s_;
  bool is_finished_ = false;
};

GltfSeries::GltfSeries(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GltfSeries::GltfSeries(GltfSeries&&) noexcept = default;
GltfSeries& GltfSeries::operator=(GltfSeries&&) noexcept = default;
GltfSeries::~GltfSeries() = default;

absl::StatusOr<GltfSeries> GltfSeries::Create(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(BinaryPart binary, BinaryPart::InFile(path));
  return GltfSeries(std::make_unique<Impl>(path, std::move(binary)));
}

absl::Status GltfSeries::Add(double time_s, std::span<const GltfSurface> surfaces) {
  return Annotate(impl_->Add(time_s, surfaces), impl_->path().string());
}

absl::Status GltfSeries::Finish() { return Annotate(impl_->Finish(), impl_->path().string()); }

}  // namespace palpate::sim
