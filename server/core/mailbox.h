#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace palpate::server {

/// The newest value from one writer thread to one reader thread, without locks or waiting on either side (a triple buffer). Values that the
/// reader did not fetch in time are overwritten. Another thread may take a side over if the hand-over itself is synchronised.
template <typename T>
class Mailbox {
 public:
  /// Writer side.
  void Write(const T& value) {
    slots_[back_] = value;
    back_ = middle_.exchange(static_cast<uint8_t>(back_ | kFresh), std::memory_order_acq_rel) & kIndex;
  }

  /// Reader side: copies the newest value to `value` and returns true if there is one that was not read before.
  bool Read(T& value) {
    if ((middle_.load(std::memory_order_relaxed) & kFresh) == 0) return false;
    front_ = middle_.exchange(front_, std::memory_order_acq_rel) & kIndex;
    value = slots_[front_];
    return true;
  }

 private:
  static constexpr uint8_t kIndex = 3;
  static constexpr uint8_t kFresh = 4;
  std::array<T, 3> slots_{};
  std::atomic<uint8_t> middle_{1};
  uint8_t back_ = 0;   ///< of the writer
  uint8_t front_ = 2;  ///< of the reader
};

}  // namespace palpate::server
