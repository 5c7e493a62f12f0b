/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "base/pages.h"
#include "support/host.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct thing {
    char bytes[72];
};

static struct object_pool things = OBJECT_POOL(struct thing);

static bool is_zero(const void *memory, size_t size)
{
    const char *bytes = memory;
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

static void objects_are_zeroed_also_when_used_before(void **state)
{
    (void)state;
    struct thing *all[2000];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2000; i++) {
            all[i] = object_alloc(&things);
            CHECK(all[i] && is_zero(all[i], sizeof *all[i]));
            memset(all[i], 0xa5, sizeof *all[i]);
        }
        CHECK(things.live == 2000);
        for (int i = 0; i < 2000; i++) {
            for (size_t k = 0; k < sizeof *all[i]; k++)
                CHECK(all[i]->bytes[k] == (char)0xa5); /* no two overlap */
            object_free(&things, all[i]);
        }
        CHECK(things.live == 0);
    }
}

static void objects_given_back_are_handed_out_again_and_nothing_is_mapped_for_that(void **state)
{
    (void)state;
    struct thing *first = object_alloc(&things);
    object_free(&things, first);
    uint64_t bytes = pages_bytes();
    for (int i = 0; i < 100000; i++) {
        struct thing *again = object_alloc(&things);
        CHECK(again == first);
        object_free(&things, again);
    }
    CHECK(pages_bytes() == bytes);
}

static void pages_are_counted_while_they_are_mapped(void **state)
{
    (void)state;
    uint64_t before = pages_bytes();
    char *memory = pages_map(10000);
    CHECK(memory && (uintptr_t)memory % 4096 == 0 && is_zero(memory, 12288));
    CHECK(pages_bytes() == before + 12288);
    pages_unmap(memory, 10000);
    CHECK(pages_bytes() == before);
}

static void small_memory_of_every_size_is_zeroed_and_its_own(void **state)
{
    (void)state;
    static char *all[1200];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 1200; i++) {
            size_t size = i * 7 + 1; /* to 8394: beyond the largest class */
            all[i] = pages_alloc(size);
            CHECK(all[i] && (uintptr_t)all[i] % 16 == 0 && is_zero(all[i], size));
            memset(all[i], (int)(i % 251) + 1, size);
        }
        for (size_t i = 0; i < 1200; i++) {
            size_t size = i * 7 + 1;
            for (size_t k = 0; k < size; k++)
                CHECK(all[i][k] == (char)(i % 251 + 1));
            pages_free(all[i], size);
        }
    }
    pages_free(NULL, 100);
    pages_unmap(NULL, 100);
    object_free(&things, NULL);
}

static void what_the_host_cannot_give_is_null_and_leaves_errno(void **state)
{
    (void)state;
    errno = 7;
    CHECK(!pages_map(SIZE_MAX));
    CHECK(!pages_map(SIZE_MAX / 2));
    CHECK(!pages_alloc(SIZE_MAX - 100));
    CHECK(errno == 7);
}

static void the_nth_allocation_fails_once(void **state)
{
    (void)state;
    struct thing *kept[3];
    pages_fail(2, false);
    CHECK((kept[0] = object_alloc(&things)));
    CHECK(!pages_alloc(10));
    CHECK((kept[1] = object_alloc(&things)));
    CHECK(pages_fail_calls() == 3 && pages_fail_hits() == 1);
    pages_fail(0, false);
    object_free(&things, kept[0]);
    object_free(&things, kept[1]);
}

static void every_allocation_from_the_nth_on_fails(void **state)
{
    (void)state;
    pages_fail(2, true);
    void *memory = pages_map(1);
    CHECK(memory);
    for (int i = 0; i < 5; i++)
        CHECK(!pages_map(1) && !object_alloc(&things) && !pages_alloc(1));
    CHECK(pages_fail_calls() == 16 && pages_fail_hits() == 15);
    pages_fail(0, false);
    pages_unmap(memory, 1);
    memory = pages_alloc(1);
    CHECK(memory);
    pages_free(memory, 1);
    CHECK(pages_fail_calls() == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_zeroed_also_when_used_before),
        cmocka_unit_test(objects_given_back_are_handed_out_again_and_nothing_is_mapped_for_that),
        cmocka_unit_test(pages_are_counted_while_they_are_mapped),
        cmocka_unit_test(small_memory_of_every_size_is_zeroed_and_its_own),
        cmocka_unit_test(what_the_host_cannot_give_is_null_and_leaves_errno),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test(every_allocation_from_the_nth_on_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
