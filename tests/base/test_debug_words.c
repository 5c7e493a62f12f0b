/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "base/debug_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct debug_settings parsed(const char *text)
{
    struct debug_settings settings = {0};
    assert_int_equal(debug_words_parse(text, &settings), TARN_OK);
    return settings;
}

static void a_list_is_the_sum_of_its_words(void **state)
{
    (void)state;
    assert_int_equal(parsed("").words, 0);
    assert_int_equal(parsed("handles").words, DEBUG_HANDLES);
    assert_int_equal(parsed("redzone,poison").words, DEBUG_REDZONE | DEBUG_POISON);
    assert_int_equal(parsed(" sites, check ,,leaks\t").words,
                     DEBUG_SITES | DEBUG_CHECK | DEBUG_LEAKS);
    assert_int_equal(parsed("context,abort").words, DEBUG_CONTEXT | DEBUG_ABORT);
    unsigned all = parsed("all").words;
    assert_int_equal(parsed("1").words, all); /* as TARN_TRACE=1 */
    assert_int_equal(parsed("on").words, all);
    assert_int_equal(parsed("0").words, 0);
    assert_int_equal(parsed("off").words, 0);
    assert_int_equal(all & DEBUG_ABORT, 0);
    assert_int_equal(all & DEBUG_QUIET, 0);
    assert_int_equal(parsed("quiet").words, DEBUG_QUIET);
    assert_int_equal(all | DEBUG_ABORT, parsed("all,abort").words);
    assert_int_equal(all & (DEBUG_BLOCKS | DEBUG_HANDLES | DEBUG_CONTEXT),
                     DEBUG_BLOCKS | DEBUG_HANDLES | DEBUG_CONTEXT);
}

static void the_quarantine_has_a_size(void **state)
{
    (void)state;
    assert_int_equal(parsed("quarantine").quarantine, DEBUG_QUARANTINE_BYTES);
    assert_int_equal(parsed("quarantine=0").quarantine, 0);
    assert_int_equal(parsed("quarantine=12345,all").quarantine, 12345);
    assert_int_equal(parsed("all,quarantine=3k").quarantine, 3 << 10);
    assert_int_equal(parsed("quarantine=5M").quarantine, 5 << 20);
    assert_int_equal(parsed("quarantine=2G").quarantine, (size_t)2 << 30);
    assert_int_equal(parsed("quarantine=18446744073709551615").quarantine, SIZE_MAX);
}

static void what_is_no_word_is_named(void **state)
{
    static const struct {
        const char *text, *named;
    } wrong[] = {
        {"redzones", "unknown word \"redzones\"; the words are handles, redzone"},
        {"handles,foo", "unknown word \"foo\""},
        {"graph", "quiet, graphs, all (or 1) and off (or 0)"},
        {"xhandles", "unknown word \"xhandles\""},
        {"handle", "unknown word \"handle\""},
        {"All", "unknown word \"All\""},
        {"all=1", "unknown word \"all=1\""},
        {"redzone;poison", "unknown word \"redzone;poison\""},
        {"redzone=1", "redzone takes no value"},
        {"quarantine=", "quarantine=: the value must be"},
        {"quarantine=x", "quarantine=x: the value must be"},
        {"quarantine=1T", "quarantine=1T: the value must be"},
        {"quarantine=1MB", "quarantine=1MB: the value must be"},
        {"quarantine=-1", "quarantine=-1: the value must be"},
        {"quarantine=18446744073709551616", "the value must be a number of bytes"},
        {"quarantine=99999999999999999G", "the value must be a number of bytes"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct debug_settings settings = {.words = 77, .quarantine = 78};
        assert_int_equal(debug_words_parse(wrong[i].text, &settings), TARN_ERROR_CONFIGURATION);
        assert_true(settings.words == 77 && settings.quarantine == 78);
        assert_non_null(strstr(tarn_last_error(), wrong[i].named));
    }
}

static void the_environment_is_read(void **state)
{
    (void)state;
    setenv("TARN_DEBUG", "leaks,bogus", 1);
    assert_int_equal(debug_words_read(), TARN_ERROR_CONFIGURATION);
    assert_false(debug_has(DEBUG_LEAKS));
    setenv("TARN_DEBUG", "leaks", 1);
    assert_int_equal(debug_words_read(), TARN_OK);
    assert_true(debug_has(DEBUG_LEAKS) && !debug_has(DEBUG_CONTENTS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_the_sum_of_its_words),
        cmocka_unit_test(the_quarantine_has_a_size),
        cmocka_unit_test(what_is_no_word_is_named),
        cmocka_unit_test(the_environment_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
