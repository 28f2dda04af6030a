/* Moves of whole components, as component_balance.h has them, without the host: the same operations in the same order, so that the bits are
   its own. They are few components and few pairs between them, so one work-item does the arithmetic; the others find those pairs.

   Build option: PALPATE_BALANCE_GROUP  work-items of the group of balance_components, 1 or more. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#include "gpu/shared/dynamics_types.h"

#ifndef PALPATE_BALANCE_GROUP /* default for tools that look at this file alone */
#define PALPATE_BALANCE_GROUP 1
#endif

#define COMPONENT_SHARE ((double)0.25f) /* kComponentShare: a float holds it */
#define ENOUGH ((double)1 / ((double)1e8f * (double)1e8f))

/* In scratch, by component. */
#define BLOCKS 0 /* 9: force, then xx xy xz yy yz zz */
#define SCALE 9  /* of the rest three each */
#define MOVE 12
#define RESIDUAL 15
#define PRECONDITIONED 18
#define DIRECTION 21
#define PRODUCT 24
#define COMMON 27
#define JOINED 30 /* 9: as BLOCKS */
#define SHARE 39  /* of leaders: share of what is not common; then 1 where one is held, 1 where all stay */
#define SCRATCH_DOUBLES 42

/* Rows that join two components of which one is free at least. */
typedef struct {
  const __global ComponentRow* rows;
  const __global uint* picked;
  uint count;
} Rows;

static inline bool is_of_two(const __global ComponentRow* r, const __global uint* is_free) {
  const uint a = r->component_a, b = r->component_b;
  return a != b && a != PALPATE_NO_COMPONENT && b != PALPATE_NO_COMPONENT && (is_free[a] | is_free[b]) != 0;
}

static inline void add_pair(const __global ComponentRow* r, const __global uint* is_free, uint at, uint k, double on_b,
                            __global double* scratch) {
  if (is_free[r->component_a]) scratch[SCRATCH_DOUBLES * r->component_a + at + k] -= on_b;
  if (is_free[r->component_b]) scratch[SCRATCH_DOUBLES * r->component_b + at + k] += on_b;
}

static inline double component_of(float4 v, uint k) { return (double)(k == 0 ? v.x : k == 1 ? v.y : v.z); }

/* Of vectors `from`, to PRODUCT. */
static inline void multiply(uint n, const Rows* rows, const __global uint* is_free, uint from, __global double* scratch) {
  for (uint p = 0; p < n; ++p) {
    const __global double* b = scratch + SCRATCH_DOUBLES * p + BLOCKS + 3;
    const __global double* v = scratch + SCRATCH_DOUBLES * p + from;
    __global double* out = scratch + SCRATCH_DOUBLES * p + PRODUCT;
    out[0] = b[0] * v[0] + b[1] * v[1] + b[2] * v[2];
    out[1] = b[1] * v[0] + b[3] * v[1] + b[4] * v[2];
    out[2] = b[2] * v[0] + b[4] * v[1] + b[5] * v[2];
  }
  for (uint i = 0; i < rows->count; ++i) {
    const __global ComponentRow* r = rows->rows + rows->picked[i];
    if (r->slope_n_per_m == 0.0f) continue;
    const __global double* a = scratch + SCRATCH_DOUBLES * r->component_a + from;
    const __global double* b = scratch + SCRATCH_DOUBLES * r->component_b + from;
    const double n0 = (double)r->normal.x, n1 = (double)r->normal.y, n2 = (double)r->normal.z;
    const double along = n0 * (b[0] - a[0]) + n1 * (b[1] - a[1]) + n2 * (b[2] - a[2]);
    const float more = r->slope_n_per_m - r->friction.w;
    for (uint k = 0; k < 3; ++k) {
      add_pair(r, is_free, PRODUCT, k, (double)r->friction.w * (b[k] - a[k]) + (double)more * along * component_of(r->normal, k), scratch);
    }
  }
}

/* RESIDUAL to PRECONDITIONED; returns their product. */
static inline double precondition(uint n, const __global uint* is_free, __global double* scratch) {
  double sum = (double)0;
  for (uint p = 0; p < n; ++p) {
    __global double* c = scratch + SCRATCH_DOUBLES * p;
    for (uint k = 0; k < 3; ++k) c[PRECONDITIONED + k] = is_free[p] ? c[RESIDUAL + k] / c[SCALE + k] : (double)0;
    sum += c[RESIDUAL] * c[PRECONDITIONED] + c[RESIDUAL + 1] * c[PRECONDITIONED + 1] + c[RESIDUAL + 2] * c[PRECONDITIONED + 2];
  }
  return sum;
}

static inline double dot_of(uint n, uint a, uint b, const __global double* scratch) {
  double sum = (double)0;
  for (uint p = 0; p < n; ++p) {
    const __global double* c = scratch + SCRATCH_DOUBLES * p;
    sum += c[a] * c[b] + c[a + 1] * c[b + 1] + c[a + 2] * c[b + 2];
  }
  return sum;
}

/* Conjugate gradients (BalanceComponents): MOVE. */
static inline void balance(uint n, const Rows* rows, const __global uint* is_free, __global double* scratch) {
  double rz = precondition(n, is_free, scratch);
  for (uint p = 0; p < n; ++p) {
    __global double* c = scratch + SCRATCH_DOUBLES * p;
    for (uint k = 0; k < 3; ++k) c[DIRECTION + k] = c[PRECONDITIONED + k];
  }
  const double enough = ENOUGH * rz;
  for (uint i = 0; i < 6 * n + 20 && rz > enough && rz > (double)0; ++i) {
    multiply(n, rows, is_free, DIRECTION, scratch);
    const double curvature = dot_of(n, DIRECTION, PRODUCT, scratch);
    if (!(curvature > (double)0)) break;
    const double alpha = rz / curvature;
    for (uint p = 0; p < n; ++p) {
      __global double* c = scratch + SCRATCH_DOUBLES * p;
      for (uint k = 0; k < 3; ++k) {
        c[MOVE + k] += alpha * c[DIRECTION + k];
        c[RESIDUAL + k] -= alpha * c[PRODUCT + k];
      }
    }
    const double next = precondition(n, is_free, scratch);
    for (uint p = 0; p < n; ++p) {
      __global double* c = scratch + SCRATCH_DOUBLES * p;
      for (uint k = 0; k < 3; ++k) c[DIRECTION + k] = c[PRECONDITIONED + k] + next / rz * c[DIRECTION + k];
    }
    rz = next;
  }
  bool is_finite = true;
  for (uint p = 0; p < n; ++p) {
    const __global double* c = scratch + SCRATCH_DOUBLES * p + MOVE;
    is_finite = is_finite && isfinite(c[0] + c[1] + c[2]);
  }
  for (uint p = 0; p < n && !is_finite; ++p) {
    for (uint k = 0; k < 3; ++k) scratch[SCRATCH_DOUBLES * p + MOVE + k] = (double)0;
  }
}

static inline uint root_of(__global uint* leader, uint p) {
  while (leader[p] != p) {
    leader[p] = leader[leader[p]];
    p = leader[p];
  }
  return p;
}

/* The move that balances the force of a block; see ComponentBlock::Balance. */
static inline void balance_block(const __global double* block, __global double* out) {
  const __global double* f = block;
  const __global double* b = block + 3;
  const double l10 = b[1] / b[0];
  const double l20 = b[2] / b[0];
  const double d1 = b[3] - l10 * b[1];
  const double t = b[4] - l20 * b[1];
  const double l21 = t / d1;
  const double d2 = b[5] - l20 * b[2] - l21 * t;
  const double y1 = f[1] - l10 * f[0];
  const double z = (f[2] - l20 * f[0] - l21 * y1) / d2;
  const double y = y1 / d1 - l21 * z;
  out[0] = f[0] / b[0] - l10 * y - l20 * z;
  out[1] = y;
  out[2] = z;
}

/* Who moves with whom (JoinedBy), and how (CommonMoves): leader, COMMON. */
static inline void find_common(uint n, const Rows* rows, const __global uint* is_free, __global double* scratch, __global uint* leader) {
  for (uint p = 0; p < n; ++p) leader[p] = p;
  for (uint i = 0; i < rows->count; ++i) {
    const __global ComponentRow* r = rows->rows + rows->picked[i];
    if (!(is_free[r->component_a] & is_free[r->component_b])) continue;
    const uint b = root_of(leader, r->component_b);
    leader[root_of(leader, r->component_a)] = b;
  }
  for (uint p = 0; p < n; ++p) leader[p] = root_of(leader, p);
  for (uint i = 0; i < rows->count; ++i) {
    const __global ComponentRow* r = rows->rows + rows->picked[i];
    if (!is_free[r->component_a]) scratch[SCRATCH_DOUBLES * leader[r->component_b] + SHARE + 1] = (double)1;
    if (!is_free[r->component_b]) scratch[SCRATCH_DOUBLES * leader[r->component_a] + SHARE + 1] = (double)1;
  }
  for (uint p = 0; p < n; ++p) {
    for (uint k = 0; k < 9; ++k) scratch[SCRATCH_DOUBLES * leader[p] + JOINED + k] += scratch[SCRATCH_DOUBLES * p + BLOCKS + k];
  }
  for (uint p = 0; p < n; ++p) {
    __global double* c = scratch + SCRATCH_DOUBLES * p;
    if (is_free[p] && leader[p] == p && c[SHARE + 1] == (double)0) balance_block(c + JOINED, c + COMMON);
  }
}

/* What keeps all pairs apart (MovesToBalance): MOVE. moved: [component][3] since the detection. */
static inline void limit_moves(uint n, const Rows* rows, const __global uint* is_free, double least_gap_m, const __global double* moved,
                               __global double* scratch, const __global uint* leader) {
  for (uint i = 0; i < rows->count; ++i) {
    const __global ComponentRow* r = rows->rows + rows->picked[i];
    const uint a = r->component_a, b = r->component_b;
    __global double* joined = scratch + SCRATCH_DOUBLES * leader[is_free[a] ? a : b];
    if (r->detected.w < 4.0f * r->rounding_m) joined[SHARE + 2] = (double)1;
    double before = (double)0, more = (double)0;
    for (uint k = 0; k < 3; ++k) {
      const double normal = component_of(r->detected, k);
      before += normal * (moved[3 * a + k] - moved[3 * b + k]);
      more += normal * (scratch[SCRATCH_DOUBLES * a + MOVE + k] - scratch[SCRATCH_DOUBLES * b + MOVE + k]);
    }
    const double left = COMPONENT_SHARE * ((double)r->detected.w - least_gap_m) - (double)r->rounding_m;
    const double room = left > (double)0 ? left : (double)0;
    if (before + more <= room) continue;
    const double share = (room - before) / more;
    const double kept = share > (double)0 ? share : (double)0;
    if (kept < joined[SHARE]) joined[SHARE] = kept;
  }
  for (uint p = 0; p < n; ++p) {
    __global double* c = scratch + SCRATCH_DOUBLES * p;
    const __global double* joined = scratch + SCRATCH_DOUBLES * leader[p];
    const bool stays = !is_free[p] || joined[SHARE + 2] != (double)0;
    for (uint k = 0; k < 3; ++k) {
      c[MOVE + k] = stays ? (double)0 : joined[COMMON + k] + joined[SHARE] * (c[MOVE + k] - joined[COMMON + k]);
    }
  }
}

/* sums: of component_sums, [component][parts][PALPATE_COMPONENT_SUMS]. rows: of component_rows. scratch: [component][SCRATCH_DOUBLES].
   picked: [row_count]. shifts: as rounded; moves: [1] whether any is not 0. One work-group. */
__kernel __attribute__((reqd_work_group_size(PALPATE_BALANCE_GROUP, 1, 1))) void balance_components(
    uint n, uint parts, uint row_count, double least_gap_m, const __global ComponentRow* rows, const __global float* sums,
    const __global uint* is_free, const __global double* moved, __global double* scratch, __global uint* picked, __global uint* leader,
    __global float4* shifts, __global uint* moves) {
  __local uint begins[PALPATE_BALANCE_GROUP + 1];
  const uint me = (uint)get_local_id(0);
  const uint share = (row_count + PALPATE_BALANCE_GROUP - 1) / PALPATE_BALANCE_GROUP;
  const uint begin = min(me * share, row_count);
  const uint end = min(begin + share, row_count);
  uint found = 0;
  for (uint i = begin; i < end; ++i) found += is_of_two(rows + i, is_free) ? 1 : 0;
  begins[me + 1] = found;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (me == 0) {
    begins[0] = 0;
    for (uint i = 1; i <= PALPATE_BALANCE_GROUP; ++i) begins[i] += begins[i - 1];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint at = begins[me];
  for (uint i = begin; i < end; ++i) {
    if (is_of_two(rows + i, is_free)) picked[at++] = i;
  }
  barrier(CLK_GLOBAL_MEM_FENCE);
  if (me != 0) return;
  const Rows of_two = {rows, picked, begins[PALPATE_BALANCE_GROUP]};
  for (uint p = 0; p < n; ++p) {
    __global double* c = scratch + SCRATCH_DOUBLES * p;
    for (uint k = 0; k < SCRATCH_DOUBLES; ++k) c[k] = (double)0;
    c[SHARE] = (double)1;
    for (uint part = 0; part < parts && is_free[p]; ++part) {
      for (uint k = 0; k < 9; ++k) c[BLOCKS + k] += (double)sums[((size_t)p * parts + part) * PALPATE_COMPONENT_SUMS + k];
    }
    for (uint k = 0; k < 3; ++k) c[RESIDUAL + k] = c[BLOCKS + k];
    c[SCALE] = c[BLOCKS + 3];
    c[SCALE + 1] = c[BLOCKS + 6];
    c[SCALE + 2] = c[BLOCKS + 8];
  }
  for (uint i = 0; i < of_two.count; ++i) {
    const __global ComponentRow* r = rows + picked[i];
    const float more = r->slope_n_per_m - r->friction.w;
    for (uint k = 0; k < 3; ++k) {
      const double normal = component_of(r->normal, k);
      const double diagonal = (double)r->friction.w + (double)more * normal * normal;
      add_pair(r, is_free, RESIDUAL, k, (double)r->normal.w * normal - component_of(r->friction, k), scratch);
      scratch[SCRATCH_DOUBLES * r->component_a + SCALE + k] += diagonal;
      scratch[SCRATCH_DOUBLES * r->component_b + SCALE + k] += diagonal;
    }
  }
  balance(n, &of_two, is_free, scratch);
  find_common(n, &of_two, is_free, scratch, leader);
  limit_moves(n, &of_two, is_free, least_gap_m, moved, scratch, leader);
  uint any = 0;
  for (uint p = 0; p < n; ++p) {
    const __global double* move = scratch + SCRATCH_DOUBLES * p + MOVE;
    const float4 shift = (float4)((float)move[0], (float)move[1], (float)move[2], 0.0f);
    shifts[p] = shift;
    any |= shift.x != 0.0f || shift.y != 0.0f || shift.z != 0.0f ? 1u : 0u;
  }
  moves[0] = any;
}

/* Shifts by the least share of all that move together, and what has moved since the detection. shares: [component][parts], or null: all.
   Nothing if nothing moves, or the gate is closed: then nothing moves either. Work-item: one. */
__kernel void limit_components(uint n, uint parts, const __global float* shares, const __global uint* leader, const __global uint* gate,
                               __global float4* shifts, __global double* moved, __global uint* moves) {
  if (get_global_id(0) != 0) return;
  if (gate[0] != 0) moves[0] = 0;
  if (moves[0] == 0) return;
  for (uint p = 0; p < n; ++p) {
    float least = 1.0f;
    for (uint q = 0; q < n && shares; ++q) {
      if (leader[q] != leader[p]) continue;
      for (uint part = 0; part < parts; ++part) least = shares[q * parts + part] < least ? shares[q * parts + part] : least;
    }
    const float4 shift = shares ? (float4)(least * shifts[p].x, least * shifts[p].y, least * shifts[p].z, 0.0f) : shifts[p];
    shifts[p] = shift;
    moved[3 * p] += (double)shift.x;
    moved[3 * p + 1] += (double)shift.y;
    moved[3 * p + 2] += (double)shift.z;
  }
}
