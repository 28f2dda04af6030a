#include "bench/bench_broadphase_peers.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#ifdef PALPATE_HAVE_FCL
#include <fcl/broadphase/broadphase_SaP.h>
#include <fcl/broadphase/broadphase_dynamic_AABB_tree.h>
#include <fcl/geometry/shape/box.h>
#endif
#ifdef PALPATE_HAVE_BULLET
#include <BulletCollision/BroadphaseCollision/btAxisSweep3.h>
#include <BulletCollision/BroadphaseCollision/btDbvtBroadphase.h>
#endif

namespace palpate::bench {
namespace {

bool Overlap(const PeerBox& a, const PeerBox& b) {
  bool overlaps = true;
  for (size_t axis = 0; axis < 3; ++axis) overlaps &= a.lower[axis] <= b.upper[axis] && b.lower[axis] <= a.upper[axis];
  return overlaps;
}

// Every pair, one thread.
class BruteForce : public Peer {
 public:
  bool Build(const std::vector<PeerBox>& boxes, double limit_s) override {
    (void)boxes;
    (void)limit_s;
    return true;
  }

  void Step(const std::vector<PeerBox>& boxes) override {
    pairs_.clear();
    for (uint32_t a = 0; a < boxes.size(); ++a) {
      for (uint32_t b = a + 1; b < boxes.size(); ++b) {
        if (Overlap(boxes[a], boxes[b])) pairs_.emplace_back(a, b);
      }
    }
  }

  std::vector<PeerPair> Pairs() const override { return pairs_; }

 private:
  std::vector<PeerPair> pairs_;
};

// A uniform grid of cells as wide as the largest box, one thread: boxes are entered in each cell that they touch, entries sorted by cell,
// and a pair is taken in the one cell that holds the largest of its lower corners.
class UniformGrid : public Peer {
 public:
  bool Build(const std::vector<PeerBox>& boxes, double limit_s) override {
    (void)boxes;
    (void)limit_s;
    return true;
  }

  void Step(const std::vector<PeerBox>& boxes) override {
    pairs_.clear();
    float width_m = 0;
    for (const PeerBox& box : boxes) {
      for (size_t axis = 0; axis < 3; ++axis) width_m = std::max(width_m, box.upper[axis] - box.lower[axis]);
    }
    const double scale = width_m > 0 ? 1 / static_cast<double>(width_m) : 1;
    const auto cell = [&](float x) { return static_cast<int64_t>(std::floor(x * scale)); };
    constexpr int64_t kSide = 1 << 20;  // cells of each axis, about the origin
    const auto key = [&](int64_t x, int64_t y, int64_t z) {
      return (static_cast<uint64_t>(x + kSide) << 42) | (static_cast<uint64_t>(y + kSide) << 21) | static_cast<uint64_t>(z + kSide);
    };
    entries_.clear();
    for (uint32_t i = 0; i < boxes.size(); ++i) {
      const PeerBox& box = boxes[i];
      for (int64_t x = cell(box.lower[0]); x <= cell(box.upper[0]); ++x) {
        for (int64_t y = cell(box.lower[1]); y <= cell(box.upper[1]); ++y) {
          for (int64_t z = cell(box.lower[2]); z <= cell(box.upper[2]); ++z) entries_.emplace_back(key(x, y, z), i);
        }
      }
    }
    std::sort(entries_.begin(), entries_.end());
    for (size_t begin = 0, end = 0; begin < entries_.size(); begin = end) {
      while (end < entries_.size() && entries_[end].first == entries_[begin].first) ++end;
      for (size_t i = begin; i < end; ++i) {
        const PeerBox& a = boxes[entries_[i].second];
        for (size_t j = i + 1; j < end; ++j) {
          const PeerBox& b = boxes[entries_[j].second];
          if (!Overlap(a, b)) continue;
          const uint64_t owner =
              key(cell(std::max(a.lower[0], b.lower[0])), cell(std::max(a.lower[1], b.lower[1])), cell(std::max(a.lower[2], b.lower[2])));
          if (owner == entries_[begin].first) pairs_.emplace_back(entries_[i].second, entries_[j].second);
        }
      }
    }
  }

  std::vector<PeerPair> Pairs() const override { return pairs_; }

 private:
  std::vector<std::pair<uint64_t, uint32_t>> entries_;  // cell and box, which rise together
  std::vector<PeerPair> pairs_;
};

#if defined(PALPATE_HAVE_FCL) || defined(PALPATE_HAVE_BULLET)
PeerPair Ordered(uint32_t a, uint32_t b) { return {std::min(a, b), std::max(a, b)}; }

class Deadline {
 public:
  explicit Deadline(double limit_s) : limit_s_(limit_s) {}
  bool HasPassed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count() > limit_s_; }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double limit_s_;
};
#endif

#ifdef PALPATE_HAVE_FCL

// kRebuilds: all boxes are registered anew in each step.
template <typename Manager, bool kRebuilds = false>
class FclPeer : public Peer {
 public:
  bool Build(const std::vector<PeerBox>& boxes, double limit_s) override {
    const Deadline deadline(limit_s);
    const auto shape = std::make_shared<fcl::Boxd>(1, 1, 1);
    for (uintptr_t i = 0; i < boxes.size(); ++i) {
      objects_.push_back(std::make_unique<fcl::CollisionObjectd>(shape));
      objects_.back()->setUserData(reinterpret_cast<void*>(i));
    }
    Move(boxes);
    Register();
    return !deadline.HasPassed();
  }

  void Step(const std::vector<PeerBox>& boxes) override {
    Move(boxes);
    if constexpr (kRebuilds) {
      manager_.clear();
      Register();
    } else {
      manager_.update();
    }
    pairs_.clear();
    manager_.collide(&pairs_, [](fcl::CollisionObjectd* a, fcl::CollisionObjectd* b, void* pairs) {
      static_cast<std::vector<PeerPair>*>(pairs)->push_back(Ordered(IndexOf(a), IndexOf(b)));
      return false;
    });
  }

  std::vector<PeerPair> Pairs() const override { return pairs_; }

 private:
  static uint32_t IndexOf(const fcl::CollisionObjectd* object) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(object->getUserData()));
  }

  void Register() {
    std::vector<fcl::CollisionObjectd*> pointers;
    for (const auto& object : objects_) pointers.push_back(object.get());
    manager_.registerObjects(pointers);
    manager_.setup();
  }

  // The boxes are set as they are: through poses they would be rounded otherwise, and take longer.
  void Move(const std::vector<PeerBox>& boxes) {
    for (size_t i = 0; i < boxes.size(); ++i) {
      auto& box = const_cast<fcl::AABBd&>(objects_[i]->getAABB());
      for (int axis = 0; axis < 3; ++axis) {
        box.min_[axis] = boxes[i].lower[static_cast<size_t>(axis)];
        box.max_[axis] = boxes[i].upper[static_cast<size_t>(axis)];
      }
    }
  }

  std::vector<std::unique_ptr<fcl::CollisionObjectd>> objects_;
  Manager manager_;
  std::vector<PeerPair> pairs_;
};

#endif

#ifdef PALPATE_HAVE_BULLET

class BulletPeer : public Peer {
 public:
  explicit BulletPeer(std::unique_ptr<btBroadphaseInterface> broadphase) : broadphase_(std::move(broadphase)) {}
  ~BulletPeer() override {
    // Proxies are not taken out one by one, which would be quadratic: the arrays below go with the broad phase.
    if (auto* tree = dynamic_cast<btDbvtBroadphase*>(broadphase_.get())) tree->resetPool(nullptr);
  }

  bool Build(const std::vector<PeerBox>& boxes, double limit_s) override {
    const Deadline deadline(limit_s);
    for (uintptr_t i = 0; i < boxes.size(); ++i) {
      proxies_.push_back(broadphase_->createProxy(Lower(boxes[i]), Upper(boxes[i]), 0, reinterpret_cast<void*>(i), 1, 1, nullptr));
      if (i % 1024 == 0 && deadline.HasPassed()) return false;
    }
    return !deadline.HasPassed();
  }

  void Step(const std::vector<PeerBox>& boxes) override {
    for (size_t i = 0; i < boxes.size(); ++i) broadphase_->setAabb(proxies_[i], Lower(boxes[i]), Upper(boxes[i]), nullptr);
    broadphase_->calculateOverlappingPairs(nullptr);
  }

  std::vector<PeerPair> Pairs() const override {
    const btBroadphasePairArray& array = broadphase_->getOverlappingPairCache()->getOverlappingPairArray();
    std::vector<PeerPair> pairs;
    for (int i = 0; i < array.size(); ++i) pairs.push_back(Ordered(IndexOf(array[i].m_pProxy0), IndexOf(array[i].m_pProxy1)));
    return pairs;
  }

 private:
  static btVector3 Lower(const PeerBox& box) { return {box.lower[0], box.lower[1], box.lower[2]}; }
  static btVector3 Upper(const PeerBox& box) { return {box.upper[0], box.upper[1], box.upper[2]}; }
  static uint32_t IndexOf(const btBroadphaseProxy* proxy) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(proxy->m_clientObject));
  }

  std::unique_ptr<btBroadphaseInterface> broadphase_;
  std::vector<btBroadphaseProxy*> proxies_;
};

#endif

}  // namespace

bool OnlyTouch(const PeerBox& a, const PeerBox& b) {
  for (size_t axis = 0; axis < 3; ++axis) {
    if (a.upper[axis] == b.lower[axis] || b.upper[axis] == a.lower[axis]) return true;
  }
  return false;
}

std::vector<PeerFactory> Peers() {
  std::vector<PeerFactory> peers;
  peers.push_back({.name = "brute_force",
                   .create = [](const std::vector<PeerBox>&) -> std::unique_ptr<Peer> { return std::make_unique<BruteForce>(); }});
  peers.push_back({.name = "uniform_grid",
                   .create = [](const std::vector<PeerBox>&) -> std::unique_ptr<Peer> { return std::make_unique<UniformGrid>(); }});
#ifdef PALPATE_HAVE_FCL
  peers.push_back({.name = "fcl_dynamic_aabb_tree", .create = [](const std::vector<PeerBox>&) -> std::unique_ptr<Peer> {
                     return std::make_unique<FclPeer<fcl::DynamicAABBTreeCollisionManagerd>>();
                   }});
  peers.push_back({.name = "fcl_sap",
                   .pairs = PeerPairs::kFewerTouching,
                   .takes_resizing = false,
                   .max_bodies = 20000,
                   .create = [](const std::vector<PeerBox>&) -> std::unique_ptr<Peer> {
                     return std::make_unique<FclPeer<fcl::SaPCollisionManagerd>>();
                   }});
  peers.push_back(
      {.name = "fcl_sap_rebuilt", .pairs = PeerPairs::kFewerTouching, .create = [](const std::vector<PeerBox>&) -> std::unique_ptr<Peer> {
         return std::make_unique<FclPeer<fcl::SaPCollisionManagerd, true>>();
       }});
#endif
#ifdef PALPATE_HAVE_BULLET
  peers.push_back({.name = "bullet_dbvt", .pairs = PeerPairs::kMore, .create = [](const std::vector<PeerBox>&) -> std::unique_ptr<Peer> {
                     auto tree = std::make_unique<btDbvtBroadphase>();
                     tree->m_deferedcollide = true;
                     return std::make_unique<BulletPeer>(std::move(tree));
                   }});
  peers.push_back(
      {.name = "bullet_axis_sweep", .pairs = PeerPairs::kMore, .create = [](const std::vector<PeerBox>& boxes) -> std::unique_ptr<Peer> {
         // Its world is fixed, and nothing may leave it.
         btVector3 lower(0, 0, 0), upper(0, 0, 0);
         for (const PeerBox& box : boxes) {
           lower.setMin(btVector3(box.lower[0], box.lower[1], box.lower[2]));
           upper.setMax(btVector3(box.upper[0], box.upper[1], box.upper[2]));
         }
         const btVector3 room(20, 20, 20);
         return std::make_unique<BulletPeer>(
             std::make_unique<bt32BitAxisSweep3>(lower - room, upper + room, static_cast<unsigned>(boxes.size()) + 2, nullptr, true));
       }});
#endif
  return peers;
}

std::vector<std::string> AbsentPeers() {
  std::vector<std::string> names;
#ifndef PALPATE_HAVE_FCL
  names.emplace_back("libfcl");
#endif
#ifndef PALPATE_HAVE_BULLET
  names.emplace_back("Bullet");
#endif
  return names;
}

}  // namespace palpate::bench
