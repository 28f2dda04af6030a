#include "sim/world/quasi_static.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "gpu/dynamics/packed_types.h"

namespace palpate::sim {
namespace {

using Eigen::Index;
using Eigen::Vector3d;
using Eigen::VectorXd;

constexpr double kContactRatio = 20;  // TissueOptions::stiffness_n_per_m

Index At(size_t vertex) { return static_cast<Index>(3 * vertex); }

size_t CountQuasiStatic(const WorldBody& body) {
  size_t count = 0;
  for (uint32_t t = 0; t < body.arrays()->tets.size(); ++t) count += body.IsQuasiStaticTet(t) ? 1 : 0;
  return count;
}

}  // namespace

/// Makes zones dynamic of which a part hangs on nothing fixed. Returns whether it did.
bool QuasiStatic::ReleaseUnheld(WorldBody& body, const SceneVertices& vertices) {
  std::vector<uint32_t> root(body.vertex_slot_count());
  std::iota(root.begin(), root.end(), 0U);
  const auto find = [&](uint32_t v) {
    while (root[v] != v) v = root[v] = root[root[v]];
    return v;
  };
  const std::vector<std::array<uint32_t, 4>>& tets = body.arrays()->tets;
  for (uint32_t t = 0; t < tets.size(); ++t) {
    if (!body.IsQuasiStaticTet(t)) continue;
    for (const uint32_t v : tets[t]) root[find(v)] = find(tets[t][0]);
  }
  std::vector<uint32_t> fixed_count(root.size(), 0);
  for (uint32_t v = 0; v < root.size(); ++v) {
    if (body.HandleOf(v) != kNoHandle && vertices.is_fixed[body.HandleOf(v)] != 0) ++fixed_count[find(v)];
  }
  bool has_released = false;
  for (uint32_t t = 0; t < tets.size(); ++t) {
    if (!body.IsQuasiStaticTet(t) || fixed_count[find(tets[t][0])] >= 3) continue;
    body.MakeDynamic(body.ZoneOf(t));
    has_released = true;
  }
  return has_released;
}

absl::Status QuasiStatic::Update(std::span<const std::unique_ptr<WorldBody>> bodies, const Vector3d& gravity_m_per_s2, double dt_s,
                                 bool eager, SceneVertices* vertices) {
  std::vector<Part> parts;
  for (const auto& body : bodies) {
    const std::vector<TetZoneId> changed = body->TakeChangedZones();
    if (!StartsQuasiStatic(body->simulation())) continue;
    for (const TetZoneId zone : changed) body->MakeDynamic(zone);
    const auto release = [&] {
      for (size_t zone = 0; zone < body->zones().count(); ++zone) body->MakeDynamic(static_cast<TetZoneId>(zone));
    };
    while (!eager && ReleaseUnheld(*body, *vertices)) {
    }
    const size_t count = CountQuasiStatic(*body);
    if (count == 0) continue;
    const auto old = std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.body == body->index(); });
    if (old != parts_.end() && old->model != nullptr && old->tet_count == count) {
      parts.push_back(std::move(*old));
      continue;
    }
    absl::StatusOr<Part> part = MakePart(*body, gravity_m_per_s2, dt_s, eager, *vertices);
    if (part.ok()) {
      parts.push_back(*std::move(part));
    } else if (eager || part.status().code() != absl::StatusCode::kFailedPrecondition) {
      const bool is_unheld = part.status().code() == absl::StatusCode::kFailedPrecondition;
      return absl::Status(is_unheld ? absl::StatusCode::kInvalidArgument : part.status().code(),
                          absl::StrCat("body ", body->name(), ": ", std::string(part.status().message())));
    } else {
      release();
    }
  }
  parts_ = std::move(parts);
  const size_t n = vertices->size();
  part_of_.assign(n, kNone);
  local_of_.assign(n, kNone);
  const SceneVertices::Array<uint8_t> was_prescribed = std::exchange(vertices->is_prescribed, SceneVertices::Array<uint8_t>(n, 0));
  rest_m_ = vertices->rest_m;
  position_m_.resize(n, Vector3d::Zero());
  before_m_.resize(n, Vector3d::Zero());
  prescribed_.clear();
  for (uint32_t p = 0; p < parts_.size(); ++p) {
    for (uint32_t v = 0; v < parts_[p].handles.size(); ++v) {
      const VertexHandle handle = parts_[p].handles[v];
      part_of_[handle] = p;
      local_of_[handle] = v;
      if (was_prescribed[handle] == 0) position_m_[handle] = before_m_[handle] = rest_m_[handle];
      if (vertices->is_fixed[handle] != 0) continue;
      vertices->is_prescribed[handle] = 1;
      vertices->state[handle].velocity_m_per_s = {};
      vertices->state[handle].velocity_before_m_per_s = {};
      prescribed_.push_back(handle);
    }
  }
  std::sort(prescribed_.begin(), prescribed_.end());
  target_m_ = position_m_;
  return absl::OkStatus();
}

void QuasiStatic::ForgetModel(uint32_t body) {
  for (Part& part : parts_) {
    if (part.body == body) part.model = nullptr;
  }
}

gpu::TissuePrescribed QuasiStatic::Prescribed() const {
  gpu::TissuePrescribed prescribed;
  for (const VertexHandle handle : prescribed_) {
    prescribed.vertices.push_back(ToNumber(handle));
    prescribed.stiffness_n_per_m.push_back(static_cast<float>(parts_[part_of_[handle]].young_edge_n_per_m));
  }
  return prescribed;
}

double QuasiStatic::ContactStiffness() const {
  double sum = 0;
  double count = 0;
  for (const Part& part : parts_) {
    sum += static_cast<double>(part.tet_count) * part.young_edge_n_per_m;
    count += static_cast<double>(part.tet_count);
  }
  return count > 0 ? kContactRatio * sum / count : 0;
}

void QuasiStatic::Reset(const SceneVertices& vertices, std::span<const gpu::Collider> colliders) {
  rest_m_ = position_m_ = before_m_ = target_m_ = vertices.rest_m;
  contacts_.clear();
  colliders_.assign(colliders.begin(), colliders.end());
  for (Part& part : parts_) part.joined_n.setZero();
}

uint32_t QuasiStatic::ChosenOf(VertexHandle handle) const {
  return IsPart(handle) ? parts_[part_of_[handle]].model->ChosenIndex(local_of_[handle]) : kNone;
}

void QuasiStatic::SetReached(std::span<const std::pair<VertexHandle, Eigen::Vector3f>> reached) {
  before_m_ = position_m_;
  for (const VertexHandle handle : prescribed_) position_m_[handle] = target_m_[handle];
  for (const auto& [handle, position] : reached) position_m_[handle] = position.cast<double>();
}

void QuasiStatic::SetContacts(std::vector<Contact> contacts, std::span<const gpu::Collider> colliders) {
  contacts_ = std::move(contacts);
  colliders_.assign(colliders.begin(), colliders.end());
}

bool QuasiStatic::has_interfaces() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return !part.interface.empty(); });
}

void QuasiStatic::SetJoined(std::span<const float> elastic_forces_n) {
  for (Part& part : parts_) {
    for (const uint32_t v : part.interface) {
      const float* const force = &elastic_forces_n[size_t{ToNumber(part.handles[v])} * 3];
      part.joined_n.segment<3>(At(v)) = Vector3d(force[0], force[1], force[2]);
    }
  }
}

void QuasiStatic::GiveVelocities(double dt_s, SceneVertices* vertices) const {
  for (const VertexHandle handle : prescribed_) {
    const Eigen::Vector3f v = ((position_m_[handle] - before_m_[handle]) / dt_s).cast<float>();
    vertices->state[handle].velocity_m_per_s = vertices->state[handle].velocity_before_m_per_s = {v.x(), v.y(), v.z(), 0.0F};
  }
}

// --- state

void QuasiStatic::SaveState(StateWriter& archive) const {
  // All members, so that a new one is not forgotten.
  const auto& [parts, part_of, local_of, prescribed, rest_m, position_m, before_m, target_m, contacts, colliders] = *this;
  archive.Enter("QuasiStatic");
  archive(static_cast<uint64_t>(parts.size()));
  if (parts.empty()) return;  // nor anything that the next edit would go on from
  for (const Part& part : parts) {
    const auto& [body, handles, tet_count, model, interface, layer, weight_n, joined_n, young_edge] = part;
    archive(body, handles, uint64_t{tet_count}, interface, layer, weight_n, joined_n, young_edge, model->input(), model->has_all_columns());
  }
  archive(part_of, local_of, prescribed, rest_m, position_m, before_m, target_m, contacts, colliders);
}

absl::StatusOr<QuasiStatic::Part> QuasiStatic::LoadPart(StateReader& archive) {
  Part part;
  uint64_t tet_count = 0;
  PrecomputedModel::Input input;
  bool has_all_columns = false;
  archive(part.body, part.handles, tet_count, part.interface, part.layer, part.weight_n, part.joined_n, part.young_edge_n_per_m, input,
          has_all_columns);
  const size_t n = part.handles.size();
  const auto is_vertex = [n](uint32_t v) { return v < n; };
  bool is_sound = n > 0 && input.rest_m.size() == n && input.fixed.size() == n && part.weight_n.size() == At(n) &&
                  part.joined_n.size() == At(n) && tet_count == input.tets.size() &&
                  std::all_of(part.interface.begin(), part.interface.end(), is_vertex);
  for (const StiffnessBlock& block : part.layer) is_sound = is_sound && is_vertex(block.row) && is_vertex(block.column);
  for (const ElasticTet& tet : input.tets) {
    is_sound = is_sound && std::all_of(tet.vertices.begin(), tet.vertices.end(), is_vertex) && IsMaterialModel(tet.model);
  }
  archive.Check(is_sound, "a pre-computed model of other vertices");
  PALPATE_RETURN_IF_ERROR(archive.status());
  part.tet_count = tet_count;
  PALPATE_ASSIGN_OR_RETURN(
      part.model, PrecomputedModel::Create(input.rest_m, input.tets, input.fixed, input.chosen, input.extra, {.dt_s = input.dt_s}));
  if (has_all_columns) part.model->ComputeColumns();
  return part;
}

bool QuasiStatic::IsSound(const SceneVertices& vertices, size_t body_count) const {
  const size_t n = vertices.size();
  for (const size_t size : {part_of_.size(), local_of_.size(), rest_m_.size(), position_m_.size(), before_m_.size(), target_m_.size()}) {
    if (size != n) return false;
  }
  for (const VertexHandle handle : part_of_.indices()) {
    if (part_of_[handle] == kNone) continue;
    if (part_of_[handle] >= parts_.size() || local_of_[handle] >= parts_[part_of_[handle]].handles.size()) return false;
  }
  for (const Part& part : parts_) {
    if (part.body >= body_count) return false;
    for (const VertexHandle handle : part.handles) {
      if (!part_of_.contains(handle)) return false;
    }
  }
  for (const VertexHandle handle : prescribed_) {
    if (!part_of_.contains(handle) || part_of_[handle] == kNone) return false;
  }
  for (const gpu::Collider& collider : colliders_) {
    if (collider.leader >= colliders_.size()) return false;
  }
  for (const Contact& contact : contacts_) {
    if (contact.vertex_count > contact.handles.size() || contact.law < ContactLaw::kCapsule || contact.law > ContactLaw::kSpring ||
        (contact.collider != kNone && contact.collider >= colliders_.size())) {
      return false;
    }
    for (uint32_t i = 0; i < contact.vertex_count; ++i) {
      if (!vertices.body.contains(contact.handles[i])) return false;
    }
  }
  return true;
}

absl::Status QuasiStatic::LoadState(const SceneVertices& vertices, size_t body_count, StateReader& archive) {
  archive.Enter("QuasiStatic");
  uint64_t part_count = 0;
  archive(part_count);
  if (part_count == 0) return archive.status();
  for (uint64_t p = 0; p < part_count && archive.ok(); ++p) {
    PALPATE_ASSIGN_OR_RETURN(parts_.emplace_back(), LoadPart(archive));
  }
  archive(part_of_, local_of_, prescribed_, rest_m_, position_m_, before_m_, target_m_, contacts_, colliders_);
  archive.Check(!archive.ok() || IsSound(vertices, body_count), "it names what is not there");
  return archive.status();
}

}  // namespace palpate::sim
