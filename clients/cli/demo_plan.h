#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace palpate::cli {

/// What the line says about a demo, as far as it can be wrong.
struct DemoRequest {
  std::string scene;     ///< file
  std::string web_root;  ///< folder, empty: none
  std::string device;    ///< OpenCL device, empty: auto
  std::string http;      ///< address, empty: default
  std::string tool;      ///< empty: "probe" or else the scene's first
  std::string hand;      ///< the station's device, empty: the simulated hand
  std::string report;    ///< file, empty: none
};

struct DemoPlan {
  std::string tool;  ///< that the hand holds; empty: the scene has none, nobody does
  std::string hand;
  bool waits_for_viewer = false;  ///< the scene begins to move when somebody looks (START_WHEN_WATCHED)
};

/// Looks at everything that can be wrong with a demo before a process is started: the scene as the server builds it, the tool, the device
/// of the hand, the OpenCL device, the viewer's files, the place of the report. A vendor's plug-in is not opened: only its station holds
/// it. Errors: NotFound (file, tool; names those there are), InvalidArgument, FailedPrecondition (a tool or hand asked for where there is
/// no tool), those of BuildSceneDescription, MakeDevice and SelectDevice.
absl::StatusOr<DemoPlan> PlanDemo(const DemoRequest& request);

}  // namespace palpate::cli
