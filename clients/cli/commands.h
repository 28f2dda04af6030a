#pragma once

#include <functional>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "absl/status/status.h"
#include "clients/cli/server_connection.h"

namespace palpate::cli {

/// What the command line says, shared by every command. A command's callback only sets `action`; main runs it after the whole line has been
/// parsed.
struct Session {
  ServerAddress server;
  bool json = false;
  std::function<absl::Status()> action;
};

/// Each adds its commands to `app`. `session` must outlive the parse and the action.
void AddSceneCommands(CLI::App& app, Session& session);
void AddWatchCommand(CLI::App& app, Session& session);
void AddExportCommand(CLI::App& app, Session& session);
void AddMeshCommands(CLI::App& app, Session& session);
void AddInfoCommands(CLI::App& app, Session& session);
void AddDemoCommand(CLI::App& app, Session& session);

}  // namespace palpate::cli
