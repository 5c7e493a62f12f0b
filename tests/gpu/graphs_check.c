/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks of graphs on hardware: the parameters of real kernels are seen by each way to launch them,
 * a freed input is found for certain, and what a node costs; what a driver does not show is
 * counted; the same of captured calls of cuBLAS and cuDNN, whose kernels have their pointers in
 * structures, so that a freed input is at least perhaps one. */
#include "library_work.h"

#include <stdio.h>
#include <string.h>

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
    tarn_capture_state state;
    tarn_graph_summary before = {.size = sizeof before}, after = {.size = sizeof after};
    if (!OK(name, tarn_alloc_on(stream, MIB, &input)) ||
        !OK(name, tarn_capture_begin(stream, TARN_CAPTURE_THREAD_LOCAL)))
        return;
    for (int i = 0; i < LAUNCHES && filled; i++)
        filled = gpu_fill(stream, input, MIB, 1, 0);
    /* As a framework does that gives its graphs to nobody */
    if (!OK(name, tarn_capture_state_get(stream, &state, NULL, &open)) ||
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

/* ---- Ways to launch ---- */

enum { PLAIN, EXTRA, COOPERATIVE, EMBEDDED, PLACES };

static void *places[PLACES], *in_body;
static bool certain_of[PLACES + 1];

static void note_place(const tarn_graph_reference *reference, void *user)
{
    (void)user;
    for (size_t i = 0; i < PLACES; i++)
        certain_of[i] |=
            reference->address == places[i] && reference->certainty == TARN_GRAPH_CERTAIN;
    certain_of[PLACES] |= reference->address == in_body;
}

static bool capture_embedded(tarn_stream stream, const char *name, void **child)
{
    return OK(name, tarn_capture_begin(stream, TARN_CAPTURE_THREAD_LOCAL)) &&
           gpu_fill_by(GPU_LAUNCH_PLAIN, stream, places[EMBEDDED], MIB) &&
           OK(name, tarn_capture_end(stream, child));
}

static bool capture_launches(tarn_stream stream, const char *name, void **graph)
{
    return OK(name, tarn_capture_begin(stream, TARN_CAPTURE_THREAD_LOCAL)) &&
           gpu_fill_by(GPU_LAUNCH_PLAIN, stream, places[PLAIN], MIB) &&
           gpu_fill_by(GPU_LAUNCH_EXTRA, stream, places[EXTRA], MIB) &&
           gpu_fill_by(GPU_LAUNCH_COOPERATIVE, stream, places[COOPERATIVE], MIB) &&
           OK(name, tarn_capture_end(stream, graph));
}

/* A conditional node with a fill in its body; false where the driver has no such nodes. */
static bool add_conditional(tarn_stream stream, const char *name, cu_graph graph)
{
    struct gpu_node node = {.type = GPU_NODE_CONDITIONAL,
                            .conditional = {.type = GPU_CONDITIONAL_IF, .size = 1}};
    cu_graph_node added;
    cu_graph body;
    if (!gpu.cuGraphConditionalHandleCreate || !gpu.cuGraphAddNode_v2 ||
        !gpu.cuStreamBeginCaptureToGraph || !gpu_has_kernels)
        return false;
    return CU(name, gpu.cuCtxGetCurrent(&node.conditional.context)) &&
           CU(name, gpu.cuGraphConditionalHandleCreate(&node.conditional.handle, graph,
                                                       node.conditional.context, 0, 0)) &&
           CU(name, gpu.cuGraphAddNode_v2(&added, graph, NULL, NULL, 0, &node)) &&
           CU(name, gpu.cuStreamBeginCaptureToGraph(gpu_native(stream), node.conditional.bodies[0],
                                                    NULL, NULL, 0, TARN_CAPTURE_THREAD_LOCAL)) &&
           gpu_fill_by(GPU_LAUNCH_PLAIN, stream, in_body, MIB) &&
           CU(name, gpu.cuStreamEndCapture(gpu_native(stream), &body));
}

static void ways_to_launch(tarn_stream stream)
{
    const char *name = "graphs: ways to launch";
    static const char *const words[] = {"parameters", "one buffer", "cooperative", "embedded"};
    char text[300];
    void *graph = NULL, *child = NULL;
    cu_graph_node added;
    bool conditional, well;
    tarn_graph_summary before = {.size = sizeof before}, after = {.size = sizeof after};
    for (size_t i = 0; i < PLACES; i++)
        if (!OK(name, tarn_alloc_on(stream, MIB, &places[i])))
            return;
    if (!OK(name, tarn_alloc_on(stream, MIB, &in_body)) ||
        !capture_embedded(stream, name, &child) || !capture_launches(stream, name, &graph) ||
        !CU(name, gpu.cuGraphAddChildGraphNode(&added, graph, NULL, 0, child)))
        return;
    conditional = add_conditional(stream, name, graph);
    if (!OK(name, tarn_graph_remember(graph, NULL)) ||
        !OK(name, tarn_graph_check(graph, NULL, NULL, NULL, &before)))
        return;
    for (size_t i = 0; i < PLACES; i++)
        (void)OK(name, tarn_free(places[i]));
    (void)OK(name, tarn_free(in_body));
    (void)OK(name, tarn_graph_check(graph, NULL, note_place, NULL, &after));
    well = before.certain + before.likely + before.perhaps == 0 &&
           before.unseen == before.unseen_conditional &&
           /* a driver of CUDA 13.2 shows the body */
           (conditional && !certain_of[PLACES] ? before.unseen == 1 : before.unseen == 0);
    snprintf(text, sizeof text,
             "%zu nodes, %zu not seen, a conditional one %s; freed: ", before.nodes, before.unseen,
             !conditional         ? "cannot be made here"
             : certain_of[PLACES] ? "with its body"
                                  : "without its body");
    for (size_t i = 0; i < PLACES; i++) {
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s %s%s", words[i],
                 certain_of[i] ? "certain" : "not certain", i + 1 < PLACES ? ", " : "");
        well = well && certain_of[i];
    }
    gpu_verdict(well, name, text);
    (void)CU(name, gpu.cuGraphDestroy(graph));
    (void)CU(name, gpu.cuGraphDestroy(child));
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
        ways_to_launch(stream);
        for (size_t i = 0; i < COUNT(works); i++)
            library(works[i], stream);
    }
    return gpu_end();
}
