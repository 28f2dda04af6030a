#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace palpate::station {

/// Hands the newest value from one writing thread to one reading thread. Neither ever waits: values that the reader did not fetch in time
/// are overwritten.
///
/// Three slots: one belongs to the writer, one to the reader, one lies in the middle; each side swaps its own with the middle by one atomic
/// exchange, so no slot is ever seen by both (no torn values, unlike a sequence lock, and no data race for ThreadSanitizer to forgive). No
/// allocation after construction.
template <typename T>
class TripleBuffer {
 public:
  /// The slot to fill before Publish. Writer only. Holds an old value, not the last one written.
  T& back() noexcept { return slots_[back_]; }

  /// Makes the back slot the newest value. Writer only.
  void Publish() noexcept { back_ = middle_.exchange(static_cast<uint8_t>(back_ | kFresh), std::memory_order_acq_rel) & kIndex; }

  void Write(const T& value) noexcept {
    back() = value;
    Publish();
  }

  /// Fetches the newest value into front(). False if there is none newer than the last fetched. Reader only.
  bool Update() noexcept {
    if ((middle_.load(std::memory_order_relaxed) & kFresh) == 0) return false;
    front_ = middle_.exchange(front_, std::memory_order_acq_rel) & kIndex;
    return true;
  }

  /// The value last fetched; a default T before. Reader only; stays as it is until the next Update.
  const T& front() const noexcept { return slots_[front_]; }

 private:
  static constexpr uint8_t kIndex = 3;
  static constexpr uint8_t kFresh = 4;

  std::array<T, 3> slots_{};
  alignas(64) std::atomic<uint8_t> middle_{1};
  alignas(64) uint8_t back_ = 0;
  alignas(64) uint8_t front_ = 2;
};

}  // namespace palpate::station
