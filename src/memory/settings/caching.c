/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns whether tarn caches. */
#include "memory/settings/caching.h"
#include "base/status.h"
#include "base/variable.h"
#include "memory/settings/config.h"

#include <stdlib.h>
#include <string.h>

atomic_bool memory_is_uncached;

tarn_status caching_ready(void)
{
    static atomic_bool is_read;
    if (atomic_load_explicit(&is_read, memory_order_acquire))
        return TARN_OK;
    const char *wish = variable_get("TARN_NO_CACHING");
    bool uncached = wish && strcmp(wish, "1") == 0;
    if (wish && !uncached && strcmp(wish, "0") != 0)
        return failed(TARN_ERROR_CONFIGURATION, "TARN_NO_CACHING=%s must be 0 or 1", wish);
    if (!atomic_exchange(&is_read, true) && (uncached || memory_config()->backend == CONFIG_ASYNC))
        atomic_store(&memory_is_uncached, true);
    return TARN_OK;
}
