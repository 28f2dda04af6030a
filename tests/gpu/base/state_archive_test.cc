#include "gpu/base/state_archive.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace palpate::state_archive_test {

enum class Place : uint32_t {};

struct Inner {
  uint16_t small = 0;
  double large = 0;

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [a, b] = *this;
    archive(a, b);
  }
  bool operator==(const Inner&) const = default;
};

/// Something of every kind that an archive takes.
struct Everything {
  bool flag = false;
  int32_t number = 0;
  Place place{};
  std::string text;
  std::vector<uint32_t> packed;
  std::vector<Inner> objects;
  std::vector<std::vector<float>> nested;
  std::array<Inner, 2> pair_of_objects;
  std::array<uint32_t, 3> triple{};
  std::pair<uint32_t, std::string> pair;
  std::optional<Inner> nothing, something;
  IndexedVector<Place, double> indexed;
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> map;
  absl::flat_hash_set<uint64_t> set;
  Eigen::Vector3d vector = Eigen::Vector3d::Zero();
  Eigen::Quaterniond rotation = Eigen::Quaterniond::Identity();
  Eigen::VectorXd column;
  Eigen::MatrixXd matrix;
};

template <typename Archive>
void VisitState(Archive& archive, Everything& value) {
  auto& [flag, number, place, text, packed, objects, nested, pair_of_objects, triple, pair, nothing, something, indexed, map, set, vector,
         rotation, column, matrix] = value;
  archive.Enter("Everything");
  archive(flag, number, place, text, packed, objects, nested, pair_of_objects, triple, pair, nothing, something, indexed, map, set, vector,
          rotation, column, matrix);
}

namespace {

using ::testing::HasSubstr;

Everything Example() {
  Everything e;
  e.flag = true;
  e.number = -7;
  e.place = Place{9};
  e.text = "text";
  e.packed = {1, 2, 3};
  e.objects = {{1, 0.5}, {2, -0.25}};
  e.nested = {{1.5F}, {}, {2.5F, 3.5F}};
  e.pair_of_objects = {Inner{3, 1}, Inner{4, 2}};
  e.triple = {7, 8, 9};
  e.pair = {5, "five"};
  e.something = Inner{6, 6};
  e.indexed = {1.0, 2.0};
  for (uint32_t k = 0; k < 100; ++k) e.map[k * 7919 % 1000] = {k, k + 1};
  for (uint64_t k = 0; k < 100; ++k) e.set.insert(k * 104729 % 1009);
  e.vector = {1, 2, 3};
  e.rotation = Eigen::Quaterniond(0.5, 0.5, -0.5, 0.5);
  e.column = Eigen::VectorXd::LinSpaced(5, 0, 1);
  e.matrix = Eigen::MatrixXd::Random(2, 3);
  return e;
}

std::string BytesOf(const Everything& e) {
  StateWriter writer;
  writer(e);
  return writer.Take();
}

TEST(StateArchiveTest, ReadsBackWhatItWrote) {
  const Everything e = Example();
  const std::string bytes = BytesOf(e);
  Everything back;
  StateReader reader(bytes, "test");
  reader(back);
  ASSERT_TRUE(reader.Finish().ok()) << reader.status();
  EXPECT_EQ(back.flag, e.flag);
  EXPECT_EQ(back.number, e.number);
  EXPECT_EQ(back.place, e.place);
  EXPECT_EQ(back.text, e.text);
  EXPECT_EQ(back.packed, e.packed);
  EXPECT_EQ(back.objects, e.objects);
  EXPECT_EQ(back.nested, e.nested);
  EXPECT_EQ(back.pair_of_objects, e.pair_of_objects);
  EXPECT_EQ(back.triple, e.triple);
  EXPECT_EQ(back.pair, e.pair);
  EXPECT_EQ(back.nothing, e.nothing);
  EXPECT_EQ(back.something, e.something);
  EXPECT_EQ(back.indexed, e.indexed);
  EXPECT_EQ(back.map, e.map);
  EXPECT_EQ(back.set, e.set);
  EXPECT_EQ(back.vector, e.vector);
  EXPECT_EQ(back.rotation.coeffs(), e.rotation.coeffs());
  EXPECT_EQ(back.column, e.column);
  EXPECT_EQ(back.matrix, e.matrix);
}

TEST(StateArchiveTest, SameValuesGiveTheSameBytes) {
  const Everything a = Example();
  Everything b = Example();
  // The same keys, come to in another order and with another room.
  b.map.clear();
  b.map.reserve(4096);
  for (uint32_t k = 100; k-- > 0;) b.map[k * 7919 % 1000] = {k, k + 1};
  b.matrix = a.matrix;
  EXPECT_EQ(BytesOf(a), BytesOf(b));
  // Little-endian, as long as the values.
  StateWriter writer;
  writer(uint32_t{0x01020304}, true, std::string("ab"), std::vector<uint16_t>{5});
  EXPECT_EQ(writer.Take(), std::string("\x04\x03\x02\x01"
                                       "\x01"
                                       "\x02\0\0\0\0\0\0\0ab"
                                       "\x01\0\0\0\0\0\0\0\x05\0",
                                       4 + 1 + 10 + 10));
}

TEST(StateArchiveTest, SaysWhereItEnds) {
  const std::string bytes = BytesOf(Example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    Everything back;
    StateReader reader(std::string_view(bytes).substr(0, size), "section test");
    reader(back);
    ASSERT_FALSE(reader.Finish().ok()) << size;
    EXPECT_THAT(std::string(reader.status().message()), HasSubstr("section test")) << size;
    if (size >= 4) {
      EXPECT_THAT(std::string(reader.status().message()), HasSubstr("Everything, byte")) << size;
    }
  }
  Everything back;
  StateReader longer(bytes + "x", "test");
  longer(back);
  EXPECT_THAT(std::string(longer.Finish().message()), HasSubstr("1 bytes are left"));
  StateReader other(std::string_view("\1\2\3\4", 4), "test");
  other.Enter("Everything");
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("does not begin Everything"));
}

TEST(StateArchiveTest, TakesNoMoreMemoryThanItIsGiven) {
  // A count of 2^60 of each kind, with nothing behind it.
  const std::string count("\0\0\0\0\0\0\0\x10", 8);
  const auto expect_refused = [&](auto value) {
    StateReader reader(count, "test");
    reader(value);
    EXPECT_THAT(std::string(reader.status().message()), HasSubstr("more than what is left"));
  };
  expect_refused(std::vector<double>());
  expect_refused(std::vector<Inner>());
  expect_refused(std::string());
  expect_refused(absl::flat_hash_map<uint32_t, Inner>());
  expect_refused(absl::flat_hash_set<uint64_t>());
  Eigen::MatrixXd matrix;
  StateReader reader(count + count, "test");
  reader(matrix);
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr("is longer than what is left"));
}

TEST(StateArchiveTest, SurvivesAnyBytes) {
  std::mt19937 random(1);
  const std::string bytes = BytesOf(Example());
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    for (int k = 0; k < 1 + i % 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    Everything back;
    StateReader reader(damaged, "test");
    reader(back);
    refused += reader.Finish().ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 300);
  std::string flag(1, '\2');
  StateReader reader(flag, "test");
  bool value = false;
  reader(value);
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr("a flag is 2"));
}

TEST(StateArchiveTest, FirstErrorStays) {
  StateReader reader(std::string_view("\1", 1), "test");
  reader.Check(false, "this is wrong");
  reader.Check(false, "and that");
  uint8_t value = 5;
  reader(value);
  EXPECT_EQ(value, 5);
  EXPECT_THAT(std::string(reader.Finish().message()), HasSubstr("this is wrong"));
}

TEST(Crc32cTest, IsCastagnolis) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);            // the check value of the catalogues
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(""), 0U);
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes.push_back(static_cast<char>(i * 37));
  for (size_t at = 0; at <= bytes.size(); ++at) {
    EXPECT_EQ(Crc32c(std::string_view(bytes).substr(at), Crc32c(std::string_view(bytes).substr(0, at))), Crc32c(bytes)) << at;
  }
}

}  // namespace
}  // namespace palpate::state_archive_test
