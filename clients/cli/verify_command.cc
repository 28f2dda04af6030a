#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cli/own_server.h"
#include "clients/cli/verify_mesh_pair.h"
#include "clients/cli/verify_queries.h"
#include "clients/cli/verify_tissue.h"
#include "clients/cpp/scene_client.h"
#include "gpu/base/status.h"
#include "gpu/collision/ccd_queries.h"
#include "gpu/runtime/context.h"
#include "gpu/runtime/queue.h"

namespace palpate::cli {
namespace {

// Thousands of sweeps in one call, on a machine that may be busy.
constexpr std::chrono::minutes kTissueCallLimit{10};

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

struct MeshPairOptions {
  MeshPairFiles files;
  std::string boxes[2], truth[2];
  DeviceOptions device;
};

constexpr const char* kKindNames[2] = {"vf", "ee"};

absl::Status RunMeshPair(Session& session, MeshPairOptions& options) {
  session.failure = kExitUsage;
  for (size_t kind = 0; kind < 2; ++kind) {
    if (!options.boxes[kind].empty()) options.files.boxes[kind] = options.boxes[kind];
    if (!options.truth[kind].empty()) options.files.truth[kind] = options.truth[kind];
  }
  PALPATE_ASSIGN_OR_RETURN(const Device device, Open(options.device));
  gpu::CcdDetectorOptions detector;
  static_cast<gpu::CcdOptions&>(detector) = options.device.ccd;
  PALPATE_ASSIGN_OR_RETURN(const MeshPairVerdict verdict, VerifyMeshPair(*device.queue, detector, options.files));
  const gpu::CcdStatistics& s = verdict.statistics;
  const double total_ms = 1e3 * (s.build_seconds + s.find_seconds + s.decide_seconds);
  nlohmann::ordered_json row = {
      {"vertices", verdict.vertices}, {"edges", verdict.edges}, {"faces", verdict.faces}, {"double", verdict.is_double}};
  for (size_t kind = 0; kind < 2; ++kind) {
    nlohmann::ordered_json& part = row[kKindNames[kind]];
    part = {{"candidates", s.candidates[kind]}, {"undecided", s.pairs[kind]}, {"hits", s.hits[kind]}};
    if (options.files.boxes[kind]) {
      part["required"] = verdict.required[kind];
      part["missing"] = verdict.missing[kind];
    }
    if (options.files.truth[kind]) {
      part["colliding"] = verdict.colliding[kind];
      part["missed"] = verdict.missed[kind];
      part["false"] = verdict.false_hits[kind];
    }
  }
  row["earliest_toi"] = s.earliest_toi;
  row["build_ms"] = 1e3 * s.build_seconds;
  row["find_ms"] = 1e3 * s.find_seconds;
  row["decide_ms"] = 1e3 * s.decide_seconds;
  row["total_ms"] = total_ms;
  if (session.json) {
    absl::PrintF("%s\n", row.dump());
  } else {
    absl::PrintF("mesh: vertices=%d edges=%d faces=%d coordinates=%s\n", verdict.vertices, verdict.edges, verdict.faces,
                 verdict.is_double ? "double" : "float");
    for (const char* kind : kKindNames) {
      absl::PrintF("%s:", kind);
      for (const auto& [name, count] : row[kind].items()) absl::PrintF(" %s=%d", name, count.get<uint64_t>());
      absl::PrintF("\n");
    }
    absl::PrintF("earliest_toi=%.7g\n", s.earliest_toi);
    absl::PrintF("time: build_ms=%.2f find_ms=%.2f decide_ms=%.2f total_ms=%.2f\n", 1e3 * s.build_seconds, 1e3 * s.find_seconds,
                 1e3 * s.decide_seconds, total_ms);
  }
  session.failure = kExitFailed;
  const uint64_t missing = verdict.missing[0] + verdict.missing[1];
  const uint64_t missed = verdict.missed[0] + verdict.missed[1];
  if (missing + missed > 0) {
    return absl::InternalError(absl::StrFormat("%d required candidates and %d colliding pairs were missed", missing, missed));
  }
  return absl::OkStatus();
}

void AddMeshPair(CLI::App& verify, Session& session) {
  auto options = std::make_shared<MeshPairOptions>();
  auto* command = verify.add_subcommand("mesh-pair", "continuous collision detection of a mesh between two frames, against known pairs");
  command->add_option("FRAME0", options->files.frames[0], "PLY at the start of the step")->required();
  command->add_option("FRAME1", options->files.frames[1], "PLY at its end")->required();
  command->add_option("--vf", options->boxes[0], "JSON list of pairs (vertex, face) that must be candidates");
  command->add_option("--ee", options->boxes[1], "JSON list of pairs of edges that must be candidates");
  command->add_option("--vf-truth", options->truth[0], "JSON list: which pairs of --vf collide");
  command->add_option("--ee-truth", options->truth[1], "JSON list: which pairs of --ee collide");
  AddDeviceOptions(*command, options->device);
  command->callback([&session, options] { session.action = [&session, options] { return RunMeshPair(session, *options); }; });
}

struct TissueOptions {
  std::string report;
  std::string device;
  bool use_running = false;
};

absl::Status RunTissue(Session& session, const TissueOptions& options) {
  session.failure = kExitUsage;
  // Minutes of measuring are not spent on a report that cannot be kept.
  if (!options.report.empty()) PALPATE_RETURN_IF_ERROR(CheckWritable(options.report));
  std::optional<OwnServer> own;
  if (!options.use_running) {
    absl::FPrintF(stderr, "server: starting; the first start on a machine compiles the OpenCL kernels\n");
    absl::StatusOr<OwnServer> started = OwnServer::Start({.device = options.device});
    if (!started.ok()) return started.status();
    own.emplace(*std::move(started));
  }
  PALPATE_ASSIGN_OR_RETURN(const client::Connection connection,
                           own ? absl::StatusOr<client::Connection>(own->connection()) : Connect(session));
  session.failure = kExitFailed;
  client::SceneClient server(connection, kTissueCallLimit);
  PALPATE_ASSIGN_OR_RETURN(const v1::GetServerInfoResponse info, server.ServerInfo());
  const auto row_of = [](const TissueCheck& check) {
    return nlohmann::ordered_json{{"id", check.id},      {"what", check.what},     {"expected", check.expected},
                                  {"got", check.got},    {"error", check.error()}, {"tolerance", check.tolerance},
                                  {"pass", check.pass()}};
  };
  PALPATE_ASSIGN_OR_RETURN(const std::vector<TissueCheck> checks, VerifyTissue(connection, server, [&](const TissueCheck& check) {
                             if (session.json) {
                               absl::PrintF("%s\n", row_of(check).dump());
                             } else {
                               absl::PrintF("%-4s %-4s expected %11.6g got %11.6g error %8.2g of %8.2g  %s\n", check.pass() ? "ok" : "FAIL",
                                            check.id, check.expected, check.got, check.error(), check.tolerance, check.what);
                             }
                             std::fflush(stdout);
                           }));
  const auto failed = static_cast<size_t>(std::count_if(checks.begin(), checks.end(), [](const TissueCheck& c) { return !c.pass(); }));
  if (!options.report.empty()) {
    nlohmann::ordered_json report = {{"version", info.version()}, {"commit", info.commit()}, {"device", info.device()}};
    report["passed"] = checks.size() - failed;
    report["failed"] = failed;
    for (const TissueCheck& check : checks) report["checks"].push_back(row_of(check));
    PALPATE_RETURN_IF_ERROR(WriteFile(options.report, report.dump(2) + "\n"));
  }
  if (!session.json) absl::PrintF("%d of %d checks passed\n", checks.size() - failed, checks.size());
  if (failed > 0) return absl::InternalError(absl::StrFormat("%d of %d checks failed", failed, checks.size()));
  return absl::OkStatus();
}

void AddTissue(CLI::App& verify, Session& session) {
  auto options = std::make_shared<TissueOptions>();
  auto* command =
      verify.add_subcommand("tissue", "elasticity and dynamics of tissue against theory, through the public API of a server of its own");
  command->add_option("--report", options->report, "write a JSON report: expected, got, error and tolerance of each check");
  command->add_option("--device", options->device, "OpenCL device of the server: auto, gpu, cpu, an index or a part of the name");
  command->add_flag("--running", options->use_running, "use the server that --server names instead of starting one")->excludes("--device");
  command->callback([&session, options] { session.action = [&session, options] { return RunTissue(session, *options); }; });
}

}  // namespace

void AddVerifyCommands(CLI::App& app, Session& session) {
  auto* verify = app.add_subcommand("verify", "check collision detection and tissue against known answers; exit status 1 if one is missed");
  verify->require_subcommand(1);
  AddQueries(*verify, session);
  AddMeshPair(*verify, session);
  AddTissue(*verify, session);
}

}  // namespace palpate::cli
