/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The ladder: what is tried, cheapest first, until a request is served. */
#ifndef TARN_MEMORY_LADDER_H
#define TARN_MEMORY_LADDER_H

#include "memory/heap.h"

/* A span for a request, SPAN_TAKEN. May call the driver and, on the last step, wait; holds no lock meanwhile.
 * TARN_ERROR_OUT_OF_MEMORY with a text that says what was tried and what holds the memory. */
tarn_status ladder_climb(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span);

/* Gives idle memory back to the driver until at most `keep` bytes are reserved, waiting for work that still uses it. */
tarn_status ladder_trim(struct arena *arena, size_t keep);

/* Closes every cache of the device for good, before the last trim. */
void ladder_close(struct arena *arena);

/* Closes the fast paths of a device's memory because it is lost. */
void ladder_lose(struct arena *arena);

/* Reset a device's statistics. What its caches have counted is published first: later it would count as if it had come
 * after the reset. */
void ladder_reset_peak(struct arena *arena);
void ladder_reset_accumulated(struct arena *arena);

/* Adds what lies with the device's heaps: counted by caches and not yet published, and splits. */
void ladder_count(struct arena *arena, tarn_stats *stats);

#endif
