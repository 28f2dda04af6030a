#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "clients/cli/commands.h"
#include "clients/cli/verify_queries.h"
#include "gpu/base/status.h"
#include "gpu/collision/ccd_queries.h"
#include "gpu/runtime/context.h"
#include "gpu/runtime/queue.h"

namespace palpate::cli {
namespace {

struct DeviceOptions {
  std::string device;
  gpu::CcdOptions ccd;
  bool use_float = false;
};

void AddDeviceOptions(CLI::App& command, DeviceOptions& options) {
  command.add_option("--device", options.device, "OpenCL device: auto, gpu, cpu, an index or a part of the name")->default_str("auto");
  command.add_option("--separation", options.ccd.separation_m, "distance that counts as contact [m]")
      ->check(CLI::Range(0.0, 1e30))
      ->capture_default_str();
  command.add_option("--tolerance", options.ccd.tolerance, "share of the step by which a time of impact may be early")
      ->check(CLI::Range(1e-7, 0.1))
      ->capture_default_str();
  command.add_flag("--float", options.use_float, "compute in float, as on a device without double");
}

struct Device {
  std::shared_ptr<gpu::Context> context;
  std::unique_ptr<gpu::Queue> queue;
};

absl::StatusOr<Device> Open(DeviceOptions& options) {
  options.ccd.use_double = !options.use_float;
  Device device;
  PALPATE_ASSIGN_OR_RETURN(device.context, gpu::Context::Create({.device = options.device}));
  PALPATE_ASSIGN_OR_RETURN(device.queue, gpu::Queue::Create(device.context));
  return device;
}

struct QueryOptions {
  std::vector<std::string> files;
  std::vector<std::string> truth_files;
  std::string kind;
  DeviceOptions device;
};

absl::Status RunQueries(Session& session, QueryOptions& options) {
  session.failure = kExitUsage;
  if (!options.truth_files.empty() && options.truth_files.size() != options.files.size()) {
    return absl::InvalidArgumentError(absl::StrFormat("%d files and %d --truth; each file needs its own, in the same order",
                                                      options.files.size(), options.truth_files.size()));
  }
  PALPATE_ASSIGN_OR_RETURN(const Device device, Open(options.device));
  PALPATE_ASSIGN_OR_RETURN(gpu::CcdQueries detector, gpu::CcdQueries::Create(device.context, options.device.ccd));
  uint64_t missed = 0;
  for (size_t i = 0; i < options.files.size(); ++i) {
    const std::string& file = options.files[i];
    std::optional<uint32_t> kind = QueryKindOf(file);
    if (!options.kind.empty()) kind = options.kind == "vf" ? PALPATE_VERTEX_TRIANGLE : PALPATE_EDGE_EDGE;
    if (!kind) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": the name tells neither vertex-face nor edge-edge; say --kind vf or --kind ee"));
    }
    std::optional<std::string> truth;
    if (!options.truth_files.empty()) truth = options.truth_files[i];
    PALPATE_ASSIGN_OR_RETURN(const QueryVerdict verdict, VerifyQueries(*device.queue, detector, file, *kind, truth));
    missed += verdict.missed;
    if (session.json) {
      const nlohmann::ordered_json row = {{"file", file},
                                          {"queries", verdict.queries},
                                          {"colliding", verdict.colliding},
                                          {"missed", verdict.missed},
                                          {"false", verdict.false_reports},
                                          {"inexact", verdict.inexact},
                                          {"mean_us", verdict.mean_us}};
      absl::PrintF("%s\n", row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      absl::PrintF("%s: queries=%d missed=%d false=%d colliding=%d inexact=%d mean_us=%.2f\n", file, verdict.queries, verdict.missed,
                   verdict.false_reports, verdict.colliding, verdict.inexact, verdict.mean_us);
    }
  }
  session.failure = kExitFailed;
  if (missed > 0) return absl::InternalError(absl::StrFormat("%d colliding queries were missed", missed));
  return absl::OkStatus();
}

void AddQueries(CLI::App& verify, Session& session) {
  auto options = std::make_shared<QueryOptions>();
  auto* command = verify.add_subcommand("ccd-queries", "continuous collision detection of single queries against their exact answers");
  command->add_option("FILE", options->files, "CSV of exact ratios, 8 rows a query, 6 or 7 columns")->required();
  command->add_option("--truth", options->truth_files, "JSON array of true and false for a file of 6 columns; one for each FILE, in order");
  command->add_option("--kind", options->kind, "what the queries are, where the file's name does not tell")
      ->check(CLI::IsMember({"vf", "ee"}));
  AddDeviceOptions(*command, options->device);
  command->callback([&session, options] { session.action = [&session, options] { return RunQueries(session, *options); }; });
}

}  // namespace

void AddVerifyCommands(CLI::App& app, Session& session) {
  auto* verify =
      app.add_subcommand("verify", "check the collision detection against known answers; exit status 1 if a collision is missed");
  verify->require_subcommand(1);
  AddQueries(*verify, session);
}

}  // namespace palpate::cli
