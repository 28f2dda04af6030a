#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/edit.pb.h"
#include "palpate/v1/stream.pb.h"
#include "sim/scene/edit.h"

namespace palpate::scene {

inline constexpr int kMaxEdits = 256;           ///< of a request
inline constexpr int kMaxBladeEdges = 1024;     ///< of an incision
inline constexpr int kMaxListedTets = 1 << 20;  ///< of a region
inline constexpr size_t kMaxEditKeyBytes = 64;
inline constexpr size_t kMaxBodyNameBytes = 256;  ///< a piece that was cut off has a longer name than its parent
inline constexpr double kMaxRegionRadius_m = 10;

/// Names of edit kinds for metrics, by the index of sim::Edit::what.
inline constexpr std::string_view kEditKindNames[] = {"carve", "refine", "incise", "material", "grasp", "release", "joint"};

/// What a scene's edits may name, by index.
struct EditTargets {
  std::vector<std::string> bodies;
  std::vector<std::string> tools;
  std::vector<std::vector<sim::ZoneMaterial>> materials;  ///< of each body, see sim::World::MaterialsOf
  std::vector<sim::JointDescription> joints = {};
};

/// Checks every field of a request against the ranges of edit.proto, without a scene. Errors: InvalidArgument `<field path>: <value> is
/// outside <range>` (or what else is wrong with it).
absl::Status ValidateEditRequest(const v1::EditSceneRequest& request);

/// Reads the JSON form. Unknown field names are errors. `display_name` (a file name) goes in front of messages.
/// Errors: InvalidArgument (syntax, unknown field, wrong type).
absl::StatusOr<v1::EditSceneRequest> ParseEditJson(std::string_view text, std::string_view display_name);

/// The edits for World::Apply, in order. Precondition: ValidateEditRequest passed. Errors: NotFound (body, tool, zone), InvalidArgument (a
/// material whose parts do not go together), naming the field.
absl::StatusOr<std::vector<sim::Edit>> BuildEdits(const v1::EditSceneRequest& request, EditTargets targets);

/// Fills `outcomes` of an answer. `edits` as performed; `bodies`: names after the edits; `markers`: those of the scene.
void EncodeOutcomes(std::span<const sim::Edit> edits, std::span<const sim::EditOutcome> outcomes, std::span<const std::string> bodies,
                    std::span<const v1::MarkerInfo> markers, v1::EditSceneResponse& out);

}  // namespace palpate::scene
