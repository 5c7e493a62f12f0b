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

/* A number that no mapping had. */
uint64_t generation_next(void);

/* Called when a range was mapped: granules without a generation get a new one, and observers are
 * called. With no lock of the arena except `moving`. */
void generation_begin(struct arena *arena, uintptr_t start, size_t size);
/* Called before a range is unmapped: observers are called, once per range of one generation. And
 * called after the unmap, or after its failure. */
void generation_ends(struct arena *arena, uintptr_t start, size_t size);
void generation_ended(struct arena *arena, uintptr_t start, size_t size, bool unmapped);

/* The same for memory that was exchanged under its addresses: sets the generations, under the lock
 * of the heap that has live blocks there; and calls observers afterwards, without the lock. */
void generation_exchange(struct arena *arena, uintptr_t start, size_t size, bool mapped);
void generation_tell(const struct arena *arena, uintptr_t start, size_t size);

/* The generation of the granule of an address; 0: it is not mapped. */
uint64_t generation_at(const struct arena *arena, uintptr_t address);
/* The newest generation in a range: it changes whenever any part of the range is mapped again. */
uint64_t generation_newest(const struct arena *arena, uintptr_t start, size_t size);

#endif
