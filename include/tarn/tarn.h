/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn: memory pools and library handles that follow the thread, the device and the stream.
 *
 * Read core.h first. This header includes all others except debug.h, host.h, live.h, metrics.h and
 * those of vendors' libraries.
 *
 * These rules hold for every function; a function's own comment repeats only what differs.
 * docs/process-life.md gives the reasons.
 *   threads        Every function is thread-safe. One thread must not use an object while another
 *                  thread releases it.
 *   results        A function writes its results only if it succeeds. Where it also writes one on
 *                  failure, its comment says so.
 *   structures     A structure that begins with `size` may grow in later versions. The caller sets
 *                  `size` to its sizeof before the call, also where tarn fills the structure in,
 *                  and unused fields to 0. The size of any earlier version is known.
 *   shutdown       After tarn_shutdown() (device.h) tarn cannot be used again: calls return
 *                  TARN_ERROR_SHUTDOWN.
 *   fork           In the child of a process that used tarn, every call returns TARN_ERROR_FORKED,
 *                  takes no lock and makes no driver call. Use exec(), or fork before the first
 *                  use. tarn_version() and tarn/status.h keep working. tarn cannot detect a child
 *                  of vfork(), _Fork() or a bare clone(): such a child must not call tarn.
 *   exec           The new program inherits no file, no memory and no thread.
 *   signals        A signal handler may interrupt any call. No call fails or ends early because of
 *                  it. A handler may call only tarn_version(), tarn_status_name() and
 *                  tarn_status_text(). It must not leave a running call by longjmp().
 *   cancellation   No call is a cancellation point, and neither are the callbacks that it makes: a
 *                  thread is cancelled before or after the call. Asynchronous cancellation must be
 *                  off during calls, as POSIX requires for nearly all functions. A callback must
 *                  return: it must not leave by longjmp(), pthread_exit() or an exception. Only the
 *                  functions of a library (handle.h) may throw an exception or end the thread.
 *   errno          A call that succeeds leaves errno as it was; one that fails may change it. Every
 *                  call leaves the signal mask and the rounding mode as they were.
 *   thread exit    tarn releases what the thread held and makes no driver call for it. The thread's
 *                  destructors (pthread_key_create(), thread_local) may use tarn. They must not ask
 *                  for handles in the last of PTHREAD_DESTRUCTOR_ITERATIONS: no other thread would
 *                  get such a handle again.
 *   process exit   Threads may be inside any call while the process exits. Exit handlers and static
 *                  destructors may use tarn. Once the vendor's driver has shut down, calls that
 *                  need it return TARN_ERROR_SHUTDOWN; blocks can still be freed.
 *   dlclose        It has no effect: the library stays loaded until the process ends.
 *   copies         Each copy of the library in a process is independent. A pointer from another
 *                  copy is TARN_ERROR_INVALID_POINTER. */
#ifndef TARN_TARN_H
#define TARN_TARN_H

/* The version of these headers. */
/* clang-format off */
#define TARN_VERSION_MAJOR 0
#define TARN_VERSION_MINOR 2
#define TARN_VERSION_PATCH 0
/* clang-format on */

#include <tarn/core.h>

#include <tarn/config.h>
#include <tarn/device.h>
#include <tarn/graph.h>
#include <tarn/handle.h>
#include <tarn/keep.h>
#include <tarn/memory.h>
#include <tarn/observe.h>
#include <tarn/pinned.h>
#include <tarn/pool.h>
#include <tarn/range.h>
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

/* Returns the version of the loaded library, such as "0.2.0". It may differ from the headers'
 * version. The string is constant. */
TARN_API const char *tarn_version(void);

#ifdef __cplusplus
}
#endif
#endif
