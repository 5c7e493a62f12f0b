/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* trace.h, snapshot.h, live.h, metrics.h and debug.h. */
#include "api/api.h"

#include <stdlib.h>

static bool take_text(const void *text, size_t length, void *user)
{
    unsigned *left = user;
    DEMAND(text && length > 0);
    return *left && (*left)--;
}

static void fuzz_tarn_trace_start(void)
{
    tarn_trace_options options = {.size = struct_size(sizeof options),
                                  .records =
                                      take() < 224 ? take() : (size_t)1 << (28 + take() % 36),
                                  .stacks = (tarn_trace_stacks)(take() < 240 ? 0 : take() % 4),
                                  .regions = take_bool()};
    if (options.records == (size_t)1 << 28)
        options.records = 0; /* the most that there can be; the machine is not to be filled */
    (void)tarn_trace_start(or_null(&options));
}

static void fuzz_tarn_trace_stop(void)
{
    (void)tarn_trace_stop();
}

static void fuzz_tarn_trace_clear(void)
{
    (void)tarn_trace_clear();
}

static void fuzz_tarn_trace_count_get(void)
{
    uint64_t kept, lost;
    (void)tarn_trace_count_get(or_null(&kept), or_null(&lost));
}

static void fuzz_tarn_region_push(void)
{
    if (mine()->regions < 100 && !tarn_region_push(any_text()))
        mine()->regions++;
}

static void fuzz_tarn_region_pop(void)
{
    if (!tarn_region_pop())
        mine()->regions--;
}

static tarn_snapshot_options *any_options(tarn_snapshot_options *options)
{
    *options = (tarn_snapshot_options){.size = struct_size(sizeof *options),
                                       .format = (tarn_snapshot_format)(take() % 3),
                                       .max_bytes = take() < 128 ? TARN_NO_LIMIT : any_size()};
    return or_null(options);
}

static void fuzz_tarn_snapshot_write(void)
{
    tarn_snapshot_options options;
    (void)tarn_snapshot_write(any_path(), any_options(&options));
}

static void take_segment(const tarn_memory_segment *segment, void *user)
{
    size_t *bytes = user, sum = 0;
    for (size_t i = 0; i < segment->part_count; i++)
        sum += segment->parts[i].bytes;
    if (sum != segment->bytes)
        abort();
    *bytes += sum;
}

static void fuzz_tarn_memory_list(void)
{
    size_t bytes = 0;
    (void)tarn_memory_list(take() < 248 ? take_segment : NULL, &bytes);
}

static void fuzz_tarn_snapshot_print(void)
{
    unsigned parts = take() < 192 ? 1000000 : take();
    tarn_snapshot_options options;
    (void)tarn_snapshot_print(take() < 248 ? take_text : NULL, &parts, any_options(&options));
}

static void fuzz_tarn_live_start(void)
{
    tarn_live_options options = {.size = struct_size(sizeof options),
                                 .name = any_text(),
                                 .directory = take() < 192 ? world.directory : any_path(),
                                 .interval_ms = take() < 192 ? 0 : (unsigned)take_number()};
    if (!options.directory)
        options.directory = world.directory;
    (void)tarn_live_start(&options);
}

static void fuzz_tarn_live_stop(void)
{
    (void)tarn_live_stop();
}

static void fuzz_tarn_metrics_print(void)
{
    unsigned parts = take() < 192 ? 1000000 : take();
    (void)tarn_metrics_print(take() < 248 ? take_text : NULL, &parts);
}

static void on_report(const tarn_debug_report *report, void *user)
{
    DEMAND(user == &world && report->text);
}

static void fuzz_tarn_debug_callback_set(void)
{
    tarn_debug_callback_set(take_bool() ? on_report : NULL, &world);
}

static void fuzz_tarn_debug_reports(void)
{
    (void)tarn_debug_reports();
}

static void fuzz_tarn_debug_check(void)
{
    (void)tarn_debug_check(any_device());
}

const struct api_call api_reports[] = {
    CALL(tarn_trace_start),    CALL(tarn_trace_stop),
    CALL(tarn_trace_clear),    CALL(tarn_trace_count_get),
    CALL(tarn_region_push),    CALL(tarn_region_pop),
    CALL(tarn_snapshot_write), CALL(tarn_snapshot_print),
    CALL(tarn_live_start),     CALL(tarn_live_stop),
    CALL(tarn_metrics_print),  CALL(tarn_debug_callback_set),
    CALL(tarn_debug_reports),  CALL(tarn_debug_check),
    CALL(tarn_memory_list),    {0},
};
