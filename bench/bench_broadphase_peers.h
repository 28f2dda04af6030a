#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace palpate::bench {

/// Layout of a 6-DOP in a volume buffer.
struct PeerBox {
  std::array<float, 3> lower = {}, upper = {};
};
using PeerPair = std::pair<uint32_t, uint32_t>;

/// Steps before the counted ones.
inline constexpr int kPeerWarmSteps = 2;

/// A broad phase to compare with: of another library, or a textbook baseline on one thread.
class Peer {
 public:
  virtual ~Peer() = default;
  /// Adds all boxes. False if that took longer than `limit_s`.
  virtual bool Build(const std::vector<PeerBox>& boxes, double limit_s) = 0;
  /// Moves the boxes and finds the pairs.
  virtual void Step(const std::vector<PeerBox>& boxes) = 0;
  /// The pairs (a, b), a < b, of the last step, in any order.
  virtual std::vector<PeerPair> Pairs() const = 0;
};

/// What a peer's pairs are, beside the boxes that overlap or touch.
enum class PeerPairs {
  kExact,          ///< the same
  kMore,           ///< these and others, since it widens its boxes
  kFewerTouching,  ///< may lack boxes that touch without overlapping: it takes the ends that coincide in any order
};

/// Whether two boxes that overlap or touch have no inner point in common.
bool OnlyTouch(const PeerBox& a, const PeerBox& b);

struct PeerFactory {
  std::string name;
  PeerPairs pairs = PeerPairs::kExact;
  /// False: where the lower end of a box falls and its upper end does not, its update links the upper end to itself and does not end.
  bool takes_resizing = true;
  uint32_t max_bodies = UINT32_MAX;  ///< above, rounding alone lets the ends of moving boxes do that
  std::function<std::unique_ptr<Peer>(const std::vector<PeerBox>& boxes)> create;  ///< for a world of about their extent
};

/// Those that this program was built with.
std::vector<PeerFactory> Peers();

/// Names of the libraries it was not built with.
std::vector<std::string> AbsentPeers();

}  // namespace palpate::bench
