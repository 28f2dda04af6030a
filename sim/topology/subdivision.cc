#include "sim/topology/subdivision.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "sim/topology/closed_mesh.h"

namespace palpate::sim {
namespace {

// Children separated by spaces, four points each. For vertices in a common order.
constexpr std::array<std::string_view, 64> kPatterns = {
    "0123",
    "0423 1324",
    "0315 1325",
    "0534 1325 1435",
    "0612 1326",
    "0426 1326 1624",
    "0615 1326 1625",
    "0645 1326 1625 1546",
    "0317 0723",
    "0723 0734 1437",
    "0317 0537 2735",
    "0534 1437 2735 3745",
    "0617 0726 1637 2736",
    "0726 0647 1637 1746 2736",
    "0617 0756 1637 2736 2657",
    "0645 1637 1746 2736 2657 4756",
    "0812 0823",
    "0428 0823 1824",
    "0815 0538 1825 2835",
    "0538 0845 1825 1548 2835",
    "0812 0826 2836",
    "0426 1824 2836 2648",
    "0815 0856 1825 2836 2658",
    "0645 1825 1548 2836 2658 4856",
    "0817 0728 0823",
    "0728 0823 0847 1748",
    "0817 0538 0758 2835 2857",
    "0538 0845 1748 2835 2857 4758",
    "0817 0728 0826 2836",
    "0726 0647 1748 2836 2867 4768",
    "0817 0756 0768 2836 2657 2867",
    "0645 1748 2836 2657 2867 4756 4768",
    "0319 0912",
    "0429 0934 1924 1439",
    "0319 0915 1925",
    "0934 0945 1925 1439 1549",
    "0619 0912 1639",
    "0429 0649 1924 1639 1946",
    "0615 1925 1639 1956",
    "0645 1925 1639 1546 1956",
    "0319 0917 0729",
    "0729 0934 0947 1439 1749",
    "0319 0917 0759 2957",
    "0934 0945 1439 1749 2957 4759",
    "0619 0917 0729 1639",
    "0729 0647 0967 1639 1746 1769",
    "0617 0756 1639 1769 2957 5967",
    "0645 1639 1746 1769 2957 4756 5967",
    "0819 0912 0938",
    "0429 0938 0849 1924 1948",
    "0819 0915 0938 1925",
    "0938 0845 0859 1925 1548 1958",
    "0819 0912 0968 3869",
    "0429 0649 1924 1948 3869 4968",
    "0815 0856 1925 1958 3869 5968",
    "0645 1925 1548 1958 3869 4856 5968",
    "0817 0729 0938 0879",
    "0729 0938 0847 0879 1748",
    "0817 0938 0759 0879 2957",
    "0938 0845 0859 1748 2957 4758 5879",
    "0817 0729 0968 0879 3869",
    "0729 0647 0967 1748 3869 4768 6879",
    "0817 0756 0768 2957 3869 5967 6879",
    "0645 1748 2957 3869 4756 4768 5967 6879",
};

// All six edges: the four corners and four tets around the inner diagonal.
constexpr std::array<std::string_view, 3> kFullPatterns = {
    "0645 1748 2579 3869 6745 6759 6798 6784",
    "0645 1748 2579 3869 4956 4968 4987 4975",
    "0645 1748 2579 3869 5864 5896 5879 5847",
};

constexpr Subdivision Parse(std::string_view text) {
  Subdivision subdivision{};
  for (size_t i = 0; i < text.size(); i += 5) {
    for (size_t c = 0; c < 4; ++c) subdivision.children[i / 5][c] = static_cast<uint8_t>(text[i + c] - '0');
    ++subdivision.count;
  }
  return subdivision;
}

template <size_t n>
constexpr std::array<Subdivision, n> ParseAll(const std::array<std::string_view, n>& texts) {
  std::array<Subdivision, n> parsed{};
  for (size_t i = 0; i < n; ++i) parsed[i] = Parse(texts[i]);
  return parsed;
}

// Choices of diagonals that no order of the vertices gives, up to numbering: edge 23 alone unsplit; edges 01 and 23 unsplit.
constexpr std::array<std::string_view, 3> kUnorderedPatterns = {
    "0645 1748 5368 5278 5283 4568 4587",
    "6178 6057 6071 2368 2576 2786",
    "6178 6057 6071 6257 6273 6783",
};
constexpr std::array<uint32_t, 3> kUnorderedMasks = {31, 30, 30};

constexpr std::array<Subdivision, 3> kFullSubdivisions = ParseAll(kFullPatterns);

// Whether the points (vertices and middles) of a child are in positive order.
bool IsPositive(const std::array<uint8_t, 4>& child) {
  std::array<std::array<int, 3>, 4> x;  // twice the coordinates in the corner of the unit cube
  for (size_t i = 0; i < 4; ++i) {
    const auto at = [](int vertex, int axis) { return vertex == axis + 1 ? 1 : 0; };
    for (int axis = 0; axis < 3; ++axis) {
      const int p = child[i];
      const auto& edge = kTetEdges[static_cast<size_t>(p < 4 ? 0 : p - 4)];
      x[i][static_cast<size_t>(axis)] = p < 4 ? 2 * at(p, axis) : at(edge[0], axis) + at(edge[1], axis);
    }
  }
  std::array<std::array<int, 3>, 3> d;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t axis = 0; axis < 3; ++axis) d[i][axis] = x[i + 1][axis] - x[0][axis];
  }
  return d[0][0] * (d[1][1] * d[2][2] - d[1][2] * d[2][1]) - d[0][1] * (d[1][0] * d[2][2] - d[1][2] * d[2][0]) +
             d[0][2] * (d[1][0] * d[2][1] - d[1][1] * d[2][0]) >
         0;
}

bool HasEdge(const Subdivision& subdivision, uint8_t p, uint8_t q) {
  return std::any_of(subdivision.children.begin(), subdivision.children.begin() + subdivision.count, [p, q](const auto& child) {
    return std::find(child.begin(), child.end(), p) != child.end() && std::find(child.begin(), child.end(), q) != child.end();
  });
}

// [split edges][higher diagonals]
using Table = std::array<std::array<Subdivision, 16>, 64>;

// Which faces of a tet with these split edges have two of them, and which of those have the higher diagonal in the subdivision.
std::pair<uint32_t, uint32_t> DiagonalsOf(uint32_t mask, const Subdivision& subdivision) {
  uint32_t has_choice = 0;
  uint32_t higher = 0;
  for (size_t f = 0; f < 4; ++f) {
    for (size_t i = 0; i < 3; ++i) {
      const int apex = kOppositeFaces[f][i];
      const int low = kOppositeFaces[f][i == 0 ? 1 : 0];
      const int high = kOppositeFaces[f][i == 2 ? 1 : 2];
      const int to_low = TetEdgeBetween(apex, low);
      if ((mask >> to_low & 1) == 0 || (mask >> TetEdgeBetween(apex, high) & 1) == 0 || (mask >> TetEdgeBetween(low, high) & 1) != 0)
        continue;
      has_choice |= 1U << f;
      if (HasEdge(subdivision, static_cast<uint8_t>(high), static_cast<uint8_t>(4 + to_low))) higher |= 1U << f;
    }
  }
  return {has_choice, higher};
}

void Put(uint32_t mask, const Subdivision& subdivision, Table* table) {
  const auto [has_choice, chosen] = DiagonalsOf(mask, subdivision);
  for (uint32_t higher = 0; higher < 16; ++higher) {
    Subdivision& entry = (*table)[mask][higher];
    if ((higher & has_choice) == chosen && entry.count == 0) entry = subdivision;
  }
}

// Puts a pattern into the table in all numberings of the vertices. What is there stays.
void PutAllNumberings(uint32_t mask, const Subdivision& pattern, Table* table) {
  std::array<int, 4> number = {0, 1, 2, 3};
  do {
    std::array<uint8_t, 10> point;
    uint32_t new_mask = 0;
    for (size_t i = 0; i < 4; ++i) point[i] = static_cast<uint8_t>(number[i]);
    for (size_t e = 0; e < 6; ++e) {
      const int edge = TetEdgeBetween(number[static_cast<size_t>(kTetEdges[e][0])], number[static_cast<size_t>(kTetEdges[e][1])]);
      point[4 + e] = static_cast<uint8_t>(4 + edge);
      new_mask |= (mask >> e & 1) << edge;
    }
    Subdivision renumbered = pattern;
    for (auto& child : renumbered.children) {
      for (auto& p : child) p = point[p];
      if (!IsPositive(child)) std::swap(child[0], child[1]);
    }
    Put(new_mask, renumbered, table);
  } while (std::next_permutation(number.begin(), number.end()));
}

Table MakeTable() {
  Table table{};
  const auto patterns = ParseAll(kPatterns);
  for (uint32_t mask = 0; mask < 64; ++mask) Put(mask, patterns[mask], &table);
  for (uint32_t mask = 0; mask < 64; ++mask) PutAllNumberings(mask, patterns[mask], &table);
  const auto unordered = ParseAll(kUnorderedPatterns);
  for (size_t i = 0; i < unordered.size(); ++i) PutAllNumberings(kUnorderedMasks[i], unordered[i], &table);
  return table;
}

}  // namespace

const Subdivision& SubdivisionOf(uint32_t mask, InnerDiagonal diagonal, uint32_t higher) {
  static const Table table = MakeTable();
  return mask == 63 ? kFullSubdivisions[static_cast<size_t>(diagonal)] : table[mask][higher];
}

InnerDiagonal ShortestInnerDiagonal(const std::array<Eigen::Vector3d, 4>& p) {
  // Twice the diagonals between the middles of opposite edges.
  const double d67 = (p[0] + p[3] - p[1] - p[2]).squaredNorm();
  const double d49 = (p[0] + p[1] - p[2] - p[3]).squaredNorm();
  const double d58 = (p[0] + p[2] - p[1] - p[3]).squaredNorm();
  if (d67 <= d49 && d67 <= d58) return InnerDiagonal::k67;
  return d49 <= d58 ? InnerDiagonal::k49 : InnerDiagonal::k58;
}

}  // namespace palpate::sim
