/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The waits for quick mutexes. In builds with TARN_DEBUG_CHECKS also the check of the lock order:
 * owns the list of locks that each thread holds. A lock that a thread waits for must come after all
 * that it holds, so no circle of threads waits for each other. A try does not wait. */
#include "base/thread/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOKS 100 /* tries before a sleep, which takes longer than most locks are held */

/* Preserves errno. */
static void futex(quick_mutex *m, int what, unsigned value)
{
    int before = errno;
    (void)syscall(SYS_futex, &m->state, what, value, NULL, NULL, 0);
    errno = before;
}

void quick_mutex_wait(quick_mutex *m)
{
    for (int looks = 0; looks < LOOKS; looks++) {
        unsigned state = atomic_load_explicit(&m->state, memory_order_relaxed);
        if (state == QUICK_FREE &&
            atomic_compare_exchange_weak_explicit(&m->state, &state, QUICK_HELD,
                                                  memory_order_acquire, memory_order_relaxed))
            return;
        spin_pause();
    }
    while (atomic_exchange_explicit(&m->state, QUICK_AWAITED, memory_order_acquire) != QUICK_FREE)
        futex(m, FUTEX_WAIT_PRIVATE, QUICK_AWAITED);
}

void quick_mutex_wake(quick_mutex *m)
{
    futex(m, FUTEX_WAKE_PRIVATE, 1);
}

#if defined(TARN_DEBUG_CHECKS) && TARN_DEBUG_CHECKS

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LOCKS_AT_ONCE = 1024 }; /* a picture holds all heaps of an arena */

struct held {
    const void *lock;
    enum lock_rank rank;
    int line;
    const char *file;
};

/* Not in the thread's static storage, of which a library that is opened at run time gets little. */
struct locks {
    unsigned count;
    struct held held[LOCKS_AT_ONCE];
};

/* NULL before the first lock, and again at the thread's end. */
static _Thread_local struct locks *mine;
static pthread_key_t at_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const names[] = {
#define X(rank, name, protects) name,
    LOCK_LIST(X)
#undef X
};

/* If the end of the thread takes locks after this, a new list is created, and this is called
 * again. */
static void forget(void *locks)
{
    mine = NULL;
    munmap(locks, sizeof(struct locks));
}

static void prepare(void)
{
    (void)pthread_key_create(&at_end, forget);
}

static void make_mine(void)
{
    void *memory = mmap(NULL, sizeof(struct locks), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    pthread_once(&once, prepare);
    (void)pthread_setspecific(at_end, memory);
    mine = memory;
}

static bool has_rank(enum lock_rank rank)
{
    for (unsigned i = 0; i < mine->count; i++)
        if (mine->held[i].rank == rank)
            return true;
    return false;
}

/* Whether a lock of `rank` may be taken while one of rank `before` is held: if its rank is higher.
 * A thread that holds heaps_lock may also take the locks of several heaps, in any order. Only one
 * thread can hold it, so no two threads each wait for a heap that the other has. */
static bool may_follow(enum lock_rank before, enum lock_rank rank)
{
    return before < rank || (before == rank && rank == LOCK_HEAP && has_rank(LOCK_HEAPS));
}

/* Does not use the log, which takes locks. */
static __attribute__((format(printf, 1, 2), noreturn)) void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vdprintf(STDERR_FILENO, format, arguments);
    va_end(arguments);
    abort();
}

void lock_before(enum lock_rank rank, const char *file, int line)
{
    for (unsigned i = 0; mine && i < mine->count; i++)
        if (!may_follow(mine->held[i].rank, rank))
            give_up("tarn: %s is taken at %s:%d under %s, taken at %s:%d: against lock_order.h\n",
                    names[rank], file, line, names[mine->held[i].rank], mine->held[i].file,
                    mine->held[i].line);
}

void lock_taken(const void *lock, enum lock_rank rank, const char *file, int line)
{
    if (!mine)
        make_mine();
    if (mine->count == LOCKS_AT_ONCE)
        give_up("tarn: %s:%d: more than %d locks at once\n", file, line, LOCKS_AT_ONCE);
    mine->held[mine->count++] = (struct held){lock, rank, line, file};
}

void lock_left(const void *lock)
{
    for (unsigned i = mine ? mine->count : 0; i-- > 0;)
        if (mine->held[i].lock == lock) {
            mine->count--;
            for (; i < mine->count; i++)
                mine->held[i] = mine->held[i + 1];
            return;
        }
    give_up("tarn: a lock is left that this thread has not taken\n");
}

#endif
