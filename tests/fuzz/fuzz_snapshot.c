/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into the reader of snapshots: clang -fsanitize=fuzzer,address,undefined. Seeds: corpus/snapshot.
 * Whatever is read must be whole; whatever is not must say why. */
#include "snapshot.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    if (!snapshot_read_buffer(data, size, &snapshot, &error)) {
        if (strncmp(error.text, "byte ", 5) != 0 &&
            strncmp(error.text, "line ", 5) != 0) /* the latter of a log of RMM's */
            abort();
        return 0;
    }
    for (size_t i = 0; i < snapshot.segment_count; i++)
        for (size_t j = 0; j < snapshot.segments[i].block_count; j++)
            sink += snapshot.blocks[snapshot.segments[i].first_block + j].size;
    for (size_t i = 0; i < snapshot.trace_count; i++)
        for (size_t j = 0; j < snapshot.traces[i].event_count; j++) {
            const struct snapshot_event *event = &snapshot.traces[i].events[j];
            sink += event->size + snapshot.streams[event->stream] + snapshot.pools[event->pool][1] +
                    strlen(snapshot_text(&snapshot, event->tag));
            for (uint32_t stack = event->stack; stack; stack = snapshot.stacks[stack].caller)
                sink += snapshot.frames[snapshot.stacks[stack].frame].line;
        }
    for (size_t i = 0; i < snapshot.tarn.mark_count; i++)
        sink += snapshot.streams[snapshot.tarn.marks[i].other] +
                strlen(snapshot_text(&snapshot, snapshot.tarn.marks[i].text));
    for (size_t i = 0; i < snapshot.tarn.pool_count; i++)
        sink += snapshot.pools[snapshot.tarn.pools[i].pool][0];
    for (size_t i = 0; i < snapshot.tarn.workspace_count; i++)
        sink += snapshot.streams[snapshot.tarn.workspaces[i].stream];
    snapshot_finish(&snapshot);
    return 0;
}
