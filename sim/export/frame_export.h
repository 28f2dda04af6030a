#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "gpu/base/status.h"
#include "sim/export/gltf.h"
#include "sim/export/pvd_series.h"
#include "sim/export/vtk_xml.h"
#include "sim/scene/description.h"
#include "sim/world/frame.h"

namespace palpate::sim {

/// The surface of a body at one topology without free slots: what a file holds. Vertices are in the order of their slots; where the texture
/// has a seam, those with another texture coordinate on its other side come again at the end.
class SurfaceLayout {
 public:
  /// `u_period`: as TextureDescription::u_period of the body; triangles that cross the seam get vertices of their own there.
  explicit SurfaceLayout(const BodyArrays& arrays, double u_period = 0);

  const std::vector<std::array<uint32_t, 3>>& triangles() const { return triangles_; }
  const std::vector<uint16_t>& triangle_zones() const { return zones_; }                     ///< indices into BodyArrays::surface_zones
  const std::vector<std::array<float, 2>>& texture_coordinates() const { return texture_; }  ///< by vertex, or empty
  const std::vector<uint32_t>& vertex_slots() const { return slots_; }  ///< [vertex] place in Frame::surface_positions_m
  size_t vertex_count() const { return slots_.size(); }

  /// Values of the vertices, out of three values for each surface slot.
  std::vector<float> Gather(std::span<const float> by_slot) const;
  /// Unit normals by area, the same for vertices that the seam doubled. `by_slot`: positions.
  std::vector<float> Normals(std::span<const float> by_slot) const;

 private:
  void SplitBySeams(const BodyArrays& arrays, const std::vector<uint32_t>& triangle_slots);

  std::vector<uint32_t> slots_;
  std::vector<std::array<uint32_t, 3>> triangles_;
  std::vector<uint16_t> zones_;
  std::vector<std::array<float, 2>> texture_;
};

/// The volume of a body at one topology, without free slots.
class VolumeLayout {
 public:
  explicit VolumeLayout(const BodyArrays& arrays);

  const std::vector<std::array<uint32_t, 4>>& tets() const { return tets_; }
  const std::vector<uint32_t>& vertex_slots() const { return vertex_slots_; }  ///< [vertex] place in Frame::volume_positions_m
  const std::vector<uint32_t>& tet_slots() const { return tet_slots_; }        ///< [tet]

  std::vector<float> Gather(std::span<const float> by_slot) const;

 private:
  std::vector<uint32_t> vertex_slots_, tet_slots_;
  std::vector<std::array<uint32_t, 4>> tets_;
};

/// What a frame does not have of a body; each may be empty and is left out of files then.
struct BodyExtras {
  std::vector<Eigen::Vector3d> rest_positions_m;  ///< [vertex slot], World::RestPositions: gives the displacement
  std::vector<float> velocities_m_per_s;          ///< [vertex slot * 3], World::ReadVolumeVelocities
  std::vector<uint16_t> tet_zones;                ///< [tet slot], World::TetZones
  double u_period = 0;                            ///< of the texture
  std::shared_ptr<const GltfImage> image;         ///< of the texture
};

/// The periods and pictures of textures, [body]: a piece has those of the body that it comes from. Rest positions and the like are left
/// empty.
std::vector<BodyExtras> TextureExtras(const SceneDescription& description, const WorldTopology& topology);

/// The volume of a body: point data `displacement`, `velocity`, cell data `zone` as far as they are known. Errors: FailedPrecondition (the
/// frame has no volume, see World::SetVolumeWanted), InvalidArgument (extras of another size), as WriteVtu.
absl::Status WriteBodyVtu(const Frame& frame, size_t body, const BodyExtras& extras, ByteSink* sink);
/// Its surface: point data `Normals`, and `TextureCoordinates`, `displacement`, `velocity` as far as they are known; cell data `zone`.
absl::Status WriteBodyVtp(const Frame& frame, size_t body, const BodyExtras& extras, ByteSink* sink);
/// The surface of one body, coloured by zone.
absl::Status WriteBodyGlb(const Frame& frame, size_t body, const BodyExtras& extras, ByteSink* sink);
/// All bodies' surfaces of a moment, coloured by zone. `extras`: [body] or empty.
absl::Status WriteFrameGlb(const Frame& frame, std::span<const BodyExtras> extras, ByteSink* sink);

/// Files of a running scene by time:
///
///   STEM.surface.pvd  STEM.volume.pvd   collections that ParaView opens, complete after each Add
///   STEM.frames/BODY_STEP.vtp, .vtu     the files that they name, each replaced as a whole
///   STEM.glb                            the surfaces as an animation, written by Finish
class FrameSeries {
 public:
  struct Options {
    bool has_surface = true;          ///< VTP
    bool has_volume = false;          ///< VTU; frames need World::SetVolumeWanted
    bool has_animation = false;       ///< GLB
    std::vector<std::string> bodies;  ///< names; empty: all. Pieces that come off a body go with it
  };
  /// Begins anew: collections that exist are emptied. The folder of `stem` must exist. Errors: as FileSink.
  static absl::StatusOr<FrameSeries> Create(const std::filesystem::path& stem, Options options);
  /// Goes on after an interruption: what the collections hold from `before_s` on is dropped. An animation begins anew. Errors: as Create
  /// and PvdSeries::Resume.
  static absl::StatusOr<FrameSeries> Resume(const std::filesystem::path& stem, Options options, double before_s);
  FrameSeries(FrameSeries&&) noexcept;
  FrameSeries& operator=(FrameSeries&&) noexcept;
  ~FrameSeries();

  /// A frame, later than the last one. `extras`: [body] or empty. Errors name the file.
  absl::Status Add(const Frame& frame, std::span<const BodyExtras> extras = {});
  /// Writes the animation, if one is wanted. Nothing may be added afterwards.
  absl::Status Finish();

 private:
  class Impl;
  explicit FrameSeries(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace palpate::sim
