/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Generations: which incarnation of its addresses a mapping is. An arena has one for each granule that is mapped and
 * accessible, else 0; whoever claimed a range may read and write its entries, as those of `pieces`. */
#ifndef TARN_MEMORY_GENERATION_H
#define TARN_MEMORY_GENERATION_H

#include "memory/arena.h"

#define GENERATION_BYTES(granules) ((granules) * sizeof(uint64_t))

/* One that no mapping had. */
uint64_t generation_next(void);

/* A range was mapped: what of it has no generation has a new one now, and observers are told. With no lock of the arena's but `moving`. */
void generation_begin(struct arena *arena, uintptr_t start, size_t size);
/* It will be unmapped: observers are told, range by range of one generation. Then it has been, or has not. */
void generation_ends(struct arena *arena, uintptr_t start, size_t size);
void generation_ended(struct arena *arena, uintptr_t start, size_t size, bool unmapped);

/* The newest in a range: differs from what it was whenever any of the range has been mapped anew since. */
uint64_t generation_newest(const struct arena *arena, uintptr_t start, size_t size);

#endif
