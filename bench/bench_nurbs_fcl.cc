#include "bench/bench_nurbs_fcl.h"

// clang-format off: the model needs `fit` of this header, which it does not include
#include <fcl/math/bv/utility.h>
// clang-format on
#include <fcl/geometry/bvh/BVH_model.h>
#include <fcl/math/bv/OBBRSS.h>
#include <fcl/narrowphase/collision.h>

namespace palpate::bench {
namespace {

class Mesh : public FclMesh {
 public:
  explicit Mesh(const sim::SurfaceMesh& mesh) {
    std::vector<fcl::Triangle> triangles;
    for (const auto& t : mesh.triangles) triangles.emplace_back(t[0], t[1], t[2]);
    model_ = std::make_shared<fcl::BVHModel<fcl::OBBRSSd>>();
    model_->beginModel();
    model_->addSubModel(mesh.vertices, triangles);
    model_->endModel();
  }
  bool Meets(const Eigen::Isometry3d& pose, const FclMesh& other, const Eigen::Isometry3d& other_pose) const override {
    const fcl::CollisionRequestd request(1, false);
    fcl::CollisionResultd result;
    return fcl::collide(model_.get(), pose, static_cast<const Mesh&>(other).model_.get(), other_pose, request, result) > 0;
  }

 private:
  std::shared_ptr<fcl::BVHModel<fcl::OBBRSSd>> model_;
};

}  // namespace

std::unique_ptr<FclMesh> FclMesh::Create(const sim::SurfaceMesh& mesh) { return std::make_unique<Mesh>(mesh); }

}  // namespace palpate::bench
