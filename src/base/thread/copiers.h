/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Copiers: threads that copy host memory while their owner does something else. The owner starts
 * them, hands out copies, waits for the copies, and ends the threads. Nothing remains after
 * that. */
#ifndef TARN_BASE_COPIERS_H
#define TARN_BASE_COPIERS_H

#include "base/thread/lock.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define COPIERS_MOST 8 /* more threads copy no faster than one device's link */

/* One copy. The owner keeps it until it is done. */
struct copiers_copy {
    void *to;
    const void *from;
    size_t size;
    struct copiers_copy *next; /* copiers_lock: the next copy that waits */
    bool under_way;            /* copiers_lock: handed out and not done */
};

struct copiers {
    mutex copiers_lock;
    pthread_cond_t handed_out, done;
    struct copiers_copy *first, *last; /* copiers_lock: waiting copies, oldest first */
    bool ends;                         /* copiers_lock */
    unsigned count;
    pthread_t threads[COPIERS_MOST];
};

/* Starts at most `threads` threads, and no more than the process has processors. False: none was
 * started, and there is nothing to end. */
bool copiers_start(struct copiers *copiers, unsigned threads);
/* Waits for all copies, and ends the threads. */
void copiers_end(struct copiers *copiers);

/* Hands out a copy that is not in progress. */
void copiers_give(struct copiers *copiers, struct copiers_copy *copy);
/* Waits until a copy is done. Returns at once if it was never handed out. */
void copiers_wait(struct copiers *copiers, struct copiers_copy *copy);

#endif
