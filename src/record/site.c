/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Takes call sites. Owns each thread's last one. */
#include "record/site.h"
#include "base/thread/process.h"
#include "record/stack.h"

#include <stdatomic.h>

#define STACK_MOST 48

_Thread_local struct site site_here;

/* The frames from the caller's on, where the stack can be walked. */
static unsigned walk(void *caller, bool deep, void **frames)
{
    unsigned kept = 0;
    void *stack[STACK_MOST];
    int all = deep ? stack_walk(stack, STACK_MOST) : 0, at = 0;
    while (at < all && stack[at] != caller)
        at++;
    for (; at < all && kept < SITE_FRAMES; at++)
        frames[kept++] = stack[at];
    if (!kept)
        frames[kept++] = caller;
    return kept;
}

void site_take(void *caller, bool deep)
{
    /* In a child a lock of the unwinder's may be another thread's. */
    bool runs = atomic_load(&process_state) == PROCESS_RUNS;
    site_here.count = runs ? walk(caller, deep, site_here.frames) : 0;
}
