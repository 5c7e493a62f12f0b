/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The simulated libamdhip64: HIP's runtime API, without kernels, on the host device. It is built
 * three times from the same sources, as libamdhip64.so.5, .6 and .7, and serves any program that
 * opens or links it; libtarn need not be in the process. device.c has devices, codes and the way
 * into a call; memory.c, stream.c, graph.c what they say; kernel.c what compiled programs register.
 *
 * What AMD changed between versions hangs on the version that it claims. As the real one it
 * invalidates captures where CUDA would only refuse a call (host_capture.c, and
 * sim_beside_no_capture() here), gives what is out of memory or wrong the same codes, and crashes
 * where the real one follows a wild pointer: it says so and aborts. Until 7.0 the last error of a
 * thread is overwritten by a success.
 *
 *   TARN_SIM_HIP_VERSION   the version to claim, as hipRuntimeGetVersion() gives it, instead of
 *                          SIM_HIP_VERSION
 * and what common/sim.h reads. */
#ifndef SIM_HIP_SIM_HIP_H
#define SIM_HIP_SIM_HIP_H

#include "common/sim.h"
#include "driver/hip/hip_abi.h"
#include "driver/host/host.h"
#include "hip/calls.h"

#include <tarn/device.h>

#define X(symbol, since, needed, parameters) SIM_EXPORT hip_result symbol parameters;
HIP_CALL_LIST(X)
HIP_LATER_CALL_LIST(X)
SIM_HIP_CALL_LIST(X)
#undef X
#define X(symbol, since) SIM_EXPORT const char *symbol(hip_result code);
HIP_TEXT_LIST(X)
#undef X

/* Objects are never unmapped, and `live` is not in the first word, which the object pools use: a
 * stale handle is found. */
struct ihipStream_t {
    void *first;
    bool live;
    int device, priority;
    unsigned flags;
    driver_stream host;
    atomic_bool stays_invalid; /* a capture that could not be ended is all that it tells of */
};

struct ihipEvent_t {
    void *first;
    bool live;
    int device;
    driver_event host;
};

/* Kept until neither the caller nor what runs it holds it. */
struct ihipGraph {
    void *first;
    bool live;
    int device;
    int holders; /* graphs lock */
    driver_graph host;
};

struct hipGraphExec {
    void *first;
    bool live;
    hip_graph graph;
};

struct ihipMemGenericAllocationHandle {
    void *first;
    bool live;
    int device;
    size_t size;
    driver_piece host;
};

int sim_hip_version(void);

/* The first line of an entry: starts the devices at the first call of all, as HIP does. HIP_OK when
 * it may go on. */
hip_result sim_enter(const char *call);
/* The last line: makes the code what hipGetLastError() gives. */
hip_result sim_leave(hip_result code);

/* What HIP calls a status. TARN_ERROR_CAPTURE is a matter of the call: `capture`. */
hip_result sim_code(tarn_status status, hip_result capture);
/* The end of what follows a wild pointer, or asks what must not be asked: says why, and aborts. */
_Noreturn void sim_crash(const char *why);

/* The thread's current device. */
int sim_device(void);

/* Calls that cannot be made beside a capture of any mode: invalidates all of them, and gives
 * `refusal` where there are any. */
hip_result sim_beside_no_capture(hip_result refusal);

/* A stream's device and what the host device calls it: NULL is the legacy stream of the current
 * device, 2 the per-thread one. */
hip_result sim_stream(hip_stream stream, int *device, driver_stream *host);

#endif
