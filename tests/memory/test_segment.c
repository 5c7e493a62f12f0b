/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pools of plain segments: of a caller's allocator, without splits, with sizes of their own, for
 * graphs; and what the settings say of them. The device's default pool is of virtual memory. */
#include "base/pages.h"
#include "memory/pool/pool.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MEMORY (512 * MIB)
#define KIB ((size_t)1024)
#define SPACE (1024 * MIB)

static tarn_stream own, other;

/* An allocator with addresses of its own. Every segment begins `gap` bytes behind the one before
 * it. */
struct source {
    char *space;
    size_t used, gap, live, limit; /* bytes */
    int allocs, frees, gone;
    size_t last; /* size */
    bool calls_tarn;
    tarn_stream stream;
};

static void *source_alloc(size_t size, int device, void *stream, void *user)
{
    struct source *source = user;
    CHECK(device == 0 && stream == native_of(source->stream));
    source->allocs++;
    if (source->calls_tarn) {
        void *pointer = alloc_on(own, 3 * MIB);
        OK(tarn_free(pointer));
        OK(tarn_device_trim(0, 0));
        CHECK(stats_of(0).num_ooms == 0);
    }
    if (source->live + size > source->limit)
        return NULL;
    CHECK(source->used + size <= SPACE);
    void *pointer = source->space + source->used;
    source->used += size + source->gap;
    source->live += size;
    source->last = size;
    return pointer;
}

static void source_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    struct source *source = user;
    CHECK(device == 0 && (stream == native_of(own) || stream == native_of(other)));
    CHECK((char *)pointer >= source->space && (char *)pointer + size <= source->space + SPACE);
    CHECK(!source->gone);
    source->frees++;
    source->live -= size;
    if (source->calls_tarn)
        OK(tarn_device_trim(0, 0));
}

static void source_gone(void *user)
{
    struct source *source = user;
    CHECK(source->live == 0);
    source->gone++;
}

static struct source source_make(void)
{
    struct source source = {.limit = SIZE_MAX, .stream = own};
    source.space = mmap(NULL, SPACE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(source.space != MAP_FAILED);
    return source;
}

static void source_end(struct source *source)
{
    CHECK(source->gone == 1 && source->live == 0);
    CHECK(munmap(source->space, SPACE) == 0);
    nothing_is_left(0);
}

static tarn_pool *pool_of_source(struct source *source, tarn_pool_options options)
{
    const tarn_pool_allocator allocator = {sizeof allocator, source_alloc, source_free, source_gone,
                                           source};
    options.allocator = &allocator;
    return pool_with(options);
}

/* Allocators ----------------------------------------------------------------------------------- */

static void an_allocator_gives_whole_segments_and_hears_of_the_end(void **state)
{
    (void)state;
    struct source source = source_make();
    tarn_pool *pool = pool_of_source(&source, (tarn_pool_options){0});
    const tarn_pool_allocator *known = pool_info_of(pool).allocator;
    CHECK(known && known->alloc == source_alloc && known->user == &source &&
          known->size == sizeof *known);
    CHECK(source.allocs == 0);
    void *first = alloc_in(pool, own, MIB), *second = alloc_in(pool, own, MIB);
    CHECK(source.allocs == 1 && source.last == 2 * MIB);
    void *third = alloc_in(pool, own, MIB), *large = alloc_in(pool, own, 3 * MIB / 2);
    CHECK(source.allocs == 3 && source.last == 20 * MIB);
    memset(large, 1, 3 * MIB / 2);
    verify(0);
    CHECK(pool_stats_of(pool).reserved_bytes[0].current == (int64_t)(24 * MIB) &&
          pool_stats_of(pool).segment[0].current == 3);
    OK(tarn_free(first));
    OK(tarn_free(second));
    OK(tarn_free(third));
    OK(tarn_free(large));
    CHECK(source.frees == 0);
    OK(tarn_pool_trim(pool, 0));
    CHECK(source.frees == 3 && source.gone == 0);
    first = alloc_in(pool, own, 1);
    OK(tarn_free(first));
    OK(tarn_pool_release(pool));
    CHECK(source.frees == 4 && source.gone == 1);
    source_end(&source);
}

static void an_allocator_outlives_its_pool_while_a_block_does(void **state)
{
    (void)state;
    struct source source = source_make();
    tarn_pool *pool = pool_of_source(&source, (tarn_pool_options){0});
    void *keeps = alloc_in(pool, own, 30 * MIB), *goes = alloc_in(pool, own, 30 * MIB);
    OK(tarn_free(goes));
    OK(tarn_pool_release(pool));
    CHECK(source.frees == 1 && source.gone == 0);
    memset(keeps, 1, 30 * MIB);
    OK(tarn_free(keeps));
    CHECK(source.gone == 0);
    OK(tarn_device_trim(0, 0));
    CHECK(source.frees == 2 && source.gone == 1);
    source_end(&source);
}

static void an_allocator_without_memory_is_asked_again_after_others_gave_theirs_back(void **state)
{
    (void)state;
    struct source source = source_make();
    source.limit = 70 * MIB;
    tarn_pool *pool = pool_of_source(&source, (tarn_pool_options){0});
    void *a = alloc_in(pool, own, 30 * MIB), *b = alloc_in(pool, own, 30 * MIB), *c = NULL;
    uint64_t ooms = (uint64_t)pool_stats_of(pool).num_ooms;
    GIVES(tarn_pool_alloc(pool, own, 30 * MIB, &c), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!c && pool_stats_of(pool).num_ooms == (int64_t)ooms + 1);
    OK(tarn_free(a));
    OK(tarn_free(b));
    c = alloc_in(pool, own, 60 * MIB); /* both go back for it */
    CHECK(source.frees == 2 && source.live == 60 * MIB);
    OK(tarn_free(c));
    OK(tarn_pool_release(pool));
    source_end(&source);
}

static void an_allocator_may_call_tarn(void **state)
{
    (void)state;
    struct source source = source_make();
    source.calls_tarn = true;
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    tarn_pool *pool = pool_of_source(&source, (tarn_pool_options){0});
    void *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = alloc_in(pool, own, 25 * MIB);
    for (int i = 0; i < 4; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_pool_trim(pool, 50 * MIB));
    void *wide = alloc_on(other, 400 * MIB);
    OK(tarn_free(wide));
    OK(tarn_pool_release(pool));
    source_end(&source);
}

static void busy_segments_of_an_allocator_wait(void **state)
{
    (void)state;
    struct source source = source_make();
    tarn_pool *pool = pool_of_source(&source, (tarn_pool_options){0});
    void *block = alloc_in(pool, own, 30 * MIB);
    OK(tarn_host_work(0, native_of(own), NULL, 0, 1000));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    CHECK(source.frees == 0 && source.gone == 0);
    time_pass(2000);
    OK(tarn_device_trim(0, 0));
    source_end(&source);
}

static void segments_may_begin_anywhere(void **state)
{
    (void)state;
    struct source source = source_make();
    source.gap = 512;
    tarn_pool *pool = pool_of_source(
        &source, (tarn_pool_options){.sizes = SIZES(.small_segment = 5 * 512, .rounding = 512)});
    uint64_t random = 5;
    enum { SLOTS = 200 };
    unsigned char *blocks[SLOTS] = {NULL};
    for (int step = 0; step < 4000; step++) {
        size_t slot = random_next(&random) % SLOTS;
        if (blocks[slot]) {
            size_t size = usable_size(blocks[slot]);
            CHECK(blocks[slot][0] == (unsigned char)slot &&
                  blocks[slot][size - 1] == (unsigned char)slot);
            tarn_block_info info = {.size = sizeof info};
            OK(tarn_pointer_info_get(blocks[slot] + random_next(&random) % size, &info));
            CHECK(info.base == blocks[slot]);
            OK(tarn_free(blocks[slot]));
            GIVES(tarn_free(blocks[slot]), TARN_ERROR_DOUBLE_FREE);
            blocks[slot] = NULL;
            continue;
        }
        size_t size = 1 + random_next(&random) % (random_next(&random) % 8 ? 6000 : 200000);
        tarn_stream stream = random_next(&random) % 2 ? own : other;
        source.stream = stream;
        if (source.used + size + MIB > SPACE)
            break;
        void *pointer = NULL;
        OK(tarn_pool_alloc(pool, stream, size, &pointer));
        blocks[slot] = pointer;
        memset(pointer, (int)slot, usable_size(pointer));
        if (step % 100 == 0)
            verify(0);
        if (step % 16 == 0)
            OK(tarn_pool_trim(pool, random_next(&random) % (64 * KIB)));
    }
    CHECK(source.allocs > 60);
    for (size_t i = 0; i < SLOTS; i++)
        OK(tarn_free(blocks[i]));
    source.stream = own;
    OK(tarn_pool_release(pool));
    source_end(&source);
}

static void what_an_allocator_must_not_give_is_refused(void **state)
{
    (void)state;
    struct source source = source_make();
    void *pointer = NULL;
    tarn_pool *pool = pool_of_source(&source, (tarn_pool_options){0});
    source.used = 256;
    GIVES(tarn_pool_alloc(pool, own, MIB, &pointer), TARN_ERROR_DRIVER);
    CHECK(source.frees == 1 && source.live == 0);
    source.used = 0;
    pointer = alloc_in(pool, own, 2 * MIB);
    source.used = MIB; /* inside of the first */
    void *second = NULL;
    GIVES(tarn_pool_alloc(pool, own, MIB, &second), TARN_ERROR_DRIVER);
    CHECK(!second && source.frees == 2);
    source.used = 40 * MIB;
    second = alloc_in(pool, own, MIB);
    OK(tarn_free(pointer));
    OK(tarn_free(second));
    OK(tarn_pool_release(pool));
    source_end(&source);
}

static void a_pool_of_an_allocator_serves_the_default_pool_when_it_says_so(void **state)
{
    (void)state;
    struct source source = source_make();
    source.limit = 80 * MIB;
    tarn_pool *pool = pool_of_source(&source, (tarn_pool_options){.use_on_oom = true});
    void *lent = alloc_in(pool, own, 40 * MIB);
    OK(tarn_free(lent));
    void *all = alloc_on(own, 500 * MIB), *block = alloc_on(own, 38 * MIB);
    CHECK(block == lent);
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(block, &info));
    CHECK(info.pool.second != 0);
    OK(tarn_free(block));
    CHECK(alloc_in(pool, own, 40 * MIB) == lent);
    OK(tarn_free(lent));
    OK(tarn_free(all));
    OK(tarn_pool_release(pool));
    source_end(&source);
}

static void meaningless_options_are_refused(void **state)
{
    (void)state;
    const tarn_pool_allocator allocator = {sizeof allocator, source_alloc, source_free, NULL, NULL},
                              half = {sizeof half, source_alloc, NULL, NULL, NULL},
                              odd = {8, source_alloc, source_free, NULL, NULL};
    const tarn_pool_options refused[] = {
        {.size = 1},
        {.size = sizeof *refused, .segments = TARN_SEGMENTS_EXACT + 1},
        {.size = sizeof *refused, .allocator = &half},
        {.size = sizeof *refused, .allocator = &odd},
        {.size = sizeof *refused, .segments = TARN_SEGMENTS_VIRTUAL, .allocator = &allocator},
        {.size = sizeof *refused, .segments = TARN_SEGMENTS_VIRTUAL, .no_split = true},
        {.size = sizeof *refused,
         .segments = TARN_SEGMENTS_VIRTUAL,
         .sizes = SIZES(.rounding = 512)},
        {.size = sizeof *refused, .sizes = SIZES(.small_segment = 511)},
        {.size = sizeof *refused, .sizes = SIZES(.max_split = (size_t)1 << 61)},
    };
    tarn_pool *pool = NULL;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        GIVES(tarn_pool_create(&refused[i], &pool), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(!pool);
    pool = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_VIRTUAL});
    CHECK(!pool_info_of(pool).allocator);
    OK(tarn_pool_release(pool));
}

/* One attempt, of which any step may fail for lack of host memory. */
static tarn_status make_and_use(struct source *source)
{
    const tarn_pool_allocator allocator = {sizeof allocator, source_alloc, source_free, source_gone,
                                           source};
    const tarn_pool_options options = {.size = sizeof options, .allocator = &allocator};
    tarn_pool *pool = NULL;
    void *small = NULL, *large = NULL;
    tarn_status status = tarn_pool_create(&options, &pool);
    if (status)
        return status;
    status = tarn_pool_alloc(pool, own, 1000, &small);
    tarn_status second = tarn_pool_alloc(pool, own, 30 * MIB, &large);
    OK(tarn_free(small));
    OK(tarn_free(large));
    OK(tarn_pool_release(pool));
    return status ? status : second;
}

static void any_failure_of_host_memory_leaves_nothing(void **state)
{
    (void)state;
    for (uint64_t nth = 1, hits = 1; hits; nth++) {
        struct source source = source_make();
        pages_fail(nth, false);
        tarn_status status = make_and_use(&source);
        hits = pages_fail_hits();
        pages_fail(0, false);
        CHECK(status == TARN_OK || (hits && status == TARN_ERROR_OUT_OF_HOST_MEMORY));
        OK(tarn_device_trim(0, 0));
        CHECK(source.allocs == source.frees &&
              source.gone == (source.allocs || status == TARN_OK || source.gone));
        CHECK(munmap(source.space, SPACE) == 0);
        verify(0);
    }
    nothing_is_left(0);
}

/* Rules ---------------------------------------------------------------------------------------- */

static void without_splits_a_block_has_a_segment_for_itself(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){.no_split = true});
    char *first = alloc_in(pool, own, 4 * MIB), *second = alloc_in(pool, own, 4 * MIB),
         *small = alloc_in(pool, own, 1);
    tarn_stats stats = pool_stats_of(pool);
    CHECK(stats.segment[0].current == 3 && stats.allocation[0].current == 3 &&
          stats.inactive_split[0].current == 0);
    CHECK(usable_size(first) == 20 * MIB && usable_size(small) == 2 * MIB);
    CHECK(stats.allocated_bytes[0].current == (int64_t)(42 * MIB));
    OK(tarn_free(first));
    CHECK(alloc_in(pool, own, 19 * MIB) == first && pool_stats_of(pool).segment[0].current == 3);
    verify(0);
    OK(tarn_free(first));
    OK(tarn_free(second));
    OK(tarn_free(small));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void a_pool_has_sizes_of_its_own(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with(
        (tarn_pool_options){.sizes = SIZES(.small_segment = 8 * MIB, .large_segment = 32 * MIB,
                                           .own_segment = 24 * MIB, .rounding = 4 * MIB)});
    static const struct {
        size_t size, segment;
    } rows[] = {{1, 8},         {MIB + 1, 32},      {24 * MIB - 512, 32},
                {24 * MIB, 24}, {24 * MIB + 1, 28}, {33 * MIB, 36}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *pointer = alloc_in(pool, own, rows[i].size);
        CHECK(pool_stats_of(pool).reserved_bytes[0].current == (int64_t)(rows[i].segment * MIB));
        OK(tarn_free(pointer));
        OK(tarn_pool_trim(pool, 0));
    }
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void oversize_segments_are_not_cut_and_serve_no_smaller_request(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){
        .sizes = SIZES(.max_split = 40 * MIB, .max_non_split_rounding = 20 * MIB)});
    char *wide = alloc_in(pool, own, 50 * MIB);
    tarn_stats stats = pool_stats_of(pool);
    CHECK(stats.max_split_size == (int64_t)(40 * MIB) && stats.oversize_allocations.current == 1 &&
          stats.oversize_segments.current == 1);
    OK(tarn_free(wide));
    CHECK(pool_stats_of(pool).oversize_allocations.current == 0);
    char *less = alloc_in(pool, own, 30 * MIB); /* below the limit: a segment of its own */
    CHECK(less != wide && pool_stats_of(pool).segment[0].current == 2);
    char *again = alloc_in(pool, own, 41 * MIB); /* above it, and less than 20 MiB below: uncut */
    CHECK(again == wide && usable_size(again) == 50 * MIB);
    OK(tarn_free(again));
    char *wider = alloc_in(pool, own, 100 * MIB);
    OK(tarn_free(wider));
    again = alloc_in(pool, own, 80 * MIB + 512);
    CHECK(again == wider && usable_size(again) == 100 * MIB);
    OK(tarn_free(again));
    OK(tarn_free(wide = alloc_in(pool, own, 51 * MIB))); /* 100 MiB would be too much of it */
    CHECK(wide != wider && pool_stats_of(pool).segment[0].current == 4);
    char *shared = alloc_in(pool, own, 5 * MIB); /* of 20 MiB, which are cut */
    CHECK(usable_size(shared) == 5 * MIB);
    verify(0);
    OK(tarn_free(shared));
    OK(tarn_free(less));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void *free_them(void *blocks)
{
    for (int i = 0; i < 20; i++)
        OK(tarn_free(((void **)blocks)[i]));
    return NULL;
}

/* Blocks are counted one by one; those of a slab are not, so no slab serves what is oversize. */
static void a_limit_among_small_blocks_counts_each_of_them(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    tarn_pool *pool = pool_with((tarn_pool_options){.sizes = SIZES(.max_split = 4096)});
    void *oversize[COUNT], *less[COUNT];
    pthread_t thread;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            oversize[i] = alloc_in(pool, own, i % 2 ? 5000 : 4096);
            less[i] = alloc_in(pool, own, 3000);
        }
        CHECK(pool_stats_of(pool).oversize_allocations.current == COUNT);
        CHECK(pthread_create(&thread, NULL, free_them, oversize) == 0 &&
              pthread_join(thread, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, free_them, less) == 0 &&
              pthread_join(thread, NULL) == 0);
        CHECK(pool_stats_of(pool).oversize_allocations.current == COUNT - 20);
        for (int i = 20; i < COUNT; i++) {
            OK(i % 2 ? tarn_free_on(oversize[i], other) : tarn_free(oversize[i]));
            OK(i % 2 ? tarn_free_on(less[i], other) : tarn_free(less[i]));
        }
        tarn_stats stats = pool_stats_of(pool);
        CHECK(stats.oversize_allocations.current == 0 && stats.oversize_allocations.peak == COUNT);
        CHECK(stats.oversize_allocations.allocated == stats.oversize_allocations.freed);
        OK(tarn_stream_synchronize(other));
        OK(tarn_pool_trim(pool, 0));
    }
    OK(tarn_pool_release(pool));

    /* And one that becomes it by growing. */
    pool = pool_with((tarn_pool_options){.sizes = SIZES(.max_split = 10 * MIB)});
    void *block = alloc_in(pool, own, 5 * MIB);
    CHECK(pool_stats_of(pool).oversize_allocations.current == 0);
    OK(tarn_extend(block, 9 * MIB));
    CHECK(pool_stats_of(pool).oversize_allocations.current == 0);
    OK(tarn_extend(block, 12 * MIB));
    OK(tarn_extend(block, 13 * MIB));
    CHECK(pool_stats_of(pool).oversize_allocations.current == 1);
    OK(tarn_free(block));
    CHECK(pool_stats_of(pool).oversize_allocations.current == 0);
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void a_shared_segment_of_the_oversize_limit_serves_the_request_it_was_made_for(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){.sizes = SIZES(.max_split = 20 * MIB)});
    char *block = alloc_in(pool, own, 5 * MIB);
    CHECK(usable_size(block) == 5 * MIB && pool_stats_of(pool).segment[0].current == 1);
    OK(tarn_free(block)); /* whole again, and as large as the limit: PyTorch does not look at it
                             either */
    char *next = alloc_in(pool, own, 5 * MIB);
    CHECK(next != block && pool_stats_of(pool).segment[0].current == 2);
    OK(tarn_free(next));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void oversize_segments_go_first_when_there_is_no_room(void **state)
{
    (void)state;
    struct source source = source_make();
    source.limit = 200 * MIB;
    tarn_pool *pool =
        pool_of_source(&source, (tarn_pool_options){.sizes = SIZES(.max_split = 40 * MIB)});
    void *small = alloc_in(pool, own, 30 * MIB), *a = alloc_in(pool, own, 60 * MIB),
         *b = alloc_in(pool, own, 80 * MIB);
    OK(tarn_free(small));
    OK(tarn_free(a));
    OK(tarn_free(b));
    void *wide = alloc_in(pool, own, 110 * MIB); /* of 30 left and 60 or 80 more: both large ones,
                                                    not the small one */
    CHECK(source.frees == 2 && source.live == 140 * MIB);
    OK(tarn_free(wide));
    OK(tarn_pool_release(pool));
    source_end(&source);
}

static void requests_are_rounded_to_a_part_of_their_power_of_two(void **state)
{
    (void)state;
    OK(tarn_configuration_set("roundup_power2_divisions:4"));
    tarn_pool *pool = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_PLAIN});
    static const struct {
        size_t size, block;
    } rows[] = {{1, 512},
                {513, 1024},
                {2048, 2048},
                {2049, 2560},
                {4097, 5120},
                {5121, 6144},
                {8193, 10 * KIB},
                {MIB, MIB},
                {MIB + 1, MIB + MIB / 4},
                {5 * MIB + 1, 6 * MIB},
                {84 * MIB, 96 * MIB}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *pointer = alloc_in(pool, own, rows[i].size);
        CHECK(usable_size(pointer) == rows[i].block);
        OK(tarn_free(pointer));
    }
    OK(tarn_configuration_set("all:default"));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* Graphs --------------------------------------------------------------------------------------- */

/* The sizes and numbers of PyTorch's test of graph memory: up to three blocks live at a time, one
 * in the end. */
static void a_graphs_pool_has_pytorchs_numbers(void **state)
{
    (void)state;
    static const struct {
        size_t size;
        int64_t segments;
        size_t segment;
        bool large;
    } rows[] = {
        {512, 1, 2 * MIB, false},
        {MIB, 2, 2 * MIB, false},
        {MIB + 512, 1, 20 * MIB, true},
        {10 * MIB - 512, 2, 20 * MIB, true},
        {10 * MIB + 512, 3, 12 * MIB, true},
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        tarn_pool *pool = pool_with(
            (tarn_pool_options){.segments = i % 2 ? TARN_SEGMENTS_EXACT : TARN_SEGMENTS_PLAIN});
        size_t size = rows[i / 2].size;
        void *graph = NULL, *a, *b, *c;
        OK(tarn_pool_capture_begin(pool, own, TARN_CAPTURE_GLOBAL));
        a = alloc_on(own, size);
        for (int k = 0; k < 5; k++) {
            b = alloc_on(own, size);
            c = alloc_on(own, size);
            OK(tarn_free(a));
            OK(tarn_free(b));
            a = c;
        }
        OK(tarn_capture_end(own, &graph));
        tarn_stats stats = pool_stats_of(pool);
        enum { LARGE = TARN_STAT_LARGE_POOL, SMALL = TARN_STAT_SMALL_POOL };
        int class = rows[i / 2].large ? LARGE : SMALL;
        CHECK(stats.segment[0].current == rows[i / 2].segments &&
              stats.segment[class].current == stats.segment[0].current);
        CHECK(stats.reserved_bytes[class].current ==
              rows[i / 2].segments * (int64_t)rows[i / 2].segment);
        CHECK(stats.active[class].current == 1 && stats.active_bytes[0].current == (int64_t)size);
        CHECK(stats.num_device_alloc == rows[i / 2].segments && stats.num_device_free == 0);
        OK(tarn_pool_release(pool));
        OK(tarn_device_trim(0, 0));
        /* The graph's, live or not */
        CHECK(stats_of(0).segment[0].current == rows[i / 2].segments);
        CHECK(driver->graph_destroy(0, graph) == TARN_OK);
        memset(a, 1, size);
        OK(tarn_free(a));
        nothing_is_left(0);
    }
}

static void suspension_is_for_virtual_memory(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_PLAIN});
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_NOT_SUPPORTED);
    OK(tarn_pool_release(pool));
}

/* Who is told, and what stays ------------------------------------------------------------------ */

static struct {
    int mapped, unmapping;
    tarn_mapping last;
} told;

static void hear_mapped(const tarn_mapping *range, void *user)
{
    (void)user;
    told.mapped++;
    told.last = *range;
}

static void hear_unmapping(const tarn_mapping *range, void *user)
{
    (void)user;
    told.unmapping++;
    CHECK(range->generation == told.last.generation && range->address == told.last.address);
}

static void observers_hear_of_segments_and_pins_keep_them(void **state)
{
    (void)state;
    tarn_observer observer = 0;
    const tarn_observer_options options = {
        .size = sizeof options, .device = 0, .mapped = hear_mapped, .unmapping = hear_unmapping};
    tarn_pool *pool = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_PLAIN});
    OK(tarn_device_trim(0, 0));
    OK(tarn_observer_add(&options, &observer));
    char *block = alloc_in(pool, own, 5 * MIB);
    tarn_mapping range = {0};
    OK(tarn_mapping_get(block + MIB, &range));
    CHECK(told.mapped == 1 && told.last.bytes == 20 * MIB && told.last.address == block);
    CHECK(range.bytes == 20 * MIB && range.address == block &&
          range.generation == told.last.generation);
    tarn_share *share = NULL;
    GIVES(tarn_export(block, &share), TARN_ERROR_NOT_SUPPORTED);
    OK(tarn_anchor(block + MIB, MIB));
    OK(tarn_free(block));
    OK(tarn_pool_trim(pool, 0));
    CHECK(told.unmapping == 0 && pool_stats_of(pool).segment[0].current == 1);
    CHECK(alloc_in(pool, own, 5 * MIB) == block);
    OK(tarn_free(block));
    OK(tarn_unanchor(block + MIB, MIB));
    OK(tarn_host_fail_set(kind_of("free"), 1, false, TARN_ERROR_DRIVER));
    uint64_t before = told.last.generation;
    GIVES(tarn_pool_trim(pool, 0), TARN_ERROR_DRIVER);
    CHECK(told.unmapping == 1 && told.mapped == 2 && told.last.generation != before); /* it stays */
    OK(tarn_pool_trim(pool, 0));
    CHECK(told.unmapping == 2 && told.mapped == 2);
    OK(tarn_observer_remove(observer));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* Virtual and plain memory side by side -------------------------------------------------------- */

static void what_lies_idle_in_one_kind_of_memory_makes_room_for_the_other(void **state)
{
    (void)state;
    void *block = alloc_on(own, 400 * MIB);
    OK(tarn_free(block));
    tarn_pool *pool = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_PLAIN});
    void *pointer = NULL;
    OK(tarn_pool_alloc(pool, other, 400 * MIB, &pointer));
    verify(0);
    OK(tarn_pool_release(pool));
    OK(tarn_free(pointer));
    block = alloc_on(own, 400 * MIB); /* what was left behind */
    verify(0);
    OK(tarn_free(block));
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
        cmocka_unit_test(an_allocator_gives_whole_segments_and_hears_of_the_end),
        cmocka_unit_test(an_allocator_outlives_its_pool_while_a_block_does),
        cmocka_unit_test(an_allocator_without_memory_is_asked_again_after_others_gave_theirs_back),
        cmocka_unit_test(an_allocator_may_call_tarn),
        cmocka_unit_test(busy_segments_of_an_allocator_wait),
        cmocka_unit_test(segments_may_begin_anywhere),
        cmocka_unit_test(what_an_allocator_must_not_give_is_refused),
        cmocka_unit_test(a_pool_of_an_allocator_serves_the_default_pool_when_it_says_so),
        cmocka_unit_test(any_failure_of_host_memory_leaves_nothing),
        cmocka_unit_test(meaningless_options_are_refused),
        cmocka_unit_test(without_splits_a_block_has_a_segment_for_itself),
        cmocka_unit_test(a_pool_has_sizes_of_its_own),
        cmocka_unit_test(oversize_segments_are_not_cut_and_serve_no_smaller_request),
        cmocka_unit_test(a_limit_among_small_blocks_counts_each_of_them),
        cmocka_unit_test(a_shared_segment_of_the_oversize_limit_serves_the_request_it_was_made_for),
        cmocka_unit_test(oversize_segments_go_first_when_there_is_no_room),
        cmocka_unit_test(requests_are_rounded_to_a_part_of_their_power_of_two),
        cmocka_unit_test(a_graphs_pool_has_pytorchs_numbers),
        cmocka_unit_test(suspension_is_for_virtual_memory),
        cmocka_unit_test(observers_hear_of_segments_and_pins_keep_them),
        cmocka_unit_test(what_lies_idle_in_one_kind_of_memory_makes_room_for_the_other),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
