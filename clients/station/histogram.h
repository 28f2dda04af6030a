#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>

namespace palpate::station {

/// Adds to an atomic that only one thread writes: no read-modify-write is needed.
template <typename T>
void AddRelaxed(std::atomic<T>& value, T amount) noexcept {
  value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

/// Keeps the largest value; one thread writes.
inline void RaiseRelaxed(std::atomic<double>& largest, double value) noexcept {
  if (value > largest.load(std::memory_order_relaxed)) largest.store(value, std::memory_order_relaxed);
}

/// Distribution of non-negative values in kBins equal bins from 0; larger values share one more bin. One thread adds, any thread reads.
/// No allocation. A percentile is right to one bin width up to range(); beyond that it is the maximum.
template <int kBins>
class Histogram {
 public:
  explicit Histogram(double bin_width) : bin_width_(bin_width) {}

  void Add(double value) noexcept {
    const double bin = std::clamp(value / bin_width_, 0.0, static_cast<double>(kBins));
    AddRelaxed(bins_[static_cast<size_t>(bin)], uint32_t{1});
    AddRelaxed(count_, uint64_t{1});
    AddRelaxed(sum_, value);
    if (value > max_.load(std::memory_order_relaxed)) max_.store(value, std::memory_order_relaxed);
  }

  uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  double max() const noexcept { return max_.load(std::memory_order_relaxed); }
  double mean() const noexcept { return count() == 0 ? 0 : sum_.load(std::memory_order_relaxed) / static_cast<double>(count()); }
  double range() const noexcept { return bin_width_ * kBins; }

  /// Smallest bin edge below which at least `fraction` of the values lie, at most max(); 0 without values. `fraction` in (0, 1].
  double Percentile(double fraction) const noexcept {
    uint64_t total = 0;
    for (const auto& bin : bins_) total += bin.load(std::memory_order_relaxed);
    if (total == 0) return 0;
    const auto wanted = static_cast<uint64_t>(std::ceil(fraction * static_cast<double>(total)));
    uint64_t seen = 0;
    for (int i = 0; i < kBins; ++i) {
      seen += bins_[i].load(std::memory_order_relaxed);
      if (seen >= wanted) return std::min(bin_width_ * (i + 1), max());
    }
    return max();
  }

 private:
  double bin_width_;
  std::array<std::atomic<uint32_t>, kBins + 1> bins_{};
  std::atomic<uint64_t> count_{0};
  std::atomic<double> sum_{0};
  std::atomic<double> max_{0};
};

}  // namespace palpate::station
