#pragma once

#include <memory>

#include <Eigen/Geometry>

#include "sim/nurbs/nurbs_surface.h"

namespace palpate::bench {

/// A surface of OpenCASCADE: what a user of CAD would ask. One thread.
class OcctSurface {
 public:
  static std::unique_ptr<OcctSurface> Create(const sim::NurbsSurface& surface);
  virtual ~OcctSurface() = default;
  /// Whether curves of intersection are found, by GeomAPI_IntSS.
  virtual bool Meets(const Eigen::Isometry3d& pose, const OcctSurface& other, const Eigen::Isometry3d& other_pose,
                     double tolerance_m) const = 0;
  /// The least distance of the two as faces, by BRepExtrema_DistShapeShape; negative if it fails.
  virtual double Distance(const Eigen::Isometry3d& pose, const OcctSurface& other, const Eigen::Isometry3d& other_pose,
                          double tolerance_m) const = 0;
};

}  // namespace palpate::bench
