/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Plans of which a program strays: where its requests go so that little new memory is made, and
 * that a plan never takes memory from the request at hand; and that another thread may end the plan
 * meanwhile. Each test runs in a child, since a plan counts for a process. The device has 256
 * MiB. */
#include "memory/arena/arena.h"
#include "plan_test.h"

#include <pthread.h>

/* Follows a plan of one arena, of the default pool or, with 1, of a private one. */
static void use_plan(uint32_t pool, const struct plan_request *requests, size_t count,
                     uint64_t arena)
{
    struct plan_header header = {.version = htole32(PLAN_VERSION_POOLS),
                                 .count = htole32((uint32_t)count),
                                 .arena = htole64(arena),
                                 .pool = htole32(pool)};
    FILE *file = fopen(path, "wb");
    memcpy(header.magic, PLAN_MAGIC, sizeof header.magic);
    header.checksum = htole64(plan_checksum(&header, requests));
    CHECK(file && fwrite(&header, sizeof header, 1, file) == 1);
    CHECK(fwrite(requests, sizeof *requests, count, file) == count && fclose(file) == 0);
    use_file();
}

static void all_go(void *blocks[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        OK(tarn_free(blocks[i]));
    nothing_is_left(0);
}

/* The place of a request that did not come serves a later one that needs less new memory there, and
 * that the plan gives back no later. `end` is that of the request that does not come; the last one
 * goes to `offset`. */
static void leave_one_out(uint32_t end, size_t offset, size_t created)
{
    const struct plan_request requests[] = {
        REQUEST(3 * MIB, 0, 6),        REQUEST(6 * MIB, 3 * MIB, end),
        REQUEST(3 * MIB, 9 * MIB, 6),  REQUEST(2 * MIB, 12 * MIB, 6),
        REQUEST(5 * MIB, 14 * MIB, 6), REQUEST(1 * MIB, 19 * MIB, 6)};
    use_plan(0, requests, LENGTH(requests), 20 * MIB);
    tarn_stream stream = lease(0);
    char *base = alloc_on(stream, 3 * MIB), *third = alloc_on(stream, 3 * MIB),
         *fourth = alloc_on(stream, 2 * MIB);
    char *fifth = alloc_on(stream, 5 * MIB);
    CHECK(third == base + 9 * MIB && fourth == base + 12 * MIB && fifth == base + offset);
    CHECK(ledger_of(0).created == created && plan_counts().ordinary == 0);
    verify(0);
    all_go((void *[]){base, third, fourth, fifth}, 4);
}

static void what_is_left_out_serves_a_later_request(void)
{
    leave_one_out(6, 3 * MIB, 14 * MIB);
}

static void what_would_have_gone_before_does_not(void)
{
    leave_one_out(4, 14 * MIB, 16 * MIB);
}

/* Free memory of the stream in which nothing is planned serves before new memory is created. */
static void memory_elsewhere_serves_first(void)
{
    static const struct plan_request requests[] = {
        REQUEST(1 * MIB, 0, 8),        REQUEST(2 * MIB, 1 * MIB, 8),  REQUEST(3 * MIB, 3 * MIB, 8),
        REQUEST(4 * MIB, 6 * MIB, 8),  REQUEST(5 * MIB, 10 * MIB, 8), REQUEST(6 * MIB, 15 * MIB, 8),
        REQUEST(7 * MIB, 21 * MIB, 8), REQUEST(8 * MIB, 28 * MIB, 8),
    };
    use_plan(0, requests, LENGTH(requests), 36 * MIB);
    tarn_stream stream = lease(0);
    char *base = alloc_on(stream, 1 * MIB),
         *elsewhere = alloc_on(stream, 38 * MIB); /* which the arena has no room for */
    void *blocks[4] = {base};
    OK(tarn_free(elsewhere));
    CHECK(ledger_of(0).created == 40 * MIB);
    for (size_t i = 1; i < LENGTH(blocks); i++) {
        char *block = blocks[i] = alloc_on(stream, (i + 1) * MIB);
        CHECK(block >= elsewhere && block < elsewhere + 38 * MIB);
    }
    CHECK(ledger_of(0).created == 40 * MIB && plan_counts().beside == 3);
    verify(0);
    all_go(blocks, LENGTH(blocks));
}

/* With memory for one request and no more. A pool that is captured moves no memory, so nothing may
 * be spent on the next request, whose place is at `next`. */
static void capture_one(size_t next)
{
    const struct plan_request requests[] = {REQUEST(4 * MIB, 500 * MIB, 3),
                                            REQUEST(2 * MIB, next, 3),
                                            REQUEST(2 * MIB, next + 4 * MIB, 3)};
    use_plan(1, requests, LENGTH(requests), 512 * MIB);
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    void *graph = NULL, *block = NULL;
    OK(tarn_device_limit_set(0, 4 * MIB));
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    OK(tarn_alloc_on(stream, 4 * MIB, &block));
    CHECK(ledger_of(0).created == 4 * MIB && plan_counts().planned == 1);
    OK(tarn_capture_end(stream, &graph));
    verify(0);
    OK(tarn_free(block));
    OK(driver->graph_destroy(0, graph));
    OK(tarn_device_synchronize(0));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void a_request_comes_before_what_is_next_below(void)
{
    capture_one(0);
}

static void a_request_comes_before_what_is_next_behind(void)
{
    capture_one(504 * MIB);
}

static tarn_stream short_of_memory;
static struct driver hooked;

static void *take_all(void *argument)
{
    OK(tarn_free(alloc_on((tarn_stream)(uintptr_t)argument, MEMORY - 4 * MIB)));
    return NULL;
}

/* While memory for a place is created, another thread's stream takes all that the plan's heap has,
 * which ends the arena. */
static tarn_status create_beside(int device, size_t size, unsigned flags, driver_piece *piece)
{
    if (short_of_memory) {
        pthread_t thread;
        void *stream = (void *)(uintptr_t)short_of_memory; // NOLINT: a thread's argument
        short_of_memory = 0;
        CHECK(pthread_create(&thread, NULL, take_all, stream) == 0 &&
              pthread_join(thread, NULL) == 0);
        CHECK(!atomic_load(&arena_if_used(0)->planned[0]));
    }
    return driver_host.create(device, size, flags, piece);
}

static void an_arena_may_be_given_up_while_a_place_gets_memory(void)
{
    const struct plan_request requests[] = {REQUEST(8 * MIB, 0, 1), REQUEST(100 * MIB, 8 * MIB, 2)};
    use_plan(0, requests, LENGTH(requests), 108 * MIB);
    tarn_stream stream = lease(0), other = lease(0);
    OK(tarn_free(alloc_on(stream, 8 * MIB)));
    CHECK(plan_counts().planned == 1 && ledger_of(0).created == 8 * MIB);
    hooked = driver_host;
    hooked.create = create_beside;
    short_of_memory = other;
    driver = &hooked;
    void *block = alloc_on(stream, 100 * MIB);
    driver = &driver_host;
    CHECK(!short_of_memory);
    verify(0);
    OK(tarn_free(block));
    nothing_is_left(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(what_is_left_out_serves_a_later_request),
        CHILD_TEST(what_would_have_gone_before_does_not),
        CHILD_TEST(memory_elsewhere_serves_first),
        CHILD_TEST(a_request_comes_before_what_is_next_below),
        CHILD_TEST(a_request_comes_before_what_is_next_behind),
        CHILD_TEST(an_arena_may_be_given_up_while_a_place_gets_memory),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
