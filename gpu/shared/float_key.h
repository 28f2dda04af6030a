/* Floats as unsigned keys of the same order: -inf < ... < -0 < +0 < ... < +inf; NaNs lie beyond the infinities of their sign. */
#ifndef PALPATE_GPU_SHARED_FLOAT_KEY_H_
#define PALPATE_GPU_SHARED_FLOAT_KEY_H_

#include "gpu/shared/types.h"

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
#define PALPATE_SHARED_FUNCTION
#else
#define PALPATE_SHARED_FUNCTION constexpr
#endif

PALPATE_SHARED_BEGIN

/* The key of the float with these bits: a negative float has all its bits flipped, another one only the sign bit. */
PALPATE_SHARED_FUNCTION UInt FloatBitsToKey(UInt bits) { return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u); }

/* Inverse of FloatBitsToKey. */
PALPATE_SHARED_FUNCTION UInt KeyToFloatBits(UInt key) { return key ^ ((key >> 31) != 0 ? 0x80000000u : 0xffffffffu); }

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_FLOAT_KEY_H_ */
