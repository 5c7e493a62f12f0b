/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The start of a call on memory. Owns that it was the first. */
#include "memory/arena/hooks.h"

#include <pthread.h>

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
    return status;
}
