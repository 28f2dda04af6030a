/* The first time at which two objects with linearly moving control points may meet; see gpu/collision/nurbs_motion.h. Given by the host:
   STACK, how many pairs wait at most; VOLUME 0, SPLIT 0, and what nurbs_parts.clh takes. NurbsPair.time is an interval of time as u_a is
   one of u. */
#include "gpu/collision/nurbs_parts.clh"

/* Of a part from the one end of an interval of time to the other. */
typedef struct {
  NurbsBox box; /* around the hulls at both ends, and so around all between */
  float moved;  /* no point goes farther [m] */
  uint cut;     /* as of Volume */
  uint is_node;
} Swept;

/* Whole objects at one end of the motion. */
typedef struct {
  global const NurbsBox* boxes;
  global const float4* bezier;
} Moment;

/* Placed control points of a part. */
void placed_net(const Part* part, const NurbsPatch* patch, global const float4* bezier, const Place* place, private float4* net) {
  ORDERS(patch);
  part_net(patch, bezier, part->u, part->v, net);
  for (uint i = 0; i < nu * nv; ++i) net[i] = placed_point(place, projected(net[i]));
}

/* An aligned box around a node's box, as its middle and half-extents. */
void aligned_box(const NurbsBox* stored, const Place* place, float4* middle, float4* extent) {
  const NurbsBox box = placed_box(stored, place->r0, place->r1, place->r2, place->offset, place->is_rigid);
  const float4 h = (float4)(box.reach.xyz, 0.0f);
  *middle = (float4)(box.centre.xyz, 0.0f);
  *extent = (float4)(dot(fabs(box.x), h), dot(fabs(box.y), h), dot(fabs(box.z), h), 0.0f);
}

/* Of nodes: points of a mean of two boxes are means of points of both. */
Swept swept_node(const Part* part, const Place* start_place, const Place* end_place, float t0, float t1, const Moment* start,
                 const Moment* end, global const NurbsNode* nodes) {
  const NurbsBox box0 = start->boxes[part->node], box1 = end->boxes[part->node];
  float4 middle0, extent0, middle1, extent1;
  aligned_box(&box0, start_place, &middle0, &extent0);
  aligned_box(&box1, end_place, &middle1, &extent1);
  const float4 centre0 = (1.0f - t0) * middle0 + t0 * middle1, centre1 = (1.0f - t1) * middle0 + t1 * middle1;
  const float4 reach0 = (1.0f - t0) * extent0 + t0 * extent1, reach1 = (1.0f - t1) * extent0 + t1 * extent1;
  Swept out;
  set_axes(&out.box, (float4)(1.0f, 0.0f, 0.0f, 0.0f), (float4)(0.0f, 1.0f, 0.0f, 0.0f), (float4)(0.0f, 0.0f, 1.0f, 0.0f));
  close_box(&out.box, (float4)(0.0f), fmin(centre0 - reach0, centre1 - reach1), fmax(centre0 + reach0, centre1 + reach1));
  const float4 way = centre1 - centre0;
  out.moved = sqrt(dot(way, way));
  out.cut = (uint)box0.reach.w;
  out.is_node = nodes[part->node].stride == 0 ? 2 : 1;
  return out;
}

Swept swept_part(const Part* part, const Place* start_place, const Place* end_place, float t0, float t1, const Moment* start,
                 const Moment* end, global const NurbsNode* nodes, global const NurbsPatch* patches) {
  if (nodes[part->node].child != 0) return swept_node(part, start_place, end_place, t0, t1, start, end, nodes);
  const NurbsPatch patch = patches[nodes[part->node].patch];
  ORDERS(&patch);
  /* In a loop, as the two sides are below: unrolled code of all four takes drivers half a minute to compile. */
  float4 nets[2 * NET_SIZE];
  for (uint k = 0; k < 2; ++k) {
    const Place place = k == 0 ? *start_place : *end_place;
    placed_net(part, &patch, k == 0 ? start->bezier : end->bezier, &place, nets + k * NET_SIZE);
  }
 private
  float4 *first = nets, *last = nets + NET_SIZE;
  float moved_sq = 0.0f;
  for (uint i = 0; i < nu * nv; ++i) {
    const float4 p = first[i], q = last[i];
    const float4 way = (t1 - t0) * (q - p);
    moved_sq = fmax(moved_sq, dot(way, way));
    first[i] = (1.0f - t0) * p + t0 * q;
    last[i] = (1.0f - t1) * p + t1 * q;
  }
  Swept out;
  out.moved = sqrt(moved_sq);
  float4 along_u = (float4)(0.0f), along_v = (float4)(0.0f);
  for (uint i = 0; i < nu; ++i) {
    for (uint j = 0; j < nv; ++j) {
      along_u = fmax(along_u, fmax(fabs(first[i * nv + j] - first[j]), fabs(last[i * nv + j] - last[j])));
      along_v = fmax(along_v, fmax(fabs(first[i * nv + j] - first[i * nv]), fabs(last[i * nv + j] - last[i * nv])));
    }
  }
  out.cut = cut_of(part, along_u, along_v);
  out.is_node = 0;
  const float4 about = first[0];
  const uint c01 = nv - 1, c10 = (nu - 1) * nv, c11 = nu * nv - 1;
  axes_along(&out.box, (first[c11] - first[c01]) + (first[c10] - first[0]) + (last[c11] - last[c01]) + (last[c10] - last[0]),
             (first[c11] - first[c10]) + (first[c01] - first[0]) + (last[c11] - last[c10]) + (last[c01] - last[0]));
  float4 low = (float4)(0.0f), high = (float4)(0.0f);
  for (uint i = 0; i < nu * nv; ++i) {
    const float4 h0 = heights(&out.box, first[i] - about), h1 = heights(&out.box, last[i] - about);
    low = fmin(low, fmin(h0, h1));
    high = fmax(high, fmax(h0, h1));
  }
  close_box(&out.box, about, low, high);
  return out;
}

/* The two pairs that a pair becomes: in time, or by its larger part. 0 if it is small enough, or as small as it may be. */
uint cut_moving(const NurbsPair* pair, const Swept* a, const Swept* b, const NurbsRule* rule, global const NurbsNode* nodes,
                private NurbsPair* out) {
  const float size_a = a->box.centre.w, size_b = b->box.centre.w;
  const uint must_a = a->is_node == 2, must_b = b->is_node == 2;
  const uint can_time = LEVEL_OF(pair->time) < PALPATE_NURBS_MAX_HALVINGS;
  const uint is_end = pair->level >= rule->max_level || (size_a <= rule->tolerance_m && size_b <= rule->tolerance_m);
  if (!must_a && !must_b && (is_end || (a->cut == 0 && b->cut == 0 && !can_time))) return 0;
  out[0] = out[1] = *pair;
  out[0].level = out[1].level = pair->level + 1;
  const uint is_fast = fmax(a->moved, b->moved) > 0.5f * fmax(size_a, size_b);
  if (pair->level < rule->max_level && can_time && (is_fast || (a->cut == 0 && b->cut == 0))) {
    const uint next = ((LEVEL_OF(pair->time) + 1u) << 24) | (2u * INDEX_OF(pair->time));
    out[0].time = next;
    out[1].time = next + 1u;
    return 2;
  }
  const int cuts_a = must_a || (!must_b && a->cut != 0 && (b->cut == 0 || size_a >= size_b));
  const Part part = cuts_a ? part_a_of(pair) : part_b_of(pair);
  Part parts[MAX_PARTS];
  const uint count = parts_of(&part, cuts_a ? a->cut : b->cut, nodes, parts);
  for (uint i = 0; i < count; ++i) {
    if (cuts_a) {
      out[i].node_a = parts[i].node;
      out[i].u_a = parts[i].u;
      out[i].v_a = parts[i].v;
    } else {
      out[i].node_b = parts[i].node;
      out[i].u_b = parts[i].u;
      out[i].v_b = parts[i].v;
    }
  }
  return count;
}

/* Work-item: query. found[q]: the pair that may meet first, with level 0xffffffff if there is none; lower[q]: there is no contact before
   this time, in [0, 1]; above 1 if there is none at all. If the query needs more than `most` tests, it is the earliest time that is not
   known. */
kernel void nurbs_first_impacts(NurbsRule rule, uint most, global const NurbsPlacement* start_placements,
                                global const NurbsPlacement* end_placements, global const NurbsNode* nodes,
                                global const NurbsPatch* patches, global const NurbsBox* start_boxes, global const float4* start_bezier,
                                global const NurbsBox* end_boxes, global const float4* end_bezier, global NurbsPair* found,
                                global float* lower, global uint* tests) {
  const uint q = (uint)get_global_id(0);
  if (q >= rule.count) return;
  const Place starts[2] = {place_a(&start_placements[q]), place_b(&start_placements[q])};
  const Place ends[2] = {place_a(&end_placements[q]), place_b(&end_placements[q])};
  const Moment start = {start_boxes, start_bezier}, end = {end_boxes, end_bezier};
  NurbsPair stack[STACK];
  NurbsPair best = {q, 0xffffffffu, 0, 0, 0, 0, 0, 0, 0, 0.0f, 0, 0};
  const NurbsPair root = {q, 0, start_placements[q].root_a, 0, 0, start_placements[q].root_b, 0, 0, 0, 0.0f, 0, 0};
  stack[0] = root;
  uint waiting = 1, test_count = 0;
  float first = 2.0f;
  while (waiting > 0 && test_count < most) {
    const NurbsPair pair = stack[--waiting];
    const float width = as_float((127u - LEVEL_OF(pair.time)) << 23); /* 2^-level */
    const float t0 = (float)INDEX_OF(pair.time) * width, t1 = (float)(INDEX_OF(pair.time) + 1u) * width;
    if (!(t0 < first)) continue;
    ++test_count;
    Swept sides[2];
    for (uint k = 0; k < 2; ++k) {
      const Part part = k == 0 ? part_a_of(&pair) : part_b_of(&pair);
      sides[k] = swept_part(&part, &starts[k], &ends[k], t0, t1, &start, &end, nodes, patches);
    }
    const Swept a = sides[0], b = sides[1];
    if (boxes_apart(&a.box, &b.box, starts[0].slack_m + TEST_SLACK * (a.box.centre.w + b.box.centre.w))) continue;
    NurbsPair children[MAX_PARTS];
    const uint count = cut_moving(&pair, &a, &b, &rule, nodes, children);
    if (count == 0) {
      first = t0;
      best = pair;
      continue;
    }
    for (uint i = count; i-- > 0;) stack[waiting++] = children[i]; /* the earlier one is next */
  }
  for (uint i = 0; i < waiting; ++i) {
    const float t0 = ldexp((float)INDEX_OF(stack[i].time), -(int)LEVEL_OF(stack[i].time));
    if (t0 < first) {
      first = t0;
      best.level = 0xffffffffu;
    }
  }
  found[q] = best;
  lower[q] = first;
  tests[q] = test_count;
}
