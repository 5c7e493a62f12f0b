/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The ladder: what is tried, cheapest first, until a request is served. */
#ifndef TARN_MEMORY_LADDER_H
#define TARN_MEMORY_LADDER_H

#include "memory/heap.h"

/* A span for a request, SPAN_TAKEN. May call the driver and, on the last step, wait; holds no lock meanwhile.
 * TARN_ERROR_OUT_OF_MEMORY, without a text, when every step was taken. */
tarn_status ladder_climb(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span);

/* Whether a request is above what a limit or the device could hold, so that the driver is not asked. */
bool ladder_rejects(struct arena *arena, const struct store *store, size_t size);

/* A request may be the beginning of the plan in force: the heap follows it from now on, if it can. */
void ladder_plan(struct heap *heap);

/* Gives idle memory of a store back to the driver until it has at most `keep` bytes reserved; with NULL, of the default pool and
 * what is left behind until the device has. Waits for work that still uses it. */
tarn_status ladder_trim(struct arena *arena, struct store *store, size_t keep);

/* Waits for every work queued so far that blocks of a store wait for, or with NULL of a device. */
tarn_status ladder_settle(struct arena *arena, struct store *store);

/* After it, whoever moves memory has begun to after the call. */
void moves_flush(struct arena *arena);

/* Gives a store's idle memory back to the driver, without a wait. */
void ladder_give_back(struct arena *arena, struct store *store);

/* After a free, of an ordered store: gives what is free in the heap back to the driver now, unless memory may not be moved. */
void ladder_return(struct heap *heap);

/* Closes every cache of the device for good, before the last trim. */
void ladder_close(struct arena *arena);

/* Closes the fast paths of a device's memory because it is lost. */
void ladder_lose(struct arena *arena);

/* Statistics of a store, or with NULL of a device. They are reset after what the caches have counted is published: later it would
 * count as if it had come after the reset. Reading adds what lies with the heaps: counted by caches and not yet published, and
 * splits. */
void ladder_reset_peak(struct arena *arena, const struct store *store);
void ladder_reset_accumulated(struct arena *arena, const struct store *store);
void ladder_count(struct arena *arena, const struct store *store, tarn_stats *stats);

#endif
