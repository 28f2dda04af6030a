#include "sim/mesh/mesh_io.h"
#include "tests/sim/mesh/mesh_builders.h"

namespace palpate::sim::io_tetgen_test {
namespace {

const TetMesh kTwoTets = {{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1.5}}, {{0, 1, 2, 3}, {1, 2, 3, 4}}};

constexpr std::string_view kNodes = R"(# generated
5 3 1 1  # five points, one attribute, markers

1 0 0 0  7.5 -1
2 1 0 0  7.5 0
3 0 1 0  7.5 1
4 0 0 1  7.5 1
5 1 1 1.5 7.5 1
# end
)";
constexpr std::string_view kTets = "2 4 0\n1 1 2 3 4\n2 2 3 4 5\n";

absl::StatusOr<TetMesh> Parse(std::string_view nodes, std::string_view tets, const ReadOptions& options = {}) {
  return ParseTetGen(nodes, "two.node", tets, "two.ele", options);
}

std::string Replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result(text);
  const size_t at = result.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return result.replace(at, what.size(), by);
}

TEST(TetGenTest, ReadsNumbersFromOne) {
  const auto mesh = Parse(kNodes, kTets);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  ExpectSameMesh(*mesh, kTwoTets);
}

TEST(TetGenTest, ReadsNumbersFromZeroAndAttributes) {
  const auto mesh = Parse("5 3\r\n0 0 0 0\r\n1 1 0 0\r\n2 0 1 0\r\n3 0 0 1\r\n4 1 1 1.5", "2 4 2\n0 0 1 2 3 1 2\n1 1 2 3 4 1 2");
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  ExpectSameMesh(*mesh, kTwoTets);
}

TEST(TetGenTest, EveryBeginningIsRefused) {
  ExpectBeginningsFail(kNodes, kNodes.find("1.5 7.5 1") + 9, [](std::string_view part) { return Parse(part, kTets).status(); });
  ExpectBeginningsFail(kTets, kTets.size() - 1, [](std::string_view part) { return Parse(kNodes, part).status(); });
}

TEST(TetGenTest, AnyChangedByteIsSurvived) {
  const std::string both = std::string(kNodes) + std::string(kTets);
  for (size_t i = 0; i < both.size(); ++i) {
    for (const int change : {1, 0x10, 0x80, 0xff}) {
      std::string changed = both;
      changed[i] = static_cast<char>(changed[i] ^ change);
      const std::string_view view = changed;
      const auto mesh = Parse(view.substr(0, kNodes.size()), view.substr(kNodes.size()));
      if (mesh.ok()) {
        EXPECT_TRUE(ValidateTetMesh(*mesh).ok());
        continue;
      }
      for (const char c : mesh.status().message()) EXPECT_TRUE(c >= ' ' && c <= '~') << mesh.status();
    }
  }
}

TEST(TetGenTest, NamesFileLineAndElement) {
  const auto expect_node = [](std::string_view what, std::string_view by, std::initializer_list<std::string_view> parts) {
    ExpectInvalid(Parse(Replaced(kNodes, what, by), kTets), parts);
  };
  expect_node("5 3 1 1", "5 2 1 1", {"two.node", "dimension 2", "3"});
  expect_node("5 3 1 1", "5 3 1 1 1", {"two.node:2", "node-count"});
  expect_node("5 3 1 1", "-5 3 1 1", {"two.node:2", "node-count"});
  expect_node("5 3 1 1", "5 3 1 2", {"two.node", "marker flag 2"});
  expect_node("5 3 1 1", "5 3 99999999999 1", {"two.node", "99999999999 attributes"});
  expect_node("5 3 1 1", "6 3 1 1", {"two.node", "the file ends", "node 5"});
  expect_node("5 3 1 1", "4 3 1 1", {"two.node:8", "more than the 4 nodes"});
  expect_node("5 3 1 1", "18446744073709551615 3 1 1", {"two.node", "18446744073709551615 nodes announced"});
  expect_node("5 3 1 1", "5 3 0 1", {"two.node:4", "node 0", "5 values expected, found 6"});
  expect_node("3 0 1 0  7.5 1", "4 0 1 0  7.5 1", {"two.node:6", "node 2", "\"4\", must be 3"});
  expect_node("1 0 0 0  7.5 -1", "2 0 0 0  7.5 -1", {"two.node:4", "node 0", "must be 0 or 1"});
  expect_node("3 0 1 0", "3 0 nan 0", {"two.node:6", "node 2", "\"nan\""});
  expect_node("3 0 1 0", "3 0 1e400 0", {"two.node:6", "node 2", "\"1e400\""});
  expect_node("5 1 1 1.5", "5 1 1 -1.5", {"two.ele:3", "tet 1", "inverted"});

  const auto expect_tet = [](std::string_view what, std::string_view by, std::initializer_list<std::string_view> parts) {
    ExpectInvalid(Parse(kNodes, Replaced(kTets, what, by)), parts);
  };
  expect_tet("2 4 0", "2 10 0", {"two.ele", "10 nodes per tet", "must be 4"});
  expect_tet("2 4 0", "2000 4 0", {"two.ele", "2000 tets announced"});
  expect_tet("2 4 0", "3 4 0", {"two.ele:2", "3 tets announced"});
  expect_tet("2 4 0\n", "3 4 0  # two of three follow\n# but no more\n", {"two.ele", "the file ends", "tet 2"});
  expect_tet("2 4 0", "1 4 0", {"two.ele:3", "more than the 1 tets"});
  expect_tet("2 4 0\n1 1 2 3 4\n2 2 3 4 5\n", "0 4 0\n", {"two.ele", "no tets"});
  expect_tet("2 2 3 4 5", "2 2 3 4 6", {"two.ele:3", "tet 1", "\"6\" is outside 1..5"});
  expect_tet("2 2 3 4 5", "2 2 3 4 0", {"two.ele:3", "tet 1", "\"0\" is outside 1..5"});
  expect_tet("2 2 3 4 5", "2 2 3 4 x", {"two.ele:3", "tet 1", "\"x\""});
  expect_tet("2 2 3 4 5", "2 2 3 4 4", {"two.ele:3", "tet 1", "used twice"});
  expect_tet("2 2 3 4 5", "2 1 3 2 4", {"two.ele:3", "tet 1"});
  ExpectInvalid(Parse("", kTets), {"two.node", "the file ends"});
  ExpectInvalid(Parse(kNodes, ""), {"two.ele", "the file ends"});
}

TEST(TetGenTest, OtherOrderIsFlippedOnlyOnRequest) {
  const std::string_view tets = "2 4 0\n1 2 1 3 4\n2 3 2 4 5\n";
  ExpectInvalid(Parse(kNodes, tets), {"two.ele:2", "tet 0", "inverted", "all 2 tets"});
  EXPECT_TRUE(Parse(kNodes, tets, {.flip_inverted = true}).ok());
}

}  // namespace
}  // namespace palpate::sim::io_tetgen_test
