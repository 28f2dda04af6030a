#include "gpu/primitives/primitive_config.h"

#include <algorithm>
#include <bit>
#include <string>

namespace palpate::gpu {

PrimitiveConfig PrimitiveConfig::For(const DeviceInfo& device) {
  const uint32_t units = std::max(device.compute_units, 1U);
  if (!device.is_gpu) return {.group_size = 1, .max_groups = std::min(units * 4, kMaxGroups), .min_chunk = 8192};
  const auto group_size = static_cast<uint32_t>(std::min<size_t>(256, std::bit_floor(std::max<size_t>(device.max_work_group_size, 1))));
  return {.group_size = group_size, .max_groups = std::min(units * 8, kMaxGroups), .min_chunk = 8 * group_size};
}

absl::Status PrimitiveConfig::Validate() const {
  if (!std::has_single_bit(group_size)) {
    return absl::InvalidArgumentError(absl::StrCat("PrimitiveConfig.group_size is ", group_size, ", allowed: powers of two"));
  }
  if (max_groups < 1 || max_groups > kMaxGroups) {
    return absl::InvalidArgumentError(absl::StrCat("PrimitiveConfig.max_groups is ", max_groups, ", allowed: 1 to ", kMaxGroups));
  }
  if (min_chunk < 1) return absl::InvalidArgumentError("PrimitiveConfig.min_chunk is 0, allowed: from 1");
  return absl::OkStatus();
}

uint32_t PrimitiveConfig::GroupsFor(uint32_t count) const {
  return std::clamp(count / min_chunk + (count % min_chunk != 0 ? 1U : 0U), 1U, max_groups);
}

ProgramDefines PrimitiveConfig::Defines(uint32_t items) const {
  return {{"GROUP_SIZE", std::to_string(group_size)}, {"ITEMS", std::to_string(items)}};
}

absl::Status CheckCapacity(const char* primitive, const char* buffer, size_t available, size_t needed) {
  if (needed <= available) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(primitive, ": ", buffer, " has ", available, " elements, needed: ", needed));
}

}  // namespace palpate::gpu
