/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ownership of handles. Owns the holders of threads and the order of shutdown; supply.c owns the
 * shelves of free handles.
 *
 * A get with a valid slot makes no call and takes no lock: as long as the number `process_changes`
 * is the same, nothing has happened to streams, captures, settings, or the process. Everything else
 * runs between call_begin() and call_end(), and tarn_shutdown() waits for the latter. Handles are
 * created, destroyed and bound with no shelf's lock held. A handle belongs to one owner at a time,
 * and only the owner's thread binds it. Locks: shelf, then handle; `holders_lock` with no other.
 * tests/spin/handle_pool.pml is a model of it (docs/testing.md): if you change one, change the
 * other. */
#include "handle/handle.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "device/tracing.h"
#include "memory/pool/pool.h"
#include "memory/settings/hooks.h"

#include <string.h>
#include <time.h>

#define LIKELY(condition) __builtin_expect(!!(condition), 1)

static mutex holders_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct holder *holders, *spare_holders; /* holders_lock */

static void handles_thread_end(struct thread *thread);
static void handles_shutdown(void);

/* Holders -------------------------------------------------------------------------------------- */

static size_t holder_size(int devices)
{
    return sizeof(struct holder) + (size_t)devices * LIBRARIES * sizeof(struct slot);
}

static void layer_register(void)
{
    thread_on_end(THREAD_HANDLES, handles_thread_end);
    device_on_shutdown_first(handles_shutdown);
    atomic_store(&upper_hooks.pool_ended, workspaces_of_pool_end);
    captures_on_drop(workspaces_of_capture_drop);
    captures_on_graph(workspaces_of_graph);
    atomic_store(&upper_hooks.sum_workspaces, workspaces_sum);
    atomic_store(&upper_hooks.relieve, workspaces_relieve);
}

/* Gives the thread a holder: one of an ended thread, whose slots are empty, or a new one. */
static tarn_status holder_make(struct thread *thread)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int devices = device_count();
    pthread_once(&once, layer_register);
    mutex_lock(&holders_lock);
    struct holder *holder = spare_holders;
    if (holder)
        spare_holders = holder->free;
    mutex_unlock(&holders_lock);
    if (!holder) {
        holder = pages_map(holder_size(devices));
        if (!holder)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                          "no host memory for the handles of a thread");
        holder->devices = devices;
        mutex_lock(&holders_lock);
        holder->all = holders;
        holders = holder;
        mutex_unlock(&holders_lock);
    }
    holder->free = NULL;
    holder->wait_ns = 0;
    memset(holder->modes, 0, sizeof holder->modes);
    thread->handles = holder;
    callback_calls = &holder->busy;
    return TARN_OK;
}

tarn_status call_begin(struct holder **result)
{
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!thread->handles) {
        status = holder_make(thread);
        if (status)
            return status;
    }
    /* First set `busy`, then check whether the process still runs; tarn_shutdown() does it the
     * other way round. */
    struct holder *holder = thread->handles;
    atomic_fetch_add(&holder->busy, 1);
    int state = atomic_load(&process_state);
    if (state != PROCESS_RUNS) {
        call_end(holder);
        (void)process_refuse(); /* for its text */
        return state == PROCESS_IS_FORKED ? TARN_ERROR_FORKED : TARN_ERROR_SHUTDOWN;
    }
    (void)workspaces_collect();
    *result = holder;
    return TARN_OK;
}

void call_end(struct holder *holder)
{
    atomic_fetch_sub_explicit(&holder->busy, 1, memory_order_release);
}

/* A thread's handle ---------------------------------------------------------------------------- */

void slot_forget(struct holder *holder, const struct handle *handle)
{
    slot_of(holder, handle->shelf->device->number, handle->library->number)->changes = 0;
}

/* For a library with one handle per stream: the thread's handle for this stream, moved to the front
 * of the list. Handles whose stream was retired go back to the shelf, except while a call of
 * tarn_workspace_begin() has no end yet. */
static struct handle *held_for(struct slot *slot, const struct stream *stream)
{
    struct handle **link = &slot->held, *found = NULL, *gone = NULL;
    unsigned incarnation = atomic_load_explicit(&stream->incarnation, memory_order_relaxed);
    while (*link) {
        struct handle *handle = *link;
        bool matches = handle->used_on == stream && handle->used_incarnation == incarnation;
        bool stale = !handle->calls &&
                     atomic_load_explicit(&handle->used_on->incarnation, memory_order_relaxed) !=
                         handle->used_incarnation;
        if (!matches && !stale) {
            link = &handle->next;
            continue;
        }
        *link = handle->next;
        if (matches && !found) {
            found = handle;
        } else {
            handle->next = gone;
            gone = handle;
        }
    }
    while (gone) {
        struct handle *next = gone->next;
        handle_give_back(gone);
        gone = next;
    }
    if (found) {
        found->next = slot->held;
        slot->held = found;
    }
    return found;
}

/* What is called for a handle that was found: vendor_bind() or vendor_leave(). */
typedef tarn_status teller(struct handle *handle, struct stream *stream, unsigned incarnation);

/* Gets a handle that the thread did not have, bound to the stream. */
static tarn_status slot_take(struct slot *slot, struct holder *holder, struct entry *entry,
                             struct stream *stream, teller *tell, struct handle **result)
{
    struct shelf *shelf = NULL;
    struct handle *handle = NULL;
    unsigned incarnation = atomic_load_explicit(&stream->incarnation, memory_order_acquire);
    tarn_status status = entry_usable(entry);
    if (!status)
        status = shelf_of(entry, device_at(stream->device), &shelf);
    if (!status)
        status = shelf_take(entry, shelf, stream, holder->wait_ns, &handle);
    if (status)
        return status;
    mutex_lock(&shelf->lock);
    handle->holder = holder;
    mutex_unlock(&shelf->lock);
    struct taken taken;
    taken_begin(&taken, handle);
    status = tell(handle, stream, incarnation);
    taken_end(&taken);
    if (status) { /* as if there had been no get */
        handle_give_back(handle);
        return status;
    }
    handle->next = slot->held;
    slot->held = handle;
    *result = handle;
    return TARN_OK;
}

static tarn_status held_or_taken(struct holder *holder, struct entry *entry, struct stream *stream,
                                 teller *tell, struct handle **result)
{
    struct slot *slot = slot_of(holder, stream->device, entry->number);
    unsigned incarnation = atomic_load_explicit(&stream->incarnation, memory_order_acquire);
    tarn_status status = stream_refuse_foreign(stream, "a handle");
    if (!status)
        status = device_check(device_at(stream->device));
    if (status)
        return status;
    slot->changes = 0;
    bool by_stream = entry->row->by_stream && slot->held;
    struct handle *handle = by_stream ? held_for(slot, stream) : slot->held;
    if (!handle && by_stream)
        handle = held_move(slot, stream, TARN_HANDLE_STREAMS);
    if (!handle) {
        struct error_before before;
        error_attempt_begin(&before);
        status = slot_take(slot, holder, entry, stream, tell, result);
        handle =
            status == TARN_ERROR_OUT_OF_MEMORY && by_stream ? held_move(slot, stream, 2) : NULL;
        error_attempt_end(&before, handle ? TARN_OK : status);
        if (!handle)
            return status;
    }
    status = tell(handle, stream, incarnation);
    if (!status)
        *result = handle;
    return status;
}

tarn_status handle_of_thread(struct holder *holder, struct entry *entry, struct stream *stream,
                             struct handle **result)
{
    return held_or_taken(holder, entry, stream, vendor_bind, result);
}

/* The slow path of a get. */
static tarn_status get_slowly(tarn_library library, tarn_stream value, void **result)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    struct stream *stream = NULL;
    struct handle *handle = NULL;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "handle is NULL");
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    /* Read before everything whose changes it counts. */
    uint64_t changes = atomic_load(&process_changes);
    status = entry_find(library, &entry);
    if (!status)
        status = stream_find(value, thread_device(), &stream);
    if (!status)
        status = handle_of_thread(holder, entry, stream, &handle);
    if (!status) {
        struct slot *slot = slot_of(holder, stream->device, library);
        slot->stream = value == TARN_STREAM_CURRENT ? thread_here->current[stream->device]
                                                    : stream_value(stream);
        slot->vendor = handle->vendor;
        slot->changes = vendor_is_watched() || !workspace_is_settled(handle) ? 0 : changes;
        *result = handle->vendor;
    }
    call_end(holder);
    return status;
}

static tarn_status get_on(tarn_library library, tarn_stream stream, void **handle)
{
    struct thread *thread = thread_here;
    struct stream *found = NULL;
    if (LIKELY(thread && thread->handles && handle && (unsigned)library < LIBRARIES)) {
        uint64_t changes = atomic_load_explicit(&process_changes, memory_order_acquire);
        tarn_status status = process_check();
        if (!status)
            status = stream_find(stream, thread->device, &found);
        if (status)
            return status;
        const struct slot *slot = slot_of(thread->handles, found->device, library);
        if (LIKELY(slot->changes == changes && slot->stream == stream_value(found))) {
            *handle = slot->vendor;
            return TARN_OK;
        }
    }
    return get_slowly(library, stream, handle);
}

/* As its last user left it: no stream, no workspace and no mode is set. */
static tarn_status get_plain(tarn_library library, void **result)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    struct stream *stream = NULL;
    struct handle *handle = NULL;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "handle is NULL");
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = entry_find(library, &entry);
    if (!status)
        status = stream_current(thread_device(), &stream);
    if (!status)
        status = held_or_taken(holder, entry, stream, vendor_leave, &handle);
    if (!status)
        *result = handle->vendor;
    call_end(holder);
    return status;
}

/* The fast path: about 17 instructions, 9 of them loads, no call; bench/bench_handle.c checks that
 * it takes at most 5 ns. Everything that could invalidate the slot changes `process_changes`. */
tarn_status tarn_handle_get(tarn_library library, tarn_stream stream, void **handle)
{
    struct thread *thread = thread_here;
    if (!LIKELY(stream == TARN_STREAM_CURRENT))
        return stream == TARN_STREAM_NONE ? get_plain(library, handle)
                                          : get_on(library, stream, handle);
    if (LIKELY(thread && thread->handles && handle && (unsigned)library < LIBRARIES)) {
        int device = thread->device;
        const struct slot *slot = slot_of(thread->handles, device, library);
        if (LIKELY(slot->changes == atomic_load_explicit(&process_changes, memory_order_acquire) &&
                   slot->stream == thread->current[device])) {
            *handle = slot->vendor;
            return TARN_OK;
        }
    }
    return get_slowly(library, TARN_STREAM_CURRENT, handle);
}

/* Gives back all handles of a thread. */
static void holder_empty(struct holder *holder)
{
    int count = entry_count();
    for (int device = 0; device < holder->devices; device++)
        for (int number = 1; number <= count; number++) {
            struct slot *slot = slot_of(holder, device, number);
            struct handle *handle = slot->held;
            *slot = (struct slot){0};
            while (handle) {
                struct handle *next = handle->next;
                handle_give_back(handle);
                handle = next;
            }
        }
}

/* The end of a thread. Makes no call of the vendor or the driver. The handle that was given back
 * last is taken first. */
static void handles_thread_end(struct thread *thread)
{
    struct holder *holder = thread->handles;
    if (!holder)
        return;
    atomic_fetch_add(&holder->busy, 1);
    holder_empty(holder);
    call_end(holder);
    thread->handles = NULL;
    callback_calls = NULL;
    mutex_lock(&holders_lock);
    holder->free = spare_holders;
    spare_holders = holder;
    mutex_unlock(&holders_lock);
}

tarn_status tarn_handle_wait_limit_set(uint64_t ns, uint64_t *previous)
{
    struct holder *holder = NULL;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    if (previous)
        *previous = holder->wait_ns;
    holder->wait_ns = ns;
    call_end(holder);
    return TARN_OK;
}

/* Shutdown ------------------------------------------------------------------------------------- */

/* Waits until no other thread is in a call that may reach a vendor. No new call begins, because the
 * process is shut down. */
static void wait_for_calls(void)
{
    static const struct timespec moment = {.tv_nsec = 50000};
    mutex_lock(&holders_lock);
    struct holder *holder = holders;
    mutex_unlock(&holders_lock);
    for (; holder; holder = holder->all)
        /* Sequentially consistent with the change of the state: an acquiring load could come before
         * it. */
        while (atomic_load(&holder->busy))
            nanosleep(&moment, NULL);
}

static void handles_shutdown(void)
{
    wait_for_calls();
    if (thread_here && thread_here->handles)
        holder_empty(thread_here->handles);
    if (captures_bar_all("destroying handles")) { /* one that began as the shutdown did */
        log_write(LOG_ERRORS, "tarn_shutdown(): %s", tarn_last_error());
        return;
    }
    for (int number = 1; number <= entry_count(); number++)
        for (int device = 0; device < device_count(); device++) {
            struct shelf *shelf = shelf_known(entry_at(number), device);
            size_t count = 0;
            if (!shelf)
                continue;
            if (handles_destroy(shelf, false, &count))
                log_write(LOG_ERRORS, "tarn_shutdown(): %s", tarn_last_error());
            mutex_lock(&shelf->lock);
            struct workspace *orphans = shelf->orphans;
            shelf->orphans = NULL;
            mutex_unlock(&shelf->lock);
            workspaces_free(orphans);
        }
    captures_unbar_all();
}
