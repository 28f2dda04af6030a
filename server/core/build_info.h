#pragma once

namespace palpate::server {

extern const char* const kVersion;  ///< of the project, from CMake
extern const char* const
    kBuildCommit;  ///< short hash of the sources when the build was configured, "-dirty" if changed; "unknown" without git

}  // namespace palpate::server
