#include "sim/scene/texture_spec.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/mesh/texture_transfer.h"
#include "sim/scene/image_file.h"
#include "sim/scene/nurbs_description.h"
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
    case v1::TextureSpec::kBox:
      return "box";
    case v1::TextureSpec::kSurfaceFile:
      return "surface_file";
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

/// Of each triangle of the surface, by the side of a box that it faces.
std::vector<sim::CornerCoordinates> ProjectOntoBox(const sim::BoundarySurface& boundary, const std::vector<Eigen::Vector3d>& vertices_m,
                                                   const Eigen::Vector3d& origin_m, double tile_m) {
  std::vector<sim::CornerCoordinates> out;
  out.reserve(boundary.triangles.size());
  for (const auto& triangle : boundary.triangles) {
    const auto place = [&](size_t c) { return vertices_m[boundary.vertices[triangle[c]]]; };
    const Eigen::Vector3d normal = (place(1) - place(0)).cross(place(2) - place(0));
    Eigen::Index axis = 0;
    normal.cwiseAbs().maxCoeff(&axis);  // the first of equal ones
    const double sign = normal[axis] < 0 ? -1 : 1;
    sim::CornerCoordinates& corners = out.emplace_back();
    for (size_t c = 0; c < 3; ++c) {
      const Eigen::Vector3d p = (place(c) - origin_m) / tile_m;
      const double u = axis == 0 ? p.y() : axis == 1 ? -p.x() : p.x();
      corners[c] = {static_cast<float>(sign * u), static_cast<float>(axis == 2 ? p.y() : p.z())};
    }
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

absl::Status TooFar(const std::string& path, double tiles) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": a vertex lies ", tiles, " tiles away, more than ", kMaxCoordinate, "; see tile_size_m"));
}

/// Coordinates by vertex as those of the corners of triangles. Where u goes around, a triangle across the seam goes on beyond it.
std::vector<sim::CornerCoordinates> ToCorners(const sim::BoundarySurface& surface, const std::vector<std::array<float, 2>>& coordinates,
                                              double u_period) {
  std::vector<sim::CornerCoordinates> out;
  out.reserve(surface.triangles.size());
  for (const auto& triangle : surface.triangles) {
    sim::CornerCoordinates& corners = out.emplace_back();
    for (size_t c = 0; c < 3; ++c) {
      corners[c] = coordinates[surface.vertices[triangle[c]]];
      if (u_period > 0) {
        const double turns = std::round((static_cast<double>(corners[c][0]) - corners[0][0]) / u_period);
        corners[c][0] = static_cast<float>(corners[c][0] - u_period * turns);
      }
    }
  }
  return out;
}

}  // namespace

void CheckTexture(Checker& check, const std::string& path, const v1::BodySpec& body) {
  if (!body.has_texture()) return;
  const v1::TextureSpec& texture = body.texture();
  const std::string texture_path = At(path, "texture");
  if (!v1::TexturePattern_IsValid(texture.pattern())) {
    check.Invalid(At(texture_path, "pattern"), absl::StrCat(static_cast<int>(texture.pattern()), " is outside [0, 4]"));
  }
  if (!texture.image_file().empty() && texture.pattern() != v1::TEXTURE_PATTERN_UNSPECIFIED) {
    check.Invalid(At(texture_path, "image_file"), "a picture, but a pattern is given too");
  }
  const char* projection = ProjectionField(texture);
  if (texture.has_tile_size_m()) {
    check.Range(At(texture_path, "tile_size_m"), texture.tile_size_m(), 1e-4, 10);
    if (projection == nullptr || texture.has_surface_file()) {
      check.Invalid(At(texture_path, "tile_size_m"), "is of a projection, and none is given: planar, cylindrical, spherical, box");
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
  if (texture.has_surface_file()) return;
  if (texture.has_box()) {
    check.RangeVec(At(projection_path, "origin_m"), texture.box().origin_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
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

absl::Status BuildTexture(const v1::BodySpec& body, const std::string& path, const sim::TetMesh& mesh, const sim::BoundarySurface& surface,
                          const BodyLook& look, sim::TextureDescription* out) {
  const v1::TextureSpec& texture = body.texture();
  out->image = look.image;
  out->pattern = PatternFrom(texture.pattern());
  const char* projection = ProjectionField(texture);
  std::vector<Eigen::Vector2d> places;
  if (projection == nullptr) {
    if (body.has_texture() && mesh.texture_coordinates.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(path,
                                                     ".texture: the mesh has no texture coordinates; one of planar, cylindrical, "
                                                     "spherical, box, surface_file is needed to make some"));
    }
    places = mesh.texture_coordinates;
  } else {
    const std::string projection_path = At(At(path, "texture"), projection);
    if (!mesh.texture_coordinates.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(projection_path, ": a projection, but the mesh has texture coordinates of its own"));
    }
    if (texture.has_surface_file()) {
      out->corners = look.corners;
      return absl::OkStatus();
    }
    const double scale = body.has_scale() ? body.scale() : 1;
    const double tile_m = texture.has_tile_size_m() ? texture.tile_size_m() : kDefaultTileSize_m;
    std::vector<Eigen::Vector3d> vertices = mesh.vertices;
    Eigen::AlignedBox3d box;
    for (Eigen::Vector3d& p : vertices) {
      p *= scale;
      box.extend(p);
    }
    if (texture.has_box()) {
      const Eigen::Vector3d origin_m = ToEigen(texture.box().origin_m());
      for (const Eigen::Vector3d& p : vertices) {
        const double farthest = (p - origin_m).cwiseAbs().maxCoeff() / tile_m;
        if (!(farthest <= kMaxCoordinate)) return TooFar(projection_path, farthest);
      }
      out->corners = ProjectOntoBox(surface, vertices, origin_m, tile_m);
    } else if (texture.has_planar()) {
      const v1::PlanarProjection& planar = texture.planar();
      const Eigen::Vector3d origin_m = ToEigen(planar.origin_m());
      const Eigen::Vector3d u = DirectionOr(planar.has_u_direction(), planar.u_direction(), Eigen::Vector3d::UnitX());
      const Eigen::Vector3d v = DirectionOr(planar.has_v_direction(), planar.v_direction(), Eigen::Vector3d::UnitY());
      for (const Eigen::Vector3d& p : vertices) places.emplace_back((p - origin_m).dot(u) / tile_m, (p - origin_m).dot(v) / tile_m);
    } else {
      const auto around = [&](const auto& spec, bool is_sphere) {
        const Eigen::Vector3d center_m = spec.has_center_m() ? ToEigen(spec.center_m()) : Eigen::Vector3d(box.center());
        const Eigen::Vector3d axis = DirectionOr(spec.has_axis(), spec.axis(), Eigen::Vector3d::UnitZ());
        return ProjectAround(vertices, surface.vertices, center_m, axis, is_sphere);
      };
      Around found = texture.has_cylindrical() ? around(texture.cylindrical(), false) : around(texture.spherical(), true);
      out->u_period = std::max(1.0, std::round(kTurn * found.radius_m / tile_m));
      for (Eigen::Vector2d& place : found.places) place = {out->u_period * place.x(), place.y() / tile_m};
      places = std::move(found.places);
    }
    for (const Eigen::Vector2d& place : places) {
      if (!(place.cwiseAbs().maxCoeff() <= kMaxCoordinate)) return TooFar(projection_path, place.cwiseAbs().maxCoeff());
    }
  }
  out->coordinates.reserve(places.size());
  for (const Eigen::Vector2d& place : places) {
    std::array<float, 2>& value = out->coordinates.emplace_back();
    value = {static_cast<float>(place.x()), static_cast<float>(place.y())};
    if (out->u_period > 0 && value[0] >= out->u_period) value[0] = 0;  // by rounding
  }
  if (body.has_shell() && !out->coordinates.empty()) {
    out->corners = ToCorners(surface, out->coordinates, out->u_period);
    out->coordinates.clear();
    out->u_period = 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const sim::TextureImage>> LookLoader::LoadImage(const std::string& name, const std::string& field) {
  absl::StatusOr<std::filesystem::path> file = assets_.Resolve(name);
  if (!file.ok()) return Annotate(file.status(), field);
  std::shared_ptr<const sim::TextureImage>& image = images_[*file];
  if (image != nullptr) return image;
  absl::StatusOr<std::shared_ptr<const sim::TextureImage>> read = ReadImageFile(*file, name);
  if (!read.ok()) {
    return absl::Status(read.status().code(), absl::StrCat(field, ": ", assets_.Redact(std::string(read.status().message()))));
  }
  total_bytes_ += (*read)->bytes.size();
  if (total_bytes_ > kMaxSceneImageBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(field, ": the scene's pictures have more than ", kMaxSceneImageBytes, " bytes together"));
  }
  image = *std::move(read);
  return image;
}

absl::Status LookLoader::LoadAtlas(const v1::BodySpec& body, const std::string& field, const sim::TetMesh& mesh,
                                   const sim::BoundarySurface& boundary, BodyLook* look) {
  const std::string& name = body.texture().surface_file();
  absl::StatusOr<std::filesystem::path> file = assets_.Resolve(name);
  if (!file.ok()) return Annotate(file.status(), field);
  // Names in the surface's files count from its folder. Where the scene's files are copied, they need not lie beside it.
  const auto beside = [&name](const std::string& other) { return (std::filesystem::path(name).parent_path() / other).generic_string(); };
  absl::StatusOr<sim::TexturedSurface> surface =
      sim::ReadTexturedObj(*file, [&](const std::string& library) { return assets_.Resolve(beside(library)); });
  if (!surface.ok()) {
    return absl::Status(surface.status().code(), absl::StrCat(field, ": ", assets_.Redact(std::string(surface.status().message()))));
  }
  if (surface->texture_corners.empty())
    return absl::InvalidArgumentError(absl::StrCat(field, ": the surface has no texture coordinates (vt)"));
  sim::TransferredTexture transferred = sim::TransferTexture(*surface, mesh, boundary);
  for (const auto& corners : transferred.corners) {
    sim::CornerCoordinates& value = look->corners.emplace_back();
    for (size_t c = 0; c < 3; ++c) value[c] = {static_cast<float>(corners[c].x()), static_cast<float>(corners[c].y())};
  }
  look->triangle_materials = std::move(transferred.materials);
  look->materials = std::move(surface->materials);
  if (!body.texture().image_file().empty()) return absl::OkStatus();
  std::string picture;
  for (const sim::SurfaceMaterial& material : look->materials) {
    if (material.image_file.empty() || material.image_file == picture) continue;
    if (!picture.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": its materials have several pictures, ", picture, " and ",
                                                     material.image_file, "; a body shows one, see image_file"));
    }
    picture = material.image_file;
  }
  if (picture.empty()) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(look->image, LoadImage(beside(picture), field));
  return absl::OkStatus();
}

absl::StatusOr<BodyLook> LookLoader::Load(const v1::BodySpec& body, const std::string& path, const sim::TetMesh& mesh,
                                          const sim::BoundarySurface& surface) {
  BodyLook look;
  const std::string texture_path = At(path, "texture");
  if (!body.texture().image_file().empty()) {
    PALPATE_ASSIGN_OR_RETURN(look.image, LoadImage(body.texture().image_file(), At(texture_path, "image_file")));
  }
  if (body.texture().has_surface_file()) PALPATE_RETURN_IF_ERROR(LoadAtlas(body, At(texture_path, "surface_file"), mesh, surface, &look));
  return look;
}

namespace {

/// How many of the first bytes are one character of UTF-8 (RFC 3629); 0: they are none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&text](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t count = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < count; ++i) {
    if (byte(i) < 0x80 || byte(i) >= 0xc0) return 0;
  }
  const bool is_long = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);  // longer than it has to be
  const bool is_none = (lead == 0xed && byte(1) >= 0xa0) || (lead == 0xf4 && byte(1) >= 0x90);
  return is_long || is_none ? 0 : count;
}

/// A name from a file as clients can take it: a question mark stands for what is no character, and what is too long ends early.
std::string ZoneName(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    const size_t count = CharacterBytes(name);
    const bool is_shown = count > 1 || (count == 1 && name[0] >= ' ' && name[0] != 0x7f);
    const std::string_view piece = is_shown ? name.substr(0, count) : "?";
    if (out.size() + piece.size() > kMaxNameBytes) break;
    out += piece;
    name.remove_prefix(std::max<size_t>(count, 1));
  }
  return out.empty() ? "no material" : out;
}

}  // namespace

void AddMaterialZones(const BodyLook& look, sim::BodyDescription* out) {
  if (look.triangle_materials.empty() || look.materials.size() < 2 || out->kind != sim::BodyKind::kDeformable) return;
  const auto key = [](std::array<uint32_t, 3> corners) {
    std::sort(corners.begin(), corners.end());
    return corners;
  };
  std::set<std::array<uint32_t, 3>> taken;
  for (const sim::SurfaceZoneDescription& zone : out->surface_zones) {
    for (const auto& triangle : zone.triangles) taken.insert(key(triangle));
  }
  std::vector<sim::SurfaceZoneDescription> zones(look.materials.size());
  const sim::BoundarySurface boundary = sim::SurfaceOf(*out);
  for (size_t t = 0; t < boundary.triangles.size(); ++t) {
    std::array<uint32_t, 3> corners{};
    for (size_t c = 0; c < 3; ++c) corners[c] = boundary.vertices[boundary.triangles[t][c]];
    if (!taken.contains(key(corners))) zones[look.triangle_materials[t]].triangles.push_back(corners);
  }
  for (size_t m = 0; m < zones.size(); ++m) {
    if (zones[m].triangles.empty()) continue;
    zones[m].name = ZoneName(look.materials[m].name);
    const std::array<float, 3>& color = look.materials[m].color;
    zones[m].color = {color[0], color[1], color[2]};
    out->surface_zones.push_back(std::move(zones[m]));
  }
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
