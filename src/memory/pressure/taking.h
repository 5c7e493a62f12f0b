/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Taking idle memory of a device's other heaps for one that has none. A pool's heap may be served
 * from the pool's other heaps, those of the default pool, and what was left behind; one of the
 * default pool from its other heaps and what was left behind: store_serves(). */
#ifndef TARN_MEMORY_TAKING_H
#define TARN_MEMORY_TAKING_H

#include "memory/heap/heap.h"

/* What streams and pools have left behind, which is used before new memory is created. The default
 * pool's cached store takes all of it, since it serves nobody where it is; a pool, which would have
 * it for itself, `size` bytes. Then as much as is still missing from streams of the same pool that
 * are between two leases: the next lease may want the rest. Whether any came. */
bool take_what_is_left_behind(struct heap *heap, size_t size);

/* At least `wanted` bytes where there are as many, from what was left behind and then from heaps in
 * use. Gives the bytes that came. */
size_t take_from_others(struct heap *own, size_t wanted);

/* The same by whoever moves memory alone: from all heaps but `own`, except where that would call a
 * caller's allocator, and except heaps of its store whose memory stays in place (`kind.fixed`). */
void take_from_all(struct heap *own, size_t wanted);

#endif
