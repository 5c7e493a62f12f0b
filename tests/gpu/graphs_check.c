/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks of graphs on hardware: the parameters of real kernels are seen, a freed input is found for
 * certain, and what a node costs; the same of captured calls of cuBLAS and cuDNN, whose kernels
 * have their pointers in structures, so that a freed input is at least perhaps one. */
#include "library_work.h"

#include <stdio.h>

#define LAUNCHES 1000

static void *input;
static size_t certain;

static void note(const tarn_graph_reference *reference, void *user)
{
    (void)user;
    certain += reference->address == input && reference->certainty == TARN_GRAPH_CERTAIN;
}

static void freed_input(tarn_stream stream)
{
    const char *name = "graphs: a freed input";
    char text[200];
    void *graph = NULL;
    void *open = NULL;
    uint64_t number = 0;
    bool filled = true;
    tarn_graph_summary before = {.size = sizeof before}, after = {.size = sizeof after};
    if (!OK(name, tarn_alloc_on(stream, MIB, &input)) ||
        !OK(name, tarn_capture_begin(stream, TARN_CAPTURE_THREAD_LOCAL)))
        return;
    for (int i = 0; i < LAUNCHES && filled; i++)
        filled = gpu_fill(stream, input, MIB, 1, 0);
    /* As a framework does that gives its graphs to nobody */
    if (!OK(name, tarn_capture_graph_get(stream, &open)) ||
        !OK(name, tarn_graph_remember(open, &number)))
        return;
    if (!OK(name, tarn_capture_end(stream, &graph)) || !filled ||
        !OK(name, tarn_graph_remember(graph, NULL)))
        return;
    uint64_t started = gpu_ns();
    if (!OK(name, tarn_graph_check(graph, NULL, note, NULL, &before)))
        return;
    double us = (double)(gpu_ns() - started) / 1000 / (double)(before.nodes ? before.nodes : 1);
    bool clean = before.certain + before.likely + before.perhaps == 0;
    (void)OK(name, tarn_free(input));
    (void)OK(name, tarn_graph_check(graph, NULL, note, NULL, &after));
    const tarn_graph_options by_number = {.size = sizeof by_number, .remembered = number};
    tarn_graph_summary taken = {.size = sizeof taken};
    (void)OK(name, tarn_graph_check(NULL, &by_number, NULL, NULL, &taken));
    snprintf(text, sizeof text,
             "%zu nodes, %zu addresses, %zu not seen, %.2f us a node; freed: %zu certain, %zu by "
             "what was remembered before the capture ended",
             before.nodes, before.references, before.unseen, us, certain, taken.certain);
    gpu_verdict(clean && before.unseen == 0 && certain >= LAUNCHES && taken.certain >= LAUNCHES,
                name, text);
    (void)CU(name, gpu.cuGraphDestroy(graph));
}

/* ---- Libraries ---- */

static const void *freed;
static tarn_graph_certainty worst;

static void note_worst(const tarn_graph_reference *reference, void *user)
{
    (void)user;
    if (reference->address == freed && reference->certainty > worst)
        worst = reference->certainty;
}

/* Queues the work once before, as a library may allocate at its first call. */
static const char *capture(struct job *job, void **graph)
{
    void *handle = NULL;
    if (tarn_stream_set(job->stream) ||
        tarn_handle_get(job->work->library, TARN_STREAM_CURRENT, &handle))
        return tarn_last_error();
    const char *why = job_upload(job);
    if (!why)
        why = job->work->queue(job, handle);
    if (!why)
        why = job_compare(job);
    if (why)
        return why;
    if (tarn_capture_begin(job->stream, TARN_CAPTURE_THREAD_LOCAL))
        return tarn_last_error();
    if (tarn_handle_get(job->work->library, TARN_STREAM_CURRENT, &handle))
        why = tarn_last_error();
    else
        why = job->work->queue(job, handle);
    if (why)
        (void)tarn_capture_abort(job->stream);
    else if (tarn_capture_end(job->stream, graph))
        why = tarn_last_error();
    return why;
}

static void freed_input_of(const struct work *work, struct job *job, void *graph)
{
    char name[64], text[200];
    static const char *const words[] = {"not found", "perhaps", "likely", "certain"};
    tarn_graph_summary before = {.size = sizeof before};
    snprintf(name, sizeof name, "graphs: %s", work->name);
    if (!OK(name, tarn_graph_remember(graph, NULL)) ||
        !OK(name, tarn_graph_check(graph, NULL, NULL, NULL, &before)))
        return;
    freed = job->device[0];
    worst = TARN_GRAPH_NO_FINDING;
    (void)OK(name, tarn_free(job->device[0]));
    job->device[0] = NULL;
    (void)OK(name, tarn_graph_check(graph, NULL, note_worst, NULL, NULL));
    snprintf(text, sizeof text, "%zu nodes, %zu addresses, %zu not seen, %zu findings; freed: %s",
             before.nodes, before.references, before.unseen,
             before.certain + before.likely + before.perhaps, words[worst]);
    gpu_verdict(before.certain == 0 && before.references > 0 && worst > TARN_GRAPH_NO_FINDING, name,
                text);
}

static void library(const struct work *work, tarn_stream stream)
{
    struct job job;
    void *graph = NULL;
    tarn_library_info info = {.size = sizeof info};
    const char *why = NULL;
    if (!OK(work->name, tarn_library_info_get(work->library, &info)))
        return;
    if (!info.usable || (why = work->load(info.path)) || gpu_is_simulated) {
        gpu_say(GPU_SKIP, work->name, "%s",
                why            ? why
                : !info.usable ? info.reason
                               : "it does not run on a simulated driver");
        return;
    }
    why = job_create(&job, work, stream, 1);
    if (!why)
        why = capture(&job, &graph);
    if (why)
        gpu_say(GPU_FAIL, work->name, "%s", why);
    else
        freed_input_of(work, &job, graph);
    if (graph)
        (void)CU(work->name, gpu.cuGraphDestroy(graph));
    job_destroy(&job);
}

int main(void)
{
    static const struct work *const works[] = {&work_cublas, &work_cublaslt, &work_cudnn};
    tarn_stream stream;
    int code = gpu_start();
    if (code)
        return code;
    if (OK("graphs", tarn_stream_lease(0, 0, &stream))) {
        freed_input(stream);
        for (size_t i = 0; i < COUNT(works); i++)
            library(works[i], stream);
    }
    return gpu_end();
}
