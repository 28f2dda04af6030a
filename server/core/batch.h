#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/runtime/context.h"
#include "palpate/v1/batch.pb.h"
#include "server/core/scene.h"
#include "server/core/worker_pool.h"
#include "sim/probe/probe_set.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/scene_spec.h"
#include "sim/world/world.h"

namespace palpate::server {

inline constexpr uint32_t kMaxBatchEnvironments = 1024;  ///< of one batch, and of all batches of a server together

/// Environments of all batches of a server. Thread-safe.
class BatchBudget {
 public:
  /// Errors: ResourceExhausted.
  absl::Status Take(uint32_t count);
  void Return(uint32_t count) { used_.fetch_sub(count); }
  uint32_t used() const { return used_.load(); }

 private:
  std::atomic<uint32_t> used_{0};
};

/// The worlds of one BatchService.RunBatch call. Each is stepped as one thread would step it alone, by whichever thread of the pool is
/// free; nothing is shared between them but the device. Long work is done in slices, so that batches share the pool.
class Batch : public std::enable_shared_from_this<Batch> {
 public:
  struct Options {
    std::shared_ptr<gpu::Context> context;
    std::shared_ptr<const scene::AssetResolver> assets;
    scene::SceneLimits limits;
    BatchBudget* budget = nullptr;  ///< outlives the batch
    WorkerPool* pool = nullptr;     ///< outlives the batch
  };
  explicit Batch(Options options) : options_(std::move(options)) {}
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  /// Does what a request says; `done` runs once, on a thread of the pool. One request at a time; it lives until `done`.
  /// Errors: those of RunBatch, after which the batch is of no use.
  void Handle(const v1::BatchRequest& request, Done<v1::BatchResponse> done);

  /// Work under way is given up after the steps that run now; its answer is CANCELLED. Any thread.
  void Cancel() { is_cancelled_ = true; }

 private:
  struct Environment {
    std::unique_ptr<sim::World> world;
    sim::ProbeSet probes;
    std::vector<std::optional<sim::ToolCommand>> commands;  ///< of each tool; none: let go
    absl::Status error;                                     ///< of the newest request
  };
  /// What a request asks of one environment.
  struct Work {
    uint32_t environment = 0;
    const v1::BatchAction* action = nullptr;                                          ///< may be null
    std::vector<std::pair<uint32_t, std::optional<sim::ToolCommand>>> commands = {};  ///< (tool, command or release)
    bool has_begun = false;
    uint32_t steps_left = 0;
  };
  struct Task;

  void Open(const v1::BatchOpen& open, const Done<v1::BatchResponse>& done);
  absl::Status Prepare(const v1::BatchOpen& open);
  void Step(const v1::BatchStep& step, const Done<v1::BatchResponse>& done);
  absl::StatusOr<std::vector<Work>> Plan(const v1::BatchStep& step) const;
  absl::Status PlanTools(const v1::BatchAction& action, const std::string& path, Work& work) const;
  void Reset(const v1::BatchReset& reset, const Done<v1::BatchResponse>& done);
  absl::StatusOr<std::vector<uint32_t>> Resettable(const v1::BatchReset& reset) const;
  /// What a reset does to materials. Errors: InvalidArgument naming the field.
  absl::StatusOr<v1::EditSceneRequest> MaterialEdits(const v1::BatchReset& reset) const;
  static absl::Status Apply(const v1::EditSceneRequest& edits, Environment& environment);
  /// Steps until the work is done, or for as long as a slice may take; true: done.
  bool Advance(Work& work, Environment& environment) const;
  v1::BatchResult ResultOf(const std::vector<uint32_t>& environments);

  /// Runs `job` for each number below `count` on the pool, again and again until it returns true; then `then`, once.
  void ForEach(size_t count, std::function<bool(size_t)> job, std::function<void()> then);
  void RunSlice(const std::shared_ptr<Task>& task, size_t index);

  const Options options_;
  std::atomic<bool> is_cancelled_{false};
  sim::SceneDescription description_;
  std::vector<Environment> environments_;
  uint32_t taken_ = 0;  ///< of the budget
};

}  // namespace palpate::server
