/* A handle that goes down slowly, stays there, and writes each force that it is told to a file at once: so the file tells what the hand
 * felt last, however the station ended. Options: log=FILE,depth=M (both). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/station/plugin/palpate_device.h"

struct PalpateDevice {
  int log;
  double depth_m;
  double start_s;
};

static const double kSpeed_m_per_s = 0.02;

static int32_t Open(const char* options, PalpateDevice** device, char* error, size_t error_size) {
  static struct PalpateDevice only;
  char file[512];
  *device = NULL;
  only.start_s = -1;
  if (sscanf(options, "log=%511[^,],depth=%lf", file, &only.depth_m) != 2) {
    snprintf(error, error_size, "options are log=FILE,depth=M");
    return PALPATE_DEVICE_FAILED;
  }
  only.log = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (only.log < 0) {
    snprintf(error, error_size, "'%s' cannot be written", file);
    return PALPATE_DEVICE_FAILED;
  }
  *device = &only;
  return PALPATE_DEVICE_OK;
}

static int32_t Capabilities(PalpateDevice* device, PalpateDeviceCapabilities* capabilities) {
  (void)device;
  const uint32_t size = capabilities->struct_size;
  PalpateDeviceCapabilities mine;
  memset(&mine, 0, sizeof(mine));
  mine.struct_size = size < sizeof(mine) ? size : (uint32_t)sizeof(mine);
  mine.degrees_of_freedom = 3;
  mine.peak_force_n = 10;
  mine.max_stiffness_n_per_m = 1000;
  mine.workspace_radius_m = 0.2;
  mine.force_slew_n_per_s = 20; /* slow, so that letting go takes many ticks */
  snprintf(mine.name, sizeof(mine.name), "pressing handle");
  memcpy(capabilities, &mine, mine.struct_size);
  return PALPATE_DEVICE_OK;
}

static int32_t Read(PalpateDevice* device, double now_s, PalpateDeviceState* state) {
  const uint32_t size = state->struct_size;
  PalpateDeviceState mine;
  memset(&mine, 0, sizeof(mine));
  if (device->start_s < 0) device->start_s = now_s;
  const double way_m = kSpeed_m_per_s * (now_s - device->start_s);
  mine.position_m[2] = way_m < device->depth_m ? -way_m : -device->depth_m;
  mine.rotation_wxyz[0] = 1;
  mine.struct_size = size < sizeof(mine) ? size : (uint32_t)sizeof(mine);
  memcpy(state, &mine, mine.struct_size);
  return PALPATE_DEVICE_OK;
}

static int32_t Write(PalpateDevice* device, const PalpateDeviceForce* force) {
  char line[96];
  const int length = snprintf(line, sizeof(line), "%.9g %.9g %.9g\n", force->force_n[0], force->force_n[1], force->force_n[2]);
  return write(device->log, line, (size_t)length) == length ? PALPATE_DEVICE_OK : PALPATE_DEVICE_FAILED;
}

static const char* LastError(PalpateDevice* device) {
  (void)device;
  return "the log cannot be written";
}

static void Close(PalpateDevice* device) { close(device->log); }

const PalpateDeviceApi* palpate_device_api(uint32_t host_abi_version) {
  static const PalpateDeviceApi kApi = {
      sizeof(PalpateDeviceApi), PALPATE_DEVICE_ABI_VERSION, Open, Capabilities, Read, Write, LastError, Close, NULL, NULL};
  return host_abi_version == PALPATE_DEVICE_ABI_VERSION ? &kApi : NULL;
}
