#include "clients/cli/verify_queries.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "sim/ccd/pair_file.h"
#include "sim/ccd/query_file.h"

namespace palpate::cli {
namespace {

// Repetitions of a measurement: at least so many, and so long.
constexpr int kMinRepetitions = 3;
constexpr double kMinSeconds = 0.02;

double Seconds(bool is_gpu) {
  if (is_gpu) return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

}  // namespace

std::optional<uint32_t> QueryKindOf(std::string_view path) {
  const std::string stem = std::filesystem::path(path).stem().string();
  const bool is_vertex_face = path.find("vertex-face") != std::string_view::npos || stem.ends_with("vf");
  const bool is_edge_edge = path.find("edge-edge") != std::string_view::npos || stem.ends_with("ee");
  if (is_vertex_face == is_edge_edge) return std::nullopt;
  return is_vertex_face ? PALPATE_VERTEX_TRIANGLE : PALPATE_EDGE_EDGE;
}

absl::StatusOr<QueryVerdict> VerifyQueries(gpu::Queue& queue, gpu::CcdQueries& detector, const std::string& path, uint32_t kind,
                                           const std::optional<std::string>& truth_path) {
  PALPATE_ASSIGN_OR_RETURN(sim::CcdQuerySet set, sim::ReadCcdQueries(path));
  if (set.truth.empty() != truth_path.has_value()) {
    return absl::InvalidArgumentError(set.truth.empty()
                                          ? absl::StrCat(path, ": the file has 6 columns and needs --truth")
                                          : absl::StrCat(path, ": the file has its truth in column 7; --truth is for 6 columns"));
  }
  if (truth_path) {
    PALPATE_ASSIGN_OR_RETURN(set.truth, sim::ReadTruthList(*truth_path));
    if (set.truth.size() != set.count()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %d answers for the %d queries of %s", *truth_path, set.truth.size(), set.count(), path));
    }
  }
  PALPATE_ASSIGN_OR_RETURN(const std::vector<gpu::CcdAnswer> answers, detector.Run(queue, kind, set.coordinates, set.errors));
  QueryVerdict verdict;
  verdict.queries = set.count();
  verdict.inexact = static_cast<uint64_t>(std::count_if(set.errors.begin(), set.errors.end(), [](double e) { return e > 0; }));
  for (size_t i = 0; i < answers.size(); ++i) {
    const bool collides = set.truth[i];
    const bool is_hit = answers[i].is_hit != 0;
    verdict.colliding += collides ? 1 : 0;
    verdict.missed += collides && !is_hit ? 1 : 0;
    verdict.false_reports += is_hit && !collides ? 1 : 0;
  }
  const bool is_gpu = queue.context()->device().is_gpu;
  double fastest = 1e300;
  double total = 0;
  for (int i = 0; i < kMinRepetitions || (total < kMinSeconds && i < 1000); ++i) {
    const double begin = Seconds(is_gpu);
    PALPATE_RETURN_IF_ERROR(detector.Run(queue, kind, set.coordinates, set.errors).status());
    const double seconds = Seconds(is_gpu) - begin;
    fastest = std::min(fastest, seconds);
    total += seconds;
  }
  verdict.mean_us = fastest * 1e6 / static_cast<double>(verdict.queries);
  return verdict;
}

}  // namespace palpate::cli
