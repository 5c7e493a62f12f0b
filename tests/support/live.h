/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Whether the live blocks of a pool, except tarn's own, are exactly those that begin at
 * `pointers`, in any order. At most 512. */
#ifndef TARN_TESTS_SUPPORT_LIVE_H
#define TARN_TESTS_SUPPORT_LIVE_H

#include <tarn/pool.h>

static inline bool live_has(const tarn_pool_block *blocks, size_t count, const void *pointer)
{
    for (size_t i = 0; i < count; i++)
        if (blocks[i].address == pointer)
            return true;
    return false;
}

static inline tarn_status live_are(tarn_pool *pool, void *const *pointers, size_t count, bool *same)
{
    tarn_pool_block blocks[512];
    size_t found = 0;
    tarn_status status = tarn_pool_blocks_get(pool, blocks, 512, &found);
    if (status)
        return status;
    *same = found == count && found <= 512;
    for (size_t i = 0; *same && i < found; i++) {
        size_t k = 0;
        while (k < count && pointers[k] != blocks[i].address)
            k++;
        *same = k < count;
    }
    return TARN_OK;
}

#endif
