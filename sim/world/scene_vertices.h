#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include <Eigen/Core>

#include "absl/container/flat_hash_map.h"
#include "gpu/dynamics/tissue_solver.h"
#include "sim/topology/ids.h"
#include "sim/world/indices.h"

namespace palpate::sim {

/// What a world knows of every vertex. Handles of vertices that are gone are given to new ones, the lowest first.
struct SceneVertices {
  static constexpr uint32_t kNoBody = 0xffffffffU;

  template <typename T>
  using Array = IndexedVector<VertexHandle, T>;

  Array<Eigen::Vector3d> rest_m;
  Array<uint8_t> is_fixed;
  Array<uint8_t> held;                                               ///< bit a: a vertex that is not fixed keeps its coordinate a
  Array<uint8_t> is_prescribed;                                      ///< of quasi-static tissue, which TissueModel::prescribed moves
  Array<uint32_t> driven;                                            ///< region of TissueModel::driven, kNoSlot: none
  absl::flat_hash_map<VertexHandle, gpu::TissueDrivenBlend> blends;  ///< of those that do not follow it alone
  Array<uint32_t> joint_set;                                         ///< of TissueModel::joint_sets, kNoSlot: none
  Array<uint32_t> loads;                                             ///< bit k: in TissueModel::loads[k]
  Array<uint32_t> origin;                                            ///< TissueModel::vertex_origin
  Array<uint32_t> body;                                              ///< kNoBody: the handle is free
  Array<uint32_t> slot;                                              ///< in the body's mesh
  /// Positions and velocities, up to date only while edits run.
  Array<gpu::TissueVertexState> state;
  std::vector<VertexHandle> changed;  ///< since the solver's model was brought up to date; may repeat

  VertexHandle Add() {
    if (!free_.empty()) {
      const VertexHandle handle = free_.top();
      free_.pop();
      changed.push_back(handle);
      return handle;
    }
    const VertexHandle handle = rest_m.end_index();
    changed.push_back(handle);
    rest_m.push_back(Eigen::Vector3d::Zero());
    is_fixed.push_back(0);
    held.push_back(0);
    is_prescribed.push_back(0);
    driven.push_back(kNoSlot);
    joint_set.push_back(kNoSlot);
    loads.push_back(0);
    origin.push_back(0);
    body.push_back(kNoBody);
    slot.push_back(kNoSlot);
    state.push_back({});
    return handle;
  }
  void Release(VertexHandle handle) {
    rest_m[handle].setZero();
    is_fixed[handle] = 1;
    held[handle] = 0;
    is_prescribed[handle] = 0;
    driven[handle] = kNoSlot;
    blends.erase(handle);
    joint_set[handle] = kNoSlot;
    loads[handle] = 0;
    origin[handle] = 0;
    body[handle] = kNoBody;
    slot[handle] = kNoSlot;
    state[handle] = {};
    changed.push_back(handle);
    free_.push(handle);
  }
  size_t size() const { return rest_m.size(); }
  IndexRange<VertexHandle> handles() const { return rest_m.indices(); }
  bool IsAlive(VertexHandle handle) const { return body[handle] != kNoBody; }

  /// Which handles are free follows from the bodies; positions and velocities are the solver's.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [rest, fixed, held_axes, prescribed, region, blended, jointed, load_bits, first_body, of_body, in_mesh, motion,
                            changed_since, free] = *this;
    archive.Enter("SceneVertices");
    archive(rest, fixed, held_axes, prescribed, region, blended, jointed, load_bits, first_body, of_body, in_mesh, changed_since);
    if constexpr (Archive::kIsReader) {
      const size_t n = rest.size();
      for (const size_t size : {fixed.size(), held_axes.size(), prescribed.size(), region.size(), jointed.size(), load_bits.size(),
                                first_body.size(), of_body.size(), in_mesh.size()}) {
        archive.Check(size == n, "another number of vertices");
      }
      for (const auto& [handle, blend] : blended) archive.Check(rest.contains(handle), "a blend is of no vertex");
      for (const VertexHandle handle : changed_since) archive.Check(rest.contains(handle), "a vertex is out of range");
      if (!archive.ok()) return;
      motion.assign(n, {});
      free = {};
      for (const VertexHandle handle : handles()) {
        if (!IsAlive(handle)) free.push(handle);
      }
    }
  }

 private:
  std::priority_queue<VertexHandle, std::vector<VertexHandle>, std::greater<>> free_;
};

}  // namespace palpate::sim
