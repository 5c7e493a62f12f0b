/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the CUDA driver share. cuda_load.c finds libcuda, its entry points and devices,
 * and turns codes into statuses; cuda_enter.c begins and ends calls; cuda.c has devices, memory,
 * streams and events; cuda_graph.c captures and graphs; cuda_walk.c the nodes of a graph;
 * cuda_monitor.c NVML. */
#ifndef TARN_DRIVER_CUDA_H
#define TARN_DRIVER_CUDA_H

#include "base/thread/cancel.h"
#include "driver/cuda/cuda_abi.h"
#include "driver/driver.h"
#include "driver/loader.h"

#include <stdatomic.h>
#include <tarn/device.h>

/* The entry points, named as they are exported. NULL: the driver is too old for one that tarn can
 * do without. */
struct cuda_calls {
#define X(name, version, symbol, needed, parameters) cu_result(*symbol) parameters;
    CUDA_CALL_LIST(X)
    CUDA_LOADER_LIST(X)
#undef X
};

struct cuda_device {
    cu_device handle;
    size_t memory, granule, recommended;              /* bytes */
    bool virtual_memory, posix_fd, rdma, host_pieces; /* what it supports */
    bool integrated, coherent, slice, mps;            /* what it is */
    int host_node;                                    /* the host's NUMA node for host pieces */
    /* The primary one, retained at the first use; NULL before. */
    _Atomic(cu_context) context;
};

/* Filled by cuda_probe(), and constant once the driver is chosen, except the contexts. */
struct cuda {
    struct cuda_calls call;
    struct loaded library;
    int version; /* 1000 * major + 10 * minor, of the driver */
    bool paged;  /* the driver is that of WSL2 */
    int devices;
    struct cuda_device device[TARN_MAX_DEVICES];
};

extern struct cuda cuda;

/* ---- cuda_load.c ---- */

/* Whether libcuda.so.1 exists, with at least one device. Appends to `why` what was found, or why
 * not. Creates no context and writes only to `found`, so several threads may search at the same
 * time. TARN_ERROR_NO_DRIVER. */
tarn_status cuda_probe(struct cuda *found, char *why, size_t size);

/* The status for a code other than CU_OK. */
tarn_status cuda_status(cu_result code);
/* "CUDA error 2 (CUDA_ERROR_OUT_OF_MEMORY: out of memory)". */
void cuda_say(char *text, size_t size, cu_result code);

/* ---- cuda_monitor.c ---- */

size_t cuda_processes(int device, struct driver_process *list, size_t room);
void cuda_identity(int device, struct driver_identity *identity);

/* ---- cuda_enter.c ---- */

/* What a call has changed for its duration, with the previous values. */
struct cuda_scope {
    int device;
    bool pushed, exchanged;
    cu_capture_mode mode; /* the thread's own */
    struct cancel cancel; /* as it was before */
};

/* Begins a call: makes the device's primary context current, unless it is. With `relaxed`, also
 * sets the thread's capture mode to relaxed. So a call that a capture of any thread would forbid
 * neither fails nor breaks that capture. */
tarn_status cuda_enter(int device, bool relaxed, struct cuda_scope *scope);

/* Ends a call: restores what cuda_enter() changed, and turns the code of the call, which the text
 * names, into a status. */
tarn_status cuda_leave(const struct cuda_scope *scope, cu_result code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same without touching tarn_last_error(). */
tarn_status cuda_leave_silently(const struct cuda_scope *scope, cu_result code);

/* Fails for a call without a device. */
tarn_status cuda_failed(cu_result code, const char *call) __attribute__((cold));
/* Fails because the driver is too old for a call. */
tarn_status cuda_missing(const char *call) __attribute__((cold));
tarn_status cuda_no_device(int device) __attribute__((cold));

/* The device's primary context, retained at the first use. */
tarn_status cuda_context(int device, cu_context *context);

/* ---- cuda_graph.c ---- */

/* Destroys the executables that graph launches created. */
void cuda_graphs_finish(void);

/* ---- cuda_walk.c ---- */

tarn_status cuda_graph_walk(int device, driver_graph graph, struct driver_walk *walk);

#define X(call, parameters) tarn_status cuda_##call parameters;
DRIVER_CALL_LIST(X)
#undef X

#endif
