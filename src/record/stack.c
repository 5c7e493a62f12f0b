/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Call stacks, as return addresses. Owns the choice of the unwinder: libunwind's unw_backtrace(),
 * which remembers functions, if that library is installed; otherwise libc's backtrace(), if it has
 * one (glibc does, musl does not). Under the thread sanitizer always libc's: libunwind takes a lock
 * at the end of a thread, when the sanitizer has forgotten the thread. */
#include "record/stack.h"
#include "base/thread/cancel.h"
#include "record/trace.h"

#include <dlfcn.h>
#include <string.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#else
#define backtrace NULL
#endif

#define MOST_SKIPPED 8

/* Set once. A thread that records before that gets no stack. */
static int (*_Atomic unwind)(void **frames, int room);
static atomic_bool looked; /* the search for an unwinder is over, with or without one */

/* Several threads may search at the same time, and find the same. No thread waits for another,
 * which may be waiting for the loader. */
static void find_unwinder(void)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    bool sanitized = dlsym(RTLD_DEFAULT, "__tsan_init");
    void *library = sanitized ? NULL : dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL),
         *found = NULL;
    if (library)
        found = dlsym(library, "unw_backtrace");
    int (*walks)(void **, int) = backtrace;
    if (found)
        memcpy(&walks, &found, sizeof walks);
    void *frames[2];
    if (walks) /* the first stack may load libraries and allocate, so it is taken here */
        (void)walks(frames, 2);
    atomic_store(&unwind, walks);
    atomic_store(&looked, true);
}

void trace_stacks_prepare(void)
{
    if (!atomic_load(&looked))
        find_unwinder();
}

bool stack_can_be_walked(void)
{
    trace_stacks_prepare();
    return atomic_load(&unwind);
}

int stack_walk(void **frames, int room)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    return stack_can_be_walked() ? atomic_load(&unwind)(frames, room) : 0;
}

uint32_t trace_stack_here(unsigned skip)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    void *frames[TRACE_FRAMES + MOST_SKIPPED];
    struct trace_stack stack = {{0}};
    int (*walks)(void **, int) = atomic_load_explicit(&unwind, memory_order_acquire);
    int count = walks ? walks(frames, TRACE_FRAMES + MOST_SKIPPED) : 0;
    for (int i = (int)skip; i < count && i - (int)skip < TRACE_FRAMES; i++)
        stack.frames[i - (int)skip] = (uint64_t)(uintptr_t)frames[i];
    return count > (int)skip ? intern(&trace_stacks, &stack) : 0;
}
