/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A write behind a block is found when the block is freed; a callback gets the report. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/debug.h>
#include <tarn/tarn.h>

static void show(const tarn_debug_report *report, void *user)
{
    (void)user;
    printf("%s\n", report->text);
}

int main(void)
{
    void *block;
    setenv("TARN_DEBUG", "redzone,quiet", 1); /* as a rule it is set outside of the program */
    tarn_debug_callback_set(show, NULL);
    if (tarn_alloc_on(TARN_STREAM_CURRENT, 1000, &block) ||
        tarn_stream_synchronize(TARN_STREAM_CURRENT)) {
        fprintf(stderr, "%s\n", tarn_last_error());
        return 1;
    }
    memset(block, 0, 1001); /* a kernel on the stream would not have to be waited for */
    if (tarn_free(block) || tarn_debug_check(0))
        return 1;
    return tarn_debug_reports() == 1 ? tarn_shutdown() : 1;
}
