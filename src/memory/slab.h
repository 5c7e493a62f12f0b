/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Slabs: spans of a heap's small zone, cut into equal slots for blocks of up to 64 KiB.
 *
 * Sizes are multiples of 512 B up to 8 KiB, then eight to a doubling, so that at most 1/8 of a larger one is lost. What is
 * known of a slot lies here, never in device memory. A slab belongs to one cache (cache.h), whose thread takes and gives slots
 * with plain loads and stores; another thread's free sets a bit in `remote`, which the owner finds later. */
#ifndef TARN_MEMORY_SLAB_H
#define TARN_MEMORY_SLAB_H

#include "memory/heap.h"

#define SLAB_MOST ((size_t)64 << 10) /* bytes: the largest slot */
#define SLAB_SLOTS 128               /* the most in one slab */

struct slab {
    struct slab_remote {
        _Atomic uint64_t freed; /* anyone: of the slots taken, freed by another thread; whoever finds 0 here lists it */
        struct slab_remote *next;
        struct slab *slab;
    } remote[SLAB_SLOTS / 64];
    _Atomic uint64_t pending[SLAB_SLOTS / 64]; /* heap lock: of those taken, freed and waiting for other streams */
    struct slab *next, *previous;              /* owner: in its list */
    struct span *span;

    /* What the fast path touches. */
    _Atomic(struct use **) uses;             /* heap lock to write: a list a slot; NULL until another stream uses one */
    _Atomic uint64_t taken[SLAB_SLOTS / 64]; /* owner: handed out, and not yet given back to the stack */
    uintptr_t start;
    uint32_t slot_size;  /* bytes */
    uint32_t reciprocal; /* 2^20 / (slot_size / 512), rounded up */
    uint8_t *stack;      /* owner: the free slots, the next one to be taken on top */
    uint16_t top;        /* owner: how many they are */
    uint16_t slots;
    uint8_t class;
    bool listed; /* owner: in the owner's list of its class */
    /* Constant. Kept when the slab is gone, since a thread that found it in the page map may still read it. */
    _Atomic(struct cache *) owner;
    struct slab_note {
        uint16_t unused; /* bytes: slot size less what was asked for */
        tarn_tag tag;
    } notes[]; /* a slot, written when it is taken; behind them the stack */
};

static inline struct cache *slab_owner(const struct slab *slab)
{
    return atomic_load_explicit(&slab->owner, memory_order_relaxed);
}

/* By size in units of 512 B: the class, and by class the slot size in bytes. Filled at the first use. */
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

/* Whether a slab serves the request: small, and every slot of its class is aligned enough. */
bool slab_serves(const struct request *request);

/* The span that a new slab of a class wants. */
size_t slab_span_size(unsigned class);

/* Makes a slab of a held span that is large enough, all slots free. On failure, NULL, the span stays the caller's. Heap lock. */
struct slab *slab_create_locked(struct span *span, unsigned class, struct cache *owner);
/* Gives the span of a slab without taken slots back to the heap. It must be in no list. */
void slab_destroy_locked(struct heap *heap, struct slab *slab);

static inline uintptr_t slab_address(const struct slab *slab, unsigned slot)
{
    return slab->start + (uintptr_t)slot * slab->slot_size;
}

/* The slot that an address lies in; exact for every offset in a slab. */
static inline unsigned slab_slot(const struct slab *slab, uintptr_t address)
{
    return (unsigned)(((address - slab->start) / TARN_BLOCK_UNIT * slab->reciprocal) >> 20);
}

static inline bool slab_is_taken(const struct slab *slab, unsigned slot)
{
    return atomic_load_explicit(&slab->taken[slot / 64], memory_order_relaxed) >> (slot % 64) & 1;
}

/* Taken, and freed by nobody. */
static inline bool slab_is_live(const struct slab *slab, unsigned slot)
{
    uint64_t freed = atomic_load_explicit(&slab->remote[slot / 64].freed, memory_order_relaxed) |
                     atomic_load_explicit(&slab->pending[slot / 64], memory_order_relaxed);
    return slab_is_taken(slab, slot) && !(freed >> (slot % 64) & 1);
}

static inline size_t slab_requested(const struct slab *slab, unsigned slot)
{
    return slab->slot_size - slab->notes[slot].unused;
}

/* The owner takes the slot on top of the stack, which is not empty; and puts one back. */
static inline unsigned slab_take(struct slab *slab, size_t requested, tarn_tag tag)
{
    unsigned slot = slab->stack[--slab->top];
    uint64_t taken = atomic_load_explicit(&slab->taken[slot / 64], memory_order_relaxed);
    atomic_store_explicit(&slab->taken[slot / 64], taken | UINT64_C(1) << (slot % 64), memory_order_relaxed);
    slab->notes[slot] = (struct slab_note){(uint16_t)(slab->slot_size - requested), tag};
    return slot;
}

static inline void slab_give(struct slab *slab, unsigned slot)
{
    uint64_t taken = atomic_load_explicit(&slab->taken[slot / 64], memory_order_relaxed);
    atomic_store_explicit(&slab->taken[slot / 64], taken & ~(UINT64_C(1) << (slot % 64)), memory_order_relaxed);
    slab->stack[slab->top++] = (uint8_t)slot;
}

static inline void slab_set_pending_locked(struct slab *slab, unsigned slot, bool pending)
{
    uint64_t bit = UINT64_C(1) << (slot % 64),
             word = atomic_load_explicit(&slab->pending[slot / 64], memory_order_relaxed);
    atomic_store_explicit(&slab->pending[slot / 64], pending ? word | bit : word & ~bit, memory_order_relaxed);
}

/* Where the uses of a slot hang; NULL with an error text when the host is out of memory. Heap lock. */
struct use **slab_uses_locked(struct slab *slab, unsigned slot);

#endif
