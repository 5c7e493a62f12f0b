/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Collects the words of a graph's nodes, as the driver's walk tells them. Owns nothing. */
#include "base/pages.h"
#include "base/status.h"
#include "device/device.h"
#include "memory/arena/arena.h"
#include "memory/growth/segment.h"
#include "memory/range/range.h"
#include "memory/share/import.h"
#include "report/graph/graph.h"

#include <string.h>

struct collector {
    struct graph_words *words;
    const struct remembered *before;
};

static bool is_wanted(const struct remembered *before, uintptr_t value)
{
    return arena_at(value) || segment_has(value) || import_has(value) || range_has(value) ||
           remembered_at(before, value);
}

static void mix(struct graph_words *words, uint64_t value)
{
    words->hash = (words->hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    words->hash ^= words->hash >> 29;
}

static bool list_word(struct graph_words *words, const struct driver_word *word)
{
    if (words->count == words->room) {
        size_t room = words->room ? 2 * words->room : 256;
        struct driver_word *list = pages_map(room * sizeof *list);
        if (!list)
            return false;
        if (words->count)
            memcpy(list, words->list, words->count * sizeof *list);
        pages_unmap(words->list, words->room * sizeof *list);
        words->list = list;
        words->room = room;
    }
    words->list[words->count++] = *word;
    return true;
}

/* Whether a copy or fill ends in other memory than it begins in, or did when it was remembered. */
static bool runs_over(const struct remembered *before, const struct driver_word *word,
                      uintptr_t last)
{
    uintptr_t end = memory_end((uintptr_t)word->value);
    return (end && last >= end) || remembered_at(before, last);
}

/* The last byte that a copy or fill uses. */
static bool list_last(const struct collector *collector, const struct driver_word *word)
{
    struct driver_word last = *word;
    last.value += word->size - 1;
    last.offset = word->size - 1;
    last.size = 1;
    return !runs_over(collector->before, word, (uintptr_t)last.value) ||
           list_word(collector->words, &last);
}

static bool add_word(const struct driver_word *word, void *user)
{
    const struct collector *collector = user;
    struct graph_words *words = collector->words;
    mix(words, word->value);
    mix(words, (uintptr_t)word->node);
    mix(words, (uint64_t)word->parameter << 32 ^ word->offset);
    if (!is_wanted(collector->before, (uintptr_t)word->value))
        return true;
    return list_word(words, word) &&
           (word->kind != WORD_IS_ADDRESS || word->size < 2 || list_last(collector, word));
}

tarn_status words_collect(driver_graph graph, const struct remembered *before,
                          struct graph_words *words)
{
    struct collector collector = {words, before};
    int device = thread_device();
    if (!driver->graph_walk)
        return failed(TARN_ERROR_NOT_SUPPORTED, "the %s driver cannot list the nodes of a graph",
                      driver->name);
    words->walk = (struct driver_walk){.word = add_word, .user = &collector};
    return device_note(device_at(device), driver->graph_walk(device, graph, &words->walk));
}

void words_finish(struct graph_words *words)
{
    pages_unmap(words->list, words->room * sizeof *words->list);
    *words = (struct graph_words){0};
}
