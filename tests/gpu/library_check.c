/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Real work through every library's pooled handles, compared with a result that the host computes:
 * by 16 threads on 4 streams each, queued directly and captured into a graph that is launched
 * twice. Before that, what a handle costs: time and memory of a create, time of a get that finds
 * it. */
#include "../support/clearing.h"
#include "library_work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 16
#define STREAMS 4
#define HITS 1000000

struct cost {
    double first_us, next_us;        /* time of the first create, and of a later one */
    int64_t first_bytes, next_bytes; /* of the library's own */
    int64_t whole_bytes;             /* of the first, with what tarn gives it */
    double hit_ns;
    char version[32];
};

static const struct work *const works[] = {&work_cublas,   &work_cublaslt, &work_cudnn,
                                           &work_cusparse, &work_cusolver, &work_cusolver_sp,
                                           &work_curand,   &work_cudss};

/* ---- What a handle costs ---- */

static int64_t used_bytes(void)
{
    size_t available = 0, total = 0;
    if (!OK("memory", tarn_device_memory_get(0, &available, &total)))
        return 0;
    return (int64_t)(total - available);
}

/* Makes a handle by a lease, which a thread's own handle is not, and leaves it on lease. */
static bool create_one(const struct work *work, tarn_stream stream, tarn_lease *lease, double *us,
                       int64_t *bytes, int64_t *whole_bytes)
{
    tarn_handle_stats stats = {.size = sizeof stats};
    int64_t before = used_bytes();
    if (!OK(work->name, tarn_handle_lease(work->library, stream, lease)) ||
        !OK(work->name, tarn_handle_stats_get(work->library, 0, &stats)))
        return false;
    *whole_bytes = used_bytes() - before;
    *bytes = stats.device_bytes_last >= 0 ? stats.device_bytes_last : *whole_bytes;
    *us = (double)stats.create_ns_last / 1000;
    return true;
}

static bool measure(const struct work *work, tarn_stream stream, struct cost *cost)
{
    tarn_lease first = {0}, next = {0};
    void *handle = NULL;
    int64_t unused = 0;
    if (!create_one(work, stream, &first, &cost->first_us, &cost->first_bytes,
                    &cost->whole_bytes) ||
        !create_one(work, stream, &next, &cost->next_us, &cost->next_bytes, &unused) ||
        !OK(work->name, tarn_handle_return(&next)) || !OK(work->name, tarn_handle_return(&first)) ||
        !OK(work->name, tarn_stream_set(stream)) ||
        !OK(work->name, tarn_handle_get(work->library, TARN_STREAM_CURRENT, &handle)))
        return false;
    uint64_t from = gpu_ns();
    for (int i = 0; i < HITS; i++)
        if (tarn_handle_get(work->library, TARN_STREAM_CURRENT, &handle))
            return OK(work->name, TARN_ERROR_LIBRARY);
    cost->hit_ns = (double)(gpu_ns() - from) / HITS;
    gpu_say(GPU_PASS, "handle",
            "%s: first create %.0f us, %lld KiB (with workspace %lld); next %.0f us, %lld KiB; a "
            "hit %.1f ns",
            work->name, cost->first_us, (long long)cost->first_bytes / 1024,
            (long long)cost->whole_bytes / 1024, cost->next_us, (long long)cost->next_bytes / 1024,
            cost->hit_ns);
    return true;
}

static void write_costs(const struct cost *costs, const bool *usable)
{
    FILE *json = gpu_results_open("handles.json"), *table = gpu_results_open("handles.md");
    if (json && table) {
        const char *between = "";
        fprintf(table, "| library | version | first create | device bytes | next create | device "
                       "bytes | a hit |\n"
                       "|---|---|---:|---:|---:|---:|---:|\n");
        fprintf(json, "{\"gpu\": \"%s\", \"libraries\": [", gpu_properties.name);
        for (size_t i = 0; i < COUNT(works); i++) {
            const struct cost *cost = &costs[i];
            if (!usable[i])
                continue;
            fprintf(table, "| %s | %s | %.2f ms | %.1f MiB | %.2f ms | %.1f MiB | %.1f ns |\n",
                    works[i]->name, cost->version, cost->first_us / 1000,
                    (double)cost->first_bytes / MIB, cost->next_us / 1000,
                    (double)cost->next_bytes / MIB, cost->hit_ns);
            fprintf(json,
                    "%s\n  {\"name\": \"%s\", \"version\": \"%s\", \"first_create_us\": %.1f, "
                    "\"first_bytes\": %lld, "
                    "\"first_bytes_with_workspace\": %lld, "
                    "\"next_create_us\": %.1f, \"next_bytes\": %lld, \"hit_ns\": %.2f}",
                    between, works[i]->name, cost->version, cost->first_us,
                    (long long)cost->first_bytes, (long long)cost->whole_bytes, cost->next_us,
                    (long long)cost->next_bytes, cost->hit_ns);
            between = ",";
        }
        fprintf(json, "\n]}\n");
    }
    if (json)
        fclose(json);
    if (table)
        fclose(table);
}

/* ---- Work ---- */

struct run {
    const struct work *work;
    pthread_barrier_t barrier;
    atomic_int direct, captured, not_captured, failures;
    char why[256];
    pthread_mutex_t lock;
};

struct worker {
    struct run *run;
    unsigned number;
};

static void fault(struct run *run, const char *what, const char *why)
{
    atomic_fetch_add(&run->failures, 1);
    pthread_mutex_lock(&run->lock);
    if (!run->why[0])
        snprintf(run->why, sizeof run->why, "%s: %s", what, why);
    pthread_mutex_unlock(&run->lock);
}

/* The work of all streams is queued before any result is looked at, so that the handle changes
 * streams in between. */
static void direct(struct run *run, struct job *jobs, size_t count)
{
    const char *why = NULL;
    size_t queued = 0, compared = 0;
    for (size_t i = 0; !why && i < count; i++)
        why = job_upload(&jobs[i]);
    while (!why && queued < count) {
        void *handle = NULL;
        struct job *job = &jobs[queued++];
        if (tarn_stream_set(job->stream) ||
            tarn_handle_get(run->work->library, TARN_STREAM_CURRENT, &handle))
            why = tarn_last_error();
        else
            why = run->work->queue(job, handle);
        if (!why && run->work->serial)
            why = job_compare(&jobs[compared++]);
    }
    while (!why && compared < queued)
        why = job_compare(&jobs[compared++]);
    if (why)
        fault(run, "outside a capture", why);
    else
        atomic_fetch_add(&run->direct, (int)count);
}

/* A library that cannot be captured ends its own capture, and no other's. */
static void captured(struct run *run, struct job *job)
{
    void *handle = NULL, *graph = NULL;
    const char *why = NULL;
    uint64_t id = 0;
    tarn_capture_state state = TARN_CAPTURE_NONE;
    if ((why = job_upload(job))) {
        fault(run, "before a capture", why);
        return;
    }
    if (tarn_stream_set(job->stream) ||
        tarn_capture_begin(job->stream, TARN_CAPTURE_THREAD_LOCAL)) {
        fault(run, "beginning a capture", tarn_last_error());
        return;
    }
    if (tarn_capture_state_get(job->stream, &state, &id, NULL) || state != TARN_CAPTURE_ACTIVE)
        why = "the capture is not active";
    else if (tarn_handle_get(run->work->library, TARN_STREAM_CURRENT, &handle))
        why = tarn_last_error();
    else
        why = run->work->queue(job, handle);
    if (why) {
        bool excused = handle && run->work->capture_may_fail;
        (void)tarn_capture_abort(job->stream);
        if (excused)
            atomic_fetch_add(&run->not_captured, 1);
        else
            fault(run, "inside a capture", why);
        return;
    }
    if (tarn_capture_end(job->stream, &graph)) {
        if (run->work->capture_may_fail)
            atomic_fetch_add(&run->not_captured, 1);
        else
            fault(run, "ending a capture", tarn_last_error());
        return;
    }
    bool well = true;
    for (int launch = 0; well && launch < 2; launch++) {
        why = launch ? job_upload(job) : NULL; /* so that the second launch is seen to have
                                                  written */
        well = !why && gpu_run_graph(graph, job->stream, 1, run->work->name) &&
               !(why = job_compare(job));
    }
    if (well)
        atomic_fetch_add(&run->captured, 1);
    else
        fault(run, "launching a graph", why ? why : "see above");
    CU(run->work->name, gpu.cuGraphDestroy(graph));
    (void)OK(run->work->name, workspaces_clear_capture(id, NULL));
}

static void *worker(void *argument)
{
    const struct worker *self = argument;
    struct run *run = self->run;
    tarn_stream streams[STREAMS];
    struct job jobs[STREAMS];
    size_t count = 0;
    const char *why = tarn_device_set(0) ? tarn_last_error() : NULL;
    while (!why && count < STREAMS) {
        why = tarn_stream_lease(0, 0, &streams[count]) ? tarn_last_error() : NULL;
        if (!why) {
            why = job_create(&jobs[count], run->work, streams[count],
                             self->number * STREAMS + (unsigned)count);
            count++;
        }
    }
    if (why)
        fault(run, "preparing", why);
    for (int round = 0; !why && round < 3; round++)
        direct(run, jobs, count);
    pthread_barrier_wait(&run->barrier); /* handles exist now, so captures need not make any */
    for (size_t i = 0; !why && i < STREAMS; i++)
        captured(run, &jobs[i]);
    pthread_barrier_wait(&run->barrier);
    for (size_t i = 0; i < count; i++) {
        job_destroy(&jobs[i]);
        (void)OK(run->work->name, tarn_stream_return(streams[i]));
    }
    return NULL;
}

static void run_work(const struct work *work)
{
    struct run run = {.work = work, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    char name[64];
    pthread_barrier_init(&run.barrier, NULL, THREADS);
    uint64_t from = gpu_ns();
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){&run, i};
        if (pthread_create(&threads[i], NULL, worker, &workers[i])) {
            printf("FAIL    threads: no thread\n");
            exit(GPU_FAILED);
        }
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&run.barrier);
    snprintf(name, sizeof name, "work %s", work->name);
    if (run.failures)
        gpu_say(GPU_FAIL, name, "%d failures, the first: %s", run.failures, run.why);
    else
        gpu_say(GPU_PASS, name,
                "%s, %d threads x %d streams, %d direct, %d captured and launched twice (%.1f s)",
                work->what, THREADS, STREAMS, run.direct, run.captured,
                (double)(gpu_ns() - from) / 1e9);
    if (run.not_captured)
        gpu_say(GPU_SKIP, name, "%d captures: the library did not let itself be captured",
                run.not_captured);

    size_t destroyed = 0;
    tarn_handle_stats stats = {.size = sizeof stats};
    if (OK(name, tarn_handle_stats_get(work->library, 0, &stats)) &&
        (stats.failures || stats.peak_in_use > THREADS + 1))
        gpu_say(GPU_FAIL, name, "%llu creates failed, %llu handles in use at once",
                (unsigned long long)stats.failures, (unsigned long long)stats.peak_in_use);
    if (OK(name, tarn_handle_trim(work->library, 0, &destroyed)) &&
        OK(name, workspaces_clear_all(NULL)) && destroyed != stats.available)
        gpu_say(GPU_FAIL, name, "%zu handles destroyed, of %llu that no thread has", destroyed,
                (unsigned long long)stats.available);
}

/* ---- All libraries ---- */

int main(void)
{
    int status = gpu_start();
    if (status)
        return status;
    struct cost costs[COUNT(works)] = {{0}};
    bool usable[COUNT(works)] = {false};
    tarn_stream stream = 0;
    if (!OK("stream", tarn_stream_lease(0, 0, &stream)))
        return gpu_end();
    for (size_t i = 0; i < COUNT(works); i++) {
        tarn_library_info info = {.size = sizeof info};
        const char *why = NULL;
        if (!OK(works[i]->name, tarn_library_info_get(works[i]->library, &info)))
            continue;
        if (!info.usable) {
            gpu_say(GPU_SKIP, works[i]->name, "%s", info.reason);
            continue;
        }
        if ((why = works[i]->load(info.path))) {
            gpu_say(GPU_SKIP, works[i]->name, "%s: %s", info.path, why);
            continue;
        }
        if (gpu_is_simulated) {
            gpu_say(GPU_SKIP, works[i]->name,
                    "it has all that is called; it does not run on a simulated driver");
            continue;
        }
        usable[i] = measure(works[i], stream, &costs[i]);
        /* Some say their version only now */
        if (usable[i] && !tarn_library_info_get(works[i]->library, &info))
            snprintf(costs[i].version, sizeof costs[i].version, "%s", info.version);
    }
    write_costs(costs, usable);
    for (size_t i = 0; i < COUNT(works); i++)
        if (usable[i] && works[i]->queue)
            run_work(works[i]);
    if (OK("end", tarn_stream_return(stream)) && OK("end", tarn_device_synchronize(0)) &&
        OK("end", tarn_shutdown()))
        gpu_say(GPU_PASS, "shutdown", "%s", "");
    return gpu_end();
}
