#include "sim/world/tissue_removal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/mesh/signed_distance.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr size_t kRefinedGrowth = 8;    // tets of a body that is refined by power, to those of its description
constexpr double kBladeStep_m = 0.001;  // way of a blade between cuts: less would only make slivers

/// Corners of a box around points.
struct Bounds {
  Vector3d low = Vector3d::Constant(std::numeric_limits<double>::infinity());
  Vector3d high = -low;
  void Add(const Vector3d& x) {
    low = low.cwiseMin(x);
    high = high.cwiseMax(x);
  }
  bool Meets(const Bounds& other) const { return (low.array() <= other.high.array()).all() && (other.low.array() <= high.array()).all(); }
};

/// At rest.
double LongestEdge(const ClosedMesh& mesh, uint32_t tet) {
  const auto& v = mesh.TetVertices(tet);
  double longest_sq = 0;
  for (const auto& [a, b] : kTetEdges) {
    const Vector3d edge = mesh.PositionOf(v[static_cast<size_t>(a)]) - mesh.PositionOf(v[static_cast<size_t>(b)]);
    longest_sq = std::max(longest_sq, edge.squaredNorm());
  }
  return std::sqrt(longest_sq);
}

double LongestEdge(const SheetMesh& sheet, uint32_t triangle) {
  const auto& v = sheet.TriangleVertices(triangle);
  double longest_m = 0;
  for (size_t k = 0; k < 3; ++k) longest_m = std::max(longest_m, (sheet.PositionOf(v[k]) - sheet.PositionOf(v[(k + 1) % 3])).norm());
  return longest_m;
}

// Heat is kept by tet. In a shell triangles take their places: no body has both.
TetId KeyOf(TriangleId triangle) { return TetId{static_cast<uint64_t>(triangle)}; }
TriangleId TriangleOf(TetId key) { return TriangleId{static_cast<uint64_t>(key)}; }

double LongestEdgeOf(const WorldBody& body, TetId key) {
  return body.has_sheet() ? LongestEdge(body.sheet(), SlotOf(key)) : LongestEdge(body.mesh(), SlotOf(key));
}

}  // namespace

bool TissueRemoval::SheetMeets(const WorldBody& body, const Eigen::AlignedBox3d& box) const {
  for (uint32_t t = 0; t < body.sheet().triangle_slot_count(); ++t) {
    if (!body.sheet().IsTriangle(t)) continue;
    Eigen::AlignedBox3d own;
    for (const uint32_t v : body.sheet().TriangleVertices(t)) own.extend(PositionOf(body.HandleOf(v)));
    if (own.intersects(box)) return true;
  }
  return false;
}

/// Triangles of a shell within reach of a tool's tip. Returns whether one of them is to be refined first.
bool TissueRemoval::ListExposed(const WorldBody& body, const Vector3d& tip_m, const ToolDescription& tool,
                                std::vector<AblationModel::Exposure>* exposures) const {
  const SheetMesh& sheet = body.sheet();
  bool is_coarse = false;
  for (uint32_t t = 0; t < sheet.triangle_slot_count(); ++t) {
    if (!sheet.IsTriangle(t)) continue;
    std::array<Vector3d, 3> x;
    for (size_t c = 0; c < 3; ++c) x[c] = PositionOf(body.HandleOf(sheet.TriangleVertices(t)[c]));
    const double way_m = (tip_m - ClosestOnTriangle(tip_m, x[0], x[1], x[2])).norm();
    const TetZoneId zone = body.ZoneOfShellAt(t);
    const double thickness_m = body.zones().ThicknessOf(zone);
    const double gap_m = std::max(way_m - tool.radius_m - thickness_m / 2, 0.0);
    if (gap_m >= tool.instrument.reach_m) continue;
    exposures->push_back({.tet = KeyOf(sheet.IdOfTriangle(t)),
                          .volume_m3 = sheet.RestArea(t) * thickness_m,
                          .zone = zone,
                          .weight = 1 - gap_m / tool.instrument.reach_m});
    is_coarse |= tool.instrument.refine_to_m > 0 && LongestEdge(sheet, t) > tool.instrument.refine_to_m;
  }
  return is_coarse;
}

/// The body of the description that a body is, or was cut off from.
size_t TissueRemoval::RootOf(size_t body) const {
  while (body >= description_.bodies.size()) {
    const std::string& parent = bodies_[body]->arrays()->parent;
    const auto found = std::find_if(bodies_.begin(), bodies_.end(), [&](const auto& other) { return other->name() == parent; });
    body = static_cast<size_t>(found - bodies_.begin());
  }
  return body;
}

/// Heat in the tissue of a body.
absl::StatusOr<AblationModel*> TissueRemoval::AblationOf(size_t body) {
  ablations_.resize(std::max(ablations_.size(), body + 1));
  if (ablations_[body] == nullptr) {
    const BodyDescription& root = description_.bodies[RootOf(body)];
    std::vector<AblationTissue> tissues;
    for (size_t zone = 0; zone < bodies_[body]->zones().count(); ++zone) {
      const AblationProperties& properties = zone == 0 || zone > root.zones.size() ? root.ablation : root.zones[zone - 1].ablation;
      tissues.push_back({.density_kg_per_m3 = bodies_[body]->zones().MaterialOf(static_cast<TetZoneId>(zone)).density_kg_per_m3,
                         .energy_j_per_kg = properties.energy_j_per_kg,
                         .cooling_time_s = properties.cooling_time_s});
    }
    PALPATE_ASSIGN_OR_RETURN(AblationModel model, AblationModel::Create(std::move(tissues)));
    ablations_[body] = std::make_unique<AblationModel>(std::move(model));
  }
  return ablations_[body].get();
}

/// Gives the power of a tool to the tets within its reach, and asks for those that have enough to be removed, and for coarse ones to be
/// refined.
absl::Status TissueRemoval::Ablate(size_t t, std::vector<Edit>* edits) {
  const ToolDescription& tool = description_.tools[t];
  const ToolCommand& command = commands_[t];
  ToolState& state = tools_[t];
  const double power_w = command.power_w > 0 ? std::min(command.power_w, tool.instrument.max_power_w) : tool.instrument.max_power_w;
  const double duty = command.duty > 0 ? std::min(command.duty, 1.0) : 1;
  const Vector3d tip = state.pose.position_m;
  const double far_m = tool.radius_m + tool.instrument.reach_m;
  Bounds reach;
  reach.Add(tip - Vector3d::Constant(far_m));
  reach.Add(tip + Vector3d::Constant(far_m));
  std::vector<std::vector<AblationModel::Exposure>> exposures(bodies_.size());
  std::vector<double> weights(bodies_.size(), 0);
  double total_weight = 0;
  std::vector<Edit> refinements;
  for (size_t b = 0; b < bodies_.size(); ++b) {
    const WorldBody& body = *bodies_[b];
    if (body.kind() != BodyKind::kDeformable || !body.is_cuttable()) continue;
    const std::vector<std::array<uint32_t, 4>>& tets = body.arrays()->tets;
    bool is_coarse = body.has_sheet() && ListExposed(body, tip, tool, &exposures[b]);
    for (const AblationModel::Exposure& exposure : exposures[b]) {
      weights[b] += exposure.weight;
      total_weight += exposure.weight;
    }
    for (uint32_t slot = 0; slot < tets.size(); ++slot) {
      if (tets[slot] == kFreeTet) continue;
      std::array<Vector3d, 4> x;
      Bounds bounds;
      for (size_t c = 0; c < 4; ++c) {
        x[c] = PositionOf(body.HandleOf(tets[slot][c]));
        bounds.Add(x[c]);
      }
      if (!bounds.Meets(reach)) continue;
      const double gap_m = std::max(DistanceToTet(tip, x) - tool.radius_m, 0.0);
      if (gap_m >= tool.instrument.reach_m) continue;
      AblationModel::Exposure exposure;
      exposure.tet = body.mesh().IdOfTet(slot);
      exposure.volume_m3 = body.mesh().RestVolume(slot);
      exposure.zone = body.ZoneOf(slot);
      exposure.weight = 1 - gap_m / tool.instrument.reach_m;
      if (!(exposure.volume_m3 > 0)) continue;
      weights[b] += exposure.weight;
      total_weight += exposure.weight;
      exposures[b].push_back(exposure);
      if (tool.instrument.refine_to_m > 0 && LongestEdge(body.mesh(), slot) > tool.instrument.refine_to_m) {
        is_coarse = true;
      }
    }
    if (is_coarse) {
      const BodyDescription& root = description_.bodies[RootOf(b)];
      RefineEdit refine{BallRegion{tip, far_m}, tool.instrument.refine_to_m};
      refine.tet_budget = kRefinedGrowth * root.mesh.tets.size();
      if (body.has_sheet()) refine.triangle_budget = kRefinedGrowth * root.shell->triangles.size();
      refinements.push_back({.body = b, .what = std::move(refine)});
    }
  }
  // What a budget has refused once is not asked for again before the mesh is another.
  const bool is_refining = !refinements.empty() && state.refined_version != topology_->version;
  std::vector<TetId> all_due;
  std::vector<Edit> carvings;
  for (size_t b = 0; b < bodies_.size(); ++b) {
    if (exposures[b].empty()) continue;
    state.is_cutting = true;
    PALPATE_ASSIGN_OR_RETURN(AblationModel* const ablation, AblationOf(b));
    PALPATE_ASSIGN_OR_RETURN(std::vector<TetId> due,
                             ablation->Deposit(power_w * weights[b] / total_weight, duty, description_.dt_s, exposures[b]));
    if (is_refining) {  // a coarse tet's parts go, not all of it
      std::erase_if(due, [&](TetId tet) { return LongestEdgeOf(*bodies_[b], tet) > tool.instrument.refine_to_m; });
    }
    all_due.insert(all_due.end(), due.begin(), due.end());
    if (due.empty()) continue;
    TriangleListRegion triangles;
    for (size_t i = 0; bodies_[b]->has_sheet() && i < due.size(); ++i) triangles.triangles.push_back(TriangleOf(due[i]));
    carvings.push_back({.body = b, .what = CarveEdit{TetListRegion{std::move(due)}}});
    if (bodies_[b]->has_sheet()) carvings.back().what = CarveEdit{std::move(triangles)};
  }
  // What could not go as the mesh is, cannot go before it is another.
  if (!all_due.empty() && (all_due != state.due || state.due_version != topology_->version)) {
    state.due = std::move(all_due);
    state.due_version = topology_->version;
    edits->insert(edits->end(), carvings.begin(), carvings.end());
  }
  if (is_refining) {
    state.refined_version = topology_->version;
    edits->insert(edits->end(), refinements.begin(), refinements.end());
  }
  return absl::OkStatus();
}

/// Whether a blade cuts nothing in this step: while nobody leads it, and then until it has come to where the hand is by now. Otherwise the
/// way there, which no hand has made, would be cut.
bool TissueRemoval::IsBladeIdle(size_t t) {
  ToolState& state = tools_[t];
  if (!state.is_blade_led) {
    state.blade_lag_m = std::numeric_limits<double>::infinity();
    return true;
  }
  if (state.blade_lag_m == 0) return false;
  const double lag_m = (commands_[t].device_pose.position_m - state.pose.position_m).norm();
  const bool is_coming = lag_m > kBladeStep_m && lag_m < state.blade_lag_m;
  state.blade_lag_m = is_coming ? lag_m : 0;
  return is_coming;
}

/// Asks for the cut that the blade made since the last one.
void TissueRemoval::Slice(size_t t, std::vector<Edit>* edits) {
  ToolState& state = tools_[t];
  std::array<Vector3d, 2> blade = BladeOf(description_.tools[t].instrument);
  // The tissue that is to part is not at the edge, but where the edge has dragged it.
  for (Vector3d& end : blade) end = state.pose.position_m + state.pose.rotation * end + state.drag_m;
  if (IsBladeIdle(t)) {
    for (const size_t b : state.cut_bodies) bodies_[b]->EndStroke();
    state.cut_bodies.clear();
    state.blade_m.reset();
    return;
  }
  if (!state.blade_m) state.blade_m = blade;
  const std::array<Vector3d, 2> before = *state.blade_m;
  if (std::max((blade[0] - before[0]).norm(), (blade[1] - before[1]).norm()) < kBladeStep_m) return;
  Bounds sweep;
  for (const auto& edge : {before, blade}) {
    for (const Vector3d& end : edge) sweep.Add(end);
  }
  for (size_t b = 0; b < bodies_.size(); ++b) {
    const WorldBody& body = *bodies_[b];
    if (body.kind() != BodyKind::kDeformable || !body.is_cuttable()) continue;
    const bool is_met = std::any_of(body.arrays()->tets.begin(), body.arrays()->tets.end(),
                                    [&](const std::array<uint32_t, 4>& tet) {
                                      Bounds bounds;
                                      for (const uint32_t v : tet) {
                                        if (tet != kFreeTet) bounds.Add(PositionOf(body.HandleOf(v)));
                                      }
                                      return bounds.Meets(sweep);
                                    }) ||
                        (body.has_sheet() && SheetMeets(body, {sweep.low, sweep.high}));
    const auto in_it = std::find(state.cut_bodies.begin(), state.cut_bodies.end(), b);
    if (is_met) {
      edits->push_back({.body = b, .what = InciseEdit{.edges_m = {before, blade}, .goes_on = true}});
      if (in_it == state.cut_bodies.end()) state.cut_bodies.push_back(b);
    } else if (in_it != state.cut_bodies.end()) {
      bodies_[b]->EndStroke();
      state.cut_bodies.erase(in_it);
    }
  }
  state.blade_m = blade;
}

/// Heat goes where its tissue goes.
void TissueRemoval::FollowEdits(std::span<const Edit> edits, std::span<const EditOutcome> outcomes) {
  for (size_t i = 0; i < edits.size(); ++i) {
    if (edits[i].body >= ablations_.size() || ablations_[edits[i].body] == nullptr) continue;
    AblationModel& ablation = *ablations_[edits[i].body];
    const WorldBody& body = *bodies_[edits[i].body];
    std::vector<std::pair<TetId, TetId>> remapped = outcomes[i].remapped_tets;
    for (const auto& [parent, child] : outcomes[i].remapped_triangles) remapped.emplace_back(KeyOf(parent), KeyOf(child));
    const auto size_of = [&body](TetId key) {  // of a triangle its area: shares are all that counts
      const uint32_t slot = body.has_sheet() ? body.sheet().Find(TriangleOf(key)) : body.mesh().Find(key);
      return slot == kNoSlot ? 0 : body.has_sheet() ? body.sheet().RestArea(slot) : body.mesh().RestVolume(slot);
    };
    for (size_t begin = 0, end = 0; begin < remapped.size(); begin = end) {
      std::vector<AblationModel::Child> children;
      double sum = 0;
      for (end = begin; end < remapped.size() && remapped[end].first == remapped[begin].first; ++end) {
        const double size = size_of(remapped[end].second);
        if (!(size > 0)) continue;
        children.push_back({remapped[end].second, size});
        sum += size;
      }
      for (AblationModel::Child& child : children) child.share /= sum;
      if (!children.empty()) ablation.Replace(remapped[begin].first, children);
    }
    for (const TetId tet : outcomes[i].removed_tets) ablation.Remove(tet);
    for (const TriangleId triangle : outcomes[i].removed_triangles) ablation.Remove(KeyOf(triangle));
  }
}

}  // namespace palpate::sim
