/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writing without signals. A write may raise a signal that ends the program: SIGPIPE if no process
 * reads, SIGXFSZ if a file may not grow (ulimit -f). The writing thread gets both, so they are
 * blocked for it between these two functions. errno reports the failure. */
#ifndef TARN_BASE_QUIET_H
#define TARN_BASE_QUIET_H

#include <signal.h>
#include <stdbool.h>

struct quiet {
    /* Of the thread: signals that were blocked, and signals that waited. */
    sigset_t before, pending;
    bool blocked;
};

void quiet_begin(struct quiet *quiet);
/* Restores the thread's signals. Preserves errno. */
void quiet_end(const struct quiet *quiet);

#endif
