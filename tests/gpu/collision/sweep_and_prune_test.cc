#include "gpu/collision/sweep_and_prune.h"

#include <CL/cl.h>

#include <algorithm>
#include <numeric>

#include "gpu/collision/pair_list.h"
#include "gpu/primitives/radix_sort.h"
#include "tests/gpu/collision/volume_support.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::sweep_and_prune_test {
namespace {

class SweepAndPruneTest : public test::DeviceTest {
 protected:
  struct Result {
    PairSet pairs;
    uint64_t tiles = 0;
  };

  // Of boxes given as volumes of six floats.
  Result Sweep(const std::vector<float>& boxes, uint32_t axis) {
    const auto count = static_cast<uint32_t>(boxes.size() / 6);
    Result result;
    auto sweep = SweepAndPrune::Create(context(), BoundingVolume::kDop6);
    auto list = PairList::Create(context(), 1 << 28);
    EXPECT_TRUE(sweep.ok() && list.ok());
    if (!sweep.ok() || !list.ok()) return result;
    const auto volumes = Upload(boxes);
    PALPATE_EXPECT_OK(list->Begin(queue(), count));
    PALPATE_EXPECT_OK(sweep->Prepare(queue(), volumes, count, axis, *list));
    for (bool is_complete = false; !is_complete;) {
      PALPATE_EXPECT_OK(sweep->Emit(queue(), {}, *list));
      const auto complete = list->Complete(queue());
      EXPECT_TRUE(complete.ok()) << complete.status();
      is_complete = !complete.ok() || *complete;
    }
    PALPATE_EXPECT_OK(list->Sort(queue()));
    std::vector<UInt2> pairs(list->count());
    if (!pairs.empty()) {
      EXPECT_EQ(clEnqueueReadBuffer(queue().handle(), list->pairs().handle, CL_TRUE, 0, pairs.size() * sizeof(UInt2), pairs.data(), 0,
                                    nullptr, nullptr),
                CL_SUCCESS);
    }
    PALPATE_EXPECT_OK(queue().FinishBlocking());
    result.pairs = ToPairSet(pairs);
    result.tiles = sweep->tile_count();
    return result;
  }
};

// Amaral 2021, section 4.6.
TEST_F(SweepAndPruneTest, SortsKeysAsPublished) {
  const std::vector<std::pair<std::vector<float>, std::vector<float>>> vectors = {
      {{82, 901, 100, 12, 150, 77, 55, 23}, {12, 23, 55, 77, 82, 100, 150, 901}},
      {{4, -2, 3, -1, -4, -2, 3, 5, 0}, {-4, -2, -2, -1, 0, 3, 3, 4, 5}}};
  for (const auto& [keys, expected] : vectors) {
    const auto count = static_cast<uint32_t>(keys.size());
    PALPATE_TEST_ASSIGN(auto sort, RadixSort<float>::Create(context(), count));
    const auto in = Upload(keys);
    const auto out = Allocate<float>(count);
    const auto order = Allocate<uint32_t>(count);
    PALPATE_ASSERT_OK(sort.Run(queue(), in, {}, count, out, order));
    EXPECT_EQ(Download(out), expected);
    // Equal keys keep their order.
    std::vector<uint32_t> expected_order(count);
    std::iota(expected_order.begin(), expected_order.end(), 0U);
    std::stable_sort(expected_order.begin(), expected_order.end(), [&keys = keys](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    EXPECT_EQ(Download(order), expected_order);
  }
}

// Amaral 2021, figure 3.5: four boxes in a plane; 2 and 3 begin within 1 and 2 on the axis, and the other axis rejects them.
TEST_F(SweepAndPruneTest, AnOverlapOnTheSweptAxisIsNotEnough) {
  const std::vector<float> boxes = {0, 0, 0, 4, 1, 1, 2, 3, 0, 6, 4, 1, 5, 0, 0, 8, 1, 1, 9, 0, 0, 10, 1, 1};
  for (uint32_t axis = 0; axis < 3; ++axis) EXPECT_TRUE(Sweep(boxes, axis).pairs.empty()) << axis;
  // Moved to touch, they pair up.
  const std::vector<float> touching = {0, 0, 0, 4, 3, 1, 2, 3, 0, 6, 4, 1, 6, 0, 1, 8, 3, 1, 9, 0, 0, 10, 1, 1};
  for (uint32_t axis = 0; axis < 3; ++axis) EXPECT_EQ(Sweep(touching, axis).pairs, (PairSet{{0, 1}, {1, 2}})) << axis;
}

// Keys that differ by one unit in the last place, where a quantised sort could lose a pair.
TEST_F(SweepAndPruneTest, NeighbouringFloatsAreTold) {
  const float one = 1;
  const float above = std::nextafter(one, 2.0F);
  std::vector<float> boxes;
  for (const auto& [low, high] : {std::pair{0.0F, one}, {above, 2.0F}, {one, 1.5F}, {-1.0F, std::nextafter(0.0F, -1.0F)}, {-1.0F, -0.0F}}) {
    boxes.insert(boxes.end(), {low, 0, 0, high, 1, 1});
  }
  EXPECT_EQ(Sweep(boxes, 0).pairs, (PairSet{{0, 2}, {0, 4}, {1, 2}, {3, 4}}));
  EXPECT_EQ(Sweep(boxes, 1).pairs, (PairSet{{0, 2}, {0, 4}, {1, 2}, {3, 4}}));
}

// A long interval costs one row of tiles, not a square of them.
TEST_F(SweepAndPruneTest, OneLongIntervalAddsOneRowOfTiles) {
  std::vector<float> boxes;
  const uint32_t count = 4096;
  for (uint32_t i = 0; i < count; ++i) {
    const auto s = static_cast<float>(i);
    boxes.insert(boxes.end(), {s, 0, 0, s + 0.5F, 1, 1});
  }
  const uint64_t tiles = Sweep(boxes, 0).tiles;
  EXPECT_EQ(tiles, count / 16);
  boxes[3] = 5000;  // the first reaches over all
  const Result result = Sweep(boxes, 0);
  EXPECT_EQ(result.tiles, 2 * tiles - 1);
  EXPECT_EQ(result.pairs.size(), count - 1);
}

TEST_F(SweepAndPruneTest, NothingIsNothing) {
  EXPECT_TRUE(Sweep({}, 0).pairs.empty());
  EXPECT_TRUE(Sweep({0, 0, 0, 1, 1, 1}, 2).pairs.empty());
}

}  // namespace
}  // namespace palpate::gpu::sweep_and_prune_test
