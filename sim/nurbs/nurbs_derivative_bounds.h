#pragma once

#include "sim/nurbs/nurbs_surface.h"

namespace palpate::sim {

/// How fast a surface and its first derivatives change, at most [m over parameters].
struct NurbsDerivativeBounds {
  double u = 0, v = 0;            ///< |S_u|, |S_v|
  double uu = 0, uv = 0, vv = 0;  ///< |S_uu| and so on
};

/// Of a Bezier patch (one span in u and in v), cut into `parts` each way. Never too small but for rounding; the more parts, the nearer.
///
/// With S = A / w the derivatives are polynomials over powers of w: S_u = P / w^2 with P = w A_u - w_u A, S_uu = (w P_u - 2 w_u P) / w^3,
/// and S_uv with v in the place of the second u. Such a ratio is at most the largest ratio of the Bernstein coefficients of both, in the
/// same degree. Products are worked out as polynomials, so that what cancels does: of an extruded arc S_uv is 0. Bounds of each term by
/// itself would not show that.
NurbsDerivativeBounds BoundNurbsDerivatives(const NurbsSurface& bezier, int parts);

}  // namespace palpate::sim
