#pragma once

#include <cstdint>

#include "bench/bench_support.h"
#include "gpu/runtime/context.h"

namespace palpate::bench {

/// Context::Options::time_one_in of a suite with the flag --kernels: every launch if it is set, else as many as a server times.
uint32_t TimedLaunches();

/// With --kernels: where the device spent its time, warm-up included, summed over all cases.
void NoteKernels(const gpu::Context& context, Report* report);

}  // namespace palpate::bench
