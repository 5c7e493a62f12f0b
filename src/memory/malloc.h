/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the layers above memory call that is not public. */
#ifndef TARN_MEMORY_MALLOC_H
#define TARN_MEMORY_MALLOC_H

#include "memory/heap/heap.h"

/* Allocates a block for tarn's own use, for example a workspace. The block comes from the default
 * pool, whatever scopes are open. If the stream takes part in a capture that has a pool, the block
 * comes from that pool. No pool with `use_on_oom` helps out. The block has its own span, however
 * small it is. Lists of a pool's blocks leave it out, and a restore leaves it where it is. `pool`
 * receives the id of its pool. */
struct own {
    struct stream *stream;
    bool captured; /* by the driver, the stream is capturing */
    tarn_tag tag;
};
tarn_status memory_alloc_own(const struct own *wanted, size_t size, tarn_pool_id *pool,
                             void **pointer);

/* tarn_free() for a layer that frees its blocks during tarn_shutdown(), before the memory layer is
 * shut down. */
tarn_status memory_free(void *pointer);

#endif
