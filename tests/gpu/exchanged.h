/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What two processes exchange through another library, be it MPI or UCX: blocks of these sizes, of
 * pools of each kind. */
#ifndef TESTS_GPU_EXCHANGED_H
#define TESTS_GPU_EXCHANGED_H

#include "gpu.h"

static const size_t sizes[] = {64 << 10, 1 << 20, 64 << 20};
static const struct {
    const char *name;
    tarn_pool_options options;
} kinds[] = {
    {"a pool", {.size = sizeof(tarn_pool_options), .device = TARN_CURRENT_DEVICE}},
    {"an exportable pool",
     {.size = sizeof(tarn_pool_options), .device = TARN_CURRENT_DEVICE, .exportable = true}},
    {"a registrable pool",
     {.size = sizeof(tarn_pool_options), .device = TARN_CURRENT_DEVICE, .registrable = true}},
    {"plain segments",
     {.size = sizeof(tarn_pool_options),
      .device = TARN_CURRENT_DEVICE,
      .segments = TARN_SEGMENTS_PLAIN}},
};

/* NULL and a FAIL where there is none. */
static inline void *exchanged_block(const char *name, tarn_pool *pool, tarn_stream stream,
                                    size_t bytes)
{
    const tarn_alloc_options options = {
        .size = sizeof options, .device = TARN_CURRENT_DEVICE, .stream = stream, .pool = pool};
    void *block = NULL;
    return OK(name, tarn_alloc(&options, bytes, &block)) ? block : NULL;
}

/* How many exchanges are timed: of the simulated driver no rate is of use. */
static inline int exchanges_timed(void)
{
    return gpu_is_simulated ? 1 : 20;
}

#endif
