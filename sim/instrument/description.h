#pragma once

#include <Eigen/Core>

namespace palpate::sim {

enum class InstrumentKind { kProbe, kForceps, kScalpel, kCauteryHook, kCavitron, kClipApplier };

/// What is at the end of a tool; ranges and meaning as in proto/palpate/v1/scene.proto.
struct InstrumentDescription {
  InstrumentKind kind = InstrumentKind::kProbe;
  double jaw_length_m = 0.02;
  double jaw_radius_m = 0.0015;
  double max_jaw_angle_rad = 1.0;
  double max_grasp_force_n = 10;
  double blade_length_m = 0.01;
  double max_power_w = 60;
  double reach_m = 0.003;
  double refine_to_m = 0;  ///< 0: tissue is taken as it is meshed
};

/// A fixed point that the shaft passes through.
struct TrocarDescription {
  Eigen::Vector3d pivot_m{0, 0, 0};
  Eigen::Vector3d axis{0, 0, -1};  ///< unit, inwards
  double min_insertion_m = 0;
  double max_insertion_m = 0.1;
  double max_tilt_rad = 1.2;
};

inline bool HasJaws(InstrumentKind kind) { return kind == InstrumentKind::kForceps || kind == InstrumentKind::kClipApplier; }
inline bool HasPower(InstrumentKind kind) { return kind == InstrumentKind::kCauteryHook || kind == InstrumentKind::kCavitron; }

}  // namespace palpate::sim
