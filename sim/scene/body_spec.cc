#include "sim/scene/body_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <unordered_set>
#include <utility>

#include <Eigen/Geometry>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/scene/nurbs_description.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene {
namespace {

constexpr uint8_t kAllAxes = 7;
constexpr double kDefaultFacingAngle_rad = std::numbers::pi / 4;

Region RegionOf(const v1::LoadSpec& r) {
  return {r.has_box() ? &r.box() : nullptr, r.has_ball() ? &r.ball() : nullptr, r.has_vertices() ? &r.vertices() : nullptr};
}
Region RegionOf(const v1::SurfaceZoneSpec& r) { return {r.has_box() ? &r.box() : nullptr, r.has_ball() ? &r.ball() : nullptr, nullptr}; }

/// Triangles of the surface as vertices of the mesh, outwards.
std::vector<std::array<uint32_t, 3>> SurfaceTriangles(const sim::BodyDescription& body) {
  const sim::BoundarySurface surface = sim::SurfaceOf(body);
  std::vector<std::array<uint32_t, 3>> out;
  out.reserve(surface.triangles.size());
  for (const auto& t : surface.triangles) out.push_back({surface.vertices[t[0]], surface.vertices[t[1]], surface.vertices[t[2]]});
  return out;
}

/// Whether a triangle of the surface has all of its vertices in the ascending list.
bool HasTriangleOf(const std::vector<uint32_t>& vertices, const sim::BodyDescription& body) {
  const std::vector<std::array<uint32_t, 3>> triangles = SurfaceTriangles(body);
  return std::any_of(triangles.begin(), triangles.end(), [&](const std::array<uint32_t, 3>& t) {
    return std::all_of(t.begin(), t.end(), [&](uint32_t v) { return std::binary_search(vertices.begin(), vertices.end(), v); });
  });
}

void CheckLoad(Checker& check, const std::string& path, const v1::LoadSpec& load) {
  if (!load.has_surface_zone()) CheckRegion(check, path, RegionOf(load), "box, ball, vertices, surface_zone");
  switch (load.load_case()) {
    case v1::LoadSpec::kPressurePa:
      check.Range(At(path, "pressure_pa"), load.pressure_pa(), -1e7, 1e7);
      break;
    case v1::LoadSpec::kForceN:
      check.RangeVec(At(path, "force_n"), load.force_n(), -1e5, 1e5);
      break;
    case v1::LoadSpec::LOAD_NOT_SET:
      check.Invalid(path, "no load is given; one of pressure_pa, force_n is needed");
      break;
  }
  if (load.has_start_s()) check.Range(At(path, "start_s"), load.start_s(), 0, 3600);
  if (load.has_duration_s()) check.RangeAbove(At(path, "duration_s"), load.duration_s(), 0, 3600);
}

}  // namespace

Region RegionOf(const v1::FixedRegion& region) {
  return {region.has_box() ? &region.box() : nullptr, nullptr, region.has_vertices() ? &region.vertices() : nullptr};
}

Region RegionOf(const v1::ZoneSpec& r) {
  return {r.has_box() ? &r.box() : nullptr, r.has_ball() ? &r.ball() : nullptr, nullptr, r.has_mesh_group() ? &r.mesh_group() : nullptr};
}

void CheckRegion(Checker& check, const std::string& path, const Region& region, std::string_view kinds) {
  if (region.box != nullptr) {
    const v1::Vec3& low = region.box->min_m();
    const v1::Vec3& high = region.box->max_m();
    check.RangeVec(At(path, "box.min_m"), low, -kMaxMeshCoordinate, kMaxMeshCoordinate);
    check.RangeVec(At(path, "box.max_m"), high, -kMaxMeshCoordinate, kMaxMeshCoordinate);
    const auto order = [&](std::string_view axis, double a, double b) {
      if (a > b) check.Invalid(At(path, absl::StrCat("box.min_m.", View(axis))), absl::StrCat(a, " is above max_m.", View(axis), " = ", b));
    };
    order("x", low.x(), high.x());
    order("y", low.y(), high.y());
    order("z", low.z(), high.z());
  } else if (region.ball != nullptr) {
    check.RangeVec(At(path, "ball.center_m"), region.ball->center_m(), -kMaxMeshCoordinate, kMaxMeshCoordinate);
    check.RangeAbove(At(path, "ball.radius_m"), region.ball->radius_m(), 0, 10);
  } else if (region.vertices != nullptr) {
    if (region.vertices->indices().empty()) check.Invalid(At(path, "vertices.indices"), "the list is empty");
  } else if (region.mesh_group != nullptr) {
    check.RequiredName(At(path, "mesh_group"), *region.mesh_group, kMaxNameBytes);
  } else {
    check.Invalid(path, absl::StrCat("no region is given; one of ", View(kinds), " is needed"));
  }
}

absl::StatusOr<std::vector<uint32_t>> PointsInside(const Region& region, const std::string& path, std::span<const Eigen::Vector3d> points,
                                                   std::string_view what) {
  const Eigen::AlignedBox3d box =
      region.box != nullptr ? Eigen::AlignedBox3d(ToEigen(region.box->min_m()), ToEigen(region.box->max_m())) : Eigen::AlignedBox3d();
  const Eigen::Vector3d center = region.ball != nullptr ? ToEigen(region.ball->center_m()) : Eigen::Vector3d::Zero();
  std::vector<uint32_t> out;
  Eigen::AlignedBox3d bounds;
  for (size_t i = 0; i < points.size(); ++i) {
    bounds.extend(points[i]);
    const bool inside = region.box != nullptr ? box.contains(points[i]) : (points[i] - center).norm() <= region.ball->radius_m();
    if (inside) out.push_back(static_cast<uint32_t>(i));
  }
  if (out.empty()) {
    const auto text = [](const Eigen::Vector3d& p) { return absl::StrCat("(", p.x(), ", ", p.y(), ", ", p.z(), ")"); };
    return absl::InvalidArgumentError(absl::StrCat(path, region.box != nullptr ? ".box" : ".ball", ": holds no ", View(what),
                                                   " of the body, which lies between ", text(bounds.min()), " and ", text(bounds.max())));
  }
  return out;
}

absl::StatusOr<std::vector<uint32_t>> RegionVertices(const Region& region, const std::string& path, const sim::TetMesh& mesh) {
  if (region.vertices == nullptr) return PointsInside(region, path, mesh.vertices, "vertex");
  const size_t count = mesh.vertices.size();
  std::vector<uint32_t> out;
  for (int i = 0; i < region.vertices->indices_size(); ++i) {
    const uint32_t v = region.vertices->indices(i);
    if (v >= count) {
      return absl::InvalidArgumentError(absl::StrCat(path, ".vertices.indices[", i, "]: ", v, " is outside [0, ", count - 1, "]"));
    }
    out.push_back(v);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

absl::StatusOr<std::vector<uint32_t>> GroupTets(const std::string& group, const std::string& path, const sim::TetMesh& mesh) {
  uint32_t number = 0;
  const auto named = std::find_if(mesh.groups.begin(), mesh.groups.end(), [&](const sim::MeshGroup& g) { return g.name == group; });
  if (named != mesh.groups.end()) {
    number = named->number;
  } else if (!absl::SimpleAtoi(group, &number)) {
    number = 0;
  }
  std::vector<uint32_t> out;
  for (uint32_t t = 0; number != 0 && t < mesh.tet_groups.size(); ++t) {
    if (mesh.tet_groups[t] == number) out.push_back(t);
  }
  if (!out.empty()) return out;
  std::string names;
  for (const sim::MeshGroup& g : mesh.groups) absl::StrAppend(&names, names.empty() ? "" : ", ", g.name, " (", g.number, ")");
  std::vector<uint32_t> numbers = mesh.tet_groups;
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  constexpr size_t kMaxListed = 20;
  for (size_t i = 0; names.empty() && i < std::min(numbers.size(), kMaxListed); ++i)
    absl::StrAppend(&names, i == 0 ? "numbers " : ", ", numbers[i]);
  return absl::InvalidArgumentError(absl::StrCat(path, ".mesh_group: no tet of the mesh is in a group \"", group, "\"; ",
                                                 names.empty() ? "the mesh has no groups" : absl::StrCat("the mesh has ", names)));
}

void CheckColor(Checker& check, const std::string& path, const v1::Color& color) {
  check.Range(At(path, "r"), color.r(), 0, 1);
  check.Range(At(path, "g"), color.g(), 0, 1);
  check.Range(At(path, "b"), color.b(), 0, 1);
}

Eigen::Vector3f ColorFrom(const v1::Color& color) { return Eigen::Vector3d(color.r(), color.g(), color.b()).cast<float>(); }

void CheckSurfaceZones(Checker& check, const std::string& path, const v1::BodySpec& body) {
  check.Count(At(path, "surface_zones"), body.surface_zones_size(), 0, kMaxZones);
  // Those that every body has, see docs/streaming.md.
  std::unordered_set<std::string> names = {"surface", "inside"};
  for (const v1::ZoneSpec& zone : body.zones()) names.insert(absl::StrCat("inside ", zone.name()));
  for (int i = 0; i < body.surface_zones_size() && check.ok(); ++i) {
    const v1::SurfaceZoneSpec& zone = body.surface_zones(i);
    const std::string zone_path = At(At(path, "surface_zones"), i);
    check.RequiredName(At(zone_path, "name"), zone.name(), kMaxNameBytes);
    check.Unique(At(zone_path, "name"), zone.name(), names);
    CheckRegion(check, zone_path, RegionOf(zone), "box, ball");
    if (zone.has_facing()) {
      check.RangeVec(At(zone_path, "facing"), zone.facing(), -kMaxMeshCoordinate, kMaxMeshCoordinate);
      if (check.ok() && ToEigen(zone.facing()).isZero(0)) check.Invalid(At(zone_path, "facing"), "is zero");
    }
    if (zone.has_max_angle_rad()) {
      check.RangeAbove(At(zone_path, "max_angle_rad"), zone.max_angle_rad(), 0, std::numbers::pi);
      if (!zone.has_facing()) check.Invalid(At(zone_path, "max_angle_rad"), "an angle needs a direction: facing");
    }
    if (zone.has_color()) CheckColor(check, At(zone_path, "color"), zone.color());
  }
}

absl::Status BuildSurfaceZones(const v1::BodySpec& body, const std::string& path, sim::BodyDescription& out) {
  if (body.surface_zones().empty()) return absl::OkStatus();
  constexpr int kNone = -1;
  const std::vector<std::array<uint32_t, 3>> triangles = SurfaceTriangles(out);
  std::vector<Eigen::Vector3d> centroids;
  std::vector<Eigen::Vector3d> normals;
  for (const auto& t : triangles) {
    const std::array<Eigen::Vector3d, 3> x = {out.mesh.vertices[t[0]], out.mesh.vertices[t[1]], out.mesh.vertices[t[2]]};
    centroids.push_back((x[0] + x[1] + x[2]) / 3);
    normals.push_back((x[1] - x[0]).cross(x[2] - x[0]));
  }
  std::vector<int> zone_of(triangles.size(), kNone);  // the last one
  for (int z = 0; z < body.surface_zones_size(); ++z) {
    const v1::SurfaceZoneSpec& spec = body.surface_zones(z);
    const std::string zone_path = At(At(path, "surface_zones"), z);
    PALPATE_ASSIGN_OR_RETURN(std::vector<uint32_t> inside,
                             PointsInside(RegionOf(spec), zone_path, centroids, "centroid of a surface triangle"));
    if (spec.has_facing()) {
      const Eigen::Vector3d facing = Direction(ToEigen(spec.facing()));
      const double angle_rad = spec.has_max_angle_rad() ? spec.max_angle_rad() : kDefaultFacingAngle_rad;
      const size_t in_region = inside.size();
      std::erase_if(inside, [&](uint32_t t) { return std::atan2(normals[t].cross(facing).norm(), normals[t].dot(facing)) > angle_rad; });
      if (inside.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(zone_path, ".facing: none of the ", in_region,
                                                       " surface triangles in the region is within ", angle_rad, " rad of it"));
      }
    }
    for (const uint32_t t : inside) zone_of[t] = z;
  }
  for (int z = 0; z < body.surface_zones_size(); ++z) {
    sim::SurfaceZoneDescription zone;
    zone.name = body.surface_zones(z).name();
    zone.color = body.surface_zones(z).has_color() ? ColorFrom(body.surface_zones(z).color()) : out.color;
    for (size_t t = 0; t < triangles.size(); ++t) {
      if (zone_of[t] == z) zone.triangles.push_back(triangles[t]);
    }
    if (zone.triangles.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(At(At(path, "surface_zones"), z), ": all of its triangles belong to zones after it, which win"));
    }
    out.surface_zones.push_back(std::move(zone));
  }
  return absl::OkStatus();
}

void CheckLoads(Checker& check, const std::string& path, const v1::BodySpec& body) {
  for (int i = 0; i < body.loads_size() && check.ok(); ++i) {
    const v1::LoadSpec& load = body.loads(i);
    const std::string load_path = At(At(path, "loads"), i);
    CheckLoad(check, load_path, load);
    if (!load.has_surface_zone()) continue;
    std::string names;
    bool is_known = false;
    for (const v1::SurfaceZoneSpec& zone : body.surface_zones()) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", zone.name());
      is_known |= zone.name() == load.surface_zone();
    }
    if (is_known) continue;
    check.Invalid(At(load_path, "surface_zone"), absl::StrCat("\"", load.surface_zone(), "\" is none of the body's surface_zones",
                                                              names.empty() ? ", of which there are none" : ": ", names));
  }
}

absl::Status BuildLoads(const v1::BodySpec& body, const std::string& path, sim::BodyDescription& out) {
  for (int i = 0; i < body.loads_size(); ++i) {
    const v1::LoadSpec& spec = body.loads(i);
    const std::string load_path = At(At(path, "loads"), i);
    sim::LoadDescription load;
    if (spec.has_surface_zone()) {
      const auto zone = std::find_if(out.surface_zones.begin(), out.surface_zones.end(),
                                     [&](const auto& named) { return named.name == spec.surface_zone(); });
      load.surface_zone = static_cast<int>(zone - out.surface_zones.begin());
    } else {
      PALPATE_ASSIGN_OR_RETURN(load.vertices, RegionVertices(RegionOf(spec), load_path, out.mesh));
      if (spec.load_case() == v1::LoadSpec::kPressurePa && !HasTriangleOf(load.vertices, out)) {
        const char* field = spec.has_box() ? "box" : spec.has_ball() ? "ball" : "vertices";
        return absl::InvalidArgumentError(absl::StrCat(At(load_path, field), ": no surface triangle has all of its vertices among the ",
                                                       load.vertices.size(), " vertices of the region: the pressure would act on nothing"));
      }
    }
    if (spec.load_case() == v1::LoadSpec::kPressurePa) load.pressure_pa = spec.pressure_pa();
    if (spec.load_case() == v1::LoadSpec::kForceN) load.force_n = ToEigen(spec.force_n());
    if (spec.has_start_s()) load.start_s = spec.start_s();
    if (spec.has_duration_s()) load.duration_s = spec.duration_s();
    out.loads.push_back(std::move(load));
  }
  return absl::OkStatus();
}

}  // namespace palpate::scene
