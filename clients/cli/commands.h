#pragma once

#include <functional>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clients/cli/exit_code.h"
#include "clients/cpp/connection.h"

namespace palpate::cli {

/// What the command line says, shared by every command. A command's callback only sets `action`; main runs it after the whole line has been
/// parsed.
struct Session {
  client::ConnectionOptions server;
  double timeout_s = 5;  ///< to reach the server; > 0
  bool json = false;
  std::function<absl::Status()> action;
  ExitCode failure = kExitFailed;  ///< exit status of an action that fails, set by the action; an unreachable server has its own
};

/// A connection to the server, which has answered. Errors: Unavailable (nobody answers in time), those of Connection::Open.
absl::StatusOr<client::Connection> Connect(const Session& session);

/// Each adds its commands to `app`. `session` must outlive the parse and the action.
void AddSceneCommands(CLI::App& app, Session& session);
void AddWatchCommand(CLI::App& app, Session& session);
void AddEditCommand(CLI::App& app, Session& session);
void AddExportCommand(CLI::App& app, Session& session);
void AddMeshCommands(CLI::App& app, Session& session);
void AddNurbsCommands(CLI::App& app, Session& session);
void AddInfoCommands(CLI::App& app, Session& session);
void AddJobCommands(CLI::App& app, Session& session);
void AddDemoCommand(CLI::App& app, Session& session);
void AddVerifyCommands(CLI::App& app, Session& session);
void AddRecordCommand(CLI::App& app, Session& session);
void AddReplayCommand(CLI::App& app, Session& session);
void AddPastCommands(CLI::App& app, Session& session);
/// To the commands of `palpate job`.
void AddJobSubmitCommand(CLI::App& jobs, Session& session);

}  // namespace palpate::cli
