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

# What is declared in eigen_instances.h; see there.
if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  add_library(palpate_eigen_instances STATIC "${CMAKE_SOURCE_DIR}/gpu/base/eigen_instances.cc")
  target_include_directories(palpate_eigen_instances PRIVATE "${CMAKE_SOURCE_DIR}")
  target_compile_options(palpate_eigen_instances PRIVATE -ffp-contract=off)
  target_link_libraries(palpate_eigen_instances PRIVATE Eigen3::Eigen)
  set_target_properties(palpate_eigen_instances PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(palpate_options INTERFACE palpate_eigen_instances)
endif()

set(common_headers
  <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <functional> <memory> <optional> <span> <string> <string_view> <utility> <vector>
  <Eigen/Geometry> "${CMAKE_SOURCE_DIR}/gpu/base/eigen_instances.h" <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>)
set(common_libraries absl::statusor absl::str_format Eigen3::Eigen)
# What speaks the API: a folder with PALPATE_SPEAKS_API. gRPC and the messages are half of what its files have to parse.
set(api_headers ${common_headers} <grpcpp/grpcpp.h> <palpate/v1/scene.pb.h> <palpate/v1/control.pb.h> <palpate/v1/edit.pb.h>
  <palpate/v1/haptics.pb.h> <palpate/v1/journal.pb.h> <palpate/v1/record.pb.h> <palpate/v1/stream.pb.h>)
set(api_libraries ${common_libraries} palpate_proto)
set(test_headers <Eigen/Dense> <gmock/gmock.h> <gtest/gtest.h>)
set(test_libraries GTest::gmock GTest::gtest)

if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  palpate_precompiled_set(palpate_precompiled HEADERS ${common_headers} DEPS ${common_libraries})
  palpate_precompiled_set(palpate_precompiled_with_exceptions EXCEPTIONS HEADERS ${common_headers} DEPS ${common_libraries})
  if(PALPATE_BUILD_FUZZ)
    # Native tests are libraries first, of which two programs are made.
    palpate_precompiled_set(palpate_precompiled_for_native_tests EXCEPTIONS
      HEADERS ${common_headers} ${test_headers} DEPS ${common_libraries} ${test_libraries})
  elseif(PALPATE_BUILD_TESTS)
    palpate_precompiled_set(palpate_precompiled_for_tests EXCEPTIONS PROGRAMS FLAGS $<$<CONFIG:Release>:-O1>
      HEADERS ${common_headers} ${test_headers} DEPS ${common_libraries} ${test_libraries})
  endif()
  if(NOT PALPATE_BUILD_FUZZ AND NOT PALPATE_PORTABLE)
    palpate_precompiled_set(palpate_precompiled_api HEADERS ${api_headers} DEPS ${api_libraries})
    # Of clients, half of which read command lines or JSON.
    find_package(CLI11 REQUIRED)
    find_package(nlohmann_json REQUIRED)
    palpate_precompiled_set(palpate_precompiled_api_with_exceptions EXCEPTIONS
      HEADERS ${api_headers} <CLI/CLI.hpp> <nlohmann/json.hpp> DEPS ${api_libraries} CLI11::CLI11 nlohmann_json::nlohmann_json)
    if(PALPATE_BUILD_TESTS)
      palpate_precompiled_set(palpate_precompiled_api_for_tests EXCEPTIONS PROGRAMS FLAGS $<$<CONFIG:Release>:-O1>
        HEADERS ${api_headers} ${test_headers} DEPS ${api_libraries} ${test_libraries})
    endif()
  endif()
endif()

# palpate_precompile(TARGET [with_exceptions | for_tests | for_native_tests])
function(palpate_precompile target)
  set(set palpate_precompiled)
  if(PALPATE_SPEAKS_API AND TARGET palpate_precompiled_api)
    set(set palpate_precompiled_api)
  endif()
  foreach(kind IN LISTS ARGN)
    string(APPEND set "_${kind}")
  endforeach()
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${set})
  endif()
endfunction()
