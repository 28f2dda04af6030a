#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <Eigen/Core>

#include "sim/world/frame.h"
#include "sim/world/world.h"

// The tables behind ProbeSet: what there is to measure, with units.
namespace palpate::sim {

/// What a quantity consists of, and so which columns it has.
enum class QuantityShape {
  kScalar,
  kVector,    ///< x, y, z; also norm
  kRotation,  ///< unit quaternion: w, x, y, z
  kHash,      ///< 64 bits as two numbers that a double holds exactly: high, low
};
inline constexpr size_t kMaxComponents = 4;

/// What is kept between frames, for as long as the topology is the same.
struct TopologyMeasures {
  std::shared_ptr<const WorldTopology> topology;
  std::vector<uint32_t> roots;  ///< [body] body of the scene that it is a piece of; its own number if it is none
  std::map<uint32_t, std::vector<Eigen::Vector3d>> rest_positions_m;
};

/// Measures that several quantities of one frame share.
class FrameMeasures {
 public:
  struct Surface {
    double volume_m3 = 0, area_m2 = 0;
    Eigen::Vector3d moment_m4{0, 0, 0};  ///< volume times centroid
    Eigen::Vector3d low_m{0, 0, 0}, high_m{0, 0, 0};
    uint32_t triangle_count = 0;
  };

  /// Keeps references. `world` may be null.
  FrameMeasures(const Frame& frame, const World* world, TopologyMeasures& kept);

  const Frame& frame() const { return frame_; }
  const World* world() const { return world_; }
  /// Of the closed surface of a body, exact up to the rounding of its positions.
  const Surface& SurfaceOf(uint32_t body);
  /// Largest way of a surface vertex from its place at rest; NaN without a world.
  double MaxDisplacement_m(uint32_t body);
  /// Where a vertex of the body's mesh, given by its slot, is now; NaN where it is not on the surface. O(surface).
  void MeasureSurfaceVertex(uint32_t body, uint32_t vertex, double* position_m) const;
  /// The body of the scene that a body, or piece of one, was at first.
  uint32_t RootOf(uint32_t body) const { return kept_.roots[body]; }
  /// A body of the scene with all its pieces.
  std::vector<uint32_t> PiecesOf(uint32_t root) const;

 private:
  const Frame& frame_;
  const World* world_;
  TopologyMeasures& kept_;
  std::map<uint32_t, Surface> surfaces_;
};

/// Which contacts count: [body of the scene], [tool, then one for obstacles]. Empty: all.
struct ContactFilter {
  std::vector<bool> bodies, others;
};

template <typename... Subject>
struct Quantity {
  std::string_view name;
  std::string_view unit;
  QuantityShape shape = QuantityShape::kScalar;
  void (*measure)(FrameMeasures& measures, Subject... subject, double* out) = nullptr;
  bool is_wall_clock = false;
};
using SceneQuantity = Quantity<>;
using IndexedQuantity = Quantity<uint32_t>;
using BodyQuantity = Quantity<std::span<const uint32_t>>;
using ContactQuantity = Quantity<const ContactFilter&>;

std::span<const SceneQuantity> SceneQuantities();
std::span<const IndexedQuantity> ToolQuantities();
std::span<const IndexedQuantity> MarkerQuantities();
/// Of a body, or of several as one.
std::span<const BodyQuantity> BodyQuantities();
/// With tools and obstacles; the filter's others are these.
std::span<const ContactQuantity> ContactQuantities();
/// Between bodies; the filter's others are the other bodies, and a force is that on the first of the two.
std::span<const ContactQuantity> SurfaceContactQuantities();

}  // namespace palpate::sim
