/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns each arena's lock `moving`, and the counts of moves that have begun and ended under it. */
#include "memory/arena/moves.h"
#include "base/thread/clock.h"
#include "memory/arena/arena.h"

/* The device that this thread watches, the last one for which it called stillness_begin(), and how
 * many moves the thread has begun there since then. Watching another device starts at 0 again. So
 * the number may be too low, and was_still() then takes a move of the thread for another thread's,
 * but never the other way round. Small, because all libraries share little room for variables of
 * threads (tests/build/test_life.sh). */
static _Thread_local struct {
    uint32_t device; /* its number and 1; 0: none */
    uint32_t moves;
} own;

static bool watches(const struct arena *arena)
{
    return own.device == (uint32_t)arena->device->number + 1;
}

static void count(struct arena *arena)
{
    atomic_fetch_add(&arena->moves.begun, 1);
    own.moves += watches(arena);
}

void move_begin(struct arena *arena)
{
    shared_lock_shared(&arena->moves.moving);
    count(arena);
}

bool move_try(struct arena *arena)
{
    if (!shared_try_shared(&arena->moves.moving))
        return false;
    count(arena);
    return true;
}

void move_begin_alone(struct arena *arena)
{
    shared_lock_alone(&arena->moves.moving);
    count(arena);
}

/* Takes `moving` by `until`, which is a bound. */
static bool take_by(struct arena *arena, bool alone, uint64_t until)
{
    for (uint64_t ns = PAUSE_LEAST_NS;; ns = pause_after(ns)) {
        if (alone ? shared_try_alone(&arena->moves.moving)
                  : shared_try_shared(&arena->moves.moving))
            break;
        if (clock_is_past(until))
            return false;
        clock_pause(ns);
    }
    count(arena);
    return true;
}

bool move_begin_by(struct arena *arena, uint64_t until)
{
    if (until != UNTIL_ENDED)
        return take_by(arena, false, until);
    move_begin(arena);
    return true;
}

bool move_begin_alone_by(struct arena *arena, uint64_t until)
{
    if (until != UNTIL_ENDED)
        return take_by(arena, true, until);
    move_begin_alone(arena);
    return true;
}

void move_end(struct arena *arena)
{
    atomic_fetch_add(&arena->moves.ended, 1);
    shared_unlock(&arena->moves.moving);
}

void moves_flush(struct arena *arena)
{
    move_begin_alone(arena);
    move_end(arena);
}

struct stillness stillness_begin(struct arena *arena)
{
    if (!watches(arena)) {
        own.device = (uint32_t)arena->device->number + 1;
        own.moves = 0;
    }
    struct stillness since = {.own = own.moves};
    uint64_t ended = atomic_load(&arena->moves.ended);
    since.begun = atomic_load(&arena->moves.begun);
    since.still = ended == since.begun;
    return since;
}

bool was_still(struct arena *arena, const struct stillness *since)
{
    uint64_t moves = (watches(arena) ? own.moves : 0) - since->own;
    return since->still && atomic_load(&arena->moves.begun) - since->begun == moves;
}
