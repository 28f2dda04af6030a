#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include "absl/status/statusor.h"
#include "sim/nurbs/nurbs_object.h"

namespace palpate::sim {

/// A part of a patch inside which the surface is smooth: between lines of knots of full multiplicity.
struct NurbsShellPiece {
  uint32_t patch = 0;
  std::array<int, 2> degree{};
  std::array<std::vector<double>, 2> knots;  ///< clamped
  std::array<size_t, 2> first{}, count{};    ///< control points of the patch's net, in u and v
};

/// Two sides of pieces that are one curve with the same control points.
struct NurbsShellSeam {
  uint32_t patch = 0;  ///< of the first side
  int degree = 0;
  std::vector<double> knots;
  /// Along the curve: points of nets on it, and those next to it on either side.
  std::vector<uint32_t> on, before, after;
  std::vector<double> weight_on, weight_before, weight_after;  ///< of those points; of the second side as multiples of the first's
  std::vector<uint8_t> is_kept;                                ///< of a point on it: trimming leaves something near it on both sides
  bool is_smooth = false;                                      ///< each kept point on it is a mean of the two beside it
};

/// How control points of nets depend on each other. Points of nets are numbered patch by patch, [count_u][count_v].
struct NurbsShellJoints {
  std::vector<NurbsShellPiece> pieces;
  std::vector<uint32_t> net_begin;  ///< [patch + 1]
  std::vector<NurbsShellSeam> seams;
  uint32_t control_count = 0;  ///< of unknowns
  /// [point of a net] its position is the mean of these unknowns, rising.
  std::vector<std::vector<std::pair<uint32_t, double>>> parts;
  /// [point of a net] trimming leaves something where it acts. Others are no unknowns: they go along with those near them, for drawing
  /// alone.
  std::vector<uint8_t> is_kept;
};

/// Joins sides with the same control points, unless one of them is trimmed away. Points of a seam across which the surface is smooth are
/// tied to those beside them, so that it stays smooth. `is_kept`: as in NurbsShellJoints; empty: all. Errors as of BuildNurbsShell.
absl::StatusOr<NurbsShellJoints> JoinNurbsShell(const NurbsObject& object, std::vector<uint8_t> is_kept = {});

}  // namespace palpate::sim
