/* Vector types of structs and buffers that host and kernels share: the same size, alignment and member order on both sides.
   A shared header includes this one, puts its structs between PALPATE_SHARED_BEGIN and PALPATE_SHARED_END (namespace palpate::gpu on the
   host, nothing on the device) and pins each with PALPATE_SHARED_SIZE. Only scalars of fixed size and the types below are allowed as
   members, padding is written out, and float3 is banned (16 bytes on the device, 12 in C++). The layout test asks the device. */
#ifndef PALPATE_GPU_SHARED_TYPES_H_
#define PALPATE_GPU_SHARED_TYPES_H_

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)

typedef float2 Float2;
typedef float4 Float4;
typedef int2 Int2;
typedef int4 Int4;
typedef uint2 UInt2;
typedef uint4 UInt4;
typedef int Int;
typedef uint UInt;
typedef ulong ULong;

#define PALPATE_SHARED_BEGIN
#define PALPATE_SHARED_END
#define PALPATE_SHARED_SIZE(type, size_bytes)

#else

#include <cstdint>

#define PALPATE_SHARED_BEGIN namespace palpate::gpu {
#define PALPATE_SHARED_END }
#define PALPATE_SHARED_SIZE(type, size_bytes) \
  static_assert(sizeof(type) == (size_bytes), #type " must have the same layout on host and device")

PALPATE_SHARED_BEGIN

using Int = int32_t;
using UInt = uint32_t;
using ULong = uint64_t;

struct alignas(8) Float2 {
  float x = 0, y = 0;
  friend bool operator==(const Float2&, const Float2&) = default;
};
struct alignas(16) Float4 {
  float x = 0, y = 0, z = 0, w = 0;
  friend bool operator==(const Float4&, const Float4&) = default;
};
struct alignas(8) Int2 {
  int32_t x = 0, y = 0;
  friend bool operator==(const Int2&, const Int2&) = default;
};
struct alignas(16) Int4 {
  int32_t x = 0, y = 0, z = 0, w = 0;
  friend bool operator==(const Int4&, const Int4&) = default;
};
struct alignas(8) UInt2 {
  uint32_t x = 0, y = 0;
  friend bool operator==(const UInt2&, const UInt2&) = default;
};
struct alignas(16) UInt4 {
  uint32_t x = 0, y = 0, z = 0, w = 0;
  friend bool operator==(const UInt4&, const UInt4&) = default;
};

PALPATE_SHARED_SIZE(Float2, 8);
PALPATE_SHARED_SIZE(Float4, 16);
PALPATE_SHARED_SIZE(Int2, 8);
PALPATE_SHARED_SIZE(Int4, 16);
PALPATE_SHARED_SIZE(UInt2, 8);
PALPATE_SHARED_SIZE(UInt4, 16);

PALPATE_SHARED_END

#endif

#endif /* PALPATE_GPU_SHARED_TYPES_H_ */
