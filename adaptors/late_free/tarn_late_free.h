/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Frees blocks that may be in use on streams that nobody names: after all work of their device. The
 * other adaptors include this.
 *
 * A wait for a device is refused while a known capture is open there, and it can fail. Then the
 * block may still be in use, so it stays allocated: it is noted, and a later call frees it. All
 * adaptors that are compiled into one program share the notes, so a call of one frees what another
 * has noted. libtarn_adaptors.so has notes of its own.
 *
 * Header-only; C11 and C++17. Thread-safe. */
#ifndef TARN_LATE_FREE_H
#define TARN_LATE_FREE_H

#include <stdlib.h>
#include <tarn/device.h>
#include <tarn/memory.h>
#include <tarn/pinned.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A block that is freed later. */
struct tarn_late_note {
    struct tarn_late_note *next;
    void *pointer; /* of a block, in device or pinned memory */
    int device;    /* the device whose work may use it */
};

/* All notes, the newest first. Atomic. */
__attribute__((weak)) struct tarn_late_note *tarn_late_notes;

static inline void tarn_late_note_add(struct tarn_late_note *note)
{
    note->next = __atomic_load_n(&tarn_late_notes, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&tarn_late_notes, &note->next, note, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
        ;
}

/* Waits for the device, and frees. Returns false if it could not wait: the block may be in use. The
 * memory of a lost device, and of a process that has been shut down or forked, is no longer used;
 * tarn_free() says what it does then. */
static inline bool tarn_late_try(int device, void *pointer, tarn_status *status)
{
    *status = tarn_device_synchronize(device);
    if (*status && *status != TARN_ERROR_DEVICE_LOST && *status != TARN_ERROR_SHUTDOWN &&
        *status != TARN_ERROR_FORKED)
        return false;
    *status = tarn_free(pointer);
    return true;
}

/* Frees what was noted, if its devices can be waited for now. Returns whether anything was
 * freed. */
static inline bool tarn_late_flush(void)
{
    bool any = false;
    struct tarn_late_note *note = __atomic_load_n(&tarn_late_notes, __ATOMIC_RELAXED);
    if (note)
        note = __atomic_exchange_n(&tarn_late_notes, NULL, __ATOMIC_ACQUIRE);
    while (note) {
        struct tarn_late_note *next = note->next;
        tarn_status status = TARN_OK;
        bool freed = tarn_late_try(note->device, note->pointer, &status);
        if (freed)
            free(note);
        else
            tarn_late_note_add(note);
        any = any || freed;
        note = next;
    }
    return any;
}

/* Frees a block, on the device or pinned, after all work that `device` has now. Waits for the
 * device. If that is not possible, the block stays allocated until one of these calls can wait;
 * without host memory for the note, for good. NULL is allowed.
 *   TARN_ERROR_INVALID_POINTER, TARN_ERROR_DOUBLE_FREE   as tarn_free() */
static inline tarn_status tarn_late_free(int device, void *pointer)
{
    size_t size = 0;
    if (!pointer)
        return TARN_OK;
    /* The address of a freed block may be another's by the end of a wait, or by a flush. */
    tarn_status status = tarn_usable_size_get(pointer, &size);
    if (status == TARN_ERROR_INVALID_POINTER || status == TARN_ERROR_DOUBLE_FREE)
        return status;
    if (tarn_late_try(device, pointer, &status)) {
        (void)tarn_late_flush();
        return status;
    }
    struct tarn_late_note *note = (struct tarn_late_note *)malloc(sizeof *note);
    if (note) {
        note->pointer = pointer;
        note->device = device;
        tarn_late_note_add(note);
    }
    return TARN_OK;
}

/* Frees a block whose free in the order of a stream has failed with `failed`. An address without a
 * live block is left alone, and gives that status: it may be another block's by now. */
static inline tarn_status tarn_late_free_after(tarn_status failed, int device, void *pointer)
{
    return failed == TARN_ERROR_INVALID_POINTER || failed == TARN_ERROR_DOUBLE_FREE
               ? failed
               : tarn_late_free(device, pointer);
}

#ifdef __cplusplus
}
#endif
#endif
