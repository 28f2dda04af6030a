/* Plug-ins that are wrong, or old, in one way each; ODDITY says which. */
#include <stddef.h>
#include <string.h>

#include "clients/station/plugin/palpate_device.h"

#define OTHER_VERSION 1
#define DECLINES 2
#define HOLES 3
#define BAD_LIMITS 4
#define BAD_ROTATION 5
#define SHORT_STATE 6
#define NO_ENTRY 7
#define BEFORE 8 /* version 1.0: a shorter table and state */

#if ODDITY == NO_ENTRY
int palpate_nothing(void);
int palpate_nothing(void) { return 0; }
#else
static int32_t Open(const char* options, PalpateDevice** device, char* error, size_t error_size) {
  (void)options;
  (void)error;
  (void)error_size;
  static int something;
  *device = (PalpateDevice*)&something;
  return PALPATE_DEVICE_OK;
}

static int32_t Capabilities(PalpateDevice* device, PalpateDeviceCapabilities* capabilities) {
  (void)device;
  capabilities->degrees_of_freedom = 3;
  capabilities->peak_force_n = ODDITY == BAD_LIMITS ? -1 : 1;
  capabilities->max_stiffness_n_per_m = 100;
  capabilities->workspace_radius_m = 0.1;
  capabilities->force_slew_n_per_s = 100;
  return PALPATE_DEVICE_OK;
}

static int32_t Read(PalpateDevice* device, double now_s, PalpateDeviceState* state) {
  (void)device;
  (void)now_s;
  state->position_m[0] = 1;
  state->position_m[1] = 2;
  state->position_m[2] = 3;
  if (ODDITY == BAD_ROTATION) state->rotation_wxyz[0] = 3;
  if (ODDITY == BEFORE) state->struct_size = offsetof(PalpateDeviceState, has_grip);
  if (ODDITY == SHORT_STATE) state->struct_size = offsetof(PalpateDeviceState, velocity_m_per_s);
  return PALPATE_DEVICE_OK;
}

static int32_t Write(PalpateDevice* device, const PalpateDeviceForce* force) {
  (void)device;
  (void)force;
  return PALPATE_DEVICE_OK;
}

static const char* LastError(PalpateDevice* device) {
  (void)device;
  return "";
}

static void Close(PalpateDevice* device) { (void)device; }

const PalpateDeviceApi* palpate_device_api(uint32_t host_abi_version) {
  static PalpateDeviceApi api;
  (void)host_abi_version;
  api.struct_size = ODDITY == BEFORE ? offsetof(PalpateDeviceApi, read_encoders) : sizeof(api);
  api.abi_version = ODDITY == OTHER_VERSION ? 99 : PALPATE_DEVICE_ABI_VERSION;
  api.open = Open;
  api.capabilities = Capabilities;
  api.read = Read;
  api.write = ODDITY == HOLES ? NULL : Write;
  api.last_error = LastError;
  api.close = Close;
  return ODDITY == DECLINES ? NULL : &api;
}
#endif
