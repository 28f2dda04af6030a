#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/quasistatic/contact_response.h"
#include "sim/quasistatic/precomputed_model.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// The quasi-static tissue of a world: bodies that are pre-computed, and zones of hybrid bodies that nothing has cut yet. Before each step
/// of the solver it finds where this tissue goes, in balance with what touched it and what it is joined to after the step before, all
/// linearised there; the solver takes it there (TissueModel::prescribed) and says what the contacts then are. Where nothing changes any
/// more, both agree: docs/algorithms/precomputed.md.
class QuasiStatic {
 public:
  /// A contact of the newest step with quasi-static tissue, or with a tool that touches some.
  struct Contact {
    ContactLaw law = ContactLaw::kCapsule;
    uint32_t collider = kNone;
    std::array<VertexHandle, 4> handles{};
    std::array<double, 4> weights{};  ///< they give the point of the tissue, for pairs of surfaces that of B minus that of A
    uint32_t vertex_count = 0;
    Eigen::Vector3d normal{0, 0, 1};  ///< towards the tissue, or from A to B
    double gap_m = 0;
    double arm = 0;  ///< place on the collider's axis in [0, 1]
    double stiffness_n_per_m = 0;
    double friction = 0;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [kind, of_collider, vertices, parts, count, direction, gap, place, stiffness, mu] = *this;
      archive(kind, of_collider, vertices, parts, count, direction, gap, place, stiffness, mu);
    }
  };
  static constexpr uint32_t kNone = 0xffffffffU;

  bool empty() const { return parts_.empty(); }

  /// Takes over what edits changed: zones that were cut, or that nothing holds any more, become dynamic, and the models of what is left are
  /// made anew where they differ. `eager`: responses are computed now, and a body that is not held is an error. Errors: InvalidArgument,
  /// ResourceExhausted, naming the body.
  absl::Status Update(std::span<const std::unique_ptr<WorldBody>> bodies, const Eigen::Vector3d& gravity_m_per_s2, double dt_s, bool eager,
                      SceneVertices* vertices);
  /// The next Update makes the model of a body anew: its materials changed.
  void ForgetModel(uint32_t body);

  gpu::TissuePrescribed Prescribed() const;
  /// Of a scene without other tissue: the solver's own rule applied to this one.
  double ContactStiffness() const;

  /// At rest, nothing touches anything.
  void Reset(const SceneVertices& vertices, std::span<const gpu::Collider> colliders);

  /// Where the tissue goes in the step that begins, in the order of Prescribed. `targets`: of the colliders at its end.
  std::vector<float> Solve(const gpu::StepParams& params, std::span<const gpu::ColliderTarget> targets,
                           std::span<const gpu::TissueAnchor> anchors);

  /// Where the tissue came to: as Solve said, but for the vertices in `reached`.
  void SetReached(std::span<const std::pair<VertexHandle, Eigen::Vector3f>> reached);
  void SetContacts(std::vector<Contact> contacts, std::span<const gpu::Collider> colliders);
  /// Whether dynamic tissue is joined to quasi-static, whose elastic forces [vertex * 3] SetJoined takes.
  bool has_interfaces() const;
  void SetJoined(std::span<const float> elastic_forces_n);

  /// Where this tissue is, what touches it, and what its models are made of.
  void SaveState(StateWriter& archive) const;
  /// Makes the models again, which takes as long as it did at first. `vertices` and the number of bodies are those of the state. Errors:
  /// InvalidArgument (a state that cannot be).
  absl::Status LoadState(const SceneVertices& vertices, size_t body_count, StateReader& archive);

  bool IsPart(VertexHandle handle) const { return part_of_.contains(handle) && part_of_[handle] != kNone; }
  const Eigen::Vector3d& PositionOf(VertexHandle handle) const { return position_m_[handle]; }
  /// Velocities of the newest step, for vertices that go on with them when they become dynamic; the solver knows none of prescribed ones.
  void GiveVelocities(double dt_s, SceneVertices* vertices) const;

 private:
  struct Part {
    uint32_t body = 0;
    std::vector<VertexHandle> handles;  // ascending: vertices of the model
    size_t tet_count = 0;
    std::unique_ptr<PrecomputedModel> model;
    std::vector<uint32_t> interface;    // vertices of the model
    std::vector<StiffnessBlock> layer;  // of the dynamic tets at the interface, in A
    Eigen::VectorXd weight_n;           // [3 * handles]
    Eigen::VectorXd joined_n;           // force of the dynamic tissue in the newest step
    double young_edge_n_per_m = 0;      // mean Young's modulus times mean edge
  };
  class PartMaker;
  class Balance;
  static absl::StatusOr<Part> LoadPart(StateReader& archive);
  bool IsSound(const SceneVertices& vertices, size_t body_count) const;
  static absl::StatusOr<Part> MakePart(const WorldBody& body, const Eigen::Vector3d& gravity_m_per_s2, double dt_s, bool eager,
                                       const SceneVertices& vertices);
  static bool ReleaseUnheld(WorldBody& body, const SceneVertices& vertices);
  /// Index of a vertex that can be touched and moves, in its model's chosen ones; or kNone.
  uint32_t ChosenOf(VertexHandle handle) const;

  std::vector<Part> parts_;
  SceneVertices::Array<uint32_t> part_of_;
  SceneVertices::Array<uint32_t> local_of_;
  std::vector<VertexHandle> prescribed_;  // ascending
  SceneVertices::Array<Eigen::Vector3d> rest_m_, position_m_, before_m_, target_m_;
  std::vector<Contact> contacts_;
  std::vector<gpu::Collider> colliders_;
};

}  // namespace palpate::sim
