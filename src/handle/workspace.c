/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Scratch memory of libraries. A workspace belongs to a handle and serves one stream. If it was
 * created in a capture, it serves only that capture: then it is a block of the capture's pool, and
 * ends with it.
 *
 * The workspace that an owned vendor handle points to (handle->bound) is never freed while it does:
 * a clear marks it, and the owner's next bind releases it. The same is true for a workspace that
 * serves the owner's calls of another library (handle->lent), until the next one replaces it.
 * PyTorch's clear cannot promise this (aten/src/ATen/cuda/CublasHandlePool.cpp: a clear between a
 * get and its GEMM). Locks: shelf, then handle; memory is allocated and freed with neither held. */
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "handle/handle.h"
#include "memory/malloc.h"
#include "memory/pool/pool.h"

#include <tarn/memory.h>

#define STAND_IN_BYTES 512 /* for a handle that is not used yet */

static struct object_pool workspace_objects = OBJECT_POOL(struct workspace);

static mutex stats_lock = MUTEX_INITIALIZER(LOCK_WORKSPACE_STATS);
static tarn_workspace_stats stats[TARN_MAX_DEVICES]; /* stats_lock */
static atomic_uint_fast64_t uses;                    /* of workspaces, ever */
static atomic_bool over[TARN_MAX_DEVICES];           /* there may be more than the settings allow
                                                        unused */

/* Creating and freeing ------------------------------------------------------------------------- */

static void count_made(const struct workspace *workspace)
{
    mutex_lock(&stats_lock);
    tarn_workspace_stats *of = &stats[workspace->device];
    of->count++;
    of->allocations++;
    of->bytes += workspace->size;
    if (of->bytes > of->peak_bytes)
        of->peak_bytes = of->bytes;
    if (workspace->capture) {
        of->captured_count++;
        of->captured_bytes += workspace->size;
    }
    if (of->bytes - of->captured_bytes > memory_config()->idle_workspaces)
        atomic_store(&over[workspace->device], true);
    mutex_unlock(&stats_lock);
}

static void count_gone(const struct workspace *workspace, bool leaked)
{
    mutex_lock(&stats_lock);
    tarn_workspace_stats *of = &stats[workspace->device];
    of->count--;
    of->bytes -= workspace->size;
    if (workspace->capture) {
        of->captured_count--;
        of->captured_bytes -= workspace->size;
    }
    if (workspace->cleared)
        of->deferred_bytes -= workspace->size;
    if (leaked)
        of->leaked_bytes += workspace->size;
    mutex_unlock(&stats_lock);
}

static tarn_status workspace_create(const struct purpose *purpose, size_t size,
                                    struct workspace **result)
{
    static _Atomic(tarn_tag) tag;
    struct own wanted = {.stream = purpose->stream, .captured = purpose->capture != 0};
    struct workspace *made = object_alloc(&workspace_objects);
    if (!made)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a workspace");
    *made = (struct workspace){.stream = purpose->stream,
                               .incarnation = purpose->incarnation,
                               .device = purpose->stream->device,
                               .capture = purpose->capture,
                               .size = size};
    wanted.tag = atomic_load_explicit(&tag, memory_order_relaxed);
    if (!wanted.tag && tarn_tag_intern("workspace", &wanted.tag) == TARN_OK)
        atomic_store_explicit(&tag, wanted.tag, memory_order_relaxed);
    tarn_status status = memory_alloc_own(&wanted, size, &made->pool, &made->pointer);
    if (status) {
        object_free(&workspace_objects, made);
        return failed_within(status, "a workspace of %zu bytes", size);
    }
    count_made(made);
    *result = made;
    return TARN_OK;
}

void workspaces_free(struct workspace *list)
{
    while (list) {
        struct workspace *next = list->next;
        count_gone(list, false);
        if (list->pointer)
            (void)memory_free(list->pointer);
        object_free(&workspace_objects, list);
        list = next;
    }
}

/* Whether its stream was retired: then no handle will be bound to it again. */
static bool is_stale(const struct workspace *workspace)
{
    return atomic_load_explicit(&workspace->stream->incarnation, memory_order_acquire) !=
           workspace->incarnation;
}

/* Whether its owner, or the vendor's handle, may point to it. */
static bool is_in_use(const struct handle *handle, const struct workspace *workspace)
{
    return workspace == handle->bound || workspace == handle->lent;
}

struct workspace *workspaces_sweep_locked(struct handle *handle, bool all)
{
    struct workspace *gone = NULL, **link = &handle->workspaces;
    while (*link) {
        struct workspace *workspace = *link;
        bool of_graph = workspace->capture || workspace->shared; /* a graph may use it */
        bool unused = workspace->cleared || (!of_graph && is_stale(workspace));
        if (!all && (is_in_use(handle, workspace) || !unused)) {
            link = &workspace->next;
            continue;
        }
        *link = workspace->next;
        workspace->next = gone;
        gone = workspace;
    }
    return gone;
}

struct workspace *workspaces_of_captures(struct workspace **list)
{
    struct workspace *captured = NULL;
    for (struct workspace **link = list; *link;) {
        struct workspace *workspace = *link;
        if (!workspace->capture) {
            link = &workspace->next;
            continue;
        }
        *link = workspace->next;
        workspace->next = captured;
        captured = workspace;
    }
    return captured;
}

/* Choosing ------------------------------------------------------------------------------------- */

/* The capture that the stream takes part in, as the driver says; 0: none, or an invalidated one,
 * which gives no graph. The legacy stream takes part in none, although the driver refuses the
 * question while a blocking stream captures. */
static tarn_status ask_capture(const struct stream *stream, uint64_t *capture)
{
    struct driver_capture answer = {0};
    tarn_status status = stream->native ? stream_ask_capture(stream, &answer) : TARN_OK;
    *capture = !status && answer.state == DRIVER_CAPTURE_ACTIVE ? answer.id : 0;
    return status;
}

static struct workspace *find_locked(const struct handle *handle, const struct purpose *purpose)
{
    for (struct workspace *at = handle->workspaces; at; at = at->next)
        if (at->stream == purpose->stream && at->incarnation == purpose->incarnation &&
            at->capture == purpose->capture && !at->cleared)
            return at;
    return NULL;
}

/* The cached workspace for a purpose, large enough; to create one, the lock is released. Only the
 * owner adds to the list. */
static tarn_status cached_relocking(struct handle *handle, const struct purpose *purpose,
                                    struct workspace **result)
{
    size_t size = workspace_bytes(handle->library, handle->shelf->device);
    struct workspace *found = find_locked(handle, purpose), *made = NULL;
    if (found && found->size >= size) {
        found->used = atomic_fetch_add_explicit(&uses, 1, memory_order_relaxed);
        *result = found;
        return TARN_OK;
    }
    mutex_unlock(&handle->lock);
    if (purpose->capture)
        capture_note(purpose->stream, purpose->capture);
    tarn_status status = workspace_create(purpose, size, &made);
    mutex_lock(&handle->lock);
    if (status)
        return status;
    found = find_locked(handle, purpose);
    if (found && !purpose->capture) { /* the smaller one is freed; a graph keeps its workspace */
        found->cleared = true;
        mutex_lock(&stats_lock);
        stats[found->device].deferred_bytes += found->size;
        mutex_unlock(&stats_lock);
    }
    made->used = atomic_fetch_add_explicit(&uses, 1, memory_order_relaxed);
    made->next = handle->workspaces;
    handle->workspaces = made;
    *result = made;
    return TARN_OK;
}

/* If the stream takes part in a capture that tarn does not know of, that shares the stream's
 * workspace, and its graph uses it. Without a known capture the driver is asked nowhere else. */
static void note_sharing(struct workspace *workspace)
{
    uint64_t capture = 0;
    if (captures_open_anywhere() || ask_capture(workspace->stream, &capture) || !capture)
        return;
    workspace->shared = !workspace->shared || workspace->shared == capture ? capture : ANY_CAPTURE;
}

static bool sets_workspace(const struct handle *handle)
{
    const struct entry *entry = handle->library;
    return entry->row->workspace_size && entry->calls.set_workspace &&
           !entry->row->workspace_by_call;
}

bool workspace_is_ours(const struct handle *handle)
{
    return sets_workspace(handle) && workspace_policy() != TARN_WORKSPACE_LIBRARY;
}

tarn_status workspace_stand_in(struct stream *stream, struct workspace **workspace)
{
    const struct purpose purpose = {
        .stream = stream,
        .incarnation = atomic_load_explicit(&stream->incarnation, memory_order_acquire)};
    return workspace_create(&purpose, STAND_IN_BYTES, workspace);
}

tarn_status workspace_capture(const struct handle *handle, const struct stream *stream,
                              uint64_t *capture)
{
    *capture = 0;
    return workspace_is_settled(handle) ? TARN_OK : ask_capture(stream, capture);
}

bool workspace_is_settled(const struct handle *handle)
{
    return captures_open_anywhere() == 0 || !sets_workspace(handle);
}

void workspaces_follow(struct handle *handle, struct stream *stream)
{
    const struct purpose from = {.stream = handle->used_on,
                                 .incarnation = handle->used_incarnation};
    const struct purpose to = {
        .stream = stream,
        .incarnation = atomic_load_explicit(&stream->incarnation, memory_order_relaxed)};
    struct error_before before;
    error_attempt_begin(&before);
    mutex_lock(&handle->lock);
    struct workspace *workspace = find_locked(handle, &from);
    if (workspace && workspace->pointer && !is_stale(workspace) && !find_locked(handle, &to) &&
        tarn_record_stream(workspace->pointer, stream_value(stream)) == TARN_OK) {
        workspace->stream = to.stream;
        workspace->incarnation = to.incarnation;
    }
    mutex_unlock(&handle->lock);
    error_attempt_end(&before, TARN_OK);
}

bool workspace_is_given(const struct handle *handle, const struct stream *stream)
{
    const struct workspace *given = handle->bound;
    return given && !given->cleared && given->stream == stream && !is_stale(given);
}

tarn_status workspace_wanted_relocking(struct handle *handle, const struct purpose *purpose,
                                       struct workspace **workspace)
{
    *workspace = NULL;
    tarn_workspace_policy now = workspace_policy();
    if (!sets_workspace(handle) || now == TARN_WORKSPACE_LIBRARY ||
        (now == TARN_WORKSPACE_PER_CALL && purpose->capture == 0))
        return TARN_OK;
    tarn_status status = cached_relocking(handle, purpose, workspace);
    if (!status && !purpose->capture)
        note_sharing(*workspace);
    return status;
}

/* For a call ----------------------------------------------------------------------------------- */

/* Lends a handle's workspace for a purpose to its owner's calls of another library, in place of the
 * one that it lent before. False, with nothing lent, if there is none of at least `size` bytes, or
 * `purpose` is NULL. Called by the owner of both handles. */
static bool lend(struct handle *lender, const struct purpose *purpose, size_t size, void **pointer,
                 size_t *bytes)
{
    bool may = purpose && workspace_policy() == TARN_WORKSPACE_CACHED;
    mutex_lock(&lender->lock);
    struct workspace *found = may ? find_locked(lender, purpose) : NULL;
    lender->lent = found && found->size >= size ? found : NULL;
    bool lends = lender->lent;
    if (lends) {
        *pointer = found->pointer;
        *bytes = found->size;
    }
    struct workspace *gone = workspaces_sweep_locked(lender, false);
    mutex_unlock(&lender->lock);
    workspaces_free(gone);
    return lends;
}

/* If the handle already has its own workspace, that continues to serve, so that the caller's
 * pointer stays valid when the lender gets one. */
tarn_status workspace_give(struct handle *handle, struct handle *lender, struct stream *stream,
                           void **pointer, size_t *size)
{
    struct purpose purpose = {.stream = stream};
    struct workspace *workspace = NULL;
    tarn_status status = captures_open_anywhere() ? ask_capture(stream, &purpose.capture) : TARN_OK;
    if (status)
        return status;
    size_t wanted = workspace_bytes(handle->library, handle->shelf->device);
    mutex_lock(&handle->lock);
    purpose.incarnation = handle->incarnation;
    if (lender) {
        const struct workspace *own = find_locked(handle, &purpose);
        bool has_own = own && own->size >= wanted;
        mutex_unlock(&handle->lock);
        bool lends = lend(lender, has_own ? NULL : &purpose, wanted, pointer, size);
        mutex_lock(&handle->lock);
        if (lends)
            handle->bound = NULL;
        lender = lends ? lender : NULL;
    }
    if (!lender)
        status = cached_relocking(handle, &purpose, &workspace);
    if (!status && workspace && !purpose.capture && handle->bound != workspace)
        note_sharing(workspace);
    if (!status && workspace) {
        handle->bound = workspace; /* the caller has the pointer, so a clear by others waits for its
                                      next call */
        *pointer = workspace->pointer;
        *size = workspace->size;
    }
    struct workspace *gone = workspaces_sweep_locked(handle, false);
    mutex_unlock(&handle->lock);
    workspaces_free(gone);
    if (!status)
        workspaces_limit(handle->shelf->device->number);
    return status;
}

/* The thread's handle whose workspaces may serve calls of the library, if the thread has one
 * already. */
static struct handle *lender_for(struct holder *holder, const struct entry *entry,
                                 const struct stream *stream)
{
    tarn_library lender = entry->row->workspace_lender;
    return lender && workspaces_are_unified() ? slot_of(holder, stream->device, lender)->held
                                              : NULL;
}

tarn_status tarn_workspace_get(tarn_library library, tarn_stream value, void **pointer,
                               size_t *size)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    struct stream *stream = NULL;
    struct handle *handle = NULL;
    if (!pointer || !size)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s is NULL", pointer ? "size" : "pointer");
    tarn_status status = process_check();
    if (!status)
        status = entry_find(library, &entry);
    if (!status)
        status = workspace_refuse_in_handle(entry);
    if (!status)
        status = call_begin(&holder);
    if (status)
        return status;
    status = stream_find(value, thread_device(), &stream);
    if (!status)
        status = handle_of_thread(holder, entry, stream, &handle);
    if (!status)
        status = workspace_give(handle, lender_for(holder, entry, stream), stream, pointer, size);
    call_end(holder);
    return status;
}

/* What tarn_workspace_call.owner points to, for a workspace made for one call. */
struct call_owner {
    struct handle *handle;
    struct workspace *workspace;
};
static struct object_pool call_owners = OBJECT_POOL_NAMED(struct call_owner);

static tarn_status begin_with(struct handle *handle, struct stream *stream,
                              tarn_workspace_call *call)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct entry *entry = handle->library;
    struct workspace *made = NULL;
    struct call_owner *owner = object_alloc(&call_owners);
    if (!owner)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a call's workspace");
    const struct purpose purpose = {.stream = stream, .incarnation = handle->incarnation};
    tarn_status status =
        workspace_create(&purpose, workspace_bytes(entry, handle->shelf->device), &made);
    if (status) {
        object_free(&call_owners, owner);
        return status;
    }
    mutex_lock(&handle->lock);
    handle->points = true;
    struct tell tell;
    tell_begin_locked(&tell, handle);
    int code = library_set_workspace(entry, handle->vendor, made->pointer, made->size);
    tell_end_locked(&tell);
    if (!code)
        handle->bound = made;
    else
        handle->stream = NULL;
    mutex_unlock(&handle->lock);
    if (code) {
        slot_forget(thread_here->handles, handle);
        workspaces_free(made);
        object_free(&call_owners, owner);
        return entry_failed(entry, TARN_ERROR_LIBRARY, entry->row->set_workspace, code);
    }
    handle->calls++;
    *owner = (struct call_owner){handle, made};
    call->pointer = made->pointer;
    call->bytes = made->size;
    call->owner = owner;
    return TARN_OK;
}

tarn_status workspace_call_begin(struct handle *handle, struct stream *stream,
                                 tarn_workspace_call *call)
{
    uint64_t capture = 0;
    tarn_status status = TARN_OK;
    tarn_workspace_call result = {.handle = handle->vendor};
    if (sets_workspace(handle) && !handle->own_captured &&
        workspace_policy() == TARN_WORKSPACE_PER_CALL && !stream_is_known(stream)) {
        status = ask_capture(stream, &capture);
        if (!status && !capture)
            status = begin_with(handle, stream, &result);
    }
    if (!status)
        *call = result;
    return status;
}

tarn_status tarn_workspace_begin(tarn_library library, tarn_stream value, tarn_workspace_call *call)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    struct stream *stream = NULL;
    struct handle *handle = NULL;
    if (!call)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "call is NULL");
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = entry_find(library, &entry);
    if (!status)
        status = stream_find(value, thread_device(), &stream);
    if (!status)
        status = handle_of_thread(holder, entry, stream, &handle);
    if (!status)
        status = workspace_call_begin(handle, stream, call);
    call_end(holder);
    return status;
}

/* Makes the vendor's handle forget the workspace; returns 0 if it already has. After a failure,
 * `call` is the name of what failed. */
static int forget_locked(struct handle *handle, const struct workspace *workspace,
                         const char **call)
{
    const struct entry *entry = handle->library;
    const struct library_calls *calls = &entry->calls;
    int code = 0;
    if (handle->bound != workspace)
        return 0; /* the stream was set since: that made it forget */
    *call = entry->row->set_workspace;
    if (entry->row->unset_workspace || !calls->set_stream || !handle->stream)
        code = library_set_workspace(entry, handle->vendor, NULL, 0);
    handle->points = code != 0;
    if (!code && calls->set_stream && handle->stream) {
        *call = entry->row->set_stream;
        code = library_set_stream(entry, handle->vendor, handle->stream->native);
    }
    handle->bound = NULL;
    if (code)
        handle->stream = NULL;
    return code;
}

tarn_status tarn_workspace_end(tarn_workspace_call *call)
{
    struct holder *holder = NULL;
    const char *refused = NULL;
    if (!call)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "call is NULL");
    struct call_owner *owner = call->owner;
    if (!owner)
        return TARN_OK;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    if (!object_is_live(&call_owners, owner)) {
        call_end(holder);
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "this did not come from tarn_workspace_begin(), or it has ended");
    }
    struct handle *handle = owner->handle;
    mutex_lock(&handle->lock);
    struct tell tell;
    tell_begin_locked(&tell, handle);
    int code = forget_locked(handle, owner->workspace, &refused);
    tell_end_locked(&tell);
    handle->calls--;
    mutex_unlock(&handle->lock);
    if (code) {
        slot_forget(holder, handle);
        count_gone(owner->workspace, true);
        object_free(&workspace_objects, owner->workspace);
    } else {
        workspaces_free(owner->workspace);
    }
    object_free(&call_owners, owner);
    *call = (tarn_workspace_call){0};
    if (code)
        status = entry_failed(handle->library, TARN_ERROR_LIBRARY, refused, code);
    call_end(holder);
    return status;
}

/* Clearing ------------------------------------------------------------------------------------- */

/* What to clear: the workspaces of a stream, of a capture, of a pool's captures, or all that belong
 * to no capture. */
struct clearing {
    const struct stream *stream;
    unsigned incarnation;
    uint64_t capture;
    tarn_pool_id pool;
    bool unused; /* of all: only those to which no handle is bound, and that no unknown capture was
                    seen to use */
    bool chosen; /* of the unused: only the one that was last bound at this moment */
    uint64_t used;
    struct holder *holder; /* the calling thread's */
    struct workspace *gone;
    size_t freed, deferred; /* bytes, as in tarn_workspace_cleared */
};

/* The capture that a workspace's stream takes part in now; 0: none. The stream cannot be retired
 * and destroyed meanwhile. For another thread's default stream, the driver says only whether any
 * blocking stream captures. */
static tarn_status captured_now(const struct workspace *workspace, uint64_t *capture)
{
    struct stream *stream = workspace->stream;
    tarn_status status = TARN_OK;
    *capture = 0;
    mutex_lock(&stream->lock);
    if (!is_stale(workspace) && stream_is_found(stream))
        *capture = ANY_CAPTURE; /* it may be gone: the driver is not asked */
    else if (!is_stale(workspace) && stream_is_foreign(stream))
        *capture = stream_captures(stream) ? ANY_CAPTURE : 0;
    else if (!is_stale(workspace))
        status = ask_capture(stream, capture);
    mutex_unlock(&stream->lock);
    return status;
}

/* Whether a capture that tarn does not know may use the workspace; known captures have their
 * own. */
static bool may_be_captured(const struct workspace *workspace)
{
    uint64_t capture = 0;
    struct error_before before;
    error_attempt_begin(&before);
    tarn_status status = captured_now(workspace, &capture);
    error_attempt_end(&before, TARN_OK);
    return capture || (status && status != TARN_ERROR_DEVICE_LOST);
}

static bool is_meant(const struct clearing *clearing, const struct workspace *workspace)
{
    if (clearing->stream)
        return workspace->stream == clearing->stream &&
               workspace->incarnation == clearing->incarnation;
    if (clearing->pool.first || clearing->pool.second)
        return workspace->pool.first == clearing->pool.first &&
               workspace->pool.second == clearing->pool.second;
    if (clearing->capture)
        return workspace->capture == clearing->capture;
    if (clearing->unused &&
        (workspace->shared || (clearing->chosen && workspace->used != clearing->used)))
        return false;
    /* No call reports the end of a found stream, so only a clear of all can free its workspaces. */
    bool asks = clearing->unused || !stream_is_found(workspace->stream);
    return !workspace->capture && !(asks && may_be_captured(workspace));
}

static void clear_handle_locked(struct handle *handle, struct clearing *clearing)
{
    bool ours = handle->available || (clearing->holder && handle->holder == clearing->holder);
    struct workspace **link = &handle->workspaces;
    while (*link) {
        struct workspace *workspace = *link;
        if (clearing->capture && workspace->shared == clearing->capture)
            workspace->shared = 0; /* the stream's again */
        if (!is_meant(clearing, workspace)) {
            link = &workspace->next;
            continue;
        }
        if (is_in_use(handle, workspace) && !ours && clearing->unused) {
            link = &workspace->next;
            continue;
        }
        if (is_in_use(handle, workspace) && !ours) { /* its owner's next call may still use it */
            if (!workspace->cleared) {
                mutex_lock(&stats_lock);
                stats[workspace->device].deferred_bytes += workspace->size;
                mutex_unlock(&stats_lock);
            }
            workspace->cleared = true;
            clearing->deferred += workspace->size;
            link = &workspace->next;
            continue;
        }
        if (workspace == handle->bound) {
            handle->bound = NULL;
            handle->stream = NULL;
        }
        if (workspace == handle->lent)
            handle->lent = NULL;
        clearing->freed += workspace->size;
        *link = workspace->next;
        workspace->next = clearing->gone;
        clearing->gone = workspace;
    }
}

/* The workspaces whose handle was destroyed: no handle is bound to them. */
static void clear_kept_locked(struct shelf *shelf, struct clearing *clearing)
{
    for (struct workspace **link = &shelf->kept; *link;) {
        struct workspace *workspace = *link;
        if (!is_meant(clearing, workspace)) {
            link = &workspace->next;
            continue;
        }
        clearing->freed += workspace->size;
        *link = workspace->next;
        workspace->next = clearing->gone;
        clearing->gone = workspace;
    }
}

static void clear_shelf(struct shelf *shelf, struct clearing *clearing)
{
    mutex_lock(&shelf->lock);
    clear_kept_locked(shelf, clearing);
    for (struct handle *handle = shelf->all; handle; handle = handle->all) {
        mutex_lock(&handle->lock);
        clear_handle_locked(handle, clearing);
        mutex_unlock(&handle->lock);
    }
    mutex_unlock(&shelf->lock);
}

static void clear(struct clearing *clearing)
{
    for (int number = 1; number <= entry_count(); number++)
        for (int device = 0; device < device_count(); device++) {
            struct shelf *shelf = shelf_known(entry_at(number), device);
            if (shelf)
                clear_shelf(shelf, clearing);
        }
    workspaces_changed(); /* so that owners release marked workspaces, and slots forget freed
                             ones */
    workspaces_free(clearing->gone);
}

/* TARN_ERROR_CAPTURE if a stream with a workspace of the capture takes part in it now. */
static tarn_status refuse_in_list(const struct workspace *at, uint64_t capture)
{
    tarn_status status = TARN_OK;
    for (; at && !status; at = at->next) {
        uint64_t now = 0;
        /* The driver is not asked about a found stream. If no known capture is open, tarn trusts
         * the caller that the capture has ended. */
        if (at->capture == capture &&
            !(stream_is_found(at->stream) && captures_open_anywhere() == 0))
            status = captured_now(at, &now);
        if (!status && (now == capture || now == ANY_CAPTURE))
            status =
                failed(TARN_ERROR_CAPTURE, "capture %llu is not over", (unsigned long long)capture);
    }
    return status;
}

static tarn_status refuse_captured_now(struct shelf *shelf, uint64_t capture)
{
    mutex_lock(&shelf->lock);
    tarn_status status = refuse_in_list(shelf->kept, capture);
    for (struct handle *handle = shelf->all; handle && !status; handle = handle->all) {
        mutex_lock(&handle->lock);
        status = refuse_in_list(handle->workspaces, capture);
        mutex_unlock(&handle->lock);
    }
    mutex_unlock(&shelf->lock);
    return status;
}

/* Of the unused workspaces of a device that belong to no capture: the bytes, and when the least
 * recently used was bound, of those that were bound at `from` or later. */
struct unused {
    size_t bytes;
    uint64_t from, oldest;
};

static void unused_sum(struct shelf *shelf, struct unused *unused)
{
    mutex_lock(&shelf->lock);
    for (struct handle *handle = shelf->all; handle; handle = handle->all) {
        mutex_lock(&handle->lock);
        for (const struct workspace *at = handle->workspaces; at; at = at->next) {
            /* The driver is not asked about it */
            bool found = stream_is_found(at->stream) && !is_stale(at);
            bool in_use = is_in_use(handle, at) && !handle->available;
            if (at->capture || at->shared || at->cleared || in_use || found)
                continue;
            unused->bytes += at->size;
            if (at->used >= unused->from && at->used < unused->oldest)
                unused->oldest = at->used;
        }
        mutex_unlock(&handle->lock);
    }
    mutex_unlock(&shelf->lock);
}

void workspaces_limit(int device)
{
    struct unused unused = {0};
    if (!atomic_load_explicit(&over[device], memory_order_relaxed) || vendor_is_told())
        return;
    atomic_store(&over[device], false);
    do {
        unused.bytes = 0;
        unused.oldest = UINT64_MAX;
        for (int number = 1; number <= entry_count(); number++) {
            struct shelf *shelf = shelf_known(entry_at(number), device);
            if (shelf)
                unused_sum(shelf, &unused);
        }
        if (unused.bytes <= memory_config()->idle_workspaces || unused.oldest == UINT64_MAX)
            return;
        struct clearing clearing = {.unused = true, .chosen = true, .used = unused.oldest};
        for (int number = 1; number <= entry_count(); number++) {
            struct shelf *shelf = shelf_known(entry_at(number), device);
            if (shelf)
                clear_shelf(shelf, &clearing);
        }
        workspaces_free(clearing.gone);
        unused.from = unused.oldest + 1; /* if its stream captures it stays */
    } while (true);
}

bool workspaces_relieve(int device)
{
    struct clearing clearing = {.unused = true};
    if (vendor_is_told()) /* with its handle's lock held */
        return false;
    bool ends = workspaces_collect();
    for (int number = 1; number <= entry_count(); number++) {
        struct shelf *shelf = shelf_known(entry_at(number), device);
        if (shelf)
            clear_shelf(shelf, &clearing);
    }
    bool any = clearing.gone || ends;
    workspaces_free(clearing.gone);
    return any;
}

void workspaces_of_pool_end(tarn_pool_id pool)
{
    struct clearing clearing = {.pool = pool};
    clear(&clearing);
}

bool workspaces_any_captured(void)
{
    uint64_t count = 0;
    mutex_lock(&stats_lock);
    for (int device = 0; device < device_count(); device++)
        count += stats[device].captured_count;
    mutex_unlock(&stats_lock);
    return count != 0;
}

void workspaces_graph_over(uint64_t capture)
{
    struct clearing clearing = {.capture = capture};
    clear(&clearing);
}

void workspaces_of_capture_drop(uint64_t capture)
{
    struct clearing clearing = {.capture = capture};
    struct error_before before;
    if (!workspaces_any_captured())
        return;
    error_attempt_begin(&before);
    if (call_begin(&clearing.holder) == TARN_OK) { /* otherwise they stay until they are cleared */
        clear(&clearing);
        call_end(clearing.holder);
    }
    error_attempt_end(&before, TARN_OK);
}

static tarn_status choose_stream(tarn_stream value, struct clearing *clearing)
{
    struct stream *stream = NULL;
    tarn_status status = stream_find(value, thread_device(), &stream);
    if (!status && stream->native) /* the legacy stream takes part in no capture */
        status = stream_refuse_capture(stream, "clearing its workspaces");
    if (!status) {
        clearing->stream = stream;
        clearing->incarnation = atomic_load(&stream->incarnation);
    }
    return status;
}

static tarn_status choose_capture(uint64_t capture, struct clearing *clearing)
{
    tarn_status status =
        capture ? TARN_OK
                : failed(TARN_ERROR_INVALID_ARGUMENT, "choice.capture is 0, which no capture has");
    for (int number = 1; number <= entry_count() && !status; number++)
        for (int device = 0; device < device_count() && !status; device++) {
            struct shelf *shelf = shelf_known(entry_at(number), device);
            if (shelf)
                status = refuse_captured_now(shelf, capture);
        }
    clearing->capture = capture;
    return status;
}

static tarn_status choose_pool(tarn_pool *public, struct clearing *clearing)
{
    tarn_status status = pool_check(public);
    if (status)
        return status;
    const struct store *store = &pool_of_public(public)->store;
    if (atomic_load(&store->holds))
        return failed(TARN_ERROR_CAPTURE,
                      "a capture or a graph uses pool (%llu, %llu), and the workspaces in it",
                      (unsigned long long)store->id[0], (unsigned long long)store->id[1]);
    clearing->pool = (tarn_pool_id){store->id[0], store->id[1]};
    return TARN_OK;
}

/* Reads a caller's choice of workspaces; refuses if an open capture, or a known graph, may use
 * them. */
static tarn_status choose(const tarn_workspace_choice *of, struct clearing *clearing)
{
    tarn_workspaces which = of->which;
    if (which == TARN_WORKSPACES_OF_STREAM && !of->capture && !of->pool)
        return choose_stream(of->stream, clearing);
    if (which == TARN_WORKSPACES_OF_CAPTURE && !of->stream && !of->pool)
        return choose_capture(of->capture, clearing);
    if (which == TARN_WORKSPACES_OF_POOL && !of->stream && !of->capture)
        return choose_pool(of->pool, clearing);
    if (which == TARN_WORKSPACES_ALL && !of->stream && !of->capture && !of->pool)
        return TARN_OK;
    return failed(
        TARN_ERROR_INVALID_ARGUMENT,
        "choice.which is %d: a field that it does not use is set, or there is no such choice",
        (int)which);
}

tarn_status tarn_workspace_clear(const tarn_workspace_choice *choice,
                                 tarn_workspace_cleared *cleared)
{
    static const tarn_workspace_choice all = {.size = sizeof all, .which = TARN_WORKSPACES_ALL};
    struct clearing clearing = {0};
    tarn_workspace_choice chosen;
    tarn_status status =
        sized_read("tarn_workspace_choice", choice ? choice : &all, &chosen, sizeof chosen);
    if (!status && cleared)
        status = sized_check("tarn_workspace_cleared", cleared, sizeof *cleared);
    if (!status)
        status = call_begin(&clearing.holder);
    if (status)
        return status;
    (void)workspaces_collect();
    status = choose(&chosen, &clearing);
    if (!status)
        clear(&clearing);
    call_end(clearing.holder);
    const tarn_workspace_cleared done = {
        .size = sizeof done, .freed = clearing.freed, .deferred = clearing.deferred};
    if (!status && cleared)
        sized_write(cleared, &done, sizeof done);
    return status;
}

void workspaces_sum(int device, size_t *bytes, size_t *captured)
{
    mutex_lock(&stats_lock);
    *bytes = stats[device].bytes;
    *captured = stats[device].captured_bytes;
    mutex_unlock(&stats_lock);
}

tarn_status tarn_workspace_stats_get(int device, tarn_workspace_stats *result)
{
    struct device *found = NULL;
    tarn_status status = sized_check("tarn_workspace_stats", result, sizeof *result);
    if (!status)
        status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (status)
        return status;
    (void)workspaces_collect();
    mutex_lock(&stats_lock);
    tarn_workspace_stats now = stats[device];
    mutex_unlock(&stats_lock);
    sized_write(result, &now, sizeof now);
    return TARN_OK;
}
