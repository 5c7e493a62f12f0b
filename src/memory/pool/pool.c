/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the private pools: their creation, their references, and their end. A pool ends in three
 * steps. Its last reference is dropped, in any thread. pools_collect() leaves it behind. A later
 * pools_collect() destroys it, when no heap, piece or request refers to it. Lock order: collecting,
 * then the order of heap.h and arena.h. */
#include "memory/pool/pool.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "base/thread/clock.h"
#include "base/thread/process.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/heap/help.h"
#include "memory/heap/traced.h"
#include "memory/pinned/pinned.h"
#include "memory/settings/hooks.h"

#include <limits.h>

static struct object_pool pools = OBJECT_POOL_NAMED(struct pool);
static atomic_uint_fast64_t user_ids = 1, graph_ids = 1;
static mutex collecting = MUTEX_INITIALIZER(LOCK_COLLECTING);

/* The most pools left behind that one call tries to destroy: many may have live blocks. */
#define COLLECTED_AT_ONCE 16

bool pool_retain(struct pool *pool)
{
    unsigned count = atomic_load(&pool->count);
    while (count && !atomic_compare_exchange_weak(&pool->count, &count, count + 1))
        ;
    return count != 0;
}

void pool_let_go(struct pool *pool)
{
    struct arena *arena = pool->store.arena; /* the pool may end two lines below */
    atomic_fetch_add(&arena->pools.let_go, 1);
    atomic_fetch_add(&arena->pools.waiting, 1);
    if (atomic_fetch_sub(&pool->count, 1) != 1) {
        atomic_fetch_sub(&arena->pools.waiting, 1);
        return;
    }
    inbox_add(&arena->pools.ended, &pool->store.lists.ended);
}

bool pool_hold(struct pool *pool)
{
    if (!pool_retain(pool))
        return false;
    atomic_fetch_add(&pool->store.holds, 1);
    return true;
}

void pool_hold_still(struct pool *pool)
{
    struct arena *arena = pool->store.arena;
    bool alone = !observe_runs_moving();
    if (alone)
        move_begin_alone(arena);
    atomic_fetch_add(&pool->store.holds, 1);
    if (alone)
        move_end(arena);
}

void pool_hold_drop(struct pool *pool)
{
    atomic_fetch_add(&pool->visits, 1); /* keeps the pool for the next line */
    atomic_fetch_sub(&pool->store.holds, 1);
    help_tell(&pool->store);
    atomic_fetch_sub(&pool->visits, 1);
}

void pool_hold_end(struct pool *pool)
{
    pool_let_go(pool);
    pool_hold_drop(pool); /* last: the pool and its arena exist while it is held */
}

tarn_status pool_create(struct arena *arena, bool for_graph, struct pool **result)
{
    struct pool *pool = object_alloc(&pools);
    if (!pool)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a pool");
    pools_collect(arena);
    store_init(&pool->store, arena, &pool->counters);
    pool->store.flags |= STORE_OF_POOL;
    counters_init(&pool->counters, &arena->counters);
    pool->store.id[for_graph ? 0 : 1] = atomic_fetch_add(for_graph ? &graph_ids : &user_ids, 1);
    atomic_store(&pool->count, 1);
    atomic_store(&pool->held, 0);
    *result = pool;
    return TARN_OK;
}

#define STORE_BY_ID(node) TREE_ENTRY(node, struct store, lists.by_id)

static int id_order(const uint64_t a[2], const uint64_t b[2])
{
    int first = (a[0] > b[0]) - (a[0] < b[0]);
    return first ? first : (a[1] > b[1]) - (a[1] < b[1]);
}

static bool is_before(const struct tree_node *a, const struct tree_node *b)
{
    return id_order(STORE_BY_ID(a)->id, STORE_BY_ID(b)->id) < 0;
}

struct pool *pool_of_id_locked(struct arena *arena, tarn_pool_id id)
{
    const uint64_t wanted[2] = {id.first, id.second};
    struct tree_node *node = arena->pools.by_id.root;
    int order;
    while (node && (order = id_order(STORE_BY_ID(node)->id, wanted)) != 0)
        node = node->sides[order < 0];
    return node ? pool_of_store(STORE_BY_ID(node)) : NULL;
}

void pool_begin(struct pool *pool)
{
    struct arena *arena = pool->store.arena;
    mutex_lock(&arena->lock);
    counters_max_split(&pool->counters, store_max_split(&pool->store));
    pool->store.lists.next = arena->pools.list;
    pool->store.lists.previous = NULL;
    if (arena->pools.list)
        arena->pools.list->lists.previous = &pool->store;
    arena->pools.list = &pool->store;
    tree_insert_by(&arena->pools.by_id, &pool->store.lists.by_id, is_before);
    atomic_fetch_add(&arena->pools.helpers, store_has(&pool->store, STORE_HELPS));
    mutex_unlock(&arena->lock);
    trace_store(TRACE_pool_create, &pool->store, !pool->store.kind.plans);
}

/* The arena that has this pool as its default pool, or NULL. */
static struct arena *arena_of_default(const tarn_pool *pool)
{
    for (int i = 0; i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (arena && (const void *)pool == &arena->store)
            return arena;
    }
    return NULL;
}

static tarn_status check_private(tarn_pool *pool)
{
    if (!object_is_live(&pools, pool))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      pool ? "%p is not a pool, or the pool is gone" : "pool is NULL",
                      (const void *)pool);
    if (!atomic_load(&pool_of_public(pool)->count))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the pool's last reference was dropped: it cannot be used");
    return TARN_OK;
}

tarn_status pool_check_any(tarn_pool *pool)
{
    tarn_status status = memory_ready();
    return status || arena_of_default(pool) ? status : check_private(pool);
}

tarn_status pool_check(tarn_pool *pool)
{
    tarn_status status = memory_ready();
    const struct arena *arena = status ? NULL : arena_of_default(pool);
    if (arena)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the default pool of device %d serves everybody: it cannot be suspended, "
                      "checkpointed, captured "
                      "into or kept for a graph; make a pool by tarn_pool_create()",
                      arena->device->number);
    return status ? status : check_private(pool);
}

/* The end -------------------------------------------------------------------------------------- */

/* Whether no request and no ending graph uses the pool. */
static bool is_unvisited_locked(struct store *store)
{
    return atomic_load(&pool_of_store(store)->visits) == 0 && atomic_load(&store->holds) == 0;
}

static void left_remove_locked(struct arena *arena, const struct store *store)
{
    if (arena->pools.left_from == store)
        arena->pools.left_from = store->lists.next_left;
    *(store->lists.previous_left ? &store->lists.previous_left->lists.next_left
                                 : &arena->pools.left_first) = store->lists.next_left;
    if (store->lists.next_left)
        store->lists.next_left->lists.previous_left = store->lists.previous_left;
}

/* Removes a store from the arena's lists, unless a request uses its pool. */
static bool unlink_store(struct arena *arena, struct store *store)
{
    mutex_lock(&arena->lock);
    bool unvisited = is_unvisited_locked(store);
    if (unvisited) {
        left_remove_locked(arena, store);
        tree_remove(&arena->pools.by_id, &store->lists.by_id);
        help_return_locked(arena); /* it may be on that stack */
        atomic_fetch_sub(&arena->pools.helpers, store_has(store, STORE_HELPS));
        *(store->lists.previous ? &store->lists.previous->lists.next : &arena->pools.list) =
            store->lists.next;
        if (store->lists.next)
            store->lists.next->lists.previous = store->lists.previous;
    }
    mutex_unlock(&arena->lock);
    return unvisited;
}

/* Whether a store has no memory, and no request in progress can give it some. A pool without
 * references gets no new requests: a search for spare memory increments `visits` under the same
 * lock. */
static bool is_over(struct store *store)
{
    mutex_lock(&store->arena->lock);
    bool over = store->reserved == 0 && is_unvisited_locked(store);
    mutex_unlock(&store->arena->lock);
    return over;
}

/* Moves a pool that was left behind and has no memory to `dead`. The caller holds `collecting`. */
static void bury_if_empty(struct arena *arena, struct pool *pool, struct store **dead)
{
    struct store *store = &pool->store;
    if (!pool_suspension_end(pool))
        return; /* a later call tries again */
    (void)store_take(&arena->store, store, SIZE_MAX);
    if (!is_over(store) || !heaps_give_up(store))
        return;
    if (!move_begin_alone_by(arena, UNTIL_NOW))
        return; /* a request may be using it: a later call tries again */
    bool unlinked = unlink_store(arena, store);
    move_end(arena);
    if (!unlinked)
        return;
    atomic_fetch_sub(&arena->pools.waiting, 1);
    store->lists.next = *dead;
    *dead = store;
}

CALLS_BACK static void call_gone(const tarn_pool_allocator *allocator)
{
    struct callback callback;
    callback_begin(&callback);
    allocator->gone(allocator->user);
    callback_end(&callback);
}

static void destroy(struct pool *pool)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct store *store = &pool->store;
    if (store->allocator.gone)
        call_gone(&store->allocator);
    contents_end(&pool->contents, store->arena->device);
    pages_free(store->heaps.of, store->heaps.slots * sizeof(struct heap *));
    mutex_finish(&store->heaps.lookup);
    object_free(&pools, pool);
}

/* The store after `store` in the list; NULL starts. Caller holds `collecting`, so the store stays
 * in the list. */
static struct store *store_next(struct arena *arena, const struct store *store)
{
    mutex_lock(&arena->lock);
    struct store *next = store ? store->lists.next : arena->pools.list;
    mutex_unlock(&arena->lock);
    return next;
}

static void leave_behind(struct store *store)
{
    pinned_pool_end(pool_of_store(store)->pinned); /* no capture uses it any more */
    pool_of_store(store)->pinned = NULL;
    heaps_leave_behind(store);
    trace_store(TRACE_pool_release, store, 0);
    process_changed();
}

/* Adds it to those that pools_collect() tries to destroy. */
static void left_push(struct arena *arena, struct store *store)
{
    mutex_lock(&arena->lock);
    store->lists.previous_left = NULL;
    store->lists.next_left = arena->pools.left_first;
    if (arena->pools.left_first)
        arena->pools.left_first->lists.previous_left = store;
    arena->pools.left_first = store;
    store_changed_locked(store);
    mutex_unlock(&arena->lock);
}

/* Leaves one pool without references behind, and returns its id. False if there is none. */
static bool leave_one_behind(struct arena *arena, tarn_pool_id *id)
{
    bool found = false;
    mutex_lock(&collecting);
    while (!found) {
        struct inbox_item *item =
            arena->pools.ended_taken ? arena->pools.ended_taken : inbox_take(&arena->pools.ended);
        if (!item)
            break;
        arena->pools.ended_taken = item->next;
        struct store *store = INBOX_ENTRY(item, struct store, lists.ended);
        found = !atomic_load(&store->left_behind); /* a shutdown may have left it behind */
        if (found)
            leave_behind(store);
        *id = (tarn_pool_id){store->id[0], store->id[1]};
        left_push(arena, store);
    }
    mutex_unlock(&collecting);
    return found;
}

/* The next pool left behind, in turn. The caller holds `collecting`, so it stays in the list. */
static struct store *left_next(struct arena *arena)
{
    mutex_lock(&arena->lock);
    struct store *store = arena->pools.left_from ? arena->pools.left_from : arena->pools.left_first;
    arena->pools.left_from = store ? store->lists.next_left : NULL;
    mutex_unlock(&arena->lock);
    return store;
}

/* Tries to destroy at most `most` pools left behind, in turn. */
static void collect(struct arena *arena, unsigned most)
{
    tarn_pool_id id;
    struct store *dead = NULL;
    if (!atomic_load(&arena->pools.waiting))
        return;
    while (leave_one_behind(arena, &id)) {
        pool_ended_hook *callback = atomic_load(&upper_hooks.pool_ended);
        if (callback)
            callback(id);
    }
    mutex_lock(&collecting);
    unsigned ended = atomic_load(&arena->pools.waiting);
    for (unsigned looks = ended < most ? ended : most; looks > 0; looks--) {
        struct store *store = left_next(arena);
        if (store)
            bury_if_empty(arena, pool_of_store(store), &dead);
    }
    mutex_unlock(&collecting);
    for (struct store *store = dead, *next; store; store = next) {
        next = store->lists.next;
        destroy(pool_of_store(store));
    }
}

void pools_collect(struct arena *arena)
{
    collect(arena, COLLECTED_AT_ONCE);
}

void pools_collect_all(struct arena *arena)
{
    collect(arena, UINT_MAX);
}

void pools_leave_behind(struct arena *arena)
{
    mutex_lock(&collecting);
    for (struct store *store = store_next(arena, NULL); store; store = store_next(arena, store)) {
        struct pool *pool = pool_of_store(store);
        if (pool->prepared)
            pool_sleep_cancel(pool);
        if (atomic_load(&store->holds))
            continue; /* a graph may still run, and its end will be reported */
        bool ends = atomic_exchange(&pool->count, 0);
        if (!atomic_load(&store->left_behind))
            leave_behind(store);
        if (ends) { /* otherwise it is on the stack, or was taken from it */
            atomic_fetch_add(&arena->pools.waiting, 1);
            left_push(arena, store);
        }
    }
    mutex_unlock(&collecting);
}

void pool_release(struct pool *pool)
{
    struct arena *arena = pool->store.arena;
    atomic_fetch_add(&pool->visits, 1); /* keeps the pool for the lines below */
    pool_let_go(pool);
    pools_collect(arena);
    if (atomic_load(&pool->store.left_behind))
        hooks.give_back(arena, &pool->store);
    atomic_fetch_sub(&pool->visits, 1);
    pools_collect(arena);
}

/* Requests ------------------------------------------------------------------------------------- */

struct pool *pool_spare_next(struct arena *arena, struct help_search *search, struct pool *pool)
{
    struct store *store;
    struct pool *next = NULL;
    mutex_lock(&arena->lock);
    while (!next && (store = help_next_locked(arena, search)))
        next = atomic_load(&pool_of_store(store)->count) ? pool_of_store(store) : NULL;
    if (next)
        atomic_fetch_add(&next->visits, 1);
    if (pool)
        atomic_fetch_sub(&pool->visits, 1);
    mutex_unlock(&arena->lock);
    return next;
}
