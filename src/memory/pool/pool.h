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

struct help_search;
struct pinned_keeper;

#include <tarn/pool.h>

struct pool {
    struct store store; /* first: a private pool's store is its pool */
    struct counters counters;
    atomic_uint count; /* references: of users, scopes, captures, graphs */
    atomic_uint users; /* references that callers may release */
    atomic_uint held;  /* references that callers may unhold */
    /* Requests in progress: they keep the object, but the pool may end. */
    atomic_uint visits;
    atomic_int state;              /* tarn_pool_state (suspend.c) */
    atomic_bool unready;           /* tarn_pool_keep() is adopting it: no caller finds it yet */
    struct contents contents;      /* used by the thread that changes the state */
    bool prepared, saves_contents; /* likewise: a sleep has begun; it saves contents */
    struct taken *taken;           /* likewise: memory that the sleep has unmapped */
    atomic_uint tag;               /* tarn_tag by which a sleep selects pools */
    struct pinned_pool *pinned; /* pinned memory of its captures; NULL until needed; scopes_lock */
};

/* The pool of a store. NULL for the arena's own stores: those of the default pool, and of imported
 * memory. */
static inline struct pool *pool_of_store(struct store *store)
{
    return store_has(store, STORE_OF_POOL) ? (struct pool *)store : NULL;
}

/* The store of the pool that a caller names: a private pool, or a device's default pool, which is a
 * store of the arena and has no references. */
static inline struct store *store_of_public(tarn_pool *pool)
{
    return (struct store *)pool;
}

static inline struct pool *pool_of_public(tarn_pool *pool)
{
    return (struct pool *)pool;
}

/* Whether nothing but graphs and open captures holds a store's addresses: no caller may release or
 * unhold its pool. */
static inline bool store_is_of_graphs(struct store *store)
{
    struct pool *pool = pool_of_store(store);
    return pool && atomic_load(&store->holds) && !atomic_load(&pool->users) &&
           !atomic_load(&pool->held);
}

/* Adds a reference. False if the last one is gone, and the pool with it. */
bool pool_retain(struct pool *pool);
/* Drops a reference. Makes no call and takes no lock, so any thread may call it, also one of the
 * driver. */
void pool_let_go(struct pool *pool);
/* Drops a reference, and collects the pool if that was the last one. */
void pool_release(struct pool *pool);
/* For a capture or graph that uses the pool's addresses: adds a reference and holds the store.
 * pool_hold_end() undoes both, from any thread. */
bool pool_hold(struct pool *pool);
void pool_hold_end(struct pool *pool);
/* Holds the store without adding a reference. First waits until no memory of the device is on the
 * move and no request takes memory of another pool, so none of them changes the pool afterwards.
 * Does not wait in a callback during a move. The caller keeps the pool, and holds no lock. */
void pool_hold_still(struct pool *pool);
/* Undoes only the hold. The caller, or the hold, keeps the pool. */
void pool_hold_drop(struct pool *pool);

/* Creates a pool with one reference. The id of a pool for a graph is (n, 0). No other code finds
 * the pool before its creator has set its options and calls pool_begin(). */
tarn_status pool_create(struct arena *arena, bool for_graph, struct pool **pool);
void pool_begin(struct pool *pool);

/* Begins a public call on a pool: checks the process, and that `pool` is a pool; the second one
 * also accepts a device's default pool. */
tarn_status pool_check(tarn_pool *pool);
tarn_status pool_check_any(tarn_pool *pool);

/* Finds a pool by its id. NULL if no pool has it. Arena lock. */
struct pool *pool_of_id_locked(struct arena *arena, tarn_pool_id id);

/* Leaves pools without references behind, and tries to destroy a few of those left behind, in
 * turn. */
void pools_collect(struct arena *arena);
/* The same, but tries all of them. */
void pools_collect_all(struct arena *arena);
/* For the shutdown of a device: leaves all pools behind that no graph holds, also those with
 * references. */
void pools_leave_behind(struct arena *arena);

/* Frees what a suspended pool has, when no caller can resume it any more: addresses without live
 * blocks, and contents. False if another thread is changing the pool, or copies of its contents may
 * be in progress; then everything stays. */
bool pool_suspension_end(struct pool *pool);
/* A suspend in steps, for a sleep of several pools. The caller bars captures and holds a reference
 * to the pool, which can be suspended.
 *
 * - prepare: does everything that comes before memory is unmapped. A prepared pool serves no
 *   requests. It still has its memory and, with `save`, a copy of its contents. If it fails, the
 *   pool runs, or is suspended in part if pool_sleep_is_in_part() says so. Anchored memory fails it
 *   with TARN_ERROR_BUSY, unless `anchored_too`: then call `refuse_anchored` before `unmap`.
 *   `waited` is false at first, and shared by all pools of a device in one call, so that the device
 *   is waited for once.
 * - unmap: unmaps the memory. On failure maps it back.
 * - put_back: undoes an unmap, with the contents.
 * - release: ends the suspend. The pool is suspended afterwards, whatever is returned.
 * - cancel: undoes a prepare. Cannot fail. */
tarn_status pool_sleep_prepare(struct pool *pool, bool save, bool anchored_too, bool *waited);
tarn_status pool_sleep_refuse_anchored(struct pool *pool);
void pool_sleep_cancel(struct pool *pool);
tarn_status pool_sleep_unmap(struct pool *pool, bool *waited);
tarn_status pool_sleep_put_back(struct pool *pool);
tarn_status pool_sleep_release(struct pool *pool);
/* Whether the pool's kind allows a suspend. */
static inline bool pool_suspends(const struct pool *pool)
{
    return pool->store.kind.suspends || store_has(&pool->store, STORE_KEPT);
}
/* After a step of a sleep has failed: whether the pool is suspended in part. Then it is no longer
 * prepared, and only a resume ends that. */
static inline bool pool_sleep_is_in_part(struct pool *pool)
{
    int state = atomic_load(&pool->state);
    return !pool->prepared && (state == TARN_POOL_SAVED || state == TARN_POOL_DISCARDED);
}

/* Unmaps memory that a suspend failed to unmap. The memory stays with the store. */
void pool_suspension_complete(struct pool *pool);

/* A live block and its heap. */
struct visited {
    tarn_pool_block block; /* first member, for sorting */
    struct heap *heap;
    size_t front; /* bytes of debug mode's zone before the caller's pointer */
    tarn_tag tag;
    bool used;                   /* other streams use it */
    bool own;                    /* it belongs to the library */
    const struct stream *stream; /* the heap's stream, whatever its lease */
    unsigned incarnation;
    struct use *note; /* during a restore: that graphs refer to the block */
};

/* The part of a block that the caller may use. */
tarn_pool_block block_of_caller(const struct visited *visited);
struct visitor {
    void (*visit)(struct visitor *visitor, const struct visited *visited);
    size_t count, room;
    tarn_pool_block *blocks;
};
/* Calls `visit` for each live block of a store, under the lock of its heap. */
void visit_blocks(struct store *store, struct visitor *visitor);
int block_order(const void *a, const void *b); /* by address, for qsort() */
/* Makes a part of a heap's free memory, which nobody else uses meanwhile, a live block. `last`: the
 * span of the last one, from which the search begins; NULL at first. */
tarn_status block_take_at(struct heap *heap, const tarn_pool_block *block, tarn_tag tag,
                          struct span **last);

/* Returns the next pool after `pool` (NULL: the first) with free memory that may serve a request of
 * the default pool, by `search`. Increments its `visits` until the next call. Skips pools that a
 * graph or capture holds: their graphs write to memory that was freed in the capture. */
struct pool *pool_spare_next(struct arena *arena, struct help_search *search, struct pool *pool);

/* Where a request for a stream is routed. */
struct route {
    struct store *store;
    struct pool *visited; /* set by route_of(), until route_end() */
    /* The next request has the same route, until `process_changes` or the thread's scopes
     * change. */
    bool holds_on;
};
tarn_status route_of(struct stream *stream, struct route *route);
/* As route_of(), but ignores scopes. The route is the default pool; with `captured`, the pool of
 * the capture that the stream takes part in, if there is one. */
tarn_status route_past_scopes(struct stream *stream, bool captured, struct route *route);
void route_end(const struct route *route);

/* Leaves all scopes of a thread that ends. */
void scopes_of_thread_end(struct thread *thread);
/* Opens a scope for the streams of a capture that is about to begin on `stream`. `announced`: the
 * program begins the capture itself. */
tarn_status scope_begin_capture(struct pool *pool, struct stream *stream, bool announced,
                                tarn_scope *scope);
/* Ends it. Returns the pool with the scope's reference; NULL: there was no scope. */
struct pool *scope_end_capture(const struct stream *stream, struct pinned_keeper **pinned);
/* The pool of the scope of a stream's capture, with one more reference and hold (pool_hold()); NULL
 * if there is none. The capture cannot end meanwhile. */
struct pool *scope_capture_hold(const struct stream *stream, struct pinned_keeper **pinned);
/* The pinned memory of the capture that a stream takes part in, retained; or NULL. */
struct pinned_pool *scope_pinned(struct stream *stream);
/* The keeper of that pinned memory, retained; or NULL. The end of the scope, and
 * scope_capture_hold(), return it too, for the graph. */
struct pinned_keeper *scope_pinned_keeper(struct stream *stream);
/* Before a capture begins to use the pool: frees pinned memory of its earlier captures whose graphs
 * have ended. */
void scope_settle_pinned(struct pool *pool);

#endif
