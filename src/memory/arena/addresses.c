/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the bitmap of each arena that says which granules of its addresses are claimed, under the arena's lock. Makes no driver call. */
#include "base/bits.h"
#include "memory/arena/arena.h"

static size_t granules(const struct arena *arena)
{
    return arena->size / arena->granule;
}

static void mark_claimed(struct arena *arena, uintptr_t start, size_t size, bool value)
{
    size_t first = (start - arena->base) / arena->granule;
    bits_mark(arena->claimed, first, first + size / arena->granule, value);
}

void arena_claim_locked(struct arena *arena, uintptr_t start, size_t size)
{
    mark_claimed(arena, start, size, true);
}

void arena_unclaim(struct arena *arena, uintptr_t start, size_t size)
{
    mutex_lock(&arena->lock);
    mark_claimed(arena, start, size, false);
    mutex_unlock(&arena->lock);
}

/* The first granule from `from` on whose bit is `value`, or the number of granules. */
static size_t next_with(const struct arena *arena, size_t from, bool value)
{
    return bits_next(arena->claimed, granules(arena), from, value);
}

size_t arena_room_above_locked(const struct arena *arena, uintptr_t address)
{
    size_t first = (address - arena->base) / arena->granule;
    return (next_with(arena, first, true) - first) * arena->granule;
}

struct stretch {
    size_t start, length; /* granules */
};

static size_t quarter_of(const struct stretch *stretch, size_t wanted)
{
    size_t margin = stretch->length / 4, most = stretch->length - wanted;
    return margin < most ? margin : most;
}

/* The longest unclaimed range. A new run starts a quarter into it, so that the run before it can still grow. But one range as long as the
 * device's memory must remain, wherever small blocks live. So if this would break up the last such range, the second longest serves; if
 * that is too short, the low end of the longest. */
uintptr_t arena_find_locked(struct arena *arena, size_t size)
{
    struct stretch best = {0}, second = {0};
    size_t count = granules(arena), wanted = size / arena->granule, keep = count / ARENA_ADDRESS_FACTOR;
    for (size_t start = next_with(arena, 0, false); start < count;) {
        size_t end = next_with(arena, start, true);
        struct stretch stretch = {start, end - start};
        if (stretch.length > best.length) {
            second = best;
            best = stretch;
        } else if (stretch.length > second.length) {
            second = stretch;
        }
        start = next_with(arena, end, false);
    }
    if (best.length < wanted)
        return 0;
    size_t margin = quarter_of(&best, wanted), above = best.length - margin - wanted;
    if ((above > margin ? above : margin) < keep) {
        margin = 0;
        if (second.length >= wanted) {
            best = second;
            margin = quarter_of(&best, wanted);
        }
    }
    return arena->base + (best.start + margin) * arena->granule;
}

uintptr_t arena_find_high_locked(const struct arena *arena, size_t size)
{
    size_t count = granules(arena), wanted = size / arena->granule, highest = SIZE_MAX;
    for (size_t start = next_with(arena, 0, false); start < count;) {
        size_t end = next_with(arena, start, true);
        if (end - start >= wanted)
            highest = end - wanted;
        start = next_with(arena, end, false);
    }
    return highest == SIZE_MAX ? 0 : arena->base + highest * arena->granule;
}

size_t arena_longest_locked(const struct arena *arena)
{
    size_t longest = 0, count = granules(arena);
    for (size_t start = next_with(arena, 0, false); start < count;) {
        size_t end = next_with(arena, start, true);
        longest = end - start > longest ? end - start : longest;
        start = next_with(arena, end, false);
    }
    return longest * arena->granule;
}
