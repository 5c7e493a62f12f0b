/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the page's own analysis replays: PyTorch's policies, which are models. tarn itself needs 64
 * bits and a driver, so its row and the driver's time stay empty. Owns the results. */
#include "input/snapshot.h"
#include "replay/least.h"
#include "replay/replay_file.h"

#include <stdio.h>
#include <stdlib.h>

static bool replay_model(const struct replay_options *options, struct workload *workload,
                         struct replay_result *result)
{
    uint64_t memory = replay_device_memory(options, workload),
             small = least_round_up(workload->peak_tried);
    small -= small ? LEAST_GRANULE : 0;
    *result = (struct replay_result){.device = workload->device,
                                     .peak_requested = workload->peak_requested,
                                     .error = "tarn is not here"};
    for (enum replay_policy policy = REPLAY_NATIVE; options->least && policy < REPLAY_POLICIES;
         policy++)
        if (!least_find_model(options, workload, policy, small, &result->least[policy]))
            return false;
    if (!workload->device_memory)
        workload_forget_tries(workload);
    for (enum replay_policy policy = REPLAY_NATIVE; policy < REPLAY_POLICIES; policy++) {
        struct c10_policy settings = replay_policy_settings(options, policy);
        if (!c10_run(workload, &settings, memory, &result->models[policy].run))
            return false;
    }
    return true;
}

bool replay_file_run(const char *path, const struct replay_options *options, bool progress,
                     struct replay_file *file)
{
    struct snapshot snapshot = {0};
    struct snapshot_error error;
    (void)progress;
    *file = (struct replay_file){.path = path, .options = options};
    bool done = snapshot_read_file(path, &snapshot, &error);
    if (!done)
        snprintf(file->error, sizeof file->error, "%s", error.text);
    file->devices = done ? calloc(snapshot.trace_count + 1, sizeof *file->devices) : NULL;
    for (int device = 0; done && file->devices && (size_t)device < snapshot.trace_count; device++) {
        struct workload workload;
        if (!workload_exists(&snapshot, device))
            continue;
        done = workload_build(&snapshot, device, &workload);
        done =
            done && replay_model(options, &workload, &file->devices[file->device_count++].result);
        workload_finish(&workload);
    }
    if (!done && !file->error[0])
        snprintf(file->error, sizeof file->error, "memory is short");
    snapshot_finish(&snapshot);
    return done;
}

void replay_file_finish(struct replay_file *file)
{
    free(file->devices);
    *file = (struct replay_file){0};
}
