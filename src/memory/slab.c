/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns slabs: which slots are taken, and what is known of each. A slab is in its class's list exactly while it has both
 * a free slot and a taken one; an empty one is gone at once. All its pages are in the page map. */
#include "memory/slab.h"
#include "base/pages.h"
#include "base/status.h"

static unsigned class_of(size_t size)
{
    if (size <= 8192)
        return (unsigned)((size + 511) / 512) - 1;
    unsigned log = 63u - (unsigned)__builtin_clzll(size - 1); /* 2^log < size <= 2^(log+1), log >= 13 */
    return 16 + (log - 13) * 8 + (unsigned)((size - 1) >> (log - 3) & 7);
}

size_t slab_slot_size(size_t size)
{
    unsigned class = class_of(size);
    if (class < 16)
        return (class + 1) * (size_t)512;
    unsigned log = 13 + (class - 16) / 8;
    return ((size_t)8 + (class - 16) % 8 + 1) << (log - 3);
}

/* Pages of a slab: few enough to be small, enough for eight slots, and at most 1/16 of them lost at the end. */
static size_t slab_bytes(size_t slot_size)
{
    size_t bytes = MAP_PAGE;
    while (bytes / slot_size < 8 || bytes % slot_size > bytes / 16)
        bytes += MAP_PAGE;
    return bytes;
}

bool slab_serves(const struct request *request)
{
    if (request->size > SLAB_MOST)
        return false;
    return slab_slot_size(request->size) % request->alignment == 0;
}

size_t slab_span_size(const struct request *request)
{
    return slab_bytes(slab_slot_size(request->size));
}

static void list_insert(struct heap *heap, struct slab *slab)
{
    struct slab **first = &heap->slabs[slab->class];
    slab->previous = NULL;
    slab->next = *first;
    if (*first)
        (*first)->previous = slab;
    *first = slab;
}

static void list_remove(struct heap *heap, struct slab *slab)
{
    if (slab->next)
        slab->next->previous = slab->previous;
    if (slab->previous)
        slab->previous->next = slab->next;
    else
        heap->slabs[slab->class] = slab->next;
}

static unsigned first_free(const struct slab *slab)
{
    unsigned word = 0;
    while (!~slab->taken[word])
        word++;
    return word * 64 + (unsigned)__builtin_ctzll(~slab->taken[word]);
}

static uintptr_t slot_take(struct heap *heap, struct slab *slab, const struct request *request)
{
    unsigned slot = first_free(slab);
    slab->taken[slot / 64] |= UINT64_C(1) << (slot % 64);
    slab->notes[slot] = (struct slab_note){(uint16_t)(slab->slot_size - request->requested), request->tag};
    if (++slab->used == slab->slots)
        list_remove(heap, slab);
    return slab_address(slab, slot);
}

tarn_status slab_take_locked(struct heap *heap, const struct request *request, uintptr_t *address)
{
    struct slab *slab = heap->slabs[class_of(request->size)];
    if (!slab)
        return TARN_ERROR_OUT_OF_MEMORY;
    *address = slot_take(heap, slab, request);
    return TARN_OK;
}

static size_t object_bytes(unsigned slots)
{
    return sizeof(struct slab) + slots * sizeof(struct slab_note);
}

tarn_status slab_create_locked(struct heap *heap, struct span *span, const struct request *request, uintptr_t *address)
{
    size_t slot_size = slab_slot_size(request->size);
    unsigned slots = (unsigned)(span->size / slot_size);
    struct slab *slab = pages_alloc(object_bytes(slots));
    if (!slab)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a slab");
    slab->span = span;
    slab->slot_size = (uint32_t)slot_size;
    slab->slots = (uint16_t)slots;
    slab->class = (uint8_t)class_of(request->size);
    span->slab = slab;
    span->state = SPAN_SLAB;
    for (size_t offset = 0; offset < span->size; offset += MAP_PAGE)
        map_set(span->start + offset, span);
    list_insert(heap, slab);
    *address = slot_take(heap, slab, request);
    return TARN_OK;
}

bool slab_slot(const struct slab *slab, uintptr_t address, unsigned *slot)
{
    size_t offset = address - slab->span->start;
    if (offset / slab->slot_size >= slab->slots)
        return false;
    *slot = (unsigned)(offset / slab->slot_size);
    return offset % slab->slot_size == 0;
}

struct use **slab_uses(struct slab *slab, unsigned slot)
{
    if (!slab->uses) {
        slab->uses = pages_alloc(slab->slots * sizeof(struct use *));
        if (!slab->uses) {
            (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the streams that use a small block");
            return NULL;
        }
    }
    return &slab->uses[slot];
}

static void slab_destroy_locked(struct heap *heap, struct slab *slab)
{
    struct span *span = slab->span;
    list_remove(heap, slab);
    for (size_t offset = 0; offset < span->size; offset += MAP_PAGE)
        map_set(span->start + offset, NULL);
    span->slab = NULL;
    pages_free(slab->uses, slab->slots * sizeof(struct use *));
    pages_free(slab, object_bytes(slab->slots));
    span_give_locked(heap, span);
}

void slab_give_locked(struct heap *heap, struct slab *slab, unsigned slot)
{
    uint64_t bit = UINT64_C(1) << (slot % 64);
    slab->taken[slot / 64] &= ~bit;
    slab->pending[slot / 64] &= ~bit;
    if (slab->used-- == slab->slots)
        list_insert(heap, slab);
    if (slab->used == 0)
        slab_destroy_locked(heap, slab);
}
