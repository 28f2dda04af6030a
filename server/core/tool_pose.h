#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "palpate/v1/haptics.pb.h"
#include "sim/scene/description.h"
#include "sim/world/world.h"

namespace palpate::server {

/// What a pose from outside asks of a tool. Jaw angle and power beyond this instrument, though not beyond all instruments, are as far as it
/// goes. The stiffness limit is left at none. Errors: InvalidArgument naming `path` and the field.
absl::StatusOr<sim::ToolCommand> ToolCommandFromProto(const v1::ToolPose& pose, const sim::ToolDescription& tool, std::string_view path);

}  // namespace palpate::server
