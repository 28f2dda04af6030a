#include "gpu/collision/convex.clh"
#include "gpu/dynamics/shape_matching.clh"

/* Rigid convex bodies whose contacts are resolved by shape matching. Positions are those of the centres of mass; meshes are stored about
   them. velocities[i].w = inverse mass [1/kg], 0 = static; scales[i].w = radius of the body about its centre [m]. Every body gathers what
   acts on it in a fixed order and writes only itself. */

#define MAX_TURN 0.5f  /* rad of one iteration */
#define FARTHEST 1e18f /* beyond it (m, m/s) squares overflow */

/* Moves bodies freely; `before` keeps the velocities that the contacts will find. */
kernel void rigid_predict(constant RigidParams* params, global Float4* velocities, global Float4* spins, global Float4* positions,
                          global Float4* rotations, global Float4* start_positions, global Float4* start_rotations,
                          global Float4* predicted_positions, global Float4* predicted_rotations, global Float4* before_velocities,
                          global Float4* before_spins, global RigidCounters* counters) {
  const size_t i = get_global_id(0);
  if (i >= params->body_count) return;
  float3 x = positions[i].xyz;
  float4 q = rotations[i];
  float3 v = velocities[i].xyz;
  float3 spin = spins[i].xyz;
  const float inverse_mass = velocities[i].w;
  start_positions[i] = positions[i];
  start_rotations[i] = q;
  if (inverse_mass > 0.0f) {
    const float h = params->dt_s;
    const float3 g = params->gravity.xyz;
    if (params->flags & PALPATE_RIGID_VERLET) {
      x += h * v + (0.5f * h * h) * g;
      v = (v + h * g) * params->damping;
      q += 0.5f * h * quaternion_product((float4)(spin, 0.0f), q);
      spin *= params->damping;
    } else {
      const float slower = 1.0f / (1.0f + params->damping * h);
      v = (v + h * g) * slower;
      spin *= slower;
      x += h * v;
      q = quaternion_product(quaternion_from_vector(h * spin), q);
    }
    q /= length(q);
    const float4 sum = (float4)(x, 0.0f) + (float4)(v, 0.0f) + (float4)(spin, 0.0f) + q;
    if (!(fabs(sum.x) + fabs(sum.y) + fabs(sum.z) + fabs(sum.w) < FARTHEST)) {
      x = positions[i].xyz;
      q = rotations[i];
      v = spin = (float3)(0.0f);
      atomic_inc(&counters->restored_bodies);
    }
  }
  positions[i] = predicted_positions[i] = (Float4)(x, 0.0f);
  rotations[i] = predicted_rotations[i] = q;
  velocities[i] = before_velocities[i] = (Float4)(v, inverse_mass);
  spins[i] = before_spins[i] = (Float4)(spin, 0.0f);
}

/* All vertices in the world, for the bounding volumes. */
kernel void rigid_world_vertices(uint body_count, global const uint* meshes, global const ConvexShape* shapes, global const float* vertices,
                                 global const Float4* positions, global const Float4* rotations, global const Float4* scales,
                                 global const uint* begins, global Float4* world) {
  const size_t i = get_global_id(0);
  if (i >= body_count) return;
  Hull hull;
  hull.shape = shapes[meshes[i]];
  set_hull_axes(&hull, rotations[i], scales[i]);
  hull.origin = positions[i].xyz;
  for (uint k = 0; k < hull.shape.vertex_count; ++k) world[begins[i] + k] = (Float4)(hull_vertex(vertices, &hull, k), 0.0f);
}

/* Entry 2 p is body A of pair p, entry 2 p + 1 its body B. */
kernel void rigid_entries(uint pair_count, global const UInt2* pairs, global uint* keys) {
  const size_t p = get_global_id(0);
  if (p >= pair_count) return;
  keys[2 * p] = pairs[p].x;
  keys[2 * p + 1] = pairs[p].y;
}

/* Iterations that each body asks for by itself, 0 for static ones: full ones up to the one distance, reduced ones from the other on,
   between them in proportion, rounded up. */
kernel void rigid_levels(constant RigidDetail* detail, uint body_count, global const Float4* positions, global const Float4* velocities,
                         global const Float4* scales, global uint* levels) {
  const size_t i = get_global_id(0);
  if (i >= body_count) return;
  if (!(velocities[i].w > 0.0f)) {
    levels[i] = 0;
    return;
  }
  const float distance_m = length(positions[i].xyz - detail->point.xyz) - scales[i].w;
  uint level = detail->iterations;
  if (distance_m >= detail->reduced_distance_m) {
    level = detail->reduced_iterations;
  } else if (distance_m > detail->full_distance_m) {
    const float share = (detail->reduced_distance_m - distance_m) / (detail->reduced_distance_m - detail->full_distance_m);
    level = detail->reduced_iterations + (uint)ceil(share * (float)(detail->iterations - detail->reduced_iterations));
  }
  levels[i] = min(level, detail->iterations);
}

/* A pair gets the iterations of the body that asks for more. keys[p]: how many fewer than all; counts[k]: pairs with k iterations. */
kernel void rigid_pair_levels(constant RigidDetail* detail, uint pair_count, global const UInt2* pairs, global const uint* levels,
                              global uint* keys, volatile global uint* counts) {
  const size_t p = get_global_id(0);
  if (p >= pair_count) return;
  const uint level = max(levels[pairs[p].x], levels[pairs[p].y]);
  keys[p] = detail->iterations - level;
  atomic_inc(&counts[level]);
}

kernel void rigid_ordered_pairs(uint pair_count, global const UInt2* pairs, global const uint* order, global UInt2* ordered) {
  const size_t p = get_global_id(0);
  if (p < pair_count) ordered[p] = pairs[order[p]];
}

/* begins[b] = the first of the sorted keys that is not below b, for b <= body_count. */
kernel void rigid_begins(uint body_count, uint entry_count, global const uint* sorted_keys, global uint* begins) {
  const size_t b = get_global_id(0);
  if (b > body_count) return;
  uint low = 0;
  uint high = entry_count;
  while (low < high) {
    const uint middle = low + (high - low) / 2;
    if (sorted_keys[middle] < b) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  begins[b] = low;
}

/* Where the vertices of a body past a contact plane are. */
typedef struct {
  float3 center; /* mean from the origin */
  float spread;  /* mean squared distance from it */
  float count;
} Patch;

static inline Patch patch_past_plane(global const float* vertices, const Hull* hull, float3 plane_point, float3 outward) {
  Patch patch;
  patch.center = (float3)(0.0f);
  patch.count = 0.0f;
  float squares = 0.0f;
  for (uint k = 0; k < hull->shape.vertex_count; ++k) {
    const float3 p = hull_vertex(vertices, hull, k);
    if (!(dot(p - plane_point, outward) >= 0.0f)) continue;
    patch.center += p;
    squares += dot(p, p);
    patch.count += 1.0f;
  }
  if (patch.count > 0.0f) patch.center /= patch.count;
  patch.spread = patch.count > 0.0f ? squares / patch.count - dot(patch.center, patch.center) : 0.0f;
  return patch;
}

/* Keeps the first overlap that each pair had in this step: acting[2 p] = normal, w = 1 if there was one; acting[2 p + 1] = where the bodies
   push each other. EPA's point may be any of a face; where a face meets a face or an edge it is the middle of the smaller of the two. */
kernel void rigid_note(uint pair_count, uint is_first, global const ConvexContact* contacts, global const uint* meshes,
                       global const ConvexShape* shapes, global const float* vertices, global const Float4* scales,
                       global const Float4* positions, global const Float4* rotations, global Float4* acting,
                       global RigidCounters* counters) {
  const size_t p = get_global_id(0);
  if (p >= pair_count) return;
  if (is_first) acting[2 * p] = acting[2 * p + 1] = (Float4)(0.0f);
  const ConvexContact contact = contacts[p];
  if (contact.status == PALPATE_CONVEX_NOT_CONVERGED) atomic_inc(&counters->unresolved_pairs);
  if (contact.status != PALPATE_CONVEX_OVERLAPPING || acting[2 * p].w > 0.0f) return;
  const float3 origin = positions[contact.a].xyz;
  float3 point = 0.5f * (contact.point_a.xyz + contact.point_b.xyz) - origin;
  Hull a, b;
  a.shape = shapes[meshes[contact.a]];
  b.shape = shapes[meshes[contact.b]];
  set_hull_axes(&a, rotations[contact.a], scales[contact.a]);
  set_hull_axes(&b, rotations[contact.b], scales[contact.b]);
  a.origin = (float3)(0.0f);
  b.origin = positions[contact.b].xyz - origin;
  /* A part in a thousand of the size is the same plane. */
  const float3 n = contact.normal.xyz;
  const float slack = 1e-3f * fmin(scales[contact.a].w, scales[contact.b].w);
  const Patch patch_a = patch_past_plane(vertices, &a, contact.point_b.xyz - origin - slack * n, n);
  const Patch patch_b = patch_past_plane(vertices, &b, contact.point_a.xyz - origin + slack * n, -n);
  if (fmin(patch_a.count, patch_b.count) > 1.0f && fmax(patch_a.count, patch_b.count) > 2.0f) {
    point = patch_a.spread <= patch_b.spread ? patch_a.center : patch_b.center;
  }
  acting[2 * p] = (Float4)(n, 1.0f);
  acting[2 * p + 1] = (Float4)(point + origin, 0.0f);
}

/* How far the point of the body that is now at x + r has moved since the start of the step. */
static inline float3 moved_since_start(float3 r, float3 x, float4 q, float3 start_x, float4 start_q) {
  return r - quaternion_rotate(start_q, quaternion_rotate(quaternion_inverse(q), r)) + (x - start_x);
}

/* What friction takes back of a sliding displacement, up to `limit`. */
static inline float3 friction_correction(float3 slide, float3 normal, float limit) {
  const float3 along = slide - dot(slide, normal) * normal;
  const float distance_m = length(along);
  if (!(distance_m > 0.0f)) return (float3)(0.0f);
  return along * -fmin(1.0f, limit / distance_m);
}

/* Sums over the vertices r of a body that are displaced by d. */
typedef struct {
  float count;
  float3 d;
  float3 torque; /* r x d */
  float3 r;
  float3 r_squares; /* xx, yy, zz */
  float3 r_mixed;   /* xy, xz, yz */
} Displaced;

static inline void add_displaced(Displaced* sums, float3 r, float3 d) {
  sums->d += d;
  sums->torque += cross(r, d);
  sums->count += 1.0f;
  sums->r += r;
  sums->r_squares += r * r;
  sums->r_mixed += (float3)(r.x * r.y, r.x * r.z, r.y * r.z);
}

/* The match spreads the correction of few vertices over all. Its multiple in [1, limit] that comes nearest to what those vertices need. */
static inline float factor_of_match(const Displaced* sums, float3 move, float3 turn, float limit) {
  const float achieved = dot(move, sums->d) + dot(turn, sums->torque);
  const float3 t2 = turn * turn;
  const float spun = t2.x * (sums->r_squares.y + sums->r_squares.z) + t2.y * (sums->r_squares.x + sums->r_squares.z) +
                     t2.z * (sums->r_squares.x + sums->r_squares.y) -
                     2.0f * (turn.x * turn.y * sums->r_mixed.x + turn.x * turn.z * sums->r_mixed.y + turn.y * turn.z * sums->r_mixed.z);
  const float moved = sums->count * dot(move, move) + 2.0f * dot(move, cross(turn, sums->r)) + spun;
  return moved > 0.0f ? clamp(achieved / moved, 1.0f, limit) : 1.0f;
}

/* One iteration for one body: its vertices that are past a contact plane are put back onto it, by its share of the mass, and the body
   follows by shape matching. With contacts of volumes all its vertices go back by the share of the depth. Only the first `active_pairs`
   are looked at: the others have had their iterations, as have the bodies whose level is up and that none of the active pairs has. */
kernel void rigid_respond(constant RigidParams* params, uint iteration, uint active_pairs, global const uint* levels,
                          global const uint* meshes, global const ConvexShape* shapes, global const float* vertices,
                          global const Float4* scales, global const Float4* velocities, global const Float4* start_positions,
                          global const Float4* start_rotations, global const Float4* positions, global const Float4* rotations,
                          global const uint* entry_begins, global const uint* entries, global const ConvexContact* contacts,
                          global Float4* next_positions, global Float4* next_rotations, global RigidCounters* counters) {
  const size_t i = get_global_id(0);
  if (i >= params->body_count) return;
  const float3 x = positions[i].xyz;
  const float4 q = rotations[i];
  const float inverse_mass = velocities[i].w;
  next_positions[i] = positions[i];
  next_rotations[i] = q;
  if (!(inverse_mass > 0.0f)) return;
  const bool is_active = entry_begins[i] < entry_begins[i + 1] && entries[entry_begins[i]] / 2 < active_pairs;
  if (levels && levels[i] <= iteration && !is_active) return;

  Hull hull;
  hull.shape = shapes[meshes[i]];
  set_hull_axes(&hull, q, scales[i]);
  hull.origin = (float3)(0.0f);
  const bool has_volumes = (params->flags & PALPATE_RIGID_VOLUME_CONTACTS) != 0;
  const bool has_friction = params->friction > 0.0f;
  const bool has_ground = (params->flags & PALPATE_RIGID_GROUND) != 0;
  const float3 up = params->ground.xyz;
  const float center_height = dot(up, x) - params->ground.w;

  Matrix3 a; /* sum of (r + d) r^T over the vertices r, displaced by d */
  a.x = a.y = a.z = (float3)(0.0f);
  Displaced touched;
  touched.count = 0.0f;
  touched.d = touched.torque = touched.r = touched.r_squares = touched.r_mixed = (float3)(0.0f);
  for (uint k = 0; k < hull.shape.vertex_count; ++k) {
    const float3 r = hull_vertex(vertices, &hull, k);
    float3 d = (float3)(0.0f);
    float planes = 0.0f;
    for (uint e = entry_begins[i]; e < entry_begins[i + 1]; ++e) {
      if (entries[e] / 2 >= active_pairs) break;
      global const ConvexContact* contact = &contacts[entries[e] / 2];
      if (contact->status != PALPATE_CONVEX_OVERLAPPING) continue;
      const bool is_a = (entries[e] & 1u) == 0;
      const float3 outward = is_a ? contact->normal.xyz : -contact->normal.xyz; /* into the other body */
      const float3 plane_point = is_a ? contact->point_b.xyz : contact->point_a.xyz;
      const float past = has_volumes ? -contact->normal.w : dot(r - (plane_point - x), outward);
      if (!(past > 0.0f)) continue;
      const uint other = is_a ? contact->b : contact->a;
      const float share = inverse_mass / (inverse_mass + velocities[other].w);
      float3 correction = -past * outward;
      if (has_friction) {
        const float3 other_x = positions[other].xyz;
        const float3 slide =
            moved_since_start(r, x, q, start_positions[i].xyz, start_rotations[i]) -
            moved_since_start(r + (x - other_x), other_x, rotations[other], start_positions[other].xyz, start_rotations[other]);
        correction += friction_correction(slide, outward, params->friction * past);
      }
      d += share * correction;
      planes += 1.0f;
    }
    if (planes > 1.0f) d /= planes;
    const float height = has_ground ? center_height + dot(up, r + d) : 0.0f;
    if (height < 0.0f) {
      if (has_friction) {
        const float3 slide = moved_since_start(r, x, q, start_positions[i].xyz, start_rotations[i]) + d;
        d += friction_correction(slide, up, -params->friction * height);
      }
      d -= height * up;
      planes += 1.0f;
    }
    add_outer_product(&a, 1.0f, r + d, r);
    if (planes > 0.0f) add_displaced(&touched, r, d);
  }
  if (!(touched.count > 0.0f)) return;

  const float vertex_count = (float)hull.shape.vertex_count;
  float3 move = touched.d / vertex_count;
  uint rank;
  bool converged;
  float3 turn = vector_from_quaternion(matching_rotation(&a, &rank, &converged));
  if (!converged) {
    atomic_inc(&counters->failed_matches);
  } else if (rank < 2) {
    atomic_inc(&counters->incomplete_matches);
  }
  if (params->flags & PALPATE_RIGID_LINE_SEARCH) {
    const float factor = factor_of_match(&touched, move, turn, vertex_count);
    move *= factor;
    turn *= factor;
  }
  const float angle = length(turn);
  if (angle > MAX_TURN) {
    turn *= MAX_TURN / angle;
    atomic_inc(&counters->limited_rotations);
  }
  const float4 turned = quaternion_product(quaternion_from_vector(turn), q);
  next_positions[i] = (Float4)(x + move, 0.0f);
  next_rotations[i] = turned / length(turned);
}

/* v += m v for a symmetric matrix (diagonal, mixed xy xz yz). */
static inline float3 symmetric_product(float3 diagonal, float3 mixed, float3 v) {
  return (float3)(diagonal.x * v.x + mixed.x * v.y + mixed.y * v.z, mixed.x * v.x + diagonal.y * v.y + mixed.z * v.z,
                  mixed.y * v.x + mixed.z * v.y + diagonal.z * v.z);
}

/* After the last iteration: corrects the velocities by the displacement that the contacts caused, and prepares the velocity iterations:
   inertia[2 i] = diagonal of the inverse inertia in the world [1/(kg m^2)], w = acting contacts of the body; inertia[2 i + 1] = its xy, xz,
   yz. */
kernel void rigid_finish(constant RigidParams* params, global const Float4* scales, global const Float4* local_inertia,
                         global const uint* entry_begins, global const uint* entries, global const UInt2* pairs,
                         global const Float4* acting, global const Float4* predicted_positions, global const Float4* predicted_rotations,
                         global const Float4* before_velocities, global const Float4* before_spins, global const Float4* positions,
                         global const Float4* rotations, global Float4* velocities, global Float4* spins, global Float4* inertia,
                         global RigidCounters* counters) {
  const size_t i = get_global_id(0);
  if (i >= params->body_count) return;
  const float4 q = rotations[i];
  const float h = params->dt_s;
  const float inverse_mass = velocities[i].w;
  const float radius = scales[i].w;
  float contact_count = 0.0f;
  /* No contact makes a body faster than what it meets. */
  const float own_speed = length(before_velocities[i].xyz) + length(before_spins[i].xyz) * radius;
  float met_speed = 0.0f;
  for (uint e = entry_begins[i]; e < entry_begins[i + 1]; ++e) {
    const uint p = entries[e] / 2;
    if (!(acting[2 * p].w > 0.0f)) continue;
    contact_count += 1.0f;
    const uint other = (entries[e] & 1u) ? pairs[p].x : pairs[p].y;
    met_speed = fmax(met_speed, length(before_velocities[other].xyz) + length(before_spins[other].xyz) * scales[other].w);
  }
  if (inverse_mass > 0.0f && (params->flags & PALPATE_RIGID_CORRECT_VELOCITIES)) {
    const float limit = own_speed + met_speed + 2.0f * h * length(params->gravity.xyz);
    float3 dv = (positions[i].xyz - predicted_positions[i].xyz) / h;
    float3 dspin = vector_from_quaternion(quaternion_product(q, quaternion_inverse(predicted_rotations[i]))) / h;
    const float speed = length(dv);
    const float spin_speed = length(dspin) * radius;
    if (speed > limit) dv *= limit / speed;
    if (spin_speed > limit) dspin *= limit / spin_speed;
    if (speed > limit || spin_speed > limit) atomic_inc(&counters->limited_corrections);
    velocities[i].xyz += dv;
    spins[i].xyz += dspin;
  }
  /* R J R^T */
  Hull axes;
  set_hull_axes(&axes, q, (Float4)(1.0f, 1.0f, 1.0f, 0.0f));
  const float3 diagonal = local_inertia[2 * i].xyz;
  const float3 mixed = local_inertia[2 * i + 1].xyz;
  float3 column[3];
  const float3 row[3] = {(float3)(axes.axis_x.x, axes.axis_y.x, axes.axis_z.x), (float3)(axes.axis_x.y, axes.axis_y.y, axes.axis_z.y),
                         (float3)(axes.axis_x.z, axes.axis_y.z, axes.axis_z.z)};
  for (uint k = 0; k < 3; ++k) column[k] = symmetric_product(diagonal, mixed, row[k]);
  inertia[2 * i] = (Float4)(dot(row[0], column[0]), dot(row[1], column[1]), dot(row[2], column[2]), contact_count);
  inertia[2 * i + 1] = (Float4)(dot(row[0], column[1]), dot(row[0], column[2]), dot(row[1], column[2]), 0.0f);
}

/* Inverse of the mass that an impulse along n at r feels. */
static inline float inverse_mass_at(float inverse_mass, float3 diagonal, float3 mixed, float3 r, float3 n) {
  const float3 rn = cross(r, n);
  return inverse_mass + dot(rn, symmetric_product(diagonal, mixed, rn));
}

/* Speed after a contact of approach speed `before` (negative = towards each other). */
static inline float rebound(constant RigidParams* params, float before) {
  const float slow = 2.0f * params->dt_s * length(params->gravity.xyz);
  return before < -slow ? -params->restitution * before : before < 0.0f ? 0.0f : before;
}

/* At the end of a step: lifts what is still below the ground out of it. The matches are compromises of all vertices, and what lies on a
   body pushes it down; the ground yields to neither. Positions only: as velocity the lift would be energy that nobody put in. */
kernel void rigid_lift(constant RigidParams* params, global const uint* meshes, global const ConvexShape* shapes,
                       global const float* vertices, global const Float4* scales, global const Float4* rotations,
                       global const Float4* velocities, global Float4* positions) {
  const size_t i = get_global_id(0);
  if (i >= params->body_count || !(velocities[i].w > 0.0f)) return;
  const float3 up = params->ground.xyz;
  const float center_height = dot(up, positions[i].xyz) - params->ground.w;
  if (center_height > scales[i].w) return;
  Hull hull;
  hull.shape = shapes[meshes[i]];
  set_hull_axes(&hull, rotations[i], scales[i]);
  hull.origin = (float3)(0.0f);
  float lowest = 0.0f;
  for (uint k = 0; k < hull.shape.vertex_count; ++k) lowest = fmin(lowest, center_height + dot(up, hull_vertex(vertices, &hull, k)));
  positions[i].xyz -= lowest * up;
}

/* One iteration on the velocities: the normal speed of each acting contact becomes that of the law of impact. Both bodies of a pair compute
   the same impulse, so momentum is kept; it is divided by the larger count of contacts, since all act at once. Those of a static body do
   not count: it does not give way to them. */
kernel void rigid_velocities(constant RigidParams* params, global const uint* meshes, global const ConvexShape* shapes,
                             global const float* vertices, global const Float4* scales, global const uint* entry_begins,
                             global const uint* entries, global const UInt2* pairs, global const Float4* acting,
                             global const Float4* positions, global const Float4* rotations, global const Float4* before_velocities,
                             global const Float4* before_spins, global const Float4* inertia, global const Float4* velocities,
                             global const Float4* spins, global Float4* next_velocities, global Float4* next_spins) {
  const size_t i = get_global_id(0);
  if (i >= params->body_count) return;
  float3 v = velocities[i].xyz;
  float3 spin = spins[i].xyz;
  const float inverse_mass = velocities[i].w;
  const bool has_volumes = (params->flags & PALPATE_RIGID_VOLUME_CONTACTS) != 0;
  if (inverse_mass > 0.0f) {
    const float3 diagonal = inertia[2 * i].xyz;
    const float3 mixed = inertia[2 * i + 1].xyz;
    for (uint e = entry_begins[i]; e < entry_begins[i + 1]; ++e) {
      const uint p = entries[e] / 2;
      if (!(acting[2 * p].w > 0.0f)) continue;
      const uint other = (entries[e] & 1u) ? pairs[p].x : pairs[p].y;
      const float3 outward = (entries[e] & 1u) ? -acting[2 * p].xyz : acting[2 * p].xyz;
      const float3 r = has_volumes ? (float3)(0.0f) : acting[2 * p + 1].xyz - positions[i].xyz;
      const float3 other_r = has_volumes ? (float3)(0.0f) : acting[2 * p + 1].xyz - positions[other].xyz;
      const float parting =
          dot(velocities[other].xyz + cross(spins[other].xyz, other_r) - velocities[i].xyz - cross(spins[i].xyz, r), outward);
      const float before = dot(
          before_velocities[other].xyz + cross(before_spins[other].xyz, other_r) - before_velocities[i].xyz - cross(before_spins[i].xyz, r),
          outward);
      const float k = inverse_mass_at(inverse_mass, diagonal, mixed, r, outward) +
                      inverse_mass_at(velocities[other].w, inertia[2 * other].xyz, inertia[2 * other + 1].xyz, other_r, outward);
      const float count = velocities[other].w > 0.0f ? fmax(inertia[2 * i].w, inertia[2 * other].w) : inertia[2 * i].w;
      const float3 impulse = ((parting - rebound(params, before)) / (k * count)) * outward; /* on this body */
      v += inverse_mass * impulse;
      spin += symmetric_product(diagonal, mixed, cross(r, impulse));
    }
    if (params->flags & PALPATE_RIGID_GROUND) {
      Hull hull;
      hull.shape = shapes[meshes[i]];
      set_hull_axes(&hull, rotations[i], scales[i]);
      hull.origin = (float3)(0.0f);
      const float3 up = params->ground.xyz;
      const float height = dot(up, positions[i].xyz) - params->ground.w;
      const float near_ground = 1e-3f * scales[i].w;
      /* All touching vertices at once: the impulses that each needs by itself, times the factor that comes nearest to all needs. */
      float3 push = (float3)(0.0f);
      float3 torque = (float3)(0.0f);
      float3 dv = (float3)(0.0f);
      float3 dspin = (float3)(0.0f);
      float wanted = 0.0f;
      float caused = 0.0f;
      for (uint pass = 0; height <= scales[i].w + near_ground && pass < 2; ++pass) {
        for (uint vertex = 0; vertex < hull.shape.vertex_count; ++vertex) {
          const float3 r = hull_vertex(vertices, &hull, vertex);
          if (!(height + dot(up, r) <= near_ground)) continue;
          const float before = dot(before_velocities[i].xyz + cross(before_spins[i].xyz, r), up);
          const float missing = rebound(params, before) - dot(v + cross(spin, r), up);
          if (!(before < 0.0f && missing > 0.0f)) continue;
          const float effect = dot(dv + cross(dspin, r), up);
          wanted += missing * effect;
          caused += effect * effect;
          push += missing * up;
          torque += cross(r, missing * up);
        }
        if (pass > 0) break;
        dv = inverse_mass * push;
        dspin = symmetric_product(diagonal, mixed, torque);
        wanted = caused = 0.0f;
      }
      if (wanted > 0.0f && caused > 0.0f) {
        v += wanted / caused * dv;
        spin += wanted / caused * dspin;
      }
    }
  }
  next_velocities[i] = (Float4)(v, inverse_mass);
  next_spins[i] = (Float4)(spin, 0.0f);
}
