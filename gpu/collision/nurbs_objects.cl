/* Bezier patches of NURBS surfaces and the boxes of their trees, from the current control points; see gpu/collision/nurbs_objects.h. */
#define VOLUME 1
#include "gpu/collision/nurbs_volume.clh"

/* Work-item: patch. Bezier point (k, l) = sum_ij u[k][i] v[l][j] control[i][j]; the coefficients are shares: not negative, of sum 1. */
kernel void nurbs_extract(uint count, uint first, global const NurbsPatch* patches, global const float* to_bezier,
                          global const float4* control, global float4* bezier) {
  if (get_global_id(0) >= count) return;
  const NurbsPatch patch = patches[first + get_global_id(0)];
  ORDERS(&patch);
  float4 rows[NET_SIZE]; /* Bezier along u, control points along v */
  for (uint k = 0; k < nu; ++k) {
    for (uint j = 0; j < nv; ++j) {
      float4 sum = (float4)(0.0f);
      for (uint i = 0; i < nu; ++i) sum += to_bezier[patch.to_bezier_u + k * nu + i] * control[patch.control + i * patch.stride + j];
      rows[k * nv + j] = sum;
    }
  }
  for (uint k = 0; k < nu; ++k) {
    for (uint l = 0; l < nv; ++l) {
      float4 sum = (float4)(0.0f);
      for (uint j = 0; j < nv; ++j) sum += to_bezier[patch.to_bezier_v + l * nv + j] * rows[k * nv + j];
      bezier[patch.bezier + k * nv + l] = sum;
    }
  }
}

/* Work-item: node. A box along the principal axes of the Bezier points of its patches, around all of them. */
kernel void nurbs_node_boxes(uint count, uint first, global const NurbsNode* nodes, global const NurbsPatch* patches,
                             global const float4* bezier, global NurbsBox* boxes) {
  if (get_global_id(0) >= count) return;
  const NurbsNode node = nodes[first + get_global_id(0)];
  const float4 about = projected(bezier[patches[node.patch].bezier]);
  float4 sum = (float4)(0.0f), c0 = (float4)(0.0f), c1 = (float4)(0.0f), c2 = (float4)(0.0f);
  float points = 0.0f;
  for (uint r = 0; r < node.rows; ++r) {
    for (uint c = 0; c < node.columns; ++c) {
      const NurbsPatch patch = patches[node.patch + r * node.stride + c];
      for (uint i = 0; i < patch.order_u * patch.order_v; ++i) {
        const float4 d = projected(bezier[patch.bezier + i]) - about;
        sum += d;
        c0 += d.x * d;
        c1 += d.y * d;
        c2 += d.z * d;
      }
      points += (float)(patch.order_u * patch.order_v);
    }
  }
  sum /= points;
  NurbsBox box;
  principal_axes(&box, c0 / points - sum.x * sum, c1 / points - sum.y * sum, c2 / points - sum.z * sum);
  float4 low = (float4)(0.0f), high = (float4)(0.0f);
  for (uint r = 0; r < node.rows; ++r) {
    for (uint c = 0; c < node.columns; ++c) {
      const NurbsPatch patch = patches[node.patch + r * node.stride + c];
      for (uint i = 0; i < patch.order_u * patch.order_v; ++i) {
        const float4 h = heights(&box, projected(bezier[patch.bezier + i]) - about);
        low = fmin(low, h);
        high = fmax(high, h);
      }
    }
  }
  close_box(&box, about, low, high);
  box.reach.w = (float)PALPATE_NURBS_CUT_U;
  if (node.child == 0) {
    const NurbsPatch patch = patches[node.patch];
    const uint nu = patch.order_u, nv = patch.order_v;
    float4 along_u = (float4)(0.0f), along_v = (float4)(0.0f);
    for (uint i = 0; i < nu; ++i) {
      for (uint j = 0; j < nv; ++j) {
        const float4 p = projected(bezier[patch.bezier + i * nv + j]);
        along_u = fmax(along_u, fabs(p - projected(bezier[patch.bezier + j])));
        along_v = fmax(along_v, fabs(p - projected(bezier[patch.bezier + i * nv])));
      }
    }
    const Part whole = {0, 0, 0};
    box.reach.w = (float)cut_of(&whole, along_u, along_v);
  }
  boxes[first + get_global_id(0)] = box;
}
