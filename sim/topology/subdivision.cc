#include "sim/topology/subdivision.h"

#include <cstddef>
#include <string_view>

namespace palpate::sim {
namespace {

// Children separated by spaces, four points each.
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

constexpr std::array<Subdivision, 64> kSubdivisions = ParseAll(kPatterns);
constexpr std::array<Subdivision, 3> kFullSubdivisions = ParseAll(kFullPatterns);

}  // namespace

const Subdivision& SubdivisionOf(uint32_t mask, InnerDiagonal diagonal) {
  return mask == 63 ? kFullSubdivisions[static_cast<size_t>(diagonal)] : kSubdivisions[mask];
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
