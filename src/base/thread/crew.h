/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that copy host memory while their owner goes on with other things. A crew has one owner, who starts it, hands
 * out copies, waits for them, and ends it; nothing of it outlives the end. */
#ifndef TARN_BASE_CREW_H
#define TARN_BASE_CREW_H

#include "base/thread/lock.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define CREW_MOST 8 /* threads: more of them copy no faster than one device's link */

/* One copy, which the owner keeps until it is done. */
struct crew_copy {
    void *to;
    const void *from;
    size_t size;
    struct crew_copy *next; /* crew lock: handed out after it, and not begun */
    bool under_way;         /* crew lock: handed out, and not done */
};

struct crew {
    mutex crew_lock;
    pthread_cond_t handed_out, done;
    struct crew_copy *first, *last; /* crew lock: not begun, the oldest first */
    bool ends;                      /* crew lock */
    unsigned count;
    pthread_t threads[CREW_MOST];
};

/* Starts at most `threads`, and no more than the process may run on processors. False where there is none: nothing is
 * to be ended then. */
bool crew_start(struct crew *crew, unsigned threads);
/* Waits for all that was handed out, and for the threads' ends. */
void crew_end(struct crew *crew);

/* Hands out a copy, which is not in progress. */
void crew_give(struct crew *crew, struct crew_copy *copy);
/* Waits until it is done; at once where it was never handed out. */
void crew_wait(struct crew *crew, struct crew_copy *copy);

#endif
