#include "server/core/batch.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "sim/scene/scene_spec.h"
#include "tests/server/core/server_fixture.h"

namespace palpate::server::batch_test {
namespace {

using ::testing::HasSubstr;

class BatchTest : public ::testing::Test {
 protected:
  std::shared_ptr<Batch> NewBatch() {
    Batch::Options options;
    options.context = TestContext();
    options.assets = std::make_shared<scene::AssetRootResolver>("");
    options.budget = &budget_;
    options.pool = &pool_;
    return std::make_shared<Batch>(options);
  }
  static absl::StatusOr<v1::BatchResponse> Ask(Batch& batch, const v1::BatchRequest& request) {
    std::promise<absl::StatusOr<v1::BatchResponse>> answer;
    batch.Handle(request, [&answer](absl::StatusOr<v1::BatchResponse> response) { answer.set_value(std::move(response)); });
    return answer.get_future().get();
  }
  static v1::BatchRequest OpenRequest(uint32_t count) {
    v1::BatchRequest request;
    *request.mutable_open()->mutable_spec() = TinyScene();
    request.mutable_open()->set_count(count);
    request.mutable_open()->add_probes("step");
    return request;
  }
  static v1::BatchRequest StepRequest(uint32_t steps) {
    v1::BatchRequest request;
    request.mutable_step()->set_steps(steps);
    return request;
  }

  BatchBudget budget_;
  WorkerPool pool_{"batch", 3};
};

TEST_F(BatchTest, GoesAsAWorldGoes) {
  const std::shared_ptr<Batch> batch = NewBatch();
  const absl::StatusOr<v1::BatchResponse> opened = Ask(*batch, OpenRequest(4));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->opened().columns(0), "step");
  const absl::StatusOr<v1::BatchResponse> stepped = Ask(*batch, StepRequest(5));
  ASSERT_TRUE(stepped.ok()) << stepped.status();

  absl::StatusOr<sim::SceneDescription> description = scene::BuildSceneDescription(TinyScene(), scene::AssetRootResolver(""), {});
  ASSERT_TRUE(description.ok()) << description.status();
  const std::vector<const sim::ToolCommand*> nobody(description->tools.size(), nullptr);
  absl::StatusOr<std::unique_ptr<sim::World>> world = sim::World::Create(TestContext(), *std::move(description));
  ASSERT_TRUE(world.ok()) << world.status();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE((*world)->Step(nobody).ok());
  const v1::BatchResult& result = stepped->result();
  ASSERT_EQ(result.environments_size(), 4);
  for (int e = 0; e < 4; ++e) {
    EXPECT_EQ(result.environments(e), static_cast<uint32_t>(e));
    EXPECT_EQ(result.state_hashes(e), (*world)->CurrentFrame()->state_hash);
    EXPECT_EQ(result.observations(e), 5);
  }
}

TEST_F(BatchTest, CancelEndsWorkUnderWay) {
  const std::shared_ptr<Batch> batch = NewBatch();
  ASSERT_TRUE(Ask(*batch, OpenRequest(4)).ok());
  const v1::BatchRequest endless = StepRequest(100000);
  std::promise<absl::Status> answer;
  batch->Handle(endless, [&answer](const absl::StatusOr<v1::BatchResponse>& response) { answer.set_value(response.status()); });
  std::thread other([&batch] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    batch->Cancel();
  });
  EXPECT_EQ(answer.get_future().get().code(), absl::StatusCode::kCancelled);
  other.join();
  EXPECT_EQ(Ask(*batch, StepRequest(1)).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(BatchTest, ManyShareAPool) {
  std::atomic<int> done{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c) {
    clients.emplace_back([this, &done] {
      const std::shared_ptr<Batch> batch = NewBatch();
      const absl::StatusOr<v1::BatchResponse> opened = Ask(*batch, OpenRequest(2));
      const absl::StatusOr<v1::BatchResponse> stepped = Ask(*batch, StepRequest(20));
      if (opened.ok() && stepped.ok() && stepped->result().observations(1) == 20) ++done;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(done, 3);
  EXPECT_TRUE(Eventually([this] { return budget_.used() == 0; }));  // the pool lets go of the last one
}

TEST_F(BatchTest, BudgetIsOfAllTogether) {
  EXPECT_TRUE(budget_.Take(1000).ok());
  const absl::Status refused = budget_.Take(25);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("25 environments beside 1000 others; the server has at most 1024"));
  EXPECT_TRUE(budget_.Take(24).ok());
  budget_.Return(1024);
  EXPECT_EQ(budget_.used(), 0U);
}

}  // namespace
}  // namespace palpate::server::batch_test
