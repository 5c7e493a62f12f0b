/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the private pools: their making, their counts, and their end. A pool ends in three steps: its count falls to 0, anywhere;
 * pools_collect() leaves it behind; and destroys it when no heap, piece or request has to do with it any more. Lock order:
 * collecting, then what heap.h and arena.h say. */
#include "memory/pool.h"
#include "base/cancel.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/status.h"
#include "device/capture.h"
#include "memory/debug/debug.h"
#include "memory/ladder.h"
#include "memory/malloc.h"
#include "memory/pinned/pinned.h"
#include "memory/traced.h"

static struct object_pool pools = OBJECT_POOL_NAMED(struct pool);
static atomic_uint_fast64_t user_ids = 1, graph_ids = 1;
static mutex collecting = MUTEX_INITIALIZER(LOCK_COLLECTING);
static void (*_Atomic end_callback)(tarn_pool_id id);

bool pool_retain(struct pool *pool)
{
    unsigned count = atomic_load(&pool->count);
    while (count && !atomic_compare_exchange_weak(&pool->count, &count, count + 1))
        ;
    return count != 0;
}

void pool_let_go(struct pool *pool)
{
    struct arena *arena = pool->store.arena; /* the pool may be gone at the next line but one */
    atomic_fetch_add(&arena->let_go, 1);
    atomic_fetch_add(&arena->pools_ended, 1);
    if (atomic_fetch_sub(&pool->count, 1) != 1)
        atomic_fetch_sub(&arena->pools_ended, 1);
}

bool pool_hold(struct pool *pool)
{
    if (!pool_retain(pool))
        return false;
    atomic_fetch_add(&pool->store.holds, 1);
    return true;
}

void pool_hold_end(struct pool *pool)
{
    pool_let_go(pool);
    atomic_fetch_sub(&pool->store.holds, 1); /* last: a pool that is held stays, and its arena */
}

tarn_status pool_create(struct arena *arena, bool for_graph, struct pool **result)
{
    struct pool *pool = object_alloc(&pools);
    if (!pool)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a pool");
    pools_collect(arena);
    store_init(&pool->store, arena, &pool->counters);
    counters_init(&pool->counters, &arena->counters);
    pool->store.id[for_graph ? 0 : 1] = atomic_fetch_add(for_graph ? &graph_ids : &user_ids, 1);
    atomic_store(&pool->count, 1);
    mutex_lock(&arena->lock);
    pool->store.next = arena->stores;
    arena->stores = &pool->store;
    mutex_unlock(&arena->lock);
    trace_store(TRACE_pool_create, &pool->store, 0);
    *result = pool;
    return TARN_OK;
}

/* The end ---------------------------------------------------------------------------------------------------------- */

/* Whether no request and no end of a graph has to do with it. */
static bool is_unvisited_locked(struct store *store)
{
    return atomic_load(&pool_of_store(store)->visits) == 0 && atomic_load(&store->holds) == 0;
}

/* Takes a store out of the arena's list, unless a request has to do with its pool. */
static bool unlink_store(struct arena *arena, struct store *store)
{
    mutex_lock(&arena->lock);
    bool unvisited = is_unvisited_locked(store);
    struct store **place = &arena->stores;
    while (unvisited && *place != store)
        place = &(*place)->next;
    if (unvisited)
        *place = store->next;
    mutex_unlock(&arena->lock);
    return unvisited;
}

/* Whether a store has no memory, and no request is on its way that could give it some. Where the count is 0, none begins: who looks
 * for spare memory counts itself under the same lock. */
static bool is_over(struct store *store)
{
    mutex_lock(&store->arena->lock);
    bool over = store->reserved == 0 && is_unvisited_locked(store);
    mutex_unlock(&store->arena->lock);
    return over;
}

/* Takes a pool that was left behind, and of which nothing is left, out of its list into `dead`. Collecting. */
static void bury_if_empty(struct arena *arena, struct pool *pool, struct store **dead)
{
    struct store *store = &pool->store;
    if (!pool_suspension_end(pool))
        return; /* later, then */
    (void)store_take(&arena->store, store, SIZE_MAX);
    if (!is_over(store) || !heaps_give_up(store))
        return;
    if (!shared_try_alone(&arena->moving))
        return; /* somebody may be looking at it; later, then */
    bool unlinked = unlink_store(arena, store);
    shared_unlock(&arena->moving);
    if (!unlinked)
        return;
    atomic_fetch_sub(&arena->pools_ended, 1);
    store->next = *dead;
    *dead = store;
}

static void destroy(struct pool *pool)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct store *store = &pool->store;
    if (store->allocator.gone)
        store->allocator.gone(store->allocator.user);
    pages_free(store->heaps, store->heap_slots * sizeof(struct heap *));
    mutex_finish(&store->lookup);
    object_free(&pools, pool);
}

/* The store after `store` in the list, NULL first. Collecting, so that it stays in it. */
static struct store *store_next(struct arena *arena, const struct store *store)
{
    mutex_lock(&arena->lock);
    struct store *next = store ? store->next : arena->stores;
    mutex_unlock(&arena->lock);
    return next;
}

static void leave_behind(struct store *store)
{
    pinned_pool_release(pool_of_store(store)->pinned); /* nobody captures with it any more */
    pool_of_store(store)->pinned = NULL;
    heaps_leave_behind(store);
    trace_store(TRACE_pool_release, store, 0);
    process_changed();
}

/* Leaves a pool behind that nobody counts any more, and gives its id. False where there is none. */
static bool leave_one_behind(struct arena *arena, tarn_pool_id *id)
{
    bool found = false;
    mutex_lock(&collecting);
    for (struct store *store = store_next(arena, NULL); store && !found; store = store_next(arena, store)) {
        if (atomic_load(&pool_of_store(store)->count) || atomic_load(&store->left_behind))
            continue;
        leave_behind(store);
        *id = (tarn_pool_id){store->id[0], store->id[1]};
        found = true;
    }
    mutex_unlock(&collecting);
    return found;
}

void pools_collect(struct arena *arena)
{
    tarn_pool_id id;
    struct store *dead = NULL;
    if (!atomic_load(&arena->pools_ended))
        return;
    while (leave_one_behind(arena, &id)) {
        void (*callback)(tarn_pool_id) = atomic_load(&end_callback);
        if (callback)
            callback(id);
    }
    mutex_lock(&collecting);
    for (struct store *store = store_next(arena, NULL), *next; store; store = next) {
        struct pool *pool = pool_of_store(store);
        next = store_next(arena, store);
        if (!atomic_load(&pool->count) && atomic_load(&store->left_behind))
            bury_if_empty(arena, pool, &dead);
    }
    mutex_unlock(&collecting);
    for (struct store *store = dead, *next; store; store = next) {
        next = store->next;
        destroy(pool_of_store(store));
    }
}

void pools_on_end(void (*callback)(tarn_pool_id id))
{
    atomic_store(&end_callback, callback);
}

void pools_leave_behind(struct arena *arena)
{
    mutex_lock(&collecting);
    for (struct store *store = store_next(arena, NULL); store; store = store_next(arena, store)) {
        struct pool *pool = pool_of_store(store);
        if (atomic_load(&store->holds))
            continue; /* a graph may still run, and will say when it has ended */
        if (atomic_exchange(&pool->count, 0))
            atomic_fetch_add(&arena->pools_ended, 1);
        if (!atomic_load(&store->left_behind))
            leave_behind(store);
    }
    mutex_unlock(&collecting);
}

/* Requests --------------------------------------------------------------------------------------------------------- */

/* A graph's work writes to what its capture has freed: that is nobody's spare memory. */
static bool is_spare(struct store *store)
{
    const struct pool *pool = pool_of_store(store);
    return pool->use_on_oom && atomic_load(&pool->count) && atomic_load(&store->holds) == 0;
}

struct pool *pool_spare_next(const struct heap *heap, struct pool *pool)
{
    struct arena *arena = heap->arena;
    if (!store_is_default(heap->store))
        return NULL;
    mutex_lock(&arena->lock);
    struct store *store = pool ? pool->store.next : arena->stores;
    while (store && !is_spare(store))
        store = store->next;
    struct pool *next = store ? pool_of_store(store) : NULL;
    if (next)
        atomic_fetch_add(&next->visits, 1);
    if (pool)
        atomic_fetch_sub(&pool->visits, 1);
    mutex_unlock(&arena->lock);
    return next;
}

/* Public ----------------------------------------------------------------------------------------------------------- */

tarn_status pool_check(tarn_pool *pool)
{
    tarn_status status = memory_ready();
    if (status)
        return status;
    if (!object_is_live(&pools, pool))
        return failed(TARN_ERROR_INVALID_ARGUMENT, pool ? "%p is no pool, or one that is gone" : "pool is NULL",
                      (const void *)pool);
    if (!atomic_load(&pool_of_public(pool)->count))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the pool was released for the last time: it cannot be used");
    return TARN_OK;
}

/* One count more for a caller, and one less, which the caller then takes from the count of all. False where there is none. */
static bool user_retain(struct pool *pool)
{
    if (!pool_retain(pool))
        return false;
    atomic_fetch_add(&pool->users, 1);
    return true;
}

static bool user_let_go(struct pool *pool)
{
    unsigned users = atomic_load(&pool->users);
    while (users && !atomic_compare_exchange_weak(&pool->users, &users, users - 1))
        ;
    return users != 0;
}

/* The start of a call that reads something of a pool. */
static tarn_status check_reading(tarn_pool *pool, const void *result)
{
    tarn_status status = pool_check(pool);
    if (status)
        return status;
    return result ? TARN_OK : failed(TARN_ERROR_INVALID_ARGUMENT, "the place for the result is NULL");
}

static bool asks_for_plain(const tarn_pool_options *options)
{
    const tarn_segment_sizes *sizes = &options->sizes;
    return options->segments >= TARN_SEGMENTS_PLAIN || options->no_split || options->allocator ||
           sizes->small_segment || sizes->large_segment || sizes->own_segment || sizes->rounding || sizes->max_split ||
           sizes->max_non_split_rounding;
}

static tarn_status check_options(const tarn_pool_options *options)
{
    if (options->size != sizeof *options) /* before any other field is read */
        return failed(TARN_ERROR_INVALID_ARGUMENT, "options->size is not sizeof(tarn_pool_options)");
    const tarn_segment_sizes *sizes = &options->sizes;
    const size_t all[] = {sizes->small_segment, sizes->large_segment, sizes->own_segment,
                          sizes->rounding,      sizes->max_split,     sizes->max_non_split_rounding};
    const tarn_pool_allocator *allocator = options->allocator;
    if ((unsigned)options->segments > TARN_SEGMENTS_EXACT)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%d is no tarn_segments", (int)options->segments);
    if (allocator && (allocator->size != sizeof *allocator || !allocator->alloc || !allocator->free))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "allocator->size is not sizeof(tarn_pool_allocator), or alloc or free is NULL");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] % TARN_BLOCK_UNIT || all[i] > TARN_MAX_SIZE)
            return failed(TARN_ERROR_INVALID_ARGUMENT, "a size of segments, %zu, is no multiple of %zu up to 1 EiB",
                          all[i], TARN_BLOCK_UNIT);
    if ((options->segments == TARN_SEGMENTS_VIRTUAL || options->exportable) && asks_for_plain(options))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "no_split, sizes and an allocator are for plain segments, not for virtual or exportable memory");
    return TARN_OK;
}

/* Makes a new pool what its options say. Arena lock. */
static void pool_configure(struct pool *pool, const tarn_pool_options *options)
{
    struct store *store = &pool->store;
    store->limit = options->limit ? options->limit : SIZE_MAX;
    store->piece_flags = options->exportable ? DRIVER_PIECE_EXPORTABLE : 0;
    store->plain = asks_for_plain(options) || (options->segments == TARN_SEGMENTS_DEFAULT && store->plain);
    store->remaps = store->remaps && !options->no_remap && !store->plain;
    store->no_split = options->no_split;
    store->no_slabs = store->no_slabs || options->no_split || options->segments == TARN_SEGMENTS_EXACT;
    store->sizes = options->sizes;
    if (options->allocator)
        store->allocator = *options->allocator;
    counters_max_split(&pool->counters, store_max_split(store));
    pool->use_on_oom = options->use_on_oom;
}

tarn_status tarn_pool_create(const tarn_pool_options *options, tarn_pool **result)
{
    static const tarn_pool_options nothing_special = {.size = sizeof nothing_special, .device = TARN_CURRENT_DEVICE};
    struct device *device = NULL;
    struct arena *arena = NULL;
    struct pool *pool = NULL;
    options = options ? options : &nothing_special;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pool is NULL");
    tarn_status status = check_options(options);
    if (status || (status = memory_ready()))
        return status;
    int number = options->device == TARN_CURRENT_DEVICE ? thread_device() : options->device;
    if ((status = device_find(number, &device)) || (status = arena_of(device, &arena)))
        return status;
    if (options->segments == TARN_SEGMENTS_VIRTUAL && !device->properties.virtual_memory)
        return failed(TARN_ERROR_NOT_SUPPORTED, "device %d has no virtual memory: %s", number, device->properties.name);
    if (options->exportable && !device->properties.exportable)
        return failed(TARN_ERROR_NOT_SUPPORTED, "device %d cannot give its memory to other processes", number);
    if (options->exportable && arena->store.plain && options->segments != TARN_SEGMENTS_VIRTUAL)
        return failed(TARN_ERROR_NOT_SUPPORTED, "plain segments cannot be exported; the pool needs virtual ones");
    if ((status = pool_create(arena, false, &pool)))
        return status;
    mutex_lock(&arena->lock); /* others look for spare memory */
    pool_configure(pool, options);
    mutex_unlock(&arena->lock);
    atomic_store(&pool->users, 1);
    *result = (tarn_pool *)pool;
    return TARN_OK;
}

tarn_status tarn_pool_allocator_get(tarn_pool *pool, tarn_pool_allocator *allocator)
{
    tarn_status status = check_reading(pool, allocator);
    if (status)
        return status;
    if (allocator->size != sizeof *allocator)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "allocator->size is not sizeof(tarn_pool_allocator)");
    *allocator = pool_of_public(pool)->store.allocator;
    allocator->size = sizeof *allocator;
    return TARN_OK;
}

tarn_status tarn_pool_graph_handle(int device, tarn_pool **pool)
{
    tarn_pool_options options = {.size = sizeof options, .device = device};
    return tarn_pool_create(&options, pool);
}

tarn_status tarn_pool_retain(tarn_pool *pool)
{
    tarn_status status = pool_check(pool);
    if (status)
        return status;
    return user_retain(pool_of_public(pool))
               ? TARN_OK
               : failed(TARN_ERROR_INVALID_ARGUMENT, "the pool was released for the last time: it cannot be had again");
}

void pool_release(struct pool *pool)
{
    struct arena *arena = pool->store.arena;
    atomic_fetch_add(&pool->visits, 1); /* it stays for what follows */
    pool_let_go(pool);
    pools_collect(arena);
    if (atomic_load(&pool->store.left_behind))
        ladder_give_back(arena, &pool->store);
    atomic_fetch_sub(&pool->visits, 1);
    pools_collect(arena);
}

tarn_status tarn_pool_release(tarn_pool *public)
{
    struct pool *pool = pool_of_public(public);
    tarn_status status = public ? pool_check(public) : memory_ready();
    if (status || !public)
        return status;
    if (!user_let_go(pool))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the pool was released as often as it was counted for callers: what counts it still are scopes, "
                      "captures or graphs");
    pool_release(pool);
    return TARN_OK;
}

tarn_status tarn_pool_find(tarn_pool_id id, tarn_pool **pool)
{
    if (!pool)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pool is NULL");
    tarn_status status = memory_ready();
    for (int i = 0; !status && i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        bool found = false;
        if (!arena)
            continue;
        mutex_lock(&arena->lock);
        for (struct store *store = arena->stores; store && !found; store = store->next)
            if (store->id[0] == id.first && store->id[1] == id.second && user_retain(pool_of_store(store))) {
                *pool = (tarn_pool *)store;
                found = true;
            }
        mutex_unlock(&arena->lock);
        if (found)
            return TARN_OK;
    }
    if (status)
        return status;
    return failed(TARN_ERROR_INVALID_ARGUMENT, "there is no pool (%llu, %llu), or it is left behind",
                  (unsigned long long)id.first, (unsigned long long)id.second);
}

tarn_status tarn_pool_use_count(tarn_pool *pool, unsigned *count)
{
    tarn_status status = check_reading(pool, count);
    if (status)
        return status;
    *count = atomic_load(&pool_of_public(pool)->count);
    return TARN_OK;
}

tarn_status tarn_pool_id_get(tarn_pool *pool, tarn_pool_id *id)
{
    tarn_status status = check_reading(pool, id);
    if (status)
        return status;
    const struct store *store = &pool_of_public(pool)->store;
    *id = (tarn_pool_id){store->id[0], store->id[1]};
    return TARN_OK;
}

tarn_status tarn_pool_device(tarn_pool *pool, int *device)
{
    tarn_status status = check_reading(pool, device);
    if (status)
        return status;
    *device = pool_of_public(pool)->store.arena->device->number;
    return TARN_OK;
}

tarn_status tarn_pool_stats_get(tarn_pool *public, tarn_stats *stats)
{
    struct pool *pool = pool_of_public(public);
    tarn_status status = pool_check(public);
    if (status)
        return status;
    if (!stats || stats->size != sizeof *stats)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stats is NULL, or its size is not sizeof(tarn_stats)");
    ladder_count(pool->store.arena, &pool->store, stats);
    stats->metadata_bytes = (int64_t)pages_bytes();
    return TARN_OK;
}

tarn_status tarn_pool_stats_reset_peak(tarn_pool *pool)
{
    tarn_status status = pool_check(pool);
    if (!status)
        ladder_reset_peak(pool_of_public(pool)->store.arena, &pool_of_public(pool)->store);
    return status;
}

tarn_status tarn_pool_stats_reset_accumulated(tarn_pool *pool)
{
    tarn_status status = pool_check(pool);
    if (!status)
        ladder_reset_accumulated(pool_of_public(pool)->store.arena, &pool_of_public(pool)->store);
    return status;
}

tarn_status tarn_pool_trim(tarn_pool *pool, size_t keep)
{
    tarn_status status = pool_check(pool);
    if (status)
        return status;
    struct store *store = &pool_of_public(pool)->store;
    status = captures_refuse(store->arena->device, "a trim");
    if (status)
        return status;
    trace_store(TRACE_trim, store, keep);
    return ladder_trim(store->arena, store, keep);
}

tarn_status tarn_pool_limit_set(tarn_pool *pool, size_t bytes)
{
    tarn_status status = pool_check(pool);
    if (status)
        return status;
    struct store *store = &pool_of_public(pool)->store;
    mutex_lock(&store->arena->lock);
    store->limit = bytes;
    mutex_unlock(&store->arena->lock);
    return TARN_OK;
}

tarn_status tarn_pool_limit_get(tarn_pool *pool, size_t *bytes)
{
    tarn_status status = check_reading(pool, bytes);
    if (status)
        return status;
    struct store *store = &pool_of_public(pool)->store;
    mutex_lock(&store->arena->lock);
    *bytes = store->limit;
    mutex_unlock(&store->arena->lock);
    return TARN_OK;
}

tarn_status tarn_pool_alloc(tarn_pool *public, tarn_stream stream, size_t size, void **pointer)
{
    struct pool *pool = pool_of_public(public);
    struct stream *found = NULL;
    tarn_status status = pool_check(public);
    debug_enter(__builtin_return_address(0));
    if (status)
        return status;
    if (!pointer)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pointer is NULL");
    int device = pool->store.arena->device->number;
    if ((status = stream_find(stream, device, &found)))
        return status;
    if (found->device != device)
        return failed(TARN_ERROR_INVALID_STREAM, "the stream is of device %d, the pool of device %d", found->device,
                      device);
    if (size)
        return memory_alloc(&pool->store, found, size, pointer);
    *pointer = NULL;
    return TARN_OK;
}
