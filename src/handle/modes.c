/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The modes that handles are to have. Those for all threads are in the library's entry; those of
 * one thread are in its holder, which only that thread uses. A handle gets them when it is next
 * bound (vendor.c); nothing here calls a vendor. A lease belongs to no thread, so it has the modes
 * for all threads. */
#include "base/status.h"
#include "base/thread/process.h"
#include "handle/handle.h"

#define TOLD_NEVER UINT64_MAX /* an epoch that no library reaches */

int mode_wanted(const struct handle *handle, int mode)
{
    const struct entry *entry = handle->library;
    int64_t own = handle->holder ? handle->holder->modes[entry->number][mode] : 0;
    return own ? (int)(own - 1)
               : atomic_load_explicit(&entry->mode_values[mode], memory_order_relaxed);
}

/* The entry of a library that has the mode, and the mode's index in its row. */
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

/* Sets a mode for the calling thread. Its handles get it when they are next asked for. */
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

tarn_status tarn_handle_mode_set(tarn_library library, tarn_handle_mode mode,
                                 tarn_handle_mode_for whose, int value, int *previous)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    int place = 0, before = -1;
    bool own = whose == TARN_HANDLE_MODE_FOR_THREAD;
    tarn_status status = own ? call_begin(&holder) : process_check();
    if (status)
        return status;
    if (value < -1)
        status = failed(TARN_ERROR_INVALID_ARGUMENT, "%d is not a valid value of a mode", value);
    else if (!own && whose != TARN_HANDLE_MODE_FOR_ALL)
        status =
            failed(TARN_ERROR_INVALID_ARGUMENT, "there is no tarn_handle_mode_for %d", (int)whose);
    else
        status = mode_find(library, mode, &entry, &place);
    if (!status && own) {
        before = (int)(holder->modes[library][place] - 1);
        set_own(holder, library, place, value);
    } else if (!status) {
        before = atomic_exchange(&entry->mode_values[place], value);
        atomic_fetch_add(&entry->mode_changes, 1);
        process_changed();
    }
    if (own)
        call_end(holder);
    if (!status && previous)
        *previous = before;
    return status;
}
