/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ranges on the host device: what a commit and a decommit of pages cost that are still mapped,
 * by one thread and by several, each with pages and a stream of its own in one range; and what a
 * commit costs that maps a page, whose driver calls are the host device's. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <tarn/host.h>
#include <tarn/tarn.h>
#include <time.h>

#define THREADS 8
#define PAIRS 1000000
#define ROUNDS 5
#define PAGE ((size_t)2 << 20)
#define PAGES 8 /* of each thread */

static tarn_range *range;
static pthread_barrier_t barrier;

static void must(tarn_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "bench_range: %s: %s\n", what, tarn_last_error());
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void pairs(size_t first, size_t pages, tarn_stream stream, int count)
{
    for (int i = 0; i < count; i++) {
        size_t offset = (first + (size_t)i % (PAGES / pages) * pages) * PAGE;
        must(tarn_range_commit(range, offset, pages * PAGE, stream), "tarn_range_commit");
        must(tarn_range_decommit(range, offset, pages * PAGE, stream), "tarn_range_decommit");
    }
}

static void *run(void *argument)
{
    size_t first = (size_t)(uintptr_t)argument * PAGES;
    tarn_stream stream = 0;
    must(tarn_stream_lease(0, 0, &stream), "tarn_stream_lease");
    must(tarn_range_commit(range, first * PAGE, PAGES * PAGE, stream), "tarn_range_commit");
    must(tarn_range_decommit(range, first * PAGE, PAGES * PAGE, stream), "tarn_range_decommit");
    pairs(first, 1, stream, 1000);
    pthread_barrier_wait(&barrier);
    pairs(first, 1, stream, PAIRS);
    pthread_barrier_wait(&barrier);
    must(tarn_stream_return(stream), "tarn_stream_return");
    return NULL;
}

static double threads_run(unsigned count)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, count + 1);
    for (uintptr_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i))
            exit(1);
    pthread_barrier_wait(&barrier);
    double start = now();
    pthread_barrier_wait(&barrier);
    double time = now() - start;
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    return time;
}

static void several(unsigned count)
{
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double time = threads_run(count);
        best = time < best ? time : best;
    }
    printf("%u thread%s   %6.1f ns a pair of one page, %6.2f million pairs/s\n", count,
           count > 1 ? "s" : " ", best / PAIRS, (double)count * PAIRS / best * 1e3);
}

/* In a range that has no decommitted page: the memory goes to the pool and comes from there. */
static void mapping(void)
{
    enum { COUNT = 2000 };
    tarn_stream stream = 0;
    must(tarn_stream_lease(0, 0, &stream), "tarn_stream_lease");
    double start = now();
    for (int i = 0; i < COUNT; i++) {
        size_t offset = (size_t)(i % 2) * PAGE;
        must(tarn_range_commit(range, offset, PAGE, stream), "tarn_range_commit");
        must(tarn_range_decommit(range, offset, PAGE, stream), "tarn_range_decommit");
    }
    printf("a page that has to be unmapped and mapped elsewhere: %.1f us\n",
           (now() - start) / COUNT / 1e3);
    must(tarn_stream_return(stream), "tarn_stream_return");
}

int main(void)
{
    tarn_host_configuration config = {.size = sizeof config, .devices = 1};
    must(tarn_host_configuration_set(&config), "tarn_host_configuration_set");
    must(tarn_range_create(NULL, (size_t)THREADS * PAGES * PAGE, &range), "tarn_range_create");
    mapping();
    for (unsigned count = 1; count <= THREADS; count *= 2)
        several(count);
    must(tarn_range_destroy(range), "tarn_range_destroy");
    return 0;
}
