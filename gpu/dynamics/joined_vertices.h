#pragma once

#include <cstdint>

#include "gpu/base/union_find.h"
#include "gpu/dynamics/tissue_layout.h"

namespace palpate::gpu {

/// The connected parts of a model's tissue: its vertices, by the caller's numbers, joined by its tets. O(vertices + tets).
inline UnionFind JoinedByTets(const TissueModel& model) {
  UnionFind joined(model.rest_m.size());
  for (const TissueTet& tet : model.tets) {
    if (tet.vertices == kFreeTissueTet) continue;
    for (size_t c = 1; c < 4; ++c) joined.Join(tet.vertices[0], tet.vertices[c]);
  }
  return joined;
}

}  // namespace palpate::gpu
