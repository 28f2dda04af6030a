#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cpp/watch_stream.h"
#include "gpu/base/status.h"

namespace palpate::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct WatchOptions {
  std::string scene_id;
  v1::PositionEncoding positions = v1::POSITION_ENCODING_NONE;
  bool with_volume = false;
  double rate_hz = 4;
  double seconds = 0;
  double patience_s = 30;
  uint64_t frames = 0;
  std::vector<std::string> bodies;
  bool list_contacts = false;
  bool list_markers = false;
  bool list_joints = false;
  bool list_supports = false;
};

nlohmann::ordered_json ToJson(const v1::Vec3& v) { return {v.x(), v.y(), v.z()}; }

nlohmann::ordered_json BodyJson(const v1::BodyTopology& body) {
  nlohmann::ordered_json json = {{"name", body.name()},
                                 {"vertices", body.vertex_count()},
                                 {"triangles", body.triangles_size() / 3},
                                 {"tets", body.tets_size() / 4},
                                 {"mesh_hash", absl::StrFormat("%016x", body.mesh_hash())}};
  if (!body.parent().empty()) json["parent"] = body.parent();
  return json;
}

/// A change of topology, which the stream has applied to `topology` and found to have the server's hashes.
nlohmann::ordered_json DeltaJson(const v1::TopologyDelta& delta, const client::TopologyMirror& topology) {
  auto bodies = nlohmann::ordered_json::array();
  for (const auto& change : delta.bodies()) {
    const client::TopologyMirror::Body& body = topology.bodies()[change.body_index()];
    bodies.push_back({{"name", body.name},
                      {"changed_triangles", change.triangle_slots_size()},
                      {"changed_tets", change.tet_slots_size()},
                      {"triangles", body.triangle_count()},
                      {"tets", body.tet_count()},
                      {"mesh_hash", absl::StrFormat("%016x", body.mesh_hash)}});
  }
  auto new_bodies = nlohmann::ordered_json::array();
  for (const auto& body : delta.new_bodies()) new_bodies.push_back(BodyJson(body));
  return {{"type", "delta"},          {"from_version", delta.from_version()}, {"to_version", delta.to_version()}, {"bodies", bodies},
          {"new_bodies", new_bodies}, {"bytes", delta.ByteSizeLong()}};
}

std::string DeltaLine(const v1::TopologyDelta& delta, const client::TopologyMirror& topology) {
  std::string line = absl::StrFormat("topology %d -> %d:", delta.from_version(), delta.to_version());
  for (const auto& change : delta.bodies()) {
    const client::TopologyMirror::Body& body = topology.bodies()[change.body_index()];
    absl::StrAppendFormat(&line, "  %s %d of %d triangles, mesh %016x", body.name, change.triangle_slots_size(), body.triangle_count(),
                          body.mesh_hash);
  }
  for (const auto& body : delta.new_bodies()) absl::StrAppendFormat(&line, "  new %s", body.name());
  return line;
}

nlohmann::ordered_json KeyframeJson(const v1::Keyframe& keyframe) {
  auto bodies = nlohmann::ordered_json::array();
  for (const auto& body : keyframe.bodies()) {
    bodies.push_back(BodyJson(body));
  }
  auto tools = nlohmann::ordered_json::array();
  for (const auto& tool : keyframe.tools()) tools.push_back(tool.name());
  nlohmann::ordered_json json = {{"type", "keyframe"},
                                 {"scene_id", keyframe.scene().scene_id()},
                                 {"topology_version", keyframe.topology_version()},
                                 {"bodies", bodies},
                                 {"tools", tools}};
  for (const auto& marker : keyframe.markers()) json["markers"].push_back({{"name", marker.name()}, {"body", marker.body()}});
  for (const auto& joint : keyframe.joints()) {
    json["joints"].push_back({{"name", joint.name()}, {"kind", joint.kind()}, {"body_a", joint.body_a()}, {"body_b", joint.body_b()}});
  }
  return json;
}

nlohmann::ordered_json ContactStatsJson(const v1::ContactStats& stats) {
  nlohmann::ordered_json json = {{"pairs", stats.contact_count()},
                                 {"acting", stats.acting_count()},
                                 {"detections", stats.detection_count()},
                                 {"filter_rounds", stats.filter_rounds()},
                                 {"filtered_vertices", stats.filtered_vertices()},
                                 {"truncated_vertices", stats.truncated_vertices()},
                                 {"self_searches", stats.self_search_count()},
                                 {"listed_searches", stats.listed_search_count()},
                                 {"renewed_lists", stats.renewed_list_count()},
                                 {"detect_ms", stats.detect_ms()},
                                 {"filter_ms", stats.filter_ms()},
                                 {"check_ms", stats.check_ms()}};
  if (stats.intersections_checked()) json["intersections"] = stats.intersection_count();
  return json;
}

/// Every contact of a frame, those with tools and obstacles first.
nlohmann::ordered_json ContactListJson(const v1::Frame& frame, const v1::Keyframe& keyframe, const client::TopologyMirror& topology) {
  const auto body = [&topology](uint32_t index) {
    return index < topology.bodies().size() ? topology.bodies()[index].name : std::to_string(index);
  };
  auto list = nlohmann::ordered_json::array();
  for (const v1::Contact& contact : frame.contacts()) {
    const bool by_tool = contact.tool_index() < static_cast<uint32_t>(keyframe.tools_size());
    list.push_back({{"kind", by_tool ? "tool" : "obstacle"},
                    {"a", by_tool ? keyframe.tools(static_cast<int>(contact.tool_index())).name() : ""},
                    {"b", body(contact.body_index())},
                    {"point_b_m", ToJson(contact.point_m())},
                    {"normal", ToJson(contact.normal())},
                    {"distance_m", contact.separation_m()},
                    {"force_n", ToJson(contact.force_n())}});
  }
  for (const v1::SurfaceContact& contact : frame.surface_contacts()) {
    list.push_back({{"kind", contact.kind() == v1::SURFACE_CONTACT_KIND_EDGE_EDGE ? "edge-edge" : "vertex-triangle"},
                    {"a", body(contact.body_a())},
                    {"b", body(contact.body_b())},
                    {"vertices", std::vector<uint32_t>(contact.vertices().begin(), contact.vertices().end())},
                    {"point_a_m", ToJson(contact.point_a_m())},
                    {"point_b_m", ToJson(contact.point_b_m())},
                    {"normal", ToJson(contact.normal())},
                    {"distance_m", contact.distance_m()},
                    {"force_n", ToJson(contact.force_n())}});
  }
  return list;
}

const std::string& BodyOf(const v1::MarkerState& marker, const client::TopologyMirror& topology) {
  return topology.bodies()[marker.body_index()].name;  // in range, as the stream has checked
}

nlohmann::ordered_json MarkerListJson(const v1::Frame& frame, const client::TopologyMirror& topology) {
  auto list = nlohmann::ordered_json::array();
  for (int i = 0; i < frame.markers_size(); ++i) {
    const v1::MarkerState& marker = frame.markers(i);
    list.push_back({{"name", topology.markers()[static_cast<size_t>(i)].name},
                    {"body", BodyOf(marker, topology)},
                    {"position_m", ToJson(marker.position_m())},
                    {"released", marker.is_released()}});
  }
  return list;
}

int JointCount(const v1::Frame& frame, const v1::Keyframe& keyframe) { return std::min(frame.joints_size(), keyframe.joints_size()); }

nlohmann::ordered_json JointListJson(const v1::Frame& frame, const v1::Keyframe& keyframe) {
  auto list = nlohmann::ordered_json::array();
  for (int i = 0; i < JointCount(frame, keyframe); ++i) {
    const v1::JointState& joint = frame.joints(i);
    list.push_back({{"name", keyframe.joints(i).name()},
                    {"position", joint.position()},
                    {"effort", joint.effort()},
                    {"force_n", ToJson(joint.force_n())},
                    {"torque_n_m", ToJson(joint.torque_n_m())},
                    {"point_m", ToJson(joint.point_m())},
                    {"point_a_m", ToJson(joint.point_a_m())},
                    {"axis", ToJson(joint.axis())},
                    {"gap_m", joint.gap_m()},
                    {"gap_rad", joint.gap_rad()},
                    {"broken", joint.is_broken()}});
  }
  return list;
}

double Norm(const v1::Vec3& v) { return std::sqrt(v.x() * v.x() + v.y() * v.y() + v.z() * v.z()); }

/// A line for each joint.
std::string JointLines(const v1::Frame& frame, const v1::Keyframe& keyframe) {
  std::string lines;
  for (int i = 0; i < JointCount(frame, keyframe); ++i) {
    const v1::JointInfo& info = keyframe.joints(i);
    const v1::JointState& joint = frame.joints(i);
    absl::StrAppendFormat(&lines, "  %-20s %-8s", info.name(), info.kind());
    if (info.kind() == "hinge") {
      absl::StrAppendFormat(&lines, " %9.5f rad %9.4f N m", joint.position(), joint.effort());
    } else if (info.kind() == "slider" || info.kind() == "distance" || info.kind() == "spring") {
      absl::StrAppendFormat(&lines, " %9.5f m   %9.4f N  ", joint.position(), joint.effort());
    } else {
      lines.append(28, ' ');
    }
    absl::StrAppendFormat(&lines, "  carries %9.4f N  off by %.2g m, %.2g rad%s\n", Norm(joint.force_n()), joint.gap_m(), joint.gap_rad(),
                          joint.is_broken() ? "  broken" : "");
  }
  return lines;
}

int SupportCount(const v1::Frame& frame, const v1::Keyframe& keyframe) { return std::min(frame.supports_size(), keyframe.supports_size()); }

nlohmann::ordered_json SupportListJson(const v1::Frame& frame, const v1::Keyframe& keyframe) {
  auto list = nlohmann::ordered_json::array();
  for (int i = 0; i < SupportCount(frame, keyframe); ++i) {
    const v1::SupportInfo& info = keyframe.supports(i);
    const v1::SupportState& support = frame.supports(i);
    list.push_back({{"name", info.name()},
                    {"body", info.body()},
                    {"region", info.region()},
                    {"kind", info.kind()},
                    {"bound_to", info.bound_to()},
                    {"force_n", ToJson(support.force_n())},
                    {"torque_n_m", ToJson(support.torque_n_m())},
                    {"point_m", ToJson(support.point_m())},
                    {"released", support.is_released()}});
  }
  return list;
}

/// A line for each region that holds control points of a NURBS shell.
std::string SupportLines(const v1::Frame& frame, const v1::Keyframe& keyframe) {
  std::string lines;
  for (int i = 0; i < SupportCount(frame, keyframe); ++i) {
    const v1::SupportInfo& info = keyframe.supports(i);
    const v1::SupportState& support = frame.supports(i);
    const v1::Vec3& f = support.force_n();
    const std::string name = absl::StrCat(info.body(), ".fixed[", info.region(), "]", info.name().empty() ? "" : " ", info.name());
    absl::StrAppendFormat(&lines, "  %-28s %-6s carries (%9.4f, %9.4f, %9.4f) N%s%s%s\n", name, info.kind(), f.x(), f.y(), f.z(),
                          info.bound_to().empty() ? "" : "  on ", info.bound_to(), support.is_released() ? "  released" : "");
  }
  return lines;
}

/// A line for each marker.
std::string MarkerLines(const v1::Frame& frame, const client::TopologyMirror& topology) {
  std::string lines;
  for (int i = 0; i < frame.markers_size(); ++i) {
    const v1::MarkerState& marker = frame.markers(i);
    const v1::Vec3& p = marker.position_m();
    absl::StrAppendFormat(&lines, "  %-20s %9.5f %9.5f %9.5f m  %s%s\n", topology.markers()[static_cast<size_t>(i)].name, p.x(), p.y(),
                          p.z(), BodyOf(marker, topology), marker.is_released() ? "  released" : "");
  }
  return lines;
}

std::vector<std::string> ActivityNames(const v1::ToolState& tool) {
  std::vector<std::string> names;
  for (const int activity : tool.activities()) {
    switch (activity) {
      case v1::TOOL_ACTIVITY_TOUCHING:
        names.emplace_back("touching");
        break;
      case v1::TOOL_ACTIVITY_GRASPING:
        names.emplace_back("grasping");
        break;
      case v1::TOOL_ACTIVITY_CUTTING:
        names.emplace_back("cutting");
        break;
      case v1::TOOL_ACTIVITY_BLOCKED:
        names.emplace_back("blocked");
        break;
      case v1::TOOL_ACTIVITY_COMMAND_EXPIRED:
        names.emplace_back("command expired");
        break;
      default:
        break;
    }
  }
  return names;
}

nlohmann::ordered_json FrameJson(const v1::Frame& frame, size_t bytes) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::object();
  for (const auto& stage : frame.stats().stages()) stages[stage.stage()] = stage.ms();
  auto tools = nlohmann::ordered_json::array();
  for (const auto& tool : frame.tools()) {
    tools.push_back({{"position_m", ToJson(tool.pose().position_m())},
                     {"force_n", ToJson(tool.force_n())},
                     {"torque_n_m", ToJson(tool.torque_n_m())},
                     {"contacts", tool.contact_count()},
                     {"operated", tool.operated()},
                     {"activities", ActivityNames(tool)},
                     {"jaw_angle_rad", tool.jaw_angle_rad()},
                     {"blocked_m", tool.blocked_m()},
                     {"grasped_vertices", tool.grasped_vertices()}});
  }
  nlohmann::ordered_json json = {{"type", "frame"},
                                 {"step", frame.step()},
                                 {"sim_time_s", frame.sim_time_s()},
                                 {"topology_version", frame.topology_version()},
                                 {"state_hash", absl::StrFormat("%016x", frame.state_hash())},
                                 {"steps_per_s", frame.stats().steps_per_s()},
                                 {"step_ms", frame.stats().step_ms()},
                                 {"stage_ms", stages},
                                 {"overruns", frame.stats().overruns()},
                                 {"contacts", frame.contacts_size()},
                                 {"surface_contacts", frame.surface_contacts_size()},
                                 {"contact", ContactStatsJson(frame.stats().contact())},
                                 {"max_penetration_m", frame.stats().max_penetration_m()},
                                 {"kinetic_energy_j", frame.stats().kinetic_energy_j()},
                                 {"max_speed_m_per_s", frame.stats().max_speed_m_per_s()},
                                 {"inverted_tets", frame.stats().inverted_tets()},
                                 {"sweeps", frame.stats().sweeps()},
                                 {"tools", tools},
                                 {"dropped", frame.dropped()},
                                 {"bytes", bytes},
                                 {"failure", frame.failure()}};
  if (frame.stats().has_elastic_energy_j()) json["elastic_energy_j"] = frame.stats().elastic_energy_j();
  return json;
}

std::string FrameLine(const v1::Frame& frame, const v1::Keyframe& keyframe) {
  std::string line =
      absl::StrFormat("step %d  %.2f s  %.1f steps/s  %.2f ms/step  %d contacts", frame.step(), frame.sim_time_s(),
                      frame.stats().steps_per_s(), frame.stats().step_ms(), frame.contacts_size() + frame.surface_contacts_size());
  const v1::ContactStats& contact = frame.stats().contact();
  if (contact.intersections_checked()) absl::StrAppendFormat(&line, "  %d intersections", contact.intersection_count());
  for (int i = 0; i < frame.tools_size() && i < keyframe.tools_size(); ++i) {
    absl::StrAppendFormat(&line, "  %s %.2f N%s", keyframe.tools(i).name(), Norm(frame.tools(i).force_n()),
                          frame.tools(i).operated() ? "*" : "");
  }
  const auto released = std::count_if(frame.markers().begin(), frame.markers().end(), [](const auto& m) { return m.is_released(); });
  if (!frame.markers().empty()) absl::StrAppendFormat(&line, "  %d markers", frame.markers_size() - released);
  const auto broken = std::count_if(frame.joints().begin(), frame.joints().end(), [](const auto& j) { return j.is_broken(); });
  if (!frame.joints().empty()) absl::StrAppendFormat(&line, "  %d joints", frame.joints_size() - broken);
  if (broken > 0) absl::StrAppendFormat(&line, " (%d broken)", broken);
  if (released > 0) absl::StrAppendFormat(&line, " (%d released)", released);
  absl::StrAppendFormat(&line, "  %d overruns  %d dropped", frame.stats().overruns(), frame.dropped());
  if (frame.state() == v1::RUN_STATE_PAUSED) line += "  paused";
  if (!frame.failure().empty()) line += "  FAILED: " + frame.failure();
  return line;
}

/// Prints what a stream brings, until there was enough of it.
class WatchPrinter {
 public:
  WatchPrinter(const Session& session, const WatchOptions& options)
      : options_(options), is_json_(session.json), is_live_(IsTerminal(STDOUT_FILENO) && !session.json) {}

  /// Until the stream ends, or --frames have come: then it is cancelled.
  void Follow(client::WatchStream& stream) {
    v1::WatchUpdate update;
    while (!is_enough() && stream.Read(&update)) Take(update, stream.topology());
    if (is_live_ && frames_ > 0) absl::PrintF("\n");
    if (is_enough()) stream.Cancel();
  }
  bool is_enough() const { return options_.frames > 0 && frames_ >= options_.frames; }

 private:
  void Take(const v1::WatchUpdate& update, const client::TopologyMirror& topology) {
    const v1::Frame* frame = update.has_frame() ? &update.frame() : nullptr;
    if (update.has_delta()) {
      if (is_json_) {
        absl::PrintF("%s\n", DeltaJson(update.delta(), topology).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      } else {
        absl::PrintF("%s%s\n", is_live_ ? "\r\x1b[K" : "", DeltaLine(update.delta(), topology));
      }
    }
    if (update.has_keyframe()) {
      keyframe_ = update.keyframe();
      if (is_json_) absl::PrintF("%s\n", KeyframeJson(keyframe_).dump());
      frame = keyframe_.has_frame() ? &keyframe_.frame() : nullptr;
    }
    if (frame == nullptr) return;
    if (is_json_) {
      nlohmann::ordered_json json = FrameJson(*frame, update.ByteSizeLong());
      if (options_.list_contacts) json["contact_list"] = ContactListJson(*frame, keyframe_, topology);
      if (!frame->markers().empty()) json["markers"] = MarkerListJson(*frame, topology);
      if (!frame->joints().empty()) json["joints"] = JointListJson(*frame, keyframe_);
      if (!frame->supports().empty()) json["supports"] = SupportListJson(*frame, keyframe_);
      absl::PrintF("%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      absl::PrintF("%s%s%s", is_live_ ? "\r\x1b[K" : "", FrameLine(*frame, keyframe_),
                   is_live_ && !options_.list_markers && !options_.list_joints && !options_.list_supports ? "" : "\n");
      if (options_.list_markers) absl::PrintF("%s", MarkerLines(*frame, topology));
      if (options_.list_joints) absl::PrintF("%s", JointLines(*frame, keyframe_));
      if (options_.list_supports) absl::PrintF("%s", SupportLines(*frame, keyframe_));
    }
    std::fflush(stdout);
    ++frames_;
  }

  const WatchOptions& options_;
  const bool is_json_, is_live_;
  v1::Keyframe keyframe_;
  uint64_t frames_ = 0;
};

/// One stream, ended by Ctrl-C or at `end`. A paused scene sends nothing, so both need a thread of their own.
absl::Status FollowUntil(WatchPrinter& printer, const client::Connection& connection, const v1::WatchRequest& request,
                         std::optional<Clock::time_point> end) {
  client::WatchStream stream(connection, request);
  const std::jthread watchdog([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (g_interrupted.load() || (end && Clock::now() >= *end)) return stream.Cancel();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  printer.Follow(stream);
  return stream.Finish();
}

absl::Status Watch(const Session& session, const WatchOptions& options) {
  PALPATE_ASSIGN_OR_RETURN(const client::Connection connection, Connect(session));
  v1::WatchRequest request;
  request.set_scene_id(options.scene_id);
  request.set_positions(options.positions);
  request.set_with_volume(options.with_volume);
  request.set_max_rate_hz(options.rate_hz);
  for (const std::string& body : options.bodies) request.add_contact_bodies(body);
  InstallInterruptHandler();
  std::optional<Clock::time_point> end;
  if (options.seconds > 0) end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
  WatchPrinter printer(session, options);
  while (true) {
    const absl::Status status = FollowUntil(printer, connection, request, end);
    if (absl::IsCancelled(status)) return absl::OkStatus();
    if (!absl::IsUnavailable(status) || options.patience_s <= 0 || printer.is_enough()) return status;
    // A server that keeps its state has the scene again when it is back.
    absl::FPrintF(stderr, "palpate: the server is gone (%s); waiting for it\n", status.message());
    const auto give_up = Clock::now() + std::chrono::duration<double>(options.patience_s);
    absl::Status ready = status;
    while (!ready.ok() && !g_interrupted.load() && Clock::now() < give_up && !(end && Clock::now() >= *end)) {
      ready = connection.WaitUntilReady(std::chrono::milliseconds(200));
    }
    if (g_interrupted.load() || (end && Clock::now() >= *end)) return absl::OkStatus();
    if (!ready.ok()) return status;
  }
}

}  // namespace

void AddWatchCommand(CLI::App& app, Session& session) {
  auto options = std::make_shared<WatchOptions>();
  auto* command =
      app.add_subcommand("watch", "follow a scene: a line of text, or with --json one object a line, until Ctrl-C or the end of the scene");
  command->add_option("ID", options->scene_id, "scene id, see `palpate scene list`")->required();
  command->add_option("--rate", options->rate_hz, "at most so many frames a second")
      ->check(CLI::Range(0.1, 10000.0))
      ->capture_default_str();
  command->add_option("--frames", options->frames, "end after so many frames")->check(CLI::PositiveNumber);
  command->add_option("--seconds", options->seconds, "end after so many seconds")->check(CLI::PositiveNumber);
  command->add_option("--patience", options->patience_s, "wait so many seconds for a server that is gone, then go on; 0: end with it")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  const std::map<std::string, v1::PositionEncoding> encodings{
      {"none", v1::POSITION_ENCODING_NONE}, {"float32", v1::POSITION_ENCODING_FLOAT32}, {"uint16", v1::POSITION_ENCODING_UINT16}};
  command->add_option("--positions", options->positions, "ask for positions too, as a viewer does; they are counted in `bytes`")
      ->transform(CLI::Transformer(encodings))
      ->default_str("none");
  command->add_option("--body", options->bodies, "only contacts of this body; may be given more than once");
  command->add_flag("--contacts", options->list_contacts,
                    "with --json: every contact with bodies, elements, points, normal, distance and force");
  command->add_flag("--markers", options->list_markers,
                    "where each marker is, the body it is in, and whether its tissue is gone; with --json always");
  command->add_flag("--joints", options->list_joints,
                    "of each joint its coordinate, what drives it, what it carries and how far it is off; with --json always");
  command->add_flag("--supports", options->list_supports, "of each region that holds a NURBS shell what it carries; with --json always");
  command->add_flag("--volume", options->with_volume, "positions of all vertices instead of those of the surface");
  command->callback([&session, options] { session.action = [&session, options] { return Watch(session, *options); }; });
}

}  // namespace palpate::cli
