/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a replay of PyTorch's policies needs without tarn: the device, the settings, and the search
 * for the smallest device. The page's own analysis uses it too. Owns nothing. */
#include "replay/least.h"

#define STEPS_MOST 64
#define UNLIMITED (UINT64_C(1) << 48) /* bytes */

uint64_t replay_device_memory(const struct replay_options *options, const struct workload *workload)
{
    uint64_t memory =
        workload->device_memory < REPLAY_MAX_MEMORY ? workload->device_memory : REPLAY_MAX_MEMORY;
    if (options->device_memory)
        memory = options->device_memory;
    if (memory == 0) {
        uint64_t peak = workload->recorded_peak_reserved;
        if (peak == WORKLOAD_NOT_KNOWN)
            peak = workload->peak_requested;
        memory = peak / 4 * 5 > REPLAY_DEFAULT_MEMORY ? peak / 4 * 5 : REPLAY_DEFAULT_MEMORY;
    }
    return (memory + (options->device_memory ? 0 : LEAST_GRANULE - 1)) / LEAST_GRANULE *
           LEAST_GRANULE;
}

struct c10_policy replay_policy_settings(const struct replay_options *options,
                                         enum replay_policy policy)
{
    struct c10_policy settings = c10_policy_default(policy == REPLAY_EXPANDABLE);
    char error[256];
    if (options->policy == policy && options->conf) /* what_if_parse() has checked the text */
        (void)c10_policy_parse(options->conf, &settings, error, sizeof error);
    return settings;
}

bool least_halve(uint64_t small, uint64_t large,
                 bool (*fits)(void *context, uint64_t memory, bool *fits), void *context,
                 uint64_t *least)
{
    while (large - small > LEAST_GRANULE) {
        uint64_t middle = small + (large - small) / 2 / LEAST_GRANULE * LEAST_GRANULE;
        bool enough;
        if (!fits(context, middle, &enough))
            return false;
        if (enough)
            large = middle;
        else
            small = middle;
    }
    *least = large;
    return true;
}

bool least_search(uint64_t small, uint64_t large,
                  bool (*fits)(void *context, uint64_t memory, bool *fits), void *context,
                  uint64_t *least)
{
    bool found = false;
    for (int i = 0; i < STEPS_MOST && !found; i++) {
        if (!fits(context, large, &found))
            return false;
        if (!found) {
            small = large;
            large += large / 64 / LEAST_GRANULE * LEAST_GRANULE + LEAST_GRANULE;
        }
    }
    return !found || least_halve(small, large, fits, context, least);
}

struct modelled {
    const struct workload *workload;
    struct c10_policy policy;
};

static bool fits_model(void *context, uint64_t memory, bool *fits)
{
    const struct modelled *modelled = context;
    return c10_fits(modelled->workload, &modelled->policy, memory, fits);
}

/* A device with as much memory as the model reserves without a limit is large enough. */
bool least_find_model(const struct replay_options *options, const struct workload *workload,
                      enum replay_policy policy, uint64_t small, uint64_t *least)
{
    struct modelled modelled = {workload, replay_policy_settings(options, policy)};
    struct c10_result unlimited;
    return c10_run(workload, &modelled.policy, UNLIMITED, &unlimited) &&
           least_search(small, least_round_up(unlimited.peak_reserved), fits_model, &modelled,
                        least);
}
