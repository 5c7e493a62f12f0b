/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The placement of blocks with known lifetimes: valid whatever the blocks, the bound where that can be reached, the same each time. */
#include "replay/packing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static uint64_t random_state = 1;

static uint64_t below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % limit;
}

/* No two blocks that live at one time overlap; the height is that of the highest end, and not below the most that lives at one time. */
static void check(const struct packing_block *blocks, size_t count, const struct packing_result *result)
{
    uint64_t height = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        const struct packing_block *a = &blocks[i];
        uint64_t live = 0;
        height = a->offset + a->size > height ? a->offset + a->size : height;
        for (size_t j = 0; j < count; j++) {
            const struct packing_block *b = &blocks[j];
            bool together = a->start < b->end && b->start < a->end;
            bool overlap = a->offset < b->offset + b->size && b->offset < a->offset + a->size;
            assert_false(i != j && together && overlap);
            live += b->start <= a->start && a->start < b->end ? b->size : 0;
        }
        most = live > most ? live : most;
    }
    assert_int_equal(result->height, height);
    assert_int_equal(result->bound, most);
    assert_true(height >= most);
}

static void solve(struct packing_block *blocks, size_t count, uint64_t effort, struct packing_result *result)
{
    assert_true(packing_solve(blocks, count, effort, result));
    check(blocks, count, result);
}

static void random_blocks(struct packing_block *blocks, size_t count, uint32_t longest)
{
    for (size_t i = 0; i < count; i++)
        blocks[i] = (struct packing_block){.size = 512 * (1 + below(below(8) ? 64 : 4096)),
                                           .start = (uint32_t)i,
                                           .end = (uint32_t)(i + 1 + below(longest))};
}

static void any_blocks_are_placed(void **state)
{
    (void)state;
    static struct packing_block blocks[1500];
    static const uint32_t longest[] = {1, 2, 10, 100, 3000};
    for (size_t i = 0; i < LENGTH(longest); i++) {
        for (size_t count = 1; count <= LENGTH(blocks); count = count * 3 + 7) {
            struct packing_result result;
            random_blocks(blocks, count, longest[i]);
            solve(blocks, count, 200000, &result);
            assert_true(result.tries >= 1);
            assert_true(result.height * 10 <= result.bound * 13); /* first fit is never far off on such */
        }
    }
}

static void blocks_of_one_time_lie_side_by_side(void **state)
{
    (void)state;
    struct packing_block blocks[] = {
        {.size = 3, .start = 0, .end = 5}, {.size = 4, .start = 1, .end = 5}, {.size = 5, .start = 2, .end = 5}};
    struct packing_result result;
    solve(blocks, LENGTH(blocks), 1000, &result);
    assert_int_equal(result.height, 12);
    assert_int_equal(result.bound, 12);
    assert_int_equal(result.tries, 1); /* the bound is the best that can be */
}

static void effort_helps_and_repeats(void **state)
{
    (void)state;
    static struct packing_block blocks[800], again[800];
    bool better = false;
    for (int round = 0; round < 5; round++) {
        struct packing_result little, much, same;
        random_blocks(blocks, LENGTH(blocks), 60);
        memcpy(again, blocks, sizeof again);
        solve(blocks, LENGTH(blocks), 0, &little);
        solve(blocks, LENGTH(blocks), 20000000, &much);
        solve(again, LENGTH(again), 20000000, &same);
        assert_memory_equal(blocks, again, sizeof again);
        assert_true(much.height <= little.height && (much.tries > 1 || much.height == much.bound));
        assert_int_equal(little.tries, 1);
        better = better || much.height < little.height;
    }
    assert_true(better);
}

static void nothing_is_placed_too(void **state)
{
    (void)state;
    struct packing_block none[1];
    struct packing_result result;
    assert_true(packing_solve(none, 0, 1000, &result));
    assert_int_equal(result.bound, 0);
    assert_int_equal(result.height, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_blocks_are_placed),
        cmocka_unit_test(blocks_of_one_time_lie_side_by_side),
        cmocka_unit_test(effort_helps_and_repeats),
        cmocka_unit_test(nothing_is_placed_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
