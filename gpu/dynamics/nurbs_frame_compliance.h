#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <Eigen/Core>
#include <Eigen/SparseCholesky>

#include "gpu/base/status.h"
#include "gpu/dynamics/nurbs_shell_model.h"

namespace palpate::gpu {

/// A frame that control points of a NURBS shell carry: its origin is their mean by `place`, and it turns as fits them best by `turning`.
struct NurbsFrame {
  struct Part {
    uint32_t control = 0;
    double place = 0;       ///< these add up to 1
    double turning = 0;     ///< likewise
    Eigen::Vector3d arm_m;  ///< at rest, from the mean by `turning`
  };
  std::vector<Part> parts;  ///< each control point once
};

/// How a frame moves per move of each of its control points where these are: its origin [m], and its turn [rad]. By virtual work, what a
/// force and a moment on the frame do to each of them is the transpose.
std::vector<Eigen::Matrix<double, 6, 3>> NurbsFrameMotion(const NurbsFrame& frame, std::span<const Eigen::Vector3d> position_m);

/// What resists the motion of frames of NURBS shells when the shells give way: the inverse H of their compliance C = R A^-1 R^T, with
/// A = M / dt^2 + K the tangent of the step at given positions and R the motions of the frames; and the responses A^-1 R^T of the control
/// points to what acts on the frames. A is sparse, and factored anew in each update. Host work, in double. Determinism: same input, same
/// bits.
class NurbsFrameCompliance {
 public:
  using Matrix6d = Eigen::Matrix<double, 6, 6>;
  /// Two frames of one shell, or one twice.
  struct Pair {
    uint32_t a = 0, b = 0;
    Matrix6d h = Matrix6d::Zero();  ///< N/m, N m; rows: motion of frame a, columns: of b, in W
  };
  /// A control point of a shell with frames.
  struct Solved {
    uint32_t control = 0;
    uint32_t frame_begin = 0, frame_end = 0;  ///< in frame_order()
    uint32_t response_begin = 0;              ///< in responses()
  };

  /// `held` [control point]: bits of axes that do not move. Errors: InvalidArgument (a frame, by number, of two shells, or of one of more
  /// than kMaxNurbsCorrected control points).
  static absl::StatusOr<std::unique_ptr<NurbsFrameCompliance>> Create(NurbsShellModel model, std::vector<uint32_t> held, double dt_s,
                                                                      std::vector<NurbsFrame> frames);

  /// At these positions [control point]. Errors: Internal (they are not finite).
  absl::Status Update(std::span<const Eigen::Vector3d> position_m);

  size_t frame_count() const { return frames_.size(); }
  std::span<const Pair> pairs() const { return pairs_; }  ///< each once, and each frame with itself
  std::span<const Solved> solved() const { return solved_; }
  std::span<const uint32_t> frame_order() const { return frame_order_; }  ///< shell by shell
  std::span<const float> responses() const { return responses_; }         ///< [solved][frame of its shell][3][6] moves per force and moment

 private:
  /// A shell with frames.
  struct Shell {
    uint32_t solved_begin = 0, solved_end = 0;
    uint32_t frame_begin = 0, frame_end = 0;  // in frame_order_
    uint32_t pair_begin = 0;
    std::vector<uint32_t> gauss;
    Eigen::SparseMatrix<double> matrix;         // lower triangle
    std::vector<std::vector<uint32_t>> places;  // [gauss of these][pair of its control points, i >= j][3][3] in `matrix`, or none
    Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>, Eigen::Lower> factor;
  };
  NurbsFrameCompliance() = default;
  void MakePattern(Shell* shell);
  absl::Status Update(Shell& shell, std::span<const Eigen::Vector3d> position_m);

  NurbsShellModel model_;
  std::vector<uint32_t> held_;
  double dt_s_ = 0;
  std::vector<NurbsFrame> frames_;
  std::vector<uint32_t> place_;  // [control point] among those of its shell
  std::vector<std::unique_ptr<Shell>> shells_;
  std::vector<Solved> solved_;
  std::vector<uint32_t> frame_order_;
  std::vector<Pair> pairs_;
  std::vector<float> responses_;
};

}  // namespace palpate::gpu
