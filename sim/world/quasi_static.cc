#include "sim/world/quasi_static.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "gpu/dynamics/packed_types.h"
#include "sim/reference/reference_body.h"
#include "sim/scene/material.h"

namespace palpate::sim {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::Vector3d;
using Eigen::VectorXd;

// The layer of dynamic tets at an interface stiffens as it is strained, and may not be taken as softer than it is.
constexpr double kLayerMargin = 1.5;
// Contacts whose gap would be wider than this many margins if nothing yielded cannot push.
constexpr double kFarMargins = 2;
constexpr size_t kMaxContacts = 128;  // that push at once; of more, those with the smallest gaps
constexpr double kTolerance_m = 1e-8;
constexpr int kMaxIterations = 40;
constexpr double kContactRatio = 20;  // TissueOptions::stiffness_n_per_m

Index At(size_t vertex) { return static_cast<Index>(3 * vertex); }
Vector3d ToVector(const gpu::Float4& v) { return {v.x, v.y, v.z}; }
Vector3d ToVector(const std::array<double, 3>& v) { return {v[0], v[1], v[2]}; }

bool IsQuasiStaticTet(const WorldBody& body, uint32_t slot) {
  return body.arrays()->tets[slot] != kFreeTet && body.IsQuasiStatic(body.ZoneOf(slot));
}

size_t CountQuasiStatic(const WorldBody& body) {
  size_t count = 0;
  for (uint32_t t = 0; t < body.arrays()->tets.size(); ++t) count += IsQuasiStaticTet(body, t) ? 1 : 0;
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
    if (!IsQuasiStaticTet(body, t)) continue;
    for (const uint32_t v : tets[t]) root[find(v)] = find(tets[t][0]);
  }
  std::vector<uint32_t> fixed_count(root.size(), 0);
  for (uint32_t v = 0; v < root.size(); ++v) {
    if (body.HandleOf(v) != kNoHandle && vertices.is_fixed[body.HandleOf(v)] != 0) ++fixed_count[find(v)];
  }
  bool has_released = false;
  for (uint32_t t = 0; t < tets.size(); ++t) {
    if (!IsQuasiStaticTet(body, t) || fixed_count[find(tets[t][0])] >= 3) continue;
    body.MakeDynamic(body.ZoneOf(t));
    has_released = true;
  }
  return has_released;
}

absl::StatusOr<QuasiStatic::Part> QuasiStatic::MakePart(const WorldBody& body, const Vector3d& gravity_m_per_s2, double dt_s, bool eager,
                                                        const SceneVertices& vertices) const {
  Part part;
  part.body = body.index();
  const std::vector<std::array<uint32_t, 4>>& tets = body.arrays()->tets;
  std::vector<gpu::TissueTet> of_zone;
  for (size_t zone = 0; zone < body.zones().count(); ++zone) {
    PALPATE_ASSIGN_OR_RETURN(of_zone.emplace_back(), TissueOf(body.zones().MaterialOf(static_cast<TetZoneId>(zone))));
  }
  std::vector<uint8_t> is_inside(body.vertex_slot_count(), 0);
  std::vector<uint8_t> is_joined(body.vertex_slot_count(), 0);
  for (uint32_t t = 0; t < tets.size(); ++t) {
    if (tets[t] == kFreeTet) continue;
    for (const uint32_t v : tets[t]) (IsQuasiStaticTet(body, t) ? is_inside : is_joined)[v] = 1;
  }
  std::vector<uint32_t> slots;
  for (uint32_t v = 0; v < is_inside.size(); ++v) {
    if (is_inside[v] != 0) slots.push_back(v);
  }
  std::sort(slots.begin(), slots.end(), [&](uint32_t a, uint32_t b) { return body.HandleOf(a) < body.HandleOf(b); });
  std::vector<uint32_t> local(is_inside.size(), kNone);
  std::vector<Vector3d> rest;
  std::vector<uint8_t> fixed;
  for (const uint32_t v : slots) {
    local[v] = static_cast<uint32_t>(part.handles.size());
    part.handles.push_back(body.HandleOf(v));
    rest.push_back(vertices.rest_m[body.HandleOf(v)]);
    fixed.push_back(vertices.is_fixed[body.HandleOf(v)]);
  }
  // Dynamic tets at the interface get local vertices of their own beyond those of the part.
  std::vector<gpu::TissueTet> inside;
  std::vector<gpu::TissueTet> layer;
  std::vector<Vector3d> layer_rest = rest;
  std::vector<uint32_t> layer_local = local;
  double young_sum = 0;
  double edge_sum = 0;
  for (uint32_t t = 0; t < tets.size(); ++t) {
    if (tets[t] == kFreeTet) continue;
    gpu::TissueTet tet = of_zone[body.ZoneOf(t)];
    if (IsQuasiStaticTet(body, t)) {
      for (size_t c = 0; c < 4; ++c) tet.vertices[c] = local[tets[t][c]];
      inside.push_back(tet);
      young_sum += body.zones().MaterialOf(body.ZoneOf(t)).young_modulus_pa;
      for (size_t c = 0; c < 6; ++c) {
        constexpr std::array<std::array<size_t, 2>, 6> kEdges = {{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}};
        edge_sum += (rest[tet.vertices[kEdges[c][0]]] - rest[tet.vertices[kEdges[c][1]]]).norm() / 6;
      }
    } else if (std::any_of(tets[t].begin(), tets[t].end(), [&](uint32_t v) { return is_inside[v] != 0; })) {
      for (size_t c = 0; c < 4; ++c) {
        uint32_t& place = layer_local[tets[t][c]];
        if (place == kNone) {
          place = static_cast<uint32_t>(layer_rest.size());
          layer_rest.push_back(vertices.rest_m[body.HandleOf(tets[t][c])]);
        }
        tet.vertices[c] = place;
      }
      layer.push_back(tet);
    }
  }
  part.tet_count = inside.size();
  const double count = static_cast<double>(inside.size());
  part.young_edge_n_per_m = young_sum / count * edge_sum / count;

  VectorXd joined_mass = VectorXd::Zero(static_cast<Index>(slots.size()));
  part.joined_n = VectorXd::Zero(At(slots.size()));
  if (!layer.empty()) {
    std::vector<uint8_t> held(layer_rest.size(), 1);
    for (const uint32_t v : slots) {
      if (is_joined[v] == 0 || fixed[local[v]] != 0) continue;
      part.interface.push_back(local[v]);
      held[local[v]] = 0;
    }
    // What the layer does to the interface as it is now; from the next step on the device tells.
    PALPATE_ASSIGN_OR_RETURN(const ReferenceBody now, ReferenceBody::Create(layer_rest, layer, held));
    VectorXd layer_x = now.Rest();
    for (uint32_t v = 0; v < layer_local.size(); ++v) {
      if (layer_local[v] != kNone) layer_x.segment<3>(At(layer_local[v])) = body.PositionOf(v);
    }
    const VectorXd pull = now.Forces(layer_x);
    for (const uint32_t v : part.interface) part.joined_n.segment<3>(At(v)) = pull.segment<3>(At(v));
    for (gpu::TissueTet& tet : layer) {
      const auto stiffer = static_cast<float>(kLayerMargin + tet.damping_s / dt_s);
      tet.mu_pa *= stiffer;
      tet.lambda_pa *= stiffer;
      tet.fibers.coupling_pa *= stiffer;
      tet.fibers.stiffness_pa *= stiffer;
      tet.fibers.shear_pa *= stiffer;
    }
    PALPATE_ASSIGN_OR_RETURN(const ReferenceBody joined, ReferenceBody::Create(layer_rest, layer, held));
    for (const uint32_t v : part.interface) joined_mass[v] = joined.mass_kg()[v];
    std::map<std::pair<uint32_t, uint32_t>, Eigen::Matrix3d> blocks;
    const Eigen::SparseMatrix<double> stiffness = joined.Stiffness(joined.Rest(), true);
    for (Index column = 0; column < stiffness.outerSize(); ++column) {
      for (Eigen::SparseMatrix<double>::InnerIterator it(stiffness, column); it; ++it) {
        const auto found =
            blocks.try_emplace({static_cast<uint32_t>(it.row() / 3), static_cast<uint32_t>(it.col() / 3)}, Eigen::Matrix3d::Zero());
        found.first->second(it.row() % 3, it.col() % 3) = it.value();
      }
    }
    for (const auto& block : blocks) part.layer.push_back({block.first.first, block.first.second, block.second});
  }

  // What can be touched: the surface, and what a cut of the tissue beyond the interface can uncover.
  std::vector<uint32_t> chosen = part.interface;
  for (const uint32_t v : body.arrays()->surface_vertices) {
    if (v != kNoSlot && is_inside[v] != 0 && fixed[local[v]] == 0) chosen.push_back(local[v]);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  PALPATE_ASSIGN_OR_RETURN(part.model, PrecomputedModel::Create(rest, inside, fixed, chosen, part.layer, {.dt_s = dt_s}));
  if (eager) part.model->ComputeColumns();
  part.weight_n.resize(At(slots.size()));
  for (size_t v = 0; v < slots.size(); ++v) {
    part.weight_n.segment<3>(At(v)) = (part.model->mass_kg()[v] + joined_mass[static_cast<Index>(v)]) * gravity_m_per_s2;
  }
  return part;
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

std::vector<float> QuasiStatic::Solve(const gpu::StepParams& params, std::span<const gpu::ColliderTarget> targets,
                                      std::span<const gpu::TissueAnchor> anchors) {
  const double dt = params.dt_s;
  // Where everything would be without contacts.
  std::vector<VectorXd> free_u(parts_.size());
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    VectorXd u(At(part.handles.size()));
    for (size_t v = 0; v < part.handles.size(); ++v) u.segment<3>(At(v)) = position_m_[part.handles[v]] - rest_m_[part.handles[v]];
    VectorXd load = part.weight_n + part.joined_n + part.model->ApplyViscosity(u);
    // The dynamic tissue at the interface pulls back with its layer's stiffness against every move from where its force was found.
    for (const StiffnessBlock& block : part.layer) load.segment<3>(At(block.row)) += block.block_n_per_m * u.segment<3>(At(block.column));
    free_u[p] = part.model->Displace(load);
  }
  const auto free_place = [&](VertexHandle handle) {
    return Vector3d(rest_m_[handle] + free_u[part_of_[handle]].segment<3>(At(local_of_[handle])));
  };
  // Where the colliders would be. A coupled tool is one more body, of a compliance of its own.
  std::vector<Vector3d> tips(targets.size());
  std::vector<double> tool_n_per_m(targets.size(), 0.0);
  for (size_t c = 0; c < targets.size(); ++c) {
    const gpu::Collider& leader = colliders_[colliders_[c].leader];
    const gpu::ColliderTarget& aim = targets[colliders_[c].leader];
    tips[c] = ToVector(targets[c].tip_m);
    const double coupling = leader.device_tip.w;
    if (!(coupling > 0)) continue;
    const double inertia = leader.velocity.w / (dt * dt);
    const double damping = leader.device_velocity.w / dt;
    tool_n_per_m[c] = inertia + damping + coupling;
    const Vector3d target = ToVector(aim.tip_m);
    const Vector3d ballistic = ToVector(leader.tip) + dt * ToVector(leader.velocity);
    const Vector3d dragged = ToVector(leader.tip) + (target - ToVector(leader.device_tip));
    tips[c] += (inertia * ballistic + damping * dragged + coupling * target) / tool_n_per_m[c] - target;
  }

  struct Term {
    uint32_t part, chosen, local;
    double weight;
  };
  struct Item {
    ResponseContact contact;
    uint32_t leader = kNone;  // of a coupled tool
    double tool_n_per_m = 0;
    std::vector<Term> terms;
  };
  std::vector<Item> items;
  const auto add_terms = [&](Item* item, std::span<const VertexHandle> handles, std::span<const double> weights) {
    Vector3d move = Vector3d::Zero();
    for (size_t i = 0; i < handles.size(); ++i) {
      const uint32_t chosen = ChosenOf(handles[i]);
      if (chosen == kNone || weights[i] == 0) continue;
      item->terms.push_back({part_of_[handles[i]], chosen, local_of_[handles[i]], weights[i]});
      move += weights[i] * (free_place(handles[i]) - position_m_[handles[i]]);
    }
    return move;
  };
  const auto set_tool = [&](Item* item, uint32_t collider) {
    if (collider >= targets.size() || tool_n_per_m[collider] == 0) return;
    item->leader = colliders_[collider].leader;
    item->tool_n_per_m = tool_n_per_m[collider];
  };
  for (const Contact& contact : contacts_) {
    Item item;
    ResponseContact& out = item.contact;
    Vector3d move = add_terms(&item, {contact.handles.data(), contact.vertex_count}, {contact.weights.data(), contact.vertex_count});
    if (contact.collider < targets.size()) {
      const gpu::Collider& collider = colliders_[contact.collider];
      move -= tips[contact.collider] + contact.arm * ToVector(targets[contact.collider].axis_m) - ToVector(collider.tip) -
              contact.arm * ToVector(collider.axis);
    }
    set_tool(&item, contact.collider);
    if (item.terms.empty() && item.leader == kNone) continue;
    out.law = contact.law;
    out.normal = contact.normal;
    out.gap_m = contact.gap_m + contact.normal.dot(move);
    out.slip_m = move;
    out.stiffness_n_per_m = contact.stiffness_n_per_m;
    out.margin_m = params.margin_m;
    out.stiffening = params.stiffening;
    out.friction = contact.friction;
    out.slip_full_m = params.slip_m;
    if (out.gap_m < kFarMargins * out.margin_m) items.push_back(std::move(item));
  }
  if (items.size() > kMaxContacts) {
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.contact.gap_m < b.contact.gap_m; });
    items.resize(kMaxContacts);
  }
  for (const gpu::TissueAnchor& anchor : anchors) {
    const VertexHandle handle{anchor.vertex};
    if (anchor.holder >= targets.size() || ChosenOf(handle) == kNone) continue;  // clips hold what is dynamic only
    Item item;
    constexpr double kOne = 1;
    add_terms(&item, {&handle, 1}, {&kOne, 1});
    set_tool(&item, anchor.holder);
    item.contact.law = ContactLaw::kSpring;
    item.contact.stretch_m = free_place(handle) - tips[anchor.holder] - ToVector(anchor.target_m);
    item.contact.stiffness_n_per_m = anchor.stiffness_n_per_m;
    item.contact.max_force_n = anchor.max_force_n;
    items.push_back(std::move(item));
  }
  // Of tools that touch nothing quasi-static the solver takes care.
  std::erase_if(items, [&](const Item& item) {
    return item.terms.empty() &&
           std::none_of(items.begin(), items.end(), [&](const Item& other) { return other.leader == item.leader && !other.terms.empty(); });
  });

  std::vector<ResponseContact> contacts;
  for (const Item& item : items) contacts.push_back(item.contact);
  MatrixXd compliance = MatrixXd::Zero(At(items.size()), At(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t j = i; j < items.size(); ++j) {
      Eigen::Matrix3d block = Eigen::Matrix3d::Zero();
      for (const Term& a : items[i].terms) {
        for (const Term& b : items[j].terms) {
          if (a.part == b.part) block += a.weight * b.weight * parts_[a.part].model->Response(a.chosen, b.chosen);
        }
      }
      if (items[i].leader != kNone && items[i].leader == items[j].leader) block.diagonal().array() += 1 / items[i].tool_n_per_m;
      compliance.block<3, 3>(At(i), At(j)) = block;
      compliance.block<3, 3>(At(j), At(i)) = block.transpose();
    }
  }
  const ResponseSolution solution = SolveResponse(contacts, compliance, kTolerance_m, kMaxIterations);
  std::vector<VectorXd> loads(parts_.size());
  for (size_t i = 0; i < items.size(); ++i) {
    for (const Term& term : items[i].terms) {
      if (loads[term.part].size() == 0) loads[term.part] = VectorXd::Zero(free_u[term.part].size());
      loads[term.part].segment<3>(At(term.local)) += term.weight * solution.force_n[i];
    }
  }
  for (size_t p = 0; p < parts_.size(); ++p) {
    if (loads[p].size() > 0) free_u[p] += parts_[p].model->Displace(loads[p]);
  }
  std::vector<float> positions;
  for (const VertexHandle handle : prescribed_) {
    const Eigen::Vector3f to = free_place(handle).cast<float>();
    target_m_[handle] = to.cast<double>();
    positions.insert(positions.end(), to.data(), to.data() + 3);
  }
  return positions;
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
  for (const gpu::TissueTet& tet : input.tets) {
    is_sound = is_sound && std::all_of(tet.vertices.begin(), tet.vertices.end(), is_vertex) &&
               static_cast<uint32_t>(tet.energy) < PALPATE_ENERGY_CODES;
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
