/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the background thread of pinned memory. While blocks wait for work, it checks every 100 us
 * what has ended; otherwise it sleeps. Requests do the same when memory is short. With the thread,
 * blocks are free sooner, and those above max_cached_size go back to the driver sooner. */
#include "base/status.h"
#include "base/thread/thread.h"
#include "memory/pinned/heap.h"

#include <time.h>

#define LOOK_NS 100000

static bool runs; /* changed by one caller at a time */
static bool ends; /* under pinned.lock */
static pthread_t watcher;

static void sleep_relocking(void)
{
    struct timespec until;
    if (!pinned.queues) {
        (void)condition_wait(&pinned.work, &pinned.lock, NULL);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    (void)condition_wait(&pinned.work, &pinned.lock, &until);
}

static void *watch(void *argument)
{
    mutex_lock(&pinned.lock);
    while (!ends) {
        sleep_relocking();
        pinned_collect_locked();
        if (!pinned.leaving)
            continue;
        mutex_unlock(&pinned.lock);
        (void)pinned_settle(NULL);
        mutex_lock(&pinned.lock);
    }
    mutex_unlock(&pinned.lock);
    return argument;
}

tarn_status pinned_watch(bool on)
{
    if (on == runs)
        return TARN_OK;
    if (on && !thread_start(&watcher, watch, NULL))
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "the background thread of pinned memory cannot be created");
    if (!on) {
        mutex_lock(&pinned.lock);
        ends = true;
        pthread_cond_signal(&pinned.work);
        mutex_unlock(&pinned.lock);
        pthread_join(watcher, NULL);
        ends = false;
    }
    runs = on;
    return TARN_OK;
}
