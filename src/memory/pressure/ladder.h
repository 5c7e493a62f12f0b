/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The ladder: what is tried, cheapest first, until a request is served. */
#ifndef TARN_MEMORY_LADDER_H
#define TARN_MEMORY_LADDER_H

#include "memory/heap/heap.h"

/* Takes a span for a request; the result is SPAN_TAKEN. May call the driver and, in the last steps,
 * wait until `until` (base/thread/clock.h). The caller holds no lock. TARN_ERROR_OUT_OF_MEMORY,
 * without a text, if every step has failed; TARN_ERROR_NOT_READY if a longer wait might have
 * helped. */
tarn_status ladder_climb(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                         uint64_t until, struct span **span);

/* Asks the layers above to free memory that is not needed (upper_hooks.relieve). Whether they freed
 * any. */
bool ladder_relieve(const struct arena *arena);

/* Whether a request is larger than the device or its limit can ever hold. Then no step is taken. */
bool ladder_is_hopeless(struct arena *arena, const struct store *store, size_t size);

/* The same, or the settings demand that a request above a limit fails. Then the driver is not
 * asked. */
bool ladder_rejects(struct arena *arena, const struct store *store, size_t size);

#endif
