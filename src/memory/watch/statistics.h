/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Statistics of a store, or with NULL of a device. They are reset after what the caches have
 * counted is published: later it would count as if it had come after the reset. Reading adds what
 * lies with the heaps: counted by caches and not yet published, and splits. */
#ifndef TARN_MEMORY_STATISTICS_H
#define TARN_MEMORY_STATISTICS_H

#include "memory/heap/heap.h"

void statistics_read(struct arena *arena, struct store *store, tarn_stats *stats);
/* Of a device whose memory was not used, NULL, nothing is to be reset. */
tarn_status statistics_reset(struct arena *arena, struct store *store, tarn_stats_what what);

#endif
