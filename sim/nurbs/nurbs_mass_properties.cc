#include "sim/nurbs/nurbs_mass_properties.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/nurbs/gauss_quadrature.h"

namespace palpate::sim {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

// Area vector, area, volume, first moments, second moments xx yy zz xy yz zx.
using Sums = Eigen::Matrix<double, 14, 1>;

constexpr size_t kPoints = GaussQuadrature::kPoints;
constexpr int kMaxDepth = 6;
constexpr double kAgreement = 1e-11;
constexpr double kClosed = 1e-9;         // area vector of a closed shell, as a share of its area
constexpr double kClosedByEdges = 1e-4;  // of one with the gaps that its edges may have

struct Rectangle {
  double u, v, width, height;
};

// What is integrated at a place, by du dv; places relative to the origin.
Sums IntegrandAt(const NurbsSurface& surface, double u, double v, const Vector3d& origin_m) {
  const NurbsPoint at = surface.PointWithDerivatives(u, v);
  const Vector3d n = at.du.cross(at.dv);
  const Vector3d x = at.point_m - origin_m;
  const Vector3d squares = x.cwiseProduct(x);
  Sums values;
  values << n, n.norm(), x.dot(n) / 3, squares.cwiseProduct(n) / 2, squares.cwiseProduct(x).cwiseProduct(n) / 3,
      squares.x() * x.y() * n.x() / 2, squares.y() * x.z() * n.y() / 2, squares.z() * x.x() * n.z() / 2;
  return values;
}

// Of a part of a Bezier patch.
Sums Integrate(const NurbsSurface& patch, const Rectangle& part, const Vector3d& origin_m) {
  const GaussQuadrature& quadrature = GaussQuadrature::Get();
  Sums sums = Sums::Zero();
  for (size_t i = 0; i < kPoints; ++i) {
    for (size_t j = 0; j < kPoints; ++j) {
      sums += quadrature.weights[i] * quadrature.weights[j] * part.width * part.height *
              IntegrandAt(patch, part.u + part.width * quadrature.places[i], part.v + part.height * quadrature.places[j], origin_m);
    }
  }
  return sums;
}

// The sums of a part, by its quarters where these do not agree with it to `tolerance`.
Sums IntegrateAdaptively(const NurbsSurface& patch, const Rectangle& part, const Vector3d& origin_m, const Sums& whole,
                         const Sums& tolerance, int depth) {
  std::array<Rectangle, 4> quarters;
  std::array<Sums, 4> sums;
  Sums together = Sums::Zero();
  for (size_t q = 0; q < 4; ++q) {
    const double width = part.width / 2;
    const double height = part.height / 2;
    quarters[q] = {part.u + (q % 2 == 1 ? width : 0), part.v + (q >= 2 ? height : 0), width, height};
    sums[q] = Integrate(patch, quarters[q], origin_m);
    together += sums[q];
  }
  if (depth == kMaxDepth || ((together - whole).cwiseAbs().array() <= tolerance.array()).all()) return together;
  Sums out = Sums::Zero();
  for (size_t q = 0; q < 4; ++q) out += IntegrateAdaptively(patch, quarters[q], origin_m, sums[q], tolerance, depth + 1);
  return out;
}

Sums TolerancesFor(double area_m2, double size_m) {
  // What the integrals are of, at most: the area times a power of the size.
  Sums tolerance;
  tolerance.head<4>().setConstant(area_m2);
  tolerance.segment<1>(4).setConstant(area_m2 * size_m);
  tolerance.segment<3>(5).setConstant(area_m2 * size_m * size_m);
  tolerance.tail<6>().setConstant(area_m2 * size_m * size_m * size_m);
  return kAgreement * tolerance;
}

// Of all of a surface.
Sums IntegrateSurface(const NurbsSurface& surface, const Vector3d& origin_m, double size_m) {
  const std::vector<NurbsSurface> parts = surface.BezierPatches();
  const auto domain_of = [](const NurbsSurface& part) {
    const auto [u0, u1] = part.domain(NurbsDirection::kU);
    const auto [v0, v1] = part.domain(NurbsDirection::kV);
    return Rectangle{u0, v0, u1 - u0, v1 - v0};
  };
  std::vector<Sums> wholes;
  double area_m2 = 0;
  for (const NurbsSurface& part : parts) {
    wholes.push_back(Integrate(part, domain_of(part), origin_m));
    area_m2 += wholes.back()[3];
  }
  const Sums tolerance = TolerancesFor(area_m2, size_m) / static_cast<double>(parts.size());
  Sums sums = Sums::Zero();
  for (size_t i = 0; i < parts.size(); ++i) sums += IntegrateAdaptively(parts[i], domain_of(parts[i]), origin_m, wholes[i], tolerance, 0);
  return sums;
}

// Along u from the first one of the domain, in two halves of each span.
Sums IntegrateAlongU(const NurbsSurface& surface, double u, double v, const Vector3d& origin_m) {
  const GaussQuadrature& quadrature = GaussQuadrature::Get();
  const std::span<const double> knots = surface.knots(NurbsDirection::kU);
  Sums sums = Sums::Zero();
  for (size_t k = 0; k + 1 < knots.size() && knots[k] < u; ++k) {
    const double last = std::min(knots[k + 1], u);
    const double half = 0.5 * (last - knots[k]);
    if (!(half > 0)) continue;
    for (const double first : {knots[k], knots[k] + half}) {
      for (size_t i = 0; i < kPoints; ++i)
        sums += quadrature.weights[i] * half * IntegrandAt(surface, first + half * quadrature.places[i], v, origin_m);
    }
  }
  return sums;
}

// Of a part of a trimming curve: integrals along u by dv.
Sums IntegrateAlong(const NurbsPatch& patch, const NurbsCurve<2>& curve, double first, double last, const Vector3d& origin_m) {
  const GaussQuadrature& quadrature = GaussQuadrature::Get();
  const auto [v0, v1] = patch.surface.domain(NurbsDirection::kV);
  Sums sums = Sums::Zero();
  for (size_t i = 0; i < kPoints; ++i) {
    const auto at = curve.AtWithDerivatives(first + (last - first) * quadrature.places[i]);
    const double by = quadrature.weights[i] * (last - first) * at.dt.y();
    if (by != 0) sums += by * IntegrateAlongU(patch.surface, at.point.x(), std::clamp(at.point.y(), v0, v1), origin_m);
  }
  return sums;
}

Sums IntegrateAlongAdaptively(const NurbsPatch& patch, const NurbsCurve<2>& curve, double first, double last, const Vector3d& origin_m,
                              const Sums& whole, const Sums& tolerance, int depth) {
  const double middle = 0.5 * first + 0.5 * last;
  const Sums before = IntegrateAlong(patch, curve, first, middle, origin_m);
  const Sums after = IntegrateAlong(patch, curve, middle, last, origin_m);
  const Sums together = before + after;
  if (depth == kMaxDepth || ((together - whole).cwiseAbs().array() <= tolerance.array()).all()) return together;
  return IntegrateAlongAdaptively(patch, curve, first, middle, origin_m, before, tolerance, depth + 1) +
         IntegrateAlongAdaptively(patch, curve, middle, last, origin_m, after, tolerance, depth + 1);
}

Sums IntegratePatch(const NurbsPatch& patch, const Vector3d& origin_m, double size_m) {
  if (patch.loops.empty()) return IntegrateSurface(patch.surface, origin_m, size_m);
  struct Piece {
    const NurbsCurve<2>* curve;
    double first, last, sign;
    Sums whole;
  };
  std::vector<Piece> pieces;
  double area_m2 = 0;
  for (const std::vector<NurbsTrim>& loop : patch.loops) {
    for (const NurbsTrim& trim : loop) {
      // Between knots of the curve and of the surface all is smooth.
      std::vector<double> breaks = CrossingsOfKnots(trim.curve, patch.surface);
      breaks.insert(breaks.end(), trim.curve.knots().begin(), trim.curve.knots().end());
      std::sort(breaks.begin(), breaks.end());
      for (size_t i = 0; i + 1 < breaks.size(); ++i) {
        if (!(breaks[i] < breaks[i + 1])) continue;
        pieces.push_back({&trim.curve, breaks[i], breaks[i + 1], trim.is_reversed ? -1.0 : 1.0, {}});
        pieces.back().whole = IntegrateAlong(patch, trim.curve, breaks[i], breaks[i + 1], origin_m);
        area_m2 += std::abs(pieces.back().whole[3]);
      }
    }
  }
  const Sums tolerance = TolerancesFor(area_m2, size_m) / static_cast<double>(pieces.size());
  Sums sums = Sums::Zero();
  for (const Piece& piece : pieces) {
    sums += piece.sign * IntegrateAlongAdaptively(patch, *piece.curve, piece.first, piece.last, origin_m, piece.whole, tolerance, 0);
  }
  return sums;
}

absl::StatusOr<NurbsMassProperties> PropertiesFrom(const Sums& sums, const Vector3d& origin_m, double closed, double density_kg_per_m3) {
  NurbsMassProperties out;
  out.area_m2 = sums[3];
  out.volume_m3 = sums[4];
  const double open = sums.head<3>().norm() / out.area_m2;
  if (!(open <= closed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("mass properties: the shell is open, its area vectors add up to ", open, " of its area"));
  }
  if (!(out.volume_m3 > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("mass properties: the volume is ", out.volume_m3, " m^3, normals must point outwards"));
  }
  const Vector3d center = sums.segment<3>(5) / out.volume_m3;
  Matrix3d second;
  second << sums[8], sums[11], sums[13], sums[11], sums[9], sums[12], sums[13], sums[12], sums[10];
  const Matrix3d central = second - out.volume_m3 * center * center.transpose();
  out.mass.mass_kg = density_kg_per_m3 * out.volume_m3;
  out.mass.center_m = origin_m + center;
  out.mass.inertia_kg_m2 = density_kg_per_m3 * (central.trace() * Matrix3d::Identity() - central);
  return out;
}

}  // namespace

absl::StatusOr<NurbsMassProperties> ComputeNurbsMassProperties(std::span<const NurbsSurface> patches, double density_kg_per_m3) {
  if (patches.empty()) return absl::InvalidArgumentError("mass properties: no patches");
  // About a middle of the control points: moments of a small body far from the origin would cancel.
  Eigen::AlignedBox3d box;
  for (const NurbsSurface& patch : patches) {
    for (const Eigen::Vector4d& p : patch.control()) box.extend(Vector3d(p.hnormalized()));
  }
  Sums sums = Sums::Zero();
  for (const NurbsSurface& patch : patches) sums += IntegrateSurface(patch, box.center(), box.diagonal().norm());
  return PropertiesFrom(sums, box.center(), kClosed, density_kg_per_m3);
}

absl::StatusOr<NurbsMassProperties> ComputeNurbsObjectMassProperties(const NurbsObject& object, double density_kg_per_m3,
                                                                     double join_tolerance_m) {
  PALPATE_RETURN_IF_ERROR(object.CheckClosed(join_tolerance_m));
  const Eigen::AlignedBox3d box = object.ControlBox_m();
  Sums sums = Sums::Zero();
  for (const NurbsPatch& patch : object.patches()) sums += IntegratePatch(patch, box.center(), box.diagonal().norm());
  return PropertiesFrom(sums, box.center(), kClosedByEdges, density_kg_per_m3);
}

double NurbsAreaOf(const NurbsPatch& patch) {
  Eigen::AlignedBox3d box;
  for (const Eigen::Vector4d& p : patch.surface.control()) box.extend(Vector3d(p.hnormalized()));
  return IntegratePatch(patch, box.center(), box.diagonal().norm())[3];
}

}  // namespace palpate::sim
