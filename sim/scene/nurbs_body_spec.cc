#include "sim/scene/nurbs_body_spec.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/scene/body_spec.h"
#include "sim/scene/material_spec.h"
#include "sim/scene/motion_spec.h"
#include "sim/scene/nurbs_binding.h"
#include "sim/scene/nurbs_file.h"
#include "sim/scene/nurbs_shell_body.h"

namespace palpate::scene {
namespace {

constexpr double kTolerancePerMargin = 0.25;
constexpr double kDefaultThickness_m = 0.001;
constexpr size_t kShellCells = 3;  // between knots, at least: what is flat at rest bends

double NurbsThickness_m(const v1::NurbsSpec& spec) { return spec.has_thickness_m() ? spec.thickness_m() : kDefaultThickness_m; }

/// In the body's own scale.
double JoinTolerance_m(const v1::BodySpec& body) { return (body.has_scale() ? body.scale() : 1) * body.nurbs().join_tolerance_m(); }

absl::StatusOr<std::string> ReadText(const std::filesystem::path& path, const std::string& name) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat("\"", name, "\": cannot be read"));
  if (size > kMaxNurbsFileBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("\"", name, "\": ", size, " bytes, at most ", kMaxNurbsFileBytes, " are allowed"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file) return absl::NotFoundError(absl::StrCat("\"", name, "\": cannot be read"));
  return text;
}

absl::StatusOr<sim::NurbsObject> LoadObject(const v1::NurbsSpec& spec, const std::string& path, const AssetResolver& assets) {
  if (spec.has_object()) {
    absl::StatusOr<sim::NurbsObjectDescription> description = NurbsFromProto(spec.object());
    if (!description.ok()) return Annotate(description.status(), At(path, "object"));
    absl::StatusOr<sim::NurbsObject> object = sim::NurbsObject::Create(*description);
    if (!object.ok()) return Annotate(object.status(), At(path, "object"));
    return object;
  }
  const std::string field = At(path, "file");
  absl::StatusOr<std::filesystem::path> file = assets.Resolve(spec.file());
  if (!file.ok()) return Annotate(file.status(), field);
  absl::StatusOr<std::string> text = ReadText(*file, spec.file());
  if (!text.ok()) return Annotate(text.status(), field);
  absl::StatusOr<sim::NurbsObject> object = ReadNurbs(*text, spec.file());
  if (!object.ok()) return Annotate(object.status(), field);
  return object;
}

/// What only bodies without a thickness have, and how a shell is held.
void CheckThin(Checker& check, const std::string& path, const v1::BodySpec& body) {
  const auto refuse = [&](const char* field, const char* what) { check.Invalid(At(path, field), what); };
  if (body.nurbs().has_thickness_m()) check.Range(At(path, "nurbs.thickness_m"), body.nurbs().thickness_m(), 1e-5, 0.05);
  if (body.material().model() != v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF || body.material().has_fibers()) {
    refuse("material.model", "a deformable NURBS body is a shell, MATERIAL_MODEL_ST_VENANT_KIRCHHOFF without fibres");
  }
  if (body.simulation() != v1::SIMULATION_UNSPECIFIED && body.simulation() != v1::SIMULATION_DYNAMIC) {
    refuse("simulation", "a NURBS shell is SIMULATION_DYNAMIC");
  }
  if (!body.zones().empty()) refuse("zones", "a NURBS shell has one material");
  if (!body.markers().empty()) refuse("markers", "a NURBS shell cannot hold markers yet");
  if (!body.surface_zones().empty()) refuse("surface_zones", "a NURBS shell has none yet");
  if (body.volume_stiffness_pa() != 0) refuse("volume_stiffness_pa", "a NURBS shell cannot keep its volume yet; a load can press on it");
  if (body.has_ablation()) refuse("ablation", "a NURBS shell cannot be cut");
  for (int i = 0; i < body.fixed_size(); ++i) {
    const std::string region = At(At(path, "fixed"), i);
    if (!body.fixed(i).has_box()) check.Invalid(region, "control points of a NURBS shell are held by a box");
    if (body.fixed(i).blend_m() != 0) check.Invalid(At(region, "blend_m"), "control points of a NURBS shell follow one region each");
    if (Slides(body.fixed(i))) check.Invalid(region, "control points of a NURBS shell cannot slide yet");
    const bool is_bound = !body.fixed(i).bound_to().empty();
    if (is_bound && body.fixed(i).has_motion()) check.Invalid(At(region, "bound_to"), "a region follows a body or a motion, not both");
    if (is_bound && body.fixed(i).bound_to() == body.name()) check.Invalid(At(region, "bound_to"), "is the shell itself");
    if (is_bound && body.fixed(i).rim() != v1::NURBS_RIM_UNSPECIFIED) {
      check.Invalid(At(region, "rim"), "rims are not bound to a body; control points are, and joints and sutures hold rims on bodies");
    }
    if (!v1::NurbsRim_IsValid(body.fixed(i).rim())) {
      check.Invalid(At(region, "rim"), absl::StrCat(static_cast<int>(body.fixed(i).rim()), " is outside [0, 2]"));
    }
    if (!is_bound && body.fixed(i).ignores_contact()) check.Invalid(At(region, "ignores_contact"), "only a region with bound_to has it");
  }
}

}  // namespace

void CheckNurbs(Checker& check, const std::string& path, const v1::BodySpec& body) {
  const v1::NurbsSpec& spec = body.nurbs();
  const std::string spec_path = At(path, "nurbs");
  if (spec.source_case() == v1::NurbsSpec::SOURCE_NOT_SET) {
    check.Invalid(spec_path, "no surface is given; one of file, object is needed");
  }
  if (spec.has_file() && spec.file().empty()) check.Invalid(At(spec_path, "file"), "the file name is empty");
  if (spec.has_tolerance_m()) check.Range(At(spec_path, "tolerance_m"), spec.tolerance_m(), 1e-7, 0.1);
  if (spec.has_join_tolerance_m()) check.Range(At(spec_path, "join_tolerance_m"), spec.join_tolerance_m(), 0, 1);
  if (body.has_texture()) check.Invalid(At(path, "texture"), "a NURBS body has none");
  if (body.kind() == v1::BODY_KIND_RIGID || body.kind() == v1::BODY_KIND_STATIC) {
    if (spec.has_thickness_m()) check.Invalid(At(spec_path, "thickness_m"), "only a deformable body is a shell");
    return;
  }
  if (v1::BodyKind_IsValid(body.kind())) CheckThin(check, path, body);
}

absl::StatusOr<std::shared_ptr<const sim::NurbsBodyShape>> LoadNurbs(const v1::BodySpec& body, const std::string& path, double margin_m,
                                                                     const AssetResolver& assets, size_t max_triangles) {
  const v1::NurbsSpec& spec = body.nurbs();
  const std::string spec_path = At(path, "nurbs");
  PALPATE_ASSIGN_OR_RETURN(sim::NurbsObject object, LoadObject(spec, spec_path, assets));
  const double scale = body.has_scale() ? body.scale() : 1;
  if (scale != 1) object = object.Transformed(Eigen::Affine3d(Eigen::Scaling(scale)));
  const double tolerance_m = spec.has_tolerance_m() ? spec.tolerance_m() : kTolerancePerMargin * margin_m;
  const bool is_shell = body.kind() != v1::BODY_KIND_RIGID && body.kind() != v1::BODY_KIND_STATIC;
  absl::StatusOr<std::shared_ptr<const sim::NurbsBodyShape>> shape = sim::MakeNurbsBodyShape(
      std::move(object), tolerance_m, JoinTolerance_m(body), body.kind() == v1::BODY_KIND_RIGID, max_triangles, is_shell ? kShellCells : 1);
  if (!shape.ok()) {
    return Annotate(shape.status(), body.name().empty() ? spec_path : absl::StrCat(spec_path, " (", body.name(), ")"));
  }
  return shape;
}

absl::StatusOr<std::shared_ptr<const gpu::NurbsShellModel>> LoadNurbsShell(const v1::BodySpec& body, const std::string& path,
                                                                           const sim::NurbsBodyShape& shape) {
  absl::StatusOr<gpu::NurbsShellModel> model = sim::NurbsShellModelOf(
      shape.object, MaterialFrom(body.material(), Eigen::Quaterniond::Identity()), NurbsThickness_m(body.nurbs()), JoinTolerance_m(body));
  if (!model.ok()) return Annotate(model.status(), At(path, "nurbs"));
  return std::make_shared<const gpu::NurbsShellModel>(*std::move(model));
}

absl::Status PlaceNurbsShell(const v1::BodySpec& body, const std::string& path, const gpu::NurbsShellModel& model,
                             const sim::RigidPose& pose, sim::BodyDescription* out) {
  sim::NurbsShellDescription& shell = out->nurbs_shell.emplace();
  shell.thickness_m = NurbsThickness_m(body.nurbs());
  const sim::Material material = MaterialFrom(body.material(), Eigen::Quaterniond::Identity());
  gpu::NurbsShellModel held = model;
  std::vector<std::vector<uint32_t>> rims(static_cast<size_t>(body.fixed_size()));  // [region] control points of what holds them
  for (int r = 0; r < body.fixed_size(); ++r) {
    if (body.fixed(r).rim() == v1::NURBS_RIM_UNSPECIFIED) continue;
    const v1::Box& region = body.fixed(r).box();
    const Eigen::AlignedBox3d box(ToEigen(region.min_m()), ToEigen(region.max_m()));
    const auto is_held = [&](const Eigen::Vector3d& p) { return box.contains(pose.rotation * p + pose.position_m); };
    auto frame = sim::HoldNurbsRims(out->nurbs->object, material, shell.thickness_m, JoinTolerance_m(body),
                                    body.fixed(r).rim() == v1::NURBS_RIM_CLAMPED, is_held, &held);
    if (!frame.ok()) return Annotate(frame.status(), absl::StrCat(At(At(path, "fixed"), r), ".box"));
    rims[static_cast<size_t>(r)] = *std::move(frame);
  }
  gpu::NurbsShellModel moved = sim::MovedNurbsShell(std::move(held), pose);
  std::vector<Eigen::Vector3d> points;
  for (const auto& [x, y, z] : moved.rest_m) points.emplace_back(x, y, z);
  const std::span<const Eigen::Vector3d> of_surface(points.data(), moved.surface_control_count());
  constexpr int kNone = -1;
  const auto is_alone = [](const v1::FixedRegion& region) { return region.has_motion() || !region.bound_to().empty(); };
  std::vector<std::string> names;  // of regions with a motion
  std::vector<int> region_of(points.size(), kNone);
  for (int r = 0; r < body.fixed_size(); ++r) {
    const v1::FixedRegion& region = body.fixed(r);
    const std::string region_path = At(At(path, "fixed"), r);
    std::vector<uint32_t> inside = rims[static_cast<size_t>(r)];
    if (inside.empty()) {
      PALPATE_ASSIGN_OR_RETURN(inside, PointsInside({.box = &region.box()}, region_path, of_surface, "control point"));
    }
    sim::NurbsShellSupport& support = shell.supports.emplace_back();
    support.name = region.name();
    support.region = static_cast<uint32_t>(r);
    support.kind = !region.bound_to().empty() ? sim::NurbsSupportKind::kBound
                   : region.has_motion()      ? sim::NurbsSupportKind::kDriven
                                              : sim::NurbsSupportKind::kHeld;
    for (const uint32_t j : inside) {
      const int other = std::exchange(region_of[j], r);
      if (other == kNone) support.control.push_back(j);
      if (other == kNone || !(is_alone(region) || is_alone(body.fixed(other)))) continue;
      return absl::InvalidArgumentError(absl::StrCat(region_path, ": control point ", j, " belongs to ", path, ".fixed[", other,
                                                     "] too; one of a region with a motion or bound_to may belong to no other"));
    }
    if (!region.bound_to().empty()) {
      sim::NurbsShellBinding& binding = shell.bound.emplace_back();
      binding.control = std::move(inside);
      binding.ignores_contact = region.ignores_contact();
      continue;
    }
    shell.held.insert(shell.held.end(), inside.begin(), inside.end());
    if (!region.has_motion()) continue;
    PALPATE_ASSIGN_OR_RETURN(sim::DrivenRegion driven, BuildMotion(region, region_path, std::move(inside), points, names));
    shell.driven.push_back(std::move(driven));
    names.push_back(region.name());
  }
  std::sort(shell.held.begin(), shell.held.end());
  shell.held.erase(std::unique(shell.held.begin(), shell.held.end()), shell.held.end());
  if (std::ranges::count_if(shell.held, [&](uint32_t j) { return j < of_surface.size(); }) == std::ssize(of_surface)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ".fixed: all ", of_surface.size(), " control points are held; one must be free"));
  }
  shell.model = std::make_shared<const gpu::NurbsShellModel>(std::move(moved));
  return absl::OkStatus();
}

absl::Status BindNurbsShells(const v1::SceneSpec& spec, std::span<const int> spec_of_body, sim::SceneDescription* out) {
  for (size_t b = 0; b < out->bodies.size(); ++b) {
    if (!out->bodies[b].nurbs_shell) continue;
    const v1::BodySpec& body = spec.bodies(spec_of_body[b]);
    size_t next = 0;
    for (int r = 0; r < body.fixed_size(); ++r) {
      const std::string& name = body.fixed(r).bound_to();
      if (name.empty()) continue;
      const std::string path = At(At(At("bodies", spec_of_body[b]), At("fixed", r)), "bound_to");
      const auto found = std::ranges::find(out->bodies, name, &sim::BodyDescription::name);
      if (found == out->bodies.end()) return absl::InvalidArgumentError(absl::StrCat(path, ": no body is named \"", name, "\""));
      sim::NurbsShellBinding& binding = out->bodies[b].nurbs_shell->bound[next++];
      binding.body = static_cast<uint32_t>(found - out->bodies.begin());
      out->bodies[b].nurbs_shell->supports[static_cast<size_t>(r)].carrier = binding.body;
      if (absl::Status placed = sim::PlaceNurbsBinding(*out, out->bodies[b], &binding); !placed.ok()) return Annotate(placed, path);
    }
  }
  return absl::OkStatus();
}

std::vector<v1::SupportInfo> EncodeSupportInfos(const sim::SceneDescription& description) {
  std::vector<v1::SupportInfo> out;
  for (const sim::BodyDescription& body : description.bodies) {
    if (!body.nurbs_shell) continue;
    for (const sim::NurbsShellSupport& support : body.nurbs_shell->supports) {
      v1::SupportInfo& info = out.emplace_back();
      info.set_name(support.name);
      info.set_body(body.name);
      info.set_region(support.region);
      info.set_kind(sim::kNurbsSupportKindNames[static_cast<size_t>(support.kind)]);
      if (support.kind == sim::NurbsSupportKind::kBound) info.set_bound_to(description.bodies[support.carrier].name);
    }
  }
  return out;
}

void PlaceNurbs(std::shared_ptr<const sim::NurbsBodyShape> shape, const sim::RigidPose& pose, sim::BodyDescription* out) {
  out->mesh = {};
  out->mesh.vertices.reserve(shape->vertices.size());
  for (const Eigen::Vector3d& p : shape->vertices) out->mesh.vertices.emplace_back(pose.rotation * p + pose.position_m);
  out->nurbs = std::move(shape);
  out->nurbs_pose = pose;
}

}  // namespace palpate::scene
