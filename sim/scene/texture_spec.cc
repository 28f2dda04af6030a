#include "sim/scene/texture_spec.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene {
namespace {

constexpr double kDefaultTileSize_m = 0.05;
constexpr double kMaxCoordinate = 1e6;  // in tiles
constexpr double kLeastSine = 1e-3;     // between u_direction and v_direction
constexpr double kTurn = 2 * std::numbers::pi;
constexpr double kCosineOf30Degrees = 0.8660254037844387;

const char* ProjectionField(const v1::TextureSpec& texture) {
  switch (texture.projection_case()) {
    case v1::TextureSpec::kPlanar:
      return "planar";
    case v1::TextureSpec::kCylindrical:
      return "cylindrical";
    case v1::TextureSpec::kSpherical:
      return "spherical";
    case v1::TextureSpec::PROJECTION_NOT_SET:
      break;
  }
  return nullptr;
}

void CheckDirection(Checker& check, const std::string& path, bool is_given, const v1::Vec3& direction) {
  if (!is_given) return;
  check.Finite(At(path, "x"), direction.x());
  check.Finite(At(path, "y"), direction.y());
  check.Finite(At(path, "z"), direction.z());
  if (check.ok() && ToEigen(direction).isZero(0)) check.Invalid(path, "is zero");
}

Eigen::Vector3d DirectionOr(bool is_given, const v1::Vec3& given, const Eigen::Vector3d& otherwise) {
  return is_given ? Direction(ToEigen(given)) : otherwise;
}

/// A right-handed frame whose z is the axis and whose x is the place of angle 0; rows are the axes.
Eigen::Matrix3d FrameAround(const Eigen::Vector3d& axis) {
  const Eigen::Vector3d start = std::abs(axis.x()) > kCosineOf30Degrees ? Eigen::Vector3d::UnitY() : Eigen::Vector3d::UnitX();
  Eigen::Matrix3d frame;
  frame.row(0) = (start - start.dot(axis) * axis).normalized().transpose();
  frame.row(1) = axis.cross(frame.row(0).transpose()).transpose();
  frame.row(2) = axis.transpose();
  return frame;
}

/// In the frame of a projection about an axis: of each vertex u in turns, in [0, 1), and its height or latitude times radius.
struct Around {
  std::vector<Eigen::Vector2d> places;
  double radius_m = 0;  ///< mean distance of the surface's vertices from the axis or the centre
};

Around ProjectAround(const std::vector<Eigen::Vector3d>& vertices, const std::vector<uint32_t>& surface, const Eigen::Vector3d& center_m,
                     const Eigen::Vector3d& axis, bool is_sphere) {
  const Eigen::Matrix3d frame = FrameAround(axis);
  Around out;
  for (const uint32_t v : surface) {
    const Eigen::Vector3d p = frame * (vertices[v] - center_m);
    out.radius_m += (is_sphere ? p.norm() : p.head<2>().norm()) / static_cast<double>(surface.size());
  }
  for (const Eigen::Vector3d& vertex : vertices) {
    const Eigen::Vector3d p = frame * (vertex - center_m);
    const double turns = std::atan2(p.y(), p.x()) / kTurn;
    out.places.emplace_back(turns - std::floor(turns), is_sphere ? out.radius_m * std::atan2(p.z(), p.head<2>().norm()) : p.z());
  }
  return out;
}

sim::TexturePattern PatternFrom(v1::TexturePattern pattern) {
  switch (pattern) {
    case v1::TEXTURE_PATTERN_CHECKER:
      return sim::TexturePattern::kChecker;
    case v1::TEXTURE_PATTERN_LIVER:
      return sim::TexturePattern::kLiver;
    case v1::TEXTURE_PATTERN_MUSCLE:
      return sim::TexturePattern::kMuscle;
    case v1::TEXTURE_PATTERN_FAT:
      return sim::TexturePattern::kFat;
    default:
      return sim::TexturePattern::kNone;
  }
}

}  // namespace

void CheckTexture(Checker& check, const std::string& path, const v1::BodySpec& body) {
  if (!body.has_texture()) return;
  const v1::TextureSpec& texture = body.texture();
  const std::string texture_path = At(path, "texture");
  if (!v1::TexturePattern_IsValid(texture.pattern())) {
    check.Invalid(At(texture_path, "pattern"), absl::StrCat(static_cast<int>(texture.pattern()), " is outside [0, 4]"));
  }
  const char* projection = ProjectionField(texture);
  if (texture.has_tile_size_m()) {
    check.Range(At(texture_path, "tile_size_m"), texture.tile_size_m(), 1e-4, 10);
    if (projection == nullptr) {
      check.Invalid(At(texture_path, "tile_size_m"), "is of a projection, and none is given: planar, cylindrical, spherical");
    }
  }
  if (projection == nullptr) return;
  const std::string projection_path = At(texture_path, projection);
  if (body.has_mesh() && !body.mesh().texture_coordinates().empty()) {
    check.Invalid(projection_path, absl::StrCat("a projection, but ", path, ".mesh.texture_coordinates are given too"));
  }
  if (texture.has_planar()) {
    const v1::PlanarProjection& planar = texture.planar();
    check.RangeVec(At(projection_path, "origin_m"), planar.origin_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
    CheckDirection(check, At(projection_path, "u_direction"), planar.has_u_direction(), planar.u_direction());
    CheckDirection(check, At(projection_path, "v_direction"), planar.has_v_direction(), planar.v_direction());
    if (!check.ok()) return;
    const Eigen::Vector3d u = DirectionOr(planar.has_u_direction(), planar.u_direction(), Eigen::Vector3d::UnitX());
    const Eigen::Vector3d v = DirectionOr(planar.has_v_direction(), planar.v_direction(), Eigen::Vector3d::UnitY());
    if (u.cross(v).norm() < kLeastSine) check.Invalid(At(projection_path, "v_direction"), "runs along u_direction");
    return;
  }
  const auto check_around = [&](const auto& around) {
    check.RangeVec(At(projection_path, "center_m"), around.center_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
    CheckDirection(check, At(projection_path, "axis"), around.has_axis(), around.axis());
  };
  if (texture.has_cylindrical()) {
    check_around(texture.cylindrical());
  } else {
    check_around(texture.spherical());
  }
}

absl::Status BuildTexture(const v1::BodySpec& body, const std::string& path, const sim::TetMesh& mesh, sim::TextureDescription* out) {
  const v1::TextureSpec& texture = body.texture();
  out->pattern = PatternFrom(texture.pattern());
  const char* projection = ProjectionField(texture);
  std::vector<Eigen::Vector2d> places;
  if (projection == nullptr) {
    if (body.has_texture() && mesh.texture_coordinates.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ".texture: the mesh has no texture coordinates; one of planar, cylindrical, spherical is needed to make some"));
    }
    places = mesh.texture_coordinates;
  } else {
    const std::string projection_path = At(At(path, "texture"), projection);
    if (!mesh.texture_coordinates.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(projection_path, ": a projection, but the mesh has texture coordinates of its own"));
    }
    const double scale = body.has_scale() ? body.scale() : 1;
    const double tile_m = texture.has_tile_size_m() ? texture.tile_size_m() : kDefaultTileSize_m;
    std::vector<Eigen::Vector3d> vertices = mesh.vertices;
    Eigen::AlignedBox3d box;
    for (Eigen::Vector3d& p : vertices) {
      p *= scale;
      box.extend(p);
    }
    if (texture.has_planar()) {
      const v1::PlanarProjection& planar = texture.planar();
      const Eigen::Vector3d origin_m = ToEigen(planar.origin_m());
      const Eigen::Vector3d u = DirectionOr(planar.has_u_direction(), planar.u_direction(), Eigen::Vector3d::UnitX());
      const Eigen::Vector3d v = DirectionOr(planar.has_v_direction(), planar.v_direction(), Eigen::Vector3d::UnitY());
      for (const Eigen::Vector3d& p : vertices) places.emplace_back((p - origin_m).dot(u) / tile_m, (p - origin_m).dot(v) / tile_m);
    } else {
      const auto around = [&](const auto& spec, bool is_sphere) {
        const Eigen::Vector3d center_m = spec.has_center_m() ? ToEigen(spec.center_m()) : Eigen::Vector3d(box.center());
        const Eigen::Vector3d axis = DirectionOr(spec.has_axis(), spec.axis(), Eigen::Vector3d::UnitZ());
        return ProjectAround(vertices, sim::ExtractBoundary(mesh).vertices, center_m, axis, is_sphere);
      };
      Around found = texture.has_cylindrical() ? around(texture.cylindrical(), false) : around(texture.spherical(), true);
      out->u_period = std::max(1.0, std::round(kTurn * found.radius_m / tile_m));
      for (Eigen::Vector2d& place : found.places) place = {out->u_period * place.x(), place.y() / tile_m};
      places = std::move(found.places);
    }
    for (const Eigen::Vector2d& place : places) {
      if (!(place.cwiseAbs().maxCoeff() <= kMaxCoordinate)) {
        return absl::InvalidArgumentError(absl::StrCat(projection_path, ": a vertex lies ", place.cwiseAbs().maxCoeff(),
                                                       " tiles away, more than ", kMaxCoordinate, "; see tile_size_m"));
      }
    }
  }
  out->coordinates.reserve(places.size());
  for (const Eigen::Vector2d& place : places) {
    std::array<float, 2>& value = out->coordinates.emplace_back();
    value = {static_cast<float>(place.x()), static_cast<float>(place.y())};
    if (out->u_period > 0 && value[0] >= out->u_period) value[0] = 0;  // by rounding
  }
  return absl::OkStatus();
}

v1::TexturePattern EncodeTexturePattern(sim::TexturePattern pattern) {
  switch (pattern) {
    case sim::TexturePattern::kChecker:
      return v1::TEXTURE_PATTERN_CHECKER;
    case sim::TexturePattern::kLiver:
      return v1::TEXTURE_PATTERN_LIVER;
    case sim::TexturePattern::kMuscle:
      return v1::TEXTURE_PATTERN_MUSCLE;
    case sim::TexturePattern::kFat:
      return v1::TEXTURE_PATTERN_FAT;
    case sim::TexturePattern::kNone:
      break;
  }
  return v1::TEXTURE_PATTERN_UNSPECIFIED;
}

}  // namespace palpate::scene
