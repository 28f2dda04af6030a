#include "clients/job/tool_motion.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/job/job_file.h"
#include "clients/station/recording.h"
#include "gpu/base/status.h"
#include "sim/record/journal_entries.h"
#include "sim/record/recording.h"
#include "sim/scene/checker.h"
#include "sim/scene/scene_spec.h"

namespace palpate::job {
namespace {

using Eigen::Quaterniond;
using Eigen::Vector3d;
using scene::At;

struct Key {
  double time_s = 0;
  sim::ToolCommand command;
};

/// Keys and a rule for what is between them.
class KeyedMotion final : public ToolMotion {
 public:
  KeyedMotion(std::vector<Key> keys, v1::Interpolation interpolation) : keys_(std::move(keys)), interpolation_(interpolation) {}

  std::optional<sim::ToolCommand> At(double time_s) const override {
    const auto next = std::upper_bound(keys_.begin(), keys_.end(), time_s, [](double t, const Key& key) { return t < key.time_s; });
    if (next == keys_.begin()) return std::nullopt;
    const Key& from = *std::prev(next);
    sim::ToolCommand command = from.command;  // switches hold until the next key
    if (next == keys_.end() || interpolation_ == v1::INTERPOLATION_STEP) return command;
    double s = (time_s - from.time_s) / (next->time_s - from.time_s);
    if (interpolation_ == v1::INTERPOLATION_SMOOTH) s = s * s * (3 - 2 * s);
    const sim::ToolCommand& to = next->command;
    command.device_pose.position_m = (1 - s) * from.command.device_pose.position_m + s * to.device_pose.position_m;
    if (interpolation_ == v1::INTERPOLATION_CUBIC)
      command.device_pose.position_m = CubicAt(static_cast<size_t>(next - keys_.begin()) - 1, s);
    command.device_pose.rotation = from.command.device_pose.rotation.slerp(s, to.device_pose.rotation);
    command.jaw_angle_rad = (1 - s) * from.command.jaw_angle_rad + s * to.jaw_angle_rad;
    return command;
  }

 private:
  const Vector3d& PositionOf(size_t key) const { return keys_[key].command.device_pose.position_m; }

  Vector3d TangentAt(size_t key) const {
    const size_t before = key == 0 ? 0 : key - 1, after = std::min(key + 1, keys_.size() - 1);
    return (PositionOf(after) - PositionOf(before)) / (keys_[after].time_s - keys_[before].time_s);
  }

  /// Hermite's polynomial with the tangents of Catmull and Rom.
  Vector3d CubicAt(size_t key, double s) const {
    const double span_s = keys_[key + 1].time_s - keys_[key].time_s;
    const double s2 = s * s, s3 = s2 * s;
    return (2 * s3 - 3 * s2 + 1) * PositionOf(key) + (s3 - 2 * s2 + s) * span_s * TangentAt(key) + (3 * s2 - 2 * s3) * PositionOf(key + 1) +
           (s3 - s2) * span_s * TangentAt(key + 1);
  }

  std::vector<Key> keys_;
  v1::Interpolation interpolation_;
};

/// A command for each step of a recorded scene.
class ReplayedTool final : public ToolMotion {
 public:
  ReplayedTool(double start_s, double dt_s, std::vector<std::optional<sim::ToolCommand>> commands)
      : start_s_(start_s), dt_s_(dt_s), commands_(std::move(commands)) {}

  std::optional<sim::ToolCommand> At(double time_s) const override {
    const double step = std::ceil((time_s - start_s_) / dt_s_ - kStepTolerance);
    if (!(step >= 1 && step <= static_cast<double>(commands_.size()))) return std::nullopt;
    return commands_[static_cast<size_t>(step) - 1];
  }
  bool has_velocity() const override { return true; }

 private:
  static constexpr double kStepTolerance = 1e-6;  // as a share of a step: times are sums
  double start_s_;
  double dt_s_;
  std::vector<std::optional<sim::ToolCommand>> commands_;  // [step]
};

/// What each tick of a recording asks of a tool.
class HandPlacement {
 public:
  HandPlacement(const v1::HandRecording& recording, const sim::ToolDescription& tool, const station::RecordingTick& first)
      : recording_(recording), tool_(tool) {
    if (recording.has_scale()) scale_ = recording.scale();
    if (recording.has_rotation()) {
      const v1::Quaternion& q = recording.rotation();
      rotation_ = Quaterniond(q.w(), q.x(), q.y(), q.z()).normalized();
    }
    const Vector3d first_m(first.position_m);
    origin_m_ =
        recording.has_origin_m() ? scene::ToEigen(recording.origin_m()) : tool.rest_pose.position_m - rotation_ * (scale_ * first_m);
    open_jaw_rad_ = recording.has_open_jaw_angle_rad() ? recording.open_jaw_angle_rad() : tool.instrument.max_jaw_angle_rad;
    has_origin_ = recording.has_origin_m();
    first_rotation_ = RotationOf(first);
  }

  sim::ToolCommand CommandOf(const station::RecordingTick& tick) const {
    sim::ToolCommand command;
    command.device_pose.position_m = origin_m_ + rotation_ * (scale_ * Vector3d(tick.position_m));
    // As the station does.
    if (has_origin_) {
      command.device_pose.rotation = (rotation_ * RotationOf(tick)).normalized();
    } else {
      const Quaterniond turned = rotation_ * (RotationOf(tick) * first_rotation_.conjugate()) * rotation_.conjugate();
      command.device_pose.rotation = (turned * tool_.rest_pose.rotation).normalized();
    }
    const bool has_grip = (tick.flags & 2U) != 0;
    if (tool_.instrument.traits().has_jaws && has_grip) command.jaw_angle_rad = std::clamp(tick.grip, 0.0, 1.0) * open_jaw_rad_;
    if (recording_.has_pedal_button()) command.pedal = (tick.buttons >> recording_.pedal_button() & 1U) != 0;
    command.power_w = recording_.power_w();
    command.duty = recording_.duty();
    return command;
  }

 private:
  static Quaterniond RotationOf(const station::RecordingTick& tick) {
    const auto& q = tick.rotation_wxyz;
    return Quaterniond(q[0], q[1], q[2], q[3]);
  }

  const v1::HandRecording& recording_;
  const sim::ToolDescription& tool_;
  double scale_ = 1;
  Quaterniond rotation_ = Quaterniond::Identity();
  Quaterniond first_rotation_ = Quaterniond::Identity();
  Vector3d origin_m_{0, 0, 0};
  bool has_origin_ = false;
  double open_jaw_rad_ = 0;
};

}  // namespace

absl::Status CheckCommand(const sim::ToolCommand& command, const sim::InstrumentDescription& instrument, const std::string& path) {
  scene::Checker check;
  const sim::InstrumentTraits& traits = instrument.traits();
  const std::string none = absl::StrCat("is of no use to ", traits.plural);
  check.RangeVec(
      At(path, "pose.position_m"),
      [&command] {
        v1::Vec3 v;
        v.set_x(command.device_pose.position_m.x());
        v.set_y(command.device_pose.position_m.y());
        v.set_z(command.device_pose.position_m.z());
        return v;
      }(),
      -scene::kMaxCoordinate_m, scene::kMaxCoordinate_m);
  if (traits.has_jaws) {
    check.Range(At(path, "jaw_angle_rad"), command.jaw_angle_rad, 0, instrument.max_jaw_angle_rad);
  } else if (command.jaw_angle_rad != 0) {
    check.Invalid(At(path, "jaw_angle_rad"), none);
  }
  if (command.pedal && !traits.has_power && !traits.leaves_clips) check.Invalid(At(path, "pedal"), none);
  if (traits.has_power) {
    check.Range(At(path, "power_w"), command.power_w, 0, instrument.max_power_w);
  } else if (command.power_w != 0) {
    check.Invalid(At(path, "power_w"), none);
  }
  check.Range(At(path, "duty"), command.duty, 0, 1);
  return check.status();
}

absl::StatusOr<std::unique_ptr<ToolMotion>> MakeTrajectory(const v1::Trajectory& trajectory, const sim::ToolDescription& tool,
                                                           const std::string& path) {
  std::vector<Key> keys;
  sim::ToolCommand before;
  before.device_pose = tool.rest_pose;
  for (int k = 0; k < trajectory.keys_size(); ++k) {
    const v1::KeyPose& key = trajectory.keys(k);
    const std::string at = At(At(path, "keys"), k);
    sim::ToolCommand command = before;
    if (key.has_pose()) {
      PALPATE_ASSIGN_OR_RETURN(command.device_pose, scene::PoseFromProto(key.pose(), At(at, "pose")));
      if (trajectory.relative()) {
        command.device_pose.position_m += tool.rest_pose.position_m;
        command.device_pose.rotation = (command.device_pose.rotation * tool.rest_pose.rotation).normalized();
      }
    }
    if (key.has_jaw_angle_rad()) command.jaw_angle_rad = key.jaw_angle_rad();
    command.pedal = key.pedal();
    command.power_w = key.power_w();
    command.duty = key.duty();
    PALPATE_RETURN_IF_ERROR(CheckCommand(command, tool.instrument, at));
    keys.push_back({key.time_s(), command});
    before = command;
  }
  return std::make_unique<KeyedMotion>(std::move(keys), trajectory.interpolation());
}

absl::StatusOr<std::unique_ptr<ToolMotion>> MakeRecordedHand(const v1::HandRecording& recording, const std::filesystem::path& file,
                                                             const sim::ToolDescription& tool, const std::string& path) {
  auto read = station::ReadRecording(file.string());
  if (!read.ok()) return Annotate(read.status(), At(path, "file"));
  const HandPlacement placement(recording, tool, read->ticks.front());
  std::vector<Key> keys;
  for (const station::RecordingTick& tick : read->ticks) {
    const double time_s = recording.start_s() + (tick.time_s - read->ticks.front().time_s);
    const sim::ToolCommand command = placement.CommandOf(tick);
    PALPATE_RETURN_IF_ERROR(CheckCommand(command, tool.instrument, path));
    // Of several at one time the last counts.
    if (!keys.empty() && time_s <= keys.back().time_s) keys.pop_back();
    keys.push_back({time_s, command});
  }
  return std::make_unique<KeyedMotion>(std::move(keys), v1::INTERPOLATION_LINEAR);
}

absl::StatusOr<std::unique_ptr<ToolMotion>> MakeReplay(const v1::ToolReplay& replay, const std::filesystem::path& file,
                                                       const sim::ToolDescription& tool, const std::string& path) {
  const auto recording = record::Recording::OpenFile(file);
  if (!recording.ok()) return Annotate(recording.status(), At(path, "file"));
  if (!(*recording)->damages().empty()) return absl::DataLossError(absl::StrCat(At(path, "file"), ": ", (*recording)->damages()[0]));
  const v1::JournalHead& head = (*recording)->head();
  if (!(head.dt_s() > 0)) return absl::DataLossError(absl::StrCat(At(path, "file"), ": the recording's dt_s is ", head.dt_s()));
  const std::string& name = replay.tool().empty() ? tool.name : replay.tool();
  const auto of_recording = std::find(head.tools().begin(), head.tools().end(), name);
  if (of_recording == head.tools().end()) {
    return absl::NotFoundError(absl::StrCat(At(path, "tool"), ": the recording has no tool \"", name,
                                            "\"; it has: ", head.tools().empty() ? "none" : absl::StrJoin(head.tools(), ", ")));
  }
  const auto index = static_cast<size_t>(of_recording - head.tools().begin());
  const auto tool_count = static_cast<size_t>(head.tools_size());
  record::Recording::Cursor cursor = (*recording)->EntriesAfter((*recording)->begin_sequence() - 1);
  std::vector<std::optional<sim::ToolCommand>> commands;
  v1::JournalEntry entry;
  // No job goes on for longer.
  while (replay.start_s() + static_cast<double>(commands.size()) * head.dt_s() <= kMaxTime_s) {
    const absl::StatusOr<bool> has_entry = cursor.Next(&entry);
    if (!has_entry.ok()) return Annotate(has_entry.status(), At(path, "file"));
    if (!*has_entry) break;
    if (!entry.has_step()) continue;
    const v1::JournalStep& step = entry.step();
    // What came while the step ran is what the tool followed.
    auto all = record::DecodeCommands(step.has_late_commands() ? step.late_commands() : step.commands(), tool_count);
    const std::string at = absl::StrCat(path, ", step ", commands.size() + 1, " of the recording");
    if (!all.ok()) return Annotate(all.status(), at);
    std::optional<sim::ToolCommand>& command = commands.emplace_back((*all)[index]);
    if (command) PALPATE_RETURN_IF_ERROR(CheckCommand(*command, tool.instrument, at));
  }
  return std::make_unique<ReplayedTool>(replay.start_s(), head.dt_s(), std::move(commands));
}

}  // namespace palpate::job
