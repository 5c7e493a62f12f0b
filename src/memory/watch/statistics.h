/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Statistics of a store or a device. A reset first publishes the counts of caches; otherwise they
 * would later count as if they were new. A read adds what heaps have: unpublished counts of caches,
 * and splits. */
#ifndef TARN_MEMORY_STATISTICS_H
#define TARN_MEMORY_STATISTICS_H

#include "memory/heap/heap.h"

/* Reads the statistics of a store; with `store` NULL those of the arena's device. */
void statistics_read(struct arena *arena, struct store *store, tarn_stats *stats);
/* Resets the statistics of a device. `arena` NULL: its memory was not used, so there is nothing to
 * reset. */
tarn_status statistics_reset(struct arena *arena, tarn_stats_what what);

#endif
