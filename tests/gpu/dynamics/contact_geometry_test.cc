// Segment against triangle, and the contact law, of gpu/dynamics/contact.clh.
#include <Eigen/Dense>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "gpu/runtime/kernel_source.h"
#include "gpu/shared/dynamics_types.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::kernels {
extern const KernelSource closest_probe;
}  // namespace palpate::gpu::kernels

namespace palpate::gpu::contact_geometry_test {
namespace {

using Eigen::Vector3d;
using Eigen::VectorXd;

struct Query {
  Vector3d p, d, a, b, c;
};

/// The distance of segment and triangle by trying every face of the feasible set (segment: inside or an end; triangle: inside, an edge or a
/// corner) as a least-squares problem; exact, and blind to how the kernel orders its cases.
double Distance(const Query& q) {
  const std::array<Vector3d, 3> corner{q.a, q.b, q.c};
  double best = std::numeric_limits<double>::max();
  for (int segment = 0; segment < 3; ++segment) {  // 0: inside, 1: start, 2: end
    for (int subset = 1; subset < 8; ++subset) {   // corners that may carry weight
      std::vector<Vector3d> columns;
      std::vector<int> corners;
      for (int i = 0; i < 3; ++i) {
        if (subset >> i & 1) corners.push_back(i);
      }
      // Point = corner[0] + sum w_i (corner[i] - corner[0]) - p - s d.
      const Vector3d constant = corner[corners[0]] - q.p - (segment == 2 ? q.d : Vector3d(0, 0, 0));
      for (size_t i = 1; i < corners.size(); ++i) columns.push_back(corner[corners[i]] - corner[corners[0]]);
      if (segment == 0) columns.push_back(-q.d);
      if (columns.empty()) {
        best = std::min(best, constant.norm());
        continue;
      }
      Eigen::MatrixXd m(3, columns.size());
      for (size_t i = 0; i < columns.size(); ++i) m.col(static_cast<Eigen::Index>(i)) = columns[i];
      const VectorXd w = m.completeOrthogonalDecomposition().solve(-constant);
      bool feasible = (w.array() >= -1e-12).all() && (w.array() <= 1 + 1e-12).all();
      const Eigen::Index weights = static_cast<Eigen::Index>(corners.size()) - 1;
      feasible &= w.head(weights).sum() <= 1 + 1e-12;
      if (feasible) best = std::min(best, (m * w + constant).norm());
    }
  }
  return best;
}

class ContactGeometryTest : public test::DeviceTest {
 protected:
  Vector3d Random(double scale = 1) { return scale * Vector3d(uniform_(random_), uniform_(random_), uniform_(random_)); }
  static Vector3d Rounded(const Vector3d& v) {
    const Eigen::Vector3f rounded = v.cast<float>();
    return rounded.cast<double>();
  }

  void Check(std::vector<Query> queries, double tolerance) {
    std::vector<Float4> in;
    for (Query& q : queries) {
      for (Vector3d* v : {&q.p, &q.d, &q.a, &q.b, &q.c}) {
        *v = Rounded(*v);
        in.push_back({static_cast<float>(v->x()), static_cast<float>(v->y()), static_cast<float>(v->z()), 0});
      }
    }
    PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::closest_probe, "probe_closest"));
    const auto input = Upload(in);
    const auto output = Allocate<Float4>(2 * queries.size());
    PALPATE_ASSERT_OK(queue().Launch(kernel, {queries.size(), 0}, Arg("count", static_cast<uint32_t>(queries.size())), Arg("cases", input),
                                     Arg("results", output)));
    const std::vector<Float4> out = Download(output);
    for (size_t i = 0; i < queries.size(); ++i) {
      const Query& q = queries[i];
      const Vector3d d(out[2 * i].x, out[2 * i].y, out[2 * i].z);
      const double s = out[2 * i].w;
      // Barycentric weights of a needle carry its aspect ratio in rounding errors; one without area is a segment and carries none.
      const double longest_sq = std::max({(q.b - q.a).squaredNorm(), (q.c - q.b).squaredNorm(), (q.a - q.c).squaredNorm()});
      const double aspect = longest_sq / std::max((q.b - q.a).cross(q.c - q.a).norm(), 1e-30);
      const double allowed = tolerance * (aspect < 1e4 ? std::max(1.0, aspect / 3) : 1);
      const Vector3d weights(out[2 * i + 1].x, out[2 * i + 1].y, out[2 * i + 1].z);
      SCOPED_TRACE(testing::Message() << "case " << i << ": p " << q.p.transpose() << ", d " << q.d.transpose() << ", a " << q.a.transpose()
                                      << ", b " << q.b.transpose() << ", c " << q.c.transpose() << "; got s " << s << ", weights "
                                      << weights.transpose());
      EXPECT_GE(s, 0);
      EXPECT_LE(s, 1);
      EXPECT_GE(weights.minCoeff(), -1e-6);
      EXPECT_NEAR(weights.sum(), 1, 1e-5);
      const Vector3d between = weights[0] * q.a + weights[1] * q.b + weights[2] * q.c - (q.p + s * q.d);
      EXPECT_LT((between - d).norm(), tolerance) << "the vector belongs to the parameters";
      EXPECT_NEAR(d.norm(), Distance(q), allowed);
    }
  }

  std::mt19937_64 random_{99};
  std::uniform_real_distribution<double> uniform_{-1, 1};
};

TEST_F(ContactGeometryTest, RandomSegmentsAndTrianglesMatchTheReference) {
  std::vector<Query> queries;
  for (int i = 0; i < 3000; ++i) queries.push_back({Random(), Random(i % 3 == 0 ? 0.1 : 1), Random(), Random(), Random()});
  Check(queries, 3e-6);
}

TEST_F(ContactGeometryTest, SpheresCrossingsAndTouchingPairsMatchTheReference) {
  std::vector<Query> queries;
  for (int i = 0; i < 500; ++i) {
    const Query q{Random(), Vector3d::Zero(), Random(), Random(), Random()};
    queries.push_back(q);  // no axis: a sphere
    const double u = std::abs(uniform_(random_)) / 2, v = std::abs(uniform_(random_)) / 2;
    const Vector3d inside = q.a + u * (q.b - q.a) + v * (q.c - q.a);
    const Vector3d d = Random();
    queries.push_back({inside - 0.3 * d, d, q.a, q.b, q.c});           // crosses the face
    queries.push_back({inside, d, q.a, q.b, q.c});                     // begins on the face
    queries.push_back({q.a - d, d, q.a, q.b, q.c});                    // ends on a corner
    queries.push_back({(q.a + q.b) / 2 - 0.5 * d, d, q.a, q.b, q.c});  // crosses an edge
  }
  Check(queries, 5e-6);
}

TEST_F(ContactGeometryTest, ParallelAndDegenerateTrianglesMatchTheReference) {
  std::vector<Query> queries;
  for (int i = 0; i < 300; ++i) {
    const Vector3d a = Random(), b = Random(), c = Random();
    const Vector3d n = (b - a).cross(c - a).normalized();
    queries.push_back({a + 0.2 * n, b - a, a, b, c});                                          // parallel to an edge
    queries.push_back({a + 0.3 * (c - a) + 0.2 * n, 0.7 * (b - a) + 0.1 * (c - a), a, b, c});  // parallel to the face
    queries.push_back({a + 0.1 * (b - a), 0.5 * (b - a), a, b, c});                            // lies on an edge
    queries.push_back({Random(), Random(), a, b, a + 0.4 * (b - a)});                          // triangle without area
    queries.push_back({Random(), Random(), a, a, a});                                          // a point
    queries.push_back({Random(), Vector3d::Zero(), a, a, b});
  }
  Check(queries, 1e-5);
}

TEST_F(ContactGeometryTest, ForceLawIsConvexAndSmooth) {
  StepParams params{};
  params.margin_m = 0.001F;
  params.stiffness_n_per_m = 200;
  params.stiffening = 10;
  std::vector<float> violations;
  for (int i = -20; i <= 200; ++i) violations.push_back(static_cast<float>(i) * 2.5e-5F);
  PALPATE_TEST_ASSIGN(Kernel kernel, context()->CreateKernel(kernels::closest_probe, "probe_contact_force"));
  const auto p = Upload(std::vector<StepParams>{params});
  const auto input = Upload(violations);
  const auto output = Allocate<Float2>(violations.size());
  PALPATE_ASSERT_OK(queue().Launch(kernel, {violations.size(), 0}, Arg("count", static_cast<uint32_t>(violations.size())), Arg("p", p),
                                   Arg("violations", input), Arg("results", output)));
  const std::vector<Float2> out = Download(output);
  for (size_t i = 0; i < violations.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "violation " << violations[i] << " m");
    const double c = violations[i];
    const double u = c / 0.001;
    if (c <= 0) {
      EXPECT_EQ(out[i].x, 0);
      EXPECT_EQ(out[i].y, 0);
      continue;
    }
    const double law = u <= 2 ? 200 * c * (1 + 10 * u * u) : 200 * 0.002 * 41 + 200 * 121 * (c - 0.002);
    EXPECT_NEAR(out[i].x, law, 1e-5 * law);
    EXPECT_NEAR(out[i].y, u <= 2 ? 200 * (1 + 30 * u * u) : 200 * 121, 1e-4 * out[i].y);
    EXPECT_GE(out[i].x, out[i - 1].x) << "the force rises";
    EXPECT_GE(out[i].y, out[i - 1].y * (1 - 1e-6)) << "the energy is convex";
  }
}

}  // namespace
}  // namespace palpate::gpu::contact_geometry_test
