#include "gpu/primitives/group.clh"
#include "gpu/shared/float_key.h"

/* One pass of a least-significant-digit radix sort (stable): count the digits of each chunk, scan the counts (ExclusiveScan, digit-major,
   so that equal digits stay in the order of the chunks), and move each element to its place.

   Given by the host: KEY (uint or ulong), FLOAT_KEYS (1: KEY is the bits of a float), RADIX_BITS. */
#define DIGITS (1u << RADIX_BITS)

#if FLOAT_KEYS
#define SORT_KEY(key) FloatBitsToKey(key)
#else
#define SORT_KEY(key) (key)
#endif

uint digit_of(KEY key, uint shift, uint mask) { return (uint)(SORT_KEY(key) >> shift) & mask; }

/* counts[digit * groups + group] = how many elements of the group's chunk have this digit. */
GROUP_KERNEL void radix_count(uint capacity, global const uint* device_count, global const KEY* keys, uint shift, uint mask,
                              global uint* counts) {
  local uint digit_counts[DIGITS];
  const Chunk chunk = chunk_of_group(element_count(capacity, device_count));
  const uint item = (uint)get_local_id(0);
  for (uint d = item; d < DIGITS; d += GROUP_SIZE) digit_counts[d] = 0;
  GROUP_BARRIER();
  for (size_t i = chunk.begin + item; i < chunk.end; i += GROUP_SIZE) {
    const uint digit = digit_of(keys[i], shift, mask);
#if GROUP_SIZE > 1
    atomic_inc(&digit_counts[digit]);
#else
    ++digit_counts[digit];
#endif
  }
  GROUP_BARRIER();
  for (uint d = item; d < DIGITS; d += GROUP_SIZE) counts[d * (uint)get_num_groups(0) + (uint)get_group_id(0)] = digit_counts[d];
}

/* Moves the chunk's elements to their places; offsets is the scan of counts. Within a tile an element's rank is the number of work-items
   before it with the same digit: each digit has a bit mask of its work-items. values_are_indices: values_in is not read, value i is i. */
GROUP_KERNEL void radix_scatter(uint capacity, global const uint* device_count, global const KEY* keys_in, global const uint* values_in,
                                uint values_are_indices, uint shift, uint mask, global const uint* offsets, global KEY* keys_out,
                                global uint* values_out) {
  local uint next[DIGITS];
  const Chunk chunk = chunk_of_group(element_count(capacity, device_count));
  const uint item = (uint)get_local_id(0);
  for (uint d = item; d < DIGITS; d += GROUP_SIZE) next[d] = offsets[d * (uint)get_num_groups(0) + (uint)get_group_id(0)];
#if GROUP_SIZE > 1
#define MASK_WORDS ((GROUP_SIZE + 31) / 32)
  local uint members[DIGITS * MASK_WORDS];
  for (uint w = item; w < DIGITS * MASK_WORDS; w += GROUP_SIZE) members[w] = 0;
#endif
  GROUP_BARRIER();
  for (size_t tile = chunk.begin; tile < chunk.end; tile += GROUP_SIZE) {
    const size_t i = tile + item;
    const bool is_inside = i < chunk.end;
    const KEY key = is_inside ? keys_in[i] : 0;
    const uint digit = digit_of(key, shift, mask);
    uint rank = 0;
#if GROUP_SIZE > 1
    local uint* own_members = members + digit * MASK_WORDS;
    if (is_inside) atomic_or(&own_members[item / 32], 1u << (item % 32));
    GROUP_BARRIER();
    bool is_last = is_inside;
    if (is_inside) {
      for (uint w = 0; w < item / 32; ++w) rank += popcount(own_members[w]);
      rank += popcount(own_members[item / 32] & ((1u << (item % 32)) - 1u));
      is_last = (own_members[item / 32] & ~((2u << (item % 32)) - 1u)) == 0;
      for (uint w = item / 32 + 1; w < MASK_WORDS; ++w) is_last = is_last && own_members[w] == 0;
    }
#endif
    if (is_inside) {
      const uint place = next[digit] + rank;
      keys_out[place] = key;
      values_out[place] = values_are_indices ? (uint)i : values_in[i];
    }
#if GROUP_SIZE > 1
    GROUP_BARRIER();
    /* The last element of each digit moves the digit on and clears its mask for the next tile. */
    if (is_last) {
      next[digit] += rank + 1;
      for (uint w = 0; w < MASK_WORDS; ++w) own_members[w] = 0;
    }
    GROUP_BARRIER();
#else
    ++next[digit];
#endif
  }
}
