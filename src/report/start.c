/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Registers this layer with the lower ones, none of which may call it directly. Owns nothing. */
#include "report/start.h"
#include "device/device.h"
#include "memory/settings/hooks.h"

__attribute__((constructor)) void report_register(void)
{
    static const struct device_watcher nvtx = {nvtx_prepare, nvtx_begin, NULL},
                                       live = {NULL, live_begin, live_end},
                                       stats = {NULL, exit_stats_begin, exit_stats_end};
    atomic_store(&upper_hooks.leave_snapshot, oom_leave);
    atomic_store(&upper_hooks.captured, graph_captured);
    device_on_use(&nvtx);
    device_on_use(&stats);
    device_on_use(&live);
}
