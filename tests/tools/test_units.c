/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Numbers for people and from people. */
#include "units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void bytes_times_and_counts_are_written(void **state)
{
    (void)state;
    assert_string_equal(units_bytes(0).text, "0 B");
    assert_string_equal(units_bytes(999).text, "999 B");
    assert_string_equal(units_bytes(1000).text, "0.98 KiB");
    assert_string_equal(units_bytes(1536).text, "1.50 KiB");
    assert_string_equal(units_bytes((uint64_t)80 << 30).text, "80.0 GiB");
    assert_string_equal(units_bytes(UINT64_MAX).text, "16.0 EiB");
    assert_string_equal(units_time(0).text, "0 ns");
    assert_string_equal(units_time(1500000).text, "1.50 ms");
    assert_string_equal(units_time(123456789012).text, "123 s");
    assert_string_equal(units_count(0).text, "0");
    assert_string_equal(units_count(999).text, "999");
    assert_string_equal(units_count(19936).text, "19,936");
    assert_string_equal(units_count(UINT64_MAX).text, "18,446,744,073,709,551,615");
}

/* What is rounded up is enough when it is read again, and never more than a last digit too much. */
static void sizes_that_are_enough_are_rounded_up(void **state)
{
    (void)state;
    assert_string_equal(units_bytes_up(0).text, "0 B");
    assert_string_equal(units_bytes_up(999).text, "999 B");
    assert_string_equal(units_bytes_up(1536).text, "1.50 KiB");
    assert_string_equal(units_bytes_up(1537).text, "1.51 KiB");
    assert_string_equal(units_bytes_up(((uint64_t)999 << 20) + 1).text, "0.98 GiB");
    assert_string_equal(units_bytes_up(((uint64_t)80 << 30) + 1).text, "80.1 GiB");
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 46; bytes += bytes / 37 + 1) {
        uint64_t read = 0;
        assert_true(units_parse_bytes(units_bytes_up(bytes).text, &read));
        assert_true(read >= bytes && read - bytes <= bytes / 99);
    }
}

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } right[] = {{"0", 0},
                 {"1024", 1024},
                 {"123456789012345678", 123456789012345678},
                 {"80G", (uint64_t)80 << 30},
                 {"80gib", (uint64_t)80 << 30},
                 {"512 MiB", (uint64_t)512 << 20},
                 {"1.5K", 1536},
                 {"2T", (uint64_t)2 << 40},
                 {"7B", 7}};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        assert_true(units_parse_bytes(right[i].text, &bytes));
        assert_int_equal(bytes, right[i].bytes);
    }
    static const char *const wrong[] = {"",    " 1",  "-1",    "+1",  "1.5",
                                        "G",   ".5G", "1e3",   "0x1", "1Q",
                                        "1GG", "1G ", "1..5G", "9E",  "99999999999999999999"};
    bytes = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (units_parse_bytes(wrong[i], &bytes))
            fail_msg("\"%s\" was taken for a size", wrong[i]);
    assert_int_equal(bytes, 7);
}

static void times_are_read(void **state)
{
    (void)state;
    uint64_t ns = 7;
    static const char *const wrong[] = {"", "1", "s", "-1s", "1 m", "1.s.", "1sec", "99999999999s"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(units_parse_time(wrong[i], &ns));
    assert_int_equal(ns, 7);
    assert_true(units_parse_time("1.5s", &ns) && ns == 1500000000);
    assert_true(units_parse_time("250 ms", &ns) && ns == 250000000);
    assert_true(units_parse_time("30us", &ns) && ns == 30000);
    assert_true(units_parse_time("7ns", &ns) && ns == 7);
}

static void numbers_are_read(void **state)
{
    (void)state;
    double number;
    uint64_t count;
    assert_true(units_parse_number("2.5", 0, 10, &number) && number == 2.5);
    assert_false(units_parse_number("10.1", 0, 10, &number));
    assert_false(units_parse_number("nan", 0, 10, &number));
    assert_false(units_parse_number("1 ", 0, 10, &number));
    assert_true(units_parse_count("10", 1, 10, &count) && count == 10);
    assert_false(units_parse_count("11", 1, 10, &count));
    assert_false(units_parse_count("0", 1, 10, &count));
    assert_false(units_parse_count("1x", 1, 10, &count));
    assert_false(units_parse_count("", 0, 10, &count));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_times_and_counts_are_written),
        cmocka_unit_test(sizes_that_are_enough_are_rounded_up),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(times_are_read),
        cmocka_unit_test(numbers_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
