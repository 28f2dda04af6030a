#include "sim/record/state_file.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/record/little_endian.h"

namespace palpate::record {
namespace {

constexpr std::string_view kMagic = "PALPSCEN";
constexpr size_t kHeaderBytes = 44;

uint32_t CrcOf(std::string_view bytes) {
  const std::array<std::string_view, 1> parts = {bytes};
  return Crc32(parts);
}

}  // namespace

std::string EncodeStateHeader(std::string_view scene, std::string_view world) {
  std::string out(kMagic);
  AppendU16(kStateMajor, &out);
  AppendU16(kStateMinor, &out);
  AppendU16(static_cast<uint16_t>(kHeaderBytes), &out);
  AppendU16(0, &out);
  AppendU64(scene.size(), &out);
  AppendU64(world.size(), &out);
  AppendU32(CrcOf(scene), &out);
  AppendU32(CrcOf(world), &out);
  AppendU32(CrcOf(out), &out);
  return out;
}

std::string EncodeState(const SceneCheckpoint& state) {
  const std::string scene = state.scene.SerializeAsString();
  return EncodeStateHeader(scene, state.world) + scene + state.world;
}

absl::StatusOr<SceneCheckpoint> DecodeState(std::string_view bytes, const std::string& name) {
  const auto damage = [&name](uint64_t offset, std::string_view what) {
    return absl::DataLossError(absl::StrCat(name, ", byte ", offset, ": ", absl::string_view(what.data(), what.size())));
  };
  if (bytes.substr(0, kMagic.size()) != kMagic.substr(0, bytes.size()) || bytes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is no checkpoint of Palpate"));
  }
  if (bytes.size() < kHeaderBytes) return damage(bytes.size(), "the header is cut off");
  if (ReadU32(bytes, kHeaderBytes - 4) != CrcOf(bytes.substr(0, kHeaderBytes - 4))) {
    return damage(0, "the checksum of the header does not match");
  }
  const uint16_t major = ReadU16(bytes, 8);
  const uint16_t minor = ReadU16(bytes, 10);
  if (major != kStateMajor || minor > kStateMinor) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has format version ", major, ".", minor, "; this program reads ", kStateMajor,
                                                   ".0 to ", kStateMajor, ".", kStateMinor));
  }
  const uint64_t scene_bytes = ReadU64(bytes, 16);
  const uint64_t world_bytes = ReadU64(bytes, 24);
  if (scene_bytes > bytes.size() || world_bytes > bytes.size() || kHeaderBytes + scene_bytes + world_bytes > bytes.size()) {
    return damage(bytes.size(), "the file is cut off");
  }
  if (kHeaderBytes + scene_bytes + world_bytes < bytes.size()) return damage(kHeaderBytes + scene_bytes + world_bytes, "bytes too many");
  const std::string_view scene = bytes.substr(kHeaderBytes, scene_bytes);
  const std::string_view world = bytes.substr(kHeaderBytes + scene_bytes);
  if (ReadU32(bytes, 32) != CrcOf(scene)) return damage(kHeaderBytes, "the checksum of the scene does not match");
  if (ReadU32(bytes, 36) != CrcOf(world)) return damage(kHeaderBytes + scene_bytes, "the checksum of the world does not match");
  SceneCheckpoint out;
  if (scene_bytes > kMaxStateBytes / 4 || !out.scene.ParseFromArray(scene.data(), static_cast<int>(scene_bytes))) {
    return damage(kHeaderBytes, "the scene cannot be read");
  }
  out.world = std::string(world);
  return out;
}

absl::StatusOr<SceneCheckpoint> ReadStateFile(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(path, kMaxStateBytes));
  return DecodeState(bytes, absl::StrCat("\"", path.string(), "\""));
}

absl::Status WriteStateFile(Disk& disk, const std::filesystem::path& path, const SceneCheckpoint& state) {
  const std::string scene = state.scene.SerializeAsString();
  const std::string header = EncodeStateHeader(scene, state.world);
  const std::array<std::string_view, 3> parts = {header, scene, state.world};
  return WriteWholeFile(disk, path, parts);
}

}  // namespace palpate::record
