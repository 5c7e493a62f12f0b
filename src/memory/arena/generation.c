/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the counter that gives each mapping its generation, and the arenas' tables of them. */
#include "memory/arena/generation.h"
#include "memory/arena/observe.h"

static atomic_uint_fast64_t last_generation;

uint64_t generation_next(void)
{
    return atomic_fetch_add(&last_generation, 1) + 1;
}

static uint64_t *entry_of(const struct arena *arena, uintptr_t address)
{
    return &arena->generations[(address - arena->base) / arena->granule];
}

/* Calls observers for each stretch of one generation in a range. Granules without one are left
 * out. */
static void tell_stretches(const struct arena *arena, uintptr_t start, size_t size, bool mapped)
{
    for (uintptr_t address = start, end = start + size; address < end;) {
        tarn_mapping range = {.device = arena->device->number,
                              .address = (void *)address,
                              .generation = *entry_of(arena, address)};
        while (address < end && *entry_of(arena, address) == range.generation)
            address += arena->granule;
        range.bytes = address - (uintptr_t)range.address;
        if (range.generation && mapped)
            observe_mapped(&range);
        else if (range.generation)
            observe_unmapping(&range);
    }
}

/* Gives a new generation to the granules of a range that have one (`mapped` false), or to those
 * that have none; and tells observers. */
static void renew(struct arena *arena, uintptr_t start, size_t size, bool mapped)
{
    uint64_t generation = generation_next();
    for (uintptr_t address = start, end = start + size; address < end;) {
        uintptr_t first = address;
        for (; address < end && (*entry_of(arena, address) != 0) == mapped;
             address += arena->granule)
            *entry_of(arena, address) = generation;
        if (address > first)
            tell_stretches(arena, first, address - first, true);
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
    tell_stretches(arena, start, size, false);
}

void generation_ended(struct arena *arena, uintptr_t start, size_t size, bool unmapped)
{
    if (!unmapped)
        renew(arena, start, size, true);
    for (size_t offset = 0; unmapped && offset < size; offset += arena->granule)
        *entry_of(arena, start + offset) = 0;
}

void generation_exchange(struct arena *arena, uintptr_t start, size_t size, bool mapped)
{
    uint64_t generation = mapped ? generation_next() : 0;
    for (size_t offset = 0; offset < size; offset += arena->granule)
        *entry_of(arena, start + offset) = generation;
}

void generation_tell(const struct arena *arena, uintptr_t start, size_t size)
{
    tell_stretches(arena, start, size, true);
}

uint64_t generation_at(const struct arena *arena, uintptr_t address)
{
    return *entry_of(arena, address);
}

uint64_t generation_newest(const struct arena *arena, uintptr_t start, size_t size)
{
    uint64_t newest = 0;
    uintptr_t first = start - (start - arena->base) % arena->granule;
    for (uintptr_t address = first; address < start + size; address += arena->granule)
        newest = *entry_of(arena, address) > newest ? *entry_of(arena, address) : newest;
    return newest;
}
