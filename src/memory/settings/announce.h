/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Announcing each block to a tool that checks what kernels touch. Only the driver's plain segments are announced, and the blocks
 * in them: a tool that watches allocations knows no other. While somebody is told, every block takes the slow path. */
#ifndef TARN_MEMORY_ANNOUNCE_H
#define TARN_MEMORY_ANNOUNCE_H

#include <stddef.h>
#include <stdint.h>
#include <tarn/memory.h>

/* What is told, with no lock held. Addresses and sizes are those that a caller has: a block of 100 bytes has 100. */
struct announcer {
    /* A segment is there, before any of it is handed out; it is about to go back to the driver, with no block in it. */
    void (*segment)(uintptr_t start, size_t size, const uint64_t pool[2], int device);
    void (*segment_gone)(uintptr_t start);
    /* A block was handed out; has grown in place; is about to be freed. */
    void (*block)(uintptr_t start, size_t size, const uint64_t pool[2], tarn_tag tag);
    void (*block_resized)(uintptr_t start, size_t size);
    void (*block_gone)(uintptr_t start);
};

/* NULL: nobody is told. Set before the first use of memory. */
extern const struct announcer *announcer;

#endif
