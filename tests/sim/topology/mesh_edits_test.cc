// Long random sequences of carving, refinement and general edits, with everything that follows the mesh attached to it.
#include "sim/topology/carving.h"
#include "sim/topology/mesh_attributes.h"
#include "sim/topology/mesh_mirror.h"
#include "sim/topology/quality.h"
#include "sim/topology/refinement.h"
#include "tests/sim/topology/topology_support.h"

namespace palpate::sim::mesh_edits_test {
namespace {

// Applies every delta to a copy.
class MirrorObserver : public MeshObserver {
 public:
  explicit MirrorObserver(const ClosedMesh& mesh) : mirror(mesh) {}
  void OnEdited(const ClosedMesh& mesh, const MeshDelta& delta) override {
    ASSERT_EQ(mirror.Apply(delta), absl::OkStatus());
    EXPECT_EQ(mirror.hash(), mesh.hash());
  }
  MeshMirror mirror;
};

struct Outcome {
  uint64_t hash = 0;
  uint64_t version = 0;
  size_t edits = 0, carved = 0, refined = 0, inserted = 0, joined = 0, refused = 0, flat = 0;
};

// Whether the new tets of an edit have a shape: flat ones are no test of topology, their children are lost to rounding.
bool HasShape(const ClosedMesh& mesh, const MeshEdit& edit) {
  for (const MeshEdit::NewTet& tet : edit.tets) {
    std::array<Eigen::Vector3d, 4> p;
    for (size_t c = 0; c < 4; ++c) {
      const bool is_new = GenerationOf(tet.vertices[c]) == kNewVertexGeneration;
      p[c] = is_new ? edit.vertices[SlotOf(tet.vertices[c])].position_m : mesh.PositionOf(SlotOf(tet.vertices[c]));
    }
    if (MeanRatio(p) < 0.2) return false;
  }
  return true;
}

// A vertex in the middle of a tet, or a tet on a surface triangle: edits that neither carver nor refiner makes.
absl::Status RandomInsertion(ClosedMesh* mesh, Random* random, bool* is_joined) {
  MeshEdit edit;
  uint32_t t = random->Below(mesh->tet_slot_count());
  while (!mesh->IsTet(t)) t = random->Below(mesh->tet_slot_count());
  *is_joined = random->Below(2) == 0;
  std::array<VertexId, 4> v;
  MeshEdit::NewVertex vertex{.position_m = Eigen::Vector3d::Zero(), .source_count = 4};
  for (size_t c = 0; c < 4; ++c) {
    v[c] = mesh->IdOfVertex(mesh->TetVertices(t)[c]);
    vertex.position_m += mesh->PositionOf(mesh->TetVertices(t)[c]) / 4;
    vertex.sources[c] = {v[c], 0.25};
  }
  if (!*is_joined) {
    edit.removed.push_back(mesh->IdOfTet(t));
    edit.vertices.push_back(vertex);
    for (size_t c = 0; c < 4; ++c) {
      edit.tets.push_back({.vertices = v, .parent = edit.removed[0]});
      edit.tets.back().vertices[c] = NewVertexId(0);
    }
    return HasShape(*mesh, edit) ? mesh->Apply(edit) : absl::FailedPreconditionError("flat");
  }
  uint32_t triangle = random->Below(mesh->triangle_slot_count());
  while (!mesh->IsTriangle(triangle)) triangle = random->Below(mesh->triangle_slot_count());
  const auto& corners = mesh->TriangleVertices(triangle);
  // The tet between two neighbouring triangles, if they make a notch; else one on a new vertex outside.
  const int side = static_cast<int>(random->Below(3));
  const uint32_t other = mesh->TriangleNeighbor(triangle, side);
  uint32_t far = kNoSlot;
  for (const uint32_t w : mesh->TriangleVertices(other)) {
    if (std::find(corners.begin(), corners.end(), w) == corners.end()) far = w;
  }
  MeshEdit::NewTet tet;
  for (size_t c = 0; c < 3; ++c) tet.vertices[c] = mesh->IdOfVertex(corners[c]);
  tet.vertices[3] = mesh->IdOfVertex(far);
  if (far == kNoSlot) return absl::FailedPreconditionError("no notch");
  edit.tets.push_back(tet);
  if (HasShape(*mesh, edit) && mesh->Apply(edit).ok()) return absl::OkStatus();
  const Eigen::Vector3d a = mesh->PositionOf(corners[0]);
  const Eigen::Vector3d b = mesh->PositionOf(corners[1]);
  const Eigen::Vector3d c = mesh->PositionOf(corners[2]);
  const Eigen::Vector3d normal = (b - a).cross(c - a);
  edit.vertices.push_back({.position_m = (a + b + c) / 3 + normal / std::sqrt(normal.norm()) * 0.3});
  edit.tets[0].vertices[3] = NewVertexId(0);
  return HasShape(*mesh, edit) ? mesh->Apply(edit) : absl::FailedPreconditionError("flat");
}

Outcome RunEdits(const TetMesh& source, uint64_t seed, size_t edit_count, size_t check_every, bool with_mirror) {
  Outcome outcome;
  ClosedMesh mesh = MustBuild(source);
  MirrorObserver observer(mesh);
  MeshAttributes attributes(&mesh, 1000);
  if (with_mirror) mesh.AddObserver(&observer);
  Carver carver(&mesh);
  Refiner refiner(&mesh);
  Random random(seed);
  // Edits keep the mesh near its first size: carve while it is large, refine while it is small.
  while (outcome.edits < edit_count) {
    const uint32_t kind = random.Below(20);
    ++outcome.edits;
    if (mesh.tet_count() < 20) {
      ADD_FAILURE() << "the mesh is used up";
      return outcome;
    }
    uint32_t triangle = random.Below(mesh.triangle_slot_count());
    while (!mesh.IsTriangle(triangle)) triangle = random.Below(mesh.triangle_slot_count());
    const uint32_t tet = mesh.TriangleTet(triangle);
    const size_t low = source.tets.size() / 2;
    const bool must_refine = mesh.tet_count() < low;
    if (kind < 16 && !must_refine) {
      const auto removed = carver.Remove(mesh.IdOfTet(tet));
      EXPECT_TRUE(removed.ok()) << removed.status();
      outcome.carved += removed.ok() && removed->is_removed ? 1 : 0;
    } else if (kind < 18 || must_refine) {
      double longest_m = 0;
      for (const auto& [i, j] : kTetEdges) {
        const auto& v = mesh.TetVertices(tet);
        longest_m = std::max(longest_m, (mesh.PositionOf(v[static_cast<size_t>(i)]) - mesh.PositionOf(v[static_cast<size_t>(j)])).norm());
      }
      const std::vector<TetId> zone = {mesh.IdOfTet(tet)};
      const auto refined =
          refiner.Refine(zone, {.max_edge_m = 0.8 * longest_m, .closure_ratio = 3, .max_passes = 1, .tet_budget = 2 * source.tets.size()});
      // Tets that are split again and again may become too flat; then the edit is refused.
      EXPECT_TRUE(refined.ok() || refined.status().code() == absl::StatusCode::kInvalidArgument) << refined.status();
      outcome.flat += refined.ok() ? 0 : 1;
      outcome.refined += refined.ok() && refined->pass_count > 0 ? 1 : 0;
      outcome.refused += refined.ok() && refined->is_refused ? 1 : 0;
    } else {
      bool is_joined = false;
      const absl::Status status = RandomInsertion(&mesh, &random, &is_joined);
      if (status.ok()) ++(is_joined ? outcome.joined : outcome.inserted);
    }
    if (outcome.edits % check_every == 0) {
      EXPECT_EQ(mesh.Check(), absl::OkStatus()) << "edit " << outcome.edits;
      EXPECT_TRUE(IsSurfaceManifold(TetsOf(mesh)));
      if (with_mirror) {
        EXPECT_EQ(observer.mirror.ComputeHash(), mesh.hash());
        const MeshMirror fresh(mesh);
        for (uint32_t t = 0; t < fresh.tets().size(); ++t) EXPECT_EQ(fresh.tets()[t].component, observer.mirror.tets()[t].component);
        for (uint32_t t = 0; t < fresh.triangles().size(); ++t)
          EXPECT_EQ(fresh.triangles()[t].surface, observer.mirror.triangles()[t].surface);
      }
      double mass_kg = 0;
      for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) mass_kg += mesh.IsTet(t) ? attributes.DensityOf(t) * mesh.RestVolume(t) : 0;
      EXPECT_NEAR(attributes.TotalMass(), mass_kg, 1e-9 * mass_kg);
      if (::testing::Test::HasFailure()) return outcome;
    }
  }
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  outcome.hash = mesh.hash();
  outcome.version = mesh.version();
  return outcome;
}

struct Subject {
  const char* name;
  TetMesh mesh;
};

class MeshEditsTest : public ::testing::TestWithParam<int> {
 protected:
  static Subject Make(int which) {
    if (which == 0) return {"liver", Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 1500)))};
    if (which == 1) return {"torus", Made(GenerateTorus(0.06, 0.02, 0.014))};
    return {"sheet", Made(GenerateSheet(0.2, 0.2, 0.02, 2, 0.02))};
  }
};

TEST_P(MeshEditsTest, TenThousandEditsKeepEverythingConsistent) {
  const Subject subject = Make(GetParam());
  SCOPED_TRACE(subject.name);
  const Outcome outcome = RunEdits(subject.mesh, 17, 10000, 200, true);
  EXPECT_EQ(outcome.edits, 10000U);
  EXPECT_GT(outcome.carved, 2000U);
  EXPECT_GT(outcome.refined, 500U);
  EXPECT_GT(outcome.inserted, 100U);
  EXPECT_GT(outcome.joined, 20U);
  EXPECT_LT(outcome.flat, 20U);
}

TEST_P(MeshEditsTest, SameSeedGivesTheSameMesh) {
  const Subject subject = Make(GetParam());
  SCOPED_TRACE(subject.name);
  const Outcome first = RunEdits(subject.mesh, 3, 1500, 500, false);
  const Outcome second = RunEdits(subject.mesh, 3, 1500, 500, true);
  EXPECT_EQ(first.hash, second.hash);
  EXPECT_EQ(first.version, second.version);
  EXPECT_NE(first.hash, RunEdits(subject.mesh, 4, 1500, 500, false).hash);
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshEditsTest, ::testing::Values(0, 1, 2));

TEST(MeshMirrorTest, RefusesWhatDoesNotFollow) {
  ClosedMesh mesh = MustBuild(Cube(4));
  MeshMirror mirror(mesh);
  const MeshMirror old = mirror;
  EXPECT_EQ(mirror.Apply(mesh.delta()).code(), absl::StatusCode::kFailedPrecondition);  // it has that already
  ASSERT_EQ(mesh.Apply({.removed = {mesh.IdOfTet(mesh.TriangleTet(0))}}), absl::OkStatus());
  const MeshDelta first = mesh.delta();
  uint32_t next = 0;
  while (!mesh.IsTet(next) || !mesh.CanRemove(std::vector<uint32_t>{next})) ++next;
  ASSERT_EQ(mesh.Apply({.removed = {mesh.IdOfTet(next)}}), absl::OkStatus());
  EXPECT_EQ(mirror.Apply(mesh.delta()).code(), absl::StatusCode::kFailedPrecondition);  // one is missing
  EXPECT_EQ(mirror.Apply(first), absl::OkStatus());
  EXPECT_EQ(mirror.Apply(mesh.delta()), absl::OkStatus());
  EXPECT_EQ(mirror.hash(), mesh.hash());
  EXPECT_EQ(mirror.ComputeHash(), mesh.hash());
  MeshDelta broken = first;
  broken.added_triangles[0].vertices[0] = broken.added_triangles[0].vertices[1];
  MeshMirror victim = old;
  EXPECT_EQ(victim.Apply(broken).code(), absl::StatusCode::kDataLoss);
  broken = first;
  broken.removed_tets[0] = kNoTet;
  victim = old;
  EXPECT_EQ(victim.Apply(broken).code(), absl::StatusCode::kDataLoss);
  broken = first;
  broken.added_triangles[0].id = MakeId<TriangleId>(4000000000U, 1);
  victim = old;
  EXPECT_EQ(victim.Apply(broken).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace palpate::sim::mesh_edits_test
