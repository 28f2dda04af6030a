#include "sim/scene/motion_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/scene/body_spec.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene {
namespace {

constexpr uint8_t kAllAxes = 7;
constexpr int kMaxKeys = 256;
constexpr double kMaxTime_s = 3600;

/// Axes along which the vertices of a region are held: bit a is axis a.
uint8_t HeldAxes(const v1::FixedRegion& region) {
  return static_cast<uint8_t>(kAllAxes & ~((region.free_x() ? 1U : 0U) | (region.free_y() ? 2U : 0U) | (region.free_z() ? 4U : 0U)));
}

/// Parts of a figure move with those that carry them, with or without a motion of their own.
bool Moves(const v1::FixedRegion& region) { return region.has_motion() || region.has_figure_part(); }

void CheckMotion(Checker& check, const std::string& path, const v1::RegionMotion& motion) {
  check.RangeVec(At(path, "velocity_m_per_s"), motion.velocity_m_per_s(), -kMaxSpeed_m_per_s, kMaxSpeed_m_per_s);
  check.RangeVec(At(path, "angular_velocity_rad_per_s"), motion.angular_velocity_rad_per_s(), -1000, 1000);
  check.RangeVec(At(path, "center_m"), motion.center_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
  if (motion.has_start_s()) check.Range(At(path, "start_s"), motion.start_s(), 0, kMaxTime_s);
  if (motion.has_duration_s()) check.RangeAbove(At(path, "duration_s"), motion.duration_s(), 0, kMaxTime_s);
  check.Count(At(path, "keys"), motion.keys_size(), 0, kMaxKeys);
  for (int k = 0; k < motion.keys_size() && check.ok(); ++k) {
    const v1::MotionKey& key = motion.keys(k);
    const std::string key_path = At(At(path, "keys"), k);
    check.Range(At(key_path, "time_s"), key.time_s(), 0, kMaxTime_s);
    check.RangeVec(At(key_path, "shift_m"), key.shift_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
    check.RangeVec(At(key_path, "turn_rad"), key.turn_rad(), -10, 10);
    if (k == 0 ? key.time_s() != 0 : !(key.time_s() > motion.keys(k - 1).time_s())) {
      check.Invalid(At(key_path, "time_s"),
                    absl::StrCat(key.time_s(), k == 0 ? " is not 0, as the first must be" : " does not follow the one before"));
    }
  }
  if (motion.has_ramp_s()) check.Range(At(path, "ramp_s"), motion.ramp_s(), 0, kMaxTime_s);
  for (const char* field : {"period_s", "ramp_s"}) {
    const bool is_set = field[0] == 'p' ? motion.has_period_s() : motion.has_ramp_s();
    if (is_set && motion.keys().empty()) check.Invalid(At(path, field), "only a motion with keys has it");
  }
  if (check.ok() && motion.has_period_s()) {
    check.RangeAbove(At(path, "period_s"), motion.period_s(), motion.keys(motion.keys_size() - 1).time_s(), kMaxTime_s);
  }
}

void CheckRegionOfFixed(Checker& check, const std::string& path, const v1::BodySpec& body, const v1::FixedRegion& region) {
  if (region.has_figure_part()) {
    check.RequiredName(At(path, "figure_part"), region.figure_part(), kMaxNameBytes);
  } else {
    CheckRegion(check, path, RegionOf(region), "box, vertices, figure_part");
  }
  if (region.free_x() && region.free_y() && region.free_z()) {
    check.Invalid(At(path, "free_z"), "the region holds nothing: free_x, free_y and free_z are all set");
  }
  if (region.has_blend_m()) {
    check.Range(At(path, "blend_m"), region.blend_m(), 0, 10);
    if (!region.has_box() || !region.has_motion()) check.Invalid(At(path, "blend_m"), "only a box with a motion has it");
  }
  if (!body.has_nurbs() && region.rim() != v1::NURBS_RIM_UNSPECIFIED) {
    check.Invalid(At(path, "rim"), "only a NURBS shell is held at its rims");
  }
  if (!body.has_nurbs() && (!region.bound_to().empty() || region.ignores_contact())) {
    check.Invalid(At(path, region.bound_to().empty() ? "ignores_contact" : "bound_to"), "only a NURBS shell is bound to a body");
  }
  if (!Moves(region)) return;
  if (Slides(region)) {
    const char* field = region.free_x() ? "free_x" : region.free_y() ? "free_y" : "free_z";
    check.Invalid(At(path, field), "a region that moves cannot slide as well");
  }
  CheckMotion(check, At(path, "motion"), region.motion());
}

/// How far regions have a vertex: (place in driven_regions, weight).
using Drivers = std::vector<std::pair<uint32_t, double>>;

double Smoothstep(double u) { return u * u * (3 - 2 * u); }

/// Vertices of a region with their weights, ascending.
absl::StatusOr<std::vector<std::pair<uint32_t, double>>> WeightedVertices(const v1::FixedRegion& region, const std::string& path,
                                                                          const sim::FigureSurface& figure, const sim::TetMesh& mesh) {
  std::vector<std::pair<uint32_t, double>> out;
  if (region.has_figure_part()) {
    const auto part =
        std::find_if(figure.parts.begin(), figure.parts.end(), [&](const sim::FigurePart& p) { return p.name == region.figure_part(); });
    if (part == figure.parts.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path,
          ".figure_part: ", figure.parts.empty() ? "only a body with shell.figure has parts" : "the figure has no part of this name"));
    }
    for (uint32_t v = 0; v < figure.weights.size(); ++v) {
      for (const sim::PartWeight& weight : figure.weights[v]) {
        if (weight.part == part - figure.parts.begin() && weight.weight > 0) out.emplace_back(v, weight.weight);
      }
    }
    return out;
  }
  PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> inside, RegionVertices(RegionOf(region), path, mesh));
  if (region.blend_m() == 0) {
    for (const uint32_t v : inside) out.emplace_back(v, 1);
    return out;
  }
  const Eigen::AlignedBox3d box(ToEigen(region.box().min_m()), ToEigen(region.box().max_m()));
  for (uint32_t v = 0; v < mesh.vertices.size(); ++v) {
    const double away_m = box.exteriorDistance(mesh.vertices[v]);
    if (away_m < region.blend_m()) out.emplace_back(v, Smoothstep(1 - away_m / region.blend_m()));
  }
  return out;
}

/// Shares of the regions that have a vertex, and of rest, the largest first; four at most.
sim::DrivenBlend BlendOf(const Drivers& drivers) {
  const double sum = std::accumulate(drivers.begin(), drivers.end(), 0.0, [](double s, const auto& d) { return s + d.second; });
  Drivers parts = drivers;
  if (sum < 1) parts.emplace_back(sim::DrivenBlend::kRests, 1 - sum);
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  parts.resize(std::min<size_t>(parts.size(), 4));
  const double kept = std::accumulate(parts.begin(), parts.end(), 0.0, [](double s, const auto& d) { return s + d.second; });
  sim::DrivenBlend blend;
  for (size_t k = 0; k < parts.size(); ++k) {
    blend.regions[k] = parts[k].first;
    blend.shares[k] = static_cast<float>(parts[k].second / kept);
  }
  return blend;
}

/// Every driven vertex goes to the region with the largest share in it, the first of equals.
void ShareOut(const std::vector<Drivers>& drivers, sim::BodyDescription& out) {
  for (uint32_t v = 0; v < drivers.size(); ++v) {
    if (drivers[v].empty()) continue;
    const auto largest =
        std::max_element(drivers[v].begin(), drivers[v].end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    sim::DrivenRegion& region = out.driven_regions[largest->first];
    const sim::DrivenBlend blend = BlendOf(drivers[v]);
    const sim::DrivenBlend alone = BlendOf({{largest->first, 1.0}});
    if (blend.shares[0] != 1 || !region.blends.empty()) {
      region.blends.resize(region.vertices.size(), alone);
      region.blends.push_back(blend);
    }
    region.vertices.push_back(v);
  }
}

/// Parts of a figure turn about their joints, and the parts that they hang on carry them.
absl::Status LinkParts(const v1::BodySpec& body, const std::string& path, const sim::FigureSurface& figure,
                       const std::vector<uint32_t>& region_of, sim::BodyDescription& out) {
  std::vector<std::optional<uint32_t>> of_part(figure.parts.size());
  bool any = false;
  for (int r = 0; r < body.fixed_size(); ++r) {
    for (size_t p = 0; p < figure.parts.size() && body.fixed(r).has_figure_part(); ++p) {
      if (figure.parts[p].name != body.fixed(r).figure_part()) continue;
      if (of_part[p]) return absl::InvalidArgumentError(absl::StrCat(path, ".fixed[", r, "].figure_part: the part has a region already"));
      of_part[p] = region_of[static_cast<size_t>(r)];
      any = true;
    }
  }
  for (size_t p = 0; p < figure.parts.size() && any; ++p) {
    const sim::FigurePart& part = figure.parts[p];
    if (!of_part[p]) return absl::InvalidArgumentError(absl::StrCat(path, ".fixed: part ", part.name, " of the figure has no region"));
    if (part.parent < 0 || out.driven_regions[*of_part[p]].parent) continue;
    const uint32_t carrier = *of_part[static_cast<size_t>(part.parent)];
    if (carrier > *of_part[p]) {
      return absl::InvalidArgumentError(absl::StrCat(path, ".fixed: the region of part ", part.name, " comes before that of ",
                                                     figure.parts[static_cast<size_t>(part.parent)].name, ", which carries it"));
    }
    out.driven_regions[*of_part[p]].parent = carrier;
  }
  return absl::OkStatus();
}

}  // namespace

bool Slides(const v1::FixedRegion& region) { return region.free_x() || region.free_y() || region.free_z(); }

void CheckFixed(Checker& check, const std::string& path, const v1::BodySpec& body) {
  std::unordered_set<std::string> names, moving;
  for (int r = 0; r < body.fixed_size() && check.ok(); ++r) {
    const v1::FixedRegion& region = body.fixed(r);
    const std::string region_path = At(At(path, "fixed"), r);
    CheckRegionOfFixed(check, region_path, body, region);
    if (!region.motion().parent().empty() && moving.count(region.motion().parent()) == 0) {
      check.Invalid(At(region_path, "motion.parent"),
                    absl::StrCat("no region before this one with a motion is named \"", region.motion().parent(), "\""));
    }
    if (region.name().empty()) continue;
    check.RequiredName(At(region_path, "name"), region.name(), kMaxNameBytes);
    check.Unique(At(region_path, "name"), region.name(), names);
    if (Moves(region)) moving.insert(region.name());
  }
}

absl::StatusOr<sim::DrivenRegion> BuildMotion(const v1::FixedRegion& region, const std::string& path, std::vector<uint32_t> vertices,
                                              std::span<const Eigen::Vector3d> places_m, std::span<const std::string> before) {
  const v1::RegionMotion& motion = region.motion();
  sim::DrivenRegion out;
  out.velocity_m_per_s = ToEigen(motion.velocity_m_per_s());
  out.angular_velocity_rad_per_s = ToEigen(motion.angular_velocity_rad_per_s());
  for (const uint32_t v : vertices) out.center_m += places_m[v] / static_cast<double>(vertices.size());
  if (motion.has_center_m()) out.center_m = ToEigen(motion.center_m());
  out.start_s = motion.start_s();
  out.duration_s = motion.has_duration_s() ? motion.duration_s() : motion.keys().empty() ? 1 : kMaxTime_s;
  for (const v1::MotionKey& key : motion.keys()) out.keys.push_back({key.time_s(), ToEigen(key.shift_m()), ToEigen(key.turn_rad())});
  out.period_s = motion.period_s();
  out.ramp_s = motion.ramp_s();
  if (!motion.parent().empty()) {
    const auto parent = std::find(before.begin(), before.end(), motion.parent());
    if (parent == before.end())
      return absl::InvalidArgumentError(absl::StrCat(path, ".motion.parent: names no region with a motion before"));
    out.parent = static_cast<uint32_t>(parent - before.begin());
  }
  out.vertices = std::move(vertices);
  return out;
}

absl::Status BuildFixed(const v1::BodySpec& body, const std::string& path, const sim::FigureSurface& figure, sim::BodyDescription& out) {
  constexpr int kNone = -1;
  const size_t count = out.mesh.vertices.size();
  std::vector<int> region_of(count, kNone);  // the last one
  std::vector<uint8_t> held(count, 0);       // by all regions of a vertex together
  std::vector<Drivers> drivers(count);
  std::vector<uint32_t> driven_of(static_cast<size_t>(body.fixed_size()), 0);
  std::vector<std::string> names;
  for (int r = 0; r < body.fixed_size(); ++r) {
    const v1::FixedRegion& region = body.fixed(r);
    const std::string region_path = At(At(path, "fixed"), r);
    PALPATE_ASSIGN_OR_RETURN(const auto weighted, WeightedVertices(region, region_path, figure, out.mesh));
    std::vector<uint32_t> inside;
    for (const auto& [v, weight] : weighted) {
      const int other = std::exchange(region_of[v], r);
      held[v] |= HeldAxes(region);
      if (weight == 1) inside.push_back(v);
      if (Moves(region)) drivers[v].emplace_back(out.driven_regions.size(), weight);
      if (other == kNone || !(Moves(region) || Moves(body.fixed(other)))) continue;
      const auto blends = [](const v1::FixedRegion& f) { return f.blend_m() > 0 || f.has_figure_part(); };
      if (blends(region) && blends(body.fixed(other))) continue;
      return absl::InvalidArgumentError(absl::StrCat(region_path, ": vertex ", v, " belongs to ", path, ".fixed[", other,
                                                     "] too; a vertex of a region with a motion may belong to no other"));
    }
    if (!Moves(region)) continue;
    PALPATE_ASSIGN_OR_RETURN(sim::DrivenRegion driven, BuildMotion(region, region_path, std::move(inside), out.mesh.vertices, names));
    for (const sim::FigurePart& part : figure.parts) {
      if (region.has_figure_part() && part.name == region.figure_part() && !region.motion().has_center_m()) driven.center_m = part.joint_m;
    }
    driven.vertices.clear();
    driven_of[static_cast<size_t>(r)] = static_cast<uint32_t>(out.driven_regions.size());
    out.driven_regions.push_back(std::move(driven));
    names.push_back(region.name());
  }
  ShareOut(drivers, out);
  PALPATE_RETURN_IF_ERROR(LinkParts(body, path, figure, driven_of, out));
  for (size_t v = 0; v < count; ++v) {
    if (held[v] == kAllAxes) {
      out.fixed_vertices.push_back(static_cast<uint32_t>(v));
    } else if (held[v] != 0) {
      out.sliding_vertices.push_back({static_cast<uint32_t>(v), held[v]});
    }
  }
  if (out.fixed_vertices.size() == count && out.driven_regions.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ".fixed: all ", count, " vertices are fixed; at least one must be free or move"));
  }
  return absl::OkStatus();
}

}  // namespace palpate::scene
