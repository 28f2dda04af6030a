#include "sim/topology/component_tracker.h"

#include <map>
#include <set>

#include "tests/sim/topology/topology_support.h"

namespace palpate::sim::component_tracker_test {
namespace {

// A grid of cells of which some are live; neighbours share a side.
class Grid {
 public:
  Grid(uint32_t width, uint32_t height) : width_(width), height_(height), is_live_(width * height, false) {}

  template <typename F>
  void ForNeighbors(uint32_t cell, const F& f) const {
    const uint32_t x = cell % width_;
    const uint32_t y = cell / width_;
    if (x > 0 && is_live_[cell - 1]) f(cell - 1);
    if (x + 1 < width_ && is_live_[cell + 1]) f(cell + 1);
    if (y > 0 && is_live_[cell - width_]) f(cell - width_);
    if (y + 1 < height_ && is_live_[cell + width_]) f(cell + width_);
  }

  // Flips cells; returns the number of cells that the tracker visited.
  size_t Flip(const std::vector<uint32_t>& cells) {
    moved.clear();
    added.clear();
    removed.clear();
    std::vector<uint32_t> seeds;
    for (const uint32_t cell : cells) {
      is_live_[cell] = !is_live_[cell];
      if (is_live_[cell]) {
        tracker.Add(cell);
        seeds.push_back(cell);
      } else {
        tracker.Remove(cell);
      }
    }
    for (const uint32_t cell : cells) ForNeighbors(cell, [&](uint32_t n) { seeds.push_back(n); });
    return tracker.Update(
        seeds, [this](uint32_t cell, const auto& f) { ForNeighbors(cell, f); }, &moved, &added, &removed);
  }

  void ExpectRight() const {
    std::vector<bool> is_seen(is_live_.size(), false);
    std::set<ComponentId> ids;
    for (uint32_t first = 0; first < is_live_.size(); ++first) {
      if (!is_live_[first] || is_seen[first]) continue;
      std::vector<uint32_t> queue = {first};
      is_seen[first] = true;
      for (size_t i = 0; i < queue.size(); ++i) {
        ASSERT_EQ(tracker.at(queue[i]), tracker.at(first));
        ForNeighbors(queue[i], [&](uint32_t n) {
          if (!is_seen[n]) queue.push_back(n);
          is_seen[n] = true;
        });
      }
      ASSERT_TRUE(ids.insert(tracker.at(first)).second) << "two pieces with one number";
      const auto* component = tracker.Find(tracker.at(first));
      ASSERT_NE(component, nullptr);
      ASSERT_EQ(component->cell_count, queue.size());
      ASSERT_TRUE(is_live_[component->representative]);
      ASSERT_EQ(tracker.at(component->representative), tracker.at(first));
    }
    ASSERT_EQ(tracker.Ids(), std::vector<ComponentId>(ids.begin(), ids.end()));
  }

  bool is_live(uint32_t cell) const { return is_live_[cell]; }

  ComponentTracker tracker;
  std::vector<MeshDelta::Move> moved;
  std::vector<ComponentId> added, removed;

 private:
  uint32_t width_, height_;
  std::vector<bool> is_live_;
};

// Many cells at once: pieces fall apart and grow together in the same update.
TEST(ComponentTrackerTest, EqualsBruteForceOnRandomFlips) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Grid grid(17, 13);
    Random random(seed);
    std::map<uint32_t, ComponentId> copy;  // follows the moves
    size_t merged = 0;
    size_t split = 0;
    for (int round = 0; round < 1500; ++round) {
      std::set<uint32_t> cells;
      const uint32_t count = 1 + random.Below(round % 10 == 0 ? 40 : 3);
      while (cells.size() < count) cells.insert(random.Below(17 * 13));
      std::map<uint32_t, ComponentId> before = copy;
      grid.Flip({cells.begin(), cells.end()});
      ASSERT_NO_FATAL_FAILURE(grid.ExpectRight()) << "round " << round;
      for (const uint32_t cell : cells) {
        if (grid.is_live(cell)) {
          copy[cell] = grid.tracker.at(cell);
        } else {
          copy.erase(cell);
        }
      }
      for (const auto& move : grid.moved) {
        ASSERT_EQ(copy[move.slot], move.from);
        copy[move.slot] = move.to;
      }
      for (const auto& [cell, component] : copy) ASSERT_EQ(component, grid.tracker.at(cell));
      split += grid.added.size();
      merged += grid.removed.size();
    }
    EXPECT_GT(split, 200U);
    EXPECT_GT(merged, 200U);
  }
}

// What is cut off pays: the visits follow the smaller piece, wherever the cut is.
TEST(ComponentTrackerTest, CostFollowsTheSmallerPiece) {
  constexpr uint32_t kLength = 20000;
  for (const uint32_t at : {3U, 100U, 5000U, kLength - 4}) {
    Grid grid(kLength, 3);
    std::vector<uint32_t> all(3 * kLength);
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    grid.Flip(all);
    ASSERT_EQ(grid.tracker.size(), 1U);
    const size_t smaller = 3 * std::min(at, kLength - 1 - at);
    const size_t visits = grid.Flip({at, at + kLength, at + 2 * kLength});
    EXPECT_EQ(grid.tracker.size(), 2U);
    EXPECT_EQ(grid.moved.size(), smaller);
    EXPECT_LE(visits, 8 * smaller + 100) << at;
    // Back again: the smaller one is relabelled.
    const size_t back = grid.Flip({at, at + kLength, at + 2 * kLength});
    EXPECT_EQ(grid.tracker.size(), 1U);
    EXPECT_EQ(grid.moved.size(), smaller);
    EXPECT_LE(back, 8 * smaller + 100) << at;
    // A hole separates nothing, and is seen to after a few cells.
    EXPECT_LE(grid.Flip({kLength + at}), 40U);
    EXPECT_EQ(grid.tracker.size(), 1U);
    grid.ExpectRight();
  }
}

}  // namespace
}  // namespace palpate::sim::component_tracker_test
