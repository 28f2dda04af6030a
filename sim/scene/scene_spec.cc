#include "sim/scene/scene_spec.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/mesh/generators.h"
#include "sim/mesh/mesh_io.h"
#include "sim/scene/body_spec.h"
#include "sim/scene/checker.h"
#include "sim/scene/joint_spec.h"
#include "sim/scene/marker_spec.h"
#include "sim/scene/material.h"
#include "sim/scene/material_spec.h"
#include "sim/scene/motion_spec.h"
#include "sim/scene/nurbs_body_spec.h"
#include "sim/scene/nurbs_shell_body.h"
#include "sim/scene/shell_material.h"
#include "sim/scene/shell_spec.h"
#include "sim/scene/solver_advice.h"
#include "sim/scene/suture_spec.h"
#include "sim/scene/texture_spec.h"
#include "sim/scene/tool_spec.h"

namespace palpate::scene {
namespace {

constexpr float kInteriorShade = 0.7F;  // of surfaces that cuts uncover
constexpr double kMinClusterSize_m = 1e-5;
constexpr double kMaxTextureCoordinate = 1e6;  // in tiles
constexpr double kMaxWind_m_per_s = 200;
constexpr double kMaxAirDensity_kg_per_m3 = 2000;

template <typename T>
double Or(bool has, T value, double fallback) {
  return has ? static_cast<double>(value) : fallback;
}

struct Torus {
  double major_radius_m, minor_radius_m;
};
Torus TorusOf(const v1::TorusShape& t) {
  return {Or(t.has_major_radius_m(), t.major_radius_m(), 0.06), Or(t.has_minor_radius_m(), t.minor_radius_m(), 0.02)};
}
struct Knot {
  sim::KnotEnds ends;
  double extent_m, tube_radius_m;
};
Knot KnotOf(const v1::KnotShape& k) {
  const double extent_m = Or(k.has_extent_m(), k.extent_m(), 0.2);
  const double ratio = k.open() ? sim::kDefaultOpenKnotTubePerExtent : sim::kDefaultClosedKnotTubePerExtent;
  return {k.open() ? sim::KnotEnds::kOpen : sim::KnotEnds::kClosed, extent_m,
          Or(k.has_tube_radius_m(), k.tube_radius_m(), ratio * extent_m)};
}
struct Sheet {
  double length_m, width_m, thickness_m;
  uint32_t layer_count;
};
Sheet SheetOf(const v1::SheetShape& s) {
  return {Or(s.has_length_m(), s.length_m(), 0.2), Or(s.has_width_m(), s.width_m(), 0.2), Or(s.has_thickness_m(), s.thickness_m(), 0.004),
          s.has_layer_count() ? s.layer_count() : 1};
}
Eigen::Vector3d SlabSize(const v1::SlabShape& s) { return s.has_size_m() ? ToEigen(s.size_m()) : Eigen::Vector3d(0.1, 0.1, 0.02); }

/// What bounds the edge length and the number of tets of a generated shape; precondition: its fields are in range.
struct Extent {
  double extent_m = 0;        ///< largest one
  double volume_m3 = 0;       ///< lower bound
  double longest_edge_m = 0;  ///< 0: the extent
  double default_edge_m = 0;  ///< 0: a kDefaultEdgesPerExtent-th of the extent
  double layers_area_m2 = 0;  ///< of all layers of a shape whose cells count by area, not by volume
};
Extent ExtentOf(const v1::GeneratorSpec& g) {
  switch (g.shape_case()) {
    case v1::GeneratorSpec::kLiver: {
      const double length = Or(g.liver().has_length_m(), g.liver().length_m(), 0.2);
      return {length, 0.1 * length * length * length};
    }
    case v1::GeneratorSpec::kTorus: {
      const Torus t = TorusOf(g.torus());
      return {2 * (t.major_radius_m + t.minor_radius_m),
              2 * std::numbers::pi * std::numbers::pi * t.major_radius_m * t.minor_radius_m * t.minor_radius_m};
    }
    case v1::GeneratorSpec::kSlab: {
      const Eigen::Vector3d size = SlabSize(g.slab());
      return {size.maxCoeff(), size.prod()};
    }
    case v1::GeneratorSpec::kSphere: {
      const double r = Or(g.sphere().has_radius_m(), g.sphere().radius_m(), 0.05);
      return {2 * r, 4.0 / 3.0 * std::numbers::pi * r * r * r};
    }
    case v1::GeneratorSpec::kKidney: {
      const double length = Or(g.kidney().has_length_m(), g.kidney().length_m(), 0.11);
      return {length, 0.09 * length * length * length};
    }
    case v1::GeneratorSpec::kKnot: {
      const Knot k = KnotOf(g.knot());
      const double length = (g.knot().open() ? sim::kOpenKnotLengthPerExtent : sim::kClosedKnotLengthPerExtent) * k.extent_m;
      return {k.extent_m, 2.5 * k.tube_radius_m * k.tube_radius_m * length, k.tube_radius_m, k.tube_radius_m};
    }
    case v1::GeneratorSpec::kSheet: {
      const Sheet s = SheetOf(g.sheet());
      Extent e;
      e.extent_m = std::max(s.length_m, s.width_m);
      e.layers_area_m2 = s.length_m * s.width_m * s.layer_count;
      return e;
    }
    case v1::GeneratorSpec::SHAPE_NOT_SET:
      break;
  }
  return {};
}

void CheckTets(Checker& check, std::string_view path, uint64_t tets, const SceneLimits& limits, std::string_view about) {
  if (tets > limits.max_tets_per_scene) {
    check.Fail(absl::ResourceExhaustedError(
        absl::StrCat(View(path), ": ", View(about), tets, " tets exceed the limit max_tets_per_scene = ", limits.max_tets_per_scene)));
  }
}

void CheckGenerator(Checker& check, const std::string& path, const v1::GeneratorSpec& g, const SceneLimits& limits) {
  switch (g.shape_case()) {
    case v1::GeneratorSpec::kLiver:
      if (g.liver().has_length_m()) check.Range(At(path, "liver.length_m"), g.liver().length_m(), 0.01, 1);
      break;
    case v1::GeneratorSpec::kTorus: {
      const Torus t = TorusOf(g.torus());
      check.Range(At(path, "torus.major_radius_m"), t.major_radius_m, 0.005, 1);
      check.RangeInside(At(path, "torus.minor_radius_m"), t.minor_radius_m, 0, t.major_radius_m);
      break;
    }
    case v1::GeneratorSpec::kSlab:
      if (g.slab().has_size_m()) check.RangeVec(At(path, "slab.size_m"), g.slab().size_m(), 0.001, 1);
      break;
    case v1::GeneratorSpec::kSphere:
      if (g.sphere().has_radius_m()) check.Range(At(path, "sphere.radius_m"), g.sphere().radius_m(), 0.001, 1);
      break;
    case v1::GeneratorSpec::kKidney:
      if (g.kidney().has_length_m()) check.Range(At(path, "kidney.length_m"), g.kidney().length_m(), 0.01, 1);
      break;
    case v1::GeneratorSpec::kKnot: {
      const Knot k = KnotOf(g.knot());
      const double thickest = g.knot().open() ? sim::kMaxOpenKnotTubePerExtent : sim::kMaxClosedKnotTubePerExtent;
      check.Range(At(path, "knot.extent_m"), k.extent_m, 0.02, 2);
      check.Range(At(path, "knot.tube_radius_m"), k.tube_radius_m, k.extent_m / sim::kMaxEdgesPerExtent, thickest * k.extent_m);
      break;
    }
    case v1::GeneratorSpec::kSheet: {
      const Sheet s = SheetOf(g.sheet());
      check.Range(At(path, "sheet.length_m"), s.length_m, 0.001, 2);
      check.Range(At(path, "sheet.width_m"), s.width_m, 0.001, 2);
      check.Range(At(path, "sheet.thickness_m"), s.thickness_m, 1e-4, std::min({0.1, s.length_m, s.width_m}));
      check.Range(At(path, "sheet.layer_count"), s.layer_count, 1, 16);
      break;
    }
    case v1::GeneratorSpec::SHAPE_NOT_SET:
      check.Invalid(path, "no shape is given; one of liver, torus, slab, sphere, kidney, knot, sheet is needed");
      break;
  }
  if (!check.ok()) return;
  const Extent e = ExtentOf(g);
  if (g.has_edge_length_m()) {
    check.Range(At(path, "edge_length_m"), g.edge_length_m(), e.extent_m / sim::kMaxEdgesPerExtent,
                e.longest_edge_m > 0 ? e.longest_edge_m : e.extent_m);
  }
  if (!check.ok()) return;
  // Every generator makes at least five tets per cube of the edge length: refuse hopeless ones before the work.
  const double default_m = e.default_edge_m > 0 ? e.default_edge_m : e.extent_m / sim::kDefaultEdgesPerExtent;
  const double edge_m = Or(g.has_edge_length_m(), g.edge_length_m(), default_m);
  const double at_least = 0.5 * 5 * (e.volume_m3 / (edge_m * edge_m * edge_m) + e.layers_area_m2 / (edge_m * edge_m));
  CheckTets(check, At(path, "edge_length_m"), static_cast<uint64_t>(at_least), limits, "more than ");
}

void CheckMeshData(Checker& check, const std::string& path, const v1::TetMeshData& mesh, const SceneLimits& limits) {
  if (mesh.vertices_m_size() % 3 != 0) {
    check.Invalid(At(path, "vertices_m"), absl::StrCat(mesh.vertices_m_size(), " numbers are not a multiple of 3"));
  }
  if (mesh.tets_size() % 4 != 0) check.Invalid(At(path, "tets"), absl::StrCat(mesh.tets_size(), " numbers are not a multiple of 4"));
  const uint64_t tet_count = static_cast<uint64_t>(mesh.tets_size()) / 4;
  const uint64_t vertex_count = static_cast<uint64_t>(mesh.vertices_m_size()) / 3;
  if (tet_count == 0) check.Invalid(At(path, "tets"), "no tetrahedron is given");
  CheckTets(check, At(path, "tets"), tet_count, limits, "");
  if (vertex_count > 4 * tet_count) {
    check.Invalid(At(path, "vertices_m"), absl::StrCat(vertex_count, " vertices cannot all belong to ", tet_count, " tets"));
  }
  if (!check.ok()) return;
  for (int i = 0; i < mesh.vertices_m_size(); ++i) {
    const double x = mesh.vertices_m(i);
    if (!(std::abs(x) <= kMaxMeshCoordinate)) {
      check.Range(At(At(path, "vertices_m"), i), x, -kMaxMeshCoordinate, kMaxMeshCoordinate);
      return;
    }
  }
  const uint64_t texture_count = static_cast<uint64_t>(mesh.texture_coordinates_size());
  if (texture_count != 0 && texture_count != 2 * vertex_count) {
    check.Invalid(At(path, "texture_coordinates"),
                  absl::StrCat(texture_count, " numbers for ", vertex_count, " vertices, must be two for each or none"));
    return;
  }
  for (int i = 0; i < mesh.texture_coordinates_size(); ++i) {
    if (!(std::abs(mesh.texture_coordinates(i)) <= kMaxTextureCoordinate)) {
      check.Range(At(At(path, "texture_coordinates"), i), mesh.texture_coordinates(i), -kMaxTextureCoordinate, kMaxTextureCoordinate);
      return;
    }
  }
  if (mesh.tet_groups_size() != 0 && static_cast<uint64_t>(mesh.tet_groups_size()) != tet_count) {
    check.Invalid(At(path, "tet_groups"),
                  absl::StrCat(mesh.tet_groups_size(), " numbers for ", tet_count, " tets, must be one each or none"));
    return;
  }
  for (int t = 0; t < mesh.tet_groups_size(); ++t) {
    if (mesh.tet_groups(t) > kMaxMeshGroupNumber) {
      check.Invalid(At(At(path, "tet_groups"), t), absl::StrCat(mesh.tet_groups(t), " is outside [0, ", kMaxMeshGroupNumber, "]"));
      return;
    }
  }
  check.Count(At(path, "groups"), mesh.groups_size(), 0, kMaxMeshGroups);
  std::unordered_set<std::string> names;
  std::unordered_set<uint32_t> numbers;
  for (int i = 0; i < mesh.groups_size() && check.ok(); ++i) {
    const std::string group_path = At(At(path, "groups"), i);
    if (mesh.groups(i).number() == 0 || mesh.groups(i).number() > kMaxMeshGroupNumber) {
      check.Invalid(At(group_path, "number"), absl::StrCat(mesh.groups(i).number(), " is outside [1, ", kMaxMeshGroupNumber, "]"));
    }
    if (!numbers.insert(mesh.groups(i).number()).second) {
      check.Invalid(At(group_path, "number"), absl::StrCat(mesh.groups(i).number(), " is that of a group before it"));
    }
    check.RequiredName(At(group_path, "name"), mesh.groups(i).name(), kMaxNameBytes);
    check.Unique(At(group_path, "name"), mesh.groups(i).name(), names);
  }
  if (!check.ok()) return;
  for (int i = 0; i < mesh.tets_size(); ++i) {
    if (mesh.tets(i) >= vertex_count) {
      check.Invalid(At(At(path, "tets"), i), absl::StrCat(mesh.tets(i), " is outside [0, ", vertex_count - 1, "]"));
      return;
    }
  }
}

void CheckAblation(Checker& check, const std::string& path, const v1::AblationSpec& ablation) {
  if (ablation.has_energy_j_per_kg()) check.Range(At(path, "energy_j_per_kg"), ablation.energy_j_per_kg(), 1, 1e9);
  if (ablation.has_cooling_time_s()) check.Range(At(path, "cooling_time_s"), ablation.cooling_time_s(), 0, 1e4);
}

void CheckZones(Checker& check, const std::string& path, const v1::BodySpec& body) {
  check.Count(At(path, "zones"), body.zones_size(), 0, kMaxZones);
  std::unordered_set<std::string> names;
  for (int i = 0; i < body.zones_size() && check.ok(); ++i) {
    const v1::ZoneSpec& zone = body.zones(i);
    const std::string zone_path = At(At(path, "zones"), i);
    if (zone.name().empty()) check.Invalid(At(zone_path, "name"), "a zone needs a name");
    check.Name(At(zone_path, "name"), zone.name(), kMaxNameBytes);
    check.Unique(At(zone_path, "name"), zone.name(), names);
    CheckRegion(check, zone_path, RegionOf(zone), "box, ball, mesh_group");
    CheckMaterial(check, At(zone_path, "material"), zone.material());
    if (zone.has_interior_color()) CheckColor(check, At(zone_path, "interior_color"), zone.interior_color());
    CheckAblation(check, At(zone_path, "ablation"), zone.ablation());
    if (zone.has_thickness_m() && !body.has_shell()) check.Invalid(At(zone_path, "thickness_m"), "only a shell of triangles has one");
    if (zone.has_shell() && !body.has_shell()) check.Invalid(At(zone_path, "shell"), "the body is no shell of triangles");
  }
}

uint32_t CountOf(bool given, uint32_t count) { return given ? count : 1; }

/// Bodies that a BodySpec stands for.
uint64_t CopyCount(const v1::BodySpec& body) {
  const v1::BodyArray& array = body.array();
  return uint64_t{CountOf(array.has_count_x(), array.count_x())} * CountOf(array.has_count_y(), array.count_y()) *
         CountOf(array.has_count_z(), array.count_z());
}

void CheckArray(Checker& check, const std::string& path, const v1::BodySpec& body) {
  for (const auto& [axis, count] : {std::pair("count_x", CountOf(body.array().has_count_x(), body.array().count_x())),
                                    std::pair("count_y", CountOf(body.array().has_count_y(), body.array().count_y())),
                                    std::pair("count_z", CountOf(body.array().has_count_z(), body.array().count_z()))}) {
    check.Range(At(At(path, "array"), axis), count, 1, kMaxCopies);
  }
  check.RangeVec(At(path, "array.spacing_m"), body.array().spacing_m(), 0, kMaxCoordinate_m);
}

sim::TetElement ElementFrom(const v1::BodySpec& body) {
  return body.tet_element() == v1::TET_ELEMENT_NODE_SMOOTHED ? sim::TetElement::kNodeSmoothed : sim::TetElement::kLinear;
}

/// Which bodies are node-smoothed, and of what.
void CheckTetElement(Checker& check, const std::string& path, const v1::BodySpec& body) {
  if (!v1::TetElement_IsValid(body.tet_element())) {
    check.Invalid(At(path, "tet_element"), absl::StrCat(static_cast<int>(body.tet_element()), " is outside [0, 2]"));
  }
  const bool is_deformable = body.kind() == v1::BODY_KIND_UNSPECIFIED || body.kind() == v1::BODY_KIND_DEFORMABLE;
  const bool is_dynamic = body.simulation() == v1::SIMULATION_UNSPECIFIED || body.simulation() == v1::SIMULATION_DYNAMIC;
  // What is not deformable or not dynamic is refused whatever else it is.
  const absl::Status fits =
      sim::CheckElementFor(ElementFrom(body), is_deformable ? sim::BodyKind::kDeformable : sim::BodyKind::kRigid,
                           is_dynamic ? sim::Simulation::kDynamic : sim::Simulation::kPrecomputed, !body.has_shell() && !body.has_nurbs());
  if (!fits.ok()) check.Invalid(At(path, "tet_element"), std::string(fits.message()));
  const auto look_at = [&](const v1::MaterialSpec& material, const std::string& of) {
    const absl::Status status =
        sim::CheckMaterialFor(sim::Simulation::kDynamic, ElementFrom(body), MaterialFrom(material, Eigen::Quaterniond::Identity()));
    if (!status.ok()) check.Fail(Annotate(status, of));
  };
  look_at(body.material(), At(path, "material"));
  for (int z = 0; z < body.zones_size(); ++z) {
    if (body.zones(z).has_material()) look_at(body.zones(z).material(), At(At(At(path, "zones"), z), "material"));
  }
}

/// What only bodies of one kind can have.
void CheckBodyKind(Checker& check, const std::string& path, const v1::BodySpec& body) {
  if (!v1::BodyKind_IsValid(body.kind())) {
    check.Invalid(At(path, "kind"), absl::StrCat(static_cast<int>(body.kind()), " is outside [0, 3]"));
    return;
  }
  const bool is_rigid = body.kind() == v1::BODY_KIND_RIGID;
  const bool is_static = body.kind() == v1::BODY_KIND_STATIC;
  if (!v1::Simulation_IsValid(body.simulation())) {
    check.Invalid(At(path, "simulation"), absl::StrCat(static_cast<int>(body.simulation()), " is outside [0, 4]"));
    return;
  }
  if (body.simulation() == v1::SIMULATION_PRECOMPUTED || body.simulation() == v1::SIMULATION_HYBRID) {
    const auto refuse = [&](const char* field, const char* what) {
      check.Invalid(At(path, field), absl::StrCat(what, " needs simulation SIMULATION_DYNAMIC"));
    };
    if (is_rigid || is_static) check.Invalid(At(path, "simulation"), "only a deformable body can be pre-computed or hybrid");
    if (!body.loads().empty()) refuse("loads", "a load");
    const v1::Vec3& v = body.velocity_m_per_s();
    if (v.x() != 0 || v.y() != 0 || v.z() != 0) refuse("velocity_m_per_s", "a velocity");
    for (int i = 0; i < body.fixed_size(); ++i) {
      if (body.fixed(i).has_motion()) refuse("fixed", "a region that moves");
      const v1::FixedRegion& fixed = body.fixed(i);
      if (Slides(fixed))
        refuse(absl::StrCat("fixed[", i,
                            fixed.free_x()   ? "].free_x"
                            : fixed.free_y() ? "].free_y"
                                             : "].free_z")
                   .c_str(),
               "a support that slides");
    }
    if (body.fixed().empty()) check.Invalid(At(path, "fixed"), "a pre-computed or hybrid body needs regions that hold it");
  }
  if ((is_rigid || is_static) && !body.fixed().empty()) {
    check.Invalid(At(path, "fixed"), "only a deformable body has fixed regions");
  }
  if ((is_rigid || is_static) && !body.zones().empty()) check.Invalid(At(path, "zones"), "only a deformable body has zones");
  if ((is_rigid || is_static) && !body.surface_zones().empty()) {
    check.Invalid(At(path, "surface_zones"), "only a deformable body has surface zones");
  }
  if ((is_rigid || is_static) && !body.loads().empty()) check.Invalid(At(path, "loads"), "only a deformable body has loads");
  if ((is_rigid || is_static) && body.has_self_collision() && body.self_collision()) {
    check.Invalid(At(path, "self_collision"), "only a deformable body can meet itself");
  }
  if (body.volume_stiffness_pa() != 0 &&
      (is_rigid || is_static || (body.simulation() != v1::SIMULATION_UNSPECIFIED && body.simulation() != v1::SIMULATION_DYNAMIC))) {
    check.Invalid(At(path, "volume_stiffness_pa"), "only a deformable body with simulation SIMULATION_DYNAMIC keeps its volume");
  }
  CheckTetElement(check, path, body);
  const auto moves = [](const v1::Vec3& v) { return v.x() != 0 || v.y() != 0 || v.z() != 0; };
  if (!is_rigid && moves(body.angular_velocity_rad_per_s())) {
    check.Invalid(At(path, "angular_velocity_rad_per_s"), "only a rigid body starts to turn");
  }
  if (body.has_angular_damping_per_s()) {
    if (!is_rigid) check.Invalid(At(path, "angular_damping_per_s"), "only a rigid body has it");
    check.Range(At(path, "angular_damping_per_s"), body.angular_damping_per_s(), 0, 1000);
  }
  if (body.has_restitution()) {
    if (!is_rigid && !is_static)
      check.Invalid(At(path, "restitution"), "only rigid and static bodies have it; tissue bounces as its material does");
    check.Range(At(path, "restitution"), body.restitution(), 0, 1);
  }
  if (body.has_drag_coefficient()) {
    const bool is_precomputed = body.simulation() == v1::SIMULATION_PRECOMPUTED || body.simulation() == v1::SIMULATION_HYBRID;
    if (is_static || is_precomputed)
      check.Invalid(At(path, "drag_coefficient"), "air does not move static, pre-computed and hybrid bodies");
    check.Range(At(path, "drag_coefficient"), body.drag_coefficient(), 0, 100);
  }
  if (is_static && moves(body.velocity_m_per_s())) check.Invalid(At(path, "velocity_m_per_s"), "a static body does not move");
}

/// What only bodies of one kind of simulation can have.
void CheckSimulation(Checker& check, const std::string& path, const v1::BodySpec& body) {
  if (body.simulation() != v1::SIMULATION_SHAPE_MATCHED) {
    if (body.has_shape_matching()) check.Invalid(At(path, "shape_matching"), "only a shape-matched body has it; see simulation");
    return;
  }
  if (body.kind() == v1::BODY_KIND_RIGID || body.kind() == v1::BODY_KIND_STATIC) {
    check.Invalid(At(path, "simulation"), "only a deformable body can be shape-matched");
  }
  const v1::ShapeMatchingSpec& spec = body.shape_matching();
  const std::string spec_path = At(path, "shape_matching");
  if (!v1::ShapeMode_IsValid(spec.mode())) {
    check.Invalid(At(spec_path, "mode"), absl::StrCat(static_cast<int>(spec.mode()), " is outside [0, 3]"));
  }
  if (spec.has_beta()) check.Range(At(spec_path, "beta"), spec.beta(), 0, 0.95);
  if (spec.mode() == v1::SHAPE_MODE_RIGID && spec.beta() > 0) {
    check.Invalid(At(spec_path, "beta"), absl::StrCat(spec.beta(), ", but clusters that are rigid do not deform"));
  }
  if (spec.has_cluster_size_m()) check.Range(At(spec_path, "cluster_size_m"), spec.cluster_size_m(), kMinClusterSize_m, 100);
  const auto check_material = [&](const std::string& material_path, const v1::MaterialSpec& material) {
    if (material.model() != v1::MATERIAL_MODEL_UNSPECIFIED) {
      check.Invalid(At(material_path, "model"), "a shape-matched body has no elastic model");
    }
    if (material.has_fibers()) check.Invalid(At(material_path, "fibers"), "a shape-matched body has none");
  };
  check_material(At(path, "material"), body.material());
  for (int z = 0; z < body.zones_size(); ++z) check_material(At(At(At(path, "zones"), z), "material"), body.zones(z).material());
}

sim::ShapeMatchingOptions ShapeMatchingFrom(const v1::ShapeMatchingSpec& spec) {
  sim::ShapeMatchingOptions out;
  if (spec.mode() == v1::SHAPE_MODE_RIGID) out.mode = sim::ShapeMode::kRigid;
  if (spec.mode() == v1::SHAPE_MODE_QUADRATIC) out.mode = sim::ShapeMode::kQuadratic;
  if (spec.has_beta()) out.beta = spec.beta();
  out.cluster_size_m = spec.cluster_size_m();
  if (spec.has_keep_volume()) out.keeps_volume = spec.keep_volume();
  return out;
}

void CheckBody(Checker& check, const std::string& path, const v1::BodySpec& body, const SceneLimits& limits) {
  switch (body.geometry_case()) {
    case v1::BodySpec::kMeshFile:
      if (body.mesh_file().empty()) check.Invalid(At(path, "mesh_file"), "the file name is empty");
      break;
    case v1::BodySpec::kGenerator:
      CheckGenerator(check, At(path, "generator"), body.generator(), limits);
      break;
    case v1::BodySpec::kMesh:
      CheckMeshData(check, At(path, "mesh"), body.mesh(), limits);
      break;
    case v1::BodySpec::kNurbs:
      CheckNurbs(check, path, body);
      break;
    case v1::BodySpec::kShell:
      break;  // below, when the material is known to be sound
    case v1::BodySpec::GEOMETRY_NOT_SET:
      check.Invalid(path, "no geometry is given; one of mesh_file, generator, mesh, nurbs, shell is needed");
      break;
  }
  CheckMaterial(check, At(path, "material"), body.material());
  if (check.ok() && body.has_shell()) CheckShell(check, path, body, limits);
  check.Pose(At(path, "pose"), body.pose());
  check.Count(At(path, "fixed"), body.fixed_size(), 0, kMaxFixedRegions);
  if (!check.ok()) return;
  CheckFixed(check, path, body);
  CheckLoads(check, path, body);
  CheckZones(check, path, body);
  CheckMarkers(check, path, body);
  CheckSurfaceZones(check, path, body);
  CheckTexture(check, path, body);
  CheckAblation(check, At(path, "ablation"), body.ablation());
  if (body.has_color()) CheckColor(check, At(path, "color"), body.color());
  if (body.has_scale()) check.Range(At(path, "scale"), body.scale(), 1e-6, 1e6);
  if (body.has_volume_stiffness_pa()) check.Range(At(path, "volume_stiffness_pa"), body.volume_stiffness_pa(), 0, 1e9);
  check.RangeVec(At(path, "velocity_m_per_s"), body.velocity_m_per_s(), -kMaxSpeed_m_per_s, kMaxSpeed_m_per_s);
  check.RangeVec(At(path, "angular_velocity_rad_per_s"), body.angular_velocity_rad_per_s(), -1000, 1000);
  CheckBodyKind(check, path, body);
  CheckSimulation(check, path, body);
}

void CheckObstacle(Checker& check, const std::string& path, const v1::ObstacleSpec& obstacle) {
  check.Name(At(path, "name"), obstacle.name(), kMaxNameBytes);
  switch (obstacle.shape_case()) {
    case v1::ObstacleSpec::kPlane: {
      const v1::PlaneObstacle& plane = obstacle.plane();
      check.RangeVec(At(path, "plane.point_m"), plane.point_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
      check.Finite(At(path, "plane.normal.x"), plane.normal().x());
      check.Finite(At(path, "plane.normal.y"), plane.normal().y());
      check.Finite(At(path, "plane.normal.z"), plane.normal().z());
      if (plane.has_normal() && ToEigen(plane.normal()).isZero(0)) check.Invalid(At(path, "plane.normal"), "is zero");
      break;
    }
    case v1::ObstacleSpec::kSphere:
      check.RangeVec(At(path, "sphere.center_m"), obstacle.sphere().center_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
      check.RangeAbove(At(path, "sphere.radius_m"), obstacle.sphere().radius_m(), 0, 10);
      break;
    case v1::ObstacleSpec::kCapsule:
      check.RangeVec(At(path, "capsule.end0_m"), obstacle.capsule().end0_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
      check.RangeVec(At(path, "capsule.end1_m"), obstacle.capsule().end1_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
      check.RangeAbove(At(path, "capsule.radius_m"), obstacle.capsule().radius_m(), 0, 10);
      break;
    case v1::ObstacleSpec::SHAPE_NOT_SET:
      check.Invalid(path, "no shape is given; one of plane, sphere, capsule is needed");
      break;
  }
}

std::string BodyName(const v1::SceneSpec& spec, int index) {
  return spec.bodies(index).name().empty() ? absl::StrCat("body", index) : spec.bodies(index).name();
}

absl::StatusOr<sim::TetMesh> LoadGeometry(const v1::BodySpec& body, const std::string& path, const AssetResolver& assets) {
  switch (body.geometry_case()) {
    case v1::BodySpec::kMeshFile: {
      absl::StatusOr<std::filesystem::path> file = assets.Resolve(body.mesh_file());
      if (!file.ok()) return Annotate(file.status(), At(path, "mesh_file"));
      absl::StatusOr<sim::TetMesh> mesh = sim::ReadTetMesh(*file);
      if (!mesh.ok()) {
        const absl::Status& status = mesh.status();
        return absl::Status(status.code(), absl::StrCat(path, ".mesh_file: ", assets.Redact(std::string(status.message()))));
      }
      return mesh;
    }
    case v1::BodySpec::kGenerator: {
      const v1::GeneratorSpec& g = body.generator();
      const double edge_m = Or(g.has_edge_length_m(), g.edge_length_m(), 0);
      absl::StatusOr<sim::TetMesh> mesh;
      switch (g.shape_case()) {
        case v1::GeneratorSpec::kLiver:
          mesh = sim::GenerateLiver(Or(g.liver().has_length_m(), g.liver().length_m(), 0.2), edge_m);
          break;
        case v1::GeneratorSpec::kTorus: {
          const Torus t = TorusOf(g.torus());
          mesh = sim::GenerateTorus(t.major_radius_m, t.minor_radius_m, edge_m);
          break;
        }
        case v1::GeneratorSpec::kSlab:
          mesh = sim::GenerateSlab(SlabSize(g.slab()), edge_m);
          break;
        case v1::GeneratorSpec::kSphere:
          mesh = sim::GenerateSphere(Or(g.sphere().has_radius_m(), g.sphere().radius_m(), 0.05), edge_m);
          break;
        case v1::GeneratorSpec::kKidney:
          mesh = sim::GenerateKidney(Or(g.kidney().has_length_m(), g.kidney().length_m(), 0.11), edge_m);
          break;
        case v1::GeneratorSpec::kKnot: {
          const Knot k = KnotOf(g.knot());
          mesh = sim::GenerateKnot(k.ends, k.extent_m, k.tube_radius_m, edge_m);
          break;
        }
        case v1::GeneratorSpec::kSheet: {
          const Sheet s = SheetOf(g.sheet());
          mesh = sim::GenerateSheet(s.length_m, s.width_m, s.thickness_m, s.layer_count, edge_m);
          break;
        }
        case v1::GeneratorSpec::SHAPE_NOT_SET:
          return absl::InternalError("generator without a shape passed validation");
      }
      if (!mesh.ok()) return Annotate(mesh.status(), At(path, "generator"));
      return mesh;
    }
    case v1::BodySpec::kMesh: {
      const v1::TetMeshData& data = body.mesh();
      sim::TetMesh mesh;
      mesh.vertices.reserve(static_cast<size_t>(data.vertices_m_size()) / 3);
      for (int i = 0; i + 2 < data.vertices_m_size(); i += 3) {
        mesh.vertices.emplace_back(data.vertices_m(i), data.vertices_m(i + 1), data.vertices_m(i + 2));
      }
      mesh.tets.reserve(static_cast<size_t>(data.tets_size()) / 4);
      for (int i = 0; i + 3 < data.tets_size(); i += 4) {
        mesh.tets.push_back({data.tets(i), data.tets(i + 1), data.tets(i + 2), data.tets(i + 3)});
      }
      for (int i = 0; i + 1 < data.texture_coordinates_size(); i += 2) {
        mesh.texture_coordinates.emplace_back(data.texture_coordinates(i), data.texture_coordinates(i + 1));
      }
      mesh.tet_groups.assign(data.tet_groups().begin(), data.tet_groups().end());
      for (const v1::MeshGroup& group : data.groups()) mesh.groups.push_back({group.number(), group.name()});
      return mesh;
    }
    case v1::BodySpec::kNurbs:
    case v1::BodySpec::kShell:
    case v1::BodySpec::GEOMETRY_NOT_SET:
      break;
  }
  return absl::InternalError("body without a geometry passed validation");
}

sim::AblationProperties AblationFrom(const v1::AblationSpec& ablation, sim::AblationProperties out) {
  if (ablation.has_energy_j_per_kg()) out.energy_j_per_kg = ablation.energy_j_per_kg();
  if (ablation.has_cooling_time_s()) out.cooling_time_s = ablation.cooling_time_s();
  return out;
}

/// Fills everything about zones. Precondition: mesh, material, colour and ablation of the body are filled.
absl::Status BuildZones(const v1::BodySpec& body, const std::string& path, const Eigen::Quaterniond& turn, sim::BodyDescription& out) {
  if (body.zones().empty()) return absl::OkStatus();
  std::vector<Eigen::Vector3d> centroids;
  const auto add = [&](const auto& corners) {
    Eigen::Vector3d sum = Eigen::Vector3d::Zero();
    for (const uint32_t v : corners) sum += out.mesh.vertices[v];
    centroids.push_back(sum / static_cast<double>(corners.size()));
  };
  std::for_each(out.mesh.tets.begin(), out.mesh.tets.end(), add);
  if (out.shell) std::for_each(out.shell->triangles.begin(), out.shell->triangles.end(), add);
  const char* const what = out.shell ? "centroid of a triangle" : "centroid of a tet";
  out.tet_zones.assign(centroids.size(), 0);
  for (int i = 0; i < body.zones_size(); ++i) {
    const v1::ZoneSpec& spec = body.zones(i);
    const std::string zone_path = At(At(path, "zones"), i);
    PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> tets, spec.has_mesh_group()
                                                                   ? GroupTets(spec.mesh_group(), zone_path, out.mesh)
                                                                   : PointsInside(RegionOf(spec), zone_path, centroids, what));
    for (const uint32_t t : tets) out.tet_zones[t] = static_cast<uint16_t>(i + 1);
    sim::ZoneDescription zone;
    zone.name = spec.name();
    zone.material = spec.has_material() ? MaterialFrom(spec.material(), turn) : out.material;
    zone.interior_color = spec.has_interior_color() ? ColorFrom(spec.interior_color()) : out.interior_color;
    zone.ablation = AblationFrom(spec.ablation(), out.ablation);
    zone.shell = ShellZoneFrom(spec, turn);
    out.zones.push_back(std::move(zone));
  }
  return absl::OkStatus();
}

/// Where a copy goes: turned about its origin, then moved.
struct CopyPlace {
  Eigen::Quaterniond turn = Eigen::Quaterniond::Identity();
  Eigen::Vector3d shift_m{0, 0, 0};
};

CopyPlace PlaceOfCopy(const v1::BodyArray& array, uint64_t copy) {
  const std::array<uint32_t, 3> counts = {CountOf(array.has_count_x(), array.count_x()), CountOf(array.has_count_y(), array.count_y()),
                                          CountOf(array.has_count_z(), array.count_z())};
  const Eigen::Vector3d spacing = ToEigen(array.spacing_m());
  CopyPlace place;
  uint64_t rest = copy;
  for (int axis = 0; axis < 3; ++axis) {
    const uint32_t count = counts[static_cast<size_t>(axis)];
    place.shift_m[axis] = (static_cast<double>(rest % count) - (count - 1) / 2.0) * spacing[axis];
    rest /= count;
  }
  if (!array.turned()) return place;
  // Uniform over all rotations (Shoemake 1992), from three numbers of a golden-ratio sequence in three dimensions (Roberts 2018): even, and
  // the same everywhere.
  constexpr double kRatio = 1.2207440846057596;
  std::array<double, 3> u{};
  double step = 1;
  for (double& value : u) {
    step /= kRatio;
    const double at = 0.5 + step * static_cast<double>(copy + 1);
    value = at - std::floor(at);
  }
  const double a = std::sqrt(1 - u[0]);
  const double b = std::sqrt(u[0]);
  const double t1 = 2 * std::numbers::pi * u[1];
  const double t2 = 2 * std::numbers::pi * u[2];
  place.turn = Eigen::Quaterniond(b * std::cos(t2), a * std::sin(t1), a * std::cos(t1), b * std::sin(t2));
  return place;
}

/// The surface of a mesh: of a shell, whose vertices `mesh` has, its triangles.
sim::BoundarySurface SurfaceIn(const sim::TetMesh& mesh, const sim::SurfaceMesh& shell) {
  if (shell.triangles.empty()) return sim::ExtractBoundary(mesh);
  sim::BoundarySurface out;
  out.vertices.resize(mesh.vertices.size());
  std::iota(out.vertices.begin(), out.vertices.end(), 0U);
  out.triangles = shell.triangles;
  return out;
}

/// Precondition: CheckMaterial passed.
/// `mesh`: of a shell the vertices of `shell`. `surface`: its surface, if there is a texture.
absl::StatusOr<sim::BodyDescription> BuildBody(const v1::SceneSpec& spec, int index, uint64_t copy, const sim::TetMesh& mesh,
                                               const sim::BoundarySurface& surface, const sim::FigureSurface& shell,
                                               const std::shared_ptr<const sim::NurbsBodyShape>& nurbs,
                                               const std::shared_ptr<const gpu::NurbsShellModel>& nurbs_shell, const BodyLook& look) {
  const v1::BodySpec& body = spec.bodies(index);
  const std::string path = At("bodies", index);
  sim::BodyDescription out;
  out.name = BodyName(spec, index);
  if (body.has_array()) absl::StrAppend(&out.name, copy);
  out.mesh = mesh;

  PALPATE_ASSIGN_OR_RETURN(sim::RigidPose pose, PoseFromProto(body.pose(), At(path, "pose")));
  MarkerMove to_copy{.from_m = pose.position_m, .to_m = pose.position_m};
  if (body.has_array()) {
    const CopyPlace place = PlaceOfCopy(body.array(), copy);
    pose.rotation = place.turn * pose.rotation;
    pose.position_m += place.shift_m;
    to_copy.turn = place.turn;
    to_copy.to_m += place.shift_m;
  }
  const double scale = Or(body.has_scale(), body.scale(), 1);
  if (nurbs != nullptr) PlaceNurbs(nurbs, pose, &out);
  for (size_t v = 0; v < out.mesh.vertices.size(); ++v) {
    Eigen::Vector3d& p = out.mesh.vertices[v];
    if (nurbs == nullptr) p = pose.rotation * (scale * p) + pose.position_m;
    if (!(p.cwiseAbs().maxCoeff() <= kMaxPlacedCoordinate_m)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": after scale and pose vertex ", v, " lies at (", p.x(), ", ", p.y(), ", ",
                                                     p.z(), "), outside [", -kMaxPlacedCoordinate_m, ", ", kMaxPlacedCoordinate_m, "] m"));
    }
  }
  if (body.has_shell()) {
    out.shell = ShellFrom(body, pose.rotation);
    out.shell->triangles = shell.surface.triangles;
  }
  if (absl::Status valid = nurbs != nullptr || body.has_shell() ? absl::OkStatus() : sim::ValidateTetMesh(out.mesh); !valid.ok()) {
    const char* field = body.has_mesh() ? "mesh" : body.has_generator() ? "generator" : "mesh_file";
    return Annotate(valid, At(path, field));
  }
  PALPATE_RETURN_IF_ERROR(BuildTexture(body, path, mesh, surface, look, &out.texture));
  if (nurbs_shell != nullptr) {
    PALPATE_RETURN_IF_ERROR(PlaceNurbsShell(body, path, *nurbs_shell, pose, &out));
  } else {
    sim::FigureSurface placed = {.surface = {}, .parts = shell.parts, .weights = shell.weights};
    for (sim::FigurePart& part : placed.parts) part.joint_m = pose.rotation * (scale * part.joint_m) + pose.position_m;
    PALPATE_RETURN_IF_ERROR(BuildFixed(body, path, placed, out));
  }
  if (body.kind() == v1::BODY_KIND_RIGID) out.kind = sim::BodyKind::kRigid;
  if (body.kind() == v1::BODY_KIND_STATIC) out.kind = sim::BodyKind::kStatic;
  if (body.simulation() == v1::SIMULATION_PRECOMPUTED) out.simulation = sim::Simulation::kPrecomputed;
  if (body.simulation() == v1::SIMULATION_HYBRID) out.simulation = sim::Simulation::kHybrid;
  out.velocity_m_per_s = ToEigen(body.velocity_m_per_s());
  out.angular_velocity_rad_per_s = ToEigen(body.angular_velocity_rad_per_s());
  if (body.has_angular_damping_per_s()) out.angular_damping_per_s = body.angular_damping_per_s();
  out.restitution = body.restitution();
  out.drag_coefficient = body.drag_coefficient();
  out.volume_stiffness_pa = body.volume_stiffness_pa();
  out.tet_element = ElementFrom(body);
  if (body.has_self_collision()) out.self_collision = body.self_collision();
  if (out.kind != sim::BodyKind::kDeformable) out.self_collision = false;

  if (body.simulation() == v1::SIMULATION_SHAPE_MATCHED) out.simulation = sim::Simulation::kShapeMatched;
  out.shape_matching = ShapeMatchingFrom(body.shape_matching());
  out.material = MaterialFrom(body.material(), pose.rotation);
  if (body.has_color()) out.color = ColorFrom(body.color());
  out.interior_color = kInteriorShade * out.color;
  out.ablation = AblationFrom(body.ablation(), {});
  PALPATE_RETURN_IF_ERROR(BuildZones(body, path, pose.rotation, out));
  PALPATE_RETURN_IF_ERROR(BuildSurfaceZones(body, path, out));
  AddMaterialZones(look, &out);
  PALPATE_RETURN_IF_ERROR(BuildLoads(body, path, out));
  PALPATE_RETURN_IF_ERROR(BuildMarkers(body, path, to_copy, &out));
  if (out.shell) {
    if (absl::Status valid = sim::CheckShell(out); !valid.ok()) return Annotate(valid, path);
  }
  if (out.nurbs_shell) {
    if (absl::Status valid = sim::CheckNurbsShell(out); !valid.ok()) return Annotate(valid, path);
  }
  return out;
}

void CheckWind(Checker& check, const v1::WindSpec& wind) {
  check.RangeVec("wind.velocity_m_per_s", wind.velocity_m_per_s(), -kMaxWind_m_per_s, kMaxWind_m_per_s);
  if (wind.has_density_kg_per_m3()) check.Range("wind.density_kg_per_m3", wind.density_kg_per_m3(), 0, kMaxAirDensity_kg_per_m3);
  if (wind.times_s().empty() && wind.velocities_m_per_s().empty()) return;
  if (wind.has_velocity_m_per_s()) check.Invalid("wind.velocity_m_per_s", "is given beside velocities_m_per_s at times");
  check.Times("wind", "times_s", wind.times_s(), "velocities_m_per_s", wind.velocities_m_per_s_size());
  for (int i = 0; i < wind.velocities_m_per_s_size() && check.ok(); ++i) {
    check.RangeVec(At("wind.velocities_m_per_s", i), wind.velocities_m_per_s(i), -kMaxWind_m_per_s, kMaxWind_m_per_s);
  }
}

sim::WindDescription WindFrom(const v1::WindSpec& wind) {
  sim::WindDescription out;
  out.velocities_m_per_s = {ToEigen(wind.velocity_m_per_s())};
  if (!wind.times_s().empty()) {
    out.times_s.assign(wind.times_s().begin(), wind.times_s().end());
    out.velocities_m_per_s.clear();
    for (const v1::Vec3& velocity : wind.velocities_m_per_s()) out.velocities_m_per_s.push_back(ToEigen(velocity));
  }
  if (wind.has_density_kg_per_m3()) out.density_kg_per_m3 = wind.density_kg_per_m3();
  return out;
}

sim::ObstacleDescription BuildObstacle(const v1::ObstacleSpec& obstacle) {
  sim::ObstacleDescription out;
  out.name = obstacle.name();
  if (obstacle.has_plane()) {
    sim::PlaneShape plane;
    plane.point_m = ToEigen(obstacle.plane().point_m());
    if (obstacle.plane().has_normal()) plane.normal = Direction(ToEigen(obstacle.plane().normal()));
    out.shape = plane;
  } else if (obstacle.has_sphere()) {
    sim::SphereShape sphere;
    sphere.center_m = ToEigen(obstacle.sphere().center_m());
    sphere.radius_m = obstacle.sphere().radius_m();
    out.shape = sphere;
  } else {
    sim::CapsuleShape capsule;
    capsule.end0_m = ToEigen(obstacle.capsule().end0_m());
    capsule.end1_m = ToEigen(obstacle.capsule().end1_m());
    capsule.radius_m = obstacle.capsule().radius_m();
    out.shape = capsule;
  }
  return out;
}

}  // namespace

absl::StatusOr<sim::RigidPose> PoseFromProto(const v1::Pose& pose, std::string_view path) {
  Checker check;
  check.RangeVec(At(path, "position_m"), pose.position_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
  sim::RigidPose out;
  out.position_m = ToEigen(pose.position_m());
  if (pose.has_rotation()) {
    const v1::Quaternion& q = pose.rotation();
    check.Finite(At(path, "rotation.w"), q.w());
    check.Finite(At(path, "rotation.x"), q.x());
    check.Finite(At(path, "rotation.y"), q.y());
    check.Finite(At(path, "rotation.z"), q.z());
    const Eigen::Vector4d coefficients(q.x(), q.y(), q.z(), q.w());
    const double largest = coefficients.cwiseAbs().maxCoeff();
    if (check.ok() && largest == 0) check.Invalid(At(path, "rotation"), "is zero; a quaternion needs a length");
    if (check.ok()) {
      out.rotation.coeffs() = coefficients / largest;
      out.rotation.normalize();
    }
  }
  if (!check.ok()) return check.status();
  return out;
}

absl::Status ValidateSceneSpec(const v1::SceneSpec& spec, const SceneLimits& limits) {
  Checker check;
  check.Name("name", spec.name(), kMaxSceneNameBytes);
  if (spec.has_dt_s()) check.Range("dt_s", spec.dt_s(), 1e-4, 0.1);
  if (!v1::Start_IsValid(spec.start())) check.Invalid("start", absl::StrCat(static_cast<int>(spec.start()), " is outside [0, 2]"));
  check.RangeVec("gravity_m_per_s2", spec.gravity_m_per_s2(), -100, 100);
  CheckWind(check, spec.wind());
  if (spec.solver().has_iterations()) check.Range("solver.iterations", spec.solver().iterations(), 1, 1000);
  if (spec.solver().has_acceleration()) check.Range("solver.acceleration", spec.solver().acceleration(), 0, 0.99);
  if (spec.solver().has_coarse_nodes()) check.Range("solver.coarse_nodes", spec.solver().coarse_nodes(), 0, 4096);
  check.Range("solver.tolerance_m_per_s2", spec.solver().tolerance_m_per_s2(), 0, 1e6);
  if (spec.solver().tolerance_m_per_s2() > 0 && spec.solver().has_coarse_nodes() && spec.solver().coarse_nodes() == 0) {
    check.Invalid("solver.tolerance_m_per_s2", "is judged at coarse corrections, and solver.coarse_nodes is 0");
  }
  if (spec.solver().has_joint_dissipation()) check.Range("solver.joint_dissipation", spec.solver().joint_dissipation(), 0, 1);
  if (spec.contact().has_margin_m()) check.Range("contact.margin_m", spec.contact().margin_m(), 1e-6, 0.1);
  if (spec.contact().has_friction()) check.Range("contact.friction", spec.contact().friction(), 0, 2);
  if (spec.contact().has_stiffness_n_per_m()) check.Range("contact.stiffness_n_per_m", spec.contact().stiffness_n_per_m(), 0, 1e7);
  if (spec.contact().has_surface_friction()) check.Range("contact.surface_friction", spec.contact().surface_friction(), 0, 2);
  if (spec.contact().has_surface_reserve_m()) check.Range("contact.surface_reserve_m", spec.contact().surface_reserve_m(), 0, 0.1);
  if (spec.contact().has_surface_max_detections()) {
    check.Range("contact.surface_max_detections", spec.contact().surface_max_detections(), 1, 64);
  }
  if (spec.haptics().has_max_constraints()) check.Range("haptics.max_constraints", spec.haptics().max_constraints(), 1, 64);
  if (spec.haptics().has_blend_time_s()) check.Range("haptics.blend_time_s", spec.haptics().blend_time_s(), 0, 0.1);
  if (spec.haptics().has_range_m()) check.Range("haptics.range_m", spec.haptics().range_m(), 1e-4, 0.1);

  if (spec.bodies().empty()) check.Invalid("bodies", "a scene needs at least one body");
  for (int i = 0; i < spec.bodies_size() && check.ok(); ++i) CheckArray(check, At("bodies", i), spec.bodies(i));
  if (!check.ok()) return check.status();
  uint64_t bodies = 0;
  for (const v1::BodySpec& body : spec.bodies()) bodies += std::min(CopyCount(body), uint64_t{1} << 32);
  if (bodies > limits.max_bodies_per_scene) {
    check.Fail(absl::ResourceExhaustedError(
        absl::StrCat("bodies: ", bodies, " bodies exceed the limit max_bodies_per_scene = ", limits.max_bodies_per_scene)));
  }
  if (!spec.bodies().empty() && std::all_of(spec.bodies().begin(), spec.bodies().end(),
                                            [](const v1::BodySpec& body) { return body.kind() == v1::BODY_KIND_STATIC; })) {
    check.Invalid("bodies", "all bodies are static; a scene needs one that moves");
  }
  check.Count("obstacles", spec.obstacles_size(), 0, kMaxObstacles);
  check.Count("tools", spec.tools_size(), 0, kMaxTools);
  const auto colliders = std::count_if(spec.obstacles().begin(), spec.obstacles().end(),
                                       [](const v1::ObstacleSpec& obstacle) { return obstacle.has_sphere() || obstacle.has_capsule(); });
  int tool_capsules = 0;
  for (const v1::ToolSpec& tool : spec.tools()) tool_capsules += CapsuleCount(tool);
  if (colliders + tool_capsules > kMaxCapsules) {
    check.Invalid("obstacles", absl::StrCat(colliders, " spheres and capsules with ", spec.tools_size(), " tools (", tool_capsules,
                                            " capsules) exceed ", kMaxCapsules, " in all"));
  }
  if (!check.ok()) return check.status();
  uint64_t loads = 0;
  for (const v1::BodySpec& body : spec.bodies()) loads += CopyCount(body) * static_cast<uint64_t>(body.loads_size());
  if (loads > kMaxLoads) check.Invalid("bodies", absl::StrCat(loads, " loads in all exceed ", kMaxLoads));
  uint64_t markers = 0;
  for (const v1::BodySpec& body : spec.bodies()) markers += CopyCount(body) * static_cast<uint64_t>(body.markers_size());
  if (markers > sim::kMaxMarkers) check.Invalid("bodies", absl::StrCat(markers, " markers in all exceed ", sim::kMaxMarkers));
  if (!check.ok()) return check.status();

  std::unordered_set<std::string> body_names;
  for (int i = 0; i < spec.bodies_size() && check.ok(); ++i) {
    const std::string path = At("bodies", i);
    check.Name(At(path, "name"), spec.bodies(i).name(), kMaxNameBytes);
    CheckBody(check, path, spec.bodies(i), limits);
    if (!spec.bodies(i).has_array()) check.Unique(At(path, "name"), BodyName(spec, i), body_names);
    for (uint64_t copy = 0; spec.bodies(i).has_array() && copy < CopyCount(spec.bodies(i)) && check.ok(); ++copy) {
      check.Unique(At(path, "name"), absl::StrCat(BodyName(spec, i), copy), body_names);
    }
  }
  for (int i = 0; i < spec.obstacles_size() && check.ok(); ++i) CheckObstacle(check, At("obstacles", i), spec.obstacles(i));
  std::unordered_set<std::string> tool_names;
  for (int i = 0; i < spec.tools_size() && check.ok(); ++i) {
    const std::string path = At("tools", i);
    CheckToolSpec(check, path, spec.tools(i));
    check.Unique(At(path, "name"), spec.tools(i).name(), tool_names);
  }
  if (check.ok()) CheckJoints(check, spec);
  if (check.ok()) CheckSutures(check, spec);
  return check.status();
}

absl::StatusOr<sim::SceneDescription> BuildSceneDescription(const v1::SceneSpec& spec, const AssetResolver& assets,
                                                            const SceneLimits& limits) {
  PALPATE_RETURN_IF_ERROR(ValidateSceneSpec(spec, limits));
  sim::SceneDescription out;
  out.name = spec.name().empty() ? "scene" : spec.name();
  out.max_tets = limits.max_tets_per_scene;
  if (spec.has_dt_s()) out.dt_s = spec.dt_s();
  if (spec.has_gravity_m_per_s2()) out.gravity_m_per_s2 = ToEigen(spec.gravity_m_per_s2());
  out.wind = WindFrom(spec.wind());
  if (spec.solver().has_iterations()) out.solver.iterations = static_cast<int>(spec.solver().iterations());
  if (spec.solver().has_acceleration()) out.solver.acceleration = spec.solver().acceleration();
  if (spec.solver().has_coarse_nodes()) out.solver.coarse_nodes = static_cast<int>(spec.solver().coarse_nodes());
  out.solver.tolerance_m_per_s2 = spec.solver().tolerance_m_per_s2();
  out.solver.report_energy = spec.solver().report_energy();
  if (spec.solver().has_joint_dissipation()) out.solver.joint_dissipation = spec.solver().joint_dissipation();
  if (spec.contact().has_margin_m()) out.contact.margin_m = spec.contact().margin_m();
  if (spec.contact().has_friction()) out.contact.friction = spec.contact().friction();
  if (spec.contact().has_stiffness_n_per_m()) out.contact.stiffness_n_per_m = spec.contact().stiffness_n_per_m();
  if (spec.contact().has_surface_friction()) out.contact.surface_friction = spec.contact().surface_friction();
  if (spec.contact().has_surface_reserve_m()) out.contact.surface_reserve_m = spec.contact().surface_reserve_m();
  if (spec.contact().has_surface_max_detections()) {
    out.contact.surface_max_detections = static_cast<int>(spec.contact().surface_max_detections());
  }
  out.contact.check_intersections = spec.contact().check_intersections();
  if (spec.haptics().has_max_constraints()) out.haptics.max_constraints = static_cast<int>(spec.haptics().max_constraints());
  if (spec.haptics().has_blend_time_s()) out.haptics.blend_time_s = spec.haptics().blend_time_s();
  if (spec.haptics().has_range_m()) out.haptics.range_m = spec.haptics().range_m();

  uint64_t tets = 0;
  LookLoader looks(assets);
  std::vector<int> spec_of_body;  // of each built one
  for (int i = 0; i < spec.bodies_size(); ++i) {
    const uint64_t copies = CopyCount(spec.bodies(i));
    sim::TetMesh mesh;
    sim::FigureSurface shell;
    std::shared_ptr<const sim::NurbsBodyShape> nurbs;
    std::shared_ptr<const gpu::NurbsShellModel> nurbs_shell;
    if (spec.bodies(i).has_nurbs()) {
      PALPATE_ASSIGN_OR_RETURN(
          nurbs, LoadNurbs(spec.bodies(i), At("bodies", i), out.contact.margin_m, assets, (limits.max_tets_per_scene - tets) / copies));
      tets += copies * nurbs->triangles.size();
      if (spec.bodies(i).kind() != v1::BODY_KIND_RIGID && spec.bodies(i).kind() != v1::BODY_KIND_STATIC) {
        PALPATE_ASSIGN_OR_RETURN(nurbs_shell, LoadNurbsShell(spec.bodies(i), At("bodies", i), *nurbs));
      }
    } else if (spec.bodies(i).has_shell()) {
      PALPATE_ASSIGN_OR_RETURN(shell, LoadShellSurface(spec.bodies(i), At("bodies", i), assets));
      mesh.vertices = shell.surface.vertices;
      tets += copies * shell.surface.triangles.size();
    } else {
      PALPATE_ASSIGN_OR_RETURN(mesh, LoadGeometry(spec.bodies(i), At("bodies", i), assets));
    }
    tets += copies * mesh.tets.size();
    Checker check;
    CheckTets(check, At("bodies", i), tets, limits, i == 0 ? "" : "with the bodies before it ");
    if (!check.ok()) return check.status();
    sim::BoundarySurface surface;  // only textures need it
    if (spec.bodies(i).has_texture()) surface = SurfaceIn(mesh, shell.surface);
    PALPATE_ASSIGN_OR_RETURN(const BodyLook look, looks.Load(spec.bodies(i), At("bodies", i), mesh, surface));
    for (uint64_t copy = 0; copy < copies; ++copy) {
      PALPATE_ASSIGN_OR_RETURN(sim::BodyDescription body, BuildBody(spec, i, copy, mesh, surface, shell, nurbs, nurbs_shell, look));
      out.bodies.push_back(std::move(body));
      spec_of_body.push_back(i);
    }
  }
  PALPATE_RETURN_IF_ERROR(BindNurbsShells(spec, spec_of_body, &out));
  PALPATE_RETURN_IF_ERROR(BuildSutures(spec, &out));
  for (const v1::ObstacleSpec& obstacle : spec.obstacles()) out.obstacles.push_back(BuildObstacle(obstacle));
  for (int i = 0; i < spec.tools_size(); ++i) {
    PALPATE_ASSIGN_OR_RETURN(sim::ToolDescription tool, BuildToolDescription(spec.tools(i), At("tools", i)));
    out.tools.push_back(std::move(tool));
  }
  PALPATE_RETURN_IF_ERROR(BuildJoints(spec, &out));
  if (!spec.solver().has_coarse_nodes()) out.solver.coarse_nodes = sim::ChosenCoarseNodes(out);
  if (sim::AreCorrected(out)) {
    if (!spec.solver().has_iterations()) out.solver.iterations = sim::kCorrectedSweeps;
    if (!spec.solver().has_acceleration()) out.solver.acceleration = sim::kCorrectedAcceleration;
  }
  return out;
}

absl::StatusOr<v1::SceneSpec> ParseSceneJson(std::string_view text, std::string_view display_name) {
  v1::SceneSpec spec;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  const auto status = google::protobuf::util::JsonStringToMessage({text.data(), text.size()}, &spec, options);
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(View(display_name), ": ", std::string(status.message())));
  }
  return spec;
}

v1::SceneSpec WithoutInlineMeshes(const v1::SceneSpec& spec) {
  v1::SceneSpec out = spec;
  for (v1::BodySpec& body : *out.mutable_bodies()) {
    if (body.has_mesh()) {
      body.clear_mesh();
      body.mutable_mesh();
    }
    if (body.has_shell() && body.shell().has_mesh()) body.mutable_shell()->mutable_mesh()->Clear();
    if (body.has_nurbs() && body.nurbs().has_object()) body.mutable_nurbs()->mutable_object()->Clear();
  }
  return out;
}

}  // namespace palpate::scene
