#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "palpate/v1/control.pb.h"
#include "palpate/v1/haptics.pb.h"
#include "palpate/v1/stream.pb.h"
#include "sim/haptics/local_model.h"
#include "sim/world/frame.h"
#include "sim/world/scene_description.h"

namespace palpate::server {

/// What a scene is made of, as streams need it; immutable, one per topology version, shared by all readers.
struct SceneTopology {
  uint64_t version = 1;
  std::vector<v1::BodyTopology> surface_bodies;  ///< indices refer to surface positions
  std::vector<v1::BodyTopology> volume_bodies;   ///< triangles and tets refer to the positions of all vertices
  std::vector<v1::ToolShape> tools;
  std::vector<v1::ObstacleSpec> obstacles;
  v1::Vec3 gravity_m_per_s2;
  std::vector<std::vector<uint32_t>> surface_vertices;  ///< per body: places of the surface's positions among those of all vertices
  bool checks_intersections = false;
};

/// `surfaces`: one per body, as World::surfaces gives them.
std::shared_ptr<const SceneTopology> BuildTopology(const sim::SceneDescription& description, std::span<const sim::BoundarySurface> surfaces,
                                                   uint64_t version);

/// What a frame message says beyond the sim::Frame.
struct FrameStatus {
  v1::RunState state = v1::RUN_STATE_PAUSED;
  std::string failure;
  double steps_per_s = 0;
  uint64_t overruns = 0;
  std::vector<bool> operated;  ///< per tool
};

/// What one reader asked for.
struct FrameOptions {
  v1::PositionEncoding positions = v1::POSITION_ENCODING_FLOAT32;
  bool with_contacts = true;
  bool with_tools = true;
  bool with_volume = false;
  std::vector<bool> contact_bodies;  ///< per body, whether its contacts are wanted; empty = all
};

/// Checks and translates the content part of a WatchRequest for a scene. Errors: InvalidArgument (unknown encoding, max_rate_hz outside
/// [0.1, 10000], too many contact_bodies), NotFound (no body of a name in contact_bodies).
absl::StatusOr<FrameOptions> FrameOptionsFromProto(const v1::WatchRequest& request, const SceneTopology& topology);
double MaxRateFromProto(const v1::WatchRequest& request);

/// Whether the frame carries the positions of all vertices of every body.
bool HasVolume(const sim::Frame& frame);

/// Appends nothing, overwrites `out`. With with_volume, bodies carry the positions of all vertices (precondition: the frame has them), and
/// contacts name their vertices among these. `topology`: of the frame's version.
void EncodeFrame(const sim::Frame& frame, const SceneTopology& topology, const FrameStatus& status, const FrameOptions& options,
                 uint64_t dropped, v1::Frame& out);

/// Fills a keyframe except for `scene` and `frame`.
void EncodeTopology(const SceneTopology& topology, bool with_volume, v1::Keyframe& out);

/// Positions, [count * 3] finite floats in W, as BodyFrame. UINT16: each coordinate c is rounded to origin + value * scale with the scale
/// (max - min) / 65535 of its axis, so that decoding in double precision is off by at most max_error_m = max_axis(scale) / 2 (1 + 1e-9)
/// plus rounding of the doubles.
void EncodePositions(std::span<const float> positions_m, v1::PositionEncoding encoding, v1::BodyFrame& out);

/// The message of one local model.
void EncodeLocalModel(const sim::LocalModel& model, v1::LocalModel& out);

void EncodePose(const sim::RigidPose& pose, v1::Pose& out);
void EncodeVec3(const Eigen::Vector3d& v, v1::Vec3& out);

}  // namespace palpate::server
