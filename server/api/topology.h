#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "palpate/v1/stream.pb.h"
#include "sim/scene/description.h"
#include "sim/world/body_arrays.h"

namespace palpate::server {

/// What no edit changes, as streams need it; shared by all versions of a scene's topology.
struct SceneStatics {
  std::vector<v1::Color> body_colors;                             ///< of the description's bodies
  std::vector<v1::SurfaceTexture> body_textures;                  ///< likewise; those of bodies without texture coordinates say nothing
  std::vector<std::shared_ptr<const v1::NurbsShape>> body_nurbs;  ///< likewise; null of those without an exact surface
  std::vector<std::shared_ptr<const sim::TextureImage>> images;   ///< of all bodies, each once
  std::vector<v1::ToolShape> tools;
  std::vector<v1::ObstacleSpec> obstacles;
  std::vector<v1::MarkerInfo> markers;    ///< in the order of sim::Frame::markers
  std::vector<v1::JointInfo> joints;      ///< in the order of sim::Frame::joints
  std::vector<v1::SupportInfo> supports;  ///< in the order of sim::FrameNurbs::supports
  v1::Vec3 gravity_m_per_s2;
  bool checks_intersections = false;
};

/// What a scene is made of at one version; immutable, shared by all readers. Making one costs as much as the edit did.
struct SceneTopology {
  uint64_t version = 1;
  std::shared_ptr<const sim::WorldTopology> world;
  std::shared_ptr<const SceneStatics> statics;
  std::vector<uint32_t> parents;        ///< [body] the body it was cut off from, sim::kNoSlot: none
  std::vector<uint64_t> volume_hashes;  ///< [body] mesh_hash of the arrays with_volume
};

/// Precondition: `world` has the description's bodies, and perhaps pieces of them behind.
std::shared_ptr<const SceneTopology> BuildTopology(const sim::SceneDescription& description,
                                                   std::shared_ptr<const sim::WorldTopology> world);

/// The topology of the next version; everything is looked at again if `world` does not say what changed since `before`.
std::shared_ptr<const SceneTopology> AdvanceTopology(const SceneTopology& before, std::shared_ptr<const sim::WorldTopology> world);

/// Slots of one body's arrays that differ between two versions.
struct BodySlots {
  uint32_t body = 0;
  std::vector<uint32_t> triangles;               ///< ascending
  std::vector<uint32_t> tets;                    ///< ascending
  bool fixed_changed = false;                    ///< list of fixed vertices
  bool surface_fixed_changed = false;            ///< places of fixed vertices on the surface
  std::vector<sim::SurfaceSlot> texture_places;  ///< ascending, whose texture coordinate differs
  std::vector<uint32_t> texture_vertices;        ///< vertex slots likewise
};
struct TopologyChange {
  uint64_t from_version = 0;
  uint32_t body_count = 0;        ///< of that version: bodies from there on are new
  std::vector<BodySlots> bodies;  ///< ascending; new bodies left out
};

/// Which slots the newest versions changed. What they hold comes from the arrays of the version that a reader is brought to, so a reader
/// may skip versions and the history holds slot numbers only. Thread-safe.
class TopologyHistory {
 public:
  static constexpr size_t kDefaultVersions = 1024;
  static constexpr size_t kMaxBytes = 8u << 20;

  explicit TopologyHistory(size_t max_versions = kDefaultVersions) : max_versions_(max_versions) {}

  /// Takes the step to `after` in; forgets everything before if `after` does not follow from `before`.
  void Append(const SceneTopology& before, const SceneTopology& after);

  /// What changed between two versions; nothing if a version between is not kept or was no edit (a reset). Precondition: from < to.
  std::optional<TopologyChange> Between(uint64_t from, uint64_t to) const;

 private:
  struct Step {
    uint64_t version = 0;  ///< that it leads to
    uint32_t body_count = 0;
    std::vector<BodySlots> bodies;
    size_t bytes = 0;
  };
  const size_t max_versions_;
  mutable std::mutex mutex_;
  std::deque<Step> steps_;  ///< of consecutive versions
  size_t bytes_ = 0;
};

/// Fills a keyframe except for `scene` and `frame`. `with_nurbs`: bodies with an exact surface have that, and no triangles.
void EncodeTopology(const SceneTopology& topology, bool with_volume, v1::Keyframe& out, bool with_nurbs = false);

/// Overwrites `out` with what brings a reader's arrays from change.from_version to `topology`. False, and `out` unspecified, if a keyframe
/// is shorter.
bool EncodeDelta(const SceneTopology& topology, const TopologyChange& change, bool with_volume, v1::TopologyDelta& out);

}  // namespace palpate::server
