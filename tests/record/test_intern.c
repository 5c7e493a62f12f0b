/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Numbers for values: distinct, dense, the same for the same value whoever asks, and none where
 * there is no room. */
#include "base/pages.h"
#include "record/intern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct value {
    uint64_t a;
    char text[12];
    uint32_t b;
};

static struct value value_of(uint64_t number)
{
    struct value value = {.a = number * 0x9e3779b97f4a7c15u, .text = "name", .b = (uint32_t)number};
    return value;
}

static void each_value_has_a_number_of_its_own(void **state)
{
    static struct intern table = INTERN(struct value, INTERN_MOST);
    (void)state;
    for (uint64_t i = 0; i < 3 * INTERN_CHUNK + 7; i++) {
        struct value value = value_of(i);
        assert_int_equal(intern(&table, &value), i + 1);
    }
    for (uint64_t i = 0; i < 3 * INTERN_CHUNK + 7; i++) {
        struct value value = value_of(i);
        assert_int_equal(intern(&table, &value), i + 1);
        assert_memory_equal(intern_value(&table, (uint32_t)i + 1), &value, sizeof value);
    }
}

static void what_was_not_given_is_no_number(void **state)
{
    static struct intern table = INTERN(struct value, INTERN_MOST);
    struct value value = value_of(1);
    (void)state;
    assert_null(intern_value(&table, 0));
    assert_null(intern_value(&table, 1));
    assert_int_equal(intern(&table, &value), 1);
    assert_non_null(intern_value(&table, 1));
    assert_null(intern_value(&table, 2));
    assert_null(intern_value(&table, UINT32_MAX));
}

static void a_full_table_adds_nothing_and_still_finds_the_rest(void **state)
{
    static struct intern table = INTERN(struct value, 5);
    (void)state;
    for (uint64_t i = 0; i < 9; i++) {
        struct value value = value_of(i);
        assert_int_equal(intern(&table, &value), i < 5 ? i + 1 : 0);
    }
    struct value value = value_of(4);
    assert_int_equal(intern(&table, &value), 5);
}

static void without_host_memory_there_is_none_until_there_is(void **state)
{
    static struct intern table = INTERN(struct value, INTERN_MOST);
    struct value value = value_of(3);
    (void)state;
    for (uint64_t n = 1; n <= 2; n++) { /* the buckets, and the first chunk */
        pages_fail(n, false);
        assert_int_equal(intern(&table, &value), 0);
        assert_int_equal(pages_fail_hits(), 1);
        pages_fail(0, false);
    }
    assert_int_equal(intern(&table, &value), 1);
}

#define THREADS 4
#define VALUES 2000

static struct intern shared = INTERN(struct value, INTERN_MOST);
static uint32_t numbers[THREADS][VALUES];

static void *ask(void *argument)
{
    size_t me = (size_t)(uintptr_t)argument;
    for (size_t i = 0; i < VALUES; i++) {
        size_t which = me % 2 ? VALUES - 1 - i : i;
        struct value value = value_of(which);
        numbers[me][which] = intern(&shared, &value);
        assert_memory_equal(intern_value(&shared, numbers[me][which]), &value, sizeof value);
    }
    return NULL;
}

static void threads_are_told_the_same(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 1; i < THREADS; i++)
        assert_memory_equal(numbers[0], numbers[i], sizeof numbers[0]);
    assert_int_equal(atomic_load(&shared.used), VALUES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_value_has_a_number_of_its_own),
        cmocka_unit_test(what_was_not_given_is_no_number),
        cmocka_unit_test(a_full_table_adds_nothing_and_still_finds_the_rest),
        cmocka_unit_test(without_host_memory_there_is_none_until_there_is),
        cmocka_unit_test(threads_are_told_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
