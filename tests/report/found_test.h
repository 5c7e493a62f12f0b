/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of checks of graphs share, whatever the driver: the findings of a check. */
#ifndef TARN_TESTS_REPORT_FOUND_TEST_H
#define TARN_TESTS_REPORT_FOUND_TEST_H

#include "support/host.h"

#include <tarn/graph.h>

/* Allocates until a block begins at `place`, which it returns; NULL: none did. The free of a block
 * that was watched goes to its slab, and others may be taken before. */
static inline char *alloc_at(tarn_stream stream, size_t size, const char *place)
{
    char *others[300], *found = NULL;
    int count = 0;
    while (count < 300 && !found) {
        char *block = alloc_on(stream, size);
        if (block == place)
            found = block;
        else
            others[count++] = block;
    }
    while (count)
        OK(tarn_free(others[--count]));
    return found;
}

#define FOUND_MOST 4096

struct found {
    size_t count;
    tarn_graph_reference list[FOUND_MOST];
    tarn_graph_summary summary;
};

static inline void note(const tarn_graph_reference *reference, void *user)
{
    struct found *found = user;
    CHECK(reference->size == sizeof *reference && found->count < FOUND_MOST);
    found->list[found->count++] = *reference;
}

static inline void check_into(struct found *found, void *graph, bool all)
{
    const tarn_graph_options options = {.size = sizeof options, .all = all};
    found->count = 0;
    found->summary = (tarn_graph_summary){.size = sizeof found->summary};
    OK(tarn_graph_check(graph, &options, note, found, &found->summary));
}

/* The most certain finding about an address; NULL: there is none. */
static inline const tarn_graph_reference *finding(const struct found *found, const void *address)
{
    const tarn_graph_reference *best = NULL;
    for (size_t i = 0; i < found->count; i++)
        if (found->list[i].address == address && found->list[i].certainty &&
            (!best || found->list[i].certainty > best->certainty))
            best = &found->list[i];
    return best;
}

#endif
