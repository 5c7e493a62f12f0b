/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Slabs: spans of a heap's small zone, cut into equal slots for blocks of up to 64 KiB.
 *
 * Slot sizes are multiples of 512 B up to 8 KiB, then eight per doubling, so at most 1/8 of a
 * larger slot is lost. The state of a slot is kept here, never in device memory. A slot is at home,
 * in a magazine of the slab's cache (cache.h), or taken. Another thread's free sets a bit in
 * `freed`, which the owner finds later.
 *
 * The word before a colon says who may use a field: "owner" is the cache that has the slab (cache.h
 * says who may use a cache). */
#ifndef TARN_MEMORY_SLAB_H
#define TARN_MEMORY_SLAB_H

#include "memory/heap/heap.h"

#define SLAB_MOST ((size_t)64 << 10) /* bytes: the largest slot */
#define SLAB_SLOTS 128               /* the most in one slab; two words of bits */

/* A note of 32 bits per slot: its state, the requested size, and the tag. A free slot keeps the
 * size, in case a second free of the block is found late. The fast paths know only NOTE_TAKEN, so
 * blocks that other streams use go the slow path. */
#define NOTE_UNUSED UINT32_C(0x3fff)  /* bytes: slot size minus requested size */
#define NOTE_STATE UINT32_C(0xc000)   /* 0: free; else one of these */
#define NOTE_TAKEN UINT32_C(0x8000)   /* owner: handed out */
#define NOTE_USED UINT32_C(0x4000)    /* heap lock: handed out, and other streams use it */
#define NOTE_PENDING UINT32_C(0xc000) /* heap lock: freed, and waiting for the other streams */
#define NOTE_TAG_SHIFT 16
typedef _Atomic uint32_t slab_note;

struct slab {
    /* What the slow path touches. `remote`: one per word of `freed`, its entry in the owner's list
     * of words with a bit set. */
    _Alignas(CACHE_LINE) struct slab_remote {
        struct slab_remote *next;
        struct slab *slab;
    } remote[SLAB_SLOTS / 64];
    uint64_t home[SLAB_SLOTS / 64]; /* owner: free, and in no magazine */
    struct slab *next, *previous;   /* owner: in its list */

    /* What the fast path reads. */
    struct span *span;
    /* Heap lock to write: a list per slot; NULL until another stream uses one. */
    _Atomic(struct use **) uses;
    uintptr_t start;
    /* Anyone: slots freed by other threads; the thread that finds the word 0 puts it on the
     * owner's list. */
    _Atomic uint64_t freed[SLAB_SLOTS / 64];
    uint64_t reciprocal; /* 2^64 / slot_size, rounded up */
    uint32_t slot_size;  /* bytes */
    uint8_t class, slots;
    /* Owner: slots at home; if there are any, the slab is in the owner's list of its class. */
    uint8_t homes;
    /* Constant. It stays valid after the slab has ended, because a thread that found the slab in
     * the page map may still read it. */
    _Atomic(struct cache *) owner;
    slab_note notes[]; /* one per slot */
};

static inline struct cache *slab_owner(const struct slab *slab)
{
    return atomic_load_explicit(&slab->owner, memory_order_relaxed);
}

/* The class of a size in units of 512 B, and the slot size of a class in bytes. Filled by
 * slab_tables_fill(). */
extern uint8_t slab_classes[SLAB_MOST / TARN_BLOCK_UNIT + 1];
extern uint32_t slab_sizes[SLAB_CLASSES];
void slab_tables_fill(void);

static inline unsigned slab_class(size_t size)
{
    return slab_classes[(size + TARN_BLOCK_UNIT - 1) / TARN_BLOCK_UNIT];
}

/* Bytes of the slot that serves `size` bytes. */
static inline size_t slab_slot_size(size_t size)
{
    return slab_sizes[slab_class(size)];
}

/* Whether a slab serves the request: it is small, its slot size is a multiple of the alignment, and
 * the unused rest fits into the note. */
bool slab_serves(const struct request *request);

/* Bytes of the span that a new slab of a class needs. */
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

/* The slot that an address is in, and whether it begins there, by one multiplication: the upper
 * half of the product is the quotient; the lower half is below the reciprocal only for a multiple
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

/* Live, or pending. */
static inline bool slab_is_taken(const struct slab *slab, unsigned slot)
{
    return slab_state(slab, slot) != 0;
}

/* Another thread has freed the slot, and the owner has not found that yet. */
static inline bool slab_is_freed(const struct slab *slab, unsigned slot)
{
    return atomic_load_explicit(&slab->freed[slot / 64], memory_order_relaxed) >> (slot % 64) & 1;
}

/* No slot is in that state. */
static inline bool slab_has_no_freed(const struct slab *slab)
{
    return !(atomic_load_explicit(&slab->freed[0], memory_order_relaxed) |
             atomic_load_explicit(&slab->freed[1], memory_order_relaxed));
}

/* Taken, and not freed by another thread. */
static inline bool slab_is_live(const struct slab *slab, unsigned slot)
{
    uint32_t state = slab_state(slab, slot);
    return (state == NOTE_TAKEN || state == NOTE_USED) && !slab_is_freed(slab, slot);
}

/* Live, and used by no other stream. */
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

/* Marks the slot of a note as free. */
static inline void slab_note_end(slab_note *place, uint32_t note)
{
    atomic_store_explicit(place, note & ~NOTE_STATE, memory_order_relaxed);
}

/* For a slot that is not free. */
void slab_set_state_locked(struct slab *slab, unsigned slot, uint32_t state);
void slab_set_requested_locked(struct slab *slab, unsigned slot, size_t requested);

/* Takes the lowest slot that is at home; there is one. Only the owner. */
unsigned slab_leave_home(struct slab *slab);
/* Puts a slot back whose note says free. Only the owner. */
void slab_come_home(struct slab *slab, unsigned slot);

/* The list of a slot's uses. NULL with an error text if the host is out of memory. Heap lock. */
struct use **slab_uses_locked(struct slab *slab, unsigned slot);

#endif
