/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What every public call on memory begins with. Owns whether memory was used, and the functions
 * that layers above have registered. */
#include "memory/settings/hooks.h"
#include "memory/settings/caching.h"
#include "memory/settings/config.h"

#include <pthread.h>

struct upper_hooks upper_hooks;
const struct announcer *announcer;
atomic_bool memory_wants_marks;

static void begin(void)
{
    hooks.begin();
}

tarn_status memory_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tarn_status status = device_layer_ready();
    if (!status)
        status = memory_config_use();
    if (!status)
        status = caching_ready();
    if (!status)
        pthread_once(&once, begin);
    if (!status && debug_has(DEBUG_BLOCKS | DEBUG_CONTEXT))
        hooks.debug_turn();
    if (!status && atomic_load_explicit(&memory_wants_marks, memory_order_relaxed))
        hooks.marks_wanted();
    return status;
}
