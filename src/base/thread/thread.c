/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Starts threads. Owns nothing. */
#include "base/thread/thread.h"

#include <signal.h>

bool thread_start(pthread_t *thread, void *(*function)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(thread, NULL, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code == 0;
}
