/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "base/thread/crew.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COPIES 64
#define BYTES ((size_t)40000)

static unsigned char from[COPIES][BYTES], to[COPIES][BYTES];
static struct crew_copy copies[COPIES];

static void fill(int i, int round)
{
    memset(from[i], i + 7 * round, BYTES);
    copies[i] = (struct crew_copy){.to = to[i], .from = from[i], .size = BYTES};
}

static bool is_copied(int i)
{
    return memcmp(to[i], from[i], BYTES) == 0;
}

static void copies_are_done_when_they_were_waited_for(void **state)
{
    (void)state;
    struct crew crew;
    assert_true(crew_start(&crew, CREW_MOST));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < COPIES; i++) {
            fill(i, round);
            crew_give(&crew, &copies[i]);
        }
        for (int i = COPIES; i-- > 0;) {
            crew_wait(&crew, &copies[i]);
            assert_true(is_copied(i));
        }
    }
    crew_end(&crew);
}

static void an_end_waits_for_what_was_handed_out(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= CREW_MOST + 1; threads++) {
        struct crew crew;
        assert_true(crew_start(&crew, threads));
        assert_true(crew.count <= threads && crew.count <= CREW_MOST);
        for (int i = 0; i < COPIES; i++) {
            fill(i, (int)threads);
            crew_give(&crew, &copies[i]);
        }
        crew_end(&crew);
        for (int i = 0; i < COPIES; i++)
            assert_true(is_copied(i) && !copies[i].under_way);
    }
}

static void what_was_never_handed_out_is_not_waited_for(void **state)
{
    (void)state;
    struct crew crew;
    struct crew_copy idle = {0};
    assert_true(crew_start(&crew, 2));
    crew_wait(&crew, &idle);
    crew_end(&crew);
    assert_false(crew_start(&crew, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_done_when_they_were_waited_for),
        cmocka_unit_test(an_end_waits_for_what_was_handed_out),
        cmocka_unit_test(what_was_never_handed_out_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
