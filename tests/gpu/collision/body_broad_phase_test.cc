#include "gpu/collision/body_broad_phase.h"

#include <CL/cl.h>

#include <cstdio>
#include <map>
#include <memory>

#include "Eigen/Dense"
#include "tests/gpu/collision/volume_support.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::body_broad_phase_test {
namespace {

#ifdef PALPATE_NATIVE_KERNELS
constexpr uint32_t kBodies = 70;
#else
constexpr uint32_t kBodies = 700;
#endif

constexpr std::array kMethods = {BroadPhaseMethod::kSweep, BroadPhaseMethod::kHierarchy, BroadPhaseMethod::kAllPairs,
                                 BroadPhaseMethod::kAutomatic};

const char* Name(BroadPhaseMethod method) {
  constexpr std::array kNames = {"automatic", "sweep", "hierarchy", "all pairs"};
  return kNames[static_cast<size_t>(method)];
}

class BodyBroadPhaseTest : public test::DeviceTest {
 protected:
  DeviceBuffer<float> Build(BoundingVolume volume, const TestBodies& bodies) {
    auto builder = VolumeBuilder::Create(context(), volume);
    EXPECT_TRUE(builder.ok()) << builder.status();
    auto volumes = Allocate<float>(size_t{bodies.count()} * FloatsPerVolume(volume));
    if (!builder.ok()) return volumes;
    const auto vertices = Upload(bodies.vertices);
    const auto begins = Upload(bodies.begins);
    PALPATE_EXPECT_OK(builder->Build(queue(), vertices, begins, bodies.count(), bodies.vertex_count(), volumes));
    PALPATE_EXPECT_OK(queue().FinishBlocking());
    return volumes;
  }

  void TearDown() override {
    phases_.clear();
    DeviceTest::TearDown();
  }

  // The same one for all worlds of a test, so that each finds what the last one left.
  BodyBroadPhase& PhaseOf(BoundingVolume volume, BroadPhaseMethod method) {
    auto& phase = phases_[{volume, method}];
    if (phase == nullptr) {
      auto created = BodyBroadPhase::Create(context(), {.volume = volume, .method = method});
      EXPECT_TRUE(created.ok()) << created.status();
      phase = std::make_unique<BodyBroadPhase>(*std::move(created));
    }
    return *phase;
  }

  std::vector<UInt2> Pairs(const BodyBroadPhase& phase) {
    std::vector<UInt2> pairs(phase.pair_count());
    if (!pairs.empty()) {
      EXPECT_EQ(clEnqueueReadBuffer(queue().handle(), phase.pairs().handle, CL_TRUE, 0, pairs.size() * sizeof(UInt2), pairs.data(), 0,
                                    nullptr, nullptr),
                CL_SUCCESS);
    }
    return pairs;
  }

  std::map<std::pair<BoundingVolume, BroadPhaseMethod>, std::unique_ptr<BodyBroadPhase>> phases_;

  // Every volume, every method, against brute force.
  void CheckWorld(const std::string& name, const TestBodies& bodies, const std::vector<uint32_t>& filters = {}) {
    for (const BoundingVolume volume : kBoundingVolumes) {
      const auto volumes = Build(volume, bodies);
      const PairSet expected = BruteForcePairs(volume, Download(volumes), filters);
      const auto filter_buffer = Upload(filters);
      for (const BroadPhaseMethod method : kMethods) {
        BodyBroadPhase& phase = PhaseOf(volume, method);
        // The second run finds its buffers grown.
        for (int run = 0; run < 2; ++run) {
          PALPATE_ASSERT_OK(phase.Run(queue(), volumes, filters.empty() ? BufferView<uint32_t>() : filter_buffer.view(), bodies.count()));
          ASSERT_EQ(ToPairSet(Pairs(phase)), expected) << name << ", " << BoundingVolumeName(volume) << ", " << Name(method);
        }
      }
    }
  }
};

TEST_F(BodyBroadPhaseTest, EqualsBruteForce) {
  for (const auto& [name, bodies] : TestWorlds(kBodies, 1)) {
    CheckWorld(name, bodies);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_F(BodyBroadPhaseTest, SizesAroundClustersEqualBruteForce) {
  for (const uint32_t size : {3U, 15U, 31U, 32U, 33U, 255U, 256U, 257U}) {
    const auto worlds = TestWorlds(size, size);
    CheckWorld(worlds[0].first, worlds[0].second);
    ASSERT_FALSE(HasFatalFailure());
  }
}

// F14: the axis changes the work, never the pairs.
TEST_F(BodyBroadPhaseTest, AnyAxisGivesTheSamePairs) {
  for (const auto& [name, bodies] : TestWorlds(kBodies / 2, 2)) {
    for (const BoundingVolume volume : kBoundingVolumes) {
      const auto volumes = Build(volume, bodies);
      const PairSet expected = BruteForcePairs(volume, Download(volumes));
      PALPATE_TEST_ASSIGN(SweepAndPrune sweep, SweepAndPrune::Create(context(), volume));
      PALPATE_TEST_ASSIGN(PairList list, PairList::Create(context(), 1 << 28));
      for (uint32_t axis = 0; axis < SweepAxisCount(volume); ++axis) {
        PALPATE_ASSERT_OK(list.Begin(queue(), bodies.count()));
        PALPATE_ASSERT_OK(sweep.Prepare(queue(), volumes, bodies.count(), axis, list));
        PALPATE_TEST_ASSIGN(const uint64_t tiles, sweep.ReadTileCount(queue()));
        for (bool is_complete = false; !is_complete;) {
          PALPATE_ASSERT_OK(sweep.Emit(queue(), {}, list));
          PALPATE_TEST_ASSIGN(is_complete, list.Complete(queue()));
        }
        EXPECT_EQ(sweep.tile_count(), tiles);
        PALPATE_ASSERT_OK(list.Sort(queue()));
        std::vector<UInt2> pairs(list.count());
        if (!pairs.empty()) {
          ASSERT_EQ(clEnqueueReadBuffer(queue().handle(), list.pairs().handle, CL_TRUE, 0, pairs.size() * sizeof(UInt2), pairs.data(), 0,
                                        nullptr, nullptr),
                    CL_SUCCESS);
        }
        ASSERT_EQ(ToPairSet(pairs), expected) << name << ", " << BoundingVolumeName(volume) << ", axis " << axis;
      }
    }
  }
}

TEST_F(BodyBroadPhaseTest, FiltersForbidPairs) {
  std::mt19937 random(3);
  for (const auto& [name, bodies] : TestWorlds(kBodies / 2, 3)) {
    std::vector<uint32_t> filters;
    for (uint32_t i = 0; i < bodies.count(); ++i) {
      filters.push_back((random() % 3 == 0 ? PALPATE_BODY_STATIC : 0) | random() % 4);
    }
    if (filters.empty()) continue;
    CheckWorld(name, bodies, filters);
    ASSERT_FALSE(HasFatalFailure());
  }
}

// The list begins small: many more pairs than bodies.
TEST_F(BodyBroadPhaseTest, AListThatIsTooSmallGrows) {
  TestBodies bodies;
  for (uint32_t i = 0; i < kBodies; ++i) bodies.AddBox({0, 0, static_cast<float>(i % 2) * 3, 0}, {0.5F, 0.5F, 0.5F, 0});
  CheckWorld("two heaps", bodies);
}

TEST_F(BodyBroadPhaseTest, PairsPastTheLimitAreAnErrorWithTheirNumber) {
  TestBodies bodies;
  for (uint32_t i = 0; i < 60; ++i) bodies.AddBox({0, 0, 0, 0}, {0.5F, 0.5F, 0.5F, 0});
  const auto volumes = Build(BoundingVolume::kDop6, bodies);
  for (const BroadPhaseMethod method : kMethods) {
    PALPATE_TEST_ASSIGN(BodyBroadPhase phase,
                        BodyBroadPhase::Create(context(), {.volume = BoundingVolume::kDop6, .method = method, .max_pairs = 1000}));
    const absl::Status status = phase.Run(queue(), volumes, {}, 60);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_NE(status.message().find("1770 pairs"), std::string::npos) << status;
    EXPECT_EQ(phase.pair_count(), 0U);
    // It goes on after that.
    PALPATE_ASSERT_OK(phase.Run(queue(), volumes, {}, 40));
    EXPECT_EQ(phase.pair_count(), 780U);
  }
}

TEST_F(BodyBroadPhaseTest, VolumesThatAreNotFiniteAreRefusedByName) {
  const float kInfinity = std::numeric_limits<float>::infinity();
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto worlds = TestWorlds(kBodies, 5);
  const TestBodies& good = worlds[0].second;
  for (const BoundingVolume volume : kBoundingVolumes) {
    const std::vector<float> good_volumes = Download(Build(volume, good));
    const size_t stride = FloatsPerVolume(volume);
    for (const BroadPhaseMethod method : kMethods) {
      PALPATE_TEST_ASSIGN(BodyBroadPhase phase, BodyBroadPhase::Create(context(), {.volume = volume, .method = method}));
      for (const float bad : {kNan, kInfinity, -kInfinity, -kNan}) {
        for (const size_t place : {size_t{0}, stride / 2, stride - 1}) {
          if (volume == BoundingVolume::kSphere && place == 3 && bad == -kInfinity) continue;  // that is the empty sphere
          std::vector<float> bad_volumes = good_volumes;
          bad_volumes[41 * stride + place] = bad;
          bad_volumes[57 * stride + place] = bad;
          const auto volumes = Upload(bad_volumes);
          const absl::Status status = phase.Run(queue(), volumes, {}, good.count());
          EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
          EXPECT_NE(status.message().find("body 41 "), std::string::npos) << status;
          EXPECT_EQ(phase.pair_count(), 0U);
        }
      }
      if (volume != BoundingVolume::kSphere) {
        std::vector<float> bad_volumes = good_volumes;
        std::swap(bad_volumes[41 * stride + 1], bad_volumes[41 * stride + stride / 2 + 1]);
        const auto volumes = Upload(bad_volumes);
        EXPECT_TRUE(absl::IsInvalidArgument(phase.Run(queue(), volumes, {}, good.count())));
      }
      const auto volumes = Upload(good_volumes);
      PALPATE_ASSERT_OK(phase.Run(queue(), volumes, {}, good.count()));
      EXPECT_EQ(ToPairSet(Pairs(phase)), BruteForcePairs(volume, good_volumes));
    }
  }
}

TEST_F(BodyBroadPhaseTest, WrongArgumentsAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(BodyBroadPhase::Create(context(), {.axis_drift = 1}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(BodyBroadPhase::Create(context(), {.max_pairs = uint64_t{1} << 32}).status()));
  PALPATE_TEST_ASSIGN(BodyBroadPhase phase, BodyBroadPhase::Create(context(), {.volume = BoundingVolume::kDop6}));
  const auto volumes = Upload(std::vector<float>(11));
  const auto filters = Upload(std::vector<uint32_t>(1));
  const auto enough = Upload(std::vector<float>(12));
  EXPECT_TRUE(absl::IsInvalidArgument(phase.Run(queue(), volumes, {}, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(phase.Run(queue(), enough, filters, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(phase.Run(queue(), enough, {}, BodyBroadPhase::kMaxBodies + 1)));
  PALPATE_TEST_ASSIGN(SweepAndPrune sweep, SweepAndPrune::Create(context(), BoundingVolume::kDop6));
  PALPATE_TEST_ASSIGN(PairList list, PairList::Create(context(), 100));
  PALPATE_ASSERT_OK(list.Begin(queue(), 2));
  EXPECT_TRUE(absl::IsInvalidArgument(sweep.Prepare(queue(), enough, 2, 3, list)));
}

// The axis follows the bodies: at its period, and at once when the work drifts.
TEST_F(BodyBroadPhaseTest, TheAxisIsChosenAgain) {
  const auto column = [&](int direction, float spacing) {
    TestBodies bodies;
    for (uint32_t i = 0; i < 200; ++i) {
      const float s = spacing * static_cast<float>(i);
      bodies.AddBox({direction == 0 ? s : 0, direction == 1 ? s : 0, direction == 2 ? s : 0, 0}, {0.5F, 0.5F, 0.5F, 0});
    }
    return bodies;
  };
  const auto along_x = Build(BoundingVolume::kDop18, column(0, 2));
  const auto along_y = Build(BoundingVolume::kDop18, column(1, 2));
  const auto along_xy = Build(BoundingVolume::kDop18, column(0, 2.1F));
  {
    PALPATE_TEST_ASSIGN(BodyBroadPhase phase,
                        BodyBroadPhase::Create(context(), {.method = BroadPhaseMethod::kSweep, .axis_period = 5, .axis_drift = 1e9}));
    PALPATE_ASSERT_OK(phase.Run(queue(), along_y, {}, 200));
    EXPECT_EQ(phase.statistics().axis, 1U);
    EXPECT_EQ(phase.statistics().axis_changes, 1U);
    const uint64_t few_tiles = phase.statistics().tile_count;
    for (int run = 1; run < 5; ++run) {
      PALPATE_ASSERT_OK(phase.Run(queue(), along_x, {}, 200));
      EXPECT_EQ(phase.statistics().axis, 1U) << run;
      EXPECT_GT(phase.statistics().tile_count, 4 * few_tiles);
    }
    PALPATE_ASSERT_OK(phase.Run(queue(), along_x, {}, 200));
    EXPECT_EQ(phase.statistics().axis, 0U);
    EXPECT_EQ(phase.statistics().axis_changes, 2U);
    EXPECT_EQ(phase.statistics().tile_count, few_tiles);
  }
  {
    PALPATE_TEST_ASSIGN(BodyBroadPhase phase, BodyBroadPhase::Create(context(), {.method = BroadPhaseMethod::kSweep, .axis_period = 0}));
    PALPATE_ASSERT_OK(phase.Run(queue(), along_y, {}, 200));
    PALPATE_ASSERT_OK(phase.Run(queue(), along_x, {}, 200));  // the work has drifted: seen at its end
    EXPECT_EQ(phase.statistics().axis, 1U);
    PALPATE_ASSERT_OK(phase.Run(queue(), along_x, {}, 200));
    EXPECT_EQ(phase.statistics().axis, 0U);
    PALPATE_ASSERT_OK(phase.Run(queue(), along_xy, {}, 200));
    EXPECT_EQ(phase.statistics().axis_changes, 2U);
    // No spread, no axis: the old one stays.
    TestBodies heap;
    for (int i = 0; i < 200; ++i) heap.AddBox({7, 7, 7, 0}, {1, 1, 1, 0});
    const auto at_one_point = Build(BoundingVolume::kDop18, heap);
    for (int run = 0; run < 3; ++run) PALPATE_ASSERT_OK(phase.Run(queue(), at_one_point, {}, 200));
    EXPECT_EQ(phase.statistics().axis, 0U);
    EXPECT_EQ(phase.statistics().axis_changes, 2U);
  }
}

#ifndef PALPATE_NATIVE_KERNELS
TEST_F(BodyBroadPhaseTest, AutomaticTakesAllPairsOfFewTheSweepForMoreAndTheHierarchyForMany) {
  for (const auto& [size, method] : {std::pair{500U, BroadPhaseMethod::kAllPairs}, std::pair{2500U, BroadPhaseMethod::kSweep},
                                     std::pair{60000U, BroadPhaseMethod::kHierarchy}}) {
    std::mt19937 random(size);
    std::uniform_real_distribution<float> coordinate(0, std::cbrt(4.0F * static_cast<float>(size)));
    TestBodies bodies;
    for (uint32_t i = 0; i < size; ++i)
      bodies.AddBox({coordinate(random), coordinate(random), coordinate(random), 0}, {0.5F, 0.5F, 0.5F, 0});
    const auto volumes = Build(BoundingVolume::kDop6, bodies);
    PALPATE_TEST_ASSIGN(BodyBroadPhase automatic, BodyBroadPhase::Create(context(), {.volume = BoundingVolume::kDop6}));
    PALPATE_TEST_ASSIGN(BodyBroadPhase sweep,
                        BodyBroadPhase::Create(context(), {.volume = BoundingVolume::kDop6, .method = BroadPhaseMethod::kSweep}));
    PALPATE_ASSERT_OK(automatic.Run(queue(), volumes, {}, size));
    PALPATE_ASSERT_OK(sweep.Run(queue(), volumes, {}, size));
    EXPECT_EQ(automatic.statistics().method, method);
    EXPECT_GT(automatic.pair_count(), size / 2);
    EXPECT_EQ(ToPairSet(Pairs(automatic)), ToPairSet(Pairs(sweep)));
  }
}
#endif

// Bodies of 24 vertices, the permutations of (+-1, +-c, +-c), stretched and rotated: Amaral 2021, section 12.1.
std::vector<Eigen::Vector3d> BevelledCube(const Eigen::Vector3d& scale) {
  const double c = 0.179303;
  std::vector<Eigen::Vector3d> vertices;
  for (int axis = 0; axis < 3; ++axis) {
    for (int signs = 0; signs < 8; ++signs) {
      Eigen::Vector3d v(signs & 1 ? c : -c, signs & 2 ? c : -c, signs & 4 ? c : -c);
      v[axis] /= c;
      vertices.emplace_back(scale.cwiseProduct(v));
    }
  }
  return vertices;
}

// Face normals (one of each opposite pair) and edge directions of the bevelled cube, before rotation.
void Features(const Eigen::Vector3d& scale, std::vector<Eigen::Vector3d>* normals, std::vector<Eigen::Vector3d>* edges) {
  const std::vector<Eigen::Vector3d> vertices = BevelledCube(scale);
  const Eigen::Vector3d inverse = scale.cwiseInverse();
  for (int x = -1; x <= 1; ++x) {
    for (int y = -1; y <= 1; ++y) {
      for (int z = -1; z <= 1; ++z) {
        if (x * 9 + y * 3 + z > 0) normals->push_back(inverse.cwiseProduct(Eigen::Vector3d(x, y, z)).normalized());
      }
    }
  }
  // Edges join the nearest vertices: along the sides of the faces +-x, +-y, +-z (length 2c) and across the bevels (length sqrt(2) (1 - c)).
  for (int axis = 0; axis < 3; ++axis) edges->push_back(Eigen::Vector3d::Unit(axis));
  for (int axis = 0; axis < 3; ++axis) {
    for (const int sign : {-1, 1}) {
      Eigen::Vector3d d = Eigen::Vector3d::Zero();
      d[axis] = 1;
      d[(axis + 1) % 3] = sign;
      edges->push_back(scale.cwiseProduct(d));
    }
  }
}

struct RotatedBody {
  std::vector<Eigen::Vector3d> vertices, normals, edges;
};

bool SeparatedAlong(const RotatedBody& a, const RotatedBody& b, const Eigen::Vector3d& axis) {
  double a_low = 1e300, a_high = -1e300, b_low = 1e300, b_high = -1e300;
  for (const auto& v : a.vertices) {
    a_low = std::min(a_low, v.dot(axis));
    a_high = std::max(a_high, v.dot(axis));
  }
  for (const auto& v : b.vertices) {
    b_low = std::min(b_low, v.dot(axis));
    b_high = std::max(b_high, v.dot(axis));
  }
  return a_high < b_low || b_high < a_low;
}

// The separating axis theorem: exact up to rounding of doubles.
bool ConvexBodiesMeet(const RotatedBody& a, const RotatedBody& b) {
  for (const auto& n : a.normals) {
    if (SeparatedAlong(a, b, n)) return false;
  }
  for (const auto& n : b.normals) {
    if (SeparatedAlong(a, b, n)) return false;
  }
  for (const auto& e : a.edges) {
    for (const auto& f : b.edges) {
      const Eigen::Vector3d axis = e.cross(f);
      if (axis.norm() > 1e-9 && SeparatedAlong(a, b, axis)) return false;
    }
  }
  return true;
}

// Largest gap of two oriented boxes over the 15 axes of the separating axis theorem, in double; negative if they overlap.
double OrientedGap(const float* a, const float* b) {
  const auto vector = [](const float* v) { return Eigen::Vector3d(v[0], v[1], v[2]); };
  const Eigen::Vector3d apart = vector(b + 6) - vector(a + 6);
  std::vector<Eigen::Vector3d> axes;
  for (int i = 0; i < 3; ++i) {
    axes.push_back(vector(a + 12 + 3 * i));
    axes.push_back(vector(b + 12 + 3 * i));
    for (int j = 0; j < 3; ++j) axes.push_back(vector(a + 12 + 3 * i).cross(vector(b + 12 + 3 * j)));
  }
  double gap = -1e300;
  for (const Eigen::Vector3d& axis : axes) {
    if (axis.norm() < 1e-5) continue;  // the others decide
    double reach = 0;
    for (int i = 0; i < 3; ++i) {
      reach += a[9 + i] * std::abs(vector(a + 12 + 3 * i).dot(axis)) + b[9 + i] * std::abs(vector(b + 12 + 3 * i).dot(axis));
    }
    gap = std::max(gap, (std::abs(apart.dot(axis)) - reach) / axis.norm());
  }
  return gap;
}

// F20: what the device finds is what overlaps in double, but for pairs within rounding of touching. Boxes side by side, end to end and
// crossed, whose axes are parallel or nearly so, are the hard ones.
TEST_F(BodyBroadPhaseTest, OrientedBoxesOverlapAsInDouble) {
  std::mt19937_64 random(14);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(-1, 1);
  TestBodies bodies;
  for (uint32_t i = 0; i < kBodies; ++i) {
    Eigen::Quaterniond q = Eigen::Quaterniond(normal(random), normal(random), normal(random), normal(random)).normalized();
    if (i % 3 == 1) q = Eigen::AngleAxisd(1e-4 * normal(random), Eigen::Vector3d::UnitX()) * Eigen::Quaterniond(1, 1, 0, 0).normalized();
    const Eigen::Vector3d half(0.2, 0.7, i % 7 == 0 ? 6 : 2);
    Eigen::Vector3d centre(uniform(random), uniform(random), uniform(random));
    centre *= 1.6 * std::cbrt(static_cast<double>(kBodies));
    if (i % 3 == 1) centre = centre.array().round();
    std::vector<Float4> corners;
    for (int c = 0; c < 8; ++c) {
      const Eigen::Vector3d corner(c & 1 ? half.x() : -half.x(), c & 2 ? half.y() : -half.y(), c & 4 ? half.z() : -half.z());
      const Eigen::Vector3f p = (q * corner + centre).cast<float>();
      corners.push_back({p.x(), p.y(), p.z(), 0});
    }
    bodies.Add(corners);
  }
  const auto volumes = Build(BoundingVolume::kOrientedBox, bodies);
  const std::vector<float> host = Download(volumes);
  for (const BroadPhaseMethod method : kMethods) {
    BodyBroadPhase& phase = PhaseOf(BoundingVolume::kOrientedBox, method);
    PALPATE_ASSERT_OK(phase.Run(queue(), volumes, {}, bodies.count()));
    const PairSet found = ToPairSet(Pairs(phase));
    size_t overlapping = 0;
    for (uint32_t a = 0; a < bodies.count(); ++a) {
      for (uint32_t b = a + 1; b < bodies.count(); ++b) {
        double gap = OrientedGap(&host[a * 21], &host[b * 21]);
        for (size_t i = 0; i < 3; ++i) {
          gap = std::max({gap, double{host[a * 21 + i]} - host[b * 21 + 3 + i], double{host[b * 21 + i]} - host[a * 21 + 3 + i]});
        }
        const bool is_found = std::binary_search(found.begin(), found.end(), std::pair(a, b));
        if (gap <= 0) {
          ++overlapping;
          ASSERT_TRUE(is_found) << a << " and " << b << " overlap by " << -gap;
        } else if (gap > 2e-4) {  // slack over the length of a product of nearly parallel axes
          ASSERT_FALSE(is_found) << a << " and " << b << " are " << gap << " apart";
        }
      }
    }
    EXPECT_GT(overlapping, kBodies / 10);
    EXPECT_GT(found.size(), 0U);
  }
}

// F24: a small body that is before a thin plate at the start of a step and behind it at the end meets its swept volume, whatever else
// moves.
TEST_F(BodyBroadPhaseTest, SweptVolumesMeetWhatIsPassedThrough) {
  std::mt19937 random(15);
  std::uniform_real_distribution<float> uniform(-1, 1);
  TestBodies start, end;
  const auto add = [](TestBodies& bodies, Float4 centre, Float4 half) {
    std::vector<Float4> corners;
    for (int c = 0; c < 8; ++c) {
      corners.push_back(
          {centre.x + (c & 1 ? half.x : -half.x), centre.y + (c & 2 ? half.y : -half.y), centre.z + (c & 4 ? half.z : -half.z), 0});
    }
    bodies.Add(corners);
  };
  add(start, {0, 0, 0, 0}, {20, 20, 0.01F, 0});
  add(end, {0, 0, 0, 0}, {20, 20, 0.01F, 0});
  for (uint32_t i = 1; i < kBodies; ++i) {
    const Float4 from = {15 * uniform(random), 15 * uniform(random), 30 + 20 * uniform(random), 0};
    // Every other one passes through; the rest move along the plate, above it.
    const Float4 to = {from.x + 3 * uniform(random), from.y + 3 * uniform(random), i % 2 == 0 ? -from.z : from.z + uniform(random), 0};
    add(start, from, {0.1F, 0.1F, 0.1F, 0});
    add(end, to, {0.1F, 0.1F, 0.1F, 0});
  }
  const auto start_vertices = Upload(start.vertices);
  const auto end_vertices = Upload(end.vertices);
  const auto begins = Upload(start.begins);
  for (const BoundingVolume volume : kBoundingVolumes) {
    PALPATE_TEST_ASSIGN(VolumeBuilder builder, VolumeBuilder::Create(context(), volume));
    const auto volumes = Allocate<float>(size_t{kBodies} * FloatsPerVolume(volume));
    PALPATE_ASSERT_OK(builder.BuildSwept(queue(), start_vertices, end_vertices, begins, kBodies, start.vertex_count(), volumes));
    const std::vector<float> host = Download(volumes);
    BodyBroadPhase& phase = PhaseOf(volume, BroadPhaseMethod::kAutomatic);
    PALPATE_ASSERT_OK(phase.Run(queue(), volumes, {}, kBodies));
    const PairSet pairs = ToPairSet(Pairs(phase));
    EXPECT_EQ(pairs, BruteForcePairs(volume, host)) << BoundingVolumeName(volume);
    for (uint32_t i = 1; i < kBodies; ++i) {
      const bool meets = std::binary_search(pairs.begin(), pairs.end(), std::pair(0U, i));
      if (i % 2 == 0) {
        ASSERT_TRUE(meets) << BoundingVolumeName(volume) << ", body " << i;
      } else if (volume != BoundingVolume::kSphere) {
        ASSERT_FALSE(meets) << BoundingVolumeName(volume) << ", body " << i;
      }
    }
    // At rest there is nothing to sweep: the pairs are those of the bodies as they are.
    PALPATE_ASSERT_OK(builder.BuildSwept(queue(), start_vertices, start_vertices, begins, kBodies, start.vertex_count(), volumes));
    PALPATE_ASSERT_OK(phase.Run(queue(), volumes, {}, kBodies));
    const PairSet at_rest = ToPairSet(Pairs(phase));
    const auto still = Build(volume, start);
    EXPECT_EQ(at_rest, BruteForcePairs(volume, Download(still))) << BoundingVolumeName(volume);
    EXPECT_TRUE(absl::IsInvalidArgument(
        builder.BuildSwept(queue(), start_vertices, end_vertices, begins, kBodies, start.vertex_count() + 1, volumes)));
  }
}

// F15, F19, section 12.3: on bodies of (2,6,2) no contact is missed, and the 18-DOP has at most 60% of the box's candidates.
TEST_F(BodyBroadPhaseTest, ElongatedBodiesMissNoContact) {
  for (const Eigen::Vector3d& scale : {Eigen::Vector3d(2, 2, 2), Eigen::Vector3d(2, 6, 2)}) {
    const bool is_elongated = scale.y() > 2;
    std::mt19937_64 random(12);
    std::normal_distribution<double> normal;
    const uint32_t count = kBodies;
    // About as many bounding spheres overlap as there are bodies.
    std::uniform_real_distribution<double> place(0, (is_elongated ? 12.0 : 4.1) * std::cbrt(4.2 * count / 4));
    std::vector<Eigen::Vector3d> normals, edges;
    Features(scale, &normals, &edges);
    std::vector<RotatedBody> shapes(count);
    TestBodies bodies;
    for (RotatedBody& shape : shapes) {
      const Eigen::Quaterniond q = Eigen::Quaterniond(normal(random), normal(random), normal(random), normal(random)).normalized();
      const Eigen::Vector3d centre(place(random), place(random), place(random));
      std::vector<Float4> body;
      for (const auto& v : BevelledCube(scale)) {
        const Eigen::Vector3f p = (q * v + centre).cast<float>();
        body.push_back({p.x(), p.y(), p.z(), 0});
        shape.vertices.push_back(p.cast<double>());
      }
      for (const auto& n : normals) shape.normals.push_back(q * n);
      for (const auto& e : edges) shape.edges.push_back(q * e);
      bodies.Add(body);
    }
    std::map<BoundingVolume, PairSet> candidates;
    for (const BoundingVolume volume : kBoundingVolumes) {
      const auto volumes = Build(volume, bodies);
      PALPATE_TEST_ASSIGN(BodyBroadPhase phase, BodyBroadPhase::Create(context(), {.volume = volume}));
      PALPATE_ASSERT_OK(phase.Run(queue(), volumes, {}, count));
      candidates[volume] = ToPairSet(Pairs(phase));
    }
    PairSet contacts;
    for (uint32_t a = 0; a < count; ++a) {
      for (uint32_t b = a + 1; b < count; ++b) {
        if ((shapes[a].vertices[0] - shapes[b].vertices[0]).norm() < 4.2 * scale.maxCoeff() && ConvexBodiesMeet(shapes[a], shapes[b])) {
          contacts.emplace_back(a, b);
        }
      }
    }
    const auto is_subset = [](const PairSet& part, const PairSet& whole) {
      return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
    };
    for (const auto& [volume, set] : candidates) {
      EXPECT_TRUE(is_subset(contacts, set)) << BoundingVolumeName(volume);
      RecordProperty(std::string(BoundingVolumeName(volume)) + (is_elongated ? " elongated" : " round"), std::to_string(set.size()));
    }
    EXPECT_TRUE(is_subset(candidates[BoundingVolume::kDop18], candidates[BoundingVolume::kDop6]));
    EXPECT_TRUE(is_subset(candidates[BoundingVolume::kDop14], candidates[BoundingVolume::kDop6]));
    EXPECT_TRUE(is_subset(candidates[BoundingVolume::kOrientedBox], candidates[BoundingVolume::kDop6]));
    EXPECT_TRUE(is_subset(candidates[BoundingVolume::kDop26], candidates[BoundingVolume::kDop18]));
    EXPECT_TRUE(is_subset(candidates[BoundingVolume::kDop26], candidates[BoundingVolume::kDop14]));
#ifndef PALPATE_NATIVE_KERNELS
    EXPECT_GT(contacts.size(), 20U);
    if (is_elongated) {
      EXPECT_LT(candidates[BoundingVolume::kDop6].size(), candidates[BoundingVolume::kSphere].size());
      const auto boxes = static_cast<double>(candidates[BoundingVolume::kDop6].size());
      EXPECT_LE(static_cast<double>(candidates[BoundingVolume::kDop18].size()), 0.6 * boxes);
      EXPECT_LE(static_cast<double>(candidates[BoundingVolume::kOrientedBox].size()), 0.8 * boxes);
    }
#endif
    std::printf("scale y %g: contacts %zu, sphere %zu, 6 %zu, 14 %zu, 18 %zu, 26 %zu, obb %zu\n", scale.y(), contacts.size(),
                candidates[BoundingVolume::kSphere].size(), candidates[BoundingVolume::kDop6].size(),
                candidates[BoundingVolume::kDop14].size(), candidates[BoundingVolume::kDop18].size(),
                candidates[BoundingVolume::kDop26].size(), candidates[BoundingVolume::kOrientedBox].size());
  }
}

}  // namespace
}  // namespace palpate::gpu::body_broad_phase_test
