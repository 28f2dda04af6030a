/* A sample policy: presses its one tool down until the first observation, a force, is that of the option, then holds it. Options:
 * force=N (default 0.5, in [0, 100]), speed=M_PER_S (default 0.02, in (0, 1]), comma-separated. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/job/plugin/palpate_policy.h"

struct PalpatePolicy {
  double force_n;
  double speed_m_per_s;
  double interval_s;
  double position_m[3];
  double rotation_wxyz[4];
  char error[128];
};

static int ParseOptions(const char* options, struct PalpatePolicy* policy, char* error, size_t error_size) {
  while (*options != '\0') {
    const size_t length = strcspn(options, ",");
    char item[64];
    char* end = NULL;
    const char* equals = memchr(options, '=', length);
    if (equals == NULL || length >= sizeof(item)) {
      snprintf(error, error_size, "option '%.*s' is not KEY=VALUE", (int)length, options);
      return PALPATE_POLICY_FAILED;
    }
    memcpy(item, options, length);
    item[length] = '\0';
    item[equals - options] = '\0';
    const char* value = item + (equals - options) + 1;
    const double number = strtod(value, &end);
    const int is_number = end != value && *end == '\0';
    if (strcmp(item, "force") == 0 && is_number && number >= 0 && number <= 100) {
      policy->force_n = number;
    } else if (strcmp(item, "speed") == 0 && is_number && number > 0 && number <= 1) {
      policy->speed_m_per_s = number;
    } else {
      snprintf(error, error_size, "option '%s' = '%s': known are force in [0, 100], speed in (0, 1]", item, value);
      return PALPATE_POLICY_FAILED;
    }
    options += length;
    if (*options == ',') ++options;
  }
  return PALPATE_POLICY_OK;
}

static int32_t Open(const char* options, const PalpatePolicySetup* setup, PalpatePolicy** policy, char* error, size_t error_size) {
  *policy = NULL;
  if (setup->tool_count != 1 || setup->observation_count != 1) {
    snprintf(error, error_size, "wants one tool and one observation, not %u and %u", setup->tool_count, setup->observation_count);
    return PALPATE_POLICY_FAILED;
  }
  struct PalpatePolicy* opened = calloc(1, sizeof(*opened));
  if (opened == NULL) {
    snprintf(error, error_size, "out of memory");
    return PALPATE_POLICY_FAILED;
  }
  opened->force_n = 0.5;
  opened->speed_m_per_s = 0.02;
  opened->interval_s = setup->interval_s;
  memcpy(opened->position_m, setup->tools[0].position_m, sizeof(opened->position_m));
  memcpy(opened->rotation_wxyz, setup->tools[0].rotation_wxyz, sizeof(opened->rotation_wxyz));
  const int result = ParseOptions(options, opened, error, error_size);
  if (result != PALPATE_POLICY_OK) {
    free(opened);
    return result;
  }
  *policy = opened;
  return PALPATE_POLICY_OK;
}

static int32_t Decide(PalpatePolicy* policy, PalpatePolicyDecision* decision) {
  const double force_n = decision->observations[0];
  if (isnan(force_n)) {
    snprintf(policy->error, sizeof(policy->error), "the force is not a number at step %llu", (unsigned long long)decision->step);
    return PALPATE_POLICY_FAILED;
  }
  if (force_n < policy->force_n) policy->position_m[2] -= policy->speed_m_per_s * policy->interval_s;
  PalpatePolicyCommand* command = decision->commands;
  command->is_commanded = 1;
  memcpy(command->position_m, policy->position_m, sizeof(policy->position_m));
  memcpy(command->rotation_wxyz, policy->rotation_wxyz, sizeof(policy->rotation_wxyz));
  return PALPATE_POLICY_OK;
}

static const char* LastError(PalpatePolicy* policy) { return policy->error; }

static void Close(PalpatePolicy* policy) { free(policy); }

const PalpatePolicyApi* palpate_policy_api(uint32_t host_abi_version) {
  static const PalpatePolicyApi kApi = {sizeof(PalpatePolicyApi), PALPATE_POLICY_ABI_VERSION, Open, Decide, LastError, Close};
  return host_abi_version == PALPATE_POLICY_ABI_VERSION ? &kApi : NULL;
}
