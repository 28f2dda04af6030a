#include "sim/topology/closed_mesh.h"

#include <limits>
#include <set>

#include <Eigen/Geometry>

#include "sim/mesh/exact_predicates.h"
#include "tests/sim/topology/topology_support.h"

namespace palpate::sim::closed_mesh_test {

namespace {

using ::testing::HasSubstr;

TEST(ClosedMeshTest, OneTetHasFourVirtualNeighbours) {
  const ClosedMesh mesh = MustBuild(UnitTetMesh());
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  const ClosedMesh::Counts counts = mesh.Count();
  EXPECT_EQ(counts.vertices, 4U);
  EXPECT_EQ(counts.edges, 6U);
  EXPECT_EQ(counts.faces, 4U);
  EXPECT_EQ(counts.virtual_tets, 4U);
  EXPECT_EQ(counts.virtual_vertices, 1U);
  EXPECT_EQ(counts.RealChi(), 1);
  EXPECT_EQ(counts.SurfaceChi(), 2);
  EXPECT_EQ(counts.ClosedChi(), 0);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(mesh.IsFaceOnSurface(0, i));
  EXPECT_DOUBLE_EQ(mesh.RestVolume(0), 1.0 / 6);
}

// A ball: the pentakis dodecahedron joined to its centre, then one face flipped into an edge eleven times.
TEST(ClosedMeshTest, BallFixtureHasTheCountsAndEulerNumbersOfTheSource) {
  const double phi = (1 + std::sqrt(5.0)) / 2;
  TetMesh ball;
  for (const double a : {-1.0, 1.0}) {
    for (const double b : {-1.0, 1.0}) {
      for (const Eigen::Vector3d& p : {Eigen::Vector3d(0, a, b * phi), Eigen::Vector3d(a, b * phi, 0), Eigen::Vector3d(b * phi, 0, a)}) {
        ball.vertices.push_back(p.normalized());
      }
    }
  }
  for (const double a : {-1.0, 1.0}) {
    for (const double b : {-1.0, 1.0}) {
      for (const double c : {-1.0, 1.0}) ball.vertices.push_back(Eigen::Vector3d(a, b, c).normalized());
      for (const Eigen::Vector3d& p :
           {Eigen::Vector3d(a / phi, 0, b * phi), Eigen::Vector3d(0, b * phi, a / phi), Eigen::Vector3d(b * phi, a / phi, 0)}) {
        ball.vertices.push_back(p.normalized());
      }
    }
  }
  ball.vertices.emplace_back(0, 0, 0);
  ASSERT_EQ(ball.vertices.size(), 33U);
  // A pole and two neighbouring corners of its pentagon: close to the pole and to each other.
  const auto distance = [&](uint32_t a, uint32_t b) { return (ball.vertices[a] - ball.vertices[b]).norm(); };
  for (uint32_t pole = 0; pole < 12; ++pole) {
    for (uint32_t a = 12; a < 32; ++a) {
      for (uint32_t b = a + 1; b < 32; ++b) {
        if (distance(pole, a) > 0.7 || distance(pole, b) > 0.7 || distance(a, b) > 0.8) continue;
        std::array<uint32_t, 4> tet = {32, pole, a, b};
        if (Orient3d(ball.vertices[32], ball.vertices[pole], ball.vertices[a], ball.vertices[b]) < 0) std::swap(tet[2], tet[3]);
        ball.tets.push_back(tet);
      }
    }
  }
  ASSERT_EQ(ball.tets.size(), 60U);
  ClosedMesh mesh = MustBuild(ball);
  EXPECT_EQ(mesh.Count().ClosedChi(), 0);
  int flips = 0;
  for (uint32_t t = 0; t < 60 && flips < 11; ++t) {
    for (int f = 0; f < 4 && mesh.IsTet(t) && flips < 11; ++f) {
      const Neighbor behind = mesh.TetNeighbor(t, f);
      if (behind.is_virtual() || behind.slot() >= 60) continue;
      const auto v = mesh.TetVertices(t);
      uint32_t far = kNoSlot;
      for (const uint32_t w : mesh.TetVertices(behind.slot())) {
        if (std::find(v.begin(), v.end(), w) == v.end()) far = w;
      }
      MeshEdit edit;
      edit.removed = {mesh.IdOfTet(t), mesh.IdOfTet(behind.slot())};
      const auto& face = kTetFaces[static_cast<size_t>(f)];
      for (size_t k = 0; k < 3; ++k) {
        // Seen from outside the face turns counter-clockwise, so the far vertex is above it and vertex f below.
        edit.tets.push_back({.vertices = {mesh.IdOfVertex(v[static_cast<size_t>(f)]), mesh.IdOfVertex(v[static_cast<size_t>(face[k])]),
                                          mesh.IdOfVertex(v[static_cast<size_t>(face[(k + 1) % 3])]), mesh.IdOfVertex(far)}});
      }
      if (mesh.Apply(edit).ok()) ++flips;
    }
  }
  ASSERT_EQ(flips, 11);
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  const ClosedMesh::Counts n = mesh.Count();
  EXPECT_EQ(n.vertices + n.virtual_vertices, 34U);
  EXPECT_EQ(n.virtual_vertices, 1U);
  EXPECT_EQ(n.edges + n.virtual_edges, 165U);
  EXPECT_EQ(n.virtual_edges, 32U);
  EXPECT_EQ(n.faces + n.virtual_faces, 262U);
  EXPECT_EQ(n.virtual_faces, 90U);
  EXPECT_EQ(n.tets + n.virtual_tets, 131U);
  EXPECT_EQ(n.virtual_tets, 60U);
  EXPECT_EQ(n.ClosedChi(), 0);
  EXPECT_EQ(n.SurfaceChi(), 2);
  EXPECT_EQ(n.RealChi(), 1);
  EXPECT_NEAR(
      TotalVolume(mesh),
      [&] {
        double volume = 0;
        for (size_t t = 0; t < ball.tets.size(); ++t) volume += TetVolume(ball, t);
        return volume;
      }(),
      1e-13);
}

// The torus of the source: eight cubes in a ring, six tets each around one diagonal.
TEST(ClosedMeshTest, TorusFixtureHasTheCountsAndEulerNumbersOfTheSource) {
  TetMesh ring;
  const auto index = [](uint32_t i, uint32_t j, uint32_t k) { return i + 4 * (j + 4 * k); };
  for (int k = 0; k < 2; ++k) {
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 4; ++i) ring.vertices.emplace_back(i, j, k);
    }
  }
  for (uint32_t j = 0; j < 3; ++j) {
    for (uint32_t i = 0; i < 3; ++i) {
      if (i == 1 && j == 1) continue;
      std::array<size_t, 3> axes = {0, 1, 2};
      do {
        std::array<uint32_t, 3> at = {i, j, 0};
        std::array<uint32_t, 4> tet = {index(at[0], at[1], at[2])};
        for (size_t s = 0; s < 3; ++s) {
          ++at[axes[s]];
          tet[s + 1] = index(at[0], at[1], at[2]);
        }
        if (Orient3d(ring.vertices[tet[0]], ring.vertices[tet[1]], ring.vertices[tet[2]], ring.vertices[tet[3]]) < 0)
          std::swap(tet[2], tet[3]);
        ring.tets.push_back(tet);
      } while (std::next_permutation(axes.begin(), axes.end()));
    }
  }
  const ClosedMesh mesh = MustBuild(ring);
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  const ClosedMesh::Counts n = mesh.Count();
  EXPECT_EQ(n.vertices + n.virtual_vertices, 33U);
  EXPECT_EQ(n.edges + n.virtual_edges, 144U);
  EXPECT_EQ(n.virtual_edges, 32U);
  EXPECT_EQ(n.faces + n.virtual_faces, 224U);
  EXPECT_EQ(n.virtual_faces, 96U);
  EXPECT_EQ(n.tets + n.virtual_tets, 112U);
  EXPECT_EQ(n.virtual_tets, 64U);
  EXPECT_EQ(n.ClosedChi(), 1);
  EXPECT_EQ(n.SurfaceChi(), 0);
  EXPECT_EQ(n.RealChi(), 0);
}

TEST(ClosedMeshTest, QueriesEqualBruteForce) {
  for (const TetMesh& source : {Made(GenerateKidney(0.11, 0.016)), Made(GenerateTorus(0.06, 0.02, 0.015)), RingOfCells(5, 1)}) {
    const ClosedMesh mesh = MustBuild(source);
    const BoundarySurface boundary = ExtractBoundary(source);
    std::set<std::array<uint32_t, 2>> surface_edges;
    std::set<uint32_t> surface_vertices;
    std::map<uint32_t, size_t> fan_size;
    for (const auto& triangle : boundary.triangles) {
      for (size_t c = 0; c < 3; ++c) {
        const uint32_t a = boundary.vertices[triangle[c]];
        const uint32_t b = boundary.vertices[triangle[(c + 1) % 3]];
        surface_edges.insert({std::min(a, b), std::max(a, b)});
        surface_vertices.insert(a);
        ++fan_size[a];
      }
    }
    EXPECT_EQ(mesh.triangle_count(), boundary.triangles.size());
    std::map<std::array<uint32_t, 2>, std::set<uint32_t>> tets_of_edge;
    std::vector<std::set<uint32_t>> tets_of_vertex(source.vertices.size()), neighbors(source.vertices.size());
    for (uint32_t t = 0; t < source.tets.size(); ++t) {
      for (const auto& [i, j] : kTetEdges) {
        const uint32_t a = source.tets[t][static_cast<size_t>(i)];
        const uint32_t b = source.tets[t][static_cast<size_t>(j)];
        tets_of_edge[{std::min(a, b), std::max(a, b)}].insert(t);
        neighbors[a].insert(b);
        neighbors[b].insert(a);
      }
      for (const uint32_t v : source.tets[t]) tets_of_vertex[v].insert(t);
    }
    std::vector<uint32_t> found;
    const auto as_set = [&] { return std::set<uint32_t>(found.begin(), found.end()); };
    for (uint32_t v = 0; v < source.vertices.size(); ++v) {
      mesh.TetsAroundVertex(v, &found);
      EXPECT_EQ(found.size(), tets_of_vertex[v].size());
      EXPECT_EQ(as_set(), tets_of_vertex[v]);
      mesh.NeighborsOfVertex(v, &found);
      EXPECT_EQ(as_set(), neighbors[v]);
      EXPECT_EQ(mesh.IsVertexOnSurface(v), surface_vertices.count(v) == 1);
      mesh.SurfaceFan(v, &found);
      EXPECT_EQ(found.size(), fan_size[v]);
      for (size_t k = 0; k < found.size(); ++k) {
        // Each triangle's edge back to the vertex is the next one's edge away from it.
        const auto& a = mesh.TriangleVertices(found[k]);
        const auto& b = mesh.TriangleVertices(found[(k + 1) % found.size()]);
        const auto own = [v](const auto& t) { return static_cast<size_t>(std::find(t.begin(), t.end(), v) - t.begin()); };
        EXPECT_EQ(a[(own(a) + 2) % 3], b[(own(b) + 1) % 3]);
      }
    }
    for (uint32_t t = 0; t < source.tets.size(); ++t) {
      for (int e = 0; e < 6; ++e) {
        const uint32_t a = source.tets[t][static_cast<size_t>(kTetEdges[static_cast<size_t>(e)][0])];
        const uint32_t b = source.tets[t][static_cast<size_t>(kTetEdges[static_cast<size_t>(e)][1])];
        const std::array<uint32_t, 2> edge = {std::min(a, b), std::max(a, b)};
        EXPECT_EQ(mesh.IsEdgeOnSurface(t, e), surface_edges.count(edge) == 1);
        mesh.TetsAroundEdge(t, e, &found);
        EXPECT_EQ(found.size(), tets_of_edge[edge].size());
        EXPECT_EQ(as_set(), tets_of_edge[edge]);
        for (size_t k = 0; k + 1 < found.size(); ++k) {
          bool is_joined = false;
          for (int f = 0; f < 4; ++f) is_joined = is_joined || mesh.TetNeighbor(found[k], f) == Neighbor::Tet(found[k + 1]);
          EXPECT_TRUE(is_joined);
        }
      }
    }
  }
}

TEST(ClosedMeshTest, BuildRefusesWhatIsNoManifold) {
  // Two tets that share an edge only, then a vertex only.
  TetMesh edge = UnitTetMesh();
  edge.vertices.insert(edge.vertices.end(), {{-1, 0, 0}, {0, -1, 0}});
  edge.tets.push_back({0, 4, 5, 3});
  auto built = ClosedMesh::Build(edge);
  EXPECT_EQ(built.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(built.status().message()), HasSubstr("manifold at"));
  TetMesh vertex = UnitTetMesh();
  vertex.vertices.insert(vertex.vertices.end(), {{-1, 0, 0}, {0, -1, 0}, {0, 0, -1}});
  vertex.tets.push_back({0, 5, 4, 6});
  ASSERT_EQ(ValidateTetMesh(vertex), absl::OkStatus());
  built = ClosedMesh::Build(vertex);
  EXPECT_EQ(built.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(built.status().message()), HasSubstr("manifold at"));
  // Inverted, and a tet twice.
  TetMesh inverted = UnitTetMesh();
  std::swap(inverted.tets[0][0], inverted.tets[0][1]);
  EXPECT_EQ(ClosedMesh::Build(inverted).status().code(), absl::StatusCode::kInvalidArgument);
  TetMesh twice = UnitTetMesh();
  twice.tets.push_back({1, 2, 0, 3});
  EXPECT_EQ(ClosedMesh::Build(twice).status().code(), absl::StatusCode::kInvalidArgument);
  const std::array<TetZoneId, 2> zones = {0, 1};
  EXPECT_EQ(ClosedMesh::Build(UnitTetMesh(), zones).status().code(), absl::StatusCode::kInvalidArgument);
}

// Every stored field that an edit maintains is compared by Check: breaking one is noticed.
TEST(ClosedMeshTest, CheckFindsBrokenRecords) {
  const TetMesh source = Cube(4);
  ClosedMesh mesh = MustBuild(source);
  ASSERT_EQ(mesh.Check(), absl::OkStatus());
  const auto expect_broken = [&](auto&& breaker, const char* text) {
    ClosedMesh broken = mesh;
    breaker(broken);
    const absl::Status status = broken.Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  uint32_t inner = 0;
  while (mesh.IsVertexOnSurface(inner)) ++inner;
  const uint32_t surface_tet = mesh.TriangleTet(0);
  expect_broken([&](ClosedMesh& m) { ClosedMeshPeer::Vertices(m)[0].tet = m.tet_slot_count() - 1; }, "does not contain it");
  expect_broken([&](ClosedMesh& m) { ClosedMeshPeer::Vertices(m)[0].triangle = kNoSlot; }, "wrong mark of the surface");
  expect_broken([&](ClosedMesh& m) { ClosedMeshPeer::Vertices(m)[inner].position_m.x() += 1e-9; }, "hash");
  expect_broken([&](ClosedMesh& m) { std::swap(ClosedMeshPeer::Tets(m)[0].vertices[0], ClosedMeshPeer::Tets(m)[0].vertices[1]); },
                ": its tets have different orientations");
  expect_broken([&](ClosedMesh& m) { ClosedMeshPeer::Tets(m)[surface_tet].surface_edges = 0; }, "wrong mark of the surface");
  expect_broken([&](ClosedMesh& m) { ClosedMeshPeer::Tets(m)[5].zone = 9; }, "zone 9");
  expect_broken([&](ClosedMesh& m) { std::swap(ClosedMeshPeer::Triangles(m)[0].vertices[0], ClosedMeshPeer::Triangles(m)[0].vertices[1]); },
                "triangle 0 is not face 3 of tet 1 seen from outside");
  expect_broken([&](ClosedMesh& m) { ClosedMeshPeer::Triangles(m)[0].neighbors[1] = 7; }, "do not agree");
  expect_broken([&](ClosedMesh& m) { ClosedMeshPeer::Tets(m)[1].vertices = ClosedMeshPeer::Tets(m)[0].vertices; },
                "vertex 1 refers to tet 1, which does not contain it");
  expect_broken(
      [&](ClosedMesh& m) {
        for (auto& n : ClosedMeshPeer::Tets(m)[surface_tet].neighbors) n = Neighbor::Triangle(0);
      },
      "triangle 0 is not face 0 of tet 1 seen from outside");
  // Two virtual vertices on one component.
  expect_broken(
      [&](ClosedMesh& m) {
        ClosedMeshPeer::Surfaces(m).Remove(0);
        ClosedMeshPeer::Surfaces(m).Add(0);
        std::vector<MeshDelta::Move> moved;
        std::vector<ComponentId> added, removed;
        const std::vector<uint32_t> seeds = {0};
        ClosedMeshPeer::Surfaces(m).Update(
            seeds, [](uint32_t, const auto&) {}, &moved, &added, &removed);
      },
      "component");
}

TEST(ClosedMeshTest, ErrorsLeaveTheMeshUnchanged) {
  ClosedMesh mesh = MustBuild(Cube(4));
  const TetMesh before = mesh.ToTetMesh();
  const uint64_t hash = mesh.hash();
  const uint64_t version = mesh.version();
  const TetId tet = mesh.IdOfTet(0);
  const auto& tv = mesh.TetVertices(0);
  const std::array<VertexId, 4> v = {mesh.IdOfVertex(tv[0]), mesh.IdOfVertex(tv[1]), mesh.IdOfVertex(tv[2]), mesh.IdOfVertex(tv[3])};
  const Eigen::Vector3d far(1, 2, 3);
  const auto refuse = [&](const MeshEdit& edit, absl::StatusCode code, const char* text) {
    const absl::Status status = mesh.Apply(edit);
    EXPECT_EQ(status.code(), code) << text << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_EQ(mesh.Check(), absl::OkStatus());
    EXPECT_EQ(mesh.hash(), hash);
    EXPECT_EQ(mesh.version(), version);
    EXPECT_EQ(mesh.ToTetMesh().tets, before.tets);
    EXPECT_EQ(mesh.vertex_slot_count(), before.vertices.size());
  };
  using Code = absl::StatusCode;
  refuse({.removed = {kNoTet}}, Code::kNotFound, "does not exist");
  refuse({.removed = {MakeId<TetId>(3, 77)}}, Code::kNotFound, "generation 77");
  refuse({.removed = {tet, tet}}, Code::kInvalidArgument, "named twice");
  refuse({.tets = {{.vertices = {v[0], v[1], v[2], MakeId<VertexId>(9999, 1)}}}}, Code::kNotFound, "does not exist");
  refuse({.tets = {{.vertices = {v[0], v[1], v[2], NewVertexId(0)}}}}, Code::kNotFound, "new vertex 0");
  refuse({.tets = {{.vertices = v}}}, Code::kInvalidArgument, "more than two tets");
  refuse({.removed = {tet}, .tets = {{.vertices = {v[1], v[0], v[2], v[3]}, .parent = tet}}}, Code::kInvalidArgument, "orientation");
  refuse({.removed = {tet}, .tets = {{.vertices = v}, {.vertices = {v[1], v[2], v[0], v[3]}}}}, Code::kInvalidArgument,
         "more than two tets");
  refuse({.removed = {tet}, .tets = {{.vertices = {v[0], v[1], v[2], v[2]}}}}, Code::kInvalidArgument, "used twice");
  refuse({.removed = {tet}, .tets = {{.vertices = v, .parent = mesh.IdOfTet(1)}}}, Code::kInvalidArgument, "is not removed");
  refuse({.removed = {tet}, .tets = {{.vertices = v, .zone = 5}}}, Code::kInvalidArgument, "zone 5");
  refuse({.vertices = {{.position_m = far}}}, Code::kInvalidArgument, "belongs to no new tet");
  refuse({.vertices = {{.position_m = far * std::numeric_limits<double>::infinity()}}}, Code::kInvalidArgument, "not finite");
  refuse({.vertices = {{.position_m = far, .sources = {{{v[0], 0.5}, {v[1], 0.4}}}, .source_count = 2}}}, Code::kInvalidArgument, "0.9");
  refuse({.vertices = {{.position_m = far, .sources = {{{kNoVertex, 1.0}}}, .source_count = 1}}}, Code::kNotFound, "source");
  // A tet on a face that has two tets, and one that hangs by a vertex.
  uint32_t inner = 0;
  int face = 0;
  for (; inner < mesh.tet_slot_count() && mesh.IsFaceOnSurface(inner, face); ++inner) {
  }
  const auto& iv = mesh.TetVertices(inner);
  const Eigen::Vector3d inside =
      mesh.PositionOf(iv[0]) * 0.5 + (mesh.PositionOf(iv[1]) + mesh.PositionOf(iv[2]) + mesh.PositionOf(iv[3])) / 6;
  const std::array<VertexId, 3> base = {mesh.IdOfVertex(iv[1]), mesh.IdOfVertex(iv[2]), mesh.IdOfVertex(iv[3])};
  refuse({.vertices = {{.position_m = inside}}, .tets = {{.vertices = {NewVertexId(0), base[0], base[1], base[2]}}}},
         Code::kInvalidArgument, "more than two tets");
  const Eigen::Vector3d corner = mesh.PositionOf(0);
  MeshEdit hanging;
  for (const Eigen::Vector3d& step : {Eigen::Vector3d(-1, 0, 0), Eigen::Vector3d(0, -1, 0), Eigen::Vector3d(0, 0, -1)}) {
    hanging.vertices.push_back({.position_m = corner + step});
  }
  hanging.tets.push_back({.vertices = {mesh.IdOfVertex(0), NewVertexId(1), NewVertexId(0), NewVertexId(2)}});
  refuse(hanging, Code::kFailedPrecondition, "manifold at vertex 0");
}

TEST(ClosedMeshTest, IdsAreNeverUsedAgain) {
  ClosedMesh mesh = MustBuild(Cube(3));
  std::set<TetId> seen;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) seen.insert(mesh.IdOfTet(t));
  const uint32_t slots = mesh.tet_slot_count();
  // Takes a tet out and puts it back, again and again: same slots, new ids.
  for (int round = 0; round < 50; ++round) {
    const TetId id = mesh.IdOfTet(mesh.TriangleTet(mesh.Find(mesh.delta().added_triangles.back().id)));
    const uint32_t slot = mesh.Find(id);
    MeshEdit edit{.removed = {id}};
    edit.tets.push_back({.parent = id});
    for (size_t c = 0; c < 4; ++c) edit.tets[0].vertices[c] = mesh.IdOfVertex(mesh.TetVertices(slot)[c]);
    ASSERT_EQ(mesh.Apply(edit), absl::OkStatus());
    EXPECT_EQ(mesh.Find(id), kNoSlot);
    EXPECT_TRUE(mesh.delta().added_triangles.empty());  // all faces are as before
    EXPECT_TRUE(mesh.delta().removed_triangles.empty());
    EXPECT_GT(mesh.delta().rehomed_triangles.size(), 0U);
    const TetId fresh = mesh.delta().added_tets[0].id;
    EXPECT_TRUE(seen.insert(fresh).second);
    ASSERT_EQ(mesh.Check(), absl::OkStatus());
    // Next round needs an added triangle: uncover and cover one.
    MeshEdit out{.removed = {fresh}};
    ASSERT_EQ(mesh.Apply(out), absl::OkStatus());
    MeshEdit in{.tets = edit.tets};
    in.tets[0].parent = kNoTet;
    bool same_vertices = true;
    for (const VertexId v : in.tets[0].vertices) same_vertices = same_vertices && mesh.Find(v) != kNoSlot;
    if (!same_vertices) break;
    ASSERT_EQ(mesh.Apply(in), absl::OkStatus());
    EXPECT_TRUE(seen.insert(mesh.delta().added_tets[0].id).second);
  }
  EXPECT_LE(mesh.tet_slot_count(), slots + 1);
  EXPECT_GT(seen.size(), slots + 50U);
}

TEST(ClosedMeshTest, SeparationSplitsComponentAndVirtualVertexAndJoiningMergesThem) {
  // A bar of nine cells; the middle one is taken out and put back.
  const TetMesh bar = Made(BoxMesh({10, 2, 2}, {0.9, 0.1, 0.1}));
  ClosedMesh mesh = MustBuild(bar);
  ASSERT_EQ(mesh.Components().size(), 1U);
  const auto slice = [&](double low, double high) {
    std::vector<TetId> ids;
    for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
      if (!mesh.IsTet(t)) continue;
      double x = 0;
      for (const uint32_t v : mesh.TetVertices(t)) x += mesh.PositionOf(v).x() / 4;
      if (x > low && x < high) ids.push_back(mesh.IdOfTet(t));
    }
    return ids;
  };
  MeshEdit edit{.removed = slice(0.15, 0.25)};
  ASSERT_EQ(edit.removed.size(), 5U);
  MeshEdit back;
  for (const TetId id : edit.removed) {
    MeshEdit::NewTet tet;
    for (size_t c = 0; c < 4; ++c) tet.vertices[c] = mesh.IdOfVertex(mesh.TetVertices(mesh.Find(id))[c]);
    back.tets.push_back(tet);
  }
  ASSERT_EQ(mesh.Apply(edit), absl::OkStatus());
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_EQ(mesh.Components().size(), 2U);
  EXPECT_EQ(mesh.Surfaces().size(), 2U);
  EXPECT_EQ(mesh.delta().added_components.size(), 1U);
  EXPECT_EQ(mesh.delta().added_surfaces.size(), 1U);
  // The smaller piece (two cells) is the new one.
  EXPECT_EQ(mesh.ComponentTetCount(mesh.delta().added_components[0]), 10U);
  EXPECT_EQ(mesh.delta().moved_tets.size(), 10U);
  ASSERT_EQ(mesh.Apply(back), absl::OkStatus());
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_EQ(mesh.Components().size(), 1U);
  EXPECT_EQ(mesh.Surfaces().size(), 1U);
  EXPECT_EQ(mesh.delta().removed_components.size(), 1U);
  EXPECT_EQ(mesh.delta().moved_tets.size(), 10U);
  EXPECT_NEAR(TotalVolume(mesh), 0.9 * 0.1 * 0.1, 1e-15);

  // The same cut through one side of a ring separates nothing.
  ClosedMesh ring = MustBuild(RingOfCells(7, 5));
  MeshEdit cut;
  for (uint32_t t = 0; t < ring.tet_slot_count(); ++t) {
    Eigen::Vector3d centre = Eigen::Vector3d::Zero();
    for (const uint32_t v : ring.TetVertices(t)) centre += ring.PositionOf(v) / 4;
    if (std::abs(centre.x()) < 0.05 / 7 && centre.y() > 0) cut.removed.push_back(ring.IdOfTet(t));
  }
  ASSERT_EQ(cut.removed.size(), 5U);
  EXPECT_EQ(ring.Count().SurfaceChi(), 0);
  ASSERT_EQ(ring.Apply(cut), absl::OkStatus());
  EXPECT_EQ(ring.Check(), absl::OkStatus());
  EXPECT_EQ(ring.Components().size(), 1U);
  EXPECT_EQ(ring.Surfaces().size(), 1U);
  EXPECT_EQ(ring.Count().SurfaceChi(), 2);
}

TEST(ClosedMeshTest, CavityHasASurfaceOfItsOwnUntilItIsOpened) {
  ClosedMesh mesh = MustBuild(Cube(6));
  const auto centre = [&](uint32_t t) {
    Eigen::Vector3d sum = Eigen::Vector3d::Zero();
    for (const uint32_t v : mesh.TetVertices(t)) sum += mesh.PositionOf(v) / 4;
    return sum;
  };
  const auto take = [&](const auto& wanted) {
    MeshEdit edit;
    for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
      if (mesh.IsTet(t) && wanted(centre(t))) edit.removed.push_back(mesh.IdOfTet(t));
    }
    return mesh.Apply(edit);
  };
  // 5 x 5 x 5 cells of 0.02; the middle one, then a channel to the top.
  ASSERT_EQ(take([](const Eigen::Vector3d& c) { return c.cwiseAbs().maxCoeff() < 0.01; }), absl::OkStatus());
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_EQ(mesh.Components().size(), 1U);
  EXPECT_EQ(mesh.Surfaces().size(), 2U);
  EXPECT_EQ(mesh.SurfaceTriangleCount(mesh.delta().added_surfaces[0]), 12U);
  EXPECT_EQ(mesh.Count().SurfaceChi(), 4);
  ASSERT_EQ(take([](const Eigen::Vector3d& c) { return std::max(std::abs(c.x()), std::abs(c.y())) < 0.01 && c.z() > 0; }),
            absl::OkStatus());
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_EQ(mesh.Surfaces().size(), 1U);
  EXPECT_EQ(mesh.delta().removed_surfaces.size(), 1U);
  EXPECT_EQ(mesh.Count().SurfaceChi(), 2);
}

TEST(ClosedMeshTest, DetachMakesAMeshOfItsOwn) {
  const TetMesh bar = Made(BoxMesh({10, 3, 3}, {0.9, 0.1, 0.1}));
  ClosedMesh mesh = MustBuild(bar);
  const SurfaceZoneId flesh = *mesh.AddSurfaceZone("flesh");
  mesh.SetInteriorSurfaceZone(0, flesh);
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    for (const uint32_t v : mesh.TriangleVertices(t)) mesh.SetTextureCoordinate(0, v, {static_cast<float>(v), 0.5F});
  }
  const double volume_m3 = TotalVolume(mesh);
  MeshEdit edit;
  double cut_m3 = 0;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    double x = 0;
    for (const uint32_t v : mesh.TetVertices(t)) x += mesh.PositionOf(v).x() / 4;
    if (x > 0.15 && x < 0.25) {
      edit.removed.push_back(mesh.IdOfTet(t));
      cut_m3 += mesh.RestVolume(t);
    }
  }
  ASSERT_EQ(mesh.Apply(edit), absl::OkStatus());
  ASSERT_EQ(mesh.delta().added_components.size(), 1U);
  const ComponentId piece_id = mesh.delta().added_components[0];
  const size_t piece_tets = mesh.ComponentTetCount(piece_id);
  EXPECT_EQ(mesh.Detach(99).status().code(), absl::StatusCode::kNotFound);
  auto piece = mesh.Detach(piece_id);
  ASSERT_TRUE(piece.ok()) << piece.status();
  EXPECT_EQ(piece->mesh.Check(), absl::OkStatus());
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_EQ(piece->mesh.tet_count(), piece_tets);
  EXPECT_EQ(piece->source_tets.size(), piece_tets);
  EXPECT_EQ(mesh.Components().size(), 1U);
  EXPECT_EQ(mesh.Find(piece->source_tets[0]), kNoSlot);
  EXPECT_NEAR(TotalVolume(mesh) + TotalVolume(piece->mesh) + cut_m3, volume_m3, 1e-15);
  size_t flesh_triangles = 0;
  for (uint32_t t = 0; t < piece->mesh.triangle_slot_count(); ++t) flesh_triangles += piece->mesh.TriangleZoneOf(t) == flesh ? 1 : 0;
  EXPECT_EQ(flesh_triangles, 8U);  // the cut face: 2 x 2 cells
  for (uint32_t v = 0; v < piece->mesh.vertex_slot_count(); ++v) {
    const auto* corner = piece->mesh.FindSurfaceCorner(0, v);
    if (corner == nullptr) continue;
    ASSERT_TRUE(corner->texture_coordinate.has_value());
    EXPECT_EQ((*corner->texture_coordinate)[0], static_cast<float>(SlotOf(piece->source_vertices[v])));
  }
}

TEST(ClosedMeshTest, ZonesColourWhatIsUncovered) {
  const TetMesh source = Cube(6);
  std::vector<TetZoneId> zones(source.tets.size(), 0);
  for (size_t t = 0; t < source.tets.size(); ++t) {
    double z = 0;
    for (const uint32_t v : source.tets[t]) z += source.vertices[v].z() / 4;
    zones[t] = z < 0.01 ? 1 : 0;  // the tumour fills the lower part
  }
  auto built = ClosedMesh::Build(source, zones);
  ASSERT_TRUE(built.ok()) << built.status();
  ClosedMesh mesh = *std::move(built);
  const SurfaceZoneId flesh = *mesh.AddSurfaceZone("flesh");
  const SurfaceZoneId tumour = *mesh.AddSurfaceZone("tumour");
  EXPECT_EQ(mesh.AddTetZone({"x", 17}).status().code(), absl::StatusCode::kInvalidArgument);
  mesh.SetInteriorSurfaceZone(0, flesh);
  mesh.SetInteriorSurfaceZone(1, tumour);
  // A column from the top through the middle, down into the tumour.
  MeshEdit edit;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    Eigen::Vector3d c = Eigen::Vector3d::Zero();
    for (const uint32_t v : mesh.TetVertices(t)) c += mesh.PositionOf(v) / 4;
    if (std::max(std::abs(c.x()), std::abs(c.y())) < 0.01 && c.z() > -0.01) edit.removed.push_back(mesh.IdOfTet(t));
  }
  ASSERT_EQ(mesh.Apply(edit), absl::OkStatus());
  ASSERT_EQ(mesh.Check(), absl::OkStatus());
  size_t uncovered[3] = {0, 0, 0};
  for (const auto& triangle : mesh.delta().added_triangles) {
    ++uncovered[triangle.zone];
    EXPECT_EQ(triangle.zone, zones[SlotOf(triangle.tet)] == 1 ? tumour : flesh);
  }
  EXPECT_EQ(uncovered[0], 0U);
  EXPECT_GT(uncovered[flesh], 0U);
  EXPECT_GT(uncovered[tumour], 0U);
  // Vertices on the rim of the hole are in the old and the new zone, each with its own texture coordinate.
  size_t on_border = 0;
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
    if (!mesh.IsVertex(v) || mesh.FindSurfaceCorner(0, v) == nullptr || mesh.FindSurfaceCorner(flesh, v) == nullptr) continue;
    mesh.SetTextureCoordinate(0, v, {1, 2});
    mesh.SetTextureCoordinate(flesh, v, {3, 4});
    EXPECT_EQ((*mesh.FindSurfaceCorner(0, v)->texture_coordinate)[0], 1.0F);
    ++on_border;
  }
  EXPECT_EQ(on_border, 4U);
  // Without triangles no entries are left.
  MeshEdit all;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (mesh.IsTet(t)) all.removed.push_back(mesh.IdOfTet(t));
  }
  ASSERT_EQ(mesh.Apply(all), absl::OkStatus());
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_EQ(mesh.tet_count() + mesh.vertex_count() + mesh.triangle_count(), 0U);
  for (const SurfaceZoneId zone : {SurfaceZoneId{0}, flesh, tumour}) EXPECT_EQ(mesh.SurfaceCornerCount(zone), 0U);
  EXPECT_TRUE(mesh.Components().empty());
  EXPECT_TRUE(mesh.Surfaces().empty());
}

// Counts calls and looks at what observers may rely on.
class CountingObserver : public MeshObserver {
 public:
  void OnVertexAdded(const ClosedMesh& mesh, const MeshDelta::AddedVertex& vertex) override {
    ++vertices_added;
    double sum = 0;
    for (uint32_t s = 0; s < vertex.source_count; ++s) sum += vertex.sources[s].weight;
    EXPECT_DOUBLE_EQ(sum, vertex.source_count > 0 ? 1 : 0);
    EXPECT_NE(mesh.Find(vertex.id), kNoSlot);
  }
  void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) override {
    ++tets_added;
    EXPECT_NE(mesh.Find(tet.id), kNoSlot);
    EXPECT_EQ(mesh.Find(tet.parent), kNoSlot);
    EXPECT_NE(SlotOf(tet.parent), SlotOf(tet.id));
  }
  void OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>&) override {
    ++tets_removed;
    EXPECT_EQ(mesh.Find(tet), kNoSlot);
  }
  void OnVertexRemoved(const ClosedMesh& mesh, VertexId vertex) override {
    ++vertices_removed;
    EXPECT_EQ(mesh.Find(vertex), kNoSlot);
  }
  void OnSurfaceChanged(const ClosedMesh&, const MeshDelta&) override { ++surface_changes; }
  void OnEdited(const ClosedMesh& mesh, const MeshDelta& delta) override {
    ++edits;
    EXPECT_EQ(mesh.version(), delta.version);
  }
  int vertices_added = 0, tets_added = 0, tets_removed = 0, vertices_removed = 0, surface_changes = 0, edits = 0;
};

TEST(ClosedMeshTest, ObserversSeeOneCallForEachElement) {
  ClosedMesh mesh = MustBuild(Cube(4));
  CountingObserver observer;
  mesh.AddObserver(&observer);
  // A tet inside is replaced by four around a new vertex in its middle.
  uint32_t t = 0;
  while (mesh.IsFaceOnSurface(t, 0) || mesh.IsFaceOnSurface(t, 1) || mesh.IsFaceOnSurface(t, 2) || mesh.IsFaceOnSurface(t, 3)) ++t;
  MeshEdit edit{.removed = {mesh.IdOfTet(t)}};
  MeshEdit::NewVertex middle{.position_m = Eigen::Vector3d::Zero(), .source_count = 4};
  std::array<VertexId, 4> v;
  for (size_t c = 0; c < 4; ++c) {
    v[c] = mesh.IdOfVertex(mesh.TetVertices(t)[c]);
    middle.position_m += mesh.PositionOf(SlotOf(v[c])) / 4;
    middle.sources[c] = {v[c], 0.25};
  }
  edit.vertices.push_back(middle);
  for (size_t c = 0; c < 4; ++c) {
    MeshEdit::NewTet child{.vertices = v, .parent = edit.removed[0]};
    child.vertices[c] = NewVertexId(0);
    edit.tets.push_back(child);
  }
  ASSERT_EQ(mesh.Apply(edit), absl::OkStatus());
  EXPECT_EQ(observer.vertices_added, 1);
  EXPECT_EQ(observer.tets_added, 4);
  EXPECT_EQ(observer.tets_removed, 1);
  EXPECT_EQ(observer.vertices_removed, 0);
  EXPECT_EQ(observer.surface_changes, 0);
  EXPECT_EQ(observer.edits, 1);
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  // A refused edit and an empty one call nobody.
  EXPECT_FALSE(mesh.Apply(edit).ok());
  EXPECT_EQ(mesh.Apply({}), absl::OkStatus());
  EXPECT_EQ(observer.edits, 1);
  mesh.RemoveObserver(&observer);
  ASSERT_EQ(mesh.Apply({.removed = {mesh.IdOfTet(mesh.TriangleTet(0))}}), absl::OkStatus());
  EXPECT_EQ(observer.edits, 1);
}

// The same edit in a small and in a large mesh looks at the same number of records.
TEST(ClosedMeshTest, CostOfAnEditDoesNotGrowWithTheMesh) {
  std::array<ClosedMesh::EditCost, 2> cost;
  const std::array<uint32_t, 2> nodes = {6, 28};
  for (size_t i = 0; i < 2; ++i) {
    ClosedMesh mesh = MustBuild(Made(BoxMesh({nodes[i], nodes[i], nodes[i]}, {0.1, 0.1, 0.1})));
    // The same corner of both: the tets at the second vertex of the lowest edge.
    std::vector<uint32_t> tets;
    mesh.TetsAroundVertex(1, &tets);
    MeshEdit edit;
    for (const uint32_t t : tets) edit.removed.push_back(mesh.IdOfTet(t));
    ASSERT_EQ(mesh.Apply(edit), absl::OkStatus());
    cost[i] = mesh.edit_cost();
    EXPECT_EQ(mesh.Check(), absl::OkStatus());
  }
  EXPECT_EQ(cost[0].tets_read, cost[1].tets_read);
  EXPECT_EQ(cost[0].records_written, cost[1].records_written);
  EXPECT_EQ(cost[0].component_visits, cost[1].component_visits);
  EXPECT_LT(cost[1].component_visits, 200U);
  EXPECT_LT(cost[1].tets_read, 500U);
}

TEST(ClosedMeshTest, CanRemoveAgreesWithBruteForceAndChangesNothing) {
  ClosedMesh mesh = MustBuild(Made(GenerateKidney(0.11, 0.016)));
  Random random(5);
  const uint64_t hash = mesh.hash();
  const auto tets = TetsOf(mesh);
  int removable = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<uint32_t> set;
    std::vector<uint32_t> star;
    mesh.TetsAroundVertex(random.Below(mesh.vertex_slot_count()), &star);
    for (const uint32_t t : star) {
      if (random.Below(3) == 0) set.push_back(t);
    }
    std::vector<std::array<uint32_t, 4>> rest;
    for (uint32_t t = 0; t < tets.size(); ++t) {
      if (std::find(set.begin(), set.end(), t) == set.end()) rest.push_back(tets[t]);
    }
    const bool can = mesh.CanRemove(set);
    removable += can ? 1 : 0;
    EXPECT_EQ(can, IsSurfaceManifold(rest)) << "round " << round;
  }
  EXPECT_GT(removable, 5);
  EXPECT_LT(removable, 295);
  EXPECT_EQ(mesh.hash(), hash);
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
}

}  // namespace
}  // namespace palpate::sim::closed_mesh_test
