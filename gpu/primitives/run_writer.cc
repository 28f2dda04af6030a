#include "gpu/primitives/run_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource run_writer;
}
namespace {

constexpr size_t kLongestRun = 64;  // words of one work-item
constexpr size_t kGroup = 64;
constexpr size_t kMaxWords = std::numeric_limits<uint32_t>::max();

}  // namespace

absl::StatusOr<RunWriter> RunWriter::Create(const std::shared_ptr<Context>& context) {
  RunWriter writer;
  PALPATE_ASSIGN_OR_RETURN(writer.write_runs_, context->CreateKernel(kernels::run_writer, "write_runs"));
  return writer;
}

absl::Status RunWriter::AddWords(BufferView<uint32_t> buffer, const std::string& name, const void* source, size_t count, size_t offset) {
  if (count == 0) return absl::OkStatus();
  if (offset > buffer.count || count > buffer.count - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": words [", offset, ", ", offset + count, ") are outside [0, ", buffer.count, ")"));
  }
  if (buffer.count > kMaxWords || words_.size() + count > kMaxWords) {
    return absl::ResourceExhaustedError(absl::StrCat(name, ": runs of more than 2^32 words"));
  }
  Batch* batch = nullptr;
  uint32_t target = 0;
  for (Batch& candidate : batches_) {
    const auto found = std::find_if(candidate.targets.begin(), candidate.targets.end(),
                                    [&](const BufferView<uint32_t>& view) { return view.handle == buffer.handle; });
    if (found == candidate.targets.end()) continue;
    batch = &candidate;
    target = static_cast<uint32_t>(found - candidate.targets.begin());
  }
  if (batch == nullptr) {
    if (batches_.empty() || batches_.back().targets.size() == kTargets) batches_.emplace_back();
    batch = &batches_.back();
    target = static_cast<uint32_t>(batch->targets.size());
    batch->targets.push_back(buffer);
  }
  const size_t at = words_.size();
  words_.resize(at + count);
  std::memcpy(&words_[at], source, count * sizeof(uint32_t));
  for (size_t k = 0; k < count; k += kLongestRun) {
    batch->runs.push_back({target, static_cast<uint32_t>(offset + k), static_cast<uint32_t>(std::min(kLongestRun, count - k)),
                           static_cast<uint32_t>(at + k)});
  }
  return absl::OkStatus();
}

absl::StatusOr<RunWriter::Written> RunWriter::Flush(Queue& queue) {
  const std::vector<Batch> batches = std::exchange(batches_, {});
  const std::vector<uint32_t> words = std::exchange(words_, {});
  if (words.empty()) return Written();
  std::vector<UInt4> runs;
  for (const Batch& batch : batches) runs.insert(runs.end(), batch.runs.begin(), batch.runs.end());
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), device_runs_, runs.size(), "runs to write"));
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), device_words_, words.size(), "words to write"));
  PALPATE_RETURN_IF_ERROR(queue.Write(device_runs_, std::span<const UInt4>(runs)));
  PALPATE_RETURN_IF_ERROR(queue.Write(device_words_, std::span<const uint32_t>(words)));
  uint32_t first = 0;
  for (const Batch& batch : batches) {
    const auto count = static_cast<uint32_t>(batch.runs.size());
    PALPATE_RETURN_IF_ERROR(
        write_runs_.Bind(Arg("first", first), Arg("count", count), Arg("runs", device_runs_), Arg("words", device_words_)));
    for (size_t t = 0; t < kTargets; ++t) {  // those that are not used must be bound to something, too
      constexpr std::array<const char*, kTargets> kNames = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"};
      PALPATE_RETURN_IF_ERROR(write_runs_.Bind(Arg(kNames[t], batch.targets[std::min(t, batch.targets.size() - 1)])));
    }
    PALPATE_RETURN_IF_ERROR(queue.Enqueue(write_runs_, {count, kGroup}));
    first += count;
  }
  return Written();
}

}  // namespace palpate::gpu
