#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "palpate/v1/scene.pb.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"

namespace palpate::scene {

inline constexpr double kMaxJawAngle_rad = 3;  ///< of an instrument
inline constexpr double kMaxPower_w = 1000;    ///< of an instrument

/// Checks every field of a tool, its instrument and its trocar against the ranges of scene.proto.
void CheckToolSpec(Checker& check, const std::string& path, const v1::ToolSpec& tool);

/// Capsules that a tool takes of a scene's kMaxCapsules. Precondition: CheckToolSpec passed.
int CapsuleCount(const v1::ToolSpec& tool);

/// Applies every default. Precondition: CheckToolSpec passed. Errors: those of PoseFromProto.
absl::StatusOr<sim::ToolDescription> BuildToolDescription(const v1::ToolSpec& tool, const std::string& path);

/// Of sim::InstrumentKind.
v1::InstrumentKind EncodeInstrumentKind(sim::InstrumentKind kind);
void EncodeInstrumentTraits(const sim::InstrumentTraits& traits, v1::InstrumentTraits& out);

}  // namespace palpate::scene
