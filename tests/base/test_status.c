/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "base/status.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void each_status_has_its_name_and_a_text_of_its_own(void **state)
{
    (void)state;
    const char *texts[64] = {0};
    int count = 0;
#define X(name, value, text)                                           \
    CHECK(name == (value));                                            \
    CHECK(strcmp(tarn_status_name((tarn_status)(value)), #name) == 0); \
    texts[count++] = tarn_status_text((tarn_status)(value));
    TARN_STATUS_LIST(X)
#undef X
    for (int i = 0; i < count; i++) {
        CHECK(*texts[i] && texts[i][strlen(texts[i]) - 1] != '.');
        for (int k = 0; k < i; k++)
            CHECK(strcmp(texts[i], texts[k]) != 0);
    }
}

static void values_that_are_none_are_unknown(void **state)
{
    (void)state;
    CHECK(strcmp(tarn_status_name((tarn_status)9999), "TARN_UNKNOWN") == 0);
    CHECK(*tarn_status_text((tarn_status)9999));
}

static void the_last_error_stays_until_the_next_failure(void **state)
{
    (void)state;
    CHECK(failed(TARN_ERROR_BUSY, "number %d", 5) == TARN_ERROR_BUSY);
    CHECK(strcmp(tarn_last_error(), "number 5") == 0);
    CHECK(tarn_tag_intern(NULL, NULL) == TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strcmp(tarn_last_error(), "number 5") != 0);
}

static void a_sentence_is_put_in_front_of_the_last_error(void **state)
{
    (void)state;
    (void)failed(TARN_ERROR_BUSY, "the door is locked");
    CHECK(failed_within(TARN_ERROR_BUSY, "opening door %d", 3) == TARN_ERROR_BUSY);
    CHECK(strcmp(tarn_last_error(), "opening door 3: the door is locked") == 0);
}

static void long_texts_are_cut_and_stay_terminated(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    (void)failed(TARN_ERROR_BUSY, "%s", text);
    size_t most = strlen(tarn_last_error());
    CHECK(most >= 1000 && most < sizeof text && strcmp(tarn_last_error() + most - 4, "x...") == 0);
    memset(text, '\xA0', sizeof text - 1); /* of a character of many bytes: none of these ends
                                              one */
    text[most - 6] = 'x';
    (void)failed(TARN_ERROR_BUSY, "%s", text);
    CHECK(strcmp(tarn_last_error() + most - 6, "...") == 0);
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < 5; i++) {
        error_within(TARN_ERROR_BUSY, "%.600s", text);
        CHECK(strlen(tarn_last_error()) <= most);
    }
    error_within(TARN_ERROR_BUSY, "%s", text);
    CHECK(strlen(tarn_last_error()) == most);
    error_within(TARN_ERROR_BUSY, "short");
    CHECK(strncmp(tarn_last_error(), "short: xxx", 10) == 0);
}

static void *other_thread(void *argument)
{
    (void)argument;
    CHECK(*tarn_last_error() == 0);
    CHECK(tarn_last_status() == TARN_OK);
    (void)failed(TARN_ERROR_BUSY, "theirs");
    status_set_last(TARN_ERROR_CAPTURE);
    CHECK(strcmp(tarn_last_error(), "theirs") == 0);
    return NULL;
}

static void each_thread_has_its_own_last_error(void **state)
{
    (void)state;
    pthread_t thread;
    (void)failed(TARN_ERROR_BUSY, "ours");
    status_set_last(TARN_ERROR_BUSY);
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK(strcmp(tarn_last_error(), "ours") == 0);
    CHECK(tarn_last_status() == TARN_ERROR_BUSY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_status_has_its_name_and_a_text_of_its_own),
        cmocka_unit_test(values_that_are_none_are_unknown),
        cmocka_unit_test(the_last_error_stays_until_the_next_failure),
        cmocka_unit_test(a_sentence_is_put_in_front_of_the_last_error),
        cmocka_unit_test(long_texts_are_cut_and_stay_terminated),
        cmocka_unit_test(each_thread_has_its_own_last_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
