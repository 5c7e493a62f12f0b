/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* pthread_cancel(): no call of tarn is a cancellation point, since a thread that ended inside one would take along what it has locked
 * or detached. Whatever waits, enters the system where that may wait, or runs somebody else's code stands between these two. */
#ifndef TARN_BASE_CANCEL_H
#define TARN_BASE_CANCEL_H

#include <pthread.h>

/* Gives what to restore. */
static inline int cancel_off(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void cancel_restore(int before)
{
    (void)pthread_setcancelstate(before, &before);
}

/* For functions with many ways out: `int cancelled CANCEL_RESTORED = cancel_off();` */
static inline void cancel_restore_variable(const int *before)
{
    cancel_restore(*before);
}
#define CANCEL_RESTORED __attribute__((cleanup(cancel_restore_variable), unused))

#endif
