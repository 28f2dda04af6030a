#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace palpate::record {

/// A journal or a checkpoint in a scene's folder of state.
struct PastFile {
  std::filesystem::path path;
  uint64_t sequence = 0;  ///< state: of the last entry in it; journal: of the first
  uint64_t position = 0;  ///< of a state
  uint64_t bytes = 0;
  bool is_held = false;  ///< a replay has it too, so that its end here makes no room
};

/// The past of one scene as it lies on disk, and what replays hold of it beyond that.
struct PastFiles {
  std::vector<PastFile> states, journals;  ///< of the scene, each ascending by sequence
  uint64_t bytes = 0;                      ///< of these
  uint64_t held_bytes = 0;                 ///< of files that only replays have: the scene has let them go
};

/// Files in the scene's folder and in those that hold files of it (StateFolder::HoldPast). One that several folders have, as links do, is
/// counted once. What goes or comes meanwhile may be left out.
PastFiles ListPast(const std::filesystem::path& folder, std::span<const std::filesystem::path> held);

}  // namespace palpate::record
