/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* An MPI program on memory from tarn: two ranks, a GPU each where there are two. They exchange
 * blocks of a pool, broadcast them, and add them up, and check every word. In between a rank gives
 * its memory back and gets other memory at the same addresses: by a suspend and a resume of the
 * pool, or by a sleep of the process. What MPI remembers of an address must not outlive the memory.
 * scripts/mpi-check builds it and runs it. */
#define _GNU_SOURCE
#include "../exchanged.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/sleep.h>
#include <unistd.h>

#if defined(OPEN_MPI) && OPEN_MPI
#include <mpi-ext.h>
#endif

enum { STEPS = 4, SECONDS = 140, RANKS = 2 };

static int rank;
static tarn_stream stream;
static bool reduces; /* MPI_Allreduce() takes device memory */
static uint32_t *host;
static const char *volatile doing = "start";

static void fell(int signal)
{
    char text[160];
    int length =
        snprintf(text, sizeof text, "FAIL  mpi: rank %d: signal %d in %s\n", rank, signal, doing);
    (void)!write(1, text, (size_t)length);
    _exit(GPU_FAILED);
}

/* Whether all ranks say so. */
static bool agree(bool well)
{
    int mine = well, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return all;
}

/* ---- Blocks ---- */

/* What a rank sends, and where it receives. */
struct pair {
    void *mine, *theirs;
};

static bool make_pair(tarn_pool *pool, size_t bytes, struct pair *pair)
{
    pair->mine = exchanged_block("mpi", pool, stream, bytes);
    pair->theirs = exchanged_block("mpi", pool, stream, bytes);
    return pair->mine && pair->theirs;
}

static bool free_pair(struct pair *pair)
{
    bool well = OK("mpi", tarn_free(pair->mine));
    return OK("mpi", tarn_free(pair->theirs)) && well;
}

static bool fill(void *block, size_t bytes, uint32_t seed)
{
    return gpu_write("mpi", stream, block, bytes, seed);
}

static bool has(void *block, size_t bytes, uint32_t seed)
{
    return gpu_holds("mpi", stream, &block, 1, bytes, seed);
}

/* ---- Steps ---- */

static void exchange(const struct pair *pair, size_t bytes)
{
    doing = "MPI_Sendrecv";
    MPI_Sendrecv(pair->mine, (int)bytes, MPI_BYTE, !rank, 1, pair->theirs, (int)bytes, MPI_BYTE,
                 !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static bool step_exchange(const struct pair *pair, size_t bytes, uint32_t seed)
{
    uint32_t seeds[RANKS] = {seed, seed + 91};
    if (!agree(fill(pair->mine, bytes, seeds[rank]) && fill(pair->theirs, bytes, ~seed)))
        return false;
    exchange(pair, bytes);
    return agree(has(pair->theirs, bytes, seeds[!rank]) && has(pair->mine, bytes, seeds[rank]));
}

static bool step_broadcast(const struct pair *pair, size_t bytes, uint32_t seed)
{
    if (!agree(fill(pair->mine, bytes, rank ? ~seed : seed)))
        return false;
    doing = "MPI_Bcast";
    MPI_Bcast(pair->mine, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    return agree(has(pair->mine, bytes, seed));
}

/* The sum of both ranks' words ends in `mine`. An MPI that cannot compute on the device only moves
 * the words. */
static bool all_reduce(const struct pair *pair, size_t bytes)
{
    if (!reduces) {
        exchange(pair, bytes);
        return gpu_add(stream, pair->mine, bytes, pair->theirs) &&
               OK("mpi", tarn_stream_synchronize(stream));
    }
    doing = "MPI_Allreduce";
    MPI_Allreduce(MPI_IN_PLACE, pair->mine, (int)(bytes / 4), MPI_UINT32_T, MPI_SUM,
                  MPI_COMM_WORLD);
    return true;
}

static uint32_t word(int of_rank, uint32_t seed, size_t i)
{
    return (seed + (uint32_t)of_rank * 77) * 2654435761u +
           (uint32_t)i * (of_rank ? 40503u : 1013904223u);
}

static bool step_reduce(const struct pair *pair, size_t bytes, uint32_t seed)
{
    size_t words = bytes / 4, wrong = 0;
    for (size_t i = 0; i < words; i++)
        host[i] = word(rank, seed, i);
    if (!agree(gpu_upload(stream, pair->mine, host, bytes)))
        return false;
    bool well = all_reduce(pair, bytes) && gpu_download(stream, host, pair->mine, bytes);
    for (size_t i = 0; i < words; i++)
        wrong += host[i] != word(0, seed, i) + word(1, seed, i);
    return agree(well && !wrong);
}

static double gb_per_second(const struct pair *pair, size_t bytes)
{
    const int timed = exchanges_timed();
    exchange(pair, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t start = gpu_ns();
    for (int i = 0; i < timed; i++) {
        doing = "MPI_Send";
        if (rank == 0)
            MPI_Send(pair->mine, (int)bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
        else
            MPI_Recv(pair->theirs, (int)bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return (double)bytes * timed / (double)(gpu_ns() - start);
}

/* ---- Other memory ---- */

/* Puts both ranks to sleep, when both have prepared, and wakes them. What the blocks had they have
 * afterwards. */
static bool sleep_and_wake(const struct pair *pair, size_t bytes, uint32_t seed)
{
    doing = "a sleep";
    if (!agree(fill(pair->mine, bytes, seed) && fill(pair->theirs, bytes, seed + 1)))
        return false;
    bool well = agree(OK("mpi", tarn_sleep_prepare(NULL, NULL)));
    well = well && agree(OK("mpi", tarn_sleep_commit(NULL)));
    well = well && agree(OK("mpi", tarn_wake()));
    return well && agree(has(pair->mine, bytes, seed) && has(pair->theirs, bytes, seed + 1));
}

/* Other memory for the blocks: at their addresses if the pool can be suspended. */
static bool change_memory(tarn_pool *pool, size_t bytes, struct pair *pair, int step, uint32_t seed)
{
    bool slept = step % 2 && sleep_and_wake(pair, bytes, seed);
    doing = "a suspend";
    tarn_status status = step % 2 ? TARN_OK : tarn_pool_suspend(pool, false);
    if (status == TARN_ERROR_NOT_SUPPORTED) { /* plain segments */
        bool well = free_pair(pair) && OK("mpi", tarn_pool_trim(pool, 0));
        return make_pair(pool, bytes, pair) && well;
    }
    return step % 2 ? slept : OK("mpi", status) && OK("mpi", tarn_pool_resume(pool));
}

static bool all_steps(tarn_pool *pool, size_t bytes, struct pair *pair, uint32_t seed, int *same)
{
    for (int k = 0; k < STEPS; k++) {
        struct pair before = *pair;
        uint32_t now = seed + 7 * (uint32_t)k;
        if (!step_exchange(pair, bytes, now) || !step_broadcast(pair, bytes, now + 1) ||
            !step_reduce(pair, bytes, now + 2))
            return false;
        if (k < STEPS - 1 && !agree(change_memory(pool, bytes, pair, k, now + 3)))
            return false;
        *same += k < STEPS - 1 && pair->mine == before.mine && pair->theirs == before.theirs;
    }
    return true;
}

static void one_kind(size_t at)
{
    char name[64];
    tarn_pool *pool = NULL;
    snprintf(name, sizeof name, "mpi: %s", kinds[at].name);
    tarn_status status = tarn_pool_create(&kinds[at].options, &pool);
    if (!agree(status == TARN_OK)) {
        if (!rank)
            gpu_say(GPU_SKIP, name, "%s",
                    status ? tarn_last_error() : "the other process has none");
        return;
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        struct pair pair = {NULL, NULL};
        int same = 0;
        bool well = agree(make_pair(pool, sizes[i], &pair)) &&
                    all_steps(pool, sizes[i], &pair, (uint32_t)(1000 * at + 100 * i + 1), &same);
        const char *failed_in = doing;
        double rate = well ? gb_per_second(&pair, sizes[i]) : 0;
        well = free_pair(&pair) && well;
        if (!rank && well)
            gpu_say(GPU_PASS, name,
                    "%zu KiB: %d exchanges, broadcasts and sums right, each in other memory, %d of "
                    "%d times at the "
                    "addresses of the last; %.1f GB/s",
                    sizes[i] >> 10, STEPS, same, STEPS - 1, rate);
        else if (!rank)
            gpu_say(GPU_FAIL, name, "%zu KiB: wrong contents, or an error: the last step was %s",
                    sizes[i] >> 10, failed_in);
    }
    (void)OK(name, tarn_pool_release(pool));
}

static int run(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int devices = 0, ranks = 0, length = 0, aware = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    alarm(SECONDS);
    signal(SIGSEGV, fell);
    signal(SIGBUS, fell);
    signal(SIGABRT, fell);
    signal(SIGALRM, fell);
    if (ranks != RANKS)
        gpu_say(GPU_FAIL, "mpi", "%d ranks, not %d", ranks, RANKS);
    int status = ranks == RANKS ? gpu_start() : GPU_FAILED;
    if (!agree(status == 0))
        return status ? status : GPU_NONE;
    bool well = OK("mpi", tarn_device_count_get(&devices)) && gpu_device_use(rank % devices) &&
                OK("mpi", tarn_stream_lease(rank % devices, 0, &stream));
    host = malloc(sizes[COUNT(sizes) - 1]);
    if (!agree(well && host))
        return GPU_FAILED;
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    aware = MPIX_Query_cuda_support();
#endif
    reduces = aware || gpu_is_simulated; /* whose memory is the host's */
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = 0;
    if (!rank)
        gpu_say(GPU_NOTE, "mpi", "%s, %d device%s; sums by %s", version, devices,
                devices == 1 ? "" : "s",
                reduces ? "MPI_Allreduce()"
                        : "an exchange and a kernel, as this MPI computes on the host alone");
    for (size_t i = 0; i < COUNT(kinds); i++)
        one_kind(i);
    (void)agree(true);
    free(host);
    return rank ? 0 : gpu_end();
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int status = run();
    MPI_Finalize();
    return status;
}
