/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writing without signals. Owns nothing. */
#include "base/thread/quiet.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

static const int raised[] = {SIGPIPE, SIGXFSZ};
enum { RAISED = sizeof raised / sizeof *raised };

void quiet_begin(struct quiet *quiet)
{
    sigset_t ours;
    sigemptyset(&ours);
    for (int i = 0; i < RAISED; i++)
        sigaddset(&ours, raised[i]);
    sigemptyset(&quiet->pending);
    (void)sigpending(&quiet->pending);
    quiet->blocked = pthread_sigmask(SIG_BLOCK, &ours, &quiet->before) == 0;
}

void quiet_end(const struct quiet *quiet)
{
    static const struct timespec at_once = {0};
    int error = errno;
    sigset_t now, ours;
    if (!quiet->blocked)
        return;
    sigemptyset(&now);
    sigemptyset(&ours);
    (void)sigpending(&now);
    bool any = false;
    for (int i = 0; i < RAISED; i++)
        if (sigismember(&now, raised[i]) && !sigismember(&quiet->pending, raised[i]))
            any = sigaddset(&ours, raised[i]) == 0;
    while (any && sigtimedwait(&ours, NULL, &at_once) > 0)
        ; /* both signals may have come */
    (void)pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
    errno = error;
}
