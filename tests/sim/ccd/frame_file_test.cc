#include "sim/ccd/frame_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

namespace palpate::sim::frame_file_test {
namespace {

using testing::HasSubstr;

template <typename T>
void Append(std::string* bytes, T value, bool big_endian) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  if (big_endian != (std::endian::native == std::endian::big)) std::reverse(raw, raw + sizeof(T));
  bytes->append(raw, sizeof(T));
}

// Four vertices and two triangles, with a property and an element to skip.
template <typename Coordinate>
std::string MakePly(bool big_endian, Coordinate special = 1, int32_t last_index = 3) {
  const std::string type = sizeof(Coordinate) == 8 ? "double" : "float";
  std::string bytes =
      std::string("ply\nformat binary_") + (big_endian ? "big" : "little") + "_endian 1.0\ncomment made here\nelement vertex 4\nproperty " +
      type + " x\nproperty " + type + " y\nproperty uchar red\nproperty " + type +
      " z\nelement extra 1\nproperty list uchar short values\nelement face 2\nproperty list uchar int vertex_indices\nend_header\n";
  for (int v = 0; v < 4; ++v) {
    Append(&bytes, static_cast<Coordinate>(0.1 + v), big_endian);
    Append(&bytes, v == 2 ? special : static_cast<Coordinate>(-v), big_endian);
    Append(&bytes, uint8_t{7}, big_endian);
    Append(&bytes, static_cast<Coordinate>(1e-3 * v), big_endian);
  }
  Append(&bytes, uint8_t{2}, big_endian);
  Append(&bytes, int16_t{1}, big_endian);
  Append(&bytes, int16_t{2}, big_endian);
  for (const auto& corners : {std::array<int32_t, 3>{0, 1, 2}, std::array<int32_t, 3>{1, 2, last_index}}) {
    Append(&bytes, uint8_t{3}, big_endian);
    for (const int32_t corner : corners) Append(&bytes, corner, big_endian);
  }
  return bytes;
}

TEST(FrameFile, ReadsBothByteOrdersAndPrecisions) {
  for (const bool big_endian : {false, true}) {
    const auto floats = ParsePlyFrame(MakePly<float>(big_endian), "a.ply");
    ASSERT_TRUE(floats.ok()) << floats.status();
    EXPECT_FALSE(floats->has_double);
    ASSERT_EQ(floats->positions_m.size(), 4U);
    EXPECT_EQ(floats->positions_m[3], (std::array<double, 3>{3.1F, -3, 0.003F}));
    EXPECT_EQ(floats->triangles, (std::vector<std::array<uint32_t, 3>>{{0, 1, 2}, {1, 2, 3}}));
    const auto doubles = ParsePlyFrame(MakePly<double>(big_endian), "a.ply");
    ASSERT_TRUE(doubles.ok()) << doubles.status();
    EXPECT_TRUE(doubles->has_double);
    EXPECT_EQ(doubles->positions_m[1], (std::array<double, 3>{1.1, -1, 1e-3}));
  }
}

TEST(FrameFile, EveryCutIsNoticed) {
  const std::string bytes = MakePly<float>(false);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto result = ParsePlyFrame(std::string_view(bytes).substr(0, size), "cut.ply");
    ASSERT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << size;
    ASSERT_THAT(std::string(result.status().message()), HasSubstr("cut.ply")) << size;
  }
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(FrameFile, BadFilesAreRefused) {
  const std::string good = MakePly<float>(false);
  const struct {
    std::string bytes, what;
  } cases[] = {
      {"solid\n", "\"ply\""},
      {Replaced(good, "binary_little_endian", "ascii"), "format"},
      {Replaced(good, "format binary_little_endian 1.0\n", ""), "names no format"},
      {Replaced(good, "element vertex 4", "element vertex 99999999"), "announced"},
      {Replaced(good, "element vertex 4", "element vertex 18446744073709551615"), "announced"},
      {Replaced(good, "element vertex 4", "element vertex -4"), "expected"},
      {Replaced(good, "property float x", "property float w"), "no x, y and z"},
      {Replaced(good, "property float x", "property int x"), "no float or double"},
      {Replaced(good, "property float x", "property real x"), "unknown type"},
      {Replaced(good, "list uchar int vertex_indices", "list uchar int corners"), "no list vertex_indices"},
      {Replaced(good, "list uchar int vertex_indices", "list float int vertex_indices"), "no integer"},
      {Replaced(good, "element face 2", "element vertex 2"), "twice"},
      {Replaced(good, "comment made here", "surprise"), "unknown line"},
      {MakePly<float>(false, NAN), "vertex 2: y is not finite"},
      {MakePly<double>(true, INFINITY), "vertex 2: y is not finite"},
      {MakePly<float>(false, 1, 4), "there is no vertex 4"},
      {MakePly<float>(false, 1, -1), "is no vertex"},
  };
  for (const auto& c : cases) {
    const auto result = ParsePlyFrame(c.bytes, "x.ply");
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << c.what;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(c.what));
  }
  EXPECT_EQ(ReadPlyFrame("no such file").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace palpate::sim::frame_file_test
