#include "gpu/dynamics/coarse_lattice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "gpu/dynamics/coarse_operator.h"
#include "gpu/dynamics/joined_vertices.h"
#include "gpu/dynamics/layout_entries.h"
#include "gpu/dynamics/symmetric_eigen.h"

namespace palpate::gpu {
namespace {

using Cell = std::array<int32_t, 3>;
using Vec = std::array<double, 3>;

constexpr double kFinestSpacing = 2;       // times the mean edge: sweeps do well what varies faster
constexpr double kCoarser = 1.12;          // from one try to the next
constexpr double kLeastNodeWeight = 0.25;  // a node that weighs less, in vertices, is left out: the corners of the lattice's box
constexpr double kLeastShare = 0.25;       // of a vertex's weights that must be left for it to hang on the others
constexpr double kFlat = 1e-3;             // of a node's vertices: least over largest variance

/// One vertex's place in the lattice: the lowest corner of its cube, and where in it.
struct Place {
  Cell cell{};
  Vec share{};
};

Place PlaceOf(const CoarsePart& part, const Vec& rest_m) {
  Place place;
  for (size_t k = 0; k < 3; ++k) {
    const double at = (rest_m[k] - part.origin_m[k]) / part.spacing_m;
    const double low = std::floor(at);
    place.cell[k] = static_cast<int32_t>(std::clamp(low, -1e9, 1e9));
    place.share[k] = at - low;
  }
  return place;
}

double WeightOf(const Place& place, uint32_t corner, Cell* cell) {
  double weight = 1;
  for (size_t k = 0; k < 3; ++k) {
    const uint32_t upper = corner >> k & 1U;
    (*cell)[k] = place.cell[k] + static_cast<int32_t>(upper);
    weight *= upper != 0 ? place.share[k] : 1 - place.share[k];
  }
  return weight;
}

/// Node of a cell, or node_begin + node_count.
uint32_t FindNode(const CoarsePart& part, std::span<const Cell> cells, const Cell& cell) {
  const auto begin = cells.begin() + part.node_begin;
  const auto end = begin + part.node_count;
  const auto found = std::lower_bound(begin, end, cell);
  return part.node_begin + (found != end && *found == cell ? static_cast<uint32_t>(found - begin) : part.node_count);
}

CoarseHold HoldOf(const CoarsePart& part, std::span<const Cell> cells, const Vec& rest_m) {
  CoarseHold hold;
  hold.nodes.fill(part.node_begin);
  const Place place = PlaceOf(part, rest_m);
  double sum = 0;
  for (uint32_t c = 0; c < kCoarseCorners; ++c) {
    Cell cell;
    const double weight = WeightOf(place, c, &cell);
    const uint32_t node = FindNode(part, cells, cell);
    if (node == part.node_begin + part.node_count) continue;
    hold.nodes[c] = node;
    hold.weights[c] = weight;
    sum += weight;
  }
  for (double& weight : hold.weights) weight = sum >= kLeastShare ? weight / sum : 0;
  return hold;
}

bool MovesFreely(const TissueLayout& layout, SolverSlot slot) {
  return slot != kNoSolverSlot && ToNumber(slot) < layout.free_count && layout.mass_kg[slot] > 0 && layout.held_axes[slot] == 0 &&
         !layout.IsJointed(slot);
}

/// Connected parts, by their lowest vertex: vertices and tets of each. Those with shape-matched tets are left out.
struct Parts {
  std::vector<std::vector<uint32_t>> vertices, tets;
};

Parts FindParts(const TissueModel& model) {
  UnionFind joined = JoinedByTets(model);
  std::vector<uint8_t> is_matched(joined.size(), 0);
  std::vector<uint32_t> tet_count(joined.size(), 0);
  for (const TissueTet& tet : model.tets) {
    if (LayoutEntries::IsFree(tet)) continue;
    const uint32_t part = joined.Find(tet.vertices[0]);
    ++tet_count[part];
    if (tet.energy == TissueEnergy::kShapeMatched) is_matched[part] = 1;
  }
  Parts parts;
  std::vector<uint32_t> number(joined.size(), kNoCoarsePart);
  for (uint32_t v = 0; v < joined.size(); ++v) {
    const uint32_t part = joined.Find(v);
    if (tet_count[part] == 0 || is_matched[part] != 0) continue;
    if (number[part] == kNoCoarsePart) {
      number[part] = static_cast<uint32_t>(parts.vertices.size());
      parts.vertices.emplace_back();
      parts.tets.emplace_back();
    }
    parts.vertices[number[part]].push_back(v);
  }
  for (uint32_t t = 0; t < model.tets.size(); ++t) {
    if (LayoutEntries::IsFree(model.tets[t])) continue;
    const uint32_t part = number[joined.Find(model.tets[t].vertices[0])];
    if (part != kNoCoarsePart) parts.tets[part].push_back(t);
  }
  return parts;
}

double MeanEdge(const TissueModel& model, std::span<const uint32_t> tets) {
  double sum = 0;
  for (const uint32_t t : tets) {
    const std::array<uint32_t, 4>& v = model.tets[t].vertices;
    for (size_t a = 0; a < 4; ++a) {
      for (size_t b = a + 1; b < 4; ++b) {
        double sq = 0;
        for (size_t k = 0; k < 3; ++k) sq += std::pow(model.rest_m[v[a]][k] - model.rest_m[v[b]][k], 2);
        sum += std::sqrt(sq);
      }
    }
  }
  return sum / (6.0 * static_cast<double>(tets.size()));
}

/// The cells whose nodes weigh enough, rising.
std::vector<Cell> CellsOf(const CoarsePart& part, const TissueModel& model, std::span<const uint32_t> vertices) {
  std::vector<std::pair<Cell, double>> found;
  found.reserve(vertices.size() * kCoarseCorners);
  for (const uint32_t v : vertices) {
    const Place place = PlaceOf(part, model.rest_m[v]);
    for (uint32_t c = 0; c < kCoarseCorners; ++c) {
      Cell cell;
      const double weight = WeightOf(place, c, &cell);
      if (weight > 0) found.emplace_back(cell, weight);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<Cell> cells;
  for (size_t i = 0; i < found.size();) {
    double sum = 0;
    const Cell cell = found[i].first;
    for (; i < found.size() && found[i].first == cell; ++i) sum += found[i].second;
    if (sum >= kLeastNodeWeight) cells.push_back(cell);
  }
  return cells;
}

/// The finest lattice of at most `max_nodes`, centred on the vertices `free`, or that of one cube.
std::vector<Cell> Fit(const TissueModel& model, std::span<const uint32_t> free, double mean_edge_m, size_t max_nodes, CoarsePart* part) {
  Vec low = model.rest_m[free[0]];
  Vec high = low;
  for (const uint32_t v : free) {
    for (size_t k = 0; k < 3; ++k) {
      low[k] = std::min(low[k], model.rest_m[v][k]);
      high[k] = std::max(high[k], model.rest_m[v][k]);
    }
  }
  const double longest = std::max({high[0] - low[0], high[1] - low[1], high[2] - low[2]});
  for (double spacing = kFinestSpacing * mean_edge_m;; spacing *= kCoarser) {
    part->spacing_m = spacing;
    for (size_t k = 0; k < 3; ++k) {
      const double count = std::max(1.0, std::ceil((high[k] - low[k]) / spacing));
      part->origin_m[k] = 0.5 * (low[k] + high[k] - count * spacing);
    }
    std::vector<Cell> cells = CellsOf(*part, model, free);
    if (cells.size() <= max_nodes || spacing > longest) return cells;
  }
}

/// Appends a part, if any of it moves freely.
void AddPart(const TissueModel& model, const TissueLayout& layout, double dt_s, std::span<const uint32_t> vertices,
             std::span<const uint32_t> tets, size_t max_nodes, uint32_t most_solved, std::vector<CoarseHold>* holds,
             CoarseLattice* lattice) {
  std::vector<uint32_t> free;
  std::copy_if(vertices.begin(), vertices.end(), std::back_inserter(free),
               [&](uint32_t v) { return MovesFreely(layout, layout.solver_index[v]); });
  if (free.empty()) return;
  CoarsePart part;
  const std::vector<Cell> cells = Fit(model, free, MeanEdge(model, tets), max_nodes, &part);
  if (cells.empty()) return;
  part.node_begin = static_cast<uint32_t>(lattice->cells.size());
  part.node_count = static_cast<uint32_t>(cells.size());
  part.solved_begin = lattice->SolvedCount();
  lattice->cells.insert(lattice->cells.end(), cells.begin(), cells.end());
  for (const uint32_t v : vertices) {
    lattice->vertex_part[v] = static_cast<uint32_t>(lattice->parts.size());
    if (MovesFreely(layout, layout.solver_index[v])) (*holds)[v] = HoldOf(part, lattice->cells, model.rest_m[v]);
  }
  CoarseOperator op = CoarseOperator::Assemble(model, layout, dt_s, vertices, tets, part, *holds);
  op.AddRidge();
  part.has_stencils = part.node_count > most_solved;
  if (part.has_stencils) {
    AppendStencils(op, cells, part, &lattice->stencils);
    op = op.CoarsenedBy(lattice->stencils, part.solved_begin);
    op.AddRidge();
  }
  part.solved_count = op.node_count();
  part.inverse_begin = lattice->inverse.size();
  part.row_floats = (3 * part.solved_count + kCoarseRowUnit - 1) / kCoarseRowUnit * kCoarseRowUnit;
  op.AppendInverse(part.row_floats, &lattice->inverse);
  lattice->parts.push_back(part);
}

/// For each node itself if its vertices span a volume, else the nearest node of its part whose do.
std::vector<uint32_t> FramesOf(const CoarseLattice& lattice, const TissueLayout& layout, const CoarseWeights& weights) {
  std::vector<uint32_t> frame(lattice.cells.size());
  std::iota(frame.begin(), frame.end(), 0U);
  for (const CoarsePart& part : lattice.parts) {
    std::vector<uint8_t> spans(part.node_count, 0);
    for (uint32_t i = 0; i < part.node_count; ++i) {
      const uint32_t begin = weights.node_begins[part.node_begin + i];
      const uint32_t end = weights.node_begins[part.node_begin + i + 1];
      Vec mean{};
      double sum = 0;
      const auto rest = [&](uint32_t e) {
        const Float4& r = layout.rest_m[SolverSlot{weights.entry_vertex[e]}];
        return Vec{r.x, r.y, r.z};
      };
      for (uint32_t e = begin; e < end; ++e) {
        sum += weights.entry_weight[e];
        for (size_t k = 0; k < 3; ++k) mean[k] += weights.entry_weight[e] * rest(e)[k];
      }
      Matrix<3> spread{};
      for (uint32_t e = begin; e < end; ++e) {
        const Vec r = rest(e);
        for (size_t j = 0; j < 3; ++j) {
          for (size_t k = 0; k < 3; ++k) spread[j][k] += weights.entry_weight[e] * (r[j] - mean[j] / sum) * (r[k] - mean[k] / sum);
        }
      }
      std::array<double, 3> values{};
      Matrix<3> vectors{};
      SymmetricEigen(spread, &values, &vectors);
      const auto [least, largest] = std::minmax_element(values.begin(), values.end());
      spans[i] = *largest > 0 && *least > kFlat * *largest;
    }
    for (uint32_t i = 0; i < part.node_count; ++i) {
      if (spans[i] != 0) continue;
      int64_t nearest = std::numeric_limits<int64_t>::max();
      for (uint32_t j = 0; j < part.node_count; ++j) {
        if (spans[j] == 0) continue;
        int64_t sq = 0;
        for (size_t k = 0; k < 3; ++k) {
          const int64_t d = lattice.cells[part.node_begin + i][k] - lattice.cells[part.node_begin + j][k];
          sq += d * d;
        }
        if (sq >= nearest) continue;
        nearest = sq;
        frame[part.node_begin + i] = part.node_begin + j;
      }
    }
  }
  return frame;
}

}  // namespace

CoarseLattice BuildCoarseLattice(const TissueModel& model, const TissueLayout& layout, double dt_s, uint32_t max_nodes,
                                 uint32_t most_solved) {
  CoarseLattice lattice;
  lattice.vertex_part.assign(model.rest_m.size(), kNoCoarsePart);
  const Parts parts = FindParts(model);
  size_t vertex_count = 0;
  for (const std::vector<uint32_t>& vertices : parts.vertices) vertex_count += vertices.size();
  std::vector<CoarseHold> holds(model.rest_m.size());
  for (size_t p = 0; p < parts.vertices.size(); ++p) {
    const size_t own = std::max<size_t>(kCoarseCorners, max_nodes * parts.vertices[p].size() / vertex_count);
    AddPart(model, layout, dt_s, parts.vertices[p], parts.tets[p], own, most_solved, &holds, &lattice);
  }
  FinishStencils(lattice.SolvedCount(), &lattice.stencils);
  return lattice;
}

bool IsConsistent(const CoarseLattice& lattice, size_t vertex_count) {
  size_t floats = 0;
  size_t nodes = 0;
  size_t solved = 0;
  size_t fine = 0;
  for (const CoarsePart& part : lattice.parts) {
    if (part.node_begin != nodes || part.solved_begin != solved || part.inverse_begin != floats || !(part.spacing_m > 0)) return false;
    if (part.row_floats % kCoarseRowUnit != 0 || part.row_floats < uint64_t{3} * part.solved_count) return false;
    if (part.row_floats > lattice.inverse.size() || (!part.has_stencils && part.node_count != part.solved_count)) return false;
    nodes += part.node_count;
    solved += part.solved_count;
    fine += part.has_stencils ? part.node_count : 0;
    floats += size_t{3} * part.solved_count * part.row_floats;
  }
  if (nodes != lattice.cells.size() || floats != lattice.inverse.size() || lattice.vertex_part.size() != vertex_count) return false;
  for (const uint32_t part : lattice.vertex_part) {
    if (part != kNoCoarsePart && part >= lattice.parts.size()) return false;
  }
  return IsConsistent(lattice.stencils, nodes, fine, solved);
}

void FollowCoarseParts(const TissueModel& model, std::span<const uint32_t> tets, CoarseLattice* lattice) {
  std::vector<uint32_t>& part = lattice->vertex_part;
  part.resize(model.rest_m.size(), kNoCoarsePart);
  for (size_t v = 0; v < part.size(); ++v) {
    if (model.fixed[v] == kAbsentVertex) part[v] = kNoCoarsePart;
  }
  for (bool found = true; found;) {
    found = false;
    for (const uint32_t t : tets) {
      if (t >= model.tets.size() || LayoutEntries::IsFree(model.tets[t])) continue;
      const std::array<uint32_t, 4>& vertices = model.tets[t].vertices;
      const auto known = std::find_if(vertices.begin(), vertices.end(), [&](uint32_t v) { return part[v] != kNoCoarsePart; });
      if (known == vertices.end()) continue;
      for (const uint32_t v : vertices) {
        if (part[v] != kNoCoarsePart) continue;
        part[v] = part[*known];
        found = true;
      }
    }
  }
}

CoarseWeights WeighCoarse(const CoarseLattice& lattice, const TissueLayout& layout) {
  CoarseWeights w;
  w.vertex_nodes.assign(size_t{layout.vertex_count} * kCoarseCorners, 0);
  w.vertex_weights.assign(size_t{layout.vertex_count} * kCoarseCorners, 0.0F);
  w.node_begins.assign(lattice.cells.size() + 1, 0);
  for (uint32_t s = 0; s < layout.free_count; ++s) {
    const SolverSlot slot{s};
    const uint32_t vertex = layout.original_index[slot];
    if (vertex == kNoTissueVertex || lattice.vertex_part[vertex] == kNoCoarsePart || !MovesFreely(layout, slot)) continue;
    const Float4& rest = layout.rest_m[slot];
    const CoarseHold hold = HoldOf(lattice.parts[lattice.vertex_part[vertex]], lattice.cells, {rest.x, rest.y, rest.z});
    for (uint32_t c = 0; c < kCoarseCorners; ++c) {
      const auto weight = static_cast<float>(hold.weights[c]);
      w.vertex_nodes[size_t{s} * kCoarseCorners + c] = hold.nodes[c];
      w.vertex_weights[size_t{s} * kCoarseCorners + c] = weight;
      if (weight > 0) ++w.node_begins[hold.nodes[c] + 1];
    }
  }
  std::partial_sum(w.node_begins.begin(), w.node_begins.end(), w.node_begins.begin());
  w.entry_vertex.resize(w.node_begins.back());
  w.entry_weight.resize(w.node_begins.back());
  std::vector<uint32_t> next(w.node_begins.begin(), w.node_begins.end() - 1);
  for (uint32_t s = 0; s < layout.free_count; ++s) {
    for (uint32_t c = 0; c < kCoarseCorners; ++c) {
      const float weight = w.vertex_weights[size_t{s} * kCoarseCorners + c];
      if (!(weight > 0)) continue;
      const uint32_t entry = next[w.vertex_nodes[size_t{s} * kCoarseCorners + c]]++;
      w.entry_vertex[entry] = s;
      w.entry_weight[entry] = weight;
    }
  }
  w.node_frame = FramesOf(lattice, layout, w);
  return w;
}

}  // namespace palpate::gpu
