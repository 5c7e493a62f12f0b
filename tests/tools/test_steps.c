/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The step function against a plain array. */
#include "replay/oracle/steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { LINE = 20000 };

static uint64_t next_random(void)
{
    static uint64_t random = 3;
    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return random >> 33;
}

static void a_line_is_zero_at_first(void **state)
{
    (void)state;
    struct steps steps;
    struct steps_walk walk;
    assert_true(steps_init(&steps));
    assert_true(steps_walk_first(&steps, 5, UINT64_MAX - 1, &walk));
    assert_int_equal(walk.value, 0);
    assert_int_equal(walk.from, 5);
    assert_true(walk.to == UINT64_MAX - 1);
    assert_false(steps_walk_next(&walk));
    assert_false(steps_walk_first(&steps, 5, 5, &walk));
    steps_finish(&steps);
}

/* Compares a range of the line with the array. */
static void check(struct steps *steps, const uint32_t *line, uint64_t start, uint64_t end)
{
    struct steps_walk walk;
    uint64_t at = start;
    if (!steps_walk_first(steps, start, end, &walk))
        return;
    do {
        assert_int_equal(walk.from, at);
        assert_true(walk.to > at && walk.to <= end);
        for (; at < walk.to; at++)
            assert_int_equal(line[at], walk.value);
    } while (steps_walk_next(&walk));
    assert_int_equal(at, end);
}

static void assignments_are_those_of_an_array(void **state)
{
    (void)state;
    struct steps steps;
    uint32_t *line = calloc(LINE, sizeof *line);
    assert_non_null(line);
    assert_true(steps_init(&steps));
    for (uint32_t i = 1; i <= 40000; i++) {
        /* Short ranges make many chunks, long ones take them away. */
        uint64_t length =
            next_random() % 1000 ? 1 + next_random() % 8 : 1 + next_random() % (LINE / 2);
        uint64_t start = next_random() % (LINE - length);
        assert_true(steps_assign(&steps, start, start + length, i));
        for (uint64_t at = start; at < start + length; at++)
            line[at] = i;
        uint64_t from = next_random() % LINE;
        check(&steps, line, from, from + next_random() % (LINE - from));
    }
    check(&steps, line, 0, LINE);
    assert_true(steps.chunk_count > 1);
    assert_true(steps_assign(&steps, 0, LINE, 7));
    assert_true(steps.chunk_count <= 2); /* the line up to LINE, and what follows */
    steps_finish(&steps);
    free(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_zero_at_first),
        cmocka_unit_test(assignments_are_those_of_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
