/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Private pools, and how a request finds its pool.
 *
 * A pool is a store of the arena with references (`count`). Without references it is left behind:
 * nothing can be allocated from it, the idle memory of its heaps serves the default pool, and when
 * its heaps are empty, the object is destroyed (pools_collect()). The last reference may be dropped
 * in a thread of the driver, where nothing else is allowed. The rest happens at the next call that
 * collects. */
#ifndef TARN_MEMORY_POOL_H
#define TARN_MEMORY_POOL_H

#include "memory/heap/heap.h"
#include "memory/pool/contents.h"

struct pinned_keeper;

#include <tarn/pool.h>

struct pool {
    struct store store; /* first: a private pool's store is its pool */
    struct counters counters;
    atomic_uint count;          /* references: of users, scopes, captures, graphs */
    atomic_uint users;          /* of these, the ones that callers may release */
    atomic_uint held;           /* ... and the ones that they may unhold */
    atomic_uint visits;         /* requests in progress: they keep the object, not the pool */
    bool use_on_oom;            /* constant */
    atomic_int state;           /* tarn_pool_state; suspend.c */
    struct contents contents;   /* of the thread that changes the state */
    bool prepared, keeps;       /* likewise: a sleep has begun, and whether it keeps contents */
    struct taken *taken;        /* likewise: memory that a sleep in progress has unmapped */
    atomic_uint tag;            /* tarn_tag, by which a sleep selects pools */
    struct pinned_pool *pinned; /* of its captures; scopes_lock. NULL until first needed */
};

/* NULL for the arena's own stores: those of the default pool, and that of imported memory. */
static inline struct pool *pool_of_store(struct store *store)
{
    return store_has(store, STORE_OF_POOL) ? (struct pool *)store : NULL;
}

/* The pool that a caller names in a public call: a private one, or the default pool of a device,
 * which is the arena's own store and has no references. */
static inline struct store *store_of_public(tarn_pool *pool)
{
    return (struct store *)pool;
}

static inline struct pool *pool_of_public(tarn_pool *pool)
{
    return (struct pool *)pool;
}

/* Adds a reference. False if there is none left: the pool is gone. */
bool pool_retain(struct pool *pool);
/* Drops a reference, from any thread, also a thread of the driver: makes no call and takes no
 * lock. */
void pool_let_go(struct pool *pool);
/* Drops a reference, and collects the pool if that was the last one. */
void pool_release(struct pool *pool);
/* For a capture or graph that uses the addresses: adds a reference and holds the store;
 * pool_hold_end() undoes both, from any thread. */
bool pool_hold(struct pool *pool);
void pool_hold_end(struct pool *pool);

/* Creates a pool of a device, with one reference; for a graph its id is (n, 0). Nobody else finds
 * it before its creator has set its options and calls pool_begin(). */
tarn_status pool_create(struct arena *arena, bool for_graph, struct pool **pool);
void pool_begin(struct pool *pool);

/* The start of a public call on a pool: the process may use tarn, and `pool` is one, or also a
 * device's default pool. */
tarn_status pool_check(tarn_pool *pool);
tarn_status pool_check_any(tarn_pool *pool);

/* The pool of an id, or NULL. Arena lock. */
struct pool *pool_of_id_locked(struct arena *arena, tarn_pool_id id);

/* Leaves pools without references behind, and destroys those that have nothing left: a few in turn,
 * or all. At the shutdown of a device: leaves all pools behind that no graph holds, also those with
 * references. */
void pools_collect(struct arena *arena);
void pools_collect_all(struct arena *arena);
void pools_leave_behind(struct arena *arena);

/* Releases what a suspended pool has when no caller can resume it any more: addresses without live
 * blocks, and contents. False if another thread is changing the pool, or copies of its contents may
 * be in progress: then its memory stays. */
bool pool_suspension_end(struct pool *pool);
/* A suspend in steps, for a sleep of several pools. `prepare` does everything that comes before
 * memory is unmapped. A prepared pool serves no requests; it has its memory and, with `keep`, a
 * copy of its contents. If `prepare` fails, the pool runs, or, if pool_sleep_is_in_part() says so,
 * is suspended in part as by tarn_pool_suspend(). `unmap` unmaps the memory, and on failure maps it
 * back; `put_back` undoes an unmap, with the contents. `release` ends the suspend: the pool is
 * suspended afterwards, whatever `release` returns. `cancel` undoes a prepare and cannot fail. The
 * caller bars captures and holds a reference to the pool, which has no plain segments. Anchored
 * memory makes a prepare fail with TARN_ERROR_BUSY, and `refuse_anchored` likewise. With
 * `anchored_too` a prepare accepts it: then `refuse_anchored` comes before the unmap. `waited` is
 * false at first, and the same for all pools of a device that a call prepares or unmaps, so that
 * the device is waited for once. */
tarn_status pool_sleep_prepare(struct pool *pool, bool keep, bool anchored_too, bool *waited);
tarn_status pool_sleep_refuse_anchored(struct pool *pool);
void pool_sleep_cancel(struct pool *pool);
tarn_status pool_sleep_unmap(struct pool *pool, bool *waited);
tarn_status pool_sleep_put_back(struct pool *pool);
tarn_status pool_sleep_release(struct pool *pool);
static inline bool pool_sleep_is_in_part(struct pool *pool)
{
    int state = atomic_load(&pool->state);
    return !pool->prepared && (state == TARN_POOL_KEPT || state == TARN_POOL_DISCARDED);
}

/* Unmaps the memory that a suspend failed to unmap; it stays with the store. */
void pool_suspension_complete(struct pool *pool);

/* A live block and its heap. */
struct visited {
    tarn_pool_block block; /* first: ordered by it */
    struct heap *heap;
    size_t front; /* bytes of it that debug mode uses */
    tarn_tag tag;
    bool used;                   /* by other streams */
    bool own;                    /* the library's */
    const struct stream *stream; /* of the heap, whoever leases it */
    unsigned incarnation;
};

/* Calls `visit` for each live block of a store, under the lock of its heap; and returns the part of
 * a block that the caller may use. */
tarn_pool_block block_of_caller(const struct visited *visited);
struct visitor {
    void (*visit)(struct visitor *visitor, const struct visited *visited);
    size_t count, room;
    tarn_pool_block *blocks;
};
void visit_blocks(struct store *store, struct visitor *visitor);
int block_order(const void *a, const void *b); /* by address, for qsort() */

/* The next pool after `pool` (NULL starts) that serves requests of the default pool's heap which
 * would otherwise fail. Its `visits` is incremented until the next call. */
struct pool *pool_spare_next(const struct heap *heap, struct pool *pool);

/* Where a request for a stream is routed. */
struct route {
    struct store *store;
    struct pool *visited; /* by route_of(), until route_end() */
    bool holds_on;        /* the next request goes there too, until `process_changes` or the
                             thread's scopes change */
};
tarn_status route_of(struct stream *stream, struct route *route);
/* The same, but ignores the scopes of the program: routes to the default pool, or with `captured`
 * to the pool of the capture that the stream takes part in, if that has one. */
tarn_status route_past_scopes(struct stream *stream, bool captured, struct route *route);
void route_end(const struct route *route);

/* A thread ends: it leaves its scopes. */
void scopes_of_thread_end(struct thread *thread);
/* Opens a scope for the streams of a capture that is about to begin on `stream`, `announced` by a
 * caller that begins it; and ends it. The end returns the pool with the scope's reference, or NULL
 * if there was no scope. */
tarn_status scope_begin_capture(struct pool *pool, struct stream *stream, bool announced,
                                tarn_scope *scope);
struct pool *scope_end_capture(const struct stream *stream, struct pinned_keeper **pinned);
/* The pool of such a scope, with one more reference and hold, as pool_hold() adds them, while the
 * capture cannot end. NULL if there is none. */
struct pool *scope_capture_hold(const struct stream *stream, struct pinned_keeper **pinned);
/* The pinned memory of the capture that a stream takes part in, retained, or NULL. */
struct pinned_pool *scope_pinned(struct stream *stream);
/* What keeps the pinned memory that the capture uses, retained, or NULL. The end of the scope, or a
 * hold, returns it too, for its graph. */
struct pinned_keeper *scope_pinned_keeper(struct stream *stream);
/* Before a capture begins to use the pool: pinned memory that earlier ones have left is free if
 * their graphs have ended. */
void scope_settle_pinned(struct pool *pool);

#endif
