/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Where blocks go on a device with room: large ones low, small ones apart from them, however small
 * the program is. Where memory is short they go where they tie little instead. */
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define GIB ((size_t)1 << 30)
#define MEMORY (64 * GIB)
#define MUCH (8 * GIB)
#define MOST (34 * GIB)  /* beside MUCH so much that a new piece is below 8 MiB */
#define WIDE (48 * MIB)  /* one piece on a device with room */
#define PIECE (20 * MIB) /* one piece */

static tarn_stream own;

static uint64_t created(void)
{
    return ledger_of(0).created;
}

/* A free span of a wide piece and a narrow one behind it; says whether a block goes to its low
 * end. */
static bool goes_low(size_t piece)
{
    char *wide = alloc_on(own, piece), *narrow = alloc_on(own, PIECE), *wall = alloc_on(own, PIECE);
    CHECK(narrow == wide + piece && wall == narrow + PIECE);
    OK(tarn_free(wide));
    OK(tarn_free(narrow));
    char *block = alloc_on(own, 10 * MIB);
    CHECK(block == wide || block == wall - 10 * MIB);
    OK(tarn_free(block));
    OK(tarn_free(wall));
    return block == wide;
}

static void a_large_block_goes_low_while_there_is_room(void **state)
{
    (void)state;
    CHECK(goes_low(WIDE));
    void *much = alloc_on(own, MUCH);
    CHECK(goes_low(WIDE));
    OK(tarn_free(much));
    nothing_is_left(0);
}

/* Up to 10 GiB, also where pieces are an eighth of all. */
static void a_small_device_ties_as_little_as_it_can(void **state)
{
    (void)state;
    OK(tarn_device_limit_set(0, 256 * MIB));
    CHECK(!goes_low(WIDE));
    nothing_is_left(0);
    OK(tarn_device_limit_set(0, SIZE_MAX));
}

static void where_memory_is_short_a_block_ties_as_little_as_it_can(void **state)
{
    (void)state;
    void *much = alloc_on(own, MUCH);
    char *wide = alloc_on(own, WIDE), *narrow = alloc_on(own, PIECE), *wall = alloc_on(own, PIECE);
    void *most = alloc_on(own, MOST), *last = alloc_on(own, PIECE);
    OK(tarn_free(wide));
    OK(tarn_free(narrow));
    char *block = alloc_on(own, 10 * MIB);
    CHECK(block == wall - 10 * MIB);
    OK(tarn_free(block));
    OK(tarn_free(last));
    OK(tarn_free(most));
    OK(tarn_free(wall));
    OK(tarn_free(much));
    nothing_is_left(0);
}

/* Only what no large block fits into serves a small one between large blocks. */
static void a_small_block_keeps_no_free_memory_of_large_ones_apart(void **state)
{
    (void)state;
    void *much = alloc_on(own, MUCH), *large = alloc_on(own, PIECE - 3 * MIB);
    uint64_t before = created();
    void *small = alloc_on(own, MIB);
    CHECK(created() == before + 2 * MIB);
    void *fitting = alloc_on(own, 3 * MIB);
    CHECK(created() == before + 2 * MIB);
    OK(tarn_free(small));
    OK(tarn_free(fitting));
    OK(tarn_free(large));
    OK(tarn_free(much));
    nothing_is_left(0);
}

static void what_is_too_small_for_a_large_block_serves_a_small_one(void **state)
{
    (void)state;
    void *much = alloc_on(own, MUCH), *large = alloc_on(own, PIECE - MIB);
    uint64_t before = created();
    void *small = alloc_on(own, MIB);
    CHECK(created() == before);
    OK(tarn_free(small));
    OK(tarn_free(large));
    OK(tarn_free(much));
    nothing_is_left(0);
}

static void a_small_block_is_not_refused_for_its_place(void **state)
{
    (void)state;
    void *much = alloc_on(own, MUCH), *large = alloc_on(own, PIECE - 3 * MIB);
    uint64_t before = created();
    OK(tarn_device_limit_set(0, before));
    void *small = alloc_on(own, MIB), *another = alloc_on(own, MIB);
    CHECK(created() == before);
    OK(tarn_device_limit_set(0, SIZE_MAX));
    OK(tarn_free(another));
    OK(tarn_free(small));
    OK(tarn_free(large));
    OK(tarn_free(much));
    nothing_is_left(0);
}

/* Fills the heap with blocks of one size. */
static void fill(void **blocks, size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++)
        blocks[i] = alloc_on(own, size);
}

static void empty(void **blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        OK(tarn_free(blocks[i]));
}

/* With `busy`, while work still uses what the large blocks left. */
static void small_blocks_take_whole_pieces(bool busy)
{
    void *much = alloc_on(own, MUCH), *small[4 * 20], *large[20], *more[100];
    fill(small, 4 * 20, MIB);
    fill(large, 20, PIECE);
    if (busy)
        for (size_t i = 0; i < 20; i++)
            work_on(own, large[i], PIECE, 1000);
    empty(large, 20);
    uint64_t before = created(), maps = calls_of(0, "map"), unmaps = calls_of(0, "unmap");
    fill(more, 100, MIB);
    CHECK(created() == before && calls_of(0, "map") == maps + 5);
    CHECK(calls_of(0, "unmap") <= unmaps + (busy ? 0 : 5) && ledger_of(0).waited_ns == 0);
    time_pass(1000);
    fill(large, 15, PIECE); /* what small blocks did not take */
    CHECK(created() == before);
    empty(large, 15);
    empty(more, 100);
    empty(small, 4 * 20);
    OK(tarn_free(much));
    nothing_is_left(0);
}

static void many_small_blocks_take_what_large_ones_left(void **state)
{
    (void)state;
    small_blocks_take_whole_pieces(false);
    small_blocks_take_whole_pieces(true);
}

/* A piece of 20 MiB is more than a fourth of what these take. */
static void a_few_small_blocks_take_no_large_piece(void **state)
{
    (void)state;
    void *much = alloc_on(own, MUCH), *small[4 * 16], *large[20];
    fill(small, 4 * 16, MIB);
    fill(large, 20, PIECE);
    empty(large, 20);
    uint64_t before = created();
    void *one = alloc_on(own, MIB);
    CHECK(created() == before + 2 * MIB);
    OK(tarn_free(one));
    empty(small, 4 * 16);
    OK(tarn_free(much));
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_block_goes_low_while_there_is_room),
        cmocka_unit_test(a_small_device_ties_as_little_as_it_can),
        cmocka_unit_test(where_memory_is_short_a_block_ties_as_little_as_it_can),
        cmocka_unit_test(a_small_block_keeps_no_free_memory_of_large_ones_apart),
        cmocka_unit_test(what_is_too_small_for_a_large_block_serves_a_small_one),
        cmocka_unit_test(a_small_block_is_not_refused_for_its_place),
        cmocka_unit_test(many_small_blocks_take_what_large_ones_left),
        cmocka_unit_test(a_few_small_blocks_take_no_large_piece),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
