/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Gives tests access to the host device inside a simulated library. The host device is asked about
 * the driver's own streams and graphs. */
#include "common/sim.h"
#include "driver/host/host.h"

static tarn_status work(int device, void *native, const void *address, size_t size,
                        uint64_t duration)
{
    driver_stream stream = NULL;
    tarn_status status = sim_native_stream(native, &device, &stream);
    return status ? status : tarn_host_work(device, stream, address, size, duration);
}

static tarn_status fill(int device, void *native, void *address, int value, size_t size)
{
    driver_stream stream = NULL;
    tarn_status status = sim_native_stream(native, &device, &stream);
    return status ? status : tarn_host_fill(device, stream, address, value, size);
}

static tarn_status graph_launch(int device, void *graph, void *native)
{
    driver_stream stream = NULL;
    tarn_status status = sim_native_stream(native, &device, &stream);
    return status ? status : tarn_host_graph_launch(device, sim_native_graph(graph), stream);
}

SIM_EXPORT extern const struct machine tarn_sim_machine;
const struct machine tarn_sim_machine = {
    .ledger_get = tarn_host_ledger_get,
    .time = tarn_host_time_get,
    .advance = tarn_host_advance,
    .work = work,
    .fill = fill,
    .graph_launch = graph_launch,
    .graph_destroy = sim_native_graph_destroy,
    .settle = host_workers_settle,
    .fail = sim_fail,
    .fail_calls = sim_fail_calls,
    .fail_hits = sim_fail_hits,
};
