/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Nobody below calls this layer: it registers itself. */
#include "report/start.h"
#include "device/device.h"
#include "memory/shortage.h"

__attribute__((constructor)) void report_register(void)
{
    shortage_on_refuse(oom_leave);
    device_on_use(nvtx_begin, NULL);
    device_on_use(live_begin, live_end);
}
