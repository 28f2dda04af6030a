#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace palpate::bench {

/// Self-collision candidates of a moving mesh by the methods that the view test was published against, in one thread on the host. All of
/// them stop at pairs of triangles whose swept volumes overlap; the elementary tests that would follow are not done, and not timed.
class TriangleTree {
 public:
  enum class Volume { kAabb, kDop16 };
  enum class Culling { kNone, kNormalCones };

  struct Counts {
    uint64_t overlap_tests = 0;  ///< of volumes
    uint64_t pairs = 0;          ///< of triangles that do not share an edge
    uint64_t cones = 0;          ///< subtrees that a normal cone and a contour excluded
  };

  /// Top-down halves along the longest side, built once over the positions [x, y, z of each vertex, m].
  TriangleTree(Volume volume, Culling culling, const std::vector<std::array<uint32_t, 3>>& triangles,
               const std::vector<float>& positions_m);

  /// Refits the tree to the step and goes through it with itself.
  Counts Step(const std::vector<float>& starts_m, const std::vector<float>& ends_m);

 private:
  struct Cone {
    std::array<double, 3> axis = {};
    double cosine = 1;  // of the half angle; below 0: no cone
  };
  struct Node {
    uint32_t first = 0, last = 0;                  // triangles of the order
    uint32_t left = 0;                             // 0: a leaf; the right child is the one after it
    std::vector<std::array<uint32_t, 2>> contour;  // edges with one triangle of the node, with cones only
  };

  void Split(uint32_t node, const std::vector<float>& positions_m);
  void FindContours();
  void Refit(const std::vector<float>& starts_m, const std::vector<float>& ends_m);
  bool Overlap(uint32_t a, uint32_t b);
  bool IsFlat(uint32_t node, const std::vector<float>& starts_m, const std::vector<float>& ends_m);
  void Within(uint32_t node, const std::vector<float>& starts_m, const std::vector<float>& ends_m);
  void Between(uint32_t a, uint32_t b);

  Volume volume_;
  Culling culling_;
  uint32_t sides_;  // values of one volume: least and largest along each axis
  std::vector<std::array<uint32_t, 3>> triangles_;
  std::vector<uint32_t> order_;
  std::vector<Node> nodes_;
  std::vector<float> volumes_;
  std::vector<Cone> cones_;
  Counts counts_;
};

}  // namespace palpate::bench
