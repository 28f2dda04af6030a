#include "bench/bench_nurbs_occt.h"

#include <BRepBuilderAPI_MakeFace.hxx>
#include <BRepExtrema_DistShapeShape.hxx>
#include <GeomAPI_IntSS.hxx>
#include <Geom_BSplineSurface.hxx>
#include <Standard_Failure.hxx>
#include <TColStd_Array1OfInteger.hxx>
#include <TColStd_Array1OfReal.hxx>
#include <TColStd_Array2OfReal.hxx>
#include <TColgp_Array2OfPnt.hxx>
#include <gp_Trsf.hxx>
#include <span>
#include <utility>
#include <vector>

namespace palpate::bench {
namespace {

using sim::NurbsDirection;

struct Knots {
  TColStd_Array1OfReal values;
  TColStd_Array1OfInteger multiplicities;
};

Knots ToKnots(std::span<const double> knots) {
  std::vector<std::pair<double, int>> distinct;
  for (const double t : knots) {
    if (distinct.empty() || distinct.back().first != t) distinct.emplace_back(t, 0);
    ++distinct.back().second;
  }
  Knots out{TColStd_Array1OfReal(1, static_cast<int>(distinct.size())), TColStd_Array1OfInteger(1, static_cast<int>(distinct.size()))};
  for (size_t i = 0; i < distinct.size(); ++i) {
    out.values.SetValue(static_cast<int>(i) + 1, distinct[i].first);
    out.multiplicities.SetValue(static_cast<int>(i) + 1, distinct[i].second);
  }
  return out;
}

gp_Trsf ToTrsf(const Eigen::Isometry3d& pose) {
  const auto m = pose.matrix();
  gp_Trsf out;
  out.SetValues(m(0, 0), m(0, 1), m(0, 2), m(0, 3), m(1, 0), m(1, 1), m(1, 2), m(1, 3), m(2, 0), m(2, 1), m(2, 2), m(2, 3));
  return out;
}

class Surface : public OcctSurface {
 public:
  explicit Surface(const sim::NurbsSurface& surface) {
    const auto rows = static_cast<int>(surface.count(NurbsDirection::kU));
    const auto columns = static_cast<int>(surface.count(NurbsDirection::kV));
    TColgp_Array2OfPnt poles(1, rows, 1, columns);
    TColStd_Array2OfReal weights(1, rows, 1, columns);
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) {
        const Eigen::Vector3d p = surface.control_m(static_cast<size_t>(i), static_cast<size_t>(j));
        poles.SetValue(i + 1, j + 1, gp_Pnt(p.x(), p.y(), p.z()));
        weights.SetValue(i + 1, j + 1, surface.control()[static_cast<size_t>(i * columns + j)].w());
      }
    }
    const Knots u = ToKnots(surface.knots(NurbsDirection::kU));
    const Knots v = ToKnots(surface.knots(NurbsDirection::kV));
    surface_ = new Geom_BSplineSurface(poles, weights, u.values, v.values, u.multiplicities, v.multiplicities,
                                       surface.degree(NurbsDirection::kU), surface.degree(NurbsDirection::kV));
  }

  bool Meets(const Eigen::Isometry3d& pose, const OcctSurface& other, const Eigen::Isometry3d& other_pose,
             double tolerance_m) const override {
    try {
      const GeomAPI_IntSS found(Placed(pose), static_cast<const Surface&>(other).Placed(other_pose), tolerance_m);
      return found.IsDone() && found.NbLines() > 0;
    } catch (const Standard_Failure&) {
      return false;
    }
  }

  double Distance(const Eigen::Isometry3d& pose, const OcctSurface& other, const Eigen::Isometry3d& other_pose,
                  double tolerance_m) const override {
    try {
      const BRepBuilderAPI_MakeFace a(Placed(pose), tolerance_m);
      const BRepBuilderAPI_MakeFace b(static_cast<const Surface&>(other).Placed(other_pose), tolerance_m);
      const BRepExtrema_DistShapeShape found(a.Face(), b.Face(), tolerance_m);
      return found.IsDone() ? found.Value() : -1;
    } catch (const Standard_Failure&) {
      return -1;
    }
  }

 private:
  Handle(Geom_Surface) Placed(const Eigen::Isometry3d& pose) const {
    return Handle(Geom_Surface)::DownCast(surface_->Transformed(ToTrsf(pose)));
  }

  Handle(Geom_BSplineSurface) surface_;
};

}  // namespace

std::unique_ptr<OcctSurface> OcctSurface::Create(const sim::NurbsSurface& surface) { return std::make_unique<Surface>(surface); }

}  // namespace palpate::bench
