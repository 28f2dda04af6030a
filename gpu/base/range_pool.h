#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace palpate::gpu {

/// Hands out ranges of [0, capacity). A range that is given back goes first to the next that wants the same length, else a longer one is
/// split. Deterministic; O(1), and O(longest range) where nothing fits exactly.
class RangePool {
 public:
  /// [0, used) is taken.
  RangePool(uint32_t used, uint32_t capacity) : end_(used), capacity_(capacity) {}

  /// The begin of a free range, or nothing if there is none. A range of 0 begins anywhere.
  std::optional<uint32_t> Take(uint32_t length) {
    if (length == 0) return 0;
    if (length < free_.size() && !free_[length].empty()) return Pop(length);
    if (capacity_ - end_ >= length) {
      end_ += length;
      return end_ - length;
    }
    for (uint32_t longer = length + 1; longer < free_.size(); ++longer) {
      if (free_[longer].empty()) continue;
      const uint32_t begin = Pop(longer);
      Give(begin + length, longer - length);
      return begin;
    }
    return std::nullopt;
  }

  void Give(uint32_t begin, uint32_t length) {
    if (length == 0) return;
    if (length >= free_.size()) free_.resize(length + 1);
    free_[length].push_back(begin);
  }

  /// One past the last place that was ever taken.
  uint32_t end() const { return end_; }
  uint32_t capacity() const { return capacity_; }
  /// Whether all ranges lie where they may; of one that was read.
  bool IsSound() const {
    if (end_ > capacity_) return false;
    for (uint32_t length = 0; length < free_.size(); ++length) {
      for (const uint32_t begin : free_[length]) {
        if (begin > end_ || length > end_ - begin) return false;
      }
    }
    return true;
  }

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [end, capacity, free] = *this;
    archive(end, capacity, free);
  }

 private:
  uint32_t Pop(uint32_t length) {
    const uint32_t begin = free_[length].back();
    free_[length].pop_back();
    return begin;
  }

  uint32_t end_;
  uint32_t capacity_;
  std::vector<std::vector<uint32_t>> free_;  // by length
};

}  // namespace palpate::gpu
