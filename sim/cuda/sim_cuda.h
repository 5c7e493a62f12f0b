/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The simulated libcuda.so.1: the public driver API on the host device. Kernels exist only as nodes
 * of graphs, and do nothing. It serves any program that opens or links it; libtarn need not be in
 * the process.
 *
 *   device.c   devices, contexts, and the beginning of every call
 *   memory.c, pools.c, stream.c, graph.c   what their names say
 *   kernel.c   modules and launches
 *   nodes.c    the nodes of graphs
 *   lookup.c   cuGetProcAddress
 *
 * It refuses what CUDA refuses: calls before cuInit (3), in a child of fork() (3), after the exit
 * of the process began (4), without a context (201), on the legacy stream while a blocking stream
 * captures (906), and unsafe ones while a capture bars them (900). A sticky error that
 * TARN_SIM_FAIL asks for leaves the device lost. Addresses are addresses of the process. An address
 * range belongs to the device that was current when it was reserved, and a piece of another device
 * cannot be mapped there. A context that its last holder has released is inactive, but keeps its
 * memory.
 *
 *   TARN_SIM_CUDA_VERSION   the version that the driver claims, 13000 by default: cuGetProcAddress
 *                           does not find newer entry points
 *   TARN_SIM_CARD           the machine that it simulates, by a name in card.h
 * and the variables of common/sim.h. */
#ifndef SIM_CUDA_SIM_CUDA_H
#define SIM_CUDA_SIM_CUDA_H

#include "common/graph.h"
#include "common/sim.h"
#include "cuda/calls.h"
#include "driver/cuda/cuda_abi.h"

#include <stdatomic.h>
#include <tarn/device.h>

struct CUctx_st {
    int device;
    atomic_int holders; /* written under the contexts lock; 0: the context is inactive */
    unsigned flags;
};

/* Objects are never unmapped. `live` is not in the first word, which the object pool overwrites, so
 * a stale handle is recognised. */
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

/* A graph is kept as long as the caller or an executable holds it. */
/* What a handle of a graph points to; NULL if it is NULL. */
static inline struct sim_graph *sim_graph_of(cu_graph graph)
{
    return (struct sim_graph *)(void *)graph;
}

#define SIM_CUDA_VERSION_DEFAULT 13000
unsigned sim_cuda_version(void);

/* The first line of each entry point; CU_OK: it may go on. sim_enter() also demands a current
 * context, and returns its device. */
cu_result sim_enter_process(const char *call);
cu_result sim_enter(const char *call, int *device);
/* Returns the sticky code of a lost device; CU_OK if it is not lost. */
cu_result sim_lost(int device);

/* CUDA's code for a status. */
cu_result sim_code(tarn_status status);

cu_context sim_context(int device);

/* sim_function_exists(): a module has the function. sim_function_parameter(): size and offset of
 * one of its parameters; 0 behind the last one. */
bool sim_function_exists(cu_function function);
size_t sim_function_parameter(cu_function function, size_t index, size_t *offset);
/* Notes that a node is a kernel's, and copies its parameters. */
cu_result sim_node_is_kernel(int device, driver_node node, const struct cu_kernel_node *given);

/* Frees an address by `release`. A block of a pool is no longer the pool's, unless that fails. */
cu_result sim_pool_free(cu_address address, tarn_status (*release)(int, uintptr_t, driver_stream),
                        int device, driver_stream queue);
/* The pool of a block; NULL: none. */
cu_pool sim_pool_of(cu_address address);

/* Returns a stream's device and the host device's stream. 0 and 1 are the legacy stream of the
 * current context, 2 is the per-thread one. */
cu_result sim_stream(cu_stream stream, int *device, driver_stream *host);

#define X(name, version, symbol, needed, parameters) SIM_EXPORT cu_result symbol parameters;
CUDA_CALL_LIST(X)
CUDA_LOADER_LIST(X)
SIM_CUDA_CALL_LIST(X)
#undef X

/* Entry points for programs that are compiled for per-thread default streams. Only the loader finds
 * them, since the lists have no stream modes. */
SIM_EXPORT cu_result cuMemAllocAsync_ptsz(cu_address *address, size_t size, cu_stream stream);
SIM_EXPORT cu_result cuMemAllocFromPoolAsync_ptsz(cu_address *address, size_t size, cu_pool pool,
                                                  cu_stream stream);
SIM_EXPORT cu_result cuMemFreeAsync_ptsz(cu_address address, cu_stream stream);
SIM_EXPORT cu_result cuEventRecord_ptsz(cu_event event, cu_stream stream);
SIM_EXPORT cu_result cuStreamIsCapturing_ptsz(cu_stream stream, cu_capture_status *state);
SIM_EXPORT cu_result cuStreamSynchronize_ptsz(cu_stream stream);

#endif
