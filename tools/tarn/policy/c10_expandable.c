/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Expandable segments in the model of PyTorch's allocator. A segment is a range of addresses of one
 * stream, pool and class, larger than the device. Memory is mapped into it by the granule, each
 * granule a piece of its own. So a range is a list of blocks, some of which have no memory; these
 * begin and end at granules. A range is created when no other has room, and ends when nothing in it
 * is mapped. */
#include "policy/c10_model.h"

static uint64_t granule_of(const struct model *model, uint32_t set)
{
    return c10_is_small(set) ? C10_SMALL_SEGMENT : model->policy.large_segment;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

uint64_t c10_expandable_size(const struct model *model, uint32_t number)
{
    const struct block *block = &model->blocks[number];
    uint32_t next = block->next;
    return block->size + (next && !model->blocks[next].mapped ? model->blocks[next].size : 0);
}

/* Creates a range, as one block without memory; 0 if host memory or addresses are short. */
static uint32_t range_create(struct model *model, uint32_t set, uint32_t stream)
{
    uint64_t granule = granule_of(model, set);
    uint64_t size = round_up(model->memory / 8 * 9, granule);
    uint64_t address = round_up(model->next_address, granule);
    uint32_t number = address > UINT64_MAX - size - granule ? 0 : c10_block_create(model);
    if (!number)
        return 0;
    model->blocks[number] = (struct block){
        .address = address, .size = size, .stream = stream, .set = set, .free = true};
    model->next_address = address + size;
    c10_charge(model, C10_CALL_reserve, 1, 0, 0);
    c10_set_insert(model, number);
    return number;
}

/* True if the free stretch from a block on, mapped or not, is large enough. */
static bool has_room(const struct model *model, uint32_t number, uint64_t size)
{
    uint64_t room = 0;
    for (; room < size && number && model->blocks[number].free; number = model->blocks[number].next)
        room += model->blocks[number].size;
    return room >= size;
}

/* Finds where to allocate: the lowest address at which a block without memory, or the free block
 * before it, begins enough room. */
static uint32_t find_room(struct model *model, uint32_t set, uint32_t stream, uint64_t size)
{
    uint32_t number = c10_set_from(model, model->unmapped[set], stream, 0, 0);
    while (number && model->blocks[number].stream == stream) {
        uint32_t previous = model->blocks[number].previous;
        uint32_t first = previous && model->blocks[previous].free ? previous : number;
        if (has_room(model, first, size))
            return first;
        number = c10_set_after(model, model->unmapped[set], &model->blocks[number]);
    }
    return range_create(model, set, stream);
}

/* Maps at least `size` bytes at the low end of a block without memory, and joins them with free
 * neighbours. Returns the joined block, which is in its set. 0 as from c10_expandable_alloc(). */
static uint32_t map(struct model *model, uint32_t number, uint64_t size, bool *full)
{
    uint64_t granule = granule_of(model, model->blocks[number].set);
    uint64_t bytes = round_up(size, granule), count = bytes / granule;
    uint64_t room = (model->memory - model->reserved) / granule;
    if (count > room) { /* the pieces that were created before the failure are released */
        *full = true;
        c10_charge(model, C10_CALL_create, room, room * granule, room);
        c10_charge(model, C10_CALL_release, room, room * granule, room);
        return 0;
    }
    c10_set_remove(model, number);
    if (bytes < model->blocks[number].size) {
        uint32_t rest = c10_block_cut(model, number, bytes);
        if (!rest)
            return 0;
        c10_set_insert(model, rest);
    }
    model->blocks[number].mapped = true;
    c10_charge(model, C10_CALL_create, count, bytes, count);
    c10_charge(model, C10_CALL_map, count, bytes, count);
    c10_charge(model, C10_CALL_set_access, 1, bytes, count);
    c10_grown(model, bytes);
    number = c10_block_join(model, number);
    c10_set_insert(model, number);
    return number;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint32_t c10_expandable_alloc(struct model *model, uint32_t set, uint32_t stream, uint64_t size,
                              bool *full)
{
    *full = size > model->memory;
    uint32_t number = *full ? 0 : find_room(model, set, stream, size);
    if (number && !model->blocks[number].mapped)
        number = map(model, number, smaller(size, model->blocks[number].size), full);
    /* What follows has no memory, and joins what it follows */
    while (number && model->blocks[number].size < size) {
        uint32_t next = model->blocks[number].next;
        number = map(model, next,
                     smaller(size - model->blocks[number].size, model->blocks[next].size), full);
    }
    if (number)
        c10_set_remove(model, number);
    return number;
}

/* Cuts a block that is in no set at `size`. The first part goes to the set of free blocks. Returns
 * the second part. */
static uint32_t keep_before(struct model *model, uint32_t number, uint64_t size)
{
    uint32_t rest = c10_block_cut(model, number, size);
    if (rest)
        c10_set_insert(model, number);
    return rest;
}

uint64_t c10_expandable_granules(const struct model *model, const struct block *block,
                                 uint64_t *first)
{
    uint64_t granule = granule_of(model, block->set),
             end = (block->address + block->size) / granule * granule;
    *first = round_up(block->address, granule);
    return *first < end ? end - *first : 0;
}

bool c10_expandable_release(struct model *model, uint32_t number)
{
    const struct block *block = &model->blocks[number];
    uint64_t granule = granule_of(model, block->set), first;
    uint64_t bytes = c10_expandable_granules(model, block, &first), end = first + bytes;
    if (!bytes)
        return true;
    c10_set_remove(model, number);
    if (first > block->address) {
        number = keep_before(model, number, first - block->address);
        if (!number)
            return false;
    }
    if (model->blocks[number].size > end - first) {
        uint32_t behind = c10_block_cut(model, number, end - first);
        if (!behind)
            return false;
        c10_set_insert(model, behind);
    }
    uint64_t count = bytes / granule;
    model->blocks[number].mapped = false;
    model->reserved -= bytes;
    c10_charge(model, C10_CALL_unmap, count, bytes, count);
    c10_charge(model, C10_CALL_release, count, bytes, count);
    number = c10_block_join(model, number);
    if (model->blocks[number].previous || model->blocks[number].next) {
        c10_set_insert(model, number);
        return true;
    }
    c10_charge(model, C10_CALL_unreserve, 1, 0, 0);
    c10_block_destroy(model, number);
    return true;
}
