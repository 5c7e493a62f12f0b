/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Live blocks: hash tables by key, in shards. Each shard has a lock, which is a leaf. There are so
 * many shards that threads with blocks of their own rarely meet at one. A shard has two slots
 * inline, for one entry: a search ends at an empty slot. A larger table is from mmap(), since the
 * caller may be the program's malloc(). A slot whose space is SPACE_NONE is empty. Probing is
 * linear, and a removal shifts later entries back, so there are no tombstones. */
#include "lock.h"
#include "shim.h"

#include <sys/mman.h>

enum { SHARDS = 1024, INLINE_SLOTS = 2, FIRST_SLOTS = 64 };

static struct shard {
    struct word_lock lock;
    struct block *slots;
    uint32_t room, used; /* room: slots, a power of two; 0: the inline ones */
    struct block own[INLINE_SLOTS];
} __attribute__((aligned(64))) shards[SHARDS];

static uint64_t hash(unsigned space, uint64_t key)
{
    uint64_t mixed = (key ^ (uint64_t)space << 56) * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 29;
}

static struct shard *shard_of(unsigned space, uint64_t key)
{
    return &shards[hash(space, key) >> 40 & (SHARDS - 1)];
}

/* The slot of a key, or the empty slot where it would go. */
static size_t slot_of(const struct shard *shard, unsigned space, uint64_t key)
{
    size_t at = hash(space, key) & (shard->room - 1);
    while (shard->slots[at].space &&
           (shard->slots[at].key != key || shard->slots[at].space != space))
        at = (at + 1) & (shard->room - 1);
    return at;
}

static bool grow(struct shard *shard)
{
    struct shard larger = {.room = shard->room == INLINE_SLOTS ? FIRST_SLOTS : 2 * shard->room};
    if (!shard->room) {
        shard->slots = shard->own;
        shard->room = INLINE_SLOTS;
        return true;
    }
    void *memory = mmap(NULL, larger.room * sizeof(struct block), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    larger.slots = memory;
    for (size_t i = 0; i < shard->room; i++)
        if (shard->slots[i].space)
            larger.slots[slot_of(&larger, shard->slots[i].space, shard->slots[i].key)] =
                shard->slots[i];
    if (shard->slots != shard->own)
        munmap(shard->slots, shard->room * sizeof(struct block));
    shard->slots = larger.slots;
    shard->room = larger.room;
    return true;
}

static void remove_slot(struct shard *shard, size_t at)
{
    size_t mask = shard->room - 1;
    for (size_t next = (at + 1) & mask; shard->slots[next].space; next = (next + 1) & mask) {
        size_t home = hash(shard->slots[next].space, shard->slots[next].key) & mask;
        if (((next - home) & mask) >= ((next - at) & mask)) {
            shard->slots[at] = shard->slots[next];
            at = next;
        }
    }
    shard->slots[at].space = SPACE_NONE;
    shard->used--;
}

bool blocks_put(const struct block *block, struct block *old)
{
    struct shard *shard = shard_of(block->space, block->key);
    old->space = SPACE_NONE;
    word_lock_take(&shard->lock);
    bool there = 4 * (shard->used + 1) <= 3 * shard->room || grow(shard);
    if (there) {
        struct block *slot = &shard->slots[slot_of(shard, block->space, block->key)];
        if (slot->space)
            *old = *slot;
        else
            shard->used++;
        *slot = *block;
    }
    word_lock_give(&shard->lock);
    return there;
}

bool blocks_take(enum block_space space, uint64_t key, struct block *block)
{
    struct shard *shard = shard_of(space, key);
    bool found = false;
    word_lock_take(&shard->lock);
    if (shard->used) {
        size_t at = slot_of(shard, space, key);
        found = shard->slots[at].space;
        if (found) {
            *block = shard->slots[at];
            remove_slot(shard, at);
        }
    }
    word_lock_give(&shard->lock);
    if (found)
        block->place = log_place();
    return found;
}

bool blocks_find(enum block_space space, uint64_t key, struct block *block)
{
    struct shard *shard = shard_of(space, key);
    bool found = false;
    word_lock_take(&shard->lock);
    if (shard->used) {
        size_t at = slot_of(shard, space, key);
        found = shard->slots[at].space;
        if (found)
            *block = shard->slots[at];
    }
    word_lock_give(&shard->lock);
    return found;
}

enum block_change blocks_refer(enum block_space space, uint64_t key, int change,
                               struct block *block)
{
    struct shard *shard = shard_of(space, key);
    enum block_change result = BLOCK_UNKNOWN;
    word_lock_take(&shard->lock);
    size_t at = shard->used ? slot_of(shard, space, key) : 0;
    if (shard->used && shard->slots[at].space) {
        result = BLOCK_KEPT;
        shard->slots[at].references += (uint32_t)change;
        *block = shard->slots[at];
        if (!block->references) {
            remove_slot(shard, at);
            result = BLOCK_GONE;
        }
    }
    word_lock_give(&shard->lock);
    if (result == BLOCK_GONE)
        block->place = log_place();
    return result;
}

bool blocks_note(enum block_space space, uint64_t key, uint64_t id, const bool *synced,
                 struct block *block)
{
    struct shard *shard = shard_of(space, key);
    word_lock_take(&shard->lock);
    size_t at = shard->used ? slot_of(shard, space, key) : 0;
    bool found = shard->used && shard->slots[at].space;
    if (found) {
        struct block *slot = &shard->slots[at];
        slot->other = slot->other ? slot->other : id;
        slot->synced = synced ? *synced : slot->synced;
        *block = *slot;
    }
    word_lock_give(&shard->lock);
    return found;
}

/* The cursor stays at a slot that is emptied, since another entry may be shifted into it. */
bool blocks_take_of(run_context context, struct block_cursor *cursor, struct block *block)
{
    bool found = false;
    for (; cursor->shard < SHARDS && !found;
         cursor->shard += !found, cursor->slot = found ? cursor->slot : 0) {
        struct shard *shard = &shards[cursor->shard];
        word_lock_take(&shard->lock);
        for (; cursor->slot < shard->room && !found; cursor->slot += !found) {
            const struct block *at = &shard->slots[cursor->slot];
            found = at->space && at->context == context;
            if (found) {
                *block = *at;
                remove_slot(shard, cursor->slot);
            }
        }
        word_lock_give(&shard->lock);
    }
    if (found)
        block->place = log_place();
    return found;
}
