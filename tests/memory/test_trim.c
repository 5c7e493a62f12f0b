/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "driver/host/host.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)

static uint64_t created(void)
{
    return ledger_of(0).created;
}

static void what_is_free_goes_back_to_the_device(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    void *large = alloc_on(stream, 100 * MIB), *small = alloc_on(stream, 1000);
    CHECK(created() >= 100 * MIB);
    OK(tarn_free(large));
    OK(tarn_free(small));
    OK(tarn_device_trim(0, SIZE_MAX));
    CHECK(created() >= 100 * MIB);
    OK(tarn_device_trim(0, 0));
    CHECK(created() == 0);
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static void a_trim_keeps_as_much_as_it_may_and_releases_no_more_than_needed(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    void *blocks[5];
    for (int i = 0; i < 5; i++)
        blocks[i] = alloc_on(stream, 20 * MIB); /* a piece each */
    for (int i = 0; i < 5; i++)
        OK(tarn_free(blocks[i]));
    CHECK(created() == 100 * MIB);
    OK(tarn_device_trim(0, 100 * MIB));
    CHECK(created() == 100 * MIB);
    OK(tarn_device_trim(0, 70 * MIB));
    CHECK(created() == 60 * MIB);
    verify(0);
    OK(tarn_device_trim(0, 60 * MIB - 1));
    CHECK(created() == 40 * MIB);
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static void live_blocks_survive_with_their_contents(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *blocks[40];
    for (int i = 0; i < 40; i++) {
        blocks[i] = alloc_on(stream, (size_t)(i + 1) * 100000);
        memset(blocks[i], i + 1, (size_t)(i + 1) * 100000);
    }
    for (int i = 0; i < 40; i += 2)
        OK(tarn_free(blocks[i]));
    OK(tarn_device_trim(0, 0)); /* TARN_OK although live blocks hold more than 0 */
    CHECK(created() > 0);
    verify(0);
    for (int i = 1; i < 40; i += 2) {
        for (size_t k = 0; k < (size_t)(i + 1) * 100000; k += 997)
            CHECK(blocks[i][k] == i + 1);
        OK(tarn_free(blocks[i]));
    }
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static void a_trim_waits_for_the_work_that_uses_what_it_gives_back(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    void *block = alloc_on(stream, 30 * MIB);
    work_on(stream, block, 30 * MIB, 7000);
    OK(tarn_free(block));
    uint64_t before = time_now();
    OK(tarn_device_trim(0, 0));
    CHECK(time_now() == before + 7000 && created() == 0);
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static void a_trim_waits_for_every_block_that_other_streams_still_use(void **state)
{
    (void)state;
    tarn_stream own = lease(0), users[3] = {lease(0), lease(0), lease(0)};
    void *blocks[3], *small = alloc_on(own, 700);
    for (int i = 0; i < 3; i++) {
        blocks[i] = alloc_on(own, 30 * MIB);
        work_on(users[i], blocks[i], MIB, 1000 * (uint64_t)(i + 1));
        OK(tarn_record_stream(blocks[i], users[i]));
    }
    work_on(own, NULL, 0, 9000);
    OK(tarn_free_on(small, users[2]));
    for (int i = 0; i < 3; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_device_trim(0, 0));
    CHECK(created() == 0);
    nothing_is_left(0);
    OK(tarn_stream_return(own));
    for (int i = 0; i < 3; i++)
        OK(tarn_stream_return(users[i]));
}

static void a_trim_does_not_wait_for_what_gives_nothing_back(void **state)
{
    (void)state;
    tarn_stream idle = lease(0), busy = lease(0);
    void *given = alloc_on(idle, 30 * MIB), *live = alloc_on(busy, 30 * MIB),
         *hole = alloc_on(busy, 200 << 10);
    void *beside = alloc_on(busy, 200 << 10);
    OK(tarn_free(hole)); /* less than a piece: cannot be given back */
    work_on(busy, live, MIB, 100000);
    OK(tarn_free(given));
    uint64_t waited = ledger_of(0).waited_ns, held = created() - 30 * MIB;
    OK(tarn_device_trim(0, 0));
    CHECK(created() == held && ledger_of(0).waited_ns == waited);
    OK(tarn_free(live));
    OK(tarn_free(beside));
    nothing_is_left(0);
    OK(tarn_stream_return(idle));
    OK(tarn_stream_return(busy));
}

static void a_trim_that_needs_idle_memory_alone_does_not_wait(void **state)
{
    (void)state;
    tarn_stream idle = lease(0), busy = lease(0);
    void *first = alloc_on(busy, 40 * MIB), *second = alloc_on(idle, 40 * MIB);
    work_on(busy, first, MIB, 100000);
    OK(tarn_free(first));
    OK(tarn_free(second));
    uint64_t waited = ledger_of(0).waited_ns;
    OK(tarn_device_trim(0, 40 * MIB));
    CHECK(created() == 40 * MIB && ledger_of(0).waited_ns == waited);
    nothing_is_left(0);
    OK(tarn_stream_return(idle));
    OK(tarn_stream_return(busy));
}

static void memory_of_a_retired_stream_is_given_back_too(void **state)
{
    (void)state;
    tarn_stream adopted = 0;
    OK(tarn_stream_adopt(0, native_made(0), &adopted));
    void *freed = alloc_on(adopted, 30 * MIB), *late = alloc_on(adopted, 30 * MIB);
    work_on(adopted, freed, MIB, 5000);
    OK(tarn_free(freed));
    OK(tarn_stream_retire(adopted));
    OK(tarn_free(late)); /* after the retirement, as ever */
    verify(0);
    OK(tarn_device_trim(0, 0));
    CHECK(created() == 0);
    nothing_is_left(0);
}

static void one_device_is_trimmed_and_not_the_others(void **state)
{
    (void)state;
    tarn_stream first = lease(0), second = lease(1);
    OK(tarn_free(alloc_on(first, 20 * MIB)));
    OK(tarn_free(alloc_on(second, 20 * MIB)));
    OK(tarn_device_trim(0, 0));
    CHECK(created() == 0 && ledger_of(1).created == 20 * MIB);
    nothing_is_left(1);
    OK(tarn_stream_return(first));
    OK(tarn_stream_return(second));
}

static void what_the_driver_would_not_take_goes_back_at_the_next_trim(void **state)
{
    (void)state;
    static const char *const kinds[] = {"unmap", "release"};
    tarn_stream stream = lease(0);
    for (int i = 0; i < 2; i++) {
        void *blocks[3];
        for (int k = 0; k < 3; k++)
            blocks[k] = alloc_on(stream, 20 * MIB);
        OK(tarn_free(blocks[0]));
        OK(tarn_free(blocks[2]));
        OK(tarn_host_fail_set(kind_of(kinds[i]), 1, false, TARN_ERROR_DRIVER));
        GIVES(tarn_device_trim(0, 0), TARN_ERROR_DRIVER);
        CHECK(host_fail_hits() == 1);
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        verify(0);
        OK(tarn_device_trim(0, 0));
        CHECK(created() == 20 * MIB);
        OK(tarn_free(blocks[1]));
        nothing_is_left(0);
    }
    OK(tarn_stream_return(stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_free_goes_back_to_the_device),
        cmocka_unit_test(a_trim_keeps_as_much_as_it_may_and_releases_no_more_than_needed),
        cmocka_unit_test(live_blocks_survive_with_their_contents),
        cmocka_unit_test(a_trim_waits_for_the_work_that_uses_what_it_gives_back),
        cmocka_unit_test(a_trim_waits_for_every_block_that_other_streams_still_use),
        cmocka_unit_test(a_trim_does_not_wait_for_what_gives_nothing_back),
        cmocka_unit_test(a_trim_that_needs_idle_memory_alone_does_not_wait),
        cmocka_unit_test(memory_of_a_retired_stream_is_given_back_too),
        cmocka_unit_test(one_device_is_trimmed_and_not_the_others),
        cmocka_unit_test(what_the_driver_would_not_take_goes_back_at_the_next_trim),
    };
    host_start_with(2, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
