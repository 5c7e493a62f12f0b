/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static size_t limit_of(int device)
{
    size_t bytes = 77;
    OK(tarn_device_limit_get(device, &bytes));
    return bytes;
}

static void there_is_no_limit_at_first(void **state)
{
    (void)state;
    CHECK(limit_of(0) == SIZE_MAX && limit_of(1) == SIZE_MAX);
}

static void a_limit_is_of_one_device(void **state)
{
    (void)state;
    OK(tarn_device_limit_set(0, 10 * MIB));
    CHECK(limit_of(0) == 10 * MIB && limit_of(1) == SIZE_MAX);
    OK(tarn_device_limit_set(0, 0));
    void *pointer = NULL;
    GIVES(tarn_alloc_on(lease(0), 1, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_free(alloc_on(lease(1), 1)));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    GIVES(tarn_device_limit_get(0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    nothing_is_left(0);
    nothing_is_left(1);
}

static void a_limit_below_reserved_memory_only_stops_growth(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *block = alloc_on(stream, 20 * MIB);
    void *pointer = NULL;
    OK(tarn_device_limit_set(0, 2 * MIB));
    CHECK(ledger_of(0).created == 20 * MIB);
    block[20 * MIB - 1] = 1;
    GIVES(tarn_alloc_on(stream, 3 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_free(block));
    block = alloc_on(stream, 20 * MIB); /* what is reserved serves on */
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
    GIVES(tarn_alloc_on(stream, 3 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_free(alloc_on(stream, 2 * MIB)));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    nothing_is_left(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_no_limit_at_first),
        cmocka_unit_test(a_limit_is_of_one_device),
        cmocka_unit_test(a_limit_below_reserved_memory_only_stops_growth),
    };
    host_start_with(2, 64 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
