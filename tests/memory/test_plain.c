/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Plain segments in the default pool, with PyTorch's numbers. The checker of the host device is on,
 * so that a segment which goes back while work uses it would be reported. */
#include "memory/arena/arena.h"
#include "memory/watch/verify.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (512 * MIB)
#define KIB ((size_t)1024)

static tarn_stream own, other;

static int64_t segments(void)
{
    return stats_of(0).segment[0].current;
}

static int64_t reserved(void)
{
    return stats_of(0).reserved_bytes[0].current;
}

static void a_request_gets_the_segment_and_the_block_of_the_table(void **state)
{
    (void)state;
    static const struct {
        size_t size, block, segment;
        bool large;
    } rows[] = {
        {1, 512, 2 * MIB, false},
        {512, 512, 2 * MIB, false},
        {513, 1024, 2 * MIB, false},
        {10 * KIB + 1, 10 * KIB + 512, 2 * MIB, false},
        {MIB - 1, MIB, 2 * MIB, false},
        {MIB, MIB, 2 * MIB, false},
        {MIB + 1, MIB + 512, 20 * MIB, true},
        {3 * MIB / 2, 3 * MIB / 2, 20 * MIB, true},
        {10 * MIB - 512, 10 * MIB - 512, 20 * MIB, true},
        {10 * MIB - 511, 10 * MIB, 10 * MIB, true},
        {10 * MIB, 10 * MIB, 10 * MIB, true},
        {33 * MIB + 1, 34 * MIB, 34 * MIB, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *pointer = alloc_on(own, rows[i].size);
        CHECK(usable_size(pointer) == rows[i].block && segments() == 1 &&
              reserved() == (int64_t)rows[i].segment);
        CHECK(stats_of(0)
                  .segment[rows[i].large ? TARN_STAT_LARGE_POOL : TARN_STAT_SMALL_POOL]
                  .current == 1);
        CHECK(calls_of(0, "create") == 0 && ledger_of(0).plain == 1);
        memset(pointer, 1, rows[i].size);
        verify(0);
        OK(tarn_free(pointer));
        nothing_is_left(0);
    }
}

static void what_is_left_of_a_large_block_is_cut_off_above_a_mebibyte(void **state)
{
    (void)state;
    void *pointer = alloc_on(own, 10 * MIB + 512); /* of 12 MiB; 2 MiB less 512 are left */
    CHECK(usable_size(pointer) == 10 * MIB + 512 && reserved() == (int64_t)(12 * MIB));
    CHECK(stats_of(0).inactive_split_bytes[0].current == (int64_t)(2 * MIB - 512));
    OK(tarn_free(pointer));
    OK(tarn_device_trim(0, 0));
    pointer = alloc_on(own, 11 * MIB); /* exactly 1 MiB is left */
    CHECK(usable_size(pointer) == 12 * MIB && stats_of(0).inactive_split[0].current == 0);
    CHECK(stats_of(0).requested_bytes[0].current == (int64_t)(11 * MIB));
    CHECK(stats_of(0).allocated_bytes[0].current == (int64_t)(12 * MIB));
    OK(tarn_free(pointer));
    nothing_is_left(0);
    pointer = alloc_on(own, 11 * MIB - 512); /* a little more */
    CHECK(usable_size(pointer) == 11 * MIB - 512 && stats_of(0).inactive_split[0].current == 1);
    OK(tarn_free(pointer));
    nothing_is_left(0);
}

static void the_low_part_is_handed_out_and_neighbours_join(void **state)
{
    (void)state;
    char *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = alloc_on(own, 4 * MIB);
    for (int i = 1; i < 4; i++)
        CHECK(blocks[i] == blocks[0] + (size_t)i * 4 * MIB);
    CHECK(segments() == 1);
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[2]));
    CHECK(stats_of(0).inactive_split[0].current == 3); /* the end of the segment too */
    OK(tarn_free(blocks[1]));
    CHECK(stats_of(0).inactive_split[0].current == 2);
    CHECK(alloc_on(own, 12 * MIB) == (void *)blocks[0] && segments() == 1);
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[3]));
    nothing_is_left(0);
}

static void the_smallest_that_fits_at_the_lowest_address_serves(void **state)
{
    (void)state;
    char *a = alloc_on(own, 64 * MIB), *b = alloc_on(own, 40 * MIB), *c = alloc_on(own, 40 * MIB);
    OK(tarn_free(a));
    OK(tarn_free(b));
    OK(tarn_free(c));
    char *first = b < c ? b : c, *second = b < c ? c : b;
    CHECK(alloc_on(own, 40 * MIB) == first && alloc_on(own, 39 * MIB) == second &&
          alloc_on(own, 39 * MIB) == a);
    OK(tarn_free(first));
    OK(tarn_free(second));
    OK(tarn_free(a));
    nothing_is_left(0);
}

static void memory_of_one_stream_serves_another_only_through_the_driver(void **state)
{
    (void)state;
    uint64_t frees = calls_of(0, "free");
    void *mine = alloc_on(own, 200 * MIB);
    OK(tarn_free(mine));
    void *theirs = alloc_on(other, 200 * MIB);
    CHECK(segments() == 2 && calls_of(0, "free") == frees);
    void *more = alloc_on(other, 200 * MIB); /* 512 are all there is */
    CHECK(segments() == 2 && calls_of(0, "free") == frees + 1 && stats_of(0).num_alloc_retries > 0);
    OK(tarn_free(theirs));
    OK(tarn_free(more));
    nothing_is_left(0);
}

static void a_segment_goes_back_whole_and_when_it_is_idle(void **state)
{
    (void)state;
    char *low = alloc_on(own, 4 * MIB), *high = alloc_on(own, 4 * MIB);
    OK(tarn_free(low));
    OK(tarn_device_trim(0, 0));
    CHECK(segments() == 1); /* half of it is live */
    work_on(own, high, 4 * MIB, 1000);
    uint64_t waited = ledger_of(0).waited_ns;
    OK(tarn_free(high));
    void *wide = alloc_on(other, 500 * MIB); /* waits for the work, then frees */
    CHECK(segments() == 1 && ledger_of(0).waited_ns >= waited + 1000);
    OK(tarn_free(wide));
    nothing_is_left(0);
}

static void blocks_that_begin_in_one_page_are_told_apart(void **state)
{
    (void)state;
    char *blocks[40];
    for (int i = 0; i < 40; i++)
        blocks[i] = alloc_on(own, 9 * KIB);
    for (int i = 1; i < 40; i++)
        CHECK(blocks[i] == blocks[0] + (size_t)i * 9 * KIB);
    verify(0);
    tarn_block_info info = {.size = sizeof info};
    for (int i = 0; i < 40; i++) {
        OK(tarn_pointer_info_get(blocks[i] + 9 * KIB - 1, &info));
        CHECK(info.base == blocks[i] && info.usable_size == 9 * KIB);
    }
    for (int i = 0; i < 40; i += 2)
        OK(tarn_free(blocks[i]));
    verify(0);
    for (int i = 0; i < 40; i += 2) {
        GIVES(tarn_free(blocks[i]), TARN_ERROR_DOUBLE_FREE);
        GIVES(tarn_free(blocks[i + 1] + 512), TARN_ERROR_INVALID_POINTER);
    }
    for (int i = 39; i > 0; i -= 2)
        OK(tarn_free(blocks[i]));
    GIVES(tarn_free(blocks[0] + MIB), TARN_ERROR_DOUBLE_FREE);
    OK(tarn_device_trim(0, 0));
    GIVES(tarn_free(blocks[0]), TARN_ERROR_INVALID_POINTER); /* not tarn's any more */
    nothing_is_left(0);
}

static void an_address_far_inside_a_block_is_found(void **state)
{
    (void)state;
    char *small = alloc_on(own, 5 * MIB), *pointer = alloc_on(own, 100 * MIB);
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(pointer + 99 * MIB + 3, &info));
    CHECK(info.base == pointer);
    OK(tarn_pointer_info_get(small + 5 * MIB - 1, &info));
    CHECK(info.base == small);
    GIVES(tarn_pointer_info_get(small + 5 * MIB, &info), TARN_ERROR_INVALID_POINTER);
    OK(tarn_free(small));
    OK(tarn_free(pointer));
    nothing_is_left(0);
}

static void alignments_are_kept(void **state)
{
    (void)state;
    uint64_t random = 7;
    void *blocks[64];
    for (int i = 0; i < 64; i++) {
        tarn_alloc_options options = {.size = sizeof options,
                                      .device = TARN_CURRENT_DEVICE,
                                      .stream = own,
                                      .alignment = (size_t)1 << (i % 22)};
        OK(tarn_alloc(&options, 1 + random_next(&random) % (3 * MIB), &blocks[i]));
        CHECK((uintptr_t)blocks[i] % options.alignment == 0);
        verify(0);
    }
    for (int i = 0; i < 64; i++)
        OK(tarn_free(blocks[i]));
    nothing_is_left(0);
}

static void a_block_grows_into_free_memory_behind_it(void **state)
{
    (void)state;
    char *pointer = alloc_on(own, 4 * MIB);
    OK(tarn_extend(pointer, 8 * MIB));
    CHECK(usable_size(pointer) == 8 * MIB);
    GIVES(tarn_extend(pointer, 24 * MIB), TARN_ERROR_NO_ROOM);
    verify(0);
    OK(tarn_free(pointer));
    nothing_is_left(0);
}

static void a_block_that_another_stream_uses_waits(void **state)
{
    (void)state;
    char *pointer = alloc_on(own, 15 * MIB);
    work_on(other, pointer, 15 * MIB, 1000);
    OK(tarn_record_stream(pointer, other));
    OK(tarn_free(pointer));
    char *second = alloc_on(own, 15 * MIB);
    CHECK(second != pointer && segments() == 2);
    time_pass(2000);
    char *third = alloc_on(own, 15 * MIB);
    CHECK(third == pointer && segments() == 2);
    OK(tarn_free(second));
    OK(tarn_free(third));
    nothing_is_left(0);
}

static void a_limit_holds_and_a_shared_segment_that_does_not_fit_is_made_smaller(void **state)
{
    (void)state;
    OK(tarn_device_limit_set(0, 12 * MIB));
    char *pointer = alloc_on(own, 5 * MIB); /* 20 MiB are too much, 6 are not */
    CHECK(reserved() == (int64_t)(6 * MIB));
    void *more = NULL;
    GIVES(tarn_alloc_on(own, 8 * MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_free(pointer));
    more = alloc_on(own, 11 * MIB); /* by giving the first back */
    CHECK(reserved() == (int64_t)(12 * MIB) && segments() == 1);
    OK(tarn_free(more));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    nothing_is_left(0);
}

static void retired_streams_leave_their_segments_to_others(void **state)
{
    (void)state;
    tarn_stream adopted = 0;
    OK(tarn_stream_adopt(0, native_made(0), &adopted));
    void *early = alloc_on(adopted, 30 * MIB), *late = alloc_on(adopted, 30 * MIB);
    OK(tarn_free(early));
    OK(tarn_stream_retire(adopted));
    uint64_t calls = calls_of(0, "alloc") + calls_of(0, "free");
    CHECK(alloc_on(own, 30 * MIB) == early);
    OK(tarn_free(late));
    CHECK(alloc_on(other, 29 * MIB) == late);
    CHECK(calls_of(0, "alloc") + calls_of(0, "free") == calls && segments() == 2);
    verify(0);
    OK(tarn_free(early));
    OK(tarn_free(late));
    nothing_is_left(0);
}

static void a_slab_out_of_a_large_segment_leaves_its_neighbours_alone(void **state)
{
    (void)state;
    OK(tarn_device_limit_set(0, 20 * MIB)); /* so that there is no segment for small blocks */
    char *low = alloc_on(own, 5 * MIB), *hole = alloc_on(own, MIB + 512),
         *high = alloc_on(own, 8 * MIB);
    CHECK(hole == low + 5 * MIB && high == hole + MIB + 512);
    OK(tarn_free(hole));
    char *rest = alloc_on(own, 6 * MIB - 512);
    char *small = alloc_on(own, 100);
    CHECK(small >= hole && small < high && segments() == 1);
    verify(0);
    OK(tarn_free(high));
    OK(tarn_free(low));
    OK(tarn_free(rest));
    OK(tarn_free(small));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    nothing_is_left(0);
}

static void segments_that_were_not_used_for_long_go_before_a_new_one_is_made(void **state)
{
    (void)state;
    OK(tarn_configuration_set("garbage_collection_threshold:0.5")); /* of 512 MiB */
    char *old = alloc_on(own, 100 * MIB), *older = alloc_on(other, 98 * MIB),
         *used = alloc_on(own, 90 * MIB);
    OK(tarn_free(old));
    OK(tarn_free(older));
    for (int i = 0; i < 20; i++) {
        OK(tarn_free(used));
        CHECK(alloc_on(own, 90 * MIB) == used);
    }
    OK(tarn_free(used));
    CHECK(segments() == 3);
    char *wide = alloc_on(own, 110 * MIB);
    CHECK(segments() == 2 && reserved() == (int64_t)(200 * MIB)); /* both old ones went */
    CHECK(alloc_on(own, 90 * MIB) == used);
    OK(tarn_configuration_set("all:default"));
    OK(tarn_free(wide));
    OK(tarn_free(used));
    nothing_is_left(0);
}

/* What is still in use cannot go, however old it is. It does not count for the age from which
 * others go. */
static void an_old_segment_in_use_keeps_no_younger_one(void **state)
{
    (void)state;
    OK(tarn_configuration_set("garbage_collection_threshold:0.5"));
    void *old = alloc_on(other, 100 * MIB), *used = alloc_on(own, 60 * MIB);
    work_on(other, old, 1, 1000000000);
    OK(tarn_free(old));
    for (int i = 0; i < 20; i++) {
        OK(tarn_free(used));
        used = alloc_on(own, 60 * MIB);
    }
    OK(tarn_free(alloc_on(own, 98 * MIB)));
    CHECK(segments() == 3 && reserved() == (int64_t)(258 * MIB));
    void *wide = alloc_on(own, 110 * MIB);
    CHECK(segments() == 3 && reserved() == (int64_t)(270 * MIB)); /* only the 98 MiB went */
    verify(0);
    OK(tarn_configuration_set("all:default"));
    OK(tarn_free(wide));
    OK(tarn_free(used));
    time_pass(1000000000);
    nothing_is_left(0);
}

static void below_the_threshold_nothing_goes(void **state)
{
    (void)state;
    OK(tarn_configuration_set("garbage_collection_threshold:0.5"));
    OK(tarn_device_limit_set(0, 400 * MIB));
    void *first = alloc_on(own, 180 * MIB);
    OK(tarn_free(first));
    void *second = alloc_on(own, 190 * MIB); /* 180 of 400 are not above a half */
    CHECK(segments() == 2);
    OK(tarn_free(second));
    OK(tarn_configuration_set("all:default"));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    nothing_is_left(0);
}

static void the_settings_of_oversize_segments_count_and_are_echoed(void **state)
{
    (void)state;
    CHECK(stats_of(0).max_split_size == -1);
    OK(tarn_configuration_set(
        "max_split_size_mb:64,max_non_split_rounding_mb:30,large_segment_size_mb:30"));
    CHECK(stats_of(0).max_split_size == (int64_t)(64 * MIB));
    void *shared = alloc_on(own, 5 * MIB), *oversize = alloc_on(own, 70 * MIB);
    CHECK(reserved() == (int64_t)(100 * MIB) && stats_of(0).oversize_segments.current == 1);
    OK(tarn_free(oversize));
    void *less = alloc_on(own, 60 * MIB);
    CHECK(less != oversize && segments() == 3);
    OK(tarn_free(less));
    OK(tarn_free(shared));
    OK(tarn_device_trim(0, 0));
    CHECK(stats_of(0).oversize_segments.current == 0 && stats_of(0).oversize_segments.freed == 1);
    OK(tarn_configuration_set("all:default"));
    CHECK(stats_of(0).max_split_size == -1);
    nothing_is_left(0);
}

/* What was counted as oversize goes as that, and what was not does not, whatever the settings say
 * by then. */
static void oversize_counts_survive_a_change_of_the_limit(void **state)
{
    (void)state;
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    OK(tarn_configuration_set("max_split_size_mb:64"));
    void *wide = alloc_on(own, 70 * MIB), *less = alloc_on(own, 50 * MIB);
    CHECK(stats_of(0).oversize_allocations.current == 1 &&
          stats_of(0).oversize_segments.current == 1);
    OK(tarn_configuration_set("max_split_size_mb:40"));
    CHECK(stats_of(0).oversize_allocations.current == 1);
    void *middle = alloc_on(own, 45 * MIB);
    CHECK(stats_of(0).oversize_allocations.current == 2 &&
          stats_of(0).oversize_segments.current == 2);
    OK(tarn_free(less)); /* above the limit of now */
    CHECK(stats_of(0).oversize_allocations.current == 2);
    OK(tarn_configuration_set("max_split_size_mb:200"));
    OK(tarn_free_on(middle, other)); /* below it */
    CHECK(stats_of(0).oversize_allocations.current == 1);
    OK(tarn_configuration_set("all:default"));
    /* A segment that is still there */
    OK(tarn_host_fail_set(kind_of("free"), 1, false, TARN_ERROR_DRIVER));
    OK(tarn_stream_synchronize(other));
    GIVES(tarn_device_trim(0, 0), TARN_ERROR_DRIVER);
    OK(tarn_device_trim(0, 0));
    CHECK(stats_of(0).oversize_segments.current == 1);
    OK(tarn_free(wide));
    CHECK(stats_of(0).oversize_allocations.current == 0);
    OK(tarn_device_trim(0, 0));
    tarn_stats stats = stats_of(0);
    CHECK(stats.oversize_segments.current == 0 && stats.oversize_segments.allocated == 2 &&
          stats.oversize_segments.freed == 2);
    CHECK(stats.oversize_allocations.allocated == 2 && stats.oversize_allocations.freed == 2);
    nothing_is_left(0);
}

/* The pool has a limit of its own; its segment goes to the default pool, which has another one. */
static void oversize_counts_are_each_pools_own(void **state)
{
    (void)state;
    tarn_pool *pool = NULL;
    tarn_stats stats = {.size = sizeof stats};
    OK(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options),
                                             .sizes = SIZES(.max_split = 30 * MIB)},
                        &pool));
    OK(tarn_configuration_set("max_split_size_mb:60"));
    void *block = NULL, *wide = NULL;
    OK(tarn_pool_alloc(pool, own, 50 * MIB, &block));
    OK(tarn_pool_alloc(pool, own, 80 * MIB, &wide));
    OK(tarn_pool_stats_get(pool, &stats));
    CHECK(stats.oversize_allocations.current == 2 && stats.oversize_segments.current == 2);
    CHECK(stats_of(0).oversize_allocations.current == 1 &&
          stats_of(0).oversize_segments.current == 1);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool)); /* left behind, with a live block */
    CHECK(stats_of(0).oversize_allocations.current == 1 &&
          stats_of(0).oversize_segments.current == 1);
    OK(tarn_configuration_set("all:default"));
    OK(tarn_free(wide));
    void *next = alloc_on(own, 80 * MIB);
    CHECK(stats_of(0).oversize_allocations.current == 0);
    OK(tarn_free(next));
    OK(tarn_device_trim(0, 0));
    CHECK(stats_of(0).oversize_segments.current == 0 &&
          stats_of(0).oversize_allocations.current == 0);
    nothing_is_left(0);
}

static void a_segment_that_the_driver_does_not_take_back_is_offered_again(void **state)
{
    (void)state;
    void *block = alloc_on(own, 30 * MIB);
    OK(tarn_free(block));
    OK(tarn_host_fail_set(kind_of("free"), 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_device_trim(0, 0), TARN_ERROR_DRIVER);
    CHECK(segments() == 1);
    verify(0);
    void *next = alloc_on(own, 30 * MIB); /* what is stuck serves nobody */
    CHECK(segments() == 2);
    OK(tarn_free(next));
    OK(tarn_device_trim(0, 0));
    CHECK(segments() == 0);
    nothing_is_left(0);
}

/* What a random sequence does to one stream or two, beside what the driver and the counters say. */
static void a_random_sequence_keeps_every_invariant(void **state)
{
    (void)state;
    enum { SLOTS = 96, STEPS = 6000 };
    struct {
        unsigned char *start;
        size_t size;
        unsigned char value;
    } blocks[SLOTS] = {{0}};
    uint64_t random = 20251120;
    for (int step = 0; step < STEPS; step++) {
        size_t slot = random_next(&random) % SLOTS;
        tarn_stream stream = random_next(&random) % 4 ? own : other;
        if (blocks[slot].start) {
            CHECK(blocks[slot].start[0] == blocks[slot].value &&
                  blocks[slot].start[blocks[slot].size - 1] == blocks[slot].value);
            if (random_next(&random) % 8 == 0) {
                OK(tarn_record_stream(blocks[slot].start, other));
                work_on(other, blocks[slot].start, blocks[slot].size, random_next(&random) % 500);
            }
            OK(tarn_free(blocks[slot].start));
            blocks[slot].start = NULL;
        } else {
            static const size_t most[] = {600, 9000, 100000, 2 * MIB, 3 * MIB, 24 * MIB};
            size_t size = 1 + random_next(&random) % most[random_next(&random) % 6];
            void *pointer = NULL;
            tarn_status status = tarn_alloc_on(stream, size, &pointer);
            if (status == TARN_ERROR_OUT_OF_MEMORY)
                continue;
            OK(status);
            blocks[slot].start = pointer;
            blocks[slot].size = size;
            blocks[slot].value = (unsigned char)step;
            blocks[slot].start[0] = blocks[slot].start[size - 1] = (unsigned char)step;
        }
        if (random_next(&random) % 64 == 0)
            time_pass(1000);
        if (random_next(&random) % 400 == 0)
            OK(tarn_device_trim(0, random_next(&random) % MEMORY));
        if (step % 50 == 0)
            verify(0);
    }
    for (size_t i = 0; i < SLOTS; i++)
        OK(tarn_free(blocks[i].start));
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    other = lease(0);
    OK(tarn_host_check_set(true, NULL, NULL));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_gets_the_segment_and_the_block_of_the_table),
        cmocka_unit_test(what_is_left_of_a_large_block_is_cut_off_above_a_mebibyte),
        cmocka_unit_test(the_low_part_is_handed_out_and_neighbours_join),
        cmocka_unit_test(the_smallest_that_fits_at_the_lowest_address_serves),
        cmocka_unit_test(memory_of_one_stream_serves_another_only_through_the_driver),
        cmocka_unit_test(a_segment_goes_back_whole_and_when_it_is_idle),
        cmocka_unit_test(blocks_that_begin_in_one_page_are_told_apart),
        cmocka_unit_test(an_address_far_inside_a_block_is_found),
        cmocka_unit_test(alignments_are_kept),
        cmocka_unit_test(a_block_grows_into_free_memory_behind_it),
        cmocka_unit_test(a_block_that_another_stream_uses_waits),
        cmocka_unit_test(a_limit_holds_and_a_shared_segment_that_does_not_fit_is_made_smaller),
        cmocka_unit_test(retired_streams_leave_their_segments_to_others),
        cmocka_unit_test(a_slab_out_of_a_large_segment_leaves_its_neighbours_alone),
        cmocka_unit_test(segments_that_were_not_used_for_long_go_before_a_new_one_is_made),
        cmocka_unit_test(an_old_segment_in_use_keeps_no_younger_one),
        cmocka_unit_test(below_the_threshold_nothing_goes),
        cmocka_unit_test(the_settings_of_oversize_segments_count_and_are_echoed),
        cmocka_unit_test(oversize_counts_survive_a_change_of_the_limit),
        cmocka_unit_test(oversize_counts_are_each_pools_own),
        cmocka_unit_test(a_segment_that_the_driver_does_not_take_back_is_offered_again),
        cmocka_unit_test(a_random_sequence_keeps_every_invariant),
    };
    OK(tarn_configuration_set("segments:plain"));
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
