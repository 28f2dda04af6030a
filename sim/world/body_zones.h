#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/scene/description.h"
#include "sim/scene/shell_material.h"
#include "sim/topology/ids.h"

namespace palpate::sim {

/// The zones of a body: materials of its tets, or of the triangles of a shell, and loads on its surface. Zone 0 is the body without the
/// named ones. Pieces that come off have a copy.
class BodyZones {
 public:
  BodyZones() = default;
  explicit BodyZones(const BodyDescription& description) : names_{""}, materials_{description.material} {
    for (const ZoneDescription& zone : description.zones) {
      names_.push_back(zone.name);
      materials_.push_back(zone.material);
    }
    for (size_t zone = 0; description.shell && zone < materials_.size(); ++zone) shells_.push_back(ShellOfZone(description, zone));
    is_dynamic_.assign(materials_.size(), 0);
  }

  size_t count() const { return materials_.size(); }
  const std::string& name(TetZoneId zone) const { return names_[zone]; }
  /// 0 for an empty name is the body itself; -1: unknown.
  int Find(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    return found == names_.end() ? -1 : static_cast<int>(found - names_.begin());
  }
  const Material& MaterialOf(TetZoneId zone) const { return materials_[zone]; }
  /// These of shells only.
  const ShellProperties& ShellOf(TetZoneId zone) const { return shells_[zone]; }
  double ThicknessOf(TetZoneId zone) const { return shells_[zone].thickness_m; }
  bool are_of_shell() const { return !shells_.empty(); }
  double LargestThickness() const {
    double largest_m = 0;
    for (const ShellProperties& shell : shells_) largest_m = std::max(largest_m, shell.thickness_m);
    return largest_m;
  }
  /// As `root` has them; of a body that was read, whose other properties are in no archive. Precondition: as many zones.
  void TakeShellsOf(const BodyZones& root) { shells_ = root.shells_; }
  void SetMaterial(TetZoneId zone, const Material& material) { materials_[zone] = material; }

  /// Whether tets of a body that starts quasi-static have become dynamic.
  bool IsDynamic(TetZoneId zone) const { return is_dynamic_[zone] != 0; }
  void MakeDynamic(TetZoneId zone) { is_dynamic_[zone] = 1; }

  /// Bit k: load k of the scene acts on the triangles of the surface zone.
  uint32_t LoadsOn(SurfaceZoneId zone) const { return zone < loads_.size() ? loads_[zone] : 0; }
  void AddLoadOn(SurfaceZoneId zone, uint32_t bit) {
    if (zone >= loads_.size()) loads_.resize(zone + size_t{1}, 0);
    loads_[zone] |= bit;
  }

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [names, materials, shells, is_dynamic, loads] = *this;
    std::vector<double> thickness_m;  // edits do not change it; all but this follows from the description
    for (const ShellProperties& shell : shells) thickness_m.push_back(shell.thickness_m);
    archive.Enter("BodyZones");
    archive(names, materials, thickness_m, is_dynamic, loads);
    archive.Check(thickness_m.empty() || thickness_m.size() == materials.size(), "thickness in part");
    if constexpr (Archive::kIsReader) {
      shells.resize(thickness_m.size());
      for (size_t zone = 0; zone < shells.size(); ++zone) shells[zone].thickness_m = thickness_m[zone];
    }
    archive.Check(!names.empty() && names.size() == materials.size() && is_dynamic.size() == materials.size(), "zones in part");
  }

 private:
  std::vector<std::string> names_;
  std::vector<Material> materials_;
  std::vector<ShellProperties> shells_;  // empty but for shells
  std::vector<uint8_t> is_dynamic_;
  std::vector<uint32_t> loads_;  // by surface zone; those beyond its end have none
};

}  // namespace palpate::sim
