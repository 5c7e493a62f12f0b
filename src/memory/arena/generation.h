/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Generations: numbers that tell one mapping of an address from another. An arena has one number per granule: that of
 * the mapping while the granule is mapped and accessible, otherwise 0. The thread that claimed a range may read and
 * write its entries without a lock, like those of `pieces`. */
#ifndef TARN_MEMORY_GENERATION_H
#define TARN_MEMORY_GENERATION_H

#include "memory/arena/arena.h"

#define GENERATION_BYTES(granules) ((granules) * sizeof(uint64_t))

/* One that no mapping had. */
uint64_t generation_next(void);

/* A range was mapped: what of it has no generation has a new one now, and observers are told. With no lock of the arena's but `moving`. */
void generation_begin(struct arena *arena, uintptr_t start, size_t size);
/* It will be unmapped: observers are told, range by range of one generation. Then it has been, or has not. */
void generation_ends(struct arena *arena, uintptr_t start, size_t size);
void generation_ended(struct arena *arena, uintptr_t start, size_t size, bool unmapped);

/* The same of memory that was exchanged under its addresses: sets the generations, under the lock of the heap whose live blocks lie there;
 * and tells observers of them afterwards, without it. */
void generation_exchange(struct arena *arena, uintptr_t start, size_t size, bool mapped);
void generation_tell(const struct arena *arena, uintptr_t start, size_t size);

/* That of the granule of an address; 0: it is not mapped. */
uint64_t generation_at(const struct arena *arena, uintptr_t address);
/* The newest in a range: differs from what it was whenever any of the range has been mapped anew since. */
uint64_t generation_newest(const struct arena *arena, uintptr_t start, size_t size);

#endif
