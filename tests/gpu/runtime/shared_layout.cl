#include "tests/gpu/runtime/shared_layout.h"

#define WRITE_SIZE(type) out[n++] = sizeof(type);
#define WRITE_OFFSET(type, member)                                             \
  {                                                                            \
    type value;                                                                \
    out[n++] = (uint)((private uchar*)&value.member - (private uchar*)&value); \
  }

/* Writes what the device thinks of each shared struct, in the order of shared_layout.h: its size, then the offset of each member. One
   work-item. */
kernel void shared_layout(global uint* out) {
  uint n = 0;
  PALPATE_SHARED_LAYOUT(WRITE_SIZE, WRITE_OFFSET)
}

/* out[i] has the members of in[i] in reverse order. One work-item an element. */
kernel void reverse_members(global const Float4* in4, global Float4* out4, global const UInt4* in_u4, global UInt4* out_u4,
                            global const Int4* in_i4, global Int4* out_i4, global const Float2* in2, global Float2* out2,
                            global const UInt2* in_u2, global UInt2* out_u2, global const Int2* in_i2, global Int2* out_i2) {
  const size_t i = get_global_id(0);
  out4[i] = (Float4)(in4[i].w, in4[i].z, in4[i].y, in4[i].x);
  out_u4[i] = (UInt4)(in_u4[i].w, in_u4[i].z, in_u4[i].y, in_u4[i].x);
  out_i4[i] = (Int4)(in_i4[i].w, in_i4[i].z, in_i4[i].y, in_i4[i].x);
  out2[i] = (Float2)(in2[i].y, in2[i].x);
  out_u2[i] = (UInt2)(in_u2[i].y, in_u2[i].x);
  out_i2[i] = (Int2)(in_i2[i].y, in_i2[i].x);
}
