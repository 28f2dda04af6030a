#pragma once

#include <optional>
#include <string>

#include "palpate/v1/scene.pb.h"
#include "sim/scene/description.h"

namespace palpate::cli {

/// Extents that bodies of a surgical scene have: between a vessel and a patient. [m]
inline constexpr double kMinPlausibleExtent_m = 0.001;
inline constexpr double kMaxPlausibleExtent_m = 2.0;

/// What a size that no organ has is most likely meant to be.
struct UnitGuess {
  const char* unit = "";  ///< of the file, plural: "millimetres"
  double scale = 1;       ///< metres per unit of the file
};

/// The unit that brings an implausible extent nearest to that of an organ; nullopt if the extent is plausible in metres or in no unit.
std::optional<UnitGuess> GuessUnit(double extent_m);

/// A sentence on an implausible extent that names the remedy `flag` with its value, e.g. "its largest extent is 204 m; in millimetres it
/// is 0.204 m: `--scale 0.001`"; "" if the extent is plausible. `scale` is what was applied already.
std::string ExplainSize(double extent_m, const std::string& flag, double scale = 1);

/// Warns on standard error: "palpate: warning: <subject>: <sentence>".
void PrintWarning(const std::string& subject, const std::string& sentence);

/// Warns of each body of a scene that has no organ's size because its mesh is in another unit. `spec` is what `scene` was made of.
void WarnOfSizes(const std::string& path, const v1::SceneSpec& spec, const sim::SceneDescription& scene);

}  // namespace palpate::cli
