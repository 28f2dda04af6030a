// palpate: the command line client. The work is in the *_command(s).cc files; here the line is parsed and a status becomes an exit status.
#include <string>

#include <CLI/CLI.hpp>

#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cli/exit_code.h"
#include "clients/cpp/command_line.h"

namespace {

constexpr char kFooter[] =
    "Exit status: 0 done; 1 failed: bad input, or the server refused; 2 wrong usage (verify, job: or an unusable file); 3 no server "
    "answers; 4 a job was "
    "interrupted, and the same command goes on.\n"
    "Every length is in metres, every force in newtons. `palpate COMMAND --help` explains a command.";

/// The first word that is neither an option nor a command, if any.
std::string UnknownCommand(const CLI::App& app) {
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    if (!word.empty() && word[0] != '-') return word;
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace palpate::cli;
  CLI::App app("Palpate: deformable organs on a server, felt and seen over the network.", "palpate");
  app.footer(kFooter);
  app.set_version_flag("--version", "palpate " PALPATE_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // the options below may also stand after the command
  Session session;
  app.add_option("--server", session.server.target, "address of the server, HOST:PORT")->envname("PALPATE_SERVER")->capture_default_str();
  app.add_option("--tls-ca", session.server.tls_ca_file,
                 "PEM file of the certificates to trust; without it the connection is not encrypted")
      ->check(CLI::ExistingFile);
  app.add_option("--token-file", session.server.token_file, "file with the bearer token that the server wants")
      ->envname("PALPATE_TOKEN_FILE")
      ->check(CLI::ExistingFile);
  app.add_option("--timeout", session.timeout_s, "seconds to wait for the server to answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--json", session.json, "results as JSON on standard output, errors as JSON on standard error");
  AddSceneCommands(app, session);
  AddWatchCommand(app, session);
  AddEditCommand(app, session);
  AddExportCommand(app, session);
  AddMeshCommands(app, session);
  AddNurbsCommands(app, session);
  AddInfoCommands(app, session);
  AddJobCommands(app, session);
  AddDemoCommand(app, session);
  AddVerifyCommands(app, session);
  AddRecordCommand(app, session);
  AddReplayCommand(app, session);
  AddPastCommands(app, session);
  palpate::client::RefuseNan(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // CLI11 asks for a command before it looks at what stands in its place.
    if (const std::string word = UnknownCommand(app); !word.empty()) {
      PrintError(absl::InvalidArgumentError("no command '" + word + "'; see --help"), session.json);
      return kExitUsage;
    }
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const absl::Status status = session.action();
  if (!status.ok()) PrintError(status, session.json);
  return ToExitCode(status, session.failure);
}
