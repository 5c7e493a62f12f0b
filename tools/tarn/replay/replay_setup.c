/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a replay creates before its first operation and ends after the last: the driver and its
 * devices, streams, pools, the crew, and what the oracle asks and reports. */
#include "replay/costs.h"
#include "replay/replay_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/config.h>
#include <tarn/host.h>

bool replay_configure(const struct replay_options *options, int devices, uint64_t memory,
                      char *error, size_t error_size)
{
    if (strcmp(options->driver, "host") != 0) {
        snprintf(error, error_size,
                 "there is no driver \"%s\" in this version; \"host\" is the one that can be "
                 "replayed on",
                 options->driver);
        return false;
    }
    if (memory > REPLAY_MAX_MEMORY) {
        snprintf(error, error_size,
                 "this needs a device of %" PRIu64 " bytes; the host device has at most %" PRIu64,
                 memory, REPLAY_MAX_MEMORY);
        return false;
    }
    if (options->conf && tarn_configuration_set(options->conf)) {
        snprintf(error, error_size, "conf=%s: %s", options->conf, tarn_last_error());
        return false;
    }
    replay_costs_default();
    const tarn_host_configuration config = {
        .size = sizeof config, .devices = devices, .memory = memory};
    tarn_status status = tarn_host_configuration_set(&config);
    if (status) {
        snprintf(error, error_size, "the host device cannot be %d x %" PRIu64 " bytes: %s (%s)",
                 devices, memory, tarn_status_text(status), tarn_last_error());
        return false;
    }
    return true;
}

static void report(void *context, const char *text)
{
    struct replay *replay = context;
    struct replay_result *result = replay->result;
    size_t at = result->divergences++;
    if (at >= REPLAY_KEPT_DIVERGENCES)
        return;
    char *kept = result->divergence[at];
    size_t size = sizeof result->divergence[at];
    int length = replay->event == UINT32_MAX
                     ? snprintf(kept, size, "before the trace")
                     : snprintf(kept, size, "event %" PRIu32, replay->event);
    if (replay->repetition > 1)
        length += snprintf(kept + length, size - (size_t)length, " (repetition %" PRIu32 ")",
                           replay->repetition);
    snprintf(kept + length, size - (size_t)length, ": %s", text);
}

static bool extent(void *context, uint64_t address, uint64_t size, struct oracle_extent *found)
{
    const struct replay *replay = context;
    tarn_host_extent extent;
    if (tarn_host_extent_get(replay->workload->device, (const void *)(uintptr_t)address, size,
                             &extent))
        return false;
    *found = (struct oracle_extent){extent.piece, extent.offset, extent.length, extent.accessible};
    return true;
}

static bool lane_open(struct replay *replay, struct lane *lane)
{
    tarn_status status = tarn_stream_lease(replay->workload->device, 0, &lane->stream);
    if (status)
        return replay_fail(replay, status, "leasing a stream");
    lane->leased = true;
    status = tarn_stream_native_get(lane->stream, &lane->native);
    return status ? replay_fail(replay, status, "asking for a stream's native name") : true;
}

/* Assigns late blocks to helpers. A block gets the helper that becomes free last before the block's
 * work ends, or a new one. If no more may be created, it gets the one that becomes free first,
 * whose work then delays the block's. */
static bool deal_helpers(struct replay *replay)
{
    const struct workload *workload = replay->workload;
    uint64_t ends[MAX_HELPERS] = {0};
    replay->helper_of = malloc(workload->block_count + 1);
    if (!replay->helper_of)
        return false;
    memset(replay->helper_of, NO_HELPER, workload->block_count + 1);
    for (size_t i = 0; i < workload->op_count && workload->late_count; i++) {
        const struct workload_op *op = &workload->ops[i];
        if (op->action != WORKLOAD_FREE || !workload->blocks[op->block].late ||
            workload->blocks[op->block].second != WORKLOAD_NO_STREAM)
            continue;
        uint64_t end = workload->blocks[op->block].completed;
        size_t best = MAX_HELPERS, first = 0;
        for (size_t j = 0; j < replay->helper_count; j++) {
            if (ends[j] <= end && (best == MAX_HELPERS || ends[j] > ends[best]))
                best = j;
            if (ends[j] < ends[first])
                first = j;
        }
        if (best == MAX_HELPERS)
            best = replay->helper_count < MAX_HELPERS ? replay->helper_count++ : first;
        if (end > ends[best])
            ends[best] = end;
        replay->helper_of[op->block] = (uint8_t)best;
    }
    return true;
}

/* Creates an empty graph that holds a pool's memory until it is destroyed. */
static tarn_status hold_pool(struct replay *replay, size_t number)
{
    tarn_stream stream = replay->streams[0].stream;
    tarn_status status =
        tarn_pool_capture_begin(replay->pools[number], stream, TARN_CAPTURE_RELAXED);
    return status ? status : tarn_capture_end(stream, &replay->holders[number]);
}

bool replay_pools_open(struct replay *replay)
{
    const struct workload *workload = replay->workload;
    const tarn_pool_options options = {.size = sizeof options, .device = workload->device};
    for (size_t i = 1; i < workload->pool_count; i++) {
        if (replay->pools[i])
            continue;
        tarn_status status = tarn_pool_create(&options, &replay->pools[i]);
        if (!status && !workload->has_order)
            status = hold_pool(replay, i);
        if (status)
            return replay_fail(replay, status, "creating a pool");
    }
    return true;
}

tarn_status replay_pool_close(struct replay *replay, size_t number)
{
    if (replay->holders[number])
        tarn_host_graph_destroy(replay->holders[number]);
    tarn_status status = tarn_pool_release(replay->pools[number]);
    replay->holders[number] = NULL;
    replay->pools[number] = NULL;
    return status;
}

void replay_pools_close(struct replay *replay)
{
    for (size_t i = 1; replay->pools && replay->holders && i < replay->workload->pool_count; i++)
        replay_pool_close(replay, i);
}

bool replay_setup(struct replay *replay)
{
    const struct workload *workload = replay->workload;
    char settings[4096] = "";
    (void)tarn_configuration_get(settings, sizeof settings, NULL);
    const struct oracle_config config = {.extent = extent,
                                         .report = report,
                                         .context = replay,
                                         .compacts = strstr(settings, "compaction:on_oom")};
    replay->oracle = oracle_create(&config);
    replay->holdings = calloc(workload->block_count + 1, sizeof *replay->holdings);
    replay->streams = calloc(workload->stream_count + 1, sizeof *replay->streams);
    replay->pools = calloc(workload->pool_count, sizeof(tarn_pool *));
    replay->holders = calloc(workload->pool_count, sizeof *replay->holders);
    replay->graphs = calloc(workload->capture_count + 1, sizeof *replay->graphs);
    if (!replay->oracle || !replay->holdings || !replay->streams || !replay->pools ||
        !replay->holders || !replay->graphs || !deal_helpers(replay))
        return replay_fail(replay, TARN_ERROR_OUT_OF_HOST_MEMORY, "preparing the replay");
    replay->timed = replay->options->lag || workload->late_count;
    uint32_t threads = replay->options->deal_threads;
    if (!threads && workload->thread_count > 1)
        threads = (uint32_t)workload->thread_count;
    if (threads) {
        replay->crew = crew_create(threads);
        if (!replay->crew)
            return replay_fail(replay, TARN_OK, "%" PRIu32 " threads could not be started",
                               threads);
    }

    for (size_t i = 0; i < workload->stream_count; i++)
        if (!lane_open(replay, &replay->streams[i]))
            return false;
    for (size_t i = 0; i < replay->helper_count; i++)
        if (!lane_open(replay, &replay->helpers[i]))
            return false;
    if (!replay_pools_open(replay))
        return false;
    for (int kind = 0; tarn_host_call_name(kind) && kind < REPLAY_MAX_CALLS; kind++)
        snprintf(replay->result->call_names[kind], sizeof replay->result->call_names[kind], "%s",
                 tarn_host_call_name(kind));
    return true;
}

void replay_graphs_drop(struct replay *replay)
{
    while (replay->graph_count > 0)
        tarn_host_graph_destroy(replay->graphs[--replay->graph_count]);
}

void replay_teardown(struct replay *replay)
{
    for (size_t i = 0; replay->streams && i < replay->workload->stream_count; i++) {
        struct lane *lane = &replay->streams[i];
        if (lane->captures)
            tarn_capture_abort(lane->stream);
        if (lane->event)
            tarn_event_destroy(lane->event);
        if (lane->leased)
            tarn_stream_return(lane->stream);
    }
    replay_graphs_drop(replay);
    replay_pools_close(replay);
    free(replay->pools);
    free(replay->holders);
    free(replay->graphs);
    for (size_t i = 0; i < replay->helper_count; i++)
        if (replay->helpers[i].leased)
            tarn_stream_return(replay->helpers[i].stream);
    crew_destroy(replay->crew);
    oracle_destroy(replay->oracle);
    free(replay->holdings);
    free(replay->streams);
    free(replay->helper_of);
}
