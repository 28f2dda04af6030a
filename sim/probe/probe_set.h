#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/probe/quantities.h"
#include "sim/scene/description.h"
#include "sim/world/frame.h"
#include "sim/world/world.h"

namespace palpate::sim {

/// One number that a probe gives.
struct ProbeColumn {
  std::string name;            ///< the full path with its component: "tool.probe.force.x"
  std::string unit;            ///< "N", "m", "1" for none
  bool is_wall_clock = false;  ///< a time of this machine: differs from run to run
};

inline constexpr size_t kMaxProbes = 256;          ///< paths of a set
inline constexpr size_t kMaxProbePathBytes = 512;  ///< of one path
inline constexpr size_t kMaxProbeColumns = 65536;  ///< of a set

/// What is measured of a scene, by paths such as `tool.probe.force`, `body.liver.volume`, `contacts.force(liver).norm`. docs/jobs.md lists
/// them; ListProbes does so for one scene. `*` in a name stands for any characters, and the path then for all tools, bodies or markers
/// whose names fit. Names with other characters than letters, digits, `_`, `-`, `/` and `*` are quoted: `body."left lobe".volume`.
///
/// A set belongs to one world: it keeps rest shapes between evaluations. Copies are independent. Not thread-safe.
class ProbeSet {
 public:
  ProbeSet() = default;

  /// Errors: InvalidArgument naming `probes[i]`, the path, the place in it, and what there is instead; ResourceExhausted (limits above).
  static absl::StatusOr<ProbeSet> Parse(std::span<const std::string> paths, const SceneDescription& scene);

  /// In the order of the paths; of a path with wildcards in the order of the scene.
  const std::vector<ProbeColumn>& columns() const { return columns_; }

  /// One value a column. NaN where there is none: elastic energy that the scene does not measure, the least gap without a
  /// contact, the pressure of what keeps no volume.
  /// `world`, if given, is the one that made `frame`, which is its newest; without it `mass`, `rest_volume`, `pressure`, `vertex_count` and
  /// `max_displacement` are NaN. Deterministic. Precondition: out.size() == columns().size(). O(surface of the bodies that are asked for).
  void Evaluate(const Frame& frame, std::span<double> out, const World* world = nullptr);

 private:
  struct Probe;
  std::vector<std::shared_ptr<const Probe>> probes_;
  std::vector<ProbeColumn> columns_;
  TopologyMeasures kept_;
};

/// All that a scene has, with wildcards left out: the names that Parse knows, in full.
std::vector<ProbeColumn> ListProbes(const SceneDescription& scene);

}  // namespace palpate::sim
