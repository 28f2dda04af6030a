#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "gpu/shared/types.h"
#include "gpu/shared/view_types.h"

namespace palpate::gpu {

/// The view test in double on the host, triangle by triangle: what the kernels of ViewCertificate are compared with, and the peer of
/// benchmarks. docs/algorithms/view_certificate.md.

/// The corners of a triangle at the start and at the end of a step [m]; they move straight in between.
struct MovingTriangle {
  std::array<std::array<double, 3>, 3> start_m, end_m;
};

/// Class of a triangle (PALPATE_VIEW_...) as seen from a primitive over the whole step. Positive: for each of its points p at each time,
/// with c the point of the primitive nearest to p, (p - c) . n > 0 for the normal n of its winding. Negative likewise. A class other than
/// unsure is certain: rounding is bounded. Unsure is also what the bound by Bernstein coefficients does not decide.
uint32_t ClassifyView(const MovingTriangle& triangle, const ViewPrimitive& primitive);

/// How often closed surfaces cover the directions around a point: sum of signed solid angles over 4 pi, near a whole number unless the
/// point is on a surface. Positions [m]; triangles index them (w ignored).
double CoveringDegree(std::span<const Float4> positions, std::span<const UInt4> triangles, std::array<double, 3> point_m);

}  // namespace palpate::gpu
