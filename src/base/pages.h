/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The library's own memory. It comes from mmap, never from malloc, so that tarn can be used below
 * anything. Thread-safe. Every function that allocates can fail, and tests can make it fail
 * (pages_fail()). */
#ifndef TARN_BASE_PAGES_H
#define TARN_BASE_PAGES_H

#include "base/thread/lock.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole pages, zeroed; `size` is rounded up. NULL: no host memory. Unmapping NULL is allowed. */
void *pages_map(size_t size);
/* Asks the system for large pages in a part of such memory. The memory can be used in any case;
 * with large pages a first write faults once per large page. */
void pages_prefer_large(void *start, size_t size);
void pages_unmap(void *memory, size_t size);

/* Small memory of any size, zeroed. The caller passes the size again when it frees it. */
void *pages_alloc(size_t size);
void pages_free(void *memory, size_t size);

/* Objects of one size, zeroed when they are handed out. The initializer OBJECT_POOL() is enough. A
 * pool is never destroyed and keeps freed objects. */
struct object_pool {
    mutex lock;
    size_t size;   /* bytes of one object, set by OBJECT_POOL() */
    size_t zeroed; /* bytes from the start that are zeroed when it is handed out */
    void *free;    /* lock: list of freed objects */
    char *fresh;   /* lock: never used yet, up to fresh_end */
    char *fresh_end;
    uint64_t live;            /* lock: objects handed out */
    uint64_t bytes;           /* lock: of all chunks */
    const char *name;         /* type of its objects: "struct span" */
    struct object_pool *next; /* in the list of pools with a chunk; constant from then on */
    size_t mark;              /* bytes from an object's start to its mark; 0: no marks */
    _Atomic(struct object_chunk *) chunks; /* if it has marks: the newest chunk */
};

#define OBJECT_POOL(type)                                                             \
    {                                                                                 \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = #type, .size = sizeof(type), \
        .zeroed = sizeof(type)                                                        \
    }

/* The same for objects that are read after they were freed. The members from `member` on keep their
 * last contents. `member` must not be the first. */
#define OBJECT_POOL_KEEPING(type, member)                                             \
    {                                                                                 \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = #type, .size = sizeof(type), \
        .zeroed = offsetof(type, member)                                              \
    }

/* The same for objects that callers name by address, with at least 8-byte alignment: each has a
 * mark behind it (object_is_live()). */
#define OBJECT_POOL_NAMED(type)                                                             \
    {                                                                                       \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = #type,                             \
        .size = sizeof(type) + _Alignof(type), .zeroed = sizeof(type), .mark = sizeof(type) \
    }

/* Both: a stale name finds what the object kept. */
#define OBJECT_POOL_NAMED_KEEPING(type, member)                                  \
    {                                                                            \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = #type,                  \
        .size = sizeof(type) + _Alignof(type), .zeroed = offsetof(type, member), \
        .mark = sizeof(type)                                                     \
    }

void *object_alloc(struct object_pool *pool);
void object_free(struct object_pool *pool, void *object);

/* Whether any address is that of an object which the pool has handed out and which was not freed.
 * Only for OBJECT_POOL_NAMED(). Takes no lock, and reads only the pool's memory. After a reuse, the
 * address names the new object. */
bool object_is_live(struct object_pool *pool, const void *address);

/* Bytes mapped for all of this now. */
uint64_t pages_bytes(void);

/* Calls a function for each pool that ever had an object, including those of small memory, with no
 * lock held. It gets the number of live objects and the bytes of the pool's chunks. The rest of
 * pages_bytes() is whole pages. */
void object_pools_each(void (*call)(void *argument, const struct object_pool *pool, uint64_t live,
                                    uint64_t bytes),
                       void *argument);

/* For tests: the `nth` allocation from now fails (1 is the next one); with `forever` all later ones
 * too; 0 clears. Counts all calls of pages_map, pages_alloc and object_alloc. pages_fail_times: so
 * many in a row fail. pages_fail_calls: calls since then; pages_fail_hits: failures. */
void pages_fail(uint64_t nth, bool forever);
void pages_fail_times(uint64_t nth, uint64_t times);
uint64_t pages_fail_calls(void);
/* Whether failures are being counted. Then code that keeps spare objects must allocate new ones. */
bool pages_fail_armed(void);
uint64_t pages_fail_hits(void);

#endif
