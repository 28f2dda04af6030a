#include "clients/cli/demo_plan.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/cli/console.h"
#include "clients/cli/scene_file.h"
#include "clients/station/haptic_device.h"
#include "gpu/base/status.h"
#include "gpu/runtime/device.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/scene_spec.h"

namespace palpate::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultTool[] = "probe";
constexpr char kDefaultHand[] = "sim";

/// The specs of recorders and mechanisms end in the spec of what they hold.
constexpr char kInner[] = ",inner=";

absl::Status CheckHand(const std::string& spec) {
  const std::string kind = spec.substr(0, spec.find(':'));
  const size_t inner = spec.find(kInner);
  if (kind == "record" && inner != std::string::npos) {
    // Opening a recorder would empty its file.
    PALPATE_RETURN_IF_ERROR(CheckHand(spec.substr(inner + sizeof(kInner) - 1)));
    return CheckWritable(spec.substr(kind.size() + 1, inner - kind.size() - 1));
  }
  // A plug-in may move motors when it is opened.
  if (kind == "plugin" || spec.find("inner=plugin:") != std::string::npos) return absl::OkStatus();
  return station::MakeDevice(spec).status();
}

absl::Status CheckHttp(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon != std::string::npos && colon > 0 && absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 0 && port <= UINT16_MAX) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat("--http %s: must be ADDRESS:PORT with a port of 0 to 65535", address));
}

absl::StatusOr<std::string> ToolOf(const DemoRequest& request, const std::vector<std::string>& tools) {
  if (tools.empty()) {
    if (request.tool.empty() && request.hand.empty()) return std::string();
    return absl::FailedPreconditionError(absl::StrFormat("%s: the scene has no tool that a hand could hold; leave out %s", request.scene,
                                                         request.tool.empty() ? "--hand" : "--tool"));
  }
  const std::string wanted = request.tool.empty() ? kDefaultTool : request.tool;
  if (std::find(tools.begin(), tools.end(), wanted) != tools.end()) return wanted;
  if (request.tool.empty()) return tools.front();
  return absl::NotFoundError(
      absl::StrFormat("--tool %s: %s has no such tool; it has %s", wanted, request.scene, absl::StrJoin(tools, ", ")));
}

}  // namespace

absl::StatusOr<DemoPlan> PlanDemo(const DemoRequest& request) {
  if (!request.http.empty()) PALPATE_RETURN_IF_ERROR(CheckHttp(request.http));
  if (!request.report.empty()) PALPATE_RETURN_IF_ERROR(CheckWritable(request.report));
  std::error_code error;
  if (!request.web_root.empty() && !fs::is_directory(request.web_root, error)) {
    return absl::NotFoundError(absl::StrFormat("--web-root %s: no such folder", request.web_root));
  }
  PALPATE_ASSIGN_OR_RETURN(const v1::SceneSpec spec, ReadSceneFile(request.scene));
  std::vector<std::string> tools;
  for (const auto& tool : spec.tools()) tools.push_back(tool.name());
  DemoPlan plan;
  plan.waits_for_viewer = spec.start() == v1::START_WHEN_WATCHED;
  PALPATE_ASSIGN_OR_RETURN(plan.tool, ToolOf(request, tools));
  plan.hand = request.hand.empty() ? kDefaultHand : request.hand;
  if (!plan.tool.empty()) {
    if (const absl::Status hand = CheckHand(plan.hand); !hand.ok()) return Annotate(hand, absl::StrFormat("--hand %s", plan.hand));
  }
  if (const absl::Status device = gpu::SelectDevice(request.device).status(); !device.ok()) return Annotate(device, "--device");
  // Last, since it makes the meshes.
  const scene::SceneFolderResolver assets(fs::path(request.scene).parent_path());
  const auto scene = scene::BuildSceneDescription(spec, assets, scene::SceneLimits());
  if (!scene.ok()) return Annotate(scene.status(), request.scene);
  return plan;
}

}  // namespace palpate::cli
