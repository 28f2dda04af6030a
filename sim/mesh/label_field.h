#pragma once

#include <array>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

namespace palpate::sim {

/// Which of several labels fills each point of space. Labels are 1 to label_count(); 0 is outside of all. Each has a value at each point;
/// the largest value wins. Between two labels their values are equal: that is the interface. Values are continuous, and about 0 to 1.
class LabelField {
 public:
  virtual ~LabelField() = default;

  virtual int label_count() const = 0;

  /// Contains everything that is not outside. [m]
  virtual Eigen::AlignedBox3d bounds_m() const = 0;

  /// Length over which values go from 0 to 1 across an interface; > 0. [m]
  virtual double transition_m() const = 0;

  /// The values of all labels at a point: [label_count() + 1].
  virtual void Values(const Eigen::Vector3d& x_m, std::vector<double>* values) const = 0;

  /// Value and gradient [1/m] of one label.
  virtual double Value(int label, const Eigen::Vector3d& x_m, Eigen::Vector3d* gradient_per_m) const = 0;

  /// False only if no point within a margin of a tet has the label. Label 1 to label_count(); corners in any order.
  virtual bool MayTouch(int label, const std::array<Eigen::Vector3d, 4>& tet_m, double margin_m) const = 0;
};

}  // namespace palpate::sim
