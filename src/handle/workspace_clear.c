/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Which workspaces go before their handles do: those that a caller clears, those of captures and
 * pools that have ended, and unused ones when there are too many or memory is short. A workspace
 * that its owner may still use is marked, and freed at the owner's next bind (workspace.c). Locks:
 * shelf, then handle; workspaces are freed with neither held. */
#include "base/sized.h"
#include "base/status.h"
#include "device/capture.h"
#include "handle/handle.h"
#include "memory/pool/pool.h"

static atomic_bool over[TARN_MAX_DEVICES]; /* more may be unused than the settings allow */

void workspaces_may_exceed(int device)
{
    atomic_store(&over[device], true);
}

/* What to clear: the workspaces of a stream, of a capture, of a pool's captures, or all that belong
 * to no capture. */
struct clearing {
    const struct stream *stream;
    unsigned incarnation;
    uint64_t capture;
    tarn_pool_id pool;
    /* Of all: only those to which no handle is bound, and that no unknown capture was seen to
     * use. */
    bool unused;
    uint64_t before; /* of the unused ones: only those that were last bound before this moment */
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
    if (!workspace_is_stale(workspace) && stream_is_found(stream))
        *capture = ANY_CAPTURE; /* it may be gone: the driver is not asked */
    else if (!workspace_is_stale(workspace) && stream_is_foreign(stream))
        *capture = stream_captures(stream) ? ANY_CAPTURE : 0;
    else if (!workspace_is_stale(workspace))
        status = workspace_ask_capture(stream, capture);
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
    if (clearing->unused && (workspace->shared || workspace->used >= clearing->before))
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
        bool others = workspace_is_in_use(handle, workspace) && !ours;
        if (others && clearing->unused) {
            link = &workspace->next;
            continue;
        }
        if (others) { /* its owner's next call may still use it */
            if (!workspace->cleared)
                workspace_count_deferred(workspace);
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
static void clear_orphans_locked(struct shelf *shelf, struct clearing *clearing)
{
    for (struct workspace **link = &shelf->orphans; *link;) {
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
    clear_orphans_locked(shelf, clearing);
    for (struct handle *handle = shelf->all; handle; handle = handle->all) {
        mutex_lock(&handle->lock);
        clear_handle_locked(handle, clearing);
        mutex_unlock(&handle->lock);
    }
    mutex_unlock(&shelf->lock);
}

static void clear_device(int device, struct clearing *clearing)
{
    for (int number = 1; number <= entry_count(); number++) {
        struct shelf *shelf = shelf_known(entry_at(number), device);
        if (shelf)
            clear_shelf(shelf, clearing);
    }
}

static void clear(struct clearing *clearing)
{
    for (int device = 0; device < device_count(); device++)
        clear_device(device, clearing);
    /* Now owners release marked workspaces, and slots forget freed ones. */
    workspaces_changed();
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
    tarn_status status = refuse_in_list(shelf->orphans, capture);
    for (struct handle *handle = shelf->all; handle && !status; handle = handle->all) {
        mutex_lock(&handle->lock);
        status = refuse_in_list(handle->workspaces, capture);
        mutex_unlock(&handle->lock);
    }
    mutex_unlock(&shelf->lock);
    return status;
}

/* Sums over the unused workspaces of a device that belong to no capture and were last bound at
 * `since` or later: their bytes, and the first and the last of these moments. */
struct unused {
    uint64_t since;
    size_t bytes;
    uint64_t first, last;
};

static void unused_add(struct shelf *shelf, struct unused *unused)
{
    mutex_lock(&shelf->lock);
    for (struct handle *handle = shelf->all; handle; handle = handle->all) {
        mutex_lock(&handle->lock);
        for (const struct workspace *at = handle->workspaces; at; at = at->next) {
            /* The driver is not asked about it */
            bool found = stream_is_found(at->stream) && !workspace_is_stale(at);
            bool in_use = workspace_is_in_use(handle, at) && !handle->available;
            if (at->capture || at->shared || at->cleared || in_use || found ||
                at->used < unused->since)
                continue;
            unused->bytes += at->size;
            unused->first = at->used < unused->first ? at->used : unused->first;
            unused->last = at->used > unused->last ? at->used : unused->last;
        }
        mutex_unlock(&handle->lock);
    }
    mutex_unlock(&shelf->lock);
}

static struct unused unused_since(int device, uint64_t since)
{
    struct unused unused = {.since = since, .first = UINT64_MAX};
    for (int number = 1; number <= entry_count(); number++) {
        struct shelf *shelf = shelf_known(entry_at(number), device);
        if (shelf)
            unused_add(shelf, &unused);
    }
    return unused;
}

/* Searches the moment by halves: thousands of handles may have been given back at once. */
void workspaces_limit(int device)
{
    const size_t most = memory_config()->idle_workspaces;
    if (!atomic_load_explicit(&over[device], memory_order_relaxed) || vendor_is_told())
        return;
    atomic_store(&over[device], false);
    const struct unused all = unused_since(device, 0);
    if (all.bytes <= most)
        return;
    uint64_t too_many = all.first, few = all.last + 1; /* since these moments */
    while (few - too_many > 1) {
        uint64_t middle = too_many + (few - too_many) / 2;
        if (unused_since(device, middle).bytes > most)
            too_many = middle;
        else
            few = middle;
    }
    struct clearing clearing = {.unused = true, .before = few};
    clear_device(device, &clearing);
    workspaces_free(clearing.gone);
}

bool workspaces_relieve(int device)
{
    struct clearing clearing = {.unused = true, .before = UINT64_MAX};
    if (vendor_is_told()) /* with its handle's lock held */
        return false;
    bool ends = workspaces_collect();
    clear_device(device, &clearing);
    bool any = clearing.gone || ends;
    workspaces_free(clearing.gone);
    return any;
}

void workspaces_of_pool_end(tarn_pool_id pool)
{
    struct clearing clearing = {.pool = pool};
    clear(&clearing);
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
