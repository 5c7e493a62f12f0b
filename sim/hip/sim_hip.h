/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The simulated libamdhip64: HIP's runtime API on the host device, where kernels do nothing. It is
 * built three times from the same sources, as libamdhip64.so.5, .6 and .7. It serves any program
 * that opens or links it; libtarn need not be in the process.
 *
 *   device.c   devices, codes, and the beginning of every call
 *   memory.c, stream.c, graph.c   what their names say
 *   nodes.c    the nodes of graphs
 *   kernel.c   what compiled programs register
 *
 * What AMD changed between versions depends on the version that the library claims. Like the real
 * library it invalidates captures where CUDA only refuses a call (host_capture.c, and
 * sim_beside_no_capture() here), and returns the real one's codes for lack of memory and for
 * errors. Where the real one would follow a wild pointer, it says so and aborts.
 *
 *   TARN_SIM_HIP_VERSION   the version to claim, as hipRuntimeGetVersion() returns it, instead of
 *                          SIM_HIP_VERSION
 * and the variables of common/sim.h. */
#ifndef SIM_HIP_SIM_HIP_H
#define SIM_HIP_SIM_HIP_H

#include "common/graph.h"
#include "common/sim.h"
#include "driver/hip/hip_abi.h"
#include "driver/host/host.h"
#include "hip/calls.h"

#include <tarn/device.h>

/* From here on the simulated library tells the parameters of copies of one row; the real one does
 * in builds of ROCm/rocm-systems since 2025. */
#define HIP_FIRST_COPIES_TOLD HIP_VERSION_NUMBER(7, 0)

#define SIM_HIP_PARAMETERS 64 /* at most so many per kernel */

#define X(symbol, since, needed, parameters) SIM_EXPORT hip_result symbol parameters;
HIP_CALL_LIST(X)
HIP_LATER_CALL_LIST(X)
SIM_HIP_CALL_LIST(X)
#undef X
#define X(symbol, since, parameters) SIM_EXPORT const char *symbol parameters;
HIP_TEXT_LIST(X)
#undef X

/* Objects are never unmapped. `live` is not in the first word, which the object pool overwrites, so
 * a stale handle is recognised. */
struct ihipStream_t {
    void *first;
    bool live;
    int device, priority;
    unsigned flags;
    driver_stream host;
    atomic_bool stays_invalid; /* a capture could not be ended, and the stream reports only that */
};

struct ihipEvent_t {
    void *first;
    bool live;
    int device;
    driver_event host;
};

/* What a handle of a graph points to; NULL if it is NULL. */
static inline struct sim_graph *sim_graph_of(hip_graph graph)
{
    return (struct sim_graph *)(void *)graph;
}

struct ihipMemGenericAllocationHandle {
    void *first;
    bool live;
    int device;
    size_t size;
    driver_piece host;
};

int sim_hip_version(void);

/* The first line of each entry point. The first call of the process starts the devices, as in HIP.
 * HIP_OK: it may go on. */
hip_result sim_enter(const char *call);
/* The last line of each entry point: hipGetLastError() returns this code from now on. */
hip_result sim_leave(hip_result code);

/* HIP's code for a status. `capture` is the code for TARN_ERROR_CAPTURE, which depends on the
 * call. */
hip_result sim_code(tarn_status status, hip_result capture);
/* Says why, and aborts: where the real library would follow a wild pointer, or is asked what must
 * not be asked. */
_Noreturn void sim_crash(const char *why);

/* The thread's current device. */
int sim_device(void);

/* For calls that no capture of any mode allows: invalidates all captures. Returns `refusal` if
 * there were any. */
hip_result sim_beside_no_capture(hip_result refusal);

/* A kernel that a compiled program has registered. */
struct sim_kernel {
    struct sim_kernel *next;
    const void *symbol;
    void **module;
    char name[128];
    bool has_layout; /* its module is text */
    size_t count;
    struct {
        size_t offset, size;
    } parameters[SIM_HIP_PARAMETERS];
};

/* The kernel of a symbol; NULL: none. */
const struct sim_kernel *sim_kernel_of(const void *symbol);
/* Notes that a node is a kernel's, and copies its parameters, if their layout is known. */
hip_result sim_node_is_kernel(int device, driver_node node, const struct hip_kernel_node *given);

/* Returns a stream's device and the host device's stream. NULL is the legacy stream of the current
 * device, 2 is the per-thread one. */
hip_result sim_stream(hip_stream stream, int *device, driver_stream *host);

#endif
