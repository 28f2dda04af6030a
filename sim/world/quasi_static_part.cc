// How a part is made. The rest of QuasiStatic is in quasi_static.cc.
#include <algorithm>
#include <map>
#include <utility>

#include "sim/reference/reference_body.h"
#include "sim/scene/material.h"
#include "sim/world/quasi_static.h"

namespace palpate::sim {
namespace {

using Eigen::Index;
using Eigen::Vector3d;
using Eigen::VectorXd;

// The layer of dynamic tets at an interface stiffens as it is strained, and may not be taken as softer than it is.
constexpr double kLayerMargin = 1.5;

Index At(size_t vertex) { return static_cast<Index>(3 * vertex); }

void Stiffen(float factor, ElasticTet* tet) {
  tet->mu_pa *= factor;
  tet->lambda_pa *= factor;
  tet->fibers.coupling_pa *= factor;
  tet->fibers.stiffness_pa *= factor;
  tet->fibers.shear_pa *= factor;
}

/// By row, then column.
std::vector<StiffnessBlock> BlocksOf(const Eigen::SparseMatrix<double>& stiffness) {
  std::map<std::pair<uint32_t, uint32_t>, Eigen::Matrix3d> blocks;
  for (Index column = 0; column < stiffness.outerSize(); ++column) {
    for (Eigen::SparseMatrix<double>::InnerIterator it(stiffness, column); it; ++it) {
      const auto found =
          blocks.try_emplace({static_cast<uint32_t>(it.row() / 3), static_cast<uint32_t>(it.col() / 3)}, Eigen::Matrix3d::Zero());
      found.first->second(it.row() % 3, it.col() % 3) = it.value();
    }
  }
  std::vector<StiffnessBlock> out;
  for (const auto& [place, block] : blocks) out.push_back({place.first, place.second, block});
  return out;
}

}  // namespace

/// Makes the part of one body in stages, each of which goes on from what those before it found.
class QuasiStatic::PartMaker {
 public:
  PartMaker(const WorldBody& body, const SceneVertices& vertices) : body_(body), vertices_(vertices), tets_(body.arrays()->tets) {
    part_.body = body.index();
  }

  void ListVertices();
  absl::Status CollectTets();
  absl::Status JoinLayer(double dt_s);
  absl::Status ComputeModel(double dt_s, bool eager);
  void Weigh(const Vector3d& gravity_m_per_s2);
  Part Take() && { return std::move(part_); }

 private:
  void AddInside(uint32_t t, ElasticTet tet);
  void AddToLayer(uint32_t t, ElasticTet tet);
  VectorXd LayerAsItIs(const ReferenceBody& layer) const;
  std::vector<uint32_t> WhatCanBeTouched() const;

  const WorldBody& body_;
  const SceneVertices& vertices_;
  const std::vector<std::array<uint32_t, 4>>& tets_;
  Part part_;
  std::vector<uint32_t> slots_;     // of the part's vertices in the mesh, in the order of their handles
  std::vector<uint8_t> is_inside_;  // [slot of the mesh] of a quasi-static tet
  std::vector<uint8_t> is_joined_;  // [slot of the mesh] of another tet
  std::vector<uint32_t> local_;     // [slot of the mesh] among the part's vertices, or kNone
  std::vector<Vector3d> rest_;      // [vertex of the part], as below
  std::vector<uint8_t> fixed_;
  std::vector<ElasticTet> inside_;
  // Dynamic tets at the interface. They get vertices of their own beyond those of the part.
  std::vector<ElasticTet> layer_;
  std::vector<uint32_t> layer_local_;
  std::vector<Vector3d> layer_rest_;
  VectorXd joined_mass_kg_;  // [vertex of the part] of the layer, where it is joined
  double young_sum_pa_ = 0;
  double edge_sum_m_ = 0;
};

void QuasiStatic::PartMaker::ListVertices() {
  is_inside_.assign(body_.vertex_slot_count(), 0);
  is_joined_.assign(body_.vertex_slot_count(), 0);
  for (uint32_t t = 0; t < tets_.size(); ++t) {
    if (tets_[t] == kFreeTet) continue;
    for (const uint32_t v : tets_[t]) (body_.IsQuasiStaticTet(t) ? is_inside_ : is_joined_)[v] = 1;
  }
  for (uint32_t v = 0; v < is_inside_.size(); ++v) {
    if (is_inside_[v] != 0) slots_.push_back(v);
  }
  std::sort(slots_.begin(), slots_.end(), [&](uint32_t a, uint32_t b) { return body_.HandleOf(a) < body_.HandleOf(b); });
  local_.assign(is_inside_.size(), kNone);
  for (const uint32_t v : slots_) {
    local_[v] = static_cast<uint32_t>(part_.handles.size());
    part_.handles.push_back(body_.HandleOf(v));
    rest_.push_back(vertices_.rest_m[body_.HandleOf(v)]);
    fixed_.push_back(vertices_.is_fixed[body_.HandleOf(v)]);
  }
}

absl::Status QuasiStatic::PartMaker::CollectTets() {
  std::vector<ElasticTet> of_zone;
  for (size_t zone = 0; zone < body_.zones().count(); ++zone) {
    PALPATE_ASSIGN_OR_RETURN(of_zone.emplace_back(), ElasticTetOf(body_.zones().MaterialOf(static_cast<TetZoneId>(zone))));
  }
  layer_rest_ = rest_;
  layer_local_ = local_;
  for (uint32_t t = 0; t < tets_.size(); ++t) {
    if (tets_[t] == kFreeTet) continue;
    if (body_.IsQuasiStaticTet(t)) {
      AddInside(t, of_zone[body_.ZoneOf(t)]);
    } else if (std::any_of(tets_[t].begin(), tets_[t].end(), [&](uint32_t v) { return is_inside_[v] != 0; })) {
      AddToLayer(t, of_zone[body_.ZoneOf(t)]);
    }
  }
  part_.tet_count = inside_.size();
  const double count = static_cast<double>(inside_.size());
  part_.young_edge_n_per_m = young_sum_pa_ / count * edge_sum_m_ / count;
  return absl::OkStatus();
}

void QuasiStatic::PartMaker::AddInside(uint32_t t, ElasticTet tet) {
  for (size_t c = 0; c < 4; ++c) tet.vertices[c] = local_[tets_[t][c]];
  inside_.push_back(tet);
  young_sum_pa_ += body_.zones().MaterialOf(body_.ZoneOf(t)).young_modulus_pa;
  for (size_t c = 0; c < 6; ++c) {
    constexpr std::array<std::array<size_t, 2>, 6> kEdges = {{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}};
    edge_sum_m_ += (rest_[tet.vertices[kEdges[c][0]]] - rest_[tet.vertices[kEdges[c][1]]]).norm() / 6;
  }
}

void QuasiStatic::PartMaker::AddToLayer(uint32_t t, ElasticTet tet) {
  for (size_t c = 0; c < 4; ++c) {
    uint32_t& place = layer_local_[tets_[t][c]];
    if (place == kNone) {
      place = static_cast<uint32_t>(layer_rest_.size());
      layer_rest_.push_back(vertices_.rest_m[body_.HandleOf(tets_[t][c])]);
    }
    tet.vertices[c] = place;
  }
  layer_.push_back(tet);
}

/// What the dynamic layer does to the interface: its force as it is now, its mass, and its stiffness, which the model takes in.
absl::Status QuasiStatic::PartMaker::JoinLayer(double dt_s) {
  joined_mass_kg_ = VectorXd::Zero(static_cast<Index>(slots_.size()));
  part_.joined_n = VectorXd::Zero(At(slots_.size()));
  if (layer_.empty()) return absl::OkStatus();
  std::vector<uint8_t> held(layer_rest_.size(), 1);
  for (const uint32_t v : slots_) {
    if (is_joined_[v] == 0 || fixed_[local_[v]] != 0) continue;
    part_.interface.push_back(local_[v]);
    held[local_[v]] = 0;
  }
  // From the next step on the device tells this force.
  PALPATE_ASSIGN_OR_RETURN(const ReferenceBody now, ReferenceBody::Create(layer_rest_, layer_, held));
  const VectorXd pull = now.Forces(LayerAsItIs(now));
  for (const uint32_t v : part_.interface) part_.joined_n.segment<3>(At(v)) = pull.segment<3>(At(v));

  std::vector<ElasticTet> stiffer = layer_;
  for (ElasticTet& tet : stiffer) Stiffen(static_cast<float>(kLayerMargin + tet.damping_s / dt_s), &tet);
  PALPATE_ASSIGN_OR_RETURN(const ReferenceBody joined, ReferenceBody::Create(layer_rest_, std::move(stiffer), held));
  for (const uint32_t v : part_.interface) joined_mass_kg_[v] = joined.mass_kg()[v];
  part_.layer = BlocksOf(joined.Stiffness(joined.Rest(), true));
  return absl::OkStatus();
}

VectorXd QuasiStatic::PartMaker::LayerAsItIs(const ReferenceBody& layer) const {
  VectorXd x = layer.Rest();
  for (uint32_t v = 0; v < layer_local_.size(); ++v) {
    if (layer_local_[v] != kNone) x.segment<3>(At(layer_local_[v])) = body_.PositionOf(v);
  }
  return x;
}

absl::Status QuasiStatic::PartMaker::ComputeModel(double dt_s, bool eager) {
  PALPATE_ASSIGN_OR_RETURN(part_.model, PrecomputedModel::Create(rest_, inside_, fixed_, WhatCanBeTouched(), part_.layer, {.dt_s = dt_s}));
  if (eager) part_.model->ComputeColumns();
  return absl::OkStatus();
}

/// The surface, and what a cut of the tissue beyond the interface can uncover. Ascending.
std::vector<uint32_t> QuasiStatic::PartMaker::WhatCanBeTouched() const {
  std::vector<uint32_t> chosen = part_.interface;
  for (const uint32_t v : body_.arrays()->surface_vertices) {
    if (v != kNoSlot && is_inside_[v] != 0 && fixed_[local_[v]] == 0) chosen.push_back(local_[v]);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

void QuasiStatic::PartMaker::Weigh(const Vector3d& gravity_m_per_s2) {
  part_.weight_n.resize(At(slots_.size()));
  for (size_t v = 0; v < slots_.size(); ++v) {
    part_.weight_n.segment<3>(At(v)) = (part_.model->mass_kg()[v] + joined_mass_kg_[static_cast<Index>(v)]) * gravity_m_per_s2;
  }
}

absl::StatusOr<QuasiStatic::Part> QuasiStatic::MakePart(const WorldBody& body, const Vector3d& gravity_m_per_s2, double dt_s, bool eager,
                                                        const SceneVertices& vertices) {
  PartMaker maker(body, vertices);
  maker.ListVertices();
  PALPATE_RETURN_IF_ERROR(maker.CollectTets());
  PALPATE_RETURN_IF_ERROR(maker.JoinLayer(dt_s));
  PALPATE_RETURN_IF_ERROR(maker.ComputeModel(dt_s, eager));
  maker.Weigh(gravity_m_per_s2);
  return std::move(maker).Take();
}

}  // namespace palpate::sim
