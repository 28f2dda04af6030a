#include "clients/cli/size_check.h"

#include <array>
#include <cmath>
#include <cstdio>

#include <Eigen/Geometry>

#include "absl/strings/str_format.h"

namespace palpate::cli {
namespace {

constexpr double kTypicalOrgan_m = 0.15;

bool IsPlausible(double extent_m) { return extent_m >= kMinPlausibleExtent_m && extent_m <= kMaxPlausibleExtent_m; }

}  // namespace

std::optional<UnitGuess> GuessUnit(double extent_m) {
  // A flat or empty mesh is refused elsewhere.
  if (!(extent_m > 0) || !std::isfinite(extent_m) || IsPlausible(extent_m)) return std::nullopt;
  constexpr std::array<UnitGuess, 4> kUnits = {{{"millimetres", 1e-3}, {"centimetres", 1e-2}, {"micrometres", 1e-6}, {"kilometres", 1e3}}};
  std::optional<UnitGuess> best;
  double best_distance = 0;
  for (const UnitGuess& guess : kUnits) {
    if (!IsPlausible(extent_m * guess.scale)) continue;
    const double distance = std::abs(std::log(extent_m * guess.scale / kTypicalOrgan_m));
    if (best && distance >= best_distance) continue;
    best = guess;
    best_distance = distance;
  }
  return best;
}

std::string ExplainSize(double extent_m, const std::string& flag, double scale) {
  const auto guess = GuessUnit(extent_m);
  if (!guess) return "";
  return absl::StrFormat("its largest extent is %.4g m, which no organ has; %s`%s %g` makes it %.4g m", extent_m,
                         scale == 1 ? absl::StrFormat("if the file is in %s, ", guess->unit) : "", flag, scale * guess->scale,
                         extent_m * guess->scale);
}

void PrintWarning(const std::string& subject, const std::string& sentence) {
  absl::FPrintF(stderr, "palpate: warning: %s: %s\n", subject, sentence);
}

void WarnOfSizes(const std::string& path, const v1::SceneSpec& spec, const sim::SceneDescription& scene) {
  // Arrays stand for several bodies, but meshes of files are those of the spec that has the body's name.
  for (int i = 0; i < spec.bodies_size(); ++i) {
    const v1::BodySpec& body = spec.bodies(i);
    if (!body.has_mesh_file() && !body.has_mesh() && !body.has_nurbs()) continue;
    for (const sim::BodyDescription& built : scene.bodies) {
      if (built.name != body.name()) continue;
      Eigen::AlignedBox3d bounds_m;
      for (const auto& vertex : built.mesh.vertices) bounds_m.extend(vertex);
      const double extent_m = bounds_m.sizes().maxCoeff();
      if (const auto guess = GuessUnit(extent_m)) {
        const double scale = (body.has_scale() ? body.scale() : 1) * guess->scale;
        PrintWarning(path, absl::StrFormat("bodies[%d] \"%s\": its largest extent is %.4g m, which no organ has; if the mesh is in %s, "
                                           "\"scale\": %g makes it %.4g m",
                                           i, body.name(), extent_m, guess->unit, scale, extent_m * guess->scale));
      }
    }
  }
}

}  // namespace palpate::cli
