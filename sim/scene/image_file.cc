#include "sim/scene/image_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/base/status.h"

namespace palpate::scene {
namespace {

constexpr std::string_view kPngSignature("\x89PNG\r\n\x1a\n", 8);
constexpr std::string_view kJpegSignature("\xff\xd8\xff", 3);

/// The bytes of a file whose numbers have the most significant byte first.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  size_t size() const { return bytes_.size(); }
  bool Has(size_t at, size_t count) const { return at <= bytes_.size() && count <= bytes_.size() - at; }
  uint32_t Number(size_t at, size_t count) const {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) value = value << 8 | static_cast<uint8_t>(bytes_[at + i]);
    return value;
  }
  std::string_view Text(size_t at, size_t count) const { return bytes_.substr(at, count); }
  absl::Status Error(size_t at, std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::string_view(name_.data(), name_.size()), ", byte ", at, ": ", absl::string_view(what.data(), what.size())));
  }
  absl::StatusOr<ImageHeader> Sized(std::string_view media_type, uint32_t width, uint32_t height, size_t at) const {
    if (width < 1 || height < 1 || width > kMaxImageSide || height > kMaxImageSide) {
      return Error(at, absl::StrFormat("%d by %d pixels; each side must be in [1, %d]", width, height, kMaxImageSide));
    }
    return ImageHeader{media_type, width, height};
  }

 private:
  std::string_view bytes_, name_;
};

/// CRC-32 of ISO 3309, as PNG has it.
uint32_t Crc(std::string_view bytes) {
  uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320U : crc >> 1;
  }
  return ~crc;
}

bool IsPngDepth(uint32_t depth, uint32_t color_type) {
  switch (color_type) {
    case 0:
      return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
    case 3:
      return depth == 1 || depth == 2 || depth == 4 || depth == 8;
    case 2:
    case 4:
    case 6:
      return depth == 8 || depth == 16;
    default:
      return false;
  }
}

absl::StatusOr<ImageHeader> ParsePng(const Reader& in) {
  constexpr size_t kHeaderAt = 8, kHeaderBytes = 13;
  if (!in.Has(kHeaderAt, 12 + kHeaderBytes)) return in.Error(in.size(), "the header of the PNG is cut off");
  if (in.Number(kHeaderAt, 4) != kHeaderBytes || in.Text(kHeaderAt + 4, 4) != "IHDR") {
    return in.Error(kHeaderAt, "the first chunk of the PNG is not IHDR of 13 bytes");
  }
  if (Crc(in.Text(kHeaderAt + 4, 4 + kHeaderBytes)) != in.Number(kHeaderAt + 8 + kHeaderBytes, 4)) {
    return in.Error(kHeaderAt, "the CRC of the PNG's header does not fit");
  }
  const uint32_t depth = in.Number(kHeaderAt + 16, 1), color_type = in.Number(kHeaderAt + 17, 1);
  if (!IsPngDepth(depth, color_type)) {
    return in.Error(kHeaderAt + 16, absl::StrFormat("bit depth %d with colour type %d is no kind of PNG", depth, color_type));
  }
  bool has_data = false;
  for (size_t at = kHeaderAt;;) {
    if (!in.Has(at, 12)) return in.Error(in.size(), "the PNG is cut off: a chunk is missing");
    const uint32_t length = in.Number(at, 4);
    const std::string_view kind = in.Text(at + 4, 4);
    if (!in.Has(at, size_t{12} + length)) {
      return in.Error(at, absl::StrFormat("the PNG is cut off: a chunk of %d bytes, %d are left", length, in.size() - at - 8));
    }
    has_data = has_data || kind == "IDAT";
    if (kind == "IEND") {
      if (!has_data) return in.Error(at, "the PNG has no pixels (IDAT)");
      return in.Sized("image/png", in.Number(kHeaderAt + 8, 4), in.Number(kHeaderAt + 12, 4), kHeaderAt + 8);
    }
    at += size_t{12} + length;
  }
}

absl::StatusOr<ImageHeader> ParseJpeg(const Reader& in) {
  absl::StatusOr<ImageHeader> found = in.Error(2, "the JPEG has no frame header");
  for (size_t at = 2;;) {
    if (!in.Has(at, 4)) return in.Error(in.size(), "the JPEG is cut off before its scan");
    if (in.Number(at, 1) != 0xff) return in.Error(at, "a marker of the JPEG is missing");
    const uint32_t marker = in.Number(at + 1, 1);
    if (marker == 0xff) {  // fill byte
      ++at;
      continue;
    }
    if (marker < 0xc0 || (marker >= 0xd0 && marker <= 0xd9)) return in.Error(at, "a marker of the JPEG that has no place before its scan");
    const uint32_t length = in.Number(at + 2, 2);
    if (length < 2 || !in.Has(at + 2, length)) return in.Error(at, absl::StrFormat("a segment of the JPEG says %d bytes", length));
    const bool is_frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (is_frame) {
      if (length < 8) return in.Error(at, absl::StrFormat("the frame header of the JPEG says %d bytes", length));
      found = in.Sized("image/jpeg", in.Number(at + 7, 2), in.Number(at + 5, 2), at + 5);
      if (!found.ok()) return found;
    }
    at += size_t{2} + length;
    if (marker != 0xda) continue;
    // The scan; what comes after the end marker is nobody's business.
    if (found.ok() && in.Text(at, in.size() - at).find("\xff\xd9") == std::string_view::npos) {
      return in.Error(in.size(), "the JPEG is cut off: the end marker is missing");
    }
    return found;
  }
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
uint64_t Stir(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// 128 bits of the contents, as hexadecimal digits.
std::string IdOf(std::string_view bytes) {
  std::array<uint64_t, 2> hash = {0x243f6a8885a308d3ULL, 0x13198a2e03707344ULL};
  for (size_t begin = 0; begin < bytes.size(); begin += 8) {
    uint64_t word = 0;
    for (size_t i = begin; i < std::min(begin + 8, bytes.size()); ++i) word = word << 8 | static_cast<uint8_t>(bytes[i]);
    hash[0] = Stir(hash[0] + word + 0x9e3779b97f4a7c15ULL);
    hash[1] = Stir((hash[1] ^ word) * 0xff51afd7ed558ccdULL + hash[0]);
  }
  hash[1] = Stir(hash[1] + bytes.size());
  return absl::StrFormat("%016x%016x", hash[0], hash[1]);
}

}  // namespace

absl::StatusOr<ImageHeader> ParseImageHeader(std::string_view bytes, std::string_view name) {
  const Reader in(bytes, name);
  if (bytes.starts_with(kPngSignature)) return ParsePng(in);
  if (bytes.starts_with(kJpegSignature)) return ParseJpeg(in);
  return in.Error(0, "neither a PNG nor a JPEG file");
}

absl::StatusOr<std::shared_ptr<const sim::TextureImage>> ReadImageFile(const std::filesystem::path& path, std::string name) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", path.string()));
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a regular file"));
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path.string()));
  std::string bytes(kMaxImageBytes + 1, '\0');
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file.get()));
  if (std::ferror(file.get()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path.string()));
  if (bytes.size() > kMaxImageBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(path.string(), ": more than the limit of ", kMaxImageBytes, " bytes"));
  }
  bytes.shrink_to_fit();
  PALPATE_ASSIGN_OR_RETURN(const ImageHeader header, ParseImageHeader(bytes, path.string()));
  auto image = std::make_shared<sim::TextureImage>();
  image->id = IdOf(bytes);
  image->name = std::move(name);
  image->media_type = std::string(header.media_type);
  image->width = header.width;
  image->height = header.height;
  image->bytes = std::move(bytes);
  return image;
}

}  // namespace palpate::scene
