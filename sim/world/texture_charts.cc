#include "sim/world/texture_charts.h"

#include <utility>

#include "absl/container/flat_hash_map.h"

namespace palpate::sim {
namespace {

constexpr uint32_t kUnassigned = 0xffffffffU;

class ChartAssigner {
 public:
  explicit ChartAssigner(std::span<const ChartedTriangle> triangles) : triangles_(triangles), charts_(triangles.size(), kUnassigned) {
    for (uint32_t t = 0; t < triangles.size(); ++t) {
      for (size_t k = 0; k < 3; ++k) at_edge_[EdgeOf(t, k)].push_back(t);
    }
  }

  std::vector<uint32_t> Assign() {
    for (uint32_t first = 0; first < triangles_.size(); ++first) {
      if (charts_[first] != kUnassigned) continue;
      std::vector<uint32_t> front = {first};
      charts_[first] = Place(first, 0);
      for (size_t i = 0; i < front.size(); ++i) {
        const uint32_t t = front[i];
        for (size_t k = 0; k < 3; ++k) {
          for (const uint32_t other : at_edge_[EdgeOf(t, k)]) {
            if (charts_[other] != kUnassigned) continue;
            charts_[other] = Place(other, charts_[t]);
            front.push_back(other);
          }
        }
      }
    }
    return std::move(charts_);
  }

 private:
  using Edge = std::pair<uint32_t, uint32_t>;
  struct Corner {
    SurfaceZoneId zone = 0;
    uint32_t chart = 0;
    std::array<float, 2> value{};
  };

  Edge EdgeOf(uint32_t t, size_t k) const { return std::minmax(triangles_[t].vertices[k], triangles_[t].vertices[(k + 1) % 3]); }

  bool Fits(const ChartedTriangle& triangle, uint32_t chart) const {
    for (size_t c = 0; c < 3; ++c) {
      const auto known = at_vertex_.find(triangle.vertices[c]);
      if (known == at_vertex_.end()) continue;
      for (const Corner& corner : known->second) {
        if (corner.zone == triangle.zone && corner.chart == chart && corner.value != triangle.corners[c]) return false;
      }
    }
    return true;
  }

  /// The chart that the triangle goes into: `preferred` if it fits, else the first that does.
  uint32_t Place(uint32_t t, uint32_t preferred) {
    const ChartedTriangle& triangle = triangles_[t];
    uint32_t chart = preferred;
    if (!Fits(triangle, chart)) {
      for (chart = 0; !Fits(triangle, chart);) ++chart;
    }
    for (size_t c = 0; c < 3; ++c) {
      std::vector<Corner>& corners = at_vertex_[triangle.vertices[c]];
      bool is_known = false;
      for (const Corner& corner : corners) is_known = is_known || (corner.zone == triangle.zone && corner.chart == chart);
      if (!is_known) corners.push_back({triangle.zone, chart, triangle.corners[c]});
    }
    return chart;
  }

  std::span<const ChartedTriangle> triangles_;
  std::vector<uint32_t> charts_;
  absl::flat_hash_map<Edge, std::vector<uint32_t>> at_edge_;
  absl::flat_hash_map<uint32_t, std::vector<Corner>> at_vertex_;
};

}  // namespace

std::vector<uint32_t> AssignCharts(std::span<const ChartedTriangle> triangles) { return ChartAssigner(triangles).Assign(); }

}  // namespace palpate::sim
