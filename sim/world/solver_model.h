#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/world/body_arrays.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// What moves of itself in a scene, as the solver takes it: driven regions, loads and joint sets without their vertices, which
/// SceneVertices names.
struct SceneMotions {
  std::vector<gpu::TissueDrivenRegion> driven;
  std::vector<gpu::TissueLoad> loads;
  std::vector<gpu::TissueRigidBody> rigid;
  std::vector<gpu::RigidJoint> joints;
  std::vector<gpu::TissueJointSet> joint_sets;
  std::vector<gpu::TissueJointMount> joint_mounts;
  std::vector<gpu::TissueNurbsShell> nurbs_shells;  ///< but for what tissue carries of them
  /// A control point that tissue carries; WorldBody::Carried has its place.
  struct Bound {
    uint32_t shell = 0;  ///< of nurbs_shells
    uint32_t control = 0;
    bool ignores_contact = false;
  };
  std::vector<Bound> bound;
  std::vector<gpu::TissueNurbsJointSet> nurbs_joint_sets;
  double air_density_kg_per_m3 = 0;
};

/// The solver's model of a scene, which follows edits entry by entry: vertices have their handles, tets and triangles have places.
/// Triangles of bodies that cannot be edited come first, and those of the others have no gaps between them.
class SolverModel {
 public:
  /// Keeps references.
  SolverModel(const std::vector<std::unique_ptr<WorldBody>>& bodies, const SceneMotions& motions, SceneVertices& vertices)
      : bodies_(bodies), motions_(motions), vertices_(vertices) {}

  /// From the whole scene: vertices by handle, tets and triangles body by body in the order of their slots.
  void Make(gpu::TissuePrescribed prescribed, bool may_be_at_rest);
  /// The materials of a body are others, which Update() takes over.
  void MarkMaterials(uint32_t body) { with_new_materials_.push_back(body); }
  /// Whether one of these is a shell, whose triangles Update() does not follow: the model must be made anew.
  bool HasNewShellMaterials() const;
  /// Brings it to the state of the bodies: of those that were there before `changes` tell what is different, others are new. O(changes),
  /// but for scenes with driven regions, loads or joint sets.
  gpu::TissueChange Update(std::span<const BodyArraysChange> changes);

  /// All of it: areas are sums that depend on the order of edits, and places on what was free. Of a reader, bodies and vertices must have
  /// been read before, and IsSound() must be asked next.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [bodies, motions, vertices, model, tet_places, triangle_places, free_tets, with_new_materials, triangle_slots,
                            triangle_area_m2, vertex_area_m2] = *this;
    archive.Enter("SolverModel");
    archive(model, tet_places, triangle_places, free_tets, with_new_materials, triangle_slots, triangle_area_m2, vertex_area_m2);
    if constexpr (Archive::kIsReader) ListShells();
  }
  /// Whether all that was read names what is there.
  bool IsSound() const;

  const gpu::TissueModel& model() const { return model_; }
  uint32_t BodyOf(uint32_t triangle) const { return model_.triangle_body[triangle]; }
  /// Slot of a triangle of the model in its body's arrays.
  uint32_t SlotOf(uint32_t triangle) const { return triangle_slots_[triangle]; }
  /// A third of the triangles around a vertex, at rest.
  double AreaAt(VertexHandle handle) const { return vertex_area_m2_[handle]; }

 private:
  std::vector<gpu::TissueTet> TissueOfZones(const WorldBody& body) const;
  uint8_t KindOf(VertexHandle handle) const;
  void AddTraits(const WorldBody& body);
  void PlaceTet(uint32_t body, uint32_t slot, const std::vector<gpu::TissueTet>& of_zone, gpu::TissueChange* change);
  void PlaceTriangle(uint32_t place, uint32_t body, uint32_t slot);
  void AddVertexAreas(uint32_t triangle, double sign);
  void AddDriven(VertexHandle v, gpu::TissueDrivenRegion* region) const;
  void ListRegions();
  void ListShapes();
  void ListBound();
  void ListShells();
  void UpdateVertices(gpu::TissueChange* change);
  void Remove(const BodyArraysChange& of_body, gpu::TissueChange* change, std::vector<uint32_t>* gaps);
  void CloseGaps(std::span<const uint32_t> gaps, gpu::TissueChange* change);
  void UpdateMaterials(gpu::TissueChange* change);

  const std::vector<std::unique_ptr<WorldBody>>& bodies_;
  const SceneMotions& motions_;
  SceneVertices& vertices_;
  gpu::TissueModel model_;
  std::vector<std::vector<uint32_t>> tet_places_;       // [body][slot], kNoSlot: free
  std::vector<std::vector<uint32_t>> triangle_places_;  // likewise
  std::vector<uint32_t> free_tets_;                     // places
  std::vector<uint32_t> with_new_materials_;            // bodies, since the model was brought up to date
  std::vector<uint32_t> triangle_slots_;                // [triangle of the model] in the body's arrays
  std::vector<double> triangle_area_m2_;                // [triangle of the model] at rest
  SceneVertices::Array<double> vertex_area_m2_;         // a third of its triangles, at rest
};

}  // namespace palpate::sim
