#pragma once

#include <CL/cl.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/base/status.h"

namespace palpate::gpu {

/// One OpenCL device as found on this machine.
struct DeviceInfo {
  int index = 0;  ///< position in ListDevices(), what `--device 0` means
  cl_platform_id platform = nullptr;
  cl_device_id id = nullptr;
  std::string platform_name;
  std::string platform_version;
  std::string name;
  std::string vendor;
  std::string version;  ///< OpenCL version string of the device
  std::string driver_version;
  bool is_gpu = false;
  bool is_cpu = false;
  bool has_fp64 = false;
  bool rounds_divide_and_sqrt = false;  ///< can round float division and root correctly; programs are then built so
  bool has_device_fence = false;        ///< groups of one launch see what others of it wrote before a device_fence (tickets.clh)
  uint32_t compute_units = 0;
  uint64_t global_memory_bytes = 0;
  uint64_t max_allocation_bytes = 0;
  uint64_t local_memory_bytes = 0;
  size_t max_work_group_size = 0;
  uint32_t base_address_align_bytes = 0;  ///< for sub-buffers
};

/// All devices of all platforms, in the order the drivers report them. Empty (not an error) when there is no platform.
/// $PALPATE_ASSUME_GPU = n: CPUs are given out as GPUs with n compute units, so that kernels are built, and work is divided, as on one. For
/// tests on machines without a GPU. Errors: InvalidArgument (n is no such number), Internal (driver).
absl::StatusOr<std::vector<DeviceInfo>> ListDevices();

/// Picks a device. `selector`: "" or "auto" (the GPU with the most compute units if there is one, else the CPU), "gpu", "cpu", an index, or
/// a part of the device or platform name (any case). Errors: NotFound listing what was found; InvalidArgument for an index out of range.
absl::StatusOr<DeviceInfo> SelectDevice(std::string_view selector);

/// "PoCL ... / cpu name (driver 3.1)": one line for people.
std::string DescribeDevice(const DeviceInfo& device);

}  // namespace palpate::gpu
