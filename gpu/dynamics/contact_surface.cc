#include "gpu/dynamics/contact_surface.h"

#include <algorithm>
#include <array>
#include <utility>

namespace palpate::gpu {

uint32_t ContactSurface::GroupOf(uint32_t body) const {
  return body | (self_collision_on_ && layout_.self_collision[body] != 0 ? PALPATE_GROUP_SELF : 0U);
}

void ContactSurface::FindWhoMeetsItself() {
  meets_itself_ =
      self_collision_on_ && std::any_of(layout_.self_collision.begin(), layout_.self_collision.end(), [](uint8_t s) { return s != 0; });
}

bool ContactSurface::SetSelfCollision(bool on) { return std::exchange(self_collision_on_, on) != on; }

absl::StatusOr<std::vector<UInt2>> ContactSurface::Build(Queue& queue) {
  std::vector<std::array<uint32_t, 3>> triangles;
  std::vector<uint32_t> groups;
  for (uint32_t t = 0; t < layout_.triangle_count; ++t) {
    const UInt4& v = layout_.triangles[t];
    triangles.push_back({v.x, v.y, v.z});
    groups.push_back(GroupOf(layout_.triangle_body[t]));
  }
  FindWhoMeetsItself();
  PALPATE_ASSIGN_OR_RETURN(SurfaceTopology topology, SurfaceTopology::Build(layout_.vertex_count, triangles, groups));
  PALPATE_ASSIGN_OR_RETURN(DeviceSurface surface, DeviceSurface::Upload(queue, topology, slack_share_));
  PALPATE_RETURN_IF_ERROR(KeepApart(queue, &surface));
  surface_ = std::make_shared<DeviceSurface>(std::move(surface));
  editor_ = slack_share_ > 0 ? std::make_unique<SurfaceTopologyEditor>(topology, *surface_) : nullptr;
  vertex_groups_ = std::move(topology.vertex_groups);
  return std::move(topology.edges);
}

absl::Status ContactSurface::KeepApart(Queue& queue, DeviceSurface* surface) const {
  if (layout_.apart.empty()) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(surface->apart, CreateBufferFrom(queue, std::span<const uint32_t>(layout_.apart), "bodies kept apart"));
  return absl::OkStatus();
}

absl::StatusOr<bool> ContactSurface::Follow(const TissueLayoutDelta& delta, RunWriter* writer) {
  if (!editor_) return false;
  std::vector<uint32_t> groups;
  for (const uint32_t t : delta.triangles) groups.push_back(GroupOf(layout_.triangle_body[t]));
  FindWhoMeetsItself();
  return editor_->Apply(delta.triangles, std::span(layout_.triangles).first(layout_.triangle_count), groups,
                        static_cast<uint32_t>(layout_.self_collision.size()), surface_.get(), writer);
}

void ContactSurface::SaveState(StateWriter& archive) const {
  // All members, so that a new one is not forgotten.
  [[maybe_unused]] const auto& [layout, slack_share, self_collision_on, meets_itself, surface, editor, vertex_groups] = *this;
  archive.Enter("ContactSurface");
  archive(self_collision_on, editor != nullptr);
  if (editor) editor->SaveState(*surface, archive);
}

absl::Status ContactSurface::LoadState(Queue& queue, StateReader& archive) {
  bool self_collision_on = true;
  bool has_editor = false;
  archive.Enter("ContactSurface");
  archive(self_collision_on, has_editor);
  archive.Check(has_editor == (editor_ != nullptr), "with room for edits and without");
  PALPATE_RETURN_IF_ERROR(archive.status());
  if (SetSelfCollision(self_collision_on)) PALPATE_RETURN_IF_ERROR(Build(queue).status());
  if (!has_editor) return absl::OkStatus();
  std::vector<uint32_t> groups;
  for (uint32_t t = 0; t < layout_.triangle_count; ++t) groups.push_back(GroupOf(layout_.triangle_body[t]));
  PALPATE_ASSIGN_OR_RETURN(SurfaceTopologyEditor::Loaded loaded,
                           SurfaceTopologyEditor::Load(queue, archive, std::span(layout_.triangles).first(layout_.triangle_count), groups,
                                                       layout_.vertex_count, static_cast<uint32_t>(layout_.self_collision.size())));
  PALPATE_RETURN_IF_ERROR(KeepApart(queue, &loaded.surface));
  surface_ = std::make_shared<DeviceSurface>(std::move(loaded.surface));
  editor_ = std::move(loaded.editor);
  return absl::OkStatus();
}

}  // namespace palpate::gpu
