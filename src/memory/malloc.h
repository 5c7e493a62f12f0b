/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the layers above need of tarn_malloc() and its kin past their public face. */
#ifndef TARN_MEMORY_MALLOC_H
#define TARN_MEMORY_MALLOC_H

#include "memory/heap/heap.h"

/* A block that is the library's own and outlives what the program has open, as a workspace: of the default pool, whatever scopes are open and
 * whichever pool would help it out; where the stream takes part in a capture, of that capture's pool if it has one. No program has seen it:
 * lists of a pool's blocks do not have it, and a restore leaves it where it is. It has a span, however small it is. `pool` receives
 * whose it is. */
struct own {
    struct stream *stream;
    bool captured; /* the driver says that the stream captures */
    tarn_tag tag;
};
tarn_status memory_alloc_own(const struct own *wanted, size_t size, tarn_pool_id *pool, void **pointer);

/* tarn_free() for a layer that gives its own blocks back during tarn_shutdown(), before the memory layer is shut down. */
tarn_status memory_free(void *pointer);

#endif
