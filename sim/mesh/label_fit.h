#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "sim/mesh/label_complex.h"
#include "sim/mesh/label_field.h"

namespace palpate::sim {

/// Moves the vertices of a complex onto the interfaces of its field without letting tets get bad: each move is refused, or shortened, if
/// the worst tet around the vertex would leave the good ones (18 degrees), or get worse where it is not good. Tets of label 0 only have to
/// stay positive, so that the surface never meets itself. An offset for each label shifts the interfaces until the volumes are right.
class LabelFit {
 public:
  /// `offsets`: as of CutLattice, to start from. `frozen`: [vertex_count] 1 for vertices that stay. `complex` and `field` must outlive the
  /// object; `complex` is changed.
  LabelFit(LabelComplex* complex, const LabelField& field, std::vector<double> offsets, std::vector<uint8_t> frozen);

  /// One pass over all vertices on interfaces.
  void MoveToInterfaces();

  /// Moves vertices of tets that are not good to where the worst angle around them is better: along their interfaces, or off them too.
  void ImproveShapes(double goal_rad, bool may_leave_interfaces);

  /// Changes the offsets by one Newton step towards these volumes: [label_count], of label i + 1. [m^3]
  void AdjustVolumes(const std::vector<double>& target_m3);

  const std::vector<double>& offsets() const { return offset_; }
  std::vector<double> Volumes() const;  ///< [label_count] [m^3]
  double WorstQuality() const;          ///< least BoundQuality of tets that have a label [rad]
  /// Root mean square and greatest distance of vertices on interfaces from these. [m]
  std::array<double, 2> Deviation() const;

 private:
  struct Site {
    std::array<uint16_t, 4> labels{};  // of the tets around the vertex
    uint8_t label_count = 0;
  };
  bool IsAtInterface(uint32_t v) const { return sites_[v].label_count > 1; }
  Eigen::Vector3d Project(uint32_t v, Eigen::Vector3d x, int steps) const;
  double StarQuality(uint32_t v, const Eigen::Vector3d& x, double floor, double cap) const;
  bool TryMove(uint32_t v, const Eigen::Vector3d& to);
  bool ImproveVertex(uint32_t v, double goal_rad, bool may_leave_interfaces);
  double TetQuality(size_t t) const;

  LabelComplex& complex_;
  const LabelField& field_;
  std::vector<uint8_t> frozen_;
  std::vector<Site> sites_;              // [vertex_count]
  std::vector<uint32_t> first_tet_;      // [vertex_count + 1]
  std::vector<uint32_t> tets_;           // around each vertex
  std::vector<double> size_m_;           // [vertex_count] shortest edge at the start
  std::vector<Eigen::Vector3d> home_m_;  // [vertex_count] place at the start
  std::vector<double> offset_;           // [label_count + 1], that of 0 is 0
};

}  // namespace palpate::sim
