/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Tarn's bookkeeping by kind of record. Memory for records is kept for ever, so its bytes are the
 * most that there once were, and grow for as long as threads meet as they never met before. What
 * leaks is seen in the records that are in use while nothing is. Of most kinds there are none then;
 * how many there may be of the others does not depend on how long the soak runs. */
#include "chores.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void note_kind(const tarn_metadata_kind *kind, void *user)
{
    struct kinds *kinds = user;
    if (kinds->count < MOST_KINDS)
        kinds->list[kinds->count++] = *kind;
    else
        wrong("there are more than %d kinds of records", MOST_KINDS);
}

void kinds_look(struct kinds *kinds)
{
    kinds->count = 0;
    OK(tarn_metadata_list(note_kind, kinds));
}

tarn_metadata_kind kinds_find(const struct kinds *kinds, const char *name)
{
    for (unsigned i = 0; i < kinds->count; i++)
        if (strcmp(kinds->list[i].name, name) == 0)
            return kinds->list[i];
    return (tarn_metadata_kind){0};
}

/* How many records of a kind may be in use at rest. */
static int64_t most_records(const struct kinds *kinds, const char *name, int64_t graphs)
{
    const int64_t heaps = kinds_find(kinds, "heap").records,
                  streams = kinds_find(kinds, "host_stream").records;
    const int64_t threads = worker_count + 1; /* this one */
    if (strcmp(name, "page") == 0 || strcmp(name, "leaf of the page map") == 0)
        return INT64_MAX; /* rest_compare() */
    if (strcmp(name, "heap") == 0)
        /* A stream has one, and each pool one per stream; used again, there are as many as once
         * were alive together: a worker has one pool at a time, a part in others' scopes, and of
         * the pools that it released those that the mix has a block of. */
        return streams + 16 * threads;
    if (strcmp(name, "span") == 0)
        return 64 * heaps; /* at hand */
    if (strcmp(name, "cache") == 0)
        return threads * heaps; /* each thread may have one of each */
    if (strcmp(name, "mark") == 0 || strcmp(name, "host_event") == 0)
        return 8 * heaps; /* of its last batches */
    /* Lists that heaps and streams keep, what a thread has, and what belongs to a graph. */
    return 2 * (heaps + streams) + 4 * threads + 64 * graphs;
}

void kinds_check(const struct kinds *kinds, int64_t graphs)
{
    for (unsigned i = 0; i < kinds->count; i++) {
        const tarn_metadata_kind *kind = &kinds->list[i];
        int64_t most = most_records(kinds, kind->name, graphs);
        if (kind->records > most)
            wrong("%" PRId64
                  " records \"%s\" are in use while nothing is, and there may be %" PRId64,
                  kind->records, kind->name, most);
    }
}

void kinds_print(const struct kinds *first, const struct kinds *last)
{
    printf("\nMetadata by kind, at rest: after the first windows, and after the last\n");
    printf("  %-24s %10s  %10s %10s  %10s %10s\n", "", "bytes each", "in use", "KiB", "in use",
           "KiB");
    for (unsigned i = 0; i < last->count; i++) {
        const tarn_metadata_kind *kind = &last->list[i], before = kinds_find(first, kind->name);
        printf("  %-24s %10zu  %10" PRId64 " %10" PRId64 "  %10" PRId64 " %10" PRId64 "\n",
               kind->name, kind->record_bytes, before.records, before.bytes / 1024, kind->records,
               kind->bytes / 1024);
    }
}
