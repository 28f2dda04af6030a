#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "absl/status/status.h"
#include "palpate/v1/scene.pb.h"
#include "palpate/v1/stream.pb.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"

namespace palpate::scene {

/// Checks the markers of a body against what scene.proto says of them, but for where they lie. `path`: of the body.
void CheckMarkers(Checker& check, const std::string& path, const v1::BodySpec& body);

/// How a point of the body at its own pose, in W, comes to a copy of the body: turned about the pose's origin, which itself moves.
struct MarkerMove {
  Eigen::Quaterniond turn = Eigen::Quaterniond::Identity();
  Eigen::Vector3d from_m{0, 0, 0};
  Eigen::Vector3d to_m{0, 0, 0};
};

/// Fills out->markers, placed in out->mesh. Preconditions: CheckMarkers passed, out->mesh is valid and placed. Errors: InvalidArgument
/// naming the field (a marker outside the body, with the distance).
absl::Status BuildMarkers(const v1::BodySpec& body, const std::string& path, const MarkerMove& move, sim::BodyDescription* out);

/// What streams say of the markers once, in the order of Frame::markers.
std::vector<v1::MarkerInfo> EncodeMarkerInfos(const sim::SceneDescription& description);

}  // namespace palpate::scene
