/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the HIP driver share. hip_load.c finds libamdhip64 and its entry points, knows
 * the devices and turns codes into statuses; hip_enter.c is the way into a call; hip.c has devices,
 * plain memory, streams and events; hip_virtual.c virtual memory; hip_graph.c captures and
 * graphs. */
#ifndef TARN_DRIVER_HIP_H
#define TARN_DRIVER_HIP_H

#include "base/thread/lock.h"
#include "driver/driver.h"
#include "driver/hip/hip_abi.h"
#include "driver/loader.h"

#include <stdatomic.h>
#include <tarn/device.h>

/* The entry points, each named as it is exported. NULL where the runtime is too old for one that
 * tarn can do without. */
struct hip_calls {
#define X(symbol, since, needed, parameters) hip_result(*symbol) parameters;
    HIP_CALL_LIST(X)
    HIP_LATER_CALL_LIST(X)
#undef X
#define X(symbol, since) const char *(*symbol)(hip_result);
    HIP_TEXT_LIST(X)
#undef X
};

struct hip_device {
    size_t memory, granule; /* bytes */
    int greatest_priority;
    int capability_major, capability_minor; /* of the gfx number: 9 and 4 for gfx942 */
    bool virtual_memory;
};

/* Filled by hip_probe(), and not changed after the choice of the driver. */
struct hip {
    struct hip_calls call;
    struct loaded library;
    int version; /* HIP_VERSION_NUMBER() and a patch level, of the runtime */
    int devices;
    struct hip_device device[TARN_MAX_DEVICES];
};

extern struct hip hip;

/* ---- hip_load.c ---- */

/* Whether libamdhip64 is there, with at least one device. Adds to `why` what was found, or why not.
 * Touches `hip` not at all, so that several threads may look at once. TARN_ERROR_NO_DRIVER,
 * TARN_ERROR_CONFIGURATION. */
tarn_status hip_probe(struct hip *found, char *why, size_t size);

/* The class of a code that is not HIP_OK. Classes, not single codes, decide: HIP 7.0 changed some
 * of these. */
tarn_status hip_status(hip_result code);
/* "HIP error 2 (hipErrorOutOfMemory: out of memory)". */
void hip_say(char *text, size_t size, hip_result code);

/* What is declared of HIP and cannot be checked against a header of 5.2: what it is, and since
 * which version it is so. A NULL ends the list. */
struct hip_unchecked {
    const char *what, *since;
};
extern const struct hip_unchecked hip_unchecked[];

/* ---- hip_enter.c ---- */

/* What a call has changed for its duration. */
struct hip_scope {
    int device, before; /* the thread's current one before the call */
    bool moved, exchanged;
    hip_stream_capture_mode mode; /* the thread's own */
    struct cancel cancel;         /* as it was before */
};

/* The first line of a call: makes the device the thread's current one. With `relaxed` the thread's
 * capture mode is relaxed meanwhile: HIP does not merely refuse an allocation that an open capture
 * bars, it invalidates every capture that bars it (CHECK_STREAM_CAPTURE_SUPPORTED in ROCm/clr,
 * hipamd/src/hip_internal.hpp), and a relaxed thread is not asked. */
tarn_status hip_enter(int device, bool relaxed, struct hip_scope *scope);

/* The last line: puts back what hip_enter() changed, and turns the code of the call, which the text
 * describes, into a status. A failure is taken out of hipGetLastError(), which the caller's program
 * shares with us. */
tarn_status hip_leave(const struct hip_scope *scope, hip_result code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same without a word to tarn_last_error(). */
tarn_status hip_leave_silently(const struct hip_scope *scope, hip_result code);

/* A call that names no device failed. */
tarn_status hip_failed(hip_result code, const char *call) __attribute__((cold));
tarn_status hip_no_device(int device) __attribute__((cold));

/* ---- hip_virtual.c ---- */

/* Whether the runtime has the calls that pieces go between processes by. */
bool hip_shares(void);

/* Forgets what is reserved and mapped. */
void hip_virtual_finish(void);

/* ---- hip_graph.c ---- */

/* Destroys what graph launches made. */
void hip_graphs_finish(void);

#define X(call, parameters) tarn_status hip_##call parameters;
DRIVER_CALL_LIST(X)
#undef X

#endif
