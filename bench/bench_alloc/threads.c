/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Many threads: each with random slots of its own, and one that frees what another has allocated. A
 * loop of pure computation, and a ring that passes pointers and no blocks, run beside them as
 * controls: they say how much of a figure is the machine. */
#include "measure.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS_MOST 64
#define LOOP 200000 /* steps of the computation */
#define RING 1024   /* pointers */
#define PASSED 100000

/* Threads, each with slots of its own ---------------------------------------------------------- */

struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    const struct peer *peer; /* NULL: the computation */
    const struct sequence *sequence;
    double ns;
};

static volatile uint64_t sink;

/* ns a step, by the thread's processor time. */
static double compute(void)
{
    double start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t state = 1;
    for (int i = 0; i < LOOP; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    sink = state;
    return (clock_ns(CLOCK_THREAD_CPUTIME_ID) - start) / LOOP;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    void **slots = slots_make(worker->sequence);
    if (worker->peer)
        /* Warm */
        (void)sequence_run(worker->peer, worker->sequence, slots, false, CLOCK_THREAD_CPUTIME_ID);
    pthread_barrier_wait(worker->barrier);
    worker->ns = worker->peer ? sequence_run(worker->peer, worker->sequence, slots, false,
                                             CLOCK_THREAD_CPUTIME_ID)
                              : compute();
    pthread_barrier_wait(worker->barrier); /* nobody is alone before all have ended */
    free(slots);
    return NULL;
}

/* The time of the slowest of `count` threads. */
static double run_threads(const struct peer *peer, const struct sequence *sequence, size_t count)
{
    static struct worker workers[THREADS_MOST];
    pthread_barrier_t barrier;
    double slowest = 0;
    pthread_barrier_init(&barrier, NULL, (unsigned)count);
    for (size_t i = 0; i < count; i++) {
        workers[i] = (struct worker){.barrier = &barrier, .peer = peer, .sequence = sequence};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            die("pthread_create", "failed");
    }
    for (size_t i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        slowest = workers[i].ns > slowest ? workers[i].ns : slowest;
    }
    pthread_barrier_destroy(&barrier);
    return slowest;
}

static void measure_threads(const struct sequence *sequence, size_t count)
{
    double times[PEERS + 1][2][ROUNDS], medians[PEERS + 1][2];
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i <= peer_count; i++) {
            size_t which = (i + round) % (peer_count + 1);
            const struct peer *peer = which < peer_count ? &peers[which] : NULL;
            times[which][0][round] = run_threads(peer, sequence, 1);
            times[which][1][round] = run_threads(peer, sequence, count);
        }
    for (size_t i = 0; i <= peer_count; i++)
        for (size_t many = 0; many < 2; many++)
            medians[i][many] = median(times[i][many], ROUNDS);
    double control = medians[peer_count][1] / medians[peer_count][0];
    printf("\nThreads, each with 256 random slots of its own, one stream: ns for an allocation and "
           "its free, processor "
           "time,\nmedian of %d rounds; of many threads the slowest\n%-20s  %9s  %6zu thr.  %9s  "
           "%9s\n",
           ROUNDS, "", "1 thread", count, "ratio", "/ control");
    for (size_t i = 0; i <= peer_count; i++) {
        double ratio = medians[i][1] / medians[i][0];
        printf("%-20s  %9.1f  %11.1f  %9.2f  %9.2f\n",
               i < peer_count ? peers[i].name : "computation, control", medians[i][0],
               medians[i][1], ratio, ratio / control);
    }
}

/* Producer and consumer ------------------------------------------------------------------------ */

static struct {
    _Alignas(64) atomic_size_t put;
    _Alignas(64) atomic_size_t got;
    _Alignas(64) void *blocks[RING];
} ring;

static void *consume(void *argument)
{
    const struct peer *peer = argument;
    for (size_t i = 0; i < PASSED; i++) {
        while (atomic_load_explicit(&ring.put, memory_order_acquire) == i)
            sched_yield();
        void *block = ring.blocks[i % RING];
        if (peer)
            peer_free(peer, block);
        atomic_store_explicit(&ring.got, i + 1, memory_order_release);
    }
    return NULL;
}

/* ns per block. */
static double pass(const struct peer *peer)
{
    static const size_t sizes[] = {512, 4096, 65536};
    pthread_t consumer;
    atomic_store(&ring.put, 0);
    atomic_store(&ring.got, 0);
    if (pthread_create(&consumer, NULL, consume, (void *)(uintptr_t)peer))
        die("pthread_create", "failed");
    double start = clock_ns(CLOCK_MONOTONIC);
    for (size_t i = 0; i < PASSED; i++) {
        void *block = peer ? peer->alloc(sizes[i % 3]) : &ring;
        if (!block)
            die(peer->name, "no memory");
        while (i - atomic_load_explicit(&ring.got, memory_order_acquire) == RING)
            sched_yield();
        ring.blocks[i % RING] = block;
        atomic_store_explicit(&ring.put, i + 1, memory_order_release);
    }
    pthread_join(consumer, NULL);
    return (clock_ns(CLOCK_MONOTONIC) - start) / PASSED;
}

static void measure_passing(void)
{
    double times[PEERS + 1][ROUNDS], medians[PEERS + 1];
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i <= peer_count; i++) {
            size_t which = (i + round) % (peer_count + 1);
            times[which][round] = pass(which < peer_count ? &peers[which] : NULL);
        }
    for (size_t i = 0; i <= peer_count; i++)
        medians[i] = median(times[i], ROUNDS);
    printf("\nProducer to consumer, 512 B, 4 KiB and 64 KiB in turn: ns per block, median of %d "
           "rounds\n",
           ROUNDS);
    for (size_t i = 0; i <= peer_count; i++)
        printf("%-20s  %9.1f  %9.2f\n", i < peer_count ? peers[i].name : "the ring alone",
               medians[i], medians[0] / medians[i]);
    puts("(the second figure is tarn's time beside it)");
}

void bench_threads(void)
{
    struct sequence sequence = sequence_random();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t count = cores < 2 ? 2 : (size_t)cores;
    measure_threads(&sequence, count < THREADS_MOST ? count : THREADS_MOST);
    measure_passing();
    sequence_finish(&sequence);
}
