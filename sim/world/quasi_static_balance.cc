// The balance of the tissue with its contacts. The rest of QuasiStatic is in quasi_static.cc.
#include <algorithm>
#include <utility>

#include "sim/world/quasi_static.h"

namespace palpate::sim {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::Vector3d;
using Eigen::VectorXd;

// Contacts whose gap would be wider than this many margins if nothing yielded cannot push.
constexpr double kFarMargins = 2;
constexpr size_t kMaxContacts = 128;  // that push at once; of more, those with the smallest gaps
constexpr double kTolerance_m = 1e-8;
constexpr int kMaxIterations = 40;

Index At(size_t vertex) { return static_cast<Index>(3 * vertex); }
Vector3d ToVector(const gpu::Float4& v) { return {v.x, v.y, v.z}; }
Vector3d ToVector(const std::array<double, 3>& v) { return {v[0], v[1], v[2]}; }

}  // namespace

/// Where the tissue goes in one step, found in stages, each of which goes on from what those before it found.
class QuasiStatic::Balance {
 public:
  Balance(const QuasiStatic& tissue, const gpu::StepParams& params, std::span<const gpu::ColliderTarget> targets)
      : tissue_(tissue), params_(params), targets_(targets) {}

  void MoveFreely();
  void AimColliders();
  void AddContacts();
  void AddAnchors(std::span<const gpu::TissueAnchor> anchors);
  void LeaveLoneToolsOut();
  void YieldToContacts();
  Vector3d PlaceOf(VertexHandle handle) const {
    return tissue_.rest_m_[handle] + u_m_[tissue_.part_of_[handle]].segment<3>(At(tissue_.local_of_[handle]));
  }

 private:
  /// A vertex's share of a contact.
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
  Vector3d AddTerms(std::span<const VertexHandle> handles, std::span<const double> weights, Item* item) const;
  void SetTool(uint32_t collider, Item* item) const;
  MatrixXd Compliance() const;
  Eigen::Matrix3d ComplianceOf(const Item& a, const Item& b) const;

  const QuasiStatic& tissue_;
  const gpu::StepParams& params_;
  const std::span<const gpu::ColliderTarget> targets_;
  std::vector<VectorXd> u_m_;         // [part][3 * vertex] displacements
  std::vector<Vector3d> tips_m_;      // [collider]
  std::vector<double> tool_n_per_m_;  // [collider], 0: not coupled
  std::vector<Item> items_;
};

/// Where everything would be without contacts.
void QuasiStatic::Balance::MoveFreely() {
  u_m_.resize(tissue_.parts_.size());
  for (size_t p = 0; p < tissue_.parts_.size(); ++p) {
    const Part& part = tissue_.parts_[p];
    VectorXd u(At(part.handles.size()));
    for (size_t v = 0; v < part.handles.size(); ++v) {
      u.segment<3>(At(v)) = tissue_.position_m_[part.handles[v]] - tissue_.rest_m_[part.handles[v]];
    }
    VectorXd load = part.weight_n + part.joined_n + part.model->ApplyViscosity(u);
    // The dynamic tissue at the interface pulls back with its layer's stiffness against every move from where its force was found.
    for (const StiffnessBlock& block : part.layer) load.segment<3>(At(block.row)) += block.block_n_per_m * u.segment<3>(At(block.column));
    u_m_[p] = part.model->Displace(load);
  }
}

/// Where the colliders would be. A coupled tool is one more body, of a compliance of its own.
void QuasiStatic::Balance::AimColliders() {
  const double dt = params_.dt_s;
  tips_m_.resize(targets_.size());
  tool_n_per_m_.assign(targets_.size(), 0.0);
  for (size_t c = 0; c < targets_.size(); ++c) {
    const uint32_t of_leader = tissue_.colliders_[c].leader;
    const gpu::Collider& leader = tissue_.colliders_[of_leader];
    tips_m_[c] = ToVector(targets_[c].tip_m);
    const double coupling = leader.device_tip.w;
    if (!(coupling > 0)) continue;
    const double inertia = leader.velocity.w / (dt * dt);
    const double damping = leader.device_velocity.w / dt;
    tool_n_per_m_[c] = inertia + damping + coupling;
    const Vector3d target = ToVector(targets_[of_leader].tip_m);
    const Vector3d ballistic = ToVector(leader.tip) + dt * ToVector(leader.velocity);
    const Vector3d dragged = ToVector(leader.tip) + (target - ToVector(leader.device_tip));
    tips_m_[c] += (inertia * ballistic + damping * dragged + coupling * target) / tool_n_per_m_[c] - target;
  }
}

/// Returns how far the point of the contact has come.
Vector3d QuasiStatic::Balance::AddTerms(std::span<const VertexHandle> handles, std::span<const double> weights, Item* item) const {
  Vector3d move = Vector3d::Zero();
  for (size_t i = 0; i < handles.size(); ++i) {
    const uint32_t chosen = tissue_.ChosenOf(handles[i]);
    if (chosen == kNone || weights[i] == 0) continue;
    item->terms.push_back({tissue_.part_of_[handles[i]], chosen, tissue_.local_of_[handles[i]], weights[i]});
    move += weights[i] * (PlaceOf(handles[i]) - tissue_.position_m_[handles[i]]);
  }
  return move;
}

void QuasiStatic::Balance::SetTool(uint32_t collider, Item* item) const {
  if (collider >= targets_.size() || tool_n_per_m_[collider] == 0) return;
  item->leader = tissue_.colliders_[collider].leader;
  item->tool_n_per_m = tool_n_per_m_[collider];
}

void QuasiStatic::Balance::AddContacts() {
  for (const Contact& contact : tissue_.contacts_) {
    Item item;
    ResponseContact& out = item.contact;
    Vector3d move = AddTerms({contact.handles.data(), contact.vertex_count}, {contact.weights.data(), contact.vertex_count}, &item);
    if (contact.collider < targets_.size()) {
      const gpu::Collider& collider = tissue_.colliders_[contact.collider];
      move -= tips_m_[contact.collider] + contact.arm * ToVector(targets_[contact.collider].axis_m) - ToVector(collider.tip) -
              contact.arm * ToVector(collider.axis);
    }
    SetTool(contact.collider, &item);
    if (item.terms.empty() && item.leader == kNone) continue;
    out.law = contact.law;
    out.normal = contact.normal;
    out.gap_m = contact.gap_m + contact.normal.dot(move);
    out.slip_m = move;
    out.stiffness_n_per_m = contact.stiffness_n_per_m;
    out.margin_m = params_.margin_m;
    out.stiffening = params_.stiffening;
    out.friction = contact.friction;
    out.slip_full_m = params_.slip_m;
    if (out.gap_m < kFarMargins * out.margin_m) items_.push_back(std::move(item));
  }
  if (items_.size() > kMaxContacts) {
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.contact.gap_m < b.contact.gap_m; });
    items_.resize(kMaxContacts);
  }
}

void QuasiStatic::Balance::AddAnchors(std::span<const gpu::TissueAnchor> anchors) {
  for (const gpu::TissueAnchor& anchor : anchors) {
    const VertexHandle handle{anchor.vertex};
    if (anchor.holder >= targets_.size() || tissue_.ChosenOf(handle) == kNone) continue;  // clips hold what is dynamic only
    Item item;
    constexpr double kOne = 1;
    AddTerms({&handle, 1}, {&kOne, 1}, &item);
    SetTool(anchor.holder, &item);
    item.contact.law = ContactLaw::kSpring;
    item.contact.stretch_m = PlaceOf(handle) - tips_m_[anchor.holder] - ToVector(anchor.target_m);
    item.contact.stiffness_n_per_m = anchor.stiffness_n_per_m;
    item.contact.max_force_n = anchor.max_force_n;
    items_.push_back(std::move(item));
  }
}

/// Of tools that touch nothing quasi-static the solver takes care.
void QuasiStatic::Balance::LeaveLoneToolsOut() {
  std::erase_if(items_, [&](const Item& item) {
    return item.terms.empty() && std::none_of(items_.begin(), items_.end(),
                                              [&](const Item& other) { return other.leader == item.leader && !other.terms.empty(); });
  });
}

/// Finds the forces of all contacts together, and moves the tissue on by what they do.
void QuasiStatic::Balance::YieldToContacts() {
  std::vector<ResponseContact> contacts;
  for (const Item& item : items_) contacts.push_back(item.contact);
  const ResponseSolution solution = SolveResponse(contacts, Compliance(), kTolerance_m, kMaxIterations);
  std::vector<VectorXd> loads_n(u_m_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    for (const Term& term : items_[i].terms) {
      VectorXd& load_n = loads_n[term.part];
      if (load_n.size() == 0) load_n = VectorXd::Zero(u_m_[term.part].size());
      load_n.segment<3>(At(term.local)) += term.weight * solution.force_n[i];
    }
  }
  for (size_t p = 0; p < u_m_.size(); ++p) {
    if (loads_n[p].size() > 0) u_m_[p] += tissue_.parts_[p].model->Displace(loads_n[p]);
  }
}

/// [3 * item][3 * item] m/N: what a force on one does to another.
MatrixXd QuasiStatic::Balance::Compliance() const {
  MatrixXd compliance = MatrixXd::Zero(At(items_.size()), At(items_.size()));
  for (size_t i = 0; i < items_.size(); ++i) {
    for (size_t j = i; j < items_.size(); ++j) {
      const Eigen::Matrix3d block = ComplianceOf(items_[i], items_[j]);
      compliance.block<3, 3>(At(i), At(j)) = block;
      compliance.block<3, 3>(At(j), At(i)) = block.transpose();
    }
  }
  return compliance;
}

Eigen::Matrix3d QuasiStatic::Balance::ComplianceOf(const Item& a, const Item& b) const {
  Eigen::Matrix3d block = Eigen::Matrix3d::Zero();
  for (const Term& of_a : a.terms) {
    for (const Term& of_b : b.terms) {
      if (of_a.part != of_b.part) continue;
      block += of_a.weight * of_b.weight * tissue_.parts_[of_a.part].model->Response(of_a.chosen, of_b.chosen);
    }
  }
  if (a.leader != kNone && a.leader == b.leader) block.diagonal().array() += 1 / a.tool_n_per_m;
  return block;
}

std::vector<float> QuasiStatic::Solve(const gpu::StepParams& params, std::span<const gpu::ColliderTarget> targets,
                                      std::span<const gpu::TissueAnchor> anchors) {
  Balance balance(*this, params, targets);
  balance.MoveFreely();
  balance.AimColliders();
  balance.AddContacts();
  balance.AddAnchors(anchors);
  balance.LeaveLoneToolsOut();
  balance.YieldToContacts();
  std::vector<float> positions;
  for (const VertexHandle handle : prescribed_) {
    const Eigen::Vector3f to = balance.PlaceOf(handle).cast<float>();
    target_m_[handle] = to.cast<double>();
    positions.insert(positions.end(), to.data(), to.data() + 3);
  }
  return positions;
}

}  // namespace palpate::sim
