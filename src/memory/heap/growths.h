/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the growths of a heap have done so far. The next growth decides by it (growth/growth.c). */
#ifndef TARN_MEMORY_GROWTHS_H
#define TARN_MEMORY_GROWTHS_H

#include <stdbool.h>
#include <stddef.h>

/* A member of the heap, under its lock. All fields are 0 when the heap begins a new life, and when
 * it has given up all its memory. */
struct growths {
    /* Bytes that growths created, or took from the unmapped pieces of the store. */
    size_t gained;
    /* Bytes that growths moved within the heap, or borrowed from heaps of other streams. */
    size_t moved;
    size_t returned; /* bytes of the large zone's blocks that were freed */
    /* Bytes that other heaps took from this one since its last growth that did more than move
     * memory within the heap. */
    size_t lent;
    /* Such growths while `lent` was not 0, at most REGRETS_MOST: they created memory, took
     * unmapped pieces or borrowed. */
    unsigned regrets;
    /* Large blocks too go where they hold fewer pieces in place; each growth decides. */
    bool saves;
};

#endif
