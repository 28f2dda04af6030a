#pragma once

#include <cstdint>

namespace palpate::gpu {

/// Share of inverted tets from which a mesh is tangled and recovers, see docs/algorithms/tissue.md.
inline constexpr double kTangledShare = 0.02;

/// When a tangled mesh recovers. Its volume changes are softened then, to those of a Poisson ratio of 0.3, until no tet has been inverted
/// or strained beyond 1 for a while, or a time limit. docs/algorithms/tissue.md, "Tangled meshes".
class TangleRecovery {
 public:
  /// Tets after a step. `elastic`: those whose energy pushes back where they are inverted.
  struct Counts {
    uint32_t inverted = 0, inverted_elastic = 0, strained = 0;
  };

  bool active() const { return left_s_ > 0; }
  /// A cap on the first Lame parameter relative to the second, see StepParams::lambda_cap.
  float lambda_cap() const;

  void Start();
  /// The positions came from outside with many inverted tets. Until active() ends, and whatever it does meanwhile, the mesh must be allowed
  /// to pass through itself.
  void StartGivenTangled();
  void Stop() { *this = TangleRecovery(); }
  /// Whether the newest state from outside was such a one, and has not been called back.
  bool was_given_tangled() const { return was_given_tangled_; }
  void ForgetGiven() { was_given_tangled_ = false; }
  /// After a step of `dt_s`. Whether active() changed.
  bool Update(const Counts& counts, uint32_t tet_count, double dt_s);

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [left_s, calm_s, was_given_tangled] = *this;
    archive.Enter("TangleRecovery");
    archive(left_s, calm_s, was_given_tangled);
  }

 private:
  double left_s_ = 0;  // > 0 while it recovers
  double calm_s_ = 0;  // how long it has looked untangled
  bool was_given_tangled_ = false;
};

}  // namespace palpate::gpu
