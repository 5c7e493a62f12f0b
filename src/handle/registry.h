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

/* One library. It is never destroyed. Fields without a lock are constant. */
struct entry {
    const struct library *row;
    int number;                     /* from 1 */
    struct library_calls given;     /* pointers that came with a row that the program registered */
    struct library_calls calls;     /* valid and constant once `state` is LOAD_DONE */
    void *opened;                   /* the result of dlopen(); valid as `calls` is */
    _Atomic(enum load_state) state; /* lock to change */
    mutex lock;
    char path[256], version[32], reason[1024]; /* lock */

    /* What tarn_handle_mode_set() has set for all threads; -1: nothing. */
    atomic_int mode_values[COMMON_MODES];
    atomic_uint_fast64_t mode_changes; /* how often; handles compare it at a bind */
    atomic_llong workspace_bytes;      /* what tarn_workspace_size_set() has set; -1: nothing */
    /* Bytes that the environment sets; -1: none; -2: not read yet. */
    atomic_llong workspace_environment;

    _Atomic(struct shelf *) shelves; /* one per device; handle.c's */
};

/* Finds the entry of a number from a caller. TARN_ERROR_INVALID_ARGUMENT if there is none. */
tarn_status entry_find(tarn_library library, struct entry **entry);
int entry_count(void);
struct entry *entry_at(int number); /* 1 to entry_count() */

/* Opens the library and resolves its calls, unless that was done before. After
 * TARN_ERROR_LIBRARY_NOT_FOUND, whose text says what was tried, it is tried again only if the
 * process has loaded the library. Threads that call it at the same time all open the library: none
 * of them can wait for another, which may be waiting for the loader's lock. */
tarn_status entry_load(struct entry *entry);

/* The same, and fails with TARN_ERROR_NOT_SUPPORTED if the library needs another driver than the
 * one in use. Called after driver_init(). */
tarn_status entry_usable(struct entry *entry);

/* Fails with what a vendor call has returned: "cublasCreate_v2: status 1
 * (CUBLAS_STATUS_NOT_INITIALIZED)". Called with no lock held, since the library's `status_text` may
 * call tarn. */
tarn_status entry_failed(const struct entry *entry, tarn_status status, const char *call, int code)
    __attribute__((cold));

/* For VERSION_BY_HANDLE: asks a new handle for the library's version and keeps it. */
void entry_note_version(struct entry *entry, void *handle);

/* call.c: the calls of a library's functions. If one throws, or ends the thread, what undo_push()
 * has pushed is undone. library_create() allocates the handle's structure if the row has
 * `handle_bytes`, and library_destroy() frees it. After a failure `made` is NULL. */
int library_create(const struct entry *entry, void **made);
int library_destroy(const struct entry *entry, void *vendor);
int library_set_stream(const struct entry *entry, void *vendor, void *native);
int library_get_stream(const struct entry *entry, void *vendor, void **native);
int library_set_workspace(const struct entry *entry, void *vendor, void *pointer, size_t size);
int library_set_mode(const struct mode_calls *calls, void *vendor, intptr_t value);
/* Reads a mode. False: the library has no function for that, or it failed. */
bool library_get_mode(const struct mode_calls *calls, void *vendor, intptr_t *value);
const char *library_status_text(const struct entry *entry, int code); /* NULL: there is none */

#endif
