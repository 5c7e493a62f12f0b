/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Looks up a caller's pointer: the live block that it lies in, or the reason why it is in no block of tarn. */
#ifndef TARN_MEMORY_POINTER_H
#define TARN_MEMORY_POINTER_H

#include "memory/pool/block.h"

#include <tarn/memory.h>

/* Finds the live block that holds a pointer, or with `start` begins there, with the lock of its heap held then. TARN_ERROR_DOUBLE_FREE,
 * TARN_ERROR_INVALID_POINTER: there is none. */
tarn_status pointer_lock(const void *pointer, bool start, struct block *block);

/* What the caller wants of a live block of a store: called under the lock of its heap, which keeps the memory under it where it is,
 * if there is any: store_check(). */
typedef tarn_status (*block_work)(struct store *store, const tarn_block_info *block, void *argument);

/* Looks up the live block that holds `pointer`. TARN_ERROR_INVALID_POINTER, or what `work` gives. */
tarn_status pointer_do(const void *pointer, block_work work, void *argument);

/* Whether a caller has anchored memory of a store; what is anchored and not by a caller is exported. */
bool anchors_any(const struct store *store);

#endif
