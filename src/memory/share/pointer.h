/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Looks up a caller's pointer: the live block that contains it, or why there is none. */
#ifndef TARN_MEMORY_POINTER_H
#define TARN_MEMORY_POINTER_H

#include "memory/pool/block.h"

#include <tarn/memory.h>

/* Finds the live block that contains a pointer, or with `start` begins at it, and returns with the
 * lock of its heap held. TARN_ERROR_DOUBLE_FREE, TARN_ERROR_INVALID_POINTER: there is none. */
tarn_status pointer_lock(const void *pointer, bool start, struct block *block);

/* A function to call for a live block, under the lock of its heap. The lock keeps the block's
 * memory in place, if it has any (store_check()). */
typedef tarn_status (*block_work)(struct store *store, const tarn_block_info *block,
                                  void *argument);

/* Looks up the live block that contains `pointer`. TARN_ERROR_INVALID_POINTER, or the result of
 * `work`. */
tarn_status pointer_do(const void *pointer, block_work work, void *argument);

/* The same for work that needs the block's memory on the device: first waits for a compaction that
 * has it in host memory, except in the thread that compacts. */
tarn_status pointer_do_settled(const void *pointer, block_work work, void *argument);

/* Whether a caller has anchored memory of a store. If not, its anchored memory is exported. */
bool anchors_any(const struct store *store);

#endif
