/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Says what lies at an address now. Owns nothing. */
#include "base/status.h"
#include "memory/range/range.h"
#include "memory/share/import.h"
#include "memory/share/pointer.h"
#include "report/graph/graph.h"

static tarn_status note_live(struct store *store, const tarn_block_info *block, void *argument)
{
    struct live *live = argument;
    live->block = *block;
    live->sleeps = atomic_load(&store->suspended);
    return TARN_OK;
}

bool live_at(uintptr_t value, struct live *live)
{
    struct error_before before;
    error_attempt_begin(&before);
    bool found = !pointer_do((const void *)value, note_live, live);
    error_attempt_end(&before, TARN_OK);
    return found;
}

bool outside_at(uintptr_t value, struct outside *outside)
{
    struct range_look page;
    *outside = (struct outside){0};
    outside->number = import_look(value, &outside->end);
    if (outside->number || !range_look(value, &page) || !page.committed)
        return outside->number;
    *outside = (struct outside){.number = page.number, .turn = page.turn + 1, .end = page.end};
    return true;
}

uintptr_t memory_end(uintptr_t value)
{
    struct live live;
    struct outside outside;
    if (live_at(value, &live))
        return (uintptr_t)live.block.base + live.block.usable_size;
    return outside_at(value, &outside) ? outside.end : 0;
}
