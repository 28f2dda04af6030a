// Parts of Eigen that several files need and that take seconds to compile: compiled once, in eigen_instances.cc. Precompiled headers have
// this, so no file includes it; a build without them compiles these parts where they are used.
#ifndef PALPATE_GPU_BASE_EIGEN_INSTANCES_H_
#define PALPATE_GPU_BASE_EIGEN_INSTANCES_H_

#include <Eigen/Geometry>
#include <Eigen/SVD>

extern template class Eigen::JacobiSVD<Eigen::Matrix<double, 2, 3>>;  // of Eigen::Quaterniond::FromTwoVectors
extern template class Eigen::JacobiSVD<Eigen::Matrix3d>;

#endif  // PALPATE_GPU_BASE_EIGEN_INSTANCES_H_
