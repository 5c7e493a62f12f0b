/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into the reader of RMM's logs: clang -fsanitize=fuzzer,address,undefined. Seeds:
 * corpus/rmm. What does not begin with the header gets one, so that the lines are met. Whatever is
 * read must make a workload; whatever is not must name its line.
 *
 * Reader: tools/tarn/input/rmm_csv.c
 */
#include "input/rmm_csv.h"
#include "input/workload.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char header[] = RMM_CSV_HEADER "\n";

static void demand(bool condition)
{
    if (!condition)
        abort();
}

static void check(const struct snapshot *snapshot)
{
    struct workload workload;
    demand(snapshot->trace_count == 1 && snapshot->segment_count == 0);
    demand(workload_build(snapshot, 0, &workload));
    demand(workload.event_count == snapshot->event_count && workload.thread_count >= 1);
    for (size_t i = 0; i < workload.op_count; i++) {
        const struct workload_op *op = &workload.ops[i];
        demand(op->block == WORKLOAD_NO_BLOCK || op->block < workload.block_count);
        demand(op->stream == WORKLOAD_NO_STREAM || op->stream < workload.stream_count);
        demand(op->thread < workload.thread_count && op->event < workload.event_count);
    }
    workload_finish(&workload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    size_t prefix = size >= sizeof header - 1 && memcmp(data, header, sizeof header - 1) == 0
                        ? 0
                        : sizeof header - 1;
    uint8_t *log = malloc(prefix + size + 1);
    if (!log)
        return 0;
    memcpy(log, header, prefix);
    if (size)
        memcpy(log + prefix, data, size);
    if (snapshot_read_buffer(log, prefix + size, &snapshot, &error))
        check(&snapshot);
    else
        demand(strncmp(error.text, "line ", 5) == 0);
    snapshot_finish(&snapshot);
    free(log);
    return 0;
}
