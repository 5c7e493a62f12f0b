/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Announcing each block to a tool that checks what kernels touch. Only the driver's plain segments are announced, and the blocks
 * in them: a tool that watches allocations knows no other memory. While there is a receiver, every block takes the slow path. */
#ifndef TARN_MEMORY_ANNOUNCE_H
#define TARN_MEMORY_ANNOUNCE_H

#include <stddef.h>
#include <stdint.h>
#include <tarn/memory.h>

/* The receiver's functions, called with no lock held. Addresses and sizes are the caller's: a block of 100 bytes has size 100. */
struct announcer {
    /* A segment was allocated, before any of it is handed out; a segment without blocks is about to go back to the driver. */
    void (*segment)(uintptr_t start, size_t size, const uint64_t pool[2], int device);
    void (*segment_gone)(uintptr_t start);
    /* A block was handed out; has grown in place; is about to be freed. */
    void (*block)(uintptr_t start, size_t size, const uint64_t pool[2], tarn_tag tag);
    void (*block_resized)(uintptr_t start, size_t size);
    void (*block_gone)(uintptr_t start);
};

/* NULL: there is no receiver. Set before the first use of memory. */
extern const struct announcer *announcer;

#endif
