#include <Eigen/Core>
#include <Eigen/Geometry>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "gpu/collision/convex_mesh.h"
#include "gpu/collision/convex_narrow_phase.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::convex_test {
namespace {

using Eigen::Quaterniond;
using Eigen::Vector3d;
using Points = std::vector<Vector3d>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Pose {
  Float4 position;
  Float4 rotation = {0, 0, 0, 1};
  Float4 scale = {1, 1, 1, 0};
};

Points InWorld(const ConvexMesh& mesh, const Pose& pose) {
  const Quaterniond q(pose.rotation.w, pose.rotation.x, pose.rotation.y, pose.rotation.z);
  Points points;
  for (const Float4& v : mesh.vertices_m) {
    points.push_back(q.toRotationMatrix() * Vector3d(double{pose.scale.x} * v.x, double{pose.scale.y} * v.y, double{pose.scale.z} * v.z) +
                     Vector3d(pose.position.x, pose.position.y, pose.position.z));
  }
  return points;
}

double Support(const Points& points, const Vector3d& n) {
  double best = -kInfinity;
  for (const Vector3d& p : points) best = std::max(best, p.dot(n));
  return best;
}

// Height of the support plane of {a - b} with unit normal n: negative if n separates, else what B has to move along n to be free.
double Height(const Points& a, const Points& b, const Vector3d& n) { return Support(a, n) + Support(b, -n); }

double PointTriangle(const Vector3d& p, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  const Vector3d n = (b - a).cross(c - a);
  if (n.squaredNorm() == 0) return kInfinity;
  if (n.dot((b - a).cross(p - a)) < 0 || n.dot((c - b).cross(p - b)) < 0 || n.dot((a - c).cross(p - c)) < 0) return kInfinity;
  return std::abs(n.normalized().dot(p - a));
}

double SegmentSegment(const Vector3d& p, const Vector3d& q, const Vector3d& r, const Vector3d& s) {
  const Vector3d u = q - p;
  const Vector3d v = s - r;
  const Vector3d w = p - r;
  const double a = u.squaredNorm(), b = u.dot(v), c = v.squaredNorm(), d = u.dot(w), e = v.dot(w);
  const auto at = [&](double x, double y) { return (w + x * u - y * v).norm(); };
  double best = kInfinity;
  for (const double x : {0.0, 1.0}) best = std::min(best, at(x, c > 0 ? std::clamp((e + x * b) / c, 0.0, 1.0) : 0.0));
  for (const double y : {0.0, 1.0}) best = std::min(best, at(a > 0 ? std::clamp((y * b - d) / a, 0.0, 1.0) : 0.0, y));
  const double det = a * c - b * b;
  if (det > 1e-14 * a * c) {
    const double x = (b * e - c * d) / det;
    const double y = (a * e - b * d) / det;
    if (x >= 0 && x <= 1 && y >= 0 && y <= 1) best = std::min(best, at(x, y));
  }
  return best;
}

// Signed separation by enumeration. The least support height is attained at a normal of a face of either body or at a cross product of an
// edge of each; all planes through three vertices and all products of vertex differences include those, and no direction can be too low.
// The distance of disjoint bodies is that of a face and a vertex or of two edges, found the same way.
double ExactSeparation(const Points& a, const Points& b) {
  std::vector<Vector3d> edges_a, edges_b, normals;
  const auto gather = [&](const Points& points, std::vector<Vector3d>& edges) {
    for (size_t i = 0; i < points.size(); ++i) {
      for (size_t j = i + 1; j < points.size(); ++j) {
        edges.push_back(points[j] - points[i]);
        for (size_t k = j + 1; k < points.size(); ++k) normals.push_back((points[j] - points[i]).cross(points[k] - points[i]));
      }
    }
  };
  gather(a, edges_a);
  gather(b, edges_b);
  // For bodies without an inside: directions across them.
  for (const Vector3d& e : edges_a) normals.insert(normals.end(), {e.cross(Vector3d::UnitX()), e.cross(Vector3d::UnitY())});
  for (const Vector3d& e : edges_b) normals.insert(normals.end(), {e.cross(Vector3d::UnitX()), e.cross(Vector3d::UnitY())});
  for (const Vector3d& e : edges_a) {
    for (const Vector3d& f : edges_b) normals.push_back(e.cross(f));
  }
  normals.insert(normals.end(), {Vector3d::UnitX(), Vector3d::UnitY(), Vector3d::UnitZ()});
  double depth = kInfinity;
  for (const Vector3d& n : normals) {
    if (n.norm() < 1e-12) continue;
    const Vector3d unit = n.normalized();
    depth = std::min({depth, Height(a, b, unit), Height(a, b, -unit)});
  }
  if (depth > 1e-9) return -depth;  // in one plane all heights across it are 0, apart or not
  double distance = kInfinity;
  const auto vertices_faces = [&](const Points& p, const Points& q) {
    for (size_t i = 0; i < q.size(); ++i) {
      for (size_t j = i + 1; j < q.size(); ++j) {
        for (size_t k = j + 1; k < q.size(); ++k) {
          for (const Vector3d& v : p) distance = std::min(distance, PointTriangle(v, q[i], q[j], q[k]));
        }
      }
    }
  };
  vertices_faces(a, b);
  vertices_faces(b, a);
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = i; j < a.size(); ++j) {
      for (size_t k = 0; k < b.size(); ++k) {
        for (size_t l = k; l < b.size(); ++l) distance = std::min(distance, SegmentSegment(a[i], a[j], b[k], b[l]));
      }
    }
  }
  return distance;
}

ConvexMesh FromPoints(const Points& points) {
  ConvexMesh mesh;
  for (const Vector3d& p : points) {
    mesh.vertices_m.push_back({static_cast<float>(p.x()), static_cast<float>(p.y()), static_cast<float>(p.z()), 0});
  }
  return mesh;
}

ConvexMesh Cube() {
  Points points;
  for (int i = 0; i < 8; ++i) points.emplace_back(i & 1 ? 1 : -1, i & 2 ? 1 : -1, i & 4 ? 1 : -1);
  return FromPoints(points);
}

// A sphere of 10 * 4^levels + 2 vertices with its triangles.
ConvexMesh Icosphere(int levels) {
  const double g = std::numbers::phi;
  Points points = {{-1, g, 0},  {1, g, 0},  {-1, -g, 0}, {1, -g, 0}, {0, -1, g},  {0, 1, g},
                   {0, -1, -g}, {0, 1, -g}, {g, 0, -1},  {g, 0, 1},  {-g, 0, -1}, {-g, 0, 1}};
  std::vector<UInt4> triangles = {{0, 11, 5},  {0, 5, 1},  {0, 1, 7},  {0, 7, 10}, {0, 10, 11}, {1, 5, 9}, {5, 11, 4},
                                  {11, 10, 2}, {10, 7, 6}, {7, 1, 8},  {3, 9, 4},  {3, 4, 2},   {3, 2, 6}, {3, 6, 8},
                                  {3, 8, 9},   {4, 9, 5},  {2, 4, 11}, {6, 2, 10}, {8, 6, 7},   {9, 8, 1}};
  for (Vector3d& p : points) p.normalize();
  for (int level = 0; level < levels; ++level) {
    std::vector<UInt4> next;
    std::vector<std::pair<std::pair<uint32_t, uint32_t>, uint32_t>> middles;
    const auto middle = [&](uint32_t i, uint32_t j) {
      const auto key = std::minmax(i, j);
      for (const auto& [edge, vertex] : middles) {
        if (edge == std::pair<uint32_t, uint32_t>(key)) return vertex;
      }
      points.push_back((points[i] + points[j]).normalized());
      middles.emplace_back(key, static_cast<uint32_t>(points.size() - 1));
      return static_cast<uint32_t>(points.size() - 1);
    };
    for (const UInt4& t : triangles) {
      const uint32_t a = middle(t.x, t.y), b = middle(t.y, t.z), c = middle(t.z, t.x);
      next.insert(next.end(), {{t.x, a, c}, {t.y, b, a}, {t.z, c, b}, {a, b, c}});
    }
    triangles = next;
  }
  ConvexMesh mesh = FromPoints(points);
  mesh.triangles = triangles;
  return mesh;
}

class ConvexTest : public test::DeviceTest {
 protected:
  struct Case {
    uint32_t mesh_a, mesh_b;
    Pose a, b;
    std::string name;
  };

  // Device results of the cases; body 2i is A, body 2i + 1 is B.
  std::vector<ConvexContact> Run(const std::vector<ConvexMesh>& meshes, const std::vector<Case>& cases,
                                 float range_m = std::numeric_limits<float>::infinity(), uint32_t climb_from = ConvexMeshes::kClimbFrom) {
    std::vector<uint32_t> mesh_of;
    std::vector<Float4> positions, rotations, scales;
    std::vector<UInt2> pairs;
    for (const Case& c : cases) {
      pairs.push_back({static_cast<uint32_t>(mesh_of.size()), static_cast<uint32_t>(mesh_of.size()) + 1});
      for (const auto& [mesh, pose] : {std::pair(c.mesh_a, c.a), std::pair(c.mesh_b, c.b)}) {
        mesh_of.push_back(mesh);
        positions.push_back(pose.position);
        rotations.push_back(pose.rotation);
        scales.push_back(pose.scale);
      }
    }
    auto device_meshes = ConvexMeshes::Create(queue(), meshes, climb_from);
    auto phase = ConvexNarrowPhase::Create(context());
    EXPECT_TRUE(device_meshes.ok()) << device_meshes.status();
    EXPECT_TRUE(phase.ok()) << phase.status();
    if (!device_meshes.ok() || !phase.ok()) return std::vector<ConvexContact>(cases.size());
    const auto d_mesh_of = Upload(mesh_of);
    const auto d_positions = Upload(positions);
    const auto d_rotations = Upload(rotations);
    const auto d_scales = Upload(scales);
    const auto d_pairs = Upload(pairs);
    const auto contacts = Allocate<ConvexContact>(cases.size());
    const ConvexBodies bodies = {static_cast<uint32_t>(mesh_of.size()), d_mesh_of, d_positions, d_rotations, d_scales};
    PALPATE_EXPECT_OK(phase->Run(queue(), *device_meshes, bodies, d_pairs, static_cast<uint32_t>(cases.size()), range_m, contacts));
    PALPATE_EXPECT_OK(phase->AddStatistics(queue(), contacts, static_cast<uint32_t>(cases.size()), &statistics_));
    return Download(contacts);
  }

  Pose RandomPose(double spread, bool scaled = false) {
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(-1, 1);
    const Quaterniond q = Quaterniond(normal(random_), normal(random_), normal(random_), normal(random_)).normalized();
    const Vector3d p = spread * Vector3d(uniform(random_), uniform(random_), uniform(random_));
    Pose pose;
    pose.position = {static_cast<float>(3 + p.x()), static_cast<float>(-5 + p.y()), static_cast<float>(2 + p.z()), 0};
    pose.rotation = {static_cast<float>(q.x()), static_cast<float>(q.y()), static_cast<float>(q.z()), static_cast<float>(q.w())};
    if (scaled) {
      pose.scale = {static_cast<float>(std::exp(uniform(random_))), static_cast<float>(std::exp(uniform(random_))),
                    static_cast<float>(std::exp(uniform(random_))), 0};
    }
    return pose;
  }

  ConvexMesh RandomMesh(int count, const Vector3d& stretch = {1, 1, 1}) {
    std::normal_distribution<double> normal;
    Points points;
    for (int i = 0; i < count; ++i) {
      points.push_back(stretch.cwiseProduct(Vector3d(normal(random_), normal(random_), normal(random_)).normalized()));
    }
    return FromPoints(points);
  }

  // Compares with the reference; tolerance and errors are relative to the size of {a - b}.
  void Compare(const std::vector<ConvexMesh>& meshes, const std::vector<Case>& cases, const std::vector<ConvexContact>& contacts,
               double tolerance) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      const ConvexContact& contact = contacts[i];
      const Points a = InWorld(meshes[c.mesh_a], c.a);
      const Points b = InWorld(meshes[c.mesh_b], c.b);
      const Vector3d n(contact.normal.x, contact.normal.y, contact.normal.z);
      const Vector3d on_a(contact.point_a.x, contact.point_a.y, contact.point_a.z);
      const Vector3d on_b(contact.point_b.x, contact.point_b.y, contact.point_b.z);
      double size = 1e-30;
      for (const Vector3d& p : a) {
        for (const Vector3d& q : b) size = std::max(size, (p - q).cwiseAbs().maxCoeff());
      }
      const double slack = tolerance * size + 2e-6;  // positions near 5 are rounded to 5e-7
      const double exact = ExactSeparation(a, b);
      const std::string where =
          c.name + " case " + std::to_string(i) + ", exact separation " + std::to_string(exact) + ", size " + std::to_string(size);
      EXPECT_EQ(contact.a, 2 * i) << where;
      EXPECT_EQ(contact.b, 2 * i + 1) << where;
      ASSERT_NE(contact.status, PALPATE_CONVEX_NOT_CONVERGED) << where << " found " << contact.normal.w;
      ASSERT_NE(contact.status, PALPATE_CONVEX_FAR) << where;
      if (exact > slack) {
        ASSERT_EQ(contact.status, PALPATE_CONVEX_SEPARATED) << where;
      }
      if (exact < -slack) {
        ASSERT_EQ(contact.status, PALPATE_CONVEX_OVERLAPPING) << where;
      }
      ASSERT_EQ(contact.status == PALPATE_CONVEX_OVERLAPPING, contact.normal.w <= 0) << where;
      ASSERT_NEAR(n.norm(), 1, 1e-5) << where;
      ASSERT_NEAR(contact.normal.w, exact, slack) << where;
      // The normal is a witness: its support plane parts the bodies, or moving B by the depth does.
      ASSERT_LE(Height(a, b, n), -contact.normal.w + contact.point_a.w + slack) << where;
      // Rounding of the vertices turns the direction between near points.
      ASSERT_LE(contact.point_a.w, slack + (exact > 0 ? std::min(1e-6 * size * size / exact, 0.9 * exact) : 0.0)) << where;
      const double turn = exact > slack ? contact.point_a.w : 0.0;
      ASSERT_NEAR((on_b - on_a).norm(), std::abs(contact.normal.w), 2 * slack) << where;
      ASSERT_LE((on_b - on_a - n * contact.normal.w).norm(), 2 * slack + std::sqrt(2 * std::abs(exact) * turn)) << where;
      ASSERT_NEAR(n.dot(on_a), Support(a, n), 2 * slack + turn) << where;
      ASSERT_NEAR(n.dot(on_b), -Support(b, -n), 2 * slack + turn) << where;
      worst_error_ = std::max(worst_error_, std::abs(contact.normal.w - exact) / size);
    }
  }

  std::mt19937_64 random_{20240607};
  ConvexStatistics statistics_;
  double worst_error_ = 0;
};

#ifdef PALPATE_NATIVE_KERNELS
constexpr int kRandomCases = 20;
#else
constexpr int kRandomCases = 600;
#endif

TEST_F(ConvexTest, RandomPolytopesEqualEnumeration) {
  std::vector<ConvexMesh> meshes = {Cube()};
  for (const int count : {4, 5, 6, 8, 10}) {
    for (int i = 0; i < 4; ++i) meshes.push_back(RandomMesh(count));
  }
  for (const double spread : {0.05, 0.6, 1.2, 3.0}) {
    std::vector<Case> cases;
    for (int i = 0; i < kRandomCases; ++i) {
      cases.push_back({static_cast<uint32_t>(random_() % meshes.size()), static_cast<uint32_t>(random_() % meshes.size()),
                       RandomPose(spread, i % 2 == 0), RandomPose(spread, i % 2 == 0), "random, spread " + std::to_string(spread)});
    }
    Compare(meshes, cases, Run(meshes, cases), 4e-6);
  }
  RecordProperty("worst_error", std::to_string(worst_error_));
  EXPECT_EQ(ConvexStatistics::Count(statistics_.gjk), 4U * kRandomCases);
  EXPECT_LE(ConvexStatistics::Max(statistics_.gjk), 40U);
  EXPECT_GT(ConvexStatistics::Count(statistics_.epa), static_cast<uint64_t>(kRandomCases));
}

TEST_F(ConvexTest, BodiesBroughtToTouchMatchEnumeration) {
  std::vector<ConvexMesh> meshes = {Cube()};
  for (const int count : {4, 6, 8}) meshes.push_back(RandomMesh(count));
  for (const double gap : {0.0, 1e-5, -1e-5, 1e-3, -1e-3}) {
    std::vector<Case> cases;
    for (int i = 0; i < kRandomCases / 4; ++i) {
      Case c = {static_cast<uint32_t>(random_() % meshes.size()), static_cast<uint32_t>(random_() % meshes.size()), RandomPose(1),
                RandomPose(1), "touching, gap " + std::to_string(gap)};
      // Along any direction B touches A when moved by the height of the support plane.
      const Vector3d n =
          Vector3d(c.b.position.x - c.a.position.x, c.b.position.y - c.a.position.y, c.b.position.z - c.a.position.z).normalized();
      const double move = Height(InWorld(meshes[c.mesh_a], c.a), InWorld(meshes[c.mesh_b], c.b), n) + gap;
      c.b.position.x += static_cast<float>(move * n.x());
      c.b.position.y += static_cast<float>(move * n.y());
      c.b.position.z += static_cast<float>(move * n.z());
      cases.push_back(c);
    }
    Compare(meshes, cases, Run(meshes, cases), 4e-6);
  }
}

// Cubes and corners placed so that vertices, edges and faces meet exactly, apart, and overlapping.
TEST_F(ConvexTest, AlignedFeaturesMatchEnumeration) {
  const std::vector<ConvexMesh> meshes = {Cube()};
  std::vector<Case> cases;
  const float s = std::sqrt(0.5F);
  const std::vector<std::pair<std::string, Float4>> turns = {{"straight", {0, 0, 0, 1}},
                                                             {"quarter turn", {0, 0, s, s}},
                                                             {"eighth about z", {0, 0, std::sin(0.3926991F), std::cos(0.3926991F)}},
                                                             {"eighth about x", {std::sin(0.3926991F), 0, 0, std::cos(0.3926991F)}},
                                                             {"on a corner", {0.3250576F, -0.3250576F, 0, 0.8880738F}}};
  for (const auto& [name, turn] : turns) {
    for (const Float4& direction :
         {Float4{1, 0, 0, 0}, Float4{0, -1, 0, 0}, Float4{0, 0, 1, 0}, Float4{1, 1, 0, 0}, Float4{1, 1, 1, 0}, Float4{0, 0, 0, 0}}) {
      for (const float length : {0.0F, 0.5F, 1.0F, 1.999F, 2.0F, 2.001F, 2.5F, std::sqrt(2.0F) + 1, std::sqrt(3.0F) + 1}) {
        Case c = {0,
                  0,
                  {},
                  {},
                  name + " along " + std::to_string(direction.x) + " " + std::to_string(direction.y) + " " + std::to_string(direction.z)};
        c.a.position = {3, -5, 2, 0};
        c.b.position = {3 + length * direction.x, -5 + length * direction.y, 2 + length * direction.z, 0};
        c.b.rotation = turn;
        cases.push_back(c);
      }
    }
  }
  Compare(meshes, cases, Run(meshes, cases), 4e-6);
}

TEST_F(ConvexTest, IdenticalBodiesAtOnePlaceMatchEnumeration) {
  std::vector<ConvexMesh> meshes = {Cube()};
  for (int i = 0; i < 20; ++i) meshes.push_back(RandomMesh(4 + i % 7));
  std::vector<Case> cases;
  for (uint32_t i = 0; i < meshes.size(); ++i) {
    const Pose pose = RandomPose(1);
    cases.push_back({i, i, pose, pose, "identical"});
  }
  Compare(meshes, cases, Run(meshes, cases), 4e-6);
}

// Points, segments, triangles, flat polygons and flat scales: the Minkowski difference may have no inside.
TEST_F(ConvexTest, BodiesWithoutAnInsideMatchEnumeration) {
  const std::vector<ConvexMesh> meshes = {FromPoints({{0, 0, 0}}),
                                          FromPoints({{-1, 0, 0}, {1, 0, 0}}),
                                          FromPoints({{-1, 0, 0}, {0, 0, 0}, {0.5, 0, 0}, {1, 0, 0}}),
                                          FromPoints({{-1, -1, 0}, {1, -1, 0}, {0, 1, 0}}),
                                          FromPoints({{-1, -1, 0}, {1, -1, 0}, {1, 1, 0}, {-1, 1, 0}, {0, 0, 0}}),
                                          Cube()};
  std::vector<Case> cases;
  for (uint32_t i = 0; i < meshes.size(); ++i) {
    for (uint32_t j = 0; j < meshes.size(); ++j) {
      const std::string name = "mesh " + std::to_string(i) + " and " + std::to_string(j);
      for (const Float4& place :
           {Float4{0, 0, 0, 0}, Float4{0.25F, 0.25F, 0, 0}, Float4{2, 0, 0, 0}, Float4{0.3F, 0, 0.5F, 0}, Float4{1, 1, 1, 0}}) {
        Case c = {i, j, {}, {}, name + " in line"};
        c.b.position = place;
        cases.push_back(c);
      }
      for (int k = 0; k < 8; ++k) cases.push_back({i, j, RandomPose(0.7), RandomPose(0.7), name + " anyhow"});
    }
  }
  Compare(meshes, cases, Run(meshes, cases), 4e-6);
}

TEST_F(ConvexTest, FlatBodiesAndNeedlesMatchEnumeration) {
  std::vector<ConvexMesh> meshes;
  for (int i = 0; i < 6; ++i) meshes.push_back(RandomMesh(8, {1, 1, 1e-3}));
  for (int i = 0; i < 6; ++i) meshes.push_back(RandomMesh(8, {1, 1e-3, 1e-3}));
  for (int i = 0; i < 3; ++i) meshes.push_back(RandomMesh(8, {1, 1e-2, 1e-4}));
  meshes.push_back(Cube());
  std::vector<Case> cases;
  for (int i = 0; i < 2 * kRandomCases; ++i) {
    const double spread = i % 3 == 0 ? 0.002 : 0.5;
    Case c = {static_cast<uint32_t>(random_() % meshes.size()), static_cast<uint32_t>(random_() % meshes.size()), RandomPose(spread),
              RandomPose(spread), "thin, spread " + std::to_string(spread)};
    if (i % 5 == 0) c.b.rotation = c.a.rotation;
    cases.push_back(c);
  }
  Compare(meshes, cases, Run(meshes, cases), 6e-6);
}

TEST_F(ConvexTest, SmallAndLargeWorldsMatchEnumeration) {
  const std::vector<ConvexMesh> meshes = {RandomMesh(8), RandomMesh(10), Cube()};
  for (const float unit : {1e-4F, 1e4F}) {
    std::vector<Case> cases;
    for (int i = 0; i < kRandomCases / 4; ++i) {
      Case c = {static_cast<uint32_t>(random_() % 3), static_cast<uint32_t>(random_() % 3), RandomPose(1), RandomPose(1), ""};
      for (Pose* pose : {&c.a, &c.b}) {
        pose->position = {pose->position.x * unit, pose->position.y * unit, pose->position.z * unit, 0};
        pose->scale = {unit, unit, unit, 0};
      }
      cases.push_back(c);
    }
    const std::vector<ConvexContact> contacts = Run(meshes, cases);
    for (size_t i = 0; i < cases.size(); ++i) {
      const double exact = ExactSeparation(InWorld(meshes[cases[i].mesh_a], cases[i].a), InWorld(meshes[cases[i].mesh_b], cases[i].b));
      ASSERT_NEAR(contacts[i].normal.w / double{unit}, exact / double{unit}, 2e-5) << unit << " case " << i;
    }
  }
}

TEST_F(ConvexTest, ClimbingEqualsScanning) {
#ifdef PALPATE_NATIVE_KERNELS
  const int levels = 1;
#else
  const int levels = 3;
#endif
  const std::vector<ConvexMesh> meshes = {Icosphere(levels), Icosphere(0)};
  std::vector<Case> cases;
  for (int i = 0; i < kRandomCases; ++i) {
    cases.push_back(
        {static_cast<uint32_t>(i % 2), static_cast<uint32_t>(i / 2 % 2), RandomPose(1.2, true), RandomPose(1.2, true), "spheres"});
  }
  const std::vector<ConvexContact> scanned = Run(meshes, cases, std::numeric_limits<float>::infinity(), UINT32_MAX);
  const std::vector<ConvexContact> climbed = Run(meshes, cases, std::numeric_limits<float>::infinity(), 0);
  int overlapping = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    ASSERT_EQ(climbed[i].status, scanned[i].status) << i;
    ASSERT_NEAR(climbed[i].normal.w, scanned[i].normal.w, 2e-5) << i;
    ASSERT_NE(scanned[i].status, PALPATE_CONVEX_NOT_CONVERGED) << i << " iterations " << scanned[i].iterations;
    overlapping += scanned[i].status == PALPATE_CONVEX_OVERLAPPING ? 1 : 0;
  }
  EXPECT_GT(overlapping, kRandomCases / 10);
}

TEST_F(ConvexTest, RangeSparesFarPairsOnly) {
  const std::vector<ConvexMesh> meshes = {Cube(), RandomMesh(9)};
  std::vector<Case> cases;
  for (int i = 0; i < kRandomCases; ++i) {
    cases.push_back({static_cast<uint32_t>(i % 2), static_cast<uint32_t>(i / 2 % 2), RandomPose(2), RandomPose(2), ""});
  }
  const std::vector<ConvexContact> all = Run(meshes, cases);
  for (const float range_m : {0.0F, 0.3F}) {
    const std::vector<ConvexContact> near = Run(meshes, cases, range_m);
    int far = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (near[i].status == PALPATE_CONVEX_FAR) {
        ++far;
        ASSERT_GT(all[i].normal.w, range_m) << i;
        ASSERT_GT(near[i].normal.w, range_m) << i;
        ASSERT_LE(near[i].normal.w, all[i].normal.w * 1.00001F) << i;
      } else {
        ASSERT_EQ(near[i].status, all[i].status) << i;
        ASSERT_EQ(near[i].normal, all[i].normal) << i;
        if (all[i].status == PALPATE_CONVEX_SEPARATED) {
          ASSERT_LE(near[i].normal.w, range_m + 1e-5F) << i;
        }
      }
    }
    EXPECT_GT(far, kRandomCases / 4);
  }
}

TEST_F(ConvexTest, InputThatIsNotFiniteIsMarked) {
  const std::vector<ConvexMesh> meshes = {Cube()};
  std::vector<Case> cases(4);
  cases[0].b.position = {NAN, 0, 0, 0};
  cases[1].b.position = {INFINITY, 0, 0, 0};
  cases[2].a.rotation = {NAN, NAN, 0, 0};
  cases[3].b.position = {3, 0, 0, 0};
  const std::vector<ConvexContact> contacts = Run(meshes, cases);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(contacts[i].status, PALPATE_CONVEX_NOT_CONVERGED) << i;
    for (const Float4& v : {contacts[i].normal, contacts[i].point_a, contacts[i].point_b}) {
      EXPECT_TRUE(std::isfinite(v.x + v.y + v.z + v.w)) << i;
    }
  }
  EXPECT_EQ(contacts[3].status, PALPATE_CONVEX_SEPARATED);
  EXPECT_FLOAT_EQ(contacts[3].normal.w, 1);
  EXPECT_EQ(statistics_.by_status[PALPATE_CONVEX_NOT_CONVERGED], 3U);
  EXPECT_EQ(statistics_.by_status[PALPATE_CONVEX_SEPARATED], 1U);
}

TEST_F(ConvexTest, PlanesSeeTheDeepestVertex) {
  std::vector<ConvexMesh> meshes = {Cube(), RandomMesh(9), Icosphere(1)};
  std::vector<uint32_t> mesh_of;
  std::vector<Float4> positions, rotations, scales;
  std::vector<Points> world;
  for (uint32_t i = 0; i < 60; ++i) {
    const Pose pose = RandomPose(2, true);
    mesh_of.push_back(i % 3);
    positions.push_back(pose.position);
    rotations.push_back(pose.rotation);
    scales.push_back(pose.scale);
    world.push_back(InWorld(meshes[i % 3], pose));
  }
  const Vector3d up = Vector3d(1, 2, -2) / 3;
  const std::vector<Float4> planes = {{0, 1, 0, -5}, {1 / 3.0F, 2 / 3.0F, -2 / 3.0F, -4}};
  PALPATE_TEST_ASSIGN(const ConvexMeshes device_meshes, ConvexMeshes::Create(queue(), meshes, 20));
  PALPATE_TEST_ASSIGN(ConvexNarrowPhase phase, ConvexNarrowPhase::Create(context()));
  const auto d_mesh_of = Upload(mesh_of);
  const auto d_positions = Upload(positions);
  const auto d_rotations = Upload(rotations);
  const auto d_scales = Upload(scales);
  const auto d_planes = Upload(planes);
  const auto contacts = Allocate<ConvexContact>(120);
  PALPATE_ASSERT_OK(phase.RunPlanes(queue(), device_meshes, {60, d_mesh_of, d_positions, d_rotations, d_scales}, d_planes, contacts));
  const std::vector<ConvexContact> results = Download(contacts);
  for (uint32_t i = 0; i < 120; ++i) {
    const Vector3d n = i % 2 == 0 ? Vector3d::UnitY() : up;
    const double exact = -Support(world[i / 2], -n) - double{planes[i % 2].w};
    ASSERT_EQ(results[i].a, i / 2);
    ASSERT_EQ(results[i].b, PALPATE_PLANE_BIT | (i % 2));
    ASSERT_NEAR(results[i].normal.w, exact, 1e-5);
    if (std::abs(exact) > 1e-5) {
      ASSERT_EQ(results[i].status, exact > 0 ? PALPATE_CONVEX_SEPARATED : PALPATE_CONVEX_OVERLAPPING);
    }
    ASSERT_NEAR(results[i].normal.x * n.x() + results[i].normal.y * n.y() + results[i].normal.z * n.z(), -1, 1e-5);
  }
}

TEST_F(ConvexTest, CountOnTheDeviceLimitsTheWork) {
  const std::vector<ConvexMesh> meshes = {Cube()};
  PALPATE_TEST_ASSIGN(const ConvexMeshes device_meshes, ConvexMeshes::Create(queue(), meshes));
  PALPATE_TEST_ASSIGN(ConvexNarrowPhase phase, ConvexNarrowPhase::Create(context()));
  const auto mesh_of = Upload(std::vector<uint32_t>(3, 0));
  const auto positions = Upload(std::vector<Float4>{{0, 0, 0, 0}, {1.5F, 0.1F, 0, 0}, {3, 0, 0, 0}});
  const auto rotations = Upload(std::vector<Float4>(3, {0, 0, 0, 1}));
  const auto scales = Upload(std::vector<Float4>(3, {1, 1, 1, 0}));
  const auto pairs = Upload(std::vector<UInt2>{{0, 1}, {0, 2}, {1, 2}});
  const auto count = Upload(std::vector<uint32_t>{2});
  const auto contacts = Upload(std::vector<ConvexContact>(3, ConvexContact{7, 7, 7, 7, {}, {}, {}}));
  const ConvexBodies bodies = {3, mesh_of, positions, rotations, scales};
  PALPATE_ASSERT_OK(phase.Run(queue(), device_meshes, bodies, pairs, {3, count}, 1, contacts));
  const std::vector<ConvexContact> results = Download(contacts);
  EXPECT_EQ(results[0].status, PALPATE_CONVEX_OVERLAPPING);
  EXPECT_NEAR(results[0].normal.w, -0.5, 1e-6);
  EXPECT_EQ(results[1].status, PALPATE_CONVEX_SEPARATED);
  EXPECT_EQ(results[2].status, 7U);
  EXPECT_TRUE(absl::IsInvalidArgument(phase.Run(queue(), device_meshes, bodies, pairs, 4, 1, contacts)));
  EXPECT_TRUE(absl::IsInvalidArgument(phase.Run(queue(), device_meshes, bodies, pairs, 3, -1, contacts)));
  EXPECT_TRUE(absl::IsInvalidArgument(phase.Run(queue(), device_meshes, bodies, pairs, 3, NAN, contacts)));
  PALPATE_EXPECT_OK(phase.Run(queue(), device_meshes, bodies, pairs, 0, 1, contacts));
}

TEST_F(ConvexTest, BadMeshesAreRefused) {
  const auto status = [&](const ConvexMesh& mesh) { return ConvexMeshes::Create(queue(), std::vector<ConvexMesh>{Cube(), mesh}).status(); };
  EXPECT_TRUE(absl::IsInvalidArgument(status({})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({{{0, 0, 0, 0}, {NAN, 0, 0, 0}}, {}})));
  ConvexMesh sphere = Icosphere(0);
  PALPATE_EXPECT_OK(status(sphere));
  ConvexMesh bad = sphere;
  bad.triangles[3].y = 12;
  EXPECT_TRUE(absl::IsInvalidArgument(status(bad)));
  bad = sphere;
  bad.triangles.pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(status(bad)));
  bad = sphere;
  bad.triangles.push_back(bad.triangles[0]);
  EXPECT_TRUE(absl::IsInvalidArgument(status(bad)));
  bad = sphere;
  bad.vertices_m[4] = {0, 0, 0, 0};
  EXPECT_TRUE(absl::IsInvalidArgument(status(bad)));
  bad = sphere;
  bad.vertices_m.push_back({0, 0, 0, 0});
  EXPECT_TRUE(absl::IsInvalidArgument(status(bad)));
}

}  // namespace
}  // namespace palpate::gpu::convex_test
