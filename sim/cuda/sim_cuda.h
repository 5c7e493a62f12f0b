/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The simulated libcuda.so.1: the public driver API, with kernels that only graphs can have and
 * that do nothing, on the host device. It serves any program that opens or links it; libtarn need
 * not be in the process. device.c has devices, contexts and the way into a call; memory.c,
 * stream.c, graph.c what they say; kernel.c modules and launches; nodes.c the nodes of graphs;
 * lookup.c cuGetProcAddress.
 *
 * It refuses what CUDA refuses: calls before cuInit (3), in a child of fork() (3), from the exit of
 * the process on (4), without a context (201), on the legacy stream while a blocking stream
 * captures (906), unsafe ones while a capture bars them (900). A sticky error that a knob asks for
 * leaves the device lost. Its addresses are addresses of the process, and an address range belongs
 * to the device that was current when it was reserved: a piece of another one cannot be mapped
 * there. A context whose last holder has released it is inactive, but keeps its memory.
 *
 *   TARN_SIM_CUDA_VERSION   the version of the driver to claim, 13000 at first: entry points that
 *                           are newer are not found by cuGetProcAddress
 * and what common/sim.h reads. */
#ifndef SIM_CUDA_SIM_CUDA_H
#define SIM_CUDA_SIM_CUDA_H

#include "common/sim.h"
#include "cuda/calls.h"
#include "driver/cuda/cuda_abi.h"

#include <stdatomic.h>
#include <tarn/device.h>

struct CUctx_st {
    int device;
    atomic_int holders; /* written with the contexts lock; 0: it is not active */
    unsigned flags;
};

/* Objects are never unmapped, and `live` is not in the first word, which the object pools use: a
 * stale handle is found. */
struct CUstream_st {
    void *first;
    bool live;
    int device, priority;
    unsigned flags;
    driver_stream host;
};

struct CUevent_st {
    void *first;
    bool live;
    int device;
    driver_event host;
};

/* Kept until neither the caller nor what runs it holds it. */
struct CUgraph_st {
    void *first;
    bool live;
    int device;
    int holders; /* graphs lock */
    driver_graph host;
};

struct CUgraphExec_st {
    void *first;
    bool live;
    cu_graph graph;
};

#define SIM_CUDA_VERSION_DEFAULT 13000
unsigned sim_cuda_version(void);

/* The first line of an entry: CU_OK when it may go on. `sim_enter` also wants a current context,
 * and gives its device. */
cu_result sim_enter_process(const char *call);
cu_result sim_enter(const char *call, int *device);
/* Whether a device was lost. */
cu_result sim_lost(int device);

/* What CUDA calls a status. */
cu_result sim_code(tarn_status status);

cu_context sim_context(int device);

/* A graph that its caller or what runs it holds; one more holder of a graph that its caller has;
 * and one less. An empty graph of the host device. */
bool sim_graph_exists(cu_graph graph);
bool sim_graph_hold(cu_graph graph);
cu_result sim_graph_let_go(cu_graph graph);
void sim_graph_let_go_at_end(cu_graph graph); /* while the end of another one is told */
cu_result sim_graph_make(int device, driver_graph *made);
/* Its end, without telling who holds it: whoever tells the end of another one does. */
void sim_graph_unmake(driver_graph graph);

/* Whether a module has the function; the size and the offset of one of its parameters, 0 behind the
 * last. */
bool sim_function_exists(cu_function function);
size_t sim_function_parameter(cu_function function, size_t index, size_t *offset);
/* A node of a graph is a kernel's, with these parameters, which are copied. */
cu_result sim_node_is_kernel(int device, driver_node node, const struct cu_kernel_node *given);

/* An address that was a block of a pool's, perhaps, is freed. */
void sim_pool_forget(cu_address address);
/* The pool that a block is of; NULL: none. */
cu_pool sim_pool_of(cu_address address);

/* A stream's device and what the host device calls it: 0 and 1 are the legacy stream of the current
 * context, 2 the per-thread one. */
cu_result sim_stream(cu_stream stream, int *device, driver_stream *host);

#define X(name, version, symbol, needed, parameters) SIM_EXPORT cu_result symbol parameters;
CUDA_CALL_LIST(X)
CUDA_LOADER_LIST(X)
SIM_CUDA_CALL_LIST(X)
#undef X

/* For programs compiled for per-thread default streams; by the loader alone, as the lists have no
 * stream modes. */
SIM_EXPORT cu_result cuMemAllocAsync_ptsz(cu_address *address, size_t size, cu_stream stream);
SIM_EXPORT cu_result cuMemAllocFromPoolAsync_ptsz(cu_address *address, size_t size, cu_pool pool,
                                                  cu_stream stream);
SIM_EXPORT cu_result cuMemFreeAsync_ptsz(cu_address address, cu_stream stream);
SIM_EXPORT cu_result cuEventRecord_ptsz(cu_event event, cu_stream stream);
SIM_EXPORT cu_result cuStreamIsCapturing_ptsz(cu_stream stream, cu_capture_status *state);
SIM_EXPORT cu_result cuStreamSynchronize_ptsz(cu_stream stream);

#endif
