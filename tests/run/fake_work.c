/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Work for the tests of `tarn run`: streams, events, waits, captures, and faults. No work is ever
 * done: a stream has some until a wait for it, or the test, says that it has ended. What the shim
 * asks all the time takes no lock and orders nothing, so that no race of the shim hides behind
 * it. */
#include "fake_driver.h"

#include <stdlib.h>

enum {
    CAPTURES = sizeof fake.captures / sizeof *fake.captures,
    GONE = sizeof fake.gone / sizeof *fake.gone,
    MADE = 0xb000
};

static _Thread_local cu_capture_mode own_mode; /* 2: relaxed */
static bool are_apart;

__attribute__((constructor)) static void read_environment(void)
{
    are_apart = getenv("FAKE_DRIVER_APART");
}

/* Faults --------------------------------------------------------------------------------------- */

void cuFakeFault(unsigned code)
{
    atomic_store_explicit(&fake.fault, code, memory_order_relaxed);
}

cu_result fake_fault(void)
{
    return atomic_load_explicit(&fake.fault, memory_order_relaxed);
}

bool fake_fails(void)
{
    unsigned left = atomic_load_explicit(&fake.fail, memory_order_relaxed);
    while (left && !atomic_compare_exchange_weak_explicit(
                       &fake.fail, &left, left - 1, memory_order_relaxed, memory_order_relaxed))
        ;
    if (left == 1)
        atomic_fetch_add_explicit(&fake.failed, 1, memory_order_relaxed);
    return left == 1;
}

void cuFakeFail(unsigned calls)
{
    atomic_store_explicit(&fake.fail, calls, memory_order_relaxed);
}

unsigned cuFakeFailed(void)
{
    return atomic_load_explicit(&fake.failed, memory_order_relaxed);
}

/* Captures ------------------------------------------------------------------------------------- */

/* One of a stream; of NULL a place for one. */
static struct fake_capture *capture_of(cu_stream stream)
{
    for (size_t i = 0; i < CAPTURES; i++)
        if (atomic_load_explicit(&fake.captures[i].stream, memory_order_relaxed) == stream)
            return &fake.captures[i];
    return NULL;
}

cu_result fake_forbidden(void)
{
    cu_result code = CU_OK;
    for (size_t i = 0; own_mode != 2 && i < CAPTURES; i++)
        if (atomic_load_explicit(&fake.captures[i].stream, memory_order_relaxed) &&
            atomic_load_explicit(&fake.captures[i].mode, memory_order_relaxed) == 0) {
            atomic_store_explicit(&fake.captures[i].invalid, true, memory_order_relaxed);
            code = CU_CAPTURE_UNSUPPORTED;
        }
    return code;
}

/* A stream of this number captures, without having begun. */
cu_result cuStreamIsCapturing(cu_stream stream, cu_capture_status *now)
{
    const struct fake_capture *capture = stream ? capture_of(stream) : NULL;
    fake_called();
    *now = (uintptr_t)stream == 0x77 ? CU_CAPTURE_IS_ACTIVE : CU_CAPTURE_IS_NONE;
    if (capture)
        *now = atomic_load_explicit(&capture->invalid, memory_order_relaxed) ? 2
                                                                             : CU_CAPTURE_IS_ACTIVE;
    return CU_OK;
}

cu_result cuStreamIsCapturing_ptsz(cu_stream stream, cu_capture_status *now)
{
    return cuStreamIsCapturing(stream, now);
}

cu_result cuStreamBeginCapture_v2(cu_stream stream, cu_capture_mode mode)
{
    struct fake_capture *capture;
    if (!stream)
        return CU_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&fake.lock);
    capture = capture_of(NULL);
    if (capture) {
        atomic_store_explicit(&capture->mode, mode, memory_order_relaxed);
        atomic_store_explicit(&capture->invalid, false, memory_order_relaxed);
        atomic_store(&capture->stream, stream);
    }
    pthread_mutex_unlock(&fake.lock);
    return capture ? CU_OK : CU_CAPTURE_UNSUPPORTED;
}

cu_result cuStreamBeginCapture(cu_stream stream)
{
    return cuStreamBeginCapture_v2(stream, 0);
}

cu_result cuStreamBeginCapture_ptsz(cu_stream stream)
{
    return cuStreamBeginCapture_v2(stream, 0);
}

cu_result cuStreamBeginCapture_v2_ptsz(cu_stream stream, cu_capture_mode mode)
{
    return cuStreamBeginCapture_v2(stream, mode);
}

cu_result cuStreamBeginCaptureToGraph(cu_stream stream, cu_graph graph, const cu_graph_node *before,
                                      const struct cu_edge *edges, size_t count,
                                      cu_capture_mode mode)
{
    (void)graph, (void)before, (void)edges, (void)count;
    return cuStreamBeginCapture_v2(stream, mode);
}

cu_result cuStreamBeginCaptureToGraph_ptsz(cu_stream stream, cu_graph graph,
                                           const cu_graph_node *before, const struct cu_edge *edges,
                                           size_t count, cu_capture_mode mode)
{
    return cuStreamBeginCaptureToGraph(stream, graph, before, edges, count, mode);
}

cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph)
{
    cu_result code = 401; /* CUDA_ERROR_ILLEGAL_STATE */
    pthread_mutex_lock(&fake.lock);
    struct fake_capture *capture = stream ? capture_of(stream) : NULL;
    if (capture) {
        code = atomic_load(&capture->invalid) ? CU_CAPTURE_INVALIDATED : CU_OK;
        atomic_store(&capture->stream, NULL);
        *graph = NULL;
    }
    pthread_mutex_unlock(&fake.lock);
    return code;
}

cu_result cuStreamEndCapture_ptsz(cu_stream stream, cu_graph *graph)
{
    return cuStreamEndCapture(stream, graph);
}

unsigned cuFakeCapture(cu_stream stream)
{
    cu_graph graph;
    cu_stream before = fake.captured;
    fake.captured = stream;
    return stream ? cuStreamBeginCapture_v2(stream, 0) : cuStreamEndCapture(before, &graph);
}

cu_result cuThreadExchangeStreamCaptureMode(cu_capture_mode *mode)
{
    cu_capture_mode before = own_mode;
    fake_called();
    own_mode = *mode;
    *mode = before;
    return CU_OK;
}

/* Waits ---------------------------------------------------------------------------------------- */

void cuFakeFinish(void)
{
    atomic_store(&fake.finished, UINT64_MAX);
    fake_ended(NULL);
}

void cuFakeWork(void)
{
    atomic_store(&fake.finished, atomic_load(&fake.recorded));
}

bool fake_is_busy(void)
{
    return atomic_load_explicit(&fake.finished, memory_order_relaxed) != UINT64_MAX;
}

/* On a driver that does nothing there is nothing to wait for. */
cu_result cuCtxSynchronize(void)
{
    if (are_apart)
        return CU_OK;
    fake_called();
    cu_result code = fake_has_context() ? fake_forbidden() : CU_INVALID_CONTEXT;
    if (code || (code = fake_fault()))
        return code;
    if (fake_fails())
        return CU_LAUNCH_FAILED;
    atomic_fetch_add_explicit(&fake.waits, 1, memory_order_relaxed);
    if (fake_is_busy())
        atomic_store(&fake.finished, atomic_load(&fake.recorded));
    fake_ended(NULL);
    fake_wait();
    return CU_OK;
}

cu_result cuCtxSynchronize_v2(cu_context context)
{
    return fake_device_of(context) < 0 ? CU_INVALID_CONTEXT : cuCtxSynchronize();
}

/* A wait for one stream ends its work. */
static void wait_for(cu_stream stream)
{
    size_t at = 0;
    pthread_mutex_lock(&fake.lock);
    while (at + 1 < sizeof fake.waited / sizeof *fake.waited && fake.waited[at].stream &&
           fake.waited[at].stream != stream)
        at++;
    fake.waited[at].stream = stream;
    fake.waited[at].number = atomic_load(&fake.recorded);
    pthread_mutex_unlock(&fake.lock);
    fake_ended(stream);
    fake_wait();
}

cu_result cuStreamSynchronize(cu_stream stream)
{
    fake_called();
    if (!fake_is_stream(stream))
        return CU_INVALID_HANDLE;
    if (fake_fault())
        return fake_fault();
    wait_for(stream ? stream : (cu_stream)1);
    return CU_OK;
}

cu_result cuStreamSynchronize_ptsz(cu_stream stream)
{
    return cuStreamSynchronize(stream ? stream : (cu_stream)2);
}

/* Events --------------------------------------------------------------------------------------- */

/* How many events were recorded before it, and 1. */
struct event {
    uint64_t number;
    cu_stream stream;
    cu_context context;
};

static bool has_ended(const struct event *event)
{
    bool ended = event->number <= atomic_load(&fake.finished);
    pthread_mutex_lock(&fake.lock);
    for (size_t i = 0; !ended && i < sizeof fake.waited / sizeof *fake.waited; i++)
        ended = fake.waited[i].stream == event->stream && event->number <= fake.waited[i].number;
    pthread_mutex_unlock(&fake.lock);
    return ended;
}

cu_result cuEventCreate(cu_event *event, unsigned flags)
{
    (void)flags;
    fake_called();
    if (fake_fault())
        return fake_fault();
    if (!fake_has_context())
        return CU_INVALID_CONTEXT;
    if (fake_fails())
        return CU_OUT_OF_MEMORY;
    struct event *own = calloc(1, sizeof *own);
    if (!own)
        return CU_OUT_OF_MEMORY;
    own->context = fake_context();
    *event = (void *)own;
    return CU_OK;
}

/* Both are of one context, as in the driver. */
cu_result cuEventRecord(cu_event event, cu_stream stream)
{
    struct event *own = (void *)event;
    fake_called();
    if (!fake_is_stream(stream) || own->context != fake_context_of(stream))
        return CU_INVALID_HANDLE;
    if (fake_fault())
        return fake_fault();
    if (fake_fails())
        return CU_LAUNCH_FAILED;
    own->stream = stream ? stream : (cu_stream)1;
    own->number = atomic_fetch_add(&fake.recorded, 1) + 1;
    return CU_OK;
}

cu_result cuEventRecord_ptsz(cu_event event, cu_stream stream)
{
    return cuEventRecord(event, stream ? stream : (cu_stream)2);
}

cu_result cuEventQuery(cu_event event)
{
    fake_called();
    cu_result code = fake_forbidden();
    if (code || (code = fake_fault()))
        return code;
    return has_ended((const struct event *)(const void *)event) ? CU_OK : CU_NOT_READY;
}

cu_result cuEventSynchronize(cu_event event)
{
    fake_called();
    if (!event)
        return CU_INVALID_HANDLE;
    if (fake_fault())
        return fake_fault();
    fake_wait();
    return CU_OK;
}

cu_result cuEventDestroy_v2(cu_event event)
{
    fake_called();
    free(event);
    return CU_OK;
}

/* Streams -------------------------------------------------------------------------------------- */

static bool is_made(cu_stream stream)
{
    return (uintptr_t)stream - MADE < sizeof fake.made / sizeof *fake.made;
}

static _Atomic(cu_context) *made_at(cu_stream stream)
{
    return &fake.made[(uintptr_t)stream - MADE];
}

bool fake_is_stream(cu_stream stream)
{
    for (size_t i = 0; stream && i < GONE; i++)
        if (atomic_load_explicit(&fake.gone[i], memory_order_relaxed) == stream)
            return false;
    return is_made(stream) ? atomic_load(made_at(stream)) != NULL : (uintptr_t)stream < 0x10000;
}

/* Their number says whose they are: 0x90.. the other context's, 0xa0.. the second device's, 0xb0..
 * those of cuStreamCreate(), and else the first one's. */
cu_context fake_context_of(cu_stream stream)
{
    uintptr_t kind = (uintptr_t)stream >> 8;
    if (is_made(stream))
        return atomic_load(made_at(stream));
    return (uintptr_t)stream < 3 ? fake_context()
           : kind == 0x90        ? cuFakeOtherContext()
                                 : fake_primary(kind == 0xa0);
}

void cuFakeStream(cu_stream stream)
{
    for (size_t i = 0; i < GONE; i++)
        if (atomic_load(&fake.gone[i]) == stream)
            atomic_store(&fake.gone[i], NULL);
}

cu_result cuStreamCreate(cu_stream *stream, unsigned flags)
{
    (void)flags;
    fake_called();
    for (uintptr_t number = MADE; is_made((cu_stream)number); number++) {
        cu_context none = NULL;
        *stream = (cu_stream)number;
        if (atomic_compare_exchange_strong(made_at(*stream), &none, fake_context()))
            return CU_OK;
    }
    return CU_OUT_OF_MEMORY;
}

cu_result cuStreamDestroy_v2(cu_stream stream)
{
    if (!fake_is_stream(stream) || (uintptr_t)stream < 3)
        return CU_INVALID_HANDLE;
    if (is_made(stream)) {
        atomic_store(made_at(stream), NULL);
        return CU_OK;
    }
    for (size_t i = 0; i < GONE; i++) {
        cu_stream none = NULL;
        if (atomic_compare_exchange_strong(&fake.gone[i], &none, stream))
            break;
    }
    return CU_OK;
}

cu_result cuStreamDestroy(cu_stream stream)
{
    return cuStreamDestroy_v2(stream);
}

cu_result cuStreamGetCtx(cu_stream stream, cu_context *context)
{
    fake_called();
    if (!fake_is_stream(stream))
        return CU_INVALID_HANDLE;
    *context = fake_context_of(stream);
    return CU_OK;
}

cu_result cuStreamQuery(cu_stream stream)
{
    fake_called();
    if (!fake_is_stream(stream))
        return CU_INVALID_HANDLE;
    cu_result code = fake_forbidden();
    if (code || (code = fake_fault()))
        return code;
    return fake_is_busy() ? CU_NOT_READY : CU_OK;
}
