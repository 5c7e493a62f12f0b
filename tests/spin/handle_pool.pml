/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Who has which handle (src/handle/handle.c, supply.c, lease.c): threads that get handles of one library on one device, end, and come again; leases, which
 * any thread may return, one of them twice; a stream that is retired, after which a handle must be bound anew; a trim; and the
 * shutdown. A create may fail.
 *
 * What a thread does under the pool's lock is one step: nobody else touches it. Each step is sequentially consistent, as the code's are; the shutdown's look at `busy` is after its change of the process's state,
 * which the fault FAULT_BUSY_LOOKED_EARLY turns round: an acquiring load could.
 *
 * A handle has one owner, none is destroyed while somebody has it or calls with it, none is lost, counts are exact, the first
 * create runs alone, no thread gets a handle that is bound to a retired stream; no deadlock.
 *
 * check trim -DTRIM: all of that, while a trim runs
 * check retire -DRETIRE: while a stream is retired
 * check shutdown -DSHUTDOWN: while tarn is shut down
 * check all -DTRIM -DRETIRE -DSHUTDOWN -DROUNDS=1: while any of these happen
 * long trim-wide -DTRIM -DROUNDS=3
 * long retire-wide -DRETIRE -DROUNDS=3
 * long shutdown-wide -DSHUTDOWN -DROUNDS=3
 * fault FAULT_GIVEN_BACK_UNLOCKED: a handle is pushed without the pool's lock
 * fault FAULT_HELD_AFTER_END: an ending thread gives its handle back and leaves it in the slot
 * fault FAULT_TRIM_READS -DTRIM: a trim reads the list under the lock and takes it afterwards
 * fault FAULT_TRIM_TAKES_ALL -DTRIM: a trim takes every handle that exists
 * fault FAULT_BUSY_LOOKED_EARLY -DSHUTDOWN: the shutdown looks whether calls are on their way before it changes the state
 * fault FAULT_STATE_FIRST -DSHUTDOWN: a call asks whether the process runs before it is counted
 * fault FAULT_NO_WAIT -DSHUTDOWN: the shutdown does not wait for calls
 * fault FAULT_CHANGES_LATE -DRETIRE: a get notes the number of changes after it has bound
 * fault FAULT_CHANGES_EARLY -DRETIRE: a retirement says that something changed before it does
 * fault FAULT_FIRST_TOGETHER: the first create does not keep others waiting
 * fault FAULT_FIRST_SILENT: a first create that fails wakes nobody
 * fault FAULT_LEASE_UNCLAIMED: a return looks whether the lease is valid and does not take it away
 */

#ifndef USERS
#define USERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* of each user: gets, ends, leases, returns */
#endif
#ifndef FAILURES
#define FAILURES 1 /* creates that fail */
#endif
#ifndef HANDLES
#define HANDLES (USERS + 2)
#endif
#define NOBODY 255
#define LEASED 100 /* the owner of a leased handle */

/* struct handle; index 0 is none. */
bit exists[HANDLES + 1], available[HANDLES + 1];
byte bound[HANDLES + 1]; /* the generation of the stream that the vendor was told */
byte lease[HANDLES + 1];
byte owner[HANDLES + 1] = NOBODY; /* what the program knows */
byte calls[HANDLES + 1];          /* into the vendor's library, with this handle, now */

/* struct handle_pool. */
mtype = { FIRST_TO_COME, FIRST_UNDER_WAY, FIRST_DONE };
mtype first = FIRST_TO_COME;
byte broadcasts;
byte in_use, free_count, created, destroyed;
byte creating;

/* A user's struct holder; its slot is the user's `held` and `slot_changes`. */
byte busy[USERS];
bit listed[USERS]; /* in the list of all holders */

/* The process. */
bit shut;          /* process_state */
byte changes = 1;  /* process_changes */
byte generation;   /* of the stream */
byte retired;      /* the generation that a caller knows to be over: tarn_stream_retire() has returned */
byte leases;       /* lease_numbers */
bit leased;                /* one lease is made */
byte given, given_number; /* a lease that lies where any user may return it */
byte failures;
bit trimming;      /* a trim is a call too: the shutdown waits for it */
bit is_shut_down;  /* tarn_shutdown() has destroyed what it will */
byte alive = USERS + 2;

/* Whoever gives the pool's lock up leaves counts that agree. */
inline mutex_unlock()
{
    n = 0;
    for (h : 1 .. HANDLES) {
        n = n + available[h]
    }
    assert(n == free_count);
    n = 0; h = 0
}

/* call_begin(): `began` says how it went. */
inline call_begin()
{
    listed[me] = 1; /* holder_make() */
#ifdef FAULT_STATE_FIRST
    began = !shut;
    busy[me]++;
#else
    busy[me]++;
    began = !shut;
#endif
    if
    :: !began -> busy[me]--
    :: else
    fi
}

inline call_end()
{
    busy[me]--
}

/* pop_locked(). */
inline pop_locked()
{
    handle = 0;
    if
    :: free_count ->
       do
       :: handle++;
          if
          :: available[handle] -> break
          :: else
          fi
       od;
       available[handle] = 0;
       free_count--;
       in_use++
    :: else
    fi
}

/* The new owner is the only one. */
inline own(who)
{
    if
    :: handle -> assert(exists[handle] && owner[handle] == NOBODY); owner[handle] = who
    :: else
    fi
}

/* create_relocking(), up to where it gives the lock up. */
inline create_begin_locked()
{
    alone = first == FIRST_TO_COME;
    if
#ifdef FAULT_FIRST_TOGETHER
    :: false
#else
    :: alone -> first = FIRST_UNDER_WAY
#endif
    :: else
    fi;
    creating++;
    assert(first == FIRST_DONE || creating == 1)
}

/* vendor_create(): `handle`, or 0 where it failed. */
inline vendor_create()
{
    assert(!is_shut_down);
    if
    :: failures < FAILURES -> failures++
    :: do
       :: handle++;
          if
          :: !exists[handle] -> break
          :: else
          fi
       od;
       exists[handle] = 1;
       lease[handle] = 0;
       bound[handle] = 0
    fi
}

/* The rest of create_relocking(), and of pool_take() after it. */
inline create_end_locked()
{
    creating--;
    if
    :: alone && handle -> first = FIRST_DONE
    :: alone && !handle -> first = FIRST_TO_COME
    :: else
    fi;
    if
#ifdef FAULT_FIRST_SILENT
    :: alone && handle -> broadcasts++
#else
    :: alone -> broadcasts++
#endif
    :: else
    fi;
    if
    :: handle -> created++; in_use++
    :: else
    fi;
    alone = 0
}

/* pool_take(): `handle`, or 0. may_create() is asked with the lock given up, so that the pool is looked at again. */
inline pool_take(who)
{
    atomic { pop_locked(); mutex_unlock(); own(who) }
    do
    :: handle || failed -> failed = 0; break
    :: else ->
       atomic {
           pop_locked();
           if
           :: handle -> skip
           :: !handle && first == FIRST_UNDER_WAY -> seen = broadcasts; waits = 1 /* pthread_cond_wait() at `first_over` */
           :: else -> create_begin_locked(); creates = 1
           fi;
           mutex_unlock();
           own(who)
       }
       if
       :: waits -> atomic { broadcasts != seen -> waits = 0; seen = 0; pop_locked(); mutex_unlock(); own(who) }
       :: creates ->
          atomic { creates = 0; vendor_create() }
          atomic { create_end_locked(); failed = !handle; mutex_unlock(); own(who) }
       :: else
       fi
    od
}

/* handle_give_back(). */
inline handle_give_back(which)
{
    atomic { assert(exists[which] && owner[which] != NOBODY && calls[which] == 0); owner[which] = NOBODY }
#ifdef FAULT_GIVEN_BACK_UNLOCKED
    number = free_count;
    atomic { free_count = number + 1; number = 0; in_use--; lease[which] = 0; available[which] = 1 }
#else
    atomic { in_use--; free_count++; lease[which] = 0; available[which] = 1; mutex_unlock() }
#endif
}

/* vendor_bind(), by the owner. */
inline vendor_bind(to)
{
    d_step { assert(exists[handle] && calls[handle] == 0 && !is_shut_down); calls[handle]++; bound[handle] = to }
    d_step { assert(exists[handle]); calls[handle]-- }
}

/* tarn_handle_get(): the hit; then get_slowly() and handle_of_thread(). */
inline get()
{
    known = retired;
    if
    :: held && slot_changes == changes -> handle = held
    :: else ->
       call_begin();
       if
       :: began ->
          seen_changes = changes;
          slot_changes = 0;
          seen_generation = generation;
          handle = held;
          if
          :: !handle ->
             pool_take(me);
             held = handle
          :: else
          fi;
          if
          :: handle ->
             vendor_bind(seen_generation);
#ifdef FAULT_CHANGES_LATE
             seen_changes = changes;
#endif
             slot_changes = seen_changes
          :: else
          fi;
          seen_changes = 0; seen_generation = 0;
          call_end()
       :: else -> handle = 0
       fi
    fi;
    if
    :: handle -> d_step { assert(exists[handle] && owner[handle] == me); assert(bound[handle] >= known) }
    :: else
    fi;
    handle = 0; known = 0; began = 0
}

/* handles_thread_end(); the next thread takes the holder over. */
inline end_thread()
{
    if
    :: listed[me] ->
       busy[me]++;
       slot_changes = 0;
       handle = held;
#ifndef FAULT_HELD_AFTER_END
       held = 0;
#endif
       if
       :: handle -> handle_give_back(handle); handle = 0
       :: else
       fi;
       call_end()
    :: else
    fi
}

/* tarn_handle_lease(). */
inline make_lease()
{
    call_begin();
    if
    :: began ->
       pool_take(LEASED);
       if
       :: handle ->
          vendor_bind(generation);
          atomic { leases++; number = leases }
          lease[handle] = number;
          atomic { given = handle; given_number = number; number = 0; handle = 0 }
       :: else
       fi;
       call_end()
    :: else
    fi;
    began = 0
}

/* tarn_handle_return(): what lies there is left there, so that it may be returned again. */
inline return_lease()
{
    atomic { handle = given; claimed = given_number }
    if
    :: handle ->
       call_begin();
       atomic { /* lease_claim() */
           matches = lease[handle] == claimed;
           if
#ifdef FAULT_LEASE_UNCLAIMED
           :: false
#else
           :: matches -> lease[handle] = 0
#endif
           :: else
           fi
       }
       if
       :: matches -> handle_give_back(handle)
       :: else
       fi;
       if
       :: began -> call_end()
       :: else
       fi;
       began = 0; matches = 0
    :: else
    fi;
    handle = 0; claimed = 0
}

proctype user(byte me)
{
    byte handle, seen, seen_changes, seen_generation, known, number, claimed, round, n, h;
    byte held, slot_changes;
    bit began, alone, matches, waits, creates, failed;
    do
    :: round < ROUNDS ->
       round++;
       if
       :: get()
       :: end_thread()
       :: atomic { me == 0 && !leased -> leased = 1 }; make_lease()
       :: given -> return_lease()
       fi
    :: else -> break
    od;
    end_thread();
    alive--
}

/* detach_available(), then handles_destroy() with no lock. */
inline trim_pool()
{
#ifdef FAULT_TRIM_READS
    d_step {
        for (h : 1 .. HANDLES) {
            gone[h] = available[h]
        }
        h = 0
    }
#endif
    d_step {
        for (h : 1 .. HANDLES) {
#if defined(FAULT_TRIM_TAKES_ALL)
            gone[h] = exists[h];
#elif !defined(FAULT_TRIM_READS)
            gone[h] = available[h];
#endif
            available[h] = 0
        }
        destroyed = destroyed + free_count;
        free_count = 0;
        h = 0
    }
    g = 1;
    do
    :: g <= HANDLES && gone[g] ->
       d_step { assert(exists[g] && owner[g] == NOBODY && calls[g] == 0) } /* vendor_destroy() */
       d_step { exists[g] = 0; gone[g] = 0; g++ }
    :: g <= HANDLES && !gone[g] -> g++
    :: else -> g = 0; break
    od
}

/* Another thread: tarn_stream_retire() and the stream's next life, or tarn_handle_trim(), which is a call too. */
proctype other()
{
    byte h, g;
    bit gone[HANDLES + 1];
    if
#ifdef TRIM
    :: atomic { !shut -> trimming = 1 }; trim_pool(); trimming = 0
#endif
#ifdef RETIRE
    :: true ->
#ifdef FAULT_CHANGES_EARLY
       changes++;
       generation++;
#else
       generation++;
       changes++;
#endif
       retired = generation
#endif
    :: true
    fi;
    alive--
}

/* wait_for_calls(): the holders that there are now, one after the other. */
inline wait_for_calls()
{
    d_step {
        for (h : 0 .. USERS - 1) {
            seen[h] = listed[h]
        }
        h = 0
    }
    do
    :: h < USERS -> (!seen[h] || busy[h] == 0); h++
    :: else -> h = 0; break
    od;
    trimming == 0
}

active proctype shutdown()
{
    byte h, n, m, g;
    bit gone[HANDLES + 1], seen[USERS];
    atomic {
        do
        :: h < USERS -> run user(h); h++
        :: else -> h = 0; break
        od;
        run other()
    }
#ifndef SHUTDOWN
    alive == 1; /* after everything else */
#endif
#ifdef FAULT_BUSY_LOOKED_EARLY
    wait_for_calls();
    atomic { shut = 1; changes++ }
#else
    atomic { shut = 1; changes++ } /* process_begin_shutdown() */
#ifndef FAULT_NO_WAIT
    wait_for_calls();
#endif
#endif
    trim_pool();
    is_shut_down = 1;
    alive--;
    /* At rest: what exists is somebody's or nobody's, and counted so. */
    alive == 0;
    d_step {
        n = 0; m = 0; g = 0;
        for (h : 1 .. HANDLES) {
            n = n + (exists[h] && owner[h] != NOBODY);
            m = m + (exists[h] && available[h]);
            g = g + exists[h];
            assert(!(available[h] && owner[h] != NOBODY))
        }
        assert(n == in_use);
        assert(m == free_count);
        assert(g == n + m);
        assert(created - destroyed == g)
    }
}
