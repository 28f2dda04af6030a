#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <Eigen/Geometry>

#include "gpu/collision/nurbs_queries.h"
#include "sim/nurbs/nurbs_nets.h"
#include "sim/nurbs/nurbs_surface.h"

namespace palpate::bench {

/// Two placed patches that have a point in common, at known parameters.
struct PlantedPair {
  gpu::NurbsQuery query;
  Eigen::Vector2d at_a, at_b;
  bool is_tangential = false;  ///< with parallel normals there: surfaces that touch, or cross at no angle
};

/// Random pairs of small patches for which it is known, in double, where they meet: degrees 1 to 3, half of them rational, sizes from 1 cm
/// to 10 m, turned at random, up to 100 m away. The second patch is turned and shifted so that a random point of it is a random point of
/// the first; in each second pair the normals are parallel there, too. That asks for more than dense sampling, which would come near such
/// points only. The same seed gives the same pairs.
class PlantedPairs {
 public:
  PlantedPairs(size_t patches, uint32_t seed) : random_(seed) {
    for (size_t i = 0; i < patches; ++i) surfaces_.push_back(RandomPatch());
  }
  std::span<const sim::NurbsSurface> surfaces() const { return surfaces_; }
  /// One object a patch.
  std::vector<std::vector<gpu::NurbsNet>> Nets() const {
    std::vector<std::vector<gpu::NurbsNet>> nets;
    for (const sim::NurbsSurface& surface : surfaces_) nets.push_back({sim::NetOf(surface)});
    return nets;
  }

  PlantedPair Next() {
    PlantedPair out;
    out.query.object_a = static_cast<uint32_t>(random_() % surfaces_.size());
    out.query.object_b = static_cast<uint32_t>(random_() % surfaces_.size());
    out.at_a = {Share(), Share()};
    out.at_b = {Share(), Share()};
    const sim::NurbsSurface& a = surfaces_[out.query.object_a];
    const sim::NurbsSurface& b = surfaces_[out.query.object_b];
    Eigen::Affine3d pose_a(Turn());
    pose_a.pretranslate(100 * (2 * Share() - 1) * Eigen::Vector3d(Share(), Share(), Share()));
    Eigen::Matrix3d turn_b(Turn());
    is_tangential_next_ = !is_tangential_next_;
    const auto normal_a = a.Normal(out.at_a.x(), out.at_a.y());
    const auto normal_b = b.Normal(out.at_b.x(), out.at_b.y());
    if (is_tangential_next_ && normal_a && normal_b) {
      out.is_tangential = true;
      const double side = Share() < 0.5 ? 1 : -1;
      turn_b = Eigen::Quaterniond::FromTwoVectors(turn_b * *normal_b, side * (pose_a.linear() * *normal_a)).toRotationMatrix() * turn_b;
    }
    Eigen::Affine3d pose_b = Eigen::Affine3d::Identity();
    pose_b.linear() = turn_b;
    pose_b.translation() = pose_a * a.Point(out.at_a.x(), out.at_a.y()) - turn_b * b.Point(out.at_b.x(), out.at_b.y());
    out.query.pose_a = sim::PoseOf(pose_a);
    out.query.pose_b = sim::PoseOf(pose_b);
    return out;
  }

  /// Whether a hit has the known parameters.
  static bool Holds(const gpu::NurbsHit& hit, const PlantedPair& pair) {
    const auto in = [](const std::array<double, 2>& span, double t) { return t >= span[0] - 1e-12 && t <= span[1] + 1e-12; };
    return in(hit.a.u, pair.at_a.x()) && in(hit.a.v, pair.at_a.y()) && in(hit.b.u, pair.at_b.x()) && in(hit.b.v, pair.at_b.y());
  }
  /// How many of the pairs are in no hit. Hits are sorted by query, as NurbsQueries gives them.
  static size_t CountMissed(std::span<const PlantedPair> pairs, std::span<const gpu::NurbsHit> hits) {
    size_t missed = 0;
    size_t at = 0;
    for (size_t q = 0; q < pairs.size(); ++q) {
      bool is_found = false;
      for (; at < hits.size() && hits[at].query == q; ++at) is_found = is_found || Holds(hits[at], pairs[q]);
      missed += is_found ? 0 : 1;
    }
    return missed;
  }

 private:
  double Share() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  Eigen::Quaterniond Turn() {
    std::normal_distribution<double> normal;
    return Eigen::Quaterniond(normal(random_), normal(random_), normal(random_), normal(random_)).normalized();
  }
  sim::NurbsSurface RandomPatch() {
    sim::NurbsDescription out{.degree_u = static_cast<int>(1 + random_() % 3),
                              .degree_v = static_cast<int>(1 + random_() % 3),
                              .knots_u = {},
                              .knots_v = {},
                              .control_m = {},
                              .weights = {}};
    const auto knots = [](int degree) {
      std::vector<double> k(static_cast<size_t>(degree) + 1, 0.0);
      k.insert(k.end(), static_cast<size_t>(degree) + 1, 1.0);
      return k;
    };
    out.knots_u = knots(out.degree_u);
    out.knots_v = knots(out.degree_v);
    const double size_m = std::pow(10.0, 3 * Share() - 2);
    const bool is_rational = Share() < 0.5;
    for (int i = 0; i <= out.degree_u; ++i) {
      for (int j = 0; j <= out.degree_v; ++j) {
        out.control_m.emplace_back(size_m * (i + 0.3 * Share()), size_m * (j + 0.3 * Share()), 0.7 * size_m * Share());
        out.weights.push_back(is_rational ? std::pow(10.0, Share() - 0.5) : 1.0);
      }
    }
    return *sim::NurbsSurface::Create(out);
  }

  std::mt19937 random_;
  std::vector<sim::NurbsSurface> surfaces_;
  bool is_tangential_next_ = false;
};

}  // namespace palpate::bench
