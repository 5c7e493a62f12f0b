/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Moves. A thread that takes memory out of a heap, or out of the unmapped pieces of a store, to
 * map, unmap or release it, holds the arena's `moving` shared until the memory is back in one of
 * these. So a thread that holds `moving` alone finds all memory in its place. No other lock is held
 * while these functions wait; a try does not wait. */
#ifndef TARN_MEMORY_MOVES_H
#define TARN_MEMORY_MOVES_H

#include "memory/arena/arena.h"

void move_begin(struct arena *arena);
bool move_try(struct arena *arena);
/* The same with nobody else moving anything. */
void move_begin_alone(struct arena *arena);
void move_end(struct arena *arena);

/* After it, whoever moves memory has begun to after the call. */
void moves_flush(struct arena *arena);

/* Nobody moves memory until moves_unbar(); false where somebody does now. */
bool moves_bar_try(struct arena *arena);
void moves_unbar(struct arena *arena);

/* What tells whether another thread was moving memory at any time since. */
struct stillness {
    uint64_t begun, own;
    bool still;
};
struct stillness stillness_begin(struct arena *arena);
bool was_still(struct arena *arena, const struct stillness *since);

#endif
