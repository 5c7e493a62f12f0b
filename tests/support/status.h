/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks of the status of a call of tarn, on top of cmocka's: include it after <cmocka.h>. */
#ifndef TESTS_SUPPORT_STATUS_H
#define TESTS_SUPPORT_STATUS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/core.h>

static inline void check_status(tarn_status status, tarn_status expected, const char *call,
                                const char *file, int line)
{
    if (status != expected)
        print_error("%s gave %s, not %s: %s\n", call, tarn_status_name(status),
                    tarn_status_name(expected), tarn_last_error());
    _assert_int_equal((unsigned long)status, (unsigned long)expected, file, line);
}

static inline void check_refused(tarn_status status, tarn_status expected, const char *part,
                                 const char *call, const char *file, int line)
{
    check_status(status, expected, call, file, line);
    if (!strstr(tarn_last_error(), part))
        print_error("%s: \"%s\" is not in \"%s\"\n", call, part, tarn_last_error());
    _assert_true(strstr(tarn_last_error(), part) != NULL, "the last error names the reason", file,
                 line);
}

#define assert_ok(call) check_status((call), TARN_OK, #call, __FILE__, __LINE__)
#define assert_status(call, expected) check_status((call), (expected), #call, __FILE__, __LINE__)
/* The call must fail with the status, and with a text that contains `part`. */
#define assert_refused(call, expected, part) \
    check_refused((call), (expected), (part), #call, __FILE__, __LINE__)

/* cmocka's assertions work only in the main thread; these work in any. */
#define MUST(condition)                                                                 \
    do {                                                                                \
        if (!(condition)) {                                                             \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, \
                    tarn_last_error());                                                 \
            abort();                                                                    \
        }                                                                               \
    } while (0)
#define GOOD(call) MUST((call) == TARN_OK)

#endif
