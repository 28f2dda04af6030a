#include "sim/mesh/label_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include <Eigen/Cholesky>
#include <Eigen/Dense>

#include "sim/mesh/isosurface_stuffing.h"
#include "sim/mesh/mesh_repair.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kGood = 18 * std::numbers::pi / 180;
constexpr double kMaxShift = 0.7;        // from home, of the size
constexpr double kMinAirVolume = 0.004;  // six times the volume, of the size cubed
constexpr double kMaxOffset = 0.45;      // of values that go from 0 to 1
constexpr double kMinSlope = 0.1;        // of the field across an interface, per transition

const std::array<Vector3d, 14>& Directions() {
  static const std::array<Vector3d, 14> directions = [] {
    std::array<Vector3d, 14> out;
    for (int axis = 0; axis < 3; ++axis) {
      out[2 * axis] = Vector3d::Unit(axis);
      out[2 * axis + 1] = -Vector3d::Unit(axis);
    }
    for (int i = 0; i < 8; ++i) out[6 + i] = Vector3d((i & 1) != 0 ? 1 : -1, (i & 2) != 0 ? 1 : -1, (i & 4) != 0 ? 1 : -1).normalized();
    return out;
  }();
  return directions;
}

double SixVolumes(const std::array<Vector3d, 4>& x) { return (x[1] - x[0]).cross(x[2] - x[0]).dot(x[3] - x[0]); }

}  // namespace

LabelFit::LabelFit(LabelComplex* complex, const LabelField& field, std::vector<double> offsets, std::vector<uint8_t> frozen)
    : complex_(*complex), field_(field), frozen_(std::move(frozen)), home_m_(complex->mesh.vertices), offset_(std::move(offsets)) {
  const TetMesh& mesh = complex_.mesh;
  const size_t count = mesh.vertices.size();
  sites_.resize(count);
  first_tet_.assign(count + 1, 0);
  size_m_.assign(count, std::numeric_limits<double>::infinity());
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    const auto label = static_cast<uint16_t>(complex_.labels[t]);
    for (const uint32_t v : mesh.tets[t]) {
      ++first_tet_[v + 1];
      Site& site = sites_[v];
      const auto end = site.labels.begin() + site.label_count;
      if (std::find(site.labels.begin(), end, label) == end && site.label_count < 4) site.labels[site.label_count++] = label;
      for (const uint32_t w : mesh.tets[t]) {
        if (w != v) size_m_[v] = std::min(size_m_[v], (mesh.vertices[v] - mesh.vertices[w]).norm());
      }
    }
  }
  for (Site& site : sites_) std::sort(site.labels.begin(), site.labels.begin() + site.label_count);
  for (size_t v = 0; v < count; ++v) {
    first_tet_[v + 1] += first_tet_[v];
    // what belongs to no label has nothing to gain
    if (sites_[v].label_count == 0 || (sites_[v].label_count == 1 && sites_[v].labels[0] == 0)) frozen_[v] = 1;
  }
  tets_.resize(first_tet_.back());
  std::vector<uint32_t> fill(first_tet_.begin(), first_tet_.end() - 1);
  for (uint32_t t = 0; t < mesh.tets.size(); ++t) {
    for (const uint32_t v : mesh.tets[t]) tets_[fill[v]++] = t;
  }
}

double LabelFit::TetQuality(size_t t) const { return BoundQuality(complex_.mesh, complex_.mesh.tets[t]); }

// Newton's shortest step to where the values of all labels at the vertex are equal.
Vector3d LabelFit::Project(uint32_t v, Vector3d x, int steps) const {
  const Site& site = sites_[v];
  const int rows = site.label_count - 1;
  const double longest_m = 0.5 * field_.transition_m();
  for (int step = 0; step < steps; ++step) {
    Vector3d gradient0;
    const double value0 = field_.Value(site.labels[0], x, &gradient0) + offset_[site.labels[0]];
    Eigen::Matrix<double, Eigen::Dynamic, 3, 0, 3, 3> jacobian(rows, 3);
    Eigen::Matrix<double, Eigen::Dynamic, 1, 0, 3, 1> residual(rows);
    for (int i = 0; i < rows; ++i) {
      const int label = site.labels[i + 1];
      Vector3d gradient;
      residual[i] = value0 - field_.Value(label, x, &gradient) - offset_[label];
      jacobian.row(i) = (gradient0 - gradient).transpose();
    }
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, 0, 3, 3> normal = jacobian * jacobian.transpose();
    // where the field is flat the step stays short
    const double slope = kMinSlope / field_.transition_m();
    for (int i = 0; i < rows; ++i) normal(i, i) += 1e-3 * slope * slope;
    Vector3d move = -jacobian.transpose() * normal.ldlt().solve(residual);
    const double length_m = move.norm();
    if (!(length_m > 0) || !std::isfinite(length_m)) break;
    if (length_m > longest_m) move *= longest_m / length_m;
    x += move;
    if (length_m < 1e-4 * longest_m) break;
  }
  return x;
}

// The worst quality of the tets that have a label around a vertex at x, at most `cap`; the search ends when it is at most `floor`.
double LabelFit::StarQuality(uint32_t v, const Vector3d& x, double floor, double cap) const {
  const TetMesh& mesh = complex_.mesh;
  double worst = cap;
  for (uint32_t s = first_tet_[v]; s < first_tet_[v + 1] && worst > floor; ++s) {
    const uint32_t t = tets_[s];
    std::array<Vector3d, 4> corner;
    std::array<Vector3d, 4> before;
    for (int i = 0; i < 4; ++i) {
      const uint32_t w = mesh.tets[t][i];
      before[i] = mesh.vertices[w];
      corner[i] = w == v ? x : before[i];
    }
    if (complex_.labels[t] != 0) {
      worst = std::min(worst, BoundQuality(corner));
    } else {
      const double size_m = size_m_[v];
      const double least = kMinAirVolume * size_m * size_m * size_m;
      const double volume = SixVolumes(corner);
      if (volume < least && volume < SixVolumes(before)) return -1;
    }
  }
  return worst;
}

bool LabelFit::TryMove(uint32_t v, const Vector3d& to) {
  Vector3d& x = complex_.mesh.vertices[v];
  const double needed = std::min(StarQuality(v, x, -2, kGood), kGood);
  for (double share = 1; share > 0.2; share *= 0.5) {
    const Vector3d place = x + share * (to - x);
    if ((place - home_m_[v]).norm() > kMaxShift * size_m_[v]) continue;
    if (StarQuality(v, place, -0.5, kGood) < needed) continue;
    x = place;
    return true;
  }
  return false;
}

void LabelFit::MoveToInterfaces() {
  for (uint32_t v = 0; v < sites_.size(); ++v) {
    if (frozen_[v] != 0 || !IsAtInterface(v)) continue;
    const Vector3d& x = complex_.mesh.vertices[v];
    const Vector3d to = Project(v, x, 4);
    if ((to - x).norm() > 1e-6 * size_m_[v]) TryMove(v, to);
  }
}

// Pattern search for a better worst angle.
bool LabelFit::ImproveVertex(uint32_t v, double goal_rad, bool may_leave_interfaces) {
  constexpr int kMaxTries = 24;
  Vector3d& x = complex_.mesh.vertices[v];
  const bool stays_on_interface = IsAtInterface(v) && !may_leave_interfaces;
  double best = StarQuality(v, x, -2, goal_rad);
  bool moved = false;
  double step_m = 0.12 * size_m_[v];
  for (int tries = 0; tries < kMaxTries && best < goal_rad && step_m > 0.004 * size_m_[v]; ++tries) {
    Vector3d best_x = x;
    for (const Vector3d& direction : Directions()) {
      Vector3d place = x + step_m * direction;
      if (stays_on_interface) place = Project(v, place, 2);
      if (IsAtInterface(v) && (place - home_m_[v]).norm() > kMaxShift * size_m_[v]) continue;
      const double quality = StarQuality(v, place, best, goal_rad);
      if (quality <= best) continue;
      best = quality;
      best_x = place;
    }
    if (best_x == x) {
      step_m *= 0.5;
    } else {
      x = best_x;
      moved = true;
    }
  }
  return moved;
}

void LabelFit::ImproveShapes(double goal_rad, bool may_leave_interfaces) {
  const TetMesh& mesh = complex_.mesh;
  constexpr int kPasses = 3;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<uint8_t> wanted(mesh.vertices.size(), 0);
    for (size_t t = 0; t < mesh.tets.size(); ++t) {
      if (complex_.labels[t] == 0 || TetQuality(t) >= goal_rad) continue;
      for (const uint32_t v : mesh.tets[t]) wanted[v] = 1;
    }
    bool moved = false;
    for (uint32_t v = 0; v < wanted.size(); ++v) {
      if (wanted[v] != 0 && frozen_[v] == 0) moved |= ImproveVertex(v, goal_rad, may_leave_interfaces);
    }
    if (!moved) return;
  }
}

std::vector<double> LabelFit::Volumes() const {
  std::vector<double> volumes(field_.label_count(), 0.0);
  for (size_t t = 0; t < complex_.labels.size(); ++t) {
    if (complex_.labels[t] != 0) volumes[complex_.labels[t] - 1] += TetVolume(complex_.mesh, t);
  }
  return volumes;
}

double LabelFit::WorstQuality() const {
  double worst = std::numbers::pi;
  for (size_t t = 0; t < complex_.labels.size(); ++t) {
    if (complex_.labels[t] != 0) worst = std::min(worst, TetQuality(t));
  }
  return worst;
}

std::array<double, 2> LabelFit::Deviation() const {
  double sum_sq_m2 = 0;
  double greatest_m = 0;
  size_t count = 0;
  for (uint32_t v = 0; v < sites_.size(); ++v) {
    if (!IsAtInterface(v)) continue;
    const Vector3d& x = complex_.mesh.vertices[v];
    const double distance_m = (Project(v, x, 4) - x).norm();
    sum_sq_m2 += distance_m * distance_m;
    greatest_m = std::max(greatest_m, distance_m);
    ++count;
  }
  return {count > 0 ? std::sqrt(sum_sq_m2 / static_cast<double>(count)) : 0, greatest_m};
}

// How volumes follow offsets: an interface between i and j moves by (offset_i - offset_j) / slope.
void LabelFit::AdjustVolumes(const std::vector<double>& target_m3) {
  const int n = field_.label_count();
  Eigen::MatrixXd response = Eigen::MatrixXd::Zero(n, n);
  struct Face {
    std::array<uint32_t, 3> corner;
    uint32_t label;
  };
  std::vector<Face> faces;
  const TetMesh& mesh = complex_.mesh;
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    for (int skip = 0; skip < 4; ++skip) {
      Face face{{}, complex_.labels[t]};
      int at_interface = 0;
      for (int i = 0, k = 0; i < 4; ++i) {
        if (i == skip) continue;
        face.corner[k++] = mesh.tets[t][i];
        at_interface += IsAtInterface(mesh.tets[t][i]) ? 1 : 0;
      }
      if (at_interface < 3) continue;
      std::sort(face.corner.begin(), face.corner.end());
      faces.push_back(face);
    }
  }
  std::sort(faces.begin(), faces.end(),
            [](const Face& a, const Face& b) { return a.corner != b.corner ? a.corner < b.corner : a.label < b.label; });
  for (size_t f = 0; f + 1 < faces.size(); ++f) {
    const auto& c = faces[f].corner;
    if (c != faces[f + 1].corner || faces[f].label == faces[f + 1].label) continue;
    const Vector3d &x = mesh.vertices[c[0]], &y = mesh.vertices[c[1]], &z = mesh.vertices[c[2]];
    const int i = static_cast<int>(faces[f].label);
    const int j = static_cast<int>(faces[f + 1].label);
    Vector3d gradient_i;
    Vector3d gradient_j;
    field_.Value(i, (x + y + z) / 3, &gradient_i);
    field_.Value(j, (x + y + z) / 3, &gradient_j);
    const double slope = std::max((gradient_i - gradient_j).norm(), kMinSlope / field_.transition_m());
    const double weight = 0.5 * (y - x).cross(z - x).norm() / slope;
    if (i > 0) response(i - 1, i - 1) += weight;
    if (j > 0) response(j - 1, j - 1) += weight;
    if (i > 0 && j > 0) {
      response(i - 1, j - 1) -= weight;
      response(j - 1, i - 1) -= weight;
    }
  }
  const std::vector<double> volumes = Volumes();
  Eigen::VectorXd missing(n);
  for (int i = 0; i < n; ++i) missing[i] = target_m3[i] - volumes[i];
  const double scale = response.diagonal().maxCoeff();
  if (!(scale > 0)) return;
  response.diagonal().array() += 1e-6 * scale;
  const Eigen::VectorXd change = response.ldlt().solve(missing);
  for (int i = 0; i < n; ++i) offset_[i + 1] = std::clamp(offset_[i + 1] + change[i], -kMaxOffset, kMaxOffset);
}

}  // namespace palpate::sim
