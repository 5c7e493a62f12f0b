/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sequences of requests, the same for every allocator. */
#ifndef BENCH_ALLOC_SEQUENCE_H
#define BENCH_ALLOC_SEQUENCE_H

#include <stddef.h>
#include <stdint.h>

#define RANDOM_SLOTS 256
#define LARGE ((size_t)1 << 20) /* bytes: from here on a sequence is shorter */

/* One request: allocates into a slot that is empty, frees what a full one holds. */
struct step {
    size_t size;
    uint32_t slot;
};

struct sequence {
    char name[64];
    struct step *steps;
    size_t count, slots;
};

/* Allocation, free, allocation, free of one size. */
struct sequence sequence_pairs(size_t size);
/* The same, with one more block of that size that stays. */
struct sequence sequence_held(size_t size);
/* Random slots of 256: one that is empty is filled with 512 B, 4 KiB or 64 KiB, one that is full is
 * emptied. */
struct sequence sequence_random(void);
/* The same with blocks of 256 KiB to 32 MiB. */
struct sequence sequence_random_large(void);
/* The requests of a PyTorch snapshot's longest trace, in its order; without steps where it has
 * none. */
struct sequence sequence_of_trace(const char *path);
void sequence_finish(struct sequence *sequence);

#endif
