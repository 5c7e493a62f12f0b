/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The machine inside, for tests of programs that run on the simulated libcuda. */
#include "cuda/sim_cuda.h"

static tarn_status work(int device, void *native, const void *address, size_t size, uint64_t duration)
{
    driver_stream host = NULL;
    return sim_stream(native, &device, &host) ? TARN_ERROR_INVALID_STREAM
                                              : tarn_host_work(device, host, address, size, duration);
}

static tarn_status fill(int device, void *native, void *address, int value, size_t size)
{
    driver_stream host = NULL;
    return sim_stream(native, &device, &host) ? TARN_ERROR_INVALID_STREAM
                                              : tarn_host_fill(device, host, address, value, size);
}

static tarn_status graph_launch(int device, void *graph, void *native)
{
    driver_stream host = NULL;
    cu_graph launched = graph;
    return sim_stream(native, &device, &host) ? TARN_ERROR_INVALID_STREAM
                                              : tarn_host_graph_launch(device, launched->host, host);
}

static tarn_status graph_destroy(void *graph)
{
    cu_graph destroyed = graph;
    sim_own_begin();
    cu_result code = cuCtxPushCurrent_v2(sim_context(destroyed->device));
    if (!code) {
        code = cuGraphDestroy(destroyed);
        (void)cuCtxPopCurrent_v2(NULL);
    }
    sim_own_end();
    return code ? TARN_ERROR_DRIVER : TARN_OK;
}

SIM_EXPORT extern const struct machine tarn_sim_machine;
const struct machine tarn_sim_machine = {
    .ledger_get = tarn_host_ledger_get,
    .time = tarn_host_time,
    .advance = tarn_host_advance,
    .work = work,
    .fill = fill,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .fail = sim_fail,
    .fail_calls = sim_fail_calls,
    .fail_hits = sim_fail_hits,
};
