/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The frees by other threads of a cache's blocks (src/memory/heap/cache.c, free.c): a free sets the slot's bit in a word of the slab; who
 * finds the word 0 lists the word; the owner, or who has taken the cache, drains the list. One slab of two words with two slots
 * each. It may end when all its slots are at home, and be made anew. The cache's thread may end, and another one take the cache over.
 *
 * Each step is sequentially consistent. What there is beside read-modify-writes is the plain link of a listed word, written before the
 * exchange that lists it (releasing) and read after the one that takes the list (acquiring); the fault FAULT_LINKED_LATE is
 * the other order. That the owner's fast path and the lock's holder exclude each other is what cache_taking.pml shows: here
 * both take the lock.
 *
 * A block may be freed twice (-DTWICE) by any two threads. The promise ends where it is handed out again before the second free was found
 * or refused, and where the slab ends just while one of the two has seen the block live and not yet set its bit; neither happens here.
 *
 * A heap whose caches were drained and emptied rests: a search does not look at them again. So whoever frees a block then wakes the heap.
 *
 * check safety: no block is handed out twice, no free is lost, a slot is in one place, counts are exact at rest; no touch of a slab that ended; while the heap rests nothing is there
 * check twice -DTWICE -DROUNDS=2: the same while blocks are freed twice; the second free is refused, or is found by the drain
 * long safety-wide -DFREES=2
 * long twice-wide -DTWICE
 * fault FAULT_EACH_LISTS: whoever sets a bit lists the word
 * fault FAULT_PUSH_STORES: the word is listed by a load and a store
 * fault FAULT_RESTS_LATE: the heap rests only after the drain
 * fault FAULT_WAKES_NOBODY: who frees a block of another thread's cache does not wake the heap
 * fault FAULT_LINKED_LATE: the link is written after the word is listed
 * fault FAULT_DRAIN_STORES: the drain takes the bits by a load and a store
 * fault FAULT_LIST_STORES: the drain takes the list by a load and a store
 * fault FAULT_NEXT_LATE -DFREES=2: the drain reads the link after the word's bits were taken
 * fault FAULT_LIVE_UNLOCKED -DTWICE: a free that takes the lock does not look again whether the block is live
 * fault FAULT_ENDS_UNQUIET -DTWICE: a slab ends when all is at home, bits or not
 * fault FAULT_ENDS_MIDWAY -DTWICE: the drain brings each slot of a word home before it has looked at the next
 */

#ifndef FREERS
#define FREERS 2 /* threads that free */
#endif
#ifndef ROUNDS
#define ROUNDS 3 /* of the cache's thread */
#endif
#ifndef FREES
#define FREES 1 /* of each other thread */
#endif
#define WORDS 2
#define SLOTS 4 /* two a word */
#define word_of(slot) ((slot) / 2)
#define bit_of(slot) (1 << ((slot) % 2))
#define OWNER 1 /* a thread's number; 0: the cache has no thread */

/* struct cache. */
byte thread = OWNER;
byte remote;      /* the list: a word plus 1; 0: empty */
byte lock;        /* heap->lock */
byte magazine;    /* a bit a slot */
bit resting;      /* heap->resting */

/* struct slab. */
byte freed[WORDS], next[WORDS];
byte taken;       /* NOTE_TAKEN: a bit a slot */
byte at_home;     /* a bit a slot */
byte life = 1;    /* which slab it is; even: it has ended, its memory is anybody's */

/* What the program knows: blocks that are live, and frees on their way. */
byte live, on_their_way, twice;
byte handed_out, counted, logged, second_frees, refused;
byte crossing; /* frees that have seen the block live and not yet set its bit */
byte alive = FREERS + 1;

#define slab_is_there(seen) assert((seen) == life && (life % 2))
#define has(set, slot) (((set) >> (slot)) & 1)
#define add(set, slot) set = (set) | (1 << (slot))
#define remove(set, slot) set = (set) & ~(1 << (slot))

inline mutex_lock()
{
    atomic { lock == 0 -> lock = 1 }
}

inline mutex_unlock()
{
    lock = 0
}

/* Under the lock ---------------------------------------------------------------------------------------------------- */

/* come_home_locked(): with the last slot the slab may end, where it is quiet. */
inline come_home_locked(slot)
{
    assert(!has(at_home, slot) && !has(magazine, slot) && !has(taken, slot));
    add(at_home, slot);
    if
    :: at_home == (1 << SLOTS) - 1 && !crossing -> end_if_quiet_locked()
    :: at_home == (1 << SLOTS) - 1 -> skip /* the cache keeps it */
    :: else
    fi
}

/* is_quiet() and end_locked(). */
inline end_if_quiet_locked()
{
    quiet = freed[0];
    quiet = quiet | freed[1];
#ifdef FAULT_ENDS_UNQUIET
    quiet = 0;
#endif
    if
    :: quiet == 0 -> d_step { life++; at_home = 0 }
    :: else -> quiet = 0
    fi
}

/* drain_word_locked(). */
inline drain_word_locked(word)
{
    slab_is_there(seen);
#ifdef FAULT_DRAIN_STORES
    bits = freed[word];
    freed[word] = 0;
#else
    atomic { bits = freed[word]; freed[word] = 0 }
#endif
    assert(bits);
#ifdef FAULT_ENDS_MIDWAY
    for (i : 0 .. 1) {
        if
        :: bits & (1 << i) ->
           slab_is_there(seen);
           clear_note((word) * 2 + i);
           if
           :: bits & (1 << i) -> come_home_locked((word) * 2 + i)
           :: else
           fi
        :: else
        fi
    }
#else
    for (i : 0 .. 1) {
        if
        :: bits & (1 << i) -> clear_note((word) * 2 + i)
        :: else
        fi
    }
    for (i : 0 .. 1) {
        if
        :: bits & (1 << i) -> slab_is_there(seen); come_home_locked((word) * 2 + i)
        :: else
        fi
    }
#endif
    i = 0; bits = 0
}

/* A slot that was free already was freed twice: it is logged and taken out of the counters again, which so show counted - logged. */
inline clear_note(slot)
{
    if
    :: has(taken, slot) -> d_step { remove(taken, slot); remove(on_their_way, slot) }
    :: else -> d_step { logged++; assert(has(twice, slot)); remove(twice, slot); bits = bits & ~(1 << i) }
    fi
}

/* drain_locked(). */
inline drain_locked()
{
    seen = life;
#ifdef FAULT_LIST_STORES
    item = remote;
    remote = 0;
#else
    atomic { item = remote; remote = 0 }
#endif
    do
    :: item ->
       slab_is_there(seen);
#ifdef FAULT_NEXT_LATE
       drain_word_locked(item - 1);
       item = next[item - 1]
#else
       following = next[item - 1];
       drain_word_locked(item - 1);
       item = following;
       following = 0
#endif
    :: else -> break
    od;
    seen = 0
}

/* Gives to and takes from the caller of tarn_malloc and tarn_free ------------------------------------------------------ */

inline hand_out(slot)
{
    d_step {
        assert(life % 2);
        assert(!has(live, slot) && !has(taken, slot) && !has(on_their_way, slot));
        add(taken, slot);
        add(live, slot);
        handed_out++
    }
}

/* A live block that the thread frees, or with TWICE one that another thread is freeing: `slot`, or SLOTS for none. */
inline pick()
{
    atomic {
        slot = SLOTS;
        if
        :: has(live, 0) -> slot = 0
        :: has(live, 1) -> slot = 1
        :: has(live, 2) -> slot = 2
        :: has(live, 3) -> slot = 3
#ifdef TWICE
        :: has(on_their_way, 0) && !has(twice, 0) -> slot = 0; second = 1
        :: has(on_their_way, 1) && !has(twice, 1) -> slot = 1; second = 1
        :: has(on_their_way, 2) && !has(twice, 2) -> slot = 2; second = 1
#endif
        :: else -> skip
        fi;
        if
        :: slot < SLOTS && !second -> remove(live, slot); add(on_their_way, slot)
        :: slot < SLOTS && second -> add(twice, slot); second_frees++
        :: else
        fi
    }
}

/* `given`: the free was one. Of two, the second was refused if not. */
inline freed_it()
{
    atomic {
        if
        :: given -> counted++
        :: else -> refused++; assert(has(twice, slot)); remove(twice, slot)
        fi;
        second = 0; given = 0; slot = 0
    }
}

/* Other threads ----------------------------------------------------------------------------------------------------- */

/* slab_is_live(): the note, then the bit. */
inline slab_is_live(slot, result)
{
    result = has(taken, slot);
    if
    :: result -> result = !(freed[word_of(slot)] & bit_of(slot))
    :: else
    fi
}

/* cache_give_remote(). */
inline cache_give_remote(slot, result)
{
    slab_is_there(seen);
    atomic { before = freed[word_of(slot)]; freed[word_of(slot)] = before | bit_of(slot); crossing = crossing - crosses; crosses = 0 }
    result = !(before & bit_of(slot));
#ifdef FAULT_EACH_LISTS
    if
    :: result ->
#else
    if
    :: before == 0 ->
#endif
       slab_is_there(seen);
       do
       :: first = remote;
#ifndef FAULT_LINKED_LATE
          next[word_of(slot)] = first;
#endif
#ifdef FAULT_PUSH_STORES
          remote = word_of(slot) + 1;
          break
#else
          if
          :: atomic { remote == first -> remote = word_of(slot) + 1 }
#ifdef FAULT_LINKED_LATE
             next[word_of(slot)] = first;
#endif
             break
          :: atomic { remote != first -> skip }
          fi
#endif
       od
    :: else
    fi;
    first = 0; before = 0
}

/* free_remotely(), then memory_free(). */
inline free_block()
{
    seen = life;
    owner = thread;
    looks = 0;
    if
    :: owner != 0 -> slab_is_live(slot, looks)
    :: else
    fi;
    if
    :: looks ->
       atomic { /* the note is looked at once more, in cache_give_remote() */
           looks = has(taken, slot);
           if
           :: looks -> crosses = 1; crossing++
           :: else
           fi
       }
    :: else
    fi;
    if
    :: looks ->
       cache_give_remote(slot, given);
#ifndef FAULT_WAKES_NOBODY
       if
       :: given && resting -> mutex_lock(); resting = 0; mutex_unlock()
       :: else
       fi
#endif
    :: else
    fi;
    if
    :: !given ->
       mutex_lock();
       seen = life;
       if
       :: life % 2 -> slab_is_live(slot, looks)
       :: else -> looks = 0 /* the page map has no entry */
       fi;
#ifdef FAULT_LIVE_UNLOCKED
       looks = 1;
#endif
       if
       :: looks && thread -> cache_give_remote(slot, given); resting = 0 /* cache_give_locked() */
       :: looks && !thread ->
          resting = 0;
          d_step { remove(taken, slot); remove(on_their_way, slot) };
          given = 1;
          come_home_locked(slot)
       :: else
       fi;
       mutex_unlock()
    :: else
    fi;
    owner = 0; looks = 0; seen = 0;
    freed_it()
}

proctype freer()
{
    byte slot, seen, owner, first, before, quiet, frees;
    bit second, given, looks, crosses;
    do
    :: frees < FREES -> pick();
       if
       :: slot < SLOTS -> frees++; free_block()
       :: else -> slot = 0; break
       fi
    :: break
    od;
    alive--
}

/* The cache's thread, and who has taken the cache ------------------------------------------------------------------------ */

/* Out of the magazine, or from home, or out of a new slab. What is being freed for the second time is not handed out. */
inline take()
{
    mutex_lock();
    if
    :: resting = 0; drain_locked() /* has_slot_locked() */
    :: !resting -> skip            /* the fast path */
    fi;
    if
    :: life % 2 == 0 ->
       d_step { life++; at_home = (1 << SLOTS) - 1; taken = 0; magazine = 0; freed[0] = 0; freed[1] = 0; next[0] = 0; next[1] = 0 }
    :: else
    fi;
    atomic {
        slot = 0;
        do
        :: slot < SLOTS && (!(has(magazine, slot) || has(at_home, slot)) || has(twice, slot)) -> slot++
        :: else -> break
        od
    }
    if
    :: slot < SLOTS ->
       d_step { remove(magazine, slot); remove(at_home, slot) };
       hand_out(slot)
    :: else
    fi;
    slot = 0;
    mutex_unlock()
}

/* cache_give_fast(): note and bit are looked at, then the slot goes to the magazine; or home. */
inline give()
{
    pick();
    if
    :: slot < SLOTS ->
       mutex_lock();
       seen = life;
       if
       :: life % 2 -> slab_is_live(slot, looks)
       :: else -> looks = 0
       fi;
       if
       :: looks ->
          given = 1;
          resting = 0;
          d_step { remove(taken, slot); remove(on_their_way, slot) };
          if
          :: add(magazine, slot)
          :: come_home_locked(slot)
          fi
       :: else
       fi;
       mutex_unlock();
       looks = 0; seen = 0;
       freed_it()
    :: else -> slot = 0
    fi
}

/* take_back_locked(): drained, and the magazine sent home. */
inline reclaim()
{
    mutex_lock();
    if
    :: !resting ->
#ifndef FAULT_RESTS_LATE
       resting = 1;
#endif
       drain_locked();
       do
       :: slot < SLOTS && has(magazine, slot) -> remove(magazine, slot); come_home_locked(slot); slot++
       :: slot < SLOTS && !has(magazine, slot) -> slot++
       :: slot == SLOTS -> slot = 0; break
       od;
       resting = 1
    :: else
    fi;
    mutex_unlock()
}

active proctype owner()
{
    byte slot, seen, quiet, bits, i, item, following, round;
    bit second, given, looks;
    atomic {
        at_home = (1 << SLOTS) - 1;
        do
        :: round < FREERS -> run freer(); round++
        :: else -> round = 0; break
        od
    }
    take();
    take();
    do
    :: round < ROUNDS ->
       round++;
       if
       :: take()
       :: give()
       :: reclaim()
       :: mutex_lock(); thread = 1 - thread; mutex_unlock(); /* give_up(); adopt_locked() */
          if
          :: thread == 0 -> mutex_lock(); thread = OWNER; mutex_unlock()
          :: else
          fi
       fi
    :: else -> break
    od;
    alive == 1;
    assert(!resting || (remote == 0 && freed[0] == 0 && freed[1] == 0 && magazine == 0));
    resting = 0;
    /* At rest, when the list is drained, in whichever order: what is not live is free, and each count is right. */
    reclaim();
    assert(remote == 0 && freed[0] == 0 && freed[1] == 0);
    assert(on_their_way == 0 && twice == 0);
    assert(life % 2 == 0 || ((taken == live) && (magazine == 0) && ((taken | at_home) == (1 << SLOTS) - 1) && ((taken & at_home) == 0)));
    assert(life % 2 || live == 0);
    assert(refused + logged == second_frees);
    for (i : 0 .. SLOTS - 1) {
        handed_out = handed_out - has(live, i)
    }
    assert(counted - logged == handed_out)
}
