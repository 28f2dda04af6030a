#pragma once

#include <cstdint>

namespace palpate::gpu {

/// When searches use SelfPairs. None changes what is found.
enum class SelfPairsUse : uint8_t {
  kAutomatic,  ///< where lists last; bodies whose lists do not are left alone for longer and longer
  kNever,
  kAlways,  ///< each body that has no list is in the next one: for measurements and tests
};

}  // namespace palpate::gpu
