#pragma once

#include <algorithm>
#include <vector>

#include "gpu/dynamics/surface_follower.h"

namespace palpate::gpu {

/// Several followers as one, each of vertices of its own. At most one of them, the first, tells how far bodies went (FollowedWays).
class SurfaceFollowers final : public SurfaceFollower {
 public:
  void Add(SurfaceFollower* follower) { all_.push_back(follower); }
  bool empty() const { return all_.empty(); }

  bool MovesAsWhole(uint32_t slot) const override {
    for (const SurfaceFollower* const follower : all_) {
      if (follower->MovesAsWhole(slot)) return true;
    }
    return false;
  }
  bool IsNeverCut(uint32_t slot) const override {
    return std::ranges::any_of(all_, [slot](const SurfaceFollower* follower) { return follower->IsNeverCut(slot); });
  }
  bool ReadsSweepStart() const override {
    return std::ranges::any_of(all_, [](const SurfaceFollower* follower) { return follower->ReadsSweepStart(); });
  }
  FollowedWays ways() const override { return all_.front()->ways(); }
  absl::Status Detected(Queue& queue) override {
    return Each([&](SurfaceFollower& follower) { return follower.Detected(queue); });
  }
  absl::Status FilterBegins(Queue& queue) override {
    return Each([&](SurfaceFollower& follower) { return follower.FilterBegins(queue); });
  }
  absl::Status TakeBack(Queue& queue, bool from_start, const DeviceBuffer<float>& shares, const DeviceBuffer<uint32_t>& entry_begins,
                        const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) override {
    return Each([&](SurfaceFollower& follower) { return follower.TakeBack(queue, from_start, shares, entry_begins, x, touched); });
  }
  absl::Status TakeBackFromStart(Queue& queue, const DeviceBuffer<float>& shares, const DeviceBuffer<Float4>& x,
                                 const DeviceBuffer<uint8_t>& touched) override {
    return Each([&](SurfaceFollower& follower) { return follower.TakeBackFromStart(queue, shares, x, touched); });
  }
  absl::Status RollBack(Queue& queue) override {
    return Each([&](SurfaceFollower& follower) { return follower.RollBack(queue); });
  }
  absl::Status Bound(Queue& queue, const DeviceBuffer<uint32_t>& vertex_groups, const DeviceBuffer<float>& reaches,
                     const DeviceBuffer<Float4>& detected, const DeviceBuffer<float>& clear_m, const DeviceBuffer<uint32_t>& entry_begins,
                     const DeviceBuffer<Float4>& bounds, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) override {
    return Each([&](SurfaceFollower& follower) {
      return follower.Bound(queue, vertex_groups, reaches, detected, clear_m, entry_begins, bounds, x, touched);
    });
  }

 private:
  template <typename Call>
  absl::Status Each(const Call& call) {
    for (SurfaceFollower* const follower : all_) PALPATE_RETURN_IF_ERROR(call(*follower));
    return absl::OkStatus();
  }

  std::vector<SurfaceFollower*> all_;
};

}  // namespace palpate::gpu
