/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A mutex that cannot fail, over pthreads; a lock that many share; and a lock for a few dozen instructions. */
#ifndef TARN_BASE_LOCK_H
#define TARN_BASE_LOCK_H

#include "base/cancel.h"

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

/* Waits with the lock let go meanwhile. `until` is of the condition's clock, NULL for ever; ETIMEDOUT after it. */
static inline int condition_wait(pthread_cond_t *condition, mutex *m, const struct timespec *until)
{
    int before = cancel_off();
    int code = until ? pthread_cond_timedwait(condition, m, until) : pthread_cond_wait(condition, m);
    cancel_restore(before);
    return code;
}

/* Many share it, or one has it alone. Who wants it alone comes before those who come later, so as not to wait for ever: all who wait
 * do so behind the gate, which who wants it alone keeps shut meanwhile. (glibc's rwlock could be told to do that, musl's could not.) A
 * thread that has it, shared or alone, must not ask for it again. */
typedef struct {
    mutex gate;
    pthread_rwlock_t lock;
} shared_lock;

static inline void shared_init(shared_lock *s)
{
    mutex_init(&s->gate);
    pthread_rwlock_init(&s->lock, NULL);
}

static inline void shared_lock_shared(shared_lock *s)
{
    mutex_lock(&s->gate);
    pthread_rwlock_rdlock(&s->lock);
    mutex_unlock(&s->gate);
}

static inline void shared_lock_alone(shared_lock *s)
{
    mutex_lock(&s->gate);
    pthread_rwlock_wrlock(&s->lock);
    mutex_unlock(&s->gate);
}

/* These two never wait, so they need not queue either. */
static inline bool shared_try_shared(shared_lock *s)
{
    return pthread_rwlock_tryrdlock(&s->lock) == 0;
}

static inline bool shared_try_alone(shared_lock *s)
{
    return pthread_rwlock_trywrlock(&s->lock) == 0;
}

static inline void shared_unlock(shared_lock *s)
{
    pthread_rwlock_unlock(&s->lock);
}

static inline void shared_finish(shared_lock *s)
{
    pthread_rwlock_destroy(&s->lock);
    mutex_finish(&s->gate);
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
