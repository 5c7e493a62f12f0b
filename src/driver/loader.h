/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The vendors' shared libraries, opened by name at run time. All functions are thread-safe, and
 * none touches tarn_last_error(): the caller knows what a missing library means.
 *
 * Libraries are never closed: a vendor's library has threads, thread-local destructors and
 * handlers. */
#ifndef TARN_DRIVER_LOADER_H
#define TARN_DRIVER_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/status.h>

struct loaded {
    void *library;      /* from dlopen() */
    const char *soname; /* the name it was found by: the caller's string */
};

/* Opens the first of `sonames`, a list ended by NULL, that the process has loaded; if there is
 * none, the first that can be opened. TARN_ERROR_LIBRARY_NOT_FOUND: none can. Then `why`, of `size`
 * bytes, says what was tried and why each failed; it may be NULL if `size` is 0. */
tarn_status loader_open(const char *const *sonames, struct loaded *loaded, char *why, size_t size);

/* Whether the process has loaded a library of this name, by tarn or not. */
bool loader_is_loaded(const char *soname);

/* The address of a symbol; NULL: the library lacks it. */
void *loader_symbol(const struct loaded *loaded, const char *symbol);

/* The file of a library; its soname if that is unknown. Valid as long as the process. */
const char *loader_path(const struct loaded *loaded);

/* Stores the address of a symbol in a function pointer, for which C has no cast. `function` is the
 * address of the pointer. */
void loader_store(void *function, void *address);

/* Appends text to a buffer of `size` bytes, as much as fits; always terminated. */
void loader_say(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For tests: sonames and symbols that count as missing, separated by spaces. NULL: none. The
 * caller's string must stay valid. */
void loader_fail(const char *names);
bool loader_is_missing(const char *name);

#endif
