#include "sim/scene/tool_spec.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "gpu/base/status.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene {
namespace {

constexpr double kDefaultMinInsertion_m = 0;
constexpr double kMinHold_s = 0.01;
constexpr double kMaxHold_s = 10;

// The two enums go together number by number.
static_assert(v1::INSTRUMENT_KIND_PROBE == 1 + static_cast<int>(sim::InstrumentKind::kProbe));
static_assert(v1::INSTRUMENT_KIND_CLIP_APPLIER == 1 + static_cast<int>(sim::InstrumentKind::kClipApplier));
static_assert(v1::InstrumentKind_MAX == sim::kInstrumentTraits.size());

/// Precondition: a valid kind.
sim::InstrumentKind KindFrom(v1::InstrumentKind kind) {
  return kind == v1::INSTRUMENT_KIND_UNSPECIFIED ? sim::InstrumentKind::kProbe : static_cast<sim::InstrumentKind>(kind - 1);
}

/// "forceps and clip appliers".
std::string KindsWith(bool sim::InstrumentTraits::*trait) {
  std::vector<const char*> kinds;
  for (const sim::InstrumentTraits& traits : sim::kInstrumentTraits) {
    if (traits.*trait) kinds.push_back(traits.plural);
  }
  return absl::StrJoin(kinds, " and ");
}

void CheckInstrument(Checker& check, const std::string& path, const v1::InstrumentSpec& instrument) {
  const v1::InstrumentKind kind = instrument.kind();
  if (!v1::InstrumentKind_IsValid(kind)) {
    check.Invalid(At(path, "kind"),
                  absl::StrCat(static_cast<int>(kind), " is outside [0, ", static_cast<int>(v1::InstrumentKind_MAX), "]"));
    return;
  }
  using Traits = sim::InstrumentTraits;
  struct Field {
    const char* name;
    bool is_given;
    bool Traits::*of;
    double value, low, high;
    bool is_low_open = false;
  };
  const auto& in = instrument;
  const Field fields[] = {
      {"jaw_length_m", in.has_jaw_length_m(), &Traits::has_jaws, in.jaw_length_m(), 0.001, 0.1},
      {"jaw_radius_m", in.has_jaw_radius_m(), &Traits::has_jaws, in.jaw_radius_m(), 1e-4, 0.02},
      {"max_jaw_angle_rad", in.has_max_jaw_angle_rad(), &Traits::has_jaws, in.max_jaw_angle_rad(), 0, kMaxJawAngle_rad, true},
      {"max_grasp_force_n", in.has_max_grasp_force_n(), &Traits::has_jaws, in.max_grasp_force_n(), 0, 1000, true},
      {"blade_length_m", in.has_blade_length_m(), &Traits::has_blade, in.blade_length_m(), 0.001, 0.1},
      {"max_power_w", in.has_max_power_w(), &Traits::has_power, in.max_power_w(), 0, kMaxPower_w, true},
      {"reach_m", in.has_reach_m(), &Traits::has_power, in.reach_m(), 1e-4, 0.05},
      {"refine_to_m", in.has_refine_to_m(), &Traits::has_power, in.refine_to_m(), 1e-4, 0.1},
  };
  const Traits& traits = sim::TraitsOf(KindFrom(kind));
  for (const Field& field : fields) {
    if (!field.is_given) continue;
    const std::string at = At(path, field.name);
    if (!(traits.*field.of)) {
      check.Invalid(at, absl::StrCat("only ", KindsWith(field.of), " have it"));
    } else if (field.is_low_open) {
      check.RangeAbove(at, field.value, field.low, field.high);
    } else {
      check.Range(at, field.value, field.low, field.high);
    }
  }
}

double ToolLength(const v1::ToolSpec& tool) { return tool.has_length_m() ? tool.length_m() : sim::ToolDescription().length_m; }

void CheckTrocar(Checker& check, const std::string& path, const v1::ToolSpec& tool) {
  const v1::TrocarSpec& trocar = tool.trocar();
  check.RangeVec(At(path, "pivot_m"), trocar.pivot_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
  const double min_m = trocar.has_min_insertion_m() ? trocar.min_insertion_m() : kDefaultMinInsertion_m;
  const double max_m = trocar.has_max_insertion_m() ? trocar.max_insertion_m() : ToolLength(tool);
  check.Range(At(path, "min_insertion_m"), min_m, 0, 1);
  check.RangeAbove(At(path, "max_insertion_m"), max_m, 0, 1);
  if (min_m > max_m) check.Invalid(At(path, "min_insertion_m"), absl::StrCat(min_m, " is above max_insertion_m = ", max_m));
  if (trocar.has_max_tilt_rad()) check.RangeAbove(At(path, "max_tilt_rad"), trocar.max_tilt_rad(), 0, 1.5);
  check.Finite(At(path, "axis.x"), trocar.axis().x());
  check.Finite(At(path, "axis.y"), trocar.axis().y());
  check.Finite(At(path, "axis.z"), trocar.axis().z());
  if (trocar.has_axis() && ToEigen(trocar.axis()).isZero(0)) check.Invalid(At(path, "axis"), "is zero");
}

sim::InstrumentDescription BuildInstrument(const v1::InstrumentSpec& instrument) {
  sim::InstrumentDescription out;
  out.kind = KindFrom(instrument.kind());
  if (instrument.has_jaw_length_m()) out.jaw_length_m = instrument.jaw_length_m();
  if (instrument.has_jaw_radius_m()) out.jaw_radius_m = instrument.jaw_radius_m();
  if (instrument.has_max_jaw_angle_rad()) out.max_jaw_angle_rad = instrument.max_jaw_angle_rad();
  if (instrument.has_max_grasp_force_n()) out.max_grasp_force_n = instrument.max_grasp_force_n();
  if (instrument.has_blade_length_m()) out.blade_length_m = instrument.blade_length_m();
  if (instrument.has_max_power_w()) out.max_power_w = instrument.max_power_w();
  if (instrument.has_reach_m()) out.reach_m = instrument.reach_m();
  if (instrument.has_refine_to_m()) out.refine_to_m = instrument.refine_to_m();
  return out;
}

sim::TrocarDescription BuildTrocar(const v1::TrocarSpec& trocar, double tool_length_m) {
  sim::TrocarDescription out;
  out.pivot_m = ToEigen(trocar.pivot_m());
  if (trocar.has_axis()) out.axis = Direction(ToEigen(trocar.axis()));
  out.min_insertion_m = trocar.has_min_insertion_m() ? trocar.min_insertion_m() : kDefaultMinInsertion_m;
  out.max_insertion_m = trocar.has_max_insertion_m() ? trocar.max_insertion_m() : tool_length_m;
  if (trocar.has_max_tilt_rad()) out.max_tilt_rad = trocar.max_tilt_rad();
  return out;
}

}  // namespace

void CheckToolSpec(Checker& check, const std::string& path, const v1::ToolSpec& tool) {
  if (tool.name().empty()) check.Invalid(At(path, "name"), "a tool needs a name");
  check.Name(At(path, "name"), tool.name(), kMaxNameBytes);
  if (tool.has_radius_m()) check.Range(At(path, "radius_m"), tool.radius_m(), 1e-4, 0.1);
  if (tool.has_length_m()) check.Range(At(path, "length_m"), tool.length_m(), 0, 1);
  check.Pose(At(path, "rest_pose"), tool.rest_pose());
  if (!v1::ToolDrive_IsValid(tool.drive())) {
    check.Invalid(At(path, "drive"), absl::StrCat(static_cast<int>(tool.drive()), " is outside [0, 2]"));
  }
  if (!v1::ToolResponse_IsValid(tool.response())) {
    check.Invalid(At(path, "response"), absl::StrCat(static_cast<int>(tool.response()), " is outside [0, 2]"));
  }
  if (tool.has_mass_kg()) check.Range(At(path, "mass_kg"), tool.mass_kg(), 1e-4, 10);
  if (tool.has_coupling_stiffness_n_per_m()) {
    check.Range(At(path, "coupling_stiffness_n_per_m"), tool.coupling_stiffness_n_per_m(), 1, 1e5);
  }
  if (tool.has_coupling_damping_n_s_per_m()) {
    check.Range(At(path, "coupling_damping_n_s_per_m"), tool.coupling_damping_n_s_per_m(), 0, 1e4);
  }
  if (tool.has_energy_hold_s()) check.Range(At(path, "energy_hold_s"), tool.energy_hold_s(), kMinHold_s, kMaxHold_s);
  if (tool.has_command_hold_s()) check.Range(At(path, "command_hold_s"), tool.command_hold_s(), kMinHold_s, kMaxHold_s);
  if (tool.has_instrument()) CheckInstrument(check, At(path, "instrument"), tool.instrument());
  if (tool.has_trocar()) CheckTrocar(check, At(path, "trocar"), tool);
}

int CapsuleCount(const v1::ToolSpec& tool) {
  // Shaft, wrist and two jaws.
  const v1::InstrumentKind kind = tool.instrument().kind();
  return v1::InstrumentKind_IsValid(kind) && sim::TraitsOf(KindFrom(kind)).has_jaws ? 4 : 1;
}

absl::StatusOr<sim::ToolDescription> BuildToolDescription(const v1::ToolSpec& tool, const std::string& path) {
  sim::ToolDescription out;
  out.name = tool.name();
  if (tool.has_radius_m()) out.radius_m = tool.radius_m();
  if (tool.has_length_m()) out.length_m = tool.length_m();
  PALPATE_ASSIGN_OR_RETURN(out.rest_pose, PoseFromProto(tool.rest_pose(), At(path, "rest_pose")));
  if (tool.drive() == v1::TOOL_DRIVE_DIRECT) out.drive = sim::ToolDrive::kDirect;
  if (tool.response() == v1::TOOL_RESPONSE_PROJECTION) out.response = sim::ToolResponse::kProjection;
  if (tool.has_mass_kg()) out.mass_kg = tool.mass_kg();
  if (tool.has_coupling_stiffness_n_per_m()) out.coupling_stiffness_n_per_m = tool.coupling_stiffness_n_per_m();
  if (tool.has_coupling_damping_n_s_per_m()) out.coupling_damping_n_s_per_m = tool.coupling_damping_n_s_per_m();
  if (tool.has_instrument()) out.instrument = BuildInstrument(tool.instrument());
  if (tool.has_energy_hold_s()) out.energy_hold_s = tool.energy_hold_s();
  if (tool.has_command_hold_s()) out.command_hold_s = tool.command_hold_s();
  if (tool.has_trocar()) out.trocar = BuildTrocar(tool.trocar(), out.length_m);
  return out;
}

v1::InstrumentKind EncodeInstrumentKind(sim::InstrumentKind kind) { return static_cast<v1::InstrumentKind>(1 + static_cast<int>(kind)); }

void EncodeInstrumentTraits(const sim::InstrumentTraits& traits, v1::InstrumentTraits& out) {
  out.set_has_jaws(traits.has_jaws);
  out.set_has_blade(traits.has_blade);
  out.set_has_power(traits.has_power);
  out.set_leaves_clips(traits.leaves_clips);
}

}  // namespace palpate::scene
