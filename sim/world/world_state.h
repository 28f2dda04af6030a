#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gpu/base/status.h"
#include "gpu/runtime/device.h"
#include "sim/scene/description.h"
#include "sim/world/body_arrays.h"
#include "sim/world/frame.h"

namespace palpate::sim {

/// What a checkpoint says of itself.
struct WorldStateInfo {
  uint64_t description_hash = 0;  ///< HashOfDescription of the scene: no other can be restored from it
  uint64_t step = 0;
  double sim_time_s = 0;
  uint64_t state_hash = 0;        ///< Frame::state_hash of the newest frame
  uint64_t topology_version = 1;  ///< Frame::topology_version
  /// Device and driver that made it. On others it can be restored, but goes on with other bits: callers report that (IsSameDevice).
  std::string device, driver;
};

/// Whether a state restored on `device` goes on with the bits that it would have had, with the same build of this program.
bool IsSameDevice(const WorldStateInfo& info, const gpu::DeviceInfo& device);

/// All that a World is between two steps: World::Capture makes it, World::Restore goes on from it. Immutable once made; any thread may read
/// it. docs/checkpoints.md.
struct WorldState {
  WorldStateInfo info;
  std::shared_ptr<const WorldTopology> topology;
  std::shared_ptr<const Frame> frame;  ///< the newest, with `topology`
  std::string scene;                   ///< bodies, vertices, tools and what instruments hold, as StateWriter bytes
  std::string solver;                  ///< gpu::TissueSolver::SaveState
};

/// Whether clients have the same of all bodies, and of what the newest edit changed. O(topology).
bool IsSameTopology(const WorldTopology& a, const WorldTopology& b);

/// The format that EncodeWorldState writes. DecodeWorldState takes the same major version, up to this minor one.
inline constexpr uint16_t kWorldStateMajor = 12;
inline constexpr uint16_t kWorldStateMinor = 0;

/// As bytes, for a file or the network. Deterministic: the same state gives the same bytes. Any thread.
std::string EncodeWorldState(const WorldState& state);

/// The sections of such bytes: topology, frame, scene, solver.
using WorldStateSections = std::array<std::string_view, 4>;
/// Puts a head with checksums before sections that are bytes already.
std::string PackWorldState(const WorldStateInfo& info, const WorldStateSections& sections);

/// Back from bytes, which may come from anywhere: sizes, checksums and arrays of topology and frame are checked, what is in the other
/// sections by World::Restore. Errors: InvalidArgument naming the section and the byte (not a checkpoint, another version, cut short,
/// damaged). Takes at most a fixed multiple of the size of `bytes` as memory. Any thread.
absl::StatusOr<std::shared_ptr<const WorldState>> DecodeWorldState(std::string_view bytes);

/// Only what the head says, without the sections and their checksums. Errors: as DecodeWorldState.
absl::StatusOr<WorldStateInfo> ReadWorldStateInfo(std::string_view bytes);

/// Tells scenes apart: 64 bits over every field of a description, but for where markers were placed. The same in every process.
uint64_t HashOfDescription(const SceneDescription& description);

}  // namespace palpate::sim
