/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Whether something has a cancellation point in it. */
#ifndef TESTS_LIFE_CANCEL_TEST_H
#define TESTS_LIFE_CANCEL_TEST_H

#include "support/every_call.h"

#include <pthread.h>
#include <stdio.h>

static void (*to_do)(void);

/* Does it with a request to be cancelled that is not answered yet: the first cancellation point
 * ends the thread. */
static inline void *do_it(void *argument)
{
    CHECK(pthread_cancel(pthread_self()) == 0);
    to_do();
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    return argument;
}

/* Demands that it has none. */
static inline void outlives(const char *name, void (*function)(void))
{
    pthread_t thread;
    void *result = NULL;
    to_do = function;
    CHECK(pthread_create(&thread, NULL, do_it, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    if (result == PTHREAD_CANCELED)
        fprintf(stderr, "cancelled in %s, %s()\n", name, every_call_now);
    CHECK(result != PTHREAD_CANCELED);
}

#endif
