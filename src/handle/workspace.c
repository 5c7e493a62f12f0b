/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Scratch memory of libraries. Owns the policy and the sizes; the workspaces themselves belong to a handle, each for
 * one stream and, where it was made in a capture, for that capture alone: then it is a block of the capture's pool, and
 * goes with it.
 *
 * What the vendor's handle of a live owner points to (handle->bound) is never freed under it: a clear marks it, and the
 * owner's next bind lets go of it. That is what PyTorch's clear cannot promise
 * (aten/src/ATen/cuda/CublasHandlePool.cpp: a clear that lands between a get and its GEMM). Locks: pool, then handle;
 * memory is allocated and freed with neither held. */
#include "base/cancel.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/status.h"
#include "device/capture.h"
#include "handle/pool.h"
#include "memory/malloc.h"
#include "memory/pool.h"

#include <stdlib.h>
#include <string.h>
#include <tarn/memory.h>

#define ANY_CAPTURE UINT64_MAX /* one whose number the driver does not tell */

static atomic_int policy = TARN_WORKSPACE_CACHED;
static atomic_uint_fast64_t epoch = 1;
static struct object_pool workspace_objects = OBJECT_POOL(struct workspace);

static mutex stats_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static tarn_workspace_stats stats[TARN_MAX_DEVICES]; /* stats_lock */

uint64_t workspaces_epoch(void)
{
    return atomic_load_explicit(&epoch, memory_order_acquire);
}

static void settings_changed(void)
{
    atomic_fetch_add(&epoch, 1);
    process_changed();
}

/* Sizes ----------------------------------------------------------------------------------------------------------- */

/* The bytes of `:KIB:COUNT` groups anywhere in a text; -1 where there is none, or too much. */
static long long parse_groups(const char *text)
{
    long long sum = -1;
    while ((text = strchr(text, ':')) != NULL) {
        char *middle, *end;
        unsigned long long size = strtoull(text + 1, &middle, 10);
        if (middle == text + 1 || *middle != ':' || text[1] < '0' || text[1] > '9' || middle[1] < '0' ||
            middle[1] > '9') {
            text++;
            continue;
        }
        unsigned long long count = strtoull(middle + 1, &end, 10);
        if (size > 1u << 30 || count > 1u << 20 || size * count > 1u << 30)
            return -1;
        sum = (sum < 0 ? 0 : sum) + (long long)(size * count * 1024);
        text = end;
    }
    return sum;
}

static long long parse_kib(const char *text)
{
    char *end;
    unsigned long long size = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || size > 1u << 30 ? -1 : (long long)size * 1024;
}

static long long read_environment(const struct library *row)
{
    for (int i = 0; i < 2 && row->workspace_variables[i]; i++) {
        const char *text = secure_getenv(row->workspace_variables[i]);
        long long bytes = !text ? -1 : row->workspace_by_call ? parse_kib(text) : parse_groups(text);
        if (text && bytes < 0)
            log_write(LOG_ERRORS, "%s=%s makes no sense, and counts as not set", row->workspace_variables[i], text);
        if (bytes >= 0)
            return bytes;
    }
    return -1;
}

static size_t workspace_bytes(struct entry *entry, const struct device *device)
{
    long long bytes = atomic_load_explicit(&entry->workspace_bytes, memory_order_relaxed);
    if (bytes >= 0)
        return (size_t)bytes;
    bytes = atomic_load_explicit(&entry->workspace_environment, memory_order_relaxed);
    if (bytes == -2) {
        bytes = read_environment(entry->row);
        atomic_store_explicit(&entry->workspace_environment, bytes, memory_order_relaxed);
    }
    if (bytes >= 0)
        return (size_t)bytes;
    return entry->row->workspace_size(device->properties.capability_major, device->properties.capability_minor);
}

/* Making and freeing ---------------------------------------------------------------------------------------------- */

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

static tarn_status workspace_create(struct stream *stream, unsigned generation, uint64_t capture, size_t size,
                                    struct workspace **result)
{
    static _Atomic(tarn_tag) tag;
    tarn_alloc_options options = {.size = sizeof options, .device = stream->device, .stream = stream_value(stream)};
    struct workspace *made = object_alloc(&workspace_objects);
    if (!made)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a workspace");
    *made = (struct workspace){
        .stream = stream, .generation = generation, .device = stream->device, .capture = capture, .size = size};
    options.tag = atomic_load_explicit(&tag, memory_order_relaxed);
    if (!options.tag && tarn_tag_intern("workspace", &options.tag) == TARN_OK)
        atomic_store_explicit(&tag, options.tag, memory_order_relaxed);
    tarn_status status = tarn_alloc(&options, size, &made->pointer);
    if (status) {
        object_free(&workspace_objects, made);
        return failed_within(status, "a workspace of %zu bytes", size);
    }
    tarn_block_info info = {.size = sizeof info};
    if (capture && !tarn_pointer_info(made->pointer, &info))
        made->pool = info.pool;
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

struct workspace *workspaces_sweep_locked(struct handle *handle, bool all)
{
    struct workspace *gone = NULL, **link = &handle->workspaces;
    while (*link) {
        struct workspace *workspace = *link;
        /* One whose stream was retired serves nobody any more, unless a graph has it. */
        bool stale = !workspace->capture && atomic_load_explicit(&workspace->stream->generation,
                                                                 memory_order_acquire) != workspace->generation;
        if (!all && (workspace == handle->bound || !(workspace->cleared || stale))) {
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

/* Choosing -------------------------------------------------------------------------------------------------------- */

/* The capture that the stream takes part in; 0: none. */
static uint64_t capture_of(struct stream *stream)
{
    struct driver_capture capture = {0};
    if (captures_open(device_at(stream->device)) == 0)
        return 0;
    tarn_status status = driver->capture_status(stream->device, stream->native, &capture);
    if (!status && capture.state == DRIVER_CAPTURE_NONE)
        return 0;
    return !status && capture.state == DRIVER_CAPTURE_ACTIVE ? capture.id : ANY_CAPTURE;
}

static struct workspace *find_locked(const struct handle *handle, const struct stream *stream, unsigned generation,
                                     uint64_t capture)
{
    for (struct workspace *at = handle->workspaces; at; at = at->next)
        if (at->stream == stream && at->generation == generation && at->capture == capture && !at->cleared)
            return at;
    return NULL;
}

/* The cached workspace of the stream, large enough; made with the lock given up. Only the owner adds to the list. */
static tarn_status cached_locked(struct handle *handle, struct stream *stream, unsigned generation,
                                 struct workspace **result)
{
    size_t size = workspace_bytes(handle->library, handle->pool->device);
    uint64_t capture = capture_of(stream);
    struct workspace *found = find_locked(handle, stream, generation, capture), *made = NULL;
    if (found && found->size >= size) {
        *result = found;
        return TARN_OK;
    }
    mutex_unlock(&handle->lock);
    tarn_status status = workspace_create(stream, generation, capture, size, &made);
    mutex_lock(&handle->lock);
    if (status)
        return status;
    found = find_locked(handle, stream, generation, capture);
    if (found && !capture) { /* the smaller one goes; a graph keeps what it has */
        found->cleared = true;
        mutex_lock(&stats_lock);
        stats[found->device].deferred_bytes += found->size;
        mutex_unlock(&stats_lock);
    }
    made->next = handle->workspaces;
    handle->workspaces = made;
    *result = made;
    return TARN_OK;
}

/* Where tarn has no memory, for want of virtual memory, the library's own workspace does. */
static bool sets_workspace(const struct handle *handle)
{
    const struct entry *entry = handle->library;
    return entry->row->workspace_size && entry->calls.set_workspace && !entry->row->workspace_by_call &&
           handle->pool->device->properties.virtual_memory;
}

tarn_status workspace_wanted_locked(struct handle *handle, struct stream *stream, unsigned generation,
                                    struct workspace **workspace)
{
    *workspace = NULL;
    int now = atomic_load_explicit(&policy, memory_order_relaxed);
    if (!sets_workspace(handle) || now == TARN_WORKSPACE_LIBRARY ||
        (now == TARN_WORKSPACE_PER_CALL && capture_of(stream) == 0))
        return TARN_OK;
    return cached_locked(handle, stream, generation, workspace);
}

/* Settings -------------------------------------------------------------------------------------------------------- */

tarn_status tarn_workspace_policy_set(tarn_workspace_policy wanted)
{
    tarn_status status = process_check();
    if (status)
        return status;
    if ((unsigned)wanted > TARN_WORKSPACE_LIBRARY)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%d is no policy of workspaces", (int)wanted);
    atomic_store(&policy, (int)wanted);
    settings_changed();
    return TARN_OK;
}

tarn_status tarn_workspace_policy_get(tarn_workspace_policy *result)
{
    tarn_status status = process_check();
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "policy is NULL");
    *result = (tarn_workspace_policy)atomic_load(&policy);
    return TARN_OK;
}

/* The entry of a library that has workspaces. */
static tarn_status entry_with_workspace(tarn_library library, struct entry **entry)
{
    tarn_status status = process_check();
    if (status || (status = entry_find(library, entry)))
        return status;
    return (*entry)->row->workspace_size
               ? TARN_OK
               : failed(TARN_ERROR_NOT_SUPPORTED, "handles of %s have no workspace", (*entry)->row->name);
}

tarn_status tarn_workspace_size_set(tarn_library library, int64_t bytes)
{
    struct entry *entry = NULL;
    tarn_status status = entry_with_workspace(library, &entry);
    if (status)
        return status;
    if (bytes < -1 || bytes > (int64_t)1 << 40)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%lld is no size of a workspace", (long long)bytes);
    atomic_store(&entry->workspace_bytes, bytes);
    settings_changed();
    return TARN_OK;
}

tarn_status tarn_workspace_size_get(tarn_library library, int device, size_t *bytes)
{
    struct entry *entry = NULL;
    struct device *found = NULL;
    if (!bytes)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "bytes is NULL");
    tarn_status status = device_layer_ready();
    if (status || (status = entry_with_workspace(library, &entry)) || (status = device_find(device, &found)))
        return status;
    *bytes = workspace_bytes(entry, found);
    return TARN_OK;
}

/* For a call ------------------------------------------------------------------------------------------------------ */

static tarn_status get_by_call(struct holder *holder, struct entry *entry, void **pointer, size_t *size)
{
    struct stream *stream = NULL;
    struct handle *handle = NULL;
    struct workspace *workspace = NULL;
    tarn_status status = stream_current(thread_device(), &stream);
    if (status || (status = handle_of_thread(holder, entry, stream, &handle)))
        return status;
    mutex_lock(&handle->lock);
    status = cached_locked(handle, stream, handle->generation, &workspace);
    if (!status) {
        handle->bound = workspace; /* the caller has the pointer, so a clear by others waits for its next call */
        *pointer = workspace->pointer;
        *size = workspace->size;
    }
    struct workspace *gone = workspaces_sweep_locked(handle, false);
    mutex_unlock(&handle->lock);
    workspaces_free(gone);
    return status;
}

tarn_status tarn_workspace_get(tarn_library library, void **pointer, size_t *size)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    if (!pointer || !size)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s is NULL", pointer ? "size" : "pointer");
    tarn_status status = entry_with_workspace(library, &entry);
    if (status)
        return status;
    if (!entry->row->workspace_by_call)
        return failed(TARN_ERROR_NOT_SUPPORTED, "the workspace of %s is in its handle", entry->row->name);
    status = call_begin(&holder);
    if (status)
        return status;
    status = get_by_call(holder, entry, pointer, size);
    call_end(holder);
    return status;
}

/* What tarn_workspace_call.owner points to, for a workspace made for one call. */
struct call_owner {
    struct handle *handle;
    struct workspace *workspace;
};
static struct object_pool call_owners = OBJECT_POOL_NAMED(struct call_owner);

static tarn_status begin_with(struct handle *handle, struct stream *stream, tarn_workspace_call *call)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct entry *entry = handle->library;
    struct workspace *made = NULL;
    struct call_owner *owner = object_alloc(&call_owners);
    if (!owner)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a call's workspace");
    tarn_status status =
        workspace_create(stream, handle->generation, 0, workspace_bytes(entry, handle->pool->device), &made);
    if (status) {
        object_free(&call_owners, owner);
        return status;
    }
    mutex_lock(&handle->lock);
    handle->points = true;
    int code = entry->calls.set_workspace(handle->vendor, made->pointer, made->size);
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
    *owner = (struct call_owner){handle, made};
    call->pointer = made->pointer;
    call->bytes = made->size;
    call->owner = owner;
    return TARN_OK;
}

tarn_status tarn_workspace_begin(tarn_library library, tarn_workspace_call *call)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    struct stream *stream = NULL;
    struct handle *handle = NULL;
    tarn_workspace_call result = {0};
    if (!call)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "call is NULL");
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    if (!(status = entry_find(library, &entry)) && !(status = stream_current(thread_device(), &stream)))
        status = handle_of_thread(holder, entry, stream, &handle);
    if (!status) {
        result.handle = handle->vendor;
        if (sets_workspace(handle) && atomic_load(&policy) == TARN_WORKSPACE_PER_CALL && !stream_captures(stream))
            status = begin_with(handle, stream, &result);
    }
    call_end(holder);
    if (!status)
        *call = result;
    return status;
}

/* Makes the vendor's handle forget the workspace; 0 where it has already. */
static int forget_locked(struct handle *handle, const struct workspace *workspace)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    const struct library_calls *calls = &handle->library->calls;
    int code = 0;
    if (handle->bound != workspace)
        return 0; /* the stream was set since: that made it forget */
    if (handle->library->row->unset_workspace || !calls->set_stream || !handle->stream)
        code = calls->set_workspace(handle->vendor, NULL, 0);
    handle->points = code != 0;
    if (!code && calls->set_stream && handle->stream)
        code = calls->set_stream(handle->vendor, handle->stream->native);
    handle->bound = NULL;
    if (code)
        handle->stream = NULL;
    return code;
}

tarn_status tarn_workspace_end(tarn_workspace_call *call)
{
    struct holder *holder = NULL;
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
        return failed(TARN_ERROR_INVALID_ARGUMENT, "this is not what tarn_workspace_begin() gave, or it has ended");
    }
    struct handle *handle = owner->handle;
    mutex_lock(&handle->lock);
    int code = forget_locked(handle, owner->workspace);
    mutex_unlock(&handle->lock);
    if (code) {
        slot_forget(holder, handle);
        count_gone(owner->workspace, true);
        object_free(&workspace_objects, owner->workspace);
        status = entry_failed(handle->library, TARN_ERROR_LIBRARY, handle->library->row->set_stream, code);
    } else {
        workspaces_free(owner->workspace);
    }
    object_free(&call_owners, owner);
    *call = (tarn_workspace_call){0};
    call_end(holder);
    return status;
}

/* Clearing -------------------------------------------------------------------------------------------------------- */

/* Which: of a stream, of a capture, of a pool's captures, or all that belong to no capture. */
struct clearing {
    const struct stream *stream;
    unsigned generation;
    uint64_t capture;
    tarn_pool_id pool;
    struct holder *holder; /* the calling thread's */
    struct workspace *gone;
    tarn_workspace_cleared cleared;
};

static bool is_meant(const struct clearing *clearing, const struct workspace *workspace)
{
    if (clearing->stream)
        return workspace->stream == clearing->stream && workspace->generation == clearing->generation;
    if (clearing->pool.first || clearing->pool.second)
        return workspace->pool.first == clearing->pool.first && workspace->pool.second == clearing->pool.second;
    return clearing->capture ? workspace->capture == clearing->capture : !workspace->capture;
}

static void clear_handle_locked(struct handle *handle, struct clearing *clearing)
{
    bool ours = handle->available || (clearing->holder && handle->holder == clearing->holder);
    struct workspace **link = &handle->workspaces;
    while (*link) {
        struct workspace *workspace = *link;
        if (!is_meant(clearing, workspace)) {
            link = &workspace->next;
            continue;
        }
        if (workspace == handle->bound && !ours) { /* its owner's next call may still use it */
            if (!workspace->cleared) {
                mutex_lock(&stats_lock);
                stats[workspace->device].deferred_bytes += workspace->size;
                mutex_unlock(&stats_lock);
            }
            workspace->cleared = true;
            clearing->cleared.deferred += workspace->size;
            link = &workspace->next;
            continue;
        }
        if (workspace == handle->bound) {
            handle->bound = NULL;
            handle->stream = NULL;
        }
        clearing->cleared.freed += workspace->size;
        *link = workspace->next;
        workspace->next = clearing->gone;
        clearing->gone = workspace;
    }
}

/* Those whose handle is gone: nobody is bound to them. */
static void clear_kept_locked(struct handle_pool *pool, struct clearing *clearing)
{
    for (struct workspace **link = &pool->kept; *link;) {
        struct workspace *workspace = *link;
        if (!is_meant(clearing, workspace)) {
            link = &workspace->next;
            continue;
        }
        clearing->cleared.freed += workspace->size;
        *link = workspace->next;
        workspace->next = clearing->gone;
        clearing->gone = workspace;
    }
}

static void clear_pool(struct handle_pool *pool, struct clearing *clearing)
{
    mutex_lock(&pool->lock);
    clear_kept_locked(pool, clearing);
    for (struct handle *handle = pool->all; handle; handle = handle->all) {
        mutex_lock(&handle->lock);
        clear_handle_locked(handle, clearing);
        mutex_unlock(&handle->lock);
    }
    mutex_unlock(&pool->lock);
}

static void clear(struct clearing *clearing, tarn_workspace_cleared *cleared)
{
    for (int number = 1; number <= entry_count(); number++)
        for (int device = 0; device < device_count(); device++) {
            struct handle_pool *pool = pool_known(entry_at(number), device);
            if (pool)
                clear_pool(pool, clearing);
        }
    settings_changed(); /* so that owners let go of what is marked, and our own slots of what is freed */
    workspaces_free(clearing->gone);
    if (cleared)
        *cleared = clearing->cleared;
}

tarn_status tarn_workspace_clear(tarn_stream stream, tarn_workspace_cleared *cleared)
{
    struct holder *holder = NULL;
    struct stream *found = NULL;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = stream_find(stream, thread_device(), &found);
    if (!status && captures_open(device_at(found->device)))
        status = stream_refuse_capture(found, "clearing its workspaces");
    if (!status) {
        struct clearing clearing = {.stream = found, .generation = atomic_load(&found->generation), .holder = holder};
        clear(&clearing, cleared);
    }
    call_end(holder);
    return status;
}

/* Whether a stream of the device takes part in the capture now. */
static bool is_captured_now(struct handle_pool *pool, uint64_t capture)
{
    bool found = false;
    mutex_lock(&pool->lock);
    for (struct handle *handle = pool->all; handle && !found; handle = handle->all) {
        mutex_lock(&handle->lock);
        for (struct workspace *at = handle->workspaces; at && !found; at = at->next)
            found = at->capture == capture &&
                    atomic_load_explicit(&at->stream->generation, memory_order_acquire) == at->generation &&
                    capture_of(at->stream) == capture;
        mutex_unlock(&handle->lock);
    }
    mutex_unlock(&pool->lock);
    return found;
}

tarn_status tarn_workspace_clear_capture(uint64_t capture, tarn_workspace_cleared *cleared)
{
    struct holder *holder = NULL;
    if (capture == 0 || capture == ANY_CAPTURE)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%llu is the number of no capture", (unsigned long long)capture);
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    for (int number = 1; number <= entry_count() && !status; number++)
        for (int device = 0; device < device_count() && !status; device++) {
            struct handle_pool *pool = pool_known(entry_at(number), device);
            if (pool && is_captured_now(pool, capture))
                status = failed(TARN_ERROR_CAPTURE, "capture %llu is not over", (unsigned long long)capture);
        }
    if (!status) {
        struct clearing clearing = {.capture = capture, .holder = holder};
        clear(&clearing, cleared);
    }
    call_end(holder);
    return status;
}

void workspaces_of_pool_end(tarn_pool_id pool)
{
    struct clearing clearing = {.pool = pool};
    clear(&clearing, NULL);
}

tarn_status tarn_workspace_clear_pool(tarn_pool *public, tarn_workspace_cleared *cleared)
{
    struct holder *holder = NULL;
    tarn_status status = pool_check(public);
    if (status || (status = call_begin(&holder)))
        return status;
    const struct store *store = &pool_of_public(public)->store;
    struct clearing clearing = {.pool = {store->id[0], store->id[1]}, .holder = holder};
    if (atomic_load(&store->holds))
        status = failed(TARN_ERROR_CAPTURE, "a capture or a graph uses pool (%llu, %llu), and the workspaces in it",
                        (unsigned long long)store->id[0], (unsigned long long)store->id[1]);
    else
        clear(&clearing, cleared);
    call_end(holder);
    return status;
}

tarn_status tarn_workspace_clear_all(tarn_workspace_cleared *cleared)
{
    struct holder *holder = NULL;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    struct clearing clearing = {.holder = holder};
    clear(&clearing, cleared);
    call_end(holder);
    return TARN_OK;
}

tarn_status tarn_workspace_stats_get(int device, tarn_workspace_stats *result)
{
    struct device *found = NULL;
    if (!result || result->size != sizeof *result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stats is NULL, or its size is not sizeof(tarn_workspace_stats)");
    tarn_status status = device_layer_ready();
    if (status || (status = device_find(device, &found)))
        return status;
    mutex_lock(&stats_lock);
    *result = stats[device];
    mutex_unlock(&stats_lock);
    result->size = sizeof *result;
    return TARN_OK;
}
