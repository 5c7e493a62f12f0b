/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public call that turns the mode without caching on and off. Owns nothing. Each device's
 * memory of that mode belongs to its arena's store `uncached`. With backend:cudaMallocAsync the
 * mode is always on, and the segments come from the driver's own pools. */
#include "base/status.h"
#include "base/thread/process.h"
#include "memory/pressure/trim.h"
#include "memory/settings/hooks.h"

#include <tarn/memory.h>

tarn_status tarn_caching_set(bool caches, bool *previous)
{
    tarn_status status = memory_ready();
    if (status)
        return status;
    if (caches && memory_config()->backend == CONFIG_ASYNC)
        return failed(TARN_ERROR_CONFIGURATION,
                      "tarn does not cache with backend:cudaMallocAsync, where the default pools "
                      "are the driver's own: leave the key out to have tarn cache");
    bool was_uncached = atomic_exchange(&memory_is_uncached, !caches);
    process_changed(); /* threads forget the routes that they remember */
    for (int i = 0; caches && i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (arena)
            trim_without_waiting(arena, &arena->uncached);
    }
    if (previous)
        *previous = !was_uncached;
    return TARN_OK;
}
