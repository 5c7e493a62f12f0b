/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The taking of a cache from its thread (src/memory/heap/cache.h, cache.c): the owner's fast path pays two plain stores and a load,
 * and whoever wants into the cache shuts the gate, has every processor pass a barrier, and waits until the cache is not busy.
 *
 * Memory is weaker than any processor's that tarn runs on: a thread's stores wait in a buffer of its own and reach memory in any
 * order, but those to one place, and but that a releasing store comes after all that were made before it. A load sees the
 * thread's own stores first. An acquiring load is in its place; a plain one that follows a plain one may be made before it (in
 * the faults that need that). membarrier() empties the buffers of the other threads, one after the other, at some moment of the
 * call. Where the system has none (ENTRY_IS_BARRIER), entry and taking are sequentially consistent: such a load waits for the
 * thread's own stores. A mutex's unlock is releasing, its lock acquiring.
 *
 * Left out: what a slab is. A free slot is in a magazine or at home, and who has taken the cache may give what is at home to
 * somebody else, as an empty slab that goes to the heap does.
 *
 * check safety: no slot is handed out twice or lost, none is handed out by its owner while others have it; counts are exact; no deadlock
 * check safety-entry-is-barrier -DENTRY_IS_BARRIER: the same where there is no membarrier
 * check progress -DPROGRESS: who waits for a busy cache gets it, though its owner never rests
 * long safety-wide -DROUNDS=7 -DTAKINGS=3
 * long safety-two-owners -DOWNERS=2 -DROUNDS=3 -DTAKINGS=1
 * long safety-entry-wide -DENTRY_IS_BARRIER -DROUNDS=7 -DTAKINGS=3
 * fault FAULT_NO_MEMBARRIER: the gate is shut and nothing more
 * fault FAULT_MEMBARRIER_FIRST: the barrier is passed before the gate is shut
 * fault FAULT_NO_WAIT: nobody waits until the cache is not busy
 * fault FAULT_BUSY_AFTER_GATE: the owner looks at the gate first and is busy then
 * fault FAULT_BUSY_NOT_RELEASED: cache_leave() is a relaxed store
 * fault FAULT_BUSY_NOT_ACQUIRED: the wait for a busy cache is a relaxed load
 * fault FAULT_GATE_NOT_ACQUIRED: the owner's look at the gate is a relaxed load
 * fault FAULT_GATE_NOT_RELEASED: the gate is opened by a relaxed store
 * fault FAULT_WAITS_BUSY: an owner that finds the gate shut stays busy while it waits for the lock
 * fault FAULT_GATE_STAYS_OPEN -DPROGRESS: the gate is not shut, so that the cache may be busy whenever somebody looks
 * fault FAULT_ENTRY_ACQUIRES -DENTRY_IS_BARRIER: without membarrier, acquiring loads in the places of sequentially consistent ones
 */

#ifndef OWNERS
#define OWNERS 1 /* threads with a cache each, of one heap */
#endif
#ifndef ROUNDS
#define ROUNDS 4 /* of each owner: a take or a give */
#endif
#ifndef TAKINGS
#define TAKINGS 2 /* how often their caches are taken */
#endif
#define SLOTS (OWNERS + 1)
#define LIMIT 2 /* slots in a magazine */

/* Places in memory, of each cache. */
#define BUSY 0
#define GATE 1 /* open: 1 */
#define TOP 2
#define COUNT 3 /* struct cache_counts: blocks taken, less those given */
#define ENTRY 4
#define PLACES (ENTRY + LIMIT)
#define place(owner, which) ((owner) * PLACES + (which))

#define TAKER OWNERS /* its number as a thread */
#define THREADS (OWNERS + 1)
#define DEPTH 6 /* of a buffer: the stores of one section */

byte memory[OWNERS * PLACES];
typedef buffer {
    byte count;
    byte where[DEPTH];
    byte what[DEPTH];
    bit releases[DEPTH];
}
buffer buffers[THREADS];

byte lock; /* heap->lock: who has it, plus 1 */
bit home[SLOTS];
byte has[SLOTS]; /* who was handed the slot: a thread plus 1 */
byte published;  /* the counters */
byte alive = THREADS;
bit waiting;

/* Memory ---------------------------------------------------------------------------------------------------------- */

inline store(thread, to, value, release)
{
    atomic {
        buffers[thread].count < DEPTH; /* else the processor waits */
        buffers[thread].where[buffers[thread].count] = to;
        buffers[thread].what[buffers[thread].count] = value;
        buffers[thread].releases[buffers[thread].count] = release;
        buffers[thread].count++
    }
}

/* Takes entry `i` out of a buffer and into memory. */
inline commit(thread, i)
{
    memory[buffers[thread].where[i]] = buffers[thread].what[i];
    k = i;
    do
    :: k + 1 < buffers[thread].count ->
       buffers[thread].where[k] = buffers[thread].where[k + 1];
       buffers[thread].what[k] = buffers[thread].what[k + 1];
       buffers[thread].releases[k] = buffers[thread].releases[k + 1];
       k++
    :: else -> break
    od;
    buffers[thread].count--;
    buffers[thread].where[buffers[thread].count] = 0;
    buffers[thread].what[buffers[thread].count] = 0;
    buffers[thread].releases[buffers[thread].count] = 0;
    k = 0
}

inline flush_now(thread)
{
    do
    :: buffers[thread].count -> commit(thread, 0)
    :: else -> break
    od
}

inline load(thread, from, result)
{
    d_step {
        result = memory[from];
        k = 0;
        do
        :: k < buffers[thread].count ->
           if
           :: buffers[thread].where[k] == from -> result = buffers[thread].what[k]
           :: else
           fi;
           k++
        :: else -> break
        od;
        k = 0
    }
}

#define differs(i, j) (buffers[thread].where[i] != buffers[thread].where[j])
#define may_pass(i) (buffers[thread].count > i && !buffers[thread].releases[i])

/* What a thread has stored reaches memory, some time, in some order. */
proctype storage(byte thread)
{
    byte k;
end:
    do
    :: atomic { buffers[thread].count -> commit(thread, 0) }
    :: atomic { may_pass(1) && differs(1, 0) -> commit(thread, 1) }
    :: atomic { may_pass(2) && differs(2, 0) && differs(2, 1) -> commit(thread, 2) }
    :: atomic { may_pass(3) && differs(3, 0) && differs(3, 1) && differs(3, 2) -> commit(thread, 3) }
    :: atomic { may_pass(4) && differs(4, 0) && differs(4, 1) && differs(4, 2) && differs(4, 3) -> commit(thread, 4) }
    :: atomic {
           may_pass(5) && differs(5, 0) && differs(5, 1) && differs(5, 2) && differs(5, 3) && differs(5, 4) -> commit(thread, 5)
       }
    od
}

inline mutex_lock(thread)
{
    atomic { lock == 0 -> lock = thread + 1 }
}

inline mutex_unlock(thread)
{
    atomic { buffers[thread].count == 0 -> lock = 0 }
}

/* The owner ------------------------------------------------------------------------------------------------------- */

/* cache_enter(): `entered` says how it went. */
inline cache_enter(me)
{
#ifdef FAULT_GATE_NOT_ACQUIRED
    load(me, place(me, TOP), top);
#endif
#ifdef FAULT_BUSY_AFTER_GATE
    load(me, place(me, GATE), entered);
    store(me, place(me, BUSY), 1, 0);
#else
    store(me, place(me, BUSY), 1, 0);
    load(me, place(me, GATE), entered);
#endif
#ifdef ENTRY_IS_BARRIER
    if
    :: entered ->
       store(me, place(me, BUSY), 1, 1); /* the exchange */
#ifndef FAULT_ENTRY_ACQUIRES
       buffers[me].count == 0; /* the load is sequentially consistent */
#endif
       load(me, place(me, GATE), entered)
    :: else
    fi;
#endif
#ifndef FAULT_WAITS_BUSY
    if
    :: !entered -> store(me, place(me, BUSY), 0, 1)
    :: else
    fi;
#endif
#ifndef FAULT_GATE_NOT_ACQUIRED
    load(me, place(me, TOP), top)
#endif
}

inline cache_leave(me)
{
#ifdef FAULT_BUSY_NOT_RELEASED
    store(me, place(me, BUSY), 0, 0)
#else
    store(me, place(me, BUSY), 0, 1)
#endif
}

inline count_one(me, change)
{
    load(me, place(me, COUNT), number);
    store(me, place(me, COUNT), number + change, 0)
}

/* The caller gets a slot, which nobody else has. */
inline hand_out(me, which)
{
    atomic {
        assert(has[which] == 0);
        has[which] = me + 1;
        mine++
    }
}

/* cache_take_fast(), `top` being loaded; then cache_take(). */
inline take(me)
{
    cache_enter(me);
    if
    :: entered && top ->
       load(me, place(me, ENTRY + top - 1), slot);
       store(me, place(me, TOP), top - 1, 0);
       hand_out(me, slot);
       count_one(me, 1);
       cache_leave(me)
    :: else ->
       if
       :: entered -> cache_leave(me)
       :: else
       fi;
       mutex_lock(me);
       load(me, place(me, TOP), top);
       if
       :: top -> /* slot_take_locked() */
          load(me, place(me, ENTRY + top - 1), slot);
          store(me, place(me, TOP), top - 1, 0);
          hand_out(me, slot);
          count_one(me, 1)
       :: else ->
          atomic {
              slot = 0;
              do
              :: slot < SLOTS && !home[slot] -> slot++
              :: else -> break
              od
          }
          if
          :: slot < SLOTS ->
             home[slot] = 0;
             hand_out(me, slot);
             count_one(me, 1);
             atomic { /* fill() */
                 slot = 0;
                 do
                 :: slot < SLOTS && !home[slot] -> slot++
                 :: else -> break
                 od
             }
             if
             :: slot < SLOTS ->
                home[slot] = 0;
                store(me, place(me, ENTRY), slot, 0);
                store(me, place(me, TOP), 1, 0)
             :: else
             fi
          :: else
          fi
       fi;
       mutex_unlock(me)
    fi
}

/* cache_give_fast(), and the slow path of a free. */
inline give(me)
{
    atomic {
        slot = 0;
        do
        :: has[slot] != me + 1 -> slot++
        :: else -> break
        od;
        has[slot] = 0;
        mine--
    }
    cache_enter(me);
    if
    :: entered && top < LIMIT ->
       store(me, place(me, ENTRY + top), slot, 0);
       store(me, place(me, TOP), top + 1, 0);
       count_one(me, -1);
       cache_leave(me)
    :: else ->
       if
       :: entered -> cache_leave(me)
       :: else
       fi;
       mutex_lock(me);
       home[slot] = 1; /* cache_give_locked() */
       count_one(me, -1);
       mutex_unlock(me)
    fi;
    slot = 0
}

proctype owner(byte me)
{
    byte top, slot, number, mine, round, k;
    bit entered;
    do
#ifdef PROGRESS
    :: mine < SLOTS -> take(me)
#else
    :: round < ROUNDS -> round++; take(me)
#endif
#ifdef PROGRESS
    :: mine -> give(me)
#else
    :: round < ROUNDS && mine -> round++; give(me)
    :: round == ROUNDS -> break
#endif
    od;
    alive--;
}

/* Anyone else ----------------------------------------------------------------------------------------------------- */

/* barrier_everywhere(). */
inline barrier_everywhere()
{
#if defined(FAULT_NO_MEMBARRIER) || defined(ENTRY_IS_BARRIER)
    skip
#else
    atomic { flush_now(TAKER) }
    o = 0;
    do
    :: o < OWNERS -> atomic { flush_now(o); o++ }
    :: else -> break
    od;
    o = 0
#endif
}

/* revoke_locked(). */
inline revoke_locked()
{
#ifdef FAULT_MEMBARRIER_FIRST
    barrier_everywhere();
#endif
    o = 0;
    do
#ifdef FAULT_GATE_STAYS_OPEN
    :: o < OWNERS -> o++
#else
    :: o < OWNERS -> store(TAKER, place(o, GATE), 0, 1); o++
#endif
    :: else -> o = 0; break
    od;
#ifndef FAULT_MEMBARRIER_FIRST
    barrier_everywhere();
#endif
#if defined(ENTRY_IS_BARRIER) && !defined(FAULT_ENTRY_ACQUIRES)
    buffers[TAKER].count == 0; /* the load is sequentially consistent */
#endif
#ifdef FAULT_BUSY_NOT_ACQUIRED
    load(TAKER, place(0, TOP), early);
#endif
    waiting = 1;
#ifndef FAULT_NO_WAIT
    do
    :: o < OWNERS -> memory[place(o, BUSY)] == 0; o++
    :: else -> o = 0; break
    od;
#endif
    waiting = 0
}

/* flush_locked() and publish_locked(); then what is at home may go to others, or come back from them. */
inline reclaim_locked()
{
    do
    :: o < OWNERS ->
       load(TAKER, place(o, TOP), top);
#ifdef FAULT_BUSY_NOT_ACQUIRED
       if
       :: o == 0 -> top = early
       :: else
       fi;
#endif
       do
       :: top ->
          load(TAKER, place(o, ENTRY + top - 1), slot);
          atomic {
              assert(!home[slot]);
              assert(has[slot] == 0);
              home[slot] = 1;
              top--
          }
       :: else -> break
       od;
       store(TAKER, place(o, TOP), 0, 0);
       load(TAKER, place(o, COUNT), number);
       store(TAKER, place(o, COUNT), 0, 0);
       published = published + number;
       o++
    :: else -> o = 0; slot = 0; number = 0; break
    od;
    if
    :: atomic { theirs -> home[their] = 1; has[their] = 0; theirs = 0; their = 0 }
    :: atomic { !theirs && home[0] -> home[0] = 0; hand_out(TAKER, 0); theirs = 1; their = 0; mine = 0 }
    :: atomic { !theirs && home[1] -> home[1] = 0; hand_out(TAKER, 1); theirs = 1; their = 1; mine = 0 }
    :: skip
    fi
}

/* hand_back(). */
inline hand_back()
{
    do
    :: o < OWNERS ->
#ifdef FAULT_GATE_NOT_RELEASED
       store(TAKER, place(o, GATE), 1, 0);
#else
       store(TAKER, place(o, GATE), 1, 1);
#endif
       o++
    :: else -> o = 0; break
    od
}

active proctype taker()
{
    byte top, slot, number, o, k, times, their, mine, early;
    bit theirs;
    atomic {
        do
        :: o < OWNERS ->
           memory[place(o, GATE)] = 1;
           run owner(o);
           run storage(o);
           o++
        :: else -> o = 0; break
        od;
        run storage(TAKER);
        do
        :: o < SLOTS -> home[o] = 1; o++
        :: else -> o = 0; break
        od
    }
    do
#ifdef PROGRESS
    :: true ->
#else
    :: times < TAKINGS ->
       times++;
#endif
       mutex_lock(TAKER);
       revoke_locked();
       reclaim_locked();
       hand_back();
       mutex_unlock(TAKER)
#ifndef PROGRESS
    :: else -> break
#endif
    od;
    alive--;
#ifndef PROGRESS
    atomic { /* at rest: each slot in one place, and the counts are the sum of what is live */
        alive == 0 && lock == 0;
        o = 0;
        do
        :: o < THREADS -> flush_now(o); o++
        :: else -> break
        od;
        byte live, counted;
        byte found[SLOTS];
        for (o : 0 .. SLOTS - 1) {
            found[o] = found[o] + home[o] + (has[o] != 0);
            live = live + (has[o] && has[o] != TAKER + 1)
        }
        counted = published;
        for (o : 0 .. OWNERS - 1) {
            counted = counted + memory[place(o, COUNT)];
            for (k : 0 .. LIMIT - 1) {
                if
                :: k < memory[place(o, TOP)] -> found[memory[place(o, ENTRY + k)]]++
                :: else
                fi
            }
        }
        for (o : 0 .. SLOTS - 1) {
            assert(found[o] == 1)
        }
        assert(counted == live)
    }
#endif
}

#ifdef PROGRESS
ltl gets { [] (waiting -> <> !waiting) }
#endif
