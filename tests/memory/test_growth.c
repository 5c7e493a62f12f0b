/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How a heap comes by memory. The checker of the host device is on: an unmap of memory in use would
 * be reported. */
#include "driver/host/host.h"
#include "memory/growth/growth.h"
#include "memory/pool/pool.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)
#define PIECE (20 * MIB) /* of large blocks, at least */

static tarn_stream own, other;

static uint64_t created(void)
{
    return ledger_of(0).created;
}

static uint64_t piece_at(const void *address)
{
    tarn_host_extent extent;
    OK(tarn_host_extent_get(0, address, 1, &extent));
    CHECK(extent.accessible);
    return extent.piece;
}

static void pieces_are_large_for_large_blocks_and_small_for_small_ones(void **state)
{
    (void)state;
    void *small = alloc_on(own, 1);
    CHECK(created() == 2 * MIB && ledger_of(0).pieces == 1);
    void *large = alloc_on(own, MIB + 1);
    CHECK(created() == 22 * MIB && ledger_of(0).pieces == 2);
    void *larger = alloc_on(own, 33 * MIB);
    CHECK(created() == 2 * MIB + PIECE + 20 * MIB); /* what is free behind `large` is part of it */
    OK(tarn_free(small));
    OK(tarn_free(large));
    OK(tarn_free(larger));
    nothing_is_left(0);
}

static void a_run_grows_at_its_end_so_that_freed_neighbours_are_one_stretch(void **state)
{
    (void)state;
    char *first = alloc_on(own, PIECE), *second = alloc_on(own, PIECE),
         *third = alloc_on(own, PIECE);
    CHECK(second == first + PIECE && third == second + PIECE);
    OK(tarn_free(first));
    OK(tarn_free(second));
    OK(tarn_free(third));
    uint64_t calls = all_calls(0);
    void *all = alloc_on(own, 3 * PIECE);
    CHECK(all == first && all_calls(0) == calls);
    OK(tarn_free(all));
    nothing_is_left(0);
}

static void idle_free_pieces_are_mapped_anew_and_nothing_is_created(void **state)
{
    (void)state;
    char *blocks[6];
    for (int i = 0; i < 6; i++) {
        blocks[i] = alloc_on(own, PIECE);
        memset(blocks[i], i + 1, PIECE);
    }
    for (int i = 0; i < 6; i += 2)
        OK(tarn_free(blocks[i]));
    uint64_t creates = calls_of(0, "create"), releases = calls_of(0, "release");
    char *wide = alloc_on(own, 3 * PIECE);
    CHECK(created() == 6 * PIECE && calls_of(0, "create") == creates &&
          calls_of(0, "release") == releases);
    memset(wide, 99, 3 * PIECE);
    for (int i = 1; i < 6; i += 2) {
        for (size_t k = 0; k < PIECE; k += 4096)
            CHECK(blocks[i][k] == i + 1);
        OK(tarn_free(blocks[i]));
    }
    verify(0);
    OK(tarn_free(wide));
    nothing_is_left(0);
}

static void memory_that_is_not_idle_is_not_unmapped(void **state)
{
    (void)state;
    void *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = alloc_on(own, PIECE);
    work_on(own, blocks[0], PIECE, 1000);
    work_on(own, blocks[2], PIECE, 1000);
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[2]));
    uint64_t unmaps = calls_of(0, "unmap");
    void *wide = alloc_on(own, 2 * PIECE); /* the stream's own memory, mapped a second time: no
                                              wait, no unmap */
    CHECK(calls_of(0, "unmap") == unmaps && created() == 4 * PIECE && ledger_of(0).waited_ns == 0);
    time_pass(2000);
    void *second = alloc_on(own, 2 * PIECE); /* now the old addresses are idle */
    CHECK(created() == 6 * PIECE && calls_of(0, "unmap") > unmaps);
    OK(tarn_free(wide));
    OK(tarn_free(second));
    OK(tarn_free(blocks[1]));
    OK(tarn_free(blocks[3]));
    nothing_is_left(0);
}

static void of_a_partly_used_piece_nothing_is_unmapped(void **state)
{
    (void)state;
    char *left = alloc_on(own, 8 * MIB), *hole = alloc_on(own, 8 * MIB),
         *right = alloc_on(own, 34 * MIB);
    memset(left, 1, 8 * MIB);
    memset(right, 2, 34 * MIB);
    uint64_t piece = piece_at(left);
    OK(tarn_free(hole));
    void *wide = alloc_on(own, 60 * MIB);
    CHECK(piece_at(left) == piece && left[8 * MIB - 1] == 1 && right[0] == 2 &&
          right[34 * MIB - 1] == 2);
    verify(0);
    OK(tarn_free(left));
    OK(tarn_free(right));
    OK(tarn_free(wide));
    nothing_is_left(0);
}

static void a_piece_that_begins_in_a_live_block_stays_and_those_behind_it_are_used(void **state)
{
    (void)state;
    char *left = alloc_on(own, 8 * MIB), *hole = alloc_on(own, 32 * MIB),
         *right = alloc_on(own, PIECE);
    memset(left, 1, 8 * MIB);
    uint64_t piece = piece_at(left), before = created();
    OK(tarn_free(hole));
    void *wide = alloc_on(own, 60 * MIB); /* the second piece of the hole moves, the first cannot */
    CHECK(created() == before + 40 * MIB);
    CHECK(piece_at(left) == piece && piece_at(left + 8 * MIB - 1) == piece);
    for (size_t i = 0; i < 8 * MIB; i += 4096)
        CHECK(left[i] == 1);
    verify(0);
    OK(tarn_free(left));
    OK(tarn_free(right));
    OK(tarn_free(wide));
    nothing_is_left(0);
}

static void what_is_padded_to_a_large_piece_is_left_away_when_memory_is_short(void **state)
{
    (void)state;
    void *large = alloc_on(own, MEMORY - 6 * MIB), *rest = alloc_on(own, 3 * MIB);
    CHECK(created() == MEMORY - 2 * MIB);
    OK(tarn_free(large));
    OK(tarn_free(rest));
    nothing_is_left(0);
}

static void a_small_block_fills_the_rest_of_a_piece_before_a_new_one_is_created(void **state)
{
    (void)state;
    void *large = alloc_on(own, PIECE - 3 * MIB);
    char *beside = alloc_on(own, MIB), *slot = alloc_on(own, 700), *last = alloc_on(own, 2 * MIB);
    CHECK(created() == 2 * PIECE && piece_at(beside) == piece_at(large) &&
          piece_at(slot) == piece_at(large));
    uint64_t calls = all_calls(0);
    OK(tarn_free(beside));
    CHECK(alloc_on(own, MIB) == beside && all_calls(0) == calls);
    OK(tarn_free(beside));
    OK(tarn_free(slot));
    OK(tarn_free(last));
    OK(tarn_free(large));
    nothing_is_left(0);
}

/* Free pieces of 20 MiB do for a small block, larger ones are kept for large blocks. */
static void a_small_block_holds_no_large_piece_in_place(void **state)
{
    (void)state;
    void *piece = alloc_on(own, 10 * PIECE); /* in four pieces */
    OK(tarn_free(piece));
    void *small = alloc_on(own, MIB);
    CHECK(created() == 10 * PIECE + 2 * MIB && piece_at(small) != piece_at(piece));
    OK(tarn_free(small));
    nothing_is_left(0);
    piece = alloc_on(own, PIECE);
    OK(tarn_free(piece));
    small = alloc_on(own, MIB);
    CHECK(created() == PIECE && piece_at(small) == piece_at(piece));
    OK(tarn_free(small));
    nothing_is_left(0);
}

/* Blocks of growing size beside one that stays: each could take the pieces of the one before. */
static void what_moves_is_in_proportion_to_what_is_created(void **state)
{
    (void)state;
    void *walls[5], *block = alloc_on(own, PIECE);
    uint64_t unmaps = calls_of(0, "unmap");
    for (size_t i = 0; i < 5; i++) {
        walls[i] = alloc_on(own, 2 * MIB);
        OK(tarn_free(block));
        block = alloc_on(own, PIECE + (i + 1) * 2 * MIB);
    }
    CHECK(calls_of(0, "unmap") < unmaps + 5);
    for (size_t i = 0; i < 5; i++)
        OK(tarn_free(walls[i]));
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void idle_memory_of_another_stream_is_used_before_any_is_created(void **state)
{
    (void)state;
    void *theirs = alloc_on(other, 2 * PIECE);
    OK(tarn_free(theirs));
    void *block = alloc_on(own, 3 * PIECE);
    CHECK(created() == 3 * PIECE);
    OK(tarn_free(block));
    nothing_is_left(0);

    theirs = alloc_on(other, 2 * PIECE);
    work_on(other, theirs, PIECE, 1000);
    OK(tarn_free(theirs));
    block = alloc_on(own, 2 * PIECE); /* not while work may use it */
    CHECK(created() == 4 * PIECE && ledger_of(0).waited_ns == 0);
    OK(tarn_free(block));
    time_pass(1000);
    nothing_is_left(0);

    OK(tarn_free(alloc_on(other, 10 * PIECE)));
    block = alloc_on(own, PIECE); /* nor in larger pieces than are missing */
    CHECK(created() == 11 * PIECE);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void pieces_move_between_streams_only_when_idle_and_keep_what_is_beside_them(void **state)
{
    (void)state;
    char *kept = alloc_on(other, PIECE), *given = alloc_on(other, MEMORY - 2 * PIECE);
    memset(kept, 5, PIECE);
    OK(tarn_free(given));
    char *wide = alloc_on(own, MEMORY - 3 * PIECE);
    memset(wide, 6, MEMORY - 3 * PIECE);
    for (size_t i = 0; i < PIECE; i += 512)
        CHECK(kept[i] == 5);
    OK(tarn_free(kept));
    OK(tarn_free(wide));
    nothing_is_left(0);
}

static void a_growth_that_fails_leaves_live_blocks_and_can_be_repeated(void **state)
{
    (void)state;
    static const char *const kinds[] = {"create", "map", "set_access", "unmap"};
    for (int i = 0; i < 4; i++) {
        for (int forever = 0; forever < 2; forever++) {
            char *blocks[5];
            void *pointer = &pointer;
            for (int k = 0; k < 5; k++) {
                blocks[k] = alloc_on(own, PIECE);
                memset(blocks[k], k + 1, PIECE);
            }
            OK(tarn_free(blocks[0]));
            OK(tarn_free(blocks[2]));
            OK(tarn_host_fail_set(kind_of(kinds[i]), 1, forever, TARN_ERROR_DRIVER));
            GIVES(tarn_alloc_on(own, 3 * PIECE, &pointer), TARN_ERROR_DRIVER);
            CHECK(host_fail_hits() > 0 && pointer == &pointer);
            OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
            verify(0);
            void *wide = alloc_on(own, 3 * PIECE);
            for (int k = 1; k < 5; k += k == 1 ? 2 : 1) {
                for (size_t at = 0; at < PIECE; at += 4096)
                    CHECK(blocks[k][at] == k + 1);
                OK(tarn_free(blocks[k]));
            }
            OK(tarn_free(wide));
            nothing_is_left(0);
        }
    }
}

static void shedding_gives_at_least_the_wanted_bytes_and_returns_how_many(void **state)
{
    (void)state;
    struct stream *stream = NULL;
    struct heap *heap = NULL;
    void *blocks[5];
    size_t given = 0;
    OK(stream_find(own, 0, &stream));
    OK(default_heap(stream, &heap));
    for (int i = 0; i < 5; i++)
        blocks[i] = alloc_on(own, PIECE);
    OK(heap_shed(heap, heap->store, SIZE_MAX, &given, NULL));
    CHECK(given == 0);
    for (int i = 0; i < 5; i += 2)
        OK(tarn_free(blocks[i]));
    OK(heap_shed(heap, heap->store, 1, &given, NULL));
    CHECK(given == PIECE && heap->arena->store.unmapped.bytes == PIECE);
    OK(heap_shed(heap, heap->store, PIECE + 1, &given, NULL));
    CHECK(given == 2 * PIECE && heap->zones.free_bytes == 0);
    verify(0);
    OK(tarn_free(blocks[1]));
    OK(tarn_free(blocks[3]));
    nothing_is_left(0);
}

/* Whoever looked for memory to take may find the heap to be another's by then: of a pool, whose
 * memory is its own. */
static void a_heap_that_joined_a_pool_sheds_nothing_for_another(void **state)
{
    (void)state;
    static const tarn_segments kinds[] = {TARN_SEGMENTS_VIRTUAL, TARN_SEGMENTS_PLAIN};
    for (int kind = 0; kind < 2; kind++) {
        tarn_pool_options options = {.size = sizeof options, .segments = kinds[kind]};
        tarn_pool *pools[2];
        struct stream *stream = NULL;
        struct heap *heap = NULL;
        struct run *leaving = NULL;
        void *block = NULL;
        size_t given = 1;
        for (int i = 0; i < 2; i++)
            OK(tarn_pool_create(&options, &pools[i]));
        OK(tarn_pool_alloc(pools[0], own, PIECE, &block));
        OK(tarn_free(block));
        OK(stream_find(own, 0, &stream));
        OK(heap_of(&pool_of_public(pools[0])->store, stream, &heap));
        uint64_t mapped = ledger_of(0).mapped, created = ledger_of(0).created;
        OK(heap_shed(heap, &pool_of_public(pools[1])->store, SIZE_MAX, &given, &leaving));
        CHECK(given == 0 && !leaving && ledger_of(0).mapped == mapped &&
              ledger_of(0).created == created);
        OK(heap_shed(heap, heap->store, SIZE_MAX, &given, &leaving));
        CHECK(given >= PIECE && !leaving);
        for (int i = 0; i < 2; i++)
            OK(tarn_pool_release(pools[i]));
        nothing_is_left(0);
    }
}

static void repeating_the_same_sequence_makes_no_driver_call_in_the_end(void **state)
{
    (void)state;
    uint64_t calls = 0;
    for (int round = 0; round < 6; round++) {
        if (round == 3)
            calls = all_calls(0);
        uint64_t random = 17;
        void *blocks[60] = {0};
        for (int step = 0; step < 2000; step++) {
            void **place = &blocks[random_next(&random) % 60];
            if (*place)
                OK(tarn_free(*place));
            *place =
                *place
                    ? NULL
                    : alloc_on(own,
                               random_next(&random) % (random_next(&random) % (3 * MIB) + 1) + 1);
        }
        for (int i = 0; i < 60; i++)
            OK(tarn_free(blocks[i]));
    }
    CHECK(all_calls(0) == calls);
    nothing_is_left(0);
}

/* Claims all addresses but one stretch; returns what it claimed, by `count`. */
struct stretch {
    uintptr_t start;
    size_t size;
};

static int leave_only(struct arena *arena, size_t size, struct stretch *claimed)
{
    bool left = false;
    int count = 0;
    mutex_lock(&arena->lock);
    for (uintptr_t at = arena->base; at < arena->base + arena->size;) {
        size_t room = arena_room_above_locked(arena, at), keeps = !left && room >= size ? size : 0;
        left |= keeps > 0;
        if (room > keeps) {
            claimed[count] = (struct stretch){at + keeps, room - keeps};
            arena_claim_locked(arena, claimed[count].start, claimed[count].size);
            count++;
        }
        at += room ? room : arena->granule;
    }
    mutex_unlock(&arena->lock);
    CHECK(left);
    return count;
}

/* The device is full, one idle piece is too small, and with the next there would be more than the
 * addresses have room for. */
static void a_piece_that_does_not_fit_makes_room_for_one_that_does(void **state)
{
    (void)state;
    void *blocks[12], *block = NULL;
    int count = 0;
    struct stretch claimed[64];
    struct arena *arena = arena_if_used(0);
    for (; created() + PIECE <= MEMORY; count++)
        blocks[count] = alloc_on(other, PIECE);
    void *rest = created() < MEMORY ? alloc_on(own, MEMORY - created()) : NULL;
    CHECK(created() == MEMORY);
    for (int i = 0; i < count; i += 2)
        OK(tarn_free(blocks[i]));
    int stretches = leave_only(arena, PIECE + 2 * MIB, claimed);
    OK(tarn_alloc_on(own, PIECE + 2 * MIB, &block));
    OK(tarn_free(block));
    for (int i = 0; i < stretches; i++)
        arena_unclaim(arena, claimed[i].start, claimed[i].size);
    for (int i = 1; i < count; i += 2)
        OK(tarn_free(blocks[i]));
    OK(tarn_free(rest));
    nothing_is_left(0);
}

/* Memory of another stream cannot be unmapped, and the device is lost by that: what is created next
 * is of no use to anybody. */
static void a_growth_that_loses_the_device_gives_nothing(void **state)
{
    (void)state;
    void *block = NULL;
    OK(tarn_free(alloc_on(other, 3 * PIECE)));
    OK(tarn_host_fail_set(kind_of("unmap"), 1, true, TARN_ERROR_DEVICE_LOST));
    GIVES(tarn_alloc_on(own, 3 * PIECE, &block), TARN_ERROR_DEVICE_LOST);
    CHECK(host_fail_hits() == 1 && !block);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    other = lease(0);
    OK(tarn_host_check_set(true, NULL, NULL));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_not_idle_is_not_unmapped),
        cmocka_unit_test(pieces_are_large_for_large_blocks_and_small_for_small_ones),
        cmocka_unit_test(a_run_grows_at_its_end_so_that_freed_neighbours_are_one_stretch),
        cmocka_unit_test(idle_free_pieces_are_mapped_anew_and_nothing_is_created),
        cmocka_unit_test(of_a_partly_used_piece_nothing_is_unmapped),
        cmocka_unit_test(a_piece_that_begins_in_a_live_block_stays_and_those_behind_it_are_used),
        cmocka_unit_test(what_is_padded_to_a_large_piece_is_left_away_when_memory_is_short),
        cmocka_unit_test(a_small_block_fills_the_rest_of_a_piece_before_a_new_one_is_created),
        cmocka_unit_test(a_small_block_holds_no_large_piece_in_place),
        cmocka_unit_test(what_moves_is_in_proportion_to_what_is_created),
        cmocka_unit_test(idle_memory_of_another_stream_is_used_before_any_is_created),
        cmocka_unit_test(pieces_move_between_streams_only_when_idle_and_keep_what_is_beside_them),
        cmocka_unit_test(a_growth_that_fails_leaves_live_blocks_and_can_be_repeated),
        cmocka_unit_test(a_heap_that_joined_a_pool_sheds_nothing_for_another),
        cmocka_unit_test(shedding_gives_at_least_the_wanted_bytes_and_returns_how_many),
        cmocka_unit_test(repeating_the_same_sequence_makes_no_driver_call_in_the_end),
        cmocka_unit_test(a_piece_that_does_not_fit_makes_room_for_one_that_does),
        cmocka_unit_test(a_growth_that_loses_the_device_gives_nothing), /* last: it is lost then */
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
