#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/job/job_file.h"
#include "clients/job/results.h"
#include "sim/world/world.h"

namespace palpate::job {

/// What summary.json says beside the results.
struct SummaryFacts {
  std::string status;  ///< "ended", "failed"
  std::string reason, detail;
  uint64_t edit_count = 0;
  double removed_mass_kg = 0;
  // Provenance.
  std::string command, begun, ended;  ///< times: ISO 8601, UTC
  std::vector<std::string> devices;
  double wall_s = 0;
  uint32_t interruptions = 0;
  uint64_t programs_compiled = 0;
};

/// The summary of a job as JSON: what it was, how it ended, each column's last, least, largest and mean value, hashes of inputs, outputs
/// and the state; last, under "provenance", what differs from run to run. `world` may be null (it never began). Errors: those of reading
/// outputs.
absl::StatusOr<std::string> MakeSummary(const LoadedJob& loaded, const SummaryFacts& facts, const JobResults& results,
                                        const sim::World* world, const std::filesystem::path& folder);

/// Now, ISO 8601, UTC.
std::string UtcNow();

}  // namespace palpate::job
