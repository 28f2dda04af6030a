#pragma once

#include <array>
#include <cstdint>

#include <Eigen/Core>

#include "absl/status/statusor.h"
#include "sim/mesh/isosurface_stuffing.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// Bodies that need no foreign asset. All are centred at the origin of the caller's frame (z up). The ranges are those of GeneratorSpec in
/// proto/palpate/v1/scene.proto; a value outside is InvalidArgument naming the parameter, the value and the range. An edge length of 0
/// means the default, a kDefaultEdgesPerExtent-th of the shape's largest extent; it must otherwise lie between a kMaxEdgesPerExtent-th of
/// that extent and the extent. Further errors: those of StuffIsosurface. Deterministic. `progress` may be empty; see ProgressCallback.
inline constexpr double kDefaultEdgesPerExtent = 10;
inline constexpr double kMaxEdgesPerExtent = 200;

/// A liver-like body: a large right lobe at -x that tapers to a thin left lobe at +x, a convex dome on top (+z) and a concave visceral face
/// below with a notch between the lobes; anterior is -y. One piece of genus 0 at every allowed edge length up to a fifth of the length.
/// `length_m`: extent along x (met to half an edge length), in [0.01, 1], default 0.2.
absl::StatusOr<TetMesh> GenerateLiver(double length_m = 0.2, double edge_length_m = 0, const ProgressCallback& progress = {});

/// The implicit function of that body (negative inside; not a distance) and a box that contains it.
ImplicitFunction LiverFunction(double length_m);
Eigen::AlignedBox3d LiverBounds(double length_m);

/// Edge length at which GenerateLiver(length_m, .) gives about `tet_count` tets: within 3 % at 600, 2,500, 10,000 and 50,000, about 10 %
/// elsewhere. Preconditions: length_m > 0, tet_count in [200, 5'000'000].
double LiverEdgeLengthForTets(double length_m, double tet_count);

/// Axis along z. `major_radius_m` (centre to tube centre, default 0.06) in [0.005, 1]; `minor_radius_m` (of the tube, default 0.02)
/// positive and smaller than the major radius. The edge length, also the default one, must be at most 1.25 times the smaller of the tube's
/// and the hole's radius.
absl::StatusOr<TetMesh> GenerateTorus(double major_radius_m = 0.06, double minor_radius_m = 0.02, double edge_length_m = 0,
                                      const ProgressCallback& progress = {});

/// A bean-like body: long axis along x, the hilum's dent at -y. One piece of genus 0 at every allowed edge length up to a fifth of the
/// length. `length_m`: extent along x (met to half an edge length), in [0.01, 1], default 0.11.
absl::StatusOr<TetMesh> GenerateKidney(double length_m = 0.11, double edge_length_m = 0, const ProgressCallback& progress = {});

/// A closed trefoil has no ends; an overhand knot is the same knot in a strand with two long tails, which end at x = -extent/2 and
/// x = +extent/2 and run along x there, at the same y and z.
enum class KnotEnds { kClosed, kOpen };

/// Largest tube_radius_m / extent_m: nine tenths of the radius at which the tube would touch itself.
inline constexpr double kMaxClosedKnotTubePerExtent = 0.110;
inline constexpr double kMaxOpenKnotTubePerExtent = 0.0358;
/// The default ratio.
inline constexpr double kDefaultClosedKnotTubePerExtent = 0.08;
inline constexpr double kDefaultOpenKnotTubePerExtent = 0.025;
/// Length of the tube's centre line / extent_m, to 1 %.
inline constexpr double kClosedKnotLengthPerExtent = 5.50;
inline constexpr double kOpenKnotLengthPerExtent = 2.38;

/// A tube around a knotted curve, swept: discs of equal distance along the centre line, each a centre vertex and rings of 6, 12, 18...
/// vertices at the edge length; each prism between two discs is cut into three tets. No mesh of a lattice, so the numbering is known:
/// vertex index = disc * (1 + 3 * rings * (rings + 1)) + place in the disc, the centre first, then rings outwards.
/// `extent_m`: of the centre line along x, in [0.02, 2]. `tube_radius_m`: 0 = the default ratio; at most the ratio above times the extent.
/// Here `edge_length_m` = 0 means the tube's radius, which is also the largest allowed; the smallest is a kMaxEdgesPerExtent-th of the
/// extent. The frames of the discs are transported in parallel; in a closed knot the angle left over is shared by all discs.
absl::StatusOr<TetMesh> GenerateKnot(KnotEnds ends, double extent_m = 0.2, double tube_radius_m = 0, double edge_length_m = 0);

/// A thin box, exact, that keeps a given number of layers of cells across its thickness whatever the edge length, which holds in its plane
/// only. `length_m` (x) and `width_m` (y) in [0.001, 2], `thickness_m` (z) in [1e-4, 0.1] and no more than either, `layer_count` in
/// [1, 16]. Five tets a cell (see BoxMesh).
absl::StatusOr<TetMesh> GenerateSheet(double length_m = 0.2, double width_m = 0.2, double thickness_m = 0.004, uint32_t layer_count = 1,
                                      double edge_length_m = 0);

/// A box, exact: a grid of cells as near to cubes of the edge length as the size allows, five tets each (see BoxMesh); the lattice mesher
/// would round its edges. Each of `size_m` in [0.001, 1], default (0.1, 0.1, 0.02).
absl::StatusOr<TetMesh> GenerateSlab(const Eigen::Vector3d& size_m = {0.1, 0.1, 0.02}, double edge_length_m = 0);

/// `radius_m` in [0.001, 1], default 0.05.
absl::StatusOr<TetMesh> GenerateSphere(double radius_m = 0.05, double edge_length_m = 0, const ProgressCallback& progress = {});

/// Structured box, centred: node_counts[i] >= 2 nodes along axis i, x fastest: vertex index = i + nx * (j + ny * k). Each cell is cut into
/// five tets, mirrored from cell to cell so that faces match (no direction is preferred on an even grid). Errors: InvalidArgument (size not
/// positive and finite, a count below 2); ResourceExhausted (more than 2^32-1 vertices or 20 million tets).
absl::StatusOr<TetMesh> BoxMesh(const std::array<uint32_t, 3>& node_counts, const Eigen::Vector3d& size_m);

/// Structured cylinder, axis z, centred. Its cross-section is a regular polygon of `sector_count` >= 3 corners on the circle of radius
/// radius_m, with `ring_count` >= 1 equidistant rings around a centre vertex; `layer_count` >= 1 layers of prisms along z, three tets each.
/// Vertex index: layer * (1 + ring_count * sector_count) + (0 for the axis, else 1 + (ring - 1) * sector_count + sector); the lowest layer
/// (z = -h/2) first. Its volume is sector_count / 2 * sin(2 pi / sector_count) * r^2 * h, exactly the polygon's prism. Errors as for
/// BoxMesh.
absl::StatusOr<TetMesh> CylinderMesh(double radius_m, double height_m, uint32_t ring_count, uint32_t sector_count, uint32_t layer_count);

}  // namespace palpate::sim
