#include "sim/scene/checker.h"

#include "sim/scene/scene_spec.h"

namespace palpate::scene {

void Checker::Name(std::string_view path, const std::string& name, size_t max_bytes) {
  if (name.size() > max_bytes) Invalid(path, absl::StrCat(name.size(), " bytes are outside [0, ", max_bytes, "]"));
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      Invalid(path, absl::StrCat("holds the control character ", static_cast<int>(static_cast<unsigned char>(c))));
      return;
    }
  }
}

void Checker::RequiredName(std::string_view path, const std::string& name, size_t max_bytes) {
  if (name.empty()) Invalid(path, "is empty");
  Name(path, name, max_bytes);
}

void Checker::Times(std::string_view path, std::string_view times_name, const google::protobuf::RepeatedField<double>& times,
                    std::string_view values_name, int value_count) {
  const std::string list = At(path, times_name);
  Count(list, times.size(), 1, kMaxTimes);
  if (value_count != times.size()) Invalid(At(path, values_name), absl::StrCat(value_count, " entries for ", times.size(), " times"));
  for (int i = 0; i < times.size() && ok(); ++i) {
    Range(At(list, i), times[i], 0, 1e9);
    if (i > 0 && !(times[i] > times[i - 1])) Invalid(At(list, i), absl::StrCat(times[i], " is not after ", times[i - 1]));
  }
}

void Checker::Pose(std::string_view path, const v1::Pose& pose) {
  if (absl::StatusOr<sim::RigidPose> parsed = PoseFromProto(pose, path); !parsed.ok()) Fail(parsed.status());
}

}  // namespace palpate::scene
