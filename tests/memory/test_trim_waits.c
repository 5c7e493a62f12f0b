/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A trim waits for everything that holds memory back, whatever waits behind what. */
#include "../driver/host_test.h"

#include <tarn/tarn.h>

static tarn_stream lease(void **native)
{
    tarn_stream stream;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_stream_native_get(stream, native));
    return stream;
}

/* The block comes back when the other stream is done, but then its own stream is not. */
static void a_block_behind_two_streams_is_given_back(void **state)
{
    (void)state;
    void *own_native, *other_native, *block = NULL;
    tarn_stream own = lease(&own_native), other = lease(&other_native);
    assert_ok(tarn_alloc_on(own, 30 * MIB, &block));
    assert_ok(tarn_record_stream(block, other));
    assert_ok(tarn_host_work(0, other_native, block, 30 * MIB, 1000));
    assert_ok(tarn_host_work(0, own_native, block, 30 * MIB, 9000));
    assert_ok(tarn_free(block));
    assert_ok(tarn_device_trim(0, 0));
    assert_int_equal(ledger_of(0).created, 0);
    assert_int_equal(ledger_of(0).reports, 0);
    assert_true(time_now() >= 9000);
}

int main(void)
{
    const tarn_host_configuration config = {
        .size = sizeof config, .devices = 1, .memory = 256 * MIB};
    if (tarn_host_configuration_set(&config) || tarn_host_check_set(true, NULL, NULL))
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_block_behind_two_streams_is_given_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
