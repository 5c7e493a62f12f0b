/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Which idle memory goes back by itself, and when. */
#include "memory/heap/heap.h"
#include "memory/range/range.h"
#include "memory/release_test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <tarn/observe.h>
#include <tarn/sleep.h>

#include <cmocka.h>

/* ---- What goes ---- */

static void memory_goes_after_its_time(void)
{
    begin();
    use(20 * MIB);
    size_t before = reserved();
    pass_after(TIME);
    pass_after(TIME / 2); /* not yet due */
    CHECK(before >= 20 * MIB && reserved() == before);

    uint64_t calls = all_calls(0);
    pass_after(TIME / 2); /* it has rested; no event says that it is idle, and none is recorded */
    CHECK(reserved() == before && all_calls(0) == calls);
    call_slowly();
    CHECK(calls_of(0, "event_record") > 0);
    pass_after(TIME);
    CHECK(reserved() == 0);
    nothing_is_left(0);
}

/* Memory that an event says is idle waits for its time all the same. */
static void idle_memory_waits_for_its_time(void)
{
    begin();
    struct stream *found = NULL;
    struct heap *heap = NULL;
    pass_after(TIME);
    use(20 * MIB);
    pass_after(TIME);
    use(20 * MIB); /* after that look */
    OK(stream_find(stream, 0, &found));
    OK(default_heap(found, &heap));
    mutex_lock(&heap->lock);
    heap_learn_locked(heap, true);
    mutex_unlock(&heap->lock);
    size_t before = reserved();
    pass_after(TIME);
    CHECK(reserved() == before);
    pass_after(TIME);
    CHECK(reserved() == 0);
    nothing_is_left(0);
}

/* More was mapped than a request wants, in several pieces. What nobody has used of it waits too. */
static void new_memory_waits_for_its_time(void)
{
    start_on(1, 16 * MEMORY, "idle_release:86400000");
    void *small = alloc_on(stream, 100);
    pass_after(TIME);
    pass_after(TIME);
    void *block = alloc_on(stream, 3 * MIB);
    size_t before = reserved();
    CHECK(before >= 8 * MIB);
    pass_after(TIME);
    CHECK(reserved() == before);
    pass_after(TIME);
    CHECK(reserved() <= 6 * MIB);
    OK(tarn_free(block));
    OK(tarn_free(small));
    rest();
    nothing_is_left(0);
}

static void any_request_records_the_mark(void)
{
    begin();
    tarn_stream other = lease(0);
    void *block = alloc_on(other, 100);
    use(40 * MIB);
    pass_after(TIME);
    pass_after(TIME);
    uint64_t records = calls_of(0, "event_record");
    OK(tarn_free(block));
    block = alloc_on(other, 100); /* which the thread's cache would have served */
    CHECK(calls_of(0, "event_record") > records);
    pass_after(TIME);
    CHECK(reserved() <= 4 * MIB);
    OK(tarn_free(block));
    rest();
    nothing_is_left(0);
}

static void memory_in_use_stays(void)
{
    begin();
    void *block = alloc_on(stream, 4 * MIB);
    memset(block, 7, 4 * MIB);
    use(40 * MIB);
    rest();
    CHECK(reserved() >= 4 * MIB && reserved() < 40 * MIB);
    CHECK(((char *)block)[0] == 7 && ((char *)block)[4 * MIB - 1] == 7);
    work_on(stream, block, MIB, UINT64_C(1000000000000));
    OK(tarn_free(block));
    rest(); /* the work runs on */
    CHECK(reserved() >= 4 * MIB);
    time_pass(UINT64_C(1000000000000));
    OK(tarn_stream_synchronize(stream));
    rest();
    CHECK(reserved() == 0);
    nothing_is_left(0);
}

/* A step is shorter than the time, and a pass comes at any point of it. */
static void shorter_steps_make_no_driver_call(void)
{
    static const size_t sizes[] = {100, 5000, 300000, 3 * MIB, 9 * MIB, 64000, 1 * MIB};
    enum { BLOCKS = sizeof sizes / sizeof *sizes };
    begin();
    uint64_t calls = 0, seed = 11;
    for (int step = 0; step < 60; step++) {
        void *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = alloc_on(stream, sizes[i]);
            if (random_next(&seed) % 5 == 0)
                pass_after(TIME / 20);
        }
        for (int i = 0; i < BLOCKS; i++) {
            OK(tarn_free(blocks[i]));
            if (random_next(&seed) % 5 == 0)
                pass_after(TIME / 20);
        }
        if (step == 20)
            calls = all_calls(0);
    }
    CHECK(all_calls(0) == calls);
    rest();
    nothing_is_left(0);
}

static void blocks_of_other_streams_go(void)
{
    begin();
    tarn_stream other = lease(0);
    void *block = alloc_on(stream, 8 * MIB);
    work_on(other, block, 8 * MIB, 1000);
    OK(tarn_record_stream(block, other));
    OK(tarn_free(block));
    OK(tarn_stream_synchronize(other));
    rest();
    CHECK(reserved() == 0);
    nothing_is_left(0);
}

/* Only a call that passes a found stream may record a mark on it. Until then its memory stays. */
static void memory_of_found_streams_stays(void)
{
    begin();
    void *native = native_made(0);
    tarn_stream found;
    OK(tarn_stream_find(0, native, &found));
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 2 * PAGE, found));
    OK(tarn_range_decommit(range, 0, 2 * PAGE, found));
    OK(tarn_free(alloc_on(found, 8 * MIB)));
    uint64_t records = calls_of(0, "event_record");
    rest();
    CHECK(reserved() >= 8 * MIB + 2 * PAGE && info_of(range).decommitted == 2 * PAGE);
    CHECK(calls_of(0, "event_record") == records);
    OK(tarn_stream_find(0, native, &found));
    CHECK(calls_of(0, "event_record") > records);
    pass_after(TIME);
    CHECK(reserved() == 0 && info_of(range).decommitted == 0);
    OK(tarn_stream_retire(found));
    end(range);
}

static void a_retired_stream_leaves_nothing(void)
{
    begin();
    use(8 * MIB);
    OK(tarn_stream_return(stream));
    void *native = native_made(0);
    tarn_stream adopted;
    OK(tarn_stream_adopt(0, native, &adopted));
    void *block = alloc_on(adopted, 8 * MIB);
    OK(tarn_free(block));
    OK(tarn_stream_retire(adopted));
    rest();
    CHECK(reserved() == 0);
    nothing_is_left(0);
}

/* What is freed after a stream has ended waits for its time, although no work can use it. */
static void memory_of_a_retired_stream_waits_for_its_time(void)
{
    begin();
    tarn_stream adopted;
    OK(tarn_stream_adopt(0, native_made(0), &adopted));
    void *block = alloc_on(adopted, 8 * MIB);
    OK(tarn_stream_retire(adopted));
    rest();
    OK(tarn_free(block));
    pass_after(TIME);
    CHECK(reserved() >= 8 * MIB);
    pass_after(TIME);
    CHECK(reserved() == 0);
    nothing_is_left(0);
}

static void pages_of_ranges_go(void)
{
    begin();
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 6 * PAGE, stream));
    OK(tarn_range_decommit(range, 0, 3 * PAGE, stream));
    pass_after(TIME);
    OK(tarn_range_decommit(range, 3 * PAGE, PAGE, stream)); /* later than the others */
    pass_after(TIME);
    call_slowly();
    uint64_t unmaps = calls_of(0, "unmap");
    pass_after(TIME);
    CHECK(info_of(range).decommitted == 0 && info_of(range).committed == 2 * PAGE);
    CHECK(calls_of(0, "unmap") == unmaps + unmaps_of(4, 1) && reserved() == 2 * PAGE);
    OK(tarn_range_commit(range, 8 * PAGE, PAGE, stream));
    for (int i = 0; i < 30; i++) { /* in use again and again */
        OK(tarn_range_decommit(range, 8 * PAGE, PAGE, stream));
        pass_after(TIME / 4);
        OK(tarn_range_commit(range, 8 * PAGE, PAGE, stream));
        pass_after(TIME / 4);
    }
    CHECK(calls_of(0, "unmap") == unmaps + unmaps_of(4, 1));
    OK(tarn_range_decommit(range, 8 * PAGE, PAGE, stream));
    end(range);
}

/* Pages that a mark says are idle wait for their time all the same. */
static void idle_pages_wait_for_their_time(void)
{
    begin();
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    pass_after(TIME);
    OK(tarn_range_decommit(range, PAGE, 2 * PAGE, stream)); /* after that look */
    OK(tarn_stream_synchronize(stream));
    mutex_lock(&range->lock);
    orders_begin_locked(range);
    CHECK(page_is_idle_locked(range, range_known(range, 0)));
    CHECK(page_is_idle_locked(range, range_known(range, 2)));
    mutex_unlock(&range->lock);
    pass_after(TIME);
    CHECK(info_of(range).decommitted == 2 * PAGE);
    pass_after(TIME);
    CHECK(info_of(range).decommitted == 0 && info_of(range).committed == PAGE);
    OK(tarn_range_decommit(range, 3 * PAGE, PAGE, stream));
    end(range);
}

/* They belong to no heap, and the pool may have none. */
static void unmapped_pieces_go(void)
{
    begin();
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    tarn_range *range = range_of(pool, 16 * PAGE), *second = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    OK(tarn_range_commit(second, 0, 4 * PAGE, stream));
    void *block = alloc_on(stream, 100);
    size_t before = reserved();
    OK(tarn_range_destroy(range)); /* its memory stays with the pool */
    OK(tarn_range_destroy(second));
    CHECK(reserved() == before);
    rest();
    CHECK(reserved() == before - 8 * PAGE);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    rest();
    nothing_is_left(0);
}

/* What another pool of the device does keeps nothing. */
static void unmapped_pieces_go_beside_a_busy_pool(void)
{
    begin();
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0}),
              *busy = pool_with((tarn_pool_options){.device = 0});
    tarn_range *range = range_of(pool, 4 * PAGE);
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    OK(tarn_range_destroy(range));
    for (int i = 0; i < 3; i++) {
        CHECK((size_t)pool_stats_of(pool).reserved_bytes[0].current == (i < 2 ? 4 * PAGE : 0));
        OK(tarn_free(alloc_in(busy, stream, 4 * MIB)));
        OK(tarn_pool_trim(busy, 0));
        pass_after(TIME);
    }
    OK(tarn_pool_release(busy));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void *destroy_range(void *range)
{
    OK(tarn_range_destroy(range));
    return NULL;
}

/* What passes move on one device says nothing about what other threads move on another. */
static void unmapped_pieces_of_two_devices_wait_for_their_time(void)
{
    start_on(2, MEMORY, "idle_release:86400000");
    tarn_range *range = range_of(NULL, 16 * PAGE);
    void *block = alloc_on(stream, 100), *other = alloc_on(lease(1), 100);
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    rest();
    in_another_thread(destroy_range, range);
    size_t before = reserved();
    CHECK(before >= 4 * PAGE);
    pass_after(TIME); /* a thread has moved memory since the pass before */
    CHECK(reserved() == before);
    pass_after(TIME);
    CHECK(reserved() == before - 4 * PAGE);
    OK(tarn_free(block));
    OK(tarn_free(other));
    rest();
    nothing_is_left(0);
    nothing_is_left(1);
}

/* The driver's free of a segment waits for the device, which the thread must not do. */
static void plain_segments_stay(void)
{
    start_with("segments:plain,idle_release:86400000");
    use(20 * MIB);
    uint64_t calls = calls_of(0, "free");
    rest();
    CHECK(reserved() >= 20 * MIB && calls_of(0, "free") == calls);
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
}

/* ---- Its thread ---- */

static unsigned threads(void)
{
    unsigned count = 0;
    DIR *found = opendir("/proc/self/task");
    CHECK(found);
    while (readdir(found))
        count++;
    CHECK(closedir(found) == 0);
    return count;
}

/* Settings may come before the devices are known, when it could look at none. */
static void its_thread_starts_after_the_devices(void)
{
    unsigned before = threads();
    OK(tarn_configuration_set("idle_release:86400000"));
    CHECK(threads() == before);
    begin();
    use(8 * MIB);
    CHECK(threads() > before);
    rest();
    nothing_is_left(0);
}

/* ---- Which pools ---- */

static size_t left_of(tarn_pool_options options)
{
    tarn_pool *pool = pool_with(options);
    OK(tarn_free(alloc_in(pool, stream, 8 * MIB)));
    OK(tarn_stream_synchronize(stream));
    rest();
    size_t left = (size_t)pool_stats_of(pool).reserved_bytes[0].current;
    OK(tarn_pool_release(pool));
    return left;
}

static void a_pool_has_its_own_time(void)
{
    start_with("idle_release:0");
    use(8 * MIB);
    rest();
    CHECK(reserved() >= 8 * MIB); /* off by default */
    CHECK(left_of((tarn_pool_options){.device = 0}) >= 8 * MIB);
    CHECK(left_of((tarn_pool_options){.idle_release = 86400000}) == 0);
}

static void some_pools_take_no_part(void)
{
    begin();
    CHECK(left_of((tarn_pool_options){.device = 0}) == 0);
    CHECK(left_of((tarn_pool_options){.idle_release = TARN_NO_IDLE_RELEASE}) >= 8 * MIB);
    CHECK(left_of((tarn_pool_options){.registrable = true}) >= 8 * MIB);
    GIVES(tarn_configuration_set("idle_release:86400001"), TARN_ERROR_CONFIGURATION);
    GIVES(tarn_configuration_set("idle_release:soon"), TARN_ERROR_CONFIGURATION);
    char text[4096];
    size_t size = 0;
    OK(tarn_configuration_get(text, sizeof text, &size));
    CHECK(strstr(text, "idle_release:86400000"));
}

static void a_capture_and_its_graph_bar_it(void)
{
    begin();
    void *graph = NULL;
    use(8 * MIB);
    rest();
    use(8 * MIB);
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_GLOBAL));
    OK(tarn_free(alloc_on(stream, 8 * MIB)));
    uint64_t calls = all_calls(0);
    for (int i = 0; i < 4; i++)
        pass_after(TIME);
    CHECK(all_calls(0) == calls); /* nothing at all while a capture is known */
    OK(tarn_capture_end(stream, &graph));
    rest();
    CHECK(reserved() == (size_t)pool_stats_of(pool).reserved_bytes[0].current && reserved());
    OK(machine->graph_destroy(graph));
    OK(tarn_pool_release(pool));
    rest();
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
}

static void a_suspended_pool_is_left_alone(void)
{
    begin();
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    char *block = alloc_in(pool, stream, 4 * MIB);
    memset(block, 9, 4 * MIB);
    OK(tarn_free(alloc_in(pool, stream, 8 * MIB)));
    OK(tarn_pool_suspend(pool, true));
    uint64_t calls = all_calls(0);
    rest();
    CHECK(all_calls(0) == calls && reserved() == 0);
    OK(tarn_pool_resume(pool));
    rest();
    CHECK(block[0] == 9 && block[4 * MIB - 1] == 9);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
}

/* Passes after which nothing is reserved; `most` if something is. */
static int passes_of(uint64_t time, int most)
{
    int passes = 0;
    while (reserved() && passes < most) {
        pass_after(time);
        call_slowly();
        passes++;
    }
    return passes;
}

/* A heap that served a pool with a longer time before. The thread sleeps for an hour. */
static void a_time_counts_from_the_last_look(void)
{
    start_with("idle_release:0");
    tarn_pool *fast = pool_with((tarn_pool_options){.idle_release = 3600000});
    tarn_pool *slow = pool_with((tarn_pool_options){.idle_release = 86400000});
    OK(tarn_free(alloc_in(slow, stream, 8 * MIB)));
    OK(tarn_stream_synchronize(stream));
    pass_after(TIME);
    OK(tarn_pool_trim(slow, 0));
    OK(tarn_pool_release(slow));
    OK(tarn_free(alloc_in(fast, stream, 8 * MIB)));
    OK(tarn_stream_synchronize(stream));
    CHECK(passes_of(TIME / 24, 100) <= 4);
    OK(tarn_pool_release(fast));
    nothing_is_left(0);
}

/* ---- Observers and anchors ---- */

static unsigned told;

static void unmapping(const tarn_mapping *range, void *user)
{
    (void)range;
    (void)user;
    told++;
}

static void observers_say_whether(void)
{
    begin();
    tarn_observer observer, second;
    tarn_observer_options options = {.size = sizeof options, .unmapping = unmapping};
    OK(tarn_observer_add(&options, &observer));
    use(8 * MIB);
    rest();
    CHECK(reserved() >= 8 * MIB && told == 0);
    options.any_thread = true;
    OK(tarn_observer_add(&options, &second));
    rest();
    CHECK(reserved() >= 8 * MIB && told == 0); /* one of the two does not */
    OK(tarn_observer_remove(observer));
    rest();
    CHECK(reserved() == 0 && told > 0);
    OK(tarn_observer_remove(second));
    nothing_is_left(0);
}

static void anchored_pools_need_an_observer(void)
{
    begin();
    char *block = alloc_on(stream, 4 * MIB);
    OK(tarn_anchor(block, MIB));
    use(40 * MIB);
    rest();
    CHECK(reserved() >= 40 * MIB);
    tarn_observer observer;
    tarn_observer_options options = {
        .size = sizeof options, .unmapping = unmapping, .any_thread = true};
    OK(tarn_observer_add(&options, &observer));
    rest();
    CHECK(reserved() >= 4 * MIB && reserved() < 40 * MIB && told > 0);
    OK(tarn_unanchor(block, MIB));
    OK(tarn_free(block));
    rest();
    OK(tarn_observer_remove(observer));
    nothing_is_left(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(memory_goes_after_its_time),
        CHILD_TEST(idle_memory_waits_for_its_time),
        CHILD_TEST(new_memory_waits_for_its_time),
        CHILD_TEST(any_request_records_the_mark),
        CHILD_TEST(memory_in_use_stays),
        CHILD_TEST(shorter_steps_make_no_driver_call),
        CHILD_TEST(blocks_of_other_streams_go),
        CHILD_TEST(memory_of_found_streams_stays),
        CHILD_TEST(a_retired_stream_leaves_nothing),
        CHILD_TEST(memory_of_a_retired_stream_waits_for_its_time),
        CHILD_TEST(pages_of_ranges_go),
        CHILD_TEST(idle_pages_wait_for_their_time),
        CHILD_TEST(unmapped_pieces_go),
        CHILD_TEST(unmapped_pieces_go_beside_a_busy_pool),
        CHILD_TEST(unmapped_pieces_of_two_devices_wait_for_their_time),
        CHILD_TEST(plain_segments_stay),
        CHILD_TEST(its_thread_starts_after_the_devices),
        CHILD_TEST(a_pool_has_its_own_time),
        CHILD_TEST(some_pools_take_no_part),
        CHILD_TEST(a_time_counts_from_the_last_look),
        CHILD_TEST(a_capture_and_its_graph_bar_it),
        CHILD_TEST(a_suspended_pool_is_left_alone),
        CHILD_TEST(observers_say_whether),
        CHILD_TEST(anchored_pools_need_an_observer),
    };
    return cmocka_run_group_tests_name("release", tests, NULL, NULL);
}
