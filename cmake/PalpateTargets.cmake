# Functions that every folder uses to declare its targets, so that warnings, include paths and labels are the same everywhere.
include(GoogleTest)

add_library(palpate_options INTERFACE)
target_include_directories(palpate_options INTERFACE "${CMAKE_SOURCE_DIR}" "${CMAKE_BINARY_DIR}")
# Contraction would make results depend on the compiler; see docs/conventions.md.
target_compile_options(palpate_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -ffp-contract=off)
# Warnings are errors (CMAKE_COMPILE_WARNING_AS_ERROR) in the presets of developers and in continuous integration, never for a user, whose compiler may know more of them.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 reports members of Eigen's matrices falsely once they are inlined, with AVX-512 in most programs: left to clang, which does not.
  target_compile_options(palpate_options INTERFACE -Wno-maybe-uninitialized)
endif()
target_compile_definitions(palpate_options INTERFACE CL_TARGET_OPENCL_VERSION=120)
# Everywhere, since targets that share precompiled headers need the same flags, and some packages ask for this one.
target_compile_options(palpate_options INTERFACE -pthread)
target_link_options(palpate_options INTERFACE -pthread)
if(PALPATE_SANITIZE)
  add_compile_options(-fsanitize=${PALPATE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PALPATE_SANITIZE})
endif()

include(PalpatePrecompiled)

# palpate_unite(TARGET [ALONE a.cc...]): compiles its files in batches, with PALPATE_UNITY_BUILD. What many files instantiate is then compiled
# once, which takes half of the time or less. ALONE: files whose names in unnamed namespaces are those of others.
function(palpate_unite target)
  cmake_parse_arguments(ARG "" "" "ALONE" ${ARGN})
  get_target_property(files ${target} SOURCES)
  list(LENGTH files count)
  if(PALPATE_UNITY_BUILD AND count GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# palpate_library(NAME SRCS a.cc... [DEPS lib...] [KERNELS a.cl...] [ALONE a.cc...] [EXCEPTIONS])
# One static library. ALONE: see palpate_unite. KERNELS are embedded as palpate::gpu::kernels::<stem> (see gpu/runtime/kernel_source.h).
# Without EXCEPTIONS a `throw` or `try` is a compile error: an exception inside a gRPC reaction hangs the call.
function(palpate_library name)
  cmake_parse_arguments(ARG "EXCEPTIONS" "" "SRCS;DEPS;KERNELS;ALONE" ${ARGN})
  if(ARG_SRCS OR ARG_KERNELS)
    add_library(${name} STATIC ${ARG_SRCS})
    palpate_unite(${name} ALONE ${ARG_ALONE})
    target_link_libraries(${name} PUBLIC palpate_options ${ARG_DEPS})
    if(ARG_EXCEPTIONS)
      palpate_precompile(${name} with_exceptions)
    else()
      target_compile_options(${name} PRIVATE -fno-exceptions)
      palpate_precompile(${name})
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

# palpate_all_cores(TEST...): `./run test` has each of the tests that run side by side compute with its share of the cores; these with all.
function(palpate_all_cores)
  set_tests_properties(${ARGN} PROPERTIES ENVIRONMENT_MODIFICATION "POCL_MAX_PTHREAD_COUNT=unset:;POCL_CPU_MAX_CU_COUNT=unset:")
endfunction()

# palpate_run_alone(TEST...): no other test runs beside these: a neighbour that takes a core shows in what they measure.
function(palpate_run_alone)
  set_tests_properties(${ARGN} PROPERTIES RUN_SERIAL TRUE)
  palpate_all_cores(${ARGN})
endfunction()

# palpate_register_test(NAME COMMAND c... LABELS l... TIMEOUT s [COST s] [SHARDS n] [ENVIRONMENT e...] [PROPERTIES p v...])
# Tells ctest of a GoogleTest program. With SHARDS its cases are dealt out to n tests, NAME_1_of_n and so on, that may run side by side.
# In ENVIRONMENT, @SHARD@ stands for the name of the test.
function(palpate_register_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;COST;SHARDS" "COMMAND;LABELS;ENVIRONMENT;PROPERTIES" ${ARGN})
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(test ${name})
    set(environment ${ARG_ENVIRONMENT})
    if(ARG_SHARDS GREATER 1)
      math(EXPR index "${shard} - 1")
      set(test ${name}_${shard}_of_${ARG_SHARDS})
      list(APPEND environment GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
    endif()
    string(REPLACE "@SHARD@" "${test}" environment "${environment}")
    add_test(NAME ${test} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
    set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${environment}" ${ARG_PROPERTIES})
    if(ARG_COST)
      set_tests_properties(${test} PROPERTIES COST ${ARG_COST})
    endif()
    if(PALPATE_TESTS_USE_ALL_CORES)
      palpate_all_cores(${test})
    endif()
  endforeach()
endfunction()

# palpate_test_program(NAME): the palpate_tests of this folder that follow are part of one program, until it is given another name, or none. Files
# of one program are compiled in batches, which takes a third of the time.
macro(palpate_test_program name)
  set(PALPATE_TEST_PROGRAM ${name})
endmacro()

# palpate_add_to_test_program(PROGRAM SRCS a_test.cc... [DEPS lib...] [KERNELS a.cl...])
function(palpate_add_to_test_program program)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;KERNELS" ${ARGN})
  if(NOT TARGET ${program})
    add_executable(${program})
    target_link_libraries(${program} PRIVATE palpate_options GTest::gmock palpate_test_main)
    # A fifth of the time that compiling them takes; what they test is optimised as it is shipped.
    target_compile_options(${program} PRIVATE $<$<CONFIG:Release>:-O1>)
    palpate_precompile(${program} for_tests)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # Precompiled, std::string is no longer a system's header to gcc 12, which then reports its joining of long texts falsely.
      target_compile_options(${program} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)
    endif()
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/bin")
    set_property(GLOBAL APPEND PROPERTY PALPATE_TESTS ${program})
  endif()
  palpate_add_sources(${program} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS} KERNELS ${ARG_KERNELS})
endfunction()

# palpate_add_sources(TARGET SRCS a.cc... [DEPS lib...] [KERNELS a.cl...]): what a target lacks of these.
function(palpate_add_sources target)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;KERNELS" ${ARGN})
  get_target_property(sources ${target} SOURCES)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  get_target_property(stems ${target} PALPATE_KERNEL_STEMS)
  foreach(source IN LISTS ARG_SRCS)
    if(NOT source IN_LIST sources)
      target_sources(${target} PRIVATE ${source})
    endif()
  endforeach()
  foreach(library IN LISTS ARG_DEPS)
    if(NOT library IN_LIST libraries)
      target_link_libraries(${target} PRIVATE ${library})
    endif()
  endforeach()
  foreach(kernel IN LISTS ARG_KERNELS)
    get_filename_component(stem "${kernel}" NAME_WE)
    if(NOT stem IN_LIST stems)
      palpate_embed_kernels(${target} ${kernel})
    endif()
  endforeach()
  palpate_unite(${target})
endfunction()

# palpate_test(NAME SRCS a_test.cc... [DEPS lib...] [KERNELS a.cl...] [LABELS l...] [TIMEOUT s] [COST s] [SHARDS n] [SLOW_TIMEOUT s] [AS_GPU])
# Tests of GoogleTest: files of the folder's palpate_test_program, or a program of their own, and one ctest, or one for each shard.
# With SLOW_TIMEOUT its tests named Slow... are a ctest of their own, <name>_slow, with the label slow.
# With AS_GPU there is <name>_as_gpu too: the same on kernels built, and work divided, as for a GPU of 132 compute units.
# A test that takes more than 20 s alone has a TIMEOUT of eight times that or more; one that takes more than 60 s is dealt out to shards.
# COST is the time of those that take more than half a minute beside another, about: ctest starts the longest first, so that none ends alone.
# Labels in use: unit property vv native e2e slow lint fuzz. Tests find data through PALPATE_DATA_DIR and skip, saying so, without it.
function(palpate_test name)
  cmake_parse_arguments(ARG "AS_GPU" "TIMEOUT;COST;SHARDS;SLOW_TIMEOUT" "SRCS;DEPS;KERNELS;LABELS" ${ARGN})
  set(program ${name})
  set(command ${name})
  if(PALPATE_TEST_PROGRAM)
    set(program ${PALPATE_TEST_PROGRAM})
    list(JOIN ARG_SRCS "," files)
    set(command ${program} "--files=${files}")
  endif()
  palpate_add_to_test_program(${program} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS} KERNELS ${ARG_KERNELS})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set(environment "PALPATE_CACHE_DIR=${CMAKE_BINARY_DIR}/kernel-cache")
  set(filter)
  if(ARG_SLOW_TIMEOUT)
    set(filter "--gtest_filter=-*.Slow*")
    set(slow_labels ${ARG_LABELS} slow)
    list(REMOVE_ITEM slow_labels unit)
    palpate_register_test(${name}_slow COMMAND ${command} "--gtest_filter=*.Slow*" LABELS ${slow_labels} TIMEOUT ${ARG_SLOW_TIMEOUT} COST ${ARG_COST} ENVIRONMENT ${environment})
  endif()
  palpate_register_test(${name} COMMAND ${command} ${filter} LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT} COST ${ARG_COST} SHARDS ${ARG_SHARDS} ENVIRONMENT ${environment})
  if(ARG_AS_GPU)
    list(APPEND environment PALPATE_ASSUME_GPU=132)
    palpate_register_test(${name}_as_gpu COMMAND ${command} ${filter} LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT ${environment})
  endif()
endfunction()
