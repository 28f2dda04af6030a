#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/topology/ids.h"

namespace palpate::sim {

/// What it takes to destroy a tissue.
struct AblationTissue {
  double density_kg_per_m3 = 1060;
  /// From body temperature to vapour, dry matter included. Water alone: 37 to 100 C at 4.18 kJ/(kg K) and 2.26 MJ/kg for vaporisation make
  /// 2.5 MJ/kg; a cavitron, which breaks cells without boiling them, needs far less.
  double energy_j_per_kg = 2.5e6;
  /// With this time constant heat leaves a tet that is not destroyed yet (conduction, blood). 0: it stays.
  double cooling_time_s = 0;

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [density, energy, cooling_time] = *this;
    archive(density, energy, cooling_time);
  }
};

/// The rate at which an instrument's power removes tissue: energy gathers in the tets near the tip, and a tet is due for removal when it
/// holds what its mass needs. Pure bookkeeping, without mesh or clock.
///
/// Guarantee: delivered = stored + spent + cooled + unabsorbed, to rounding, at any time. So with a power P that stays in the tissue, mass
/// is removed at P / energy_j_per_kg, whatever the size of the tets or of the steps.
class AblationModel {
 public:
  /// A tet within reach of the tip.
  struct Exposure {
    TetId tet = kNoTet;
    double volume_m3 = 0;  ///< at rest, positive
    TetZoneId zone = 0;    ///< whose tissue it is
    double weight = 1;     ///< share of the power, relative; positive
  };
  struct Energy {
    double delivered_j = 0, stored_j = 0, spent_j = 0, cooled_j = 0, unabsorbed_j = 0;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [delivered, stored, spent, cooled, unabsorbed] = *this;
      archive(delivered, stored, spent, cooled, unabsorbed);
    }
  };

  /// `tissues`: [zone]. Errors: InvalidArgument (none, density or energy not positive and finite, cooling time negative or not finite).
  static absl::StatusOr<AblationModel> Create(std::vector<AblationTissue> tissues);

  /// One step of length dt_s: cools what is stored, then gives power_w * duty * dt_s to the exposed tets by weight. A tet that has enough
  /// takes no more; the rest goes to the others, and what nobody takes is unabsorbed. Returns the exposed tets that are due, in their
  /// order; they stay due until Remove. Errors: InvalidArgument (power or dt negative or not finite, duty outside [0, 1], an exposure out
  /// of range or a tet twice), with nothing changed.
  absl::StatusOr<std::vector<TetId>> Deposit(double power_w, double duty, double dt_s, std::span<const Exposure> exposures);

  /// A tet is gone: what it held is spent. Nothing for a tet that holds none.
  void Remove(TetId tet);

  /// A tet was replaced: its energy goes to its children by share. Precondition: shares sum to 1.
  struct Child {
    TetId tet = kNoTet;
    double share = 0;  ///< of the parent's volume
  };
  void Replace(TetId parent, std::span<const Child> children);

  double StoredIn(TetId tet) const;  ///< J
  const Energy& energy() const { return energy_; }

  /// Of a reader, one that was created of the same tissues.
  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [tissues, index, heated, heat, energy] = *this;
    const size_t zone_count = tissues.size();
    archive.Enter("AblationModel");
    archive(tissues, heated, heat, energy);
    archive.Check(tissues.size() == zone_count && heat.size() == heated.size(), "heat of other tissues");
    if constexpr (Archive::kIsReader) {
      index.clear();
      for (uint32_t i = 0; i < heated.size() && archive.ok(); ++i) {
        archive.Check(index.emplace(heated[i], i).second && heat[i].zone < zone_count, "a tet is heated twice, or of no tissue");
      }
    }
  }

 private:
  struct Heat {
    double energy_j = 0;
    TetZoneId zone = 0;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [energy, of_zone] = *this;
      archive(energy, of_zone);
    }
  };
  explicit AblationModel(std::vector<AblationTissue> tissues) : tissues_(std::move(tissues)) {}

  std::vector<AblationTissue> tissues_;
  absl::flat_hash_map<TetId, uint32_t> index_;  // into heated_
  std::vector<TetId> heated_;                   // in order of first heat, so that sums do not depend on a hash
  std::vector<Heat> heat_;                      // beside heated_
  Energy energy_;
};

}  // namespace palpate::sim
