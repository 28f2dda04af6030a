#include "sim/cad/cad_convert.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <BRepBuilderAPI_MakeEdge.hxx>
#include <BRepBuilderAPI_MakeFace.hxx>
#include <BRepBuilderAPI_MakeSolid.hxx>
#include <BRepBuilderAPI_MakeWire.hxx>
#include <BRepBuilderAPI_NurbsConvert.hxx>
#include <BRepBuilderAPI_Sewing.hxx>
#include <BRepLib.hxx>
#include <BRepTools_WireExplorer.hxx>
#include <BRep_Builder.hxx>
#include <BRep_Tool.hxx>
#include <Geom2dConvert.hxx>
#include <Geom2d_BSplineCurve.hxx>
#include <Geom2d_TrimmedCurve.hxx>
#include <GeomConvert.hxx>
#include <Geom_BSplineSurface.hxx>
#include <Precision.hxx>
#include <ShapeFix_Face.hxx>
#include <TColStd_Array1OfInteger.hxx>
#include <TColStd_Array1OfReal.hxx>
#include <TColStd_Array2OfReal.hxx>
#include <TColgp_Array1OfPnt2d.hxx>
#include <TColgp_Array2OfPnt.hxx>
#include <TopExp.hxx>
#include <TopExp_Explorer.hxx>
#include <TopTools_DataMapOfShapeInteger.hxx>
#include <TopTools_IndexedDataMapOfShapeListOfShape.hxx>
#include <TopTools_IndexedMapOfShape.hxx>
#include <TopTools_ListOfShape.hxx>
#include <TopoDS.hxx>
#include <TopoDS_Compound.hxx>
#include <TopoDS_Edge.hxx>
#include <TopoDS_Face.hxx>
#include <TopoDS_Shell.hxx>
#include <TopoDS_Wire.hxx>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

using Eigen::Vector2d;
using Eigen::Vector3d;

constexpr double kMetresPerUnit = 0.001;
constexpr double kSewing = 1e-3;     // mm: what is nearer is one edge
constexpr double kHealedGap = 1e-2;  // mm between curves of a loop that are made to meet

std::vector<double> KnotsOf(int count, const auto& knot, const auto& multiplicity) {
  std::vector<double> out;
  for (int k = 1; k <= count; ++k) out.insert(out.end(), static_cast<size_t>(multiplicity(k)), knot(k));
  return out;
}

absl::StatusOr<NurbsDescription> SurfaceOf(const TopoDS_Face& face) {
  const Handle(Geom_Surface) surface = BRep_Tool::Surface(face);
  if (surface.IsNull()) return absl::InvalidArgumentError("has no surface");
  Handle(Geom_BSplineSurface) spline = Handle(Geom_BSplineSurface)::DownCast(surface->Copy());
  if (spline.IsNull()) spline = GeomConvert::SurfaceToBSplineSurface(surface);
  if (spline.IsNull()) return absl::InvalidArgumentError("has a surface that is no NURBS");
  // Not periodic is not clamped yet: a segment is.
  double u0 = 0;
  double u1 = 0;
  double v0 = 0;
  double v1 = 0;
  spline->Bounds(u0, u1, v0, v1);
  if (spline->IsUPeriodic()) spline->SetUNotPeriodic();
  if (spline->IsVPeriodic()) spline->SetVNotPeriodic();
  spline->Segment(u0, u1, v0, v1);
  NurbsDescription out;
  out.degree_u = spline->UDegree();
  out.degree_v = spline->VDegree();
  out.knots_u = KnotsOf(
      spline->NbUKnots(), [&](int k) { return spline->UKnot(k); }, [&](int k) { return spline->UMultiplicity(k); });
  out.knots_v = KnotsOf(
      spline->NbVKnots(), [&](int k) { return spline->VKnot(k); }, [&](int k) { return spline->VMultiplicity(k); });
  const bool is_rational = spline->IsURational() || spline->IsVRational();
  for (int i = 1; i <= spline->NbUPoles(); ++i) {
    for (int j = 1; j <= spline->NbVPoles(); ++j) {
      const gp_Pnt& p = spline->Pole(i, j);
      out.control_m.emplace_back(kMetresPerUnit * p.X(), kMetresPerUnit * p.Y(), kMetresPerUnit * p.Z());
      if (is_rational) out.weights.push_back(spline->Weight(i, j));
    }
  }
  return out;
}

absl::StatusOr<NurbsTrimDescription> TrimOf(const TopoDS_Edge& edge, const TopoDS_Face& face) {
  double first = 0;
  double last = 0;
  const Handle(Geom2d_Curve) curve = BRep_Tool::CurveOnSurface(edge, face, first, last);
  if (curve.IsNull()) return absl::InvalidArgumentError("an edge has no curve on the surface");
  if (!(first < last) || Precision::IsInfinite(first) || Precision::IsInfinite(last)) {
    return absl::InvalidArgumentError("an edge has no finite range");
  }
  const Handle(Geom2d_BSplineCurve) spline = Geom2dConvert::CurveToBSplineCurve(new Geom2d_TrimmedCurve(curve, first, last));
  if (spline.IsNull()) return absl::InvalidArgumentError("an edge has a curve that is no NURBS");
  if (spline->IsPeriodic()) {
    spline->SetNotPeriodic();
    spline->Segment(first, last);
  }
  NurbsTrimDescription out;
  out.curve.degree = spline->Degree();
  out.curve.knots = KnotsOf(
      spline->NbKnots(), [&](int k) { return spline->Knot(k); }, [&](int k) { return spline->Multiplicity(k); });
  for (int i = 1; i <= spline->NbPoles(); ++i) {
    out.curve.control.emplace_back(spline->Pole(i).X(), spline->Pole(i).Y());
    if (spline->IsRational()) out.curve.weights.push_back(spline->Weight(i));
  }
  out.is_reversed = edge.Orientation() == TopAbs_REVERSED;
  return out;
}

Vector2d& StartOf(NurbsTrimDescription& trim) { return trim.is_reversed ? trim.curve.control.back() : trim.curve.control.front(); }
Vector2d& EndOf(NurbsTrimDescription& trim) { return trim.is_reversed ? trim.curve.control.front() : trim.curve.control.back(); }

// Curves of a loop meet to the tolerance of the file: they are made to meet. A gap that is more than that is left for the check to find.
void CloseGaps(const NurbsSurface& surface, std::vector<NurbsTrimDescription>& loop) {
  for (size_t i = 0; i < loop.size(); ++i) {
    Vector2d& end = EndOf(loop[i]);
    Vector2d& start = StartOf(loop[(i + 1) % loop.size()]);
    const double gap_m = (surface.Point(end.x(), end.y()) - surface.Point(start.x(), start.y())).norm();
    const Vector2d widths(surface.domain(NurbsDirection::kU).second - surface.domain(NurbsDirection::kU).first,
                          surface.domain(NurbsDirection::kV).second - surface.domain(NurbsDirection::kV).first);
    const double share = (end - start).cwiseQuotient(widths).cwiseAbs().maxCoeff();
    if (gap_m > kHealedGap * kMetresPerUnit || share > 0.01) continue;
    end = start = 0.5 * (end + start);
  }
}

// Control points a little beyond the domain, as rounding leaves them, are put on its sides.
void BringInside(const NurbsSurface& surface, NurbsTrimDescription& trim) {
  for (const NurbsDirection direction : {NurbsDirection::kU, NurbsDirection::kV}) {
    const auto [low, high] = surface.domain(direction);
    const double near = 1e-4 * (high - low);
    for (Vector2d& p : trim.curve.control) {
      double& value = p[direction == NurbsDirection::kU ? 0 : 1];
      if (value < low && value > low - near) value = low;
      if (value > high && value < high + near) value = high;
    }
  }
}

// As NurbsSurface::Reversed, with the loops.
void Reverse(NurbsPatchDescription& patch) {
  NurbsDescription& surface = patch.surface;
  const double sum = surface.knots_u.front() + surface.knots_u.back();
  const double low = surface.knots_u.front();
  const double high = surface.knots_u.back();
  const auto mirrored = [&](double u) { return u == low ? high : u == high ? low : sum - u; };
  std::reverse(surface.knots_u.begin(), surface.knots_u.end());
  for (double& u : surface.knots_u) u = std::clamp(mirrored(u), low, high);
  const size_t columns = surface.knots_v.size() - static_cast<size_t>(surface.degree_v) - 1;
  const auto turn_rows = [&](auto& values) {
    for (size_t i = 0, j = values.size() / columns; i + 1 < j; ++i) {
      --j;
      std::swap_ranges(values.begin() + static_cast<std::ptrdiff_t>(i * columns),
                       values.begin() + static_cast<std::ptrdiff_t>((i + 1) * columns),
                       values.begin() + static_cast<std::ptrdiff_t>(j * columns));
    }
  };
  turn_rows(surface.control_m);
  if (!surface.weights.empty()) turn_rows(surface.weights);
  for (auto& loop : patch.loops) {
    std::reverse(loop.begin(), loop.end());
    for (NurbsTrimDescription& trim : loop) {
      trim.is_reversed = !trim.is_reversed;
      for (Vector2d& p : trim.curve.control) p.x() = mirrored(p.x());
    }
  }
}

size_t CountEdges(const TopoDS_Shape& shape) {
  size_t count = 0;
  for (TopExp_Explorer at(shape, TopAbs_EDGE); at.More(); at.Next()) ++count;
  return count;
}

absl::StatusOr<NurbsPatchDescription> PatchOf(const TopoDS_Face& oriented, const TopTools_IndexedMapOfShape& edges,
                                              const std::vector<int>& uses) {
  // As if its normal were that of the surface: then what is left lies to the left of its wires.
  const TopoDS_Face face = TopoDS::Face(oriented.Oriented(TopAbs_FORWARD));
  NurbsPatchDescription patch;
  PALPATE_ASSIGN_OR_RETURN(patch.surface, SurfaceOf(face));
  PALPATE_ASSIGN_OR_RETURN(const NurbsSurface surface, NurbsSurface::Create(patch.surface));
  for (TopExp_Explorer wires(face, TopAbs_WIRE); wires.More(); wires.Next()) {
    const TopoDS_Wire wire = TopoDS::Wire(wires.Current());
    std::vector<NurbsTrimDescription> loop;
    for (BRepTools_WireExplorer at(wire, face); at.More(); at.Next()) {
      const TopoDS_Edge& edge = at.Current();
      PALPATE_ASSIGN_OR_RETURN(NurbsTrimDescription trim, TrimOf(edge, face));
      const int number = edges.FindIndex(edge);
      if (!BRep_Tool::Degenerated(edge) && number > 0 && uses[static_cast<size_t>(number)] == 2) trim.edge = static_cast<uint32_t>(number);
      BringInside(surface, trim);
      loop.push_back(std::move(trim));
    }
    if (loop.empty()) continue;
    if (loop.size() != CountEdges(wire)) return absl::InvalidArgumentError("has a wire whose edges do not follow each other");
    CloseGaps(surface, loop);
    patch.loops.push_back(std::move(loop));
  }
  if (oriented.Orientation() == TopAbs_REVERSED) Reverse(patch);
  return patch;
}

std::string FacePath(size_t number) { return absl::StrCat("face ", number); }

// Distinct knots and how often each is there, as OpenCASCADE wants them.
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

Handle(Geom_BSplineSurface) ToSurface(const NurbsSurface& surface) {
  const auto rows = static_cast<int>(surface.count(NurbsDirection::kU));
  const auto columns = static_cast<int>(surface.count(NurbsDirection::kV));
  TColgp_Array2OfPnt poles(1, rows, 1, columns);
  TColStd_Array2OfReal weights(1, rows, 1, columns);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      const Vector3d p = surface.control_m(static_cast<size_t>(i), static_cast<size_t>(j)) / kMetresPerUnit;
      poles.SetValue(i + 1, j + 1, gp_Pnt(p.x(), p.y(), p.z()));
      weights.SetValue(i + 1, j + 1, surface.control()[static_cast<size_t>(i * columns + j)].w());
    }
  }
  const Knots u = ToKnots(surface.knots(NurbsDirection::kU));
  const Knots v = ToKnots(surface.knots(NurbsDirection::kV));
  return new Geom_BSplineSurface(poles, weights, u.values, v.values, u.multiplicities, v.multiplicities, surface.degree(NurbsDirection::kU),
                                 surface.degree(NurbsDirection::kV));
}

Handle(Geom2d_BSplineCurve) ToCurve(const NurbsCurve<2>& curve) {
  TColgp_Array1OfPnt2d poles(1, static_cast<int>(curve.count()));
  TColStd_Array1OfReal weights(1, static_cast<int>(curve.count()));
  for (size_t i = 0; i < curve.count(); ++i) {
    const Vector2d p = curve.control(i);
    poles.SetValue(static_cast<int>(i) + 1, gp_Pnt2d(p.x(), p.y()));
    weights.SetValue(static_cast<int>(i) + 1, curve.weighted_control()[i][2]);
  }
  const Knots knots = ToKnots(curve.knots());
  return new Geom2d_BSplineCurve(poles, weights, knots.values, knots.multiplicities, curve.degree());
}

bool IsPoint(const NurbsSurface& surface, const NurbsTrim& trim) {
  const auto [first, last] = trim.curve.domain();
  const Vector2d start = trim.curve.At(first);
  const Vector3d from = surface.Point(start.x(), start.y());
  for (const double s : {0.25, 0.5, 0.75, 1.0}) {
    const Vector2d uv = trim.curve.At((1 - s) * first + s * last);
    if ((surface.Point(uv.x(), uv.y()) - from).norm() > 1e-7 * kMetresPerUnit) return false;
  }
  return true;
}

absl::StatusOr<TopoDS_Face> ToFace(const NurbsPatch& patch) {
  const Handle(Geom_BSplineSurface) surface = ToSurface(patch.surface);
  if (patch.loops.empty()) {
    BRepBuilderAPI_MakeFace make(surface, Precision::Confusion());
    if (!make.IsDone()) return absl::InvalidArgumentError("OpenCASCADE makes no face of it");
    return make.Face();
  }
  TopoDS_Face face;
  BRep_Builder builder;
  builder.MakeFace(face, surface, Precision::Confusion());
  for (const auto& loop : patch.loops) {
    BRepBuilderAPI_MakeWire wire;
    for (const NurbsTrim& trim : loop) {
      if (IsPoint(patch.surface, trim)) continue;  // ShapeFix_Face puts edges at poles
      BRepBuilderAPI_MakeEdge make(ToCurve(trim.curve), surface);
      if (!make.IsDone()) return absl::InvalidArgumentError("OpenCASCADE makes no edge of a trimming curve");
      TopoDS_Edge edge = make.Edge();
      if (!BRepLib::BuildCurve3d(edge, 1e-6)) return absl::InvalidArgumentError("OpenCASCADE finds no curve in space for a trim");
      if (trim.is_reversed) edge.Reverse();
      wire.Add(edge);
      if (!wire.IsDone()) return absl::InvalidArgumentError("OpenCASCADE does not join the curves of a loop");
    }
    builder.Add(face, wire.Wire());
  }
  ShapeFix_Face fix(face);
  fix.FixOrientationMode() = 0;
  fix.FixAddNaturalBoundMode() = 0;
  fix.Perform();
  return fix.Face();
}

/// Each closed shell of what was sewn bounds a solid; what else there is stays as it is.
TopoDS_Shape SolidsOf(const TopoDS_Shape& sewn) {
  TopoDS_Compound whole;
  BRep_Builder builder;
  builder.MakeCompound(whole);
  size_t parts = 0;
  TopoDS_Shape only;
  const auto add = [&](const TopoDS_Shape& part) {
    builder.Add(whole, part);
    only = part;
    ++parts;
  };
  for (TopExp_Explorer at(sewn, TopAbs_SHELL); at.More(); at.Next()) {
    const TopoDS_Shell shell = TopoDS::Shell(at.Current());
    if (!BRep_Tool::IsClosed(shell)) {
      add(shell);
      continue;
    }
    BRepBuilderAPI_MakeSolid make(shell);
    TopoDS_Solid solid = make.Solid();
    BRepLib::OrientClosedSolid(solid);
    add(solid);
  }
  for (TopExp_Explorer at(sewn, TopAbs_FACE, TopAbs_SHELL); at.More(); at.Next()) add(at.Current());
  return parts == 1 ? only : TopoDS_Shape(whole);
}

/// Whether an edge has one face alone, as between surfaces that a file lists without saying what belongs together.
bool HasFreeEdges(const TopoDS_Shape& shape) {
  TopTools_IndexedDataMapOfShapeListOfShape faces_of_edges;
  TopExp::MapShapesAndUniqueAncestors(shape, TopAbs_EDGE, TopAbs_FACE, faces_of_edges);
  for (int i = 1; i <= faces_of_edges.Extent(); ++i) {
    const TopoDS_Edge& edge = TopoDS::Edge(faces_of_edges.FindKey(i));
    const TopTools_ListOfShape& faces = faces_of_edges(i);
    if (faces.Extent() == 1 && !BRep_Tool::Degenerated(edge) && !BRep_Tool::IsClosed(edge, TopoDS::Face(faces.First()))) return true;
  }
  return false;
}

/// Joins what has free edges; `names` of faces follow.
TopoDS_Shape Sewn(const TopoDS_Shape& shape, std::vector<std::string>* names) {
  BRepBuilderAPI_Sewing sewing(kSewing);
  sewing.Add(shape);
  sewing.Perform();
  if (sewing.SewedShape().IsNull()) return shape;
  TopTools_DataMapOfShapeInteger numbers;
  int number = 0;
  for (TopExp_Explorer at(shape, TopAbs_FACE); at.More(); at.Next(), ++number) {
    const TopoDS_Shape face = sewing.IsModified(at.Current()) ? sewing.Modified(at.Current()) : at.Current();
    numbers.Bind(face, number);
  }
  const TopoDS_Shape out = SolidsOf(sewing.SewedShape());
  std::vector<std::string> followed;
  for (TopExp_Explorer at(out, TopAbs_FACE); at.More(); at.Next()) {
    const bool is_known = numbers.IsBound(at.Current()) && static_cast<size_t>(numbers(at.Current())) < names->size();
    followed.push_back(is_known ? (*names)[static_cast<size_t>(numbers(at.Current()))] : "");
  }
  *names = std::move(followed);
  return out;
}

}  // namespace

absl::StatusOr<NurbsObjectDescription> FromShape(const TopoDS_Shape& shape, std::vector<std::string> face_names) {
  const TopoDS_Shape whole = HasFreeEdges(shape) ? Sewn(shape, &face_names) : shape;
  BRepBuilderAPI_NurbsConvert convert(whole, true);
  if (!convert.IsDone()) return absl::InvalidArgumentError("OpenCASCADE cannot turn it into NURBS");
  const TopoDS_Shape& nurbs = convert.Shape();
  TopTools_IndexedMapOfShape edges;
  TopExp::MapShapes(nurbs, TopAbs_EDGE, edges);
  std::vector<int> uses(static_cast<size_t>(edges.Extent()) + 1, 0);
  std::vector<TopoDS_Face> faces;
  for (TopExp_Explorer at(nurbs, TopAbs_FACE); at.More(); at.Next()) {
    faces.push_back(TopoDS::Face(at.Current()));
    if (faces.size() > kMaxNurbsPatches) return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxNurbsPatches, " faces"));
    for (TopExp_Explorer edge(faces.back(), TopAbs_EDGE); edge.More(); edge.Next())
      ++uses[static_cast<size_t>(edges.FindIndex(edge.Current()))];
  }
  NurbsObjectDescription out;
  for (size_t i = 0; i < faces.size(); ++i) {
    absl::StatusOr<NurbsPatchDescription> patch = PatchOf(faces[i], edges, uses);
    if (!patch.ok()) return Annotate(patch.status(), FacePath(i));
    if (i < face_names.size()) patch->name = face_names[i];
    out.patches.push_back(std::move(*patch));
  }
  if (out.patches.empty()) return absl::InvalidArgumentError("has no faces");
  return out;
}

absl::StatusOr<TopoDS_Shape> ToShape(const NurbsObject& object) {
  BRepBuilderAPI_Sewing sewing(kSewing);
  for (size_t i = 0; i < object.patches().size(); ++i) {
    const absl::StatusOr<TopoDS_Face> face = ToFace(object.patches()[i]);
    if (!face.ok()) return Annotate(face.status(), NurbsPatchPath(i, object.patches()[i].name));
    sewing.Add(*face);
  }
  sewing.Perform();
  const TopoDS_Shape& sewn = sewing.SewedShape();
  if (sewn.IsNull()) return absl::InvalidArgumentError("OpenCASCADE does not join the patches");
  return SolidsOf(sewn);
}

}  // namespace palpate::sim
