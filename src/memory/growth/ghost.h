/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ghosts: addresses that a heap has left behind.
 *
 * A piece that is free in the order of its stream, but not idle, is mapped a second time where it
 * is wanted, if the device allows it. The stream's later work finds it there; its earlier work
 * still uses it at the old addresses. The old addresses belong to no run any more. They stay mapped
 * and claimed, as a ghost, until the batch that they were freed in is idle. */
#ifndef TARN_MEMORY_GHOST_H
#define TARN_MEMORY_GHOST_H

#include "memory/heap/heap.h"

struct ghost {
    struct ghost *next;
    uintptr_t start;
    size_t size;    /* bytes, whole mappings */
    uint64_t batch; /* idle: nothing uses the addresses any more */
};

/* NULL with an error text when the host is out of memory. Destroying NULL is fine. */
struct ghost *ghost_create(void);
void ghost_destroy(struct ghost *ghost);

/* Makes addresses of the heap a ghost, the fresh one given. */
void ghost_begin_locked(struct heap *heap, struct ghost *ghost, uintptr_t start, size_t size,
                        uint64_t batch);

/* Takes the idle ghosts out of the heap, to be given to ghosts_end(); none while the store is
 * suspended, since a suspend ends them before the memory goes. And all of them, for code that has
 * waited for the work of the heap's stream since the last one began. */
struct ghost *ghosts_take_locked(struct heap *heap);
struct ghost *ghosts_take_all_locked(struct heap *heap);
/* Unmaps and unclaims them, without the lock. Those that the driver does not unmap come back; gives
 * the first failure. */
tarn_status ghosts_end(struct heap *heap, struct ghost *ghosts);

#endif
