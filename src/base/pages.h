/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The library's own memory. It comes from mmap, never from malloc, so that tarn can sit under
 * anything. Thread-safe. Every function that allocates can fail and can be made to fail:
 * pages_fail(). */
#ifndef TARN_BASE_PAGES_H
#define TARN_BASE_PAGES_H

#include "base/thread/lock.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole pages, zeroed; `size` is rounded up. NULL when the host has none. Unmapping NULL is
 * fine. */
void *pages_map(size_t size);
/* Asks the system for large pages in a part of such memory, where it has them. The memory can be
 * used either way; a first write then faults once per large page. */
void pages_prefer_large(void *start, size_t size);
void pages_unmap(void *memory, size_t size);

/* Small memory of any size, zeroed, with the size given back at the free: lists, tables, names. */
void *pages_alloc(size_t size);
void pages_free(void *memory, size_t size);

/* Objects of one size, zeroed when handed out. An object pool needs no initialiser but its size and
 * is never destroyed; what is given back stays with it. */
struct object_pool {
    mutex lock;
    size_t size;   /* bytes of one object, set by OBJECT_POOL() */
    size_t zeroed; /* of these, from its start, are zeroed when it is handed out */
    void *free;    /* lock: a chain of given-back objects */
    char *fresh;   /* lock: never used yet, up to fresh_end */
    char *fresh_end;
    uint64_t live;            /* lock: objects handed out */
    uint64_t bytes;           /* lock: of all chunks */
    const char *name;         /* of its objects: "struct span" */
    struct object_pool *next; /* constant once there is a chunk: in the list of those that have
                                 one */
    size_t mark;              /* bytes from an object's start to the mark of its being handed out;
                                 0: it has none */
    _Atomic(struct object_chunk *) chunks; /* the newest, where there are marks */
};

#define OBJECT_POOL(type)                                                             \
    {                                                                                 \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = #type, .size = sizeof(type), \
        .zeroed = sizeof(type)                                                        \
    }

/* The same for objects that are looked at after they were given back: from `member` on they keep
 * what they last held. It must not be the first one. */
#define OBJECT_POOL_KEEPING(type, member)                                             \
    {                                                                                 \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = #type, .size = sizeof(type), \
        .zeroed = offsetof(type, member)                                              \
    }

/* The same for objects that callers of tarn name by their addresses, of a type that is aligned to 8
 * or more: each has a mark behind it. */
#define OBJECT_POOL_NAMED(type)                                                             \
    {                                                                                       \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = #type,                             \
        .size = sizeof(type) + _Alignof(type), .zeroed = sizeof(type), .mark = sizeof(type) \
    }

/* Both: names that may be stale are looked up in what an object keeps. */
#define OBJECT_POOL_NAMED_KEEPING(type, member)                                  \
    {                                                                            \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = #type,                  \
        .size = sizeof(type) + _Alignof(type), .zeroed = offsetof(type, member), \
        .mark = sizeof(type)                                                     \
    }

void *object_alloc(struct object_pool *pool);
void object_free(struct object_pool *pool, void *object);

/* Whether an address, any at all, is that of an object that the pool has handed out and not got
 * back. Only for OBJECT_POOL_NAMED(). Takes no lock, and reads nothing but the pool's own memory.
 * An address that was handed out anew is another object's. */
bool object_is_live(struct object_pool *pool, const void *address);

/* Bytes mapped for all of the above, now. */
uint64_t pages_bytes(void);

/* Calls a function, with no lock held, for each pool that has had an object, those of small memory
 * among them: how many of its objects are handed out, and the bytes of its chunks. The rest of
 * pages_bytes() is whole pages. */
void object_pools_each(void (*call)(void *argument, const struct object_pool *pool, uint64_t live,
                                    uint64_t bytes),
                       void *argument);

/* For tests: the `nth` allocation from now fails (1 is the next), and with `forever` all after it;
 * 0 clears. Counts calls of pages_map, pages_alloc and object_alloc by anyone. pages_fail_calls is
 * how many there were since it was set, pages_fail_hits how many failed. */
void pages_fail(uint64_t nth, bool forever);
uint64_t pages_fail_calls(void);
/* Whether failures are being counted: then whoever keeps objects at hand must ask for each anew. */
bool pages_fail_armed(void);
uint64_t pages_fail_hits(void);

#endif
