#!/usr/bin/env bash
# Compiles what depends on the processor's instructions (gpu, sim, bench) with gcc and clang for several instruction sets, warnings as errors.
# usage: cmake/build_instruction_sets.sh [-j N] [INSTRUCTION_SET...]   default: native x86-64-v2 x86-64-v3 x86-64-v4, which this machine need not have: nothing is run
# Build folders and logs are build/instructions-COMPILER-SET*. Exit status: 0 all compile, 1 some do not (named at the end), 2 wrong usage.
set -uo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    -j) jobs=${2:?-j needs a number}; shift 2 ;;
    -*) sed -n '2,4s/^# //p' "$0" >&2; exit 2 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || set -- native x86-64-v2 x86-64-v3 x86-64-v4
failed=()
mkdir -p build
for set in "$@"; do
  for compiler in gcc clang; do
    cxx=${compiler/gcc/g++}
    build=build/instructions-$compiler-$set
    echo "== $compiler, $set"
    # The flags of preset bench.
    if ! {
      cmake -G Ninja -S . -B "$build" -DCMAKE_C_COMPILER=$compiler "-DCMAKE_CXX_COMPILER=${cxx/clang/clang++}" -DCMAKE_BUILD_TYPE=Release \
        "-DCMAKE_CXX_FLAGS_RELEASE=-O3 -DNDEBUG -march=$set" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON -DPALPATE_BUILD_TESTS=OFF -DPALPATE_BUILD_WEB=OFF \
        && ninja -C "$build" -k 0 -j "$jobs" gpu/all sim/all bench/all
    } >"$build.log" 2>&1; then
      grep -E 'error|warning|Error|FAILED' "$build.log" >&2
      failed+=("$compiler, $set (all messages: $build.log)")
    fi
  done
done
if [ ${#failed[@]} -gt 0 ]; then printf 'does not compile: %s\n' "${failed[@]}" >&2; exit 1; fi
