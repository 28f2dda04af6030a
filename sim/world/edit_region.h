#pragma once

#include <cstdint>
#include <vector>

#include "sim/scene/edit.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

// Where edits act, as the vertices lie now. Precondition of the first three: the body is editable.

/// Live tets of a region, ascending slots: of a ball or a capsule those whose centre is inside; of a list also those that are gone.
std::vector<TetId> TetsIn(const WorldBody& body, const EditRegion& region);

/// Whether a live tet reaches into a ball or a capsule; true of other regions.
bool MeetsRegion(const WorldBody& body, uint32_t tet, const EditRegion& region);

/// Live tets that reach into a ball or a capsule; those of other regions as above.
std::vector<TetId> TetsMeeting(const WorldBody& body, const EditRegion& region);

// Likewise for triangles of a shell. Precondition: the body has a sheet.
std::vector<TriangleId> TrianglesIn(const WorldBody& body, const EditRegion& region);
bool TriangleMeetsRegion(const WorldBody& body, uint32_t triangle, const EditRegion& region);
std::vector<TriangleId> TrianglesMeeting(const WorldBody& body, const EditRegion& region);

}  // namespace palpate::sim
