#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cli/scene_check.h"
#include "clients/cli/scene_file.h"
#include "clients/cli/scene_from_mesh.h"
#include "clients/cpp/scene_client.h"
#include "gpu/base/status.h"

namespace palpate::cli {
namespace {

using client::SceneClient;

// Building a scene or making many steps may take long; Ctrl-C ends the wait.
constexpr std::chrono::milliseconds kNoLimit{0};

std::string StateName(v1::RunState state) {
  switch (state) {
    case v1::RUN_STATE_PAUSED:
      return "paused";
    case v1::RUN_STATE_PLAYING:
      return "playing";
    case v1::RUN_STATE_FAILED:
      return "failed";
    default:
      return "unknown";
  }
}

std::string RateName(const v1::Rate& rate) {
  if (rate.mode() == v1::RATE_MODE_AS_FAST_AS_POSSIBLE) return "as fast as possible";
  return absl::StrFormat("real time x %g", rate.has_speed() ? rate.speed() : 1.0);
}

/// One line of what a scene is doing.
void PrintState(const v1::SceneInfo& scene, bool json) {
  if (json) {
    PrintJson(scene);
    return;
  }
  absl::PrintF("%s: %s, step %d, %.3f s%s\n", scene.scene_id(), StateName(scene.state()), scene.step(), scene.sim_time_s(),
               scene.failure().empty() ? "" : ", failure: " + scene.failure());
}

void PrintScene(const v1::SceneInfo& scene) {
  absl::PrintF("scene      %s \"%s\"\n", scene.scene_id(), scene.name());
  absl::PrintF("state      %s%s\n", StateName(scene.state()), scene.failure().empty() ? "" : ": " + scene.failure());
  absl::PrintF("time       step %d of %g s, %.3f s simulated, state hash %016x\n", scene.step(), scene.dt_s(), scene.sim_time_s(),
               scene.state_hash());
  absl::PrintF("rate       %s, %.1f steps/s, %d overruns\n", RateName(scene.rate()), scene.steps_per_s(), scene.overruns());
  absl::PrintF("watchers   %d\n", scene.watchers());
  absl::PrintF("tools      %s\n", absl::StrJoin(scene.tools(), ", "));
  absl::PrintF("operated   %s\n", absl::StrJoin(scene.operated_tools(), ", "));
  absl::PrintF("memory     %s on the device\n\n%s", FormatBytes(scene.device_bytes()), BodyTable(scene.bodies()).ToString());
}

absl::StatusOr<SceneClient> ConnectToScenes(const Session& session) {
  PALPATE_ASSIGN_OR_RETURN(client::Connection connection, Connect(session));
  return SceneClient(std::move(connection), kNoLimit);
}

CLI::App* AddSceneCommand(CLI::App& scene, const char* name, const char* what, const std::shared_ptr<std::string>& id) {
  auto* command = scene.add_subcommand(name, what);
  command->add_option("ID", *id, "scene id, see `palpate scene list`")->required();
  return command;
}

/// As the others are told of who reset their scene.
std::string ClientName() {
  std::array<char, 40> host{};
  gethostname(host.data(), host.size() - 1);
  return absl::StrCat("palpate on ", host.data());
}

/// A command that changes the state of one scene and prints it.
template <typename Change>
void AddStateCommand(CLI::App& scene, Session& session, const char* name, const char* what, Change change) {
  auto id = std::make_shared<std::string>();
  AddSceneCommand(scene, name, what, id)->callback([&session, id, change] {
    session.action = [&session, id, change]() -> absl::Status {
      PALPATE_ASSIGN_OR_RETURN(SceneClient client, ConnectToScenes(session));
      PALPATE_ASSIGN_OR_RETURN(const v1::SceneInfo info, change(client, *id));
      PrintState(info, session.json);
      return absl::OkStatus();
    };
  });
}

struct RateOptions {
  bool fast = false;
  double speed = 1;
};

void AddRateOptions(CLI::App& command, RateOptions& rate) {
  auto* fast = command.add_flag("--fast", rate.fast, "as fast as possible instead of in real time");
  command.add_option("--speed", rate.speed, "simulated seconds per second")
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str()
      ->excludes(fast);
}

v1::Rate ToProto(const RateOptions& options) {
  v1::Rate rate;
  rate.set_mode(options.fast ? v1::RATE_MODE_AS_FAST_AS_POSSIBLE : v1::RATE_MODE_REAL_TIME);
  if (!options.fast) rate.set_speed(options.speed);
  return rate;
}

void AddCheck(CLI::App& scene, Session& session) {
  auto path = std::make_shared<std::string>();
  auto* command = scene.add_subcommand("check", "check a scene file and print what it would build; needs no server");
  command->add_option("FILE", *path, "scene file: the JSON form of palpate.v1.SceneSpec")->required();
  command->callback([&session, path] { session.action = [&session, path] { return CheckScene(*path, session.json); }; });
}

void AddFromMesh(CLI::App& scene, Session& session) {
  auto options = std::make_shared<FromMeshOptions>();
  auto* command = scene.add_subcommand("from-mesh", "make a scene of one organ: its lowest part fixed, a probe above it; needs no server");
  command
      ->add_option("FILE", options->input,
                   "closed surface (.obj .stl .ply, .vtk polydata), filled with tetrahedra, or a tetrahedral mesh (.msh .vtk .node .ele)")
      ->required();
  command->add_option("-o,--output", options->output,
                      "scene file to write; default: FILE's name with .json, here. Its mesh lies beside it");
  command
      ->add_option("--scale", options->scale,
                   "metres per unit of the file, for example 0.001 for millimetres; default: 1, or what gives an organ's size")
      ->check(CLI::Range(1e-9, 1e9));
  command->add_option("--tets", options->tets, "about how many tetrahedra to fill a surface with")
      ->check(CLI::Range(100.0, 1e6))
      ->capture_default_str();
  command->add_option("--young-modulus", options->young_modulus_pa, "stiffness of the tissue [Pa]")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--allow-self-intersections", options->max_self_intersections,
                   "fill a surface of which so many pairs of triangles meet; what overlaps becomes one solid")
      ->capture_default_str();
  command->add_flag("--flip-inverted", options->read.flip_inverted, "turn tets of negative volume round instead of refusing the file");
  command->add_flag("--drop-unused", options->read.drop_unused_vertices, "leave out vertices that no tet uses");
  command->callback([&session, options] { session.action = [&session, options] { return MakeSceneFromMesh(*options, session.json); }; });
}

void AddCreate(CLI::App& scene, Session& session) {
  struct Options {
    std::string path;
    std::string id;
    bool play = false;
    RateOptions rate;
  };
  auto options = std::make_shared<Options>();
  auto* command = scene.add_subcommand("create", "build a scene file on the server; mesh files are sent along");
  command->add_option("FILE", options->path, "scene file: the JSON form of palpate.v1.SceneSpec")->required();
  command->add_option("--id", options->id, "id of the scene, a-z 0-9 and -; default: the server picks one");
  command->add_flag("--play", options->play, "begin to play at once");
  AddRateOptions(*command, options->rate);
  command->callback([&session, options] {
    session.action = [&session, options]() -> absl::Status {
      v1::CreateSceneRequest request;
      PALPATE_ASSIGN_OR_RETURN(*request.mutable_spec(), ReadSceneFile(options->path));
      PALPATE_RETURN_IF_ERROR(
          Annotate(InlineMeshFiles(std::filesystem::path(options->path).parent_path(), *request.mutable_spec()), options->path));
      request.set_scene_id(options->id);
      request.set_play(options->play);
      *request.mutable_rate() = ToProto(options->rate);
      PALPATE_ASSIGN_OR_RETURN(SceneClient client, ConnectToScenes(session));
      PALPATE_ASSIGN_OR_RETURN(const v1::SceneInfo info, client.Create(request));
      PrintState(info, session.json);
      return absl::OkStatus();
    };
  });
}

absl::Status ListScenes(const Session& session) {
  PALPATE_ASSIGN_OR_RETURN(SceneClient client, ConnectToScenes(session));
  PALPATE_ASSIGN_OR_RETURN(const std::vector<v1::SceneInfo> scenes, client.List());
  if (session.json) {
    v1::ListScenesResponse response;
    response.mutable_scenes()->Add(scenes.begin(), scenes.end());
    PrintJson(response);
    return absl::OkStatus();
  }
  Table table({"scene", "state", "step", "time", "steps/s", "overruns", "bodies", "tools", "watchers", "memory"});
  for (const auto& scene : scenes) {
    table.AddRow({scene.scene_id(), StateName(scene.state()), absl::StrCat(scene.step()), absl::StrFormat("%.2f s", scene.sim_time_s()),
                  absl::StrFormat("%.1f", scene.steps_per_s()), absl::StrCat(scene.overruns()), absl::StrCat(scene.bodies_size()),
                  absl::StrCat(scene.tools_size()), absl::StrCat(scene.watchers()), FormatBytes(scene.device_bytes())});
  }
  absl::PrintF("%s", table.ToString());
  return absl::OkStatus();
}

void AddShow(CLI::App& scene, Session& session) {
  auto id = std::make_shared<std::string>();
  AddSceneCommand(scene, "show", "everything about one scene", id)->callback([&session, id] {
    session.action = [&session, id]() -> absl::Status {
      PALPATE_ASSIGN_OR_RETURN(SceneClient client, ConnectToScenes(session));
      PALPATE_ASSIGN_OR_RETURN(const v1::GetSceneResponse response, client.Get(*id));
      if (session.json) {
        PrintJson(response);
      } else {
        PrintScene(response.scene());
      }
      return absl::OkStatus();
    };
  });
}

void AddDelete(CLI::App& scene, Session& session) {
  auto id = std::make_shared<std::string>();
  AddSceneCommand(scene, "delete", "end a scene and its streams", id)->callback([&session, id] {
    session.action = [&session, id]() -> absl::Status {
      PALPATE_ASSIGN_OR_RETURN(SceneClient client, ConnectToScenes(session));
      PALPATE_RETURN_IF_ERROR(client.Delete(*id));
      if (session.json) {
        PrintJson(v1::DeleteSceneResponse());
      } else {
        absl::PrintF("%s: deleted\n", *id);
      }
      return absl::OkStatus();
    };
  });
}

void AddStep(CLI::App& scene, Session& session) {
  auto id = std::make_shared<std::string>();
  auto count = std::make_shared<uint32_t>(1);
  auto* command = AddSceneCommand(scene, "step", "advance a paused scene", id);
  command->add_option("COUNT", *count, "steps, 1 to 100000")->check(CLI::Range(1, 100000))->capture_default_str();
  command->callback([&session, id, count] {
    session.action = [&session, id, count]() -> absl::Status {
      PALPATE_ASSIGN_OR_RETURN(SceneClient client, ConnectToScenes(session));
      PALPATE_ASSIGN_OR_RETURN(const v1::SceneInfo info, client.Step(*id, *count));
      PrintState(info, session.json);
      return absl::OkStatus();
    };
  });
}

void AddRate(CLI::App& scene, Session& session) {
  auto id = std::make_shared<std::string>();
  auto rate = std::make_shared<RateOptions>();
  auto* command = AddSceneCommand(scene, "rate", "set how fast a scene plays; without an option: real time", id);
  AddRateOptions(*command, *rate);
  command->callback([&session, id, rate] {
    session.action = [&session, id, rate]() -> absl::Status {
      PALPATE_ASSIGN_OR_RETURN(SceneClient client, ConnectToScenes(session));
      PALPATE_ASSIGN_OR_RETURN(const v1::SceneInfo info, client.SetRate(*id, ToProto(*rate)));
      PrintState(info, session.json);
      return absl::OkStatus();
    };
  });
}

}  // namespace

void AddSceneCommands(CLI::App& app, Session& session) {
  auto* scene = app.add_subcommand("scene", "check, create and control scenes");
  scene->require_subcommand(1);
  AddCheck(*scene, session);
  AddFromMesh(*scene, session);
  AddCreate(*scene, session);
  scene->add_subcommand("list", "the scenes of the server")->callback([&session] {
    session.action = [&session] { return ListScenes(session); };
  });
  AddShow(*scene, session);
  AddDelete(*scene, session);
  AddStateCommand(*scene, session, "play", "let a scene run", std::mem_fn(&SceneClient::Play));
  AddStateCommand(*scene, session, "pause", "stop a scene after the current step", std::mem_fn(&SceneClient::Pause));
  AddStep(*scene, session);
  AddStateCommand(*scene, session, "reset", "back to the rest state at step 0",
                  [](SceneClient& client, const std::string& id) { return client.Reset(id, ClientName()); });
  AddRate(*scene, session);
}

}  // namespace palpate::cli
