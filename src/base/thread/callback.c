/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles callbacks that do not return. Owns each thread's list of what to undo. */
#include "base/thread/callback.h"

#include <unwind.h>

_Thread_local struct undo *undos_here;
_Thread_local atomic_uint *callback_calls;

static const struct callback *innermost(void)
{
    const struct undo *at = undos_here;
    while (at && at->run)
        at = at->outer;
    return (const struct callback *)at; /* `at` is its first field */
}

/* Ends the innermost callback, and undoes the call of tarn that made it. */
static void leave(void)
{
    undos_here = innermost()->undo.outer;
    while (undos_here && undos_here->run) {
        struct undo *undo = undos_here;
        undos_here = undo->outer;
        undo->run(undo);
    }
    const struct callback *outer = innermost();
    error_attempts = outer ? outer->attempts : 0;
    if (callback_calls)
        atomic_store_explicit(callback_calls, outer ? outer->calls : 0, memory_order_release);
}

/* The personality routine of functions that call back (Itanium C++ ABI: Exception Handling, 2.5.2).
 * It catches nothing, so it does nothing in the first phase. An exception that no code catches has
 * no second phase: the process ends. */
__attribute__((used, visibility("hidden"))) _Unwind_Reason_Code
callback_left(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
              struct _Unwind_Exception *exception, struct _Unwind_Context *context)
{
    (void)class, (void)exception, (void)context;
    if (version == 1 && (actions & _UA_CLEANUP_PHASE) && innermost())
        leave();
    return _URC_CONTINUE_UNWIND;
}

/* With musl, pthread_exit() does not unwind: the frames still exist. */
void callbacks_of_thread_end(void)
{
#ifndef __GLIBC__
    while (innermost())
        leave();
#endif
}
