#include "gpu/primitives/group.clh"

/* Exclusive scan and what is built on it, by reduce-then-scan: each work-group first sums its chunk, then combines the sums of the chunks
   before it and scans its own.

   Given by the host: one of
     SCAN_VALUES    out[i] = in[0] + ... + in[i-1]; VALUE is the type
     SCAN_SEGMENTS  the same, but each i with heads[i] != 0 begins a segment of its own: out[i] = 0 there
     SCAN_FLAGS     the indices i with flags[i] != 0, in order, to out
     SCAN_RUNS      for each run of equal neighbours in keys (type KEY): its key and its first index */

#if defined(SCAN_VALUES)
typedef VALUE State;
#define INPUTS global const VALUE* in
#define OUTPUTS global VALUE* out
#define LOAD(i) in[i]
#define STORE(i, prefix, state) out[i] = prefix

#elif defined(SCAN_SEGMENTS)
/* Sum since the last head, or since the begin if there is no head in the range. */
typedef struct {
  VALUE sum;
  uint has_head;
} State;
State segment_state(VALUE value, uint head) {
  const State state = {value, head != 0};
  return state;
}
#define INPUTS global const VALUE *in, global const uint *heads
#define OUTPUTS global VALUE* out
#define LOAD(i) segment_state(in[i], heads[i])
#define STORE(i, prefix, state) out[i] = (state).has_head ? (VALUE)0 : (prefix).sum

#elif defined(SCAN_FLAGS)
typedef uint State;
#define INPUTS global const uint* flags
#define OUTPUTS global uint* out
#define LOAD(i) (uint)(flags[i] != 0)
#define STORE(i, prefix, state) \
  if (IS_KEPT(prefix, state)) out[prefix] = (uint)(i)

#elif defined(SCAN_RUNS)
typedef uint State;
uint is_run_head(global const KEY* keys, size_t i) { return i == 0 ? 1u : (uint)(keys[i] != keys[i - 1]); }
#define INPUTS global const KEY* keys
#define OUTPUTS global KEY *run_keys, global uint *run_begins
#define LOAD(i) is_run_head(keys, i)
#define STORE(i, prefix, state)     \
  if (state) {                      \
    run_keys[prefix] = keys[i];     \
    run_begins[prefix] = (uint)(i); \
  }
#endif

/* A lone work-item may write an element that is not kept to the place of the next kept one, which comes after it: a random branch costs
   more than the write. Behind the last kept one there is no such place. */
#if GROUP_SIZE > 1
#define IS_KEPT(prefix, state) (state)
#else
#define IS_KEPT(prefix, state) ((prefix) < places_end)
#endif

#if defined(SCAN_SEGMENTS)
State identity(void) { return segment_state(0, 0); }
State combine(State a, State b) {
  const State state = {b.has_head ? b.sum : a.sum + b.sum, a.has_head | b.has_head};
  return state;
}
#else
State identity(void) { return 0; }
State combine(State a, State b) { return a + b; }
#endif

#if GROUP_SIZE > 1
/* Exclusive scan over the work-items of the group (Hillis and Steele 1986): returns the combination of the values of the work-items before
   this one, and puts that of all into *total. scratch: 2 * GROUP_SIZE. */
State scan_group(State value, local State* scratch, State* total) {
  const uint item = (uint)get_local_id(0);
  uint from = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  scratch[item] = value;
  for (uint distance = 1; distance < GROUP_SIZE; distance *= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    State sum = scratch[from + item];
    if (item >= distance) sum = combine(scratch[from + item - distance], sum);
    from = GROUP_SIZE - from;
    scratch[from + item] = sum;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  *total = scratch[from + GROUP_SIZE - 1];
  return item == 0 ? identity() : scratch[from + item - 1];
}

/* Combination of everything before this work-item's elements of the tile; *carry moves on to the next tile. */
State scan_tile(const State* states, local State* scratch, State* carry) {
  State sum = states[0];
  for (uint k = 1; k < ITEMS; ++k) sum = combine(sum, states[k]);
  State tile_total;
  const State prefix = combine(*carry, scan_group(sum, scratch, &tile_total));
  *carry = combine(*carry, tile_total);
  return prefix;
}
#define finish_tile(carry, prefix)
#define LOCAL_SCRATCH local State scratch[2 * GROUP_SIZE];
#else
/* A lone work-item carries its running prefix from tile to tile. */
State scan_group_of_one(State value, State* total) {
  *total = value;
  return identity();
}
#define scan_group(value, scratch, total) scan_group_of_one(value, total)
#define scan_tile(states, scratch, carry) (*(carry))
#define finish_tile(carry, prefix) (*(carry) = (prefix))
#define LOCAL_SCRATCH
#endif

/* chunk_sums[group] = the combined elements of the group's chunk. */
GROUP_KERNEL void scan_chunk_sums(uint capacity, global const uint* device_count, global State* chunk_sums, INPUTS) {
  LOCAL_SCRATCH
  const Chunk chunk = chunk_of_group(element_count(capacity, device_count));
  State total = identity();
#if defined(SCAN_SEGMENTS)
  /* Only what follows the last head counts, so tiles are visited from the end until there is one. */
  const size_t tiles = (chunk.end - chunk.begin + TILE - 1) / TILE;
  for (size_t tile = tiles; tile > 0 && !total.has_head; --tile) {
    const size_t begin = chunk.begin + (tile - 1) * TILE + get_local_id(0) * ITEMS;
    State sum = identity();
    for (uint k = 0; k < ITEMS; ++k) {
      if (begin + k < chunk.end) sum = combine(sum, LOAD(begin + k));
    }
    State tile_total;
    scan_group(sum, scratch, &tile_total);
    total = combine(tile_total, total);
  }
#else
  State sum = identity();
  for (size_t i = chunk.begin + get_local_id(0); i < chunk.end; i += GROUP_SIZE) sum += LOAD(i);
  scan_group(sum, scratch, &total);
#endif
  if (get_local_id(0) == 0) chunk_sums[get_group_id(0)] = total;
}

/* Scans the group's chunk; the last group leaves the total (of SCAN_SEGMENTS: of the last segment) in total[0]. */
GROUP_KERNEL void scan_chunks(uint capacity, global const uint* device_count, global const State* chunk_sums, global VALUE* total, INPUTS,
                              OUTPUTS) {
  LOCAL_SCRATCH
  const uint count = element_count(capacity, device_count);
  const Chunk chunk = chunk_of_group(count);
  const size_t item = get_local_id(0);

  /* Sum of the chunks before this one: consecutive chunk sums for each work-item, then across the group. */
  const size_t chunks_before = get_group_id(0);
  const size_t sums_per_item = chunks_before / GROUP_SIZE + (chunks_before % GROUP_SIZE != 0);
  State sum = identity();
  for (size_t k = item * sums_per_item; k < min((item + 1) * sums_per_item, chunks_before); ++k) sum = combine(sum, chunk_sums[k]);
  State carry;
  scan_group(sum, scratch, &carry);

#if defined(SCAN_FLAGS) && GROUP_SIZE == 1
  const uint places_end = carry + chunk_sums[chunks_before];
#endif

  for (size_t tile = chunk.begin; tile < chunk.end; tile += TILE) {
    const size_t begin = tile + item * ITEMS;
    State states[ITEMS];
    if (tile + TILE <= chunk.end) {
#pragma unroll
      for (uint k = 0; k < ITEMS; ++k) states[k] = LOAD(begin + k);
      State prefix = scan_tile(states, scratch, &carry);
#pragma unroll
      for (uint k = 0; k < ITEMS; ++k) {
        STORE(begin + k, prefix, states[k]);
        prefix = combine(prefix, states[k]);
      }
      finish_tile(&carry, prefix);
    } else {
      for (uint k = 0; k < ITEMS; ++k) states[k] = begin + k < chunk.end ? LOAD(begin + k) : identity();
      State prefix = scan_tile(states, scratch, &carry);
      for (uint k = 0; k < ITEMS && begin + k < chunk.end; ++k) {
        STORE(begin + k, prefix, states[k]);
        prefix = combine(prefix, states[k]);
      }
      finish_tile(&carry, prefix);
    }
  }

  if (item == 0 && get_group_id(0) + 1 == get_num_groups(0)) {
#if defined(SCAN_SEGMENTS)
    total[0] = carry.sum;
#else
    total[0] = carry;
#endif
#if defined(SCAN_RUNS)
    run_begins[carry] = count;
#endif
  }
}
