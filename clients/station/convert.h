#pragma once

#include "absl/status/status.h"
#include "clients/station/haptic_loop.h"
#include "palpate/v1/haptics.pb.h"
#include "sim/haptics/local_model.h"

namespace palpate::station {

/// Checks a model from the wire and fills `model`. Errors: InvalidArgument naming the field, its value and what is allowed: more than
/// kMaxLocalConstraints constraints, a number that is not finite, a zero rotation or normal, a negative stiffness, friction, damping, blend
/// time or radius, a negative value of what the tool does (which `model` does not hold; see ToolLog). On error `model` is unspecified.
absl::Status FromProto(const v1::LocalModel& message, sim::LocalModel* model);

/// A pose from the wire; absent parts are zero and identity. Errors: InvalidArgument (not finite, zero quaternion), naming `field`.
absl::Status FromProto(const v1::Pose& message, const char* field, sim::RigidPose* pose);

void ToProto(const PoseSample& sample, v1::ToolPose* message);

}  // namespace palpate::station
