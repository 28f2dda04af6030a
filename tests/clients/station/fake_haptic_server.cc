#include "tests/clients/station/fake_haptic_server.h"

#include <chrono>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"

namespace palpate::testing {

FakeHapticServer::FakeHapticServer(const Options& options) : options_(options) { Start(); }

FakeHapticServer::~FakeHapticServer() { Stop(); }

std::string FakeHapticServer::address() const { return absl::StrCat("127.0.0.1:", port_); }

void FakeHapticServer::Start() {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  port_ = port;
}

void FakeHapticServer::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

v1::Attach FakeHapticServer::last_attach() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_attach_;
}

v1::ToolPose FakeHapticServer::last_pedal_pose() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_pedal_pose_;
}

grpc::Status FakeHapticServer::Operate(grpc::ServerContext* context,
                                       grpc::ServerReaderWriter<v1::OperateUpdate, v1::OperateRequest>* stream) {
  if (!options_.wanted_token.empty()) {
    const auto& metadata = context->client_metadata();
    const auto found = metadata.find("authorization");
    if (found == metadata.end() || std::string(found->second.data(), found->second.size()) != "Bearer " + options_.wanted_token) {
      return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "token wanted");
    }
  }
  v1::OperateRequest request;
  if (!stream->Read(&request) || !request.has_attach())
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the first request must attach");
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_attach_ = request.attach();
  }
  if (!options_.attach_status.ok()) return options_.attach_status;
  if (request.attach().scene_id() != "scene")
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no scene '" + request.attach().scene_id() + "'");
  attachments_.fetch_add(1);
  v1::OperateUpdate update;
  update.mutable_attached()->set_radius_m(0.005);
  update.mutable_attached()->set_length_m(0.1);
  update.mutable_attached()->set_dt_s(1 / options_.rate_hz);
  update.mutable_attached()->set_kind(options_.kind);
  update.mutable_attached()->set_max_jaw_angle_rad(options_.max_jaw_angle_rad);
  update.mutable_attached()->set_max_power_w(options_.max_power_w);
  update.mutable_attached()->mutable_traits()->set_has_jaws(options_.max_jaw_angle_rad > 0);
  update.mutable_attached()->mutable_traits()->set_has_power(options_.max_power_w > 0);
  update.mutable_attached()->mutable_pose()->mutable_position_m()->set_z(options_.start_z_m);
  update.mutable_attached()->mutable_pose()->mutable_rotation()->set_w(1);
  stream->Write(update);

  std::mutex pose_mutex;
  v1::ToolPose newest;
  newest.mutable_pose()->mutable_position_m()->set_z(options_.start_z_m);
  std::atomic<bool> ended{false};
  std::thread reader([&] {
    v1::OperateRequest incoming;
    while (stream->Read(&incoming)) {
      poses_.fetch_add(1);
      const std::lock_guard<std::mutex> lock(pose_mutex);
      if (incoming.pose().sequence() <= newest.sequence()) out_of_order_poses_.fetch_add(1);
      newest = incoming.pose();
      if (newest.pedal()) {
        const std::lock_guard<std::mutex> pedal_lock(mutex_);
        last_pedal_pose_ = newest;
      }
    }
    ended.store(true);
  });
  const auto period = std::chrono::nanoseconds(static_cast<int64_t>(1e9 / options_.rate_hz));
  auto next = std::chrono::steady_clock::now();
  double removed_kg = 0;
  for (uint64_t step = 1; !ended.load() && !context->IsCancelled(); ++step) {
    v1::ToolPose pose;
    {
      const std::lock_guard<std::mutex> lock(pose_mutex);
      pose = newest;
    }
    v1::OperateUpdate message;
    v1::LocalModel* model = message.mutable_model();
    model->set_step(step);
    model->set_pose_sequence(pose.sequence());
    model->set_station_time_us(pose.station_time_us());
    *model->mutable_pose_at_build() = pose.pose();
    model->set_blend_time_s(1 / options_.rate_hz);
    model->set_validity_radius_m(0.01);
    v1::ContactConstraint* constraint = model->add_constraints();
    constraint->mutable_normal()->set_z(1);
    constraint->set_rest_penetration_m(options_.wall_z_m - pose.pose().position_m().z());
    constraint->set_stiffness_n_per_m(options_.stiffness_n_per_m);
    model->set_sim_time_s(static_cast<double>(step) / options_.rate_hz);
    if (pose.pose().position_m().z() < options_.wall_z_m) model->add_activities(v1::TOOL_ACTIVITY_TOUCHING);
    if (options_.max_jaw_angle_rad > 0 && pose.jaw_angle_rad() < 0.5 * options_.max_jaw_angle_rad) {
      model->add_activities(v1::TOOL_ACTIVITY_GRASPING);
      model->set_grasp_force_n(2);
    }
    if (pose.pedal()) {
      model->add_activities(v1::TOOL_ACTIVITY_CUTTING);
      removed_kg += 0.001;
    }
    model->set_removed_mass_kg(removed_kg);
    if (options_.broken_models && step % 2 == 0) constraint->set_stiffness_n_per_m(std::numeric_limits<double>::quiet_NaN());
    if (!stream->Write(message)) break;
    if (step == static_cast<uint64_t>(options_.models_per_stream)) break;
    next += period;
    std::this_thread::sleep_until(next);
  }
  context->TryCancel();  // lets the reader go
  reader.join();
  return grpc::Status::OK;
}

}  // namespace palpate::testing
