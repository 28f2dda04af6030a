#include "server/web/frame_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace palpate::server::frame_reader_test {
namespace {

using Frames = std::vector<std::pair<int, std::string>>;

std::string Header(int bits, uint64_t length, bool is_masked = true) {
  std::string out = {static_cast<char>(bits)};
  const int mask = is_masked ? 0x80 : 0;
  if (length < 126) {
    out.push_back(static_cast<char>(mask | static_cast<int>(length)));
  } else {
    const int bytes = length < 65536 ? 2 : 8;
    out.push_back(static_cast<char>(mask | (bytes == 2 ? 126 : 127)));
    for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(length >> (8 * i)));
  }
  return out;
}

std::string Frame(int bits, const std::string& payload) {
  const std::string mask = "\x01\x80\xff\x7e";
  std::string out = Header(bits, payload.size()) + mask;
  for (size_t i = 0; i < payload.size(); ++i) out.push_back(static_cast<char>(payload[i] ^ mask[i % 4]));
  return out;
}

TEST(FrameReader, CutsWhateverThePortions) {
  const Frames sent = {
      {0x82, ""},    {0x02, "ab"}, {0x80, std::string(125, 'c')}, {0x82, std::string(126, 'd')}, {0x82, std::string(70000, 'e')},
      {0x89, "ping"}};
  std::string bytes;
  for (const auto& [bits, payload] : sent) bytes += Frame(bits, payload);
  for (const size_t portion : {size_t{1}, size_t{7}, size_t{4096}, bytes.size()}) {
    FrameReader reader(100000);
    Frames got;
    for (size_t at = 0; at < bytes.size(); at += portion) {
      ASSERT_TRUE(reader
                      .Feed(std::string_view(bytes).substr(at, portion),
                            [&](int bits, std::string_view payload) {
                              got.emplace_back(bits, payload);
                              return true;
                            })
                      .ok());
    }
    EXPECT_EQ(got, sent) << portion;
  }
}

TEST(FrameReader, RefusesByTheHeaderAlone) {
  const auto feed = [](const std::string& bytes) {
    FrameReader reader(1000);
    return reader.Feed(bytes, [](int, std::string_view) { return true; }).code();
  };
  EXPECT_EQ(feed(Header(0x82, 1000)), absl::StatusCode::kOk);
  EXPECT_EQ(feed(Header(0x82, 1001)), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(feed(Header(0x82, uint64_t{1} << 40)), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(feed(Header(0x82, UINT64_MAX)), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(feed(Header(0x89, 126)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(feed(Header(0x82, 1, false)), absl::StatusCode::kInvalidArgument);
}

TEST(FrameReader, StopsWhenToldTo) {
  FrameReader reader(1000);
  int count = 0;
  const auto stop = [&](int, std::string_view) { return ++count < 2; };
  EXPECT_EQ(reader.Feed(Frame(0x82, "a") + Frame(0x82, "b") + Frame(0x82, "c"), stop).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(count, 2);
}

}  // namespace
}  // namespace palpate::server::frame_reader_test
