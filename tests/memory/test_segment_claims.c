/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Allocators of a caller's that give segments where tarn has memory: refused, given back once, and
 * nothing is lost. */
#include "base/pages.h"
#include "memory/pool/pool.h"
#include "support/host.h"

#include <pthread.h>
#include <semaphore.h>
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

/* Gives what it was told to give, at any size. */
struct giver {
    uintptr_t at;
    int allocs, frees;
    void *freed;
    size_t freed_size;
    tarn_pool *next; /* that allocates from within the free, where its allocator has the same
                        addresses then */
    void *block;     /* that it was given */
};

static void *giver_alloc(size_t size, int device, void *stream, void *user)
{
    struct giver *giver = user;
    (void)size, (void)device, (void)stream;
    giver->allocs++;
    return (void *)giver->at; // NOLINT(performance-no-int-to-ptr): addresses that nobody reads
}

static void giver_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    struct giver *giver = user;
    (void)device, (void)stream;
    giver->frees++;
    giver->freed = pointer;
    giver->freed_size = size;
    if (giver->next)
        OK(tarn_pool_alloc(giver->next, own, 30 * MIB, &giver->block));
}

static tarn_pool *pool_of_giver(struct giver *giver)
{
    const tarn_pool_allocator allocator = {sizeof allocator, giver_alloc, giver_free, NULL, giver};
    return pool_with((tarn_pool_options){.allocator = &allocator});
}

/* The request fails, the text names the allocator and what it gave, and the allocator has that back
 * once. */
static void gives_wrong(struct giver *giver, tarn_pool *pool, uintptr_t at, tarn_status status,
                        const char *why)
{
    char name[100], where[32];
    tarn_pool_id id;
    void *pointer = &name;
    int frees = giver->frees, allocs = giver->allocs;
    giver->at = at;
    id = pool_info_of(pool).id;
    (void)snprintf(name, sizeof name,
                   "the allocator of pool (%llu, %llu) gave a segment of 31457280 bytes",
                   (unsigned long long)id.first, (unsigned long long)id.second);
    (void)snprintf(where, sizeof where, "%#zx", (size_t)at);
    tarn_stats before = stats_of(0);
    GIVES(tarn_pool_alloc(pool, own, 30 * MIB, &pointer), status);
    CHECK(strstr(tarn_last_error(), name) && strstr(tarn_last_error(), where) &&
          strstr(tarn_last_error(), why));
    CHECK(pointer == &name && giver->allocs == allocs + 1 && giver->frees == frees + 1);
    CHECK((uintptr_t)giver->freed == at && giver->freed_size == 30 * MIB);
    tarn_stats after = stats_of(0), mine = pool_stats_of(pool);
    CHECK(mine.reserved_bytes[0].current == 0 && mine.segment[0].allocated == 0);
    CHECK(memcmp(before.reserved_bytes, after.reserved_bytes, sizeof before.reserved_bytes) == 0);
}

static void a_segment_must_have_addresses_that_nobody_else_has(void **state)
{
    (void)state;
    struct giver giver = {0}, right = {.at = (uintptr_t)0x200000000000};
    tarn_pool *pool = pool_of_giver(&giver), *others = pool_of_giver(&right), *plain = NULL;
    static const char wraps[] = "wraps past the end of the address space";
    gives_wrong(&giver, pool, (uintptr_t)0 - 512, TARN_ERROR_DRIVER, wraps);
    gives_wrong(&giver, pool, (uintptr_t)0 - MIB, TARN_ERROR_DRIVER, wraps);
    gives_wrong(&giver, pool, (uintptr_t)0 - 30 * MIB, TARN_ERROR_DRIVER, wraps);
    gives_wrong(&giver, pool, (uintptr_t)0 - 30 * MIB - 512, TARN_ERROR_NOT_SUPPORTED, "48 bits");
    gives_wrong(&giver, pool, ((uintptr_t)1 << 48) - MIB, TARN_ERROR_NOT_SUPPORTED, "48 bits");
    gives_wrong(&giver, pool, (uintptr_t)0xffff800000000000, TARN_ERROR_NOT_SUPPORTED, "48 bits");
    gives_wrong(&giver, pool, (uintptr_t)0x300000000100, TARN_ERROR_DRIVER,
                "not a multiple of 512");

    /* Another's segment: from before, inside, at both ends, around. */
    void *block = NULL;
    OK(tarn_pool_alloc(others, own, 30 * MIB, &block));
    static const char segment[] = "where tarn has another segment";
    gives_wrong(&giver, pool, right.at - 30 * MIB + 512, TARN_ERROR_DRIVER, segment);
    gives_wrong(&giver, pool, right.at - MIB, TARN_ERROR_DRIVER, segment);
    gives_wrong(&giver, pool, right.at, TARN_ERROR_DRIVER, segment);
    gives_wrong(&giver, pool, right.at + MIB, TARN_ERROR_DRIVER, segment);
    gives_wrong(&giver, pool, right.at + 30 * MIB - 512, TARN_ERROR_DRIVER, segment);
    plain = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_PLAIN});
    void *drivers = alloc_in(plain, own, 30 * MIB);
    gives_wrong(&giver, pool, (uintptr_t)drivers - MIB, TARN_ERROR_DRIVER, segment);

    /* Addresses of virtual memory, mapped or not, and what reaches into them; imports have some of
     * these. */
    const struct arena *arena = arena_if_used(0);
    static const char virtual[] = "where tarn has other memory";
    gives_wrong(&giver, pool, arena->base, TARN_ERROR_DRIVER, virtual);
    gives_wrong(&giver, pool, arena->base - 30 * MIB + 512, TARN_ERROR_DRIVER, virtual);
    gives_wrong(&giver, pool, arena->base + arena->size - 512, TARN_ERROR_DRIVER, virtual);

    /* Pinned memory. */
    void *pinned = NULL;
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 3 * MIB, &pinned));
    uintptr_t near = (uintptr_t)pinned & ~(uintptr_t)511;
    gives_wrong(&giver, pool, near, TARN_ERROR_DRIVER, "where tarn has pinned memory");
    gives_wrong(&giver, pool, near - 30 * MIB + 1024, TARN_ERROR_DRIVER,
                "where tarn has pinned memory");
    OK(tarn_free(pinned));

    /* What only touches is right. */
    void *below = NULL, *above = NULL;
    giver.at = right.at - 30 * MIB;
    OK(tarn_pool_alloc(pool, own, 30 * MIB, &below));
    giver.at = right.at + 30 * MIB;
    OK(tarn_pool_alloc(pool, own, 30 * MIB, &above));
    verify(0);
    OK(tarn_free(below));
    OK(tarn_free(above));
    OK(tarn_free(block));
    OK(tarn_free(drivers));
    int frees = giver.frees;
    OK(tarn_pool_release(pool));
    CHECK(giver.frees == frees + 2);
    OK(tarn_pool_release(others));
    OK(tarn_pool_release(plain));
    CHECK(right.frees == 1);
    nothing_is_left(0);
    OK(tarn_pinned_trim(0));
}

/* Holds one thread's segment on its way: there already, and not yet in its heap; or out of that,
 * and not yet given back. */
static struct {
    sem_t there, go_on;
    pthread_t thread;
} on_its_way;

static void wait_there(const tarn_mapping *range, void *user)
{
    (void)user, (void)range;
    if (!pthread_equal(pthread_self(), on_its_way.thread))
        return;
    sem_post(&on_its_way.there);
    sem_wait(&on_its_way.go_on);
}

static void *grow(void *pool)
{
    void *block = NULL;
    on_its_way.thread = pthread_self();
    OK(tarn_pool_alloc(pool, own, 30 * MIB, &block));
    return block;
}

static void *give_up(void *pool)
{
    on_its_way.thread = pthread_self();
    OK(tarn_pool_trim(pool, 0));
    return NULL;
}

static void of_two_segments_that_overlap_at_once_one_is_refused(void **state)
{
    (void)state;
    struct giver first = {.at = (uintptr_t)0x200000000000}, second = {.at = first.at + MIB};
    tarn_pool *one = pool_of_giver(&first), *two = pool_of_giver(&second);
    pthread_t thread;
    tarn_observer observer = 0;
    void *block = NULL;
    CHECK(sem_init(&on_its_way.there, 0, 0) == 0 && sem_init(&on_its_way.go_on, 0, 0) == 0);

    tarn_observer_options options = {.size = sizeof options, .device = 0, .mapped = wait_there};
    OK(tarn_observer_add(&options, &observer));
    CHECK(pthread_create(&thread, NULL, grow, one) == 0);
    sem_wait(&on_its_way.there);
    gives_wrong(&second, two, second.at, TARN_ERROR_DRIVER, "where tarn has another segment");
    GIVES(tarn_free((char *)first.at + MIB),
          TARN_ERROR_DOUBLE_FREE); // NOLINT(performance-no-int-to-ptr)
    sem_post(&on_its_way.go_on);
    CHECK(pthread_join(thread, &block) == 0 && (uintptr_t)block == first.at && first.frees == 0);
    OK(tarn_observer_remove(observer));
    OK(tarn_free(block));
    verify(0);

    /* A segment that goes is its pool's until its allocator has it back. */
    options = (tarn_observer_options){.size = sizeof options, .device = 0, .unmapping = wait_there};
    OK(tarn_observer_add(&options, &observer));
    CHECK(pthread_create(&thread, NULL, give_up, one) == 0);
    sem_wait(&on_its_way.there);
    CHECK(first.frees == 0);
    gives_wrong(&second, two, second.at, TARN_ERROR_DRIVER, "where tarn has another segment");
    sem_post(&on_its_way.go_on);
    CHECK(pthread_join(thread, NULL) == 0 && first.frees == 1);
    OK(tarn_observer_remove(observer));

    /* And from that moment on anybody's. */
    OK(tarn_pool_alloc(one, own, 30 * MIB, &block));
    OK(tarn_free(block));
    first.next = two;
    OK(tarn_pool_trim(one, 0));
    CHECK(first.frees == 2 && (uintptr_t)first.block == second.at);
    OK(tarn_free(first.block));
    OK(tarn_pool_release(one));
    OK(tarn_pool_release(two));
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
        cmocka_unit_test(a_segment_must_have_addresses_that_nobody_else_has),
        cmocka_unit_test(of_two_segments_that_overlap_at_once_one_is_refused),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
