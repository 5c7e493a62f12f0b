/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What runs each graph that was launched: the list that a vendor's driver keeps beside the vendor's
 * graphs. Both are the vendor's pointers; a graph is in the list once. Thread-safe. */
#ifndef TARN_DRIVER_LAUNCHED_H
#define TARN_DRIVER_LAUNCHED_H

#include "base/thread/lock.h"

struct launched;

struct launched_list {
    mutex lock;
    struct launched *first; /* lock */
};

#define LAUNCHED_LIST                            \
    {                                            \
        .lock = MUTEX_INITIALIZER(LOCK_LAUNCHED) \
    }

/* What runs a graph; NULL when it was not launched. */
void *launched_find(struct launched_list *list, const void *graph);

/* Enters what runs a graph. Gives what is in the list in the end, which another thread may have
 * been quicker to make; NULL when the host is out of memory. */
void *launched_enter(struct launched_list *list, void *graph, void *exec);

/* Takes a graph out of the list and gives what ran it; NULL when it was not there. With a NULL
 * graph: any. */
void *launched_forget(struct launched_list *list, const void *graph);

#endif
