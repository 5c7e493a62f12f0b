/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned memory, one call after the other: sizes, reuse, streams, limits, settings, statistics, the
 * end of the process. */
#include "support/pinned.h"
#include "support/system.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void sizes_waste_an_eighth_at_most(void)
{
    host_start_with(1, 64 * MIB);
    for (size_t size = 1; size < 40 * MIB; size += 1 + size / 37) {
        void *pointer = pinned_take(size);
        size_t usable = 0;
        OK(tarn_usable_size_get(pointer, &usable));
        CHECK(usable >= size && usable % 256 == 0);
        CHECK(usable - size <= (size > 2048 ? size / 8 : 255));
        memset(pointer, 1, usable > 64 * KIB ? 64 * KIB : usable);
        OK(tarn_free(pointer));
    }
    /* PyTorch's tests have 64 and 128 KiB here. */
    void *a = pinned_take(40 * KIB), *b = pinned_take(80 * KIB);
    tarn_pinned_stats stats = pinned_stats();
    CHECK(stats.active_requests.current == 2);
    CHECK(stats.active_bytes.current == 120 * KIB);
    CHECK(stats.requested_bytes.current == 120 * KIB);
    OK(tarn_free(a));
    OK(tarn_free(b));
    pinned_nothing_is_left(1);
}

static void nothing_is_not_a_block(void)
{
    void *pointer = &pointer;
    host_start_with(1, 64 * MIB);
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 0, &pointer));
    CHECK(!pointer);
    OK(tarn_free(NULL));
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 1, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, SIZE_MAX, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, ((size_t)1 << 47) + 1, &pointer),
          TARN_ERROR_OUT_OF_MEMORY);
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, (size_t)1 << 47, &pointer),
          TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!pointer && pinned_stats().num_ooms == 3);
    GIVES(tarn_pinned_alloc(12345, 1, &pointer), TARN_ERROR_INVALID_STREAM);
    OK(tarn_pinned_alloc(TARN_STREAM_PER_THREAD, 1, &pointer));
    OK(tarn_free(pointer));
    pinned_nothing_is_left(1);
}

/* The host device has no more than the machine, although no page is touched: memory that is free
 * makes room. */
static void the_machine_has_an_end(void)
{
    size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE), most = MIB;
    void *first = NULL, *second = NULL;
    host_start_with(1, 64 * MIB);
    while (most <= bytes / 2)
        most *= 2;
    /* 16 TiB */
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, (size_t)1 << 44, &first),
          TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, most, &first));
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, most, &second), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!second);
    OK(tarn_free(first));
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, most / 2 + 1, &second));
    OK(tarn_free(second));
    pinned_nothing_is_left(1);
}

static void wrong_pointers_change_nothing(void)
{
    char own[512];
    size_t size = 7;
    host_start_with(1, 64 * MIB);
    GIVES(tarn_free(own), TARN_ERROR_INVALID_POINTER);
    char *a = pinned_take(5000), *b = pinned_take(3 * MIB), *c = pinned_take(5000);
    GIVES(tarn_free(own), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_free(a + 256), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_free(b + 2 * MIB), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_free((char *)((uintptr_t)b + 3 * MIB + 64 * MIB)), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_usable_size_get(a + 1, &size), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_usable_size_get(a, NULL), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(size == 7);
    OK(tarn_free(a));
    GIVES(tarn_free(a), TARN_ERROR_DOUBLE_FREE);
    GIVES(tarn_usable_size_get(a, &size), TARN_ERROR_INVALID_POINTER);
    OK(tarn_free(b));
    GIVES(tarn_free(b), TARN_ERROR_DOUBLE_FREE);
    GIVES(tarn_record_stream(b + 5, TARN_STREAM_LEGACY), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_record_stream(own, TARN_STREAM_LEGACY), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_record_stream(c, 77777), TARN_ERROR_INVALID_STREAM);

    /* Freed while a stream uses it: pending, and freed all the same. */
    tarn_stream stream = lease(0);
    work_on(stream, c, 1, 1000);
    OK(tarn_record_stream(c, stream));
    OK(tarn_free(c));
    GIVES(tarn_free(c), TARN_ERROR_DOUBLE_FREE);
    GIVES(tarn_record_stream(c, stream), TARN_ERROR_INVALID_POINTER);
    time_pass(1000);
    pinned_nothing_is_left(1);
}

static void a_block_is_used_again_when_its_streams_are_done(void)
{
    host_start_with(1, 64 * MIB);
    tarn_stream stream = lease(0);
    char *block = pinned_take(100 * KIB), *other;
    OK(tarn_free(block));
    CHECK(pinned_take(100 * KIB) == (void *)block); /* nobody uses it */

    work_on(stream, block, 100 * KIB, 1000);
    OK(tarn_record_stream(block + 7777, stream)); /* from inside */
    OK(tarn_record_stream(block, stream));        /* twice is once */
    OK(tarn_free(block));
    CHECK(pinned_stats().pending_bytes > 0);
    CHECK(pinned_stats().active_requests.current == 1); /* not available yet */
    other = pinned_take(100 * KIB);
    CHECK(other != block);
    pinned_check(1);
    OK(tarn_free(other));
    time_pass(999);
    CHECK(pinned_stats().pending_bytes > 0);
    time_pass(1);
    CHECK(pinned_stats().pending_bytes == 0 && pinned_stats().active_requests.current == 0);
    CHECK(calls_of(0, "event_record") == 1);
    pinned_check(1);

    /* What is recorded on two streams waits for both. */
    tarn_stream second = lease(0);
    block = pinned_take(3 * MIB);
    work_on(stream, block, 1, 5000);
    work_on(second, block, 1, 100);
    OK(tarn_record_stream(block, stream));
    OK(tarn_record_stream(block, second));
    OK(tarn_free(block));
    work_on(second, NULL, 0, 100000); /* later work does not matter */
    time_pass(4000);
    CHECK(pinned_stats().pending_bytes > 0);
    time_pass(1000);
    CHECK(pinned_stats().pending_bytes == 0);
    time_pass(100000);
    pinned_nothing_is_left(1);
}

static void a_slow_stream_keeps_back_nobody_else(void)
{
    host_start_with(1, 64 * MIB);
    tarn_stream slow = lease(0), fast = lease(0);
    char *a = pinned_take(2 * MIB), *b = pinned_take(3 * MIB);
    work_on(slow, a, 1, 1000000);
    OK(tarn_record_stream(a, slow));
    OK(tarn_free(a)); /* the older one */
    work_on(fast, b, 1, 10);
    OK(tarn_record_stream(b, fast));
    OK(tarn_free(b));
    time_pass(10);
    CHECK(pinned_take(3 * MIB) == (void *)b);
    CHECK(pinned_stats().pending_bytes == 2 * MIB);
    OK(tarn_free(b));

    /* A look asks about the oldest use of a stream and no further. */
    char *many[20];
    for (int i = 0; i < 20; i++)
        many[i] = pinned_take(1000);
    for (int i = 0; i < 20; i++) {
        work_on(slow, many[i], 1, 100);
        OK(tarn_record_stream(many[i], slow));
        OK(tarn_free(many[i]));
    }
    (void)pinned_stats();
    uint64_t queries = calls_of(0, "event_query");
    (void)pinned_stats();
    CHECK(calls_of(0, "event_query") == queries + 1);
    time_pass(2000000);
    pinned_nothing_is_left(1);
}

static void memory_is_cut_and_joined(void)
{
    host_start_with(1, 64 * MIB);
    char *whole = pinned_take(16 * MIB);
    OK(tarn_free(whole));
    char *a = pinned_take(9 * MIB), *b = pinned_take(7 * MIB);
    CHECK(a == whole && b == whole + 9 * MIB); /* 33 MiB do not cost 64, and the rest serves
                                                  others */
    CHECK(pinned_stats().num_host_alloc == 1);
    OK(tarn_free(b));
    OK(tarn_free(a));
    CHECK(pinned_take(16 * MIB) == (void *)whole);
    CHECK(pinned_stats().num_host_alloc == 1);
    OK(tarn_free(whole));

    /* Small ones share segments of their own. */
    char *small[100];
    for (size_t i = 0; i < 100; i++)
        small[i] = pinned_take(1 + i * 40);
    CHECK(pinned_stats().num_host_alloc == 2);
    CHECK(pinned_stats().bucket_allocation[21] == 1 && pinned_stats().bucket_allocation[24] == 1);
    for (size_t i = 0; i < 100; i += 2)
        OK(tarn_free(small[i]));
    pinned_check(1);
    for (size_t i = 1; i < 100; i += 2)
        OK(tarn_free(small[i]));
    pinned_check(1);
    CHECK(pinned_take(256 * KIB) == (void *)small[0]);
    CHECK(pinned_stats().num_host_alloc == 2);
    OK(tarn_free(small[0]));
    pinned_nothing_is_left(1);
}

static void trim_gives_back_what_is_free(void)
{
    host_start_with(1, 64 * MIB);
    tarn_stream stream = lease(0);
    char *a = pinned_take(2 * MIB), *b = pinned_take(3 * MIB), *c = pinned_take(4 * MIB),
         *d = pinned_take(5 * MIB);
    OK(tarn_free(a));
    OK(tarn_free(b));
    work_on(stream, c, 1, 1000);
    OK(tarn_record_stream(c, stream));
    OK(tarn_free(c));
    OK(tarn_pinned_trim(14 * MIB));
    CHECK(pinned_stats().num_host_free == 0 && time_now() == 0);
    OK(tarn_pinned_trim(13 * MIB));
    CHECK(pinned_stats().allocated_bytes.current <= (int64_t)(13 * MIB));
    CHECK(pinned_stats().num_host_free == 1);
    OK(tarn_pinned_trim(0));
    CHECK(time_now() == 1000);
    CHECK(pinned_stats().allocated_bytes.current == (int64_t)(5 * MIB)); /* what lives stays */
    OK(tarn_free(d));
    OK(tarn_host_fail_set(kind_of("host_free"), 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_pinned_trim(0), TARN_ERROR_DRIVER);
    pinned_check(1);
    CHECK(pinned_take(5 * MIB) == (void *)d); /* it is there still */
    OK(tarn_free(d));
    pinned_nothing_is_left(1);
}

static void the_limit_holds(void)
{
    size_t limit = 0;
    void *pointer = &limit;
    host_start_with(1, 64 * MIB);
    limit = pinned_limit();
    CHECK(limit == SIZE_MAX);
    OK(tarn_pinned_limit_set(8 * MIB));
    limit = pinned_limit();
    CHECK(limit == 8 * MIB);
    char *a = pinned_take(6 * MIB);
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 3 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(pointer == &limit);
    CHECK(strstr(tarn_last_error(), "no room for 3145728 bytes"));
    CHECK(strstr(tarn_last_error(), "limit 8388608"));
    CHECK(strstr(tarn_last_error(), "live 6291456"));
    CHECK(strstr(tarn_last_error(), "exceed the limit of 8388608"));
    CHECK(strstr(tarn_last_error(), "tarn_pinned_limit_set"));
    CHECK(pinned_stats().num_ooms == 1 && pinned_stats().num_alloc_retries == 1);
    CHECK(calls_of(0, "host_alloc") == 1); /* the driver was not asked */
    /* Never fits */
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 9 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "the limit alone"));
    char *small = pinned_take(100 * KIB); /* the usual segment of 2 MiB fits exactly */
    CHECK(pinned_stats().allocated_bytes.current == (int64_t)(8 * MIB));
    OK(tarn_free(small));
    OK(tarn_pinned_limit_set(6 * MIB + 300 * KIB)); /* below what is held: only growth stops */
    small = pinned_take(100 * KIB);
    OK(tarn_free(small));
    OK(tarn_pinned_trim(0));
    small = pinned_take(100 * KIB); /* there is no room for a usual segment, except for this */
    CHECK(pinned_stats().allocated_bytes.current == (int64_t)(6 * MIB + 104 * KIB));

    /* What is free makes room for another size, and so does what waits. */
    OK(tarn_free(a));
    char *b = pinned_take(5 * MIB);
    OK(tarn_free(b));
    b = pinned_take(6 * MIB);
    tarn_stream stream = lease(0);
    work_on(stream, b, 1, 5000);
    OK(tarn_record_stream(b, stream));
    OK(tarn_free(b));
    b = pinned_take(4 * MIB);
    CHECK(time_now() == 5000);
    OK(tarn_free(b));
    OK(tarn_free(small));
    pinned_nothing_is_left(1);
}

static void a_full_driver_is_made_room_in(void)
{
    void *pointer = NULL;
    host_start_with(1, 64 * MIB);
    tarn_stream stream = lease(0);
    int host_alloc = kind_of("host_alloc");
    char *a = pinned_take(8 * MIB), *b = pinned_take(2 * MIB);
    work_on(stream, b, 1, 700);
    OK(tarn_record_stream(b, stream));
    OK(tarn_free(a));
    OK(tarn_free(b));
    /* The first growth is refused; after 8 MiB went back the next is not. */
    OK(tarn_host_fail_set(host_alloc, 1, false, TARN_ERROR_OUT_OF_MEMORY));
    char *c = pinned_take(9 * MIB);
    CHECK(calls_of(0, "host_free") == 1);
    /* Refused for ever: everything is tried, and what is pending is waited for. */
    OK(tarn_host_fail_set(host_alloc, 1, true, TARN_ERROR_OUT_OF_MEMORY));
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 10 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "injected") && strstr(tarn_last_error(), "limit none"));
    CHECK(time_now() == 700 && !pointer);
    CHECK(calls_of(0, "host_free") == 2);
    /* Another failure than that is no reason to empty the cache. */
    OK(tarn_free(c));
    OK(tarn_host_fail_set(host_alloc, 1, true, TARN_ERROR_DRIVER));
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 10 * MIB, &pointer), TARN_ERROR_DRIVER);
    CHECK(calls_of(0, "host_free") == 2);
    OK(tarn_host_fail_set(0, 0, false, TARN_OK));
    CHECK(pinned_take(9 * MIB) == (void *)c);
    OK(tarn_free(c));
    pinned_nothing_is_left(1);
}

static void statistics_are_exact(void)
{
    host_start_with(1, 64 * MIB);
    tarn_pinned_stats stats = {.size = 1};
    GIVES(tarn_pinned_stats_get(&stats), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pinned_stats_get(NULL), TARN_ERROR_INVALID_ARGUMENT);
    tarn_stream stream = lease(0);
    char *a = pinned_take(300), *b = pinned_take(1 * MIB + 1), *c = pinned_take(100);
    stats = pinned_stats();
    CHECK(stats.active_requests.current == 3 && stats.active_requests.allocated == 3);
    CHECK(stats.active_bytes.current == 512 + (int64_t)(1152 * KIB) + 256);
    CHECK(stats.requested_bytes.current == 300 + (int64_t)MIB + 1 + 100);
    CHECK(stats.allocations.current == 2 && stats.num_host_alloc == 2 && stats.num_host_free == 0);
    CHECK(stats.allocated_bytes.current == (int64_t)(2 * MIB + 1152 * KIB));
    CHECK(stats.bucket_allocation[21] == 2);
    CHECK(stats.host_alloc_time.count == 2 && stats.host_alloc_time.min > 0);
    CHECK(stats.host_alloc_time.total >= stats.host_alloc_time.max + stats.host_alloc_time.min - 1);
    CHECK(stats.host_alloc_time.avg == stats.host_alloc_time.total / 2);
    CHECK(stats.host_free_time.count == 0 && stats.host_free_time.total == 0 &&
          stats.host_free_time.min == 0);

    OK(tarn_free(a)); /* at once */
    stats = pinned_stats();
    CHECK(stats.active_requests.current == 2 && stats.active_requests.freed == 1 &&
          stats.active_requests.peak == 3);
    CHECK(stats.active_bytes.freed == 512 && stats.requested_bytes.freed == 300);
    work_on(stream, b, 1, 10);
    OK(tarn_record_stream(b, stream));
    OK(tarn_free(b)); /* later, by the size that it has */
    time_pass(10);
    stats = pinned_stats();
    CHECK(stats.active_bytes.current == 256 &&
          stats.active_bytes.freed == 512 + (int64_t)(1152 * KIB));
    CHECK(stats.requested_bytes.current == 100 && stats.pending_bytes == 0);

    OK(tarn_pinned_stats_reset(TARN_STATS_PEAK));
    stats = pinned_stats();
    CHECK(stats.active_bytes.peak == 256 && stats.active_requests.peak == 1 &&
          stats.requested_bytes.peak == 100);
    CHECK(stats.allocated_bytes.peak == stats.allocated_bytes.current &&
          stats.allocations.peak == 2);
    OK(tarn_pinned_stats_reset(TARN_STATS_ACCUMULATED));
    stats = pinned_stats();
    CHECK(stats.active_bytes.current == 256 && stats.active_bytes.allocated == 0 &&
          stats.active_bytes.freed == 0);
    CHECK(stats.num_host_alloc == 0 && stats.bucket_allocation[21] == 0 &&
          stats.host_alloc_time.count == 0);
    OK(tarn_free(c));
    OK(tarn_pinned_trim(0));
    stats = pinned_stats();
    CHECK(stats.num_host_free == 2 && stats.host_free_time.count == 2 &&
          stats.host_free_time.max > 0);
    CHECK(stats.allocations.freed == 2 &&
          stats.allocated_bytes.freed == (int64_t)(2 * MIB + 1152 * KIB));
    pinned_nothing_is_left(1);
}

static void the_configuration_sets_them(void)
{
    setenv("TARN_ALLOC_CONF",
           "pinned_max_cached_size_mb:3,pinned_limit_mb:50,pinned_use_background_threads:True", 1);
    host_start_with(1, 64 * MIB);
    struct pinned_settings settings = pinned_settings();
    CHECK(settings.max_cached_size == 3 * MIB && pinned_limit() == 50 * MIB &&
          settings.background_threads);
    CHECK(settings.register_threads == 1 && !settings.use_register &&
          settings.reserve_segment == 0);
    CHECK(settings.max_round_threshold == SIZE_MAX);
    OK(tarn_pinned_limit_set(40 * MIB));
    OK(tarn_configuration_set("pinned_use_cuda_host_register:True,pinned_num_register_threads:8,"
                              "pinned_reserve_segment_size_mb:4,pinned_max_round_threshold_mb:9,"
                              "pinned_free_catch_all:True,"
                              "pinned_use_background_threads:False"));
    settings = pinned_settings();
    CHECK(settings.use_register && settings.register_threads == 8 &&
          settings.reserve_segment == 4 * MIB);
    CHECK(settings.max_round_threshold == 9 * MIB && !settings.background_threads);
    /* As they were: the text does not say */
    CHECK(settings.max_cached_size == 3 * MIB && pinned_limit() == 40 * MIB);
    static const char *const wrong[] = {"3", "6", "129", "256"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[64];
        snprintf(text, sizeof text, "pinned_num_register_threads:%s", wrong[i]);
        GIVES(tarn_configuration_set(text), TARN_ERROR_CONFIGURATION);
        CHECK(pinned_settings().register_threads == 8);
    }
    OK(tarn_configuration_set("pinned_limit_mb:2"));
    CHECK(pinned_limit() == 2 * MIB);
    OK(tarn_pinned_limit_set(3 * MIB));
    OK(tarn_configuration_set("leave_free_mb:0"));
    CHECK(pinned_limit() == 3 * MIB);
    OK(tarn_configuration_set("pinned_limit_mb:2"));
    CHECK(pinned_limit() == 2 * MIB);
    OK(tarn_configuration_set("all:default"));
    settings = pinned_settings();
    CHECK(pinned_limit() == SIZE_MAX && settings.max_cached_size == SIZE_MAX &&
          !settings.use_register);
    const char *note = "";
    OK(tarn_configuration_note_get(0, &note));
    CHECK(!note);
}

/* The other settings are in force all the same, and the next change tries again. */
static void a_thread_that_cannot_be_created_is_done_without(void)
{
    host_start_with(1, 64 * MIB);
    CHECK(!pinned_settings().background_threads);
    system_only("pthread_create");
    system_arm(1, true, 0);
    OK(tarn_configuration_set("pinned_use_background_threads:True,pinned_max_cached_size_mb:5"));
    CHECK(system_hits() == 1 && strcmp(tarn_last_error(), "") == 0);
    CHECK(!pinned_settings().background_threads && pinned_settings().max_cached_size == 5 * MIB);
    OK(tarn_free(pinned_take(3 * MIB)));
    system_arm(0, false, 0);
    OK(tarn_configuration_set("pinned_max_cached_size_mb:6"));
    CHECK(pinned_settings().background_threads && pinned_settings().max_cached_size == 6 * MIB);
    OK(tarn_shutdown());
}

static void memory_is_registered(void)
{
    host_start_with(1, 64 * MIB);
    struct pinned_settings settings = pinned_settings();
    settings.use_register = true;
    for (unsigned threads = 1; threads <= 128; threads *= 2) {
        settings.register_threads = threads;
        pinned_settings_set(&settings);
        char *a = pinned_take(3 * MIB + 5 * KIB), *b = pinned_take(1);
        for (size_t i = 0; i < 3 * MIB; i += 4096)
            CHECK(a[i] == 0); /* touched, and nothing else */
        CHECK(ledger_of(0).pinned == 2);
        OK(tarn_free(a));
        OK(tarn_free(b));
        pinned_nothing_is_left(1);
    }
    CHECK(calls_of(0, "host_register") == 16 && calls_of(0, "host_unregister") == 16);
    CHECK(calls_of(0, "host_alloc") == 0 && calls_of(0, "host_free") == 0);
    void *pointer = NULL;
    OK(tarn_host_fail_set(kind_of("host_register"), 1, true, TARN_ERROR_DRIVER));
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, MIB, &pointer), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(0, 0, false, TARN_OK));
    char *a = pinned_take(MIB);
    settings.use_register = false; /* what is registered goes back as such */
    pinned_settings_set(&settings);
    OK(tarn_free(a));
    pinned_nothing_is_left(1);
    CHECK(calls_of(0, "host_unregister") == 17 && calls_of(0, "host_free") == 0);
}

static void a_segment_is_reserved(void)
{
    host_start_with(1, 64 * MIB);
    struct pinned_settings settings = pinned_settings();
    settings.reserve_segment = 8 * MIB;
    pinned_settings_set(&settings);
    CHECK(pinned_stats().allocations.current == 0);
    char *a = pinned_take(1000), *b = pinned_take(3 * MIB), *c = pinned_take(100);
    CHECK(pinned_stats().num_host_alloc == 1);
    CHECK(pinned_stats().allocated_bytes.current == (int64_t)(8 * MIB));
    char *d = pinned_take(6 * MIB); /* does not fit */
    CHECK(pinned_stats().num_host_alloc == 2);
    OK(tarn_free(a));
    OK(tarn_free(b));
    OK(tarn_free(c));
    OK(tarn_free(d));
    OK(tarn_pinned_trim(0));
    CHECK(pinned_stats().allocated_bytes.current == (int64_t)(8 * MIB)); /* stays */
    a = pinned_take(8 * MIB);                                            /* and is whole again */
    CHECK(pinned_stats().num_host_alloc == 2);
    OK(tarn_free(a));
    pinned_check(1);

    /* With another size it is a segment like others. */
    a = pinned_take(1000);
    settings.reserve_segment = 4 * MIB;
    pinned_settings_set(&settings);
    pinned_check(1);
    b = pinned_take(6 * MIB); /* behind `a` */
    CHECK(pinned_stats().num_host_alloc == 2);
    OK(tarn_free(a));
    OK(tarn_free(b));
    OK(tarn_pinned_trim(0));
    CHECK(pinned_stats().allocated_bytes.current == 0);
    OK(tarn_free(pinned_take(1000)));
    CHECK(pinned_stats().allocated_bytes.current == (int64_t)(4 * MIB));
    settings.reserve_segment = 0;
    pinned_settings_set(&settings);
    OK(tarn_pinned_trim(0));
    CHECK(pinned_stats().allocated_bytes.current == 0);
    OK(tarn_shutdown());
}

static void what_is_too_large_is_not_cached(void)
{
    host_start_with(1, 64 * MIB);
    struct pinned_settings settings = pinned_settings();
    settings.max_cached_size = 4 * MIB;
    settings.max_round_threshold = 2 * MIB;
    pinned_settings_set(&settings);
    size_t size = 0;
    char *a = pinned_take(2 * MIB - 1), *b = pinned_take(5 * MIB + 1), *c = pinned_take(3 * MIB);
    OK(tarn_usable_size_get(b, &size));
    CHECK(size == 5 * MIB + 256); /* not rounded further */
    CHECK(pinned_stats().allocated_bytes.current == (int64_t)(10 * MIB + 4 * KIB));
    OK(tarn_free(a));
    OK(tarn_free(c));
    CHECK(pinned_stats().num_host_free == 0);
    tarn_stream stream = lease(0);
    work_on(stream, b, 1, 100);
    OK(tarn_record_stream(b, stream));
    OK(tarn_free(b));
    CHECK(ledger_of(0).pinned == 3);
    time_pass(100);
    CHECK(pinned_stats().num_host_free == 1);
    CHECK(ledger_of(0).pinned == 2);
    b = pinned_take(6 * MIB);
    OK(tarn_host_fail_set(kind_of("host_free"), 1, false, TARN_ERROR_DRIVER));
    OK(tarn_free(b)); /* the free has succeeded: the memory is cached after all */
    CHECK(strcmp(tarn_last_error(), "") == 0);
    CHECK(ledger_of(0).pinned == 3);
    pinned_check(1);

    /* A small block is not larger, though the segment that it shares is. */
    settings.max_cached_size = MIB;
    pinned_settings_set(&settings);
    int64_t gone = pinned_stats().num_host_free;
    OK(tarn_free(pinned_take(100)));
    CHECK(pinned_stats().num_host_free == gone);

    /* Without rounding a bin has unequal sizes: what is too small for a request never serves it
     * (pytorch issue 192722). */
    settings.max_cached_size = SIZE_MAX;
    pinned_settings_set(&settings);
    OK(tarn_pinned_trim(0));
    a = pinned_take(9 * MIB + 1000);
    OK(tarn_free(a));
    c = pinned_take(9 * MIB + 5000);
    OK(tarn_usable_size_get(c, &size));
    CHECK(size >= 9 * MIB + 5000 && pinned_stats().allocations.current == 2);
    OK(tarn_free(c));
    pinned_nothing_is_left(1);
}

static void a_thread_looks_for_finished_work(void)
{
    host_start_with(1, 64 * MIB);
    struct pinned_settings settings = pinned_settings();
    settings.background_threads = true;
    pinned_settings_set(&settings);
    pinned_settings_set(&settings); /* there is one */
    tarn_stream stream = lease(0);
    for (int round = 0; round < 5; round++) {
        char *a = pinned_take(MIB);
        work_on(stream, a, 1, 1000);
        OK(tarn_record_stream(a, stream));
        OK(tarn_free(a));
        uint64_t queries = calls_of(0, "event_query");
        while (calls_of(0, "event_query") < queries + 3)
            usleep(100);
        time_pass(1000);
        uint64_t ended = 0;
        do { /* until it has seen the end, and asks no more */
            ended = calls_of(0, "event_query");
            usleep(20000);
        } while (pinned_stats().pending_bytes || calls_of(0, "event_query") != ended);
    }
    settings.max_cached_size = 0; /* what it frees it gives back */
    pinned_settings_set(&settings);
    char *a = pinned_take(5 * MIB);
    OK(tarn_record_stream(a, stream));
    OK(tarn_free(a));
    while (pinned_stats().num_host_free == 0) /* counted after the driver's call, with all that the
                                                 call changes */
        usleep(100);
    settings.background_threads = false;
    pinned_settings_set(&settings);
    settings.background_threads = true;
    pinned_settings_set(&settings);
    pinned_nothing_is_left(1);
    OK(tarn_shutdown()); /* ends it */
}

static struct driver hooked;
static atomic_bool gives_back, trimmed;

/* Lasts until another thread has trimmed, at most 100 ms. */
static tarn_status host_free_slowly(int device, uintptr_t address)
{
    atomic_store(&gives_back, true);
    for (int i = 0; i < 100 && !atomic_load(&trimmed); i++)
        usleep(1000);
    return driver_host.host_free(device, address);
}

static void *trims(void *argument)
{
    OK(tarn_pinned_trim(0));
    return argument;
}

static void a_trim_waits_for_what_another_thread_gives_back(void)
{
    pthread_t other;
    host_start_with(1, 64 * MIB);
    hooked = driver_host;
    hooked.host_free = host_free_slowly;
    OK(tarn_free(pinned_take(5 * MIB)));
    driver = &hooked;
    CHECK(!pthread_create(&other, NULL, trims, NULL));
    while (!atomic_load(&gives_back))
        usleep(100);
    OK(tarn_pinned_trim(0));
    mutex_lock(&pinned.lock);
    CHECK(pinned.stats.allocated_bytes.current == 0);
    mutex_unlock(&pinned.lock);
    atomic_store(&trimmed, true);
    CHECK(!pthread_join(other, NULL));
    driver = &driver_host;
    pinned_nothing_is_left(1);
}

/* The reserved segment gets another size while the driver allocates it. */
static tarn_status host_alloc_resized(int device, size_t size, uintptr_t *address)
{
    struct pinned_settings settings = pinned_settings();
    settings.reserve_segment = 4 * MIB;
    pinned_settings_set(&settings);
    return driver_host.host_alloc(device, size, address);
}

static void a_segment_that_is_reserved_too_late_is_one_like_others(void)
{
    host_start_with(1, 64 * MIB);
    struct pinned_settings settings = pinned_settings();
    settings.reserve_segment = 8 * MIB;
    pinned_settings_set(&settings);
    hooked = driver_host;
    hooked.host_alloc = host_alloc_resized;
    driver = &hooked;
    void *pointer = pinned_take(3 * MIB);
    driver = &driver_host;
    CHECK(pinned_stats().allocated_bytes.current == (int64_t)(8 * MIB));
    pinned_check(1);
    OK(tarn_free(pointer));
    OK(tarn_pinned_trim(0));
    CHECK(pinned_stats().allocated_bytes.current == 0);
    OK(tarn_free(pinned_take(1000)));
    CHECK(pinned_stats().allocated_bytes.current == (int64_t)(4 * MIB));
    OK(tarn_shutdown());
}

static void is_pinned_starts_nothing(void)
{
    char own[10];
    host_start_with(2, 64 * MIB);
    CHECK(!tarn_pinned_contains(own) && !tarn_pinned_contains(NULL));
    int count = 0;
    pid_t first = getpid();
    CHECK(first > 0);
    OK(tarn_device_count_get(&count)); /* the driver is chosen only now */
    CHECK(!tarn_pinned_contains(own));
    char *a = pinned_take(10 * KIB);
    CHECK(tarn_pinned_contains(a) && tarn_pinned_contains(a + 10 * KIB - 1));
    CHECK(!tarn_pinned_contains(a - 1) && !tarn_pinned_contains(a + 10 * KIB));
    CHECK(!tarn_pinned_contains(own));
    OK(tarn_free(a));
    CHECK(!tarn_pinned_contains(a));
}

static char *before_fork;

static void a_child_has_none(void)
{
    void *pointer = NULL;
    CHECK(!tarn_pinned_contains(before_fork));
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 1, &pointer), TARN_ERROR_FORKED);
    GIVES(tarn_free(before_fork), TARN_ERROR_FORKED);
    GIVES(tarn_pinned_trim(0), TARN_ERROR_FORKED);
    GIVES(tarn_record_stream(before_fork, TARN_STREAM_LEGACY), TARN_ERROR_FORKED);
}

static void fork_and_shutdown_end_it(void)
{
    host_start_with(1, 64 * MIB);
    struct pinned_settings settings = pinned_settings();
    settings.background_threads = true;
    pinned_settings_set(&settings);
    before_fork = pinned_take(3 * MIB);
    in_child(a_child_has_none);
    tarn_stream stream = lease(0);
    char *b = pinned_take(5 * MIB);
    work_on(stream, b, 1, 500);
    OK(tarn_record_stream(b, stream));
    OK(tarn_free(b));
    before_fork[5] = 7;
    OK(tarn_shutdown());
    CHECK(before_fork[5] == 7); /* what lives keeps its memory */
    void *pointer = NULL;
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 1, &pointer), TARN_ERROR_SHUTDOWN);
    GIVES(tarn_free(before_fork), TARN_ERROR_SHUTDOWN);
    CHECK(!tarn_pinned_contains(before_fork));
}

static void devices_share_it(void)
{
    host_start_with(2, 64 * MIB);
    OK(tarn_device_set(1));
    char *a = pinned_take(3 * MIB);
    CHECK(ledger_of(1).pinned == 1 && ledger_of(0).pinned == 0); /* by the thread's device */
    tarn_stream zero = lease(0), one = lease(1);
    work_on(zero, a, 1, 100);
    work_on(one, a, 1, 200);
    OK(tarn_record_stream(a, zero));
    OK(tarn_record_stream(a, one));
    OK(tarn_free(a));
    time_pass(150);
    CHECK(pinned_stats().pending_bytes > 0);
    time_pass(50);
    CHECK(pinned_stats().pending_bytes == 0);
    OK(tarn_device_set(0));
    CHECK(pinned_take(3 * MIB) == (void *)a);
    OK(tarn_free(a));

    /* Work of a stream that is retired since is waited for. */
    tarn_stream adopted = 0;
    void *native = NULL;
    OK(driver->stream_create(0, 0, false, &native));
    OK(tarn_stream_adopt(0, native, &adopted));
    a = pinned_take(3 * MIB);
    work_on(adopted, a, 1, 1000);
    OK(tarn_record_stream(a, adopted));
    OK(tarn_stream_retire(adopted));
    OK(driver->stream_destroy(0, native));
    OK(tarn_free(a));
    CHECK(pinned_stats().pending_bytes > 0);
    time_pass(1000);
    pinned_nothing_is_left(2);
}

static void a_lost_device_holds_nothing_back(void)
{
    void *pointer = NULL;
    host_start_with(2, 64 * MIB);
    tarn_stream stream = lease(1);
    char *a = pinned_take(3 * MIB);
    OK(tarn_record_stream(a, stream));
    work_on(stream, a, 1, 1000000);
    OK(tarn_host_fail_set(kind_of("event_record"), 1, false, TARN_ERROR_DEVICE_LOST));
    OK(tarn_free(a));
    CHECK(pinned_stats().pending_bytes == 0); /* its work is over */
    OK(tarn_device_set(0));
    CHECK(pinned_take(3 * MIB) == (void *)a);
    OK(tarn_free(a));
    OK(tarn_host_fail_set(kind_of("host_alloc"), 1, false, TARN_ERROR_DEVICE_LOST));
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 9 * MIB, &pointer), TARN_ERROR_DEVICE_LOST);
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 1, &pointer), TARN_ERROR_DEVICE_LOST);
    OK(pinned_verify());
}

static void a_lost_device_is_asked_for_nothing(void)
{
    void *pointer = NULL;
    host_start_with(2, 64 * MIB);
    tarn_stream stream = lease(1);
    OK(tarn_device_set(0));
    OK(tarn_host_fail_set(kind_of("host_alloc"), 1, false, TARN_ERROR_DEVICE_LOST));
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 9 * MIB, &pointer), TARN_ERROR_DEVICE_LOST);
    uint64_t before = calls_of(0, "host_alloc");
    OK(tarn_pinned_alloc(stream, 9 * MIB, &pointer));
    CHECK(calls_of(0, "host_alloc") == before && calls_of(1, "host_alloc") == 1);
    OK(tarn_free(pointer));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(sizes_waste_an_eighth_at_most),
        CHILD_TEST(nothing_is_not_a_block),
        CHILD_TEST(the_machine_has_an_end),
        CHILD_TEST(wrong_pointers_change_nothing),
        CHILD_TEST(a_block_is_used_again_when_its_streams_are_done),
        CHILD_TEST(a_slow_stream_keeps_back_nobody_else),
        CHILD_TEST(memory_is_cut_and_joined),
        CHILD_TEST(trim_gives_back_what_is_free),
        CHILD_TEST(the_limit_holds),
        CHILD_TEST(a_full_driver_is_made_room_in),
        CHILD_TEST(statistics_are_exact),
        CHILD_TEST(the_configuration_sets_them),
        CHILD_TEST(a_thread_that_cannot_be_created_is_done_without),
        CHILD_TEST(memory_is_registered),
        CHILD_TEST(a_segment_is_reserved),
        CHILD_TEST(what_is_too_large_is_not_cached),
        CHILD_TEST(a_thread_looks_for_finished_work),
        CHILD_TEST(a_trim_waits_for_what_another_thread_gives_back),
        CHILD_TEST(a_segment_that_is_reserved_too_late_is_one_like_others),
        CHILD_TEST(is_pinned_starts_nothing),
        CHILD_TEST(fork_and_shutdown_end_it),
        CHILD_TEST(devices_share_it),
        CHILD_TEST(a_lost_device_holds_nothing_back),
        CHILD_TEST(a_lost_device_is_asked_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
