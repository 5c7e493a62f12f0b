/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into the reader of snapshots and into their analysis: clang
 * -fsanitize=fuzzer,address,undefined. Seeds: corpus/snapshot. Whatever is read must be whole;
 * whatever is not must say why.
 *
 * Reader: tools/tarn/input/pickle/pickle.c
 * Reader: tools/tarn/input/pickle_input.c
 * Reader: tools/tarn/input/pickle/pickle_store.c
 * Reader: tools/tarn/input/pickle/pickle_text.c
 * Reader: tools/tarn/input/snapshot.c
 * Reader: tools/tarn/input/snapshot_fields.c
 * Reader: tools/tarn/input/snapshot_tarn.c
 */
#include "analysis/analysis.h"
#include "input/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

/* Sums over a moment agree with each other, whatever the file says. */
static void analyse(const struct snapshot *snapshot, int device)
{
    struct analysis analysis;
    if (!analysis_exists(snapshot, device) || !analysis_build(snapshot, device, &analysis))
        return;
    for (enum analysis_by by = 0; by < ANALYSIS_BY_COUNT; by++) {
        size_t count;
        uint64_t sum = 0;
        char label[40];
        struct analysis_group *groups = analysis_groups(&analysis, by, analysis.peak, &count);
        for (size_t i = 0; i < count; i++) {
            sum += groups[i].bytes;
            sink += strlen(analysis_label(&analysis, by, groups[i].key, label, sizeof label));
        }
        if (groups && sum != analysis.at_peak.allocated)
            abort();
        free(groups);
    }
    if (analysis.at_peak.largest_free > analysis.at_peak.unused)
        abort();
    analysis_finish(&analysis);
}

/* An odd number of bytes comes from a file, which is read piece by piece. */
static bool read_one(const uint8_t *data, size_t size, struct snapshot *snapshot,
                     struct snapshot_error *error)
{
    char path[64];
    if (size % 2 == 0)
        return snapshot_read_buffer(data, size, snapshot, error);
    int file = memfd_create("snapshot", MFD_CLOEXEC);
    if (file < 0 || write(file, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    bool done = snapshot_read_file(path, snapshot, error);
    close(file);
    return done;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    if (!read_one(data, size, &snapshot, &error)) {
        /* The latter of an RMM log */
        if (strncmp(error.text, "byte ", 5) != 0 && strncmp(error.text, "line ", 5) != 0)
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
    for (int device = 0; device < analysis_devices(&snapshot); device++)
        analyse(&snapshot, device);
    snapshot_finish(&snapshot);
    return 0;
}
