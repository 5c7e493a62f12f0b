/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The libraries by number: built-in rows and registered ones, opened once. */
#ifndef TARN_HANDLE_REGISTRY_H
#define TARN_HANDLE_REGISTRY_H

#include "base/thread/lock.h"
#include "driver/loader.h"
#include "handle/library.h"

#include <stdatomic.h>

struct shelf;

enum load_state { LOAD_NEVER_TRIED, LOAD_DONE, LOAD_FAILED };

struct entry {
    const struct library *row;
    int number;
    struct library_calls given;     /* pointers that came with a registered row; constant */
    struct library_calls calls;     /* written before `state` is LOAD_DONE */
    void *opened;                   /* what dlopen() gave; the same */
    _Atomic(enum load_state) state; /* lock to change */
    mutex lock;
    char path[256], version[32], reason[1024]; /* lock; path and reason constant once loaded or
                                                  failed */

    atomic_int mode_values[COMMON_MODES]; /* as tarn_handle_mode_set() has set them; -1: not */
    atomic_uint_fast64_t mode_changes;
    atomic_llong workspace_bytes;       /* as tarn_workspace_size_set() has; -1: not */
    atomic_llong workspace_environment; /* bytes by the environment; -1: none; -2: not read yet */

    _Atomic(struct shelf *) shelves; /* one per device; handle.c's */
};

/* The entry of a number; TARN_ERROR_INVALID_ARGUMENT. */
tarn_status entry_find(tarn_library library, struct entry **entry);
int entry_count(void);
struct entry *entry_at(int number); /* 1 to entry_count() */

/* Opens the library and resolves its calls, the first time: each thread that comes until one has
 * done so, since none can wait for another that may be waiting for the loader.
 * TARN_ERROR_LIBRARY_NOT_FOUND with what was tried; that is remembered too. */
tarn_status entry_load(struct entry *entry);

/* The same, and the driver in use must be the library's. After driver_init(). */
tarn_status entry_usable(struct entry *entry);

/* Fails with what a vendor call has returned: "cublasCreate_v2: status 1
 * (CUBLAS_STATUS_NOT_INITIALIZED)". Called with no lock held, since the library's `status_text` may
 * call tarn. */
tarn_status entry_failed(const struct entry *entry, tarn_status status, const char *call, int code)
    __attribute__((cold));

/* Notes the version that only a handle tells. */
void entry_note_version(struct entry *entry, void *handle);

/* call.c: the calls of a library's functions. If one throws, or ends the thread, what has been
 * pushed by undo_push() is undone. `library_create` is given the place of the handle if its row
 * says that tarn allocates it, and gives NULL there after a failure. */
int library_create(const struct entry *entry, void **made);
int library_destroy(const struct entry *entry, void *vendor); /* and frees such a place */
int library_set_stream(const struct entry *entry, void *vendor, void *native);
int library_get_stream(const struct entry *entry, void *vendor, void **native);
int library_set_workspace(const struct entry *entry, void *vendor, void *pointer, size_t size);
int library_set_mode(const struct mode_calls *calls, void *vendor, intptr_t value);
bool library_get_mode(const struct mode_calls *calls, void *vendor,
                      /* False: the library does not say */
                      intptr_t *value);
const char *library_status_text(const struct entry *entry, int code); /* NULL: it has none */

#endif
