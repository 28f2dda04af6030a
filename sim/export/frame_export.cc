#include "sim/export/frame_export.h"

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/export/surface_normals.h"

namespace palpate::sim {
namespace {

/// `Slots`: numbers of places among `by_slot`, three values each.
std::vector<float> GatherThree(const std::vector<uint32_t>& slots, std::span<const float> by_slot) {
  std::vector<float> out;
  out.reserve(slots.size() * 3);
  for (const uint32_t slot : slots) {
    const std::span<const float> value = by_slot.subspan(size_t{3} * slot, 3);
    out.insert(out.end(), value.begin(), value.end());
  }
  return out;
}

/// Numbers the slots that elements use, in their order, and gives the elements by these numbers.
template <typename Slot, size_t N>
std::vector<std::array<uint32_t, N>> Compact(const std::vector<std::array<Slot, N>>& elements, size_t slot_count,
                                             std::vector<uint32_t>* slots, std::vector<uint32_t>* element_slots) {
  constexpr std::array<Slot, N> kFree{};
  std::vector<uint32_t> number(slot_count, kNoSlot);
  for (uint32_t e = 0; e < elements.size(); ++e) {
    if (elements[e] == kFree) continue;
    element_slots->push_back(e);
    for (const Slot v : elements[e]) number[static_cast<uint32_t>(v)] = 0;
  }
  for (uint32_t v = 0; v < number.size(); ++v) {
    if (number[v] == kNoSlot) continue;
    number[v] = static_cast<uint32_t>(slots->size());
    slots->push_back(v);
  }
  std::vector<std::array<uint32_t, N>> out;
  out.reserve(element_slots->size());
  for (const uint32_t e : *element_slots) {
    std::array<uint32_t, N>& element = out.emplace_back();
    for (size_t c = 0; c < N; ++c) element[c] = number[static_cast<uint32_t>(elements[e][c])];
  }
  return out;
}

Field FieldOf(std::string name, const std::vector<float>& values, FieldRole role = FieldRole::kPlain) {
  return {std::move(name), 3, std::span<const float>(values), role};
}

absl::Status CheckBody(const Frame& frame, size_t body) {
  if (body < frame.topology->bodies.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("body %d, but the frame has %d", body, frame.topology->bodies.size()));
}

absl::Status CheckExtras(const BodyArrays& arrays, const BodyExtras& extras) {
  const auto check = [&](const char* what, size_t size, size_t wanted) {
    if (size == 0 || size == wanted) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat("body \"%s\": %s has %d values, must have %d", arrays.name, what, size, wanted));
  };
  PALPATE_RETURN_IF_ERROR(check("rest_positions_m", extras.rest_positions_m.size(), arrays.vertex_slot_count));
  PALPATE_RETURN_IF_ERROR(check("velocities_m_per_s", extras.velocities_m_per_s.size(), size_t{3} * arrays.vertex_slot_count));
  return check("tet_zones", extras.tet_zones.size(), arrays.tets.size());
}

/// `mesh_slots`: [vertex] of the mesh.
std::vector<float> DisplacementOf(const std::vector<float>& positions_m, const std::vector<uint32_t>& mesh_slots,
                                  const BodyExtras& extras) {
  std::vector<float> out;
  if (extras.rest_positions_m.empty()) return out;
  out.reserve(positions_m.size());
  for (size_t i = 0; i < positions_m.size(); ++i) {
    out.push_back(static_cast<float>(positions_m[i] - extras.rest_positions_m[mesh_slots[i / 3]][static_cast<Eigen::Index>(i % 3)]));
  }
  return out;
}

std::vector<float> VelocityOf(const std::vector<uint32_t>& mesh_slots, const BodyExtras& extras) {
  return extras.velocities_m_per_s.empty() ? std::vector<float>() : GatherThree(mesh_slots, extras.velocities_m_per_s);
}

void AddMotion(const std::vector<float>& displacement, const std::vector<float>& velocity, std::vector<Field>* fields) {
  if (!displacement.empty()) fields->push_back(FieldOf("displacement", displacement, FieldRole::kVectors));
  if (!velocity.empty()) fields->push_back(FieldOf("velocity", velocity));
}

absl::Status WriteVtuWith(const VolumeLayout& layout, const Frame& frame, size_t body, const BodyExtras& extras, ByteSink* sink) {
  const BodyArrays& arrays = *frame.topology->bodies[body];
  PALPATE_RETURN_IF_ERROR(CheckExtras(arrays, extras));
  if (frame.volume_positions_m.size() != frame.topology->bodies.size()) {
    return absl::FailedPreconditionError("the frame has no positions of the inside; World::SetVolumeWanted asks for them");
  }
  const std::vector<float> positions_m = layout.Gather(frame.volume_positions_m[body]);
  const std::vector<float> displacement = DisplacementOf(positions_m, layout.vertex_slots(), extras);
  const std::vector<float> velocity = VelocityOf(layout.vertex_slots(), extras);
  std::vector<uint16_t> zones;
  for (const uint32_t t : layout.tet_slots()) zones.push_back(extras.tet_zones.empty() ? 0 : extras.tet_zones[t]);
  UnstructuredGrid grid;
  grid.points_m = positions_m;
  grid.tets = layout.tets();
  grid.time_s = frame.sim_time_s;
  AddMotion(displacement, velocity, &grid.point_fields);
  if (!extras.tet_zones.empty()) grid.cell_fields.push_back({"zone", 1, std::span<const uint16_t>(zones), FieldRole::kScalars});
  return WriteVtu(grid, sink);
}

absl::Status WriteVtpWith(const SurfaceLayout& layout, const Frame& frame, size_t body, const BodyExtras& extras, ByteSink* sink) {
  const BodyArrays& arrays = *frame.topology->bodies[body];
  PALPATE_RETURN_IF_ERROR(CheckExtras(arrays, extras));
  const std::vector<float>& by_slot = frame.surface_positions_m[body];
  const std::vector<float> positions_m = layout.Gather(by_slot);
  const std::vector<float> normals = layout.Normals(by_slot);
  std::vector<uint32_t> mesh_slots;
  for (const uint32_t slot : layout.vertex_slots()) mesh_slots.push_back(arrays.surface_vertices[SurfaceSlot{slot}]);
  const std::vector<float> displacement = DisplacementOf(positions_m, mesh_slots, extras);
  const std::vector<float> velocity = VelocityOf(mesh_slots, extras);
  PolyData surface;
  surface.points_m = positions_m;
  surface.triangles = layout.triangles();
  surface.time_s = frame.sim_time_s;
  surface.point_fields.push_back(FieldOf("Normals", normals, FieldRole::kNormals));
  if (!layout.texture_coordinates().empty()) {
    const std::span<const float> values(layout.texture_coordinates().front().data(), 2 * layout.texture_coordinates().size());
    surface.point_fields.push_back({"TextureCoordinates", 2, values, FieldRole::kTextureCoordinates});
  }
  AddMotion(displacement, velocity, &surface.point_fields);
  surface.cell_fields.push_back({"zone", 1, std::span<const uint16_t>(layout.triangle_zones()), FieldRole::kScalars});
  return WriteVtp(surface, sink);
}

/// A surface for glTF with what it refers to.
struct OwnedSurface {
  std::vector<float> positions_m, normals;
  std::vector<GltfMaterial> materials;
  GltfSurface surface;
};

void FillSurface(const SurfaceLayout& layout, const BodyArrays& arrays, const std::vector<float>& by_slot, const BodyExtras& extras,
                 OwnedSurface* out) {
  out->positions_m = layout.Gather(by_slot);
  out->normals = layout.Normals(by_slot);
  for (const BodyArrays::SurfaceZone& zone : arrays.surface_zones) {
    GltfMaterial& material = out->materials.emplace_back();
    material.name = zone.name.empty() ? arrays.name : absl::StrCat(arrays.name, " ", zone.name);
    if (extras.image != nullptr && !zone.is_interior) {
      material.color = {1, 1, 1};  // the picture takes the place of the zone's colour
      material.image = extras.image;
    } else {
      material.color = {zone.color.x(), zone.color.y(), zone.color.z()};
    }
  }
  out->surface = {.name = arrays.name,
                  .positions_m = out->positions_m,
                  .triangles = layout.triangles(),
                  .triangle_materials = layout.triangle_zones(),
                  .texture_coordinates = layout.texture_coordinates(),
                  .normals = out->normals,
                  .materials = out->materials};
}

const BodyExtras& ExtrasOf(std::span<const BodyExtras> extras, size_t body) {
  static const BodyExtras none;
  return body < extras.size() ? extras[body] : none;
}

absl::Status CheckExtrasCount(const Frame& frame, std::span<const BodyExtras> extras) {
  if (extras.empty() || extras.size() == frame.topology->bodies.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("extras of %d bodies, but the frame has %d", extras.size(), frame.topology->bodies.size()));
}

}  // namespace

SurfaceLayout::SurfaceLayout(const BodyArrays& arrays, double u_period) {
  std::vector<uint32_t> triangle_slots;
  triangles_ = Compact(arrays.surface_triangles, arrays.surface_vertices.size(), &slots_, &triangle_slots);
  for (const uint32_t t : triangle_slots) zones_.push_back(arrays.triangle_zones[t]);
  if (arrays.has_texture_corners) {
    SplitBySeams(arrays, triangle_slots);
    return;
  }
  if (arrays.texture_coordinates.empty()) return;
  for (const uint32_t slot : slots_) texture_.push_back(arrays.texture_coordinates[arrays.surface_vertices[SurfaceSlot{slot}]]);
  if (!(u_period > 0)) return;
  const auto period = static_cast<float>(u_period);
  std::map<uint32_t, uint32_t> copies;  // of vertices, on the far side of the seam
  for (std::array<uint32_t, 3>& triangle : triangles_) {
    const auto [low, high] = std::minmax({texture_[triangle[0]][0], texture_[triangle[1]][0], texture_[triangle[2]][0]});
    if (high - low <= period / 2) continue;
    for (uint32_t& v : triangle) {
      if (texture_[v][0] >= period / 2) continue;
      const auto [copy, is_new] = copies.try_emplace(v, static_cast<uint32_t>(slots_.size()));
      if (is_new) {
        slots_.push_back(slots_[v]);
        texture_.push_back({texture_[v][0] + period, texture_[v][1]});
      }
      v = copy->second;
    }
  }
}

void SurfaceLayout::SplitBySeams(const BodyArrays& arrays, const std::vector<uint32_t>& triangle_slots) {
  std::vector<bool> is_taken(slots_.size(), false);
  texture_.resize(slots_.size());
  std::map<std::pair<uint32_t, std::array<float, 2>>, uint32_t> vertices;
  for (size_t t = 0; t < triangles_.size(); ++t) {
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t v = triangles_[t][c];
      const std::array<float, 2>& value = arrays.texture_corners[triangle_slots[t]][c];
      const auto [known, is_new] = vertices.try_emplace({v, value}, v);
      if (is_new && is_taken[v]) {
        known->second = static_cast<uint32_t>(slots_.size());
        slots_.push_back(slots_[v]);
        texture_.push_back(value);
      } else if (is_new) {
        is_taken[v] = true;
        texture_[v] = value;
      }
      triangles_[t][c] = known->second;
    }
  }
}

std::vector<float> SurfaceLayout::Gather(std::span<const float> by_slot) const { return GatherThree(slots_, by_slot); }

std::vector<float> SurfaceLayout::Normals(std::span<const float> by_slot) const {
  std::vector<std::array<uint32_t, 3>> triangles = triangles_;
  for (auto& triangle : triangles) {
    for (uint32_t& v : triangle) v = slots_[v];
  }
  return Gather(NormalsByArea(by_slot, triangles));
}

VolumeLayout::VolumeLayout(const BodyArrays& arrays) {
  tets_ = Compact(arrays.tets, arrays.vertex_slot_count, &vertex_slots_, &tet_slots_);
}

std::vector<float> VolumeLayout::Gather(std::span<const float> by_slot) const { return GatherThree(vertex_slots_, by_slot); }

std::vector<BodyExtras> TextureExtras(const SceneDescription& description, const WorldTopology& topology) {
  std::map<std::string, BodyExtras> by_name;
  std::map<const TextureImage*, std::shared_ptr<const GltfImage>> images;
  for (const BodyDescription& body : description.bodies) {
    BodyExtras& extras = by_name[body.name];
    extras.u_period = body.texture.u_period;
    if (body.texture.image == nullptr) continue;
    const TextureImage& from = *body.texture.image;
    std::shared_ptr<const GltfImage>& image = images[&from];
    if (image == nullptr) image = std::make_shared<const GltfImage>(GltfImage{from.name, from.media_type, from.bytes});
    extras.image = image;
  }
  // A parent comes before its pieces.
  std::vector<BodyExtras> out;
  for (const auto& body : topology.bodies) {
    if (!body->parent.empty()) by_name[body->name] = by_name[body->parent];
    out.push_back(by_name[body->name]);
  }
  return out;
}

absl::Status WriteBodyVtu(const Frame& frame, size_t body, const BodyExtras& extras, ByteSink* sink) {
  PALPATE_RETURN_IF_ERROR(CheckBody(frame, body));
  return WriteVtuWith(VolumeLayout(*frame.topology->bodies[body]), frame, body, extras, sink);
}

absl::Status WriteBodyVtp(const Frame& frame, size_t body, const BodyExtras& extras, ByteSink* sink) {
  PALPATE_RETURN_IF_ERROR(CheckBody(frame, body));
  return WriteVtpWith(SurfaceLayout(*frame.topology->bodies[body], extras.u_period), frame, body, extras, sink);
}

absl::Status WriteBodyGlb(const Frame& frame, size_t body, const BodyExtras& extras, ByteSink* sink) {
  PALPATE_RETURN_IF_ERROR(CheckBody(frame, body));
  const BodyArrays& arrays = *frame.topology->bodies[body];
  const SurfaceLayout layout(arrays, extras.u_period);
  OwnedSurface owned;
  FillSurface(layout, arrays, frame.surface_positions_m[body], extras, &owned);
  return WriteGlb(std::span<const GltfSurface>(&owned.surface, 1), sink);
}

absl::Status WriteFrameGlb(const Frame& frame, std::span<const BodyExtras> extras, ByteSink* sink) {
  PALPATE_RETURN_IF_ERROR(CheckExtrasCount(frame, extras));
  std::vector<std::unique_ptr<SurfaceLayout>> layouts;
  std::vector<std::unique_ptr<OwnedSurface>> owned;
  std::vector<GltfSurface> surfaces;
  for (size_t b = 0; b < frame.topology->bodies.size(); ++b) {
    const BodyArrays& arrays = *frame.topology->bodies[b];
    const BodyExtras& own = ExtrasOf(extras, b);
    const SurfaceLayout& layout = *layouts.emplace_back(std::make_unique<SurfaceLayout>(arrays, own.u_period));
    FillSurface(layout, arrays, frame.surface_positions_m[b], own, owned.emplace_back(std::make_unique<OwnedSurface>()).get());
    surfaces.push_back(owned.back()->surface);
  }
  return WriteGlb(surfaces, sink);
}

class FrameSeries::Impl {
 public:
  Impl(std::filesystem::path stem, Options options) : stem_(std::move(stem)), options_(std::move(options)) {}

  /// `before_s`: from where on what there is goes; nothing: all.
  absl::Status Open(std::optional<double> before_s) {
    std::error_code error;
    if (options_.has_surface || options_.has_volume) {
      std::filesystem::create_directory(FramesFolder(), error);
      if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot write ", FramesFolder().string()));
    }
    const auto open = [&](const char* ending) {
      return before_s ? PvdSeries::Resume(WithEnding(ending), *before_s) : PvdSeries::Create(WithEnding(ending));
    };
    if (options_.has_surface) {
      PALPATE_ASSIGN_OR_RETURN(surface_pvd_, open(".surface.pvd"));
    }
    if (options_.has_volume) {
      PALPATE_ASSIGN_OR_RETURN(volume_pvd_, open(".volume.pvd"));
    }
    if (options_.has_animation) {
      PALPATE_ASSIGN_OR_RETURN(animation_, GltfSeries::Create(WithEnding(".glb")));
    }
    return absl::OkStatus();
  }

  absl::Status Add(const Frame& frame, std::span<const BodyExtras> extras) {
    PALPATE_RETURN_IF_ERROR(CheckExtrasCount(frame, extras));
    std::vector<PvdPart> surface_parts, volume_parts;
    std::vector<std::unique_ptr<OwnedSurface>> owned;
    std::vector<GltfSurface> surfaces;
    layouts_.resize(frame.topology->bodies.size());
    for (size_t b = 0; b < frame.topology->bodies.size(); ++b) {
      if (!IsWanted(*frame.topology, b)) continue;
      const BodyExtras& own = ExtrasOf(extras, b);
      const BodyLayout& layout = LayoutOf(frame, b, own.u_period);
      const std::string& name = layout.arrays->name;
      if (surface_pvd_) {
        PALPATE_ASSIGN_OR_RETURN(PvdPart part, Write(name, b, frame.step, ".vtp",
                                                     [&](ByteSink* sink) { return WriteVtpWith(*layout.surface, frame, b, own, sink); }));
        surface_parts.push_back(std::move(part));
      }
      if (volume_pvd_) {
        PALPATE_ASSIGN_OR_RETURN(PvdPart part, Write(name, b, frame.step, ".vtu",
                                                     [&](ByteSink* sink) { return WriteVtuWith(*layout.volume, frame, b, own, sink); }));
        volume_parts.push_back(std::move(part));
      }
      if (!animation_) continue;
      FillSurface(*layout.surface, *layout.arrays, frame.surface_positions_m[b], own,
                  owned.emplace_back(std::make_unique<OwnedSurface>()).get());
      surfaces.push_back(owned.back()->surface);
    }
    if (surface_pvd_) PALPATE_RETURN_IF_ERROR(surface_pvd_->Add(frame.sim_time_s, surface_parts));
    if (volume_pvd_) PALPATE_RETURN_IF_ERROR(volume_pvd_->Add(frame.sim_time_s, volume_parts));
    if (animation_) PALPATE_RETURN_IF_ERROR(animation_->Add(frame.sim_time_s, surfaces));
    return absl::OkStatus();
  }

  absl::Status Finish() { return animation_ ? animation_->Finish() : absl::OkStatus(); }

 private:
  /// Of a body at the topology that it was made for.
  struct BodyLayout {
    std::shared_ptr<const BodyArrays> arrays;
    std::unique_ptr<SurfaceLayout> surface;
    std::unique_ptr<VolumeLayout> volume;
  };

  std::filesystem::path WithEnding(const char* ending) const {
    std::filesystem::path path = stem_;
    path += ending;
    return path;
  }
  std::filesystem::path FramesFolder() const { return WithEnding(".frames"); }

  /// Whether it or a body that it came from is named.
  bool IsWanted(const WorldTopology& topology, size_t body) const {
    if (options_.bodies.empty()) return true;
    std::string name = topology.bodies[body]->name;
    while (!name.empty()) {
      if (std::find(options_.bodies.begin(), options_.bodies.end(), name) != options_.bodies.end()) return true;
      const auto own = std::find_if(topology.bodies.begin(), topology.bodies.end(), [&](const auto& b) { return b->name == name; });
      name = own == topology.bodies.end() ? "" : (*own)->parent;
    }
    return false;
  }

  const BodyLayout& LayoutOf(const Frame& frame, size_t body, double u_period) {
    BodyLayout& layout = layouts_[body];
    const std::shared_ptr<const BodyArrays>& arrays = frame.topology->bodies[body];
    if (layout.arrays == arrays) return layout;
    layout.arrays = arrays;
    layout.surface = std::make_unique<SurfaceLayout>(*arrays, u_period);
    if (volume_pvd_) layout.volume = std::make_unique<VolumeLayout>(*arrays);
    return layout;
  }

  /// A file of a body, named so that files sort by time. What a file system might not take in a name becomes a dash; then its index, behind
  /// a character that no other file has, keeps it apart from bodies of like names.
  template <typename Writer>
  absl::StatusOr<PvdPart> Write(const std::string& body, size_t index, uint64_t step, const char* ending, Writer write) const {
    std::string file;
    for (const char c : body) {
      const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
      file += is_plain ? c : '-';
    }
    if (file != body) absl::StrAppend(&file, "~", index);
    absl::StrAppendFormat(&file, "_%08d%s", step, ending);
    const std::filesystem::path path = FramesFolder() / file;
    PALPATE_ASSIGN_OR_RETURN(FileSink sink, FileSink::Create(path));
    if (absl::Status status = write(&sink); !status.ok()) return Annotate(status, path.string());
    PALPATE_RETURN_IF_ERROR(sink.Commit());
    return PvdPart{body, FramesFolder().filename() / file};
  }

  std::filesystem::path stem_;
  Options options_;
  std::optional<PvdSeries> surface_pvd_, volume_pvd_;
  std::optional<GltfSeries> animation_;
  std::vector<BodyLayout> layouts_;  // [body]
};

FrameSeries::FrameSeries(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FrameSeries::FrameSeries(FrameSeries&&) noexcept = default;
FrameSeries& FrameSeries::operator=(FrameSeries&&) noexcept = default;
FrameSeries::~FrameSeries() = default;

absl::StatusOr<FrameSeries> FrameSeries::Create(const std::filesystem::path& stem, Options options) {
  auto impl = std::make_unique<Impl>(stem, std::move(options));
  PALPATE_RETURN_IF_ERROR(impl->Open(std::nullopt));
  return FrameSeries(std::move(impl));
}

absl::StatusOr<FrameSeries> FrameSeries::Resume(const std::filesystem::path& stem, Options options, double before_s) {
  auto impl = std::make_unique<Impl>(stem, std::move(options));
  PALPATE_RETURN_IF_ERROR(impl->Open(before_s));
  return FrameSeries(std::move(impl));
}

absl::Status FrameSeries::Add(const Frame& frame, std::span<const BodyExtras> extras) { return impl_->Add(frame, extras); }
absl::Status FrameSeries::Finish() { return impl_->Finish(); }

}  // namespace palpate::sim
