#include "sim/mesh/isosurface_stuffing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sim/mesh/generators.h"
#include "tests/sim/mesher/mesh_probe.h"

namespace palpate::sim::isosurface_stuffing_test {
namespace {

using Eigen::AlignedBox3d;
using Eigen::Vector3d;
using ::testing::HasSubstr;

const AlignedBox3d kUnitBox(Vector3d(-1, -1, -1), Vector3d(1, 1, 1));

double Sphere(const Vector3d& x) { return x.norm() - 1; }
double Torus(const Vector3d& x) { return std::hypot(std::hypot(x[0], x[1]) - 0.7, x[2]) - 0.25; }

StuffingOptions WithEdge(double edge_length_m) {
  StuffingOptions options;
  options.edge_length_m = edge_length_m;
  return options;
}

void ExpectPublishedAngles(const TetMesh& mesh) {
  const AngleRange range = DihedralAngles(mesh);
  EXPECT_GE(range.min_deg, kStuffingMinDihedralDeg);
  EXPECT_LE(range.max_deg, kStuffingMaxDihedralDeg);
}

// Sum of random waves: a smooth blob of any topology, clipped to the unit box.
ImplicitFunction RandomBlob(uint32_t seed) {
  std::mt19937 random(seed);
  const auto uniform = [&random] { return static_cast<double>(random()) / 2147483648.0 - 1; };
  struct Wave {
    Vector3d k;
    double phase;
    double amplitude;
  };
  std::vector<Wave> waves(8);
  for (Wave& wave : waves) {
    for (int i = 0; i < 3; ++i) wave.k[i] = 9 * uniform();
    wave.phase = 3 * uniform();
    wave.amplitude = uniform();
  }
  const double offset = 0.5 * uniform();
  return [waves, offset](const Vector3d& x) {
    double sum = offset;
    for (const Wave& wave : waves) sum += wave.amplitude * std::sin(wave.k.dot(x) + wave.phase);
    return std::max(sum, 4 * (x.cwiseAbs().maxCoeff() - 1));
  };
}

// An independent random value at each point: the hardest input, every stencil occurs in every neighbourhood.
ImplicitFunction WhiteNoise(uint64_t seed, double inside_share, double decades) {
  return [=](const Vector3d& x) {
    if (x.cwiseAbs().maxCoeff() > 1.001) return 1.0;
    uint64_t h = seed * 1000003;
    for (int i = 0; i < 3; ++i) {
      h ^= static_cast<uint64_t>(std::llround(x[i] * 40)) + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
      h *= 0xff51afd7ed558ccdULL;
      h ^= h >> 33;
    }
    const double size = std::pow(10.0, -decades * static_cast<double>(h % 10007) / 10007.0);
    return static_cast<double>((h >> 32) % 10007) / 10007.0 < inside_share ? -size : size;
  };
}

TEST(IsosurfaceStuffing, KeepsThePublishedAngleBoundsOnSmoothShapes) {
  for (const double edge : {0.9, 0.5, 0.31, 0.2, 0.1}) {
    SCOPED_TRACE(edge);
    const auto sphere = StuffIsosurface(Sphere, kUnitBox, WithEdge(edge));
    ASSERT_TRUE(sphere.ok()) << sphere.status();
    ExpectPublishedAngles(*sphere);
    EXPECT_SOUND(*sphere);
    EXPECT_EQ(Measure(*sphere).euler, 2);
  }
  for (const double edge : {0.2, 0.13, 0.08}) {
    SCOPED_TRACE(edge);
    const auto torus = StuffIsosurface(Torus, kUnitBox, WithEdge(edge));
    ASSERT_TRUE(torus.ok()) << torus.status();
    ExpectPublishedAngles(*torus);
    EXPECT_SOUND(*torus);
    EXPECT_EQ(Measure(*torus).euler, 0);
  }
  for (const double edges_per_length : {5.0, 7.3, 11.7, 18.0, 27.0}) {
    SCOPED_TRACE(edges_per_length);
    const auto liver = GenerateLiver(0.2, 0.2 / edges_per_length);
    ASSERT_TRUE(liver.ok()) << liver.status();
    ExpectPublishedAngles(*liver);
    EXPECT_SOUND(*liver);
    EXPECT_EQ(Measure(*liver).euler, 2);
  }
}

TEST(IsosurfaceStuffing, KeepsThePublishedAngleBoundsOnRandomBlobs) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    StuffingOptions options = WithEdge(0.12 + 0.008 * seed);
    options.root_iterations = static_cast<int>(seed % 7);
    const auto mesh = StuffIsosurface(RandomBlob(seed), kUnitBox, options);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    ExpectPublishedAngles(*mesh);
    EXPECT_SOUND(*mesh);
  }
}

TEST(IsosurfaceStuffing, KeepsThePublishedAngleBoundsAndAManifoldOnWhiteNoise) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    StuffingOptions options = WithEdge(0.2);
    options.root_iterations = 0;
    const auto mesh =
        StuffIsosurface(WhiteNoise(seed, 0.15 * static_cast<double>(seed % 5 + 1), static_cast<double>(seed % 3)), kUnitBox, options);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    ExpectPublishedAngles(*mesh);
    EXPECT_SOUND(*mesh);
  }
}

TEST(IsosurfaceStuffing, VolumeConvergesWithSecondOrder) {
  const double sphere_m3 = 4.0 / 3 * std::numbers::pi;
  const double torus_m3 = 2 * std::numbers::pi * std::numbers::pi * 0.7 * 0.25 * 0.25;
  for (const int root_iterations : {0, 8}) {
    SCOPED_TRACE(root_iterations);
    std::vector<double> sphere_error;
    std::vector<double> torus_error;
    for (const double edge : {0.2, 0.1, 0.05}) {
      StuffingOptions options = WithEdge(edge);
      options.root_iterations = root_iterations;
      options.is_distance = true;
      const auto sphere = StuffIsosurface(Sphere, kUnitBox, options);
      const auto torus = StuffIsosurface(Torus, kUnitBox, options);
      ASSERT_TRUE(sphere.ok() && torus.ok());
      sphere_error.push_back(std::abs(Measure(*sphere).tet_volume_m3 / sphere_m3 - 1));
      torus_error.push_back(std::abs(Measure(*torus).tet_volume_m3 / torus_m3 - 1));
    }
    // 16 for two halvings at second order
    EXPECT_GT(sphere_error[0] / sphere_error[2], 10);
    EXPECT_GT(torus_error[0] / torus_error[2], 10);
    EXPECT_LT(sphere_error[2], 0.002);
    EXPECT_LT(torus_error[2], 0.015);
  }
}

TEST(IsosurfaceStuffing, BoundaryVerticesLieOnTheSurface) {
  const auto f = LiverFunction(1);
  StuffingOptions options = WithEdge(0.05);
  options.root_iterations = 16;
  const auto exact = StuffIsosurface(f, LiverBounds(1), options);
  options.root_iterations = 0;
  const auto linear = StuffIsosurface(f, LiverBounds(1), options);
  ASSERT_TRUE(exact.ok() && linear.ok());
  for (const uint32_t v : Measure(*exact).boundary_vertices) EXPECT_NEAR(f(exact->vertices[v]), 0, 1e-6);
  for (const uint32_t v : Measure(*linear).boundary_vertices) EXPECT_NEAR(f(linear->vertices[v]), 0, 0.2 * options.edge_length_m);
}

TEST(IsosurfaceStuffing, InteriorEdgesHaveTheLatticeLengths) {
  const auto mesh = StuffIsosurface(Sphere, kUnitBox, WithEdge(0.1));
  ASSERT_TRUE(mesh.ok());
  size_t long_count = 0;
  size_t short_count = 0;
  for (const auto& tet : mesh->tets) {
    for (int i = 0; i < 4; ++i) {
      for (int j = i + 1; j < 4; ++j) {
        const Vector3d& a = mesh->vertices[tet[i]];
        const Vector3d& b = mesh->vertices[tet[j]];
        if (a.norm() > 0.6 || b.norm() > 0.6) continue;
        const double length = (a - b).norm();
        const bool is_long = std::abs(length - 0.1) < 1e-12;
        EXPECT_TRUE(is_long || std::abs(length - 0.1 * std::sqrt(0.75)) < 1e-12) << length;
        ++(is_long ? long_count : short_count);
      }
    }
  }
  EXPECT_GT(long_count, 100U);
  EXPECT_NEAR(static_cast<double>(short_count) / static_cast<double>(long_count), 2, 0.1);
}

TEST(IsosurfaceStuffing, SameInputGivesTheSameBits) {
  const auto run = [](const ProgressCallback& progress) {
    StuffingOptions options = WithEdge(0.11);
    options.progress = progress;
    return StuffIsosurface(RandomBlob(5), kUnitBox, options);
  };
  const auto a = run({});
  const auto b = run([](double) { return true; });
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_EQ(a->vertices.size(), b->vertices.size());
  EXPECT_EQ(a->tets, b->tets);
  for (size_t v = 0; v < a->vertices.size(); ++v)
    ASSERT_EQ(std::memcmp(a->vertices[v].data(), b->vertices[v].data(), 3 * sizeof(double)), 0);
}

TEST(IsosurfaceStuffing, DistancePropertySavesEvaluationsAndChangesNothing) {
  const auto run = [](bool is_distance, size_t* calls) {
    StuffingOptions options = WithEdge(0.04);
    options.is_distance = is_distance;
    return StuffIsosurface(
        [calls](const Vector3d& x) {
          ++*calls;
          return Torus(x);
        },
        kUnitBox, options);
  };
  size_t all_calls = 0;
  size_t few_calls = 0;
  const auto all = run(false, &all_calls);
  const auto few = run(true, &few_calls);
  ASSERT_TRUE(all.ok() && few.ok());
  EXPECT_EQ(all->tets, few->tets);
  EXPECT_EQ(all->vertices, few->vertices);
  EXPECT_LT(few_calls, all_calls / 2);
}

TEST(IsosurfaceStuffing, PinchedAndThinSolidsStayManifold) {
  const std::vector<std::pair<const char*, ImplicitFunction>> solids = {
      {"two spheres that touch",
       [](const Vector3d& x) { return std::min((x - Vector3d(0.4, 0, 0)).norm(), (x + Vector3d(0.4, 0, 0)).norm()) - 0.4; }},
      {"sheet thinner than the lattice", [](const Vector3d& x) { return std::max(std::abs(x[0] + 0.3 * x[1]) - 0.04, x.norm() - 0.9); }},
      {"hollow sphere with a thin wall", [](const Vector3d& x) { return std::abs(x.norm() - 0.7) - 0.06; }},
      {"slit thinner than the lattice", [](const Vector3d& x) { return std::max(x.norm() - 0.9, 0.03 - std::abs(x[2] - 0.2 * x[0])); }},
      {"double cone", [](const Vector3d& x) { return std::max(std::hypot(x[0], x[1]) - std::abs(x[2]), x.norm() - 0.9); }},
      {"two cubes that share an edge", [](const Vector3d& x) { return std::max(-x[0] * x[1], x.cwiseAbs().maxCoeff() - 0.8); }},
  };
  for (const auto& [name, f] : solids) {
    for (const double edge : {0.2, 0.1, 0.071}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(edge));
      const auto mesh = StuffIsosurface(f, kUnitBox, WithEdge(edge));
      if (!mesh.ok()) {
        EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument) << mesh.status();
        EXPECT_THAT(std::string(mesh.status().message()), HasSubstr("edge_length_m"));
        continue;
      }
      EXPECT_SOUND(*mesh);
      ExpectPublishedAngles(*mesh);
    }
  }
}

TEST(IsosurfaceStuffing, SurfaceThroughLatticePointsIsExact) {
  // faces of the box lie on lattice planes: 10 cells and 2 of margin, centred
  const auto box = [](const Vector3d& x) { return x.cwiseAbs().maxCoeff() - 0.5; };
  const auto mesh = StuffIsosurface(box, AlignedBox3d(Vector3d(-0.5, -0.5, -0.5), Vector3d(0.5, 0.5, 0.5)), WithEdge(0.125));
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_SOUND(*mesh);
  EXPECT_NEAR(Measure(*mesh).tet_volume_m3, 1, 0.15);
  for (const Vector3d& x : mesh->vertices) EXPECT_LE(x.cwiseAbs().maxCoeff(), 0.5 + 1e-12);
}

TEST(IsosurfaceStuffing, CavityStaysHollow) {
  const auto mesh = StuffIsosurface([](const Vector3d& x) { return std::abs(x.norm() - 0.7) - 0.2; }, kUnitBox, WithEdge(0.1));
  ASSERT_TRUE(mesh.ok());
  EXPECT_SOUND(*mesh);
  const Shape shape = Measure(*mesh);
  EXPECT_EQ(shape.pieces, 1);
  EXPECT_EQ(shape.boundary_pieces, 2);
  EXPECT_EQ(shape.euler, 4);
  EXPECT_NEAR(shape.tet_volume_m3, 4.0 / 3 * std::numbers::pi * (0.729 - 0.125), 0.03);
}

TEST(IsosurfaceStuffing, ProgressRisesToOneAndCanCancel) {
  StuffingOptions options = WithEdge(0.08);
  std::vector<double> fractions;
  options.progress = [&fractions](double fraction) {
    fractions.push_back(fraction);
    return true;
  };
  ASSERT_TRUE(StuffIsosurface(Sphere, kUnitBox, options).ok());
  ASSERT_GT(fractions.size(), 10U);
  EXPECT_GE(fractions.front(), 0);
  EXPECT_EQ(fractions.back(), 1);
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  // cancel at each point where it is possible
  for (size_t stop = 0; stop < fractions.size(); stop += 5) {
    size_t call = 0;
    options.progress = [&call, stop](double) { return call++ != stop; };
    EXPECT_EQ(StuffIsosurface(Sphere, kUnitBox, options).status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(call, stop + 1);
  }
}

struct Refusal {
  absl::StatusCode code;
  std::vector<std::string> words;
};

void ExpectRefused(const absl::StatusOr<TetMesh>& mesh, const Refusal& refusal) {
  ASSERT_FALSE(mesh.ok());
  EXPECT_EQ(mesh.status().code(), refusal.code) << mesh.status();
  for (const std::string& word : refusal.words) EXPECT_THAT(std::string(mesh.status().message()), HasSubstr(word));
}

TEST(IsosurfaceStuffing, RefusesBadInput) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double edge : {0.0, -1.0, nan, inf})
    ExpectRefused(StuffIsosurface(Sphere, kUnitBox, WithEdge(edge)), {kInvalid, {"edge_length_m"}});
  StuffingOptions options = WithEdge(0.2);
  options.root_iterations = 65;
  ExpectRefused(StuffIsosurface(Sphere, kUnitBox, options), {kInvalid, {"root_iterations = 65", "[0, 64]"}});
  options.root_iterations = -1;
  ExpectRefused(StuffIsosurface(Sphere, kUnitBox, options), {kInvalid, {"root_iterations = -1"}});
  ExpectRefused(StuffIsosurface(Sphere, AlignedBox3d(), WithEdge(0.2)), {kInvalid, {"bounds_m"}});
  ExpectRefused(StuffIsosurface(Sphere, AlignedBox3d(Vector3d(0, 0, 0), Vector3d(1, 1, inf)), WithEdge(0.2)), {kInvalid, {"bounds_m"}});
  ExpectRefused(StuffIsosurface(Sphere, AlignedBox3d(Vector3d(-0.5, -0.5, -0.5), Vector3d(0.5, 0.5, 0.5)), WithEdge(0.2)),
                {kInvalid, {"out of the bounds"}});
  ExpectRefused(StuffIsosurface([nan](const Vector3d& x) { return x[0] > 0.3 ? nan : Sphere(x); }, kUnitBox, WithEdge(0.2)),
                {kInvalid, {"nan", "finite"}});
  ExpectRefused(StuffIsosurface([](const Vector3d&) { return 1.0; }, kUnitBox, WithEdge(0.2)), {kInvalid, {"no lattice point", "0.2"}});
  ExpectRefused(StuffIsosurface([](const Vector3d& x) { return x.norm() - 1e-3; }, kUnitBox, WithEdge(0.3)),
                {kInvalid, {"edge_length_m = 0.3"}});
}

TEST(IsosurfaceStuffing, NamesTheLimitThatWasHit) {
  constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
  StuffingOptions options = WithEdge(0.01);
  options.max_lattice_points = 1'000'000;
  // 202 cells a side: 203^3 corners and 202^3 centres
  ExpectRefused(StuffIsosurface(Sphere, kUnitBox, options), {kExhausted, {"edge_length_m = 0.01", "16607835", "1000000"}});
  ExpectRefused(StuffIsosurface(Sphere, kUnitBox, WithEdge(1e-300)), {kExhausted, {"edge_length_m = 1e-300"}});
  options = WithEdge(0.1);
  options.max_tets = 1000;
  ExpectRefused(StuffIsosurface(Sphere, kUnitBox, options), {kExhausted, {"edge_length_m = 0.1", "1000"}});
}

}  // namespace
}  // namespace palpate::sim::isosurface_stuffing_test
