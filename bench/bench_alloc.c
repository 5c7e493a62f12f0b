/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What an allocation and a free cost, beside host allocators: pairs of one size, random slots, the
 * requests of recorded traces (TARN_TRACES names folders of PyTorch snapshots), single calls, many
 * threads, and one thread that frees what another allocates.
 *
 * Every allocator runs the same sequence, in the same process. A round runs each of them twice, the
 * first time for what the one before has left of the processor's caches, in an order that rotates;
 * what is printed is the median of the second runs, and tarn's beside each peer's. Touched: the
 * first 64 bytes of each block are written
 * after the allocation.
 *
 * usage: bench_alloc [scaling|latencies]     "scaling": only the table by the number of threads;
 *                                            "latencies": only single calls by the same */
#include "bench_alloc/measure.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACE_ROUNDS 5
#define TRACES 64

/* Measures every peer on a sequence, and prints a line. The medians, in ns, go to `medians`. */
static void measure(const struct sequence *sequence, bool touch, size_t rounds,
                    double medians[PEERS])
{
    double times[PEERS][ROUNDS];
    void **slots = slots_make(sequence);
    for (size_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < peer_count; i++) {
            size_t peer = (i + round) % peer_count;
            (void)sequence_run(&peers[peer], sequence, slots, touch, CLOCK_MONOTONIC);
            times[peer][round] =
                sequence_run(&peers[peer], sequence, slots, touch, CLOCK_MONOTONIC);
        }
    free(slots);
    printf("%-26.26s", sequence->name);
    for (size_t i = 0; i < peer_count; i++) {
        medians[i] = median(times[i], rounds);
        printf("  %9.1f", medians[i]);
    }
    for (size_t i = 1; i < peer_count; i++)
        printf("  %13.2f", medians[0] / medians[i]);
    putchar('\n');
}

static void head(const char *title, size_t rounds)
{
    printf("\n%s: ns for an allocation and its free, median of %zu rounds\n%-26s", title, rounds,
           "");
    for (size_t i = 0; i < peer_count; i++)
        printf("  %9s", peers[i].name);
    for (size_t i = 1; i < peer_count; i++) {
        char ratio[32];
        snprintf(ratio, sizeof ratio, "%s/%s", peers[0].name, peers[i].name);
        printf("  %13s", ratio);
    }
    putchar('\n');
}

static void geometric_mean(const double logs[PEERS], size_t count)
{
    printf("%-26s", "  geometric mean");
    for (size_t i = 0; i < peer_count; i++)
        printf("  %9.1f", exp(logs[i] / (double)count));
    for (size_t i = 1; i < peer_count; i++)
        printf("  %13.2f", exp((logs[0] - logs[i]) / (double)count));
    putchar('\n');
}

static void measure_and_end(const char *name, struct sequence sequence, bool touch,
                            double logs[PEERS])
{
    double medians[PEERS];
    if (name)
        snprintf(sequence.name, sizeof sequence.name, "%s", name);
    measure(&sequence, touch, ROUNDS, medians);
    for (size_t i = 0; logs && i < peer_count; i++)
        logs[i] += log(medians[i]);
    sequence_finish(&sequence);
}

static void small_blocks(bool touch)
{
    double logs[PEERS] = {0};
    head(touch ? "Small blocks, touched" : "Small blocks, untouched", ROUNDS);
    measure_and_end("pair, 512 B", sequence_pairs(512), touch, logs);
    measure_and_end("pair, 4 KiB", sequence_pairs(4096), touch, logs);
    measure_and_end("pair, 64 KiB", sequence_pairs(65536), touch, logs);
    geometric_mean(logs, 3);
    measure_and_end("pair, 512 B, 1 held", sequence_held(512), touch, NULL);
    measure_and_end("256 random slots", sequence_random(), touch, NULL);
}

static void large_blocks(void)
{
    head("Large blocks, untouched, steady", ROUNDS);
    measure_and_end("pair, 1 MiB", sequence_pairs(LARGE), false, NULL);
    measure_and_end("pair, 16 MiB", sequence_pairs(LARGE << 4), false, NULL);
    measure_and_end("pair, 128 MiB", sequence_pairs(LARGE << 7), false, NULL);
    measure_and_end("pair, 1 GiB", sequence_pairs(LARGE << 10), false, NULL);
    puts("(a host allocator may take such a block from the system and give it back each time; it "
         "touches none of it)");
}

/* Traces --------------------------------------------------------------------------------------- */

static int is_snapshot(const struct dirent *entry)
{
    const char *name = strstr(entry->d_name, ".pickle");
    return name && (strcmp(name, ".pickle") == 0 || strcmp(name, ".pickle.zst") == 0);
}

/* Reads the snapshots of a folder that have a trace, in the order of their names, behind the first
 * `count`. Gives how many there are. */
static size_t traces_read(const char *folder, struct sequence sequences[TRACES], size_t count)
{
    struct dirent **entries = NULL;
    int found = scandir(folder, &entries, is_snapshot, alphasort);
    for (int i = 0; i < found; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        free(entries[i]);
        struct sequence sequence = count < TRACES ? sequence_of_trace(path) : (struct sequence){0};
        if (sequence.count > 1)
            sequences[count++] = sequence;
        else
            sequence_finish(&sequence);
    }
    free(entries);
    return count;
}

static void traces(bool touch, const struct sequence *sequences, size_t count)
{
    double logs[PEERS] = {0}, medians[PEERS];
    head(touch ? "Recorded traces, touched" : "Recorded traces, untouched", TRACE_ROUNDS);
    for (size_t i = 0; i < count; i++) {
        measure(&sequences[i], touch, TRACE_ROUNDS, medians);
        for (size_t j = 0; j < peer_count; j++)
            logs[j] += log(medians[j]);
    }
    geometric_mean(logs, count);
}

int main(int argc, char **argv)
{
    static struct sequence sequences[TRACES];
    const char *folders = getenv("TARN_TRACES");
    char *list = strdup(folders ? folders : ""), *rest = NULL;
    size_t count = 0, longest = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    peers_open();
    if (argc > 1 && strcmp(argv[1], "scaling") == 0) {
        bench_scaling();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "latencies") == 0) {
        bench_spread();
        return 0;
    }
    small_blocks(false);
    small_blocks(true);
    large_blocks();

    for (char *folder = strtok_r(list, ":", &rest); folder; folder = strtok_r(NULL, ":", &rest))
        count = traces_read(folder, sequences, count);
    free(list);
    if (count) {
        traces(false, sequences, count);
        traces(true, sequences, count);
    } else {
        puts("\nRecorded traces: left out; TARN_TRACES names no folder of snapshots");
    }

    struct sequence random = sequence_random();
    snprintf(random.name, sizeof random.name, "256 random slots");
    bench_latencies(&random);
    sequence_finish(&random);
    for (size_t i = 1; i < count; i++)
        longest = sequences[i].count > sequences[longest].count ? i : longest;
    if (count)
        bench_latencies(&sequences[longest]);
    bench_threads();
    bench_scaling();
    for (size_t i = 0; i < count; i++)
        sequence_finish(&sequences[i]);
    return 0;
}
