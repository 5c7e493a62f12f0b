/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "base/pages.h"
#include "memory/arena/map.h"
#include "memory/heap/heap.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define BASE ((uintptr_t)0x123400000000)
#define LEAF ((size_t)2 << 30) /* bytes that a leaf covers */

static struct span spans[4];

#define ENTRY(i) map_entry_of_span(&spans[i])

static void an_entry_is_a_span_or_a_slab_and_says_which(void **state)
{
    (void)state;
    static struct slab *slab = (struct slab *)0x1000;
    CHECK(map_span(ENTRY(1)) == &spans[1] && !map_slab(ENTRY(1)));
    CHECK(map_slab(map_entry_of_slab(slab)) == slab && !map_span(map_entry_of_slab(slab)));
    CHECK(!map_span(0) && !map_slab(0));
}

static void an_entry_is_found_for_every_address_of_its_page_and_no_other(void **state)
{
    (void)state;
    OK(map_prepare(BASE, 10 * MAP_PAGE));
    map_set(BASE + 3 * MAP_PAGE, ENTRY(0));
    map_set(BASE + 5 * MAP_PAGE + 512, ENTRY(1));
    CHECK(map_get(BASE + 3 * MAP_PAGE) == ENTRY(0) && map_get(BASE + 4 * MAP_PAGE - 1) == ENTRY(0));
    CHECK(!map_get(BASE + 3 * MAP_PAGE - 1) && !map_get(BASE + 4 * MAP_PAGE));
    CHECK(map_get(BASE + 5 * MAP_PAGE) == ENTRY(1));
    map_set(BASE + 3 * MAP_PAGE, 0);
    map_set(BASE + 5 * MAP_PAGE, 0);
    CHECK(!map_get(BASE + 3 * MAP_PAGE) && !map_get(BASE + 5 * MAP_PAGE));
}

static void addresses_that_were_never_prepared_have_no_entry(void **state)
{
    (void)state;
    CHECK(!map_get(0) && !map_get(1) && !map_get(UINTPTR_MAX) && !map_get((uintptr_t)1 << 48));
    CHECK(!map_get(((uintptr_t)1 << 48) - 1) && !map_get((uintptr_t)1 << 47) &&
          !map_get(BASE - LEAF));
}

static void a_range_that_the_map_does_not_cover_is_refused(void **state)
{
    (void)state;
    GIVES(map_prepare(((uintptr_t)1 << 48) - MAP_PAGE, 2 * MAP_PAGE), TARN_ERROR_NOT_SUPPORTED);
    GIVES(map_prepare((uintptr_t)1 << 48, MAP_PAGE), TARN_ERROR_NOT_SUPPORTED);
    /* It wraps */
    GIVES(map_prepare((uintptr_t)0 - MAP_PAGE, 2 * MAP_PAGE), TARN_ERROR_NOT_SUPPORTED);
}

static void a_range_over_several_leaves_is_prepared_once(void **state)
{
    (void)state;
    uintptr_t start = BASE + 100 * LEAF - MAP_PAGE;
    uint64_t bytes = pages_bytes();
    OK(map_prepare(start, 2 * LEAF)); /* touches three */
    uint64_t with = pages_bytes();
    CHECK(with > bytes);
    OK(map_prepare(start, 2 * LEAF));
    CHECK(pages_bytes() == with);
    for (int i = 0; i < 3; i++)
        map_set(start + (size_t)i * LEAF, ENTRY(i));
    for (int i = 0; i < 3; i++)
        CHECK(map_get(start + (size_t)i * LEAF + MAP_PAGE - 1) == ENTRY(i));
    CHECK(!map_get(start + MAP_PAGE));
}

/* As a search page by page finds it. The second of four leaves is never made. */
static void the_last_entry_before_an_address_is_found(void **state)
{
    (void)state;
    enum { PAGES = 4 * (int)MAP_LEAF_ENTRIES };
    static bool set[PAGES];
    uintptr_t start = BASE + 300 * LEAF;
    uint32_t random = 7;
    OK(map_prepare(start, LEAF));
    OK(map_prepare(start + 2 * LEAF, 2 * LEAF));
    CHECK(map_last(start, start + 4 * LEAF) == 0 && map_last(start, start) == 0);
    for (int round = 0; round < 2000; round++) {
        random = random * 1664525 + 1013904223;
        size_t page = (random >> 4) % PAGES, from = (random >> 9) % PAGES, last = page;
        if (round % 3 == 0 && page / MAP_LEAF_ENTRIES != 1) {
            set[page] = !set[page];
            map_set(start + page * MAP_PAGE, set[page] ? ENTRY(0) : 0);
            continue;
        }
        from = from < page ? from : page / 2;
        while (last > from && !set[last - 1])
            last--;
        CHECK(map_last(start + from * MAP_PAGE, start + page * MAP_PAGE) ==
              (last > from ? start + (last - 1) * MAP_PAGE : 0));
    }
}

static void addresses_above_48_bits_are_refused(void **state)
{
    (void)state;
    GIVES(map_prepare((uintptr_t)1 << 48, MAP_PAGE), TARN_ERROR_NOT_SUPPORTED);
    GIVES(map_prepare(((uintptr_t)1 << 48) - MAP_PAGE, 2 * MAP_PAGE), TARN_ERROR_NOT_SUPPORTED);
    OK(map_prepare(((uintptr_t)1 << 48) - MAP_PAGE, MAP_PAGE));
}

static void a_failure_to_prepare_can_be_repeated(void **state)
{
    (void)state;
    uintptr_t start = BASE + 200 * LEAF;
    pages_fail(2, false);
    GIVES(map_prepare(start, 3 * LEAF), TARN_ERROR_OUT_OF_HOST_MEMORY);
    pages_fail(0, false);
    CHECK(!map_get(start) && !map_get(start + LEAF));
    OK(map_prepare(start, 3 * LEAF));
    map_set(start + 3 * LEAF - 1, ENTRY(0));
    CHECK(map_get(start + 3 * LEAF - MAP_PAGE) == ENTRY(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_is_a_span_or_a_slab_and_says_which),
        cmocka_unit_test(an_entry_is_found_for_every_address_of_its_page_and_no_other),
        cmocka_unit_test(addresses_that_were_never_prepared_have_no_entry),
        cmocka_unit_test(a_range_that_the_map_does_not_cover_is_refused),
        cmocka_unit_test(a_range_over_several_leaves_is_prepared_once),
        cmocka_unit_test(the_last_entry_before_an_address_is_found),
        cmocka_unit_test(addresses_above_48_bits_are_refused),
        cmocka_unit_test(a_failure_to_prepare_can_be_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
