/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a survey says, beside what the public calls say of the same moment; and that a page is never
 * seen half written, while threads allocate. */
#include "memory/arena/arena.h"
#include "memory/watch/occupancy.h"
#include "report/page_test.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <tarn/handle.h>
#include <tarn/live.h>

#include <cmocka.h>

static struct surveyor surveyor;
static tarn_stream own, other;

static const struct survey *take(void)
{
    survey_take(&surveyor);
    return &surveyor.survey;
}

static const struct survey_pool *pool_of_id(const struct survey *survey, tarn_pool_id id)
{
    for (uint32_t i = 0; i < survey->pool_count.here; i++)
        if (survey->pools[i].device == 0 && survey->pools[i].id[0] == id.first &&
            survey->pools[i].id[1] == id.second)
            return &survey->pools[i];
    return NULL;
}

/* What lies with the streams, pools and device must add up. */
static void adds_up(const struct survey *survey)
{
    const struct survey_device *device = &survey->devices[0];
    uint64_t mapped = 0, spans = 0, waiting = 0, reserved = 0, allocated = 0;
    for (uint32_t i = 0; i < survey->stream_count.here; i++) {
        if (survey->streams[i].device != 0)
            continue;
        mapped += survey->streams[i].mapped;
        spans += survey->streams[i].spans;
        waiting += survey->streams[i].waiting;
        CHECK(survey->streams[i].largest_span <= survey->streams[i].spans);
        CHECK(survey->streams[i].spans <= survey->streams[i].mapped);
    }
    for (uint32_t i = 0; i < survey->pool_count.here; i++) {
        if (survey->pools[i].device != 0)
            continue;
        reserved += survey->pools[i].reserved;
        allocated += survey->pools[i].allocated;
    }
    CHECK(mapped + device->cached == (uint64_t)device->stats.reserved_bytes[TARN_STAT_ALL].current);
    CHECK(reserved == (uint64_t)device->stats.reserved_bytes[TARN_STAT_ALL].current);
    CHECK(allocated == (uint64_t)device->stats.allocated_bytes[TARN_STAT_ALL].current);
    CHECK(spans == device->spans && waiting == device->waiting && device->largest_span <= spans);
}

static void a_device_says_what_its_statistics_say(void **state)
{
    (void)state;
    void *blocks[] = {alloc_on(own, 3 * MIB), alloc_on(own, 100), alloc_on(other, 5 * MIB)};
    OK(tarn_free(blocks[0]));
    tarn_stats stats = stats_of(0);
    size_t free_bytes, total_bytes;
    OK(tarn_device_memory_get(0, &free_bytes, &total_bytes));
    const struct survey *survey = take();
    const struct survey_device *device = &survey->devices[0];
    CHECK(survey->device_count.there == 2 && survey->device_count.here == 2);
    CHECK(device->used && !device->lost && device->number == 0 && device->total == total_bytes &&
          device->free == free_bytes && device->limit == SURVEY_UNKNOWN);
    CHECK(memcmp(&device->stats.allocation, &stats.allocation, sizeof stats.allocation) == 0);
    CHECK(memcmp(&device->stats.reserved_bytes, &stats.reserved_bytes,
                 sizeof stats.reserved_bytes) == 0);
    CHECK(memcmp(&device->stats.requested_bytes, &stats.requested_bytes,
                 sizeof stats.requested_bytes) == 0);
    CHECK(!survey->devices[1].used && survey->devices[1].free == SURVEY_UNKNOWN);
    adds_up(survey);
    OK(tarn_free(blocks[1]));
    OK(tarn_free(blocks[2]));
    adds_up(take());
    nothing_is_left(0);
}

static void a_block_that_is_kept_as_it_was_freed_counts_as_free(void **state)
{
    (void)state;
    void *block = alloc_on(own, 4 * MIB);
    uint64_t before = take()->devices[0].spans;
    struct heap_occupancy views[8];
    OK(tarn_free(block)); /* which a heap may keep for the next request of that size */
    struct arena *arena = arena_if_used(0);
    size_t count = occupancy_heaps(arena, views, 8), spans = 0;
    for (size_t i = 0; i < count && i < 8; i++)
        spans += views[i].free;
    CHECK(spans == before + 4 * MIB);
    adds_up(take());
    nothing_is_left(0);
}

static void freed_memory_that_work_uses_is_waiting(void **state)
{
    (void)state;
    void *block = alloc_on(own, 3 * MIB);
    work_on(other, block, 3 * MIB, 1000000);
    OK(tarn_record_stream(block, other));
    OK(tarn_free(block));
    const struct survey *survey = take();
    CHECK(survey->devices[0].waiting == 3 * MIB);
    CHECK(pool_of_id(survey, (tarn_pool_id){0, 0})->waiting == 3 * MIB);
    adds_up(survey);
    time_pass(2000000);
    nothing_is_left(0);
    CHECK(take()->devices[0].waiting == 0);
}

static void pools_have_what_their_statistics_say(void **state)
{
    (void)state;
    tarn_pool *pool;
    tarn_pool_id id;
    tarn_pool_options options = {.size = sizeof options, .device = 0};
    void *inside[300], *outside = alloc_on(own, 2 * MIB);
    OK(tarn_pool_create(&options, &pool));
    OK(tarn_pool_limit_set(pool, 64 * MIB));
    id = pool_info_of(pool).id;
    for (int i = 0; i < 300; i++) /* small ones, which caches have counted and not published */
        OK(tarn_pool_alloc(pool, own, i ? 700 : 3 * MIB, &inside[i]));
    tarn_stats stats = {.size = sizeof stats};
    OK(tarn_pool_stats_get(pool, &stats));
    const struct survey *survey = take();
    const struct survey_pool *view = pool_of_id(survey, id),
                             *standard = pool_of_id(survey, (tarn_pool_id){0, 0});
    CHECK(view && view->limit == 64 * MIB && view->flags == 0);
    CHECK(view->allocated == (uint64_t)stats.allocated_bytes[TARN_STAT_ALL].current);
    CHECK(view->requested == (uint64_t)stats.requested_bytes[TARN_STAT_ALL].current);
    CHECK(view->reserved == (uint64_t)stats.reserved_bytes[TARN_STAT_ALL].current);
    CHECK(standard && standard->allocated == 2 * MIB && standard->limit == SURVEY_UNKNOWN);
    adds_up(survey);
    OK(tarn_pool_suspend(pool, false));
    survey = take();
    CHECK(pool_of_id(survey, id)->flags == SURVEY_POOL_SUSPENDED &&
          pool_of_id(survey, id)->reserved == 0);
    OK(tarn_pool_resume(pool));
    for (int i = 0; i < 300; i++)
        OK(tarn_free(inside[i]));
    OK(tarn_free(outside));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    CHECK(!pool_of_id(take(), id));
}

static void pools_that_have_no_room_are_counted(void **state)
{
    (void)state;
    enum { MANY = SURVEY_POOLS + 20 };
    tarn_pool *pools[MANY];
    for (int i = 0; i < MANY; i++)
        OK(tarn_pool_create(NULL, &pools[i]));
    const struct survey *survey = take();
    CHECK(survey->pool_count.there == MANY + 1 && survey->pool_count.here == SURVEY_POOLS);
    for (int i = 0; i < MANY; i++)
        OK(tarn_pool_release(pools[i]));
    CHECK(take()->pool_count.there == 1);
}

static void pinned_memory_is_there_once_it_was_used(void **state)
{
    (void)state;
    void *block;
    CHECK(!take()->has_pinned);
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 12345, &block));
    tarn_pinned_stats stats = {.size = sizeof stats};
    OK(tarn_pinned_stats_get(&stats));
    const struct survey *survey = take();
    CHECK(survey->has_pinned && memcmp(&survey->pinned, &stats, sizeof stats) == 0);
    OK(tarn_free(block));
}

static int make_handle(void **handle)
{
    static int number;
    *handle = &number;
    return 0;
}

static int end_handle(void *handle)
{
    (void)handle;
    return 0;
}

static void handles_are_there_once_one_was_made(void **state)
{
    (void)state;
    tarn_library_row row = {
        .size = sizeof row, .name = "a library", .create = make_handle, .destroy = end_handle};
    tarn_library library;
    void *handle;
    OK(tarn_library_register(&row, &library));
    CHECK(take()->handle_count.there == 0);
    OK(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle));
    const struct survey *survey = take();
    CHECK(survey->handle_count.there == 1 && survey->handle_count.here == 1);
    const struct survey_handles *handles = &survey->handles[0];
    CHECK(handles->device == 0 && handles->library == library &&
          strcmp(handles->name, "a library") == 0 && handles->in_use == 1 && handles->created == 1);
}

/* Consistency ---------------------------------------------------------------------------------- */

static atomic_bool ends;

static void *allocate(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    void *blocks[32] = {NULL};
    while (!atomic_load(&ends)) {
        void **block = &blocks[random_next(&random) % 32];
        OK(tarn_free(*block));
        *block =
            alloc_on(own, random_next(&random) % (random_next(&random) % 2 ? 2 * MIB : 4096) + 1);
    }
    for (int i = 0; i < 32; i++)
        OK(tarn_free(blocks[i]));
    return NULL;
}

static void *make_pools(void *argument)
{
    while (!atomic_load(&ends)) {
        tarn_pool *pool;
        void *block;
        OK(tarn_pool_create(NULL, &pool));
        OK(tarn_pool_alloc(pool, other, MIB, &block));
        OK(tarn_free(block));
        OK(tarn_pool_release(pool));
    }
    return argument;
}

static void a_page_is_never_seen_half_written(void **state)
{
    (void)state;
    pthread_t threads[3];
    tarn_live_options options = {.size = sizeof options, .interval_ms = 10};
    OK(tarn_live_start(&options));
    const char *path = page_path((long)getpid());
    for (size_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, allocate, (void *)(i + 1)) == 0); // NOLINT
    CHECK(pthread_create(&threads[2], NULL, make_pools, NULL) == 0);
    for (uint64_t number = 1; number < 60;) {
        struct page *page = page_wait(path, number);
        const struct survey *survey = &page->survey;
        number = survey->number + 1;
        CHECK(page->sequence == 2 * survey->number); /* else one is another's */
        uint32_t there =
            survey->pool_count.there; /* more than a survey has room for, while the threads keep
                                         released ones in use */
        CHECK(there >= 1 &&
              survey->pool_count.here == (there < SURVEY_POOLS ? there : SURVEY_POOLS));
        for (uint32_t i = 0; i < survey->pool_count.here; i++)
            CHECK(survey->pools[i].device == 0 &&
                  survey->pools[i].requested <= survey->pools[i].allocated);
        const tarn_stats *stats = &survey->devices[0].stats;
        CHECK(stats->allocation[TARN_STAT_ALL].allocated >= stats->allocation[TARN_STAT_ALL].freed);
        free(page);
    }
    atomic_store(&ends, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    OK(tarn_live_stop());
    nothing_is_left(0);
}

static int start(void **state)
{
    (void)state;
    OK(tarn_stream_lease(0, 0, &own));
    OK(tarn_stream_lease(0, 0, &other));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_says_what_its_statistics_say),
        cmocka_unit_test(a_block_that_is_kept_as_it_was_freed_counts_as_free),
        cmocka_unit_test(freed_memory_that_work_uses_is_waiting),
        cmocka_unit_test(pools_have_what_their_statistics_say),
        cmocka_unit_test(pools_that_have_no_room_are_counted),
        cmocka_unit_test(pinned_memory_is_there_once_it_was_used),
        cmocka_unit_test(handles_are_there_once_one_was_made),
        cmocka_unit_test(a_page_is_never_seen_half_written),
    };
    host_start_with(2, 1024 * MIB);
    directory_make();
    int failed = cmocka_run_group_tests(tests, start, NULL);
    (void)rmdir(directory);
    return failed;
}
