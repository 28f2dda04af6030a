#pragma once

#include <mutex>
#include <string>

#include "palpate/v1/haptics.pb.h"

namespace palpate::station {

/// What the server said that the tool did. Times are simulated ones: a scene that runs slowly makes them grow slowly.
struct ToolSummary {
  double touching_s = 0;
  double grasping_s = 0;
  double cutting_s = 0;
  double blocked_s = 0;
  double expired_s = 0;          ///< the server held commands for too old, see ToolSpec.energy_hold_s
  double removed_mass_kg = 0;    ///< while this station had the tool
  double max_grasp_force_n = 0;  ///< of those that models stated
  std::string doing;             ///< in the newest model: "touching cutting", "" when moving freely
};

/// Adds up the activities in local models. A model speaks for the time since the one before it, so that models that were overtaken are
/// accounted for. Thread-safe.
class ToolLog {
 public:
  /// The tool was taken, anew perhaps.
  void Attach(const v1::Attached& attached);
  /// Precondition: the model passed FromProto.
  void Add(const v1::LocalModel& model);
  ToolSummary Summary() const;

 private:
  mutable std::mutex mutex_;
  ToolSummary summary_;     // guarded by mutex_, as all below
  double dt_s_ = 0;         // of a step
  bool has_model_ = false;  // of this attachment
  double last_time_s_ = 0;  // of the newest model, in the scene
  double last_removed_kg_ = 0;
};

}  // namespace palpate::station
