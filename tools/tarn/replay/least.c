/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The search for the smallest device. A model stops at its first allocation without room. A process
 * can configure tarn only once, so each trial of tarn is a child, which ends with the result.
 *
 * A model that fits into a device nearly always fits into larger ones, so the search is a
 * bisection. What tarn does depends on how near its limit is, and it may fail on a device a little
 * larger than one on which it succeeds. So for tarn the search goes up in steps from a size that is
 * too small, and only the last step is bisected. */
#include "replay/least.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIMB_PARTS 256 /* a step on the way up is this part of what is requested */

enum trial { TRIAL_FITS, TRIAL_UNFIT, TRIAL_FAILED }; /* exit statuses of children */

bool least_climb(uint64_t small, uint64_t requested,
                 bool (*fits)(void *context, uint64_t memory, bool *fits), void *context,
                 uint64_t *least)
{
    uint64_t step = least_round_up(requested / CLIMB_PARTS + 1), end = small + CLIMB_PARTS * step;
    for (; small < end; small += step) {
        bool enough;
        if (!fits(context, small + step, &enough))
            return false;
        if (enough)
            return least_halve(small, small + step, fits, context, least);
    }
    return least_search(small, small + step, fits, context, least);
}

/* ---- tarn ---- */

struct tried {
    struct replay_options options;
    const struct workload *workload;
    char *error;
    size_t error_size;
};

static void repeated(void *context, const struct replay_repetition *repetition)
{
    (void)context;
    (void)repetition;
}

/* Runs in a child. */
static enum trial try_here(const struct tried *tried, uint64_t memory)
{
    struct replay_result result;
    char error[512];
    if (!replay_configure(&tried->options, tried->workload->device + 1, memory, error,
                          sizeof error))
        return TRIAL_FAILED;
    bool done = replay_run(&tried->options, tried->workload, repeated, NULL, NULL, &result);
    if (result.divergences)
        return TRIAL_FAILED;
    return replay_lack(&result) ? TRIAL_UNFIT : done ? TRIAL_FITS : TRIAL_FAILED;
}

static bool fits_tarn(void *context, uint64_t memory, bool *fits)
{
    const struct tried *tried = context;
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit((int)try_here(tried, memory));
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) >= TRIAL_FAILED) {
        snprintf(tried->error, tried->error_size,
                 "device %d: the replay on a device of %" PRIu64 " bytes failed",
                 tried->workload->device, memory);
        return false;
    }
    *fits = WEXITSTATUS(status) == TRIAL_FITS;
    return true;
}

bool least_find(const struct replay_options *options, const struct workload *workload,
                uint64_t least[REPLAY_POLICIES], char *error, size_t error_size)
{
    struct tried tried = {*options, workload, error, error_size};
    uint64_t small = least_round_up(workload->peak_tried);
    small -= small ? LEAST_GRANULE : 0;
    tried.options.compare = false; /* its measurements are not used */
    for (int policy = 0; policy < REPLAY_POLICIES; policy++)
        least[policy] = 0;
    for (enum replay_policy policy = REPLAY_NATIVE; policy < REPLAY_POLICIES; policy++) {
        bool wanted = options->policy == REPLAY_TARN || options->policy == policy;
        if (wanted && !least_find_model(options, workload, policy, small, &least[policy])) {
            snprintf(error, error_size, "out of host memory");
            return false;
        }
    }
    if (options->policy != REPLAY_TARN)
        return true;
    return least_climb(small, workload->peak_tried, fits_tarn, &tried, &least[REPLAY_TARN]);
}
