/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles that belong to no thread. Owns the numbers of leases: a handle has the number of its
 * lease, or 0 if it has none or a call is using it. There is no lock: the thread that changes a
 * number to 0 owns the handle. tests/spin/handle_pool.pml is a model of it. */
#include "base/pages.h"
#include "base/status.h"
#include "handle/handle.h"

static atomic_uint_fast64_t lease_numbers;

static tarn_status lease(struct holder *holder, tarn_library library, tarn_stream value,
                         tarn_lease *result)
{
    struct entry *entry = NULL;
    struct stream *stream = NULL;
    struct shelf *shelf = NULL;
    struct handle *handle = NULL;
    tarn_status status = entry_find(library, &entry);
    if (!status)
        status = stream_find(value, thread_device(), &stream);
    if (!status)
        status = stream_refuse_foreign(stream, "a handle");
    if (!status)
        status = device_check(device_at(stream->device));
    if (!status)
        status = entry_usable(entry);
    if (!status)
        status = shelf_of(entry, device_at(stream->device), &shelf);
    if (!status)
        status = shelf_take(entry, shelf, stream, holder->wait_ns, &handle);
    if (status)
        return status;
    struct taken taken;
    taken_begin(&taken, handle);
    status = vendor_bind(handle, stream,
                         atomic_load_explicit(&stream->incarnation, memory_order_acquire));
    taken_end(&taken);
    if (status) {
        handle_give_back(handle);
        return status;
    }
    uint64_t number = atomic_fetch_add(&lease_numbers, 1) + 1;
    atomic_store(&handle->lease, number);
    *result = (tarn_lease){.handle = handle->vendor, .owner = handle, .number = number};
    return TARN_OK;
}

tarn_status tarn_handle_lease(tarn_library library, tarn_stream stream, tarn_lease *result)
{
    struct holder *holder = NULL;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "lease is NULL");
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = lease(holder, library, stream, result);
    call_end(holder);
    return status;
}

/* A lease that was claimed. If a function of the library does not return, the claim ends. */
struct claimed {
    struct undo undo;
    struct handle *handle;
    uint64_t number;
};

static void claimed_undo(struct undo *undo)
{
    const struct claimed *claimed =
        (struct claimed *)((char *)undo - offsetof(struct claimed, undo));
    atomic_store(&claimed->handle->lease, claimed->number);
}

/* Claims the handle of a lease, so that if two threads return or bind it at the same time, only one
 * gets it. NULL if the lease is not valid: its handle was destroyed, or has the number of another
 * lease now. The handle of a stale lease may be destroyed or recreated meanwhile. So only its
 * number is read, which is unique per lease and outlives the handle. */
static struct handle *lease_claim(const tarn_lease *given, struct claimed *claimed)
{
    uint64_t number = given ? given->number : 0;
    struct handle *handle = number ? given->owner : NULL;
    if (!handle || !handle_is_live(handle) ||
        !atomic_compare_exchange_strong(&handle->lease, &number, 0)) {
        (void)failed(TARN_ERROR_INVALID_ARGUMENT, "this is not a lease, or it was returned");
        return NULL;
    }
    *claimed = (struct claimed){.handle = handle, .number = given->number};
    undo_push(&claimed->undo, claimed_undo);
    return handle;
}

static void lease_unclaim(const struct claimed *claimed)
{
    undo_pop(&claimed->undo);
    atomic_store(&claimed->handle->lease, claimed->number);
}

/* Ends a lease that was claimed. */
static void lease_end(const struct claimed *claimed)
{
    undo_pop(&claimed->undo);
    handle_give_back(claimed->handle);
}

/* Whether the handle of a lease has a workspace for a call that has not ended. */
static tarn_status refuse_in_call(const struct handle *handle)
{
    return handle->calls ? failed(TARN_ERROR_BUSY, "call tarn_workspace_end() for this lease first")
                         : TARN_OK;
}

tarn_status tarn_handle_lease_bind(tarn_lease *given, tarn_stream value)
{
    struct holder *holder = NULL;
    struct stream *stream = NULL;
    struct claimed claimed;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    struct handle *handle = lease_claim(given, &claimed);
    status = handle ? refuse_in_call(handle) : TARN_ERROR_INVALID_ARGUMENT;
    if (!status)
        status = stream_find(value, thread_device(), &stream);
    if (!status && stream->device != handle->shelf->device->number)
        status =
            failed(TARN_ERROR_INVALID_STREAM, "the stream is of device %d, the lease of device %d",
                   stream->device, handle->shelf->device->number);
    if (!status)
        status = stream_refuse_foreign(stream, "a handle");
    if (!status)
        status = device_check(handle->shelf->device);
    bool other = !status && handle->library->row->by_stream && handle->used_on != stream;
    tarn_lease next = {0};
    if (other)
        status = lease(holder, handle->library->number, value, &next);
    else if (!status)
        status = vendor_bind(handle, stream,
                             atomic_load_explicit(&stream->incarnation, memory_order_acquire));
    if (other && !status) {
        lease_end(&claimed);
        *given = next;
    } else if (handle) {
        lease_unclaim(&claimed);
    }
    call_end(holder);
    return status;
}

/* Claims the handle of a lease of `library` and binds it again to its stream, so that it no longer
 * uses cleared workspaces. */
static tarn_status lease_renew(const tarn_lease *given, tarn_library library,
                               struct claimed *claimed)
{
    struct handle *handle = lease_claim(given, claimed);
    if (!handle)
        return TARN_ERROR_INVALID_ARGUMENT;
    struct stream *stream = handle->used_on;
    tarn_status status = TARN_OK;
    if (handle->library->number != library)
        status = failed(TARN_ERROR_INVALID_ARGUMENT,
                        "the lease is of library %d (%s), and the call names library %d",
                        handle->library->number, handle->library->row->name, library);
    if (!status)
        status = stream_refuse_foreign(stream, "a handle");
    if (!status)
        status = device_check(handle->shelf->device);
    if (!status && atomic_load_explicit(&stream->incarnation, memory_order_acquire) !=
                       handle->used_incarnation)
        status = failed(TARN_ERROR_INVALID_STREAM,
                        "the lease's stream was retired; call tarn_handle_lease_bind()");
    if (!status)
        status = vendor_bind(handle, stream, handle->used_incarnation);
    if (status)
        lease_unclaim(claimed);
    return status;
}

tarn_status lease_workspace(const tarn_lease *given, tarn_library library, void **pointer,
                            size_t *size)
{
    struct holder *holder = NULL;
    struct claimed claimed;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = lease_renew(given, library, &claimed);
    if (!status) {
        struct handle *handle = claimed.handle;
        status = workspace_refuse_in_handle(handle->library);
        if (!status)
            status = workspace_give(handle, NULL, handle->stream, pointer, size);
        lease_unclaim(&claimed);
    }
    call_end(holder);
    return status;
}

tarn_status lease_workspace_begin(const tarn_lease *given, tarn_library library,
                                  tarn_workspace_call *call)
{
    struct holder *holder = NULL;
    struct claimed claimed;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = lease_renew(given, library, &claimed);
    if (!status) {
        status = workspace_call_begin(claimed.handle, claimed.handle->stream, call);
        lease_unclaim(&claimed);
    }
    call_end(holder);
    return status;
}

tarn_status tarn_handle_return(tarn_lease *given)
{
    struct holder *holder = NULL;
    struct claimed claimed;
    tarn_status status = call_begin(&holder);
    if (status && status != TARN_ERROR_SHUTDOWN)
        return status;
    bool runs = !status;
    struct handle *handle = lease_claim(given, &claimed);
    status = !handle ? TARN_ERROR_INVALID_ARGUMENT : runs ? refuse_in_call(handle) : TARN_OK;
    if (handle && status) {
        lease_unclaim(&claimed);
    } else if (handle) {
        lease_end(&claimed);
        *given = (tarn_lease){0};
    }
    if (runs)
        call_end(holder);
    return status;
}
