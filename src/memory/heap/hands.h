/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Hands: blocks with their own span that threads have freed in a heap, for the next request of
 * exactly the same size. Each thread has a hand. A request that finds no block of its size there
 * looks into a few others, and a block for which it has no room goes into another. Each hand has
 * its own lock. So threads that use only hands do not compete for the heap's lock.
 *
 * Hands are open only while many threads wait for the heap's lock (hands_weigh_locked()), and while
 * the heap is in all sets that its free memory can put it in (`news` in heap.h). While hands are
 * open, the heap parks no other blocks (parked.h). The best fit might not choose a block that a
 * hand gives: that is the price of not taking the lock.
 *
 * Other code does not see hands. A block in a hand has the state of a block, is in the page map,
 * and is not live. The counters count it as free. A search that finds no free span, and code that
 * joins or gives up memory of the heap, first turns what is in hands into free spans
 * (parked_flush_locked(), hands_flush_locked()). So no request makes the heap grow, or fails, while
 * a hand has its memory. */
#ifndef TARN_MEMORY_HANDS_H
#define TARN_MEMORY_HANDS_H

#include "record/counters.h"

struct heap;
struct span;
struct thread;

#define HANDS 16                       /* per heap; further threads share them */
#define HAND_SPANS 32                  /* the most spans in one hand */
#define HAND_BYTES ((size_t)256 << 20) /* the most bytes in a hand with more than one span */
#define HAND_TRIES 4                   /* the most hands that a request or a free locks */
#define HANDS_WAIT 8    /* a lock that had to be waited for counts as this many that did not */
#define HANDS_OPEN 1024 /* the weight from which hands open; they close at 0 */
#define HANDS_MOST (4 * HANDS_OPEN)

struct hand {
    struct counters_part part; /* what the hand has counted; its lock protects the hand */
    bool open;
    /* The spans in the hand and their bytes; also read without the lock, as a hint. */
    atomic_uint count; /* spans */
    atomic_size_t bytes;
    struct hand_span {
        size_t size;
        struct span *span;
    } spans[HAND_SPANS]; /* the newest last */
};

/* A member of the heap, under its lock. */
struct hands {
    atomic_bool open; /* then the heap parks nothing. Changes under the part's lock too */
    /* Rises when a thread had to wait for the heap's lock, and falls when it had not. */
    int contention;
    _Atomic(struct hand *) of; /* HANDS of them; NULL until threads compete */
};

static inline bool hands_are_open(const struct hands *hands)
{
    return atomic_load_explicit(&hands->open, memory_order_relaxed);
}

/* Returns a block of exactly `size` bytes, the rounded size of a request, from the thread's hand
 * or from another. 0: the caller must take the slow path. */
uintptr_t hand_take(struct heap *heap, const struct thread *thread, size_t size, size_t requested);
/* Frees a live block into the thread's hand, or into another; false if the caller must take the
 * slow path. */
bool hand_give(struct heap *heap, struct span *span, uintptr_t address,
               const struct thread *thread);

/* Called by the paths that hands would spare, with the heap's lock. Weighs whether that lock was
 * waited for, and opens or closes the hands. Does nothing if hands_care() is false. */
void hands_weigh_locked(struct heap *heap, bool waited);
static inline bool hands_care(const struct hands *hands, bool waited)
{
    return waited || hands->contention;
}
/* The hands are open. If the thread's hand has no room for `size` bytes, turns its older half into
 * free spans. */
void hands_spill_locked(struct heap *heap, const struct thread *thread, size_t size);
/* The hands are open. Turns the blocks of one hand into free spans of the open batch; true if there
 * were any. */
bool hand_flush_locked(struct heap *heap, unsigned which);
/* The same for all hands. */
void hands_flush_locked(struct heap *heap);
/* The same, and closes the hands. */
void hands_close_locked(struct heap *heap);
/* Closes the counters' parts of hands (counters_part_close()). The hands are closed. */
void hands_counters_close(struct hands *hands);

#endif
