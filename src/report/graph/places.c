/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Says what lies at an address now. Owns nothing. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/heap/span.h"
#include "memory/pool/pool.h"
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

/* ---- Free memory ---- */

struct picture *picture_made(tarn_status *status)
{
    struct picture *picture = pages_alloc(sizeof *picture);
    if (picture)
        *status = picture_take(picture);
    else
        *status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to look at the memory");
    if (!*status)
        return picture;
    picture_dropped(picture);
    return NULL;
}

void picture_dropped(struct picture *picture)
{
    if (picture)
        picture_finish(picture);
    pages_free(picture, sizeof *picture);
}

/* Runs are in the order of addresses. */
const struct picture_run *run_around(const struct picture *picture, uintptr_t address)
{
    const struct picture_run *runs = picture_runs(picture);
    size_t low = 0, high = picture->runs.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (address < runs[middle].address)
            high = middle;
        else if (address - runs[middle].address >= runs[middle].size)
            low = middle + 1;
        else
            return &runs[middle];
    }
    return NULL;
}

static struct ground ground_in(const struct picture *picture, uintptr_t value)
{
    const struct picture_run *run = run_around(picture, value);
    const struct trace_place *place = run ? trace_place_value(run->place) : NULL;
    struct ground ground = {.mapped = run, .device = -1};
    if (place) {
        ground.device = (int)place->device;
        ground.pool = (tarn_pool_id){place->pool[0], place->pool[1]};
    }
    return ground;
}

static const struct picture *picture_of(struct check *check)
{
    if (!check->picture && !check->status) {
        check->runs = atomic_load(&runs_changed);
        check->picture = picture_made(&check->status);
    }
    return check->picture;
}

/* Looks up all addresses that are remembered at once, as a picture is dear, and again when runs
 * have changed: within one check at most once. */
static bool grounds_know(struct check *check)
{
    struct verdicts *kept = check->kept;
    const struct remembered *before = check->before;
    uint64_t runs = check->picture ? check->runs : atomic_load(&runs_changed);
    if (kept->grounds && kept->runs == runs)
        return true;
    if (!kept->grounds)
        kept->grounds = pages_map(before->known_room * sizeof *kept->grounds);
    const struct picture *picture = kept->grounds ? picture_of(check) : NULL;
    kept->runs = picture ? check->runs : 0;
    for (size_t i = 0; picture && i < before->known_count; i++)
        kept->grounds[i] = ground_in(picture, before->known[i].value);
    return picture;
}

struct ground ground_of(struct check *check, uintptr_t value, const struct known *known)
{
    struct range_look page;
    if (range_look(value, &page))
        return (struct ground){.mapped = page.mapped, .device = page.device, .pool = page.pool};
    if (known && check->kept && grounds_know(check))
        return check->kept->grounds[known - check->before->known];
    const struct picture *picture = picture_of(check);
    return picture ? ground_in(picture, value) : (struct ground){.device = -1};
}

struct pool_facts pool_facts(int device, tarn_pool_id id)
{
    struct pool_facts facts = {.held = false};
    struct arena *arena = device < 0 ? NULL : arena_if_used(device);
    if (!arena)
        return facts;
    mutex_lock(&arena->lock);
    const struct pool *pool = pool_of_id_locked(arena, id);
    if (pool)
        facts = (struct pool_facts){.held = atomic_load(&pool->store.holds) != 0,
                                    .suspended = atomic_load(&pool->store.suspended)};
    mutex_unlock(&arena->lock);
    return facts;
}
