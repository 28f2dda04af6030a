#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "palpate/v1/nurbs.pb.h"
#include "sim/nurbs/nurbs_object.h"

namespace palpate::scene {

inline constexpr size_t kMaxNurbsFileBytes = size_t{256} << 20;
inline constexpr size_t kMaxNurbsNameBytes = 128;

/// The message as a description. Values are checked by sim::NurbsObject::Create. Errors: InvalidArgument with the path of the field
/// (version, names, lengths of arrays).
absl::StatusOr<sim::NurbsObjectDescription> NurbsFromProto(const v1::NurbsObject& object);
/// NurbsFromProto gives the same bits again.
v1::NurbsObject NurbsToProto(const sim::NurbsObjectDescription& object);

/// Reads the JSON form of v1::NurbsObject, to the bit. Unknown names of fields are errors. Values are checked by sim::NurbsObject::Create,
/// to which ReadNurbs hands them. Errors: `<display_name>: ...` InvalidArgument (syntax, unknown field, wrong type, version, lengths of
/// arrays; with the path of the field), ResourceExhausted (more bytes than kMaxNurbsFileBytes).
absl::StatusOr<sim::NurbsObjectDescription> ParseNurbsJson(std::string_view text, std::string_view display_name);

/// As ParseNurbsJson, with the checks of NurbsObject::Create behind the file's name.
absl::StatusOr<sim::NurbsObject> ReadNurbs(std::string_view text, std::string_view display_name);

/// The JSON form, a line for each patch. ParseNurbsJson gives the same bits again. Precondition: all numbers are finite.
std::string FormatNurbsJson(const sim::NurbsObjectDescription& object);

}  // namespace palpate::scene
