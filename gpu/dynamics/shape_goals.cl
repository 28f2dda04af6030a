/* Goals of shape-matched bodies: M. Mueller, B. Heidelberger, M. Teschner, M. Gross, "Meshless deformations based on shape matching", 2005,
   sections 3.3 and 4; see docs/algorithms/shape_matching.md, "Deformable bodies", for what differs.

   Build option: PALPATE_SHAPE_GROUP  work-items that share a cluster, 1 or a power of two.

   Member m of a cluster is the vertex member_vertex[m]. member_linear[m]: xyz = whitened coordinates phi, w = its stiffness [N/m] in the
   cluster. member_quadratic[2 m], [2 m + 1]: six quadratic coordinates psi, likewise of mean 0 and covariance 1 and orthogonal to phi; read
   for quadratic clusters only. The memberships of vertex v are shares[share_begin[v] .. share_begin[v + 1]): x = cluster, y = member. */

#include "gpu/shared/shape_types.h"

#ifndef PALPATE_SHAPE_GROUP /* default for tools that look at this file alone */
#define PALPATE_SHAPE_GROUP 64
#endif

#include "gpu/dynamics/shape_matching.clh"

#define SUMS 10           /* center, three linear and six quadratic columns */
#define LEAST_VOLUME 0.1f /* below this share of the volume at rest a deformation counts less and less, and not at all from 0 on */

/* Sums over the members: what the mean and the best linear and quadratic deformations follow from, places from `origin`. */
static inline void sum_members(const ShapeCluster* cluster, uint first, uint stride, float3 origin, const __global float4* x,
                               const __global uint* member_vertex, const __global float4* member_linear,
                               const __global float4* member_quadratic, float3* sums) {
  for (uint k = 0; k < SUMS; ++k) sums[k] = (float3)(0.0f);
  for (uint m = cluster->begin + first; m < cluster->end; m += stride) {
    const float4 phi = member_linear[m];
    const float3 p = phi.w * (x[member_vertex[m]].xyz - origin);
    sums[0] += p;
    sums[1] += phi.x * p;
    sums[2] += phi.y * p;
    sums[3] += phi.z * p;
    if (cluster->mode != PALPATE_SHAPE_QUADRATIC) continue;
    const float4 psi0 = member_quadratic[2 * m];
    const float4 psi1 = member_quadratic[2 * m + 1];
    sums[4] += psi0.x * p;
    sums[5] += psi0.y * p;
    sums[6] += psi0.z * p;
    sums[7] += psi0.w * p;
    sums[8] += psi1.x * p;
    sums[9] += psi1.y * p;
  }
}

/* The pose of a cluster from the sums of its members. Since the coordinates are whitened, the columns of the best deformation are the
   covariances themselves: no matrix is inverted. */
static inline ShapePose pose_of(const ShapeCluster* cluster, float3 origin, const float3* sums) {
  const float inv_stiffness = cluster->basis_y.w;
  const float3 basis[3] = {cluster->basis_x.xyz, cluster->basis_y.xyz, cluster->basis_z.xyz};
  float3 columns[SUMS];
  for (uint k = 0; k < SUMS; ++k) columns[k] = inv_stiffness * sums[k];
  /* Covariance of now with rest, sum p q^T = sum p phi^T basis^T. */
  Matrix3 a;
  a.x = a.y = a.z = (float3)(0.0f);
  for (uint k = 0; k < 3; ++k) add_outer_product(&a, 1.0f, columns[1 + k], basis[k]);
  uint rank;
  bool converged;
  const float4 q = matching_rotation(&a, &rank, &converged);
  float3 turned[3];
  for (uint k = 0; k < 3; ++k) turned[k] = quaternion_rotate(q, basis[k]);
  float share = cluster->mode == PALPATE_SHAPE_RIGID ? 0.0f : cluster->beta;
  for (uint k = cluster->rank; k < 3; ++k) columns[1 + k] = turned[k];
  const float volume = dot(cross(columns[1], columns[2]), columns[3]) * cluster->basis_x.w;
  share *= clamp(volume / LEAST_VOLUME, 0.0f, 1.0f);
  const float scale = cluster->keeps != 0.0f ? 1.0f / cbrt(fmax(volume, LEAST_VOLUME)) : 1.0f;
  ShapePose pose;
  pose.center = (float4)(origin + columns[0], 0.0f);
  pose.rotation = q;
  pose.column_x = (float4)(share * scale * columns[1] + (1.0f - share) * turned[0], 0.0f);
  pose.column_y = (float4)(share * scale * columns[2] + (1.0f - share) * turned[1], 0.0f);
  pose.column_z = (float4)(share * scale * columns[3] + (1.0f - share) * turned[2], 0.0f);
  for (uint k = 0; k < 6; ++k) pose.quadratic[k] = (float4)(share * columns[4 + k], 0.0f);
  return pose;
}

/* Poses of all clusters at the positions x. One work-group a cluster; sums in a fixed order. */
__kernel __attribute__((reqd_work_group_size(PALPATE_SHAPE_GROUP, 1, 1))) void match_clusters(
    uint cluster_count, const __global ShapeCluster* clusters, const __global float4* x, const __global uint* member_vertex,
    const __global float4* member_linear, const __global float4* member_quadratic, __global ShapePose* poses) {
  const uint c = (uint)get_group_id(0);
  if (c >= cluster_count) return;
  const ShapeCluster cluster = clusters[c];
  const float3 origin = x[member_vertex[cluster.begin]].xyz; /* so that bodies far from the world's origin lose nothing */
  float3 sums[SUMS];
#if PALPATE_SHAPE_GROUP == 1
  sum_members(&cluster, 0, 1, origin, x, member_vertex, member_linear, member_quadratic, sums);
#else
  __local float team[3 * SUMS * PALPATE_SHAPE_GROUP];
  const uint me = (uint)get_local_id(0);
  sum_members(&cluster, me, PALPATE_SHAPE_GROUP, origin, x, member_vertex, member_linear, member_quadratic, sums);
  for (uint k = 0; k < SUMS; ++k) {
    team[(3 * k) * PALPATE_SHAPE_GROUP + me] = sums[k].x;
    team[(3 * k + 1) * PALPATE_SHAPE_GROUP + me] = sums[k].y;
    team[(3 * k + 2) * PALPATE_SHAPE_GROUP + me] = sums[k].z;
  }
  for (uint half_team = PALPATE_SHAPE_GROUP / 2; half_team > 0; half_team /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me < half_team) {
      for (uint k = 0; k < 3 * SUMS; ++k) team[k * PALPATE_SHAPE_GROUP + me] += team[k * PALPATE_SHAPE_GROUP + me + half_team];
    }
  }
  if (me != 0) return;
  for (uint k = 0; k < SUMS; ++k) {
    sums[k] =
        (float3)(team[(3 * k) * PALPATE_SHAPE_GROUP], team[(3 * k + 1) * PALPATE_SHAPE_GROUP], team[(3 * k + 2) * PALPATE_SHAPE_GROUP]);
  }
#endif
  poses[c] = pose_of(&cluster, origin, sums);
}

/* Where member m is wanted, from the centre of its cluster. */
static inline float3 goal_from_center(const __global ShapePose* pose, uint mode, uint m, const __global float4* member_linear,
                                      const __global float4* member_quadratic) {
  const float4 phi = member_linear[m];
  float3 goal = phi.x * pose->column_x.xyz + phi.y * pose->column_y.xyz + phi.z * pose->column_z.xyz;
  if (mode == PALPATE_SHAPE_QUADRATIC) {
    const float4 psi0 = member_quadratic[2 * m];
    const float4 psi1 = member_quadratic[2 * m + 1];
    goal += psi0.x * pose->quadratic[0].xyz + psi0.y * pose->quadratic[1].xyz + psi0.z * pose->quadratic[2].xyz;
    goal += psi0.w * pose->quadratic[3].xyz + psi1.x * pose->quadratic[4].xyz + psi1.y * pose->quadratic[5].xyz;
  }
  return goal;
}

/* How far each membership of a vertex is from its goal at the start of a step, in the axes of the cluster: what damping works on.
   Work-item: vertex; `poses` are those of x_start. strains [member]. */
__kernel void note_strains(uint vertex_count, const __global ShapeCluster* clusters, const __global ShapePose* poses,
                           const __global float4* x_start, const __global uint* share_begin, const __global uint2* shares,
                           const __global float4* member_linear, const __global float4* member_quadratic, __global float4* strains) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count) return;
  const uint end = share_begin[v + 1];
  for (uint i = share_begin[v]; i < end; ++i) {
    const uint2 share = shares[i];
    const __global ShapePose* pose = poses + share.x;
    const float3 offset =
        (x_start[v].xyz - pose->center.xyz) - goal_from_center(pose, clusters[share.x].mode, share.y, member_linear, member_quadratic);
    strains[share.y] = (float4)(quaternion_rotate(quaternion_inverse(pose->rotation), offset), 0.0f);
  }
}

/* The goal of each vertex: the mean over its memberships, by their stiffness. goals [vertex_count]: xyz [m], w = stiffness [N/m] of the
   spring that draws the vertex there, damping included; w = 0 for vertices of no cluster. Work-item: vertex. */
__kernel void gather_goals(uint vertex_count, uint damped, const __global ShapeCluster* clusters, const __global ShapePose* poses,
                           const __global float4* x, const __global uint* share_begin, const __global uint2* shares,
                           const __global float4* member_linear, const __global float4* member_quadratic, const __global float4* strains,
                           __global float4* goals) {
  const uint v = (uint)get_global_id(0);
  if (v >= vertex_count) return;
  const uint end = share_begin[v + 1];
  const float3 origin = x[v].xyz;
  float3 sum = (float3)(0.0f);
  float stiffness = 0.0f;
  for (uint i = share_begin[v]; i < end; ++i) {
    const uint2 share = shares[i];
    const __global ShapeCluster* cluster = clusters + share.x;
    const __global ShapePose* pose = poses + share.x;
    float3 goal = (pose->center.xyz - origin) + goal_from_center(pose, cluster->mode, share.y, member_linear, member_quadratic);
    if (damped != 0) goal += cluster->held * quaternion_rotate(pose->rotation, strains[share.y].xyz);
    const float weight = cluster->basis_z.w * member_linear[share.y].w;
    sum += weight * goal;
    stiffness += weight;
  }
  goals[v] = stiffness > 0.0f ? (float4)(origin + sum / stiffness, stiffness) : (float4)(0.0f);
}
