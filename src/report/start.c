/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Nobody below calls this layer: it registers itself. */
#include "report/start.h"
#include "device/device.h"

__attribute__((constructor)) void report_register(void)
{
    device_on_use(nvtx_begin, NULL);
    device_on_use(live_begin, live_end);
}
