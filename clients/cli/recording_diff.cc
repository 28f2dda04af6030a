#include "clients/cli/recording_diff.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/world/world_state.h"

namespace palpate::cli {
namespace {

using google::protobuf::util::MessageDifferencer;

/// One step of a recording with all input since the step before it.
struct RecordedStep {
  uint64_t position = 0;
  std::vector<v1::JournalEntry> before;  ///< edits and resets
  v1::JournalStep step;
};

class StepReader {
 public:
  explicit StepReader(const record::Recording& recording)
      : cursor_(recording.EntriesAfter(recording.has_begin() || recording.states().empty() ? 0 : recording.states().front().sequence)),
        position_(recording.begin_position()) {}

  /// False: the end.
  absl::StatusOr<bool> Next(RecordedStep* out) {
    out->before.clear();
    v1::JournalEntry entry;
    while (true) {
      PALPATE_ASSIGN_OR_RETURN(const bool has_entry, cursor_.Next(&entry));
      if (!has_entry) return false;
      if (entry.has_step()) {
        out->position = ++position_;
        out->step = std::move(*entry.mutable_step());
        return true;
      }
      // How a scene was run, and what people marked, does not change what it computes.
      if (entry.has_edit() || entry.has_reset()) out->before.push_back(entry);
    }
  }

 private:
  record::Recording::Cursor cursor_;
  uint64_t position_;
};

/// What of an edit is input: not its answer, nor the hash behind it, nor what names the scene and the request: a branch has other ones.
v1::JournalEdit InputOf(v1::JournalEdit edit) {
  if (edit.has_request()) {
    edit.mutable_request()->clear_scene_id();
    edit.mutable_request()->clear_key();
  }
  edit.clear_response();
  edit.clear_state_hash();
  edit.clear_topology_version();
  return edit;
}

std::string InputDifference(const RecordedStep& a, const RecordedStep& b) {
  if (a.before.size() != b.before.size()) {
    return absl::StrCat(a.before.size(), " and ", b.before.size(), " edits and resets before the step");
  }
  for (size_t e = 0; e < a.before.size(); ++e) {
    if (a.before[e].entry_case() != b.before[e].entry_case()) return "an edit and a reset";
    if (a.before[e].has_edit() && !MessageDifferencer::Equals(InputOf(a.before[e].edit()), InputOf(b.before[e].edit()))) return "edits";
  }
  const auto commands = [](const v1::JournalStep& step) {
    v1::JournalStep only;
    *only.mutable_commands() = step.commands();
    *only.mutable_late_commands() = step.late_commands();
    only.set_has_late_commands(step.has_late_commands());
    return only;
  };
  if (!MessageDifferencer::Equals(commands(a.step), commands(b.step))) return "commands of tools";
  return "";
}

/// Names of bodies in the order of their hashes, as far as the spec tells: pieces that were cut off come behind.
std::string BodyName(const record::Recording& recording, int index) {
  const v1::SceneSpec& spec = recording.head().request().spec();
  if (index < spec.bodies_size() && !spec.bodies(index).name().empty()) return spec.bodies(index).name();
  return absl::StrCat("body ", index);
}

void CompareStates(const RecordedStep& a, const RecordedStep& b, const record::Recording& recording, RecordingDiff* out) {
  out->first_state = a.position;
  out->has_body_hashes = a.step.body_hashes_size() > 0 && b.step.body_hashes_size() > 0;
  const int count = std::min(a.step.body_hashes_size(), b.step.body_hashes_size());
  for (int body = 0; body < count; ++body) {
    if (a.step.body_hashes(body) == b.step.body_hashes(body)) continue;
    out->body = BodyName(recording, body);
    return;
  }
  if (a.step.body_hashes_size() != b.step.body_hashes_size()) out->body = BodyName(recording, count);
}

absl::Status Measure(const record::Recording& a, const record::Recording& b, RecordingDiff* out) {
  for (const record::StateRef& state : a.states()) {
    if (state.position < *out->first_state) continue;
    const auto other =
        std::find_if(b.states().begin(), b.states().end(), [&state](const auto& ref) { return ref.position == state.position; });
    if (other == b.states().end()) continue;
    std::array<std::shared_ptr<const sim::WorldState>, 2> worlds;
    PALPATE_ASSIGN_OR_RETURN(const record::SceneCheckpoint checkpoint_a, a.LoadState(state));
    PALPATE_ASSIGN_OR_RETURN(const record::SceneCheckpoint checkpoint_b, b.LoadState(*other));
    PALPATE_ASSIGN_OR_RETURN(worlds[0], sim::DecodeWorldState(checkpoint_a.world));
    PALPATE_ASSIGN_OR_RETURN(worlds[1], sim::DecodeWorldState(checkpoint_b.world));
    out->measured_at = state.position;
    const auto& bodies_a = worlds[0]->frame->surface_positions_m;
    const auto& bodies_b = worlds[1]->frame->surface_positions_m;
    for (size_t body = 0; body < std::min(bodies_a.size(), bodies_b.size()); ++body) {
      for (size_t c = 0; c + 2 < std::min(bodies_a[body].size(), bodies_b[body].size()); c += 3) {
        double sq = 0;
        for (size_t axis = 0; axis < 3; ++axis) sq += std::pow(double{bodies_a[body][c + axis]} - bodies_b[body][c + axis], 2);
        if (std::sqrt(sq) <= out->farthest_m) continue;
        out->farthest_m = std::sqrt(sq);
        out->farthest_body = worlds[0]->topology->bodies[body]->name;
      }
    }
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

void AddRemarks(const record::Recording& a, const record::Recording& b, RecordingDiff* out) {
  const auto compare = [out](const char* what, const std::string& of_a, const std::string& of_b) {
    if (of_a != of_b) out->remarks.push_back(absl::StrCat(what, ": \"", of_a, "\" and \"", of_b, "\""));
  };
  compare("device", a.head().device(), b.head().device());
  compare("driver", a.head().driver_version(), b.head().driver_version());
  compare("program", a.head().program_commit(), b.head().program_commit());
  if (!MessageDifferencer::Equals(a.head().request().spec(), b.head().request().spec())) out->remarks.emplace_back("the scenes differ");
  if (a.end_position() != b.end_position()) {
    out->remarks.push_back(absl::StrCat("they end at step ", a.end_position(), " and ", b.end_position()));
  }
  for (const record::Recording* recording : {&a, &b}) {
    out->remarks.insert(out->remarks.end(), recording->damages().begin(), recording->damages().end());
  }
}

}  // namespace

absl::StatusOr<RecordingDiff> CompareRecordings(const record::Recording& a, const record::Recording& b) {
  RecordingDiff out;
  AddRemarks(a, b, &out);
  out.begin = std::max(a.begin_position(), b.begin_position());
  out.end = std::min(a.end_position(), b.end_position());
  if (out.begin > out.end) {
    return absl::FailedPreconditionError(absl::StrCat("they have no step in common: [", a.begin_position(), ", ", a.end_position(),
                                                      "] and [", b.begin_position(), ", ", b.end_position(), "]"));
  }
  StepReader reader_a(a);
  StepReader reader_b(b);
  RecordedStep step_a;
  RecordedStep step_b;
  while (!out.first_state) {
    PALPATE_ASSIGN_OR_RETURN(bool has_a, reader_a.Next(&step_a));
    PALPATE_ASSIGN_OR_RETURN(bool has_b, reader_b.Next(&step_b));
    while (has_a && step_a.position <= out.begin) {
      PALPATE_ASSIGN_OR_RETURN(has_a, reader_a.Next(&step_a));
    }
    while (has_b && step_b.position <= out.begin) {
      PALPATE_ASSIGN_OR_RETURN(has_b, reader_b.Next(&step_b));
    }
    if (!has_a || !has_b) break;
    ++out.compared_steps;
    if (!out.first_input) {
      out.input = InputDifference(step_a, step_b);
      if (!out.input.empty()) out.first_input = step_a.position;
    }
    if (step_a.step.state_hash() != step_b.step.state_hash()) CompareStates(step_a, step_b, a, &out);
  }
  if (out.first_state) PALPATE_RETURN_IF_ERROR(Measure(a, b, &out));
  return out;
}

}  // namespace palpate::cli
