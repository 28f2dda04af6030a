#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/journal.pb.h"
#include "sim/scene/edit_request.h"
#include "sim/world/world.h"

namespace palpate::record {

/// Scenes of more bodies than this have no hashes of bodies in their journals.
inline constexpr size_t kMaxHashedBodies = 64;

/// Commands of a step, one for each tool; nothing: nobody operates it.
using ToolCommands = std::vector<std::optional<sim::ToolCommand>>;

/// What the pointers name now. `tools`: as World::Step takes them.
ToolCommands CopyCommands(std::span<const sim::ToolCommand* const> commands);

/// Adds the commands that there are. Every bit of a command comes back from DecodeCommands.
void EncodeCommands(const ToolCommands& commands, google::protobuf::RepeatedPtrField<v1::ToolInput>* out);

/// Errors: InvalidArgument naming `commands[i]` and its field: a tool that the scene does not have, a number that is not finite, a rotation
/// that is not a unit quaternion.
absl::StatusOr<ToolCommands> DecodeCommands(const google::protobuf::RepeatedPtrField<v1::ToolInput>& commands, size_t tool_count);

/// Of the bits of one body's surface positions.
uint32_t HashOfPositions(std::span<const float> positions_m);

/// The entry of a step. `late`: the commands that replaced those at the start; equal ones are left out.
v1::JournalStep EncodeStep(const ToolCommands& at_start, const ToolCommands& late, const sim::Frame& frame);

/// What a request may name in a world now.
scene::EditTargets EditTargetsOf(const sim::World& world);

}  // namespace palpate::record
