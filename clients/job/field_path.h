#pragma once

#include <string_view>

#include <google/protobuf/message.h>
#include <google/protobuf/struct.pb.h>

#include "absl/status/status.h"

namespace palpate::job {

/// Sets fields of a message by path: `bodies[0].material.young_modulus_pa`, `bodies[liver].pose`, `tools[*].radius_m`. An element of a list
/// is given by its place, by its `name` (or `tool`, or `field`), or as `*` for all. The value may be of any kind that the JSON form of the
/// field takes, messages and lists included, and replaces what was there. Messages on the way that are absent come into being; but one
/// alternative of several (a body's geometry) is not exchanged for another on the way.
/// Errors: InvalidArgument, NotFound (no such element), naming the path, the place in it, and what there is.
absl::Status SetField(google::protobuf::Message* message, std::string_view path, const google::protobuf::Value& value);

/// Whether a path can be set, for each element that it names. Errors: as SetField.
absl::Status CheckField(const google::protobuf::Message& message, std::string_view path);

}  // namespace palpate::job
