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

void Checker::Pose(std::string_view path, const v1::Pose& pose) {
  if (absl::StatusOr<sim::RigidPose> parsed = PoseFromProto(pose, path); !parsed.ok()) Fail(parsed.status());
}

}  // namespace palpate::scene
