/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a resume needs: memory for blocks and not for free addresses, unless a graph writes to
 * these; which limits hold; and what it says if it gets none. */
#include "support/host.h"

#include "base/pages.h"
#include "driver/driver.h"
#include "memory/pool/contents.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <tarn/sleep.h>

#include <cmocka.h>

#define MEMORY (128 * MIB)

static tarn_stream stream;

static size_t reserved_by(tarn_pool *pool)
{
    return (size_t)pool_stats_of(pool).reserved_bytes[0].current;
}

static bool is_all(const unsigned char *block, unsigned char value, size_t size)
{
    return block[0] == value && memcmp(block, block + 1, size - 1) == 0;
}

/* A pool that once had much could not resume a small block beside others. */
static void free_addresses_need_no_memory(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        bool keep = way & 1, before = way & 2;
        tarn_pool *pool = pool_with((tarn_pool_options){0});
        unsigned char *large = alloc_in(pool, stream, 75 * MIB),
                      *small = alloc_in(pool, stream, 3 * MIB), *tiny = alloc_in(pool, stream, 700),
                      *last = alloc_in(pool, stream, 15 * MIB);
        memset(small, 5, 3 * MIB);
        memset(tiny, 6, 700);
        if (before)
            OK(tarn_free(large));
        OK(tarn_pool_suspend(pool, keep));
        if (!before)
            OK(tarn_free(large));
        OK(tarn_free(last));
        void *others = alloc_on(stream, 120 * MIB);
        OK(tarn_pool_resume(pool));
        CHECK(reserved_by(pool) <= 8 * MIB);
        CHECK(!keep || (is_all(small, 5, 3 * MIB) && is_all(tiny, 6, 700)));
        memset(small, 7, 3 * MIB);
        verify(0);
        OK(tarn_free(others));
        large = alloc_in(pool, stream, 50 * MIB); /* the addresses serve again */
        memset(large, 8, 50 * MIB);
        CHECK(is_all(small, 7, 3 * MIB));
        OK(tarn_free(large));
        OK(tarn_free(small));
        OK(tarn_free(tiny));
        OK(tarn_pool_release(pool));
        nothing_is_left(0);
    }
}

/* Many blocks, of which any are freed before the suspend and any during it; contents in chunks, or
 * not. */
static void blocks_keep_their_contents_between_free_addresses(void **state)
{
    enum { COUNT = 40 };
    (void)state;
    uint64_t random = 77;
    struct contents_staging usual = contents_staging;
    for (int round = 0; round < 6; round++) {
        tarn_pool *pool = pool_with((tarn_pool_options){0});
        unsigned char *blocks[COUNT];
        size_t sizes[COUNT];
        if (round % 2)
            contents_staging = (struct contents_staging){.least = MIB, .chunk = MIB / 4};
        for (int i = 0; i < COUNT; i++) {
            uint64_t number = random_next(&random);
            sizes[i] = number & 1 ? 1 + (number >> 20) % 9000 : 1 + (number >> 20) % (2 * MIB);
            blocks[i] = alloc_in(pool, stream, sizes[i]);
            memset(blocks[i], i, sizes[i]);
        }
        for (int half = 0; half < 2; half++) {
            for (int i = 0; i < COUNT; i++)
                if (blocks[i] && random_next(&random) % 3 == 0) {
                    OK(tarn_free(blocks[i]));
                    blocks[i] = NULL;
                }
            if (!half)
                OK(tarn_pool_suspend(pool, true));
            verify(0);
        }
        if (round % 3 == 0) { /* a failed attempt changes nothing */
            OK(tarn_device_limit_set(0, MIB));
            GIVES(tarn_pool_resume(pool), TARN_ERROR_OUT_OF_MEMORY);
            OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
            verify(0);
        }
        OK(tarn_pool_resume(pool));
        verify(0);
        for (int i = 0; i < COUNT; i++)
            CHECK(!blocks[i] || is_all(blocks[i], (unsigned char)i, sizes[i]));
        for (int i = 0; i < COUNT; i++)
            OK(tarn_free(blocks[i]));
        OK(tarn_pool_release(pool));
        contents_staging = usual;
        nothing_is_left(0);
    }
}

/* The addresses of a block that was freed meanwhile leave the pool, even at an attempt that fails,
 * and others' blocks get them. */
static void others_at_left_addresses_keep_their_contents(void **state)
{
    enum { MOST = 200 };
    (void)state;
    tarn_pool *others[MOST], *pool = pool_with((tarn_pool_options){0});
    unsigned char *first = alloc_in(pool, stream, 3 * MIB),
                  *left = alloc_in(pool, stream, 60 * MIB), *last = alloc_in(pool, stream, 3 * MIB),
                  *block = NULL;
    int count = 0;
    memset(first, 5, 3 * MIB);
    memset(left, 6, 60 * MIB);
    memset(last, 7, 3 * MIB);
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_free(left));
    OK(tarn_device_limit_set(0, MIB));
    GIVES(tarn_pool_resume(pool), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    while (!block) { /* suspended pools keep their addresses, so the next one gets others */
        CHECK(count < MOST);
        others[count] = pool_with((tarn_pool_options){0});
        block = alloc_in(others[count++], stream, 50 * MIB);
        if (block + 50 * MIB > left && block < left + 60 * MIB)
            break;
        OK(tarn_free(block));
        block = NULL;
        OK(tarn_pool_suspend(others[count - 1], false));
    }
    memset(block, 8, 50 * MIB);
    OK(tarn_pool_resume(pool));
    CHECK(is_all(block, 8, 50 * MIB));
    CHECK(is_all(first, 5, 3 * MIB) && is_all(last, 7, 3 * MIB));
    verify(0);
    OK(tarn_free(block));
    OK(tarn_free(first));
    OK(tarn_free(last));
    while (count)
        OK(tarn_pool_release(others[--count]));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* The temporaries of a graph were free at the suspend. Its replay writes to them. */
static void a_graph_finds_its_temporaries(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        tarn_pool *pool = pool_with((tarn_pool_options){0});
        tarn_stream capturing = lease(0);
        unsigned char *input = alloc_in(pool, stream, 3 * MIB),
                      *output = alloc_in(pool, stream, 3 * MIB);
        void *graph = NULL, *native = native_of(capturing);
        OK(tarn_pool_capture_begin(pool, capturing, TARN_CAPTURE_RELAXED));
        void *temporary = alloc_on(capturing, 10 * MIB);
        OK(driver->copy(0, (uintptr_t)temporary, (uintptr_t)input, 3 * MIB, native));
        OK(driver->copy(0, (uintptr_t)output, (uintptr_t)temporary, 3 * MIB, native));
        OK(tarn_free(temporary));
        OK(tarn_capture_end(capturing, &graph));
        memset(input, 9, 3 * MIB);
        size_t reserved = reserved_by(pool);
        if (way == 2) {
            OK(tarn_sleep(NULL, NULL));
            OK(tarn_wake());
        } else {
            OK(tarn_pool_suspend(pool, true));
            if (way == 1) { /* held no more: the free addresses need no memory */
                OK(tarn_host_graph_destroy(graph));
                OK(tarn_device_synchronize(0));
                graph = NULL;
            }
            OK(tarn_pool_resume(pool));
        }
        CHECK(way == 1 ? reserved_by(pool) < reserved : reserved_by(pool) == reserved);
        if (graph) {
            OK(tarn_host_graph_launch(0, graph, native));
            OK(tarn_device_synchronize(0));
            CHECK(is_all(output, 9, 3 * MIB));
            OK(tarn_host_graph_destroy(graph));
        }
        OK(tarn_free(input));
        OK(tarn_free(output));
        OK(tarn_stream_return(capturing));
        OK(tarn_pool_release(pool));
        nothing_is_left(0);
    }
}

/* A segment of a registrable pool is one piece, whatever of it is free. */
static void a_registrable_segment_comes_back_whole(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){.registrable = true});
    void *part = alloc_in(pool, stream, 20 * MIB), *rest = alloc_in(pool, stream, 5 * MIB),
         *whole = alloc_in(pool, stream, 50 * MIB);
    size_t reserved = reserved_by(pool);
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_free(part));
    OK(tarn_free(whole));
    OK(tarn_pool_resume(pool));
    CHECK(reserved_by(pool) <= reserved - 50 * MIB && reserved_by(pool) >= 32 * MIB);
    tarn_mapping range;
    OK(tarn_mapping_get(rest, &range));
    verify(0);
    OK(tarn_free(rest));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* The pool gets back what it had, whatever its own limit is by now; the device's limit holds. */
static void the_limit_of_the_device_holds_and_not_that_of_the_pool(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    unsigned char *block = alloc_in(pool, stream, 24 * MIB);
    memset(block, 3, 24 * MIB);
    for (int way = 0; way < 2; way++) {
        OK(way ? tarn_sleep(NULL, NULL) : tarn_pool_suspend(pool, true));
        OK(tarn_pool_limit_set(pool, MIB));
        OK(tarn_device_limit_set(0, 16 * MIB));
        GIVES(way ? tarn_wake() : tarn_pool_resume(pool), TARN_ERROR_OUT_OF_MEMORY);
        CHECK(strstr(tarn_last_error(), "lacks 8 MiB") &&
              strstr(tarn_last_error(), "a higher limit"));
        OK(tarn_device_limit_set(0, 24 * MIB));
        OK(way ? tarn_wake() : tarn_pool_resume(pool));
        CHECK(is_all(block, 3, 24 * MIB) && reserved_by(pool) == 24 * MIB);
        void *more = NULL;
        OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
        /* That would be growth */
        GIVES(tarn_pool_alloc(pool, stream, MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
        OK(tarn_pool_limit_set(pool, TARN_NO_LIMIT));
    }
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* vllm-project/vllm#47654: a wake beside code that has the memory fails, and does not say what is
 * lacking. */
static void a_failure_says_what_is_needed_and_who_has_it(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){0}), *owner = pool_with((tarn_pool_options){0});
    void *block = alloc_in(pool, stream, 74 * MIB);
    OK(tarn_pool_suspend(pool, true));
    void *others = alloc_on(stream, 38 * MIB), *of_owner = alloc_in(owner, stream, 50 * MIB);
    GIVES(tarn_pool_resume(pool), TARN_ERROR_OUT_OF_MEMORY);
    const char *text = tarn_last_error();
    char name[64], has[64];
    tarn_pool_id id = pool_info_of(pool).id;
    (void)snprintf(name, sizeof name, "pool (%llu, %llu) lacks 34 MiB",
                   (unsigned long long)id.first, (unsigned long long)id.second);
    id = pool_info_of(owner).id;
    (void)snprintf(has, sizeof has, "(%llu, %llu) 50 MiB", (unsigned long long)id.first,
                   (unsigned long long)id.second);
    CHECK(strstr(text, name) && strstr(text, "needs 74 MiB on device 0") &&
          strstr(text, "40 MiB of its 128 MiB"));
    CHECK(strstr(text, "The default pool reserves 38 MiB") && strstr(text, has));
    CHECK(strstr(text, "create")); /* what the driver said */
    OK(tarn_free(others));
    OK(tarn_free(of_owner));
    OK(tarn_pool_trim(owner, 0));
    OK(tarn_pool_resume(pool));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    OK(tarn_pool_release(owner));
    nothing_is_left(0);
}

/* Each host allocation of a resume fails once: it stays suspended, and the next attempt works. */
static void without_host_memory_nothing_is_lost(void **state)
{
    (void)state;
    uint64_t hits = 1;
    for (uint64_t n = 1; hits; n++) {
        tarn_pool *pool = pool_with((tarn_pool_options){0});
        unsigned char *blocks[8];
        for (int i = 0; i < 8; i++) {
            blocks[i] = alloc_in(pool, stream, 2 * MIB);
            memset(blocks[i], i, 2 * MIB);
        }
        OK(tarn_pool_suspend(pool, true));
        for (int i = 0; i < 8; i += 2)
            OK(tarn_free(blocks[i]));
        pages_fail(n, false);
        tarn_status status = tarn_pool_resume(pool);
        hits = pages_fail_hits();
        pages_fail(0, false);
        CHECK(status == TARN_OK || (hits && status == TARN_ERROR_OUT_OF_HOST_MEMORY));
        verify(0);
        if (status)
            OK(tarn_pool_resume(pool));
        verify(0);
        for (int i = 1; i < 8; i += 2) {
            CHECK(is_all(blocks[i], (unsigned char)i, 2 * MIB));
            OK(tarn_free(blocks[i]));
        }
        OK(tarn_pool_release(pool));
        nothing_is_left(0);
    }
}

/* A stream comes and goes, and leaves a heap that nobody uses to the next one. */
static void pass_by(tarn_pool *of, void *native)
{
    tarn_stream passing;
    void *block;
    OK(tarn_stream_adopt(0, native, &passing));
    OK(tarn_pool_alloc(of, passing, MIB, &block));
    OK(tarn_free(block));
    OK(tarn_stream_retire(passing));
    OK(tarn_pool_trim(of, 0));
}

static atomic_bool enough;

static void *pass_by_until_enough(void *other)
{
    void *native = native_made(0);
    while (!atomic_load_explicit(&enough, memory_order_relaxed))
        pass_by(other, native);
    return NULL;
}

/* Heaps of the pool may become another's meanwhile, as the thread sanitizer can tell. */
static void heaps_are_reused_beside_suspends_and_resumes(void **state)
{
    (void)state;
    pthread_t thread;
    tarn_pool *pool = NULL, *other = NULL;
    void *native = native_made(0);
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_create(NULL, &other));
    atomic_store(&enough, false);
    CHECK(pthread_create(&thread, NULL, pass_by_until_enough, other) == 0);
    for (int i = 0; i < 300; i++) {
        pass_by(pool, native);
        OK(tarn_pool_suspend(pool, false));
        OK(tarn_pool_resume(pool));
    }
    atomic_store(&enough, true);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(tarn_pool_release(other));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    stream = lease(0);
    return 0;
}

int main(void)
{
    host_start_with(1, MEMORY);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_addresses_need_no_memory),
        cmocka_unit_test(blocks_keep_their_contents_between_free_addresses),
        cmocka_unit_test(others_at_left_addresses_keep_their_contents),
        cmocka_unit_test(a_graph_finds_its_temporaries),
        cmocka_unit_test(a_registrable_segment_comes_back_whole),
        cmocka_unit_test(the_limit_of_the_device_holds_and_not_that_of_the_pool),
        cmocka_unit_test(a_failure_says_what_is_needed_and_who_has_it),
        cmocka_unit_test(without_host_memory_nothing_is_lost),
        cmocka_unit_test(heaps_are_reused_beside_suspends_and_resumes),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
