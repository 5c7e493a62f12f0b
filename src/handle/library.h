/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What tarn knows of a vendor library: one row, and one small file, each. Adding a library is adding a file and its
 * line in TARN_LIBRARY_LIST. tests/abi/ compares the prototypes declared here with the vendors' headers. */
#ifndef TARN_HANDLE_LIBRARY_H
#define TARN_HANDLE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/handle.h>

struct handle;

/* How its version is asked for. */
enum version_call {
    VERSION_NONE,
    VERSION_BY_PROPERTY, /* int f(int which, int *value): major, minor, patch */
    VERSION_BY_HANDLE, /* int f(handle, int *): a number that the vendor composes its own way; after the first create */
    VERSION_BY_PARTS,  /* int f(size_t *major, size_t *minor, size_t *patch) */
    VERSION_BY_TEXT    /* int f(char *, size_t) */
};

/* A setting of a handle: int set(handle, int). `usual` is what a new thread finds. Left out where the library lacks
 * it. */
struct library_mode {
    const char *set;
    int usual;
    bool used;
};

enum { MODE_POINTER, MODE_MATH, MODE_ATOMICS, LIBRARY_MODES };
#define LIBRARY_SONAMES 6

struct library {
    const char *name;
    tarn_platform platform;
    const char *sonames[LIBRARY_SONAMES]; /* newest first; NULL ends them */

    /* Symbols. */
    const char *create;        /* int f(handle *) */
    const char *destroy;       /* int f(handle) */
    const char *set_stream;    /* int f(handle, stream); NULL: the stream is an argument of each call */
    const char *get_stream;    /* int f(handle, stream *) */
    const char *set_workspace; /* int f(handle, void *, size_t) */
    const char *status_text;   /* const char *f(int) */
    const char *version;
    enum version_call version_call;
    struct library_mode modes[LIBRARY_MODES];

    /* After a create: gives the library tarn's memory, through the optional symbol `give_memory`. */
    const char *memory;
    int (*give_memory)(struct handle *handle, void *symbol);

    bool by_stream;             /* a handle keeps the stream that it began with */
    bool create_in_capture;     /* shown on hardware to be harmless */
    bool create_takes_number;   /* int f(handle *, create_number) */
    bool failed_handle_is_real; /* a handle that a failed create leaves must be destroyed */
    bool workspace_by_call;     /* the workspace is an argument of each call */
    bool unset_workspace; /* setting the stream does not end the use of a workspace: set_workspace(NULL, 0) does */
    bool unchecked;       /* no vendor header has been compared with this row */
    int create_number;
    int out_of_memory[2]; /* statuses of create that mean so; 0: none */

    size_t (*workspace_size)(int capability_major, int capability_minor); /* bytes; NULL: no workspace */
    const char *workspace_variables[2];                                   /* of the environment */
};

#define TARN_LIBRARY_ROW(NAME, number, name) extern const struct library library_##name;
TARN_LIBRARY_LIST(TARN_LIBRARY_ROW)
#undef TARN_LIBRARY_ROW

/* What libraries are made of: the calls, resolved. NULL where there is none. */
struct library_calls {
    int (*create)(void **handle);
    int (*create_with_number)(void **handle, int number);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*get_stream)(void *handle, void **stream);
    int (*set_workspace)(void *handle, void *pointer, size_t size);
    const char *(*status_text)(int status);
    int (*set_mode[LIBRARY_MODES])(void *handle, int value);
    void *version;
    void *memory;
};

/* For give_memory: memory in the order of a stream of the vendor's, for the device of the handle. Gives NULL when there
 * is none. */
void *handle_memory_alloc(struct handle *handle, size_t size, void *native_stream);
/* False when the pointer is not tarn's. */
bool handle_memory_free(struct handle *handle, void *pointer, void *native_stream);
void *handle_vendor(struct handle *handle);
/* The native stream that the handle is bound to. */
void *handle_native_stream(struct handle *handle);

#endif
