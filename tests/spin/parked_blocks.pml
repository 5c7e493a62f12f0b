/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What is known of a heap beside blocks that are parked without its lock (src/memory/heap/parked.h,
 * sums.c): a thread that allocates and frees one block, by the short lock of the heap's part or by
 * the heap's lock, and another that looks for memory, takes it, and notes that the heap is bare.
 *
 * What a thread does under the part's lock is several steps, because the zone's state also changes
 * under the heap's lock alone.
 *
 * A bare heap has no free memory and parks no block, so a search that passes it over misses
 * nothing; a block is parked at most once.
 *
 * check bare: all of that
 * long bare-long -DROUNDS=5
 * fault FAULT_UNLOCKED: the new state of a zone comes without the part's lock
 * fault FAULT_FLUSHED_FIRST: parked blocks are flushed before the zone has a new state
 * fault FAULT_NO_STATE: the zone keeps its state
 * fault FAULT_NOT_FLUSHED: parked blocks stay parked
 * fault FAULT_SILENT: a free span leaves the heap bare
 */

#ifndef ROUNDS
#define ROUNDS 3 /* of each thread */
#endif

bit heap_lock, part_lock;
byte state, states;  /* the zone's, and the highest number */
byte before, after;  /* the block's */
bit live, parked, freed; /* the block: handed out; parked; a free span */
bit bare;

#define LOCK(lock) atomic { !lock -> lock = 1 }
#define UNLOCK(lock) lock = 0

/* zones_change_locked(), state_is_new_locked() */
inline state_is_new() { states++; state = states }
inline zones_change()
{
#ifdef FAULT_NO_STATE
    skip
#else
#ifndef FAULT_UNLOCKED
    LOCK(part_lock);
#endif
    state_is_new();
#ifndef FAULT_UNLOCKED
    UNLOCK(part_lock)
#endif
#endif
}

/* span_give_locked(): under the heap's lock */
inline span_give()
{
    assert(!freed && !live && !parked);
    freed = 1;
    state_is_new();
#ifndef FAULT_SILENT
    bare = 0;
#endif
}

/* parked_give_back_locked() */
inline kept_flush(was)
{
    LOCK(part_lock);
    if
    :: parked -> parked = 0; UNLOCK(part_lock); was = state; span_give(); state = was
    :: else -> UNLOCK(part_lock)
    fi
}

proctype user()
{
    byte round, was;
    for (round : 1 .. ROUNDS) {
        /* parked_take() */
        LOCK(part_lock);
        if
        :: parked && state == before -> parked = 0; state = after; live = 1
        :: else
        fi;
        UNLOCK(part_lock);
        if
        :: live
        :: else ->
            LOCK(heap_lock);
            kept_flush(was);
            if
            :: freed -> freed = 0 /* span_take_locked() */
            :: else /* growth: the memory comes and is cut at once */
            fi;
            bare = 0;
            before = state;
            state_is_new();
            after = state;
            live = 1;
            UNLOCK(heap_lock)
        fi;
        /* parked_give() */
        LOCK(part_lock);
        if
        :: state == after -> live = 0; state = before; assert(!parked); parked = 1
        :: else
        fi;
        UNLOCK(part_lock);
        if
        :: live ->
            LOCK(heap_lock);
            live = 0;
            span_give();
            UNLOCK(heap_lock)
        :: else
        fi
    }
}

/* heap_collect(), heap_shed(), heap_bare_locked() */
proctype searcher()
{
    byte round, was;
    for (round : 1 .. ROUNDS) {
        LOCK(heap_lock);
        kept_flush(was);
        if
        :: freed -> freed = 0; state_is_new()
        :: else
        fi;
        UNLOCK(heap_lock);
        LOCK(heap_lock);
#ifdef FAULT_FLUSHED_FIRST
        kept_flush(was);
        zones_change();
#else
        zones_change();
#ifndef FAULT_NOT_FLUSHED
        kept_flush(was);
#endif
#endif
        if
        :: !freed -> bare = 1
        :: else
        fi;
        UNLOCK(heap_lock)
    }
}

/* Whoever holds both locks sees what is so between two steps. */
proctype reader()
{
    atomic { !heap_lock && !part_lock -> assert(!bare || (!parked && !freed)) }
}

init { atomic { run user(); run searcher(); run reader() } }
