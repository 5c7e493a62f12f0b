/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What is left of things that have ended. Pools must be counted by those who hold them and by
 * nobody else. After a trim of everything, no freed block may wait any more. Some faults show only
 * on a device on which nothing else is left, so everything leaves a device at once. */
#include "mixed/model/mixed.h"

/* The newest pools that nobody counts any more. */
enum { ENDED = 48 };
static struct ended {
    tarn_pool_id id;
    int slot, device;
    unsigned turn;
    /* a launch of a destroyed graph still counted it when the sleep began, so the sleep may count
     * it too */
    bool lingers;
} ended[ENDED];
static unsigned ended_count;
static bool ended_nameless; /* a pool of a capture has ended whose name was never learned */

void pool_ended(int slot)
{
    const struct pool *pool = &m.pools[slot];
    if (pool->id.first || pool->id.second)
        ended[ended_count++ % ENDED] =
            (struct ended){pool->id, slot, pool->device, pool->turn, false};
    else
        ended_nameless = true;
}

void ended_look(void)
{
    for (unsigned i = 0; i < ENDED && i < ended_count; i++) {
        tarn_pool *found = NULL;
        ended[i].lingers = tarn_pool_find(ended[i].id, &found) == TARN_OK;
        if (ended[i].lingers)
            MINE(tarn_pool_release(found));
    }
}

static bool lingers(const struct ended *pool)
{
    return is_night() && pool->lingers;
}

/* True if the work of destroyed graphs has ended, so that nothing counts what they used. */
static bool is_at_rest(int device)
{
    if (any_open(m.waits_for_all ? -1 : device))
        return false;
    MINE(driver->device_synchronize(device));
    settle();
    check_pending();
    return true;
}

static void check_counts(int device)
{
    for (int i = 0; i < POOLS; i++) {
        const struct pool *pool = &m.pools[i];
        tarn_pool_info info = {.size = sizeof info};
        unsigned known = (unsigned)(pool->users + pool->scopes + pool->graphs);
        if (!pool->live || !pool->pool || !pool->users || pool->device != device ||
            !WELL(0, tarn_pool_info_get, pool->pool, &info))
            continue;
        SO(info.use_count == known || (info.use_count == known + 1 && night_counts(i, pool->turn)),
           "a pool is counted by others", "pool %d: %u, not %u: %d users, %d scopes, %d graphs", i,
           info.use_count, known, pool->users, pool->scopes, pool->graphs);
    }
    for (unsigned i = 0; i < ENDED && i < ended_count; i++) {
        tarn_pool *found = NULL;
        if (ended[i].device != device || night_counts(ended[i].slot, ended[i].turn) ||
            lingers(&ended[i]))
            continue;
        tarn_status status = CALL(tarn_pool_find, ended[i].id, &found);
        SO(status, "a pool that nobody counts is there", "%" PRIu64 ",%" PRIu64, ended[i].id.first,
           ended[i].id.second);
        (void)well("tarn_pool_find", status, BIT(TARN_ERROR_INVALID_ARGUMENT));
    }
}

/* Bytes of freed blocks that work still holds back. */
static int64_t waiting(const tarn_stats *stats)
{
    return stats->active[0].current - stats->allocation[0].current;
}

/* After a trim of everything: what still waits must belong to pools that somebody has. */
static void check_waiting(int device)
{
    tarn_stats all = {.size = sizeof all};
    MINE(tarn_device_stats_get(device, &all));
    int64_t of_pools = 0;
    for (int i = 0; i < POOLS; i++) {
        const struct pool *pool = &m.pools[i];
        tarn_stats stats = {.size = sizeof stats};
        tarn_pool *found = NULL;
        if (!pool->live || pool->device != device)
            continue;
        if (tarn_pool_find(pool->id, &found))
            return; /* a graph's pool, of which the model knows nothing */
        MINE(tarn_pool_stats_get(found, &stats));
        MINE(tarn_pool_release(found));
        of_pools += waiting(&stats);
    }
    for (unsigned i = 0; i < ENDED && i < ended_count; i++)
        if (lingers(&ended[i]))
            return;
    if (night_keeps_ended() || (is_night() && ended_nameless))
        return;
    SO(waiting(&all) == of_pools, "freed blocks wait after a trim of all",
       "device %d: %" PRId64 " blocks, of pools %" PRId64, device, waiting(&all), of_pools);
}

static void check_device(int device)
{
    if (!is_at_rest(device) || !WELL(0, tarn_device_trim, device, 0) || was_injected())
        return;
    check_counts(device);
    check_waiting(device);
}

static void op_count_all(void)
{
    check_device((int)below((unsigned)m.devices));
}

/* ---- Everything leaves ---- */

static void blocks_leave(int device, bool running)
{
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].device == device && !m.blocks[i].held &&
            block_is_usable(&m.blocks[i]) == running)
            block_free(&m.blocks[i]);
}

/* Everything leaves a device. Its graphs are destroyed. Its pools sleep, or give back what is free.
 * Then the blocks of those that sleep are freed, and pools are released. What is left then is all
 * that the device has. */
static void op_leave(void)
{
    int device = CHANCE(4) ? 0 : m.devices - 1;
    if (any_open(m.waits_for_all ? -1 : device))
        return;
    for (int i = 0; i < CAPTURES; i++)
        if (m.captures[i].state == GRAPH && m.captures[i].device == device)
            graph_destroy(&m.captures[i]);
    anchors_leave(device);
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].live && m.pools[i].users && m.pools[i].device == device &&
            m.pools[i].state == TARN_POOL_RUNS)
            block_want_in(i);
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k < 3 && m.blocks[i].live && m.blocks[i].device == device; k++)
            block_use_by(&m.blocks[i], some_flow(device));
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].live && m.pools[i].users && m.pools[i].device == device && CHANCE(2))
            pool_suspend(i);
    blocks_leave(device, true);
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].live && m.pools[i].users && m.pools[i].device == device)
            (void)WELL(0, tarn_pool_trim, m.pools[i].pool, 0);
    (void)WELL(0, tarn_device_trim, device, 0);
    blocks_leave(device, false);
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].live && m.pools[i].users && m.pools[i].device == device && !CHANCE(3))
            pool_release_one(i);
    check_device(device);
}

const struct operation count_operations[] = {{"count all", 4, NULL, op_count_all, false},
                                             {"leave", 2, NULL, op_leave, false},
                                             {NULL, 0, NULL, NULL, false}};
