#include "bench/bench_proximity_fcl.h"

// clang-format off: the model needs `fit` of this header, which it does not include
#include <fcl/math/bv/utility.h>
// clang-format on
#include <fcl/geometry/bvh/BVH_model.h>
#include <fcl/math/bv/AABB.h>
#include <fcl/math/bv/OBBRSS.h>
#include <fcl/narrowphase/detail/primitive_shape_algorithm/triangle_distance.h>
#include <fcl/narrowphase/detail/traversal/distance/mesh_distance_traversal_node.h>
#include <fcl/narrowphase/detail/traversal/traversal_recurse.h>

#include <algorithm>

namespace palpate::bench {
namespace {

// libfcl's traversal by rising distance, which goes on to all pairs below a range instead of only the nearest.
template <typename BV>
class NearPairs : public fcl::detail::MeshDistanceTraversalNode<BV> {
 public:
  double range_m = 0;
  bool is_self = false;
  mutable uint64_t found = 0;
  std::vector<std::array<uint32_t, 2>>* list = nullptr;     // of what was found, if wanted
  std::vector<std::array<uint32_t, 2>>* visited = nullptr;  // of all that was looked at, if wanted

  double BVTesting(int b1, int b2) const override { return this->model1->getBV(b1).bv.distance(this->model2->getBV(b2).bv); }
  bool canStop(double distance) const override { return distance >= range_m; }
  void leafTesting(int b1, int b2) const override {
    const int t1 = this->model1->getBV(b1).primitiveId();
    const int t2 = this->model2->getBV(b2).primitiveId();
    const fcl::Triangle& a = this->tri_indices1[t1];
    const fcl::Triangle& b = this->tri_indices2[t2];
    const auto first = static_cast<uint32_t>(is_self ? std::min(t1, t2) : t1);
    const auto second = static_cast<uint32_t>(is_self ? std::max(t1, t2) : t2);
    if (visited != nullptr) visited->push_back({first, second});
    if (is_self) {
      for (int i = 0; i < 3; ++i) {
        for (int k = 0; k < 3; ++k) {
          if (a[i] == b[k]) return;
        }
      }
    }
    fcl::Vector3d p;
    fcl::Vector3d q;
    const double distance =
        fcl::detail::TriangleDistanced::triDistance(this->vertices1[a[0]], this->vertices1[a[1]], this->vertices1[a[2]],
                                                    this->vertices2[b[0]], this->vertices2[b[1]], this->vertices2[b[2]], p, q);
    if (!(distance < range_m)) return;
    ++found;
    if (list != nullptr) list->push_back({first, second});
  }

  // A model against itself: each node's two children, which share no triangle, against each other. The same tree as both arguments of
  // distanceRecurse would be gone through twice, as (a, b) and as (b, a).
  void TraverseItself(int node) {
    const auto& bv = this->model1->getBV(node);
    if (bv.isLeaf()) return;
    TraverseItself(bv.leftChild());
    TraverseItself(bv.rightChild());
    if (canStop(BVTesting(bv.leftChild(), bv.rightChild()))) return;
    fcl::detail::distanceRecurse<double>(this, bv.leftChild(), bv.rightChild(), nullptr);
  }
};

template <typename BV>
class Scene : public FclScene {
 public:
  Scene(bool refit_from_leaves, std::span<const gpu::Float4> positions_m, const std::vector<std::vector<std::array<uint32_t, 3>>>& bodies)
      : refit_from_leaves_(refit_from_leaves) {
    for (const auto& triangles : bodies) {
      Body body;
      body.first = UINT32_MAX;
      for (const auto& t : triangles) {
        for (const uint32_t v : t) {
          body.first = std::min(body.first, v);
          body.end = std::max(body.end, v + 1);
        }
      }
      std::vector<fcl::Triangle> list;
      for (const auto& t : triangles) list.emplace_back(t[0] - body.first, t[1] - body.first, t[2] - body.first);
      body.model = std::make_unique<fcl::BVHModel<BV>>();
      body.model->beginModel();
      body.model->addSubModel(Points(body, positions_m), list);
      body.model->endModel();
      bodies_.push_back(std::move(body));
    }
  }

  uint64_t Run(std::span<const gpu::Float4> positions_m, double range_m) override {
    for (Body& body : bodies_) {
      body.model->beginUpdateModel();
      body.model->updateSubModel(Points(body, positions_m));
      body.model->endUpdateModel(true, refit_from_leaves_);
    }
    return Traverse(range_m, nullptr, nullptr);
  }

  std::vector<std::array<uint32_t, 2>> Pairs(double range_m) const override {
    std::vector<std::array<uint32_t, 2>> pairs;
    Traverse(range_m, &pairs, nullptr);
    std::sort(pairs.begin(), pairs.end());
    return pairs;
  }

  uint64_t CountRepeatedVisits(double range_m) const override {
    std::vector<std::array<uint32_t, 2>> visited;
    Traverse(range_m, nullptr, &visited);
    std::sort(visited.begin(), visited.end());
    return static_cast<uint64_t>(visited.end() - std::unique(visited.begin(), visited.end()));
  }

 private:
  uint64_t Traverse(double range_m, std::vector<std::array<uint32_t, 2>>* list, std::vector<std::array<uint32_t, 2>>* visited) const {
    const fcl::BVHModel<BV>& a = *bodies_.front().model;
    const fcl::BVHModel<BV>& b = *bodies_.back().model;
    NearPairs<BV> node;
    node.list = list;
    node.visited = visited;
    node.model1 = &a;
    node.model2 = &b;
    node.vertices1 = a.vertices;
    node.vertices2 = b.vertices;
    node.tri_indices1 = a.tri_indices;
    node.tri_indices2 = b.tri_indices;
    node.range_m = range_m;
    node.is_self = bodies_.size() == 1;
    if (node.is_self) {
      node.TraverseItself(0);
    } else {
      fcl::detail::distanceRecurse<double>(&node, 0, 0, nullptr);
    }
    return node.found;
  }

  struct Body {
    uint32_t first = 0;
    uint32_t end = 0;
    std::unique_ptr<fcl::BVHModel<BV>> model;
  };
  static std::vector<fcl::Vector3d> Points(const Body& body, std::span<const gpu::Float4> positions_m) {
    std::vector<fcl::Vector3d> points;
    points.reserve(body.end - body.first);
    for (uint32_t v = body.first; v < body.end; ++v) points.emplace_back(positions_m[v].x, positions_m[v].y, positions_m[v].z);
    return points;
  }
  bool refit_from_leaves_;
  std::vector<Body> bodies_;
};

}  // namespace

std::unique_ptr<FclScene> FclScene::Create(Volume volume, std::span<const gpu::Float4> positions_m,
                                           const std::vector<std::vector<std::array<uint32_t, 3>>>& bodies) {
  if (volume == Volume::kObbRss) return std::make_unique<Scene<fcl::OBBRSSd>>(false, positions_m, bodies);
  return std::make_unique<Scene<fcl::AABBd>>(true, positions_m, bodies);
}

}  // namespace palpate::bench
