// What closed_mesh_test asks of small meshes, of meshes of more than 100,000 tets: queries against brute force before and after edits,
// transactions and their observers, undo, ids, components, zones.
#include <set>

#include "sim/topology/carving.h"
#include "sim/topology/closed_mesh.h"
#include "sim/topology/refinement.h"
#include "tests/sim/topology/topology_support.h"

namespace palpate::sim::large_mesh_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLarge = 100000;

// About 120,000 tets, the same for all tests.
const TetMesh& Liver() {
  static const TetMesh liver = Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 120000)));
  return liver;
}

Eigen::Vector3d CentreOf(const ClosedMesh& mesh, uint32_t tet) {
  Eigen::Vector3d sum = Eigen::Vector3d::Zero();
  for (const uint32_t v : mesh.TetVertices(tet)) sum += mesh.PositionOf(v) / 4;
  return sum;
}

template <typename F>
std::vector<TetId> TetsWhere(const ClosedMesh& mesh, const F& wanted) {
  std::vector<TetId> ids;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (mesh.IsTet(t) && wanted(CentreOf(mesh, t))) ids.push_back(mesh.IdOfTet(t));
  }
  return ids;
}

std::array<VertexId, 4> VertexIdsOf(const ClosedMesh& mesh, uint32_t tet) {
  std::array<VertexId, 4> ids;
  for (size_t c = 0; c < 4; ++c) ids[c] = mesh.IdOfVertex(mesh.TetVertices(tet)[c]);
  return ids;
}

// Neighbourhoods and surface from the vertices of the live tets alone.
struct BruteForce {
  explicit BruteForce(const ClosedMesh& mesh) : tets_of_vertex(mesh.vertex_slot_count()), neighbors(mesh.vertex_slot_count()) {
    std::vector<std::array<uint32_t, 3>> faces;
    for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
      if (!mesh.IsTet(t)) continue;
      const auto& v = mesh.TetVertices(t);
      for (size_t c = 0; c < 4; ++c) {
        tets_of_vertex[v[c]].push_back(t);
        std::array<uint32_t, 3> face = {v[(c + 1) % 4], v[(c + 2) % 4], v[(c + 3) % 4]};
        std::sort(face.begin(), face.end());
        faces.push_back(face);
        for (size_t d = 0; d < 4; ++d) {
          if (d == c) continue;
          neighbors[v[c]].push_back(v[d]);
          if (v[c] < v[d]) tets_of_edge.push_back({v[c], v[d], t});
        }
      }
    }
    std::sort(tets_of_edge.begin(), tets_of_edge.end());
    for (auto& list : neighbors) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
      edge_count += list.size();
    }
    edge_count /= 2;
    std::sort(faces.begin(), faces.end());
    for (size_t i = 0; i < faces.size(); ++face_count) {
      size_t end = i + 1;
      while (end < faces.size() && faces[end] == faces[i]) ++end;
      if (end == i + 1) {
        const auto [a, b, c] = faces[i];
        surface_faces.push_back(faces[i]);
        surface_edges.insert(surface_edges.end(), {{a, b}, {a, c}, {b, c}});
        surface_vertices.insert(surface_vertices.end(), {a, b, c});
      }
      i = end;
    }
    std::sort(surface_edges.begin(), surface_edges.end());
    std::sort(surface_vertices.begin(), surface_vertices.end());
  }

  std::vector<std::vector<uint32_t>> tets_of_vertex, neighbors;  // [vertex slot], ascending
  std::vector<std::array<uint32_t, 3>> tets_of_edge;             // (lower vertex, higher vertex, tet), ascending
  std::vector<std::array<uint32_t, 3>> surface_faces;            // ascending
  std::vector<std::array<uint32_t, 2>> surface_edges;            // ascending, each twice
  std::vector<uint32_t> surface_vertices;                        // ascending, each as often as it has surface triangles
  size_t edge_count = 0, face_count = 0;
};

template <typename T>
size_t CountOf(const std::vector<T>& sorted, const T& value) {
  const auto range = std::equal_range(sorted.begin(), sorted.end(), value);
  return static_cast<size_t>(range.second - range.first);
}

// All predicates and all neighbourhoods; mismatches are counted, as a message for each would be a book.
void ExpectQueriesEqualBruteForce(const ClosedMesh& mesh) {
  const BruteForce brute(mesh);
  size_t faces = 0, edges = 0, vertices = 0, stars = 0, rings = 0, fans = 0, circles = 0, checked_circles = 0;
  std::vector<uint32_t> found;
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
    if (mesh.IsVertex(v) == brute.tets_of_vertex[v].empty()) ++vertices;
    if (!mesh.IsVertex(v)) continue;
    const size_t fan = CountOf(brute.surface_vertices, v);
    vertices += mesh.IsVertexOnSurface(v) == (fan > 0) ? 0 : 1;
    mesh.TetsAroundVertex(v, &found);
    std::sort(found.begin(), found.end());
    stars += found == brute.tets_of_vertex[v] ? 0 : 1;
    mesh.NeighborsOfVertex(v, &found);
    rings += found == brute.neighbors[v] ? 0 : 1;
    mesh.SurfaceFan(v, &found);
    bool is_fan = found.size() == fan;
    for (const uint32_t t : found) {
      auto corners = mesh.TriangleVertices(t);
      std::sort(corners.begin(), corners.end());
      is_fan = is_fan && std::count(corners.begin(), corners.end(), v) == 1 && CountOf(brute.surface_faces, corners) == 1;
    }
    std::sort(found.begin(), found.end());
    is_fan = is_fan && std::adjacent_find(found.begin(), found.end()) == found.end();
    fans += is_fan ? 0 : 1;
  }
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (!mesh.IsTet(t)) continue;
    const auto& v = mesh.TetVertices(t);
    for (int f = 0; f < 4; ++f) {
      std::array<uint32_t, 3> face;
      for (size_t c = 0; c < 3; ++c) face[c] = v[static_cast<size_t>(kTetFaces[static_cast<size_t>(f)][c])];
      std::sort(face.begin(), face.end());
      faces += mesh.IsFaceOnSurface(t, f) == (CountOf(brute.surface_faces, face) == 1) ? 0 : 1;
    }
    for (int e = 0; e < 6; ++e) {
      const auto [i, j] = kTetEdges[static_cast<size_t>(e)];
      const uint32_t a = v[static_cast<size_t>(i)], b = v[static_cast<size_t>(j)];
      const std::array<uint32_t, 2> edge = {std::min(a, b), std::max(a, b)};
      edges += mesh.IsEdgeOnSurface(t, e) == (CountOf(brute.surface_edges, edge) > 0) ? 0 : 1;
      auto at = std::lower_bound(brute.tets_of_edge.begin(), brute.tets_of_edge.end(), std::array<uint32_t, 3>{edge[0], edge[1], 0});
      if ((*at)[2] != t) continue;  // the circle of an edge is looked at once, from its first tet
      ++checked_circles;
      mesh.TetsAroundEdge(t, e, &found);
      bool is_circle = true;
      for (size_t k = 0; k + 1 < found.size(); ++k) {
        bool is_joined = false;
        for (int f = 0; f < 4; ++f) is_joined = is_joined || mesh.TetNeighbor(found[k], f) == Neighbor::Tet(found[k + 1]);
        is_circle = is_circle && is_joined;
      }
      std::sort(found.begin(), found.end());
      for (size_t k = 0; k < found.size(); ++k, ++at) {
        is_circle = is_circle && at != brute.tets_of_edge.end() && *at == std::array<uint32_t, 3>{edge[0], edge[1], found[k]};
      }
      is_circle = is_circle && (at == brute.tets_of_edge.end() || (*at)[0] != edge[0] || (*at)[1] != edge[1]);
      circles += is_circle ? 0 : 1;
    }
  }
  EXPECT_EQ(faces, 0U) << "faces whose place on the surface is wrong";
  EXPECT_EQ(edges, 0U) << "edges whose place on the surface is wrong";
  EXPECT_EQ(vertices, 0U) << "vertices that are or lie on the surface wrongly";
  EXPECT_EQ(stars, 0U) << "vertices with wrong tets";
  EXPECT_EQ(rings, 0U) << "vertices with wrong neighbours";
  EXPECT_EQ(fans, 0U) << "vertices with wrong surface triangles";
  EXPECT_EQ(circles, 0U) << "edges with wrong tets";
  EXPECT_EQ(checked_circles, brute.edge_count);
  const ClosedMesh::Counts counts = mesh.Count();
  EXPECT_EQ(counts.edges, brute.edge_count);
  EXPECT_EQ(counts.faces, brute.face_count);
  EXPECT_EQ(counts.virtual_tets, brute.surface_faces.size());
}

// Carves, refines and inserts all over the mesh. Deterministic.
void EditEverywhere(ClosedMesh* mesh, size_t carvings, size_t refinements, size_t insertions) {
  Carver carver(mesh);
  Refiner refiner(mesh);
  Random random(11);
  const auto surface_tet = [&] {
    uint32_t triangle = random.Below(mesh->triangle_slot_count());
    while (!mesh->IsTriangle(triangle)) triangle = random.Below(mesh->triangle_slot_count());
    return mesh->TriangleTet(triangle);
  };
  size_t carved = 0, refined = 0;
  for (size_t k = 0; k < carvings; ++k) {
    const auto removed = carver.Remove(mesh->IdOfTet(surface_tet()));
    ASSERT_TRUE(removed.ok()) << removed.status();
    carved += removed->is_removed ? 1 : 0;
  }
  for (size_t k = 0; k < refinements; ++k) {
    const std::vector<TetId> zone = {mesh->IdOfTet(surface_tet())};
    const auto result = refiner.Refine(zone, {.max_edge_m = 0.003, .closure_ratio = 2, .max_passes = 1, .tet_budget = 200000});
    ASSERT_TRUE(result.ok()) << result.status();
    refined += result->pass_count > 0 ? 1 : 0;
  }
  for (size_t k = 0; k < insertions; ++k) {
    uint32_t t = random.Below(mesh->tet_slot_count());
    while (!mesh->IsTet(t)) t = random.Below(mesh->tet_slot_count());
    MeshEdit edit{.removed = {mesh->IdOfTet(t)}};
    const std::array<VertexId, 4> v = VertexIdsOf(*mesh, t);
    MeshEdit::NewVertex middle{.position_m = CentreOf(*mesh, t), .source_count = 4};
    for (size_t c = 0; c < 4; ++c) {
      middle.sources[c] = {v[c], 0.25};
      edit.tets.push_back({.vertices = v, .parent = edit.removed[0]});
      edit.tets.back().vertices[c] = NewVertexId(0);
    }
    edit.vertices.push_back(middle);
    ASSERT_EQ(mesh->Apply(edit), absl::OkStatus());
  }
  EXPECT_GE(carved, carvings * 9 / 10);
  EXPECT_GT(refined, refinements / 2);
}

TEST(LargeMeshTest, BuildsAndCounts) {
  const ClosedMesh liver = MustBuild(Liver());
  EXPECT_GT(liver.tet_count(), kLarge);
  EXPECT_EQ(liver.Check(), absl::OkStatus());
  EXPECT_EQ(liver.Count().virtual_vertices, 1U);
  EXPECT_EQ(liver.Count().RealChi(), 1);
  EXPECT_EQ(liver.Count().ClosedChi(), 0);
  EXPECT_EQ(liver.Count().SurfaceChi(), 2);
  const ClosedMesh torus = MustBuild(Made(GenerateTorus(0.06, 0.02, 0.0036)));
  EXPECT_GT(torus.tet_count(), kLarge);
  EXPECT_EQ(torus.Check(), absl::OkStatus());
  EXPECT_EQ(torus.Count().virtual_vertices, 1U);
  EXPECT_EQ(torus.Count().RealChi(), 0);
  EXPECT_EQ(torus.Count().ClosedChi(), 1);
  EXPECT_EQ(torus.Count().SurfaceChi(), 0);
}

TEST(LargeMeshTest, RefusesOneFaultAmongAHundredThousandTets) {
  const auto refuse = [](const char* what, const char* text, const auto& breaker) {
    TetMesh mesh = Liver();
    breaker(mesh);
    const auto built = ClosedMesh::Build(mesh);
    EXPECT_EQ(built.status().code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(std::string(built.status().message()), HasSubstr(text)) << what;
  };
  const size_t middle = Liver().tets.size() / 2;
  // A surface edge and a surface vertex, to hang tets on, and the way out of the body there.
  const BoundarySurface boundary = ExtractBoundary(Liver());
  const auto& triangle = boundary.triangles[boundary.triangles.size() / 2];
  const std::array<uint32_t, 3> corner = {boundary.vertices[triangle[0]], boundary.vertices[triangle[1]], boundary.vertices[triangle[2]]};
  const Eigen::Vector3d a = Liver().vertices[corner[0]], b = Liver().vertices[corner[1]], c = Liver().vertices[corner[2]];
  const Eigen::Vector3d out = (b - a).cross(c - a).normalized() * 0.005, side = (b - a).cross(out).normalized() * 0.001;
  const Eigen::Vector3d along = (b - a).normalized() * 0.001;
  refuse("a tet twice", "at most two tets may share it", [&](TetMesh& m) { m.tets.push_back(m.tets[middle]); });
  refuse("inverted", "inverted: its volume", [&](TetMesh& m) { std::swap(m.tets[middle][0], m.tets[middle][1]); });
  refuse("two tets with nothing but an edge in common", "manifold at", [&](TetMesh& m) {
    const auto n = static_cast<uint32_t>(m.vertices.size());
    m.vertices.push_back((a + b) / 2 + out - side);
    m.vertices.push_back((a + b) / 2 + out + side);
    m.tets.push_back({corner[0], corner[1], n, n + 1});
    if (TetVolume(m, m.tets.size() - 1) < 0) std::swap(m.tets.back()[2], m.tets.back()[3]);
  });
  refuse("two tets with nothing but a vertex in common", "manifold at", [&](TetMesh& m) {
    const auto n = static_cast<uint32_t>(m.vertices.size());
    m.vertices.push_back(a + out - side);
    m.vertices.push_back(a + out + side);
    m.vertices.push_back(a + out + along);
    m.tets.push_back({corner[0], n, n + 1, n + 2});
    if (TetVolume(m, m.tets.size() - 1) < 0) std::swap(m.tets.back()[2], m.tets.back()[3]);
  });
  // Check: one wrong record somewhere.
  ClosedMesh mesh = MustBuild(Liver());
  const auto middle_tet = static_cast<uint32_t>(middle);
  const auto expect_broken = [&](const char* text, auto* record, const auto& breaker) {
    const auto kept = *record;
    breaker(*record);
    const absl::Status status = mesh.Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    *record = kept;
  };
  expect_broken("different orientations", &ClosedMeshPeer::Tets(mesh)[middle_tet],
                [](auto& tet) { std::swap(tet.vertices[0], tet.vertices[1]); });
  expect_broken("wrong mark of the surface", &ClosedMeshPeer::Vertices(mesh)[corner[0]], [](auto& vertex) { vertex.triangle = kNoSlot; });
  expect_broken("component", &ClosedMeshPeer::Surfaces(mesh), [](auto& surfaces) {
    // Two virtual vertices on one component.
    surfaces.Remove(0);
    surfaces.Add(0);
    std::vector<MeshDelta::Move> moved;
    std::vector<ComponentId> added, removed;
    const std::vector<uint32_t> seeds = {0};
    surfaces.Update(
        seeds, [](uint32_t, const auto&) {}, &moved, &added, &removed);
  });
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
}

TEST(LargeMeshTest, QueriesEqualBruteForceBeforeAndAfterEdits) {
  ClosedMesh mesh = MustBuild(Liver());
  ExpectQueriesEqualBruteForce(mesh);
  EditEverywhere(&mesh, 1500, 60, 300);
  EXPECT_GT(mesh.tet_count(), kLarge);
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_TRUE(IsSurfaceManifold(TetsOf(mesh)));
  ExpectQueriesEqualBruteForce(mesh);
}

// What a derived mesh keeps: a volume for each tet, summed as it is told, and all ids it has heard of.
class Bookkeeper : public MeshObserver {
 public:
  explicit Bookkeeper(const ClosedMesh& mesh) : volume_m3(TotalVolume(mesh)) {
    for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) vertices.insert(mesh.IdOfVertex(v));
    for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
      tets.insert(mesh.IdOfTet(t));
      volume_of[mesh.IdOfTet(t)] = mesh.RestVolume(t);
    }
    for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) triangles.insert(mesh.IdOfTriangle(t));
  }
  void OnVertexAdded(const ClosedMesh&, const MeshDelta::AddedVertex& vertex) override {
    ++calls.vertices_added;
    reused += vertices.insert(vertex.id).second ? 0 : 1;
  }
  void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) override {
    ++calls.tets_added;
    reused += tets.insert(tet.id).second ? 0 : 1;
    volume_of[tet.id] = mesh.RestVolume(mesh.Find(tet.id));
    volume_m3 += volume_of[tet.id];
  }
  void OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>&) override {
    ++calls.tets_removed;
    found += mesh.Find(tet) == kNoSlot ? 0 : 1;
    unknown += volume_of.count(tet) == 1 ? 0 : 1;
    volume_m3 -= volume_of[tet];
    volume_of.erase(tet);
    gone_tets.push_back(tet);
  }
  void OnVertexRemoved(const ClosedMesh& mesh, VertexId vertex) override {
    ++calls.vertices_removed;
    found += mesh.Find(vertex) == kNoSlot ? 0 : 1;
    gone_vertices.push_back(vertex);
  }
  void OnSurfaceChanged(const ClosedMesh&, const MeshDelta& delta) override {
    for (const auto& triangle : delta.added_triangles) reused += triangles.insert(triangle.id).second ? 0 : 1;
    gone_triangles.insert(gone_triangles.end(), delta.removed_triangles.begin(), delta.removed_triangles.end());
  }
  void OnEdited(const ClosedMesh&, const MeshDelta& delta) override {
    ++calls.edits;
    expected.vertices_added += delta.added_vertices.size();
    expected.tets_added += delta.added_tets.size();
    expected.tets_removed += delta.removed_tets.size();
    expected.vertices_removed += delta.removed_vertices.size();
    ++expected.edits;
  }

  struct Calls {
    size_t vertices_added = 0, tets_added = 0, tets_removed = 0, vertices_removed = 0, edits = 0;
    bool operator==(const Calls&) const = default;
  };
  Calls calls, expected;  // expected: by the deltas
  double volume_m3;
  std::map<TetId, double> volume_of;
  std::set<VertexId> vertices;
  std::set<TetId> tets;
  std::set<TriangleId> triangles;
  std::vector<VertexId> gone_vertices;
  std::vector<TetId> gone_tets;
  std::vector<TriangleId> gone_triangles;
  size_t reused = 0, found = 0, unknown = 0;
};

TEST(LargeMeshTest, ObserversSeeEachElementOnceAndIdsAreNeverUsedAgain) {
  ClosedMesh mesh = MustBuild(Liver());
  const size_t tets = mesh.tet_count(), vertices = mesh.vertex_count();
  Bookkeeper book(mesh);
  mesh.AddObserver(&book);
  EditEverywhere(&mesh, 1500, 60, 300);
  EXPECT_EQ(book.calls, book.expected);
  EXPECT_GT(book.calls.edits, 1500U);
  EXPECT_EQ(tets + book.calls.tets_added - book.calls.tets_removed, mesh.tet_count());
  EXPECT_EQ(vertices + book.calls.vertices_added - book.calls.vertices_removed, mesh.vertex_count());
  EXPECT_NEAR(book.volume_m3, TotalVolume(mesh), 1e-12 * book.volume_m3);
  EXPECT_EQ(book.volume_of.size(), mesh.tet_count());
  EXPECT_EQ(book.reused, 0U) << "ids that were used before";
  EXPECT_EQ(book.found, 0U) << "elements that were still there when told to be gone";
  EXPECT_EQ(book.unknown, 0U) << "removed tets that were never there";
  // Slots are used again all the while, and nothing that is gone is ever found.
  EXPECT_LT(mesh.tet_slot_count(), tets + book.calls.tets_added);
  size_t alive = 0;
  for (const TetId id : book.gone_tets) alive += mesh.Find(id) != kNoSlot ? 1 : 0;
  for (const VertexId id : book.gone_vertices) alive += mesh.Find(id) != kNoSlot ? 1 : 0;
  for (const TriangleId id : book.gone_triangles) alive += mesh.Find(id) != kNoSlot ? 1 : 0;
  EXPECT_EQ(alive, 0U);
  EXPECT_GT(book.gone_tets.size(), 1500U);
  // A tool that still holds a tet that is gone.
  Carver carver(&mesh);
  const uint64_t hash = mesh.hash();
  EXPECT_EQ(carver.Remove(book.gone_tets[700]).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(mesh.Apply({.removed = {book.gone_tets[3]}}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(mesh.hash(), hash);
  mesh.RemoveObserver(&book);
}

TEST(LargeMeshTest, FailedEditsAreUndoneAndTellNobody) {
  ClosedMesh mesh = MustBuild(Liver());
  const TetMesh before = mesh.ToTetMesh();
  const uint64_t hash = mesh.hash(), version = mesh.version();
  Bookkeeper book(mesh);
  mesh.AddObserver(&book);
  // All tets of a ball are replaced by themselves, and far from it one is lost that leaves parts which touch in a vertex or an edge only.
  const Eigen::Vector3d centre = CentreOf(mesh, 0);
  MeshEdit edit{.removed = TetsWhere(mesh, [&](const Eigen::Vector3d& c) { return (c - centre).norm() < 0.04; })};
  ASSERT_GT(edit.removed.size(), 2000U);
  for (const TetId id : edit.removed) edit.tets.push_back({.vertices = VertexIdsOf(mesh, mesh.Find(id)), .parent = id});
  uint32_t pinching = 0;
  while (mesh.CanRemove(std::array{pinching}) || (CentreOf(mesh, pinching) - centre).norm() < 0.06) ++pinching;
  edit.removed.push_back(mesh.IdOfTet(pinching));
  EXPECT_EQ(mesh.Apply(edit).code(), absl::StatusCode::kFailedPrecondition);
  const auto expect_unchanged = [&] {
    EXPECT_EQ(mesh.hash(), hash);
    EXPECT_EQ(mesh.version(), version);
    const TetMesh after = mesh.ToTetMesh();
    EXPECT_EQ(after.tets, before.tets);
    EXPECT_EQ(after.vertices, before.vertices);
    EXPECT_EQ(book.calls, Bookkeeper::Calls{});
  };
  expect_unchanged();
  // Everything is right but the last tet.
  edit.removed.pop_back();
  std::swap(edit.tets.back().vertices[0], edit.tets.back().vertices[1]);
  EXPECT_EQ(mesh.Apply(edit).code(), absl::StatusCode::kInvalidArgument);
  expect_unchanged();
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  ExpectQueriesEqualBruteForce(mesh);
  std::swap(edit.tets.back().vertices[0], edit.tets.back().vertices[1]);
  EXPECT_EQ(mesh.Apply(edit), absl::OkStatus());
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_EQ(book.calls.tets_added, edit.tets.size());
  mesh.RemoveObserver(&book);
}

// The same slice is taken out of a bar, which falls in two, and of one arm of a ring, which does not.
TEST(LargeMeshTest, OnlyWhatSeparatesSplitsTheVirtualVertex) {
  constexpr uint32_t kSide = 12;  // cells across
  ClosedMesh bar = MustBuild(Made(BoxMesh({161, kSide + 1, kSide + 1}, {160, kSide, kSide})));
  ClosedMesh ring = MustBuild(RingOfCells(5 * kSide, 3 * kSide, kSide));
  const double cell_m = 0.1 / (5 * kSide);
  ASSERT_GT(bar.tet_count(), kLarge);
  ASSERT_GT(ring.tet_count(), kLarge);
  MeshEdit bar_cut{.removed = TetsWhere(bar, [](const Eigen::Vector3d& c) { return c.x() > 20 && c.x() < 21; })};
  MeshEdit ring_cut{.removed = TetsWhere(ring, [&](const Eigen::Vector3d& c) { return c.x() > 0 && c.x() < cell_m && c.y() > 0; })};
  ASSERT_EQ(bar_cut.removed.size(), 5U * kSide * kSide);
  ASSERT_EQ(ring_cut.removed.size(), bar_cut.removed.size());
  MeshEdit back;
  for (const TetId id : bar_cut.removed) back.tets.push_back({.vertices = VertexIdsOf(bar, bar.Find(id))});
  ASSERT_EQ(bar.Apply(bar_cut), absl::OkStatus());
  ASSERT_EQ(ring.Apply(ring_cut), absl::OkStatus());
  EXPECT_EQ(bar.delta().added_triangles.size(), ring.delta().added_triangles.size()) << "locally the same cut";
  EXPECT_EQ(bar.Check(), absl::OkStatus());
  EXPECT_EQ(ring.Check(), absl::OkStatus());

  EXPECT_EQ(ring.Components().size(), 1U);
  EXPECT_EQ(ring.Surfaces().size(), 1U);
  EXPECT_TRUE(ring.delta().added_surfaces.empty());
  EXPECT_TRUE(ring.delta().moved_tets.empty());
  EXPECT_EQ(ring.Count().SurfaceChi(), 2);

  ASSERT_EQ(bar.delta().added_components.size(), 1U);
  ASSERT_EQ(bar.delta().added_surfaces.size(), 1U);
  EXPECT_EQ(bar.Surfaces().size(), 2U);
  EXPECT_EQ(bar.Count().virtual_vertices, 2U);
  EXPECT_EQ(bar.Count().SurfaceChi(), 4);
  // The bar's x runs from -80 to 80: the smaller piece is the one at high x, and all of it and nothing else got the new numbers.
  const ComponentId piece = bar.delta().added_components[0], surface = bar.delta().added_surfaces[0];
  EXPECT_EQ(bar.ComponentTetCount(piece), 5U * kSide * kSide * 59);
  EXPECT_EQ(bar.delta().moved_tets.size(), bar.ComponentTetCount(piece));
  size_t wrong = 0;
  for (uint32_t t = 0; t < bar.tet_slot_count(); ++t) {
    if (bar.IsTet(t)) wrong += (bar.ComponentOfTet(t) == piece) == (CentreOf(bar, t).x() > 20) ? 0 : 1;
  }
  for (uint32_t t = 0; t < bar.triangle_slot_count(); ++t) {
    if (bar.IsTriangle(t)) wrong += (bar.SurfaceOfTriangle(t) == surface) == (CentreOf(bar, bar.TriangleTet(t)).x() > 20) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0U);

  ASSERT_EQ(bar.Apply(back), absl::OkStatus());
  EXPECT_EQ(bar.Check(), absl::OkStatus());
  EXPECT_EQ(bar.Components().size(), 1U);
  EXPECT_EQ(bar.Surfaces().size(), 1U);
  EXPECT_EQ(bar.Count().SurfaceChi(), 2);
}

TEST(LargeMeshTest, ZonesColourWhatIsUncoveredAndFreeWhatIsGone) {
  // A tumour of 3 cm in the liver.
  Eigen::Vector3d low = Liver().vertices[0], high = low;
  for (const Eigen::Vector3d& v : Liver().vertices) {
    low = low.cwiseMin(v);
    high = high.cwiseMax(v);
  }
  const Eigen::Vector3d centre = (low + high) / 2;
  std::vector<TetZoneId> zones;
  for (size_t t = 0; t < Liver().tets.size(); ++t) {
    Eigen::Vector3d c = Eigen::Vector3d::Zero();
    for (const uint32_t v : Liver().tets[t]) c += Liver().vertices[v] / 4;
    zones.push_back((c - centre).norm() < 0.015 ? 1 : 0);
  }
  auto built = ClosedMesh::Build(Liver(), zones);
  ASSERT_TRUE(built.ok()) << built.status();
  ClosedMesh mesh = *std::move(built);
  const SurfaceZoneId flesh = *mesh.AddSurfaceZone("flesh"), tumour = *mesh.AddSurfaceZone("tumour");
  mesh.SetInteriorSurfaceZone(0, flesh);
  mesh.SetInteriorSurfaceZone(1, tumour);
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
    if (mesh.IsVertexOnSurface(v)) mesh.SetTextureCoordinate(0, v, {static_cast<float>(v), 0.5F});
  }
  // A channel through the tumour: tet by tet, so that the surface stays a manifold.
  Carver carver(&mesh);
  size_t misnamed = 0, uncovered[3] = {0, 0, 0};
  const auto carve = [&](double radius_m) {
    bool is_any = true;
    while (is_any) {
      is_any = false;
      for (const TetId id : TetsWhere(mesh, [&](const Eigen::Vector3d& c) { return (c - centre).head<2>().norm() < radius_m; })) {
        const uint32_t t = mesh.Find(id);
        if (t == kNoSlot) continue;
        bool is_open = false;
        for (int f = 0; f < 4; ++f) is_open = is_open || mesh.IsFaceOnSurface(t, f);
        if (!is_open) continue;
        const uint64_t version = mesh.version();
        const auto removed = carver.Remove(id);
        ASSERT_TRUE(removed.ok()) << removed.status();
        is_any = is_any || removed->is_removed;
        if (mesh.version() != version + 1) continue;
        for (const auto& triangle : mesh.delta().added_triangles) {
          ++uncovered[triangle.zone];
          // Vertices that are copied keep the outer surface's triangles in their zone.
          misnamed += triangle.zone != 0 && triangle.zone != (mesh.TetZoneOf(SlotOf(triangle.tet)) == 1 ? tumour : flesh) ? 1 : 0;
        }
      }
    }
  };
  carve(0.006);
  ASSERT_FALSE(HasFailure());
  EXPECT_GT(mesh.tet_count(), kLarge);
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_EQ(misnamed, 0U);
  EXPECT_GT(uncovered[flesh], 100U);
  EXPECT_GT(uncovered[tumour], 100U);
  // Entries by brute force: how many triangles of a zone a vertex has.
  std::map<std::pair<SurfaceZoneId, uint32_t>, uint32_t> corners;
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    if (!mesh.IsTriangle(t)) continue;
    for (const uint32_t v : mesh.TriangleVertices(t)) ++corners[{mesh.TriangleZoneOf(t), v}];
  }
  size_t count_of_zone[3] = {0, 0, 0}, wrong = 0, on_border = 0;
  for (const auto& [key, count] : corners) {
    ++count_of_zone[key.first];
    const auto* corner = mesh.FindSurfaceCorner(key.first, key.second);
    wrong += corner != nullptr && corner->triangle_count == count ? 0 : 1;
    on_border += key.first == flesh && corners.count({0, key.second}) == 1 ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(on_border, 10U);
  for (const SurfaceZoneId zone : {SurfaceZoneId{0}, flesh, tumour}) {
    EXPECT_EQ(mesh.SurfaceCornerCount(zone), count_of_zone[zone]) << "zone " << zone;
  }
  for (const auto& [key, count] : corners) {
    if (key.first != flesh || corners.count({0, key.second}) == 0) continue;
    const auto outer = mesh.FindSurfaceCorner(0, key.second)->texture_coordinate;
    mesh.SetTextureCoordinate(flesh, key.second, {3, 4});
    EXPECT_EQ(mesh.FindSurfaceCorner(0, key.second)->texture_coordinate, outer) << "a vertex on the border keeps both";
  }
}

}  // namespace
}  // namespace palpate::sim::large_mesh_test
