#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/dynamics/nurbs_shell_model.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/scene/description.h"
#include "sim/scene/nurbs_shell_body.h"

// NURBS bodies for the tests of this folder.
namespace palpate::test {

/// A flat rectangle about the origin with normal +z, of so many control points each way.
inline sim::NurbsObject FlatSheet(size_t count_u, size_t count_v, double length_m, double width_m, int degree = 3) {
  const auto knots = [degree](size_t count) {
    const size_t spans = count - static_cast<size_t>(degree);
    std::vector<double> out(static_cast<size_t>(degree) + 1, 0.0);
    for (size_t i = 1; i < spans; ++i) out.push_back(static_cast<double>(i) / static_cast<double>(spans));
    out.insert(out.end(), static_cast<size_t>(degree) + 1, 1.0);
    return out;
  };
  // Places of control points that make the parameters lengths (Greville).
  const auto places = [degree](const std::vector<double>& of, size_t count) {
    std::vector<double> out;
    for (size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (size_t k = 1; k <= static_cast<size_t>(degree); ++k) sum += of[i + k];
      out.push_back(sum / degree);
    }
    return out;
  };
  sim::NurbsDescription sheet;
  sheet.degree_u = sheet.degree_v = degree;
  sheet.knots_u = knots(count_u);
  sheet.knots_v = knots(count_v);
  for (const double u : places(sheet.knots_u, count_u)) {
    for (const double v : places(sheet.knots_v, count_v)) sheet.control_m.emplace_back((u - 0.5) * length_m, (v - 0.5) * width_m, 0);
  }
  const auto surface = sim::NurbsSurface::Create(sheet);
  EXPECT_TRUE(surface.ok()) << surface.status();
  return *sim::NurbsObject::FromSurfaces("sheet", std::vector{*surface});
}

inline sim::Material ShellMaterial(double young_modulus_pa, double poisson_ratio, double damping_s = 0) {
  sim::Material material;
  material.model = sim::MaterialModel::kStVenantKirchhoff;
  material.young_modulus_pa = young_modulus_pa;
  material.poisson_ratio = poisson_ratio;
  material.density_kg_per_m3 = 1000;
  material.damping_s = damping_s;
  return material;
}

/// A shell about a surface, moved by `place_m`, its control points held where `is_held` says so of their places in W.
inline sim::BodyDescription ShellBody(const std::string& name, const sim::NurbsObject& object, const Eigen::Vector3d& place_m,
                                      const sim::Material& material, double thickness_m,
                                      const std::function<bool(const Eigen::Vector3d&)>& is_held = {}, double tolerance_m = 5e-4,
                                      size_t cells = 3) {
  sim::BodyDescription body;
  body.name = name;
  body.material = material;
  const auto shape = sim::MakeNurbsBodyShape(object, tolerance_m, 0, false, 100'000, cells);
  EXPECT_TRUE(shape.ok()) << shape.status();
  auto model = sim::NurbsShellModelOf(object, material, thickness_m);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!shape.ok() || !model.ok()) return body;
  body.nurbs = *shape;
  body.nurbs_pose.position_m = place_m;
  for (const Eigen::Vector3d& p : body.nurbs->vertices) body.mesh.vertices.emplace_back(p + place_m);
  sim::NurbsShellDescription& shell = body.nurbs_shell.emplace();
  shell.thickness_m = thickness_m;
  auto moved = sim::MovedNurbsShell(*std::move(model), body.nurbs_pose);
  for (uint32_t j = 0; j < moved.control_count() && is_held; ++j) {
    const auto& [x, y, z] = moved.rest_m[j];
    if (is_held({x, y, z})) shell.held.push_back(j);
  }
  shell.model = std::make_shared<const gpu::NurbsShellModel>(std::move(moved));
  return body;
}

/// A rigid or static body with an exact surface.
inline sim::BodyDescription SolidNurbsBody(const std::string& name, const std::vector<sim::NurbsSurface>& surfaces,
                                           const sim::RigidPose& pose, sim::BodyKind kind, double tolerance_m = 5e-4) {
  sim::BodyDescription body;
  body.name = name;
  body.kind = kind;
  body.self_collision = false;
  const auto shape =
      sim::MakeNurbsBodyShape(*sim::NurbsObject::FromSurfaces(name, surfaces), tolerance_m, 0, kind == sim::BodyKind::kRigid, 100'000);
  EXPECT_TRUE(shape.ok()) << shape.status();
  if (!shape.ok()) return body;
  body.nurbs = *shape;
  body.nurbs_pose = pose;
  for (const Eigen::Vector3d& p : body.nurbs->vertices) body.mesh.vertices.push_back(pose.rotation * p + pose.position_m);
  return body;
}

}  // namespace palpate::test
