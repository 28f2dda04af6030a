#include "gpu/base/eigen_instances.h"

template class Eigen::JacobiSVD<Eigen::Matrix<double, 2, 3>>;
template class Eigen::JacobiSVD<Eigen::Matrix3d>;
