/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The program's code that runs within a call of tarn: callbacks, and the functions of vendors'
 * libraries. Every call of such code stands between callback_begin() and callback_end(), in a small
 * function of its own, marked CALLS_BACK.
 *
 * Such code must return, but a vendor's library may throw a C++ exception, and a thread may end
 * itself. The unwinder passes tarn's frames without running anything of theirs, because C has no
 * destructors. So the frame of the marked function names a personality routine, which the unwinder
 * calls on its way: callback_left(), which undoes what the call around the callback has begun
 * (struct undo). The routine needs no landing pad, and so no function of the unwinder's, whose
 * library tarn is not linked with. */
#ifndef TARN_BASE_CALLBACK_H
#define TARN_BASE_CALLBACK_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* What a call must undo if a callback inside it does not return. It is on the call's stack, between
 * undo_push() and undo_pop(). The beginning of a callback is in the same list. Entries behind it
 * belong to calls that the callback makes. */
struct undo {
    struct undo *outer;
    void (*run)(struct undo *undo); /* NULL: the beginning of a callback */
};

/* A callback that runs, in the frame of the function that calls it. */
struct callback {
    struct undo undo;
    unsigned calls; /* `callback_calls` when it began */
    int attempts;   /* `error_attempts` then */
};

extern _Thread_local struct undo *undos_here; /* the last one that was pushed */
/* The number of calls of this thread for which a shutdown waits (call_begin() in handle/handle.h);
 * NULL: the thread has made none. */
extern _Thread_local atomic_uint *callback_calls;

static inline void undo_push(struct undo *undo, void (*run)(struct undo *undo))
{
    *undo = (struct undo){undos_here, run};
    undos_here = undo;
}

static inline void undo_pop(const struct undo *undo)
{
    undos_here = undo->outer;
}

/* For a function that makes one call of a callback, and no other call that could call back. */
#define CALLS_BACK __attribute__((noinline))

static inline __attribute__((always_inline)) void callback_begin(struct callback *callback)
{
#ifdef __GCC_HAVE_DWARF2_CFI_ASM
    __asm__ volatile(".cfi_personality 0x1b, callback_left"); /* relative to its place, 4 bytes */
#endif
    callback->calls =
        callback_calls ? atomic_load_explicit(callback_calls, memory_order_relaxed) : 0;
    callback->attempts = error_attempts;
    undo_push(&callback->undo, NULL);
}

static inline __attribute__((always_inline)) void callback_end(const struct callback *callback)
{
    undo_pop(&callback->undo);
}

/* Whether an entry pushed with `run` is in this thread's list. With NULL: whether a callback
 * runs. */
static inline bool undo_is_here(void (*run)(struct undo *undo))
{
    const struct undo *at = undos_here;
    while (at && at->run != run)
        at = at->outer;
    return at;
}

/* The thread ends inside callbacks: undoes what they left, unless an unwinder has done that. */
void callbacks_of_thread_end(void);

#endif
