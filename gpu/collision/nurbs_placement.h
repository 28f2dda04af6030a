#pragma once

#include <array>
#include <span>

#include "gpu/base/status.h"
#include "gpu/collision/nurbs_objects.h"
#include "gpu/collision/nurbs_queries.h"
#include "gpu/shared/nurbs_types.h"

/// Queries as kernels take them.
namespace palpate::gpu::nurbs {

/// Where the middle of the first object is, in W: the origin of a placement.
std::array<double, 3> OriginOf(const NurbsObjects& objects, const NurbsQuery& query);
/// InvalidArgument naming the query whose object or pose is wrong.
absl::Status CheckQueries(const NurbsObjects& objects, std::span<const NurbsQuery> queries);
NurbsPlacement PlacementOf(const NurbsObjects& objects, const NurbsQuery& query);

}  // namespace palpate::gpu::nurbs
