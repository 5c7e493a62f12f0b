/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the shape of slabs: classes, sizes, creating and destroying. Slab objects have pools of
 * their own, and their memory is never used for anything else. So a thread that has a stale page
 * map entry, for a wrong pointer, still reads a slab. */
#include "memory/heap/slab.h"
#include "base/pages.h"
#include "base/status.h"

uint8_t slab_classes[SLAB_MOST / TARN_BLOCK_UNIT + 1];
uint32_t slab_sizes[SLAB_CLASSES];

/* Objects by the number of slots: up to 16, 32, 64, 128. */
#define OBJECT_BYTES(slots) (sizeof(struct slab) + (slots) * sizeof(slab_note))
#define POOL(slots)                                                           \
    {                                                                         \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = "slab of " #slots,   \
        .size = (OBJECT_BYTES(slots) + CACHE_LINE - 1) & ~(CACHE_LINE - 1ul), \
        .zeroed = offsetof(struct slab, owner)                                \
    }
static struct object_pool slabs[] = {POOL(16), POOL(32), POOL(64), POOL(128)};

static struct object_pool *pool_of(unsigned slots)
{
    return &slabs[slots <= 16 ? 0 : slots <= 32 ? 1 : slots <= 64 ? 2 : 3];
}

void slab_tables_fill(void)
{
    unsigned class = 0;
    for (size_t size = 512; size <= SLAB_MOST; class ++) {
        slab_sizes[class] = (uint32_t)size;
        size +=
            /* an eighth of the power of two below it */
            size < 8192 ? 512 : (size_t)1 << (60 - __builtin_clzll(size));
    }
    class = 0;
    for (size_t unit = 0; unit <= SLAB_MOST / TARN_BLOCK_UNIT; unit++) {
        if (unit * TARN_BLOCK_UNIT > slab_sizes[class])
            class ++;
        slab_classes[unit] = (uint8_t) class;
    }
}

/* The smallest number of pages that has at least eight slots and loses at most 1/16 at its end. */
size_t slab_span_size(unsigned class)
{
    size_t slot_size = slab_sizes[class], bytes = MAP_PAGE;
    while (bytes / slot_size < 8 || bytes % slot_size > bytes / 16)
        bytes += MAP_PAGE;
    return bytes;
}

bool slab_serves(const struct request *request)
{
    return request->size <= SLAB_MOST && slab_slot_size(request->size) % request->alignment == 0 &&
           slab_slot_size(request->size) - request->requested <= NOTE_UNUSED;
}

struct slab *slab_create_locked(struct span *span, unsigned class, struct cache *owner)
{
    size_t slot_size = slab_sizes[class];
    unsigned slots = (unsigned)(slab_span_size(class) / slot_size);
    struct slab *slab = object_alloc(pool_of(slots));
    if (!slab) {
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a slab");
        return NULL;
    }
    slab->start = span->start;
    slab->slot_size = (uint32_t)slot_size;
    slab->reciprocal = slab_reciprocal(slot_size);
    atomic_store_explicit(&slab->owner, owner, memory_order_relaxed);
    slab->slots = (uint8_t)slots;
    slab->class = (uint8_t) class;
    slab->span = span;
    for (unsigned word = 0; word < SLAB_SLOTS / 64; word++)
        slab->remote[word].slab = slab;
    for (unsigned slot = 0; slot < slots; slot++) {
        slab_note_end(&slab->notes[slot], 0);
        slab_come_home(slab, slot);
    }
    span->slab = slab;
    span->state = SPAN_SLAB;
    for (size_t offset = 0; offset < span->size; offset += MAP_PAGE)
        map_set(span->start + offset, map_entry_of_slab(slab));
    return slab;
}

void slab_destroy_locked(struct heap *heap, struct slab *slab)
{
    struct span *span = slab->span;
    for (size_t offset = 0; offset < span->size; offset += MAP_PAGE)
        map_set(span->start + offset, 0);
    span->slab = NULL;
    pages_free(atomic_load_explicit(&slab->uses, memory_order_relaxed),
               slab->slots * sizeof(struct use *));
    object_free(pool_of(slab->slots), slab);
    span_give_locked(heap, span);
}

unsigned slab_leave_home(struct slab *slab)
{
    unsigned word = 0;
    while (!slab->home[word])
        word++;
    unsigned slot = word * 64 + (unsigned)__builtin_ctzll(slab->home[word]);
    slab->home[word] &= slab->home[word] - 1;
    slab->homes--;
    return slot;
}

void slab_come_home(struct slab *slab, unsigned slot)
{
    slab->home[slot / 64] |= UINT64_C(1) << (slot % 64);
    slab->homes++;
}

void slab_set_state_locked(struct slab *slab, unsigned slot, uint32_t state)
{
    uint32_t note = slab_note_of(slab, slot) & ~NOTE_STATE;
    atomic_store_explicit(&slab->notes[slot], note | state, memory_order_relaxed);
}

void slab_set_requested_locked(struct slab *slab, unsigned slot, size_t requested)
{
    uint32_t note = slab_note_of(slab, slot) & ~NOTE_UNUSED;
    atomic_store_explicit(&slab->notes[slot], note | (uint32_t)(slab->slot_size - requested),
                          memory_order_relaxed);
}

struct use **slab_uses_locked(struct slab *slab, unsigned slot)
{
    struct use **uses = atomic_load_explicit(&slab->uses, memory_order_relaxed);
    if (!uses) {
        uses = pages_alloc(slab->slots * sizeof(struct use *));
        if (!uses) {
            (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                         "no host memory for the streams that use a small block");
            return NULL;
        }
        atomic_store_explicit(&slab->uses, uses, memory_order_release);
    }
    return &uses[slot];
}
