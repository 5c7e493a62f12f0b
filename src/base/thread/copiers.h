/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Copiers: threads that copy host memory while their owner goes on with other things. One owner
 * starts them, hands out copies, waits for these, and ends them. Nothing of them outlives the
 * end. */
#ifndef TARN_BASE_COPIERS_H
#define TARN_BASE_COPIERS_H

#include "base/thread/lock.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define COPIERS_MOST 8 /* threads: more of them copy no faster than one device's link */

/* One copy, which the owner keeps until it is done. */
struct copiers_copy {
    void *to;
    const void *from;
    size_t size;
    struct copiers_copy *next; /* copiers_lock: handed out after it, and not begun */
    bool under_way;            /* copiers_lock: handed out, and not done */
};

struct copiers {
    mutex copiers_lock;
    pthread_cond_t handed_out, done;
    struct copiers_copy *first, *last; /* copiers_lock: not begun, the oldest first */
    bool ends;                         /* copiers_lock */
    unsigned count;
    pthread_t threads[COPIERS_MOST];
};

/* Starts at most `threads`, and no more than the process may run on processors. False where there
 * is none: nothing is to be ended then. */
bool copiers_start(struct copiers *copiers, unsigned threads);
/* Waits for all that was handed out, and for the threads' ends. */
void copiers_end(struct copiers *copiers);

/* Hands out a copy, which is not in progress. */
void copiers_give(struct copiers *copiers, struct copiers_copy *copy);
/* Waits until it is done; at once where it was never handed out. */
void copiers_wait(struct copiers *copiers, struct copiers_copy *copy);

#endif
