/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* NCCL on registrable pools, on real GPUs: one process per rank, a GPU each. scripts/nccl-check
 * builds it and runs it.
 *
 *   bandwidth   all-reduces without a registration, with local ones, and with windows; each result
 *               is checked
 *   sleep       between steps the process sleeps and wakes, and with it the communicator and its
 *               registrations, local ones and windows: each step has new values and its result must
 *               be of them
 *   trap        the same with a registration that is not anchored: says whether the unmapped memory
 *               came back, and whether the next collective read the old one
 *   keep        with TARN_KEEP: ranks whose windows are in kept pools kill themselves; those that
 *               follow register the same memory again and reduce what is in it */
#define _GNU_SOURCE
#include "nccl/tarn_nccl.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tarn/keep.h>
#include <tarn/sleep.h>
#include <tarn/tarn.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2, STEPS = 3, WARM = 5, TIMED = 20, SECONDS = 120 };

static struct shared {
    pthread_barrier_t barrier;
    ncclUniqueId id;
} * shared;

static int rank;

static void end(const char *what, const char *why)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, why);
    _exit(1);
}

static void tarn_ok(tarn_status status, const char *what)
{
    if (status)
        end(what, tarn_last_error());
}

static void nccl_ok(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess)
        end(what, ncclGetErrorString(result));
}

static void cuda_ok(cudaError_t code, const char *what)
{
    if (code)
        end(what, cudaGetErrorString(code));
}
#define TARN(call) tarn_ok(call, #call)
#define NCCL(call) nccl_ok(call, #call)
#define CUDA(call) cuda_ok(call, #call)

static void together(void)
{
    (void)pthread_barrier_wait(&shared->barrier);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static size_t free_bytes(void)
{
    size_t available, total;
    CUDA(cudaMemGetInfo(&available, &total));
    return available;
}

/* ---- The work ---- */

static struct {
    ncclComm_t comm;
    cudaStream_t native;
    tarn_stream stream;
    tarn_pool *pool;
    float *send, *receive, *host;
    size_t count; /* numbers in each */
} w;

static void fill(float value)
{
    for (size_t i = 0; i < w.count; i++)
        w.host[i] = value + (float)(i % 7);
    CUDA(cudaMemcpy(w.send, w.host, w.count * sizeof(float), cudaMemcpyHostToDevice));
}

static void reduce(void)
{
    NCCL(ncclAllReduce(w.send, w.receive, w.count, ncclFloat, ncclSum, w.comm, w.native));
}

/* Whether all numbers are the sum over the ranks of what each has filled in: `value` and 1 more per
 * rank. */
static bool is_sum_of(float value)
{
    size_t wrong = 0;
    CUDA(cudaStreamSynchronize(w.native));
    CUDA(cudaMemcpy(w.host, w.receive, w.count * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < w.count; i++)
        wrong += w.host[i] !=
                 RANKS * value + (float)(RANKS * (RANKS - 1)) / 2 + (float)(RANKS * (i % 7));
    return wrong == 0;
}

static void step(float value, const char *what)
{
    fill(value + (float)rank);
    together();
    reduce();
    if (!is_sum_of(value))
        end(what, "the sums are wrong");
}

/* The device, the stream and the communicator. */
static void comm_begin(void)
{
    CUDA(cudaSetDevice(rank));
    CUDA(cudaStreamCreateWithFlags(&w.native, cudaStreamNonBlocking));
    TARN(tarn_device_set(rank));
    TARN(tarn_stream_adopt(rank, w.native, &w.stream));
    for (int i = 0; i < RANKS; i++) {
        if (i == rank)
            continue;
        tarn_status reached = tarn_device_peer_enable(rank, i);
        if (!rank)
            printf("peer access %s\n", reached ? "no" : "yes");
    }
    if (!rank)
        NCCL(ncclGetUniqueId(&shared->id));
    together();
    NCCL(ncclCommInitRank(&w.comm, RANKS, shared->id, rank));
}

static void work_begin(size_t bytes)
{
    int version = 0;
    tarn_pool_options options = {.size = sizeof options, .device = rank, .registrable = true};
    comm_begin();
    NCCL(ncclGetVersion(&version));
    TARN(tarn_pool_create(&options, &w.pool));
    void *send, *receive;
    TARN(tarn_pool_alloc(w.pool, w.stream, bytes, &send));
    TARN(tarn_pool_alloc(w.pool, w.stream, bytes, &receive));
    w.send = send;
    w.receive = receive;
    w.count = bytes / sizeof(float);
    w.host = malloc(bytes);
    if (!rank)
        printf("NCCL %d, compiled with %d; %zu MiB in each of two buffers\n", version,
               NCCL_VERSION_CODE, bytes >> 20);
}

/* ---- What is shown ---- */

static void bandwidth(const char *what, size_t bytes)
{
    size_t count = bytes / sizeof(float);
    for (int i = 0; i < WARM; i++)
        NCCL(ncclAllReduce(w.send, w.receive, count, ncclFloat, ncclSum, w.comm, w.native));
    CUDA(cudaStreamSynchronize(w.native));
    together();
    double start = now();
    for (int i = 0; i < TIMED; i++)
        NCCL(ncclAllReduce(w.send, w.receive, count, ncclFloat, ncclSum, w.comm, w.native));
    CUDA(cudaStreamSynchronize(w.native));
    double seconds = (now() - start) / TIMED;
    if (!rank)
        printf("all-reduce %6zu KiB  %-10s  %9.1f us  %7.2f GB/s\n", bytes >> 10, what,
               seconds * 1e6, (double)bytes / seconds / 1e9);
    together();
}

static void all_bandwidths(const char *what)
{
    for (size_t bytes = (size_t)64 << 10; bytes <= w.count * sizeof(float); bytes *= 16)
        bandwidth(what, bytes);
    bandwidth(what, w.count * sizeof(float));
}

static void compare(void)
{
    tarn_nccl registered;
    step(10, "without a registration");
    all_bandwidths("none");
    static const struct {
        tarn_nccl_kind kind;
        int flags;
        const char *name;
    } ways[] = {{TARN_NCCL_LOCAL, 0, "local"},
                {TARN_NCCL_WINDOW, NCCL_WIN_COLL_SYMMETRIC, "window"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        tarn_nccl_begin(&registered, w.comm, w.pool, ways[i].kind, ways[i].flags);
        together();
        double start = now();
        tarn_status status = tarn_nccl_register(&registered);
        double seconds = now() - start;
        if (status == TARN_ERROR_NOT_SUPPORTED && registered.unsupported) {
            if (!rank)
                printf("%s: NCCL has none here\n", ways[i].name);
            continue;
        }
        TARN(status);
        if (!rank)
            printf("%s: %zu segments registered in %.2f ms\n", ways[i].name, registered.count,
                   seconds * 1e3);
        step(20 + (float)i, ways[i].name);
        all_bandwidths(ways[i].name);
        together();
        TARN(tarn_nccl_deregister(&registered));
        together();
    }
}

static void sleeps(tarn_nccl_kind kind, int flags)
{
    tarn_nccl registered;
    tarn_residue_item items[16];
    tarn_nccl_begin(&registered, w.comm, w.pool, kind, flags);
    together();
    tarn_status status = tarn_nccl_register(&registered);
    if (status == TARN_ERROR_NOT_SUPPORTED && registered.unsupported)
        return;
    TARN(status);
    TARN(tarn_nccl_sleeper_add(&registered, "both ranks"));
    for (int i = 0; i < STEPS; i++) {
        tarn_residue residue = {.size = sizeof residue, .items = items, .room = 16};
        step(100 + (float)(10 * i), "a step between sleeps");
        together();
        size_t before = free_bytes();
        double start = now();
        TARN(tarn_sleep_prepare(NULL, NULL));
        together(); /* all ranks are prepared */
        TARN(tarn_sleep_commit(&residue));
        double down = now() - start;
        size_t asleep = free_bytes();
        start = now();
        TARN(tarn_wake());
        double up = now() - start;
        if (!rank) {
            printf("sleep, %s: %zu MiB were given back, %zu by tarn and the others by NCCL; saved "
                   "%zu MiB; down %.3f s "
                   "(%.1f GB/s), up %.3f s (%.1f GB/s)\n",
                   kind == TARN_NCCL_LOCAL ? "local" : "windows", (asleep - before) >> 20,
                   (residue.before - residue.after) >> 20, residue.saved >> 20, down,
                   (double)residue.saved / down / 1e9, up, (double)residue.saved / up / 1e9);
            for (size_t j = 0; j < residue.count && i == 0; j++)
                printf("       stays: %zu MiB, %zu: %s\n", items[j].bytes >> 20, items[j].count,
                       items[j].text);
        }
    }
    step(500, "after all sleeps");
    together();
    TARN(tarn_nccl_deregister(&registered));
    TARN(tarn_nccl_sleeper_remove(&registered));
    if (!rank)
        printf("sleep: %d sleeps, every sum right\n", STEPS);
    together();
}

static void trap(void)
{
    tarn_mapping segments[16];
    void *handles[16];
    size_t count = 0;
    TARN(tarn_pool_segments_get(w.pool, segments, 16, &count));
    for (size_t i = 0; i < count; i++)
        NCCL(ncclCommRegister(w.comm, segments[i].address, segments[i].bytes, &handles[i]));
    step(1000, "before the trap");
    together();
    size_t before = free_bytes();
    TARN(tarn_pool_suspend(w.pool, false));
    size_t after = free_bytes();
    TARN(tarn_pool_resume(w.pool));
    fill(2000 + (float)rank);
    CUDA(cudaMemset(w.receive, 0, w.count * sizeof(float)));
    CUDA(cudaDeviceSynchronize());
    together();
    reduce();
    bool right = is_sum_of(2000);
    printf("trap, rank %d: %zu MiB came back of %zu; the next collective read the %s memory\n",
           rank, (after - before) >> 20, (2 * w.count * sizeof(float)) >> 20,
           right ? "new" : "OLD");
    fflush(stdout);
    together();
}

/* A block of the kept pool: what the rank before has sealed, or a new one. */
static float *kept_block(const char *name, const tarn_kept *kept, size_t bytes)
{
    tarn_sealed_block block = {.size = sizeof block};
    void *made = NULL;
    if (kept->blocks)
        TARN(tarn_pool_block_find(w.pool, name, &block));
    else
        TARN(tarn_pool_alloc(w.pool, w.stream, bytes, &made));
    if (made)
        TARN(tarn_pool_block_seal(made, name, NULL, NULL));
    return made ? made : block.pointer;
}

static void keep(size_t bytes)
{
    char name[16];
    tarn_nccl registered;
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = {.size = sizeof options, .device = rank, .wait_ms = 30000};
    comm_begin();
    snprintf(name, sizeof name, "rank %d", rank);
    double start = now();
    TARN(tarn_pool_keep(name, &options, &w.pool, &kept));
    double taken = now() - start;
    w.send = kept_block("send", &kept, bytes);
    w.receive = kept_block("receive", &kept, bytes);
    w.count = bytes / sizeof(float);
    w.host = malloc(bytes);
    tarn_nccl_begin(&registered, w.comm, w.pool, TARN_NCCL_WINDOW, NCCL_WIN_COLL_SYMMETRIC);
    together();
    start = now();
    TARN(tarn_nccl_register(&registered));
    double seconds = now() - start;
    if (!kept.blocks)
        fill(3000 + (float)rank); /* the ranks that follow reduce it too */
    CUDA(cudaMemset(w.receive, 0, bytes));
    CUDA(cudaDeviceSynchronize());
    together();
    reduce();
    if (!is_sum_of(3000))
        end("kept", "the sums are wrong");
    if (!rank)
        printf(
            "keep: %zu blocks found%s in %.1f ms, %zu windows registered in %.2f ms, the sums are "
            "right\n",
            kept.blocks, kept.moved ? " at other addresses" : "", taken * 1e3, registered.count,
            seconds * 1e3);
    together();
    (void)raise(SIGKILL);
}

static void registrable(size_t bytes)
{
    work_begin(bytes);
    compare();
    sleeps(TARN_NCCL_LOCAL, 0);
    sleeps(TARN_NCCL_WINDOW, NCCL_WIN_COLL_SYMMETRIC);
    trap();
}

/* Runs both ranks, each in a process. True if all of them end with `status`, as waitpid() gives it.
 */
static bool run_all(void (*what)(size_t bytes), size_t bytes, int status)
{
    pid_t processes[RANKS];
    bool right = true;
    for (rank = 0; rank < RANKS; rank++) {
        processes[rank] = fork();
        if (processes[rank])
            continue;
        alarm(SECONDS); /* a collective that hangs ends here */
        what(bytes);
        _exit(0); /* what the trap has left is not NCCL's to take down */
    }
    for (int i = 0; i < RANKS; i++) {
        int ended;
        waitpid(processes[i], &ended, 0);
        right = right && ended == status;
    }
    return right;
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 512) << 20;
    pthread_barrierattr_t attributes;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast stays off */
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, RANKS);
    bool right = run_all(registrable, bytes, 0);
    for (int generation = 0; generation < 3 && getenv("TARN_KEEP") && right; generation++)
        right = run_all(keep, bytes, SIGKILL);
    printf(right ? "all is well\n" : "FAILED\n");
    return !right;
}
