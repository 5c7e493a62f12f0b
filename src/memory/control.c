/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls on a device's memory as a whole: trim, limits, statistics. Owns nothing. */
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "device/capture.h"
#include "memory/arena/map.h"
#include "memory/heap/traced.h"
#include "memory/pool/pool.h"
#include "memory/pressure/compact.h"
#include "memory/pressure/trim.h"
#include "memory/settings/config.h"
#include "memory/watch/statistics.h"

#include <string.h>
#include <tarn/memory.h>
#include <tarn/stats.h>

static tarn_status arena_find(int device, struct arena **arena)
{
    struct device *found = NULL;
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (!status)
        status = memory_config_use();
    if (status)
        return status;
    return arena_of(found, arena);
}

/* The device's arena; NULL if its memory was not used. */
static tarn_status arena_look_up(int device, struct arena **arena)
{
    struct device *found = NULL;
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (status)
        return status;
    *arena = arena_if_used(device);
    return TARN_OK;
}

tarn_status tarn_device_trim(int device, size_t keep)
{
    struct arena *arena = NULL;
    tarn_status status = arena_look_up(device, &arena);
    if (!status && arena)
        status = captures_refuse(arena->device, "a trim");
    if (status || !arena)
        return status;
    trace_store(TRACE_trim, &arena->store, keep);
    return trim(arena, NULL, keep);
}

tarn_status tarn_compact(int device, size_t wanted, size_t *gained)
{
    struct arena *arena = NULL;
    if (!gained)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "gained is NULL");
    tarn_status status = arena_look_up(device, &arena);
    if (!status && !device_at(device)->properties.virtual_memory)
        status = failed(TARN_ERROR_NOT_SUPPORTED,
                        "device %d has no virtual memory: its plain segments have addresses "
                        "that are tied to their memory",
                        device);
    if (status)
        return status;
    if (!arena) {
        *gained = 0;
        return TARN_OK;
    }
    pools_collect_all(arena);
    return compact(arena, NULL, 0, wanted, gained);
}

tarn_status tarn_device_limit_set(int device, size_t bytes)
{
    struct arena *arena = NULL;
    tarn_status status = arena_find(device, &arena);
    if (status)
        return status;
    mutex_lock(&arena->lock);
    arena->limit = bytes;
    mutex_unlock(&arena->lock);
    return TARN_OK;
}

tarn_status tarn_device_limit_get(int device, size_t *bytes)
{
    struct arena *arena = NULL;
    if (!bytes)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "bytes is NULL");
    tarn_status status = arena_look_up(device, &arena);
    if (!status)
        status = memory_config_ready();
    if (status)
        return status;
    if (!arena) {
        *bytes = config_limit(memory_config(), device_at(device)->properties.memory);
        return TARN_OK;
    }
    mutex_lock(&arena->lock);
    *bytes = arena->limit;
    mutex_unlock(&arena->lock);
    return TARN_OK;
}

tarn_status tarn_device_stats_get(int device, tarn_stats *stats)
{
    struct arena *arena = NULL;
    tarn_status status = sized_check("tarn_stats", stats, sizeof *stats);
    if (!status)
        status = arena_look_up(device, &arena);
    if (status)
        return status;
    tarn_stats now = {.size = sizeof now, .max_split_size = -1};
    if (arena)
        statistics_read(arena, NULL, &now);
    now.metadata_bytes = (int64_t)pages_bytes();
    sized_write(stats, &now, sizeof now);
    return TARN_OK;
}

tarn_status tarn_device_stats_reset(int device, tarn_stats_what what)
{
    struct arena *arena = NULL;
    tarn_status status = arena_look_up(device, &arena);
    return status ? status : statistics_reset(arena, what);
}

/* The callbacks for each kind of memory, and the bytes reported so far. */
struct listing {
    void (*each)(const tarn_metadata_kind *kind, void *user);
    void *user;
    uint64_t bytes;
};

CALLS_BACK static void tell(struct listing *listing, const char *name, size_t record_bytes,
                            uint64_t records, uint64_t bytes)
{
    const tarn_metadata_kind kind = {sizeof kind, name, record_bytes, (int64_t)records,
                                     (int64_t)bytes};
    struct callback callback;
    callback_begin(&callback);
    listing->each(&kind, listing->user);
    callback_end(&callback);
    listing->bytes += bytes;
}

static void tell_objects(void *user, const struct object_pool *pool, uint64_t live, uint64_t bytes)
{
    const char *name = strncmp(pool->name, "struct ", 7) == 0 ? pool->name + 7 : pool->name;
    tell(user, name, pool->size, live, bytes);
}

tarn_status tarn_metadata_list(void (*each)(const tarn_metadata_kind *kind, void *user), void *user)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct listing listing = {.each = each, .user = user};
    if (!each)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the function is NULL");
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    object_pools_each(tell_objects, &listing);
    const size_t leaf = MAP_LEAF_ENTRIES * sizeof(map_entry), page = 4096;
    uint64_t bytes = map_bytes();
    tell(&listing, "leaf of the page map", leaf, bytes / leaf, bytes);
    /* Read last, so that memory that grows meanwhile is included, and the rest is never below 0. */
    bytes = pages_bytes() - listing.bytes;
    tell(&listing, "page", page, bytes / page, bytes);
    return TARN_OK;
}
