/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns which granules of an arena's addresses are claimed: a bitmap, and over it a tree. A node of
 * the tree has, for its part of the addresses, what is unclaimed at both ends and its longest
 * unclaimed stretch. So a search does not look at every stretch. Both are under the arena's lock.
 * Makes no driver call. */
#include "base/bits.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/arena/arena.h"

#define LEAF ((size_t)256) /* granules */
#define SHORT_RUN 8        /* a run up to this part of the device's memory is short */

struct stretch {
    size_t start, length; /* granules */
};

/* A node of the tree, in granules. The children of node i are 2i and 2i + 1; node 1 is everything.
 * A node under which nothing was ever claimed is 0. */
struct arena_part {
    uint32_t low, high;     /* unclaimed at its beginning; at its end */
    uint32_t start, length; /* its longest unclaimed stretch; of equal ones the lowest */
    bool known;
};

/* The same for any range. */
struct view {
    size_t first, end; /* granules */
    size_t low, high;
    struct stretch longest;
};

static size_t granules(const struct arena *arena)
{
    return arena->size / arena->granule;
}

static size_t leaves_of(size_t granules)
{
    size_t count = 1;
    while (count * LEAF < granules)
        count *= 2;
    return count;
}

static size_t leaves(const struct arena *arena)
{
    return leaves_of(granules(arena));
}

size_t arena_parts_bytes(size_t granules)
{
    return 2 * leaves_of(granules) * sizeof(struct arena_part);
}

static struct view view_join(struct view left, struct view right)
{
    struct view both = {.first = left.first, .end = right.end, .low = left.low, .high = right.high};
    struct stretch between = {left.end - left.high, left.high + right.low};
    if (left.low == left.end - left.first)
        both.low += right.low;
    if (right.high == right.end - right.first)
        both.high += left.high;
    both.longest = left.longest.length >= between.length ? left.longest : between;
    if (right.longest.length > both.longest.length)
        both.longest = right.longest;
    return both;
}

/* The view of a part of one leaf, from the bitmap. */
static struct view view_of_bits(const struct arena *arena, size_t first, size_t end)
{
    struct view view = {.first = first, .end = end};
    for (size_t start = bits_next(arena->claimed, end, first, false); start < end;) {
        size_t stop = bits_next(arena->claimed, end, start, true);
        struct stretch stretch = {start, stop - start};
        if (start == first)
            view.low = stretch.length;
        if (stop == end)
            view.high = stretch.length;
        if (stretch.length > view.longest.length)
            view.longest = stretch;
        start = bits_next(arena->claimed, end, stop, false);
    }
    return view;
}

static struct view view_of_part(const struct arena *arena, size_t node, size_t first, size_t end)
{
    if (first == end || !arena->parts[node].known) /* an arena without addresses has no tree */
        return (struct view){first, end, end - first, end - first, {first, end - first}};
    const struct arena_part *part = &arena->parts[node];
    return (struct view){first, end, part->low, part->high, {part->start, part->length}};
}

/* The view of the part of a node that is in [from, to). The node begins at `first` and has `span`
 * granules. */
static struct view view_of(const struct arena *arena, size_t node, size_t first, size_t span,
                           size_t from, size_t to)
{
    size_t count = granules(arena), end = first + span < count ? first + span : count;
    first = first < count ? first : count;
    if (from <= first && end <= to)
        return view_of_part(arena, node, first, end);
    size_t low = from > first ? from : first, high = to < end ? to : end;
    if (low >= high)
        return (struct view){.first = low, .end = low};
    if (span == LEAF)
        return view_of_bits(arena, low, high);
    return view_join(view_of(arena, 2 * node, first, span / 2, from, to),
                     view_of(arena, 2 * node + 1, first + span / 2, span / 2, from, to));
}

static struct stretch longest_of(const struct arena *arena, size_t from, size_t to)
{
    return view_of(arena, 1, 0, leaves(arena) * LEAF, from, to).longest;
}

static void part_set(struct arena *arena, size_t node, struct view view)
{
    arena->parts[node] =
        (struct arena_part){(uint32_t)view.low, (uint32_t)view.high, (uint32_t)view.longest.start,
                            (uint32_t)view.longest.length, true};
}

static void mark_claimed(struct arena *arena, uintptr_t start, size_t size, bool value)
{
    size_t first = (start - arena->base) / arena->granule, end = first + size / arena->granule;
    size_t count = granules(arena), span = LEAF, node = leaves(arena);
    bits_mark(arena->claimed, first, end, value);
    if (first == end)
        return;
    for (size_t leaf = first / LEAF; leaf <= (end - 1) / LEAF; leaf++)
        part_set(arena, node + leaf,
                 view_of_bits(arena, leaf * LEAF,
                              (leaf + 1) * LEAF < count ? (leaf + 1) * LEAF : count));
    while (node > 1) {
        node /= 2;
        span *= 2;
        for (size_t i = first / span; i <= (end - 1) / span; i++) {
            size_t low = i * span, middle = low + span / 2 < count ? low + span / 2 : count;
            size_t high = low + span < count ? low + span : count;
            part_set(arena, node + i,
                     view_join(view_of_part(arena, 2 * (node + i), low, middle),
                               view_of_part(arena, 2 * (node + i) + 1, middle, high)));
        }
    }
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

size_t arena_room_above_locked(const struct arena *arena, uintptr_t address)
{
    size_t first = (address - arena->base) / arena->granule, count = granules(arena);
    size_t near = (first / LEAF + 1) * LEAF < count ? (first / LEAF + 1) * LEAF : count;
    size_t end = bits_next(arena->claimed, near, first, true);
    if (end == near)
        end += view_of(arena, 1, 0, leaves(arena) * LEAF, near, count).low;
    return (end - first) * arena->granule;
}

static size_t quarter_of(const struct stretch *stretch, size_t wanted)
{
    size_t margin = stretch->length / 4, most = stretch->length - wanted;
    return margin < most ? margin : most;
}

/* Takes the longest unclaimed range. A new run starts a quarter into it, so that the run before it
 * can still grow. But one range as long as the device's memory must remain. If this would break up
 * the last such range, takes the second longest; if that is too short, the low end of the longest.
 * If the driver gave too few addresses for that, large runs go to the low end, where they can grow,
 * and short ones to the high end, out of their way. */
uintptr_t arena_find_locked(struct arena *arena, size_t size)
{
    size_t count = granules(arena), wanted = size / arena->granule;
    size_t keep = arena->device->properties.memory / arena->granule;
    struct stretch best = longest_of(arena, 0, count), second = longest_of(arena, 0, best.start);
    struct stretch above_it = longest_of(arena, best.start + best.length, count);
    if (above_it.length > second.length)
        second = above_it;
    if (best.length < wanted)
        return 0;
    size_t margin = quarter_of(&best, wanted), above = best.length - margin - wanted;
    if ((above > margin ? above : margin) < keep) {
        margin = 0;
        if (second.length >= wanted) {
            best = second;
            margin = quarter_of(&best, wanted);
        }
        if (count < 2 * keep)
            margin = wanted <= keep / SHORT_RUN ? best.length - wanted : 0;
    }
    return arena->base + (best.start + margin) * arena->granule;
}

/* The highest granule of a node at which `wanted` unclaimed ones begin; SIZE_MAX: none. `open` is
 * the number of unclaimed granules directly behind the node; on return, directly behind the next
 * node below. */
static size_t highest(const struct arena *arena, size_t node, size_t first, size_t span,
                      size_t wanted, size_t *open)
{
    struct view view = view_of(arena, node, first, span, 0, SIZE_MAX);
    if (view.longest.length < wanted && view.high + *open < wanted) {
        *open = view.low + (view.low == view.end - view.first ? *open : 0);
        return SIZE_MAX;
    }
    if (span > LEAF) {
        size_t found = highest(arena, 2 * node + 1, first + span / 2, span / 2, wanted, open);
        return found != SIZE_MAX ? found : highest(arena, 2 * node, first, span / 2, wanted, open);
    }
    for (size_t i = view.end; i-- > view.first;) {
        *open = bits_next(arena->claimed, i + 1, i, true) == i ? 0 : *open + 1;
        if (*open >= wanted)
            return i;
    }
    return SIZE_MAX;
}

uintptr_t arena_find_high_locked(const struct arena *arena, size_t size)
{
    size_t open = 0,
           found = highest(arena, 1, 0, leaves(arena) * LEAF, size / arena->granule, &open);
    return found == SIZE_MAX ? 0 : arena->base + found * arena->granule;
}

size_t arena_longest_locked(const struct arena *arena)
{
    return arena->size ? longest_of(arena, 0, granules(arena)).length * arena->granule : 0;
}

tarn_status arena_claim_high(struct arena *arena, size_t size, uintptr_t *start)
{
    mutex_lock(&arena->lock);
    *start = arena_find_high_locked(arena, size);
    if (*start)
        arena_claim_locked(arena, *start, size);
    mutex_unlock(&arena->lock);
    if (*start)
        return TARN_OK;
    return failed(TARN_ERROR_OUT_OF_MEMORY, "no address range of %zu bytes is free on device %d",
                  size, arena->device->number);
}
