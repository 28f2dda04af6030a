#include "sim/topology/mesh_attributes.h"

#include <Eigen/Geometry>

namespace palpate::sim {

MeshAttributes::MeshAttributes(ClosedMesh* mesh, double density_kg_per_m3) : mesh_(mesh), points_(mesh) {
  vertices_.resize(mesh->vertex_slot_count());
  density_.resize(mesh->tet_slot_count(), density_kg_per_m3);
  for (uint32_t v = 0; v < vertices_.size(); ++v) {
    if (mesh->IsVertex(v)) vertices_[v].position_m = mesh->PositionOf(v);
  }
  for (uint32_t t = 0; t < density_.size(); ++t) {
    if (!mesh->IsTet(t)) continue;
    for (const uint32_t v : mesh->TetVertices(t)) vertices_[v].mass_kg += density_kg_per_m3 * mesh->RestVolume(t) / 4;
  }
  mesh->AddObserver(this);
}

MeshAttributes::~MeshAttributes() { mesh_->RemoveObserver(this); }

void MeshAttributes::SetDensity(uint32_t tet, double density_kg_per_m3) {
  const double change_kg = (density_kg_per_m3 - density_[tet]) * mesh_->RestVolume(tet);
  density_[tet] = density_kg_per_m3;
  for (const uint32_t v : mesh_->TetVertices(tet)) vertices_[v].mass_kg += change_kg / 4;
}

double MeshAttributes::VolumeOf(const std::array<uint32_t, 4>& v) const {
  const Eigen::Vector3d& a = mesh_->PositionOf(v[0]);
  return (mesh_->PositionOf(v[1]) - a).cross(mesh_->PositionOf(v[2]) - a).dot(mesh_->PositionOf(v[3]) - a) / 6;
}

Eigen::Vector3d MeshAttributes::PointPosition(uint32_t index) const {
  const EmbeddedPoints::Point& point = points_.point(index);
  const auto& v = mesh_->TetVertices(SlotOf(point.tet));
  Eigen::Vector3d sum = Eigen::Vector3d::Zero();
  for (size_t c = 0; c < 4; ++c) sum += point.weights[c] * vertices_[v[c]].position_m;
  return sum;
}

double MeshAttributes::TotalMass() const {
  double sum = 0;
  for (const Vertex& vertex : vertices_) sum += vertex.mass_kg;
  return sum;
}

Eigen::Vector3d MeshAttributes::Momentum() const {
  Eigen::Vector3d sum = Eigen::Vector3d::Zero();
  for (const Vertex& vertex : vertices_) sum += vertex.mass_kg * vertex.velocity_m_per_s;
  return sum;
}

void MeshAttributes::OnVertexAdded(const ClosedMesh&, const MeshDelta::AddedVertex& vertex) {
  const uint32_t slot = SlotOf(vertex.id);
  if (slot >= vertices_.size()) vertices_.resize(slot + 1);
  Vertex added;
  if (vertex.source_count == 0) added.position_m = vertex.position_m;
  for (uint32_t s = 0; s < vertex.source_count; ++s) {
    const Vertex& source = vertices_[SlotOf(vertex.sources[s].vertex)];
    added.position_m += vertex.sources[s].weight * source.position_m;
    added.velocity_m_per_s += vertex.sources[s].weight * source.velocity_m_per_s;
  }
  vertices_[slot] = added;
}

void MeshAttributes::OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) {
  const uint32_t slot = SlotOf(tet.id);
  if (slot >= density_.size()) density_.resize(slot + 1);
  density_[slot] = tet.parent == kNoTet ? 0 : density_[SlotOf(tet.parent)];
  for (const VertexId v : tet.vertices) vertices_[SlotOf(v)].mass_kg += density_[slot] * mesh.RestVolume(slot) / 4;
}

void MeshAttributes::OnTetRemoved(const ClosedMesh&, TetId tet, const std::array<VertexId, 4>& vertices) {
  const std::array<uint32_t, 4> slots = {SlotOf(vertices[0]), SlotOf(vertices[1]), SlotOf(vertices[2]), SlotOf(vertices[3])};
  const double quarter_kg = density_[SlotOf(tet)] * VolumeOf(slots) / 4;
  for (const uint32_t v : slots) vertices_[v].mass_kg -= quarter_kg;
}

void MeshAttributes::OnVertexRemoved(const ClosedMesh&, VertexId vertex) { vertices_[SlotOf(vertex)] = {}; }

}  // namespace palpate::sim
