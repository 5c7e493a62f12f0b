/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the open scopes, and each thread's list of the scopes that it is in. `scopes_lock` protects
 * everything except the links of a thread's list, which only that thread reads. A scope exists
 * while it is open or a thread is in it. Newer scopes have larger values.
 *
 * A request looks only at scopes that may apply to it: of its thread, of its stream, of the whole
 * device, and of the capture that its stream takes part in, which it finds by the driver's number
 * of that capture. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "memory/heap/traced.h"
#include "memory/pinned/pinned.h"
#include "memory/pool/pool.h"
#include "memory/settings/hooks.h"

/* The public kinds, and the one of captures. */
enum { SCOPE_CAPTURE = TARN_SCOPE_ALWAYS + 1 };

struct scope {
    tarn_scope value;
    int kind, device;
    atomic_bool open;
    unsigned threads;      /* threads that are in it, if these keep it open */
    struct pool *pool;     /* with a reference while the scope is open; NULL: the default pool */
    struct thread *thread; /* thread scopes: the thread that began it; NULL when that has ended */
    struct stream *stream; /* stream and capture scopes: the stream */
    tarn_stream named;     /* the same, as the value of its lease */
    bool announced;        /* capture scopes: the program begins the capture itself */
    /* Capture scopes: the keeper of the pinned memory that it uses; NULL until needed. */
    struct pinned_keeper *pinned;
    /* Capture scopes: the driver's number of the capture, when last asked; 0: unknown. */
    uint64_t capture;

    /* In the trees of open scopes. */
    struct tree_node by_value, by_place, by_capture;
    bool placed;                   /* it is in the tree `by_place` */
    struct scope *older, *newer;   /* scopes of the same stream, or of the whole device */
    struct scope *next, *previous; /* in the list `unsure` */
    bool is_unsure;
};

/* A thread's membership in a scope. */
struct joined {
    struct joined *next; /* the next older one */
    struct scope *scope;
    tarn_scope since; /* the newest scope when the thread joined */
};

static mutex scopes_lock = MUTEX_INITIALIZER(LOCK_SCOPES);
static struct tree by_value; /* open scopes by value */
static struct tree by_place; /* open scopes by place (place_order()) */
/* Open capture scopes whose number is known, by number. */
static struct tree by_capture;
/* Open capture scopes whose number may change: unknown, or announced. */
static struct scope *unsure;
/* Per device: the newest open scope of kind TARN_SCOPE_ALWAYS. */
static struct scope *of_all[TARN_MAX_DEVICES];
/* Of the newest scope; of the newest capture scope. */
static tarn_scope last_value, last_capture;
static atomic_uint shared_scopes; /* number of open scopes other than thread scopes */
/* Number of open capture scopes, which streams can join without calling tarn. */
static atomic_uint capture_scopes;
static struct object_pool scope_objects = OBJECT_POOL(struct scope);
static struct object_pool joined_objects = OBJECT_POOL(struct joined);

/* The open scopes ------------------------------------------------------------------------------ */

#define BY_VALUE(node) TREE_ENTRY(node, struct scope, by_value)
#define BY_PLACE(node) TREE_ENTRY(node, struct scope, by_place)
#define BY_CAPTURE(node) TREE_ENTRY(node, struct scope, by_capture)

static bool value_is_before(const struct tree_node *a, const struct tree_node *b)
{
    return BY_VALUE(a)->value < BY_VALUE(b)->value;
}

static bool value_is_from(const struct tree_node *node, uint64_t value)
{
    return BY_VALUE(node)->value >= value;
}

/* The order of places. At one place only one scope may be open: of a pool, a kind and a stream,
 * thread or device; and of a stream, one capture of any pool. */
static int place_order(const struct scope *a, const struct scope *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->pool != b->pool && a->kind != SCOPE_CAPTURE)
        return (uintptr_t)a->pool < (uintptr_t)b->pool ? -1 : 1;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->thread != b->thread && a->kind == TARN_SCOPE_THREAD)
        return (uintptr_t)a->thread < (uintptr_t)b->thread ? -1 : 1;
    if (a->stream != b->stream)
        return (uintptr_t)a->stream < (uintptr_t)b->stream ? -1 : 1;
    return (a->named > b->named) - (a->named < b->named);
}

static bool place_is_before(const struct tree_node *a, const struct tree_node *b)
{
    return place_order(BY_PLACE(a), BY_PLACE(b)) < 0;
}

/* Whether a scope of the same place is open. */
static bool is_open_locked(const struct scope *like)
{
    const struct tree_node *node = by_place.root;
    int order;
    while (node && (order = place_order(BY_PLACE(node), like)) != 0)
        node = node->sides[order < 0];
    return node != NULL;
}

/* Orders scopes by capture, then by age. The number of an announced scope's capture may be out of
 * date, so two scopes may have the same one. */
static bool capture_is_before(const struct tree_node *a, const struct tree_node *b)
{
    const struct scope *x = BY_CAPTURE(a), *y = BY_CAPTURE(b);
    return x->capture != y->capture ? x->capture < y->capture : x->value < y->value;
}

static bool capture_is_from(const struct tree_node *node, uint64_t capture)
{
    return BY_CAPTURE(node)->capture >= capture;
}

static void capture_set_locked(struct scope *scope, uint64_t capture)
{
    if (scope->capture)
        tree_remove(&by_capture, &scope->by_capture);
    scope->capture = capture;
    if (capture)
        tree_insert_by(&by_capture, &scope->by_capture, capture_is_before);
}

static void unsure_end_locked(struct scope *scope)
{
    if (!scope->is_unsure)
        return;
    scope->is_unsure = false;
    *(scope->previous ? &scope->previous->next : &unsure) = scope->next;
    if (scope->next)
        scope->next->previous = scope->previous;
}

/* The newest scope of the list that a scope belongs to; NULL for a thread scope, which is in
 * none. */
static struct scope **newest_of(const struct scope *scope)
{
    if (scope->kind == TARN_SCOPE_THREAD)
        return NULL;
    return scope->stream ? &scope->stream->scopes : &of_all[scope->device];
}

static void enter_locked(struct scope *scope)
{
    struct scope **newest = newest_of(scope);
    tree_insert_by(&by_value, &scope->by_value, value_is_before);
    tree_insert_by(&by_place, &scope->by_place, place_is_before);
    scope->placed = true;
    if (newest) {
        scope->older = *newest;
        if (scope->older)
            scope->older->newer = scope;
        *newest = scope;
    }
    if (scope->kind == SCOPE_CAPTURE) {
        scope->is_unsure = true;
        scope->next = unsure;
        if (unsure)
            unsure->previous = scope;
        unsure = scope;
    }
}

static void displace_locked(struct scope *scope)
{
    if (scope->placed)
        tree_remove(&by_place, &scope->by_place);
    scope->placed = false;
}

static void remove_locked(struct scope *scope)
{
    struct scope **newest = newest_of(scope);
    tree_remove(&by_value, &scope->by_value);
    displace_locked(scope);
    capture_set_locked(scope, 0);
    unsure_end_locked(scope);
    if (!newest)
        return;
    *(scope->newer ? &scope->newer->older : newest) = scope->older;
    if (scope->older)
        scope->older->newer = scope->newer;
}

static struct scope *find_locked(tarn_scope value)
{
    struct tree_node *node = tree_find_first(&by_value, value_is_from, value);
    return node && BY_VALUE(node)->value == value ? BY_VALUE(node) : NULL;
}

static struct scope *find_capture_locked(const struct stream *stream)
{
    struct scope *scope = stream->scopes;
    while (scope && scope->kind != SCOPE_CAPTURE)
        scope = scope->older;
    return scope;
}

/* Routing -------------------------------------------------------------------------------------- */

/* A stream that the driver does not know takes part in no capture. */
static tarn_status ask(const struct stream *stream, struct driver_capture *capture)
{
    struct error_before before;
    error_attempt_begin(&before);
    tarn_status status = stream_ask_capture(stream, capture);
    bool gone = status == TARN_ERROR_INVALID_STREAM || status == TARN_ERROR_INVALID_ARGUMENT;
    error_attempt_end(&before, gone ? TARN_OK : status);
    return gone ? TARN_OK : status;
}

/* Asks the driver for the numbers of the scopes in `unsure`. */
static tarn_status ask_unsure_locked(void)
{
    tarn_status status = TARN_OK;
    for (struct scope *scope = unsure, *next; scope && !status; scope = next) {
        struct driver_capture begun = {0};
        next = scope->next;
        status = ask(scope->stream, &begun);
        if (status || begun.state != DRIVER_CAPTURE_ACTIVE)
            continue;
        capture_set_locked(scope, begun.id);
        if (!scope->announced)
            unsure_end_locked(scope);
    }
    return status;
}

/* The newest scope of a capture on a device, or NULL. */
static struct scope *find_by_capture_locked(uint64_t capture, int device)
{
    struct scope *found = NULL;
    struct tree_node *node = tree_find_first(&by_capture, capture_is_from, capture);
    for (; node && BY_CAPTURE(node)->capture == capture; node = tree_next(node))
        if (BY_CAPTURE(node)->device == device)
            found = BY_CAPTURE(node);
    return found;
}

/* The scope of the capture that a stream takes part in, or NULL. Fails if the driver does not
 * answer, because the graph could otherwise use memory of a pool that it does not hold. */
static tarn_status capture_scope_locked(const struct stream *stream, struct scope **scope)
{
    struct driver_capture own = {0};
    *scope = find_capture_locked(stream);
    if (*scope && stream_awaits_end(stream))
        return TARN_OK;
    *scope = NULL;
    tarn_status status = ask(stream, &own);
    if (status || own.state != DRIVER_CAPTURE_ACTIVE)
        return status;
    *scope = find_by_capture_locked(own.id, stream->device);
    if (!*scope) {
        status = ask_unsure_locked();
        if (!status)
            *scope = find_by_capture_locked(own.id, stream->device);
    }
    return status;
}

/* The newest stream scope of a stream's present lease, or NULL. */
static const struct scope *stream_scope_locked(const struct stream *stream)
{
    const struct scope *scope = stream->scopes;
    while (scope && (scope->kind != TARN_SCOPE_STREAM || scope->named != stream_value(stream)))
        scope = scope->older;
    return scope;
}

/* The newest of the thread's scopes that applies to a request on the device. */
static const struct joined *newest_of_thread(int device)
{
    const struct thread *thread = thread_here;
    const struct joined *joined = thread ? thread->joined : NULL;
    while (joined && (!atomic_load(&joined->scope->open) || joined->scope->device != device))
        joined = joined->next;
    return joined;
}

static tarn_status route_to_default(const struct stream *stream, struct route *route)
{
    struct arena *arena = NULL;
    tarn_status status = arena_of(device_at(stream->device), &arena);
    if (!status)
        *route = (struct route){.store = store_default(arena), .holds_on = true};
    return status;
}

/* Sets the pool of a route; NULL keeps the present one. */
static void route_to_locked(struct route *route, struct pool *pool)
{
    if (!pool)
        return;
    atomic_fetch_add(&pool->visits, 1);
    route->visited = pool;
    route->store = &pool->store;
}

tarn_status route_of(struct stream *stream, struct route *route)
{
    tarn_status status = route_to_default(stream, route);
    if (status)
        return status;
    if (!newest_of_thread(stream->device) && !atomic_load(&shared_scopes))
        return TARN_OK;

    mutex_lock(&scopes_lock);
    const struct joined *joined = newest_of_thread(stream->device); /* it stays open meanwhile */
    tarn_scope since = joined ? joined->since : 0;
    struct pool *pool = joined ? joined->scope->pool : NULL;
    struct scope *captured = NULL;
    if (atomic_load(&capture_scopes) && last_capture > since)
        status = capture_scope_locked(stream, &captured);
    const struct scope *newest[] = {stream_scope_locked(stream), of_all[stream->device], captured};
    for (int i = 0; i < 3; i++) {
        if (!newest[i] || newest[i]->value < since)
            continue;
        since = newest[i]->value;
        pool = newest[i]->pool;
    }
    if (!status)
        route_to_locked(route, pool);
    mutex_unlock(&scopes_lock);
    route->holds_on = atomic_load(&capture_scopes) == 0;
    return status;
}

/* The pool of the capture that a stream takes part in, or NULL. */
static tarn_status capture_pool_locked(const struct stream *stream, struct pool **pool)
{
    struct scope *scope = NULL;
    tarn_status status = capture_scope_locked(stream, &scope);
    *pool = scope ? scope->pool : NULL;
    return status;
}

tarn_status route_past_scopes(struct stream *stream, bool captured, struct route *route)
{
    tarn_status status = route_to_default(stream, route);
    if (status || !captured || !atomic_load(&capture_scopes))
        return status;
    struct pool *pool = NULL;
    mutex_lock(&scopes_lock);
    status = capture_pool_locked(stream, &pool);
    if (!status)
        route_to_locked(route, pool);
    mutex_unlock(&scopes_lock);
    return status;
}

void route_end(const struct route *route)
{
    if (route->visited)
        atomic_fetch_sub(&route->visited->visits, 1);
}

/* Beginning and ending ------------------------------------------------------------------------- */

static void join_locked(struct thread *thread, struct scope *scope, struct joined *joined)
{
    scope->threads++;
    *joined = (struct joined){.next = thread->joined, .scope = scope, .since = ++last_value};
    thread->joined = joined;
    thread_forget_caches(thread);
}

static void tell(enum trace_kind kind, const struct scope *scope)
{
    static const char *const names[] = {[TARN_SCOPE_THREAD] = "thread",
                                        [TARN_SCOPE_STREAM] = "stream",
                                        [TARN_SCOPE_ALWAYS] = "always",
                                        [SCOPE_CAPTURE] = "capture"};
    static const uint64_t everybodys[2];
    const uint64_t *pool = scope->pool ? scope->pool->store.id : everybodys;
    if (!trace_is_on())
        return;
    uint32_t place =
        scope->stream ? trace_place_of_stream(scope->stream, (unsigned)(scope->named >> 32), pool)
                      : trace_place_of_device(scope->device, pool);
    trace_event(kind, place, trace_text(names[scope->kind]), scope->value, 0);
}

/* Turns on or off that pinned memory asks which capture a stream takes part in. */
static void route_pinned(bool asks)
{
    atomic_store(&upper_hooks.pinned_route, asks ? scope_pinned : NULL);
    atomic_store(&upper_hooks.pinned_capture, asks ? scope_pinned_keeper : NULL);
}

/* Removes a scope from the open ones. The caller drops the reference to the pool, without the
 * lock. */
static void close_locked(struct scope *scope)
{
    remove_locked(scope);
    tell(TRACE_scope_end, scope);
    atomic_store(&scope->open, false);
    if (scope->kind != TARN_SCOPE_THREAD)
        atomic_fetch_sub(&shared_scopes, 1);
    if (scope->kind == SCOPE_CAPTURE && atomic_fetch_sub(&capture_scopes, 1) == 1)
        route_pinned(false);
}

/* Ends the thread's newest membership. If it was the last thread in a scope that no other thread
 * can end, the scope ends too. Returns a scope to free, and the pool of a scope that ended; the
 * caller drops its reference without the lock. */
static struct scope *leave_locked(struct thread *thread, struct joined **joined, struct pool **pool)
{
    *joined = thread->joined;
    struct scope *scope = (*joined)->scope;
    thread->joined = (*joined)->next;
    thread_forget_caches(thread);
    if (scope->thread == thread) {
        displace_locked(scope); /* a later thread may have the same address */
        scope->thread = NULL;
    }
    bool last = --scope->threads == 0;
    bool ends = last && atomic_load(&scope->open);
    *pool = ends ? scope->pool : NULL;
    if (ends)
        close_locked(scope);
    return last ? scope : NULL;
}

/* The common part of both kinds of begin, with checked arguments. */
static tarn_status begin(struct pool *pool, int device, int kind, struct stream *stream,
                         bool announced, tarn_scope *result)
{
    struct thread *thread = thread_self();
    struct scope *scope = thread ? object_alloc(&scope_objects) : NULL;
    struct joined *joined =
        scope && kind == TARN_SCOPE_THREAD ? object_alloc(&joined_objects) : NULL;
    tarn_status status = TARN_OK;
    if (!scope || (kind == TARN_SCOPE_THREAD && !joined))
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a scope");
    else if (pool && !pool_retain(pool))
        status = failed(TARN_ERROR_INVALID_ARGUMENT,
                        "the pool's last reference was dropped: it cannot be used");
    if (status) {
        object_free(&joined_objects, joined);
        object_free(&scope_objects, scope);
        return status;
    }

    *scope = (struct scope){
        .kind = kind, .device = device, .pool = pool, .thread = thread, .stream = stream};
    scope->announced = announced;
    mutex_lock(&scopes_lock);
    scope->named = stream ? stream_value(stream) : 0;
    bool twice = is_open_locked(scope);
    if (!twice) {
        scope->value = ++last_value;
        atomic_store(&scope->open, true);
        enter_locked(scope);
        if (kind == TARN_SCOPE_THREAD)
            join_locked(thread, scope, joined);
        else
            atomic_fetch_add(&shared_scopes, 1);
        last_capture = kind == SCOPE_CAPTURE ? scope->value : last_capture;
        if (kind == SCOPE_CAPTURE && atomic_fetch_add(&capture_scopes, 1) == 0)
            route_pinned(true);
        tell(TRACE_scope_begin, scope);
        *result = scope->value;
    }
    mutex_unlock(&scopes_lock);
    if (!twice) {
        if (kind != TARN_SCOPE_THREAD)
            process_changed();
        return TARN_OK;
    }
    if (pool)
        pool_let_go(pool);
    object_free(&joined_objects, joined);
    object_free(&scope_objects, scope);
    if (kind == SCOPE_CAPTURE)
        return failed(TARN_ERROR_CAPTURE,
                      "stream %#llx of device %d captures already, or its capture was announced",
                      (unsigned long long)stream_value(stream), stream->device);
    return failed(TARN_ERROR_SCOPE, "a scope of pool (%llu, %llu) is already open for %s",
                  pool ? (unsigned long long)pool->store.id[0] : 0,
                  pool ? (unsigned long long)pool->store.id[1] : 0,
                  kind == TARN_SCOPE_THREAD   ? "this thread"
                  : kind == TARN_SCOPE_STREAM ? "this stream"
                                              : "the whole device");
}

tarn_status tarn_scope_begin(tarn_pool *public, tarn_scope_kind kind, tarn_stream stream,
                             tarn_scope *scope)
{
    const struct store *store = store_of_public(public);
    struct stream *found = NULL;
    tarn_status status = pool_check_any(public);
    if (status)
        return status;
    if (!scope || (unsigned)kind > TARN_SCOPE_ALWAYS)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "scope is NULL, or %d is not a kind of scope",
                      (int)kind);
    int device = store->arena->device->number;
    if (kind == TARN_SCOPE_THREAD && thread_device() != device)
        return failed(
            TARN_ERROR_INVALID_DEVICE,
            "the pool is of device %d, but device %d is current: call tarn_device_set() first",
            device, thread_device());
    if (kind == TARN_SCOPE_STREAM) {
        status = stream_find(stream, thread_device(), &found);
        if (!status && found->device != device)
            status =
                failed(TARN_ERROR_INVALID_STREAM,
                       "the stream is of device %d, the pool of device %d", found->device, device);
    }
    struct pool *pool = store_is_default(store) ? NULL : pool_of_public(public);
    return status ? status : begin(pool, device, (int)kind, found, false, scope);
}

static tarn_status not_open(tarn_scope value)
{
    return failed(TARN_ERROR_SCOPE, "scope %llu is not open: it has ended, or never was",
                  (unsigned long long)value);
}

/* The calling thread's membership of a thread scope, which may have ended; NULL: it has none. */
static const struct joined *membership_locked(tarn_scope value)
{
    const struct joined *joined = thread_here ? thread_here->joined : NULL;
    while (joined && joined->scope->value != value)
        joined = joined->next;
    return joined;
}

/* Whether the calling thread may end or leave a thread scope now; if not, the status says why. */
static tarn_status check_order_locked(const struct scope *scope, const struct joined *joined)
{
    if (!joined)
        return failed(TARN_ERROR_SCOPE,
                      "scope %llu ends in the thread that began it, and is left by those that "
                      "joined it: this thread is not in it",
                      (unsigned long long)scope->value);
    if (joined != thread_here->joined)
        return failed(TARN_ERROR_SCOPE,
                      "scope %llu is not the newest of this thread: scope %llu is; end that first",
                      (unsigned long long)scope->value,
                      (unsigned long long)thread_here->joined->scope->value);
    return TARN_OK;
}

static void scope_free(struct scope *scope)
{
    object_free(&scope_objects, scope);
}

tarn_status tarn_scope_end(tarn_scope value)
{
    tarn_status status = memory_ready();
    if (status)
        return status;
    struct joined *left = NULL;
    struct scope *gone = NULL;
    struct pool *pool = NULL, *last = NULL; /* of a scope that ends here, or with its last worker */
    mutex_lock(&scopes_lock);
    const struct joined *joined = membership_locked(value);
    struct scope *scope = joined ? joined->scope : find_locked(value);
    if (!scope || scope->kind == SCOPE_CAPTURE)
        status = not_open(value);
    else if (scope->kind == TARN_SCOPE_THREAD)
        status = check_order_locked(scope, joined);
    if (!status && (scope->kind != TARN_SCOPE_THREAD || scope->thread == thread_here)) {
        pool = scope->pool;
        close_locked(scope);
    }
    if (!status)
        gone = scope->kind == TARN_SCOPE_THREAD ? leave_locked(thread_here, &left, &last) : scope;
    mutex_unlock(&scopes_lock);
    if (status)
        return status;
    if (pool || gone)
        process_changed();
    object_free(&joined_objects, left);
    scope_free(gone);
    if (pool)
        pool_release(pool);
    if (last)
        pool_release(last);
    return TARN_OK;
}

tarn_status tarn_scope_join(tarn_scope value)
{
    tarn_status status = memory_ready();
    struct thread *thread = status ? NULL : thread_self();
    struct joined *joined = thread ? object_alloc(&joined_objects) : NULL;
    if (status)
        return status;
    if (!joined)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to join a scope");
    mutex_lock(&scopes_lock);
    struct scope *scope = find_locked(value);
    const struct joined *before = thread->joined;
    while (before && before->scope != scope)
        before = before->next;
    if (!scope)
        status = not_open(value);
    else if (scope->kind != TARN_SCOPE_THREAD)
        status = failed(TARN_ERROR_SCOPE,
                        "scope %llu cannot be joined: it is not a TARN_SCOPE_THREAD scope",
                        (unsigned long long)value);
    else if (before)
        status = failed(TARN_ERROR_SCOPE, "this thread is already in scope %llu",
                        (unsigned long long)value);
    else
        join_locked(thread, scope, joined);
    mutex_unlock(&scopes_lock);
    if (status)
        object_free(&joined_objects, joined);
    return status;
}

void scopes_of_thread_end(struct thread *thread)
{
    while (thread->joined) {
        struct joined *joined = NULL;
        struct pool *pool = NULL;
        mutex_lock(&scopes_lock);
        struct scope *gone = leave_locked(thread, &joined, &pool);
        mutex_unlock(&scopes_lock);
        if (gone)
            process_changed();
        if (pool)
            pool_let_go(pool);
        object_free(&joined_objects, joined);
        scope_free(gone);
    }
}

/* Captures ------------------------------------------------------------------------------------- */

tarn_status scope_begin_capture(struct pool *pool, struct stream *stream, bool announced,
                                tarn_scope *scope)
{
    return begin(pool, stream->device, SCOPE_CAPTURE, stream, announced, scope);
}

struct pool *scope_capture_hold(const struct stream *stream, struct pinned_keeper **pinned)
{
    mutex_lock(&scopes_lock);
    struct scope *scope = find_capture_locked(stream);
    struct pool *pool = scope && pool_hold(scope->pool) ? scope->pool : NULL;
    if (pool) {
        *pinned = scope->pinned;
        scope->pinned = NULL;
    }
    mutex_unlock(&scopes_lock);
    return pool;
}

struct pool *scope_end_capture(const struct stream *stream, struct pinned_keeper **pinned)
{
    mutex_lock(&scopes_lock);
    struct scope *scope = find_capture_locked(stream);
    struct pool *pool = scope ? scope->pool : NULL;
    if (scope) {
        *pinned = scope->pinned;
        close_locked(scope);
    }
    mutex_unlock(&scopes_lock);
    if (!scope)
        return NULL;
    process_changed();
    scope_free(scope);
    return pool;
}

struct pinned_pool *scope_pinned(struct stream *stream)
{
    struct pinned_pool *made = NULL, *found = NULL;
    for (int attempt = 0; attempt < 2 && !found; attempt++) {
        struct pool *pool = NULL;
        mutex_lock(&scopes_lock);
        (void)capture_pool_locked(stream, &pool);
        if (pool && !pool->pinned && made) {
            pinned_pool_own(made, &pool->store.holds);
            pool->pinned = made;
            made = NULL;
        }
        found = pool ? pool->pinned : NULL;
        if (found)
            pinned_pool_retain(found);
        mutex_unlock(&scopes_lock);
        if (!pool)
            break;
        /* Without a keeper the default pool serves; it also keeps memory of captures. */
        if (!found && attempt == 0) {
            struct error_before before;
            error_attempt_begin(&before);
            (void)pinned_pool_create(&made);
            error_attempt_end(&before, TARN_OK);
        }
    }
    pinned_pool_release(made);
    return found;
}

struct pinned_keeper *scope_pinned_keeper(struct stream *stream)
{
    struct pinned_pool *pool = scope_pinned(stream);
    struct pinned_keeper *all = pool ? pinned_pool_keeper(pool) : NULL, *found = NULL;
    struct scope *scope = NULL;
    if (!pool)
        return NULL;
    mutex_lock(&scopes_lock);
    (void)capture_scope_locked(stream, &scope);
    if (scope && scope->pool && !scope->pinned)
        scope->pinned = pinned_capture_create(all);
    found = scope ? scope->pinned : NULL;
    if (found)
        pinned_keeper_retain(found);
    mutex_unlock(&scopes_lock);
    if (found)
        pinned_pool_release(pool);
    return found ? found : all;
}

void scope_settle_pinned(struct pool *pool)
{
    mutex_lock(&scopes_lock);
    struct pinned_pool *left = pool->pinned;
    mutex_unlock(&scopes_lock);
    pinned_pool_settle(left);
}
