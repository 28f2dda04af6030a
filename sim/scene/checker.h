#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <Eigen/Core>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "palpate/v1/scene.pb.h"

namespace palpate::scene {

inline absl::string_view View(std::string_view s) { return {s.data(), s.size()}; }

/// Paths of fields for messages.
inline std::string At(std::string_view path, std::string_view field) { return absl::StrCat(View(path), ".", View(field)); }
inline std::string At(std::string_view path, int index) { return absl::StrCat(View(path), "[", index, "]"); }

inline Eigen::Vector3d ToEigen(const v1::Vec3& v) { return {v.x(), v.y(), v.z()}; }

/// The unit vector along `v`, for every finite v != 0 (no overflow or underflow).
inline Eigen::Vector3d Direction(const Eigen::Vector3d& v) { return (v / v.cwiseAbs().maxCoeff()).normalized(); }

inline constexpr int kMaxTimes = 1024;  ///< of a motion, of the wind

/// Collects the first error of a series of checks of a request from outside.
class Checker {
 public:
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  void Invalid(std::string_view path, std::string_view what) {
    Fail(absl::InvalidArgumentError(absl::StrCat(View(path), ": ", View(what))));
  }

  // The comparisons are written so that NaN fails them.
  void Range(std::string_view path, double value, double low, double high) {
    if (!(value >= low && value <= high)) Invalid(path, absl::StrCat(value, " is outside [", low, ", ", high, "]"));
  }
  void RangeAbove(std::string_view path, double value, double low, double high) {
    if (!(value > low && value <= high)) Invalid(path, absl::StrCat(value, " is outside (", low, ", ", high, "]"));
  }
  void RangeInside(std::string_view path, double value, double low, double high) {
    if (!(value > low && value < high)) Invalid(path, absl::StrCat(value, " is outside (", low, ", ", high, ")"));
  }
  void RangeVec(std::string_view path, const v1::Vec3& v, double low, double high) {
    Range(At(path, "x"), v.x(), low, high);
    Range(At(path, "y"), v.y(), low, high);
    Range(At(path, "z"), v.z(), low, high);
  }
  void Finite(std::string_view path, double value) {
    if (!std::isfinite(value)) Invalid(path, absl::StrCat(value, " is not finite"));
  }
  void Count(std::string_view path, int64_t count, int64_t low, int64_t high) {
    if (count < low || count > high) Invalid(path, absl::StrCat(count, " entries are outside [", low, ", ", high, "]"));
  }
  void Name(std::string_view path, const std::string& name, size_t max_bytes);
  /// Not empty, and as Name.
  void RequiredName(std::string_view path, const std::string& name, size_t max_bytes);
  void Unique(std::string_view path, const std::string& name, std::unordered_set<std::string>& seen) {
    if (!seen.insert(name).second) Invalid(path, absl::StrCat("\"", name, "\" is used twice"));
  }
  /// Times of a list of values, which has as many: from 1 to kMaxTimes of them in [0, 1e9], ascending.
  void Times(std::string_view path, std::string_view times_name, const google::protobuf::RepeatedField<double>& times,
             std::string_view values_name, int value_count);
  void Pose(std::string_view path, const v1::Pose& pose);

 private:
  absl::Status status_;
};

}  // namespace palpate::scene
