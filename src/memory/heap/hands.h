/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Hands: blocks with their own span that one thread has freed in a heap that threads compete for,
 * for the thread's next request of exactly the same size. A hand is taken under a lock of its own,
 * so threads that keep to their hands do not meet at the heap's lock.
 *
 * A heap has open hands only while many who take its lock wait for it, and while the sets already
 * know that it has free memory (sets.h): a block in a hand is news to nobody. While the hands are
 * open, the heap keeps no other blocks (kept.h). Unlike a kept block, a block in a hand may be one
 * that the best fit would not choose; this is the price of the lock that is not taken.
 *
 * Other code does not see hands. A block in a hand has the state of a block, is in the page map,
 * and is not live. The counters count it as free. A search that finds no free span, and code that
 * joins or gives up memory of the heap, first turns what is in hands into free spans
 * (kept_flush_locked(), hands_flush_locked()). So no request makes the heap grow, or fails, while a
 * hand has its memory. */
#ifndef TARN_MEMORY_HANDS_H
#define TARN_MEMORY_HANDS_H

#include "memory/heap/heap.h"

#define HANDS 16                       /* of a heap; with more threads, some share one */
#define HAND_SPANS 32                  /* the most in one hand */
#define HAND_BYTES ((size_t)256 << 20) /* the same, of more than one span */
#define HANDS_WAIT \
    8                   /* a lock that was waited for weighs as much as this many
                           that were not */
#define HANDS_OPEN 1024 /* the weight at which hands open; they close at 0 */
#define HANDS_MOST (4 * HANDS_OPEN)

struct hand {
    struct counters_part part; /* what the hand has counted; its lock is the hand's */
    bool open;
    atomic_uint count; /* of the spans below; read without the lock as a hint */
    size_t bytes;
    struct hand_span {
        size_t size;
        struct span *span;
    } spans[HAND_SPANS]; /* the newest last */
};

struct hands {
    struct hand of[HANDS];
};

static inline bool hands_are_open(const struct heap *heap)
{
    return atomic_load_explicit(&heap->handed, memory_order_relaxed);
}

/* A block of exactly `size`, to which a request was rounded, or 0: then the caller takes the slow
 * path. */
uintptr_t hand_take(struct heap *heap, const struct thread *thread, size_t size, size_t requested);
/* Frees a live block into the thread's hand; false if the caller must take the slow path. */
bool hand_give(struct heap *heap, struct span *span, uintptr_t address,
               const struct thread *thread);

/* Opens or closes the heap's hands as its lock was waited for or not. Called by the paths that
 * hands would spare. */
void hands_weigh_locked(struct heap *heap, bool waited);
static inline void hands_consider_locked(struct heap *heap, bool waited)
{
    if (waited || heap->contention)
        hands_weigh_locked(heap, waited);
}
/* If the thread's hand has no room for `size` bytes, turns its older half into free spans. The
 * hands are open. */
void hands_spill_locked(struct heap *heap, const struct thread *thread, size_t size);
/* Turns what is in one hand, of HANDS, into free spans of the open batch; true if there was any.
 * The hands are open. */
bool hand_flush_locked(struct heap *heap, unsigned which);
/* The same of all hands. */
void hands_flush_locked(struct heap *heap);
/* The same, and nothing comes into hands until they are opened again. */
void hands_close_locked(struct heap *heap);
/* Closes the hands' parts of the counters, as counters_part_close(). The hands are closed. */
void hands_counters_close(struct heap *heap);

#endif
