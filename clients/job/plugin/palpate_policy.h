/* Palpate policy plug-in interface, version 1.0. Plain C; self-contained; may be copied into another tree.
 *
 * A policy is a shared library that exports one function, palpate_policy_api. A job loads it, asks for the function table, opens one
 * policy, and then calls decide once in each control interval. All numbers are SI; places and rotations are in the world frame W; rotations
 * are unit quaternions (w, x, y, z).
 *
 * Versions: struct_size is the first field of every struct and is filled in by the side that allocates it, so that fields can be added at
 * the end without breaking older partners: nobody touches bytes beyond struct_size. PALPATE_POLICY_ABI_VERSION changes only when something
 * else changes.
 *
 * The same observations must give the same decisions: a job that goes on after an interruption plays all observations back and compares.
 *
 * Threads: one policy is used by one thread at a time; several policies of one library may be used by several threads at the same time. No
 * exception may leave the library.
 *
 * Errors: functions return PALPATE_POLICY_OK or another code; the text behind it comes from the `error` buffer of open, afterwards from
 * last_error. */
#ifndef PALPATE_POLICY_H_
#define PALPATE_POLICY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PALPATE_POLICY_ABI_VERSION 1u
#define PALPATE_POLICY_ENTRY_POINT "palpate_policy_api"

enum {
  PALPATE_POLICY_OK = 0,
  PALPATE_POLICY_FAILED = 1 /* the job fails with last_error */
};

typedef struct PalpatePolicy PalpatePolicy; /* opaque, the plug-in's own */

typedef struct PalpatePolicyTool {
  uint32_t struct_size;
  uint32_t kind; /* InstrumentKind of scene.proto: 1 probe, 2 forceps, 3 scalpel, 4 cautery hook, 5 cavitron, 6 clip applier */
  const char* name;
  double position_m[3]; /* of the tip at rest */
  double rotation_wxyz[4];
  double max_jaw_angle_rad; /* 0: no jaws */
  double max_power_w;       /* 0: none */
} PalpatePolicyTool;

/* What stays the same for a whole job. All pointers live as long as the policy is open. */
typedef struct PalpatePolicySetup {
  uint32_t struct_size;
  uint32_t tool_count;
  uint32_t observation_count;
  uint32_t tool_bytes; /* from one tool to the next */
  double dt_s;
  double interval_s;
  uint64_t seed;
  const PalpatePolicyTool* tools;
  const char* const* observation_names;
  const char* const* observation_units;
} PalpatePolicySetup;

/* What one tool is told until the next decision. Filled in with what it was told last. */
typedef struct PalpatePolicyCommand {
  uint32_t struct_size;
  uint32_t is_commanded; /* 0: left alone, the tool keeps its place */
  double position_m[3];
  double rotation_wxyz[4];
  double velocity_m_per_s[3]; /* only used to extrapolate */
  double jaw_angle_rad;
  double power_w; /* while the pedal is down; 0: the instrument's largest */
  double duty;    /* 0: 1 */
  uint32_t pedal;
  uint32_t reserved;
} PalpatePolicyCommand;

typedef struct PalpatePolicyDecision {
  uint32_t struct_size;
  uint32_t command_bytes; /* from one command to the next */
  uint64_t step;
  double time_s;
  const double* observations;     /* observation_count; NaN where a probe has no value */
  PalpatePolicyCommand* commands; /* tool_count, in and out */
  /* Out. NULL: none; otherwise the JSON form of EditSceneRequest, {"edits": [...]}, valid until the next call on the policy. */
  const char* edits_json;
  const char* stop_reason; /* out; NULL: go on; otherwise the job is over, and this says why */
} PalpatePolicyDecision;

typedef struct PalpatePolicyApi {
  uint32_t struct_size;
  uint32_t abi_version; /* PALPATE_POLICY_ABI_VERSION of the header the plug-in was built with */

  /* options: of the job file, zero-terminated, never NULL. On failure writes a zero-terminated text into error[error_size] and leaves
   * *policy NULL. */
  int32_t (*open)(const char* options, const PalpatePolicySetup* setup, PalpatePolicy** policy, char* error, size_t error_size);

  int32_t (*decide)(PalpatePolicy* policy, PalpatePolicyDecision* decision);

  /* Why the last call failed; "" if none did. Valid until the next call on the policy. */
  const char* (*last_error)(PalpatePolicy* policy);

  void (*close)(PalpatePolicy* policy);
} PalpatePolicyApi;

/* Returns the table, which lives as long as the library is loaded, or NULL if the plug-in cannot work with a host of that version. */
typedef const PalpatePolicyApi* (*PalpatePolicyEntryPoint)(uint32_t host_abi_version);

#if defined(_WIN32)
__declspec(dllexport)
#else
__attribute__((visibility("default")))
#endif
    const PalpatePolicyApi* palpate_policy_api(uint32_t host_abi_version);

#ifdef __cplusplus
}
#endif

#endif /* PALPATE_POLICY_H_ */
