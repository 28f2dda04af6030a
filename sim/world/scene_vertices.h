#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include <Eigen/Core>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/topology/ids.h"

namespace palpate::sim {

/// What a world knows of every vertex, by handle: its place in the solver's order of the caller, which a vertex keeps for as long as it
/// lives, whatever becomes of the mesh around it and of the body it belongs to. Handles of vertices that are gone are given to new ones,
/// the lowest first.
struct SceneVertices {
  static constexpr uint32_t kNoBody = 0xffffffffU;

  std::vector<Eigen::Vector3d> rest_m;
  std::vector<uint8_t> is_fixed;
  std::vector<uint8_t> held;           ///< bit a: a vertex that is not fixed keeps its coordinate a
  std::vector<uint8_t> is_prescribed;  ///< of quasi-static tissue, which TissueModel::prescribed moves
  std::vector<uint32_t> driven;        ///< region of TissueModel::driven, kNoSlot: none
  std::vector<uint32_t> loads;         ///< bit k: in TissueModel::loads[k]
  std::vector<uint32_t> origin;        ///< TissueModel::vertex_origin
  std::vector<uint32_t> body;          ///< kNoBody: the handle is free
  std::vector<uint32_t> slot;          ///< in the body's mesh
  /// Positions and velocities, up to date only while edits run.
  std::vector<gpu::TissueVertexState> state;
  std::vector<uint32_t> changed;  ///< handles, since the solver's model was brought up to date; may repeat

  uint32_t Add() {
    if (!free_.empty()) {
      const uint32_t handle = free_.top();
      free_.pop();
      changed.push_back(handle);
      return handle;
    }
    const auto handle = static_cast<uint32_t>(rest_m.size());
    changed.push_back(handle);
    rest_m.emplace_back(0, 0, 0);
    is_fixed.push_back(0);
    held.push_back(0);
    is_prescribed.push_back(0);
    driven.push_back(kNoSlot);
    loads.push_back(0);
    origin.push_back(0);
    body.push_back(kNoBody);
    slot.push_back(kNoSlot);
    state.emplace_back();
    return handle;
  }
  void Release(uint32_t handle) {
    rest_m[handle].setZero();
    is_fixed[handle] = 1;
    held[handle] = 0;
    is_prescribed[handle] = 0;
    driven[handle] = kNoSlot;
    loads[handle] = 0;
    origin[handle] = 0;
    body[handle] = kNoBody;
    slot[handle] = kNoSlot;
    state[handle] = {};
    changed.push_back(handle);
    free_.push(handle);
  }
  size_t size() const { return rest_m.size(); }

 private:
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free_;
};

}  // namespace palpate::sim
