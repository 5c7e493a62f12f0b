/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Moves. A thread that takes memory out of a heap, or out of a store's unmapped pieces, to map,
 * unmap or release it, holds the arena's `moving` shared until the memory is back in one of these.
 * So does a request that takes free memory of another pool, until it has the block. So a thread
 * that holds `moving` alone finds all memory in its place. The caller holds no other lock, except
 * for a try, which does not wait. */
#ifndef TARN_MEMORY_MOVES_H
#define TARN_MEMORY_MOVES_H

#include "base/thread/lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct arena;

/* What stillness_begin() notes, so that was_still() can tell whether another thread has moved
 * memory since then. */
struct stillness {
    uint64_t begun; /* the arena's `moves.begun` at the beginning */
    uint64_t own;   /* moves that this thread had begun by then */
    bool still;     /* no move was in progress then */
};

/* The moves of an arena's memory. */
struct moves {
    /* Shared by code that moves memory. Exclusive for code during which no memory may move. Taken
     * before every other lock. */
    shared_lock moving;
    atomic_uint_fast64_t begun, ended; /* how many, ever; equal: none is in progress */
};

void move_begin(struct arena *arena);
bool move_try(struct arena *arena);
/* Takes `moving` alone: no other thread moves memory until move_end(). */
void move_begin_alone(struct arena *arena);
/* The same, by `until` (base/thread/clock.h). False: another thread moves memory alone, or, for the
 * second, other threads move memory. */
bool move_begin_by(struct arena *arena, uint64_t until);
bool move_begin_alone_by(struct arena *arena, uint64_t until);
void move_end(struct arena *arena);

/* Waits until all moves that are in progress now have ended. */
void moves_flush(struct arena *arena);

/* Whether no other thread has moved memory of the arena since then. False too if this thread may
 * have watched another arena meanwhile. */
struct stillness stillness_begin(struct arena *arena);
bool was_still(struct arena *arena, const struct stillness *since);

#endif
