/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the programs of build.life have in common: a check that ends the program, and the library's
 * calls as one that was opened has them. */
#ifndef TESTS_BUILD_LIFE_H
#define TESTS_BUILD_LIFE_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <tarn/host.h>
#include <tarn/live.h>
#include <tarn/tarn.h>

#define NEED(condition)                                                             \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

/* X(call, result, parameters) */
#define CALLS(X)                                                                 \
    X(tarn_malloc, void *, (size_t))                                             \
    X(tarn_free, tarn_status, (void *))                                          \
    X(tarn_usable_size_get, tarn_status, (const void *, size_t *))               \
    X(tarn_device_trim, tarn_status, (int, size_t))                              \
    X(tarn_device_stats_get, tarn_status, (int, tarn_stats *))                   \
    X(tarn_device_guard_set, tarn_status, (tarn_guard *, int))                   \
    X(tarn_guard_restore, tarn_status, (tarn_guard *))                           \
    X(tarn_pool_create, tarn_status, (const tarn_pool_options *, tarn_pool **))  \
    X(tarn_pool_release, tarn_status, (tarn_pool *))                             \
    X(tarn_pool_alloc, tarn_status, (tarn_pool *, tarn_stream, size_t, void **)) \
    X(tarn_stream_lease, tarn_status, (int, int, tarn_stream *))                 \
    X(tarn_stream_return, tarn_status, (tarn_stream))                            \
    X(tarn_live_start, tarn_status, (const tarn_live_options *))                 \
    X(tarn_live_stop, tarn_status, (void))                                       \
    X(tarn_last_error, const char *, (void))                                     \
    X(tarn_shutdown, tarn_status, (void))

struct calls {
#define X(call, result, parameters) result(*call) parameters;
    CALLS(X)
#undef X
};

static inline void calls_find(void *library, struct calls *calls)
{
#define X(call, result, parameters) NEED((*(void **)&calls->call = dlsym(library, #call)));
    CALLS(X)
#undef X
}

static inline void *open_library(const char *path, int mode)
{
    void *library = dlopen(path, mode);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    NEED(library);
    return library;
}

#endif
