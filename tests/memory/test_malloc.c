/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The contract of tarn/memory.h, call by call. */
#include "support/host.h"

#include "base/pages.h"
#include "driver/host/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tarn_stream own, other;

static tarn_block_info info_of(const void *pointer)
{
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(pointer, &info));
    return info;
}

static void no_bytes_are_null_and_no_failure(void **state)
{
    (void)state;
    void *pointer = &pointer;
    tarn_alloc_options options = {sizeof options, 0, own, 4096, 0, NULL, 0};
    CHECK(!tarn_malloc(SIZE_MAX));
    CHECK(!tarn_malloc(0));
    GIVES(tarn_last_status(), TARN_OK);
    OK(tarn_alloc_on(own, 0, &pointer));
    CHECK(!pointer);
    pointer = &pointer;
    OK(tarn_alloc(&options, 0, &pointer));
    CHECK(!pointer);
    OK(tarn_free(NULL));
    OK(tarn_free_on(NULL, own));
    OK(tarn_record_stream(NULL, own));
    CHECK(ledger_of(0).created == 0);
}

static void sizes_that_nothing_can_serve_are_out_of_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {SIZE_MAX,          SIZE_MAX - 511, SIZE_MAX / 2,
                                   TARN_MAX_SIZE + 1, TARN_MAX_SIZE,  TARN_MAX_SIZE - 1,
                                   (size_t)1 << 48};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *pointer = &pointer;
        tarn_alloc_options options = {sizeof options, 0, own, TARN_MAX_ALIGNMENT, 0, NULL, 0};
        GIVES(tarn_alloc_on(own, sizes[i], &pointer), TARN_ERROR_OUT_OF_MEMORY);
        GIVES(tarn_alloc(&options, sizes[i], &pointer), TARN_ERROR_OUT_OF_MEMORY);
        CHECK(pointer == &pointer);
        CHECK(!tarn_malloc(sizes[i]));
        GIVES(tarn_last_status(), TARN_ERROR_OUT_OF_MEMORY);
    }
    nothing_is_left(0);
}

static void a_block_is_at_least_as_large_as_asked_for_and_wholly_usable(void **state)
{
    (void)state;
    for (size_t size = 1; size < 20 * MIB; size = size * 5 / 4 + 1) {
        unsigned char *block = alloc_on(own, size);
        size_t usable = usable_size(block);
        CHECK(usable >= size && usable % TARN_BLOCK_UNIT == 0 && (uintptr_t)block % 512 == 0);
        CHECK(usable <= (size < 65536 ? size + size / 8 + 512 : size + 512) || usable == 65536);
        memset(block, 0xee, usable);
        CHECK(info_of(block + usable - 1).base == block);
        OK(tarn_free(block));
    }
    nothing_is_left(0);
}

static void every_alignment_is_kept_for_every_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,     512,   513,     5000,    60000,
                                   65536, 70000, 1048576, 1048577, 3000000};
    void *blocks[256];
    int count = 0;
    for (size_t alignment = 1; alignment <= TARN_MAX_ALIGNMENT; alignment *= 2) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            tarn_alloc_options options = {
                sizeof options, TARN_CURRENT_DEVICE, own, alignment, 0, NULL, 0};
            void *pointer = NULL;
            OK(tarn_alloc(&options, sizes[i], &pointer));
            CHECK((uintptr_t)pointer % alignment == 0 && (uintptr_t)pointer % 512 == 0);
            CHECK(usable_size(pointer) >= sizes[i]);
            memset(pointer, 1, sizes[i]);
            blocks[count++] = pointer;
        }
        verify(0);
    }
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            CHECK((char *)blocks[i] + usable_size(blocks[i]) <= (char *)blocks[k] ||
                  (char *)blocks[k] + usable_size(blocks[k]) <= (char *)blocks[i]);
    while (count > 0)
        OK(tarn_free(blocks[--count]));
    nothing_is_left(0);
}

static void options_are_checked(void **state)
{
    (void)state;
    void *pointer = &pointer;
    tarn_alloc_options good = {sizeof good, 0, own, 0, 0, NULL, 0}, bad = good;
    GIVES(tarn_alloc(NULL, 10, &pointer), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_alloc(&good, 10, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_alloc_on(own, 10, NULL), TARN_ERROR_INVALID_ARGUMENT);
    bad.size = 1;
    GIVES(tarn_alloc(&bad, 10, &pointer), TARN_ERROR_INVALID_ARGUMENT);
    static const size_t alignments[] = {
        3, 513, 768, TARN_MAX_ALIGNMENT * 2, SIZE_MAX, ((size_t)1 << 63) + 1};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        bad = good;
        bad.alignment = alignments[i];
        GIVES(tarn_alloc(&bad, 10, &pointer), TARN_ERROR_INVALID_ARGUMENT);
    }
    bad = good;
    bad.tag = 60000;
    GIVES(tarn_alloc(&bad, 10, &pointer), TARN_ERROR_INVALID_ARGUMENT);
    bad = good;
    bad.device = 1;
    GIVES(tarn_alloc(&bad, 10, &pointer), TARN_ERROR_INVALID_STREAM);
    bad.device = 2;
    GIVES(tarn_alloc(&bad, 10, &pointer), TARN_ERROR_INVALID_DEVICE);
    bad.device = -2;
    GIVES(tarn_alloc(&bad, 10, &pointer), TARN_ERROR_INVALID_DEVICE);
    CHECK(pointer == &pointer);
    good.device = 1;
    good.stream = TARN_STREAM_LEGACY; /* that of the device named */
    OK(tarn_alloc(&good, 10, &pointer));
    CHECK(info_of(pointer).device == 1);
    OK(tarn_free(pointer));
    nothing_is_left(1);
}

static void what_is_not_a_blocks_start_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    char local = 0, *heap = malloc(100);
    static char constant[100];
    char *small = alloc_on(own, 1000), *large = alloc_on(own, 3 * MIB);
    void *wrong[] = {&local,
                     heap,
                     constant,
                     (void *)1,
                     (void *)512,
                     small + 1,
                     small + 512,
                     large + 1,
                     large + 512,
                     large + 65536,
                     large + MIB,
                     (void *)-1,
                     (void *)-512,
                     large + 3 * MIB - 1,
                     (void *)((uintptr_t)1 << 47),
                     (void *)((uintptr_t)1 << 62)};
    tarn_event *event = NULL;
    size_t size = 77;
    OK(tarn_event_create(0, &event));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        GIVES(tarn_free(wrong[i]), TARN_ERROR_INVALID_POINTER);
        GIVES(tarn_free_on(wrong[i], own), TARN_ERROR_INVALID_POINTER);
        GIVES(tarn_free_after(wrong[i], event), TARN_ERROR_INVALID_POINTER);
        GIVES(tarn_extend(wrong[i], 100), TARN_ERROR_INVALID_POINTER);
        GIVES(tarn_usable_size_get(wrong[i], &size), TARN_ERROR_INVALID_POINTER);
    }
    GIVES(tarn_extend(NULL, 100), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_usable_size_get(NULL, &size), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_usable_size_get(small, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_free_after(small, NULL), TARN_ERROR_INVALID_ARGUMENT);
    tarn_block_info info = {.size = sizeof info, .device = 77}, wrong_size = {.size = 8};
    GIVES(tarn_pointer_info_get(&local, &info), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_pointer_info_get(NULL, &info), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_pointer_info_get(small, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pointer_info_get(small, &wrong_size), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_record_stream(&local, own), TARN_ERROR_INVALID_POINTER);
    CHECK(size == 77 && info.device == 77);
    CHECK(stats_of(0).allocation[0].current == 2);
    OK(tarn_free(small));
    OK(tarn_free(large));
    OK(tarn_event_destroy(event));
    free(heap);
    nothing_is_left(0);
}

static void a_second_free_is_a_double_free_wherever_the_block_is(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 700, 65536, 65537, MIB, 2 * MIB, 30 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int pending = 0; pending < 2; pending++) {
            char *beside = alloc_on(own, sizes[i]), *block = alloc_on(own, sizes[i]);
            if (pending) {
                work_on(other, block, 1, 1000);
                OK(tarn_record_stream(block, other));
            }
            OK(tarn_free(block));
            tarn_stats before = stats_of(0);
            GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
            GIVES(tarn_free_on(block, other), TARN_ERROR_DOUBLE_FREE);
            CHECK(stats_of(0).allocation[0].freed == before.allocation[0].freed);
            tarn_block_info info = {.size = sizeof info};
            GIVES(tarn_pointer_info_get(block, &info), TARN_ERROR_INVALID_POINTER);
            verify(0);
            time_pass(1000);
            GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
            OK(tarn_free(beside));
            nothing_is_left(0);
            /* Unmapped since, and still known as tarn's */
            GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
        }
    }
}

static void *free_elsewhere(void *block)
{
    OK(tarn_device_set(1));
    OK(tarn_free(block));
    return NULL;
}

static void a_block_is_freed_by_any_thread_on_any_current_device(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 100000, 5 * MIB};
    for (size_t i = 0; i < 3; i++) {
        pthread_t thread;
        void *block = alloc_on(own, sizes[i]);
        assert_int_equal(pthread_create(&thread, NULL, free_elsewhere, block), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        void *next = alloc_on(own, sizes[i]);
        CHECK(sizes[i] < 65536 ||
              next == block); /* in the order of its own stream; a small one is found by its owner
                                 later */
        block = next;
        OK(tarn_device_set(1));
        OK(tarn_free(block));
        OK(tarn_device_set(0));
    }
    nothing_is_left(0);
    CHECK(ledger_of(1).created == 0);
}

static void a_block_grows_in_place_into_free_memory_behind_it(void **state)
{
    (void)state;
    char *block = alloc_on(own, 2 * MIB), *hole = alloc_on(own, 2 * MIB),
         *end = alloc_on(own, 2 * MIB);
    memset(block, 3, 2 * MIB);
    GIVES(tarn_extend(block, 3 * MIB), TARN_ERROR_NO_ROOM);
    OK(tarn_free(hole));
    OK(tarn_extend(block, 100)); /* has it already; never shrinks */
    CHECK(usable_size(block) == 2 * MIB && info_of(block).requested == 2 * MIB);
    uint64_t calls = all_calls(0);
    OK(tarn_extend(block, 3 * MIB + 1));
    CHECK(usable_size(block) == 3 * MIB + 512 && info_of(block).requested == 3 * MIB + 1);
    GIVES(tarn_extend(block, 4 * MIB + 1), TARN_ERROR_NO_ROOM);
    OK(tarn_extend(block, 4 * MIB));
    GIVES(tarn_extend(block, SIZE_MAX), TARN_ERROR_NO_ROOM);
    GIVES(tarn_extend(block, TARN_MAX_SIZE), TARN_ERROR_NO_ROOM);
    CHECK(all_calls(0) == calls);
    CHECK(stats_of(0).requested_bytes[0].current == (int64_t)(6 * MIB));
    memset(block + 2 * MIB, 3, 2 * MIB);
    for (size_t i = 0; i < 4 * MIB; i += 1000)
        CHECK(block[i] == 3);
    verify(0);
    OK(tarn_free(block));
    OK(tarn_free(end));
    nothing_is_left(0);
}

static void a_block_that_cannot_grow_for_want_of_host_memory_stays_as_it_was(void **state)
{
    (void)state;
    char *block = alloc_on(own, 2 * MIB), *hole = alloc_on(own, 2 * MIB),
         *end = alloc_on(own, 2 * MIB);
    OK(tarn_free(hole));
    tarn_stats before = stats_of(0);
    pages_fail(1, true);
    tarn_status grown = tarn_extend(block, 3 * MIB), none = tarn_extend(block, 5 * MIB);
    uint64_t hits = pages_fail_hits();
    pages_fail(0, false);
    CHECK(grown == TARN_ERROR_OUT_OF_HOST_MEMORY && none == TARN_ERROR_NO_ROOM && hits == 1);
    tarn_stats after = stats_of(0);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK(usable_size(block) == 2 * MIB && info_of(block).requested == 2 * MIB);
    verify(0);
    OK(tarn_extend(block, 3 * MIB));
    OK(tarn_free(block));
    OK(tarn_free(end));
    nothing_is_left(0);
}

static void a_small_block_grows_within_its_slot(void **state)
{
    (void)state;
    char *block = alloc_on(own, 600);
    OK(tarn_extend(block, 1024));
    CHECK(info_of(block).requested == 1024);
    GIVES(tarn_extend(block, 1025), TARN_ERROR_NO_ROOM);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void a_block_that_grows_into_the_large_class_is_counted_there(void **state)
{
    (void)state;
    char *block = alloc_on(own, MIB), *hole = alloc_on(own, 600000);
    OK(tarn_free(hole));
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    OK(tarn_extend(block, MIB + 512));
    tarn_stats stats = stats_of(0);
    CHECK(stats.allocation[TARN_STAT_SMALL_POOL].current == 0 &&
          stats.allocation[TARN_STAT_LARGE_POOL].current == 1);
    CHECK(stats.allocation[TARN_STAT_SMALL_POOL].freed == 1 &&
          stats.allocation[TARN_STAT_LARGE_POOL].allocated == 1);
    /* Of both together it only grew */
    CHECK(stats.allocation[0].allocated == 0 && stats.allocation[0].freed == 0);
    CHECK(stats.allocated_bytes[0].allocated == 512 && stats.active_bytes[0].freed == 0);
    OK(tarn_free(block));
    stats = stats_of(0);
    CHECK(stats.allocation[0].freed == 1 && stats.active_bytes[0].freed == (int64_t)MIB + 512);
    nothing_is_left(0);
}

static void what_is_known_of_a_block_is_told_for_any_address_in_it(void **state)
{
    (void)state;
    tarn_tag tag = 0;
    OK(tarn_tag_intern("weights", &tag));
    static const size_t sizes[] = {1, 3000, 65536, 65537, 200000, 9 * MIB + 1};
    char *blocks[6];
    for (size_t i = 0; i < 6; i++) {
        tarn_alloc_options options = {sizeof options, 0, i % 2 ? own : other, 0, tag, NULL, 0};
        void *pointer = NULL;
        OK(tarn_alloc(&options, sizes[i], &pointer));
        blocks[i] = pointer;
    }
    for (size_t i = 0; i < 6; i++) {
        size_t usable = usable_size(blocks[i]);
        for (size_t offset = 0; offset < usable; offset += 1 + usable / 37) {
            tarn_block_info info = info_of(blocks[i] + offset);
            CHECK(info.base == blocks[i] && info.usable_size == usable &&
                  info.requested == sizes[i]);
            CHECK(info.device == 0 && info.stream == (i % 2 ? own : other) && info.tag == tag);
            CHECK(strcmp(tarn_tag_text(info.tag), "weights") == 0);
        }
    }
    for (size_t i = 0; i < 6; i++)
        OK(tarn_free(blocks[i]));
    nothing_is_left(0);
}

static void a_tag_is_the_same_for_the_same_text(void **state)
{
    (void)state;
    tarn_tag first = 0, second = 0, third = 0;
    char text[200];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    OK(tarn_tag_intern("one", &first));
    OK(tarn_tag_intern("two", &second));
    OK(tarn_tag_intern("one", &third));
    CHECK(first == third && first != second && first != 0);
    OK(tarn_tag_intern(text, &first));
    CHECK(strlen(tarn_tag_text(first)) == 63);
    text[63] = 0;
    OK(tarn_tag_intern(text, &second));
    CHECK(first == second);
    CHECK(*tarn_tag_text(0) == 0 && *tarn_tag_text(65535) == 0);
    GIVES(tarn_tag_intern(NULL, &first), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_tag_intern("x", NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void use_all_tags(void)
{
    tarn_tag tag = 0;
    for (int i = 1; i < 65536; i++) {
        char text[20];
        snprintf(text, sizeof text, "tag %d", i);
        OK(tarn_tag_intern(text, &tag));
        CHECK(tag == i && strcmp(tarn_tag_text(tag), text) == 0);
    }
    GIVES(tarn_tag_intern("one more", &tag), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_tag_intern("tag 5", &tag));
    CHECK(tag == 5);
}

static void the_65536th_text_is_refused_and_the_others_stay(void **state)
{
    (void)state;
    in_child(use_all_tags);
}

/* The three ways of saying that another stream uses a block; each frees it. */
static void free_recorded(void *block)
{
    OK(tarn_record_stream((char *)block + 100, other));
    OK(tarn_free(block));
}

static void free_on(void *block)
{
    OK(tarn_free_on(block, other));
}

static void free_after(void *block)
{
    tarn_event *event = NULL;
    OK(tarn_event_create(0, &event));
    OK(tarn_event_record(event, other));
    OK(tarn_free_after(block, event));
    OK(tarn_event_destroy(event));
}

/* Whether the memory is handed out by one of many allocations of the size. */
static bool is_handed_out(const void *block, size_t size)
{
    void *all[200];
    int count = size < MIB ? 200 : 12;
    bool found = false;
    for (int i = 0; i < count; i++) {
        all[i] = alloc_on(own, size);
        found = found || all[i] == block;
    }
    while (count > 0)
        OK(tarn_free(all[--count]));
    return found;
}

static void
a_block_that_another_stream_uses_is_kept_until_that_work_has_ended_and_no_longer(void **state)
{
    (void)state;
    static void (*const ways[])(void *) = {free_recorded, free_on, free_after};
    static const size_t sizes[] = {700, 100000, 5 * MIB};
    for (size_t way = 0; way < 3; way++) {
        for (size_t i = 0; i < 3; i++) {
            void *beside = alloc_on(own, sizes[i]), *block = alloc_on(own, sizes[i]);
            work_on(other, block, 1, 1000);
            ways[way](block);
            work_on(other, NULL, 0, 9000); /* queued after the free: nobody waits for it */
            tarn_stats stats = stats_of(0);
            CHECK(stats.allocation[0].current == 1 && stats.active[0].current == 2);
            time_pass(999);
            CHECK(!is_handed_out(block, sizes[i]));
            time_pass(1);
            void *large = alloc_on(own, 200 * MIB); /* the ladder looks after blocks that wait */
            OK(tarn_free(large));
            CHECK(stats_of(0).active[0].current == 1);
            CHECK(is_handed_out(block, sizes[i]));
            OK(tarn_free(beside));
            nothing_is_left(0);
        }
    }
}

static void work_queued_between_record_and_free_is_waited_for_as_well(void **state)
{
    (void)state;
    void *block = alloc_on(own, 2 * MIB);
    OK(tarn_record_stream(block, other));
    OK(tarn_record_stream(block, other)); /* twice is once */
    work_on(other, block, 1, 5000);
    OK(tarn_free(block));
    CHECK(!is_handed_out(block, 2 * MIB));
    uint64_t start = time_now();
    OK(tarn_device_trim(0, 0));
    CHECK(time_now() == start + 5000);
    nothing_is_left(0);
}

static void a_use_whose_event_could_not_be_recorded_is_waited_for_all_the_same(void **state)
{
    (void)state;
    void *block = alloc_on(own, 2 * MIB);
    work_on(other, block, 1, 5000);
    OK(tarn_record_stream(block, other));
    OK(tarn_host_fail_set(kind_of("event_record"), 1, true, TARN_ERROR_DRIVER));
    OK(tarn_free(block));
    CHECK(host_fail_hits() > 0);
    CHECK(!is_handed_out(block, 2 * MIB));
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK(!is_handed_out(block, 2 * MIB));
    uint64_t start = time_now();
    OK(tarn_device_trim(0, 0));
    CHECK(time_now() == start + 5000);
    nothing_is_left(0);
}

static void uses_by_the_own_stream_need_no_wait(void **state)
{
    (void)state;
    tarn_event *event = NULL;
    OK(tarn_event_create(0, &event));
    for (int i = 0; i < 3; i++) {
        void *block = alloc_on(own, 2 * MIB);
        work_on(own, block, 1, 1000);
        uint64_t calls = all_calls(0);
        if (i == 0) {
            OK(tarn_record_stream(block, own));
            OK(tarn_free(block));
        } else if (i == 1) {
            OK(tarn_free_on(block, own));
        } else {
            OK(tarn_free_after(block, event)); /* never recorded: finished */
        }
        CHECK(alloc_on(own, 2 * MIB) == block && all_calls(0) == calls);
        OK(tarn_free(block));
    }
    OK(tarn_event_destroy(event));
    nothing_is_left(0);
}

static void a_block_waits_for_every_stream_that_uses_it_on_any_device(void **state)
{
    (void)state;
    tarn_stream third = lease(0), far = lease(1);
    void *block = alloc_on(own, 40 * MIB);
    work_on(other, NULL, 0, 1000);
    work_on(third, NULL, 0, 3000);
    work_on(far, NULL, 0, 5000);
    OK(tarn_record_stream(block, other));
    OK(tarn_record_stream(block, far));
    OK(tarn_free_on(block, third));
    uint64_t start = time_now();
    OK(tarn_device_trim(0, 0));
    CHECK(time_now() == start + 5000 && ledger_of(0).created == 0);
    OK(tarn_stream_return(third));
    OK(tarn_stream_return(far));
    nothing_is_left(0);
}

static void a_stream_that_used_a_block_may_be_retired_before_the_free_or_after(void **state)
{
    (void)state;
    for (int before = 0; before < 2; before++) {
        tarn_stream adopted = 0;
        void *native = native_made(0);
        OK(tarn_stream_adopt(0, native, &adopted));
        void *block = alloc_on(own, 40 * MIB);
        OK(tarn_record_stream(block, adopted));
        work_on(adopted, block, 1, 2000);
        uint64_t start = time_now();
        if (before)
            OK(tarn_stream_retire(adopted));
        OK(tarn_free(block));
        if (!before)
            OK(tarn_stream_retire(adopted));
        OK(machine->work(0, native, NULL, 0, 9000)); /* the native stream goes on: none of the
                                                        block's business */
        CHECK(!is_handed_out(block, 40 * MIB));
        time_pass(2000);
        OK(tarn_device_trim(0, 0));
        CHECK(time_now() == start + 2000 && ledger_of(0).created == 0);
        time_pass(9000);
    }
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    other = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_bytes_are_null_and_no_failure),
        cmocka_unit_test(sizes_that_nothing_can_serve_are_out_of_memory),
        cmocka_unit_test(a_block_is_at_least_as_large_as_asked_for_and_wholly_usable),
        cmocka_unit_test(every_alignment_is_kept_for_every_size),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(what_is_not_a_blocks_start_is_refused_and_changes_nothing),
        cmocka_unit_test(a_second_free_is_a_double_free_wherever_the_block_is),
        cmocka_unit_test(a_block_is_freed_by_any_thread_on_any_current_device),
        cmocka_unit_test(a_block_grows_in_place_into_free_memory_behind_it),
        cmocka_unit_test(a_block_that_cannot_grow_for_want_of_host_memory_stays_as_it_was),
        cmocka_unit_test(a_small_block_grows_within_its_slot),
        cmocka_unit_test(a_block_that_grows_into_the_large_class_is_counted_there),
        cmocka_unit_test(what_is_known_of_a_block_is_told_for_any_address_in_it),
        cmocka_unit_test(a_tag_is_the_same_for_the_same_text),
        cmocka_unit_test(
            a_block_that_another_stream_uses_is_kept_until_that_work_has_ended_and_no_longer),
        cmocka_unit_test(work_queued_between_record_and_free_is_waited_for_as_well),
        cmocka_unit_test(a_use_whose_event_could_not_be_recorded_is_waited_for_all_the_same),
        cmocka_unit_test(uses_by_the_own_stream_need_no_wait),
        cmocka_unit_test(a_block_waits_for_every_stream_that_uses_it_on_any_device),
        cmocka_unit_test(a_stream_that_used_a_block_may_be_retired_before_the_free_or_after),
    };
    const struct CMUnitTest before_use[] = {
        cmocka_unit_test(the_65536th_text_is_refused_and_the_others_stay),
    };
    host_start_with(2, 1024 * MIB);
    if (cmocka_run_group_tests(before_use, NULL, NULL))
        return 1;
    return cmocka_run_group_tests(tests, set_up, NULL);
}
