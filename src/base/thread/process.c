/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the state of the process. A child of fork() must not use locks, queues or the driver,
 * because their threads do not exist there. So the child's copy of the state says so before fork()
 * returns in the child. */
#include "base/thread/process.h"
#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <tarn/tarn.h>

atomic_int process_state = PROCESS_RUNS;
atomic_uint_fast64_t process_changes = 1;

static atomic_uint uses; /* first uses that have succeeded or are in progress */

static void in_child(void)
{
    if (!atomic_load(&uses))
        return;
    atomic_store(&process_state, PROCESS_IS_FORKED);
    process_changed();
}

/* Runs when the library is loaded. At the first use it would be too late: a child could be forked
 * in the middle of that. */
__attribute__((constructor)) static void watch_fork(void)
{
    /* Fails only if there is no memory for the list of handlers. Then a child does not learn that
     * it is one. */
    (void)pthread_atfork(NULL, NULL, in_child);
}

void process_use_begin(void)
{
    atomic_fetch_add(&uses, 1);
}

void process_use_failed(void)
{
    atomic_fetch_sub(&uses, 1);
}

int process_begin_shutdown(void)
{
    int running = PROCESS_RUNS;
    bool begun = atomic_compare_exchange_strong(&process_state, &running, PROCESS_IS_SHUT_DOWN);
    process_changed();
    return begun;
}

tarn_status process_refuse(void)
{
    if (atomic_load(&process_state) == PROCESS_IS_FORKED)
        return failed(
            TARN_ERROR_FORKED,
            "this process was forked after tarn was used in its parent; a device cannot be "
            "shared over fork(): start workers before the first use, or use exec");
    return failed(TARN_ERROR_SHUTDOWN,
                  "tarn_shutdown() was called; nothing of tarn can be used after it");
}

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const char *tarn_version(void)
{
    return TEXT(TARN_VERSION_MAJOR) "." TEXT(TARN_VERSION_MINOR) "." TEXT(TARN_VERSION_PATCH);
}
