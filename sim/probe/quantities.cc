#include "sim/probe/quantities.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr auto kVector = QuantityShape::kVector;
constexpr auto kRotation = QuantityShape::kRotation;

void Put(const Vector3d& v, double* out) { Vector3d::Map(out) = v; }
void Put(const Eigen::Quaterniond& q, double* out) {
  out[0] = q.w();
  out[1] = q.x();
  out[2] = q.y();
  out[3] = q.z();
}

Vector3d PositionOf(const Frame& frame, uint32_t body, SurfaceSlot slot) {
  return Eigen::Map<const Eigen::Vector3f>(&frame.surface_positions_m[body][3 * size_t{static_cast<uint32_t>(slot)}]).cast<double>();
}

const FrameTool& ToolOf(FrameMeasures& m, uint32_t tool) { return m.frame().tools[tool]; }

constexpr SceneQuantity kSceneQuantities[] = {
    {"time", "s", {}, [](FrameMeasures& m, double* out) { *out = m.frame().sim_time_s; }},
    {"step", "1", {}, [](FrameMeasures& m, double* out) { *out = static_cast<double>(m.frame().step); }},
    {"state_hash", "1", QuantityShape::kHash,
     [](FrameMeasures& m, double* out) {
       out[0] = static_cast<double>(m.frame().state_hash >> 32);
       out[1] = static_cast<double>(m.frame().state_hash & 0xffffffffU);
     }},
    {"topology_version", "1", {}, [](FrameMeasures& m, double* out) { *out = static_cast<double>(m.frame().topology_version); }},
    {"body_count", "1", {}, [](FrameMeasures& m, double* out) { *out = static_cast<double>(m.frame().topology->bodies.size()); }},
    {"energy.kinetic", "J", {}, [](FrameMeasures& m, double* out) { *out = m.frame().kinetic_energy_j; }},
    {"energy.elastic", "J", {}, [](FrameMeasures& m, double* out) { *out = m.frame().elastic_energy_j.value_or(kNone); }},
    {"max_speed", "m/s", {}, [](FrameMeasures& m, double* out) { *out = m.frame().max_speed_m_per_s; }},
    {"max_penetration", "m", {}, [](FrameMeasures& m, double* out) { *out = m.frame().max_penetration_m; }},
    {"inverted_tets", "1", {}, [](FrameMeasures& m, double* out) { *out = m.frame().inverted_tets; }},
    {"detections", "1", {}, [](FrameMeasures& m, double* out) { *out = m.frame().contact_statistics.detection_count; }},
    {"filter_rounds", "1", {}, [](FrameMeasures& m, double* out) { *out = m.frame().contact_statistics.filter_rounds; }},
    {"filtered_vertices", "1", {}, [](FrameMeasures& m, double* out) { *out = m.frame().contact_statistics.filtered_vertices; }},
    {"truncated_vertices", "1", {}, [](FrameMeasures& m, double* out) { *out = m.frame().contact_statistics.truncated_vertices; }},
    {"intersections", "1", {}, [](FrameMeasures& m, double* out) { *out = m.frame().contact_statistics.intersection_count; }},
    {"near_pairs", "1", {}, [](FrameMeasures& m, double* out) { *out = m.frame().contact_statistics.contact_count; }},
    {"step_ms", "ms", {}, [](FrameMeasures& m, double* out) { *out = m.frame().step_ms; }, true},
    {"stage_ms.tools", "ms", {}, [](FrameMeasures& m, double* out) { *out = m.frame().stage_ms[0]; }, true},
    {"stage_ms.detect", "ms", {}, [](FrameMeasures& m, double* out) { *out = m.frame().stage_ms[1]; }, true},
    {"stage_ms.solve", "ms", {}, [](FrameMeasures& m, double* out) { *out = m.frame().stage_ms[2]; }, true},
    {"stage_ms.forces", "ms", {}, [](FrameMeasures& m, double* out) { *out = m.frame().stage_ms[3]; }, true},
    {"stage_ms.readback", "ms", {}, [](FrameMeasures& m, double* out) { *out = m.frame().stage_ms[4]; }, true},
    {"stage_ms.models", "ms", {}, [](FrameMeasures& m, double* out) { *out = m.frame().stage_ms[5]; }, true},
    {"detect_ms", "ms", {}, [](FrameMeasures& m, double* out) { *out = m.frame().contact_statistics.detect_ms; }, true},
    {"filter_ms", "ms", {}, [](FrameMeasures& m, double* out) { *out = m.frame().contact_statistics.filter_ms; }, true},
    {"check_ms", "ms", {}, [](FrameMeasures& m, double* out) { *out = m.frame().contact_statistics.check_ms; }, true},
    {"wall_time", "s", {}, [](FrameMeasures& m, double* out) { *out = 1e-6 * static_cast<double>(m.frame().server_time_us); }, true},
};
static_assert(kStageNames.size() == 6 && kStageNames[0] == "tools" && kStageNames[5] == "models", "stage_ms.* above follow these");

constexpr IndexedQuantity kToolQuantities[] = {
    {"position", "m", kVector, [](FrameMeasures& m, uint32_t t, double* out) { Put(ToolOf(m, t).pose.position_m, out); }},
    {"rotation", "1", kRotation, [](FrameMeasures& m, uint32_t t, double* out) { Put(ToolOf(m, t).pose.rotation, out); }},
    {"device_position", "m", kVector, [](FrameMeasures& m, uint32_t t, double* out) { Put(ToolOf(m, t).device_pose.position_m, out); }},
    {"device_rotation", "1", kRotation, [](FrameMeasures& m, uint32_t t, double* out) { Put(ToolOf(m, t).device_pose.rotation, out); }},
    {"force", "N", kVector, [](FrameMeasures& m, uint32_t t, double* out) { Put(ToolOf(m, t).force_n, out); }},
    {"torque", "N m", kVector, [](FrameMeasures& m, uint32_t t, double* out) { Put(ToolOf(m, t).torque_n_m, out); }},
    {"contact_count", "1", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).contact_count; }},
    {"jaw_angle", "rad", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).jaw_angle_rad; }},
    {"is_touching", "1", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).is_touching ? 1 : 0; }},
    {"is_grasping", "1", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).is_grasping ? 1 : 0; }},
    {"is_cutting", "1", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).is_cutting ? 1 : 0; }},
    {"is_blocked", "1", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).is_blocked ? 1 : 0; }},
    {"is_expired", "1", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).is_expired ? 1 : 0; }},
    {"blocked", "m", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).blocked_m; }},
    {"grasped_vertices", "1", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).grasped_vertices; }},
    {"grasped_body",
     "1",
     {},
     [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).grasped_vertices > 0 ? ToolOf(m, t).grasped_body : kNone; }},
    {"grasp_center", "m", kVector,
     [](FrameMeasures& m, uint32_t t, double* out) {
       const FrameTool& tool = ToolOf(m, t);
       Put(tool.grasped_vertices > 0 ? tool.grasp_center_m : Vector3d::Constant(kNone), out);
     }},
    {"grasp_force", "N", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).grasp_force_n; }},
    {"removed_mass", "kg", {}, [](FrameMeasures& m, uint32_t t, double* out) { *out = ToolOf(m, t).removed_mass_kg; }},
    {"constraint_count",
     "1",
     {},
     [](FrameMeasures& m, uint32_t t, double* out) {
       const auto& models = m.frame().local_models;
       *out = t < models.size() ? models[t].constraint_count : kNone;
     }},
};

constexpr IndexedQuantity kMarkerQuantities[] = {
    {"position", "m", kVector, [](FrameMeasures& m, uint32_t i, double* out) { Put(m.frame().markers[i].position_m, out); }},
    {"is_released", "1", {}, [](FrameMeasures& m, uint32_t i, double* out) { *out = m.frame().markers[i].is_released ? 1 : 0; }},
    {"body", "1", {}, [](FrameMeasures& m, uint32_t i, double* out) { *out = m.frame().markers[i].body_index; }},
};

using Bodies = std::span<const uint32_t>;

template <typename Member>
double SumOfSurfaces(FrameMeasures& m, Bodies bodies, Member member) {
  double sum = 0;
  for (const uint32_t b : bodies) sum += static_cast<double>(m.SurfaceOf(b).*member);
  return sum;
}

template <typename Member>
double SumOfStatistics(FrameMeasures& m, Bodies bodies, Member member) {
  if (m.world() == nullptr) return kNone;
  double sum = 0;
  for (const uint32_t b : bodies) sum += static_cast<double>(m.world()->body_statistics()[b].*member);
  return sum;
}

void MeasureCentroid(FrameMeasures& m, Bodies bodies, double* out) {
  Vector3d moment_m4(0, 0, 0);
  double volume_m3 = 0;
  for (const uint32_t b : bodies) {
    moment_m4 += m.SurfaceOf(b).moment_m4;
    volume_m3 += m.SurfaceOf(b).volume_m3;
  }
  Put(volume_m3 != 0 ? Vector3d(moment_m4 / volume_m3) : Vector3d::Constant(kNone), out);
}

void MeasureCorner(FrameMeasures& m, Bodies bodies, bool is_high, double* out) {
  Vector3d corner_m = Vector3d::Constant(kNone);
  bool has_any = false;
  for (const uint32_t b : bodies) {
    const FrameMeasures::Surface& surface = m.SurfaceOf(b);
    if (surface.triangle_count == 0) continue;
    const Vector3d& own_m = is_high ? surface.high_m : surface.low_m;
    corner_m = !has_any ? own_m : is_high ? Vector3d(corner_m.cwiseMax(own_m)) : Vector3d(corner_m.cwiseMin(own_m));
    has_any = true;
  }
  Put(corner_m, out);
}

void MeasureMaxDisplacement(FrameMeasures& m, Bodies bodies, double* out) {
  double largest_m = m.world() == nullptr ? kNone : 0;
  for (const uint32_t b : bodies) largest_m = std::max(largest_m, m.MaxDisplacement_m(b));
  *out = largest_m;
}

/// The mean over the kept volumes; a body whose volume nothing keeps has no part in it.
void MeasurePressure(FrameMeasures& m, Bodies bodies, double* out) {
  double pushed_j = 0, kept_m3 = 0;
  for (const uint32_t b : bodies) {
    const auto& pressures_pa = m.frame().kept_pressures_pa;
    if (m.world() == nullptr || b >= pressures_pa.size() || !pressures_pa[b]) continue;
    const double volume_m3 = m.world()->body_statistics()[b].kept_volume_m3;
    pushed_j += *pressures_pa[b] * volume_m3;
    kept_m3 += volume_m3;
  }
  *out = kept_m3 > 0 ? pushed_j / kept_m3 : kNone;
}

bool Holds(Bodies bodies, uint32_t body) { return std::find(bodies.begin(), bodies.end(), body) != bodies.end(); }

constexpr BodyQuantity kBodyQuantities[] = {
    {"volume", "m3", {}, [](FrameMeasures& m, Bodies b, double* out) { *out = SumOfSurfaces(m, b, &FrameMeasures::Surface::volume_m3); }},
    {"surface_area",
     "m2",
     {},
     [](FrameMeasures& m, Bodies b, double* out) { *out = SumOfSurfaces(m, b, &FrameMeasures::Surface::area_m2); }},
    {"centroid", "m", kVector, MeasureCentroid},
    {"low", "m", kVector, [](FrameMeasures& m, Bodies b, double* out) { MeasureCorner(m, b, false, out); }},
    {"high", "m", kVector, [](FrameMeasures& m, Bodies b, double* out) { MeasureCorner(m, b, true, out); }},
    {"mass", "kg", {}, [](FrameMeasures& m, Bodies b, double* out) { *out = SumOfStatistics(m, b, &BodyStatistics::mass_kg); }},
    {"rest_volume", "m3", {}, [](FrameMeasures& m, Bodies b, double* out) { *out = SumOfStatistics(m, b, &BodyStatistics::volume_m3); }},
    {"pressure", "Pa", {}, MeasurePressure},
    {"vertex_count", "1", {}, [](FrameMeasures& m, Bodies b, double* out) { *out = SumOfStatistics(m, b, &BodyStatistics::vertex_count); }},
    {"tet_count",
     "1",
     {},
     [](FrameMeasures& m, Bodies bodies, double* out) {
       *out = 0;
       for (const uint32_t b : bodies) {
         const auto& tets = m.frame().topology->bodies[b]->tets;
         *out += static_cast<double>(std::count_if(tets.begin(), tets.end(), [](const auto& tet) { return tet != kFreeTet; }));
       }
     }},
    {"triangle_count",
     "1",
     {},
     [](FrameMeasures& m, Bodies b, double* out) { *out = SumOfSurfaces(m, b, &FrameMeasures::Surface::triangle_count); }},
    {"piece_count", "1", {}, [](FrameMeasures&, Bodies b, double* out) { *out = static_cast<double>(b.size()); }},
    {"max_displacement", "m", {}, MeasureMaxDisplacement},
    {"contact_count",
     "1",
     {},
     [](FrameMeasures& m, Bodies b, double* out) {
       *out = 0;
       for (const FrameContact& contact : m.frame().contacts) *out += Holds(b, contact.body_index) ? 1 : 0;
     }},
    {"contact_force", "N", kVector,
     [](FrameMeasures& m, Bodies b, double* out) {
       Vector3d sum_n(0, 0, 0);
       for (const FrameContact& contact : m.frame().contacts) {
         if (Holds(b, contact.body_index)) sum_n += contact.force_n.cast<double>();
       }
       Put(sum_n, out);
     }},
};

/// Calls `use(contact)` for those that count.
template <typename Use>
void ForEachContact(FrameMeasures& m, const ContactFilter& filter, Use use) {
  for (const FrameContact& contact : m.frame().contacts) {
    if (!filter.bodies.empty() && !filter.bodies[m.RootOf(contact.body_index)]) continue;
    const size_t other = std::min<size_t>(contact.tool_index, m.frame().tools.size());
    if (!filter.others.empty() && !filter.others[other]) continue;
    use(contact);
  }
}

/// Calls `use(contact, sign)`; the force on the body that the filter names first is sign times the contact's.
template <typename Use>
void ForEachSurfaceContact(FrameMeasures& m, const ContactFilter& filter, Use use) {
  const auto fits = [](const std::vector<bool>& wanted, uint32_t body) { return wanted.empty() || wanted[body]; };
  for (const FrameSurfaceContact& contact : m.frame().surface_contacts) {
    const uint32_t a = m.RootOf(contact.body_a), b = m.RootOf(contact.body_b);
    if (fits(filter.bodies, b) && fits(filter.others, a)) {
      use(contact, 1.0);
    } else if (fits(filter.bodies, a) && fits(filter.others, b)) {
      use(contact, -1.0);
    }
  }
}

constexpr ContactQuantity kContactQuantities[] = {
    {"count",
     "1",
     {},
     [](FrameMeasures& m, const ContactFilter& filter, double* out) {
       *out = 0;
       ForEachContact(m, filter, [out](const FrameContact&) { *out += 1; });
     }},
    {"force", "N", kVector,
     [](FrameMeasures& m, const ContactFilter& filter, double* out) {
       Vector3d sum_n(0, 0, 0);
       ForEachContact(m, filter, [&sum_n](const FrameContact& contact) { sum_n += contact.force_n.cast<double>(); });
       Put(sum_n, out);
     }},
    {"max_force",
     "N",
     {},
     [](FrameMeasures& m, const ContactFilter& filter, double* out) {
       *out = 0;
       ForEachContact(m, filter, [out](const FrameContact& contact) { *out = std::max(*out, contact.force_n.cast<double>().norm()); });
     }},
    {"normal_force",
     "N",
     {},
     [](FrameMeasures& m, const ContactFilter& filter, double* out) {
       *out = 0;
       ForEachContact(m, filter,
                      [out](const FrameContact& contact) { *out += contact.force_n.cast<double>().dot(contact.normal.cast<double>()); });
     }},
    {"min_separation",
     "m",
     {},
     [](FrameMeasures& m, const ContactFilter& filter, double* out) {
       *out = kNone;
       ForEachContact(m, filter, [out](const FrameContact& contact) { *out = std::fmin(*out, contact.separation_m); });
     }},
    {"max_penetration",
     "m",
     {},
     [](FrameMeasures& m, const ContactFilter& filter, double* out) {
       *out = 0;
       ForEachContact(m, filter, [out](const FrameContact& contact) { *out = std::max<double>(*out, -contact.separation_m); });
     }},
};

constexpr ContactQuantity kSurfaceContactQuantities[] = {
    {"count",
     "1",
     {},
     [](FrameMeasures& m, const ContactFilter& filter, double* out) {
       *out = 0;
       ForEachSurfaceContact(m, filter, [out](const FrameSurfaceContact&, double) { *out += 1; });
     }},
    {"force", "N", kVector,
     [](FrameMeasures& m, const ContactFilter& filter, double* out) {
       Vector3d sum_n(0, 0, 0);
       ForEachSurfaceContact(m, filter,
                             [&sum_n](const FrameSurfaceContact& contact, double sign) { sum_n += sign * contact.force_n.cast<double>(); });
       Put(sum_n, out);
     }},
    {"max_force",
     "N",
     {},
     [](FrameMeasures& m, const ContactFilter& filter, double* out) {
       *out = 0;
       ForEachSurfaceContact(
           m, filter, [out](const FrameSurfaceContact& contact, double) { *out = std::max(*out, contact.force_n.cast<double>().norm()); });
     }},
    {"min_distance",
     "m",
     {},
     [](FrameMeasures& m, const ContactFilter& filter, double* out) {
       *out = kNone;
       ForEachSurfaceContact(m, filter, [out](const FrameSurfaceContact& contact, double) { *out = std::fmin(*out, contact.distance_m); });
     }},
};

}  // namespace

FrameMeasures::FrameMeasures(const Frame& frame, const World* world, TopologyMeasures& kept) : frame_(frame), world_(world), kept_(kept) {
  if (kept.topology == frame.topology) return;
  kept = {.topology = frame.topology, .roots = {}, .rest_positions_m = {}};
  std::unordered_map<std::string_view, uint32_t> roots_by_name;
  for (uint32_t b = 0; b < frame.topology->bodies.size(); ++b) {
    const BodyArrays& body = *frame.topology->bodies[b];
    const auto parent = roots_by_name.find(body.parent);
    const uint32_t root = body.parent.empty() || parent == roots_by_name.end() ? b : parent->second;
    kept.roots.push_back(root);
    roots_by_name.emplace(body.name, root);
  }
}

const FrameMeasures::Surface& FrameMeasures::SurfaceOf(uint32_t body) {
  const auto [entry, is_new] = surfaces_.try_emplace(body);
  Surface& surface = entry->second;
  if (!is_new) return surface;
  const BodyArrays& arrays = *frame_.topology->bodies[body];
  Vector3d origin_m(0, 0, 0);  // on the body, against cancellation
  for (const auto& triangle : arrays.surface_triangles) {
    if (triangle == kFreeTriangle) continue;
    const Vector3d a_m = PositionOf(frame_, body, triangle[0]), b_m = PositionOf(frame_, body, triangle[1]),
                   c_m = PositionOf(frame_, body, triangle[2]);
    if (surface.triangle_count++ == 0) {
      origin_m = surface.low_m = surface.high_m = a_m;
    }
    // The tet from the origin to the triangle, by the divergence theorem.
    const Vector3d a = a_m - origin_m, b = b_m - origin_m, c = c_m - origin_m;
    const double volume_m3 = a.dot(b.cross(c)) / 6;
    surface.volume_m3 += volume_m3;
    surface.moment_m4 += volume_m3 / 4 * (a + b + c);
    surface.area_m2 += (b - a).cross(c - a).norm() / 2;
    surface.low_m = surface.low_m.cwiseMin(a_m).cwiseMin(b_m).cwiseMin(c_m);
    surface.high_m = surface.high_m.cwiseMax(a_m).cwiseMax(b_m).cwiseMax(c_m);
  }
  surface.moment_m4 += surface.volume_m3 * origin_m;
  return surface;
}

double FrameMeasures::MaxDisplacement_m(uint32_t body) {
  if (world_ == nullptr) return kNone;
  const auto [entry, is_new] = kept_.rest_positions_m.try_emplace(body);
  if (is_new) entry->second = world_->RestPositions(body);
  const auto& vertices = frame_.topology->bodies[body]->surface_vertices;
  double largest_sq_m2 = 0;
  for (const SurfaceSlot slot : IndexRange<SurfaceSlot>(vertices.size())) {
    const uint32_t vertex = vertices[slot];
    if (vertex == kNoSlot) continue;
    largest_sq_m2 = std::max(largest_sq_m2, (PositionOf(frame_, body, slot) - entry->second[vertex]).squaredNorm());
  }
  return std::sqrt(largest_sq_m2);
}

void FrameMeasures::MeasureSurfaceVertex(uint32_t body, uint32_t vertex, double* position_m) const {
  const auto& vertices = frame_.topology->bodies[body]->surface_vertices;
  Put(Vector3d::Constant(kNone), position_m);
  for (const SurfaceSlot slot : IndexRange<SurfaceSlot>(vertices.size())) {
    if (vertices[slot] == vertex) Put(PositionOf(frame_, body, slot), position_m);
  }
}

std::vector<uint32_t> FrameMeasures::PiecesOf(uint32_t root) const {
  std::vector<uint32_t> bodies;
  for (uint32_t b = 0; b < kept_.roots.size(); ++b) {
    if (kept_.roots[b] == root) bodies.push_back(b);
  }
  return bodies;
}

std::span<const SceneQuantity> SceneQuantities() { return kSceneQuantities; }
std::span<const IndexedQuantity> ToolQuantities() { return kToolQuantities; }
std::span<const IndexedQuantity> MarkerQuantities() { return kMarkerQuantities; }
std::span<const BodyQuantity> BodyQuantities() { return kBodyQuantities; }
std::span<const ContactQuantity> ContactQuantities() { return kContactQuantities; }
std::span<const ContactQuantity> SurfaceContactQuantities() { return kSurfaceContactQuantities; }

}  // namespace palpate::sim
