/* OpenCL C built-in functions for kernels that run as host code: put before the text of the program. Precision is that of the host's libm,
   at least as good as OpenCL asks for. */
/* Inlined where they are used: a program holds, and the compiler works on, only those. */
#define PALPATE_OVERLOAD extern inline __attribute__((overloadable, gnu_inline, always_inline))

/* Of native_runtime.cc. */
ulong palpate_native_query(uint what, uint dimension);
void palpate_native_barrier(void);

size_t PALPATE_OVERLOAD get_global_id(uint dimension) { return palpate_native_query(0, dimension); }
size_t PALPATE_OVERLOAD get_local_id(uint dimension) { return palpate_native_query(1, dimension); }
size_t PALPATE_OVERLOAD get_group_id(uint dimension) { return palpate_native_query(2, dimension); }
size_t PALPATE_OVERLOAD get_global_size(uint dimension) { return palpate_native_query(3, dimension); }
size_t PALPATE_OVERLOAD get_local_size(uint dimension) { return palpate_native_query(4, dimension); }
size_t PALPATE_OVERLOAD get_num_groups(uint dimension) { return palpate_native_query(5, dimension); }
void PALPATE_OVERLOAD barrier(cl_mem_fence_flags flags) {
  (void)flags;
  palpate_native_barrier();
}

void PALPATE_OVERLOAD mem_fence(cl_mem_fence_flags flags) {
  (void)flags;
  __atomic_signal_fence(__ATOMIC_SEQ_CST); /* one thread runs all work-items */
}

#define PALPATE_ATOMICS(type, space)                                                                                        \
  type PALPATE_OVERLOAD atomic_add(volatile space type* p, type v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }   \
  type PALPATE_OVERLOAD atomic_sub(volatile space type* p, type v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }   \
  type PALPATE_OVERLOAD atomic_inc(volatile space type* p) { return __atomic_fetch_add(p, (type)1, __ATOMIC_RELAXED); }     \
  type PALPATE_OVERLOAD atomic_dec(volatile space type* p) { return __atomic_fetch_sub(p, (type)1, __ATOMIC_RELAXED); }     \
  type PALPATE_OVERLOAD atomic_or(volatile space type* p, type v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }     \
  type PALPATE_OVERLOAD atomic_and(volatile space type* p, type v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }   \
  type PALPATE_OVERLOAD atomic_xor(volatile space type* p, type v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }   \
  type PALPATE_OVERLOAD atomic_min(volatile space type* p, type v) { return __atomic_fetch_min(p, v, __ATOMIC_RELAXED); }   \
  type PALPATE_OVERLOAD atomic_max(volatile space type* p, type v) { return __atomic_fetch_max(p, v, __ATOMIC_RELAXED); }   \
  type PALPATE_OVERLOAD atomic_xchg(volatile space type* p, type v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); } \
  type PALPATE_OVERLOAD atomic_cmpxchg(volatile space type* p, type expected, type v) {                                     \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                                \
    return expected;                                                                                                        \
  }
PALPATE_ATOMICS(int, global)
PALPATE_ATOMICS(uint, global)
PALPATE_ATOMICS(int, local)
PALPATE_ATOMICS(uint, local)

/* Vector forms of built-ins of one, two and three arguments: lane by lane. */
#define PALPATE_LANES_1(name, type, lanes, result)     \
  result##lanes PALPATE_OVERLOAD name(type##lanes a) { \
    result##lanes r;                                   \
    for (int i = 0; i < lanes; ++i) r[i] = name(a[i]); \
    return r;                                          \
  }
#define PALPATE_LANES_2(name, type, lanes)                          \
  type##lanes PALPATE_OVERLOAD name(type##lanes a, type##lanes b) { \
    type##lanes r;                                                  \
    for (int i = 0; i < lanes; ++i) r[i] = name(a[i], b[i]);        \
    return r;                                                       \
  }
#define PALPATE_LANES_2_SCALAR(name, type, lanes) \
  type##lanes PALPATE_OVERLOAD name(type##lanes a, type b) { return name(a, (type##lanes)(b)); }
#define PALPATE_LANES_3(name, type, lanes)                                         \
  type##lanes PALPATE_OVERLOAD name(type##lanes a, type##lanes b, type##lanes c) { \
    type##lanes r;                                                                 \
    for (int i = 0; i < lanes; ++i) r[i] = name(a[i], b[i], c[i]);                 \
    return r;                                                                      \
  }
#define PALPATE_FOR_LANES_1(name, type, result) \
  PALPATE_LANES_1(name, type, 2, result)        \
  PALPATE_LANES_1(name, type, 3, result)        \
  PALPATE_LANES_1(name, type, 4, result) PALPATE_LANES_1(name, type, 8, result) PALPATE_LANES_1(name, type, 16, result)

int PALPATE_OVERLOAD popcount(int x) { return __builtin_popcount((uint)x); }
uint PALPATE_OVERLOAD popcount(uint x) { return (uint)__builtin_popcount(x); }
ulong PALPATE_OVERLOAD popcount(ulong x) { return (ulong)__builtin_popcountl(x); }
uint PALPATE_OVERLOAD clz(uint x) { return x == 0 ? 32u : (uint)__builtin_clz(x); }
ulong PALPATE_OVERLOAD clz(ulong x) { return x == 0 ? 64ul : (ulong)__builtin_clzl(x); }
uint PALPATE_OVERLOAD rotate(uint x, uint by) { return (x << (by & 31u)) | (x >> (-by & 31u)); }
uint PALPATE_OVERLOAD mul_hi(uint a, uint b) { return (uint)(((ulong)a * b) >> 32); }
uint PALPATE_OVERLOAD abs_diff(uint a, uint b) { return a < b ? b - a : a - b; }
uint PALPATE_OVERLOAD abs(int x) { return x < 0 ? 0u - (uint)x : (uint)x; }

/* min, max and clamp; those of floats are unspecified for NaN. */
#define PALPATE_ORDERED(type)                                                                 \
  type PALPATE_OVERLOAD min(type a, type b) { return b < a ? b : a; }                         \
  type PALPATE_OVERLOAD max(type a, type b) { return a < b ? b : a; }                         \
  type PALPATE_OVERLOAD clamp(type x, type low, type high) { return min(max(x, low), high); } \
  PALPATE_ORDERED_LANES(type, 2)                                                              \
  PALPATE_ORDERED_LANES(type, 3)                                                              \
  PALPATE_ORDERED_LANES(type, 4)                                                              \
  PALPATE_ORDERED_LANES(type, 8)                                                              \
  PALPATE_ORDERED_LANES(type, 16)
#define PALPATE_ORDERED_LANES(type, lanes) \
  PALPATE_LANES_2(min, type, lanes)        \
  PALPATE_LANES_2(max, type, lanes)        \
  PALPATE_LANES_3(clamp, type, lanes)      \
  PALPATE_LANES_2_SCALAR(min, type, lanes) \
  PALPATE_LANES_2_SCALAR(max, type, lanes) \
  type##lanes PALPATE_OVERLOAD clamp(type##lanes x, type low, type high) { return min(max(x, low), high); }
PALPATE_ORDERED(int)
PALPATE_ORDERED(uint)
PALPATE_ORDERED(long)
PALPATE_ORDERED(ulong)
PALPATE_ORDERED(float)
PALPATE_ORDERED(double)

#define PALPATE_UNARY(name, builtin)                             \
  float PALPATE_OVERLOAD name(float x) { return builtin##f(x); } \
  double PALPATE_OVERLOAD name(double x) { return builtin(x); }  \
  PALPATE_FOR_LANES_1(name, float, float)                        \
  PALPATE_FOR_LANES_1(name, double, double)
PALPATE_UNARY(sqrt, __builtin_sqrt)
PALPATE_UNARY(fabs, __builtin_fabs)
PALPATE_UNARY(floor, __builtin_floor)
PALPATE_UNARY(ceil, __builtin_ceil)
PALPATE_UNARY(trunc, __builtin_trunc)
PALPATE_UNARY(rint, __builtin_rint)
PALPATE_UNARY(round, __builtin_round)
PALPATE_UNARY(sin, __builtin_sin)
PALPATE_UNARY(cos, __builtin_cos)
PALPATE_UNARY(tan, __builtin_tan)
PALPATE_UNARY(asin, __builtin_asin)
PALPATE_UNARY(acos, __builtin_acos)
PALPATE_UNARY(atan, __builtin_atan)
PALPATE_UNARY(exp, __builtin_exp)
PALPATE_UNARY(log, __builtin_log)
PALPATE_UNARY(log2, __builtin_log2)
PALPATE_UNARY(exp2, __builtin_exp2)
PALPATE_UNARY(cbrt, __builtin_cbrt)
float PALPATE_OVERLOAD rsqrt(float x) { return 1.0f / sqrt(x); }
double PALPATE_OVERLOAD rsqrt(double x) { return 1.0 / sqrt(x); }

#define PALPATE_BINARY(name, builtin)                                        \
  float PALPATE_OVERLOAD name(float x, float y) { return builtin##f(x, y); } \
  double PALPATE_OVERLOAD name(double x, double y) { return builtin(x, y); } \
  PALPATE_BINARY_LANES(name, 2)                                              \
  PALPATE_BINARY_LANES(name, 3)                                              \
  PALPATE_BINARY_LANES(name, 4)                                              \
  PALPATE_BINARY_LANES(name, 8)                                              \
  PALPATE_BINARY_LANES(name, 16)
#define PALPATE_BINARY_LANES(name, lanes) PALPATE_LANES_2(name, float, lanes) PALPATE_LANES_2(name, double, lanes)
PALPATE_BINARY(fmin, __builtin_fmin)
PALPATE_BINARY(fmax, __builtin_fmax)
PALPATE_BINARY(pow, __builtin_pow)
PALPATE_BINARY(atan2, __builtin_atan2)
PALPATE_BINARY(copysign, __builtin_copysign)
PALPATE_BINARY(nextafter, __builtin_nextafter)
PALPATE_BINARY(hypot, __builtin_hypot)
#define PALPATE_EXTREME_SCALAR(type, lanes) PALPATE_LANES_2_SCALAR(fmin, type, lanes) PALPATE_LANES_2_SCALAR(fmax, type, lanes)
#define PALPATE_EXTREMES(type)    \
  PALPATE_EXTREME_SCALAR(type, 2) \
  PALPATE_EXTREME_SCALAR(type, 3) PALPATE_EXTREME_SCALAR(type, 4) PALPATE_EXTREME_SCALAR(type, 8) PALPATE_EXTREME_SCALAR(type, 16)
PALPATE_EXTREMES(float)
PALPATE_EXTREMES(double)
float PALPATE_OVERLOAD ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
double PALPATE_OVERLOAD ldexp(double x, int e) { return __builtin_ldexp(x, e); }

#define PALPATE_REALS(type, suffix)                                                            \
  type PALPATE_OVERLOAD fma(type a, type b, type c) { return __builtin_fma##suffix(a, b, c); } \
  type PALPATE_OVERLOAD mad(type a, type b, type c) { return a * b + c; }                      \
  type PALPATE_OVERLOAD mix(type a, type b, type t) { return a + (b - a) * t; }                \
  type PALPATE_OVERLOAD step(type edge, type x) { return x < edge ? (type)0 : (type)1; }       \
  type PALPATE_OVERLOAD sign(type x) { return x > 0 ? (type)1 : x < 0 ? (type)-1 : (type)0; }  \
  int PALPATE_OVERLOAD isfinite(type x) { return __builtin_isfinite(x); }                      \
  int PALPATE_OVERLOAD isnan(type x) { return __builtin_isnan(x); }                            \
  int PALPATE_OVERLOAD isinf(type x) { return __builtin_isinf(x) != 0; }                       \
  int PALPATE_OVERLOAD signbit(type x) { return __builtin_signbit(x) != 0; }                   \
  PALPATE_REAL_LANES(type, 2)                                                                  \
  PALPATE_REAL_LANES(type, 3)                                                                  \
  PALPATE_REAL_LANES(type, 4)                                                                  \
  PALPATE_REAL_LANES(type, 8)                                                                  \
  PALPATE_REAL_LANES(type, 16)
#define PALPATE_REAL_LANES(type, lanes)    \
  PALPATE_LANES_3(fma, type, lanes)        \
  PALPATE_LANES_3(mad, type, lanes)        \
  PALPATE_LANES_3(mix, type, lanes)        \
  PALPATE_LANES_2(step, type, lanes)       \
  PALPATE_LANES_1(sign, type, lanes, type) \
  type##lanes PALPATE_OVERLOAD mix(type##lanes a, type##lanes b, type t) { return mix(a, b, (type##lanes)(t)); }
PALPATE_REALS(float, f)
PALPATE_REALS(double, )

/* Predicates of vectors are -1 where they hold. */
#define PALPATE_PREDICATE(name, type, mask, lanes)              \
  mask##lanes PALPATE_OVERLOAD name(type##lanes a) {            \
    mask##lanes r;                                              \
    for (int i = 0; i < lanes; ++i) r[i] = name(a[i]) ? -1 : 0; \
    return r;                                                   \
  }
#define PALPATE_SELECT(type, mask, lanes)                                            \
  type##lanes PALPATE_OVERLOAD select(type##lanes a, type##lanes b, mask##lanes c) { \
    type##lanes r;                                                                   \
    for (int i = 0; i < lanes; ++i) r[i] = c[i] < 0 ? b[i] : a[i];                   \
    return r;                                                                        \
  }
#define PALPATE_ANY_ALL(type, lanes)        \
  int PALPATE_OVERLOAD any(type##lanes a) { \
    for (int i = 0; i < lanes; ++i) {       \
      if (a[i] < 0) return 1;               \
    }                                       \
    return 0;                               \
  }                                         \
  int PALPATE_OVERLOAD all(type##lanes a) { \
    for (int i = 0; i < lanes; ++i) {       \
      if (a[i] >= 0) return 0;              \
    }                                       \
    return 1;                               \
  }
#define PALPATE_MASKED(lanes)                      \
  PALPATE_PREDICATE(isfinite, float, int, lanes)   \
  PALPATE_PREDICATE(isnan, float, int, lanes)      \
  PALPATE_PREDICATE(isinf, float, int, lanes)      \
  PALPATE_PREDICATE(isfinite, double, long, lanes) \
  PALPATE_PREDICATE(isnan, double, long, lanes)    \
  PALPATE_SELECT(float, int, lanes)                \
  PALPATE_SELECT(int, int, lanes)                  \
  PALPATE_SELECT(uint, int, lanes)                 \
  PALPATE_SELECT(double, long, lanes)              \
  PALPATE_SELECT(ulong, long, lanes)               \
  PALPATE_ANY_ALL(int, lanes)                      \
  PALPATE_ANY_ALL(long, lanes)
PALPATE_MASKED(2)
PALPATE_MASKED(3)
PALPATE_MASKED(4)
PALPATE_MASKED(8)
PALPATE_MASKED(16)
#define PALPATE_SELECT_SCALAR(type, mask) \
  type PALPATE_OVERLOAD select(type a, type b, mask c) { return c != 0 ? b : a; }
PALPATE_SELECT_SCALAR(float, int)
PALPATE_SELECT_SCALAR(int, int)
PALPATE_SELECT_SCALAR(uint, int)
PALPATE_SELECT_SCALAR(uint, uint)
PALPATE_SELECT_SCALAR(double, long)
PALPATE_SELECT_SCALAR(ulong, long)

#define PALPATE_CONVERT_LANES(from, to, lanes) \
  to##lanes PALPATE_OVERLOAD convert_##to##lanes(from##lanes v) { return __builtin_convertvector(v, to##lanes); }
#define PALPATE_CONVERT(from, to)                            \
  to PALPATE_OVERLOAD convert_##to(from v) { return (to)v; } \
  PALPATE_CONVERT_LANES(from, to, 2)                         \
  PALPATE_CONVERT_LANES(from, to, 3)                         \
  PALPATE_CONVERT_LANES(from, to, 4)                         \
  PALPATE_CONVERT_LANES(from, to, 8)                         \
  PALPATE_CONVERT_LANES(from, to, 16)
#define PALPATE_CONVERT_FROM(from) \
  PALPATE_CONVERT(from, int)       \
  PALPATE_CONVERT(from, uint)      \
  PALPATE_CONVERT(from, long)      \
  PALPATE_CONVERT(from, ulong)     \
  PALPATE_CONVERT(from, float)     \
  PALPATE_CONVERT(from, double)
PALPATE_CONVERT_FROM(int)
PALPATE_CONVERT_FROM(uint)
PALPATE_CONVERT_FROM(long)
PALPATE_CONVERT_FROM(ulong)
PALPATE_CONVERT_FROM(float)
PALPATE_CONVERT_FROM(double)

#define PALPATE_GEOMETRY(scalar)                                                                                     \
  scalar PALPATE_OVERLOAD dot(scalar a, scalar b) { return a * b; }                                                  \
  scalar PALPATE_OVERLOAD dot(scalar##2 a, scalar##2 b) { return a.x * b.x + a.y * b.y; }                            \
  scalar PALPATE_OVERLOAD dot(scalar##3 a, scalar##3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }                \
  scalar PALPATE_OVERLOAD dot(scalar##4 a, scalar##4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }    \
  scalar##3 PALPATE_OVERLOAD cross(scalar##3 a, scalar##3 b) {                                                       \
    return (scalar##3)(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);                         \
  }                                                                                                                  \
  scalar##4 PALPATE_OVERLOAD cross(scalar##4 a, scalar##4 b) { return (scalar##4)(cross(a.xyz, b.xyz), (scalar)0); } \
  scalar PALPATE_OVERLOAD length(scalar##2 v) { return sqrt(dot(v, v)); }                                            \
  scalar PALPATE_OVERLOAD length(scalar##3 v) { return sqrt(dot(v, v)); }                                            \
  scalar PALPATE_OVERLOAD length(scalar##4 v) { return sqrt(dot(v, v)); }                                            \
  scalar PALPATE_OVERLOAD distance(scalar##3 a, scalar##3 b) { return length(a - b); }                               \
  scalar PALPATE_OVERLOAD distance(scalar##4 a, scalar##4 b) { return length(a - b); }                               \
  scalar##3 PALPATE_OVERLOAD normalize(scalar##3 v) { return v / length(v); }                                        \
  scalar##4 PALPATE_OVERLOAD normalize(scalar##4 v) { return v / length(v); }
PALPATE_GEOMETRY(float)
PALPATE_GEOMETRY(double)

/* The pointers need the alignment of the scalar only. */
#define PALPATE_VECTOR_MEMORY(type, lanes, space)                                    \
  type##lanes PALPATE_OVERLOAD vload##lanes(size_t offset, const space type* p) {    \
    type##lanes v;                                                                   \
    for (size_t i = 0; i < lanes; ++i) v[i] = p[offset * lanes + i];                 \
    return v;                                                                        \
  }                                                                                  \
  void PALPATE_OVERLOAD vstore##lanes(type##lanes v, size_t offset, space type* p) { \
    for (size_t i = 0; i < lanes; ++i) p[offset * lanes + i] = v[i];                 \
  }
#define PALPATE_VECTOR_MEMORIES(type, space) \
  PALPATE_VECTOR_MEMORY(type, 2, space)      \
  PALPATE_VECTOR_MEMORY(type, 3, space)      \
  PALPATE_VECTOR_MEMORY(type, 4, space)      \
  PALPATE_VECTOR_MEMORY(type, 8, space)      \
  PALPATE_VECTOR_MEMORY(type, 16, space)
PALPATE_VECTOR_MEMORIES(float, global)
PALPATE_VECTOR_MEMORIES(float, local)
PALPATE_VECTOR_MEMORIES(float, private)
PALPATE_VECTOR_MEMORIES(uint, global)
PALPATE_VECTOR_MEMORIES(uint, local)
PALPATE_VECTOR_MEMORIES(uint, private)
PALPATE_VECTOR_MEMORIES(int, global)
PALPATE_VECTOR_MEMORIES(int, local)
PALPATE_VECTOR_MEMORIES(int, private)
PALPATE_VECTOR_MEMORIES(double, global)
PALPATE_VECTOR_MEMORIES(double, local)
PALPATE_VECTOR_MEMORIES(double, private)
PALPATE_VECTOR_MEMORIES(ulong, global)
PALPATE_VECTOR_MEMORIES(ulong, private)
