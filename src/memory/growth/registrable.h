/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Segments of registrable pools: a run is one segment, which is one piece, from when it is made
 * until it is given back as a whole. Nothing is joined to it or mapped elsewhere, so that one
 * registration covers all of it. */
#ifndef TARN_MEMORY_REGISTRABLE_H
#define TARN_MEMORY_REGISTRABLE_H

#include "memory/heap/heap.h"

/* As heap_grow(), by one segment more. Where the device or the limit has no room for it there is no
 * smaller one: that would depend on what else is on the device. */
tarn_status registrable_grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                             struct span **span);

/* The next segment of a store after the `*serial`th, whose number becomes `*serial`; false where
 * there is none. With no lock held. */
bool registrable_next(struct store *store, uint64_t *serial, uintptr_t *start, size_t *size);

#endif
