#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "palpate/v1/stream.pb.h"

namespace palpate::cli {

/// The sample at quantile `q` in [0, 1] of `samples` (nearest rank), 0 if there is none. Reorders its argument.
double Quantile(std::vector<double>& samples, double q);

/// {"p50", "p99", "max"} of samples.
nlohmann::ordered_json Percentiles(std::vector<double> samples);

/// What a stream of frames told so far. Thread-safe: one thread adds, another reads.
class FrameStatistics {
 public:
  using Clock = std::chrono::steady_clock;

  /// Takes a frame that arrived in a message of `bytes` bytes. Each step counts once, however often it is sent.
  void Add(const v1::Frame& frame, size_t bytes, Clock::time_point now);

  struct Snapshot {
    uint64_t frames = 0, bytes = 0, dropped = 0;
    uint64_t first_step = 0, last_step = 0;
    double span_s = 0;  ///< wall time from the first frame to the last
    v1::Frame last;     ///< without positions
    std::string failure;
  };
  Snapshot snapshot() const;

  /// Steps per second of wall time between the first frame and the last; 0 before the second.
  double StepsPerSecond() const;

  /// {"samples", "p50", "p99", "max", "stages": {name: {"p50", "p99", "max"}}} of the steps seen, in milliseconds.
  nlohmann::ordered_json StepTimes() const;

 private:
  mutable std::mutex mutex_;  // guards everything below
  Snapshot state_;
  Clock::time_point first_time_;
  std::vector<double> step_ms_;
  std::vector<std::string> stage_order_;
  std::map<std::string, std::vector<double>> stage_ms_;
};

}  // namespace palpate::cli
