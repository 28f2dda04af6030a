#include "sim/scene/suture_spec.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "sim/scene/body_spec.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene {
namespace {

constexpr double kLeastReach_m = 1e-4;
constexpr double kMostReach_m = 0.1;

Region RegionOf(const v1::SutureSpec& s) {
  return {s.has_box() ? &s.box() : nullptr, s.has_ball() ? &s.ball() : nullptr, s.has_vertices() ? &s.vertices() : nullptr};
}

absl::StatusOr<uint32_t> FindSewn(const sim::SceneDescription& scene, const std::string& name, const std::string& path) {
  const auto found = std::ranges::find(scene.bodies, name, &sim::BodyDescription::name);
  if (found != scene.bodies.end()) return static_cast<uint32_t>(found - scene.bodies.begin());
  return absl::InvalidArgumentError(absl::StrCat(path, ": no body is named \"", name, "\""));
}

absl::Status CheckSewn(const sim::BodyDescription& body, bool is_first, const std::string& path) {
  const auto refuse = [&](const char* what) { return absl::InvalidArgumentError(absl::StrCat(path, ": ", body.name, what)); };
  if (is_first && body.kind != sim::BodyKind::kDeformable) return refuse(" is not deformable: it can only be what is sewn to, body_b");
  const bool has_own_motion = body.simulation == sim::Simulation::kDynamic || body.simulation == sim::Simulation::kShapeMatched;
  if (body.kind == sim::BodyKind::kDeformable && !has_own_motion) return refuse(" is pre-computed or hybrid, and cannot be sewn");
  return absl::OkStatus();
}

}  // namespace

void CheckSutures(Checker& check, const v1::SceneSpec& spec) {
  check.Count("sutures", spec.sutures_size(), 0, static_cast<int>(sim::kMaxStitches));
  for (int i = 0; i < spec.sutures_size() && check.ok(); ++i) {
    const v1::SutureSpec& suture = spec.sutures(i);
    const std::string path = At("sutures", i);
    if (suture.body_a().empty()) check.Invalid(At(path, "body_a"), "is missing");
    if (suture.body_b().empty()) check.Invalid(At(path, "body_b"), "is missing");
    if (suture.body_a() == suture.body_b()) check.Invalid(At(path, "body_b"), "is the same as body_a");
    CheckRegion(check, path, RegionOf(suture), "box, ball, vertices");
    if (suture.has_reach_m()) check.Range(At(path, "reach_m"), suture.reach_m(), kLeastReach_m, kMostReach_m);
  }
}

absl::Status BuildSutures(const v1::SceneSpec& spec, sim::SceneDescription* out) {
  size_t stitches = 0;
  for (int i = 0; i < spec.sutures_size(); ++i) {
    const v1::SutureSpec& suture = spec.sutures(i);
    const std::string path = At("sutures", i);
    sim::SutureDescription built;
    PALPATE_ASSIGN_OR_RETURN(built.body_a, FindSewn(*out, suture.body_a(), At(path, "body_a")));
    PALPATE_ASSIGN_OR_RETURN(built.body_b, FindSewn(*out, suture.body_b(), At(path, "body_b")));
    PALPATE_RETURN_IF_ERROR(CheckSewn(out->bodies[built.body_a], /*is_first=*/true, At(path, "body_a")));
    PALPATE_RETURN_IF_ERROR(CheckSewn(out->bodies[built.body_b], /*is_first=*/false, At(path, "body_b")));
    PALPATE_ASSIGN_OR_RETURN(built.vertices, RegionVertices(RegionOf(suture), path, out->bodies[built.body_a].mesh));
    if (suture.has_reach_m()) built.reach_m = suture.reach_m();
    stitches += built.vertices.size();
    if (stitches > sim::kMaxStitches) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": ", stitches, " stitches up to here, one for each vertex of the region, exceed ", sim::kMaxStitches, " of a scene"));
    }
    out->sutures.push_back(std::move(built));
  }
  return absl::OkStatus();
}

}  // namespace palpate::scene
