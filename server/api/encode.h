#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"
#include "palpate/v1/control.pb.h"
#include "palpate/v1/haptics.pb.h"
#include "palpate/v1/stream.pb.h"
#include "server/api/topology.h"
#include "sim/haptics/local_model.h"
#include "sim/scene/description.h"
#include "sim/world/frame.h"

namespace palpate::server {

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
  bool with_nurbs = false;
  /// Names of the bodies whose contacts are wanted, with all pieces that are cut off from them; empty = all.
  std::unordered_set<std::string> contact_bodies;
};

/// Checks and translates the content part of a WatchRequest for a scene. Errors: InvalidArgument (unknown encoding, max_rate_hz outside
/// [0.1, 10000], too many contact_bodies), NotFound (no body of a name in contact_bodies).
absl::StatusOr<FrameOptions> FrameOptionsFromProto(const v1::WatchRequest& request, const SceneTopology& topology);
double MaxRateFromProto(const v1::WatchRequest& request);

/// Whether the frame carries the positions of all vertices of every body.
bool HasVolume(const sim::Frame& frame);

/// Appends nothing, overwrites `out`. With with_volume, bodies carry the positions of all vertices (precondition: the frame has them), and
/// contacts name their vertices among these. With with_nurbs, bodies with an exact surface carry their pose instead. `topology`: of the
/// frame's version.
void EncodeFrame(const sim::Frame& frame, const SceneTopology& topology, const FrameStatus& status, const FrameOptions& options,
                 uint64_t dropped, v1::Frame& out);

/// Positions, [count * 3] finite floats in W, as BodyFrame. UINT16: each coordinate c is rounded to origin + value * scale with the scale
/// (max - min) / 65535 of its axis, so that decoding in double precision is off by at most max_error_m = max_axis(scale) / 2 (1 + 1e-9)
/// plus rounding of the doubles. `places`: one per position, sim::kNoSlot = nobody uses it: the bounds leave it out, and what it decodes to
/// is unspecified; empty: all are used.
void EncodePositions(std::span<const float> positions_m, v1::PositionEncoding encoding, v1::BodyFrame& out,
                     std::span<const uint32_t> places = {});

/// The message of one local model, with what its tool did in the same step. Overwrites `out`.
void EncodeLocalModel(const sim::LocalModel& model, const sim::FrameTool& tool, v1::LocalModel& out);

/// Size, kind and limits of a tool: what a station must know to operate it. Leaves index, step length and pose of `out` as they are.
void EncodeAttached(const sim::ToolDescription& tool, v1::Attached& out);

/// What streams say of a tool once.
v1::ToolShape EncodeToolShape(const sim::ToolDescription& tool);

void EncodePose(const sim::RigidPose& pose, v1::Pose& out);
void EncodeVec3(const Eigen::Vector3d& v, v1::Vec3& out);

}  // namespace palpate::server
