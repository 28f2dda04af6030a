#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/scene.pb.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/description.h"

namespace palpate::scene {

/// What one scene may hold. Exceeding one is ResourceExhausted, with the name that ServerLimits gives it.
struct SceneLimits {
  uint32_t max_bodies_per_scene = 1024;
  uint64_t max_tets_per_scene = 2'000'000;
};

inline constexpr int kMaxTools = 8;           ///< per scene
inline constexpr int kMaxObstacles = 256;     ///< per scene
inline constexpr int kMaxCapsules = 32;       ///< per scene: tools, sphere and capsule obstacles together (the solver's limit)
inline constexpr int kMaxFixedRegions = 256;  ///< per body
inline constexpr int kMaxZones = 64;          ///< per body
inline constexpr int kMaxMeshGroups = 4096;   ///< with a name, per mesh
inline constexpr int kMaxLoads = 32;          ///< per scene
inline constexpr uint32_t kMaxCopies = 1024;  ///< of a body along one axis of its array
inline constexpr size_t kMaxNameBytes = 64;   ///< of bodies, obstacles and tools
inline constexpr size_t kMaxSceneNameBytes = 128;
inline constexpr double kMaxCoordinate_m = 100;              ///< of poses and obstacles
inline constexpr double kMaxSpeed_m_per_s = 100;             ///< of bodies and driven regions, per component
inline constexpr double kMaxPlacedCoordinate_m = 1000;       ///< of mesh vertices after scale and pose
inline constexpr uint32_t kMaxMeshGroupNumber = 0x7fffffff;  ///< of inline meshes; mesh files have signed numbers
inline constexpr double kMaxMeshCoordinate = 1e6;            ///< of inline mesh vertices and of boxes

/// Checks every field of a spec against the ranges of scene.proto without opening a file or making a mesh; cheap.
/// Errors: InvalidArgument `<field path>: <value> is outside <range>` (or what else is wrong with it), ResourceExhausted (limits).
absl::Status ValidateSceneSpec(const v1::SceneSpec& spec, const SceneLimits& limits);

/// Makes the description of a World: ValidateSceneSpec, then reads or generates the meshes, scales and places them, finds the fixed
/// vertices and applies every default. Seconds of work for large meshes. Deterministic. Errors: as ValidateSceneSpec; those of the mesh,
/// behind the field path; InvalidArgument when a region holds no vertex or tet, a vertex index is out of range or a body has no free
/// vertex; NotFound (mesh file).
absl::StatusOr<sim::SceneDescription> BuildSceneDescription(const v1::SceneSpec& spec, const AssetResolver& assets,
                                                            const SceneLimits& limits);

/// Reads the JSON form. Unknown field names are errors. `display_name` (a file name) goes in front of messages.
/// Errors: InvalidArgument (syntax, unknown field, wrong type).
absl::StatusOr<v1::SceneSpec> ParseSceneJson(std::string_view text, std::string_view display_name);

/// A copy without what the scene need not remember: the inline meshes and surfaces.
v1::SceneSpec WithoutInlineMeshes(const v1::SceneSpec& spec);

/// Checks a pose from outside: finite, each coordinate in [-100, 100], rotation not zero. An absent rotation or position is the identity.
/// Errors: InvalidArgument naming `path` and the component.
absl::StatusOr<sim::RigidPose> PoseFromProto(const v1::Pose& pose, std::string_view path);

}  // namespace palpate::scene
