/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compaction and those who look on: observers of mappings, and anchors that come meanwhile. */
#include "compact_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static struct {
    uintptr_t start[64];
    size_t count, ended;
} told;

static void on_mapped(const tarn_mapping *range, void *user)
{
    (void)user;
    if (told.count < 64)
        told.start[told.count++] = (uintptr_t)range->address;
}

static void on_unmapping(const tarn_mapping *range, void *user)
{
    size_t gained = 0;
    (void)user;
    (void)range;
    told.ended++;
    GIVES(tarn_compact(0, SIZE_MAX, &gained), TARN_ERROR_BUSY);
}

static void observers_are_notified(void **state)
{
    (void)state;
    tarn_observer id = 0;
    tarn_mapping before, after;
    fragment(NULL, stream, 1);
    OK(tarn_mapping_get(blocks[0].start, &before));
    tarn_observer_options options = {
        .size = sizeof options, .mapped = on_mapped, .unmapping = on_unmapping};
    OK(tarn_observer_add(&options, &id));
    told.count = told.ended = 0;
    CHECK(compact_by(SIZE_MAX) > 0);
    OK(tarn_observer_remove(id));
    OK(tarn_mapping_get(blocks[0].start, &after));
    CHECK(told.ended >= 1 && told.count >= 1 && after.generation > before.generation);
    bool found = false;
    for (size_t i = 0; i < told.count; i++)
        found = found || told.start[i] == (uintptr_t)after.address;
    CHECK(found);
    end();
}

/* An anchor that comes while the block is in host memory, after the first of two unmaps, waits
 * until it is back. */
static struct {
    pthread_t thread;
    atomic_bool anchored;
    bool early; /* while the block was away */
    int unmapped;
    const void *own; /* what the observer anchored itself */
} arrival;

static void *anchor_first(void *unused)
{
    OK(tarn_anchor(blocks[0].start, 1));
    atomic_store(&arrival.anchored, true);
    return unused;
}

static void on_the_way_back(const tarn_mapping *range, void *user)
{
    (void)range;
    (void)user;
    if (++arrival.unmapped != 2)
        return;
    CHECK(pthread_create(&arrival.thread, NULL, anchor_first, NULL) == 0);
    for (int i = 0; i < 100 && !arrival.early; i++) {
        (void)usleep(1000);
        arrival.early = atomic_load(&arrival.anchored);
    }
}

static void an_anchor_waits_for_what_is_in_host_memory(void **state)
{
    (void)state;
    tarn_observer id = 0;
    tarn_observer_options options = {.size = sizeof options, .unmapping = on_the_way_back};
    fragment(NULL, stream, 1);
    OK(tarn_device_trim(0, 0));
    OK(tarn_device_limit_set(0, ledger_of(0).created));
    OK(tarn_observer_add(&options, &id));
    CHECK(compact_by(SIZE_MAX) > 0); /* checks that no host memory is counted as the device's */
    OK(tarn_observer_remove(id));
    CHECK(arrival.unmapped >= 2 && !arrival.early);
    CHECK(pthread_join(arrival.thread, NULL) == 0);
    verify(0);
    OK(tarn_unanchor(blocks[0].start, 1));
    OK(tarn_device_limit_set(0, SIZE_MAX));
    end();
}

/* In the thread that compacts it would wait for itself: there the block stays in host memory, and
 * counts, until the next compaction. */
static void on_the_way_back_itself(const tarn_mapping *range, void *user)
{
    (void)user;
    if (++arrival.unmapped != 2)
        return;
    arrival.own = range->address;
    OK(tarn_anchor(arrival.own, 1));
}

static void an_anchor_of_an_observer_does_not_wait(void **state)
{
    (void)state;
    tarn_observer id = 0;
    tarn_observer_options options = {.size = sizeof options, .unmapping = on_the_way_back_itself};
    size_t gained = 0;
    fragment(NULL, stream, 1);
    OK(tarn_device_trim(0, 0));
    OK(tarn_device_limit_set(0, ledger_of(0).created));
    OK(tarn_observer_add(&options, &id));
    arrival.unmapped = 0;
    OK(tarn_compact(0, SIZE_MAX, &gained));
    OK(tarn_observer_remove(id));
    check();
    CHECK((uint64_t)stats_of(0).reserved_bytes[0].current > ledger_of(0).created);
    OK(tarn_unanchor(arrival.own, 1));
    OK(tarn_device_limit_set(0, SIZE_MAX));
    OK(tarn_compact(0, SIZE_MAX, &gained));
    verify(0);
    end();
}

int main(void)
{
    host_start_with(1, MEMORY);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(observers_are_notified),
        cmocka_unit_test(an_anchor_waits_for_what_is_in_host_memory),
        cmocka_unit_test(an_anchor_of_an_observer_does_not_wait),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
