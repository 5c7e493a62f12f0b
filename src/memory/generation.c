/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the counter that gives each mapping its generation, and the arenas' tables of them. */
#include "memory/generation.h"
#include "base/status.h"
#include "memory/malloc.h"
#include "memory/observe.h"
#include "memory/segment.h"

static atomic_uint_fast64_t last_generation;

uint64_t generation_next(void)
{
    return atomic_fetch_add(&last_generation, 1) + 1;
}

static uint64_t *entry_of(const struct arena *arena, uintptr_t address)
{
    return &arena->generations[(address - arena->base) / arena->granule];
}

/* Calls `tell` for each stretch of one generation; what has none is not told of. */
static void each_stretch(const struct arena *arena, uintptr_t start, size_t size, void (*tell)(const tarn_range *range))
{
    for (uintptr_t address = start, end = start + size; address < end;) {
        tarn_range range = {
            .device = arena->device->number, .address = (void *)address, .generation = *entry_of(arena, address)};
        while (address < end && *entry_of(arena, address) == range.generation)
            address += arena->granule;
        range.bytes = address - (uintptr_t)range.address;
        if (range.generation)
            tell(&range);
    }
}

/* Gives a new generation to the granules of a range that have one, or to those that have none; and tells of these. */
static void renew(struct arena *arena, uintptr_t start, size_t size, bool mapped)
{
    uint64_t generation = generation_next();
    for (uintptr_t address = start, end = start + size; address < end;) {
        uintptr_t first = address;
        for (; address < end && (*entry_of(arena, address) != 0) == mapped; address += arena->granule)
            *entry_of(arena, address) = generation;
        if (address > first)
            each_stretch(arena, first, address - first, observe_mapped);
        else
            address += arena->granule;
    }
}

void generation_begin(struct arena *arena, uintptr_t start, size_t size)
{
    renew(arena, start, size, false);
}

void generation_ends(struct arena *arena, uintptr_t start, size_t size)
{
    each_stretch(arena, start, size, observe_unmapping);
}

void generation_ended(struct arena *arena, uintptr_t start, size_t size, bool unmapped)
{
    if (!unmapped)
        renew(arena, start, size, true);
    for (size_t offset = 0; unmapped && offset < size; offset += arena->granule)
        *entry_of(arena, start + offset) = 0;
}

uint64_t generation_newest(const struct arena *arena, uintptr_t start, size_t size)
{
    uint64_t newest = 0;
    uintptr_t first = start - (start - arena->base) % arena->granule;
    for (uintptr_t address = first; address < start + size; address += arena->granule)
        newest = *entry_of(arena, address) > newest ? *entry_of(arena, address) : newest;
    return newest;
}

static tarn_status note_range(struct store *store, const tarn_block_info *block, void *argument)
{
    const struct arena *arena = store->arena;
    tarn_range *range = argument; /* whose address is the pointer asked about */
    tarn_status status = store_check(store);
    (void)block;
    if (status)
        return status;
    if (store->plain) {
        *range = segment_range((uintptr_t)range->address);
        return TARN_OK;
    }
    const struct piece *piece = arena_piece(arena, (uintptr_t)range->address);
    *range = (tarn_range){
        .address = (void *)piece->address,
        .bytes = piece->size,
        .generation = *entry_of(arena, piece->address),
        .device = arena->device->number,
    };
    return TARN_OK;
}

tarn_status tarn_range_get(const void *pointer, tarn_range *range)
{
    if (!range)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "range is NULL");
    tarn_range found = {.address = (void *)(uintptr_t)pointer};
    tarn_status status = memory_block_do(pointer, note_range, &found);
    if (!status)
        *range = found;
    return status;
}
