/* Searches for parts of two objects that may meet; see gpu/collision/nurbs_queries.h. Given by the host: STACK, how many pairs wait at most
   in a search in depth; and what nurbs_parts.clh takes. */
#include "gpu/collision/nurbs_parts.clh"

/* Work-item: query. Its first pair, not tested. */
kernel void nurbs_roots(uint count, global const NurbsPlacement* placements, global NurbsPair* pairs) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const NurbsPair pair = {i, 0, placements[i].root_a, 0, 0, placements[i].root_b, 0, 0, NOT_TESTED, 0.0f, 0, 0};
  pairs[i] = pair;
}

/* Work-item: pair. codes[c]: 0 if child c of its MAX_CHILDREN is apart (or there is none), else 0x80 | its next cuts. live, hits: how many
   children are to be cut, are hits. */
kernel void nurbs_expand(NurbsRule rule, global const NurbsPair* pairs, global const NurbsPlacement* placements, OBJECT_PARAMETERS,
                         global uchar* codes, global uint* live, global uint* hits) {
  const size_t n = get_global_id(0);
  if (n >= rule.count) return;
  const Objects objects = OBJECTS;
  const NurbsPair pair = pairs[n];
  const Place at_a = place_a(&placements[pair.query]), at_b = place_b(&placements[pair.query]);
  const float slack = placements[pair.query].slack_m;
  Children children;
  cut_pair(&pair, 0, &at_a, &at_b, &objects, &children);
  uint live_count = 0, hit_count = 0;
  for (uint c = 0; c < MAX_CHILDREN; ++c) {
    const uint i = c / children.count_b, j = c % children.count_b;
    uint code = 0;
    if (i < children.count_a && !volumes_apart(&children.volume_a[i], &children.volume_b[j], slack)) {
      const uint cuts = next_cuts(children.level, &children.volume_a[i], &children.volume_b[j], &children.a[i], &children.b[j], &rule);
      code = 0x80u | cuts;
      live_count += cuts != 0;
      hit_count += cuts == 0;
    }
    codes[n * MAX_CHILDREN + c] = (uchar)code;
  }
  live[n] = live_count;
  hits[n] = hit_count;
}

/* Work-item: pair. Its children that are to be cut go to next[live_begins[n]...], its hits to found[first_hit + hit_begins[n]...]. */
kernel void nurbs_emit(uint count, uint first_hit, global const NurbsPair* pairs, global const NurbsNode* nodes, global const uchar* codes,
                       global const uint* live_begins, global const uint* hit_begins, global NurbsPair* next, global NurbsPair* found) {
  const size_t n = get_global_id(0);
  if (n >= count) return;
  const NurbsPair pair = pairs[n];
  Children children;
  parts_of_pair(&pair, nodes, &children);
  uint to = live_begins[n], hit = first_hit + hit_begins[n];
  for (uint c = 0; c < MAX_CHILDREN; ++c) {
    const uint code = codes[n * MAX_CHILDREN + c];
    if (code == 0) continue;
    NurbsPair child = child_pair(&children, pair.query, c / children.count_b, c % children.count_b);
    child.cuts = code & 0x7fu;
    if (child.cuts == 0) {
      found[hit++] = child;
    } else {
      next[to++] = child;
    }
  }
}

/* Work-item: query. The first hit of a search in depth that goes into the pair with the nearest centres first; found[q].level is
   0xffffffff if there is none. tests[q]: pairs of volumes looked at. */
kernel void nurbs_first_hits(NurbsRule rule, global const NurbsPlacement* placements, OBJECT_PARAMETERS, global NurbsPair* found,
                             global uint* tests) {
  const uint q = (uint)get_global_id(0);
  if (q >= rule.count) return;
  const Objects objects = OBJECTS;
  const Place at_a = place_a(&placements[q]), at_b = place_b(&placements[q]);
  const float slack = placements[q].slack_m;
  NurbsPair stack[STACK];
  uint waiting = 0, test_count = 0;
  NurbsPair pair = {q, 0, placements[q].root_a, 0, 0, placements[q].root_b, 0, 0, NOT_TESTED, 0.0f, 0, 0};
  Children children;
  KeptVolumes kept;
  uint has_kept = 0;
  for (;;) {
    cut_pair(&pair, has_kept ? &kept : 0, &at_a, &at_b, &objects, &children);
    /* Children that are not apart, the farthest first. */
    float far_sq[MAX_CHILDREN];
    uint order[MAX_CHILDREN];
    uint count = 0;
    for (uint i = 0; i < children.count_a; ++i) {
      for (uint j = 0; j < children.count_b; ++j) {
        ++test_count;
        if (volumes_apart(&children.volume_a[i], &children.volume_b[j], slack)) continue;
        const float4 d = centre_of(&children.volume_a[i]) - centre_of(&children.volume_b[j]);
        const float dist_sq = dot(d, d);
        uint k = count++;
        for (; k > 0 && far_sq[k - 1] < dist_sq; --k) {
          far_sq[k] = far_sq[k - 1];
          order[k] = order[k - 1];
        }
        far_sq[k] = dist_sq;
        order[k] = i * MAX_PARTS + j;
      }
    }
    if (count == 0) {
      if (waiting == 0) {
        pair.level = 0xffffffffu;
        break;
      }
      pair = stack[--waiting];
      has_kept = 0;
      continue;
    }
    for (uint k = 0; k < count; ++k) {
      const uint i = order[k] / MAX_PARTS, j = order[k] % MAX_PARTS;
      pair = child_pair(&children, q, i, j);
      pair.cuts = next_cuts(children.level, &children.volume_a[i], &children.volume_b[j], &children.a[i], &children.b[j], &rule);
      if (pair.cuts == 0) break;
      if (k + 1 < count) {
        stack[waiting++] = pair;
      } else {
        kept.a = children.volume_a[i];
        kept.b = children.volume_b[j];
        has_kept = 1;
      }
    }
    if (pair.cuts == 0) break;
  }
  found[q] = pair;
  tests[q] = test_count;
}

/* Point of a part's middle, placed. */
float4 middle_of(const Part* part, const Place* place, const Objects* objects) {
  const NurbsPatch patch = objects->patches[objects->nodes[part->node].patch];
  ORDERS(&patch);
  float4 net[NET_SIZE];
  part_net(&patch, objects->bezier, part->u, part->v, net);
  for (uint r = 1; r < nu; ++r) {
    for (uint i = 0; i + r < nu; ++i) {
      for (uint j = 0; j < nv; ++j) net[i * nv + j] = 0.5f * (net[i * nv + j] + net[(i + 1) * nv + j]);
    }
  }
  for (uint r = 1; r < nv; ++r) {
    for (uint j = 0; j + r < nv; ++j) net[j] = 0.5f * (net[j] + net[j + 1]);
  }
  return placed_point(place, projected(net[0]));
}

/* Work-item: hit. Hits whose parts are nodes have the middles of their boxes. */
kernel void nurbs_middles(uint count, global const NurbsPair* found, global const NurbsPlacement* placements, OBJECT_PARAMETERS,
                          global NurbsMiddles* middles) {
  const size_t n = get_global_id(0);
  if (n >= count) return;
  const NurbsPair pair = found[n];
  NurbsMiddles out = {(float4)(0.0f), (float4)(0.0f)};
  if (pair.level != 0xffffffffu) {
    const Objects objects = OBJECTS;
    const Place at_a = place_a(&placements[pair.query]), at_b = place_b(&placements[pair.query]);
    const Part a = part_a_of(&pair), b = part_b_of(&pair);
    const Volume volume_a = placed_volume(&a, &at_a, &objects), volume_b = placed_volume(&b, &at_b, &objects);
    out.on_a = volume_a.is_node ? centre_of(&volume_a) : middle_of(&a, &at_a, &objects);
    out.on_b = volume_b.is_node ? centre_of(&volume_b) : middle_of(&b, &at_b, &objects);
    const float4 d = out.on_a - out.on_b;
    out.on_b.w = sqrt(dot(d, d));
    out.on_a.w = fmax(volume_a.size, volume_b.size);
  }
  middles[n] = out;
}
