#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "absl/status/statusor.h"
#include "clients/cli/verify_tissue.h"
#include "clients/cpp/scene_client.h"
#include "palpate/v1/stream.pb.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::cli {

/// What the cases of VerifyTissue share: scenes on the server, and the list of checks.
class TissueBench {
 public:
  TissueBench(const client::Connection& connection, client::SceneClient& server, const std::function<void(const TissueCheck&)>& seen)
      : connection_(connection), server_(server), seen_(seen) {}

  /// A scene on the server, deleted with the object.
  class Scene {
   public:
    Scene(const TissueBench& bench, std::string id) : bench_(bench), id_(std::move(id)) {}
    Scene(const Scene&) = delete;
    Scene& operator=(const Scene&) = delete;
    ~Scene();

    /// Positions of all vertices after `steps` more steps.
    absl::StatusOr<std::vector<Eigen::Vector3d>> Step(uint32_t steps);
    /// After at most `steps` more, fewer if after at least `least` of them nothing moves farther than `still_m` in one.
    absl::StatusOr<std::vector<Eigen::Vector3d>> Settle(uint32_t least, uint32_t steps, double still_m);
    /// Of the state as it is. Errors: FailedPrecondition (the scene does not report it).
    absl::StatusOr<double> ElasticEnergy();

   private:
    absl::StatusOr<v1::Frame> CurrentFrame();

    const TissueBench& bench_;
    std::string id_;
  };

  absl::StatusOr<std::unique_ptr<Scene>> Create(const v1::SceneSpec& spec);
  absl::StatusOr<std::vector<Eigen::Vector3d>> PositionsAfter(const v1::SceneSpec& spec, uint32_t steps);

  void Add(std::string id, std::string what, double expected, double got, double tolerance);

  std::vector<TissueCheck> checks;

 private:
  const client::Connection& connection_;
  client::SceneClient& server_;
  const std::function<void(const TissueCheck&)>& seen_;
};

absl::Status VerifyStatics(TissueBench& bench);   ///< E1 to E4, E9, E13, P1
absl::Status VerifyEnergies(TissueBench& bench);  ///< E8, E10, E14
absl::Status VerifyDynamics(TissueBench& bench);  ///< T1, T2, T6

/// A constitutive law in closed form, apart from the kernels.
struct TissueLaw {
  v1::MaterialModel model;
  const char* name;
  double young_modulus_pa, poisson_ratio;

  double mu_pa() const { return young_modulus_pa / (2 * (1 + poisson_ratio)); }
  double lambda_pa() const { return young_modulus_pa * poisson_ratio / ((1 + poisson_ratio) * (1 - 2 * poisson_ratio)); }
  v1::MaterialSpec Spec() const;
  /// J/m^3 at the deformation gradient, 0 at rest; not of springs.
  double EnergyDensity(const Eigen::Matrix3d& f) const;
  /// Its derivative, the first Piola-Kirchhoff stress [Pa].
  Eigen::Matrix3d Stress(const Eigen::Matrix3d& f) const;
};

void Set(v1::Vec3& out, const Eigen::Vector3d& v);

/// A scene of one body without gravity.
v1::SceneSpec SceneOf(const sim::TetMesh& mesh, const v1::MaterialSpec& material);
/// For the shape at rest under loads: a light body and steps of a tenth of a second, in which backward Euler takes nearly all motion out.
v1::SceneSpec StaticSceneOf(const sim::TetMesh& mesh, v1::MaterialSpec material, uint32_t sweeps);
/// Takes out what turns and drifts a body that nothing holds, which the loads do not: a damping that changes no state of rest.
void Calm(v1::SceneSpec& spec);
v1::MaterialSpec Elastic(v1::MaterialModel model, double young_modulus_pa, double poisson_ratio);

/// A force on all vertices with this coordinate along `axis`.
void LoadPlane(const sim::TetMesh& mesh, int axis, double coordinate_m, const Eigen::Vector3d& force_n, v1::SceneSpec& spec);
/// Pulls the two ends of a body along an axis apart with a force each.
void PullEnds(const sim::TetMesh& mesh, double force_n, v1::SceneSpec& spec, int axis = 2);
/// Dead loads on the six faces of a centred block from a stress on the areas at rest.
void LoadFaces(const sim::TetMesh& mesh, const Eigen::Vector3d& size_m, const Eigen::Matrix3d& stress_pa, v1::SceneSpec& spec);

/// Moves the vertices that `drives` names to f times their place within the first simulated second.
void DriveAffine(const sim::TetMesh& mesh, const Eigen::Matrix3d& f, const std::function<bool(const Eigen::Vector3d&)>& drives,
                 v1::SceneSpec& spec);

/// A regular base of side 1 with the apex, vertex 3, at height 1.
sim::TetMesh TetOfHeightOne();
void FixBase(v1::SceneSpec& spec);

/// The root of a rising function.
double Root(double low, double high, const std::function<double(double)>& f);

constexpr double kStandardGravity_m_per_s2 = 9.81;

}  // namespace palpate::cli
