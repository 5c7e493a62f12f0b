/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn: memory pools and library handles that follow the thread, the device and the stream.
 *
 * What holds for every function, and is said again only where one differs (docs/process-life.md has the reasons):
 *   threads       all are thread-safe, but for what one thread does to an object that another is giving up
 *   fork          in a child of a process that used tarn every call gives TARN_ERROR_FORKED, takes no lock and reaches no driver; use
 *                 exec, or fork before the first use. tarn_version() and tarn/status.h answer as ever. A child of vfork(), _Fork() or a
 *                 bare clone() is not told: it must call nothing of tarn
 *   exec          the new program inherits no file, no memory and no thread
 *   signals       handlers may interrupt every call, and no call fails or ends early for that. In a handler nothing may be called but
 *                 tarn_version(), tarn_status_name() and tarn_status_text(); none may be left by longjmp() while a call is under way
 *   cancellation  no call is a cancellation point, nor are the callbacks that it makes: a thread is cancelled before a call or after
 *                 it. Asynchronous cancellation must be off during calls, as POSIX asks for nearly all functions. A callback must come back:
 *                 no longjmp(), pthread_exit() or exception out of it
 *   errno         a call that succeeds leaves it as it was, and every call the mask of signals and the way that numbers are rounded
 *   thread's end  what was the thread's is given up with no call of the driver. Its destructors (pthread_key_create(), thread_local) may
 *                 use tarn, but for handles in the last of PTHREAD_DESTRUCTOR_ITERATIONS
 *   exit          threads may go on in any call while the process exits, and exit handlers and static destructors may use tarn. Once
 *                 the vendor's driver has shut down, what needs it gives TARN_ERROR_SHUTDOWN; blocks can be freed still
 *   dlclose       does nothing: the library stays until the process ends
 *   copies        each copy of the library in a process is a tarn of its own; what another one gave is TARN_ERROR_INVALID_POINTER */
#ifndef TARN_TARN_H
#define TARN_TARN_H

/* The version of these headers. */
/* clang-format off */
#define TARN_VERSION_MAJOR 0
#define TARN_VERSION_MINOR 1
#define TARN_VERSION_PATCH 0
/* clang-format on */

#include <tarn/config.h>
#include <tarn/device.h>
#include <tarn/handle.h>
#include <tarn/memory.h>
#include <tarn/observe.h>
#include <tarn/pinned.h>
#include <tarn/pool.h>
#include <tarn/share.h>
#include <tarn/sleep.h>
#include <tarn/snapshot.h>
#include <tarn/stats.h>
#include <tarn/status.h>
#include <tarn/stream.h>
#include <tarn/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that runs, "0.1.0", which may differ from the header's. */
TARN_API const char *tarn_version(void);

#ifdef __cplusplus
}
#endif
#endif
