/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A write may raise a signal that ends the caller's program: SIGPIPE if nobody reads, SIGXFSZ if a
 * file may not grow (ulimit -f). Both go to the writing thread, so they are blocked for it between
 * these two functions; errno reports the failure. */
#ifndef TARN_BASE_QUIET_H
#define TARN_BASE_QUIET_H

#include <signal.h>
#include <stdbool.h>

struct quiet {
    sigset_t before, pending; /* of the thread: what was blocked, and what waited already */
    bool blocked;
};

void quiet_begin(struct quiet *quiet);
/* Leaves the thread's signals, and errno, as they were. */
void quiet_end(const struct quiet *quiet);

#endif
