#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "gpu/shared/joint_types.h"

namespace palpate::gpu {

/// What acts on a coordinate of a joint inside its limits.
enum class JointDrive : uint32_t {
  kFree = PALPATE_ROW_FREE,
  kLocked = PALPATE_ROW_LOCKED,  ///< it is at the target, whatever that takes
  kSpring = PALPATE_ROW_SPRING,  ///< stiffness (q - target) + damping dq/dt draws it back
  kMotor = PALPATE_ROW_MOTOR,    ///< it moves at the speed, as far as max_effort is enough; with speed 0 that is dry friction
};

/// One coordinate q of a joint: m, N, N/m along, rad, N m, N m/rad about.
struct RigidJointRow {
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  JointDrive drive = JointDrive::kFree;
  double target = 0;
  double speed = 0;
  double stiffness = 0;       ///< >= 0
  double damping = 0;         ///< >= 0
  double max_effort = kNone;  ///< >= 0
  double lower = -kNone;      ///< limits, of a coordinate that is not locked; lower <= upper
  double upper = kNone;
  friend bool operator==(const RigidJointRow&, const RigidJointRow&) = default;

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [kind, to, at_speed, k, d, most, from, upto] = *this;
    archive(kind, to, at_speed, k, d, most, from, upto);
  }
};

/// What holds two bodies to each other, or one to the world. A and B each have a point; both share a frame F at the start. Coordinates:
/// 0 to 2: the point of B from that of A along the axes of F that A carries, or 0 alone: the distance of the two; 3 to 5: what `about`
/// says.
struct RigidJoint {
  static constexpr uint32_t kWorld = PALPATE_JOINT_WORLD;
  enum class Along : uint32_t { kAxes = PALPATE_JOINT_AXES, kDistance = PALPATE_JOINT_DISTANCE };
  enum class About : uint32_t {
    kNothing = PALPATE_JOINT_NO_TURN,
    kTwist = PALPATE_JOINT_TWIST,  ///< 3, 4: z of B from z of A, about x and y; 5: the twist about it, in any number of turns
    kTurn = PALPATE_JOINT_TURN,    ///< the rotation vector from A to B along the axes of A, at most pi long
  };
  /// Rigid bodies, then joint sets, then mounts (JointFrames). Not the same, and one moves: it is neither the world nor a mount.
  uint32_t body_a = kWorld, body_b = kWorld;
  std::array<double, 3> point_a_m{}, point_b_m{};  ///< in W, where the bodies are at the start
  std::array<double, 4> frame{0, 0, 0, 1};         ///< of F in W: x y z w, unit
  Along along = Along::kAxes;
  About about = About::kNothing;
  std::array<RigidJointRow, 6> rows{};
  bool ignores_contact = false;  ///< the surfaces of the two bodies do not meet, whatever the rows are by now; not with the world

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [a, b, point_a, point_b, at, shifts, turns, coordinates, apart] = *this;
    archive(a, b, point_a, point_b, at, shifts, turns, coordinates, apart);
  }
};

}  // namespace palpate::gpu
