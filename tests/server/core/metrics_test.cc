#include "server/core/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::server::metrics_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, SceneLabelsComeAndGoWithTheScene) {
  Metrics metrics(nullptr);
  {
    const std::shared_ptr<SceneMetrics> scene = metrics.AddScene("liver");
    sim::Frame frame;
    frame.step_ms = 5;
    frame.stage_ms = {1, 1, 1, 1, 1, 0};
    frame.contacts.resize(3);
    frame.contact_statistics.acting_count = 5;
    frame.contact_statistics.contact_count = 70;
    frame.contact_statistics.truncated_vertices = 6;
    frame.contact_statistics.intersection_count = 2;
    frame.contact_statistics.filter_ms = 4;
    frame.contact_statistics.self_searches = 5;
    frame.contact_statistics.listed_searches = 4;
    frame.contact_statistics.renewed_lists = 1;
    frame.max_penetration_m = 0.25;
    scene->OnStep(frame, 120);
    scene->OnStep(frame, 120);
    scene->OnOverrun();
    scene->OnModelSent(0.001);
    scene->OnFramesDropped(4);
    const std::string text = metrics.Text();
    EXPECT_THAT(text, HasSubstr("palpate_steps_total{scene=\"liver\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("palpate_step_seconds_count{scene=\"liver\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("palpate_step_seconds_sum{scene=\"liver\"} 0.01\n"));
    EXPECT_THAT(text, HasSubstr("palpate_stage_seconds_count{scene=\"liver\",stage=\"solve\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("palpate_contacts{scene=\"liver\"} 3\n"));
    EXPECT_THAT(text, HasSubstr("palpate_surface_contacts{scene=\"liver\"} 5\n"));
    EXPECT_THAT(text, HasSubstr("palpate_surface_pairs{scene=\"liver\"} 70\n"));
    EXPECT_THAT(text, HasSubstr("palpate_truncated_vertices{scene=\"liver\"} 6\n"));
    EXPECT_THAT(text, HasSubstr("palpate_intersections_total{scene=\"liver\"} 4\n"));
    EXPECT_THAT(text, HasSubstr("palpate_self_searches_total{scene=\"liver\"} 10\n"));
    EXPECT_THAT(text, HasSubstr("palpate_listed_self_searches_total{scene=\"liver\"} 8\n"));
    EXPECT_THAT(text, HasSubstr("palpate_renewed_pair_lists_total{scene=\"liver\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("palpate_contact_seconds_sum{scene=\"liver\",stage=\"filter\"} 0.008\n"));
    EXPECT_THAT(text, HasSubstr("palpate_max_penetration_meters{scene=\"liver\"} 0.25\n"));
    EXPECT_THAT(text, HasSubstr("palpate_overruns_total{scene=\"liver\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("palpate_haptic_model_age_seconds_count{scene=\"liver\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("palpate_frames_dropped_total{scene=\"liver\"} 4\n"));
    EXPECT_THAT(text, HasSubstr("palpate_build_info{version=\""));
  }
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("liver")));
}

TEST(Metrics, HoldersOfOneIdShareAndTheLastRemoves) {
  Metrics metrics(nullptr);
  std::shared_ptr<SceneMetrics> old_scene = metrics.AddScene("a");
  const std::shared_ptr<SceneMetrics> new_scene = metrics.AddScene("a");
  old_scene->OnOverrun();
  old_scene.reset();
  new_scene->OnOverrun();
  EXPECT_THAT(metrics.Text(), HasSubstr("palpate_overruns_total{scene=\"a\"} 2\n"));
}

TEST(Metrics, SourcesAreAskedWhenRead) {
  Metrics metrics(nullptr);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("palpate_scenes{")));
  metrics.SetSceneStates([] { return std::vector<std::pair<std::string, int>>{{"playing", 2}}; });
  metrics.OnRpcError(absl::StatusCode::kNotFound);
  metrics.OnStreamOpened(StreamKind::kWatch);
  metrics.OnStreamBytes(StreamKind::kWatch, 100);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("palpate_scenes{state=\"playing\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("palpate_rpc_errors_total{code=\"NOT_FOUND\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("palpate_streams{kind=\"watch\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("palpate_stream_bytes_total{kind=\"watch\"} 100\n"));
}

}  // namespace
}  // namespace palpate::server::metrics_test
