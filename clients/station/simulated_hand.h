#pragma once

#include <memory>
#include <string>

#include <Eigen/Core>

#include "clients/station/haptic_device.h"

namespace palpate::station {

enum class HandScript {
  kPalpate,  ///< find the surface, press, hold, lift, move to the next of a ring of spots, again and again
  kSweep,    ///< find the surface, press, slide to both sides under pressure, lift
  kPoke,     ///< find the surface, then press and release in a sine on the spot
  kGrasp,    ///< go down with the grip open until `travel` or `max_force`, close, pull up by `clearance`, hold, open, lift, again
};

/// Buttons of a simulated hand, as bits of DeviceState.buttons.
inline constexpr int kHandPedalButton = 0;   ///< with `pedal=push`, down while the hand pushes; while it holds what it grasped
inline constexpr int kHandClosedButton = 1;  ///< of script `grasp`: down while the hand is closed

struct HandOptions {
  HandScript script = HandScript::kPalpate;
  DeviceCapabilities capabilities;  ///< key profile=NAME; default omega.3
  // Hand and forearm holding a light device: magnitudes of Hajian and Howe 1997 (fingers) to Speich et al. 2005 (arm).
  double mass_kg = 0.3;            ///< key mass, [0.01, 20]
  double stiffness_n_per_m = 400;  ///< key stiffness, [1, 1e5]
  double damping_n_s_per_m = 12;   ///< key damping, [0, 1e4]
  double depth_m = 0.015;          ///< key depth: how far a push goes below the surface that was felt, [0.0005, 0.1]
  double speed_m_per_s = 0.04;     ///< key speed, [0.001, 1]
  double dwell_s = 0.6;            ///< key dwell: how long a push is held, [0, 60]
  int spots = 5;                   ///< key spots, [1, 64]
  double spacing_m = 0.02;         ///< key spacing: radius of the ring of spots, or half of a sweep, [0, 0.2]
  double travel_m = 0.15;          ///< key travel: how far down the surface is looked for, [0.001, 1]
  double clearance_m = 0.01;       ///< key clearance: how far the hand lifts off between pushes, [0, 0.2]
  double max_force_n = 4;          ///< key max_force: a push ends when the hand feels this, [0.1, 50]
  double poke_rate_hz = 0.5;       ///< key rate: of the sine of `poke`, [0.01, 10]
  bool uses_pedal = false;         ///< key pedal=none|push
};

/// Parses "script=palpate,depth=0.01,...". Errors: InvalidArgument naming key, value and range.
absl::StatusOr<HandOptions> ParseHandOptions(const std::string& text);

/// A hand: a mass on a spring and damper (arm and muscles) that pull it along a scripted path, and on which the rendered force acts, so
/// that tissue really pushes it back and a push gets as deep as the balance of forces allows. Motion starts at the origin of D, where it
/// rests until engaged; down is -z.
///
/// m x'' = K (x_ref - x) + B (x_ref' - x') + F, integrated inside Read with implicit Euler in steps of at most 1 ms (stable for any K, B).
/// Deterministic.
class SimulatedHand final : public HapticDevice {
 public:
  explicit SimulatedHand(const HandOptions& options) : options_(options) {}

  const DeviceCapabilities& capabilities() const override { return options_.capabilities; }
  DeviceResult Read(double now_s, DeviceState* state) noexcept override;
  DeviceResult Write(const DeviceForce& force) noexcept override;
  void SetEngaged(bool engaged) noexcept override;

  const Eigen::Vector3d& reference_m() const { return reference_m_; }  ///< where the arm wants the hand, in D
  int pushes() const { return pushes_; }                               ///< pushes and grasps that were held to their end

 private:
  enum class Phase { kRest, kTravel, kDescend, kPress, kDwell, kSlide, kPoke, kClose, kPull, kHold, kOpen, kLift };

  void Advance(double dt_s) noexcept;
  void AdvanceScript(double dt_s) noexcept;
  void Enter(Phase phase) noexcept;
  /// A push, or a grasp, was held to its end.
  void EndPush(Phase next) noexcept;
  // A step of the phase that bears the name.
  void Travel(double dt_s) noexcept;
  void Descend(double dt_s) noexcept;
  void Press(double dt_s) noexcept;
  void Dwell() noexcept;
  void Slide(double dt_s) noexcept;
  void Poke() noexcept;
  void Lift(double dt_s) noexcept;
  /// Moves the reference towards a point at the script's speed. True when it has arrived.
  bool MoveReference(const Eigen::Vector3d& goal_m, double dt_s) noexcept;
  Eigen::Vector3d SpotOffset() const noexcept;
  bool IsPedalDown() const noexcept;
  bool IsClosed() const noexcept { return phase_ == Phase::kClose || phase_ == Phase::kPull || phase_ == Phase::kHold; }
  double felt_n() const noexcept { return force_n_.z(); }  // tissue below pushes up

  HandOptions options_;
  bool engaged_ = false;
  bool has_time_ = false;
  double last_s_ = 0;
  Eigen::Vector3d position_m_ = Eigen::Vector3d::Zero();
  Eigen::Vector3d velocity_m_per_s_ = Eigen::Vector3d::Zero();
  Eigen::Vector3d force_n_ = Eigen::Vector3d::Zero();
  Eigen::Vector3d reference_m_ = Eigen::Vector3d::Zero();
  Eigen::Vector3d reference_velocity_m_per_s_ = Eigen::Vector3d::Zero();
  Phase phase_ = Phase::kRest;
  double phase_s_ = 0;
  double felt_s_ = 0;
  double grip_ = 1;
  double surface_z_m_ = 0;
  double lift_z_m_ = 0;
  double start_z_m_ = 0;
  Eigen::Vector3d held_m_ = Eigen::Vector3d::Zero();
  int slide_leg_ = 0;
  int spot_ = 0;
  int pushes_ = 0;
};

}  // namespace palpate::station
