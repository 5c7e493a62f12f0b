/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The table of driver calls on the real libcuda: what tests/driver/test_cuda.c asks of it on the
 * simulated one, without what only a simulation can be asked. And what tarn sees of the machine:
 * the device, the driver, each library. */
#include "driver/driver.h"
#include "gpu.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define GRANULES 3

static const char *name;

/* Says FAIL, with the condition, and ends the check. */
#define NEED(condition)                                                               \
    do {                                                                              \
        if (!(condition)) {                                                           \
            gpu_say(GPU_FAIL, name, "line %d: not so: %s (%s)", __LINE__, #condition, \
                    tarn_last_error());                                               \
            return;                                                                   \
        }                                                                             \
    } while (0)

static bool bytes_are(uintptr_t address, unsigned char value, size_t size)
{
    static unsigned char bytes[1 << 20];
    if (size > sizeof bytes || gpu.cuMemcpyAsync((uintptr_t)bytes, address, size, NULL) ||
        gpu.cuStreamSynchronize(NULL))
        return false;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

static void tell(void)
{
    tarn_library_info info = {.size = sizeof info};
    gpu_say(GPU_NOTE, "device", "%s, %zu MiB, capability %d.%d, granule %zu KiB, virtual memory %s",
            gpu_properties.name, gpu_properties.memory / MIB, gpu_properties.capability_major,
            gpu_properties.capability_minor, gpu_properties.granule / 1024,
            gpu_properties.virtual_memory ? "yes" : "no");
    gpu_say(GPU_NOTE, "driver", "%s", driver_reason());
    for (tarn_library library = 1; !tarn_library_info_get(library, &info); library++)
        if (info.platform == TARN_PLATFORM_CUDA)
            gpu_say(GPU_NOTE, info.name, "%s %s %s",
                    info.found ? info.path : "not found:", info.version, info.reason);
}

static void properties(void)
{
    struct driver_properties one;
    size_t available = 0, total = 0;
    bool possible = false;
    name = "driver: properties";
    NEED(!driver->device_properties(0, &one));
    NEED(one.name[0] && one.memory > 0 && one.granule > 0 && one.capability_major >= 5);
    NEED(one.least_priority == 0 && one.greatest_priority < 0);
    NEED(!driver->memory_info(0, &available, &total) && available <= total &&
         total <= one.memory + MIB);
    NEED(!driver->peer_possible(0, 0, &possible) && possible);
    NEED(driver->device_properties(TARN_MAX_DEVICES, &one) == TARN_ERROR_INVALID_DEVICE);
    gpu_say(GPU_PASS, name, "priorities 0 to %d", one.greatest_priority);
}

/* What is current in the calling thread stays so over each kind of call. */
static void contexts(void)
{
    cu_context own = NULL, now = NULL;
    uintptr_t address = 0;
    driver_stream stream = NULL;
    name = "driver: the context of the caller stays";
    NEED(!driver->activate(0) && !gpu.cuCtxGetCurrent(&own) && own);
    for (int round = 0; round < 2; round++) {
        cu_context before = round ? NULL : own;
        NEED(!gpu.cuCtxSetCurrent(before));
        NEED(!driver->alloc(0, MIB, &address) && !driver->stream_create(0, 0, false, &stream));
        NEED(!driver->set(0, address, 1, MIB, stream) && !driver->stream_synchronize(0, stream));
        NEED(!driver->stream_destroy(0, stream) && !driver->free(0, address));
        NEED(!gpu.cuCtxGetCurrent(&now) && now == before);
    }
    NEED(!driver->activate(0));
    gpu_say(GPU_PASS, name, "with one and with none");
}

static void pieces(void)
{
    uintptr_t range = 0;
    driver_piece piece[GRANULES] = {0};
    driver_stream stream = NULL;
    size_t granule = gpu_properties.granule;
    const int device = 0;
    name = "driver: pieces";
    if (!gpu_properties.virtual_memory) {
        gpu_say(GPU_SKIP, name, "no virtual memory");
        return;
    }
    NEED(!driver->reserve(0, (GRANULES + 1) * granule, granule, &range) && range % granule == 0);
    NEED(!driver->stream_create(0, 0, false, &stream));
    for (size_t i = 0; i < GRANULES; i++) {
        tarn_status status =
            driver->create(0, granule, i == 1 ? DRIVER_PIECE_EXPORTABLE : 0, &piece[i]);
        if (i == 1 && status == TARN_ERROR_NOT_SUPPORTED) {
            gpu_say(GPU_SKIP, name, "an exportable piece: %s", tarn_last_error());
            status = driver->create(0, granule, 0, &piece[i]);
        }
        NEED(!status && !driver->map(0, range + i * granule, granule, piece[i]));
    }
    NEED(driver->map(0, range, granule, piece[1]) != TARN_OK);
    NEED(!driver->set_access(0, range, GRANULES * granule, &device, 1));
    for (size_t i = 0; i < GRANULES; i++)
        NEED(!driver->set(0, range + i * granule, (unsigned char)(i + 1), granule, stream));
    NEED(!driver->stream_synchronize(0, stream));
    for (size_t i = 0; i < GRANULES; i++)
        NEED(bytes_are(range + i * granule, (unsigned char)(i + 1), MIB));

    /* Piece 0 again, at a second address: the same memory. Then without its first. */
    NEED(!driver->map(0, range + GRANULES * granule, granule, piece[0]));
    NEED(!driver->set_access(0, range + GRANULES * granule, granule, &device, 1));
    NEED(bytes_are(range + GRANULES * granule, 1, MIB));
    NEED(!driver->unmap(0, range, granule));
    NEED(bytes_are(range + GRANULES * granule, 1, MIB));
    /* A row of mappings in one call */
    NEED(!driver->unmap(0, range + granule, GRANULES * granule));
    for (size_t i = 0; i < GRANULES; i++)
        NEED(!driver->release(0, piece[i]));
    NEED(!driver->unreserve(0, range, (GRANULES + 1) * granule) &&
         !driver->stream_destroy(0, stream));

    size_t available = 0, total = 0;
    NEED(!driver->memory_info(0, &available, &total));
    NEED(driver->create(0, (total / granule + 1) * granule, 0, &piece[0]) ==
         TARN_ERROR_OUT_OF_MEMORY);
    NEED(driver->alloc(0, total + granule, &range) == TARN_ERROR_OUT_OF_MEMORY);
    gpu_say(GPU_PASS, name,
            "made, mapped twice, unmapped in a row, given back; a full device says so");
}

static void host_function(void *argument)
{
    __atomic_store_n((int *)argument, 1, __ATOMIC_SEQ_CST);
}

static void streams(void)
{
    driver_stream a = NULL, b = NULL;
    driver_event event = NULL;
    uintptr_t address = 0;
    int called = 0;
    name = "driver: streams and events";
    NEED(!driver->stream_create(0, 0, false, &a) && !driver->stream_create(0, -1, true, &b));
    /* Never recorded: finished */
    NEED(!driver->event_create(0, &event) && !driver->event_query(0, event));
    NEED(!driver->alloc(0, MIB, &address));
    for (int i = 0; i < 50; i++) {
        NEED(!driver->set(0, address, (unsigned char)i, MIB, a) &&
             !driver->event_record(0, event, a));
        NEED(!driver->stream_wait_event(0, b, event) &&
             !driver->copy(0, address + MIB / 2, address, MIB / 2, b));
        tarn_status status = driver->event_query(0, event);
        NEED(status == TARN_OK || status == TARN_ERROR_NOT_READY);
        NEED(!driver->stream_synchronize(0, b) && !driver->event_synchronize(0, event));
        NEED(bytes_are(address, (unsigned char)i, MIB));
    }
    NEED(!driver->call(0, a, host_function, &called) && !driver->stream_synchronize(0, a) &&
         called);
    NEED(!driver->device_synchronize(0) && !driver->stream_query(0, a) &&
         !driver->stream_query(0, NULL));
    NEED(!driver->free(0, address) && !driver->event_destroy(0, event));
    NEED(!driver->stream_destroy(0, a) && !driver->stream_destroy(0, b));
    gpu_say(GPU_PASS, name, "order kept 50 times");
}

static void captures(void)
{
    driver_stream stream = NULL, other = NULL;
    driver_event fork_at = NULL, join_at = NULL;
    driver_graph graph = NULL;
    uintptr_t address = 0;
    struct driver_capture capture;
    name = "driver: captures";
    NEED(!driver->alloc(0, MIB, &address) && !driver->stream_create(0, 0, false, &stream));
    NEED(!driver->stream_create(0, 0, false, &other) && !driver->event_create(0, &fork_at));
    NEED(!driver->event_create(0, &join_at) && !driver->set(0, address, 9, MIB, stream));
    NEED(!driver->stream_synchronize(0, stream));
    NEED(!driver->capture_status(0, stream, &capture) && capture.state == DRIVER_CAPTURE_NONE);
    NEED(!driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    NEED(!driver->set(0, address, 1, MIB / 2, stream) && !driver->event_record(0, fork_at, stream));
    NEED(!driver->stream_wait_event(0, other, fork_at) &&
         !driver->set(0, address + MIB / 2, 2, MIB / 2, other));
    NEED(!driver->capture_status(0, other, &capture) && capture.state == DRIVER_CAPTURE_ACTIVE);
    uint64_t id = capture.id;
    NEED(!driver->capture_status(0, stream, &capture) && capture.id == id &&
         capture.node_count == 1);
    uintptr_t extra = 0; /* an allocation is barred in this mode, and the table relaxes it */
    NEED(!driver->alloc(0, MIB, &extra) && !driver->free(0, extra));
    NEED(!driver->event_record(0, join_at, other) &&
         !driver->stream_wait_event(0, stream, join_at));
    NEED(!driver->capture_end(0, stream, &graph) && graph);
    NEED(bytes_are(address, 9, MIB)); /* nothing has run */
    for (int i = 0; i < 2; i++) {
        NEED(!driver->set(0, address, 9, MIB, stream) && !driver->graph_launch(0, graph, stream));
        NEED(!driver->stream_synchronize(0, stream));
        NEED(bytes_are(address, 1, MIB / 2) && bytes_are(address + MIB / 2, 2, MIB / 2));
    }
    NEED(!driver->graph_destroy(0, graph));

    /* A node that depends on the first alone, and on both. */
    NEED(!driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED) &&
         !driver->set(0, address, 1, 4, stream));
    NEED(!driver->capture_status(0, stream, &capture) && capture.node_count == 1);
    driver_node first = capture.nodes[0];
    NEED(!driver->set(0, address, 2, 4, stream));
    NEED(!driver->capture_status(0, stream, &capture) && capture.node_count == 1 &&
         capture.nodes[0] != first);
    driver_node ends[] = {first, capture.nodes[0]};
    NEED(!driver->capture_depend(0, stream, ends, 2));
    NEED(!driver->capture_status(0, stream, &capture) && capture.node_count == 2);
    NEED(!driver->set(0, address + 8, 3, 4, stream));
    driver_node before[4];
    size_t count = 0;
    NEED(!driver->capture_status(0, stream, &capture) && capture.node_count == 1 &&
         !capture.partial);
    driver_node third = capture.nodes[0];
    NEED(!driver->node_before(0, third, before, 4, &count) && count == 2);
    NEED((before[0] == ends[0] && before[1] == ends[1]) ||
         (before[0] == ends[1] && before[1] == ends[0]));
    NEED(!driver->node_before(0, third, before, 1, &count) && count == 2);
    NEED(!driver->node_before(0, ends[1], before, 4, &count) && count == 1 && before[0] == first);
    NEED(!driver->node_before(0, first, before, 4, &count) && count == 0);
    NEED(!driver->capture_end(0, stream, &graph));
    NEED(!driver->graph_launch(0, graph, stream) && !driver->stream_synchronize(0, stream));
    NEED(bytes_are(address, 2, 4) && bytes_are(address + 8, 3, 4) &&
         !driver->graph_destroy(0, graph));
    NEED(!driver->stream_destroy(0, stream) && !driver->stream_destroy(0, other) &&
         !driver->free(0, address));
    NEED(!driver->event_destroy(0, fork_at) && !driver->event_destroy(0, join_at));
    gpu_say(GPU_PASS, name, "forked, joined, launched twice; dependencies replaced");
}

static int gate, ends;

static void sleep_ms(int ms)
{
    const struct timespec moment = {.tv_nsec = (long)ms * 1000000};
    nanosleep(&moment, NULL);
}

static void wait_at_gate(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&gate, __ATOMIC_SEQ_CST))
        sleep_ms(1);
}

static void graph_ended(void *argument)
{
    __atomic_fetch_add((int *)argument, 1, __ATOMIC_SEQ_CST);
}

/* The driver calls from a thread of its own, some time after. */
static bool ends_become(int wanted)
{
    for (int i = 0; i < 5000 && __atomic_load_n(&ends, __ATOMIC_SEQ_CST) != wanted; i++)
        sleep_ms(1);
    sleep_ms(20); /* not once more either */
    return __atomic_load_n(&ends, __ATOMIC_SEQ_CST) == wanted;
}

static void end_of_a_graph(void)
{
    driver_stream stream = NULL;
    driver_graph graph = NULL;
    cu_graph_exec exec = NULL;
    name = "driver: the end of a graph";
    NEED(!driver->activate(0) && !driver->stream_create(0, 0, false, &stream));

    /* By the vendor's calls: the graph goes first, what runs it while it runs, and its work ends
     * last. */
    NEED(!driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED) &&
         !driver->call(0, stream, wait_at_gate, NULL));
    NEED(!driver->capture_end(0, stream, &graph));
    tarn_status status = driver->graph_hold(0, graph, graph_ended, &ends);
    if (status == TARN_ERROR_NOT_SUPPORTED) {
        gpu_say(GPU_SKIP, name, "%s", tarn_last_error());
        return;
    }
    NEED(!status && !gpu.cuGraphInstantiateWithFlags(&exec, graph, 0) &&
         !gpu.cuGraphDestroy(graph));
    NEED(ends_become(0) && !gpu.cuGraphLaunch(exec, stream) && !gpu.cuGraphExecDestroy(exec));
    bool waited = ends_become(0);
    __atomic_store_n(&gate, 1, __ATOMIC_SEQ_CST);
    NEED(!driver->stream_synchronize(0, stream) && ends_become(1));
    NEED(waited);

    /* By tarn's. */
    __atomic_store_n(&gate, 0, __ATOMIC_SEQ_CST);
    NEED(!driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED) &&
         !driver->call(0, stream, wait_at_gate, NULL));
    NEED(!driver->capture_end(0, stream, &graph) && !driver->graph_launch(0, graph, stream));
    NEED(!driver->graph_hold(0, graph, graph_ended, &ends) &&
         !driver->graph_launch(0, graph, stream));
    NEED(!driver->graph_destroy(0, graph) && ends_become(1));
    __atomic_store_n(&gate, 1, __ATOMIC_SEQ_CST);
    NEED(!driver->stream_synchronize(0, stream) && ends_become(2));

    /* Never launched; and none, which is told to nobody. */
    NEED(!driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED) &&
         !driver->capture_end(0, stream, &graph));
    NEED(!driver->graph_hold(0, graph, graph_ended, &ends) && !driver->graph_destroy(0, graph) &&
         ends_become(3));
    NEED(driver->graph_hold(0, NULL, graph_ended, &ends) != TARN_OK && ends_become(3));
    NEED(!driver->stream_destroy(0, stream));
    gpu_say(GPU_PASS, name, "is told once, after its work");
}

static void do_nothing(void *argument)
{
    (void)argument;
}

/* CUDA refuses the launch of a graph on a stream that captures; what becomes of the capture is
 * told. */
static void launch_in_a_capture(void)
{
    driver_stream stream = NULL;
    driver_graph graph = NULL, outer = NULL;
    struct driver_capture capture = {0};
    static const char *const states[] = {"none", "active", "invalidated"};
    name = "driver: a launch in a capture";
    NEED(!driver->activate(0) && !driver->stream_create(0, 0, false, &stream));
    NEED(!driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED) &&
         !driver->call(0, stream, do_nothing, NULL));
    NEED(!driver->capture_end(0, stream, &graph));
    NEED(!driver->graph_launch(0, graph, stream) && !driver->stream_synchronize(0, stream));
    NEED(!driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED));
    tarn_status status = driver->graph_launch(0, graph, stream);
    NEED(!driver->capture_status(0, stream, &capture));
    tarn_status ended = driver->capture_end(0, stream, &outer);
    gpu_say(status == TARN_ERROR_CAPTURE ? GPU_PASS : GPU_FAIL, name,
            "%s; the capture is then %s, its end %s", tarn_status_name(status),
            states[capture.state], tarn_status_name(ended));
    NEED(!outer || !driver->graph_destroy(0, outer));
    NEED(!driver->graph_destroy(0, graph) && !driver->stream_destroy(0, stream));
}

static void broken_captures(void)
{
    driver_stream stream = NULL;
    driver_event event = NULL;
    driver_graph graph = NULL;
    cu_address address = 0;
    name = "driver: what breaks a capture";
    NEED(!driver->activate(0) && !driver->stream_create(0, 0, true, &stream) &&
         !driver->event_create(0, &event));
    NEED(!driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    NEED(driver->event_record(0, event, NULL) == TARN_ERROR_CAPTURE);
    NEED(driver->capture_end(0, stream, &graph) == TARN_ERROR_CAPTURE && !graph);

    NEED(!driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    NEED(driver->stream_synchronize(0, stream) == TARN_ERROR_CAPTURE);
    NEED(driver->capture_end(0, stream, &graph) == TARN_ERROR_CAPTURE && !graph);

    /* A call of the program's own, in the mode that its thread has. */
    NEED(!driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    cu_result code = gpu.cuMemAlloc_v2(&address, MIB);
    tarn_status status = driver->capture_end(0, stream, &graph);
    NEED(code == CU_CAPTURE_UNSUPPORTED && status == TARN_ERROR_CAPTURE && !graph);
    NEED(!driver->stream_synchronize(0, stream)); /* it is over */
    NEED(!driver->event_destroy(0, event) && !driver->stream_destroy(0, stream));
    gpu_say(GPU_PASS, name, "and is told, and over");
}

int main(void)
{
    int status = gpu_start();
    if (status)
        return status;
    tell();
    properties();
    contexts();
    pieces();
    streams();
    captures();
    end_of_a_graph();
    launch_in_a_capture();
    broken_captures();
    return gpu_end();
}
