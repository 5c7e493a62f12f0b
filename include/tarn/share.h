/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory that others use: pins for who registered it, exports and imports for other processes. All functions are
 * thread-safe and may be called during a capture. Each may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN and
 * TARN_ERROR_NO_DRIVER. */
#ifndef TARN_SHARE_H
#define TARN_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Pins the physical memory under `size` bytes of a live block: until it is unpinned as often, it is not unmapped, moved,
 * mapped at a second address or given back, also when the block is freed meanwhile; blocks of the same stream may use it
 * then. Whole pieces are pinned (tarn_range_get() shows one), and counted as reserved. TARN_ERROR_INVALID_POINTER where no
 * live block holds all of the range, TARN_ERROR_INVALID_ARGUMENT for 0 bytes, TARN_ERROR_OUT_OF_HOST_MEMORY. */
TARN_API tarn_status tarn_pin(const void *pointer, size_t size);

/* Takes one pin back; `pointer` and `size` are what was given to tarn_pin(). TARN_ERROR_INVALID_ARGUMENT for what is not
 * pinned so. */
TARN_API tarn_status tarn_unpin(const void *pointer, size_t size);

#ifdef __cplusplus
}
#endif
#endif
