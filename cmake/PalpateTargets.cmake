# Functions that every folder uses to declare its targets, so that warnings, include paths and labels are the same everywhere.
include(GoogleTest)

add_library(palpate_options INTERFACE)
target_include_directories(palpate_options INTERFACE "${CMAKE_SOURCE_DIR}" "${CMAKE_BINARY_DIR}")
# Contraction would make results depend on the compiler; see docs/conventions.md.
target_compile_options(palpate_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror -ffp-contract=off)
target_compile_definitions(palpate_options INTERFACE CL_TARGET_OPENCL_VERSION=120)
if(PALPATE_SANITIZE)
  add_compile_options(-fsanitize=${PALPATE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PALPATE_SANITIZE})
endif()

# palpate_library(NAME SRCS a.cc... [DEPS lib...] [KERNELS a.cl...] [EXCEPTIONS])
# One static library. KERNELS are embedded as palpate::gpu::kernels::<stem> (see gpu/runtime/kernel_source.h).
# Without EXCEPTIONS a `throw` or `try` is a compile error: an exception inside a gRPC reaction hangs the call.
function(palpate_library name)
  cmake_parse_arguments(ARG "EXCEPTIONS" "" "SRCS;DEPS;KERNELS" ${ARGN})
  if(ARG_SRCS OR ARG_KERNELS)
    add_library(${name} STATIC ${ARG_SRCS})
    target_link_libraries(${name} PUBLIC palpate_options ${ARG_DEPS})
    if(NOT ARG_EXCEPTIONS)
      target_compile_options(${name} PRIVATE -fno-exceptions)
    endif()
    if(ARG_KERNELS)
      palpate_embed_kernels(${name} ${ARG_KERNELS})
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE palpate_options ${ARG_DEPS})
  endif()
endfunction()

# palpate_embed_kernels(TARGET a.cl...): flattens the includes of each file and compiles the text into TARGET.
function(palpate_embed_kernels target)
  file(GLOB shared CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/gpu/shared/*.h" "${CMAKE_SOURCE_DIR}/gpu/*/*.clh")
  foreach(kernel IN LISTS ARGN)
    get_filename_component(stem "${kernel}" NAME_WE)
    file(RELATIVE_PATH relative "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/${kernel}")
    set(out "${CMAKE_CURRENT_BINARY_DIR}/${stem}_cl.cc")
    add_custom_command(
      OUTPUT "${out}"
      COMMAND "${Python3_EXECUTABLE}" "${CMAKE_SOURCE_DIR}/cmake/embed_kernel.py" "${CMAKE_SOURCE_DIR}" "${relative}" "${out}"
      DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${kernel}" "${CMAKE_SOURCE_DIR}/cmake/embed_kernel.py" ${shared}
      COMMENT "Embedding ${relative}"
      VERBATIM)
    target_sources(${target} PRIVATE "${out}")
    set_property(TARGET ${target} APPEND PROPERTY PALPATE_KERNEL_STEMS ${stem})
    set_property(GLOBAL APPEND PROPERTY PALPATE_KERNEL_FILES "${CMAKE_CURRENT_SOURCE_DIR}/${kernel}")
  endforeach()
endfunction()

# palpate_executable(NAME SRCS a.cc... [DEPS lib...] [OUTPUT_NAME name] [EXCEPTIONS]): a program in ${CMAKE_BINARY_DIR}/bin.
function(palpate_executable name)
  cmake_parse_arguments(ARG "EXCEPTIONS" "OUTPUT_NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE palpate_options ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  if(ARG_OUTPUT_NAME)
    set_target_properties(${name} PROPERTIES OUTPUT_NAME "${ARG_OUTPUT_NAME}")
  endif()
  if(NOT ARG_EXCEPTIONS)
    target_compile_options(${name} PRIVATE -fno-exceptions)
  endif()
endfunction()

# palpate_test(NAME SRCS a_test.cc... [DEPS lib...] [LABELS l...] [TIMEOUT s] [SLOW_TIMEOUT s]): a GoogleTest program, one ctest per program.
# With SLOW_TIMEOUT its tests named Slow... are a ctest of their own, <name>_slow, with the label slow.
# Labels in use: unit property vv native e2e slow lint fuzz. Tests find data through PALPATE_DATA_DIR and skip, saying so, without it.
function(palpate_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;SLOW_TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE palpate_options ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc 12 reports members of Eigen's decompositions falsely once they are inlined.
    target_compile_options(${name} PRIVATE -Wno-maybe-uninitialized)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/bin")
  set_property(GLOBAL APPEND PROPERTY PALPATE_TESTS ${name})
  if(ARG_SLOW_TIMEOUT)
    add_test(NAME ${name} COMMAND ${name} "--gtest_filter=-*.Slow*" WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
  else()
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "PALPATE_CACHE_DIR=${CMAKE_BINARY_DIR}/kernel-cache")
  if(ARG_SLOW_TIMEOUT)
    add_test(NAME ${name}_slow COMMAND ${name} "--gtest_filter=*.Slow*" WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
    list(REMOVE_ITEM ARG_LABELS unit)
    set_tests_properties(${name}_slow PROPERTIES LABELS "${ARG_LABELS};slow" TIMEOUT ${ARG_SLOW_TIMEOUT} ENVIRONMENT "PALPATE_CACHE_DIR=${CMAKE_BINARY_DIR}/kernel-cache")
  endif()
endfunction()
