/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The check of the order in which locks are taken, in builds with TARN_DEBUG_CHECKS: owns what each thread has of locks. A lock that is
 * waited for must come after all that the thread has; so no circle of threads waits for each other. A try is never waited for. */
#include "base/lock.h"

#if defined(TARN_DEBUG_CHECKS) && TARN_DEBUG_CHECKS

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LOCKS_AT_ONCE = 1024 }; /* all heaps of an arena are held for a picture of it */

struct held {
    const void *lock;
    enum lock_rank rank;
    int line;
    const char *file;
};

static _Thread_local struct held held[LOCKS_AT_ONCE];
static _Thread_local unsigned held_count;

static const char *const names[] = {
#define X(name, text) text,
    LOCK_LIST(X)
#undef X
};

static bool has_rank(enum lock_rank rank)
{
    for (unsigned i = 0; i < held_count; i++)
        if (held[i].rank == rank)
            return true;
    return false;
}

/* Whether a lock may be taken under another one. Heaps are held together by who keeps others from being made, and so from doing the same. */
static bool may_follow(enum lock_rank before, enum lock_rank rank)
{
    return before < rank || (before == rank && rank == LOCK_HEAP && has_rank(LOCK_HEAPS));
}

/* Not through the log, which may take locks itself. */
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
    for (unsigned i = 0; i < held_count; i++)
        if (!may_follow(held[i].rank, rank))
            give_up("tarn: %s is taken at %s:%d under %s, taken at %s:%d: against lock_order.h\n", names[rank], file,
                    line, names[held[i].rank], held[i].file, held[i].line);
}

void lock_taken(const void *lock, enum lock_rank rank, const char *file, int line)
{
    if (held_count == LOCKS_AT_ONCE)
        give_up("tarn: %s:%d: more than %d locks at once\n", file, line, LOCKS_AT_ONCE);
    held[held_count++] = (struct held){lock, rank, line, file};
}

void lock_left(const void *lock)
{
    unsigned i = held_count;
    while (i-- > 0)
        if (held[i].lock == lock) {
            held_count--;
            for (; i < held_count; i++)
                held[i] = held[i + 1];
            return;
        }
    give_up("tarn: a lock is left that this thread has not taken\n");
}

#endif
