/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Scratch memory of libraries. A workspace belongs to a handle and serves one stream. If it was
 * created in a capture, it serves only that capture: then it is a block of the capture's pool, and
 * ends with it.
 *
 * The workspace that an owned vendor handle points to (handle->bound) is never freed while it does:
 * a clear by another thread marks it, and the owner's next bind releases it. A clear also marks a
 * workspace that serves the owner's calls of another library (handle->lent): the owner's next loan
 * or clear releases it, or the return of the handle. PyTorch's clear cannot promise this
 * (aten/src/ATen/cuda/CublasHandlePool.cpp: a clear between a get and its GEMM). Locks: shelf, then
 * handle; memory is allocated and freed with neither held.
 *
 * workspace_clear.c clears and limits workspaces, workspace_stats.c counts them. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "handle/handle.h"
#include "memory/malloc.h"
#include "memory/pool/pool.h"

#include <tarn/memory.h>

#define STAND_IN_BYTES 512 /* for a handle that is not used yet */

static struct object_pool workspace_objects = OBJECT_POOL(struct workspace);

static atomic_uint_fast64_t uses; /* of workspaces, ever */

/* Creating and freeing ------------------------------------------------------------------------- */

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
    workspace_count_made(made);
    *result = made;
    return TARN_OK;
}

void workspaces_free(struct workspace *list)
{
    while (list) {
        struct workspace *next = list->next;
        workspace_count_gone(list, false);
        if (list->pointer)
            (void)memory_free(list->pointer);
        object_free(&workspace_objects, list);
        list = next;
    }
}

bool workspace_is_stale(const struct workspace *workspace)
{
    return atomic_load_explicit(&workspace->stream->incarnation, memory_order_acquire) !=
           workspace->incarnation;
}

bool workspace_is_in_use(const struct handle *handle, const struct workspace *workspace)
{
    return workspace == handle->bound || workspace == handle->lent;
}

struct workspace *workspaces_sweep_locked(struct handle *handle, bool all)
{
    struct workspace *gone = NULL, **link = &handle->workspaces;
    while (*link) {
        struct workspace *workspace = *link;
        bool of_graph = workspace->capture || workspace->shared; /* a graph may use it */
        bool unused = workspace->cleared || (!of_graph && workspace_is_stale(workspace));
        if (!all && (workspace_is_in_use(handle, workspace) || !unused)) {
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

tarn_status workspace_ask_capture(const struct stream *stream, uint64_t *capture)
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
        workspace_count_deferred(found);
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
    if (captures_open_anywhere() || workspace_ask_capture(workspace->stream, &capture) || !capture)
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
    return workspace_is_settled(handle) ? TARN_OK : workspace_ask_capture(stream, capture);
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
    if (workspace && workspace->pointer && !workspace_is_stale(workspace) &&
        !find_locked(handle, &to) &&
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
    return given && !given->cleared && given->stream == stream && !workspace_is_stale(given);
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

/* A handle that already has its own workspace keeps it, even if the lender gets one later: the
 * caller's pointer stays valid. */
tarn_status workspace_give(struct handle *handle, struct handle *lender, struct stream *stream,
                           void **pointer, size_t *size)
{
    struct purpose purpose = {.stream = stream};
    struct workspace *workspace = NULL;
    tarn_status status =
        captures_open_anywhere() ? workspace_ask_capture(stream, &purpose.capture) : TARN_OK;
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
        /* The caller has the pointer, so a clear by others waits for its next call. */
        handle->bound = workspace;
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

/* The stream of a lease is known: a call that names another one means something else. */
static tarn_status refuse_stream_of_lease(tarn_stream stream)
{
    return stream == TARN_STREAM_NONE
               ? TARN_OK
               : failed(TARN_ERROR_INVALID_ARGUMENT,
                        "a lease is bound to its stream: pass TARN_STREAM_NONE with it, or bind it "
                        "to another one by tarn_handle_lease_bind()");
}

tarn_status tarn_workspace_get(tarn_library library, tarn_stream value, const tarn_lease *lease,
                               void **pointer, size_t *size)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    struct stream *stream = NULL;
    struct handle *handle = NULL;
    if (!pointer || !size)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s is NULL", pointer ? "size" : "pointer");
    tarn_status status = process_check();
    if (!status && lease)
        status = refuse_stream_of_lease(value);
    if (!status && lease)
        return lease_workspace(lease, library, pointer, size);
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

/* A call that has a workspace of its own, from its begin to its end. */
struct call_owner {
    struct call_owner *next; /* calls_lock */
    uintptr_t number;        /* tarn_workspace_call.owner, which no other call ever has */
    struct handle *handle;
    struct workspace *workspace;
};
static struct object_pool call_owners = OBJECT_POOL(struct call_owner);
static mutex calls_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct call_owner *open_calls; /* calls_lock */
static uintptr_t call_numbers;        /* calls_lock */

static void call_enter(struct call_owner *owner)
{
    mutex_lock(&calls_lock);
    owner->number = ++call_numbers;
    owner->next = open_calls;
    open_calls = owner;
    mutex_unlock(&calls_lock);
}

/* NULL: no open call has the number. */
static struct call_owner *call_find(uintptr_t number)
{
    mutex_lock(&calls_lock);
    struct call_owner *owner = open_calls;
    while (owner && owner->number != number)
        owner = owner->next;
    mutex_unlock(&calls_lock);
    return owner;
}

static void call_leave(struct call_owner *owner)
{
    mutex_lock(&calls_lock);
    struct call_owner **link = &open_calls;
    while (*link != owner)
        link = &(*link)->next;
    *link = owner->next;
    mutex_unlock(&calls_lock);
    object_free(&call_owners, owner);
}

/* A call whose workspace the library is about to get or to lose. */
struct telling {
    struct undo undo;
    struct call_owner *owner;
    tarn_workspace_call *call;
};

/* The library did not return, so its handle may point to the workspace: the next bind frees it. The
 * call has ended. */
static void telling_undo(struct undo *undo)
{
    const struct telling *telling =
        (struct telling *)((char *)undo - offsetof(struct telling, undo));
    struct handle *handle = telling->owner->handle;
    struct workspace *workspace = telling->owner->workspace;
    mutex_lock(&handle->lock);
    workspace->cleared = true;
    workspace->next = handle->workspaces;
    handle->workspaces = handle->bound = workspace;
    workspace_count_deferred(workspace);
    handle->calls--;
    mutex_unlock(&handle->lock);
    call_leave(telling->owner);
    *telling->call = (tarn_workspace_call){0};
}

static tarn_status begin_with(struct handle *handle, struct stream *stream,
                              tarn_workspace_call *call)
{
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
    owner->handle = handle;
    owner->workspace = made;
    call_enter(owner);
    handle->calls++;
    struct telling telling = {.owner = owner, .call = call};
    undo_push(&telling.undo, telling_undo);
    mutex_lock(&handle->lock);
    handle->points = true;
    struct tell tell;
    tell_begin_locked(&tell, handle);
    int code = library_set_workspace(entry, handle->vendor, made->pointer, made->size);
    tell_end_locked(&tell);
    undo_pop(&telling.undo);
    if (!code)
        handle->bound = made;
    else
        handle->stream = NULL;
    mutex_unlock(&handle->lock);
    if (code) {
        slot_forget(thread_here->handles, handle);
        workspaces_free(made);
        handle->calls--;
        call_leave(owner);
        return entry_failed(entry, TARN_ERROR_LIBRARY, entry->row->set_workspace, code);
    }
    call->pointer = made->pointer;
    call->bytes = made->size;
    call->owner = (void *)owner->number;
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
        status = workspace_ask_capture(stream, &capture);
        if (!status && !capture)
            status = begin_with(handle, stream, &result);
    }
    if (!status)
        *call = result;
    return status;
}

tarn_status tarn_workspace_begin(tarn_library library, tarn_stream value, const tarn_lease *lease,
                                 tarn_workspace_call *call)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    struct stream *stream = NULL;
    struct handle *handle = NULL;
    if (!call)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "call is NULL");
    tarn_status status = lease ? process_check() : call_begin(&holder);
    if (!status && lease)
        status = refuse_stream_of_lease(value);
    if (status)
        return status;
    if (lease)
        return lease_workspace_begin(lease, library, call);
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
    if (!call->owner)
        return TARN_OK;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    struct call_owner *owner = call_find((uintptr_t)call->owner);
    if (!owner) {
        call_end(holder);
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "this did not come from tarn_workspace_begin(), or it has ended");
    }
    struct handle *handle = owner->handle;
    struct telling telling = {.owner = owner, .call = call};
    undo_push(&telling.undo, telling_undo);
    mutex_lock(&handle->lock);
    struct tell tell;
    tell_begin_locked(&tell, handle);
    int code = forget_locked(handle, owner->workspace, &refused);
    tell_end_locked(&tell);
    undo_pop(&telling.undo);
    handle->calls--;
    mutex_unlock(&handle->lock);
    if (code) {
        slot_forget(holder, handle);
        workspace_count_gone(owner->workspace, true);
        object_free(&workspace_objects, owner->workspace);
    } else {
        workspaces_free(owner->workspace);
    }
    call_leave(owner);
    *call = (tarn_workspace_call){0};
    if (code)
        status = entry_failed(handle->library, TARN_ERROR_LIBRARY, refused, code);
    call_end(holder);
    return status;
}
