#include "sim/scene/nurbs_body_spec.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/scene/nurbs_file.h"

namespace palpate::scene {
namespace {

constexpr double kTolerancePerMargin = 0.25;

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
  if (body.kind() != v1::BODY_KIND_RIGID && body.kind() != v1::BODY_KIND_STATIC) {
    check.Invalid(At(path, "kind"), "a NURBS body is BODY_KIND_RIGID or BODY_KIND_STATIC");
  }
  if (body.has_texture()) check.Invalid(At(path, "texture"), "a NURBS body has none");
}

absl::StatusOr<std::shared_ptr<const sim::NurbsBodyShape>> LoadNurbs(const v1::BodySpec& body, const std::string& path, double margin_m,
                                                                     const AssetResolver& assets, size_t max_triangles) {
  const v1::NurbsSpec& spec = body.nurbs();
  const std::string spec_path = At(path, "nurbs");
  PALPATE_ASSIGN_OR_RETURN(sim::NurbsObject object, LoadObject(spec, spec_path, assets));
  const double scale = body.has_scale() ? body.scale() : 1;
  if (scale != 1) object = object.Transformed(Eigen::Affine3d(Eigen::Scaling(scale)));
  const double tolerance_m = spec.has_tolerance_m() ? spec.tolerance_m() : kTolerancePerMargin * margin_m;
  absl::StatusOr<std::shared_ptr<const sim::NurbsBodyShape>> shape = sim::MakeNurbsBodyShape(
      std::move(object), tolerance_m, scale * spec.join_tolerance_m(), body.kind() == v1::BODY_KIND_RIGID, max_triangles);
  if (!shape.ok()) {
    return Annotate(shape.status(), body.name().empty() ? spec_path : absl::StrCat(spec_path, " (", body.name(), ")"));
  }
  return shape;
}

void PlaceNurbs(std::shared_ptr<const sim::NurbsBodyShape> shape, const sim::RigidPose& pose, sim::BodyDescription* out) {
  out->mesh = {};
  out->mesh.vertices.reserve(shape->vertices.size());
  for (const Eigen::Vector3d& p : shape->vertices) out->mesh.vertices.emplace_back(pose.rotation * p + pose.position_m);
  out->nurbs = std::move(shape);
  out->nurbs_pose = pose;
}

}  // namespace palpate::scene
