/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every call into a vendor's library but those at its loading. Owns the rules that vendors break: an out-handle is
 * zeroed before create, success with NULL is a failure, what a failure leaves there is garbage (cuSOLVER leaves a
 * dangling pointer, hipSPARSE says success without a device). Calls that may allocate run in the device's context and
 * in relaxed capture mode, so that a capture that tarn does not know survives them where the driver lets it. */
#include "base/cancel.h"
#include "base/debug_words.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status.h"
#include "device/capture.h"
#include "handle/pool.h"

#include <stdlib.h>
#include <string.h>
#include <tarn/memory.h>
#include <time.h>
#include <unistd.h>

tarn_status visit_begin(struct device *device, struct visit *visit)
{
    *visit = (struct visit){.device = device->number, .mode = DRIVER_CAPTURE_RELAXED};
    tarn_status status = device_check(device);
    if (status)
        return status;
    visit->knows_previous = driver->current(&visit->previous) == TARN_OK;
    status = device_note(device, driver->activate(device->number));
    if (!status)
        visit->relaxed = driver->capture_mode(&visit->mode) == TARN_OK;
    return status;
}

/* A thread on whose device nothing was current keeps the device's context, which what it does next needs
 * (aten/src/ATen/cuda/CublasHandlePool.cpp). */
void visit_end(struct visit *visit)
{
    if (visit->relaxed)
        (void)driver->capture_mode(&visit->mode);
    if (visit->knows_previous && visit->previous != visit->device)
        (void)driver->activate(visit->previous);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One create. TARN_ERROR_OUT_OF_MEMORY where the library says so. */
static tarn_status create_once(struct entry *entry, void **vendor)
{
    const struct library *row = entry->row;
    const struct library_calls *calls = &entry->calls;
    void *made = NULL;
    int code = row->create_takes_number ? calls->create_with_number(&made, row->create_number) : calls->create(&made);
    if (code == 0 && made) {
        *vendor = made;
        return TARN_OK;
    }
    if (code == 0)
        return failed(TARN_ERROR_LIBRARY, "%s: %s said that it succeeded, and made no handle", row->name, row->create);
    if (made && row->failed_handle_is_real)
        (void)calls->destroy(made);
    for (size_t i = 0; i < sizeof row->out_of_memory / sizeof *row->out_of_memory; i++)
        if (code == row->out_of_memory[i])
            return entry_failed(entry, TARN_ERROR_OUT_OF_MEMORY, row->create, code);
    return entry_failed(entry, TARN_ERROR_LIBRARY, row->create, code);
}

tarn_status vendor_create(struct handle *handle, bool alone, uint64_t *ns, int64_t *bytes)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct entry *entry = handle->library;
    struct device *device = handle->pool->device;
    struct visit visit;
    size_t before = 0, after = 0, total = 0;
    tarn_status status = visit_begin(device, &visit);
    if (status)
        return status;
    bool measured = alone && driver->memory_info(device->number, &before, &total) == TARN_OK;
    uint64_t start = now_ns();
    status = create_once(entry, &handle->vendor);
    if (status == TARN_ERROR_OUT_OF_MEMORY && captures_open(device) == 0) {
        char why[512];
        strncpy(why, tarn_last_error(), sizeof why - 1);
        why[sizeof why - 1] = '\0';
        measured = false;
        if (tarn_trim(device->number, 0) == TARN_OK)
            status = create_once(entry, &handle->vendor);
        else
            (void)failed(status, "%s", why);
    }
    *ns = now_ns() - start;
    measured = measured && driver->memory_info(device->number, &after, &total) == TARN_OK;
    *bytes = !measured ? -1 : before > after ? (int64_t)(before - after) : 0;
    if (!status && entry->calls.memory && device->properties.virtual_memory) { /* else tarn has no memory to give */
        int code = entry->row->give_memory(handle, entry->calls.memory);
        if (code) {
            status = entry_failed(entry, TARN_ERROR_LIBRARY, entry->row->memory, code);
            (void)entry->calls.destroy(handle->vendor);
            handle->vendor = NULL;
        }
    }
    visit_end(&visit);
    if (!status)
        entry_note_version(entry, handle->vendor);
    return status;
}

tarn_status vendor_destroy(const struct handle *handle)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    int code = handle->library->calls.destroy(handle->vendor);
    return code ? entry_failed(handle->library, TARN_ERROR_LIBRARY, handle->library->row->destroy, code) : TARN_OK;
}

/* Binding --------------------------------------------------------------------------------------------------------- */

bool vendor_is_watched(void)
{
    return debug_has(DEBUG_HANDLES);
}

/* Asks the vendor whether the handle still has the stream that it was given. */
static void watch_locked(struct handle *handle)
{
    void *native = NULL;
    const struct entry *entry = handle->library;
    if (!handle->stream || !entry->calls.get_stream || entry->calls.get_stream(handle->vendor, &native) ||
        native == handle->stream->native)
        return;
    log_write(LOG_ERRORS,
              "the caller broke the contract of pooled handles: %s handle %p of thread %ld was bound to stream %p, and "
              "has stream %p now; make a handle of your own to set its stream",
              entry->row->name, handle->vendor, (long)gettid(), handle->stream->native, native);
    handle->stream = NULL;
    atomic_fetch_add_explicit(&handle->pool->contract_breaks, 1, memory_order_relaxed);
}

/* What differs from what the vendor was told; the pointer mode is the user's own while the thread has the handle. */
static tarn_status set_modes_locked(struct handle *handle)
{
    const struct entry *entry = handle->library;
    for (int i = 0; i < LIBRARY_MODES; i++) {
        int wanted = atomic_load_explicit(&entry->mode_values[i], memory_order_relaxed);
        if (wanted < 0)
            wanted = entry->row->modes[i].usual;
        if (!entry->calls.set_mode[i] || (handle->modes[i] == wanted && !handle->reset))
            continue;
        int code = entry->calls.set_mode[i](handle->vendor, wanted);
        if (code)
            return entry_failed(entry, TARN_ERROR_LIBRARY, entry->row->modes[i].set, code);
        handle->modes[i] = wanted;
    }
    handle->reset = false;
    return TARN_OK;
}

/* The end of a workspace where it takes a call, stream, workspace, modes, in this order: setting the stream ends the use of a workspace
 * with some libraries, and makes others that were told of none use their own again. */
static tarn_status tell_locked(struct handle *handle, struct stream *stream, struct workspace *workspace)
{
    const struct entry *entry = handle->library;
    const struct library_calls *calls = &entry->calls;
    int code = 0;
    bool has_workspaces = calls->set_workspace && !entry->row->workspace_by_call;
    bool unset = !workspace && handle->points && (entry->row->unset_workspace || !calls->set_stream);
    if (has_workspaces && unset && (code = calls->set_workspace(handle->vendor, NULL, 0)))
        return entry_failed(entry, TARN_ERROR_LIBRARY, entry->row->set_workspace, code);
    handle->points = handle->points && !unset;
    if (calls->set_stream && (code = calls->set_stream(handle->vendor, stream->native)))
        return entry_failed(entry, TARN_ERROR_LIBRARY, entry->row->set_stream, code);
    handle->points = handle->points || workspace;
    if (has_workspaces && workspace &&
        (code = calls->set_workspace(handle->vendor, workspace->pointer, workspace->size)))
        return entry_failed(entry, TARN_ERROR_LIBRARY, entry->row->set_workspace, code);
    handle->bound = workspace;
    return set_modes_locked(handle);
}

static tarn_status bind_locked(struct handle *handle, struct stream *stream, unsigned generation)
{
    struct workspace *workspace = NULL;
    uint64_t captures = capture_epoch(), settings = workspaces_epoch();
    uint64_t modes = atomic_load_explicit(&handle->library->mode_changes, memory_order_acquire);
    if (vendor_is_watched())
        watch_locked(handle);
    if (handle->stream && handle->stream == stream && handle->generation == generation &&
        handle->captures == captures && handle->settings == settings && handle->mode_changes == modes && !handle->reset)
        return TARN_OK;
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    handle->stream = NULL; /* a failure from here on leaves nothing that can be relied upon */
    tarn_status status = workspace_wanted_locked(handle, stream, generation, &workspace);
    if (status || (status = tell_locked(handle, stream, workspace)))
        return status;
    handle->stream = handle->used_on = stream;
    handle->generation = handle->used_generation = generation;
    handle->captures = captures;
    handle->settings = settings;
    handle->mode_changes = modes;
    return TARN_OK;
}

tarn_status vendor_bind(struct handle *handle, struct stream *stream, unsigned generation)
{
    mutex_lock(&handle->lock);
    tarn_status status = bind_locked(handle, stream, generation);
    struct workspace *gone = status ? NULL : workspaces_sweep_locked(handle, false);
    mutex_unlock(&handle->lock);
    workspaces_free(gone);
    return status;
}

/* Memory for libraries -------------------------------------------------------------------------------------------- */

void *handle_vendor(struct handle *handle)
{
    return handle->vendor;
}

void *handle_native_stream(struct handle *handle)
{
    return handle->stream ? handle->stream->native : NULL;
}

/* The stream behind a native one: the handle's where it is that, else it is adopted for the moment. */
static tarn_status memory_stream(struct handle *handle, void *native, tarn_stream *stream, bool *adopted)
{
    *adopted = false;
    if (handle->stream && handle->stream->native == native) {
        *stream = stream_value(handle->stream);
        return TARN_OK;
    }
    *adopted = native != NULL;
    return tarn_stream_adopt(handle->pool->device->number, native, stream);
}

void *handle_memory_alloc(struct handle *handle, size_t size, void *native)
{
    tarn_stream stream;
    void *pointer = NULL;
    bool adopted;
    if (memory_stream(handle, native, &stream, &adopted))
        return NULL;
    if (tarn_alloc_on(stream, size, &pointer))
        pointer = NULL;
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
