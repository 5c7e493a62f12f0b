/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls on pools, except those that allocate. They check arguments and read options;
 * pool/pool.c creates and ends pools. Owns nothing. */
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "device/capture.h"
#include "memory/heap/traced.h"
#include "memory/pool/pool.h"
#include "memory/pressure/release.h"
#include "memory/pressure/trim.h"
#include "memory/settings/hooks.h"
#include "memory/watch/statistics.h"

#include <tarn/sleep.h>

/* Adds a caller's reference. False if the pool has none any more. */
static bool user_retain(struct pool *pool)
{
    if (!pool_retain(pool))
        return false;
    atomic_fetch_add(&pool->users, 1);
    return true;
}

/* Removes a caller's reference, which the caller then also drops from `count`. False if there is
 * none. */
static bool user_let_go(struct pool *pool)
{
    unsigned users = atomic_load(&pool->users);
    while (users && !atomic_compare_exchange_weak(&pool->users, &users, users - 1))
        ;
    return users != 0;
}

static bool asks_for_plain(const tarn_pool_options *options)
{
    const tarn_segment_sizes *sizes = options->sizes;
    return options->segments >= TARN_SEGMENTS_PLAIN || options->no_split || options->allocator ||
           sizes->small_segment || sizes->large_segment || sizes->own_segment || sizes->rounding ||
           sizes->max_split || sizes->max_non_split_rounding;
}

/* The caller's options, converted to this version, with what they point to. */
struct wanted {
    tarn_pool_options options;
    tarn_segment_sizes sizes;
    tarn_pool_allocator allocator;
};

/* Reads the options; NULL means the defaults. */
static tarn_status read_options(const tarn_pool_options *given, struct wanted *wanted)
{
    static const tarn_pool_options nothing_special = {.size = sizeof nothing_special,
                                                      .device = TARN_CURRENT_DEVICE};
    tarn_pool_options *options = &wanted->options;
    tarn_status status =
        sized_read("tarn_pool_options", given ? given : &nothing_special, options, sizeof *options);
    if (!status && options->allocator)
        status = sized_read("tarn_pool_allocator", options->allocator, &wanted->allocator,
                            sizeof wanted->allocator);
    wanted->sizes = (tarn_segment_sizes){.size = sizeof wanted->sizes};
    if (!status && options->sizes)
        status =
            sized_read("tarn_segment_sizes", options->sizes, &wanted->sizes, sizeof wanted->sizes);
    if (status)
        return status;
    options->sizes = &wanted->sizes;
    options->allocator = options->allocator ? &wanted->allocator : NULL;
    return TARN_OK;
}

static tarn_status check_options(const tarn_pool_options *options)
{
    const tarn_segment_sizes *sizes = options->sizes;
    const size_t all[] = {sizes->small_segment, sizes->large_segment,
                          sizes->own_segment,   sizes->rounding,
                          sizes->max_split,     sizes->max_non_split_rounding};
    const tarn_pool_allocator *allocator = options->allocator;
    if ((unsigned)options->segments > TARN_SEGMENTS_EXACT)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%d is not a tarn_segments value",
                      (int)options->segments);
    if (allocator && (!allocator->alloc || !allocator->free))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the allocator's alloc or free is NULL");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] % TARN_BLOCK_UNIT || all[i] > TARN_MAX_SIZE)
            return failed(TARN_ERROR_INVALID_ARGUMENT,
                          "the segment size %zu is not a multiple of %zu up to 1 EiB", all[i],
                          TARN_BLOCK_UNIT);
    if ((options->segments == TARN_SEGMENTS_VIRTUAL || options->exportable ||
         options->registrable) &&
        asks_for_plain(options))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "no_split, sizes and an allocator are for plain segments, not for "
                      "virtual, exportable or registrable memory");
    if (options->registrable && options->use_on_oom)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "a registrable pool cannot help out: use_on_oom would give its memory out by "
                      "the needs of one rank");
    return TARN_OK;
}

/* Applies the options to a new pool. */
static void pool_configure(struct pool *pool, const tarn_pool_options *options)
{
    struct store *store = &pool->store;
    store->piece_flags = options->exportable ? DRIVER_PIECE_EXPORTABLE : 0;
    if (options->registrable)
        store->piece_flags = DRIVER_PIECE_EXPORTABLE | DRIVER_PIECE_RDMA;
    bool plain = asks_for_plain(options) ||
                 (options->segments == TARN_SEGMENTS_DEFAULT && !store->kind.pieces);
    bool no_slabs = options->no_split || options->segments == TARN_SEGMENTS_EXACT;
    store_is_of(store,
                options->registrable ? KIND_REGISTRABLE
                : plain              ? KIND_PLAIN
                                     : KIND_VIRTUAL,
                STORE_OF_POOL | (options->no_split ? STORE_NO_SPLIT : 0) |
                    (no_slabs ? STORE_NO_SLABS : 0) | (options->use_on_oom ? STORE_HELPS : 0));
    if (options->no_remap)
        store->flags &= ~(unsigned)STORE_REMAPS;
    store->sizes = *options->sizes;
    if (options->allocator)
        store->allocator = *options->allocator;
    store->idle_release = options->idle_release;
}

tarn_status tarn_pool_create(const tarn_pool_options *given, tarn_pool **result)
{
    struct wanted wanted;
    const tarn_pool_options *options = &wanted.options;
    struct device *device = NULL;
    struct arena *arena = NULL;
    struct pool *pool = NULL;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pool is NULL");
    tarn_status status = read_options(given, &wanted);
    if (!status)
        status = check_options(options);
    if (!status)
        status = memory_ready();
    if (status)
        return status;
    int number = options->device == TARN_CURRENT_DEVICE ? thread_device() : options->device;
    status = device_find(number, &device);
    if (!status)
        status = arena_of(device, &arena);
    if (status)
        return status;
    if (options->segments == TARN_SEGMENTS_VIRTUAL && !device->properties.virtual_memory)
        return failed(TARN_ERROR_NOT_SUPPORTED, "device %d has no virtual memory: %s", number,
                      device->properties.name);
    bool shared = options->exportable || options->registrable;
    /* The driver may have given addresses meanwhile. */
    if (shared && arena->plain && options->segments == TARN_SEGMENTS_DEFAULT)
        wanted.options.segments = TARN_SEGMENTS_VIRTUAL;
    if (shared && !device->properties.exportable)
        return failed(TARN_ERROR_NOT_SUPPORTED, "device %d cannot export memory to other processes",
                      number);
    if (shared && !arena->store.kind.pieces && options->segments != TARN_SEGMENTS_VIRTUAL)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "plain segments cannot be exported; the pool needs virtual ones");
    if (options->segments == TARN_SEGMENTS_VIRTUAL) {
        status = arena_addresses(arena);
        if (status)
            return status;
    }
    status = pool_create(arena, false, &pool);
    if (status)
        return status;
    pool_configure(pool, options);
    atomic_store(&pool->users, 1);
    pool_begin(pool);
    release_begin(&pool->store);
    *result = (tarn_pool *)pool;
    return TARN_OK;
}

tarn_status tarn_pool_default(int device, tarn_pool **pool)
{
    struct device *found = NULL;
    struct arena *arena = NULL;
    if (!pool)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pool is NULL");
    tarn_status status = memory_ready();
    int number = device == TARN_CURRENT_DEVICE ? thread_device() : device;
    if (!status)
        status = device_find(number, &found);
    if (!status)
        status = arena_of(found, &arena);
    if (status)
        return status;
    *pool = (tarn_pool *)&arena->store;
    return TARN_OK;
}

tarn_status tarn_pool_retain(tarn_pool *pool)
{
    tarn_status status = pool_check_any(pool);
    if (status || store_is_default(store_of_public(pool)))
        return status;
    return user_retain(pool_of_public(pool))
               ? TARN_OK
               : failed(TARN_ERROR_INVALID_ARGUMENT,
                        "the pool's last reference was dropped: it cannot be used again");
}

tarn_status tarn_pool_release(tarn_pool *public)
{
    struct pool *pool = pool_of_public(public);
    tarn_status status = public ? pool_check_any(public) : memory_ready();
    if (status || !public || store_is_default(store_of_public(public)))
        return status;
    if (!user_let_go(pool))
        return failed(
            TARN_ERROR_INVALID_ARGUMENT,
            "no caller holds a reference to the pool: the remaining references belong to scopes, "
            "captures or graphs");
    pool_release(pool);
    return TARN_OK;
}

tarn_status tarn_pool_find(tarn_pool_id id, tarn_pool **pool)
{
    if (!pool)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pool is NULL");
    if (!id.first && !id.second)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "(0, 0) is the id of every device's default pool: call tarn_pool_default() "
                      "for a device's pool");
    tarn_status status = memory_ready();
    for (int i = 0; !status && i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (!arena)
            continue;
        mutex_lock(&arena->lock);
        struct pool *found = pool_of_id_locked(arena, id);
        if (found && (atomic_load(&found->unready) || !user_retain(found)))
            found = NULL;
        mutex_unlock(&arena->lock);
        if (found) {
            *pool = (tarn_pool *)found;
            return TARN_OK;
        }
    }
    if (status)
        return status;
    return failed(TARN_ERROR_INVALID_ARGUMENT,
                  "there is no pool (%llu, %llu), or its last reference was dropped",
                  (unsigned long long)id.first, (unsigned long long)id.second);
}

tarn_status tarn_pool_info_get(tarn_pool *public, tarn_pool_info *info)
{
    tarn_status status = pool_check_any(public);
    if (!status)
        status = sized_check("tarn_pool_info", info, sizeof *info);
    if (status)
        return status;
    const struct store *store = store_of_public(public);
    const struct pool *pool = store_is_default(store) ? NULL : pool_of_public(public);
    tarn_pool_info now = {
        .size = sizeof now,
        .id = {store->id[0], store->id[1]},
        .device = store->arena->device->number,
        .state = pool ? (tarn_pool_state)atomic_load(&pool->state) : TARN_POOL_RUNS,
        .use_count = pool ? atomic_load(&pool->count) : 1,
        .tag = pool ? (tarn_tag)atomic_load(&pool->tag) : 0,
        .limit = atomic_load(&store->limit),
        .allocator =
            store->allocator.alloc && !store_has(store, STORE_KEPT) ? &store->allocator : NULL,
    };
    sized_write(info, &now, sizeof now);
    return TARN_OK;
}

tarn_status tarn_pool_stats_get(tarn_pool *public, tarn_stats *stats)
{
    struct store *store = store_of_public(public);
    tarn_status status = pool_check_any(public);
    if (!status)
        status = sized_check("tarn_stats", stats, sizeof *stats);
    if (status)
        return status;
    tarn_stats now = {.size = sizeof now};
    statistics_read(store->arena, store, &now);
    now.metadata_bytes = (int64_t)pages_bytes();
    sized_write(stats, &now, sizeof now);
    return TARN_OK;
}

/* Bytes of a device that a trim of the default pool cannot free: those of pools with references. */
static size_t reserved_by_others(struct arena *arena)
{
    pools_collect(arena);
    mutex_lock(&arena->lock);
    size_t bytes = arena->reserved - arena->store.reserved - arena->uncached.reserved;
    for (struct store *store = arena->pools.left_first; store; store = store->lists.next_left)
        bytes -= store->reserved;
    mutex_unlock(&arena->lock);
    return bytes;
}

tarn_status tarn_pool_trim(tarn_pool *pool, size_t keep)
{
    tarn_status status = pool_check_any(pool);
    if (status)
        return status;
    struct store *store = store_of_public(pool);
    struct arena *arena = store->arena;
    status = captures_refuse(arena->device, "a trim");
    if (status)
        return status;
    trace_store(TRACE_trim, store, keep);
    if (store_has(store, STORE_KEPT))
        status = hooks.keep_let_go(store);
    if (status)
        return status;
    if (!store_is_default(store))
        return trim(arena, store, keep);
    size_t others = reserved_by_others(arena);
    return trim(arena, NULL, keep > SIZE_MAX - others ? SIZE_MAX : keep + others);
}

tarn_status tarn_pool_limit_set(tarn_pool *pool, size_t bytes)
{
    tarn_status status = pool_check_any(pool);
    if (status)
        return status;
    struct store *store = store_of_public(pool);
    mutex_lock(&store->arena->lock);
    store->limit = bytes;
    if (store_is_default(store))
        store->arena->uncached.limit = bytes; /* the store that serves while caching is off */
    mutex_unlock(&store->arena->lock);
    return TARN_OK;
}

tarn_status tarn_pool_tag_set(tarn_pool *pool, tarn_tag tag)
{
    tarn_status status = pool_check(pool);
    if (status)
        return status;
    if (tag && !*tarn_tag_text(tag))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%u is not a tag: tarn_tag_intern() gives one",
                      (unsigned)tag);
    atomic_store(&pool_of_public(pool)->tag, tag);
    return TARN_OK;
}
