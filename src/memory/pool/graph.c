/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures and graphs that use a pool. Owns the set of which graph holds which pool. The scope of
 * a capture has the reference to its pool. For a graph, the driver keeps the reference and reports
 * when the graph has ended. */
#include "memory/pool/graph.h"
#include "base/inbox.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/tree.h"
#include "device/capture.h"
#include "memory/arena/observe.h"
#include "memory/heap/heap.h"
#include "memory/pinned/pinned.h"
#include "memory/pool/pool.h"
#include "memory/settings/hooks.h"

/* What a graph holds. It stays in the set until the driver says that the graph has ended. Then the
 * next thread that adds to the set or searches it takes it out. */
struct graph_hold {
    struct tree_node node;   /* holds_lock */
    struct inbox_item ended; /* in `ended_holds` */
    driver_graph graph;
    struct pool *pool;
    uint64_t id[2]; /* of the pool */
    int device;
    struct pinned_keeper *pinned; /* keeper of the pinned memory that its capture used; or NULL */
};

static mutex holds_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct tree holds; /* holds_lock: by graph, device and pool */
static struct inbox ended_holds;
static struct object_pool hold_objects = OBJECT_POOL(struct graph_hold);

#define HOLD_OF(at) TREE_ENTRY(at, struct graph_hold, node)

static int compare(const struct graph_hold *a, const struct graph_hold *b)
{
    if (a->graph != b->graph)
        return (uintptr_t)a->graph < (uintptr_t)b->graph ? -1 : 1;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->id[0] != b->id[0])
        return a->id[0] < b->id[0] ? -1 : 1;
    return a->id[1] == b->id[1] ? 0 : a->id[1] < b->id[1] ? -1 : 1;
}

static bool is_before(const struct tree_node *a, const struct tree_node *b)
{
    return compare(HOLD_OF(a), HOLD_OF(b)) < 0;
}

static bool is_not_before(const struct tree_node *node, uint64_t hold)
{
    return compare(HOLD_OF(node), (const struct graph_hold *)(uintptr_t)hold) >= 0;
}

/* Runs in a thread of the driver: makes no calls and takes no lock. */
static void graph_ended(void *argument)
{
    struct graph_hold *hold = argument;
    struct pool *pool = hold->pool;
    if (hold->pinned)
        pinned_capture_over(hold->pinned);
    inbox_add(&ended_holds, &hold->ended);
    pool_hold_end(pool);
}

static void sweep_locked(void)
{
    struct inbox_item *item = inbox_take(&ended_holds);
    while (item) {
        struct graph_hold *hold = INBOX_ENTRY(item, struct graph_hold, ended);
        item = item->next;
        tree_remove(&holds, &hold->node);
        object_free(&hold_objects, hold);
    }
}

/* Gives the reference and hold of a capture to its graph, with the keeper of its pinned memory,
 * which may be NULL. */
static tarn_status hand_over(struct pool *pool, struct pinned_keeper *pinned, int device,
                             driver_graph graph)
{
    struct graph_hold *hold = object_alloc(&hold_objects);
    if (!hold)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to note what a graph holds");
    *hold = (struct graph_hold){.graph = graph,
                                .pool = pool,
                                .id = {pool->store.id[0], pool->store.id[1]},
                                .device = pool->store.arena->device->number,
                                .pinned = pinned};
    mutex_lock(&holds_lock);
    sweep_locked();
    tree_insert_by(&holds, &hold->node, is_before);
    mutex_unlock(&holds_lock);
    tarn_status status = driver->graph_hold(device, graph, graph_ended, hold);
    if (status) /* the driver will not call graph_ended() */
        inbox_add(&ended_holds, &hold->ended);
    return device_note(device_at(device), status);
}

bool graph_holds_pool(driver_graph graph, int device, const uint64_t id[2])
{
    const struct graph_hold wanted = {.graph = graph, .device = device, .id = {id[0], id[1]}};
    mutex_lock(&holds_lock);
    sweep_locked();
    struct tree_node *node = tree_find_first(&holds, is_not_before, (uintptr_t)&wanted);
    bool found = node && compare(HOLD_OF(node), &wanted) == 0;
    mutex_unlock(&holds_lock);
    return found;
}

/* The report layer remembers what a captured graph refers to, if it is asked to. */
static void tell_captured(driver_graph graph)
{
    captured_hook *hook = atomic_load(&upper_hooks.captured);
    if (hook && debug_has(DEBUG_GRAPHS))
        hook(graph);
}

tarn_status graph_capture_ended(struct stream *stream, driver_graph graph)
{
    struct pinned_keeper *pinned = NULL;
    struct pool *pool = scope_end_capture(stream, &pinned);
    tarn_status status = pool && graph ? hand_over(pool, pinned, stream->device, graph) : TARN_OK;
    if (graph && !status)
        tell_captured(graph);
    if (pool && (status || !graph)) {
        if (pinned)
            pinned_capture_leave(pinned);
        pool_hold_end(pool);
        pools_collect(arena_if_used(stream->device));
    }
    return status;
}

tarn_status graph_capture_keeps(struct stream *stream, driver_graph graph)
{
    struct pinned_keeper *pinned = NULL;
    struct pool *pool = scope_capture_hold(stream, &pinned);
    tarn_status status = pool ? hand_over(pool, pinned, stream->device, graph) : TARN_OK;
    if (status && pinned)
        pinned_capture_leave(pinned);
    if (status)
        pool_hold_end(pool);
    else
        tell_captured(graph);
    return status;
}

/* The pool for a capture, with a reference: the caller's pool, or a new one. */
static tarn_status pool_for(tarn_pool *public, struct stream *stream, struct pool **pool)
{
    struct arena *arena = NULL;
    tarn_status status = arena_of(device_at(stream->device), &arena);
    if (status)
        return status;
    if (!public) {
        status = pool_create(arena, true, pool);
        if (!status)
            pool_begin(*pool);
        return status;
    }
    status = pool_check(public);
    if (status)
        return status;
    *pool = pool_of_public(public);
    if ((*pool)->store.arena != arena)
        return failed(TARN_ERROR_INVALID_STREAM,
                      "the stream is of device %d, the pool of device %d", stream->device,
                      (*pool)->store.arena->device->number);
    return pool_retain(*pool) ? TARN_OK
                              : failed(TARN_ERROR_INVALID_ARGUMENT,
                                       "the pool's last reference was dropped: it cannot be used");
}

/* Begins a capture, or its announcement, inside a scope of the pool. The scope is opened first, so
 * that no mark for memory that other threads free meanwhile is recorded inside the capture. */
static tarn_status begin(tarn_pool *public, tarn_stream stream, bool announce,
                         tarn_capture_mode mode)
{
    struct stream *found = NULL;
    struct pool *pool = NULL;
    tarn_scope scope = 0;
    struct error_before before;
    tarn_status status = memory_ready();
    if (!status)
        status = stream_find(stream, thread_device(), &found);
    if (status)
        return status;
    /* Asked before the scope is opened, because the capture shares the scope. */
    if (stream_awaits_end(found))
        return failed(TARN_ERROR_CAPTURE,
                      "stream %#llx of device %d captures already, or its capture was announced",
                      (unsigned long long)stream, found->device);
    status = pool_for(public, found, &pool);
    if (status)
        return status;
    error_attempt_begin(&before);
    heaps_learn(found);
    /* The caller will capture on it now, so it exists. */
    stream_prove(found, (unsigned)(stream >> 32));
    scope_settle_pinned(pool);
    error_attempt_end(&before, TARN_OK);
    if (store_has(&pool->store, STORE_HELPS))
        pool_hold_still(pool);
    else
        atomic_fetch_add(&pool->store.holds, 1);
    status = scope_begin_capture(pool, found, announce, &scope);
    if (!status) {
        status = announce ? tarn_capture_announce(stream) : tarn_capture_begin(stream, mode);
        struct pinned_keeper *pinned = NULL;
        if (status)
            pool_let_go(scope_end_capture(found, &pinned));
        if (pinned) /* another thread has used some already */
            pinned_capture_leave(pinned);
    }
    if (status)
        pool_hold_drop(pool);
    struct arena *arena = pool->store.arena;
    pool_let_go(pool); /* now at most the scope has a reference */
    pools_collect(arena);
    return status;
}

tarn_status tarn_pool_capture_begin(tarn_pool *pool, tarn_stream stream, tarn_capture_mode mode)
{
    return begin(pool, stream, false, mode);
}

tarn_status tarn_pool_capture_announce(tarn_pool *pool, tarn_stream stream)
{
    return begin(pool, stream, true, TARN_CAPTURE_RELAXED);
}

tarn_status tarn_pool_hold(tarn_pool *public, void *graph)
{
    struct pool *pool = pool_of_public(public);
    tarn_status status = pool_check(public);
    if (!status)
        status = observe_refuse_moving("a hold");
    if (status)
        return status;
    if (!pool_retain(pool))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the pool's last reference was dropped: it cannot be used");
    pool_hold_still(pool);
    if (!graph) {
        atomic_fetch_add(&pool->held, 1);
        return TARN_OK;
    }
    status = hand_over(pool, NULL, pool->store.arena->device->number, graph);
    if (status)
        pool_hold_end(pool);
    return status;
}

tarn_status tarn_pool_unhold(tarn_pool *public)
{
    struct pool *pool = pool_of_public(public);
    tarn_status status = pool_check(public);
    if (status)
        return status;
    struct arena *arena = pool->store.arena;
    unsigned held = atomic_load(&pool->held);
    while (held && !atomic_compare_exchange_weak(&pool->held, &held, held - 1))
        ;
    if (!held)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the pool is not held by tarn_pool_hold()");
    pool_hold_end(pool);
    pools_collect(arena);
    return TARN_OK;
}
