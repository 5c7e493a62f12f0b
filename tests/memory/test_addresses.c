/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Searches in a large arena give what a look at every granule gives. */
#include "memory/arena/arena.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MEMORY (9000 * MIB) /* 18,000 granules: many parts, the last of them in part */
#define GRANULE (2 * MIB)
#define CLAIMS 600

static struct arena *arena;

static bool is_claimed(size_t granule)
{
    return arena->claimed[granule / 64] >> (granule % 64) & 1;
}

struct seen {
    size_t start, length, second, second_start,
        highest; /* granules; the two longest stretches; where `wanted` fit highest */
};

static struct seen look(size_t wanted)
{
    struct seen seen = {.highest = SIZE_MAX};
    for (size_t start = 0, count = arena->size / GRANULE; start < count;) {
        size_t end = start;
        while (end < count && !is_claimed(end))
            end++;
        if (end - start > seen.length) {
            seen.second = seen.length;
            seen.second_start = seen.start;
            seen.length = end - start;
            seen.start = start;
        } else if (end - start > seen.second) {
            seen.second = end - start;
            seen.second_start = start;
        }
        if (end - start >= wanted && wanted)
            seen.highest = end - wanted;
        start = end + 1;
    }
    return seen;
}

/* What arena_find_locked() has always promised, from the two longest stretches. */
static uintptr_t place_for(const struct seen *seen, size_t wanted)
{
    size_t start = seen->start, length = seen->length,
           keep = arena->size / GRANULE / ARENA_ADDRESS_FACTOR;
    if (length < wanted)
        return 0;
    size_t margin = length / 4 < length - wanted ? length / 4 : length - wanted,
           above = length - margin - wanted;
    if ((above > margin ? above : margin) < keep) {
        margin = 0;
        if (seen->second >= wanted) {
            start = seen->second_start;
            length = seen->second;
            margin = length / 4 < length - wanted ? length / 4 : length - wanted;
        }
    }
    return arena->base + (start + margin) * GRANULE;
}

static void check_searches(uint64_t *random)
{
    size_t wanted = random_next(random) % 300 + 1;
    struct seen seen = look(wanted);
    mutex_lock(&arena->lock);
    uintptr_t found = arena_find_locked(arena, wanted * GRANULE);
    uintptr_t high = arena_find_high_locked(arena, wanted * GRANULE);
    size_t longest = arena_longest_locked(arena);
    mutex_unlock(&arena->lock);
    CHECK(longest == seen.length * GRANULE);
    CHECK(found == place_for(&seen, wanted));
    CHECK(high == (seen.highest == SIZE_MAX ? 0 : arena->base + seen.highest * GRANULE));
}

static void check_room(uint64_t *random)
{
    size_t count = arena->size / GRANULE, at = random_next(random) % (count + 1), end = at;
    while (end < count && !is_claimed(end))
        end++;
    mutex_lock(&arena->lock);
    size_t room = arena_room_above_locked(arena, arena->base + at * GRANULE);
    mutex_unlock(&arena->lock);
    CHECK(room == (end - at) * GRANULE);
}

/* Claims where the arena finds room, or at the high end, or anywhere; with few and with many
 * stretches. */
static void searches_give_what_a_look_at_every_granule_gives(void **state)
{
    (void)state;
    static struct {
        uintptr_t start;
        size_t size;
    } claims[CLAIMS];
    uint64_t random = 7;
    size_t used = 0, most = CLAIMS;
    for (int step = 0; step < 6000; step++) {
        if (step % 1000 == 0)
            most = random_next(&random) % CLAIMS + 1;
        if (used < most && random_next(&random) % 3) {
            size_t size = (random_next(&random) % (step % 7 ? 40 : 900) + 1) * GRANULE;
            mutex_lock(&arena->lock);
            uintptr_t start = random_next(&random) % 4 ? arena_find_locked(arena, size)
                                                       : arena_find_high_locked(arena, size);
            if (start)
                arena_claim_locked(arena, start, size);
            mutex_unlock(&arena->lock);
            claims[used].start = start;
            claims[used].size = size;
            used += start != 0;
        } else if (used) {
            size_t i = random_next(&random) % used;
            arena_unclaim(arena, claims[i].start, claims[i].size);
            claims[i] = claims[--used];
        }
        check_room(&random);
        if (step % 8 == 0)
            check_searches(&random);
    }
    while (used-- > 0)
        arena_unclaim(arena, claims[used].start, claims[used].size);
    CHECK(look(0).length == arena->size / GRANULE);
    check_searches(&random);
}

static int set_up(void **state)
{
    int count = 0;
    (void)state;
    OK(tarn_device_count_get(&count));
    OK(arena_of(device_at(0), &arena));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(searches_give_what_a_look_at_every_granule_gives),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
