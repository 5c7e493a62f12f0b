/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The calls into a vendor's library, except those that load it, and that set a workspace
 * (workspace.c). Handles what vendors do wrong: the place for a handle is zeroed before create,
 * success with NULL counts as a failure, and a handle after a failure is ignored (cuSOLVER leaves a
 * dangling pointer, hipSPARSE returns success without a device). Calls that may allocate run in the
 * device's context and in relaxed capture mode, so that a capture that tarn does not know survives
 * them if the driver allows it. */
#include "base/debug_words.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/clock.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "handle/handle.h"
#include "memory/malloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <tarn/memory.h>
#include <unistd.h>

static void visit_leave(struct visit *visit, bool stay)
{
    if (visit->relaxed)
        (void)driver->capture_mode(&visit->mode);
    bool stays = stay && (!visit->before || visit->device_before == visit->device);
    if (visit->knows_before && !stays)
        (void)driver->context_set(visit->before);
    cancel_restore(visit->cancel);
}

static void visit_undo(struct undo *undo)
{
    visit_leave((struct visit *)((char *)undo - offsetof(struct visit, undo)), false);
}

tarn_status visit_begin(struct device *device, struct visit *visit)
{
    *visit = (struct visit){.device = device->number, .mode = DRIVER_CAPTURE_RELAXED};
    tarn_status status = device_check(device);
    if (status)
        return status;
    visit->cancel = cancel_off();
    visit->knows_before = driver->context_get(&visit->before) == TARN_OK &&
                          driver->current(&visit->device_before) == TARN_OK;
    status = device_note(device, driver->activate(device->number));
    if (status) {
        cancel_restore(visit->cancel);
        return status;
    }
    visit->relaxed = driver->capture_mode(&visit->mode) == TARN_OK;
    undo_push(&visit->undo, visit_undo);
    return TARN_OK;
}

/* With `stay`, a thread that had no context, or was on the device, keeps the device's context,
 * because its next calls need it (aten/src/ATen/cuda/CublasHandlePool.cpp). */
void visit_end(struct visit *visit, bool stay)
{
    undo_pop(&visit->undo);
    visit_leave(visit, stay);
}

static bool has_status(const int *statuses, size_t count, int code)
{
    bool has = false;
    for (size_t i = 0; i < count; i++)
        has |= code && statuses[i] == code;
    return has;
}

/* True if the device is so full that a create may have failed for lack of memory, whatever error it
 * returned. A create takes tens to hundreds of MiB, with the code that it loads. */
static bool is_full(const struct device *device)
{
    size_t free = 0, total = 0, little = (size_t)1 << 30;
    if (driver->memory_info(device->number, &free, &total))
        return false;
    return free < (total / 16 < little ? total / 16 : little);
}

/* One create. TARN_ERROR_OUT_OF_MEMORY if the library returns that, or returns an error that may
 * mean it and the device is full. */
static tarn_status create_once(struct entry *entry, const struct device *device, void **vendor)
{
    const struct library *row = entry->row;
    void *place = row->handle_bytes ? pages_map(row->handle_bytes) : NULL, *made = place;
    if (row->handle_bytes && !place)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a handle of %s",
                      row->name);
    int code = library_create(entry, &made);
    if (!made)
        pages_unmap(place, row->handle_bytes);
    if (code == 0 && made) {
        *vendor = made;
        return TARN_OK;
    }
    if (code == 0)
        return failed(TARN_ERROR_LIBRARY, "%s: %s reported success but created no handle",
                      row->name, row->create);
    if (made && row->failed_handle_is_real)
        (void)library_destroy(entry, made);
    bool full =
        has_status(row->out_of_memory, sizeof row->out_of_memory / sizeof *row->out_of_memory,
                   code) ||
        (has_status(row->may_be_full, sizeof row->may_be_full / sizeof *row->may_be_full, code) &&
         is_full(device));
    return entry_failed(entry, full ? TARN_ERROR_OUT_OF_MEMORY : TARN_ERROR_LIBRARY, row->create,
                        code);
}

static bool mode_get(struct handle *handle, int mode, intptr_t *value)
{
    return library_get_mode(&handle->library->calls.modes[mode], handle->vendor, value);
}

static int mode_set(struct handle *handle, int mode, intptr_t value)
{
    return library_set_mode(&handle->library->calls.modes[mode], handle->vendor, value);
}

/* The modes of a new handle are the library's defaults, which depend on its version and the
 * environment. */
static void modes_note(struct handle *handle)
{
    for (int i = 0; i < LIBRARY_MODES; i++) {
        handle->knows_usual[i] =
            !handle->library->row->modes[i].get || mode_get(handle, i, &handle->usual[i]);
        handle->modes[i] = handle->usual[i];
    }
}

tarn_status vendor_create(struct handle *handle, bool alone, uint64_t *ns, int64_t *bytes)
{
    struct entry *entry = handle->library;
    struct device *device = handle->shelf->device;
    struct visit visit;
    size_t before = 0, after = 0, total = 0;
    tarn_status status = visit_begin(device, &visit);
    if (status)
        return status;
    bool measured = alone && driver->memory_info(device->number, &before, &total) == TARN_OK;
    uint64_t start = clock_ns();
    struct error_before error;
    error_attempt_begin(&error);
    status = create_once(entry, device, &handle->vendor);
    if (status == TARN_ERROR_OUT_OF_MEMORY && captures_open(device) == 0) {
        char why[512];
        strncpy(why, tarn_last_error(), sizeof why - 1);
        why[sizeof why - 1] = '\0';
        measured = false;
        (void)workspaces_relieve(device->number);
        if (tarn_device_trim(device->number, 0) == TARN_OK)
            status = create_once(entry, device, &handle->vendor);
        else
            (void)failed(status, "%s", why);
    }
    error_attempt_end(&error, status);
    *ns = clock_ns() - start;
    measured = measured && driver->memory_info(device->number, &after, &total) == TARN_OK;
    *bytes = !measured ? -1 : before > after ? (int64_t)(before - after) : 0;
    if (!status && entry->calls.memory) {
        int code = entry->row->give_memory(handle, entry->calls.memory);
        if (code) {
            status = entry_failed(entry, TARN_ERROR_LIBRARY, entry->row->memory, code);
            (void)library_destroy(entry, handle->vendor);
            handle->vendor = NULL;
        }
    }
    if (!status) {
        entry_note_version(entry, handle->vendor);
        modes_note(handle);
    }
    visit_end(&visit, true);
    return status;
}

tarn_status vendor_destroy(const struct handle *handle)
{
    int code = library_destroy(handle->library, handle->vendor);
    return code ? entry_failed(handle->library, TARN_ERROR_LIBRARY, handle->library->row->destroy,
                               code)
                : TARN_OK;
}

/* Binding -------------------------------------------------------------------------------------- */

bool vendor_is_watched(void)
{
    return debug_has(DEBUG_HANDLES);
}

static void tell_undo(struct undo *undo)
{
    struct tell *tell = (struct tell *)((char *)undo - offsetof(struct tell, undo));
    tell->handle->stream = NULL; /* what the library did before is unknown */
    mutex_unlock(&tell->handle->lock);
    cancel_restore(tell->cancel);
}

bool vendor_is_told(void)
{
    return undo_is_here(tell_undo);
}

void tell_begin_locked(struct tell *tell, struct handle *handle)
{
    *tell = (struct tell){.handle = handle, .cancel = cancel_off()};
    undo_push(&tell->undo, tell_undo);
}

void tell_end_locked(struct tell *tell)
{
    undo_pop(&tell->undo);
    cancel_restore(tell->cancel);
}

/* Asks the vendor whether the handle still has the stream that tarn has set. */
static void watch_locked(struct handle *handle)
{
    void *native = NULL;
    const struct entry *entry = handle->library;
    if (!handle->stream || !entry->calls.get_stream)
        return;
    struct tell tell;
    tell_begin_locked(&tell, handle);
    int code = library_get_stream(entry, handle->vendor, &native);
    tell_end_locked(&tell);
    if (code || native == handle->stream->native)
        return;
    debug_say("the caller broke the contract of pooled handles: %s handle %p of thread %ld was "
              "bound to stream %p, and "
              "has stream %p now; make a handle of your own to set its stream",
              entry->row->name, handle->vendor, syscall(SYS_gettid), handle->stream->native,
              native);
    handle->stream = NULL;
    atomic_fetch_add_explicit(&handle->shelf->contract_breaks, 1, memory_order_relaxed);
}

/* Notes a call of the library's that failed. Its text is asked for when the lock has been
 * released. */
static tarn_status refused_locked(struct handle *handle, const char *call, int code)
{
    handle->refused = (struct refused){call, code};
    return TARN_ERROR_LIBRARY;
}

/* The status of a bind after the lock was released. */
static tarn_status bound(struct handle *handle, tarn_status status)
{
    struct refused refused = handle->refused;
    handle->refused = (struct refused){0};
    return refused.call ? entry_failed(handle->library, status, refused.call, refused.code)
                        : status;
}

/* Sets the modes that differ from what was set last. A mode that the thread has set stays while it
 * has the handle. */
static tarn_status set_modes_locked(struct handle *handle)
{
    struct entry *entry = handle->library;
    for (int i = 0; i < LIBRARY_MODES; i++) {
        if (!entry->calls.modes[i].set && !entry->calls.modes[i].set_pointer)
            continue;
        int common = i < COMMON_MODES ? mode_wanted(handle, i) : -1;
        intptr_t wanted = common >= 0 ? common : handle->usual[i];
        if (common < 0 && !handle->knows_usual[i])
            continue;
        bool changed = handle->reset && !mode_get(handle, i, &handle->modes[i]);
        if (handle->modes[i] == wanted && !changed)
            continue;
        int code = mode_set(handle, i, wanted);
        if (code)
            return refused_locked(handle, entry->row->modes[i].set, code);
        handle->modes[i] = wanted;
    }
    handle->reset = false;
    return TARN_OK;
}

/* The first workspace may make the handle free its own memory, while other threads have captures
 * that tarn does not know. */
static int set_workspace_locked(struct handle *handle, void *pointer, size_t size)
{
    enum driver_capture_mode mode = DRIVER_CAPTURE_RELAXED;
    bool frees = handle->library->row->frees_own_memory && !handle->points;
    bool relaxed = frees && driver->capture_mode(&mode) == TARN_OK;
    int code = library_set_workspace(handle->library, handle->vendor, pointer, size);
    if (relaxed)
        (void)driver->capture_mode(&mode);
    return code;
}

bool vendor_is_prepared(struct handle *handle)
{
    if (!handle->library->row->frees_own_memory || !workspace_is_ours(handle))
        return true;
    mutex_lock(&handle->lock);
    bool points = handle->points || handle->own_captured;
    mutex_unlock(&handle->lock);
    return points;
}

tarn_status vendor_prepare(struct handle *handle, struct stream *stream)
{
    struct workspace *workspace = NULL;
    if (vendor_is_prepared(handle))
        return TARN_OK;
    tarn_status status = workspace_stand_in(stream, &workspace);
    if (status)
        return status;
    mutex_lock(&handle->lock);
    /* It is bound below, before other code can take it for unused. */
    workspace->next = handle->workspaces;
    handle->workspaces = workspace;
    struct tell tell;
    tell_begin_locked(&tell, handle);
    int code = set_workspace_locked(handle, workspace->pointer, workspace->size);
    tell_end_locked(&tell);
    handle->stream = NULL; /* the next bind sets everything */
    handle->points = true;
    handle->bound = workspace;
    mutex_unlock(&handle->lock);
    return code ? entry_failed(handle->library, TARN_ERROR_LIBRARY,
                               handle->library->row->set_workspace, code)
                : TARN_OK;
}

/* True if a handle that still has its own memory must keep it: its first workspace would free that
 * memory, which ends a capture. */
static bool keeps_own_memory(const struct handle *handle, struct stream *stream)
{
    return handle->library->row->frees_own_memory && !handle->points &&
           (handle->own_captured || stream_captures(stream));
}

/* Ends the use of a workspace if that takes a call. Sets stream, workspace and modes, in this
 * order. With some libraries, setting the stream ends the use of a workspace; others, if they get
 * no workspace, use their own again. */
static tarn_status tell_locked(struct handle *handle, struct stream *stream,
                               struct workspace *workspace)
{
    const struct entry *entry = handle->library;
    const struct library_calls *calls = &entry->calls;
    int code = 0;
    bool has_workspaces = calls->set_workspace && !entry->row->workspace_by_call;
    bool unset =
        !workspace && handle->points && (entry->row->unset_workspace || !calls->set_stream);
    if (has_workspaces && unset) {
        code = library_set_workspace(entry, handle->vendor, NULL, 0);
        if (code)
            return refused_locked(handle, entry->row->set_workspace, code);
    }
    handle->points = handle->points && !unset;
    if (calls->set_stream) {
        code = library_set_stream(entry, handle->vendor, stream->native);
        if (code)
            return refused_locked(handle, entry->row->set_stream, code);
    }
    if (has_workspaces && workspace) {
        code = set_workspace_locked(handle, workspace->pointer, workspace->size);
        handle->points = true;
    }
    if (code)
        return refused_locked(handle, entry->row->set_workspace, code);
    if (!entry->row->workspace_by_call || !workspace_is_given(handle, stream))
        handle->bound = workspace;
    return set_modes_locked(handle);
}

static tarn_status bind_relocking(struct handle *handle, struct stream *stream,
                                  unsigned incarnation)
{
    struct purpose purpose = {.stream = stream, .incarnation = incarnation};
    struct workspace *workspace = NULL;
    uint64_t captures = capture_epoch(), settings = workspaces_epoch();
    uint64_t modes = atomic_load_explicit(&handle->library->mode_changes, memory_order_acquire);
    if (vendor_is_watched())
        watch_locked(handle);
    tarn_status status = workspace_capture(handle, stream, &purpose.capture);
    if (status)
        return status;
    if (handle->stream && handle->stream == stream && handle->incarnation == incarnation &&
        handle->capture == purpose.capture && handle->captures == captures &&
        handle->settings == settings && handle->mode_changes == modes && !handle->reset)
        return TARN_OK;
    handle->stream = NULL; /* if something fails from here on, the state is unknown */
    if (keeps_own_memory(handle, stream))
        handle->own_captured = true;
    else
        status = workspace_wanted_relocking(handle, &purpose, &workspace);
    if (status)
        return status;
    struct tell tell;
    tell_begin_locked(&tell, handle);
    status = tell_locked(handle, stream, workspace);
    tell_end_locked(&tell);
    if (status)
        return status;
    handle->stream = handle->used_on = stream;
    handle->incarnation = handle->used_incarnation = incarnation;
    handle->capture = purpose.capture;
    handle->captures = captures;
    handle->settings = settings;
    handle->mode_changes = modes;
    return TARN_OK;
}

tarn_status vendor_bind(struct handle *handle, struct stream *stream, unsigned incarnation)
{
    mutex_lock(&handle->lock);
    tarn_status status = bind_relocking(handle, stream, incarnation);
    struct workspace *gone = status ? NULL : workspaces_sweep_locked(handle, false);
    mutex_unlock(&handle->lock);
    workspaces_free(gone);
    if (!status)
        workspaces_limit(handle->shelf->device->number);
    return bound(handle, status);
}

tarn_status vendor_leave(struct handle *handle, struct stream *stream, unsigned incarnation)
{
    mutex_lock(&handle->lock);
    tarn_status status =
        handle->points && !handle->bound ? bind_relocking(handle, stream, incarnation) : TARN_OK;
    handle->stream = NULL;
    handle->reset = true; /* the next bind reads the modes that the caller has set */
    handle->used_on = stream;
    handle->used_incarnation = incarnation;
    mutex_unlock(&handle->lock);
    return bound(handle, status);
}

/* Memory for libraries ------------------------------------------------------------------------- */

void *handle_vendor(struct handle *handle)
{
    return handle->vendor;
}

void *handle_native_stream(struct handle *handle)
{
    const struct stream *stream =
        handle->stream ? handle->stream : handle->used_on; /* by vendor_leave(), for work there */
    return stream ? stream->native : NULL;
}

/* The stream of a native stream: the handle's stream if it is the same, otherwise it is adopted
 * temporarily. */
static tarn_status memory_stream(struct handle *handle, void *native, tarn_stream *stream,
                                 bool *adopted)
{
    *adopted = false;
    if (handle->stream && handle->stream->native == native && !stream_is_foreign(handle->stream)) {
        *stream = stream_value(handle->stream);
        return TARN_OK;
    }
    *adopted = native != NULL;
    return tarn_stream_adopt(handle->shelf->device->number, native, stream);
}

void *handle_memory_alloc(struct handle *handle, size_t size, void *native)
{
    struct own wanted = {0};
    tarn_pool_id pool;
    tarn_stream stream;
    void *pointer = NULL;
    bool adopted;
    if (memory_stream(handle, native, &stream, &adopted))
        return NULL;
    if (!stream_find(stream, handle->shelf->device->number, &wanted.stream)) {
        wanted.captured = captures_open_anywhere() && stream_captures(wanted.stream);
        if (memory_alloc_own(&wanted, size, &pool, &pointer))
            pointer = NULL;
    }
    if (adopted)
        (void)tarn_stream_retire(stream);
    return pointer;
}

bool handle_memory_free(struct handle *handle, void *pointer, void *native)
{
    tarn_stream stream;
    bool adopted;
    if (memory_stream(handle, native, &stream, &adopted))
        return false;
    tarn_status status = tarn_free_on(pointer, stream);
    if (adopted)
        (void)tarn_stream_retire(stream);
    return status == TARN_OK || status == TARN_ERROR_SHUTDOWN;
}
