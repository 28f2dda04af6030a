#pragma once

#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "palpate/v1/edit.pb.h"
#include "palpate/v1/scene.pb.h"
#include "palpate/v1/stream.pb.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"
#include "sim/scene/edit.h"

namespace palpate::scene {

/// Checks a scene's joints against what scene.proto says of them, but for the bodies that they name.
void CheckJoints(Checker& check, const v1::SceneSpec& spec);

/// Fills out->joints. Preconditions: CheckJoints passed, out->bodies and out->tools are there. Errors: InvalidArgument naming the field (a
/// body that is missing or that joints cannot hold, a region without vertices).
absl::Status BuildJoints(const v1::SceneSpec& spec, sim::SceneDescription* out);

/// The change of an edit by itself: ranges, and that one is given. `path`: of the JointEdit.
void CheckJointEdit(Checker& check, const std::string& path, const v1::JointEdit& edit);

/// Precondition: CheckJointEdit passed. Errors: InvalidArgument naming the field (a change that is none of the joint's kind), NotFound.
absl::StatusOr<sim::JointEdit> BuildJointEdit(const v1::JointEdit& edit, const std::string& path,
                                              std::span<const sim::JointDescription> joints);

/// What streams say of joints once, in the order of Frame::joints.
std::vector<v1::JointInfo> EncodeJointInfos(const sim::SceneDescription& description);

}  // namespace palpate::scene
