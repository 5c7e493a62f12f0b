/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How a pair of allocation and free scales from one thread to 16: each thread with a stream of its
 * own, and all with one stream. Only tarn knows streams, so the peers have one row each. Wall-clock
 * time, as a wait is what threads may cost each other; so there are no more threads than
 * processors. What is printed is the mean over the threads, the median of the rounds. */
#include "measure.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SCALING_ROUNDS 5
#define RUN_NS 20e6 /* at the least, so that all threads run at once */
#define MOST_THREADS 16
#define COUNTS 5 /* 1, 2, 4, 8, 16 */

struct runner {
    pthread_t thread;
    pthread_barrier_t *barrier;
    const struct peer *peer;
    const struct sequence *sequence;
    int stream; /* -1: the one of all threads */
    double ns;
};

static void *run(void *argument)
{
    struct runner *runner = argument;
    void **slots = slots_make(runner->sequence);
    if (runner->peer->stream_use)
        runner->peer->stream_use(runner->stream);
    (void)sequence_run(runner->peer, runner->sequence, slots, false, CLOCK_MONOTONIC); /* warm */
    pthread_barrier_wait(runner->barrier);
    double sum = 0, start = clock_ns(CLOCK_MONOTONIC);
    int runs = 0;
    do {
        sum += sequence_run(runner->peer, runner->sequence, slots, false, CLOCK_MONOTONIC);
        runs++;
    } while (clock_ns(CLOCK_MONOTONIC) - start < RUN_NS);
    runner->ns = sum / runs;
    pthread_barrier_wait(runner->barrier); /* nobody is alone before all have ended */
    free(slots);
    return NULL;
}

static double run_all(const struct peer *peer, const struct sequence *sequence, int threads,
                      bool own)
{
    static struct runner runners[MOST_THREADS];
    pthread_barrier_t barrier;
    double sum = 0;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        runners[i] = (struct runner){
            .barrier = &barrier, .peer = peer, .sequence = sequence, .stream = own ? i : -1};
        if (pthread_create(&runners[i].thread, NULL, run, &runners[i]))
            die("pthread_create", "failed");
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(runners[i].thread, NULL);
        sum += runners[i].ns;
    }
    pthread_barrier_destroy(&barrier);
    return sum / threads;
}

static void row(const struct sequence *sequence, const struct peer *peer, bool own, int most)
{
    double times[COUNTS][SCALING_ROUNDS];
    for (int round = 0; round < SCALING_ROUNDS; round++)
        for (int i = 0; i < COUNTS && 1 << i <= most; i++)
            times[i][round] = run_all(peer, sequence, 1 << i, own);
    char name[64];
    snprintf(name, sizeof name, "%s%s", peer->name,
             !peer->stream_use ? ""
             : own             ? ", own stream"
                               : ", one stream");
    printf("%-26.26s %-18s", sequence->name, name);
    for (int i = 0; i < COUNTS && 1 << i <= most; i++)
        printf("  %9.1f", median(times[i], SCALING_ROUNDS));
    putchar('\n');
}

static void rows(const char *name, struct sequence sequence, int most)
{
    snprintf(sequence.name, sizeof sequence.name, "%s", name);
    for (size_t i = 0; i < peer_count; i++) {
        row(&sequence, &peers[i], true, most);
        if (peers[i].stream_use)
            row(&sequence, &peers[i], false, most);
    }
    sequence_finish(&sequence);
}

void bench_scaling(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = cores < 2 ? 2 : cores > MOST_THREADS ? MOST_THREADS : (int)cores;
    printf("\nScaling: ns for an allocation and its free, by the number of threads, median of %d "
           "rounds\n%-45s",
           SCALING_ROUNDS, "");
    for (int i = 0; i < COUNTS && 1 << i <= most; i++)
        printf("  %9d", 1 << i);
    putchar('\n');
    rows("pair, 4 KiB", sequence_pairs(4096), most);
    rows("pair, 256 KiB", sequence_pairs(256 << 10), most);
    rows("pair, 2 MiB", sequence_pairs(2 << 20), most);
    rows("pair, 32 MiB", sequence_pairs(32 << 20), most);
    rows("slots, 256 KiB to 32 MiB", sequence_random_large(), most);
}
