#pragma once

namespace palpate::job {

extern const char* const kVersion;      ///< of the project, from CMake
extern const char* const kBuildCommit;  ///< see cmake/PalpateCommit.cmake

}  // namespace palpate::job
