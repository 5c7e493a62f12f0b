/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The text of an out-of-memory error: what has the memory, and what helps. */
#ifndef TARN_MEMORY_SHORTAGE_H
#define TARN_MEMORY_SHORTAGE_H

#include "memory/heap/heap.h"

/* Tells the trace, and then observers, that a request of `size` bytes is about to fail. Whether any
 * of them has freed memory, and the device and the limits can hold the request. The trace gets it
 * with `place`, which may be 0 while it is off. The caller holds no lock. */
bool shortage_helped(const struct store *store, uint32_t place, size_t size);

/* Fails with TARN_ERROR_OUT_OF_MEMORY and a text: what was tried, what holds the memory, and one or
 * two things that would have helped. Counts the failure, and leaves the files of
 * TARN_OOM_SNAPSHOT. The caller holds no lock. */
tarn_status shortage_refuse(struct heap *heap, size_t size);

/* Extends the last error, which says why memory for a suspended pool could not be created: how much
 * the pool needs, how much is missing, and what holds the memory. The caller holds no lock. */
void shortage_refuse_resume(const struct store *store, size_t need);

/* The same for a commit of a range that needs `need` bytes. Counts the failure, and leaves the
 * files of TARN_OOM_SNAPSHOT. */
void shortage_refuse_range(const struct store *store, size_t need);

#endif
