/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Plans with private pools: which pool follows which arenas, and what becomes of it when pools end,
 * are suspended, captured into, trimmed and restored. Each test runs in a child, since a plan
 * counts for a process. The device has 256 MiB. */
#include "memory/pool/pool.h"
#include "plan_test.h"
#include "support/fail_hits.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define REQUESTS 4
#define ARENAS 4
#define SMALL (2 * MIB)

/* Arenas of four requests, of which the second and the third take turns at one place: first, 4, 6
 * and 2 MiB. */
static const struct {
    uint32_t pool;
    size_t first; /* MiB */
} arenas[ARENAS] = {{0, 8}, {1, 8}, {1, 9}, {2, 8}};

static size_t arena_size(unsigned arena)
{
    return (arenas[arena].first + 8) * MIB;
}

static struct plan_request request_of(size_t size, size_t offset, uint32_t end)
{
    return (struct plan_request){(uint32_t)htole32((uint32_t)(size * MIB / TARN_BLOCK_UNIT)),
                                 (uint32_t)htole32((uint32_t)(offset * MIB / TARN_BLOCK_UNIT)),
                                 htole32(end)};
}

static void write_arena(FILE *file, unsigned arena)
{
    const size_t first = arenas[arena].first;
    const struct plan_request requests[REQUESTS] = {
        request_of(first, 0, 4), request_of(4, first, 2), request_of(6, first, 4),
        request_of(2, first + 6, 4)};
    struct plan_header header = {.version = htole32(PLAN_VERSION_POOLS),
                                 .count = htole32(REQUESTS),
                                 .arena = htole64(arena_size(arena)),
                                 .small = htole64(SMALL),
                                 .behind = htole32(ARENAS - 1 - arena),
                                 .pool = htole32(arenas[arena].pool)};
    memcpy(header.magic, PLAN_MAGIC, sizeof header.magic);
    header.checksum = htole64(plan_checksum(&header, requests));
    CHECK(fwrite(&header, sizeof header, 1, file) == 1 &&
          fwrite(requests, sizeof requests, 1, file) == 1);
}

static void use_plan(void)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    for (unsigned i = 0; i < ARENAS; i++)
        write_arena(file, i);
    CHECK(fclose(file) == 0);
    use_file();
}

static tarn_pool *make_pool(void)
{
    return pool_with((tarn_pool_options){.device = 0});
}

static uint64_t planned(void)
{
    return plan_counts().planned;
}

/* The requests of an arena behind the first, which is at `base`; each must be where the plan has
 * it. */
static void follow(tarn_pool *pool, tarn_stream stream, char *base, size_t first)
{
    char *second = alloc_in(pool, stream, 4 * MIB);
    CHECK(second == base + first * MIB);
    OK(tarn_free(second));
    char *third = alloc_in(pool, stream, 6 * MIB), *fourth = alloc_in(pool, stream, 2 * MIB);
    CHECK(third == base + first * MIB && fourth == base + (first + 6) * MIB);
    OK(tarn_free(third));
    OK(tarn_free(fourth));
    verify(0);
}

static void each_pool_follows_the_arenas_of_one(void)
{
    use_plan();
    tarn_stream stream = lease(0), other = lease(0);
    tarn_pool *one = make_pool(), *two = make_pool(), *three = make_pool();
    char *first = alloc_in(one, stream, 8 * MIB); /* not the arena of the default pool, which begins
                                                     so too */
    CHECK(planned() == 1 && ledger_of(0).created == 8 * MIB);
    char *second = alloc_in(two, stream, 8 * MIB);
    CHECK(planned() == 2 && ledger_of(0).created == 16 * MIB);
    char *far = alloc_in(one, other, 9 * MIB);
    CHECK(planned() == 3);
    void *none = alloc_in(three, stream, 8 * MIB); /* no arena is left for it */
    CHECK(planned() == 3);
    char *base = alloc_on(stream, 8 * MIB);
    CHECK(planned() == 4);
    follow(one, stream, first, 8);
    follow(two, stream, second, 8);
    follow(one, other, far, 9);
    CHECK(planned() == 4 + 3 * 3);
    /* In granules */
    CHECK(ledger_of(0).created ==
          arena_size(1) + arena_size(2) + MIB + arena_size(3) + 2 * 8 * MIB);
    void *unplanned = alloc_in(two, lease(0), 9 * MIB); /* no arena that begins so is this pool's */
    CHECK(planned() == 4 + 3 * 3);
    void *all[] = {first, second, unplanned, far, none, base};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        OK(tarn_free(all[i]));
    OK(tarn_pool_release(one));
    OK(tarn_pool_release(two));
    OK(tarn_pool_release(three));
    nothing_is_left(0);
}

/* The arenas of a pool that has ended are the next pool's, with the memory that it left; so are
 * those of one that only has blocks left. A pool that a graph held leaves its memory to others. */
static void the_next_pool_follows_when_one_has_ended(void)
{
    use_plan();
    tarn_stream stream = lease(0);
    uint64_t calls = 0;
    for (int i = 0; i < 6; i++) {
        tarn_pool *pool = make_pool();
        void *graph = NULL;
        char *first = alloc_in(pool, stream, 8 * MIB);
        follow(pool, stream, first, 8);
        CHECK(planned() == 4u * (unsigned)(i + 1) && ledger_of(0).created == arena_size(1));
        CHECK(i == 0 || calls_of(0, "create") == calls);
        calls = calls_of(0, "create");
        OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
        OK(tarn_capture_end(stream, &graph));
        OK(tarn_free(first));
        OK(tarn_pool_release(pool));
        OK(driver->graph_destroy(0, graph));
        OK(tarn_device_synchronize(0));
    }
    tarn_pool *one = make_pool(), *two = make_pool(), *three = make_pool();
    uint64_t before = planned();
    void *blocks[] = {alloc_in(one, stream, 8 * MIB), alloc_in(two, stream, 8 * MIB), NULL};
    CHECK(planned() == before + 2); /* of the pools' arenas none that begins so is left */
    before = planned();
    OK(tarn_pool_release(one));
    blocks[2] = alloc_in(three, stream, 8 * MIB);
    CHECK(planned() == before + 1);
    follow(three, stream, blocks[2], 8);
    for (size_t i = 0; i < 3; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_pool_release(two));
    OK(tarn_pool_release(three));
    nothing_is_left(0);
}

static void a_suspended_pool_keeps_its_places(void)
{
    use_plan();
    tarn_stream stream = lease(0);
    tarn_pool *pool = make_pool(), *fresh = make_pool(), *third = make_pool();
    char *first = alloc_in(pool, stream, 8 * MIB);
    memset(first, 77, 8 * MIB);
    void *block = (void *)&block;
    OK(tarn_pool_suspend(pool, true));
    CHECK(ledger_of(0).created == 0);
    GIVES(tarn_pool_alloc(pool, stream, 4 * MIB, &block), TARN_ERROR_SUSPENDED);
    OK(tarn_pool_suspend(fresh, false));
    /* Begins nothing */
    GIVES(tarn_pool_alloc(fresh, stream, 8 * MIB, &block), TARN_ERROR_SUSPENDED);
    CHECK(ledger_of(0).created == 0 && planned() == 1);
    OK(tarn_pool_resume(pool));
    for (size_t i = 0; i < 8 * MIB; i += 4096)
        CHECK(first[i] == 77);
    follow(pool, stream, first, 8);
    void *second = alloc_in(third, stream, 8 * MIB); /* the arena that the suspended pool would have
                                                        begun */
    CHECK(planned() == 5);
    OK(tarn_pool_resume(fresh));
    OK(tarn_free(first));
    OK(tarn_free(second));
    OK(tarn_pool_release(pool));
    OK(tarn_pool_release(fresh));
    OK(tarn_pool_release(third));
    nothing_is_left(0);
}

/* An arena that is mapped in a capture stays as long as the graph, trimmed or not. */
static void a_capture_follows_the_plan(void)
{
    use_plan();
    tarn_stream stream = lease(0), other = lease(0);
    tarn_pool *pool = make_pool();
    void *graph = NULL, *first = NULL;
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    OK(tarn_alloc_on(stream, 8 * MIB, &first));
    CHECK(planned() == 1);
    follow(pool, stream, first, 8);
    void *unlike = alloc_on(other, 5 * MIB); /* not of the capture */
    OK(tarn_free(first));
    OK(tarn_capture_end(stream, &graph));
    OK(tarn_free(unlike));
    OK(tarn_device_trim(0, 0));
    OK(tarn_pool_trim(pool, 0));
    CHECK(ledger_of(0).created == arena_size(1));
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    void *again = NULL, *second = NULL;
    OK(tarn_alloc_on(stream, 8 * MIB, &again)); /* behind its end the plan begins anew */
    CHECK(again == first && planned() == 5);
    OK(tarn_capture_end(stream, &second));
    OK(tarn_free(again));
    OK(driver->graph_destroy(0, graph));
    OK(driver->graph_destroy(0, second));
    OK(tarn_device_synchronize(0));
    OK(tarn_pool_trim(pool, 0));
    CHECK(ledger_of(0).created == 0);
    first = alloc_in(pool, stream, 8 * MIB); /* and follows again after all was given up */
    CHECK(planned() == 6);
    follow(pool, stream, first, 8);
    OK(tarn_free(first));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void a_restore_puts_blocks_back_into_the_arena(void)
{
    use_plan();
    tarn_stream stream = lease(0);
    tarn_pool *pool = make_pool();
    tarn_checkpoint *checkpoint = NULL;
    char *first = alloc_in(pool, stream, 8 * MIB), *second;
    follow(pool, stream, first, 8); /* so that all of the arena has memory */
    OK(tarn_free(first));
    CHECK((char *)alloc_in(pool, stream, 8 * MIB) == first);
    second = alloc_in(pool, stream, 4 * MIB);
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_free(first));
    OK(tarn_free(second));
    char *third = alloc_in(pool, stream, 6 * MIB);
    CHECK(third == first + 8 * MIB);
    OK(tarn_pool_restore(pool, checkpoint, NULL, NULL));
    verify(0);
    third = alloc_in(pool, stream, 6 * MIB); /* its place is the second block's again */
    CHECK(third + 6 * MIB <= first || third >= first + 12 * MIB);
    verify(0);
    OK(tarn_free(second));
    OK(tarn_free(third));
    OK(tarn_pool_restore(pool, checkpoint, NULL, NULL));
    OK(tarn_free(second));
    OK(tarn_free(first));
    first = alloc_in(pool, stream, 8 * MIB);
    follow(pool, stream, first, 8);
    OK(tarn_free(first));
    OK(tarn_checkpoint_destroy(checkpoint));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* A request of the default pool that a pool serves out of its free memory is no request of the
 * pool. */
static void what_a_pool_spares_begins_nothing(void)
{
    use_plan();
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0, .use_on_oom = true});
    void *warm = alloc_in(pool, stream, 3 * MIB); /* the pool's heap is there, and follows
                                                     nothing */
    OK(tarn_free(warm));
    size_t before = ledger_of(0).created;
    OK(tarn_device_limit_set(0, before));
    void *spared = alloc_on(stream, 2 * MIB);
    CHECK(planned() == 0 && ledger_of(0).created == before);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_free(spared));
    char *first = alloc_in(pool, stream, 8 * MIB);
    follow(pool, stream, first, 8); /* so that all of the arena has memory */
    OK(tarn_free(first));
    CHECK((char *)alloc_in(pool, stream, 8 * MIB) == first && planned() == 5);
    before = ledger_of(0).created;
    OK(tarn_device_limit_set(0, before));
    spared = alloc_on(stream, 4 * MIB); /* what the plan has next, but not for this pool */
    CHECK(planned() == 5 && ledger_of(0).created == before);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_free(spared));
    follow(pool, stream, first, 8);
    CHECK(planned() == 8);
    OK(tarn_free(first));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* The driver's call fails, each time: the request fails, and its place is a hole again. */
static void a_place_whose_memory_could_not_be_mapped_gets_it_later(void)
{
    use_plan();
    tarn_stream stream = lease(0);
    const char *calls[] = {"create", "map", "set_access"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        tarn_pool *pool = make_pool();
        void *block = NULL;
        uint64_t before = planned();
        OK(tarn_host_fail_set(kind_of(calls[i]), 1, true, TARN_ERROR_OUT_OF_MEMORY));
        GIVES(tarn_pool_alloc(pool, stream, 8 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
        CHECK(host_fail_hits() > 1 && planned() == before);
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        verify(0);
        char *first = alloc_in(pool, stream, 8 * MIB);
        CHECK(planned() == before + 1);
        follow(pool, stream, first, 8);
        CHECK(planned() == before + 4);
        OK(tarn_free(first));
        OK(tarn_pool_release(pool));
        nothing_is_left(0);
    }
}

/* Segments of the driver, and of registrable pools, are what was asked for. */
static void pools_of_other_memory_follow_nothing(void)
{
    use_plan();
    tarn_stream stream = lease(0);
    tarn_pool *pools[] = {
        pool_with((tarn_pool_options){.device = 0, .registrable = true}),
        pool_with((tarn_pool_options){.device = 0, .segments = TARN_SEGMENTS_PLAIN})};
    for (size_t i = 0; i < 2; i++) {
        void *block = alloc_in(pools[i], stream, 8 * MIB);
        CHECK(planned() == 0);
        verify(0);
        OK(tarn_free(block));
        OK(tarn_pool_release(pools[i]));
    }
    nothing_is_left(0);
}

/* A retired stream's arena is free for another stream of the same pool alone. */
static void an_arena_stays_with_its_pool(void)
{
    use_plan();
    void *native = native_made(0);
    tarn_stream stream, other = lease(0);
    OK(tarn_stream_adopt(0, native, &stream));
    tarn_pool *one = make_pool(), *two = make_pool();
    void *far = alloc_in(one, other, 9 * MIB), *near = alloc_in(one, stream, 8 * MIB);
    CHECK(planned() == 2);
    OK(tarn_stream_retire(stream));
    tarn_stream third = lease(0);
    void *theirs = alloc_in(two, third, 8 * MIB); /* the arena of the other pool, not the one that
                                                     has become free */
    CHECK(planned() == 3);
    void *fourth = alloc_in(two, other, 8 * MIB);
    CHECK(planned() == 3);
    void *again = alloc_in(one, third, 8 * MIB);
    CHECK(planned() == 4);
    verify(0);
    void *all[] = {far, near, theirs, fourth, again};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        OK(tarn_free(all[i]));
    OK(tarn_pool_release(one));
    OK(tarn_pool_release(two));
    nothing_is_left(0);
}

static atomic_bool is_over;

static void *allocate_now_and_then(void *argument)
{
    tarn_stream stream = lease(0);
    while (!atomic_load(&is_over)) {
        OK(tarn_free(alloc_on(stream, 9 * MIB)));
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return argument;
}

/* Pools come and go, and another thread still has its heap of the last one in mind. For the thread
 * sanitizer. */
static void a_pool_ends_that_another_thread_remembers(void)
{
    pthread_t thread;
    use_plan();
    CHECK(!pthread_create(&thread, NULL, allocate_now_and_then, NULL));
    for (int i = 0; i < 100; i++) {
        tarn_scope scope;
        tarn_pool *pool = make_pool();
        OK(tarn_scope_begin(pool, TARN_SCOPE_ALWAYS, 0, &scope));
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
        OK(tarn_scope_end(scope));
        OK(tarn_pool_release(pool));
    }
    atomic_store(&is_over, true);
    CHECK(!pthread_join(thread, NULL));
    nothing_is_left(0);
}

static tarn_stream begins_on;

static void *begin_arena(void *pool)
{
    return alloc_in(pool, begins_on, 8 * MIB);
}

/* A request begins an arena for its heap, and before the heap has it, another thread gives the
 * heap's memory up. */
static void an_arena_ends_while_it_begins(void)
{
    pthread_t thread;
    struct stream *stream = NULL;
    void *blocks[2] = {NULL};
    use_plan();
    begins_on = lease(0);
    tarn_pool *pool = make_pool();
    OK(tarn_free(alloc_in(pool, begins_on, 3 * MIB))); /* makes the heap */
    OK(stream_find(begins_on, 0, &stream));
    struct heap *heap = heap_if_used(&((struct pool *)pool)->store, stream);
    OK(tarn_pool_trim(pool, 0));

    mutex_lock(&heap->lock);
    CHECK(!pthread_create(&thread, NULL, begin_arena, pool));
    while (atomic_load(&heap->arena->planned[1]) != heap)
        sched_yield();
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* to where it waits for the heap */
    plan_end_locked(heap);
    mutex_unlock(&heap->lock);
    CHECK(!pthread_join(thread, &blocks[0]));
    verify(0);
    blocks[1] = alloc_in(pool, begins_on, 8 * MIB);
    verify(0);
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[1]));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* How a heap places its blocks while it follows a plan ends with the plan. */
static void a_heap_places_as_before_when_its_plan_ends(void)
{
    struct stream *stream = NULL;
    use_plan();
    tarn_stream leased = lease(0);
    tarn_pool *pool = make_pool();
    void *block = alloc_in(pool, leased, 8 * MIB);
    OK(stream_find(leased, 0, &stream));
    struct heap *heap = heap_if_used(&((struct pool *)pool)->store, stream);
    mutex_lock(&heap->lock);
    CHECK(heap->following && heap->growths.saves);
    plan_end_locked(heap);
    CHECK(!heap->following && !heap->growths.saves);
    mutex_unlock(&heap->lock);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* The n-th driver call, or host allocation, of the beginning fails: the pool serves all the same,
 * or fails and changes nothing. */
static void begin_with_failure(uint64_t n, bool host)
{
    tarn_stream stream = lease(0);
    tarn_pool *pool = make_pool();
    void *block = alloc_with_failure(pool, stream, 8 * MIB, n, host);
    if (block)
        OK(tarn_free(block));
    block = alloc_in(pool, stream, 8 * MIB);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    if (n % 2)
        nothing_is_left(0); /* else the next begins with the memory that this one left */
    OK(tarn_stream_return(stream));
}

static void failures_at_the_beginning_leave_all_as_it_was(void)
{
    use_plan();
    OK(tarn_free(alloc_on(lease(0), 100))); /* what the device needs at its first use is there */
    for (uint64_t n = 1; n <= 64; n++) {
        begin_with_failure(n, false);
        begin_with_failure(n, true);
    }
    CHECK(planned() > 64);
    nothing_is_left(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(each_pool_follows_the_arenas_of_one),
        CHILD_TEST(the_next_pool_follows_when_one_has_ended),
        CHILD_TEST(a_suspended_pool_keeps_its_places),
        CHILD_TEST(a_capture_follows_the_plan),
        CHILD_TEST(a_restore_puts_blocks_back_into_the_arena),
        CHILD_TEST(what_a_pool_spares_begins_nothing),
        CHILD_TEST(a_place_whose_memory_could_not_be_mapped_gets_it_later),
        CHILD_TEST(pools_of_other_memory_follow_nothing),
        CHILD_TEST(an_arena_stays_with_its_pool),
        CHILD_TEST(a_pool_ends_that_another_thread_remembers),
        CHILD_TEST(an_arena_ends_while_it_begins),
        CHILD_TEST(a_heap_places_as_before_when_its_plan_ends),
        CHILD_TEST(failures_at_the_beginning_leave_all_as_it_was),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
