/* OpenCL C built-in functions for kernels that run as host code: put before the text of the program. Precision is that of the host's libm,
   at least as good as OpenCL asks for. */
#define PALPATE_OVERLOAD __attribute__((overloadable))

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

#define PALPATE_ATOMICS(type, space)                                                                                                     \
  type PALPATE_OVERLOAD atomic_add(volatile space type* p, type v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }                \
  type PALPATE_OVERLOAD atomic_sub(volatile space type* p, type v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }                \
  type PALPATE_OVERLOAD atomic_inc(volatile space type* p) { return __atomic_fetch_add(p, (type)1, __ATOMIC_RELAXED); }                  \
  type PALPATE_OVERLOAD atomic_dec(volatile space type* p) { return __atomic_fetch_sub(p, (type)1, __ATOMIC_RELAXED); }                  \
  type PALPATE_OVERLOAD atomic_or(volatile space type* p, type v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }                  \
  type PALPATE_OVERLOAD atomic_and(volatile space type* p, type v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }                \
  type PALPATE_OVERLOAD atomic_xor(volatile space type* p, type v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }                \
  type PALPATE_OVERLOAD atomic_min(volatile space type* p, type v) { return __atomic_fetch_min(p, v, __ATOMIC_RELAXED); }                \
  type PALPATE_OVERLOAD atomic_max(volatile space type* p, type v) { return __atomic_fetch_max(p, v, __ATOMIC_RELAXED); }                \
  type PALPATE_OVERLOAD atomic_xchg(volatile space type* p, type v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }              \
  type PALPATE_OVERLOAD atomic_cmpxchg(volatile space type* p, type expected, type v) {                                                  \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                                             \
    return expected;                                                                                                                     \
  }
PALPATE_ATOMICS(int, global)
PALPATE_ATOMICS(uint, global)
PALPATE_ATOMICS(int, local)
PALPATE_ATOMICS(uint, local)

int PALPATE_OVERLOAD popcount(int x) { return __builtin_popcount((uint)x); }
uint PALPATE_OVERLOAD popcount(uint x) { return (uint)__builtin_popcount(x); }
ulong PALPATE_OVERLOAD popcount(ulong x) { return (ulong)__builtin_popcountl(x); }
uint PALPATE_OVERLOAD clz(uint x) { return x == 0 ? 32u : (uint)__builtin_clz(x); }

#define PALPATE_INTEGERS(type)                                                                     \
  type PALPATE_OVERLOAD min(type a, type b) { return b < a ? b : a; }                              \
  type PALPATE_OVERLOAD max(type a, type b) { return a < b ? b : a; }                              \
  type PALPATE_OVERLOAD clamp(type x, type low, type high) { return min(max(x, low), high); }
PALPATE_INTEGERS(int)
PALPATE_INTEGERS(uint)
PALPATE_INTEGERS(long)
PALPATE_INTEGERS(ulong)

#define PALPATE_UNARY(name, builtin)                                                                                     \
  float PALPATE_OVERLOAD name(float x) { return builtin##f(x); }                                                         \
  float2 PALPATE_OVERLOAD name(float2 v) { return (float2)(name(v.x), name(v.y)); }                                      \
  float3 PALPATE_OVERLOAD name(float3 v) { return (float3)(name(v.x), name(v.y), name(v.z)); }                           \
  float4 PALPATE_OVERLOAD name(float4 v) { return (float4)(name(v.x), name(v.y), name(v.z), name(v.w)); }                \
  float8 PALPATE_OVERLOAD name(float8 v) { return (float8)(name(v.lo), name(v.hi)); }                                    \
  float16 PALPATE_OVERLOAD name(float16 v) { return (float16)(name(v.lo), name(v.hi)); }                                 \
  double PALPATE_OVERLOAD name(double x) { return builtin(x); }
PALPATE_UNARY(sqrt, __builtin_sqrt)
PALPATE_UNARY(fabs, __builtin_fabs)
PALPATE_UNARY(floor, __builtin_floor)
PALPATE_UNARY(ceil, __builtin_ceil)
PALPATE_UNARY(sin, __builtin_sin)
PALPATE_UNARY(cos, __builtin_cos)
PALPATE_UNARY(exp, __builtin_exp)
PALPATE_UNARY(log, __builtin_log)
PALPATE_UNARY(cbrt, __builtin_cbrt)
float PALPATE_OVERLOAD rsqrt(float x) { return 1.0f / sqrt(x); }
double PALPATE_OVERLOAD rsqrt(double x) { return 1.0 / sqrt(x); }
float PALPATE_OVERLOAD pow(float x, float y) { return __builtin_powf(x, y); }
float PALPATE_OVERLOAD atan2(float y, float x) { return __builtin_atan2f(y, x); }
double PALPATE_OVERLOAD atan2(double y, double x) { return __builtin_atan2(y, x); }

#define PALPATE_BINARY(name, builtin)                                                                                    \
  float PALPATE_OVERLOAD name(float x, float y) { return builtin##f(x, y); }                                             \
  float2 PALPATE_OVERLOAD name(float2 a, float2 b) { return (float2)(name(a.x, b.x), name(a.y, b.y)); }                  \
  float3 PALPATE_OVERLOAD name(float3 a, float3 b) { return (float3)(name(a.x, b.x), name(a.y, b.y), name(a.z, b.z)); }  \
  float4 PALPATE_OVERLOAD name(float4 a, float4 b) {                                                                     \
    return (float4)(name(a.x, b.x), name(a.y, b.y), name(a.z, b.z), name(a.w, b.w));                                     \
  }                                                                                                                      \
  float8 PALPATE_OVERLOAD name(float8 a, float8 b) { return (float8)(name(a.lo, b.lo), name(a.hi, b.hi)); }              \
  float16 PALPATE_OVERLOAD name(float16 a, float16 b) { return (float16)(name(a.lo, b.lo), name(a.hi, b.hi)); }          \
  float8 PALPATE_OVERLOAD name(float8 a, float b) { return name(a, (float8)(b)); }                                       \
  float16 PALPATE_OVERLOAD name(float16 a, float b) { return name(a, (float16)(b)); }                                    \
  float4 PALPATE_OVERLOAD name(float4 a, float b) { return name(a, (float4)(b)); }                                       \
  double PALPATE_OVERLOAD name(double x, double y) { return builtin(x, y); }
PALPATE_BINARY(fmin, __builtin_fmin)
PALPATE_BINARY(fmax, __builtin_fmax)

float PALPATE_OVERLOAD min(float a, float b) { return b < a ? b : a; }
float PALPATE_OVERLOAD max(float a, float b) { return a < b ? b : a; }
float PALPATE_OVERLOAD clamp(float x, float low, float high) { return fmin(fmax(x, low), high); }
double PALPATE_OVERLOAD clamp(double x, double low, double high) { return fmin(fmax(x, low), high); }
float4 PALPATE_OVERLOAD clamp(float4 x, float4 low, float4 high) { return fmin(fmax(x, low), high); }
float4 PALPATE_OVERLOAD clamp(float4 x, float low, float high) { return fmin(fmax(x, low), high); }
float8 PALPATE_OVERLOAD clamp(float8 x, float8 low, float8 high) { return fmin(fmax(x, low), high); }
float8 PALPATE_OVERLOAD clamp(float8 x, float low, float high) { return fmin(fmax(x, low), high); }
float16 PALPATE_OVERLOAD clamp(float16 x, float16 low, float16 high) { return fmin(fmax(x, low), high); }
float16 PALPATE_OVERLOAD clamp(float16 x, float low, float high) { return fmin(fmax(x, low), high); }
float8 PALPATE_OVERLOAD mix(float8 a, float8 b, float8 t) { return a + (b - a) * t; }
float8 PALPATE_OVERLOAD mix(float8 a, float8 b, float t) { return a + (b - a) * t; }
float PALPATE_OVERLOAD step(float edge, float x) { return x < edge ? 0.0f : 1.0f; }
float4 PALPATE_OVERLOAD step(float4 a, float4 x) {
  return (float4)(step(a.x, x.x), step(a.y, x.y), step(a.z, x.z), step(a.w, x.w));
}
float8 PALPATE_OVERLOAD step(float8 a, float8 x) { return (float8)(step(a.lo, x.lo), step(a.hi, x.hi)); }
float16 PALPATE_OVERLOAD step(float16 a, float16 x) { return (float16)(step(a.lo, x.lo), step(a.hi, x.hi)); }
float PALPATE_OVERLOAD fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
double PALPATE_OVERLOAD fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
float PALPATE_OVERLOAD mad(float a, float b, float c) { return a * b + c; }
float PALPATE_OVERLOAD copysign(float x, float y) { return __builtin_copysignf(x, y); }
double PALPATE_OVERLOAD copysign(double x, double y) { return __builtin_copysign(x, y); }
float PALPATE_OVERLOAD sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }
int PALPATE_OVERLOAD isfinite(float x) { return __builtin_isfinite(x); }
int PALPATE_OVERLOAD isnan(float x) { return __builtin_isnan(x); }
int PALPATE_OVERLOAD isinf(float x) { return __builtin_isinf(x) != 0; }
int PALPATE_OVERLOAD isfinite(double x) { return __builtin_isfinite(x); }

#define PALPATE_GEOMETRY(scalar)                                                                                         \
  scalar PALPATE_OVERLOAD mix(scalar a, scalar b, scalar t) { return a + (b - a) * t; }                                  \
  scalar##4 PALPATE_OVERLOAD mix(scalar##4 a, scalar##4 b, scalar##4 t) { return a + (b - a) * t; }                      \
  scalar##4 PALPATE_OVERLOAD mix(scalar##4 a, scalar##4 b, scalar t) { return a + (b - a) * t; }                         \
  scalar##3 PALPATE_OVERLOAD mix(scalar##3 a, scalar##3 b, scalar t) { return a + (b - a) * t; }                         \
  scalar PALPATE_OVERLOAD dot(scalar a, scalar b) { return a * b; }                                                      \
  scalar PALPATE_OVERLOAD dot(scalar##2 a, scalar##2 b) { return a.x * b.x + a.y * b.y; }                                \
  scalar PALPATE_OVERLOAD dot(scalar##3 a, scalar##3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }                    \
  scalar PALPATE_OVERLOAD dot(scalar##4 a, scalar##4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }        \
  scalar##3 PALPATE_OVERLOAD cross(scalar##3 a, scalar##3 b) {                                                           \
    return (scalar##3)(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);                             \
  }                                                                                                                      \
  scalar##4 PALPATE_OVERLOAD cross(scalar##4 a, scalar##4 b) { return (scalar##4)(cross(a.xyz, b.xyz), (scalar)0); }     \
  scalar PALPATE_OVERLOAD length(scalar##2 v) { return sqrt(dot(v, v)); }                                                \
  scalar PALPATE_OVERLOAD length(scalar##3 v) { return sqrt(dot(v, v)); }                                                \
  scalar PALPATE_OVERLOAD length(scalar##4 v) { return sqrt(dot(v, v)); }                                                \
  scalar PALPATE_OVERLOAD distance(scalar##3 a, scalar##3 b) { return length(a - b); }                                   \
  scalar PALPATE_OVERLOAD distance(scalar##4 a, scalar##4 b) { return length(a - b); }                                   \
  scalar##3 PALPATE_OVERLOAD normalize(scalar##3 v) { return v / length(v); }                                            \
  scalar##4 PALPATE_OVERLOAD normalize(scalar##4 v) { return v / length(v); }
PALPATE_GEOMETRY(float)
PALPATE_GEOMETRY(double)

/* The pointers need the alignment of the scalar only. */
#define PALPATE_VECTOR_MEMORY(type, lanes, space)                                                                        \
  type##lanes PALPATE_OVERLOAD vload##lanes(size_t offset, const space type* p) {                                        \
    type##lanes v;                                                                                                       \
    for (size_t i = 0; i < lanes; ++i) v[i] = p[offset * lanes + i];                                                     \
    return v;                                                                                                            \
  }                                                                                                                      \
  void PALPATE_OVERLOAD vstore##lanes(type##lanes v, size_t offset, space type* p) {                                     \
    for (size_t i = 0; i < lanes; ++i) p[offset * lanes + i] = v[i];                                                     \
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
