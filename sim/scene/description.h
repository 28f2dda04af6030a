#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "gpu/collision/self_pairs_use.h"
#include "sim/haptics/local_model.h"
#include "sim/instrument/description.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/scene/driven_region.h"
#include "sim/scene/elastic_tet.h"
#include "sim/scene/shell_description.h"

namespace palpate::sim {

/// Fibres of a linear or St-Venant-Kirchhoff material.
struct FiberProperties {
  Eigen::Vector3d direction{1, 0, 0};  ///< at rest in W, unit
  double young_modulus_pa = 0;         ///< along the fibres
  double poisson_ratio = 0;            ///< contraction across for a pull along
  double shear_modulus_pa = 0;         ///< of planes that hold the fibres
};

struct Material {
  MaterialModel model = MaterialModel::kStableNeoHookean;
  double young_modulus_pa = 5000;
  double poisson_ratio = 0.45;
  double density_kg_per_m3 = 1060;
  double damping_s = 0.005;       ///< stiffness-proportional
  double mass_damping_per_s = 0;  ///< mass-proportional
  std::optional<FiberProperties> fibers;
  double fracture_toughness_j_per_m2 = 0;  ///< work of a blade for an area of its cut; 0: blades meet no resistance
};

/// What it takes to destroy tissue; see sim/topology/ablation.h.
struct AblationProperties {
  double energy_j_per_kg = 2.5e6;
  double cooling_time_s = 0;  ///< 0: heat stays
};

/// A part of a body with a material of its own.
struct ZoneDescription {
  std::string name;
  Material material;
  Eigen::Vector3f interior_color{0.5F, 0.1F, 0.1F};  ///< of surfaces that cuts uncover
  AblationProperties ablation;
  ShellZoneDescription shell;  ///< of shells
};

/// A vertex that slides: it is held along some axes of W and free along the others.
struct SlidingVertex {
  uint32_t vertex = 0;  ///< index into mesh.vertices
  uint8_t held = 0;     ///< bit a: its coordinate a keeps its value; in [1, 6]
};

/// A named part of a body's surface.
struct SurfaceZoneDescription {
  std::string name;
  Eigen::Vector3f color{0.62F, 0.22F, 0.18F};
  std::vector<std::array<uint32_t, 3>> triangles;  ///< of the surface: indices into mesh.vertices, in any order; at least one
};

/// A load on a part of a body, from start_s for duration_s of simulated time.
struct LoadDescription {
  std::vector<uint32_t> vertices;    ///< indices into mesh.vertices, ascending, unique
  int surface_zone = -1;             ///< place in surface_zones: acts on its triangles, and `vertices` is empty; -1: none
  double pressure_pa = 0;            ///< on the surface triangles of these vertices; follows them; positive pushes inwards
  Eigen::Vector3d force_n{0, 0, 0};  ///< in all, of constant direction: spread over those triangles by their area at rest, or over
                                     ///< the vertices by their mass where there is no such triangle
  double start_s = 0;
  double duration_s = std::numeric_limits<double>::infinity();
};

/// What viewers draw on a surface; see proto/palpate/v1/scene.proto.
enum class TexturePattern { kNone, kChecker, kLiver, kMuscle, kFat };

/// A picture as its file has it. Its header was looked at, its pixels were not.
struct TextureImage {
  std::string id;          ///< of the contents, 32 hexadecimal digits
  std::string name;        ///< as the scene names it
  std::string media_type;  ///< image/png or image/jpeg
  uint32_t width = 0, height = 0;
  std::string bytes;
};

/// u v of the corners of a triangle.
using CornerCoordinates = std::array<std::array<float, 2>, 3>;

/// Texture coordinates of a body's surface: by vertex, or by corner.
struct TextureDescription {
  TexturePattern pattern = TexturePattern::kNone;
  double u_period = 0;  ///< above 0: u goes around and lies in [0, u_period)
  /// [vertex of mesh] u v in tiles, finite; empty: none, as for shells. Those inside count for nothing.
  std::vector<std::array<float, 2>> coordinates;
  std::vector<CornerCoordinates> corners;     ///< [triangle of SurfaceOf(body)], finite; empty: by vertex. Without u_period
  std::shared_ptr<const TextureImage> image;  ///< null: none
};

enum class BodyKind {
  kDeformable,
  kRigid,   ///< moves as one piece; docs/algorithms/rigid_blocks.md
  kStatic,  ///< an obstacle of any shape
};

/// How the shape of a deformable body is found.
enum class Simulation {
  kDynamic,
  kPrecomputed,   ///< quasi-static small strain, cannot be cut; docs/algorithms/precomputed.md
  kHybrid,        ///< the same, but a zone becomes dynamic when it is cut
  kShapeMatched,  ///< docs/algorithms/shape_matching.md, "Deformable bodies"
};

/// How tets resist deformation.
enum class TetElement {
  kLinear,        ///< each by its own deformation gradient
  kNodeSmoothed,  ///< mostly by mean deformation gradients around vertices; docs/algorithms/smoothing.md
};

/// Whether a body starts with tets whose responses are pre-computed.
constexpr bool StartsQuasiStatic(Simulation simulation) {
  return simulation == Simulation::kPrecomputed || simulation == Simulation::kHybrid;
}

enum class ShapeMode { kRigid, kLinear, kQuadratic };

/// Of a shape-matched body.
struct ShapeMatchingOptions {
  ShapeMode mode = ShapeMode::kLinear;
  double beta = -1;           ///< share of the goals that deforms, in [0, 0.95]; negative: from Poisson's ratio, see proto
  double cluster_size_m = 0;  ///< 0: one cluster of the whole body; else at least the mean edge of the mesh
  bool keeps_volume = true;
};

/// A point that rides in the tissue of a deformable body: docs/surgery.md, "Markers".
struct MarkerDescription {
  static constexpr uint32_t kUnplaced = 0xffffffffU;
  std::string name;                     ///< unique in the body
  Eigen::Vector3d position_m{0, 0, 0};  ///< at rest in W
  uint32_t cell = kUnplaced;            ///< tet of the body's mesh, or triangle of its shell, that holds it; see PlaceMarkers
};
inline constexpr size_t kMaxMarkers = 4096;  ///< of a scene

struct NurbsBodyShape;

/// A body, already meshed, placed and checked. Defaults and ranges are those of proto/palpate/v1/scene.proto.
struct BodyDescription {
  std::string name;
  TetMesh mesh;  ///< rest shape in W, metres, valid by ValidateTetMesh; of a NURBS body or a shell the vertices of its triangles alone
  BodyKind kind = BodyKind::kDeformable;
  Simulation simulation = Simulation::kDynamic;  ///< of a deformable body; pre-computed and hybrid ones take no driven regions, loads,
                                                 ///< velocities
  ShapeMatchingOptions shape_matching;           ///< of a shape-matched one
  Material material;                             ///< of a rigid body the density counts, of a static one nothing
  // Fixed vertices, driven regions and self-collision are of deformable bodies only.
  std::vector<uint32_t> fixed_vertices;                 ///< indices into mesh.vertices, ascending, unique
  std::vector<DrivenRegion> driven_regions;             ///< of fixed vertices
  std::vector<SlidingVertex> sliding_vertices;          ///< of dynamic and shape-matched bodies; ascending, unique, none of them fixed
  std::vector<LoadDescription> loads;                   ///< of deformable bodies; at most 32 in the scene
  std::vector<MarkerDescription> markers;               ///< of deformable bodies; at most kMaxMarkers in the scene
  Eigen::Vector3d velocity_m_per_s{0, 0, 0};            ///< of the free vertices or of the centre of mass at step 0
  Eigen::Vector3d angular_velocity_rad_per_s{0, 0, 0};  ///< of a rigid body about its centre of mass at step 0
  std::optional<double> angular_damping_per_s;          ///< of a rigid body; none: material.mass_damping_per_s
  double restitution = 0;                               ///< of rigid and static bodies, in [0, 1]; of two the larger one counts
  double drag_coefficient = 0;                          ///< in the air of the scene; of dynamic, shape-matched and rigid bodies
  double volume_stiffness_pa = 0;                       ///< k of the energy k (V - V0)^2 / (2 V0), of dynamic bodies
  TetElement tet_element = TetElement::kLinear;         ///< of dynamic bodies with tets
  bool self_collision = true;                           ///< whether the body's surface may not pass through itself
  Eigen::Vector3f color{0.62F, 0.22F, 0.18F};
  Eigen::Vector3f interior_color{0.5F, 0.1F, 0.1F};  ///< of zone 0
  AblationProperties ablation;                       ///< of zone 0
  // Zone 0 is the body itself; zone z + 1 is zones[z]. Deformable bodies only, but for NURBS shells.
  std::vector<ZoneDescription> zones;
  std::vector<uint16_t> tet_zones;                    ///< [tet of mesh], of a shell [triangle], or empty: all 0
  std::vector<SurfaceZoneDescription> surface_zones;  ///< of deformable bodies; where they overlap later ones win
  TextureDescription texture;
  std::shared_ptr<const NurbsBodyShape> nurbs;       ///< of bodies with an exact surface (sim/nurbs/nurbs_body_shape.h), else null
  RigidPose nurbs_pose;                              ///< from the frame of the shape to W, at rest
  std::optional<ShellDescription> shell;             ///< of dynamic bodies without tets; no kept volume
  std::optional<NurbsShellDescription> nurbs_shell;  ///< of dynamic bodies with an exact surface; likewise
};

struct PlaneShape {
  Eigen::Vector3d point_m{0, 0, 0};
  Eigen::Vector3d normal{0, 0, 1};  ///< unit; the solid is on the other side
};
struct SphereShape {
  Eigen::Vector3d center_m{0, 0, 0};
  double radius_m = 0;
};
struct CapsuleShape {
  Eigen::Vector3d end0_m{0, 0, 0};
  Eigen::Vector3d end1_m{0, 0, 0};
  double radius_m = 0;
};
struct ObstacleDescription {
  std::string name;
  std::variant<PlaneShape, SphereShape, CapsuleShape> shape;
};

enum class ToolDrive { kCoupled, kDirect };

/// What keeps tissue out of a tool; see docs/instruments.md.
enum class ToolResponse {
  kEnergy,      ///< contact forces, part of the energy that a step minimises
  kProjection,  ///< the surface is moved out before each step; docs/algorithms/projection.md
};

/// A capsule tool; the axis runs from the origin of T (the tip) along +z of T for length_m.
struct ToolDescription {
  std::string name;
  double radius_m = 0.005;
  double length_m = 0.1;
  RigidPose rest_pose;
  ToolDrive drive = ToolDrive::kCoupled;
  ToolResponse response = ToolResponse::kEnergy;  ///< of deformable bodies; rigid and static ones are always pushed by forces
  double mass_kg = 0.05;
  double coupling_stiffness_n_per_m = 500;
  double coupling_damping_n_s_per_m = -1;  ///< negative: critical, 2 sqrt(k m)
  InstrumentDescription instrument;
  std::optional<TrocarDescription> trocar;
  // For whoever passes commands on: how long one counts once no newer one comes. A World itself has no clock.
  double energy_hold_s = 0.1;    ///< of the pedal
  double command_hold_s = 0.25;  ///< of jaws and blade
};

struct SolverOptions {
  int iterations = 20;
  double acceleration = 0.9;        ///< Chebyshev spectral radius estimate, 0 = off
  int coarse_nodes = 0;             ///< at most, of the coarse corrections between sweeps, 0 = none
  double tolerance_m_per_s2 = 0;    ///< see gpu::TissueOptions
  double joint_dissipation = 0.02;  ///< see gpu::RigidJoints
  bool report_energy = false;       ///< measure Frame::elastic_energy_j after each step
};

/// Contact of bodies with tools and obstacles, with each other and with themselves. Bodies always collide with each other; the fields
/// that begin with `surface_` are about contact between bodies and within a body only; see docs/algorithms/surface_contact.md.
struct ContactOptions {
  double margin_m = 0.001;       ///< surfaces push each other from this gap on
  double friction = 0.1;         ///< against tools and obstacles
  double stiffness_n_per_m = 0;  ///< 0: derived from the materials
  double surface_friction = 0.1;
  double surface_reserve_m = 0;      ///< how far beyond the margin contacts are looked for; 0: derived from the mesh
  int surface_max_detections = 4;    ///< of contacts in one step, at least 1
  bool check_intersections = false;  ///< counts after each step where surfaces pass through each other
  /// Whether searches remember what is near within a body; never changes the motion, and is in no checkpoint.
  gpu::SelfPairsUse self_pairs = gpu::SelfPairsUse::kAutomatic;
};

/// What joints keep; see proto/palpate/v1/scene.proto.
enum class JointKind { kBall, kHinge, kSlider, kFixed, kDistance, kPlane, kLine, kSpring };
inline constexpr std::array<const char*, 8> kJointKindNames = {"ball", "hinge", "slider", "fixed", "distance", "plane", "line", "spring"};

/// What acts on the free coordinate of a hinge [rad, N m] or a slider [m, N]. Springs of ball joints act on all three turns.
struct JointDriveDescription {
  enum class Kind { kFree, kMotor, kSpring, kMotion };
  Kind kind = Kind::kFree;
  double speed = 0;                                             ///< of a motor
  double max_effort = std::numeric_limits<double>::infinity();  ///< of a motor
  double target = 0;                                            ///< of a spring; of a spring joint its length at rest
  double stiffness = 0;                                         ///< of a spring
  double damping = 0;                                           ///< of a spring
  std::vector<double> times_s = {};                             ///< of a motion, ascending
  std::vector<double> targets = {};                             ///< at these; straight between them
  friend bool operator==(const JointDriveDescription&, const JointDriveDescription&) = default;
};

/// A control point of a NURBS shell that a joint holds, with its weights in the origin and in the rotation of the frame that is held; see
/// gpu::TissueNurbsJointSet.
struct JointControlPoint {
  uint32_t control = 0;
  double place = 0;
  double turning = 0;
  friend bool operator==(const JointControlPoint&, const JointControlPoint&) = default;
};

struct JointDescription {
  static constexpr uint32_t kWorld = 0xffffffffU;
  static constexpr uint32_t kNoTool = 0xffffffffU;
  std::string name;  ///< unique in the scene
  JointKind kind = JointKind::kBall;
  uint32_t body_a = kWorld, body_b = kWorld;                ///< places in bodies; not both the world, not the same but of two regions
  Eigen::Vector3d point_a_m{0, 0, 0};                       ///< in W, where the bodies are at the start
  Eigen::Vector3d point_b_m{0, 0, 0};                       ///< likewise
  Eigen::Vector3d axis{0, 0, 1};                            ///< unit, in W: of hinge, slider and line; normal of a plane
  double lower = -std::numeric_limits<double>::infinity();  ///< limits of hinge, slider and distance
  double upper = std::numeric_limits<double>::infinity();
  JointDriveDescription drive;  ///< of hinge, slider, ball and spring
  double break_force_n = std::numeric_limits<double>::infinity();
  double break_torque_n_m = std::numeric_limits<double>::infinity();
  bool ignores_contact = false;  ///< the two bodies pass through each other; neither is the world
  /// Of a deformable body: vertices of its mesh that move with the joint, ascending, unique. Empty: the body is rigid, or the world.
  std::vector<uint32_t> vertices_a, vertices_b;
  std::vector<JointControlPoint> control_a, control_b;  ///< of a NURBS shell, in place of vertices, ascending
  uint32_t tool_a = kNoTool, tool_b = kNoTool;          ///< places in tools, in the place of a body, which is kWorld then; not both
};
inline constexpr size_t kMaxJoints = 4096;  ///< of a scene

/// The air of a scene, which moves bodies with a drag coefficient.
struct WindDescription {
  std::vector<double> times_s = {0};                                             ///< ascending, at least one
  std::vector<Eigen::Vector3d> velocities_m_per_s = {Eigen::Vector3d{0, 0, 0}};  ///< at these; straight between, constant beyond
  double density_kg_per_m3 = 1.2;
};

struct HapticOptions {
  int max_constraints = 16;  ///< at most kMaxLocalConstraints
  double blend_time_s = -1;  ///< negative: one step
  double range_m = 0.01;
};

/// Everything a World is made of. The server builds it from a SceneSpec.
/// Vertices of a body that are sewn to the surface of another; see proto/palpate/v1/scene.proto.
struct SutureDescription {
  uint32_t body_a = 0;
  uint32_t body_b = 0;             ///< another one
  std::vector<uint32_t> vertices;  ///< of A's mesh, ascending, unique; those inside A count for nothing
  double reach_m = 0.01;           ///< none is farther from B's surface
};
inline constexpr size_t kMaxStitches = 96;  ///< of a scene

struct SceneDescription {
  std::string name;
  double dt_s = 1.0 / 120.0;
  Eigen::Vector3d gravity_m_per_s2{0, 0, -9.81};
  SolverOptions solver;
  ContactOptions contact;
  std::vector<BodyDescription> bodies;
  std::vector<ObstacleDescription> obstacles;
  std::vector<ToolDescription> tools;
  std::vector<JointDescription> joints;
  std::vector<SutureDescription> sutures;
  WindDescription wind;
  HapticOptions haptics;
  size_t max_tets = 2'000'000;  ///< of all bodies, edits included: one that would need more is refused
};

}  // namespace palpate::sim
