#include "sim/world/blade_bonds.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr int kPoints = 24;           // of the edge that are looked up in tissue
constexpr double kDrag_m = 2.5e-4;    // of tissue by an edge that is about to cut, if the springs may be that stiff
constexpr double kStiffer = 20;       // a coupled tool's springs are at most this much stiffer than what drives it
constexpr double kOutside = -1e-6;    // least weight of a point that counts as inside
constexpr double kLeastShare = 1e-3;  // of the pull: vertices with less are left out

bool HasToughness(const WorldBody& body) {
  for (size_t zone = 0; zone < body.zones().count(); ++zone) {
    if (body.zones().MaterialOf(static_cast<TetZoneId>(zone)).fracture_toughness_j_per_m2 > 0) return true;
  }
  return false;
}

/// Barycentric weights of p in a tet. False: it has no volume, or is inside out.
bool WeightsIn(const std::array<Vector3d, 4>& x, const Vector3d& p, std::array<double, 4>* weights) {
  const Vector3d a = x[1] - x[0], b = x[2] - x[0], c = x[3] - x[0], d = p - x[0];
  const double volume = a.dot(b.cross(c));
  if (!(volume > 0)) return false;
  *weights = {0, d.dot(b.cross(c)) / volume, d.dot(c.cross(a)) / volume, d.dot(a.cross(b)) / volume};
  (*weights)[0] = 1 - (*weights)[1] - (*weights)[2] - (*weights)[3];
  return true;
}

}  // namespace

Vector3d BladeBonds::PositionOf(VertexHandle handle) const { return ToVector(vertices_.state[handle].position_m); }

/// For each of `points_m`, each of which stands for `part_m` of the edge, the tet that it is deepest in, if that is deeper than `holds`
/// has.
void BladeBonds::HoldInTets(const WorldBody& body, std::span<const Vector3d> points_m, double part_m, std::vector<Hold>* holds) const {
  Eigen::AlignedBox3d edge;
  for (const Vector3d& point : points_m) edge.extend(point);
  const auto& tets = body.arrays()->tets;
  for (uint32_t slot = 0; slot < tets.size(); ++slot) {
    if (tets[slot] == kFreeTet) continue;
    std::array<Vector3d, 4> x;
    Eigen::AlignedBox3d box;
    for (size_t c = 0; c < 4; ++c) {
      x[c] = PositionOf(body.HandleOf(tets[slot][c]));
      box.extend(x[c]);
    }
    if (!box.intersects(edge)) continue;
    const double toughness = body.zones().MaterialOf(body.ZoneOf(slot)).fracture_toughness_j_per_m2;
    for (size_t i = 0; i < points_m.size(); ++i) {
      Hold found{.force_n = toughness * part_m, .count = 4};
      if (!WeightsIn(x, points_m[i], &found.weights)) break;
      found.depth = *std::ranges::min_element(found.weights);
      if (found.depth < kOutside || ((*holds)[i].count > 0 && found.depth <= (*holds)[i].depth)) continue;
      for (size_t c = 0; c < 4; ++c) found.handles[c] = body.HandleOf(tets[slot][c]);
      (*holds)[i] = found;
    }
  }
}

/// Appends where the edge passes through the sheet.
void BladeBonds::HoldInSheet(const WorldBody& body, const std::array<Vector3d, 2>& edge_m, std::vector<Hold>* holds) const {
  const Vector3d way = edge_m[1] - edge_m[0];
  for (uint32_t t = 0; t < body.sheet().triangle_slot_count(); ++t) {
    if (!body.sheet().IsTriangle(t)) continue;
    std::array<Vector3d, 3> x;
    for (size_t c = 0; c < 3; ++c) x[c] = PositionOf(body.HandleOf(body.sheet().TriangleVertices(t)[c]));
    const Vector3d normal = (x[1] - x[0]).cross(x[2] - x[0]);
    const double along = way.dot(normal);
    if (along == 0) continue;
    const double at = (x[0] - edge_m[0]).dot(normal) / along;
    if (!(at >= 0 && at <= 1)) continue;
    const Vector3d point = edge_m[0] + at * way;
    const TetZoneId zone = body.ZoneOfShellAt(t);
    Hold found{.force_n = body.zones().MaterialOf(zone).fracture_toughness_j_per_m2 * body.zones().ThicknessOf(zone), .count = 3};
    for (size_t c = 0; c < 3; ++c) {
      found.handles[c] = body.HandleOf(body.sheet().TriangleVertices(t)[c]);
      found.weights[c] = (x[(c + 1) % 3] - point).cross(x[(c + 2) % 3] - point).dot(normal) / normal.squaredNorm();
    }
    found.depth = *std::min_element(found.weights.begin(), found.weights.begin() + 3);
    if (!(found.depth >= 0)) continue;
    // Through an edge of two triangles it passes once.
    const bool is_known =
        std::ranges::any_of(*holds, [&](const Hold& other) { return other.count == 3 && other.depth == 0 && found.depth == 0; });
    if (!is_known) holds->push_back(found);
  }
}

/// By handle, ascending.
std::vector<BladeBonds::Share> BladeBonds::ListShares(const std::array<Vector3d, 2>& edge_m) const {
  std::vector<Vector3d> points_m;
  for (int i = 0; i < kPoints; ++i) points_m.emplace_back(edge_m[0] + (i + 0.5) / kPoints * (edge_m[1] - edge_m[0]));
  std::vector<Hold> holds(points_m.size());
  for (const auto& body : bodies_) {
    if (body->kind() != BodyKind::kDeformable || !body->is_cuttable() || !HasToughness(*body)) continue;
    if (body->has_sheet()) {
      HoldInSheet(*body, edge_m, &holds);
    } else {
      HoldInTets(*body, points_m, (edge_m[1] - edge_m[0]).norm() / kPoints, &holds);
    }
  }
  std::vector<Share> shares;
  double sum_n = 0;
  for (const Hold& hold : holds) {
    for (size_t c = 0; c < hold.count; ++c) {
      const double force_n = std::max(hold.weights[c], 0.0) * hold.force_n;
      if (force_n > 0) shares.push_back({hold.handles[c], force_n});
      sum_n += force_n;
    }
  }
  std::ranges::stable_sort(shares, {}, &Share::handle);
  std::vector<Share> merged;
  for (const Share& share : shares) {
    if (merged.empty() || merged.back().handle != share.handle) merged.push_back({share.handle, 0});
    merged.back().force_n += share.force_n;
  }
  std::erase_if(merged, [&](const Share& share) { return share.force_n < kLeastShare * sum_n; });
  return merged;
}

/// Springs to these vertices that are stretched as the tissue is dragged by now.
void BladeBonds::AddBond(size_t t, std::span<const Share> shares, double contact_n_per_m) {
  const ToolDescription& tool = description_.tools[t];
  ToolState& state = tools_[t];
  Bond bond{.tool = t, .first = anchors_.size(), .count = shares.size()};
  for (const Share& share : shares) bond.yield_n += share.force_n;
  double stiffest_n_per_m = contact_n_per_m;
  if (tool.drive == ToolDrive::kCoupled) {
    const double dt = description_.dt_s;
    const double impedance_n_per_m = tool.mass_kg / (dt * dt) + CouplingDamping(tool) / dt + tool.coupling_stiffness_n_per_m;
    stiffest_n_per_m = std::min(stiffest_n_per_m, kStiffer * impedance_n_per_m);
  }
  bond.yield_m = std::max(kDrag_m, bond.yield_n / stiffest_n_per_m);
  if (state.drag_m.norm() > bond.yield_m) state.drag_m *= bond.yield_m / state.drag_m.norm();
  const Eigen::Quaterniond to_tool = state.pose.rotation.conjugate();
  for (const Share& share : shares) {
    const Vector3d in_tool = to_tool * (PositionOf(share.handle) - state.drag_m - state.pose.position_m);
    anchors_.push_back({.vertex = ToNumber(share.handle),
                        .holder = state.first_collider,
                        .target_m = ToArray(state.aim.rotation * (in_tool - state.parts[0].tip_m)),
                        .stiffness_n_per_m = share.force_n / bond.yield_m,
                        .max_force_n = share.force_n});
  }
  bonds_.push_back(bond);
}

void BladeBonds::Prepare(double contact_n_per_m) {
  Reset();
  for (size_t t = 0; t < tools_.size(); ++t) {
    const InstrumentDescription& instrument = description_.tools[t].instrument;
    ToolState& state = tools_[t];
    if (!instrument.traits().has_blade) continue;
    std::vector<Share> shares;
    if (state.blade_m) {  // it is led
      std::array<Vector3d, 2> edge_m = BladeOf(instrument);
      for (Vector3d& end : edge_m) end = state.pose.position_m + state.pose.rotation * end;
      shares = ListShares(edge_m);
    }
    if (shares.empty()) {
      state.drag_m.setZero();
    } else {
      AddBond(t, shares, contact_n_per_m);
    }
  }
}

void BladeBonds::Follow(const gpu::TissueStep& step, std::span<const gpu::AnchorReport> reports) {
  for (const Bond& bond : bonds_) {
    ToolState& state = tools_[bond.tool];
    Vector3d drag_m = Vector3d::Zero();
    Vector3d moved_m = Vector3d::Zero();
    for (size_t i = bond.first; i < bond.first + bond.count; ++i) {
      const gpu::TissueAnchor& anchor = anchors_[i];
      const double weight = anchor.max_force_n / bond.yield_n;
      const Vector3d point = ToVector(reports[i].point);
      const Vector3d on_tool = -ToVector(reports[i].force);
      const Vector3d holder = ToVector(step.colliders[anchor.holder].tip);
      drag_m += weight * (point - holder - Vector3d(anchor.target_m[0], anchor.target_m[1], anchor.target_m[2]));
      moved_m += weight * (point - PositionOf(VertexHandle{anchor.vertex}));
      state.blade_force_n += on_tool;
      state.blade_torque_n_m += (point - state.pose.position_m).cross(on_tool);
    }
    state.tissue_force_n += state.blade_force_n;
    state.blade_body = vertices_.body[VertexHandle{anchors_[bond.first].vertex}];
    // What drags tissue farther than it bears has parted it.
    state.drag_m = drag_m * std::min(1.0, bond.yield_m / std::max(drag_m.norm(), 1e-30));
    // The end of the cut is where it was in the tissue.
    if (!state.blade_m) continue;
    for (Vector3d& end : *state.blade_m) end += moved_m;
  }
}

}  // namespace palpate::sim
