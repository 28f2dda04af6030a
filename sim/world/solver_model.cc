#include "sim/world/solver_model.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "sim/scene/material.h"
#include "sim/scene/shell_material.h"
#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

bool IsSameMaterial(const gpu::TissueTet& a, const gpu::TissueTet& b) {
  return a.mu_pa == b.mu_pa && a.lambda_pa == b.lambda_pa && a.damping_s == b.damping_s && a.density_kg_per_m3 == b.density_kg_per_m3 &&
         a.mass_damping_per_s == b.mass_damping_per_s && a.energy == b.energy && a.is_smoothed == b.is_smoothed &&
         a.fibers.direction == b.fibers.direction && a.fibers.coupling_pa == b.fibers.coupling_pa &&
         a.fibers.stiffness_pa == b.fibers.stiffness_pa && a.fibers.shear_pa == b.fibers.shear_pa;
}

uint32_t& At(std::vector<uint32_t>& places, uint32_t slot) {
  if (slot >= places.size()) places.resize(slot + 1, kNoSlot);
  return places[slot];
}

}  // namespace

std::vector<gpu::TissueTet> SolverModel::TissueOfZones(const WorldBody& body) const {
  std::vector<gpu::TissueTet> of_zone;
  for (size_t zone = 0; zone < body.zones().count(); ++zone) {
    of_zone.push_back(*TissueOf(body.zones().MaterialOf(static_cast<TetZoneId>(zone))));  // checked before
    of_zone.back().is_smoothed = body.tet_element() == TetElement::kNodeSmoothed ? 1 : 0;
    if (body.simulation() != Simulation::kShapeMatched) continue;
    of_zone.back().energy = gpu::TissueEnergy::kShapeMatched;
    of_zone.back().shape = body.index();
  }
  return of_zone;
}

void SolverModel::PlaceTet(uint32_t body, uint32_t slot, const std::vector<gpu::TissueTet>& of_zone, gpu::TissueChange* change) {
  const WorldBody& of = *bodies_[body];
  auto place = static_cast<uint32_t>(model_.tets.size());
  if (free_tets_.empty()) {
    model_.tets.emplace_back();
  } else {
    place = free_tets_.back();
    free_tets_.pop_back();
  }
  gpu::TissueTet& tet = model_.tets[place];
  tet = of_zone[of.ZoneOf(slot)];
  for (size_t c = 0; c < 4; ++c) tet.vertices[c] = ToNumber(of.HandleOf(of.arrays()->tets[slot][c]));
  At(tet_places_[body], slot) = place;
  if (change != nullptr) change->tets.push_back(place);
}

void SolverModel::AddVertexAreas(uint32_t triangle, double sign) {
  for (const uint32_t corner : model_.surface_triangles[triangle]) {
    const VertexHandle v{corner};
    if (!vertex_area_m2_.contains(v)) vertex_area_m2_.resize(vertices_.size());
    vertex_area_m2_[v] += sign * triangle_area_m2_[triangle] / 3;
  }
}

void SolverModel::PlaceTriangle(uint32_t place, uint32_t body, uint32_t slot) {
  const WorldBody& of = *bodies_[body];
  std::array<VertexHandle, 3> corners{};
  for (size_t c = 0; c < 3; ++c) corners[c] = of.HandleOf(of.arrays()->surface_vertices[of.arrays()->surface_triangles[slot][c]]);
  if (place == model_.surface_triangles.size()) {
    model_.surface_triangles.emplace_back();
    model_.triangle_body.emplace_back();
    model_.triangle_loads.emplace_back();
    triangle_slots_.emplace_back();
    triangle_area_m2_.emplace_back();
  } else {
    AddVertexAreas(place, -1);
  }
  const Eigen::Vector3d& o = vertices_.rest_m[corners[0]];
  triangle_area_m2_[place] = (vertices_.rest_m[corners[1]] - o).cross(vertices_.rest_m[corners[2]] - o).norm() / 2;
  model_.surface_triangles[place] = {ToNumber(corners[0]), ToNumber(corners[1]), ToNumber(corners[2])};
  AddVertexAreas(place, 1);
  model_.triangle_body[place] = body;
  model_.triangle_loads[place] = of.zones().LoadsOn(of.arrays()->triangle_zones[slot]);
  triangle_slots_[place] = slot;
  At(triangle_places_[body], slot) = place;
}

void SolverModel::AddDriven(VertexHandle v, gpu::TissueDrivenRegion* region) const {
  const uint32_t number = vertices_.driven[v];
  const gpu::TissueDrivenBlend alone = {
      .regions = {number, gpu::TissueDrivenBlend::kRests, gpu::TissueDrivenBlend::kRests, gpu::TissueDrivenBlend::kRests},
      .shares = {1, 0, 0, 0}};
  const auto blend = vertices_.blends.find(v);
  if (blend != vertices_.blends.end() || !region->blends.empty()) {
    region->blends.resize(region->vertices.size(), alone);
    region->blends.push_back(blend == vertices_.blends.end() ? alone : blend->second);
  }
  region->vertices.push_back(ToNumber(v));
}

/// Vertices of driven regions, loads and joint sets. O(vertices) in scenes that have any.
void SolverModel::ListRegions() {
  if (motions_.driven.empty() && motions_.loads.empty() && motions_.joint_sets.empty()) return;
  model_.driven = motions_.driven;
  model_.loads = motions_.loads;
  model_.joint_sets = motions_.joint_sets;
  for (const VertexHandle v : vertices_.handles()) {
    if (vertices_.driven[v] != kNoSlot) AddDriven(v, &model_.driven[vertices_.driven[v]]);
    if (vertices_.joint_set[v] != kNoSlot) model_.joint_sets[vertices_.joint_set[v]].vertices.push_back(ToNumber(v));
    for (size_t k = 0; k < model_.loads.size() && vertices_.loads[v] != 0; ++k) {
      if ((vertices_.loads[v] >> k & 1U) != 0) model_.loads[k].vertices.push_back(ToNumber(v));
    }
  }
}

/// How each body is shape-matched; of others nothing refers to it.
void SolverModel::ListShapes() {
  model_.shapes.clear();
  const bool any =
      std::any_of(bodies_.begin(), bodies_.end(), [](const auto& body) { return body->simulation() == Simulation::kShapeMatched; });
  for (size_t b = 0; any && b < bodies_.size(); ++b) {
    model_.shapes.push_back(ShapeOf(bodies_[b]->shape_matching(), bodies_[b]->zones().MaterialOf(0)));
  }
}

/// NURBS shells, with the control points that bodies carry.
void SolverModel::ListBound() {
  model_.nurbs_shells = motions_.nurbs_shells;
  if (motions_.bound.empty()) return;
  for (const auto& body : bodies_) {
    for (const BodyMarkers::Marker& point : body->Carried()) {
      const SceneMotions::Bound& of = motions_.bound[point.index];
      gpu::TissueNurbsShell& shell = model_.nurbs_shells[of.shell];
      gpu::TissueNurbsShell::Bound& bound = shell.bound.emplace_back();
      bound.control = of.control;
      double sum = 0;
      for (size_t k = 0; k < 4; ++k) {
        bound.vertices[k] = ToNumber(body->HandleOf(point.vertices[k]));
        bound.weights[k] = std::max(point.weights[k], 0.0);  // rounding may put it a little outside
        sum += bound.weights[k];
      }
      for (double& weight : bound.weights) weight /= sum;
      const bool is_new = of.ignores_contact && (shell.apart.empty() || shell.apart.back() != body->index());
      if (is_new) shell.apart.push_back(body->index());
    }
  }
  for (gpu::TissueNurbsShell& shell : model_.nurbs_shells) std::ranges::sort(shell.bound, {}, &gpu::TissueNurbsShell::Bound::control);
}

/// Triangles of shells, body by body in the order of their slots. An edit of one makes the model anew.
void SolverModel::ListShells() {
  ListBound();
  model_.nurbs_joint_sets = motions_.nurbs_joint_sets;
  model_.shells.clear();
  for (const auto& body : bodies_) {
    if (body->shell() == nullptr) continue;
    const BodyZones& zones = body->zones();
    std::vector<gpu::ShellTriangle> of_zone;
    for (size_t zone = 0; zone < zones.count(); ++zone) {
      const auto id = static_cast<TetZoneId>(zone);
      of_zone.push_back(*ShellTriangleOf(zones.ShellOf(id), zones.MaterialOf(id)));  // checked before
    }
    const auto add = [&](uint32_t t, const std::array<uint32_t, 3>& triangle) {
      gpu::ShellTriangle& out = model_.shells.emplace_back(of_zone[body->ZoneOfShellAt(t)]);
      for (size_t c = 0; c < 3; ++c) out.vertices[c] = ToNumber(body->HandleOf(triangle[c]));
    };
    for (uint32_t t = 0; !body->has_sheet() && t < body->shell()->triangles.size(); ++t) add(t, body->shell()->triangles[t]);
    for (uint32_t t = 0; body->has_sheet() && t < body->sheet().triangle_slot_count(); ++t) {
      if (body->sheet().IsTriangle(t)) add(t, body->sheet().TriangleVertices(t));
    }
  }
}

uint8_t SolverModel::KindOf(VertexHandle handle) const {
  if (!vertices_.IsAlive(handle)) return gpu::kAbsentVertex;
  return vertices_.is_fixed[handle] != 0 ? gpu::kFixedVertex : gpu::kFreeVertex;
}

/// Of the next body.
void SolverModel::AddTraits(const WorldBody& body) {
  model_.self_collision.push_back(body.self_collision() ? 1 : 0);
  model_.volume_stiffness_pa.push_back(body.volume_stiffness_pa());
  model_.restitution.push_back(body.restitution());
  model_.drag_kg_per_m3.push_back(0.5 * motions_.air_density_kg_per_m3 * body.drag_coefficient());
}

/// From the whole scene: vertices by handle, tets and triangles body by body in the order of their slots.
void SolverModel::Make(gpu::TissuePrescribed prescribed, bool may_be_at_rest) {
  model_ = {};
  tet_places_.assign(bodies_.size(), {});
  triangle_places_.assign(bodies_.size(), {});
  free_tets_.clear();
  triangle_slots_.clear();
  triangle_area_m2_.clear();
  vertex_area_m2_.assign(vertices_.size(), 0);
  with_new_materials_.clear();
  vertices_.changed.clear();
  for (const Eigen::Vector3d& v : vertices_.rest_m) model_.rest_m.push_back(ToArray(v));
  for (const VertexHandle v : vertices_.handles()) model_.fixed.push_back(KindOf(v));
  model_.held_axes = vertices_.held.values();
  model_.may_be_at_rest = may_be_at_rest;
  model_.prescribed = std::move(prescribed);
  for (const uint32_t v : model_.prescribed.vertices) model_.fixed[v] = gpu::kFixedVertex;
  model_.vertex_origin = vertices_.origin.values();
  model_.rigid = motions_.rigid;
  model_.joints = motions_.joints;
  model_.joint_mounts = motions_.joint_mounts;
  ListShapes();
  ListShells();
  ListRegions();
  for (const bool editable : {false, true}) {
    for (uint32_t b = 0; b < bodies_.size(); ++b) {
      if (bodies_[b]->is_editable() != editable) continue;
      const BodyArrays& arrays = *bodies_[b]->arrays();
      const std::vector<gpu::TissueTet> of_zone = TissueOfZones(*bodies_[b]);
      for (uint32_t t = 0; bodies_[b]->kind() == BodyKind::kDeformable && t < arrays.tets.size(); ++t) {
        if (arrays.tets[t] != kFreeTet && !bodies_[b]->IsQuasiStatic(bodies_[b]->ZoneOf(t))) PlaceTet(b, t, of_zone, nullptr);
      }
      for (uint32_t t = 0; t < arrays.surface_triangles.size(); ++t) {
        if (arrays.surface_triangles[t] != kFreeTriangle) PlaceTriangle(static_cast<uint32_t>(model_.surface_triangles.size()), b, t);
      }
    }
  }
  for (const auto& body : bodies_) {
    AddTraits(*body);
  }
}

/// Brings the model to the state of the bodies: of those that were there before `changes` tell what is different, others are new.
/// O(changes), but for scenes with driven regions, loads or joint sets.
gpu::TissueChange SolverModel::Update(std::span<const BodyArraysChange> changes) {
  gpu::TissueChange change;
  const auto known_bodies = static_cast<uint32_t>(tet_places_.size());
  tet_places_.resize(bodies_.size());
  triangle_places_.resize(bodies_.size());
  model_.may_be_at_rest = true;
  ListShapes();
  UpdateVertices(&change);

  // What is gone first, so that what comes finds its places.
  std::vector<uint32_t> gaps;  // of triangles
  for (const BodyArraysChange& of_body : changes) {
    if (of_body.body < known_bodies) Remove(of_body, &change, &gaps);
  }
  std::sort(gaps.begin(), gaps.end());
  size_t filled = 0;
  const auto add_triangle = [&](uint32_t body, uint32_t slot) {
    const uint32_t place = filled < gaps.size() ? gaps[filled++] : static_cast<uint32_t>(model_.surface_triangles.size());
    PlaceTriangle(place, body, slot);
    change.triangles.push_back(place);
  };
  const auto add = [&](uint32_t body, const auto& tets, const auto& triangles) {
    const BodyArrays& arrays = *bodies_[body]->arrays();
    const std::vector<gpu::TissueTet> of_zone = TissueOfZones(*bodies_[body]);
    for (const uint32_t slot : tets) {
      if (slot < arrays.tets.size() && arrays.tets[slot] != kFreeTet) PlaceTet(body, slot, of_zone, &change);
    }
    for (const uint32_t slot : triangles) {
      if (slot < arrays.surface_triangles.size() && arrays.surface_triangles[slot] != kFreeTriangle) add_triangle(body, slot);
    }
  };
  for (const BodyArraysChange& of_body : changes) {
    if (of_body.body < known_bodies) add(of_body.body, of_body.tets, of_body.triangles);
  }
  for (uint32_t b = known_bodies; b < bodies_.size(); ++b) {
    std::vector<uint32_t> tets(bodies_[b]->arrays()->tets.size());
    std::vector<uint32_t> triangles(bodies_[b]->arrays()->surface_triangles.size());
    std::iota(tets.begin(), tets.end(), 0U);
    std::iota(triangles.begin(), triangles.end(), 0U);
    add(b, tets, triangles);
    AddTraits(*bodies_[b]);
  }
  CloseGaps(std::span(gaps).subspan(filled), &change);
  if (!motions_.bound.empty()) ListBound();
  UpdateMaterials(&change);
  return change;
}

void SolverModel::UpdateVertices(gpu::TissueChange* change) {
  for (const VertexHandle v : std::exchange(vertices_.changed, {})) change->vertices.push_back(ToNumber(v));
  std::sort(change->vertices.begin(), change->vertices.end());
  change->vertices.erase(std::unique(change->vertices.begin(), change->vertices.end()), change->vertices.end());
  model_.rest_m.resize(vertices_.size());
  model_.fixed.resize(vertices_.size());
  model_.held_axes.resize(vertices_.size());
  model_.vertex_origin.resize(vertices_.size());
  for (const uint32_t v : change->vertices) {
    const VertexHandle handle{v};
    model_.rest_m[v] = ToArray(vertices_.rest_m[handle]);
    model_.fixed[v] = KindOf(handle);
    model_.held_axes[v] = vertices_.held[handle];
    model_.vertex_origin[v] = vertices_.origin[handle];
  }
  if (!change->vertices.empty()) ListRegions();
}

/// Frees the places of tets; appends those of triangles to `gaps`.
void SolverModel::Remove(const BodyArraysChange& of_body, gpu::TissueChange* change, std::vector<uint32_t>* gaps) {
  for (const uint32_t slot : of_body.tets) {
    const uint32_t place = std::exchange(At(tet_places_[of_body.body], slot), kNoSlot);
    if (place == kNoSlot) continue;
    model_.tets[place].vertices = gpu::kFreeTissueTet;
    free_tets_.push_back(place);
    change->tets.push_back(place);
  }
  for (const uint32_t slot : of_body.triangles) {
    const uint32_t place = std::exchange(At(triangle_places_[of_body.body], slot), kNoSlot);
    if (place != kNoSlot) gaps->push_back(place);
  }
}

/// The last triangles take the places of those that are gone; `gaps` rise.
void SolverModel::CloseGaps(std::span<const uint32_t> gaps, gpu::TissueChange* change) {
  for (size_t filled = 0, end = gaps.size(); filled < end;) {
    const auto last = static_cast<uint32_t>(model_.surface_triangles.size() - 1);
    if (gaps[end - 1] == last) {
      --end;
    } else {
      const uint32_t place = gaps[filled++];
      PlaceTriangle(place, model_.triangle_body[last], triangle_slots_[last]);
      change->triangles.push_back(place);
    }
    AddVertexAreas(last, -1);
    model_.surface_triangles.pop_back();
    model_.triangle_body.pop_back();
    model_.triangle_loads.pop_back();
    triangle_slots_.pop_back();
    triangle_area_m2_.pop_back();
  }
}

bool SolverModel::HasNewShellMaterials() const {
  return std::ranges::any_of(with_new_materials_, [this](uint32_t b) { return bodies_[b]->shell() != nullptr; });
}

void SolverModel::UpdateMaterials(gpu::TissueChange* change) {
  for (const uint32_t b : std::exchange(with_new_materials_, {})) {
    const std::vector<gpu::TissueTet> of_zone = TissueOfZones(*bodies_[b]);
    for (uint32_t slot = 0; slot < tet_places_[b].size(); ++slot) {
      const uint32_t place = tet_places_[b][slot];
      if (place == kNoSlot) continue;
      const std::array<uint32_t, 4> vertices = model_.tets[place].vertices;
      const gpu::TissueTet& now = of_zone[bodies_[b]->ZoneOf(slot)];
      if (IsSameMaterial(model_.tets[place], now)) continue;
      model_.tets[place] = now;
      model_.tets[place].vertices = vertices;
      change->tets.push_back(place);
    }
  }
}

bool SolverModel::IsSound() const {
  const size_t n = vertices_.size();
  const gpu::TissueModel& m = model_;
  if (m.rest_m.size() != n || m.fixed.size() != n || m.held_axes.size() != n || m.vertex_origin.size() != n || vertex_area_m2_.size() > n ||
      m.self_collision.size() != bodies_.size() || m.volume_stiffness_pa.size() != bodies_.size() ||
      m.restitution.size() != bodies_.size() || m.drag_kg_per_m3.size() != bodies_.size() || !m.body_triangle_begin.empty() ||
      m.driven.size() != motions_.driven.size() || m.loads.size() != motions_.loads.size() || m.rigid.size() != motions_.rigid.size() ||
      m.joints.size() != motions_.joints.size() || m.joint_sets.size() != motions_.joint_sets.size() ||
      m.joint_mounts.size() != motions_.joint_mounts.size() || m.nurbs_shells.size() != motions_.nurbs_shells.size() ||
      tet_places_.size() != bodies_.size() || triangle_places_.size() != bodies_.size()) {
    return false;
  }
  for (const VertexHandle v : vertices_.handles()) {
    const bool is_absent = m.fixed[ToNumber(v)] == gpu::kAbsentVertex;
    if (m.fixed[ToNumber(v)] > gpu::kAbsentVertex || is_absent == vertices_.IsAlive(v)) return false;
  }
  for (const gpu::TissueTet& tet : m.tets) {
    if (static_cast<uint32_t>(tet.energy) >= PALPATE_ENERGY_CODES || tet.is_smoothed > 1) return false;
  }
  const size_t triangles = m.surface_triangles.size();
  if (m.triangle_body.size() != triangles || m.triangle_loads.size() != triangles || triangle_slots_.size() != triangles ||
      triangle_area_m2_.size() != triangles) {
    return false;
  }
  for (size_t t = 0; t < triangles; ++t) {
    if (m.triangle_body[t] >= bodies_.size()) return false;
    for (const uint32_t corner : m.surface_triangles[t]) {
      if (!vertex_area_m2_.contains(VertexHandle{corner})) return false;
    }
    const auto& slots = bodies_[m.triangle_body[t]]->arrays()->surface_triangles;
    if (triangle_slots_[t] >= slots.size() || slots[triangle_slots_[t]] == kFreeTriangle) return false;
  }
  const auto are_places = [](const std::vector<uint32_t>& places, size_t slots, size_t count) {
    return places.size() <= slots && std::all_of(places.begin(), places.end(), [&](uint32_t p) { return p == kNoSlot || p < count; });
  };
  for (size_t b = 0; b < bodies_.size(); ++b) {
    const BodyArrays& arrays = *bodies_[b]->arrays();
    if (!are_places(tet_places_[b], arrays.tets.size(), m.tets.size())) return false;
    if (!are_places(triangle_places_[b], arrays.surface_triangles.size(), triangles)) return false;
  }
  return std::all_of(free_tets_.begin(), free_tets_.end(),
                     [&](uint32_t place) { return place < m.tets.size() && m.tets[place].vertices == gpu::kFreeTissueTet; }) &&
         std::all_of(with_new_materials_.begin(), with_new_materials_.end(), [&](uint32_t b) { return b < bodies_.size(); });
}

}  // namespace palpate::sim
