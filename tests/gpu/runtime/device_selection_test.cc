#include <gmock/gmock.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "gpu/runtime/device.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::device_selection_test {
namespace {

using ::testing::HasSubstr;
using DeviceSelectionTest = test::DeviceTest;

TEST_F(DeviceSelectionTest, ListedDevicesDescribeThemselves) {
  PALPATE_TEST_ASSIGN(const std::vector<DeviceInfo> devices, ListDevices());
  for (size_t i = 0; i < devices.size(); ++i) {
    const DeviceInfo& device = devices[i];
    EXPECT_EQ(device.index, static_cast<int>(i));
    EXPECT_FALSE(device.name.empty());
    EXPECT_FALSE(device.driver_version.empty());
    EXPECT_GT(device.compute_units, 0U);
    EXPECT_GT(device.global_memory_bytes, 0U);
    EXPECT_GT(device.max_allocation_bytes, 0U);
    EXPECT_GT(device.max_work_group_size, 0U);
    EXPECT_THAT(DescribeDevice(device), HasSubstr(device.name));
  }
}

TEST_F(DeviceSelectionTest, EveryDeviceIsFoundByItsIndexAndName) {
  PALPATE_TEST_ASSIGN(const std::vector<DeviceInfo> devices, ListDevices());
  for (const DeviceInfo& device : devices) {
    PALPATE_TEST_ASSIGN(const DeviceInfo by_index, SelectDevice(std::to_string(device.index)));
    EXPECT_EQ(by_index.id, device.id);
    for (const std::string& selector : {device.name, absl::AsciiStrToUpper(device.name), absl::AsciiStrToLower(device.platform_name)}) {
      PALPATE_TEST_ASSIGN(const DeviceInfo by_name, SelectDevice(selector));
      EXPECT_TRUE(by_name.name == device.name || by_name.platform_name == device.platform_name) << selector;
    }
  }
}

TEST_F(DeviceSelectionTest, TypeSelectsOnlyThatType) {
  PALPATE_TEST_ASSIGN(const std::vector<DeviceInfo> devices, ListDevices());
  bool any_gpu = false;
  bool any_cpu = false;
  for (const DeviceInfo& device : devices) {
    any_gpu |= device.is_gpu;
    any_cpu |= device.is_cpu;
  }
  const auto gpu = SelectDevice("GPU");
  EXPECT_EQ(gpu.ok(), any_gpu) << gpu.status();
  if (gpu.ok()) {
    EXPECT_TRUE(gpu->is_gpu);
  }
  const auto cpu = SelectDevice("cpu");
  EXPECT_EQ(cpu.ok(), any_cpu) << cpu.status();
  if (cpu.ok()) {
    EXPECT_TRUE(cpu->is_cpu);
  }
  PALPATE_TEST_ASSIGN(const DeviceInfo automatic, SelectDevice(""));
  EXPECT_EQ(automatic.is_gpu, any_gpu);
  PALPATE_TEST_ASSIGN(const DeviceInfo automatic_by_name, SelectDevice("Auto"));
  EXPECT_EQ(automatic.id, automatic_by_name.id);
}

TEST_F(DeviceSelectionTest, ErrorsListWhatWasFound) {
  PALPATE_TEST_ASSIGN(const std::vector<DeviceInfo> devices, ListDevices());
  for (const char* wrong : {"no such device", "9999", "-1", "0x0", "1.5", "99999999999999999999"}) {
    const auto device = SelectDevice(wrong);
    ASSERT_FALSE(device.ok()) << wrong;
    EXPECT_TRUE(absl::IsNotFound(device.status()) || absl::IsInvalidArgument(device.status())) << device.status();
    EXPECT_THAT(std::string(device.status().message()), HasSubstr(DescribeDevice(devices.front()))) << wrong;
  }
  EXPECT_THAT(std::string(SelectDevice("9999").status().message()), HasSubstr("outside [0, "));
  EXPECT_TRUE(absl::IsInvalidArgument(SelectDevice("9999").status()));
  EXPECT_TRUE(absl::IsNotFound(SelectDevice("no such device").status()));
}

class AssumedGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* const before = std::getenv("PALPATE_ASSUME_GPU")) before_ = before;
    unsetenv("PALPATE_ASSUME_GPU");
  }
  void TearDown() override { before_.empty() ? unsetenv("PALPATE_ASSUME_GPU") : setenv("PALPATE_ASSUME_GPU", before_.c_str(), 1); }

 private:
  std::string before_;
};

TEST_F(AssumedGpu, CpusAreGivenOutAsGpus) {
  PALPATE_TEST_ASSIGN(const std::vector<DeviceInfo> devices, ListDevices());
  setenv("PALPATE_ASSUME_GPU", "132", 1);
  PALPATE_TEST_ASSIGN(const std::vector<DeviceInfo> assumed, ListDevices());
  ASSERT_EQ(assumed.size(), devices.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    EXPECT_FALSE(assumed[i].is_cpu);
    EXPECT_EQ(assumed[i].is_gpu, devices[i].is_gpu || devices[i].is_cpu);
    EXPECT_EQ(assumed[i].compute_units, devices[i].is_cpu ? 132 : devices[i].compute_units);
    EXPECT_EQ(assumed[i].name == devices[i].name, !devices[i].is_cpu) << "whoever reads the name must see what it is";
  }
}

TEST_F(AssumedGpu, OtherThanANumberOfUnitsIsRefused) {
  for (const char* const wrong : {"0", "-1", "yes", "132x", "1e3", "4097", "99999999999"}) {
    setenv("PALPATE_ASSUME_GPU", wrong, 1);
    const auto devices = ListDevices();
    ASSERT_TRUE(absl::IsInvalidArgument(devices.status())) << wrong;
    EXPECT_THAT(std::string(devices.status().message()), HasSubstr(wrong));
  }
}

TEST_F(DeviceSelectionTest, ContextRefusesAnUnknownDevice) {
  const auto context = Context::Create({.device = "no such device"});
  EXPECT_TRUE(absl::IsNotFound(context.status())) << context.status();
}

}  // namespace
}  // namespace palpate::gpu::device_selection_test
