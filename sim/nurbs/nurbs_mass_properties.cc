#include "sim/nurbs/nurbs_mass_properties.h"

#include <array>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

// Area vector, area, volume, first moments, second moments xx yy zz xy yz zx.
using Sums = Eigen::Matrix<double, 14, 1>;

constexpr int kPoints = 12;  // of the quadrature, each way
constexpr int kMaxDepth = 6;
constexpr double kAgreement = 1e-11;
constexpr double kClosed = 1e-9;  // area vector of a closed shell, as a share of its area

// Gauss-Legendre on [0, 1]: roots of the Legendre polynomial by Newton's method.
struct Quadrature {
  std::array<double, kPoints> places{};
  std::array<double, kPoints> weights{};

  Quadrature() {
    for (int i = 0; i < kPoints; ++i) {
      double x = std::cos(std::numbers::pi * (i + 0.75) / (kPoints + 0.5));
      double slope = 1;
      for (int step = 0; step < 8; ++step) {
        double before = 1;
        double value = x;
        for (int n = 2; n <= kPoints; ++n) {
          const double next = ((2 * n - 1) * x * value - (n - 1) * before) / n;
          before = value;
          value = next;
        }
        slope = kPoints * (before - x * value) / (1 - x * x);
        x -= value / slope;
      }
      places[static_cast<size_t>(i)] = 0.5 + 0.5 * x;
      weights[static_cast<size_t>(i)] = 1 / ((1 - x * x) * slope * slope);
    }
  }
};

struct Rectangle {
  double u, v, width, height;
};

// Of a part of a Bezier patch, places relative to the origin.
Sums Integrate(const NurbsSurface& patch, const Rectangle& part, const Vector3d& origin_m) {
  static const Quadrature quadrature;
  Sums sums = Sums::Zero();
  for (size_t i = 0; i < kPoints; ++i) {
    for (size_t j = 0; j < kPoints; ++j) {
      const NurbsPoint at =
          patch.PointWithDerivatives(part.u + part.width * quadrature.places[i], part.v + part.height * quadrature.places[j]);
      const Vector3d n = quadrature.weights[i] * quadrature.weights[j] * part.width * part.height * at.du.cross(at.dv);
      const Vector3d x = at.point_m - origin_m;
      const Vector3d squares = x.cwiseProduct(x);
      Sums values;
      values << n, n.norm(), x.dot(n) / 3, squares.cwiseProduct(n) / 2, squares.cwiseProduct(x).cwiseProduct(n) / 3,
          squares.x() * x.y() * n.x() / 2, squares.y() * x.z() * n.y() / 2, squares.z() * x.x() * n.z() / 2;
      sums += values;
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

}  // namespace

absl::StatusOr<NurbsMassProperties> ComputeNurbsMassProperties(std::span<const NurbsSurface> patches, double density_kg_per_m3) {
  if (patches.empty()) return absl::InvalidArgumentError("mass properties: no patches");
  // About a middle of the control points: moments of a small body far from the origin would cancel.
  Eigen::AlignedBox3d box;
  std::vector<NurbsSurface> parts;
  for (const NurbsSurface& patch : patches) {
    for (const Eigen::Vector4d& p : patch.control()) box.extend(Vector3d(p.hnormalized()));
    for (NurbsSurface& part : patch.BezierPatches()) parts.push_back(std::move(part));
  }
  const Vector3d origin_m = box.center();
  const double size_m = box.diagonal().norm();
  std::vector<Sums> wholes;
  double area_m2 = 0;
  const auto domain_of = [](const NurbsSurface& part) {
    const auto [u0, u1] = part.domain(NurbsDirection::kU);
    const auto [v0, v1] = part.domain(NurbsDirection::kV);
    return Rectangle{u0, v0, u1 - u0, v1 - v0};
  };
  for (const NurbsSurface& part : parts) {
    wholes.push_back(Integrate(part, domain_of(part), origin_m));
    area_m2 += wholes.back()[3];
  }
  // What the integrals are of, at most: the area times a power of the size.
  Sums tolerance;
  tolerance.head<4>().setConstant(area_m2);
  tolerance.segment<1>(4).setConstant(area_m2 * size_m);
  tolerance.segment<3>(5).setConstant(area_m2 * size_m * size_m);
  tolerance.tail<6>().setConstant(area_m2 * size_m * size_m * size_m);
  tolerance *= kAgreement / static_cast<double>(parts.size());
  Sums sums = Sums::Zero();
  for (size_t i = 0; i < parts.size(); ++i) sums += IntegrateAdaptively(parts[i], domain_of(parts[i]), origin_m, wholes[i], tolerance, 0);

  NurbsMassProperties out;
  out.area_m2 = sums[3];
  out.volume_m3 = sums[4];
  const double open = sums.head<3>().norm() / out.area_m2;
  if (!(open <= kClosed)) {
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

}  // namespace palpate::sim
