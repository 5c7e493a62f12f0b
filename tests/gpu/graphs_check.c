/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks of graphs on hardware: the parameters of real kernels are seen, a freed input is found for
 * certain, and what a node costs. */
#include "gpu.h"

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

int main(void)
{
    tarn_stream stream;
    int code = gpu_start();
    if (code)
        return code;
    if (OK("graphs", tarn_stream_lease(0, 0, &stream)))
        freed_input(stream);
    return gpu_end();
}
