#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/world/world.h"

// Bodies, tools and steps that the tests of this folder share.
namespace palpate::test {

/// The side of a box whose vertices are fixed.
enum class HeldSide { kNone, kLowX, kLowZ };

/// A box with its axes along W, cut into cells of tets; `vertices` are counted along each axis. Default material.
inline sim::BodyDescription BoxBody(const std::string& name, const Eigen::Vector3d& center_m, const std::array<uint32_t, 3>& vertices,
                                    const Eigen::Vector3d& size_m, HeldSide held = HeldSide::kNone) {
  sim::BodyDescription body;
  body.name = name;
  auto mesh = sim::BoxMesh(vertices, size_m);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  if (!mesh.ok()) return body;
  body.mesh = *std::move(mesh);
  const int axis = held == HeldSide::kLowX ? 0 : 2;
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    Eigen::Vector3d& place_m = body.mesh.vertices[v];
    if (held != HeldSide::kNone && place_m[axis] < -size_m[axis] / 2 + 1e-6) body.fixed_vertices.push_back(v);
    place_m += center_m;
  }
  return body;
}

/// A ridge to take hold of, 12 mm wide in x and 20 mm high, its foot held.
inline sim::BodyDescription Ridge() { return BoxBody("ridge", {0, 0, 0}, {4, 9, 6}, {0.012, 0.04, 0.02}, HeldSide::kLowZ); }

/// A tool as ToolDescription has it, its tip at rest at `tip_m`, pointing down.
inline sim::ToolDescription ToolAt(const std::string& name, const Eigen::Vector3d& tip_m, sim::ToolDrive drive = sim::ToolDrive::kCoupled) {
  sim::ToolDescription tool;
  tool.name = name;
  tool.drive = drive;
  tool.rest_pose.position_m = tip_m;
  return tool;
}

/// One step, with one command for each tool; the frame before it, and a failed test, if it cannot be done.
inline std::shared_ptr<const sim::Frame> Step(sim::World& world, const std::vector<sim::ToolCommand>& commands) {
  std::vector<const sim::ToolCommand*> pointers;
  for (const sim::ToolCommand& command : commands) pointers.push_back(&command);
  const auto frame = world.Step(pointers);
  EXPECT_TRUE(frame.ok()) << frame.status();
  return frame.ok() ? *frame : world.CurrentFrame();
}

}  // namespace palpate::test
