#include "sim/topology/sheet_mesh.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <Eigen/Geometry>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/topology/closed_mesh.h"

namespace palpate::sim {
namespace {

constexpr double kLeastArea = 2e-7;    // twice the area over the square of the longest edge; the solver refuses half of it
constexpr double kWeightSlack = 1e-9;  // of a sum of weights
constexpr uint32_t kMaxSlots = 0x7fffffffU;

using Edge = std::pair<uint32_t, uint32_t>;

Edge Sorted(uint32_t a, uint32_t b) { return {std::min(a, b), std::max(a, b)}; }

void SortUnique(std::vector<uint32_t>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

bool Contains(const std::array<uint32_t, 3>& corners, uint32_t vertex) {
  return corners[0] == vertex || corners[1] == vertex || corners[2] == vertex;
}

}  // namespace

std::array<double, 3> TriangleWeights(const std::array<Eigen::Vector3d, 3>& x, const Eigen::Vector3d& point_m) {
  const Eigen::Vector3d u = x[1] - x[0];
  const Eigen::Vector3d v = x[2] - x[0];
  const Eigen::Vector3d n = u.cross(v);
  const Eigen::Vector3d p = point_m - x[0];
  const double b = p.cross(v).dot(n) / n.squaredNorm();
  const double c = u.cross(p).dot(n) / n.squaredNorm();
  return {1 - b - c, b, c};
}

double TriangleMeanRatio(const std::array<Eigen::Vector3d, 3>& x) {
  const double area_m2 = (x[1] - x[0]).cross(x[2] - x[0]).norm() / 2;
  const double sum_sq = (x[1] - x[0]).squaredNorm() + (x[2] - x[1]).squaredNorm() + (x[0] - x[2]).squaredNorm();
  return sum_sq > 0 ? 4 * std::sqrt(3.0) * area_m2 / sum_sq : 0;
}

bool HasSheetArea(const std::array<Eigen::Vector3d, 3>& x) {
  const double longest_sq = std::max({(x[1] - x[0]).squaredNorm(), (x[2] - x[1]).squaredNorm(), (x[0] - x[2]).squaredNorm()});
  return (x[1] - x[0]).cross(x[2] - x[0]).norm() > kLeastArea * longest_sq;
}

/// Slots and lists of one Apply.
struct SheetMesh::Work {
  std::vector<uint32_t> removed;                        // triangles that go
  std::vector<uint8_t> is_removed;                      // [triangle slot]
  std::vector<std::array<uint32_t, 3>> corners;         // [new triangle] vertex slots, or old count + index of a new vertex
  std::vector<uint32_t> parents;                        // [new triangle] slot, kNoSlot: none
  std::vector<uint32_t> new_vertices, new_triangles;    // slots, in the order of the edit
  std::vector<Edge> parted;                             // vertex slots, ascending
  std::vector<uint32_t> touched;                        // vertices whose triangles change
  std::vector<std::pair<uint32_t, uint32_t>> replaced;  // (new slot, old one) for copies
  std::vector<std::array<VertexId, 3>> removed_corners;
};

absl::StatusOr<SheetMesh> SheetMesh::Build(std::span<const Eigen::Vector3d> vertices_m, std::span<const std::array<uint32_t, 3>> triangles,
                                           std::span<const SurfaceZoneId> zones, std::span<const TetZoneId> materials) {
  for (const size_t count : {zones.size(), materials.size()}) {
    if (count == 0 || count == triangles.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat(count, " zones for ", triangles.size(), " triangles"));
  }
  if (vertices_m.size() > kMaxSlots || triangles.size() > kMaxSlots) return absl::ResourceExhaustedError("too many elements");
  SheetMesh mesh;
  for (const Eigen::Vector3d& x : vertices_m) {
    if (!x.allFinite()) return absl::InvalidArgumentError("a vertex is not finite");
    mesh.vertices_.emplace_back().position_m = x;
  }
  std::vector<uint32_t> seeds;
  for (uint32_t t = 0; t < triangles.size(); ++t) {
    for (const uint32_t v : triangles[t]) {
      if (v >= vertices_m.size()) return absl::InvalidArgumentError(absl::StrCat("triangle ", t, ": vertex ", v, " is out of range"));
    }
    const auto& [a, b, c] = triangles[t];
    if (a == b || b == c || c == a) return absl::InvalidArgumentError(absl::StrCat("triangle ", t, " has a corner twice"));
    if (!HasSheetArea({vertices_m[a], vertices_m[b], vertices_m[c]})) {
      return absl::InvalidArgumentError(absl::StrCat("triangle ", t, " has no area"));
    }
    mesh.triangles_.emplace_back();
    mesh.triangles_[t] = {
        triangles[t], 1, zones.empty() ? SurfaceZoneId{0} : zones[t], materials.empty() ? TetZoneId{0} : materials[t], 1, {}};
    mesh.Link(t);
    mesh.components_.Add(t);
    seeds.push_back(t);
  }
  for (uint32_t v = mesh.vertex_slot_count(); v-- > 0;) {
    if (mesh.vertices_[v].star.empty()) {
      mesh.free_vertices_.push_back(v);
    } else {
      mesh.hash_ += MeshHashVertex(mesh.IdOfVertex(v), mesh.vertices_[v].position_m);
    }
  }
  for (uint32_t t = 0; t < triangles.size(); ++t) mesh.hash_ += mesh.HashOfTriangle(t);
  std::vector<MeshDelta::Move> moved;
  std::vector<ComponentId> added;
  std::vector<ComponentId> gone;
  mesh.components_.Update(
      seeds, [&mesh](uint32_t t, const auto& see) { mesh.ForNeighbors(t, see); }, &moved, &added, &gone);
  if (const absl::Status sound = mesh.Check(); !sound.ok()) return absl::InvalidArgumentError(sound.message());
  return mesh;
}

uint32_t SheetMesh::Find(VertexId id) const {
  const uint32_t slot = SlotOf(id);
  return IsVertex(slot) && vertices_[slot].generation == GenerationOf(id) ? slot : kNoSlot;
}

uint32_t SheetMesh::Find(TriangleId id) const {
  const uint32_t slot = SlotOf(id);
  return IsTriangle(slot) && triangles_[slot].generation == GenerationOf(id) ? slot : kNoSlot;
}

double SheetMesh::RestArea(uint32_t triangle) const {
  const auto& [a, b, c] = triangles_[triangle].vertices;
  const Eigen::Vector3d& o = vertices_[a].position_m;
  return (vertices_[b].position_m - o).cross(vertices_[c].position_m - o).norm() / 2;
}

uint32_t SheetMesh::Across(uint32_t triangle, uint32_t a, uint32_t b) const {
  for (const uint32_t other : vertices_[a].star) {
    if (other != triangle && Contains(triangles_[other].vertices, b)) return other;
  }
  return kNoSlot;
}

std::vector<uint32_t> SheetMesh::TrianglesAtEdge(uint32_t a, uint32_t b) const {
  std::vector<uint32_t> out;
  for (const uint32_t t : vertices_[a].star) {
    if (a != b && Contains(triangles_[t].vertices, b)) out.push_back(t);
  }
  return out;
}

bool SheetMesh::IsOnBoundary(uint32_t vertex) const {
  return std::any_of(vertices_[vertex].star.begin(), vertices_[vertex].star.end(), [&](uint32_t t) {
    return std::any_of(triangles_[t].vertices.begin(), triangles_[t].vertices.end(),
                       [&](uint32_t w) { return w != vertex && Across(t, vertex, w) == kNoSlot; });
  });
}

bool SheetMesh::IsClosed() const {
  for (uint32_t t = 0; t < triangles_.size(); ++t) {
    if (!IsTriangle(t)) continue;
    const auto& [a, b, c] = triangles_[t].vertices;
    if (Across(t, a, b) == kNoSlot || Across(t, b, c) == kNoSlot || Across(t, c, a) == kNoSlot) return false;
  }
  return true;
}

size_t SheetMesh::ComponentTriangleCount(ComponentId component) const {
  const ComponentTracker::Component* const found = components_.Find(component);
  return found == nullptr ? 0 : found->cell_count;
}

uint64_t SheetMesh::HashOfTriangle(uint32_t triangle) const {
  const auto& [a, b, c] = triangles_[triangle].vertices;
  return MeshHashTriangle(IdOfTriangle(triangle), {IdOfVertex(a), IdOfVertex(b), IdOfVertex(c)}, triangles_[triangle].zone, kNoTet);
}

// --- edits

/// Elements that the edit names.
absl::Status SheetMesh::Resolve(const SheetEdit& edit, Work* work) const {
  work->is_removed.assign(triangles_.size(), 0);
  for (const TriangleId id : edit.removed) {
    const uint32_t slot = Find(id);
    if (slot == kNoSlot) return absl::NotFoundError(absl::StrCat("triangle ", static_cast<uint64_t>(id), " is not alive"));
    if (std::exchange(work->is_removed[slot], 1) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("triangle ", static_cast<uint64_t>(id), " is removed twice"));
    }
    work->removed.push_back(slot);
  }
  for (const MeshEdit::NewVertex& vertex : edit.vertices) {
    double sum = 0;
    for (uint32_t s = 0; s < vertex.source_count; ++s) {
      if (Find(vertex.sources[s].vertex) == kNoSlot) return absl::NotFoundError("a source of a new vertex is not alive");
      sum += vertex.sources[s].weight;
    }
    if (!vertex.position_m.allFinite()) return absl::InvalidArgumentError("a new vertex is not finite");
    if (vertex.source_count == 0 || !(std::abs(sum - 1) <= kWeightSlack)) {
      return absl::InvalidArgumentError(absl::StrCat("weights of a new vertex sum to ", sum, ", not to 1"));
    }
  }
  for (const auto& [first, second] : edit.parted) {
    const uint32_t a = Find(first);
    const uint32_t b = Find(second);
    if (a == kNoSlot || b == kNoSlot) return absl::NotFoundError("a vertex of a parted edge is not alive");
    work->parted.push_back(Sorted(a, b));
  }
  std::sort(work->parted.begin(), work->parted.end());
  return ResolveNew(edit, work);
}

/// Corners and parents of new triangles.
absl::Status SheetMesh::ResolveNew(const SheetEdit& edit, Work* work) const {
  const auto old_count = static_cast<uint32_t>(vertices_.size());
  std::vector<uint8_t> is_used(edit.vertices.size(), 0);
  for (const SheetEdit::NewTriangle& triangle : edit.triangles) {
    std::array<uint32_t, 3> corners{};
    std::array<Eigen::Vector3d, 3> x;
    for (size_t c = 0; c < 3; ++c) {
      const VertexId id = triangle.vertices[c];
      if (GenerationOf(id) == kNewVertexGeneration && SlotOf(id) < edit.vertices.size()) {
        corners[c] = old_count + SlotOf(id);
        is_used[SlotOf(id)] = 1;
        x[c] = edit.vertices[SlotOf(id)].position_m;
        continue;
      }
      corners[c] = Find(id);
      if (corners[c] == kNoSlot) return absl::NotFoundError("a corner of a new triangle is not alive");
      x[c] = vertices_[corners[c]].position_m;
    }
    if (corners[0] == corners[1] || corners[1] == corners[2] || corners[2] == corners[0]) {
      return absl::InvalidArgumentError("a new triangle has a corner twice");
    }
    if (!HasSheetArea(x)) return absl::InvalidArgumentError("a new triangle has no area");
    uint32_t parent = kNoSlot;
    if (triangle.parent != kNoTriangle) {
      parent = Find(triangle.parent);
      if (parent == kNoSlot || work->is_removed[parent] == 0) return absl::InvalidArgumentError("a parent is not removed");
    }
    work->corners.push_back(corners);
    work->parents.push_back(parent);
  }
  if (std::find(is_used.begin(), is_used.end(), 0) != is_used.end()) return absl::InvalidArgumentError("a new vertex has no triangle");
  if (vertices_.size() + edit.vertices.size() > kMaxSlots / 2 || triangles_.size() + edit.triangles.size() > kMaxSlots / 2) {
    return absl::ResourceExhaustedError("the sheet has no more slots");
  }
  return absl::OkStatus();
}

/// No direction of an edge is used twice, and parted edges have two triangles.
absl::Status SheetMesh::CheckEdges(const Work& work) const {
  absl::flat_hash_set<Edge> directed;
  const auto add = [&](const std::array<uint32_t, 3>& v) {
    for (size_t k = 0; k < 3; ++k) {
      if (!directed.insert({v[k], v[(k + 1) % 3]}).second) return false;
    }
    return true;
  };
  std::vector<uint32_t> kept;
  const auto see = [&](uint32_t vertex) {
    if (vertex >= vertices_.size()) return;
    for (const uint32_t t : vertices_[vertex].star) {
      if (work.is_removed[t] == 0) kept.push_back(t);
    }
  };
  for (const auto& corners : work.corners) std::for_each(corners.begin(), corners.end(), see);
  for (const Edge& edge : work.parted) see(edge.first);
  SortUnique(&kept);
  bool is_sound = true;
  for (const uint32_t t : kept) is_sound &= add(triangles_[t].vertices);
  for (const auto& corners : work.corners) is_sound &= add(corners);
  if (!is_sound) return absl::FailedPreconditionError("an edge would have three triangles, or two that run along it in one direction");
  for (const auto& [a, b] : work.parted) {
    if (!directed.contains({a, b}) || !directed.contains({b, a})) {
      return absl::InvalidArgumentError(absl::StrCat("edge (", a, ", ", b, ") to be parted does not have two triangles"));
    }
  }
  return absl::OkStatus();
}

uint32_t SheetMesh::TakeVertex(const Eigen::Vector3d& position_m) {
  auto slot = static_cast<uint32_t>(vertices_.size());
  if (free_vertices_.empty()) {
    vertices_.emplace_back();
  } else {
    slot = free_vertices_.back();
    free_vertices_.pop_back();
  }
  vertices_[slot].position_m = position_m;
  return slot;
}

/// Of a triangle that lies where `parent` does, at rest.
TextureCorners SheetMesh::TextureFrom(uint32_t parent, const std::array<uint32_t, 3>& vertices) const {
  const Triangle& from = triangles_[parent];
  if (from.texture == TextureCorners{}) return {};
  std::array<Eigen::Vector3d, 3> corners_m;
  for (size_t c = 0; c < 3; ++c) corners_m[c] = vertices_[from.vertices[c]].position_m;
  TextureCorners out{};
  for (size_t c = 0; c < 3; ++c) {
    const Eigen::Vector3d& at_m = vertices_[vertices[c]].position_m;
    const auto* kept = std::find_if(from.vertices.begin(), from.vertices.end(),
                                    [&](uint32_t v) { return v == vertices[c] || vertices_[v].position_m == at_m; });
    if (kept != from.vertices.end()) {
      out[c] = from.texture[static_cast<size_t>(kept - from.vertices.begin())];
      continue;
    }
    const std::array<double, 3> weights = TriangleWeights(corners_m, at_m);
    for (size_t axis = 0; axis < 2; ++axis) {
      double value = 0;
      for (size_t k = 0; k < 3; ++k) value += weights[k] * static_cast<double>(from.texture[k][axis]);
      out[c][axis] = static_cast<float>(value) + 0.0F;  // no negative zero
    }
  }
  return out;
}

/// With the zones and the texture of `parent`, which may be kNoSlot.
uint32_t SheetMesh::TakeTriangle(const std::array<uint32_t, 3>& vertices, uint32_t parent) {
  const TextureCorners texture = parent == kNoSlot ? TextureCorners{} : TextureFrom(parent, vertices);
  auto slot = static_cast<uint32_t>(triangles_.size());
  if (free_triangles_.empty()) {
    triangles_.emplace_back();
  } else {
    slot = free_triangles_.back();
    free_triangles_.pop_back();
  }
  Triangle& triangle = triangles_[slot];
  triangle.vertices = vertices;
  triangle.zone = parent == kNoSlot ? SurfaceZoneId{0} : triangles_[parent].zone;
  triangle.material = parent == kNoSlot ? TetZoneId{0} : triangles_[parent].material;
  triangle.texture = texture;
  triangle.is_live = 1;
  Link(slot);
  components_.Add(slot);
  return slot;
}

void SheetMesh::Link(uint32_t triangle) {
  for (const uint32_t v : triangles_[triangle].vertices) {
    std::vector<uint32_t>& star = vertices_[v].star;
    star.insert(std::lower_bound(star.begin(), star.end(), triangle), triangle);
  }
}

void SheetMesh::Unlink(uint32_t triangle) {
  for (const uint32_t v : triangles_[triangle].vertices) {
    std::vector<uint32_t>& star = vertices_[v].star;
    star.erase(std::lower_bound(star.begin(), star.end(), triangle));
  }
}

/// Puts the new triangles in and takes the removed ones out of the stars of their vertices; these keep their slots until Finish.
void SheetMesh::Join(const SheetEdit& edit, Work* work) {
  const auto old_count = static_cast<uint32_t>(vertices_.size());
  for (const uint32_t t : work->removed) {
    auto& ids = work->removed_corners.emplace_back();
    for (size_t c = 0; c < 3; ++c) ids[c] = IdOfVertex(triangles_[t].vertices[c]);
  }
  for (const MeshEdit::NewVertex& vertex : edit.vertices) work->new_vertices.push_back(TakeVertex(vertex.position_m));
  for (size_t i = 0; i < work->corners.size(); ++i) {
    std::array<uint32_t, 3> corners = work->corners[i];
    for (uint32_t& c : corners) c = c >= old_count ? work->new_vertices[c - old_count] : c;
    work->new_triangles.push_back(TakeTriangle(corners, work->parents[i]));
    work->touched.insert(work->touched.end(), corners.begin(), corners.end());
  }
  for (const uint32_t t : work->removed) {
    hash_ -= HashOfTriangle(t);
    const auto& v = triangles_[t].vertices;
    work->touched.insert(work->touched.end(), v.begin(), v.end());
    Unlink(t);
  }
  for (const auto& [a, b] : work->parted) {
    work->touched.push_back(a);
    work->touched.push_back(b);
  }
  SortUnique(&work->touched);
}

/// Triangles around a vertex that hang together by edges which are not parted: lists ascend, and so do their first ones.
std::vector<std::vector<uint32_t>> SheetMesh::FansOf(uint32_t vertex, const std::vector<Edge>& parted) const {
  const std::vector<uint32_t>& star = vertices_[vertex].star;
  std::vector<size_t> root(star.size());
  for (size_t i = 0; i < root.size(); ++i) root[i] = i;
  const auto find = [&root](size_t i) {
    while (root[i] != i) i = root[i];
    return i;
  };
  for (size_t i = 0; i < star.size(); ++i) {
    for (const uint32_t w : triangles_[star[i]].vertices) {
      if (w == vertex || std::binary_search(parted.begin(), parted.end(), Sorted(vertex, w))) continue;
      const uint32_t other = Across(star[i], vertex, w);
      if (other == kNoSlot) continue;
      const auto at = static_cast<size_t>(std::lower_bound(star.begin(), star.end(), other) - star.begin());
      const size_t a = find(i);
      const size_t b = find(at);
      root[std::max(a, b)] = std::min(a, b);
    }
  }
  std::vector<std::vector<uint32_t>> fans;
  std::vector<size_t> fan_of(star.size(), 0);
  for (size_t i = 0; i < star.size(); ++i) {
    if (find(i) == i) {
      fan_of[i] = fans.size();
      fans.emplace_back();
    }
    fans[fan_of[find(i)]].push_back(star[i]);
  }
  return fans;
}

/// Vertices with several fans get copies; triangles that have others then are new ones.
void SheetMesh::SplitFans(Work* work) {
  absl::flat_hash_map<uint32_t, std::array<uint32_t, 3>> changed;  // corners by triangle
  std::vector<uint32_t> order;
  for (const uint32_t v : work->touched) {
    const std::vector<std::vector<uint32_t>> fans = FansOf(v, work->parted);
    for (size_t f = 1; f < fans.size(); ++f) {
      const uint32_t copy = TakeVertex(vertices_[v].position_m);
      MeshDelta::AddedVertex added{IdOfVertex(copy), vertices_[v].position_m, {}, 1};
      added.sources[0] = {IdOfVertex(v), 1.0};
      delta_.added_vertices.push_back(added);
      for (const uint32_t t : fans[f]) {
        const auto [entry, is_new] = changed.try_emplace(t, triangles_[t].vertices);
        if (is_new) order.push_back(t);
        std::replace(entry->second.begin(), entry->second.end(), v, copy);
      }
    }
  }
  std::sort(order.begin(), order.end());
  const absl::flat_hash_set<uint32_t> is_new_triangle(work->new_triangles.begin(), work->new_triangles.end());
  for (const uint32_t t : order) {
    if (is_new_triangle.contains(t)) {
      Unlink(t);
      triangles_[t].vertices = changed[t];
      Link(t);
      continue;
    }
    auto& ids = work->removed_corners.emplace_back();
    for (size_t c = 0; c < 3; ++c) ids[c] = IdOfVertex(triangles_[t].vertices[c]);
    hash_ -= HashOfTriangle(t);
    Unlink(t);
    work->removed.push_back(t);
    work->replaced.emplace_back(TakeTriangle(changed[t], t), t);
  }
}

/// Frees what is gone, and tells what changed.
void SheetMesh::Finish(Work* work) {
  std::vector<std::pair<uint32_t, uint32_t>> added;  // triangle, parent
  for (size_t i = 0; i < work->new_triangles.size(); ++i) added.emplace_back(work->new_triangles[i], work->parents[i]);
  added.insert(added.end(), work->replaced.begin(), work->replaced.end());
  for (const MeshDelta::AddedVertex& vertex : delta_.added_vertices) hash_ += MeshHashVertex(vertex.id, vertex.position_m);
  for (const auto& [t, parent] : added) {
    const auto& [a, b, c] = triangles_[t].vertices;
    delta_.added_triangles.push_back({IdOfTriangle(t),
                                      {IdOfVertex(a), IdOfVertex(b), IdOfVertex(c)},
                                      parent == kNoSlot ? kNoTriangle : IdOfTriangle(parent),
                                      triangles_[t].zone});
    hash_ += HashOfTriangle(t);
  }
  for (size_t i = 0; i < work->removed.size(); ++i) {
    const uint32_t t = work->removed[i];
    delta_.removed_triangles.push_back({IdOfTriangle(t), work->removed_corners[i], RestArea(t), triangles_[t].material});
  }
  for (const uint32_t v : work->touched) {
    if (!vertices_[v].star.empty()) continue;
    delta_.removed_vertices.push_back(IdOfVertex(v));
    hash_ -= MeshHashVertex(IdOfVertex(v), vertices_[v].position_m);
  }
  for (const uint32_t t : work->removed) {
    triangles_[t].is_live = 0;
    components_.Remove(t);
  }
  UpdateComponents(*work);
  ++delta_.version;
  if (observer_ != nullptr) observer_->OnSheetEdited(*this, delta_);
  for (const VertexId id : delta_.removed_vertices) {
    ++vertices_[SlotOf(id)].generation;
    free_vertices_.push_back(SlotOf(id));
  }
  for (const uint32_t t : work->removed) {
    ++triangles_[t].generation;
    free_triangles_.push_back(t);
  }
}

void SheetMesh::UpdateComponents(const Work& work) {
  std::vector<uint32_t> seeds;
  const auto see = [&](uint32_t v) { seeds.insert(seeds.end(), vertices_[v].star.begin(), vertices_[v].star.end()); };
  std::for_each(work.touched.begin(), work.touched.end(), see);
  for (const MeshDelta::AddedVertex& vertex : delta_.added_vertices) see(SlotOf(vertex.id));
  SortUnique(&seeds);
  std::vector<MeshDelta::Move> moved;
  std::vector<ComponentId> gone;
  components_.Update(
      seeds, [this](uint32_t t, const auto& f) { ForNeighbors(t, f); }, &moved, &delta_.added_components, &gone);
}

absl::Status SheetMesh::Apply(const SheetEdit& edit) {
  Work work;
  PALPATE_RETURN_IF_ERROR(Resolve(edit, &work));
  PALPATE_RETURN_IF_ERROR(CheckEdges(work));
  const uint64_t version = delta_.version;
  delta_ = {};
  delta_.version = version;
  Join(edit, &work);
  for (size_t i = 0; i < edit.vertices.size(); ++i) {
    const MeshEdit::NewVertex& vertex = edit.vertices[i];
    delta_.added_vertices.push_back({IdOfVertex(work.new_vertices[i]), vertex.position_m, vertex.sources, vertex.source_count});
  }
  SplitFans(&work);
  Finish(&work);
  return absl::OkStatus();
}

absl::StatusOr<SheetMesh::DetachedPiece> SheetMesh::Detach(ComponentId component) {
  if (ComponentTriangleCount(component) == 0) return absl::NotFoundError(absl::StrCat("component ", component, " is not there"));
  DetachedPiece piece;
  SheetEdit edit;
  std::vector<uint32_t> vertices;
  std::vector<std::array<uint32_t, 3>> triangles;
  std::vector<SurfaceZoneId> zones;
  std::vector<TetZoneId> materials;
  std::vector<TextureCorners> textures;
  for (uint32_t t = 0; t < triangle_slot_count(); ++t) {
    if (!IsTriangle(t) || components_.at(t) != component) continue;
    edit.removed.push_back(IdOfTriangle(t));
    triangles.push_back(triangles_[t].vertices);
    zones.push_back(triangles_[t].zone);
    materials.push_back(triangles_[t].material);
    textures.push_back(triangles_[t].texture);
    vertices.insert(vertices.end(), triangles_[t].vertices.begin(), triangles_[t].vertices.end());
  }
  SortUnique(&vertices);
  std::vector<Eigen::Vector3d> positions_m;
  for (const uint32_t v : vertices) {
    positions_m.push_back(vertices_[v].position_m);
    piece.source_vertices.push_back(IdOfVertex(v));
  }
  for (auto& triangle : triangles) {
    for (uint32_t& v : triangle) v = static_cast<uint32_t>(std::lower_bound(vertices.begin(), vertices.end(), v) - vertices.begin());
  }
  piece.source_triangles = edit.removed;
  PALPATE_ASSIGN_OR_RETURN(piece.mesh, Build(positions_m, triangles, zones, materials));
  for (uint32_t t = 0; t < textures.size(); ++t) piece.mesh.SetTextureCorners(t, textures[t]);
  PALPATE_RETURN_IF_ERROR(Apply(edit));
  return piece;
}

// --- whole mesh

absl::Status SheetMesh::Check() const {
  const auto bad = [](const auto&... what) { return absl::InternalError(absl::StrCat(what...)); };
  std::vector<std::vector<uint32_t>> stars(vertices_.size());
  absl::flat_hash_set<Edge> directed;
  uint64_t hash = 0;
  size_t live = 0;
  for (uint32_t t = 0; t < triangles_.size(); ++t) {
    if (triangles_[t].is_live == 0) continue;
    ++live;
    const auto& v = triangles_[t].vertices;
    std::array<Eigen::Vector3d, 3> x;
    for (size_t k = 0; k < 3; ++k) {
      if (v[k] >= vertices_.size() || v[k] == v[(k + 1) % 3])
        return bad("triangle ", t, ": corner ", v[k], " is out of range or twice there");
      if (!directed.insert({v[k], v[(k + 1) % 3]}).second) {
        return bad("edge (", v[k], ", ", v[(k + 1) % 3], "): two triangles run along it in the same direction, one of them ", t);
      }
      stars[v[k]].push_back(t);
      x[k] = vertices_[v[k]].position_m;
    }
    if (!HasSheetArea(x)) return bad("triangle ", t, " has no area");
  }
  size_t empty = 0;
  for (uint32_t v = 0; v < vertices_.size(); ++v) {
    if (!vertices_[v].position_m.allFinite()) return bad("vertex ", v, " is not finite");
    if (stars[v] != vertices_[v].star) return bad("vertex ", v, " has other triangles");
    empty += stars[v].empty() ? 1 : 0;
    if (stars[v].empty()) continue;
    if (FansOf(v, {}).size() > 1) return bad("vertex ", v, " has more than one fan");
    hash += MeshHashVertex(IdOfVertex(v), vertices_[v].position_m);
  }
  for (uint32_t t = 0; t < triangles_.size(); ++t) hash += triangles_[t].is_live != 0 ? HashOfTriangle(t) : 0;
  if (hash != hash_) return bad("the hash is not that of the elements");
  const auto is_free_list = [](std::vector<uint32_t> free, size_t count, const auto& is_free) {
    const size_t size = free.size();
    SortUnique(&free);
    return size == count && free.size() == count && std::all_of(free.begin(), free.end(), is_free);
  };
  if (!is_free_list(free_vertices_, empty, [&](uint32_t v) { return v < vertices_.size() && stars[v].empty(); }) ||
      !is_free_list(free_triangles_, triangles_.size() - live, [&](uint32_t t) { return t < triangles_.size() && !IsTriangle(t); })) {
    return bad("free slots are not those without an element");
  }
  if (!components_.IsSound(triangle_slot_count(), [this](uint32_t t) { return IsTriangle(t); })) return bad("components are not sound");
  for (uint32_t t = 0; t < triangles_.size(); ++t) {
    bool is_joined = true;
    if (IsTriangle(t)) ForNeighbors(t, [&](uint32_t other) { is_joined &= components_.at(other) == components_.at(t); });
    if (!is_joined) return bad("triangle ", t, " and one beside it are of two components");
  }
  return absl::OkStatus();
}

size_t SheetMesh::MaterialZoneEnd() const {
  size_t end = 0;
  for (const Triangle& triangle : triangles_) end = std::max(end, triangle.is_live != 0 ? triangle.material + size_t{1} : 0);
  return end;
}

absl::Status SheetMesh::Accept() {
  // Stars first: Check() walks along them.
  for (const Vertex& vertex : vertices_) {
    for (const uint32_t t : vertex.star) {
      if (!IsTriangle(t)) return absl::InvalidArgumentError("sheet: a vertex has a triangle that is not there");
    }
  }
  for (const Triangle& triangle : triangles_) {
    for (const uint32_t v : triangle.vertices) {
      if (triangle.is_live != 0 && v >= vertices_.size()) return absl::InvalidArgumentError("sheet: a corner is out of range");
    }
  }
  const absl::Status sound = Check();
  return sound.ok() ? sound : absl::InvalidArgumentError(absl::StrCat("sheet: ", sound.message()));
}

}  // namespace palpate::sim
