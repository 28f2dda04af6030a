#include "sim/record/edit_log.h"

#include <string>

#include <gtest/gtest.h>

namespace palpate::record::edit_log_test {
namespace {

TEST(EditLog, RemembersTheNewestKeys) {
  EditLog log;
  v1::EditSceneRequest request;
  v1::EditSceneResponse response;
  log.Remember(request, response);  // without a key
  EXPECT_EQ(log.size(), 0U);
  for (size_t i = 0; i <= EditLog::kMaxKeys; ++i) {
    request.set_key(std::to_string(i));
    response.set_step(i);
    log.Remember(request, response);
  }
  EXPECT_EQ(log.size(), EditLog::kMaxKeys);
  request.set_key("0");
  EXPECT_FALSE(log.Find(request)->has_value());
  request.set_key("1");
  ASSERT_TRUE(log.Find(request)->has_value());
  EXPECT_EQ((*log.Find(request))->step(), 1U);
  request.set_expected_topology_version(3);
  EXPECT_EQ(log.Find(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EditLog, HoldsNoMoreThanItsBytes) {
  EditLog log;
  v1::EditSceneRequest request;
  v1::EditSceneResponse response;
  response.add_outcomes()->set_note(std::string(5 << 20, 'x'));
  for (int i = 0; i < 20; ++i) {
    request.set_key(std::to_string(i));
    log.Remember(request, response);
    EXPECT_LE(log.size_bytes(), EditLog::kMaxBytes);
    EXPECT_TRUE(log.Find(request)->has_value()) << "the newest stays";
  }
  EXPECT_EQ(log.size(), 6U);
  // One answer beyond all bounds is kept alone, so that the request is not done twice.
  request.set_key("large");
  response.mutable_outcomes(0)->set_note(std::string(EditLog::kMaxBytes + 1, 'x'));
  log.Remember(request, response);
  EXPECT_TRUE(log.Find(request)->has_value());
  EXPECT_EQ(log.size(), 1U);
}

TEST(EditLog, ComesBackFromACheckpoint) {
  EditLog log;
  v1::EditSceneRequest request;
  v1::EditSceneResponse response;
  for (int i = 0; i < 3; ++i) {
    request.set_key(std::to_string(i));
    response.set_step(static_cast<uint64_t>(i));
    log.Remember(request, response);
  }
  v1::SceneState state;
  log.Export(&state);
  EditLog other;
  other.Import(state);
  EXPECT_EQ(other.size(), 3U);
  EXPECT_EQ(other.size_bytes(), log.size_bytes());
  request.set_key("1");
  ASSERT_TRUE(other.Find(request).ok());
  EXPECT_EQ((*other.Find(request))->step(), 1U);
  request.add_edits();
  EXPECT_EQ(other.Find(request).status().code(), absl::StatusCode::kInvalidArgument) << "another request under the same key";
}

}  // namespace
}  // namespace palpate::record::edit_log_test
