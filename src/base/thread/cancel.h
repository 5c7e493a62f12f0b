/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* pthread_cancel(). No call of tarn is a cancellation point, since a thread that ended inside one
 * would leave locks held and memory detached. Code that waits, makes a system call that may wait,
 * or calls code outside tarn is between these two functions. They also preserve errno for the
 * caller. */
#ifndef TARN_BASE_CANCEL_H
#define TARN_BASE_CANCEL_H

#include <errno.h>
#include <pthread.h>

/* What to restore. */
struct cancel {
    int before; /* whether the thread could be cancelled */
    int error;  /* errno */
};

static inline struct cancel cancel_off(void)
{
    struct cancel cancel = {.before = PTHREAD_CANCEL_ENABLE, .error = errno};
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel.before);
    return cancel;
}

static inline void cancel_restore(struct cancel cancel)
{
    (void)pthread_setcancelstate(cancel.before, &cancel.before);
    errno = cancel.error;
}

/* For functions with several returns: `struct cancel cancel CANCEL_RESTORED = cancel_off();` */
static inline void cancel_restore_variable(const struct cancel *cancel)
{
    cancel_restore(*cancel);
}
#define CANCEL_RESTORED __attribute__((cleanup(cancel_restore_variable), unused))

#endif
