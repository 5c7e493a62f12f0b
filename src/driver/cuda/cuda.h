/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the CUDA driver share. cuda_load.c finds libcuda and its entry points, knows
 * the devices and turns codes into statuses; cuda_enter.c is the way into a call; cuda.c has
 * devices, memory, streams and events; cuda_graph.c captures and graphs; cuda_walk.c the
 * nodes of a graph. */
#ifndef TARN_DRIVER_CUDA_H
#define TARN_DRIVER_CUDA_H

#include "base/thread/cancel.h"
#include "driver/cuda/cuda_abi.h"
#include "driver/driver.h"
#include "driver/loader.h"

#include <stdatomic.h>
#include <tarn/device.h>

/* The entry points, each named as it is exported. NULL where the driver is too old for one that
 * tarn can do without. */
struct cuda_calls {
#define X(name, version, symbol, needed, parameters) cu_result(*symbol) parameters;
    CUDA_CALL_LIST(X)
    CUDA_LOADER_LIST(X)
#undef X
};

struct cuda_device {
    cu_device handle;
    size_t memory, granule, recommended;              /* bytes */
    bool virtual_memory, posix_fd, rdma, host_pieces; /* what it can */
    int host_node;                                    /* the NUMA node of the host whose memory host
                                                         pieces are */
    _Atomic(cu_context) context;                      /* the primary one, retained at the first use;
                                                         NULL before */
};

/* All filled by cuda_probe(), and not changed after the choice of the driver except for the
 * contexts. */
struct cuda {
    struct cuda_calls call;
    struct loaded library;
    int version; /* 1000 * major + 10 * minor, of the driver */
    int devices;
    struct cuda_device device[TARN_MAX_DEVICES];
};

extern struct cuda cuda;

/* ---- cuda_load.c ---- */

/* Whether libcuda.so.1 is there, with at least one device. Adds to `why` what was found, or why
 * not. Makes no context, and touches `cuda` not at all, so that several threads may look at once.
 * TARN_ERROR_NO_DRIVER. */
tarn_status cuda_probe(struct cuda *found, char *why, size_t size);

/* The class of a code that is not CU_OK. */
tarn_status cuda_status(cu_result code);
/* "CUDA error 2 (CUDA_ERROR_OUT_OF_MEMORY: out of memory)". */
void cuda_say(char *text, size_t size, cu_result code);

/* ---- cuda_monitor.c ---- */

size_t cuda_processes(int device, struct driver_process *list, size_t room);
void cuda_identity(int device, struct driver_identity *identity);

/* ---- cuda_enter.c ---- */

/* What a call has changed for its duration. */
struct cuda_scope {
    int device;
    bool pushed, exchanged;
    cu_capture_mode mode; /* the thread's own */
    struct cancel cancel; /* as it was before */
};

/* The first line of a call: makes the device's primary context current, without a word to a context
 * that is. With `relaxed` the thread's capture mode is relaxed meanwhile, so that a call that a
 * capture of whoever would forbid neither fails nor breaks that capture. */
tarn_status cuda_enter(int device, bool relaxed, struct cuda_scope *scope);

/* The last line: puts back what cuda_enter() changed, and turns the code of the call, which the
 * text describes, into a status. */
tarn_status cuda_leave(const struct cuda_scope *scope, cu_result code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same without a word to tarn_last_error(). */
tarn_status cuda_leave_silently(const struct cuda_scope *scope, cu_result code);

/* A call that names no device failed. */
tarn_status cuda_failed(cu_result code, const char *call) __attribute__((cold));
/* The driver is too old for a call. */
tarn_status cuda_missing(const char *call) __attribute__((cold));
tarn_status cuda_no_device(int device) __attribute__((cold));

/* The device's primary context, retained at the first use. */
tarn_status cuda_context(int device, cu_context *context);

/* ---- cuda_graph.c ---- */

/* Destroys what graph launches made. */
void cuda_graphs_finish(void);

/* ---- cuda_walk.c ---- */

tarn_status cuda_graph_walk(int device, driver_graph graph, struct driver_walk *walk);

#define X(call, parameters) tarn_status cuda_##call parameters;
DRIVER_CALL_LIST(X)
#undef X

#endif
