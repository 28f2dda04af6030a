/* A sample plug-in: a handle on a spring, pushed along -z by a slow motor, that gives way to the rendered force. Its grip closes as it goes
 * down, and button 0 is down below half of the way. As a laparoscopic device it is pushed in and turns. Options: amplitude=M (default 0.02,
 * up to 0.2), period=S (default 2, at least 0.1), reads=N (end after N reads; default 0 = never), comma-separated. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/station/plugin/palpate_device.h"

struct PalpateDevice {
  double amplitude_m;
  double period_s;
  unsigned long reads_left; /* counted down if limited */
  int limited;
  int started;
  double start_s;
  double force_n[3];
  char error[128];
};

static const double kHandleStiffness = 500.0; /* N/m */
static const double kPi = 3.14159265358979323846;

static int ParseOptions(const char* options, struct PalpateDevice* device, char* error, size_t error_size) {
  while (*options != '\0') {
    const size_t length = strcspn(options, ",");
    char item[64];
    char* end = NULL;
    const char* equals = memchr(options, '=', length);
    if (equals == NULL || length >= sizeof(item)) {
      snprintf(error, error_size, "option '%.*s' is not KEY=VALUE", (int)length, options);
      return PALPATE_DEVICE_FAILED;
    }
    memcpy(item, options, length);
    item[length] = '\0';
    item[equals - options] = '\0';
    const char* value = item + (equals - options) + 1;
    const double number = strtod(value, &end);
    const int is_number = end != value && *end == '\0';
    if (strcmp(item, "amplitude") == 0 && is_number && number >= 0 && number <= 0.2) {
      device->amplitude_m = number;
    } else if (strcmp(item, "period") == 0 && is_number && number >= 0.1 && number <= 1e6) {
      device->period_s = number;
    } else if (strcmp(item, "reads") == 0 && is_number && number >= 0 && number <= 1e9) {
      device->reads_left = (unsigned long)number;
      device->limited = number > 0;
    } else {
      snprintf(error, error_size, "option '%s' = '%s': known are amplitude in [0, 0.2], period in [0.1, 1e6], reads in [0, 1e9]", item,
               value);
      return PALPATE_DEVICE_FAILED;
    }
    options += length;
    if (*options == ',') ++options;
  }
  return PALPATE_DEVICE_OK;
}

static int32_t Open(const char* options, PalpateDevice** device, char* error, size_t error_size) {
  *device = NULL;
  struct PalpateDevice* opened = calloc(1, sizeof(*opened));
  if (opened == NULL) {
    snprintf(error, error_size, "out of memory");
    return PALPATE_DEVICE_FAILED;
  }
  opened->amplitude_m = 0.02;
  opened->period_s = 2.0;
  const int result = ParseOptions(options, opened, error, error_size);
  if (result != PALPATE_DEVICE_OK) {
    free(opened);
    return result;
  }
  *device = opened;
  return PALPATE_DEVICE_OK;
}

static int32_t Capabilities(PalpateDevice* device, PalpateDeviceCapabilities* capabilities) {
  (void)device;
  PalpateDeviceCapabilities mine;
  memset(&mine, 0, sizeof(mine));
  /* The host says how much of the struct it knows. */
  mine.struct_size = capabilities->struct_size < sizeof(mine) ? capabilities->struct_size : (uint32_t)sizeof(mine);
  mine.degrees_of_freedom = 3;
  mine.peak_force_n = 5;
  mine.max_stiffness_n_per_m = 1000;
  mine.max_damping_n_s_per_m = 5;
  mine.workspace_radius_m = 0.1;
  mine.force_slew_n_per_s = 500;
  snprintf(mine.name, sizeof(mine.name), "sample spring handle");
  memcpy(capabilities, &mine, mine.struct_size);
  return PALPATE_DEVICE_OK;
}

/* How far down the motor has the handle, 0 to 1; negative: no more reads. */
static double Progress(PalpateDevice* device, double now_s) {
  if (device->limited) {
    if (device->reads_left == 0) return -1;
    --device->reads_left;
  }
  if (!device->started) {
    device->started = 1;
    device->start_s = now_s;
  }
  return 0.5 * (1 - cos(2 * kPi * (now_s - device->start_s) / device->period_s));
}

static int32_t Read(PalpateDevice* device, double now_s, PalpateDeviceState* state) {
  const double progress = Progress(device, now_s);
  if (progress < 0) return PALPATE_DEVICE_ENDED;
  const uint32_t size = state->struct_size;
  PalpateDeviceState mine;
  memset(&mine, 0, sizeof(mine));
  for (int axis = 0; axis < 3; ++axis) mine.position_m[axis] = device->force_n[axis] / kHandleStiffness;
  mine.position_m[2] -= device->amplitude_m * progress;
  mine.rotation_wxyz[0] = 1;
  mine.buttons = progress > 0.5 ? 1 : 0;
  mine.has_grip = 1;
  mine.grip = 1 - progress;
  mine.struct_size = size < sizeof(mine) ? size : (uint32_t)sizeof(mine);
  memcpy(state, &mine, mine.struct_size);
  return PALPATE_DEVICE_OK;
}

static int32_t Write(PalpateDevice* device, const PalpateDeviceForce* force) {
  for (int axis = 0; axis < 3; ++axis) {
    if (!isfinite(force->force_n[axis])) {
      snprintf(device->error, sizeof(device->error), "force on axis %d is not finite", axis);
      return PALPATE_DEVICE_FAILED;
    }
    device->force_n[axis] = force->force_n[axis];
  }
  return PALPATE_DEVICE_OK;
}

/* 5800 counts over 80 mm of insertion, 1024 over a turn of roll, as the Laparoscopic Impulse Engine. */
static int32_t ReadEncoders(PalpateDevice* device, double now_s, PalpateDeviceEncoders* encoders) {
  const double progress = Progress(device, now_s);
  if (progress < 0) return PALPATE_DEVICE_ENDED;
  const uint32_t size = encoders->struct_size;
  PalpateDeviceEncoders mine;
  memset(&mine, 0, sizeof(mine));
  const double insertion_m = device->amplitude_m * progress - device->force_n[2] / kHandleStiffness;
  mine.counts[2] = (int32_t)lround(insertion_m * 5800 / 0.08);
  mine.counts[3] = (int32_t)lround(progress * 1024);
  mine.buttons = progress > 0.5 ? 1 : 0;
  mine.has_grip = 1;
  mine.grip = 1 - progress;
  mine.struct_size = size < sizeof(mine) ? size : (uint32_t)sizeof(mine);
  memcpy(encoders, &mine, mine.struct_size);
  return PALPATE_DEVICE_OK;
}

static int32_t WriteMotors(PalpateDevice* device, const PalpateDeviceMotors* motors) {
  for (int motor = 0; motor < 3; ++motor) {
    if (!(fabs(motors->motor_v[motor]) <= 3.5 * (1 + 1e-9))) {
      snprintf(device->error, sizeof(device->error), "voltage of motor %d is outside [-3.5, 3.5]", motor);
      return PALPATE_DEVICE_FAILED;
    }
  }
  device->force_n[2] = -motors->motor_v[2] * 0.010 / 0.005; /* N m per V over the capstan's arm; outwards is +z */
  return PALPATE_DEVICE_OK;
}

static const char* LastError(PalpateDevice* device) { return device->error; }

static void Close(PalpateDevice* device) { free(device); }

const PalpateDeviceApi* palpate_device_api(uint32_t host_abi_version) {
  static const PalpateDeviceApi kApi = {
      sizeof(PalpateDeviceApi), PALPATE_DEVICE_ABI_VERSION, Open, Capabilities, Read, Write, LastError, Close, ReadEncoders, WriteMotors};
  return host_abi_version == PALPATE_DEVICE_ABI_VERSION ? &kApi : NULL;
}
