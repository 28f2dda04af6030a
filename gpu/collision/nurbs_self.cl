/* Searches for parts of one surface that may meet; see NurbsQueryOptions.is_self. Given by the host: VOLUME 0, SPLIT 0, WITH_CONES 1, and
   what nurbs_parts.clh takes. A pair of a part with itself stands for all pairs inside it. */
#include "gpu/collision/nurbs_injective.clh"
#include "gpu/collision/nurbs_parts.clh"

#define SELF_CHILDREN 3

int is_self(const NurbsPair* pair) { return pair->node_a == pair->node_b && pair->u_a == pair->u_b && pair->v_a == pair->v_b; }

/* Child c of a pair: parts a[i] and b[j] of its children; 0 if there is none. A part with itself becomes the two halves with themselves and
   with each other. */
int child_of(const Children* children, int of_self, uint c, uint* i, uint* j) {
  if (!of_self) {
    *i = c / children->count_b;
    *j = c % children->count_b;
    return c < children->count_a * children->count_b;
  }
  *i = c == 1 ? 1u : 0u;
  *j = c == 0 ? 0u : 1u;
  return c == 0 || children->count_a == 2;
}

/* As parts_of_pair; of a part with itself both sides are the parts of that. */
void cut_parts(const NurbsPair* pair, global const NurbsNode* nodes, Children* out) {
  if (!is_self(pair)) {
    parts_of_pair(pair, nodes, out);
    return;
  }
  const uint cut = pair->cuts == NOT_TESTED ? 0 : CUT_A(pair->cuts);
  const Part part = part_a_of(pair);
  out->count_a = out->count_b = parts_of(&part, cut, nodes, out->a);
  out->level = pair->level + levels_of(part.node, cut, nodes);
  for (uint i = 0; i < out->count_a; ++i) out->b[i] = out->a[i];
}

/* As nurbs_expand, with SELF_CHILDREN codes a pair. */
kernel void nurbs_self_expand(NurbsRule rule, global const NurbsPair* pairs, global const NurbsPlacement* placements, OBJECT_PARAMETERS,
                              global uchar* codes, global uint* live, global uint* hits) {
  const size_t n = get_global_id(0);
  if (n >= rule.count) return;
  const Objects objects = OBJECTS;
  const NurbsPair pair = pairs[n];
  const Place place = place_a(&placements[pair.query]);
  const uint first = nodes[placements[pair.query].root_a].patch;
  const uint cuts = pair.cuts == NOT_TESTED ? 0 : pair.cuts;
  const int of_self = is_self(&pair);
  Children children;
  cut_parts(&pair, nodes, &children);
  const Part a = part_a_of(&pair), b = part_b_of(&pair);
  volumes_of_parts(&a, CUT_A(cuts), children.a, children.count_a, &place, &objects, children.volume_a);
  if (of_self) {
    for (uint i = 0; i < children.count_a; ++i) children.volume_b[i] = children.volume_a[i];
  } else {
    volumes_of_parts(&b, CUT_B(cuts), children.b, children.count_b, &place, &objects, children.volume_b);
  }
  uint live_count = 0, hit_count = 0;
  for (uint c = 0; c < SELF_CHILDREN; ++c) {
    uint i = 0, j = 0, code = 0;
    if (child_of(&children, of_self, c, &i, &j)) {
      const Volume *va = &children.volume_a[i], *vb = &children.volume_b[j];
      const int is_one = of_self && i == j;
      if ((is_one || !volumes_apart(va, vb, place.slack_m)) &&
          !is_injective(&children.a[i], &children.b[j], first, &place, nodes, patches, bezier)) {
        const uint next = next_cuts(children.level, va, vb, &children.a[i], &children.b[j], &rule);
        code = 0x80u | (is_one ? CUT_A(next) : next);
        live_count += (code & 0x7fu) != 0;
        hit_count += (code & 0x7fu) == 0;
      }
    }
    codes[n * SELF_CHILDREN + c] = (uchar)code;
  }
  live[n] = live_count;
  hits[n] = hit_count;
}

/* As nurbs_emit. */
kernel void nurbs_self_emit(uint count, uint first_hit, global const NurbsPair* pairs, global const NurbsNode* nodes,
                            global const uchar* codes, global const uint* live_begins, global const uint* hit_begins,
                            global NurbsPair* next, global NurbsPair* found) {
  const size_t n = get_global_id(0);
  if (n >= count) return;
  const NurbsPair pair = pairs[n];
  const int of_self = is_self(&pair);
  Children children;
  cut_parts(&pair, nodes, &children);
  uint to = live_begins[n], hit = first_hit + hit_begins[n];
  for (uint c = 0; c < SELF_CHILDREN; ++c) {
    const uint code = codes[n * SELF_CHILDREN + c];
    uint i = 0, j = 0;
    if (code == 0 || !child_of(&children, of_self, c, &i, &j)) continue;
    NurbsPair child = child_pair(&children, pair.query, i, j);
    child.cuts = code & 0x7fu;
    if (child.cuts == 0) {
      found[hit++] = child;
    } else {
      next[to++] = child;
    }
  }
}
