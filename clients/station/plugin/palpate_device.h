/* Palpate haptic device plug-in interface, version 1.1. Plain C; self-contained; may be copied into a vendor's tree.
 *
 * A plug-in is a shared library that exports one function, palpate_device_api. The station loads it, asks for the function table, opens one
 * device, and then, on its 1 kHz thread, calls read and write alternately. All numbers are SI: metres, seconds, newtons, radians. Device
 * frame D: right-handed, z up, origin at the middle of the workspace. Rotations are unit quaternions (w, x, y, z) that take vectors of the
 * tool to vectors of D.
 *
 * Versions: struct_size is the first field of every struct and is filled in by the side that allocates it, so that fields can be added at
 * the end without breaking older partners: nobody touches bytes beyond struct_size. PALPATE_DEVICE_ABI_VERSION changes only when something
 * else changes.
 *
 * Threads: open and close are called on one thread, read and write on another, never at the same time as each other. read and write must
 * return within a fraction of a millisecond and must not allocate, lock or sleep. No exception may leave the library.
 *
 * Errors: functions return PALPATE_DEVICE_OK or another code; the text behind it comes from the `error` buffer of open, afterwards from
 * last_error. */
#ifndef PALPATE_DEVICE_H_
#define PALPATE_DEVICE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PALPATE_DEVICE_ABI_VERSION 1u
#define PALPATE_DEVICE_ENTRY_POINT "palpate_device_api"

enum {
  PALPATE_DEVICE_OK = 0,
  PALPATE_DEVICE_FAILED = 1, /* device lost, driver error: the station stops */
  PALPATE_DEVICE_ENDED = 2   /* read only: no more data, a regular end */
};

typedef struct PalpateDevice PalpateDevice; /* opaque, the plug-in's own */

typedef struct PalpateDeviceCapabilities {
  uint32_t struct_size;
  uint32_t degrees_of_freedom;  /* 3 or 6 */
  double peak_force_n;          /* > 0 */
  double peak_torque_n_m;       /* 0 = renders no torque */
  double max_stiffness_n_per_m; /* rendered stably at 1 kHz, > 0 */
  double max_damping_n_s_per_m; /* >= 0 */
  double workspace_radius_m;    /* > 0 */
  double force_slew_n_per_s;    /* fastest allowed change of force, > 0 */
  char name[64];                /* UTF-8, zero-terminated */
} PalpateDeviceCapabilities;

typedef struct PalpateDeviceState {
  uint32_t struct_size;
  uint32_t buttons;      /* one bit each */
  uint32_t has_velocity; /* 0: the station derives velocities from poses */
  uint32_t reserved;
  double position_m[3];    /* of the tool tip, in D */
  double rotation_wxyz[4]; /* 3 degrees of freedom: (1, 0, 0, 0) */
  double velocity_m_per_s[3];
  double angular_velocity_rad_per_s[3];
  /* Since 1.1; a host of before gives a smaller struct_size. */
  uint32_t has_grip; /* the handle opens and closes */
  uint32_t reserved2;
  double grip; /* 0 = closed to 1 = open */
} PalpateDeviceState;

typedef struct PalpateDeviceForce {
  uint32_t struct_size;
  uint32_t reserved;
  double force_n[3];    /* on the hand, in D, within the capabilities */
  double torque_n_m[3]; /* about the tip */
} PalpateDeviceForce;

/* Since 1.1. A laparoscopic device below its kinematics: tilt about y, tilt about x, insertion, roll, as the encoders count them, zero
 * where the tool is centred and fully withdrawn; roll counts on over several turns. */
typedef struct PalpateDeviceEncoders {
  uint32_t struct_size;
  uint32_t buttons;
  int32_t counts[4];
  uint32_t has_grip;
  uint32_t reserved;
  double grip; /* 0 = closed to 1 = open */
} PalpateDeviceEncoders;

typedef struct PalpateDeviceMotors {
  uint32_t struct_size;
  uint32_t reserved;
  double motor_v[3]; /* tilt about y, tilt about x, insertion (positive pushes the tool in), within the amplifier's range */
} PalpateDeviceMotors;

typedef struct PalpateDeviceApi {
  uint32_t struct_size;
  uint32_t abi_version; /* PALPATE_DEVICE_ABI_VERSION of the header the plug-in was built with */

  /* Opens the device. options: what follows the library in the station's --device, zero-terminated, never NULL. On failure writes a
   * zero-terminated text into error[error_size] and leaves *device NULL. Blocking is allowed here. */
  int32_t (*open)(const char* options, PalpateDevice** device, char* error, size_t error_size);

  int32_t (*capabilities)(PalpateDevice* device, PalpateDeviceCapabilities* capabilities);

  /* The state at now_s, the station's monotonic clock in seconds. */
  int32_t (*read)(PalpateDevice* device, double now_s, PalpateDeviceState* state);

  /* The force to render until the next call. */
  int32_t (*write)(PalpateDevice* device, const PalpateDeviceForce* force);

  /* Why the last call failed; "" if none did. Valid until the next call on the device. */
  const char* (*last_error)(PalpateDevice* device);

  /* Switches the force off and frees the device. */
  void (*close)(PalpateDevice* device);

  /* Since 1.1, optional: both or neither (NULL). With them the station's device `lie` does the kinematics, and calls these instead of read
   * and write, under the same rules. */
  int32_t (*read_encoders)(PalpateDevice* device, double now_s, PalpateDeviceEncoders* encoders);
  int32_t (*write_motors)(PalpateDevice* device, const PalpateDeviceMotors* motors);
} PalpateDeviceApi;

/* Returns the table, which lives as long as the library is loaded, or NULL if the plug-in cannot work with a host of that version. */
typedef const PalpateDeviceApi* (*PalpateDeviceEntryPoint)(uint32_t host_abi_version);

#if defined(_WIN32)
__declspec(dllexport)
#else
__attribute__((visibility("default")))
#endif
    const PalpateDeviceApi* palpate_device_api(uint32_t host_abi_version);

#ifdef __cplusplus
}
#endif

#endif /* PALPATE_DEVICE_H_ */
