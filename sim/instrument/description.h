#pragma once

#include <array>
#include <cstddef>

#include <Eigen/Core>

namespace palpate::sim {

/// In the order of kInstrumentTraits and of InstrumentKind in proto/palpate/v1/scene.proto, which begins at 1.
enum class InstrumentKind { kProbe, kForceps, kScalpel, kCauteryHook, kCavitron, kClipApplier };

/// What an instrument can do. Everything that treats kinds differently asks this; a new kind is a value above and a row below.
struct InstrumentTraits {
  const char* plural;         ///< for messages
  bool has_jaws = false;      ///< two that open and close, and hold what is between them
  bool has_blade = false;     ///< along +x of T from the tip: cuts where it is moved along
  bool has_power = false;     ///< removes tissue at the tip while the pedal is down
  bool leaves_clips = false;  ///< with the pedal, on what the jaws hold
};
inline constexpr std::array<InstrumentTraits, 6> kInstrumentTraits = {{
    {.plural = "probes"},
    {.plural = "forceps", .has_jaws = true},
    {.plural = "scalpels", .has_blade = true},
    {.plural = "cautery hooks", .has_power = true},
    {.plural = "cavitrons", .has_power = true},
    {.plural = "clip appliers", .has_jaws = true, .leaves_clips = true},
}};
constexpr const InstrumentTraits& TraitsOf(InstrumentKind kind) { return kInstrumentTraits[static_cast<size_t>(kind)]; }

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

  const InstrumentTraits& traits() const { return TraitsOf(kind); }
  /// From the tip to where the shaft begins.
  double tip_length_m() const { return traits().has_jaws ? jaw_length_m : traits().has_blade ? blade_length_m : 0; }
};

/// A fixed point that the shaft passes through.
struct TrocarDescription {
  Eigen::Vector3d pivot_m{0, 0, 0};
  Eigen::Vector3d axis{0, 0, -1};  ///< unit, inwards
  double min_insertion_m = 0;
  double max_insertion_m = 0.1;
  double max_tilt_rad = 1.2;
};

}  // namespace palpate::sim
