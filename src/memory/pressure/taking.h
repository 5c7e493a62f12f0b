/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Takes idle memory of a device's other heaps for one that has none. Memory of the same pool, of
 * the default pool, and what ended pools left behind may serve a heap (store_serves()). */
#ifndef TARN_MEMORY_TAKING_H
#define TARN_MEMORY_TAKING_H

#include "memory/heap/heap.h"

/* The functions with `until` (base/thread/clock.h) take nothing if another thread moves memory
 * alone for longer. */

/* Takes what streams and pools have left behind, which is used before new memory is created. The
 * default pool's store takes all of it; any other store, which would keep it from others, only
 * `size` bytes. If some is still missing, takes as much from streams of the same pool that were
 * returned and not leased again. Whether any came. */
bool take_what_is_left_behind(struct heap *heap, size_t size, uint64_t until);

/* Takes at least `wanted` bytes, if there are so many: first what was left behind, then from heaps
 * in use. Returns the bytes that came. */
size_t take_from_others(struct heap *own, size_t wanted, uint64_t until);

/* The same for a thread that moves memory alone: takes from all heaps except `own`, heaps whose
 * memory a caller's allocator frees, and heaps of its store if places are fixed (`kind.fixed`). */
void take_from_all(struct heap *own, size_t wanted);

#endif
