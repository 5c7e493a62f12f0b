/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "base/thread/copiers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COPIES 64
#define BYTES ((size_t)40000)

static unsigned char from[COPIES][BYTES], to[COPIES][BYTES];
static struct copiers_copy copies[COPIES];

static void fill(int i, int round)
{
    memset(from[i], i + 7 * round, BYTES);
    copies[i] = (struct copiers_copy){.to = to[i], .from = from[i], .size = BYTES};
}

static bool is_copied(int i)
{
    return memcmp(to[i], from[i], BYTES) == 0;
}

static void copies_are_done_when_they_were_waited_for(void **state)
{
    (void)state;
    struct copiers copiers;
    assert_true(copiers_start(&copiers, COPIERS_MOST));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < COPIES; i++) {
            fill(i, round);
            copiers_give(&copiers, &copies[i]);
        }
        for (int i = COPIES; i-- > 0;) {
            copiers_wait(&copiers, &copies[i]);
            assert_true(is_copied(i));
        }
    }
    copiers_end(&copiers);
}

static void an_end_waits_for_what_was_handed_out(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= COPIERS_MOST + 1; threads++) {
        struct copiers copiers;
        assert_true(copiers_start(&copiers, threads));
        assert_true(copiers.count <= threads && copiers.count <= COPIERS_MOST);
        for (int i = 0; i < COPIES; i++) {
            fill(i, (int)threads);
            copiers_give(&copiers, &copies[i]);
        }
        copiers_end(&copiers);
        for (int i = 0; i < COPIES; i++)
            assert_true(is_copied(i) && !copies[i].under_way);
    }
}

static void what_was_never_handed_out_is_not_waited_for(void **state)
{
    (void)state;
    struct copiers copiers;
    struct copiers_copy idle = {0};
    assert_true(copiers_start(&copiers, 2));
    copiers_wait(&copiers, &idle);
    copiers_end(&copiers);
    assert_false(copiers_start(&copiers, 0));
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
