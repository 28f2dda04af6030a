/* Structs of the view certificate. */
#ifndef PALPATE_GPU_SHARED_VIEW_TYPES_H_
#define PALPATE_GPU_SHARED_VIEW_TYPES_H_

#include "gpu/shared/types.h"

PALPATE_SHARED_BEGIN

/* How a triangle is seen from a primitive over a whole step: with its front away from it, with its front to it, or not certainly either. */
#define PALPATE_VIEW_UNSURE 0u
#define PALPATE_VIEW_POSITIVE 1u
#define PALPATE_VIEW_NEGATIVE 2u
#define PALPATE_VIEW_CLASS_MASK 3u
/* Whether the ray meets the triangle at the start of the step; neither bit: it certainly does not. Holds for positive triangles only. */
#define PALPATE_VIEW_RAY_HIT 4u
#define PALPATE_VIEW_RAY_UNSURE 8u

/* The point or the segment that a component is seen from. It only translates within a step. */
typedef struct ViewPrimitive {
  Float4 start; /* xyz the point, or one end of the segment, at the start of the step [m]; w: with a margin, the sine of the angle that a
                   corner must keep from the plane of the point and the opposite edge to be positive; else 0, as for all segments */
  Float4 end;   /* xyz likewise at the end of the step [m]; w: with a margin, what a triangle must keep from the point [m] */
  Float4 axis;  /* xyz from that end to the other one [m]; 0: a point. w: 1 for a segment, 0 for a point */
  Float4 ray;   /* xyz direction from `start`, any length; not towards the other end: ray . axis <= 0 */
} ViewPrimitive;

/* What the kernels count of one component, or of the caps of one hole. */
typedef struct ViewCounts {
  UInt unsure;
  UInt negative;
  UInt ray_hits;
  UInt ray_unsure;
} ViewCounts;

/* Sums over a chunk of triangles, each at the start and at the end of the step: see view_moments. */
typedef struct ViewMoments {
  Float4 pull; /* xyz weighted sum of unit normals times what their height lacks [m]; w: triangles that lack some, twice if at both ends */
  Float4 diagonal; /* xyz weighted sum of squares of these unit normals; w: sum of |height| [m] */
  Float4 mixed;    /* xyz weighted sum of their products xy, xz, yz; w: number of triangles */
  Float4 centre;   /* xyz sum of the first corners at the start, relative to the primitive [m]; w: sum of their distances [m] */
  Float4 move;     /* xyz sum of their displacements over the step [m] */
} ViewMoments;

PALPATE_SHARED_SIZE(ViewPrimitive, 64);
PALPATE_SHARED_SIZE(ViewCounts, 16);
PALPATE_SHARED_SIZE(ViewMoments, 80);

PALPATE_SHARED_END

#endif /* PALPATE_GPU_SHARED_VIEW_TYPES_H_ */
