#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/ccd_queries.h"
#include "gpu/runtime/queue.h"

namespace palpate::cli {

/// PALPATE_VERTEX_TRIANGLE or PALPATE_EDGE_EDGE as the path of a file of queries tells: a folder or name with "vertex-face" or
/// "edge-edge", or a stem that ends in "vf" or "ee". Nothing if it does not tell.
std::optional<uint32_t> QueryKindOf(std::string_view path);

/// What a check of one file found.
struct QueryVerdict {
  uint64_t queries = 0;
  uint64_t colliding = 0;  ///< in truth
  uint64_t missed = 0;     ///< collide in truth, and were not reported
  uint64_t false_reports = 0;
  uint64_t inexact = 0;  ///< have a coordinate that is no double, and were widened by the difference
  double mean_us = 0;    ///< processor time of one core for one query; on a GPU, time of the device
};

/// Runs the queries of a file against its truth: that of its seventh column, or of `truth_path` for a file of six. Errors: InvalidArgument
/// (contents, lengths that differ, a seventh column and a truth file, or neither), NotFound, ResourceExhausted.
absl::StatusOr<QueryVerdict> VerifyQueries(gpu::Queue& queue, gpu::CcdQueries& detector, const std::string& path, uint32_t kind,
                                           const std::optional<std::string>& truth_path);

}  // namespace palpate::cli
