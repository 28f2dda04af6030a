/* Every struct of gpu/shared with its members, read by the layout test on both sides. A new shared header is included here, and each of
   its structs gets STRUCT(type) and one FIELD(type, member) for each member in order. */
#include "gpu/shared/types.h"

#define PALPATE_SHARED_LAYOUT(STRUCT, FIELD) \
  STRUCT(Int)                                \
  STRUCT(UInt)                               \
  STRUCT(ULong)                              \
  STRUCT(Float2)                             \
  STRUCT(Float4)                             \
  STRUCT(Int2)                               \
  STRUCT(Int4)                               \
  STRUCT(UInt2)                              \
  STRUCT(UInt4)                              \
  STRUCT(LayoutProbe)                        \
  FIELD(LayoutProbe, a)                      \
  FIELD(LayoutProbe, b)                      \
  FIELD(LayoutProbe, c)                      \
  FIELD(LayoutProbe, d)                      \
  FIELD(LayoutProbe, e)

PALPATE_SHARED_BEGIN

/* Mixed members whose compiler-made padding shows whether alignments agree. */
typedef struct LayoutProbe {
  UInt a;
  Float4 b;
  UInt c;
  UInt2 d;
  ULong e;
} LayoutProbe;
PALPATE_SHARED_SIZE(LayoutProbe, 64);

PALPATE_SHARED_END
