/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The ladder: what is tried, cheapest first, until a request is served. */
#ifndef TARN_MEMORY_LADDER_H
#define TARN_MEMORY_LADDER_H

#include "memory/heap/heap.h"

/* A span for a request, SPAN_TAKEN. May call the driver and, on the last step, wait; holds no lock meanwhile.
 * TARN_ERROR_OUT_OF_MEMORY, without a text, when every step was taken. */
tarn_status ladder_climb(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span);

/* Who has device memory that can be done without: called with no lock held before the ladder waits and before a request fails; gives
 * whether any was freed, in the order of its streams. It must neither allocate nor wait. Set once. ladder_relieve() calls it. */
void ladder_on_shortage(bool (*callback)(int device));
bool ladder_relieve(const struct arena *arena);

/* Whether a request is above what a limit or the device could hold, so that the driver is not asked. */
bool ladder_rejects(struct arena *arena, const struct store *store, size_t size);

#endif
