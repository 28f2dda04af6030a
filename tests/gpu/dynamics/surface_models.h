#pragma once

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <set>
#include <utility>
#include <vector>

#include "tests/gpu/dynamics/tissue_models.h"

namespace palpate::gpu {

/// Several bodies in one model, in order; each may meet the others, and itself if `self_collision`.
inline TissueModel SceneOf(const std::vector<TissueModel>& bodies, bool self_collision) {
  TissueModel scene;
  scene.body_triangle_begin.push_back(0);
  for (const TissueModel& body : bodies) {
    const auto base = static_cast<uint32_t>(scene.rest_m.size());
    scene.rest_m.insert(scene.rest_m.end(), body.rest_m.begin(), body.rest_m.end());
    scene.fixed.insert(scene.fixed.end(), body.fixed.begin(), body.fixed.end());
    for (TissueTet tet : body.tets) {
      for (uint32_t& v : tet.vertices) v += base;
      scene.tets.push_back(tet);
    }
    for (std::array<uint32_t, 3> t : body.surface_triangles) {
      for (uint32_t& v : t) v += base;
      scene.surface_triangles.push_back(t);
    }
    scene.body_triangle_begin.push_back(static_cast<uint32_t>(scene.surface_triangles.size()));
    scene.self_collision.push_back(self_collision ? 1 : 0);
  }
  return scene;
}

/// Appends a homogeneous rigid box as a body of its own.
inline void AddRigidBox(TissueModel* scene, const Eigen::Vector3d& size_m, const Eigen::Vector3d& center_m, double mass_kg) {
  TissueModel box = BoxModel({1, 1, 1}, size_m, center_m - size_m / 2, {});
  const auto base = static_cast<uint32_t>(scene->rest_m.size());
  for (const auto& v : box.rest_m) {
    scene->rest_m.push_back(v);
    scene->fixed.push_back(kFixedVertex);
  }
  for (std::array<uint32_t, 3> t : box.surface_triangles) {
    for (uint32_t& v : t) v += base;
    scene->surface_triangles.push_back(t);
  }
  TissueRigidBody rigid;
  rigid.body = static_cast<uint32_t>(scene->body_triangle_begin.size() - 1);
  scene->body_triangle_begin.push_back(static_cast<uint32_t>(scene->surface_triangles.size()));
  scene->self_collision.push_back(0);
  rigid.vertices = {base, static_cast<uint32_t>(scene->rest_m.size())};
  rigid.mass_kg = mass_kg;
  rigid.center_m = {center_m.x(), center_m.y(), center_m.z()};
  const Eigen::Vector3d s = size_m.cwiseProduct(size_m);
  rigid.inertia_kg_m2 = {mass_kg / 12 * (s.y() + s.z()), 0, 0, 0, mass_kg / 12 * (s.x() + s.z()), 0, 0, 0, mass_kg / 12 * (s.x() + s.y())};
  scene->rigid.push_back(rigid);
}

/// A torus around the z axis: `around` segments of a tube whose cross-section is a square of cells x cells cubes, rounded to a disc.
inline TissueModel TorusModel(uint32_t around, uint32_t cells, double radius_m, double tube_m, const Eigen::Vector3d& center_m,
                              const TestMaterial& material) {
  TissueModel model = BoxModel({around, cells, cells}, {1, 1, 1}, {0, 0, 0}, material);
  const auto n = static_cast<uint32_t>(model.rest_m.size());
  std::vector<uint32_t> index(n);
  std::vector<std::array<double, 3>> rest;
  for (uint32_t v = 0; v < n; ++v) {
    const uint32_t i = v % (around + 1);
    if (i == around) {  // the last slice is the first
      index[v] = index[v - around];
      continue;
    }
    const double angle = 2 * std::numbers::pi * i / around;
    const double a = 2 * model.rest_m[v][1] - 1;
    const double b = 2 * model.rest_m[v][2] - 1;
    const double square = std::max(std::abs(a), std::abs(b));
    const double round = square > 0 ? square / std::hypot(a, b) : 0;
    const double r = radius_m - tube_m * a * round;  // the axes are so that the cubes keep their orientation
    index[v] = static_cast<uint32_t>(rest.size());
    rest.push_back({center_m.x() + r * std::cos(angle), center_m.y() + r * std::sin(angle), center_m.z() + tube_m * b * round});
  }
  model.rest_m = rest;
  for (TissueTet& tet : model.tets) {
    for (uint32_t& v : tet.vertices) v = index[v];
    const auto at = [&](int k) { return Eigen::Vector3d(rest[tet.vertices[k]].data()); };
    if ((at(1) - at(0)).cross(at(2) - at(0)).dot(at(3) - at(0)) < 0) std::swap(tet.vertices[2], tet.vertices[3]);
  }
  model.fixed.assign(rest.size(), 0);
  model.surface_triangles = BoundaryOf(model.tets);
  return model;
}

/// Edges that pass through triangles they share no vertex with, by signs of volumes in double. Touching does not count.
inline uint32_t CountIntersections(const std::vector<std::array<uint32_t, 3>>& triangles, const std::vector<Eigen::Vector3d>& x) {
  using Eigen::Vector3d;
  struct Bounds {
    Vector3d lower, upper;
  };
  std::set<std::pair<uint32_t, uint32_t>> edges;
  std::vector<Bounds> boxes;
  for (const auto& t : triangles) {
    for (int k = 0; k < 3; ++k) edges.insert(std::minmax(t[k], t[(k + 1) % 3]));
    boxes.push_back({x[t[0]].cwiseMin(x[t[1]]).cwiseMin(x[t[2]]), x[t[0]].cwiseMax(x[t[1]]).cwiseMax(x[t[2]])});
  }
  // What is flat up to rounding, as faces of a rigid body are, has no side.
  const auto volume = [](const Vector3d& a, const Vector3d& b, const Vector3d& c, const Vector3d& d) {
    const double value = (b - a).cross(c - a).dot(d - a);
    return std::abs(value) > 1e-15 * (b - a).norm() * (c - a).norm() * (d - a).norm() ? value : 0.0;
  };
  uint32_t count = 0;
  for (const auto& [a, b] : edges) {
    const Vector3d lower = x[a].cwiseMin(x[b]);
    const Vector3d upper = x[a].cwiseMax(x[b]);
    for (size_t i = 0; i < triangles.size(); ++i) {
      if ((lower.array() > boxes[i].upper.array()).any() || (upper.array() < boxes[i].lower.array()).any()) continue;
      const auto& t = triangles[i];
      if (a == t[0] || a == t[1] || a == t[2] || b == t[0] || b == t[1] || b == t[2]) continue;
      const double side_a = volume(x[t[0]], x[t[1]], x[t[2]], x[a]);
      const double side_b = volume(x[t[0]], x[t[1]], x[t[2]], x[b]);
      if (!(side_a * side_b < 0)) continue;
      const double s0 = volume(x[a], x[b], x[t[0]], x[t[1]]);
      const double s1 = volume(x[a], x[b], x[t[1]], x[t[2]]);
      const double s2 = volume(x[a], x[b], x[t[2]], x[t[0]]);
      if ((s0 > 0 && s1 > 0 && s2 > 0) || (s0 < 0 && s1 < 0 && s2 < 0)) ++count;
    }
  }
  return count;
}

}  // namespace palpate::gpu
