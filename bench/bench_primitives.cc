// Primitives against the standard library on one core. Every result is checked before it is timed.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/bench_support.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/primitives/reduction.h"
#include "gpu/primitives/scan.h"
#include "gpu/runtime/queue.h"

namespace palpate::bench {
namespace {

using gpu::BufferView;
using gpu::DeviceBuffer;

absl::Status Differs(std::string_view what) { return absl::InternalError(absl::StrCat("wrong result of ", std::string(what))); }

// What every case needs: a queue, the report, and the bandwidth that a copy reaches.
class Suite {
 public:
  Suite(gpu::Queue& queue, Report& report) : queue_(queue), report_(report) {}

  absl::Status MeasureCopy() {
    const size_t count = IsQuick() ? size_t{1} << 22 : size_t{1} << 24;
    PALPATE_ASSIGN_OR_RETURN(const auto source, DeviceBuffer<uint32_t>::Create(queue_.context(), count, "source"));
    PALPATE_ASSIGN_OR_RETURN(const auto target, DeviceBuffer<uint32_t>::Create(queue_.context(), count, "target"));
    PALPATE_RETURN_IF_ERROR(queue_.Fill(source, 1U));
    PALPATE_ASSIGN_OR_RETURN(const Times times, Time([&] { return queue_.Copy(source, target, count); }));
    copy_bytes_per_s_ = 2.0 * static_cast<double>(count) * sizeof(uint32_t) / times.wall_s;
    report_.Add("copy", "bandwidth", copy_bytes_per_s_, "bytes_per_s");
    return absl::OkStatus();
  }

  // Times `enqueue` (device) and `serial` (one core, the standard library). bytes: what the algorithm has to read and write at least.
  absl::Status Compare(const std::string& name, uint32_t count, double bytes, const std::function<absl::Status()>& enqueue,
                       const std::function<void()>& prepare_serial, const std::function<void()>& serial) {
    PALPATE_ASSIGN_OR_RETURN(const Times times, Time(enqueue));
    Samples serial_samples;
    for (int i = 0; i < (count > 1000000 ? 3 : 9); ++i) {
      prepare_serial();
      const Stopwatch stopwatch;
      serial();
      serial_samples.Add(stopwatch.Elapsed());
    }
    const double reference_s = Quantile(serial_samples.wall_s, 0.5);
    const double reference_cpu_s = Quantile(serial_samples.cpu_s, 0.5);
    report_.Add(name, "time", times.wall_s, "s");
    report_.Add(name, "time_cpu", times.cpu_s, "s");
    report_.Add(name, "rate", count / times.wall_s, "elements_per_s");
    report_.Add(name, "bandwidth_share", bytes / times.wall_s / copy_bytes_per_s_, "ratio");
    report_.Add(name, "std_time", reference_s, "s");
    report_.Add(name, "std_time_cpu", reference_cpu_s, "s");
    report_.Add(name, "speedup_over_std", reference_s / times.wall_s, "ratio");
    report_.Add(name, "speedup_over_std_cpu", reference_cpu_s / times.cpu_s, "ratio");
    return absl::OkStatus();
  }

  absl::StatusOr<Times> Time(const std::function<absl::Status()>& enqueue) {
    absl::Status status;
    const Times times = MedianTimes([&] {
      status.Update(enqueue());
      status.Update(queue_.FinishBlocking());
    });
    if (!status.ok()) return status;
    return times;
  }

  template <typename T>
  absl::StatusOr<std::vector<T>> Download(const DeviceBuffer<T>& buffer) {
    std::vector<T> values(buffer.count());
    PALPATE_RETURN_IF_ERROR(queue_.ReadBlocking(buffer, values));
    return values;
  }

  template <typename T>
  absl::Status Sort(const std::string& name, uint32_t count) {
    std::mt19937_64 random(1);
    std::vector<T> keys(count);
    for (T& key : keys) key = static_cast<T>(random());
    std::vector<std::pair<T, uint32_t>> pairs(count);
    for (uint32_t i = 0; i < count; ++i) pairs[i] = {keys[i], i};
    const auto unsorted = pairs;

    PALPATE_ASSIGN_OR_RETURN(gpu::RadixSort<T> sort, gpu::RadixSort<T>::Create(queue_.context(), count));
    PALPATE_ASSIGN_OR_RETURN(const auto in, gpu::CreateBufferFrom(queue_, std::span<const T>(keys), "keys"));
    PALPATE_ASSIGN_OR_RETURN(const auto keys_out, DeviceBuffer<T>::Create(queue_.context(), count, "keys out"));
    PALPATE_ASSIGN_OR_RETURN(const auto values_out, DeviceBuffer<uint32_t>::Create(queue_.context(), count, "values out"));
    const auto run = [&] { return sort.Run(queue_, in, {}, count, keys_out, values_out); };
    PALPATE_RETURN_IF_ERROR(run());
    PALPATE_ASSIGN_OR_RETURN(const std::vector<T> sorted, Download(keys_out));
    PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> values, Download(values_out));
    std::sort(pairs.begin(), pairs.end());
    for (uint32_t i = 0; i < count; ++i) {
      if (sorted[i] != pairs[i].first || values[i] != pairs[i].second) return Differs(name);
    }
    // A pass reads the keys twice, the values once (not at first) and writes both.
    const double passes = sizeof(T);
    const double bytes = count * (passes * (3 * sizeof(T) + 2 * sizeof(uint32_t)) - sizeof(uint32_t));
    return Compare(
        name, count, bytes, run, [&] { pairs = unsorted; },
        [&] { std::sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.first < b.first; }); });
  }

  absl::Status Scan(const std::string& name, uint32_t count) {
    std::vector<uint32_t> values(count);
    std::mt19937 random(2);
    for (uint32_t& value : values) value = random() % 16;
    std::vector<uint32_t> expected(count);
    std::exclusive_scan(values.begin(), values.end(), expected.begin(), 0U);
    PALPATE_ASSIGN_OR_RETURN(gpu::ExclusiveScan scan, gpu::ExclusiveScan::Create(queue_.context()));
    PALPATE_ASSIGN_OR_RETURN(const auto in, gpu::CreateBufferFrom(queue_, std::span<const uint32_t>(values), "in"));
    PALPATE_ASSIGN_OR_RETURN(const auto out, DeviceBuffer<uint32_t>::Create(queue_.context(), count, "out"));
    const auto run = [&] { return scan.Run(queue_, in, count, out); };
    PALPATE_RETURN_IF_ERROR(run());
    PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> result, Download(out));
    if (result != expected) return Differs(name);
    return Compare(
        name, count, 12.0 * count, run, [] {}, [&] { std::exclusive_scan(values.begin(), values.end(), expected.begin(), 0U); });
  }

  absl::Status Compact(const std::string& name, uint32_t count) {
    std::vector<uint32_t> flags(count);
    std::mt19937 random(3);
    for (uint32_t& flag : flags) flag = random() % 2;
    std::vector<uint32_t> expected(count);
    const auto serial = [&] {
      uint32_t kept = 0;
      for (uint32_t i = 0; i < count; ++i) {
        if (flags[i] != 0) expected[kept++] = i;
      }
      expected.resize(kept);
    };
    serial();
    PALPATE_ASSIGN_OR_RETURN(gpu::StreamCompaction compaction, gpu::StreamCompaction::Create(queue_.context()));
    PALPATE_ASSIGN_OR_RETURN(const auto in, gpu::CreateBufferFrom(queue_, std::span<const uint32_t>(flags), "flags"));
    PALPATE_ASSIGN_OR_RETURN(const auto out, DeviceBuffer<uint32_t>::Create(queue_.context(), count, "indices"));
    PALPATE_ASSIGN_OR_RETURN(const auto kept, DeviceBuffer<uint32_t>::Create(queue_.context(), 1, "kept"));
    const auto run = [&] { return compaction.Run(queue_, in, count, out, kept); };
    PALPATE_RETURN_IF_ERROR(run());
    PALPATE_ASSIGN_OR_RETURN(std::vector<uint32_t> result, Download(out));
    PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> result_count, Download(kept));
    result.resize(result_count[0]);
    if (result != expected) return Differs(name);
    return Compare(
        name, count, 8.0 * count + 4.0 * result_count[0], run, [&] { expected.resize(count); }, serial);
  }

  absl::Status Segments(const std::string& name, uint32_t count) {
    std::vector<uint32_t> values(count);
    std::vector<uint32_t> heads(count);
    std::mt19937 random(4);
    for (uint32_t i = 0; i < count; ++i) {
      values[i] = random() % 16;
      heads[i] = random() % 20 == 0;
    }
    std::vector<uint32_t> expected(count);
    const auto serial = [&] {
      uint32_t sum = 0;
      for (uint32_t i = 0; i < count; ++i) {
        if (heads[i] != 0) sum = 0;
        expected[i] = sum;
        sum += values[i];
      }
    };
    serial();
    PALPATE_ASSIGN_OR_RETURN(gpu::SegmentedScan<uint32_t> scan, gpu::SegmentedScan<uint32_t>::Create(queue_.context()));
    PALPATE_ASSIGN_OR_RETURN(const auto in, gpu::CreateBufferFrom(queue_, std::span<const uint32_t>(values), "in"));
    PALPATE_ASSIGN_OR_RETURN(const auto flags, gpu::CreateBufferFrom(queue_, std::span<const uint32_t>(heads), "heads"));
    PALPATE_ASSIGN_OR_RETURN(const auto out, DeviceBuffer<uint32_t>::Create(queue_.context(), count, "out"));
    const auto run = [&] { return scan.Run(queue_, in, flags, count, out); };
    PALPATE_RETURN_IF_ERROR(run());
    PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> result, Download(out));
    if (result != expected) return Differs(name);
    return Compare(
        name, count, 20.0 * count, run, [] {}, serial);
  }

  absl::Status Runs(const std::string& name, uint32_t count) {
    std::vector<uint32_t> keys(count);
    std::mt19937 random(5);
    for (uint32_t& key : keys) key = random() % (count / 4 + 1);
    std::sort(keys.begin(), keys.end());
    std::vector<uint32_t> expected_keys;
    std::vector<uint32_t> expected_begins;
    const auto clear = [&] {
      expected_keys.resize(count);
      expected_begins.resize(count + 1);
    };
    const auto serial = [&] {
      uint32_t runs = 0;
      for (uint32_t i = 0; i < count; ++i) {
        if (i > 0 && keys[i] == keys[i - 1]) continue;
        expected_keys[runs] = keys[i];
        expected_begins[runs++] = i;
      }
      expected_begins[runs] = count;
      expected_keys.resize(runs);
      expected_begins.resize(runs + 1);
    };
    clear();
    serial();
    PALPATE_ASSIGN_OR_RETURN(gpu::RunLengthEncode<uint32_t> encode, gpu::RunLengthEncode<uint32_t>::Create(queue_.context()));
    PALPATE_ASSIGN_OR_RETURN(const auto in, gpu::CreateBufferFrom(queue_, std::span<const uint32_t>(keys), "keys"));
    PALPATE_ASSIGN_OR_RETURN(const auto run_keys, DeviceBuffer<uint32_t>::Create(queue_.context(), count, "run keys"));
    PALPATE_ASSIGN_OR_RETURN(const auto run_begins, DeviceBuffer<uint32_t>::Create(queue_.context(), count + 1, "run begins"));
    PALPATE_ASSIGN_OR_RETURN(const auto run_count, DeviceBuffer<uint32_t>::Create(queue_.context(), 1, "run count"));
    const auto run = [&] { return encode.Run(queue_, in, count, run_keys, run_begins, run_count); };
    PALPATE_RETURN_IF_ERROR(run());
    PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> runs, Download(run_count));
    PALPATE_ASSIGN_OR_RETURN(std::vector<uint32_t> result_keys, Download(run_keys));
    PALPATE_ASSIGN_OR_RETURN(std::vector<uint32_t> result_begins, Download(run_begins));
    result_keys.resize(runs[0]);
    result_begins.resize(runs[0] + 1);
    if (result_keys != expected_keys || result_begins != expected_begins) return Differs(name);
    return Compare(name, count, 8.0 * count + 8.0 * runs[0], run, clear, serial);
  }

  absl::Status Sum(const std::string& name, uint32_t count) {
    std::vector<float> values(count);
    std::mt19937 random(6);
    for (float& value : values) value = static_cast<float>(random() % 1024) / 1024.0F;
    PALPATE_ASSIGN_OR_RETURN(auto sum, gpu::Reduction<float>::Create(queue_.context(), gpu::ReductionOp::kSum));
    PALPATE_ASSIGN_OR_RETURN(const auto in, gpu::CreateBufferFrom(queue_, std::span<const float>(values), "in"));
    PALPATE_ASSIGN_OR_RETURN(const auto out, DeviceBuffer<float>::Create(queue_.context(), 1, "out"));
    const auto run = [&] { return sum.Run(queue_, in, count, out); };
    PALPATE_RETURN_IF_ERROR(run());
    PALPATE_ASSIGN_OR_RETURN(const std::vector<float> result, Download(out));
    const double exact = std::accumulate(values.begin(), values.end(), 0.0);
    if (!(std::abs(result[0] - exact) <= 1e-4 * exact)) return Differs(name);
    volatile float sink = 0;
    return Compare(
        name, count, 4.0 * count, run, [] {}, [&] { sink = std::accumulate(values.begin(), values.end(), 0.0F); });
  }

  absl::Status Bounds(const std::string& name, uint32_t count) {
    std::vector<gpu::Float4> points(count);
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (gpu::Float4& point : points) point = {uniform(random), uniform(random), uniform(random), 0};
    gpu::Box expected;
    const auto serial = [&] {
      gpu::Box box = {points[0], points[0]};
      for (const gpu::Float4& p : points) {
        box.lower = {std::min(box.lower.x, p.x), std::min(box.lower.y, p.y), std::min(box.lower.z, p.z), 0};
        box.upper = {std::max(box.upper.x, p.x), std::max(box.upper.y, p.y), std::max(box.upper.z, p.z), 0};
      }
      expected = box;
    };
    serial();
    PALPATE_ASSIGN_OR_RETURN(gpu::BoundingBox box, gpu::BoundingBox::Create(queue_.context()));
    PALPATE_ASSIGN_OR_RETURN(const auto in, gpu::CreateBufferFrom(queue_, std::span<const gpu::Float4>(points), "points"));
    PALPATE_ASSIGN_OR_RETURN(const auto out, DeviceBuffer<gpu::Box>::Create(queue_.context(), 1, "box"));
    const auto run = [&] { return box.Run(queue_, in, count, out); };
    PALPATE_RETURN_IF_ERROR(run());
    PALPATE_ASSIGN_OR_RETURN(const std::vector<gpu::Box> result, Download(out));
    if (!(result[0].lower == expected.lower && result[0].upper == expected.upper)) return Differs(name);
    return Compare(
        name, count, 16.0 * count, run, [] {}, serial);
  }

  absl::Status Run() {
    PALPATE_RETURN_IF_ERROR(MeasureCopy());
    using Case = absl::Status (Suite::*)(const std::string&, uint32_t);
    const std::vector<std::pair<const char*, Case>> cases = {
        {"reduce_sum_f32", &Suite::Sum},          {"bounding_box", &Suite::Bounds},     {"exclusive_scan_u32", &Suite::Scan},
        {"segmented_scan_u32", &Suite::Segments}, {"compaction", &Suite::Compact},      {"run_length_u32", &Suite::Runs},
        {"sort_u32", &Suite::Sort<uint32_t>},     {"sort_u64", &Suite::Sort<uint64_t>},
    };
    for (const auto& [name, function] : cases) {
      for (const uint32_t count : {10'000U, 100'000U, 1'000'000U, 10'000'000U}) {
        if (IsQuick() && count > 1'000'000U) continue;
        const std::string full_name = absl::StrCat(name, "/", count);
        if (IsSelected(full_name)) PALPATE_RETURN_IF_ERROR((this->*function)(full_name, count));
      }
    }
    return absl::OkStatus();
  }

 private:
  gpu::Queue& queue_;
  Report& report_;
  double copy_bytes_per_s_ = 1;
};

int Main() {
  auto context = gpu::Context::Create({.device = DeviceSelector()});
  absl::StatusOr<std::unique_ptr<gpu::Queue>> queue =
      context.ok() ? gpu::Queue::Create(*context) : absl::StatusOr<std::unique_ptr<gpu::Queue>>(context.status());
  Report report("primitives", context.ok() ? gpu::DescribeDevice((*context)->device()) : "none");
  if (!queue.ok()) return report.Finish(queue.status());
  Suite suite(**queue, report);
  const absl::Status status = suite.Run();
  report.Note(
      "time: median wall time with one wait at the end. bandwidth_share: bytes the passes must move, by time, by the copy's bandwidth");
  report.Note(
      "(the copy moves 128 MiB; an array that fits in a cache may exceed 1). std: one thread; sort_*: std::sort of (key, index) pairs.");
  report.Note("*_cpu: processor time of all threads: what the device and the one thread of std cost.");
  return report.Finish(status);
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Speed of the parallel primitives, compared with the standard library on one core.");
  return palpate::bench::Main();
}
