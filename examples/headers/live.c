/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The memory of a running program in other processes: `tarn top` shows it as "trainer". */
#include <stdio.h>
#include <tarn/live.h>
#include <tarn/tarn.h>

int main(void)
{
    const tarn_live_options options = {
        .size = sizeof options, .name = "trainer", .interval_ms = 100};
    if (tarn_live_start(&options)) {
        fprintf(stderr, "%s\n", tarn_last_error());
        return 1;
    }
    /* Work here; look at it by `tarn top trainer`. */
    return tarn_live_stop() || tarn_shutdown();
}
