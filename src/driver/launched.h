/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The executable graph (`exec`) of each graph that was launched: a list that a vendor's driver
 * keeps beside the vendor's graphs. Both are the vendor's pointers. A graph is in the list at most
 * once. Thread-safe. */
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

/* The executable of a graph; NULL: it was not launched. */
void *launched_find(struct launched_list *list, const void *graph);

/* Enters the executable of a graph. Returns the one in the list, which another thread may have
 * entered first; NULL: no host memory. */
void *launched_enter(struct launched_list *list, void *graph, void *exec);

/* Removes a graph and returns its executable; NULL: it is not in the list. With `graph` NULL
 * removes any. */
void *launched_forget(struct launched_list *list, const void *graph);

#endif
