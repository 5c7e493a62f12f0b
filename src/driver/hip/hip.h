/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the HIP driver share. hip_load.c finds libamdhip64, its entry points and
 * devices, and turns codes into statuses; hip_enter.c begins and ends calls; hip.c has devices,
 * plain memory, streams and events; hip_virtual.c virtual memory; hip_graph.c captures and
 * graphs; hip_walk.c looks at the nodes of graphs. */
#ifndef TARN_DRIVER_HIP_H
#define TARN_DRIVER_HIP_H

#include "base/thread/lock.h"
#include "driver/driver.h"
#include "driver/hip/hip_abi.h"
#include "driver/loader.h"

#include <stdatomic.h>
#include <tarn/device.h>

/* The entry points, named as they are exported. NULL: the runtime is too old for one that tarn can
 * do without. */
struct hip_calls {
#define X(symbol, since, needed, parameters) hip_result(*symbol) parameters;
    HIP_CALL_LIST(X)
    HIP_LATER_CALL_LIST(X)
#undef X
#define X(symbol, since, parameters) const char *(*symbol)parameters;
    HIP_TEXT_LIST(X)
#undef X
};

struct hip_device {
    size_t memory, granule; /* bytes */
    int greatest_priority;
    int capability_major, capability_minor; /* from the gfx number: 9 and 4 for gfx942 */
    bool virtual_memory, integrated, coherent;
};

/* Filled by hip_probe(), and constant once the driver is chosen. */
struct hip {
    struct hip_calls call;
    struct loaded library;
    int version; /* HIP_VERSION_NUMBER() and a patch level, of the runtime */
    int devices;
    struct hip_device device[TARN_MAX_DEVICES];
};

extern struct hip hip;

/* ---- hip_load.c ---- */

/* Whether libamdhip64 exists, with at least one device. Appends to `why` what was found, or why
 * not. Writes only to `found`, so several threads may search at the same time.
 * TARN_ERROR_NO_DRIVER, TARN_ERROR_CONFIGURATION. */
tarn_status hip_probe(struct hip *found, char *why, size_t size);

/* The status for a code other than HIP_OK. Classes of codes decide, not single ones: HIP 7.0
 * changed some. */
tarn_status hip_status(hip_result code);
/* "HIP error 2 (hipErrorOutOfMemory: out of memory)". */
void hip_say(char *text, size_t size, hip_result code);

/* What is declared of HIP and cannot be checked against a header of HIP 5.2, with the version from
 * which it is so. A NULL ends the list. */
struct hip_unchecked {
    const char *what, *since;
};
extern const struct hip_unchecked hip_unchecked[];

/* ---- hip_enter.c ---- */

/* What a call has changed for its duration, with the previous values. */
struct hip_scope {
    int device, before; /* the thread's current one before the call */
    bool moved, exchanged;
    hip_stream_capture_mode mode; /* the thread's own */
    struct cancel cancel;         /* as it was before */
};

/* Begins a call: makes the device the thread's current one. With `relaxed`, also sets the thread's
 * capture mode to relaxed. Otherwise HIP would not only refuse an allocation that an open capture
 * forbids, but invalidate that capture (CHECK_STREAM_CAPTURE_SUPPORTED in ROCm/clr,
 * hipamd/src/hip_internal.hpp). It does not do that for a relaxed thread. */
tarn_status hip_enter(int device, bool relaxed, struct hip_scope *scope);

/* Ends a call: restores what hip_enter() changed, and turns the code of the call, which the text
 * names, into a status. Removes a failure from hipGetLastError(), which the program uses too. */
tarn_status hip_leave(const struct hip_scope *scope, hip_result code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same without touching tarn_last_error(). */
tarn_status hip_leave_silently(const struct hip_scope *scope, hip_result code);

/* Fails for a call without a device. */
tarn_status hip_failed(hip_result code, const char *call) __attribute__((cold));
tarn_status hip_no_device(int device) __attribute__((cold));

/* ---- hip_virtual.c ---- */

/* Whether the runtime can share pieces between processes. */
bool hip_shares(void);

/* Forgets all reservations and mappings. */
void hip_virtual_finish(void);

/* ---- hip_graph.c ---- */

/* Destroys the executables that graph launches created. */
void hip_graphs_finish(void);

/* ---- hip_walk.c ---- */

tarn_status hip_graph_walk(int device, driver_graph graph, struct driver_walk *walk);

#define X(call, parameters) tarn_status hip_##call parameters;
DRIVER_CALL_LIST(X)
#undef X

#endif
