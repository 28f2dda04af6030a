#include <limits>

#include "sim/mesh/mesh_io.h"
#include "tests/sim/mesh/mesh_builders.h"

namespace palpate::sim::io_msh_test {
namespace {

// Two tets on a common triangle, and a boundary triangle, a line and a point besides.
const TetMesh kTwoTets = {{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1.5}}, {{0, 1, 2, 3}, {1, 2, 3, 4}}};

constexpr std::string_view kText1 = R"($NOD
5
10 0 0 0
20 1 0 0
30 0 1 0
40 0 0 1
5 1 1 1.5
$ENDNOD
$ELM
5
1 15 0 1 1 10
2 1 0 1 2 10 20
3 2 0 -1 3 10 30 20
4 4 7 1 4 10 20 30 40
5 4 7 1 4 20 30 40 5
$ENDELM
)";

constexpr std::string_view kText22 = R"($MeshFormat
2.2 0 8
$EndMeshFormat
$PhysicalNames
1
3 7 "liver $Nodes"
$EndPhysicalNames
$Nodes
5
10 0 0 0
20 1 0 0
30 0 1 0
40 0 0 1
5 1 1 1.5
$EndNodes
$Elements
5
1 15 2 0 1 10
2 1 2 0 1 10 20
3 2 2 0 1 10 30 20
4 4 2 7 1 10 20 30 40
5 4 3 7 1 0 20 30 40 5
$EndElements
)";

constexpr std::string_view kText41 = R"($MeshFormat
4.1 0 8
$EndMeshFormat
$Entities
0 0 1 1
1 0 0 0 1 1 1 0 0
1 0 0 0 1 1 1 0 1 1
$EndEntities
$Nodes
2 5 5 40
2 1 1 3
10
20
30
0 0 0 0.5 0.5
1 0 0 0.5 0.5
0 1 0 0.5 0.5
3 -1 0 2
40
5
0 0 1
1 1 1.5
$EndNodes
$Elements
2 3 1 3
2 1 2 1
1 10 30 20
3 1 4 2
2 10 20 30 40
3 20 30 40 5
$EndElements
)";

std::string Binary22(bool is_big_endian) {
  Bytes b(is_big_endian);
  b.Text("$MeshFormat\n2.2 1 8\n").Value<int32_t>(1).Text("\n$EndMeshFormat\n$Nodes\n5\n");
  const int32_t tags[] = {10, 20, 30, 40, 5};
  for (size_t v = 0; v < 5; ++v) {
    b.Value(tags[v]);
    for (int k = 0; k < 3; ++k) b.Value(kTwoTets.vertices[v][k]);
  }
  b.Text("\n$EndNodes\n$Elements\n4\n");
  b.Values<int32_t>({15, 1, 2}).Values<int32_t>({1, 0, 1, 10});
  b.Values<int32_t>({2, 1, 2}).Values<int32_t>({2, 0, 1, 10, 30, 20});
  b.Values<int32_t>({4, 2, 2}).Values<int32_t>({3, 7, 1, 10, 20, 30, 40}).Values<int32_t>({4, 7, 1, 20, 30, 40, 5});
  return b.Text("\n$EndElements\n").str();
}

template <typename SizeType>
std::string Binary41(bool is_big_endian) {
  Bytes b(is_big_endian);
  b.Text("$MeshFormat\n4.1 1 ").Text(std::to_string(sizeof(SizeType))).Text("\n").Value<int32_t>(1).Text("\n$EndMeshFormat\n");
  b.Text("$Entities\n").Values<SizeType>({0, 0, 0, 0});
  b.Text("\n$EndEntities\n");
  b.Text("$Nodes\n").Values<SizeType>({2, 5, 5, 40});
  b.Values<int32_t>({2, 1, 1}).Value<SizeType>(3);
  b.Values<SizeType>({10, 20, 30});
  for (size_t v = 0; v < 3; ++v) {
    for (int k = 0; k < 3; ++k) b.Value(kTwoTets.vertices[v][k]);
    b.Values<double>({0.5, 0.5});
  }
  b.Values<int32_t>({3, -1, 0}).Value<SizeType>(2);
  b.Values<SizeType>({40, 5});
  for (size_t v = 3; v < 5; ++v) {
    for (int k = 0; k < 3; ++k) b.Value(kTwoTets.vertices[v][k]);
  }
  b.Text("\n$EndNodes\n$Elements\n").Values<SizeType>({2, 3, 1, 3});
  b.Values<int32_t>({2, 1, 2}).Value<SizeType>(1);
  b.Values<SizeType>({1, 10, 30, 20});
  b.Values<int32_t>({3, 1, 4}).Value<SizeType>(2);
  b.Values<SizeType>({2, 10, 20, 30, 40, 3, 20, 30, 40, 5});
  return b.Text("\n$EndElements\n").str();
}

std::vector<std::string> AllVariants() {
  return {std::string(kText1),       std::string(kText22),     std::string(kText41),      Binary22(false),         Binary22(true),
          Binary41<uint64_t>(false), Binary41<uint64_t>(true), Binary41<uint32_t>(false), Binary41<uint32_t>(true)};
}

std::string Replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result(text);
  const size_t at = result.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return result.replace(at, what.size(), by);
}

TEST(MshTest, ReadsEveryVariant) {
  for (const std::string& file : AllVariants()) {
    const auto mesh = ParseMsh(file, "two.msh");
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    ExpectSameMesh(*mesh, kTwoTets);
  }
}

TEST(MshTest, ReadsForeignLineEndsAndNumberForms) {
  std::string file(kText22);
  file = Replaced(file, "40 0 0 1", "40  +0.0e+00\t-0.  1.E0");
  std::string foreign;
  for (const char c : file) {
    if (c == '\n') foreign += '\r';
    foreign += c;
  }
  const auto mesh = ParseMsh(foreign, "two.msh");
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  ExpectSameMesh(*mesh, kTwoTets);
}

TEST(MshTest, ElementsMayComeBeforeNodes) {
  const std::string_view text = kText22;
  const size_t nodes = text.find("$Nodes\n5");
  const size_t elements = text.find("$Elements");
  const std::string file =
      std::string(text.substr(0, nodes)) + std::string(text.substr(elements)) + std::string(text.substr(nodes, elements - nodes));
  const auto mesh = ParseMsh(file, "two.msh");
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  ExpectSameMesh(*mesh, kTwoTets);
}

TEST(MshTest, RoundTripKeepsEveryBit) {
  const TetMesh mesh = ShakenBox(4, 5);
  for (const MshVersion version : {MshVersion::k22, MshVersion::k41}) {
    const auto read = ParseMsh(FormatMsh(mesh, version), "box.msh");
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectSameMesh(*read, mesh);
  }
  TetMesh extreme = UnitTet();
  for (auto& v : extreme.vertices) v = v * 1e-100 / 3.0;
  const auto read = ParseMsh(FormatMsh(extreme), "tiny.msh");
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectSameMesh(*read, extreme);
}

TEST(MshTest, EveryBeginningIsRefused) {
  for (const std::string& file : AllVariants()) {
    const size_t end = file.rfind("$E");
    ExpectBeginningsFail(file, file.find('\n', end), [](std::string_view part) { return ParseMsh(part, "part.msh").status(); });
  }
}

// Any changed byte gives a mesh or an error, never a crash, and the error is printable.
TEST(MshTest, AnyChangedByteIsSurvived) {
  for (const std::string& file : AllVariants()) {
    for (size_t i = 0; i < file.size(); ++i) {
      for (const int change : {1, 0x80, 0xff}) {
        std::string changed = file;
        changed[i] = static_cast<char>(changed[i] ^ change);
        const auto mesh = ParseMsh(changed, "changed.msh");
        if (mesh.ok()) {
          EXPECT_TRUE(ValidateTetMesh(*mesh).ok());
          continue;
        }
        for (const char c : mesh.status().message()) EXPECT_TRUE(c >= ' ' && c <= '~') << mesh.status();
      }
    }
  }
}

TEST(MshTest, NamesLineAndElementOfTextErrors) {
  const auto expect = [](std::string_view what, std::string_view by, std::initializer_list<std::string_view> parts) {
    ExpectInvalid(ParseMsh(Replaced(kText22, what, by), "two.msh"), parts);
  };
  expect("2.2 0 8", "4.0 0 8", {"two.msh:2", "version 4", "4.1"});
  expect("2.2 0 8", "3 0 8", {"two.msh:2", "version 3"});
  expect("2.2 0 8", "2.2 2 8", {"two.msh:2", "file type 2"});
  expect("2.2 0 8", "2.2 0 4", {"two.msh:2", "data size 4"});
  expect("30 0 1 0", "30 0 nan 0", {"two.msh:12", "coordinate", "\"nan\"", "finite"});
  expect("30 0 1 0", "30 0 1e999 0", {"two.msh:12", "\"1e999\"", "finite"});
  expect("30 0 1 0", "30 0 0x1p3 0", {"two.msh:12", "\"0x1p3\""});
  expect("30 0 1 0", "30 0 1,5 0", {"two.msh:12", "\"1,5\""});
  expect("30 0 1 0", "30 0 \xff\xfe 0", {"two.msh:12", R"("\xff\xfe")"});
  expect("30 0 1 0", "-30 0 1 0", {"two.msh:12", "\"-30\"", "at least 0"});
  expect("30 0 1 0", "99999999999999999999 0 1 0", {"two.msh:12", "below 2^64"});
  expect("30 0 1 0", "20 0 1 0", {"two.msh:12", "second node with tag 20"});
  expect("$Nodes\n5", "$Nodes\n6", {"two.msh:15", "\"$EndNodes\""});
  expect("$Nodes\n5", "$Nodes\n4", {"two.msh:14", "$EndNodes expected"});
  expect("$Nodes\n5", "$Nodes\n18446744073709551615", {"two.msh:9", "18446744073709551615 nodes announced"});
  expect("$Elements\n5", "$Elements\n1000000", {"two.msh:17", "1000000 elements announced"});
  expect("4 4 2 7 1 10 20 30 40", "4 4 2 7 1 10 20 30 41", {"two.msh:21", "tet 0", "no node with tag 41"});
  expect("4 4 2 7 1 10 20 30 40", "4 4 2 7 1 10 20 30 30", {"two.msh:21", "tet 0", "used twice"});
  expect("4 4 2 7 1 10 20 30 40", "4 4 2 7 1 20 10 30 40", {"two.msh:21", "tet 0", "inverted"});
  expect("4 4 2 7 1 10 20 30 40", "4 5 2 7 1 10 20 30 40 1 2 3 4", {"two.msh:21", "element 4", "hexahedron", "tetrahedra"});
  expect("4 4 2 7 1 10 20 30 40", "4 11 2 7 1 10 20 30 40", {"two.msh:21", "second-order tetrahedron"});
  expect("4 4 2 7 1 10 20 30 40", "4 77 2 7 1 10 20 30 40", {"two.msh:21", "type 77", "not known"});
  expect("4 4 2 7 1 10 20 30 40", "4 2 2 7 1 10 20 30", {"two.msh:10", "vertex 0", "no tet"});
  expect("$EndElements\n", "$EndElements\nnonsense", {"two.msh:24", "\"nonsense\""});
  expect("$EndElements\n", "$EndElements\n$Nodes\n", {"two.msh:24", "a second $Nodes"});
  expect("$EndPhysicalNames", "$EndPhysical", {"two.msh:7", "$EndPhysicalNames expected"});
  expect("$MeshFormat", "$Nodes", {"two.msh:1", "$Nodes before $MeshFormat"});
  ExpectInvalid(ParseMsh("", "empty.msh"), {"empty.msh", "no $MeshFormat"});
  ExpectInvalid(ParseMsh("$MeshFormat\n4.1 0 8\n$EndMeshFormat\n", "a.msh"), {"a.msh", "no $Nodes"});
}

// Files of the first version say nothing but the names of their sections.
TEST(MshTest, NamesLineOfVersionOneErrors) {
  const auto expect = [](std::string_view what, std::string_view by, std::initializer_list<std::string_view> parts) {
    ExpectInvalid(ParseMsh(Replaced(kText1, what, by), "two.msh"), parts);
  };
  expect("4 4 7 1 4 10 20 30 40", "4 4 7 1 3 10 20 30", {"two.msh:14", "element 4", "3 nodes", "tetrahedron", "has 4"});
  expect("4 4 7 1 4 10 20 30 40", "4 5 7 1 8 1 2 3 4 5 6 7 8", {"two.msh:14", "element 4", "hexahedron", "tetrahedra"});
  expect("4 4 7 1 4 10 20 30 40", "4 4 7 1 4 10 20 30 41", {"two.msh:14", "tet 0", "no node with tag 41"});
  expect("4 4 7 1 4 10 20 30 40", "4 4 7 1 4 20 10 30 40", {"two.msh:14", "tet 0", "inverted", "--flip-inverted"});
  expect("$NOD\n5", "$NOD\n4", {"two.msh:7", "$ENDNOD expected"});
  expect("$ELM\n5", "$ELM\n99999999999", {"two.msh:10", "99999999999 elements announced"});
  expect("$ENDNOD", "$EndNOD", {"two.msh:8", "$ENDNOD expected"});
  expect("$ENDELM\n", "$ENDELM\n$NOD\n", {"two.msh:17", "a second $NOD"});
  expect("$ENDELM\n", "$ENDELM\n$Nodes\n", {"two.msh:17", "$Nodes", "MSH 1"});
  expect("$ENDELM\n", "$ENDELM\n$MeshFormat\n2.2 0 8\n$EndMeshFormat\n", {"two.msh:18", "$MeshFormat", "MSH 1"});
  ExpectInvalid(ParseMsh(Replaced(kText22, "$EndElements\n", "$EndElements\n$NOD\n"), "two.msh"), {"two.msh:24", "$NOD", "MSH 2"});
  ExpectInvalid(ParseMsh("$NOD\n0\n$ENDNOD\n", "a.msh"), {"a.msh", "no $ELM"});
}

TEST(MshTest, NamesLineOfBlockErrors) {
  const auto expect = [](std::string_view what, std::string_view by, std::initializer_list<std::string_view> parts) {
    ExpectInvalid(ParseMsh(Replaced(kText41, what, by), "two.msh"), parts);
  };
  expect("2 1 1 3\n", "2 1 1 6\n", {"two.msh:11", "node block 0", "6 nodes exceed the 5"});
  expect("2 1 1 3\n", "4 1 1 3\n", {"two.msh:11", "dimension 4"});
  expect("2 1 1 3\n", "2 1 2 3\n", {"two.msh:11", "parametric flag 2"});
  expect("2 5 5 40", "2 6 5 40", {"two.msh:22", "6 nodes announced", "have 5"});
  expect("3 1 4 2\n", "3 1 4 3\n", {"two.msh:28", "element block 1", "exceed the 3"});
  expect("2 3 1 3\n", "2 4 1 3\n", {"two.msh:30", "4 elements announced", "have 3"});
  expect("2 3 1 3\n2 1 2 1", "2 99999999999 1 3\n2 1 2 99999999999", {"two.msh:26", "99999999999 elements announced"});
  expect("3 20 30 40 5", "3 20 30 40 6", {"two.msh:30", "tet 1", "tag 6"});
}

TEST(MshTest, NamesByteOfBinaryErrors) {
  std::string file = Binary22(false);
  const size_t first_node = file.find("$Nodes\n5\n") + 9;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::memcpy(file.data() + first_node + 4, &nan, 8);
  ExpectInvalid(ParseMsh(file, "two.msh"), {"two.msh, byte " + std::to_string(first_node + 4), "coordinate", "finite"});

  file = Binary22(false);
  file[20] = 3;
  ExpectInvalid(ParseMsh(file, "two.msh"), {"two.msh, byte 20", "byte-order mark"});

  file = Binary22(false);
  const size_t first_run = file.find("$Elements\n4\n") + 12;
  const int32_t length = 1 << 30;
  std::memcpy(file.data() + first_run + 4, &length, 4);
  ExpectInvalid(ParseMsh(file, "two.msh"), {"byte " + std::to_string(first_run), "run of 1073741824 elements", "1..4"});
  const int32_t negative = -1;
  std::memcpy(file.data() + first_run + 4, &negative, 4);
  ExpectInvalid(ParseMsh(file, "two.msh"), {"byte " + std::to_string(first_run + 4), "-1 is negative"});

  file = Binary41<uint64_t>(false);
  const size_t counts = file.find("$Nodes\n") + 7;
  const uint64_t huge = uint64_t{1} << 61;
  std::memcpy(file.data() + counts + 8, &huge, 8);
  ExpectInvalid(ParseMsh(file, "two.msh"), {"byte " + std::to_string(counts + 32), "2305843009213693952 nodes announced"});
}

TEST(MshTest, OptionsRepairWhatTheyName) {
  std::string file = Replaced(kText22, "10 20 30 40", "20 10 30 40");
  file = Replaced(file, "20 30 40 5", "30 20 40 5");
  ExpectInvalid(ParseMsh(file, "two.msh"), {"two.msh:21", "tet 0", "inverted", "all 2 tets"});
  const auto flipped = ParseMsh(file, "two.msh", {.flip_inverted = true});
  ASSERT_TRUE(flipped.ok()) << flipped.status();
  EXPECT_EQ(flipped->tets, (std::vector<std::array<uint32_t, 4>>{{1, 0, 3, 2}, {2, 1, 4, 3}}));

  file = Replaced(Replaced(kText22, "$Nodes\n5\n", "$Nodes\n6\n7 9 9 9\n"), "3 2 2 0 1 10 30 20", "3 15 2 0 1 7");
  ExpectInvalid(ParseMsh(file, "two.msh"), {"two.msh:10", "vertex 0", "no tet"});
  const auto dropped = ParseMsh(file, "two.msh", {.drop_unused_vertices = true});
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  ExpectSameMesh(*dropped, kTwoTets);
}

TEST(MshTest, GroupsComeBackWithTheirNames) {
  TetMesh mesh = kTwoTets;
  mesh.tet_groups = {7, 0};
  mesh.groups = {{3, "no tets"}, {7, "left \"lobe\""}};
  for (const MshVersion version : {MshVersion::k22, MshVersion::k41}) {
    const auto read = ParseMsh(FormatMsh(mesh, version), "groups.msh");
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectSameMesh(*read, kTwoTets);
    EXPECT_EQ(read->tet_groups, mesh.tet_groups);
    ASSERT_EQ(read->groups.size(), 2U);
    EXPECT_EQ(read->groups[0].name, "no tets");
    EXPECT_EQ(read->groups[1].number, 7U);
    EXPECT_EQ(read->groups[1].name, "left _lobe_") << "a quote would end the name";
  }
  // one group without a name is none
  mesh.tet_groups = {2, 2};
  mesh.groups.clear();
  EXPECT_TRUE(ParseMsh(FormatMsh(mesh), "one.msh")->tet_groups.empty());
  EXPECT_TRUE(ParseMsh(FormatMsh(kTwoTets, MshVersion::k22), "none.msh")->tet_groups.empty());
}

TEST(MshTest, BadGroupsAreRefused) {
  TetMesh mesh = kTwoTets;
  mesh.tet_groups = {1, 2};
  mesh.groups = {{1, "one"}};
  const std::string file = FormatMsh(mesh);
  ExpectInvalid(ParseMsh(Replaced(file, "\"one\"", "one"), "two.msh"), {"two.msh:6", "in quotes"});
  ExpectInvalid(ParseMsh(Replaced(file, "$PhysicalNames\n1\n", "$PhysicalNames\n99999999\n"), "two.msh"), {"two.msh:5", "physical names"});
  ExpectInvalid(ParseMsh(Replaced(file, "$Entities\n0 0 0 3", "$Entities\n0 0 0 99999999"), "two.msh"), {"entities"});
}

}  // namespace
}  // namespace palpate::sim::io_msh_test
