#pragma once

#include <memory>
#include <string>

#include "absl/flags/declare.h"
#include "bench/bench_support.h"
#include "gpu/base/status.h"
#include "gpu/runtime/context.h"
#include "sim/scene/description.h"

ABSL_DECLARE_FLAG(std::string, scenes_dir);

namespace palpate::bench {

/// Steps with lists of the pairs within bodies (gpu::SelfPairs) and without, in turn: how many searches a list served, what was saved, and
/// that states are the same. Livers under a tool that moves, moves slowly and stands still; scenes/{organs,sheet,dress}.json. Errors: those
/// of the world; Internal if states differ.
absl::Status MeasureLists(const std::shared_ptr<gpu::Context>& context, Report* report);

}  // namespace palpate::bench
