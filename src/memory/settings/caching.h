/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Whether tarn caches. If not, each block of a default pool has a segment of its own:
 * TARN_NO_CACHING, backend:cudaMallocAsync, tarn_caching_set(). */
#ifndef TARN_MEMORY_CACHING_H
#define TARN_MEMORY_CACHING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <tarn/status.h>

/* True: blocks of the default pools are not cached. */
extern atomic_bool memory_is_uncached;

/* Reads the environment variable at the first call. TARN_ERROR_CONFIGURATION at every call while it
 * is malformed. */
tarn_status caching_ready(void);

#endif
