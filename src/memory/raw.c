/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The mode without caching. Owns the switch; each device's memory of that mode is its arena's store `raw`, whose segments are
 * the driver's own pools' with backend:cudaMallocAsync. The mode is on then for good. */
#include "base/process.h"
#include "base/status.h"
#include "memory/ladder.h"
#include "memory/malloc.h"

#include <stdlib.h>
#include <string.h>
#include <tarn/memory.h>

atomic_bool memory_is_raw;

tarn_status raw_ready(void)
{
    static atomic_bool is_read;
    if (atomic_load_explicit(&is_read, memory_order_acquire))
        return TARN_OK;
    const char *wish = secure_getenv("TARN_NO_CACHING");
    bool raw = wish && strcmp(wish, "1") == 0;
    if (wish && *wish && !raw && strcmp(wish, "0") != 0)
        return failed(TARN_ERROR_CONFIGURATION, "TARN_NO_CACHING=%s is neither 0 nor 1", wish);
    if (!atomic_exchange(&is_read, true) && (raw || memory_config()->backend == CONFIG_ASYNC))
        atomic_store(&memory_is_raw, true);
    return TARN_OK;
}

tarn_status tarn_caching_set(bool caches)
{
    tarn_status status = memory_ready();
    if (status)
        return status;
    if (caches && memory_config()->backend == CONFIG_ASYNC)
        return failed(TARN_ERROR_CONFIGURATION,
                      "tarn does not cache with backend:cudaMallocAsync, where the default pools "
                      "are the driver's own: leave the key out to have tarn cache");
    atomic_store(&memory_is_raw, !caches);
    process_changed(); /* no thread goes on with what it remembers */
    for (int i = 0; caches && i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (arena)
            ladder_give_back(arena, &arena->raw);
    }
    return TARN_OK;
}
