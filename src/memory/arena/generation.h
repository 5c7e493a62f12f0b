/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Generations: numbers that tell one mapping of an address from another. An arena has one number
 * per granule: that of the mapping while the granule is mapped and accessible, otherwise 0. The
 * thread that claimed a range may read and write its entries without a lock, like those of
 * `pieces`. */
#ifndef TARN_MEMORY_GENERATION_H
#define TARN_MEMORY_GENERATION_H

#include "memory/arena/arena.h"

#define GENERATION_BYTES(granules) ((granules) * sizeof(uint64_t))

/* Returns a new number, which no mapping has had. */
uint64_t generation_next(void);

/* Call when a range was mapped: gives a new generation to granules that have none, and calls
 * observers. With no lock of the arena except `moving`. */
void generation_begin(struct arena *arena, uintptr_t start, size_t size);
/* Call before a range is unmapped: calls observers once per stretch of one generation. */
void generation_ends(struct arena *arena, uintptr_t start, size_t size);
/* Call after the unmap, or after its failure. */
void generation_ended(struct arena *arena, uintptr_t start, size_t size, bool unmapped);

/* Call when memory was exchanged under its addresses: sets the generations. Under the lock of the
 * heap that has live blocks there. */
void generation_exchange(struct arena *arena, uintptr_t start, size_t size, bool mapped);
/* Call afterwards, without that lock: calls observers. */
void generation_tell(const struct arena *arena, uintptr_t start, size_t size);

/* The generation of the granule of an address; 0: not mapped. */
uint64_t generation_at(const struct arena *arena, uintptr_t address);
/* The newest generation in a range: it changes whenever any part of the range is mapped again. */
uint64_t generation_newest(const struct arena *arena, uintptr_t start, size_t size);

#endif
