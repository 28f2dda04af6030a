// palpate-device [SELECTOR]: the device that programs would use, on one line. palpate-device --list: all of them.
#include <iostream>
#include <string_view>

#include "gpu/runtime/device.h"

namespace {

int List() {
  const auto devices = palpate::gpu::ListDevices();
  if (!devices.ok()) {
    std::cerr << devices.status().message() << "\n";
    return 1;
  }
  for (const palpate::gpu::DeviceInfo& device : *devices) std::cout << device.index << " " << palpate::gpu::DescribeDevice(device) << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view argument = argc > 1 ? argv[1] : "";
  if (argc > 2 || argument == "--help") {
    (argc > 2 ? std::cerr : std::cout) << "usage: palpate-device [SELECTOR | --list]\n";
    return argc > 2 ? 2 : 0;
  }
  if (argument == "--list") return List();
  const auto device = palpate::gpu::SelectDevice(argument);
  if (!device.ok()) {
    std::cerr << device.status().message() << "\n";
    return 1;
  }
  std::cout << palpate::gpu::DescribeDevice(*device) << "\n";
  return 0;
}
