#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/record/recording.h"

namespace palpate::cli {

/// Where two recordings part, by place on the time line (steps since the scene was created).
struct RecordingDiff {
  uint64_t begin = 0;  ///< both have the places from here
  uint64_t end = 0;    ///< to here
  uint64_t compared_steps = 0;
  std::optional<uint64_t> first_input;  ///< step whose commands differ, or before which edits or resets differ
  std::string input;                    ///< what differs there
  std::optional<uint64_t> first_state;  ///< first step whose hash differs
  std::optional<std::string> body;  ///< first body whose surface differs at that step; nothing: no surface does yet, or hashes of bodies
                                    ///< were not recorded
  bool has_body_hashes = false;
  std::vector<std::string> remarks;  ///< devices, programs and lengths that differ; damage
  /// At the first checkpoint that both have behind it: the body that is farthest apart, and how far [m].
  std::optional<uint64_t> measured_at;
  std::string farthest_body;
  double farthest_m = 0;

  bool is_same() const { return !first_input && !first_state; }
};

/// Compares what was recorded, without computing anything again. Errors: FailedPrecondition (no place that both have), DataLoss.
absl::StatusOr<RecordingDiff> CompareRecordings(const record::Recording& a, const record::Recording& b);

}  // namespace palpate::cli
