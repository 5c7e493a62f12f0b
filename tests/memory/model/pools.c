/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "memory/model/model.h"
#include "support/live.h"

/* Whose memory is whose ------------------------------------------------------------------------ */

static bool is_same_id(tarn_pool_id a, tarn_pool_id b)
{
    return a.first == b.first && a.second == b.second;
}

bool is_usable(const struct block *block)
{
    return !block->lost &&
           (block->own_pool < 0 || m.pools[block->own_pool].state == TARN_POOL_RUNS);
}

bool pool_is_held(const struct pool_model *pool)
{
    return pool->captures + pool->graphs > 0;
}

static struct arena *arena_at_device(int device)
{
    struct arena *arena = NULL;
    MUST(arena_of(device_at(device), &arena) == TARN_OK, "no arena");
    return arena;
}

static struct store *store_of(const struct pool_model *pool)
{
    struct store *store = arena_at_device(pool->device)->pools.list;
    while (store && !(store->id[0] == pool->id.first && store->id[1] == pool->id.second))
        store = store->lists.next;
    return store;
}

/* The newest scope that a request falls into. */
int pool_routed(int stream)
{
    const struct stream_model *s = &m.streams[stream];
    const struct scope_model *newest = NULL;
    for (int i = 0; i < SCOPES + ALL_STREAMS; i++) {
        const struct scope_model *scope = &m.scopes[i];
        bool is_for = scope->open && m.pools[scope->pool].device == s->device &&
                      (scope->kind == TARN_SCOPE_THREAD || scope->kind == TARN_SCOPE_ALWAYS ||
                       (scope->stream == stream && scope->handle == s->handle));
        if (is_for && (!newest || scope->since > newest->since))
            newest = scope;
    }
    return newest ? newest->pool : -1;
}

static int pool_with_id(tarn_pool_id id)
{
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].used && is_same_id(m.pools[i].id, id))
            return i;
    return -1;
}

void check_pool(struct block *block, int wanted)
{
    tarn_block_info info = {.size = sizeof info};
    MUST(tarn_pointer_info_get(block->pointer, &info) == TARN_OK, "no info of a block");
    block->pool = info.pool;
    block->own_pool = wanted;
    if (wanted >= 0 &&
        /* A capture's own: seen for the first time */
        is_same_id(m.pools[wanted].id, (tarn_pool_id){0, 0})) {
        MUST(info.pool.first != 0 && info.pool.second == 0 && pool_with_id(info.pool) < 0,
             "the pool of a capture");
        m.pools[wanted].id = info.pool;
    }
    if (wanted >= 0) {
        MUST(is_same_id(info.pool, m.pools[wanted].id),
             "a block on stream %d is of pool (%" PRIu64 ", %" PRIu64 "), not (%" PRIu64
             ", %" PRIu64 ")",
             block->stream, info.pool.first, info.pool.second, m.pools[wanted].id.first,
             m.pools[wanted].id.second);
        m.in_pools++;
        return;
    }
    if (is_same_id(info.pool, (tarn_pool_id){0, 0}))
        return;
    block->own_pool = pool_with_id(info.pool);
    MUST(block->own_pool >= 0, "a block of the default pool is of pool (%" PRIu64 ", %" PRIu64 ")",
         info.pool.first, info.pool.second);
    const struct pool_model *pool = &m.pools[block->own_pool];
    MUST(pool->use_on_oom && pool->device == m.streams[block->stream].device &&
             !pool_is_held(pool) && pool->state == TARN_POOL_RUNS,
         "a pool that is not spare serves the default pool");
    m.spared++;
}

bool is_refused(int pool, tarn_status status)
{
    return pool >= 0 && m.pools[pool].state != TARN_POOL_RUNS &&
           (status == TARN_ERROR_SUSPENDED || may_fail(status));
}

/* Each block's memory is its pool's, and mapped. */
static void check_pieces(const struct block *block)
{
    const struct arena *arena = arena_at_device(block->stream / STREAMS);
    uintptr_t start = (uintptr_t)block->pointer, end = start + block->usable;
    if (!arena->store.kind.pieces || (memory_is_uncached && !arena_at(start)))
        return; /* arena_verify() looks at the segments' stores */
    for (uintptr_t address = start; is_usable(block) && address < end;) {
        const struct piece *piece = arena_piece(arena, address);
        MUST(piece, "a live block's memory at %p is not mapped", (void *)address);
        MUST(piece->store->id[0] == block->pool.first && piece->store->id[1] == block->pool.second,
             "the memory at %p is of pool (%" PRIu64 ", %" PRIu64 "), its block of (%" PRIu64
             ", %" PRIu64 ")",
             (void *)address, piece->store->id[0], piece->store->id[1], block->pool.first,
             block->pool.second);
        address = piece->address + piece->size;
    }
}

/* What was mapped for a pool that is held stays where it is, and comes back when it was
 * suspended. */
static void check_pinned(struct pool_model *pool)
{
    const struct arena *arena = arena_at_device(pool->device);
    const struct store *store = store_of(pool);
    size_t granules = arena->size / arena->granule;
    MUST(granules <= GRANULES, "more granules than the model has room for");
    if (!store || !store->kind.pieces || !pool_is_held(pool))
        memset(pool->pinned, 0, sizeof pool->pinned);
    if (!store || !store->kind.pieces || !pool_is_held(pool) || pool->state != TARN_POOL_RUNS)
        return;
    for (size_t i = 0; i < granules; i++)
        MUST(!pool->pinned[i] || pool->pinned[i] == arena->pieces[i],
             "memory of a held pool is gone from %p", (void *)(arena->base + i * arena->granule));
    for (const struct heap *heap = arena->heaps.all; heap; heap = heap->lists.next)
        for (int zone = 0; heap->store == store && zone < ZONES; zone++)
            for (const struct run *run = heap->zones.of[zone].runs; run; run = run->next)
                for (size_t i = (run->start - arena->base) / arena->granule;
                     i < (run->end - arena->base) / arena->granule; i++)
                    pool->pinned[i] = arena->pieces[i];
}

static void check_counts(int index)
{
    struct pool_model *pool = &m.pools[index];
    int64_t blocks = 0, requested = 0, usable = 0;
    tarn_pool_info info = {.size = sizeof info};
    unsigned counted = (unsigned)(pool->users + pool->scopes + pool->captures + pool->graphs);
    tarn_stats stats = {.size = sizeof stats};
    for (int i = 0; i < m.block_count; i++) {
        if (m.blocks[i].own_pool != index)
            continue;
        blocks++;
        requested += (int64_t)m.blocks[i].size;
        usable += (int64_t)m.blocks[i].usable;
    }
    MUST(tarn_pool_info_get(pool->pool, &info) == TARN_OK && info.use_count >= counted,
         "counted %u times, not %u", info.use_count, counted);
    MUST(tarn_pool_stats_get(pool->pool, &stats) == TARN_OK, "stats");
    MUST(stats.allocation[0].current == blocks && stats.requested_bytes[0].current == requested &&
             stats.allocated_bytes[0].current == usable,
         "pool (%" PRIu64 ", %" PRIu64 "): %" PRId64 " blocks counted, %" PRId64 " live",
         pool->id.first, pool->id.second, stats.allocation[0].current, blocks);
    MUST(stats.reserved_bytes[0].current == (int64_t)store_of(pool)->reserved,
         "reserved bytes of a pool");
}

void check_pools(void)
{
    for (int i = 0; i < m.block_count; i++)
        check_pieces(&m.blocks[i]);
    for (int i = 0; i < POOLS; i++) {
        if (!m.pools[i].used)
            continue;
        check_pinned(&m.pools[i]);
        if (m.pools[i].pool)
            check_counts(i);
    }
}

/* Making, releasing ---------------------------------------------------------------------------- */

void pool_settle(int index)
{
    struct pool_model *pool = &m.pools[index];
    if (!pool_is_held(pool))
        memset(pool->pinned, 0, sizeof pool->pinned);
    if (pool->users + pool->scopes + pool->captures + pool->graphs > 0)
        return;
    for (int i = 0; i < m.block_count; i++) {
        if (m.blocks[i].own_pool != index)
            continue;
        m.blocks[i].own_pool = -1;
        m.blocks[i].lost = pool->state != TARN_POOL_RUNS;
    }
    *pool = (struct pool_model){0};
}

/* A pool that the caller counts, of a device or with -1 of any; -1 where chance finds none. */
int pool_any(int device, bool running)
{
    int index = (int)below(POOLS);
    const struct pool_model *pool = &m.pools[index];
    bool fits = pool->used && pool->users > 0 && (device < 0 || pool->device == device) &&
                (!running || pool->state == TARN_POOL_RUNS);
    return fits ? index : -1;
}

static void create(void)
{
    int index = (int)below(POOLS);
    struct pool_model pool = {
        .used = true, .device = (int)below(DEVICES), .users = 1, .limit = SIZE_MAX};
    size_t limit = below(4) ? TARN_NO_LIMIT : 1 + below(MEMORY);
    tarn_pool_options options = {.size = sizeof options,
                                 .device = pool.device,
                                 .use_on_oom = below(2),
                                 .no_remap = below(2)};
    if (m.pools[index].used)
        return;
    bool plain = below(4) == 0;
    tarn_status status =
        plain ? tarn_pool_create(
                    &(tarn_pool_options){.size = sizeof(tarn_pool_options), .device = pool.device},
                    &pool.pool)
              : tarn_pool_create(&options, &pool.pool);
    if (status) {
        MUST(may_fail(status) && !pool.pool, "create: %s", tarn_status_name(status));
        return;
    }
    tarn_pool_info info = {.size = sizeof info};
    MUST(tarn_pool_info_get(pool.pool, &info) == TARN_OK && pool_with_id(info.id) < 0, "id");
    pool.id = info.id;
    if (!plain)
        MUST(tarn_pool_limit_set(pool.pool, limit) == TARN_OK, "limit");
    pool.use_on_oom = !plain && options.use_on_oom;
    m.pools[index] = pool;
}

static void release(int index)
{
    struct pool_model *pool = &m.pools[index];
    MUST(tarn_pool_release(pool->pool) == TARN_OK, "release");
    pool->users--;
    pool_settle(index);
}

static void retain(struct pool_model *pool)
{
    tarn_pool *found = NULL;
    if (below(2)) {
        MUST(tarn_pool_retain(pool->pool) == TARN_OK, "retain");
    } else {
        tarn_status status = tarn_pool_find(pool->id, &found);
        MUST(status == TARN_OK && found == pool->pool, "find: %s", tarn_status_name(status));
    }
    pool->users++;
}

static void trim(const struct pool_model *pool)
{
    bool barred = captures_open(device_at(pool->device));
    tarn_status status = tarn_pool_trim(pool->pool, below(2) ? 0 : below(MEMORY));
    MUST(barred ? status == TARN_ERROR_CAPTURE : status == TARN_OK || may_fail(status),
         "pool trim: %s", tarn_status_name(status));
}

static void compare_live(int index)
{
    void *pointers[BLOCKS];
    size_t count = 0;
    bool same = false;
    for (int i = 0; i < m.block_count; i++)
        if (m.blocks[i].own_pool == index)
            pointers[count++] = m.blocks[i].pointer;
    tarn_status status = live_are(m.pools[index].pool, pointers, count, &same);
    MUST(status == TARN_OK ? same : may_fail(status), "the live blocks of a pool are others: %s",
         tarn_status_name(status));
}

void do_pool(void)
{
    int index = pool_any(-1, false);
    if (index < 0) {
        create();
        return;
    }
    switch (below(8)) {
    case 0:
        retain(&m.pools[index]);
        break;
    case 1:
    case 2:
        release(index);
        break;
    case 3:
    case 4:
        trim(&m.pools[index]);
        break;
    case 5:
        MUST(tarn_pool_limit_set(m.pools[index].pool, below(2) ? TARN_NO_LIMIT : below(MEMORY)) ==
                 TARN_OK,
             "limit");
        break;
    default:
        compare_live(index);
    }
}

/* Suspending ----------------------------------------------------------------------------------- */

static bool has_unknown_capture(int device)
{
    for (int i = device * STREAMS; i < (device + 1) * STREAMS; i++)
        if (m.streams[i].capture == UNKNOWN)
            return true;
    return false;
}

/* A graph writes to all that its pool had, also where no block lives: that is mapped again, of
 * other pieces. */
static void check_resumed(struct pool_model *pool)
{
    const struct arena *arena = arena_at_device(pool->device);
    const struct store *store = store_of(pool);
    for (size_t i = 0; i < arena->size / arena->granule; i++) {
        MUST(!pool->pinned[i] || (arena->pieces[i] && arena->pieces[i]->store == store),
             "a resume of a held pool gives it no memory at %p",
             (void *)(arena->base + i * arena->granule));
        m.resumed += pool->pinned[i] != NULL;
    }
    memset(pool->pinned, 0, sizeof pool->pinned);
}

/* What the change has left: the contents where it runs, except for those that were not to be
 * kept. */
static void look_at(int index, bool save_contents)
{
    struct pool_model *pool = &m.pools[index];
    tarn_pool_info info = {.size = sizeof info};
    MUST(tarn_pool_info_get(pool->pool, &info) == TARN_OK, "state");
    pool->state = info.state;
    if (pool->state == TARN_POOL_RUNS)
        check_resumed(pool);
    for (int i = 0; pool->state == TARN_POOL_RUNS && i < m.block_count; i++) {
        if (m.blocks[i].own_pool != index)
            continue;
        if (save_contents)
            check_paint(&m.blocks[i]);
        else
            paint(&m.blocks[i]);
    }
}

/* Any pool, or often one that a graph holds. */
static int pool_to_suspend(void)
{
    int pool =
        m.graph_count > 0 && below(2) ? m.graphs[below((uint64_t)m.graph_count)].captured.pool : -1;
    return pool >= 0 && m.pools[pool].users > 0 ? pool : pool_any(-1, false);
}

/* Suspends a pool that runs, and resumes another. */
static void change(int index)
{
    struct pool_model *pool = &m.pools[index];
    bool barred = captures_open(device_at(pool->device));
    tarn_pool_state before = pool->state;
    bool keep = before == TARN_POOL_RUNS && below(2);
    check_pinned(pool);
    tarn_status status = before == TARN_POOL_RUNS ? tarn_pool_suspend(pool->pool, keep)
                                                  : tarn_pool_resume(pool->pool);
    if (barred)
        MUST(status == TARN_ERROR_CAPTURE, "a suspend or resume in a capture: %s",
             tarn_status_name(status));
    MUST(status == TARN_OK || barred || may_fail(status), "suspend or resume: %s",
         tarn_status_name(status));
    look_at(index, before != TARN_POOL_DISCARDED);
    if (!status) {
        tarn_pool_state wanted = before != TARN_POOL_RUNS ? TARN_POOL_RUNS
                                 : keep                   ? TARN_POOL_SAVED
                                                          : TARN_POOL_DISCARDED;
        MUST(pool->state == wanted, "it is in state %d, not %d", (int)pool->state, (int)wanted);
        m.suspended += before == TARN_POOL_RUNS;
    } else {
        MUST(pool->state == before ||
                 (!barred && pool->state == (keep ? TARN_POOL_SAVED : TARN_POOL_DISCARDED)),
             "a failure left it in state %d", (int)pool->state);
    }
}

void do_suspend(void)
{
    int index = pool_to_suspend();
    if (index < 0)
        return;
    struct pool_model *pool = &m.pools[index];
    bool runs = pool->state == TARN_POOL_RUNS;
    if (has_unknown_capture(pool->device) || (!runs && below(3)))
        return;
    if (!arena_at_device(pool->device)->store.kind.pieces) {
        MUST(tarn_pool_suspend(pool->pool, true) == TARN_ERROR_NOT_SUPPORTED,
             "plain segments were suspended");
        return;
    }
    change(index);
    if (!runs || pool->state == TARN_POOL_RUNS || !pool_is_held(pool) || below(2))
        return;
    free_some_of(index); /* which is free when its graphs come to write there */
    change(index);
}

/* Scopes --------------------------------------------------------------------------------------- */

void scope_of_capture(int pool, int stream)
{
    struct stream_model *s = &m.streams[stream];
    m.scopes[SCOPES + stream] = (struct scope_model){.open = true,
                                                     .kind = SCOPE_OF_CAPTURE,
                                                     .pool = pool,
                                                     .stream = stream,
                                                     .handle = s->handle,
                                                     .since = ++m.scopes_begun};
    m.pools[pool].captures++;
}

void scope_of_capture_end(int stream)
{
    struct scope_model *scope = &m.scopes[SCOPES + stream];
    if (!scope->open)
        return;
    scope->open = false;
    m.pools[scope->pool].captures--;
}

static bool is_begun_already(int pool, int kind, tarn_stream handle)
{
    for (int i = 0; i < SCOPES; i++)
        if (m.scopes[i].open && m.scopes[i].pool == pool && m.scopes[i].kind == kind &&
            (kind != TARN_SCOPE_STREAM || m.scopes[i].handle == handle))
            return true;
    return false;
}

static void scope_begin(struct scope_model *scope)
{
    int pool = pool_any(-1, false), kind = (int)below(3), device;
    if (pool < 0)
        return;
    device = m.pools[pool].device;
    int stream = device * STREAMS + (int)below(STREAMS);
    struct scope_model fresh = {
        .kind = kind, .pool = pool, .stream = stream, .handle = m.streams[stream].handle};
    if (tarn_device_set(device) != TARN_OK) /* injected */
        return;
    tarn_status status =
        tarn_scope_begin(m.pools[pool].pool, (tarn_scope_kind)kind, fresh.handle, &fresh.value);
    if (is_begun_already(pool, kind, fresh.handle)) {
        MUST(status == TARN_ERROR_SCOPE || may_fail(status), "the same scope twice: %s",
             tarn_status_name(status));
        return;
    }
    if (status) {
        MUST(may_fail(status), "scope: %s", tarn_status_name(status));
        return;
    }
    fresh.open = true;
    fresh.since = ++m.scopes_begun;
    *scope = fresh;
    m.pools[pool].scopes++;
}

static bool is_newest_of_thread(const struct scope_model *scope)
{
    for (int i = 0; i < SCOPES; i++)
        if (m.scopes[i].open && m.scopes[i].kind == TARN_SCOPE_THREAD &&
            m.scopes[i].since > scope->since)
            return false;
    return true;
}

static void scope_end(struct scope_model *scope)
{
    tarn_status status = tarn_scope_end(scope->value);
    if (scope->kind == TARN_SCOPE_THREAD && !is_newest_of_thread(scope)) {
        MUST(status == TARN_ERROR_SCOPE, "a wrong order of ends: %s", tarn_status_name(status));
        return;
    }
    MUST(status == TARN_OK, "the end of a scope: %s", tarn_status_name(status));
    scope->open = false;
    m.pools[scope->pool].scopes--;
    pool_settle(scope->pool);
}

void do_scope(void)
{
    struct scope_model *scope = &m.scopes[below(SCOPES)];
    if (scope->open)
        scope_end(scope);
    else if (below(3) == 0)
        scope_begin(scope);
}

void pools_end(void)
{
    for (int rounds = 0; rounds < SCOPES; rounds++) /* those of the thread from the newest on */
        for (int i = 0; i < SCOPES; i++)
            if (m.scopes[i].open)
                scope_end(&m.scopes[i]);
    for (int i = 0; i < POOLS; i++)
        while (m.pools[i].used && m.pools[i].users > 0)
            release(i);
}
