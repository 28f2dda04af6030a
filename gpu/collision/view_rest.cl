#include "gpu/collision/box_hierarchy.clh"

/* What a view certificate leaves of a surface, as a surface of its own: see view_rest.h. */

/* The box that a triangle sweeps, drawn out by pad_m. */
void sweep_triangle(uint triangle, global const UInt4* triangles, global const float4* starts, global const float4* ends, float pad_m,
                    float4* lower, float4* upper) {
  const UInt4 t = triangles[triangle];
  const uint corners[3] = {t.x, t.y, t.z};
  for (uint c = 0; c < 3; ++c) {
    const float4 p = starts[corners[c]], q = ends[corners[c]];
    const float4 pad = pad_m + 1e-6f * fmax(fabs(p), fabs(q));
    *lower = fmin(*lower, fmin(p, q) - pad);
    *upper = fmax(*upper, fmax(p, q) + pad);
  }
}

/* Boxes around runs of triangles [begins[i], begins[i + 1]) of a list, 16 side by side: nodes [node][6][16], NaN where there is none. One
   work-item a lane of a node. */
kernel void view_rest_boxes(uint run_count, uint lane_count, global const uint* begins, global const uint* list,
                            global const UInt4* triangles, global const float4* starts, global const float4* ends, float pad_m,
                            global float* nodes) {
  const uint i = (uint)get_global_id(0);
  if (i >= lane_count) return;
  float4 lower = (float4)(INFINITY), upper = (float4)(-INFINITY);
  if (i < run_count) {
    for (uint k = begins[i]; k < begins[i + 1]; ++k) sweep_triangle(list[k], triangles, starts, ends, pad_m, &lower, &upper);
  }
  global float* lane = nodes + (size_t)(i / NODE_WIDTH) * NODE_FLOATS + i % NODE_WIDTH;
  const float values[6] = {lower.x, lower.y, lower.z, upper.x, upper.y, upper.z};
  for (uint k = 0; k < 6; ++k) lane[k * NODE_WIDTH] = i < run_count ? values[k] : NAN;
}

/* Marks with 1 the triangles without a label, those that may meet one of them, and the vertices and edges of both. One work-item a
   triangle. */
kernel void view_rest_select(uint triangle_count, uint node_count, global const uint* labels, global const UInt4* triangles,
                             global const UInt4* triangle_edges, global const float4* starts, global const float4* ends,
                             global const float* nodes, global uint* keep_triangles, volatile global uint* keep_vertices,
                             volatile global uint* keep_edges) {
  const uint i = (uint)get_global_id(0);
  if (i >= triangle_count) return;
  uint is_kept = labels[i] == 0u ? 1u : 0u;
  if (is_kept == 0u) {
    float4 lower = (float4)(INFINITY), upper = (float4)(-INFINITY);
    sweep_triangle(i, triangles, starts, ends, 0.0f, &lower, &upper);
    for (uint node = 0; node < node_count && is_kept == 0u; ++node) {
      const LaneBoxes lanes = load_lane_boxes(nodes, node);
      is_kept = lanes_overlapping(&lanes, lower, upper) != 0u ? 1u : 0u;
    }
  }
  keep_triangles[i] = is_kept;
  if (is_kept == 0u) return;
  const UInt4 v = triangles[i], e = triangle_edges[i];
  atomic_max(&keep_vertices[v.x], 1u);
  atomic_max(&keep_vertices[v.y], 1u);
  atomic_max(&keep_vertices[v.z], 1u);
  atomic_max(&keep_edges[e.x], 1u);
  atomic_max(&keep_edges[e.y], 1u);
  atomic_max(&keep_edges[e.z], 1u);
}

/* Kept vertices to their places, which are the numbers of kept ones before them. ids [place]: what they were. One work-item a vertex. */
kernel void view_rest_vertices(uint count, global const uint* keep, global const uint* places, global const float4* starts,
                               global const float4* ends, global const uint* groups, global float4* rest_starts, global float4* rest_ends,
                               global uint* rest_groups, global uint* ids) {
  const uint i = (uint)get_global_id(0);
  if (i >= count || keep[i] == 0u) return;
  const uint place = places[i];
  rest_starts[place] = starts[i];
  rest_ends[place] = ends[i];
  rest_groups[place] = groups[i];
  ids[place] = i;
}

/* The same of edges. */
kernel void view_rest_edges(uint count, global const uint* keep, global const uint* places, global const uint* vertex_places,
                            global const UInt2* edges, global const uint* groups, global UInt2* rest_edges, global uint* rest_groups,
                            global uint* ids) {
  const uint i = (uint)get_global_id(0);
  if (i >= count || keep[i] == 0u) return;
  const uint place = places[i];
  rest_edges[place] = (UInt2)(vertex_places[edges[i].x], vertex_places[edges[i].y]);
  rest_groups[place] = groups[i];
  ids[place] = i;
}

/* The same of triangles. */
kernel void view_rest_triangles(uint count, global const uint* keep, global const uint* places, global const uint* vertex_places,
                                global const UInt4* triangles, global const uint* groups, global UInt4* rest_triangles,
                                global uint* rest_groups, global uint* ids) {
  const uint i = (uint)get_global_id(0);
  if (i >= count || keep[i] == 0u) return;
  const uint place = places[i];
  const UInt4 t = triangles[i];
  rest_triangles[place] = (UInt4)(vertex_places[t.x], vertex_places[t.y], vertex_places[t.z], t.w);
  rest_groups[place] = groups[i];
  ids[place] = i;
}

/* Elements and vertices of hits by the numbers that they have in the whole surface. One work-item a hit. */
kernel void view_rest_hits(uint count, global const uint* vertex_ids, global const uint* edge_ids, global const uint* triangle_ids,
                           global CcdHit* hits) {
  const uint i = (uint)get_global_id(0);
  if (i >= count) return;
  const int is_edges = hits[i].kind == PALPATE_EDGE_EDGE;
  const UInt4 v = hits[i].vertices;
  hits[i].a = is_edges ? edge_ids[hits[i].a] : vertex_ids[hits[i].a];
  hits[i].b = is_edges ? edge_ids[hits[i].b] : triangle_ids[hits[i].b];
  hits[i].vertices = (UInt4)(vertex_ids[v.x], vertex_ids[v.y], vertex_ids[v.z], vertex_ids[v.w]);
}
