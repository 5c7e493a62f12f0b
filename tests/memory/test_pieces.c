/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How large pieces are, and which of them move, on a device of the size that devices have, and
 * within a limit, which counts as the device's memory does. Nothing of the memory is touched. */
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define GIB (1024 * MIB)
#define MEMORY (160 * GIB)
#define LIMIT (16 * GIB)

static tarn_stream own;

static uint64_t created(void)
{
    return ledger_of(0).created;
}

static bool is_mapped(const void *address)
{
    tarn_host_extent extent;
    return tarn_host_extent_get(0, address, 1, &extent) == TARN_OK;
}

/* A block of memory that is created for it, and in how many pieces. */
static void *alloc_new(size_t size, uint64_t *pieces)
{
    uint64_t bytes = created(), before = ledger_of(0).pieces;
    void *block = alloc_on(own, size);
    CHECK(created() == bytes + size);
    *pieces = ledger_of(0).pieces - before;
    return block;
}

static void pieces_get_smaller_as_the_device_fills(void **state)
{
    (void)state;
    OK(tarn_device_limit_set(0, 2 * LIMIT));
    uint64_t empty = 0, later = 0, full = 0;
    void *first = alloc_new(120 * MIB, &empty);
    void *filling = alloc_on(own, 24 * GIB);
    void *second = alloc_new(120 * MIB, &later);
    void *more = alloc_on(own, 7 * GIB + 400 * MIB);
    void *third = alloc_new(120 * MIB, &full);
    CHECK(empty <= 5 && later == 15); /* of 8 MiB: the least size would mean thousands by then */
    CHECK(full == 60);                /* of the least size at last */
    OK(tarn_free(first));
    OK(tarn_free(second));
    OK(tarn_free(third));
    OK(tarn_free(filling));
    OK(tarn_free(more));
    nothing_is_left(0);
    OK(tarn_device_limit_set(0, LIMIT));
}

/* Of a quarter that is left, 32 MiB would be in proportion. */
static void pieces_shrink_with_the_square_of_what_is_left(void **state)
{
    (void)state;
    OK(tarn_device_limit_set(0, MEMORY));
    uint64_t pieces = 0;
    void *filling = alloc_on(own, 120 * GIB), *block = alloc_new(120 * MIB, &pieces);
    CHECK(pieces == 15);
    OK(tarn_free(block));
    OK(tarn_free(filling));
    nothing_is_left(0);
    OK(tarn_device_limit_set(0, LIMIT));
}

/* On a device that is nearly empty, 256 MiB and more are one piece, until a 32nd of the heap's
 * memory has been freed. */
static void a_large_block_is_one_piece_while_blocks_stay(void **state)
{
    (void)state;
    uint64_t less = 0, first = 0;
    void *small = alloc_new(240 * MIB, &less), *one = alloc_new(256 * MIB, &first);
    CHECK(less > 1 && first == 1);
    OK(tarn_free(small));
    uint64_t pieces = ledger_of(0).pieces, before = created();
    void *wide = alloc_on(own, 600 * MIB); /* with what was freed */
    CHECK(created() == before + 360 * MIB && ledger_of(0).pieces > pieces + 8);
    OK(tarn_free(one));
    OK(tarn_free(wide));
    nothing_is_left(0);
}

/* Not of the device: what one block holds in place matters beside what the program has. */
static void a_piece_is_a_small_part_of_what_is_reserved(void **state)
{
    (void)state;
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    uint64_t few = 0, many = 0;
    void *first = alloc_new(240 * MIB, &few), *filling = alloc_on(own, 20 * GIB);
    void *second = alloc_new(240 * MIB, &many);
    CHECK(few == 7 && many == 6);
    OK(tarn_free(filling));
    OK(tarn_free(first));
    OK(tarn_free(second));
    nothing_is_left(0);
    OK(tarn_device_limit_set(0, LIMIT));
}

/* In how many pieces a pool gets 224 MiB while as much of it is free in parts of pieces, of which
 * blocks hold the rest. */
static uint64_t pieces_beside_parts(bool held)
{
    enum { PAIRS = 7 };
    void *parts[PAIRS], *walls[PAIRS];
    tarn_pool *pool = pool_with((tarn_pool_options){.size = sizeof(tarn_pool_options)});
    uint64_t before = ledger_of(0).pieces;
    OK(tarn_free(alloc_in(pool, own, PAIRS * 32 * MIB)));
    CHECK(ledger_of(0).pieces == before + PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        parts[i] = alloc_in(pool, own, 20 * MIB);
        walls[i] = alloc_in(pool, own, 12 * MIB);
    }
    for (int i = 0; i < PAIRS; i++)
        OK(tarn_free(parts[i]));
    if (held)
        OK(tarn_pool_hold(pool, NULL));
    before = ledger_of(0).pieces;
    void *next = alloc_in(pool, own, PAIRS * 32 * MIB);
    uint64_t pieces = ledger_of(0).pieces - before;
    if (held)
        OK(tarn_pool_unhold(pool));
    for (int i = 0; i < PAIRS; i++)
        OK(tarn_free(walls[i]));
    OK(tarn_free(next));
    OK(tarn_pool_release(pool));
    return pieces;
}

/* Parts of pieces cannot move: pieces are smaller beside them, so that later blocks leave less. In
 * a pool that a graph holds nothing moves, and smaller pieces would only cost calls. */
static void pieces_are_smaller_where_much_is_free_in_parts(void **state)
{
    (void)state;
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    CHECK(pieces_beside_parts(false) == 14 && pieces_beside_parts(true) == 7);
    nothing_is_left(0);
    OK(tarn_device_limit_set(0, LIMIT));
}

static void pieces_are_small_near_a_lower_limit_too(void **state)
{
    (void)state;
    uint64_t far = 0, near = 0;
    void *first = alloc_new(1 * GIB, &far);
    OK(tarn_device_limit_set(0, 2 * GIB));
    void *second = alloc_new(512 * MIB, &near);
    CHECK(far < 256 && near == 256);
    OK(tarn_free(first));
    OK(tarn_free(second));
    nothing_is_left(0);
    OK(tarn_device_limit_set(0, LIMIT));
}

static void what_is_little_beside_all_is_not_moved(void **state)
{
    (void)state;
    void *all = alloc_on(own, 4 * GIB), *little = alloc_on(own, 60 * MIB),
         *wall = alloc_on(own, 20 * MIB);
    OK(tarn_free(little));
    uint64_t unmaps = calls_of(0, "unmap"), before = created();
    void *wide = alloc_on(own, 100 * MIB);
    CHECK(created() == before + 100 * MIB && calls_of(0, "unmap") == unmaps);
    void *much = alloc_on(own, 80 * MIB), *behind = alloc_on(own, 64 * MIB);
    OK(tarn_free(much));
    before = created();
    void *wider = alloc_on(own, 200 * MIB); /* of 140 MiB that are free all is taken */
    CHECK(created() == before + 60 * MIB && calls_of(0, "unmap") > unmaps);
    OK(tarn_free(all));
    OK(tarn_free(wall));
    OK(tarn_free(wide));
    OK(tarn_free(behind));
    OK(tarn_free(wider));
    nothing_is_left(0);
}

static void of_free_memory_the_largest_part_moves_first(void **state)
{
    (void)state;
    void *small = alloc_on(own, 128 * MIB), *wall = alloc_on(own, 20 * MIB),
         *large = alloc_on(own, 256 * MIB), *end = alloc_on(own, 20 * MIB);
    OK(tarn_free(small));
    OK(tarn_free(large));
    uint64_t before = created();
    void *wide = alloc_on(own, 300 * MIB);
    CHECK(created() == before && !is_mapped(large) && is_mapped((char *)small + 127 * MIB));
    OK(tarn_free(wall));
    OK(tarn_free(end));
    OK(tarn_free(wide));
    nothing_is_left(0);
}

#define PARTS 8
#define TOO_MUCH 60 /* times */

static int by_address(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Beside `held` bytes: frees every second of eight blocks, and requests the sum of what is free,
 * until memory is created for it, or TOO_MUCH is moved. Returns how many times the heap's memory
 * has been moved till then. */
static double moved_until_created(size_t held)
{
    void *all = alloc_on(own, held), *parts[PARTS], *wide = NULL;
    uint64_t first = 0, maps = 0, before = 0;
    double moved;
    do {
        for (int i = 0; i < PARTS; i++)
            parts[i] = alloc_on(own, 20 * MIB);
        qsort(parts, PARTS, sizeof *parts, by_address);
        maps = calls_of(0, "map");
        first = first ? first : maps;
        before = created();
        for (int i = 0; i < PARTS; i += 2)
            OK(tarn_free(parts[i]));
        wide = alloc_on(own, PARTS / 2 * 20 * MIB);
        for (int i = 1; i < PARTS; i += 2)
            OK(tarn_free(parts[i]));
        OK(tarn_free(wide));
        moved = (double)((maps - first) * 20 * MIB) / (double)before;
    } while (created() == before && moved < TOO_MUCH);
    OK(tarn_free(all));
    nothing_is_left(0);
    return moved;
}

/* 60 MiB can move: what is missing behind a run that ends with 20 MiB. They are more than a 64th, a
 * 16th and a fourth of all. */
static void the_more_a_heap_has_moved_the_more_must_be_free(void **state)
{
    (void)state;
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT)); /* so that 20 MiB are one piece */
    double little = moved_until_created(2 * GIB), more = moved_until_created(GIB / 2),
           much = moved_until_created(20 * MIB);
    printf("moved %.2f, %.2f and %.2f times\n", little, more, much);
    CHECK(little >= 3 && little < 4);
    CHECK(more >= 12 && more < 13);
    CHECK(much >= 48 && much < 49);
    OK(tarn_device_limit_set(0, LIMIT));
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    OK(tarn_device_limit_set(0, LIMIT));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_get_smaller_as_the_device_fills),
        cmocka_unit_test(pieces_shrink_with_the_square_of_what_is_left),
        cmocka_unit_test(a_large_block_is_one_piece_while_blocks_stay),
        cmocka_unit_test(a_piece_is_a_small_part_of_what_is_reserved),
        cmocka_unit_test(pieces_are_smaller_where_much_is_free_in_parts),
        cmocka_unit_test(pieces_are_small_near_a_lower_limit_too),
        cmocka_unit_test(what_is_little_beside_all_is_not_moved),
        cmocka_unit_test(of_free_memory_the_largest_part_moves_first),
        cmocka_unit_test(the_more_a_heap_has_moved_the_more_must_be_free),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
