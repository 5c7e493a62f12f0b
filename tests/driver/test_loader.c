/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Opening libraries by name: the order, the texts, what is missing. libm stands for a vendor's
 * library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "driver/loader.h"
#include <stdio.h>
#include <string.h>

static int clear(void **state)
{
    (void)state;
    loader_fail(NULL);
    return 0;
}

static void the_first_that_opens_is_taken(void **state)
{
    (void)state;
    const char *const sonames[] = {"libtarn-none.so.9", "libm.so.6", NULL};
    struct loaded loaded = {0};
    char why[256] = "old";
    assert_int_equal(loader_open(sonames, &loaded, why, sizeof why), TARN_OK);
    assert_string_equal(loaded.soname, "libm.so.6");
    assert_non_null(strstr(loader_path(&loaded), "/libm.so.6"));
    assert_string_equal(why, "");

    double (*floor_of)(double) = NULL;
    loader_store(&floor_of, loader_symbol(&loaded, "floor"));
    assert_non_null(floor_of);
    assert_true(floor_of(2.5) == 2.0);
    assert_null(loader_symbol(&loaded, "tarn_no_such_symbol"));
}

/* A program that runs on one version does not get another one beside it. */
static void what_is_loaded_comes_first(void **state)
{
    (void)state;
    const char *const sonames[] = {"libtarn-none.so.9", "libutil.so.1", "libc.so.6", NULL};
    struct loaded loaded = {0};
    assert_int_equal(loader_open(sonames, &loaded, NULL, 0), TARN_OK);
    assert_string_equal(loaded.soname, "libc.so.6");
    loader_fail("libc.so.6");
    assert_int_equal(loader_open(sonames, &loaded, NULL, 0), TARN_OK);
    assert_string_equal(loaded.soname, "libutil.so.1");
}

static void what_was_tried_is_told(void **state)
{
    (void)state;
    const char *const sonames[] = {"libtarn-none.so.9", "libtarn-none.so.8", NULL};
    struct loaded loaded = {.soname = "untouched"};
    char why[512];
    assert_int_equal(loader_open(sonames, &loaded, why, sizeof why), TARN_ERROR_LIBRARY_NOT_FOUND);
    assert_string_equal(loaded.soname, "untouched");
    assert_non_null(strstr(why, "libtarn-none.so.9: cannot open"));
    assert_non_null(strstr(why, "; libtarn-none.so.8: cannot open"));

    char little[24];
    memset(little, 'x', sizeof little);
    assert_int_equal(loader_open(sonames, &loaded, little, sizeof little),
                     TARN_ERROR_LIBRARY_NOT_FOUND);
    assert_int_equal(strlen(little), sizeof little - 1);
    assert_int_equal(loader_open(sonames, &loaded, NULL, 0), TARN_ERROR_LIBRARY_NOT_FOUND);
}

static void a_test_makes_names_missing(void **state)
{
    (void)state;
    const char *const sonames[] = {"libm.so.6", "libc.so.6", NULL};
    struct loaded loaded = {0};
    loader_fail("libm.so libm.so.6 floor");
    assert_int_equal(loader_open(sonames, &loaded, NULL, 0), TARN_OK);
    assert_string_equal(loaded.soname, "libc.so.6");
    loader_fail("libm.so.6 libc.so.6");
    char why[256];
    assert_int_equal(loader_open(sonames, &loaded, why, sizeof why), TARN_ERROR_LIBRARY_NOT_FOUND);
    assert_non_null(strstr(why, "libc.so.6: missing"));
    loader_fail("floor");
    assert_int_equal(loader_open(sonames, &loaded, NULL, 0), TARN_OK);
    assert_null(loader_symbol(&loaded, "floor"));
    assert_non_null(loader_symbol(&loaded, "ceil"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_first_that_opens_is_taken, clear),
        cmocka_unit_test_teardown(what_is_loaded_comes_first, clear),
        cmocka_unit_test_teardown(what_was_tried_is_told, clear),
        cmocka_unit_test_teardown(a_test_makes_names_missing, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
