#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

namespace palpate {

/// Indices of one kind are an enumeration over uint32_t, so that none is taken for one of another kind: `enum class VertexHandle :
/// uint32_t {}`. Arrays that belong to a kind are IndexedVectors of it.
template <typename T>
concept TypedIndex = std::is_enum_v<T> && std::is_same_v<std::underlying_type_t<T>, uint32_t>;

/// For arrays of other kinds: devices, files, messages.
template <TypedIndex Index>
constexpr uint32_t ToNumber(Index index) {
  return static_cast<uint32_t>(index);
}

/// All indices below a count, ascending: for (VertexHandle v : IndexRange<VertexHandle>(n)).
template <TypedIndex Index>
class IndexRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Index;
    using difference_type = std::ptrdiff_t;
    using pointer = const Index*;
    using reference = Index;

    constexpr explicit Iterator(size_t at) : at_(at) {}
    constexpr Index operator*() const { return static_cast<Index>(at_); }
    constexpr Iterator& operator++() {
      ++at_;
      return *this;
    }
    constexpr bool operator==(const Iterator&) const = default;

   private:
    size_t at_;
  };

  constexpr explicit IndexRange(size_t count) : count_(count) {}
  constexpr Iterator begin() const { return Iterator(0); }
  constexpr Iterator end() const { return Iterator(count_); }

 private:
  size_t count_;
};

/// A std::vector that takes indices of one kind only.
template <TypedIndex Index, typename T>
class IndexedVector {
 public:
  IndexedVector() = default;
  explicit IndexedVector(size_t count, const T& value = T()) : values_(count, value) {}
  IndexedVector(std::initializer_list<T> values) : values_(values) {}
  explicit IndexedVector(std::vector<T> values) : values_(std::move(values)) {}

  T& operator[](Index index) { return values_[ToNumber(index)]; }
  const T& operator[](Index index) const { return values_[ToNumber(index)]; }
  bool contains(Index index) const { return ToNumber(index) < values_.size(); }
  IndexRange<Index> indices() const { return IndexRange<Index>(values_.size()); }
  Index end_index() const { return static_cast<Index>(values_.size()); }  ///< that the next element will have

  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  auto begin() { return values_.begin(); }
  auto begin() const { return values_.begin(); }
  auto end() { return values_.end(); }
  auto end() const { return values_.end(); }
  T& back() { return values_.back(); }
  void push_back(T value) { values_.push_back(std::move(value)); }
  void pop_back() { values_.pop_back(); }
  void resize(size_t count, const T& value = T()) { values_.resize(count, value); }
  void assign(size_t count, const T& value) { values_.assign(count, value); }
  void clear() { values_.clear(); }

  /// Without its kind, in the same order.
  std::vector<T>& values() { return values_; }
  const std::vector<T>& values() const { return values_; }

  bool operator==(const IndexedVector&) const = default;

 private:
  std::vector<T> values_;
};

}  // namespace palpate
