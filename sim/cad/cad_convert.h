#pragma once

#include <string>
#include <vector>

#include <TopoDS_Shape.hxx>

#include "absl/status/statusor.h"
#include "sim/nurbs/nurbs_object.h"

/// Between shapes of OpenCASCADE, in millimetres, and descriptions of NURBS, in metres. What it throws is for callers to catch.
namespace palpate::sim {

/// `face_names` of the faces in the order of a TopExp_Explorer, or fewer. Faces that are not joined
/// are, where they are near enough.
absl::StatusOr<NurbsObjectDescription> FromShape(const TopoDS_Shape& shape, std::vector<std::string> face_names);

/// A solid, or the shells and faces that there are.
absl::StatusOr<TopoDS_Shape> ToShape(const NurbsObject& object);

}  // namespace palpate::sim
