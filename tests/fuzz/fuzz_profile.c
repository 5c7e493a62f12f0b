/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into the reader of the profiler's JSON: clang
 * -fsanitize=fuzzer,address,undefined. Seeds: corpus/profile. What does not begin as JSON becomes
 * the events of a trace. Whatever is read must make workloads; whatever is not must name its byte.
 *
 * Reader: tools/tarn/input/profile_json.c
 */
#include "input/workload.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char begin[] = "{\"traceEvents\":[", end[] = "]}";

static void demand(bool condition)
{
    if (!condition)
        abort();
}

static void check(const struct snapshot *snapshot)
{
    demand(snapshot->profile && snapshot->segment_count == 0 && snapshot->trace_count >= 1);
    for (size_t i = 1; i < snapshot->stack_count; i++)
        demand(snapshot->stacks[i].caller < i && snapshot->stacks[i].frame < snapshot->frame_count);
    for (size_t i = 0; i < snapshot->event_count; i++)
        demand(snapshot->events[i].stack < snapshot->stack_count &&
               snapshot->events[i].tag < snapshot->text_count);
    for (size_t i = 0; i < snapshot->trace_count; i++) {
        struct workload workload;
        const struct snapshot_trace *trace = &snapshot->traces[i];
        demand(trace->event_count <= snapshot->event_count);
        if (!workload_exists(snapshot, (int)i))
            continue;
        demand(workload_build(snapshot, (int)i, &workload));
        demand(workload.event_count == trace->event_count);
        workload_finish(&workload);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    bool wrap = !size || (data[0] != '{' && data[0] != '[');
    size_t from = wrap ? sizeof begin - 1 : 0, length = from + size + (wrap ? sizeof end - 1 : 0);
    uint8_t *text = malloc(length + 1);
    if (!text)
        return 0;
    memcpy(text, begin, from);
    if (size)
        memcpy(text + from, data, size);
    memcpy(text + from + size, end, length - from - size);
    if (snapshot_read_buffer(text, length, &snapshot, &error))
        check(&snapshot);
    else
        demand(strncmp(error.text, "byte ", 5) == 0);
    snapshot_finish(&snapshot);
    free(text);
    return 0;
}
