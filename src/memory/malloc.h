/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the layers above need of tarn_malloc() and its kin past their public face. */
#ifndef TARN_MEMORY_MALLOC_H
#define TARN_MEMORY_MALLOC_H

#include "memory/heap.h"

/* The start of every public call on memory: the device layer is ready, and knows what the memory layer does at its ends. */
tarn_status memory_ready(void);

/* A block of a store, whatever scopes are open. */
tarn_status memory_alloc(struct store *store, struct stream *stream, size_t size, void **pointer);

/* Frees a block at once, even if debug mode would look at it first. */
tarn_status memory_free_now(void *pointer);

/* tarn_free() for a layer that gives its own blocks back during tarn_shutdown(), before the memory layer is shut down. */
tarn_status memory_free(void *pointer);

/* What the caller wants of a live block of a store: called under the lock of its heap, which keeps the memory under it where it is,
 * if there is any: store_check(). */
typedef tarn_status (*block_work)(struct store *store, const tarn_block_info *block, void *argument);

/* Looks up the live block that holds `pointer`. TARN_ERROR_INVALID_POINTER, or what `work` gives. */
tarn_status memory_block_do(const void *pointer, block_work work, void *argument);

/* Reads the environment's wish for the mode without caching, the first time. TARN_ERROR_CONFIGURATION each time while it is
 * malformed. */
tarn_status raw_ready(void);

#endif
