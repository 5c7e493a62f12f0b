/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "memory/model/model.h"

/* Captures ------------------------------------------------------------------------------------- */

/* An entry for the pool that a capture makes for itself. */
static int pool_of_its_own(int device)
{
    for (int i = 0; i < POOLS; i++) {
        if (m.pools[i].used)
            continue;
        m.pools[i] = (struct pool_model){.used = true, .device = device, .limit = SIZE_MAX};
        return i;
    }
    return -1;
}

static void capture_begin(int stream)
{
    struct stream_model *s = &m.streams[stream];
    int mode = (int)below(3), pool = -1;
    tarn_pool *given = NULL;
    s->capture = (enum capture_kind)(1 + below(CAPTURE_KINDS - 1));
    s->captured = (struct captured){.pool = -1};
    if (s->capture != UNKNOWN && below(3)) {
        pool = pool_any(s->device, true);
        if (pool >= 0)
            given = m.pools[pool].pool;
        else if (s->capture == BY_TARN)
            pool = pool_of_its_own(s->device);
    }
    if (pool >= 0) {
        scope_of_capture(pool, stream);
        s->captured.pool = pool;
    }
    tarn_status status = TARN_OK;
    if (s->capture == BY_TARN)
        status = pool >= 0 ? tarn_pool_capture_begin(given, s->handle, (tarn_capture_mode)mode)
                           : tarn_capture_begin(s->handle, (tarn_capture_mode)mode);
    if (s->capture == ANNOUNCED)
        status = pool >= 0 ? tarn_pool_capture_announce(given, s->handle)
                           : tarn_capture_announce(s->handle);
    MUST(status == TARN_OK, "begin: %s", tarn_status_name(status));
    if (s->capture != BY_TARN)
        MUST(driver->capture_begin(s->device, s->native, (enum driver_capture_mode)mode) == TARN_OK,
             "begin");
}

static void *capture_end(int stream)
{
    struct stream_model *s = &m.streams[stream];
    void *graph = NULL;
    if (s->capture == BY_TARN)
        MUST(tarn_capture_end(s->handle, &graph) == TARN_OK, "the capture of stream %d was lost",
             stream);
    else
        MUST(driver->capture_end(s->device, s->native, &graph) == TARN_OK,
             "the capture of stream %d was lost", stream);
    if (s->capture == ANNOUNCED)
        MUST(tarn_capture_end_announced(s->handle, graph) == TARN_OK, "end");
    s->capture = NO_CAPTURE;
    return graph;
}

void use_in_capture(struct block *block)
{
    struct stream_model *s = &m.streams[block->stream];
    struct captured *captured = &s->captured;
    if (captured->held_count == HELD || is_orphan(block))
        return;
    MUST(tarn_host_work(s->device, s->native, block->pointer, block->size, below(2000)) == TARN_OK,
         "work refused");
    captured->held[captured->held_count++] = block->pointer;
    block->held++;
}

/* The graph's work uses the memory at every launch, whoever has it then: it is launched on the
 * capture's own stream only. */
void freed_in_capture(const struct block *block)
{
    struct stream_model *s = &m.streams[block->stream];
    struct captured *captured = &s->captured;
    if (captured->pool < 0 || captured->pool != block->own_pool ||
        captured->inside_count == INSIDE || is_orphan(block))
        return;
    MUST(tarn_host_work(s->device, s->native, block->pointer, block->size, below(2000)) == TARN_OK,
         "work refused");
    captured->inside[captured->inside_count].start = block->pointer;
    captured->inside[captured->inside_count++].size = block->usable;
}

/* Graphs --------------------------------------------------------------------------------------- */

/* What the graph uses must be there, and what it has freed must be nobody's now. */
static bool is_launchable(const struct graph_model *graph, int stream)
{
    const struct captured *captured = &graph->captured;
    if (captures(stream) ||
        (captured->pool >= 0 && m.pools[captured->pool].state != TARN_POOL_RUNS))
        return false;
    for (int i = 0; i < captured->held_count; i++)
        if (!is_usable(block_at(captured->held[i])))
            return false;
    for (int i = 0; i < captured->inside_count; i++)
        for (int k = 0; k < m.block_count; k++)
            if (m.blocks[k].pointer < captured->inside[i].start + captured->inside[i].size &&
                captured->inside[i].start < m.blocks[k].pointer + m.blocks[k].usable)
                return false;
    return true;
}

/* Who launches a graph of a pool orders it after the pool's other work: here after all of the
 * device's. False where a stream captures. */
static bool order_after_pool(int stream)
{
    int first = stream / STREAMS * STREAMS;
    for (int i = first; i < first + STREAMS; i++)
        if (captures(i))
            return false;
    for (int i = first; i < first + STREAMS; i++)
        if (i != stream)
            order_after(stream, i);
    return true;
}

/* Launches what was captured: work on each block that it uses, ordered after that block's own. */
static void launch(const struct graph_model *graph)
{
    const struct captured *captured = &graph->captured;
    int stream = captured->inside_count ? graph->stream
                                        : graph->stream / STREAMS * STREAMS + (int)below(STREAMS);
    struct stream_model *s = &m.streams[stream];
    if (!is_launchable(graph, stream) || (captured->inside_count && !order_after_pool(stream)))
        return;
    for (int i = 0; i < captured->held_count; i++) {
        struct block *block = block_at(captured->held[i]);
        if (captures(block->stream))
            return;
        order_after(stream, block->stream);
        MUST(tarn_record_stream(block->pointer, s->handle) == TARN_OK, "record_stream");
    }
    MUST(tarn_host_graph_launch(s->device, graph->graph, s->native) == TARN_OK, "launch");
    m.launches++;
    for (int i = 0; i < captured->held_count; i++)
        /* No node takes longer */
        block_used(block_at(captured->held[i]), queue_work(stream, NULL, 0, 2000));
    if (captured->held_count == 0)
        (void)queue_work(stream, NULL, 0, 2000);
}

static void let_go(const struct captured *captured)
{
    for (int i = 0; i < captured->held_count; i++)
        block_at(captured->held[i])->held--;
}

static void graph_end(struct graph_model *graph)
{
    int pool = graph->captured.pool;
    let_go(&graph->captured);
    MUST(tarn_host_graph_destroy(graph->graph) == TARN_OK, "graph");
    *graph = m.graphs[--m.graph_count];
    if (pool >= 0) {
        m.pools[pool].graphs--;
        pool_settle(pool);
    }
}

static void capture_abort(int stream)
{
    struct stream_model *s = &m.streams[stream];
    MUST(tarn_capture_abort(s->handle) == TARN_OK, "abort");
    s->capture = NO_CAPTURE;
    let_go(&s->captured);
    scope_of_capture_end(stream);
    if (s->captured.pool >= 0)
        pool_settle(s->captured.pool);
}

static void capture_over(int stream)
{
    struct stream_model *s = &m.streams[stream];
    if (s->capture == BY_TARN && below(4) == 0) {
        capture_abort(stream);
        return;
    }
    struct graph_model graph = {capture_end(stream), stream, s->captured};
    if (s->captured.pool >= 0)
        m.pools[s->captured.pool].graphs++;
    scope_of_capture_end(stream);
    if (m.graph_count == GRAPHS)
        graph_end(&m.graphs[below(GRAPHS)]);
    m.graphs[m.graph_count++] = graph;
    for (uint64_t times = below(3); times > 0; times--)
        launch(&m.graphs[m.graph_count - 1]);
}

void do_capture(void)
{
    int stream = (int)below(ALL_STREAMS);
    if (captures(stream))
        capture_over(stream);
    else if (below(3) == 0)
        capture_begin(stream);
}

void do_graph(void)
{
    if (m.graph_count == 0)
        return;
    struct graph_model *graph = &m.graphs[below((uint64_t)m.graph_count)];
    if (below(3))
        launch(graph);
    else
        graph_end(graph);
}

void captures_end(void)
{
    for (int i = 0; i < ALL_STREAMS; i++)
        if (captures(i))
            capture_over(i);
}

void graphs_end(void)
{
    while (m.graph_count > 0)
        graph_end(&m.graphs[0]);
}
