/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Shared libraries of the vendors, opened by name while the process runs. All functions are
 * thread-safe, and none touches tarn_last_error(): the caller knows what a missing library means.
 *
 * Nothing is ever closed: a vendor's library has threads, thread-local destructors and handlers of
 * its own. */
#ifndef TARN_DRIVER_LOADER_H
#define TARN_DRIVER_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/status.h>

struct loaded {
    void *library;      /* what dlopen() gave */
    const char *soname; /* the one it was found by: the caller's string */
};

/* Opens the first of `sonames`, which a NULL ends, that is loaded in the process already, or else
 * the first that can be opened. TARN_ERROR_LIBRARY_NOT_FOUND where none can:
 * then `why`, of `size` bytes, says what was tried and why each failed. It may be NULL with a size
 * of 0. */
tarn_status loader_open(const char *const *sonames, struct loaded *loaded, char *why, size_t size);

/* Whether the process has loaded a library of that name, whoever did. */
bool loader_is_loaded(const char *soname);

/* The address of a symbol; NULL where the library has none. */
void *loader_symbol(const struct loaded *loaded, const char *symbol);

/* The file behind a library; its soname where that is not known. Valid as long as the process. */
const char *loader_path(const struct loaded *loaded);

/* Stores an object address in a function pointer, which C has no cast for: `function` is the
 * address of the pointer. */
void loader_store(void *function, void *address);

/* Adds text to what a buffer of `size` bytes holds already, as much as fits; always terminated. */
void loader_say(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For tests: sonames and symbols to treat as missing, separated by spaces. NULL clears. The string
 * stays the caller's and must stay valid. */
void loader_fail(const char *names);
bool loader_is_missing(const char *name);

#endif
