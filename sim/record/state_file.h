#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/journal.pb.h"
#include "sim/record/disk.h"

namespace palpate::record {

/// Version of checkpoints of scenes; the world in them has a version of its own.
inline constexpr uint16_t kStateMajor = 1;
inline constexpr uint16_t kStateMinor = 0;
inline constexpr std::string_view kStateExtension = ".plckpt";
inline constexpr uint64_t kMaxStateBytes = uint64_t{4} << 30;

/// A checkpoint of a scene: what the scene keeps, and its world as sim::World::Restore takes it.
struct SceneCheckpoint {
  v1::SceneState scene;
  std::string world;
};

/// The content of a file: magic "PALPSCEN", major, minor, header's size (u16 each, then u16 0), sizes of the two parts (u64 each), CRC-32
/// of each part and of the header before it (u32 each), then the parts.
std::string EncodeStateHeader(std::string_view scene, std::string_view world);
std::string EncodeState(const SceneCheckpoint& state);

/// `name`: what errors call it. Errors: InvalidArgument (no checkpoint; another version, which it names), DataLoss naming the offset and
/// what is wrong: cut off, or a checksum that does not match.
absl::StatusOr<SceneCheckpoint> DecodeState(std::string_view bytes, const std::string& name);
absl::StatusOr<SceneCheckpoint> ReadStateFile(const std::filesystem::path& path);

/// On disk when this returns OK, never seen in part.
absl::Status WriteStateFile(Disk& disk, const std::filesystem::path& path, const SceneCheckpoint& state);

}  // namespace palpate::record
