# Headers that hundreds of files include, parsed once: a small file compiles in a third of the time. Presets `dev`, `clang`, `asan` and
# `tsan` do without, so that they find a file that forgets an include of its own.

# A target needs a source, a program a main().
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/precompiled.cc" CONTENT "int main() {}\n")

# palpate_precompiled_set(NAME [EXCEPTIONS] [PROGRAMS] HEADERS h... [DEPS lib...] [FLAGS f...]): a precompiled header for targets with the same
# compiler flags: libraries, or programs, whose code is position independent in another way.
function(palpate_precompiled_set name)
  cmake_parse_arguments(ARG "EXCEPTIONS;PROGRAMS" "" "HEADERS;DEPS;FLAGS" ${ARGN})
  if(ARG_PROGRAMS)
    add_executable(${name} EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/precompiled.cc")
  else()
    add_library(${name} OBJECT EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/precompiled.cc")
  endif()
  target_link_libraries(${name} PRIVATE palpate_options ${ARG_DEPS})
  if(NOT ARG_EXCEPTIONS)
    target_compile_options(${name} PRIVATE -fno-exceptions)
  endif()
  target_compile_options(${name} PRIVATE ${ARG_FLAGS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

set(common_headers
  <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <functional> <memory> <optional> <span> <string> <string_view> <utility> <vector>
  <Eigen/Geometry> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>)
set(common_libraries absl::statusor absl::str_format Eigen3::Eigen)

if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  palpate_precompiled_set(palpate_precompiled HEADERS ${common_headers} DEPS ${common_libraries})
  palpate_precompiled_set(palpate_precompiled_with_exceptions EXCEPTIONS HEADERS ${common_headers} DEPS ${common_libraries})
  if(PALPATE_BUILD_FUZZ)
    # Native tests are libraries first, of which two programs are made.
    palpate_precompiled_set(palpate_precompiled_for_native_tests EXCEPTIONS
      HEADERS ${common_headers} <gmock/gmock.h> <gtest/gtest.h> DEPS ${common_libraries} GTest::gmock GTest::gtest)
  elseif(PALPATE_BUILD_TESTS)
    palpate_precompiled_set(palpate_precompiled_for_tests EXCEPTIONS PROGRAMS
      HEADERS ${common_headers} <gmock/gmock.h> <gtest/gtest.h> DEPS ${common_libraries} GTest::gmock GTest::gtest)
  endif()
endif()

# palpate_precompile(TARGET SET)
function(palpate_precompile target set)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${set})
  endif()
endfunction()
