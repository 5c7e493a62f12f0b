/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the choice of what is left out of a long trace. Nothing else of a snapshot changes but the
 * places of tarn's marks among the events. */
#include "input/thin.h"

#include "table.h"

#include <stdlib.h>

#define NONE UINT32_MAX
#define KEYS 128 /* sums of two logarithms of base 2 */

/* `block` has for each event the event that allocated its block. `end` has for each allocation the
 * event that ended its life. */
struct lives {
    uint32_t *block, *end;
    bool *freed, *left_out;
    struct table live; /* addresses, to the allocation that has it + 1 */
    bool completes;    /* the trace has completions of frees */
    int64_t peak;      /* the event after which most was allocated; -1: none */
};

/* Follows addresses. A block has an end where the trace has all that ends it. */
static bool follow(const struct snapshot_trace *trace, struct lives *lives)
{
    uint64_t allocated = 0; /* since the trace began; below 0 it wraps */
    int64_t most = 0;
    lives->peak = -1;
    for (size_t i = 0; i < trace->event_count; i++)
        lives->completes |= trace->events[i].action == SNAPSHOT_FREE_COMPLETED;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct snapshot_event *event = &trace->events[i];
        bool begins = event->action == SNAPSHOT_ALLOC,
             frees = event->action == SNAPSHOT_FREE_REQUESTED,
             completes = event->action == SNAPSHOT_FREE_COMPLETED;
        lives->block[i] = lives->end[i] = NONE;
        if (!begins && !frees && !completes)
            continue;
        uint32_t *owner = table_add(&lives->live, event->address, 0, 0);
        if (!owner)
            return false;
        if (begins) {
            *owner = (uint32_t)i + 1;
            lives->block[i] = (uint32_t)i;
            allocated += event->size;
            if ((int64_t)allocated > most) {
                most = (int64_t)allocated;
                lives->peak = (int64_t)i;
            }
        } else if (*owner && lives->freed[*owner - 1] == completes) {
            uint32_t block = lives->block[i] = *owner - 1;
            lives->freed[block] = true;
            allocated -= frees ? trace->events[block].size : 0;
            if (completes || !lives->completes) {
                lives->end[block] = (uint32_t)i;
                *owner = 0;
            }
        } else {
            /* A block from before the trace; or a contradiction: then the block at the address
             * stays. */
            allocated -= frees && !*owner ? event->size : 0;
            *owner = 0;
        }
    }
    return true;
}

static unsigned logarithm(uint64_t value)
{
    return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}

/* How much of the picture a block is; KEYS where it must stay. `oom` is the first error at or
 * behind its allocation. The first and the last event stay, so the recording lasts as long. */
static unsigned key_of(const struct snapshot_trace *trace, const struct lives *lives, size_t i,
                       size_t oom)
{
    uint32_t end = lives->end[i];
    bool stays = end == NONE || ((int64_t)i <= lives->peak && end > lives->peak) || oom <= end ||
                 i < trace->exact_from || i == 0 || end + 1 == trace->event_count;
    unsigned key = logarithm(trace->events[i].size) + logarithm(end - i);
    return stays ? KEYS : key < KEYS ? key : KEYS - 1;
}

/* Marks blocks, the least first, until `wanted` events would go. Returns how many go. Of the last
 * key as many go as it takes, from all parts of the trace: where all blocks are alike, no part
 * would look empty. */
static size_t choose(const struct snapshot_trace *trace, struct lives *lives, size_t wanted)
{
    size_t counts[KEYS + 1] = {0}, gone = 0, oom = trace->event_count;
    unsigned each = lives->completes ? 3 : 2, last = 0;
    for (size_t i = trace->event_count; i-- > 0;) {
        oom = trace->events[i].action == SNAPSHOT_OOM ? i : oom;
        if (lives->block[i] == i)
            counts[key_of(trace, lives, i, oom)] += each;
    }
    for (size_t sum = 0; last < KEYS && sum < wanted; last++)
        sum += counts[last];
    for (size_t key = 0; key + 1 < last; key++)
        gone += counts[key];
    const size_t alike = last ? counts[last - 1] / each : 0, go = (wanted - gone + each - 1) / each;
    size_t share = 0, taken = 0;
    oom = trace->event_count;
    for (size_t i = trace->event_count; i-- > 0;) {
        oom = trace->events[i].action == SNAPSHOT_OOM ? i : oom;
        if (lives->block[i] != i)
            continue;
        unsigned key = key_of(trace, lives, i, oom);
        share += key + 1 == last ? go < alike ? go : alike : 0;
        bool next = key + 1 == last && share >= alike;
        share -= next ? alike : 0;
        taken += next;
        lives->left_out[i] = key + 1 < last || next;
    }
    return gone + taken * each;
}

/* Moves what stays together, and tarn's marks with it. */
static void leave_out(struct snapshot *snapshot, size_t device, const struct lives *lives)
{
    struct snapshot_trace *trace = &snapshot->traces[device];
    struct snapshot_tarn *tarn = &snapshot->tarn;
    size_t kept = 0, mark = 0, exact = 0;
    uint64_t missing = 0;
    for (size_t i = 0; i <= trace->event_count; i++) {
        for (; mark < tarn->mark_count &&
               (tarn->marks[mark].device != device || tarn->marks[mark].at <= i);
             mark++)
            if (tarn->marks[mark].device == device)
                tarn->marks[mark].at = kept;
        exact = i == trace->exact_from ? kept : exact;
        if (i == trace->event_count)
            break;
        uint32_t block = lives->block[i];
        if (block == NONE || !lives->left_out[block]) {
            trace->events[kept++] = trace->events[i];
            continue;
        }
        if (trace->events[i].action == SNAPSHOT_ALLOC)
            missing += trace->events[i].size;
        if (missing > trace->thinned_bytes)
            trace->thinned_bytes = missing;
        if (trace->events[i].action == SNAPSHOT_FREE_REQUESTED)
            missing -= trace->events[i].size;
    }
    for (; mark < tarn->mark_count; mark++)
        if (tarn->marks[mark].device == device)
            tarn->marks[mark].at = kept;
    trace->thinned = trace->event_count - kept;
    trace->event_count = kept;
    trace->exact_from = exact;
}

bool thin_trace(struct snapshot *snapshot, size_t device, size_t most)
{
    const struct snapshot_trace *trace = &snapshot->traces[device];
    size_t count = trace->event_count;
    if (count <= most || count >= NONE)
        return true;
    struct lives lives = {.block = malloc(count * sizeof *lives.block),
                          .end = malloc(count * sizeof *lives.end),
                          .freed = calloc(count, sizeof *lives.freed),
                          .left_out = calloc(count, sizeof *lives.left_out)};
    bool done = lives.block && lives.end && lives.freed && lives.left_out && follow(trace, &lives);
    table_finish(&lives.live);
    if (done && choose(trace, &lives, count - most))
        leave_out(snapshot, device, &lives);
    free(lives.block);
    free(lives.end);
    free(lives.freed);
    free(lives.left_out);
    return done;
}
