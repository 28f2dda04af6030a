#include "gpu/runtime/device.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "gpu/runtime/cl_status.h"
#include "gpu/runtime/driver_cache.h"

namespace palpate::gpu {
namespace {

std::string PlatformString(cl_platform_id platform, cl_platform_info what) {
  size_t size = 0;
  if (clGetPlatformInfo(platform, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (clGetPlatformInfo(platform, what, size, text.data(), nullptr) != CL_SUCCESS) return {};
  text.resize(size - 1);
  return text;
}

std::string DeviceString(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (clGetDeviceInfo(device, what, size, text.data(), nullptr) != CL_SUCCESS) return {};
  text.resize(size - 1);
  return std::string(absl::StripAsciiWhitespace(text));
}

template <typename T>
T DeviceValue(cl_device_id device, cl_device_info what) {
  T value{};
  clGetDeviceInfo(device, what, sizeof(T), &value, nullptr);
  return value;
}

/// The number of units of $PALPATE_ASSUME_GPU, if it is set.
absl::StatusOr<std::optional<uint32_t>> AssumedUnits() {
  const char* const text = std::getenv("PALPATE_ASSUME_GPU");
  if (text == nullptr || *text == '\0') return std::optional<uint32_t>();
  uint32_t units = 0;
  constexpr uint32_t kMostUnits = 4096;
  if (!absl::SimpleAtoi(text, &units) || units == 0 || units > kMostUnits) {
    return absl::InvalidArgumentError(absl::StrCat("PALPATE_ASSUME_GPU='", text, "' is no number of compute units, 1 to ", kMostUnits));
  }
  return std::optional<uint32_t>(units);
}

std::string ListText(const std::vector<DeviceInfo>& devices) {
  if (devices.empty()) return "no OpenCL device was found; on a machine without a GPU install the package pocl-opencl-icd";
  std::string text = "found:";
  for (const DeviceInfo& device : devices) absl::StrAppend(&text, " [", device.index, "] ", DescribeDevice(device), ";");
  text.pop_back();
  return text;
}

bool ContainsIgnoreCase(const std::string& text, const std::string& lower_part) {
  return absl::StrContains(absl::AsciiStrToLower(text), lower_part);
}

}  // namespace

absl::StatusOr<std::vector<DeviceInfo>> ListDevices() {
  PrepareDriverCache();
  cl_uint platform_count = 0;
  const cl_int code = clGetPlatformIDs(0, nullptr, &platform_count);
  constexpr cl_int kNoPlatform = -1001;  // CL_PLATFORM_NOT_FOUND_KHR
  if (code == kNoPlatform || (code == CL_SUCCESS && platform_count == 0)) return std::vector<DeviceInfo>{};
  PALPATE_CL_RETURN_IF_ERROR(code, "clGetPlatformIDs", "");
  std::vector<cl_platform_id> platforms(platform_count);
  PALPATE_CL_RETURN_IF_ERROR(clGetPlatformIDs(platform_count, platforms.data(), nullptr), "clGetPlatformIDs", "");

  PALPATE_ASSIGN_OR_RETURN(const std::optional<uint32_t> assumed_units, AssumedUnits());
  std::vector<DeviceInfo> devices;
  for (cl_platform_id platform : platforms) {
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS || count == 0) continue;
    std::vector<cl_device_id> ids(count);
    PALPATE_CL_RETURN_IF_ERROR(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr), "clGetDeviceIDs",
                               PlatformString(platform, CL_PLATFORM_NAME));
    for (cl_device_id id : ids) {
      DeviceInfo info;
      info.index = static_cast<int>(devices.size());
      info.platform = platform;
      info.id = id;
      info.platform_name = PlatformString(platform, CL_PLATFORM_NAME);
      info.platform_version = PlatformString(platform, CL_PLATFORM_VERSION);
      info.name = DeviceString(id, CL_DEVICE_NAME);
      info.vendor = DeviceString(id, CL_DEVICE_VENDOR);
      info.version = DeviceString(id, CL_DEVICE_VERSION);
      info.driver_version = DeviceString(id, CL_DRIVER_VERSION);
      const auto type = DeviceValue<cl_device_type>(id, CL_DEVICE_TYPE);
      info.is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
      info.is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
      info.has_fp64 = absl::StrContains(DeviceString(id, CL_DEVICE_EXTENSIONS), "cl_khr_fp64");
      cl_device_fp_config float_config = 0;
      if (clGetDeviceInfo(id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(float_config), &float_config, nullptr) == CL_SUCCESS) {
        info.rounds_divide_and_sqrt = (float_config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
      }
      info.has_device_fence = info.is_cpu || absl::StartsWithIgnoreCase(info.vendor, "nvidia");
      info.compute_units = DeviceValue<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS);
      info.global_memory_bytes = DeviceValue<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
      info.max_allocation_bytes = DeviceValue<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
      info.local_memory_bytes = DeviceValue<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE);
      info.max_work_group_size = DeviceValue<size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
      info.base_address_align_bytes = DeviceValue<cl_uint>(id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
      if (assumed_units.has_value() && info.is_cpu) {
        info.is_cpu = false;
        info.is_gpu = true;
        info.has_device_fence = false;  // PoCL cannot build groups of many work-items with barriers in branches
        info.compute_units = *assumed_units;
        absl::StrAppend(&info.name, ", taken for a GPU");
      }
      devices.push_back(std::move(info));
    }
  }
  return devices;
}

std::string DescribeDevice(const DeviceInfo& device) {
  return absl::StrCat(device.name, " (",
                      device.is_gpu   ? "gpu"
                      : device.is_cpu ? "cpu"
                                      : "other",
                      ", ", device.platform_name, ", driver ", device.driver_version, ")");
}

absl::StatusOr<DeviceInfo> SelectDevice(std::string_view selector) {
  PALPATE_ASSIGN_OR_RETURN(std::vector<DeviceInfo> devices, ListDevices());
  const std::string wanted = absl::AsciiStrToLower(absl::string_view(selector.data(), selector.size()));
  if (devices.empty()) return absl::NotFoundError(ListText(devices));

  const auto most_units = [&](auto accept) -> const DeviceInfo* {
    const DeviceInfo* best = nullptr;
    for (const DeviceInfo& device : devices) {
      if (accept(device) && (best == nullptr || device.compute_units > best->compute_units)) best = &device;
    }
    return best;
  };
  const DeviceInfo* choice = nullptr;
  int index = -1;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), index);
  if (wanted.empty() || wanted == "auto") {
    choice = most_units([](const DeviceInfo& d) { return d.is_gpu; });
    if (choice == nullptr) choice = most_units([](const DeviceInfo& d) { return d.is_cpu; });
    if (choice == nullptr) choice = &devices.front();
  } else if (wanted == "gpu") {
    choice = most_units([](const DeviceInfo& d) { return d.is_gpu; });
  } else if (wanted == "cpu") {
    choice = most_units([](const DeviceInfo& d) { return d.is_cpu; });
  } else if (error == std::errc() && end == wanted.data() + wanted.size()) {
    if (index < 0 || index >= static_cast<int>(devices.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("device index ", index, " is outside [0, ", devices.size() - 1, "]; ", ListText(devices)));
    }
    choice = &devices[static_cast<size_t>(index)];
  } else {
    choice =
        most_units([&](const DeviceInfo& d) { return ContainsIgnoreCase(d.name, wanted) || ContainsIgnoreCase(d.platform_name, wanted); });
  }
  if (choice == nullptr) return absl::NotFoundError(absl::StrCat("no OpenCL device matches '", wanted, "'; ", ListText(devices)));
  return *choice;
}

}  // namespace palpate::gpu
