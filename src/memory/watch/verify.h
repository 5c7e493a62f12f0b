/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The invariants of a heap, checked by walking all of it: for tests, and for builds with
 * TARN_DEBUG_CHECKS. */
#ifndef TARN_MEMORY_VERIFY_H
#define TARN_MEMORY_VERIFY_H

#include "memory/heap/heap.h"

/* TARN_OK, or TARN_ERROR_INTERNAL with a text that names the broken invariant and the address. */
tarn_status heap_verify(struct heap *heap);
/* What a build with TARN_DEBUG_CHECKS does where a heap has changed: the same while other threads
 * run, so without what is theirs (slabs, taken spans). A broken invariant ends the process
 * there. */
#if defined(TARN_DEBUG_CHECKS) && TARN_DEBUG_CHECKS
void heap_check(struct heap *heap);
#else
static inline void heap_check(struct heap *heap)
{
    (void)heap;
}
#endif

/* The same for every heap of a device, and for its arena. Nothing else of tarn may run. */
tarn_status arena_verify(struct arena *arena);

#endif
