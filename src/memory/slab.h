/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Slabs: spans of a heap's small zone, cut into equal slots for blocks of up to 64 KiB. All under the heap's lock.
 *
 * Sizes are multiples of 512 B up to 8 KiB, then eight to a doubling, so that at most 1/8 of a larger one is lost. */
#ifndef TARN_MEMORY_SLAB_H
#define TARN_MEMORY_SLAB_H

#include "memory/heap.h"

#define SLAB_MOST ((size_t)64 << 10) /* bytes: the largest slot */
#define SLAB_SLOTS 128               /* the most in one slab */

struct slab {
    struct span *span;
    struct slab *next, *previous; /* in the heap's list of its class while a slot is free */
    struct use **uses;            /* a list a slot; NULL until a slot is used by another stream */
    uint32_t slot_size;           /* bytes */
    uint16_t slots, used;
    uint8_t class;
    uint64_t taken[SLAB_SLOTS / 64];   /* live or pending */
    uint64_t pending[SLAB_SLOTS / 64]; /* of these, freed and waiting for other streams */
    struct slab_note {
        uint16_t unused; /* bytes: slot size less what was asked for */
        tarn_tag tag;
    } notes[]; /* a slot */
};

/* Whether a slab serves the request: small, and every slot of its class is aligned enough. */
bool slab_serves(const struct request *request);

/* Bytes that a slot for `size` bytes has. */
size_t slab_slot_size(size_t size);

/* A slot out of a slab at hand. TARN_ERROR_OUT_OF_MEMORY, without a text, when a new slab is needed. */
tarn_status slab_take_locked(struct heap *heap, const struct request *request, uintptr_t *address);

/* The span that a new slab for the request wants, and the making of one of it, with its first slot taken. The span is
 * SPAN_TAKEN; on failure it stays the caller's. */
size_t slab_span_size(const struct request *request);
tarn_status slab_create_locked(struct heap *heap, struct span *span, const struct request *request, uintptr_t *address);

/* The slot of an address in a slab; false when it is not the start of one. */
bool slab_slot(const struct slab *slab, uintptr_t address, unsigned *slot);

static inline uintptr_t slab_address(const struct slab *slab, unsigned slot)
{
    return slab->span->start + (uintptr_t)slot * slab->slot_size;
}

static inline bool slab_is_live(const struct slab *slab, unsigned slot)
{
    return (slab->taken[slot / 64] & ~slab->pending[slot / 64]) >> (slot % 64) & 1;
}

static inline size_t slab_requested(const struct slab *slab, unsigned slot)
{
    return slab->slot_size - slab->notes[slot].unused;
}

/* Where the uses of a slot hang; NULL with an error text when the host is out of memory. */
struct use **slab_uses(struct slab *slab, unsigned slot);

/* Makes a slot free; an empty slab gives its span back to the heap. */
void slab_give_locked(struct heap *heap, struct slab *slab, unsigned slot);

#endif
