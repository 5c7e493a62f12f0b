/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Private pools, and the way of a request to one.
 *
 * A pool is a store of the arena with a count. At count 0 it is left behind: nobody can allocate from it, its heaps' idle memory
 * serves the default pool, and when nothing is left in them the object goes (pools_collect()). The count may fall to 0 in a driver's
 * thread, where nothing else may be done: the rest happens at the next call that looks. */
#ifndef TARN_MEMORY_POOL_H
#define TARN_MEMORY_POOL_H

#include "memory/heap/heap.h"
#include "memory/pool/contents.h"

#include <tarn/pool.h>

struct pool {
    struct store store; /* first: a private pool's store is its pool */
    struct counters counters;
    atomic_uint count;          /* users, scopes, captures, graphs */
    atomic_uint users;          /* of these, what callers may release */
    atomic_uint held;           /* ... and what they may unhold */
    atomic_uint visits;         /* requests on their way: they keep the object, not the pool */
    bool use_on_oom;            /* arena lock */
    atomic_int state;           /* tarn_pool_state; suspend.c */
    struct contents contents;   /* of the thread that changes the state */
    bool prepared, keeps;       /* likewise: a sleep has begun, and whether with its contents */
    struct taken *taken;        /* likewise: memory out of its addresses, in a sleep under way */
    atomic_uint tag;            /* tarn_tag, by which a sleep chooses */
    struct pinned_pool *pinned; /* of its captures; scopes_lock. NULL until one asked */
};

/* NULL for each of the arena's own: those of the default pool, and what is imported. */
static inline struct pool *pool_of_store(struct store *store)
{
    return store->of_pool ? (struct pool *)store : NULL;
}

/* What the caller of a public call means by a pool: a private one, or its device's default pool, which is the arena's own store and
 * counts nothing. */
static inline struct store *store_of_public(tarn_pool *pool)
{
    return (struct store *)pool;
}

static inline struct pool *pool_of_public(tarn_pool *pool)
{
    return (struct pool *)pool;
}

/* One count more. False at 0: the pool is gone. */
bool pool_retain(struct pool *pool);
/* One count less, from any thread, also a driver's thread: makes no call and takes no lock. */
void pool_let_go(struct pool *pool);
/* One count less, and what follows from it where that was the last. */
void pool_release(struct pool *pool);
/* A capture or graph uses the addresses: counts and holds; and ends that, from any thread. */
bool pool_hold(struct pool *pool);
void pool_hold_end(struct pool *pool);

/* A pool of a device, counted once. For a graph its id is (n, 0). */
tarn_status pool_create(struct arena *arena, bool for_graph, struct pool **pool);

/* The start of a public call on a pool: the process may use tarn, and `pool` is one, or also a device's default pool. */
tarn_status pool_check(tarn_pool *pool);
tarn_status pool_check_any(tarn_pool *pool);

/* Leaves behind the pools that nobody counts any more, and destroys those of which nothing is left. With a device's at shutdown:
 * leaves all of them behind that no graph holds, whoever counts them. */
void pools_collect(struct arena *arena);
void pools_leave_behind(struct arena *arena);

/* Lets go of what a suspended pool has, when nobody can resume it any more: its addresses where nothing is live, its contents. False
 * where somebody is at it, or its copies may be under way: then its memory stays. */
bool pool_suspension_end(struct pool *pool);
/* A suspend in steps, for a sleep of several pools. `prepare` is all that comes before memory is unmapped; a pool that is prepared serves
 * nobody, has its memory and, with `keep`, a copy of its contents. On failure it runs, or, where pool_sleep_is_in_part() says so, is suspended
 * in part as by tarn_pool_suspend(). `unmap` takes the memory out of its addresses and on failure puts it back; `put_back` undoes it, with the
 * contents that were there. `release` ends it: it is suspended then, whatever it gives. `cancel` undoes a prepare and cannot fail. The
 * caller bars captures, and counts the pool, which is not of plain segments. */
tarn_status pool_sleep_prepare(struct pool *pool, bool keep);
void pool_sleep_cancel(struct pool *pool);
tarn_status pool_sleep_unmap(struct pool *pool);
tarn_status pool_sleep_put_back(struct pool *pool);
tarn_status pool_sleep_release(struct pool *pool);
static inline bool pool_sleep_is_in_part(struct pool *pool)
{
    int state = atomic_load(&pool->state);
    return !pool->prepared && (state == TARN_POOL_KEPT || state == TARN_POOL_DISCARDED);
}

/* Takes the memory out of the addresses that a suspend failed to take it out of; it stays with the store. */
void pool_suspension_complete(struct pool *pool);

/* A live block, and the heap that it is of. */
struct visited {
    tarn_pool_block block; /* first: ordered by it */
    struct heap *heap;
    size_t front; /* bytes of it that are debug mode's */
    tarn_tag tag;
    bool used;                   /* by other streams */
    bool own;                    /* the library's */
    const struct stream *stream; /* of the heap, whoever leases it */
    unsigned incarnation;
};

/* Calls `visit` for each live block of a store, under the lock of its heap. And what its caller has of it. */
tarn_pool_block block_of_caller(const struct visited *visited);
struct visitor {
    void (*visit)(struct visitor *visitor, const struct visited *visited);
    size_t count, room;
    tarn_pool_block *blocks;
};
void visit_blocks(struct store *store, struct visitor *visitor);
int block_order(const void *a, const void *b); /* by address, for qsort() */

/* What is called, without a lock, for each pool that nobody counts any more: who has blocks of it for the graphs that used it frees
 * them. Set before a pool is made. */
void pools_on_end(void (*callback)(tarn_pool_id id));

/* The next pool after `pool`, NULL first, that serves requests of the default pool's heap which would fail; visited, which ends
 * with the next call. */
struct pool *pool_spare_next(const struct heap *heap, struct pool *pool);

/* Where a request for a stream goes. */
struct route {
    struct store *store;
    struct pool *visited; /* by route_of(), until route_end() */
    bool holds_on;        /* the next one goes there too, until `process_changes` or the thread's scopes change */
};
tarn_status route_of(struct stream *stream, struct route *route);
/* The same past every scope that a program opens: to the default pool, or with `captured` to that of the capture which the stream takes
 * part in, if it has one. */
tarn_status route_past_scopes(struct stream *stream, bool captured, struct route *route);
void route_end(const struct route *route);

/* A thread ends: it leaves its scopes. */
void scopes_of_thread_end(struct thread *thread);
/* A scope for the streams of a capture that is about to begin on `stream`; and its end, which gives the pool with the count that
 * the scope had, or NULL where there was none. */
tarn_status scope_begin_capture(struct pool *pool, struct stream *stream, tarn_scope *scope);
struct pool *scope_end_capture(const struct stream *stream);
/* The pool of such a scope, counted and held once more as pool_hold() does, while the capture cannot end; NULL where there is none. */
struct pool *scope_capture_hold(const struct stream *stream);
/* The pinned memory of the capture that a stream takes part in, retained, or NULL. */
struct pinned_pool *scope_pinned(struct stream *stream);

#endif
