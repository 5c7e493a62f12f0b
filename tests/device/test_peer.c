/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Peers: asked once per pair, enabled in one direction; what is mapped then, and what is mapped
 * later, can be reached. */
#include "../driver/host_test.h"

#include "device/capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <tarn/tarn.h>

static uint64_t calls_of(int device, enum driver_call call)
{
    return ledger_of(device).calls[call];
}

static bool reaches(int device, const void *address)
{
    tarn_host_extent extent;
    return tarn_host_extent_get(device, address, 1, &extent) == TARN_OK && extent.accessible;
}

static void a_pair_is_asked_about_once(void **state)
{
    (void)state;
    uint64_t before = calls_of(3, DRIVER_CALL_peer_possible);
    assert_ok(tarn_host_fail_set(DRIVER_CALL_peer_possible, 1, false, TARN_ERROR_DRIVER));
    assert_status(tarn_device_peer_enable(3, 0), TARN_ERROR_DRIVER);
    for (int i = 0; i < 3; i++) {
        assert_ok(tarn_device_peer_enable(3, 0));
        assert_ok(tarn_device_peer_enable(3, 3));
    }
    assert_int_equal(calls_of(3, DRIVER_CALL_peer_possible), before + 2);
    assert_status(tarn_device_peer_enable(3, 4), TARN_ERROR_INVALID_DEVICE);
    assert_status(tarn_device_peer_enable(-1, 0), TARN_ERROR_INVALID_DEVICE);
}

static void memory_is_reached_now_and_later(void **state)
{
    (void)state;
    tarn_stream stream;
    void *before = NULL, *after = NULL, *other = NULL;
    assert_ok(tarn_stream_lease(1, 0, &stream));
    assert_ok(tarn_alloc_on(stream, 30 * MIB, &before));
    assert_false(reaches(0, before));
    assert_ok(tarn_device_peer_enable(0, 1));
    assert_true(reaches(0, before));
    assert_true(reaches(0, (char *)before + 30 * MIB - 1));
    assert_false(reaches(2, before));
    assert_ok(tarn_alloc_on(stream, 50 * MIB, &after));
    assert_true(reaches(0, after));
    assert_true(reaches(0, (char *)after + 50 * MIB - 1));

    tarn_stream own;
    assert_ok(tarn_stream_lease(0, 0, &own));
    assert_ok(tarn_alloc_on(own, MIB, &other));
    assert_false(reaches(1, other)); /* one direction */

    uint64_t enables = calls_of(0, DRIVER_CALL_peer_enable);
    assert_ok(tarn_device_peer_enable(0, 1));
    assert_ok(tarn_device_peer_enable(0, 0));
    assert_int_equal(calls_of(0, DRIVER_CALL_peer_enable), enables);

    /* A kernel of device 0 may write there now; one of device 2 may not. */
    void *native;
    assert_ok(tarn_stream_native_get(own, &native));
    assert_ok(tarn_host_fill(0, native, after, 5, 64));
    assert_ok(tarn_stream_synchronize(own));
    assert_int_equal(*(unsigned char *)after, 5);
    assert_refused(tarn_host_fill(2, NULL, after, 5, 64), TARN_ERROR_INVALID_ARGUMENT,
                   "cannot be reached");
    assert_ok(driver->copy(2, (uintptr_t)((char *)after + 64), (uintptr_t)after, 64,
                           NULL)); /* unified addresses */
    assert_ok(tarn_device_synchronize(2));

    int devices[TARN_MAX_DEVICES];
    assert_int_equal(peers_of(device_at(1), devices), 2);
    assert_int_equal(devices[0], 1);
    assert_int_equal(devices[1], 0);
    assert_ok(tarn_free(before));
    assert_ok(tarn_free(after));
    assert_ok(tarn_free(other));
}

static void an_enable_that_fails_can_be_tried_again(void **state)
{
    (void)state;
    tarn_stream stream;
    void *block = NULL;
    int devices[TARN_MAX_DEVICES];
    assert_ok(tarn_stream_lease(2, 0, &stream));
    assert_ok(tarn_alloc_on(stream, 4 * MIB, &block));
    static const enum driver_call kinds[] = {DRIVER_CALL_peer_enable, DRIVER_CALL_set_access};
    for (int i = 0; i < 2; i++) {
        assert_ok(tarn_host_fail_set((int)kinds[i], 1, false, TARN_ERROR_DRIVER));
        assert_status(tarn_device_peer_enable(1, 2), TARN_ERROR_DRIVER);
        assert_false(reaches(1, block));
        assert_int_equal(peers_of(device_at(2), devices), 1);
    }
    assert_ok(tarn_device_peer_enable(1, 2));
    assert_true(reaches(1, block));
    assert_ok(tarn_free(block));
}

/* Mapping and enabling at once: whatever the order, all is reached in the end. */
#define BLOCKS 12
static atomic_bool maps; /* the thread is at it */

static void *map_run(void *argument)
{
    void **blocks = argument;
    tarn_stream stream;
    bool well = !tarn_stream_lease(3, 0, &stream);
    for (int i = 0; well && i < BLOCKS; i++) {
        well = !tarn_alloc_on(stream, 22 * MIB, &blocks[i]);
        atomic_store(&maps, true);
        if (well && i % 4 == 3) {
            tarn_free(blocks[i]);
            blocks[i] = NULL;
            tarn_device_trim(3, 0);
        }
    }
    atomic_store(&maps, true);
    return well ? blocks : NULL;
}

static void what_is_mapped_meanwhile_is_reached(void **state)
{
    (void)state;
    for (int peer = 0; peer < 3; peer++) {
        void *blocks[BLOCKS] = {0}, *result = NULL;
        pthread_t thread;
        atomic_store(&maps, false);
        assert_int_equal(pthread_create(&thread, NULL, map_run, blocks), 0);
        while (!atomic_load(&maps))
            ;
        assert_ok(tarn_device_peer_enable(peer, 3));
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_non_null(result);
        for (int i = 0; i < BLOCKS; i++) {
            if (!blocks[i])
                continue;
            assert_true(reaches(peer, blocks[i]));
            assert_true(reaches(peer, (char *)blocks[i] + 22 * MIB - 1));
            assert_ok(tarn_free(blocks[i]));
        }
        assert_ok(tarn_device_trim(3, 0));
    }
}

int main(void)
{
    const tarn_host_configuration config = {
        .size = sizeof config, .devices = 4, .memory = 512 * MIB};
    if (tarn_host_configuration_set(&config))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_is_asked_about_once),
        cmocka_unit_test(memory_is_reached_now_and_later),
        cmocka_unit_test(an_enable_that_fails_can_be_tried_again),
        cmocka_unit_test(what_is_mapped_meanwhile_is_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
