#include <chrono>
#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cpp/scene_client.h"
#include "gpu/base/status.h"
#include "gpu/runtime/device.h"

namespace palpate::cli {
namespace {

absl::Status ListOpenClDevices(bool json) {
  PALPATE_ASSIGN_OR_RETURN(const std::vector<gpu::DeviceInfo> devices, gpu::ListDevices());
  if (json) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& device : devices) {
      list.push_back({{"index", device.index},
                      {"type", device.is_gpu   ? "gpu"
                               : device.is_cpu ? "cpu"
                                               : "other"},
                      {"name", device.name},
                      {"vendor", device.vendor},
                      {"platform", device.platform_name},
                      {"platform_version", device.platform_version},
                      {"version", device.version},
                      {"driver_version", device.driver_version},
                      {"compute_units", device.compute_units},
                      {"global_memory_bytes", device.global_memory_bytes},
                      {"max_allocation_bytes", device.max_allocation_bytes},
                      {"local_memory_bytes", device.local_memory_bytes},
                      {"max_work_group_size", device.max_work_group_size},
                      {"fp64", device.has_fp64}});
    }
    absl::PrintF("%s\n", nlohmann::ordered_json{{"devices", list}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    Table table({"index", "type", "units", "memory", "device"});
    for (const auto& device : devices) {
      table.AddRow({absl::StrCat(device.index),
                    device.is_gpu   ? "gpu"
                    : device.is_cpu ? "cpu"
                                    : "other",
                    absl::StrCat(device.compute_units), FormatBytes(device.global_memory_bytes), gpu::DescribeDevice(device)});
    }
    absl::PrintF("%s", table.ToString());
  }
  if (devices.empty()) {
    return absl::NotFoundError("this machine has no OpenCL device; install a driver, for instance the package pocl-opencl-icd for the CPU");
  }
  return absl::OkStatus();
}

absl::Status ShowServer(const Session& session) {
  PALPATE_ASSIGN_OR_RETURN(const client::Connection connection, Connect(session));
  PALPATE_ASSIGN_OR_RETURN(const v1::GetServerInfoResponse info, client::SceneClient(connection).ServerInfo());
  if (session.json) {
    PrintJson(info);
    return absl::OkStatus();
  }
  const auto& limits = info.limits();
  absl::PrintF("version  %s (%s)\n", info.version(), info.commit());
  absl::PrintF("device   %s, driver %s\n", info.device(), info.driver_version());
  absl::PrintF("scenes   %d of %d\n", info.scene_count(), limits.max_scenes());
  absl::PrintF("limits   %d bodies and %d tets a scene, %s a message, %d streams\n", limits.max_bodies_per_scene(),
               limits.max_tets_per_scene(), FormatBytes(limits.max_message_bytes()), limits.max_streams());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<client::Connection> Connect(const Session& session) {
  PALPATE_ASSIGN_OR_RETURN(client::Connection connection, client::Connection::Open(session.server));
  const absl::Status ready = connection.WaitUntilReady(std::chrono::milliseconds(std::lround(1000 * session.timeout_s)));
  if (ready.ok()) return connection;
  return absl::Status(ready.code(), absl::StrCat(ready.message(), session.server.tls_ca_file.empty() ? " (without TLS)" : " (with TLS)",
                                                 "; start one with palpate-server, or name its address with --server or PALPATE_SERVER"));
}

void AddInfoCommands(CLI::App& app, Session& session) {
  auto* devices = app.add_subcommand("devices", "OpenCL devices of this machine, as --device of the server names them");
  devices->callback([&session] { session.action = [&session] { return ListOpenClDevices(session.json); }; });
  auto* info = app.add_subcommand("server-info", "version, device and limits of the server");
  info->callback([&session] { session.action = [&session] { return ShowServer(session); }; });
}

}  // namespace palpate::cli
