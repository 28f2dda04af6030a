#pragma once

#include <string>

#include <google/protobuf/repeated_field.h>

#include "absl/status/status.h"
#include "clients/cli/console.h"
#include "palpate/v1/control.pb.h"

namespace palpate::cli {

/// Checks a scene file as the server would and prints what it would build, without a server. Errors: those of ReadSceneFile and
/// scene::BuildSceneDescription, with the file's name in front.
absl::Status CheckScene(const std::string& path, bool json);

/// Counts, mass and volume of bodies, one a row.
Table BodyTable(const google::protobuf::RepeatedPtrField<v1::BodyInfo>& bodies);

}  // namespace palpate::cli
