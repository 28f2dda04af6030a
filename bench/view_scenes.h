#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/context.h"

namespace palpate::bench {

/// The surface of one body over the frames of a simulation.
struct SimulatedAnimation {
  std::string name;
  std::vector<std::array<uint32_t, 3>> triangles;
  std::vector<std::vector<float>> frames;  ///< [frame][3 * vertex] m
};

/// What is simulated, by the counts and scenes of Cheng 2011 (table 6.1): balls of 12,288 and 49,152 triangles with a body
/// that goes up and down inside (one, two), a dress of some 50,000 on a standing figure in wind and on a walking one (three, four), a
/// sleeve of 76,800 on a rod that bends (five), a sheet of 80,000 on a board in wind (six).
struct ViewScene {
  std::string_view name;
  int frames;  ///< of 1/100 s, as many as the source has
};
std::span<const ViewScene> ViewScenes();

struct ViewFolders {
  std::filesystem::path scenes;  ///< of the project: has dress.json
  std::filesystem::path frames;  ///< made if it is not there
};

/// Simulates the scene as shells in contact, or reads what an earlier call has left: NAME.frames, and NAME.state to go on from, written
/// every 50 frames. So it may be interrupted, and asked for more frames. `is_quick`: a quarter of the triangles or less. Shows how far it
/// is on standard error. Errors: those of World; NotFound (dress.json); Internal naming a file that cannot be written.
absl::StatusOr<SimulatedAnimation> SimulateViewScene(std::shared_ptr<gpu::Context> context, const ViewScene& scene, int frames,
                                                     bool is_quick, const ViewFolders& folders);

}  // namespace palpate::bench
