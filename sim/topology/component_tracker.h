#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/topology/ids.h"
#include "sim/topology/mesh_edit.h"

namespace palpate::sim {

/// Connected components of a graph of slots that changes a little at a time: the tets of a mesh, or the triangles of its surface.
///
/// After a change all cells next to it search outwards in turn, one cell each, and join where they meet. The search ends as soon as what is
/// left of each old component belongs to one search only, so it costs (number of searches) x (size of the smaller piece) where something
/// fell apart and a few cells where nothing did. Deterministic: depends on the order of the seeds and of the neighbours only.
class ComponentTracker {
 public:
  struct Component {
    uint32_t cell_count = 0;
    uint32_t representative = kNoSlot;  ///< a live cell

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [count, one_cell] = *this;
      archive(count, one_cell);
    }
  };

  /// Component of a live cell.
  ComponentId at(uint32_t slot) const { return label_[slot]; }
  const Component* Find(ComponentId id) const {
    const auto it = components_.find(id);
    return it == components_.end() ? nullptr : &it->second;
  }
  size_t size() const { return components_.size(); }
  /// Ids of all components, ascending.
  std::vector<ComponentId> Ids() const {
    std::vector<ComponentId> ids;
    ids.reserve(components_.size());
    for (const auto& entry : components_) ids.push_back(entry.first);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  /// Labels of all slots with what numbers them on. After a read IsSound() must be asked.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [label, mark, search_of, epoch, last_id, components, touched, searches, active, order, claimed, open_count,
                            conflicts, unlabelled_open, new_left] = *this;
    archive.Enter("ComponentTracker");
    archive(label, last_id, components);
    if constexpr (Archive::kIsReader) {
      mark.assign(label.size(), 0);
      search_of.assign(label.size(), 0);
      epoch = 0;
    }
  }
  /// Whether labels and components agree with each other, and exactly the cells that `is_live(slot)` says have one.
  template <typename IsLive>
  bool IsSound(uint32_t slot_count, const IsLive& is_live) const {
    absl::flat_hash_map<ComponentId, uint32_t> counts;
    for (uint32_t slot = 0; slot < label_.size(); ++slot) {
      if ((label_[slot] != 0) != (slot < slot_count && is_live(slot))) return false;
      if (label_[slot] > last_id_) return false;
      if (label_[slot] != 0) ++counts[label_[slot]];
    }
    for (uint32_t slot = static_cast<uint32_t>(label_.size()); slot < slot_count; ++slot) {
      if (is_live(slot)) return false;
    }
    if (counts.size() != components_.size()) return false;
    for (const auto& [id, component] : components_) {
      const auto found = counts.find(id);
      if (found == counts.end() || found->second != component.cell_count) return false;
      if (component.representative >= label_.size() || label_[component.representative] != id) return false;
    }
    return true;
  }

  /// A new cell, for now in no component; it must be among the seeds of the next Update.
  void Add(uint32_t slot) {
    if (slot >= label_.size()) {
      label_.resize(slot + 1, 0);
      mark_.resize(slot + 1, 0);
      search_of_.resize(slot + 1, 0);
    }
    label_[slot] = 0;
  }
  /// A cell that is gone. What is left of its component must be searched by the next Update.
  void Remove(uint32_t slot) {
    Component& component = components_[label_[slot]];
    --component.cell_count;
    if (component.representative == slot) component.representative = kNoSlot;
    touched_.push_back(label_[slot]);
    label_[slot] = 0;
  }

  /// Brings the components up to date. `seeds`: all new cells and all cells that lost or gained a neighbour. `for_neighbors(slot, f)` calls
  /// f(neighbour) for each. Appends what changed to the lists. Returns the number of cells visited.
  template <typename ForNeighbors>
  size_t Update(std::span<const uint32_t> seeds, const ForNeighbors& for_neighbors, std::vector<MeshDelta::Move>* moved,
                std::vector<ComponentId>* added, std::vector<ComponentId>* removed) {
    size_t visited = Search(seeds, for_neighbors);
    visited += Relabel(for_neighbors, moved, added);
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const ComponentId id : touched_) {
      const auto it = components_.find(id);
      if (it != components_.end() && it->second.cell_count == 0) {
        components_.erase(it);
        removed->push_back(id);
      }
    }
    touched_.clear();
    return visited;
  }

 private:
  struct SearchState {
    uint32_t parent;               // union-find
    std::vector<uint32_t> cells;   // visited, in order
    size_t next = 0;               // cells[next..] have not been expanded
    std::vector<uint32_t> labels;  // old components met
    bool is_open() const { return next < cells.size(); }
  };

  uint32_t Root(uint32_t search) {
    while (searches_[search].parent != search) {
      searches_[search].parent = searches_[searches_[search].parent].parent;
      search = searches_[search].parent;
    }
    return search;
  }

  // Number of open searches with this label; only labels next to the edit, so a short list.
  uint32_t& OpenCount(ComponentId label) {
    for (auto& entry : open_count_) {
      if (entry.first == label) return entry.second;
    }
    open_count_.emplace_back(label, 0);
    return open_count_.back().second;
  }
  void CountOpen(const SearchState& search, bool add) {
    if (search.labels.empty()) unlabelled_open_ += add ? 1 : -1;
    for (const ComponentId label : search.labels) {
      uint32_t& count = OpenCount(label);
      if (add) {
        if (++count == 2) ++conflicts_;
      } else if (--count == 1) {
        --conflicts_;
      }
    }
  }

  // Whether each old component has at most one open search. New cells are what joins old components, so all of them must be expanded first.
  bool IsDecided() const { return conflicts_ == 0 && unlabelled_open_ == 0 && new_left_ == 0; }

  void Visit(uint32_t search, uint32_t slot) {
    mark_[slot] = epoch_;
    search_of_[slot] = search;
    SearchState& state = searches_[search];
    state.cells.push_back(slot);
    const ComponentId label = label_[slot];
    if (label != 0 && std::find(state.labels.begin(), state.labels.end(), label) == state.labels.end()) state.labels.push_back(label);
  }

  template <typename ForNeighbors>
  size_t Search(std::span<const uint32_t> seeds, const ForNeighbors& for_neighbors) {
    if (++epoch_ == 0) {
      std::fill(mark_.begin(), mark_.end(), 0);
      epoch_ = 1;
    }
    searches_.clear();
    open_count_.clear();
    conflicts_ = 0;
    unlabelled_open_ = 0;
    new_left_ = 0;
    for (const uint32_t seed : seeds) {
      if (mark_[seed] == epoch_) continue;
      const auto search = static_cast<uint32_t>(searches_.size());
      searches_.emplace_back();
      searches_.back().parent = search;
      Visit(search, seed);
      new_left_ += label_[seed] == 0 ? 1 : 0;
      CountOpen(searches_.back(), true);
    }
    active_.resize(searches_.size());
    for (uint32_t s = 0; s < active_.size(); ++s) active_[s] = s;
    size_t visited = 0;
    while (!IsDecided()) {
      size_t kept = 0;
      for (size_t a = 0; a < active_.size(); ++a) {
        const uint32_t search = active_[a];
        if (searches_[search].parent != search || !searches_[search].is_open()) continue;
        active_[kept++] = search;
        if (IsDecided()) continue;
        CountOpen(searches_[search], false);
        const uint32_t cell = searches_[search].cells[searches_[search].next++];
        ++visited;
        new_left_ -= label_[cell] == 0 ? 1 : 0;
        uint32_t own = search;
        for_neighbors(cell, [&](uint32_t neighbor) {
          if (mark_[neighbor] != epoch_) {
            Visit(own, neighbor);
          } else if (const uint32_t other = Root(search_of_[neighbor]); other != own) {
            if (searches_[other].is_open()) CountOpen(searches_[other], false);
            own = Join(own, other);
          }
        });
        if (searches_[own].is_open()) CountOpen(searches_[own], true);
      }
      active_.resize(kept);
    }
    return visited;
  }

  // The search with fewer cells is appended to the other one; cells not expanded stay behind the expanded ones.
  uint32_t Join(uint32_t a, uint32_t b) {
    if (searches_[a].cells.size() < searches_[b].cells.size()) std::swap(a, b);
    SearchState& into = searches_[a];
    SearchState& from = searches_[b];
    // Expanded cells of the smaller one take the place of unexpanded ones, which move to the end.
    for (size_t i = 0; i < from.cells.size(); ++i) {
      into.cells.push_back(from.cells[i]);
      if (i < from.next) std::swap(into.cells[into.next++], into.cells.back());
    }
    for (const ComponentId label : from.labels) {
      if (std::find(into.labels.begin(), into.labels.end(), label) == into.labels.end()) into.labels.push_back(label);
    }
    from.parent = a;
    from.cells = {};
    return a;
  }

  // Gives the searched components their labels: what is still open keeps its largest one, since it holds all cells that were not reached.
  template <typename ForNeighbors>
  size_t Relabel(const ForNeighbors& for_neighbors, std::vector<MeshDelta::Move>* moved, std::vector<ComponentId>* added) {
    order_.clear();
    for (uint32_t s = 0; s < searches_.size(); ++s) {
      if (searches_[s].parent == s) order_.push_back(s);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      if (searches_[a].is_open() != searches_[b].is_open()) return searches_[a].is_open();
      return searches_[a].cells.size() > searches_[b].cells.size();
    });
    claimed_.clear();
    size_t visited = 0;
    for (const uint32_t s : order_) {
      SearchState& search = searches_[s];
      ComponentId target = 0;
      uint32_t target_count = 0;
      for (const ComponentId label : search.labels) {
        if (std::find(claimed_.begin(), claimed_.end(), label) != claimed_.end()) continue;
        const uint32_t count = components_[label].cell_count;
        if (target == 0 || count > target_count || (count == target_count && label < target)) {
          target = label;
          target_count = count;
        }
      }
      if (search.is_open()) {
        for (const ComponentId label : search.labels) claimed_.push_back(label);
      } else if (target != 0) {
        claimed_.push_back(target);
      }
      if (target == 0) {
        target = ++last_id_;
        components_[target] = {};
        added->push_back(target);
      }
      // What was reached; of an open search, also the unreached rest of the components that were swallowed.
      const bool is_open = search.is_open();
      for (size_t i = 0; i < search.cells.size(); ++i) {
        const uint32_t cell = search.cells[i];
        if (label_[cell] == target) continue;
        const ComponentId old = label_[cell];
        Assign(cell, target, moved);
        ++visited;
        if (!is_open || old == 0) continue;
        for_neighbors(cell, [&](uint32_t neighbor) {
          if (mark_[neighbor] == epoch_) return;
          if (label_[neighbor] == target || label_[neighbor] == 0) return;
          mark_[neighbor] = epoch_;
          search.cells.push_back(neighbor);
        });
      }
      components_[target].representative = search.cells.front();
    }
    return visited;
  }

  void Assign(uint32_t cell, ComponentId target, std::vector<MeshDelta::Move>* moved) {
    const ComponentId old = label_[cell];
    if (old != 0) {
      --components_[old].cell_count;
      touched_.push_back(old);
      moved->push_back({cell, old, target});
    }
    label_[cell] = target;
    ++components_[target].cell_count;
  }

  std::vector<ComponentId> label_;   // [slot]
  std::vector<uint32_t> mark_;       // [slot] epoch of the last visit
  std::vector<uint32_t> search_of_;  // [slot] valid where marked
  uint32_t epoch_ = 0;
  ComponentId last_id_ = 0;
  absl::flat_hash_map<ComponentId, Component> components_;
  std::vector<ComponentId> touched_;  // components that lost cells
  // Scratch of Update.
  std::vector<SearchState> searches_;
  std::vector<uint32_t> active_, order_;
  std::vector<ComponentId> claimed_;
  std::vector<std::pair<ComponentId, uint32_t>> open_count_;
  int conflicts_ = 0;
  int unlabelled_open_ = 0;
  int new_left_ = 0;  // new cells not expanded
};

}  // namespace palpate::sim
