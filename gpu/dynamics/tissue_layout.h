#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/base/indexed_vector.h"
#include "gpu/base/range_pool.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/rigid_joint_types.h"
#include "gpu/dynamics/shell_layout.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/shape_types.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

struct NurbsShellModel;

/// Elastic energies, those of gpu/shared/energies.h; see docs/algorithms/tissue.md. kLinear is right only where nothing turns. Of
/// kMassSpring mu and lambda must both be 2/5 E: Poisson's ratio is 1/4.
enum class TissueEnergy : uint32_t {
#define PALPATE_ENERGY(name, Name, api, code, text) k##Name = code,
  PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
      kShapeMatched = PALPATE_ENERGY_SHAPE,  ///< none of its own: the tet gives mass and stiffness to the body TissueTet::shape
};

enum class TissueShapeMode : uint32_t {
  kRigid = PALPATE_SHAPE_RIGID,
  kLinear = PALPATE_SHAPE_LINEAR,
  kQuadratic = PALPATE_SHAPE_QUADRATIC,  ///< bends and twists within a cluster
};

/// A shape-matched body: its vertices are drawn to where clusters of them would lie if each moved as a rigid piece, or deformed a little;
/// docs/algorithms/shape_matching.md, "Deformable bodies".
struct TissueShape {
  TissueShapeMode mode = TissueShapeMode::kLinear;
  /// Share of the goals that deforms, in [0, 1]; not of kRigid. Where volume is kept, Poisson's ratio is beta / (3 - beta). At 1 nothing
  /// but the limits of the mode brings the shape back.
  double beta = 0.5;
  double cluster_size_m = 0;  ///< 0: one cluster for each connected part
  bool keeps_volume = true;   ///< of each cluster's linear deformation

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [how, share, size, keeps] = *this;
    archive(how, share, size, keeps);
  }
};

/// Fibres of a linear or St-Venant-Kirchhoff tet, for transverse isotropy with the five constants of Spencer 1984: mu and lambda of the
/// plane across the fibres and these. All zero: isotropic.
struct TissueFibers {
  std::array<float, 3> direction{};  ///< at rest, unit
  float coupling_pa = 0;             ///< alpha, of (a . E a) tr E
  float stiffness_pa = 0;            ///< beta, of (a . E a)^2 / 2
  float shear_pa = 0;                ///< shear modulus along minus across, of 2 |E a|^2
};

inline constexpr uint32_t kNoTissueVertex = 0xffffffffU;

/// Place of a vertex on the device: the solver orders them by colour. What kernels read and report are these, as plain numbers.
enum class SolverSlot : uint32_t {};
inline constexpr SolverSlot kNoSolverSlot{0xffffffffU};

/// The vertices of a free place, which edits may leave in a list of tets.
inline constexpr std::array<uint32_t, 4> kFreeTissueTet = {kNoTissueVertex, kNoTissueVertex, kNoTissueVertex, kNoTissueVertex};

/// What TissueModel::fixed says of a vertex.
enum TissueVertexKind : uint8_t { kFreeVertex = 0, kFixedVertex = 1, kAbsentVertex = 2 };

/// One linear tetrahedron of tissue.
struct TissueTet {
  std::array<uint32_t, 4> vertices;  ///< positive orientation, or kFreeTissueTet
  float mu_pa = 0;                   ///< Lame constants of small strain
  float lambda_pa = 0;
  float damping_s = 0;  ///< stiffness-proportional viscosity
  float density_kg_per_m3 = 0;
  float mass_damping_per_s = 0;  ///< mass-proportional (Rayleigh)
  TissueEnergy energy = TissueEnergy::kStableNeoHookean;
  TissueFibers fibers{};
  uint32_t shape = 0;        ///< of kShapeMatched: place in TissueModel::shapes
  uint32_t is_smoothed = 0;  ///< 1: most of its energy is that of mean deformation gradients; see docs/algorithms/smoothing.md
};

/// A place on the way of a driven region: by how much it is away from where its velocities alone take it.
struct TissueMotionKey {
  double time_s = 0;  ///< since start_s
  std::array<double, 3> shift_m{};
  std::array<double, 3> turn_rad{};  ///< rotation vector

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [time, shift, turn] = *this;
    archive(time, shift, turn);
  }
};

/// What a driven vertex follows if not its region alone: the mean of where regions would take it, by shares that add up to 1. What is
/// missing to 1 rests.
struct TissueDrivenBlend {
  static constexpr uint32_t kRests = PALPATE_DRIVEN_RESTS;
  std::array<uint32_t, 4> regions{kRests, kRests, kRests, kRests};  ///< one of them is the one that names the vertex
  std::array<float, 4> shares{};                                    ///< 0 behind the last

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [drivers, parts] = *this;
    archive(drivers, parts);
  }
};

/// Fixed vertices that move as one rigid piece: from start_s for duration_s they turn about a centre, which itself moves, and between keys
/// along smooth curves. See PosesOf in driven_poses.h.
struct TissueDrivenRegion {
  static constexpr uint32_t kNoParent = 0xffffffffU;
  std::vector<uint32_t> vertices;  ///< each fixed, and of one region only
  std::array<double, 3> velocity_m_per_s{};
  std::array<double, 3> angular_velocity_rad_per_s{};
  std::array<double, 3> center_m{};  ///< at start_s
  double start_s = 0;
  double duration_s = 0;
  std::vector<TissueMotionKey> keys{};      ///< times rise, the first is 0
  double period_s = 0;                      ///< keys begin again after it: above the last time; 0: they do not
  double ramp_s = 0;                        ///< in which what keys add grows from nothing
  uint32_t parent = kNoParent;              ///< region before this one whose motion moves this one and its centre as well
  std::vector<TissueDrivenBlend> blends{};  ///< of each vertex, or empty: all follow this region alone

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [moved, velocity, angular_velocity, center, start, duration, places, period, ramp, before, blend] = *this;
    archive(moved, velocity, angular_velocity, center, start, duration, places, period, ramp, before, blend);
  }
};

/// Fixed vertices that the caller moves, each on its own: see TissueSolver::SetPrescribed.
struct TissuePrescribed {
  std::vector<uint32_t> vertices;  ///< each fixed, and not driven
  /// [vertices] E times edge length of what they are part of: how stiff contacts with them may be where they have no tets.
  std::vector<float> stiffness_n_per_m;

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [moved, stiffness] = *this;
    archive(moved, stiffness);
  }
};

/// A load from start_s for duration_s: a pressure that follows the surface triangles all of whose vertices are in `vertices`, or that name
/// it (TissueModel::triangle_loads), and a force of constant direction, spread over those triangles by their area at rest, or over the
/// vertices by their mass where there is none.
struct TissueLoad {
  std::vector<uint32_t> vertices{};  ///< of tissue
  double pressure_pa = 0;            ///< positive pushes inwards
  std::array<double, 3> force_n{};
  double start_s = 0;
  double duration_s = 0;  ///< may be infinite

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [on, pressure, force, start, duration] = *this;
    archive(on, pressure, force, start, duration);
  }
};

/// A rigid body: it carries fixed vertices that have no tets. Metres, world frame at the start.
struct TissueRigidBody {
  uint32_t body = 0;                   ///< of TissueModel::body_triangle_begin; it may not meet itself
  std::array<uint32_t, 2> vertices{};  ///< [begin, end); rising from body to body
  double mass_kg = 0;
  std::array<double, 3> center_m{};          ///< of mass
  std::array<double, 9> inertia_kg_m2{};     ///< about the centre of mass, world axes, row by row
  std::array<double, 3> velocity_m_per_s{};  ///< of the centre of mass
  std::array<double, 3> angular_velocity_rad_per_s{};
  double damping_per_s = 0;          ///< of the velocity
  double angular_damping_per_s = 0;  ///< of the angular momentum

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [of_body, range, mass, center, inertia, velocity, angular_velocity, damping, angular_damping] = *this;
    archive(of_body, range, mass, center, inertia, velocity, angular_velocity, damping, angular_damping);
  }
};

/// Free vertices that joints hold as if they were a body of their own: RigidJoint names it after the rigid bodies.
struct TissueJointSet {
  uint32_t body = 0;                 ///< of the vertices, as TissueModel::triangle_body has it; for RigidJoint::ignores_contact
  std::array<double, 3> origin_m{};  ///< of its frame, near to the vertices at rest; edits do not change it
  std::vector<uint32_t> vertices;    ///< each free along all axes, and of one set only

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [of_body, origin, held] = *this;
    archive(of_body, origin, held);
  }
};

/// A pose that carries joints from outside, given by TissueSolver::SetJointMount: exactly; or on a coupling, as a tool is, whose mass feels
/// the joints, but turns exactly as it is told.
struct TissueJointMount {
  std::array<double, 3> center_m{};  ///< at the start; its axes are those of the world then
  double coupling_n_per_m = 0;       ///< 0: exactly. Those on couplings come first
  double damping_n_s_per_m = 0;
  double mass_kg = 0;  ///< on a coupling above 0

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [center, coupling, damping, mass] = *this;
    archive(center, coupling, damping, mass);
  }
};

/// A thin deformable NURBS body: its control points move, and fixed vertices that have no tets follow them. Metres, world frame at rest.
struct TissueNurbsShell {
  uint32_t body = 0;                   ///< of TissueModel::triangle_body
  std::array<uint32_t, 2> vertices{};  ///< [begin, end); rising from shell to shell
  std::shared_ptr<const NurbsShellModel> model;
  // Each vertex is a mean of control points, all of one span, in the order of the vertices.
  std::vector<uint32_t> begins;            ///< [vertices + 1] places in the two lists below
  std::vector<uint32_t> controls;          ///< of `model`
  std::vector<float> weights;              ///< at least 0; those of a vertex add up to 1
  std::vector<uint32_t> held;              ///< control points that do not move freely, ascending
  std::vector<TissueDrivenRegion> driven;  ///< of held control points, which stand in place of vertices
  std::array<double, 3> velocity_m_per_s{};
  /// A control point that tissue carries: the mean of four vertices.
  struct Bound {
    uint32_t control = 0;
    std::array<uint32_t, 4> vertices{};  ///< of one tet
    std::array<double, 4> weights{};     ///< at least 0, sum 1
    friend bool operator==(const Bound&, const Bound&) = default;
  };
  std::vector<Bound> bound;          ///< control points ascending, none of them held; edits may change it
  std::vector<uint32_t> apart = {};  ///< bodies whose surfaces the shell does not meet, as `body`; edits may change it
  /// Control points whose forces on what holds them are told together, no point twice. Of these, those count that are held or bound.
  std::vector<std::vector<uint32_t>> supports = {};
};

/// Free control points of a NURBS shell that joints hold by a frame: RigidJoint names it after TissueModel::joint_sets.
struct TissueNurbsJointSet {
  struct Part {
    uint32_t control = 0;  ///< of the shell's model
    double place = 0;      ///< weight in the frame's origin, at least 0; they add up to 1. At a patch point: the basis function
    double turning = 0;    ///< likewise in its rotation
  };
  uint32_t body = 0;        ///< as TissueModel::triangle_body has it; for RigidJoint::ignores_contact
  uint32_t shell = 0;       ///< of TissueModel::nurbs_shells
  std::vector<Part> parts;  ///< control points ascending; those that turn it do not lie on a line
};

/// What a TissueSolver simulates: every body of a scene in one mesh. Metres, world frame, caller's vertex order.
struct TissueModel {
  std::vector<std::array<double, 3>> rest_m;  ///< [vertex_count]
  std::vector<TissueTet> tets;                ///< [tet_count]
  std::vector<ShellTriangle> shells;          ///< triangles of shells; the same after edits
  std::vector<uint8_t> fixed;                 ///< [vertex_count], TissueVertexKind; absent: the index is not in use
  /// [vertex_count] or empty: bit a of a free vertex: its coordinate a keeps its bits, while the others move. At most two of the three; of
  /// others nothing is read.
  std::vector<uint8_t> held_axes;
  std::vector<std::array<uint32_t, 3>> surface_triangles;  ///< outward orientation
  /// Body b has the triangles [body_triangle_begin[b], body_triangle_begin[b + 1]) and shares no vertex with others. Empty: surfaces meet
  /// neither each other nor themselves.
  std::vector<uint32_t> body_triangle_begin;
  /// [triangle_count] or empty: the body of each triangle, in place of body_triangle_begin where edits mix the triangles of bodies. Those
  /// of a rigid body must stand together.
  std::vector<uint32_t> triangle_body;
  std::vector<uint8_t> self_collision;  ///< per body: 1 = its surface may not pass through itself
  /// [body] or empty: k [Pa], at least 0, with which a body resists a change of the volume V within its surface: k (V - V0)^2 / (2 V0).
  std::vector<double> volume_stiffness_pa;
  /// [body] or empty: of rigid bodies and of those that do not move, in [0, 1]; see RigidImpacts. Of others nothing is read.
  std::vector<double> restitution;
  /// [body] or empty: half the density of the air times the drag coefficient, at least 0; see AirDrag.
  std::vector<double> drag_kg_per_m3;
  std::vector<TissueDrivenRegion> driven;
  TissuePrescribed prescribed;
  std::vector<TissueLoad> loads;  ///< at most 32
  /// [triangle_count] or empty: bit k: load k acts on the triangle, whatever its vertices.
  std::vector<uint32_t> triangle_loads;
  std::vector<TissueRigidBody> rigid;
  std::vector<RigidJoint> joints;                     ///< of `rigid`, joint_sets, nurbs_joint_sets, mounts; the same after edits
  std::vector<TissueJointSet> joint_sets;             ///< as many after edits
  std::vector<TissueJointMount> joint_mounts;         ///< the same after edits
  std::vector<TissueNurbsShell> nurbs_shells;         ///< the same after edits
  std::vector<TissueNurbsJointSet> nurbs_joint_sets;  ///< likewise
  std::vector<TissueShape> shapes;                    ///< of shape-matched tets; those of one share no vertex with other tets
  /// [vertex_count] or empty: twice the number of the body that a vertex was part of at first, plus 1 if it lies on a cut. Vertices of one
  /// such body share a rest shape, however many pieces it is in; see make_pairs in surface_contact.cl. Empty: from the bodies, no cuts.
  std::vector<uint32_t> vertex_origin;
  bool may_be_at_rest = false;  ///< it is no error if nothing can move or no tets are left

  /// All but shells, which no edit changes: who reads makes them anew.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [rest, of_tets, of_shells, kinds, held, triangles, body_begins, bodies, self, volumes, bounces, drags,
                            driven_regions, given, all_loads, loads_of_triangles, rigid_bodies, all_joints, all_joint_sets, mounts,
                            of_nurbs_shells, of_nurbs_joint_sets, all_shapes, origins, at_rest] = *this;
    archive(rest, of_tets, kinds, held, triangles, body_begins, bodies, self, volumes, bounces, drags, driven_regions, given, all_loads,
            loads_of_triangles, rigid_bodies, all_joints, all_joint_sets, mounts, all_shapes, origins, at_rest);
  }
};

/// Which entries of a model an edit changed, added or took away, in any order; places beyond the new end of a list may be left out.
/// A vertex counts if its rest position, kind, origin, loads, or its state changed.
struct TissueChange {
  std::vector<uint32_t> vertices{};
  std::vector<uint32_t> tets{};
  std::vector<uint32_t> triangles{};
};

/// Room that a layout leaves for edits: of each array a share of its size and a few more, and colours that nothing has yet.
struct TissueSlack {
  double share = 0;
  uint32_t least = 0;
  uint32_t spare_colors = 0;

  size_t Room(size_t count) const { return count + static_cast<size_t>(share * static_cast<double>(count)) + least; }
};

/// The model laid out for the device: vertices have slots, colour by colour (within a colour by falling number of corners, fixed vertices
/// last), corners are in blocks of `lanes`; see the head of gpu/dynamics/tissue.cl for the arrays. Slots, blocks and places in slack are
/// empty: a slot without a vertex has no mass, a tet without one has four equal vertices. Arrays are as long as their room.
struct TissueLayout {
  template <typename T>
  using BySlot = IndexedVector<SolverSlot, T>;  ///< [vertex_count]

  uint32_t lanes = 1;
  uint32_t vertex_count = 0;  ///< slots
  uint32_t free_count = 0;    ///< slots of free vertices come first
  uint32_t fixed_end = 0;     ///< one past the last slot of a fixed vertex
  uint32_t block_count = 0;   ///< one past the last block in use
  uint32_t tet_count = 0;     ///< places of the model, free ones included
  uint32_t live_tet_count = 0;
  uint32_t triangle_count = 0;
  std::vector<uint32_t> color_begin;       ///< [color_count + 1], the last is free_count
  std::vector<uint32_t> color_end;         ///< [color_count] one past the last slot in use
  std::vector<SolverSlot> solver_index;    ///< [caller's vertex], kNoSolverSlot for an absent one
  BySlot<uint32_t> original_index;         ///< caller's vertex, kNoTissueVertex for an empty slot
  BySlot<float> mass_kg;                   ///< lumped
  BySlot<uint32_t> held_axes;              ///< as in the model; 0 for fixed vertices
  BySlot<float> mass_damping_per_s;        ///< mean of the tets, weighted by mass
  BySlot<UInt2> block_range;               ///< begin and end of a vertex's blocks
  std::vector<uint32_t> block_vertex;      ///< [block room] slot
  uint32_t corner_reals = 12;              ///< 18 with fibres
  std::vector<float> corner_real;          ///< [block room][corner_reals][lanes]
  std::vector<uint32_t> corner_index;      ///< [block room][4][lanes]
  std::vector<UInt4> tets;                 ///< [tet room], slots
  std::vector<Float4> tet_rest;            ///< [tet room][3] rows of Dm^-1; w of the first = 1 if shape-matched
  std::vector<Float4> tet_moduli;          ///< [tet room] V mu [J], V lambda [J], damping / dt, code of the energy; 0 if shape-matched
  std::vector<UInt4> triangles;            ///< [triangle room], slots; w = 1: of tissue; of a shell the bits of half its
                                           ///< thickness [m], and PALPATE_UNDER_PRESSURE
  std::vector<uint32_t> triangle_body;     ///< [triangle_count] or empty: surfaces do not meet
  BySlot<UInt2> vertex_triangle_range;     ///< begin and end in vertex_triangles
  std::vector<uint32_t> vertex_triangles;  ///< rising for each vertex; lists take multiples of four places
  uint32_t vertex_triangles_end = 0;       ///< one past the last place in use
  BySlot<Float4> rest_m;
  /// Mean over a vertex's tets of E times the edge of a regular tet as large; of rigid bodies half of mass / dt^2, of static ones 1e6.
  BySlot<float> vertex_stiffness_n_per_m;
  std::vector<uint8_t> self_collision;                  ///< as in the model
  std::vector<uint32_t> apart;                          ///< DeviceSurface::apart
  BySlot<uint32_t> vertex_origin;                       ///< or empty
  BySlot<uint32_t> load_bits;                           ///< bit k: the vertex is in load k; empty: no loads
  std::vector<uint32_t> triangle_loads;                 ///< [triangle_count] or empty, as in the model
  BySlot<uint8_t> is_jointed;                           ///< 1: of a joint set; empty: there are none
  std::vector<uint32_t> driven_vertices;                ///< slots, all regions one after the other, then those that are prescribed
  std::vector<UInt4> driven_regions;                    ///< regions of each but the prescribed, TissueDrivenBlend
  std::vector<Float4> driven_shares;                    ///< likewise
  std::array<bool, PALPATE_ENERGY_CODES> has_energy{};  ///< by TissueEnergy
  bool has_fibers = false;
  bool has_viscosity = false;
  bool has_smoothing = false;         ///< there are node-smoothed tets
  int32_t displacement_exponent = 0;  ///< not 0: tets are stiff or fine, so that the rounding of positions would be felt: kernels read
                                      ///< displacements from rest, with low parts in units of 2^displacement_exponent m
  bool has_surface_contact = false;   ///< there is more than one body, or one that may meet itself
  ShellLayout shell;
  double mean_edge_m = 0;            ///< of tets, or of shells where there are none
  double mean_young_modulus_pa = 0;  ///< likewise

  bool IsJointed(SolverSlot slot) const { return is_jointed.contains(slot) && is_jointed[slot] != 0; }
  bool Has(TissueEnergy energy) const { return has_energy[static_cast<size_t>(energy)]; }
  /// Bit c: tets have the energy of gpu/shared/energies.h with code c.
  uint32_t EnergyMask() const {
    uint32_t mask = 0;
#define PALPATE_ENERGY(name, Name, api, code, text) mask |= Has(TissueEnergy::k##Name) ? 1U << code : 0U;
    PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
    return mask;
  }
  uint32_t BatchesOfTets() const { return (tet_count + lanes - 1) / lanes; }  ///< work-items where each takes `lanes` tets
  bool IsDisplaced() const { return displacement_exponent != 0; }
  /// All energies are stresses, the same at the four corners of a tet, without fibres and smoothing.
  bool HasStresses() const { return !has_smoothing && !has_fibers && (EnergyMask() & ~PALPATE_STRESS_ENERGIES) == 0; }
  bool HasRotatedEnergies() const { return (EnergyMask() & PALPATE_ROTATED_ENERGIES) != 0; }
};

/// Lays a model out. Greedy colouring by falling degree, deterministic. Errors: InvalidArgument for indices out of range, non-positive
/// tets, fibres of an energy that has none or whose direction is not a unit vector, springs whose mu is not lambda, a mesh without free
/// vertices and rigid bodies (unless it may be at rest), more than 2^31 tets or corners, bodies of triangles out of range or ranges of
/// bodies that are not rising, driven vertices that are not fixed or of two regions, blends, parents and keys that are not sound,
/// prescribed ones that are not fixed or are driven, absent vertices in use, smoothed tets whose energy is no stress or that have fibres,
/// shapes out of range or that share a vertex, beta outside [0, 1], free vertices that are held along all axes.
absl::StatusOr<TissueLayout> LayOutTissue(const TissueModel& model, double dt_s, uint32_t lanes, const TissueSlack& slack = {});

/// Bodies whose surfaces do not meet, by joints and shells that say so, as DeviceSurface::apart has them; empty: there are none.
std::vector<uint32_t> BodiesApart(const TissueModel& model);

/// Of a layout that followed edits, what its model does not tell: which vertex has which slot, where blocks and lists are, what was so when
/// it was laid out, and the room that is left. Entries follow from the model, bit for bit.
struct LayoutSkeleton {
  uint32_t lanes = 1;
  uint32_t vertex_count = 0, free_count = 0, fixed_end = 0;
  std::vector<uint32_t> color_begin, color_end;
  std::vector<SolverSlot> solver_index;
  std::vector<uint32_t> block_begins, fan_begins;  ///< [slot]
  uint32_t tet_room = 0, triangle_room = 0;
  std::array<bool, PALPATE_ENERGY_CODES> has_energy{};
  bool has_fibers = false, has_viscosity = false;
  int32_t displacement_exponent = 0;
  double mean_edge_m = 0, mean_young_modulus_pa = 0;
  RangePool blocks{0, 0}, fans{0, 0};  ///< of TissueLayoutEditor

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [lane_count, slots, free, fixed, begins, ends, index, block, fan, tets, triangles, energies, fibers, viscosity, displaced, edge,
           young, block_pool, fan_pool] = *this;
    archive.Enter("LayoutSkeleton");
    archive(lane_count, slots, free, fixed, begins, ends, index, block, fan, tets, triangles, energies, fibers, viscosity, displaced, edge,
            young, block_pool, fan_pool);
  }
};

/// Lays a model out as `skeleton` says. Errors: those of LayOutTissue; InvalidArgument if the skeleton is not of this model.
absl::StatusOr<TissueLayout> LayOutTissueAs(const TissueModel& model, double dt_s, const LayoutSkeleton& skeleton);

/// Lists load_bits, triangle_loads, is_jointed, driven_vertices, driven_regions and driven_shares anew. O(vertices with a load, jointed,
/// driven or prescribed), and a fill if there are loads or joint sets.
void ListLoadsAndDriven(const TissueModel& model, TissueLayout* layout);
/// After that: marks the triangles of shells on which a pressure or a volume that is kept presses, now or at another time. O(triangles) in
/// scenes with such shells.
void MarkUnderPressure(const TissueModel& model, TissueLayout* layout);

/// Places that a list of `count` triangles takes in vertex_triangles: a few to spare, so that it moves seldom.
constexpr uint32_t TriangleListRoom(uint32_t count) { return (count + 3) / 4 * 4; }

}  // namespace palpate::gpu
