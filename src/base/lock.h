/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A mutex that cannot fail, over pthreads; and a lock for a few dozen instructions. */
#ifndef TARN_BASE_LOCK_H
#define TARN_BASE_LOCK_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef pthread_mutex_t mutex;
#define MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER

static inline void mutex_init(mutex *m)
{
    pthread_mutex_init(m, NULL);
}

static inline void mutex_lock(mutex *m)
{
    pthread_mutex_lock(m);
}

static inline void mutex_unlock(mutex *m)
{
    pthread_mutex_unlock(m);
}

static inline void mutex_finish(mutex *m)
{
    pthread_mutex_destroy(m);
}

/* Costs half of a mutex, since its unlock is a plain store, which is why nobody can sleep at it: it is held for a few dozen
 * instructions, never over a call that may take a lock or enter the system. Zeroed is unlocked. */
typedef struct {
    atomic_bool held;
} spinlock;

static inline void spin_lock(spinlock *s)
{
    for (unsigned tries = 1; atomic_exchange_explicit(&s->held, true, memory_order_acquire); tries++)
        while (atomic_load_explicit(&s->held, memory_order_relaxed))
            if (tries++ % 64 == 0)
                sched_yield(); /* whoever holds it may have lost its processor */
}

static inline void spin_unlock(spinlock *s)
{
    atomic_store_explicit(&s->held, false, memory_order_release);
}

#endif
