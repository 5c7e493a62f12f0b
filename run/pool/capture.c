/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Counts the captures that the program has open. A capture counts from before the driver's call
 * that begins it, so that no thread pools a call that the capture would have forbidden. */
#include "pool.h"

enum {
    UNSEEN_SINCE = 13030
}; /* CUDA 13.3: since then, some calls that begin a capture have no hook */

static _Atomic unsigned open_captures;
static bool is_any_unseen; /* written before the shim is awake */

void captures_begin(void)
{
    int version = UNSEEN_SINCE;
    is_any_unseen =
        !real.cuDriverGetVersion || real.cuDriverGetVersion(&version) || version >= UNSEEN_SINCE;
}

bool pool_captures(void)
{
    return atomic_load_explicit(&open_captures, memory_order_acquire) > 0;
}

bool pool_may_capture(void)
{
    return is_any_unseen || pool_captures();
}

static void begin(void)
{
    atomic_fetch_add(&open_captures, 1);
}

static void end(void)
{
    unsigned count = atomic_load(&open_captures);
    while (count && !atomic_compare_exchange_weak(&open_captures, &count, count - 1))
        ;
}

static cu_result begun(cu_result code)
{
    if (code)
        end();
    shim_leave();
    return code;
}

HOOK cu_result cuStreamBeginCapture(cu_stream stream)
{
    if (!shim_enter())
        return PASS(cuStreamBeginCapture, (stream));
    begin();
    return begun(PASS(cuStreamBeginCapture, (stream)));
}

HOOK cu_result cuStreamBeginCapture_ptsz(cu_stream stream)
{
    if (!shim_enter())
        return PASS(cuStreamBeginCapture_ptsz, (stream));
    begin();
    return begun(PASS(cuStreamBeginCapture_ptsz, (stream)));
}

HOOK cu_result cuStreamBeginCapture_v2(cu_stream stream, cu_capture_mode capture)
{
    if (!shim_enter())
        return PASS(cuStreamBeginCapture_v2, (stream, capture));
    begin();
    return begun(PASS(cuStreamBeginCapture_v2, (stream, capture)));
}

HOOK cu_result cuStreamBeginCapture_v2_ptsz(cu_stream stream, cu_capture_mode capture)
{
    if (!shim_enter())
        return PASS(cuStreamBeginCapture_v2_ptsz, (stream, capture));
    begin();
    return begun(PASS(cuStreamBeginCapture_v2_ptsz, (stream, capture)));
}

HOOK cu_result cuStreamBeginCaptureToGraph(cu_stream stream, cu_graph graph,
                                           const cu_graph_node *before, const struct cu_edge *edges,
                                           size_t count, cu_capture_mode capture)
{
    if (!shim_enter())
        return PASS(cuStreamBeginCaptureToGraph, (stream, graph, before, edges, count, capture));
    begin();
    return begun(PASS(cuStreamBeginCaptureToGraph, (stream, graph, before, edges, count, capture)));
}

HOOK cu_result cuStreamBeginCaptureToGraph_ptsz(cu_stream stream, cu_graph graph,
                                                const cu_graph_node *before,
                                                const struct cu_edge *edges, size_t count,
                                                cu_capture_mode capture)
{
    if (!shim_enter())
        return PASS(cuStreamBeginCaptureToGraph_ptsz,
                    (stream, graph, before, edges, count, capture));
    begin();
    return begun(
        PASS(cuStreamBeginCaptureToGraph_ptsz, (stream, graph, before, edges, count, capture)));
}

/* Ends a capture in the count. A call that fails ends an invalidated capture too. It ends none if
 * the stream did not capture, or if another thread began the capture. */
static cu_result ended(bool captured, cu_stream stream, bool per_thread, cu_result code)
{
    if (captured && (!code || !stream_captures(stream, per_thread)))
        end();
    shim_leave();
    return code;
}

HOOK cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph)
{
    if (!shim_enter())
        return PASS(cuStreamEndCapture, (stream, graph));
    bool captured = stream_captures(stream, false);
    return ended(captured, stream, false, PASS(cuStreamEndCapture, (stream, graph)));
}

HOOK cu_result cuStreamEndCapture_ptsz(cu_stream stream, cu_graph *graph)
{
    if (!shim_enter())
        return PASS(cuStreamEndCapture_ptsz, (stream, graph));
    bool captured = stream_captures(stream, true);
    return ended(captured, stream, true, PASS(cuStreamEndCapture_ptsz, (stream, graph)));
}
