/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "memory/arena/arena.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MEMORY (64 * MIB)
#define GRANULE (2 * MIB)

static struct arena *arena;

/* Claims a stretch where the arena finds one. */
static uintptr_t claim(size_t size)
{
    mutex_lock(&arena->lock);
    uintptr_t start = arena_find_locked(arena, size);
    if (start)
        arena_claim_locked(arena, start, size);
    mutex_unlock(&arena->lock);
    return start;
}

static size_t room_above(uintptr_t address)
{
    mutex_lock(&arena->lock);
    size_t room = arena_room_above_locked(arena, address);
    mutex_unlock(&arena->lock);
    return room;
}

static struct piece *create(size_t size)
{
    struct piece *piece = NULL;
    OK(piece_create(&arena->store, size, CHARGE_GROWTH, &piece));
    CHECK(piece->size == size && piece->address == 0);
    return piece;
}

static void nothing_left(void)
{
    OK(arena_free_stuck(arena));
    OK(store_release_unmapped(&arena->store, 0));
    CHECK(arena->reserved == 0 && arena->store.unmapped.bytes == 0 && arena->stuck.bytes == 0);
    CHECK(ledger_of(0).created == 0 && ledger_of(0).mapped == 0);
    CHECK(room_above(arena->base) == arena->size);
}

static void an_arena_is_four_times_the_memory_and_one_a_device(void **state)
{
    (void)state;
    struct arena *again = NULL;
    OK(arena_of(device_at(0), &again));
    CHECK(again == arena && arena->size == 4 * MEMORY && arena->granule == GRANULE);
    CHECK(ledger_of(0).reserved_addresses == arena->size);
    CHECK(arena_at(arena->base) == arena && arena_at(arena->base + arena->size - 1) == arena);
    CHECK(arena_at(arena->base - 1) != arena && !arena_at(arena->base + arena->size));
    CHECK(!arena_at(0) && !arena_at(UINTPTR_MAX) && !arena_if_used(1));
}

static void claimed_addresses_never_overlap_and_all_can_be_claimed(void **state)
{
    (void)state;
    uint64_t random = 5;
    size_t count = arena->size / GRANULE;
    struct {
        uintptr_t start;
        size_t size;
    } claims[128];
    size_t used = 0;
    for (int step = 0; step < 5000; step++) {
        if (random_next(&random) % 2 && used < 128) {
            size_t size = (random_next(&random) % 12 + 1) * GRANULE;
            uintptr_t start = claim(size);
            if (!start)
                continue;
            CHECK(start % GRANULE == 0 && start >= arena->base &&
                  start + size <= arena->base + arena->size);
            for (size_t i = 0; i < used; i++)
                CHECK(start + size <= claims[i].start || claims[i].start + claims[i].size <= start);
            size_t room = room_above(start + size - GRANULE);
            CHECK(room == 0);
            claims[used].start = start;
            claims[used++].size = size;
        } else if (used > 0) {
            size_t i = random_next(&random) % used;
            arena_unclaim(arena, claims[i].start, claims[i].size);
            CHECK(room_above(claims[i].start) >= claims[i].size);
            claims[i] = claims[--used];
        }
    }
    while (used-- > 0)
        arena_unclaim(arena, claims[used].start, claims[used].size);
    for (size_t i = 0; i < count; i++)
        CHECK(claim(GRANULE));
    CHECK(!claim(GRANULE));
    arena_unclaim(arena, arena->base, arena->size);
    CHECK(claim(arena->size) == arena->base);
    arena_unclaim(arena, arena->base, arena->size);
    nothing_left();
}

static void pieces_are_created_up_to_the_limit_and_counted(void **state)
{
    (void)state;
    OK(tarn_device_limit_set(0, 3 * GRANULE));
    struct piece *first = create(2 * GRANULE), *refused = NULL;
    uint64_t creates = calls_of(0, "create");
    GIVES(piece_create(&arena->store, 2 * GRANULE, CHARGE_GROWTH, &refused),
          TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!refused && calls_of(0, "create") == creates && arena->reserved == 2 * GRANULE);
    struct piece *second = create(GRANULE);
    OK(tarn_device_limit_set(0, 0)); /* below what is reserved */
    GIVES(piece_create(&arena->store, GRANULE, CHARGE_GROWTH, &refused), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    GIVES(piece_create(&arena->store, MEMORY, CHARGE_GROWTH, &refused),
          TARN_ERROR_OUT_OF_MEMORY); /* the driver's word */
    CHECK(arena->reserved == 3 * GRANULE &&
          stats_of(0).reserved_bytes[0].current == (int64_t)(3 * GRANULE));
    OK(piece_release(first));
    OK(piece_release(second));
    nothing_left();
}

static void a_piece_that_the_driver_does_not_take_back_goes_to_the_cache(void **state)
{
    (void)state;
    struct piece *piece = create(GRANULE);
    OK(tarn_host_fail_set(kind_of("release"), 1, false, TARN_ERROR_DRIVER));
    GIVES(piece_release(piece), TARN_ERROR_DRIVER);
    CHECK(arena->store.unmapped.first == piece && arena->store.unmapped.bytes == GRANULE &&
          arena->reserved == GRANULE);
    nothing_left();
}

static const struct driver *real;
static int looks;

static int64_t counted(void)
{
    tarn_stats stats = {.size = sizeof stats};
    OK(tarn_device_stats_get(0, &stats));
    return stats.reserved_bytes[TARN_STAT_ALL].current;
}

/* The driver's release, and a look at what is counted when the device has the memory again. */
static tarn_status release_and_look(int device, driver_piece piece)
{
    tarn_status status = real->release(device, piece);
    CHECK(counted() <= (int64_t)ledger_of(0).created);
    looks++;
    return status;
}

/* Another thread may get the memory as soon as the driver has it. */
static void a_piece_counts_no_longer_once_the_driver_has_it(void **state)
{
    (void)state;
    struct driver watched = *driver;
    struct piece *piece = create(GRANULE), *refused = create(GRANULE);
    int64_t before = counted();
    real = driver;
    watched.release = release_and_look;
    driver = &watched;
    OK(piece_release(piece));
    CHECK(looks == 1 && counted() == before - (int64_t)GRANULE);
    OK(tarn_host_fail_set(kind_of("release"), 1, false, TARN_ERROR_DRIVER));
    GIVES(piece_release(refused), TARN_ERROR_DRIVER);
    driver = real;
    CHECK(looks == 2 && counted() == before - (int64_t)GRANULE);
    nothing_left();
    CHECK(counted() == 0);
}

static void pieces_are_mapped_in_order_and_unmapped_together(void **state)
{
    (void)state;
    static const size_t sizes[] = {GRANULE, 3 * GRANULE, 2 * GRANULE};
    struct piece_list list = {0}, back = {0};
    struct piece *pieces[3];
    for (int i = 2; i >= 0; i--)
        pieces_push(&list, pieces[i] = create(sizes[i]));
    CHECK(list.bytes == 6 * GRANULE && list.first == pieces[0]);
    uintptr_t start = claim(6 * GRANULE), address = start;
    uint64_t access = calls_of(0, "set_access");
    size_t left = 0;
    OK(pieces_map(arena, &list, start, 0, &left));
    CHECK(calls_of(0, "set_access") == access + 1);
    for (int i = 0; i < 3; i++) {
        CHECK(pieces[i]->address == address);
        for (size_t offset = 0; offset < sizes[i]; offset += GRANULE)
            CHECK(arena_piece(arena, address + offset) == pieces[i]);
        *(volatile char *)address = 1;
        address += sizes[i];
    }
    uint64_t unmaps = calls_of(0, "unmap");
    OK(pieces_unmap(arena, start, 6 * GRANULE, &back));
    CHECK(calls_of(0, "unmap") == unmaps + 1 && back.bytes == 6 * GRANULE &&
          !arena_piece(arena, start));
    arena_unclaim(arena, start, 6 * GRANULE);
    pieces_to_unmapped(arena, &back);
    nothing_left();
}

static void
a_mapping_that_fails_leaves_every_piece_in_the_cache_and_the_addresses_claimed(void **state)
{
    (void)state;
    static const char *const kinds[] = {"map", "map", "map", "set_access"};
    for (int i = 0; i < 4; i++) {
        struct piece_list list = {0};
        for (int k = 0; k < 3; k++)
            pieces_push(&list, create(GRANULE));
        uintptr_t start = claim(3 * GRANULE);
        OK(tarn_host_fail_set(kind_of(kinds[i]), i < 3 ? (uint64_t)i + 1 : 1, false,
                              TARN_ERROR_MAPPING_LIMIT));
        size_t left = 1;
        GIVES(pieces_map(arena, &list, start, 0, &left), TARN_ERROR_MAPPING_LIMIT);
        CHECK(!list.first && list.bytes == 0 && arena->store.unmapped.bytes == 3 * GRANULE &&
              arena->stuck.bytes == 0);
        CHECK(left == 0 && ledger_of(0).mapped == 0 && room_above(start) == 0 &&
              room_above(start + 3 * GRANULE) > 0);
        arena_unclaim(arena, start, 3 * GRANULE);
        nothing_left();
    }
}

static void pieces_that_cannot_even_be_unmapped_stay_claimed_until_they_can(void **state)
{
    (void)state;
    struct piece_list list = {0};
    for (int k = 0; k < 3; k++)
        pieces_push(&list, create(GRANULE));
    uintptr_t start = claim(3 * GRANULE);
    OK(tarn_host_fail_set(-1, 3, true, TARN_ERROR_DRIVER)); /* the third map, and the unmap */
    size_t left = 0;
    GIVES(pieces_map(arena, &list, start, 0, &left), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK(arena->stuck.bytes == 2 * GRANULE && arena->store.unmapped.bytes == GRANULE &&
          arena->reserved == 3 * GRANULE);
    CHECK(left == 2 * GRANULE && room_above(start) == 0 && room_above(start + 2 * GRANULE) == 0);
    arena_unclaim(arena, start + left, GRANULE);
    OK(tarn_host_fail_set(kind_of("unmap"), 2, false, TARN_ERROR_DRIVER));
    GIVES(arena_free_stuck(arena), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK(arena->stuck.bytes == GRANULE);
    nothing_left();
}

static void the_cache_gives_the_largest_that_fit_and_then_the_smallest_that_covers(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 5, 2, 7, 3};
    struct piece_list list = {0};
    for (int i = 0; i < 5; i++)
        pieces_push(&list, create(sizes[i] * GRANULE));
    pieces_to_unmapped(arena, &list);
    CHECK(!list.first);
    mutex_lock(&arena->lock);
    pieces_from_unmapped_locked(&arena->store, 6 * GRANULE, 6 * GRANULE, &list); /* 5 and 1 */
    mutex_unlock(&arena->lock);
    CHECK(list.bytes == 6 * GRANULE && list.first->size == GRANULE &&
          list.first->next->size == 5 * GRANULE);
    pieces_to_unmapped(arena, &list);
    mutex_lock(&arena->lock);
    pieces_from_unmapped_locked(&arena->store, 16 * GRANULE, 20 * GRANULE, &list); /* 7, 5, 3, 1 */
    mutex_unlock(&arena->lock);
    CHECK(list.bytes == 16 * GRANULE);
    mutex_lock(&arena->lock);
    /* The 2 is one too many */
    pieces_from_unmapped_locked(&arena->store, 17 * GRANULE, 17 * GRANULE, &list);
    mutex_unlock(&arena->lock);
    CHECK(list.bytes == 16 * GRANULE);
    mutex_lock(&arena->lock);
    pieces_from_unmapped_locked(&arena->store, 17 * GRANULE, 18 * GRANULE, &list);
    mutex_unlock(&arena->lock);
    CHECK(list.bytes == 18 * GRANULE && arena->store.unmapped.bytes == 0);
    pieces_to_unmapped(arena, &list);
    OK(store_release_unmapped(&arena->store, 10 * GRANULE));
    CHECK(arena->reserved <= 10 * GRANULE && arena->reserved == arena->store.unmapped.bytes);
    nothing_left();
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
        cmocka_unit_test(an_arena_is_four_times_the_memory_and_one_a_device),
        cmocka_unit_test(claimed_addresses_never_overlap_and_all_can_be_claimed),
        cmocka_unit_test(pieces_are_created_up_to_the_limit_and_counted),
        cmocka_unit_test(a_piece_that_the_driver_does_not_take_back_goes_to_the_cache),
        cmocka_unit_test(a_piece_counts_no_longer_once_the_driver_has_it),
        cmocka_unit_test(pieces_are_mapped_in_order_and_unmapped_together),
        cmocka_unit_test(
            a_mapping_that_fails_leaves_every_piece_in_the_cache_and_the_addresses_claimed),
        cmocka_unit_test(pieces_that_cannot_even_be_unmapped_stay_claimed_until_they_can),
        cmocka_unit_test(the_cache_gives_the_largest_that_fit_and_then_the_smallest_that_covers),
    };
    host_start_with(2, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
