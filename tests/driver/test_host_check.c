/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The checker: what it reports, what it puts off, and what it must keep silent about. */
#include "host_test.h"

#include "base/pages.h"
#include "driver/host/host.h"
#include <pthread.h>
#include <stdio.h>

static struct {
    int count;
    char last[1024];
    char all[8][1024];
} heard;

static void hear(const char *text, void *user)
{
    assert_ptr_equal(user, &heard);
    snprintf(heard.all[heard.count % 8], sizeof heard.all[0], "%s", text);
    snprintf(heard.last, sizeof heard.last, "%s", text);
    heard.count++;
}

static uintptr_t range;
static driver_stream a, b;

static int begin(void **state)
{
    start(state);
    memset(&heard, 0, sizeof heard);
    range = new_range(0, 32 * MIB);
    for (int i = 0; i < 4; i++)
        map_at(0, range + (size_t)i * 4 * MIB, 4 * MIB, new_piece(0, 4 * MIB));
    a = new_stream(0, false);
    b = new_stream(0, false);
    assert_ok(tarn_host_check_set(true, hear, &heard));
    assert_true(driver->checking());
    return 0;
}

static void work(driver_stream stream, uintptr_t address, size_t size, uint64_t duration)
{
    assert_ok(tarn_host_work(0, stream, (void *)address, size, duration));
}

#define assert_heard(expected)                              \
    do {                                                    \
        assert_int_equal(heard.count, (expected));          \
        assert_int_equal(ledger_of(0).reports, (expected)); \
    } while (0)

static void an_unmap_of_memory_in_use_is_reported_and_put_off(void **state)
{
    (void)state;
    driver->owner_set(0, range, 4 * MIB, a);
    memset((void *)range, 5, 64);
    work(a, range + MIB, 512, 100);
    work(b, range + 4 * MIB, 512, 900);
    assert_ok(driver->unmap(0, range, 4 * MIB));
    assert_heard(1);
    char part[64];
    snprintf(part, sizeof part, "unmap of [%#zx, +4194304)", (size_t)range);
    assert_non_null(strstr(heard.last, part));
    snprintf(part, sizeof part, "[%#zx, +512)", (size_t)(range + MIB));
    assert_non_null(strstr(heard.last, part));
    snprintf(part, sizeof part, "stream %p", a);
    assert_non_null(strstr(heard.last, part));
    assert_int_equal(*(unsigned char *)range, 5); /* is there still */
    assert_int_equal(ledger_of(0).mappings, 4);

    driver_piece piece = new_piece(0, 4 * MIB);
    tarn_host_extent extent;
    assert_refused(driver->map(0, range, 4 * MIB, piece), TARN_ERROR_BUSY, "queued work");
    assert_refused(driver->unmap(0, range, 4 * MIB), TARN_ERROR_INVALID_ARGUMENT,
                   "nothing is mapped");
    assert_refused(driver->set_access(0, range, 4 * MIB, (int[]){0}, 1),
                   TARN_ERROR_INVALID_ARGUMENT, "nothing is mapped");
    assert_refused(driver->unreserve(0, range, 32 * MIB), TARN_ERROR_BUSY, "queued work");
    assert_status(tarn_host_extent_get(0, (void *)range, 1, &extent), TARN_ERROR_INVALID_POINTER);
    assert_ok(tarn_host_advance(99));
    assert_int_equal(ledger_of(0).mappings, 4);
    assert_ok(tarn_host_advance(100));
    assert_int_equal(ledger_of(0).mappings, 3);
    assert_ok(driver->map(0, range, 4 * MIB, piece));
    assert_heard(1);
}

static void only_the_mappings_in_use_are_put_off(void **state)
{
    (void)state;
    work(a, range + 4 * MIB, 64, 100);
    work(a, range + 8 * MIB, 64, 200);
    assert_ok(driver->unmap(0, range, 16 * MIB));
    assert_heard(2);
    assert_int_equal(ledger_of(0).mappings, 2);
    assert_ok(driver->stream_synchronize(0, a));
    assert_int_equal(ledger_of(0).mappings, 0);
    assert_int_equal(ledger_of(0).mapped, 0);
    assert_int_equal(atomic_load(&host.leaving), 0);
    assert_ok(driver->unreserve(0, range, 32 * MIB));
}

static void a_put_off_unmap_keeps_a_released_piece(void **state)
{
    (void)state;
    tarn_host_extent extent;
    assert_ok(tarn_host_extent_get(0, (void *)range, 1, &extent));
    work(a, range, 64, 100);
    assert_ok(driver->unmap(0, range, 4 * MIB));
    assert_ok(driver->release(0, extent.piece));
    assert_heard(1); /* not twice for one mistake */
    assert_int_equal(ledger_of(0).created, 16 * MIB);
    assert_ok(driver->event_synchronize(0, recorded(0, a)));
    assert_int_equal(ledger_of(0).created, 12 * MIB);
    assert_int_equal(ledger_of(0).pieces, 3);
}

static void a_release_of_memory_in_use_is_reported(void **state)
{
    (void)state;
    tarn_host_extent extent;
    assert_ok(tarn_host_extent_get(0, (void *)range, 1, &extent));
    work(a, range, 64, 100);
    assert_ok(driver->release(0, extent.piece));
    assert_heard(1);
    assert_non_null(strstr(heard.last, "release of"));
    driver_piece piece = new_piece(0, 4 * MIB); /* released while mapped but before its use: a
                                                   common idiom */
    map_at(0, range + 16 * MIB, 4 * MIB, piece);
    assert_ok(driver->release(0, piece));
    work(b, range + 16 * MIB, 64, 100);
    assert_heard(1);
}

static void a_free_of_memory_in_use_is_reported(void **state)
{
    (void)state;
    uintptr_t plain;
    assert_ok(driver->alloc(0, GRANULE, &plain));
    work(a, plain, 64, 100);
    assert_ok(driver->free(0, plain));
    assert_heard(1);
    assert_non_null(strstr(heard.last, "free of"));
    assert_int_equal(time_now(), 100);
    assert_ok(driver->alloc(0, GRANULE, &plain));
    work(a, plain, 64, 100);
    assert_ok(driver->stream_synchronize(0, a));
    assert_ok(driver->free(0, plain));
    assert_heard(1);
}

static void an_unmap_after_the_work_is_silent(void **state)
{
    (void)state;
    work(a, range, 4 * MIB, 100);
    work(a, range + 4 * MIB, 4 * MIB, 200);
    work(a, 0, 0, 5000);
    assert_ok(tarn_host_advance(100));
    assert_ok(driver->unmap(0, range, 4 * MIB));
    assert_ok(tarn_host_advance(200));
    assert_ok(driver->unmap(0, range + 4 * MIB, 4 * MIB));
    assert_ok(driver->unmap(0, range + 8 * MIB, 4 * MIB)); /* beside it, never used */
    assert_heard(0);
    assert_int_equal(ledger_of(0).mappings, 1);
}

static void work_on_anothers_memory_is_reported_with_both_sides(void **state)
{
    (void)state;
    driver->owner_set(0, range, 1024, a);
    work(a, range, 1024, 100);
    driver->owner_clear(0, range, 1024);
    driver->owner_set(0, range + 512, 512, b);
    work(b, range + 512, 512, 10);
    assert_heard(1);
    char part[96];
    snprintf(part, sizeof part,
             "work #2 on stream %p of device 0 starts on [%#zx, +512) of owner 2", b,
             (size_t)(range + 512));
    assert_non_null(strstr(heard.last, part));
    snprintf(part, sizeof part, "work #1 on stream %p of device 0", a);
    assert_non_null(strstr(heard.last, part));
    snprintf(part, sizeof part, "[%#zx, +1024) of owner 1", (size_t)range);
    assert_non_null(strstr(heard.last, part));
}

static void work_that_waited_is_silent(void **state)
{
    (void)state;
    driver->owner_set(0, range, 1024, a);
    work(a, range, 1024, 100);
    driver_event event = recorded(0, a);
    driver->owner_set(0, range, 1024, b);
    assert_ok(driver->stream_wait_event(0, b, event));
    work(b, range, 1024, 10);
    assert_ok(driver->device_synchronize(0));
    assert_heard(0);
    work(a, range, 1024, 100); /* by a host wait */
    assert_ok(driver->stream_synchronize(0, a));
    driver->owner_set(0, range, 1024, b);
    work(b, range, 1024, 10);
    assert_heard(0);
}

static void what_is_no_mistake_is_silent(void **state)
{
    (void)state;
    driver->owner_set(0, range, 1024, a); /* reused in the same stream */
    work(a, range, 1024, 100);
    driver->owner_set(0, range, 1024, a);
    work(a, range, 1024, 100);
    assert_heard(0);
    work(b, range, 1024, 100); /* one owner, two streams: the owner's affair */
    assert_heard(1);           /* but a's first work was of the owner before */
    assert_ok(driver->device_synchronize(0));
    work(a, range, 1024, 100);
    work(b, range, 1024, 100);
    assert_heard(1);
    driver->owner_set(0, range + 4096, 1024, b); /* neighbours */
    driver->owner_set(0, range + 5120, 1024, a);
    work(b, range + 4096, 1024, 100);
    work(a, range + 5120, 1024, 100);
    assert_heard(1);
    work(a, range + 8 * MIB, 4 * MIB, 100); /* memory that nobody owns */
    work(b, range + 8 * MIB, 4 * MIB, 100);
    assert_heard(1);
}

/* The work of the earlier owner is queued behind a wait and has not even begun when the later one
 * starts. */
static void queued_work_counts_before_it_runs(void **state)
{
    (void)state;
    driver_stream c = new_stream(0, false);
    work(c, 0, 0, 500);
    assert_ok(driver->stream_wait_event(0, a, recorded(0, c)));
    driver->owner_set(0, range, 64, a);
    work(a, range, 64, 10);
    driver->owner_set(0, range, 64, b);
    work(b, range, 64, 1);
    assert_heard(1);
    driver_stream d = new_stream(0, false);
    work(d, range, 64,
         600); /* goes on while a's runs, but is of b's owner, and queued after a's: one report, at
                  its start */
    assert_heard(2);
    assert_ok(tarn_host_advance(500)); /* a's comes after; it was queued earlier and b's has ended:
                                          no second report */
    assert_heard(2);
}

static void a_use_of_many_owners_is_all_of_theirs(void **state)
{
    (void)state;
    for (size_t i = 0; i < 64; i++)
        driver->owner_set(0, range + i * 512, 512, a);
    work(a, range, 64 * 512, 100);
    for (size_t i = 0; i < 64; i++) {
        driver->owner_set(0, range + i * 512, 512, b);
        work(b, range + i * 512, 512, 0);
        assert_int_equal(heard.count, (int)i + 1);
    }
    assert_ok(driver->stream_synchronize(0, a));
    work(b, range, 64 * 512, 1);
    assert_heard(64);
}

static void owners_keep_memory_that_is_not_taken(void **state)
{
    (void)state;
    driver->owner_set(0, range, 3072, a);
    driver->owner_set(0, range + 1024, 1024, b); /* the middle changes hands */
    work(a, range, 64, 100);
    work(a, range + 2048, 1024, 100);
    driver->owner_clear(0, range + 1024, 1024);
    work(b, range, 1024, 0); /* both ends are one owner's still */
    work(b, range + 2048 + 512, 64, 0);
    assert_heard(0);
    driver->owner_clear(0, range, 512);
    driver->owner_clear(0, range + 2560, 512);
    work(b, range + 2048, 512, 0);
    assert_heard(0);
    work(b, range, 512, 0); /* nobody's, while the work of its last owner runs */
    assert_heard(1);
    work(NULL, range + 2560, 512, 0);
    assert_heard(2);
    assert_non_null(strstr(heard.last, "the legacy stream of device 0 starts"));
    assert_non_null(strstr(heard.last, "of owner 0"));
}

static void work_that_cannot_be_remembered_is_not_queued(void **state)
{
    (void)state;
    for (size_t i = 0; i < 8; i++)
        driver->owner_set(0, range + i * 512, 512, a);
    int refused = 0;
    for (uint64_t nth = 1;; nth++) {
        pages_fail(nth, false);
        tarn_status status = tarn_host_work(0, a, (void *)range, 4096, 100);
        uint64_t hits = pages_fail_hits();
        pages_fail(0, false);
        if (hits == 0)
            break;
        assert_int_equal(status, TARN_ERROR_OUT_OF_HOST_MEMORY);
        assert_ok(driver->stream_query(0, a));
        refused++;
    }
    assert_int_equal(refused, 3); /* the operation, and its list of uses, which grows twice */
    assert_status(driver->stream_query(0, a), TARN_ERROR_NOT_READY);
}

static void copies_use_both_their_sides(void **state)
{
    (void)state;
    uintptr_t from = range, to = range + 4 * MIB;
    driver->owner_set(0, from, 64, a);
    driver->owner_set(0, to, 64, a);
    driver_stream c = new_stream(0, false);
    work(c, from, 64, 100);
    driver->owner_set(0, from, 64, a);
    assert_ok(driver->copy(0, to, from, 64, a));
    assert_ok(driver->stream_synchronize(0, a));
    assert_heard(1);
    assert_non_null(strstr(heard.last, "copy #"));
    work(c, to, 64, 200);
    driver->owner_set(0, to, 64, a);
    assert_ok(driver->copy(0, to, from, 64, a));
    assert_ok(driver->stream_synchronize(0, a));
    assert_heard(3); /* `from` is still in use by the first */
    assert_ok(driver->set(0, to, 1, 64, a));
    assert_ok(driver->stream_synchronize(0, a));
    assert_heard(4);
    assert_non_null(strstr(heard.last, "fill #"));
}

static void real_work_holds_its_memory_too(void **state)
{
    (void)state;
    work(b, 0, 0, 1000);
    assert_ok(driver->stream_wait_event(0, a, recorded(0, b)));
    assert_ok(driver->set(0, range, 9, 4 * MIB, a)); /* held back by b */
    assert_ok(driver->unmap(0, range, 4 * MIB));
    assert_heard(1);
    assert_ok(driver->stream_synchronize(0, a)); /* the fill finds its memory */
    assert_int_equal(ledger_of(0).mappings, 3);  /* and it is gone when the wait returns */
}

static void off_means_silent(void **state)
{
    (void)state;
    driver->owner_set(0, range, 64, a);
    assert_ok(tarn_host_check_set(false, NULL, NULL));
    assert_false(driver->checking());
    work(a, range, 64, 100);
    driver->owner_set(0, range, 64, b);
    work(b, range, 64, 100);
    assert_ok(driver->unmap(0, range, 4 * MIB));
    assert_heard(0);
    assert_int_equal(ledger_of(0).mappings, 3);
    assert_ok(tarn_host_check_set(true, NULL, NULL)); /* counted without a listener */
    driver->owner_set(0, range + 4 * MIB, 64, a);
    work(a, range + 4 * MIB, 64, 100);
    assert_ok(driver->unmap(0, range + 4 * MIB, 4 * MIB));
    assert_int_equal(heard.count, 0);
    assert_int_equal(ledger_of(0).reports, 1);
    assert_ok(tarn_host_ledger_reset(0));
    assert_int_equal(ledger_of(0).reports, 0);
}

static void without_host_memory_it_counts_on(void **state)
{
    (void)state;
    driver->owner_set(0, range, 64, a);
    work(a, range, 64, 100);
    pages_fail(1, true);
    tarn_status status = driver->unmap(0, range, 4 * MIB);
    pages_fail(0, false);
    assert_ok(status);
    assert_int_equal(heard.count, 0);
    assert_int_equal(ledger_of(0).reports, 1);
    assert_int_equal(ledger_of(0).mappings, 4);
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(ledger_of(0).mappings, 3);
}

#undef TEST
#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_unmap_of_memory_in_use_is_reported_and_put_off),
        TEST(only_the_mappings_in_use_are_put_off),
        TEST(a_put_off_unmap_keeps_a_released_piece),
        TEST(a_release_of_memory_in_use_is_reported),
        TEST(a_free_of_memory_in_use_is_reported),
        TEST(an_unmap_after_the_work_is_silent),
        TEST(work_on_anothers_memory_is_reported_with_both_sides),
        TEST(work_that_waited_is_silent),
        TEST(what_is_no_mistake_is_silent),
        TEST(queued_work_counts_before_it_runs),
        TEST(a_use_of_many_owners_is_all_of_theirs),
        TEST(owners_keep_memory_that_is_not_taken),
        TEST(work_that_cannot_be_remembered_is_not_queued),
        TEST(copies_use_both_their_sides),
        TEST(real_work_holds_its_memory_too),
        TEST(off_means_silent),
        TEST(without_host_memory_it_counts_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
