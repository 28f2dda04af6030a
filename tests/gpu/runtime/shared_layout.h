/* Every struct of gpu/shared with its members, read by the layout test on both sides. A new shared header is included here, and each of
   its structs gets STRUCT(type) and one FIELD(type, member) for each member in order. */
#include "gpu/shared/box.h"
#include "gpu/shared/ccd_types.h"
#include "gpu/shared/collision_types.h"
#include "gpu/shared/convex_types.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/joint_types.h"
#include "gpu/shared/kdop.h"
#include "gpu/shared/rigid_types.h"
#include "gpu/shared/shape_types.h"
#include "gpu/shared/types.h"
#include "gpu/shared/view_types.h"

#define PALPATE_SHARED_LAYOUT(STRUCT, FIELD) \
  STRUCT(Int)                                \
  STRUCT(UInt)                               \
  STRUCT(ULong)                              \
  STRUCT(Float2)                             \
  STRUCT(Float4)                             \
  STRUCT(Int2)                               \
  STRUCT(Int4)                               \
  STRUCT(UInt2)                              \
  STRUCT(UInt4)                              \
  STRUCT(LayoutProbe)                        \
  FIELD(LayoutProbe, a)                      \
  FIELD(LayoutProbe, b)                      \
  FIELD(LayoutProbe, c)                      \
  FIELD(LayoutProbe, d)                      \
  FIELD(LayoutProbe, e)                      \
  STRUCT(Box)                                \
  FIELD(Box, lower)                          \
  FIELD(Box, upper)                          \
  STRUCT(SurfaceContact)                     \
  FIELD(SurfaceContact, kind)                \
  FIELD(SurfaceContact, a)                   \
  FIELD(SurfaceContact, b)                   \
  FIELD(SurfaceContact, group_a)             \
  FIELD(SurfaceContact, weights)             \
  FIELD(SurfaceContact, normal)              \
  FIELD(SurfaceContact, vertices)            \
  STRUCT(CcdHit)                             \
  FIELD(CcdHit, kind)                        \
  FIELD(CcdHit, a)                           \
  FIELD(CcdHit, b)                           \
  FIELD(CcdHit, toi)                         \
  FIELD(CcdHit, weights)                     \
  FIELD(CcdHit, normal)                      \
  FIELD(CcdHit, vertices)                    \
  STRUCT(ConvexShape)                        \
  FIELD(ConvexShape, block_begin)            \
  FIELD(ConvexShape, block_count)            \
  FIELD(ConvexShape, vertex_count)           \
  FIELD(ConvexShape, row_begin)              \
  STRUCT(ConvexContact)                      \
  FIELD(ConvexContact, a)                    \
  FIELD(ConvexContact, b)                    \
  FIELD(ConvexContact, status)               \
  FIELD(ConvexContact, iterations)           \
  FIELD(ConvexContact, normal)               \
  FIELD(ConvexContact, point_a)              \
  FIELD(ConvexContact, point_b)              \
  STRUCT(CcdAnswer)                          \
  FIELD(CcdAnswer, toi)                      \
  FIELD(CcdAnswer, is_hit)                   \
  FIELD(CcdAnswer, is_finite)                \
  FIELD(CcdAnswer, steps)                    \
  STRUCT(ShapeMatch)                         \
  FIELD(ShapeMatch, rotation)                \
  FIELD(ShapeMatch, rest_center)             \
  FIELD(ShapeMatch, center)                  \
  FIELD(ShapeMatch, rank)                    \
  FIELD(ShapeMatch, converged)               \
  FIELD(ShapeMatch, unused0)                 \
  FIELD(ShapeMatch, unused1)                 \
  STRUCT(RigidParams)                        \
  FIELD(RigidParams, gravity)                \
  FIELD(RigidParams, ground)                 \
  FIELD(RigidParams, dt_s)                   \
  FIELD(RigidParams, damping)                \
  FIELD(RigidParams, restitution)            \
  FIELD(RigidParams, friction)               \
  FIELD(RigidParams, body_count)             \
  FIELD(RigidParams, flags)                  \
  FIELD(RigidParams, unused0)                \
  FIELD(RigidParams, unused1)                \
  STRUCT(RigidCounters)                      \
  FIELD(RigidCounters, unresolved_pairs)     \
  FIELD(RigidCounters, incomplete_matches)   \
  FIELD(RigidCounters, failed_matches)       \
  FIELD(RigidCounters, limited_rotations)    \
  FIELD(RigidCounters, limited_corrections)  \
  FIELD(RigidCounters, restored_bodies)      \
  FIELD(RigidCounters, unused0)              \
  FIELD(RigidCounters, unused1)              \
  STRUCT(RigidInstance)                      \
  FIELD(RigidInstance, position)             \
  FIELD(RigidInstance, rotation)             \
  FIELD(RigidInstance, scale)                \
  FIELD(RigidInstance, mesh)                 \
  STRUCT(PairCounters)                       \
  FIELD(PairCounters, pair_count)            \
  FIELD(PairCounters, wraps)                 \
  FIELD(PairCounters, bad_body)              \
  FIELD(PairCounters, row_tiles)             \
  STRUCT(CentreMoments)                      \
  FIELD(CentreMoments, reference)            \
  FIELD(CentreMoments, sum)                  \
  FIELD(CentreMoments, diagonal)             \
  FIELD(CentreMoments, mixed)                \
  STRUCT(RigidBlockState)                    \
  FIELD(RigidBlockState, center)             \
  FIELD(RigidBlockState, rotation)           \
  FIELD(RigidBlockState, center_start)       \
  FIELD(RigidBlockState, rotation_start)     \
  FIELD(RigidBlockState, center_free)        \
  FIELD(RigidBlockState, rotation_free)      \
  FIELD(RigidBlockState, center_detected)    \
  FIELD(RigidBlockState, rotation_detected)  \
  FIELD(RigidBlockState, center_goal)        \
  FIELD(RigidBlockState, rotation_goal)      \
  FIELD(RigidBlockState, velocity)           \
  FIELD(RigidBlockState, momentum)           \
  FIELD(RigidBlockState, acceleration)       \
  FIELD(RigidBlockState, inertia)            \
  FIELD(RigidBlockState, vertex_begin)       \
  FIELD(RigidBlockState, vertex_end)         \
  FIELD(RigidBlockState, triangle_begin)     \
  FIELD(RigidBlockState, triangle_end)       \
  FIELD(RigidBlockState, is_truncated)       \
  FIELD(RigidBlockState, radius_m)           \
  FIELD(RigidBlockState, joint_member)       \
  FIELD(RigidBlockState, unused1)            \
  STRUCT(RigidPairs)                         \
  FIELD(RigidPairs, begin)                   \
  FIELD(RigidPairs, end)                     \
  FIELD(RigidPairs, clear_m)                 \
  STRUCT(JointRow)                           \
  FIELD(JointRow, target)                    \
  FIELD(JointRow, speed)                     \
  FIELD(JointRow, stiffness)                 \
  FIELD(JointRow, damping)                   \
  FIELD(JointRow, max_effort)                \
  FIELD(JointRow, lower)                     \
  FIELD(JointRow, upper)                     \
  FIELD(JointRow, drive)                     \
  STRUCT(JointData)                          \
  FIELD(JointData, point_a)                  \
  FIELD(JointData, rotation_a)               \
  FIELD(JointData, point_b)                  \
  FIELD(JointData, rotation_b)               \
  FIELD(JointData, body_a)                   \
  FIELD(JointData, body_b)                   \
  FIELD(JointData, along)                    \
  FIELD(JointData, about)                    \
  FIELD(JointData, rows)                     \
  STRUCT(JointPlace)                         \
  FIELD(JointPlace, member_a)                \
  FIELD(JointPlace, member_b)                \
  FIELD(JointPlace, node)                    \
  FIELD(JointPlace, node_a)                  \
  FIELD(JointPlace, node_b)                  \
  FIELD(JointPlace, block_a)                 \
  FIELD(JointPlace, block_b)                 \
  FIELD(JointPlace, is_transposed)           \
  STRUCT(JointNode)                          \
  FIELD(JointNode, index)                    \
  FIELD(JointNode, is_joint)                 \
  FIELD(JointNode, below_begin)              \
  FIELD(JointNode, below_end)                \
  FIELD(JointNode, target_begin)             \
  FIELD(JointNode, unused0)                  \
  STRUCT(JointGroup)                         \
  FIELD(JointGroup, node_begin)              \
  FIELD(JointGroup, node_end)                \
  FIELD(JointGroup, block_begin)             \
  FIELD(JointGroup, block_end)               \
  FIELD(JointGroup, joint_begin)             \
  FIELD(JointGroup, joint_end)               \
  STRUCT(JointScheme)                        \
  FIELD(JointScheme, end)                    \
  FIELD(JointScheme, start)                  \
  FIELD(JointScheme, before)                 \
  FIELD(JointScheme, rate)                   \
  STRUCT(JointBodySystem)                    \
  FIELD(JointBodySystem, h)                  \
  FIELD(JointBodySystem, f)                  \
  FIELD(JointBodySystem, share)              \
  STRUCT(JointReport)                        \
  FIELD(JointReport, force)                  \
  FIELD(JointReport, torque)                 \
  FIELD(JointReport, point)                  \
  FIELD(JointReport, coordinates)            \
  FIELD(JointReport, efforts)                \
  STRUCT(ViewPrimitive)                      \
  FIELD(ViewPrimitive, start)                \
  FIELD(ViewPrimitive, end)                  \
  FIELD(ViewPrimitive, axis)                 \
  FIELD(ViewPrimitive, ray)                  \
  STRUCT(ViewCounts)                         \
  FIELD(ViewCounts, unsure)                  \
  FIELD(ViewCounts, negative)                \
  FIELD(ViewCounts, ray_hits)                \
  FIELD(ViewCounts, ray_unsure)              \
  STRUCT(ViewMoments)                        \
  FIELD(ViewMoments, pull)                   \
  FIELD(ViewMoments, diagonal)               \
  FIELD(ViewMoments, mixed)                  \
  FIELD(ViewMoments, centre)                 \
  FIELD(ViewMoments, move)                   \
  STRUCT(CcdCounters)                        \
  FIELD(CcdCounters, candidates)             \
  FIELD(CcdCounters, pairs)                  \
  FIELD(CcdCounters, hits)                   \
  FIELD(CcdCounters, bad_vertex)             \
  FIELD(CcdCounters, earliest_bits)          \
  FIELD(CcdCounters, padding)                \
  STRUCT(StepParams)                         \
  FIELD(StepParams, dt_s)                    \
  FIELD(StepParams, inv_dt)                  \
  FIELD(StepParams, gravity_x)               \
  FIELD(StepParams, gravity_y)               \
  FIELD(StepParams, gravity_z)               \
  FIELD(StepParams, margin_m)                \
  FIELD(StepParams, stiffness_n_per_m)       \
  FIELD(StepParams, stiffening)              \
  FIELD(StepParams, friction)                \
  FIELD(StepParams, slip_m)                  \
  FIELD(StepParams, range_m)                 \
  FIELD(StepParams, lambda_cap)              \
  FIELD(StepParams, low_unit_m)              \
  FIELD(StepParams, low_units_per_m)         \
  FIELD(StepParams, free_count)              \
  FIELD(StepParams, vertex_count)            \
  FIELD(StepParams, triangle_count)          \
  FIELD(StepParams, collider_count)          \
  FIELD(StepParams, plane_count)             \
  FIELD(StepParams, tet_count)               \
  STRUCT(Collider)                           \
  FIELD(Collider, tip_start)                 \
  FIELD(Collider, axis_start)                \
  FIELD(Collider, tip)                       \
  FIELD(Collider, axis)                      \
  FIELD(Collider, velocity)                  \
  FIELD(Collider, device_tip)                \
  FIELD(Collider, device_velocity)           \
  STRUCT(ToolContact)                        \
  FIELD(ToolContact, normal)                 \
  FIELD(ToolContact, weights)                \
  FIELD(ToolContact, side)                   \
  STRUCT(ContactReport)                      \
  FIELD(ContactReport, collider)             \
  FIELD(ContactReport, triangle)             \
  FIELD(ContactReport, gap_m)                \
  FIELD(ContactReport, arm)                  \
  FIELD(ContactReport, point)                \
  FIELD(ContactReport, normal)               \
  FIELD(ContactReport, force)                \
  STRUCT(CapsuleLeg)                         \
  FIELD(CapsuleLeg, tip_from)                \
  FIELD(CapsuleLeg, axis_from)               \
  FIELD(CapsuleLeg, tip_to)                  \
  FIELD(CapsuleLeg, axis_to)                 \
  STRUCT(CapsuleMeeting)                     \
  FIELD(CapsuleMeeting, collider)            \
  FIELD(CapsuleMeeting, triangle)            \
  FIELD(CapsuleMeeting, toi)                 \
  FIELD(CapsuleMeeting, unused)              \
  FIELD(CapsuleMeeting, normal)              \
  STRUCT(ObstacleCounters)                   \
  FIELD(ObstacleCounters, meetings)          \
  FIELD(ObstacleCounters, behind)            \
  FIELD(ObstacleCounters, bad)               \
  FIELD(ObstacleCounters, earliest_toi)      \
  STRUCT(PlaneObstacle)                      \
  FIELD(PlaneObstacle, normal_offset)        \
  STRUCT(StepPartial)                        \
  FIELD(StepPartial, hash)                   \
  FIELD(StepPartial, kinetic_energy_j)       \
  FIELD(StepPartial, max_speed_m_per_s)      \
  FIELD(StepPartial, bad_vertices)           \
  FIELD(StepPartial, inverted_tets)          \
  FIELD(StepPartial, strained_tets)          \
  FIELD(StepPartial, inverted_elastic)       \
  STRUCT(SurfaceParams)                      \
  FIELD(SurfaceParams, margin_m)             \
  FIELD(SurfaceParams, friction)             \
  FIELD(SurfaceParams, slip_m)               \
  FIELD(SurfaceParams, range_m)              \
  STRUCT(SurfacePair)                        \
  FIELD(SurfacePair, vertices)               \
  FIELD(SurfacePair, weights)                \
  FIELD(SurfacePair, normal)                 \
  FIELD(SurfacePair, stiffness_n_per_m)      \
  FIELD(SurfacePair, flags)                  \
  FIELD(SurfacePair, full_n_per_m)           \
  FIELD(SurfacePair, b)                      \
  STRUCT(PairRow)                            \
  FIELD(PairRow, point_a)                    \
  FIELD(PairRow, point_b)                    \
  FIELD(PairRow, normal)                     \
  FIELD(PairRow, on_b)                       \
  STRUCT(PairWay)                            \
  FIELD(PairWay, mover_a)                    \
  FIELD(PairWay, mover_b)                    \
  FIELD(PairWay, far_until_m)                \
  STRUCT(ComponentRow)                       \
  FIELD(ComponentRow, normal)                \
  FIELD(ComponentRow, friction)              \
  FIELD(ComponentRow, detected)              \
  FIELD(ComponentRow, component_a)           \
  FIELD(ComponentRow, component_b)           \
  FIELD(ComponentRow, slope_n_per_m)         \
  FIELD(ComponentRow, rounding_m)            \
  STRUCT(SurfaceReport)                      \
  FIELD(SurfaceReport, kind)                 \
  FIELD(SurfaceReport, a)                    \
  FIELD(SurfaceReport, b)                    \
  FIELD(SurfaceReport, unused)               \
  FIELD(SurfaceReport, vertices)             \
  FIELD(SurfaceReport, point_a)              \
  FIELD(SurfaceReport, point_b)              \
  FIELD(SurfaceReport, normal)               \
  FIELD(SurfaceReport, force)                \
  STRUCT(MovePartial)                        \
  FIELD(MovePartial, beyond_cap)             \
  FIELD(MovePartial, truncated)              \
  FIELD(MovePartial, bad)                    \
  FIELD(MovePartial, used_up)                \
  FIELD(MovePartial, longest_m)              \
  STRUCT(ShapeCluster)                       \
  FIELD(ShapeCluster, basis_x)               \
  FIELD(ShapeCluster, basis_y)               \
  FIELD(ShapeCluster, basis_z)               \
  FIELD(ShapeCluster, begin)                 \
  FIELD(ShapeCluster, end)                   \
  FIELD(ShapeCluster, mode)                  \
  FIELD(ShapeCluster, rank)                  \
  FIELD(ShapeCluster, beta)                  \
  FIELD(ShapeCluster, keeps)                 \
  FIELD(ShapeCluster, held)                  \
  FIELD(ShapeCluster, unused)                \
  STRUCT(ShapePose)                          \
  FIELD(ShapePose, center)                   \
  FIELD(ShapePose, rotation)                 \
  FIELD(ShapePose, column_x)                 \
  FIELD(ShapePose, column_y)                 \
  FIELD(ShapePose, column_z)                 \
  FIELD(ShapePose, quadratic)                \
  STRUCT(DrivenPose)                         \
  FIELD(DrivenPose, rotation)                \
  FIELD(DrivenPose, center_start)            \
  FIELD(DrivenPose, center)

PALPATE_SHARED_BEGIN

/* Mixed members whose compiler-made padding shows whether alignments agree. */
typedef struct LayoutProbe {
  UInt a;
  Float4 b;
  UInt c;
  UInt2 d;
  ULong e;
} LayoutProbe;
PALPATE_SHARED_SIZE(LayoutProbe, 64);

PALPATE_SHARED_END
