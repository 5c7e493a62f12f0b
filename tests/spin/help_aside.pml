/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Heaps of pools that help out, beside holds that begin and end without a lock
 * (src/memory/heap/help.c): a search that sets the heap of a held pool aside, two holders that end
 * their holds, and the pool's end. The search and the end of the pool run under the arena's lock,
 * one step at a time otherwise.
 *
 * After all holds have ended, the next search finds the heap, unless the pool has ended. The stack
 * never leads to a pool that is gone.
 *
 * check aside: all of that
 * long aside-long -DROUNDS=4
 * fault FAULT_NOT_ASKED_AGAIN: the search does not read the holds again after it has set aside
 * fault FAULT_READ_FIRST: the end of a hold reads whether heaps are aside before the hold ends
 * fault FAULT_RESET_LATE: a store is put on the stack again only after its holds were read
 * fault FAULT_UNVISITED: the end of a hold does not keep the pool
 * fault FAULT_NOT_DRAINED: the pool ends while it is on the stack
 */

#ifndef ROUNDS
#define ROUNDS 2 /* of each holder */
#endif

bit lock;
byte holds, visits; /* of the pool */
bit listed = 1;     /* the heap's offers are in the index */
bit aside, told;    /* of the store */
bit stacked;        /* the store is on the stack */
bit gone;
byte ended; /* holders whose last hold has ended */
byte done;  /* holders that have returned */

#define LOCK atomic { !lock -> lock = 1 }
#define UNLOCK lock = 0

inline put_back() { aside = 0; listed = 1 }

/* help_return_locked() */
inline returns(popped)
{
    atomic { popped = stacked; stacked = 0 }
    if
    :: popped ->
        assert(!gone);
#ifdef FAULT_RESET_LATE
        if
        :: holds == 0 -> put_back()
        :: else
        fi;
        told = 0
#else
        told = 0;
        if
        :: holds == 0 -> put_back()
        :: else
        fi
#endif
    :: else
    fi
}

/* help_next_locked() */
inline search(popped)
{
    returns(popped);
    if
    :: listed && holds > 0 ->
        listed = 0;
        aside = 1;
#ifndef FAULT_NOT_ASKED_AGAIN
        if
        :: holds == 0 -> put_back()
        :: else
        fi
#endif
    :: else
    fi
}

proctype holder()
{
    byte round;
    bit was;
    for (round : 1 .. ROUNDS) {
        holds++; /* while the caller has the pool */
        /* pool_hold_drop(), help_tell() */
#ifndef FAULT_UNVISITED
        visits++;
#endif
#ifdef FAULT_READ_FIRST
        was = aside;
        holds--;
#else
        holds--;
        if
        :: round == ROUNDS -> ended++
        :: else
        fi;
        was = aside;
#endif
        if
        :: was ->
            atomic { was = told; told = 1 }
            if
            :: !was -> assert(!gone); stacked = 1
            :: else
            fi
        :: else
        fi;
#ifdef FAULT_READ_FIRST
        if
        :: round == ROUNDS -> ended++
        :: else
        fi;
#endif
#ifndef FAULT_UNVISITED
        visits--
#endif
    }
    done++
}

proctype searcher()
{
    byte round;
    bit popped;
    for (round : 1 .. ROUNDS) {
        LOCK;
        if
        :: !gone -> search(popped)
        :: else
        fi;
        UNLOCK
    }
}

/* unlink_store(): only after the last hold, since each has a reference */
proctype ender()
{
    bit popped;
    LOCK;
    if
    :: ended == 2 && holds == 0 && visits == 0 ->
#ifndef FAULT_NOT_DRAINED
        returns(popped);
#endif
        gone = 1;
        assert(!stacked)
    :: else
    fi;
    UNLOCK
}

/* The last search of all. */
proctype last()
{
    bit popped;
    done == 2;
    LOCK;
    if
    :: !gone ->
        search(popped);
        assert(listed)
    :: else
    fi;
    UNLOCK
}

init { atomic { run holder(); run holder(); run searcher(); run ender(); run last() } }
