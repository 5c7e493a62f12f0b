/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A search looks only at heaps that have changed since one has found nothing in them. So a request
 * that nothing serves costs the same beside ten thousand streams and pools: heaps are counted, not
 * time. And no heap is forgotten: whatever way memory becomes free, the next request gets it. After
 * each failure of a random run the test has every heap looked at again, as if all had changed: the
 * same request fails then too.
 *
 * TARN_CROWD is the number; TARN_SEED the seed. */
#include "memory/heap/heap.h"
#include "memory/pressure/compact.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CROWD 500
#define ROUNDS 20
#else
#define CROWD 10000
#define ROUNDS 150
#endif
#define SMALL 200 /* blocks of 4 KiB */
#define FEW 24    /* looks at heaps, whatever their number */
#define SOME 300  /* the same with walks that look at 64 heaps of nobody, or that may lend */

static tarn_stream ours, theirs;
static void *blocks[SMALL];

static void limit_to_reserved(void)
{
    OK(tarn_device_limit_set(0, (size_t)stats_of(0).reserved_bytes[0].current));
}

static void *tried(tarn_stream stream, size_t size)
{
    void *block = NULL;
    tarn_status status = tarn_alloc_on(stream, size, &block);
    CHECK(status == TARN_OK || status == TARN_ERROR_OUT_OF_MEMORY);
    return status ? NULL : block;
}

/* Their stream has small blocks, and all memory; ours asks in vain, twice. */
static void begin(void)
{
    host_start_with(1, 512 * MIB);
    ours = lease(0);
    theirs = lease(0);
    for (int i = 0; i < SMALL; i++)
        blocks[i] = alloc_on(theirs, 4096);
    limit_to_reserved();
    CHECK(!tried(ours, 2 * MIB) && !tried(ours, 2 * MIB));
}

/* What they have freed serves us. */
static void end(void)
{
    void *block = tried(ours, 2 * MIB);
    CHECK(block);
    OK(tarn_free(block));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_stream_return(ours));
    OK(tarn_stream_return(theirs));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
}

static void free_blocks(void)
{
    for (int i = 0; i < SMALL; i++)
        OK(tarn_free(blocks[i]));
}

static void *free_in_thread(void *unused)
{
    (void)unused;
    free_blocks();
    return NULL;
}

static void what_a_thread_frees_into_its_cache_is_found(void)
{
    begin();
    free_blocks();
    end();
}

static void what_another_thread_frees_is_found(void)
{
    pthread_t thread;
    begin();
    CHECK(pthread_create(&thread, NULL, free_in_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    end();
}

static void what_has_waited_is_found(void)
{
    begin();
    tarn_stream third = lease(0);
    for (int i = 0; i < SMALL; i++)
        OK(tarn_record_stream(blocks[i], third));
    free_blocks();
    OK(tarn_stream_return(third));
    end();
}

static void *tried_in(tarn_pool *pool, size_t size)
{
    void *block = NULL;
    tarn_status status = tarn_pool_alloc(pool, ours, size, &block);
    CHECK(status == TARN_OK || status == TARN_ERROR_OUT_OF_MEMORY);
    return status ? NULL : block;
}

/* A block that would be parked for the next of its size. A pool asks: it borrows from no stream of
 * the default pool while it grows. */
static void a_large_block_is_found(void)
{
    tarn_pool *pool = NULL;
    host_start_with(1, 512 * MIB);
    ours = lease(0);
    theirs = lease(0);
    OK(tarn_pool_create(NULL, &pool));
    for (int round = 0; round < 3; round++) {
        void *block = alloc_on(theirs, 20 * MIB);
        limit_to_reserved();
        CHECK(!tried_in(pool, 20 * MIB) && !tried_in(pool, 20 * MIB));
        OK(tarn_free(block));
        block = tried_in(pool, 20 * MIB);
        CHECK(block);
        OK(tarn_free(block));
        OK(tarn_pool_trim(pool, 0));
        OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    }
    OK(tarn_pool_release(pool));
    OK(tarn_stream_return(ours));
    OK(tarn_stream_return(theirs));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
}

/* The memory of a pool becomes everybody's when the pool ends. */
static void the_memory_of_a_pool_that_ends_is_found(void)
{
    tarn_pool *pool = NULL;
    void *block = NULL, *held = NULL;
    host_start_with(1, 512 * MIB);
    ours = lease(0);
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, ours, 20 * MIB, &block));
    OK(tarn_pool_alloc(pool, ours, 4096, &held));
    limit_to_reserved();
    CHECK(!tried(ours, 16 * MIB));
    OK(tarn_free(block));
    CHECK(!tried(ours, 16 * MIB)); /* it is the pool's */
    OK(tarn_pool_release(pool));
    block = tried(ours, 16 * MIB);
    CHECK(block);
    OK(tarn_free(block));
    OK(tarn_free(held));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_stream_return(ours));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
}

/* Counts ------------------------------------------------------------------------------------- */

static tarn_stream *streams;
static tarn_pool **pools;
static void **first, **second;

static size_t crowd_size(void)
{
    const char *number = getenv("TARN_CROWD");
    return number ? strtoul(number, NULL, 10) : CROWD;
}

static size_t looks_of_a_failure(void)
{
    uint64_t before = arena_if_used(0)->sets.looks;
    CHECK(!tried(ours, 32 * MIB));
    return (size_t)(arena_if_used(0)->sets.looks - before);
}

static void a_failure_looks_at_few_heaps(void)
{
    size_t crowd = crowd_size();
    host_start_with(1, 96 * 1024 * MIB);
    ours = lease(0);
    streams = calloc(crowd, sizeof *streams);
    pools = calloc(crowd, sizeof *pools);
    first = calloc(crowd, sizeof *first);
    second = calloc(crowd, sizeof *second);
    CHECK(streams && pools && first && second);
    for (size_t i = 0; i < crowd; i++) {
        streams[i] = lease(0);
        first[i] = alloc_on(streams[i], 4096);
        OK(tarn_pool_create(NULL, &pools[i]));
        OK(tarn_pool_alloc(pools[i], streams[i], 4096, &second[i]));
    }
    limit_to_reserved();
    (void)looks_of_a_failure(); /* at all, once */
    size_t looks = looks_of_a_failure();
    fprintf(stderr, "a failure looks at %zu of %zu heaps\n", looks, 2 * crowd);
    CHECK(looks <= FEW);
    for (size_t i = 0; i < crowd; i += crowd / 4) { /* once more at those in which one is freed */
        OK(tarn_free(first[i]));
        first[i] = alloc_on(streams[i], 4096);
    }
    looks = looks_of_a_failure();
    CHECK(looks >= 4 && looks <= 2 * FEW);
    CHECK(looks_of_a_failure() <= FEW);
    OK(tarn_free(first[crowd / 2])); /* the memory of one serves */
    first[crowd / 2] = NULL;
    void *block = tried(ours, 2 * MIB);
    CHECK(block);
    OK(tarn_free(block));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    for (size_t i = 0; i < crowd; i++) {
        if (first[i])
            OK(tarn_free(first[i]));
        OK(tarn_free(second[i]));
        OK(tarn_pool_release(pools[i]));
        OK(tarn_stream_return(streams[i]));
    }
    OK(tarn_stream_return(ours));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
    free(streams);
    free(pools);
    free(first);
    free(second);
}

/* Heaps that a call has looked at. */
static size_t looks_since(uint64_t before)
{
    return (size_t)(arena_if_used(0)->sets.looks - before);
}

/* Streams with a small block each. */
static size_t begin_crowd(void)
{
    size_t crowd = crowd_size();
    ours = lease(0);
    streams = calloc(crowd, sizeof *streams);
    first = calloc(crowd, sizeof *first);
    CHECK(streams && first);
    for (size_t i = 0; i < crowd; i++) {
        streams[i] = lease(0);
        first[i] = alloc_on(streams[i], 4096);
    }
    return crowd;
}

static void end_crowd(size_t crowd)
{
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    for (size_t i = 0; i < crowd; i++) {
        OK(tarn_free(first[i]));
        OK(tarn_stream_return(streams[i]));
    }
    OK(tarn_stream_return(ours));
    OK(tarn_configuration_set("all:default"));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
    free(streams);
    free(first);
}

/* Driver calls of a failure. */
static uint64_t calls_of_a_failure(void)
{
    uint64_t before = all_calls(0);
    CHECK(!tried(ours, 32 * MIB));
    return all_calls(0) - before;
}

/* A compaction waits for all streams, and goes through all heaps. So it is made only if the memory
 * between live blocks would suffice. */
static void a_failure_does_not_compact_in_vain(void)
{
    host_start_with(1, 96 * 1024 * MIB);
    OK(tarn_configuration_set("compaction:on_oom"));
    size_t crowd = begin_crowd();
    void *before = alloc_on(streams[1], 7 * MIB), *between = alloc_on(streams[1], MIB + 5000),
         *behind = alloc_on(streams[1], 11 * MIB);
    OK(tarn_free(before));
    OK(tarn_free(behind));
    limit_to_reserved();
    (void)calls_of_a_failure();
    size_t looks = looks_of_a_failure();
    uint64_t calls = calls_of_a_failure();
    fprintf(stderr, "a failure beside %zu streams: %zu looks, %llu driver calls\n", crowd, looks,
            (unsigned long long)calls);
    CHECK(looks <= FEW && calls <= FEW);
    calls = all_calls(0);
    void *block = tried(ours, 12 * MIB); /* what lies around the block suffices */
    CHECK(block && all_calls(0) - calls >= crowd);
    OK(tarn_free(block));
    OK(tarn_free(between));
    end_crowd(crowd);
}

/* Bytes that wait for another stream may make room between blocks: they count as if they did. */
static void what_waits_may_be_compacted(void)
{
    host_start_with(1, 512 * MIB);
    OK(tarn_configuration_set("compaction:on_oom"));
    ours = lease(0);
    theirs = lease(0);
    void *before = alloc_on(theirs, 7 * MIB), *between = alloc_on(theirs, MIB + 5000),
         *behind = alloc_on(theirs, 11 * MIB);
    limit_to_reserved();
    struct arena *arena = arena_if_used(0);
    CHECK(!tried(ours, 12 * MIB));
    CHECK(!compact_may_free(&arena->store, 1));
    OK(tarn_record_stream(before, ours));
    OK(tarn_record_stream(behind, ours));
    work_on(ours, before, 1, 1000000);
    OK(tarn_free(before));
    OK(tarn_free(behind));
    CHECK(compact_may_free(&arena->store, 12 * MIB));
    void *block = tried(ours, 12 * MIB);
    CHECK(block);
    OK(tarn_free(block));
    OK(tarn_free(between));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_stream_return(ours));
    OK(tarn_stream_return(theirs));
    OK(tarn_configuration_set("all:default"));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
}

/* Memory that is not idle, or is anchored ------------------------------------------------------ */

#define MS UINT64_C(1000000)
#define CROWD_WAITING 400 /* streams with work; a wait per piece takes time */

static tarn_status tried_without_a_wait(size_t size, void **block)
{
    *block = NULL;
    return tarn_alloc(
        &(tarn_alloc_options){
            .size = sizeof(tarn_alloc_options), .device = 0, .stream = ours, .wait = TARN_NO_WAIT},
        size, block);
}

/* A block of 2 MiB, in a piece of its own, beside so many reserved bytes. */
static void *piece_of(tarn_pool *pool, tarn_stream stream, size_t reserved)
{
    OK(tarn_device_limit_set(0, reserved + 2 * MIB));
    return pool ? alloc_in(pool, stream, 2 * MIB) : alloc_on(stream, 2 * MIB);
}

/* While the oldest mark of a stream has not ended, no other heap of the stream is looked at. */
static void a_failure_asks_each_busy_stream_once(void)
{
    size_t crowd = crowd_size();
    void *block = NULL;
    host_start_with(1, 96 * 1024 * MIB);
    ours = lease(0);
    theirs = lease(0);
    first = calloc(crowd, sizeof *first);
    second = calloc(crowd, sizeof *second);
    CHECK(first && second);
    for (size_t i = 0; i < crowd; i++) { /* pools that live on in a block */
        tarn_pool *pool = pool_with((tarn_pool_options){0});
        first[i] = piece_of(pool, theirs, i * 4 * MIB);
        OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
        second[i] = alloc_in(pool, theirs, 4096);
        OK(tarn_pool_release(pool));
    }
    limit_to_reserved();
    size_t all = crowd * 2 * MIB;
    for (size_t i = 0; i < crowd; i++) {
        work_on(theirs, first[i], 1, (i + 1) * MS);
        OK(tarn_free(first[i]));
        if ((i + 1) % (crowd / 10) == 0) /* records a mark for what was freed */
            GIVES(tried_without_a_wait(all, &block), TARN_ERROR_NOT_READY);
    }
    verify(0);
    uint64_t looks = arena_if_used(0)->sets.looks, queries = calls_of(0, "event_query");
    GIVES(tried_without_a_wait(all, &block), TARN_ERROR_NOT_READY);
    fprintf(stderr, "a refusal beside %zu heaps that are not idle: %zu looks, %llu queries\n",
            crowd, looks_since(looks), (unsigned long long)(calls_of(0, "event_query") - queries));
    CHECK(looks_since(looks) <= SOME && calls_of(0, "event_query") - queries <= SOME);
    time_pass(crowd * MS / 2); /* the first half is found, and no more */
    OK(tried_without_a_wait(all * 4 / 10, &block));
    OK(tarn_free(block));
    GIVES(tried_without_a_wait(all * 6 / 10, &block), TARN_ERROR_NOT_READY);
    verify(0);
    time_pass(crowd * MS);
    OK(tried_without_a_wait(all * 9 / 10, &block));
    OK(tarn_free(block));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    for (size_t i = 0; i < crowd; i++)
        OK(tarn_free(second[i]));
    OK(tarn_stream_return(ours));
    OK(tarn_stream_return(theirs));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
    free(first);
    free(second);
}

/* A request that waits again and again looks each time at the heaps whose work has ended, and not
 * at all others. */
static void a_wait_looks_at_what_has_ended(void)
{
    host_start_with(1, 96 * 1024 * MIB);
    for (int used = 0; used < 2; used++) {
        ours = lease(0);
        streams = calloc(CROWD_WAITING, sizeof *streams);
        first = calloc(CROWD_WAITING, sizeof *first);
        CHECK(streams && first);
        for (size_t i = 0; i < CROWD_WAITING; i++) {
            streams[i] = lease(0);
            first[i] = piece_of(NULL, streams[i], i * 2 * MIB);
        }
        limit_to_reserved();
        for (size_t i = 0; i < CROWD_WAITING; i++) {
            tarn_stream user = streams[used ? (i + 1) % CROWD_WAITING : i];
            if (used)
                OK(tarn_record_stream(first[i], user));
            work_on(user, first[i], 1, (CROWD_WAITING - i) * MS);
            OK(tarn_free(first[i]));
        }
        uint64_t looks = arena_if_used(0)->sets.looks, queries = calls_of(0, "event_query");
        void *block = tried(ours, (size_t)CROWD_WAITING * 2 * MIB);
        CHECK(block);
        fprintf(stderr, "a wait for %d streams: %zu looks, %llu queries\n", CROWD_WAITING,
                looks_since(looks), (unsigned long long)(calls_of(0, "event_query") - queries));
        CHECK(looks_since(looks) <= 200 * CROWD_WAITING &&
              calls_of(0, "event_query") - queries <= 200 * CROWD_WAITING);
        OK(tarn_free(block));
        OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
        for (size_t i = 0; i < CROWD_WAITING; i++)
            OK(tarn_stream_return(streams[i]));
        OK(tarn_stream_return(ours));
        OK(tarn_device_trim(0, 0));
        nothing_is_left(0);
        free(streams);
        free(first);
    }
}

/* Anchored memory is looked at again when it has changed, or when an anchor is gone. */
static void a_failure_looks_at_anchored_memory_once(void)
{
    size_t crowd = crowd_size(), which = crowd / 2;
    host_start_with(1, 96 * 1024 * MIB);
    ours = lease(0);
    streams = calloc(crowd, sizeof *streams);
    first = calloc(crowd, sizeof *first);
    CHECK(streams && first);
    for (size_t i = 0; i < crowd; i++) {
        streams[i] = lease(0);
        first[i] = piece_of(NULL, streams[i], i * 2 * MIB);
        OK(tarn_anchor(first[i], 2 * MIB));
    }
    limit_to_reserved();
    for (size_t i = 0; i < crowd; i++)
        OK(tarn_free(first[i]));
    CHECK(!tried(ours, 32 * MIB)); /* at all, once */
    for (int round = 0; round < 3; round++) {
        uint64_t looks = arena_if_used(0)->sets.looks;
        CHECK(!tried(ours, 32 * MIB));
        fprintf(stderr, "a failure beside %zu heaps with anchored memory: %zu looks\n", crowd,
                looks_since(looks));
        CHECK(looks_since(looks) <= SOME);
        verify(0);
        if (round == 0) { /* what is used again is looked at */
            OK(tarn_free(alloc_on(streams[which], MIB)));
        } else if (round == 1) {
            OK(tarn_unanchor(first[which], 2 * MIB));
            void *block = tried(ours, 2 * MIB); /* what was behind it is there */
            CHECK(block);
            OK(tarn_free(block));
            CHECK(!tried(ours, 32 * MIB)); /* at all, once more */
        }
    }
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    for (size_t i = 0; i < crowd; i++) {
        if (i != which)
            OK(tarn_unanchor(first[i], 2 * MIB));
        OK(tarn_stream_return(streams[i]));
    }
    OK(tarn_stream_return(ours));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
    free(streams);
    free(first);
}

#define OLD 64 /* streams with a large segment that is free */

static size_t segments_now(void)
{
    return (size_t)stats_of(0).segment[0].current;
}

/* A growth above the threshold comes to the heaps whose segments it gives back. */
static void a_collection_of_garbage_looks_at_few_heaps(void)
{
    host_start_with(1, 96 * 1024 * MIB);
    OK(tarn_configuration_set("segments:plain,garbage_collection_threshold:0.5"));
    size_t crowd = begin_crowd(), went = 0;
    void *taken[OLD], *live_ones[OLD];
    for (size_t i = 0; i < OLD; i++)
        taken[i] = alloc_on(streams[i * (crowd / OLD)], 20 * MIB);
    for (size_t i = 0; i < OLD; i++) { /* each search makes those before it older */
        OK(tarn_free(taken[i]));
        OK(tarn_free(alloc_on(ours, 30 * MIB)));
    }
    for (size_t i = 0; i < 6; i++) {
        size_t segments = segments_now(), reserved = (size_t)stats_of(0).reserved_bytes[0].current;
        OK(tarn_device_limit_set(0, 2 * (reserved - 10 * MIB)));
        uint64_t before = arena_if_used(0)->sets.looks;
        live_ones[i] = alloc_on(ours, 40 * MIB);
        size_t gone = segments + 1 - segments_now(), looks = looks_since(before);
        fprintf(stderr, "growth %zu gives %zu segments back: %zu looks\n", i, gone, looks);
        CHECK(gone && (i == 0 || looks <= FEW + gone)); /* at all, once */
        went += gone;
    }
    CHECK(went > OLD / 2 && went <= OLD + 1);
    for (size_t i = 0; i < 6; i++)
        OK(tarn_free(live_ones[i]));
    end_crowd(crowd);
}

/* Streams of a registrable pool give each other nothing, however much is free there. */
static void a_registrable_pool_does_not_look_at_its_other_streams(void)
{
    size_t crowd = crowd_size(), count = 0;
    tarn_pool *pool = NULL;
    void *block = NULL;
    host_start_with(1, 96 * 1024 * MIB);
    ours = lease(0);
    streams = calloc(crowd, sizeof *streams);
    tarn_mapping *segments = calloc(crowd + 1, sizeof *segments);
    CHECK(streams && segments);
    pool = pool_with((tarn_pool_options){.registrable = true});
    for (size_t i = 0; i < crowd; i++) {
        streams[i] = lease(0);
        OK(tarn_pool_limit_set(pool, (i + 1) * 4 * MIB)); /* so the segments are small */
        block = alloc_in(pool, streams[i], 3 * MIB);
        OK(tarn_free(block));
    }
    CHECK(!tried_in(pool, 3 * MIB));
    for (int i = 0; i < 2; i++) {
        uint64_t before = arena_if_used(0)->sets.looks;
        CHECK(!tried_in(pool, 3 * MIB));
        CHECK(looks_since(before) <= FEW);
    }
    uint64_t before = arena_if_used(0)->sets.looks;
    OK(tarn_pool_segments_get(pool, segments, crowd + 1, &count));
    fprintf(stderr, "a list of %zu segments: %zu looks\n", count, looks_since(before));
    CHECK(count == crowd && looks_since(before) <= 3 * crowd);
    for (size_t i = 1; i < 100; i++)
        CHECK(segments[i].generation > segments[i - 1].generation);
    OK(tarn_pool_segments_get(pool, segments, 2, &count));
    CHECK(count == crowd && segments[0].generation < segments[1].generation);
    OK(tarn_pool_release(pool));
    for (size_t i = 0; i < crowd; i++)
        OK(tarn_stream_return(streams[i]));
    OK(tarn_stream_return(ours));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
    free(streams);
    free(segments);
}

#define HELD 64

/* Pools with a slab of blocks of 4 KiB, in which one lives, and no other free memory. */
static void begin_helpers(size_t crowd)
{
    ours = lease(0);
    pools = calloc(crowd, sizeof *pools);
    first = calloc(crowd, sizeof *first);
    second = calloc(2 * crowd, sizeof *second);
    CHECK(pools && first && second);
    for (size_t i = 0; i < crowd; i++) {
        pools[i] = pool_with((tarn_pool_options){.use_on_oom = true});
        first[i] = alloc_in(pools[i], ours, 4096);
        second[2 * i] = alloc_in(pools[i], ours, MIB);
        second[2 * i + 1] = alloc_in(pools[i], ours, 960 * 1024);
    }
    limit_to_reserved();
}

/* Looks of a request that some pool serves, or, if `helper` is NULL, that none serves. */
static size_t looks_for(size_t size, tarn_pool *helper)
{
    tarn_block_info info = {.size = sizeof info};
    uint64_t before = arena_if_used(0)->sets.looks;
    void *block = tried(ours, size);
    size_t looks = looks_since(before);
    CHECK(!block == !helper);
    if (!block)
        return looks;
    OK(tarn_pointer_info_get(block, &info));
    CHECK(info.pool.second == pool_info_of(helper).id.second);
    OK(tarn_free(block));
    return looks;
}

static void *slot_of_another_thread(void *pool)
{
    void *block = alloc_in(pool, ours, 2048);
    return block;
}

/* The index leads to a pool that can serve a request, by the length of what is free or by the size
 * of its slots, whosever slab has them. */
static void a_shortage_asks_only_pools_that_can_help(void)
{
    size_t crowd = crowd_size(), which = crowd / 2;
    pthread_t thread;
    void *theirs_block = NULL;
    host_start_with(1, 96 * 1024 * MIB);
    begin_helpers(crowd);
    (void)looks_for(8192, NULL);
    size_t looks = looks_for(8192, NULL);
    fprintf(stderr, "a failure beside %zu pools that may help: %zu looks\n", crowd, looks);
    CHECK(looks <= FEW && looks_for(700000, NULL) <= FEW);
    OK(tarn_free(first[which])); /* its slab can be of another class now */
    CHECK(looks_for(8192, pools[which]) <= FEW);
    first[which] = alloc_in(pools[which], ours, 4096);
    OK(tarn_free(second[2 * which]));
    CHECK(looks_for(700000, pools[which]) <= FEW && looks_for(700000, pools[which]) <= FEW);
    CHECK(looks_for(2 * MIB, NULL) <= FEW);
    void *left = NULL;
    CHECK(pthread_create(&thread, NULL, slot_of_another_thread, pools[which]) == 0);
    CHECK(pthread_join(thread, &theirs_block) == 0);
    left = alloc_in(pools[which], ours, 1024 * 1024 - 65536); /* only its slots are left */
    CHECK(looks_for(2048, pools[which]) <= FEW && looks_for(2560, NULL) <= FEW);
    OK(tarn_free(left));
    OK(tarn_free(theirs_block));
    second[2 * which] = alloc_in(pools[which], ours, MIB);
    CHECK(looks_for(700000, NULL) <= FEW);

    /* What is held gives nothing, and is asked once. */
    for (size_t i = 0; i < HELD; i++) {
        OK(tarn_free(second[2 * i]));
        OK(tarn_pool_hold(pools[i], NULL));
    }
    CHECK(looks_for(700000, NULL) >= HELD);
    looks = looks_for(700000, NULL);
    fprintf(stderr, "and %d of them held, with memory: %zu looks\n", HELD, looks);
    CHECK(looks <= FEW);
    OK(tarn_pool_hold(pools[5], NULL));
    OK(tarn_pool_unhold(pools[5]));
    CHECK(looks_for(700000, NULL) <= FEW);
    OK(tarn_pool_unhold(pools[5]));
    CHECK(looks_for(700000, pools[5]) <= FEW);
    for (size_t i = 0; i < HELD; i++) {
        if (i != 5)
            OK(tarn_pool_unhold(pools[i]));
        second[2 * i] = NULL;
    }
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    verify(0);
    for (size_t i = 0; i < crowd; i++) {
        OK(tarn_free(first[i]));
        OK(tarn_free(second[2 * i]));
        OK(tarn_free(second[2 * i + 1]));
        OK(tarn_pool_release(pools[i]));
    }
    OK(tarn_stream_return(ours));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
    free(pools);
    free(first);
    free(second);
}

/* A storm ------------------------------------------------------------------------------------ */

#define THREADS 3
#define STREAMS 6
#define POOLS 3
#define LIVE 400

static tarn_stream of_storm[STREAMS];
static tarn_pool *pool_of_storm[POOLS];
static struct live {
    pthread_mutex_t lock;
    void *block, *anchor; /* an anchor may go after its block */
} live[LIVE];             /* any thread frees what another has allocated */

struct worker {
    pthread_t thread;
    uint64_t random;
};

/* The first two help out. */
static tarn_pool *pool_of_storm_made(int i)
{
    return pool_with((tarn_pool_options){.use_on_oom = i < 2});
}

static void allocate_any(uint64_t *random, void **block)
{
    static const size_t sizes[] = {100, 3000, 20000, 60000, 200000, 3 * MIB, 9 * MIB};
    size_t which = random_next(random) % (sizeof sizes / sizeof *sizes);
    tarn_stream stream = of_storm[random_next(random) % STREAMS];
    size_t pool = random_next(random) % (3 * POOLS);
    tarn_status status = pool < POOLS
                             ? tarn_pool_alloc(pool_of_storm[pool], stream, sizes[which], block)
                             : tarn_alloc_on(stream, sizes[which], block);
    CHECK(status == TARN_OK || status == TARN_ERROR_OUT_OF_MEMORY);
    if (status)
        *block = NULL;
    else if (random_next(random) % 8 == 0)
        OK(tarn_record_stream(*block, of_storm[random_next(random) % STREAMS]));
    if (!status && random_next(random) % 4 == 0)
        work_on(of_storm[random_next(random) % STREAMS], *block, 1,
                1000 + random_next(random) % MS);
}

/* Anchors a block, and frees it; or ends the anchor. */
static void anchor_or_not(uint64_t *random, struct live *one)
{
    if (one->anchor && random_next(random) % 2) {
        OK(tarn_unanchor(one->anchor, 1));
        one->anchor = NULL;
    } else if (!one->anchor && random_next(random) % 4 == 0 &&
               tarn_alloc_on(of_storm[0], 3 * MIB, &one->anchor) == TARN_OK) {
        OK(tarn_anchor(one->anchor, 1));
        OK(tarn_free(one->anchor));
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (int i = 0; i < 300; i++) {
        struct live *one = &live[random_next(&worker->random) % LIVE];
        pthread_mutex_lock(&one->lock);
        if (one->block) {
            OK(tarn_free(one->block));
            one->block = NULL;
        } else {
            allocate_any(&worker->random, &one->block);
        }
        anchor_or_not(&worker->random, one);
        pthread_mutex_unlock(&one->lock);
    }
    return NULL;
}

/* As if everything had changed. */
static void look_at_all_again(void)
{
    struct arena *arena = arena_if_used(0);
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        atomic_store(&heap->caches.resting, false);
        heap_changed_locked(heap);
        mutex_unlock(&heap->lock);
    }
}

/* Takes what there is in blocks of a size, first without a wait, while time stands still. The
 * failure at the end of each is no other after a look at all. */
static void exhaust(tarn_stream stream, size_t size, uint64_t *random)
{
    void *taken[64], *block = NULL;
    size_t count = 0;
    tarn_pool *pool = random_next(random) % 2 ? pool_of_storm[random_next(random) % POOLS] : NULL;
    tarn_alloc_options options = {
        .size = sizeof options, .device = 0, .stream = stream, .pool = pool, .wait = TARN_NO_WAIT};
    for (int waits = 0; waits < 2; waits++) {
        options.wait = waits ? 0 : TARN_NO_WAIT;
        tarn_status status;
        while ((status = tarn_alloc(&options, size, &block)) == TARN_OK) {
            CHECK(count < 64);
            taken[count++] = block;
        }
        CHECK(status == TARN_ERROR_OUT_OF_MEMORY || (status == TARN_ERROR_NOT_READY && !waits));
        verify(0);
        look_at_all_again();
        GIVES(tarn_alloc(&options, size, &block), status);
        verify(0);
    }
    while (count)
        OK(tarn_free(taken[--count]));
}

static void no_heap_is_forgotten(void)
{
    struct worker workers[THREADS];
    const char *given = getenv("TARN_SEED");
    uint64_t random = given ? strtoull(given, NULL, 10) : 29;
    host_start_with(1, 512 * MIB);
    OK(tarn_device_limit_set(0, 160 * MIB));
    for (int i = 0; i < STREAMS; i++)
        of_storm[i] = lease(0);
    for (int i = 0; i < POOLS; i++)
        pool_of_storm[i] = pool_of_storm_made(i);
    for (int i = 0; i < LIVE; i++)
        pthread_mutex_init(&live[i].lock, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < THREADS; i++) {
            workers[i].random = random_next(&random);
            CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
        }
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_join(workers[i].thread, NULL) == 0);
        static const size_t sizes[] = {4 * MIB, 2 * MIB, 8 * MIB, 20 * MIB};
        bool held = round % 4 == 3;
        if (held)
            OK(tarn_pool_hold(pool_of_storm[0], NULL));
        exhaust(of_storm[random_next(&random) % STREAMS], sizes[random_next(&random) % 4], &random);
        if (held)
            OK(tarn_pool_unhold(pool_of_storm[0]));
        if (round % 16 == 9) {
            OK(tarn_pool_release(pool_of_storm[round % POOLS]));
            pool_of_storm[round % POOLS] = pool_of_storm_made(round % POOLS);
        }
        if (round % 16 == 12) {
            tarn_status status = tarn_pool_suspend(pool_of_storm[round % POOLS], true);
            CHECK(status == TARN_OK || status == TARN_ERROR_BUSY); /* some of it is anchored */
            if (!status)
                OK(tarn_pool_resume(pool_of_storm[round % POOLS]));
        }
    }
    for (int i = 0; i < LIVE; i++) {
        if (live[i].block)
            OK(tarn_free(live[i].block));
        if (live[i].anchor)
            OK(tarn_unanchor(live[i].anchor, 1));
    }
    for (int i = 0; i < POOLS; i++)
        OK(tarn_pool_release(pool_of_storm[i]));
    for (int i = 0; i < STREAMS; i++)
        OK(tarn_stream_return(of_storm[i]));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(what_a_thread_frees_into_its_cache_is_found),
        CHILD_TEST(what_another_thread_frees_is_found),
        CHILD_TEST(what_has_waited_is_found),
        CHILD_TEST(a_large_block_is_found),
        CHILD_TEST(the_memory_of_a_pool_that_ends_is_found),
        CHILD_TEST(a_failure_looks_at_few_heaps),
        CHILD_TEST(a_failure_does_not_compact_in_vain),
        CHILD_TEST(what_waits_may_be_compacted),
        CHILD_TEST(a_failure_asks_each_busy_stream_once),
        CHILD_TEST(a_wait_looks_at_what_has_ended),
        CHILD_TEST(a_failure_looks_at_anchored_memory_once),
        CHILD_TEST(a_collection_of_garbage_looks_at_few_heaps),
        CHILD_TEST(a_shortage_asks_only_pools_that_can_help),
        CHILD_TEST(a_registrable_pool_does_not_look_at_its_other_streams),
        CHILD_TEST(no_heap_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
