/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A lock of one word, for tables that every charged call uses. Taking it and giving it back cost
 * one atomic exchange each; the kernel is called only when threads compete. It is a leaf: its
 * holder takes no other lock and makes no call, except mmap() and munmap() to grow a table. Zero
 * means free. */
#ifndef TARN_RUN_LOCK_H
#define TARN_RUN_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct word_lock {
    _Atomic uint32_t state; /* 0: free; 1: taken; 2: taken, and a thread may be waiting */
};

static inline void word_lock_take(struct word_lock *lock)
{
    uint32_t state = 0;
    if (atomic_compare_exchange_strong_explicit(&lock->state, &state, 1, memory_order_acquire,
                                                memory_order_relaxed))
        return;
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire))
        (void)syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL);
}

static inline void word_lock_give(struct word_lock *lock)
{
    if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2)
        (void)syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1);
}

#endif
