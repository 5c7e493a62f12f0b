/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Slabs: spans of a heap's small zone, cut into equal slots for blocks of up to 64 KiB.
 *
 * Sizes are multiples of 512 B up to 8 KiB, then eight to a doubling, so that at most 1/8 of a
 * larger one is lost. The state of a slot is kept here, never in device memory. A slot is at home,
 * in a magazine of the slab's cache (cache.h), or taken. Another thread's free sets a bit in
 * `freed`, which the owner finds later. */
#ifndef TARN_MEMORY_SLAB_H
#define TARN_MEMORY_SLAB_H

#include "memory/heap/heap.h"

#define SLAB_MOST ((size_t)64 << 10) /* bytes: the largest slot */
#define SLAB_SLOTS 128               /* the most in one slab; two words of bits */

/* A note of 32 bits per slot: its state, and the requested size. A free slot keeps the size, for a
 * second free that is found late. The fast paths know only the state "taken", so they leave exactly
 * the slots that other streams use to the slow path. */
#define NOTE_UNUSED UINT32_C(0x3fff)  /* bytes: slot size minus requested size */
#define NOTE_STATE UINT32_C(0xc000)   /* 0: free; else one of these */
#define NOTE_TAKEN UINT32_C(0x8000)   /* owner: handed out */
#define NOTE_USED UINT32_C(0x4000)    /* heap lock: handed out, and other streams use it */
#define NOTE_PENDING UINT32_C(0xc000) /* heap lock: freed, and waiting for them */
#define NOTE_TAG_SHIFT 16
typedef _Atomic uint32_t slab_note;

struct slab {
    /* What the slow path touches. */
    _Alignas(CACHE_LINE) struct slab_remote {
        struct slab_remote *next;
        struct slab *slab;
    } remote[SLAB_SLOTS / 64];      /* of a word of `freed`, for the owner's list of those with a
                                       bit set */
    uint64_t home[SLAB_SLOTS / 64]; /* owner: free, and in no magazine */
    struct slab *next, *previous;   /* owner: in its list */

    /* What the fast path reads. */
    struct span *span;
    _Atomic(struct use **) uses; /* heap lock to write: a list per slot; NULL until another stream
                                    uses one */
    uintptr_t start;
    _Atomic uint64_t freed[SLAB_SLOTS / 64]; /* anyone: freed by another thread; whoever finds 0
                                                lists the word */
    uint64_t reciprocal;                     /* 2^64 / slot_size, rounded up */
    uint32_t slot_size;                      /* bytes */
    uint8_t class, slots;
    uint8_t homes; /* owner: how many are at home; while there are any, the slab is in the owner's
                      list of its class */
    /* Constant. Kept when the slab is gone, since a thread that found it in the page map may still
     * read it. */
    _Atomic(struct cache *) owner;
    slab_note notes[]; /* a slot */
};

static inline struct cache *slab_owner(const struct slab *slab)
{
    return atomic_load_explicit(&slab->owner, memory_order_relaxed);
}

/* By size in units of 512 B: the class, and by class the slot size in bytes. Filled at the first
 * use. */
extern uint8_t slab_classes[SLAB_MOST / TARN_BLOCK_UNIT + 1];
extern uint32_t slab_sizes[SLAB_CLASSES];
void slab_tables_fill(void);

static inline unsigned slab_class(size_t size)
{
    return slab_classes[(size + TARN_BLOCK_UNIT - 1) / TARN_BLOCK_UNIT];
}

/* Bytes that a slot for `size` bytes has. */
static inline size_t slab_slot_size(size_t size)
{
    return slab_sizes[slab_class(size)];
}

/* Whether a slab serves the request: small, not rounded up to a page, and every slot of its class
 * is aligned enough. */
bool slab_serves(const struct request *request);

/* The span that a new slab of a class wants. */
size_t slab_span_size(unsigned class);

/* Makes a slab from a taken span that is large enough, with all slots free. On failure returns
 * NULL, and the caller keeps the span. Heap lock. */
struct slab *slab_create_locked(struct span *span, unsigned class, struct cache *owner);
/* Gives the span of a slab without taken slots back to the heap. It must be in no list. */
void slab_destroy_locked(struct heap *heap, struct slab *slab);

static inline uintptr_t slab_address(const struct slab *slab, unsigned slot)
{
    return slab->start + (uintptr_t)slot * slab->slot_size;
}

/* The slot that an address lies in, and whether it begins there, by one multiplication: the upper
 * half of the product is the quotient, the lower one below the reciprocal only for a multiple
 * (Lemire, Kaser, Kurz: Faster remainder by direct computation, 2019). Exact for every offset below
 * 2^32. */
__extension__ typedef unsigned __int128 slab_product;

static inline unsigned slab_slot_begin(const struct slab *slab, uintptr_t address, bool *begins)
{
    slab_product product = (slab_product)slab->reciprocal * (address - slab->start);
    *begins = (uint64_t)product < slab->reciprocal;
    return (unsigned)(product >> 64);
}

static inline unsigned slab_slot(const struct slab *slab, uintptr_t address)
{
    bool begins = false;
    return slab_slot_begin(slab, address, &begins);
}

static inline uint64_t slab_reciprocal(size_t slot_size)
{
    return UINT64_MAX / slot_size + 1;
}

static inline uint32_t slab_note_of(const struct slab *slab, unsigned slot)
{
    return atomic_load_explicit(&slab->notes[slot], memory_order_relaxed);
}

static inline uint32_t slab_state(const struct slab *slab, unsigned slot)
{
    return slab_note_of(slab, slot) & NOTE_STATE;
}

/* Not free: live, or waiting. */
static inline bool slab_is_taken(const struct slab *slab, unsigned slot)
{
    return slab_state(slab, slot) != 0;
}

/* Freed by a thread that is not the owner, who has not found it yet. */
static inline bool slab_is_freed(const struct slab *slab, unsigned slot)
{
    return atomic_load_explicit(&slab->freed[slot / 64], memory_order_relaxed) >> (slot % 64) & 1;
}

/* None of its slots is. */
static inline bool slab_has_no_freed(const struct slab *slab)
{
    return !(atomic_load_explicit(&slab->freed[0], memory_order_relaxed) |
             atomic_load_explicit(&slab->freed[1], memory_order_relaxed));
}

/* Taken, and freed by nobody. */
static inline bool slab_is_live(const struct slab *slab, unsigned slot)
{
    uint32_t state = slab_state(slab, slot);
    return (state == NOTE_TAKEN || state == NOTE_USED) && !slab_is_freed(slab, slot);
}

/* The same, and used by no other stream. */
static inline bool slab_is_simple(const struct slab *slab, unsigned slot)
{
    return slab_state(slab, slot) == NOTE_TAKEN && !slab_is_freed(slab, slot);
}

static inline size_t slab_requested(const struct slab *slab, unsigned slot)
{
    return slab->slot_size - (slab_note_of(slab, slot) & NOTE_UNUSED);
}

static inline tarn_tag slab_tag(const struct slab *slab, unsigned slot)
{
    return (tarn_tag)(slab_note_of(slab, slot) >> NOTE_TAG_SHIFT);
}

static inline void slab_note_write(slab_note *note, size_t unused, tarn_tag tag)
{
    atomic_store_explicit(note, NOTE_TAKEN | (uint32_t)unused | (uint32_t)tag << NOTE_TAG_SHIFT,
                          memory_order_relaxed);
}

/* The slot of a note is free from now on. */
static inline void slab_note_end(slab_note *place, uint32_t note)
{
    atomic_store_explicit(place, note & ~NOTE_STATE, memory_order_relaxed);
}

/* Of a slot that is taken. */
void slab_set_state_locked(struct slab *slab, unsigned slot, uint32_t state);
void slab_set_requested_locked(struct slab *slab, unsigned slot, size_t requested);

/* The owner takes the lowest slot that is at home, of which there is one; and puts one back, whose
 * note says free. */
unsigned slab_leave_home(struct slab *slab);
void slab_come_home(struct slab *slab, unsigned slot);

/* Where the uses of a slot hang; NULL with an error text when the host is out of memory. Heap
 * lock. */
struct use **slab_uses_locked(struct slab *slab, unsigned slot);

#endif
