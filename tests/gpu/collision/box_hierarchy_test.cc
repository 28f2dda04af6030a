#include "gpu/collision/box_hierarchy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "absl/status/status.h"
#include "gpu/runtime/kernel_source.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource box_pairs_probe;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::box_hierarchy_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Elements {
  std::vector<Box> boxes;
  std::vector<uint32_t> groups;  // empty: none
  uint32_t group_count = 1;

  uint32_t size() const { return static_cast<uint32_t>(boxes.size()); }
  uint32_t group(size_t i) const { return groups.empty() ? PALPATE_GROUP_SELF : groups[i]; }
};

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

bool Overlap(const Box& a, const Box& b) {
  return a.lower.x <= b.upper.x && a.upper.x >= b.lower.x && a.lower.y <= b.upper.y && a.upper.y >= b.lower.y && a.lower.z <= b.upper.z &&
         a.upper.z >= b.lower.z;
}

bool MayMeet(uint32_t group_a, uint32_t group_b) { return group_a != group_b || (group_a & PALPATE_GROUP_SELF) != 0; }

Pairs BruteForce(const Elements& a, const Elements& b, bool within) {
  Pairs pairs;
  for (uint32_t i = 0; i < a.size(); ++i) {
    for (uint32_t j = within ? i + 1 : 0; j < b.size(); ++j) {
      if (Overlap(a.boxes[i], b.boxes[j]) && MayMeet(a.group(i), b.group(j))) pairs.emplace_back(i, j);
    }
  }
  return pairs;
}

Box BoxAt(float x, float y, float z, float rx, float ry, float rz) { return {{x - rx, y - ry, z - rz, 0}, {x + rx, y + ry, z + rz, 0}}; }

Elements RandomBoxes(uint32_t count, float extent, float size, std::mt19937& random) {
  std::uniform_real_distribution<float> place(-extent, extent);
  std::uniform_real_distribution<float> half(0, size);
  Elements elements;
  for (uint32_t i = 0; i < count; ++i) {
    elements.boxes.push_back(BoxAt(place(random), place(random), place(random), half(random), half(random), half(random)));
  }
  return elements;
}

class BoxHierarchyTest : public test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    PALPATE_TEST_ASSIGN(probe_, context()->CreateKernel(kernels::box_pairs_probe, "box_pairs_probe"));
  }
  void TearDown() override {
    probe_ = {};
    DeviceTest::TearDown();
  }

  struct Uploaded {
    DeviceBuffer<Box> boxes;
    DeviceBuffer<uint32_t> groups;
  };

  Uploaded Build(BoxHierarchy& tree, const Elements& elements) {
    Uploaded uploaded{Upload(elements.boxes), elements.groups.empty() ? DeviceBuffer<uint32_t>() : Upload(elements.groups)};
    const BufferView<uint32_t> groups = elements.groups.empty() ? BufferView<uint32_t>() : uploaded.groups.view();
    PALPATE_EXPECT_OK(tree.Build(queue(), uploaded.boxes, groups, elements.size(), elements.group_count));
    return uploaded;
  }

  // The element pairs in rising order; a pair that came twice is there twice.
  Pairs Collect(const ClusterPairs& cluster_pairs, const BoxHierarchy& a, const BoxHierarchy& b, bool within) {
    const DeviceBuffer<uint32_t> found = Upload(std::vector<uint32_t>{0});
    const uint32_t capacity = std::min(cluster_pairs.count() * 256, 1U << 24);
    const DeviceBuffer<UInt2> out = Allocate<UInt2>(capacity);
    PALPATE_EXPECT_OK(queue().Launch(probe_, {cluster_pairs.count(), 1}, Arg("cluster_pairs", cluster_pairs.pairs()),
                                     Arg("pair_count", cluster_pairs.count()), Arg("a_nodes", a.nodes()), Arg("a_groups", a.node_groups()),
                                     Arg("a_elements", a.elements()), Arg("b_nodes", b.nodes()), Arg("b_groups", b.node_groups()),
                                     Arg("b_elements", b.elements()), Arg("is_within", Int{within}), Arg("capacity", capacity),
                                     Arg("pairs", out), Arg("found", found)));
    Pairs pairs;
    const uint32_t count = Download(found)[0];
    EXPECT_LE(count, capacity);
    for (const UInt2 pair : Download(out, count)) {
      const bool swap = within && pair.x > pair.y;
      pairs.emplace_back(swap ? pair.y : pair.x, swap ? pair.x : pair.y);
    }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
  }

  void ExpectSame(const Pairs& found, const Pairs& expected) {
    Pairs missed;
    std::set_difference(expected.begin(), expected.end(), found.begin(), found.end(), std::back_inserter(missed));
    EXPECT_TRUE(missed.empty()) << missed.size() << " of " << expected.size() << " missed, first " << missed[0].first << ", "
                                << missed[0].second;
    Pairs wrong;
    std::set_difference(found.begin(), found.end(), expected.begin(), expected.end(), std::back_inserter(wrong));
    EXPECT_TRUE(wrong.empty()) << wrong.size() << " of " << found.size() << " false or double (" << expected.size() << " expected), first "
                               << wrong[0].first << ", " << wrong[0].second;
  }

  void CheckWithin(const Elements& elements, const std::string& what) {
    SCOPED_TRACE(what);
    PALPATE_TEST_ASSIGN(BoxHierarchy tree, BoxHierarchy::Create(context()));
    PALPATE_TEST_ASSIGN(ClusterPairs pairs, ClusterPairs::Create(context()));
    Build(tree, elements);
    CheckTree(tree, elements);
    PALPATE_ASSERT_OK(pairs.FindWithin(queue(), tree));
    const std::vector<UInt2> clusters = DownloadPairs(pairs);
    EXPECT_TRUE(std::is_sorted(clusters.begin(), clusters.end(), [](UInt2 a, UInt2 b) { return a.x != b.x ? a.x < b.x : a.y < b.y; }));
    EXPECT_TRUE(std::all_of(clusters.begin(), clusters.end(), [](UInt2 pair) { return pair.x <= pair.y; }));
    ExpectSame(Collect(pairs, tree, tree, true), BruteForce(elements, elements, true));
  }

  std::vector<UInt2> DownloadPairs(const ClusterPairs& pairs) {
    std::vector<UInt2> values(pairs.count());
    const DeviceBuffer<UInt2> copy = Allocate<UInt2>(pairs.count());
    if (pairs.count() == 0) return values;
    EXPECT_EQ(clEnqueueCopyBuffer(queue().handle(), pairs.pairs().handle, copy.handle(), 0, 0, copy.size_bytes(), 0, nullptr, nullptr),
              CL_SUCCESS);
    return Download(copy);
  }

  template <typename T>
  std::vector<T> DownloadView(BufferView<T> view) {
    const DeviceBuffer<T> copy = Allocate<T>(view.count);
    EXPECT_EQ(clEnqueueCopyBuffer(queue().handle(), view.handle, copy.handle(), 0, 0, copy.size_bytes(), 0, nullptr, nullptr), CL_SUCCESS);
    return Download(copy);
  }

  // Every element is in exactly one lane, padding is empty, and each lane bounds what is below it.
  void CheckTree(const BoxHierarchy& tree, const Elements& elements) {
    if (elements.size() == 0) {
      EXPECT_EQ(tree.cluster_count(), 0U);
      return;
    }
    const auto nodes = DownloadView(tree.nodes());
    const auto groups = DownloadView(tree.node_groups());
    const auto order = DownloadView(tree.elements());
    std::vector<int> seen(elements.size());
    for (uint32_t slot = 0; slot < tree.cluster_count() * 16; ++slot) {
      const uint32_t element = order[slot];
      const float lower = nodes[size_t{slot} / 16 * 96 + slot % 16];
      if (slot >= elements.size()) {
        EXPECT_EQ(element, BoxHierarchy::kNoElement);
        EXPECT_TRUE(std::isnan(lower));
        continue;
      }
      ASSERT_LT(element, elements.size());
      ++seen[element];
      EXPECT_EQ(std::bit_cast<uint32_t>(lower), std::bit_cast<uint32_t>(elements.boxes[element].lower.x));
      EXPECT_EQ(groups[slot / 16 * 32 + slot % 16], elements.group(element));
    }
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    const std::vector<uint32_t>& begins = tree.level_begins();
    ASSERT_GE(begins.size(), 3U);
    EXPECT_EQ(begins[begins.size() - 1] - begins[begins.size() - 2], 1U) << "one root";
    for (size_t level = 1; level + 1 < begins.size(); ++level) {
      for (uint32_t child = begins[level - 1]; child < begins[level]; ++child) {
        const uint32_t place = child - begins[level - 1];
        const size_t node = begins[level] + place / 16;
        for (int axis = 0; axis < 6; ++axis) {
          const float bound = nodes[node * 96 + axis * 16 + place % 16];
          float expected = kNan;
          for (int lane = 0; lane < 16; ++lane) {
            const float value = nodes[size_t{child} * 96 + axis * 16 + lane];
            expected = axis < 3 ? std::fmin(expected, value) : std::fmax(expected, value);
          }
          ASSERT_TRUE(bound == expected || (std::isnan(bound) && std::isnan(expected))) << "level " << level << " axis " << axis;
        }
        const auto first = groups.begin() + size_t{child} * 32;
        ASSERT_EQ(groups[node * 32 + place % 16], *std::min_element(first, first + 16));
        ASSERT_EQ(groups[node * 32 + 16 + place % 16], *std::max_element(first + 16, first + 32));
      }
    }
  }

  Kernel probe_;
};

TEST_F(BoxHierarchyTest, RandomBoxesEqualBruteForce) {
  std::mt19937 random(1);
  for (const uint32_t count : {0U, 1U, 2U, 15U, 16U, 17U, 255U, 256U, 257U, 300U, 4097U}) {
    CheckWithin(RandomBoxes(count, 1.0F, 0.05F, random), "random " + std::to_string(count));
  }
  CheckWithin(RandomBoxes(3000, 1e6F, 2e4F, random), "large coordinates");
  CheckWithin(RandomBoxes(3000, 1e-6F, 2e-8F, random), "small coordinates");
}

TEST_F(BoxHierarchyTest, AdversarialBoxesEqualBruteForce) {
  std::mt19937 random(2);
  Elements same;
  same.boxes.assign(700, BoxAt(1, 2, 3, 0.5F, 0.5F, 0.5F));
  CheckWithin(same, "coincident");
  Elements points;
  for (int i = 0; i < 1000; ++i) points.boxes.push_back(BoxAt(static_cast<float>(i % 10), static_cast<float>(i / 100), 0, 0, 0, 0));
  CheckWithin(points, "points, many at one place");
  Elements touching;
  for (int i = 0; i < 12 * 12 * 12; ++i) {
    touching.boxes.push_back(
        BoxAt(static_cast<float>(i % 12), static_cast<float>(i / 12 % 12), static_cast<float>(i / 144), 0.5F, 0.5F, 0.5F));
  }
  CheckWithin(touching, "a grid of touching boxes");
  Elements nested;
  for (int i = 0; i < 500; ++i) nested.boxes.push_back(BoxAt(0, 0, 0, 0.01F * i, 0.01F * i, 0.01F * i));
  CheckWithin(nested, "nested");
  Elements line;
  for (int i = 0; i < 2000; ++i) line.boxes.push_back(BoxAt(0.001F * i, 0, 0, 0.002F, 0.1F, 0.1F));
  CheckWithin(line, "a line");
  Elements uneven = RandomBoxes(2000, 1, 0.01F, random);
  uneven.boxes[1234] = BoxAt(0, 0, -1, 100, 100, 0.02F);
  uneven.boxes[77] = BoxAt(0, 0, 0, 1e30F, 1e30F, 1e30F);
  CheckWithin(uneven, "two huge boxes among small ones");
  Elements zeros;
  for (int i = 0; i < 40; ++i) zeros.boxes.push_back({{0, i % 2 != 0 ? -0.0F : 0.0F, 0, 0}, {i % 3 != 0 ? 0.0F : -0.0F, 0, 0, 0}});
  CheckWithin(zeros, "zeros of both signs");
}

TEST_F(BoxHierarchyTest, InfiniteEmptyAndNanBoxesEqualBruteForce) {
  std::mt19937 random(3);
  Elements elements = RandomBoxes(500, 1, 0.1F, random);
  elements.boxes[3] = {{-kInfinity, -kInfinity, -kInfinity, 0}, {kInfinity, kInfinity, kInfinity, 0}};
  elements.boxes[50] = {{kInfinity, kInfinity, kInfinity, 0}, {-kInfinity, -kInfinity, -kInfinity, 0}};
  elements.boxes[99] = {{0.5F, 0, 0, 0}, {kInfinity, 1, 1, 0}};
  elements.boxes[200].lower.y = kNan;
  elements.boxes[201] = {{kNan, kNan, kNan, kNan}, {kNan, kNan, kNan, kNan}};
  elements.boxes[300] = BoxAt(3e38F, -3e38F, 0, 1e37F, 1e37F, 1);
  CheckWithin(elements, "mixed");
  Elements hopeless;
  hopeless.boxes.assign(33, elements.boxes[201]);
  CheckWithin(hopeless, "NaN only");
  // A NaN hides its element alone, not its neighbours.
  const Pairs expected = BruteForce(elements, elements, true);
  EXPECT_TRUE(std::none_of(expected.begin(), expected.end(), [](const auto& pair) { return pair.first == 200 || pair.second == 200; }));
}

TEST_F(BoxHierarchyTest, GroupsMeetOthersAndThemselvesOnlyIfTheySaySo) {
  std::mt19937 random(4);
  for (const uint32_t bodies : {2U, 3U, 40U, 256U, 257U, 5000U}) {
    Elements elements = RandomBoxes(3000, 1, 0.08F, random);
    elements.group_count = bodies;
    std::vector<uint32_t> group_of(bodies);
    for (uint32_t body = 0; body < bodies; ++body) group_of[body] = random() % 2 != 0 ? body | PALPATE_GROUP_SELF : body;
    for (uint32_t i = 0; i < elements.size(); ++i) elements.groups.push_back(group_of[i * uint64_t{bodies} / elements.size()]);
    CheckWithin(elements, std::to_string(bodies) + " bodies in a row");
    std::shuffle(elements.groups.begin(), elements.groups.end(), random);
    CheckWithin(elements, std::to_string(bodies) + " bodies mixed");
  }
  Elements alone = RandomBoxes(500, 1, 0.5F, random);
  alone.groups.assign(alone.size(), 0);
  CheckWithin(alone, "one body that does not meet itself");
}

TEST_F(BoxHierarchyTest, PurelyForeignClustersAreCulled) {
  std::mt19937 random(5);
  Elements alone = RandomBoxes(4000, 1, 0.3F, random);
  alone.groups.assign(alone.size(), 7);
  alone.group_count = 8;
  PALPATE_TEST_ASSIGN(BoxHierarchy tree, BoxHierarchy::Create(context()));
  PALPATE_TEST_ASSIGN(ClusterPairs pairs, ClusterPairs::Create(context()));
  Build(tree, alone);
  PALPATE_ASSERT_OK(pairs.FindWithin(queue(), tree));
  EXPECT_EQ(pairs.count(), 0U) << "a body that may not meet itself costs no cluster pair";
}

TEST_F(BoxHierarchyTest, TwoHierarchiesEqualBruteForce) {
  std::mt19937 random(6);
  PALPATE_TEST_ASSIGN(BoxHierarchy tree_a, BoxHierarchy::Create(context()));
  PALPATE_TEST_ASSIGN(BoxHierarchy tree_b, BoxHierarchy::Create(context()));
  PALPATE_TEST_ASSIGN(ClusterPairs pairs, ClusterPairs::Create(context()));
  // Growing and shrinking inputs through the same objects.
  for (const auto& [count_a, count_b] :
       std::vector<std::pair<uint32_t, uint32_t>>{{1, 1}, {5000, 3}, {3, 5000}, {700, 900}, {0, 10}, {40, 0}}) {
    Elements a = RandomBoxes(count_a, 1, 0.1F, random);
    Elements b = RandomBoxes(count_b, 1, 0.05F, random);
    a.group_count = b.group_count = 4;
    for (Elements* elements : {&a, &b}) {
      for (uint32_t i = 0; i < elements->size(); ++i) elements->groups.push_back(i % 4 == 1 ? 1 | PALPATE_GROUP_SELF : i % 4);
    }
    const Uploaded in_a = Build(tree_a, a);
    const Uploaded in_b = Build(tree_b, b);
    PALPATE_ASSERT_OK(pairs.FindBetween(queue(), tree_a, tree_b));
    ExpectSame(Collect(pairs, tree_a, tree_b, false), BruteForce(a, b, false));
  }
}

TEST_F(BoxHierarchyTest, SameInputGivesTheSameBitsAndClustersAreLocal) {
  std::mt19937 random(7);
  const Elements elements = RandomBoxes(20000, 1, 0.002F, random);
  PALPATE_TEST_ASSIGN(BoxHierarchy first, BoxHierarchy::Create(context()));
  PALPATE_TEST_ASSIGN(BoxHierarchy second, BoxHierarchy::Create(context()));
  PALPATE_TEST_ASSIGN(ClusterPairs pairs, ClusterPairs::Create(context()));
  Build(first, elements);
  Build(second, elements);
  EXPECT_EQ(DownloadView(first.elements()), DownloadView(second.elements()));
  PALPATE_ASSERT_OK(pairs.FindWithin(queue(), first));
  // Packed along a Hilbert curve, a cluster of a uniform cloud meets a few dozen others; in input order it would meet all 1,250.
  EXPECT_LT(pairs.count(), first.cluster_count() * 30);
}

TEST_F(BoxHierarchyTest, HilbertOrderVisitsNeighbouringCells) {
  Elements elements;
  for (int x = 0; x < 16; ++x) {
    for (int y = 0; y < 16; ++y) {
      for (int z = 0; z < 16; ++z)
        elements.boxes.push_back(BoxAt(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z), 0, 0, 0));
    }
  }
  std::shuffle(elements.boxes.begin(), elements.boxes.end(), std::mt19937(8));
  PALPATE_TEST_ASSIGN(BoxHierarchy tree, BoxHierarchy::Create(context()));
  Build(tree, elements);
  const auto order = DownloadView(tree.elements());
  for (size_t i = 1; i < elements.size(); ++i) {
    const Float4 a = elements.boxes[order[i - 1]].lower;
    const Float4 b = elements.boxes[order[i]].lower;
    ASSERT_EQ(std::abs(a.x - b.x) + std::abs(a.y - b.y) + std::abs(a.z - b.z), 1.0F) << "step " << i;
  }
}

TEST_F(BoxHierarchyTest, TooManyPairsAndBadInputAreRefused) {
  Elements same;
  same.boxes.assign(16 * 200, BoxAt(0, 0, 0, 1, 1, 1));
  PALPATE_TEST_ASSIGN(BoxHierarchy tree, BoxHierarchy::Create(context()));
  PALPATE_TEST_ASSIGN(ClusterPairs few, ClusterPairs::Create(context(), 1000));
  const Uploaded in = Build(tree, same);
  const absl::Status status = few.FindWithin(queue(), tree);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("more than max_cluster_pairs = 1000 "), std::string::npos) << status;
  EXPECT_EQ(few.count(), 0U);
  // 200 clusters in one place: exactly as many pairs as that is allowed, one fewer is not.
  PALPATE_TEST_ASSIGN(ClusterPairs enough, ClusterPairs::Create(context(), 20100));
  PALPATE_EXPECT_OK(enough.FindWithin(queue(), tree));
  EXPECT_EQ(enough.count(), 20100U);
  PALPATE_TEST_ASSIGN(ClusterPairs one_less, ClusterPairs::Create(context(), 20099));
  EXPECT_TRUE(absl::IsResourceExhausted(one_less.FindWithin(queue(), tree)));
  EXPECT_TRUE(absl::IsInvalidArgument(tree.Build(queue(), in.boxes, {}, 16 * 200 + 1, 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(tree.Build(queue(), in.boxes, {}, (1U << 26) + 1, 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(tree.Build(queue(), in.boxes, Allocate<uint32_t>(5), 6, 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(ClusterPairs::Create(context(), 1ULL << 32).status()));
}

}  // namespace
}  // namespace palpate::gpu::box_hierarchy_test
