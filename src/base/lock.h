/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A mutex that cannot fail, over pthreads. */
#ifndef TARN_BASE_LOCK_H
#define TARN_BASE_LOCK_H

#include <pthread.h>

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

#endif
