/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes sequences. A trace's addresses become slots: the slot of a block is given anew when it was
 * freed. */
#include "sequence.h"
#include "peers.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef TARN_HAVE_TRACES
#include "input/snapshot.h"
#endif

#define SMALL_STEPS 40000
#define LARGE_STEPS 2000

static struct sequence sequence_make(size_t count, size_t slots)
{
    struct sequence sequence = {
        .steps = calloc(count + 1, sizeof(struct step)), .count = count, .slots = slots};
    if (!sequence.steps)
        die("calloc", "no memory for a sequence");
    return sequence;
}

void sequence_finish(struct sequence *sequence)
{
    free(sequence->steps);
}

struct sequence sequence_pairs(size_t size)
{
    struct sequence sequence = sequence_make(size >= LARGE ? LARGE_STEPS : SMALL_STEPS, 2);
    for (size_t i = 0; i < sequence.count; i++)
        sequence.steps[i] = (struct step){size, 0};
    return sequence;
}

struct sequence sequence_held(size_t size)
{
    struct sequence sequence = sequence_pairs(size);
    sequence.steps[0].slot = 1;
    return sequence;
}

static struct sequence sequence_random_of(const size_t *sizes, size_t count)
{
    struct sequence sequence = sequence_make(SMALL_STEPS, RANDOM_SLOTS);
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < sequence.count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sequence.steps[i] =
            (struct step){sizes[(state >> 40) % count], (uint32_t)(state >> 16) % RANDOM_SLOTS};
    }
    return sequence;
}

struct sequence sequence_random(void)
{
    static const size_t sizes[] = {512, 4096, 65536};
    return sequence_random_of(sizes, sizeof sizes / sizeof *sizes);
}

struct sequence sequence_random_large(void)
{
    static const size_t sizes[] = {256 << 10, 512 << 10, 1 << 20,  2 << 20,
                                   4 << 20,   8 << 20,   16 << 20, 32 << 20};
    return sequence_random_of(sizes, sizeof sizes / sizeof *sizes);
}

#ifdef TARN_HAVE_TRACES

/* Live blocks by address: open addressing, twice as large as there are events. */
struct live {
    uint64_t address; /* 0: none */
    uint32_t slot;
    bool freed;
};

struct table {
    struct live *entries;
    size_t mask;
};

static struct live *find(struct table *table, uint64_t address)
{
    size_t i = (size_t)(address * 0x9e3779b97f4a7c15u >> 20) & table->mask;
    while (table->entries[i].address && table->entries[i].address != address)
        i = (i + 1) & table->mask;
    return &table->entries[i];
}

static void steps_of(const struct snapshot_trace *trace, struct table *table, uint32_t *spare,
                     struct sequence *sequence)
{
    size_t spares = 0;
    sequence->count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct snapshot_event *event = &trace->events[i];
        bool alloc = event->action == SNAPSHOT_ALLOC;
        struct live *live = find(table, event->address);
        bool is_live = live->address && !live->freed;
        if (event->size == 0 ||
            (!alloc && (event->action != SNAPSHOT_FREE_REQUESTED || !is_live)) ||
            (alloc && is_live))
            continue; /* no request, or one whose other half is not in the trace */
        if (alloc)
            *live = (struct live){event->address,
                                  spares ? spare[--spares] : (uint32_t)sequence->slots++, false};
        else
            live->freed = true, spare[spares++] = live->slot;
        sequence->steps[sequence->count++] = (struct step){(size_t)event->size, live->slot};
    }
}

struct sequence sequence_of_trace(const char *path)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    const struct snapshot_trace *trace = NULL;
    const char *slash = strrchr(path, '/');
    if (!snapshot_read_file(path, &snapshot, &error))
        die(path, error.text);
    for (size_t i = 0; i < snapshot.trace_count; i++)
        if (!trace || snapshot.traces[i].event_count > trace->event_count)
            trace = &snapshot.traces[i];
    size_t events = trace ? trace->event_count : 0;
    struct sequence sequence = sequence_make(events, 0);
    struct table table = {.mask = 1023};
    while (table.mask < 2 * events)
        table.mask = 2 * table.mask + 1;
    table.entries = calloc(table.mask + 1, sizeof *table.entries);
    uint32_t *spare = calloc(events + 1, sizeof *spare);
    if (!table.entries || !spare)
        die(path, "no memory for its blocks");
    snprintf(sequence.name, sizeof sequence.name, "%s", slash ? slash + 1 : path);
    char *end = strstr(sequence.name, ".pickle");
    if (end)
        *end = 0;
    if (trace)
        steps_of(trace, &table, spare, &sequence);
    free(spare);
    free(table.entries);
    snapshot_finish(&snapshot);
    return sequence;
}

#else

struct sequence sequence_of_trace(const char *path)
{
    (void)path;
    return sequence_make(0, 0);
}

#endif
