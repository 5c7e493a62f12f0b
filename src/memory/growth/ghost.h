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

/* A range of old addresses. The heap's lock protects a ghost in the heap's list. A ghost that was
 * taken out of the list belongs to the thread that took it. */
struct ghost {
    struct ghost *next;
    uintptr_t start;
    size_t size;    /* bytes, whole mappings */
    uint64_t batch; /* once this batch of the heap is idle, no work uses the addresses any more */
};

/* Creates a ghost for ghost_begin_locked(). NULL with an error text if the host has no memory.
 * Destroying NULL is allowed. */
struct ghost *ghost_create(void);
void ghost_destroy(struct ghost *ghost);

/* Puts a fresh ghost, which ghost_create() made, into the heap's list. It stands for the given
 * addresses from now on. */
void ghost_begin_locked(struct heap *heap, struct ghost *ghost, uintptr_t start, size_t size,
                        uint64_t batch);

/* Takes the idle ghosts out of the heap's list. The caller passes them to ghosts_end(). While the
 * store is suspended there are none to take: the suspend has ended them. */
struct ghost *ghosts_take_locked(struct heap *heap);
/* The same with all ghosts. For code that has waited for the stream's work since the newest ghost
 * began, so that all of them are idle. */
struct ghost *ghosts_take_all_locked(struct heap *heap);
/* Unmaps the addresses of ghosts that were taken out, gives up the claim to them, and destroys the
 * ghosts. Called without the heap's lock, which it takes to put a ghost back that the driver does
 * not unmap. Returns the first failure. */
tarn_status ghosts_end(struct heap *heap, struct ghost *ghosts);

#endif
