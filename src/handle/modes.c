/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The modes that handles are to have. Those for all threads are in the library's entry; those of
 * one thread are in its holder, which only that thread uses. A handle gets them when it is next
 * bound (vendor.c); nothing here calls a vendor. A lease belongs to no thread, so it has the modes
 * for all threads. */
#include "base/status.h"
#include "base/thread/process.h"
#include "handle/handle.h"

#define TOLD_NEVER UINT64_MAX /* an epoch of modes that no library comes to */

int mode_wanted(const struct handle *handle, int mode)
{
    const struct entry *entry = handle->library;
    int64_t own = handle->holder ? handle->holder->modes[entry->number][mode] : 0;
    return own ? (int)(own - 1)
               : atomic_load_explicit(&entry->mode_values[mode], memory_order_relaxed);
}

/* The entry of a library that has the mode, and the mode's place in its row. */
static tarn_status mode_find(tarn_library library, tarn_handle_mode mode, struct entry **entry,
                             int *place)
{
    static const int places[] = {
        [TARN_HANDLE_MATH] = MODE_MATH, [TARN_HANDLE_ATOMICS] = MODE_ATOMICS};
    tarn_status status = entry_find(library, entry);
    if (status)
        return status;
    if ((unsigned)mode >= sizeof places / sizeof *places)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "there is no mode %d", (int)mode);
    *place = places[mode];
    return (*entry)->row->modes[*place].set
               ? TARN_OK
               : failed(TARN_ERROR_NOT_SUPPORTED, "handles of %s have no such mode",
                        (*entry)->row->name);
}

static tarn_status value_check(int value)
{
    return value >= -1
               ? TARN_OK
               : failed(TARN_ERROR_INVALID_ARGUMENT, "%d is not a valid value of a mode", value);
}

tarn_status tarn_handle_mode_set(tarn_library library, tarn_handle_mode mode, int value,
                                 int *previous)
{
    struct entry *entry = NULL;
    int place = 0;
    tarn_status status = process_check();
    if (!status)
        status = value_check(value);
    if (!status)
        status = mode_find(library, mode, &entry, &place);
    if (status)
        return status;
    int before = atomic_exchange(&entry->mode_values[place], value);
    atomic_fetch_add(&entry->mode_changes, 1);
    process_changed();
    if (previous)
        *previous = before;
    return TARN_OK;
}

/* The thread's handles of a library are told when they are next asked for. */
static void set_own(struct holder *holder, int library, int place, int value)
{
    holder->modes[library][place] = (int64_t)value + 1;
    for (int device = 0; device < holder->devices; device++) {
        struct slot *slot = slot_of(holder, device, library);
        slot->changes = 0;
        for (struct handle *handle = slot->held; handle; handle = handle->next) {
            mutex_lock(&handle->lock);
            handle->mode_changes = TOLD_NEVER;
            mutex_unlock(&handle->lock);
        }
    }
}

tarn_status tarn_handle_mode_guard_set(tarn_handle_mode_guard *guard, tarn_library library,
                                       tarn_handle_mode mode, int value)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    int place = 0;
    if (!guard)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "guard is NULL");
    *guard = (tarn_handle_mode_guard){0};
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = value_check(value);
    if (!status)
        status = mode_find(library, mode, &entry, &place);
    if (!status) {
        *guard = (tarn_handle_mode_guard){.library = library,
                                          .mode = mode,
                                          .previous = (int)(holder->modes[library][place] - 1),
                                          .active = true};
        set_own(holder, library, place, value);
    }
    call_end(holder);
    return status;
}

tarn_status tarn_handle_mode_guard_restore(tarn_handle_mode_guard *guard)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    int place = 0;
    if (!guard)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "guard is NULL");
    if (!guard->active)
        return TARN_OK;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = value_check(guard->previous);
    if (!status)
        status = mode_find(guard->library, guard->mode, &entry, &place);
    if (!status) {
        set_own(holder, guard->library, place, guard->previous);
        guard->active = false;
    }
    call_end(holder);
    return status;
}
