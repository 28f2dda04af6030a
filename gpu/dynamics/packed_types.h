#pragma once

#include "gpu/base/state_archive.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/joint_types.h"
#include "gpu/shared/nurbs_shell_state.h"
#include "gpu/shared/rigid_types.h"
#include "gpu/shared/types.h"

// Structs of the solver that have no padding (those of gpu/shared never do), so that states hold arrays of them as they are.
namespace palpate {

template <>
inline constexpr bool kIsPacked<gpu::Float2> = true;
template <>
inline constexpr bool kIsPacked<gpu::Float4> = true;
template <>
inline constexpr bool kIsPacked<gpu::UInt2> = true;
template <>
inline constexpr bool kIsPacked<gpu::UInt4> = true;
template <>
inline constexpr bool kIsPacked<gpu::Collider> = true;
template <>
inline constexpr bool kIsPacked<gpu::RigidBlockState> = true;
template <>
inline constexpr bool kIsPacked<gpu::ControlPointState> = true;
template <>
inline constexpr bool kIsPacked<gpu::JointMount> = true;

static_assert(sizeof(gpu::TissueTet) == 72 && alignof(gpu::TissueTet) == 4, "a new field may bring padding");
template <>
inline constexpr bool kIsPacked<gpu::TissueTet> = true;

}  // namespace palpate
