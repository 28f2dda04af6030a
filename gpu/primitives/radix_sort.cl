#include "gpu/primitives/radix_sort.clh"

/* One pass of the sort by many groups: count the digits of each chunk, scan the counts (ExclusiveScan, digit-major, so that equal digits
   stay in the order of the chunks), and move each element to its place. Or all passes over few elements by one. */

/* counts[digit * groups + group] = how many elements of the group's chunk have this digit. */
GROUP_KERNEL void radix_count(uint capacity, global const uint* device_count, global const KEY* keys, uint shift, uint mask,
                              global uint* counts) {
  local uint digit_counts[DIGITS];
  count_digits(chunk_of_group(element_count(capacity, device_count)), keys, shift, mask, digit_counts);
  for (uint d = (uint)get_local_id(0); d <= mask; d += GROUP_SIZE) {
    counts[d * (uint)get_num_groups(0) + (uint)get_group_id(0)] = digit_counts[d];
  }
}

/* Moves the chunk's elements to their places; offsets is the scan of counts. */
GROUP_KERNEL void radix_scatter(uint capacity, global const uint* device_count, global const KEY* keys_in, global const uint* values_in,
                                uint values_are_indices, uint shift, uint mask, global const uint* offsets, global KEY* keys_out,
                                global uint* values_out) {
  local uint next[DIGITS];
  local uint members[MEMBER_WORDS];
  for (uint d = (uint)get_local_id(0); d <= mask; d += GROUP_SIZE) {
    next[d] = offsets[d * (uint)get_num_groups(0) + (uint)get_group_id(0)];
  }
  scatter_chunk(chunk_of_group(element_count(capacity, device_count)), keys_in, values_in, values_are_indices, shift, mask, next, members,
                keys_out, values_out);
}

/* Few elements, in one launch of one group. */
GROUP_KERNEL void radix_sort_few(uint capacity, global const uint* device_count, global const KEY* keys_in, global const uint* values_in,
                                 uint values_are_indices, uint bit_begin, uint bit_end, global KEY* keys_scratch,
                                 global uint* values_scratch, global KEY* keys_out, global uint* values_out) {
  local uint next[DIGITS];
  local uint members[MEMBER_WORDS];
  sort_by_group(element_count(capacity, device_count), keys_in, values_in, values_are_indices, bit_begin, bit_end, keys_scratch,
                values_scratch, keys_out, values_out, next, members);
}
