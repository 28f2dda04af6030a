#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "gpu/base/indexed_vector.h"
#include "gpu/base/status.h"

namespace palpate {

// State of classes as bytes and back. A class says once what its state is,
//
//   template <typename Archive>
//   void VisitState(Archive& archive) {
//     auto& [a, b, scratch] = *this;
//     archive.Enter("ClassName");
//     archive(a, b);
//   }
//
// and StateWriter and StateReader both go through it, so that the two directions cannot drift apart. The structured binding names every
// member: whoever adds one must say here whether it is state, or the class does not compile. Plain structs have a free function
// VisitState(archive, value) beside them. Little-endian, without padding: the same state gives the same bytes.

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian, and so must be the machine");

/// Types whose bytes in memory are all value bytes, so that arrays of them are copied as they are. Structs without padding may be added.
template <typename T>
inline constexpr bool kIsPacked = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) || std::is_enum_v<T>;
template <typename T, size_t N>
inline constexpr bool kIsPacked<std::array<T, N>> = kIsPacked<T>;

/// Castagnoli's CRC of bytes; `crc` goes on with an earlier one.
uint32_t Crc32c(std::string_view bytes, uint32_t crc = 0);

/// Tag of a name in the bytes.
constexpr uint32_t StateTag(std::string_view name) {
  uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

namespace internal {

template <typename T>
concept EigenFixed = requires(T& m) {
  m.data();
  { T::SizeAtCompileTime } -> std::convertible_to<int>;
}
&&(T::SizeAtCompileTime > 0);
template <typename T>
concept EigenDynamic = requires(T& m) {
  m.data();
  { T::SizeAtCompileTime } -> std::convertible_to<int>;
}
&&(T::SizeAtCompileTime < 0);
template <typename T>
concept EigenQuaternion = requires(T& q) {
  q.coeffs().data();
  q.conjugate();
};
template <typename T>
concept HasMember = requires(T& value, int& archive) {
  value.template VisitState<int>(archive);
};

/// What both archives do with a value that is made of others.
template <typename Archive, typename T>
struct Visit {
  static void Do(Archive& archive, T& value) {
    if constexpr (kIsPacked<T>) {
      archive.Bytes(&value, sizeof(T));
    } else if constexpr (std::is_same_v<T, bool>) {
      archive.Bool(value);
    } else if constexpr (EigenFixed<T>) {
      archive.Bytes(value.data(), sizeof(*value.data()) * static_cast<size_t>(T::SizeAtCompileTime));
    } else if constexpr (EigenDynamic<T>) {
      archive.Matrix(value);
    } else if constexpr (EigenQuaternion<T>) {
      archive.Bytes(value.coeffs().data(), sizeof(*value.coeffs().data()) * 4);
    } else if constexpr (HasMember<T>) {
      value.VisitState(archive);
    } else {
      VisitState(archive, value);
    }
  }
};
template <typename Archive>
struct Visit<Archive, std::string> {
  static void Do(Archive& archive, std::string& value) { archive.Array(value); }
};
template <typename Archive, typename T>
struct Visit<Archive, std::vector<T>> {
  static void Do(Archive& archive, std::vector<T>& value) { archive.Array(value); }
};
template <typename Archive, TypedIndex Index, typename T>
struct Visit<Archive, IndexedVector<Index, T>> {
  static void Do(Archive& archive, IndexedVector<Index, T>& value) { archive.Array(value.values()); }
};
template <typename Archive, typename T, size_t N>
requires(!kIsPacked<std::array<T, N>>) struct Visit<Archive, std::array<T, N>> {
  static void Do(Archive& archive, std::array<T, N>& value) {
    for (T& element : value) archive(element);
  }
};
template <typename Archive, typename A, typename B>
struct Visit<Archive, std::pair<A, B>> {
  static void Do(Archive& archive, std::pair<A, B>& value) { archive(value.first, value.second); }
};
template <typename Archive, typename T>
struct Visit<Archive, std::optional<T>> {
  static void Do(Archive& archive, std::optional<T>& value) { archive.Optional(value); }
};
template <typename Archive, typename K, typename V>
struct Visit<Archive, absl::flat_hash_map<K, V>> {
  static void Do(Archive& archive, absl::flat_hash_map<K, V>& value) { archive.Map(value); }
};
template <typename Archive, typename K>
struct Visit<Archive, absl::flat_hash_set<K>> {
  static void Do(Archive& archive, absl::flat_hash_set<K>& value) { archive.Set(value); }
};

}  // namespace internal

/// Appends state to a string. Never fails.
class StateWriter {
 public:
  static constexpr bool kIsReader = false;

  /// Values of any of the types that internal::Visit knows. They are not changed.
  template <typename... T>
  void operator()(const T&... values) {
    // One function goes through a class in both directions, so it takes references that a reader may write to.
    (internal::Visit<StateWriter, T>::Do(*this, const_cast<T&>(values)), ...);
  }
  /// What follows belongs to `name`; a reader finds it there or fails with that name.
  void Enter(std::string_view name) { (*this)(StateTag(name)); }
  void Check(bool, std::string_view) {}
  bool ok() const { return true; }

  void Bytes(const void* data, size_t size) { out_.append(static_cast<const char*>(data), size); }
  void Bool(bool value) { out_.push_back(value ? 1 : 0); }
  template <typename T>
  void Array(const T& value) {
    (*this)(static_cast<uint64_t>(value.size()));
    if constexpr (kIsPacked<typename T::value_type>) {
      if (!value.empty()) Bytes(value.data(), value.size() * sizeof(typename T::value_type));
    } else {
      for (const auto& element : value) (*this)(element);
    }
  }
  template <typename T>
  void Optional(const std::optional<T>& value) {
    Bool(value.has_value());
    if (value) (*this)(*value);
  }
  template <typename T>
  void Matrix(const T& value) {
    (*this)(static_cast<uint64_t>(value.rows()), static_cast<uint64_t>(value.cols()));
    Bytes(value.data(), sizeof(*value.data()) * static_cast<size_t>(value.size()));
  }
  /// By ascending keys, whatever their order in memory.
  template <typename T>
  void Map(const T& value) {
    std::vector<typename T::key_type> keys;
    for (const auto& entry : value) keys.push_back(entry.first);
    std::sort(keys.begin(), keys.end());
    (*this)(static_cast<uint64_t>(keys.size()));
    for (const auto& key : keys) (*this)(key, value.at(key));
  }
  template <typename T>
  void Set(const T& value) {
    std::vector<typename T::key_type> keys(value.begin(), value.end());
    std::sort(keys.begin(), keys.end());
    Array(keys);
  }

  void Reserve(size_t size_bytes) { out_.reserve(size_bytes); }
  std::string_view bytes() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

/// Reads what StateWriter wrote. Bytes may be anything: sizes are checked against what is left before memory is taken, so that a reader
/// takes at most a small multiple of what it is given. After the first error all reads give zeros, or leave values as they are, and ok()
/// is false. What numbers mean is for the caller to check.
class StateReader {
 public:
  static constexpr bool kIsReader = true;

  /// `bytes` must outlive this; `what` begins the messages.
  StateReader(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  template <typename... T>
  void operator()(T&... values) {
    (internal::Visit<StateReader, T>::Do(*this, values), ...);
  }
  void Enter(std::string_view name) {
    uint32_t tag = 0;
    (*this)(tag);
    if (tag != StateTag(name)) Fail(absl::StrCat("does not begin ", absl::string_view(name.data(), name.size())));
    if (ok()) where_ = name;
  }
  /// Fails unless `is_valid`; `what` says what is wrong otherwise.
  void Check(bool is_valid, std::string_view what) {
    if (!is_valid) Fail(absl::string_view(what.data(), what.size()));
  }
  /// A failed check inside a class that was read, or the error of this.
  void Check(const absl::Status& status) {
    if (!status.ok()) Fail(status.message());
  }

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  /// OK if nothing failed and nothing is left.
  absl::Status Finish() {
    if (ok() && at_ != bytes_.size()) Fail(absl::StrCat(bytes_.size() - at_, " bytes are left"));
    return status_;
  }

  void Bytes(void* data, size_t size) {
    if (!Has(size)) return;
    std::memcpy(data, bytes_.data() + at_, size);
    at_ += size;
  }
  void Bool(bool& value) {
    uint8_t byte = 0;
    Bytes(&byte, 1);
    if (byte > 1) Fail(absl::StrCat("a flag is ", int{byte}));
    if (ok()) value = byte == 1;
  }
  template <typename T>
  void Array(T& value) {
    using Element = typename T::value_type;
    value.clear();
    const uint64_t count = Count(kIsPacked<Element> ? sizeof(Element) : 1);
    if constexpr (kIsPacked<Element>) {
      value.resize(count);
      if (count > 0) Bytes(value.data(), count * sizeof(Element));
    } else {
      // Grows with what is really there: an element may be larger in memory than in the bytes.
      for (uint64_t i = 0; i < count && ok(); ++i) (*this)(value.emplace_back());
    }
  }
  template <typename T>
  void Optional(std::optional<T>& value) {
    bool has_value = false;
    Bool(has_value);
    value.reset();
    if (has_value && ok()) (*this)(value.emplace());
  }
  template <typename T>
  void Matrix(T& value) {
    using Scalar = std::remove_reference_t<decltype(*value.data())>;
    uint64_t rows = 0;
    uint64_t cols = 0;
    (*this)(rows, cols);
    const uint64_t left = (bytes_.size() - at_) / sizeof(Scalar);
    if (rows > left || cols > left || (rows > 0 && cols > left / rows)) {
      Fail(absl::StrCat("a matrix of ", rows, " x ", cols, " is longer than what is left"));
    }
    if (!ok()) return;
    value.resize(static_cast<decltype(value.rows())>(rows), static_cast<decltype(value.cols())>(cols));
    Bytes(value.data(), sizeof(Scalar) * static_cast<size_t>(value.size()));
  }
  template <typename T>
  void Map(T& value) {
    value.clear();
    const uint64_t count = Count(1);
    for (uint64_t i = 0; i < count && ok(); ++i) {
      std::pair<typename T::key_type, typename T::mapped_type> entry;
      (*this)(entry.first, entry.second);
      if (ok() && !value.insert(std::move(entry)).second) Fail("a key is there twice");
    }
  }
  template <typename T>
  void Set(T& value) {
    std::vector<typename T::key_type> keys;
    Array(keys);
    value.clear();
    value.insert(keys.begin(), keys.end());
    if (value.size() != keys.size()) Fail("a key is there twice");
  }

 private:
  void Fail(absl::string_view what);
  bool Has(size_t size) {
    if (ok() && size > bytes_.size() - at_) Fail(absl::StrCat("ends ", size - (bytes_.size() - at_), " bytes early"));
    return ok();
  }
  /// Of elements that take at least `least` bytes each; 0 after an error.
  uint64_t Count(size_t least) {
    uint64_t count = 0;
    (*this)(count);
    if (ok() && count > (bytes_.size() - at_) / least) Fail(absl::StrCat(count, " elements are more than what is left can hold"));
    return ok() ? count : 0;
  }

  std::string_view bytes_;
  std::string what_;
  std::string where_;
  size_t at_ = 0;
  absl::Status status_;
};

}  // namespace palpate
