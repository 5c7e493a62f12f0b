/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks the invariants of a heap, by a walk over all of it. For tests and builds with
 * TARN_DEBUG_CHECKS. */
#ifndef TARN_MEMORY_VERIFY_H
#define TARN_MEMORY_VERIFY_H

#include "memory/heap/heap.h"

/* TARN_OK, or TARN_ERROR_INTERNAL with a text that names the broken invariant and the address. */
tarn_status heap_verify(struct heap *heap);
/* For builds with TARN_DEBUG_CHECKS, after a change in a heap. Other threads run, so slabs and
 * taken spans are left out. A broken invariant ends the process. */
#if defined(TARN_DEBUG_CHECKS) && TARN_DEBUG_CHECKS
void heap_check(struct heap *heap);
#else
static inline void heap_check(struct heap *heap)
{
    (void)heap;
}
#endif

/* The same for all heaps of a device, and its arena. No other code of tarn may run. */
tarn_status arena_verify(struct arena *arena);

#endif
